/* place_tree.inl - the pieces of a placement engine by offset: a B+ tree in which every inner entry
 * knows the largest hole below it. A search costs one cache miss a level, and 100,000 blocks need
 * four levels; a binary tree has twenty. With a right hint only the leaf is missed. Included by
 * place_engine.inl, which defines what a word is. The thread that has the engine's lock. */
#include <stddef.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "base/fail.h"
#include "place_leaf.inl"

/* An entry; at is END where the entry sought would be the first. Any change of the tree but set
 * voids it. */
typedef struct {
    symm_node *leaf;
    int at;
} symm_cursor;

static inline word off_of(const symm_cursor *c) {
    return c->leaf->off[c->at];
}
static inline word len_of(const symm_cursor *c) {
    return c->leaf->len[c->at];
}
static inline uint64_t *tag_of(const symm_cursor *c) {
    return &c->leaf->tag[c->at];
}

/* ---- nodes ----------------------------------------------------------------------------------- */

#define HUGE_PAGE ((size_t)2 << 20)

/* Nodes lie in chunks, behind a table of hints. The last chunk's table is used. For each range of
 * offsets it has the leaf in which a block there was last seen, as bits 6 to 37 of the leaf's
 * address, so that the table stays in the caches. A hint may be wrong, but it always names a node;
 * whether a piece begins there is then checked. */
typedef struct chunk {
    struct chunk *next;
} chunk;

enum { HINTS = 8 }; /* a node */
#define WINDOW_BITS 38

static inline symm_node *hinted(const symm_tree *t, word off) {
    const uint64_t low = t->hint[(uint64_t)off >> t->hint_shift & t->hint_mask];
    return (symm_node *)(void *)(uintptr_t)(t->window | low << 6);
}

static inline void hint(const symm_tree *t, word off, const symm_node *leaf) {
    const uint64_t at = (uintptr_t)leaf;
    if (__builtin_expect(at >> WINDOW_BITS != t->window >> WINDOW_BITS, 0)) return;
    t->hint[(uint64_t)off >> t->hint_shift & t->hint_mask] = (uint32_t)(at >> 6);
}

/* The table grows with the nodes. end: of the highest block so far, when half of them are in
 * use. */
static void place_hints(symm_tree *t, uint32_t *table, uint64_t count, symm_node *any,
                        uint64_t end) {
    const uint64_t at = (uintptr_t)any;
    t->window = at >> WINDOW_BITS << WINDOW_BITS;
    t->hint = table;
    t->hint_mask = count - 1;
    t->hint_shift = 0;
    while (2 * end >> t->hint_shift > count) t->hint_shift++;
    for (uint64_t i = 0; i < count; i++) table[i] = (uint32_t)(at >> 6);
}

/* Chunks double, so that they are few. Large ones are in huge pages if the system has them, because
 * the tree is walked at random. */
static int more_nodes(symm_tree *t, uint64_t wanted, uint64_t end) {
    uint64_t n = t->nodes < 4 ? 4 : t->nodes, hints = 16;
    if (n < wanted) n = wanted;
    while (hints * 2 <= HINTS * (t->nodes + n)) hints *= 2;
    const size_t head = (sizeof(chunk) + hints * sizeof(uint32_t) + 63) & ~(size_t)63;
    size_t bytes = head + n * sizeof(symm_node);
    size_t align = bytes >= HUGE_PAGE ? HUGE_PAGE : 64;
    bytes = (bytes + align - 1) & -align;
    chunk *c = SYMM_FAIL_ALLOC(place_nodes, aligned_alloc(align, bytes));
    if (!c) return -1;
    if (align == HUGE_PAGE) (void)madvise(c, bytes, MADV_HUGEPAGE); /* slower if refused */
    c->next = t->chunks;
    t->chunks = c;
    n = (bytes - head) / sizeof(symm_node);
    symm_node *first = (symm_node *)(void *)((char *)c + head);
    for (uint64_t i = n; i-- > 0;) { /* the lowest is used first */
        first[i].count = 0;
        first[i].parent = t->spare;
        t->spare = &first[i];
    }
    place_hints(t, (uint32_t *)(c + 1), hints, first, end);
    t->nodes += n;
    t->spares += n;
    return 0;
}

