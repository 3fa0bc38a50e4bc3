/* gpu_fault.c - what goes wrong around running kernels: abort, ranks that disagree, that come too
 * late, that have left, and bad pointers. Kernels leave in time, every rank hears the same, streams
 * and the context stay usable, a new communicator works. Ranks are threads, each with its own
 * stream; deaths of processes are in gpu_death.c. */
#include "gpu_kit.h"
#include "mismatch_kit.h"

enum { SOON_MS = 1000, ABORT_MS = 100, WORDS = 60000 };

/* What a rank needs, allocated while nothing runs. */
typedef struct {
    symmComm_t comm;
    gk_bench bench;
} rig;

static rig set_up(gk_job *j, int rank) {
    rig g = {.comm = j->comms[rank]};
    T_OK(symmSetDevice(rank % j->devices));
    g.bench = gk_bench_new();
    gk_meet(j);
    return g;
}

/* The next communicator over the same GPUs; rank 0 makes it. Meanwhile no kernel runs. */
static void renew(gk_job *j, int rank) {
    gk_meet(j);
    if (rank == 0) gk_open(j);
    gk_meet(j);
}

static void context_and_new_communicator_work(gk_job *j, int rank, rig *g) {
    gk_context_works(&g->bench);
    renew(j, rank);
    g->comm = j->comms[rank];
    gk_works(g->comm, rank, j->n, &g->bench);
    gk_meet(j);
    T_OK(symmCommDestroy(g->comm));
    gk_meet(j);
}

/* The kernel that the caller gave its stream has left; all communicators say why, in words that
 * have `part` in them. */
static void left_with(const rig *g, symmResult_t code, const char *part) {
    symmResult_t async = symmSuccess;
    gk_cu(gk_wait_code(g->comm, g->bench.stream), "the stream after a kernel left", __FILE__,
          __LINE__);
    const uint64_t since = symm_now_ns();
    while (!async && gk_ms_since(since) < SOON_MS) T_OK(symmCommGetAsyncError(g->comm, &async));
    T_CHECKF(async == code, "the communicator says %d (%s), not %d", async,
             async ? symmGetLastError(g->comm) : "", code);
    T_MSG(symmGetLastError(g->comm), part);
    T_ERR(symmBarrier(g->comm, gk_stream(g->bench.stream)), code);
    T_MSG(symmGetLastError(g->comm), part);
}

static symmResult_t issue(const rig *g, symmColl_t coll, size_t count) {
    int *in = g->bench.device;
    symmStream_t stream = gk_stream(g->bench.stream);
    const size_t each = coll_parts(coll, 2) > 1 ? count / 16 : count; /* up to 16 ranks */
    return symm_test_call(coll, in, in + GK_WORKS, each, symmInt32, symmSum, 0, g->comm, stream);
}

/* Each kernel in turn, given by `how`. */
static int all_rows(int n, int *rows) {
    int count = 0;
    for (int coll = 0; coll < symmNumColls; coll++)
        count += gk_rows((symmColl_t)coll, n, rows + count);
    return count;
}

/* As much memory as the call needs: beyond it, a peer that believed its own count would meet
 * nothing. */
static void *exact(const rig *g, size_t bytes, int registered) {
    void *p = NULL;
    symmWindow_t win;
    if (bytes) T_OK(symmMemAlloc(&p, bytes));
    if (registered) T_OK(symmWindowRegister(g->comm, p, bytes, &win, SYMM_WIN_DEFAULT));
    return p;
}

static void run(int n, t_rank_fn fn, int how) {
    gk_job j = {.devices = gk_begin(), .how = how};
    j.n = n;
    gk_run(&j, fn);
}

/* ---- abort ---- */

/* Of the rank that did not call; of one whose kernel waits; the same, with many calls queued behind
 * it. */
enum { ABORT_MISSING, ABORT_WAITING, ABORT_QUEUED };
enum { QUEUED = 500 };

typedef struct {
    gk_job *j;
    symmComm_t comm;
    int revoke;
} abort_call;

static void *abort_it(void *arg) {
    abort_call *a = arg;
    atomic_store(&a->j->at_ns, symm_now_ns());
    T_OK(a->revoke ? symmCommRevoke(a->comm, 0) : symmCommAbort(a->comm));
    T_CHECKF(gk_ms_since(atomic_load(&a->j->at_ns)) < SOON_MS, "the abort took %d ms",
             (int)gk_ms_since(atomic_load(&a->j->at_ns)));
    return NULL;
}

