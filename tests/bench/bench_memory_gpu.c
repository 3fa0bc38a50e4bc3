/* bench_memory_gpu.c - the traces of bench_memory.c on a GPU: CUDA's stream-ordered pool beside
 * lanes (LOCAL, and SYM of one rank) and arenas, in turns within one run. Host time of a call, most
 * reserved over most alive, calls of the driver that ours make. Figures, never a verdict.
 *
 *   bench_memory_gpu [--json FILE] [--quick] [--all] [--streams]
 *
 * CUDA's pool is made anew for each trace and keeps what it has (release threshold). "cold" is its
 * first run of a trace, in which it maps memory; a heap has its memory before. "warm" are later
 * runs: nobody maps anything. RMM calls that prewarmed. Driver calls are counted in a run of their
 * own, by functions put in front of those of symm_cu that memory objects call at all; that there
 * are no others is tested on the fake driver, which counts all (unit_gpu_lane, unit_gpu_arena).
 * --streams: only what has streams, not the traces at random, which take minutes with CUDA's
 * pool. One thread. GPU_FAKE=1: the logic without a GPU. */
#include <dlfcn.h>

#include "bench_kit.h"
#include "gpu_kit.h"
#include "symm_arena.h"
#include "symm_lane.h"
#include "trace.h"

#define MB (1ull << 20)

enum { STREAMS = 64, BENCH_ROUNDS = 3 };

static struct {
    symmComm_t comm;
    symmHeap_t heap;
    uint64_t zone, cap; /* bytes behind each zone; most that a trace has alive */
    cu_stream stream[STREAMS];
    uint32_t streams; /* in use */
    symmLane_t lane[STREAMS];
    symmArena_t arena;
    uint64_t failed; /* allocations for which there was no memory */
} b;

/* ---- CUDA's pool ----------------------------------------------------------------------------- */

enum { POOL_RELEASE_THRESHOLD = 4, POOL_RESERVED_HIGH = 6, POOL_PINNED = 1 };

typedef struct { /* CUmemPoolProps */
    int type, handles, location, device;
    void *security;
    size_t most;
    unsigned char reserved[128];
} pool_props;

static struct {
    cu_result (*create)(void **pool, const pool_props *props);
    cu_result (*destroy)(void *pool);
    cu_result (*set)(void *pool, int attribute, void *value);
    cu_result (*get)(void *pool, int attribute, void *value);
    cu_result (*alloc)(cu_deviceptr *va, size_t bytes, void *pool, cu_stream s);
    cu_result (*free)(cu_deviceptr va, cu_stream s);
    void *pool;
    int found;
} cuda;

static void find_symbol(void *lib, const char *name, void *slot) {
    void *symbol = dlsym(lib, name);
    memcpy(slot, &symbol, sizeof symbol);
    cuda.found &= symbol != NULL;
}

/* From the driver that is loaded already; the fake one has no pools. */
static void find_pools(void) {
    void *lib = gk_number("GPU_FAKE", 0) ? NULL : dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
    if (!lib) return;
    cuda.found = 1;
    find_symbol(lib, "cuMemPoolCreate", &cuda.create);
    find_symbol(lib, "cuMemPoolDestroy", &cuda.destroy);
    find_symbol(lib, "cuMemPoolSetAttribute", &cuda.set);
    find_symbol(lib, "cuMemPoolGetAttribute", &cuda.get);
    find_symbol(lib, "cuMemAllocFromPoolAsync", &cuda.alloc);
    find_symbol(lib, "cuMemFreeAsync", &cuda.free);
}

static void pool_open(void) {
    const pool_props props = {.type = POOL_PINNED, .location = SYMM_CUDA_LOCATION_DEVICE};
    uint64_t keep = UINT64_MAX;
    must(!cuda.create(&cuda.pool, &props), "cuMemPoolCreate");
    must(!cuda.set(cuda.pool, POOL_RELEASE_THRESHOLD, &keep), "cuMemPoolSetAttribute");
}
static uint64_t pool_take(uint64_t bytes, uint32_t stream) {
    cu_deviceptr va = 0;
    return cuda.alloc(&va, bytes, cuda.pool, b.stream[stream]) ? 0 : va;
}
static void pool_give(uint64_t block, uint32_t stream) {
    must(!cuda.free(block, b.stream[stream]), "cuMemFreeAsync");
}
static uint64_t pool_held(void) {
    uint64_t high = 0;
    must(!cuda.get(cuda.pool, POOL_RESERVED_HIGH, &high), "cuMemPoolGetAttribute");
    return high;
}
static void pool_close(void) {
    must(!cuda.destroy(cuda.pool), "cuMemPoolDestroy");
}

