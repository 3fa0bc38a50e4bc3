/* bench_memory.c - placement and arenas on the traces of allocators' benchmarks: time of a call,
 * highest end over peak live bytes, what streams of small blocks hold, one block again and again,
 * threads; glibc's malloc beside them. Not a test: `make bench-memory`.
 *
 * "arena, offsets" is the arena's core over a synthetic upstream: neither handles nor addresses,
 * and what the heap costs is not in it. "arena, heap" is what a program has: symmArenaAlloc and
 * symmArenaFree over a heap of the host backend. Memory is not touched.
 *
 *   bench_memory [--json FILE] [--quick] [--all] [--threads] [--write FILE] [--replay FILE]
 *
 * --all: the random allocations with every maximum of RMM's, not only 1 and 64 MiB; --quick: no
 * trace of 100,000 allocations; --threads: that part alone.
 *
 * The time of a call is read from a clock twice around it, less what two readings cost; means
 * are of whole traces without clocks. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include "arena_kit.h"
#include "bench_kit.h"
#include "symm_arena.h"
#include "trace.h"

#define MB (1ull << 20)

/* ---- allocators ------------------------------------------------------------------------------ */

typedef struct {
    const char *name;
    void *(*open)(void);
    uint64_t (*take)(void *x, uint64_t bytes, symmStream_t s);
    void (*give)(void *x, uint64_t block, symmStream_t s);
    uint64_t (*high)(void *x); /* highest end, or most held; 0: unknown */
    void (*close)(void *x);
    void (*pairs)(void *x, int n); /* one block, again and again; NULL: not for threads */
} allocator;

static void *open_place(int fit, uint64_t bytes) {
    symm_place *p = symm_place_new(fit);
    must(p && !symm_place_add(p, 0, bytes), "making an engine");
    return p;
}
static void *open_first(void) {
    return open_place(SYMM_PLACE_FIRST, 1ull << 38);
}
static void *open_best(void) {
    return open_place(SYMM_PLACE_BEST, 1ull << 38);
}
static void *open_wide(void) { /* too much for words of 32 bits */
    return open_place(SYMM_PLACE_FIRST, 1ull << 44);
}
static uint64_t place_take(void *x, uint64_t bytes, symmStream_t s) {
    (void)s;
    return symm_place_take(x, bytes, 256, 0, NULL);
}
static void place_give(void *x, uint64_t block, symmStream_t s) {
    (void)s;
    symm_place_give(x, block);
}
static uint64_t place_high(void *x) {
    symm_place_stats s;
    symm_place_measure(x, &s);
    return s.peak;
}
static void place_close(void *x) {
    symm_place_end(x);
}

typedef struct {
    ak_upstream up;
    symm_arena *arena;
} over_offsets;

static void *open_arena(void) {
    over_offsets *x = calloc(1, sizeof *x);
    must(x && !ak_open(&x->up, 1ull << 40), "making an upstream");
    must(!ak_arena(&x->up, 1ull << 40, 16 << 10, 2 * MB, 0, &x->arena), "making an arena");
    return x;
}
static uint64_t arena_take(void *v, uint64_t bytes, symmStream_t s) {
    uint64_t off;
    over_offsets *x = v;
    must(!symm_arena_take(x->arena, s, bytes, 256, &off), "symm_arena_take");
    return off;
}
static void arena_give(void *v, uint64_t block, symmStream_t s) {
    over_offsets *x = v;
    must(!symm_arena_give(x->arena, s, block), "symm_arena_give");
}
static uint64_t arena_high(void *v) {
    over_offsets *x = v;
    return x->arena->held_peak;
}
static void arena_close(void *v) {
    over_offsets *x = v;
    symm_arena_end(x->arena);
    ak_close(&x->up);
    free(x);
}

typedef struct {
    symmComm_t comm;
    symmHeap_t heap;
    symmArena_t arena;
} over_heap;

