/* fused.h - calls of a group with different roots as one call with a count per rank: broadcasts as
 * an all_gatherv, reduces as a reduce_scatterv (coll.def). All ranks must come to the same, so it
 * is decided by what they agree on: not by buffers, which may lie anywhere. Pure; any thread. */
#ifndef SYMM_FUSED_H_
#define SYMM_FUSED_H_

#include "coll.h"

typedef struct { /* the roots of calls that run as one */
    uint64_t roots[(SYMM_MAX_RANKS + 63) / 64];
    int n;
} symm_fused;

/* Whether k, which may be the first, runs with those; if so it is among them then. like: one of
 * them. A reduction of the program's own stays by itself, for its number may be another rank's
 * other one. */
int symm_fused_add(symm_fused *f, const symm_coll *like, const symm_coll *k);
/* Whether the n calls should be one: not a few reduces, whose roots would do all of the work. */
int symm_fused_pays(const symm_fused *f, const symm_coll *like, int nranks);
/* symmInvalidArgument: a buffer of one of the n calls is written by another one, which would have
 * to end first. */
symmResult_t symm_fused_check(const symm_coll *const *calls, int n, int rank);
/* The call that stands for the n calls, with extents of 2 * nranks. Its buffers are from the first
 * part of any to the last, whatever else lies in between. */
symm_coll symm_fused_call(const symm_coll *const *calls, int n, int rank, int nranks,
                          symm_extent *extents);
/* Whether it is one, and the bytes of all parts of its buffers. */
static inline int symm_fused_is(const symm_coll *k) {
    return k->extents && k->fused > 0;
}
uint64_t symm_fused_bytes(const symm_coll *k, int nranks);

#endif
