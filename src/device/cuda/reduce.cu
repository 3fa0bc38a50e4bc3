/* reduce.cu - the GPU kernels that reduce, for one element type: compiled once per type with
 * -DSYMM_T=<symmDataType_t> and -DSYMM_TNAME=<its name>. A kernel is called symm_<row of
 * coll.def>_<type>_n<ranks>; n0 serves any number of them. */
#include "hop_ll.cuh"
#include "hop_lines.cuh"
#include "multicast.cuh"
#include "two_hops.cuh"
#include "two_shots.cuh"
#include "uneven.cuh"

#define PASTE_(a, b, c, d) a##b##c##d
#define PASTE(a, b, c, d)  PASTE_(a, b, c, d)

#define KERNEL_NAME(row, tag) PASTE(symm_##row##_, SYMM_TNAME, _, tag)

/* 16 elements in 16 bytes and 7 peers' lines at once do not fit the registers: there peer follows
 * peer. */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1000
#define WIDE(bytes) ((bytes) == 1 || (bytes) == 8)
#else
#define WIDE(bytes) ((bytes) == 1)
#endif
#define LINES(N) (WIDE(elem<SYMM_T>::BYTES) && (N) == 8 ? 0 : (N))
/* Nor do four ranks' rows of such elements, two at once, beside what two hops need. */
#define TWO_HOPS(N) (elem<SYMM_T>::BYTES == 1 && (N) == 4 ? 0 : LINES(N))
#define RANKS(N)                                                                             \
    KERNEL_LL(all_reduce_ll, N, (place_first<N, 0>), body_ar_ll<SYMM_T, N, 0>)               \
    KERNEL_LINES(all_reduce_push_ll128, N, (place_lines<ALL_REDUCE, LINES(N)>),              \
                 body_ar_push<SYMM_T, LINES(N)>)                                             \
    KERNEL(all_reduce_2shot_ll128, n##N, SHOT_THREADS(N), body_ar_twoshot<SYMM_T, LINES(N)>) \
    KERNEL_POSTS(all_reduce_direct, N, body_ar_direct<SYMM_T, LINES(N)>)
/* Shapes whose data crosses once (shape.cuh). */
#define HOPS(row, S, N)                                                    \
    KERNEL_LL(row##_ll, N, (place_parts<S, N>), body_hop_ll<S, SYMM_T, N>) \
    KERNEL_LINES(row##_push_ll128, N, (place_lines<S, LINES(N)>),          \
                 body_hop_lines<S, SYMM_T, LINES(N)>)
#define SHAPES(N)                                                                             \
    HOPS(reduce_scatter, REDUCE_SCATTER, N)                                                   \
    HOPS(reduce, REDUCE, N)                                                                   \
    KERNEL_POSTS(reduce_scatter_staged, N, body_hop_reduce<REDUCE_SCATTER, SYMM_T, LINES(N)>) \
    KERNEL_POSTS(reduce_2hop_direct, N, body_reduce_large<SYMM_T, TWO_HOPS(N)>)

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
    KERNEL(reduce_2shot_ll128, n##N, SHOT_THREADS(N), body_reduce_twoshot<SYMM_T, LINES(N)>)
ROOTED_SHOTS(4)
ROOTED_SHOTS(8)
ROOTED_SHOTS(0)
/* Over the multicast range. */
KERNEL_LL(all_reduce_multicast_packet, 4, (place_first<4, 1>), body_ar_ll<SYMM_T, 4, 1>)
KERNEL_LL(all_reduce_multicast_packet, 8, (place_first<8, 1>), body_ar_ll<SYMM_T, 8, 1>)
KERNEL_LL(all_reduce_multicast_packet, 0, (place_first<0, 1>), body_ar_ll<SYMM_T, 0, 1>)
KERNEL_POSTS(all_reduce_multicast, 0, body_ar_multicast<SYMM_T>)
KERNEL_POSTS(reduce_scatter_multicast, 0, body_hop_reduce_multicast<REDUCE_SCATTER, SYMM_T>)
KERNEL_POSTS(reduce_multicast, 0, body_hop_reduce_multicast<REDUCE, SYMM_T>)
KERNEL(all_reduce_local, n1, SYMM_GPU_THREADS, body_ar_local<SYMM_T>)

/* With a count per rank, for any number of ranks. */
extern "C" __global__ void __launch_bounds__(SYMM_GPU_THREADS + 32, 1)
    PASTE(symm_reduce_scatterv_staged_, SYMM_TNAME, _, n0)(const __grid_constant__ symm_args a,
                                                           const __grid_constant__ symm_extents e) {
    run r = enter_kernel<0>(a);
    if (is_data())
        body_uneven_sum<SYMM_T>(r, e.part);
    else
        say_signature(r);
    close_kernel(r);
}

/* Partial results of domains, in their order: each rounded to the element type as it came, and
 * their sum again before it is divided, as on the host. Or what each rank contributes, in rank
 * order: then none of them is at dst. It waits for no rank. */
extern "C" __global__ void __launch_bounds__(SYMM_GPU_THREADS, 1)
    PASTE(symm_join_, SYMM_TNAME, _, n0)(const __grid_constant__ symm_gpu_join j) {
    typedef elem<SYMM_T> type;
    enter_grid(1);
    char *dst = (char *)j.dst;
    const char *others = (const char *)j.others;
    const int64_t bytes = (int64_t)(j.count * type::BYTES), turn = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i * 16 < bytes; i += turn) {
        reduction<SYMM_T, 4, ANY_OP> sum;
        uint32_t w[4];
        for (int d = 0; d < j.domains; d++) {
            const char *from =
                d == j.domain ? dst : others + (uint64_t)(d - (d > j.domain)) * j.step;
            load_user(w, from + i * 16, bytes - i * 16, alignment(from));
            const auto scale = type::scalar(j.scalars ? ((const uint64_t *)j.scalars)[d] : 0);
            if (d == 0)
                sum.first(j.op, w, scale);
            else
                sum.step(j.op, w, scale);
        }
        sum.last(j.op, j.domains, w); /* an average is of contributions */
        if (j.divides) {
            sum.first(SYMM_OP_SUM, w, type::scalar(0));
            sum.last(SYMM_OP_AVG, j.divides, w);
        }
        store_user(dst + i * 16, w, bytes - i * 16, alignment(dst));
    }
}
