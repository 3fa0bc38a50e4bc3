/* reduce_host.c - reductions and copies of the host build, for one instruction set: compiled once
 * per SYMM_ISA (base, avx2, avx512), each with that set's flags, always with -O3 -ffp-contract=off
 * and never with -ffast-math. What comes out is one table, symm_reduce_<isa>. Pure, any thread, no
 * lock. */
#include "reduce.h"

#ifndef SYMM_ISA
#define SYMM_ISA base
#endif
#define ISA_NUMBER_base   0
#define ISA_NUMBER_avx2   1
#define ISA_NUMBER_avx512 2
#define PASTE(a, b)       a##b
#define GLUE(a, b)        PASTE(a, b)
#define SYMM_ISA_AVX2     (GLUE(ISA_NUMBER_, SYMM_ISA) == 1)
#define SYMM_ISA_AVX512   (GLUE(ISA_NUMBER_, SYMM_ISA) == 2)
#if SYMM_ISA_AVX2 && !(defined(__AVX2__) && defined(__F16C__))
#error "SYMM_ISA=avx2 needs -mavx2 -mf16c"
#endif
#if SYMM_ISA_AVX512 && !(defined(__AVX512BW__) && defined(__AVX512VL__) && \
                         defined(__AVX512DQ__) && defined(__F16C__))
#error "SYMM_ISA=avx512 needs -mavx512f -mavx512bw -mavx512vl -mavx512dq -mf16c"
#endif
#ifdef __FAST_MATH__
#error "results are specified bit for bit: build this without -ffast-math"
#endif

/* Under a checker every byte is read and written by accesses that it sees: no masked ones, no
 * streaming. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SYMM_CHECKED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || \
    __has_feature(memory_sanitizer)
#define SYMM_CHECKED 1
#endif
#endif
#ifndef SYMM_CHECKED
#define SYMM_CHECKED 0
#endif
#if defined(__SANITIZE_THREAD__)
#define SYMM_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define SYMM_TSAN 1
#endif
#endif

#include "lanes.inl"
#include "lanes_types.inl"

/* Results must not depend on what the caller did to the processor's rounding mode, subnormal
 * flushing or traps. Reading the mode costs a nanosecond or two, changing it much more, and almost
 * nobody has changed it. MXCSR's low bits are flags of what has happened; FPCR has none. Other
 * processors than these are taken as they are. */
#if defined(__x86_64__)
typedef unsigned float_mode;
enum { MODE_MASK = 0xffc0, MODE_DEFAULT = 0x1f80 };
INLINE float_mode float_get(void) {
    return _mm_getcsr();
}
INLINE void float_set(float_mode mode) {
    _mm_setcsr(mode);
}
#elif defined(__aarch64__)
typedef uint64_t float_mode;
#define MODE_MASK    (~0ull)
#define MODE_DEFAULT 0ull
INLINE float_mode float_get(void) {
    float_mode mode;
    __asm__ volatile("mrs %0, fpcr" : "=r"(mode));
    return mode;
}
INLINE void float_set(float_mode mode) {
    __asm__ volatile("msr fpcr, %0" ::"r"(mode));
}
#else
typedef unsigned float_mode;
enum { MODE_MASK = 0, MODE_DEFAULT = 0 };
INLINE float_mode float_get(void) {
    return 0;
}
INLINE void float_set(float_mode mode) {
    (void)mode;
}
#endif

INLINE float_mode float_enter(void) {
    const float_mode mode = float_get();
    if (__builtin_expect((mode & MODE_MASK) != MODE_DEFAULT, 0)) float_set(MODE_DEFAULT);
    /* The arithmetic is tied to loads and stores, and these stay between enter and leave. */
    __asm__ volatile("" ::: "memory");
    return mode;
}
INLINE void float_leave(float_mode mode) {
    __asm__ volatile("" ::: "memory");
    if (__builtin_expect((mode & MODE_MASK) != MODE_DEFAULT, 0)) float_set(mode);
}

/* ThreadSanitizer overlooks accesses wider than 16 bytes in code of some compilers: it is told the
 * spans instead. */
#if SYMM_TSAN
extern void __tsan_read_range(void *addr, long size);
extern void __tsan_write_range(void *addr, long size);
INLINE void check_span(void *dst, const void *const *src, int n, size_t bytes) {
    for (int r = 0; r < n; r++) __tsan_read_range((void *)src[r], (long)bytes);
    __tsan_write_range(dst, (long)bytes);
}
#else
INLINE void check_span(void *dst, const void *const *src, int n, size_t bytes) {
    (void)dst, (void)src, (void)n, (void)bytes;
}
#endif

/* Writing in place past the caches would evict lines that were just read. */
INLINE int in_place(const void *dst, const void *const *src, int n) {
    for (int r = 0; r < n; r++)
        if (src[r] == dst) return 1;
    return 0;
}

/* ---- the types ------------------------------------------------------------------------------- */

#define TYPE    i8
#define KIND    i8
#define LANES   lanes_u8
#define RAW     raw_full
#define BYTES   1
#define FLOATS  0
#define AVERAGE 0
#include "reduce_span.inl"

#define TYPE    u8
#define KIND    u8
#define LANES   lanes_u8
#define RAW     raw_full
#define BYTES   1
#define FLOATS  0
#define AVERAGE 0
#include "reduce_span.inl"

