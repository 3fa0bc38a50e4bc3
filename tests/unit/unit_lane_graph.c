/* unit_lane_graph.c - graph order on one rank, over captures of host streams. Each test is named
 * after the item of the list of graph memory nodes that it shows. The planner by itself:
 * unit_gplan.c; several ranks: thr_lane.c. The test's thread drives all. */
#include <unistd.h>

#include "graph_kit.h"
#include "lane_kit.h"

enum { B = 4096 };

static void run(lk *k, symmMemPlan_t plan, symmGraph_t g, int stream) {
    T_OK(symmMemPlanLaunch(plan, xg_exec(g), k->stream[stream]));
}

/* A graph that allocates n blocks one after the other, writes, checks and frees each. */
static symmGraph_t capture_chain(lk *k, int lane, int n, size_t bytes, char **first) {
    T_OK(symmStreamBeginCapture(k->stream[lane]));
    for (int i = 0; i < n; i++) {
        char *p = lk_local(k->lane[lane], bytes);
        if (i == 0) *first = p;
        T_CHECK(p == *first);
        lk_fill(k->stream[lane], p, bytes, i + 1);
        lk_check(k->stream[lane], p, bytes, i + 1);
        lk_free(k->lane[lane], p);
    }
    return lk_end(k->stream[lane]);
}

/* A graph that leaves a block. */
static symmGraph_t capture_left(lk *k, int lane, unsigned flags, char **p) {
    T_OK(symmStreamBeginCapture(k->stream[lane]));
    *p = lk_alloc(k->lane[lane], B, flags);
    lk_fill(k->stream[lane], *p, B, 9);
    return lk_end(k->stream[lane]);
}

static void G_1_an_address_is_fixed_for_the_graphs_life(void) {
    lk k;
    char *p;
    lk_alone(&k, 2);
    symmGraph_t g = capture_chain(&k, 0, 3, B, &p);
    symmMemPlan_t plan = lk_bind(k.lane[0], g, 0);
    for (int i = 0; i < 50; i++) {
        char *q = lk_local(k.lane[0], B + 256 * (size_t)(i % 3)); /* eager work between */
        T_CHECK(q != p);
        lk_fill(k.stream[0], q, B, 77);
        run(&k, plan, g, i % 2);
        lk_order(k.stream[i % 2], k.stream[0]);
        lk_check(k.stream[0], q, B, 77);
        lk_free(k.lane[0], q);
    }
    T_OK(symmMemPlanDestroy(plan));
    T_OK(
        symmGraphLaunch(xg_exec(g), k.stream[0])); /* the graph keeps its memory without the plan */
    T_OK(symmStreamSynchronize(k.stream[0]));
    T_OK(symmStreamSynchronize(k.stream[1]));
    T_OK(xg_destroy(g));
    lk_close(&k);
}

static void G_2_support_is_asked_without_an_error(void) {
    symmMemSupport_t s = {.size = sizeof s};
    lk_env();
    T_OK(symmMemQuerySupport(&s));
    T_CHECK(s.lanes && s.graphs && s.nodes && s.alias);
    T_STREQ(s.why, "");
}

static void G_3_a_graphs_destruction_frees_nothing(void) {
    lk k;
    char *p;
    T_EXPECT_WARNINGS();
    lk_alone(&k, 1);
    symmGraph_t g = capture_left(&k, 0, SYMM_ALLOC_LOCAL, &p);
    symmMemPlan_t plan = lk_bind(k.lane[0], g, 0);
    T_ERR(symmLaneFree(k.lane[0], p), symmInvalidArgument); /* has not begun to live */
    T_MSG(symmGetLastError(NULL), "not allocated");
    run(&k, plan, g, 0);
    T_OK(xg_destroy(g));
    T_OK(symmMemPlanDestroy(plan));
    lk_check(k.stream[0], p, B, 9);
    symmGraph_t other;
    char *q; /* what is captured now keeps off it */
    T_OK(symmStreamBeginCapture(k.stream[0]));
    q = lk_local(k.lane[0], B);
    T_CHECK(q != p);
    lk_free(k.lane[0], q);
    other = lk_end(k.stream[0]);
    T_OK(symmStreamSynchronize(k.stream[0]));
    T_OK(xg_destroy(other));
    lk_free(k.lane[0], p);
    T_ERR(symmLaneFree(k.lane[0], p), symmInvalidArgument);
    lk_close(&k);
}

