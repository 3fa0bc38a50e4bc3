/* place.c - the placement engines of place.h: makes, ends and counts them, and passes each call to
 * the narrow or the wide one of place_engine.h. An engine is narrow until it gets a range that ends
 * too high for that. The thread that has the owner's lock. */
#include "place.h"

#include <stdlib.h>

#include "base/check.h"
#include "base/fail.h"
#include "place_engine.h"

symm_place *symm_place_new(int fit) {
    symm_place *p = SYMM_FAIL_ALLOC(place_alloc, calloc(1, sizeof *p));
    if (!p) return NULL;
    if (fit == SYMM_PLACE_BEST &&
        !(p->sizes = SYMM_FAIL_ALLOC(place_classes, calloc(1, sizeof *p->sizes))))
        goto free_record;
    if (symm_narrow_open(&p->tree)) goto free_sizes;
    return p;
free_sizes:
    free(p->sizes);
free_record:
    free(p);
    return NULL;
}

static void close_parts(symm_place *p) {
    if (p->wide)
        symm_wide_close(&p->tree);
    else
        symm_narrow_close(&p->tree);
    if (p->sizes) symm_sizes_close(p->sizes);
    free(p->sizes);
}

void symm_place_end(symm_place *p) {
    if (!p) return;
    p->unchecked = UINT64_MAX - 2; /* the check below looks at all pieces */
    SYMM_CHECK(symm_place_check(p));
    close_parts(p);
    free(p);
}

/* ---- from narrow to wide --------------------------------------------------------------------- */

/* All pieces of p into w, which is wide and empty. -1: no memory. */
static int copy_pieces(const symm_place *p, symm_place *w) {
    symm_piece q;
    for (uint64_t at = 0; symm_narrow_at(p, at, &q); at = q.off + q.bytes) {
        if (symm_wide_add(w, q.off, q.bytes)) return -1;
        if (q.used && symm_wide_take_at(w, q.off, q.bytes, q.tag)) return -1;
    }
    w->peak = p->peak;
    w->peak_used = p->peak_used;
    return 0;
}

/* -1: no memory; nothing changed. */
static int widen(symm_place *p) {
    symm_place w = {.wide = 1};
    if (p->sizes && !(w.sizes = SYMM_FAIL_ALLOC(place_classes, calloc(1, sizeof *w.sizes))))
        return -1;
    if (symm_wide_open(&w.tree)) goto free_sizes;
    if (copy_pieces(p, &w)) goto close_all;
    close_parts(p);
    *p = w;
    return 0;
close_all:
    close_parts(&w);
    return -1;
free_sizes:
    free(w.sizes);
    return -1;
}

/* ---- the calls ------------------------------------------------------------------------------- */

#define CALL(p, name, ...)                                          \
    (__builtin_expect((p)->wide, 0) ? symm_wide_##name(__VA_ARGS__) \
                                    : symm_narrow_##name(__VA_ARGS__))

/* Body of a function that changes p: calls the engine and returns what it returns. */
#define CHANGE(p, type, name, ...)                      \
    do {                                                \
        SYMM_CHECK(symm_place_check(p));                \
        const type result = CALL(p, name, __VA_ARGS__); \
        SYMM_CHECK(symm_place_check(p));                \
        return result;                                  \
    } while (0)

#ifdef SYMM_TESTING
/* A call checks numbers only. In many more calls than there are pieces, and at the end, all pieces
 * are checked once. */
void symm_place_check(symm_place *p) {
    SYMM_ASSERT(!p->free == !p->holes);
    SYMM_ASSERT(!p->used == !p->blocks);
    SYMM_ASSERT(p->free >= p->holes && p->used >= p->blocks);
    SYMM_ASSERT(p->used <= p->peak_used);
    SYMM_ASSERT(p->used <= p->peak);
    if (++p->unchecked < 16 * (p->blocks + p->holes)) return;
    p->unchecked = 0;
    if (p->wide)
        symm_wide_check(p);
    else
        symm_narrow_check(p);
}
#endif

int symm_place_add(symm_place *p, uint64_t off, uint64_t bytes) {
    if (!symm_place_is_range(off, bytes)) return -1;
    if (!p->wide && off + bytes > SYMM_NARROW_END && widen(p)) return -1;
    CHANGE(p, int, add, p, off, bytes);
}

int symm_place_cut(symm_place *p, uint64_t off, uint64_t bytes) {
    CHANGE(p, int, cut, p, off, bytes);
}

uint64_t symm_place_take(symm_place *p, uint64_t bytes, uint64_t align, uint64_t tag, int *why) {
    CHANGE(p, uint64_t, take, p, bytes, align, tag, why);
}

int symm_place_take_at(symm_place *p, uint64_t off, uint64_t bytes, uint64_t tag) {
    CHANGE(p, int, take_at, p, off, bytes, tag);
}

uint64_t symm_place_give(symm_place *p, uint64_t off) {
    CHANGE(p, uint64_t, give_if, p, off, 0, 0, NULL);
}

uint64_t symm_place_give_if(symm_place *p, uint64_t off, uint64_t mask, uint64_t tag,
                            uint64_t *was) {
    CHANGE(p, uint64_t, give_if, p, off, mask, tag, was);
}

int symm_place_resize(symm_place *p, uint64_t off, uint64_t bytes) {
    CHANGE(p, int, resize, p, off, bytes);
}

int symm_place_split(symm_place *p, uint64_t off, uint64_t bytes) {
    CHANGE(p, int, split, p, off, bytes);
}

uint64_t symm_place_block(const symm_place *p, uint64_t off, uint64_t *tag) {
    return CALL(p, block, p, off, tag);
}

void symm_place_set_tag(symm_place *p, uint64_t off, uint64_t tag) {
    CALL(p, set_tag, p, off, tag);
}

int symm_place_at(const symm_place *p, uint64_t off, symm_piece *piece) {
    return CALL(p, at, p, off, piece);
}

void symm_place_measure(const symm_place *p, symm_place_stats *s) {
    *s = (symm_place_stats){.free = p->free * SYMM_PLACE_UNIT,
                            .used = p->used * SYMM_PLACE_UNIT,
                            .largest = CALL(p, largest, p) * SYMM_PLACE_UNIT,
                            .peak = p->peak * SYMM_PLACE_UNIT,
                            .peak_used = p->peak_used * SYMM_PLACE_UNIT,
                            .blocks = p->blocks,
                            .holes = p->holes};
}
