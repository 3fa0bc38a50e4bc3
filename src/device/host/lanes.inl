/* lanes.inl - vectors for the host build of the reductions: what one instruction set offers, under
 * names that are the same for all. Included by reduce_host.c only. Pure, any thread, no lock.
 *
 * Three layers:
 *   raw    SYMM_VECTOR bytes (full), a half or a quarter of them, as they lie in memory: load,
 *          store, the same of fewer bytes, streaming store
 *   lanes  vectors of SYMM_VECTOR bytes in which arithmetic runs: lanes_f32, lanes_u8 ...
 *   types  <type>_decode (raw to lanes) and <type>_encode (lanes to raw, NaN made canonical). A
 *          narrow type fills only a half or a quarter in memory, so the number of lanes is the
 *          same on both sides.
 *
 * Plain vector expressions serve where the compilers turn them into the right instruction;
 * intrinsics stand where they do not, and where AVX-512 compares into mask registers. Whatever the
 * set, the bits are those of types.inl. */

#include <string.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "parts of words and pairs of bfloat16 are laid out for little-endian machines"
#endif

#if SYMM_ISA_AVX512
#define SYMM_VECTOR 64
#elif SYMM_ISA_AVX2
#define SYMM_VECTOR 32
#else
#define SYMM_VECTOR 16
#endif
#if SYMM_ISA_AVX512 || SYMM_ISA_AVX2
#include <immintrin.h>
#elif defined(__x86_64__)
#include <emmintrin.h>
#endif

#define INLINE static inline __attribute__((always_inline, unused))

#define VECTOR(name, elem, bytes) typedef elem name __attribute__((vector_size(bytes)))
VECTOR(lanes_u8, uint8_t, SYMM_VECTOR);
VECTOR(lanes_i8, int8_t, SYMM_VECTOR);
VECTOR(lanes_u32, uint32_t, SYMM_VECTOR);
VECTOR(lanes_i32, int32_t, SYMM_VECTOR);
VECTOR(lanes_u64, uint64_t, SYMM_VECTOR);
VECTOR(lanes_i64, int64_t, SYMM_VECTOR);
VECTOR(lanes_f32, float, SYMM_VECTOR);
VECTOR(lanes_f64, double, SYMM_VECTOR);
VECTOR(half_u16, uint16_t, SYMM_VECTOR / 2);
VECTOR(half_i32, int32_t, SYMM_VECTOR / 2);
VECTOR(half_u32, uint32_t, SYMM_VECTOR / 2);
VECTOR(quarter_u8, uint8_t, SYMM_VECTOR / 4);
VECTOR(quarter_i8, int8_t, SYMM_VECTOR / 4);

/* ---- raw memory ------------------------------------------------------------------------------ */

VECTOR(raw_full, uint8_t, SYMM_VECTOR);
VECTOR(raw_half, uint8_t, SYMM_VECTOR / 2);
VECTOR(raw_quarter, uint8_t, SYMM_VECTOR / 4);

#define RAW_ACCESS(raw)                                           \
    typedef raw raw##_any __attribute__((aligned(1), may_alias)); \
    INLINE raw raw##_load(const void *p) {                        \
        return *(const raw##_any *)p;                             \
    }                                                             \
    INLINE void raw##_store(void *p, raw v) {                     \
        *(raw##_any *)p = v;                                      \
    }
RAW_ACCESS(raw_full)
RAW_ACCESS(raw_half)
RAW_ACCESS(raw_quarter)

/* Parts: the first `bytes`, at least 1 and fewer than the width; what is not loaded is zero. The
 * checkers do not see masked accesses, so they get the moves. */
#if SYMM_ISA_AVX512 && !SYMM_CHECKED
#define RAW_PART(raw, mask, prefix, vec)                                       \
    INLINE raw raw##_load_part(const void *p, size_t bytes) {                  \
        return (raw)prefix##_maskz_loadu_epi8((mask)((1ull << bytes) - 1), p); \
    }                                                                          \
    INLINE void raw##_store_part(void *p, raw v, size_t bytes) {               \
        prefix##_mask_storeu_epi8(p, (mask)((1ull << bytes) - 1), (vec)v);     \
    }
