/* coll_data.h - cases of collectives for tests: which call, what is in the buffers, and what must
 * come out, bit for bit. Every rank makes every rank's input from (seed, rank), so no result is
 * taken from a peer.
 *
 * Two kinds of data. Small integers, chosen so that each step and the result are exact in the type:
 * the expected result is computed here, in 64-bit integers. And random bit patterns (NaN,
 * infinities, subnormals, overflow): the expected result is that of the plain build of the
 * reductions (proved by unit_reduce.c) over all inputs in rank order. Data repeats every CK_PERIOD
 * elements, a prime, so that no chunk, slice or packet begins where another one does.
 *
 * Pure: no state but the caller's; any thread. */
#ifndef COLL_DATA_H_
#define COLL_DATA_H_

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "device/host/reduce.h"
#include "coll_expect.h"

enum { CK_SLOW = T_TSAN, CK_LARGE = T_TSAN ? 300007 : 1500007 };

enum {
    CK_PERIOD = 1021,
    CK_GUARD = 128,
    CK_HALF = 16 << 20,            /* bytes of an arena for sources, and as many for destinations */
    CK_ROOM = CK_HALF - (64 << 10) /* of these, for one buffer, which may begin 40 KB late */
};

/* ---- randomness: a pure function of its arguments ---- */

