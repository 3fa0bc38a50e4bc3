/* emu_cuda.h - compiles the GPU kernels for a processor, for tests. It replaces ptx.cuh, so the
 * bodies in src/device/cuda are compiled unchanged. Each GPU thread is a fiber (emu_run.c). All
 * fibers of all ranks run in one thread, one at a time. Wherever a kernel reads memory that others
 * write, or meets other threads, the next fiber is drawn. So every order of such steps can occur;
 * the seed chooses it.
 *
 * In two of three runs stores become visible late, in any order that PTX allows (emu_stores.c):
 * vectors of 8 and 16 bytes, words with order and scope, lines of a warp. Loads are made early:
 * they return what was there at any time since the thread last met others (__syncwarp, a barrier of
 * the CTA; votes and shuffles order nothing), acquired, or read that place. Plain stores of 1, 2
 * and 4 bytes (ends of messages, unaligned buffers, epochs) and variables of a CTA are plain C++
 * assignments, which this file does not see. They are never late. PTX allows that, because no
 * kernel stores the same bytes in both ways in one call. What a GPU compiler makes of the bodies is
 * tested on GPUs. */
#ifndef EMU_CUDA_H_
#define EMU_CUDA_H_
#define SYMM_CUDA_PTX_CUH_ /* so that ptx.cuh is empty */

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
#define AR_PULL_MOST           EMU_PULL_MOST
#define HOP_PULL_MOST          EMU_PULL_MOST
#define SPIN_POLLS             8u /* no host takes part here */
#define LEFT_GRACE_NS          (256 * EMU_STEP_NS)

#define threadIdx (emu_self->thread)
#define blockIdx  (emu_self->block)
#define blockDim  (emu_self->threads)
#define gridDim   (emu_self->blocks)

/* Assigned to memory that is not the fiber's own, it may be seen by others: that is a step, and its
 * bounds are checked. */
