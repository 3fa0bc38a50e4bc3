/* thr_across_stream.c - calls of communicators over several domains on streams of the host backend,
 * with ranks as threads and a mover between them (net_threads.h): their order over streams, what a
 * call waits for, captures, groups, reductions that end, errors, ends. */
#include <stdatomic.h>
#include <unistd.h>

#include "across_kit.h"
#include "stream_chain.h"
#include "base/fail.h"
#include "base/stats.h"
#include "host/stream/stream.h"
#include "symm_host.h"
#include "symm_p2p.h"
#include "symm_stream.h"

enum { STREAMS = 2, COUNT = 300 };

typedef struct { /* of one rank */
    ak_job *j;
    int rank, n;
    symmComm_t comm;
    symmStream_t s[1 + STREAMS]; /* s[0] is NULL */
} world;

static world begin(ak_job *j, int rank, int n) {
    world w = {.j = j, .rank = rank, .n = n};
    w.comm = ak_open(j, rank, symmSuccess, symmSuccess);
    for (int i = 1; i <= STREAMS; i++) T_OK(symmStreamCreate(&w.s[i]));
    return w;
}
static void sync_all(const world *w) {
    for (int i = 1; i <= STREAMS; i++) T_OK(symmStreamSynchronize(w->s[i]));
}
static void end(world *w) {
    if (w->comm) T_OK(symmCommDestroy(w->comm));
    for (int i = 1; i <= STREAMS; i++) T_OK(symmStreamDestroy(w->s[i]));
}

static void run_on(const char *hosts, int streams, int mode, void (*fn)(int, int, void *)) {
    ak_job j = ak_new(hosts);
    j.mode = mode;
    j.hub->streams = streams;
    T_THREADS(j.n, fn, &j);
    nt_hub_free(j.hub);
}
static void run(const char *hosts, int mode, void (*fn)(int, int, void *)) {
    run_on(hosts, 1, mode, fn);
}

/* All ranks have come so far. */
static void meet(ak_job *j, int n, int times) {
    atomic_fetch_add(&j->met, 1);
    while (atomic_load(&j->met) < n * times) usleep(100);
}

static void nap(void *arg) {
    (void)arg;
    usleep(50000);
}

/* ---- order ----------------------------------------------------------------------------------- */

static void chain_rank(int rank, int n, void *arg) {
    world w = begin(arg, rank, n);
    sc_chain(w.comm, rank, n, w.j->seed, w.s, 1 + STREAMS);
    end(&w);
}
static void calls_keep_their_order(void) {
    static const char *const layouts[] = {"ab", "aabb", "abca"};
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++)
        for (int k = 0; k < (CK_SLOW ? 1 : 4); k++) run(layouts[i], 0, chain_rank);
}

/* Rank 0 gives calls to streams while no other rank makes any: they come when it has said that it
 * is through. mode 1: in groups. */
static void given_rank(int rank, int n, void *arg) {
    world w = begin(arg, rank, n);
    uint32_t x[8] = {1, 2, 3, 4, 5, 6, 7, 8}, y[8], z[8];
    symmResult_t busy = symmSuccess;
    if (rank)
        while (!atomic_load(&w.j->met)) usleep(100);
    if (w.j->mode) T_OK(symmGroupStart());
    T_OK(symmAllReduce(x, y, 8, symmUint32, symmSum, w.comm, w.s[1]));
    if (w.j->mode) T_OK(symmGroupEnd());
    if (!rank) usleep(20000); /* the worker is inside now */
    T_OK(symmBroadcast(y, z, 8, symmUint32, 0, w.comm, w.s[2]));
    T_OK(symmSend(z, 8, symmUint32, (rank + 1) % n, w.comm, w.s[1]));
    T_OK(symmRecv(x, 8, symmUint32, (rank + n - 1) % n, w.comm, w.s[1]));
    if (!rank) busy = symmStreamQuery(w.s[1]);
    atomic_store(&w.j->met, 1);
    sync_all(&w);
    if (!rank) T_EQ(busy, symmInProgress);
    for (unsigned i = 0; i < 8; i++) T_EQ(x[i], (i + 1) * (unsigned)n);
    end(&w);
}
static void a_call_does_not_wait_for_others(void) {
    run("ab", 0, given_rank);
    run("aab", 0, given_rank);
    run("aab", 1, given_rank);
}

