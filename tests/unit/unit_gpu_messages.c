/* unit_gpu_messages.c - how sends and receives reach a GPU, on the fake CUDA driver: what is
 * launched for a call, for a group, for a thousand calls, on several streams, in a capture; what a
 * graph holds; and every call of the driver refused. The kernel itself: unit_p2p_kernels. */
#include "base/fail.h"
#include "fgpu_windows.h"

static symmResult_t send(uint64_t at, uint64_t bytes, int peer, symmStream_t s) {
    return symmSend(mem + at, bytes, symmUint8, peer, comms[0], s);
}
static symmResult_t recv(uint64_t at, uint64_t bytes, int peer, symmStream_t s) {
    return symmRecv(mem + at, bytes, symmUint8, peer, comms[0], s);
}

/* ---- what is launched ------------------------------------------------------------------------ */

static void a_call_is_one_launch(void) {
    start(2);
    symmStream_t s = gk_user(gk_stream(0));
    T_OK(send(0, 100, 1, s));
    gk_calls before = gk_count();
    T_OK(symmSend(mem + 256, 10, symmDouble, 1, comms[0], s));
    GK_EXACTLY(&before, "cuLaunchKernelEx cuStreamGetCaptureInfo_v3 cuCtxGetCurrent");
    const gk_launch l = gk_last(0);
    const symm_gpu_p2p_op *op = &l.messages.op[0];
    T_CHECK(!strcmp(l.kernel, "symm_p2p_n0"));
    T_CHECK(l.config.grid_x == 1 && l.config.block_x == 32);
    T_CHECK(l.messages.channels == 1 && l.messages.ops == 1 && !l.messages.listed);
    T_CHECK(!l.messages.self && l.messages.first[0] == 0);
    T_EQ(op->buff, (uintptr_t)mem + 256);
    T_CHECK(op->off != SYMM_STAGED && op->count == 10 && op->type == symmDouble);
    T_CHECK(op->esize_log == 3 && op->peer == 1 && op->sends == 1 && op->last == 1);
    T_EQ(l.args.gpu.serial, 2);
    T_OK(symmBarrier(comms[0], s)); /* in the same order of calls */
    T_EQ(gk_last(0).args.gpu.serial, 3);
    finish(2);
}

static void a_buffer_in_no_window_is_staged(void) {
    T_EXPECT_WARNINGS();
    start(2);
    cu_deviceptr plain;
    T_EQ(symm_cu.cuMemAlloc(&plain, 1 << 20), 0);
    T_OK(symmRecv((void *)(uintptr_t)plain, 1 << 20, symmInt8, 1, comms[0], NULL));
    T_EQ(gk_last(0).messages.op[0].off, SYMM_STAGED);
    T_OK(symmRecv((void *)(uintptr_t)plain, 1 << 20, symmInt8, 0, comms[0], NULL));
    T_CHECK(gk_last(0).messages.op[0].off != SYMM_STAGED); /* to itself it never is */
    T_EQ(gk_last(0).messages.self, 1);
    T_ERR(symmSend(comms, 8, symmInt8, 1, comms[0], NULL), symmInvalidArgument);
    T_MSG(symmGetLastError(NULL), "sendbuff=");
    T_EQ(symm_cu.cuMemFree(plain), 0);
    finish(2);
}

/* Each channel has as many warps as the largest message keeps busy: with four units of a line's 480
 * bytes each up to the ring, with 4 KB beyond. */
enum { QUARTER = SYMM_GPU_P2P_THREADS / 4, WARPS = QUARTER / 32 };
static void grids_grow_with_the_bytes(void) {
    start(4);
    T_OK(symmGroupStart());
    for (int p = 0; p < 4; p++) {
        T_OK(send(0, 1000, p, NULL));
        T_OK(recv(8192 + 1024 * (unsigned)p, 1000, p, NULL));
    }
    T_OK(symmGroupEnd());
    gk_launch l = gk_last(0);
    T_CHECK(l.config.grid_x == 2 && l.config.block_x == QUARTER && l.messages.channels == 8);
    T_EQ(l.messages.self, 3);
    T_OK(send(0, 2000, 1, NULL));
    l = gk_last(0);
    T_CHECK(l.config.grid_x == 1 && l.config.block_x == 64);
    T_OK(send(0, 16 << 10, 1, NULL));
    l = gk_last(0);
    T_CHECK(l.config.grid_x == (1 + (16 << 10) / 1920 + WARPS - 1) / WARPS);
    T_OK(symmGroupStart());
    T_OK(send(0, 16 << 10, 1, NULL));
    T_OK(recv(GK_MB, 16 << 10, 1, NULL));
    T_OK(symmGroupEnd());
    T_CHECK(gk_last(0).config.grid_x == (2 * (1 + (16 << 10) / 1920) + WARPS - 1) / WARPS);
    T_OK(send(0, 4 * GK_MB, 1, NULL));
    const int budget = gk_inside(comms[0])->gpus.budget;
    T_EQ((int)gk_last(0).config.grid_x, budget < 128 ? budget : 128);
    gk_inside(comms[0])->params.ctas = 5;
    gk_inside(comms[0])->params.threads = 64;
    T_OK(send(0, 4 * GK_MB, 1, NULL));
    T_CHECK(gk_last(0).config.grid_x == 5 && gk_last(0).config.block_x == 64);
    finish(4);
}

