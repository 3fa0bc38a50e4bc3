/* unit_gpu_onesided.c - how one-sided calls reach a GPU, on the fake CUDA driver: what is launched
 * for a call, for a long list of waits, in a capture; what a graph holds; how counts are read; and
 * every call of the driver refused. The kernel itself: unit_onesided_kernels. */
#include "base/fail.h"
#include "fgpu_windows.h"

static symmResult_t put(uint64_t at, uint64_t bytes, symmStream_t s) {
    return symmPut(mem + at, bytes, symmUint8, 1, wins[0], 512, comms[0], s);
}
static symm_gpu_ctl *ctl(int rank) {
    const symm_comm *c = gk_inside(comms[rank]);
    return (symm_gpu_ctl *)(uintptr_t)(c->base + (uint64_t)rank * c->stride);
}
/* Where byte `at` of a rank's window lies for rank 0's kernels. */
static uint64_t flat(int rank, uint64_t at) {
    void *p;
    T_OK(symmWindowPeerPtr(wins[0], at, rank, &p));
    return (uintptr_t)p;
}

/* ---- what is launched ------------------------------------------------------------------------ */

static void is_op(const gk_launch *l, unsigned i, int kind, int peer, int signal, uint64_t count) {
    const symm_gpu_onesided_op *op = &l->onesided.op[i];
    T_CHECK(i < l->onesided.ops);
    T_EQ(op->kind, kind);
    T_EQ(op->peer, peer);
    T_EQ(op->signal, signal);
    T_EQ(op->count, count);
}

static void a_call_is_one_launch(void) {
    start(2);
    symmStream_t s = gk_user(gk_stream(0));
    T_OK(put(0, 100, s));
    gk_calls before = gk_count();
    T_OK(symmPutSignal(mem + 256, 10, symmDouble, 1, wins[0], 512, 7, comms[0], s));
    GK_EXACTLY(&before, "cuLaunchKernelEx cuStreamGetCaptureInfo_v3 cuCtxGetCurrent");
    gk_launch l = gk_last(0);
    T_CHECK(!strcmp(l.kernel, "symm_onesided_n0"));
    T_CHECK(l.config.grid_x == 1 && l.config.block_x == 32 && l.args.nctas == 1);
    T_EQ(l.onesided.to, flat(1, 512));
    T_EQ(l.onesided.from, (uintptr_t)mem + 256);
    T_CHECK(l.onesided.bytes == 80 && l.onesided.ops == 1 && l.args.gpu.serial == 2);
    is_op(&l, 0, SYMM_ONESIDED_SIGNAL, 1, 7, 0);
    T_OK(symmGet(mem + 256, 10, symmDouble, 1, wins[0], 512, comms[0], s));
    l = gk_last(0);
    T_EQ(l.onesided.from, flat(1, 512));
    T_EQ(l.onesided.to, (uintptr_t)mem + 256);
    T_CHECK(l.onesided.bytes == 80 && !l.onesided.ops);
    T_OK(symmPut(mem, 80, symmInt8, 0, wins[0], 512, comms[0], s)); /* to itself */
    T_EQ(gk_last(0).onesided.to, (uintptr_t)mem + 512);
    T_OK(symmPut(mem, 80, symmInt8, 0, wins[0], 0, comms[0], s)); /* where it is */
    T_CHECK(!gk_last(0).onesided.bytes && gk_last(0).args.gpu.serial == 5);
    T_OK(symmBarrier(comms[0], s)); /* in the same order of calls */
    T_EQ(gk_last(0).args.gpu.serial, 6);
    finish(2);
}

/* The memory of its window is its program's again. What it had may be read. */
static void nothing_is_put_to_a_rank_that_has_left(void) {
    start(2);
    symmStream_t s = gk_user(gk_stream(0));
    T_OK(put(0, 100, s));
    T_EQ(gk_last(0).onesided.bytes, 100);
    T_OK(symmCommDestroy(comms[1]));
    T_OK(symmPutSignal(mem + 256, 10, symmDouble, 1, wins[0], 512, 7, comms[0], s));
    T_CHECK(!gk_last(0).onesided.bytes && gk_last(0).onesided.ops == 1);
    T_OK(symmGet(mem + 256, 10, symmDouble, 1, wins[0], 512, comms[0], s));
    T_EQ(gk_last(0).onesided.bytes, 80);
    T_OK(symmCommDestroy(comms[0]));
    free_all(2);
}

