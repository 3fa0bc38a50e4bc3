/* gpu_graph.c - CUDA graphs and streams: capture in every mode, a thousand replays between eager
 * calls, forks and joins, windows that a graph keeps, the order between streams, other threads'
 * devices. Ranks are threads, each with its own streams; the chain (gpu_chain.h) says afterwards
 * whether each call ran once, in order. */
#include "host/gpu/gpu.h"
#include "gpu_chain.h"
#include "gpu_cases.h"

enum { WORDS = 200000, N = 2 };

static int rounds(int many) {
    return gk_number("GPU_FAKE", 0) ? many / 20 + 1 : many;
}

typedef struct {
    symmComm_t comm;
    cu_stream stream;
    char *buf; /* WORDS words, and as much again */
    symmWindow_t win;
    gk_chain chain;
} rig;

/* Registers unless a test wants loose memory. */
static rig set_up(gk_job *j, int rank, int registered) {
    rig g = {.comm = j->comms[rank]};
    T_OK(symmSetDevice(rank % j->devices));
    g.stream = gk_new_stream();
    T_OK(symmMemAlloc((void **)&g.buf, 2 * WORDS * 4));
    if (registered)
        T_OK(symmWindowRegister(g.comm, g.buf, 2 * WORDS * 4, &g.win, SYMM_WIN_DEFAULT));
    g.chain = gk_chain_new(g.comm, rank, j->n, symmUint32, g.buf, WORDS, g.stream);
    gk_meet(j);
    return g;
}

/* The communicator ends with its windows. */
static void tear_down(gk_job *j, rig *g) {
    gk_wait(g->comm, g->stream);
    gk_meet(j);
    gk_chain_free(&g->chain);
    T_OK(symmCommDestroy(g->comm));
    T_OK(symmMemFree(g->buf));
    CU(cuStreamDestroy(g->stream));
    gk_meet(j);
}

static void run(int n, t_rank_fn fn, int how) {
    gk_job j = {.devices = gk_begin(), .seed = ck_seed(), .how = how};
    j.n = n;
    gc_env_none();
    gk_run(&j, fn);
    gc_settle();
    T_EQ(SYMM_STAT_GET(windows), 0);
    T_EQ(SYMM_STAT_GET(comms), 0);
}

/* ---- many replays ---- */

static const uint64_t spans[][2] = {{0, 100}, {77, 20000}, {0, WORDS}, {1000, 3}, {50000, 65536}};
enum { SPANS = sizeof spans / sizeof *spans };

/* A call of each size, a barrier, and a gather of the first words. */
static gk_graph capture_all(gk_job *j, rig *g, int mode) {
    gk_meet(j);
    gk_capture(g->stream, mode);
    for (int i = 0; i < SPANS; i++) gk_chain_issue(&g->chain, spans[i][0], spans[i][1], g->stream);
    T_OK(symmBarrier(g->comm, gk_stream(g->stream)));
    T_OK(
        symmAllGather(g->buf, g->buf + WORDS * 4, 4096, symmUint32, g->comm, gk_stream(g->stream)));
    gk_meet(
        j); /* a capture in global mode forbids some calls to all threads: all end theirs first */
    gk_graph graph = {NULL, NULL};
    CU(cuStreamEndCapture(g->stream, &graph.graph));
    gk_meet(j);
    CU(cuGraphInstantiate(&graph.exec, graph.graph, 0));
    CU(cuGraphUpload(graph.exec, g->stream));
    CU(cuStreamSynchronize(g->stream));
    gk_meet(j);
    return graph;
}

static void replay_all(rig *g, const gk_graph *graph) {
    CU(cuGraphLaunch(graph->exec, g->stream));
    for (int i = 0; i < SPANS; i++) gk_chain_note(&g->chain, spans[i][0], spans[i][1], 1);
}

static void many_rank(int rank, int n, void *arg) {
    gk_job *j = arg;
    rig g = set_up(j, rank, j->seed & 1);
    gk_graph graph = capture_all(j, &g, j->how);
    for (int i = 0; i < rounds(1000); i++) {
        uint64_t count, at = gk_chain_range(&g.chain, ck_hash(j->seed, (uint64_t)i, 5), &count);
        if (i % 7 == 3) gk_chain_call(&g.chain, at, count, g.stream);
        replay_all(&g, &graph);
        if (i % 50 == 49) gk_wait(g.comm, g.stream);
    }
    for (int r = 0; r < n; r++)
        gk_chain_same(&g.chain, g.buf + WORDS * 4 + r * 16384, 0, 4096, 0, g.stream,
                      "a gathered part");
    gk_chain_check(&g.chain, g.stream);
    gk_meet(j);
    gk_drop(&graph);
    tear_down(j, &g);
}

