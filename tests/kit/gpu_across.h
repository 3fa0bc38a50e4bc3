/* gpu_across.h - what communicators of GPUs over several domains must do, on each rank, for tests
 * whose ranks are threads on the fake driver (thr_across_gpu.c) or processes on GPUs
 * (mpg_domains.c). Expected values are made in the order of domains (ck_domain_of). Nothing here
 * destroys the communicator but ga_matrix. */
#ifndef GPU_ACROSS_H_
#define GPU_ACROSS_H_

#include "gpu_cases.h"
#include "symm_group.h"
#include "symm_p2p.h"

/* Drawn calls of all collectives, eager and from graphs. */
static inline void ga_matrix(const gc_rank *g, symmComm_t comm, int cases) {
    ck_world w;
    T_OK(symmSetDevice(g->rank % g->devices));
    cu_stream stream = gk_new_stream();
    ck_open_on(&w, comm, g->rank, g->n, g->seed, &gk_device, gk_stream(stream));
    gc_meet(g);
    for (int j = 0; j < cases; j++) {
        ck_case k = gc_sample(g->seed, j, g->n);
        if (j % 6 == 5)
            gc_replayed(g, &w, &k);
        else
            ck_run(&w, &k);
    }
    T_OK(symmBarrier(comm, w.stream));
    gk_wait(comm, stream);
    gc_meet(g);
    ck_close(&w, (int)(g->seed & 1));
    CU(cuStreamDestroy(stream));
    gc_meet(g);
}

typedef struct {
    int *device, *host;
    size_t count;
    cu_stream stream;
} ga_memory;

static inline ga_memory ga_memory_new(size_t count) {
    ga_memory m = {NULL, NULL, count, gk_new_stream()};
    m.device = (int *)(void *)gk_plain(count * sizeof *m.device);
    m.host = (int *)(void *)gk_pinned(count * sizeof *m.host);
    return m;
}
static inline void ga_memory_free(ga_memory *m) {
    gk_free_plain((char *)m->device);
    gk_free_pinned((char *)m->host);
    CU(cuStreamDestroy(m->stream));
}

/* Calls that take several steps: in place, where the stage is smaller than the message. */
static inline void ga_large(const gc_rank *g, symmComm_t comm, size_t count) {
    ga_memory m = ga_memory_new(count * (unsigned)g->n);
    const size_t all = m.count * sizeof *m.host;
    gc_meet(g);
    for (size_t i = 0; i < count; i++) m.host[i] = (int)(i % 4099) * (g->rank + 1);
    gk_put(m.stream, m.device, m.host, count * sizeof *m.host);
    T_OK(symmAllReduce(m.device, m.device, count, symmInt32, symmSum, comm, gk_stream(m.stream)));
    gk_get(comm, m.stream, m.host, m.device, count * sizeof *m.host);
    for (size_t i = 0; i < count; i++)
        T_CHECKF(m.host[i] == (int)(i % 4099) * g->n * (g->n + 1) / 2, "element %zu of a sum: %d",
                 i, m.host[i]);
    for (size_t i = 0; i < count; i++) m.host[i] = (int)(i % 4099) * (g->rank + 1) * g->n;
    gk_put(m.stream, m.device, m.host, count * sizeof *m.host);
    T_OK(symmAllReduce(m.device, m.device, count, symmInt32, symmAvg, comm, gk_stream(m.stream)));
    gk_get(comm, m.stream, m.host, m.device, count * sizeof *m.host);
    for (size_t i = 0; i < count; i++)
        T_CHECKF(m.host[i] == (int)(i % 4099) * g->n * (g->n + 1) / 2,
                 "element %zu of an average: %d", i, m.host[i]);
    for (size_t i = 0; i < m.count; i++)
        m.host[i] = (int)(i % count % 4099) * 64 + g->rank * g->n + (int)(i / count);
    gk_put(m.stream, m.device, m.host, all);
    T_OK(symmAlltoAll(m.device, m.device, count, symmInt32, comm, gk_stream(m.stream)));
    gk_get(comm, m.stream, m.host, m.device, all);
    for (size_t i = 0; i < m.count; i++)
        T_CHECKF(m.host[i] == (int)(i % count % 4099) * 64 + (int)(i / count) * g->n + g->rank,
                 "element %zu of an alltoall in place: %#x", i, (unsigned)m.host[i]);
    gc_meet(g);
    ga_memory_free(&m);
}

