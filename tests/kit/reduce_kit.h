/* reduce_kit.h - the slow reference of unit_reduce.c and its inputs. Formats are decoded with ldexp
 * and encoded by search for the nearest value; float32 is computed in double and rounded once,
 * float64 in 113 bits and rounded once. It shares no code with src/device. One thread; no lock. */
#ifndef REDUCE_KIT_H_
#define REDUCE_KIT_H_

#include <float.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "device/host/reduce.h"
#include "symm.h"

/* What there is to know of a format. mantissa 0: an integer. */
typedef struct {
    const char *name;
    int bytes, is_signed, exponent, mantissa, has_inf;
    uint64_t nan;
} format;

static const format formats[symmNumTypes] = {
    [symmInt8] = {"int8", 1, 1, 0, 0, 0, 0},
    [symmUint8] = {"uint8", 1, 0, 0, 0, 0, 0},
    [symmInt32] = {"int32", 4, 1, 0, 0, 0, 0},
    [symmUint32] = {"uint32", 4, 0, 0, 0, 0, 0},
    [symmInt64] = {"int64", 8, 1, 0, 0, 0, 0},
    [symmUint64] = {"uint64", 8, 0, 0, 0, 0, 0},
    [symmFloat16] = {"float16", 2, 1, 5, 10, 1, 0x7e00},
    [symmFloat32] = {"float32", 4, 1, 8, 23, 1, 0x7fc00000},
    [symmFloat64] = {"float64", 8, 1, 11, 52, 1, 0x7ff8000000000000},
    [symmBfloat16] = {"bfloat16", 2, 1, 8, 7, 1, 0x7fc0},
    [symmFloat8e4m3] = {"e4m3", 1, 1, 4, 3, 0, 0x7f},
    [symmFloat8e5m2] = {"e5m2", 1, 1, 5, 2, 1, 0x7f},
};

