/* dirty_ranges.h - which bytes of a buffer are newer on one side than on the other. Pure; the
 * owner's thread. */
#ifndef SYMM_DIRTY_H_
#define SYMM_DIRTY_H_

#include <stdint.h>

enum { SYMM_DIRTY_MAX = 16 }; /* ranges; more are joined with their nearest neighbour */

typedef struct {
    uint64_t from, to;
} symm_dirty_range;

typedef struct {
    int whole;   /* everything, whatever is named */
    int unnamed; /* handed out for writing, and nothing named since */
    int n;
    symm_dirty_range range[SYMM_DIRTY_MAX]; /* ascending, apart from each other */
} symm_dirty;

/* The head moves. equal: the other side has the same contents; else all is newer here. */
void symm_dirty_start(symm_dirty *d, int equal);
/* All of it is handed out for writing. */
void symm_dirty_hand_out(symm_dirty *d);
/* Only this was written since it was last handed out, and what was named before. len may be 0. */
void symm_dirty_name(symm_dirty *d, uint64_t from, uint64_t len);
/* What must be copied of `bytes`: ranges into out[SYMM_DIRTY_MAX], how many. */
int symm_dirty_list(const symm_dirty *d, uint64_t bytes, symm_dirty_range *out);
/* The invariants, for a buffer of `bytes`. */
void symm_dirty_check(const symm_dirty *d, uint64_t bytes);

#endif
