/* boot_mpi.h - the MPI bootstrap by itself, for tests; users come through symmCommInitMPI. In
 * libsymm-mpi. */
#ifndef SYMM_BOOT_MPI_H_
#define SYMM_BOOT_MPI_H_

#include "transport/boot/boot.h"

/* mpicomm points to an MPI_Comm (void keeps mpi.h out of here). Ends when all its ranks have come,
 * or with a symmTimeout that names those that have not. [collective over the MPI communicator] */
symmResult_t symm_boot_mpi_open(const void *mpicomm, const symm_wait *w, symm_boot **out);

#endif
