/* gpu_lane_cases.h - SYM blocks of lanes and graphs, heaps and vectors that grow, while the last
 * rank is late: bodies for thread ranks (gpu_lane.c) and for processes (mpg_lanes.c). A peer is
 * made late by a host function in its stream; whoever takes a block too early finds its bytes,
 * or it those of others. */
#ifndef GPU_LANE_CASES_H_
#define GPU_LANE_CASES_H_

#include "gpu_lane_kit.h"
#include "symm_vec.h"

/* ---- reuse ----------------------------------------------------------------------------------- */

static inline void case_stream(rig *g) {
    cu_stream s = g->stream[0];
    gk_view l;
    for (int i = 0; i < ROUNDS; i++) {
        char *p = alloc(g->lane[0], BLOCK, SYMM_ALLOC_SYM);
        late_writer(g, s, p);
        drop(g->lane[0], p);
        if (i & 1) T_OK(symmBarrier(g->comm, gk_stream(s))); /* does for the lane's own */
        char *q = alloc(g->lane[0], BLOCK, SYMM_ALLOC_SYM);
        T_CHECK(p == q);
        fill(s, q, i);
        gk_delay(s, WAIT_US);
        check(g, s, q, i, &l);
        gk_wait(g->comm, s);
        meet(g);
        drop(g->lane[0], q);
    }
    T_EQ(info(g->lane[0]).epochs + info(g->lane[0]).spared, 2 * ROUNDS - 1);
    T_CHECK(info(g->lane[0]).spared >= ROUNDS / 2);
}

/* The same captured, the peer's copies too. */
static inline void case_replay(rig *g) {
    cu_stream s = g->stream[0];
    cu_graph_exec exec;
    symmMemPlan_t plan;
    gk_view l;
    gk_capture(s, SYMM_CUDA_CAPTURE_MODE_THREAD_LOCAL);
    char *p = alloc(g->lane[0], BLOCK, SYMM_ALLOC_SYM);
    late_writer(g, s, p);
    drop(g->lane[0], p);
    char *q = alloc(g->lane[0], BLOCK, SYMM_ALLOC_SYM);
    T_CHECK(p == q);
    fill(s, q, 5);
    gk_delay(s, WAIT_US);
    check(g, s, q, 5, &l);
    drop(g->lane[0], q);
    cu_graph graph = end_capture(s);
    T_EQ(info(g->lane[0]).epochs, 2);
    T_OK(symmMemPlanBind(g->lane[0], (symmGraph_t)(void *)graph, 0, &plan));
    meet(g);
    CU(cuGraphInstantiate(&exec, graph, 0));
    T_OK(symmMemPlanUpload(plan, (symmGraphExec_t)(void *)exec, gk_stream(s)));
    CU(cuStreamSynchronize(s));
    meet(g);
    for (int i = 0; i < ROUNDS; i++) {
        launch(plan, exec, s);
        if (i % 5 == g->rank % 5) gk_wait(g->comm, s);
    }
    gk_wait(g->comm, s);
    meet(g);
    T_OK(symmMemPlanDestroy(plan));
    CU(cuGraphExecDestroy(exec));
    CU(cuGraphDestroy(graph));
}

/* ---- blocks that outlive their launch -------------------------------------------------------- */

/* One plan and its graph of one SYM block, which may be left allocated. */
typedef struct {
    symmMemPlan_t plan;
    gk_graph graph;
    char *p;
    gk_view v[2];
} left_block;

/* What it holds meanwhile is no value of a later check: whoever begins too early shows that. */
static inline void left_body(rig *g, left_block *b, int value) {
    cu_stream s = g->stream[0];
    b->p = alloc(g->lane[0], BLOCK, SYMM_ALLOC_SYM);
    fill(s, b->p, 0x66);
    gk_delay(s, WAIT_US);
    check(g, s, b->p, 0x66, &b->v[0]);
    fill(s, b->p, value + g->rank);
    T_OK(symmBarrier(g->comm, gk_stream(s))); /* so peers may look at it */
}
static inline void left_capture(rig *g, left_block *b, int value, unsigned flags, int freed) {
    cu_stream s = g->stream[0];
    meet(g);
    gk_capture(s, SYMM_CUDA_CAPTURE_MODE_THREAD_LOCAL);
    left_body(g, b, value);
    if (freed) drop(g->lane[0], b->p);
    b->graph = gk_captured(s);
    T_OK(symmMemPlanBind(g->lane[0], (symmGraph_t)(void *)b->graph.graph, flags, &b->plan));
    meet(g);
    T_OK(symmMemPlanUpload(b->plan, (symmGraphExec_t)(void *)b->graph.exec, gk_stream(s)));
    meet(g);
}
static inline void left_launch(rig *g, left_block *b) {
    launch(b->plan, b->graph.exec, g->stream[0]);
}
static inline void left_end(left_block *b) {
    T_OK(symmMemPlanDestroy(b->plan));
    gk_drop(&b->graph);
}