static void calls_without_data(void) {
    start(2);
    T_OK(symmSignal(1, 63, comms[0], NULL));
    gk_launch l = gk_last(0);
    is_op(&l, 0, SYMM_ONESIDED_SIGNAL, 1, 63, 0);
    T_OK(symmSignalReset(0, 5, comms[0], NULL));
    l = gk_last(0);
    is_op(&l, 0, SYMM_ONESIDED_RESET, 0, 5, 0);
    T_OK(symmFence(comms[0], NULL));
    l = gk_last(0);
    T_CHECK(l.onesided.ops == 1 && l.onesided.op[0].kind == SYMM_ONESIDED_FENCE);
    T_CHECK(!l.onesided.bytes && l.config.grid_x == 1 && l.config.block_x == 32);
    T_OK(symmPutSignal(NULL, 0, symmInt8, 1, wins[0], 4 * GK_MB, 2, comms[0], NULL));
    l = gk_last(0);
    T_CHECK(!l.onesided.bytes && l.onesided.ops == 1);
    T_EQ(l.count, 4);
    finish(2);
}

/* Two of the same signal are one; a list of more than a kernel takes is several. */
static void a_list_of_waits(void) {
    enum { MANY = SYMM_GPU_ONESIDED_OPS + 20 };
    symmSignalWait_t w[MANY];
    start(2);
    for (int i = 0; i < MANY; i++) w[i] = (symmSignalWait_t){i / 64, i % 64, (size_t)i};
    T_OK(symmWaitSignal(0, NULL, comms[0], NULL));
    T_EQ(gk_last(0).count, 0);
    T_OK(symmWaitSignal(MANY, w, comms[0], NULL));
    gk_launch l = gk_last(0);
    T_CHECK(l.count == 2 && l.onesided.ops == 20);
    is_op(&l, 19, SYMM_ONESIDED_WAIT, 1, MANY - 1 - 64, MANY - 1);
    w[0] = w[2] = (symmSignalWait_t){1, 4, 3};
    w[1] = (symmSignalWait_t){0, 4, 5};
    T_OK(symmWaitSignal(3, w, comms[0], NULL));
    l = gk_last(0);
    T_CHECK(l.count == 3 && l.onesided.ops == 2 && l.config.grid_x == 1);
    is_op(&l, 0, SYMM_ONESIDED_WAIT, 1, 4, 6);
    is_op(&l, 1, SYMM_ONESIDED_WAIT, 0, 4, 5);
    finish(2);
}

/* Warps for 4 KB each, in CTAs of a quarter of a multiprocessor. */
enum { QUARTER = SYMM_GPU_P2P_THREADS / 4, WARPS = QUARTER / 32 };
static void grids_grow_with_the_bytes(void) {
    start(2);
    T_OK(put(0, 4097, NULL));
    gk_launch l = gk_last(0);
    T_CHECK(l.config.grid_x == 1 && l.config.block_x == 64);
    T_OK(put(0, 64 << 10, NULL));
    l = gk_last(0);
    T_CHECK(l.config.grid_x == 16 / WARPS && l.config.block_x == QUARTER);
    T_OK(put(0, 3 * GK_MB, NULL));
    const int budget = gk_inside(comms[0])->gpus.budget;
    T_EQ((int)gk_last(0).config.grid_x, budget < 128 ? budget : 128);
    gk_inside(comms[0])->params.ctas = 5;
    T_OK(put(0, 3 * GK_MB, NULL));
    T_EQ(gk_last(0).config.grid_x, 5);
    finish(2);
}

static void buffers_that_the_gpu_cannot_reach(void) {
    T_EXPECT_WARNINGS();
    start(2);
    cu_deviceptr plain;
    T_EQ(symm_cu.cuMemAlloc(&plain, 1 << 20), 0);
    T_OK(symmPut((void *)(uintptr_t)plain, 1 << 20, symmInt8, 1, wins[0], 0, comms[0], NULL));
    T_ERR(symmPut(comms, 8, symmInt8, 1, wins[0], 0, comms[0], NULL), symmInvalidArgument);
    T_MSG(symmGetLastError(NULL), "sendbuff=");
    T_ERR(symmGet(comms, 8, symmInt8, 1, wins[0], 0, comms[0], NULL), symmInvalidArgument);
    T_MSG(symmGetLastError(NULL), "recvbuff=");
    T_EQ(gk_last(0).count, 1);
    T_EQ(symm_cu.cuMemFree(plain), 0);
    finish(2);
}

static void streams_of_a_communicator_are_ordered(void) {
    start(2);
    symmStream_t a = gk_user(gk_stream(0)), b = gk_user(gk_stream(0));
    T_OK(put(0, 100, a));
    gk_calls before = gk_count();
    T_OK(symmSignal(1, 0, comms[0], b));
    GK_EXACTLY(&before, "cuLaunchKernelEx cuStreamGetCaptureInfo_v3 cuCtxGetCurrent "
                        "cuStreamGetCtx cuStreamBatchMemOp cuEventRecord");
    finish(2);
}

