/* mpi_across.h - communicators over several domains for tests under mpirun: SYMM_DOMAIN_SIZE cuts
 * this machine into domains. */
#ifndef MPI_ACROSS_H_
#define MPI_ACROSS_H_

#include <stdio.h>

#include "mpi_ranks.h"
#include "symm_domains.h"
#include "symm_mpi.h"

/* Domains of so many ranks each; 0: each host is one. */
static inline symmComm_t new_comm_of(MPI_Comm mpicomm, int size) {
    char text[16];
    symmComm_t comm;
    snprintf(text, sizeof text, "%d", size);
    setenv("SYMM_DOMAIN_SIZE", text, 1);
    T_OK(symmCommInitMPI(&comm, mpicomm, NULL));
    unsetenv("SYMM_DOMAIN_SIZE");
    return comm;
}
static inline symmComm_t new_comm(int size) {
    return new_comm_of(MPI_COMM_WORLD, size);
}

/* Sizes of domains, one after the other: 1 to 3, or with T_HOSTS=1, on several hosts, none. */
static inline int next_size(int size) {
    const int hosts = getenv("T_HOSTS") != NULL;
    if (size < 0) return hosts ? 0 : 1;
    return hosts || size == 3 ? -1 : size + 1;
}
#define EACH_SIZE(size)       \
    int size = next_size(-1); \
    size >= 0;                \
    size = next_size(size)

/* What main does: the tests, between MPI's begin at this level and its end. */
static inline int run_tests(int argc, char **argv, int wanted, int *got, const t_test *tests,
                            int n) {
    int here;
    if (MPI_Init_thread(&argc, &argv, wanted, got) != MPI_SUCCESS) return 1;
    MPI_Comm_rank(MPI_COMM_WORLD, &here);
    const int rc = t_inline(argc, argv, tests, n, here);
    MPI_Finalize();
    return rc == 77 ? 0 : rc;
}

#endif