/* ---- ours ------------------------------------------------------------------------------------ */

static void lanes_open(void) {
    for (uint32_t i = 0; i < b.streams; i++)
        must(!symmLaneCreate(b.heap, gk_stream(b.stream[i]), &b.lane[i]), "symmLaneCreate");
}
static uint64_t lane_take(uint64_t bytes, uint32_t stream, unsigned flags) {
    void *p = NULL;
    return symmLaneAlloc(b.lane[stream], bytes, flags, &p) ? 0 : (uint64_t)(uintptr_t)p;
}
static uint64_t local_take(uint64_t bytes, uint32_t stream) {
    return lane_take(bytes, stream, SYMM_ALLOC_LOCAL);
}
static uint64_t sym_take(uint64_t bytes, uint32_t stream) {
    return lane_take(bytes, stream, SYMM_ALLOC_SYM);
}
static void lane_give(uint64_t block, uint32_t stream) {
    must(!symmLaneFree(b.lane[stream], (void *)(uintptr_t)block), "symmLaneFree");
}
static symmLaneInfo_t lane_info(uint32_t i) {
    symmLaneInfo_t info = {.size = sizeof info};
    must(!symmLaneQuery(b.lane[i], &info), "symmLaneQuery");
    return info;
}
static uint64_t lanes_held(void) { /* they give nothing back before they end */
    return lane_info(0).localReserved + lane_info(0).symReserved;
}
static void lanes_close(void) {
    for (uint32_t i = 0; i < b.streams; i++) must(!symmLaneDestroy(b.lane[i]), "symmLaneDestroy");
    must(!symmHeapCollect(b.heap), "symmHeapCollect");
}

static void arena_open(void) {
    symmArenaConfig_t c = SYMM_ARENA_CONFIG_INITIALIZER;
    c.bytes = b.zone;
    must(!symmArenaCreate(b.heap, &c, &b.arena), "symmArenaCreate");
}
static uint64_t arena_take(uint64_t bytes, uint32_t stream) {
    void *p = NULL;
    return symmArenaAlloc(b.arena, bytes, 0, gk_stream(b.stream[stream]), &p)
               ? 0
               : (uint64_t)(uintptr_t)p;
}
static void arena_give(uint64_t block, uint32_t stream) {
    must(!symmArenaFree(b.arena, (void *)(uintptr_t)block, gk_stream(b.stream[stream])),
         "symmArenaFree");
}
static uint64_t arena_held(void) {
    symmArenaInfo_t info = {.size = sizeof info};
    must(!symmArenaQuery(b.arena, &info), "symmArenaQuery");
    return info.heldPeak;
}
static void arena_close(void) {
    must(!symmArenaDestroy(b.arena), "symmArenaDestroy");
}

typedef struct {
    const char *name;
    int ours;
    void (*open)(void);
    uint64_t (*take)(uint64_t bytes, uint32_t stream); /* 0: no memory */
    void (*give)(uint64_t block, uint32_t stream);
    uint64_t (*held)(void); /* most so far */
    void (*close)(void);
} allocator;

static const allocator allocators[] = {
    {"cuMemAllocAsync", 0, pool_open, pool_take, pool_give, pool_held, pool_close},
    {"lane LOCAL", 1, lanes_open, local_take, lane_give, lanes_held, lanes_close},
    {"lane SYM, 1 rank", 1, lanes_open, sym_take, lane_give, lanes_held, lanes_close},
    {"arena", 1, arena_open, arena_take, arena_give, arena_held, arena_close}};
enum { ALLOCATORS = sizeof allocators / sizeof *allocators };

/* ---- calls of the driver --------------------------------------------------------------------- */

enum { ASKS, EVENTS, OTHERS, KINDS }; /* host-side questions; order on the device; all else */

static symm_cuda_table real;

