/* multicast_calls.c - large messages over the multicast range, on the host backend: the logic of
 * cuda/multicast.cuh, over addresses that no hardware spreads. Runs on the thread that runs the
 * kernel. No lock but that of the driver's table, in symm_cast_find.
 *
 *   all_reduce      each rank reduces its slice by loads and stores it to all
 *   reduce_scatter  each rank reduces its part by loads
 *   reduce          so does the root, with the message
 *   all_gather      each rank stores its part to all
 *   broadcast       so does the root, with the message
 *
 * Whoever loads or stores at an address of the range asks the driver where the memory behind it
 * lies (symm_cast_find), as hardware asks its tables: of that memory, and of no other address, are
 * the bytes. It is slow; its use is that bindings, offsets and the order of steps run for real.
 *
 * The offsets say whether the range may be used, as on GPUs: whether what is loaded, or stored,
 * over it lies at the same multiple of 16 on all ranks, in windows that are bound there. Windows
 * are bound on all ranks or on none, so the own flags answer for all. If the answer is no, the
 * collective's other body goes on, on all ranks.
 *
 * cast {e, TOLD}  the offsets of this call are in the inbox. Pairs with cast_wait, which a peer
 *                 does for all ranks before it compares.
 * cast {e, READ}  this rank has read all offsets. Behind a "no" every rank waits for all of these:
 *                 the other body may let a rank go on to its next call, whose offsets lie in the
 *                 same place, before a third one has looked. Behind a "yes" the arrival words, of
 *                 all ranks from all, say so too.
 *
 * In place is safe: a step loads all ranks' bytes before it stores there, and no other rank touches
 * them. */
#include "dev.h"

#include <errno.h>

#include "device/common/kernels.h"
#include "split.inl"
#include "signature.inl"
#include "zerocopy.inl"

int (*symm_cast_find)(const void *at, uint64_t bytes, void **each, int *members);

/* ---- entry ----------------------------------------------------------------------------------- */

enum { TOLD = 1, READ = 2 };
/* A peer that has said READ may be in its next call, whose epoch is up to three further where
 * epochs wrap. */
#define CALLS_AHEAD (4ull << 32)

static void cast_say(const symm_cta *c, uint32_t number) {
    for (int q = 1; q < c->a->nranks; q++) {
        symm_inbox *box = symm_outbox(c, symm_peer(c->a, q));
        if (number == TOLD) {
            symm_st_relaxed(&box->src_off, c->a->src_off);
            symm_st_relaxed(&box->dst_off, c->a->dst_off);
        }
        symm_st_release(&box->cast, symm_word(c->epoch, number)); /* pairs with cast_wait */
        symm_give_line(&box->cast);
    }
}
/* 0, or non-zero: leave the body. */
static int cast_wait(symm_cta *c, uint32_t number) {
    for (int q = 1; q < c->a->nranks; q++) {
        const int peer = symm_peer(c->a, q);
        const uint64_t *cast = &symm_inbox_of(c, peer)->cast;
        if (symm_wait_within(c, cast, symm_word(c->epoch, number), CALLS_AHEAD, peer,
                             SYMM_STAGE_READY))
            return 1;
        if (number == TOLD && c->cta == 0 && symm_signature_differs(c, peer)) return 1;
    }
    return 0;
}

/* Whether what goes over the range (SYMM_CAST_) lies where it must, behind the offsets of all. */
static int is_cast(const symm_cta *c, int over) {
    const symm_args *a = c->a;
    uint64_t differ = 0;
    if (over & SYMM_CAST_SRC) differ |= a->src_off % 16;
    if (over & SYMM_CAST_DST) differ |= a->dst_off % 16;
    for (int q = 1; q < a->nranks; q++) {
        const int peer = symm_peer(a, q);
        if (over & SYMM_CAST_SRC) differ |= symm_src_off(c, peer) ^ a->src_off;
        if (over & SYMM_CAST_DST) differ |= symm_dst_off(c, peer) ^ a->dst_off;
    }
    return !differ && (!(over & SYMM_CAST_SRC) || a->flags & SYMM_ARG_CAST_SRC) &&
           (!(over & SYMM_CAST_DST) || a->flags & SYMM_ARG_CAST_DST);
}
/* 1: over the range; 0: not, on no rank; -1: leave the body. */
static int trade_casts(symm_cta *c, int over) {
    cast_say(c, TOLD);
    if (cast_wait(c, TOLD)) return -1;
    c->heard = 1;
    if (is_cast(c, over)) return 1;
    cast_say(c, READ);
    return cast_wait(c, READ) ? -1 : 0;
}

/* ---- one loop for all ------------------------------------------------------------------------ */

/* What is loaded before any of it is stored: less than the drivers bind at once, so that no step
 * goes over the end of a piece. */
