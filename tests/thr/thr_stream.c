/* thr_stream.c - collectives given to host streams, with ranks as threads: asynchronous, in order,
 * over a change of stream, in two communicators, in groups, captured and replayed between eager
 * ones, and beyond the end of windows and communicators. Each rank's thread uses its own
 * communicator and streams; what a worker writes is read only behind a synchronize. */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <unistd.h>

#include "base/stats.h"
#include "graph_kit.h"
#include "coll_kit.h"

enum { N = 3, COUNT = 3000, SMALL = 20, REPLAYS = CK_SLOW ? 200 : 1000 };

/* Registered memory of a rank: two vectors, one that holds a gather of SMALL, and one to compare
 * with. */
typedef struct {
    uint64_t a[COUNT], b[COUNT], all[SYMM_MAX_RANKS * SMALL];
} vectors;

typedef struct {
    symmComm_t comm[2][8];
    _Atomic int open, results;
    symmGraph_t graphs[8];
    symmStream_t streams[8];
    vectors *v[8];
} job;

static vectors *new_vectors(void) {
    vectors *v;
    T_OK(symmMemAlloc((void **)&v, sizeof *v));
    return v;
}

static symmStream_t new_stream(void) {
    symmStream_t s = NULL;
    T_OK(symmStreamCreate(&s));
    return s;
}

static symmWindow_t new_window(symmComm_t comm, vectors *v) {
    symmWindow_t win;
    T_OK(symmWindowRegister(comm, v, sizeof *v, &win, SYMM_WIN_DEFAULT));
    return win;
}

static void sum(const uint64_t *in, uint64_t *out, size_t count, symmComm_t comm, symmStream_t s) {
    T_OK(symmAllReduce(in, out, count, symmUint64, symmSum, comm, s));
}

/* Rank's element i of round `round`, and what the ranks' sum is. */
static uint64_t element(int rank, size_t i, int round) {
    return ck_hash((uint64_t)round, i, (uint64_t)rank);
}
static void fill(uint64_t *x, size_t count, int rank, int round) {
    for (size_t i = 0; i < count; i++) x[i] = element(rank, i, round);
}
static uint64_t total(size_t i, int n, int round) {
    uint64_t t = 0;
    for (int r = 0; r < n; r++) t += element(r, i, round);
    return t;
}
/* x is the sum of the ranks' elements, times n^again: summed so often once more. */
static void expect(const uint64_t *x, size_t count, int n, int round, int again) {
    uint64_t factor = 1;
    while (again--) factor *= (unsigned)n;
    for (size_t i = 0; i < count; i++) T_EQ(x[i], total(i, n, round) * factor);
}

/* Until every rank has looked at what must not have happened yet. */
static void pass_gate(void *arg) {
    job *j = arg;
    while (atomic_load(&j->open) < N) usleep(200);
}

static void run(int n, t_rank_fn fn, int comms) {
    static job j;
    memset(&j, 0, sizeof j);
    for (int i = 0; i < comms; i++) T_OK(symmCommInitAll(j.comm[i], n, NULL));
    T_THREADS(n, fn, &j);
}

/* ---- order ---- */

/* Calls return while their stream is held up; each builds on the one before. */
static void async_rank(int rank, int n, void *arg) {
    job *j = arg;
    symmComm_t comm = j->comm[0][rank];
    vectors *v = new_vectors();
    symmStream_t s = new_stream();
    symmWindow_t win = new_window(comm, v);
    fill(v->a, COUNT, rank, 1);
    memset(v->b, 0, sizeof v->b);
    T_OK(symmStreamHostFunc(s, pass_gate, j));
    for (int i = 0; i < 10; i++) { /* large and small, so of several kernels */
        sum(i % 2 ? v->b : v->a, i % 2 ? v->a : v->b, COUNT, comm, s);
        sum(v->all, v->all, SMALL, comm, s);
        if (i == 5) T_OK(symmBarrier(comm, s));
    }
    T_ERR(symmStreamQuery(s), symmInProgress);
    for (int i = 0; i < COUNT; i++)
        T_EQ(v->b[i], 0); /* the worker stands at the gate: nothing has run */
    atomic_fetch_add(&j->open, 1);
    T_OK(symmStreamSynchronize(s));
    T_OK(symmStreamQuery(s));
    expect(v->a, COUNT, n, 1, 9);
    expect(v->b, COUNT, n, 1, 8);
    T_OK(symmWindowDeregister(comm, win));
    T_OK(symmStreamDestroy(s));
    T_OK(symmCommDestroy(comm));
    T_OK(symmMemFree(v));
}

