/* bench_nccl.c - what the drop-in costs: host time of a call of one rank, in turn with the
 * library's own call of the same thing, or, of a forwarded communicator, with the call of the real
 * NCCL (a stand-in) itself; and making communicators of thread ranks. One thread measures. */
#include <dlfcn.h>
#include <pthread.h>

#include "../../nccl-tests-plugin/plugin.h"
#include "bench_kit.h"

enum { REPEATS = 200, ROUNDS = 2000, RANKS = 8, TURNS = 20 };

static ncclComm_t comm;
static symmComm_t mine;
static int x[16];

static void theirs(void) {
    for (int i = 0; i < REPEATS; i++)
        must(!ncclAllReduce(x, x, 4, ncclInt32, ncclMax, comm, NULL), "ncclAllReduce");
}

static void ours(void) {
    for (int i = 0; i < REPEATS; i++)
        must(!symmAllReduce(x, x, 4, symmInt32, symmMax, mine, NULL), "symmAllReduce");
}

static double time_of(void (*fn)(void)) {
    const uint64_t at = ticks();
    fn();
    return (double)(ticks() - at) * bk_ns_per_tick / REPEATS;
}

static int by_size(const void *a, const void *b) {
    const double d = *(const double *)a - *(const double *)b;
    return d < 0 ? -1 : d > 0;
}

static double median(double *v, int n) {
    qsort(v, (size_t)n, sizeof *v, by_size);
    return v[n / 2];
}

static void calls(void) {
    static double a[ROUNDS], b[ROUNDS], more[ROUNDS];
    must(!ncclCommInitAll(&comm, 1, NULL), "ncclCommInitAll");
    mine = ((nccl_comm *)(void *)comm)->comm;
    for (int i = 0; i < ROUNDS; i++) {
        a[i] = time_of(theirs);
        b[i] = time_of(ours);
        more[i] = a[i] - b[i];
    }
    printf("all_reduce of 16 bytes, 1 rank, medians of %d rounds: ncclAllReduce %.1f ns, "
           "symmAllReduce %.1f ns, difference %.1f ns\n",
           ROUNDS, median(a, ROUNDS), median(b, ROUNDS), median(more, ROUNDS));
    must(!ncclCommDestroy(comm), "ncclCommDestroy");
}

static ncclUniqueId id;

static void *make_rank(void *arg) {
    ncclComm_t c;
    must(!ncclCommInitRank(&c, RANKS, id, (int)(intptr_t)arg), "ncclCommInitRank");
    return c;
}

static void creations(void) {
    double ms[TURNS];
    for (int i = 0; i < TURNS; i++) {
        pthread_t t[RANKS];
        void *made[RANKS];
        const uint64_t at = now_ns();
        must(!ncclGetUniqueId(&id), "ncclGetUniqueId");
        for (int r = 0; r < RANKS; r++)
            must(!pthread_create(&t[r], NULL, make_rank, (void *)(intptr_t)r), "pthread_create");
        for (int r = 0; r < RANKS; r++) pthread_join(t[r], &made[r]);
        ms[i] = (double)(now_ns() - at) / 1e6;
        for (int r = 0; r < RANKS; r++) must(!ncclCommDestroy(made[r]), "ncclCommDestroy");
    }
    const double first = ms[0], middle = median(ms, TURNS);
    printf("a communicator of %d thread ranks, by an id: first %.1f ms, median %.1f ms, longest "
           "%.1f ms\n",
           RANKS, first, middle, ms[TURNS - 1]);
}

/* ---- forwarded ------------------------------------------------------------------------------- */

typedef ncclResult_t (*id_fn)(ncclUniqueId *id);
typedef ncclResult_t (*make_fn)(ncclComm_t *comm, int n, ncclUniqueId id, int rank,
                                ncclConfig_t *config);
typedef ncclResult_t (*sum_fn)(const void *send, void *recv, size_t count, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream);
typedef struct { /* a library as a program has it, and its communicator */
    ncclComm_t comm;
    sum_fn sum;
} opened;
static opened passed, direct;

static void call_opened(const opened *o) {
    for (int i = 0; i < REPEATS; i++)
        must(!o->sum(x, x, 4, ncclInt32, ncclMax, o->comm, NULL), "ncclAllReduce");
}
static void through(void) {
    call_opened(&passed);
}
static void straight(void) {
    call_opened(&direct);
}

/* path: from this program's folder. */
static void open_library(const char *path, char *full, size_t cap, opened *o) {
    id_fn get_id;
    make_fn make;
    ncclUniqueId at;
    const ssize_t n = readlink("/proc/self/exe", full, cap - 64);
    must(n > 0, "readlink");
    full[n] = 0;
    snprintf(strrchr(full, '/') + 1, 64, "%s", path);
    void *lib = dlopen(full, RTLD_NOW | RTLD_LOCAL);
    must(lib != NULL, full);
    *(void **)(void *)&get_id = dlsym(lib, "ncclGetUniqueId");
    *(void **)(void *)&make = dlsym(lib, "ncclCommInitRankConfig");
    *(void **)(void *)&o->sum = dlsym(lib, "ncclAllReduce");
    must(get_id && make && o->sum, "dlsym");
    must(!get_id(&at) && !make(&o->comm, 1, at, 0, NULL), "ncclCommInitRankConfig");
}

static void forwarded_calls(void) {
    static double a[ROUNDS], b[ROUNDS], more[ROUNDS];
    char path[512];
    open_library("libnccl-real.so", path, sizeof path, &direct);
    setenv("SYMM_NCCL_LIB", path, 1);
    setenv("SYMM_NCCL", "forward", 1);
    open_library("../lib/nccl/libnccl.so.2", path, sizeof path, &passed);
    for (int i = 0; i < ROUNDS; i++) {
        a[i] = time_of(through);
        b[i] = time_of(straight);
        more[i] = a[i] - b[i];
    }
    printf("the same forwarded to a stand-in: through the drop-in %.1f ns, called itself %.1f ns, "
           "difference %.1f ns\n",
           median(a, ROUNDS), median(b, ROUNDS), median(more, ROUNDS));
}

int main(void) {
    setenv("SYMM_BACKEND", "host", 0);
    calibrate();
    calls();
    creations();
    forwarded_calls();
    return 0;
}
