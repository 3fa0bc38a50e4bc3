/* elem.cuh - the 12 element types on a GPU: words of memory to accumulators and back, with the bits
 * that symm.h promises and the host computes. Pure.
 *
 *   elem<T>::BYTES, acc          accumulator: float for the narrow floats, 32 bits for integers
 *                                of 8 (whose low bits are those of any narrower sum or product)
 *   elem<T>::get(w, i)           element i of the words w
 *   elem<T>::set(w, i, v)        its bits or-ed into words that were 0
 *   elem<T>::scalar(bits)        a scalar of premulsum */
#ifndef SYMM_CUDA_ELEM_CUH_
#define SYMM_CUDA_ELEM_CUH_

#include "dev.cuh"

enum {
    SYMM_OP_SUM = 0,
    SYMM_OP_PROD = 1,
    SYMM_OP_MAX = 2,
    SYMM_OP_MIN = 3,
    SYMM_OP_AVG = 4,
    SYMM_OP_PREMUL = 5
};

#include "../common/types.inl"

/* ---- arithmetic: each step rounded, nothing fused (and the build says -fmad=false) ----------- */

DEV float add(float a, float b) {
    return __fadd_rn(a, b);
}
DEV double add(double a, double b) {
    return __dadd_rn(a, b);
}
DEV float mul(float a, float b) {
    return __fmul_rn(a, b);
}
DEV double mul(double a, double b) {
    return __dmul_rn(a, b);
}
DEV float over(float a, int n) {
    return __fdiv_rn(a, (float)n);
}
DEV double over(double a, int n) {
    return __ddiv_rn(a, (double)n);
}
/* Signed where the element is, modulo 2^bits all the same. */
DEV int64_t add(int64_t a, int64_t b) {
    return (int64_t)((uint64_t)a + (uint64_t)b);
}
DEV uint64_t add(uint64_t a, uint64_t b) {
    return a + b;
}
DEV int64_t mul(int64_t a, int64_t b) {
    return (int64_t)((uint64_t)a * (uint64_t)b);
}
DEV uint64_t mul(uint64_t a, uint64_t b) {
    return a * b;
}
DEV int32_t add(int32_t a, int32_t b) {
    return (int32_t)((uint32_t)a + (uint32_t)b);
}
DEV uint32_t add(uint32_t a, uint32_t b) {
    return a + b;
}
DEV int32_t mul(int32_t a, int32_t b) {
    return (int32_t)((uint32_t)a * (uint32_t)b);
}
DEV uint32_t mul(uint32_t a, uint32_t b) {
    return a * b;
}
DEV int32_t over(int32_t a, int n) {
    return a / n;
}
DEV uint32_t over(uint32_t a, int n) {
    return a / (unsigned)n;
}
DEV int64_t over(int64_t a, int n) {
    return a / n;
}
DEV uint64_t over(uint64_t a, int n) {
    return a / (unsigned)n;
}
/* acc is the lower rank's; NaN propagates, of equal zeros acc's stays. */
template <typename A> DEV A more(A acc, A x) {
    return acc < x || x != x ? x : acc;
}
template <typename A> DEV A less(A acc, A x) {
    return x < acc || x != x ? x : acc;
}

/* ---- types ----------------------------------------------------------------------------------- */

template <int T> struct elem;

template <typename S, typename A> struct elem_int {
    typedef A acc;
    static const int BYTES = sizeof(S);
    DEV A get(const uint32_t *w, int i) {
        if (sizeof(S) == 8) return (A)(S)((uint64_t)w[2 * i + 1] << 32 | w[2 * i]);
        const int per = 4 / (int)(sizeof(S) < 4 ? sizeof(S) : 4);
        return (A)(S)(w[i / per] >> (i % per * 8 * (int)sizeof(S) % 32));
    }
    DEV void set(uint32_t *w, int i, A v) {
        if (sizeof(S) == 8) {
            w[2 * i] = (uint32_t)(uint64_t)v;
            w[2 * i + 1] = (uint32_t)((uint64_t)v >> 32);
            return;
        }
        const int per = 4 / (int)(sizeof(S) < 4 ? sizeof(S) : 4);
        const uint32_t mask = sizeof(S) == 4 ? ~0u : (1u << (8 * sizeof(S) % 32)) - 1u;
        w[i / per] |= ((uint32_t)(uint64_t)v & mask) << (i % per * 8 * (int)sizeof(S) % 32);
    }
    DEV A scalar(uint64_t bits) { return (A)(S)bits; }
};
template <> struct elem<symmInt8> : elem_int<int8_t, int32_t> {};
template <> struct elem<symmUint8> : elem_int<uint8_t, uint32_t> {};
template <> struct elem<symmInt32> : elem_int<int32_t, int32_t> {};
template <> struct elem<symmUint32> : elem_int<uint32_t, uint32_t> {};
template <> struct elem<symmInt64> : elem_int<int64_t, int64_t> {};
template <> struct elem<symmUint64> : elem_int<uint64_t, uint64_t> {};