static void calls_are_asynchronous_and_in_order(void) {
    run(N, async_rank, 1);
}

/* Three streams and none, each call in place on the last one's result. */
static void change_rank(int rank, int n, void *arg) {
    job *j = arg;
    symmComm_t comm = j->comm[0][rank];
    vectors *v = new_vectors();
    symmStream_t s[3] = {new_stream(), new_stream(), new_stream()};
    fill(v->a, COUNT, rank, 2);
    T_OK(symmStreamHostFunc(s[0], pass_gate, j));
    for (int i = 0; i < 9; i++) sum(v->a, v->a, COUNT, comm, s[i % 3]);
    usleep(2000);
    for (int i = 0; i < 3; i++) T_ERR(symmStreamQuery(s[i]), symmInProgress);
    atomic_fetch_add(&j->open, 1);
    sum(v->a, v->a, COUNT, comm, NULL); /* waits for all the others */
    expect(v->a, COUNT, n, 2, 9);
    for (int i = 0; i < 40; i++) sum(v->a, v->a, SMALL, comm, i % 4 == 3 ? NULL : s[i % 4]);
    T_OK(symmStreamSynchronize(s[2]));
    expect(v->a, SMALL, n, 2, 49);
    expect(v->a + SMALL, 0, n, 2, 0);
    sum(v->a, v->a, SMALL, comm, s[1]);
    T_OK(symmStreamDestroy(s[1])); /* waits; the next call finds its last stream gone */
    sum(v->a, v->a, SMALL, comm, s[0]);
    T_OK(symmCommFinalize(comm));
    expect(v->a, SMALL, n, 2, 51);
    T_OK(symmStreamDestroy(s[0]));
    T_OK(symmStreamDestroy(s[2]));
    T_OK(symmCommDestroy(comm));
    T_OK(symmMemFree(v));
}

static void a_change_of_stream_keeps_the_order(void) {
    run(N, change_rank, 1);
}

/* Two communicators on two streams run side by side: neither waits for the other, which is held
 * up. */
static void two_comms_rank(int rank, int n, void *arg) {
    job *j = arg;
    symmComm_t a = j->comm[0][rank], b = j->comm[1][rank];
    vectors *v = new_vectors(), *w = new_vectors();
    symmStream_t s = new_stream(), t = new_stream();
    symmWindow_t in_a = new_window(a, v), in_b = new_window(b, w), both = new_window(b, v);
    fill(v->a, COUNT, rank, 3);
    fill(w->a, COUNT, rank, 4);
    T_OK(symmStreamHostFunc(s, pass_gate, j));
    for (int i = 0; i < 20; i++) {
        sum(v->a, v->a, COUNT, a, s);
        sum(w->a, w->a, COUNT, b, t);
    }
    T_OK(symmStreamSynchronize(t));
    expect(w->a, COUNT, n, 4, 19);
    T_ERR(symmStreamQuery(s), symmInProgress);
    sum(w->a, w->a, COUNT, b, t);
    atomic_fetch_add(&j->open, 1);
    T_OK(symmStreamSynchronize(s));
    expect(v->a, COUNT, n, 3, 19);
    sum(v->a, v->a, COUNT, b, t); /* the same memory in the other communicator */
    T_OK(symmStreamSynchronize(t));
    expect(v->a, COUNT, n, 3, 20);
    expect(w->a, COUNT, n, 4, 20);
    T_OK(symmWindowDeregister(a, in_a));
    T_OK(symmWindowDeregister(b, in_b));
    T_OK(symmWindowDeregister(b, both));
    T_OK(symmStreamDestroy(s));
    T_OK(symmStreamDestroy(t));
    T_OK(symmCommDestroy(a));
    T_OK(symmCommDestroy(b));
    T_OK(symmMemFree(v));
    T_OK(symmMemFree(w));
}