/* Calls that follow each other on two streams which nothing else orders, the first one late: each
 * reads what the one before wrote. captured: in a graph of both, which is launched `times`. */
static inline void ga_chain(symmComm_t comm, int *at, size_t count, cu_stream a, cu_stream b) {
    for (int i = 0; i < 4; i++)
        T_OK(symmAllReduce(at + (unsigned)i * count, at + (unsigned)(i + 1) * count, count,
                           symmInt32, symmSum, comm, gk_stream(i % 2 ? b : a)));
}

static inline void ga_order(cu_stream from, cu_stream to) {
    cu_event e;
    CU(cuEventCreate(&e, SYMM_CUDA_EVENT_DISABLE_TIMING));
    CU(cuEventRecord(e, from));
    CU(cuStreamWaitEvent(to, e, 0));
    CU(cuEventDestroy(e));
}

static inline void ga_chain_check(const gc_rank *g, symmComm_t comm, ga_memory *m, cu_stream b,
                                  size_t count, int first) {
    int want = first * g->n * (g->n + 1) / 2;
    for (int i = 1; i < 4; i++) want *= g->n;
    gk_wait(comm, b);
    gk_get(comm, m->stream, m->host, m->device + 4 * count, count * sizeof *m->host);
    for (size_t i = 0; i < count; i++)
        T_CHECKF(m->host[i] == want, "element %zu of a chain: %d, not %d", i, m->host[i], want);
}

static inline void ga_chain_fill(const gc_rank *g, ga_memory *m, size_t count, int first) {
    for (size_t i = 0; i < count; i++) m->host[i] = first * (g->rank + 1);
    gk_put(m->stream, m->device, m->host, count * sizeof *m->host);
    CU(cuMemsetD8Async((uintptr_t)(m->device + count), 0xee, 4 * count * sizeof *m->host,
                       m->stream));
    CU(cuStreamSynchronize(m->stream));
}

static inline void ga_streams(const gc_rank *g, symmComm_t comm, int times) {
    static const size_t counts[] = {5, 60000};
    ga_memory m = ga_memory_new(5 * counts[1]);
    cu_stream b = gk_new_stream();
    gc_meet(g);
    for (int k = 0; k < 2; k++) {
        const size_t count = counts[k];
        ga_chain_fill(g, &m, count, 3);
        gk_delay(m.stream, g->rank == 0 ? 20000 : 0);
        ga_chain(comm, m.device, count, m.stream, b);
        ga_chain_check(g, comm, &m, b, count, 3);
        gc_meet(g);
        gk_capture(m.stream, SYMM_CUDA_CAPTURE_MODE_THREAD_LOCAL);
        ga_order(m.stream, b);
        ga_chain(comm, m.device, count, m.stream, b);
        ga_order(b, m.stream);
        gk_graph graph = gk_captured(m.stream);
        gc_meet(g);
        for (int i = 1; i <= times; i++) {
            ga_chain_fill(g, &m, count, i);
            CU(cuGraphLaunch(graph.exec, m.stream));
            ga_chain_check(g, comm, &m, b, count, i);
        }
        gc_meet(g);
        gk_drop(&graph);
    }
    gc_meet(g);
    CU(cuStreamDestroy(b));
    ga_memory_free(&m);
}

/* A sum of rank + 1 of each rank times its factor, which lies on the device and is read when the
 * call runs: *out. In a group. */
static inline void ga_scaled(const gc_rank *g, symmComm_t comm, ga_memory *m, int *out) {
    int *in = m->device + m->count - 2, *factor = in + 1;
    symmRedOp_t op;
    m->host[0] = g->rank + 1, m->host[1] = 10 + g->rank;
    gk_put(m->stream, in, m->host, 2 * sizeof *in);
    T_OK(symmRedOpCreatePreMulSum(&op, factor, symmInt32, symmScalarDevice, comm));
    T_OK(symmGroupStart());
    T_OK(symmAllReduce(in, out, 1, symmInt32, op, comm, gk_stream(m->stream)));
    T_OK(symmGroupEnd());
    T_OK(symmRedOpDestroy(op, comm));
    int want = 0;
    for (int r = 0; r < g->n; r++) want += (r + 1) * (10 + r);
    gk_get(comm, m->stream, m->host, out, sizeof *out);
    T_EQ(m->host[0], want);
}

