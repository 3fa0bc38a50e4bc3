/* unit_reduce.c - the arithmetic of symm.h's "Numbers", bit for bit, on every instruction set that
 * this machine has, against the slow reference of reduce_kit.h. One thread per test but where a
 * test says otherwise; no lock. */
#include "t.h"

#include <stdlib.h>
#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

#include "device/common/types.inl"
#include "reduce_kit.h"

/* Checkers slow the matrix down without finding more in all of it than in a part. */
enum { PART_ONLY = T_ASAN || T_TSAN };

enum { MOST = 4099, MOST_RANKS = 72, PAD = 192, NUM_ISAS = 3 };

static const char *const isas[NUM_ISAS] = {"base", "avx2", "avx512"};
static const char *const op_names[] = {"sum", "prod", "max", "min", "avg", "premul"};

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
            T_CHECKF(same, "%s 0x%x decodes to %a, not %a", f->name, code, (double)got,
                     (double)want);
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
    T_CHECKF(got == want, "%s: %a encodes to 0x%llx, not 0x%llx", f->name, (double)v,
             (unsigned long long)got, (unsigned long long)want);
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
        static const uint32_t ends[] = {0x7f800000, 0x7f7fffff, 0x7f800001, 0x7fc00000,
                                        0x7fffffff, 1,          0x7fffff,   0x800000};
        for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
            check_encode(c, float_of(ends[i])), check_encode(c, float_of(ends[i] | 0x80000000u));
        for (int i = 0; i < 300000; i++) check_encode(c, float_of(random_bits()));
    }
}

/* ---- the matrix ---- */

static const int rank_counts[] = {1, 2, 3, 4, 5, 8, 9, MOST_RANKS};
static const size_t counts[] = {0,  1,  2,  3,   7,   15,  16,   17,   31,  33,
                                63, 64, 65, 255, 256, 257, 1023, 1025, MOST};
enum {
    NUM_COUNTS = sizeof counts / sizeof *counts,
    NUM_RANK_COUNTS = sizeof rank_counts / sizeof *rank_counts
};

typedef struct {
    int type, op, n;
    size_t bytes;            /* of one element */
    char *input[MOST_RANKS]; /* as they were */
    char *room[MOST_RANKS +
               1]; /* where src and, last, dst are placed, PAD free bytes before and after */
    char *src[MOST_RANKS]; /* as the reduction gets them */
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
    for (int r = 0; r < MOST_RANKS; r++) m->input[r] = *blocks + (size_t)r * each;
    for (int r = 0; r <= MOST_RANKS; r++)
        m->room[r] = *blocks + (size_t)(MOST_RANKS + r) * each + PAD;
    m->expected = *blocks + (size_t)(2 * MOST_RANKS + 1) * each;
    for (size_t i = 0; i < MOST; i++) {
        int kind = (int)(random_bits() % 8);
        for (int r = 0; r < MOST_RANKS; r++) {
            uint64_t v = element(&formats[type], kind);
            memcpy(m->input[r] + i * m->bytes, &v, m->bytes);
        }
    }
}

/* Lays the sources out: variant 0 aligned to cache lines, the others anyhow. The scalars' unused
 * bytes are noise. */
