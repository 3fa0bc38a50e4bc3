/* gpu_lane.c - lanes and graph plans on GPUs: stream order under work that still runs and peers
 * that still write, capture and replay with memory used again, forks, graphs that share offsets,
 * blocks that outlive their graph, explicit nodes, graphs with addresses of their own; the bodies
 * of gpu_lane_cases.h on 2 to 8 ranks. Ranks are threads. A peer is made late by a host function
 * in its stream, so whoever takes a block too early finds its bytes. */
#include <dlfcn.h>

#include "gpu_lane_cases.h"

enum { N = 2 };

/* ---- stream order ---------------------------------------------------------------------------- */

static void a_block_is_used_again_behind_every_ranks_free(void) {
    run_sizes(case_stream);
}

/* LOCAL: at once on its own stream, behind an event on another. */
static void lanes_rank(rig *g) {
    enum { BIG = 20 << 20 };
    gk_view l[2];
    for (int i = 0; i < ROUNDS; i++) {
        const int a = i & 1, b = !a;
        char *p = alloc(g->lane[a], BIG, SYMM_ALLOC_LOCAL);
        gk_delay(g->stream[a], LATE_US);
        gk_fill(g->stream[a], p, BIG, 0x77);
        drop(g->lane[a], p);
        char *q = alloc(g->lane[b], BIG, SYMM_ALLOC_LOCAL); /* the heap does not hold two */
        T_CHECK(p == q);
        fill(g->stream[b], q, i);
        check(g, g->stream[b], q, i, &l[0]);
        drop(g->lane[b], q);
        char *r = alloc(g->lane[b], BIG, SYMM_ALLOC_LOCAL);
        T_CHECK(r == q);
        fill(g->stream[b], r, i + 1);
        check(g, g->stream[b], r, i + 1, &l[1]);
        drop(g->lane[b], r);
        gk_wait(g->comm, g->stream[b]);
    }
    T_CHECK(info(g->lane[0]).follows > 0 && info(g->lane[1]).follows > 0);
}

static void lanes_come_one_behind_the_other(void) {
    run_apart(N, lanes_rank);
}

/* ---- graph order ----------------------------------------------------------------------------- */

static void a_replay_waits_for_late_peers(void) {
    run_sizes(case_replay);
}

/* Forks get places of their own, joins all of them; two graphs share what both use; nothing is left
 * after a trim. */
