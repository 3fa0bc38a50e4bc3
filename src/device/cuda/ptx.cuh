/* ptx.cuh - what the kernels say in PTX: words with order and scope, loads, barriers. It is the
 * only file of the GPU kernels that names memory order. unit_kernels puts definitions for CPUs in
 * its place. GPU code, any thread. */
#ifndef SYMM_CUDA_PTX_CUH_
#define SYMM_CUDA_PTX_CUH_

#include <stdint.h>

#define DEV static __device__ __forceinline__
/* A variable that the threads of a CTA share. */
#define CTA_SHARED(type, name) __shared__ type name

/* ---- words ----------------------------------------------------------------------------------- */

/* 16 bytes that are written, or read, as one: PTX promises it of .b128, of a vector not (that is
 * four words to it, in any order), though today's instruction is the same. Compilers before CUDA
 * 12.3 know the vector alone. */
#if __CUDACC_VER_MAJOR__ * 100 + __CUDACC_VER_MINOR__ >= 1203
#define PTX_REG16 ".reg .b64 lo, hi;\n\t.reg .b128 all;\n\t"
#define PTX_PACK16(x, y, z, w)                                       \
    "mov.b64 lo, {" x ", " y "};\n\tmov.b64 hi, {" z ", " w "};\n\t" \
    "mov.b128 all, {lo, hi};\n\t"
#define PTX_UNPACK16(x, y, z, w)  \
    "mov.b128 {lo, hi}, all;\n\t" \
    "mov.b64 {" x ", " y "}, lo;\n\tmov.b64 {" z ", " w "}, hi;\n\t"
#define PTX_STORE16(at, x, y, z, w) "st.relaxed.sys.global.b128 [" at "], all;\n\t"
#define PTX_LOAD16(at, x, y, z, w)  "ld.relaxed.sys.global.b128 all, [" at "];\n\t"
#else
#define PTX_REG16                ""
#define PTX_PACK16(x, y, z, w)   ""
#define PTX_UNPACK16(x, y, z, w) ""
#define PTX_STORE16(at, x, y, z, w) \
    "st.relaxed.sys.global.v4.u32 [" at "], {" x ", " y ", " z ", " w "};\n\t"
#define PTX_LOAD16(at, x, y, z, w) \
    "ld.relaxed.sys.global.v4.u32 {" x ", " y ", " z ", " w "}, [" at "];\n\t"
#endif

/* Relaxed at system scope: they go to the memory they name and come back from it, past L1. What is
 * read needs no further order, because it carries its own flag. */
DEV void put16(void *p, uint4 v) {
    asm volatile("{\n\t" PTX_REG16 PTX_PACK16("%1", "%2", "%3", "%4")
                     PTX_STORE16("%0", "%1", "%2", "%3", "%4") "}" ::"l"(p),
                 "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w)
                 : "memory");
}
DEV uint4 get16(const void *p) {
    uint4 v;
    asm volatile("{\n\t" PTX_REG16 PTX_LOAD16("%4", "%0", "%1", "%2", "%3")
                     PTX_UNPACK16("%0", "%1", "%2", "%3") "}"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(p)
                 : "memory");
    return v;
}
/* The same where `wanted` says so. Not by a branch: behind one a load is waited for before the next
 * is made. */
DEV void get16_if(uint4 &v, const void *p, int wanted) {
    asm volatile("{\n\t.reg .pred wanted;\n\t" PTX_REG16 "setp.ne.s32 wanted, %5, 0;\n\t"
                 "@wanted " PTX_LOAD16("%4", "%0", "%1", "%2", "%3")
                     PTX_UNPACK16("%0", "%1", "%2", "%3") "}"
                 : "+r"(v.x), "+r"(v.y), "+r"(v.z), "+r"(v.w)
                 : "l"(p), "r"(wanted)
                 : "memory");
}
DEV void put8(void *p, uint64_t v) {
    asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(p), "l"(v) : "memory");
}
DEV uint64_t get8(const void *p) {
    uint64_t v;
    asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(v) : "l"(p) : "memory");
    return v;
}
DEV uint32_t get4(const void *p) {
    uint32_t v;
    asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
    return v;
}
DEV void put4(void *p, uint32_t v) {
    asm volatile("st.relaxed.sys.global.u32 [%0], %1;" ::"l"(p), "r"(v) : "memory");
}
/* Publishes what this thread, and through a barrier of the CTA the others, stored before; pairs
 * with take8 in the rank that owns *p. */