static void matrix_place(matrix *m, int variant) {
    const size_t line = 64;
    for (int r = 0; r <= MOST_RANKS; r++) {
        char *p = m->room[r] + (line - (uintptr_t)m->room[r] % line) % line +
                  (variant ? random_bits() % line : 0);
        if (r == MOST_RANKS)
            m->dst = p;
        else
            m->src[r] = memcpy(p, m->input[r], MOST * m->bytes);
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

static void matrix_fail(const matrix *m, const char *isa, const char *how, const char *got,
                        size_t count) {
    size_t i = 0;
    while (i < count && memcmp(got + i * m->bytes, m->expected + i * m->bytes, m->bytes) == 0) i++;
    T_CHECKF(0,
             "%s %s %s n=%d count=%zu %s: element %zu is 0x%llx, not 0x%llx (inputs 0x%llx 0x%llx)",
             isa, formats[m->type].name, op_names[m->op], m->n, count, how, i,
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
        T_CHECKF((unsigned char)m->dst[-i] == 0xa5 &&
                     (unsigned char)m->dst[bytes + (size_t)i - 1] == 0xa5,
                 "%s %s %s n=%d count=%zu writes outside", t->isa, formats[m->type].name,
                 op_names[m->op], m->n, count);
}

/* Two destinations, whose cache lines fall together or not. */
static void check_twice(matrix *m, const symm_reduce_table *t, size_t count) {
    static char block[MOST * 8 + 256] __attribute__((aligned(64)));
    const size_t bytes = count * m->bytes, apart = count % 2 ? 0 : 8;
    char *twin = block + 64 + ((uintptr_t)m->dst + apart) % 64;
    memset(m->dst - 64, 0xa5, bytes + 128);
    memset(block, 0xa5, sizeof block);
    t->reduce_nt2[m->type][m->op](m->dst, twin, (const void *const *)m->src, m->n, count,
                                  m->scalars);
    if (memcmp(m->dst, m->expected, bytes) != 0) matrix_fail(m, t->isa, "first", m->dst, count);
    if (memcmp(twin, m->expected, bytes) != 0) matrix_fail(m, t->isa, "twin", twin, count);
    for (int i = 1; i <= 64; i++)
        T_CHECKF((unsigned char)twin[-i] == 0xa5 &&
                     (unsigned char)twin[bytes + (size_t)i - 1] == 0xa5 &&
                     (unsigned char)m->dst[-i] == 0xa5 &&
                     (unsigned char)m->dst[bytes + (size_t)i - 1] == 0xa5,
                 "%s %s %s n=%d count=%zu writes outside", t->isa, formats[m->type].name,
                 op_names[m->op], m->n, count);
}

static void check_in_place(matrix *m, const symm_reduce_table *t, size_t count, int r, int nt) {
    const size_t bytes = count * m->bytes, all = MOST * m->bytes;
    symm_reduce_fn fn = nt ? t->reduce_nt[m->type][m->op] : t->reduce[m->type][m->op];
    fn(m->src[r], (const void *const *)m->src, m->n, count, m->scalars);
    if (memcmp(m->src[r], m->expected, bytes) != 0)
        matrix_fail(m, t->isa, "in place", m->src[r], count);
    T_CHECKF(memcmp(m->src[r] + bytes, m->input[r] + bytes, all - bytes) == 0,
             "%s %s %s count=%zu writes beyond", t->isa, formats[m->type].name, op_names[m->op],
             count);
    memcpy(m->src[r], m->input[r], bytes);
}

static void check_counts(matrix *m, int in_place) {
    for (int k = 0; k < NUM_ISAS; k++) {
        const symm_reduce_table *t = symm_reduce_isa(isas[k]);
        for (int c = 0; t && c < NUM_COUNTS; c += 1 + PART_ONLY) {
            check_apart(m, t, counts[c], 0);
            check_apart(m, t, counts[c], 1);
            check_twice(m, t, counts[c]);
            for (int r = 0; in_place && r<m->n; r += m->n> 9 ? 35 : 1)
                check_in_place(m, t, counts[c], r, r == 1);
        }
    }
}

static void check_type(int type) {
    matrix m;
    char *blocks;
    matrix_open(&m, type, &blocks);
    for (int k = 0; k < NUM_RANK_COUNTS; k++) {
        m.n = rank_counts[k];
        for (int variant = PART_ONLY; variant < (PART_ONLY ? 2 : 3); variant++) {
            if (PART_ONLY && m.n == MOST_RANKS && type % 4 != 3) continue;
            matrix_place(&m, variant);
            for (m.op = 0; m.op < SYMM_OP_COUNT; m.op++) {
                matrix_expect(&m);
                check_counts(&m, variant == 1);
            }
        }
    }
    free(blocks);
}

static void int8_is_exact(void) {
    check_type(symmInt8);
}
static void uint8_is_exact(void) {
    check_type(symmUint8);
}
static void int32_is_exact(void) {
    check_type(symmInt32);
}
static void uint32_is_exact(void) {
    check_type(symmUint32);
}
static void int64_is_exact(void) {
    check_type(symmInt64);
}
static void uint64_is_exact(void) {
    check_type(symmUint64);
}
static void float16_is_exact(void) {
    check_type(symmFloat16);
}
static void float32_is_exact(void) {
    check_type(symmFloat32);
}
static void float64_is_exact(void) {
    check_type(symmFloat64);
}
static void bfloat16_is_exact(void) {
    check_type(symmBfloat16);
}
static void e4m3_is_exact(void) {
    check_type(symmFloat8e4m3);
}
static void e5m2_is_exact(void) {
    check_type(symmFloat8e5m2);
}

/* ---- rounding inside the vectors ---- */

/* Sums and products of two narrow floats whose results fall on and right beside the boundaries
 * between codes: each code with half of its unit, a little less and a little more, and with
 * whatever comes. */
static uint64_t partner(const format *f, uint64_t code, int which) {
    const uint64_t sign = 1ull << (8 * f->bytes - 1), magnitude = code & (sign - 1);
    if (which > 3 || magnitude > largest(f)) return low_bits(random_bits(), f->bytes);
    double half = (magnitude_of(f, magnitude + 1) - magnitude_of(f, magnitude)) / 2;
    uint64_t half_code = encode(f, half);
    if (which == 1 && half_code > 0) half_code--;
    if (which == 2) half_code++;
    return half_code | (which == 3 ? sign : 0);
}

static void check_pairs(int type, int op, const uint16_t *x[2], size_t count) {
    const format *f = &formats[type];
    unsigned char *in[2] = {memory(count * 2), memory(count * 2)}, *want = memory(count * 2),
                  *got = memory(count * 2);
    const size_t bytes = (size_t)f->bytes;
    for (size_t i = 0; i < count; i++) {
        uint64_t v[2] = {x[0][i], x[1][i]}, w = reference(type, op, 2, v, NULL);
        memcpy(in[0] + i * bytes, &v[0], bytes), memcpy(in[1] + i * bytes, &v[1], bytes);
        memcpy(want + i * bytes, &w, bytes);
    }
    for (int k = 0; k < NUM_ISAS; k++) {
        const symm_reduce_table *t = symm_reduce_isa(isas[k]);
        if (!t) continue;
        t->reduce[type][op](got, (const void *[]){in[0], in[1]}, 2, count, NULL);
        for (size_t i = 0; i < count; i++)
            T_CHECKF(memcmp(got + i * bytes, want + i * bytes, bytes) == 0,
                     "%s %s %s of 0x%x and 0x%x is 0x%llx, not 0x%llx", t->isa, f->name,
                     op_names[op], x[0][i], x[1][i],
                     (unsigned long long)get(got + i * bytes, f->bytes),
                     (unsigned long long)get(want + i * bytes, f->bytes));
    }
    free(in[0]), free(in[1]), free(want), free(got);
}

static void every_pair_rounds(void) {
    const size_t count = 65536;
    uint16_t *x[2] = {memory(count * 2), memory(count * 2)};
    for (int k = 0; k < NUM_CONVERTERS; k++) {
        const format *f = &formats[converters[k].type];
        for (int which = 0; which < (f->bytes == 1 ? 1 : 6); which++) {
            for (size_t i = 0; i < count; i++) {
                x[0][i] = (uint16_t)(f->bytes == 1 ? i >> 8 : i);
                x[1][i] = (uint16_t)(f->bytes == 1 ? i & 0xff : partner(f, i, which));
            }
            for (int op = SYMM_OP_SUM; op <= SYMM_OP_AVG; op++)
                check_pairs(converters[k].type, op, (const uint16_t **)x, count);
        }
    }
    free(x[0]), free(x[1]);
}

/* Every sum of small integers by every number of ranks, so that no quotient is rounded up before it
 * is truncated. */
static void narrow_averages_truncate(void) {
    enum { COUNT = 256 };
    static const int types[] = {symmInt8, symmUint8};
    uint8_t x[COUNT], extreme[COUNT], got[COUNT];
    const void *src[MOST_RANKS];
    uint64_t v[MOST_RANKS];
    for (int i = 0; i < COUNT; i++) x[i] = (uint8_t)i;
    for (int p = 0; p < 2 * NUM_ISAS; p++) {
        const symm_reduce_table *t = symm_reduce_isa(isas[p / 2]);
        for (int n = 1; t && n <= MOST_RANKS; n++) {
            memset(extreme, n % 2 ? 0x80 : 0xff, COUNT);
            for (int r = 0; r < n; r++) src[r] = r % 3 == 1 ? extreme : x;
            t->reduce[types[p % 2]][SYMM_OP_AVG](got, src, n, COUNT, NULL);
            for (int i = 0; i < COUNT; i++) {
                for (int r = 0; r < n; r++) v[r] = ((const uint8_t *)src[r])[i];
                T_EQ(got[i], reference(types[p % 2], SYMM_OP_AVG, n, v, NULL));
            }
        }
    }
}

/* ---- the caller's floating-point mode ---- */

#if defined(__SSE2__)
typedef unsigned float_mode;
enum { FLUSH = 0x8040, ROUND_UP = 0x4000, ROUND_DOWN = 0x2000, TRAPS = 0x1f80 };
static float_mode mode_get(void) {
    return _mm_getcsr();
}
static void mode_set(float_mode mode) {
    _mm_setcsr(mode);
}
static float_mode mode_with(unsigned bits) { /* TRAPS: those that are on do not stay masked */
    return 0x1f80 ^ bits;
}
#elif defined(__aarch64__)
typedef uint64_t float_mode;
enum {
    FLUSH = 1 << 24,
    ROUND_UP = 1 << 22,
    ROUND_DOWN = 2 << 22,
    TRAPS = 1 << 25 /* default NaN */
};
static float_mode mode_get(void) {
    float_mode mode;
    __asm__ volatile("mrs %0, fpcr" : "=r"(mode));
    return mode;
}
static void mode_set(float_mode mode) {
    __asm__ volatile("msr fpcr, %0" ::"r"(mode) : "memory");
}
static float_mode mode_with(unsigned bits) {
    return bits;
}
#endif

static void the_callers_mode_changes_nothing(void) {
#if defined(__SSE2__) || defined(__aarch64__)
    const float_mode modes[] = {mode_with(FLUSH), mode_with(ROUND_UP), mode_with(TRAPS),
                                mode_with(FLUSH | ROUND_UP), mode_with(ROUND_DOWN)};
    enum { MODES = sizeof modes / sizeof *modes };
    matrix m;
    char *blocks;
    for (int type = 0; type < symmNumTypes; type++) {
        matrix_open(&m, type, &blocks);
        m.n = 3;
        matrix_place(&m, 1);
        for (m.op = 0; m.op < SYMM_OP_COUNT; m.op++) {
            matrix_expect(&m);
            for (int k = 0; k < NUM_ISAS * MODES; k++) {
                const symm_reduce_table *t = symm_reduce_isa(isas[k / MODES]);
                const float_mode usual = mode_get(), mode = modes[k % MODES];
                if (!t) continue;
                mode_set(mode);
                t->reduce[type][m.op](m.dst, (const void *const *)m.src, m.n, MOST, m.scalars);
                const float_mode after = mode_get();
                t->reduce_nt[type][m.op](m.dst, (const void *const *)m.src, m.n, MOST, m.scalars);
                mode_set(usual);
                T_EQ(after, mode);
                if (memcmp(m.dst, m.expected, MOST * m.bytes) != 0)
                    matrix_fail(&m, t->isa, "in a mode", m.dst, MOST);
            }
        }
        free(blocks);
    }
#else
    T_SKIP("nothing restores the mode on this processor");
#endif
}

/* ---- copies ---- */

static void check_copy(symm_copy_fn fn, const char *isa, char *dst, const char *src, size_t bytes) {
    memset(dst - 64, 0xa5, bytes + 128);
    fn(dst, src, bytes);
    T_CHECKF(memcmp(dst, src, bytes) == 0, "%s: %zu bytes are not copied", isa, bytes);
    for (int i = 1; i <= 64; i++)
        T_CHECKF((unsigned char)dst[-i] == 0xa5 &&
                     (unsigned char)dst[bytes + (size_t)i - 1] == 0xa5,
                 "%s: a copy of %zu bytes writes outside", isa, bytes);
}

static void copies_copy(void) {
    static const size_t large[] = {2048, 4095, 4096, 4097, 65536 + 13, 300001};
    const size_t room = 300001 + 4 * PAD;
    char *from = memory(room), *to = memory(room);
    for (size_t i = 0; i < room; i++) from[i] = (char)random_bits();
    for (int k = 0; k < 2 * NUM_ISAS; k++) {
        const symm_reduce_table *t = symm_reduce_isa(isas[k / 2]);
        if (!t) continue;
        symm_copy_fn fn = k % 2 ? t->copy_nt : t->copy;
        for (size_t bytes = 0; bytes <= 1100; bytes++)
            check_copy(fn, t->isa, to + PAD + random_bits() % 64, from + random_bits() % 64, bytes);
        for (size_t i = 0; i < sizeof large / sizeof *large; i++)
            for (size_t off = 0; off < 64; off += 21)
                check_copy(fn, t->isa, to + PAD + off, from + random_bits() % 64, large[i]);
    }
    free(from), free(to);
}

/* ---- the table ---- */

static void init_once(int rank, int n, void *arg) {
    (void)rank, (void)n, (void)arg;
    symm_reduce_init();
    T_CHECK(symm_reduce != NULL);
    float a = 1, b = 2, sum = 0;
    symm_reduce->reduce[symmFloat32][SYMM_OP_SUM](&sum, (const void *[]){&a, &b}, 2, 1, NULL);
    T_CHECK(sum == 3);
}

static void the_best_table_is_picked(void) {
    T_CHECK(symm_reduce == NULL);
    T_THREADS(4, init_once, NULL);
    const symm_reduce_table *best = NULL;
    for (int k = 0; k < NUM_ISAS; k++) {
        const symm_reduce_table *t = symm_reduce_isa(isas[k]);
        if (!t) continue;
        T_STREQ(t->isa, isas[k]);
        best = t;
        for (int i = 0; i < symmNumTypes * SYMM_OP_COUNT; i++)
            T_CHECK(t->reduce[i / SYMM_OP_COUNT][i % SYMM_OP_COUNT] &&
                    t->reduce_nt[i / SYMM_OP_COUNT][i % SYMM_OP_COUNT]);
    }
    T_CHECK(symm_reduce == best);
    T_CHECK(symm_reduce_isa("base") != NULL);
    T_CHECK(symm_reduce_isa("nonesuch") == NULL);
}

static void sizes_are_known(void) {
    for (unsigned type = 0; type < symmNumTypes; type++)
        T_EQ(symm_type_size(type), formats[type].bytes);
    T_EQ(symm_type_size(symmNumTypes), 0);
    T_EQ(symm_type_size(~0u), 0);
}

T_MAIN(T(every_code_decodes), T(every_boundary_encodes), T(int8_is_exact), T(uint8_is_exact),
       T(int32_is_exact), T(uint32_is_exact), T(int64_is_exact), T(uint64_is_exact),
       T(float16_is_exact), T(float32_is_exact), T(float64_is_exact), T(bfloat16_is_exact),
       T(e4m3_is_exact), T(e5m2_is_exact), T(every_pair_rounds), T(narrow_averages_truncate),
       T(the_callers_mode_changes_nothing), T(copies_copy), T(the_best_table_is_picked),
       T(sizes_are_known))
