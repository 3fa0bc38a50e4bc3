/* bench_nccl.c - what the drop-in costs above the library: host time of a call of one rank, in turn
 * with the library's own call of the same thing, and making communicators of thread ranks. One
 * thread measures. */
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

int main(void) {
    setenv("SYMM_BACKEND", "host", 0);
    calibrate();
    calls();
    creations();
    return 0;
}
