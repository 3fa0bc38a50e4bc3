/* place_leaf.inl - the nodes of a placement engine's tree, and operations within one node. Included
 * by place_tree.inl. The thread that has the engine's lock.
 *
 * An entry is {off, len, tag}, in units. len > 0: a hole of that length; len < 0: a block of -len;
 * in inner nodes the largest len below. Places without an entry are off = WORD_MAX, len = 0, so
 * that searches need not know which they are. Inner nodes are sorted by off. Entries of a leaf
 * lie anywhere in it, in a ring of links by off: what comes and goes all the time moves no other
 * entry. */
#include <string.h>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "base/check.h"

#ifndef SYMM_TREE_FAN
#define SYMM_TREE_FAN \
    30 /* with the two behind them whole vectors; measured: docs/memory-place.md */
#endif
enum {
    FAN = SYMM_TREE_FAN,
    ROOM = (FAN + 5) / 4 * 4, /* whole vectors, with the two below */
    LEAST = FAN / 4 < 2 ? 2 : FAN / 4,
    NOWHERE =
        FAN, /* a place that is written to where nothing is to be written: its entry stays none */
    END = FAN + 1 /* of the ring: never an entry */
};

typedef struct symm_node {
    word off[ROOM]; /* inner: of the first entry below */
    word len[ROOM];
    union {
        uint64_t tag[FAN];            /* leaves */
        struct symm_node *child[FAN]; /* inner */
    };
    struct symm_node *parent;       /* NULL: the root. Of spare nodes: the next */
    int slot;                       /* which of the parent's it is */
    int count;                      /* leaves: entries; else 0 */
    uint8_t next[ROOM], prev[ROOM]; /* leaves */
} __attribute__((aligned(64))) symm_node;

static void clear(symm_node *n) {
    for (int i = 0; i < ROOM; i++) {
        n->off[i] = WORD_MAX;
        n->len[i] = 0;
    }
    n->next[END] = n->prev[END] = END;
    n->count = 0;
}

/* ---- searching in a node --------------------------------------------------------------------- */

/* Vectors of any machine, so in 64 bits too. */
typedef word vector __attribute__((vector_size(16), may_alias));
typedef word unaligned __attribute__((vector_size(16), may_alias, aligned(sizeof(word))));
enum { LANES = 16 / sizeof(word), VECTORS = ROOM / LANES };
_Static_assert(ROOM <= 32 && VECTORS % 2 == 0, "a bit for each entry, whole vectors");

#if WORD_BITS == 32
typedef uint32_t bits __attribute__((vector_size(16)));
static inline bits is_above(vector a, vector b) {
    return (bits)(a > b) >> 31;
}
static inline bits is_equal(vector a, vector b) {
    return (bits)(a == b) >> 31;
}
static inline vector greater(vector a, vector b) {
    const vector m = (vector)(a > b);
    return (a & m) | (b & ~m);
}
#else
/* What is compared lies within 2^62, but for WORD_MAX, so differences have a sign: x86-64 need not
 * have comparisons of 64 bits in vectors. */
typedef uint64_t bits __attribute__((vector_size(16)));
static inline bits is_above(vector a, vector b) {
    return (bits)(b - a) >> 63;
}
static inline bits is_equal(vector a, vector b) {
    const bits d = (bits)(a ^ b);
    return ((d | -d) >> 63) ^ 1;
}
static inline vector greater(vector a, vector b) {
    const vector d = a - b;
    return b + (d & (vector)(((bits)d >> 63) - 1));
}
#endif

#if WORD_BITS == 32 && SYMM_TREE_FAN == 30 && defined(__SSE2__)
/* This takes a tenth of the engine's time less than what compilers make of the loop below. */
#define BITS(is, op, at, x)                                                        \
    const vector *v = (const vector *)(const void *)(at), w = (vector){0} + (x);   \
    const __m128i a = _mm_packs_epi32((__m128i)(v[0] op w), (__m128i)(v[1] op w)); \
    const __m128i b = _mm_packs_epi32((__m128i)(v[2] op w), (__m128i)(v[3] op w)); \
    const __m128i c = _mm_packs_epi32((__m128i)(v[4] op w), (__m128i)(v[5] op w)); \
    const __m128i d = _mm_packs_epi32((__m128i)(v[6] op w), (__m128i)(v[7] op w)); \
    return (uint32_t)_mm_movemask_epi8(_mm_packs_epi16(a, b)) |                    \
           (uint32_t)_mm_movemask_epi8(_mm_packs_epi16(c, d)) << 16
