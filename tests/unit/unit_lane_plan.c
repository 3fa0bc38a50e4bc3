/* unit_lane_plan.c - plans and the graphs they are of, on the host backend: what is refused where
 * they do not belong together, and nodes that come after a launch. One rank; the test's thread
 * drives all. */
#include "graph_kit.h"
#include "lane_kit.h"

enum { B = 4096 };

static symmGraph_t capture_left(lk *k, int lane, char **p) {
    T_OK(symmStreamBeginCapture(k->stream[lane]));
    *p = lk_local(k->lane[lane], B);
    lk_fill(k->stream[lane], *p, B, 9);
    return lk_end(k->stream[lane]);
}

static void run(lk *k, symmMemPlan_t plan, symmGraph_t g) {
    T_OK(symmMemPlanLaunch(plan, xg_exec(g), k->stream[0]));
    T_OK(symmStreamSynchronize(k->stream[0]));
}

/* ---- plans and graphs that do not belong together ---- */

static void only_the_plans_own_graph_is_launched(void) {
    lk k;
    char *p, *q, *r;
    symmMemPlan_t nodes;
    T_EXPECT_WARNINGS();
    lk_alone(&k, 1);
    symmGraph_t a = capture_left(&k, 0, &p), b = capture_left(&k, 0, &q), loose, none, gone;
    symmMemPlan_t pa = lk_bind(k.lane[0], a, 0), pb = lk_bind(k.lane[0], b, 0);
    loose = capture_left(&k, 0, &r);
    T_OK(symmStreamBeginCapture(k.stream[0]));
    lk_fill(k.stream[0], p, 0, 0);
    none = lk_end(k.stream[0]);
    T_OK(symmStreamBeginCapture(k.stream[0]));
    gone = lk_end(k.stream[0]);
    T_OK(xg_destroy(gone));
    T_OK(symmMemPlanCreate(k.lane[0], NULL, 0, &nodes));
    T_ERR(symmMemPlanLaunch(pa, xg_exec(b), k.stream[0]), symmInvalidArgument);
    T_MSG(symmGetLastError(NULL), "is not of the graph of plan");
    T_MSG(symmGetLastError(NULL), "but of the graph of plan");
    T_ERR(symmMemPlanLaunch(nodes, xg_exec(b), k.stream[0]), symmInvalidArgument);
    T_MSG(symmGetLastError(NULL), "but of the graph of plan");
    T_ERR(symmMemPlanLaunch(pa, xg_exec(loose), k.stream[0]), symmInvalidArgument);
    T_ERR(symmMemPlanLaunch(nodes, xg_exec(loose), k.stream[0]), symmInvalidArgument);
    T_MSG(symmGetLastError(NULL), "nor of the graph of another plan");
    T_ERR(symmMemPlanLaunch(pa, xg_exec(none), k.stream[0]), symmInvalidArgument);
    T_ERR(symmMemPlanLaunch(pa, xg_exec(gone), k.stream[0]), symmInvalidArgument);
    T_MSG(symmGetLastError(NULL), "not a live executable");
    T_ERR(symmLaneFree(k.lane[0], p), symmInvalidArgument); /* nothing was launched or noted */
    T_ERR(symmLaneFree(k.lane[0], q), symmInvalidArgument);
    run(&k, nodes, none);
    run(&k, pa, a);
    lk_free(k.lane[0], p);
    run(&k, pb, b);
    lk_free(k.lane[0], q);
    T_OK(symmMemPlanDestroy(pa)), T_OK(symmMemPlanDestroy(pb)), T_OK(symmMemPlanDestroy(nodes));
    T_OK(xg_destroy(a)), T_OK(xg_destroy(b));
    T_OK(xg_destroy(loose)), T_OK(xg_destroy(none));
    lk_close(&k);
}

