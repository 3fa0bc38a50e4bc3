/* types.inl - the element formats float16, bfloat16, float8 e4m3 and float8 e5m2 to and from
 * float32. Pure, any thread, no lock.
 *
 * The text is in the subset that C and CUDA share and has no branches, so that the same lines serve
 * one value and a vector of them. Included as it is, it works on single values:
 *
 *   float    symm_f16_decode(uint32_t code)     code in the low 16 (or 8) bits, the others zero
 *   uint32_t symm_f16_encode(float value)       the same for bf16, e4m3, e5m2
 *
 * An includer that has wider lanes defines all of these first (they are undefined again at the
 * end):
 *   SYMM_FN                  how a function is declared
 *   SYMM_LANE(name)          the name of a function
 *   SYMM_U32, SYMM_F32       one or more lanes of uint32_t, of float
 *   SYMM_U(c), SYMM_F(c)     a constant in every lane
 *   SYMM_BITS(f), SYMM_FLOAT(u)     the bits of float lanes, and back
 *   SYMM_LT(a, b)            in which lanes a < b; all values compared are under 2^31, so that a
 *                            signed comparison serves
 *   SYMM_PICK(m, a, b)       a where m holds, else b
 *   SYMM_LEAST(a, b), SYMM_MOST(a, b)      the lesser, the greater; where a is a NaN's bits, LEAST
 *                            may give b
 *
 * Rounding is to nearest, ties to even, and relies on the processor's rounding mode being that too;
 * whether it flushes subnormals makes no difference. A NaN decodes to some NaN and encodes to the
 * canonical one of its format; float8 saturates; float16 and bfloat16 overflow to infinity. */

#ifndef SYMM_LANE
#define SYMM_LANE(name)    symm_##name
#define SYMM_U32           uint32_t
#define SYMM_F32           float
#define SYMM_U(c)          ((uint32_t)(c))
#define SYMM_F(c)          (c)
#define SYMM_LT(a, b)      ((a) < (b))
#define SYMM_PICK(m, a, b) ((m) ? (a) : (b))
#define SYMM_LEAST(a, b)   ((a) < (b) ? (a) : (b))
#define SYMM_MOST(a, b)    ((a) > (b) ? (a) : (b))
#ifdef __CUDACC__
#ifndef SYMM_FN
#define SYMM_FN static __device__ __forceinline__
#endif
#define SYMM_BITS(f)  __float_as_uint(f)
#define SYMM_FLOAT(u) __uint_as_float(u)
#else
#ifndef SYMM_FN
#define SYMM_FN static inline __attribute__((unused))
#endif
SYMM_FN uint32_t symm_float_bits(float f) {
    union {
        float f;
        uint32_t u;
    } pun;
    pun.f = f;
    return pun.u;
}
SYMM_FN float symm_bits_float(uint32_t u) {
    union {
        uint32_t u;
        float f;
    } pun;
    pun.u = u;
    return pun.f;
}
#define SYMM_BITS(f)  symm_float_bits(f)
#define SYMM_FLOAT(u) symm_bits_float(u)
#endif
#endif

/* ---- decoding -------------------------------------------------------------------------------- */

SYMM_FN SYMM_F32 SYMM_LANE(bf16_decode)(SYMM_U32 code) {
    return SYMM_FLOAT(code << 16);
}

/* A format with 5 exponent bits, bias 15, whose magnitude was shifted so that its exponent field
 * stands where float32 has its own. Subnormals get an exponent and lose the implicit one that it
 * brought by an exact subtraction. */
SYMM_FN SYMM_F32 SYMM_LANE(half_decode)(SYMM_U32 magnitude, SYMM_U32 sign) {
    SYMM_U32 normal = magnitude + (112u << 23);
    SYMM_U32 tiny =
        SYMM_BITS(SYMM_FLOAT(magnitude + (113u << 23)) - SYMM_F(6.103515625e-05f)); /* 2^-14 */
    SYMM_U32 value = SYMM_PICK(SYMM_LT(magnitude, SYMM_U(1u << 23)), tiny, normal);
    SYMM_U32 special = magnitude + (224u << 23); /* infinity, or NaN with what payload it has */
    value = SYMM_PICK(SYMM_LT(magnitude, SYMM_U(31u << 23)), value, special);
    return SYMM_FLOAT(value | sign);
}

