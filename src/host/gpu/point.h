/* point.h - points behind streams (symm_mark), once for both backends: a mark stands for all work
 * that a stream was given before. On the host backend it is a symm_order, on GPUs an event. The
 * thread that owns the mark. */
#ifndef SYMM_POINT_H_
#define SYMM_POINT_H_

#include "host/comm/types.h"
#include "transport/cuda/cuda_driver.h"

/* The mark stands for all that the stream has been given so far. If the stream is gone, this waits
 * for all work of the context, as nobody knows where the stream's work is. */
symmResult_t symm_mark_set(const symm_comm *c, symm_mark *m, symmStream_t stream);
/* What the stream is given from now on comes after the mark. */
symmResult_t symm_mark_follow(const symm_comm *c, const symm_mark *m, symmStream_t stream);
/* The caller waits for the mark. A capture of the caller's does not forbid it. */
symmResult_t symm_mark_reach(const symm_comm *c, const symm_mark *m);
/* 1 if the mark is reached. Never waits. soon: within so many ms, for which the caller waits. */
int symm_mark_reached(const symm_comm *c, const symm_mark *m);
int symm_mark_soon(const symm_comm *c, const symm_mark *m, int ms);
/* Frees the event. The mark is all zero then. */
void symm_mark_end(const symm_comm *c, symm_mark *m);

/* GPUs, in the context of the stream, for who tells errors apart. In a capture the mark is a place
 * in the graph, and following it adds an edge. make: the event, so that record needs no memory. */
cu_result symm_mark_make(symm_mark *m);
cu_result symm_mark_record(symm_mark *m, symmStream_t stream);
cu_result symm_mark_await(const symm_mark *m, symmStream_t stream);

#endif
