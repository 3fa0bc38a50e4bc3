/* copies.h - calls whose data copy engines move, and what they copy. The communicator's user
 * thread.
 *
 * Each rank loads from its peers' windows: a copy from a wrong place writes nothing but the own
 * destination, which the call writes anyway. So a copy may be given to the stream before it is
 * known whether it is right, and a rank that has left is not overwritten by those of its peers.
 * Copies load only from memory that stays mapped for as long as this rank has the window.
 *
 * The host does not know where a peer's source is. It takes it to be where the own one is: at the
 * same place of the same window. (A rank that is not the root takes the root's to be where its own
 * sendbuff points to, or, if that is in no window, where it receives.) Before the copies all ranks
 * exchange a word that stands for the places of the sources on all ranks, 0 for none, and compare
 * (cuda/direct.cuh). Behind them the kernel of symm_kernel_row.copies ends the call. If words
 * differed, or were 0, it moves the data. A rank that had given copies then gives none any more for
 * as long as the communicator lives, and says 0: copies for nothing would double the time of each
 * such call. */
#ifndef SYMM_COPIES_H_
#define SYMM_COPIES_H_

#include "coll.h"

typedef struct {
    char *to;
    const char *from;
    uint64_t bytes;
} symm_copy;

typedef struct {
    symm_copy own; /* of this rank's own part; 0 bytes: there is none */
    int n;         /* from peers, in an order in which no two ranks load from one at a time */
    symm_copy peer[SYMM_MAX_RANKS];
} symm_copies;

/* Of a call that is prepared but for this, whose kernel has `copies`: where its sources are taken
 * to be, and the word. */
void symm_copies_find(symm_launch *l);
/* What this rank copies; nothing if its sources may be anywhere (l->from NULL). */
void symm_copies_list(const symm_launch *l, symm_copies *out);

#endif