static void G_3_1_explicit_nodes(void) {
    lk k;
    symmMemPlan_t plan;
    symmGraphNode_t a, b, c, d, e, f;
    void *p, *q, *r;
    symmAllocNode_t params = {.size = sizeof params, .bytes = B, .flags = SYMM_ALLOC_LOCAL};
    T_EXPECT_WARNINGS();
    lk_alone(&k, 1);
    T_OK(symmMemPlanCreate(k.lane[0], NULL, 0, &plan));
    T_OK(
        symmMemPlanAddAllocNode(plan, NULL, 0, &params, &a, &p)); /* the pointer is there at once */
    T_OK(symmMemPlanAddOrderNode(plan, &a, 1, &b));
    T_OK(symmMemPlanAddOrderNode(plan, &a, 1, &c));
    T_OK(symmMemPlanAddOrderNode(plan, NULL, 0, &e)); /* not after the alloc */
    T_ERR(symmMemPlanAddFreeNode(plan, &e, 1, p, &f), symmInvalidArgument);
    T_MSG(symmGetLastError(NULL), "does not come after its allocation");
    symmGraphNode_t both[] = {b, c};
    T_OK(symmMemPlanAddFreeNode(plan, both, 2, p, &d));          /* after all users */
    T_OK(symmMemPlanAddAllocNode(plan, &b, 1, &params, &e, &q)); /* after one of them only */
    T_CHECK(q != p);
    T_OK(symmMemPlanAddAllocNode(plan, &d, 1, &params, &f, &r));
    T_CHECK(r == p);
    T_ERR(symmMemPlanAddFreeNode(plan, &f, 1, (char *)p + 256, &a), symmInvalidArgument);
    symmGraphNode_t wild = (symmGraphNode_t)(uintptr_t)1000;
    T_ERR(symmMemPlanAddOrderNode(plan, &wild, 1, &a), symmInvalidArgument);
    T_MSG(symmGetLastError(NULL), "deps[0]");
    params.bytes = 0;
    T_ERR(symmMemPlanAddAllocNode(plan, NULL, 0, &params, &a, &p), symmInvalidArgument);
    T_OK(symmMemPlanAddFreeNode(plan, &e, 1, q, &a));
    T_OK(symmMemPlanAddFreeNode(plan, &f, 1, r, &a));
    T_OK(symmMemPlanLaunch(plan, NULL, k.stream[0]));
    T_OK(symmMemPlanLaunch(plan, NULL, k.stream[0]));
    T_OK(symmMemPlanDestroy(plan));
    lk_close(&k);
}

static void G_3_2_fork_and_join_carry_order(void) {
    lk k;
    lk_alone(&k, 2);
    symmStream_t s = k.stream[0], t = k.stream[1];
    T_OK(symmStreamBeginCapture(s));
    char *a = lk_local(k.lane[0], B);
    lk_fill(s, a, B, 1); /* usable at once */
    lk_order(s, t);
    char *b = lk_local(k.lane[1], B);
    T_CHECK(b != a);
    lk_fill(t, b, B, 2);
    lk_check(t, a, B, 1);
    lk_free(k.lane[1], b);
    char *c = lk_local(k.lane[0], B); /* t's free is not before this */
    T_CHECK(c != a && c != b);
    lk_fill(s, c, B, 3);
    lk_order(t, s);
    lk_free(k.lane[0], a);
    lk_free(k.lane[0], c);
    char *d = lk_local(k.lane[0], 3 * B); /* all three, one after the other */
    T_CHECK(d == a);
    lk_fill(s, d, 3 * B, 4);
    lk_check(s, d, 3 * B, 4);
    lk_free(k.lane[0], d);
    symmGraph_t g = lk_end(s);
    symmMemPlan_t plan = lk_bind(k.lane[0], g, 0);
    for (int i = 0; i < 20; i++) run(&k, plan, g, i & 1);
    T_OK(symmStreamSynchronize(s));
    T_OK(symmStreamSynchronize(t));
    T_OK(symmMemPlanDestroy(plan));
    T_OK(xg_destroy(g));
    lk_close(&k);
}

/* The block lives on: used and freed on the launching stream, on another behind an event, or in a
 * graph of its own. */
