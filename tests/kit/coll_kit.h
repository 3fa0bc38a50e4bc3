/* coll_kit.h - cases of collectives for tests whose ranks are threads or processes: where buffers
 * lie, what is in them, and what must come out, bit for bit. Every rank makes every rank's input
 * from (seed, rank), so no result is taken from a peer.
 *
 * Two kinds of data. Small integers, chosen so that each step and the result are exact in the type:
 * the expected result is computed here, in 64-bit integers. And random bit patterns (NaN,
 * infinities, subnormals, overflow): the expected result is that of the plain build of the
 * reductions (proved by unit_reduce.c) over all inputs in rank order. Data repeats every CK_PERIOD
 * elements, a prime, so that no chunk, slice or packet begins where another one does.
 *
 * Runs on each rank's thread; no state but the caller's; no lock. */
#ifndef COLL_KIT_H_
#define COLL_KIT_H_

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "device/host/reduce.h"
#include "base/handle.h"
#include "host/comm/types.h"
#include "t.h"

enum { CK_SLOW = T_TSAN, CK_LARGE = T_TSAN ? 300007 : 1500007 };

enum {
    CK_PERIOD = 1021,
    CK_GUARD = 128,
    CK_HALF = 16 << 20,           /* bytes of an arena for sources, and as many for destinations */
    CK_ROOM = CK_HALF - (4 << 10) /* of these, for one buffer */
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
    int type, op; /* op: SYMM_OP_* */
    uint64_t count, seed;
    int in_place, random_bits, registered, src_mis, dst_mis; /* mis: bytes */
} ck_case;

static inline const char *ck_text(const ck_case *k, int n, char *text, size_t cap) {
    static const char *const types[] = {"int8",    "uint8",    "int32",   "uint32",
                                        "int64",   "uint64",   "float16", "float32",
                                        "float64", "bfloat16", "e4m3",    "e5m2"};
    static const char *const ops[] = {"sum", "prod", "max", "min", "avg", "premulsum"};
    static const char *const where[] = {"none", "both", "src", "dst", "per rank"};
    snprintf(text, cap, "%s n=%d %s %s count=%llu%s%s registered=%s misaligned=%d,%d seed=%#llx",
             k->coll == symmCollAllReduce ? "all_reduce" : "all_gather", n, types[k->type],
             k->coll == symmCollAllReduce ? ops[k->op] : "", (unsigned long long)k->count,
             k->in_place ? " in place" : "", k->random_bits ? " random bits" : "",
             where[k->registered], k->src_mis, k->dst_mis, (unsigned long long)k->seed);
    return text;
}

