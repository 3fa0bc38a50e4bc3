/* gpu_lane.c - lanes and graph plans on GPUs: stream order under work that still runs and peers that still write, capture and replay with
 * memory used again, forks, graphs that share offsets, blocks that outlive their graph, explicit nodes, graphs with
 * addresses of their own. Ranks are threads. A peer is made late by a host function in its stream, so whoever takes a block too early finds its bytes. */
#include "gpu_lane_kit.h"

enum { N = 2, ROUNDS = 12, LATE_US = 3000, WAIT_US = 8000 };

/* ---- work ------------------------------------------------------------------------------------------------ */

static void fill(cu_stream s, char *p, int value) {
    gk_fill(s, p, BLOCK, value);
}

/* In stream order; v lives until then, and as long as a graph has it. */
static void check(rig *g, cu_stream s, const char *p, int value, gk_view *v) {
    gk_check(s, p, BLOCK, value, g->seen, v);
}

/* The last rank is late, and then writes into everybody's block. */
static void late_writer(rig *g, cu_stream s, char *p) {
    symmRef ref;
    if (g->rank != g->n - 1) return;
    T_OK(symmRefOf(p, &ref));
    gk_delay(s, LATE_US);
    for (int r = 0; r < g->n; r++) {
        void *q = NULL;
        T_OK(symmRefPtr(g->comm, &ref, r, &q));
        CU(cuMemcpyDtoDAsync((uintptr_t)q, (uintptr_t)g->pattern, BLOCK, s));
    }
}

/* ---- stream order ---------------------------------------------------------------------------------------- */

static void stream_rank(int rank, int n, void *arg) {
    rig g = set_up(arg, rank, n);
    gk_view l;
    for (int i = 0; i < ROUNDS; i++) {
        char *p = alloc(g.lane[0], BLOCK, SYMM_ALLOC_SYM);
        late_writer(&g, g.stream[0], p);
        drop(g.lane[0], p);
        if (i & 1) T_OK(symmBarrier(g.comm, gk_stream(g.stream[0]))); /* does for the lane's own */
        char *q = alloc(g.lane[0], BLOCK, SYMM_ALLOC_SYM);
        T_CHECK(p == q);
        fill(g.stream[0], q, i);
        gk_delay(g.stream[0], WAIT_US);
        check(&g, g.stream[0], q, i, &l);
        gk_wait(g.comm, g.stream[0]);
        gk_meet(g.j);
        drop(g.lane[0], q);
    }
    T_EQ(info(g.lane[0]).epochs + info(g.lane[0]).spared, 2 * ROUNDS - 1);
    T_CHECK(info(g.lane[0]).spared >= ROUNDS / 2);
    tear_down(&g);
}

static void a_block_is_used_again_behind_every_ranks_free(void) {
    run(N, stream_rank);
}

/* LOCAL: at once on its own stream, behind an event on another. */
static void lanes_rank(int rank, int n, void *arg) {
    enum { BIG = 20 << 20 };
    rig g = set_up(arg, rank, n);
    gk_view l[2];
    for (int i = 0; i < ROUNDS; i++) {
        const int a = i & 1, b = !a;
        char *p = alloc(g.lane[a], BIG, SYMM_ALLOC_LOCAL);
        gk_delay(g.stream[a], LATE_US);
        gk_fill(g.stream[a], p, BIG, 0x77);
        drop(g.lane[a], p);
        char *q = alloc(g.lane[b], BIG, SYMM_ALLOC_LOCAL); /* the heap does not hold two */
        T_CHECK(p == q);
        fill(g.stream[b], q, i);
        check(&g, g.stream[b], q, i, &l[0]);
        drop(g.lane[b], q);
        char *r = alloc(g.lane[b], BIG, SYMM_ALLOC_LOCAL);
        T_CHECK(r == q);
        fill(g.stream[b], r, i + 1);
        check(&g, g.stream[b], r, i + 1, &l[1]);
        drop(g.lane[b], r);
        gk_wait(g.comm, g.stream[b]);
    }
    T_CHECK(info(g.lane[0]).follows > 0 && info(g.lane[1]).follows > 0);
    tear_down(&g);
}

