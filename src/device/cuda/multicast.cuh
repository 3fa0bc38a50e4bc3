/* multicast.cuh - large messages over the multicast range, where one store goes into all ranks'
 * memory and one load reduces what all of it holds (NVLS). GPU code: the data threads run it.
 *
 *   all_reduce      each rank reduces its slice by loads and stores it to all
 *   reduce_scatter  each rank reduces its part by loads
 *   reduce          so does the root, with the message
 *   all_gather      each rank stores its part to all
 *   broadcast       so does the root, with the message
 *
 * Entry and exit are those of direct.cuh. The offsets say whether the range may be used: whether
 * what is loaded, or stored, over it lies at the same multiple of 16 on all ranks, in windows that
 * are bound there. Windows are bound on all ranks or on none, and ranks look at the same point of
 * their calls (a memo of a call ends when anything is bound), so the own one answers for all. If
 * the answer is no, the collective's direct kernel goes on, on all ranks.
 *
 * Calls are whole numbers of 16 bytes: the planner sees to it (SYMM_KERNEL's `multicast`).
 *
 * Windows are written and read by their usual addresses, too, before and after. So on entry each
 * rank releases what was stored there before it says its offsets, and each thread has an alias
 * fence behind the offsets of all ranks. At the end each thread has one before the arrival words,
 * which release what it has stored.
 *
 * In place is safe: the thread that stores 16 bytes is the one that has loaded what was there, on
 * all ranks, and no other thread of any rank reads it. */
#ifndef SYMM_CUDA_MULTICAST_CUH_
#define SYMM_CUDA_MULTICAST_CUH_

#include "two_hops.cuh"

/* ---- reductions that the switch has: plan.c's switch_reduces ------------------------------ */

