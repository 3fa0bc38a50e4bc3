/* heap_kit.h - what the tests of heaps share: ranks as processes or as threads, heaps of few
 * chunks, blocks whose bytes are checked. Each rank uses it from its own thread; shared fields
 * are atomics, or written before a barrier and read after it. */
#ifndef HEAP_KIT_H_
#define HEAP_KIT_H_

#include "host/heap/heap_int.h"
#include "fault_kit.h"
#include "symm_heap.h"

#define HK_MB (1ull << 20)

typedef struct {
    fk *f;
    int rank, n, threads;
    symmComm_t comm;
    void (*fn)(void *hk);
    void *arg;
    symmComm_t *comms;
} hk;

typedef struct {
    fk *f;
    void (*fn)(void *hk);
    void *arg;
    symmComm_t *comms;
} hk_call;

static inline void hk_env(void) {
    setenv("SYMM_SCRATCH", "1M", 1);
    setenv("SYMM_WIN_STRIDE", "4G", 1);
    setenv("SYMM_SETUP_TIMEOUT", "20000", 1);
}

static inline void hk_barrier(hk *k) {
    kit_barrier(&k->f->k, k->n);
}

static inline void hk_process(int rank, int n, void *arg) {
    hk_call *call = arg;
    hk_env();
    symm_log_rank(rank);
    hk k = {.f = call->f, .rank = rank, .n = n, .fn = call->fn, .arg = call->arg};
    k.comm = fk_open(k.f, rank, n);
    k.fn(&k);
    if (k.comm) T_OK(symmCommDestroy(k.comm));
}

static inline void hk_thread(int rank, int n, void *arg) {
    hk_call *call = arg;
    symm_log_rank(rank);
    hk k = {.f = call->f, .rank = rank, .n = n, .threads = 1, .fn = call->fn, .arg = call->arg};
    k.comms = call->comms;
    k.comm = call->comms[rank];
    k.fn(&k);
    if (k.comm) T_OK(symmCommDestroy(k.comm));
}

/* fn on n ranks that are processes, or threads. It ends with the communicator alive, or sets
 * k->comm to NULL. */
static inline void hk_processes(int n, void (*fn)(void *), void *arg) {
    hk_call call = {fk_new(0, 0), fn, arg, NULL};
    T_FORK(n, hk_process, &call);
}

static inline void hk_threads(int n, void (*fn)(void *), void *arg) {
    symmComm_t comms[16];
    hk_env();
    T_OK(symmCommInitAll(comms, n, NULL));
    hk_call call = {fk_new(0, 0), fn, arg, comms};
    T_THREADS(n, hk_thread, &call);
}

static inline symmHeapConfig_t hk_config(uint64_t reserve, uint64_t sym, uint64_t local) {
    symmHeapConfig_t c = SYMM_HEAP_CONFIG_INITIALIZER;
    c.reserve = reserve;
    c.symBytes = sym;
    c.localBytes = local;
    c.chunk = 4 * HK_MB;
    return c;
}

static inline symmHeap_t hk_heap(hk *k, uint64_t reserve, uint64_t sym, uint64_t local) {
    symmHeap_t heap = NULL;
    symmHeapConfig_t c = hk_config(reserve, sym, local);
    T_OK(symmHeapCreate(k->comm, &c, &heap));
    T_CHECK(heap != NULL);
    return heap;
}

static inline symmHeapInfo_t hk_info(symmHeap_t heap) {
    symmHeapInfo_t i = {.size = sizeof i};
    T_OK(symmHeapQuery(heap, &i));
    return i;
}

static inline void *hk_sym(symmHeap_t heap, size_t bytes) {
    void *p = NULL;
    T_OK(symmHeapAlloc(heap, bytes, 0, SYMM_ALLOC_SYM, &p));
    T_CHECK(p != NULL);
    return p;
}

static inline void *hk_local(symmHeap_t heap, size_t bytes) {
    void *p = NULL;
    T_OK(symmHeapAlloc(heap, bytes, 0, SYMM_ALLOC_LOCAL, &p));
    T_CHECK(p != NULL);
    return p;
}

