/* place_tree.inl - the pieces of a placement engine in order of offset: a B+ tree in which every inner entry knows the largest hole
 * below it. One cache miss a level and four levels for 100,000 blocks, where a binary tree has twenty. Included by place_engine.inl, which
 * says what a word is. The thread that has the engine's lock.
 *
 * An entry is {off, len, tag}, in units. len > 0: a hole of that length; len < 0: a block of -len; in inner nodes the largest len
 * below. Entries behind a node's last are off = WORD_MAX, len = WORD_MIN, so that nobody needs to know how many there are, and so are
 * the last two of each node always: at most two entries go at once, and what moves up behind them need not ask for an end. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "fail.h"

#ifndef SYMM_TREE_FAN
#define SYMM_TREE_FAN \
    26 /* with the two behind them whole vectors; measured: docs/memory-place.md */
#endif
enum {
    FAN = SYMM_TREE_FAN,
    ROOM = FAN + 2,
    LEAST = FAN / 4 < 2 ? 2 : FAN / 4,
    /* Inner nodes have at least a quarter of their entries, and two: enough for 2^40 pieces. */
    DEPTH = FAN >= 24 ? 16 : 40
};

typedef struct symm_node {
    word off[ROOM]; /* inner: of the first entry below */
    word len[ROOM];
    union {
        uint64_t tag[ROOM];            /* leaves */
        struct symm_node *child[ROOM]; /* inner */
    };
} __attribute__((aligned(64))) symm_node;

/* An entry, and the way to it: node[0] is the root, node[leaf] the leaf. at[leaf] is -1 where the entry sought would be the
 * first. Any change of the tree but set voids it. */
typedef struct {
    symm_node *node[DEPTH];
    int at[DEPTH];
    int leaf; /* height */
} symm_cursor;

static inline void cursor_copy(symm_cursor *to, const symm_cursor *c) {
    for (int level = 0; level <= c->leaf; level++) {
        to->node[level] = c->node[level];
        to->at[level] = c->at[level];
    }
    to->leaf = c->leaf;
}
static inline word off_of(const symm_cursor *c) {
    return c->node[c->leaf]->off[c->at[c->leaf]];
}
static inline word len_of(const symm_cursor *c) {
    return c->node[c->leaf]->len[c->at[c->leaf]];
}
static inline uint64_t *tag_of(const symm_cursor *c) {
    return &c->node[c->leaf]->tag[c->at[c->leaf]];
}

/* ---- nodes ---------------------------------------------------------------------------------------------------------- */

#define HUGE_PAGE ((size_t)2 << 20)

typedef struct chunk {
    struct chunk *next;
} chunk;

static void clear(symm_node *n) {
    for (int i = 0; i < ROOM; i++) {
        n->off[i] = WORD_MAX;
        n->len[i] = WORD_MIN;
    }
}

/* Chunks double, so that they are few; large ones lie in huge pages where the system has them, for the tree is walked at random. */
static int more_nodes(symm_tree *t, uint64_t wanted) {
    uint64_t n = t->nodes < 4 ? 4 : t->nodes;
    if (n < wanted) n = wanted;
    size_t bytes = (n + 1) * sizeof(symm_node);
    size_t align = bytes >= HUGE_PAGE ? HUGE_PAGE : sizeof(symm_node[1]) & -sizeof(symm_node[1]);
    bytes = (bytes + align - 1) & -align;
    chunk *c = SYMM_FAIL_ALLOC(place_nodes, aligned_alloc(align, bytes));
    if (!c) return -1;
    if (align == HUGE_PAGE) (void)madvise(c, bytes, MADV_HUGEPAGE); /* a wish; slower without */
    c->next = t->chunks;
    t->chunks = c;
    n = bytes / sizeof(symm_node) - 1;
    symm_node *first = (symm_node *)(void *)c + 1;
    for (uint64_t i = n; i-- > 0;) { /* the lowest is used first */
        first[i].child[0] = t->spare;
        t->spare = &first[i];
    }
    t->nodes += n;
    t->spares += n;
    return 0;
}

static symm_node *new_node(symm_tree *t) {
    symm_node *n = t->spare;
    t->spare = n->child[0];
    t->spares--;
    clear(n);
    return n;
}

static void drop_node(symm_tree *t, symm_node *n) {
    n->child[0] = t->spare;
    t->spare = n;
    t->spares++;
}

/* The next `inserts` insertions need no memory. -1: no memory; nothing changed. */
static inline int tree_reserve(symm_tree *t, int inserts) {
    /* Each may split one node a level and make a root, which is a level more for the next. */
    uint64_t wanted = (uint64_t)inserts * (unsigned)(t->height + inserts + 1);
    return t->spares >= wanted ? 0 : more_nodes(t, wanted);
}

