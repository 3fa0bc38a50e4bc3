/* ptx.cuh - what the kernels say in PTX: words with order and scope, loads, barriers. This file and
 * symm_device_ptx.cuh, whose words it uses, are the only ones of the GPU kernels that name memory
 * order. unit_kernels puts definitions for CPUs in their place. GPU code, any thread. */
#ifndef SYMM_CUDA_PTX_CUH_
#define SYMM_CUDA_PTX_CUH_

#include <stdint.h>

#include "../../../include/symm_device_ptx.cuh"

#define DEV SYMM_DEV
/* A variable that the threads of a CTA share. */
#define CTA_SHARED(type, name) __shared__ type name

/* ---- words ----------------------------------------------------------------------------------- */

using namespace symm_ptx; /* put16, get16, put8, give8, take8, ... */

/* get16 where `wanted` says so; elsewhere v is not defined afterwards. Not by a branch: behind one
 * a load is waited for before the next is made. */
DEV void get16_if(uint4 &v, const void *p, int wanted) {
    asm volatile("{\n\t.reg .pred wanted;\n\t" SYMM_PTX_REG16 "setp.ne.s32 wanted, %5, 0;\n\t"
                 "@wanted " SYMM_PTX_LOAD16("%4", "%0", "%1", "%2", "%3")
                     SYMM_PTX_UNPACK16("%0", "%1", "%2", "%3") "}"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(p), "r"(wanted)
                 : "memory");
}
/* put_whole_warp of the first `count` of four, `step` bytes apart, under one vote. */
#define PTX_PUT16(on, at, x, y, z, w)                     \
    "{\n\t" SYMM_PTX_REG16 SYMM_PTX_PACK16(x, y, z, w) on \
        " " SYMM_PTX_STORE16(at, x, y, z, w) "}\n\t"
DEV int put_whole_warps(char *p, unsigned step, const uint4 (&v)[4], unsigned count) {
    int apart;
    asm volatile("{\n\t.reg .pred whole, two, three, four;\n\t.reg .b32 here;\n\t"
                 "activemask.b32 here;\n\tsetp.eq.u32 whole, here, 0xffffffff;\n\t"
                 "setp.gt.and.u32 two, %21, 1, whole;\n\tsetp.gt.and.u32 three, %21, 2, whole;\n\t"
                 "setp.gt.and.u32 four, %21, 3, whole;\n\t" //
                 PTX_PUT16("@whole", "%1", "%5", "%6", "%7", "%8")
                     PTX_PUT16("@two", "%2", "%9", "%10", "%11", "%12")
                         PTX_PUT16("@three", "%3", "%13", "%14", "%15", "%16")
                             PTX_PUT16("@four", "%4", "%17", "%18", "%19",
                                       "%20") "selp.s32 %0, 0, 1, whole;\n\t}"
                 : "=r"(apart)
                 : "l"(p), "l"(p + step), "l"(p + 2 * step), "l"(p + 3 * step), "r"(v[0].x),
                   "r"(v[0].y), "r"(v[0].z), "r"(v[0].w), "r"(v[1].x), "r"(v[1].y), "r"(v[1].z),
                   "r"(v[1].w), "r"(v[2].x), "r"(v[2].y), "r"(v[2].z), "r"(v[2].w), "r"(v[3].x),
                   "r"(v[3].y), "r"(v[3].z), "r"(v[3].w), "r"(count)
                 : "memory");
    return apart;
}
/* get_whole_warp likewise. */
#define PTX_GET16(on, at, x, y, z, w)                             \
    "{\n\t" SYMM_PTX_REG16 on " " SYMM_PTX_LOAD16(at, x, y, z, w) \
        SYMM_PTX_UNPACK16(x, y, z, w) "}\n\t"