static void abort_from_a_thread(gk_job *j, int of, int revoke) {
    abort_call a = {j, j->comms[of], revoke};
    pthread_t t;
    T_EQ(pthread_create(&t, NULL, abort_it, &a), 0);
    pthread_join(t, NULL);
}

/* The last rank does not call. Kernels of the others wait, until a thread that is nobody's
 * aborts. */
static void abort_once(gk_job *j, rig *g, int rank, int row, int who) {
    const int n = j->n, missing = rank == n - 1, of = who == ABORT_MISSING ? n - 1 : 0;
    const symmColl_t coll = symm_kernels[row].coll;
    char name[32];
    snprintf(name, sizeof name, "rank %d", of);
    gk_force(g->comm, coll, row, 0, 0);
    for (int i = 0; !missing && i < (who == ABORT_QUEUED ? QUEUED : 1); i++)
        T_OK(issue(g, coll, WORDS));
    usleep(20000);
    if (!missing) T_EQ(symm_cu.cuStreamQuery(g->bench.stream), SYMM_CUDA_ERROR_NOT_READY);
    gk_meet(j);
    if (missing) abort_from_a_thread(j, of, 0);
    if (!missing)
        gk_cu(gk_wait_code(NULL, g->bench.stream), "the stream after an abort", __FILE__, __LINE__);
    const uint64_t late = gk_ms_since(atomic_load(&j->at_ns));
    T_CHECKF(missing || late < ABORT_MS, "%s: free %d ms after the abort", symm_kernels[row].name,
             (int)late);
    gk_meet(j);
    if (rank == 0)
        gk_figure("abort of %d ranks in %s%s: free after at most %d ms", n, symm_kernels[row].name,
                  who == ABORT_QUEUED ? ", 500 calls" : "", (int)late);
    if (rank != of) left_with(g, symmAborted, name);
    if (rank != of) T_OK(symmCommDestroy(g->comm));
    if (rank == of) T_ERR(symmCommDestroy(g->comm), symmInvalidArgument); /* abort has freed it */
    gk_context_works(&g->bench);
}

static void abort_rank(int rank, int n, void *arg) {
    gk_job *j = arg;
    int rows[SYMM_KERNEL_COUNT];
    const int count = all_rows(n, rows);
    rig g = set_up(j, rank);
    for (int i = 0; i < count; i++) {
        if (i) renew(j, rank);
        g.comm = j->comms[rank];
        abort_once(j, &g, rank, rows[i], j->how);
    }
    context_and_new_communicator_work(j, rank, &g);
    gk_bench_free(&g.bench);
}

static void abort_frees_waiting_kernels(void) {
    T_EXPECT_WARNINGS();
    run(2, abort_rank, ABORT_MISSING);
    run(3, abort_rank, ABORT_WAITING);
}
/* None of them waits for itself: each would take a millisecond to hear of the abort. */
static void abort_frees_all_that_is_queued(void) {
    T_EXPECT_WARNINGS();
    run(2, abort_rank, ABORT_QUEUED);
}

/* Rank 0 has told rank 1 where its windows are, waits, and aborts; its memory is its own again.
 * Then rank 1's call comes to its turn: it finds all that it waits for, and writes nothing. */
static void after_abort_once(gk_job *j, rig *g, int rank, symmColl_t coll, int row) {
    const size_t bytes = 1 << 20;
    char *buf = exact(g, 2 * bytes, 1), *seen = malloc(2 * bytes);
    symmStream_t stream = gk_stream(g->bench.stream);
    T_CHECK(seen != NULL);
    CU(cuMemsetD8Async((uintptr_t)buf, 1, 2 * bytes, g->bench.stream));
    gk_wait(g->comm, g->bench.stream);
    gk_force(g->comm, coll, row, 0, 0);
    gk_meet(j);
    if (rank) gk_delay(g->bench.stream, 400000);
    if (coll == symmCollAllGather)
        T_OK(symmAllGather(buf + (size_t)rank * bytes, buf, bytes, symmUint8, g->comm, stream));
    else
        T_OK(symmAllReduce(buf, buf, 2 * bytes, symmUint8, symmSum, g->comm, stream));
    if (rank == 0) {
        usleep(100000);
        abort_from_a_thread(j, 0, 0);
        gk_cu(gk_wait_code(NULL, g->bench.stream), "the stream after an abort", __FILE__, __LINE__);
        CU(cuMemsetD8Async((uintptr_t)buf, 0x5a, 2 * bytes, g->bench.stream));
    }
    gk_cu(gk_wait_code(NULL, g->bench.stream), "the late stream", __FILE__, __LINE__);
    gk_meet(j);
    gk_get(NULL, g->bench.stream, seen, buf, 2 * bytes);
    for (size_t i = 0; i < 2 * bytes; i++)
        T_CHECKF(seen[i] == (rank ? 1 : 0x5a), "%s, rank %d: byte %zu is %#x",
                 symm_kernels[row].name, rank, i, (unsigned)(unsigned char)seen[i]);
    if (rank) left_with(g, symmAborted, "rank 0");
    if (rank) T_OK(symmCommDestroy(g->comm));
    gk_meet(j);
    T_OK(symmMemFree(buf));
    free(seen);
}