static void two_communicators_on_two_streams(void) {
    run(N, two_comms_rank, 2);
}

/* ---- groups ---- */

static void group_round(job *j, int n, int round, int streams) {
    symmRedOp_t op[8];
    for (int r = 0; r < n; r++) {
        double two = 2;
        fill(j->v[r]->a, COUNT, r, round);
        T_OK(symmRedOpCreatePreMulSum(&op[r], &two, symmFloat64, symmScalarHostImmediate,
                                      j->comm[0][r]));
        for (int i = 0; i < SMALL; i++) ((double *)(void *)j->v[r]->all)[i] = r + i;
    }
    T_OK(symmGroupStart());
    for (int r = 0; r < n; r++) { /* rank by rank, all calls of each: End must not run them so */
        symmStream_t s = streams ? j->streams[r] : NULL;
        sum(j->v[r]->a, j->v[r]->b, COUNT, j->comm[0][r], s);
        T_OK(symmGroupStart());
        T_OK(symmBarrier(j->comm[0][r], s));
        T_OK(symmGroupEnd()); /* an inner one starts nothing */
        T_OK(
            symmAllReduce(j->v[r]->all, j->v[r]->all, SMALL, symmFloat64, op[r], j->comm[0][r], s));
        sum(j->v[r]->b, j->v[r]->b, COUNT, j->comm[0][r], s);
    }
    T_OK(symmGroupEnd());
    for (int r = 0; r < n; r++) {
        if (streams) T_OK(symmStreamSynchronize(j->streams[r]));
        expect(j->v[r]->b, COUNT, n, round, 1);
        for (int i = 0; i < SMALL; i++)
            T_CHECK(((double *)(void *)j->v[r]->all)[i] == 2. * (n * i + n * (n - 1) / 2));
        T_OK(symmRedOpDestroy(op[r], j->comm[0][r]));
    }
}

static void one_thread_drives_all_ranks(void) {
    static job j;
    symmWindow_t win[8];
    enum { RANKS = 5 };
    T_OK(symmCommInitAll(j.comm[0], RANKS, NULL));
    for (int r = 0; r < RANKS; r++) {
        j.v[r] = new_vectors();
        j.streams[r] = new_stream();
    }
    for (int round = 0; round < 8; round++) {
        if (round == 2) {
            T_OK(symmGroupStart());
            for (int r = 0; r < RANKS; r++)
                T_OK(symmWindowRegister(j.comm[0][r], j.v[r], sizeof(vectors), &win[r], 0));
            T_OK(symmGroupEnd());
        }
        group_round(&j, RANKS, round, round & 1);
    }
    /* Work on streams blocks nobody, so it needs no group. */
    for (int r = 0; r < RANKS; r++) sum(j.v[r]->a, j.v[r]->b, COUNT, j.comm[0][r], j.streams[r]);
    for (int r = 0; r < RANKS; r++) T_OK(symmStreamSynchronize(j.streams[r]));
    for (int r = 0; r < RANKS; r++) {
        expect(j.v[r]->b, COUNT, RANKS, 7, 0);
        T_OK(symmWindowDeregister(j.comm[0][r], win[r]));
        T_OK(symmStreamDestroy(j.streams[r]));
        T_OK(symmCommDestroy(j.comm[0][r]));
        T_OK(symmMemFree(j.v[r]));
    }
}

/* ---- capture and replay ---- */

