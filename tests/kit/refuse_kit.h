/* refuse_kit.h - every call of the CUDA driver that a phase makes, refused in turn on each rank, on
 * the fake driver: all ranks say the same, nobody waits, nothing is left, and the same process
 * does it again, and it works. Ranks are forked. No lock: what ranks share stands behind
 * barriers. */
#ifndef REFUSE_KIT_H_
#define REFUSE_KIT_H_

#include "fault_kit.h"
#include "fgpu_kit.h"
#include "fake_nvml.h"

enum { RANKS = 2, CODE = SYMM_CUDA_ERROR_UNKNOWN, SLOW_MS = 5000, WIN = 3 << 20 };

/* What gives something back. Refused, it leaves that behind: tested apart. The two of scopes cannot
 * be refused by a driver that took the push. */
static inline int gives_back(const char *call) {
    static const char *const names[] = {
        "cuMemUnmap",        "cuMemAddressFree",    "cuMemRelease",
        "cuEventDestroy",    "cuCtxPopCurrent",     "cuMemHostUnregister",
        "cuMulticastUnbind", "cuUserObjectRelease", "cuThreadExchangeStreamCaptureMode"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(names[i], call) == 0) return 1;
    return 0;
}

/* What only describes, or is tried and done without. */
static inline int can_do_without(const char *call) {
    static const char *const names[] = {
        "cuGetErrorName",
        "cuDeviceGetAttribute",  /* fabric handles: an attribute of newer drivers */
        "cuDeviceGetUuid",       /* of other GPUs, to name a pair early */
        "cuDeviceGetPCIBusId",   /* by which NVML knows a GPU: then it is in no fabric over hosts */
        "cuDeviceCanAccessPeer", /* as no access, where nobody needs it */
        "cuMemGetAllocationPropertiesFromHandle", /* of imported memory: whose it is */
        "cuDeviceGetCount",
        "cuPointerGetAttribute"}; /* what a buffer is: without an answer the launch tells */
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(names[i], call) == 0) return 1;
    return 0;
}

/* Which hits of a call that a phase makes `count` times are refused: the i-th, 0 at the end. They
 * are the first four and the last; T_FULL=1: all. A call that is made more often than NOT_A_LOOP
 * stands in a loop over all kernels, whose turns are alike: of these hits T_FULL=1 takes the first
 * four, then each at twice the number, and the last. */
enum { NOT_A_LOOP = 100 };
static inline int hit_of(int i, int count) {
    const char *text = getenv("T_FULL");
    const int full = text && atoi(text) > 0, twice = i < 4 ? 0 : 4 << (i - 3);
    if (i < 4 || (full && count <= NOT_A_LOOP)) return i < count ? i + 1 : 0;
    if (full) return twice < count ? twice : twice < 2 * count ? count : 0;
    return i == 4 && count > 4 ? count : 0;
}

static inline int calls_of(const gk_calls *before, int call) {
    return fake_cuda_calls(fake_cuda_call_name(call)) - before->n[call];
}

/* ---- one rank ------------------------------------------------------------------------------- */

typedef struct {
    fk k;
    _Atomic int count[GK_CALLS]; /* calls of the phase, as the rank without a failure counts them */
    _Atomic int cast[RANKS];     /* what cast_of said */
} shared;

typedef struct {
    symmComm_t comm;
    symmWindow_t win;
    void *mem;
    cu_stream stream[2];
} rank_of;

/* Not NULL: multicast windows are asked for, and it says whether what the phase has made is bound.
 * A call that was refused may leave that out, on all ranks alike, instead of failing. */
static int (*cast_of)(const rank_of *me);
static const char *spared = ""; /* a call besides that may be refused without effect */

/* 1: the driver has fabric handles, and all memory goes by them; ON_HOSTS: and each rank plays a
 * host of one fabric. */
enum { ON_HOSTS = 2 };
static int by_fabric;
extern int symm_test_where[2]; /* where.c */

static inline void fresh(int rank) {
    char device[8];
    fake_cuda_config config = gk_config(RANKS, 0);
    snprintf(device, sizeof device, "%d", rank);
    setenv("SYMM_DEVICE", device, 1);
    if (by_fabric) setenv("SYMM_HANDLES", "fabric", 1);
    config.fabric_attr = by_fabric != 0;
    if (by_fabric) config.fabric_code = 0;
    gk_env("cuda");
    gk_install(&config);
    setenv("SYMM_SETUP_TIMEOUT", "20000", 1);
    if (cast_of) setenv("SYMM_MULTICAST", "1", 1);
    if (by_fabric != ON_HOSTS) return;
    symm_test_where[0] = rank;
    setenv("SYMM_SOCKET_IFNAME", "lo", 1);
    for (int d = 0; d < RANKS; d++) fake_nvml_set(d, 1, 1);
}

static inline void make(fk *f, int rank, int n, rank_of *me) {
    me->comm = fk_open(f, rank, n);
    T_OK(symmMemAlloc(&me->mem, WIN));
    for (int i = 0; i < 2; i++) me->stream[i] = gk_stream(rank);
}

static inline void works(symmComm_t comm, int rank, const char *name, int nth) {
    int had = gk_last(rank).count;
    symmResult_t r = symmBarrier(comm, NULL);
    T_CHECKF(!r && gk_last(rank).count == had + 1, "%s %d: afterwards: %s", name, nth,
             symmGetLastError(comm));
}