DEV void give8(void *p, uint64_t v) {
    asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(p), "l"(v) : "memory");
}
DEV uint64_t take8(const void *p) {
    uint64_t v;
    asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(v) : "l"(p) : "memory");
    return v;
}
DEV uint32_t take4(const void *p) {
    uint32_t v;
    asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
    return v;
}
/* The same for a word of this GPU that its host reads by copying. */
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
/* Data of a peer that has announced it: past L1, where nothing of it can be old. */
DEV uint4 load_remote(const char *p) {
    uint4 v;
    asm volatile("ld.global.relaxed.sys.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(p));
    return v;
}
DEV uint64_t clock_ns(void) {
    uint64_t t;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
    return t;
}

/* Programmatic launch: the next kernel may be put in place now, or with `apart` when this one has
 * ended. It reads memory after its own wait, which waits for our end. Nothing of ours precedes our
 * wait. */
DEV void enter_grid(uint32_t apart) {
#if __CUDA_ARCH__ >= 900 /* older ones are launched when their predecessor has ended */
    asm volatile("{\n\t.reg .pred early;\n\tsetp.eq.u32 early, %0, 0;\n\t"
                 "@early griddepcontrol.launch_dependents;\n\t}" ::"r"(apart));
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/* ---- loads of user memory -------------------------------------------------------------------- */

/* Loads of what an earlier kernel or a peer wrote: past L1; volatile, so that none is moved ahead
 * of the wait of enter_grid. */
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
/* 16, 8 or no bytes, as `size` says, without a branch (see get16_if). */
DEV void load_sized(uint32_t (&v)[4], const char *p, int size) {
    asm volatile("{\n\t.reg .pred four, two;\n\t"
                 "setp.eq.s32 four, %5, 16;\n\tsetp.eq.s32 two, %5, 8;\n\t"
                 "@four ld.global.cg.v4.u32 {%0, %1, %2, %3}, [%4];\n\t"
                 "@two ld.global.cg.v2.u32 {%0, %1}, [%4];\n\t}"
                 : "+r"(v[0]), "+r"(v[1]), "+r"(v[2]), "+r"(v[3])
                 : "l"(p), "r"(size)
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

/* One store of 16 bytes by each lane, all by one instruction, if the whole warp is here together;
 * 1: it is not, and nothing was stored. Nothing may part the lanes between the vote and the
 * store: a branch would. That what nvcc makes of it has none is looked at in the machine code of
 * each build (tests/check/check_sass.sh). */
DEV int put_whole_warp(void *p, uint4 v) {
    int apart;
    asm volatile(
        "{\n\t.reg .pred whole;\n\t.reg .b32 here;\n\t" PTX_REG16 PTX_PACK16(
            "%2", "%3", "%4", "%5") "activemask.b32 here;\n\t"
                                    "setp.eq.u32 whole, here, 0xffffffff;\n\t"
                                    "@whole " PTX_STORE16("%1", "%2", "%3", "%4",
                                                          "%5") "selp.s32 %0, 0, 1, whole;\n\t}"
        : "=r"(apart)
        : "l"(p), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w)
        : "memory");
    return apart;
}
/* The same for a load, where all lanes want it. (It asks for the whole warp in other words, so that
 * check_sass.sh tells loads from stores.) What one instruction loads of a line of 128 bytes
 * is as it was at one moment: PTX does not promise it, nor that such a store arrives as one;
 * gpu_litmus looks for lines in pieces. */
DEV int get_whole_warp(uint4 &v, const void *p, int wanted) {
    int apart;
    asm volatile("{\n\t.reg .pred whole, reads;\n\t.reg .b32 here;\n\t" PTX_REG16
                 "activemask.b32 here;\n\tsetp.hi.u32 whole, here, 0xfffffffe;\n\t"
                 "setp.ne.and.s32 reads, %6, 0, whole;\n\t"
                 "@reads " PTX_LOAD16("%5", "%1", "%2", "%3", "%4")
                     PTX_UNPACK16("%1", "%2", "%3", "%4") "selp.s32 %0, 0, 1, whole;\n\t}"
                 : "=r"(apart), "+r"(v.x), "+r"(v.y), "+r"(v.z), "+r"(v.w)
                 : "l"(p), "r"(wanted)
                 : "memory");
    return apart;
}

#endif