DEV int get_whole_warps(uint4 (&v)[4], const char *p, unsigned step, unsigned count) {
    int apart;
    asm volatile("{\n\t.reg .pred whole, two, three, four;\n\t.reg .b32 here;\n\t"
                 "activemask.b32 here;\n\tsetp.hi.u32 whole, here, 0xfffffffe;\n\t"
                 "setp.gt.and.u32 two, %21, 1, whole;\n\tsetp.gt.and.u32 three, %21, 2, whole;\n\t"
                 "setp.gt.and.u32 four, %21, 3, whole;\n\t" //
                 PTX_GET16("@whole", "%17", "%1", "%2", "%3", "%4")
                     PTX_GET16("@two", "%18", "%5", "%6", "%7", "%8")
                         PTX_GET16("@three", "%19", "%9", "%10", "%11", "%12")
                             PTX_GET16("@four", "%20", "%13", "%14", "%15",
                                       "%16") "selp.s32 %0, 0, 1, whole;\n\t}"
                 : "=r"(apart), "=r"(v[0].x), "=r"(v[0].y), "=r"(v[0].z), "=r"(v[0].w),
                   "=r"(v[1].x), "=r"(v[1].y), "=r"(v[1].z), "=r"(v[1].w), "=r"(v[2].x),
                   "=r"(v[2].y), "=r"(v[2].z), "=r"(v[2].w), "=r"(v[3].x), "=r"(v[3].y),
                   "=r"(v[3].z), "=r"(v[3].w)
                 : "l"(p), "l"(p + step), "l"(p + 2 * step), "l"(p + 3 * step), "r"(count)
                 : "memory");
    return apart;
}
/* As give8, for a word of this GPU that its host reads by copying. */
DEV void give4(void *p, uint32_t v) {
    asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(p), "r"(v) : "memory");
}
/* The same for words that only this GPU's warps read and write. Order is passed on: who releases to
 * a peer afterwards, at system scope, releases what it has acquired here, too. */
DEV void give8_gpu(void *p, uint64_t v) {
    asm volatile("st.release.gpu.global.u64 [%0], %1;" ::"l"(p), "l"(v) : "memory");
}
DEV uint64_t take8_gpu(const void *p) {
    uint64_t v;
    asm volatile("ld.acquire.gpu.global.u64 %0, [%1];" : "=l"(v) : "l"(p) : "memory");
    return v;
}
/* Adds, and returns what was there: release and acquire in one. */
DEV uint64_t add8_gpu(void *p, uint64_t by) {
    uint64_t was;
    asm volatile("atom.acq_rel.gpu.global.add.u64 %0, [%1], %2;"
                 : "=l"(was)
                 : "l"(p), "l"(by)
                 : "memory");
    return was;
}
/* The same without order. */
DEV uint64_t count8_gpu(void *p, uint64_t by) {
    uint64_t was;
    asm volatile("atom.relaxed.gpu.global.add.u64 %0, [%1], %2;"
                 : "=l"(was)
                 : "l"(p), "l"(by)
                 : "memory");
    return was;
}
/* Programmatic launch: the next kernel may be put in place now, or with `apart` when this one has
 * ended. It reads memory after its own wait, which waits for our end. */
DEV void let_next(uint32_t apart) {
#if __CUDA_ARCH__ >= 900 /* older ones are launched when their predecessor has ended */
    asm volatile("{\n\t.reg .pred early;\n\tsetp.eq.u32 early, %0, 0;\n\t"
                 "@early griddepcontrol.launch_dependents;\n\t}" ::"r"(apart));
#endif
}
/* No memory is read or written before this. `known`, which is not 0, is calculated before: without
 * a use there compilers place all of it behind the wait. */
DEV void wait_grid(uint64_t known) {
#if __CUDA_ARCH__ >= 900
    asm volatile("{\n\t.reg .pred none;\n\tsetp.eq.u64 none, %0, 0;\n\t@none trap;\n\t"
                 "griddepcontrol.wait;\n\t}" ::"l"(known)
                 : "memory");
#endif
}
DEV void enter_grid(uint32_t apart) {
    let_next(apart);
    wait_grid(1);
}

/* ---- loads of user memory -------------------------------------------------------------------- */

/* Loads of what an earlier kernel or a peer wrote: past L1; volatile, so that none is moved ahead
 * of wait_grid. */
DEV uint4 load16(const char *p) {
    uint4 v;
    asm volatile("ld.global.cg.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(p)
                 : "memory");
    return v;
}
DEV uint2 load8(const char *p) {
    uint2 v;
    asm volatile("ld.global.cg.v2.u32 {%0, %1}, [%2];" : "=r"(v.x), "=r"(v.y) : "l"(p) : "memory");
    return v;
}
/* 16 bytes where `wanted` says so, without a branch (see get16_if); else v stays as it is. A second
 * load into the same words, of fewer bytes, would wait for this one. */