/* Channel after channel, in call order, whatever the order in which they were written down. */
static void a_group_is_sorted_by_channels(void) {
    start(2);
    T_OK(symmGroupStart());
    T_OK(send(0, 1, 1, NULL));
    T_OK(recv(64, 2, 1, NULL));
    T_OK(send(128, 3, 1, NULL));
    T_OK(symmAllReduce(mem, mem, 10, symmFloat, symmSum, comms[0], NULL));
    T_OK(recv(192, 4, 1, NULL));
    T_OK(symmGroupEnd());
    const symm_gpu_p2p_args m = gk_last(0).messages;
    T_CHECK(m.channels == 2 && m.ops == 4 && m.first[0] == 0 && m.first[1] == 2);
    for (int i = 0; i < 4; i++) T_EQ(m.op[i].last, i & 1);
    const int sends = m.op[0].sends ? 0 : 2;
    T_CHECK(m.op[sends].count == 1 && m.op[sends + 1].count == 3);
    T_CHECK(m.op[2 - sends].count == 2 && m.op[3 - sends].count == 4);
    finish(2);
}

static void a_long_list_goes_into_the_control_block(void) {
    T_EXPECT_WARNINGS();
    start(2);
    gk_calls before = gk_count();
    T_OK(symmGroupStart());
    for (unsigned i = 0; i < 1000; i++) T_OK(send(i * 64, i % 60, (int)(i % 2), NULL));
    T_OK(symmGroupEnd());
    const gk_launch l = gk_last(0);
    gk_calls now = gk_count();
    int launches = 0;
    for (int i = 0; fake_cuda_call_name(i); i++)
        if (!strcmp(fake_cuda_call_name(i), "cuLaunchKernelEx")) launches = now.n[i] - before.n[i];
    T_EQ(launches, 1 + (1000 + SYMM_GPU_P2P_INLINE - 1) / SYMM_GPU_P2P_INLINE);
    T_CHECK(l.messages.listed == 1000 && !l.messages.ops && l.messages.channels == 2);
    T_CHECK(l.messages.first[0] == 0 && l.messages.first[1] == 500);
    T_EQ(l.args.gpu.serial, 1); /* one call */
    /* No more than the list has room for: told before anything is launched. */
    T_OK(symmGroupStart());
    for (unsigned i = 0; i < SYMM_GPU_P2P_LIST; i++) T_OK(send(0, 0, 1, NULL));
    T_ERR(send(0, 0, 1, NULL), symmInvalidUsage);
    T_MSG(symmGetLastError(NULL), "a group on GPUs has at most 4096 sends and receives");
    const int count = gk_last(0).count;
    T_ERR(symmGroupEnd(), symmInvalidUsage);
    T_EQ(gk_last(0).count, count);
    finish(2);
}

/* ---- streams --------------------------------------------------------------------------------- */

static symmResult_t on_two_streams(symmStream_t a, symmStream_t b) {
    T_OK(symmGroupStart());
    T_OK(send(0, 100, 1, a));
    T_OK(recv(256, 100, 1, b));
    return symmGroupEnd();
}

/* One kernel, behind what both have, and before what both are given next. */
static void a_group_on_two_streams(void) {
    start(2);
    symmStream_t a = gk_user(gk_stream(0)), b = gk_user(gk_stream(0));
    T_OK(on_two_streams(a, b));
    gk_calls before = gk_count();
    T_OK(on_two_streams(a, b));
    GK_EXACTLY(&before, "cuLaunchKernelEx cuStreamGetCaptureInfo_v3*4 cuCtxGetCurrent*4 "
                        "cuStreamGetCtx*3 cuEventCreate cuEventRecord*2 cuStreamWaitEvent*2 "
                        "cuEventDestroy");
    T_CHECK(gk_last(0).messages.channels == 2);
    finish(2);
}

