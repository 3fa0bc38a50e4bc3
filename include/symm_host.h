/* symm_host.h - what a program that lives with others in its process tells the library: which
 * backend it means, and what to do while a call of the host backend waits. */
#ifndef SYMM_HOST_H_
#define SYMM_HOST_H_

#include "symm.h"

#ifdef __cplusplus
extern "C" {
#endif

#define SYMM_BACKEND_AUTO 0 /* GPUs where there are any */
#define SYMM_BACKEND_HOST 1
#define SYMM_BACKEND_CUDA 2

/* Settles the backend of this process in place of SYMM_BACKEND, for what is made from now on. A
 * program with GPUs whose buffers here are in memory of the host takes SYMM_BACKEND_HOST.
 * Order: local, any thread. All ranks of a communicator need the same backend. */
SYMM_API symmResult_t symmSetBackend(int backend);

/* While a call of this thread on the NULL stream waits for a peer on the host backend, fn(arg) is
 * called again and again, some microseconds apart, from inside the call. A program whose peers also
 * need another library to make progress, as MPI does, calls that library there. fn NULL: no more.
 * fn must not call symm, and returns soon: the wait goes on behind it.
 * Order: local. It counts for the calling thread. */
SYMM_API symmResult_t symmSetProgress(void (*fn)(void *arg), void *arg);

#ifdef __cplusplus
}
#endif
#endif
