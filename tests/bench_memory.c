/* bench_memory.c - placement and arenas on the traces of allocators' benchmarks: time of a call, highest end over peak live bytes, what streams
 * of small blocks hold, threads; glibc's malloc beside them. Not a test: `make bench-memory`.
 *
 *   bench_memory [--json FILE] [--quick] [--all] [--write FILE] [--replay FILE]
 *
 * --all: the random allocations with every maximum of RMM's, not only 1 and 64 MiB; --quick: no trace of 100,000 allocations.
 *
 * The time of a call is read from a clock twice around it, less what two readings cost; means are of whole traces without clocks. */
#include <pthread.h>
#include <stdatomic.h>

#include "arena_kit.h"
#include "bench_kit.h"
#include "trace.h"

#define MB (1ull << 20)

/* ---- allocators -------------------------------------------------------------------------------------------------------- */

typedef struct {
    const char *name;
    void *(*open)(void);
    uint64_t (*take)(void *x, uint64_t bytes, symmStream_t s);
    void (*give)(void *x, uint64_t block, symmStream_t s);
    uint64_t (*high)(void *x); /* highest end, or most held; 0: unknown */
    void (*close)(void *x);
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

static const allocator allocators[] = {
    {"first fit", open_first, place_take, place_give, place_high, place_close},
    {"best fit", open_best, place_take, place_give, place_high, place_close},
    {"first, 64 bit", open_wide, place_take, place_give, place_high, place_close},
    {"arena", open_arena, arena_take, arena_give, arena_high, arena_close},
    {"glibc malloc", open_malloc, malloc_take, malloc_give, no_high, no_close}};
enum { ALLOCATORS = sizeof allocators / sizeof *allocators };

/* ---- one trace --------------------------------------------------------------------------------------------------------- */

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
        progress("%s: %s", what, allocators[i].name);
        figures f = measure(&allocators[i], t, from);
        progress_end();
        printf("%-22s %-13s %8.0f %8.0f %8.0f %9.0f   ", what, allocators[i].name, f.mean,
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
    printf("\n%s\n%-22s %-13s %8s %8s %8s %9s   %s\n", title, "trace", "allocator", "mean ns",
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

/* ---- streams ------------------------------------------------------------------------------------------------------------ */

/* What streams hold for small blocks: superblocks of theirs over live bytes as asked for. Sizes of RMM's multi-stream case and below. */
static void streams(void) {
    printf("\nmulti_stream: small blocks, 16 MiB live over all streams\n%-10s %-12s %10s %10s %12s "
           "%10s\n",
           "streams", "sizes", "ns a call", "held/live", "of 256's", "waits");
    for (uint32_t n = 1; n <= 64; n *= 4)
        for (uint64_t max = 1024; max <= 16384; max *= 4) {
            trace t = trace_streams(n, 16 * MB / (max / 2) / n, 2000, max, 5);
            over_offsets *x = open_arena();
            symmStream_t s[64];
            uint64_t *block = malloc(t.ids * sizeof *block), live = 0;
            for (uint32_t i = 0; i < n; i++) must(!symmStreamCreate(&s[i]), "symmStreamCreate");
            uint64_t begin = now_ns();
            for (size_t i = 0; i < t.n; i++) {
                const trace_event *e = &t.at[i];
                live += e->op == TRACE_TAKE ? e->bytes : -e->bytes;
                if (e->op == TRACE_TAKE)
                    block[e->id] = arena_take(x, e->bytes, s[e->stream]);
                else
                    arena_give(x, block[e->id], s[e->stream]);
            }
            double ns = (double)(now_ns() - begin) / (double)t.n;
            struct symm_arena_counts c;
            symm_arena_count(x->arena, &c);
            double held = (double)c.assigned / (double)live;
            double used = (double)c.assigned / (double)c.used;
            printf("%-10u <=%-10llu %10.0f %10.3f %12.3f %10llu\n", n, (unsigned long long)max, ns,
                   held, used, (unsigned long long)x->arena->waits);
            row("multi_stream", "arena",
                "\"streams\": %u, \"max\": %llu, \"mean_ns\": %.1f, \"held_over_live\": %.4f, "
                "\"held_over_rounded\": %.4f",
                n, (unsigned long long)max, ns, held, used);
            for (uint32_t i = 0; i < n; i++) must(!symmStreamDestroy(s[i]), "symmStreamDestroy");
            arena_close(x);
            free(block);
            free(t.at);
        }
}

/* ---- threads ------------------------------------------------------------------------------------------------------------ */

enum { LIVE = 256, PAIRS = 2000000, BOX = 4096 };

typedef struct {
    const allocator *a;
    void *x;
    int remote, rank, n;
    pthread_barrier_t *go;
    double ns, cpu;        /* a pair: by the clock, and of this thread's own time */
    _Atomic uint64_t *box; /* what the next thread frees */
} worker;

/* larson: random blocks of 256 bytes to 8 KiB are replaced; every fourth pair goes through boxes to the next thread (remote). */
static void *work(void *arg) {
    worker *w = arg;
    uint64_t block[LIVE], state = 1234567 + (uint64_t)w->rank * 7919;
    uint16_t *draws = malloc(sizeof *draws * 65536);
    must(draws != NULL, "malloc");
    for (int i = 0; i < 65536; i++) draws[i] = (uint16_t)trace_draw(&state);
    for (int i = 0; i < LIVE; i++) block[i] = w->a->take(w->x, 256u << draws[i] % 6, NULL);
    pthread_barrier_wait(w->go);
    uint64_t begin = now_ns(), mine = read_ns(CLOCK_THREAD_CPUTIME_ID);
    for (unsigned i = 0; i < PAIRS; i++) {
        uint16_t d = draws[i & 65535];
        uint64_t *b = &block[d % LIVE], fresh = w->a->take(w->x, 256u << (d >> 8) % 6, NULL);
        uint64_t old = *b;
        *b = fresh;
        if (w->remote &&
            i % 4 == 0) /* into this box goes mine, out of it comes what the other put there */
            old = atomic_exchange(&w->box[i / 4 % BOX], old + 1) - 1;
        if (old != UINT64_MAX) w->a->give(w->x, old, NULL);
    }
    w->ns = (double)(now_ns() - begin) / PAIRS;
    w->cpu = (double)(read_ns(CLOCK_THREAD_CPUTIME_ID) - mine) / PAIRS;
    pthread_barrier_wait(w->go);
    for (int i = 0; i < LIVE; i++) w->a->give(w->x, block[i], NULL);
    free(draws);
    return NULL;
}

static double run_threads(const allocator *a, int n, int remote, double *cpu) {
    worker w[64];
    pthread_t t[64];
    pthread_barrier_t go;
    double slowest = 0;
    *cpu = 0;
    void *x = a->open();
    _Atomic uint64_t *box = calloc(BOX, sizeof *box);
    must(box != NULL, "calloc");
    pthread_barrier_init(&go, NULL, (unsigned)n);
    for (int i = 0; i < n; i++) {
        w[i] = (worker){a, x, remote, i, n, &go, 0, 0, box};
        must(!pthread_create(&t[i], NULL, work, &w[i]), "pthread_create");
    }
    for (int i = 0; i < n; i++) pthread_join(t[i], NULL);
    for (int i = 0; i < n; i++) slowest = w[i].ns > slowest ? w[i].ns : slowest;
    for (int i = 0; i < n; i++) *cpu = w[i].cpu > *cpu ? w[i].cpu : *cpu;
    for (int i = 0; i < BOX; i++)
        if (box[i]) a->give(x, box[i] - 1, NULL);
    pthread_barrier_destroy(&go);
    a->close(x);
    free((void *)box);
    return slowest;
}

static void threads_of(const allocator *a, int remote, long cores) {
    const char *what = remote ? "xmalloc (1/4)" : "larson";
    double one = 0;
    for (int n = 1; n <= cores && n <= 16; n *= 2) {
        double ns = 1e30, cpu = 1e30, own;
        for (int k = 0; k < 7; k++) {
            double again = run_threads(a, n, remote, &own);
            ns = again < ns ? again : ns;
            cpu = own < cpu ? own : cpu;
        }
        if (n == 1) one = cpu;
        printf("%-16s %-8d %-13s %8.1f %8.1f %8.2f\n", what, n, a->name, ns, cpu, one / cpu);
        row(what, a->name, "\"threads\": %d, \"pair_ns\": %.2f, \"own_ns\": %.2f, \"linear\": %.3f",
            n, ns, cpu, one / cpu);
    }
}

static void threads(void) {
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    printf("\nthreads: blocks of 256 B to 8 KiB, ns a pair of the slowest thread, by the clock and "
           "of its own "
           "time (others may use the cores); linear: one thread's own time over that\n"
           "%-16s %-8s %-13s %8s %8s %8s\n",
           "trace", "threads", "allocator", "ns/pair", "own ns", "linear");
    for (int remote = 0; remote < 2; remote++)
        for (int i = 3; i < ALLOCATORS; i++) threads_of(&allocators[i], remote, cores);
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
    int how = SHORT;
    for (int i = 1; i < argc; i++) {
        const char *next = i + 1 < argc ? argv[i + 1] : NULL;
        if (!strcmp(argv[i], "--quick"))
            how = QUICK;
        else if (!strcmp(argv[i], "--all"))
            how = ALL;
        else if (!strcmp(argv[i], "--json") && next)
            json_open(argv[++i]);
        else if (!strcmp(argv[i], "--write") && next)
            write = argv[++i];
        else if (!strcmp(argv[i], "--replay") && next)
            read = argv[++i];
        else
            must(0, "reading the arguments: [--json FILE] [--quick] [--all] [--write FILE] "
                    "[--replay FILE]");
    }
    calibrate();
    if (write) {
        trace t = trace_streams(4, 500, 5000, MB, 77);
        must(!trace_write(&t, write), "writing the trace");
        free(t.at);
    }
    if (read) {
        replay(read);
    } else {
        traces(how);
        streams();
        threads();
    }
    return json_close();
}