/* The messages of a group on several streams, of which one may be NULL: behind what each of them
 * has, and before what each is given next. */
static void slow_one(void *arg) {
    usleep(2000);
    *(uint32_t *)arg = 7;
}
typedef struct {
    const uint32_t *from;
    uint32_t found;
} seen;
static void look_at(void *arg) {
    ((seen *)arg)->found = *((seen *)arg)->from;
}
static void several_rank(int rank, int n, void *arg) {
    enum { MOST = 1 + STREAMS };
    world w = begin(arg, rank, n);
    const int next = (rank + 1) % n, before = (rank + n - 1) % n;
    for (int round = 0; round < 10; round++) {
        const int first = round % 2; /* 0: with NULL */
        uint32_t out[MOST] = {7}, in[MOST] = {0};
        seen after[MOST];
        for (int i = 1; i < MOST; i++) T_OK(symmStreamHostFunc(w.s[i], slow_one, &out[i]));
        T_OK(symmGroupStart());
        for (int i = first; i < MOST; i++) {
            T_OK(symmSend(&out[i], 1, symmUint32, next, w.comm, w.s[i]));
            T_OK(symmRecv(&in[i], 1, symmUint32, before, w.comm, w.s[first + MOST - 1 - i]));
        }
        T_OK(symmGroupEnd());
        for (int i = 1; i < MOST; i++) {
            after[i] = (seen){.from = &in[first + MOST - 1 - i]};
            T_OK(symmStreamHostFunc(w.s[i], look_at, &after[i]));
        }
        sync_all(&w);
        for (int i = first; i < MOST; i++) T_EQ(in[i], 7);
        for (int i = 1; i < MOST; i++) T_EQ(after[i].found, 7);
    }
    end(&w);
}
static void messages_of_several_streams(void) {
    run("ab", 0, several_rank);
    run("aab", 0, several_rank);
}

/* Calls of a group on one stream, of several communicators, come in the order of the calls. mode 1:
 * the last is one over domains, too, as is the second. */
static void grouped_rank(int rank, int n, void *arg) {
    world w = begin(arg, rank, n);
    uint32_t x = 1, y = 0, z = 0, last = 0, sum = 0;
    symmDomainInfo_t d = {.size = sizeof d};
    symmComm_t inside, over;
    T_OK(symmDomainQuery(w.comm, &d));
    T_OK(symmCommSplit(w.comm, d.domain, 0, &inside, NULL));
    T_OK(symmCommSplit(w.comm, 0, rank, &over, NULL));
    T_OK(symmGroupStart());
    T_OK(symmAllReduce(&x, &y, 1, symmUint32, symmSum, inside, w.s[1]));
    T_OK(symmAllReduce(&y, &z, 1, symmUint32, symmSum, w.comm, w.s[1]));
    T_OK(symmAllReduce(&z, &last, 1, symmUint32, symmSum, w.j->mode ? over : inside, w.s[1]));
    T_OK(symmGroupEnd());
    sync_all(&w);
    T_EQ(y, (uint32_t)d.ranks);
    for (int r = 0; r < n; r++)
        for (int p = 0; p < n; p++) sum += w.j->hosts[p] == w.j->hosts[r];
    T_EQ(z, sum);
    T_EQ(last, sum * (uint32_t)(w.j->mode ? n : d.ranks));
    T_OK(symmCommDestroy(over));
    T_OK(symmCommDestroy(inside));
    end(&w);
}
static void a_group_keeps_the_order_of_a_stream(void) {
    for (int mode = 0; mode < 2; mode++) {
        run("aab", mode, grouped_rank);
        run("abab", mode, grouped_rank);
    }
}

/* ---- what a call keeps ----------------------------------------------------------------------- */