static void fork_rank(rig *g) {
    cu_stream s = g->stream[0], t = g->stream[1];
    cu_event forked, joined;
    symmMemPlan_t plan[2];
    cu_graph graph[2];
    cu_graph_exec exec[2];
    gk_view l[4];
    uint64_t used = 0, freed = 0;
    CU(cuEventCreate(&forked, SYMM_CUDA_EVENT_DISABLE_TIMING));
    CU(cuEventCreate(&joined, SYMM_CUDA_EVENT_DISABLE_TIMING));
    for (int i = 0; i < 2; i++) {
        gk_capture(s, SYMM_CUDA_CAPTURE_MODE_THREAD_LOCAL);
        char *a = alloc(g->lane[0], BLOCK, SYMM_ALLOC_LOCAL);
        fill(s, a, 1 + i);
        CU(cuEventRecord(forked, s));
        CU(cuStreamWaitEvent(t, forked, 0));
        char *b = alloc(g->lane[1], BLOCK, SYMM_ALLOC_LOCAL);
        fill(t, b, 3 + i);
        drop(g->lane[1], b);
        char *c = alloc(g->lane[0], BLOCK, SYMM_ALLOC_LOCAL);
        T_CHECK(a != b && b != c && a != c);
        fill(s, c, 5 + i);
        check(g, s, a, 1 + i, &l[2 * i]);
        CU(cuEventRecord(joined, t));
        CU(cuStreamWaitEvent(s, joined, 0));
        drop(g->lane[0], a);
        drop(g->lane[0], c);
        char *d = alloc(g->lane[0], 3 * BLOCK, SYMM_ALLOC_LOCAL);
        T_CHECK(d == (a < b && a < c ? a : b < c ? b : c)); /* over all three */
        fill(s, d + 2 * BLOCK, 7 + i);
        check(g, s, d + 2 * BLOCK, 7 + i, &l[2 * i + 1]);
        drop(g->lane[0], d);
        graph[i] = end_capture(s);
        T_OK(symmMemPlanBind(g->lane[0], (symmGraph_t)(void *)graph[i], 0, &plan[i]));
        meet(g);
        CU(cuGraphInstantiate(&exec[i], graph[i], 0));
        meet(g);
    }
    T_OK(symmLaneGetGraphMem(g->lane[0], SYMM_GRAPH_MEM_USED, &used));
    T_EQ(used, 3 * BLOCK);       /* of both */
    for (int i = 0; i < 40; i++) /* alternating graphs and streams: the plan keeps the order */
        T_OK(symmMemPlanLaunch(plan[i & 1], (symmGraphExec_t)(void *)exec[i & 1],
                               gk_stream(i % 3 ? s : t)));
    gk_wait(g->comm, s);
    gk_wait(g->comm, t);
    for (int i = 0; i < 2; i++) {
        T_OK(symmMemPlanDestroy(plan[i]));
        CU(cuGraphExecDestroy(exec[i]));
        CU(cuGraphDestroy(graph[i]));
    }
    T_OK(symmLaneTrimGraphMem(g->lane[0], &freed));
    T_CHECK(freed >= 3 * BLOCK);
    CU(cuEventDestroy(forked));
    CU(cuEventDestroy(joined));
}

static void forks_joins_and_shared_offsets(void) {
    run_apart(N, fork_rank);
}

static void outlive_rank(rig *g) {
    cu_stream s = g->stream[0];
    cu_graph_exec exec;
    symmMemPlan_t plan;
    gk_view l;
    T_EXPECT_WARNINGS();
    gk_capture(s, SYMM_CUDA_CAPTURE_MODE_RELAXED);
    char *p = alloc(g->lane[0], BLOCK, SYMM_ALLOC_LOCAL);
    fill(s, p, 9);
    cu_graph graph = end_capture(s);
    T_OK(symmMemPlanBind(g->lane[0], (symmGraph_t)(void *)graph, 0, &plan));
    meet(g);
    CU(cuGraphInstantiate(&exec, graph, 0));
    meet(g);
    for (int i = 0; i < ROUNDS; i++) {
        const int on = i & 1;
        T_OK(symmMemPlanLaunch(plan, (symmGraphExec_t)(void *)exec, gk_stream(s)));
        T_ERR(symmMemPlanLaunch(plan, (symmGraphExec_t)(void *)exec, gk_stream(s)),
              symmInvalidUsage);
        cu_event e;
        CU(cuEventCreate(&e, SYMM_CUDA_EVENT_DISABLE_TIMING));
        CU(cuEventRecord(e, s));
        CU(cuStreamWaitEvent(g->stream[on], e, 0));
        if (on) gk_delay(g->stream[1], LATE_US);
        check(g, g->stream[on], p, 9, &l);
        drop(g->lane[on], p); /* the next launch comes behind it, on whatever stream */
        if (!on) {
            char *q = alloc(g->lane[0], BLOCK, SYMM_ALLOC_LOCAL);
            T_CHECK(q != p);
            fill(s, q, 1);
            drop(g->lane[0], q);
        }
        CU(cuEventDestroy(e));
        gk_wait(g->comm, g->stream[on]);
    }
    gk_wait(g->comm, s);
    T_OK(symmMemPlanDestroy(plan));
    CU(cuGraphExecDestroy(exec));
    CU(cuGraphDestroy(graph));
}

static void blocks_that_outlive_their_graph(void) {
    run_apart(N, outlive_rank);
}

/* A graph of one LOCAL block: late with its value, which is no other's meanwhile; left allocated
 * unless `freed`. */