template <> struct elem<symmFloat32> {
    typedef float acc;
    static const int BYTES = 4;
    DEV float get(const uint32_t *w, int i) { return __uint_as_float(w[i]); }
    DEV void set(uint32_t *w, int i, float v) { w[i] = v != v ? 0x7fc00000u : __float_as_uint(v); }
    DEV float scalar(uint64_t bits) { return __uint_as_float((uint32_t)bits); }
};

template <> struct elem<symmFloat64> {
    typedef double acc;
    static const int BYTES = 8;
    DEV double get(const uint32_t *w, int i) {
        return __hiloint2double((int)w[2 * i + 1], (int)w[2 * i]);
    }
    DEV void set(uint32_t *w, int i, double v) {
        w[2 * i] = v != v ? 0u : (uint32_t)__double2loint(v);
        w[2 * i + 1] = v != v ? 0x7ff80000u : (uint32_t)__double2hiint(v);
    }
    DEV double scalar(uint64_t bits) { return __longlong_as_double((long long)bits); }
};

#ifdef __CUDACC__
/* Hardware conversions where they give the same bits: only the canonical NaN of theirs differs from
 * ours. */
DEV float half_to_float(uint32_t code) {
    float f;
    asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"((unsigned short)code));
    return f;
}
DEV uint32_t float_to_half(float v) {
    unsigned short h;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(v));
    return v != v ? 0x7e00u : h;
}
DEV uint32_t float_to_bf16(float v) {
    unsigned short h;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(h) : "f"(v));
    return v != v ? 0x7fc0u : h;
}
#else
#define half_to_float symm_f16_decode
#define float_to_half symm_f16_encode
#define float_to_bf16 symm_bf16_encode
#endif

template <> struct elem<symmFloat16> {
    typedef float acc;
    static const int BYTES = 2;
    DEV float get(const uint32_t *w, int i) {
        return half_to_float(w[i / 2] >> (i % 2 * 16) & 0xffffu);
    }
    DEV void set(uint32_t *w, int i, float v) { w[i / 2] |= float_to_half(v) << (i % 2 * 16); }
    DEV float scalar(uint64_t bits) { return half_to_float((uint32_t)bits & 0xffffu); }
};

template <> struct elem<symmBfloat16> {
    typedef float acc;
    static const int BYTES = 2;
    DEV float get(const uint32_t *w, int i) {
        return __uint_as_float(i % 2 ? w[i / 2] & 0xffff0000u : w[i / 2] << 16);
    }
    DEV void set(uint32_t *w, int i, float v) { w[i / 2] |= float_to_bf16(v) << (i % 2 * 16); }
    DEV float scalar(uint64_t bits) { return symm_bf16_decode((uint32_t)bits & 0xffffu); }
};

/* float8 by way of float16, which holds all of both formats: two codes and two halves at a time.
 * Older GPUs calculate. */
#if __CUDA_ARCH__ >= 890
#define FP8_FORMAT(NAME, PTX)                                                                 \
    struct fp8_##NAME {                                                                       \
        DEV float decode(uint32_t pair, int upper) {                                          \
            uint32_t halves;                                                                  \
            asm("cvt.rn.f16x2." PTX " %0, %1;" : "=r"(halves) : "h"((unsigned short)pair));   \
            return half_to_float(upper ? halves >> 16 : halves & 0xffffu);                    \
        }                                                                                     \
        DEV uint32_t encode(float v) {                                                        \
            unsigned short pair;                                                              \
            asm("cvt.rn.satfinite." PTX ".f32 %0, %1, %2;" : "=h"(pair) : "f"(0.0f), "f"(v)); \
            return v != v ? 0x7fu : pair & 0xffu;                                             \
        }                                                                                     \
    }
