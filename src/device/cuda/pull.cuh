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
 *  1  all sources are in windows and have the same alignment, and no element crosses a multiple of
 *     16: so what a rank reduces begins at all sources as far from one
 *  0  not so
 * -1  leave */
DEV int trade_sources(run &r, places &at) {
    const symm_args *a = r.a;
    if (trade_offsets<1>(r, at)) return -1;
    uint64_t bad = at.src[0] & (a->esize - 1);
    for (int p = 0; p < a->nranks; p++)
        bad |= at.src[p] == SYMM_STAGED ? 1u : (at.src[p] - at.src[0]) & 15u;
    return !bad;
}

/* What a rank of N reduces: `bytes` from here on, a multiple of 16, as all addresses but `to` are.
 * also: where the sum goes at the peer of two ranks; 0: nowhere. */
template <int N> struct pulled {
    const char *from[N]; /* by rank; the own one too */
    char *to, *also;
    uint64_t bytes;
};
/* Rows of each rank that a warp loads at once, and as many again that are under way meanwhile. The
 * smaller the chunks, the more evenly the warps end (docs/performance.md). */
template <int N> constexpr DEV int pull_at_once(void) {
    return N == 2 ? 2 : 1;
}
/* Bytes of a message, or of a part, up to which two ranks' loads are faster than staging: measured
 * on two H100 (docs/performance.md). Where elements take more arithmetic they lose sooner. Beyond
 * HOP_PULL_MOST what is off a multiple of 16 is loaded all the same: staging takes twice the time
 * there. */
#ifndef AR_PULL_MOST
#define AR_PULL_MOST (8ull << 20)
#endif
#ifndef HOP_PULL_MOST
#define HOP_PULL_MOST (64ull << 20)
#endif
template <int S, int T, int OP> constexpr DEV uint64_t hop_pull_most(void) {
    const int slow = OP == ANY_OP || elem<T>::BYTES < 2;
    if (S & SRC_EACH && slow) return HOP_PULL_MOST > 8ull << 20 ? 8ull << 20 : HOP_PULL_MOST;
    if (S & SRC_EACH && elem<T>::BYTES > 2) return HOP_PULL_MOST;
    return slow ? 32ull << 20 : ~0ull;
}
/* A warp's rows of it. Nothing where there is nothing: no branch, behind which loads would be
 * waited for. */
template <int N, int U> struct pull_rows { uint4 got[U][N]; };
template <int N, int U> DEV void rows_load(pull_rows<N, U> &v, const pulled<N> &w, uint64_t from) {
#pragma unroll
    for (int i = 0; i < U; i++)
#pragma unroll
        for (int p = 0; p < N; p++)
            get16_if(v.got[i][p], w.from[p] + from + i * ROW, from + i * ROW < w.bytes);
}
template <int T, int N, int OP, int U, int ALIGN>
DEV void rows_store(const run &r, const pull_rows<N, U> &v, const pulled<N> &w, uint64_t from) {
#pragma unroll
    for (int i = 0; i < U; i++) {
        reduction<T, 4, OP> sum;
        uint32_t x[4];
        if (from + i * ROW >= w.bytes) continue;
#pragma unroll
        for (int p = 0; p < N; p++) {
            to_words(x, v.got[i][p]);
            if (p == 0)
                sum.first((int)r.a->op, x, scale_of<T, OP>(r, p));
            else
                sum.step((int)r.a->op, x, scale_of<T, OP>(r, p));
        }
        sum.last((int)r.a->op, N, x);
        store_user(w.to + from + i * ROW, x, 16, ALIGN ? ALIGN : alignment(w.to));
        if (N == 2 && w.also)
            *(uint4 *)(w.also + from + i * ROW) = make_uint4(x[0], x[1], x[2], x[3]);
    }
}
/* Chunk by chunk: the next one is under way while one is reduced, in other registers: a copy of
 * what is under way would wait for it. Before it stores a chunk a warp looks whether a peer has
 * left, whose window is its own again then. */
