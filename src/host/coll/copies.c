/* copies.c - see copies.h. No lock. */
#include "copies.h"

#include "base/check.h"
#include "host/comm/comm.h"
#include "host/window/window.h"

/* Bytes of a part. */
static uint64_t part_of(const symm_launch *l) {
    return l->call.count * l->call.esize;
}
static const symm_coll_row *row_of(const symm_launch *l) {
    return &symm_colls[l->call.coll];
}
static int is_rooted(const symm_launch *l) {
    return (row_of(l)->flags & SYMM_COLL_ROOT) != 0;
}
/* Bytes of a source. */
static uint64_t source_bytes(const symm_launch *l) {
    return part_of(l) * symm_holds_parts(row_of(l)->in, l->comm->nranks);
}

static int is_in_place(const symm_launch *l) {
    return row_of(l)->in == SYMM_COUNT && row_of(l)->out == SYMM_EACH &&
           (const char *)l->args.src == (char *)l->args.dst + (unsigned)l->comm->rank * part_of(l);
}

/* Where the source of this rank is, or that of the root is taken to be. */
static symm_win *find_source(const symm_launch *l, const void **at) {
    symm_comm *c = l->comm;
    const int in_place = is_in_place(l);
    *at = l->in && in_place ? l->args.dst : l->args.src;
    if (l->call.swapped) return NULL;
    if (l->in) return in_place ? l->dst_win : l->src_win;
    if (!is_rooted(l)) return NULL;
    symm_win *w = symm_window_at(c, l->args.src, source_bytes(l));
    if (!w) *at = l->args.dst;
    return w ? w : l->dst_win;
}

/* One word for the places of all ranks. Every step can be undone, and each bit reaches all others,
 * so that other places are another word. */
static uint64_t mix(uint64_t h, uint64_t place) {
    h ^= place;
    h = (h ^ h >> 30) * 0xbf58476d1ce4e5b9ull;
    h = (h ^ h >> 27) * 0x94d049bb133111ebull;
    return h ^ h >> 31;
}

/* Whether rank's window has these bytes, as far as this rank knows, and keeps them for as long as
 * this rank has the window. Of thread ranks only the owner maps a window's memory; what is behind a
 * heap is there until the last has left it. */
static int has(const symm_comm *c, const symm_win *w, int rank, uint64_t in, uint64_t bytes) {
    if (w->heap) return c->source->backed(w, rank, in, bytes);
    if (c->threads) return 0;
    return in <= w->size[rank] && bytes <= w->size[rank] - in;
}

void symm_copies_find(symm_launch *l) {
    const symm_comm *c = l->comm;
    const uint64_t bytes = source_bytes(l);
    const void *at;
    uint64_t word = 0;
    symm_win *w = bytes ? find_source(l, &at) : NULL;
    SYMM_ASSERT(symm_kernels[l->plan.kernel].copies && !l->from);
    l->args.flags |= SYMM_ARG_COPIES;
    l->args.scalar = 0;
    if (!w || (l->out && !l->dst_win && !c->launcher->copies_to(l->args.dst))) return;
    const uint64_t in = (uint64_t)((const char *)at - w->ptr), step = is_in_place(l) ? bytes : 0;
    for (int p = 0; p < c->nranks; p++) {
        if (!has(c, w, p, in + (unsigned)p * step, bytes)) return;
        word = mix(word, w->off[p] + in + (unsigned)p * step);
    }
    l->from = w;
    l->from_in = in;
    l->from_step = step;
    l->args.scalar = word ? word : 1;
}

/* Of the source of rank p, what this rank takes. */
static const char *taken(const symm_launch *l, int p) {
    const symm_comm *c = l->comm;
    const uint64_t each = row_of(l)->in == SYMM_EACH ? (unsigned)c->rank * part_of(l) : 0;
    SYMM_ASSERT(p != c->rank && l->from->comm == c);
    return (const char *)(uintptr_t)(c->base + (unsigned)p * c->stride + l->from->off[p] +
                                     l->from_in + (unsigned)p * l->from_step + each);
}
/* Where that goes. */
static char *target(const symm_launch *l, int p) {
    return (char *)l->args.dst + (row_of(l)->out == SYMM_EACH ? (unsigned)p * part_of(l) : 0);
}

void symm_copies_list(const symm_launch *l, symm_copies *out) {
    const symm_comm *c = l->comm;
    const uint64_t part = part_of(l);
    const char *own =
        (const char *)l->args.src + (row_of(l)->in == SYMM_EACH ? (unsigned)c->rank * part : 0);
    out->n = 0;
    out->own = (symm_copy){NULL, NULL, 0};
    if (!l->from) return;
    if (l->in && l->out && own != target(l, c->rank))
        out->own = (symm_copy){target(l, c->rank), own, part};
    for (int q = 1; q < c->nranks; q++) {
        const int p = (c->rank + q) % c->nranks;
        if (l->out && (!is_rooted(l) || p == l->call.root))
            out->peer[out->n++] = (symm_copy){target(l, p), taken(l, p), part};
    }
    SYMM_ASSERT(out->n < SYMM_MAX_RANKS && out->n <= c->nranks - 1);
}
