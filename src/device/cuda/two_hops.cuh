/* two_hops.cuh - large broadcasts and reduces of three and more ranks. The message is cut into a
 * slice for each rank but the root: its owner. What the root sends or takes is then the message
 * once, as the links allow at most; slices for the root too would cost it more. GPU code: the data
 * threads run it.
 *
 *   broadcast  the root sends pieces of each slice to its owner's staging; the owner stores them to
 *              all but the root
 *   reduce     every rank sends pieces of each slice to its owner's staging; the owner stores what
 *              they make to the root
 *
 * "Stores": straight into windows where each of these destinations is in one, at a multiple of 16
 * bytes; otherwise into the taker's staging, from which it copies. Posts go between all ranks, in
 * every turn, so everything is safe as in staged.cuh and relayed.cuh: results of a piece take the
 * place of those of four pieces before, whose taker has posted since. */
#ifndef SYMM_CUDA_TWO_HOPS_CUH_
#define SYMM_CUDA_TWO_HOPS_CUH_

#include "hop_staged.cuh"

/* Slices of a message, one for each rank but the root. */
DEV share two_hop_share(const symm_args *a, int straight) {
    share w = share_of(a, straight ? 1 : PHASES, 0);
    w.each = slice_bytes(w.bytes, a->nranks - 1);
    return w;
}
/* That of rank p, which is not the root: it begins at `at` of the message, and this warp's rows of
 * piece k end before byte `bytes` of it, where it may have ended. */
struct owned {
    uint64_t at, bytes;
};
DEV owned owned_by(const symm_args *a, const share &w, int p, uint32_t k) {
    const slice s = slice_of(w.bytes, w.each, p - (p > a->gpu.root));
    const uint64_t rows = row_at(w, k, w.rows) - w.lane * 16;
    owned o = {s.at, s.end - s.at};
    if (rows < o.bytes) o.bytes = rows;
    return o;
}

/* U rows of piece k of every slice to its owner; a broadcast's root has them in its result, too. */
template <int S, int N, int U>
DEV void slices_stage(const symm_args *a, const share &w, uint32_t k, unsigned j) {
    const int n = N ? N : a->nranks;
    const uint64_t from = row_at(w, k, j);
    if (!gives<S>(a, a->rank)) return;
    uint32_t v[N ? N : 1][U][4];
#pragma unroll
    for (int q = 1; q < N; q++) {
        const int p = peer_of(a->rank, n, q);
        const owned o = owned_by(a, w, p, k);
        if (!is_root(a, p) && from < o.bytes)
            load_rows<U>(v[N ? q : 0], (const char *)a->src + o.at, from, o.bytes, ROW);
    }
#pragma unroll
    for (int q = 1; q < n; q++) {
        const int p = peer_of(a->rank, n, q);
        const owned o = owned_by(a, w, p, k);
        uint32_t(&x)[U][4] = v[N ? q : 0];
        if (is_root(a, p) || from >= o.bytes) continue;
        if (!N) load_rows<U>(x, (const char *)a->src + o.at, from, o.bytes, ROW);
        char *to = staged_at(a, w, p, a->rank, k, j);
#pragma unroll
        for (int i = 0; i < U; i++)
            if (from + i * ROW < o.bytes) stage(to + i * ROW, x[i]);
        if (S & ROOT_GIVES && a->dst != a->src)
            store_rows<U>((char *)a->dst + o.at, x, from, o.bytes, ROW);
    }
}

/* U rows of piece k of the own slice, to who takes it. */
template <int S, int T, int N, int OP, int U>
DEV void slice_pass(const run &r, const share &w, const places &at, int straight, uint32_t k,
                    unsigned j) {
    const symm_args *a = r.a;
    const int n = N ? N : a->nranks;
    const uint64_t from = row_at(w, k, j);
    const owned o = owned_by(a, w, a->rank, k);
    uint32_t out[U][4];
    if (is_root(a, a->rank) || from >= o.bytes) return;
    if (S & REDUCES) {
        hop_rows_sum<T, N, OP, U>(r, w, k, j, (const char *)a->src + o.at, from, o.bytes, out);
    } else {
        const char *rows = staged_at(a, w, a->rank, a->gpu.root, k, j);
#pragma unroll
        for (int i = 0; i < U; i++)
            if (from + i * ROW < o.bytes) to_words(out[i], load_remote(rows + i * ROW));
        store_rows<U>((char *)a->dst + o.at, out, from, o.bytes, ROW);
    }
#pragma unroll
    for (int q = 1; q < (S & ROOT_TAKES ? 2 : n); q++) {
        const int p = S & ROOT_TAKES ? a->gpu.root : peer_of(a->rank, n, q);
        if (!(S & ROOT_TAKES) && is_root(a, p)) continue;
        if (straight) {
            store_rows<U>(target_of(a, at, p) + o.at, out, from, o.bytes, ROW);
            continue;
        }
        char *to = staged_at(a, w, p, a->rank, k, j, PHASE_RESULTS);
#pragma unroll
        for (int i = 0; i < U; i++)
            if (from + i * ROW < o.bytes) stage(to + i * ROW, out[i]);
    }
}

