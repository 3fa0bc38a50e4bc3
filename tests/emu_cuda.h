/* emu_cuda.h - the language of the GPU kernels on a processor, for tests: it stands in the place of ptx.cuh, so that the bodies in
 * src/device/cuda are compiled as they are. Each thread of a GPU is a fiber (emu_run.c); all fibers of all ranks run in one thread, one after
 * the other, and another one is drawn wherever a kernel looks at memory that others write, or meets them. So every order of such looks
 * can come, each as likely as the seed has it.
 *
 * What is not shown: memory here is sequentially consistent. Orders that only a weaker memory has, and what a compiler for GPUs makes of
 * the bodies, are for the tests on GPUs. */
#ifndef EMU_CUDA_H_
#define EMU_CUDA_H_
#define SYMM_CUDA_PTX_CUH_ /* and that file has nothing to say */

#include <stdint.h>
#include <string.h>

#include "emu.h"

#define __device__
#define __global__
#define __forceinline__ inline
#define __noinline__    __attribute__((noinline))
#define __launch_bounds__(...)
#define __grid_constant__
#define DEV                    static inline __attribute__((unused))
#define CTA_SHARED(type, name) type &name = *(type *)emu_shared(sizeof(type))
#define SPIN_POLLS             8u /* nobody waits for a host here */

#define threadIdx (emu_self->thread)
#define blockIdx  (emu_self->block)
#define blockDim  (emu_self->threads)
#define gridDim   (emu_self->blocks)

/* Where it is assigned to memory that is not the fiber's own, others may see it: that is a turn, and a look at the bounds. */
#define EMU_ASSIGN(type, copy)          \
    type &operator=(const type &v) {    \
        if (!emu_on_stack(this)) {      \
            emu_turn(EMU_STORES);       \
            emu_at(this, sizeof *this); \
        }                               \
        copy;                           \
        return *this;                   \
    }
struct uint4 {
    uint32_t x, y, z, w;
    uint4() = default;
    uint4(const uint4 &) = default;
    EMU_ASSIGN(uint4, (x = v.x, y = v.y, z = v.z, w = v.w))
};
struct uint2 {
    uint32_t x, y;
    uint2() = default;
    uint2(const uint2 &) = default;
    EMU_ASSIGN(uint2, (x = v.x, y = v.y))
};
DEV uint4 make_uint4(uint32_t x, uint32_t y, uint32_t z, uint32_t w) {
    const uint4 v = {x, y, z, w};
    return v;
}
DEV uint2 make_uint2(uint32_t x, uint32_t y) {
    const uint2 v = {x, y};
    return v;
}

template <typename To, typename From> static inline To emu_bits(From v) {
    To to;
    static_assert(sizeof to == sizeof v, "the same bits");
    memcpy(&to, &v, sizeof to);
    return to;
}
#define __uint_as_float(v)       emu_bits<float>((uint32_t)(v))
#define __float_as_uint(v)       emu_bits<uint32_t>((float)(v))
#define __longlong_as_double(v)  emu_bits<double>(v)
#define __hiloint2double(hi, lo) emu_bits<double>((uint64_t)(uint32_t)(hi) << 32 | (uint32_t)(lo))
#define __double2loint(v)        (int)(uint32_t)emu_bits<uint64_t>((double)(v))
#define __double2hiint(v)        (int)(uint32_t)(emu_bits<uint64_t>((double)(v)) >> 32)
#define __fadd_rn(a, b)          ((a) + (b))
#define __dadd_rn(a, b)          ((a) + (b))
#define __fmul_rn(a, b)          ((a) * (b))
#define __dmul_rn(a, b)          ((a) * (b))
#define __fdiv_rn(a, b)          ((a) / (b))
#define __ddiv_rn(a, b)          ((a) / (b))
#define __ffs(v)                 __builtin_ffs(v)

/* ---- words: the sanitizer of bounds is emu_at, which knows what memory there is ------------------------------------ */

template <typename W> static inline W emu_get(const void *p) {
    W v;
    memcpy((void *)&v, emu_at(p, sizeof v), sizeof v);
    return v;
}
template <typename W> static inline void emu_put(void *p, W v) {
    memcpy(emu_at(p, sizeof v), (const void *)&v, sizeof v);
}
#define EMU_LOAD(name, type, result)     \
    DEV result name(const void *p) {     \
        emu_turn(EMU_LOOKS);             \
        return (result)emu_get<type>(p); \
    }
#define EMU_STORE(name, type)        \
    DEV void name(void *p, type v) { \
        emu_turn(EMU_STORES);        \
        emu_put<type>(p, v);         \
    }
EMU_LOAD(get16, uint4, uint4)
EMU_LOAD(get8, uint64_t, uint64_t)
EMU_LOAD(get4, uint32_t, uint32_t)
EMU_LOAD(take8, uint64_t, uint64_t)
EMU_LOAD(load_remote, uint4, uint4)
EMU_LOAD(load16, uint4, uint4)
EMU_LOAD(load8, uint2, uint2)
EMU_LOAD(load4, uint32_t, uint32_t)
EMU_LOAD(pair_at, uint16_t, uint32_t)
EMU_LOAD(byte_at, uint8_t, uint32_t)
EMU_STORE(put16, uint4)
EMU_STORE(put8, uint64_t)
EMU_STORE(put4, uint32_t)
EMU_STORE(give8, uint64_t)
EMU_STORE(give4, uint32_t)

DEV uint64_t clock_ns(void) {
    return emu_clock();
}
DEV void enter_grid(void) {}
#define __threadfence_system() ((void)0)

/* ---- meeting ------------------------------------------------------------------------------------------------------- */

DEV int meet(int barrier, unsigned threads, int left) {
    return emu_meet(barrier, threads, left);
}
#define __syncthreads()            ((void)emu_meet(0, blockDim.x, 0))
#define __syncthreads_or(v)        emu_meet(0, blockDim.x, (v) != 0)
#define __syncwarp()               ((void)emu_warp(~0u, 0, 0))
#define __any_sync(mask, v)        (emu_warp(mask, (v) != 0, 0).any != 0)
#define __ballot_sync(mask, v)     (emu_warp(mask, (v) != 0, 0).ballot)
#define __shfl_sync(mask, v, lane) ((__typeof__(v))emu_warp(mask, (uint64_t)(v), lane).from)
#define __activemask()             (1u << (threadIdx.x & 31u)) /* as far as a lane can know */

/* Lines of 128 bytes arrive as one if a whole warp stores them at once; sometimes it is apart. */
DEV int put_whole_warp(void *p, uint4 v) {
    emu_at(p, sizeof v);
    return emu_warp_store(p, &v);
}

#endif