static void G_3_3_three_ways_to_order_what_outlives_its_graph(void) {
    lk k;
    char *p, *other;
    lk_alone(&k, 2);
    symmGraph_t g = capture_left(&k, 0, SYMM_ALLOC_LOCAL, &p);
    symmMemPlan_t plan = lk_bind(k.lane[0], g, 0);
    T_OK(symmStreamBeginCapture(k.stream[1]));
    lk_check(k.stream[1], p, B, 9);
    lk_free(k.lane[1], p);
    other = lk_local(k.lane[1], B);
    lk_free(k.lane[1], other);
    symmGraph_t freeing = lk_end(k.stream[1]);
    symmMemPlan_t free_plan = lk_bind(k.lane[1], freeing, 0);
    for (int i = 0; i < 30; i++) {
        lk_gate gate = {0};
        run(&k, plan, g, 0);
        if (i % 3 == 0) { /* one stream */
            lk_check(k.stream[0], p, B, 9);
            lk_free(k.lane[0], p);
        } else if (i % 3 == 1) { /* an event; the next launch waits for the other stream */
            lk_order(k.stream[0], k.stream[1]);
            lk_hold(k.stream[1], &gate);
            lk_check(k.stream[1], p, B, 9);
            lk_free(k.lane[1], p);
            run(&k, plan, g, 0);
            while (!atomic_load(&gate.reached)) sched_yield();
            usleep(3000); /* it would be through by now, if nothing held it */
            T_EQ(symmStreamQuery(k.stream[0]), symmInProgress);
            atomic_store(&gate.open, 1);
            lk_free(k.lane[0], p);
        } else { /* another graph, behind an event */
            lk_order(k.stream[0], k.stream[1]);
            run(&k, free_plan, freeing, 1);
            lk_order(k.stream[1], k.stream[0]);
        }
        T_OK(symmStreamSynchronize(k.stream[1]));
    }
    T_OK(symmStreamSynchronize(k.stream[0]));
    T_OK(symmMemPlanDestroy(plan));
    T_OK(symmMemPlanDestroy(free_plan));
    T_OK(xg_destroy(g));
    T_OK(xg_destroy(freeing));
    lk_close(&k);
}

static void G_3_4_a_relaunch_with_live_memory_is_an_error(void) {
    lk k;
    char *p;
    char name[32];
    T_EXPECT_WARNINGS();
    lk_alone(&k, 1);
    symmGraph_t g = capture_left(&k, 0, SYMM_ALLOC_LOCAL, &p);
    symmMemPlan_t plan = lk_bind(k.lane[0], g, 0);
    run(&k, plan, g, 0);
    T_ERR(symmMemPlanLaunch(plan, xg_exec(g), k.stream[0]), symmInvalidUsage);
    snprintf(name, sizeof name, "%p", (void *)p);
    T_MSG(symmGetLastError(NULL), name);
    lk_check(k.stream[0], p, B, 9);
    lk_free(k.lane[0], p);
    run(&k, plan, g, 0);
    lk_free(k.lane[0], p);
    T_OK(symmStreamSynchronize(k.stream[0]));
    T_OK(symmMemPlanDestroy(plan));
    T_OK(xg_destroy(g));
    lk_close(&k);
}

/* One that produces, launched again and again; some that consume, when they like. */
static void G_3_4_auto_free_on_launch(void) {
    lk k;
    char *p;
    lk_alone(&k, 2);
    symmGraph_t g = capture_left(&k, 0, SYMM_ALLOC_LOCAL, &p);
    symmMemPlan_t plan = lk_bind(k.lane[0], g, SYMM_MEMPLAN_AUTO_FREE);
    for (int i = 0; i < 20; i++) {
        run(&k, plan, g, 0);
        if (i % 3) lk_check(k.stream[0], p, B, 9);
        if (i % 4 == 1) lk_free(k.lane[0], p);
    }
    T_OK(xg_destroy(g));            /* waits for the replays */
    T_OK(symmMemPlanDestroy(plan)); /* the last one's block lives */
    lk_free(k.lane[0], p);
    lk_close(&k);
}

