/* unit_gpu_graph.c - captured collectives on the fake CUDA driver: what the graph holds and for how
 * long, what a capture forbids and what it must not be spoilt by. */
#include <unistd.h>

#include "base/fail.h"
#include "fgpu_kit.h"

static symmComm_t comms[GK_RANKS];
static cu_stream streams[2];
static char *buf[2];
static symmWindow_t win[2];

static void start(int ranks) {
    gk_start(2, 0);
    gk_open(comms, ranks, NULL);
    T_OK(symmGroupStart());
    for (int r = 0; r < ranks; r++) {
        streams[r] = gk_stream(r);
        buf[r] = gk_memory(r, 4 * GK_MB);
        T_OK(symmWindowRegister(comms[r], buf[r], 4 * GK_MB, &win[r], SYMM_WIN_DEFAULT));
    }
    T_OK(symmGroupEnd());
}

static void start_holding(const char *who) {
    setenv("SYMM_GRAPH_HOLD", who, 1);
    start(2);
    unsetenv("SYMM_GRAPH_HOLD");
}

static void all_reduce(int r, cu_stream stream) {
    T_OK(symmAllReduce(buf[r], buf[r], 100, symmInt32, symmSum, comms[r], gk_user(stream)));
}

static void begin(int r) {
    T_EQ(symm_cu.cuStreamBeginCapture(streams[r], SYMM_CUDA_CAPTURE_MODE_GLOBAL), 0);
}

static cu_graph end(int r) {
    cu_graph graph = NULL;
    T_EQ(symm_cu.cuStreamEndCapture(streams[r], &graph), 0);
    T_CHECK(graph != NULL);
    return graph;
}

/* The graph of a capture made executable; the graph itself goes. */
static cu_graph_exec end_executable(int r) {
    cu_graph_exec exec;
    cu_graph graph = end(r);
    T_EQ(symm_cu.cuGraphInstantiate(&exec, graph, 0), 0);
    T_EQ(symm_cu.cuGraphDestroy(graph), 0);
    return exec;
}

static void finish(int ranks, int destroyed) {
    for (int r = 0; r < ranks; r++) {
        if (!destroyed) T_OK(symmCommDestroy(comms[r]));
        T_OK(symmMemFree(buf[r]));
    }
    GK_LEFT(0);
}

/* ---- what is held --------------------------------------------------------------------------- */

static void a_captured_call_costs_one_object_and_no_event(void) {
    start(2);
    T_OK(symm_cuda_set(0));
    begin(0);
    for (int i = 0; i < 3; i++) {
        gk_calls before = gk_count();
        all_reduce(0, streams[0]);
        GK_EXACTLY(&before, "cuLaunchKernelEx cuStreamGetCaptureInfo_v3 cuStreamGetCtx "
                            "cuCtxGetCurrent cuUserObjectCreate cuGraphRetainUserObject");
    }
    T_EQ(gk_last(0).count, 0); /* recorded, not run */
    cu_graph graph = end(0);
    T_EQ(gk_inside(comms[0])->order.eager.any, 0); /* who replays it orders it */
    T_EQ(symm_cu.cuGraphDestroy(graph), 0);
    finish(2, 0);
}

static void a_graph_keeps_windows_and_communicator(void) {
    cu_graph_exec exec[2];
    start(2);
    for (int r = 0; r < 2; r++) {
        begin(r);
        all_reduce(r, streams[r]);
        T_OK(symmAllGather(buf[r], buf[r] + GK_MB, 100, symmInt32, comms[r], gk_user(streams[r])));
        T_OK(symmBarrier(comms[r], gk_user(streams[r])));
        exec[r] = end_executable(r);
    }
    const uint64_t base = gk_inside(comms[0])->base;
    for (int r = 0; r < 2; r++) T_OK(symmWindowDeregister(comms[r], win[r]));
    T_EQ(SYMM_STAT_GET(windows), 2);
    gk_close(comms, 2);
    symm_gpu_reap();
    T_CHECK(SYMM_STAT_GET(windows) == 2 && SYMM_STAT_GET(comms) == 2);
    T_EQ(fake_cuda_access((void *)(uintptr_t)base), 3); /* the control block is still there */
    for (int i = 0; i < 3; i++)
        for (int r = 0; r < 2; r++) T_EQ(symm_cu.cuGraphLaunch(exec[r], streams[r]), 0);
    for (int r = 0; r < 2; r++) {
        T_EQ(gk_last(r).count, 9);
        T_EQ(gk_last(r).args.base, base);
        T_CHECK(gk_last(r).config.stream == streams[r]);
        T_EQ(symm_cu.cuGraphExecDestroy(exec[r]), 0);
    }
    T_EQ(SYMM_STAT_GET(comms), 2); /* CUDA's callback frees nothing itself */
    symm_gpu_reap();
    T_CHECK(SYMM_STAT_GET(windows) == 0 && SYMM_STAT_GET(comms) == 0);
    T_EQ(fake_cuda_access((void *)(uintptr_t)base), 0);
    finish(2, 1);
}

