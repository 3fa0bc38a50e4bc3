/* unit_gpu_hold.c - plans that hold what their graphs use (SYMM_MEMPLAN_HOLD), on the fake CUDA
 * driver: what the graph gives away, how long it stays, and what is left where it cannot. */
#include "base/fail.h"
#include "host/lane/memplan.h"
#include "fgpu_lane_kit.h"

enum {
    HELD = 3
}; /* by the graph below: the plan, the barrier in front of its SYM block, the all_reduce */

static cu_graph held_graph(void) {
    begin();
    char *p = alloc(0, BIG, SYMM_ALLOC_SYM);
    work(0, p);
    T_OK(symmAllReduce(p, p, 1000, symmFloat, symmSum, comms[0], gk_user(streams[0])));
    drop(0, p);
    cu_graph graph = end();
    T_EQ(fake_cuda_calls("cuUserObjectCreate"), HELD);
    return graph;
}

static void a_plan_that_holds_makes_executables_light(void) {
    cu_graph_exec exec;
    symmMemPlan_t plan;
    start(2);
    cu_graph graph = held_graph();
    gk_calls before = gk_count();
    T_OK(symmMemPlanBind(lanes[0], (symmGraph_t)(void *)graph, SYMM_MEMPLAN_HOLD, &plan));
    GK_EXACTLY(&before, "cuGraphReleaseUserObject*3");
    const int live = fake_cuda_live();
    T_EQ(symm_cu.cuGraphInstantiate(&exec, graph, 0), 0);
    T_EQ(symm_cu.cuGraphDestroy(graph), 0);
    T_EQ(fake_cuda_live(), live); /* the graph went and left nothing to the executable */
    for (int i = 0; i < 3; i++)
        T_OK(symmMemPlanLaunch(plan, (symmGraphExec_t)(void *)exec, gk_user(streams[0])));
    T_OK(symmMemPlanUpload(plan, (symmGraphExec_t)(void *)exec, gk_user(streams[0])));
    for (int i = 0; i < 2; i++) T_OK(symmLaneDestroy(lanes[i]));
    gk_close(comms, 2);
    symm_gpu_reap();
    T_CHECK(SYMM_STAT_GET(plans) == 1 && SYMM_STAT_GET(comms) > 0);
    T_EQ(symm_cu.cuGraphLaunch(exec, streams[0]), 0); /* all that it needs is still there */
    T_EQ(symm_cu.cuGraphExecDestroy(exec), 0);
    symm_gpu_reap();
    T_CHECK(SYMM_STAT_GET(plans) == 1 && SYMM_STAT_GET(comms) > 0);
    T_OK(symmMemPlanDestroy(plan));
    symm_gpu_reap();
    T_EQ(SYMM_STAT_GET(plans) + SYMM_STAT_GET(comms), 0);
    GK_LEFT(0);
}

/* Executables from before the plan was bound hold what they hold; who goes first does not
 * matter. */
static void a_plan_that_holds_may_be_bound_late(void) {
    for (int plan_first = 0; plan_first < 2; plan_first++) {
        symmHeapInfo_t i = {.size = sizeof i};
        cu_graph_exec exec;
        symmMemPlan_t plan;
        uint64_t freed;
        start(2);
        cu_graph graph = held_graph();
        T_EQ(symm_cu.cuGraphInstantiate(&exec, graph, 0), 0);
        T_OK(symmMemPlanBind(lanes[0], (symmGraph_t)(void *)graph, SYMM_MEMPLAN_HOLD, &plan));
        T_EQ(symm_cu.cuGraphDestroy(graph), 0);
        if (plan_first) T_OK(symmMemPlanDestroy(plan));
        T_EQ(symm_cu.cuGraphExecDestroy(exec), 0);
        if (!plan_first) {
            T_OK(symmLaneTrimGraphMem(lanes[0], &freed));
            T_EQ(freed, 0); /* the plan has it */
            T_OK(symmMemPlanDestroy(plan));
        }
        T_EQ(SYMM_STAT_GET(plans), 0);
        T_OK(symmLaneTrimGraphMem(lanes[0], &freed));
        T_CHECK(freed >= BIG);
        finish(2);
    }
}

static void a_plan_of_explicit_nodes_may_hold(void) {
    symmAllocNode_t n = {.size = sizeof n, .bytes = BIG, .flags = SYMM_ALLOC_LOCAL};
    symmMemPlan_t plan;
    symmGraphNode_t node[2];
    cu_graph_exec exec;
    uint64_t freed;
    void *p;
    start(1);
    begin();
    cu_graph graph = end();
    T_OK(symmMemPlanCreate(lanes[0], (symmGraph_t)(void *)graph, SYMM_MEMPLAN_HOLD, &plan));
    T_EQ(fake_cuda_calls("cuGraphReleaseUserObject"), fake_cuda_calls("cuUserObjectCreate"));
    T_OK(symmMemPlanAddAllocNode(plan, NULL, 0, &n, &node[0], &p));
    T_OK(symmMemPlanAddFreeNode(plan, node, 1, p, &node[1]));
    T_EQ(symm_cu.cuGraphInstantiate(&exec, graph, 0), 0);
    T_EQ(symm_cu.cuGraphDestroy(graph), 0);
    T_OK(symmMemPlanLaunch(plan, (symmGraphExec_t)(void *)exec, gk_user(streams[0])));
    T_OK(symmLaneTrimGraphMem(lanes[0], &freed));
    T_EQ(freed, 0);
    T_EQ(symm_cu.cuGraphExecDestroy(exec), 0);
    T_OK(symmMemPlanDestroy(plan));
    finish(1);
}

static void a_plan_that_cannot_hold_changes_nothing(void) {
    symmMemPlan_t plan = NULL;
    T_EXPECT_WARNINGS();
    start(2);
    cu_graph graph = held_graph();
    for (int nth = 1; nth <= HELD; nth++) {
        char spec[32];
        snprintf(spec, sizeof spec, "gpu_take:error:%d", nth);
        T_EQ(symm_fail_arm(spec), 0);
        T_ERR(symmMemPlanBind(lanes[0], (symmGraph_t)(void *)graph, SYMM_MEMPLAN_HOLD, &plan),
              symmOutOfMemory);
        T_EQ(symm_fail_arm(""), 0);
        T_EQ(fake_cuda_calls("cuGraphReleaseUserObject"), 0);
    }
    T_OK(symmMemPlanBind(lanes[0], (symmGraph_t)(void *)graph, 0, &plan));
    T_OK(symmMemPlanDestroy(plan));
    T_EQ(SYMM_STAT_GET(plans), 1); /* the graph holds it, as ever */
    T_EQ(symm_cu.cuGraphDestroy(graph), 0);
    finish(2);
    /* A driver that will not let go: told, and both hold it. */
    start(2);
    graph = held_graph();
    fake_cuda_fail("cuGraphReleaseUserObject", 2, SYMM_CUDA_ERROR_INVALID_VALUE);
    T_OK(symmMemPlanBind(lanes[0], (symmGraph_t)(void *)graph, SYMM_MEMPLAN_HOLD, &plan));
    T_OK(symmMemPlanDestroy(plan));
    T_EQ(symm_cu.cuGraphDestroy(graph), 0);
    finish(2);
}

T_MAIN(T(a_plan_that_holds_makes_executables_light), T(a_plan_that_holds_may_be_bound_late),
       T(a_plan_of_explicit_nodes_may_hold), T(a_plan_that_cannot_hold_changes_nothing))
