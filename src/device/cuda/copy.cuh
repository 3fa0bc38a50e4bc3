/* copy.cuh - copies of bytes by whole warps, from any address to any address: what messages move
 * between windows, puts and gets. GPU code: all lanes of a warp run it together. */
#ifndef SYMM_CUDA_COPY_CUH_
#define SYMM_CUDA_COPY_CUH_

#include "dev.cuh"

#define COPY_PIECE 4096u /* what a warp has under way at once */

/* Bytes before the first multiple of 16 and behind the last, fewer than 16 each. */
DEV void copy_end(char *to, const char *from, unsigned bytes, unsigned lane) {
    if (lane < bytes) to[lane] = (char)byte_at(from + lane);
}

/* Buffers that are not the same number of bytes off a multiple of 16. */
static __device__ __noinline__ void copy_odd(char *to, const char *from, uint64_t bytes,
                                             unsigned lane) {
    const int at_to = alignment(to), at_from = alignment(from);
    for (uint64_t i = lane * 16u; i < bytes; i += 512) {
        uint32_t v[4];
        load_user(v, from + i, (int64_t)(bytes - i), at_from);
        store_user(to + i, v, (int64_t)(bytes - i), at_to);
    }
}

/* Up to COPY_PIECE bytes. 1: a kernel has left, and nothing was stored. over: see look_over. */
DEV int copy_piece(const uint32_t *over, char *to, const char *from, unsigned bytes,
                   unsigned lane) {
    const unsigned U = COPY_PIECE / 512u;
    const int odd = (int)(((uintptr_t)to ^ (uintptr_t)from) & 15u);
    unsigned lead = odd ? bytes : (0u - (unsigned)(uintptr_t)from) & 15u;
    if (lead > bytes) lead = bytes;
    const unsigned rows = (bytes - lead) & ~15u, tail = bytes - lead - rows, i = lane * 16u;
    uint4 v[U];
    const uint32_t left = get4(over); /* awaited with the data */
#pragma unroll
    for (unsigned u = 0; u < U; u++)
        if (i + u * 512 < rows) v[u] = load16(from + lead + i + u * 512);
    if (__any_sync(0xffffffffu, left)) return 1;
#pragma unroll
    for (unsigned u = 0; u < U; u++)
        if (i + u * 512 < rows) *(uint4 *)(to + lead + i + u * 512) = v[u];
    if (odd) {
        copy_odd(to, from, bytes, lane);
    } else {
        copy_end(to, from, lead, lane);
        copy_end(to + lead + rows, from + lead + rows, tail, lane);
    }
    return 0;
}
/* Every `team`-th piece from `at` on; the first one that was not copied. */
DEV uint64_t copy_pieces(const uint32_t *over, char *to, const char *from, uint64_t bytes,
                         uint64_t at, unsigned team, unsigned lane) {
    for (uint64_t i; (i = at * COPY_PIECE) < bytes; at += team) {
        const unsigned part = bytes - i < COPY_PIECE ? (unsigned)(bytes - i) : COPY_PIECE;
        if (copy_piece(over, to + i, from + i, part, lane)) break;
    }
    return at;
}

#endif