static void capture_local(rig *g, left_block *b, unsigned keep, unsigned flags, int value,
                          int freed) {
    cu_stream s = g->stream[0];
    gk_capture(s, SYMM_CUDA_CAPTURE_MODE_THREAD_LOCAL);
    b->p = alloc(g->lane[0], BLOCK, SYMM_ALLOC_LOCAL | keep);
    fill(s, b->p, 0x66);
    gk_delay(s, WAIT_US);
    fill(s, b->p, value);
    if (freed) check(g, s, b->p, value, &b->v[0]), drop(g->lane[0], b->p);
    b->graph = gk_captured(s);
    T_OK(symmMemPlanBind(g->lane[0], (symmGraph_t)(void *)b->graph.graph, flags, &b->plan));
}

/* A reader on the other stream, behind the first one, late. */
static void late_local(rig *g, const char *p, int value, gk_view *v) {
    come_behind(g->stream[0], g->stream[1]);
    gk_delay(g->stream[1], LATE_US);
    check(g, g->stream[1], p, value, v);
}

static void both_wait(rig *g) {
    gk_wait(g->comm, g->stream[0]);
    gk_wait(g->comm, g->stream[1]);
}

/* G.3.4: one that produces, launched again and again; a consumer on another stream, which frees now
 * and then. */
static void producer_rank(rig *g) {
    left_block b;
    gk_view v;
    capture_local(g, &b, 0, SYMM_MEMPLAN_AUTO_FREE, 9, 0);
    for (int i = 0; i < ROUNDS; i++) {
        left_launch(g, &b);
        late_local(g, b.p, 9, &v);
        if (i % 3)
            come_behind(g->stream[1], g->stream[0]); /* the program's own order */
        else
            drop(g->lane[1], b.p); /* the next launch's */
    }
    both_wait(g);
    drop(g->lane[0], b.p);
    left_end(&b);
}

static void a_producer_is_launched_again_with_its_block_allocated(void) {
    run_apart(N, producer_rank);
}

static int apart(const char *p, const char *q) {
    return p + BLOCK <= q || q + BLOCK <= p;
}

/* G.4.2: what has a place of its own stays while the lane's other graphs run, those captured before
 * and after. */
static void keep_rank(rig *g) {
    left_block b[4]; /* 0 and 3 free their own */
    gk_view v[2];
    for (int i = 0; i < 4; i++) {
        const int own = i == 0 || i == 3;
        capture_local(g, &b[i], own ? 0 : SYMM_ALLOC_KEEP, 0, 10 + i, own);
    }
    for (int i = 1; i < 3; i++)
        T_CHECK(apart(b[i].p, b[0].p) && apart(b[i].p, b[3].p) && apart(b[1].p, b[2].p));
    for (int i = 0; i < ROUNDS; i++) {
        left_launch(g, &b[1]);
        left_launch(g, &b[0]);
        left_launch(g, &b[2]);
        left_launch(g, &b[3]);
        left_launch(g, &b[0]);
        for (int k = 0; k < 2; k++) late_local(g, b[1 + k].p, 11 + k, &v[k]);
        if (i & 1) come_behind(g->stream[1], g->stream[0]); /* lane 0 frees what stream 1 reads */
        for (int k = 0; k < 2; k++) drop(g->lane[i & 1 ? k : 1], b[1 + k].p);
    }
    both_wait(g);
    for (int i = 0; i < 4; i++) left_end(&b[i]);
}

static void kept_blocks_stay_while_other_graphs_run(void) {
    run_apart(N, keep_rank);
}

/* G.3.3: used and freed in another graph: on the same stream, behind an event on another; or
 * without a graph, on another stream. */