/* a -> b summed, b summed again in place, the first few of a gathered. */
static symmGraph_t capture(symmComm_t comm, vectors *v, symmStream_t s) {
    symmGraph_t g = NULL;
    T_OK(symmStreamBeginCapture(s));
    sum(v->a, v->b, COUNT, comm, s);
    T_OK(symmBarrier(comm, s));
    sum(v->b, v->b, COUNT, comm, s);
    T_OK(symmAllGather(v->a, v->all, SMALL, symmUint64, comm, s));
    T_OK(symmStreamEndCapture(s, &g));
    return g;
}

static void expect_replayed(const vectors *v, int n, int round) {
    for (size_t i = (size_t)round % 7; i < COUNT; i += 7)
        T_EQ(v->b[i], total(i, n, round) * (unsigned)n);
    for (int r = 0; r < n; r++)
        for (size_t i = 0; i < SMALL; i++)
            T_EQ(v->all[(size_t)r * SMALL + i], element(r, i, round));
}

static void replay_rank(int rank, int n, void *arg) {
    job *j = arg;
    symmComm_t comm = j->comm[0][rank];
    vectors *v = new_vectors();
    uint64_t eager[SMALL];
    symmStream_t s = new_stream();
    symmWindow_t win = new_window(comm, v);
    memset(v, 0, sizeof *v);
    symmGraph_t g = capture(comm, v, s);
    for (int i = 0; i < COUNT; i++) T_EQ(v->b[i], 0); /* recorded, not run */
    for (int round = 0; round < REPLAYS; round++) {
        fill(v->a, COUNT, rank, round);
        fill(eager, SMALL, rank, round);
        T_OK(symmGraphLaunch(xg_exec(g), s));
        sum(eager, eager, SMALL, comm, s);
        if (round % 5 == 0) sum(v->all, v->all, 0, comm, s);
        T_OK(symmStreamSynchronize(s));
        expect_replayed(v, n, round);
        expect(eager, SMALL, n, round, 0);
        if (round % 3 == 0) { /* eager on the NULL stream, over the captured call's result */
            sum(v->b, v->b, COUNT, comm, NULL);
            for (size_t i = 0; i < COUNT; i += 50)
                T_EQ(v->b[i], total(i, n, round) * (unsigned)(n * n));
        }
    }
    T_OK(xg_destroy(g));
    T_OK(symmWindowDeregister(comm, win));
    T_OK(symmStreamDestroy(s));
    T_OK(symmCommDestroy(comm));
    T_OK(symmMemFree(v));
}

static void a_thousand_replays_between_eager_calls(void) {
    run(2, replay_rank, 1);
}
static void replays_of_three_ranks(void) {
    setenv("SYMM_CTAS", "3", 1);
    setenv("SYMM_ALGO", "all_reduce_2shot_packet,all_gather_push_packet", 1);
    run(N, replay_rank, 1);
}

/* Two streams part before the calls. The first call stands behind something slow, and the second
 * builds on its result. */
static void stand(void *arg) {
    (void)arg;
    usleep(20000);
}

static void follow(symmStream_t first, symmStream_t then) {
    symmEvent_t e;
    T_OK(symmEventCreate(&e));
    T_OK(symmEventRecord(e, first));
    T_OK(symmStreamWaitEvent(then, e));
    T_OK(symmEventDestroy(e));
}

static void forked_rank(int rank, int n, void *arg) {
    job *j = arg;
    symmComm_t comm = j->comm[0][rank];
    vectors *v = new_vectors();
    symmStream_t s = new_stream(), t = new_stream();
    symmGraph_t g;
    memset(v, 0, sizeof *v);
    sum(v->all, v->all, SMALL, comm, t);
    T_OK(symmStreamBeginCapture(s));
    follow(s, t);
    T_OK(symmStreamHostFunc(s, stand, NULL));
    sum(v->a, v->b, COUNT, comm, s);
    sum(v->b, v->b, COUNT, comm, t);
    sum(v->b, v->b, COUNT, comm, t);
    sum(v->b, v->b, COUNT, comm, s); /* joins them as well */
    T_OK(symmStreamEndCapture(s, &g));
    for (int round = 0; round < 5; round++) {
        fill(v->a, COUNT, rank, round);
        T_OK(symmGraphLaunch(xg_exec(g), round % 2 ? s : t));
        T_OK(symmStreamSynchronize(round % 2 ? s : t));
        expect(v->b, COUNT, n, round, 3);
    }
    T_OK(xg_destroy(g));
    T_OK(symmStreamDestroy(s));
    T_OK(symmStreamDestroy(t));
    T_OK(symmCommDestroy(comm));
    T_OK(symmMemFree(v));
}

