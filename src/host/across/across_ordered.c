/* across_ordered.c - SYMM_DETERMINISTIC=1: reductions over several domains with the bits of one
 * domain. Not partial results cross but what each rank contributes: every rank gets the
 * contributions of all to its piece, reduces them in rank order, and hands the result on. Each byte
 * crosses once for each rank, not once for each domain. The thread inside the communicator. */
#include "base/check.h"
#include "across.h"

typedef struct {
    const symm_across_call *a;
    symm_coll k; /* of the calls that it is made of */
    symm_extent *to, *from;
    /* In the stage: each rank's factor, contributions to the own piece, its result, for reduce. */
    uint64_t *scalars;
    char *gathered, *result;
    size_t most; /* elements of a step */
    int scatters, rooted;
} ordered;

/* Elements of rank q's piece of a step that begins at `at`, and where it lies in the source. */
static size_t piece_of(const ordered *o, int q, size_t at, size_t n, size_t *place) {
    const symm_across_call *a = o->a;
    const size_t ranks = (size_t)a->s->map.nranks;
    if (o->scatters) {
        const size_t all = a->to[q].bytes / a->esize, left = all > at ? all - at : 0;
        SYMM_ASSERT(a->to[q].bytes % a->esize == 0);
        *place = a->to[q].at + at * a->esize;
        return left < n ? left : n;
    }
    const size_t lo = n * (size_t)q / ranks, hi = n * (size_t)(q + 1) / ranks;
    *place = (at + lo) * a->esize;
    return hi - lo;
}

static symmResult_t exchange(ordered *o, const void *src, void *dst,
                             symmResult_t (*how)(const symm_across_call *)) {
    symm_across_call sub = *o->a;
    o->k.src = src;
    o->k.dst = dst;
    SYMM_ASSERT(src != dst || how == symm_across_all_gather_straight);
    sub.k = &o->k;
    sub.to = o->to;
    sub.from = o->from;
    return how(&sub);
}

/* Each rank's factor, of a reduction that a user made. */
static symmResult_t share_scalars(ordered *o) {
    const symm_domains *d = &o->a->s->map;
    if (!o->a->scaled) return symmSuccess;
    SYMM_TRY(symm_cross_scalar(o->a, &o->scalars[d->rank]));
    for (int q = 0; q < d->nranks; q++) {
        o->to[q] = (symm_extent){0, sizeof *o->scalars};
        o->from[q] = (symm_extent){(unsigned)q * sizeof *o->scalars, sizeof *o->scalars};
    }
    return exchange(o, &o->scalars[d->rank], o->scalars, symm_across_all_gather_straight);
}

static symmResult_t contribute(ordered *o, size_t at, size_t n, size_t own) {
    const symm_across_call *a = o->a;
    for (int q = 0; q < a->s->map.nranks; q++) {
        size_t place, len = piece_of(o, q, at, n, &place) * a->esize;
        o->to[q] = (symm_extent){place, len};
        o->from[q] = (symm_extent){(unsigned)q * own * a->esize, own * a->esize};
    }
    return exchange(o, a->k->src, o->gathered, symm_across_alltoall);
}

/* The result of each rank's piece to where it belongs: to all, or to the root. */
static symmResult_t hand_on(ordered *o, size_t at, size_t n, const char *own) {
    const symm_across_call *a = o->a;
    const symm_domains *d = &a->s->map;
    for (int q = 0; q < d->nranks; q++) {
        size_t place, len = piece_of(o, q, at, n, &place) * a->esize, mine;
        const size_t sent = piece_of(o, d->rank, at, n, &mine) * a->esize;
        const int gives = !o->rooted || q == a->k->root,
                  takes = !o->rooted || d->rank == a->k->root;
        o->to[q] = (symm_extent){0, gives ? sent : 0};
        o->from[q] = (symm_extent){place, takes ? len : 0};
    }
    return exchange(o, own, a->k->dst,
                    o->rooted ? symm_across_alltoall : symm_across_all_gather_straight);
}

static symmResult_t step(ordered *o, size_t at, size_t n) {
    const symm_across_call *a = o->a;
    const symm_domains *d = &a->s->map;
    size_t place;
    const size_t own = piece_of(o, d->rank, at, n, &place);
    char *result = o->rooted     ? o->result
                   : o->scatters ? (char *)a->k->dst + at * a->esize
                                 : (char *)a->k->dst + place;
    SYMM_ASSERT(!o->scatters || !o->rooted);
    SYMM_TRY(contribute(o, at, n, own));
    SYMM_TRY(symm_cross_reduce(a, result, o->gathered, own, o->scalars));
    return o->scatters ? symmSuccess : hand_on(o, at, n, result);
}

/* So many elements has a rank's piece of a step at most: those of all ranks and a result are in the
 * stage, which on GPUs is as large as a chunk. */
static size_t piece_most(const symm_across_call *a) {
    const size_t n = (size_t)a->s->map.nranks, most = (a->s->chunk - n * 8) / (n + 1) / a->esize;
    SYMM_ASSERT(a->s->chunk > n * 64 && most > 1);
    return most;
}

static symmResult_t lay_out(ordered *o, size_t piece) {
    const symm_across *s = o->a->s;
    const size_t n = (size_t)s->map.nranks, bytes = n * sizeof *o->scalars + (n + 1) * piece;
    char *stage;
    SYMM_TRY(symm_across_stage(o->a->s, bytes, &stage));
    o->to = s->parts + 2 * n;
    o->from = o->to + n;
    o->scalars = (uint64_t *)(void *)stage;
    o->gathered = stage + n * sizeof *o->scalars;
    o->result = o->gathered + n * piece;
    SYMM_ASSERT((size_t)(o->result + piece - stage) == bytes);
    return symmSuccess;
}

symmResult_t symm_across_ordered(const symm_across_call *a) {
    const symm_domains *d = &a->s->map;
    const symm_coll_row *row = &symm_colls[a->k->coll];
    ordered o = {.a = a,
                 .k = *a->k,
                 .scatters = row->in != SYMM_COUNT,
                 .rooted = (row->flags & SYMM_COLL_ROOT) != 0};
    const size_t ranks = (size_t)d->nranks;
    size_t longest = a->k->count, piece = piece_most(a), most = piece;
    if (o.scatters) {
        longest = 0;
        for (int q = 0; q < d->nranks; q++)
            if (a->to[q].bytes / a->esize > longest) longest = a->to[q].bytes / a->esize;
    } else {
        most = (piece - 1) * ranks;
    }
    if (most > longest) {
        most = longest;
        piece = o.scatters ? most : most / ranks + 1;
    }
    SYMM_TRY(lay_out(&o, piece * a->esize));
    SYMM_TRY(share_scalars(&o));
    for (size_t at = 0; at < longest; at += most)
        SYMM_TRY(step(&o, at, longest - at < most ? longest - at : most));
    return symmSuccess;
}