DEV void load16_if(uint32_t (&v)[4], const char *p, int wanted) {
    asm volatile("{\n\t.reg .pred wanted;\n\tsetp.ne.s32 wanted, %5, 0;\n\t"
                 "@wanted ld.global.cg.v4.u32 {%0, %1, %2, %3}, [%4];\n\t}"
                 : "+r"(v[0]), "+r"(v[1]), "+r"(v[2]), "+r"(v[3])
                 : "l"(p), "r"(wanted)
                 : "memory");
}
/* The same from a multiple of 4 bytes, and from a multiple of 2 that is none of 4: words at
 * multiples of 4, and a half word at either end (join_halves). */
DEV void load_words_if(uint32_t (&v)[4], const char *p, int wanted) {
    asm volatile(
        "{\n\t.reg .pred wanted;\n\tsetp.ne.s32 wanted, %5, 0;\n\t"
        "@wanted ld.global.cg.u32 %0, [%4];\n\t@wanted ld.global.cg.u32 %1, [%4+4];\n\t"
        "@wanted ld.global.cg.u32 %2, [%4+8];\n\t@wanted ld.global.cg.u32 %3, [%4+12];\n\t}"
        : "+r"(v[0]), "+r"(v[1]), "+r"(v[2]), "+r"(v[3])
        : "l"(p), "r"(wanted)
        : "memory");
}
DEV void load_halves_if(uint32_t (&v)[5], const char *p, int wanted) {
    asm volatile("{\n\t.reg .pred wanted;\n\tsetp.ne.s32 wanted, %6, 0;\n\t"
                 "@wanted ld.global.cg.u16 %0, [%5];\n\t@wanted ld.global.cg.u32 %1, [%5+2];\n\t"
                 "@wanted ld.global.cg.u32 %2, [%5+6];\n\t@wanted ld.global.cg.u32 %3, [%5+10];\n\t"
                 "@wanted ld.global.cg.u16 %4, [%5+14];\n\t}"
                 : "+r"(v[0]), "+r"(v[1]), "+r"(v[2]), "+r"(v[3]), "+r"(v[4])
                 : "l"(p), "r"(wanted)
                 : "memory");
}
DEV void store_sized(char *p, const uint32_t (&v)[4], int size) {
    asm volatile("{\n\t.reg .pred four, two;\n\t"
                 "setp.eq.s32 four, %5, 16;\n\tsetp.eq.s32 two, %5, 8;\n\t"
                 "@four st.global.v4.u32 [%4], {%0, %1, %2, %3};\n\t"
                 "@two st.global.v2.u32 [%4], {%0, %1};\n\t}" ::"r"(v[0]),
                 "r"(v[1]), "r"(v[2]), "r"(v[3]), "l"(p), "r"(size)
                 : "memory");
}
/* 16 or 8 bytes, or none, in the same two ways. In half words: the lower half of `first`, the words
 * behind it, the lower half of `last`. 8 bytes end with the lower half of the second word. */