static void *open_heap(void) {
    symmHeapConfig_t h = SYMM_HEAP_CONFIG_INITIALIZER;
    symmArenaConfig_t c = SYMM_ARENA_CONFIG_INITIALIZER;
    over_heap *x = calloc(1, sizeof *x);
    must(x != NULL, "calloc");
    h.reserve = 96ull << 30;
    h.localBytes = 80ull << 30; /* as no page of it is touched */
    h.chunk = 256 * MB;
    c.bytes = h.localBytes;
    must(!symmCommInitAll(&x->comm, 1, NULL), "making a communicator");
    must(!symmHeapCreate(x->comm, &h, &x->heap), "making a heap");
    must(!symmArenaCreate(x->heap, &c, &x->arena), "making an arena");
    return x;
}
static uint64_t heap_take(void *v, uint64_t bytes, symmStream_t s) {
    void *p;
    over_heap *x = v;
    must(!symmArenaAlloc(x->arena, bytes, 0, s, &p), "symmArenaAlloc");
    return (uint64_t)(uintptr_t)p;
}
static void heap_give(void *v, uint64_t block, symmStream_t s) {
    over_heap *x = v;
    must(!symmArenaFree(x->arena, (void *)(uintptr_t)block, s), "symmArenaFree");
}
static uint64_t heap_high(void *v) {
    over_heap *x = v;
    symmArenaInfo_t i = {.size = sizeof i};
    must(!symmArenaQuery(x->arena, &i), "symmArenaQuery");
    return i.heldPeak;
}
static void heap_close(void *v) {
    over_heap *x = v;
    must(!symmArenaDestroy(x->arena) && !symmHeapDestroy(x->heap) && !symmCommDestroy(x->comm),
         "taking down a heap");
    free(x);
}

static void *open_malloc(void) {
    return &bk_json; /* any address */
}
static uint64_t malloc_take(void *x, uint64_t bytes, symmStream_t s) {
    (void)x;
    (void)s;
    return (uint64_t)(uintptr_t)malloc(bytes);
}
static void malloc_give(void *x, uint64_t block, symmStream_t s) {
    (void)x;
    (void)s;
    free((void *)(uintptr_t)block);
}
static uint64_t no_high(void *x) {
    (void)x;
    return 0;
}
static void no_close(void *x) {
    (void)x;
}

/* With direct calls, as in a program. */
#define PAIRS(of)                                              \
    static void of##_pairs(void *x, int n) {                   \
        for (int i = 0; i < n; i++) {                          \
            volatile uint64_t block = of##_take(x, 512, NULL); \
            of##_give(x, block, NULL);                         \
        }                                                      \
    }
/* What a trace itself costs: its blocks are numbers. */
static void *open_none(void) {
    static int none;
    return &none;
}
static uint64_t none_take(void *x, uint64_t bytes, symmStream_t s) {
    static _Thread_local uint64_t next;
    (void)x, (void)s;
    return next += bytes;
}
static void none_give(void *x, uint64_t block, symmStream_t s) {
    (void)x, (void)block, (void)s;
}

PAIRS(none)
PAIRS(arena)
PAIRS(heap)
PAIRS(malloc)

static const allocator allocators[] = {
    {"first fit", open_first, place_take, place_give, place_high, place_close, NULL},
    {"best fit", open_best, place_take, place_give, place_high, place_close, NULL},
    {"first, 64 bit", open_wide, place_take, place_give, place_high, place_close, NULL},
    {"none", open_none, none_take, none_give, no_high, no_close, none_pairs},
    {"arena, offsets", open_arena, arena_take, arena_give, arena_high, arena_close, arena_pairs},
    {"arena, heap", open_heap, heap_take, heap_give, heap_high, heap_close, heap_pairs},
    {"glibc malloc", open_malloc, malloc_take, malloc_give, no_high, no_close, malloc_pairs}};
enum { ALLOCATORS = sizeof allocators / sizeof *allocators };

/* ---- one trace ------------------------------------------------------------------------------- */

typedef struct {
    double mean, high;
    percentiles each;
} figures;