/* The program ends its reduction, and changes its counts, before the call is made. */
static void kept_rank(int rank, int n, void *arg) {
    world w = begin(arg, rank, n);
    uint32_t x[4] = {1, 2, 3, 4}, y[4], factor = 10 + (uint32_t)rank, sum = 0, got[64];
    size_t counts[NT_RANKS], at[NT_RANKS];
    symmRedOp_t op;
    for (int r = 0; r < n; r++) sum += 10 + (uint32_t)r, counts[r] = 1, at[r] = (size_t)r;
    T_OK(symmRedOpCreatePreMulSum(&op, &factor, symmUint32, symmScalarHostImmediate, w.comm));
    if (rank)
        while (!atomic_load(&w.j->met)) usleep(100);
    T_OK(symmAllReduce(x, y, 4, symmUint32, op, w.comm, w.s[1]));
    T_OK(symmAllGatherv(&x[1], 1, got, counts, at, symmUint32, w.comm, w.s[1]));
    memset(counts, 0xff, sizeof counts);
    atomic_store(&w.j->met, 1);
    T_OK(symmRedOpDestroy(op, w.comm));
    sync_all(&w);
    for (unsigned i = 0; i < 4; i++) T_EQ(y[i], sum * (i + 1));
    for (int r = 0; r < n; r++) T_EQ(got[r], 2);
    end(&w);
}
static void a_call_keeps_what_it_was_given(void) {
    run("ab", 0, kept_rank);
    run("aabb", 0, kept_rank);
}

static void grow(void *factor) {
    ++*(uint32_t *)factor;
}

/* A factor that is a pointer is read when the call runs: behind what its stream had, and in each
 * replay anew. mode 1: in a group on the NULL stream. */
static void pointed_rank(int rank, int n, void *arg) {
    world w = begin(arg, rank, n);
    uint32_t x = 1, y = 0, factor = 2;
    symmStream_t s = w.j->mode ? NULL : w.s[1];
    symmGraphExec_t exec;
    symmGraph_t graph;
    symmRedOp_t op;
    T_OK(symmRedOpCreatePreMulSum(&op, &factor, symmUint32, symmScalarDevice, w.comm));
    if (!w.j->mode) T_OK(symmStreamHostFunc(s, nap, NULL));
    if (!w.j->mode) T_OK(symmStreamHostFunc(s, grow, &factor));
    T_OK(symmGroupStart());
    T_OK(symmAllReduce(&x, &y, 1, symmUint32, op, w.comm, s));
    if (w.j->mode) grow(&factor);
    T_OK(symmGroupEnd());
    sync_all(&w);
    T_EQ(y, 3 * (uint32_t)n);
    T_OK(symmStreamBeginCapture(w.s[1]));
    T_OK(symmAllReduce(&x, &y, 1, symmUint32, op, w.comm, w.s[1]));
    T_OK(symmStreamHostFunc(w.s[1], grow, &factor));
    T_OK(symmStreamEndCapture(w.s[1], &graph));
    T_OK(symmGraphInstantiate(graph, &exec));
    for (int i = 0; i < 3; i++) T_OK(symmGraphLaunch(exec, w.s[1]));
    sync_all(&w);
    T_EQ(y, 5 * (uint32_t)n);
    T_OK(symmGraphExecDestroy(exec));
    T_OK(symmGraphDestroy(graph));
    T_OK(symmRedOpDestroy(op, w.comm));
    end(&w);
}
static void a_factor_is_read_when_the_call_runs(void) {
    for (int mode = 0; mode < 2; mode++) {
        run("aab", mode, pointed_rank);
        setenv("SYMM_DETERMINISTIC", "1", 1);
        run("ab", mode, pointed_rank);
        unsetenv("SYMM_DETERMINISTIC");
    }
}

/* ---- captures -------------------------------------------------------------------------------- */

static symmGraphExec_t capture(const world *w, uint32_t *x, uint32_t *all, symmRedOp_t op) {
    symmGraph_t graph;
    symmGraphExec_t exec;
    symmEvent_t fork, joined;
    T_OK(symmEventCreate(&fork));
    T_OK(symmEventCreate(&joined));
    T_OK(symmStreamBeginCapture(w->s[1]));
    T_OK(symmEventRecord(fork, w->s[1]));
    T_OK(symmStreamWaitEvent(w->s[2], fork));
    T_OK(symmAllReduce(x, x, COUNT, symmUint32, op, w->comm, w->s[1]));
    T_OK(symmAllGather(x, all, COUNT, symmUint32, w->comm, w->s[2])); /* behind it, by itself */
    T_OK(symmReduceScatter(all, x, COUNT, symmUint32, symmSum, w->comm, w->s[1]));
    T_OK(symmGroupStart());
    T_OK(symmSend(x, COUNT, symmUint32, (w->rank + 1) % w->n, w->comm, w->s[2]));
    T_OK(symmRecv(all, COUNT, symmUint32, (w->rank + w->n - 1) % w->n, w->comm, w->s[2]));
    T_OK(symmGroupEnd());
    T_OK(symmAllReduce(all, x, COUNT, symmUint32, symmSum, w->comm, w->s[2]));
    T_OK(symmEventRecord(joined, w->s[2]));
    T_OK(symmStreamWaitEvent(w->s[1], joined));
    T_OK(symmStreamEndCapture(w->s[1], &graph));
    T_OK(symmGraphInstantiate(graph, &exec));
    T_OK(symmGraphDestroy(graph));
    T_OK(symmEventDestroy(fork));
    T_OK(symmEventDestroy(joined));
    return exec;
}