static void elsewhere_rank(rig *g) {
    cu_stream s = g->stream[0], t = g->stream[1];
    left_block a, f;
    gk_view v;
    T_EXPECT_WARNINGS();
    capture_local(g, &a, 0, 0, 9, 0);
    gk_capture(t, SYMM_CUDA_CAPTURE_MODE_THREAD_LOCAL);
    gk_delay(t, LATE_US);
    check(g, t, a.p, 9, &f.v[0]);
    drop(g->lane[1], a.p);
    f.p = alloc(g->lane[1], BLOCK, SYMM_ALLOC_LOCAL);
    fill(t, f.p, 0x44);
    drop(g->lane[1], f.p);
    f.graph = gk_captured(t);
    T_OK(symmMemPlanBind(g->lane[1], (symmGraph_t)(void *)f.graph.graph, 0, &f.plan));
    for (int i = 0; i < ROUNDS; i++) {
        left_launch(g, &a);
        T_ERR(symmMemPlanLaunch(a.plan, (symmGraphExec_t)(void *)a.graph.exec, gk_stream(s)),
              symmInvalidUsage);
        if (i % 3 == 2) {
            late_local(g, a.p, 9, &v);
            drop(g->lane[1], a.p);
            T_ERR(symmMemPlanLaunch(f.plan, (symmGraphExec_t)(void *)f.graph.exec, gk_stream(t)),
                  symmInvalidUsage);
            continue;
        }
        if (i % 3) come_behind(s, t);
        launch(f.plan, f.graph.exec, i % 3 ? t : s);
        if (i % 3)
            come_behind(t, s);
        else
            come_behind(s, t);
    }
    both_wait(g);
    left_end(&a);
    left_end(&f);
}

static void blocks_are_freed_in_another_graph(void) {
    run_apart(N, elsewhere_rank);
}

/* A late free on another stream: not only its own graph's next launch comes behind it, but that of
 * each graph whose blocks lie there. Two such take turns, on both streams; what the last launch
 * of the lane was is not enough to go by. */
static void late_free_rank(rig *g) {
    cu_stream s = g->stream[0], t = g->stream[1];
    left_block other[2], left;
    gk_view v;
    T_EXPECT_WARNINGS();
    for (int k = 0; k < 2; k++) capture_local(g, &other[k], 0, 0, 0x21 + k, 1);
    capture_local(g, &left, 0, 0, 9, 0);
    T_CHECK(left.p == other[0].p && left.p == other[1].p);
    for (int i = 0; i < ROUNDS; i++) {
        left_block *next = &other[i & 1];
        left_launch(g, &left);
        late_local(g, left.p, 9, &v);
        T_ERR(
            symmMemPlanLaunch(next->plan, (symmGraphExec_t)(void *)next->graph.exec, gk_stream(s)),
            symmInvalidUsage);
        drop(g->lane[1], left.p);
        left_launch(g, next);
        if (i % 3 == 0) left_launch(g, &other[!(i & 1)]);
        if (i % 4 == 0) come_behind(s, t);
    }
    both_wait(g);
    for (int k = 0; k < 2; k++) left_end(&other[k]);
    left_end(&left);
}

static void a_late_free_orders_every_graph_over_that_memory(void) {
    run_apart(N, late_free_rank);
}

static void a_graph_waits_for_every_ranks_late_free(void) {
    run_sizes(case_late_free);
}

static void explicit_nodes_wait_for_late_peers(void) {
    run_sizes(case_nodes);
}

typedef cu_result (*record_fn)(cu_event event, cu_stream stream, unsigned flags);
enum { EXTERNAL = 1 }; /* CU_EVENT_RECORD_EXTERNAL, CU_EVENT_WAIT_EXTERNAL */

/* The library does not use it: from the driver that is loaded already. */
static record_fn find_record(void) {
    record_fn fn = NULL;
    void *lib = gk_number("GPU_FAKE", 0) ? NULL : dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
    void *symbol = lib ? dlsym(lib, "cuEventRecordWithFlags") : NULL;
    memcpy(&fn, &symbol, sizeof fn);
    return fn;
}