static void G_4_1_reuse_in_a_graph_follows_its_edges(void) {
    lk k;
    char *first;
    lk_alone(&k, 1);
    symmGraph_t g = capture_chain(&k, 0, 200, B, &first);
    symmMemPlan_t plan = lk_bind(k.lane[0], g, 0);
    T_EQ(lk_mem(k.lane[0], SYMM_GRAPH_MEM_USED), B);
    run(&k, plan, g, 0);
    T_OK(symmStreamSynchronize(k.stream[0]));
    T_OK(symmMemPlanDestroy(plan));
    T_OK(xg_destroy(g));
    lk_close(&k);
}

static void G_4_2_graphs_of_a_lane_share_memory(void) {
    enum { SIZE = 512 << 10 };
    lk k;
    char *p, *q, *r;
    lk_alone(&k, 2);
    symmGraph_t g = capture_chain(&k, 0, 2, SIZE, &p), h = capture_chain(&k, 0, 1, SIZE, &q);
    symmMemPlan_t a = lk_bind(k.lane[0], g, 0), b = lk_bind(k.lane[0], h, 0);
    T_CHECK(p == q);
    T_EQ(lk_mem(k.lane[0], SYMM_GRAPH_MEM_USED), SIZE);
    T_EQ(lk_mem(k.lane[0], SYMM_GRAPH_MEM_RESERVED), SIZE);
    symmGraph_t i = capture_chain(&k, 1, 1, SIZE, &r); /* another lane may run beside it */
    T_CHECK(r != p);
    for (int n = 0; n < 10; n++) run(&k, n & 1 ? a : b, n & 1 ? g : h, 0);
    T_OK(symmStreamSynchronize(k.stream[0]));
    T_OK(symmMemPlanDestroy(a));
    T_OK(symmMemPlanDestroy(b));
    T_OK(xg_destroy(g));
    T_OK(xg_destroy(h));
    T_OK(xg_destroy(i));
    lk_close(&k);
}

/* What is left allocated where an earlier graph has its blocks keeps that one from running; KEEP
 * asks for a place of its own. */
static void G_4_2_live_memory_keeps_other_graphs_out(void) {
    lk k;
    char *p, *left, *kept;
    T_EXPECT_WARNINGS();
    lk_alone(&k, 1);
    symmGraph_t g = capture_chain(&k, 0, 1, B, &p),
                h = capture_left(&k, 0, SYMM_ALLOC_LOCAL, &left),
                i = capture_left(&k, 0, SYMM_ALLOC_LOCAL | SYMM_ALLOC_KEEP, &kept);
    symmMemPlan_t a = lk_bind(k.lane[0], g, 0), b = lk_bind(k.lane[0], h, 0),
                  c = lk_bind(k.lane[0], i, 0);
    T_CHECK(left == p && kept != p);
    run(&k, c, i, 0);
    run(&k, a, g, 0);
    run(&k, b, h, 0);
    T_ERR(symmMemPlanLaunch(a, xg_exec(g), k.stream[0]), symmInvalidUsage);
    T_MSG(symmGetLastError(NULL), "another graph");
    lk_check(k.stream[0], left, B, 9);
    lk_free(k.lane[0], left);
    run(&k, a, g, 0);
    lk_check(k.stream[0], kept, B, 9);
    lk_free(k.lane[0], kept);
    T_OK(symmStreamSynchronize(k.stream[0]));
    T_OK(symmMemPlanDestroy(a)), T_OK(symmMemPlanDestroy(b)), T_OK(symmMemPlanDestroy(c));
    T_OK(xg_destroy(g)), T_OK(xg_destroy(h)), T_OK(xg_destroy(i));
    lk_close(&k);
}

/* Launches of a lane's graphs on different streams come one after the other, without the program's
 * events. */
