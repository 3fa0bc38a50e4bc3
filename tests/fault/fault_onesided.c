/* fault_onesided.c - waits for signals that do not come: the peer dies, leaves, aborts, or raises
 * none before the deadline; memory that ends under captured calls; who waits, in a dump. Forked
 * ranks; no lock. */
#include <fcntl.h>
#include <pthread.h>

#include "fault_kit.h"
#include "onesided_kit.h"

enum { SOON_MS = 1000, ROOM = 1 << 16 };

/* ---- deaths ---------------------------------------------------------------------------------- */

enum { AT_ONCE, UNDER_A_STREAM, IN_A_GROUP, IN_A_REPLAY, WAYS };

/* A wait of which one part comes, and the other, of the victim's, does not. */
static symmResult_t wait_so(int how, symmComm_t comm, int other, int victim, symmStream_t s) {
    const symmSignalWait_t both[] = {{other, 1, 1}, {victim, 2, 3}};
    symmGraph_t graph;
    symmGraphExec_t exec = NULL;
    symmResult_t r;
    if (how == IN_A_GROUP) T_OK(symmGroupStart());
    if (how == IN_A_REPLAY) T_OK(symmStreamBeginCapture(s));
    r = symmWaitSignal(2, both, comm, s);
    if (how == IN_A_GROUP) r = symmGroupEnd();
    if (how == IN_A_REPLAY) {
        T_OK(symmStreamEndCapture(s, &graph));
        T_OK(symmGraphInstantiate(graph, &exec));
        T_OK(symmGraphDestroy(graph));
        r = symmGraphLaunch(exec, s);
    }
    if (!r && s) r = symmStreamSynchronize(s);
    if (exec) T_OK(symmGraphExecDestroy(exec));
    return r;
}

/* Rank 2 dies. Ranks 0 and 1 wait for it and for each other. */
static void survive(fk *f, symmComm_t comm, int rank, int n) {
    symmStream_t s = NULL;
    symmComm_t next;
    if (f->how == UNDER_A_STREAM || f->how == IN_A_REPLAY) T_OK(symmStreamCreate(&s));
    T_ERR(wait_so(f->how, comm, 1 - rank, f->victim, s), symmRemoteError);
    T_MSG(symmGetLastError(comm), "rank 2 died");
    T_CHECKF(fk_ms_since(atomic_load(&f->at_ns)) < SOON_MS, "heard of the death late");
    T_ERR(symmSignal(1 - rank, 1, comm, NULL), symmRemoteError);
    kit_barrier(&f->k, n - 1);
    if (s) T_OK(symmStreamDestroy(s));
    T_OK(symmCommShrink(comm, &f->victim, 1, &next, NULL, 0));
    fk_works(next, rank, n - 1);
    T_OK(symmCommDestroy(next));
    T_OK(symmCommDestroy(comm));
}

static void death_rank(int rank, int n, void *arg) {
    fk *f = arg;
    symmComm_t comm = fk_open(f, rank, n);
    T_OK(rank == f->victim ? symmSignal(0, 2, comm, NULL) : symmSignal(1 - rank, 1, comm, NULL));
    kit_barrier(&f->k, n);
    if (rank != f->victim) {
        survive(f, comm, rank, n);
        return;
    }
    fk_doom(f);
    for (;;) pause();
}
static void a_peer_that_dies(void) {
    T_EXPECT_WARNINGS();
    for (int how = 0; how < WAYS; how++) T_FORK_DIES(3, 2, death_rank, fk_new(2, how));
}

/* ---- leaving, aborting, never coming --------------------------------------------------------- */

/* What rank 1 raised before it left counts; what it owes is an error. What is raised at it, and put
 * to it, goes nowhere: by calls, and by replays of what was captured before. The memory of its
 * window is its own again. */
static symmGraphExec_t captured_put(const ok_world *w, const int32_t *v, symmStream_t s) {
    symmGraph_t g;
    symmGraphExec_t e = NULL;
    T_OK(symmStreamBeginCapture(s));
    T_OK(symmPut(v, 1, symmInt32, 1, w->p.win, 16, w->p.comm, s));
    T_OK(symmStreamEndCapture(s, &g));
    T_OK(symmGraphInstantiate(g, &e));
    T_OK(symmGraphDestroy(g));
    return e;
}

static void leaves_and_writes(fk *f, ok_world *w, int n) {
    int32_t v = 5, *own = (int32_t *)(void *)(w->p.memory + 16);
    T_OK(symmPutSignal(&v, 1, symmInt32, 0, w->p.win, 16, 3, w->p.comm, NULL));
    T_OK(symmCommDestroy(w->p.comm));
    *own = 77;
    kit_barrier(&f->k, n);
    kit_barrier(&f->k, n);
    T_EQ(*own, 77);
    T_OK(symmMemFree(w->p.memory));
    free(w->p.heap);
    kit_barrier(&f->k, n);
}

