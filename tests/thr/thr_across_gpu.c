/* thr_across_gpu.c - communicators of GPUs over several domains, with ranks as threads, on the fake
 * CUDA driver with kernels that move bytes (fake_kernels.h), an NCCL of the test's own
 * (nccl_threads.h) and a mover between threads: the matrix over ag_layouts of ranks, order over
 * streams and in graphs, messages, children; what fails at creation or in a call, on one rank, and
 * what the others hear of it. Each rank's thread uses its own communicator. */
#include "across_gpu_kit.h"

/* ---- what works ------------------------------------------------------------------------------ */

static void matrix_rank(int rank, int n, void *arg) {
    ag_job *b = arg;
    const gc_rank g = ag_rank_of(b, rank);
    (void)n;
    ga_matrix(&g, ag_open_rank(b, rank), ck_full() ? 100 : CK_SLOW ? 12 : 36);
}
static void matrix(void) {
    const uint64_t seed = ck_seed();
    printf("# T_SEED=%llu\n", (unsigned long long)seed);
    /* Under ThreadSanitizer two of them: what threads share does not depend on the layout. */
    for (int i = CK_SLOW ? 1 : 0; i < AG_LAYOUTS; i += CK_SLOW ? 3 : 1) {
        ag_begin(i % 2 * 3);
        ag_job b = ag_new_job(ag_layouts[i]);
        b.j.seed = ck_hash(seed, (uint64_t)i, 17);
        T_THREADS(b.j.n, matrix_rank, &b);
        T_CHECK(nn.messages > 0 && b.j.hub->messages == 0); /* NCCL carries all of it */
        ag_end_job(&b);
    }
}

static void large_rank(const gc_rank *g, symmComm_t comm) {
    ga_large(g, comm, 100003);
}
static void several_steps_in_place(void) {
    ag_each_layout(large_rank);
}
static void streams_rank(const gc_rank *g, symmComm_t comm) {
    ga_streams(g, comm, 3);
}
static void two_streams_eager_and_captured(void) {
    ag_each_layout(streams_rank);
}
static void messages_rank(const gc_rank *g, symmComm_t comm) {
    ga_messages(g, comm, 200 << 10);
}
static void sends_receives_groups(void) {
    ag_each_layout(messages_rank);
}
static void split(void) {
    ag_each_layout(ga_split);
}
static void shrink(void) {
    T_EXPECT_WARNINGS();
    ag_each_layout(ga_shrink);
}
static void windows(void) {
    ag_each_layout(ga_window);
}

/* Captures on two streams in turn: each keeps its own order. A small sum ends in a join, of which
 * the inner communicator knows nothing: so at each change of stream both wait. The fake driver runs
 * a graph's nodes one by one, so what they wait for is counted. */
static void captures_rank(const gc_rank *g, symmComm_t comm) {
    enum { COUNT = 500, CHANGES = 2 * 3 };
    ga_memory m[2] = {ga_memory_new(5 * COUNT), ga_memory_new(5 * COUNT)};
    cu_stream side[2] = {gk_new_stream(), gk_new_stream()};
    gk_graph graph[2];
    gc_meet(g);
    for (int i = 0; i < 2; i++) {
        gk_capture(m[i].stream, SYMM_CUDA_CAPTURE_MODE_THREAD_LOCAL);
        ga_order(m[i].stream, side[i]);
    }
    const int waits = fake_cuda_calls_at(g->rank % g->devices, "cuStreamWaitEvent");
    for (int k = 0; k < 4; k++)
        for (int i = 0; i < 2; i++)
            T_OK(symmAllReduce(m[i].device + k * COUNT, m[i].device + (k + 1) * COUNT, COUNT,
                               symmInt32, symmSum, comm, gk_stream(k % 2 ? side[i] : m[i].stream)));
    T_EQ(fake_cuda_calls_at(g->rank % g->devices, "cuStreamWaitEvent") - waits, 2 * CHANGES);
    for (int i = 0; i < 2; i++) {
        ga_order(side[i], m[i].stream);
        graph[i] = gk_captured(m[i].stream);
    }
    gc_meet(g);
    for (int round = 1; round < 4; round++)
        for (int i = 0; i < 2; i++) {
            ga_chain_fill(g, &m[i], COUNT, round + i);
            CU(cuGraphLaunch(graph[i].exec, m[i].stream));
            ga_chain_check(g, comm, &m[i], side[i], COUNT, round + i);
        }
    gc_meet(g);
    for (int i = 0; i < 2; i++) {
        gk_drop(&graph[i]);
        CU(cuStreamDestroy(side[i]));
        ga_memory_free(&m[i]);
    }
}
static void two_captures_in_turn(void) {
    ag_each_layout(captures_rank);
}

