/* unit_gpu_lane.c - lanes and graph plans on the fake CUDA driver: which calls of the driver they
 * make and which not, what a capture gets from them, how long a graph holds its plan, and what is
 * left when a call fails. Kernels only note that they were launched: order between ranks is
 * shown by thr_lane.c and gpu_lane.c. */
#include "base/fail.h"
#include "host/lane/memplan.h"
#include "fgpu_lane_kit.h"

/* ---- stream order ---------------------------------------------------------------------------- */

static void the_steady_state_asks_for_the_capture_and_nothing_else(void) {
    start(1);
    drop(0, local(0, KB4));
    gk_calls before = gk_count();
    for (int i = 0; i < 1000; i++) drop(0, local(0, KB4));
    GK_EXACTLY(&before, "cuStreamGetCaptureInfo_v3*2000");
    drop(0, alloc(0, KB4, SYMM_ALLOC_SYM)); /* one rank: nobody to wait for */
    before = gk_count();
    for (int i = 0; i < 1000; i++) drop(0, alloc(0, KB4, SYMM_ALLOC_SYM));
    GK_EXACTLY(&before, "cuStreamGetCaptureInfo_v3*2000");
    finish(1);
}

static void an_epoch_is_one_kernel(void) {
    start(2);
    T_EQ(gk_last(0).count, 0);
    const int synced = fake_cuda_calls("cuStreamSynchronize");
    for (int i = 0; i < 1000; i++) drop(0, alloc(0, 1024, SYMM_ALLOC_SYM));
    T_CHECK(gk_last(0).count > 0 && gk_last(0).count <= 1000 / 32);
    T_STREQ(gk_last(0).kernel, "symm_barrier_word_n0");
    T_CHECK(gk_last(0).config.stream == streams[0]);
    T_EQ(fake_cuda_calls("cuStreamSynchronize"), synced);
    finish(2);
}

static void another_lane_waits_once_on_the_device(void) {
    start(1);
    char *p = local(0, 5 * GK_MB);
    drop(0, p);
    gk_calls before = gk_count();
    char *q = local(1, 5 * GK_MB);
    T_CHECK(p == q);
    GK_EXACTLY(&before, "cuStreamGetCaptureInfo_v3*3 cuCtxGetCurrent*2 cuEventCreate cuEventRecord "
                        "cuStreamWaitEvent");
    drop(1, q);
    drop(1, local(1, KB4)); /* of what was kept; from here on there are both */
    before = gk_count();
    drop(1, local(1, KB4));
    GK_EXACTLY(&before, "cuStreamGetCaptureInfo_v3*2");
    finish(1);
}

/* However many lanes have had the bytes: each turn is one mark, of who had them before, and one
 * wait, for he has waited for the others. */
static void many_lanes_in_turns_are_one_mark_and_one_wait_each(void) {
    enum { MANY = 16, LAPS = 3 };
    symmLane_t lane[MANY];
    cu_stream stream[MANY];
    void *p = NULL;
    gk_calls before;
    start(1);
    for (int i = 0; i < MANY; i++) {
        stream[i] = gk_stream(0);
        T_OK(symmLaneCreate(heaps[0], gk_user(stream[i]), &lane[i]));
    }
    for (int turn = 0; turn < LAPS * MANY; turn++) {
        before = gk_count();
        T_OK(symmLaneAlloc(lane[turn % MANY], 5 * GK_MB, SYMM_ALLOC_LOCAL, &p));
        if (turn > MANY)
            GK_EXACTLY(&before, "cuStreamGetCaptureInfo_v3*3 cuCtxGetCurrent*2 cuEventRecord "
                                "cuStreamWaitEvent");
        T_OK(symmLaneFree(lane[turn % MANY], p));
    }
    for (int i = 0; i < MANY; i++) T_OK(symmLaneDestroy(lane[i]));
    for (int i = 0; i < MANY; i++) T_EQ(symm_cu.cuStreamDestroy(stream[i]), 0);
    finish(1);
}