/* times NULL: without a clock. from: the event behind the filling. */
static double run_trace(const allocator *a, const trace *t, size_t from, const symmStream_t *s,
                        uint64_t *block, uint32_t *times, double *high) {
    void *x = a->open();
    uint64_t begin = now_ns();
    for (size_t i = 0; i < t->n; i++) {
        const trace_event *e = &t->at[i];
        symmStream_t stream = s ? s[e->stream] : NULL;
        if (i == from) begin = now_ns();
        uint64_t b = block[e->id], t0 = times ? ticks() : 0; /* a caller has it at hand */
        if (e->op == TRACE_TAKE)
            b = a->take(x, e->bytes, stream);
        else
            a->give(x, b, stream);
        if (times) times[i] = (uint32_t)(ticks() - t0);
        block[e->id] = e->op == TRACE_TAKE ? b : UINT64_MAX;
    }
    double ns = (double)(now_ns() - begin) / (double)(t->n - from);
    *high = (double)a->high(x) / (double)t->peak_live;
    for (uint32_t i = 0; i < t->ids; i++)
        if (block[i] != UINT64_MAX) a->give(x, block[i], NULL);
    a->close(x);
    return ns;
}

/* The best of three, for others may run beside. */
static figures measure(const allocator *a, const trace *t, size_t from) {
    uint64_t *block = malloc((t->ids + 1) * sizeof *block);
    uint32_t *times = malloc(t->n * sizeof *times);
    figures f = {1e30, 0, bk_none};
    must(block && times, "malloc");
    for (int round = 0; round < 3; round++) {
        memset(block, 0xff, (t->ids + 1) * sizeof *block);
        keep_least(&f.mean, run_trace(a, t, from, NULL, block, NULL, &f.high));
        memset(block, 0xff, (t->ids + 1) * sizeof *block);
        run_trace(a, t, from, NULL, block, times, &f.high);
        keep_least_of(&f.each, percentiles_of(times + from, t->n - from));
    }
    free(block);
    free(times);
    return f;
}

static void show(const char *what, const trace *t, size_t from) {
    for (int i = 0; i < ALLOCATORS; i++) {
        if (allocators[i].take == none_take) continue;
        progress("%s: %s", what, allocators[i].name);
        figures f = measure(&allocators[i], t, from);
        progress_end();
        printf("%-22s %-14s %8.0f %8.0f %8.0f %9.0f   ", what, allocators[i].name, f.mean,
               f.each.p50, f.each.p99, f.each.p999);
        printf(f.high > 0 ? "%.3f\n" : "-\n", f.high);
        row(what, allocators[i].name,
            "\"mean_ns\": %.1f, \"p50_ns\": %.1f, \"p99_ns\": %.1f, \"p999_ns\": %.1f, "
            "\"high_over_live\": %.4f",
            f.mean, f.each.p50, f.each.p99, f.each.p999, f.high);
    }
    fflush(stdout);
}

static void head(const char *title) {
    printf("\n%s\n%-22s %-14s %8s %8s %8s %9s   %s\n", title, "trace", "allocator", "mean ns",
           "p50", "p99", "p999", "high/live");
}

enum { QUICK = -1, SHORT = 0, ALL = 1 };

static void traces(int how) {
    static const size_t n[] = {1000, 10000, 100000};
    static const uint64_t max[] = {1, 64, 4, 256, 1024, 4096}; /* the first two always */
    const int sizes = how == ALL ? 6 : 2, quick = how == QUICK;
    char what[64];
    head("random_allocations: 73 % allocations, at most 16000 MiB live");
    for (int m = 0; m < sizes; m++)
        for (int i = 0; i < 3 - quick; i++) {
            trace t = trace_random(n[i], max[m] * MB, 16000 * MB, 88172645463325252ull);
            snprintf(what, sizeof what, "%zuk x <=%llu MB", n[i] / 1000,
                     (unsigned long long)max[m]);
            show(what, &t, 0);
            free(t.at);
        }
    head("churn: as many live blocks all the time");
    for (int i = 0; i < 3 - quick; i++) {
        trace t = trace_churn(n[i], 200000, MB, 1234567);
        snprintf(what, sizeof what, "%zuk live x <=1 MB", n[i] / 1000);
        show(what, &t, n[i]);
        free(t.at);
    }
    head("churn of small blocks");
    trace t = trace_churn(10000, 200000, 8192, 99);
    show("10k live x <=8 KB", &t, 10000);
    free(t.at);
}

/* ---- streams --------------------------------------------------------------------------------- */

typedef struct {
    double ns, held, of_rounded; /* of the thread's own time, for others may run beside */
    uint64_t waits;
} stream_figures;

