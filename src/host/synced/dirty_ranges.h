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
    int whole;   /* all of it is dirty, whatever is named */
    int unnamed; /* it was handed out for writing, and no range was named since */
    int n;
    symm_dirty_range range[SYMM_DIRTY_MAX]; /* ascending; no two touch */
} symm_dirty;

/* The head moves to this side. equal: both sides have the same contents; else all is newer here. */
void symm_dirty_start(symm_dirty *d, int equal);
/* All of it is handed out for writing. */
void symm_dirty_hand_out(symm_dirty *d);
/* Since it was last handed out, this range was written and no other that is not named. len may be
 * 0. */
void symm_dirty_name(symm_dirty *d, uint64_t from, uint64_t len);
/* What must be copied of a buffer of `bytes`: writes ranges to out[SYMM_DIRTY_MAX], returns how
 * many. */
int symm_dirty_list(const symm_dirty *d, uint64_t bytes, symm_dirty_range *out);
/* The invariants, for a buffer of `bytes`. */
void symm_dirty_check(const symm_dirty *d, uint64_t bytes);

#endif