/* The third form of G.3.3: nodes of both graphs, and nothing else, order the use and the free. */
static void external_rank(rig *g) {
    cu_stream s = g->stream[0], t = g->stream[1];
    left_block a, f;
    cu_event made;
    const record_fn record = find_record();
    CU(cuEventCreate(&made, SYMM_CUDA_EVENT_DISABLE_TIMING));
    gk_capture(s, SYMM_CUDA_CAPTURE_MODE_THREAD_LOCAL);
    a.p = alloc(g->lane[0], BLOCK, SYMM_ALLOC_LOCAL);
    fill(s, a.p, 0x66);
    gk_delay(s, WAIT_US);
    fill(s, a.p, 9);
    T_EQ(record(made, s, EXTERNAL), 0);
    a.graph = gk_captured(s);
    T_OK(symmMemPlanBind(g->lane[0], (symmGraph_t)(void *)a.graph.graph, 0, &a.plan));
    gk_capture(t, SYMM_CUDA_CAPTURE_MODE_THREAD_LOCAL);
    CU(cuStreamWaitEvent(t, made, EXTERNAL));
    check(g, t, a.p, 9, &f.v[0]);
    drop(g->lane[1], a.p);
    f.graph = gk_captured(t);
    T_OK(symmMemPlanBind(g->lane[1], (symmGraph_t)(void *)f.graph.graph, 0, &f.plan));
    for (int i = 0; i < ROUNDS; i++) {
        left_launch(g, &a);
        launch(f.plan, f.graph.exec, t);
        come_behind(t, s); /* the next round */
    }
    both_wait(g);
    left_end(&a);
    left_end(&f);
    CU(cuEventDestroy(made));
}

static void external_event_nodes_order_a_free(void) {
    gk_begin();
    if (!find_record()) T_SKIP("needs cuda: the fake driver has no external event nodes");
    run_apart(N, external_rank);
}

static void nodes_rank(rig *g) {
    cu_graph graph = NULL;
    cu_graph_exec exec;
    symmMemPlan_t plan;
    symmGraphNode_t a, b, c, d, f;
    void *p, *q, *r;
    symmAllocNode_t params = {.size = sizeof params, .bytes = BLOCK, .flags = SYMM_ALLOC_LOCAL};
    T_EXPECT_WARNINGS();
    /* an empty capture is an empty graph */
    gk_capture(g->stream[0], SYMM_CUDA_CAPTURE_MODE_RELAXED);
    graph = end_capture(g->stream[0]);
    T_OK(symmMemPlanCreate(g->lane[0], (symmGraph_t)(void *)graph, 0, &plan));
    T_OK(symmMemPlanAddAllocNode(plan, NULL, 0, &params, &a, &p));
    T_OK(symmMemPlanAddOrderNode(plan, &a, 1, &b));
    T_OK(symmMemPlanAddOrderNode(plan, NULL, 0, &c));
    T_ERR(symmMemPlanAddFreeNode(plan, &c, 1, p, &d), symmInvalidArgument);
    T_OK(symmMemPlanAddFreeNode(plan, &b, 1, p, &d));
    T_OK(symmMemPlanAddAllocNode(plan, &b, 1, &params, &f, &q));
    T_OK(symmMemPlanAddAllocNode(plan, &d, 1, &params, &c, &r));
    T_CHECK(q != p && r == p);
    T_OK(symmMemPlanAddFreeNode(plan, &f, 1, q, &a));
    T_OK(symmMemPlanAddFreeNode(plan, &c, 1, r, &a));
    meet(g);
    CU(cuGraphInstantiate(&exec, graph, 0));
    meet(g);
    for (int i = 0; i < 3; i++)
        T_OK(symmMemPlanLaunch(plan, (symmGraphExec_t)(void *)exec, gk_stream(g->stream[0])));
    gk_wait(g->comm, g->stream[0]);
    T_OK(symmMemPlanDestroy(plan));
    CU(cuGraphExecDestroy(exec));
    CU(cuGraphDestroy(graph));
}

static void explicit_nodes(void) {
    run_apart(N, nodes_rank);
}