static stream_figures run_streams(const trace *t, uint32_t n) {
    over_offsets *x = open_arena();
    symmStream_t s[64];
    struct symm_arena_counts c;
    uint64_t *block = malloc(t->ids * sizeof *block), live = 0;
    must(block != NULL, "malloc");
    for (uint32_t i = 0; i < n; i++) must(!symmStreamCreate(&s[i]), "symmStreamCreate");
    uint64_t begin = read_ns(CLOCK_THREAD_CPUTIME_ID);
    for (size_t i = 0; i < t->n; i++) {
        const trace_event *e = &t->at[i];
        live += e->op == TRACE_TAKE ? e->bytes : -e->bytes;
        if (e->op == TRACE_TAKE)
            block[e->id] = arena_take(x, e->bytes, s[e->stream]);
        else
            arena_give(x, block[e->id], s[e->stream]);
    }
    stream_figures f = {.ns = (double)(read_ns(CLOCK_THREAD_CPUTIME_ID) - begin) / (double)t->n};
    symm_arena_count(x->arena, &c);
    f.held = (double)c.assigned / (double)live;
    f.of_rounded = (double)c.assigned / (double)c.used;
    f.waits = x->arena->waits;
    for (uint32_t i = 0; i < n; i++) must(!symmStreamDestroy(s[i]), "symmStreamDestroy");
    arena_close(x);
    free(block);
    return f;
}

/* What streams hold for small blocks: superblocks of theirs over live bytes as asked for. Sizes of
 * RMM's multi-stream case and below. */
static void streams(void) {
    printf(
        "\nmulti_stream: small blocks, 16 MiB live as asked for over all streams (arena, offsets); "
        "own time\n%-10s %-12s %10s %10s %12s %10s\n",
        "streams", "sizes", "ns a call", "held/live", "of 256's", "waits");
    for (uint32_t n = 1; n <= 64; n *= 4)
        for (uint64_t max = 1024; max <= 16384; max *= 4) {
            trace t = trace_streams(n, 16 * MB / (max / 2) / n, 2000, max, 5);
            stream_figures f = run_streams(&t, n);
            for (int k = 1; k < 5; k++) {
                stream_figures again = run_streams(&t, n);
                if (again.ns < f.ns) f = again;
            }
            printf("%-10u <=%-10llu %10.0f %10.3f %12.3f %10llu\n", n, (unsigned long long)max,
                   f.ns, f.held, f.of_rounded, (unsigned long long)f.waits);
            row("multi_stream", "arena, offsets",
                "\"streams\": %u, \"max\": %llu, \"mean_ns\": %.1f, \"held_over_live\": %.4f, "
                "\"held_over_rounded\": %.4f, \"waits\": %llu",
                n, (unsigned long long)max, f.ns, f.held, f.of_rounded,
                (unsigned long long)f.waits);
            free(t.at);
        }
}

/* ---- threads --------------------------------------------------------------------------------- */

/* Runs are short and many, and the best counts: then now and then nobody else has the cores. */
enum { LIVE = 256, CALLS = 20000, BOX = 4096, ROUNDS = 500, BATCH = 64 };
enum { PAIR, LARSON, REMOTE, BATCHES };
static const char *const works[] = {"one block, 512 B", "larson", "xmalloc (1/4)",
                                    "the same by 64"};

typedef struct {
    const allocator *a;
    void *x;
    int what, rank, n;
    pthread_barrier_t *go;
    double ns, cpu;        /* a pair: by the clock, and of this thread's own time */
    _Atomic uint64_t *box; /* what the next thread frees */
    uint16_t *draws;
    uint64_t block[LIVE];
    uint64_t *batch, *in; /* BATCHES: being filled, being freed */
    int n_out;
} worker;

/* What is to be freed by another thread goes there by the 64, as xmalloc does it; out of the same
 * box come those of the other one, which are freed one by one. Returns one of these. */
static uint64_t by_batch(worker *w, unsigned i, uint64_t mine) {
    uint64_t *out = w->batch, old = UINT64_MAX;
    if (w->in) old = w->in[w->n_out];
    out[w->n_out++] = mine;
    if (w->n_out < BATCH) return old;
    uint64_t *free_one = w->in ? w->in : calloc(BATCH, sizeof *out);
    must(free_one != NULL, "calloc");
    w->in = (uint64_t *)(uintptr_t)atomic_exchange(&w->box[i / 4 / BATCH % 8],
                                                   (uint64_t)(uintptr_t)out);
    w->batch = free_one;
    w->n_out = 0;
    return old;
}

