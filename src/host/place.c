/* place.c - the placement engine of place.h over place_tree.h, and with best fit place_sizes.h. The thread that has the owner's lock.
 *
 * Pieces lie in the tree by offset; two holes never touch. Giving a block back only changes and removes entries, so it needs no
 * memory; where best fit adds a hole, its node was reserved when the piece was made. */
#include "place.h"

#include <errno.h>
#include <stdlib.h>

#include "fail.h"
#include "place_sizes.h"
#include "place_tree.h"

struct symm_place {
    symm_tree tree;
    uint64_t free, used, peak, peak_used, blocks, holes;
    symm_sizes *sizes; /* NULL: first fit */
};

#define MOST ((uint64_t)INT64_MAX & ~(uint64_t)(SYMM_PLACE_UNIT - 1))

/* Whether [off, off+bytes) can be a piece. */
static int is_range(uint64_t off, uint64_t bytes) {
    return bytes && bytes <= MOST && !((off | bytes) % SYMM_PLACE_UNIT) &&
           bytes <= UINT64_MAX - off;
}

/* 0 where no size can be: 0, or too large. */
static uint64_t round_up(uint64_t bytes) {
    return bytes > MOST ? 0 : (bytes + SYMM_PLACE_UNIT - 1) & ~(uint64_t)(SYMM_PLACE_UNIT - 1);
}

symm_place *symm_place_new(int fit) {
    symm_place *p = SYMM_FAIL_ALLOC(place_alloc, calloc(1, sizeof *p));
    if (!p) return NULL;
    if (fit == SYMM_PLACE_BEST &&
        !(p->sizes = SYMM_FAIL_ALLOC(place_classes, calloc(1, sizeof *p->sizes))))
        goto free_record;
    if (symm_tree_open(&p->tree)) goto free_sizes;
    return p;
free_sizes:
    free(p->sizes);
free_record:
    free(p);
    return NULL;
}

void symm_place_end(symm_place *p) {
    if (!p) return;
    symm_tree_close(&p->tree);
    if (p->sizes) symm_sizes_close(p->sizes);
    free(p->sizes);
    free(p);
}

/* ---- what is counted ------------------------------------------------------------------------------------------------- */

static inline void hole_comes(symm_place *p, uint64_t off, uint64_t bytes) {
    p->holes++;
    p->free += bytes;
    if (p->sizes) symm_sizes_add(p->sizes, bytes, off);
}

static inline void hole_goes(symm_place *p, uint64_t off, uint64_t bytes) {
    p->holes--;
    p->free -= bytes;
    if (p->sizes) symm_sizes_drop(p->sizes, bytes, off);
}

static inline void block_ends(symm_place *p, uint64_t end) {
    if (end > p->peak) p->peak = end;
    if (p->used > p->peak_used) p->peak_used = p->used;
}

static inline void block_comes(symm_place *p, uint64_t off, uint64_t bytes) {
    p->blocks++;
    p->used += bytes;
    block_ends(p, off + bytes);
}

/* Memory for as many pieces more. */
static inline int reserve(symm_place *p, int pieces) {
    if (symm_tree_reserve(&p->tree, pieces)) return -1;
    return p->sizes ? symm_sizes_reserve(p->sizes, p->blocks + p->holes + (unsigned)pieces) : 0;
}

/* ---- pieces and cursors ---------------------------------------------------------------------------------------------- */

/* c: the entry that begins at off, which there is. */
static void seek(const symm_place *p, uint64_t off, symm_cursor *c) {
    symm_tree_find(&p->tree, off, c);
}

static inline uint64_t size_of(int64_t len) {
    return (uint64_t)(len < 0 ? -len : len);
}

static inline uint64_t end_of(const symm_cursor *c) {
    return symm_cursor_off(c) + size_of(symm_cursor_len(c));
}

