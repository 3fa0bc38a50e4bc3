/* emu_kernels.cc - the GPU kernels, compiled for a processor by emu_cuda.h: those that move bytes,
 * and those that reduce for three types: one with a path of its own for sums, one of them
 * narrow, and one of a single byte. */
#include "emu_cuda.h"
#include "emu_range.h"

/* EMU_MESSAGES: for check_mutants.sh, which compiles this for each mutant. Then the table has only
 * what programs of sends, receives and one-sided calls run; the other kernels are inline and not
 * used, so no code is made for them. */
#ifdef EMU_MESSAGES
#undef __global__
#define __global__ inline
#endif

#include "../../src/device/cuda/move.cu"
#undef KERNEL_NAME
#undef HOPS
#undef SHAPES
#undef ROOTED_SHOTS
#undef RANKS

#define SYMM_T     symmFloat32
#define SYMM_TNAME f32
#include "../../src/device/cuda/reduce.cu"
#undef SYMM_T
#undef SYMM_TNAME
#undef KERNEL_NAME
#undef HOPS
#undef SHAPES
#undef ROOTED_SHOTS
#undef RANKS
#define SYMM_T     symmBfloat16
#define SYMM_TNAME bf16
#include "../../src/device/cuda/reduce.cu"
#undef SYMM_T
#undef SYMM_TNAME
#undef KERNEL_NAME
#undef HOPS
#undef SHAPES
#undef ROOTED_SHOTS
#undef RANKS
#define SYMM_T     symmUint8
#define SYMM_TNAME u8
#include "../../src/device/cuda/reduce.cu"

/* Integers, of which the switch has the greatest and the least too. */
#undef SYMM_TNAME
#define SYMM_TNAME i32
KERNEL_POSTS(all_reduce_multicast, 0, body_ar_multicast<symmInt32>)
KERNEL_POSTS(reduce_scatter_multicast, 0, body_hop_reduce_multicast<REDUCE_SCATTER, symmInt32>)
KERNEL_POSTS(reduce_multicast, 0, body_hop_reduce_multicast<REDUCE, symmInt32>)

/* What joins the results of domains; src: its argument, in memory of the host. */
#define JOINS(type)                                           \
    extern "C" void emu_join_##type(const symm_args a) {      \
        symm_join_##type##_n0(*(const symm_gpu_join *)a.src); \
    }
#ifndef EMU_MESSAGES
JOINS(f32)
JOINS(bf16)
JOINS(u8)
#endif

/* A program's kernel that stores to all peers, `count` vectors each at dst_off, and one that
 * looks for what all have stored. */
extern "C" void emu_scatter(const symm_args a) {
    for (unsigned i = threadIdx.x; i < a.count; i += blockDim.x)
        for (int q = 1; q < a.nranks; q++) {
            char *to = flat(&a, peer_of(a.rank, a.nranks, q), a.dst_off);
            ((uint4 *)to)[(unsigned)a.rank * a.count + i] =
                make_uint4(a.sig, i, (unsigned)a.rank, 1);
        }
}
extern "C" void emu_scattered(const symm_args a) {
    for (unsigned i = threadIdx.x; i < a.count; i += blockDim.x)
        for (int q = 1; q < a.nranks; q++) {
            const int p = peer_of(a.rank, a.nranks, q);
            const uint4 v = load16(flat(&a, a.rank, a.dst_off) + ((unsigned)p * a.count + i) * 16);
            if (v.x != a.sig || v.y != i || v.z != (unsigned)p) put8(&host_of(&a, a.rank)->left, 1);
        }
}

/* What copy engines do between two kernels of a call; a.src: which. One warp. */
extern "C" void emu_copies_run(const symm_args a) {
    const emu_copies &k = *(const emu_copies *)a.src;
    for (int i = 0; i < k.n; i++)
        for (uint64_t b = 0; b < k.at[i].bytes; b += 16 * blockDim.x) {
            uint32_t v[4];
            const uint64_t at = b + threadIdx.x * 16;
            const int64_t left = (int64_t)(k.at[i].bytes - at);
            load_user(v, k.at[i].from + at, left, alignment(k.at[i].from));
            store_user(k.at[i].to + at, v, left, alignment(k.at[i].to));
        }
}

/* Kernels of sends and receives have other arguments: a.src says where they are. */
extern "C" void emu_p2p(const symm_args a) {
    symm_p2p_n0(*(const symm_gpu_p2p_args *)a.src);
}
extern "C" void emu_p2p_list(const symm_args a) {
    symm_p2p_list_n0(*(const symm_gpu_p2p_args *)a.src);
}

/* The same of one-sided calls. */
extern "C" void emu_onesided(const symm_args a) {
    symm_onesided_n0(*(const symm_gpu_onesided_args *)a.src);
}
/* A program's kernel that stores a flag, without order, and awaits an answer. */
extern "C" void emu_flag(const symm_args a) {
    if (threadIdx.x == 0) put8(a.dst, a.count);
    while (threadIdx.x == 0 && !get8(a.src)) continue;
}
/* The waits of a call, and behind them in the same kernel loads of what was put before: a.count
 * bytes behind each other at a.dst for each wait, which are all a.sig. Each lane looks at those of
 * its own wait, or (a.op) at those of all. */