RAW_PART(raw_full, __mmask64, _mm512, __m512i)
RAW_PART(raw_half, __mmask32, _mm256, __m256i)
RAW_PART(raw_quarter, __mmask16, _mm, __m128i)
#else
/* The first n bytes of a word, n >= 1, by overlapping accesses that stay within them. */
INLINE uint64_t word_load(const char *p, size_t n) {
    const unsigned char *u = (const unsigned char *)p;
    uint64_t word;
    if (n >= 8) return memcpy(&word, p, 8), word;
    if (n < 4) return u[0] | (uint64_t)u[n / 2] << 8 * (n / 2) | (uint64_t)u[n - 1] << 8 * (n - 1);
    uint32_t low, high;
    memcpy(&low, p, 4), memcpy(&high, p + n - 4, 4);
    return low | (uint64_t)high << 8 * (n - 4);
}
INLINE void word_store(char *p, uint64_t word, size_t n) {
    if (n >= 8) {
        memcpy(p, &word, 8);
    } else if (n < 4) {
        p[0] = (char)word, p[n / 2] = (char)(word >> 8 * (n / 2)),
        p[n - 1] = (char)(word >> 8 * (n - 1));
    } else {
        uint32_t low = (uint32_t)word, high = (uint32_t)(word >> 8 * (n - 4));
        memcpy(p, &low, 4), memcpy(p + n - 4, &high, 4);
    }
}

/* Assembled in general registers: through a buffer in memory the wide load would wait for the
 * narrow stores to drain. */
#define WORD(i) (bytes > 8 * (i) ? word_load((const char *)p + 8 * (i), bytes - 8 * (i)) : 0)
#define WORDS_2 WORD(0), WORD(1)
#define WORDS_4 WORDS_2, WORD(2), WORD(3)
#define WORDS_8 WORDS_4, WORD(4), WORD(5), WORD(6), WORD(7)
#define PUT(i) \
    if (bytes > 8 * (i)) word_store((char *)p + 8 * (i), words[i], bytes - 8 * (i))
#define PUTS_2 \
    PUT(0);    \
    PUT(1)
#define PUTS_4 \
    PUTS_2;    \
    PUT(2);    \
    PUT(3)
#define PUTS_8 \
    PUTS_4;    \
    PUT(4);    \
    PUT(5);    \
    PUT(6);    \
    PUT(7)
#define RAW_PART(raw, WORDS, PUTS)                                                         \
    typedef uint64_t raw##_words __attribute__((vector_size(sizeof(raw))));                \
    static __attribute__((noinline)) raw raw##_load_part(const void *p, size_t bytes) {    \
        return (raw)(raw##_words){WORDS};                                                  \
    }                                                                                      \
    static __attribute__((noinline)) void raw##_store_part(void *p, raw v, size_t bytes) { \
        raw##_words words = (raw##_words)v;                                                \
        PUTS;                                                                              \
    }
#if SYMM_VECTOR == 64
RAW_PART(raw_full, WORDS_8, PUTS_8)
RAW_PART(raw_half, WORDS_4, PUTS_4)
RAW_PART(raw_quarter, WORDS_2, PUTS_2)
#elif SYMM_VECTOR == 32
RAW_PART(raw_full, WORDS_4, PUTS_4)
RAW_PART(raw_half, WORDS_2, PUTS_2)
RAW_PART(raw_quarter, WORD(0), PUT(0))
#else
RAW_PART(raw_full, WORDS_2, PUTS_2)
RAW_PART(raw_half, WORD(0), PUT(0))
INLINE raw_quarter raw_quarter_load_part(const void *p, size_t bytes) {
    return (raw_quarter)(uint32_t)WORD(0);
}
INLINE void raw_quarter_store_part(void *p, raw_quarter v, size_t bytes) {
    word_store(p, (uint32_t)v, bytes);
}
#endif
#endif

/* p aligned to the width. Where there is no such store the plain one serves: it is a hint. */
#if SYMM_ISA_AVX512
INLINE void raw_full_stream(void *p, raw_full v) {
    _mm512_stream_si512(p, (__m512i)v);
}
INLINE void raw_half_stream(void *p, raw_half v) {
    _mm256_stream_si256(p, (__m256i)v);
}
INLINE void raw_quarter_stream(void *p, raw_quarter v) {
    _mm_stream_si128(p, (__m128i)v);
}
#elif SYMM_ISA_AVX2
INLINE void raw_full_stream(void *p, raw_full v) {
    _mm256_stream_si256(p, (__m256i)v);
}
INLINE void raw_half_stream(void *p, raw_half v) {
    _mm_stream_si128(p, (__m128i)v);
}
INLINE void raw_quarter_stream(void *p, raw_quarter v) {
    _mm_stream_si64(p, (long long)v);
}
#elif defined(__x86_64__)
INLINE void raw_full_stream(void *p, raw_full v) {
    _mm_stream_si128(p, (__m128i)v);
}
INLINE void raw_half_stream(void *p, raw_half v) {
    raw_half_store(p, v);
}
INLINE void raw_quarter_stream(void *p, raw_quarter v) {
    raw_quarter_store(p, v);
}
#else
INLINE void raw_full_stream(void *p, raw_full v) {
    raw_full_store(p, v);
}
INLINE void raw_half_stream(void *p, raw_half v) {
    raw_half_store(p, v);
}
INLINE void raw_quarter_stream(void *p, raw_quarter v) {
    raw_quarter_store(p, v);
}
#endif

