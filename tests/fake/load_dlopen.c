/* load_dlopen.c - a program that opens the library at run time; built several times by
 * check_load.sh, always with the installed headers. `symm PATH TEST` opens the library, `plugin
 * PATH TEST` opens a library that was linked with ours (-DPLUGIN), both after the libraries that
 * are named behind TEST. With -DEATER=bytes it is such another library. Prints what it did, one
 * line; exit status 0 if all was right. Each test starts its own threads and processes; no lock. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#ifdef EATER
static __thread __attribute__((tls_model("initial-exec"))) char eaten[EATER];
__attribute__((visibility("default"))) char *eater_here(void) {
    return eaten;
}
#else
#include "symm.h"
#include "symm_arena.h"
#ifdef PLUGIN_MPI
#include "symm_mpi.h"
#endif

enum { RANKS = 3, SMALL = 100, LARGE = 1 << 20 };

/* ---- the calls, found by name or linked ------------------------------------------------------ */

#define CALLS(X)            \
    X(symmGetUniqueId)      \
    X(symmGetLastError)     \
    X(symmCommInitRank)     \
    X(symmCommInitAll)      \
    X(symmCommDestroy)      \
    X(symmMemAlloc)         \
    X(symmMemFree)          \
    X(symmWindowRegister)   \
    X(symmWindowDeregister) \
    X(symmAllReduce)        \
    X(symmGroupStart)       \
    X(symmGroupEnd)         \
    X(symmHeapCreate)       \
    X(symmHeapDestroy)      \
    X(symmArenaCreate)      \
    X(symmArenaDestroy)     \
    X(symmArenaAlloc)       \
    X(symmArenaFree)

static struct {
#define X(call) __typeof__(call) *call;
    CALLS(X)
#undef X
} symm;

static void ok(symmResult_t r, int line) {
    if (r == symmSuccess) return;
    fprintf(stderr, "line %d: %s\n", line, symm.symmGetLastError(NULL));
    exit(1);
}
#define OK(call) ok(symm.call, __LINE__)
#define CHECK(cond)                                                              \
    do {                                                                         \
        if (!(cond)) fprintf(stderr, "line %d: " #cond "\n", __LINE__), exit(1); \
    } while (0)

/* ---- tests ----------------------------------------------------------------------------------- */

/* In place. All elements of x are rank + 1 at the start. */
static void reduce(symmComm_t comm, int rank, int n, float *x, size_t count) {
    for (size_t i = 0; i < count; i++) x[i] = (float)(rank + 1);
    OK(symmAllReduce(x, x, count, symmFloat, symmSum, comm, NULL));
    for (size_t i = 0; i < count; i++) CHECK(x[i] == (float)(n * (n + 1) / 2));
}

/* Leaves work for the end of this thread. */
static void use_an_arena(symmComm_t comm) {
    symmHeapConfig_t config = SYMM_HEAP_CONFIG_INITIALIZER;
    symmHeap_t heap;
    symmArena_t arena;
    char *block;
    config.localBytes = 16 << 20;
    OK(symmHeapCreate(comm, &config, &heap));
    OK(symmArenaCreate(heap, NULL, &arena));
    for (int i = 0; i < 100; i++) {
        OK(symmArenaAlloc(arena, 1000, 0, NULL, (void **)&block));
        memset(block, i, 1000);
        OK(symmArenaFree(arena, block, NULL));
    }
    OK(symmArenaDestroy(arena));
    OK(symmHeapDestroy(heap));
}

static void reduce_all_ways(symmComm_t comm, int rank, int n) {
    float *in, *out = malloc(LARGE * sizeof *out);
    symmWindow_t win;
    CHECK(out);
    OK(symmMemAlloc((void **)&in, LARGE * sizeof *in));
    OK(symmWindowRegister(comm, in, LARGE * sizeof *in, &win, SYMM_WIN_DEFAULT));
    for (int i = 0; i < 2; i++) {
        size_t count = i ? LARGE : SMALL;
        reduce(comm, rank, n, in, count);
        reduce(comm, rank, n, out, count);
        OK(symmGroupStart());
        OK(symmAllReduce(out, in, count, symmFloat, symmMax, comm, NULL));
        OK(symmGroupEnd());
    }
    OK(symmWindowDeregister(comm, win));
    OK(symmMemFree(in));
    use_an_arena(comm);
    free(out);
}

static void one_process(symmUniqueId_t id, int rank) {
    symmComm_t comm;
    OK(symmCommInitRank(&comm, RANKS, id, rank));
    reduce_all_ways(comm, rank, RANKS);
    OK(symmCommDestroy(comm));
}

static void processes(void) {
    symmUniqueId_t id;
    int failed = 0, status;
    OK(symmGetUniqueId(&id));
    for (int rank = 1; rank < RANKS; rank++) {
        if (fork()) continue;
        one_process(id, rank);
        _exit(0);
    }
    one_process(id, 0);
    while (wait(&status) > 0) failed |= status;
    CHECK(!failed);
    printf("%d processes\n", RANKS);
}

typedef struct {
    symmComm_t comm;
    int rank, n;
} thread_rank;

static void *drive(void *arg) {
    thread_rank *t = arg;
    float *x = malloc(LARGE / 8 * sizeof *x), *y = malloc(LARGE / 8 * sizeof *y);
    CHECK(x && y);
    reduce(t->comm, t->rank, t->n, x, LARGE / 8);
    OK(symmAllReduce(x, y, LARGE / 8, symmFloat, symmMax, t->comm, NULL));
    CHECK(symm.symmAllReduce(NULL, y, 1, symmFloat, symmMax, t->comm, NULL) != symmSuccess);
    free(x);
    free(y);
    return NULL;
}

static void drive_all(symmComm_t *comms) {
    pthread_t thread[RANKS];
    thread_rank rank[RANKS];
    for (int r = 0; r < RANKS; r++) {
        rank[r] = (thread_rank){comms[r], r, RANKS};
        CHECK(!pthread_create(&thread[r], NULL, drive, &rank[r]));
    }
    for (int r = 0; r < RANKS; r++) pthread_join(thread[r], NULL);
}

/* Threads that have ended leave nothing, including what the library keeps for each thread. */
static void threads(void) {
    enum { WARM = 10, ROUNDS = 100 };
    symmComm_t comms[RANKS];
    size_t before = 0;
    OK(symmCommInitAll(comms, RANKS, NULL));
    for (int i = 0; i < WARM + ROUNDS; i++) {
        if (i == WARM) before = mallinfo2().uordblks;
        drive_all(comms);
    }
    size_t after = mallinfo2().uordblks;
    for (int r = 0; r < RANKS; r++) OK(symmCommDestroy(comms[r]));
    fprintf(stderr, "%zu bytes before %d threads, %zu after\n", before, ROUNDS * RANKS, after);
    CHECK(after < before + ROUNDS * RANKS * 64);
    printf("%d threads\n", ROUNDS * RANKS);
}

#ifdef PLUGIN_MPI
static void mpi(void) {
    symmComm_t comm;
    int rank, n;
    CHECK(MPI_Init(NULL, NULL) == MPI_SUCCESS);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &n);
    ok(symmCommInitMPI(&comm, MPI_COMM_WORLD, NULL), __LINE__);
    reduce_all_ways(comm, rank, n);
    OK(symmCommDestroy(comm));
    MPI_Finalize();
    if (!rank) printf("%d ranks of MPI\n", n);
}
#endif