#else
#define FP8_FORMAT(NAME, PTX)                                                \
    struct fp8_##NAME {                                                      \
        DEV float decode(uint32_t pair, int upper) {                         \
            return symm_##NAME##_decode((upper ? pair >> 8 : pair) & 0xffu); \
        }                                                                    \
        DEV uint32_t encode(float v) { return symm_##NAME##_encode(v); }     \
    }
#endif
FP8_FORMAT(e4m3, "e4m3x2");
FP8_FORMAT(e5m2, "e5m2x2");

template <class F> struct elem_fp8 {
    typedef float acc;
    static const int BYTES = 1;
    DEV float get(const uint32_t *w, int i) {
        return F::decode(w[i / 4] >> (i % 4 / 2 * 16) & 0xffffu, i % 2);
    }
    DEV void set(uint32_t *w, int i, float v) { w[i / 4] |= F::encode(v) << (i % 4 * 8); }
    DEV float scalar(uint64_t bits) { return F::decode((uint32_t)bits & 0xffu, 0); }
};
template <> struct elem<symmFloat8e4m3> : elem_fp8<fp8_e4m3> {};
template <> struct elem<symmFloat8e5m2> : elem_fp8<fp8_e5m2> {};

/* ---- one reduction of WORDS words, rank after rank ------------------------------------------- */

/* Where the reduction is chosen at run time. A sum is chosen at compile time: its path through a
 * kernel is short, and what is not fetched cannot be late. */
#define ANY_OP (-1)
/* Calls `body` with a value whose OP is a constant: the sum where that has a way of its own through
 * a kernel (APART), else ANY_OP. */
template <int REDUCTION> struct op_of { static constexpr int OP = REDUCTION; };
template <int APART, class BODY> DEV void by_op(int op, BODY body) {
    constexpr int sum = APART ? SYMM_OP_SUM : ANY_OP;
    if (APART && op == SYMM_OP_SUM)
        body(op_of<sum>());
    else
        body(op_of<ANY_OP>());
}
/* Types whose sums get kernels of their own. */
#define HOT(T) ((T) == symmFloat32 || (T) == symmFloat16 || (T) == symmBfloat16)

/* What the element type holds of a sum: an average divides that. */
template <int T, typename A> DEV A held(A sum) {
    return T == symmInt8 ? (A)(int8_t)(int)sum : T == symmUint8 ? (A)(uint8_t)(int)sum : sum;
}

template <int T, int WORDS, int OP> struct reduction {
    typedef typename elem<T>::acc acc;
    static const int N = WORDS * 4 / elem<T>::BYTES;
    acc a[N];

    /* The lowest rank's. */
    __device__ __forceinline__ void first(int op, const uint32_t *w, acc scale) {
#pragma unroll
        for (int i = 0; i < N; i++) {
            a[i] = elem<T>::get(w, i);
            if (OP == ANY_OP && op == SYMM_OP_PREMUL) a[i] = mul(a[i], scale);
        }
    }
    __device__ __forceinline__ void step(int op, const uint32_t *w, acc scale) {
        switch (OP == ANY_OP ? op : OP) { /* the same for every thread of the grid */
        case SYMM_OP_PROD:
#pragma unroll
            for (int i = 0; i < N; i++) a[i] = mul(a[i], elem<T>::get(w, i));
            break;
        case SYMM_OP_MAX:
#pragma unroll
            for (int i = 0; i < N; i++) a[i] = more(a[i], elem<T>::get(w, i));
            break;
        case SYMM_OP_MIN:
#pragma unroll
            for (int i = 0; i < N; i++) a[i] = less(a[i], elem<T>::get(w, i));
            break;
        case SYMM_OP_PREMUL:
#pragma unroll
            for (int i = 0; i < N; i++) a[i] = add(a[i], mul(elem<T>::get(w, i), scale));
            break;
        default:
#pragma unroll
            for (int i = 0; i < N; i++) a[i] = add(a[i], elem<T>::get(w, i));
        }
    }
    __device__ __forceinline__ void last(int op, int n, uint32_t (&w)[WORDS]) {
#pragma unroll
        for (int i = 0; i < WORDS; i++) w[i] = 0;
        if (OP == ANY_OP && op == SYMM_OP_AVG) {
#pragma unroll
            for (int i = 0; i < N; i++) a[i] = over(held<T>(a[i]), n);
        }
#pragma unroll
        for (int i = 0; i < N; i++) elem<T>::set(w, i, a[i]);
    }
};

#endif
