/* place_engine.inl - the placement engine of place.h over place_tree.inl, and with best fit over
 * place_sizes.h. Included by place_narrow.c and place_wide.c, which define what a word is. All
 * numbers are in units. The thread that has the owner's lock.
 *
 * The tree has the pieces by offset. Two holes never touch. Giving a block back only changes and
 * removes entries, so it needs no memory. If best fit then lists a hole, its node was reserved when
 * the piece was made. */
#include <errno.h>

#include "place_engine.h"
#include "place_tree.inl"

#define UNIT SYMM_PLACE_UNIT

int ENGINE(open)(symm_tree *t) {
    return tree_open(t);
}

void ENGINE(close)(symm_tree *t) {
    tree_close(t);
}

uint64_t ENGINE(largest)(const symm_place *p) {
    word len = largest(p->tree.root);
    return len > 0 ? (uint64_t)len : 0;
}

/* 0: no piece can have that many bytes. */
static inline word round_up(uint64_t bytes) {
    return bytes > SYMM_PLACE_MOST || bytes > (uint64_t)WORD_MAX * UNIT
               ? 0
               : (word)((bytes + UNIT - 1) / UNIT);
}

/* Whether [off, off+n units) can be a piece here, and then its offset in units. */
static inline int is_range(uint64_t off, uint64_t bytes, word *at) {
    if (!symm_place_is_range(off, bytes) || off / UNIT + bytes / UNIT > (uint64_t)WORD_MAX)
        return 0;
    *at = (word)(off / UNIT);
    return 1;
}

/* ---- what is counted ------------------------------------------------------------------------- */

static inline void hole_comes(symm_place *p, word off, word len) {
    p->holes++;
    p->free += (uint64_t)len;
    if (p->sizes) symm_sizes_add(p->sizes, (uint64_t)len * UNIT, (uint64_t)off * UNIT);
}

static inline void hole_goes(symm_place *p, word off, word len) {
    p->holes--;
    p->free -= (uint64_t)len;
    if (p->sizes) symm_sizes_drop(p->sizes, (uint64_t)len * UNIT, (uint64_t)off * UNIT);
}

static inline void block_ends(symm_place *p, word end) {
    if ((uint64_t)end > p->peak) p->peak = (uint64_t)end;
    if (p->used > p->peak_used) p->peak_used = p->used;
}

static inline void block_comes(symm_place *p, word off, word len) {
    p->blocks++;
    p->used += (uint64_t)len;
    block_ends(p, off + len);
}

/* Reserves memory for so many more pieces. */
static inline int reserve(symm_place *p, int pieces) {
    if (tree_reserve(&p->tree, pieces, p->peak)) return -1;
    return p->sizes ? symm_sizes_reserve(p->sizes, p->blocks + p->holes + (unsigned)pieces) : 0;
}

/* ---- pieces and cursors ---------------------------------------------------------------------- */

/* c: the entry that begins at off, which there is. */
static void seek(const symm_place *p, word off, symm_cursor *c) {
    tree_find(&p->tree, off, c);
}

static inline word size_of(word len) {
    return len < 0 ? -len : len;
}

static inline word end_of(const symm_cursor *c) {
    return off_of(c) + size_of(len_of(c));
}

/* Splits the hole at c: its n units from off on become an entry of `len`, or (len 0) no entry. What
 * lies before and behind stays a hole. */
