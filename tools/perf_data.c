/* perf_data.c - the data of the check. Pure; each rank calls it with data of its own.
 *
 * What a rank sends repeats after PERF_PERIOD elements, a prime, so that no block, chunk or cache
 * line that went astray finds its own content elsewhere; it depends on rank, place, round, type and
 * reduction. One period is computed, the rest is copied and compared with memcmp: the check of 64
 * MB costs what reading it costs. Floats are small whole numbers, few enough ranks of which are not
 * 0 that every partial sum is exact in the type itself; so the one expected result does not depend
 * on the order of anything. Integers use all their bits and wrap. */
#include <math.h>
#include <string.h>

#include "perf.h"

/* How a type holds a number: integers by bits and sign, floats by exponent and mantissa. */
typedef struct {
    unsigned char bits, is_signed, exponent, mantissa; /* exponent 0: integer */
} format;
static const format formats[symmNumTypes] = {
    {8, 1, 0, 0},   {8, 0, 0, 0},   {32, 1, 0, 0},   {32, 0, 0, 0}, {64, 1, 0, 0}, {64, 0, 0, 0},
    {16, 1, 5, 10}, {32, 1, 8, 23}, {64, 1, 11, 52}, {16, 1, 8, 7}, {8, 1, 4, 3},  {8, 1, 5, 2},
};

/* Scrambles well enough that neighbours have nothing in common (a multiply-and-fold of 64 bits,
 * three times). */
static uint64_t mix(uint64_t a, uint64_t b, uint64_t c) {
    uint64_t x = a * 0x9e3779b97f4a7c15u + b * 0xd6e8feb86659fd93u + c * 0xa0761d6478bd642fu;
    for (int i = 0; i < 3; i++) {
        x ^= x >> 32;
        x *= 0xd6e8feb86659fd93u;
    }
    return x ^ x >> 29;
}

/* The nearest value of a float format, ties to even. Only finite values in range are ever asked
 * for. */
static uint64_t encode(double v, const format *f) {
    int bias = (1 << (f->exponent - 1)) - 1, e;
    uint64_t sign = (uint64_t)(signbit(v) != 0) << (f->bits - 1);
    if (v == 0) return sign;
    frexp(v, &e);
    e -= 1;
    if (e < 1 - bias) e = 1 - bias; /* subnormal: the exponent stays, the mantissa shrinks */
    uint64_t mantissa = (uint64_t)nearbyint(ldexp(fabs(v), f->mantissa - e));
    return sign | (((uint64_t)(e + bias - 1) << f->mantissa) + mantissa);
}

static void put(void *dst, uint64_t bits, size_t size) {
    memcpy(dst, &bits, size);
} /* little-endian */

/* ---- floats ---- */

/* Largest value a rank sends, so that four ranks' sum, doubled by mulsum, is still a whole number
 * the type holds exactly. */
static int float_max(const format *f) {
    int most = f->mantissa >= 14
                   ? 14
                   : f->mantissa + 1; /* 2^most: largest run of exact whole numbers, or enough */
    int v = 1 << most;
    return v / 8 > 0 ? v / 8 : 1;
}

/* The ranks that send something other than 0 at place i: all, where the type has room for them,
 * else four in a row. */
static int sends(const perf_data *d, int rank, uint64_t i) {
    const format *f = &formats[d->type];
    if (f->mantissa >= 23 || d->nranks <= 4) return 1;
    int first = (int)(mix(i, d->round, 7) % (unsigned)d->nranks);
    return (rank - first + d->nranks) % d->nranks < 4;
}

static double float_sent(const perf_data *d, int rank, uint64_t i) {
    uint64_t h = mix(i, d->round, (uint64_t)rank + 16), all = mix(i, d->round, 3);
    int most = float_max(&formats[d->type]);
    if (d->op ==
        PERF_PROD) { /* one rank sends 2, one 3, one -1 (or one of them all three), the others 1 */
        unsigned n = (unsigned)d->nranks, r = (unsigned)rank;
        return (all % n == r ? 2 : 1) * ((all >> 16) % n == r ? 3 : 1) *
               ((all >> 32) % n == r ? -1 : 1);
    }
    if (d->op == PERF_MAX || d->op == PERF_MIN)
        return (double)(int)(h % (2u * (unsigned)most + 1)) - most;
    if (!sends(d, rank, i)) return 0;
    int v = (int)(h % ((unsigned)most + 1));
    return h >> 40 & 1 ? v : -v; /* as whole numbers: no -0, whose sum would depend on the others */
}

/* Exact, whatever the order: see float_max. */
static double float_reduced(const perf_data *d, uint64_t i) {
    double v = float_sent(d, 0, i);
    for (int r = 1; r < d->nranks; r++) {
        double x = float_sent(d, r, i);
        switch (d->op) {
        case PERF_PROD: v *= x; break;
        case PERF_MAX: v = x > v ? x : v; break;
        case PERF_MIN: v = x < v ? x : v; break;
        case PERF_MULSUM: v += x * (1 + (r & 1)); break;
        default: v += x;
        }
    }
    return v;
}

