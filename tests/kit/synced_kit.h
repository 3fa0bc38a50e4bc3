/* synced_kit.h - what the tests of synced buffers share: a heap, streams that are held up, device
 * work on either backend, and the cases that hold on both. The test's thread; `sy_pass` runs in
 * a stream's. */
#ifndef SYNCED_KIT_H_
#define SYNCED_KIT_H_

#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/stats.h"
#include "symm_synced.h"
#include "t.h"

enum { SY_BYTES = 10000, SY_MB = 1 << 20 };

/* ---- device work: on the host backend the device side is host memory ---- */

typedef struct {
    void (*set)(void *dst, int value, size_t bytes, symmStream_t stream);       /* in the stream */
    void (*get)(void *dst, const void *src, size_t bytes, symmStream_t stream); /* has ended */
} sy_device;

/* ---- the same on the host backend: functions in a stream ---- */

typedef struct {
    char *to;
    const char *from;
    int value;
    size_t bytes;
} sy_work;

static inline void sy_run_set(void *arg) {
    sy_work *w = arg;
    memset(w->to, w->value, w->bytes);
    free(w);
}
static inline void sy_run_get(void *arg) {
    sy_work *w = arg;
    memcpy(w->to, w->from, w->bytes);
    free(w);
}
static inline void sy_give(symmStream_t stream, void (*fn)(void *), sy_work w) {
    sy_work *copy = malloc(sizeof *copy);
    T_CHECK(copy != NULL);
    *copy = w;
    T_OK(symmStreamHostFunc(stream, fn, copy));
}
static inline void sy_host_set(void *dst, int value, size_t bytes, symmStream_t stream) {
    sy_give(stream, sy_run_set, (sy_work){dst, NULL, value, bytes});
}
static inline void sy_host_get(void *dst, const void *src, size_t bytes, symmStream_t stream) {
    sy_give(stream, sy_run_get, (sy_work){dst, src, 0, bytes});
    T_OK(symmStreamSynchronize(stream));
}
static const sy_device sy_host __attribute__((unused)) = {sy_host_set, sy_host_get};

static inline symmStream_t sy_stream(void) {
    symmStream_t s = NULL;
    T_OK(symmStreamCreate(&s));
    return s;
}

static inline int sy_head(symmSynced_t s) {
    int state = -1;
    T_OK(symmSyncedHead(s, &state));
    return state;
}

static inline symmHeap_t sy_heap(symmComm_t comm, uint64_t sym, uint64_t local) {
    symmHeapConfig_t config = SYMM_HEAP_CONFIG_INITIALIZER;
    symmHeap_t heap = NULL;
    config.symBytes = sym;
    config.localBytes = local;
    T_OK(symmHeapCreate(comm, &config, &heap));
    return heap;
}

static inline uint64_t sy_used(symmHeap_t heap) {
    symmHeapInfo_t info = {.size = sizeof info};
    T_OK(symmHeapQuery(heap, &info));
    return info.symUsed + info.localUsed;
}

/* One rank and its heap, on the host backend; and their end, which finds nothing left. */
static inline symmHeap_t sy_world(symmComm_t *comm) {
    setenv("SYMM_SCRATCH", "1M", 1);
    T_OK(symmCommInitAll(comm, 1, NULL));
    return sy_heap(*comm, 2 * SY_MB, 2 * SY_MB);
}
static inline void sy_world_end(symmComm_t comm, symmHeap_t heap) {
    T_EQ(sy_used(heap), 0);
    T_EQ(SYMM_STAT_GET(synced_bytes), 0);
    T_OK(symmHeapDestroy(heap));
    T_OK(symmCommDestroy(comm));
}

static inline symmSynced_t sy_new(symmHeap_t heap, size_t bytes) {
    symmSynced_t s = NULL;
    T_OK(symmSyncedCreate(heap, bytes, SYMM_ALLOC_LOCAL, &s));
    T_CHECK(s != NULL);
    return s;
}

static inline const char *sy_cpu(symmSynced_t s, symmStream_t stream) {
    const void *p = NULL;
    T_OK(symmSyncedCpu(s, stream, &p));
    T_CHECK(p != NULL);
    return p;
}
static inline const char *sy_gpu(symmSynced_t s, symmStream_t stream) {
    const void *p = NULL;
    T_OK(symmSyncedGpu(s, stream, &p));
    T_CHECK(p != NULL);
    return p;
}
static inline char *sy_mut_cpu(symmSynced_t s, symmStream_t stream, int copy) {
    void *p = NULL;
    T_OK(symmSyncedMutableCpu(s, stream, copy, &p));
    T_CHECK(p != NULL);
    return p;
}
static inline char *sy_mut_gpu(symmSynced_t s, symmStream_t stream, int copy) {
    void *p = NULL;
    T_OK(symmSyncedMutableGpu(s, stream, copy, &p));
    T_CHECK(p != NULL);
    return p;
}

