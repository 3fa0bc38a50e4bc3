/* moe_kernel.cuh - the kernel of moe_device.cu: dispatch, expert and combine of a layer of a
 * mixture of experts, one expert per rank, in one launch. GPU code, all threads.
 *
 * The grid has `parts` CTAs for each rank, equal on all ranks, and another number in the next call
 * if there are more tokens. CTA b serves one peer, and of its rows one part:
 *  - dispatch: stores this rank's tokens for that peer's expert into the peer's inbox, and raises a
 *    signal;
 *  - expert: waits for the peer's tokens, scales them, and stores them into the peer's results;
 *  - combine: waits for the peer's expert, and puts what it has stored where the tokens were.
 * No barrier: a pair waits for each other alone. An inbox is written again in the next call: its
 * owner has read it by then, since its results came behind that. Results are read before this rank
 * raises the next call's signal, which the peer waits for before it stores more. */
#ifndef MOE_KERNEL_CUH_
#define MOE_KERNEL_CUH_

#include "symm_device.cuh"

struct moe_call {
    symmDevComm_t dev;
    symmDevWindow_t inbox, results; /* of each rank a box: see moe_row */
    const uint4 *tokens;            /* this rank's rows, of `vecs` vectors of 16 bytes */
    uint4 *y;                       /* the same rows, behind the experts */
    const uint32_t *order;          /* tokens by expert: those of e are first[e]..first[e+1] */
    const uint32_t *first;
    uint64_t *calls;       /* [CTAs] that have ended: signals count on, in replays too */
    uint32_t vecs, places; /* places: rows of a box */
    uint32_t most;         /* parts of the largest grid: of boxes, and of numbers of signals */
    float scale;           /* of this rank's expert */
};

/* Signals of a rank: from each source and part, that its tokens have come, then that its results
 * have. */
static __device__ unsigned moe_signal(const moe_call &a, int results, int source, unsigned part) {
    return ((unsigned)results * (unsigned)a.dev.nranks + (unsigned)source) * a.most + part;
}
/* A box has a head of 16 bytes for each part that there may be, with the number of rows, then the
 * rows. It lies at the same place in every grid: its owner may still read other ranks' boxes of the
 * call before. */
static __device__ uint64_t moe_box(const moe_call &a, int source) {
    return (unsigned)source * (a.most + (uint64_t)a.places * a.vecs) * 16;
}
static __device__ uint64_t moe_vec(const moe_call &a, int source, uint64_t i) {
    return moe_box(a, source) + (a.most + i) * 16;
}

/* 0, or 1: it gave up. By all CTAs. */
static __device__ int moe_layer(const moe_call &a) {
    typedef symmDevVec<symmFloat32> vec;
    symmDevCta cta;
    const int n = a.dev.nranks, me = a.dev.rank, peer = (me + (int)blockIdx.x % n) % n;
    const unsigned part = blockIdx.x / (unsigned)n, parts = gridDim.x / (unsigned)n;
    const uint64_t step = (uint64_t)parts * cta.threads();
    const uint64_t mine = (uint64_t)part * cta.threads() + cta.thread();
    const uint64_t call = symm_ptx::get8(&a.calls[blockIdx.x]) + 1;
    const uint32_t from = a.first[peer];
    const uint64_t rows = a.first[peer + 1] - from, all = rows * a.vecs;
    if (symmDevIsOver(a.dev, cta)) return 1;
    for (uint64_t i = mine; i < all; i += step)
        *(uint4 *)symmDevPeerPtr(a.dev, a.inbox, peer, moe_vec(a, me, i)) =
            a.tokens[(uint64_t)a.order[from + i / a.vecs] * a.vecs + i % a.vecs];
    if (cta.thread() == 0)
        *(uint4 *)symmDevPeerPtr(a.dev, a.inbox, peer, moe_box(a, me) + part * 16) =
            make_uint4((uint32_t)rows, 0, 0, 0);
    symmDevSignalRaise(a.dev, cta, peer, moe_signal(a, 0, me, part));

    if (symmDevSignalWait(a.dev, cta, moe_signal(a, 0, peer, part), call, peer)) return 1;
    const uint4 head = symm_ptx::load_peer(symmDevLocalPtr(a.inbox, moe_box(a, peer) + part * 16));
    const uint64_t theirs = (uint64_t)head.x * a.vecs;
    for (uint64_t i = mine; i < theirs; i += step) {
        float x[4];
        vec::unpack(symm_ptx::load_peer(symmDevLocalPtr(a.inbox, moe_vec(a, peer, i))), x);
#pragma unroll
        for (int k = 0; k < 4; k++) x[k] = __fmul_rn(x[k], a.scale);
        *(uint4 *)symmDevPeerPtr(a.dev, a.results, peer, moe_vec(a, me, i)) = vec::pack(x);
    }
    symmDevSignalRaise(a.dev, cta, peer, moe_signal(a, 1, me, part));

    if (symmDevSignalWait(a.dev, cta, moe_signal(a, 1, peer, part), call, peer)) return 1;
    for (uint64_t i = mine; i < all; i += step)
        a.y[(uint64_t)a.order[from + i / a.vecs] * a.vecs + i % a.vecs] =
            symm_ptx::load_peer(symmDevLocalPtr(a.results, moe_vec(a, peer, i)));
    cta.sync(); /* all have read `calls` */
    if (cta.thread() == 0) symm_ptx::put8(&a.calls[blockIdx.x], call);
    return 0;
}

#endif
