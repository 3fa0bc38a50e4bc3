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

/* ---- types: raw memory to lanes and back ----------------------------------------------------- */

#define SYMM_FN            INLINE
#define SYMM_LANE(name)    lanes_##name
#define SYMM_U32           lanes_u32
#define SYMM_F32           lanes_f32
#define SYMM_U(c)          ((lanes_u32){0} + (uint32_t)(c))
#define SYMM_F(c)          ((lanes_f32){0} + (float)(c))
#define SYMM_BITS(f)       ((lanes_u32)(f))
#define SYMM_FLOAT(u)      ((lanes_f32)(u))
#define SYMM_LT(a, b)      u31_less(a, b)
#define SYMM_PICK(m, a, b) u32_pick(m, a, b)
#define SYMM_LEAST(a, b)   u31_least(a, b)
#define SYMM_MOST(a, b)    u31_most(a, b)
#include "types.inl"

/* Zero-extends; narrowing takes values that fit (u16) or keeps the low byte (u8). */
#if SYMM_ISA_AVX512
INLINE lanes_u32 u16_widen(raw_half v) {
    return (lanes_u32)_mm512_cvtepu16_epi32((__m256i)v);
}
INLINE lanes_u32 u8_widen(raw_quarter v) {
    return (lanes_u32)_mm512_cvtepu8_epi32((__m128i)v);
}
INLINE lanes_i32 i8_widen(raw_quarter v) {
    return (lanes_i32)_mm512_cvtepi8_epi32((__m128i)v);
}
INLINE raw_half u16_narrow(lanes_u32 v) {
    return (raw_half)_mm512_cvtepi32_epi16((__m512i)v);
}
INLINE raw_quarter u8_narrow(lanes_u32 v) {
    return (raw_quarter)_mm512_cvtepi32_epi8((__m512i)v);
}
#elif SYMM_ISA_AVX2
INLINE __m128i eight_bytes(raw_quarter v) {
    return _mm_cvtsi64_si128((long long)v);
}
INLINE lanes_u32 u16_widen(raw_half v) {
    return (lanes_u32)_mm256_cvtepu16_epi32((__m128i)v);
}
INLINE lanes_u32 u8_widen(raw_quarter v) {
    return (lanes_u32)_mm256_cvtepu8_epi32(eight_bytes(v));
}
INLINE lanes_i32 i8_widen(raw_quarter v) {
    return (lanes_i32)_mm256_cvtepi8_epi32(eight_bytes(v));
}
INLINE raw_half u16_narrow(lanes_u32 v) {
    __m256i packed = _mm256_packus_epi32((__m256i)v, (__m256i)v);
    return (raw_half)_mm256_castsi256_si128(_mm256_permute4x64_epi64(packed, 0x08));
}
INLINE raw_quarter u8_narrow(lanes_u32 v) {
    const __m256i low = _mm256_set1_epi32(0x0c080400);
    __m256i fours = _mm256_shuffle_epi8((__m256i)v, low);
    __m256i eight = _mm256_unpacklo_epi32(fours, _mm256_permute4x64_epi64(fours, 0x02));
    return (raw_quarter)_mm_cvtsi128_si64(_mm256_castsi256_si128(eight));
}
#elif defined(__x86_64__)
INLINE __m128i eight_bytes(raw_half v) {
    return _mm_cvtsi64_si128((long long)v);
}
INLINE __m128i four_bytes(raw_quarter v) {
    return _mm_cvtsi32_si128((int)v);
}
INLINE lanes_u32 u16_widen(raw_half v) {
    return (lanes_u32)_mm_unpacklo_epi16(eight_bytes(v), _mm_setzero_si128());
}
INLINE lanes_u32 u8_widen(raw_quarter v) {
    __m128i words = _mm_unpacklo_epi8(four_bytes(v), _mm_setzero_si128());
    return (lanes_u32)_mm_unpacklo_epi16(words, _mm_setzero_si128());
}
INLINE lanes_i32 i8_widen(raw_quarter v) {
    __m128i words = _mm_unpacklo_epi8(four_bytes(v), four_bytes(v));
    return (lanes_i32)_mm_unpacklo_epi16(words, words) >> 24;
}
INLINE raw_half u16_narrow(lanes_u32 v) { /* there is only a signed pack: sign-extend first */
    __m128i extended = (__m128i)((lanes_i32)(v << 16) >> 16);
    return (raw_half)_mm_cvtsi128_si64(_mm_packs_epi32(extended, extended));
}
INLINE raw_quarter u8_narrow(lanes_u32 v) {
    __m128i low = (__m128i)(v & 0xffu), words = _mm_packs_epi32(low, low);
    return (raw_quarter)_mm_cvtsi128_si32(_mm_packus_epi16(words, words));
}
#else
INLINE lanes_u32 u16_widen(raw_half v) {
    return __builtin_convertvector((half_u16)v, lanes_u32);
}
INLINE lanes_u32 u8_widen(raw_quarter v) {
    return __builtin_convertvector((quarter_u8)v, lanes_u32);
}
INLINE lanes_i32 i8_widen(raw_quarter v) {
    return __builtin_convertvector((quarter_i8)v, lanes_i32);
}
INLINE raw_half u16_narrow(lanes_u32 v) {
    return (raw_half) __builtin_convertvector(v, half_u16);
}
INLINE raw_quarter u8_narrow(lanes_u32 v) {
    return (raw_quarter) __builtin_convertvector(v, quarter_u8);
}
#endif

