/* pull.cuh - large reductions whose sources are in windows: a rank loads its peers' parts over the
 * links, reduces, and stores. Nothing goes through staging, and nobody waits between entry and
 * exit. GPU code: the data threads run it.
 *
 *   reduce_scatter  this rank's part; two, four and eight ranks
 *   all_reduce      of two ranks: the half that is this rank's; the sum goes into both windows
 *   reduce          of two ranks: the message, by the root; its peer waits. Of more: two_hops.cuh
 *
 * Entry and exit are those of direct.cuh. The offsets say that a peer's kernel has begun: what
 * was stored into its source before that is in its memory. Its arrival says that it reads our
 * source no more.
 *
 * In place is safe: the thread that stores 16 bytes, at any rank, is the one that has loaded
 * what was there, and no other thread of any rank reads it. */
#ifndef SYMM_CUDA_PULL_CUH_
#define SYMM_CUDA_PULL_CUH_

#include "shape.cuh"
#include "staged.cuh"

/* Exchanges the offsets of all buffers. All data threads call it.
 *  1  all sources are in windows and each part begins and ends at a multiple of 16 bytes
 *  0  not so
 * -1  leave */
DEV int trade_sources(run &r, places &at) {
    const symm_args *a = r.a;
    if (trade_offsets<1>(r, at)) return -1;
    uint64_t bad = part_bytes(a);
    for (int p = 0; p < a->nranks; p++) bad |= at.src[p]; /* SYMM_STAGED is odd */
    return bad % 16 == 0;
}

/* What a rank of N reduces: `bytes` from here on, a multiple of 16, as all addresses but `to` are.
 * also: where the sum goes at the peer of two ranks; 0: nowhere. */
template <int N> constexpr DEV int pull_peers(void) { /* two ranks: the peer; else all, by rank */
    return N == 2 ? 1 : N;
}
template <int N> struct pulled {
    const char *own, *theirs[pull_peers<N>()];
    char *to, *also;
    uint64_t bytes;
};
/* Rows that a warp has under way of each rank, and as many again: as the registers allow. */
template <int T, int N, int OP> constexpr DEV int pull_at_once(void) {
    return N == 2   ? (OP == ANY_OP || elem<T>::BYTES < 2 ? 2 : 4)
           : N == 4 ? (OP == ANY_OP || elem<T>::BYTES < 2 ? 1 : 2)
                    : 1;
}
/* Bytes of a message, or of a part, up to which two ranks' loads are faster than staging: measured
 * on two H100 (docs/performance.md). With few loads under way they lose sooner. */
#ifndef AR_PULL_MOST
#define AR_PULL_MOST (8ull << 20)
#endif
template <int S, int T, int OP> constexpr DEV uint64_t hop_pull_most(void) {
    return pull_at_once<T, 2, OP>() < 4 ? (S & SRC_EACH ? 8ull : 32ull) << 20
           : S & SRC_EACH               ? 64ull << 20
                                        : ~0ull;
}
/* A warp's rows of it. */
template <int N, int U> struct pull_rows {
    uint32_t own[U][4];
    uint4 got[U][pull_peers<N>()];
};
/* Nothing where there is nothing: no branch, behind which loads would be waited for. */
template <int N, int U>
DEV void rows_load(const run &r, pull_rows<N, U> &v, const pulled<N> &w, uint64_t from) {
#pragma unroll
    for (int p = 0; p < pull_peers<N>(); p++)
#pragma unroll
        for (int i = 0; i < U; i++)
            if ((N == 2 || p != r.a->rank) && from + i * ROW < w.bytes)
                v.got[i][p] = load_remote(w.theirs[p] + from + i * ROW);
#pragma unroll
    for (int i = 0; i < U; i++)
        if (from + i * ROW < w.bytes) to_words(v.own[i], load16(w.own + from + i * ROW));
}
template <int T, int N, int OP, int U>
DEV void rows_store(const run &r, pull_rows<N, U> &v, const pulled<N> &w, uint64_t from,
                    int align) {
#pragma unroll
    for (int i = 0; i < U; i++) {
        if (from + i * ROW >= w.bytes) continue;
        if constexpr (N == 2)
            pair_reduce<T, OP>(r, v.own[i], v.got[i][0]);
        else
            ranks_reduce<T, N, OP>(r, v.own[i], v.got[i]);
        store_user(w.to + from + i * ROW, v.own[i], 16, align);
        if (N == 2 && w.also)
            *(uint4 *)(w.also + from + i * ROW) =
                make_uint4(v.own[i][0], v.own[i][1], v.own[i][2], v.own[i][3]);
    }
}
/* Chunk by chunk: the next one is under way while one is reduced. Before it stores a chunk a warp
 * looks whether a peer has left, whose window is its own again then. */
template <int T, int N, int OP> DEV void pull(run &r, const pulled<N> &w) {
    const int U = pull_at_once<T, N, OP>();
    const uint64_t block = U * ROW, chunks = (w.bytes + block - 1) / block;
    const unsigned warps = data_threads() / 32u, lane = threadIdx.x % 32u * 16;
    const int align = alignment(w.to);
    pull_rows<N, U> v;
    uint64_t c = first_chunk(warps, chunks);
    look_over(r);
    rows_load<N, U>(r, v, w, c * block + lane);
    while (c < chunks && !r.over) {
        const uint64_t then = c + (uint64_t)warps * gridDim.x;
        pull_rows<N, U> next;
        rows_load<N, U>(r, next, w, then * block + lane);
        rows_store<T, N, OP, U>(r, v, w, c * block + lane, align);
        look_over(r);
        v = next, c = then;
    }
    r.left |= r.over;
}

/* all_reduce behind trade_places, which has said that all have the same alignment: the slices, lead
 * and tail of ar_staged. */
template <int T, int OP> DEV void ar_pull(run &r, places &at) {
    const symm_args *a = r.a;
    const int peer = 1 - a->rank;
    if (posts_begin(r, at, 0, OP == ANY_OP && scalars_wait(r))) return;
    const share w = share_of(a, 1, lead_of(a->src, a->count * a->esize));
    const uint64_t tail = (w.mine.end - w.mine.at) % 16, from = w.mine.at;
    pull<T, 2, OP>(r, {(const char *)a->src + from,
                       {source_of(a, at, peer) + from},
                       (char *)a->dst + from,
                       target_of(a, at, peer) + from,
                       w.mine.end - from - tail});
    if (!r.left && blockIdx.x == 0 && threadIdx.x == 0) {
        if (w.lead && a->rank == 0) reduce_end<T, OP>(r, at, 0, w.lead);
        if (tail) reduce_end<T, OP>(r, at, w.mine.end - tail, tail);
    }
    arrive_and_wait(r);
}
/* The other shapes, behind trade_sources. */
template <int S, int T, int N, int OP> DEV void hop_pull(run &r, places &at) {
    const symm_args *a = r.a;
    const uint64_t part = part_for<S>(a, a->rank);
    if (posts_begin(r, at, 0, OP == ANY_OP && scalars_wait(r))) return;
    pulled<N> w = {(const char *)a->src + part, {}, (char *)a->dst, 0, part_bytes(a)};
#pragma unroll
    for (int p = 0; p < pull_peers<N>(); p++)
        w.theirs[p] = source_of(a, at, N == 2 ? 1 - a->rank : p) + part;
    if (takes<S>(a, a->rank)) pull<T, N, OP>(r, w);
    arrive_and_wait(r);
}

#endif