SYMM_FN SYMM_F32 SYMM_LANE(f16_decode)(SYMM_U32 code) {
    return SYMM_LANE(half_decode)((code & 0x7fffu) << 13, (code & 0x8000u) << 16);
}

SYMM_FN SYMM_F32 SYMM_LANE(e5m2_decode)(SYMM_U32 code) {
    return SYMM_LANE(half_decode)((code & 0x7fu) << 21, (code & 0x80u) << 24);
}

SYMM_FN SYMM_F32 SYMM_LANE(e4m3_decode)(SYMM_U32 code) {
    SYMM_U32 magnitude = (code & 0x7fu) << 20, sign = (code & 0x80u) << 24;
    SYMM_U32 normal = magnitude + (120u << 23);
    SYMM_U32 tiny = SYMM_BITS(SYMM_FLOAT(magnitude + (121u << 23)) - SYMM_F(0.015625f)); /* 2^-6 */
    SYMM_U32 value = SYMM_PICK(SYMM_LT(magnitude, SYMM_U(1u << 23)), tiny, normal) | sign;
    SYMM_U32 nan = SYMM_U(0x7fc00000u);
    return SYMM_FLOAT(SYMM_PICK(SYMM_LT(SYMM_U(0x7eu << 20), magnitude), nan, value));
}

/* ---- encoding -------------------------------------------------------------------------------- */

SYMM_FN SYMM_U32 SYMM_LANE(bf16_encode)(SYMM_F32 value) {
    SYMM_U32 bits = SYMM_BITS(value);
    SYMM_U32 rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    SYMM_U32 nan = SYMM_U(0x7fc0u);
    return SYMM_PICK(SYMM_LT(SYMM_U(0x7f800000u), bits & 0x7fffffffu), nan, rounded);
}

/* Any narrower format: `mantissa` bits of it, `lowest` the float32 exponent field of its smallest
 * normal number, `most` the float32 at and beyond which every value gets the same code, `nan` its
 * NaN, `top` where the sign goes. Adding the power of two whose unit is the format's unit at this
 * magnitude makes float32 addition do the rounding: what it leaves in the low bits counts those
 * units. Below the normal numbers the unit stays what it is at `lowest`. A carry into the next
 * exponent needs no care, because codes are ordered as values are. */
SYMM_FN SYMM_U32 SYMM_LANE(narrow_encode)(SYMM_F32 value, int mantissa, uint32_t lowest,
                                          uint32_t most, uint32_t nan, int top) {
    const int drop = 23 - mantissa;
    SYMM_U32 bits = SYMM_BITS(value), magnitude = bits & 0x7fffffffu;
    SYMM_U32 sign = (bits ^ magnitude) >> (31 - top), not_a_number = SYMM_U(nan);
    SYMM_U32 bounded = SYMM_LEAST(magnitude, SYMM_U(most));
    SYMM_U32 exponent = SYMM_MOST(bounded & 0x7f800000u, SYMM_U(lowest << 23));
    SYMM_U32 rounder = exponent + ((uint32_t)drop << 23);
    SYMM_U32 units = SYMM_BITS(SYMM_FLOAT(bounded) + SYMM_FLOAT(rounder)) - rounder;
    SYMM_U32 code = units + ((exponent >> drop) - (lowest << mantissa));
    return SYMM_PICK(SYMM_LT(SYMM_U(0x7f800000u), magnitude), not_a_number, code | sign);
}

SYMM_FN SYMM_U32 SYMM_LANE(f16_encode)(SYMM_F32 value) {
    return SYMM_LANE(narrow_encode)(value, 10, 113u, 0x47800000u /* 65536 */, 0x7e00u, 15);
}

SYMM_FN SYMM_U32 SYMM_LANE(e4m3_encode)(SYMM_F32 value) {
    return SYMM_LANE(narrow_encode)(value, 3, 121u, 0x43e00000u /* 448 */, 0x7fu, 7);
}

SYMM_FN SYMM_U32 SYMM_LANE(e5m2_encode)(SYMM_F32 value) {
    return SYMM_LANE(narrow_encode)(value, 2, 113u, 0x47600000u /* 57344 */, 0x7fu, 7);
}

#undef SYMM_FN
#undef SYMM_LANE
#undef SYMM_U32
#undef SYMM_F32
#undef SYMM_U
#undef SYMM_F
#undef SYMM_BITS
#undef SYMM_FLOAT
#undef SYMM_LT
#undef SYMM_PICK
#undef SYMM_LEAST
#undef SYMM_MOST