static void after_abort_rank(int rank, int n, void *arg) {
    gk_job *j = arg;
    rig g = set_up(j, rank);
    (void)n;
    after_abort_once(j, &g, rank, symmCollAllReduce, SYMM_KERNEL_AR_DIRECT);
    renew(j, rank);
    g.comm = j->comms[rank];
    after_abort_once(j, &g, rank, symmCollAllGather, SYMM_KERNEL_AG_DIRECT);
    context_and_new_communicator_work(j, rank, &g);
    gk_bench_free(&g.bench);
}

static void whoever_comes_after_an_abort_writes_nothing(void) {
    T_EXPECT_WARNINGS();
    run(2, after_abort_rank, 0);
}

static void revoke_rank(int rank, int n, void *arg) {
    gk_job *j = arg;
    rig g = set_up(j, rank);
    if (rank) T_OK(issue(&g, symmCollAllReduce, WORDS));
    gk_meet(j);
    if (rank == 0) abort_from_a_thread(j, 0, 1);
    if (rank) left_with(&g, symmAborted, "rank 0");
    gk_meet(j);
    T_ERR(symmBarrier(g.comm, gk_stream(g.bench.stream)), symmAborted);
    gk_meet(j);
    symmComm_t next;
    T_OK(symmCommShrink(g.comm, NULL, 0, &next, NULL, 0));
    T_OK(symmCommDestroy(g.comm));
    gk_meet(j);
    gk_works(next, rank, n, &g.bench);
    gk_meet(j);
    T_OK(symmCommDestroy(next));
    gk_bench_free(&g.bench);
}

static void a_revoked_communicator_has_a_successor(void) {
    T_EXPECT_WARNINGS();
    run(2, revoke_rank, 0);
    run(3, revoke_rank, 0);
}

/* ---- ranks that disagree ---- */

enum { LOOSE, REGISTERED, DIRECT };

static symmResult_t call(const mm_call *k, void *in, void *out, const rig *g) {
    symmStream_t stream = gk_stream(g->bench.stream);
    return symm_test_call(k->coll, in, out, k->count, k->type, k->op, 0, g->comm, stream);
}

static void force_direct(gk_job *j, const rig *g) {
    int rows[SYMM_KERNEL_COUNT];
    for (int coll = 0; coll < symmNumColls; coll++) {
        if (!coll_moves((symmColl_t)coll)) continue;
        int count = gk_rows((symmColl_t)coll, j->n, rows);
        for (int i = 0; i < count; i++)
            if (symm_kernels[rows[i]].staged) gk_force(g->comm, (symmColl_t)coll, rows[i], 0, 0);
    }
}

static uint64_t worst_ms; /* rank 0's */

static void disagree_once(gk_job *j, rig *g, int rank, int i) {
    const mm_case *c = &mm_cases[i];
    const mm_call *k = rank == i % j->n ? &c->odd : &c->most;
    const size_t bytes = k->count * (k->type == symmInt64 ? 8 : 4),
                 in = bytes * (size_t)coll_in(k->coll, j->n),
                 out = bytes * (size_t)coll_out(k->coll, j->n);
    void *src = exact(g, in, j->how != LOOSE), *dst = exact(g, out, j->how != LOOSE);
    if (j->how == DIRECT) force_direct(j, g);
    gk_meet(j);
    const uint64_t since = symm_now_ns();
    symmResult_t r = call(k, src, dst, g);
    T_CHECKF(r == symmSuccess || r == symmMismatch, "%s: code %d (%s)", c->what, r,
             symmGetLastError(g->comm));
    left_with(g, symmMismatch, "called different collectives, counts, types, reductions or roots");
    const uint64_t late = gk_ms_since(since);
    mm_told(symmGetLastError(g->comm), c, i % j->n, 1);
    T_CHECKF(late < SOON_MS, "%s: heard of it after %d ms", c->what, (int)late);
    if (rank == 0 && late > worst_ms) worst_ms = late;
    gk_meet(j);
    T_OK(symmCommDestroy(g->comm));
    gk_meet(j);
    T_OK(symmMemFree(src));
    T_OK(symmMemFree(dst));
}