static inline uint64_t hk_off(symmHeap_t heap, hk *k, const void *p) {
    symmHeapInfo_t i = hk_info(heap);
    return (uint64_t)(uintptr_t)p - i.base - (uint64_t)k->rank * i.stride;
}

/* The same value on every rank; who differs fails. */
static inline void hk_alike(hk *k, uint64_t value, const char *what, int line) {
    _Atomic uint64_t *at = &k->f->at_ns;
    hk_barrier(k);
    if (k->rank == 0) atomic_store(at, value);
    hk_barrier(k);
    T_CHECKF(atomic_load(at) == value, "line %d: %s is %llu on rank %d, %llu on rank 0", line, what,
             (unsigned long long)value, k->rank, (unsigned long long)atomic_load(at));
    hk_barrier(k);
}
#define HK_ALIKE(k, value) hk_alike(k, value, #value, __LINE__)

static inline unsigned char hk_byte(int rank, uint64_t i, int salt) {
    return (unsigned char)(rank * 37 + salt * 11 + (int)(i % 251) + 1);
}

enum { HK_STEP = T_TSAN ? 61 : 1 }; /* there each byte costs its check */

static inline void hk_fill(void *p, uint64_t bytes, int rank, int salt) {
    for (uint64_t i = 0; i < bytes; i += HK_STEP) ((unsigned char *)p)[i] = hk_byte(rank, i, salt);
}

static inline void hk_holds(const void *p, uint64_t bytes, int rank, int salt) {
    for (uint64_t i = 0; i < bytes; i += HK_STEP)
        T_CHECKF(((const unsigned char *)p)[i] == hk_byte(rank, i, salt),
                 "byte %llu of rank %d is %u, not %u", (unsigned long long)i, rank,
                 ((const unsigned char *)p)[i], hk_byte(rank, i, salt));
}

/* What rank's part holds behind the same block, through this process's mapping. */
static inline void *hk_peer(hk *k, const void *p, int rank) {
    symmRef_t ref;
    void *at = NULL;
    T_OK(symmRefGet(p, &ref));
    T_OK(symmRefPtr(&ref, k->comm, rank, &at));
    return at;
}

/* ---- failpoints ---- */

enum { HK_FAIL_RANKS = 3, HK_FAIL_SIDES = 4 };

/* What a program does at each failpoint that `scenario` reaches. `one` arms it on rank f->victim,
 * sets f->hits[0] once it was hit, and looks at what came of it; `variant` is 0 and 1. */
typedef struct {
    const char *scenario;
    void (*one)(hk *k, int point, int variant);
    fk *f; /* of one point; its number is f->how */
} hk_failing;

/* Each rank is the victim once in each variant, in a communicator of its own. */
static inline void hk_fail_rank(int rank, int n, void *arg) {
    const hk_failing *a = arg;
    fk *f = a->f;
    hk_env();
    setenv("SYMM_SETUP_TIMEOUT", "8000", 1);
    symm_log_rank(rank);
    hk k = {.f = f, .rank = rank, .n = n};
    for (int victim = 0; victim < n; victim++)
        for (int variant = 0; variant < 2; variant++) {
            hk_barrier(&k);
            f->victim = victim;
            k.comm = fk_open(f, rank, n);
            a->one(&k, f->how, variant);
            T_OK(symmCommDestroy(k.comm));
        }
    hk_barrier(&k);
    T_CHECKF(f->hits[0], "failpoint %s was not reached", symm_fail_name(f->how));
}

static inline void hk_fail_side(int side, int sides, void *arg) {
    hk_failing a = *(hk_failing *)arg;
    T_EXPECT_WARNINGS();
    for (int point = 0, i = 0; point < symm_fp_count; point++) {
        if (!fk_meets(point, a.scenario) || i++ % sides != side) continue;
        a.f = fk_new(0, point);
        T_FORK(HK_FAIL_RANKS, hk_fail_rank, &a);
    }
}

/* All points of the scenario, on each of three ranks that are processes; some points at a time. */
static inline void hk_failpoints(const char *scenario, void (*one)(hk *k, int point, int variant)) {
    hk_failing a = {scenario, one, NULL};
    T_EXPECT_WARNINGS();
    T_FORK(HK_FAIL_SIDES, hk_fail_side, &a);
}

#endif
