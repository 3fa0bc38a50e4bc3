/* fault_revoke.c - what a rank gets that comes to its next call after a peer's revoke: the abort,
 * whatever the call and however much of it the peers have done already. Ranks are processes and
 * threads; each uses the kit from its own thread, no lock. */
#include "graph_kit.h"
#include "fault_kit.h"

enum { N = 3, COUNT = 40, DIFFERENT = COUNT + 1 };

/* The first call of a late rank: as the revoker's, another one, on a stream, replayed, and calls
 * that are no collectives. */
enum { SAME, OTHER, STREAM, REPLAY, FINALIZE, EXPLAIN, REGISTER, SPLIT, DEREGISTER, WAYS };

typedef struct {
    symmComm_t comm;
    symmStream_t stream;
    symmGraph_t graph;
    symmWindow_t win;
    int *buf;
} late;

static symmResult_t sum(const late *l, size_t count, symmStream_t stream) {
    return symmAllReduce(l->buf, l->buf + 64, count, symmInt32, symmSum, l->comm, stream);
}

static late late_open(fk *f, int rank, int n) {
    late l = {fk_open(f, rank, n), NULL, NULL, NULL, NULL};
    T_OK(symmStreamCreate(&l.stream));
    T_OK(symmMemAlloc((void **)&l.buf, 2 << 20));
    T_OK(symmWindowRegister(l.comm, l.buf, 2 << 20, &l.win, SYMM_WIN_DEFAULT));
    T_OK(symmStreamBeginCapture(l.stream));
    T_OK(sum(&l, COUNT, l.stream));
    T_OK(symmStreamEndCapture(l.stream, &l.graph));
    return l;
}

static symmResult_t on_stream(symmResult_t given, symmStream_t stream) {
    return given ? given : symmStreamSynchronize(stream);
}

static symmResult_t first_call(const late *l, int way) {
    symmExplain_t plan = {.size = sizeof plan};
    symmWindow_t win;
    symmComm_t child;
    switch (way) {
    case SAME: return sum(l, COUNT, NULL);
    case OTHER: return sum(l, DIFFERENT, NULL);
    case STREAM: return on_stream(sum(l, COUNT, l->stream), l->stream);
    case REPLAY: return on_stream(symmGraphLaunch(xg_exec(l->graph), l->stream), l->stream);
    case FINALIZE: return symmCommFinalize(l->comm);
    case EXPLAIN:
        return symmExplain(l->comm, symmCollAllReduce, l->buf, l->buf, COUNT, symmInt32, symmSum, 0,
                           &plan);
    case REGISTER: return symmWindowRegister(l->comm, l->buf, 4096, &win, SYMM_WIN_DEFAULT);
    case SPLIT: return symmCommSplit(l->comm, 0, 0, &child, NULL);
    default: return symmWindowDeregister(l->comm, l->win);
    }
}

/* Rank 1 has done its part of the call before it revokes, so that the others would find all they
 * wait for. */
static void part_and_revoke(const late *l) {
    T_OK(sum(l, COUNT, l->stream));
    kit_sleep(20);
    T_OK(symmCommRevoke(l->comm, 0));
    T_ERR(symmStreamSynchronize(l->stream), symmAborted);
}

static void goes_on(fk *f, late *l, int rank, int n) {
    symmComm_t next;
    T_OK(symmCommShrink(l->comm, NULL, 0, &next, NULL, 0));
    fk_works(next, rank, n);
    kit_barrier(&f->k, n);
    T_OK(xg_destroy(l->graph));
    T_OK(symmCommDestroy(l->comm));
    T_OK(symmCommDestroy(next));
    T_OK(symmStreamDestroy(l->stream));
    T_OK(symmMemFree(l->buf));
}

static void late_rank(int rank, int n, void *arg) {
    fk *f = arg;
    late l = late_open(f, rank, n);
    kit_barrier(&f->k, n);
    if (rank == f->victim) part_and_revoke(&l);
    kit_barrier(&f->k, n);
    if (rank != f->victim && f->how == DEREGISTER) {
        T_OK(first_call(&l, f->how));
    } else if (rank != f->victim) {
        T_ERR(first_call(&l, f->how), symmAborted);
        T_MSG(symmGetLastError(l.comm), "rank 1");
    }
    T_ERR(symmBarrier(l.comm, NULL), symmAborted);
    goes_on(f, &l, rank, n);
}

static void every_next_call_of_processes(void) {
    T_EXPECT_WARNINGS();
    for (int way = 0; way < WAYS; way++) T_FORK(N, late_rank, fk_new(1, way));
}

static void every_next_call_of_threads(void) {
    T_EXPECT_WARNINGS();
    for (int way = 0; way < WAYS; way++) T_THREADS(N, late_rank, fk_new(1, way));
}

/* Behind a call that runs already a second one is queued. It begins after the revoke. */
static void hold(void *arg) {
    fk *f = arg;
    kit_await_flag(&f->k, 1);
}

static void queued_rank(int rank, int n, void *arg) {
    fk *f = arg;
    late l = late_open(f, rank, n);
    kit_barrier(&f->k, n);
    if (rank == f->victim) {
        part_and_revoke(&l);
        atomic_store(&f->k.flag, 1);
    } else {
        T_OK(symmStreamHostFunc(l.stream, hold, f));
        T_OK(sum(&l, COUNT, l.stream));
        T_ERR(symmStreamSynchronize(l.stream), symmAborted);
    }
    goes_on(f, &l, rank, n);
}

static void a_call_that_waits_in_a_stream(void) {
    T_EXPECT_WARNINGS();
    T_FORK(N, queued_rank, fk_new(1, 0));
    T_THREADS(N, queued_rank, fk_new(1, 0));
}

/* Abort leaves the peers in the same state, and frees the caller's. */
static void abort_rank(int rank, int n, void *arg) {
    fk *f = arg;
    symmComm_t comm = fk_open(f, rank, n);
    kit_barrier(&f->k, n);
    if (rank == f->victim) T_OK(symmCommAbort(comm));
    kit_barrier(&f->k, n);
    if (rank == f->victim) return;
    T_ERR(symmCommFinalize(comm), symmAborted);
    T_OK(symmCommDestroy(comm));
}

static void finalize_after_a_peers_abort(void) {
    T_EXPECT_WARNINGS();
    T_FORK(N, abort_rank, fk_new(1, 0));
}

T_MAIN(T(every_next_call_of_processes), T(every_next_call_of_threads),
       T(a_call_that_waits_in_a_stream), T(finalize_after_a_peers_abort))
