/* symm_device_ptx.cuh - what the device API and the library's own kernels say in PTX: words with
 * order and scope, 16 bytes as one, the clock. For sm_80 and later. GPU code, any thread.
 * Programs include symm_device.cuh. Tests put definitions for processors in this file's place. */
#ifndef SYMM_DEVICE_PTX_CUH_
#define SYMM_DEVICE_PTX_CUH_

#include <stdint.h>

#define SYMM_DEV      static __device__ __forceinline__
#define SYMM_DEV_SLOW static __device__ __noinline__

namespace symm_ptx {

/* 16 bytes that are written, or read, as one: PTX promises it of .b128, of a vector not (that is
 * four words to it, in any order), though today's instruction is the same. Compilers before CUDA
 * 12.3 know the vector alone. */
#if __CUDACC_VER_MAJOR__ * 100 + __CUDACC_VER_MINOR__ >= 1203
#define SYMM_PTX_REG16 ".reg .b64 lo, hi;\n\t.reg .b128 all;\n\t"
#define SYMM_PTX_PACK16(x, y, z, w)                                  \
    "mov.b64 lo, {" x ", " y "};\n\tmov.b64 hi, {" z ", " w "};\n\t" \
    "mov.b128 all, {lo, hi};\n\t"
#define SYMM_PTX_UNPACK16(x, y, z, w) \
    "mov.b128 {lo, hi}, all;\n\t"     \
    "mov.b64 {" x ", " y "}, lo;\n\tmov.b64 {" z ", " w "}, hi;\n\t"
#define SYMM_PTX_STORE16(at, x, y, z, w) "st.relaxed.sys.global.b128 [" at "], all;\n\t"
#define SYMM_PTX_LOAD16(at, x, y, z, w)  "ld.relaxed.sys.global.b128 all, [" at "];\n\t"
#else
#define SYMM_PTX_REG16                ""
#define SYMM_PTX_PACK16(x, y, z, w)   ""
#define SYMM_PTX_UNPACK16(x, y, z, w) ""
#define SYMM_PTX_STORE16(at, x, y, z, w) \
    "st.relaxed.sys.global.v4.u32 [" at "], {" x ", " y ", " z ", " w "};\n\t"
#define SYMM_PTX_LOAD16(at, x, y, z, w) \
    "ld.relaxed.sys.global.v4.u32 {" x ", " y ", " z ", " w "}, [" at "];\n\t"
#endif

/* Relaxed at system scope: they go to the memory they name and come back from it, past L1. What is
 * read needs no further order, because it carries its own flag. */
SYMM_DEV void put16(void *p, uint4 v) {
    asm volatile("{\n\t" SYMM_PTX_REG16 SYMM_PTX_PACK16("%1", "%2", "%3", "%4")
                     SYMM_PTX_STORE16("%0", "%1", "%2", "%3", "%4") "}" ::"l"(p),
                 "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w)
                 : "memory");
}
SYMM_DEV uint4 get16(const void *p) {
    uint4 v;
    asm volatile("{\n\t" SYMM_PTX_REG16 SYMM_PTX_LOAD16("%4", "%0", "%1", "%2", "%3")
                     SYMM_PTX_UNPACK16("%0", "%1", "%2", "%3") "}"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(p)
                 : "memory");
    return v;
}
SYMM_DEV void put8(void *p, uint64_t v) {
    asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(p), "l"(v) : "memory");
}
SYMM_DEV uint64_t get8(const void *p) {
    uint64_t v;
    asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(v) : "l"(p) : "memory");
    return v;
}
SYMM_DEV uint32_t get4(const void *p) {
    uint32_t v;
    asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
    return v;
}
SYMM_DEV void put4(void *p, uint32_t v) {
    asm volatile("st.relaxed.sys.global.u32 [%0], %1;" ::"l"(p), "r"(v) : "memory");
}
/* Publishes what this thread, and through a barrier of the CTA the others, stored before; pairs
 * with take8 in the rank that owns *p. */
