/* thr_across_gpu_end.c - how communicators of GPUs over several domains end and fail, with ranks as
 * threads, on the fake CUDA driver: what ends one ends all; ends that wait for calls, hear of
 * others meanwhile and do not wait for graphs; failures that only another thread can tell, or that
 * meet a capture. Each rank's thread uses its own communicator. */
#include "across_gpu_kit.h"

/* Of all ranks, in one layout or in the first `layouts`. mode: for fn. */
static void each_mode(int modes, int layouts, void (*fn)(int rank, int n, void *arg)) {
    T_EXPECT_WARNINGS();
    for (int mode = 0; mode < modes; mode++)
        for (int i = 0; i < layouts; i++) {
            ag_begin(0);
            ag_job b = ag_new_job(ag_layouts[i]);
            b.j.mode = mode;
            T_THREADS(b.j.n, fn, &b);
            ag_end_job(&b);
        }
}

static symmResult_t sum(symmComm_t comm, const ga_memory *m, size_t count) {
    return symmAllReduce(m->device, m->device, count, symmInt32, symmSum, comm,
                         gk_stream(m->stream));
}
static gk_graph captured_sum(symmComm_t comm, const ga_memory *m, size_t count) {
    gk_capture(m->stream, SYMM_CUDA_CAPTURE_MODE_THREAD_LOCAL);
    T_OK(sum(comm, m, count));
    return gk_captured(m->stream);
}

/* ---- what ends one ends all ------------------------------------------------------------------ */

/* mode 0 to 3: NCCL refuses a call of the last rank; 4: it finds an error later; 5: that rank
 * revokes; 6: it aborts. What the others have given to their streams ends, and they hear why. */
static const char *const refused[] = {"ncclGroupStart", "ncclSend", "ncclRecv", "ncclGroupEnd"};

static void over_rank(int rank, int n, void *arg) {
    ag_job *b = arg;
    const gc_rank g = ag_rank_of(b, rank);
    const int odd = rank == n - 1, mode = b->j.mode;
    symmComm_t comm = ag_open_rank(b, rank);
    gk_bench m = gk_bench_new();
    gc_meet(&g);
    gk_works(comm, rank, n, &m);
    gc_meet(&g);
    symmResult_t r = symmSuccess;
    if (odd && mode < 4) nn_fail(refused[mode], 1);
    if (odd && mode == 4) {
        for (nccl_comm c = nn.comms; c; c = c->next)
            if (c->rank == rank) c->async = NN_ERROR;
    } else if (odd && mode == 5) {
        T_OK(symmCommRevoke(comm, 0));
    } else if (odd && mode == 6) {
        T_OK(symmCommAbort(comm));
    } else {
        r = symmAllReduce(m.device, m.device, 50000, symmInt32, symmSum, comm, gk_stream(m.stream));
    }
    if (odd && mode < 4) T_EQ(r, symmSystemError);
    if (odd && mode < 4) T_MSG(symmGetLastError(NULL), refused[mode]);
    if (!odd || mode != 6) T_EQ(ag_until_over(comm), mode < 5 ? symmSystemError : symmAborted);
    (void)gk_wait_code(NULL, m.stream);
    if (!odd || mode != 6)
        T_CHECK(symmAllReduce(m.device, m.device, 1, symmInt32, symmSum, comm,
                              gk_stream(m.stream)) != symmSuccess);
    gc_meet(&g);
    if (!odd || mode != 6) T_OK(symmCommDestroy(comm));
    gc_meet(&g);
    gk_bench_free(&m);
}

static void what_ends_one_ends_all(void) {
    each_mode(7, 2, over_rank);
}

/* The first rank registers a window, and the other one does not come. What that one hears is no
 * word of a domain: it was said by the mover's exchange. */
static void alone_rank(int rank, int n, void *arg) {
    ag_job *b = arg;
    const gc_rank g = ag_rank_of(b, rank);
    symmComm_t comm = ag_open_rank(b, rank);
    symmWindow_t win = NULL;
    char *memory;
    T_EQ(n, 2);
    T_OK(symmMemAlloc((void **)&memory, 4096));
    gc_meet(&g);
    if (rank == 0) T_ERR(symmWindowRegister(comm, memory, 4096, &win, 0), symmTimeout);
    if (rank == 1) T_EQ(ag_until_over(comm), symmTimeout);
    if (rank == 1) T_MSG(symmGetLastError(NULL), "another rank says: ");
    gc_meet(&g);
    T_OK(symmCommDestroy(comm));
    gc_meet(&g);
    T_OK(symmMemFree(memory));
}
static void an_exchange_that_fails(void) {
    T_EXPECT_WARNINGS();
    ag_begin(0);
    setenv("SYMM_SETUP_TIMEOUT", "500", 1);
    ag_job b = ag_new_job("ab");
    T_THREADS(b.j.n, alone_rank, &b);
    ag_end_job(&b);
}

