/* uneven.cuh - the collectives with a count per rank: all_gatherv, reduce_scatterv, alltoallv.
 * Ranks have different counts, so nothing that all must agree on depends on them: one kernel each,
 * one grid, and in it each pair of ranks goes its own way. GPU code: the data threads run it.
 *
 * On entry a rank writes each peer a line (symm_gpu_pair): what it gives the peer, what it expects
 * from it, and where that goes. Both compare before a byte of users' memory is read for the other
 * or written, so ranks that disagree both hear of it in this call. A part goes
 *   - in LL packets, up to `pairs` bytes: sent before the line of the peer has come;
 *   - straight into the taker's window, in 16 bytes at once whatever the alignment of the two;
 *   - through the taker's staging, where that has no window or reduces.
 * All that a rank does to a part its taker or giver can tell from the part's bytes alone.
 *
 * Straight parts. Every CTA stores some of each, then says arrive, and waits for the arrival of the
 * same CTA of whoever stores here.
 *
 * Staged parts: piece by piece, as hop_staged.cuh, but each pair for itself. A pair has as many
 * turns as the larger one of its two parts has pieces in this CTA. In each both ranks post, who
 * gives or takes nothing too, and wait for the other's post of the turn before. So the credit of
 * hop_staged.cuh holds for the pair: piece k may take the place of piece k-4, because the sender
 * has waited for its taker's post of k-2, which followed the turn k-3, in which all warps of that
 * CTA had taken piece k-4. No deadlock: what is awaited in turn k was sent in a turn before.
 *
 * The next call. Lines and packets have the parity of the epoch, and every rank hears from every
 * rank (frame.cuh). Staging has none, and other kernels divide it otherwise: a kernel may end only
 * when nobody reads staging any more. So a rank to which anything is staged tells so in its lines,
 * and all wait for its arrival, which each CTA says after its last read. A post that is read late
 * may be one of the next call: its sender has ended this one, so it says no less.
 *
 * In place is safe: no two threads touch the same bytes of the own part. */
#ifndef SYMM_CUDA_UNEVEN_CUH_
#define SYMM_CUDA_UNEVEN_CUH_

#include "hop_staged.cuh"
#include "small.cuh"

struct pairs {                      /* of this rank and each peer; shared by the CTA */
    uint64_t where[SYMM_MAX_RANKS]; /* the part for it goes to its offset, or SYMM_STAGED */
    uint32_t out[SYMM_MAX_RANKS], in[SYMM_MAX_RANKS]; /* pieces of this CTA, to and from it */
    uint32_t waits[SYMM_MAX_RANKS];                   /* 1: for its arrival */
    uint32_t any;                                     /* 1: something comes through staging */
};

struct uneven { /* one thread's */
    const symm_args *a;
    const symm_extent *to, *from; /* the parts for each rank, those from each */
    pairs *p;
    share w;
};

DEV int is_packed(const uneven &u, const symm_extent &part) {
    return part.bytes <= u.a->gpu.pairs;
}
/* Whether a part that comes here goes through staging. */
template <int SUM> DEV int stages(const uneven &u, const symm_extent &part) {
    return !is_packed(u, part) && (SUM || u.a->dst_off == SYMM_STAGED);
}
template <int SUM> DEV int stages_any(const uneven &u) {
    int any = 0;
    for (int p = 0; p < u.a->nranks; p++) any |= p != u.a->rank && stages<SUM>(u, u.from[p]);
    return any;
}
/* Whether this rank stores its part for `peer` into that one's window. */
DEV int goes_straight(const uneven &u, int peer) {
    return !is_packed(u, u.to[peer]) && u.p->where[peer] != SYMM_STAGED;
}

/* Which of `of` workers has the first item of the q-th of n parts: parts that are smaller than a
 * round are not all the first workers'. So worker `me` begins with item: */
DEV uint32_t first_item(uint32_t me, uint32_t of, int q, int n) {
    const uint32_t begins = (uint32_t)q * of / (uint32_t)n % of;
    return me >= begins ? me - begins : me + of - begins;
}

/* ---- what the ranks tell each other ---------------------------------------------------------- */

struct pair_line {
    uint64_t gives, takes, where, stages;
};

