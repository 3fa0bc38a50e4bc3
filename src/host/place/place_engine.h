/* place_engine.h - the placement engine of place.h in two widths: offsets and sizes in words of 32
 * bits (narrow) and of 64 (wide). Both are place_engine.inl over place_tree.inl; place.c chooses.
 * Not thread-safe: the owner locks. */
#ifndef SYMM_PLACE_ENGINE_H_
#define SYMM_PLACE_ENGINE_H_

#include "place.h"
#include "place_sizes.h"

typedef struct {
    struct symm_node *root; /* never NULL; may be empty */
    int height;             /* levels above the leaves */
    struct symm_node *spare;
    uint64_t spares, nodes; /* nodes: those ever made */
    void *chunks;           /* list of what the nodes lie in */
    uint32_t *hint;         /* place_tree.inl */
    uint64_t hint_mask, window;
    unsigned hint_shift;
} symm_tree;

struct symm_place {
    symm_tree tree;
    int wide;                             /* which of the two it is */
    uint64_t free, used, peak, peak_used; /* units */
    uint64_t blocks, holes;
    symm_sizes *sizes;  /* NULL: first fit */
    uint64_t unchecked; /* calls since all pieces were checked; in test builds */
};

#define SYMM_PLACE_MOST ((uint64_t)INT64_MAX & ~(uint64_t)(SYMM_PLACE_UNIT - 1))

/* Whether [off, off+bytes) can be a piece. */
static inline int symm_place_is_range(uint64_t off, uint64_t bytes) {
    return bytes && bytes <= SYMM_PLACE_MOST && !((off | bytes) % SYMM_PLACE_UNIT) &&
           bytes <= UINT64_MAX - off;
}

/* As in place.h. Of the narrow one all pieces end at or below SYMM_NARROW_END. */
#define SYMM_NARROW_END ((uint64_t)INT32_MAX * SYMM_PLACE_UNIT)
#define SYMM_ENGINE(x)                                                                             \
    int x##_open(symm_tree *t);                                                                    \
    void x##_close(symm_tree *t);                                                                  \
    uint64_t x##_largest(const symm_place *p); /* units */                                         \
    int x##_add(symm_place *p, uint64_t off, uint64_t bytes);                                      \
    int x##_cut(symm_place *p, uint64_t off, uint64_t bytes);                                      \
    uint64_t x##_take(symm_place *p, uint64_t bytes, uint64_t align, uint64_t tag, int *why);      \
    int x##_take_at(symm_place *p, uint64_t off, uint64_t bytes, uint64_t tag);                    \
    uint64_t x##_give_if(symm_place *p, uint64_t off, uint64_t mask, uint64_t tag, uint64_t *was); \
    int x##_resize(symm_place *p, uint64_t off, uint64_t bytes);                                   \
    int x##_split(symm_place *p, uint64_t off, uint64_t bytes);                                    \
    uint64_t x##_block(const symm_place *p, uint64_t off, uint64_t *tag);                          \
    void x##_set_tag(symm_place *p, uint64_t off, uint64_t tag);                                   \
    int x##_at(const symm_place *p, uint64_t off, symm_piece *piece);                              \
    void x##_check(const symm_place *p) /* all pieces; in test builds */
SYMM_ENGINE(symm_narrow);
SYMM_ENGINE(symm_wide);

#endif