static void carve(symm_place *p, symm_cursor *c, word off, word n, word len, uint64_t tag) {
    word begin = off_of(c), whole = len_of(c), head = off - begin, tail = whole - head - n;
    SYMM_ASSERT(head >= 0 && tail >= 0 && n > 0);
    if (!head && len && tree_front(&p->tree, c, n, tag)) { /* the usual case */
        p->free -= (uint64_t)n;
        p->holes -= tail == 0;
        if (!p->sizes) return;
        symm_sizes_drop(p->sizes, (uint64_t)whole * UNIT, (uint64_t)begin * UNIT);
        if (tail) symm_sizes_add(p->sizes, (uint64_t)tail * UNIT, (uint64_t)(off + n) * UNIT);
        return;
    }
    hole_goes(p, begin, whole);
    if (tail) hole_comes(p, off + n, tail);
    /* The part behind comes first, so the largest hole of the nodes is searched once. */
    if (tail && !tree_insert(&p->tree, c, off + n, tail, 0)) seek(p, begin, c);
    if (head) {
        tree_set(c, head);
        if (len) tree_insert(&p->tree, c, off, len, tag);
        hole_comes(p, begin, head);
    } else if (len) {
        *tag_of(c) = tag;
        tree_set(c, len);
    } else {
        tree_erase(&p->tree, c);
    }
}

/* c: an entry that is no hole. Whether a hole of *len touches its end, with d on it. */
static int hole_behind(const symm_cursor *c, symm_cursor *d, word *len) {
    *d = *c;
    if (!tree_next(d) || len_of(d) <= 0 || off_of(d) != end_of(c)) return 0;
    *len = len_of(d);
    return 1;
}

static int hole_before(const symm_cursor *c, symm_cursor *d, word *len) {
    *d = *c;
    if (!tree_prev(d) || len_of(d) <= 0 || end_of(d) != off_of(c)) return 0;
    *len = len_of(d);
    return 1;
}

/* Frees the entry at c, which is no hole, and joins it with the holes that touch it, in any
 * leaf. */
static void join_apart(symm_place *p, symm_cursor *c) {
    word off = off_of(c), n = size_of(len_of(c)), len;
    symm_cursor d;
    if (hole_behind(c, &d, &len)) {
        hole_goes(p, off + n, len);
        n += len;
        if (!tree_erase(&p->tree, &d)) seek(p, off, c);
    }
    if (hole_before(c, &d, &len)) {
        off -= len;
        hole_goes(p, off, len);
        n += len;
        if (tree_erase(&p->tree, c))
            *c = d;
        else
            seek(p, off, c);
    }
    tree_set(c, n);
    hole_comes(p, off, n);
}

/* Whether a hole in another leaf touches the entry at c, which is no hole. */
static int touches_apart(const symm_cursor *c) {
    const symm_node *leaf = c->leaf;
    int i = c->at;
    symm_cursor d;
    word len;
    return (leaf->prev[i] == END && hole_before(c, &d, &len)) ||
           (leaf->next[i] == END && hole_behind(c, &d, &len));
}

/* The same. Mostly the holes are in the same leaf; then it is arithmetic without branches, because
 * which neighbours are holes cannot be predicted. */
static inline void join(symm_place *p, symm_cursor *c) {
    const symm_node *leaf = c->leaf;
    const int i = c->at, j = leaf->prev[i], k = leaf->next[i];
    if ((j == END || k == END) && touches_apart(c)) {
        join_apart(p, c);
        return;
    }
    word off = leaf->off[i], n = size_of(leaf->len[i]), before = leaf->len[j],
         behind = leaf->len[k];
    int up = (behind > 0) & (leaf->off[k] == off + n);
    int down = (before > 0) & (leaf->off[j] == off - before);
    if (p->sizes) {
        if (up) symm_sizes_drop(p->sizes, (uint64_t)behind * UNIT, (uint64_t)(off + n) * UNIT);
        if (down) symm_sizes_drop(p->sizes, (uint64_t)before * UNIT, (uint64_t)leaf->off[j] * UNIT);
    }
    p->holes -= (unsigned)(up + down);
    p->free += (uint64_t)n;
    p->holes++;
    n += (behind & -(word)up) + (before & -(word)down);
    if (p->sizes)
        symm_sizes_add(p->sizes, (uint64_t)n * UNIT,
                       (uint64_t)(off - (before & -(word)down)) * UNIT);
    tree_unite(&p->tree, c, down, up, n);
}