/* Two lanes have given and neither had followed the other. Where the second wait fails, the next
 * call makes both. */
static void a_wait_that_fails_is_made_again(void) {
    void *r = NULL;
    T_EXPECT_WARNINGS();
    start(1);
    cu_stream third = gk_stream(0);
    symmLane_t lane;
    T_OK(symmLaneCreate(heaps[0], gk_user(third), &lane));
    char *p = local(0, 3 * GK_MB), *q = local(1, 3 * GK_MB);
    drop(0, p);
    drop(1, q);
    gk_calls before = gk_count();
    fake_cuda_fail("cuStreamWaitEvent", 2, SYMM_CUDA_ERROR_LAUNCH_FAILED);
    T_ERR(symmLaneAlloc(lane, 6 * GK_MB, SYMM_ALLOC_LOCAL, &r), symmUnhandledCudaError);
    T_OK(symmLaneAlloc(lane, 6 * GK_MB, SYMM_ALLOC_LOCAL, &r));
    T_CHECK(r == (p < q ? p : q));
    GK_EXACTLY(&before, "cuStreamGetCaptureInfo_v3*6 cuCtxGetCurrent*6 cuEventCreate*2 "
                        "cuEventRecord*2 cuStreamWaitEvent*4 cuGetErrorName");
    T_OK(symmLaneFree(lane, r));
    T_OK(symmLaneDestroy(lane));
    T_EQ(symm_cu.cuStreamDestroy(third), 0);
    finish(1);
}

/* The event cannot be recorded: told, and nothing is lost. */
static void a_call_that_fails_changes_nothing(void) {
    static const char *const calls[] = {"cuEventRecord", "cuStreamWaitEvent", "cuEventCreate"};
    T_EXPECT_WARNINGS();
    for (int i = 0; i < 3; i++) {
        void *q = NULL;
        start(1);
        char *p = local(0, 5 * GK_MB);
        drop(0, p);
        fake_cuda_fail(calls[i], 1, SYMM_CUDA_ERROR_LAUNCH_FAILED);
        T_ERR(symmLaneAlloc(lanes[1], 5 * GK_MB, SYMM_ALLOC_LOCAL, &q), symmUnhandledCudaError);
        T_CHECK(q == NULL && !fake_cuda_fail_waits());
        T_OK(symmLaneAlloc(lanes[1], 5 * GK_MB, SYMM_ALLOC_LOCAL, &q));
        T_CHECK(q == p);
        drop(1, q);
        finish(1);
    }
}

/* A lane on it has bytes to give: whoever needs them takes others meanwhile, for to mark their end
 * would spoil the capture. */
static void a_lane_on_the_legacy_stream_gives_nothing_while_others_are_captured(void) {
    void *p = NULL, *q = NULL;
    symmLane_t legacy, last;
    cu_stream blocking;
    cu_graph graph;
    T_EXPECT_WARNINGS();
    start(1);
    T_OK(symm_cuda_set(0));
    T_EQ(symm_cu.cuStreamCreate(&blocking, SYMM_CUDA_STREAM_DEFAULT), 0);
    T_OK(symmLaneCreate(heaps[0], NULL, &legacy));
    T_OK(symmLaneCreate(heaps[0], gk_user(gk_stream(0)), &last));
    T_OK(symmLaneDestroy(lanes[1]));
    T_OK(symmLaneAlloc(legacy, 5 * GK_MB, SYMM_ALLOC_LOCAL, &p));
    T_OK(symmLaneFree(legacy, p));
    T_EQ(symm_cu.cuStreamBeginCapture(blocking, SYMM_CUDA_CAPTURE_MODE_THREAD_LOCAL), 0);
    T_ERR(symmLaneAlloc(lanes[0], 5 * GK_MB, SYMM_ALLOC_LOCAL, &q), symmNeedGrow);
    T_ERR(symmLaneDestroy(legacy), symmInvalidUsage);
    T_MSG(symmGetLastError(NULL), "cannot be used while a blocking stream is captured");
    T_OK(symmLaneDestroy(lanes[0]));                       /* what it leaves goes to another lane */
    T_EQ(symm_cu.cuStreamEndCapture(blocking, &graph), 0); /* unharmed */
    T_EQ(symm_cu.cuGraphDestroy(graph), 0);
    T_OK(symmLaneAlloc(last, 5 * GK_MB, SYMM_ALLOC_LOCAL, &q));
    T_CHECK(q == p);
    T_OK(symmLaneFree(last, q));
    T_OK(symmLaneDestroy(legacy));
    T_OK(symmLaneDestroy(last));
    lanes[0] = lanes[1] = NULL;
    T_EQ(symm_cu.cuStreamDestroy(blocking), 0);
    finish(1);
}