/* Orders streaming stores before every later store; pairs with the acquire of whoever sees such a
 * later store. */
INLINE void stream_fence(void) {
#if defined(__x86_64__)
    _mm_sfence();
#else
    __atomic_thread_fence(__ATOMIC_RELEASE);
#endif
}

/* ---- choosing by lane ------------------------------------------------------------------------ */

#if SYMM_ISA_AVX512
typedef __mmask16 mask_32;
typedef __mmask8 mask_64;
INLINE mask_32 u31_less(lanes_u32 a, lanes_u32 b) {
    return _mm512_cmplt_epi32_mask((__m512i)a, (__m512i)b);
}
INLINE lanes_u32 u32_pick(mask_32 m, lanes_u32 a, lanes_u32 b) {
    return (lanes_u32)_mm512_mask_blend_epi32(m, (__m512i)b, (__m512i)a);
}
INLINE lanes_f32 f32_pick(mask_32 m, lanes_f32 a, lanes_f32 b) {
    return (lanes_f32)_mm512_mask_blend_ps(m, (__m512)b, (__m512)a);
}
INLINE lanes_f64 f64_pick(mask_64 m, lanes_f64 a, lanes_f64 b) {
    return (lanes_f64)_mm512_mask_blend_pd(m, (__m512d)b, (__m512d)a);
}
INLINE mask_32 f32_nan(lanes_f32 v) {
    return _mm512_cmp_ps_mask((__m512)v, (__m512)v, _CMP_UNORD_Q);
}
INLINE mask_64 f64_nan(lanes_f64 v) {
    return _mm512_cmp_pd_mask((__m512d)v, (__m512d)v, _CMP_UNORD_Q);
}
INLINE mask_32 f32_above(lanes_f32 a, lanes_f32 b) {
    return _mm512_cmp_ps_mask((__m512)a, (__m512)b, _CMP_GT_OQ);
}
INLINE mask_64 f64_above(lanes_f64 a, lanes_f64 b) {
    return _mm512_cmp_pd_mask((__m512d)a, (__m512d)b, _CMP_GT_OQ);
}
#else
typedef lanes_i32 mask_32;
typedef lanes_i64 mask_64;
INLINE mask_32 u31_less(lanes_u32 a, lanes_u32 b) {
    return (mask_32)((lanes_i32)a < (lanes_i32)b);
}
#if SYMM_ISA_AVX2
INLINE lanes_u32 u32_pick(mask_32 m, lanes_u32 a, lanes_u32 b) {
    return (lanes_u32)_mm256_blendv_epi8((__m256i)b, (__m256i)a, (__m256i)m);
}
INLINE lanes_f32 f32_pick(mask_32 m, lanes_f32 a, lanes_f32 b) {
    return (lanes_f32)_mm256_blendv_ps((__m256)b, (__m256)a, (__m256)m);
}
INLINE lanes_f64 f64_pick(mask_64 m, lanes_f64 a, lanes_f64 b) {
    return (lanes_f64)_mm256_blendv_pd((__m256d)b, (__m256d)a, (__m256d)m);
}
#else
INLINE lanes_u32 u32_pick(mask_32 m, lanes_u32 a, lanes_u32 b) {
    return ((lanes_u32)m & a) | (~(lanes_u32)m & b);
}
INLINE lanes_f32 f32_pick(mask_32 m, lanes_f32 a, lanes_f32 b) {
    return (lanes_f32)(((mask_32)a & m) | ((mask_32)b & ~m));
}
INLINE lanes_f64 f64_pick(mask_64 m, lanes_f64 a, lanes_f64 b) {
    return (lanes_f64)(((mask_64)a & m) | ((mask_64)b & ~m));
}
#endif
INLINE mask_32 f32_nan(lanes_f32 v) {
    return (mask_32)(v != v);
}
INLINE mask_64 f64_nan(lanes_f64 v) {
    return (mask_64)(v != v);
}
INLINE mask_32 f32_above(lanes_f32 a, lanes_f32 b) {
    return (mask_32)(a > b);
}
INLINE mask_64 f64_above(lanes_f64 a, lanes_f64 b) {
    return (mask_64)(a > b);
}
#endif