template <int SUM> DEV void pair_put(const run &r, const uneven &u, int peer, int any) {
    const symm_args *a = r.a;
    symm_gpu_pair *line = &ctl_of(a, peer)->pair[r.epoch & 1u][a->rank];
    const int staged = SUM || a->dst_off == SYMM_STAGED;
    put_offset(line->gives, u.to[peer].bytes, r.epoch); /* all pair with pair_wait */
    put_offset(line->takes, u.from[peer].bytes, r.epoch);
    put_offset(line->where, staged ? SYMM_STAGED : a->dst_off + u.from[peer].at, r.epoch);
    put_offset(line->stages, (uint64_t)any, r.epoch);
}
/* 1: it is there. */
DEV int pair_get(const symm_gpu_ctl *ctl, uint32_t epoch, int peer, pair_line &l) {
    const symm_gpu_pair *line = &ctl->pair[epoch & 1u][peer];
    const uint4 g = get16(line->gives), t = get16(line->takes), w = get16(line->where),
                s = get16(line->stages);
    l.gives = (uint64_t)g.z << 32 | g.x, l.takes = (uint64_t)t.z << 32 | t.x;
    l.where = (uint64_t)w.z << 32 | w.x, l.stages = s.x;
    return ll_is(g, epoch) && ll_is(t, epoch) && ll_is(w, epoch) && ll_is(s, epoch);
}
/* 1: leave. */
DEV int pair_wait(run &r, int peer, pair_line &l) {
    uint32_t polls = 0;
    uint64_t since = 0;
    while (look_over(r), !pair_get(r.ctl, r.epoch, peer, l))
        if (poll_again(r, polls, peer, SYMM_STAGE_COUNTS, since)) return 1;
    return 0;
}

/* Somebody leaves: if it is because a peer means another count, says which of the two means what.
 * One thread of the grid; the first such peer. */
static __device__ __noinline__ void tell_unequal(const symm_args *a, uint32_t epoch,
                                                 const symm_extent *to, const symm_extent *from) {
    const symm_gpu_ctl *ctl = ctl_of(a, a->rank);
    const uint64_t same = (uint64_t)epoch << 32 | a->sig;
    symm_unequal *say = &host_of(a, a->rank)->unequal;
    for (int p = 0; p < a->nranks; p++) {
        pair_line l;
        if (p == a->rank || !pair_get(ctl, epoch, p, l)) continue;
        if (get8(&ctl->inbox[p].sig[epoch & 1u]) != same) continue; /* means another call */
        const int here = l.gives != from[p].bytes;
        if (!here && l.takes == to[p].bytes) continue;
        const unsigned giver = (unsigned)(here ? p : a->rank),
                       taker = (unsigned)(here ? a->rank : p);
        put8(&say->gives, here ? l.gives : to[p].bytes);
        put8(&say->takes, here ? from[p].bytes : l.takes);
        /* pairs with unequal_counts (revoke.c) */
        give8(&say->who, (uint64_t)a->esize << 32 | giver << 16 | (taker + 1));
        leave(a, epoch, symmMismatch, p, SYMM_STAGE_COUNTS);
        return;
    }
}

/* ---- pieces ---------------------------------------------------------------------------------- */

/* The place of this CTA in the order in which CTAs have the pieces of a part. Parts of which all
 * are reduced together have the same order. */
template <int SUM> DEV unsigned cta_turn(const share &w, int n, int giver, int taker) {
    const unsigned shift = (unsigned)(SUM ? taker : giver + taker) * w.ctas / (unsigned)n;
    return (blockIdx.x + shift) % w.ctas;
}
template <int SUM> DEV uint32_t pieces_for(const uneven &u, int giver, int taker, uint64_t bytes) {
    const share &w = u.w;
    if (blockIdx.x >= w.ctas) return 0;
    const uint64_t piece = (uint64_t)w.warps * w.rows * ROW, round = w.ctas * piece,
                   first = cta_turn<SUM>(w, u.a->nranks, giver, taker) * piece;
    return first < bytes ? (uint32_t)((bytes - first + round - 1) / round) : 0;
}
/* This lane's 16 bytes of row j of piece k of a part. */
template <int SUM>
DEV uint64_t piece_at(const uneven &u, int giver, int taker, uint32_t k, unsigned j) {
    const share &w = u.w;
    const uint64_t turn = cta_turn<SUM>(w, u.a->nranks, giver, taker),
                   warp = ((uint64_t)k * w.ctas + turn) * w.warps + w.warp;
    return (warp * w.rows + j) * ROW + w.lane * 16;
}
/* Turns of the pair. */
DEV uint32_t turns_with(const uneven &u, int peer) {
    const uint32_t out = u.p->out[peer], in = u.p->in[peer];
    return peer == u.a->rank ? 0 : out > in ? out : in;
}