/* A captured gather copies what it sends and gets through memory of its own, unless no rank's NCCL
 * registers memory. */
static _Atomic int copies;
static void captured_rank(const gc_rank *g, symmComm_t comm) {
    enum { COUNT = 50000 };
    ga_memory m = ga_memory_new((1 + (size_t)g->n) * COUNT);
    int *all = m.device + COUNT;
    gc_meet(g);
    for (int i = 0; i < COUNT; i++) m.host[i] = g->rank * COUNT + i;
    gk_put(m.stream, m.device, m.host, COUNT * sizeof *m.host);
    gk_capture(m.stream, SYMM_CUDA_CAPTURE_MODE_THREAD_LOCAL);
    const int before = fake_cuda_calls_at(g->rank % g->devices, "cuMemcpyAsync");
    T_OK(symmAllGather(m.device, all, COUNT, symmInt32, comm, gk_stream(m.stream)));
    copies += fake_cuda_calls_at(g->rank % g->devices, "cuMemcpyAsync") - before;
    gk_graph graph = gk_captured(m.stream);
    CU(cuGraphLaunch(graph.exec, m.stream));
    gk_get(comm, m.stream, m.host, all, (size_t)g->n * COUNT * sizeof *m.host);
    for (int i = 0; i < g->n * COUNT; i++) T_EQ(m.host[i], i);
    gc_meet(g);
    gk_drop(&graph);
    ga_memory_free(&m);
}
static void captured_messages_are_of_one_kind_of_memory(void) {
    static const char *const said[] = {"1", "0", NULL};
    for (int i = 0; i < 3; i++) {
        if (said[i]) setenv("NCCL_GRAPH_REGISTER", said[i], 1);
        if (!said[i]) unsetenv("NCCL_GRAPH_REGISTER");
        ag_begin(0);
        setenv("NCCL_GRAPH_REGISTER", i == 1 ? "1" : "0", 1); /* read when NCCL is found */
        nn.direct = i == 1;
        ag_job b = ag_new_job("ab");
        copies = 0;
        b.fn = captured_rank;
        T_THREADS(b.j.n, ag_with_comm, &b);
        ag_end_job(&b);
        /* of each rank: 200,000 bytes out and in, by slots of 24 KB */
        T_EQ(copies, i == 1 ? 0 : 2 * 2 * 9);
        nn.direct = 0;
    }
}

/* ---- creation -------------------------------------------------------------------------------- */

/* What goes wrong on one rank alone; the others have the same code, and a text that says
 * `told`. */
typedef struct {
    const char *call, *point, *cuda;
    int nth, version;
    symmResult_t want;
    const char *told;
} wrong;
static const wrong wrongs[] = {
    {.point = "nccl_find:error", .want = symmNotSupported, .told = "need NCCL"},
    {.point = "across_gpu_alloc:error", .want = symmOutOfMemory, .told = "no memory"},
    {.point = "across_gpu_pending:error", .want = symmOutOfMemory, .told = "no memory"},
    {.version = 22900, .want = symmVersionMismatch, .told = "NCCL version 22900, rank 0 has 23200"},
    {.call = "ncclGetVersion", .nth = 1, .want = symmSystemError, .told = "ncclGetVersion failed"},
    {.call = "ncclCommInitRankConfig",
     .nth = 1,
     .want = symmSystemError,
     .told = "ncclCommInitRankConfig failed"},
    {.call = "ncclCommGetAsyncError",
     .nth = 1,
     .want = symmSystemError,
     .told = "ncclCommGetAsyncError failed"},
    {.call = "ncclGroupStart", .nth = 1, .want = symmSystemError, .told = "ncclGroupStart failed"},
    {.call = "ncclSend", .nth = 1, .want = symmSystemError, .told = "ncclSend failed"},
    {.call = "ncclRecv", .nth = 1, .want = symmSystemError, .told = "ncclRecv failed"},
    {.call = "ncclGroupEnd", .nth = 1, .want = symmSystemError, .told = "ncclGroupEnd failed"},
    {.cuda = "cuMemAlloc", .nth = 1, .want = symmOutOfMemory, .told = "to stage calls"},
    {.cuda = "cuEventCreate", .nth = 1, .want = symmOutOfMemory, .told = "to stage calls"},
};
enum { WRONGS = sizeof wrongs / sizeof *wrongs };