#define TYPE_AS_IS(type, lanes)              \
    INLINE lanes type##_decode(raw_full v) { \
        return (lanes)v;                     \
    }                                        \
    INLINE raw_full type##_encode(lanes v) { \
        return (raw_full)v;                  \
    }
TYPE_AS_IS(i8, lanes_u8)
TYPE_AS_IS(u8, lanes_u8)
TYPE_AS_IS(i32, lanes_u32)
TYPE_AS_IS(u32, lanes_u32)
TYPE_AS_IS(i64, lanes_u64)
TYPE_AS_IS(u64, lanes_u64)

INLINE lanes_f32 f32_decode(raw_full v) {
    return (lanes_f32)v;
}
INLINE raw_full f32_encode(lanes_f32 v) {
    return (raw_full)f32_canonical(v);
}
INLINE lanes_f64 f64_decode(raw_full v) {
    return (lanes_f64)v;
}
INLINE raw_full f64_encode(lanes_f64 v) {
    return (raw_full)f64_canonical(v);
}

INLINE raw_quarter e4m3_encode(lanes_f32 v) {
    return u8_narrow(lanes_e4m3_encode(v));
}
INLINE raw_quarter e5m2_encode(lanes_f32 v) {
    return u8_narrow(lanes_e5m2_encode(v));
}

/* bfloat16 comes in pairs: the even elements of a full vector and the odd ones are widened by a
 * shift and a mask where they stand, and put together again by a blend, with nothing to permute. */