/* A group of sends and receives between all ranks, and one of collectives beside messages. */
static inline void ga_messages(const gc_rank *g, symmComm_t comm, size_t most) {
    const size_t part = most / sizeof(int);
    ga_memory m = ga_memory_new(2 * part * (unsigned)g->n);
    int *in = m.device, *out = m.device + part * (unsigned)g->n, *sum = m.host + part;
    const symmStream_t stream = gk_stream(m.stream);
    gc_meet(g);
    for (size_t count = 1; count <= part; count = count * 37 + 1) {
        for (size_t i = 0; i < count * (unsigned)g->n; i++)
            m.host[i] = (int)(i % count) * 64 + g->rank * 8 + (int)(i / count);
        gk_put(m.stream, in, m.host, count * (unsigned)g->n * sizeof *in);
        T_OK(symmGroupStart());
        for (int q = 0; q < g->n; q++) {
            if (q == g->rank) continue;
            T_OK(symmSend(in + (unsigned)q * count, count, symmInt32, q, comm, stream));
            T_OK(symmRecv(out + (unsigned)q * count, count, symmInt32, q, comm, stream));
        }
        if (count == 1) T_OK(symmAllReduce(in, out + part, 1, symmInt32, symmMax, comm, stream));
        T_OK(symmGroupEnd());
        gk_get(comm, m.stream, m.host, out, (count * (unsigned)g->n) * sizeof *in);
        for (size_t i = 0; i < count * (unsigned)g->n; i++)
            T_CHECKF(i / count == (unsigned)g->rank ||
                         m.host[i] == (int)(i % count) * 64 + (int)(i / count) * 8 + g->rank,
                     "element %zu of %zu messages of %zu: %#x", i, (size_t)g->n - 1, count,
                     (unsigned)m.host[i]);
        if (count != 1) continue;
        gk_get(comm, m.stream, sum, out + part, sizeof *sum);
        T_EQ(*sum, 8 * (g->n - 1));
        ga_scaled(g, comm, &m, out);
    }
    gc_meet(g);
    ga_memory_free(&m);
}

/* Two communicators of every second rank, which work beside their parent. */
static inline void ga_split(const gc_rank *g, symmComm_t comm) {
    symmComm_t child = NULL;
    const int n = (g->n + 1 - g->rank % 2) / 2;
    T_OK(symmCommSplit(comm, g->rank % 2, g->rank, &child, NULL));
    gk_bench b = gk_bench_new();
    gc_meet(g);
    gk_works(child, g->rank / 2, n, &b);
    gk_works(comm, g->rank, g->n, &b);
    gc_meet(g);
    T_OK(symmCommDestroy(child));
    gk_works(comm, g->rank, g->n, &b);
    gc_meet(g);
    gk_bench_free(&b);
}

/* Without each rank in turn, which waits meanwhile; without the last one behind its revoke. */
static inline void ga_shrink(const gc_rank *g, symmComm_t comm) {
    gk_bench b = gk_bench_new();
    for (int out = 0; out < g->n; out++) {
        symmComm_t child = NULL;
        const int stays = g->rank != out;
        gk_works(comm, g->rank, g->n, &b);
        gc_meet(g);
        if (!stays && out == g->n - 1) T_OK(symmCommRevoke(comm, 0));
        if (stays) {
            T_OK(symmCommShrink(comm, &out, 1, &child, NULL, 0));
            gk_works(child, g->rank - (g->rank > out), g->n - 1, &b);
        }
        gc_meet(g);
        if (stays) T_OK(symmCommDestroy(child));
    }
    gk_bench_free(&b);
}

/* One registration, a window in each domain: the calls find it. */
static inline void ga_window(const gc_rank *g, symmComm_t comm) {
    enum { BYTES = 1 << 20 };
    symmWindow_t win;
    void *at = NULL;
    int *host = (int *)(void *)gk_pinned(BYTES);
    cu_stream stream = gk_new_stream();
    T_OK(symmMemAlloc(&at, BYTES));
    T_OK(symmWindowRegister(comm, at, BYTES, &win, SYMM_WIN_DEFAULT));
    gc_meet(g);
    gk_reduce(comm, g->rank, g->n, at, host, 100000, stream);
    gc_meet(g);
    T_OK(symmWindowDeregister(comm, win));
    gk_reduce(comm, g->rank, g->n, at, host, 100000, stream);
    gc_meet(g);
    T_OK(symmMemFree(at));
    gk_free_pinned((char *)host);
    CU(cuStreamDestroy(stream));
}

#endif