#define COUNTED(X)                                                                               \
    X(ASKS, cuStreamGetCaptureInfo_v2,                                                           \
      (cu_stream s, int *at, uint64_t *id, cu_graph *g, const cu_graph_node **n, size_t *c),     \
      (s, at, id, g, n, c))                                                                      \
    X(ASKS, cuStreamGetCaptureInfo_v3,                                                           \
      (cu_stream s, int *at, uint64_t *id, cu_graph *g, const cu_graph_node **n, const void **e, \
       size_t *c),                                                                               \
      (s, at, id, g, n, e, c))                                                                   \
    X(ASKS, cuStreamIsCapturing, (cu_stream s, int *at), (s, at))                                \
    X(ASKS, cuStreamGetCtx, (cu_stream s, cu_context * c), (s, c))                               \
    X(ASKS, cuThreadExchangeStreamCaptureMode, (int *mode), (mode))                              \
    X(ASKS, cuCtxGetCurrent, (cu_context * c), (c))                                              \
    X(ASKS, cuCtxSetCurrent, (cu_context c), (c))                                                \
    X(ASKS, cuCtxPushCurrent, (cu_context c), (c))                                               \
    X(ASKS, cuCtxPopCurrent, (cu_context * c), (c))                                              \
    X(ASKS, cuCtxGetDevice, (cu_device * d), (d))                                                \
    X(EVENTS, cuEventCreate, (cu_event * e, unsigned flags), (e, flags))                         \
    X(EVENTS, cuEventDestroy, (cu_event e), (e))                                                 \
    X(EVENTS, cuEventRecord, (cu_event e, cu_stream s), (e, s))                                  \
    X(EVENTS, cuStreamWaitEvent, (cu_stream s, cu_event e, unsigned flags), (s, e, flags))       \
    X(OTHERS, cuEventQuery, (cu_event e), (e))                                                   \
    X(OTHERS, cuEventSynchronize, (cu_event e), (e))                                             \
    X(OTHERS, cuStreamQuery, (cu_stream s), (s))                                                 \
    X(OTHERS, cuStreamSynchronize, (cu_stream s), (s))                                           \
    X(OTHERS, cuCtxSynchronize, (void), ())                                                      \
    X(OTHERS, cuMemCreate,                                                                       \
      (cu_mem_handle * h, size_t n, const cu_mem_prop *p, unsigned long long f), (h, n, p, f))   \
    X(OTHERS, cuMemMap,                                                                          \
      (cu_deviceptr va, size_t n, size_t at, cu_mem_handle h, unsigned long long f),             \
      (va, n, at, h, f))                                                                         \
    X(OTHERS, cuMemSetAccess, (cu_deviceptr va, size_t n, const cu_mem_access *a, size_t c),     \
      (va, n, a, c))                                                                             \
    X(OTHERS, cuMemUnmap, (cu_deviceptr va, size_t n), (va, n))                                  \
    X(OTHERS, cuMemRelease, (cu_mem_handle h), (h))                                              \
    X(OTHERS, cuLaunchKernelEx, (const cu_launch_config *c, cu_function f, void **a, void **x),  \
      (c, f, a, x))                                                                              \
    X(OTHERS, cuLaunchHostFunc, (cu_stream s, cu_host_fn f, void *a), (s, f, a))

#define NUMBER(kind, name, params, args) NO_##name,
enum { COUNTED(NUMBER) CALLS };
static uint64_t counts[CALLS];
#define KIND(kind, name, params, args) {kind, #name},
static const struct {
    int kind;
    const char *name;
} calls[CALLS] = {COUNTED(KIND)};

#define COUNTING(kind, name, params, args) \
    static cu_result count_##name params { \
        counts[NO_##name]++;               \
        return real.name args;             \
    }
COUNTED(COUNTING)

static void count_calls(void) {
    memset(counts, 0, sizeof counts);
    real = symm_cu;
#define COUNT(kind, name, params, args) \
    if (real.name) symm_cu.name = count_##name;
    COUNTED(COUNT)
#undef COUNT
}
static void stop_counting(void) {
    symm_cu = real;
}

/* ---- one trace ------------------------------------------------------------------------------- */

typedef struct {
    double cold, mean;   /* ns a call of a whole run, without clocks */
    percentiles each;    /* clocks around each call */
    double high;         /* most held over most alive */
    double calls[CALLS]; /* a thousand calls of ours */
    uint64_t failed;
} figures;

static void wait_all(void) {
    for (uint32_t i = 0; i < b.streams; i++) gk_wait(b.comm, b.stream[i]);
}