static symm_node *new_node(symm_tree *t) {
    symm_node *n = t->spare;
    SYMM_ASSERT(n && t->spares); /* reserved */
    t->spare = n->parent;
    t->spares--;
    n->parent = NULL;
    clear(n);
    return n;
}

static void drop_node(symm_tree *t, symm_node *n) {
    n->count = 0; /* hints may name it */
    n->parent = t->spare;
    t->spare = n;
    t->spares++;
}

/* The next `inserts` insertions need no memory. -1: no memory; nothing changed. */
static inline int tree_reserve(symm_tree *t, int inserts, uint64_t end) {
    /* Each may split one node a level and make a root, which is a level more for the next. */
    uint64_t wanted = (uint64_t)inserts * (unsigned)(t->height + inserts + 1);
    return t->spares >= wanted ? 0 : more_nodes(t, wanted, end);
}

/* -1: no memory. */
static int tree_open(symm_tree *t) {
    *t = (symm_tree){0};
    if (more_nodes(t, 1, 0)) return -1;
    t->root = new_node(t);
    return 0;
}

static void tree_close(symm_tree *t) {
    for (chunk *c = t->chunks, *next; c; c = next) {
        next = c->next;
        free(c);
    }
}

/* ---- searching ------------------------------------------------------------------------------- */

/* Prefetches all that a call may touch of a leaf. */
static inline void fetch(const symm_node *n) {
    for (size_t k = 0; k < offsetof(symm_node, tag); k += 64)
        __builtin_prefetch((const char *)n + k, 1);
    __builtin_prefetch(&n->parent, 1);
    __builtin_prefetch(n->next, 1);
}

/* The last entry at or below off; 0 if there is none (at is END). pre: off < WORD_MAX. */
static inline int tree_find(const symm_tree *t, word off, symm_cursor *c) {
    symm_node *n = t->root;
    /* Keys are exact: an offset not below the first key of the root is not below that of any node
     * on the way down. */
    const word key = t->height && off < n->off[0] ? n->off[0] : off;
    for (int level = t->height; level > 0; level--) {
        for (size_t k = 0; k < sizeof n->child; k += 64)
            __builtin_prefetch((const char *)n->child + k);
        n = n->child[last_at(n, key)];
    }
    fetch(n);
    c->leaf = n;
    c->at = leaf_at(n, off);
    return c->at != END;
}

/* The entry that begins at off, if the hint is right. 0: the hint is wrong, or there is none. */
static inline int tree_guess(const symm_tree *t, word off, symm_cursor *c) {
    symm_node *leaf = hinted(t, off);
    fetch(leaf);
    const uint32_t same = equal(leaf->off, off);
    if (__builtin_expect(!same || !leaf->count, 0)) return 0;
    *c = (symm_cursor){leaf, __builtin_ctz(same)};
    return 1;
}

/* The first hole of at least len below n, `height` levels above the leaves, which is known to have
 * one. */
static inline void descend(symm_node *n, int height, word len, symm_cursor *c) {
    for (; height > 0; height--) {
        for (size_t k = 0; k < sizeof n->child; k += 64)
            __builtin_prefetch((const char *)n->child + k);
        n = n->child[__builtin_ctz(long_ones(n, len))];
    }
    fetch(n);
    c->leaf = n;
    c->at = lowest(n, long_ones(n, len));
}

/* The first hole of at least len. 0: none. */
static inline int tree_fit(const symm_tree *t, word len, symm_cursor *c) {
    if (!long_ones(t->root, len)) return 0;
    descend(t->root, t->height, len, c);
    return 1;
}

/* The same, from the entry at c on. */
static int tree_fit_from(word len, symm_cursor *c) {
    symm_node *n = c->leaf;
    int i = c->at, height = 0;
    while (i != END && n->len[i] < len) i = n->next[i];
    c->at = i;
    if (i != END) return 1;
    for (; n->parent; n = n->parent, height++) {
        const int from = n->slot + 1;
        const uint32_t found = long_ones(n->parent, len) >> from << from;
        if (!found) continue;
        descend(n->parent->child[__builtin_ctz(found)], height, len, c);
        return 1;
    }
    return 0;
}