static void replay_rank(int rank, int n, void *arg) {
    enum { REPLAYS = 6 };
    world w = begin(arg, rank, n);
    uint32_t *x = malloc(COUNT * sizeof *x), *all = malloc((size_t)n * COUNT * sizeof *all),
             want = 1, three = 3;
    symmRedOp_t op;
    T_CHECK(x && all);
    T_OK(symmRedOpCreatePreMulSum(&op, &three, symmUint32, symmScalarHostImmediate, w.comm));
    for (unsigned i = 0; i < COUNT; i++) x[i] = i + 1;
    symmGraphExec_t exec = capture(&w, x, all, op);
    T_OK(symmRedOpDestroy(op, w.comm));
    for (unsigned i = 0; i < COUNT; i++) T_EQ(x[i], i + 1); /* nothing has run */
    if (w.j->mode) T_OK(symmStreamHostFunc(w.s[1], nap, NULL));
    for (int i = 0; i < REPLAYS; i++) {
        T_OK(symmGraphLaunch(exec, w.s[1]));
        want *= 3 * (uint32_t)n * (uint32_t)n * (uint32_t)n;
        if (i % 2 || w.j->mode) continue;
        T_OK(symmAllReduce(x, x, COUNT, symmUint32, symmSum, w.comm, w.s[1]));
        want *= (uint32_t)n;
    }
    if (w.j->mode) { /* the end waits for what was launched, and then it is no more */
        T_OK(symmCommDestroy(w.comm));
        w.comm = NULL;
        T_EQ(symmGraphLaunch(exec, w.s[1]), symmInvalidUsage);
        T_MSG(symmGetLastError(NULL), "launched after that was destroyed");
    }
    sync_all(&w);
    for (unsigned i = 0; i < COUNT; i++) T_EQ(x[i], want * (i + 1));
    T_OK(symmGraphExecDestroy(exec));
    end(&w);
    free(x), free(all);
}
static void captured_calls_are_replayed(void) {
    T_EXPECT_WARNINGS();
    for (int mode = 0; mode < 2; mode++) {
        run("ab", mode, replay_rank);
        run("abba", mode, replay_rank);
    }
}

/* A launch in the midst of a group runs at once, and its calls are not the group's. */
static void beside_rank(int rank, int n, void *arg) {
    world w = begin(arg, rank, n);
    uint32_t x = 1, y = 0, z = 0, got = 0;
    symmGraphExec_t exec;
    symmGraph_t graph;
    T_OK(symmStreamBeginCapture(w.s[1]));
    T_OK(symmAllReduce(&x, &y, 1, symmUint32, symmSum, w.comm, w.s[1]));
    T_OK(symmGroupStart());
    T_OK(symmSend(&y, 1, symmUint32, (rank + 1) % n, w.comm, w.s[1]));
    T_OK(symmRecv(&got, 1, symmUint32, (rank + n - 1) % n, w.comm, w.s[1]));
    T_OK(symmGroupEnd());
    T_OK(symmStreamEndCapture(w.s[1], &graph));
    T_OK(symmGraphInstantiate(graph, &exec));
    T_OK(symmGroupStart());
    T_OK(symmAllReduce(&x, &z, 1, symmUint32, symmSum, w.comm, NULL));
    T_OK(symmGraphLaunch(exec, NULL));
    T_EQ(y, (uint32_t)n);
    T_EQ(got, (uint32_t)n);
    T_EQ(z, 0);
    T_OK(symmGroupEnd());
    T_EQ(z, (uint32_t)n);
    T_OK(symmGraphExecDestroy(exec));
    T_OK(symmGraphDestroy(graph));
    end(&w);
}
static void a_launch_in_a_group_runs_at_once(void) {
    run("ab", 0, beside_rank);
    run("aab", 0, beside_rank);
}