static inline symmResult_t do_register(fk *f, int rank, rank_of *me) {
    (void)f, (void)rank;
    return symmWindowRegister(me->comm, me->mem, WIN, &me->win, SYMM_WIN_DEFAULT);
}

static inline void done(rank_of *me) {
    if (me->win) T_OK(symmWindowDeregister(me->comm, me->win));
    if (me->comm) T_OK(symmCommDestroy(me->comm));
    if (me->mem) T_OK(symmMemFree(me->mem));
}

typedef struct {
    const char *name;
    void (*before)(fk *f, int rank, int n, rank_of *me);
    symmResult_t (*act)(fk *f, int rank, rank_of *me);
    int breaks; /* a failure ends the communicator */
    void (*after)(
        fk *f, int rank, int n,
        rank_of
            *me); /* NULL, or looks at what is there then, and ends what `before` and `act` made */
} phase;

/* ---- one refusal ---------------------------------------------------------------------------- */

static inline void judge(const shared *s, int n, const phase *p, const char *call, int nth,
                         int met) {
    const fk *f = &s->k;
    const int code = f->k.code[f->victim], cast = s->cast[f->victim];
    for (int r = 0; r < n; r++) {
        T_CHECKF(f->k.code[r] == code,
                 "%s: %s %d of rank %d: rank %d has %d (%s), the victim %d (%s)", p->name, call,
                 nth, f->victim, r, f->k.code[r], f->k.text[r], code, f->k.text[f->victim]);
        T_CHECKF(!code || strstr(f->k.text[r], "CUDA") || strstr(f->k.text[r], "memory driver") ||
                     strstr(f->k.text[r], "device"),
                 "%s: %s %d: rank %d says only \"%s\"", p->name, call, nth, r, f->k.text[r]);
        T_CHECKF(code || s->cast[r] == cast, "%s: %s %d: is rank %d's bound? %d, of the victim %d",
                 p->name, call, nth, r, s->cast[r], cast);
    }
    T_CHECKF(met || code || !cast_of || cast, "%s: it is not bound, and why not?", p->name);
    T_CHECKF(!met || code || (cast_of && !cast) || can_do_without(call) ||
                 strcmp(call, spared) == 0,
             "%s: %s %d was refused and nothing came of it", p->name, call, nth);
}

static inline int refuse(const phase *p, shared *s, int rank, int n, int call, int nth) {
    fk *f = &s->k;
    rank_of me = {NULL, NULL, NULL, {NULL, NULL}}, again = me;
    const char *name = call < 0 ? "no call" : fake_cuda_call_name(call);
    fk_gauges before = fk_take();
    fresh(rank);
    p->before(f, rank, n, &me);
    kit_barrier(&f->k, n);
    gk_calls counted = gk_count();
    if (call >= 0 && rank == f->victim) fake_cuda_fail(name, nth, CODE);
    uint64_t since = symm_now_ns();
    fk_note(f, rank, p->act(f, rank, &me));
    T_CHECKF(fk_ms_since(since) < SLOW_MS, "%s: %s %d: rank %d waited", p->name, name, nth, rank);
    if (call < 0 && rank == f->victim)
        for (int i = 0; fake_cuda_call_name(i); i++) s->count[i] = calls_of(&counted, i);
    int met = rank == f->victim && call >= 0 && !fake_cuda_fail_waits();
    fake_cuda_fail("cuInit", 1, 0);
    atomic_store(&s->cast[rank], cast_of && !f->k.code[rank] ? cast_of(&me) : 0);
    kit_barrier(&f->k, n);
    if (rank == f->victim) judge(s, n, p, name, nth, met);
    const int failed = f->k.code[rank] != 0;
    if (me.comm && !(failed && p->breaks)) works(me.comm, rank, name, nth);
    kit_barrier(&f->k, n);
    if (p->after) p->after(f, rank, n, &me);
    kit_barrier(&f->k, n);
    done(&me);
    FK_UNCHANGED(&before);
    GK_LEFT(0);
    if (!failed) return met;
    make(f, rank, n, &again);
    T_OK(do_register(f, rank, &again));
    works(again.comm, rank, name, nth);
    kit_barrier(&f->k, n);
    done(&again);
    FK_UNCHANGED(&before);
    GK_LEFT(0);
    return met;
}

static inline void refuse_all(const phase *p, shared *s, int rank, int n) {
    int met = 0;
    T_EQ(refuse(p, s, rank, n, -1, 0), 0);
    T_EQ(s->k.k.code[rank], 0);
    for (int call = 0; fake_cuda_call_name(call); call++) {
        if (gives_back(fake_cuda_call_name(call))) continue;
        const int count = atomic_load(&s->count[call]);
        for (int i = 0, nth; (nth = hit_of(i, count)) > 0; i++)
            met += refuse(p, s, rank, n, call, nth);
    }
    if (rank == s->k.victim) T_CHECKF(met > 5, "%s: only %d refusals were met", p->name, met);
}

static inline void each_rank(t_rank_fn fn) {
    T_EXPECT_WARNINGS();
    for (int victim = 0; victim < RANKS; victim++) {
        shared *s = T_SHARED(sizeof *s);
        s->k.victim = victim;
        T_FORK(RANKS, fn, s);
    }
}

#endif