static void a_thousand_replays_captured_in_global_mode(void) {
    run(N, many_rank, SYMM_CUDA_CAPTURE_MODE_GLOBAL);
}
static void a_thousand_replays_captured_in_thread_local_mode(void) {
    run(N, many_rank, SYMM_CUDA_CAPTURE_MODE_THREAD_LOCAL);
}
static void a_thousand_replays_captured_in_relaxed_mode(void) {
    run(3, many_rank, SYMM_CUDA_CAPTURE_MODE_RELAXED);
}

/* ---- fork and join ---- */

static void fork_rank(int rank, int n, void *arg) {
    gk_job *j = arg;
    rig g = set_up(j, rank, 1);
    cu_stream side = gk_new_stream();
    cu_event forked, joined;
    (void)n;
    CU(cuEventCreate(&forked, SYMM_CUDA_EVENT_DISABLE_TIMING));
    CU(cuEventCreate(&joined, SYMM_CUDA_EVENT_DISABLE_TIMING));
    gk_meet(j);
    gk_capture(g.stream, SYMM_CUDA_CAPTURE_MODE_THREAD_LOCAL);
    gk_chain_issue(&g.chain, 0, WORDS, g.stream);
    CU(cuEventRecord(forked, g.stream));
    CU(cuStreamWaitEvent(side, forked, 0));
    CU(cuMemcpyDtoDAsync((uintptr_t)(g.buf + WORDS * 4), (uintptr_t)g.buf, WORDS * 4, side));
    gk_chain_issue(&g.chain, 0, WORDS / 2, side);
    CU(cuEventRecord(joined, side));
    CU(cuStreamWaitEvent(g.stream, joined, 0));
    gk_chain_issue(&g.chain, 0, WORDS, g.stream);
    gk_graph graph = gk_captured(g.stream);
    gk_meet(j);
    for (int i = 0; i < rounds(200); i++) {
        gk_chain_call(&g.chain, (uint64_t)i, 500, i % 2 ? side : g.stream);
        if (i % 2) CU(cuEventRecord(joined, side));
        if (i % 2)
            CU(cuStreamWaitEvent(g.stream, joined,
                                 0)); /* a replay is ordered by whoever launches it */
        CU(cuGraphLaunch(graph.exec, g.stream));
        gk_chain_note(&g.chain, 0, WORDS, 2);
        gk_chain_note(&g.chain, 0, WORDS / 2, 1);
        gk_wait(g.comm, g.stream);
    }
    gk_chain_check(&g.chain, g.stream);
    gk_chain_same(&g.chain, g.buf + WORDS * 4, 0, WORDS / 2, -2, g.stream, "the copy, first half");
    gk_chain_same(&g.chain, g.buf + WORDS * 4 + WORDS * 2, WORDS / 2, WORDS / 2, -1, g.stream,
                  "the copy, second half");
    gk_meet(j);
    gk_drop(&graph);
    CU(cuEventDestroy(forked));
    CU(cuEventDestroy(joined));
    CU(cuStreamDestroy(side));
    tear_down(j, &g);
}

static void a_capture_forks_and_joins(void) {
    run(N, fork_rank, 0);
}

/* The streams part before the calls, so that nothing of the program's orders them: the library
 * does, as it does eager calls. */
static void apart_rank(int rank, int n, void *arg) {
    gk_job *j = arg;
    rig g = set_up(j, rank, 1);
    cu_stream side = gk_new_stream();
    cu_event event;
    (void)n;
    CU(cuEventCreate(&event, SYMM_CUDA_EVENT_DISABLE_TIMING));
    gk_meet(j);
    gk_capture(g.stream, SYMM_CUDA_CAPTURE_MODE_THREAD_LOCAL);
    CU(cuEventRecord(event, g.stream));
    CU(cuStreamWaitEvent(side, event, 0));
    for (int i = 0; i < 6; i++)
        gk_chain_issue(&g.chain, 0, i % 3 ? WORDS : WORDS / 2, i % 2 ? side : g.stream);
    CU(cuEventRecord(event, side));
    CU(cuStreamWaitEvent(g.stream, event, 0));
    gk_graph graph = gk_captured(g.stream);
    gk_meet(j);
    for (int i = 0; i < rounds(200); i++) {
        CU(cuGraphLaunch(graph.exec, g.stream));
        for (int k = 0; k < 6; k++) gk_chain_note(&g.chain, 0, k % 3 ? WORDS : WORDS / 2, 1);
        if (i % 20 == 19) gk_wait(g.comm, g.stream);
    }
    gk_chain_check(&g.chain, g.stream);
    gk_meet(j);
    gk_drop(&graph);
    CU(cuEventDestroy(event));
    CU(cuStreamDestroy(side));
    tear_down(j, &g);
}