static void disagree_rank(int rank, int n, void *arg) {
    gk_job *j = arg;
    rig g = set_up(j, rank);
    for (int i = 0; i < MM_CASES; i++) {
        if (i) renew(j, rank);
        g.comm = j->comms[rank];
        fprintf(stderr, "rank %d: %s\n", rank, mm_cases[i].what);
        disagree_once(j, &g, rank, i);
    }
    if (rank == 0)
        gk_figure("%d ranks that disagree: heard of after at most %d ms", n, (int)worst_ms);
    context_and_new_communicator_work(j, rank, &g);
    gk_bench_free(&g.bench);
}

static void disagreement(int how) {
    T_EXPECT_WARNINGS();
    run(2, disagree_rank, how);
    run(3, disagree_rank, how);
}

static void ranks_that_disagree(void) {
    disagreement(LOOSE);
}
static void ranks_that_disagree_registered(void) {
    disagreement(REGISTERED);
}
static void ranks_that_disagree_in_the_direct_kernels(void) {
    disagreement(DIRECT);
}

/* ---- too late, gone ---- */

enum { LIMIT_MS = 300 };

/* Where a rank passes on what it reduces, the one that waits for it may be the first to leave. */
static void names_the_late_one(const rig *g, int last) {
    char name[40], fewer[40];
    snprintf(name, sizeof name, "rank %d did not come", last);
    snprintf(fewer, sizeof fewer, "rank 1: rank %d;", last);
    const char *text = symmGetLastError(g->comm);
    T_CHECKF(strstr(text, name) || strstr(text, fewer), "\"%s\" does not name rank %d", text, last);
}

static void late_once(gk_job *j, rig *g, int rank, int row) {
    const symmColl_t coll = symm_kernels[row].coll;
    const int last = j->n - 1;
    gk_force(g->comm, coll, row, 0, 0);
    if (rank == last) usleep((LIMIT_MS + SOON_MS) * 1000);
    const uint64_t since = symm_now_ns();
    symmResult_t r = issue(g, coll, WORDS);
    T_CHECKF(r == (rank == last ? symmTimeout : symmSuccess), "rank %d: code %d", rank, r);
    left_with(g, symmTimeout, "did not come before a deadline");
    names_the_late_one(g, last);
    const uint64_t ms = gk_ms_since(since);
    T_CHECKF(rank == last || (ms + 1 >= LIMIT_MS && ms < LIMIT_MS + SOON_MS), "%s left after %d ms",
             symm_kernels[row].name, (int)ms);
    gk_meet(j);
    T_OK(symmCommDestroy(g->comm));
}

static void late_rank(int rank, int n, void *arg) {
    gk_job *j = arg;
    int rows[SYMM_KERNEL_COUNT];
    const int count = all_rows(n, rows);
    rig g = set_up(j, rank);
    for (int i = 0; i < count; i++) {
        if (i) renew(j, rank);
        g.comm = j->comms[rank];
        late_once(j, &g, rank, rows[i]);
    }
    context_and_new_communicator_work(j, rank, &g);
    gk_bench_free(&g.bench);
}

static void a_rank_that_is_too_late(void) {
    char ms[16];
    T_EXPECT_WARNINGS();
    snprintf(ms, sizeof ms, "%d", LIMIT_MS);
    setenv("SYMM_TIMEOUT", ms, 1);
    run(2, late_rank, 0);
    run(3, late_rank, 0);
}

static void leaver_rank(int rank, int n, void *arg) {
    gk_job *j = arg;
    rig g = set_up(j, rank);
    gk_works(g.comm, rank, n, &g.bench);
    gk_meet(j);
    if (rank == n - 1) T_OK(symmCommDestroy(g.comm));
    gk_meet(j);
    if (rank < n - 1) {
        const uint64_t since = symm_now_ns();
        symmResult_t r = issue(&g, (symmColl_t)j->how, WORDS);
        T_CHECK(r == symmSuccess || r == symmRemoteError);
        left_with(&g, symmRemoteError, "left");
        T_CHECKF(gk_ms_since(since) < 2500, "after %d ms", (int)gk_ms_since(since));
    }
    gk_meet(j);
    if (rank < n - 1) T_OK(symmCommDestroy(g.comm));
    context_and_new_communicator_work(j, rank, &g);
    gk_bench_free(&g.bench);
}

