/* unit_gpu_replay.c - the end of a communicator whose calls graphs replay, on the fake CUDA driver
 * with streams that have threads: Finalize and Destroy wait for what is queued. */
#include <unistd.h>

#include "host/lane/memplan.h"
#include "fgpu_lane_kit.h"

enum { LATE_MS = 150 };
static _Atomic int gate;

static void shut(void *arg) {
    (void)arg;
    while (!atomic_load(&gate)) usleep(200);
}
static void *open_later(void *arg) {
    (void)arg;
    usleep(LATE_MS * 1000);
    atomic_store(&gate, 1);
    return NULL;
}
/* What the stream is given from now on waits, until LATE_MS after let_go. */
static void hold_back(cu_stream stream) {
    atomic_store(&gate, 0);
    T_EQ(symm_cu.cuLaunchHostFunc(stream, shut, NULL), 0);
}
static pthread_t let_go(void) {
    pthread_t t;
    T_EQ(pthread_create(&t, NULL, open_later, NULL), 0);
    return t;
}

static void start_queued(int ranks) {
    symmHeapConfig_t c = SYMM_HEAP_CONFIG_INITIALIZER;
    gk_start(1, 1);
    gk_open(comms, ranks, NULL);
    c.reserve = 256 * GK_MB;
    c.symBytes = c.localBytes = 8 * GK_MB;
    T_OK(symmHeapCreate(comms[0], &c, &heaps[0]));
    T_OK(symm_cuda_set(0));
    for (int i = 0; i < 2; i++) {
        streams[i] = gk_stream(0);
        T_OK(symmLaneCreate(heaps[0], gk_user(streams[i]), &lanes[i]));
    }
}

static cu_graph graph_of_a_call(void) {
    begin();
    char *p = alloc(0, BIG, SYMM_ALLOC_SYM);
    work(0, p);
    T_OK(symmAllReduce(p, p, 1000, symmFloat, symmSum, comms[0], gk_user(streams[0])));
    drop(0, p);
    return end();
}

static void finish_one(cu_graph_exec exec) {
    T_EQ(symm_cu.cuGraphExecDestroy(exec), 0);
    for (int i = 0; i < 2; i++) T_EQ(symm_cu.cuStreamDestroy(streams[i]), 0);
    symm_gpu_reap();
    T_EQ(SYMM_STAT_GET(plans) + SYMM_STAT_GET(lanes) + SYMM_STAT_GET(comms), 0);
    GK_LEFT(0);
}

/* eager: a call that has ended long ago comes before it; marked: the launch's event can be made. */
static void finalize_waits(int eager, int marked) {
    cu_graph_exec exec;
    symmMemPlan_t plan;
    float *x;
    start_queued(1);
    T_OK(symmMemAlloc((void **)&x, 4096));
    cu_graph graph = graph_of_a_call();
    T_OK(symmMemPlanBind(lanes[0], (symmGraph_t)(void *)graph, 0, &plan));
    T_EQ(symm_cu.cuGraphInstantiate(&exec, graph, 0), 0);
    T_EQ(symm_cu.cuGraphDestroy(graph), 0);
    if (eager) T_OK(symmAllReduce(x, x, 8, symmFloat, symmSum, comms[0], gk_user(streams[0])));
    T_OK(symmCommFinalize(comms[0]));
    const int before = gk_last(0).count;
    T_EQ(before, eager);
    for (int i = 0; i < 2; i++) {
        hold_back(streams[1]);
        if (!marked) fake_cuda_fail("cuEventCreate", 1, SYMM_CUDA_ERROR_OUT_OF_MEMORY);
        T_OK(symmMemPlanLaunch(plan, (symmGraphExec_t)(void *)exec, gk_user(streams[1])));
        T_EQ(gk_last(0).count, before + i); /* it has not begun */
        pthread_t t = let_go();
        if (!i) T_OK(symmCommFinalize(comms[0]));
        if (i) T_OK(symmMemPlanDestroy(plan));
        if (i) {
            for (int l = 0; l < 2; l++) T_OK(symmLaneDestroy(lanes[l]));
            T_OK(symmHeapDestroy(heaps[0]));
            gk_close(comms, 1);
        }
        T_EQ(gk_last(0).count, before + i + 1);
        T_EQ(pthread_join(t, NULL), 0);
    }
    T_OK(symmMemFree(x));
    finish_one(exec);
}

static void finalize_and_destroy_wait_for_launched_plans(void) {
    finalize_waits(0, 1);
    finalize_waits(1, 1);
}
static void the_context_is_waited_for_where_there_is_no_event(void) {
    finalize_waits(1, 0);
}