/* Thread ranks on one GPU: a block that waits for the others' frees needs a barrier on the
 * lane's stream, where it would wait for the other rank's. Other blocks need none. */
static void a_lane_on_a_legacy_stream_of_two_ranks_has_no_barrier(void) {
    const int devices[] = {0, 0};
    symmHeapConfig_t c = SYMM_HEAP_CONFIG_INITIALIZER;
    void *p = NULL;
    T_EXPECT_WARNINGS();
    gk_start(1, 0);
    gk_open(comms, 2, devices);
    c.symBytes = c.localBytes = 8 * GK_MB;
    T_OK(symmGroupStart());
    for (int r = 0; r < 2; r++) T_OK(symmHeapCreate(comms[r], &c, &heaps[r]));
    T_OK(symmGroupEnd());
    T_OK(symm_cuda_set(0));
    for (int r = 0; r < 2; r++) {
        symmResult_t got = symmSuccess;
        T_OK(symmLaneCreate(heaps[r], NULL, &lanes[r]));
        drop(r, local(r, KB4));
        for (int i = 0; i < 10000 && !got; i++) {
            got = symmLaneAlloc(lanes[r], KB4, SYMM_ALLOC_SYM, &p);
            if (!got) drop(r, p);
        }
        T_EQ(got, symmInvalidUsage);
        T_MSG(symmGetLastError(NULL), "is the legacy stream, and rank ");
        drop(r, local(r, KB4));
    }
    finish(2);
}

static void a_stream_that_is_gone_is_told(void) {
    void *p = NULL;
    T_EXPECT_WARNINGS();
    start(1);
    char *q = local(0, KB4);
    T_EQ(symm_cu.cuStreamDestroy(streams[0]), 0);
    T_ERR(symmLaneAlloc(lanes[0], KB4, 0, &p), symmInvalidArgument);
    T_MSG(symmGetLastError(NULL), "no live stream");
    T_ERR(symmLaneFree(lanes[0], q), symmInvalidArgument);
    T_OK(symmLaneDestroy(lanes[0])); /* its work is waited for with the whole context */
    lanes[0] = NULL;
    drop(1, q);
    T_ERR(symmLaneCreate(heaps[0], gk_user(SYMM_CUDA_STREAM_PER_THREAD), &lanes[0]),
          symmInvalidArgument);
    T_OK(symmLaneCreate(heaps[0], NULL, &lanes[0])); /* the NULL stream is one */
    drop(0, local(0, KB4));
    finish(1);
}

/* ---- captures -------------------------------------------------------------------------------- */