typedef struct {
    lanes_f32 even, odd;
} lanes_pair;
INLINE lanes_pair pair_add(lanes_pair a, lanes_pair b) {
    return (lanes_pair){a.even + b.even, a.odd + b.odd};
}
INLINE lanes_pair pair_mul(lanes_pair a, lanes_pair b) {
    return (lanes_pair){a.even * b.even, a.odd * b.odd};
}
INLINE lanes_pair pair_max(lanes_pair acc, lanes_pair x) {
    return (lanes_pair){f32_max(acc.even, x.even), f32_max(acc.odd, x.odd)};
}
INLINE lanes_pair pair_min(lanes_pair acc, lanes_pair x) {
    return (lanes_pair){f32_min(acc.even, x.even), f32_min(acc.odd, x.odd)};
}
INLINE lanes_pair pair_divide(lanes_pair sum, int n, int shift) {
    return (lanes_pair){f32_divide(sum.even, n, shift), f32_divide(sum.odd, n, shift)};
}
INLINE lanes_pair bf16_decode(raw_full v) {
    return (lanes_pair){(lanes_f32)((lanes_u32)v << 16), (lanes_f32)((lanes_u32)v & 0xffff0000u)};
}
/* lanes_bf16_encode, but for the result's place: the high half of each lane. */
INLINE lanes_u32 bf16_round(lanes_f32 v) {
    lanes_u32 bits = (lanes_u32)v;
    lanes_f32 rounded = (lanes_f32)(bits + (((bits >> 16) & 1u) + 0x7fffu));
    return (lanes_u32)f32_pick(f32_nan(v), (lanes_f32)((lanes_u32){0} + 0x7fc00000u), rounded);
}
INLINE raw_full bf16_encode(lanes_pair v) {
    lanes_u32 even = bf16_round(v.even) >> 16, odd = bf16_round(v.odd);
#if SYMM_ISA_AVX512
    return (raw_full)_mm512_mask_blend_epi16(0xaaaaaaaau, (__m512i)even, (__m512i)odd);
#elif SYMM_ISA_AVX2
    return (raw_full)_mm256_blend_epi16((__m256i)even, (__m256i)odd, 0xaa);
#else
    return (raw_full)(even | (odd & 0xffff0000u));
#endif
}

/* Keeps clang from looking through a conversion: it would rather compare in float16, one element at
 * a time. */
INLINE lanes_f32 opaque(lanes_f32 v) {
#if defined(__clang__) && (SYMM_ISA_AVX2 || SYMM_ISA_AVX512)
    __asm__("" : "+v"(v));
#endif
    return v;
}

/* The conversion instructions keep a NaN's payload, hence f32_canonical first; float8 e5m2 is the
 * high byte of a float16, and e4m3 one whose exponent lacks 8. */
