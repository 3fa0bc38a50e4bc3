/* gpu_cases.h - the sample over types, reductions, counts, places, alignments, kernels, CTAs,
 * threads and scratch on GPUs, eager and replayed from graphs; and the bits of every reduction
 * beside the host's. Ranks are threads (gpu_matrix.c) or processes (mpg_ranks.c), each on its
 * own thread; `meet` is their barrier. */
#ifndef GPU_CASES_H_
#define GPU_CASES_H_

#include "host/gpu/gpu.h"
#include "gpu_kit.h"

typedef struct {
    int rank, n, devices;
    uint64_t seed;
    void (*meet)(void *arg); /* all ranks, on the host */
    void *arg;
} gc_rank;

static inline void gc_meet(const gc_rank *g) {
    g->meet(g->arg);
}

/* A rank that is a thread of a job's. */
static inline void gc_meet_threads(void *job) {
    gk_meet(job);
}
static inline gc_rank gc_thread(gk_job *j, int rank) {
    return (gc_rank){rank, j->n, j->devices, j->seed, gc_meet_threads, j};
}

/* Captured calls are let go by a thread of CUDA's, some time after their graph; so are threads that
 * wait for that. */
static inline void gc_settle(void) {
    const uint64_t since = symm_now_ns();
    do {
        symm_gpu_reap();
        if (SYMM_STAT_GET(comms) == 0 && SYMM_STAT_GET(threads) == 0) return;
        usleep(1000);
    } while (gk_ms_since(since) < 5000);
}

/* ---- environments ---- */

enum { GC_VARIANTS = 4 };

/* Each kernel of the busiest collective once, and the planner's choice. */
static inline int gc_algos(int n) {
    int rows[SYMM_KERNEL_COUNT], most = 0;
    for (int c = 0; c < symmNumColls; c++) {
        const int count = coll_moves((symmColl_t)c) ? gk_rows((symmColl_t)c, n, rows) : 0;
        if (count > most) most = count;
    }
    return most + 1;
}
static inline int gc_envs(int n) {
    return gc_algos(n) * GC_VARIANTS;
}

/* Environment i for the next communicator, alike on all ranks: with each kernel each number of CTAs
 * and of threads, and each size of scratch. forced: the kernel per collective, -1 none. */
static inline void gc_env(int i, int n, int devices, int *forced) {
    static const int ctas[] = {0, 1, 3, 16}, threads[] = {0, 32, 96, 480};
    static const char *const scratch[] = {"112M", "1M", "4M", "16M"};
    static const char *const relay[] = {"auto", "staging", "lines", "staging"};
    const int a = i % gc_algos(n), b = i / gc_algos(n);
    char text[512] = "", number[16];
    size_t at = 0;
    for (int c = 0; c < symmNumColls; c++) {
        int rows[SYMM_KERNEL_COUNT];
        const int count = coll_moves((symmColl_t)c) ? gk_rows((symmColl_t)c, n, rows) : 0;
        forced[c] = count && a < gc_algos(n) - 1 ? rows[a % count] : -1;
        if (forced[c] >= 0)
            at += (size_t)snprintf(text + at, sizeof text - at, "%s%s", at ? "," : "",
                                   symm_kernels[forced[c]].name);
    }
    T_CHECK(at < sizeof text);
    setenv("SYMM_ALGO", text, 1);
    snprintf(number, sizeof number, "%d", gk_fit(ctas[(a + b) % 4], n, devices));
    setenv("SYMM_CTAS", number, 1);
    snprintf(number, sizeof number, "%d", threads[(a + 3 * b + 1) % 4]);
    setenv("SYMM_THREADS", number, 1);
    setenv("SYMM_SCRATCH", scratch[(a + 2 * b + b / 2) % 4], 1);
    setenv("SYMM_RELAY", relay[b % 4], 1);
}

static inline void gc_env_none(void) {
    unsetenv("SYMM_ALGO");
    unsetenv("SYMM_CTAS");
    unsetenv("SYMM_THREADS");
    unsetenv("SYMM_SCRATCH");
    unsetenv("SYMM_RELAY");
}