static void creation_rank(int rank, int n, void *arg) {
    ag_job *b = arg;
    const wrong *w = &wrongs[b->j.mode];
    const int odd = rank == n - 1;
    T_OK(symmSetDevice(rank % AG_GPUS));
    ag_meet(b);
    if (odd && w->point) T_EQ(symm_fail_arm(w->point), 0); /* whichever rank is there first */
    if (odd && w->call) nn_fail(w->call, w->nth);
    if (odd && w->cuda) fake_cuda_fail_at(rank % AG_GPUS, w->cuda, w->nth, 2);
    nn_version = odd && w->version ? w->version : NN_VERSION;
    ag_meet(b);
    T_EQ(ak_open(&b->j, rank, symmSuccess, w->want) == NULL, 1);
    T_MSG(symmGetLastError(NULL), w->told);
    ag_meet(b);
    if (odd && w->point) T_EQ(symm_fail_arm(""), 0);
    fake_cuda_fail_at(-1, "cuMemAlloc", 0, 0);
}

static void one_rank_fails_at_creation(void) {
    T_EXPECT_WARNINGS();
    for (int i = 0; i < WRONGS; i++)
        for (int layout = 0; layout < 2; layout++) {
            ag_begin(0);
            ag_job b = ag_new_job(ag_layouts[layout]);
            b.j.mode = i;
            T_THREADS(b.j.n, creation_rank, &b);
            ag_end_job(&b);
        }
}

/* A rank that never comes: NCCL itself would wait for ever. mode 0: the deadline is the variable's;
 * 1: the config's, which the communicators of the domains were made with. */
static void absent_rank(int rank, int n, void *arg) {
    ag_job *b = arg;
    symmConfig_t config = SYMM_CONFIG_INITIALIZER;
    symmComm_t comm, made;
    T_OK(symmSetDevice(rank % AG_GPUS));
    config.timeoutMs = 300;
    if (b->j.mode == 1) {
        T_OK(symmCommSplit(b->j.inner[rank], 0, 0, &made, &config));
        T_OK(symmCommDestroy(b->j.inner[rank]));
        b->j.inner[rank] = made;
    }
    if (rank == n - 1) nn.slow = 1 << 30;
    ag_meet(b);
    comm = ak_open(&b->j, rank, symmSuccess, symmTimeout);
    T_CHECK(!comm);
    T_MSG(symmGetLastError(NULL), "has not ended within 300 ms");
}
static void creation_has_a_deadline(void) {
    T_EXPECT_WARNINGS();
    for (int mode = 0; mode < 2; mode++) {
        ag_begin(0);
        setenv("SYMM_SETUP_TIMEOUT", mode ? "20000" : "300", 1);
        ag_job b = ag_new_job("aab");
        b.j.mode = mode;
        T_THREADS(b.j.n, absent_rank, &b);
        ag_end_job(&b);
    }
}

/* ---- in a call ------------------------------------------------------------------------------- */

/* What is refused leaves the communicator as it was. */
static void refused_rank(const gc_rank *g, symmComm_t comm) {
    gk_bench m = gk_bench_new();
    cu_stream b = gk_new_stream();
    int x = 1, *nowhere = &x;
    gc_meet(g);
    T_ERR(symmAllReduce(nowhere, m.device, 1, symmInt32, symmSum, comm, gk_stream(m.stream)),
          symmInvalidArgument);
    T_MSG(symmGetLastError(NULL), "sendbuff");
    T_ERR(symmAllReduce(m.device, nowhere, 1, symmInt32, symmSum, comm, gk_stream(m.stream)),
          symmInvalidArgument);
    T_MSG(symmGetLastError(NULL), "recvbuff");
    T_ERR(symmSend(nowhere, 1, symmInt32, (g->rank + 1) % g->n, comm, gk_stream(m.stream)),
          symmInvalidArgument);
    T_MSG(symmGetLastError(NULL), "sendbuff");
    T_ERR(symmRecv(nowhere, 1, symmInt32, (g->rank + 1) % g->n, comm, gk_stream(m.stream)),
          symmInvalidArgument);
    T_MSG(symmGetLastError(NULL), "recvbuff");
    gk_works(comm, g->rank, g->n, &m);
    gc_meet(g);
    CU(cuStreamDestroy(b));
    gk_bench_free(&m);
}
static void wrong_buffers(void) {
    T_EXPECT_WARNINGS();
    ag_each_layout(refused_rank);
}

