/* pull.cuh - large reductions of two ranks whose sources are in windows: a rank loads its peer's
 * part over the link, reduces, and stores. Nothing goes through staging, and nobody waits between
 * entry and exit. (With more ranks loads are slower than stores: docs/performance.md.) GPU code:
 * the data threads run it.
 *
 *   all_reduce      the half that is this rank's; the sum goes into both windows
 *   reduce_scatter  this rank's part
 *   reduce          the message, by the root; its peer waits
 *
 * Entry and exit are those of direct.cuh. The offsets say that the peer's kernel has begun: what
 * was stored into its source before that is in its memory. Its arrival says that it reads our
 * source no more.
 *
 * In place is safe: the thread that stores 16 bytes, at either rank, is the one that has loaded
 * what was there, and no other thread of either rank reads it. */
#ifndef SYMM_CUDA_PULL_CUH_
#define SYMM_CUDA_PULL_CUH_

#include "shape.cuh"
#include "staged.cuh"

/* Exchanges the offsets of all buffers. All data threads call it.
 *  1  both sources are in windows and each part begins and ends at a multiple of 16 bytes
 *  0  not so
 * -1  leave */
template <int S> DEV int trade_sources(run &r, places &at) {
    const symm_args *a = r.a;
    if (trade_offsets<1>(r, at)) return -1;
    uint64_t bad = part_bytes(a);
    for (int p = 0; p < a->nranks; p++) bad |= at.src[p]; /* SYMM_STAGED is odd */
    return bad % 16 == 0;
}

/* What a rank reduces: `bytes` from here on, a multiple of 16, as all addresses but `to` are.
 * also: where the sum goes at the peer; 0: nowhere. */
struct pulled {
    const char *own, *theirs;
    char *to, *also;
    uint64_t bytes;
};
/* Rows that a warp has under way, and as many again: as the registers allow. */
template <int T, int OP> constexpr DEV int pull_at_once(void) {
    return OP == ANY_OP || elem<T>::BYTES < 2 ? 2 : 4;
}
/* Bytes of a message, or of a part, up to which loads are faster than staging: measured on two H100
 * (docs/performance.md). With few loads under way they lose sooner. */
#ifndef AR_PULL_MOST
#define AR_PULL_MOST (8ull << 20)
#endif
template <int S, int T, int OP> constexpr DEV uint64_t hop_pull_most(void) {
    return pull_at_once<T, OP>() < 4 ? (S & SRC_EACH ? 8ull : 32ull) << 20
           : S & SRC_EACH            ? 64ull << 20
                                     : ~0ull;
}
/* A warp's rows of it. */
template <int U> struct pull_rows {
    uint32_t own[U][4];
    uint4 got[U];
};
/* Nothing where there is nothing: no branch, behind which loads would be waited for. */
template <int U> DEV void rows_load(pull_rows<U> &v, const pulled &w, uint64_t from) {
#pragma unroll
    for (int i = 0; i < U; i++)
        if (from + i * ROW < w.bytes) v.got[i] = load_remote(w.theirs + from + i * ROW);
#pragma unroll
    for (int i = 0; i < U; i++)
        if (from + i * ROW < w.bytes) to_words(v.own[i], load16(w.own + from + i * ROW));
}
template <int T, int OP, int U>
DEV void rows_store(const run &r, pull_rows<U> &v, const pulled &w, uint64_t from, int align) {
#pragma unroll
    for (int i = 0; i < U; i++) {
        if (from + i * ROW >= w.bytes) continue;
        pair_reduce<T, OP>(r, v.own[i], v.got[i]);
        store_user(w.to + from + i * ROW, v.own[i], 16, align);
        if (w.also)
            *(uint4 *)(w.also + from + i * ROW) =
                make_uint4(v.own[i][0], v.own[i][1], v.own[i][2], v.own[i][3]);
    }
}
/* Chunk by chunk: the next one is under way while one is reduced. Before it stores a chunk a warp
 * looks whether the peer has left, whose window is its own again then. */
template <int T, int OP> DEV void pull(run &r, const pulled &w) {
    const int U = pull_at_once<T, OP>();
    const uint64_t block = U * ROW, chunks = (w.bytes + block - 1) / block;
    const unsigned warps = data_threads() / 32u, lane = threadIdx.x % 32u * 16;
    const int align = alignment(w.to);
    pull_rows<U> v;
    uint64_t c = first_chunk(warps, chunks);
    look_over(r);
    rows_load(v, w, c * block + lane);
    while (c < chunks && !r.over) {
        const uint64_t then = c + (uint64_t)warps * gridDim.x;
        pull_rows<U> next;
        rows_load(next, w, then * block + lane);
        rows_store<T, OP, U>(r, v, w, c * block + lane, align);
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
    pull<T, OP>(r,
                {(const char *)a->src + from, source_of(a, at, peer) + from, (char *)a->dst + from,
                 target_of(a, at, peer) + from, w.mine.end - from - tail});
    if (!r.left && blockIdx.x == 0 && threadIdx.x == 0) {
        if (w.lead && a->rank == 0) reduce_end<T, OP>(r, at, 0, w.lead);
        if (tail) reduce_end<T, OP>(r, at, w.mine.end - tail, tail);
    }
    arrive_and_wait(r);
}
/* The other shapes, behind trade_sources. */
template <int S, int T, int OP> DEV void hop_pull(run &r, places &at) {
    const symm_args *a = r.a;
    const uint64_t part = part_for<S>(a, a->rank);
    if (posts_begin(r, at, 0, OP == ANY_OP && scalars_wait(r))) return;
    if (takes<S>(a, a->rank))
        pull<T, OP>(r, {(const char *)a->src + part, source_of(a, at, 1 - a->rank) + part,
                        (char *)a->dst, 0, part_bytes(a)});
    arrive_and_wait(r);
}

#endif