static inline uint64_t ck_hash(uint64_t seed, uint64_t a, uint64_t b) {
    uint64_t z =
        seed + a * 0x9e3779b97f4a7c15ull + b * 0xd1b54a32d192ed03ull + 0x8cb92ba72f3d8dd7ull;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

/* T_SEED, or a new one; it stands in the text of each failure. */
static inline uint64_t ck_seed(void) {
    const char *text = getenv("T_SEED");
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return text ? strtoull(text, NULL, 0)
                : ck_hash((uint64_t)t.tv_sec, (uint64_t)t.tv_nsec, 0) & 0xffffffff;
}

static inline int ck_full(void) {
    const char *full = getenv("T_FULL");
    return full && atoi(full) > 0;
}

/* ---- a case ---- */

enum { CK_NONE, CK_BOTH, CK_ONLY_SRC, CK_ONLY_DST, CK_PER_RANK, CK_REGISTERED };

typedef struct {
    symmColl_t coll;
    int type, op, root; /* op: SYMM_OP_* */
    uint64_t count, seed;
    int in_place, random_bits, registered, src_mis, dst_mis; /* mis: bytes */
} ck_case;

static inline const char *ck_text(const ck_case *k, int n, char *text, size_t cap) {
    static const char *const types[] = {"int8",    "uint8",    "int32",   "uint32",
                                        "int64",   "uint64",   "float16", "float32",
                                        "float64", "bfloat16", "e4m3",    "e5m2"};
    static const char *const ops[] = {"sum", "prod", "max", "min", "avg", "premulsum"};
    static const char *const where[] = {"none", "both", "src", "dst", "per rank"};
    snprintf(text, cap,
             "%s n=%d root=%d %s %s count=%llu%s%s registered=%s misaligned=%d,%d seed=%#llx",
             symm_coll_name(k->coll), n, k->root, types[k->type],
             coll_reduces(k->coll) ? ops[k->op] : "", (unsigned long long)k->count,
             k->in_place ? " in place" : "", k->random_bits ? " random bits" : "",
             where[k->registered], k->src_mis, k->dst_mis, (unsigned long long)k->seed);
    return text;
}

/* The same with so few elements that each buffer has room. */
static inline ck_case ck_fit(ck_case k, int n) {
    const uint64_t most =
        CK_ROOM / (symm_type_size((unsigned)k.type) * (unsigned)coll_parts(k.coll, n)) - 1;
    if (k.count > most) k.count = most;
    return k;
}

/* Its counts, where it has one per rank: of at most `count` elements; every fifth call is even. */
static inline coll_counts ck_counts(const ck_case *k, int n) {
    return (coll_counts){.n = n,
                         .layout = (int)(k->seed >> 20) % 3,
                         .seed = k->seed % 5 ? k->seed : 0,
                         .most = k->count};
}

static inline symm_call ck_call_of(const ck_case *k) {
    return (symm_call){.coll = k->coll,
                       .count = k->count,
                       .type = (uint32_t)k->type,
                       .op = (uint32_t)k->op,
                       .esize = (uint32_t)symm_type_size((unsigned)k->type),
                       .root = k->root};
}

/* Case j of a sample: types times reductions are met in full every 72 cases, the rest is drawn. */
static inline ck_case ck_sample_of(uint64_t seed, int j, int n, unsigned backend) {
    static const uint64_t counts[] = {0,  1,   2,    3,    7,    13,   14,    15,
                                      64, 100, 1000, 1023, 4096, 4099, 100003};
    static const int mis[] = {0, 1, 3};
    uint64_t h = ck_hash(seed, (uint64_t)j, 1), g = ck_hash(seed, (uint64_t)j, 2);
    ck_case k = {.type = j % 12, .op = j / 12 % 6, .seed = ck_hash(seed, (uint64_t)j, 3)};
    const int es = (int)symm_type_size((unsigned)k.type);
    k.coll = coll_draw(h >> 48, backend, (j % 4 == 3) == (j / 72 % 2));
    k.count = counts[h % 15];
    if (h >> 8 & 1) k.count = counts[(h >> 16) % 14]; /* fewer of the last */
    if (j % 29 == 7) k.count = CK_LARGE + (h >> 32) % 5;
    k.in_place = g & 1;
    k.random_bits = g >> 1 & 1;
    k.registered = (int)((g >> 8) % CK_REGISTERED);
    k.src_mis = es * mis[(g >> 16) % 3];
    k.dst_mis = es * mis[(g >> 24) % 3];
    if ((g >> 32) % 8 == 0) k.dst_mis += 1; /* not even aligned to the element */
    k.root = (int)(g >> 40) % n;
    return ck_fit(k, n);
}
static inline ck_case ck_sample(uint64_t seed, int j, int n) {
    return ck_sample_of(seed, j, n, SYMM_K_HOST);
}

/* ---- small integers ---- */

static inline int ck_is_float(int type) {
    return type >= symmFloat16;
}
static inline int ck_is_unsigned(int type) {
    return type == symmUint8 || type == symmUint32 || type == symmUint64;
}
static inline int ck_is_float8(int type) {
    return type == symmFloat8e4m3 || type == symmFloat8e5m2;
}

/* -m..m, or 0..2m of an unsigned type. */
static inline int64_t ck_small(int type, uint64_t h, int m) {
    return (int64_t)(h % (unsigned)(2 * m + 1)) - (ck_is_unsigned(type) ? 0 : m);
}

static inline int64_t ck_scalar(const ck_case *k, int rank) {
    uint64_t h = ck_hash(k->seed, (uint64_t)rank, 77);
    return ck_is_float(k->type) ? 1 + (int64_t)(h & 1) : ck_small(k->type, h, 2);
}

/* Averages of floats: ranks come in pairs k+1, k-1, so that the sum is n*k. */
static inline int64_t ck_balanced(const ck_case *k, int rank, int n, uint64_t i, uint64_t common) {
    int64_t mean = 1 + (int64_t)(common % 3);
    if ((rank | 1) >= n) return mean;
    int up = ck_hash(k->seed, i, 1000 + (uint64_t)rank / 2) & 1;
    return mean + ((rank & 1) == up ? 1 : -1);
}

/* Products: signs, and at most three ranks with a 2. */
static inline int64_t ck_factor(int rank, int n, uint64_t h, uint64_t common) {
    int two = 0;
    for (int j = 0; j < 3; j++) two |= rank == (int)((common >> (16 * j)) % (unsigned)n);
    return (two ? 2 : 1) * (h & 1 ? -1 : 1);
}

/* Element i of rank. Sums of float8 come from two ranks only: more would not be exact. */
static inline int64_t ck_value(const ck_case *k, int rank, int n, uint64_t i) {
    uint64_t h = ck_hash(k->seed, i, (uint64_t)rank), common = ck_hash(k->seed, i, 500);
    int silent = ck_is_float8(k->type) && rank != (int)(common % (unsigned)n) &&
                 rank != (int)((common >> 16) % (unsigned)n);
    switch (k->op) {
    case SYMM_OP_SUM: return silent ? 0 : ck_small(k->type, h, 3);
    case SYMM_OP_PROD:
        return ck_is_float(k->type) ? ck_factor(rank, n, h, common) : ck_small(k->type, h, 3);
    case SYMM_OP_AVG:
        return ck_is_float(k->type) ? ck_balanced(k, rank, n, i, common) : ck_small(k->type, h, 60);
    case SYMM_OP_PREMUL: return silent ? 0 : ck_small(k->type, h, 1);
    default: return ck_small(k->type, h, 8);
    }
}

/* An integer that the format holds exactly. */
static inline uint64_t ck_encode(int type, int64_t v) {
    static const struct {
        int exponent, mantissa;
    } formats[] = {[symmFloat16] = {5, 10}, [symmFloat32] = {8, 23},   [symmFloat64] = {11, 52},
                   [symmBfloat16] = {8, 7}, [symmFloat8e4m3] = {4, 3}, [symmFloat8e5m2] = {5, 2}};
    if (!ck_is_float(type)) return (uint64_t)v;
    const int e = formats[type].exponent, m = formats[type].mantissa;
    uint64_t size = (uint64_t)(v < 0 ? -v : v), sign = v < 0 ? 1ull << (e + m) : 0;
    if (size == 0) return 0;
    int top = 63 - __builtin_clzll(size);
    uint64_t rest = size - (1ull << top);
    T_CHECK(top <= m || rest % (1ull << (top - m)) == 0);
    rest = top <= m ? rest << (m - top) : rest >> (top - m);
    return sign | (uint64_t)(top + (1 << (e - 1)) - 1) << m | rest;
}

/* What the type holds of an integer. */
static inline int64_t ck_held(int type, int64_t v) {
    const int unused = 64 - 8 * (int)symm_type_size((unsigned)type);
    const uint64_t high = (uint64_t)v << unused;
    return ck_is_unsigned(type) ? (int64_t)(high >> unused) : (int64_t)high >> unused;
}
static inline int64_t ck_average(int type, int64_t sum, int n) {
    if (type == symmUint64) return (int64_t)((uint64_t)sum / (unsigned)n);
    return (ck_is_float(type) ? sum : ck_held(type, sum)) / n;
}

/* What the reduction of element i must be. */
static inline uint64_t ck_reduced(const ck_case *k, int n, uint64_t i) {
    int64_t acc = 0;
    for (int r = 0; r < n; r++) {
        int64_t v = ck_value(k, r, n, i);
        if (k->op == SYMM_OP_PREMUL) v *= ck_scalar(k, r);
        if (r == 0)
            acc = v;
        else if (k->op == SYMM_OP_PROD)
            acc = (int64_t)((uint64_t)acc * (uint64_t)v);
        else if (k->op == SYMM_OP_MAX)
            acc = v > acc ? v : acc;
        else if (k->op == SYMM_OP_MIN)
            acc = v < acc ? v : acc;
        else
            acc += v;
    }
    return ck_encode(k->type, k->op == SYMM_OP_AVG ? ck_average(k->type, acc, n) : acc);
}

/* ---- data of a case ---- */

typedef struct {
    uint64_t period;  /* elements that repeat */
    char *in, *want;  /* in: all ranks' inputs one after the other; want: the reduction */
    uint64_t *scalar; /* one per rank, in the element type */
} ck_data;

static inline uint64_t ck_bits(const ck_case *k, int rank, int n, uint64_t i) {
    if (k->random_bits) return ck_hash(k->seed, i, 2000 + (uint64_t)rank);
    return ck_encode(k->type, ck_value(k, rank, n, i));
}

/* The domain of each rank, and how many there are; 0: one. Set by the test. */
static int ck_domains, ck_domain_of[SYMM_MAX_RANKS];

/* Bit patterns, as docs/numerics.md has them: each domain's ranks in their order, then the domains;
 * an average is a sum until the end. */
static inline void ck_reduce_bits(const ck_case *k, const void *const *srcs, int n, ck_data *d) {
    const symm_reduce_table *t = symm_reduce_isa("base");
    const size_t bytes = d->period * symm_type_size((unsigned)k->type);
    const int average = k->op == SYMM_OP_AVG, op = average ? SYMM_OP_SUM : k->op;
    const void *partial[SYMM_MAX_RANKS];
    if (ck_domains < 2) {
        t->reduce[k->type][k->op](d->want, srcs, n, d->period, d->scalar);
        return;
    }
    char *all = malloc((size_t)ck_domains * bytes + 1);
    T_CHECK(all);
    for (int e = 0; e < ck_domains; e++) {
        const void *from[SYMM_MAX_RANKS];
        uint64_t scalar[SYMM_MAX_RANKS];
        int some = 0;
        for (int r = 0; r < n; r++)
            if (ck_domain_of[r] == e) scalar[some] = d->scalar[r], from[some++] = srcs[r];
        partial[e] = all + (size_t)e * bytes;
        t->reduce[k->type][op](all + (size_t)e * bytes, from, some, d->period, scalar);
    }
    t->reduce[k->type][op == SYMM_OP_PREMUL ? SYMM_OP_SUM : op](d->want, partial, ck_domains,
                                                                d->period, NULL);
    if (average) t->divide[k->type](d->want, d->period, n);
    free(all);
}

static inline void ck_data_make(const ck_case *k, int n, ck_data *d) {
    const size_t es = symm_type_size((unsigned)k->type);
    const void *srcs[SYMM_MAX_RANKS];
    const uint64_t all = k->count * (unsigned)coll_in(k->coll, n);
    d->period = all < CK_PERIOD ? all : CK_PERIOD;
    d->in = malloc((size_t)(n + 1) * d->period * es + 1);
    d->scalar = calloc((size_t)n, sizeof *d->scalar);
    T_CHECK(d->in && d->scalar);
    d->want = d->in + (size_t)n * d->period * es;
    for (int r = 0; r < n; r++) {
        char *at = d->in + (size_t)r * d->period * es;
        uint64_t s = k->random_bits ? ck_hash(k->seed, (uint64_t)r, 78)
                                    : ck_encode(k->type, ck_scalar(k, r));
        srcs[r] = at;
        memcpy(&d->scalar[r], &s, es);
        for (uint64_t i = 0; i < d->period; i++) {
            uint64_t v = ck_bits(k, r, n, i);
            memcpy(at + i * es, &v, es);
        }
    }
    if (!coll_reduces(k->coll)) return;
    /* A domain's part of an average is a sum, which narrow types do not hold exactly. */
    if (k->random_bits || (ck_domains > 1 && k->op == SYMM_OP_AVG)) {
        ck_reduce_bits(k, srcs, n, d);
        return;
    }
    for (uint64_t i = 0; i < d->period; i++) {
        uint64_t v = ck_reduced(k, n, i);
        memcpy(d->want + i * es, &v, es);
    }
}

static inline void ck_data_free(ck_data *d) {
    free(d->in);
    free(d->scalar);
}

/* `bytes` of the repeated pattern. */
static inline void ck_fill(char *p, uint64_t bytes, const char *pattern, uint64_t period) {
    for (uint64_t at = 0; at < bytes; at += period)
        memcpy(p + at, pattern, bytes - at < period ? bytes - at : period);
}

/* Where p differs from the repeated pattern, which begins at its byte `from`; or `bytes`. */
static inline uint64_t ck_differs(const char *p, uint64_t bytes, const char *pattern,
                                  uint64_t period, uint64_t from) {
    for (uint64_t at = 0, len; at < bytes; at += len) {
        const uint64_t phase = (from + at) % period;
        uint64_t j = 0;
        len = bytes - at < period - phase ? bytes - at : period - phase;
        if (memcmp(p + at, pattern + phase, len) == 0) continue;
        while (p[at + j] == pattern[phase + j]) j++;
        return at + j;
    }
    return bytes;
}

static inline void ck_guard(char *p, uint64_t bytes) {
    for (int j = 0; j < CK_GUARD; j++) p[j - CK_GUARD] = p[bytes + (unsigned)j] = (char)(0xc3 ^ j);
}
static inline int ck_guarded(const char *p, uint64_t bytes) {
    int ok = 1;
    for (int j = 0; j < CK_GUARD; j++)
        ok &= p[j - CK_GUARD] == (char)(0xc3 ^ j) && p[bytes + (unsigned)j] == (char)(0xc3 ^ j);
    return ok;
}

#endif