/* SYMM_GRAPH_HOLD=comm: no object on the graph, and each window is kept once. */
static void the_communicator_may_keep_them_instead(void) {
    cu_graph_exec exec[2];
    start_holding("comm");
    const uint64_t base = gk_inside(comms[0])->base;
    for (int r = 0; r < 2; r++) {
        T_OK(symm_cuda_set(r));
        T_EQ(symm_fail_arm("gpu_hold:error:2"), 0); /* a second window to keep would be refused */
        begin(r);
        for (int i = 0; i < 3; i++) {
            gk_calls before = gk_count();
            all_reduce(r, streams[r]);
            GK_EXACTLY(&before,
                       "cuLaunchKernelEx cuStreamGetCaptureInfo_v3 cuStreamGetCtx cuCtxGetCurrent");
        }
        T_OK(symmBarrier(comms[r], gk_user(streams[r])));
        exec[r] = end_executable(r);
        T_EQ(symm_fail_arm(""), 0);
        T_OK(symmWindowDeregister(comms[r], win[r]));
    }
    symm_gpu_reap();
    T_EQ(SYMM_STAT_GET(windows), 2);
    for (int r = 0; r < 2; r++) {
        T_EQ(symm_cu.cuGraphLaunch(exec[r], streams[r]), 0);
        T_EQ(gk_last(r).count, 4);
        T_EQ(symm_cu.cuGraphExecDestroy(exec[r]), 0);
    }
    symm_gpu_reap();
    T_EQ(SYMM_STAT_GET(windows), 2); /* graphs come and go */
    gk_close(comms, 2);
    T_CHECK(SYMM_STAT_GET(windows) == 0 && SYMM_STAT_GET(comms) == 0);
    T_EQ(fake_cuda_access((void *)(uintptr_t)base), 0);
    finish(2, 1);
}

/* Whoever is to keep it: the call is refused, and the capture goes on. */
static void no_memory_to_keep_what_a_call_needs(void) {
    static const char *const who[] = {"graph", "comm"};
    T_EXPECT_WARNINGS();
    for (int i = 0; i < 2; i++) {
        start_holding(who[i]);
        T_OK(symm_cuda_set(0));
        begin(0);
        T_EQ(symm_fail_arm("gpu_hold:error"), 0);
        T_ERR(symmAllReduce(buf[0], buf[0], 100, symmInt32, symmSum, comms[0], gk_user(streams[0])),
              symmOutOfMemory);
        T_EQ(symm_fail_arm(""), 0);
        all_reduce(0, streams[0]);
        T_EQ(symm_cu.cuGraphDestroy(end(0)), 0);
        finish(2, 0);
    }
}

/* What a graph has let go is freed by whichever of these comes next. */
static void one_graph_is_gone(void) {
    begin(0);
    all_reduce(0, streams[0]);
    T_OK(symmWindowDeregister(comms[0], win[0]));
    cu_graph graph = end(0);
    T_EQ(SYMM_STAT_GET(windows), 2);
    T_EQ(symm_cu.cuGraphDestroy(graph), 0);
    T_EQ(SYMM_STAT_GET(windows), 2);
}