#else
#define BITS(is, op, at, x)                                                                       \
    const vector *v = (const vector *)(const void *)(at), w = (vector){0} + (x);                  \
    bits all = {0};                                                                               \
    uint32_t found = 0;                                                                           \
    _Pragma("GCC unroll 16") for (int k = 0; k < VECTORS; k++) all |= is(v[k], w) << (k * LANES); \
    for (int k = 0; k < LANES; k++) found |= (uint32_t)all[k] << k;                               \
    return found
#endif
/* A bit for each entry for which the comparison holds. All entries are compared: no branch to
 * predict, and no load that waits for another. */
static inline uint32_t above(const word *at, word x) {
    BITS(is_above, >, at, x);
}
static inline uint32_t equal(const word *at, word x) {
    BITS(is_equal, ==, at, x);
}

static inline word largest_in(vector a) {
    word most = a[0];
    for (int k = 1; k < LANES; k++) most = a[k] > most ? a[k] : most;
    return most;
}

/* The largest len but that of entry i; 0 if there is no hole. */
static inline word largest_but(const symm_node *n, int i) {
    static const word mask[2 * ROOM] = {
        [0 ... ROOM - 1] = -1, [ROOM] = 0, [ROOM + 1 ... 2 * ROOM - 1] = -1};
    const vector *v = (const vector *)(const void *)n->len;
    const unaligned *m = (const unaligned *)(const void *)(mask + ROOM - i);
    vector a = {0}, b = {0}; /* two, so that one need not wait for the other */
#pragma GCC unroll 16        /* 7 % of a take */
    for (int k = 0; k < VECTORS; k += 2) {
        a = greater(v[k] & m[k], a);
        b = greater(v[k + 1] & m[k + 1], b);
    }
    return largest_in(greater(a, b));
}

static inline word largest(const symm_node *n) {
    return largest_but(n, END);
}

/* Bits of the entries with at least len. */
static inline uint32_t long_ones(const symm_node *n, word len) {
    return above(n->len, len - 1);
}

/* ---- inner nodes ----------------------------------------------------------------------------- */

/* Index of the last entry at or below off, -1 if none. pre: off < WORD_MAX, so that there is one
 * above. */
static inline int last_at(const symm_node *n, word off) {
    SYMM_ASSERT(off < WORD_MAX);
    return __builtin_ctz(above(n->off, off)) - 1;
}
static int count_of(const symm_node *n) {
    return last_at(n, WORD_MAX - 1) + 1;
}

/* The children from i on get their parent and slot. */
static void adopt(symm_node *n, int i) {
    for (; n->off[i] != WORD_MAX; i++) {
        n->child[i]->parent = n;
        n->child[i]->slot = i;
    }
}

static void remove_entries(symm_node *from, int i, int n) {
    int all = count_of(from);
    size_t rest = (size_t)(all - i - n);
    SYMM_ASSERT(i + n <= all);
    memmove(from->off + i, from->off + i + n, rest * sizeof(word));
    memmove(from->len + i, from->len + i + n, rest * sizeof(word));
    memmove(from->child + i, from->child + i + n, rest * sizeof *from->child);
    for (int k = all - n; k < all; k++) {
        from->off[k] = WORD_MAX;
        from->len[k] = 0;
    }
    adopt(from, i);
}

/* Entries [i, i+n) of `from` go to the place j of `to`, whose own from there on move up. */
static void move_entries(symm_node *to, int j, symm_node *from, int i, int n) {
    size_t some = (size_t)n, rest = (size_t)(count_of(to) - j);
    SYMM_ASSERT(count_of(to) + n <= FAN);
    memmove(to->off + j + n, to->off + j, rest * sizeof(word));
    memmove(to->len + j + n, to->len + j, rest * sizeof(word));
    memmove(to->child + j + n, to->child + j, rest * sizeof *to->child);
    memcpy(to->off + j, from->off + i, some * sizeof(word));
    memcpy(to->len + j, from->len + i, some * sizeof(word));
    memcpy(to->child + j, from->child + i, some * sizeof *to->child);
    adopt(to, j);
    remove_entries(from, i, n);
}

/* pre: not full. */
static void put_child(symm_node *n, int i, symm_node *child, word off) {
    size_t rest = (size_t)(count_of(n) - i);
    SYMM_ASSERT(count_of(n) < FAN);
    memmove(n->off + i + 1, n->off + i, rest * sizeof(word));
    memmove(n->len + i + 1, n->len + i, rest * sizeof(word));
    memmove(n->child + i + 1, n->child + i, rest * sizeof *n->child);
    n->off[i] = off;
    n->len[i] = largest(child);
    n->child[i] = child;
    adopt(n, i);
}

/* ---- leaves ---------------------------------------------------------------------------------- */

typedef struct {
    word off, len;
    uint64_t tag;
} entry;