/* times NULL: without a clock, ns a call. work: bytes that each new block's stream writes. */
static double run_trace(const allocator *a, const trace *t, uint64_t work, uint64_t *block,
                        uint32_t *times) {
    const uint64_t begin = now_ns();
    for (size_t i = 0; i < t->n; i++) {
        const trace_event *e = &t->at[i];
        uint64_t p = block[e->id], t0 = times ? ticks() : 0; /* a caller has it at hand */
        if (e->op == TRACE_TAKE)
            p = a->take(e->bytes, e->stream);
        else if (p)
            a->give(p, e->stream);
        if (times) times[i] = (uint32_t)(ticks() - t0);
        b.failed += e->op == TRACE_TAKE && !p;
        if (e->op == TRACE_TAKE && work && p)
            CU(cuMemsetD8Async(p, 1, work < e->bytes ? work : e->bytes, b.stream[e->stream]));
        block[e->id] = e->op == TRACE_TAKE ? p : 0;
    }
    return (double)(now_ns() - begin) / (double)t->n;
}

/* What it leaves goes, each on the stream that took it. */
static void free_rest(const allocator *a, const trace *t, uint64_t *block) {
    uint32_t *stream = calloc(t->ids + 1, sizeof *stream);
    must(stream != NULL, "calloc");
    for (size_t i = 0; i < t->n; i++) stream[t->at[i].id] = t->at[i].stream;
    for (uint32_t i = 0; i < t->ids; i++)
        if (block[i]) a->give(block[i], stream[i]);
    memset(block, 0, (t->ids + 1) * sizeof *block);
    free(stream);
    wait_all();
}

/* Without clocks; where streams are given work, of the calls alone. */
static double run_mean(const allocator *a, const trace *t, uint64_t work, uint64_t *block,
                       uint32_t *times) {
    double ns = run_trace(a, t, work, block, work ? times : NULL);
    if (work) ns = percentiles_of(times, t->n).mean;
    free_rest(a, t, block);
    return ns;
}

static void measure(const allocator *a, const trace *t, uint64_t work, figures *f) {
    uint64_t *block = calloc(t->ids + 1, sizeof *block);
    uint32_t *times = calloc(t->n, sizeof *times);
    must(block && times, "calloc");
    b.failed = 0;
    a->open();
    keep_least(&f->cold, run_mean(a, t, work, block, times));
    keep_least(&f->mean, run_mean(a, t, work, block, times));
    run_trace(a, t, work, block, times);
    free_rest(a, t, block);
    keep_least_of(&f->each, percentiles_of(times, t->n));
    if (a->ours) {
        count_calls();
        run_trace(a, t, 0, block, NULL);
        stop_counting();
        free_rest(a, t, block);
        for (int k = 0; k < CALLS; k++) f->calls[k] = 1e3 * (double)counts[k] / (double)t->n;
    }
    f->high = (double)a->held() / (double)t->peak_live;
    f->failed = b.failed;
    a->close();
    free(block);
    free(times);
}

static void head(const char *title) {
    printf("\n%s\n%-24s %-17s %8s %8s %8s %8s %10s   %s\n", title, "trace", "allocator", "cold ns",
           "warm ns", "p50", "p99", "held/live", "driver calls in 1,000: asks, events, others");
}

static double of_kind(const figures *f, int kind) {
    double sum = 0;
    for (int k = 0; k < CALLS; k++) sum += calls[k].kind == kind ? f->calls[k] : 0;
    return sum;
}

/* "others" by name. */
static void show_calls(const figures *f) {
    printf("%.1f, %.1f, %.1f", of_kind(f, ASKS), of_kind(f, EVENTS), of_kind(f, OTHERS));
    for (int k = 0; k < CALLS; k++)
        if (calls[k].kind == OTHERS && f->calls[k] > 0)
            printf(" %s:%.1f", calls[k].name, f->calls[k]);
}

static void show_one(const char *what, const allocator *a, const figures *f) {
    printf("%-24s %-17s %8.0f %8.0f %8.0f %8.0f %10.3f   ", what, a->name, f->cold, f->mean,
           f->each.p50, f->each.p99, f->high);
    if (a->ours)
        show_calls(f);
    else
        printf("-");
    if (f->failed) printf("   %llu found no memory", (unsigned long long)f->failed);
    printf("\n");
    row(what, a->name,
        "\"cold_ns\": %.1f, \"mean_ns\": %.1f, \"p50_ns\": %.1f, \"p99_ns\": %.1f, "
        "\"held_over_live\": %.4f, \"asks_1000\": %.2f, \"events_1000\": %.2f, "
        "\"others_1000\": %.2f, \"no_memory\": %llu",
        f->cold, f->mean, f->each.p50, f->each.p99, f->high, of_kind(f, ASKS), of_kind(f, EVENTS),
        of_kind(f, OTHERS), (unsigned long long)f->failed);
}