/* ---- ends ------------------------------------------------------------------------------------ */

/* What was given to a stream before has its stage until it has ended. A small sum ends in a join,
 * of which the inner communicator knows nothing. */
static void late_rank(int rank, int n, void *arg) {
    ag_job *b = arg;
    const gc_rank g = ag_rank_of(b, rank);
    symmComm_t comm = ag_open_rank(b, rank);
    ga_memory m = ga_memory_new(1000);
    gc_meet(&g);
    for (size_t i = 0; i < m.count; i++) m.host[i] = rank + (int)i;
    gk_put(m.stream, m.device, m.host, m.count * sizeof *m.host);
    if (rank == 0) gk_delay(m.stream, 50000);
    T_OK(symmAllReduce(m.device, m.device, m.count, symmInt32, symmSum, comm, gk_stream(m.stream)));
    T_OK(symmCommDestroy(comm));
    gk_get(NULL, m.stream, m.host, m.device, m.count * sizeof *m.host);
    for (size_t i = 0; i < m.count; i++) T_EQ(m.host[i], n * (n - 1) / 2 + n * (int)i);
    gc_meet(&g);
    ga_memory_free(&m);
}
static void destruction_waits_for_calls(void) {
    each_mode(1, AG_LAYOUTS, late_rank);
}

/* The same for Finalize: all wait for the first rank, which is late. mode 1: in a graph. */
enum { LATE_MS = 50 };
static void finalized_rank(int rank, int n, void *arg) {
    ag_job *b = arg;
    const gc_rank g = ag_rank_of(b, rank);
    symmComm_t comm = ag_open_rank(b, rank);
    ga_memory m = ga_memory_new(1000);
    gk_graph graph = {NULL, NULL};
    (void)n;
    gc_meet(&g);
    if (b->j.mode) graph = captured_sum(comm, &m, 1000);
    const uint64_t since = symm_now_ns(); /* of every rank before the first one begins */
    gc_meet(&g);
    if (rank == 0) gk_delay(m.stream, 1000 * LATE_MS);
    if (b->j.mode)
        CU(cuGraphLaunch(graph.exec, m.stream));
    else
        T_OK(sum(comm, &m, 1000));
    T_OK(symmCommFinalize(comm));
    T_CHECK(gk_ms_since(since) >= LATE_MS);
    gc_meet(&g);
    if (b->j.mode) gk_drop(&graph);
    T_OK(symmCommDestroy(comm));
    gc_meet(&g);
    ga_memory_free(&m);
}
static void finalisation_waits_for_calls(void) {
    each_mode(2, AG_LAYOUTS, finalized_rank);
}

/* The last rank does not make the call, and revokes a little later. mode 0, 1: the others are in
 * Destroy by then, 2, 3 in Finalize; 1, 3: with a graph. */
static void hearing_rank(int rank, int n, void *arg) {
    ag_job *b = arg;
    const gc_rank g = ag_rank_of(b, rank);
    const int odd = rank == n - 1, graphs = b->j.mode & 1, finalizes = b->j.mode >> 1;
    symmComm_t comm = ag_open_rank(b, rank);
    ga_memory m = ga_memory_new(50000);
    gk_graph graph = {NULL, NULL};
    gc_meet(&g);
    if (graphs) graph = captured_sum(comm, &m, 50000);
    gc_meet(&g);
    if (!odd && graphs) CU(cuGraphLaunch(graph.exec, m.stream));
    if (!odd && !graphs) T_OK(sum(comm, &m, 50000));
    gc_meet(&g);
    if (odd) {
        usleep(50000);
        T_OK(symmCommRevoke(comm, 0));
    }
    if (!odd && finalizes) T_ERR(symmCommFinalize(comm), symmAborted);
    T_OK(symmCommDestroy(comm));
    (void)gk_wait_code(NULL, m.stream);
    gc_meet(&g);
    if (graphs) gk_drop(&graph);
    ga_memory_free(&m);
}
static void ends_hear_of_others(void) {
    each_mode(4, 2, hearing_rank);
}