/* ---- ranges ---------------------------------------------------------------------------------- */

int ENGINE(add)(symm_place *p, uint64_t off, uint64_t bytes) {
    symm_cursor c, d;
    word at, n = (word)(bytes / UNIT);
    if (!is_range(off, bytes, &at)) return -1;
    if (tree_find(&p->tree, at, &c) && end_of(&c) > at) return -1;
    d = c;
    if (tree_next(&d) && off_of(&d) - at < n) return -1;
    if (reserve(p, 1)) return -1;
    /* First as a block, which join then frees. */
    tree_insert(&p->tree, &c, at, -n, 0);
    seek(p, at, &c);
    join(p, &c);
    return 0;
}

int ENGINE(cut)(symm_place *p, uint64_t off, uint64_t bytes) {
    symm_cursor c;
    word at, n = (word)(bytes / UNIT);
    if (!is_range(off, bytes, &at) || !tree_find(&p->tree, at, &c)) return -1;
    if (len_of(&c) < 0 || end_of(&c) < at + n) return -1;
    if (reserve(p, 1)) return -1;
    carve(p, &c, at, n, 0, 0);
    return 0;
}

/* ---- taking ---------------------------------------------------------------------------------- */

/* Where a block of n units and that alignment fits in [off, off+len); WORD_MAX: nowhere. Nothing
 * overflows: all numbers are below 2^56. */
static inline word place_in(word off, word len, word n, uint64_t align) {
    uint64_t at = ((uint64_t)off + align - 1) & -align;
    return at + (uint64_t)n <= (uint64_t)off + (uint64_t)len ? (word)at : WORD_MAX;
}

/* The lowest place. Holes between two places where a block of that alignment could begin are all
 * too short, and skipped. */
static inline word first_fit(const symm_place *p, word n, uint64_t align, symm_cursor *c) {
    int found = tree_fit(&p->tree, n, c);
    while (found) {
        word off = off_of(c), end = end_of(c), at = place_in(off, end - off, n, align);
        uint64_t next = ((uint64_t)off + align - 1) & -align;
        if (at != WORD_MAX) return at;
        if (next >= (uint64_t)WORD_MAX) break; /* no piece is there */
        if ((word)next >= end) tree_find(&p->tree, (word)next, c);
        if (end_of(c) <= (word)next || off_of(c) == off) found = tree_next(c);
        found = found && tree_fit_from(n, c);
    }
    return WORD_MAX;
}

/* The lowest of the smallest holes that fit. */
static word best_fit(const symm_place *p, word n, uint64_t align, symm_cursor *c) {
    uint64_t len = (uint64_t)n * UNIT, off = 0;
    for (; symm_sizes_next(p->sizes, &len, &off); off++) {
        word at = place_in((word)(off / UNIT), (word)(len / UNIT), n, align);
        if (at == WORD_MAX) continue;
        seek(p, (word)(off / UNIT), c);
        return at;
    }
    return WORD_MAX;
}

uint64_t ENGINE(take)(symm_place *p, uint64_t bytes, uint64_t align, uint64_t tag, int *why) {
    symm_cursor c;
    int code = ENOSPC;
    word n = round_up(bytes), at = WORD_MAX;
    align = align < UNIT ? 1 : align / UNIT;
    if (n) at = p->sizes ? best_fit(p, n, align, &c) : first_fit(p, n, align, &c);
    if (at != WORD_MAX && reserve(p, 2)) {
        code = ENOMEM;
        at = WORD_MAX;
    }
    if (at == WORD_MAX) {
        if (why) *why = code;
        return SYMM_PLACE_NONE;
    }
    carve(p, &c, at, n, -n, tag);
    block_comes(p, at, n);
    return (uint64_t)at * UNIT;
}