static void streams_of_one_group_are_captured_together(void) {
    T_EXPECT_WARNINGS();
    start(2);
    cu_graph graph;
    cu_stream a = gk_stream(0);
    symmStream_t b = gk_user(gk_stream(0));
    T_EQ(symm_cu.cuStreamBeginCapture(a, SYMM_CUDA_CAPTURE_MODE_THREAD_LOCAL), 0);
    const int count = gk_last(0).count;
    T_ERR(on_two_streams(gk_user(a), b), symmInvalidUsage);
    T_MSG(symmGetLastError(NULL), "not recorded into the same capture");
    T_EQ(gk_last(0).count, count);
    T_EQ(symm_cu.cuStreamEndCapture(a, &graph), 0);
    T_EQ(symm_cu.cuGraphDestroy(graph), 0);
    T_OK(send(0, 100, 1, b)); /* it broke nothing */
    finish(2);
}

/* ---- captures -------------------------------------------------------------------------------- */

static cu_graph captured(cu_stream s, unsigned calls) {
    cu_graph graph;
    T_EQ(symm_cu.cuStreamBeginCapture(s, SYMM_CUDA_CAPTURE_MODE_THREAD_LOCAL), 0);
    T_OK(symmGroupStart());
    for (unsigned i = 0; i < calls; i++) T_OK(send(i * 64, 64, 1, gk_user(s)));
    T_OK(symmGroupEnd());
    T_EQ(symm_cu.cuStreamEndCapture(s, &graph), 0);
    return graph;
}

/* The graph has the calls by value, and holds window and communicator. */
static void a_graph_keeps_what_its_calls_need(void) {
    const unsigned calls[] = {1, 3, 300};
    for (int i = 0; i < 3; i++) {
        cu_graph_exec exec;
        start(2);
        cu_stream s = gk_stream(0);
        cu_graph graph = captured(s, calls[i]);
        const int before = gk_last(0).count;
        T_EQ(symm_cu.cuGraphInstantiate(&exec, graph, 0), 0);
        T_EQ(symm_cu.cuGraphDestroy(graph), 0);
        gk_close(comms, 2);
        T_CHECK(SYMM_STAT_GET(windows) > 0 && SYMM_STAT_GET(comms) > 0);
        T_EQ(symm_cu.cuGraphLaunch(exec, s), 0);
        const gk_launch l = gk_last(0);
        T_EQ(l.count - before, calls[i] > SYMM_GPU_P2P_INLINE ? 4 : 1);
        T_CHECK(l.messages.channels == 1 && l.messages.ops + l.messages.listed == calls[i]);
        T_EQ(l.args.gpu.serial, 0);
        T_EQ(symm_cu.cuGraphExecDestroy(exec), 0);
        symm_gpu_reap();
        T_EQ(SYMM_STAT_GET(windows) + SYMM_STAT_GET(comms), 0);
        free_all(2);
    }
}

static void a_communicator_that_pins_holds_the_windows(void) {
    cu_graph_exec exec;
    setenv("SYMM_GRAPH_HOLD", "comm", 1);
    start(2);
    cu_graph graph = captured(gk_stream(0), 3);
    T_EQ(fake_cuda_calls("cuUserObjectCreate"), 0);
    T_EQ(symm_cu.cuGraphInstantiate(&exec, graph, 0), 0);
    T_EQ(symm_cu.cuGraphDestroy(graph), 0);
    T_OK(symmWindowDeregister(comms[0], wins[0]));
    T_EQ(SYMM_STAT_GET(windows), 2); /* held, as a replay may come */
    T_EQ(symm_cu.cuGraphExecDestroy(exec), 0);
    finish(2);
    unsetenv("SYMM_GRAPH_HOLD");
    T_EQ(SYMM_STAT_GET(windows), 0);
}

static void without_memory_nothing_is_recorded(void) {
    cu_graph graph;
    T_EXPECT_WARNINGS();
    start(2);
    cu_stream s = gk_stream(0);
    T_EQ(symm_cu.cuStreamBeginCapture(s, SYMM_CUDA_CAPTURE_MODE_THREAD_LOCAL), 0);
    T_EQ(symm_fail_arm("p2p_keep:error:1"), 0);
    T_ERR(send(0, 100, 1, gk_user(s)), symmOutOfMemory);
    T_EQ(symm_fail_arm(""), 0);
    T_OK(send(0, 100, 1, gk_user(s)));
    T_EQ(symm_cu.cuStreamEndCapture(s, &graph), 0);
    T_EQ(symm_cu.cuGraphDestroy(graph), 0);
    finish(2);
    symm_gpu_reap();
    T_EQ(SYMM_STAT_GET(windows) + SYMM_STAT_GET(comms), 0);
}