/* -1: no memory. */
static int tree_open(symm_tree *t) {
    *t = (symm_tree){0};
    if (more_nodes(t, 1)) return -1;
    t->root = new_node(t);
    return 0;
}

static void tree_close(symm_tree *t) {
    for (chunk *c = t->chunks, *next; c; c = next) {
        next = c->next;
        free(c);
    }
}

/* ---- one node --------------------------------------------------------------------------------------------------------- */

/* Bits of the entries above x: all of them are compared, with no branch to be guessed and no load that waits for another. */
static inline uint32_t above(const word *at, word x) {
    _Static_assert(ROOM <= 32, "a bit for each entry");
#if WORD_BITS == 32 && SYMM_TREE_FAN == 26 && defined(__SSE2__)
    /* A tenth of the engine's time less than what compilers make of the loop. */
    const __m128i *v = (const __m128i *)(const void *)at, w = _mm_set1_epi32(x);
    const __m128i a = _mm_packs_epi32(_mm_cmpgt_epi32(v[0], w), _mm_cmpgt_epi32(v[1], w));
    const __m128i b = _mm_packs_epi32(_mm_cmpgt_epi32(v[2], w), _mm_cmpgt_epi32(v[3], w));
    const __m128i c = _mm_packs_epi32(_mm_cmpgt_epi32(v[4], w), _mm_cmpgt_epi32(v[5], w));
    const __m128i d = _mm_packs_epi32(_mm_cmpgt_epi32(v[6], w), _mm_setzero_si128());
    return (uint32_t)_mm_movemask_epi8(_mm_packs_epi16(a, b)) |
           (uint32_t)_mm_movemask_epi8(_mm_packs_epi16(c, d)) << 16;
#else
    uint32_t mask = 0;
    for (int k = 0; k < ROOM; k++) mask |= (uint32_t)(at[k] > x) << k;
    return mask;
#endif
}

/* Index of the last entry at or below off, -1 if none. pre: off < WORD_MAX, so that there is one above. */
static inline int last_at(const symm_node *n, word off) {
    return __builtin_ctz(above(n->off, off)) - 1;
}

static int count_of(const symm_node *n) {
    return last_at(n, WORD_MAX - 1) + 1;
}
static inline int is_full(const symm_node *n) {
    return n->off[FAN - 1] != WORD_MAX;
}
static inline int is_poor(const symm_node *n) {
    return n->off[LEAST - 1] == WORD_MAX;
}

/* Bits of the entries with at least len. */
static inline uint32_t long_ones(const symm_node *n, word len) {
    return above(n->len, len - 1);
}

static word largest(const symm_node *n) {
    word most = WORD_MIN;
    for (int k = 0; k < ROOM; k++) most = n->len[k] > most ? n->len[k] : most;
    return most;
}

/* Entries [i, i+n) of `from` to the place j of `to`, whose own from there on move up. */
static void move_entries(symm_node *to, int j, symm_node *from, int i, int n) {
    size_t some = (size_t)n, rest = (size_t)(count_of(to) - j);
    memmove(to->off + j + n, to->off + j, rest * sizeof(word));
    memmove(to->len + j + n, to->len + j, rest * sizeof(word));
    memmove(to->tag + j + n, to->tag + j, rest * sizeof(uint64_t));
    memcpy(to->off + j, from->off + i, some * sizeof(word));
    memcpy(to->len + j, from->len + i, some * sizeof(word));
    memcpy(to->tag + j, from->tag + i, some * sizeof(uint64_t));
}

static void remove_entries(symm_node *from, int i, int n) {
    int all = count_of(from);
    size_t rest = (size_t)(all - i - n);
    memmove(from->off + i, from->off + i + n, rest * sizeof(word));
    memmove(from->len + i, from->len + i + n, rest * sizeof(word));
    memmove(from->tag + i, from->tag + i + n, rest * sizeof(uint64_t));
    for (int k = all - n; k < all; k++) {
        from->off[k] = WORD_MAX;
        from->len[k] = WORD_MIN;
    }
}

/* The same for at most two, as it is done all the time. */
static inline void close_gap(symm_node *n, int i, int gone) {
    for (; n->off[i] != WORD_MAX; i++) {
        n->off[i] = n->off[i + gone];
        n->len[i] = n->len[i + gone];
        n->tag[i] = n->tag[i + gone];
    }
}

/* pre: not full. Each entry from i on takes the place of the next. */
static inline void put_entry(symm_node *n, int i, word off, word len, uint64_t tag) {
    for (; off != WORD_MAX; i++) {
        word o = n->off[i], l = n->len[i];
        uint64_t t = n->tag[i];
        n->off[i] = off;
        n->len[i] = len;
        n->tag[i] = tag;
        off = o;
        len = l;
        tag = t;
    }
}

