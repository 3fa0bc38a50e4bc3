/* coll_kit.h - runs cases of coll_data.h: where buffers are, a call and the check of its result,
 * environments that force kernels, the matrix, epochs. For tests whose ranks are threads or
 * processes. Runs on each rank's thread; no state but the caller's; no lock. */
#ifndef COLL_KIT_H_
#define COLL_KIT_H_

#include "symm_domains.h"

#include "base/handle.h"
#include "host/comm/types.h"
#include "coll_data.h"

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
    symmComm_t comm, domain; /* domain: whose the windows are */
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
    T_OK(symmWindowRegister(w->domain, p, bytes, &w->win[w->nwin++], SYMM_WIN_DEFAULT));
}

/* Allocates and registers. [collective] */
static inline void ck_open_on(ck_world *w, symmComm_t comm, int rank, int n, uint64_t seed,
                              const ck_device *dev, symmStream_t stream) {
    const uint64_t both = 2ull * CK_HALF;
    *w = (ck_world){.rank = rank, .n = n, .comm = comm, .loose_even = seed & 1};
    w->dev = dev;
    w->stream = stream;
    T_OK(symmCommDomain(comm, &w->domain));
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
    for (int i = 0; deregister && i < w->nwin; i++)
        T_OK(symmWindowDeregister(w->domain, w->win[i]));
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
    coll_counts v;
    char *src, *dst, *hsrc, *hdst; /* h: as the host reaches them */
    uint64_t es, part, in, out;    /* bytes of an element, of `count` of them, of src, of dst */
    symmRedOp_t op;
} ck_call;

/* A buffer and what lies around it, to the device. */
static inline void ck_put(const ck_world *w, char *p, const char *host, uint64_t bytes) {
    if (w->dev) w->dev->put(w->stream, p - CK_GUARD, host - CK_GUARD, bytes + 2 * CK_GUARD);
}

static inline int ck_varies(const ck_call *c) {
    return symm_coll_varies(&symm_colls[c->k.coll]);
}
/* Whether the source, the result, is a buffer of its own: in place the smaller one is inside the
 * larger one. */
static inline int ck_own_src(const ck_call *c) {
    const symm_coll_row *row = &symm_colls[c->k.coll];
    return !c->k.in_place || (ck_varies(c) ? row->in > row->out : c->in > c->out);
}
static inline int ck_own_dst(const ck_call *c) {
    return !c->k.in_place || !ck_own_src(c);
}
/* Bytes of this rank's part for p (side 0) or from p (1), and where it begins in its buffer; p ==
 * n: where the buffer ends. */
static inline uint64_t ck_part(const ck_call *c, int side, int p) {
    return ck_varies(c) ? c->es * coll_part(c->k.coll, &c->v, side, c->w->rank, p) : c->part;
}
static inline uint64_t ck_part_at(const ck_call *c, int side, int p) {
    return ck_varies(c) ? c->es * coll_place(c->k.coll, &c->v, side, c->w->rank, p)
                        : c->part * (unsigned)p;
}

static inline void ck_refill(ck_call *c) {
    const uint64_t period = c->d.period * c->es;
    if (ck_own_src(c)) ck_guard(c->hsrc, c->in);
    if (ck_own_dst(c)) ck_guard(c->hdst, c->out);
    memset(c->hdst, 0x5a, c->out);
    if (period) ck_fill(c->hsrc, c->in, c->d.in + (unsigned)c->w->rank * period, period);
    if (ck_own_src(c)) ck_put(c->w, c->src, c->hsrc, c->in);
    if (ck_own_dst(c)) ck_put(c->w, c->dst, c->hdst, c->out);
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
    const int is_root = w->rank == k->root, in_place = k->in_place && !symm_colls[k->coll].apart;
    *c = (ck_call){.w = w, .k = *k, .op = (symmRedOp_t)k->op};
    c->k.in_place = in_place;
    c->es = symm_type_size((unsigned)k->type);
    c->part = k->count * c->es;
    c->v = ck_counts(k, w->n);
    c->in = ck_varies(c) ? ck_part_at(c, 0, w->n)
                         : c->part * (unsigned)coll_in_at(k->coll, w->n, is_root);
    c->out = ck_varies(c) ? ck_part_at(c, 1, w->n)
                          : c->part * (unsigned)coll_out_at(k->coll, w->n, is_root);
    ck_data_make(k, w->n, &c->d);
    char *both = ck_place(w, k, 1);
    c->dst = both + (in_place ? ck_part_at(c, 0, coll_recv_part(k->coll, w->rank)) : 0);
    c->src =
        !in_place ? ck_place(w, k, 0) : both + ck_part_at(c, 1, coll_send_part(k->coll, w->rank));
    c->hsrc = ck_host(w, c->src);
    c->hdst = ck_host(w, c->dst);
    ck_refill(c);
    if (k->op == SYMM_OP_PREMUL && coll_reduces(k->coll))
        T_OK(symmRedOpCreatePreMulSum(&c->op, ck_scalar_at(c), (symmDataType_t)k->type,
                                      k->seed & 1 ? symmScalarDevice : symmScalarHostImmediate,
                                      w->comm));
}