static inline uint64_t random_bits(void) { /* splitmix64: the same sequence in every run */
    static uint64_t state;
    uint64_t z = (state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static uint64_t low_bits(uint64_t v, int bytes) {
    return bytes == 8 ? v : v & ((1ull << 8 * bytes) - 1);
}
static uint64_t get(const void *p, int bytes) {
    uint64_t v = 0;
    memcpy(&v, p, (size_t)bytes);
    return v;
}
static float float_of(uint64_t bits) {
    uint32_t low = (uint32_t)bits;
    float f;
    memcpy(&f, &low, 4);
    return f;
}
static double double_of(uint64_t bits) {
    double d;
    memcpy(&d, &bits, 8);
    return d;
}
static uint32_t bits_of(float f) {
    return (uint32_t)get(&f, 4);
}

/* ---- the reference: formats ---- */

/* Of a code without its sign; infinity too reads as the number that would follow the largest one.
 */
static double magnitude_of(const format *f, uint64_t code) {
    const int bias = (1 << (f->exponent - 1)) - 1;
    int exponent = (int)(code >> f->mantissa);
    uint64_t fraction = code & ((1ull << f->mantissa) - 1);
    if (exponent == 0)
        exponent = 1;
    else
        fraction |= 1ull << f->mantissa;
    return ldexp((double)fraction, exponent - bias - f->mantissa);
}

/* The largest code of a finite number. */
static uint64_t largest(const format *f) {
    const uint64_t all = (1ull << (f->exponent + f->mantissa)) - 1;
    return f->has_inf ? all - (1ull << f->mantissa) : all - 1;
}

static double decode(const format *f, uint64_t code) {
    const uint64_t sign = 1ull << (8 * f->bytes - 1), magnitude = code & (sign - 1);
    double v;
    if (magnitude <= largest(f))
        v = magnitude_of(f, magnitude);
    else if (f->has_inf && magnitude == largest(f) + 1)
        v = INFINITY;
    else
        return NAN;
    return code & sign ? -v : v;
}

/* The format's nearest value to a float32, by halving the range of codes. */
static uint64_t encode(const format *f, double v) {
    const uint64_t sign = signbit(v) ? 1ull << (8 * f->bytes - 1) : 0, saturated = largest(f);
    const int saturates = f->bytes == 1;
    double m = fabs(v);
    uint64_t low = 0, high = saturated + 1;
    if (isnan(v)) return f->nan;
    if (m >= magnitude_of(f, high)) return sign | (saturates ? saturated : high);
    while (high - low > 1) {
        uint64_t middle = (low + high) / 2;
        if (magnitude_of(f, middle) <= m)
            low = middle;
        else
            high = middle;
    }
    double below = m - magnitude_of(f, low), above = magnitude_of(f, high) - m; /* both exact */
    uint64_t code = below < above || (below == above && low % 2 == 0) ? low : high;
    return sign | (saturates && code > saturated ? saturated : code);
}

/* ---- the reference: arithmetic ---- */

#if defined(__SIZEOF_FLOAT128__)
typedef __float128 wide;
#elif LDBL_MANT_DIG == 113
typedef long double wide;
#else
typedef double wide;
#endif

/* Rounded first to twice the precision and more, then to the type: the same as rounding once. */
static double apply(int is_double, char op, double a, double b) {
    if (is_double) {
        wide x = a, y = b;
        return (double)(op == '+' ? x + y : op == '*' ? x * y : x / y);
    }
    return (float)(op == '+' ? a + b : op == '*' ? a * b : a / b);
}

static double choose(int op, double acc, double x) {
    if (isnan(acc) || isnan(x)) return NAN;
    return (op == SYMM_OP_MAX ? x > acc : x < acc) ? x : acc;
}

static double value_of(const format *f, uint64_t bits) {
    return f->bytes == 8   ? double_of(bits)
           : f->bytes == 4 ? (double)float_of(bits)
                           : decode(f, bits);
}

static uint64_t float_reference(const format *f, int op, int n, const uint64_t *x,
                                const uint64_t *scalars) {
    const int is_double = f->bytes == 8;
    double acc = 0;
    for (int r = 0; r < n; r++) {
        double v = value_of(f, x[r]);
        if (op == SYMM_OP_PREMUL) v = apply(is_double, '*', v, value_of(f, scalars[r]));
        if (r == 0)
            acc = v;
        else if (op == SYMM_OP_PROD)
            acc = apply(is_double, '*', acc, v);
        else if (op == SYMM_OP_MAX || op == SYMM_OP_MIN)
            acc = choose(op, acc, v);
        else
            acc = apply(is_double, '+', acc, v);
    }
    if (op == SYMM_OP_AVG) acc = apply(is_double, '/', acc, n);
    if (f->bytes < 4) return encode(f, acc);
    if (isnan(acc)) return f->nan;
    return is_double ? get(&acc, 8) : bits_of((float)acc);
}

static uint64_t extend(const format *f, uint64_t v) {
    const int shift = 64 - 8 * f->bytes;
    return f->is_signed ? (uint64_t)((int64_t)(v << shift) >> shift) : v;
}

static uint64_t int_reference(const format *f, int op, int n, const uint64_t *x,
                              const uint64_t *scalars) {
    uint64_t acc = 0;
    for (int r = 0; r < n; r++) {
        uint64_t v = extend(f, x[r]);
        if (op == SYMM_OP_PREMUL) v *= scalars[r];
        int less = f->is_signed ? (int64_t)v < (int64_t)acc : v < acc;
        if (r == 0)
            acc = v;
        else if (op == SYMM_OP_PROD)
            acc *= v;
        else if (op == SYMM_OP_MAX)
            acc = less ? acc : v;
        else if (op == SYMM_OP_MIN)
            acc = less ? v : acc;
        else
            acc += v;
    }
    acc = extend(f, low_bits(acc, f->bytes));
    if (op == SYMM_OP_AVG) acc = f->is_signed ? (uint64_t)((int64_t)acc / n) : acc / (uint64_t)n;
    return low_bits(acc, f->bytes);
}

static uint64_t reference(int type, int op, int n, const uint64_t *x, const uint64_t *scalars) {
    const format *f = &formats[type];
    return f->mantissa ? float_reference(f, op, n, x, scalars)
                       : int_reference(f, op, n, x, scalars);
}

/* ---- inputs ---- */

static uint64_t special(const format *f) {
    const int bits = 8 * f->bytes;
    const uint64_t sign = random_bits() % 2 << (bits - 1),
                   unit = f->mantissa ? 1ull << f->mantissa : 1;
    const uint64_t top = (1ull << (bits - 1)) - 1;
    switch (random_bits() % 10) {
    case 0: return sign;
    case 1: return sign | 1;
    case 2: return sign | (unit - 1);
    case 3: return sign | unit;
    case 4: return f->mantissa ? sign | largest(f) : sign | top;
    case 5: return f->mantissa ? sign | (largest(f) + 1) : sign | (top - 1);
    case 6:
        return f->mantissa ? sign | (largest(f) + 2)
                           : low_bits(~0ull, f->bytes); /* often a signalling NaN */
    case 7: return sign | top;
    default:
        return f->mantissa ? sign | unit * (uint64_t)((1 << (f->exponent - 1)) - 1)
                           : sign | 2; /* 1.0 */
    }
}

/* A value of about the size 2^power. */
static uint64_t about(const format *f, int power) {
    uint64_t v = random_bits();
    if (!f->mantissa) return low_bits(v % 7 ? v % 100 : 0 - v % 100, f->bytes);
    int exponent = (1 << (f->exponent - 1)) - 1 + power;
    uint64_t sign = v >> 63 << (8 * f->bytes - 1);
    return sign | (uint64_t)exponent << f->mantissa | (v & ((1ull << f->mantissa) - 1));
}

/* All ranks' elements of one place are of one kind, so that rounding, cancelling, overflow and NaN
 * all come about. */
static uint64_t element(const format *f, int kind) {
    switch (kind % 8) {
    case 0: return low_bits(random_bits(), f->bytes);
    case 1: return special(f);
    case 2: return about(f, f->mantissa ? (1 << (f->exponent - 1)) - 2 : 0); /* overflows */
    case 3:
        return f->mantissa ? random_bits() & ((1ull << f->mantissa) - 1)
                           : about(f, 0); /* subnormal */
    case 4: return about(f, (int)(random_bits() % 5) - 2);
    default: return about(f, 0);
    }
}

#endif