/* All allocators in turns, the best of the rounds: others may run beside. */
static void show(const char *what, const trace *t, uint64_t work) {
    figures f[ALLOCATORS];
    for (int i = 0; i < ALLOCATORS; i++)
        f[i] = (figures){.cold = 1e30, .mean = 1e30, .each = bk_none};
    for (int round = 0; round < BENCH_ROUNDS; round++)
        for (int i = cuda.found ? 0 : 1; i < ALLOCATORS; i++) {
            progress("%s: %s, round %d of %d", what, allocators[i].name, round + 1, BENCH_ROUNDS);
            measure(&allocators[i], t, work, &f[i]);
        }
    progress_end();
    for (int i = cuda.found ? 0 : 1; i < ALLOCATORS; i++) show_one(what, &allocators[i], &f[i]);
    fflush(stdout);
}

enum { QUICK = -1, SHORT = 0, ALL = 1 };

/* RMM's: one stream, no work. */
static void random_allocations(int how) {
    static const size_t n[] = {1000, 10000, 100000};
    static const uint64_t max[] = {1, 4, 64, 256, 1024, 4096};
    char what[64];
    b.streams = 1;
    printf("\nat most %llu MiB live", (unsigned long long)(b.cap / MB));
    head("random_allocations: 73 % allocations, one stream");
    for (int m = 0; m < (how == ALL ? 6 : how == QUICK ? 2 : 5); m++)
        for (int i = 0; i < (how == QUICK ? 2 : 3); i++) {
            if (max[m] * MB > b.cap / 3) continue; /* few would fit */
            trace t = trace_random(n[i], max[m] * MB, b.cap, 88172645463325252ull);
            snprintf(what, sizeof what, "%zuk x <=%llu MiB", n[i] / 1000,
                     (unsigned long long)max[m]);
            show(what, &t, 0);
            free(t.at);
        }
}

/* ---- streams --------------------------------------------------------------------------------- */

static const uint32_t widths[] = {1, 2, 3, 4, 64};
enum { WIDTHS = sizeof widths / sizeof *widths };

/* Each stream replaces random blocks of its own and writes into each new one. */
static void stream_traces(int how) {
    char what[64];
    head("streams that replace blocks of their own and write to each");
    for (uint64_t max = 16 << 10; max <= MB; max *= 64)
        for (int i = 0; i < WIDTHS; i++) {
            const uint64_t live = max == MB ? b.cap / 32 : 16 * MB;
            const size_t each = live / (max / 2) / widths[i];
            b.streams = widths[i];
            trace t = trace_streams(widths[i], each ? each : 1,
                                    (how == QUICK ? 4000 : 20000) / widths[i], max, 5);
            snprintf(what, sizeof what, "%u streams x <=%llu KiB", widths[i],
                     (unsigned long long)(max >> 10));
            show(what, &t, 256);
            free(t.at);
        }
}

typedef struct {
    double first, rest; /* us of a round: without and with prewarming */
    percentiles pair;   /* ns of an alloc or a free */
} rounds;

/* RMM's multi_stream_allocations: `work` kernels in turn on the streams, each with a block of 8 KiB
 * that lives as long as it; then all are waited for. */
static void measure_rounds(const allocator *a, uint32_t work, rounds *r) {
    enum { TIMES = 200, BYTES = 8 << 10 };
    uint32_t *times = calloc(TIMES * 2 * work, sizeof *times), *at = times;
    must(times != NULL, "calloc");
    a->open();
    for (int i = 0; i <= TIMES; i++) {
        const uint64_t begin = now_ns();
        for (uint32_t k = 0; k < work; k++) {
            const uint32_t s = k % b.streams;
            const uint64_t t0 = ticks(), p = a->take(BYTES, s), t1 = ticks();
            must(p != 0, "allocating 8 KiB");
            CU(cuMemsetD8Async(p, 1, BYTES, b.stream[s]));
            const uint64_t t2 = ticks();
            a->give(p, s);
            const uint64_t t3 = ticks();
            if (!i) continue;
            *at++ = (uint32_t)(t1 - t0);
            *at++ = (uint32_t)(t3 - t2);
        }
        for (uint32_t s = 0; s < b.streams; s++) CU(cuStreamSynchronize(b.stream[s]));
        keep_least(i ? &r->rest : &r->first, (double)(now_ns() - begin) / 1e3);
    }
    a->close();
    keep_least_of(&r->pair, percentiles_of(times, TIMES * 2 * work));
    free(times);
}