static void lanes_come_one_behind_the_other(void) {
    run(N, lanes_rank);
}

/* ---- graph order ----------------------------------------------------------------------------------------- */

static void replay_rank(int rank, int n, void *arg) {
    rig g = set_up(arg, rank, n);
    cu_stream s = g.stream[0];
    cu_graph_exec exec;
    symmGraphPlan_t plan;
    gk_view l;
    gk_capture(s, SYMM_CUDA_CAPTURE_MODE_THREAD_LOCAL);
    char *p = alloc(g.lane[0], BLOCK, SYMM_ALLOC_SYM);
    late_writer(&g, s, p);
    drop(g.lane[0], p);
    char *q = alloc(g.lane[0], BLOCK, SYMM_ALLOC_SYM);
    T_CHECK(p == q);
    fill(s, q, 5);
    gk_delay(s, WAIT_US);
    check(&g, s, q, 5, &l);
    drop(g.lane[0], q);
    cu_graph graph = end_capture(s);
    T_EQ(info(g.lane[0]).epochs, 2);
    T_OK(symmPlanBind(g.lane[0], graph, 0, &plan));
    gk_meet(g.j);
    CU(cuGraphInstantiate(&exec, graph, 0));
    T_OK(symmPlanUpload(plan, (symmGraph_t)(void *)exec, gk_stream(s)));
    CU(cuStreamSynchronize(s));
    gk_meet(g.j);
    for (int i = 0; i < ROUNDS; i++) {
        T_OK(symmPlanLaunch(plan, (symmGraph_t)(void *)exec, gk_stream(s)));
        if (i % 5 == rank) gk_wait(g.comm, s);
    }
    gk_wait(g.comm, s);
    gk_meet(g.j);
    T_OK(symmPlanDestroy(plan));
    CU(cuGraphExecDestroy(exec));
    CU(cuGraphDestroy(graph));
    tear_down(&g);
}

static void a_replay_waits_for_late_peers(void) {
    run(N, replay_rank);
}

