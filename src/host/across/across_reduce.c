/* across_reduce.c - reductions over several domains: reduced inside each domain, then the partial
 * results cross and are reduced in the order of domains. So all ranks have the same bits. Large
 * ones go by chunks. The thread inside the communicator.
 *
 * Of a chunk each rail has a slice: rank s of each domain the slice s. What is reduced inside goes
 * to the slice's rank, and only slices cross, so that all links are used. */
#include <string.h>

#include "base/check.h"
#include "device/host/reduce.h"
#include "across.h"

/* Up to here each rank of a domain has the whole partial result, and takes that of the other
 * domains: one step inside less (docs/performance.md). On GPUs a step is a launch. */
enum { SMALL_BYTES = 8192, GPU_SMALL_BYTES = 64 << 10 };
/* On the host backend: a reduce up to here is one step inside, and one message from each other
 * domain; a reduce_scatter whose source is no larger is an all_reduce inside. */
enum { SMALL_REDUCE_BYTES = 32 << 10, SMALL_SCATTER_BYTES = 8192 };
/* From here on a slice is reduced in parts, one by each domain: less crosses where domains are more
 * than two. */
enum { PARTED_BYTES = 65536 };

typedef struct { /* elements */
    size_t at, n;
} piece;

/* Piece i of n of `count` elements, cut at whole cache lines. */
static piece cut(size_t count, int i, int n, size_t esize) {
    const size_t unit = 64 / esize, units = (count + unit - 1) / unit;
    size_t lo = units * (size_t)i / (size_t)n * unit,
           hi = units * (size_t)(i + 1) / (size_t)n * unit;
    SYMM_ASSERT(esize && i >= 0 && i < n);
    if (lo > count) lo = count;
    if (hi > count) hi = count;
    return (piece){lo, hi - lo};
}

static size_t chunk_of(const symm_across_call *a, size_t left) {
    const size_t most = a->s->chunk / a->esize;
    return left < most ? left : most;
}

/* The slices' sizes for a call inside; the own one is returned. */
static piece cut_chunk(const symm_across_call *a, size_t count) {
    const symm_across *s = a->s;
    const symm_domains *d = &s->map;
    piece own = {count, 0};
    for (int i = 0; i < d->size; i++) {
        const piece p = i < d->least ? cut(count, i, d->least, a->esize) : (piece){count, 0};
        s->counts[i] = p.n;
        if (i == d->place) own = p;
    }
    SYMM_ASSERT(own.at + own.n <= count && (own.n == 0 || symm_domain_is_rail(d)));
    return own;
}

/* others[e]: memory for so many bytes from each other domain, at the stage. */
static void set_others(const symm_across *s, char *stage, size_t bytes) {
    for (int e = 0; e + 1 < s->map.ndomains; e++) s->others[e] = stage + (size_t)e * bytes;
    SYMM_ASSERT(s->gpu || (size_t)(s->map.ndomains - 1) * bytes <= s->staged);
}

/* ---- all_reduce ------------------------------------------------------------------------------ */

static symmResult_t all_reduce_small(const symm_across_call *a) {
    const symm_across *s = a->s;
    const symm_domains *d = &s->map;
    const symm_coll *k = a->k;
    char *stage;
    SYMM_TRY(symm_across_stage(a->s, (size_t)(d->ndomains - 1) * a->bytes, &stage));
    set_others(s, stage, a->bytes);
    SYMM_TRY(symmAllReduce(k->src, k->dst, k->count, (symmDataType_t)k->type, a->op, s->outer.inner,
                           a->stream));
    for (int e = 0, i = 0; e < d->ndomains; e++)
        if (e != d->domain)
            SYMM_TRY(symm_cross_receive(a, symm_domain_partner(d, e), s->others[i++], a->bytes));
    for (int q = 0; q < d->nranks; q++)
        if (d->domain_of[q] != d->domain && symm_domain_stand_in(d, q) == d->place)
            SYMM_TRY(symm_cross_send(a, q, k->dst, a->bytes));
    SYMM_TRY(symm_cross_finish(a->s));
    return symm_cross_join(a, k->dst, s->others, k->count);
}

/* A slice's messages on its rail. parted: each domain's rank reduces one part of it; else each
 * reduces all. slice: where its first byte is. */
static symmResult_t rail_begin(const symm_across_call *a, char *slice, size_t n, int parted) {
    const symm_across *s = a->s;
    const symm_domains *d = &s->map;
    const piece all = {0, n}, own = parted ? cut(n, d->domain, d->ndomains, a->esize) : all;
    for (int e = 0, i = 0; e < d->ndomains; e++) {
        const piece theirs = parted ? cut(n, e, d->ndomains, a->esize) : all;
        if (e == d->domain) continue;
        const int rank = symm_domain_rank(d, e, d->place);
        SYMM_TRY(symm_cross_receive(a, rank, s->others[i++], own.n * a->esize));
        SYMM_TRY(symm_cross_send(a, rank, slice + theirs.at * a->esize, theirs.n * a->esize));
    }
    return symmSuccess;
}