/* ---- refusals -------------------------------------------------------------------------------- */

/* A long list on two streams, eager or captured on one. */
static symmResult_t calls(int capture, cu_stream a, cu_stream b) {
    T_OK(symmGroupStart());
    symmResult_t r = symmSuccess;
    for (unsigned i = 0; i < 250 && !r; i++)
        r = send(i * 64, 64, 1, gk_user(!capture && i % 2 ? b : a));
    const symmResult_t end = symmGroupEnd();
    return r ? r : end;
}

/* The hits that are refused: the first four, then each at twice the number; T_FULL=1: every one. */
static int next_hit(int nth) {
    const char *full = getenv("T_FULL");
    return nth < 4 || (full && atoi(full) > 0) ? nth + 1 : 2 * nth;
}

/* Calls of the driver refused, one after the other: told, and nothing is left. */
static void refuse(int capture) {
    enum { CODE = 719 };
    static const char *const names[] = {
        "cuLaunchKernelEx",   "cuStreamGetCaptureInfo_v3", "cuEventCreate",
        "cuEventRecord",      "cuStreamWaitEvent",         "cuStreamGetCtx",
        "cuStreamBatchMemOp", "cuUserObjectCreate",        "cuGraphRetainUserObject"};
    int met = 0;
    for (unsigned k = 0; k < sizeof names / sizeof *names; k++)
        for (int nth = 1, more = 1; more; nth = next_hit(nth)) {
            cu_graph graph = NULL;
            start(2);
            cu_stream a = gk_stream(0), b = gk_stream(0);
            T_OK(send(0, 64, 1, gk_user(b)));
            if (capture)
                T_EQ(symm_cu.cuStreamBeginCapture(a, SYMM_CUDA_CAPTURE_MODE_THREAD_LOCAL), 0);
            fake_cuda_fail(names[k], nth, CODE);
            const symmResult_t r = calls(capture, a, b);
            more = !fake_cuda_fail_waits();
            fake_cuda_fail("cuInit", 1, 0);
            T_CHECKF(!r == !more, "%s, %d: %s", names[k], nth, symmGetErrorString(r));
            if (r) T_CHECK(*symmGetLastError(NULL));
            met += more;
            if (capture) (void)symm_cu.cuStreamEndCapture(a, &graph);
            if (graph) T_EQ(symm_cu.cuGraphDestroy(graph), 0);
            finish(2);
            symm_gpu_reap();
            T_EQ(SYMM_STAT_GET(windows) + SYMM_STAT_GET(comms), 0);
        }
    T_CHECK(met > (capture ? 5 : 8));
}
static void every_call_of_the_driver_refused(void) {
    T_EXPECT_WARNINGS();
    refuse(0);
    refuse(1);
}

/* Thread ranks of one GPU on one stream would wait for each other. */
static void ranks_of_one_gpu_need_streams_of_their_own(void) {
    T_EXPECT_WARNINGS();
    const int devices[] = {0, 0};
    gk_start(1, 0);
    gk_open(comms, 2, devices);
    T_OK(symm_cuda_set(0));
    char *p = gk_memory(0, GK_MB);
    symmStream_t a = gk_user(gk_stream(0)), b = gk_user(gk_stream(0));
    T_OK(symmSend(p, 64, symmInt8, 1, comms[0], a));
    T_ERR(symmRecv(p, 64, symmInt8, 0, comms[1], a), symmInvalidUsage);
    T_MSG(symmGetLastError(NULL),
          "was used last by rank 0, also a thread of this process on GPU 0");
    T_OK(symmRecv(p, 64, symmInt8, 0, comms[1], b));
    gk_close(comms, 2);
    T_OK(symmMemFree(p));
}

T_MAIN(T(a_call_is_one_launch), T(a_buffer_in_no_window_is_staged), T(grids_grow_with_the_bytes),
       T(a_group_is_sorted_by_channels), T(a_long_list_goes_into_the_control_block),
       T(a_group_on_two_streams), T(streams_of_one_group_are_captured_together),
       T(a_graph_keeps_what_its_calls_need), T(a_communicator_that_pins_holds_the_windows),
       T(without_memory_nothing_is_recorded), T_TIMEOUT(every_call_of_the_driver_refused, 120),
       T(ranks_of_one_gpu_need_streams_of_their_own))