template <int T, int N, int OP, int ALIGN> DEV void pull_chunks(run &r, const pulled<N> &w) {
    const int U = pull_at_once<N>();
    const uint64_t block = U * ROW, chunks = (w.bytes + block - 1) / block;
    const unsigned warps = data_threads() / 32u, lane = threadIdx.x % 32u * 16;
    pull_rows<N, U> v;
    uint64_t c = first_chunk(warps, chunks);
    rows_load<N, U>(v, w, c * block + lane);
#pragma unroll 2
    while (c < chunks) {
        const uint64_t then = c + (uint64_t)warps * gridDim.x;
        pull_rows<N, U> next;
        look_over(r); /* sooner back than what is loaded */
        rows_load<N, U>(next, w, then * block + lane);
        if (r.over) break;
        rows_store<T, N, OP, U, ALIGN>(r, v, w, c * block + lane);
        v = next, c = then;
    }
    r.left |= r.over;
}
/* Results at a multiple of 16 have a loop of their own. A warp waits by one of six counters. With
 * the stores of all alignments in one loop the look at `over` shared a counter with some of them,
 * and the next loads waited for the look: 12 % of the time (docs/performance.md). */
template <int T, int N, int OP> DEV void pull(run &r, const pulled<N> &w) {
    if (alignment(w.to) == 16)
        pull_chunks<T, N, OP, 16>(r, w);
    else
        pull_chunks<T, N, OP, 0>(r, w);
}

/* all_reduce behind trade_places, which has said that all have the same alignment: the slices, lead
 * and tail of ar_staged. */
template <int T, int OP> DEV void ar_pull(run &r, places &at) {
    const symm_args *a = r.a;
    if (posts_begin(r, at, 0, OP == ANY_OP && scalars_wait(r))) return;
    const share w = share_of(a, 1, lead_of(a->src, a->count * a->esize));
    const uint64_t tail = (w.mine.end - w.mine.at) % 16, from = w.mine.at;
    pull<T, 2, OP>(r, {{source_of(a, at, 0) + from, source_of(a, at, 1) + from},
                       (char *)a->dst + from,
                       target_of(a, at, 1 - a->rank) + from,
                       w.mine.end - from - tail});
    reduce_slice_ends<T, 2, OP>(r, at, w);
    arrive_and_wait(r);
}
/* What lies from `from` to `end` of all sources, reduced, from `to` on: the rows by all warps, what
 * is before the first and behind the last by CTA 0. This goes first, so that no register is kept
 * for it meanwhile. Rows begin at a multiple of 128, a line of a link: else each row takes a part
 * of one line more. */
template <int T, int N, int OP>
DEV void pull_slice(run &r, const places &at, uint64_t from, uint64_t end, char *to) {
    const symm_args *a = r.a;
    const unsigned before = (unsigned)(0 - (uintptr_t)a->src - from) & 127u,
                   lead = before < end - from ? before : (unsigned)(end - from),
                   tail = (unsigned)(end - from - lead) % 16u;
    reduce_ends<T, N, OP>(r, at, {from, end - tail, lead, tail}, to);
    pulled<N> w = {{}, to + lead, 0, end - from - lead - tail};
#pragma unroll
    for (int p = 0; p < N; p++) w.from[p] = source_of(a, at, p) + from + lead;
    pull<T, N, OP>(r, w);
}
/* The other shapes, behind trade_sources. Nothing is stored at a peer. */
template <int S, int T, int N, int OP> DEV void hop_pull(run &r, places &at) {
    const symm_args *a = r.a;
    const uint64_t part = part_for<S>(a, a->rank);
    if (posts_begin(r, at, 0, OP == ANY_OP && scalars_wait(r))) return;
    if (takes<S>(a, a->rank))
        pull_slice<T, N, OP>(r, at, part, part + part_bytes(a), (char *)a->dst);
    r.loads = 1;
    arrive_and_wait(r);
}

#endif