/* Splits the hole at c: [off, off+bytes) of it gets `len`, what lies before and behind stays a hole. len 0: an entry is not made. */
static void carve(symm_place *p, symm_cursor *c, uint64_t off, uint64_t bytes, int64_t len,
                  uint64_t tag) {
    uint64_t begin = symm_cursor_off(c), whole = (uint64_t)symm_cursor_len(c);
    uint64_t head = off - begin, tail = whole - head - bytes;
    hole_goes(p, begin, whole);
    /* What is behind comes first: the largest hole of the nodes is looked for once. */
    if (tail && !symm_tree_insert(&p->tree, c, off + bytes, (int64_t)tail, 0)) seek(p, begin, c);
    if (head) {
        symm_tree_set(c, (int64_t)head);
        if (len) symm_tree_insert(&p->tree, c, off, len, tag);
        hole_comes(p, begin, head);
    } else if (len) {
        *symm_cursor_tag(c) = tag;
        symm_tree_set(c, len);
    } else {
        symm_tree_erase(&p->tree, c);
    }
    if (tail) hole_comes(p, off + bytes, tail);
}

/* c: an entry that is no hole. Whether a hole of *len bytes touches its end, with d on it. */
static int hole_behind(const symm_cursor *c, symm_cursor *d, uint64_t *len) {
    symm_cursor_copy(d, c);
    if (!symm_tree_next(d) || symm_cursor_len(d) <= 0 || symm_cursor_off(d) != end_of(c)) return 0;
    *len = (uint64_t)symm_cursor_len(d);
    return 1;
}

static int hole_before(const symm_cursor *c, symm_cursor *d, uint64_t *len) {
    symm_cursor_copy(d, c);
    if (!symm_tree_prev(d) || symm_cursor_len(d) <= 0 || end_of(d) != symm_cursor_off(c)) return 0;
    *len = (uint64_t)symm_cursor_len(d);
    return 1;
}

/* Frees the entry at c, which is no hole, and joins it with the holes that touch it, wherever they are. */
static void join_apart(symm_place *p, symm_cursor *c) {
    uint64_t off = symm_cursor_off(c), bytes = size_of(symm_cursor_len(c)), len;
    symm_cursor d;
    if (hole_behind(c, &d, &len)) {
        hole_goes(p, off + bytes, len);
        bytes += len;
        if (!symm_tree_erase(&p->tree, &d)) seek(p, off, c);
    }
    if (hole_before(c, &d, &len)) {
        off -= len;
        hole_goes(p, off, len);
        bytes += len;
        if (symm_tree_erase(&p->tree, c))
            symm_cursor_copy(c, &d);
        else
            seek(p, off, c);
    }
    symm_tree_set(c, (int64_t)bytes);
    hole_comes(p, off, bytes);
}

/* The same, where the neighbours are in the same leaf, as they mostly are. */
static inline void join(symm_place *p, symm_cursor *c) {
    const symm_node *leaf = c->node[c->leaf];
    int i = c->at[c->leaf], first = i, last = i;
    if (i == 0 || i + 1 >= leaf->n) {
        join_apart(p, c);
        return;
    }
    uint64_t off = leaf->off[i], bytes = size_of(leaf->len[i]);
    int64_t before = leaf->len[i - 1], behind = leaf->len[i + 1];
    if (behind > 0 && leaf->off[i + 1] == off + bytes) {
        hole_goes(p, off + bytes, (uint64_t)behind);
        bytes += (uint64_t)behind;
        last++;
    }
    if (before > 0 && leaf->off[i - 1] + (uint64_t)before == off) {
        off -= (uint64_t)before;
        hole_goes(p, off, (uint64_t)before);
        bytes += (uint64_t)before;
        first--;
    }
    symm_tree_unite(&p->tree, c, first, last - first + 1, (int64_t)bytes);
    hole_comes(p, off, bytes);
}

/* ---- ranges ---------------------------------------------------------------------------------------------------------- */

int symm_place_add(symm_place *p, uint64_t off, uint64_t bytes) {
    symm_cursor c, d;
    if (!is_range(off, bytes)) return -1;
    if (symm_tree_find(&p->tree, off, &c) && end_of(&c) > off) return -1;
    d = c;
    if (symm_tree_next(&d) && symm_cursor_off(&d) - off < bytes) return -1;
    if (reserve(p, 1)) return -1;
    /* As a block first: what joins blocks with holes does the rest. */
    if (!symm_tree_insert(&p->tree, &c, off, -(int64_t)bytes, 0) || c.at[c.leaf] < 0)
        seek(p, off, &c);
    else
        c.at[c.leaf]++;
    join(p, &c);
    return 0;
}

