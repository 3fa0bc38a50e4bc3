/* across_move.c - collectives that only move data, over several domains. What crosses is sent from
 * where it lies to where it belongs, once for each domain that needs it; the rest is inside. The
 * thread inside the communicator. */
#include <string.h>

#include "base/check.h"
#include "across.h"

static int is_inside(const symm_domains *d, int rank) {
    return d->domain_of[rank] == d->domain;
}

/* Up to so many bytes of result, on the host backend, each rank packs its own part and those that
 * come to it, and the ranks of a domain exchange what they have packed: one step inside, where
 * broadcasts of all parts take several. */
enum { PACKED_BYTES = 16384 };

/* packed[place]: where what the place has begins in the stage; counts[place]: so many bytes. */
static void lay_out_packed(const symm_across_call *a, char *stage) {
    const symm_across *s = a->s;
    const symm_domains *d = &s->map;
    for (int i = 0; i < d->size; i++) s->counts[i] = 0;
    for (int q = 0; q < d->nranks; q++) s->counts[symm_domain_stand_in(d, q)] += a->from[q].bytes;
    for (int i = 0; i < d->size; i++) {
        s->packed[i] = stage;
        stage += s->counts[i];
    }
}

/* Where the part of rank q is. For all ranks in their order. */
static char *next_packed(const symm_across_call *a, int q) {
    char **at = &a->s->packed[symm_domain_stand_in(&a->s->map, q)], *part = *at;
    *at += a->from[q].bytes;
    return part;
}

static symmResult_t send_own(const symm_across_call *a, const char *own) {
    const symm_domains *d = &a->s->map;
    for (int e = 0; e < d->ndomains; e++)
        if (e != d->domain)
            SYMM_TRY(symm_cross_send(a, symm_domain_partner(d, e), own, a->to[d->rank].bytes));
    return symmSuccess;
}

static symmResult_t all_gather_packed(const symm_across_call *a, size_t all) {
    const symm_across *s = a->s;
    const symm_domains *d = &s->map;
    const char *own = (const char *)a->k->src + a->to[d->rank].at;
    char *stage, *dst = a->k->dst;
    SYMM_ASSERT(a->to[d->rank].bytes == a->from[d->rank].bytes);
    SYMM_TRY(symm_across_stage(a->s, all, &stage));
    lay_out_packed(a, stage);
    SYMM_ASSERT(s->packed[d->size - 1] + s->counts[d->size - 1] == stage + all);
    for (int q = 0; q < d->nranks; q++) {
        char *part = next_packed(a, q);
        if (q == d->rank && a->from[q].bytes) memcpy(part, own, a->from[q].bytes);
        if (!is_inside(d, q) && symm_domain_stand_in(d, q) == d->place)
            SYMM_TRY(symm_cross_receive(a, q, part, a->from[q].bytes));
    }
    SYMM_TRY(send_own(a, own));
    SYMM_TRY(symm_cross_finish(a->s));
    lay_out_packed(a, stage);
    SYMM_TRY(symmAllGatherv(s->packed[d->place], s->counts[d->place], stage, s->counts, NULL,
                            symmUint8, s->outer.inner, a->stream));
    for (int q = 0; q < d->nranks; q++) {
        const char *part = next_packed(a, q);
        if (a->from[q].bytes) memcpy(dst + a->from[q].at, part, a->from[q].bytes);
    }
    return symmSuccess;
}

/* The parts of the other domains come first, one copy for each domain; then each rank that has one
 * spreads it. */
symmResult_t symm_across_all_gather_straight(const symm_across_call *a) {
    const symm_domains *d = &a->s->map;
    char *dst = a->k->dst;
    const char *own = (const char *)a->k->src + a->to[d->rank].at;
    SYMM_ASSERT(a->to[d->rank].bytes == a->from[d->rank].bytes);
    for (int q = 0; q < d->nranks; q++)
        if (!is_inside(d, q) && symm_domain_stand_in(d, q) == d->place)
            SYMM_TRY(symm_cross_receive(a, q, dst + a->from[q].at, a->from[q].bytes));
    SYMM_TRY(send_own(a, own));
    SYMM_TRY(symm_cross_finish(a->s));
    SYMM_TRY(symmGroupStart());
    for (int q = 0; q < d->nranks; q++) {
        char *to = dst + a->from[q].at;
        if (a->from[q].bytes)
            symmBroadcast(q == d->rank ? own : to, to, a->from[q].bytes, symmUint8,
                          symm_domain_stand_in(d, q), a->s->outer.inner, a->stream);
    }
    return symmGroupEnd(); /* what one of the calls said */
}