/* Two graphs whose blocks lie in the same memory under two addresses, replayed in turn with late
 * writers from peers. */
static void alias_rank(rig *g) {
    cu_stream s = g->stream[0];
    symmMemPlan_t plan[2];
    gk_graph graph[2];
    char *p[2];
    gk_view l[4];
    T_OK(symmLaneAlias(g->lane[0], 3 << 20));
    for (int i = 0; i < 2; i++) {
        gk_capture(s, SYMM_CUDA_CAPTURE_MODE_THREAD_LOCAL);
        p[i] = alloc(g->lane[0], BLOCK, SYMM_ALLOC_SYM);
        meet(g); /* thread ranks: the late writer's copies go to what peers have mapped */
        late_writer(g, s, p[i]);
        T_OK(symmBarrier(g->comm, gk_stream(s)));
        fill(s, p[i], 1 + i);
        gk_delay(s, WAIT_US); /* a peer that began the other graph too early would be seen */
        check(g, s, p[i], 1 + i, &l[2 * i]);
        T_OK(symmAllReduce(p[i], p[i], BLOCK, symmUint8, symmSum, g->comm, gk_stream(s)));
        check(g, s, p[i], (1 + i) * g->n, &l[2 * i + 1]);
        drop(g->lane[0], p[i]);
        graph[i] = gk_captured(s);
        T_OK(symmMemPlanBind(g->lane[0], (symmGraph_t)(void *)graph[i].graph, SYMM_MEMPLAN_ALIAS,
                             &plan[i]));
        symmGraphExec_t exec = (symmGraphExec_t)(void *)graph[i].exec;
        T_OK(symmMemPlanUpload(plan[i], exec, gk_stream(s)));
    }
    T_CHECK(p[0] != p[1]);
    fill(s, p[0], 60 + g->rank);
    check(g, s, p[1], 60 + g->rank, &(gk_view){0});
    gk_wait(g->comm, s);
    meet(g);
    for (int i = 0; i < ROUNDS; i++) {
        cu_stream at = g->stream[i % 3 == 0];
        launch(plan[i & 1], graph[i & 1].exec, at);
        gk_near(g->comm, at, i);
    }
    for (int i = 0; i < 2; i++) gk_wait(g->comm, g->stream[i]);
    meet(g);
    for (int i = 0; i < 2; i++) T_OK(symmMemPlanDestroy(plan[i])), gk_drop(&graph[i]);
    T_OK(symmHeapCollect(g->heap)); /* of what the driver has let go by now */
}

static void graphs_with_addresses_of_their_own(void) {
    run_sizes(alias_rank);
}

static void graphs_with_addresses_of_their_own_and_late_peers_between(void) {
    run_sizes(case_alias);
}

/* ---- growth ---------------------------------------------------------------------------------- */

static void launches_free_what_the_last_one_left(void) {
    run_sizes(case_auto_free);
}

static void a_heap_grows_under_late_peers(void) {
    run_sizes(case_grow);
}

static void a_vector_grows_while_peers_read_it(void) {
    run_sizes(case_vector);
}

T_MAIN(T(a_block_is_used_again_behind_every_ranks_free), T(lanes_come_one_behind_the_other),
       T(a_replay_waits_for_late_peers), T(forks_joins_and_shared_offsets),
       T(blocks_that_outlive_their_graph), T(a_producer_is_launched_again_with_its_block_allocated),
       T(kept_blocks_stay_while_other_graphs_run), T(blocks_are_freed_in_another_graph),
       T(a_late_free_orders_every_graph_over_that_memory),
       T(a_graph_waits_for_every_ranks_late_free), T(explicit_nodes_wait_for_late_peers),
       T(external_event_nodes_order_a_free), T(explicit_nodes),
       T(graphs_with_addresses_of_their_own),
       T(graphs_with_addresses_of_their_own_and_late_peers_between),
       T(launches_free_what_the_last_one_left), T(a_heap_grows_under_late_peers),
       T(a_vector_grows_while_peers_read_it))