#define TYPE    i8avg
#define KIND    f32
#define LANES   lanes_f32
#define RAW     raw_quarter
#define BYTES   1
#define FLOATS  1
#define AVERAGE 2
#include "reduce_span.inl"

#define TYPE    u8avg
#define KIND    f32
#define LANES   lanes_f32
#define RAW     raw_quarter
#define BYTES   1
#define FLOATS  1
#define AVERAGE 2
#include "reduce_span.inl"

#define TYPE    i32
#define KIND    i32
#define LANES   lanes_u32
#define RAW     raw_full
#define BYTES   4
#define FLOATS  0
#define AVERAGE 0
#include "reduce_span.inl"

#define TYPE    u32
#define KIND    u32
#define LANES   lanes_u32
#define RAW     raw_full
#define BYTES   4
#define FLOATS  0
#define AVERAGE 0
#include "reduce_span.inl"

#define TYPE    i32avg
#define KIND    f64
#define LANES   lanes_f64
#define RAW     raw_half
#define BYTES   4
#define FLOATS  1
#define AVERAGE 2
#include "reduce_span.inl"

#define TYPE    u32avg
#define KIND    f64
#define LANES   lanes_f64
#define RAW     raw_half
#define BYTES   4
#define FLOATS  1
#define AVERAGE 2
#include "reduce_span.inl"

#define TYPE    i64
#define KIND    i64
#define LANES   lanes_u64
#define RAW     raw_full
#define BYTES   8
#define FLOATS  0
#define AVERAGE 1
#include "reduce_span.inl"

#define TYPE    u64
#define KIND    u64
#define LANES   lanes_u64
#define RAW     raw_full
#define BYTES   8
#define FLOATS  0
#define AVERAGE 1
#include "reduce_span.inl"

#define TYPE    f16
#define KIND    f32
#define LANES   lanes_f32
#define RAW     raw_half
#define BYTES   2
#define FLOATS  1
#define AVERAGE 1
#include "reduce_span.inl"

#define TYPE    f32
#define KIND    f32
#define LANES   lanes_f32
#define RAW     raw_full
#define BYTES   4
#define FLOATS  1
#define AVERAGE 1
#include "reduce_span.inl"

#define TYPE    f64
#define KIND    f64
#define LANES   lanes_f64
#define RAW     raw_full
#define BYTES   8
#define FLOATS  1
#define AVERAGE 1
#include "reduce_span.inl"

#define TYPE    bf16
#define KIND    pair
#define LANES   lanes_pair
#define RAW     raw_full
#define BYTES   2
#define FLOATS  1
#define AVERAGE 1
#include "reduce_span.inl"

#define TYPE    e4m3
#define KIND    f32
#define LANES   lanes_f32
#define RAW     raw_quarter
#define BYTES   1
#define FLOATS  1
#define AVERAGE 1
#include "reduce_span.inl"

#define TYPE    e5m2
#define KIND    f32
#define LANES   lanes_f32
#define RAW     raw_quarter
#define BYTES   1
#define FLOATS  1
#define AVERAGE 1
#include "reduce_span.inl"

#include "copy.inl"

/* ---- the table ------------------------------------------------------------------------------- */

#define ISA_NAME(isa) #isa
#define ISA_TEXT(isa) ISA_NAME(isa)
#define ROW(type, nt)                                                                    \
    {                                                                                    \
        reduce_##type##_sum##nt, reduce_##type##_prod##nt, reduce_##type##_max##nt,      \
            reduce_##type##_min##nt, reduce_##type##_avg##nt, reduce_##type##_premul##nt \
    }
#define NARROW(type, nt)                                                                    \
    {                                                                                       \
        reduce_##type##_sum##nt, reduce_##type##_prod##nt, reduce_##type##_max##nt,         \
            reduce_##type##_min##nt, reduce_##type##avg_avg##nt, reduce_##type##_premul##nt \
    }
/* In the order of symmDataType_t. */
#define TABLE(nt)                                                                                 \
    {                                                                                             \
        NARROW(i8, nt), NARROW(u8, nt), NARROW(i32, nt), NARROW(u32, nt), ROW(i64, nt),           \
            ROW(u64, nt), ROW(f16, nt), ROW(f32, nt), ROW(f64, nt), ROW(bf16, nt), ROW(e4m3, nt), \
            ROW(e5m2, nt)                                                                         \
    }

extern const symm_reduce_table GLUE(symm_reduce_, SYMM_ISA);
const symm_reduce_table GLUE(symm_reduce_, SYMM_ISA) = {
    .isa = ISA_TEXT(SYMM_ISA),
    .reduce = TABLE(),
    .reduce_nt = TABLE(_nt),
    .reduce_nt2 = TABLE(_nt2),
    .divide = {reduce_i8avg_divide, reduce_u8avg_divide, reduce_i32avg_divide, reduce_u32avg_divide,
               reduce_i64_divide, reduce_u64_divide, reduce_f16_divide, reduce_f32_divide,
               reduce_f64_divide, reduce_bf16_divide, reduce_e4m3_divide, reduce_e5m2_divide},
    .copy = copy,
    .copy_nt = copy_nt,
    .copy_vectors = copy_vectors,
};
