/* moe_dispatch.c - a layer of a mixture of experts, one expert per rank. A router picks an expert
 * for each token; symmAlltoAllv brings the tokens to their experts (dispatch) and the results back
 * (combine). The same with MPI_Alltoallv, on the same buffers, and the times of both.
 * Runs in: one thread per process, under mpirun. */
#include <stdio.h>
#include <stdlib.h>

#include "symm_mpi.h"

enum { TOKENS = 2048, HIDDEN = 256, ROUNDS = 30, MOST_RANKS = 72 };

static int rank, ranks;
static symmComm_t comm;

static void ok(symmResult_t r) {
    if (r == symmSuccess) return;
    fprintf(stderr, "%s (%d): %s\n", symmGetErrorString(r), r, symmGetLastError(NULL));
    MPI_Abort(MPI_COMM_WORLD, r);
}

/* Memory that peers read in place. */
static float *floats(size_t n, symmWindow_t *win) {
    float *p;
    ok(symmMemAlloc((void **)&p, n * sizeof *p));
    ok(symmWindowRegister(comm, p, n * sizeof *p, win, SYMM_WIN_DEFAULT));
    return p;
}

/* The router: half of the tokens go to one of two experts that everybody likes. */
static int expert_of(int from, int token) {
    unsigned h = (unsigned)(from * TOKENS + token) * 2654435761u >> 8;
    return h & 1 ? (int)(h >> 1) % (ranks < 2 ? ranks : 2) : (int)(h >> 1) % ranks;
}
static float value_of(int from, int token, int i) {
    return (float)(from + 1) + (float)((token * 31 + i) % 97);
}

/* What is sent to each expert and comes from each rank, in floats: two arrays for symm, and MPI's.
 * A rank learns what comes by an exchange of the counts. */
typedef struct {
    size_t to[MOST_RANKS], from[MOST_RANKS];
    int ito[MOST_RANKS], ifrom[MOST_RANKS], iat[MOST_RANKS], ifrom_at[MOST_RANKS];
    size_t incoming;
} routes;

static void route(routes *r) {
    int at = 0, from_at = 0;
    for (int p = 0; p < ranks; p++) r->to[p] = 0;
    for (int t = 0; t < TOKENS; t++) r->to[expert_of(rank, t)] += HIDDEN;
    ok(symmAlltoAll(r->to, r->from, 1, symmUint64, comm, NULL));
    r->incoming = 0;
    for (int p = 0; p < ranks; p++) {
        r->ito[p] = (int)r->to[p], r->ifrom[p] = (int)r->from[p];
        r->iat[p] = at, r->ifrom_at[p] = from_at;
        at += r->ito[p], from_at += r->ifrom[p];
        r->incoming += r->from[p];
    }
}

/* Tokens lie by expert, in the order of the tokens. */
static void pack(float *tokens) {
    for (int expert = 0; expert < ranks; expert++)
        for (int t = 0; t < TOKENS; t++)
            for (int i = 0; expert_of(rank, t) == expert && i < HIDDEN; i++)
                *tokens++ = value_of(rank, t, i);
}
static long count_wrong(const float *results) {
    long wrong = 0;
    for (int expert = 0; expert < ranks; expert++)
        for (int t = 0; t < TOKENS; t++)
            for (int i = 0; expert_of(rank, t) == expert && i < HIDDEN; i++)
                wrong += *results++ != value_of(rank, t, i) * (float)(expert + 2);
    return wrong;
}

/* This rank's expert. */
static void compute(float *tokens, size_t n) {
    for (size_t i = 0; i < n; i++) tokens[i] *= (float)(rank + 2);
}

typedef struct {
    float *tokens, *inbox, *results;
} buffers;

static double with_symm(const routes *r, const buffers *b) {
    double start = MPI_Wtime();
    ok(symmAlltoAllv(b->tokens, r->to, NULL, b->inbox, r->from, NULL, symmFloat, comm, NULL));
    double spent = MPI_Wtime() - start;
    compute(b->inbox, r->incoming);
    start = MPI_Wtime();
    ok(symmAlltoAllv(b->inbox, r->from, NULL, b->results, r->to, NULL, symmFloat, comm, NULL));
    return spent + MPI_Wtime() - start;
}

static double with_mpi(const routes *r, const buffers *b) {
    double start = MPI_Wtime();
    MPI_Alltoallv(b->tokens, r->ito, r->iat, MPI_FLOAT, b->inbox, r->ifrom, r->ifrom_at, MPI_FLOAT,
                  MPI_COMM_WORLD);
    double spent = MPI_Wtime() - start;
    compute(b->inbox, r->incoming);
    start = MPI_Wtime();
    MPI_Alltoallv(b->inbox, r->ifrom, r->ifrom_at, MPI_FLOAT, b->results, r->ito, r->iat, MPI_FLOAT,
                  MPI_COMM_WORLD);
    return spent + MPI_Wtime() - start;
}

/* The best round, by its slowest rank, in us. */
static double best_of(double (*layer)(const routes *r, const buffers *b), const routes *r,
                      const buffers *b, long *wrong) {
    double best = 0;
    for (int round = 0; round < ROUNDS; round++) {
        double mine, slowest;
        MPI_Barrier(MPI_COMM_WORLD);
        mine = layer(r, b);
        *wrong += count_wrong(b->results);
        MPI_Allreduce(&mine, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
        if (round == 0 || slowest < best) best = slowest;
    }
    return best * 1e6;
}

int main(int argc, char **argv) {
    static routes r;
    buffers b;
    symmWindow_t win[3];
    long mine = 0, wrong = 0;
    int gpu;
    setenv("SYMM_BACKEND", "host", 0); /* the CPU computes */
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    ok(symmCommInitMPI(&comm, MPI_COMM_WORLD, NULL));
    ok(symmCommDevice(comm, &gpu)); /* -1: none */
    if (gpu >= 0)
        printf("tokens are on a GPU, where the CPU cannot fill them\n"), ok(symmInvalidUsage);
    route(&r);
    b.tokens = floats((size_t)TOKENS * HIDDEN, &win[0]);
    b.inbox = floats(r.incoming + 1, &win[1]); /* no token may be for this expert */
    b.results = floats((size_t)TOKENS * HIDDEN, &win[2]);
    pack(b.tokens);
    const double ours = best_of(with_symm, &r, &b, &mine), mpi = best_of(with_mpi, &r, &b, &mine);
    MPI_Reduce(&mine, &wrong, 1, MPI_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0)
        printf("%d experts, %d tokens of %d floats on each rank: %ld wrong\n"
               "dispatch and combine: %.1f us, with MPI_Alltoallv %.1f us: %.2fx\n",
               ranks, TOKENS, HIDDEN, wrong, ours, mpi, mpi / ours);
    for (int i = 0; i < 3; i++) ok(symmWindowDeregister(comm, win[i]));
    ok(symmMemFree(b.tokens));
    ok(symmMemFree(b.inbox));
    ok(symmMemFree(b.results));
    ok(symmCommDestroy(comm));
    MPI_Finalize();
    return wrong != 0;
}