/* ---- cases ---- */

/* Counts around what the kernels divide a message into: 8 and 16 bytes, lines of 120 bytes, four of
 * which a warp moves, items of several warps, slices of n. */
static inline uint64_t gc_count(uint64_t h, int es, int n) {
    static const uint64_t bytes[] = {0,       8,      16,       112,      120,
                                     128,     240,    464,      480,      496,
                                     512,     960,    1920,     3840,     4096,
                                     7200,    7680,   14400,    65536,    115200,
                                     131072,  262144, 1u << 19, 1u << 20, 480 * 15 * 132,
                                     3u << 20};
    const uint64_t some = sizeof bytes / sizeof *bytes;
    uint64_t at = bytes[h % (h >> 40 & 3 ? some - 4 : some)]; /* fewer of the last */
    if (h >> 44 & 1) at *= at < 1u << 18 ? (unsigned)n : 1u;
    const int64_t count = (int64_t)(at / (unsigned)es) + (int64_t)(h >> 8) % 5 - 2;
    return count < 0 ? 1 : (uint64_t)count;
}

static inline ck_case gc_sample(uint64_t seed, int j, int n) {
    ck_case k = ck_sample_of(seed, j, n, SYMM_K_GPU);
    const uint64_t h = ck_hash(seed, (uint64_t)j, 9);
    const int es = (int)symm_type_size((unsigned)k.type);
    if (j % 3) k.count = gc_count(h, es, n);
    return ck_fit(k, n);
}

/* The same call eager and from a graph, in turn, with new data each time. */
static inline void gc_replayed(const gc_rank *g, const ck_world *w, const ck_case *k) {
    ck_call c;
    cu_stream stream = (cu_stream)(void *)w->stream;
    ck_begin(&c, w, k);
    gk_wait(w->comm, stream);
    gc_meet(g);
    gk_capture(stream, SYMM_CUDA_CAPTURE_MODE_THREAD_LOCAL);
    ck_issue(&c, w->stream);
    gk_graph graph = gk_captured(stream);
    gc_meet(g);
    for (int i = 0; i < 6; i++) {
        if (i) ck_refill(&c);
        if (i % 3 == 1)
            ck_issue(&c, w->stream);
        else
            CU(cuGraphLaunch(graph.exec, stream));
        ck_check(&c);
    }
    gc_meet(g);
    gk_drop(&graph);
    ck_end(&c);
    gc_meet(g);
}

/* The sample of environment i on one rank; destroys the communicator. */
static inline void gc_matrix(const gc_rank *g, symmComm_t comm, int i, int cases,
                             const int *forced) {
    ck_world w;
    T_OK(symmSetDevice(g->rank % g->devices));
    cu_stream stream = gk_new_stream();
    ck_open_on(&w, comm, g->rank, g->n, ck_hash(g->seed, (uint64_t)i, 6000), &gk_device,
               gk_stream(stream));
    gc_meet(g);
    for (int j = 0; j < cases; j++) {
        ck_case k = gc_sample(ck_hash(g->seed, (uint64_t)i, 7000), j + i * cases, g->n);
        if (j % 6 == 5)
            gc_replayed(g, &w, &k);
        else
            ck_run(&w, &k);
    }
    for (int k = 0; k < symmNumColls; k++) { /* small enough for every kernel */
        int rows[SYMM_KERNEL_COUNT];
        if (!coll_moves((symmColl_t)k) || !gk_rows((symmColl_t)k, g->n, rows)) continue;
        ck_case small = {.coll = (symmColl_t)k, .type = symmInt32, .count = 64, .seed = g->seed};
        ck_run(&w, &small);
        T_CHECKF(forced[k] < 0 || gk_stat(comm, symm_kernels[forced[k]].name) > 0,
                 "%s was forced and never ran", symm_kernels[forced[k]].name);
    }
    T_OK(symmBarrier(comm, w.stream));
    gk_wait(comm, stream);
    gc_meet(g);
    ck_close(&w, i & 1);
    CU(cuStreamDestroy(stream));
    gc_meet(g);
}