/* G.3.4: launched again and again, its block freed by the launch or by the program; the last rank
 * still reads everybody's. */
static inline void case_auto_free(rig *g) {
    cu_stream s = g->stream[0];
    left_block b;
    gk_view v[SYMM_MAX_RANKS];
    left_capture(g, &b, 5, SYMM_MEMPLAN_AUTO_FREE, 0);
    for (int i = 0; i < ROUNDS; i++) {
        left_launch(g, &b);
        late_reader(g, s, b.p, 5, v);
        if (i % 4 == 1) drop(g->lane[0], b.p);
        gk_near(g->comm, s, i);
    }
    gk_wait(g->comm, s);
    meet(g);
    drop(g->lane[0], b.p); /* the last launch's */
    T_EXPECT_WARNINGS();
    T_ERR(symmLaneFree(g->lane[0], b.p), symmInvalidArgument);
    left_end(&b);
}

/* Two graphs whose blocks lie in the same memory under two addresses. The first one frees its
 * block, the second one leaves it, and the last rank is late with what it reads and writes
 * there. */
static inline void case_alias(rig *g) {
    cu_stream s = g->stream[0];
    left_block a, b;
    gk_view v[SYMM_MAX_RANKS], mine;
    T_EXPECT_WARNINGS();
    T_OK(symmLaneAlias(g->lane[0], 3 << 20));
    left_capture(g, &a, 10, SYMM_MEMPLAN_ALIAS, 1);
    left_capture(g, &b, 30, SYMM_MEMPLAN_ALIAS, 0);
    T_CHECK(a.p != b.p);
    for (int i = 0; i < ROUNDS; i++) {
        left_launch(g, &a);
        left_launch(g, &b);
        check(g, s, a.p, 30 + g->rank, &mine);    /* one memory */
        T_OK(symmBarrier(g->comm, gk_stream(s))); /* all have looked before the last rank writes */
        late_reader(g, s, b.p, 30, v);
        late_writer(g, s, b.p);
        if (i == 3)
            T_ERR(symmMemPlanLaunch(a.plan, (symmGraphExec_t)(void *)a.graph.exec, gk_stream(s)),
                  symmInvalidUsage);
        drop(g->lane[0], b.p);
        if (i % 3 == 2) gk_wait(g->comm, s);
    }
    gk_wait(g->comm, s);
    meet(g);
    left_end(&a);
    left_end(&b);
    meet(g);
    T_OK(symmHeapCollect(g->heap));
}

/* A late free on the other stream: each graph over that memory comes behind it on every rank, not
 * only the one that left the block. */
static inline void case_late_free(rig *g) {
    cu_stream s = g->stream[0], t = g->stream[1];
    left_block other, left;
    gk_view v[SYMM_MAX_RANKS];
    left_capture(g, &other, 10, 0, 1);
    left_capture(g, &left, 30, 0, 0);
    T_CHECK(left.p == other.p);
    for (int i = 0; i < ROUNDS; i++) {
        left_launch(g, &left);
        come_behind(s, t);
        late_reader(g, t, left.p, 30, v);
        late_writer(g, t, left.p);
        drop(g->lane[1], left.p);
        left_launch(g, &other);
        gk_near(g->comm, s, i);
    }
    gk_wait(g->comm, s);
    gk_wait(g->comm, t);
    meet(g);
    left_end(&other);
    left_end(&left);
}

/* An explicit node's block is used outside of its graph, and again after the next launch, which
 * waits for every rank. */
static inline void case_nodes(rig *g) {
    cu_stream s = g->stream[0];
    symmAllocNode_t params = {.size = sizeof params, .bytes = BLOCK, .flags = SYMM_ALLOC_SYM};
    symmMemPlan_t plan;
    cu_graph_exec exec;
    symmGraphNode_t node;
    gk_view v;
    void *p = NULL;
    gk_capture(s, SYMM_CUDA_CAPTURE_MODE_THREAD_LOCAL);
    cu_graph graph = end_capture(s); /* an empty one */
    T_OK(symmMemPlanCreate(g->lane[0], (symmGraph_t)(void *)graph, 0, &plan));
    T_OK(symmMemPlanAddAllocNode(plan, NULL, 0, &params, &node, &p));
    meet(g);
    CU(cuGraphInstantiate(&exec, graph, 0));
    meet(g);
    for (int i = 0; i < ROUNDS; i++) {
        launch(plan, exec, s);
        fill(s, p, 1 + i);
        gk_delay(s, WAIT_US);
        check(g, s, p, 1 + i, &v);
        gk_wait(g->comm, s); /* v is used again */
        T_OK(symmBarrier(g->comm, gk_stream(s)));
        late_writer(g, s, p);
        drop(g->lane[0], p);
    }
    gk_wait(g->comm, s);
    meet(g);
    T_OK(symmMemPlanDestroy(plan));
    CU(cuGraphExecDestroy(exec));
    CU(cuGraphDestroy(graph));
}

