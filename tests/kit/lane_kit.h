/* lane_kit.h - what the tests of lanes and graph plans on host streams share: a rank with a heap,
 * streams and lanes. Each rank uses its own from its own thread. */
#ifndef LANE_KIT_H_
#define LANE_KIT_H_

#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/handle.h"
#include "host/lane/memplan.h"
#include "base/stats.h"
#include "host/stream/stream.h"
#include "symm_lane.h"
#include "t.h"

#define LK_MB (1ull << 20)
#define LK_KB (1ull << 10)
enum { LK_LANES = 64 };

typedef struct {
    int rank, n;
    symmComm_t comm;
    symmHeap_t heap;
    symmStream_t stream[LK_LANES];
    symmLane_t lane[LK_LANES];
    int lanes;
} lk;

static inline void lk_env(void) {
    setenv("SYMM_BACKEND", "host", 1);
    setenv("SYMM_SCRATCH", "1M", 1);
    setenv("SYMM_WIN_STRIDE", "1G", 1);
}

static inline void lk_open(lk *k, int rank, int n, symmComm_t comm, int lanes, uint64_t sym,
                           uint64_t local) {
    symmHeapConfig_t c = SYMM_HEAP_CONFIG_INITIALIZER;
    *k = (lk){.rank = rank, .n = n, .comm = comm, .lanes = lanes};
    c.reserve = 256 * LK_MB;
    c.symBytes = sym;
    c.localBytes = local;
    T_OK(symmHeapCreate(comm, &c, &k->heap));
    for (int i = 0; i < lanes; i++) {
        T_OK(symmStreamCreate(&k->stream[i]));
        T_OK(symmLaneCreate(k->heap, k->stream[i], &k->lane[i]));
    }
}

/* One rank, its communicator with it. */
static inline void lk_alone(lk *k, int lanes) {
    symmComm_t comm;
    lk_env();
    T_OK(symmCommInitAll(&comm, 1, NULL));
    lk_open(k, 0, 1, comm, lanes, 64 * LK_MB, 64 * LK_MB);
}

static inline void lk_close(lk *k) {
    for (int i = k->lanes; i-- > 0;)
        if (k->stream[i]) T_OK(symmStreamSynchronize(k->stream[i]));
    for (int i = k->lanes; i-- > 0;)
        if (k->lane[i]) T_OK(symmLaneDestroy(k->lane[i]));
    for (int i = 0; i < k->lanes; i++)
        if (k->stream[i]) T_OK(symmStreamDestroy(k->stream[i]));
    T_OK(symmHeapDestroy(k->heap));
    T_OK(symmCommDestroy(k->comm));
}

static inline char *lk_alloc(symmLane_t lane, size_t bytes, unsigned flags) {
    void *p = NULL;
    T_OK(symmLaneAlloc(lane, bytes, flags, &p));
    T_CHECK(p != NULL && (uintptr_t)p % (bytes < 1024 ? 128 : 256) == 0);
    return p;
}
#define lk_local(lane, bytes) lk_alloc(lane, bytes, SYMM_ALLOC_LOCAL)
#define lk_sym(lane, bytes)   lk_alloc(lane, bytes, SYMM_ALLOC_SYM)
#define lk_free(lane, p)      T_OK(symmLaneFree(lane, p))

static inline symmLaneInfo_t lk_info(symmLane_t lane) {
    symmLaneInfo_t i = {.size = sizeof i};
    T_OK(symmLaneQuery(lane, &i));
    return i;
}

static inline uint64_t lk_mem(symmLane_t lane, int attr) {
    uint64_t v = ~0ull;
    T_OK(symmLaneGetGraphMem(lane, attr, &v));
    return v;
}

static inline symmGraph_t lk_end(symmStream_t s) {
    symmGraph_t g = NULL;
    T_OK(symmStreamEndCapture(s, &g));
    return g;
}

static inline symmMemPlan_t lk_bind(symmLane_t lane, symmGraph_t g, unsigned flags) {
    symmMemPlan_t p = NULL;
    T_OK(symmMemPlanBind(lane, g, flags, &p));
    return p;
}

/* `to` continues behind everything given to `from` so far. */
static inline void lk_order(symmStream_t from, symmStream_t to) {
    symmEvent_t e = NULL;
    T_OK(symmEventCreate(&e));
    T_OK(symmEventRecord(e, from));
    T_OK(symmStreamWaitEvent(to, e));
    T_OK(symmEventDestroy(e));
}

/* Tasks: fill bytes; check that they are as filled; hold a stream up. */
typedef struct {
    char *at;
    size_t bytes;
    int value;
} lk_work;

static inline symmResult_t lk_fill_task(void *args) {
    lk_work *w = args;
    memset(w->at, w->value, w->bytes);
    return symmSuccess;
}
static inline symmResult_t lk_check_task(void *args) {
    lk_work *w = args;
    for (size_t i = 0; i < w->bytes; i++)
        T_CHECKF((unsigned char)w->at[i] == (unsigned char)w->value,
                 "byte %zu of %zu is %d, not %d", i, w->bytes, w->at[i], w->value);
    return symmSuccess;
}
static inline void lk_fill(symmStream_t s, char *at, size_t bytes, int value) {
    lk_work w = {at, bytes, value};
    T_OK(symm_stream_submit(s, lk_fill_task, &w, sizeof w));
}
static inline void lk_check(symmStream_t s, char *at, size_t bytes, int value) {
    lk_work w = {at, bytes, value};
    T_OK(symm_stream_submit(s, lk_check_task, &w, sizeof w));
}

typedef struct {
    atomic_int reached, open;
} lk_gate;

static inline void lk_gate_fn(void *arg) {
    lk_gate *g = arg;
    atomic_store(&g->reached, 1);
    while (!atomic_load(&g->open)) sched_yield();
}
static inline void lk_hold(symmStream_t s, lk_gate *g) {
    T_OK(symmStreamHostFunc(s, lk_gate_fn, g));
}

#endif