/* Case j of a sample: types times reductions are met in full every 72 cases, the rest is drawn. */
static inline ck_case ck_sample(uint64_t seed, int j, int n) {
    static const uint64_t counts[] = {0,  1,   2,    3,    7,    13,   14,    15,
                                      64, 100, 1000, 1023, 4096, 4099, 100003};
    static const int mis[] = {0, 1, 3};
    uint64_t h = ck_hash(seed, (uint64_t)j, 1), g = ck_hash(seed, (uint64_t)j, 2);
    ck_case k = {.type = j % 12, .op = j / 12 % 6, .seed = ck_hash(seed, (uint64_t)j, 3)};
    const int es = (int)symm_type_size((unsigned)k.type);
    k.coll = j % 4 == 3 ? symmCollAllGather : symmCollAllReduce;
    if (j / 72 % 2) k.coll = j % 4 == 3 ? symmCollAllReduce : symmCollAllGather;
    k.count = counts[h % 15];
    if (h >> 8 & 1) k.count = counts[(h >> 16) % 14]; /* fewer of the last */
    if (j % 29 == 7) k.count = CK_LARGE + (h >> 32) % 5;
    k.in_place = g & 1;
    k.random_bits = g >> 1 & 1;
    k.registered = (int)((g >> 8) % CK_REGISTERED);
    k.src_mis = es * mis[(g >> 16) % 3];
    k.dst_mis = es * mis[(g >> 24) % 3];
    if ((g >> 32) % 8 == 0) k.dst_mis += 1; /* not even aligned to the element */
    uint64_t most = CK_ROOM / (unsigned)es / (k.coll == symmCollAllGather ? (unsigned)n : 1u);
    if (k.count > most) k.count = most;
    return k;
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
    return ck_encode(k->type, k->op == SYMM_OP_AVG ? acc / n : acc);
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

static inline void ck_data_make(const ck_case *k, int n, ck_data *d) {
    const size_t es = symm_type_size((unsigned)k->type);
    const void *srcs[SYMM_MAX_RANKS];
    d->period = k->count < CK_PERIOD ? k->count : CK_PERIOD;
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
    if (k->coll != symmCollAllReduce) return;
    if (k->random_bits) {
        symm_reduce_isa("base")->reduce[k->type][k->op](d->want, srcs, n, d->period, d->scalar);
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

/* Where p differs from the repeated pattern, or `bytes`. */
static inline uint64_t ck_differs(const char *p, uint64_t bytes, const char *pattern,
                                  uint64_t period) {
    for (uint64_t at = 0; at < bytes; at += period) {
        uint64_t len = bytes - at < period ? bytes - at : period, j = 0;
        if (memcmp(p + at, pattern, len) == 0) continue;
        while (p[at + j] == pattern[j]) j++;
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

/* ---- where buffers lie ---- */

/* HEAP: malloc. LOOSE: could be registered, is not, or on even ranks only. WHOLE: one window, and a
 * smaller one inside. PARTS: a window for each half. SHIFTED: a window that begins and ends
 * elsewhere on each rank. */
enum { CK_HEAP, CK_LOOSE, CK_WHOLE, CK_PARTS, CK_SHIFTED, CK_ARENAS };
enum { CK_BYTES = 2 * CK_HALF + (1 << 20) }; /* of an arena */

/* Memory that the host cannot touch (gpu_kit.h). A shadow of the host's is filled and checked in
 * its place, one for all arenas, as a call's source and result lie in different halves; put and get
 * are ordered on the world's stream, get has ended on return. */
typedef struct {
    char *(*heap)(uint64_t bytes), *(*shadow)(uint64_t bytes);
    void (*free_heap)(char *heap), (*free_shadow)(char *shadow);
    void (*put)(symmStream_t stream, char *device, const char *host, uint64_t bytes);
    void (*get)(symmComm_t comm, symmStream_t stream, char *host, const char *device,
                uint64_t bytes);
} ck_device;

typedef struct {
    int rank, n;
    symmComm_t comm;
    char *memory[CK_ARENAS], *half[CK_ARENAS][2];
    symmWindow_t win[8];
    int nwin, loose_even;
    const ck_device *dev; /* NULL: host memory */
    char *shadow;
    symmStream_t stream; /* of all calls */
} ck_world;

/* Where the host finds what lies at p. */
static inline char *ck_host(const ck_world *w, char *p) {
    int a = 0;
    while (w->dev && (uintptr_t)p - (uintptr_t)w->memory[a] >= CK_BYTES) a++;
    return w->dev ? w->shadow + (p - w->memory[a]) : p;
}

static inline void ck_register(ck_world *w, char *p, uint64_t bytes) {
    T_OK(symmWindowRegister(w->comm, p, bytes, &w->win[w->nwin++], SYMM_WIN_DEFAULT));
}

/* Allocates and registers. [collective] */
static inline void ck_open_on(ck_world *w, symmComm_t comm, int rank, int n, uint64_t seed,
                              const ck_device *dev, symmStream_t stream) {
    const uint64_t both = 2ull * CK_HALF;
    *w = (ck_world){.rank = rank, .n = n, .comm = comm, .loose_even = seed & 1};
    w->dev = dev;
    w->stream = stream;
    if (dev) w->shadow = dev->shadow(CK_BYTES);
    for (int a = 0; a < CK_ARENAS; a++) {
        uint64_t h = ck_hash(seed, (uint64_t)rank, 3000 + (uint64_t)a);
        uint64_t shift = a == CK_SHIFTED ? h % 5000 * 8 : 0;
        if (a == CK_HEAP)
            T_CHECK((w->memory[a] = dev ? dev->heap(CK_BYTES) : malloc(CK_BYTES)) != NULL);
        else
            T_OK(symmMemAlloc((void **)&w->memory[a], CK_BYTES));
        w->half[a][0] = w->memory[a] + shift;
        w->half[a][1] = w->memory[a] + shift + CK_HALF;
        if (a == CK_LOOSE && w->loose_even) {
            if (rank % 2)
                ck_register(w, NULL, 0);
            else
                ck_register(w, w->half[a][0], both);
        }
        if (a == CK_WHOLE) ck_register(w, w->half[a][0], both);
        if (a == CK_WHOLE) ck_register(w, w->half[a][0] + 1024, 65536);
        if (a == CK_PARTS) ck_register(w, w->half[a][1], CK_HALF + (h >> 16) % 4096);
        if (a == CK_PARTS) ck_register(w, w->half[a][0], CK_HALF);
        if (a == CK_SHIFTED) ck_register(w, w->half[a][0], both + (h >> 32) % 4096);
    }
}

static inline void ck_open(ck_world *w, symmComm_t comm, int rank, int n, uint64_t seed) {
    ck_open_on(w, comm, rank, n, seed, NULL, NULL);
}

/* Every second time the windows are left to the communicator's destruction. */
static inline void ck_close(ck_world *w, int deregister) {
    for (int i = 0; deregister && i < w->nwin; i++) T_OK(symmWindowDeregister(w->comm, w->win[i]));
    T_OK(symmCommDestroy(w->comm));
    if (w->dev)
        w->dev->free_heap(w->memory[CK_HEAP]);
    else
        free(w->memory[CK_HEAP]);
    for (int a = CK_LOOSE; a < CK_ARENAS; a++) T_OK(symmMemFree(w->memory[a]));
    if (w->dev) w->dev->free_shadow(w->shadow);
}

static inline int ck_arena(const ck_world *w, const ck_case *k, int is_dst) {
    uint64_t h = ck_hash(k->seed, (uint64_t)w->rank, 4000 + (uint64_t)is_dst);
    int inside = k->registered == CK_BOTH || k->registered == (is_dst ? CK_ONLY_DST : CK_ONLY_SRC);
    if (k->registered == CK_PER_RANK) return (int)(h % CK_ARENAS);
    if (inside) return CK_WHOLE + (int)(h % 3);
    return w->loose_even ? CK_HEAP : (int)(h % 2);
}

static inline char *ck_place(const ck_world *w, const ck_case *k, int is_dst) {
    uint64_t h = ck_hash(k->seed, (uint64_t)w->rank, 5000 + (uint64_t)is_dst);
    return w->half[ck_arena(w, k, is_dst)][is_dst] + CK_GUARD + h % 8 * 64 +
           (is_dst ? k->dst_mis : k->src_mis);
}

/* ---- running ---- */

typedef struct {
    const ck_world *w;
    ck_case k;
    ck_data d;
    char *src, *dst, *hsrc, *hdst; /* h: as the host reaches them */
    uint64_t es, in, out;          /* bytes of an element, of src, of dst */
    symmRedOp_t op;
} ck_call;

/* A buffer and what lies around it, to the device. */
static inline void ck_put(const ck_world *w, char *p, const char *host, uint64_t bytes) {
    if (w->dev) w->dev->put(w->stream, p - CK_GUARD, host - CK_GUARD, bytes + 2 * CK_GUARD);
}

static inline void ck_refill(ck_call *c) {
    const ck_case *k = &c->k;
    const uint64_t period = c->d.period * c->es;
    if (!k->in_place) ck_guard(c->hsrc, c->in);
    ck_guard(c->hdst, c->out);
    memset(c->hdst, 0x5a, c->out);
    if (period) ck_fill(c->hsrc, c->in, c->d.in + (unsigned)c->w->rank * period, period);
    if (!k->in_place) ck_put(c->w, c->src, c->hsrc, c->in);
    ck_put(c->w, c->dst, c->hdst, c->out);
}

/* This rank's scalar as symmScalarDevice wants it: where the device can read it. */
static inline void *ck_scalar_at(ck_call *c) {
    const ck_world *w = c->w;
    char *at = w->memory[CK_LOOSE] + CK_BYTES - 64;
    if (!w->dev || !(c->k.seed & 1)) return &c->d.scalar[w->rank];
    memcpy(ck_host(w, at), &c->d.scalar[w->rank], c->es);
    w->dev->put(w->stream, at, ck_host(w, at), c->es);
    return at;
}

/* Makes data and buffers of the case. */
static inline void ck_begin(ck_call *c, const ck_world *w, const ck_case *k) {
    *c = (ck_call){.w = w, .k = *k, .op = (symmRedOp_t)k->op};
    const int gather = k->coll == symmCollAllGather;
    c->es = symm_type_size((unsigned)k->type);
    c->in = k->count * c->es;
    c->out = gather ? c->in * (unsigned)w->n : c->in;
    ck_data_make(k, w->n, &c->d);
    c->dst = ck_place(w, k, 1);
    c->src = !k->in_place ? ck_place(w, k, 0) : c->dst + (gather ? (unsigned)w->rank * c->in : 0);
    c->hsrc = ck_host(w, c->src);
    c->hdst = ck_host(w, c->dst);
    ck_refill(c);
    if (k->op == SYMM_OP_PREMUL && !gather)
        T_OK(symmRedOpCreatePreMulSum(&c->op, ck_scalar_at(c), (symmDataType_t)k->type,
                                      k->seed & 1 ? symmScalarDevice : symmScalarHostImmediate,
                                      w->comm));
}

static inline void ck_issue(ck_call *c, symmStream_t stream) {
    const ck_case *k = &c->k;
    symmDataType_t type = (symmDataType_t)k->type;
    char text[256];
    symmResult_t r = k->coll == symmCollAllReduce
                         ? symmAllReduce(c->src, c->dst, k->count, type, c->op, c->w->comm, stream)
                         : symmAllGather(c->src, c->dst, k->count, type, c->w->comm, stream);
    if (r != symmSuccess)
        T_CHECKF(0, "%s: %s; %s", ck_text(k, c->w->n, text, sizeof text), symmGetErrorString(r),
                 symmGetLastError(c->w->comm));
}

static inline void ck_same(const ck_call *c, const char *what, const char *p, const char *pattern) {
    const uint64_t period = c->d.period * c->es;
    char text[256];
    uint64_t at = period ? ck_differs(p, c->in, pattern, period) : c->in, v = 0, want = 0;
    if (at == c->in) return;
    memcpy(&v, p + at / c->es * c->es, c->es);
    memcpy(&want, pattern + at % period / c->es * c->es, c->es);
    T_CHECKF(0, "%s: element %llu of %s is %#llx, must be %#llx",
             ck_text(&c->k, c->w->n, text, sizeof text), (unsigned long long)(at / c->es), what,
             (unsigned long long)v, (unsigned long long)want);
}

/* A buffer and what lies around it, from the device. */
static inline void ck_get(const ck_world *w, char *host, const char *p, uint64_t bytes) {
    if (w->dev)
        w->dev->get(w->comm, w->stream, host - CK_GUARD, p - CK_GUARD, bytes + 2 * CK_GUARD);
}

/* After the call has ended, or its end in its stream: the result, the source, and what lies around
 * both. */
static inline void ck_check(const ck_call *c) {
    const uint64_t period = c->d.period * c->es;
    char text[256];
    const int gather = c->k.coll == symmCollAllGather;
    ck_get(c->w, c->hdst, c->dst, c->out);
    if (!c->k.in_place) ck_get(c->w, c->hsrc, c->src, c->in);
    if (!gather) ck_same(c, "the result", c->hdst, c->d.want);
    for (int r = 0; gather && r < c->w->n; r++)
        ck_same(c, "a part", c->hdst + (unsigned)r * c->in, c->d.in + (unsigned)r * period);
    if (!c->k.in_place) ck_same(c, "the source", c->hsrc, c->d.in + (unsigned)c->w->rank * period);
    T_CHECKF(ck_guarded(c->hdst, c->out) && (c->k.in_place || ck_guarded(c->hsrc, c->in)),
             "%s: bytes around a buffer were written", ck_text(&c->k, c->w->n, text, sizeof text));
}

static inline void ck_end(ck_call *c) {
    if (c->op >= symmNumOps && c->k.coll == symmCollAllReduce)
        T_OK(symmRedOpDestroy(c->op, c->w->comm));
    ck_data_free(&c->d);
}

static inline void ck_run(const ck_world *w, const ck_case *k) {
    ck_call c;
    ck_begin(&c, w, k);
    ck_issue(&c, w->stream);
    ck_check(&c);
    ck_end(&c);
}

/* ---- communicators of all kinds ---- */

enum { CK_ALGOS = 4, CK_ENVS = 8 };

static inline const char *ck_algo(int i) {
    static const char *const algos[CK_ALGOS] = {
        "all_reduce_push_packet,all_gather_push_packet", "all_reduce_2shot_packet,all_gather_load",
        "all_reduce_load_store,all_gather:all_gather_push_packet", ""};
    return algos[i];
}

/* Environment i of 8 for the next communicator; equal on all ranks. Kernels, CTAs and scratch in
 * all pairs. */
static inline void ck_env(int i) {
    const int algo = i % CK_ALGOS, b = i / CK_ALGOS;
    setenv("SYMM_ALGO", ck_algo(algo), 1);
    setenv("SYMM_CTAS", (b ^ (algo & 1)) & 1 ? "3" : "1", 1);
    setenv("SYMM_SCRATCH", (b ^ (algo >> 1)) & 1 ? "1M" : "16M", 1);
}

/* 1 if a kernel that environment i forces has run on this communicator, or none is forced. */
static inline int ck_forced_ran(symmComm_t comm, int i) {
    const symm_comm *c = symm_handle_peek(SYMM_KIND_COMM, comm);
    int ran = 0, forced = 0;
    for (int k = 0; k < symmNumColls; k++) {
        forced |= c->calls.forced[k] >= 0;
        if (c->calls.forced[k] >= 0) ran |= atomic_load(&c->calls.launches[c->calls.forced[k]]) > 0;
    }
    T_EQ(forced, i % CK_ALGOS != CK_ALGOS - 1);
    return c->nranks == 1 || !forced || ran;
}

/* The sample of environment i on one rank; destroys the communicator. */
static inline void ck_matrix(symmComm_t comm, int rank, int n, uint64_t seed, int i, int cases) {
    ck_world w;
    ck_open(&w, comm, rank, n, ck_hash(seed, (uint64_t)i, 6000));
    for (int j = 0; j < cases; j++) {
        ck_case k = ck_sample(ck_hash(seed, (uint64_t)i, 7000), j + i * cases, n);
        ck_run(&w, &k);
    }
    T_CHECK(ck_forced_ran(comm, i));
    ck_close(&w, i & 1);
}

/* ---- epochs ---- */

/* Every epoch word of this rank. Between two barriers that are not the communicator's. */
static inline void ck_set_epochs(symmComm_t comm, uint32_t epoch) {
    symm_comm *c = symm_handle_peek(SYMM_KIND_COMM, comm);
    for (int b = 0; b < SYMM_MAX_CTAS; b++) c->ctl->epoch[b] = epoch;
}

static inline uint32_t ck_epoch(symmComm_t comm) {
    symm_comm *c = symm_handle_peek(SYMM_KIND_COMM, comm);
    return c->ctl->epoch[0];
}

/* 64 calls of mixed sizes from epoch 0xfffffff0 on, so over the wrap. */
static inline void ck_wrap(ck_world *w, uint64_t seed) {
    for (int j = 0; j < 64; j++) {
        ck_case k = ck_sample(seed, j, w->n);
        if (k.count > 20000) k.count = 20000;
        if (j % 7 == 6)
            T_OK(symmBarrier(w->comm, NULL));
        else
            ck_run(w, &k);
    }
    T_EQ(ck_epoch(w->comm), 0xfffffff0u + 64u + 2u); /* 0 and 1 are passed over */
}

#endif