static void G_5_a_change_of_stream_keeps_the_order(void) {
    lk k;
    char *p, *q;
    lk_gate gate = {0};
    lk_alone(&k, 2);
    T_OK(symmStreamBeginCapture(k.stream[0]));
    p = lk_local(k.lane[0], B);
    lk_hold(k.stream[0], &gate);
    lk_fill(k.stream[0], p, B, 1);
    lk_check(k.stream[0], p, B, 1);
    lk_free(k.lane[0], p);
    symmGraph_t g = lk_end(k.stream[0]), h = capture_chain(&k, 0, 4, B, &q);
    symmMemPlan_t a = lk_bind(k.lane[0], g, 0), b = lk_bind(k.lane[0], h, 0);
    T_OK(symmMemPlanUpload(a, xg_exec(g), k.stream[0]));
    run(&k, a, g, 0);
    run(&k, b, h, 1);
    while (!atomic_load(&gate.reached)) sched_yield();
    usleep(30000); /* it would be through by now, if nothing held it */
    T_EQ(symmStreamQuery(k.stream[1]), symmInProgress);
    atomic_store(&gate.open, 1);
    T_OK(symmStreamSynchronize(k.stream[1]));
    for (int i = 0; i < 200; i++) run(&k, i & 1 ? a : b, i & 1 ? g : h, i % 3 == 0);
    T_OK(symmStreamSynchronize(k.stream[0]));
    T_OK(symmStreamSynchronize(k.stream[1]));
    T_OK(symmMemPlanDestroy(a)), T_OK(symmMemPlanDestroy(b));
    T_OK(xg_destroy(g)), T_OK(xg_destroy(h));
    lk_close(&k);
}

static void G_6_trim_gives_back_what_no_plan_uses(void) {
    enum { BIG = 512 << 10 };
    lk k;
    char *p, *q;
    uint64_t freed = 0;
    symmHeapInfo_t i = {.size = sizeof i};
    lk_alone(&k, 1);
    symmGraph_t g = capture_chain(&k, 0, 1, BIG, &p);
    symmMemPlan_t a = lk_bind(k.lane[0], g, 0);
    T_OK(symmStreamBeginCapture(k.stream[0]));
    q = lk_sym(k.lane[0], B);
    lk_free(k.lane[0], q);
    symmGraph_t h = lk_end(k.stream[0]);
    symmMemPlan_t b = lk_bind(k.lane[0], h, 0);
    run(&k, a, g, 0);
    T_OK(symmMemPlanDestroy(a));
    T_OK(symmLaneTrimGraphMem(k.lane[0], &freed)); /* no plan uses it, but the graph lives on it */
    T_EQ(freed, BIG);
    T_EQ(lk_mem(k.lane[0], SYMM_GRAPH_MEM_USED_HIGH), BIG + B);
    T_OK(symmHeapQuery(k.heap, &i));
    T_CHECK(i.localUsed >= BIG);
    T_OK(symmGraphLaunch(xg_exec(g), k.stream[0]));
    T_OK(symmStreamSynchronize(k.stream[0]));
    T_OK(xg_destroy(g));
    T_OK(symmLaneTrimGraphMem(k.lane[0], &freed));
    T_EQ(freed, 0); /* the other plan's */
    T_OK(symmHeapQuery(k.heap, &i));
    T_EQ(i.localUsed, 0);
    T_OK(symmMemPlanDestroy(b));
    T_OK(xg_destroy(h));
    T_OK(symmLaneTrimGraphMem(k.lane[0], &freed));
    T_CHECK(freed > 0);
    T_EQ(lk_mem(k.lane[0], SYMM_GRAPH_MEM_RESERVED), 0);
    T_OK(symmHeapCollect(k.heap));
    T_OK(symmHeapQuery(k.heap, &i));
    T_EQ(i.symUsed + i.uncollected, 0);
    lk_close(&k);
}

