/* symm_mpi.h - the only public header that needs mpi.h; lives in libsymm-mpi. */
#ifndef SYMM_MPI_H_
#define SYMM_MPI_H_

#include <mpi.h>

#include "symm.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Creates a communicator over the ranks of mpicomm (an intracommunicator). config may be NULL; its
 * `blocking` is taken for 1. [collective]
 *  - MPI must be initialised and not yet finalised. It is used by nonblocking calls only, all of
 * them made by the calling thread: below MPI_THREAD_SERIALIZED that must be the thread that
 * initialised MPI; when other threads use MPI at the same time, MPI_THREAD_MULTIPLE is needed.
 *  - Any number of communicators may live over one mpicomm. Once this call has returned the
 * communicator uses MPI no more: it may be used by any thread, in any order with others, and when
 * mpicomm is freed or MPI finalised.
 *  - mpicomm is duplicated once and the duplicate used again by later calls; it goes when mpicomm
 * is freed. In the order of collectives on mpicomm this is one nonblocking collective, the first
 * time two. Calls of several threads take turns. As with MPI's collectives, the first call here
 * meets the first call there, the second the second.
 *  - It does not queue: between symmGroupStart and symmGroupEnd it runs at once, all the same.
 *  - A rank that never calls is named by the others when config->timeoutMs or SYMM_SETUP_TIMEOUT is
 * over: symmTimeout. They may call again, and succeed once it comes. */
SYMM_API symmResult_t symmCommInitMPI(symmComm_t *comm, MPI_Comm mpicomm,
                                      const symmConfig_t *config);

#ifdef __cplusplus
}
#endif
#endif