/* ---- entry ----------------------------------------------------------------------------------- */

/* What the peer's line says. 1: leave. */
template <int SUM> DEV int pair_take(run &r, const uneven &u, int peer) {
    pair_line l;
    pairs *s = u.p;
    /* A peer that is in another call says nothing of this one. */
    if (pair_wait(r, peer, l) || signature_differs<0>(r, peer)) return 1;
    if (l.gives != u.from[peer].bytes || l.takes != u.to[peer].bytes) return 1;
    s->where[peer] = l.where;
    s->out[peer] = !is_packed(u, u.to[peer]) && l.where == SYMM_STAGED
                       ? pieces_for<SUM>(u, u.a->rank, peer, u.to[peer].bytes)
                       : 0;
    s->in[peer] =
        stages<SUM>(u, u.from[peer]) ? pieces_for<SUM>(u, peer, u.a->rank, u.from[peer].bytes) : 0;
    s->waits[peer] = l.stages || (!is_packed(u, u.from[peer]) && !stages<SUM>(u, u.from[peer]));
    return r.over; /* a rank that announced its buffers may have left since */
}

/* The lines to all, between windows or not; and LL packets, which nobody has to be ready for. */
template <int SUM> DEV void uneven_announce(run &r, const uneven &u) {
    const symm_args *a = r.a;
    const int n = a->nranks, first = (int)threadIdx.x;
    const uint32_t of = gridDim.x * data_threads(), me = blockIdx.x * data_threads() + threadIdx.x;
    /* A rank that is leaving does not announce its buffers, because its program may reuse them. */
    if (blockIdx.x == 0 && !r.over && first < n) {
        const int any = stages_any<SUM>(u);
        for (int p = first; p < n; p += (int)data_threads())
            if (p != a->rank) pair_put<SUM>(r, u, p, any);
    }
    for (int q = 1; q < n; q++) {
        const int p = peer_of(a->rank, n, q);
        const symm_extent part = u.to[p];
        if (!is_packed(u, part)) continue;
        for (uint64_t i = first_item(me, of, q, n); i * 8 < part.bytes; i += of) {
            const span8 s = span8_of(i, part.bytes);
            const char *from = (const char *)a->src + part.at + s.at;
            uint32_t w[2];
            load_user(w, from, s.valid, alignment(from));
            ll_put(ll_slot(r, p, a->rank), i, w, ll_flag(r));
        }
    }
}

/* All data threads. 1: leave. */
template <int SUM> DEV int uneven_meet(run &r, const uneven &u) {
    const symm_args *a = r.a;
    int left = r.over;
    uneven_announce<SUM>(r, u);
    for (int p = (int)threadIdx.x; p < a->nranks; p += (int)data_threads()) {
        if (p != a->rank) {
            left |= pair_take<SUM>(r, u, p);
            continue;
        }
        u.p->where[p] = a->dst_off;
        u.p->any = (uint32_t)stages_any<SUM>(u);
        u.p->out[p] = u.p->waits[p] = 0;
        u.p->in[p] =
            SUM && !is_packed(u, u.from[p]) ? pieces_for<SUM>(u, p, p, u.from[p].bytes) : 0;
    }
    if (!data_barrier(left)) return 0;
    r.left = 1;
    if (blockIdx.x == 0 && threadIdx.x == 0) tell_unequal(a, r.epoch, u.to, u.from);
    return 1;
}

/* ---- packets --------------------------------------------------------------------------------- */

/* A thread that leaves comes to the next barrier, so that all leave there. */
DEV void packets_copy(run &r, const uneven &u) {
    const symm_args *a = r.a;
    const int n = a->nranks;
    const uint32_t of = gridDim.x * data_threads(), me = blockIdx.x * data_threads() + threadIdx.x;
    for (int q = 1; q < n; q++) {
        const int p = peer_of(a->rank, n, q);
        const symm_extent part = u.from[p];
        if (!is_packed(u, part)) continue;
        for (uint64_t i = first_item(me, of, q, n); i * 8 < part.bytes; i += of) {
            const span8 s = span8_of(i, part.bytes);
            char *to = (char *)a->dst + part.at + s.at;
            uint32_t w[2];
            if (ll_recv(r, p, i, w)) return;
            store_user(to, w, s.valid, alignment(to));
        }
    }
}

