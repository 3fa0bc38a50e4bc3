/* multicast_calls.c - messages over the multicast range, on the host backend: the logic of
 * cuda/multicast.cuh, and of packets (small.cuh), over addresses that no hardware spreads. Runs on
 * the thread that runs the kernel. No lock but that of the driver's table, in symm_cast_reach.
 *
 *   all_reduce      each rank reduces its slice by loads and stores it to all; small: each rank
 *                   stores packets to all, and reduces those of all
 *   reduce_scatter  each rank reduces its part by loads
 *   reduce          so does the root, with the message
 *   all_gather      each rank stores its part to all
 *   broadcast       so does the root, with the message
 *
 * A load or a store at an address of the range is one at that offset of each rank's memory. Before
 * it the driver is asked whether that memory is what the ranks have bound behind the address
 * (symm_cast_reach), as hardware asks its tables. It is slow; its use is that bindings, offsets and
 * the order of steps run for real.
 *
 * Large messages use the range if what is loaded, or stored, over it lies at the same multiple of
 * 16 on all ranks, in windows that are bound there. Each rank says its offsets and whether its own
 * are bound. If they do not allow it, the collective's other body goes on, on all ranks.
 *
 * cast {e, UNBOUND or BOUND}  the offsets of this call are in the inbox. Pairs with cast_wait,
 *                 which a peer does for all ranks before it compares. No peer is in its next call
 *                 then: it leaves this one behind a word of this rank that follows.
 * cast {e, READ}  this rank has read all offsets. Behind a "no" every rank waits for all of these:
 *                 the other body may let a rank go on to its next call, whose offsets lie in the
 *                 same place, before a third one has looked. Behind a "yes" the arrival words, of
 *                 all ranks from all, say so too.
 *
 * In place is safe: what is reduced is loaded, from all ranks, before it is stored there, and no
 * other rank touches it. */
#include "dev.h"

#include <errno.h>

#include "device/common/kernels.h"
#include "split.inl"
#include "signature.inl"
#include "zerocopy.inl"

int (*symm_cast_reach)(const void *at, uint64_t bytes, uint64_t base, uint64_t stride, int n,
                       int *which);

/* ---- entry ----------------------------------------------------------------------------------- */

enum { UNBOUND = 1, BOUND, READ };
/* A peer that has said READ may be in its next call, whose epoch is up to three further where
 * epochs wrap. Its word of this call has been seen, so no older one follows. */
#define CALLS_AHEAD (4ull << 32)

static void cast_say(const symm_cta *c, uint32_t number) {
    for (int q = 1; q < c->a->nranks; q++) {
        symm_inbox *box = symm_outbox(c, symm_peer(c->a, q));
        if (number != READ) {
            symm_st_relaxed(&box->src_off, c->a->src_off);
            symm_st_relaxed(&box->dst_off, c->a->dst_off);
        }
        symm_st_release(&box->cast, symm_word(c->epoch, number)); /* pairs with the waits below */
        symm_give_line(&box->cast);
    }
}
static const uint64_t *cast_from(const symm_cta *c, int peer) {
    return &symm_inbox_of(c, peer)->cast;
}
/* For the offsets of all. 0, or non-zero: leave the body. */
static int cast_wait(symm_cta *c) {
    for (int q = 1; q < c->a->nranks; q++) {
        const int peer = symm_peer(c->a, q);
        if (symm_wait_number(c, cast_from(c, peer), symm_word(c->epoch, UNBOUND), peer,
                             SYMM_STAGE_READY))
            return 1;
        if (c->cta == 0 && symm_signature_differs(c, peer)) return 1;
    }
    return 0;
}
/* Until all have read them. */
static int cast_wait_read(symm_cta *c) {
    for (int q = 1; q < c->a->nranks; q++) {
        const int peer = symm_peer(c->a, q);
        if (symm_wait_within(c, cast_from(c, peer), symm_word(c->epoch, READ), CALLS_AHEAD, peer,
                             SYMM_STAGE_READY))
            return 1;
    }
    return 0;
}

/* Whether what goes over the range (SYMM_CAST_) may, by what all have said. A peer that has already
 * said READ has found that it may not. */