static void a_rank_that_has_left(void) {
    T_EXPECT_WARNINGS();
    int rows[SYMM_KERNEL_COUNT];
    for (int coll = 0; coll < symmNumColls; coll++)
        if (gk_rows((symmColl_t)coll, 2, rows)) run(2, leaver_rank, coll);
    run(3, leaver_rank, symmCollAllReduce);
}

/* ---- communicators in opposite order ---- */

/* As many as fill a GPU twice with CTAs of 512 threads, four of which a multiprocessor holds at
 * most. */
enum { CROSSED = 8, CROSSED_WORDS = GK_WORKS / 5 };
enum { ONE_STREAM, OWN_STREAMS };

typedef struct {
    symmComm_t comms[CROSSED][2]; /* by communicator and rank */
    int code[CROSSED][2];
    int many;
} crossing;

static void cross(crossing *x, int rank, const rig *g, const cu_stream *stream) {
    int *in = g->bench.device;
    for (int i = 0; i < x->many; i++) {
        const int k = rank ? x->many - 1 - i : i;
        symm_comm *c = symm_handle_peek(SYMM_KIND_COMM, x->comms[k][rank]);
        gk_force(x->comms[k][rank], symmCollAllReduce, SYMM_KERNEL_AR_DIRECT, c->gpus.sms,
                 SYMM_GPU_THREADS);
        symmResult_t r = symmAllReduce(in, in + (k + 1) * CROSSED_WORDS, CROSSED_WORDS, symmInt32,
                                       symmSum, x->comms[k][rank], gk_stream(stream[k]));
        /* A thread that was held up meets a communicator that its peer has given up. */
        T_CHECKF(r == symmSuccess || r == symmTimeout, "rank %d, communicator %d: code %d", rank, k,
                 r);
    }
    for (int k = 0; k < x->many; k++)
        gk_cu(gk_wait_code(x->comms[k][rank], stream[k]), "a stream of crossed communicators",
              __FILE__, __LINE__);
}

/* All kernels of all ranks have ended: what a communicator says now stays. Done right, or too late,
 * and then it is said who. */
static void judge_crossed(crossing *x, int rank, const rig *g) {
    int *host = g->bench.host;
    for (int k = 0; k < x->many; k++) {
        symmResult_t async = symmSuccess;
        T_OK(symmCommGetAsyncError(x->comms[k][rank], &async));
        x->code[k][rank] = async;
        if (async) {
            T_EQ(async, symmTimeout);
            T_MSG(symmGetLastError(x->comms[k][rank]), "did not come before a deadline");
            T_MSG(symmGetLastError(x->comms[k][rank]), "rank ");
            continue;
        }
        gk_get(NULL, g->bench.stream, host, g->bench.device + (k + 1) * CROSSED_WORDS,
               CROSSED_WORDS * sizeof *host);
        for (int i = 0; i < CROSSED_WORDS; i++)
            T_CHECKF(host[i] == 2 * (i % 1000) + 7, "communicator %d, element %d: %d", k, i,
                     host[i]);
    }
}

static void crossed_rank(int rank, int n, void *arg) {
    gk_job *j = arg;
    crossing *x = j->shared;
    cu_stream stream[CROSSED];
    rig g = set_up(j, rank);
    int late = 0;
    (void)n;
    x->comms[0][rank] = g.comm;
    for (int k = 0; k < x->many; k++)
        stream[k] = j->how == ONE_STREAM ? g.bench.stream : gk_new_stream();
    for (int i = 0; i < CROSSED_WORDS; i++) g.bench.host[i] = i % 1000 + 7 * rank;
    gk_put(g.bench.stream, g.bench.device, g.bench.host, CROSSED_WORDS * sizeof(int));
    gk_wait(NULL, g.bench.stream);
    gk_meet(j);
    cross(x, rank, &g, stream);
    gk_meet(j);
    judge_crossed(x, rank, &g);
    gk_meet(j);
    for (int k = 0; k < x->many; k++) {
        T_CHECKF(x->code[k][0] == x->code[k][1], "communicator %d: codes %d and %d", k,
                 x->code[k][0], x->code[k][1]);
        late += x->code[k][0] == symmTimeout;
    }
    if (j->how == ONE_STREAM) T_CHECK(late > 0);
    if (rank == 0 && j->how == OWN_STREAMS)
        gk_figure("%d communicators that fill two GPUs in opposite order: %d too late, the others "
                  "right",
                  x->many, late);
    gk_meet(j);
    for (int k = 0; k < x->many; k++) T_OK(symmCommDestroy(x->comms[k][rank]));
    for (int k = 0; k < x->many && j->how == OWN_STREAMS; k++) CU(cuStreamDestroy(stream[k]));
    context_and_new_communicator_work(j, rank, &g);
    gk_bench_free(&g.bench);
}