/* Ranks whose packets, or rows, of the own part are loaded together: any number of ranks, as many
 * of them as the registers hold. */
enum { TOGETHER = 4 };

/* Packets of an item from ranks [from, from + TOGETHER), polled together. 1: leave. */
DEV int packets_gather(run &r, uint64_t item, int from, uint32_t (&w)[TOGETHER][2]) {
    const symm_args *a = r.a;
    uint32_t polls = 0;
    uint64_t since = 0;
    for (;;) {
        int missing = -1;
#pragma unroll
        for (int i = 0; i < TOGETHER; i++) {
            const int p = from + i;
            if (p >= a->nranks || p == a->rank) continue;
            const uint4 v = get16(ll_slot(r, a->rank, p) + item * 16);
            if (!ll_is(v, ll_flag(r))) missing = p;
            w[i][0] = v.x, w[i][1] = v.z;
        }
        if (missing < 0) return 0;
        if (poll_again(r, polls, missing, SYMM_STAGE_PACKET, since)) return 1;
    }
}
template <int T, int OP> DEV void packets_sum(run &r, const uneven &u) {
    const symm_args *a = r.a;
    const symm_extent part = u.from[a->rank];
    const uint32_t of = gridDim.x * data_threads(), me = blockIdx.x * data_threads() + threadIdx.x;
    for (uint64_t i = me; i * 8 < part.bytes; i += of) {
        const span8 s = span8_of(i, part.bytes);
        const char *mine = (const char *)a->src + u.to[a->rank].at + s.at;
        char *to = (char *)a->dst + part.at + s.at;
        uint32_t own[2], out[2], w[TOGETHER][2];
        reduction<T, 2, OP> sum;
        load_user(own, mine, s.valid, alignment(mine));
#pragma unroll 1
        for (int from = 0; from < a->nranks; from += TOGETHER) {
            if (packets_gather(r, i, from, w)) return;
#pragma unroll
            for (int j = 0; j < TOGETHER; j++) {
                const int p = from + j;
                const uint32_t x[2] = {p == a->rank ? own[0] : w[j][0],
                                       p == a->rank ? own[1] : w[j][1]};
                if (p == 0)
                    sum.first((int)a->op, x, scale_of<T, OP>(r, p));
                else if (p < a->nranks)
                    sum.step((int)a->op, x, scale_of<T, OP>(r, p));
            }
        }
        sum.last((int)a->op, a->nranks, out);
        store_user(to, out, s.valid, alignment(to));
    }
}

/* ---- between windows ------------------------------------------------------------------------- */

/* The parts that go straight, and the own one. Every warp has some of each and begins with another
 * one, so that all links are busy. */
DEV void parts_move(run &r, const uneven &u) {
    const int U = 8, n = u.a->nranks;
    const symm_args *a = r.a;
    const unsigned has = data_threads() / 32u, warps = has < AG_WARPS ? has : AG_WARPS;
    const uint32_t of = warps * gridDim.x, me = (uint32_t)first_chunk(warps, of);
    if (me == of) return;
#pragma unroll 1
    for (int t = 0; t < n; t++) {
        const int q = 1 + (int)((me + (unsigned)t) % (unsigned)n), p = peer_of(a->rank, n, q);
        const symm_extent part = u.to[p];
        const char *from = (const char *)a->src + part.at;
        char *to = p == a->rank ? (char *)a->dst + u.from[p].at : flat(a, p, u.p->where[p]);
        if (p == a->rank ? to == from : !goes_straight(u, p)) continue;
        for (uint64_t c = first_item(me, of, q, n); c * (ROW * U) < part.bytes; c += of)
            if (r.left || rows_move<U>(r, to, from, part.bytes, c * (ROW * U))) return;
    }
}

/* ---- through staging ------------------------------------------------------------------------- */

/* U rows of a turn, loaded together: staging has an even number of them. */
enum { STAGED_ROWS = 2 };