static void G_6_used_and_reserved_have_highs(void) {
    lk k;
    char *p;
    uint64_t v;
    T_EXPECT_WARNINGS();
    lk_alone(&k, 1);
    T_EQ(lk_mem(k.lane[0], SYMM_GRAPH_MEM_RESERVED_HIGH), 0);
    symmGraph_t g = capture_chain(&k, 0, 1, 100 * LK_KB, &p);
    symmMemPlan_t a = lk_bind(k.lane[0], g, 0);
    T_EQ(lk_mem(k.lane[0], SYMM_GRAPH_MEM_USED), 100 * LK_KB);
    T_OK(symmMemPlanDestroy(a));
    T_OK(xg_destroy(g));
    T_EQ(lk_mem(k.lane[0], SYMM_GRAPH_MEM_USED), 0);
    T_EQ(lk_mem(k.lane[0], SYMM_GRAPH_MEM_USED_HIGH), 100 * LK_KB);
    T_OK(symmLaneTrimGraphMem(k.lane[0], NULL));
    T_EQ(lk_mem(k.lane[0], SYMM_GRAPH_MEM_RESERVED), 0);
    T_CHECK(lk_mem(k.lane[0], SYMM_GRAPH_MEM_RESERVED_HIGH) >= 100 * LK_KB);
    T_ERR(symmLaneSetGraphMem(k.lane[0], SYMM_GRAPH_MEM_USED_HIGH, 5), symmInvalidArgument);
    T_ERR(symmLaneSetGraphMem(k.lane[0], SYMM_GRAPH_MEM_USED, 0), symmInvalidArgument);
    T_ERR(symmLaneGetGraphMem(k.lane[0], 4, &v), symmInvalidArgument);
    T_OK(symmLaneSetGraphMem(k.lane[0], SYMM_GRAPH_MEM_USED_HIGH, 0));
    T_OK(symmLaneSetGraphMem(k.lane[0], SYMM_GRAPH_MEM_RESERVED_HIGH, 0));
    T_EQ(lk_mem(k.lane[0], SYMM_GRAPH_MEM_USED_HIGH), 0);
    T_EQ(lk_mem(k.lane[0], SYMM_GRAPH_MEM_RESERVED_HIGH), 0);
    lk_close(&k);
}

/* Three ranks, one process: the lists are this rank's own record. */
static void G_7_access_is_what_it_was_at_capture(void) {
    lk k;
    symmComm_t comms[3];
    symmHeapConfig_t c = SYMM_HEAP_CONFIG_INITIALIZER;
    symmHeap_t heaps[3];
    symmMemPlan_t plan;
    symmGraphNode_t node;
    void *q;
    const int one[] = {2}, bad[] = {0, 3};
    int allowed[4] = {-1, -1, -1, -1};
    T_EXPECT_WARNINGS();
    lk_env();
    T_OK(symmCommInitAll(comms, 3, NULL));
    c.symBytes = c.localBytes = LK_MB;
    T_OK(symmGroupStart());
    for (int r = 0; r < 3; r++) T_OK(symmHeapCreate(comms[r], &c, &heaps[r]));
    T_OK(symmGroupEnd());
    k = (lk){.rank = 1, .n = 3, .comm = comms[1], .heap = heaps[1], .lanes = 1};
    T_OK(symmStreamCreate(&k.stream[0]));
    T_OK(symmLaneCreate(k.heap, k.stream[0], &k.lane[0]));
    T_ERR(symmLaneSetAccess(k.lane[0], bad, 2), symmInvalidArgument);
    T_MSG(symmGetLastError(NULL), "ranks[1]=3");
    T_OK(symmLaneSetAccess(k.lane[0], one, 1));
    T_OK(symmStreamBeginCapture(k.stream[0]));
    char *p = lk_local(k.lane[0], B);
    T_OK(symmLaneSetAccess(k.lane[0], NULL, 0)); /* too late for p */
    lk_free(k.lane[0], p);
    symmGraph_t g = lk_end(k.stream[0]);
    for (int r = 0; r < 3; r++) T_OK(symmLaneGetAccess(k.lane[0], p, r, &allowed[r]));
    T_CHECK(allowed[0] == 0 && allowed[1] == 1 && allowed[2] == 1); /* its own rank always */
    T_ERR(symmLaneGetAccess(k.lane[0], p, 3, &allowed[3]), symmInvalidArgument);
    T_ERR(symmLaneGetAccess(k.lane[0], &k, 0, &allowed[3]), symmInvalidArgument);
    symmAllocNode_t params = {sizeof params, B, SYMM_ALLOC_LOCAL, 1, one};
    T_OK(symmMemPlanCreate(k.lane[0], NULL, 0, &plan));
    T_OK(symmMemPlanAddAllocNode(plan, NULL, 0, &params, &node, &q));
    params.ranks = bad, params.nranks = 2;
    T_ERR(symmMemPlanAddAllocNode(plan, NULL, 0, &params, &node, &q), symmInvalidArgument);
    T_OK(symmLaneGetAccess(k.lane[0], q, 0, &allowed[3]));
    T_EQ(allowed[3], 0);
    T_OK(symmMemPlanDestroy(plan));
    T_OK(xg_destroy(g));
    T_OK(symmLaneDestroy(k.lane[0]));
    T_OK(symmStreamDestroy(k.stream[0]));
    for (int r = 0; r < 3; r++) {
        T_OK(symmHeapDestroy(heaps[r]));
        T_OK(symmCommDestroy(comms[r]));
    }
}