/* The neighbouring entry. 0: none; c is void then. */
static int tree_next(symm_cursor *c) {
    symm_node *n = c->leaf;
    int height = 0;
    c->at = n->next[c->at];
    if (c->at != END) return 1;
    while (n->parent && n->parent->off[n->slot + 1] == WORD_MAX) n = n->parent, height++;
    if (!n->parent) return 0;
    n = n->parent->child[n->slot + 1];
    while (height-- > 0) n = n->child[0];
    *c = (symm_cursor){n, n->next[END]};
    return 1;
}

static int tree_prev(symm_cursor *c) {
    symm_node *n = c->leaf;
    int height = 0;
    c->at = n->prev[c->at];
    if (c->at != END) return 1;
    while (n->parent && n->slot == 0) n = n->parent, height++;
    if (!n->parent) return 0;
    n = n->parent->child[n->slot - 1];
    while (height-- > 0) n = n->child[count_of(n) - 1];
    *c = (symm_cursor){n, n->prev[END]};
    return 1;
}

/* ---- changing -------------------------------------------------------------------------------- */

/* The length of an entry of n was `old` and is `len` (0: no entry). Updates the nodes above as far
 * as it changes their largest hole. */
static inline void tell(symm_node *n, word old, word len) {
    for (; n->parent; n = n->parent) {
        word *slot = &n->parent->len[n->slot];
        if (len < *slot) {
            if (old != *slot) return;
            len = largest(n);
        }
        if (len == *slot) return;
        old = *slot;
        *slot = len;
    }
}

/* The same, if the largest hole of n is known. What has just been written is not read in vectors,
 * which would wait for it. */
static inline void tell_largest(symm_node *n, word len) {
    for (symm_node *up; (up = n->parent); n = up) {
        const word old = up->len[n->slot], most = up->parent ? up->parent->len[up->slot] : 0;
        word others = 0;
        if (len == old) return;
        if (len < old && old == most) others = largest_but(up, n->slot);
        up->len[n->slot] = len;
        if (len < old ? old < most : len <= most) return;
        if (len < others) len = others;
    }
}

/* The first entry of n begins at off now. Keys are exact, so that each entry is found at one
 * place. */
static void tell_first(symm_node *n, word off) {
    for (; n->parent; n = n->parent) {
        n->parent->off[n->slot] = off;
        if (n->slot) return;
    }
}

static void tree_set(symm_cursor *c, word len) {
    const word old = len_of(c);
    c->leaf->len[c->at] = len;
    tell(c->leaf, old, len);
}

/* The entry now begins at off, which lies between its neighbours. */
static void tree_move(symm_cursor *c, word off) {
    SYMM_ASSERT(c->at != END);
    c->leaf->off[c->at] = off;
    if (c->leaf->prev[c->at] == END) tell_first(c->leaf, off);
}

/* Where entries are added at the end, the left node stays nearly full. */
static int split_at(int i) {
    return i == FAN ? FAN - LEAST : FAN / 2;
}

static void put(symm_tree *t, symm_node *n, int i, symm_node *child, int leaf);

/* left was split: its upper entries are in right. */
static void put_split(symm_tree *t, symm_node *left, symm_node *right, int leaf) {
    if (left->parent) {
        tell_largest(left, largest(left));
        put(t, left->parent, left->slot + 1, right, leaf);
        return;
    }
    t->root = new_node(t);
    t->height++;
    put_child(t->root, 0, left, first_off(left, leaf));
    put_child(t->root, 1, right, first_off(right, leaf));
}

/* Puts a child into the inner node n, which may split it and those above. leaf: whether the child
 * is one. */
static void put(symm_tree *t, symm_node *n, int i, symm_node *child, int leaf) {
    const word off = first_off(child, leaf);
    if (n->off[FAN - 1] == WORD_MAX) {
        put_child(n, i, child, off);
        tell(n, 0, n->len[i]);
        return;
    }
    const int keep = split_at(i);
    symm_node *right = new_node(t);
    move_entries(right, 0, n, keep, FAN - keep);
    if (i <= keep)
        put_child(n, i, child, off);
    else
        put_child(right, i - keep, child, off);
    put_split(t, n, right, 0);
}