symmResult_t symm_across_all_gather(const symm_across_call *a) {
    uint64_t all = 0;
    for (int q = 0; q < a->s->map.nranks; q++) all += a->from[q].bytes;
    return !a->s->gpu && all <= PACKED_BYTES ? all_gather_packed(a, all)
                                             : symm_across_all_gather_straight(a);
}

/* On GPUs, where the stage is not as large as the source may be: piece by piece of all parts, which
 * arrive in the stage. Only calls without a count per rank are in place. */
static symmResult_t alltoall_in_place(const symm_across_call *a) {
    const symm_domains *d = &a->s->map;
    const symmComm_t inner = a->s->outer.inner;
    const size_t most = a->s->chunk / (size_t)d->nranks & ~(size_t)15;
    char *buff = a->k->dst, *stage;
    SYMM_TRY(symm_across_stage(a->s, most * (size_t)d->nranks, &stage));
    for (size_t at = 0, n; at < a->bytes; at += n) {
        n = a->bytes - at < most ? a->bytes - at : most;
        for (int q = 0; q < d->nranks; q++) {
            if (is_inside(d, q)) continue;
            SYMM_TRY(symm_cross_receive(a, q, stage + (unsigned)q * most, n));
            SYMM_TRY(symm_cross_send(a, q, buff + a->to[q].at + at, n));
        }
        SYMM_TRY(symmGroupStart());
        for (int i = 0; i < d->size; i++) {
            const int q = symm_domain_rank(d, d->domain, i);
            if (q == d->rank) continue;
            symmSend(buff + a->to[q].at + at, n, symmUint8, i, inner, a->stream);
            symmRecv(stage + (unsigned)q * most, n, symmUint8, i, inner, a->stream);
        }
        SYMM_TRY(symmGroupEnd()); /* what one of the calls said */
        SYMM_TRY(symm_cross_finish(a->s));
        for (int q = 0; q < d->nranks; q++)
            if (q != d->rank)
                SYMM_TRY(symm_cross_copy(a->s, buff + a->from[q].at + at,
                                         stage + (unsigned)q * most, n));
    }
    return symmSuccess;
}

/* Between two ranks each, straight from and to their buffers. In place the source is copied first:
 * what arrives would lie over what is still to be sent. */
symmResult_t symm_across_alltoall(const symm_across_call *a) {
    const symm_domains *d = &a->s->map;
    const symmComm_t inner = a->s->outer.inner;
    const char *src = a->k->src;
    char *dst = a->k->dst, *stage;
    const size_t all = symm_counts_end(a->to, d->nranks);
    if (src == dst && a->s->gpu) return alltoall_in_place(a);
    if (src == dst && all) {
        SYMM_TRY(symm_across_stage(a->s, all, &stage));
        src = memcpy(stage, src, all);
    }
    SYMM_ASSERT(a->to[d->rank].bytes == a->from[d->rank].bytes);
    for (int q = 0; q < d->nranks; q++)
        if (!is_inside(d, q))
            SYMM_TRY(symm_cross_receive(a, q, dst + a->from[q].at, a->from[q].bytes));
    for (int q = 0; q < d->nranks; q++)
        if (!is_inside(d, q)) SYMM_TRY(symm_cross_send(a, q, src + a->to[q].at, a->to[q].bytes));
    if (a->to[d->rank].bytes)
        SYMM_TRY(symm_cross_copy(a->s, dst + a->from[d->rank].at, src + a->to[d->rank].at,
                                 a->to[d->rank].bytes));
    SYMM_TRY(symmGroupStart());
    for (int i = 0; i < d->size; i++) {
        const int q = symm_domain_rank(d, d->domain, i);
        if (q == d->rank) continue;
        symmSend(src + a->to[q].at, a->to[q].bytes, symmUint8, i, inner, a->stream);
        symmRecv(dst + a->from[q].at, a->from[q].bytes, symmUint8, i, inner, a->stream);
    }
    SYMM_TRY(symmGroupEnd()); /* what one of the calls said */
    return symm_cross_finish(a->s);
}