/* NCCL's end waits for graphs, which the program destroys later. mode 0: Destroy; 1: Abort; 2: the
 * last rank's next call fails; 3: no thread to be had for the wait. */
static void graph_rank(int rank, int n, void *arg) {
    ag_job *b = arg;
    const gc_rank g = ag_rank_of(b, rank);
    const int mode = b->j.mode;
    symmComm_t comm = ag_open_rank(b, rank);
    ga_memory m = ga_memory_new(50000);
    gc_meet(&g);
    gk_graph graph = captured_sum(comm, &m, 50000);
    CU(cuGraphLaunch(graph.exec, m.stream));
    gk_wait(comm, m.stream);
    gc_meet(&g);
    if (mode == 2) {
        if (rank == n - 1) nn_fail("ncclSend", 1);
        (void)sum(comm, &m, 50000);
        T_EQ(ag_until_over(comm), symmSystemError);
        (void)gk_wait_code(NULL, m.stream);
        gc_meet(&g);
    }
    if (mode == 3) T_EQ(symm_fail_arm("across_gpu_drain:error"), 0); /* whichever rank is first */
    gc_meet(&g);
    T_OK(mode == 1 ? symmCommAbort(comm) : symmCommDestroy(comm));
    gc_meet(&g);
    if (mode == 3) T_EQ(symm_fail_arm(""), 0);
    gk_drop(&graph);
    gc_meet(&g);
    ga_memory_free(&m);
}
static void ends_do_not_wait_for_graphs(void) {
    each_mode(4, 2, graph_rank);
}

/* ---- failures -------------------------------------------------------------------------------- */

/* The last rank fails in a thread that may not use the mover. The others hear of it when one may.
 * mode 0: by the rank's next call, 1: when it asks, 2: revokes, 3: destroys. */
static void untold_rank(int rank, int n, void *arg) {
    ag_job *b = arg;
    const gc_rank g = ag_rank_of(b, rank);
    const int odd = rank == n - 1, mode = b->j.mode;
    symmComm_t comm = ag_open_rank(b, rank);
    ga_memory m = ga_memory_new(50000);
    symmResult_t async;
    gc_meet(&g);
    nt_barred = odd;
    if (odd) nn_fail("ncclSend", 1);
    T_EQ(sum(comm, &m, 50000), odd ? symmSystemError : symmSuccess);
    gc_meet(&g);
    for (int i = 0; i < 20 && !odd; i++, usleep(500)) {
        T_OK(symmCommGetAsyncError(comm, &async));
        T_EQ(async, symmSuccess);
    }
    gc_meet(&g);
    nt_barred = 0;
    if (odd && mode == 0) T_ERR(sum(comm, &m, 50000), symmSystemError);
    if (odd && mode == 0) T_MSG(symmGetLastError(NULL), "ncclSend failed");
    if (odd && mode == 1) T_EQ(ag_until_over(comm), symmSystemError);
    if (odd && mode == 2) T_OK(symmCommRevoke(comm, 0));
    if (odd && mode == 3) T_OK(symmCommDestroy(comm));
    if (!odd) T_EQ(ag_until_over(comm), symmSystemError);
    (void)gk_wait_code(NULL, m.stream);
    gc_meet(&g);
    if (!odd || mode != 3) T_OK(symmCommDestroy(comm));
    gc_meet(&g);
    ga_memory_free(&m);
}
static void what_one_thread_cannot_tell_another_does(void) {
    T_EXPECT_WARNINGS();
    for (int mode = 0; mode < 4; mode++)
        for (int two = 0; two < 2; two++) {
            ag_begin(0);
            ag_job b = ag_new_job(two ? "aab" : "ab"); /* nobody hears of it inside */
            b.j.mode = mode;
            T_THREADS(b.j.n, untold_rank, &b);
            ag_end_job(&b);
        }
}

/* NCCL refuses the second group of the last rank's captured call: the communicator is over, and
 * NCCL's end waits for the graph with the first group. */