#define STEP (16u << 10)

/* What a rank moves. The source is a multicast address, all of whose ranks are reduced, or a usual
 * one; so is the destination. */
typedef struct {
    const char *from;
    char *to;
    uint64_t bytes;
    int over; /* SYMM_CAST_SRC, SYMM_CAST_DST: which of them is a multicast address */
} cast_move;

/* The memory behind [at, at + bytes) of the range, of all ranks. A peer that has left with an error
 * may have unbound its own: it has told us before. */
static int reach(symm_cta *c, const char *at, uint64_t bytes, void **each) {
    int members = 0;
    if (!symm_cast_find(at, bytes, each, &members) && members == c->a->nranks) return 0;
    symm_fence(); /* pairs with that behind symm_tell_peers (kernels_host.c) */
    if (symm_wait_abort(c, SYMM_STAGE_DIRECT)) return 1;
    c->out->code = symmInvalidUsage;
    c->out->rank = c->a->rank;
    c->out->epoch = c->epoch;
    c->out->stage = SYMM_STAGE_DIRECT;
    c->out->at = (uintptr_t)at;
    c->out->err = EFAULT;
    return 1;
}
static uint64_t step_of(const cast_move *m, uint64_t at) {
    uint64_t len = m->bytes - at;
    const uint64_t from = STEP - (uintptr_t)(m->from + at) % STEP,
                   to = STEP - (uintptr_t)(m->to + at) % STEP;
    if (len > from) len = from;
    return len > to ? to : len;
}
static int cast_step(symm_cta *c, const cast_move *m, uint64_t at, uint64_t len) {
    char sum[STEP] __attribute__((aligned(64)));
    void *each[SYMM_MAX_RANKS];
    const char *from = m->from + at;
    if (m->over & SYMM_CAST_SRC) {
        if (reach(c, from, len, each)) return 1;
        symm_reduce_here(c, sum, (const void *const *)each, len >> c->a->host.esize_log);
        from = sum;
    }
    if (!(m->over & SYMM_CAST_DST)) {
        symm_move_cached(m->to + at, from, len);
        return 0;
    }
    if (reach(c, m->to + at, len, each)) return 1;
    for (int i = 0; i < c->a->nranks; i++) symm_move_cached(each[i], from, len);
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

static char *cast_of(const symm_args *a, uint64_t off) {
    return (char *)(uintptr_t)(a->host.multicast + off);
}
static uint64_t message(const symm_args *a) {
    return a->count << a->host.esize_log;
}

void symm_body_ar_multicast(symm_cta *c) {
    const symm_args *a = c->a;
    const int over = SYMM_CAST_SRC | SYMM_CAST_DST, way = trade_casts(c, over);
    const symm_part s = symm_part_of(message(a), 0, a->nranks, a->rank);
    if (!way) symm_body_ar_zerocopy(c);
    if (way > 0)
        cast_all(c, (cast_move){cast_of(a, a->src_off + s.at), cast_of(a, a->dst_off + s.at), s.len,
                                over});
}
void symm_body_rs_multicast(symm_cta *c) {
    const symm_args *a = c->a;
    const int way = trade_casts(c, SYMM_CAST_SRC);
    if (!way) symm_body_rs_pull(c);
    if (way > 0)
        cast_all(c, (cast_move){cast_of(a, a->src_off + (unsigned)a->rank * message(a)),
                                (char *)a->dst, message(a), SYMM_CAST_SRC});
}
void symm_body_rd_multicast(symm_cta *c) {
    const symm_args *a = c->a;
    const int way = trade_casts(c, SYMM_CAST_SRC);
    if (!way) symm_body_rd_slices(c);
    if (way > 0)
        cast_all(c, (cast_move){cast_of(a, a->src_off), (char *)a->dst,
                                a->rank == a->host.root ? message(a) : 0, SYMM_CAST_SRC});
}
void symm_body_ag_multicast(symm_cta *c) {
    const symm_args *a = c->a;
    const int way = trade_casts(c, SYMM_CAST_DST);
    if (!way) symm_body_ag_pull(c);
    if (way > 0)
        cast_all(c, (cast_move){(const char *)a->src,
                                cast_of(a, a->dst_off + (unsigned)a->rank * message(a)), message(a),
                                SYMM_CAST_DST});
}
void symm_body_bc_multicast(symm_cta *c) {
    const symm_args *a = c->a;
    const int way = trade_casts(c, SYMM_CAST_DST);
    if (!way) symm_body_bc_pull(c);
    if (way > 0)
        cast_all(c, (cast_move){(const char *)a->src, cast_of(a, a->dst_off),
                                a->rank == a->host.root ? message(a) : 0, SYMM_CAST_DST});
}