/* ---- growth ---------------------------------------------------------------------------------- */

enum { GROWTHS = 5, HELD = 24 << 20, MARK = 0x20 };

/* Both ends of a large block. */
static inline void mark(rig *g, char *p, int value) {
    fill(g->stream[0], p, value);
    fill(g->stream[0], p + HELD - BLOCK, value);
}

/* The heap grows while the last rank still reads and writes what is there; graphs captured before
 * run on. */
static inline void case_grow(rig *g) {
    cu_stream s = g->stream[0];
    left_block b;
    char *held[GROWTHS];
    gk_view v[GROWTHS][2][SYMM_MAX_RANKS];
    symmHeapInfo_t now = {.size = sizeof now};
    void *none = NULL;
    left_capture(g, &b, 5, SYMM_MEMPLAN_AUTO_FREE, 0);
    for (int i = 0; i < GROWTHS; i++) {
        char *p = alloc(g->lane[0], BLOCK, SYMM_ALLOC_SYM);
        late_writer(g, s, p);
        drop(g->lane[0], p);
        if (i) {
            T_ERR(symmLaneAlloc(g->lane[0], HELD, SYMM_ALLOC_SYM, &none), symmNeedGrow);
            meet(g);
            T_OK(symmHeapGrow(g->heap, HELD, 0));
        }
        held[i] = alloc(g->lane[0], HELD, SYMM_ALLOC_SYM);
        mark(g, held[i], MARK * (i + 1) + g->rank);
        T_OK(symmBarrier(g->comm, gk_stream(s)));
        for (int k = 0; k <= i; k++) {
            late_reader(g, s, held[k], MARK * (k + 1), v[k][0]);
            late_reader(g, s, held[k] + HELD - BLOCK, MARK * (k + 1), v[k][1]);
        }
        left_launch(g, &b);
    }
    gk_wait(g->comm, s);
    meet(g);
    T_OK(symmHeapQuery(g->heap, &now));
    T_CHECK(now.symBytes >= (uint64_t)GROWTHS * HELD);
    drop(g->lane[0], b.p);
    for (int i = 0; i < GROWTHS; i++) drop(g->lane[0], held[i]);
    left_end(&b);
}

enum { PARTS = 6, PART = 5 << 19, VEC_MAX = PARTS * PART + (2 << 20) };

typedef struct {
    symmVec_t vec;
    gk_view v[2 * PARTS][SYMM_MAX_RANKS];
} vec_job;

/* Makes it one part longer; that one is written, and all of them are read late, on every rank,
 * while the next one comes. */
static inline void vec_step(rig *g, vec_job *j, int part) {
    cu_stream s = g->stream[0];
    void *at = NULL;
    T_OK(symmVecGrow(j->vec, (uint64_t)(part + 1) * PART));
    T_OK(symmVecPtr(j->vec, g->rank, &at));
    gk_fill(s, (char *)at + (size_t)part * PART, PART, 10 * (part + 1) + g->rank);
    T_OK(symmBarrier(g->comm, gk_stream(s)));
    if (g->rank % 2) gk_delay(s, LATE_US);
    for (int k = 0; k <= part; k++) {
        const int r = (g->rank + 1 + k) % g->n;
        T_OK(symmVecPtr(j->vec, r, &at));
        check(g, s, (char *)at + (size_t)(k + 1) * PART - BLOCK, 10 * (k + 1) + r, &j->v[k][r]);
    }
}

/* In place, then past the addresses it has: it moves, and what was begun through the old ones ends
 * well. */
static inline void case_vector(rig *g) {
    symmVecConfig_t c = SYMM_VEC_CONFIG_INITIALIZER;
    vec_job j;
    void *was[2] = {NULL, NULL}, *at;
    uint64_t all = 0;
    c.max = VEC_MAX;
    c.chunk = 2 << 20;
    T_OK(symmVecCreate(g->comm, &c, &j.vec));
    for (int i = 0; i < PARTS; i++) {
        vec_step(g, &j, i);
        for (int r = 0; r < 2; r++) {
            T_OK(symmVecPtr(j.vec, (g->rank + r) % g->n, &at));
            if (i) T_CHECK(at == was[r]);
            was[r] = at;
        }
    }
    meet(g); /* all ranks' readers are on their streams, the late ones' still to come */
    T_OK(symmVecReserve(j.vec, 4 * VEC_MAX));
    vec_step(g, &j, PARTS);
    T_OK(symmVecPtr(j.vec, g->rank, &at));
    T_CHECK(at != was[0]);
    gk_wait(g->comm, g->stream[0]);
    meet(g);
    T_OK(symmVecSync(j.vec, &all));
    T_EQ(all, (uint64_t)(PARTS + 1) * PART);
    meet(g);
    T_OK(symmVecDestroy(j.vec));
}

#endif
