/* bench_pmpi.c - each MPI call that libsymm-pmpi.so takes, beside MPI's own, in turns on the same
 * buffers, which are in no window: time over size, the ratio of the medians. Under mpirun; rank 0
 * prints. Arguments: the largest size in bytes (default 16777216). */
#include <mpi.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 11, PARTS = 64 };

static int my_rank, ranks, counts[PARTS], displs[PARTS];
static char *in, *out;

/* `bytes`: what a rank contributes, or has for one other rank. */
#define CASE(name, ours, ...)                                             \
    static void name##_once(size_t bytes, int mpis) {                     \
        const int n = (int)(bytes / sizeof(float));                       \
        for (int p = 0; p < ranks; p++) counts[p] = n, displs[p] = p * n; \
        (void)n;                                                          \
        if (mpis)                                                         \
            PMPI_##ours(__VA_ARGS__);                                     \
        else                                                              \
            MPI_##ours(__VA_ARGS__);                                      \
    }
#define W MPI_COMM_WORLD
#define F MPI_FLOAT
CASE(barrier, Barrier, W)
CASE(all_reduce, Allreduce, in, out, n, F, MPI_SUM, W)
CASE(reduce, Reduce, in, out, n, F, MPI_SUM, 0, W)
CASE(reduce_scatter, Reduce_scatter_block, in, out, n, F, MPI_SUM, W)
CASE(all_gather, Allgather, in, n, F, out, n, F, W)
CASE(all_gatherv, Allgatherv, in, n, F, out, counts, displs, F, W)
CASE(all_to_all, Alltoall, in, n, F, out, n, F, W)
CASE(all_to_allv, Alltoallv, in, counts, displs, F, out, counts, displs, F, W)
CASE(broadcast, Bcast, in, n, F, 0, W)
CASE(gather, Gather, in, n, F, out, n, F, 0, W)
CASE(scatter, Scatter, in, n, F, out, n, F, 0, W)

static const struct {
    const char *name;
    void (*once)(size_t bytes, int mpis);
    int parts; /* buffers have one for each rank */
} cases[] = {
    {"MPI_Barrier", barrier_once, 0},      {"MPI_Allreduce", all_reduce_once, 0},
    {"MPI_Reduce", reduce_once, 0},        {"MPI_Reduce_scatter_block", reduce_scatter_once, 1},
    {"MPI_Allgather", all_gather_once, 1}, {"MPI_Allgatherv", all_gatherv_once, 1},
    {"MPI_Alltoall", all_to_all_once, 1},  {"MPI_Alltoallv", all_to_allv_once, 1},
    {"MPI_Bcast", broadcast_once, 0},      {"MPI_Gather", gather_once, 1},
    {"MPI_Scatter", scatter_once, 1},
};
enum { CASES = sizeof cases / sizeof *cases };

static int by_value(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* us of a call, the slowest rank's: PMPI_Barrier before the calls, none between them. */
static double measure(int which, size_t bytes, int mpis, int calls) {
    double took, all;
    PMPI_Barrier(W);
    const double from = MPI_Wtime();
    for (int i = 0; i < calls; i++) cases[which].once(bytes, mpis);
    took = (MPI_Wtime() - from) * 1e6 / calls;
    PMPI_Allreduce(&took, &all, 1, MPI_DOUBLE, MPI_MAX, W);
    return all;
}

static void table(int which, size_t most) {
    if (my_rank == 0) printf("%s\n", cases[which].name);
    for (size_t bytes = 8; bytes <= most; bytes *= 8) {
        double ours[ROUNDS], mpis[ROUNDS];
        const int calls = bytes > 65536 ? (int)(16777216 / bytes) / 4 + 1 : 200;
        for (int i = 0; i < ROUNDS; i++) {
            ours[i] = measure(which, bytes, 0, calls);
            mpis[i] = measure(which, bytes, 1, calls);
        }
        qsort(ours, ROUNDS, sizeof *ours, by_value);
        qsort(mpis, ROUNDS, sizeof *mpis, by_value);
        if (my_rank == 0)
            printf("%12zu %12.2f us %12.2f us, MPI's own %8.2fx\n", bytes, ours[ROUNDS / 2],
                   mpis[ROUNDS / 2], mpis[ROUNDS / 2] / ours[ROUNDS / 2]);
        fflush(stdout);
        if (which == 0) break; /* a barrier has no size */
    }
}

int main(int argc, char **argv) {
    size_t most = argc > 1 ? strtoull(argv[1], NULL, 10) : 16u << 20;
    setenv("SYMM_PMPI_AFTER", "0", 0);
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(W, &my_rank);
    MPI_Comm_size(W, &ranks);
    if (ranks > PARTS) MPI_Abort(W, 2);
    const size_t room = most * (size_t)ranks;
    in = malloc(room), out = malloc(room);
    if (!in || !out) MPI_Abort(W, 1);
    memset(in, 0, room), memset(out, 0, room);
    for (int i = 0; i < CASES; i++) table(i, cases[i].parts ? most / (size_t)ranks : most);
    free(in), free(out);
    MPI_Finalize();
    return 0;
}