/* Forbidden (symm.h), and yet no rank waits for ever where there is a limit. */
static void crossed(int how, int many) {
    char ms[16];
    T_EXPECT_WARNINGS();
    snprintf(ms, sizeof ms, "%d", LIMIT_MS);
    setenv("SYMM_TIMEOUT", ms, 1);
    crossing x = {.many = many};
    gk_job j = {.n = 2, .devices = gk_begin(), .how = how, .shared = &x};
    if (how == OWN_STREAMS && j.devices < 2)
        T_SKIP("one GPU: no room for all communicators' kernels of both ranks");
    for (int k = 1; k < many; k++) {
        gk_job more = j;
        gk_open(&more);
        memcpy(x.comms[k], more.comms, sizeof x.comms[k]);
    }
    gk_run(&j, crossed_rank);
}

/* Each rank's stream begins with the other's second call: they cannot meet. */
static void communicators_in_opposite_order_in_one_stream(void) {
    crossed(ONE_STREAM, 2);
}
/* Here they can where the GPU has room. */
static void communicators_that_fill_the_gpu_in_opposite_order(void) {
    crossed(OWN_STREAMS, CROSSED);
}

/* ---- pointers ---- */

static void pointer_rank(int rank, int n, void *arg) {
    gk_job *j = arg;
    rig g = set_up(j, rank);
    symmStream_t stream = gk_stream(g.bench.stream);
    char *good = (char *)g.bench.device;
    void *const bad[] = {NULL, (void *)16, (void *)(uintptr_t)(~0ull - 4096),
                         (void *)(uintptr_t)(1ull << 60)};
    for (int i = 0; i < 4; i++) {
        T_ERR(symmAllReduce(bad[i], good, 100, symmInt32, symmSum, g.comm, stream),
              symmInvalidArgument);
        T_MSG(symmGetLastError(g.comm), "sendbuff");
        T_ERR(symmAllReduce(good, bad[i], 100, symmInt32, symmSum, g.comm, stream),
              symmInvalidArgument);
        T_MSG(symmGetLastError(g.comm), "recvbuff");
        T_ERR(symmAllGather(good, bad[i], 100, symmInt32, g.comm, stream), symmInvalidArgument);
        T_MSG(symmGetLastError(g.comm), "recvbuff");
    }
    T_ERR(symmAllReduce(good, good + 4, 100, symmInt32, symmSum, g.comm, stream),
          symmInvalidArgument);
    T_MSG(symmGetLastError(g.comm), "overlap");
    for (int k = 0; k < SYMM_KERNEL_COUNT; k++) T_EQ(gk_launches(g.comm, k), 0);
    T_OK(symmAllReduce(NULL, NULL, 0, symmInt32, symmSum, g.comm, stream));
    gk_works(g.comm, rank, n, &g.bench);
    gk_meet(j);
    T_OK(symmCommDestroy(g.comm));
    gk_bench_free(&g.bench);
}

static void null_and_wild_pointers_are_refused(void) {
    T_EXPECT_WARNINGS();
    run(2, pointer_rank, 0);
}

T_MAIN(T(abort_frees_waiting_kernels), T(abort_frees_all_that_is_queued),
       T(whoever_comes_after_an_abort_writes_nothing), T(a_revoked_communicator_has_a_successor),
       T_TIMEOUT(ranks_that_disagree, 90), T_TIMEOUT(ranks_that_disagree_registered, 90),
       T_TIMEOUT(ranks_that_disagree_in_the_direct_kernels, 90),
       T_TIMEOUT(a_rank_that_is_too_late, 120), T(a_rank_that_has_left),
       T(communicators_in_opposite_order_in_one_stream),
       T(communicators_that_fill_the_gpu_in_opposite_order), T(null_and_wild_pointers_are_refused))