static void G_3_2_a_chain_adds_no_node_to_the_graph(void) {
    cu_graph_exec exec;
    symmMemPlan_t plan;
    start(1);
    begin();
    char *first = local(0, KB4);
    work(0, first);
    drop(0, first);
    for (int i = 0; i < 50; i++) {
        char *p = local(0, KB4);
        T_CHECK(p == first);
        work(0, p);
        drop(0, p);
    }
    T_EQ(fake_cuda_calls("cuGraphAddEmptyNode"), 0);
    T_EQ(fake_cuda_calls("cuStreamUpdateCaptureDependencies_v2"), 0);
    T_EQ(fake_cuda_calls("cuUserObjectCreate"), 1); /* one for the graph */
    /* Each node is walked once: it costs as many questions as there are nodes. */
    T_CHECK(fake_cuda_calls("cuGraphNodeGetDependencies_v2") <= 2 * 51);
    cu_graph graph = end();
    T_OK(symmMemPlanBind(lanes[0], (symmGraph_t)(void *)graph, 0, &plan));
    T_EQ(symm_cu.cuGraphInstantiate(&exec, graph, 0), 0);
    symmGraphExec_t e = (symmGraphExec_t)(void *)exec;
    T_OK(symmMemPlanUpload(plan, e, gk_user(streams[0])));
    gk_calls before = gk_count();
    for (int i = 0; i < 100; i++) T_OK(symmMemPlanLaunch(plan, e, gk_user(streams[0])));
    GK_EXACTLY(&before, "cuGraphLaunch*100 cuStreamGetCaptureInfo_v3*100 cuCtxGetCurrent*100");
    T_OK(symmMemPlanLaunch(plan, e, gk_user(streams[1]))); /* behind the other stream */
    before = gk_count();
    T_OK(symmMemPlanLaunch(plan, e, gk_user(streams[0])));
    GK_EXACTLY(&before, "cuGraphLaunch cuStreamGetCaptureInfo_v3*3 cuCtxGetCurrent*3 cuEventRecord "
                        "cuStreamWaitEvent");
    T_OK(symmMemPlanDestroy(plan));
    T_EQ(symm_cu.cuGraphExecDestroy(exec), 0);
    T_EQ(symm_cu.cuGraphDestroy(graph), 0);
    finish(1);
}

/* SYMM_GRAPH_HOLD=comm: nothing hangs on the graph, and its plan's memory stays as long as the
 * communicator. */
static void a_plan_may_be_the_communicators(void) {
    setenv("SYMM_GRAPH_HOLD", "comm", 1);
    start(1);
    unsetenv("SYMM_GRAPH_HOLD");
    begin();
    char *first = local(0, KB4);
    work(0, first);
    drop(0, first);
    cu_graph graph = end();
    T_EQ(fake_cuda_calls("cuUserObjectCreate"), 0);
    T_EQ(symm_cu.cuGraphDestroy(graph), 0);
    symm_gpu_reap();
    uint64_t freed = 1, reserved = 0;
    T_OK(symmLaneTrimGraphMem(lanes[0], &freed));
    T_OK(symmLaneGetGraphMem(lanes[0], SYMM_GRAPH_MEM_RESERVED, &reserved));
    T_CHECK(!freed && reserved >= KB4);
    T_EQ(SYMM_STAT_GET(plans), 1);
    finish(1);
    T_EQ(SYMM_STAT_GET(plans), 0);
}

static void G_4_1_siblings_and_joins_by_the_graphs_own_edges(void) {
    start(1);
    begin();
    char *a = local(0, KB4);
    work(0, a);
    order(0, 1);
    char *b = local(1, KB4);
    work(1, b);
    drop(1, b);
    char *c = local(0, KB4); /* beside b's free */
    T_CHECK(a != b && b != c && a != c);
    work(0, c);
    char *d = local(1, KB4); /* behind b's free */
    T_CHECK(d == b);
    work(1, d);
    drop(1, d);
    order(1, 0);
    drop(0, a); /* here two nodes come together: one empty one makes a place of them */
    T_EQ(fake_cuda_calls("cuGraphAddEmptyNode"), 1);
    drop(0, c);
    char *e = local(0, KB4), *f = local(0, KB4), *g = local(0, KB4);
    T_CHECK((e == a || e == b || e == c) && (f == a || f == b || f == c) && e != f);
    T_CHECK((g == a || g == b || g == c) && g != e && g != f);
    drop(0, e), drop(0, f), drop(0, g);
    cu_graph graph = end();
    T_EQ(symm_cu.cuGraphDestroy(graph), 0);
    finish(1);
}