/* ---- bits ---- */

/* A value of the type that arithmetic has trouble with, or any bits. */
static inline uint64_t gc_special(int type, uint64_t h) {
    static const struct {
        int exponent, mantissa;
    } formats[] = {[symmFloat16] = {5, 10}, [symmFloat32] = {8, 23},   [symmFloat64] = {11, 52},
                   [symmBfloat16] = {8, 7}, [symmFloat8e4m3] = {4, 3}, [symmFloat8e5m2] = {5, 2}};
    const uint64_t any = ck_hash(h, 1, 1);
    if (!ck_is_float(type)) {
        const uint64_t top = 1ull << (8 * symm_type_size((unsigned)type) - 1),
                       odd[] = {0, 1, ~0ull, top, top - 1, top + 1};
        return h % 12 < 6 ? odd[h % 6] : any;
    }
    const int e = formats[type].exponent, m = formats[type].mantissa;
    const uint64_t one = ((1ull << (e - 1)) - 1) << m, inf = ((1ull << e) - 1) << m,
                   low = (1ull << m) - 1;
    const uint64_t values[] = {
        0,       1,   low,     low + 1,      inf - 1, inf, inf | (low + 1) / 2,
        inf | 1, one, one + 1, inf - 1 - low};
    if (h % 22 >= 11) return any;
    return values[h % 22] | (h >> 63) << (e + m);
}

/* Of 8-bit types ranks 0 and 1 meet with every pair of codes. */
static inline void gc_fill(char *out, int type, int rank, uint64_t seed, uint64_t count) {
    const size_t es = symm_type_size((unsigned)type);
    for (uint64_t i = 0; i < count; i++) {
        uint64_t v = gc_special(type, ck_hash(seed, i, (uint64_t)rank));
        if (es == 1 && rank < 2) v = rank ? i >> 8 : i;
        memcpy(out + i * es, &v, es);
    }
}

typedef struct {
    const gc_rank *g;
    symmComm_t comm;
    cu_stream stream;
    int type, op;
    uint64_t count, seed;
    char *in, *want, *got, *device; /* in: of all ranks; device: source, result, scalar */
    uint64_t scalar[SYMM_MAX_RANKS];
} gc_bits;

enum { GC_BITS_BYTES = 132 << 10 };

static inline void gc_expect(gc_bits *b) {
    const void *srcs[SYMM_MAX_RANKS];
    const size_t es = symm_type_size((unsigned)b->type);
    b->count = (es == 1 ? 65536 : 131072 / es - 64) + 13;
    for (int r = 0; r < b->g->n; r++) {
        srcs[r] = b->in + (size_t)r * GC_BITS_BYTES;
        gc_fill(b->in + (size_t)r * GC_BITS_BYTES, b->type, r, b->seed, b->count);
        b->scalar[r] = gc_special(b->type, ck_hash(b->seed, 5, (uint64_t)r));
        if (es < 8) b->scalar[r] &= (1ull << 8 * es) - 1;
    }
    symm_reduce_isa("base")->reduce[b->type][b->op](b->want, srcs, b->g->n, b->count, b->scalar);
}

static inline void gc_differs(const gc_bits *b, const char *kernel) {
    const size_t es = symm_type_size((unsigned)b->type);
    uint64_t i = 0, got = 0, want = 0;
    char inputs[400] = "", text[256];
    const ck_case k = {.coll = symmCollAllReduce,
                       .type = b->type,
                       .op = b->op,
                       .count = b->count,
                       .seed = b->seed};
    while (memcmp(b->got + i * es, b->want + i * es, es) == 0) i++;
    memcpy(&got, b->got + i * es, es);
    memcpy(&want, b->want + i * es, es);
    for (int r = 0; r < b->g->n; r++) {
        uint64_t v = 0;
        size_t len = strlen(inputs);
        memcpy(&v, b->in + (size_t)r * GC_BITS_BYTES + i * es, es);
        snprintf(inputs + len, sizeof inputs - len, " %#llx", (unsigned long long)v);
    }
    T_CHECKF(0, "%s: %s: element %llu of inputs%s is %#llx, on the host %#llx", kernel,
             ck_text(&k, b->g->n, text, sizeof text), (unsigned long long)i, inputs,
             (unsigned long long)got, (unsigned long long)want);
}

