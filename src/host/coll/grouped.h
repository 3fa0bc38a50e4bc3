/* grouped.h - collectives in a group: resolved when they are called, run at symmGroupEnd, those
 * that follow each other in one go. The thread of the group. */
#ifndef SYMM_GROUPED_H_
#define SYMM_GROUPED_H_

#include "coll.h"

struct symm_counts;

/* Queues the call; counts: of a call with one per rank, else NULL. What it takes of the reduction,
 * the counts and the windows is settled when this returns. */
symmResult_t symm_grouped_call(const symm_coll *k, const struct symm_counts *counts,
                               symmComm_t comm, symmStream_t stream);

#endif
