/* hold.h - what graphs use stays until they are gone: windows, communicators, memory plans, synced
 * buffers. One call for both backends. Any thread that may call CUDA, except where said. */
#ifndef SYMM_HOLD_H_
#define SYMM_HOLD_H_

#include "host/comm/types.h"
#include "transport/cuda/cuda_driver.h"

typedef struct symm_kept symm_kept; /* hold.c */

/* GPUs: what calls on a stream are recorded in; graph NULL: nothing, id 0. */
typedef struct {
    cu_graph graph;
    uint64_t id;
} symm_gpu_capture;

/* The graph that is recorded holds obj: of it user->retain is called now, and user->release when
 * the graph is gone or if this call fails. Host backend: the graph is the one that `stream` is
 * recorded into (symm_stream_capture_hold, which also calls the other functions of `user`). GPUs:
 * the graph is in->graph; release is called by symm_gpu_reap, or at once with user->at_once. A GPU
 * graph that holds something is launched at a lower rate. If the communicator pins (symm_gpu_pins),
 * it holds obj instead of the graph, once, until symm_gpu_unpin. */
symmResult_t symm_graph_hold(symm_comm *c, const symm_gpu_capture *in, symmStream_t stream,
                             void *obj, const symm_graph_user *user);

/* ---- GPUs only ------------------------------------------------------------------------------- */

/* 1: the communicator, and not the graph, holds what captured calls need (SYMM_GRAPH_HOLD). */
int symm_gpu_pins(const symm_comm *c);
/* The communicator lets go of what it holds: no graph with its calls is launched any more. */
void symm_gpu_unpin(symm_comm *c);
/* What a graph holds comes to the list, and executables that are made of the graph later hold
 * nothing. With an id: all that this capture has put into the graph; without (id 0): obj alone.
 * After an error (no memory) nothing has changed. */
symmResult_t symm_gpu_take(const symm_gpu_capture *in, const void *obj, symm_kept **list);
/* Releases what is in the list, which is empty then. */
void symm_gpu_let_go(symm_kept **list);
/* Releases what graphs that are gone have held: CUDA tells of their end in a thread that may not
 * call CUDA. */
void symm_gpu_reap(void);
/* From now on symm_gpu_reap calls this too. Once for the process. */
void symm_gpu_also_reap(void (*reap)(void));

#endif