static inline void gc_one(gc_bits *b, int kernel) {
    const uint64_t bytes = b->count * symm_type_size((unsigned)b->type),
                   before = gk_launches(b->comm, kernel);
    char *dst = b->device + GC_BITS_BYTES, *factor = dst + GC_BITS_BYTES;
    symmRedOp_t op = (symmRedOp_t)b->op;
    const int on_device = (kernel + b->type) & 1;
    void *scalar = on_device ? (void *)factor : &b->scalar[b->g->rank];
    gk_put(b->stream, factor, &b->scalar[b->g->rank], 8);
    CU(cuMemsetD8Async((uintptr_t)dst, 0x5a, GC_BITS_BYTES, b->stream));
    if (b->op == SYMM_OP_PREMUL)
        T_OK(symmRedOpCreatePreMulSum(&op, scalar, (symmDataType_t)b->type,
                                      on_device ? symmScalarDevice : symmScalarHostImmediate,
                                      b->comm));
    gk_force(b->comm, symmCollAllReduce, kernel, 0, 0);
    T_OK(symmAllReduce(b->device, dst, b->count, (symmDataType_t)b->type, op, b->comm,
                       gk_stream(b->stream)));
    gk_get(b->comm, b->stream, b->got, dst, bytes);
    if (memcmp(b->got, b->want, bytes) != 0) gc_differs(b, symm_kernels[kernel].name);
    T_CHECKF(gk_launches(b->comm, kernel) == before + 1, "%s was forced and did not run",
             symm_kernels[kernel].name);
    if (b->op == SYMM_OP_PREMUL) T_OK(symmRedOpDestroy(op, b->comm));
}

/* Every type and reduction with every kernel, in windows. Destroys the communicator. */
static inline void gc_all_bits(const gc_rank *g, symmComm_t comm) {
    int rows[SYMM_KERNEL_COUNT];
    symmWindow_t win;
    T_OK(symmSetDevice(g->rank % g->devices));
    const int count = gk_rows(symmCollAllReduce, g->n, rows);
    gc_bits b = {.g = g, .comm = comm, .stream = gk_new_stream()};
    b.in = gk_pinned((uint64_t)(g->n + 2) * GC_BITS_BYTES);
    b.want = b.in + (size_t)g->n * GC_BITS_BYTES;
    b.got = b.want + GC_BITS_BYTES;
    T_OK(symmMemAlloc((void **)&b.device, 2 * GC_BITS_BYTES + 4096));
    T_OK(symmWindowRegister(comm, b.device, 2 * GC_BITS_BYTES, &win, SYMM_WIN_DEFAULT));
    gc_meet(g);
    for (int i = 0; i < symmNumTypes * SYMM_OP_COUNT; i++) {
        b.type = i % symmNumTypes;
        b.op = i / symmNumTypes;
        b.seed = ck_hash(g->seed, (uint64_t)i, (uint64_t)g->n);
        gc_expect(&b);
        gk_put(b.stream, b.device, b.in + (size_t)g->rank * GC_BITS_BYTES, GC_BITS_BYTES);
        for (int k = 0; k < count; k++) gc_one(&b, rows[k]);
    }
    gc_meet(g);
    T_OK(symmWindowDeregister(comm, win));
    T_OK(symmCommDestroy(comm));
    T_OK(symmMemFree(b.device));
    gk_free_pinned(b.in);
    CU(cuStreamDestroy(b.stream));
    gc_meet(g);
}

#endif