/* A buffer that this rank has no use for may be NULL. */
static inline char *ck_given(const ck_call *c, char *p, uint64_t bytes) {
    return bytes || (c->k.seed & 2) ? p : NULL;
}

static inline void ck_issue(ck_call *c, symmStream_t stream) {
    const ck_case *k = &c->k;
    symmDataType_t type = (symmDataType_t)k->type;
    char text[256];
    symmResult_t r =
        symm_test_call_v(k->coll, ck_given(c, c->src, c->in), ck_given(c, c->dst, c->out), k->count,
                         &c->v, c->w->rank, type, c->op, k->root, c->w->comm, stream);
    if (r != symmSuccess)
        T_CHECKF(0, "%s: %s; %s", ck_text(k, c->w->n, text, sizeof text), symmGetErrorString(r),
                 symmGetLastError(c->w->comm));
}

/* Which kernel runs the call. */
static inline const char *ck_kernel(const ck_call *c, symmExplain_t *plan) {
    plan->size = sizeof *plan;
    return symmExplain(c->w->comm, c->k.coll, c->src, c->dst, c->k.count, (symmDataType_t)c->k.type,
                       c->op, c->k.root, plan)
               ? "?"
               : plan->kernel;
}

/* `bytes` at p are the repeated pattern from its byte `from` on. */
static inline void ck_same(const ck_call *c, const char *what, const char *p, uint64_t bytes,
                           const char *pattern, uint64_t from) {
    const uint64_t period = c->d.period * c->es;
    char text[256];
    symmExplain_t plan;
    uint64_t at = period ? ck_differs(p, bytes, pattern, period, from) : bytes, v = 0, want = 0;
    if (at == bytes) return;
    at = at / c->es * c->es;
    memcpy(&v, p + at, c->es);
    memcpy(&want, pattern + (from + at) % period, c->es);
    T_CHECKF(0, "%s by %s: element %llu of %s is %#llx, must be %#llx",
             ck_text(&c->k, c->w->n, text, sizeof text), ck_kernel(c, &plan),
             (unsigned long long)(at / c->es), what, (unsigned long long)v,
             (unsigned long long)want);
}

/* What lies between the parts of a result with a count per rank is as it was: how many bytes are
 * not. */
static inline uint64_t ck_spilled(const ck_call *c) {
    uint64_t spilled = 0, parts = 0;
    for (int p = 0; p < c->w->n; p++) parts += ck_part(c, 1, p);
    for (uint64_t i = 0; i < c->out && parts < c->out; i++) {
        int inside = 0;
        for (int p = 0; p < c->w->n && !inside; p++)
            inside = i - ck_part_at(c, 1, p) < ck_part(c, 1, p);
        spilled += !inside && c->hdst[i] != 0x5a;
    }
    return spilled;
}

/* The result, part by part. */
static inline void ck_check_result(const ck_call *c) {
    const symm_call call = ck_call_of(&c->k);
    const int parts = coll_out_at(c->k.coll, c->w->n, c->w->rank == c->k.root);
    for (int p = 0; p < parts; p++) {
        const coll_origin o = coll_expect_v(&call, &c->v, c->w->rank, p);
        const char *pattern =
            o.from == EVERY_RANK ? c->d.want : c->d.in + (unsigned)o.from * c->d.period * c->es;
        ck_same(c, parts > 1 ? "a part" : "the result", c->hdst + ck_part_at(c, 1, p),
                ck_part(c, 1, parts > 1 ? p : c->w->rank), pattern, o.at * c->es);
    }
    if (ck_varies(c) && parts > 1) T_EQ(ck_spilled(c), 0);
}