/* ---- what goes wrong ------------------------------------------------------------------------- */

/* Without calls from threads of its own, a mover serves the NULL stream alone. */
static void refused_rank(int rank, int n, void *arg) {
    world w = begin(arg, rank, n);
    uint32_t x = 1, y = 0;
    T_EQ(symmAllReduce(&x, &y, 1, symmUint32, symmSum, w.comm, w.s[1]), symmNotSupported);
    T_MSG(symmGetLastError(NULL), "the test's mover is its thread's");
    T_EQ(symmSend(&x, 1, symmUint32, 0, w.comm, w.s[1]), symmNotSupported);
    T_OK(symmAllReduce(&x, &y, 1, symmUint32, symmSum, w.comm, NULL));
    T_EQ(y, (uint32_t)n);
    end(&w);
}
static void bad_rank(int rank, int n, void *arg) {
    world w = begin(arg, rank, n);
    uint32_t x = 1, y = 0;
    symmStream_t gone;
    T_OK(symmStreamCreate(&gone));
    T_OK(symmStreamDestroy(gone));
    T_OK(symmGroupStart());
    T_EQ(symmAllReduce(&x, &y, 1, symmUint32, symmSum, w.comm, gone), symmInvalidArgument);
    T_EQ(symmGroupEnd(), symmInvalidArgument);
    T_EQ(symmAllReduce(&x, &y, 1, symmUint32, symmSum, w.comm, gone), symmInvalidArgument);
    T_EQ(symmAllReduce(NULL, &y, 1, symmUint32, symmSum, w.comm, w.s[1]), symmInvalidArgument);
    T_EQ(symmAllReduce(&x, &y, 1, symmUint32, (symmRedOp_t)99, w.comm, w.s[1]),
         symmInvalidArgument);
    T_EQ(symmSend(&x, 1, symmUint32, n, w.comm, w.s[1]), symmInvalidArgument);
    T_OK(symmAllReduce(&x, &y, 0, symmUint32, symmSum, w.comm, w.s[1]));
    T_OK(symmStreamQuery(w.s[1])); /* nothing was given */
    T_OK(symmAllReduce(&x, &y, 1, symmUint32, symmSum, w.comm, w.s[1]));
    sync_all(&w);
    T_EQ(y, (uint32_t)n);
    end(&w);
}
static void what_is_wrong_is_refused_at_the_call(void) {
    T_EXPECT_WARNINGS();
    run_on("aab", 0, 0, refused_rank);
    run("aab", 0, bad_rank);
}

static void keep_none(void *arg) {
    (void)arg;
}
static symmResult_t begin_none(void *arg) {
    (void)arg;
    return symmSuccess;
}

/* One rank does not make the calls that the others have in streams. mode 0: it revokes; 1: it
 * leaves; 2: all others abort; 3: they wait for their deadline. */
static void over_rank(int rank, int n, void *arg) {
    world w = begin(arg, rank, n);
    const int odd = rank == n - 1;
    uint32_t x = 1, y = 0;
    symmResult_t r = symmSuccess, async;
    T_OK(symmAllReduce(&x, &y, 1, symmUint32, symmSum, w.comm, w.s[1]));
    sync_all(&w);
    for (int i = 0; i < 4 && !odd; i++)
        T_OK(symmAllReduce(&x, &y, 1, symmUint32, symmSum, w.comm, w.s[1 + i % STREAMS]));
    meet(w.j, n, 1);
    if (odd && w.j->mode == 0) T_OK(symmCommRevoke(w.comm, 0));
    if (odd && w.j->mode == 1) {
        T_OK(symmCommDestroy(w.comm));
        w.comm = NULL;
    }
    if (!odd && w.j->mode == 2) {
        T_OK(symmCommAbort(w.comm));
        w.comm = NULL;
    }
    if (!odd) {
        r = symmStreamSynchronize(w.s[1]);
        T_CHECKF(r != symmSuccess, "mode %d, rank %d", w.j->mode, rank);
        if (w.j->mode == 0) T_EQ(r, symmAborted);
        if (w.j->mode == 1) T_EQ(r, symmRemoteError);
        if (w.j->mode == 3) T_EQ(r, symmTimeout);
        (void)symmStreamSynchronize(w.s[2]); /* a call behind the error, or the first that met it */
        if (w.comm) T_OK(symmCommGetAsyncError(w.comm, &async));
        if (w.comm) T_CHECK(async != symmSuccess);
        if (w.comm)
            T_CHECK(symmAllReduce(&x, &y, 1, symmUint32, symmSum, w.comm, w.s[1]) != symmSuccess);
    }
    atomic_fetch_add(&w.j->over, 1);
    while (odd && atomic_load(&w.j->over) < n) usleep(100);
    end(&w);
}
static void streams_hear_of_an_end(void) {
    static const char *const layouts[] = {"ab", "aab", "abc"};
    T_EXPECT_WARNINGS();
    for (int mode = 0; mode < 4; mode++) {
        if (mode == 3) setenv("SYMM_TIMEOUT", "300", 1);
        for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++)
            run(layouts[i], mode, over_rank);
    }
    unsetenv("SYMM_TIMEOUT");
}