/* Two places before any work: whatever comes later comes after them. */
static void a_capture_that_begins_with_blocks(void) {
    start(1);
    begin();
    char *a = local(0, KB4);
    drop(0, a);
    char *b = local(0, KB4);
    T_CHECK(a == b);
    work(0, b);
    drop(0, b);
    T_EQ(symm_cu.cuGraphDestroy(end()), 0);
    finish(1);
}

static void captured_barriers_stand_where_ranks_must_be_heard(void) {
    start(2);
    begin();
    char *p = alloc(0, BIG, SYMM_ALLOC_SYM);
    work(0, p);
    drop(0, p);
    char *q = alloc(0, BIG, SYMM_ALLOC_SYM);
    T_CHECK(p == q);
    drop(0, q);
    T_EQ(gk_last(0).count, 0);
    T_EQ(fake_cuda_calls("cuLaunchKernelEx"), 2);
    T_OK(symmBarrier(comms[0], gk_user(streams[0]))); /* the program's own does as well */
    q = alloc(0, BIG, SYMM_ALLOC_SYM);
    T_CHECK(p == q);
    T_EQ(fake_cuda_calls("cuLaunchKernelEx"), 3);
    drop(0, q);
    T_EQ(symm_cu.cuGraphDestroy(end()), 0);
    finish(2);
}

/* ---- memory that outlives its graph ---------------------------------------------------------- */

/* Bytes of the heap in use when the memory of graphs that are gone has gone back to it. */
static uint64_t used_by_graphs(void) {
    symmHeapInfo_t i = {.size = sizeof i};
    T_OK(symmLaneTrimGraphMem(lanes[0], NULL));
    T_OK(symmHeapQuery(heaps[0], &i));
    return i.localUsed;
}

#define LAUNCH "cuGraphLaunch cuStreamGetCaptureInfo_v3 cuCtxGetCurrent"

/* A free on another stream is marked once; of the launches that follow, one waits for it, and only
 * one that has blocks there. */
static void G_3_3_a_late_free_costs_one_event_and_one_wait(void) {
    start(1);
    bound own = bind_one(0, 0), left = bind_one(1, 0), apart = bind_one(0, SYMM_ALLOC_KEEP);
    T_CHECK(own.p == left.p && apart.p != own.p);
    for (int i = 0; i < 3; i++) {
        T_OK(launch(&left, 0));
        order(0, 1);
        gk_calls before = gk_count();
        drop(1, left.p);
        GK_EXACTLY(&before, i ? "cuStreamGetCaptureInfo_v3 cuCtxGetCurrent cuEventRecord"
                              : "cuStreamGetCaptureInfo_v3 cuCtxGetCurrent cuEventCreate "
                                "cuEventRecord");
        before = gk_count();
        T_OK(launch(&apart, 0));
        GK_EXACTLY(&before, LAUNCH);
        before = gk_count();
        T_OK(launch(&own, 0));
        GK_EXACTLY(&before, "cuGraphLaunch cuStreamGetCaptureInfo_v3 cuCtxGetCurrent*2 "
                            "cuStreamWaitEvent");
        before = gk_count();
        T_OK(launch(&left, 0));
        GK_EXACTLY(&before, LAUNCH); /* behind the one that waited */
        drop(0, left.p);             /* on the stream of the last launch */
        before = gk_count();
        T_OK(launch(&own, 0));
        GK_EXACTLY(&before, LAUNCH);
    }
    unbind(&own), unbind(&left), unbind(&apart);
    finish(1);
}

/* A call that fails is told and nothing has changed: the block is allocated still, the launch has
 * not been, the memory is not given back. */
