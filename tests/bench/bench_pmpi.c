/* bench_pmpi.c - each MPI call that libsymm-pmpi.so takes, beside MPI's own, in turns on the same
 * buffers, which are in no window. Under mpirun; rank 0 prints. Arguments: the largest buffer
 * in bytes (default 16777216), which has the parts of all ranks where a call has parts; the first
 * size (default 8). */
#include <mpi.h>

#include "bench_pairs.h"

#define BOTH(name, call, ...) CASE(name, PMPI_##call(__VA_ARGS__), MPI_##call(__VA_ARGS__))
BOTH(barrier, Barrier, W)
BOTH(all_reduce, Allreduce, in, out, n, F, MPI_SUM, W)
BOTH(reduce, Reduce, in, out, n, F, MPI_SUM, 0, W)
BOTH(reduce_scatter, Reduce_scatter_block, in, out, n, F, MPI_SUM, W)
BOTH(all_gather, Allgather, in, n, F, out, n, F, W)
BOTH(all_gatherv, Allgatherv, in, n, F, out, counts, displs, F, W)
BOTH(all_to_all, Alltoall, in, n, F, out, n, F, W)
BOTH(all_to_allv, Alltoallv, in, counts, displs, F, out, counts, displs, F, W)
BOTH(broadcast, Bcast, in, n, F, 0, W)
BOTH(gather, Gather, in, n, F, out, n, F, 0, W)
BOTH(scatter, Scatter, in, n, F, out, n, F, 0, W)
BOTH(gatherv, Gatherv, in, n, F, out, counts, displs, F, 0, W)
BOTH(scatterv, Scatterv, in, counts, displs, F, out, n, F, 0, W)

static const bench_case cases[] = {
    {"MPI_Barrier", barrier_once, 0, NULL},
    {"MPI_Allreduce", all_reduce_once, 0, NULL},
    {"MPI_Reduce", reduce_once, 0, NULL},
    {"MPI_Reduce_scatter_block", reduce_scatter_once, 1, NULL},
    {"MPI_Allgather", all_gather_once, 1, NULL},
    {"MPI_Allgatherv", all_gatherv_once, 1, NULL},
    {"MPI_Alltoall", all_to_all_once, 1, NULL},
    {"MPI_Alltoallv", all_to_allv_once, 1, NULL},
    {"MPI_Bcast", broadcast_once, 0, NULL},
    {"MPI_Gather", gather_once, 1, NULL},
    {"MPI_Scatter", scatter_once, 1, NULL},
    {"MPI_Gatherv", gatherv_once, 1, NULL},
    {"MPI_Scatterv", scatterv_once, 1, NULL},
};

int main(int argc, char **argv) {
    const size_t most = argc > 1 ? strtoull(argv[1], NULL, 10) : 16u << 20,
                 least = argc > 2 ? strtoull(argv[2], NULL, 10) : 8;
    setenv("SYMM_PMPI_AFTER", "0", 0);
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(W, &my_rank);
    MPI_Comm_size(W, &ranks);
    if (ranks > PARTS) MPI_Abort(W, 2);
    tables(cases, (int)(sizeof cases / sizeof *cases), least, most);
    MPI_Finalize();
    return 0;
}
