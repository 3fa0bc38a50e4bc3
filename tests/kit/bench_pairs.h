/* bench_pairs.h - calls beside MPI's own, in turns on the same buffers: time over size, the ratio
 * of the medians. Under mpirun; rank 0 prints. One thread a process; no lock. */
#ifndef BENCH_PAIRS_H_
#define BENCH_PAIRS_H_

#include <mpi.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 11, PARTS = 64 };

static int my_rank, ranks, counts[PARTS], displs[PARTS];
static char *in, *out;

/* `bytes`: what a rank contributes, or has for one other rank. mpis: the call is MPI's own. */
typedef struct {
    const char *name;
    void (*once)(size_t bytes, int mpis);
    int parts;         /* buffers have one for each rank */
    const char *other; /* what the call is beside; NULL: MPI's own */
} bench_case;

#define W MPI_COMM_WORLD
#define F MPI_FLOAT
/* n: how many floats, of which counts[] and displs[] are set. */
#define CASE(name, mpis_call, our_call)                                   \
    static void name##_once(size_t bytes, int mpis) {                     \
        const int n = (int)(bytes / sizeof(float));                       \
        for (int p = 0; p < ranks; p++) counts[p] = n, displs[p] = p * n; \
        (void)n;                                                          \
        if (mpis)                                                         \
            mpis_call;                                                    \
        else                                                              \
            our_call;                                                     \
    }

static int by_value(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* us of a call, the slowest rank's: PMPI_Barrier before the calls, none between them. */
static double measure(const bench_case *c, size_t bytes, int mpis, int calls) {
    double took, all;
    PMPI_Barrier(W);
    const double from = MPI_Wtime();
    for (int i = 0; i < calls; i++) c->once(bytes, mpis);
    took = (MPI_Wtime() - from) * 1e6 / calls;
    PMPI_Allreduce(&took, &all, 1, MPI_DOUBLE, MPI_MAX, W);
    return all;
}

static void table(const bench_case *c, size_t least, size_t most, int sized) {
    if (my_rank == 0) printf("%s\n", c->name);
    for (size_t bytes = least; bytes <= most; bytes *= 8) {
        double ours[ROUNDS], mpis[ROUNDS];
        const int calls = bytes > 65536 ? (int)(16777216 / bytes) / 4 + 1 : 200;
        for (int i = 0; i < ROUNDS; i++) {
            ours[i] = measure(c, bytes, 0, calls);
            mpis[i] = measure(c, bytes, 1, calls);
        }
        qsort(ours, ROUNDS, sizeof *ours, by_value);
        qsort(mpis, ROUNDS, sizeof *mpis, by_value);
        if (my_rank == 0)
            printf("%12zu %12.2f us %12.2f us, %s %8.2fx\n", bytes, ours[ROUNDS / 2],
                   mpis[ROUNDS / 2], c->other ? c->other : "MPI's own",
                   mpis[ROUNDS / 2] / ours[ROUNDS / 2]);
        fflush(stdout);
        if (!sized) break;
    }
}

/* The first case has no size. least: the first size; most: the largest, in bytes, of a whole
 * buffer. */
static void tables(const bench_case *cases, int n, size_t least, size_t most) {
    const size_t room = most * (size_t)ranks;
    in = malloc(room), out = malloc(room);
    if (!in || !out) MPI_Abort(W, 1);
    memset(in, 0, room), memset(out, 0, room);
    for (int i = 0; i < n; i++)
        table(&cases[i], least, cases[i].parts ? most / (size_t)ranks : most, i > 0);
    free(in), free(out);
}

#endif
