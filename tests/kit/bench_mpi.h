/* bench_mpi.h - what benchmarks of MPI ranks share: the ranks, an error that ends them all, an
 * order of times. One thread a process. */
#ifndef BENCH_MPI_H_
#define BENCH_MPI_H_

#include <mpi.h>

#include <stdio.h>
#include <stdlib.h>

#include "symm.h"

static int rank, nranks;

static inline void must(symmResult_t r, const char *what) {
    if (!r) return;
    fprintf(stderr, "rank %d: %s: %s\n", rank, what, symmGetLastError(NULL));
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static inline int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

#endif