static void captured_calls_of_two_streams_keep_their_order(void) {
    run(2, forked_rank, 1);
}

/* Two captures under way, with calls in turns: each keeps the order of its own. */
static void turns_rank(int rank, int n, void *arg) {
    enum { GRAPHS = 2 };
    job *j = arg;
    symmComm_t comm = j->comm[0][rank];
    vectors *v[GRAPHS];
    symmStream_t s[GRAPHS][2];
    symmGraph_t g[GRAPHS];
    for (int i = 0; i < GRAPHS; i++) {
        v[i] = new_vectors();
        fill(v[i]->a, COUNT, rank, i);
        memset(v[i]->b, 0, sizeof v[i]->b);
        for (int k = 0; k < 2; k++) s[i][k] = new_stream();
        T_OK(symmStreamBeginCapture(s[i][0]));
        follow(s[i][0], s[i][1]);
        T_OK(symmStreamHostFunc(s[i][0], stand, NULL));
    }
    for (int turn = 0; turn < 4 * GRAPHS; turn++) {
        const int i = turn % GRAPHS;
        sum(turn < GRAPHS ? v[i]->a : v[i]->b, v[i]->b, COUNT, comm, s[i][turn / GRAPHS % 2]);
    }
    for (int i = 0; i < GRAPHS; i++) {
        follow(s[i][1], s[i][0]);
        T_OK(symmStreamEndCapture(s[i][0], &g[i]));
        T_OK(symmGraphLaunch(xg_exec(g[i]), s[i][0]));
        T_OK(symmStreamSynchronize(s[i][0]));
        expect(v[i]->b, COUNT, n, i, 3);
    }
    T_OK(symmCommDestroy(comm));
    for (int i = 0; i < GRAPHS; i++) {
        T_OK(xg_destroy(g[i]));
        for (int k = 0; k < 2; k++) T_OK(symmStreamDestroy(s[i][k]));
        T_OK(symmMemFree(v[i]));
    }
}

static void captures_in_turns_keep_an_order_each(void) {
    run(2, turns_rank, 1);
}

/* The graph's reference keeps the window; the graph outlives the communicator, but does not run any
 * more. */
static void outlive_rank(int rank, int n, void *arg) {
    job *j = arg;
    symmComm_t comm = j->comm[0][rank];
    vectors *v = new_vectors();
    symmStream_t s = new_stream();
    symmWindow_t win = new_window(comm, v);
    memset(v, 0, sizeof *v);
    symmGraph_t g = capture(comm, v, s);
    T_OK(symmWindowDeregister(comm, win));
    T_CHECK(SYMM_STAT_GET(windows) >= 1);
    for (int round = 0; round < 20; round++) {
        fill(v->a, COUNT, rank, round);
        T_OK(symmGraphLaunch(xg_exec(g), s));
        T_OK(symmStreamSynchronize(s));
        expect_replayed(v, n, round);
    }
    T_OK(symmCommDestroy(comm));
    T_CHECK(SYMM_STAT_GET(windows) >= 1);
    v->b[0] = 7;
    T_ERR(symmGraphLaunch(xg_exec(g), s), symmInvalidUsage);
    T_OK(symmStreamSynchronize(s));
    T_EQ(v->b[0], 7);
    T_OK(xg_destroy(g));
    T_OK(symmStreamDestroy(s));
    T_OK(symmMemFree(v));
}

static void graphs_outlive_windows_and_communicators(void) {
    T_EXPECT_WARNINGS(); /* the replay after the end */
    run(N, outlive_rank, 1);
    T_EQ(SYMM_STAT_GET(windows), 0);
    T_EQ(SYMM_STAT_GET(comms), 0);
}