static symmResult_t rail_end(const symm_across_call *a, char *slice, size_t n, int parted) {
    const symm_across *s = a->s;
    const symm_domains *d = &s->map;
    const piece own = parted ? cut(n, d->domain, d->ndomains, a->esize) : (piece){0, n};
    SYMM_ASSERT(symm_domain_is_rail(d) && (!parted || d->ndomains > 2));
    SYMM_TRY(symm_cross_finish(a->s));
    SYMM_TRY(symm_cross_join(a, slice + own.at * a->esize, s->others, own.n));
    if (!parted) return symmSuccess;
    for (int e = 0; e < d->ndomains; e++) {
        const piece theirs = cut(n, e, d->ndomains, a->esize);
        if (e == d->domain) continue;
        const int rank = symm_domain_rank(d, e, d->place);
        SYMM_TRY(symm_cross_receive(a, rank, slice + theirs.at * a->esize, theirs.n * a->esize));
        SYMM_TRY(symm_cross_send(a, rank, slice + own.at * a->esize, own.n * a->esize));
    }
    return symm_cross_finish(a->s);
}

typedef struct {
    size_t at, n; /* the chunk */
    piece own;    /* within it */
} chunk;

static symmResult_t reduce_inside(const symm_across_call *a, chunk *c) {
    const symm_coll *k = a->k;
    c->own = cut_chunk(a, c->n);
    const char *src = (const char *)k->src + c->at * a->esize;
    char *own = (char *)k->dst + (c->at + c->own.at) * a->esize;
    return symmReduceScatterv(src, own, a->s->counts, (symmDataType_t)k->type, a->op,
                              a->s->outer.inner, a->stream);
}

static symmResult_t gather_inside(const symm_across_call *a, const chunk *c) {
    char *dst = (char *)a->k->dst + c->at * a->esize;
    (void)cut_chunk(a, c->n); /* the counts are those of another chunk by now */
    return symmAllGatherv(dst + c->own.at * a->esize, c->own.n, dst, a->s->counts, NULL,
                          (symmDataType_t)a->k->type, a->s->outer.inner, a->stream);
}

/* A chunk crosses while the next one is reduced and the one before is spread. */
static symmResult_t all_reduce_large(const symm_across_call *a) {
    const symm_domains *d = &a->s->map;
    const symm_coll *k = a->k;
    const int rail = symm_domain_is_rail(d);
    const piece widest = cut(chunk_of(a, k->count), 0, d->least, a->esize);
    const size_t room = (widest.n + 64 / a->esize) * a->esize;
    const int parted = d->ndomains > 2 && room >= PARTED_BYTES;
    char *stage;
    chunk now = {0, chunk_of(a, k->count), {0, 0}}, last = {0, 0, {0, 0}};
    SYMM_TRY(symm_across_stage(a->s, (size_t)(d->ndomains - 1) * room, &stage));
    set_others(a->s, stage, room);
    for (;;) {
        char *before = (char *)k->dst + (last.at + last.own.at) * a->esize;
        if (now.n) SYMM_TRY(reduce_inside(a, &now));
        if (last.n && rail) SYMM_TRY(rail_end(a, before, last.own.n, parted));
        char *slice = (char *)k->dst + (now.at + now.own.at) * a->esize;
        if (now.n && rail) SYMM_TRY(rail_begin(a, slice, now.own.n, parted));
        if (last.n) SYMM_TRY(gather_inside(a, &last));
        if (!now.n) return symmSuccess;
        last = now;
        now.at += now.n;
        now.n = chunk_of(a, k->count - now.at);
    }
}

/* The same on all ranks: of the call, and of how many domains there are. */
static int is_small(const symm_across_call *a, size_t most) {
    return a->bytes <= most && a->bytes <= a->s->chunk / (size_t)a->s->map.ndomains;
}

symmResult_t symm_across_all_reduce(const symm_across_call *a) {
    return is_small(a, a->s->gpu ? GPU_SMALL_BYTES : SMALL_BYTES) ? all_reduce_small(a)
                                                                  : all_reduce_large(a);
}

/* ---- reduce ---------------------------------------------------------------------------------- */