static void round_the_ring(const gc_rank *g, symmComm_t comm, int *x, cu_stream out, cu_stream in) {
    const int next = (g->rank + 1) % g->n, before = (g->rank + g->n - 1) % g->n;
    T_OK(symmGroupStart());
    T_OK(symmSend(x, 1, symmInt32, next, comm, gk_stream(out)));
    T_OK(symmRecv(x + 1, 1, symmInt32, before, comm, gk_stream(in)));
    T_OK(symmGroupEnd());
}
/* The group comes behind what each stream has, and before what each is given next. */
static void mixed_rank(const gc_rank *g, symmComm_t comm) {
    enum { TURNS = 10 };
    gk_bench m = gk_bench_new();
    cu_stream b = gk_new_stream();
    const int before = (g->rank + g->n - 1) % g->n;
    gc_meet(g);
    for (int turn = 0; turn < TURNS; turn++) {
        int mine = 100 * turn + g->rank, got = -1, old = -2;
        cu_stream out = turn % 2 ? b : m.stream, in = turn % 2 ? m.stream : b;
        gk_delay(out, 300);
        gk_put(out, (char *)m.device, (char *)&mine, sizeof mine);
        gk_put(in, (char *)(m.device + 1), (char *)&old, sizeof old);
        round_the_ring(g, comm, m.device, out, in);
        gk_get(comm, in, (char *)&got, (char *)(m.device + 1), sizeof got);
        T_EQ(got, 100 * turn + before);
        CU(cuStreamSynchronize(out));
    }
    /* Only one is captured: nothing has run, and the communicator goes on. */
    gk_capture(b, SYMM_CUDA_CAPTURE_MODE_THREAD_LOCAL);
    T_OK(symmGroupStart());
    T_OK(symmSend(m.device, 1, symmInt32, before, comm, gk_stream(b)));
    T_OK(symmRecv(m.device + 1, 1, symmInt32, before, comm, gk_stream(m.stream)));
    T_ERR(symmGroupEnd(), symmInvalidUsage);
    T_MSG(symmGetLastError(NULL), "not recorded into the same capture");
    gk_graph graph = gk_captured(b);
    gk_drop(&graph);
    gc_meet(g);
    round_the_ring(g, comm, m.device, m.stream, m.stream);
    gk_wait(comm, m.stream);
    gc_meet(g);
    CU(cuStreamDestroy(b));
    gk_bench_free(&m);
}
static void messages_of_a_group_on_two_streams(void) {
    T_EXPECT_WARNINGS();
    ag_each_layout(mixed_rank);
}

/* The bits of one domain. */
static void sums_in_rank_order(void) {
    setenv("SYMM_DETERMINISTIC", "1", 1);
    for (int i = CK_SLOW ? 1 : 0; i < AG_LAYOUTS; i += CK_SLOW ? 3 : 1) {
        ag_begin(i % 2 * 3);
        ag_job b = ag_new_job(ag_layouts[i]);
        b.j.seed = ck_hash(ck_seed(), (uint64_t)i, 18);
        ck_domains = 0;
        T_THREADS(b.j.n, matrix_rank, &b);
        ag_end_job(&b);
    }
    ag_each_layout(large_rank);
    unsetenv("SYMM_DETERMINISTIC");
}

T_MAIN(T_TIMEOUT(matrix, 120), T(several_steps_in_place), T(two_streams_eager_and_captured),
       T(sends_receives_groups), T(split), T(shrink), T(windows), T(two_captures_in_turn),
       T(captured_messages_are_of_one_kind_of_memory), T(one_rank_fails_at_creation),
       T(creation_has_a_deadline), T(wrong_buffers), T(messages_of_a_group_on_two_streams),
       T_TIMEOUT(sums_in_rank_order, 120))