static void capturing_rank(int rank, int n, void *arg) {
    ag_job *b = arg;
    const gc_rank g = ag_rank_of(b, rank);
    const int odd = rank == n - 1;
    symmComm_t comm = ag_open_rank(b, rank);
    ga_memory m = ga_memory_new(50000);
    cu_graph graph;
    gc_meet(&g);
    if (odd) nn_fail("ncclGroupEnd", 2);
    gk_capture(m.stream, SYMM_CUDA_CAPTURE_MODE_THREAD_LOCAL);
    const symmResult_t r = sum(comm, &m, 50000); /* the others may have heard by then */
    T_CHECK(r == symmSystemError || (!odd && r == symmSuccess));
    gc_meet(&g);
    T_EQ(ag_until_over(comm), symmSystemError);
    (void)symm_cu.cuStreamEndCapture(m.stream, &graph);
    if (graph) CU(cuGraphDestroy(graph));
    gc_meet(&g);
    T_OK(symmCommDestroy(comm));
    gc_meet(&g);
    ga_memory_free(&m);
}
static void a_captured_call_that_nccl_refuses(void) {
    each_mode(1, 2, capturing_rank);
}

/* The first rank hears that the last one has revoked while NCCL connects them for a captured call.
 * It is said once. */
static void connecting_rank(int rank, int n, void *arg) {
    ag_job *b = arg;
    const gc_rank g = ag_rank_of(b, rank);
    symmComm_t comm = ag_open_rank(b, rank);
    ga_memory m = ga_memory_new(50000);
    cu_graph graph;
    gc_meet(&g);
    if (rank == 0) nn.slow = 1 << 30; /* nobody else calls */
    gc_meet(&g);
    if (rank == n - 1) {
        usleep(50000);
        T_OK(symmCommRevoke(comm, 0));
    } else {
        gk_capture(m.stream, SYMM_CUDA_CAPTURE_MODE_THREAD_LOCAL);
        T_ERR(sum(comm, &m, 50000), symmAborted);
        T_MSG(symmGetLastError(NULL), "domain 1 says");
        T_EQ(ag_until_over(comm), symmAborted);
        (void)symm_cu.cuStreamEndCapture(m.stream, &graph);
        if (graph) CU(cuGraphDestroy(graph));
    }
    gc_meet(&g);
    T_OK(symmCommDestroy(comm));
    gc_meet(&g);
    ga_memory_free(&m);
}
static void words_that_a_captured_call_hears(void) {
    each_mode(1, 1, connecting_rank);
}

/* The code and the text are NCCL's on all ranks, not those of an exchange that it ended. */
static void splitting_rank(int rank, int n, void *arg) {
    ag_job *b = arg;
    const gc_rank g = ag_rank_of(b, rank);
    symmComm_t comm = ag_open_rank(b, rank), child = NULL;
    gk_bench m = gk_bench_new();
    gc_meet(&g);
    if (rank == n - 1) nn_fail("ncclCommInitRankConfig", 1);
    T_ERR(symmCommSplit(comm, 0, rank, &child, NULL), symmSystemError);
    T_MSG(symmGetLastError(NULL), "ncclCommInitRankConfig failed");
    T_CHECK(!child);
    gk_works(comm, rank, n, &m);
    gc_meet(&g);
    T_OK(symmCommDestroy(comm));
    gc_meet(&g);
    gk_bench_free(&m);
}
static void a_split_that_nccl_refuses(void) {
    each_mode(1, AG_LAYOUTS, splitting_rank);
}

/* NCCL would launch on another thread's stream. */
static void per_thread_rank(const gc_rank *g, symmComm_t comm) {
    const symmStream_t stream = (symmStream_t)(void *)SYMM_CUDA_STREAM_PER_THREAD;
    gk_bench m = gk_bench_new();
    gc_meet(g);
    T_ERR(symmAllReduce(m.device, m.device, 1, symmInt32, symmSum, comm, stream), symmNotSupported);
    T_MSG(symmGetLastError(NULL), "per-thread stream");
    T_ERR(symmSend(m.device, 1, symmInt32, (g->rank + 1) % g->n, comm, stream), symmNotSupported);
    T_MSG(symmGetLastError(NULL), "symmSend");
    gk_works(comm, g->rank, g->n, &m);
    gc_meet(g);
    gk_bench_free(&m);
}
static void the_per_thread_stream_is_refused(void) {
    T_EXPECT_WARNINGS();
    ag_each_layout(per_thread_rank);
}

T_MAIN(T(what_ends_one_ends_all), T(an_exchange_that_fails), T(destruction_waits_for_calls),
       T(finalisation_waits_for_calls), T_TIMEOUT(ends_hear_of_others, 30),
       T_TIMEOUT(ends_do_not_wait_for_graphs, 30), T(what_one_thread_cannot_tell_another_does),
       T_TIMEOUT(a_captured_call_that_nccl_refuses, 30), T(words_that_a_captured_call_hears),
       T(a_split_that_nccl_refuses), T(the_per_thread_stream_is_refused))