/* Of values under 2^31. SSE2 lacks these for integers; floats are ordered as their bits are. */
#if SYMM_ISA_AVX512
INLINE lanes_u32 u31_least(lanes_u32 a, lanes_u32 b) {
    return (lanes_u32)_mm512_min_epi32((__m512i)a, (__m512i)b);
}
INLINE lanes_u32 u31_most(lanes_u32 a, lanes_u32 b) {
    return (lanes_u32)_mm512_max_epi32((__m512i)a, (__m512i)b);
}
#elif SYMM_ISA_AVX2
INLINE lanes_u32 u31_least(lanes_u32 a, lanes_u32 b) {
    return (lanes_u32)_mm256_min_epi32((__m256i)a, (__m256i)b);
}
INLINE lanes_u32 u31_most(lanes_u32 a, lanes_u32 b) {
    return (lanes_u32)_mm256_max_epi32((__m256i)a, (__m256i)b);
}
#elif defined(__x86_64__)
INLINE lanes_u32 u31_least(lanes_u32 a, lanes_u32 b) {
    return (lanes_u32)_mm_min_ps((__m128)a, (__m128)b);
}
INLINE lanes_u32 u31_most(lanes_u32 a, lanes_u32 b) {
    return (lanes_u32)_mm_max_ps((__m128)a, (__m128)b);
}
#else
INLINE lanes_u32 u31_least(lanes_u32 a, lanes_u32 b) {
    return u32_pick(u31_less(a, b), a, b);
}
INLINE lanes_u32 u31_most(lanes_u32 a, lanes_u32 b) {
    return u32_pick(u31_less(a, b), b, a);
}
#endif

/* ---- arithmetic: max, min, divide, splat per kind of lane ------------------------------------ */

/* Built without contraction: a product is rounded before it is added. */
#define SUM_AND_PRODUCT(kind, lanes)            \
    INLINE lanes kind##_add(lanes a, lanes b) { \
        return a + b;                           \
    }                                           \
    INLINE lanes kind##_mul(lanes a, lanes b) { \
        return a * b;                           \
    }

/* x, the higher rank's value, is taken only where it is strictly beyond or NaN: the lower rank's
 * zero and NaN stay. */
#define FLOAT_KIND(kind, elem, canonical)                                                  \
    SUM_AND_PRODUCT(kind, lanes_##kind)                                                    \
    INLINE lanes_##kind kind##_max(lanes_##kind acc, lanes_##kind x) {                     \
        return kind##_pick(kind##_above(x, acc) | kind##_nan(x), x, acc);                  \
    }                                                                                      \
    INLINE lanes_##kind kind##_min(lanes_##kind acc, lanes_##kind x) {                     \
        return kind##_pick(kind##_above(acc, x) | kind##_nan(x), x, acc);                  \
    }                                                                                      \
    INLINE lanes_##kind kind##_divide(lanes_##kind sum, int n, int shift) {                \
        return shift >= 0 ? sum * ((elem)1 / (elem)n)                                      \
                          : sum / (elem)n; /* the reciprocal of a power of two is exact */ \
    }                                                                                      \
    INLINE lanes_##kind kind##_canonical(lanes_##kind v) {                                 \
        return kind##_pick(kind##_nan(v), (lanes_##kind)canonical, v);                     \
    }
FLOAT_KIND(f32, float, ((lanes_u32){0} + 0x7fc00000u))
FLOAT_KIND(f64, double, ((lanes_u64){0} + 0x7ff8000000000000ull))

/* Lanes are unsigned, so that they wrap; `as` gives comparisons the sign. */
#define INT_KIND(kind, lanes, as, mask)                        \
    SUM_AND_PRODUCT(kind, lanes)                               \
    INLINE lanes kind##_choose(mask m, lanes a, lanes b) {     \
        return (a & (lanes)m) | (b & ~(lanes)m);               \
    }                                                          \
    INLINE lanes kind##_max(lanes acc, lanes x) {              \
        return kind##_choose((mask)((as)x > (as)acc), x, acc); \
    }                                                          \
    INLINE lanes kind##_min(lanes acc, lanes x) {              \
        return kind##_choose((mask)((as)x < (as)acc), x, acc); \
    }
INT_KIND(i8, lanes_u8, lanes_i8, lanes_i8)
INT_KIND(u8, lanes_u8, lanes_u8, lanes_i8)
INT_KIND(i32, lanes_u32, lanes_i32, lanes_i32)
INT_KIND(u32, lanes_u32, lanes_u32, lanes_i32)
INT_KIND(i64, lanes_u64, lanes_i64, lanes_i64)
INT_KIND(u64, lanes_u64, lanes_u64, lanes_i64)

INLINE lanes_u64 u64_divide(lanes_u64 sum, int n, int shift) {
    return shift >= 0 ? sum >> shift : sum / (uint64_t)n;
}
/* A shift rounds down; adding n - 1 to what is negative makes it round toward zero. */
INLINE lanes_u64 i64_divide(lanes_u64 sum, int n, int shift) {
    if (shift < 0) return (lanes_u64)((lanes_i64)sum / (int64_t)n);
    lanes_u64 fix = (lanes_u64)((lanes_i64)sum >> 63) & (uint64_t)(n - 1);
    return (lanes_u64)((lanes_i64)(sum + fix) >> shift);
}