/* avg divides in the accumulator: float32, except for float64 itself. */
static uint64_t float_expected(const perf_data *d, uint64_t i, int calls) {
    double v = float_reduced(d, i);
    if (d->op == PERF_AVG)
        v = d->type == symmFloat64 ? v / d->nranks : (double)((float)v / (float)d->nranks);
    for (int c = 1; c < calls && d->op == PERF_SUM; c++) v *= d->nranks;
    return encode(v == 0 ? 0.0 : v, &formats[d->type]);
}

/* ---- integers ---- */

static uint64_t widen(uint64_t v, const format *f) {
    int unused = 64 - f->bits;
    return f->is_signed ? (uint64_t)((int64_t)(v << unused) >> unused) : v << unused >> unused;
}

static uint64_t int_sent(const perf_data *d, int rank, uint64_t i) {
    return widen(mix(i, d->round, (uint64_t)rank + 16), &formats[d->type]);
}

static int int_less(uint64_t a, uint64_t b, const format *f) {
    return f->is_signed ? (int64_t)a < (int64_t)b : a < b;
}

static uint64_t int_expected(const perf_data *d, uint64_t i, int calls) {
    const format *f = &formats[d->type];
    uint64_t v = int_sent(d, 0, i);
    for (int r = 1; r < d->nranks; r++) {
        uint64_t x = int_sent(d, r, i);
        switch (d->op) {
        case PERF_PROD: v *= x; break;
        case PERF_MAX: v = int_less(v, x, f) ? x : v; break;
        case PERF_MIN: v = int_less(x, v, f) ? x : v; break;
        case PERF_MULSUM: v += x * (1 + (unsigned)(r & 1)); break;
        default: v += x;
        }
    }
    if (d->op == PERF_AVG) { /* of what the type holds of the sum */
        v = widen(v, f);
        v = f->is_signed ? (uint64_t)((int64_t)v / d->nranks) : v / (unsigned)d->nranks;
    }
    for (int c = 1; c < calls && d->op == PERF_SUM; c++) v *= (unsigned)d->nranks;
    return v;
}

/* ---- both ---- */

static uint64_t sent_bits(const perf_data *d, int rank, uint64_t i) {
    const format *f = &formats[d->type];
    return f->exponent ? encode(float_sent(d, rank, i), f) : int_sent(d, rank, i);
}

uint64_t perf_data_scalar(int type, int rank) {
    const format *f = &formats[type];
    return f->exponent ? encode(1 + (rank & 1), f) : (uint64_t)(1 + (rank & 1));
}

int perf_data_calls(const perf_data *d, int most) {
    const format *f = &formats[d->type];
    if (d->op == PERF_MAX || d->op == PERF_MIN) return most;
    if (d->op != PERF_SUM) return 1;
    if (!f->exponent) return most;
    int calls = 1, senders = d->nranks > 4 && f->mantissa < 23 ? 4 : d->nranks;
    double largest = (double)float_max(f) * senders, room = ldexp(1, f->mantissa + 1);
    while (calls < most && (largest *= d->nranks) <= room) calls++;
    return calls;
}

/* `n` elements of what rank sends, from element `from` on. */
static void fill_period(const perf_data *d, uint64_t from, uint64_t n, int rank) {
    size_t size = perf_type_size(d->type);
    for (uint64_t i = 0; i < n; i++)
        put(d->bytes + i * size, sent_bits(d, rank, (from + i) % PERF_PERIOD), size);
}

void perf_data_fill(const perf_data *d, int rank, void *buf, uint64_t count) {
    size_t size = perf_type_size(d->type);
    uint64_t period = count < PERF_PERIOD ? count : PERF_PERIOD;
    fill_period(d, 0, period, rank);
    for (uint64_t i = 0; i < count; i += period)
        memcpy((char *)buf + i * size, d->bytes, (count - i < period ? count - i : period) * size);
}

static uint64_t count_differences(const perf_data *d, const char *buf, uint64_t count) {
    size_t size = perf_type_size(d->type);
    uint64_t wrong = 0;
    for (uint64_t i = 0; i < count; i += PERF_PERIOD) {
        uint64_t n = count - i < PERF_PERIOD ? count - i : PERF_PERIOD;
        if (!memcmp(buf + i * size, d->bytes, n * size)) continue;
        for (uint64_t k = 0; k < n; k++)
            wrong += memcmp(buf + (i + k) * size, d->bytes + k * size, size) != 0;
    }
    return wrong;
}

uint64_t perf_data_check_reduced(const perf_data *d, const void *buf, uint64_t from, uint64_t count,
                                 int calls) {
    size_t size = perf_type_size(d->type);
    uint64_t n = count < PERF_PERIOD ? count : PERF_PERIOD;
    for (uint64_t i = 0; i < n; i++) {
        const uint64_t at = (from + i) % PERF_PERIOD;
        put(d->bytes + i * size,
            formats[d->type].exponent ? float_expected(d, at, calls) : int_expected(d, at, calls),
            size);
    }
    return count_differences(d, buf, count);
}

uint64_t perf_data_check_copied(const perf_data *d, int rank, const void *buf, uint64_t from,
                                uint64_t count) {
    fill_period(d, from, count < PERF_PERIOD ? count : PERF_PERIOD, rank);
    return count_differences(d, buf, count);
}