DEV void store_words_sized(char *p, const uint32_t (&v)[4], int size) {
    asm volatile(
        "{\n\t.reg .pred four, two;\n\t"
        "setp.eq.s32 four, %5, 16;\n\tsetp.ge.s32 two, %5, 8;\n\t"
        "@two st.global.u32 [%4], %0;\n\t@two st.global.u32 [%4+4], %1;\n\t"
        "@four st.global.u32 [%4+8], %2;\n\t@four st.global.u32 [%4+12], %3;\n\t}" ::"r"(v[0]),
        "r"(v[1]), "r"(v[2]), "r"(v[3]), "l"(p), "r"(size)
        : "memory");
}
DEV void store_halves_sized(char *p, uint32_t first, const uint32_t (&joined)[3], uint32_t last,
                            int size) {
    asm volatile(
        "{\n\t.reg .pred four, two, some;\n\t"
        "setp.eq.s32 four, %6, 16;\n\tsetp.eq.s32 two, %6, 8;\n\t"
        "setp.ge.s32 some, %6, 8;\n\t"
        "@some st.global.u16 [%5], %0;\n\t@some st.global.u32 [%5+2], %1;\n\t"
        "@two st.global.u16 [%5+6], %2;\n\t@four st.global.u32 [%5+6], %2;\n\t"
        "@four st.global.u32 [%5+10], %3;\n\t@four st.global.u16 [%5+14], %4;\n\t}" ::"r"(first),
        "r"(joined[0]), "r"(joined[1]), "r"(joined[2]), "r"(last), "l"(p), "r"(size)
        : "memory");
}
DEV uint32_t load4(const char *p) {
    uint32_t v;
    asm volatile("ld.global.cg.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
    return v;
}
DEV uint32_t pair_at(const char *p) {
    unsigned short v;
    asm volatile("ld.global.cg.u16 %0, [%1];" : "=h"(v) : "l"(p) : "memory");
    return v;
}
DEV uint32_t byte_at(const char *p) {
    uint32_t v;
    asm volatile("ld.global.cg.u8 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
    return v;
}

/* ---- multicast addresses: sm_90 and later ---------------------------------------------------- */

/* Stores, the fence and sums of floats are in symm_device_ptx.cuh: programs have those, too. */
#define MULTIMEM_ONE(reg, v, what, p)                                            \
    SYMM_PTX_MULTIMEM("multimem.ld_reduce.relaxed.sys.global." what " %0, [%1];" \
                      : "=" reg(v)                                               \
                      : "l"(p)                                                   \
                      : "memory")
#define MULTIMEM_4(name, what)                                                                  \
    DEV uint4 multicast_##name(const char *p) {                                                 \
        uint32_t v[4] = {0, 0, 0, 0};                                                           \
        _Pragma("unroll") for (int i = 0; i < 4; i++) MULTIMEM_ONE("r", v[i], what, p + 4 * i); \
        return make_uint4(v[0], v[1], v[2], v[3]);                                              \
    }
#define MULTIMEM_8(name, what)                                                                  \
    DEV uint4 multicast_##name(const char *p) {                                                 \
        uint64_t v[2] = {0, 0};                                                                 \
        _Pragma("unroll") for (int i = 0; i < 2; i++) MULTIMEM_ONE("l", v[i], what, p + 8 * i); \
        return make_uint4((uint32_t)v[0], (uint32_t)(v[0] >> 32), (uint32_t)v[1],               \
                          (uint32_t)(v[1] >> 32));                                              \
    }
/* 8 bytes into every rank's memory, where they are seen as a whole. */
DEV void multicast_store8(char *p, uint32_t low, uint32_t high) {
    SYMM_PTX_MULTIMEM("multimem.st.relaxed.sys.global.b64 [%0], %1;" ::"l"(p),
                      "l"((uint64_t)high << 32 | low)
                      : "memory");
}
MULTIMEM_8(add_f64, "add.f64")
MULTIMEM_4(add_u32, "add.u32")
MULTIMEM_4(max_u32, "max.u32")
MULTIMEM_4(min_u32, "min.u32")
MULTIMEM_4(max_s32, "max.s32")
MULTIMEM_4(min_s32, "min.s32")
MULTIMEM_8(add_u64, "add.u64")
MULTIMEM_8(max_u64, "max.u64")
MULTIMEM_8(min_u64, "min.u64")
MULTIMEM_8(max_s64, "max.s64")
MULTIMEM_8(min_s64, "min.s64")

/* ---- meeting --------------------------------------------------------------------------------- */

/* `threads` of a CTA, whole warps, meet at one of its barriers; 1: one of them is leaving, so all
 * do, at the same place. What they stored before comes before what any of them releases after. The
 * lanes of a warp come to the barrier together: at one that lets them come one by one (no
 * .aligned) some went on without the others, who then waited for ever. */
DEV int meet(int barrier, unsigned threads, int left) {
    int any;
    __syncwarp();
    asm volatile(
        "{\n\t.reg .pred mine, any;\n\tsetp.ne.s32 mine, %1, 0;\n\t"
        "barrier.cta.red.or.aligned.pred any, %3, %2, mine;\n\tselp.s32 %0, 1, 0, any;\n\t}"
        : "=r"(any)
        : "r"(left), "r"(threads), "r"(barrier)
        : "memory");
    return any;
}

#endif