/* A destroyed communicator's work on streams has ended. */
static void destroy_rank(int rank, int n, void *arg) {
    job *j = arg;
    symmComm_t comm = j->comm[0][rank];
    vectors *v = new_vectors();
    symmStream_t s = new_stream();
    fill(v->a, COUNT, rank, 5);
    for (int i = 0; i < 10; i++) sum(v->a, v->a, COUNT, comm, s);
    T_OK(symmCommDestroy(comm));
    expect(v->a, COUNT, n, 5, 9);
    T_OK(symmStreamDestroy(s));
    T_OK(symmMemFree(v));
}

static void destroy_waits_for_its_work(void) {
    run(N, destroy_rank, 1);
}

/* ---- groups ---- */

/* One thread drives two ranks in a group, one on the NULL stream and one on a worker: whichever
 * comes first. */
static void a_group_mixes_null_and_worker_streams(void) {
    symmComm_t comm[2];
    symmStream_t s;
    int in[2] = {3, 4}, out[2];
    T_OK(symmCommInitAll(comm, 2, NULL));
    T_OK(symmStreamCreate(&s));
    for (int first = 0; first < 2; first++) {
        out[0] = out[1] = 0;
        T_OK(symmGroupStart());
        for (int k = 0; k < 2; k++) {
            int r = first ^ k;
            T_OK(symmAllReduce(&in[r], &out[r], 1, symmInt32, symmSum, comm[r], r ? s : NULL));
        }
        T_OK(symmGroupEnd());
        T_OK(symmStreamSynchronize(s));
        T_EQ(out[0], 7);
        T_EQ(out[1], 7);
    }
    for (int r = 0; r < 2; r++) T_OK(symmCommDestroy(comm[r]));
    T_OK(symmStreamDestroy(s));
}

/* A stream that is none is found at the call: at the end the other rank would wait in its kernel
 * already. */
static void a_group_checks_streams_at_the_call(void) {
    symmComm_t comm[2];
    symmStream_t s, gone;
    int in[2] = {3, 4}, out[2] = {0, 0};
    T_EXPECT_WARNINGS();
    T_OK(symmCommInitAll(comm, 2, NULL));
    T_OK(symmStreamCreate(&s));
    T_OK(symmStreamCreate(&gone));
    T_OK(symmStreamDestroy(gone));
    T_OK(symmGroupStart());
    T_OK(symmAllReduce(&in[0], &out[0], 1, symmInt32, symmSum, comm[0], s));
    T_ERR(symmAllReduce(&in[1], &out[1], 1, symmInt32, symmSum, comm[1], gone),
          symmInvalidArgument);
    T_ERR(symmGroupEnd(), symmInvalidArgument);
    T_OK(symmStreamSynchronize(s)); /* nothing was given to it */
    T_OK(symmGroupStart());
    for (int r = 0; r < 2; r++)
        T_OK(symmAllReduce(&in[r], &out[r], 1, symmInt32, symmSum, comm[r], r ? NULL : s));
    T_OK(symmGroupEnd());
    T_OK(symmStreamSynchronize(s));
    T_CHECK(out[0] == 7 && out[1] == 7);
    for (int r = 0; r < 2; r++) T_OK(symmCommDestroy(comm[r]));
    T_OK(symmStreamDestroy(s));
}

T_MAIN(T(a_group_mixes_null_and_worker_streams), T(a_group_checks_streams_at_the_call),
       T(calls_are_asynchronous_and_in_order), T(a_change_of_stream_keeps_the_order),
       T(two_communicators_on_two_streams), T(one_thread_drives_all_ranks),
       T(a_thousand_replays_between_eager_calls), T(replays_of_three_ranks),
       T(captured_calls_of_two_streams_keep_their_order), T(captures_in_turns_keep_an_order_each),
       T(graphs_outlive_windows_and_communicators), T(destroy_waits_for_its_work))
