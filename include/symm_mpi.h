/* symm_mpi.h - the only public header that needs mpi.h; lives in libsymm-mpi. That library is built
 * for one MPI, whose mpicc the build was told (make MPICC=...): a program of another MPI is refused
 * by name, and needs a build of its own. */
#ifndef SYMM_MPI_H_
#define SYMM_MPI_H_

#include <mpi.h>

#include "symm.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Creates a communicator over the ranks of mpicomm, an intracommunicator. config may be NULL; its
 * `blocking` is taken for 1. In a group it runs at once.
 * Any number of communicators may live over one mpicomm. The first call splits mpicomm into one
 * part, which has no attributes; the part is used again by later calls, and goes when mpicomm is
 * freed. Once this call has returned the communicator uses MPI no more: it may be used by any
 * thread, in any order with others, and after mpicomm is freed or MPI finalised.
 * If the ranks are on several hosts, the communicator spans several domains (symm_domains.h). What
 * is said of MPI here is then of one domain: this call also splits mpicomm four times, which waits
 * for all ranks without a deadline, and the communicator goes on to use MPI.
 * Requires: MPI is initialised and not finalised. Its calls are made by the calling thread: below
 * MPI_THREAD_SERIALIZED that is the thread that initialised MPI. If other threads use MPI at the
 * same time, MPI_THREAD_MULTIPLE is needed.
 * Order: collective. Among the collectives on mpicomm it is one nonblocking collective, the first
 * time two, more after a call that timed out, and MPI_Comm_split after them: as with MPI's, the
 * first call here meets the first call there, the second the second. Open MPI 4.1 makes
 * communicators one at a time: while MPI_Comm_idup of the program's is not complete on a rank, that
 * split may wait for it, without a deadline. Calls of several threads take turns.
 * Errors: symmTimeout: names a rank that never called before config->timeoutMs or
 * SYMM_SETUP_TIMEOUT was over. The ranks may call again, and succeed once it comes.
 * symmInvalidUsage: the program runs another MPI than the library was built for. */
SYMM_API symmResult_t symmCommInitMPI(symmComm_t *comm, MPI_Comm mpicomm,
                                      const symmConfig_t *config);

#ifdef __cplusplus
}
#endif
#endif