/* ---- counts ---------------------------------------------------------------------------------- */

/* What has come less what is used up, by two copies, whatever the streams do. */
static void counts_are_copied(void) {
    T_EXPECT_WARNINGS();
    uint64_t n = 9;
    char json[8192];
    start(2);
    ctl(0)->signals[1].raised[5] = (1ull << 40) + 3;
    ctl(0)->onesided.tally[1].used[5] = 1ull << 40;
    ctl(0)->signals[0].raised[63] = 4;
    T_OK(symmSignalRead(1, 5, comms[0], &n));
    T_EQ(n, 3);
    gk_calls before = gk_count();
    T_OK(symmSignalRead(1, 4, comms[0], &n));
    T_EQ(n, 0);
    gk_calls now = gk_count();
    for (int i = 0; fake_cuda_call_name(i); i++)
        T_CHECKF(now.n[i] == before.n[i] || strcmp(fake_cuda_call_name(i), "cuLaunchKernelEx"),
                 "a count was read by a kernel");
    T_OK(symmStats(comms[0], json, sizeof json, NULL));
    T_MSG(json, "\"signals_unused\":7}");
    fake_cuda_fail("cuMemcpyAsync", 2, 719);
    n = 9;
    T_ERR(symmSignalRead(1, 5, comms[0], &n), symmUnhandledCudaError);
    T_MSG(symmGetLastError(NULL), "reading signals of rank 1");
    T_EQ(n, 0);
    T_OK(symmSignalRead(0, 63, comms[0], &n));
    T_EQ(n, 4);
    finish(2);
}

/* A thread that has no context, and ranks whose GPU is not the process's first. */
static void *read_elsewhere(void *arg) {
    uint64_t n = 9;
    char json[8192];
    cu_context context = NULL;
    T_OK(symmSignalRead(0, 5, comms[1], &n));
    T_EQ(n, 3);
    T_OK(symmStats(comms[1], json, sizeof json, NULL));
    T_MSG(json, "\"signals_unused\":3}");
    T_EQ(symm_cu.cuCtxGetCurrent(&context), 0);
    T_CHECK(!context);
    return arg;
}
static void counts_are_read_by_any_thread(void) {
    static const int devices[] = {1, 2};
    pthread_t thread;
    gk_start(4, 0);
    gk_open(comms, 2, devices);
    ctl(1)->signals[0].raised[5] = 3;
    const uint64_t used = symm_cuda_in_use();
    T_EQ(pthread_create(&thread, NULL, read_elsewhere, NULL), 0);
    T_EQ(pthread_join(thread, NULL), 0);
    T_EQ(symm_cuda_in_use(), used);
    gk_close(comms, 2);
}

/* ---- captures -------------------------------------------------------------------------------- */

/* from: of the GPU, in a window or in none. */
static cu_graph captured(cu_stream s, const char *from) {
    cu_graph graph;
    const symmSignalWait_t w = {1, 3, 2};
    T_EQ(symm_cu.cuStreamBeginCapture(s, SYMM_CUDA_CAPTURE_MODE_THREAD_LOCAL), 0);
    T_OK(symmPutSignal(from, 9000, symmUint8, 1, wins[0], 16, 7, comms[0], gk_user(s)));
    T_OK(symmWaitSignal(1, &w, comms[0], gk_user(s)));
    T_EQ(symm_cu.cuStreamEndCapture(s, &graph), 0);
    return graph;
}

/* The graph has the calls by value, and holds window and communicator. */
static void a_graph_keeps_what_its_calls_need(void) {
    cu_graph_exec exec;
    start(2);
    cu_stream s = gk_stream(0);
    cu_graph graph = captured(s, mem);
    const int before = gk_last(0).count;
    T_EQ(symm_cu.cuGraphInstantiate(&exec, graph, 0), 0);
    T_EQ(symm_cu.cuGraphDestroy(graph), 0);
    T_OK(symmWindowDeregister(comms[0], wins[0]));
    gk_close(comms, 2);
    T_CHECK(SYMM_STAT_GET(windows) > 0 && SYMM_STAT_GET(comms) > 0);
    T_EQ(symm_cu.cuGraphLaunch(exec, s), 0);
    const gk_launch l = gk_last(0);
    T_EQ(l.count - before, 2);
    is_op(&l, 0, SYMM_ONESIDED_WAIT, 1, 3, 2);
    T_EQ(l.args.gpu.serial, 0);
    T_EQ(symm_cu.cuGraphExecDestroy(exec), 0);
    symm_gpu_reap();
    T_EQ(SYMM_STAT_GET(windows) + SYMM_STAT_GET(comms), 0);
    free_all(2);
}

