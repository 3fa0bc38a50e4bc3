/* bench_load.c - not a test: what a call of the library costs where the time is in the call, in one
 * build of it or in several. Each library is opened by dlopen, as a plug-in would; rounds take
 * turns, and the least of each counts.
 *
 *   bench_load [LIBRARY...]           a row per call, a column per library (default: libsymm.so of
 *                                     the same build)
 *   bench_load -n CALLS WHAT LIBRARY  that row alone, so many times: for counters of instructions
 *   bench_load -g CALLS WHAT          the same for calls on GPUs, of the test objects over the fake
 *                                     CUDA driver: 0 one stream, 1 two streams in turn, 2 captured
 *
 * The rank that measures is the main thread; `2 ranks` has a second thread, which ends with each
 * round. No lock. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>

#include "bench_kit.h"
#include "fgpu_kit.h"
#include "symm.h"
#include "symm_arena.h"

enum { LIBS = 4, ROUNDS = 60, SMALL = 256 };

#define CALLS(X)              \
    X(symmCommInitAll)        \
    X(symmCommDestroy)        \
    X(symmAllReduce)          \
    X(symmBarrier)            \
    X(symmGroupStart)         \
    X(symmGroupEnd)           \
    X(symmStreamCreate)       \
    X(symmStreamDestroy)      \
    X(symmStreamBeginCapture) \
    X(symmStreamEndCapture)   \
    X(symmGraphInstantiate)   \
    X(symmGraphLaunch)        \
    X(symmGraphDestroy)       \
    X(symmGraphExecDestroy)   \
    X(symmHeapCreate)         \
    X(symmHeapDestroy)        \
    X(symmArenaCreate)        \
    X(symmArenaDestroy)       \
    X(symmArenaAlloc)         \
    X(symmArenaFree)

typedef struct {
    const char *name;
#define X(call) __typeof__(call) *call;
    CALLS(X)
#undef X
    symmComm_t one, two[2];
    symmHeap_t heap;
    symmArena_t arena;
} lib;

static void ok(symmResult_t r) {
    must(r == symmSuccess, "a call");
}

static void open_lib(lib *l, const char *path) {
    symmHeapConfig_t heap = SYMM_HEAP_CONFIG_INITIALIZER;
    symmArenaConfig_t arena = SYMM_ARENA_CONFIG_INITIALIZER;
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL), *symbol;
    if (!handle) fprintf(stderr, "%s\n", dlerror());
    must(handle != NULL, path);
    l->name = path;
#define X(call)                    \
    symbol = dlsym(handle, #call); \
    must(symbol != NULL, #call);   \
    memcpy(&l->call, &symbol, sizeof symbol);
    CALLS(X)
#undef X
    ok(l->symmCommInitAll(&l->one, 1, NULL));
    ok(l->symmCommInitAll(l->two, 2, NULL));
    heap.localBytes = 64 << 20;
    ok(l->symmHeapCreate(l->one, &heap, &l->heap));
    ok(l->symmArenaCreate(l->heap, &arena, &l->arena));
}

static void close_lib(lib *l) {
    ok(l->symmArenaDestroy(l->arena));
    ok(l->symmHeapDestroy(l->heap));
    ok(l->symmCommDestroy(l->one));
    for (int r = 0; r < 2; r++) ok(l->symmCommDestroy(l->two[r]));
}

/* ---- what is measured: each does `calls` of it ----------------------------------------------- */

static void all_reduce(lib *l, long calls) {
    float x[2] = {1, 2};
    for (long i = 0; i < calls; i++)
        ok(l->symmAllReduce(x, x, 2, symmFloat, symmMax, l->one, NULL));
}

static void in_a_group(lib *l, long calls) {
    float x[2] = {1, 2};
    for (long i = 0; i < calls; i++) {
        ok(l->symmGroupStart());
        ok(l->symmAllReduce(x, x, 2, symmFloat, symmMax, l->one, NULL));
        ok(l->symmGroupEnd());
    }
}

/* By this thread: the NULL stream. */
static void replayed(lib *l, long calls) {
    float x[2] = {1, 2};
    symmStream_t stream;
    symmGraph_t graph;
    symmGraphExec_t exec;
    ok(l->symmStreamCreate(&stream));
    ok(l->symmStreamBeginCapture(stream));
    ok(l->symmAllReduce(x, x, 2, symmFloat, symmMax, l->one, stream));
    ok(l->symmStreamEndCapture(stream, &graph));
    ok(l->symmGraphInstantiate(graph, &exec));
    for (long i = 0; i < calls; i++) ok(l->symmGraphLaunch(exec, NULL));
    ok(l->symmGraphExecDestroy(exec));
    ok(l->symmGraphDestroy(graph));
    ok(l->symmStreamDestroy(stream));
}

static void arena_pair(lib *l, long calls) {
    void *p;
    for (long i = 0; i < calls; i++) {
        ok(l->symmArenaAlloc(l->arena, SMALL, 0, NULL, &p));
        ok(l->symmArenaFree(l->arena, p, NULL));
    }
}

/* Blocks that lie apart: what a call looks at is not what the one before it left in the cache
 * alone. */