#if SYMM_ISA_AVX512
INLINE lanes_f32 f16_decode(raw_half v) {
    return opaque((lanes_f32)_mm512_cvtph_ps((__m256i)v));
}
INLINE raw_half f16_encode(lanes_f32 v) {
    return (raw_half)_mm512_cvtps_ph((__m512)f32_canonical(v),
                                     _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
INLINE lanes_f32 e5m2_decode(raw_quarter v) {
    return f16_decode((raw_half)_mm256_slli_epi16(_mm256_cvtepu8_epi16((__m128i)v), 8));
}
INLINE lanes_f32 e4m3_decode(raw_quarter v) {
    __m256i shifted = _mm256_slli_epi16(_mm256_cvtepi8_epi16((__m128i)v), 7);
    lanes_f32 value =
        f16_decode((raw_half)_mm256_and_si256(shifted, _mm256_set1_epi16((short)0xbfff))) * 256.0f;
    __m128i unsigned_code = _mm_or_si128((__m128i)v, _mm_set1_epi8((char)0x80));
    mask_32 nan = _mm_cmpeq_epi8_mask(unsigned_code, _mm_set1_epi8((char)0xff));
    return f32_pick(nan, (lanes_f32)((lanes_u32){0} + 0x7fc00000u), value);
}
#elif SYMM_ISA_AVX2
INLINE lanes_f32 f16_decode(raw_half v) {
    return opaque((lanes_f32)_mm256_cvtph_ps((__m128i)v));
}
INLINE raw_half f16_encode(lanes_f32 v) {
    return (raw_half)_mm256_cvtps_ph((__m256)f32_canonical(v),
                                     _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
INLINE lanes_f32 e5m2_decode(raw_quarter v) {
    return f16_decode((raw_half)_mm_slli_epi16(_mm_cvtepu8_epi16(eight_bytes(v)), 8));
}
INLINE lanes_f32 e4m3_decode(raw_quarter v) {
    __m128i shifted = _mm_slli_epi16(_mm_cvtepi8_epi16(eight_bytes(v)), 7);
    lanes_f32 value =
        f16_decode((raw_half)_mm_and_si128(shifted, _mm_set1_epi16((short)0xbfff))) * 256.0f;
    lanes_u32 magnitude = (lanes_u32)value & 0x7fffffffu;
    mask_32 nan = (mask_32)(magnitude == 0x43f00000u); /* 480, which the format has not got */
    return f32_pick(nan, (lanes_f32)((lanes_u32){0} + 0x7fc00000u), value);
}
#else
INLINE lanes_f32 f16_decode(raw_half v) {
    return lanes_f16_decode(u16_widen(v));
}
INLINE raw_half f16_encode(lanes_f32 v) {
    return u16_narrow(lanes_f16_encode(v));
}
INLINE lanes_f32 e5m2_decode(raw_quarter v) {
    return lanes_e5m2_decode(u8_widen(v));
}
INLINE lanes_f32 e4m3_decode(raw_quarter v) {
    return lanes_e4m3_decode(u8_widen(v));
}
#endif

/* The average of narrow integers: every sum is exact in the float type (n <= 2^16), and a quotient
 * that is not whole differs from the next whole number by more than half a unit, so that rounding
 * it never reaches that number before truncation. */
INLINE lanes_f32 i8avg_decode(raw_quarter v) {
    return __builtin_convertvector(i8_widen(v), lanes_f32);
}
INLINE lanes_f32 u8avg_decode(raw_quarter v) {
    return __builtin_convertvector((lanes_i32)u8_widen(v), lanes_f32);
}
INLINE raw_quarter i8avg_encode(lanes_f32 v) {
    return u8_narrow((lanes_u32) __builtin_convertvector(v, lanes_i32));
}
INLINE raw_quarter u8avg_encode(lanes_f32 v) {
    return i8avg_encode(v);
}
INLINE lanes_f64 i32avg_decode(raw_half v) {
    return __builtin_convertvector((half_i32)v, lanes_f64);
}
INLINE lanes_f64 u32avg_decode(raw_half v) {
    return __builtin_convertvector((half_u32)v, lanes_f64);
}
INLINE raw_half i32avg_encode(lanes_f64 v) {
    return (raw_half) __builtin_convertvector(v, half_i32);
}
INLINE raw_half u32avg_encode(lanes_f64 v) {
    return (raw_half) __builtin_convertvector(v, half_u32);
}

/* A scalar, in the low bytes of `bits`, in every lane. */
#define TYPE_SPLAT(type, lanes, elem, raw)                             \
    INLINE lanes type##_splat(uint64_t bits) {                         \
        typedef elem vector __attribute__((vector_size(sizeof(raw)))); \
        return type##_decode((raw)((vector){0} + (elem)bits));         \
    }
TYPE_SPLAT(i8, lanes_u8, uint8_t, raw_full)
TYPE_SPLAT(u8, lanes_u8, uint8_t, raw_full)
TYPE_SPLAT(i32, lanes_u32, uint32_t, raw_full)
TYPE_SPLAT(u32, lanes_u32, uint32_t, raw_full)
TYPE_SPLAT(i64, lanes_u64, uint64_t, raw_full)
TYPE_SPLAT(u64, lanes_u64, uint64_t, raw_full)
TYPE_SPLAT(f32, lanes_f32, uint32_t, raw_full)
TYPE_SPLAT(f64, lanes_f64, uint64_t, raw_full)
TYPE_SPLAT(f16, lanes_f32, uint16_t, raw_half)
TYPE_SPLAT(bf16, lanes_pair, uint16_t, raw_full)
TYPE_SPLAT(e4m3, lanes_f32, uint8_t, raw_quarter)
TYPE_SPLAT(e5m2, lanes_f32, uint8_t, raw_quarter)