/* A graph that the plan's has become a part of runs the plan's blocks. */
static void a_graph_that_holds_the_plans_is_launched(void) {
    lk k;
    char *p;
    symmGraph_t whole;
    lk_alone(&k, 1);
    symmGraph_t g = capture_left(&k, 0, &p);
    symmMemPlan_t plan = lk_bind(k.lane[0], g, 0);
    T_OK(symmStreamBeginCapture(k.stream[0]));
    T_OK(symmGraphLaunch(xg_exec(g), k.stream[0]));
    whole = lk_end(k.stream[0]);
    run(&k, plan, whole);
    lk_check(k.stream[0], p, B, 9);
    lk_free(k.lane[0], p);
    T_OK(symmStreamSynchronize(k.stream[0]));
    T_OK(symmMemPlanDestroy(plan));
    T_OK(xg_destroy(g)), T_OK(xg_destroy(whole));
    lk_close(&k);
}

static void a_lane_without_a_call_binds_nothing(void) {
    lk k;
    char *p;
    symmMemPlan_t plan = NULL;
    T_EXPECT_WARNINGS();
    lk_alone(&k, 3);
    symmGraph_t g = capture_left(&k, 1, &p);
    T_ERR(symmMemPlanBind(k.lane[0], g, 0, &plan), symmInvalidArgument);
    T_MSG(symmGetLastError(NULL), "has no call of lane 0: its calls are of lane 1");
    plan = lk_bind(k.lane[1], g, 0);
    T_OK(symmMemPlanDestroy(plan));
    T_OK(xg_destroy(g));
    T_OK(symmStreamBeginCapture(k.stream[0])); /* of the communicator's calls alone */
    T_OK(symmBarrier(k.comm, k.stream[0]));
    g = lk_end(k.stream[0]);
    T_ERR(symmMemPlanBind(k.lane[0], g, 0, &plan), symmInvalidArgument);
    T_MSG(symmGetLastError(NULL), "has no call of a lane of this heap");
    T_OK(xg_destroy(g));
    for (int i = 0; i < 2; i++) { /* two lanes in one graph: either one, and not the third */
        T_OK(symmStreamBeginCapture(k.stream[0]));
        lk_order(k.stream[0], k.stream[1]);
        p = lk_local(k.lane[0], B);
        lk_free(k.lane[1], lk_local(k.lane[1], B));
        lk_order(k.stream[1], k.stream[0]);
        lk_free(k.lane[0], p);
        g = lk_end(k.stream[0]);
        T_ERR(symmMemPlanBind(k.lane[2], g, 0, &plan), symmInvalidArgument);
        T_MSG(symmGetLastError(NULL), "its calls are of lane 0 and others");
        plan = lk_bind(k.lane[i], g, 0);
        run(&k, plan, g);
        T_OK(symmMemPlanDestroy(plan));
        T_OK(xg_destroy(g));
    }
    lk_close(&k);
}

/* ---- nodes that come after a launch ---- */

/* The launch has left the block; what its graph does from the next one on is another matter. */
static void a_free_node_after_the_launch_loses_no_block(void) {
    lk k;
    symmMemPlan_t plan;
    symmGraphNode_t a, f;
    void *p;
    symmAllocNode_t params = {.size = sizeof params, .bytes = B, .flags = SYMM_ALLOC_LOCAL};
    T_EXPECT_WARNINGS();
    lk_alone(&k, 1);
    for (int by_graph = 0; by_graph < 2; by_graph++) {
        T_OK(symmMemPlanCreate(k.lane[0], NULL, 0, &plan));
        T_OK(symmMemPlanAddAllocNode(plan, NULL, 0, &params, &a, &p));
        T_OK(symmMemPlanLaunch(plan, NULL, k.stream[0]));
        T_OK(symmMemPlanAddFreeNode(plan, &a, 1, p, &f));
        T_ERR(symmMemPlanAddFreeNode(plan, &a, 1, p, &f), symmInvalidArgument);
        T_ERR(symmMemPlanLaunch(plan, NULL, k.stream[0]), symmInvalidUsage); /* still allocated */
        lk_fill(k.stream[0], p, B, 3);
        lk_check(k.stream[0], p, B, 3);
        if (by_graph) { /* it is freed in its own: not in another one too */
            T_OK(symmStreamBeginCapture(k.stream[0]));
            T_ERR(symmLaneFree(k.lane[0], p), symmInvalidArgument);
            T_OK(xg_destroy(lk_end(k.stream[0])));
        }
        lk_free(k.lane[0], p);
        T_ERR(symmLaneFree(k.lane[0], p), symmInvalidArgument);
        T_MSG(symmGetLastError(NULL), "freed in the graph that allocates it");
        for (int i = 0; i < 3; i++) T_OK(symmMemPlanLaunch(plan, NULL, k.stream[0]));
        T_ERR(symmLaneFree(k.lane[0], p), symmInvalidArgument); /* those launches freed it */
        T_OK(symmStreamSynchronize(k.stream[0]));
        T_OK(symmMemPlanDestroy(plan));
    }
    lk_close(&k);
}

