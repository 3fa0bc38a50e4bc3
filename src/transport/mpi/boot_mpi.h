/* boot_mpi.h - the MPI bootstrap alone; users call symmCommInitMPI. Part of libsymm-mpi. */
#ifndef SYMM_BOOT_MPI_H_
#define SYMM_BOOT_MPI_H_

#include "transport/boot/boot.h"

/* mpicomm points to an MPI_Comm (a void pointer, so that this header does not need mpi.h). Returns
 * when all its ranks have come, or symmTimeout naming those that have not. [collective over the MPI
 * communicator] */
symmResult_t symm_boot_mpi_open(const void *mpicomm, const symm_wait *w, symm_boot **out);
/* The same by the deadline of config, or of SYMM_SETUP_TIMEOUT. *w: the wait with that deadline. */
symmResult_t symm_mpi_meet(const void *mpicomm, const symmConfig_t *config, symm_wait *w,
                           symm_boot **out);

/* Whether this thread may call MPI now. */
symmResult_t symm_mpi_check(void);
/* The same, and whether it is the MPI that this was built for, and mpicomm points to an
 * intracommunicator. */
symmResult_t symm_mpi_check_comm(const void *mpicomm);

#endif