/* U rows of piece k of the slices of all other owners, copied out of staging. */
template <int S, int N, int U>
DEV void slices_copy(const symm_args *a, const share &w, uint32_t k, unsigned j) {
    const int n = N ? N : a->nranks;
    const uint64_t from = row_at(w, k, j);
    if (S & ROOT_TAKES ? !is_root(a, a->rank) : is_root(a, a->rank)) return;
#pragma unroll 2
    for (int q = 1; q < n; q++) {
        const int p = peer_of(a->rank, n, q);
        const owned o = owned_by(a, w, p, k);
        uint32_t v[U][4];
        if (is_root(a, p) || from >= o.bytes) continue;
        const char *rows = staged_at(a, w, a->rank, p, k, j, PHASE_RESULTS);
#pragma unroll
        for (int i = 0; i < U; i++)
            if (from + i * ROW < o.bytes) to_words(v[i], load_remote(rows + i * ROW));
        store_rows<U>((char *)a->dst + o.at, v, from, o.bytes, ROW);
    }
}

/* In place is safe. A slice's bytes at the root are overwritten by the slice's owner, after the
 * root's post, which follows its loads of them. Windows of a rank that has left are left alone
 * as in staged.cuh. Results in staging are taken two turns
 * later, as in relayed.cuh. */
template <int S, int T, int N, int OP> DEV void two_hops(run &r, places &at, int straight) {
    const unsigned U = N == 4 ? 2 : 1;
    const symm_args *a = r.a;
    const share w = two_hop_share(a, straight);
    const uint32_t pieces = pieces_of(w), turns = pieces + (straight ? 1 : 3);
    if (posts_begin(r, at, pieces ? turns - 1 : 0, S & REDUCES && OP == ANY_OP && scalars_wait(r)))
        return;
    for (uint32_t k = 0; pieces && k < turns; k++) {
        for (unsigned j = 0; k < pieces && !r.left && j < w.rows; j += U)
            slices_stage<S, N, U>(a, w, k, j);
        const int go = turn(r, w, k);
        if (go == TURN_LEAVE) break;
        if (go == TURN_NOTHING) continue;
        for (unsigned j = 0; k <= pieces && j < w.rows; j += U)
            slice_pass<S, T, N, OP, U>(r, w, at, straight, k - 1, j);
        for (unsigned j = 0; !straight && k >= 3 && j < w.rows; j += U)
            slices_copy<S, N, U>(a, w, k - 3, j);
    }
    arrive_and_wait(r);
}

/* Whether the second hop may go into windows: every destination of it, as in trade_targets. */
template <int S> DEV int is_straight(const run &r, const places &at) {
    uint64_t bad = 0;
    for (int p = 0; p < r.a->nranks; p++)
        if (S & ROOT_TAKES ? is_root(r.a, p) : !is_root(r.a, p)) bad |= at.dst[p] % 16;
    return !bad;
}
template <int S> DEV int trade_second(run &r, places &at) {
    return trade_offsets<0>(r, at) ? -1 : is_straight<S>(r, at);
}

/* One hop between two ranks, or on one. */
template <int N> DEV void body_broadcast(run &r, places &at) {
    if (N == 2 || r.a->nranks <= 2) {
        body_hop_direct<BROADCAST, N>(r, at);
        return;
    }
    const int way = N == 2 ? 0 : trade_second<BROADCAST>(r, at);
    if (way < 0)
        posts_begin(r, at, 0, 1);
    else if (N != 2)
        two_hops<BROADCAST, symmUint8, N, ANY_OP>(r, at, way);
}
/* A reduce whose sources and result are in windows and have the same alignment: each owner loads
 * its slice from all, and stores what they make to the root. In place as in pull.cuh: the thread
 * that stores 16 bytes at the root has loaded what was there. */
template <int T, int N, int OP> DEV void reduce_pull(run &r, places &at) {
    const symm_args *a = r.a;
    if (posts_begin(r, at, 0, OP == ANY_OP && scalars_wait(r))) return;
    if (!is_root(a, a->rank)) {
        const share all = two_hop_share(a, 1);
        const slice s = slice_of(all.bytes, all.each, a->rank - (a->rank > a->gpu.root));
        pull_slice<T, N, OP>(r, at, s.at, s.end, target_of(a, at, a->gpu.root) + s.at);
    }
    arrive_and_wait(r);
}
/* Whether the root's result is in a window, and aligned as the sources are. */
DEV int meets_root(const symm_args *a, const places &at) {
    const uint64_t to = at.dst[a->gpu.root];
    return to != SYMM_STAGED && (to - at.src[0]) % 16 == 0;
}
template <int T, int N, int OP> DEV void reduce_large(run &r, places &at) {
    if (N == 2 || r.a->nranks <= 2) {
        hop_reduce<REDUCE, T, N, OP>(r, at);
        return;
    }
    int way = -1, loads = 0;
    if constexpr (N > 2) {
        loads = trade_sources(r, at);
        way = loads < 0 ? -1 : is_straight<REDUCE>(r, at);
        if (loads == 1 && meets_root(r.a, at)) {
            reduce_pull<T, N, OP>(r, at);
            return;
        }
    } else if (N != 2) {
        way = trade_second<REDUCE>(r, at);
    }
    if (way < 0)
        posts_begin(r, at, 0, 1);
    else if (N != 2)
        two_hops<REDUCE, T, N, OP>(r, at, way);
}
template <int T, int N> DEV void body_reduce_large(run &r, places &at) {
    by_op<HOT(T)>(r.a->op, [&](auto op) { reduce_large<T, N, op.OP>(r, at); });
}

#endif