/* Random blocks of 256 bytes to 8 KiB are replaced; every fourth pair goes through boxes to another
 * thread (REMOTE). */
static void replace(worker *w) {
    for (unsigned i = 0; i < CALLS; i++) {
        uint16_t d = w->draws[i & 65535];
        uint64_t *b = &w->block[d % LIVE], fresh = w->a->take(w->x, 256u << (d >> 8) % 6, NULL);
        uint64_t old = *b;
        *b = fresh;
        if (w->what == REMOTE &&
            i % 4 == 0) /* into this box goes mine, out of it comes what the other put there */
            old = atomic_exchange(&w->box[i / 4 % BOX], old + 1) - 1;
        if (w->what == BATCHES && i % 4 == 0) old = by_batch(w, i, old);
        if (old != UINT64_MAX) w->a->give(w->x, old, NULL);
    }
}

/* A core each. Refused: wherever it is put. */
static void stay_on(int core) {
    cpu_set_t all, one;
    CPU_ZERO(&one);
    if (sched_getaffinity(0, sizeof all, &all)) return;
    for (int i = 0, k = 0; i < CPU_SETSIZE; i++)
        if (CPU_ISSET(i, &all) && k++ == core) CPU_SET(i, &one);
    (void)pthread_setaffinity_np(pthread_self(), sizeof one, &one);
}

static void *work(void *arg) {
    worker *w = arg;
    uint64_t state = 1234567 + (uint64_t)w->rank * 7919;
    w->draws = malloc(sizeof *w->draws * 65536);
    w->batch = calloc(BATCH, sizeof *w->batch);
    must(w->draws != NULL && w->batch != NULL, "malloc");
    stay_on(w->rank);
    for (int i = 0; i < 65536; i++) w->draws[i] = (uint16_t)trace_draw(&state);
    for (int i = 0; i < LIVE; i++) w->block[i] = w->a->take(w->x, 256u << w->draws[i] % 6, NULL);
    for (int k = 0; k < ROUNDS; k++) {
        pthread_barrier_wait(w->go);
        uint64_t begin = now_ns(), mine = read_ns(CLOCK_THREAD_CPUTIME_ID);
        if (w->what == PAIR)
            w->a->pairs(w->x, CALLS);
        else
            replace(w);
        w->ns = (double)(now_ns() - begin) / CALLS;
        w->cpu = (double)(read_ns(CLOCK_THREAD_CPUTIME_ID) - mine) / CALLS;
        pthread_barrier_wait(w->go); /* the results are looked at */
    }
    for (int i = 0; i < LIVE; i++) w->a->give(w->x, w->block[i], NULL);
    for (int i = 0; i < w->n_out; i++) w->a->give(w->x, w->batch[i], NULL);
    for (int i = w->n_out; w->in && i < BATCH; i++) w->a->give(w->x, w->in[i], NULL);
    free(w->in);
    free(w->batch);
    free(w->draws);
    return NULL;
}

/* Of each round the slowest thread, of all rounds the best. */
static double run_threads(const allocator *a, int n, int what, double *cpu) {
    static worker w[16];
    pthread_t t[16];
    pthread_barrier_t go;
    double best = 1e30;
    *cpu = 1e30;
    void *x = a->open();
    _Atomic uint64_t *box = calloc(BOX, sizeof *box);
    must(box != NULL, "calloc");
    pthread_barrier_init(&go, NULL, (unsigned)n + 1);
    for (int i = 0; i < n; i++) {
        w[i] = (worker){.a = a, .x = x, .what = what, .rank = i, .n = n, .go = &go, .box = box};
        must(!pthread_create(&t[i], NULL, work, &w[i]), "pthread_create");
    }
    for (int k = 0; k < ROUNDS; k++) {
        double slowest = 0, own = 0;
        pthread_barrier_wait(&go);
        pthread_barrier_wait(&go);
        for (int i = 0; i < n; i++) {
            slowest = w[i].ns > slowest ? w[i].ns : slowest;
            own = w[i].cpu > own ? w[i].cpu : own;
        }
        best = slowest < best ? slowest : best;
        *cpu = own < *cpu ? own : *cpu;
    }
    for (int i = 0; i < n; i++) pthread_join(t[i], NULL);
    for (int i = 0; i < BOX && what != BATCHES; i++)
        if (box[i]) a->give(x, box[i] - 1, NULL);
    for (int i = 0; i < BOX && what == BATCHES; i++) {
        uint64_t *batch = (uint64_t *)(uintptr_t)box[i];
        for (int k = 0; batch && k < BATCH; k++) a->give(x, batch[k], NULL);
        free(batch);
    }
    pthread_barrier_destroy(&go);
    a->close(x);
    free((void *)box);
    return best;
}