int symm_place_cut(symm_place *p, uint64_t off, uint64_t bytes) {
    symm_cursor c;
    if (!is_range(off, bytes) || !symm_tree_find(&p->tree, off, &c)) return -1;
    if (symm_cursor_len(&c) < 0 || end_of(&c) < off + bytes) return -1;
    if (reserve(p, 1)) return -1;
    carve(p, &c, off, bytes, 0, 0);
    return 0;
}

/* ---- taking ---------------------------------------------------------------------------------------------------------- */

/* Where a block of that alignment lies in [off, off+len); SYMM_PLACE_NONE if it does not. */
static inline uint64_t place_in(uint64_t off, uint64_t len, uint64_t bytes, uint64_t align) {
    uint64_t at = (off + align - 1) & -align;
    return at >= off && at - off <= len && bytes <= len - (at - off) ? at : SYMM_PLACE_NONE;
}

/* The lowest. Between two places where a block of that alignment could begin all holes are alike, too short, and skipped. */
static uint64_t first_fit(const symm_place *p, uint64_t bytes, uint64_t align, symm_cursor *c) {
    int found = symm_tree_fit(&p->tree, bytes, c);
    while (found) {
        uint64_t off = symm_cursor_off(c), end = end_of(c), next = (off + align - 1) & -align;
        uint64_t at = place_in(off, end - off, bytes, align);
        if (at != SYMM_PLACE_NONE) return at;
        if (next < off) break; /* no such place left below 2^64 */
        if (next >= end) symm_tree_find(&p->tree, next, c);
        if (end_of(c) <= next || symm_cursor_off(c) == off) found = symm_tree_next(c);
        found = found && symm_tree_fit_from(bytes, c);
    }
    return SYMM_PLACE_NONE;
}

/* The lowest of the smallest holes. */
static uint64_t best_fit(const symm_place *p, uint64_t bytes, uint64_t align, symm_cursor *c) {
    uint64_t len = bytes, off = 0;
    for (; symm_sizes_next(p->sizes, &len, &off); off++) {
        uint64_t at = place_in(off, len, bytes, align);
        if (at == SYMM_PLACE_NONE) continue;
        seek(p, off, c);
        return at;
    }
    return SYMM_PLACE_NONE;
}

uint64_t symm_place_take(symm_place *p, uint64_t bytes, uint64_t align, uint64_t tag, int *why) {
    symm_cursor c;
    int code = ENOSPC;
    uint64_t at = SYMM_PLACE_NONE;
    if (align < SYMM_PLACE_UNIT) align = SYMM_PLACE_UNIT;
    bytes = round_up(bytes);
    if (bytes) at = p->sizes ? best_fit(p, bytes, align, &c) : first_fit(p, bytes, align, &c);
    if (at != SYMM_PLACE_NONE && reserve(p, 2)) {
        code = ENOMEM;
        at = SYMM_PLACE_NONE;
    }
    if (at == SYMM_PLACE_NONE) {
        if (why) *why = code;
        return at;
    }
    carve(p, &c, at, bytes, -(int64_t)bytes, tag);
    block_comes(p, at, bytes);
    return at;
}

int symm_place_take_at(symm_place *p, uint64_t off, uint64_t bytes, uint64_t tag) {
    symm_cursor c;
    bytes = round_up(bytes);
    if (!is_range(off, bytes) || !symm_tree_find(&p->tree, off, &c)) return -1;
    if (symm_cursor_len(&c) < 0 || end_of(&c) < off + bytes) return -1;
    if (reserve(p, 2)) return -1;
    carve(p, &c, off, bytes, -(int64_t)bytes, tag);
    block_comes(p, off, bytes);
    return 0;
}

/* ---- blocks ---------------------------------------------------------------------------------------------------------- */

/* The bytes of the block that begins at off, with c on it; 0 if none does. */
static inline uint64_t find_block(const symm_place *p, uint64_t off, symm_cursor *c) {
    if (!symm_tree_find(&p->tree, off, c) || symm_cursor_off(c) != off) return 0;
    int64_t len = symm_cursor_len(c);
    return len < 0 ? (uint64_t)-len : 0;
}

uint64_t symm_place_give(symm_place *p, uint64_t off) {
    return symm_place_give_if(p, off, 0, 0, NULL);
}

