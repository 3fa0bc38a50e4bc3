/* place.h - placement: where blocks lie, as offsets. It knows no memory, no address and no clock.
 * Two engines that get the same calls hold the same blocks, in any process. Not thread-safe: the
 * owner locks. */
#ifndef SYMM_PLACE_H_
#define SYMM_PLACE_H_

#include <stddef.h>
#include <stdint.h>

#define SYMM_PLACE_NONE UINT64_MAX
#define SYMM_PLACE_UNIT 256u /* offsets and sizes are multiples of it */

/* to: a power of two. */
static inline uint64_t symm_round_up(uint64_t n, uint64_t to) {
    return (n + to - 1) & ~(to - 1);
}

typedef struct symm_place symm_place;

enum { SYMM_PLACE_FIRST = 0, SYMM_PLACE_BEST = 1 };
/* An engine without a free range. NULL: no memory. */
symm_place *symm_place_new(int fit);
void symm_place_end(symm_place *p);

/* [off, off+bytes), which p does not know yet, becomes free and joins its free neighbours. -1: no
 * memory, nothing changed. */
int symm_place_add(symm_place *p, uint64_t off, uint64_t bytes);
/* p forgets the range, all of which must be free. -1: not all of it is free, or no memory; nothing
 * changed. */
int symm_place_cut(symm_place *p, uint64_t off, uint64_t bytes);

/* A block of `bytes` (rounded up to the unit, not 0) at a multiple of align (power of two, at least
 * the unit): the lowest one that fits, or with BEST the lowest in the smallest hole that fits. What
 * alignment leaves before it stays free. tag: the caller's, kept with the block.
 * SYMM_PLACE_NONE: none fits; *why (may be NULL): ENOSPC or ENOMEM. */
uint64_t symm_place_take(symm_place *p, uint64_t bytes, uint64_t align, uint64_t tag, int *why);
/* A block at exactly this place, which must be free. -1: it is not, or no memory. */
int symm_place_take_at(symm_place *p, uint64_t off, uint64_t bytes, uint64_t tag);
/* Frees the block that begins at off; returns its bytes, 0 if none begins there (nothing changed).
 * Cannot run out of memory. */
uint64_t symm_place_give(symm_place *p, uint64_t off);
/* The same, if the block's tag is `tag` in the bits of mask; else nothing changes. *was (may be
 * NULL): its tag. One look-up. */
uint64_t symm_place_give_if(symm_place *p, uint64_t off, uint64_t mask, uint64_t tag,
                            uint64_t *was);
/* Makes a block longer, into free space right behind it, or shorter. -1: it cannot; nothing
 * changed. */
int symm_place_resize(symm_place *p, uint64_t off, uint64_t bytes);
/* Divides the block that begins at off: the first part has `bytes`, both keep the tag. -1: it
 * cannot; nothing changed. */
int symm_place_split(symm_place *p, uint64_t off, uint64_t bytes);

typedef struct {
    uint64_t off, bytes, tag;
    int used;
} symm_piece;
/* The block that begins at off: bytes, tag. 0 if none does. As fast as give. */
uint64_t symm_place_block(const symm_place *p, uint64_t off, uint64_t *tag);
void symm_place_set_tag(symm_place *p, uint64_t off, uint64_t tag);
/* The piece, block or hole, that holds off; else the first one behind off. 0: there is none. O(log
 * pieces). To walk: next off = piece.off + piece.bytes. */
int symm_place_at(const symm_place *p, uint64_t off, symm_piece *piece);

typedef struct {
    uint64_t free, used, largest; /* bytes; largest hole */
    uint64_t peak;                /* highest end of a block so far, and most bytes used so far */
    uint64_t peak_used;
    uint64_t blocks, holes;
} symm_place_stats;
void symm_place_measure(const symm_place *p, symm_place_stats *s);
/* Test builds: asserts what must always be true of p. The calls above do it. */
void symm_place_check(symm_place *p);

#endif