/* of: the reduction's number, the same in all threads. */
template <int T> struct multicast { /* none of this type */
    DEV uint4 load(const char *, int) { return make_uint4(0, 0, 0, 0); }
};
#define MULTICAST_ADDS(T, what)                                                \
    template <> struct multicast<T> {                                          \
        DEV uint4 load(const char *p, int) { return multicast_add_##what(p); } \
    };
#define MULTICAST_ORDERS(T, sum, what)                             \
    template <> struct multicast<T> {                              \
        DEV uint4 load(const char *p, int of) {                    \
            if (of == SYMM_OP_MAX) return multicast_max_##what(p); \
            if (of == SYMM_OP_MIN) return multicast_min_##what(p); \
            return multicast_add_##sum(p);                         \
        }                                                          \
    };
MULTICAST_ADDS(symmFloat32, f32)
MULTICAST_ADDS(symmFloat16, f16)
MULTICAST_ADDS(symmBfloat16, bf16)
MULTICAST_ADDS(symmFloat64, f64)
MULTICAST_ORDERS(symmInt32, u32, s32)
MULTICAST_ORDERS(symmUint32, u32, u32)
MULTICAST_ORDERS(symmInt64, u64, s64)
MULTICAST_ORDERS(symmUint64, u64, u64)

/* ---- one loop for all ------------------------------------------------------------------------ */

#define MULTICAST_ROWS 4 /* of 512 bytes that a warp has under way */

/* What a rank moves: `bytes`, a multiple of 16. The source is a multicast address, all of whose
 * ranks are reduced, or a usual one; so is the destination. */
struct cast_move {
    const char *from;
    char *to;
    uint64_t bytes;
};
template <int T, int REDUCE_THERE>
DEV void cast_load(const run &r, uint4 &v, const char *p, int align) {
    if (REDUCE_THERE) {
        v = multicast<T>::load(p, (int)r.a->op);
    } else {
        uint32_t w[4];
        load_user(w, p, 16, align);
        v = make_uint4(w[0], w[1], w[2], w[3]);
    }
}
/* Averages are divided here; and a NaN gets the bits that symm.h promises. */
template <int T> DEV void cast_finish(const run &r, uint32_t (&w)[4], uint4 v) {
    reduction<T, 4, ANY_OP> sum;
    to_words(w, v);
    sum.first((int)r.a->op, w, 0);
    sum.last((int)r.a->op, r.a->nranks, w);
}
/* Chunk by chunk. Before it stores a chunk a warp looks whether a rank has left, whose windows are
 * its own again then. */
template <int T, int REDUCE_THERE, int STORE_THERE> DEV void cast_all(run &r, const cast_move &m) {
    const int U = MULTICAST_ROWS;
    const uint64_t block = U * ROW, chunks = (m.bytes + block - 1) / block;
    const unsigned warps = data_threads() / 32u, lane = threadIdx.x % 32u * 16;
    const int from = alignment(m.from), to = alignment(m.to);
    for (uint64_t c = first_chunk(warps, chunks); c < chunks; c += (uint64_t)warps * gridDim.x) {
        uint4 v[U];
        look_over(r);
#pragma unroll
        for (int i = 0; i < U; i++)
            if (c * block + lane + i * ROW < m.bytes)
                cast_load<T, REDUCE_THERE>(r, v[i], m.from + c * block + lane + i * ROW, from);
        if (r.over) {
            r.left = 1;
            break;
        }
#pragma unroll
        for (int i = 0; i < U; i++) {
            uint32_t w[4];
            if (c * block + lane + i * ROW >= m.bytes) continue;
            char *at = m.to + c * block + lane + i * ROW;
            if (REDUCE_THERE)
                cast_finish<T>(r, w, v[i]);
            else
                to_words(w, v[i]);
            if (STORE_THERE)
                multicast_store16(at, make_uint4(w[0], w[1], w[2], w[3]));
            else
                store_user(at, w, 16, to);
        }
    }
    alias_fence(); /* of loads and stores; before the release of the arrival words */
    arrive_and_wait(r);
}

/* ---- entry ----------------------------------------------------------------------------------- */

/* Whether all of these lie at the same multiple of 16 of windows that are bound. */
DEV int is_cast(const symm_args *a, const uint64_t *off, uint32_t bound) {
    uint64_t differ = off[0] % 16; /* SYMM_STAGED is odd */
    for (int p = 1; p < a->nranks; p++) differ |= off[p] ^ off[0];
    return !differ && a->flags & bound;
}
enum { FROM_ALL = 1, TO_ALL = 2 }; /* what goes over the range: `multicast` of the row */
/* Exchanges the offsets. 1: over the range; 0: not; -1: leave. All data threads call it. */
template <int WAY> DEV int trade_casts(run &r, places &at) {
    const symm_args *a = r.a;
    /* What kernels before this one have stored, by usual addresses, comes before the offsets: pairs
     * with the fence behind them at the peers. */
    __threadfence_system();
    if (trade_offsets<1>(r, at)) return -1;
    const int yes = (!(WAY & FROM_ALL) || is_cast(a, at.src, SYMM_ARG_CAST_SRC)) &&
                    (!(WAY & TO_ALL) || is_cast(a, at.dst, SYMM_ARG_CAST_DST));
    /* A thread that has seen a peer's offsets has both fences behind that, and all threads come
     * behind them. */
    if (yes) {
        __threadfence_system();
        alias_fence();
    }
    /* Also because a direct kernel trades offsets anew, in the same places: all have looked. */
    data_barrier(0);
    return yes;
}
/* Parts begin at multiples of 16. */
DEV char *cast_of(const symm_args *a, uint64_t off) {
    return (char *)(a->gpu.multicast + off);
}

/* ---- the kernels ----------------------------------------------------------------------------- */

template <int T> DEV void body_ar_multicast(run &r, places &at) {
    const symm_args *a = r.a;
    const int way = trade_casts<FROM_ALL | TO_ALL>(r, at);
    if (!way) {
        body_ar_direct<T, 0>(r, at);
    } else if (!posts_begin(r, at, 0, way < 0)) {
        const uint64_t bytes = a->count * a->esize;
        const slice s = slice_of(bytes, slice_bytes(bytes, a->nranks), a->rank);
        cast_all<T, 1, 1>(
            r, {cast_of(a, at.src[0] + s.at), cast_of(a, at.dst[0] + s.at), s.end - s.at});
    }
}
/* reduce_scatter and reduce. */
template <int S, int T> DEV void body_hop_reduce_multicast(run &r, places &at) {
    const symm_args *a = r.a;
    const int way = trade_casts<FROM_ALL>(r, at);
    if (!way) {
        if (S & ROOT_TAKES)
            body_reduce_large<T, 0>(r, at);
        else
            body_hop_reduce<S, T, 0>(r, at);
    } else if (!posts_begin(r, at, 0, way < 0)) {
        cast_all<T, 1, 0>(r, {cast_of(a, at.src[0] + part_for<S>(a, a->rank)), (char *)a->dst,
                              takes<S>(a, a->rank) ? part_bytes(a) : 0});
    }
}
DEV void body_ag_multicast(run &r, places &at) {
    const symm_args *a = r.a;
    const int way = trade_casts<TO_ALL>(r, at);
    if (!way)
        body_ag_direct<0>(r, at);
    else if (!posts_begin(r, at, 0, way < 0))
        cast_all<symmUint8, 0, 1>(r, {(const char *)a->src,
                                      cast_of(a, at.dst[0] + (unsigned)a->rank * part_bytes(a)),
                                      part_bytes(a)});
}
DEV void body_broadcast_multicast(run &r, places &at) {
    const symm_args *a = r.a;
    const int way = trade_casts<TO_ALL>(r, at);
    if (!way)
        body_broadcast<0>(r, at);
    else if (!posts_begin(r, at, 0, way < 0))
        cast_all<symmUint8, 0, 1>(r, {(const char *)a->src, cast_of(a, at.dst[0]),
                                      is_root(a, a->rank) ? part_bytes(a) : 0});
}

#endif