/* A call that its stream comes to when the communicator has been aborted. mode 1: in a graph, which
 * is destroyed before all users of it have heard that its launch has ended. */
static void aborted_rank(int rank, int n, void *arg) {
    static const symm_graph_user late = {
        .retain = keep_none, .release = keep_none, .begin = begin_none, .end = nap};
    world w = begin(arg, rank, n);
    uint32_t x = 1, y = 0;
    symmGraphExec_t exec = NULL;
    symmGraph_t graph;
    if (w.j->mode) T_OK(symmStreamBeginCapture(w.s[1]));
    T_OK(symmStreamHostFunc(w.s[1], nap, NULL));
    T_OK(symmAllReduce(&x, &y, 1, symmUint32, symmSum, w.comm, w.s[1]));
    if (w.j->mode) {
        T_OK(symm_stream_capture_hold(w.s[1], &w, &late)); /* is told before the call's */
        T_OK(symmStreamEndCapture(w.s[1], &graph));
        T_OK(symmGraphInstantiate(graph, &exec));
        T_OK(symmGraphDestroy(graph));
        T_OK(symmGraphLaunch(exec, w.s[1]));
    }
    T_OK(symmCommAbort(w.comm));
    w.comm = NULL;
    if (exec) T_OK(symmGraphExecDestroy(exec));
    T_EQ(symmStreamSynchronize(w.s[1]), symmAborted);
    T_MSG(symmGetLastError(NULL), "symmCommAbort");
    T_EQ(y, 0);
    end(&w);
}
static void calls_hear_of_an_abort(void) {
    T_EXPECT_WARNINGS();
    for (int mode = 0; mode < 2; mode++) {
        run("ab", mode, aborted_rank);
        run("aab", mode, aborted_rank);
    }
}

/* What the domain's communicator has on another stream has not ended. */
static void beside_inner_rank(int rank, int n, void *arg) {
    world w = begin(arg, rank, n);
    uint32_t x = 1, y = 0, z = 0;
    symmComm_t inside;
    T_OK(symmCommDomain(w.comm, &inside));
    T_OK(symmStreamHostFunc(w.s[2], nap, NULL));
    T_OK(symmAllReduce(&x, &y, 1, symmUint32, symmSum, inside, w.s[2]));
    meet(w.j, n, 1);
    T_OK(symmAllReduce(&x, &z, 1, symmUint32, symmSum, w.comm, w.s[1]));
    T_EQ(symmStreamSynchronize(w.s[1]), symmInvalidUsage);
    T_MSG(symmGetLastError(NULL), "symmCommDomain's");
    (void)symmStreamSynchronize(w.s[2]);
    end(&w);
}
static void calls_inside_must_have_ended(void) {
    T_EXPECT_WARNINGS();
    run("ab", 0, beside_inner_rank);
    run("aab", 0, beside_inner_rank);
}