SYMM_DEV void give8(void *p, uint64_t v) {
    asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(p), "l"(v) : "memory");
}
SYMM_DEV uint64_t take8(const void *p) {
    uint64_t v;
    asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(v) : "l"(p) : "memory");
    return v;
}
SYMM_DEV uint32_t take4(const void *p) {
    uint32_t v;
    asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
    return v;
}
/* Data of a peer that has announced it: past L1, where nothing of it can be old. */
SYMM_DEV uint4 load_remote(const char *p) {
    uint4 v;
    asm volatile("ld.global.relaxed.sys.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(p));
    return v;
}
/* The same, in its place among the waits of its thread: no compiler moves it ahead of one. */
SYMM_DEV uint4 load_peer(const void *p) {
    uint4 v;
    asm volatile("ld.relaxed.sys.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(p)
                 : "memory");
    return v;
}
/* Likewise 4 bytes, and one. */
SYMM_DEV uint32_t load_peer4(const void *p) {
    uint32_t v;
    asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
    return v;
}
SYMM_DEV uint32_t load_peer1(const void *p) {
    uint32_t v;
    asm volatile("ld.relaxed.sys.global.u8 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
    return v;
}
/* Adds, and publishes as give8 does; pairs with take8. */
SYMM_DEV void add8(void *p, uint64_t by) {
    asm volatile("red.release.sys.global.add.u64 [%0], %1;" ::"l"(p), "l"(by) : "memory");
}
SYMM_DEV uint64_t clock_ns(void) {
    uint64_t t;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
    return t;
}

/* More CTAs like this one have no place on the GPU at once, by its multiprocessors, their threads
 * and their shared memory. What registers take is not counted. */
SYMM_DEV uint64_t most_ctas(void) {
    enum { MOST = 32, WARPS = 64, SHARED = 228 << 10 }; /* of a multiprocessor, of any GPU */
    uint32_t units, shared, each = WARPS / ((blockDim.x + 31) / 32);
    asm("mov.u32 %0, %%nsmid;" : "=r"(units));
    asm("mov.u32 %0, %%total_smem_size;" : "=r"(shared));
    if (each > MOST) each = MOST;
    if (shared && SHARED / shared < each) each = SHARED / shared;
    return (uint64_t)units * each;
}

/* One store of 16 bytes by each lane, all by one instruction, if the whole warp is here together;
 * 1: it is not, and nothing was stored. Nothing may part the lanes between the vote and the
 * store: a branch would. That what nvcc makes of it has none is looked at in the machine code of
 * each build (tests/check/check_sass.sh). */
SYMM_DEV int put_whole_warp(void *p, uint4 v) {
    int apart;
    asm volatile("{\n\t.reg .pred whole;\n\t.reg .b32 here;\n\t" SYMM_PTX_REG16 SYMM_PTX_PACK16(
                     "%2", "%3", "%4",
                     "%5") "activemask.b32 here;\n\t"
                           "setp.eq.u32 whole, here, 0xffffffff;\n\t"
                           "@whole " SYMM_PTX_STORE16("%1", "%2", "%3", "%4",
                                                      "%5") "selp.s32 %0, 0, 1, whole;\n\t}"
                 : "=r"(apart)
                 : "l"(p), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w)
                 : "memory");
    return apart;
}

/* The same for a load. Where a lane does not want it, or the warp is not whole, v is not defined
 * afterwards. (It asks for the whole warp in other words, so that check_sass.sh tells loads from
 * stores.) What one instruction loads of a line of 128 bytes is as it was at one moment: PTX does
 * not promise it, nor that such a store arrives as one; gpu_litmus looks for lines in pieces. */
SYMM_DEV int get_whole_warp(uint4 &v, const void *p, int wanted) {
    int apart;
    asm volatile("{\n\t.reg .pred whole, reads;\n\t.reg .b32 here;\n\t" SYMM_PTX_REG16
                 "activemask.b32 here;\n\tsetp.hi.u32 whole, here, 0xfffffffe;\n\t"
                 "setp.ne.and.s32 reads, %6, 0, whole;\n\t"
                 "@reads " SYMM_PTX_LOAD16("%5", "%1", "%2", "%3", "%4")
                     SYMM_PTX_UNPACK16("%1", "%2", "%3", "%4") "selp.s32 %0, 0, 1, whole;\n\t}"
                 : "=r"(apart), "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(p), "r"(wanted)
                 : "memory");
    return apart;
}

/* Programmatic launch: lets the next kernel of the stream be put in place, and waits for the end of
 * the one before. Older GPUs launch a kernel when its predecessor has ended. */
SYMM_DEV void launch_dependents(void) {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;");
#endif
}
SYMM_DEV void wait_for_grid_before(void) {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/* ---- multicast addresses: sm_90 and later ---------------------------------------------------- */

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
#define SYMM_PTX_MULTIMEM(...) __trap()
#else
#define SYMM_PTX_MULTIMEM(...) asm volatile(__VA_ARGS__)
#endif

/* What is stored by one address of the same bytes, and loaded by another, needs this between the
 * two, in the thread that stores, or in one that comes behind it. */
SYMM_DEV void alias_fence(void) {
    asm volatile("fence.proxy.alias;" ::: "memory");
}
/* 16 bytes into every rank's memory, in any order. */
SYMM_DEV void multicast_store16(char *p, uint4 v) {
    SYMM_PTX_MULTIMEM("multimem.st.relaxed.sys.global.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(p),
                      "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w)
                      : "memory");
}
/* What all ranks have in 16 bytes, reduced by the switch in an order of its own: multicast_add_f32
 * and so on. Floats of 16 bits are added in float32 and rounded once. */
#define SYMM_PTX_MULTIMEM_16(name, what)                                                           \
    SYMM_DEV uint4 multicast_##name(const char *p) {                                               \
        uint4 v = make_uint4(0, 0, 0, 0);                                                          \
        SYMM_PTX_MULTIMEM("multimem.ld_reduce.relaxed.sys.global." what " {%0, %1, %2, %3}, [%4];" \
                          : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)                             \
                          : "l"(p)                                                                 \
                          : "memory");                                                             \
        return v;                                                                                  \
    }
SYMM_PTX_MULTIMEM_16(add_f32, "add.v4.f32")
SYMM_PTX_MULTIMEM_16(add_f16, "add.acc::f32.v4.f16x2")
SYMM_PTX_MULTIMEM_16(add_bf16, "add.acc::f32.v4.bf16x2")

/* ---- two numbers of 16 bits in a word, the first in its lower half --------------------------- */

SYMM_DEV float half_low(uint32_t w) {
    float f;
    asm("{\n\t.reg .b16 lo, hi;\n\tmov.b32 {lo, hi}, %1;\n\tcvt.f32.f16 %0, lo;\n\t}"
        : "=f"(f)
        : "r"(w));
    return f;
}
/* Rounds to nearest, ties to even. */
SYMM_DEV uint32_t half_pair(float low, float high) {
    uint32_t w;
    asm("cvt.rn.f16x2.f32 %0, %2, %1;" : "=r"(w) : "f"(low), "f"(high));
    return w;
}
SYMM_DEV uint32_t bfloat_pair(float low, float high) {
    uint32_t w;
    asm("cvt.rn.bf16x2.f32 %0, %2, %1;" : "=r"(w) : "f"(low), "f"(high));
    return w;
}

} // namespace symm_ptx

#endif
