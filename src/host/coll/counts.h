/* counts.h - the counts and displacements of a call with a count per rank: read once, at the call,
 * into extents of bytes. Pure; any thread, no lock. */
#ifndef SYMM_COUNTS_H_
#define SYMM_COUNTS_H_

#include "coll.h"

typedef struct {          /* of one buffer; all NULL: it has `count` elements */
    const size_t *counts; /* [nranks] */
    const size_t *displs; /* [nranks]; NULL: one part follows the other */
    const char *name;     /* of counts, as the call names them */
} symm_side;
typedef struct symm_counts {
    symm_side in, out;
} symm_counts;

enum { SYMM_EXTENTS = 2 * SYMM_MAX_RANKS };
enum { SYMM_COUNTS_RANKS = 4096 }; /* of a call with a count per rank, over all domains */
static inline size_t symm_extents_bytes(int nranks) {
    return 2u * (unsigned)nranks * sizeof(symm_extent);
}

/* Fills out[0..2*nranks): the parts for each rank, then those from each. symmInvalidArgument: no
 * counts, an overflow, parts of recvbuff that overlap, a rank that gives itself another count than
 * it expects. */
symmResult_t symm_counts_read(const symm_coll *k, const symm_counts *u, int rank, int nranks,
                              symm_extent *out);
/* Where the last of n parts ends. */
uint64_t symm_counts_end(const symm_extent *parts, int n);

#endif
