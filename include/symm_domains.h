/* symm_domains.h - communicators over several domains. A domain is the ranks that can map each
 * other's memory: those of one host, or of the hosts of one NVLink fabric. symmCommInitMPI makes
 * such a communicator where the ranks of mpicomm are on other hosts. Inside a domain it runs the
 * kernels of an ordinary communicator; between domains the mover carries messages: MPI on the host
 * backend, NCCL on GPUs.
 *
 * It serves, in groups and outside of them:
 * - collectives, and reductions of symmRedOpCreatePreMulSum;
 * - symmSend and symmRecv. On the host backend a send of up to 3,968 bytes to a rank of another
 *   domain ends without its receive, while at most 64 of them are under way there; others wait for
 *   theirs. What MPI has kept of it moves while this rank is in calls over domains, or of MPI;
 * - symmCommSplit and symmCommShrink. They make the new communicator in the call, whatever config
 *   says of blocking; over one domain it is an ordinary one. Shrink takes no SYMM_SHRINK_FAILED.
 *   The list must be the same on all ranks that stay, or these wait for each other;
 * - symmWindowRegister and symmWindowDeregister. Each domain has a window of its own:
 *   symmWindowPeerPtr is symmNotSupported for ranks of other domains, and symmWindowQuery tells of
 *   this domain;
 * - what asks for or ends a communicator: symmCommCount, symmCommUserRank, symmCommDevice,
 *   symmCommQuery, symmCommGetAsyncError, symmCommFinalize, symmCommDestroy, symmCommRevoke,
 *   symmCommAbort.
 * All other calls are symmNotSupported: they serve one domain, whose communicator symmCommDomain
 * gives. Buffers in windows of either are found by the collectives of both.
 *
 * On GPUs:
 * - All ranks have a GPU of their own, as NCCL demands, and the same version of NCCL, which is
 *   looked for at creation (SYMM_NCCL_LIB names one).
 * - Calls go to any stream and may be captured. They are given to the stream and wait for nothing
 *   but NCCL's connections, which it makes at the first message between two ranks. Those of one
 *   communicator run in the order of the calls, on whatever streams they are. Graphs with such
 *   calls may outlive it, and must not be launched any more. A call is captured on all ranks or on
 *   none.
 * - The per-thread stream of CUDA is refused: NCCL would take it for another thread's.
 * - symmCommFinalize and symmCommDestroy wait for the calls before, and for all graphs of the GPU
 *   if a call was captured. If another domain says meanwhile that the communicator is over, these
 *   end, and Finalize returns that error.
 * - What has gone wrong in another domain or in NCCL is looked for by symmCommGetAsyncError and by
 *   calls. Nothing else ends a kernel of NCCL's that waits: SYMM_TIMEOUT is no deadline for it. And
 *   NCCL does not tell calls apart: where domains make different ones, it waits, or data goes where
 *   it does not belong. Ranks of one domain are told.
 * - Captured messages pass through memory of the communicator's, unless NCCL_GRAPH_REGISTER=0 is
 *   set for all ranks: NCCL would register callers' memory, and hang where kinds of memory differ.
 * - MPI is used by creation, registration, split and shrink. Calls, symmCommGetAsyncError and what
 *   ends a communicator look for words of others by it, where the thread may be in MPI: the rule
 *   for MPI_THREAD_SERIALIZED below is for these, too. Below that level a failure that another
 *   thread meets is told to other domains by the next of these in the thread that initialised MPI.
 *
 * On the host backend MPI carries the messages. It is entered by the thread inside a call alone:
 * - Below MPI_THREAD_SERIALIZED that must be the thread that initialised MPI. With
 *   MPI_THREAD_SERIALIZED the program sees to it that no two threads are in MPI or in calls of such
 *   communicators at once.
 * - A stream other than NULL needs MPI_THREAD_MULTIPLE, else it is symmNotSupported: its worker
 *   makes the call, in the order of the calls on whatever streams they are, and enters MPI. The
 *   call waits for nothing. It may be captured, on all ranks or on none. A graph with such calls
 *   may outlive the communicator, and is refused then at its launch. Who launches it orders it with
 *   other calls.
 * - While a worker makes a call, these wait for it: symmRedOpCreatePreMulSum, symmRedOpDestroy, a
 *   call with such a reduction, symmWindowDeregister, and calls of symmCommDomain's communicator.
 *   A worker waits for no other stream: until its call has ended, what that communicator has been
 *   given on streams must have ended. Else the call is symmInvalidUsage, and the end for all.
 *
 * On both backends:
 * - On the host backend's NULL stream and on GPUs the calls run in the thread that makes them, or
 *   that ends the group. So a group may have such calls of one communicator over several domains,
 *   not of two, and then none on a per-thread stream of CUDA.
 * - MPI must not be finalised before the communicator is destroyed.
 * - Other domains hear of symmCommRevoke and symmCommAbort at once if the calling thread may enter
 *   MPI and no other one is in a call; else from that call, or the next one here.
 * - After an error MPI may still write into buffers of the call that failed, until it is finalised.
 * In texts of errors that come from inside a domain, ranks are places. */
#ifndef SYMM_DOMAINS_H_
#define SYMM_DOMAINS_H_

#include "symm.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
    size_t size;
    int domains, domain; /* how many; this rank's. They are numbered by their lowest ranks */
    int ranks, place;    /* ranks of this rank's domain; this rank's number among them */
    char mover[16];      /* what carries messages between domains; empty with one domain */
    int hosts;           /* that those ranks are on; more than one in an NVLink fabric over hosts */
} symmDomainInfo_t;

/* What is known of a communicator's domains; of any communicator.
 * Requires: info->size is sizeof(symmDomainInfo_t).
 * Order: local, any thread. */
SYMM_API symmResult_t symmDomainQuery(symmComm_t comm, symmDomainInfo_t *info);
/* *domain: of that rank; *place: its number among the ranks of its domain. Either may be NULL.
 * Order: local, any thread. */
SYMM_API symmResult_t symmDomainOf(symmComm_t comm, int rank, int *domain, int *place);
/* *inside: the communicator of this rank's domain, whose ranks are the places; comm itself where
 * there is one domain. It belongs to comm and ends with it.
 * Requires: it is neither destroyed nor aborted by itself. Its calls come in the same order with
 * those of comm on all ranks of the domain, messages too, as if they were of one communicator.
 * Order: local, any thread. */
SYMM_API symmResult_t symmCommDomain(symmComm_t comm, symmComm_t *inside);

#ifdef __cplusplus
}
#endif
#endif