static void a_communicator_that_pins_holds_the_windows(void) {
    cu_graph_exec exec;
    cu_deviceptr plain;
    setenv("SYMM_GRAPH_HOLD", "comm", 1);
    start(2);
    T_EQ(symm_cu.cuMemAlloc(&plain, 9000), 0);
    cu_graph graph = captured(gk_stream(0), (char *)(uintptr_t)plain);
    T_EQ(fake_cuda_calls("cuUserObjectCreate"), 0);
    T_EQ(symm_cu.cuGraphInstantiate(&exec, graph, 0), 0);
    T_EQ(symm_cu.cuGraphDestroy(graph), 0);
    T_OK(symmWindowDeregister(comms[0], wins[0]));
    T_EQ(SYMM_STAT_GET(windows), 2); /* held, as a replay may come */
    T_EQ(symm_cu.cuGraphExecDestroy(exec), 0);
    T_EQ(symm_cu.cuMemFree(plain), 0);
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
    T_ERR(put(0, 100, gk_user(s)), symmOutOfMemory);
    T_EQ(symm_fail_arm(""), 0);
    T_OK(put(0, 100, gk_user(s)));
    T_EQ(symm_cu.cuStreamEndCapture(s, &graph), 0);
    T_EQ(symm_cu.cuGraphDestroy(graph), 0);
    finish(2);
    symm_gpu_reap();
    T_EQ(SYMM_STAT_GET(windows) + SYMM_STAT_GET(comms), 0);
}

/* ---- refusals -------------------------------------------------------------------------------- */

static symmResult_t calls(cu_stream a, cu_stream b) {
    const symmResult_t r = put(0, 10000, gk_user(a));
    return r ? r : symmSignal(1, 4, comms[0], gk_user(b));
}

/* Calls of the driver refused, one after the other: told, and nothing is left. */
static void refuse(int capture) {
    enum { CODE = 719 };
    static const char *const names[] = {"cuLaunchKernelEx",       "cuStreamGetCaptureInfo_v3",
                                        "cuEventRecord",          "cuStreamWaitEvent",
                                        "cuStreamGetCtx",         "cuUserObjectCreate",
                                        "cuGraphRetainUserObject"};
    int met = 0;
    for (unsigned k = 0; k < sizeof names / sizeof *names; k++)
        for (int nth = 1, more = 1; more; nth++) {
            cu_graph graph = NULL;
            start(2);
            cu_stream a = gk_stream(0), b = gk_stream(0);
            T_OK(put(0, 64, gk_user(b)));
            if (capture)
                T_EQ(symm_cu.cuStreamBeginCapture(a, SYMM_CUDA_CAPTURE_MODE_THREAD_LOCAL), 0);
            fake_cuda_fail(names[k], nth, CODE);
            const symmResult_t r = calls(a, capture ? a : b);
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
    T_CHECK(met > 5);
}
static void every_call_of_the_driver_refused(void) {
    T_EXPECT_WARNINGS();
    refuse(0);
    refuse(1);
}

/* Thread ranks of one GPU on one stream would wait for each other. */
static void ranks_of_one_gpu_need_streams_of_their_own(void) {
    T_EXPECT_WARNINGS();
    const symmSignalWait_t w = {0, 3, 1};
    const int devices[] = {0, 0};
    gk_start(1, 0);
    gk_open(comms, 2, devices);
    T_OK(symm_cuda_set(0));
    symmStream_t a = gk_user(gk_stream(0)), b = gk_user(gk_stream(0));
    T_OK(symmSignal(1, 3, comms[0], a));
    T_ERR(symmWaitSignal(1, &w, comms[1], a), symmInvalidUsage);
    T_MSG(symmGetLastError(NULL),
          "was used last by rank 0, also a thread of this process on GPU 0");
    T_ERR(symmWaitSignal(1, &w, comms[1], NULL), symmInvalidUsage);
    T_OK(symmWaitSignal(1, &w, comms[1], b));
    gk_close(comms, 2);
}

T_MAIN(T(a_call_is_one_launch), T(nothing_is_put_to_a_rank_that_has_left), T(calls_without_data),
       T(a_list_of_waits), T(grids_grow_with_the_bytes), T(buffers_that_the_gpu_cannot_reach),
       T(streams_of_a_communicator_are_ordered), T(counts_are_copied),
       T(counts_are_read_by_any_thread), T(a_graph_keeps_what_its_calls_need),
       T(a_communicator_that_pins_holds_the_windows), T(without_memory_nothing_is_recorded),
       T_TIMEOUT(every_call_of_the_driver_refused, 120),
       T(ranks_of_one_gpu_need_streams_of_their_own))