static inline void sy_all(const char *p, int value, size_t bytes, const char *what) {
    for (size_t i = 0; i < bytes; i++)
        T_CHECKF(p[i] == (char)value, "%s: byte %zu is %d, not %d", what, i, p[i], value);
}
/* The device side, as a reader in that stream finds it. */
static inline void sy_device_all(const sy_device *d, symmSynced_t s, symmStream_t stream, int value,
                                 size_t bytes) {
    char *out = malloc(bytes + 1);
    T_CHECK(out != NULL);
    d->get(out, sy_gpu(s, stream), bytes, stream);
    sy_all(out, value, bytes, "device side");
    free(out);
}

/* ---- a stream that is held up ---- */

typedef struct {
    atomic_int reached, open;
} sy_gate;

static inline void sy_pass(void *arg) {
    sy_gate *g = arg;
    atomic_store(&g->reached, 1);
    while (!atomic_load(&g->open)) sched_yield();
}
static inline void sy_open(sy_gate *g) {
    atomic_store(&g->open, 1);
}
/* From another thread, a while after something that waits for it began. */
static inline void *sy_open_later(void *gate) {
    usleep(30000);
    sy_open(gate);
    return NULL;
}

/* ---- Caffe's cases, two rounds each ---- */

static inline void sy_case_initialization(symmHeap_t heap) {
    size_t bytes = 0;
    const uint64_t used = sy_used(heap);
    symmSynced_t s = sy_new(heap, SY_BYTES);
    T_EQ(sy_head(s), SYMM_SYNCED_UNINITIALIZED);
    T_OK(symmSyncedSize(s, &bytes));
    T_EQ(bytes, SY_BYTES);
    T_EQ(sy_used(heap), used); /* the size only */
    T_OK(symmSyncedDestroy(s));
}

static inline void sy_case_allocation(symmHeap_t heap, const sy_device *d, symmStream_t stream) {
    for (int which = 0; which < 3; which++) { /* CPU, GPU, CPU and GPU */
        symmSynced_t s = sy_new(heap, SY_BYTES);
        if (which != 1) {
            sy_all(sy_cpu(s, stream), 0, SY_BYTES, "first touch");
            T_EQ(sy_head(s), SYMM_SYNCED_HEAD_AT_CPU);
            sy_mut_cpu(s, stream, 1);
        }
        if (which != 0) {
            sy_device_all(d, s, stream, 0, SY_BYTES);
            if (which == 1) T_EQ(sy_head(s), SYMM_SYNCED_HEAD_AT_GPU);
            sy_mut_gpu(s, stream, 1);
        }
        T_OK(symmSyncedDestroy(s));
    }
}

static inline void sy_case_cpu_write(symmHeap_t heap, symmStream_t stream) {
    symmSynced_t s = sy_new(heap, SY_BYTES);
    for (int round = 1; round <= 2; round++) {
        memset(sy_mut_cpu(s, stream, 1), round, SY_BYTES);
        T_EQ(sy_head(s), SYMM_SYNCED_HEAD_AT_CPU);
        sy_all(sy_cpu(s, stream), round, SY_BYTES, "CPU write");
    }
    T_OK(symmSyncedDestroy(s));
}

static inline void sy_case_gpu_read(symmHeap_t heap, const sy_device *d, symmStream_t stream) {
    symmSynced_t s = sy_new(heap, SY_BYTES);
    for (int round = 1; round <= 2; round++) {
        memset(sy_mut_cpu(s, stream, 1), round, SY_BYTES);
        T_EQ(sy_head(s), SYMM_SYNCED_HEAD_AT_CPU);
        sy_device_all(d, s, stream, round, SY_BYTES);
        T_EQ(sy_head(s), SYMM_SYNCED_SYNCED);
        sy_all(sy_cpu(s, stream), round, SY_BYTES, "GPU read, host side");
        T_EQ(sy_head(s), SYMM_SYNCED_SYNCED);
    }
    T_OK(symmSyncedDestroy(s));
}

static inline void sy_case_gpu_write(symmHeap_t heap, const sy_device *d, symmStream_t stream) {
    symmSynced_t s = sy_new(heap, SY_BYTES);
    for (int round = 1; round <= 2; round++) {
        d->set(sy_mut_gpu(s, stream, 1), round, SY_BYTES, stream);
        T_EQ(sy_head(s), SYMM_SYNCED_HEAD_AT_GPU);
        sy_all(sy_cpu(s, stream), round, SY_BYTES, "GPU write");
        T_EQ(sy_head(s), SYMM_SYNCED_SYNCED);
    }
    T_OK(symmSyncedDestroy(s));
}

/* ---- every state times every call, beside a model of a few lines ---- */