/* Forks get places of their own, joins all of them; two graphs share what both use; nothing is left after a trim. */
static void fork_rank(int rank, int n, void *arg) {
    rig g = set_up(arg, rank, n);
    cu_stream s = g.stream[0], t = g.stream[1];
    cu_event forked, joined;
    symmGraphPlan_t plan[2];
    cu_graph graph[2];
    cu_graph_exec exec[2];
    gk_view l[4];
    uint64_t used = 0, freed = 0;
    CU(cuEventCreate(&forked, SYMM_CUDA_EVENT_DISABLE_TIMING));
    CU(cuEventCreate(&joined, SYMM_CUDA_EVENT_DISABLE_TIMING));
    for (int i = 0; i < 2; i++) {
        gk_capture(s, SYMM_CUDA_CAPTURE_MODE_THREAD_LOCAL);
        char *a = alloc(g.lane[0], BLOCK, SYMM_ALLOC_LOCAL);
        fill(s, a, 1 + i);
        CU(cuEventRecord(forked, s));
        CU(cuStreamWaitEvent(t, forked, 0));
        char *b = alloc(g.lane[1], BLOCK, SYMM_ALLOC_LOCAL);
        fill(t, b, 3 + i);
        drop(g.lane[1], b);
        char *c = alloc(g.lane[0], BLOCK, SYMM_ALLOC_LOCAL);
        T_CHECK(a != b && b != c && a != c);
        fill(s, c, 5 + i);
        check(&g, s, a, 1 + i, &l[2 * i]);
        CU(cuEventRecord(joined, t));
        CU(cuStreamWaitEvent(s, joined, 0));
        drop(g.lane[0], a);
        drop(g.lane[0], c);
        char *d = alloc(g.lane[0], 3 * BLOCK, SYMM_ALLOC_LOCAL);
        T_CHECK(d == (a < b && a < c ? a : b < c ? b : c)); /* over all three */
        fill(s, d + 2 * BLOCK, 7 + i);
        check(&g, s, d + 2 * BLOCK, 7 + i, &l[2 * i + 1]);
        drop(g.lane[0], d);
        graph[i] = end_capture(s);
        T_OK(symmPlanBind(g.lane[0], graph[i], 0, &plan[i]));
        gk_meet(g.j);
        CU(cuGraphInstantiate(&exec[i], graph[i], 0));
        gk_meet(g.j);
    }
    T_OK(symmGraphMemGet(g.lane[0], SYMM_GRAPH_MEM_USED, &used));
    T_EQ(used, 3 * BLOCK);       /* of both */
    for (int i = 0; i < 40; i++) /* alternating graphs and streams: the plan keeps the order */
        T_OK(symmPlanLaunch(plan[i & 1], (symmGraph_t)(void *)exec[i & 1],
                            gk_stream(i % 3 ? s : t)));
    gk_wait(g.comm, s);
    gk_wait(g.comm, t);
    for (int i = 0; i < 2; i++) {
        T_OK(symmPlanDestroy(plan[i]));
        CU(cuGraphExecDestroy(exec[i]));
        CU(cuGraphDestroy(graph[i]));
    }
    T_OK(symmGraphMemTrim(g.lane[0], &freed));
    T_CHECK(freed >= 3 * BLOCK);
    CU(cuEventDestroy(forked));
    CU(cuEventDestroy(joined));
    tear_down(&g);
}

static void forks_joins_and_shared_offsets(void) {
    run(N, fork_rank);
}

static void outlive_rank(int rank, int n, void *arg) {
    rig g = set_up(arg, rank, n);
    cu_stream s = g.stream[0];
    cu_graph_exec exec;
    symmGraphPlan_t plan;
    gk_view l;
    T_EXPECT_WARNINGS();
    gk_capture(s, SYMM_CUDA_CAPTURE_MODE_RELAXED);
    char *p = alloc(g.lane[0], BLOCK, SYMM_ALLOC_LOCAL);
    fill(s, p, 9);
    cu_graph graph = end_capture(s);
    T_OK(symmPlanBind(g.lane[0], graph, 0, &plan));
    gk_meet(g.j);
    CU(cuGraphInstantiate(&exec, graph, 0));
    gk_meet(g.j);
    for (int i = 0; i < ROUNDS; i++) {
        const int on = i & 1;
        T_OK(symmPlanLaunch(plan, (symmGraph_t)(void *)exec, gk_stream(s)));
        T_ERR(symmPlanLaunch(plan, (symmGraph_t)(void *)exec, gk_stream(s)), symmInvalidUsage);
        cu_event e;
        CU(cuEventCreate(&e, SYMM_CUDA_EVENT_DISABLE_TIMING));
        CU(cuEventRecord(e, s));
        CU(cuStreamWaitEvent(g.stream[on], e, 0));
        if (on) gk_delay(g.stream[1], LATE_US);
        check(&g, g.stream[on], p, 9, &l);
        drop(g.lane[on], p); /* the next launch comes behind it, on whatever stream */
        if (!on) {
            char *q = alloc(g.lane[0], BLOCK, SYMM_ALLOC_LOCAL);
            T_CHECK(q != p);
            fill(s, q, 1);
            drop(g.lane[0], q);
        }
        CU(cuEventDestroy(e));
        gk_wait(g.comm, g.stream[on]);
    }
    gk_wait(g.comm, s);
    T_OK(symmPlanDestroy(plan));
    CU(cuGraphExecDestroy(exec));
    CU(cuGraphDestroy(graph));
    tear_down(&g);
}