static void late_frees_survive_every_failure(void) {
    uint64_t freed = 0;
    T_EXPECT_WARNINGS();
    start(1);
    bound own = bind_one(0, 0), left = bind_one(1, 0);
    T_OK(launch(&left, 0));
    order(0, 1);
    fake_cuda_fail("cuEventCreate", 1, SYMM_CUDA_ERROR_OUT_OF_MEMORY);
    T_ERR(symmLaneFree(lanes[1], left.p), symmOutOfMemory);
    fake_cuda_fail("cuEventRecord", 1, SYMM_CUDA_ERROR_LAUNCH_FAILED);
    T_ERR(symmLaneFree(lanes[1], left.p), symmUnhandledCudaError);
    T_ERR(launch(&own, 0), symmInvalidUsage); /* it is allocated */
    drop(1, left.p);
    gk_calls before = gk_count();
    fake_cuda_fail("cuStreamWaitEvent", 1, SYMM_CUDA_ERROR_LAUNCH_FAILED);
    T_ERR(launch(&own, 0), symmUnhandledCudaError);
    fake_cuda_fail("cuGraphLaunch", 1, SYMM_CUDA_ERROR_LAUNCH_FAILED);
    T_ERR(launch(&own, 0), symmUnhandledCudaError);
    T_OK(launch(&own, 0)); /* which waits, for none of those has been launched */
    GK_EXACTLY(&before, "cuGraphLaunch*2 cuStreamGetCaptureInfo_v3*3 cuCtxGetCurrent*5 "
                        "cuStreamWaitEvent*3 cuGetErrorName*2");
    T_OK(launch(&left, 0));
    order(0, 1);
    drop(1, left.p);
    unbind(&own), unbind(&left);
    fake_cuda_fail("cuEventSynchronize", 2,
                   SYMM_CUDA_ERROR_LAUNCH_FAILED); /* behind the launches' */
    T_ERR(symmLaneTrimGraphMem(lanes[0], &freed), symmUnhandledCudaError);
    fake_cuda_fail("cuEventSynchronize", 1, SYMM_CUDA_ERROR_LAUNCH_FAILED);
    T_ERR(symmHeapCollect(heaps[0]), symmUnhandledCudaError);
    T_CHECK(!freed);
    T_OK(symmLaneTrimGraphMem(lanes[0], &freed));
    T_CHECK(freed >= KB4);
    finish(1);
}

/* Another lane's graph frees the block. Where its launch cannot be marked, the mark is made when
 * somebody asks for it. */
static void G_3_3_a_free_in_another_lanes_graph_is_marked(void) {
    T_EXPECT_WARNINGS();
    start(1);
    bound left = bind_one(1, 0), frees;
    T_OK(launch(&left, 0));
    T_EQ(symm_cu.cuStreamBeginCapture(streams[1], SYMM_CUDA_CAPTURE_MODE_RELAXED), 0);
    work(1, left.p);
    drop(1, left.p);
    T_EQ(symm_cu.cuStreamEndCapture(streams[1], &frees.graph), 0);
    T_OK(symmMemPlanBind(lanes[1], (symmGraph_t)(void *)frees.graph, 0, &frees.plan));
    T_EQ(symm_cu.cuGraphInstantiate(&frees.exec, frees.graph, 0), 0);
    for (int fails = 0; fails < 2; fails++) {
        order(0, 1);
        if (fails) fake_cuda_fail("cuEventRecord", 1, SYMM_CUDA_ERROR_LAUNCH_FAILED);
        gk_calls before = gk_count();
        T_OK(launch(&frees, 1));
        T_OK(launch(&left, 0));
        if (fails)
            GK_EXACTLY(&before, "cuGraphLaunch*2 cuStreamGetCaptureInfo_v3*4 cuCtxGetCurrent*5 "
                                "cuEventRecord*2 cuStreamWaitEvent cuGetErrorName");
        else
            GK_EXACTLY(&before, "cuGraphLaunch*2 cuStreamGetCaptureInfo_v3*2 cuCtxGetCurrent*4 "
                                "cuEventCreate cuEventRecord cuStreamWaitEvent");
    }
    drop(0, left.p);
    unbind(&frees), unbind(&left);
    finish(1);
}