/* Inside the root's domain all have the message; then each rail sends its slice to the other
 * domains, which spread them. */
enum { WHOLE_BYTES = 16384 }; /* up to here one rail sends all */
symmResult_t symm_across_broadcast(const symm_across_call *a) {
    const symm_domains *d = &a->s->map;
    const symm_coll *k = a->k;
    const symmComm_t inner = a->s->outer.inner;
    const int at_root = is_inside(d, k->root), rails = a->bytes <= WHOLE_BYTES ? 1 : d->least;
    const size_t lo = a->bytes * (size_t)d->place / (size_t)rails,
                 hi = a->bytes * (size_t)(d->place + 1) / (size_t)rails;
    char *dst = k->dst;
    SYMM_ASSERT(rails <= d->least && (d->place >= rails || hi <= a->bytes));
    if (at_root)
        SYMM_TRY(symmBroadcast(k->src, dst, a->bytes, symmUint8, d->place_of[k->root], inner,
                               a->stream));
    for (int e = 0; e < d->ndomains && d->place < rails && at_root; e++)
        if (e != d->domain)
            SYMM_TRY(symm_cross_send(a, symm_domain_rank(d, e, d->place), dst + lo, hi - lo));
    if (!at_root && d->place < rails)
        SYMM_TRY(symm_cross_receive(a, symm_domain_rank(d, d->domain_of[k->root], d->place),
                                    dst + lo, hi - lo));
    SYMM_TRY(symm_cross_finish(a->s));
    if (at_root) return symmSuccess;
    SYMM_TRY(symmGroupStart());
    for (int i = 0; i < rails; i++) {
        const size_t at = a->bytes * (size_t)i / (size_t)rails,
                     end = a->bytes * (size_t)(i + 1) / (size_t)rails;
        if (end > at) symmBroadcast(dst + at, dst + at, end - at, symmUint8, i, inner, a->stream);
    }
    return symmGroupEnd(); /* what one of the calls said */
}

/* Between the root and each other rank. gives: the root sends. */
static symmResult_t with_root(const symm_across_call *a, int gives) {
    const symm_domains *d = &a->s->map;
    const symm_coll *k = a->k;
    const symmComm_t inner = a->s->outer.inner;
    const int root = k->root, is_root = root == d->rank;
    /* The root's parts, and the own one of every other rank. */
    const symm_extent *part = gives ? a->to : a->from;
    const char *src = k->src;
    char *dst = k->dst;
    if (is_root) {
        const char *own = gives ? src + part[root].at : src;
        char *to = gives ? dst : dst + part[root].at;
        if (own != to) SYMM_TRY(symm_cross_copy(a->s, to, own, a->bytes));
    }
    for (int q = 0; q < d->nranks && is_root; q++) {
        if (is_inside(d, q)) continue;
        SYMM_TRY(gives ? symm_cross_send(a, q, src + part[q].at, a->bytes)
                       : symm_cross_receive(a, q, dst + part[q].at, a->bytes));
    }
    if (!is_inside(d, root)) {
        SYMM_TRY(gives ? symm_cross_receive(a, root, dst, a->bytes)
                       : symm_cross_send(a, root, src, a->bytes));
        return symm_cross_finish(a->s);
    }
    SYMM_TRY(symmGroupStart());
    for (int i = 0; i < d->size && is_root; i++) {
        const int q = symm_domain_rank(d, d->domain, i);
        if (q == root) continue;
        gives ? symmSend(src + part[q].at, a->bytes, symmUint8, i, inner, a->stream)
              : symmRecv(dst + part[q].at, a->bytes, symmUint8, i, inner, a->stream);
    }
    const int at = d->place_of[root];
    if (!is_root)
        gives ? symmRecv(dst, a->bytes, symmUint8, at, inner, a->stream)
              : symmSend(src, a->bytes, symmUint8, at, inner, a->stream);
    SYMM_TRY(symmGroupEnd()); /* what one of the calls said */
    return symm_cross_finish(a->s);
}

symmResult_t symm_across_gather(const symm_across_call *a) {
    return with_root(a, 0);
}
symmResult_t symm_across_scatter(const symm_across_call *a) {
    return with_root(a, 1);
}