uint64_t symm_place_give_if(symm_place *p, uint64_t off, uint64_t mask, uint64_t tag,
                            uint64_t *was) {
    symm_cursor c;
    uint64_t bytes = find_block(p, off, &c);
    if (!bytes || (*symm_cursor_tag(&c) & mask) != tag) return 0;
    if (was) *was = *symm_cursor_tag(&c);
    p->blocks--;
    p->used -= bytes;
    join(p, &c);
    return bytes;
}

/* pre: c is on the block at off of `was` bytes, which is to have fewer. */
static int shorten(symm_place *p, symm_cursor *c, uint64_t off, uint64_t was, uint64_t bytes) {
    symm_cursor d;
    uint64_t rest = was - bytes, len;
    if (hole_behind(c, &d, &len)) {
        hole_goes(p, off + was, len);
        symm_tree_set(c, -(int64_t)bytes);
        symm_tree_set(&d, (int64_t)(len + rest));
        symm_tree_move(&d, off + bytes);
        rest += len;
    } else {
        if (reserve(p, 1)) return -1;
        symm_tree_set(c, -(int64_t)bytes);
        symm_tree_insert(&p->tree, c, off + bytes, (int64_t)rest, 0);
    }
    hole_comes(p, off + bytes, rest);
    p->used -= was - bytes;
    return 0;
}

static int lengthen(symm_place *p, symm_cursor *c, uint64_t off, uint64_t was, uint64_t bytes) {
    symm_cursor d;
    uint64_t more = bytes - was, len;
    if (!hole_behind(c, &d, &len) || len < more) return -1;
    hole_goes(p, off + was, len);
    symm_tree_set(c, -(int64_t)bytes);
    if (len > more) {
        symm_tree_set(&d, (int64_t)(len - more));
        symm_tree_move(&d, off + bytes);
        hole_comes(p, off + bytes, len - more);
    } else {
        symm_tree_erase(&p->tree, &d);
    }
    p->used += more;
    block_ends(p, off + bytes);
    return 0;
}

int symm_place_resize(symm_place *p, uint64_t off, uint64_t bytes) {
    symm_cursor c;
    uint64_t was = find_block(p, off, &c);
    bytes = round_up(bytes);
    if (!was || !bytes) return -1;
    if (bytes == was) return 0;
    return bytes < was ? shorten(p, &c, off, was, bytes) : lengthen(p, &c, off, was, bytes);
}

int symm_place_split(symm_place *p, uint64_t off, uint64_t bytes) {
    symm_cursor c;
    uint64_t was = find_block(p, off, &c), tag = was ? *symm_cursor_tag(&c) : 0;
    if (bytes % SYMM_PLACE_UNIT || !bytes || bytes >= was || reserve(p, 1)) return -1;
    symm_tree_set(&c, -(int64_t)bytes);
    symm_tree_insert(&p->tree, &c, off + bytes, -(int64_t)(was - bytes), tag);
    p->blocks++;
    return 0;
}

uint64_t symm_place_block(const symm_place *p, uint64_t off, uint64_t *tag) {
    symm_cursor c;
    uint64_t bytes = find_block(p, off, &c);
    if (bytes && tag) *tag = *symm_cursor_tag(&c);
    return bytes;
}

void symm_place_set_tag(symm_place *p, uint64_t off, uint64_t tag) {
    symm_cursor c;
    if (find_block(p, off, &c)) *symm_cursor_tag(&c) = tag;
}

int symm_place_at(const symm_place *p, uint64_t off, symm_piece *piece) {
    symm_cursor c;
    int found = symm_tree_find(&p->tree, off, &c);
    if ((!found || end_of(&c) <= off) && !symm_tree_next(&c)) return 0;
    int64_t len = symm_cursor_len(&c);
    *piece = (symm_piece){.off = symm_cursor_off(&c),
                          .bytes = size_of(len),
                          .tag = len < 0 ? *symm_cursor_tag(&c) : 0,
                          .used = len < 0};
    return 1;
}

void symm_place_measure(const symm_place *p, symm_place_stats *s) {
    *s = (symm_place_stats){.free = p->free,
                            .used = p->used,
                            .largest = symm_tree_largest(&p->tree),
                            .peak = p->peak,
                            .peak_used = p->peak_used,
                            .blocks = p->blocks,
                            .holes = p->holes};
}