/* The root gets the slices of its domain's rails. */
static symmResult_t collect(const symm_across_call *a, size_t at, size_t count, piece own,
                            const char *slice) {
    const symm_domains *d = &a->s->map;
    const symmComm_t inner = a->s->outer.inner;
    const int root = d->place_of[a->k->root];
    SYMM_ASSERT(d->domain_of[a->k->root] == d->domain);
    char *dst = (char *)a->k->dst + at * a->esize;
    if (d->place == root && own.n)
        SYMM_TRY(symm_cross_copy(a->s, dst + own.at * a->esize, slice, own.n * a->esize));
    SYMM_TRY(symmGroupStart());
    if (d->place != root && own.n)
        symmSend(slice, own.n * a->esize, symmUint8, root, inner, a->stream);
    for (int i = 0; i < d->least && d->place == root; i++) {
        const piece theirs = cut(count, i, d->least, a->esize);
        if (i != root && theirs.n)
            symmRecv(dst + theirs.at * a->esize, theirs.n * a->esize, symmUint8, i, inner,
                     a->stream);
    }
    return symmGroupEnd(); /* what one of the calls said */
}

static symmResult_t reduce_chunk(const symm_across_call *a, size_t at, size_t count, char *slice) {
    const symm_across *s = a->s;
    const symm_domains *d = &s->map;
    const symm_coll *k = a->k;
    const int at_root = d->domain_of[k->root] == d->domain;
    const piece own = cut_chunk(a, count);
    SYMM_TRY(symmReduceScatterv((const char *)k->src + at * a->esize, slice, s->counts,
                                (symmDataType_t)k->type, a->op, s->outer.inner, a->stream));
    for (int e = 0, i = 0; e < d->ndomains && symm_domain_is_rail(d) && at_root; e++)
        if (e != d->domain)
            SYMM_TRY(symm_cross_receive(a, symm_domain_rank(d, e, d->place), s->others[i++],
                                        own.n * a->esize));
    if (symm_domain_is_rail(d) && !at_root)
        SYMM_TRY(symm_cross_send(a, symm_domain_rank(d, d->domain_of[k->root], d->place), slice,
                                 own.n * a->esize));
    SYMM_TRY(symm_cross_finish(a->s));
    if (!at_root) return symmSuccess;
    if (symm_domain_is_rail(d)) SYMM_TRY(symm_cross_join(a, slice, s->others, own.n));
    return collect(a, at, count, own, slice);
}

/* Inside to the root, or to the rank that stands for it, which sends it there: nobody but these
 * waits. */
static symmResult_t reduce_small(const symm_across_call *a) {
    const symm_across *s = a->s;
    const symm_domains *d = &s->map;
    const symm_coll *k = a->k;
    const int at_root = d->domain_of[k->root] == d->domain, to = symm_domain_stand_in(d, k->root);
    char *stage, *partial;
    SYMM_ASSERT(to >= 0 && to < d->size && (d->rank != k->root || d->place == to));
    SYMM_TRY(symm_across_stage(a->s, (size_t)d->ndomains * a->bytes, &stage));
    set_others(s, stage + a->bytes, a->bytes);
    partial = d->rank == k->root ? k->dst : d->place == to ? stage : NULL;
    SYMM_TRY(symmReduce(k->src, partial, k->count, (symmDataType_t)k->type, a->op, to,
                        s->outer.inner, a->stream));
    for (int e = 0, i = 0; e < d->ndomains && d->rank == k->root; e++)
        if (e != d->domain)
            SYMM_TRY(symm_cross_receive(a, symm_domain_partner(d, e), s->others[i++], a->bytes));
    if (!at_root && d->place == to) SYMM_TRY(symm_cross_send(a, k->root, partial, a->bytes));
    SYMM_TRY(symm_cross_finish(a->s));
    return d->rank == k->root ? symm_cross_join(a, k->dst, s->others, k->count) : symmSuccess;
}

static symmResult_t reduce_large(const symm_across_call *a) {
    const symm_domains *d = &a->s->map;
    const piece widest = cut(chunk_of(a, a->k->count), 0, d->least, a->esize);
    const size_t room = (widest.n + 64 / a->esize) * a->esize;
    char *stage;
    SYMM_TRY(symm_across_stage(a->s, (size_t)d->ndomains * room, &stage));
    set_others(a->s, stage + room, room);
    for (size_t at = 0, n; at < a->k->count; at += n) {
        n = chunk_of(a, a->k->count - at);
        SYMM_TRY(reduce_chunk(a, at, n, stage));
    }
    return symmSuccess;
}

symmResult_t symm_across_reduce(const symm_across_call *a) {
    const int small = !a->s->gpu && is_small(a, SMALL_REDUCE_BYTES);
    return small ? reduce_small(a) : reduce_large(a);
}

/* ---- reduce_scatter -------------------------------------------------------------------------- */