static void blocks_that_outlive_their_graph(void) {
    run(N, outlive_rank);
}

/* Another graph over the same bytes is launched while the last rank's other stream, where the block is freed, has yet to write to it on every rank. */
static void late_rank(int rank, int n, void *arg) {
    rig g = set_up(arg, rank, n);
    cu_stream s = g.stream[0], t = g.stream[1];
    symmGraphPlan_t plan[2];
    gk_graph graph[2];
    char *p[2];
    gk_view l;
    cu_event e;
    CU(cuEventCreate(&e, SYMM_CUDA_EVENT_DISABLE_TIMING));
    for (int leaves = 0; leaves < 2; leaves++) {
        gk_capture(s, SYMM_CUDA_CAPTURE_MODE_THREAD_LOCAL);
        p[leaves] = alloc(g.lane[0], BLOCK, SYMM_ALLOC_SYM);
        fill(s, p[leaves], 1 + leaves);
        if (!leaves) {
            gk_delay(s, WAIT_US); /* what is written after all is found */
            check(&g, s, p[0], 1, &l);
            drop(g.lane[0], p[0]);
        }
        graph[leaves] = gk_captured(s);
        T_OK(symmPlanBind(g.lane[0], graph[leaves].graph, 0, &plan[leaves]));
    }
    T_CHECK(p[0] == p[1]);
    gk_meet(g.j);
    for (int i = 0; i < ROUNDS; i++) {
        T_OK(symmPlanLaunch(plan[1], (symmGraph_t)(void *)graph[1].exec, gk_stream(s)));
        T_OK(symmBarrier(g.comm, gk_stream(s))); /* it lives on all ranks */
        CU(cuEventRecord(e, s));
        CU(cuStreamWaitEvent(t, e, 0));
        late_writer(&g, t, p[1]);
        drop(g.lane[1], p[1]);
        T_OK(symmPlanLaunch(plan[0], (symmGraph_t)(void *)graph[0].exec, gk_stream(s)));
        if (i % 4 == rank) gk_wait(g.comm, s);
    }
    for (int i = 0; i < 2; i++) gk_wait(g.comm, g.stream[i]);
    gk_meet(g.j);
    for (int i = 0; i < 2; i++) T_OK(symmPlanDestroy(plan[i])), gk_drop(&graph[i]);
    CU(cuEventDestroy(e));
    tear_down(&g);
}

static void a_graph_waits_for_every_ranks_late_free(void) {
    run(N, late_rank);
}

static void nodes_rank(int rank, int n, void *arg) {
    rig g = set_up(arg, rank, n);
    cu_graph graph = NULL;
    cu_graph_exec exec;
    symmGraphPlan_t plan;
    symmNode_t a, b, c, d, f;
    void *p, *q, *r;
    symmAllocNode_t params = {.size = sizeof params, .bytes = BLOCK, .flags = SYMM_ALLOC_LOCAL};
    T_EXPECT_WARNINGS();
    /* an empty capture is an empty graph */
    gk_capture(g.stream[0], SYMM_CUDA_CAPTURE_MODE_RELAXED);
    graph = end_capture(g.stream[0]);
    T_OK(symmPlanCreate(g.lane[0], graph, 0, &plan));
    T_OK(symmGraphAddAllocNode(plan, NULL, 0, &params, &a, &p));
    T_OK(symmGraphAddOrderNode(plan, &a, 1, &b));
    T_OK(symmGraphAddOrderNode(plan, NULL, 0, &c));
    T_ERR(symmGraphAddFreeNode(plan, &c, 1, p, &d), symmInvalidArgument);
    T_OK(symmGraphAddFreeNode(plan, &b, 1, p, &d));
    T_OK(symmGraphAddAllocNode(plan, &b, 1, &params, &f, &q));
    T_OK(symmGraphAddAllocNode(plan, &d, 1, &params, &c, &r));
    T_CHECK(q != p && r == p);
    T_OK(symmGraphAddFreeNode(plan, &f, 1, q, &a));
    T_OK(symmGraphAddFreeNode(plan, &c, 1, r, &a));
    gk_meet(g.j);
    CU(cuGraphInstantiate(&exec, graph, 0));
    gk_meet(g.j);
    for (int i = 0; i < 3; i++)
        T_OK(symmPlanLaunch(plan, (symmGraph_t)(void *)exec, gk_stream(g.stream[0])));
    gk_wait(g.comm, g.stream[0]);
    T_OK(symmPlanDestroy(plan));
    CU(cuGraphExecDestroy(exec));
    CU(cuGraphDestroy(graph));
    tear_down(&g);
}