static int is_cast(const symm_cta *c, int over, int bound) {
    const symm_args *a = c->a;
    uint64_t differ = !bound;
    if (over & SYMM_CAST_SRC) differ |= a->src_off % 16;
    if (over & SYMM_CAST_DST) differ |= a->dst_off % 16;
    for (int q = 1; q < a->nranks; q++) {
        const int peer = symm_peer(a, q);
        differ |= symm_ld_relaxed(cast_from(c, peer)) ^ symm_word(c->epoch, BOUND);
        if (over & SYMM_CAST_SRC) differ |= symm_src_off(c, peer) ^ a->src_off;
        if (over & SYMM_CAST_DST) differ |= symm_dst_off(c, peer) ^ a->dst_off;
    }
    return !differ;
}
/* 1: over the range; 0: not, on no rank; -1: leave the body. */
static int trade_casts(symm_cta *c, int over) {
    const uint32_t flags = c->a->flags;
    const int bound = (!(over & SYMM_CAST_SRC) || flags & SYMM_ARG_CAST_SRC) &&
                      (!(over & SYMM_CAST_DST) || flags & SYMM_ARG_CAST_DST);
    cast_say(c, bound ? BOUND : UNBOUND);
    if (cast_wait(c)) return -1;
    c->heard = 1;
    if (is_cast(c, over, bound)) return 1;
    cast_say(c, READ);
    return cast_wait_read(c) ? -1 : 0;
}

/* ---- one loop for all ------------------------------------------------------------------------ */

/* What is reduced at once. Less than the drivers bind at once, so that no step goes over the end of
 * a piece. */
#define STEP (16u << 10)

/* What a rank moves. Of the two addresses those over the range (SYMM_CAST_) are offsets of it, and
 * multiples of 16. */
typedef struct {
    uint64_t from, to, bytes;
    int over;
} cast_move;

/* 0: behind these bytes of the range lies what all ranks have there. Else leave the body. A peer
 * that has left with an error may have unbound its own: it has told us before. */
static int reach(symm_cta *c, uint64_t off, uint64_t bytes) {
    const symm_args *a = c->a;
    int which = a->rank;
    const uint64_t at = a->host.multicast + off;
    if (!__atomic_load_n(&symm_cast_reach, __ATOMIC_RELAXED)(
            (const void *)(uintptr_t)at, bytes, a->base + off, a->stride, a->nranks, &which))
        return 0;
    symm_fence(); /* pairs with that behind symm_tell_peers (kernels_host.c) */
    if (symm_wait_abort(c, SYMM_STAGE_DIRECT)) return 1;
    c->out->code = symmInvalidUsage;
    c->out->rank = which;
    c->out->epoch = c->epoch;
    c->out->stage = SYMM_STAGE_DIRECT;
    c->out->at = at;
    c->out->err = EFAULT;
    return 1;
}
static uint64_t step_of(const cast_move *m, uint64_t at) {
    const uint64_t from = m->over & SYMM_CAST_SRC ? (m->from + at) % STEP : 0,
                   to = m->over & SYMM_CAST_DST ? (m->to + at) % STEP : 0,
                   most = STEP - (from > to ? from : to), rest = m->bytes - at;
    return rest < most ? rest : most;
}
static int cast_step(symm_cta *c, const cast_move *m, uint64_t at, uint64_t len) {
    char sum[STEP] __attribute__((aligned(64)));
    const symm_args *a = c->a;
    const char *from = (const char *)(uintptr_t)(m->from + at);
    if (m->over & SYMM_CAST_SRC) {
        const void *srcs[SYMM_MAX_RANKS];
        if (reach(c, m->from + at, len)) return 1;
        for (int r = 0; r < a->nranks; r++) srcs[r] = symm_flat(a, r, m->from + at);
        symm_reduce_here(c, sum, srcs, len >> a->host.esize_log);
        from = sum;
    }
    if (!(m->over & SYMM_CAST_DST)) {
        symm_move_cached((char *)(uintptr_t)(m->to + at), from, len);
        return 0;
    }
    if (reach(c, m->to + at, len)) return 1;
    for (int r = 0; r < a->nranks; r++) symm_move_cached(symm_flat(a, r, m->to + at), from, len);
    return 0;
}
/* A CTA's share; then all ranks' stores have arrived, and their loads are done. */
static void cast_all(symm_cta *c, cast_move m) {
    const symm_part mine = symm_part_of(m.bytes, 0, c->a->nctas, c->cta);
    m.from += mine.at;
    m.to += mine.at;
    m.bytes = mine.len;
    for (uint64_t at = 0, len; at < m.bytes; at += len) {
        len = step_of(&m, at);
        if (cast_step(c, &m, at, len)) return;
    }
    symm_arrive(c, 1);
    symm_arrive_wait(c, 1);
}