/* Two executable graphs of one captured graph: the same addresses, and each holds the memory. */
static void G_1_a_graph_is_instantiated_twice(void) {
    cu_graph_exec again;
    start(1);
    bound b = bind_one(0, 0);
    T_EQ(symm_cu.cuGraphInstantiate(&again, b.graph, 0), 0);
    bound other = b;
    other.exec = again;
    for (int n = 0; n < 6; n++) {
        memset(b.p, 0, 64);
        T_OK(launch(n & 1 ? &other : &b, n % 3 == 0));
        T_EQ(symm_cu.cuCtxSynchronize(), 0);
        for (int k = 0; k < 64; k++) T_EQ(b.p[k], 1);
    }
    unbind(&b);
    T_CHECK(used_by_graphs() >= KB4); /* the second one's */
    T_EQ(symm_cu.cuGraphLaunch(again, streams[0]), 0);
    T_EQ(symm_cu.cuGraphExecDestroy(again), 0);
    T_EQ(used_by_graphs(), 0);
    finish(1);
}

/* ---- how long -------------------------------------------------------------------------------- */

static void G_6_memory_lives_as_long_as_graph_or_plan(void) {
    uint64_t freed;
    start(1);
    bound b = bind_one(0, 0);
    T_EQ(symm_cu.cuGraphDestroy(b.graph), 0);
    T_OK(symmMemPlanDestroy(b.plan));
    T_OK(symmLaneTrimGraphMem(lanes[0], &freed));
    T_CHECK(freed >= KB4);
    T_CHECK(used_by_graphs() >= KB4); /* the executable graph runs on it */
    gk_calls before = gk_count();
    T_EQ(symm_cu.cuGraphExecDestroy(b.exec), 0);
    GK_EXACTLY(&before, "cuGraphExecDestroy"); /* the callback calls nothing */
    T_EQ(used_by_graphs(), 0);
    finish(1);
}

static void graphs_may_outlive_lanes_heap_and_communicator(void) {
    cu_graph_exec exec;
    start(2);
    begin();
    char *p = alloc(0, BIG, SYMM_ALLOC_SYM);
    work(0, p);
    drop(0, p);
    cu_graph graph = end();
    T_EQ(symm_cu.cuGraphInstantiate(&exec, graph, 0), 0);
    for (int i = 0; i < 2; i++) T_OK(symmLaneDestroy(lanes[i]));
    gk_close(comms, 2);
    T_EQ(SYMM_STAT_GET(plans), 1);
    work(0, p); /* still mapped */
    T_EQ(symm_cu.cuGraphDestroy(graph), 0);
    T_EQ(symm_cu.cuGraphExecDestroy(exec), 0);
    T_EQ(SYMM_STAT_GET(plans), 1);
    symm_gpu_reap();
    T_EQ(SYMM_STAT_GET(plans) + SYMM_STAT_GET(comms), 0);
    GK_LEFT(0);
}

/* ---- old drivers, failures ------------------------------------------------------------------- */

static void G_2_an_old_driver_is_no_error(void) {
    symmMemSupport_t s = {.size = sizeof s};
    void *p = NULL;
    T_EXPECT_WARNINGS();
    start(1);
    T_OK(symmMemQuerySupport(&s));
    T_CHECK(s.graphs && s.nodes && s.lanes && s.driver == 12080);
    symm_cu.cuGraphNodeGetDependencies_v2 = NULL; /* as a driver of 12.2 */
    T_OK(symmMemQuerySupport(&s));
    T_CHECK(!s.graphs && !s.nodes && s.lanes);
    T_MSG(s.why, "12.3");
    begin();
    T_ERR(symmLaneAlloc(lanes[0], KB4, SYMM_ALLOC_LOCAL, &p), symmNotSupported);
    T_EQ(symm_cu.cuGraphDestroy(end()), 0);
    drop(0, local(0, KB4));
    finish(1);
}

