/* symm_p2p.h - point-to-point: messages between two ranks. symm.h includes it.
 *
 * The n-th symmSend of a rank to a peer goes to the n-th symmRecv that the peer makes from that
 * rank. There are no tags. Count and type must be equal. A count of 0 is a message too. A rank may
 * send to itself. Any alignment, registered or not, eager or captured.
 *  - The calls of a communicator run in the order in which they are made, as collectives do. A rank
 *    that calls neither takes no part.
 *  - Without a group symmRecv ends when the message is there. symmSend ends when sendbuff may be
 *    used again. It may wait for its receive, but not if what the receiver has not received yet
 *    fits the room that a pair of ranks has (less if SYMM_SCRATCH is small).
 *      - Host: 1 MiB up to 8 ranks, 64 KiB with more; at most 64 messages, of which 8 may be larger
 *        than 8 KiB. A message counts as its bytes, rounded up to a multiple of 64. It lies in one
 *        piece: if it does not fit between the last one and the end of the room, what is left there
 *        counts too.
 *      - GPUs: 1 MiB up to 4 ranks, 512 KiB up to 8, 64 KiB up to 64, 32 KiB with more. A message
 *        counts as its bytes and 16, rounded up to a multiple of 480; several may be 1.4 times the
 *        room together.
 *  - The sends and receives of a group run together, behind the collectives of their communicator
 *    in it. They end whatever the order in which the ranks have written them down. GPUs: at most
 *    4,096 of a communicator in a group.
 * Requires: buffers of calls that run together overlap only where none is written.
 * Order: the caller's and its peer's. GPUs: as of collectives, on the stream.
 * Errors: symmMismatch, on both ranks, where count or type differ: nothing is written outside
 * recvbuff. symmTimeout where SYMM_TIMEOUT is set. symmInvalidUsage for a message to the own rank
 * whose other call can never come, being behind it. After any of them the communicator is
 * revoked. GPUs: they come by symmCommGetAsyncError. */
#ifndef SYMM_P2P_PUBLIC_H_
#define SYMM_P2P_PUBLIC_H_

#include "symm.h"

#ifdef __cplusplus
extern "C" {
#endif

SYMM_API symmResult_t symmSend(const void *sendbuff, size_t count, symmDataType_t datatype,
                               int peer, symmComm_t comm, symmStream_t stream);
SYMM_API symmResult_t symmRecv(void *recvbuff, size_t count, symmDataType_t datatype, int peer,
                               symmComm_t comm, symmStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