/* What a call will touch of a leaf besides what it searches: fetched meanwhile. */
static inline void fetch(const void *array, size_t bytes) {
    for (size_t k = 0; k < bytes; k += 64) __builtin_prefetch((const char *)array + k, 1);
}

/* ---- searching ---------------------------------------------------------------------------------------------------------- */

/* The last entry at or below off; 0 if there is none (at is -1). pre: off < WORD_MAX. */
static inline int tree_find(const symm_tree *t, word off, symm_cursor *c) {
    symm_node *n = t->root;
    c->leaf = t->height;
    for (int level = 0; level < t->height; level++) {
        int i = last_at(n, off);
        c->node[level] = n;
        c->at[level] = i = i < 0 ? 0 : i;
        __builtin_prefetch(&n->len[i], 1);
        n = n->child[i];
    }
    fetch(n->len, sizeof n->len);
    fetch(n->tag, sizeof n->tag);
    c->node[t->height] = n;
    c->at[t->height] = last_at(n, off);
    return c->at[t->height] >= 0;
}

/* Goes on below `level`, whose entry is known to hold a hole that fits. */
static inline void descend(symm_cursor *c, int level, word len) {
    while (level < c->leaf) {
        symm_node *n = c->node[level]->child[c->at[level]];
        level++;
        if (level == c->leaf) {
            fetch(n->off, sizeof n->off);
            fetch(n->tag, sizeof n->tag);
        }
        c->node[level] = n;
        c->at[level] = __builtin_ctz(long_ones(n, len));
    }
}

/* The first hole of at least len. 0: none. */
static inline int tree_fit(const symm_tree *t, word len, symm_cursor *c) {
    uint32_t found = long_ones(t->root, len);
    c->leaf = t->height;
    c->node[0] = t->root;
    if (!found) return 0;
    c->at[0] = __builtin_ctz(found);
    descend(c, 0, len);
    return 1;
}

/* The same from c on, c's entry included. */
static int tree_fit_from(word len, symm_cursor *c) {
    int from = c->at[c->leaf];
    for (int level = c->leaf; level >= 0; level--) {
        uint32_t found = from < ROOM ? long_ones(c->node[level], len) >> from << from : 0;
        if (found) {
            c->at[level] = __builtin_ctz(found);
            descend(c, level, len);
            return 1;
        }
        if (level) from = c->at[level - 1] + 1;
    }
    return 0;
}

/* The neighbouring entry. 0: none; c is void then. */
static int tree_next(symm_cursor *c) {
    int level = c->leaf;
    while (level >= 0 && c->node[level]->off[c->at[level] + 1] == WORD_MAX) level--;
    if (level < 0) return 0;
    c->at[level]++;
    for (; level < c->leaf; level++) {
        c->node[level + 1] = c->node[level]->child[c->at[level]];
        c->at[level + 1] = 0;
    }
    return 1;
}

static int tree_prev(symm_cursor *c) {
    int level = c->leaf;
    while (level >= 0 && c->at[level] <= 0) level--;
    if (level < 0) return 0;
    c->at[level]--;
    for (; level < c->leaf; level++) {
        c->node[level + 1] = c->node[level]->child[c->at[level]];
        c->at[level + 1] = count_of(c->node[level + 1]) - 1;
    }
    return 1;
}

/* ---- changing ----------------------------------------------------------------------------------------------------------- */

/* An entry of the node at `level` was `old` and is `len` (WORD_MIN: is not there); the levels above learn of it as far as it
 * matters to them. */
static inline void tell(symm_cursor *c, int level, word old, word len) {
    for (; level > 0; level--) {
        word *slot = &c->node[level - 1]->len[c->at[level - 1]];
        if (len < *slot) {
            if (old != *slot) return;
            len = largest(c->node[level]);
        }
        if (len == *slot) return;
        old = *slot;
        *slot = len;
    }
}

/* The first entry of c's leaf begins at off: keys are exact, so that each entry has one place where it is found. */
static void tell_first(symm_cursor *c, word off) {
    for (int level = c->leaf - 1; level >= 0; level--) {
        c->node[level]->off[c->at[level]] = off;
        if (c->at[level]) return;
    }
}

static void tree_set(symm_cursor *c, word len) {
    word *slot = &c->node[c->leaf]->len[c->at[c->leaf]], old = *slot;
    *slot = len;
    tell(c, c->leaf, old, len);
}

/* The entry now begins at off, which lies between its neighbours. */
static void tree_move(symm_cursor *c, word off) {
    c->node[c->leaf]->off[c->at[c->leaf]] = off;
    if (c->at[c->leaf] == 0) tell_first(c, off);
}

