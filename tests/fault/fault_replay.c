/* fault_replay.c - the end of a communicator while graphs with its calls are launched: Finalize and
 * Destroy wait for those launches, what waits in them hears of deaths, and afterwards such a graph
 * is refused. Ranks are threads, or forked where one dies; what a worker writes is read behind the
 * call that is said to wait. */
#include <pthread.h>
#include <stdatomic.h>

#include "graph_kit.h"
#include "fault_kit.h"

enum { N = 2, COUNT = 5000, SLOW_US = 50000 };

typedef struct {
    symmComm_t comm[4];
    _Atomic int result;
} job;

typedef struct {
    symmComm_t comm;
    symmStream_t stream;
    symmGraph_t graph;
    int *in, *out;
} rig;

static void stand(void *arg) {
    (void)arg;
    usleep(SLOW_US);
}

static rig set_up(symmComm_t comm, int rank) {
    rig g = {.comm = comm};
    T_OK(symmStreamCreate(&g.stream));
    g.in = malloc(COUNT * sizeof *g.in);
    g.out = calloc(COUNT, sizeof *g.out);
    for (int i = 0; i < COUNT; i++) g.in[i] = i + rank;
    T_OK(symmStreamBeginCapture(g.stream));
    T_OK(symmAllReduce(g.in, g.out, COUNT, symmInt32, symmSum, comm, g.stream));
    T_OK(symmBarrier(comm, g.stream));
    T_OK(symmStreamEndCapture(g.stream, &g.graph));
    return g;
}

static void expect_sum(const rig *g, int n) {
    for (int i = 0; i < COUNT; i++) T_EQ(g->out[i], n * i + n * (n - 1) / 2);
    memset(g->out, 0, COUNT * sizeof *g->out);
}

static void drop(rig *g) {
    T_OK(xg_destroy(g->graph));
    T_OK(symmStreamDestroy(g->stream));
    free(g->in);
    free(g->out);
}

static void run(t_rank_fn fn) {
    static job j;
    memset(&j, 0, sizeof j);
    T_OK(symmCommInitAll(j.comm, N, NULL));
    T_THREADS(N, fn, &j);
}

/* ---- waited for ---- */

/* The launch stands behind something slow, on a stream that the communicator has had no call on. */
static void waits_rank(int rank, int n, void *arg) {
    job *j = arg;
    rig g = set_up(j->comm[rank], rank);
    symmStream_t other;
    T_OK(symmStreamCreate(&other));
    for (int round = 0; round < 3; round++) {
        T_OK(symmStreamHostFunc(round % 2 ? g.stream : other, stand, NULL));
        T_OK(symmGraphLaunch(xg_exec(g.graph), round % 2 ? g.stream : other));
        T_OK(symmCommFinalize(g.comm));
        expect_sum(&g, n);
    }
    T_OK(symmStreamHostFunc(other, stand, NULL));
    for (int i = 0; i < 5; i++) T_OK(symmGraphLaunch(xg_exec(g.graph), other));
    T_OK(symmCommDestroy(g.comm));
    expect_sum(&g, n);
    T_OK(symmStreamSynchronize(other)); /* nothing was replayed too late */
    T_OK(symmStreamDestroy(other));
    drop(&g);
}

static void finalize_and_destroy_wait_for_launches(void) {
    run(waits_rank);
}

/* A graph that has become part of another one: of that one's launches too. */
static void copied_rank(int rank, int n, void *arg) {
    job *j = arg;
    rig g = set_up(j->comm[rank], rank);
    symmGraph_t whole;
    T_OK(symmStreamBeginCapture(g.stream));
    T_OK(symmStreamHostFunc(g.stream, stand, NULL));
    T_OK(symmGraphLaunch(xg_exec(g.graph), g.stream));
    T_OK(symmStreamEndCapture(g.stream, &whole));
    T_OK(symmGraphLaunch(xg_exec(whole), g.stream));
    T_OK(symmCommDestroy(g.comm));
    expect_sum(&g, n);
    T_ERR(symmGraphLaunch(xg_exec(whole), g.stream), symmInvalidUsage);
    T_OK(symmStreamSynchronize(g.stream));
    T_OK(xg_destroy(whole));
    drop(&g);
}

static void a_graph_in_a_graph_is_waited_for(void) {
    T_EXPECT_WARNINGS();
    run(copied_rank);
}

/* ---- refused ---- */