/* A graph that is launched into a capture becomes part of that one: the memory stays until both are
 * gone, and the plan's end frees nothing too early. */
static void D_a_copy_holds_the_memory(void) {
    enum { BIG = 512 << 10 };
    lk k;
    char *p, *q;
    symmHeapInfo_t i = {.size = sizeof i};
    lk_alone(&k, 2);
    symmGraph_t g = capture_chain(&k, 0, 2, BIG, &p);
    symmMemPlan_t plan = lk_bind(k.lane[0], g, 0);
    T_OK(symmStreamBeginCapture(k.stream[1]));
    T_OK(symmGraphLaunch(xg_exec(g), k.stream[1]));
    symmGraph_t copy = lk_end(k.stream[1]);
    run(&k, plan, g, 0);
    T_OK(symmMemPlanDestroy(plan)), T_OK(xg_destroy(g));
    T_OK(symmLaneTrimGraphMem(k.lane[0], NULL));
    T_OK(symmHeapQuery(k.heap, &i));
    T_CHECK(i.localUsed >= BIG);
    symmGraph_t h =
        capture_chain(&k, 0, 1, BIG, &q); /* other memory: the copy may run at any time */
    T_CHECK(q + BIG <= p || p + BIG <= q);
    T_OK(symmGraphLaunch(xg_exec(copy), k.stream[1]));
    T_OK(symmGraphLaunch(xg_exec(h), k.stream[0]));
    T_OK(xg_destroy(copy)), T_OK(xg_destroy(h));
    T_OK(symmLaneDestroy(k.lane[0])), k.lane[0] = NULL;
    T_OK(symmHeapQuery(k.heap, &i));
    T_EQ(i.localUsed, 0);
    lk_close(&k);
}

static void D_frees_that_are_none(void) {
    lk k;
    char *p, *own;
    symmMemPlan_t none = NULL;
    T_EXPECT_WARNINGS();
    lk_alone(&k, 1);
    char *eager = lk_local(k.lane[0], B);
    T_OK(symmStreamBeginCapture(k.stream[0]));
    own = lk_local(k.lane[0], B);
    T_ERR(symmLaneFree(k.lane[0], eager), symmInvalidArgument);
    T_MSG(symmGetLastError(NULL), "outside a graph");
    T_ERR(symmLaneFree(k.lane[0], own + 256), symmInvalidArgument);
    lk_free(k.lane[0], own);
    T_ERR(symmLaneFree(k.lane[0], own), symmInvalidArgument); /* twice in one graph */
    T_MSG(symmGetLastError(NULL), "already freed in this graph");
    symmGraph_t g = lk_end(k.stream[0]);
    symmMemPlan_t plan = lk_bind(k.lane[0], g, 0);
    T_ERR(symmMemPlanBind(k.lane[0], g, 0, &none), symmInvalidArgument); /* bound already */
    T_ERR(symmMemPlanBind(k.lane[0], g, 64, &none), symmInvalidArgument);
    T_ERR(symmMemPlanBind(k.lane[0], (symmGraph_t)(void *)&k, 0, &none), symmInvalidArgument);
    run(&k, plan, g, 0);
    T_ERR(symmLaneFree(k.lane[0], own), symmInvalidArgument); /* freed in its own graph */
    T_MSG(symmGetLastError(NULL), "cannot be freed elsewhere");
    T_OK(symmStreamBeginCapture(k.stream[0]));
    T_ERR(symmLaneFree(k.lane[0], own), symmInvalidArgument);
    T_ERR(symmMemPlanLaunch(plan, xg_exec(g), k.stream[0]),
          symmInvalidUsage); /* no part of another graph */
    symmGraph_t empty = lk_end(k.stream[0]);
    T_OK(xg_destroy(empty));
    T_OK(symmStreamSynchronize(k.stream[0]));
    lk_free(k.lane[0], eager);
    T_OK(symmMemPlanDestroy(plan));
    T_ERR(symmMemPlanDestroy(plan), symmInvalidArgument);
    T_ERR(symmMemPlanLaunch(plan, xg_exec(g), k.stream[0]), symmInvalidArgument);
    T_OK(xg_destroy(g));
    g = capture_left(&k, 0, SYMM_ALLOC_LOCAL, &p);
    plan = lk_bind(k.lane[0], g, 0);
    T_OK(symmStreamBeginCapture(k.stream[0]));
    lk_free(k.lane[0], p);
    T_ERR(symmLaneFree(k.lane[0], p), symmInvalidArgument);
    symmGraph_t h = lk_end(k.stream[0]);
    symmMemPlan_t second = lk_bind(k.lane[0], h, 0);
    T_ERR(symmMemPlanLaunch(second, xg_exec(h), k.stream[0]),
          symmInvalidUsage); /* nothing there to free */
    T_MSG(symmGetLastError(NULL), "which this graph frees, is not allocated");
    run(&k, plan, g, 0);
    run(&k, second, h, 0);
    run(&k, plan, g, 0);
    T_OK(symmStreamSynchronize(k.stream[0]));
    T_OK(symmMemPlanDestroy(plan)), T_OK(xg_destroy(g)); /* the one that it frees from goes first */
    run(&k, second, h, 0);
    T_OK(symmMemPlanDestroy(second)), T_OK(xg_destroy(h));
    T_ERR(symmLaneFree(k.lane[0], p), symmInvalidArgument);
    lk_close(&k);
}