/* Puts an entry into the node at `level`, which may split it and those above. 1: nothing was split. */
static int put(symm_tree *t, symm_cursor *c, int level, int i, word off, word len, uint64_t tag) {
    symm_node *left = c->node[level];
    if (!is_full(left)) {
        put_entry(left, i, off, len, tag);
        tell(c, level, WORD_MIN, len);
        return 1;
    }
    /* Where a heap grows at its end, what is left behind stays as it is: full. */
    int keep = i == FAN ? FAN - LEAST : FAN / 2;
    symm_node *right = new_node(t);
    move_entries(right, 0, left, keep, FAN - keep);
    remove_entries(left, keep, FAN - keep);
    if (i <= keep)
        put_entry(left, i, off, len, tag);
    else
        put_entry(right, i - keep, off, len, tag);
    if (level) {
        tell(c, level - 1, WORD_MIN, len);
        c->node[level - 1]->len[c->at[level - 1]] = largest(left);
        put(t, c, level - 1, c->at[level - 1] + 1, right->off[0], largest(right),
            (uint64_t)(uintptr_t)right);
        return 0;
    }
    t->root = new_node(t);
    t->height++;
    put_entry(t->root, 0, left->off[0], largest(left), (uint64_t)(uintptr_t)left);
    put_entry(t->root, 1, right->off[0], largest(right), (uint64_t)(uintptr_t)right);
    return 0;
}

/* A new entry right behind c's. pre: reserved. 1: c still names its entry, 0: c is void. */
static int tree_insert(symm_tree *t, symm_cursor *c, word off, word len, uint64_t tag) {
    int i = c->at[c->leaf] + 1;
    if (i == 0) tell_first(c, off);
    return put(t, c, c->leaf, i, off, len, tag);
}

/* The hole at c becomes a block of its first n units, and a hole behind it. 0: the leaf is full; nothing changed. */
static inline int tree_divide(symm_cursor *c, word n, uint64_t tag) {
    symm_node *leaf = c->node[c->leaf];
    int i = c->at[c->leaf];
    word off = leaf->off[i], whole = leaf->len[i];
    if (is_full(leaf)) return 0;
    leaf->off[i] = off + n;
    leaf->len[i] = whole - n;
    put_entry(leaf, i, off, -n, tag);
    tell(c, c->leaf, whole, whole - n);
    return 1;
}

/* The node at `level` has too few entries: one with a neighbour, or as many as that. */
static void even_out(symm_tree *t, symm_cursor *c, int level) {
    symm_node *parent = c->node[level - 1];
    int j = c->at[level - 1] ? c->at[level - 1] - 1 : 0;
    symm_node *left = parent->child[j], *right = parent->child[j + 1];
    int n = count_of(left), sum = n + count_of(right), move = sum / 2 - n;
    if (sum > FAN * 3 / 4) {
        if (move > 0) {
            move_entries(left, n, right, 0, move);
            remove_entries(right, 0, move);
        } else {
            move_entries(right, 0, left, n + move, -move);
            remove_entries(left, n + move, -move);
        }
        parent->off[j + 1] = right->off[0];
        parent->len[j] = largest(left);
        parent->len[j + 1] = largest(right);
        return;
    }
    move_entries(left, n, right, 0, sum - n);
    drop_node(t, right);
    remove_entries(parent, j + 1, 1);
    parent->len[j] = largest(left);
    if (level > 1) {
        if (is_poor(parent)) even_out(t, c, level - 1);
    } else if (parent->off[1] == WORD_MAX) {
        t->root = left;
        t->height--;
        drop_node(t, parent);
    }
}

/* 1: c names the place of the erased entry (whatever is there now); 0: c is void. */
static int tree_erase(symm_tree *t, symm_cursor *c) {
    symm_node *leaf = c->node[c->leaf];
    word old = leaf->len[c->at[c->leaf]];
    remove_entries(leaf, c->at[c->leaf], 1);
    tell(c, c->leaf, old, WORD_MIN);
    if (c->at[c->leaf] == 0) tell_first(c, leaf->off[0]);
    if (!is_poor(leaf) || c->leaf == 0) return 1;
    even_out(t, c, c->leaf);
    return 0;
}

/* Entry `first` of c's leaf and the `gone` (at most two) behind it become one, a hole larger than all of them. c is void. */
static inline void tree_unite(symm_tree *t, symm_cursor *c, int first, int gone, word len) {
    symm_node *leaf = c->node[c->leaf];
    leaf->len[first] = len;
    if (gone) close_gap(leaf, first + 1, gone);
    tell(c, c->leaf, WORD_MIN, len);
    if (__builtin_expect(is_poor(leaf), 0) && c->leaf) even_out(t, c, c->leaf);
}
