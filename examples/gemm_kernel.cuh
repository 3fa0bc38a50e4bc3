/* gemm_kernel.cuh - the kernel of gemm_reduce.cu: a product whose tiles are summed over the ranks
 * as they finish, in one launch. GPU code, all threads.
 *
 * y = sum over ranks of x * w, where each rank has its part of the inner dimension. CTA b of every
 * rank makes tiles b, b + grid, ... in the same order; tile k of a CTA belongs to rank (b + k) % n:
 *  - its maker stores the tile into the owner's inbox, and raises a signal;
 *  - the owner waits for all ranks' tiles, adds them in rank order, and stores the sum into every
 *    rank's y. It does so one tile later: what peers send meanwhile is there by then, and what it
 *    stores crosses the links beside the next product.
 * CTAs of one number meet each other alone. At the end they pass a barrier: then y is whole, and an
 * inbox may be written again. A y may be written in the next call: its owner waits for a tile of
 * each rank before, and a rank that has sent one has begun the call. All calls over a device
 * communicator have equal grids and sizes: signals count their tiles. */
#ifndef GEMM_KERNEL_CUH_
#define GEMM_KERNEL_CUH_

#include "symm_device.cuh"

/* Vectors of a thread on their way at once. */
#ifndef GEMM_BATCH
#define GEMM_BATCH 4u
#endif

struct gemm_call {
    symmDevComm_t dev;
    symmDevWindow_t inbox, y;         /* inbox: tiles, see gemm_place; y: rows */
    uint64_t *calls;                  /* [CTAs] that have ended: signals count on, in replays too */
    uint32_t rows, columns;           /* of y; multiples of the tile's */
    uint32_t tile_rows, tile_columns; /* a multiple of GEMM_BATCH vectors for each thread */
};

static __device__ uint32_t gemm_tiles(const gemm_call &a) {
    return a.rows / a.tile_rows * (a.columns / a.tile_columns);
}
static __device__ uint32_t gemm_tile_vecs(const gemm_call &a) { /* of 16 bytes */
    return a.tile_rows * a.tile_columns / 4;
}
static __device__ int gemm_owner(const gemm_call &a, uint32_t k) {
    return (int)((blockIdx.x + k) % (unsigned)a.dev.nranks);
}
/* How many of its first k tiles a CTA has made for a rank. */
static __device__ uint32_t gemm_made_for(const gemm_call &a, int owner, uint32_t k) {
    const unsigned n = (unsigned)a.dev.nranks, first = ((unsigned)owner + n - blockIdx.x % n) % n;
    return k > first ? (k - first - 1) / n + 1 : 0;
}
/* Where a source's tile k lies in the owner's inbox. */
static __device__ uint64_t gemm_place(const gemm_call &a, int source, uint32_t k) {
    const uint32_t n = (unsigned)a.dev.nranks, each = (gemm_tiles(a) + gridDim.x - 1) / gridDim.x,
                   places = (each + n - 1) / n * gridDim.x;
    return ((uint64_t)(unsigned)source * places + k / n * gridDim.x + blockIdx.x) *
           gemm_tile_vecs(a) * 16;
}
/* Byte of y where vector i of a tile lies. */
static __device__ uint64_t gemm_vec(const gemm_call &a, uint32_t tile, uint32_t i) {
    const uint32_t across = a.columns / a.tile_columns, width = a.tile_columns / 4;
    const uint64_t row = (uint64_t)(tile / across) * a.tile_rows + i / width;
    return (row * a.columns + (uint64_t)(tile % across) * a.tile_columns) * 4 + i % width * 16;
}

/* The tile goes to its owner: `made` is the product, in memory that the whole CTA reads. */
static __device__ void gemm_send(const gemm_call &a, symmDevCta cta, uint32_t k,
                                 const uint4 *made) {
    const int owner = gemm_owner(a, k), me = a.dev.rank;
    char *to = symmDevPeerPtr(a.dev, a.inbox, owner, gemm_place(a, me, k));
    for (uint32_t i = cta.thread(); i < gemm_tile_vecs(a); i += cta.threads())
        ((uint4 *)to)[i] = made[i];
    if (owner != me) symmDevSignalRaise(a.dev, cta, owner, (unsigned)me * gridDim.x + blockIdx.x);
}

/* The sum of a tile of this rank, to all ranks. 1: it gave up. */
static __device__ int gemm_add(const gemm_call &a, symmDevCta cta, uint32_t k, uint64_t call) {
    typedef symmDevVec<symmFloat32> vec;
    const uint32_t each = (gemm_tiles(a) - blockIdx.x + gridDim.x - 1) / gridDim.x;
    const int n = a.dev.nranks, me = a.dev.rank;
    const uint32_t tile = blockIdx.x + k * gridDim.x;
    const uint64_t count = call * gemm_made_for(a, me, each) + gemm_made_for(a, me, k + 1);
    for (int p = 0; p < n; p++)
        if (p != me &&
            symmDevSignalWait(a.dev, cta, (unsigned)p * gridDim.x + blockIdx.x, count, p))
            return 1;
    for (uint32_t i = cta.thread(); i < gemm_tile_vecs(a); i += GEMM_BATCH * cta.threads()) {
        float sum[GEMM_BATCH][4];
        for (int p = 0; p < n; p++) {
            const char *from = symmDevLocalPtr(a.inbox, gemm_place(a, p, k));
            uint4 v[GEMM_BATCH];
#pragma unroll
            for (uint32_t b = 0; b < GEMM_BATCH; b++)
                v[b] = symm_ptx::load_peer(from + (uint64_t)(i + b * cta.threads()) * 16);
#pragma unroll
            for (uint32_t b = 0; b < GEMM_BATCH; b++) {
                float x[4];
                vec::unpack(v[b], x);
#pragma unroll
                for (int e = 0; e < 4; e++) sum[b][e] = p ? __fadd_rn(sum[b][e], x[e]) : x[e];
            }
        }
        for (int q = 0; q < n; q++)
#pragma unroll
            for (uint32_t b = 0; b < GEMM_BATCH; b++)
                *(uint4 *)symmDevPeerPtr(a.dev, a.y, (me + q) % n,
                                         gemm_vec(a, tile, i + b * cta.threads())) =
                    vec::pack(sum[b]);
    }
    return 0;
}

/* make(tile): leaves the product's tile, rows of tile_columns, where it says, for all threads. 0,
 * or 1: it gave up. By all CTAs; the grid has no more CTAs than tiles. */
template <class Make> static __device__ int gemm_reduce(const gemm_call &a, const Make &make) {
    symmDevCta cta;
    symmDevBarrier<symmDevCta> end(a.dev, blockIdx.x);
    const uint64_t call = symm_ptx::get8(&a.calls[blockIdx.x]);
    const uint32_t tiles = gemm_tiles(a);
    uint32_t k = 0;
    if (end.over()) return 1;
    for (uint32_t tile = blockIdx.x; tile < tiles; tile += gridDim.x, k++) {
        gemm_send(a, cta, k, make(tile));
        if (k && gemm_owner(a, k - 1) == a.dev.rank && gemm_add(a, cta, k - 1, call)) return 1;
    }
    if (gemm_owner(a, k - 1) == a.dev.rank && gemm_add(a, cta, k - 1, call)) return 1;
    if (end.sync()) return 1; /* behind it all have read `calls` */
    if (cta.thread() == 0) symm_ptx::put8(&a.calls[blockIdx.x], call + 1);
    return 0;
}

#endif