/* Elements [at, at + most) of the part for a rank, as many as it has of these. */
static size_t column(const symm_across_call *a, int rank, size_t at, size_t most) {
    const size_t all = a->to[rank].bytes / a->esize;
    const size_t left = all > at ? all - at : 0;
    return left < most ? left : most;
}

/* Each part is reduced inside to the rank that stands for its own, which sends it there. */
static symmResult_t reduce_column(const symm_across_call *a, size_t at, size_t most, char *stage) {
    const symm_across *s = a->s;
    const symm_domains *d = &s->map;
    const symm_coll *k = a->k;
    char *dst = (char *)k->dst + at * a->esize;
    const size_t room = most * a->esize;
    char *slot = stage + (size_t)(d->ndomains - 1) * room;
    set_others(s, stage, room);
    SYMM_TRY(symmGroupStart());
    for (int q = 0; q < d->nranks; q++) {
        const int to = symm_domain_stand_in(d, q);
        const size_t n = column(a, q, at, most);
        char *here = q == d->rank ? dst : to == d->place ? slot : NULL;
        if (q != d->rank && to == d->place) slot += room;
        if (n)
            symmReduce((const char *)k->src + a->to[q].at + at * a->esize, here, n,
                       (symmDataType_t)k->type, a->op, to, s->outer.inner, a->stream);
    }
    SYMM_TRY(symmGroupEnd()); /* what one of the calls said */
    slot = stage + (size_t)(d->ndomains - 1) * room;
    for (int q = 0; q < d->nranks; q++) {
        if (d->domain_of[q] == d->domain || symm_domain_stand_in(d, q) != d->place) continue;
        SYMM_TRY(symm_cross_send(a, q, slot, column(a, q, at, most) * a->esize));
        slot += room;
    }
    SYMM_ASSERT(s->gpu || slot <= stage + s->staged);
    const size_t own = column(a, d->rank, at, most);
    for (int e = 0, i = 0; e < d->ndomains; e++)
        if (e != d->domain)
            SYMM_TRY(
                symm_cross_receive(a, symm_domain_partner(d, e), s->others[i++], own * a->esize));
    SYMM_TRY(symm_cross_finish(a->s));
    return symm_cross_join(a, dst, s->others, own);
}

/* Each rank of a domain has all of the partial result, and sends the parts that it stands for. */
static symmResult_t reduce_scatter_small(const symm_across_call *a, size_t all) {
    const symm_across *s = a->s;
    const symm_domains *d = &s->map;
    const symm_extent own = a->to[d->rank];
    char *stage;
    SYMM_ASSERT(all % a->esize == 0 && own.at % a->esize == 0);
    SYMM_TRY(symm_across_stage(a->s, all + (size_t)(d->ndomains - 1) * own.bytes, &stage));
    set_others(s, stage + all, own.bytes);
    SYMM_TRY(symmAllReduce(a->k->src, stage, all / a->esize, (symmDataType_t)a->k->type, a->op,
                           s->outer.inner, a->stream));
    for (int e = 0, i = 0; e < d->ndomains; e++)
        if (e != d->domain)
            SYMM_TRY(symm_cross_receive(a, symm_domain_partner(d, e), s->others[i++], own.bytes));
    for (int q = 0; q < d->nranks; q++)
        if (d->domain_of[q] != d->domain && symm_domain_stand_in(d, q) == d->place)
            SYMM_TRY(symm_cross_send(a, q, stage + a->to[q].at, a->to[q].bytes));
    if (own.bytes) SYMM_TRY(symm_cross_copy(s, a->k->dst, stage + own.at, own.bytes));
    SYMM_TRY(symm_cross_finish(a->s));
    return symm_cross_join(a, a->k->dst, s->others, own.bytes / a->esize);
}

symmResult_t symm_across_reduce_scatter(const symm_across_call *a) {
    const symm_domains *d = &a->s->map;
    int slots = d->ndomains - 1;
    size_t longest = 0;
    char *stage;
    const size_t all = symm_counts_end(a->to, d->nranks);
    if (!a->s->gpu && all <= SMALL_SCATTER_BYTES) return reduce_scatter_small(a, all);
    for (int q = 0; q < d->nranks; q++) {
        slots += d->domain_of[q] != d->domain && symm_domain_stand_in(d, q) == d->place;
        if (a->to[q].bytes / a->esize > longest) longest = a->to[q].bytes / a->esize;
    }
    /* Equal on all ranks: of the ranks and the longest part alone. */
    size_t most = a->s->chunk / a->esize / (size_t)d->nranks;
    if (most > longest) most = longest;
    if (!most) most = 1;
    SYMM_TRY(symm_across_stage(a->s, (size_t)slots * most * a->esize, &stage));
    for (size_t at = 0; at < longest; at += most) SYMM_TRY(reduce_column(a, at, most, stage));
    return symmSuccess;
}