int ENGINE(take_at)(symm_place *p, uint64_t off, uint64_t bytes, uint64_t tag) {
    symm_cursor c;
    word at, n = round_up(bytes);
    if (!is_range(off, (uint64_t)n * UNIT, &at) || !tree_find(&p->tree, at, &c)) return -1;
    if (len_of(&c) < 0 || end_of(&c) < at + n) return -1;
    if (reserve(p, 2)) return -1;
    carve(p, &c, at, n, -n, tag);
    block_comes(p, at, n);
    return 0;
}

/* ---- blocks ---------------------------------------------------------------------------------- */

/* The units of the block that begins at off, with c on it; 0 if none does. */
static inline word find_block(const symm_place *p, uint64_t off, symm_cursor *c) {
    const uint64_t most = (uint64_t)WORD_MAX - 1, at = off / UNIT < most ? off / UNIT : most;
    if (!tree_guess(&p->tree, (word)at, c)) {
        if (!tree_find(&p->tree, (word)at, c) || off_of(c) != (word)at) return 0;
        hint(&p->tree, (word)at, c->leaf);
    }
    if (at * UNIT != off) return 0;
    word len = len_of(c);
    return len < 0 ? -len : 0;
}

uint64_t ENGINE(give_if)(symm_place *p, uint64_t off, uint64_t mask, uint64_t tag, uint64_t *was) {
    symm_cursor c;
    word n = find_block(p, off, &c);
    if (!n || (*tag_of(&c) & mask) != tag) return 0;
    if (was) *was = *tag_of(&c);
    p->blocks--;
    p->used -= (uint64_t)n;
    join(p, &c);
    return (uint64_t)n * UNIT;
}

/* pre: c is on the block at `at` of `was` units, which is to have n, fewer. */
static int shorten(symm_place *p, symm_cursor *c, word at, word was, word n) {
    symm_cursor d;
    word rest = was - n, len;
    SYMM_ASSERT(0 < n && n < was && len_of(c) == -was);
    if (hole_behind(c, &d, &len)) {
        hole_goes(p, at + was, len);
        tree_set(c, -n);
        tree_set(&d, len + rest);
        tree_move(&d, at + n);
        rest += len;
    } else {
        if (reserve(p, 1)) return -1;
        tree_set(c, -n);
        tree_insert(&p->tree, c, at + n, rest, 0);
    }
    hole_comes(p, at + n, rest);
    p->used -= (uint64_t)(was - n);
    return 0;
}

static int lengthen(symm_place *p, symm_cursor *c, word at, word was, word n) {
    symm_cursor d;
    word more = n - was, len;
    if (!hole_behind(c, &d, &len) || len < more) return -1;
    hole_goes(p, at + was, len);
    tree_set(c, -n);
    if (len > more) {
        tree_set(&d, len - more);
        tree_move(&d, at + n);
        hole_comes(p, at + n, len - more);
    } else {
        tree_erase(&p->tree, &d);
    }
    p->used += (uint64_t)more;
    block_ends(p, at + n);
    return 0;
}

int ENGINE(resize)(symm_place *p, uint64_t off, uint64_t bytes) {
    symm_cursor c;
    word was = find_block(p, off, &c), n = round_up(bytes), at = (word)(off / UNIT);
    if (!was || !n) return -1;
    if (n == was) return 0;
    return n < was ? shorten(p, &c, at, was, n) : lengthen(p, &c, at, was, n);
}

int ENGINE(split)(symm_place *p, uint64_t off, uint64_t bytes) {
    symm_cursor c;
    word was = find_block(p, off, &c), at = (word)(off / UNIT);
    uint64_t tag = was ? *tag_of(&c) : 0;
    if (bytes % UNIT || !bytes || bytes >= (uint64_t)was * UNIT || reserve(p, 1)) return -1;
    word n = (word)(bytes / UNIT);
    tree_set(&c, -n);
    tree_insert(&p->tree, &c, at + n, n - was, tag);
    p->blocks++;
    return 0;
}