/* Graphs, lanes, heaps and communicators end in any order, also with a capture that came to
 * nothing. */
static void ends_in_any_order(void) {
    for (int order = 0; order < 6; order++) {
        lk k;
        char *p;
        symmMemPlan_t plan = NULL;
        T_EXPECT_WARNINGS();
        lk_alone(&k, 2);
        T_OK(symmStreamBeginCapture(k.stream[1]));
        lk_order(k.stream[1], k.stream[0]);
        lk_free(k.lane[0], lk_sym(k.lane[0], B));
        lk_fill(k.stream[0], (char *)&p, 0, 0);
        symmGraph_t lost = NULL;
        T_ERR(symmStreamEndCapture(k.stream[1], &lost), symmInvalidUsage); /* unjoined */
        symmGraph_t g = capture_chain(&k, 0, 2, B, &p), h = capture_chain(&k, 0, 2, B, &p);
        if (order & 1) plan = lk_bind(k.lane[0], g, 0);
        if (plan) run(&k, plan, g, 0);
        T_OK(symmStreamSynchronize(k.stream[0]));
        if (order / 2 == 0) T_OK(xg_destroy(g)), T_OK(xg_destroy(h));
        if (order / 2 == 2) T_OK(symmCommDestroy(k.comm));
        for (int i = 0; i < 2; i++) {
            T_OK(symmLaneDestroy(k.lane[i]));
            T_OK(symmStreamDestroy(k.stream[i]));
        }
        if (order / 2 == 1) T_OK(symmHeapDestroy(k.heap));
        if (order / 2 != 0) T_OK(xg_destroy(g)), T_OK(xg_destroy(h));
        if (plan) T_OK(symmMemPlanDestroy(plan));
        if (order / 2 != 2) T_OK(symmCommDestroy(k.comm));
        T_EQ(SYMM_STAT_GET(lanes) + SYMM_STAT_GET(plans) + SYMM_STAT_GET(comms), 0);
    }
}

T_MAIN(T(G_1_an_address_is_fixed_for_the_graphs_life), T(G_2_support_is_asked_without_an_error),
       T(G_3_a_graphs_destruction_frees_nothing), T(G_3_1_explicit_nodes),
       T(G_3_2_fork_and_join_carry_order), T(G_3_3_three_ways_to_order_what_outlives_its_graph),
       T(G_3_4_a_relaunch_with_live_memory_is_an_error), T(G_3_4_auto_free_on_launch),
       T(G_4_1_reuse_in_a_graph_follows_its_edges), T(G_4_2_graphs_of_a_lane_share_memory),
       T(G_4_2_live_memory_keeps_other_graphs_out), T(G_5_a_change_of_stream_keeps_the_order),
       T(G_6_trim_gives_back_what_no_plan_uses), T(G_6_used_and_reserved_have_highs),
       T(G_7_access_is_what_it_was_at_capture), T(D_a_copy_holds_the_memory),
       T(D_frees_that_are_none), T(ends_in_any_order))
