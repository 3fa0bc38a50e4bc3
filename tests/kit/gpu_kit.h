/* gpu_kit.h - what the tests on GPUs share: finding the GPUs, streams, copies, waits that end,
 * graphs, kernels forced in turn, and coll_kit.h's cases in device memory.
 *
 * CUDA does not survive a fork: gk_begin is called by the test itself (each is a forked child) or
 * by each rank of T_FORK, never before. Thread ranks drive GPU rank % devices; several may share
 * one. So each rank has streams of its own, for two ranks' kernels on one stream would wait for
 * each other; nothing that may wait for the whole GPU (allocations, frees, new streams) stands
 * between two ranks' calls of one collective: gk_meet before and after; and no rank gets far ahead
 * with host functions (gk_near).
 *
 * GPU_FAKE=devices runs everything on the fake driver: the tests' own logic, no kernel.
 * GPU_FAKE_HOST=k: and k ranks of mpirun each play a host.
 * GPU_DEVICES=n uses the first n GPUs. */
#ifndef GPU_KIT_H_
#define GPU_KIT_H_

#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <unistd.h>

#include "host/gpu/backend.h"
#include "host/comm/comm.h"
#include "base/stats.h"
#include "transport/cuda/cuda_device.h"
#include "coll_kit.h"
#include "fake_kernels.h"
#include "fake_nvml.h"

enum {
    GK_TIMEOUT_MS =
        /* SYMM_TIMEOUT, where a test says nothing else: a rank that waits for ever is named */
    15000,
    GK_STUCK_MS = 30000 /* a stream that is still at work then is a failure of its own */
};

static inline uint64_t gk_ms_since(uint64_t ns) {
    return (symm_now_ns() - ns) / 1000000;
}
static inline int gk_number(const char *name, int otherwise) {
    const char *text = getenv(name);
    return text && *text ? atoi(text) : otherwise;
}

/* ---- the GPUs ---- */

/* On the fake driver, under mpirun: GPU_FAKE_HOST ranks play one host, all hosts are of one NVLink
 * fabric. */
extern int symm_test_where[2];
static inline void gk_fake_host(int devices) {
    const int per = gk_number("GPU_FAKE_HOST", 0);
    if (!per) return;
    symm_test_where[0] = gk_number("OMPI_COMM_WORLD_RANK", 0) / per;
    for (int d = 0; d < devices; d++) fake_nvml_set(d, 1, 1);
}

/* Prepares this process. *why: "" or why there is no GPU to test. Returns the devices to be
 * used. */
static inline int gk_find(const char **why) {
    static int faked; /* once in a process */
    char ms[16];
    const int fake = gk_number("GPU_FAKE", 0), few = gk_number("GPU_DEVICES", 0);
    snprintf(ms, sizeof ms, "%d", GK_TIMEOUT_MS);
    /* Streams of several ranks on one GPU must not share a queue of the hardware: as many as there
     * can be. */
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
    setenv("SYMM_BACKEND", "cuda", 1);
    /* Not on machines that may be shared; nobody shares the fake driver. */
    setenv("SYMM_MULTICAST", fake && gk_number("GPU_FAKE_CAST", 0) ? "1" : "0", 1);
    setenv("SYMM_TIMEOUT", ms, 0);
    if (fake) symm_test_images = 1; /* its kernels are functions: those of a build are not needed */
    if (fake && !faked++) {
        fake_kernels_install(fake, 1);
        gk_fake_host(fake);
    }
    *why = symm_backend_why();
    const int devices = **why ? 0 : symm_cuda_devices();
    return few > 0 && few < devices ? few : devices;
}

/* The same, or a skip. */
static inline int gk_begin(void) {
    const char *why;
    const int devices = gk_find(&why);
    if (*why) T_SKIP("needs cuda: %s", why);
    T_EXPECT_FDS();
    return devices;
}

/* For a test that forks its ranks: a child looks, so that this process stays without CUDA. Returns
 * the devices. */
typedef struct {
    int devices;
    char why[256];
} gk_seen;

static inline void gk_look(int rank, int n, void *arg) {
    gk_seen *s = arg;
    const char *why;
    (void)rank, (void)n;
    T_EXPECT_FDS();
    s->devices = gk_find(&why);
    snprintf(s->why, sizeof s->why, "%s", why);
}
static inline int gk_begin_forked(void) {
    gk_seen *s = T_SHARED(sizeof *s);
    T_EXPECT_FDS();
    T_FORK(1, gk_look, s);
    if (*s->why) T_SKIP("needs cuda: %s", s->why);
    return s->devices;
}

