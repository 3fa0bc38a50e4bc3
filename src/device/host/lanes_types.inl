/* lanes_types.inl - element types for the host build of the reductions: raw memory to lanes and
 * back, <type>_decode and <type>_encode, for every type of symm.h. The third layer of lanes.inl,
 * which stands before it in reduce_host.c. Pure, any thread, no lock. */

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
#include "device/common/types.inl"

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
/* What the type holds of a sum. */
INLINE lanes_f32 i8avg_wrap(lanes_f32 sum) {
    const lanes_u32 whole = (lanes_u32) __builtin_convertvector(sum, lanes_i32);
    return __builtin_convertvector((lanes_i32)(whole << 24) >> 24, lanes_f32);
}
INLINE lanes_f32 u8avg_wrap(lanes_f32 sum) {
    return __builtin_convertvector(__builtin_convertvector(sum, lanes_i32) & 255, lanes_f32);
}
/* A sum of less than 2^51 beside 3 * 2^51 stands in the low bits, in two's complement. */
INLINE half_u32 low_32(lanes_f64 sum) {
    return __builtin_convertvector((lanes_u64)(sum + 0x1.8p52), half_u32);
}
INLINE lanes_f64 i32avg_wrap(lanes_f64 sum) {
    return __builtin_convertvector((half_i32)low_32(sum), lanes_f64);
}
INLINE lanes_f64 u32avg_wrap(lanes_f64 sum) {
    return __builtin_convertvector(low_32(sum), lanes_f64);
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