static void run(const char *test) {
    if (!strcmp(test, "processes")) processes();
    if (!strcmp(test, "threads")) threads();
#ifdef PLUGIN_MPI
    if (!strcmp(test, "mpi")) mpi();
#endif
    fflush(stdout);
}

#ifdef PLUGIN
__attribute__((visibility("default"))) void plugin_run(const char *test) {
#define X(call) symm.call = call;
    CALLS(X)
#undef X
    run(test);
}
#else

/* ---- opening --------------------------------------------------------------------------------- */

static void *must_open(const char *path) {
    void *lib =
        dlopen(path, RTLD_NOW | RTLD_GLOBAL); /* global for MPI, whose parts look for each other */
    if (!lib) fprintf(stderr, "%s\n", dlerror()), exit(1);
    return lib;
}

static void find(void *lib, const char *name, void *entry) {
    void *symbol = dlsym(lib, name);
    if (!symbol) fprintf(stderr, "%s\n", dlerror()), exit(1);
    memcpy(entry, &symbol, sizeof symbol);
}

/* Libraries that need thread-local memory in every thread, until none is left. */
static void eat(char **paths) {
    int opened = 0, refused = 0;
    for (; *paths; paths++) *(dlopen(*paths, RTLD_NOW) ? &opened : &refused) += 1;
    if (opened + refused)
        printf("%s fit, %s did not; ", opened ? "some" : "none", refused ? "others" : "none");
}

typedef struct {
    const char *test;
    pthread_barrier_t both;
    void (*go)(const char *);
} waiting;

/* A thread that started before the library was opened: it has no thread-local memory for libraries
 * except what it allocates itself. */
static void *older(void *arg) {
    waiting *w = arg;
    pthread_barrier_wait(&w->both);
    w->go(w->test);
    pthread_barrier_wait(&w->both); /* the library is closed */
    pthread_barrier_wait(&w->both);
    return NULL; /* so is what it would have called at the end of a thread */
}

int main(int argc, char **argv) {
    pthread_t thread;
    waiting w = {.go = run};
    if (argc < 4) return 2;
    w.test = argv[3];
    pthread_barrier_init(&w.both, NULL, 2);
    if (pthread_create(&thread, NULL, older, &w)) return 2;
    eat(argv + 4);
    void *lib = must_open(argv[2]);
    if (!strcmp(argv[1], "symm")) {
#define X(call) find(lib, #call, &symm.call);
        CALLS(X)
#undef X
    } else {
        find(lib, "plugin_run", &w.go);
    }
    pthread_barrier_wait(&w.both);
    pthread_barrier_wait(&w.both);
    dlclose(lib);
    pthread_barrier_wait(&w.both);
    pthread_join(thread, NULL);
    return 0;
}
#endif
#endif