enum {
    SY_CPU,
    SY_GPU,
    SY_MUT_CPU,
    SY_MUT_GPU,
    SY_OVER_CPU,
    SY_OVER_GPU,
    SY_SET_CPU,
    SY_SET_GPU,
    SY_PUSH,
    SY_PULL,
    SY_DISCARD,
    SY_CALLS
};

/* symm_synced.h's table: the state after each call; -1: refused. */
static const signed char sy_after[4][SY_CALLS] = {
    /*        Cpu Gpu MutCpu MutGpu overwrite  SetCpu SetGpu Push Pull Discard */
    /* U */ {1, 2, 1, 2, 1, 2, 1, 2, -1, -1, 0},
    /* C */ {1, 3, 1, 2, 1, 2, 1, 2, 3, -1, 0},
    /* G */ {3, 2, 1, 2, 1, 2, 1, 2, -1, 3, 0},
    /* S */ {3, 3, 1, 2, 1, 2, 1, 2, 3, 3, 0}};

typedef struct {
    symmHeap_t heap;
    const sy_device *device;
    symmStream_t stream;
    symmSynced_t s;
    char *own_cpu, *own_gpu; /* memory of the test's for Set */
    int value;               /* what the contents are; -1: nobody knows */
} sy_walk;

/* A buffer in that state whose contents are w->value. */
static inline void sy_reach(sy_walk *w, int state) {
    w->s = sy_new(w->heap, SY_BYTES);
    w->value = 0;
    if (state == SYMM_SYNCED_UNINITIALIZED) return;
    w->value = 11 + state;
    if (state == SYMM_SYNCED_HEAD_AT_GPU)
        w->device->set(sy_mut_gpu(w->s, w->stream, 1), w->value, SY_BYTES, w->stream);
    else
        memset(sy_mut_cpu(w->s, w->stream, 1), w->value, SY_BYTES);
    if (state == SYMM_SYNCED_SYNCED) sy_device_all(w->device, w->s, w->stream, w->value, SY_BYTES);
}

static inline symmResult_t sy_apply(sy_walk *w, int call) {
    void *p = NULL;
    const void *q = NULL;
    switch (call) {
    case SY_CPU: return symmSyncedCpu(w->s, w->stream, &q);
    case SY_GPU: return symmSyncedGpu(w->s, w->stream, &q);
    case SY_MUT_CPU: return symmSyncedMutableCpu(w->s, w->stream, 1, &p);
    case SY_MUT_GPU: return symmSyncedMutableGpu(w->s, w->stream, 1, &p);
    case SY_OVER_CPU:
        w->value = 31;
        memset(sy_mut_cpu(w->s, w->stream, 0), 31, SY_BYTES);
        return symmSuccess;
    case SY_OVER_GPU:
        w->value = 32;
        w->device->set(sy_mut_gpu(w->s, w->stream, 0), 32, SY_BYTES, w->stream);
        return symmSuccess;
    case SY_SET_CPU:
        w->value = 33;
        memset(w->own_cpu, 33, SY_BYTES);
        return symmSyncedSetCpu(w->s, w->own_cpu);
    case SY_SET_GPU:
        w->value = 34;
        w->device->set(w->own_gpu, 34, SY_BYTES, w->stream);
        return symmSyncedSetGpu(w->s, w->own_gpu);
    case SY_PUSH: return symmSyncedPush(w->s, w->stream);
    case SY_PULL: return symmSyncedPull(w->s, w->stream);
    default: w->value = 0; return symmSyncedDiscard(w->s);
    }
}

/* PUSHING and PULLING become SYNCED by themselves. */
static inline int sy_settled(symmSynced_t s) {
    int state = sy_head(s);
    while (state == SYMM_SYNCED_PUSHING || state == SYMM_SYNCED_PULLING) {
        usleep(50);
        state = sy_head(s);
    }
    return state;
}

/* In each order of looking at the sides afterwards: neither look may change what the other
 * finds. */
static inline void sy_table(sy_walk *w) {
    for (int state = 0; state < 4; state++)
        for (int call = 0; call < SY_CALLS; call++)
            for (int device_first = 0; device_first < 2; device_first++) {
                const int want = sy_after[state][call];
                const uint64_t used = sy_used(w->heap);
                sy_reach(w, state);
                symmResult_t r = sy_apply(w, call);
                T_CHECKF(r == (want < 0 ? symmInvalidUsage : symmSuccess), "state %d, call %d: %d",
                         state, call, r);
                const int got = sy_settled(w->s);
                T_CHECKF(got == (want < 0 ? state : want), "state %d, call %d: then %d", state,
                         call, got);
                if (device_first) sy_device_all(w->device, w->s, w->stream, w->value, SY_BYTES);
                sy_all(sy_cpu(w->s, w->stream), w->value, SY_BYTES, "host side");
                sy_device_all(w->device, w->s, w->stream, w->value, SY_BYTES);
                T_OK(symmSyncedDestroy(w->s));
                T_EQ(sy_used(w->heap), used);
            }
}

#endif
