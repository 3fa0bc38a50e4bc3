/* symm_stream.h - streams, events and graphs of the host backend, for asynchronous and captured use
 * without a GPU. On GPUs use CUDA's. symm.h includes it.
 *
 * A stream is a worker thread: it runs its tasks one after the other, in the order in which they
 * were given. The NULL stream runs a call in the caller, and is ordered with no other stream.
 * Order: local, any thread, all of them.
 * Errors: symmInvalidUsage
 *  - of calls that wait, from a function that a stream or graph runs. It must not wait for streams,
 *    events or graphs; it may give more work.
 *  - of symmStreamDestroy, symmStreamSynchronize and symmStreamQuery, while the stream is captured.
 */
#ifndef SYMM_STREAM_PUBLIC_H_
#define SYMM_STREAM_PUBLIC_H_

#include "symm.h"

#ifdef __cplusplus
extern "C" {
#endif

SYMM_API symmResult_t symmStreamCreate(symmStream_t *stream);
/* Waits for the stream's work, then ends it. */
SYMM_API symmResult_t symmStreamDestroy(symmStream_t stream);
/* Waits for the stream's work. Returns the first error of it since the last call. */
SYMM_API symmResult_t symmStreamSynchronize(symmStream_t stream);
/* symmInProgress while work is queued. */
SYMM_API symmResult_t symmStreamQuery(symmStream_t stream);
/* What the stream is given from now on runs after the work that the event was recorded behind. */
SYMM_API symmResult_t symmStreamWaitEvent(symmStream_t stream, symmEvent_t event);
/* Runs fn(arg) in the stream. */
SYMM_API symmResult_t symmStreamHostFunc(symmStream_t stream, void (*fn)(void *), void *arg);
SYMM_API symmResult_t symmEventCreate(symmEvent_t *event);
SYMM_API symmResult_t symmEventDestroy(symmEvent_t event);
/* The event now stands for what the stream has been given so far. */
SYMM_API symmResult_t symmEventRecord(symmEvent_t event, symmStream_t stream);
/* Waits for the work that the event stands for. */
SYMM_API symmResult_t symmEventSynchronize(symmEvent_t event);
/* symmInProgress while that work has not ended. */
SYMM_API symmResult_t symmEventQuery(symmEvent_t event);

/* Between Begin and End calls given to the stream are recorded, not run. Another stream joins by
 * waiting for an event recorded inside, and must be waited for in turn before End. Windows that
 * captured calls use stay mapped until the graph and its executables are destroyed.
 * Requires: the memory behind captured pointers is not freed before that.
 * Errors: symmInvalidUsage: the NULL stream; End on another stream than Begin; End while work of
 * another stream is not joined, which discards the capture. */
SYMM_API symmResult_t symmStreamBeginCapture(symmStream_t stream);
SYMM_API symmResult_t symmStreamEndCapture(symmStream_t stream, symmGraph_t *graph);
/* Makes an executable of the graph. There may be any number; the graph may be destroyed before
 * them. Replays of one graph run one after the other, whichever of its executables is launched. */
SYMM_API symmResult_t symmGraphInstantiate(symmGraph_t graph, symmGraphExec_t *exec);
/* Replays the graph's calls in their order, in the stream. A captured stream records them. */
SYMM_API symmResult_t symmGraphLaunch(symmGraphExec_t exec, symmStream_t stream);
/* Waits for replays that were launched before, then ends the executable. */
SYMM_API symmResult_t symmGraphExecDestroy(symmGraphExec_t exec);
/* Ends the graph; its executables live on. It waits for nothing, but is refused where calls that
 * wait are. */
SYMM_API symmResult_t symmGraphDestroy(symmGraph_t graph);

#ifdef __cplusplus
}
#endif
#endif
