/* unit_gpu_plan.c - what the program and its graphs do with plans, on the fake CUDA driver: graphs
 * that no plan was bound to. More of plans is in unit_gpu_lane.c. One thread. */
#include "host/lane/memplan.h"
#include "fgpu_lane_kit.h"

static uint64_t trim(void) {
    uint64_t freed = 0;
    T_OK(symmLaneTrimGraphMem(lanes[0], &freed));
    return freed;
}

static uint64_t heap_used(void) {
    symmHeapInfo_t i = {.size = sizeof i};
    T_OK(symmHeapQuery(heaps[0], &i));
    return i.symUsed + i.localUsed;
}

static void a_graph_without_a_plan_gives_back_and_frees(void) {
    cu_graph_exec exec;
    start(1);
    const uint64_t before = heap_used();
    for (int launches = 0; launches < 3; launches++) {
        begin();
        char *p = local(0, GK_MB), *left = local(0, KB4), *sym = alloc(0, GK_MB, SYMM_ALLOC_SYM);
        work(0, p), work(0, left);
        drop(0, p), drop(0, sym);
        cu_graph graph = end();
        T_EQ(symm_cu.cuGraphInstantiate(&exec, graph, 0), 0);
        for (int i = 0; i < launches; i++) { /* which nobody sees */
            T_EQ(symm_cu.cuGraphLaunch(exec, streams[0]), 0);
            work(1, left);
            drop(1, left);
        }
        T_EQ(trim(), 0);
        T_EQ(symm_cu.cuGraphExecDestroy(exec), 0);
        T_EQ(symm_cu.cuGraphDestroy(graph), 0);
        if (!launches) { /* for all that is known it is allocated */
            T_EQ(trim(), 0);
            drop(0, left);
        }
        T_CHECK(trim() >= 2 * GK_MB + KB4);
        T_OK(symmHeapCollect(heaps[0]));
        T_EQ(heap_used(), before);
        T_EQ(SYMM_STAT_GET(plans), 0);
    }
    finish(1);
}

/* Of graph and executable CUDA does not say whether they belong together; of graph and lane we know
 * it. */
static void a_lane_without_a_call_binds_nothing(void) {
    symmMemPlan_t plan;
    T_EXPECT_WARNINGS();
    start(1);
    begin();
    drop(0, local(0, KB4));
    cu_graph graph = end();
    T_ERR(symmMemPlanBind(lanes[1], (symmGraph_t)(void *)graph, 0, &plan), symmInvalidArgument);
    T_MSG(symmGetLastError(NULL), "has no call of lane 1: its calls are of lane 0");
    T_OK(symmMemPlanBind(lanes[0], (symmGraph_t)(void *)graph, 0, &plan));
    T_OK(symmMemPlanDestroy(plan));
    T_EQ(symm_cu.cuGraphDestroy(graph), 0);
    begin();
    T_OK(symmBarrier(comms[0], gk_user(streams[0])));
    graph = end();
    T_ERR(symmMemPlanBind(lanes[0], (symmGraph_t)(void *)graph, 0, &plan), symmInvalidArgument);
    T_MSG(symmGetLastError(NULL), "has no call of a lane of this heap");
    T_EQ(symm_cu.cuGraphDestroy(graph), 0);
    finish(1);
}

/* The launch has left the block; its graph frees it from the next instance on. */
static void a_free_node_after_the_launch_loses_no_block(void) {
    cu_graph graph;
    cu_graph_exec exec;
    symmMemPlan_t plan;
    symmGraphNode_t a, f;
    void *p;
    symmAllocNode_t params = {.size = sizeof params, .bytes = KB4, .flags = SYMM_ALLOC_LOCAL};
    T_EXPECT_WARNINGS();
    start(1);
    begin();
    graph = end();
    T_OK(symmMemPlanCreate(lanes[0], (symmGraph_t)(void *)graph, 0, &plan));
    T_OK(symmMemPlanAddAllocNode(plan, NULL, 0, &params, &a, &p));
    T_EQ(symm_cu.cuGraphInstantiate(&exec, graph, 0), 0);
    T_OK(symmMemPlanLaunch(plan, (symmGraphExec_t)(void *)exec, gk_user(streams[0])));
    T_OK(symmMemPlanAddFreeNode(plan, &a, 1, p, &f));
    T_ERR(symmMemPlanLaunch(plan, NULL, gk_user(streams[0])), symmInvalidUsage);
    drop(1, p);
    T_ERR(symmLaneFree(lanes[1], p), symmInvalidArgument);
    T_OK(symmMemPlanDestroy(plan));
    T_EQ(symm_cu.cuGraphExecDestroy(exec), 0);
    T_EQ(symm_cu.cuGraphDestroy(graph), 0);
    finish(1);
}

/* Trimmed, collected, and made again by the upload, at the same addresses. */
static void an_idle_graphs_memory_goes_and_comes(void) {
    cu_graph_exec exec;
    symmMemPlan_t plan;
    uint64_t reserved;
    T_EXPECT_WARNINGS();
    start(1);
    T_OK(symmLaneAlias(lanes[0], 2 * GK_MB));
    begin();
    char *p = alloc(0, GK_MB, SYMM_ALLOC_SYM);
    work(0, p);
    drop(0, p);
    cu_graph graph = end();
    T_OK(symmMemPlanBind(lanes[0], (symmGraph_t)(void *)graph, SYMM_MEMPLAN_ALIAS, &plan));
    T_EQ(symm_cu.cuGraphInstantiate(&exec, graph, 0), 0);
    const symmGraphExec_t launched = (symmGraphExec_t)(void *)exec;
    const symmStream_t s = gk_user(streams[0]);
    for (int i = 0; i < 3; i++) {
        T_OK(symmMemPlanUpload(plan, launched, s));
        const int64_t handles = SYMM_STAT_GET(handles);
        T_OK(symmMemPlanLaunch(plan, launched, s));
        T_EQ(trim(), 2 * GK_MB);
        T_ERR(symmMemPlanLaunch(plan, launched, s), symmInvalidUsage);
        T_OK(symmHeapCollect(heaps[0]));
        T_CHECK(SYMM_STAT_GET(handles) < handles);
        T_OK(symmLaneGetGraphMem(lanes[0], SYMM_GRAPH_MEM_RESERVED, &reserved));
        T_EQ(reserved, 0);
    }
    T_OK(symmMemPlanDestroy(plan));
    T_EQ(symm_cu.cuGraphExecDestroy(exec), 0);
    T_EQ(symm_cu.cuGraphDestroy(graph), 0);
    finish(1);
}

/* By its name another thread's work could not be put behind the launch. */
static void a_plan_is_not_launched_on_the_per_thread_stream(void) {
    T_EXPECT_WARNINGS();
    start(1);
    bound b = bind_one(0, 0);
    symmStream_t own = gk_user(SYMM_CUDA_STREAM_PER_THREAD);
    T_ERR(symmMemPlanLaunch(b.plan, (symmGraphExec_t)(void *)b.exec, own), symmInvalidArgument);
    T_ERR(symmMemPlanLaunch(b.plan, NULL, own), symmInvalidArgument);
    T_OK(launch(&b, 0));
    unbind(&b);
    finish(1);
}

T_MAIN(T(an_idle_graphs_memory_goes_and_comes), T(a_graph_without_a_plan_gives_back_and_frees),
       T(a_lane_without_a_call_binds_nothing), T(a_free_node_after_the_launch_loses_no_block),
       T(a_plan_is_not_launched_on_the_per_thread_stream))