static void leaves_rank(int rank, int n, void *arg) {
    fk *f = arg;
    ok_world w;
    int32_t v = 5;
    symmStream_t s;
    ok_open(&w, fk_open(f, rank, n), rank, n, ROOM);
    if (rank == 1) {
        leaves_and_writes(f, &w, n);
        return;
    }
    T_OK(symmStreamCreate(&s));
    symmGraphExec_t e = captured_put(&w, &v, s);
    kit_barrier(&f->k, n);
    ok_wait(&w, 1, 3, 1, NULL);
    T_EQ(*(int32_t *)(void *)(w.p.memory + 16), 5);
    T_OK(symmPutSignal(&v, 1, symmInt32, 1, w.p.win, 16, 3, w.p.comm, NULL));
    T_OK(symmGraphLaunch(e, s));
    T_OK(symmStreamSynchronize(s));
    kit_barrier(&f->k, n);
    kit_barrier(&f->k, n); /* its memory is freed */
    T_OK(symmPutSignal(&v, 1, symmInt32, 1, w.p.win, 16, 3, w.p.comm, NULL));
    const symmSignalWait_t more = {1, 3, 1};
    const uint64_t start = symm_now_ns();
    T_ERR(symmWaitSignal(1, &more, w.p.comm, NULL), symmRemoteError);
    T_MSG(symmGetLastError(NULL), "rank 1 died or left");
    T_MSG(symmGetLastError(NULL),
          "rank 0 in symmWaitSignal for 1 of signal 3 from rank 1, of which 0 came");
    T_CHECK(fk_ms_since(start) < 5 * SOON_MS);
    T_OK(symmGraphExecDestroy(e));
    T_OK(symmStreamDestroy(s));
    T_OK(symmCommDestroy(w.p.comm));
    T_OK(symmMemFree(w.p.memory));
    free(w.p.heap);
}
static void a_peer_that_leaves(void) {
    T_EXPECT_WARNINGS();
    T_FORK(2, leaves_rank, fk_new(0, 0));
}

static void aborts_rank(int rank, int n, void *arg) {
    fk *f = arg;
    symmComm_t comm = fk_open(f, rank, n);
    const symmSignalWait_t w = {1, 60, 2};
    kit_barrier(&f->k, n);
    if (rank == 1) {
        kit_sleep(50);
        if (f->how)
            T_OK(symmCommRevoke(comm, 0));
        else
            T_OK(symmCommAbort(comm));
    } else {
        T_ERR(symmWaitSignal(1, &w, comm, NULL), symmAborted);
        T_MSG(symmGetLastError(comm), "rank 0 in symmWaitSignal for 2 of signal 60 from rank 1");
    }
    kit_barrier(&f->k, n);
    if (rank == 0 || f->how) T_OK(symmCommDestroy(comm));
}
static void a_peer_that_aborts(void) {
    T_EXPECT_WARNINGS();
    for (int how = 0; how < 2; how++) T_FORK(2, aborts_rank, fk_new(0, how));
}

/* Three of five come. Ranks that wait for nothing hear of it at their next call. */
static void deadline_rank(int rank, int n, void *arg) {
    fk *f = arg;
    setenv("SYMM_TIMEOUT", "300", 1);
    symmComm_t comm = fk_open(f, rank, n);
    const symmSignalWait_t w = {1, 9, 5};
    for (int i = 0; rank == 1 && i < 3; i++) T_OK(symmSignal(0, 9, comm, NULL));
    kit_barrier(&f->k, n);
    if (rank == 0) {
        T_ERR(symmWaitSignal(1, &w, comm, NULL), symmTimeout);
        T_MSG(symmGetLastError(comm), "rank 1 did not come before a deadline");
        T_MSG(symmGetLastError(comm),
              "rank 0 in symmWaitSignal for 5 of signal 9 from rank 1, of which 3 came");
    }
    kit_barrier(&f->k, n);
    T_ERR(symmSignal(0, 0, comm, NULL), symmTimeout);
    kit_barrier(&f->k, n);
    T_OK(symmCommDestroy(comm));
}
static void a_signal_that_nobody_raises(void) {
    T_EXPECT_WARNINGS();
    T_FORK(3, deadline_rank, fk_new(0, 0));
}

/* ---- windows that are gone under captured calls ---------------------------------------------- */

static symmGraphExec_t capture_put(ok_world *w, symmWindow_t to, char *from, symmStream_t s) {
    symmGraph_t graph;
    symmGraphExec_t exec;
    T_OK(symmStreamBeginCapture(s));
    T_OK(symmPutSignal(from, 64, symmUint8, 1, to, 0, 2, w->p.comm, s));
    T_OK(symmStreamEndCapture(s, &graph));
    T_OK(symmGraphInstantiate(graph, &exec));
    T_OK(symmGraphDestroy(graph));
    return exec;
}

