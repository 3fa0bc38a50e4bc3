/* unit_reduce.c - the arithmetic of symm.h's "Numbers", bit for bit, on every instruction set that this machine has, against
 * a slow reference that shares no code with it: formats are decoded with ldexp and encoded by search for the nearest value,
 * float32 is computed in double and rounded once, float64 in 113 bits and rounded once. One thread per test but where a test
 * says otherwise; no lock. */
#include "t.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

#include "../src/device/reduce.h"
#include "../src/device/types.inl"

enum { MOST = 4099, MOST_RANKS = 72, PAD = 192, NUM_ISAS = 3 };

static const char *const isas[NUM_ISAS] = {"base", "avx2", "avx512"};
static const char *const op_names[] = {"sum", "prod", "max", "min", "avg", "premul"};

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

static uint64_t random_bits(void) { /* splitmix64: the same sequence in every run */
    static uint64_t state;
    uint64_t z = (state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static uint64_t low_bits(uint64_t v, int bytes) { return bytes == 8 ? v : v & ((1ull << 8 * bytes) - 1); }
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
static uint32_t bits_of(float f) { return (uint32_t)get(&f, 4); }

/* ---- the reference: formats ---- */

/* Of a code without its sign; infinity too reads as the number that would follow the largest one. */
static double magnitude_of(const format *f, uint64_t code) {
    const int bias = (1 << (f->exponent - 1)) - 1;
    int exponent = (int)(code >> f->mantissa);
    uint64_t fraction = code & ((1ull << f->mantissa) - 1);
    if (exponent == 0) exponent = 1;
    else fraction |= 1ull << f->mantissa;
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
    if (magnitude <= largest(f)) v = magnitude_of(f, magnitude);
    else if (f->has_inf && magnitude == largest(f) + 1) v = INFINITY;
    else return NAN;
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
        if (magnitude_of(f, middle) <= m) low = middle;
        else high = middle;
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
    return f->bytes == 8 ? double_of(bits) : f->bytes == 4 ? (double)float_of(bits) : decode(f, bits);
}

static uint64_t float_reference(const format *f, int op, int n, const uint64_t *x, const uint64_t *scalars) {
    const int is_double = f->bytes == 8;
    double acc = 0;
    for (int r = 0; r < n; r++) {
        double v = value_of(f, x[r]);
        if (op == SYMM_OP_PREMUL) v = apply(is_double, '*', v, value_of(f, scalars[r]));
        if (r == 0) acc = v;
        else if (op == SYMM_OP_PROD) acc = apply(is_double, '*', acc, v);
        else if (op == SYMM_OP_MAX || op == SYMM_OP_MIN) acc = choose(op, acc, v);
        else acc = apply(is_double, '+', acc, v);
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

static uint64_t int_reference(const format *f, int op, int n, const uint64_t *x, const uint64_t *scalars) {
    uint64_t acc = 0;
    for (int r = 0; r < n; r++) {
        uint64_t v = extend(f, x[r]);
        if (op == SYMM_OP_PREMUL) v *= scalars[r];
        int less = f->is_signed ? (int64_t)v < (int64_t)acc : v < acc;
        if (r == 0) acc = v;
        else if (op == SYMM_OP_PROD) acc *= v;
        else if (op == SYMM_OP_MAX) acc = less ? acc : v;
        else if (op == SYMM_OP_MIN) acc = less ? v : acc;
        else acc += v;
    }
    if (op == SYMM_OP_AVG) acc = f->is_signed ? (uint64_t)((int64_t)acc / n) : acc / (uint64_t)n;
    return low_bits(acc, f->bytes);
}

static uint64_t reference(int type, int op, int n, const uint64_t *x, const uint64_t *scalars) {
    const format *f = &formats[type];
    return f->mantissa ? float_reference(f, op, n, x, scalars) : int_reference(f, op, n, x, scalars);
}

/* ---- inputs ---- */

static uint64_t special(const format *f) {
    const int bits = 8 * f->bytes;
    const uint64_t sign = random_bits() % 2 << (bits - 1), unit = f->mantissa ? 1ull << f->mantissa : 1;
    const uint64_t top = (1ull << (bits - 1)) - 1;
    switch (random_bits() % 10) {
    case 0: return sign;
    case 1: return sign | 1;
    case 2: return sign | (unit - 1);
    case 3: return sign | unit;
    case 4: return f->mantissa ? sign | largest(f) : sign | top;
    case 5: return f->mantissa ? sign | (largest(f) + 1) : sign | (top - 1);
    case 6: return f->mantissa ? sign | (largest(f) + 2) : low_bits(~0ull, f->bytes); /* often a signalling NaN */
    case 7: return sign | top;
    default: return f->mantissa ? sign | unit * (uint64_t)((1 << (f->exponent - 1)) - 1) : sign | 2; /* 1.0 */
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

/* All ranks' elements of one place are of one kind, so that rounding, cancelling, overflow and NaN all come about. */
static uint64_t element(const format *f, int kind) {
    switch (kind % 8) {
    case 0: return low_bits(random_bits(), f->bytes);
    case 1: return special(f);
    case 2: return about(f, f->mantissa ? (1 << (f->exponent - 1)) - 2 : 0);                  /* overflows */
    case 3: return f->mantissa ? random_bits() & ((1ull << f->mantissa) - 1) : about(f, 0);   /* subnormal */
    case 4: return about(f, (int)(random_bits() % 5) - 2);
    default: return about(f, 0);
    }
}

/* ---- formats ---- */

typedef struct {
    int type;
    float (*decode)(uint32_t);
    uint32_t (*encode)(float);
} converter;

static const converter converters[] = {
    {symmFloat16, symm_f16_decode, symm_f16_encode},
    {symmBfloat16, symm_bf16_decode, symm_bf16_encode},
    {symmFloat8e4m3, symm_e4m3_decode, symm_e4m3_encode},
    {symmFloat8e5m2, symm_e5m2_decode, symm_e5m2_encode},
};
enum { NUM_CONVERTERS = sizeof converters / sizeof *converters };

static void every_code_decodes(void) {
    for (int k = 0; k < NUM_CONVERTERS; k++) {
        const format *f = &formats[converters[k].type];
        for (uint32_t code = 0; code < 1u << 8 * f->bytes; code++) {
            float got = converters[k].decode(code), want = (float)decode(f, code);
            int same = isnan(want) ? isnan(got) : bits_of(got) == bits_of(want);
            T_CHECKF(same, "%s 0x%x decodes to %a, not %a", f->name, code, (double)got, (double)want);
        }
    }
    T_EQ(bits_of(symm_e4m3_decode(0x7e)), bits_of(448.0f));
    T_EQ(bits_of(symm_e5m2_decode(0x7b)), bits_of(57344.0f));
    T_CHECK(isnan(symm_e4m3_decode(0x7f)) && isnan(symm_e4m3_decode(0xff)));
    T_CHECK(isinf(symm_e5m2_decode(0x7c)) && isnan(symm_e5m2_decode(0x7d)));
}

static void check_encode(const converter *c, float v) {
    const format *f = &formats[c->type];
    uint64_t got = c->encode(v), want = encode(f, (double)v);
    T_CHECKF(got == want, "%s: %a encodes to 0x%llx, not 0x%llx", f->name, (double)v, (unsigned long long)got,
             (unsigned long long)want);
}

static void check_around(const converter *c, double v) {
    float near[] = {(float)v, nextafterf((float)v, INFINITY), nextafterf((float)v, 0)};
    T_CHECK((double)near[0] == v);
    for (int i = 0; i < 3; i++) check_encode(c, near[i]), check_encode(c, -near[i]);
}

static void every_boundary_encodes(void) {
    for (int k = 0; k < NUM_CONVERTERS; k++) {
        const converter *c = &converters[k];
        const format *f = &formats[c->type];
        for (uint64_t code = 0; code <= largest(f); code++) {
            double here = magnitude_of(f, code), next = magnitude_of(f, code + 1);
            check_around(c, here);
            check_around(c, here + (next - here) / 2);
        }
        static const uint32_t ends[] = {0x7f800000, 0x7f7fffff, 0x7f800001, 0x7fc00000, 0x7fffffff, 1, 0x7fffff, 0x800000};
        for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
            check_encode(c, float_of(ends[i])), check_encode(c, float_of(ends[i] | 0x80000000u));
        for (int i = 0; i < 300000; i++) check_encode(c, float_of(random_bits()));
    }
}

/* ---- the matrix ---- */

static const int rank_counts[] = {1, 2, 3, 4, 5, 8, 9, MOST_RANKS};
static const size_t counts[] = {0, 1, 2, 3, 7, 15, 16, 17, 31, 33, 63, 64, 65, 255, 256, 257, 1023, 1025, MOST};
enum { NUM_COUNTS = sizeof counts / sizeof *counts, NUM_RANK_COUNTS = sizeof rank_counts / sizeof *rank_counts };

typedef struct {
    int type, op, n;
    size_t bytes;             /* of one element */
    char *input[MOST_RANKS];  /* as they were */
    char *src[MOST_RANKS];    /* as the reduction gets them: misaligned, PAD free bytes on both sides */
    char *dst, *expected;
    uint64_t scalars[MOST_RANKS];
} matrix;

static void *memory(size_t bytes) {
    void *p = calloc(1, bytes);
    T_CHECK(p != NULL);
    return p;
}

static void matrix_open(matrix *m, int type, char **blocks) {
    const size_t each = MOST * 8 + 4 * PAD;
    memset(m, 0, sizeof *m);
    m->type = type;
    m->bytes = symm_type_size((unsigned)type);
    *blocks = memory((2 * MOST_RANKS + 2) * each);
    for (int r = 0; r < MOST_RANKS; r++) {
        m->input[r] = *blocks + (size_t)r * each;
        m->src[r] = *blocks + (size_t)(MOST_RANKS + r) * each;
    }
    m->dst = *blocks + (size_t)(2 * MOST_RANKS) * each;
    m->expected = *blocks + (size_t)(2 * MOST_RANKS + 1) * each;
    for (size_t i = 0; i < MOST; i++) {
        int kind = (int)(random_bits() % 8);
        for (int r = 0; r < MOST_RANKS; r++) {
            uint64_t v = element(&formats[type], kind);
            memcpy(m->input[r] + i * m->bytes, &v, m->bytes);
        }
    }
}

/* Lays the sources out: variant 0 aligned to cache lines, the others anyhow. The scalars' unused bytes are noise. */
static void matrix_place(matrix *m, int variant) {
    const size_t line = 64;
    for (int r = 0; r <= m->n; r++) {
        char **p = r < m->n ? &m->src[r] : &m->dst;
        size_t offset = variant ? random_bits() % line : 0;
        *p += (line - (uintptr_t)*p % line) % line + offset;
        if (r < m->n) memcpy(*p, m->input[r], MOST * m->bytes);
    }
    for (int r = 0; r < m->n; r++) {
        uint64_t noise = m->bytes == 8 ? 0 : random_bits() << 8 * m->bytes;
        m->scalars[r] = element(&formats[m->type], m->n == 3 ? 1 : m->n == 8 ? 0 : 5) | noise;
    }
}

static void matrix_expect(matrix *m) {
    uint64_t x[MOST_RANKS], scalars[MOST_RANKS];
    for (int r = 0; r < m->n; r++) scalars[r] = low_bits(m->scalars[r], (int)m->bytes);
    for (size_t i = 0; i < MOST; i++) {
        for (int r = 0; r < m->n; r++) x[r] = get(m->input[r] + i * m->bytes, (int)m->bytes);
        uint64_t want = reference(m->type, m->op, m->n, x, scalars);
        memcpy(m->expected + i * m->bytes, &want, m->bytes);
    }
}

static void matrix_fail(const matrix *m, const char *isa, const char *how, const char *got, size_t count) {
    size_t i = 0;
    while (i < count && memcmp(got + i * m->bytes, m->expected + i * m->bytes, m->bytes) == 0) i++;
    T_CHECKF(0, "%s %s %s n=%d count=%zu %s: element %zu is 0x%llx, not 0x%llx (inputs 0x%llx 0x%llx)", isa,
             formats[m->type].name, op_names[m->op], m->n, count, how, i,
             (unsigned long long)get(got + i * m->bytes, (int)m->bytes),
             (unsigned long long)get(m->expected + i * m->bytes, (int)m->bytes),
             (unsigned long long)get(m->input[0] + i * m->bytes, (int)m->bytes),
             (unsigned long long)get(m->input[m->n > 1] + i * m->bytes, (int)m->bytes));
}

static void check_apart(matrix *m, const symm_reduce_table *t, size_t count, int nt) {
    const size_t bytes = count * m->bytes;
    symm_reduce_fn fn = nt ? t->reduce_nt[m->type][m->op] : t->reduce[m->type][m->op];
    memset(m->dst - 64, 0xa5, bytes + 128);
    fn(m->dst, (const void *const *)m->src, m->n, count, m->scalars);
    if (memcmp(m->dst, m->expected, bytes) != 0)
        matrix_fail(m, t->isa, nt ? "streaming" : "apart", m->dst, count);
    for (int i = 1; i <= 64; i++)
        T_CHECKF((unsigned char)m->dst[-i] == 0xa5 && (unsigned char)m->dst[bytes + (size_t)i - 1] == 0xa5,
                 "%s %s %s n=%d count=%zu writes outside", t->isa, formats[m->type].name, op_names[m->op], m->n, count);
}

static void check_in_place(matrix *m, const symm_reduce_table *t, size_t count, int r, int nt) {
    const size_t bytes = count * m->bytes, all = MOST * m->bytes;
    symm_reduce_fn fn = nt ? t->reduce_nt[m->type][m->op] : t->reduce[m->type][m->op];
    fn(m->src[r], (const void *const *)m->src, m->n, count, m->scalars);
    if (memcmp(m->src[r], m->expected, bytes) != 0) matrix_fail(m, t->isa, "in place", m->src[r], count);
    T_CHECKF(memcmp(m->src[r] + bytes, m->input[r] + bytes, all - bytes) == 0, "%s %s %s count=%zu writes beyond", t->isa,
             formats[m->type].name, op_names[m->op], count);
    memcpy(m->src[r], m->input[r], bytes);
}

static void check_counts(matrix *m, int in_place) {
    for (int k = 0; k < NUM_ISAS; k++) {
        const symm_reduce_table *t = symm_reduce_isa(isas[k]);
        for (int c = 0; t && c < NUM_COUNTS; c++) {
            check_apart(m, t, counts[c], 0);
            check_apart(m, t, counts[c], 1);
            for (int r = 0; in_place && r < m->n; r += m->n > 9 ? 35 : 1) check_in_place(m, t, counts[c], r, r == 1);
        }
    }
}

static void check_type(int type) {
    matrix m;
    char *blocks;
    matrix_open(&m, type, &blocks);
    for (int k = 0; k < NUM_RANK_COUNTS; k++) {
        m.n = rank_counts[k];
        for (int variant = 0; variant < 3; variant++) {
            matrix_place(&m, variant);
            for (m.op = 0; m.op < SYMM_OP_COUNT; m.op++) {
                matrix_expect(&m);
                check_counts(&m, variant == 1);
            }
        }
    }
    free(blocks);
}

static void int8_is_exact(void) { check_type(symmInt8); }
static void uint8_is_exact(void) { check_type(symmUint8); }
static void int32_is_exact(void) { check_type(symmInt32); }
static void uint32_is_exact(void) { check_type(symmUint32); }
static void int64_is_exact(void) { check_type(symmInt64); }
static void uint64_is_exact(void) { check_type(symmUint64); }
static void float16_is_exact(void) { check_type(symmFloat16); }
static void float32_is_exact(void) { check_type(symmFloat32); }
static void float64_is_exact(void) { check_type(symmFloat64); }
static void bfloat16_is_exact(void) { check_type(symmBfloat16); }
static void e4m3_is_exact(void) { check_type(symmFloat8e4m3); }
static void e5m2_is_exact(void) { check_type(symmFloat8e5m2); }