static void captured_streams_that_part_keep_the_order(void) {
    run(N, apart_rank, 0);
}

/* ---- several graphs ---- */

static void several_rank(int rank, int n, void *arg) {
    enum { GRAPHS = 6 };
    gk_job *j = arg;
    rig g = set_up(j, rank, 1);
    gk_graph graph[GRAPHS];
    uint64_t at[GRAPHS], count[GRAPHS];
    (void)n;
    for (int k = 0; k < GRAPHS; k++) {
        at[k] = gk_chain_range(&g.chain, ck_hash(j->seed, (uint64_t)k, 6), &count[k]);
        gk_meet(j);
        gk_capture(g.stream, SYMM_CUDA_CAPTURE_MODE_THREAD_LOCAL);
        gk_chain_issue(&g.chain, at[k], count[k], g.stream);
        graph[k] = gk_captured(g.stream);
        gk_meet(j);
    }
    for (int i = 0; i < rounds(600); i++) {
        const int k = (int)(ck_hash(j->seed, (uint64_t)i, 8) % (GRAPHS + 1));
        if (k < GRAPHS) {
            CU(cuGraphLaunch(graph[k].exec, g.stream));
            gk_chain_note(&g.chain, at[k], count[k], 1);
        } else {
            gk_chain_call(&g.chain, at[0], count[0], g.stream);
        }
        if (i % 50 == 49) gk_wait(g.comm, g.stream);
    }
    gk_chain_check(&g.chain, g.stream);
    gk_meet(j);
    for (int k = 0; k < GRAPHS; k++) gk_drop(&graph[k]);
    tear_down(j, &g);
}

static void several_graphs_in_turn(void) {
    run(3, several_rank, 0);
}

/* ---- a scalar on the device ---- */

static void scalar_rank(int rank, int n, void *arg) {
    gk_job *j = arg;
    rig g = set_up(j, rank, 1);
    uint32_t *scalar = (uint32_t *)(void *)(g.buf + WORDS * 4),
             *host = (uint32_t *)(void *)gk_pinned(4096 * 4);
    uint32_t *out = scalar + 1024;
    symmRedOp_t op;
    T_OK(symmRedOpCreatePreMulSum(&op, scalar, symmUint32, symmScalarDevice, g.comm));
    gk_meet(j);
    gk_capture(g.stream, SYMM_CUDA_CAPTURE_MODE_THREAD_LOCAL);
    T_OK(symmAllReduce(g.buf, out, 4096, symmUint32, op, g.comm, gk_stream(g.stream)));
    gk_graph graph = gk_captured(g.stream);
    gk_meet(j);
    for (int i = 0; i < rounds(100); i++) {
        uint32_t sum = 0;
        for (int r = 0; r < n; r++) sum += (uint32_t)ck_hash(j->seed, (uint64_t)i, (uint64_t)r);
        host[0] = (uint32_t)ck_hash(j->seed, (uint64_t)i, (uint64_t)rank);
        gk_put(g.stream, scalar, host, 4);
        CU(cuGraphLaunch(graph.exec, g.stream));
        gk_get(g.comm, g.stream, host, out, 4096 * 4);
        for (uint32_t k = 0; k < 4096; k++) T_EQ(host[k], (uint32_t)gk_chain_first(k) * sum);
    }
    gk_meet(j);
    gk_drop(&graph);
    T_OK(symmRedOpDestroy(op, g.comm));
    gk_free_pinned((char *)host);
    tear_down(j, &g);
}

static void a_scalar_on_the_device_is_read_at_each_replay(void) {
    run(N, scalar_rank, 0);
}

/* ---- registration while a stream is captured ---- */

/* Refused or not, alike on all ranks; a refusal says that it is about a capture, and the capture is
 * what CUDA says it is: usable, or spoilt and to be ended. Afterwards everything works. */