static symmResult_t capture_all(void) {
    void *p = NULL, *q = NULL;
    symmResult_t r = symmLaneAlloc(lanes[0], BIG, SYMM_ALLOC_SYM, &p);
    if (!r) work(0, p), order(0, 1), work(1, p), order(1, 0);
    if (!r) r = symmLaneFree(lanes[0], p);
    if (!r) r = symmLaneAlloc(lanes[0], BIG, SYMM_ALLOC_SYM, &q);
    if (!r) r = symmLaneFree(lanes[0], q);
    return r;
}

/* A start takes long under ThreadSanitizer, and races are not looked for here. */
enum { MOST = T_TSAN ? 2 : 4, FAULTS = T_TSAN ? 2 : 14 };

/* Each call of the driver and each allocation fails in turn, in a capture. */
static void captures_survive_every_failure(void) {
    static const char *const calls[] = {"cuUserObjectCreate", "cuGraphRetainUserObject",
                                        "cuGraphAddEmptyNode", "cuGraphNodeGetDependencies_v2",
                                        "cuStreamUpdateCaptureDependencies_v2"};
    static const char *const points[] = {"memplan_nodes", "memplan_walk",    "memplan_node_deps",
                                         "memplan_join",  "memplan_barrier", "memplan_call",
                                         "memplan_block", "memplan_piece",   "memplan_alloc"};
    int seen = 0;
    T_EXPECT_WARNINGS();
    for (int i = 0; i < FAULTS; i++)
        for (int nth = 1; nth < MOST; nth++) {
            char spec[64];
            start(2);
            begin();
            if (i < 5) fake_cuda_fail(calls[i], nth, SYMM_CUDA_ERROR_OUT_OF_MEMORY);
            snprintf(spec, sizeof spec, "%s:error:%d", i < 5 ? "gplan_list" : points[i - 5], nth);
            if (i >= 5) T_EQ(symm_fail_arm(spec), 0);
            symmResult_t r = capture_all();
            int waits = i < 5 && fake_cuda_fail_waits();
            T_EQ(symm_fail_arm(""), 0);
            fake_cuda_fail("cuGraphDestroy", 1, 0);
            if (r) seen |= 1 << i;
            T_CHECKF(r == symmSuccess || r == symmOutOfMemory, "%s %d: %d",
                     i < 5 ? calls[i] : points[i - 5], nth, (int)r);
            cu_graph graph = NULL;
            if (symm_cu.cuStreamEndCapture(streams[0], &graph) == 0)
                T_EQ(symm_cu.cuGraphDestroy(graph), 0);
            drop(0, local(0, KB4)); /* and lanes work */
            finish(2);
            if (!r && (waits || i >= 5)) break;
        }
    T_EQ(seen, (1 << FAULTS) - 1); /* each was met, and told */
}

T_MAIN(T(the_steady_state_asks_for_the_capture_and_nothing_else), T(an_epoch_is_one_kernel),
       T(another_lane_waits_once_on_the_device), T(a_call_that_fails_changes_nothing),
       T(many_lanes_in_turns_are_one_mark_and_one_wait_each), T(a_wait_that_fails_is_made_again),
       T(a_stream_that_is_gone_is_told), T(a_lane_on_a_legacy_stream_of_two_ranks_has_no_barrier),
       T(a_lane_on_the_legacy_stream_gives_nothing_while_others_are_captured),
       T(G_3_2_a_chain_adds_no_node_to_the_graph), T(a_plan_may_be_the_communicators),
       T(G_4_1_siblings_and_joins_by_the_graphs_own_edges), T(a_capture_that_begins_with_blocks),
       T(captured_barriers_stand_where_ranks_must_be_heard),
       T(G_3_3_a_late_free_costs_one_event_and_one_wait), T(late_frees_survive_every_failure),
       T(G_3_3_a_free_in_another_lanes_graph_is_marked), T(G_1_a_graph_is_instantiated_twice),
       T(G_6_memory_lives_as_long_as_graph_or_plan),
       T(graphs_may_outlive_lanes_heap_and_communicator), T(G_2_an_old_driver_is_no_error),
       T(captures_survive_every_failure))