static void explicit_nodes(void) {
    run(N, nodes_rank);
}

/* Two graphs whose blocks lie in the same memory under two addresses, replayed in turn with late writers from peers. */
static void alias_rank(int rank, int n, void *arg) {
    rig g = set_up(arg, rank, n);
    cu_stream s = g.stream[0];
    symmGraphPlan_t plan[2];
    gk_graph graph[2];
    char *p[2];
    gk_view l[4];
    T_OK(symmLaneAlias(g.lane[0], 3 << 20));
    for (int i = 0; i < 2; i++) {
        gk_capture(s, SYMM_CUDA_CAPTURE_MODE_THREAD_LOCAL);
        p[i] = alloc(g.lane[0], BLOCK, SYMM_ALLOC_SYM);
        gk_meet(g.j); /* thread ranks: the late writer's copies go to what peers have mapped */
        late_writer(&g, s, p[i]);
        T_OK(symmBarrier(g.comm, gk_stream(s)));
        fill(s, p[i], 1 + i);
        gk_delay(s, WAIT_US); /* a peer that began the other graph too early would be seen */
        check(&g, s, p[i], 1 + i, &l[2 * i]);
        T_OK(symmAllReduce(p[i], p[i], BLOCK, symmUint8, symmSum, g.comm, gk_stream(s)));
        check(&g, s, p[i], (1 + i) * n, &l[2 * i + 1]);
        drop(g.lane[0], p[i]);
        graph[i] = gk_captured(s);
        T_OK(symmPlanBind(g.lane[0], graph[i].graph, SYMM_PLAN_ALIAS, &plan[i]));
        symmGraph_t exec = (symmGraph_t)(void *)graph[i].exec;
        T_OK(symmPlanUpload(plan[i], exec, gk_stream(s)));
    }
    T_CHECK(p[0] != p[1]);
    fill(s, p[0], 60 + rank);
    check(&g, s, p[1], 60 + rank, &(gk_view){0});
    gk_wait(g.comm, s);
    gk_meet(g.j);
    for (int i = 0; i < ROUNDS; i++)
        T_OK(symmPlanLaunch(plan[i & 1], (symmGraph_t)(void *)graph[i & 1].exec,
                            gk_stream(g.stream[i % 3 == 0])));
    for (int i = 0; i < 2; i++) gk_wait(g.comm, g.stream[i]);
    gk_meet(g.j);
    for (int i = 0; i < 2; i++) T_OK(symmPlanDestroy(plan[i])), gk_drop(&graph[i]);
    T_OK(symmHeapCollect(g.heap)); /* of what the driver has let go by now */
    tear_down(&g);
}

static void graphs_with_addresses_of_their_own(void) {
    run(N, alias_rank);
}

T_MAIN(T(a_block_is_used_again_behind_every_ranks_free), T(lanes_come_one_behind_the_other),
       T(a_replay_waits_for_late_peers), T(forks_joins_and_shared_offsets),
       T(blocks_that_outlive_their_graph), T(a_graph_waits_for_every_ranks_late_free),
       T(explicit_nodes), T(graphs_with_addresses_of_their_own))
