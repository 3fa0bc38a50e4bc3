/* hop_staged.cuh - large messages of every shape, one hop: straight into the takers' windows
 * (direct.cuh), or through their staging, from which they copy or reduce. GPU code: the data
 * threads run it.
 *
 * Staged: a rank sends piece k of each part to its taker's staging, posts k to all, waits for the
 * posts k-1 of all, and takes its givers' pieces k-1. Everybody posts, who gives nothing or takes
 * nothing too: a post is also a credit. It says that all warps of that CTA had ended turn k-1, in
 * which they took pieces k-2. So a place is free as staged.cuh says: piece k may take the place of
 * piece k-4, because the sender has waited for its taker's post of k-2, which followed the taker's
 * turn k-3, in which it took piece k-4. The next call need not wait, for the reasons given there;
 * where no offsets are traded, a kernel behind one that has left may overwrite staging of a peer
 * that is still at work: that one's result is undefined from the moment the reason was written. */
#ifndef SYMM_CUDA_HOP_STAGED_CUH_
#define SYMM_CUDA_HOP_STAGED_CUH_

#include "relayed.cuh"

/* ---- through staging ------------------------------------------------------------------------- */

/* U rows of piece k of each part to its taker, and of the own one; if there is one source for all,
 * it is read once. */
template <int S, int N, int U>
DEV void hop_rows_send(const symm_args *a, const share &w, uint32_t k, unsigned j) {
    const uint64_t from = row_at(w, k, j);
    const int most = most_takers<S, N>(), count = takers<S, N>(a);
    char *own = own_target<S>(a);
    if (from >= w.bytes || !gives<S>(a, a->rank)) return;
    uint32_t v[S & SRC_EACH && N ? N : 1][U][4];
    if (own || !(S & SRC_EACH)) load_rows<U>(v[0], own_source<S>(a), from, w.bytes, ROW);
    if (S & SRC_EACH && N) {
#pragma unroll
        for (int q = 1; q < N; q++)
            load_rows<U>(v[N ? q : 0], (const char *)a->src + part_for<S>(a, taker<S, N>(a, q)),
                         from, w.bytes, ROW);
    }
    if (own) store_rows<U>(own, v[0], from, w.bytes, ROW);
#pragma unroll
    for (int q = 1; q <= (most ? most : count); q++) {
        if (most && q > count) continue;
        const int p = taker<S, N>(a, q);
        if (S & SRC_EACH && !N)
            load_rows<U>(v[0], (const char *)a->src + part_for<S>(a, p), from, w.bytes, ROW);
        char *to = staged_at(a, w, p, a->rank, k, j);
#pragma unroll
        for (int i = 0; i < U; i++)
            if (from + i * ROW < w.bytes) stage(to + i * ROW, v[S & SRC_EACH && N ? q : 0][i]);
    }
}

/* U rows of piece k of every giver, copied out. */
template <int S, int N, int U>
DEV void hop_rows_copy(const symm_args *a, const share &w, uint32_t k, unsigned j) {
    const uint64_t from = row_at(w, k, j);
    const int most = most_givers<S, N>(), count = givers<S, N>(a);
    if (from >= w.bytes) return;
#pragma unroll
    for (int q = 1; q <= (most ? most : count); q++) {
        if (most && q > count) continue;
        const int p = giver<S, N>(a, q);
        const char *at = staged_at(a, w, a->rank, p, k, j);
        uint32_t v[U][4];
#pragma unroll
        for (int i = 0; i < U; i++)
            if (from + i * ROW < w.bytes) to_words(v[i], load_remote(at + i * ROW));
        store_rows<U>((char *)a->dst + part_from<S>(a, p), v, from, w.bytes, ROW);
    }
}

/* U rows of piece k of every rank's part, in rank order; own: where the own one begins, `bytes`
 * long. */
template <int T, int N, int OP, int U>
DEV void hop_rows_sum(const run &r, const share &w, uint32_t k, unsigned j, const char *own,
                      uint64_t from, uint64_t bytes, uint32_t (&out)[U][4]) {
    const symm_args *a = r.a;
    const int n = N ? N : a->nranks;
    reduction<T, 4, OP> sum[U];
    uint4 v[N ? N : 1][U];
    uint32_t mine[U][4];
#pragma unroll
    for (int p = 0; p < N; p++) {
        const char *rows = staged_at(a, w, a->rank, p, k, j);
#pragma unroll
        for (int i = 0; i < U; i++)
            if (p != a->rank && from + i * ROW < bytes) v[p][i] = load_remote(rows + i * ROW);
    }
    load_rows<U>(mine, own, from, bytes, ROW);
#pragma unroll
    for (int p = 0; p < n; p++) {
        const char *rows = staged_at(a, w, a->rank, p, k, j);
#pragma unroll
        for (int i = 0; i < U; i++) {
            uint32_t x[4] = {mine[i][0], mine[i][1], mine[i][2], mine[i][3]};
            if (p != a->rank && N)
                to_words(x, v[N ? p : 0][i]);
            else if (p != a->rank && from + i * ROW < bytes)
                to_words(x, load_remote(rows + i * ROW));
            if (p == 0)
                sum[i].first((int)a->op, x, scale_of<T, OP>(r, p));
            else
                sum[i].step((int)a->op, x, scale_of<T, OP>(r, p));
        }
    }
#pragma unroll
    for (int i = 0; i < U; i++) sum[i].last((int)a->op, n, out[i]);
}