/* A new entry right behind c's. pre: reserved. 1: c still names its entry, 0: c is void. */
static int tree_insert(symm_tree *t, symm_cursor *c, word off, word len, uint64_t tag) {
    symm_node *leaf = c->leaf;
    entry all[FAN + 1];
    int i = 0;
    if (c->at == END) tell_first(leaf, off);
    if (leaf->count < FAN) {
        link_entry(leaf, vacant(leaf), c->at, off, len, tag);
        tell(leaf, 0, len);
        return 1;
    }
    unload(leaf, all);
    while (i < FAN && all[i].off < off) i++;
    memmove(all + i + 1, all + i, sizeof *all * (size_t)(FAN - i));
    all[i] = (entry){off, len, tag};
    const int keep = split_at(i) + (i <= split_at(i));
    symm_node *right = new_node(t);
    load(leaf, all, keep);
    load(right, all + keep, FAN + 1 - keep);
    put_split(t, leaf, right, 1);
    return 0;
}

/* The hole at c becomes a block of its first n units, and a hole behind it. 0: the leaf is full;
 * nothing changed. */
static inline int tree_front(symm_tree *t, symm_cursor *c, word n, uint64_t tag) {
    symm_node *leaf = c->leaf;
    const word rest = len_of(c) - n, others = largest_but(leaf, c->at);
    if (leaf->count == FAN && rest) return 0;
    hint(t, off_of(c), leaf);
    take_front(leaf, c->at, n, tag);
    tell_largest(leaf, others > rest ? others : rest);
    return 1;
}

/* As many entries in each, or all in left: 1. */
static int even_leaves(symm_node *left, symm_node *right) {
    entry all[2 * FAN];
    int n = unload(left, all), sum = n + unload(right, all + n);
    if (sum <= FAN * 3 / 4) {
        load(left, all, sum);
        return 1;
    }
    load(left, all, sum / 2);
    load(right, all + sum / 2, sum - sum / 2);
    return 0;
}

static int even_nodes(symm_node *left, symm_node *right) {
    const int n = count_of(left), sum = n + count_of(right), move = sum / 2 - n;
    if (sum <= FAN * 3 / 4) {
        move_entries(left, n, right, 0, sum - n);
        return 1;
    }
    if (move > 0)
        move_entries(left, n, right, 0, move);
    else
        move_entries(right, 0, left, n + move, -move);
    return 0;
}

/* n, which is not the root, has too few entries: joins it with a neighbour, or shares entries
 * evenly. */
static void even_out(symm_tree *t, symm_node *n, int leaf) {
    symm_node *parent = n->parent;
    const int j = n->slot ? n->slot - 1 : 0;
    symm_node *left = parent->child[j], *right = parent->child[j + 1];
    const int one = leaf ? even_leaves(left, right) : even_nodes(left, right);
    parent->len[j] = largest(left);
    if (!one) {
        parent->off[j + 1] = first_off(right, leaf);
        parent->len[j + 1] = largest(right);
        return;
    }
    drop_node(t, right);
    remove_entries(parent, j + 1, 1);
    if (parent->parent) {
        if (parent->off[LEAST - 1] == WORD_MAX) even_out(t, parent, 0);
    } else if (parent->off[1] == WORD_MAX) {
        t->root = left;
        t->height--;
        left->parent = NULL;
        drop_node(t, parent);
    }
}

/* 1: other cursors are as they were; 0: they are void. */
static int tree_erase(symm_tree *t, symm_cursor *c) {
    symm_node *leaf = c->leaf;
    const int first = leaf->prev[c->at] == END;
    const word old = len_of(c);
    unlink_entry(leaf, c->at);
    tell(leaf, old, 0);
    if (first) tell_first(leaf, first_off(leaf, 1));
    if (leaf->count >= LEAST || !leaf->parent) return 1;
    even_out(t, leaf, 1);
    return 0;
}

/* c's entry becomes a hole of len, and with it the one before (down) and the one behind (up), where
 * it is so: those in its leaf. c is void. */
static inline void tree_unite(symm_tree *t, symm_cursor *c, int down, int up, word len) {
    symm_node *leaf = c->leaf;
    unite(leaf, c->at, down, up, len);
    tell(leaf, 0, len);
    if (__builtin_expect(leaf->count < LEAST, 0) && leaf->parent) even_out(t, leaf, 1);
}
