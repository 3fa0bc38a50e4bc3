/* move.cu - the GPU kernels that only move bytes, or nothing. Called symm_<row of
 * coll.def>_n<ranks>. */
#include "hop_ll.cuh"
#include "hop_lines.cuh"
#include "multicast.cuh"
#include "onesided.cuh"
#include "p2p.cuh"
#include "two_hops.cuh"
#include "two_shots.cuh"
#include "uneven.cuh"

#define KERNEL_NAME(row, tag) symm_##row##_##tag
/* Nothing is reduced: the type does not matter. */
#define HOP_LL(S, N)    body_hop_ll<S, symmUint8, N>
#define HOP_LINES(S, N) body_hop_lines<S, symmUint8, N>

/* With a count per rank, for any number of ranks. */
#define KERNEL_PARTS(row)                                                                   \
    extern "C" __global__ void __launch_bounds__(SYMM_GPU_THREADS + 32, 1) symm_##row##_n0( \
        const __grid_constant__ symm_args a, const __grid_constant__ symm_extents e) {      \
        run r = enter_kernel<0>(a);                                                         \
        if (is_data())                                                                      \
            body_uneven_move(r, e.part);                                                    \
        else                                                                                \
            say_signature(r);                                                               \
        close_kernel(r);                                                                    \
    }

#define RANKS(N)                                                                          \
    KERNEL_LL(all_gather_ll, N, (place_first<N, 0>), body_ag_ll<N>)                       \
    KERNEL_LINES(all_gather_push_ll128, N, (place_lines<ALL_GATHER, N>), body_ag_push<N>) \
    KERNEL_POSTS(all_gather_direct, N, body_ag_direct<N>)

/* Shapes whose data crosses once (shape.cuh). */
#define HOPS(row, S, N)                                       \
    KERNEL_LL(row##_ll, N, (place_parts<S, N>), HOP_LL(S, N)) \
    KERNEL_LINES(row##_push_ll128, N, (place_lines<S, N>), HOP_LINES(S, N))
#define SHAPES(N)                                                  \
    HOPS(alltoall, ALLTOALL, N)                                    \
    HOPS(broadcast, BROADCAST, N)                                  \
    HOPS(gather, GATHER, N)                                        \
    HOPS(scatter, SCATTER, N)                                      \
    KERNEL_POSTS(alltoall_direct, N, body_hop_direct<ALLTOALL, N>) \
    KERNEL_POSTS(broadcast_2hop_direct, N, body_broadcast<N>)      \
    KERNEL_POSTS(gather_direct, N, body_hop_direct<GATHER, N>)     \
    KERNEL_POSTS(scatter_direct, N, body_hop_direct<SCATTER, N>)

RANKS(2)
RANKS(4)
RANKS(8)
RANKS(0)
SHAPES(2)
SHAPES(4)
SHAPES(8)
SHAPES(0)

/* Two ranks have no owner but one. */
#define ROOTED_SHOTS(N) \
    KERNEL(broadcast_2shot_ll128, n##N, SHOT_THREADS(N), body_broadcast_twoshot<N>)
ROOTED_SHOTS(4)
ROOTED_SHOTS(8)
ROOTED_SHOTS(0)

/* Over the multicast range. */
KERNEL_POSTS(all_gather_multicast, 0, body_ag_multicast)
KERNEL_POSTS(broadcast_multicast, 0, body_broadcast_multicast)

KERNEL_PARTS(all_gatherv_direct)
KERNEL_PARTS(alltoallv_direct)

/* For tools: what a launch alone costs. */
extern "C" __global__ void symm_nothing(void) {
    enter_grid(0);
}

KERNEL(all_gather_local, n1, SYMM_GPU_THREADS, body_ag_local)

/* Entry and exit are the barrier. What kernels before it have stored, over any link, comes before
 * the signatures. wait_grid, or the end of the kernel before, makes it visible to this grid. The
 * signatures are released and acquired, which makes it visible to kernels after the barrier on the
 * other GPUs. (That wait alone may do so: gpu_litmus would show it, on two GPUs.) */
extern "C" __global__ void __launch_bounds__(SYMM_GPU_THREADS + 32, 1)
    symm_barrier_word_n0(const __grid_constant__ symm_args a) {
    run r = enter_kernel<1>(a);
    if (!is_data()) say_signature<1>(r);
    close_kernel<1>(r);
}

/* Before the copies of a call that copy engines move. */
extern "C" __global__ void symm_copies_n0(const __grid_constant__ symm_args a) {
    run r = enter_kernel<0>(a);
    if (is_data())
        copies_meet(r);
    else
        say_signature<1>(r);
    copies_begun(r);
}

/* Sends and receives (p2p.cuh), and what puts a long list of them into the control block. A small
 * grid lets its successor in when it has ended: messages up to 128 KB were faster for it on two and
 * four GPUs (docs/performance.md). */
#define P2P_APART 40u
extern "C" __global__ void __launch_bounds__(SYMM_GPU_P2P_THREADS, 1)
    symm_p2p_n0(const __grid_constant__ symm_gpu_p2p_args args) {
    enter_grid(args.a.flags & SYMM_ARG_APART || gridDim.x <= P2P_APART);
    p2p_run(args);
}
extern "C" __global__ void symm_p2p_list_n0(const __grid_constant__ symm_gpu_p2p_args args) {
    enter(args.a);
    p2p_list(args);
}

/* One-sided calls (onesided.cuh). */
extern "C" __global__ void __launch_bounds__(SYMM_GPU_P2P_THREADS, 1)
    symm_onesided_n0(const __grid_constant__ symm_gpu_onesided_args args) {
    enter(args.a);
    onesided_run(args);
}