template <int SUM> DEV void pieces_send(const uneven &u, uint32_t k) {
    const int U = STAGED_ROWS, n = u.a->nranks;
    const symm_args *a = u.a;
#pragma unroll 1
    for (int q = 1; q < n; q++) {
        const int p = peer_of(a->rank, n, q);
        if (k >= u.p->out[p]) continue;
        const symm_extent part = u.to[p];
#pragma unroll 1
        for (unsigned j = 0; j < u.w.rows; j += U) {
            const uint64_t at = piece_at<SUM>(u, a->rank, p, k, j);
            char *to = staged_at(a, u.w, p, a->rank, k, j);
            uint32_t v[U][4];
            if (at >= part.bytes) break;
            load_rows<U>(v, (const char *)a->src + part.at, at, part.bytes, ROW);
#pragma unroll
            for (int i = 0; i < U; i++)
                if (at + (unsigned)i * ROW < part.bytes) stage(to + i * ROW, v[i]);
        }
    }
}
/* By one warp, after a barrier of all that sent; pairs with turn_wait. */
DEV void turn_post(const run &r, const uneven &u, uint32_t k) {
    const symm_args *a = r.a;
    for (int p = (int)u.w.lane; p < a->nranks; p += 32)
        if (k < turns_with(u, p))
            give8(&ctl_of(a, p)->posted[blockIdx.x][a->rank], (uint64_t)r.epoch << 32 | (k + 1));
}
DEV int has_posted(uint64_t word, uint32_t epoch, uint32_t k) {
    const uint32_t ahead = (uint32_t)(word >> 32) - epoch;
    return ahead ? word >> 32 && ahead <= 3u : (uint32_t)word > k; /* as has_arrived */
}
/* 1: this warp is leaving. */
DEV int turn_wait(run &r, const uneven &u, uint32_t k) {
    const symm_args *a = r.a;
    for (int p = (int)u.w.lane; p < a->nranks && !r.left; p += 32) {
        uint32_t polls = 0;
        uint64_t since = 0;
        while (k < turns_with(u, p) &&
               !has_posted(take8(&r.ctl->posted[blockIdx.x][p]), r.epoch, k))
            if (poll_again(r, polls, p, SYMM_STAGE_POST, since)) break;
    }
    r.left = __any_sync(0xffffffffu, r.left);
    __syncwarp(); /* a vote orders no memory, as in posts_wait */
    return r.left;
}

DEV void pieces_copy(const uneven &u, uint32_t k) {
    const int U = STAGED_ROWS, n = u.a->nranks;
    const symm_args *a = u.a;
#pragma unroll 1
    for (int q = 1; q < n; q++) {
        const int p = peer_of(a->rank, n, q);
        if (k >= u.p->in[p]) continue;
        const symm_extent part = u.from[p];
#pragma unroll 1
        for (unsigned j = 0; j < u.w.rows; j += U) {
            const uint64_t at = piece_at<0>(u, p, a->rank, k, j);
            const char *from = staged_at(a, u.w, a->rank, p, k, j);
            uint32_t v[U][4];
            if (at >= part.bytes) break;
#pragma unroll
            for (int i = 0; i < U; i++)
                if (at + (unsigned)i * ROW < part.bytes)
                    to_words(v[i], load_remote(from + i * ROW));
            store_rows<U>((char *)a->dst + part.at, v, at, part.bytes, ROW);
        }
    }
}

/* Row j of piece k of the own part, in rank order. */
template <int T, int OP> DEV void row_sum(const run &r, const uneven &u, uint32_t k, unsigned j) {
    const symm_args *a = r.a;
    const symm_extent part = u.from[a->rank];
    const uint64_t at = piece_at<1>(u, a->rank, a->rank, k, j);
    uint32_t own[1][4], out[1][4];
    reduction<T, 4, OP> sum;
    if (at >= part.bytes) return;
    load_rows<1>(own, (const char *)a->src + u.to[a->rank].at, at, part.bytes, ROW);
#pragma unroll 1
    for (int from = 0; from < a->nranks; from += TOGETHER) {
        uint4 v[TOGETHER];
#pragma unroll
        for (int i = 0; i < TOGETHER; i++)
            if (from + i < a->nranks && from + i != a->rank)
                v[i] = load_remote(staged_at(a, u.w, a->rank, from + i, k, j));
#pragma unroll
        for (int i = 0; i < TOGETHER; i++) {
            const int p = from + i;
            uint32_t x[4] = {own[0][0], own[0][1], own[0][2], own[0][3]};
            if (p != a->rank) to_words(x, v[i]);
            if (p == 0)
                sum.first((int)a->op, x, scale_of<T, OP>(r, p));
            else if (p < a->nranks)
                sum.step((int)a->op, x, scale_of<T, OP>(r, p));
        }
    }
    sum.last((int)a->op, a->nranks, out[0]);
    store_rows<1>((char *)a->dst + part.at, out, at, part.bytes, ROW);
}

