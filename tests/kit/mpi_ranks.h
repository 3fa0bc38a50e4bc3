/* mpi_ranks.h - tests with ranks as processes under mpirun: which rank this is, and a seed that all
 * ranks share. One thread a process; no lock. */
#ifndef MPI_RANKS_H_
#define MPI_RANKS_H_

#include <mpi.h>

#include "coll_data.h"

static int rank, ranks;

/* Rank 0's, which prints it. Settles rank and ranks. [collective] */
static inline uint64_t same_seed(void) {
    uint64_t seed = ck_seed();
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Bcast(&seed, 1, MPI_UINT64_T, 0, MPI_COMM_WORLD);
    if (rank == 0) printf("# T_SEED=%#llx\n", (unsigned long long)seed);
    return seed;
}

#endif