static void refused_rank(int rank, int n, void *arg) {
    job *j = arg;
    rig g = set_up(j->comm[rank], rank);
    symmGraph_t whole;
    T_OK(symmGraphLaunch(xg_exec(g.graph), NULL));
    expect_sum(&g, n);
    T_OK(symmCommDestroy(g.comm));
    for (int i = 0; i < 2; i++) {
        T_ERR(symmGraphLaunch(xg_exec(g.graph), i ? g.stream : NULL), symmInvalidUsage);
        T_MSG(symmGetLastError(NULL), "launched after that was destroyed");
        T_OK(symmStreamSynchronize(g.stream)); /* nothing was given to it */
    }
    T_OK(symmStreamBeginCapture(g.stream));
    T_ERR(symmGraphLaunch(xg_exec(g.graph), g.stream), symmInvalidUsage);
    T_OK(symmStreamEndCapture(g.stream, &whole));
    T_OK(symmGraphLaunch(xg_exec(whole), g.stream)); /* there is nothing in it */
    T_OK(symmStreamSynchronize(g.stream));
    T_OK(xg_destroy(whole));
    for (int i = 0; i < COUNT; i++) T_EQ(g.out[i], 0);
    drop(&g);
}

static void a_graph_of_a_destroyed_communicator_is_refused(void) {
    T_EXPECT_WARNINGS();
    run(refused_rank);
    T_EQ(SYMM_STAT_GET(comms), 0);
}

/* ---- from inside ---- */

static void destroy_inside(void *arg) {
    job *j = arg;
    atomic_store(&j->result, symmCommDestroy(j->comm[0]));
}

/* What a graph runs must not wait for that graph. */
static void a_replay_cannot_destroy_its_communicator(void) {
    static job j;
    symmStream_t s;
    symmGraph_t g;
    T_EXPECT_WARNINGS();
    T_OK(symmCommInitAll(j.comm, 1, NULL));
    T_OK(symmStreamCreate(&s));
    T_OK(symmStreamBeginCapture(s));
    T_OK(symmStreamHostFunc(s, destroy_inside, &j));
    T_OK(symmBarrier(j.comm[0], s));
    T_OK(symmStreamEndCapture(s, &g));
    for (int i = 0; i < 2; i++) {
        atomic_store(&j.result, symmSuccess);
        T_OK(symmGraphLaunch(xg_exec(g), i ? s : NULL));
        T_OK(symmStreamSynchronize(s));
        T_EQ(atomic_load(&j.result), symmInvalidUsage);
    }
    T_OK(symmCommDestroy(j.comm[0]));
    T_OK(xg_destroy(g));
    T_OK(symmStreamDestroy(s));
}

/* ---- a peer dies ---- */

enum { FINALIZE, DESTROY, ABORT };

static void *kill_later(void *arg) {
    (void)arg;
    usleep(100000);
    kill(getpid(), SIGKILL);
    return NULL;
}

/* The victim never launches. The other one waits in Finalize, or in Destroy, for a replay that
 * waits for it. */
static void dies_rank(int rank, int n, void *arg) {
    fk *f = arg;
    pthread_t t;
    rig g = set_up(fk_open(f, rank, n), rank);
    fk_works(g.comm, rank, n);
    kit_barrier(&f->k, n);
    if (rank == f->victim) {
        if (f->how != ABORT) T_EQ(pthread_create(&t, NULL, kill_later, NULL), 0);
        if (f->how != ABORT) pause();
        usleep(20000);
        T_OK(symmCommAbort(g.comm));
        drop(&g);
        return;
    }
    T_OK(symmStreamHostFunc(g.stream, stand, NULL));
    T_OK(symmGraphLaunch(xg_exec(g.graph), g.stream));
    if (f->how == FINALIZE) {
        T_ERR(symmCommFinalize(g.comm), symmRemoteError);
        T_MSG(symmGetLastError(g.comm), "rank 1 died");
    }
    T_OK(symmCommDestroy(g.comm));
    T_ERR(symmStreamSynchronize(g.stream), f->how == ABORT ? symmAborted : symmRemoteError);
    drop(&g);
}

static void a_replay_that_is_waited_for_hears_of_a_death(void) {
    T_EXPECT_WARNINGS();
    T_FORK_DIES(2, 1, dies_rank, fk_new(1, FINALIZE));
    T_FORK_DIES(2, 1, dies_rank, fk_new(1, DESTROY));
    T_FORK(2, dies_rank, fk_new(1, ABORT));
}

T_MAIN(T_TIMEOUT(finalize_and_destroy_wait_for_launches, 30),
       T_TIMEOUT(a_graph_in_a_graph_is_waited_for, 30),
       T_TIMEOUT(a_graph_of_a_destroyed_communicator_is_refused, 30),
       T_TIMEOUT(a_replay_cannot_destroy_its_communicator, 30),
       T_TIMEOUT(a_replay_that_is_waited_for_hears_of_a_death, 30))
