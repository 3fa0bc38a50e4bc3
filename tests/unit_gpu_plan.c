/* unit_gpu_plan.c - what the program and its graphs do with plans, on the fake CUDA driver: graphs that no plan was bound to. More of plans
 * is in unit_gpu_lane.c. One thread. */
#include "../src/host/memplan.h"
#include "fgpu_lane_kit.h"

static uint64_t trim(void) {
    uint64_t freed = 0;
    T_OK(symmGraphMemTrim(lanes[0], &freed));
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

T_MAIN(T(a_graph_without_a_plan_gives_back_and_frees))
