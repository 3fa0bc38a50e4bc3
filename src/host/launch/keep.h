/* keep.h - what a captured call keeps alive until its graph is gone: the communicator and the
 * windows of its buffers. Made by the communicator's user thread; release: any thread that may free
 * them. No lock. */
#ifndef SYMM_KEEP_H_
#define SYMM_KEEP_H_

#include "host/coll/coll.h"

typedef struct symm_keep symm_keep;

/* One reference to begin with. NULL: no memory. */
symm_keep *symm_keep_new(const symm_launch *l);
void symm_keep_release(void *keep);
/* How a graph holds one (symm_graph_hold). */
extern const symm_graph_user symm_keep_held;
/* The call's counts, where it has one per rank; else NULL. They live as long as k. */
const symm_extent *symm_keep_extents(const symm_keep *k);
/* 1 if the memory under the call's buffers is still what it was captured with. The host backend's;
 * lanes of a graph may ask at once, beside the thread that uses the windows. */
int symm_keep_lives(symm_keep *k);

/* The same of a list of sends and receives; keep_list.c. A list that its kernel does not have in
 * its arguments (host backend) is kept as well. */
typedef struct symm_kept_list symm_kept_list;
symm_kept_list *symm_kept_list_new(symm_comm *c, symm_p2p_list *l);
/* The same of a one-sided call: the window whose peer's memory is used, and that of the own buffer
 * with the memory under it. */
symm_kept_list *symm_kept_onesided(symm_comm *c, const symm_onesided_call *call);
void symm_kept_list_release(void *kept);
extern const symm_graph_user symm_kept_list_held;
int symm_kept_list_lives(symm_kept_list *h);

#endif