static void what_graphs_let_go_is_freed_soon(void) {
    symmComm_t more[2];
    symmWindow_t again[2];
    char *other;
    for (int how = 0; how < 4; how++) {
        start(2);
        one_graph_is_gone();
        switch (how) {
        case 0: T_OK(symmMemFree(gk_memory(0, 1))); break;
        case 1:
            gk_open(more, 2, NULL);
            gk_close(more, 2);
            break;
        case 2:
            other = gk_memory(0, 1);
            T_OK(symmGroupStart());
            T_OK(symmWindowRegister(comms[0], other, 1, &again[0], SYMM_WIN_DEFAULT));
            T_OK(symmWindowRegister(comms[1], NULL, 0, &again[1], SYMM_WIN_DEFAULT));
            T_OK(symmGroupEnd());
            for (int r = 0; r < 2; r++) T_OK(symmWindowDeregister(comms[r], again[r]));
            T_OK(symmMemFree(other));
            break;
        default: gk_close(comms, 2); break;
        }
        T_EQ(SYMM_STAT_GET(windows), how < 3);
        finish(2, how == 3);
    }
}

/* ---- captures and eager calls --------------------------------------------------------------- */

/* The last call's stream is not touched, so what it does now does not matter. */
static void eager_work_follows_a_stream_under_capture(void) {
    start(2);
    cu_stream other = gk_stream(0);
    all_reduce(0, streams[0]);
    begin(0);
    T_OK(symmBarrier(comms[0], gk_user(other)));
    T_OK(symmCommFinalize(
        comms[0])); /* looks at the call, not at its stream; the capture stays as it is */
    all_reduce(0, streams[0]);
    all_reduce(0, streams[0]); /* into the graph; nothing is broken */
    cu_graph graph = end(0);
    T_EQ(symm_cu.cuGraphDestroy(graph), 0);
    T_OK(symmBarrier(comms[0], gk_user(other)));
    T_EQ(gk_last(0).count, 3);
    finish(2, 0);
}

/* Another stream that has joined the capture is in the same graph. */
static void a_capture_may_spread(void) {
    cu_event fork, join;
    start(2);
    T_OK(symm_cuda_set(0));
    cu_stream other = gk_stream(0);
    T_EQ(symm_cu.cuEventCreate(&fork, SYMM_CUDA_EVENT_DISABLE_TIMING), 0);
    T_EQ(symm_cu.cuEventCreate(&join, SYMM_CUDA_EVENT_DISABLE_TIMING), 0);
    all_reduce(0, streams[0]);
    begin(0);
    T_EQ(symm_cu.cuEventRecord(fork, streams[0]), 0);
    T_EQ(symm_cu.cuStreamWaitEvent(other, fork, 0), 0);
    all_reduce(0, other);
    T_EQ(symm_cu.cuEventRecord(join, other), 0);
    T_EQ(symm_cu.cuStreamWaitEvent(streams[0], join, 0), 0);
    cu_graph_exec exec = end_executable(0);
    T_EQ(symm_cu.cuGraphLaunch(exec, other), 0);
    T_EQ(gk_last(0).count, 2);
    T_EQ(symm_cu.cuGraphExecDestroy(exec), 0);
    T_EQ(symm_cu.cuEventDestroy(fork), 0);
    T_EQ(symm_cu.cuEventDestroy(join), 0);
    finish(2, 0);
}