uint64_t ENGINE(block)(const symm_place *p, uint64_t off, uint64_t *tag) {
    symm_cursor c;
    word n = find_block(p, off, &c);
    if (n && tag) *tag = *tag_of(&c);
    return (uint64_t)n * UNIT;
}

void ENGINE(set_tag)(symm_place *p, uint64_t off, uint64_t tag) {
    symm_cursor c;
    if (find_block(p, off, &c)) *tag_of(&c) = tag;
}

int ENGINE(at)(const symm_place *p, uint64_t off, symm_piece *piece) {
    symm_cursor c;
    if (off / UNIT >= (uint64_t)WORD_MAX) return 0;
    word at = (word)(off / UNIT);
    int found = tree_find(&p->tree, at, &c);
    if ((!found || end_of(&c) <= at) && !tree_next(&c)) return 0;
    word len = len_of(&c);
    *piece = (symm_piece){.off = (uint64_t)off_of(&c) * UNIT,
                          .bytes = (uint64_t)size_of(len) * UNIT,
                          .tag = len < 0 ? *tag_of(&c) : 0,
                          .used = len < 0};
    return 1;
}

/* ---- what must always be true ---------------------------------------------------------------- */

#ifdef SYMM_TESTING
/* Nodes from n down; all leaves are at the same depth. */
static uint64_t check_nodes(const symm_node *n, int height) {
    uint64_t nodes = 1;
    int i = 0;
    if (!height) {
        SYMM_ASSERT(n->count <= FAN);
        SYMM_ASSERT(!n->parent || n->count >= LEAST);
        return nodes;
    }
    for (; n->off[i] != WORD_MAX; i++) {
        const symm_node *child = n->child[i];
        SYMM_ASSERT(child->parent == n && child->slot == i);
        SYMM_ASSERT(n->len[i] == largest(child));
        SYMM_ASSERT(n->off[i] == first_off(child, height == 1));
        SYMM_ASSERT(!i || n->off[i] > n->off[i - 1]);
        nodes += check_nodes(child, height - 1);
    }
    SYMM_ASSERT(i <= FAN && i >= (n->parent ? LEAST : 2));
    SYMM_ASSERT(!n->count); /* hints take it for no leaf */
    return nodes;
}

static int is_listed(const symm_sizes *s, word off, word len) {
    uint64_t bytes = (uint64_t)len * UNIT, at = (uint64_t)off * UNIT;
    return symm_sizes_next(s, &bytes, &at) && bytes == (uint64_t)len * UNIT &&
           at == (uint64_t)off * UNIT;
}

void ENGINE(check)(const symm_place *p) {
    const symm_tree *t = &p->tree;
    uint64_t free = 0, used = 0, holes = 0, blocks = 0;
    word end = 0;
    int hole = 0; /* the piece before is one */
    symm_cursor c;
    SYMM_ASSERT(!t->root->parent);
    SYMM_ASSERT(check_nodes(t->root, t->height) + t->spares == t->nodes);
    for (int more = tree_find(t, 0, &c) || tree_next(&c); more; more = tree_next(&c)) {
        const word len = len_of(&c);
        SYMM_ASSERT(len && off_of(&c) >= end);
        SYMM_ASSERT(!(hole && len > 0 && off_of(&c) == end)); /* two holes are one */
        SYMM_ASSERT(c.leaf->prev[c.leaf->next[c.at]] == c.at);
        end = end_of(&c);
        hole = len > 0;
        *(hole ? &free : &used) += (uint64_t)size_of(len);
        *(hole ? &holes : &blocks) += 1;
        SYMM_ASSERT(hole || (uint64_t)end <= p->peak);
        SYMM_ASSERT(!hole || !p->sizes || is_listed(p->sizes, off_of(&c), len));
    }
    SYMM_ASSERT(free == p->free && used == p->used);
    SYMM_ASSERT(holes == p->holes && blocks == p->blocks);
}
#endif