template <int T, int OP> DEV void piece_sum(const run &r, const uneven &u, uint32_t k) {
    if (k >= u.p->in[r.a->rank]) return;
    for (unsigned j = 0; j < u.w.rows; j++) row_sum<T, OP>(r, u, k, j);
}
template <int T, int SUM, int OP> DEV void turn_take(const run &r, const uneven &u, uint32_t k) {
    if (SUM)
        piece_sum<T, OP>(r, u, k);
    else
        pieces_copy(u, k);
}

/* The warps that have staging; the others wait at the next barrier of all. */
template <int T, int SUM, int OP> DEV void pieces_move(run &r, const uneven &u) {
    const symm_args *a = r.a;
    uint32_t turns = SUM ? u.p->in[a->rank] : 0;
    if (u.w.warp >= u.w.warps) return;
    for (int p = 0; p < a->nranks; p++)
        if (turns < turns_with(u, p)) turns = turns_with(u, p);
    for (uint32_t k = 0; turns && k <= turns; k++) {
        if (!r.left) pieces_send<SUM>(u, k);
        if (meet(2, u.w.warps * 32u, r.left)) {
            r.left = 1;
            return;
        }
        if (u.w.warp == k % u.w.warps) turn_post(r, u, k); /* in turn: a post takes long */
        if (!k || turn_wait(r, u, k - 1)) continue;
        turn_take<T, SUM, OP>(r, u, k - 1);
    }
}

/* ---- exit ------------------------------------------------------------------------------------ */

/* After the CTA's last load and store; as arrive_and_wait, with those that wait for it. */
DEV void uneven_arrive(run &r, const uneven &u) {
    const symm_args *a = r.a;
    if (data_barrier(r.left)) {
        r.left = 1;
        return;
    }
    for (int p = (int)threadIdx.x; p < a->nranks; p += (int)data_threads())
        if (p != a->rank && (u.p->any || goes_straight(u, p)))
            give8(&ctl_of(a, p)->arrive[blockIdx.x][a->rank], r.epoch); /* pairs with the wait */
    for (int p = (int)threadIdx.x; p < a->nranks; p += (int)data_threads()) {
        uint32_t polls = 0;
        uint64_t since = 0;
        while (u.p->waits[p] &&
               !has_arrived((uint32_t)take8(&r.ctl->arrive[blockIdx.x][p]), r.epoch))
            if (poll_again(r, polls, p, SYMM_STAGE_ARRIVE, since)) return;
    }
}

/* ---- the collectives ------------------------------------------------------------------------- */

template <int T, int SUM, int OP> DEV void uneven_run(run &r, const uneven &u) {
    if (uneven_meet<SUM>(r, u)) return;
    if (SUM && OP == ANY_OP && u.a->op == SYMM_OP_PREMUL && data_barrier(scalars_wait(r))) return;
    if (SUM) {
        if (is_packed(u, u.from[u.a->rank])) packets_sum<T, OP>(r, u);
    } else {
        parts_move(r, u);
        packets_copy(r, u);
    }
    pieces_move<T, SUM, OP>(r, u);
    uneven_arrive(r, u);
}

#define UNEVEN(u, r, parts)    \
    CTA_SHARED(pairs, shared); \
    const uneven u = {(r).a, (parts), (parts) + (r).a->nranks, &shared, share_of((r).a, 1, 0)}

/* all_gatherv and alltoallv: the parts say which of them it is. */
DEV void body_uneven_move(run &r, const symm_extent *parts) {
    UNEVEN(u, r, parts);
    uneven_run<symmUint8, 0, ANY_OP>(r, u);
}
template <int T> DEV void body_uneven_sum(run &r, const symm_extent *parts) {
    UNEVEN(u, r, parts);
    by_op<HOT(T)>(r.a->op, [&](auto op) { uneven_run<T, 1, op.OP>(r, u); });
}

#endif