#define EMU_ASSIGN(type, copy)                                      \
    type &operator=(const type &v) {                                \
        if (emu_on_stack(this)) {                                   \
            copy;                                                   \
        } else {                                                    \
            emu_turn(EMU_STORES);                                   \
            emu_store(this, (const void *)&v, sizeof v, EMU_PLAIN); \
        }                                                           \
        return *this;                                               \
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

/* ---- words: the sanitizer of bounds is emu_at, which knows what memory there is -------------- */

#define EMU_LOAD(name, turn, type, result, order) \
    DEV result name(const void *p) {              \
        type v;                                   \
        turn(EMU_LOOKS);                          \
        emu_load((void *)&v, p, sizeof v, order); \
        return (result)v;                         \
    }
#define EMU_STORE(name, type, before)                          \
    DEV void name(void *p, type v) {                           \
        emu_turn(EMU_STORES);                                  \
        before;                                                \
        emu_store(p, (const void *)&v, sizeof v, EMU_RELAXED); \
    }
EMU_LOAD(get16, emu_poll, uint4, uint4, EMU_RELAXED)
EMU_LOAD(get8, emu_poll, uint64_t, uint64_t, EMU_RELAXED)
EMU_LOAD(get4, emu_poll, uint32_t, uint32_t, EMU_RELAXED)
EMU_LOAD(take8, emu_poll, uint64_t, uint64_t, EMU_ACQUIRES)
EMU_LOAD(take8_gpu, emu_poll, uint64_t, uint64_t, EMU_ACQUIRES)
EMU_LOAD(take4, emu_poll, uint32_t, uint32_t, EMU_ACQUIRES)
EMU_LOAD(load_remote, emu_turn, uint4, uint4, EMU_RELAXED)
EMU_LOAD(load16, emu_turn, uint4, uint4, EMU_RELAXED)
EMU_LOAD(load8, emu_turn, uint2, uint2, EMU_RELAXED)
EMU_LOAD(load4, emu_turn, uint32_t, uint32_t, EMU_RELAXED)
EMU_LOAD(pair_at, emu_turn, uint16_t, uint32_t, EMU_RELAXED)
EMU_LOAD(byte_at, emu_turn, uint8_t, uint32_t, EMU_RELAXED)
/* What an instruction that is not carried out leaves in its registers: a kernel that relies on
 * zeros, or on what was there, finds neither. */
DEV uint4 emu_undefined(void) {
    return make_uint4(0xdeadbee1u, 0xdeadbee2u, 0xdeadbee3u, 0xdeadbee4u);
}
DEV void get16_if(uint4 &v, const void *p, int wanted) {
    v = wanted ? get16(p) : emu_undefined();
}
DEV void load16_if(uint32_t (&v)[4], const char *p, int wanted) {
    if (!wanted) return;
    const uint4 x = load16(p);
    v[0] = x.x, v[1] = x.y, v[2] = x.z, v[3] = x.w;
}
DEV void load_words_if(uint32_t (&v)[4], const char *p, int wanted) {
    for (int i = 0; wanted && i < 4; i++) v[i] = load4(p + 4 * i);
}
DEV void load_halves_if(uint32_t (&v)[5], const char *p, int wanted) {
    if (!wanted) return;
    v[0] = pair_at(p), v[4] = pair_at(p + 14);
    for (int i = 0; i < 3; i++) v[i + 1] = load4(p + 2 + 4 * i);
}
DEV void store_sized(char *p, const uint32_t (&v)[4], int size) {
    if (size == 16) *(uint4 *)p = make_uint4(v[0], v[1], v[2], v[3]);
    if (size == 8) *(uint2 *)p = make_uint2(v[0], v[1]);
}
/* The lower `bytes` of v. */
DEV void emu_part(char *p, uint32_t v, size_t bytes) {
    emu_turn(EMU_STORES);
    emu_store(p, &v, bytes, EMU_PLAIN);
}
DEV void store_words_sized(char *p, const uint32_t (&v)[4], int size) {
    for (int i = 0; 4 * i < size; i++) emu_part(p + 4 * i, v[i], 4);
}
DEV void store_halves_sized(char *p, uint32_t first, const uint32_t (&joined)[3], uint32_t last,
                            int size) {
    if (size) emu_part(p, first, 2), emu_part(p + 2, joined[0], 4);
    if (size == 8) emu_part(p + 6, joined[1], 2);
    if (size != 16) return;
    emu_part(p + 6, joined[1], 4), emu_part(p + 10, joined[2], 4), emu_part(p + 14, last, 2);
}
EMU_STORE(put16, uint4, (void)0)
EMU_STORE(put8, uint64_t, (void)0)
EMU_STORE(put4, uint32_t, (void)0)
EMU_STORE(give8, uint64_t, emu_release())
EMU_STORE(give8_gpu, uint64_t, emu_release())
EMU_STORE(give4, uint32_t, emu_release())
#define __threadfence_system() emu_fence()
DEV uint64_t add8_gpu(void *p, uint64_t by) {
    emu_turn(EMU_LOOKS);
    return emu_add(p, by);
}

DEV uint64_t count8_gpu(void *p, uint64_t by) {
    emu_turn(EMU_LOOKS);
    return emu_count(p, by);
}

DEV uint64_t clock_ns(void) {
    return emu_clock();
}
/* A kernel begins when the one before it has ended. */
DEV void let_next(uint32_t) {}
DEV void wait_grid(uint64_t) {}
DEV void enter_grid(uint32_t) {}

/* ---- meeting --------------------------------------------------------------------------------- */

DEV void emu_lanes_meet(uint32_t mask = ~0u) {
    emu_sync_warp(mask);
}
DEV int meet(int barrier, unsigned threads, int left) {
    return emu_meet(barrier, threads, left);
}
#define __syncthreads()            ((void)emu_meet(0, blockDim.x, 0))
#define __syncthreads_or(v)        emu_meet(0, blockDim.x, (v) != 0)
#define __syncwarp                 emu_lanes_meet
#define __any_sync(mask, v)        (emu_warp(mask, (v) != 0, 0).any != 0)
#define __ballot_sync(mask, v)     (emu_warp(mask, (v) != 0, 0).ballot)
#define __shfl_sync(mask, v, lane) ((__typeof__(v))emu_warp(mask, (uint64_t)(v), lane).from)
#define __activemask()             (1u << (threadIdx.x & 31u)) /* all that a lane knows */

/* Lines of 128 bytes arrive as one if a whole warp stores them at once; sometimes it is apart. */
DEV int put_whole_warp(void *p, uint4 v) {
    emu_at(p, sizeof v);
    return emu_warp_store(p, &v);
}
DEV int get_whole_warp(uint4 &v, const void *p, int wanted) {
    emu_poll(EMU_LOOKS);
    v = emu_undefined();
    return emu_warp_load((void *)&v, wanted ? p : (const void *)0);
}
DEV int put_whole_warps(char *p, unsigned step, const uint4 (&v)[4], unsigned count) {
    int apart = put_whole_warp(p, v[0]);
    for (unsigned i = 1; !apart && i < count; i++) apart = put_whole_warp(p + i * step, v[i]);
    return apart;
}
DEV int get_whole_warps(uint4 (&v)[4], const char *p, unsigned step, unsigned count) {
    int apart = 0;
    for (unsigned i = 0; i < 4; i++) apart |= get_whole_warp(v[i], p + i * step, i < count);
    return apart;
}

#endif