/* A buffer and what lies around it, from the device. */
static inline void ck_get(const ck_world *w, char *host, const char *p, uint64_t bytes) {
    if (w->dev)
        w->dev->get(w->comm, w->stream, host - CK_GUARD, p - CK_GUARD, bytes + 2 * CK_GUARD);
}

/* After the call has ended, or its end in its stream: the result, the source, and what lies around
 * both. */
static inline void ck_check(const ck_call *c) {
    char text[256];
    if (ck_own_dst(c)) ck_get(c->w, c->hdst, c->dst, c->out);
    if (ck_own_src(c)) ck_get(c->w, c->hsrc, c->src, c->in);
    ck_check_result(c);
    if (!c->k.in_place)
        ck_same(c, "the source", c->hsrc, c->in,
                c->d.in + (unsigned)c->w->rank * c->d.period * c->es, 0);
    T_CHECKF((!ck_own_dst(c) || ck_guarded(c->hdst, c->out)) &&
                 (!ck_own_src(c) || ck_guarded(c->hsrc, c->in)),
             "%s: bytes around a buffer were written", ck_text(&c->k, c->w->n, text, sizeof text));
}

static inline void ck_end(ck_call *c) {
    if (c->op >= symmNumOps && coll_reduces(c->k.coll)) T_OK(symmRedOpDestroy(c->op, c->w->comm));
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

/* SYMM_ALGO of environment i: of each collective the kernel of that number, of those for more than
 * one rank, round and round; "" in the last one. */
static inline const char *ck_algo(int i, char *text, size_t cap) {
    size_t at = 0;
    text[0] = 0;
    for (int c = 0; c < symmNumColls && i < CK_ALGOS - 1; c++) {
        int kernels[SYMM_KERNEL_COUNT];
        const int n = coll_kernels((symmColl_t)c, SYMM_K_HOST, SYMM_MAX_RANKS, kernels);
        T_CHECKF(n < CK_ALGOS, "CK_ALGOS is too small for %s", symm_coll_name(c));
        if (coll_moves((symmColl_t)c) && n > 1) /* else it runs anyway */
            at += (size_t)snprintf(text + at, cap - at, "%s%s:%s", at ? "," : "", symm_coll_name(c),
                                   symm_kernels[kernels[i % n]].name);
    }
    T_CHECK(at < cap);
    return text;
}

/* Environment i of 8 for the next communicator; equal on all ranks. Kernels, CTAs, scratch and
 * whether buffers in no window are staged, in all pairs. */
static inline void ck_env(int i) {
    const int algo = i % CK_ALGOS, b = i / CK_ALGOS;
    char text[512];
    setenv("SYMM_ALGO", ck_algo(algo, text, sizeof text), 1);
    setenv("SYMM_CTAS", (b ^ (algo & 1)) & 1 ? "3" : "1", 1);
    setenv("SYMM_SCRATCH", (b ^ (algo >> 1)) & 1 ? "1M" : "16M", 1);
    setenv("SYMM_DIRECT", (b ^ algo ^ (algo >> 1)) & 1 ? "2" : "0", 1);
}

/* 1 if a kernel that environment i forces has run on this communicator, or none is forced. */
static inline int ck_forced_ran(symmComm_t comm, int i) {
    symmComm_t domain;
    int ran = 0, forced = 0;
    T_OK(symmCommDomain(comm, &domain));
    const symm_comm *c = symm_handle_peek(SYMM_KIND_COMM, domain);
    for (int k = 0; k < symmNumColls; k++) {
        forced |= c->calls.forced[k] >= 0;
        if (c->calls.forced[k] >= 0) ran |= atomic_load(&c->calls.launches[c->calls.forced[k]]) > 0;
    }
    T_EQ(forced, i % CK_ALGOS != CK_ALGOS - 1);
    return c->nranks == 1 || !forced || ran || domain != comm; /* which runs others too */
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

/* Calls in which ranks go ahead have no epoch. */
static inline uint32_t ck_epoch(symmComm_t comm) {
    symm_comm *c = symm_handle_peek(SYMM_KIND_COMM, comm);
    return c->ctl->epoch[0] + c->ctl->ahead.calls;
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
