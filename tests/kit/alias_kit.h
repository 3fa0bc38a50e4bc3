/* alias_kit.h - what the tests of graphs with addresses of their own share: a rank with a heap, two
 * streams and a lane, captures that exchange bytes with peers. Each rank uses its own from its
 * own thread. */
#ifndef ALIAS_KIT_H_
#define ALIAS_KIT_H_

#include "graph_kit.h"
#include "heap_kit.h"
#include "lane_kit.h"

enum { B = 64 << 10 };

typedef struct {
    hk *k;
    int rank, n;
    symmHeap_t heap;
    symmStream_t s[2];
    symmLane_t lane;
} rig;

static inline rig set_up(hk *k, uint64_t reserve, uint64_t alias) {
    rig g = {.k = k, .rank = k->rank, .n = k->n};
    g.heap = hk_heap(k, reserve, 4 * HK_MB, 2 * HK_MB);
    for (int i = 0; i < 2; i++) T_OK(symmStreamCreate(&g.s[i]));
    T_OK(symmLaneCreate(g.heap, g.s[0], &g.lane));
    if (alias) T_OK(symmLaneAlias(g.lane, alias));
    return g;
}

static inline void tear_down(rig *g) {
    for (int i = 0; i < 2; i++) T_OK(symmStreamSynchronize(g->s[i]));
    T_OK(symmLaneDestroy(g->lane));
    for (int i = 0; i < 2; i++) T_OK(symmStreamDestroy(g->s[i]));
    hk_barrier(g->k);
    T_OK(symmHeapDestroy(g->heap));
}

static inline void both(int n, void (*fn)(void *), void *arg) {
    hk_processes(n, fn, arg);
    hk_threads(n, fn, arg);
}

typedef struct {
    symmGraph_t graph;
    symmMemPlan_t plan;
    char *p;
} aliased;

static inline void bind(rig *g, aliased *a) {
    a->graph = lk_end(g->s[0]);
    a->plan = lk_bind(g->lane, a->graph, SYMM_MEMPLAN_ALIAS);
}

/* Every rank fills its block, then writes into its right neighbour's, and looks at its own; a
 * collective in place ends it. The neighbour's address is used while there is nothing behind it
 * yet. */
static inline void exchange(rig *g, char *p, size_t bytes, int salt) {
    const int right = (g->rank + 1) % g->n, left = (g->rank + g->n - 1) % g->n;
    lk_fill(g->s[0], p, bytes, salt);
    T_OK(symmBarrier(g->k->comm, g->s[0]));
    lk_fill(g->s[0], hk_peer(g->k, p, right), bytes / 2, salt + 1 + g->rank);
    T_OK(symmBarrier(g->k->comm, g->s[0]));
    lk_check(g->s[0], p, bytes / 2, salt + 1 + left);
    lk_check(g->s[0], p + bytes / 2, bytes / 2, salt);
    T_OK(symmBarrier(g->k->comm, g->s[0]));
    lk_fill(g->s[0], p, bytes, salt);
    T_OK(symmAllReduce(p, p, bytes, symmUint8, symmSum, g->k->comm, g->s[0]));
    lk_check(g->s[0], p, bytes, salt * g->n);
}

static inline aliased capture(rig *g, size_t bytes, int salt) {
    aliased a = {NULL, NULL, NULL};
    T_OK(symmStreamBeginCapture(g->s[0]));
    a.p = lk_sym(g->lane, bytes);
    exchange(g, a.p, B, salt);
    if (bytes > B) exchange(g, a.p + bytes - B, B, salt + 7);
    lk_free(g->lane, a.p);
    bind(g, &a);
    return a;
}

static inline void launch(rig *g, const aliased *a, int stream) {
    T_OK(symmMemPlanLaunch(a->plan, xg_exec(a->graph), g->s[stream]));
}
static inline void wait_all(rig *g) {
    for (int i = 0; i < 2; i++) T_OK(symmStreamSynchronize(g->s[i]));
    hk_barrier(g->k);
}
static inline void drop(const aliased *a) {
    T_OK(symmMemPlanDestroy(a->plan));
    T_OK(xg_destroy(a->graph));
}

#endif