template <int S, int T, int N, int OP, int U>
DEV void hop_rows_take(const run &r, const share &w, uint32_t k, unsigned j) {
    const symm_args *a = r.a;
    if (!(S & REDUCES)) {
        hop_rows_copy<S, N, U>(a, w, k, j);
        return;
    }
    const uint64_t from = row_at(w, k, j);
    uint32_t out[U][4];
    if (from >= w.bytes || !takes<S>(a, a->rank)) return;
    hop_rows_sum<T, N, OP, U>(r, w, k, j, own_source<S>(a), from, w.bytes, out);
    store_rows<U>((char *)a->dst, out, from, w.bytes, ROW);
}

/* Behind the send of turn k: all warps meet, and the last one posts k. Then this warp waits for the
 * posts of the turn before. */
enum { TURN_LEAVE = -1, TURN_NOTHING, TURN_TAKE };
DEV int turn(run &r, const share &w, uint32_t k) {
    if (turn_meet(w.warps, r.left)) {
        r.left = 1;
        return TURN_LEAVE;
    }
    /* A warp that is leaving comes to the next barrier, so that all leave there. */
    return !k || posts_wait(r, w, k - 1) ? TURN_NOTHING : TURN_TAKE;
}

/* In place is safe: the thread that stores 16 bytes is the one that has loaded, or sent, what was
 * there. */
template <int S, int T, int N, int OP> DEV void hop_staged(run &r, places &at) {
    const int SENT = rows_at_once(N, 1),
              TAKEN = rows_at_once(N, !(S & REDUCES) || wide_rows<T, OP>());
    const symm_args *a = r.a;
    share w = share_of(a, 1, 0);
    w.each = w.bytes;
    const uint32_t pieces = pieces_of(w);
    if (posts_begin(r, at, pieces, S & REDUCES && OP == ANY_OP && scalars_wait(r))) return;
    for (uint32_t k = 0; pieces && k <= pieces; k++) {
        for (unsigned j = 0; k < pieces && !r.left && j < w.rows; j += SENT)
            hop_rows_send<S, N, SENT>(a, w, k, j);
        const int go = turn(r, w, k);
        if (go == TURN_LEAVE) break;
        for (unsigned j = 0; go == TURN_TAKE && j < w.rows; j += TAKEN)
            hop_rows_take<S, T, N, OP, TAKEN>(r, w, k - 1, j);
    }
    r.loads = 1; /* what it has staged at peers is posted */
    arrive_and_wait(r);
}

/* What is reduced: by loads where they are faster and the sources allow it. Of reduce among more
 * than two ranks the root's link would carry all that is loaded. */
template <int S, int T, int N, int OP> DEV void hop_reduce(run &r, places &at) {
    if constexpr (N == 2 || (N && S & SRC_EACH)) {
        const uint64_t bytes = part_bytes(r.a), apart = S & SRC_EACH ? bytes : 0;
        const int loads = N > 2 || bytes <= hop_pull_most<S, T, OP>();
        int way = loads || bytes > HOP_PULL_MOST ? trade_sources(r, at) : 0;
        if (way > 0 && !loads && (at.src[0] | apart) % 16 == 0) way = 0;
        if (way < 0)
            posts_begin(r, at, 0, 1);
        else if (way)
            hop_pull<S, T, N, OP>(r, at);
        if (way) return;
    }
    hop_staged<S, T, N, OP>(r, at);
}
template <int S, int T, int N> DEV void body_hop_reduce(run &r, places &at) {
    by_op<HOT(T)>(r.a->op, [&](auto op) { hop_reduce<S, T, N, op.OP>(r, at); });
}
template <int S, int N> DEV void body_hop_direct(run &r, places &at) {
    if ((S == ALLTOALL || S == BROADCAST) && is_copied(r)) {
        copies_end(r, at);
        return;
    }
    const int way = trade_targets<S>(r, at);
    if (!way)
        hop_staged<S, symmUint8, N, ANY_OP>(r, at);
    else if (!posts_begin(r, at, 0, way < 0))
        hop_direct<S, N>(r, at);
}

#endif