/* ---- groups ---- */

static void a_node_too_large_is_told_so(void) {
    lk k;
    symmMemPlan_t plan;
    symmGraphNode_t node;
    void *p = NULL;
    T_EXPECT_WARNINGS();
    lk_alone(&k, 1);
    T_OK(symmMemPlanCreate(k.lane[0], NULL, 0, &plan));
    symmAllocNode_t a = {sizeof a, UINT64_MAX, SYMM_ALLOC_LOCAL, 0, NULL};
    for (; a.bytes > 1ull << 60; a.bytes /= 2) {
        T_ERR(symmMemPlanAddAllocNode(plan, NULL, 0, &a, &node, &p), symmOutOfMemory);
        T_CHECK(p == NULL);
        if (a.bytes > UINT64_MAX / 4) T_MSG(symmGetLastError(NULL), "is more than any heap");
    }
    T_OK(symmMemPlanDestroy(plan));
    lk_close(&k);
}

static void refused(symmResult_t r) {
    T_ERR(r, symmInvalidUsage);
    T_MSG(symmGetLastError(NULL), "not inside a group");
}

/* The group's call came first, and reads the block at its end: no launch inside it may write. */
static void a_group_takes_no_plan(void) {
    lk k;
    char *p, out[B];
    size_t freed;
    void *q;
    symmMemPlan_t nodes;
    symmGraphNode_t n;
    symmAllocNode_t params = {.size = sizeof params, .bytes = B, .flags = SYMM_ALLOC_LOCAL};
    T_EXPECT_WARNINGS();
    lk_alone(&k, 1);
    symmGraph_t g = capture_left(&k, 0, &p);
    symmMemPlan_t plan = lk_bind(k.lane[0], g, SYMM_MEMPLAN_AUTO_FREE);
    T_OK(symmMemPlanCreate(k.lane[0], NULL, 0, &nodes));
    run(&k, plan, g);
    memset(p, 1, B);
    T_OK(symmGroupStart());
    T_OK(symmAllReduce(p, out, B, symmInt8, symmSum, k.comm, k.stream[0]));
    refused(symmMemPlanLaunch(plan, xg_exec(g), k.stream[0]));
    refused(symmMemPlanUpload(plan, xg_exec(g), k.stream[0]));
    refused(symmMemPlanAddAllocNode(nodes, NULL, 0, &params, &n, &q));
    refused(symmMemPlanAddFreeNode(nodes, NULL, 0, p, &n));
    refused(symmMemPlanAddOrderNode(nodes, NULL, 0, &n));
    refused(symmMemPlanDestroy(plan));
    refused(symmHeapTrimLanes(k.heap, &freed));
    T_OK(symmGroupEnd());
    T_OK(symmStreamSynchronize(k.stream[0]));
    for (int i = 0; i < B; i++) T_EQ(out[i], 1);
    run(&k, plan, g);
    lk_check(k.stream[0], p, B, 9);
    lk_free(k.lane[0], p);
    T_OK(symmMemPlanDestroy(plan)), T_OK(symmMemPlanDestroy(nodes));
    T_OK(xg_destroy(g));
    lk_close(&k);
}

T_MAIN(T(only_the_plans_own_graph_is_launched), T(a_graph_that_holds_the_plans_is_launched),
       T(a_lane_without_a_call_binds_nothing), T(a_free_node_after_the_launch_loses_no_block),
       T(a_node_too_large_is_told_so), T(a_group_takes_no_plan))