static void spoilt_captures_are_usage_errors(void) {
    cu_graph graph;
    cu_stream blocking;
    T_EXPECT_WARNINGS();
    start(2);
    T_OK(symm_cuda_set(0));
    begin(0);
    T_EQ(symm_cu.cuStreamQuery(streams[0]), SYMM_CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    T_ERR(symmBarrier(comms[0], gk_user(streams[0])), symmInvalidUsage);
    T_MSG(symmGetLastError(comms[0]), "invalidated");
    T_EQ(symm_cu.cuStreamEndCapture(streams[0], &graph),
         SYMM_CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    /* The NULL stream would wait for a blocking stream that is captured. */
    T_EQ(symm_cu.cuStreamCreate(&blocking, SYMM_CUDA_STREAM_DEFAULT), 0);
    T_EQ(symm_cu.cuStreamBeginCapture(blocking, SYMM_CUDA_CAPTURE_MODE_RELAXED), 0);
    T_ERR(symmBarrier(comms[0], NULL), symmInvalidUsage);
    T_MSG(symmGetLastError(comms[0]), "capture");
    T_CHECK(symm_cu.cuStreamEndCapture(blocking, &graph) != 0);
    all_reduce(0, streams[0]); /* and the communicator lives */
    T_OK(symmBarrier(comms[1], NULL));
    finish(2, 0);
}

static int depends_on(cu_graph_node node, cu_graph_node on) {
    cu_graph_node deps[16];
    cu_graph_edge edges[16];
    size_t n = 16;
    T_EQ(symm_cu.cuGraphNodeGetDependencies_v2(node, deps, edges, &n), 0);
    for (size_t i = 0; i < n; i++)
        if (deps[i] == on || depends_on(deps[i], on)) return 1;
    return 0;
}

static cu_graph_node newest(cu_stream s) {
    const cu_graph_node *deps;
    cu_graph graph;
    size_t n;
    T_EQ(symm_cuda_capture_deps(s, &graph, &deps, &n), 0);
    T_EQ(n, 1);
    return deps[0];
}

/* Streams that part before the calls: nothing of the program's orders one call after the other, and
 * they share epochs and scratch. */
static void captured_calls_of_two_streams_keep_their_order(void) {
    cu_graph_node call[4];
    start(2);
    T_OK(symm_cuda_set(0));
    for (int how = 0; how < 2; how++) {
        cu_stream other = how ? SYMM_CUDA_STREAM_PER_THREAD : gk_stream(0);
        cu_stream s[4] = {streams[0], other, other, streams[0]};
        all_reduce(0, other); /* eager; its end is no business of the capture's */
        begin(0);
        gk_order(streams[0], other);
        for (int i = 0; i < 4; i++) {
            gk_calls before = gk_count();
            all_reduce(0, s[i]);
            if (!how && i == 2) /* the same stream: nothing more */
                GK_EXACTLY(&before, "cuLaunchKernelEx cuStreamGetCaptureInfo_v3 cuCtxGetCurrent "
                                    "cuUserObjectCreate cuGraphRetainUserObject");
            call[i] = newest(s[i]);
            for (int k = 0; k < i; k++) T_CHECKF(depends_on(call[i], call[k]), "%d, %d", i, k);
        }
        T_EQ(symm_cu.cuGraphDestroy(end(0)), 0); /* and all is joined */
        /* Another graph has nothing to do with this one. */
        begin(0);
        gk_calls before = gk_count();
        all_reduce(0, streams[0]);
        GK_EXACTLY(&before, "cuLaunchKernelEx cuStreamGetCaptureInfo_v3 cuStreamGetCtx "
                            "cuCtxGetCurrent cuUserObjectCreate cuGraphRetainUserObject");
        T_EQ(symm_cu.cuGraphDestroy(end(0)), 0);
        all_reduce(0, streams[0]);
    }
    finish(2, 0);
}

/* Captures under way at once have calls in turns: each keeps its own order. Those that have ended
 * make room. */
static void captures_in_turns_keep_an_order_each(void) {
    start(2);
    T_OK(symm_cuda_set(0));
    for (int lap = 0; lap < 4; lap++) {
        cu_graph_node last[3];
        cu_graph graph;
        cu_stream s[3][2];
        for (int i = 0; i < 3; i++) {
            s[i][0] = gk_stream(0);
            s[i][1] = i ? gk_stream(0) : SYMM_CUDA_STREAM_PER_THREAD;
            T_EQ(symm_cu.cuStreamBeginCapture(s[i][0], SYMM_CUDA_CAPTURE_MODE_GLOBAL), 0);
            gk_order(s[i][0], s[i][1]);
        }
        for (int turn = 0; turn < 4 * 3; turn++) {
            const int i = turn % 3, at = turn / 3 % 2 == 0;
            all_reduce(0, s[i][at]);
            T_CHECKF(turn < 3 || depends_on(newest(s[i][at]), last[i]), "call %d", turn);
            last[i] = newest(s[i][at]);
        }
        for (int i = 0; i < 3; i++) {
            T_EQ(symm_cu.cuStreamEndCapture(s[i][0], &graph), 0);
            T_EQ(symm_cu.cuGraphDestroy(graph), 0);
        }
    }
    finish(2, 0);
}

/* The last call was on the legacy stream, which nobody may touch while a blocking stream is
 * captured: not for this call either. */
static void a_legacy_stream_is_left_alone_while_others_are_captured(void) {
    cu_stream blocking;
    cu_graph graph;
    symmResult_t async;
    T_EXPECT_WARNINGS();
    start(2);
    T_OK(symm_cuda_set(0));
    T_EQ(symm_cu.cuStreamCreate(&blocking, SYMM_CUDA_STREAM_DEFAULT), 0);
    T_OK(symmBarrier(comms[0], NULL));
    T_EQ(symm_cu.cuStreamBeginCapture(blocking, SYMM_CUDA_CAPTURE_MODE_THREAD_LOCAL), 0);
    T_OK(symmBarrier(comms[0], gk_user(streams[0])));
    all_reduce(0, blocking);
    T_EQ(symm_cu.cuStreamEndCapture(blocking, &graph), 0); /* unharmed */
    T_EQ(symm_cu.cuGraphDestroy(graph), 0);
    all_reduce(0, streams[0]);
    /* From another stream to it: CUDA spoils the capture, as for any use of it; the communicator
     * lives. */
    T_EQ(symm_cu.cuStreamBeginCapture(blocking, SYMM_CUDA_CAPTURE_MODE_THREAD_LOCAL), 0);
    T_ERR(symmBarrier(comms[0], NULL), symmInvalidUsage);
    T_MSG(symmGetLastError(comms[0]), "capture under way");
    T_CHECK(symm_cu.cuStreamEndCapture(blocking, &graph) != 0);
    T_OK(symmCommGetAsyncError(comms[0], &async));
    T_EQ(async, symmSuccess);
    T_OK(symmBarrier(comms[0], NULL));
    finish(2, 0);
}

/* The library's own work, in this thread, belongs to no capture and spoils none. */
static void set_up_spoils_no_capture(void) {
    symmComm_t more[2];
    symmWindow_t again[2];
    void *mem;
    start(2);
    T_OK(symm_cuda_set(0));
    begin(0);
    T_OK(symmMemAlloc(&mem, GK_MB));
    gk_open(more, 2, NULL);
    T_OK(symmGroupStart());
    T_OK(symmWindowRegister(more[0], mem, GK_MB, &again[0], SYMM_WIN_DEFAULT));
    T_OK(symmWindowRegister(more[1], buf[1], GK_MB, &again[1], SYMM_WIN_DEFAULT));
    T_OK(symmGroupEnd());
    T_OK(symmCommDump(more[0], STDERR_FILENO));
    cu_stream gone = gk_stream(0);
    T_OK(symmBarrier(more[0], gk_user(gone)));
    T_EQ(symm_cu.cuStreamDestroy(gone), 0);
    gk_close(more, 2);
    T_OK(symmMemFree(mem));
    all_reduce(0, streams[0]);
    T_EQ(symm_cu.cuGraphDestroy(end(0)), 0);
    finish(2, 0);
}

/* A rank of its own thread is created on the device that is current there, by the callback door. */
static int gather(void *ctx, const void *send, void *recv, size_t bytes) {
    (void)ctx;
    memcpy(recv, send, bytes);
    return 0;
}

static int alone(void *ctx) {
    (void)ctx;
    return 0;
}

static void creation_in_a_captured_thread(void) {
    const symmBoot_t boot = {gather, alone, NULL};
    start(1);
    T_OK(symm_cuda_set(0));
    begin(0);
    T_OK(symmCommInitBoot(&comms[1], 1, 0, &boot, NULL));
    T_OK(symmCommDestroy(comms[1]));
    T_EQ(symm_cu.cuGraphDestroy(end(0)), 0);
    finish(1, 0);
}

/* ---- groups --------------------------------------------------------------------------------- */

static void groups_launch_once_a_rank(void) {
    start(2);
    T_OK(symm_cuda_set(1));
    for (int how = 0; how < 3; how++) {
        int had[2] = {gk_last(0).count, gk_last(1).count};
        const int launches = fake_cuda_calls("cuLaunchKernelEx");
        T_OK(symmGroupStart());
        for (int r = 0; r < 2; r++) {
            cu_stream s = how == 0 ? NULL : how == 1 ? SYMM_CUDA_STREAM_LEGACY : streams[r];
            all_reduce(r, s);
            T_OK(symmBarrier(comms[r], gk_user(s)));
        }
        T_EQ(gk_last(0).count, had[0]); /* not before the end */
        T_OK(symmGroupEnd());
        T_EQ(gk_device(), 1);
        T_EQ(fake_cuda_calls("cuLaunchKernelEx"), launches + 4);
        for (int r = 0; r < 2; r++) {
            T_EQ(gk_last(r).count, had[r] + 2);
            T_STREQ(gk_last(r).kernel, "symm_barrier_word_n0"); /* in issue order */
        }
    }
    finish(2, 0);
}

static void a_group_may_be_captured(void) {
    start(2);
    for (int r = 0; r < 2; r++)
        T_EQ(symm_cu.cuStreamBeginCapture(streams[r], SYMM_CUDA_CAPTURE_MODE_THREAD_LOCAL), 0);
    T_OK(symmGroupStart());
    for (int r = 0; r < 2; r++) all_reduce(r, streams[r]);
    T_OK(symmGroupEnd());
    for (int r = 0; r < 2; r++) {
        cu_graph_exec exec = end_executable(r);
        T_EQ(symm_cu.cuGraphLaunch(exec, streams[r]), 0);
        T_EQ(gk_last(r).count, 1);
        T_EQ(symm_cu.cuGraphExecDestroy(exec), 0);
    }
    finish(2, 0);
}

/* One thread issues A, B, A: on one stream that is an order which ranks that use no group keep as
 * well, so it is kept here. */
static void grouped_calls_of_two_communicators_keep_their_order(void) {
    symmComm_t more[2];
    start(2);
    gk_open(more, 2, NULL);
    const uint64_t base[2] = {gk_inside(comms[0])->base, gk_inside(more[0])->base};
    T_OK(symm_cuda_set(0));
    for (int how = 0; how < 6; how++) {
        symmStream_t s = gk_user(how % 3 == 0   ? NULL
                                 : how % 3 == 1 ? SYMM_CUDA_STREAM_PER_THREAD
                                                : streams[0]);
        const int first = how / 3, had = gk_last(0).count;
        const int pushes = fake_cuda_calls("cuCtxPushCurrent");
        T_OK(symmGroupStart());
        for (int i = 0; i < 3; i++) T_OK(symmBarrier((first + i) % 2 ? more[0] : comms[0], s));
        T_OK(symmGroupEnd());
        T_EQ(fake_cuda_calls("cuCtxPushCurrent"), pushes); /* no thread: a launch never waits */
        T_EQ(gk_last(0).count, had + 3);
        T_EQ(gk_last(0).args.base, base[first]);
    }
    gk_close(more, 2);
    finish(2, 0);
}

/* Found when End came to it, the other rank's kernel would be waiting already. */
static void a_group_checks_streams_at_the_call(void) {
    T_EXPECT_WARNINGS();
    start(2);
    for (int how = 0; how < 3; how++) {
        gk_calls before = gk_count();
        T_OK(symmGroupStart());
        all_reduce(1, streams[1]);
        if (how == 2) begin(0);
        if (how == 2)
            T_EQ(symm_cu.cuStreamQuery(streams[0]), SYMM_CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        cu_stream bad = how == 0 ? streams[1] : how == 1 ? (cu_stream)(void *)&before : streams[0];
        const symmResult_t want = how == 2 ? symmInvalidUsage : symmInvalidArgument;
        T_ERR(symmAllReduce(buf[0], buf[0], 100, symmInt32, symmSum, comms[0], gk_user(bad)), want);
        T_ERR(symmGroupEnd(), want);
        T_MSG(symmGetLastError(comms[0]), "stream=");
        T_CHECK(gk_last(0).count == 0 && gk_last(1).count == 0);
    }
    cu_graph graph;
    T_CHECK(symm_cu.cuStreamEndCapture(streams[0], &graph) != 0);
    T_OK(symmGroupStart());
    for (int r = 0; r < 2; r++) all_reduce(r, streams[r]);
    T_OK(symmGroupEnd());
    T_CHECK(gk_last(0).count == 1 && gk_last(1).count == 1);
    finish(2, 0);
}

static void hold_back(void *gate) {
    while (!__atomic_load_n((int *)gate, __ATOMIC_ACQUIRE)) usleep(200);
}

/* Registrations wait for each other in threads of the group; whose stream this is must not depend
 * on that. */
static void a_group_means_the_callers_per_thread_stream(void) {
    int gate = 0;
    gk_start(2, 1);
    gk_open(comms, 2, NULL);
    for (int r = 0; r < 2; r++) {
        buf[r] = gk_memory(r, 4 * GK_MB);
        T_OK(symm_cuda_set(r));
        T_EQ(symm_cu.cuLaunchHostFunc(SYMM_CUDA_STREAM_PER_THREAD, hold_back, &gate), 0);
    }
    T_OK(symmGroupStart());
    for (int r = 0; r < 2; r++) {
        all_reduce(r, SYMM_CUDA_STREAM_PER_THREAD);
        T_OK(symmWindowRegister(comms[r], buf[r], 4 * GK_MB, &win[r], SYMM_WIN_DEFAULT));
        T_OK(symmSend(buf[r], 8, symmInt8, 1 - r, comms[r], gk_user(SYMM_CUDA_STREAM_PER_THREAD)));
        all_reduce(r, SYMM_CUDA_STREAM_PER_THREAD);
    }
    T_OK(symmGroupEnd());
    usleep(50000);
    const int early = gk_last(0).count + gk_last(1).count;
    __atomic_store_n(&gate, 1, __ATOMIC_RELEASE);
    for (int r = 0; r < 2; r++) {
        T_OK(symm_cuda_set(r));
        T_EQ(symm_cu.cuStreamSynchronize(SYMM_CUDA_STREAM_PER_THREAD), 0);
        T_EQ(gk_last(r).count, 3);
        T_EQ(gk_last(r).args.dst_off != SYMM_STAGED, 1); /* behind the registration */
    }
    T_EQ(early, 0);
    finish(2, 0);
}

/* A refusal ends the calls of its communicator, not the others'. */
static void a_failed_registration_ends_its_communicators_calls(void) {
    int not_vmm[4];
    T_EXPECT_WARNINGS();
    gk_start(2, 0);
    gk_open(comms, 2, NULL);
    for (int r = 0; r < 2; r++) buf[r] = gk_memory(r, 4 * GK_MB);
    T_OK(symmGroupStart());
    for (int r = 0; r < 2; r++) {
        T_OK(symmWindowRegister(comms[r], r ? (void *)not_vmm : buf[r], 16, &win[r],
                                SYMM_WIN_DEFAULT));
        all_reduce(r, SYMM_CUDA_STREAM_PER_THREAD);
    }
    T_ERR(symmGroupEnd(), symmInvalidArgument);
    T_MSG(symmGetLastError(NULL), "not memory that peers can map");
    T_CHECK(gk_last(0).count == 0 && gk_last(1).count == 0);
    finish(2, 0);
}

T_MAIN(T(a_captured_call_costs_one_object_and_no_event), T(a_graph_keeps_windows_and_communicator),
       T(the_communicator_may_keep_them_instead), T(no_memory_to_keep_what_a_call_needs),
       T(what_graphs_let_go_is_freed_soon), T(eager_work_follows_a_stream_under_capture),

       T(a_capture_may_spread), T(spoilt_captures_are_usage_errors),
       T(captured_calls_of_two_streams_keep_their_order), T(captures_in_turns_keep_an_order_each),
       T(a_legacy_stream_is_left_alone_while_others_are_captured), T(set_up_spoils_no_capture),
       T(creation_in_a_captured_thread), T(groups_launch_once_a_rank), T(a_group_may_be_captured),
       T(a_group_checks_streams_at_the_call),
       T(grouped_calls_of_two_communicators_keep_their_order),
       T(a_group_means_the_callers_per_thread_stream),
       T(a_failed_registration_ends_its_communicators_calls))
