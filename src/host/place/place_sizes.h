/* place_sizes.h - holes by size, for best fit: classes of a 32nd of an octave, each with a treap
 * over (bytes, off). The shape of a treap depends only on what is in it (priorities are a hash of
 * off), so the time of a call does not depend on earlier calls. Not thread-safe: the engine's owner
 * locks. */
#ifndef SYMM_PLACE_SIZES_H_
#define SYMM_PLACE_SIZES_H_

#include <stdint.h>

typedef struct {
    uint64_t bytes, off;
    uint32_t left, right; /* 0: none */
} symm_size_node;

enum { SYMM_SIZE_CLASSES = 53 * 32 }; /* of sizes below 2^64 in units of 256 bytes */

typedef struct {
    symm_size_node *node; /* [0] is not used */
    uint32_t room, made, spare;
    uint32_t root[SYMM_SIZE_CLASSES];
    uint64_t some[(SYMM_SIZE_CLASSES + 63) / 64]; /* bit: the class has a hole */
} symm_sizes;

/* Zeroed: empty. */
void symm_sizes_close(symm_sizes *s);
/* There is memory for `holes` holes. -1: no memory. */
int symm_sizes_reserve(symm_sizes *s, uint64_t holes);
/* pre: reserved; not in it. */
void symm_sizes_add(symm_sizes *s, uint64_t bytes, uint64_t off);
/* pre: in it. */
void symm_sizes_drop(symm_sizes *s, uint64_t bytes, uint64_t off);
/* The least hole that is not below (*bytes, *off), in them. 0: none. */
int symm_sizes_next(const symm_sizes *s, uint64_t *bytes, uint64_t *off);

#endif