static void arena_64(lib *l, long calls) {
    void *p[64];
    for (long i = 0; i < calls; i += 64) {
        for (int k = 0; k < 64; k++)
            ok(l->symmArenaAlloc(l->arena, SMALL * (k % 4 + 1), 0, NULL, &p[k]));
        for (int k = 0; k < 64; k++) ok(l->symmArenaFree(l->arena, p[k], NULL));
    }
}

typedef struct {
    lib *l;
    long calls;
    size_t count;
} peer;

static void both(lib *l, int rank, long calls, size_t count) {
    static __thread float x[16384];
    for (long i = 0; i < calls; i++)
        ok(l->symmAllReduce(x, x, count, symmFloat, symmMax, l->two[rank], NULL));
}

static void *second(void *arg) {
    peer *p = arg;
    both(p->l, 1, p->calls, p->count);
    return NULL;
}

static void two_ranks(lib *l, long calls, size_t count) {
    peer p = {l, calls, count};
    pthread_t thread;
    must(!pthread_create(&thread, NULL, second, &p), "a thread");
    both(l, 0, calls, count);
    pthread_join(thread, NULL);
}
static void two_small(lib *l, long calls) {
    two_ranks(l, calls, 256);
}
static void two_large(lib *l, long calls) {
    two_ranks(l, calls, 16384);
}

static const struct {
    const char *name;
    void (*run)(lib *l, long calls);
    long calls;
} rows[] = {
    {"all_reduce of 8 bytes, one rank", all_reduce, 4096},
    {"the same in a group", in_a_group, 2048},
    {"arena: 256 bytes, taken and freed", arena_pair, 8192},
    {"arena: 64 blocks taken, 64 freed, a pair", arena_64, 8192},
    {"all_reduce of 1 KiB, two ranks", two_small, 4096},
    {"all_reduce of 64 KiB, two ranks", two_large, 1024},
    {"all_reduce of 8 bytes, one rank, replayed", replayed, 2048},
};
enum { ROWS = sizeof rows / sizeof *rows };

/* ---- on GPUs --------------------------------------------------------------------------------- */

static void on_gpus(long calls, int what) {
    symmComm_t comm;
    cu_stream stream[2];
    cu_graph graph;
    float *x;
    gk_start(1, 0);
    gk_open(&comm, 1, NULL);
    ok(symm_cuda_set(0));
    for (int i = 0; i < 2; i++) stream[i] = gk_stream(0);
    ok(symmMemAlloc((void **)&x, 4096));
    if (what == 2) symm_cu.cuStreamBeginCapture(stream[0], SYMM_CUDA_CAPTURE_MODE_THREAD_LOCAL);
    for (long i = 0; i < calls; i++)
        ok(symmAllReduce(x, x, 2, symmFloat, symmMax, comm, gk_user(stream[what == 1 && i % 2])));
    if (what == 2) symm_cu.cuStreamEndCapture(stream[0], &graph);
    if (what == 2) symm_cu.cuGraphDestroy(graph);
    ok(symmMemFree(x));
    for (int i = 0; i < 2; i++) symm_cu.cuStreamDestroy(stream[i]);
    gk_close(&comm, 1);
}

/* ---- in turns -------------------------------------------------------------------------------- */

static void measure(lib *libs, int n) {
    for (int i = 0; i < ROWS; i++) {
        double least[LIBS];
        for (int k = 0; k < n; k++) least[k] = 1e12;
        for (int round = -1; round < ROUNDS; round++) { /* the first warms up */
            for (int k = 0; k < n; k++) {
                lib *l = &libs[(round + 1 + k) % n];
                uint64_t from = now_ns();
                rows[i].run(l, rows[i].calls);
                double ns = (double)(now_ns() - from) / (double)rows[i].calls;
                if (round >= 0) keep_least(&least[l - libs], ns);
            }
        }
        printf("%-42s", rows[i].name);
        for (int k = 0; k < n; k++) printf(" %8.1f ns", least[k]);
        for (int k = 1; k < n; k++) printf(" %6.3fx", least[k] / least[0]);
        printf("\n");
        fflush(stdout);
    }
}

int main(int argc, char **argv) {
    char own[4096];
    lib libs[LIBS];
    int n = 0;
    setenv("SYMM_BACKEND", "host", 1);
    if (argc == 5 && !strcmp(argv[1], "-n")) {
        open_lib(libs, argv[4]);
        rows[atoi(argv[3]) % ROWS].run(libs, atol(argv[2]));
        close_lib(libs);
        return 0;
    }
    if (argc == 4 && !strcmp(argv[1], "-g")) {
        on_gpus(atol(argv[2]), atoi(argv[3]));
        return 0;
    }
    const ssize_t len = readlink("/proc/self/exe", own, sizeof own - 32);
    must(len > 0, "readlink");
    own[len] = 0;
    for (int up = 0; up < 2; up++) *strrchr(own, '/') = 0; /* build/test/bench_load */
    strcat(own, "/lib/libsymm.so");
    for (int i = 1; i < argc && n < LIBS; i++) open_lib(&libs[n++], argv[i]);
    if (!n) open_lib(&libs[n++], own);
    measure(libs, n);
    for (int i = 0; i < n; i++) close_lib(&libs[i]);
    return 0;
}
