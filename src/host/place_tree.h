/* place_tree.h - the pieces of a placement engine in order of offset: a B+ tree in which every inner entry knows the largest hole
 * below it. One cache miss a level and four levels for 100,000 blocks, where a binary tree has twenty. Not thread-safe.
 *
 * An entry is {off, len, tag}. len > 0: a hole of len bytes; len < 0: a block of -len bytes; in inner nodes the largest len below.
 * Entries behind a node's last are off = UINT64_MAX, len = INT64_MIN, so that searches need not know how many there are. */
#ifndef SYMM_PLACE_TREE_H_
#define SYMM_PLACE_TREE_H_

#include <stdint.h>

#ifndef SYMM_TREE_FAN
#define SYMM_TREE_FAN 32 /* a power of two; measured: docs/memory-place.md */
#endif
/* Inner nodes have at least a quarter of their entries, and two: enough for 2^40 pieces. */
#define SYMM_TREE_DEPTH (SYMM_TREE_FAN >= 32 ? 16 : 40)

typedef struct symm_node {
    int64_t len[SYMM_TREE_FAN];
    uint64_t off[SYMM_TREE_FAN]; /* inner: of the first entry below */
    union {
        uint64_t tag[SYMM_TREE_FAN];            /* leaves */
        struct symm_node *child[SYMM_TREE_FAN]; /* inner */
    };
    int n;
} __attribute__((aligned(64))) symm_node;

typedef struct {
    symm_node *root; /* never NULL; may be empty */
    int height;      /* levels above the leaves */
    symm_node *spare;
    uint64_t spares, nodes; /* nodes: those ever made */
    void *chunks;           /* list of what the nodes lie in */
} symm_tree;

/* An entry, and the way to it: node[0] is the root, node[height] the leaf. at[height] is -1 where the entry sought would be the
 * first. Any change of the tree but symm_tree_set makes it void. */
typedef struct {
    symm_node *node[SYMM_TREE_DEPTH];
    int at[SYMM_TREE_DEPTH];
    int leaf; /* height */
} symm_cursor;

/* -1: no memory. */
int symm_tree_open(symm_tree *t);
void symm_tree_close(symm_tree *t);
/* The next `inserts` insertions need no memory. -1: no memory; nothing changed. */
int symm_tree_reserve(symm_tree *t, int inserts);

/* The last entry at or below off; 0 if there is none (at is -1). */
int symm_tree_find(const symm_tree *t, uint64_t off, symm_cursor *c);
/* The first hole of at least `bytes`; the same from c on, c's entry included. 0: none. */
int symm_tree_fit(const symm_tree *t, uint64_t bytes, symm_cursor *c);
int symm_tree_fit_from(uint64_t bytes, symm_cursor *c);
/* The neighbouring entry. 0: none; c is void then. */
int symm_tree_next(symm_cursor *c);
int symm_tree_prev(symm_cursor *c);
/* Largest hole, 0 if there is none. */
uint64_t symm_tree_largest(const symm_tree *t);

void symm_tree_set(symm_cursor *c, int64_t len);
/* The entry now begins at off, which lies between its neighbours. */
void symm_tree_move(symm_cursor *c, uint64_t off);
/* A new entry right behind c's. pre: reserved. 1: c still names its entry, 0: c is void. */
int symm_tree_insert(symm_tree *t, symm_cursor *c, uint64_t off, int64_t len, uint64_t tag);
/* 1: c names the place of the erased entry (whatever is there now); 0: c is void. */
int symm_tree_erase(symm_tree *t, symm_cursor *c);
/* Entries [first, first+n) of c's leaf become one, the first of them, a hole larger than all of them. c is void. */
void symm_tree_unite(symm_tree *t, symm_cursor *c, int first, int n, int64_t len);

static inline void symm_cursor_copy(symm_cursor *to, const symm_cursor *c) {
    for (int level = 0; level <= c->leaf; level++) {
        to->node[level] = c->node[level];
        to->at[level] = c->at[level];
    }
    to->leaf = c->leaf;
}
static inline uint64_t symm_cursor_off(const symm_cursor *c) {
    return c->node[c->leaf]->off[c->at[c->leaf]];
}
static inline int64_t symm_cursor_len(const symm_cursor *c) {
    return c->node[c->leaf]->len[c->at[c->leaf]];
}
static inline uint64_t *symm_cursor_tag(const symm_cursor *c) {
    return &c->node[c->leaf]->tag[c->at[c->leaf]];
}

#endif