static void multi_stream(void) {
    char what[64];
    printf("\nmulti_stream_allocations: kernels with 8 KiB each, in turn on the streams, then all "
           "are waited for\n%-24s %-17s %12s %12s %8s %8s %8s\n",
           "trace", "allocator", "first us", "later us", "call ns", "p50", "p99");
    for (int i = 0; i < WIDTHS; i++) {
        rounds r[ALLOCATORS];
        const uint32_t work = widths[i] < 4 ? 4 : widths[i];
        b.streams = widths[i];
        snprintf(what, sizeof what, "%u streams, %u kernels", widths[i], work);
        for (int k = 0; k < ALLOCATORS; k++) r[k] = (rounds){1e30, 1e30, bk_none};
        for (int round = 0; round < BENCH_ROUNDS; round++)
            for (int k = cuda.found ? 0 : 1; k < ALLOCATORS; k++)
                measure_rounds(&allocators[k], work, &r[k]);
        for (int k = cuda.found ? 0 : 1; k < ALLOCATORS; k++) {
            printf("%-24s %-17s %12.1f %12.1f %8.0f %8.0f %8.0f\n", what, allocators[k].name,
                   r[k].first, r[k].rest, r[k].pair.mean, r[k].pair.p50, r[k].pair.p99);
            row(what, allocators[k].name,
                "\"first_us\": %.2f, \"later_us\": %.2f, \"call_ns\": %.1f, \"p50_ns\": %.1f, "
                "\"p99_ns\": %.1f",
                r[k].first, r[k].rest, r[k].pair.mean, r[k].pair.p50, r[k].pair.p99);
        }
        fflush(stdout);
    }
}

/* ---- all ------------------------------------------------------------------------------------- */

static void open_all(void) {
    symmHeapConfig_t c = SYMM_HEAP_CONFIG_INITIALIZER;
    size_t unused = 0, total = 0;
    must(!symmCommInitAll(&b.comm, 1, NULL), "symmCommInitAll");
    must(!symmSetDevice(0), "symmSetDevice");
    CU(cuMemGetInfo(&unused, &total));
    b.cap = unused / 8 < 16000 * MB ? unused / 8 / MB * MB : 16000 * MB;
    b.zone = 2 * b.cap;
    c.reserve = 2 * b.zone + 1024 * MB;
    c.symBytes = c.localBytes = b.zone;
    c.chunk = b.zone < 1024 * MB ? 0 : 1024 * MB;
    must(!symmHeapCreate(b.comm, &c, &b.heap), "symmHeapCreate");
    for (int i = 0; i < STREAMS; i++) b.stream[i] = gk_new_stream();
    find_pools();
}

static void close_all(void) {
    for (int i = 0; i < STREAMS; i++) CU(cuStreamDestroy(b.stream[i]));
    must(!symmHeapDestroy(b.heap), "symmHeapDestroy");
    must(!symmCommDestroy(b.comm), "symmCommDestroy");
}

int main(int argc, char **argv) {
    const char *why, *path = NULL;
    int how = SHORT, streams_only = 0;
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--quick"))
            how = QUICK;
        else if (!strcmp(argv[i], "--all"))
            how = ALL;
        else if (!strcmp(argv[i], "--streams"))
            streams_only = 1;
        else if (!strcmp(argv[i], "--json") && i + 1 < argc)
            path = argv[++i];
        else
            must(0, "reading the arguments: [--json FILE] [--quick] [--all] [--streams]");
    }
    gk_find(&why);
    if (*why) {
        printf("bench_memory_gpu: nothing to measure: %s\n", why);
        return 0;
    }
    if (path) json_open(path);
    open_all();
    calibrate();
    if (!cuda.found) printf("cuMemAllocAsync: this driver has no pools\n");
    if (!streams_only) random_allocations(how);
    stream_traces(how);
    multi_stream();
    close_all();
    return json_close();
}