static void replay_into_it(ok_world *w, symmGraphExec_t exec, char *from, symmStream_t s) {
    for (int i = 1; i <= 3; i++) {
        pk_fill(from, 64, 0, 1, (unsigned)i);
        T_OK(symmGraphLaunch(exec, s));
        T_OK(symmStreamSynchronize(s));
        ok_wait(w, 1, 5, 1, NULL);
    }
    T_OK(symmMemFree(from));
    T_OK(symmGraphLaunch(exec, s));
    T_ERR(symmStreamSynchronize(s), symmInvalidUsage);
    T_MSG(symmGetLastError(w->p.comm), "a captured one-sided call is replayed, but memory");
    T_OK(symmGraphExecDestroy(exec));
}
static void look_at_it(const ok_world *w) {
    const symmSignalWait_t more = {0, 2, 1};
    for (int i = 1; i <= 3; i++) {
        ok_wait(w, 0, 2, 1, NULL);
        pk_check(w->p.memory, 64, 0, 1, (unsigned)i);
        T_OK(symmSignal(0, 5, w->p.comm, NULL));
    }
    T_ERR(symmWaitSignal(1, &more, w->p.comm, NULL), symmInvalidUsage);
}

/* All ranks drop the window. What they map of it ends, but the graph of rank 0 holds it: replays
 * still reach rank 1. Memory under a window of its own that rank 0 frees is missed. */
static void gone_rank(int rank, int n, void *arg) {
    fk *f = arg;
    ok_world w;
    symmWindow_t own;
    symmStream_t s;
    symmGraphExec_t exec = NULL;
    char *from;
    ok_open(&w, fk_open(f, rank, n), rank, n, ROOM);
    T_OK(symmMemAlloc((void **)&from, ROOM));
    T_OK(symmWindowRegister(w.p.comm, from, ROOM, &own, SYMM_WIN_DEFAULT));
    T_OK(symmStreamCreate(&s));
    if (rank == 0) exec = capture_put(&w, w.p.win, from, s);
    T_OK(symmWindowDeregister(w.p.comm, w.p.win));
    fk_collect(w.p.comm);
    T_ERR(symmPut(from, 64, symmUint8, 1, w.p.win, 0, w.p.comm, NULL), symmInvalidArgument);
    T_MSG(symmGetLastError(w.p.comm), "is not a registered window");
    if (rank == 0)
        replay_into_it(&w, exec, from, s);
    else
        look_at_it(&w);
    kit_barrier(&f->k, n);
    T_OK(symmStreamDestroy(s));
    T_OK(symmCommDestroy(w.p.comm));
    if (rank) T_OK(symmMemFree(from));
    T_OK(symmMemFree(w.p.memory));
    free(w.p.heap);
}
static void windows_that_are_gone(void) {
    T_EXPECT_WARNINGS();
    T_FORK(2, gone_rank, fk_new(0, 0));
}

/* ---- who waits ------------------------------------------------------------------------------- */

static void *read_beside(void *arg) {
    uint64_t count = 99;
    kit_sleep(100);
    T_OK(symmSignalRead(1, 8, arg, &count)); /* while the other thread is inside */
    T_EQ(count, 1);
    return NULL;
}

static void dump_rank(int rank, int n, void *arg) {
    fk *f = arg;
    symmComm_t comm = fk_open(f, rank, n);
    pthread_t other;
    const symmSignalWait_t w = {1, 7, 2};
    if (rank == 1) T_OK(symmSignal(0, 8, comm, NULL));
    if (rank == 1) T_OK(symmSignal(1, 8, comm, NULL));
    kit_barrier(&f->k, n);
    if (rank == 1) {
        char text[8192], name[] = "/tmp/symm_dump_XXXXXX";
        const int fd = mkstemp(name);
        T_CHECK(fd >= 0);
        unlink(name);
        kit_sleep(200);
        T_OK(symmCommDump(comm, fd));
        const ssize_t got = pread(fd, text, sizeof text - 1, 0);
        T_CHECK(got > 0);
        text[got] = 0;
        T_MSG(text, "waits in symmWaitSignal for 2 of signal 7 from rank 1");
        T_MSG(text, "has raised 1 signals here that nothing has used up");
        close(fd);
        for (int i = 0; i < 2; i++) T_OK(symmSignal(0, 7, comm, NULL));
    } else {
        T_EQ(pthread_create(&other, NULL, read_beside, comm), 0);
        T_OK(symmWaitSignal(1, &w, comm, NULL));
        T_EQ(pthread_join(other, NULL), 0);
    }
    kit_barrier(&f->k, n);
    T_OK(symmCommDestroy(comm));
}
static void a_dump_names_who_waits(void) {
    T_FORK(2, dump_rank, fk_new(0, 0));
}

T_MAIN(T(a_peer_that_dies), T(a_peer_that_leaves), T(a_peer_that_aborts),
       T(a_signal_that_nobody_raises), T(windows_that_are_gone), T(a_dump_names_who_waits))