/* The communicator keeps what its captured calls need: its end waits for graphs that it was not
 * told of. */
static void destroy_waits_where_graphs_hold_nothing(void) {
    cu_graph_exec exec;
    float *x;
    setenv("SYMM_GRAPH_HOLD", "comm", 1);
    gk_start(1, 1);
    gk_open(comms, 1, NULL);
    T_OK(symm_cuda_set(0));
    T_OK(symmMemAlloc((void **)&x, 4096));
    for (int i = 0; i < 2; i++) streams[i] = gk_stream(0);
    begin();
    T_OK(symmAllReduce(x, x, 8, symmFloat, symmSum, comms[0], gk_user(streams[0])));
    cu_graph graph = end();
    T_EQ(symm_cu.cuGraphInstantiate(&exec, graph, 0), 0);
    T_EQ(symm_cu.cuGraphDestroy(graph), 0);
    hold_back(streams[1]);
    T_EQ(symm_cu.cuGraphLaunch(exec, streams[1]), 0);
    T_EQ(gk_last(0).count, 0);
    pthread_t t = let_go();
    gk_close(comms, 1);
    T_EQ(gk_last(0).count, 1); /* and its control block was there */
    T_EQ(pthread_join(t, NULL), 0);
    T_OK(symmMemFree(x));
    finish_one(exec);
}

/* Its calls would find nobody: all ranks have said that they leave. */
static void a_plan_of_a_destroyed_communicator_is_refused(void) {
    cu_graph_exec exec;
    symmMemPlan_t plan;
    T_EXPECT_WARNINGS();
    start_queued(1);
    cu_graph graph = graph_of_a_call();
    T_OK(symmMemPlanBind(lanes[0], (symmGraph_t)(void *)graph, 0, &plan));
    T_EQ(symm_cu.cuGraphInstantiate(&exec, graph, 0), 0);
    T_EQ(symm_cu.cuGraphDestroy(graph), 0);
    for (int l = 0; l < 2; l++) T_OK(symmLaneDestroy(lanes[l]));
    gk_close(comms, 1);
    symmResult_t r = symmMemPlanLaunch(plan, (symmGraphExec_t)(void *)exec, gk_user(streams[1]));
    T_CHECKF(r == symmInvalidUsage || r == symmInvalidArgument, "%d", (int)r);
    T_EQ(gk_last(0).count, 0);
    T_OK(symmMemPlanDestroy(plan));
    finish_one(exec);
}

/* No word tells that a graph has run: the next stream waits for the event behind it. */
static void a_stream_changes_behind_a_launched_plan(void) {
    cu_graph_exec exec;
    symmMemPlan_t plan;
    float *x;
    start_queued(1);
    T_OK(symmMemAlloc((void **)&x, 4096));
    cu_graph graph = graph_of_a_call();
    T_OK(symmMemPlanBind(lanes[0], (symmGraph_t)(void *)graph, 0, &plan));
    T_EQ(symm_cu.cuGraphInstantiate(&exec, graph, 0), 0);
    T_EQ(symm_cu.cuGraphDestroy(graph), 0);
    T_OK(symmAllReduce(x, x, 8, symmFloat, symmSum, comms[0], gk_user(streams[0])));
    T_OK(symmCommFinalize(comms[0]));
    hold_back(streams[1]);
    T_OK(symmMemPlanLaunch(plan, (symmGraphExec_t)(void *)exec, gk_user(streams[1])));
    T_OK(symmAllReduce(x, x, 8, symmFloat, symmSum, comms[0], gk_user(streams[0])));
    usleep(20000);
    T_EQ(gk_last(0).count, 1);
    pthread_t t = let_go();
    T_OK(symmCommFinalize(comms[0]));
    T_EQ(gk_last(0).count, 3);
    pthread_join(t, NULL);
    T_OK(symmMemPlanDestroy(plan));
    for (int l = 0; l < 2; l++) T_OK(symmLaneDestroy(lanes[l]));
    T_OK(symmHeapDestroy(heaps[0]));
    gk_close(comms, 1);
    T_OK(symmMemFree(x));
    finish_one(exec);
}

T_MAIN(T(a_stream_changes_behind_a_launched_plan), T(finalize_and_destroy_wait_for_launched_plans),
       T(the_context_is_waited_for_where_there_is_no_event),
       T(destroy_waits_where_graphs_hold_nothing), T(a_plan_of_a_destroyed_communicator_is_refused))
