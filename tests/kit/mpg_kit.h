/* mpg_kit.h - what programs with a process per rank on GPUs share (mpg_*.c, under mpirun): who this
 * rank is, on GPU rank % devices, and its communicator. The seed is rank 0's. */
#ifndef MPG_KIT_H_
#define MPG_KIT_H_

#include <mpi.h>

#include "gpu_kit.h"
#include "symm_mpi.h"

typedef struct {
    int rank, n, devices;
    uint64_t seed;
} mpg_rank;

static inline void mpg_meet(void *arg) {
    (void)arg;
    MPI_Barrier(MPI_COMM_WORLD);
}

/* A skip on every rank where one has no GPU. */
static inline mpg_rank mpg_self(void) {
    const char *why;
    mpg_rank g = {.seed = ck_seed()};
    int none, any;
    MPI_Comm_rank(MPI_COMM_WORLD, &g.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &g.n);
    MPI_Bcast(&g.seed, 1, MPI_UINT64_T, 0, MPI_COMM_WORLD);
    g.devices = gk_find(&why);
    none = *why != 0;
    MPI_Allreduce(&none, &any, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    if (any) T_SKIP("needs cuda: %s", *why ? why : "another rank has none");
    return g;
}

static inline symmComm_t mpg_comm(const mpg_rank *g) {
    symmComm_t comm;
    T_OK(symmSetDevice(g->rank % g->devices));
    T_OK(symmCommInitMPI(&comm, MPI_COMM_WORLD, NULL));
    return comm;
}

#endif