extern "C" void emu_wait_and_look(const symm_args a) {
    const symm_gpu_onesided_args &args = *(const symm_gpu_onesided_args *)a.src;
    run r;
    r.a = &args.a, r.ctl = ctl_of(r.a, r.a->rank), r.epoch = 0, r.left = 0, r.over = 0;
    if (a.op)
        await_signals(r, args, 0, args.ops);
    else
        wait_signals(r, args, 0, args.ops);
    for (unsigned w = 0; w < args.ops; w++)
        for (uint64_t i = 0; i < a.count && (a.op || threadIdx.x == w); i += 16) {
            const uint4 v = load16((const char *)a.dst + w * a.count + i);
            if (v.x != a.sig || v.y != a.sig || v.z != a.sig || v.w != a.sig)
                put8(&host_of(&args.a, args.a.rank)->left, 1);
        }
}

#define ONE(name) {#name, name},
#define RANKS_(row) \
    ONE(symm_##row##_n2) ONE(symm_##row##_n4) ONE(symm_##row##_n8) ONE(symm_##row##_n0)
/* Rows for any number of ranks, of types that the switch adds. */
#define SUMS_(row) ONE(symm_##row##_f32_n0) ONE(symm_##row##_bf16_n0) ONE(symm_##row##_i32_n0)
/* Rows of three and more ranks. */
#define MORE_(row)       ONE(symm_##row##_n4) ONE(symm_##row##_n8) ONE(symm_##row##_n0)
#define MORE_TYPES_(row) MORE_(row##_f32) MORE_(row##_bf16) MORE_(row##_u8)
#define TYPES(row)       RANKS_(row##_f32) RANKS_(row##_bf16) RANKS_(row##_u8)
static const struct {
    const char *name;
    emu_kernel kernel;
} all[] = {
/* clang-format off */
#ifndef EMU_MESSAGES
    ONE(symm_all_reduce_local_f32_n1) ONE(symm_all_reduce_local_bf16_n1)
    ONE(symm_all_reduce_local_u8_n1) ONE(symm_all_gather_local_n1)
    TYPES(all_reduce_ll) TYPES(all_reduce_push_ll128) TYPES(all_reduce_2shot_ll128)
    TYPES(all_reduce_direct)
    RANKS_(all_gather_ll) RANKS_(all_gather_push_ll128) RANKS_(all_gather_direct)
    TYPES(reduce_scatter_ll) TYPES(reduce_scatter_push_ll128) TYPES(reduce_scatter_staged)
    TYPES(reduce_ll) TYPES(reduce_push_ll128) TYPES(reduce_2hop_direct)
    MORE_TYPES_(all_reduce_multicast_packet)
    MORE_TYPES_(reduce_2shot_ll128) MORE_(broadcast_2shot_ll128)
    RANKS_(alltoall_ll) RANKS_(alltoall_push_ll128) RANKS_(alltoall_direct)
    RANKS_(broadcast_ll) RANKS_(broadcast_push_ll128) RANKS_(broadcast_2hop_direct)
    RANKS_(gather_ll) RANKS_(gather_push_ll128) RANKS_(gather_direct)
    RANKS_(scatter_ll) RANKS_(scatter_push_ll128) RANKS_(scatter_direct)
    SUMS_(all_reduce_multicast) SUMS_(reduce_scatter_multicast) SUMS_(reduce_multicast)
    ONE(symm_all_gather_multicast_n0) ONE(symm_broadcast_multicast_n0)
    ONE(emu_join_f32) ONE(emu_join_bf16) ONE(emu_join_u8)
#endif
    ONE(emu_p2p) ONE(emu_p2p_list) ONE(emu_onesided) ONE(emu_flag) ONE(emu_wait_and_look)
    ONE(symm_barrier_word_n0) ONE(symm_copies_n0) {"emu_copies", emu_copies_run},
    ONE(emu_scatter) ONE(emu_scattered)
    /* clang-format on */
};

/* Those with a count per rank: a launch copies the parts of its call. */
#define WITH_PARTS(row)                                                        \
    static void emu_##row(const symm_args a) {                                 \
        symm_extents e;                                                        \
        memcpy(e.part, a.extents, (unsigned)a.nranks * 2u * sizeof e.part[0]); \
        symm_##row(a, e);                                                      \
    }
#define PARTS(row) \
    { "symm_" #row, emu_##row }
#ifndef EMU_MESSAGES
WITH_PARTS(all_gatherv_direct_n0)
WITH_PARTS(alltoallv_direct_n0)
WITH_PARTS(reduce_scatterv_staged_f32_n0)
WITH_PARTS(reduce_scatterv_staged_bf16_n0)
WITH_PARTS(reduce_scatterv_staged_u8_n0)
static const struct {
    const char *name;
    emu_kernel kernel;
} uneven_kernels[] = {PARTS(all_gatherv_direct_n0), PARTS(alltoallv_direct_n0),
                      PARTS(reduce_scatterv_staged_f32_n0), PARTS(reduce_scatterv_staged_bf16_n0),
                      PARTS(reduce_scatterv_staged_u8_n0)};
#else
static const struct {
    const char *name;
    emu_kernel kernel;
} uneven_kernels[] = {{NULL, NULL}};
#endif

extern "C" emu_kernel emu_find(const char *name) {
    for (unsigned i = 0; i < sizeof all / sizeof all[0]; i++)
        if (!strcmp(all[i].name, name)) return all[i].kernel;
    for (unsigned i = 0; i < sizeof uneven_kernels / sizeof uneven_kernels[0]; i++)
        if (uneven_kernels[i].name && !strcmp(uneven_kernels[i].name, name))
            return uneven_kernels[i].kernel;
    return NULL;
}