/* Without memory the call is not made: the program may make it again. A capture is lost. */
static void memory_rank(int rank, int n, void *arg) {
    world w = begin(arg, rank, n);
    uint32_t x = 1, y = 0;
    symmGraph_t graph;
    meet(w.j, n, 1);
    if (!rank) {
        T_EQ(symm_fail_arm("across_queue:error:2"), 0); /* the copy that the stream would have */
        T_EQ(symmAllReduce(&x, &y, 1, symmUint32, symmSum, w.comm, w.s[1]), symmOutOfMemory);
        T_OK(symmStreamQuery(w.s[1]));
        T_OK(symmStreamBeginCapture(w.s[1]));
        T_EQ(symm_fail_arm("across_queue:error:2"), 0);
        T_EQ(symmAllReduce(&x, &y, 1, symmUint32, symmSum, w.comm, w.s[1]), symmOutOfMemory);
        T_EQ(symm_fail_arm(""), 0);
        T_CHECK(symmStreamEndCapture(w.s[1], &graph) != symmSuccess);
    }
    meet(w.j, n, 2);
    T_OK(symmAllReduce(&x, &y, 1, symmUint32, symmSum, w.comm, w.s[1]));
    sync_all(&w);
    T_EQ(y, (uint32_t)n);
    end(&w);
}
static void without_memory_nothing_is_given(void) {
    T_EXPECT_WARNINGS();
    run("aab", 0, memory_rank);
}

/* ---- children -------------------------------------------------------------------------------- */

/* A split comes behind what streams have, and what it makes serves streams as well. */
static void child_rank(int rank, int n, void *arg) {
    world w = begin(arg, rank, n);
    uint32_t x = 1;
    symmComm_t child;
    for (int i = 0; i < 5; i++)
        T_OK(symmAllReduce(&x, &x, 1, symmUint32, symmSum, w.comm, w.s[1 + i % STREAMS]));
    T_OK(symmCommSplit(w.comm, 0, -rank, &child, NULL));
    T_EQ(x, (uint32_t)(n * n * n * n * n));
    T_OK(symmAllReduce(&x, &x, 1, symmUint32, symmMax, child, w.s[1]));
    T_OK(symmCommDestroy(child));
    T_EQ(x, (uint32_t)(n * n * n * n * n));
    end(&w);
}
static void a_split_comes_behind_streams(void) {
    run("ab", 0, child_rank);
    run("aabb", 0, child_rank);
}

/* So do a registration and a shrink, which are the domain's first: rank 0's worker comes later to
 * the call than its thread to what follows. mode 0: a registration; 1: a shrink. */
static void setup_rank(int rank, int n, void *arg) {
    enum { BYTES = 1 << 16 };
    world w = begin(arg, rank, n);
    uint32_t x = 1, y = 0;
    symmComm_t child = NULL;
    symmWindow_t win = NULL;
    void *buff;
    T_OK(symmMemAlloc(&buff, BYTES));
    if (!rank) T_OK(symmStreamHostFunc(w.s[1], nap, NULL));
    T_OK(symmAllReduce(&x, &y, 1, symmUint32, symmSum, w.comm, w.s[1]));
    if (rank) usleep(20000); /* the worker is inside now */
    if (w.j->mode)
        T_OK(symmCommShrink(w.comm, NULL, 0, &child, NULL, 0));
    else
        T_OK(symmWindowRegister(w.comm, buff, BYTES, &win, 0));
    T_EQ(y, (uint32_t)n);
    if (win) T_OK(symmWindowDeregister(w.comm, win));
    if (child) T_OK(symmCommDestroy(child));
    end(&w);
    T_OK(symmMemFree(buff));
}
static void set_up_comes_behind_streams(void) {
    for (int mode = 0; mode < 2; mode++) {
        run("aab", mode, setup_rank);
        run("abab", mode, setup_rank);
    }
}

T_MAIN(T_TIMEOUT(calls_keep_their_order, 120), T(a_call_does_not_wait_for_others),
       T(messages_of_several_streams), T(a_group_keeps_the_order_of_a_stream),
       T(a_call_keeps_what_it_was_given), T(a_factor_is_read_when_the_call_runs),
       T(captured_calls_are_replayed), T(a_launch_in_a_group_runs_at_once),
       T(what_is_wrong_is_refused_at_the_call), T_TIMEOUT(streams_hear_of_an_end, 120),
       T(calls_hear_of_an_abort), T(calls_inside_must_have_ended),
       T(without_memory_nothing_is_given), T(a_split_comes_behind_streams),
       T(set_up_comes_behind_streams))