static void threads_of(const allocator *a, int what, long cores) {
    double one = 0, one_cpu = 0;
    for (int n = 1; n <= cores && n <= 16; n *= 2) {
        double cpu, ns = run_threads(a, n, what, &cpu);
        if (n == 1) one = ns;
        if (n == 1) one_cpu = cpu;
        printf("%-17s %-8d %-14s %8.1f %8.2f %8.1f %8.2f\n", works[what], n, a->name, ns, one / ns,
               cpu, one_cpu / cpu);
        row(works[what], a->name,
            "\"threads\": %d, \"pair_ns\": %.2f, \"linear\": %.3f, \"own_ns\": %.2f, "
            "\"own_linear\": %.3f",
            n, ns, one / ns, cpu, one_cpu / cpu);
    }
    fflush(stdout);
}

static void threads(void) {
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    double load[3] = {0};
    must(getloadavg(load, 3) > 0, "getloadavg");
    printf("\nthreads, one a core of %ld, load %.1f (others use the cores too: of %d rounds the "
           "best, of a "
           "round the slowest "
           "thread): ns a pair by the clock; linear: one thread's over that; the same of the "
           "thread's own time\n"
           "%-17s %-8s %-14s %8s %8s %8s %8s\n",
           cores, load[0], ROUNDS, "trace", "threads", "allocator", "ns/pair", "linear", "own ns",
           "linear");
    for (int what = PAIR; what <= BATCHES; what++)
        for (int i = 0; i < ALLOCATORS; i++)
            if (allocators[i].pairs) threads_of(&allocators[i], what, cores);
}

static void replay(const char *path) {
    trace t;
    size_t skipped;
    must(!trace_read(&t, path, &skipped), "reading the trace (RMM's CSV)");
    must(t.n > 0, "finding calls in the trace");
    printf("\nreplay of %s: %zu calls, %zu skipped, %llu bytes live at most\n", path, t.n, skipped,
           (unsigned long long)t.peak_live);
    head("replay");
    show("replay", &t, 0);
    free(t.at);
}

int main(int argc, char **argv) {
    const char *read = NULL, *write = NULL;
    int how = SHORT, only_threads = 0;
    for (int i = 1; i < argc; i++) {
        const char *next = i + 1 < argc ? argv[i + 1] : NULL;
        if (!strcmp(argv[i], "--quick"))
            how = QUICK;
        else if (!strcmp(argv[i], "--all"))
            how = ALL;
        else if (!strcmp(argv[i], "--threads"))
            only_threads = 1;
        else if (!strcmp(argv[i], "--json") && next)
            json_open(argv[++i]);
        else if (!strcmp(argv[i], "--write") && next)
            write = argv[++i];
        else if (!strcmp(argv[i], "--replay") && next)
            read = argv[++i];
        else
            must(
                0,
                "reading the arguments: [--json FILE] [--quick] [--all] [--threads] [--write FILE] "
                "[--replay FILE]");
    }
    setenv("SYMM_BACKEND", "host", 1);
    setenv("SYMM_WIN_STRIDE", "128G", 1);
    calibrate();
    if (write) {
        trace t = trace_streams(4, 500, 5000, MB, 77);
        must(!trace_write(&t, write), "writing the trace");
        free(t.at);
    }
    if (read) {
        replay(read);
    } else {
        if (!only_threads) traces(how);
        if (!only_threads) streams();
        threads();
    }
    return json_close();
}
