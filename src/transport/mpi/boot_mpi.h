/* boot_mpi.h - the MPI bootstrap alone, for tests; users call symmCommInitMPI. Part of libsymm-mpi.
 * */
#ifndef SYMM_BOOT_MPI_H_
#define SYMM_BOOT_MPI_H_

#include "transport/boot/boot.h"

/* mpicomm points to an MPI_Comm (a void pointer, so that this header does not need mpi.h). Returns
 * when all its ranks have come, or symmTimeout naming those that have not. [collective over the MPI
 * communicator] */
symmResult_t symm_boot_mpi_open(const void *mpicomm, const symm_wait *w, symm_boot **out);

#endif