/* A measured figure: into the test's output, and behind GPU_FIGURES if that names a file. */
static inline void gk_figure(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static inline void gk_figure(const char *fmt, ...) {
    const char *path = getenv("GPU_FIGURES");
    FILE *f = path && *path ? fopen(path, "ae") : NULL;
    char text[256];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    fprintf(stderr, "%s\n", text);
    if (!f) return;
    fprintf(f, "%s\n", text);
    fclose(f);
}

/* ---- CUDA calls ---- */

static inline void gk_cu(cu_result cu, const char *call, const char *file, int line) {
    const char *name = cu ? symm_cuda_code_name(cu) : NULL;
    if (cu) t_fail(file, line, "%s: %s (%d)", call, name ? name : "?", cu);
}
#define CU(call) gk_cu(symm_cu.call, #call, __FILE__, __LINE__)

static inline symmStream_t gk_stream(cu_stream stream) {
    return (symmStream_t)(void *)stream;
}
/* While no kernel waits. A stream takes its queue with its first kernel (a fill is one), and may
 * take one in which another rank's kernel waits, so that comes here and not with the first
 * collective. */
static inline void gk_first_kernel(cu_stream stream) {
    cu_deviceptr word = 0;
    CU(cuMemAlloc(&word, sizeof(int)));
    CU(cuMemsetD32Async(word, 0, 1, stream));
    CU(cuStreamSynchronize(stream));
    CU(cuMemFree(word));
}
static inline cu_stream gk_new_stream(void) {
    cu_stream stream = NULL;
    CU(cuStreamCreate(&stream, SYMM_CUDA_STREAM_NON_BLOCKING));
    gk_first_kernel(stream);
    return stream;
}

/* Waits for the stream's end, and says what the communicator knows if there is none in time. comm
 * may be NULL. */
static inline cu_result gk_wait_code(symmComm_t comm, cu_stream stream) {
    const uint64_t since = symm_now_ns();
    cu_result cu;
    while ((cu = symm_cu.cuStreamQuery(stream)) == SYMM_CUDA_ERROR_NOT_READY) {
        const uint64_t ms = gk_ms_since(since);
        if (ms > 1)
            usleep(20);
        else
            sched_yield(); /* on the fake driver more threads than cores are what is awaited */
        if (ms < GK_STUCK_MS) continue;
        if (comm) symmCommDump(comm, 2);
        T_CHECKF(0, "a stream is at work after %d s", GK_STUCK_MS / 1000);
    }
    return cu;
}
static inline const char *gk_env(const char *name) {
    const char *text = getenv(name);
    return text ? text : "";
}
/* The same, and all went well. */
static inline void gk_wait(symmComm_t comm, cu_stream stream) {
    symmResult_t async = symmSuccess;
    cu_result cu = gk_wait_code(comm, stream);
    if (comm) T_OK(symmCommGetAsyncError(comm, &async));
    if (async) symmCommDump(comm, 2);
    T_CHECKF(!async, "a kernel left: %s (%s); SYMM_ALGO=%s SYMM_CTAS=%s SYMM_THREADS=%s",
             symmGetErrorString(async), symmGetLastError(comm), gk_env("SYMM_ALGO"),
             gk_env("SYMM_CTAS"), gk_env("SYMM_THREADS"));
    gk_cu(cu, "waiting for a stream", __FILE__, __LINE__);
}

/* Call this once a round where ranks may share a GPU and streams have host functions. Some dozens
 * of them, or of graphs with such, and the driver's launches wait for room, and keep all threads
 * from launching there, those too that are waited for. */
static inline void gk_near(symmComm_t comm, cu_stream stream, int round) {
    enum { AHEAD = 3 };
    if (round % AHEAD == AHEAD - 1) gk_wait(comm, stream);
}

static inline void gk_put(cu_stream stream, void *to, const void *from, uint64_t bytes) {
    if (bytes) CU(cuMemcpyHtoDAsync((uintptr_t)to, from, bytes, stream));
}
/* What the host had there is forgotten, once nothing in the stream needs it. */
static inline void gk_get(symmComm_t comm, cu_stream stream, void *to, const void *from,
                          uint64_t bytes) {
    gk_wait(comm, stream);
    memset(to, 0x11, bytes);
    if (bytes) CU(cuMemcpyDtoHAsync(to, (uintptr_t)from, bytes, stream));
    gk_wait(comm, stream);
}
static inline char *gk_plain(uint64_t bytes) {
    cu_deviceptr va = 0;
    CU(cuMemAlloc(&va, bytes));
    return (char *)(uintptr_t)va;
}
static inline void gk_free_plain(char *p) {
    CU(cuMemFree((uintptr_t)p));
}
static inline char *gk_pinned(uint64_t bytes) {
    void *p = NULL;
    CU(cuMemAllocHost(&p, bytes));
    return p;
}
static inline void gk_free_pinned(char *p) {
    CU(cuMemFreeHost(p));
}

/* ---- work in a stream: late, and looked at ---- */

static inline void gk_nap(void *arg) {
    usleep((useconds_t)(uintptr_t)arg);
}
static inline void gk_delay(cu_stream stream, unsigned us) {
    CU(cuLaunchHostFunc(stream, gk_nap, (void *)(uintptr_t)us));
}
static inline void gk_fill(cu_stream stream, void *p, size_t bytes, int value) {
    CU(cuMemsetD8Async((uintptr_t)p, (unsigned char)value, bytes, stream));
}

typedef struct {
    const unsigned char *seen;
    size_t bytes;
    unsigned char value;
} gk_view;

static inline void gk_view_check(void *arg) {
    const gk_view *v = arg;
    for (size_t i = 0; i < v->bytes; i++)
        T_CHECKF(v->seen[i] == v->value, "byte %zu of %zu is %d, not %d", i, v->bytes, v->seen[i],
                 v->value);
}
/* All bytes are `value`. In stream order; seen (pinned) and *v live until then, and as long as a
 * graph has them. */
static inline void gk_check(cu_stream stream, const void *p, size_t bytes, int value,
                            unsigned char *seen, gk_view *v) {
    *v = (gk_view){seen, bytes, (unsigned char)value};
    CU(cuMemcpyDtoHAsync(seen, (uintptr_t)p, bytes, stream));
    CU(cuLaunchHostFunc(stream, gk_view_check, v));
}

/* ---- coll_kit.h's worlds on the current device ---- */

static inline void gk_dev_put(symmStream_t stream, char *device, const char *host, uint64_t bytes) {
    gk_put((cu_stream)(void *)stream, device, host, bytes);
}
static inline void gk_dev_get(symmComm_t comm, symmStream_t stream, char *host, const char *device,
                              uint64_t bytes) {
    gk_get(comm, (cu_stream)(void *)stream, host, device, bytes);
}
static const ck_device gk_device = {gk_plain,       gk_pinned,  gk_free_plain,
                                    gk_free_pinned, gk_dev_put, gk_dev_get};

/* ---- thread ranks ---- */

typedef struct {
    int n, devices;
    symmComm_t comms[SYMM_MAX_RANKS];
    pthread_barrier_t meet;
    uint64_t seed;
    int how, cases; /* the test's own */
    _Atomic uint64_t at_ns;
    void *shared;
} gk_job;

static inline void gk_meet(gk_job *j) {
    pthread_barrier_wait(&j->meet);
}

static inline void gk_open(gk_job *j) {
    int device[SYMM_MAX_RANKS];
    for (int r = 0; r < j->n; r++) device[r] = r % j->devices;
    T_OK(symmCommInitAll(j->comms, j->n, device));
}

/* Creates the communicator, runs fn in a thread per rank, which destroys its own. */
static inline void gk_run(gk_job *j, t_rank_fn fn) {
    pthread_barrier_init(&j->meet, NULL, (unsigned)j->n);
    gk_open(j);
    T_THREADS(j->n, fn, j);
    pthread_barrier_destroy(&j->meet);
}

/* ---- which kernels ---- */

/* GPU kernels of a collective that n ranks can run, in the order of coll.def. */
static inline int gk_rows(symmColl_t coll, int n, int *rows) {
    return coll_kernels(coll, SYMM_K_GPU, n, rows);
}

/* From the next call on, on this rank; all ranks alike. -1: the planner's choice. ctas 0, threads
 * 0: its grid. */
static inline void gk_force(symmComm_t comm, symmColl_t coll, int kernel, int ctas, int threads) {
    symm_comm *c = symm_handle_peek(SYMM_KIND_COMM, comm);
    c->calls.forced[coll] = (int16_t)kernel;
    c->params.ctas = ctas;
    c->params.threads = threads;
    c->gpus.quarter = !ctas && !threads && c->nranks > 1; /* what is forced has any size */
    c->windows.version++;                                 /* remembered calls are planned again */
}
/* How direct kernels go where a buffer is in no window, or alignments differ: SYMM_RELAY_. */
static inline void gk_relay(symmComm_t comm, int relay) {
    symm_comm *c = symm_handle_peek(SYMM_KIND_COMM, comm);
    c->params.relay = relay;
    c->windows.version++;
}
static inline uint64_t gk_launches(symmComm_t comm, int kernel) {
    symm_comm *c = symm_handle_peek(SYMM_KIND_COMM, comm);
    return atomic_load(&c->calls.launches[kernel]);
}
/* The same as users see it. */
static inline uint64_t gk_stat(symmComm_t comm, const char *name) {
    char json[8192], key[96];
    size_t needed = 0;
    T_OK(symmStats(comm, json, sizeof json, &needed));
    T_CHECK(needed <= sizeof json);
    snprintf(key, sizeof key, "\"%s\":", name);
    const char *at = strstr(json, key);
    T_CHECKF(at != NULL, "symmStats has no %s: %s", name, json);
    return strtoull(at + strlen(key), NULL, 10);
}
/* CTAs that all ranks of a GPU may be made to have at once. */
static inline int gk_fit(int ctas, int n, int devices) {
    const int share = (n + devices - 1) / devices, most = 96 / share;
    return ctas < most ? ctas : most > 0 ? most : 1;
}

/* ---- graphs ---- */

typedef struct {
    cu_graph graph;
    cu_graph_exec exec;
} gk_graph;

static inline void gk_capture(cu_stream stream, int mode) {
    CU(cuStreamBeginCapture(stream, mode));
}
/* Ends the capture. Instantiating may wait for the GPU: all ranks meet before they go on. */
static inline gk_graph gk_captured(cu_stream stream) {
    gk_graph g = {NULL, NULL};
    CU(cuStreamEndCapture(stream, &g.graph));
    CU(cuGraphInstantiate(&g.exec, g.graph, 0));
    CU(cuGraphUpload(g.exec, stream));
    CU(cuStreamSynchronize(stream));
    return g;
}
static inline void gk_drop(gk_graph *g) {
    CU(cuGraphExecDestroy(g->exec));
    CU(cuGraphDestroy(g->graph));
}

/* ---- a communicator that works ---- */

/* all_reduce of `count` int32 from device memory of this rank's own; the result is checked. */
static inline void gk_reduce(symmComm_t comm, int rank, int n, int *device, int *host, size_t count,
                             cu_stream stream) {
    const size_t bytes = count * sizeof *host;
    for (size_t i = 0; i < count; i++) host[i] = (int)(i % 1000) + rank * 7;
    gk_put(stream, device, host, bytes);
    CU(cuMemsetD8Async((uintptr_t)(device + count), 0xee, bytes, stream));
    T_OK(symmAllReduce(device, device + count, count, symmInt32, symmSum, comm, gk_stream(stream)));
    gk_get(comm, stream, host, device + count, bytes);
    for (size_t i = 0; i < count; i++) {
        int want = n * (int)(i % 1000) + 7 * n * (n - 1) / 2;
        T_CHECKF(host[i] == want, "element %zu of %zu: %d, not %d", i, count, host[i], want);
    }
}

enum { GK_WORKS = 300000 }; /* elements */

/* Memory for gk_works, allocated while nothing runs. */
typedef struct {
    int *device, *host;
    cu_stream stream;
} gk_bench;

static inline gk_bench gk_bench_new(void) {
    gk_bench b = {NULL, NULL, gk_new_stream()};
    T_OK(symmMemAlloc((void **)&b.device, 2 * GK_WORKS * sizeof *b.device));
    b.host = (int *)(void *)gk_pinned(GK_WORKS * sizeof *b.host);
    return b;
}
static inline void gk_bench_free(gk_bench *b) {
    T_OK(symmMemFree(b->device));
    gk_free_pinned((char *)b->host);
    CU(cuStreamDestroy(b->stream));
}

/* The communicator does what it should: small, middling and large, a gather and a barrier. */
static inline void gk_works(symmComm_t comm, int rank, int n, const gk_bench *b) {
    static const size_t counts[] = {3, 5000, GK_WORKS};
    for (int i = 0; i < 3; i++) gk_reduce(comm, rank, n, b->device, b->host, counts[i], b->stream);
    b->host[0] = rank * 3 + 1;
    gk_put(b->stream, b->device, b->host, sizeof *b->host);
    T_OK(symmAllGather(b->device, b->device + 64, 1, symmInt32, comm, gk_stream(b->stream)));
    gk_get(comm, b->stream, b->host, b->device + 64, (size_t)n * sizeof *b->host);
    for (int r = 0; r < n; r++) T_EQ(b->host[r], r * 3 + 1);
    T_OK(symmBarrier(comm, gk_stream(b->stream)));
    gk_wait(comm, b->stream);
}

/* The context takes work: a fill and two copies, checked. */
static inline void gk_context_works(const gk_bench *b) {
    CU(cuMemsetD32Async((uintptr_t)b->device, 0x12345678, GK_WORKS, b->stream));
    CU(cuMemcpyDtoDAsync((uintptr_t)(b->device + GK_WORKS), (uintptr_t)b->device, GK_WORKS * 4,
                         b->stream));
    gk_get(NULL, b->stream, b->host, b->device + GK_WORKS, GK_WORKS * 4);
    for (int i = 0; i < GK_WORKS; i++) T_EQ(b->host[i], 0x12345678);
}

#endif
