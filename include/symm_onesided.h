/* symm_onesided.h - one-sided calls: a rank stores into the window of a peer, or loads from it, and
 * the peer makes no call for that. Signals tell a rank that something has come. symm.h includes it.
 * Both backends.
 *
 * A window names the peer's memory: byte `offset` of that rank's part. Any size and alignment; the
 * own buffer may be registered or not. A rank may be its own peer. Calls are given to a stream,
 * captured and replayed as collectives are, and the calls of a communicator run in the order in
 * which they are made. In a group they keep that order among its collectives, before its sends and
 * receives.
 *
 * Signals. Each ordered pair of ranks has SYMM_SIGNALS of them, by number. A signal is a count: how
 * often the peer has raised it, less what symmWaitSignal and symmSignalReset have used up here.
 * None is lost if nobody waits yet.
 *
 *  call             has ended when                   orders
 *  symmPut          sendbuff may be used again       nothing by itself
 *  symmGet          recvbuff has the data            loads what is there: all of which this rank
 *                                                    has learned by a wait or a barrier
 *  symmSignal       it is raised                     who waits for it sees all that this rank put
 *                                                    to the same peer before, and all that this
 *                                                    rank itself had learned of by then
 *  symmPutSignal    as symmPut                       as a symmPut, then a symmSignal
 *  symmWaitSignal   all the signals have come        see symmSignal; later calls of this rank, and
 *                                                    its own loads behind the call, see the data
 *  symmFence        what was put before is there     later signals to any peer, messages and the
 *                                                    program's own flags: who sees these sees what
 *                                                    this rank has put to anybody before
 *  symmBarrier      (symm.h)                         all ranks see what any rank has put before
 *
 * Without one of these a target may see a put in part, or not yet. A rank that puts into memory
 * which the peer may still read, or which another rank puts into, needs a signal back first.
 *
 * Requires: the peer has the window, and the memory in it, for as long as others put or get. What
 * is put or raised to a rank that has left the communicator goes nowhere, and is no error; on GPUs
 * a put that was given to its stream, or captured, before is stored.
 * Order: the caller's alone, but for symmWaitSignal: the peer raises the signal.
 * Errors: symmInvalidArgument: a peer, signal, type or window that is none, a window of another
 * communicator, bytes outside the peer's part of the window, on GPUs an own buffer that kernels
 * cannot reach. They are local, and the communicator stays. */
#ifndef SYMM_ONESIDED_H_
#define SYMM_ONESIDED_H_

#include "symm.h"

#ifdef __cplusplus
extern "C" {
#endif

#define SYMM_SIGNALS 64 /* signals of an ordered pair of ranks: 0 to 63 */

/* Stores count elements of sendbuff at byte `offset` of the peer's part of win.
 * Requires: sendbuff and the destination do not overlap, unless they are equal. */
SYMM_API symmResult_t symmPut(const void *sendbuff, size_t count, symmDataType_t datatype, int peer,
                              symmWindow_t win, size_t offset, symmComm_t comm,
                              symmStream_t stream);
/* Loads count elements from byte `offset` of the peer's part of win into recvbuff. */
SYMM_API symmResult_t symmGet(void *recvbuff, size_t count, symmDataType_t datatype, int peer,
                              symmWindow_t win, size_t offset, symmComm_t comm,
                              symmStream_t stream);
/* As symmPut, then symmSignal of that number to the same peer. */
SYMM_API symmResult_t symmPutSignal(const void *sendbuff, size_t count, symmDataType_t datatype,
                                    int peer, symmWindow_t win, size_t offset, int signal,
                                    symmComm_t comm, symmStream_t stream);
/* Raises a signal at the peer, by one. */
SYMM_API symmResult_t symmSignal(int peer, int signal, symmComm_t comm, symmStream_t stream);

typedef struct {
    int peer;     /* who raises it */
    int signal;   /* its number */
    size_t count; /* how many are waited for, and used up; may be 0 */
} symmSignalWait_t;
/* Waits until all n of them have come. Two of the same peer and signal add up. The list is copied.
 * Errors, of the wait: symmRemoteError: the peer died, or has left for a second; symmTimeout where
 * SYMM_TIMEOUT is set, naming peer, signal and how many have come; symmInvalidUsage for a signal of
 * the own rank that no earlier call has raised. After any of them the communicator is revoked. */
SYMM_API symmResult_t symmWaitSignal(int n, const symmSignalWait_t *waits, symmComm_t comm,
                                     symmStream_t stream);
/* *count: signals of the peer that have come and that nothing has used up; what the peer put before
 * them is seen. It takes no part in the order of the streams; on GPUs it is two small copies, also
 * while a kernel waits. Order: local, any thread. */
SYMM_API symmResult_t symmSignalRead(int peer, int signal, symmComm_t comm, uint64_t *count);
/* Uses up what has come when the call runs, without waiting. What comes later counts from 0.
 * Order: local, as of symmPut. */
SYMM_API symmResult_t symmSignalReset(int peer, int signal, symmComm_t comm, symmStream_t stream);

/* Ends when all that this rank has put by earlier calls is at its targets, and has all that comes
 * later behind it (see the table). */
SYMM_API symmResult_t symmFence(symmComm_t comm, symmStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