/* All entries of a leaf by off, into e; and how many. */
static int unload(const symm_node *n, entry *e) {
    int k = 0;
    for (int i = n->next[END]; i != END; i = n->next[i])
        e[k++] = (entry){n->off[i], n->len[i], n->tag[i]};
    return k;
}

static inline word first_off(const symm_node *n, int leaf) {
    return n->off[leaf ? n->next[END] : 0];
}

/* These are its entries from now on. */
static void load(symm_node *n, const entry *e, int count) {
    clear(n);
    n->count = count;
    for (int i = 0; i < count; i++) {
        n->off[i] = e[i].off;
        n->len[i] = e[i].len;
        n->tag[i] = e[i].tag;
        n->next[i] = (uint8_t)(i + 1);
        n->prev[i] = (uint8_t)(i - 1);
    }
    if (!count) return;
    n->prev[0] = n->next[count - 1] = END;
    n->next[END] = 0;
    n->prev[END] = (uint8_t)(count - 1);
}

/* The last entry at or below off; END if there is none. */
static inline int leaf_at(const symm_node *n, word off) {
    const vector *v = (const vector *)(const void *)n->off, w = (vector){0} + off;
    uint32_t same = equal(n->off, off);
    if (same) return __builtin_ctz(same);
    vector a = {0};
    for (int k = 0; k < VECTORS; k++)
        a = greater((vector)((bits)v[k] & (is_above(v[k], w) - 1)), a);
    same = equal(n->off, largest_in(a));
    return same ? __builtin_ctz(same) : END;
}

/* The lowest of the entries in bits, which are some. */
static inline int lowest(const symm_node *n, uint32_t bits) {
    int best = __builtin_ctz(bits);
    while (bits &= bits - 1) {
        const int i = __builtin_ctz(bits);
        best = n->off[i] < n->off[best] ? i : best;
    }
    return best;
}

/* A place without an entry. pre: there is one. */
static inline int vacant(const symm_node *n) {
    return __builtin_ctz(equal(n->off, WORD_MAX));
}

/* Entry i is {off, len, tag} from now on, and comes behind entry `before`. */
static inline void link_entry(symm_node *n, int i, int before, word off, word len, uint64_t tag) {
    const uint8_t behind = n->next[before];
    SYMM_ASSERT(n->count < FAN && i < FAN);
    n->off[i] = off;
    n->len[i] = len;
    n->tag[i] = tag;
    n->next[i] = behind;
    n->prev[i] = (uint8_t)before;
    n->next[before] = n->prev[behind] = (uint8_t)i;
    n->count++;
}

static void unlink_entry(symm_node *n, int i) {
    SYMM_ASSERT(n->count > 0 && n->off[i] != WORD_MAX);
    n->off[i] = WORD_MAX;
    n->len[i] = 0;
    n->next[n->prev[i]] = n->next[i];
    n->prev[n->next[i]] = n->prev[i];
    n->count--;
}

/* a if yes is 1, b if it is 0, without a branch: it could not be predicted. */
static inline int either(int yes, int a, int b) {
    return b ^ ((a ^ b) & -yes);
}

/* Of the hole i the first n units become a block; what is left behind it, if anything, stays a
 * hole. pre: with a rest, not full. */
static inline void take_front(symm_node *n, int i, word len, uint64_t tag) {
    const word whole = n->len[i], end = n->off[i] + len;
    const int more = whole != len;
    SYMM_ASSERT(0 < len && len <= whole && n->count + more <= FAN);
    const word yes = -(word)more;
    const int rest = either(more, vacant(n), NOWHERE), behind = n->next[i];
    n->len[i] = -len;
    n->tag[i] = tag;
    n->off[rest] = WORD_MAX ^ ((WORD_MAX ^ end) & yes);
    n->len[rest] = (whole - len) & yes;
    n->next[rest] = (uint8_t)behind;
    n->prev[rest] = (uint8_t)i;
    n->next[i] = (uint8_t)either(more, rest, behind);
    n->prev[behind] = (uint8_t)either(more, rest, i);
    n->count += more;
}

/* Entry i becomes a hole of len, and with it the one before (down) and the one behind (up), where
 * it is so. */
static inline void unite(symm_node *n, int i, int down, int up, word len) {
    const int before = n->prev[i], next = n->next[i], behind = either(up, n->next[next], next);
    const int hole = either(down, before, i), gone = either(down, i, NOWHERE);
    const int gone2 = either(up, next, NOWHERE);
    n->off[gone] = n->off[gone2] = WORD_MAX;
    n->len[gone] = n->len[gone2] = 0;
    n->len[hole] = len;
    n->next[hole] = (uint8_t)behind;
    n->prev[behind] = (uint8_t)hole;
    n->count -= up + down;
}