/* ---- the collectives ------------------------------------------------------------------------- */

static uint64_t message(const symm_args *a) {
    return a->count << a->host.esize_log;
}
static uint64_t roots(const symm_args *a) {
    return a->rank == a->host.root ? message(a) : 0;
}

void symm_body_ar_multicast(symm_cta *c) {
    const symm_args *a = c->a;
    const int over = SYMM_CAST_SRC | SYMM_CAST_DST, way = trade_casts(c, over);
    const symm_part s = symm_part_of(message(a), 0, a->nranks, a->rank);
    if (!way) symm_body_ar_zerocopy(c);
    if (way > 0) cast_all(c, (cast_move){a->src_off + s.at, a->dst_off + s.at, s.len, over});
}
/* Small ones: a packet goes into all ranks' scratch at once, the own one too, where nobody looks.
 * Its word pairs with symm_packet_wait, as that of a packet to one peer. */
void symm_body_ar_cast_packet(symm_cta *c) {
    const symm_args *a = c->a;
    const uint32_t per = SYMM_PACKET_LOG - a->host.esize_log;
    const uint64_t packets = symm_chunks(a->count, per),
                   slot = (uintptr_t)symm_slot(c, a->rank, 0, a->rank) -
                          (uintptr_t)symm_flat(a, a->rank, 0);
    for (uint64_t k = (unsigned)c->cta; k < packets; k += (unsigned)a->nctas) {
        const symm_part part = symm_chunk_of(a->count, per, k);
        const uint64_t off = slot + k * SYMM_PACKET_STRIDE;
        if (reach(c, off, SYMM_PACKET_STRIDE)) return;
        for (int r = 0; r < a->nranks; r++)
            symm_packet_put(c, symm_flat(a, r, off), (const char *)a->src + part.at * a->esize,
                            part.len * a->esize);
    }
    symm_packets_reduce(c);
}
void symm_body_rs_multicast(symm_cta *c) {
    const symm_args *a = c->a;
    const int way = trade_casts(c, SYMM_CAST_SRC);
    const uint64_t part = a->src_off + (unsigned)a->rank * message(a);
    if (!way) symm_body_rs_pull(c);
    if (way > 0) cast_all(c, (cast_move){part, (uintptr_t)a->dst, message(a), SYMM_CAST_SRC});
}
void symm_body_rd_multicast(symm_cta *c) {
    const symm_args *a = c->a;
    const int way = trade_casts(c, SYMM_CAST_SRC);
    if (!way) symm_body_rd_slices(c);
    if (way > 0) cast_all(c, (cast_move){a->src_off, (uintptr_t)a->dst, roots(a), SYMM_CAST_SRC});
}
void symm_body_ag_multicast(symm_cta *c) {
    const symm_args *a = c->a;
    const int way = trade_casts(c, SYMM_CAST_DST);
    const uint64_t part = a->dst_off + (unsigned)a->rank * message(a);
    if (!way) symm_body_ag_pull(c);
    if (way > 0) cast_all(c, (cast_move){(uintptr_t)a->src, part, message(a), SYMM_CAST_DST});
}
void symm_body_bc_multicast(symm_cta *c) {
    const symm_args *a = c->a;
    const int way = trade_casts(c, SYMM_CAST_DST);
    if (!way) symm_body_bc_pull(c);
    if (way > 0) cast_all(c, (cast_move){(uintptr_t)a->src, a->dst_off, roots(a), SYMM_CAST_DST});
}