static void register_rank(int rank, int n, void *arg) {
    gk_job *j = arg;
    rig g = set_up(j, rank, 1);
    symmWindow_t win = NULL;
    symmResult_t *all = j->shared, r;
    int status = -1;
    void *more;
    T_OK(symmMemAlloc(&more, 2 << 20));
    gk_meet(j);
    gk_capture(g.stream, j->how);
    gk_chain_issue(&g.chain, 0, WORDS, g.stream);
    all[rank] = r = symmWindowRegister(g.comm, more, 2 << 20, &win, SYMM_WIN_DEFAULT);
    const char *why = symmGetLastError(g.comm);
    if (r)
        T_CHECKF(strstr(why, "captur") || strstr(why, "CAPTUR"), "nothing of a capture: %s", why);
    CU(cuStreamIsCapturing(g.stream, &status));
    gk_meet(j);
    for (int p = 0; p < n; p++) T_EQ(all[p], r);
    fprintf(stderr, "registration inside a capture of mode %d: %s; the capture is %s\n", j->how,
            symmGetErrorString(r), status == SYMM_CUDA_CAPTURE_ACTIVE ? "as it was" : "spoilt");
    gk_graph graph = {NULL, NULL};
    cu_result cu = symm_cu.cuStreamEndCapture(g.stream, &graph.graph);
    gk_meet(j);
    T_EQ(cu, status == SYMM_CUDA_CAPTURE_ACTIVE ? 0 : SYMM_CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    if (r == symmSuccess) T_EQ(status, SYMM_CUDA_CAPTURE_ACTIVE);
    /* a first launch may wait for the GPU, where a peer's kernel may wait for this one */
    if (!cu) {
        CU(cuGraphInstantiate(&graph.exec, graph.graph, 0));
        CU(cuGraphUpload(graph.exec, g.stream));
        CU(cuStreamSynchronize(g.stream));
    }
    gk_meet(j);
    for (int i = 0; i < 10; i++) {
        if (!cu) CU(cuGraphLaunch(graph.exec, g.stream));
        gk_chain_note(&g.chain, 0, WORDS, !cu);
        gk_chain_call(&g.chain, 5, 5000, g.stream);
    }
    gk_chain_check(&g.chain, g.stream);
    gk_meet(j);
    if (!cu) gk_drop(&graph);
    if (!r) T_OK(symmWindowDeregister(g.comm, win));
    tear_down(j, &g);
    T_OK(symmMemFree(more));
}

static void registration_inside_a_capture(void) {
    symmResult_t all[N];
    T_EXPECT_WARNINGS();
    for (int mode = 0; mode < 3; mode++) {
        gk_job j = {.n = N, .devices = gk_begin(), .how = mode, .shared = all};
        gk_run(&j, register_rank);
        gc_settle();
    }
}

/* ---- what a graph keeps ---- */

/* The window is deregistered, its place asked for again by others, the communicator destroyed
 * before the graph. */
static void keeps_rank(int rank, int n, void *arg) {
    gk_job *j = arg;
    rig g = set_up(j, rank, 1);
    symmWindow_t other;
    char *more;
    (void)n;
    T_OK(symmMemAlloc((void **)&more, 8 << 20));
    gk_graph graph = capture_all(j, &g, SYMM_CUDA_CAPTURE_MODE_THREAD_LOCAL);
    const int64_t held = SYMM_STAT_GET(windows);
    gk_meet(j);
    T_OK(symmWindowDeregister(g.comm, g.win));
    gk_meet(j);
    T_EQ(SYMM_STAT_GET(windows), held); /* the graphs have them */
    gk_meet(j);
    for (int i = 0; i < rounds(40); i++) {
        gk_meet(j);
        T_OK(symmWindowRegister(g.comm, more, (1 + (uint64_t)i % 4) << 21, &other,
                                SYMM_WIN_DEFAULT));
        gk_meet(j);
        replay_all(&g, &graph);
        gk_chain_call(&g.chain, 0, 30000, g.stream); /* no longer registered */
        gk_wait(g.comm, g.stream);
        T_OK(symmWindowDeregister(g.comm, other));
    }
    gk_chain_check(&g.chain, g.stream);
    gk_meet(j);
    if (rank % 2) gk_drop(&graph);
    gk_chain_free(&g.chain);
    T_OK(symmCommDestroy(g.comm));
    gk_meet(j);
    if (rank % 2 == 0) {
        T_CHECK(SYMM_STAT_GET(comms) > 0); /* this graph has one */
        gk_drop(&graph);
    }
    gk_meet(j);
    T_OK(symmMemFree(g.buf));
    T_OK(symmMemFree(more));
    CU(cuStreamDestroy(g.stream));
}

static void a_graph_keeps_its_windows_and_communicator(void) {
    run(N, keeps_rank, 0);
    run(3, keeps_rank, 0);
}

T_MAIN(T(a_thousand_replays_captured_in_global_mode),
       T(a_thousand_replays_captured_in_thread_local_mode),
       T(a_thousand_replays_captured_in_relaxed_mode), T(a_capture_forks_and_joins),
       T(captured_streams_that_part_keep_the_order), T(several_graphs_in_turn),
       T(a_scalar_on_the_device_is_read_at_each_replay), T(registration_inside_a_capture),
       T(a_graph_keeps_its_windows_and_communicator))
