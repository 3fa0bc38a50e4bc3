/* fault_death.c - ranks that die, leave, never come, stop, or give up: the others hear of it in
 * time, by name, nothing leaks, and they go on in a new communicator. Forked ranks; no lock. */
#include <pthread.h>
#include <sys/syscall.h>

#include "coll_expect.h"
#include "fault_kit.h"
#include "transport/boot/boot_tcp.h"

enum { SOON_MS = 1000, COUNT_MAX = 1 << 20 };

static void names_the_dead(const fk *f, symmComm_t comm) {
    char who[16];
    uint64_t late = fk_ms_since(atomic_load(&f->at_ns));
    snprintf(who, sizeof who, "rank %d", f->victim);
    T_MSG(symmGetLastError(comm), who);
    T_CHECKF(late < SOON_MS, "heard of the death after %d ms", (int)late);
}

/* One survivor names a rank that never was, or nobody at all: all hear of it, and can try again. */
static void shrink_with_a_mistake(fk *f, int rank, int n, symmComm_t comm) {
    const int odd = (f->victim + 1) % n, strange[] = {f->victim, 99};
    symmComm_t next;
    char said[40];
    snprintf(said, sizeof said, "rank %d: excludeRanks", odd);
    T_ERR(symmCommShrink(comm, strange, rank == odd ? 2 : 1, &next, NULL, 0), symmInvalidArgument);
    T_MSG(symmGetLastError(comm), said);
    T_MSG(symmGetLastError(comm), "[1]=99");
    T_ERR(symmCommShrink(comm, rank == odd ? NULL : strange, 1, &next, NULL, 0),
          symmInvalidArgument);
    T_MSG(symmGetLastError(comm), "excludeRanks is NULL, nExclude=1");
}

/* The survivors go on without the dead one. Destroys both. */
static void go_on(fk *f, int rank, int n, symmComm_t comm) {
    symmComm_t next;
    symmResult_t async;
    T_OK(symmCommGetAsyncError(comm, &async));
    T_EQ(async, symmRemoteError);
    T_ERR(symmBarrier(comm, NULL), symmRemoteError);
    kit_barrier(&f->k, n - 1);
    shrink_with_a_mistake(f, rank, n, comm);
    T_OK(symmCommShrink(comm, &f->victim, 1, &next, NULL, 0));
    int mine = rank > f->victim ? rank - 1 : rank, is = -1;
    T_OK(symmCommUserRank(next, &is));
    T_EQ(is, mine);
    fk_works(next, mine, n - 1);
    T_OK(symmCommDestroy(comm)); /* the child stands on its own */
    fk_registers(next, mine, n - 1);
    fk_works(next, mine, n - 1);
    T_OK(symmCommDestroy(next));
}

/* ---- inside a collective, each kernel ---- */

typedef struct {
    const symm_kernel_row *row;
    int *send, *recv;
    size_t count;
} work;

static symmResult_t collective(const work *w, symmComm_t comm) {
    return symm_test_call(w->row->coll, w->send, w->recv, w->count, symmInt32, symmSum, 0, comm,
                          NULL);
}

/* As many elements as the kernel takes, so that it is inside most of the time. */
static void pick_count(work *w, symmComm_t comm) {
    symmExplain_t plan = {.size = sizeof plan};
    for (w->count = COUNT_MAX / 8; w->count; w->count /= 4) {
        T_OK(symmExplain(comm, (symmColl_t)w->row->coll, w->send, w->recv, w->count, symmInt32,
                         symmSum, 0, &plan));
        if (!strcmp(plan.kernel, w->row->name)) return;
    }
    T_STREQ(plan.kernel, w->row->name);
}

static void kernel_rank(int rank, int n, void *arg) {
    fk *f = arg;
    work w = {.row = &symm_kernels[f->how / 2]};
    symmComm_t comm = fk_open(f, rank, n);
    symmWindow_t win;
    symmResult_t r;
    T_OK(symmMemAlloc((void **)&w.send, COUNT_MAX * sizeof(int)));
    T_OK(symmMemAlloc((void **)&w.recv, COUNT_MAX * sizeof(int)));
    pick_count(&w, comm);
    if (f->how % 2) {
        T_OK(symmWindowRegister(comm, w.send, COUNT_MAX * sizeof(int), &win, 0));
        T_OK(symmWindowRegister(comm, w.recv, COUNT_MAX * sizeof(int), &win, 0));
    }
    kit_barrier(&f->k, n);
    if (rank == f->victim) fk_doom(f);
    do r = collective(&w, comm);
    while (r == symmSuccess);
    T_CHECKF(rank != f->victim, "outlived its death: %s", symmGetLastError(comm));
    T_EQ(r, symmRemoteError);
    names_the_dead(f, comm);
    go_on(f, rank, n, comm);
    T_OK(symmMemFree(w.send));
    T_OK(symmMemFree(w.recv));
}

static void killed_inside_each_kernel(void) {
    T_EXPECT_WARNINGS();
    for (int k = 0; k < SYMM_KERNEL_COUNT; k++) {
        if (!(symm_kernels[k].flags & SYMM_K_HOST)) continue;
        if (symm_kernels[k].max_ranks == 1) continue;
        setenv("SYMM_ALGO", symm_kernels[k].name, 1);
        setenv("SYMM_MULTICAST", symm_kernels[k].multicast ? "1" : "0", 1);
        for (int registered = 0; registered < 2; registered++)
            T_FORK_DIES(3, k % 3, kernel_rank, fk_new(k % 3, k * 2 + registered));
    }
}

/* ---- elsewhere ---- */

enum { IN_REGISTRATION, IDLE, ON_A_STREAM };

static symmResult_t wait_for_death(fk *f, symmComm_t comm, void *buf) {
    symmWindow_t win;
    symmStream_t stream;
    symmResult_t r = symmSuccess;
    uint64_t start = symm_now_ns();
    switch (f->how) {
    case IN_REGISTRATION: return symmWindowRegister(comm, buf, 2 << 20, &win, 0);
    case IDLE:
        while (r == symmSuccess && fk_ms_since(start) < 2 * SOON_MS)
            T_OK(symmCommGetAsyncError(comm, &r));
        return r;
    default:
        T_OK(symmStreamCreate(&stream));
        T_OK(symmBarrier(comm, stream));
        r = symmStreamSynchronize(stream);
        T_OK(symmStreamDestroy(stream));
        return r;
    }
}

static void elsewhere_rank(int rank, int n, void *arg) {
    fk *f = arg;
    symmComm_t comm = fk_open(f, rank, n);
    void *buf;
    T_OK(symmMemAlloc(&buf, 2 << 20));
    kit_barrier(&f->k, n);
    if (rank == f->victim) {
        fk_doom(f);
        for (;;) pause();
    }
    T_EQ(wait_for_death(f, comm, buf), symmRemoteError);
    names_the_dead(f, comm);
    go_on(f, rank, n, comm);
    T_OK(symmMemFree(buf));
}

/* A rank that gives up in an exchange is gone for the bootstrap before its reason has come: the
 * others wait for that, and do not take it for a dead rank. */
static void gives_up_rank(int rank, int n, void *arg) {
    fk *f = arg;
    symmComm_t comm = fk_open(f, rank, n);
    symmWindow_t win;
    void *buf;
    T_OK(symmMemAlloc(&buf, 2 << 20));
    kit_barrier(&f->k, n);
    if (rank == f->victim)
        T_EQ(symm_fail_arm("boot_allgather:error:1,mesh_sendmsg:delay=100:1"), 0);
    T_EQ(symmWindowRegister(comm, buf, 2 << 20, &win, 0), symmSystemError);
    T_MSG(symmGetLastError(comm), "failpoint boot_allgather");
    T_EQ(symm_fail_arm(""), 0);
    T_OK(symmCommDestroy(comm));
    T_OK(symmMemFree(buf));
}

static void who_gives_up_is_not_taken_for_dead(void) {
    T_EXPECT_WARNINGS();
    for (int victim = 0; victim < 4; victim++) T_FORK(4, gives_up_rank, fk_new(victim, 0));
}

/* Whoever ends behind an error that it has told is that error, also for a rank that was in no call
 * then. */
static void tells_and_dies_rank(int rank, int n, void *arg) {
    fk *f = arg;
    symmComm_t comm = fk_open(f, rank, n);
    kit_barrier(&f->k, n);
    if (rank == f->victim) {
        T_OK(symmCommRevoke(comm, 0));
        kill(getpid(), SIGKILL);
    }
    kit_sleep(300); /* the watcher has seen the end by now */
    T_ERR(symmBarrier(comm, NULL), symmAborted);
    T_OK(symmCommDestroy(comm));
}

static void told_before_the_end(void) {
    T_EXPECT_WARNINGS();
    T_FORK_DIES(3, 1, tells_and_dies_rank, fk_new(1, 0));
}

static void killed_under_a_registering_peer(void) {
    T_EXPECT_WARNINGS();
    for (int victim = 0; victim < 3; victim++) /* rank 0 relays the bootstrap */
        T_FORK_DIES(3, victim, elsewhere_rank, fk_new(victim, IN_REGISTRATION));
    T_FORK_DIES(2, 1, elsewhere_rank, fk_new(1, IN_REGISTRATION));
}

static void killed_while_idle(void) {
    T_EXPECT_WARNINGS();
    T_FORK_DIES(2, 0, elsewhere_rank, fk_new(0, IDLE));
    T_FORK_DIES(4, 2, elsewhere_rank, fk_new(2, IDLE));
}

static void killed_under_a_stream(void) {
    T_EXPECT_WARNINGS();
    T_FORK_DIES(3, 1, elsewhere_rank, fk_new(1, ON_A_STREAM));
}

/* The dead rank leaves a child that has copies of all its sockets, as fork() would not have left
 * it: no connection ends. */
static void survived_by_a_child(int rank, int n, void *arg) {
    fk *f = arg;
    if (rank != f->victim) {
        elsewhere_rank(rank, n, arg);
        if (rank == (f->victim == 0)) kill(atomic_load(&f->k.flag), SIGKILL);
        return;
    }
    void *buf;
    T_CHECK(fk_open(f, rank, n));
    T_OK(symmMemAlloc(&buf, 2 << 20));
    pid_t child = kit_clone();
    T_CHECK(child >= 0);
    while (child == 0) pause();
    atomic_store(&f->k.flag, (int)child);
    kit_barrier(&f->k, n);
    fk_doom(f);
    for (;;) pause();
}

static void a_child_does_not_hide_the_death(void) {
#ifdef SYS_pidfd_open
    int fd = (int)syscall(SYS_pidfd_open, getpid(), 0);
    if (fd < 0) T_SKIP("needs pidfd_open: %s", strerror(errno));
    close(fd);
    T_EXPECT_WARNINGS();
    T_FORK_DIES(3, 1, survived_by_a_child, fk_new(1, IDLE));
    T_FORK_DIES(3, 0, survived_by_a_child, fk_new(0, IN_REGISTRATION));
    T_FORK_DIES(2, 1, survived_by_a_child, fk_new(1, ON_A_STREAM));
#else
    T_SKIP("needs pidfd_open");
#endif
}

/* The watcher's set cannot be polled, or not be had at once: it goes on without. */
static void a_watcher_in_need_sees_deaths(void) {
    static const char *const needs[] = {"watch_poll:error", "watch_set:error:1",
                                        "watch_pidfd:error", "watch_who:error,watch_process:error"};
    T_EXPECT_WARNINGS();
    for (size_t i = 0; i < sizeof needs / sizeof *needs; i++) {
        T_EQ(symm_fail_arm(needs[i]), 0); /* the ranks inherit it */
        T_FORK_DIES(3, 1, elsewhere_rank, fk_new(1, IDLE));
    }
    T_EQ(symm_fail_arm(""), 0);
}

/* Some survivors meet the death inside a call, others while idle. */
static void mixed_rank(int rank, int n, void *arg) {
    fk *f = arg;
    symmComm_t comm = fk_open(f, rank, n);
    symmResult_t async;
    symmWindow_t win;
    void *buf;
    T_OK(symmMemAlloc(&buf, 2 << 20));
    kit_barrier(&f->k, n);
    if (rank == f->victim) {
        fk_doom(f);
        for (;;) pause();
    }
    if (rank == 0) T_ERR(symmWindowRegister(comm, buf, 2 << 20, &win, 0), symmRemoteError);
    if (rank == 1) T_ERR(symmBarrier(comm, NULL), symmRemoteError);
    do T_OK(symmCommGetAsyncError(comm, &async));
    while (async == symmSuccess);
    go_on(f, rank, n, comm);
    T_OK(symmMemFree(buf));
}

static void killed_while_each_does_something_else(void) {
    T_EXPECT_WARNINGS();
    T_FORK_DIES(5, 3, mixed_rank, fk_new(3, 0));
}

/* ---- never comes ---- */

static void absent_rank(int rank, int n, void *arg) {
    fk *f = arg;
    symmComm_t comm = NULL;
    symmConfig_t config = SYMM_CONFIG_INITIALIZER;
    char who[16];
    fk_id(f, rank, n);
    if (f->how)
        config.timeoutMs = 400;
    else
        setenv("SYMM_SETUP_TIMEOUT", "400", 1);
    uint64_t start = symm_now_ns();
    if (rank != f->victim) {
        fk_note(f, rank, symmCommInitRankConfig(&comm, n, f->id, rank, &config));
        T_CHECK(comm == NULL);
        T_CHECKF(fk_ms_since(start) < 3000, "gave up after %d ms", (int)fk_ms_since(start));
    } else {
        usleep(600000); /* alive all the time */
    }
    kit_barrier(&f->k, n);
    snprintf(who, sizeof who, "rank %d", f->victim);
    fk_same(f, n, f->victim, symmTimeout, f->victim ? who : "who made the id");
    unsetenv("SYMM_SETUP_TIMEOUT");
    symm_tcp_keep_wait(); /* the process of a rank that does not come serves the others */
    comm = fk_open(f, rank, n);
    fk_works(comm, rank, n);
    T_OK(symmCommDestroy(comm));
}

static void a_rank_that_never_comes(void) {
    T_EXPECT_WARNINGS();
    T_FORK(3, absent_rank, fk_new(2, 0));
    T_FORK(3, absent_rank, fk_new(1, 1));
    T_FORK(2, absent_rank, fk_new(0, 1));
}

/* ---- leaves ---- */

static void leaver_rank(int rank, int n, void *arg) {
    fk *f = arg;
    symmComm_t comm = fk_open(f, rank, n);
    symmWindow_t win;
    void *buf;
    T_OK(symmMemAlloc(&buf, 2 << 20));
    fk_works(comm, rank, n);
    if (rank == f->victim) {
        T_OK(symmCommDestroy(comm));
        atomic_store(&f->k.flag, 1);
    } else {
        kit_await_flag(&f->k, 1);
        uint64_t start = symm_now_ns();
        if (f->how)
            T_ERR(symmWindowRegister(comm, buf, 2 << 20, &win, 0), symmRemoteError);
        else
            T_ERR(symmBarrier(comm, NULL), symmRemoteError);
        T_MSG(symmGetLastError(comm), "left");
        T_CHECKF(fk_ms_since(start) < 2500, "after %d ms", (int)fk_ms_since(start));
        T_OK(symmCommDestroy(comm));
    }
    T_OK(symmMemFree(buf));
}

static void a_rank_that_leaves_orderly(void) {
    T_EXPECT_WARNINGS();
    T_FORK(3, leaver_rank, fk_new(1, 0));
    T_FORK(3, leaver_rank, fk_new(1, 1));
    T_FORK(2, leaver_rank, fk_new(0, 1));
}

/* Leaving when all is done is no fault, however the others are delayed. */
static void parting_rank(int rank, int n, void *arg) {
    fk *f = arg;
    symmComm_t comm = fk_open(f, rank, n);
    symmResult_t async;
    fk_works(comm, rank, n);
    if (rank) kit_sleep(100);
    T_OK(symmCommGetAsyncError(comm, &async));
    T_EQ(async, symmSuccess);
    T_OK(symmCommDestroy(comm));
}

static void leaving_last_is_no_fault(void) {
    T_FORK(3, parting_rank, fk_new(0, 0));
}

/* ---- abort and revoke ---- */

enum { ABORT, REVOKE, IN_KERNEL = 0, IN_REGISTER = 2 };

static void abort_rank(int rank, int n, void *arg) {
    fk *f = arg;
    symmComm_t comm = fk_open(f, rank, n), next;
    symmWindow_t win;
    void *buf;
    T_OK(symmMemAlloc(&buf, 2 << 20));
    kit_barrier(&f->k, n);
    if (rank == f->victim) {
        kit_sleep(50); /* the others wait for this rank by now */
        atomic_store(&f->at_ns, symm_now_ns());
        T_OK(f->how % 2 == ABORT ? symmCommAbort(comm) : symmCommRevoke(comm, 0));
    } else {
        if (f->how & IN_REGISTER)
            T_ERR(symmWindowRegister(comm, buf, 2 << 20, &win, 0), symmAborted);
        else
            T_ERR(symmBarrier(comm, NULL), symmAborted);
        uint64_t late = fk_ms_since(atomic_load(&f->at_ns));
        T_CHECKF(late < 100, "free after %d ms", (int)late);
        T_MSG(symmGetLastError(comm), "rank 1");
    }
    kit_barrier(&f->k, n);
    if (f->how % 2 == REVOKE) { /* it is still good for queries and for this */
        T_ERR(symmBarrier(comm, NULL), symmAborted);
        T_OK(symmCommShrink(comm, NULL, 0, &next, NULL, 0));
        fk_works(next, rank, n);
        T_OK(symmCommDestroy(comm));
        fk_registers(next, rank, n);
        T_OK(symmCommDestroy(next));
    } else if (rank != f->victim) {
        T_OK(symmCommDestroy(comm));
    }
    T_OK(symmMemFree(buf));
}

static void abort_and_revoke_free_the_others(void) {
    T_EXPECT_WARNINGS();
    T_FORK(3, abort_rank, fk_new(1, ABORT | IN_KERNEL));
    T_FORK(3, abort_rank, fk_new(1, ABORT | IN_REGISTER));
    T_FORK(3, abort_rank, fk_new(1, REVOKE | IN_KERNEL));
    T_FORK(3, abort_rank, fk_new(1, REVOKE | IN_REGISTER));
}

typedef struct {
    fk *f;
    symmComm_t comm;
} abort_call;

static void *abort_later(void *arg) {
    abort_call *a = arg;
    kit_sleep(50);
    atomic_store(&a->f->at_ns, symm_now_ns());
    T_OK(symmCommAbort(a->comm));
    return NULL;
}

static void stuck_rank(int rank, int n, void *arg) {
    fk *f = arg;
    symmComm_t comm = fk_open(f, rank, n);
    abort_call a = {f, comm};
    pthread_t t;
    symmResult_t async;
    if (rank == 0) { /* stuck, for the others do something else */
        T_EQ(pthread_create(&t, NULL, abort_later, &a), 0);
        T_ERR(symmBarrier(comm, NULL), symmAborted);
        T_CHECK(fk_ms_since(atomic_load(&f->at_ns)) < 100);
        pthread_join(t, NULL);
        T_ERR(symmCommDestroy(comm), symmInvalidArgument); /* abort has freed it */
        atomic_store(&f->k.flag, 1);
        return;
    }
    kit_await_flag(&f->k, 1);
    T_OK(symmCommGetAsyncError(comm, &async));
    T_EQ(async, symmAborted);
    T_ERR(symmBarrier(comm, NULL), symmAborted);
    T_OK(symmCommDestroy(comm));
}

static void abort_from_another_thread(void) {
    T_EXPECT_WARNINGS();
    T_FORK(3, stuck_rank, fk_new(0, 0));
}

/* ---- late is not dead ---- */

static void stopped_rank(int rank, int n, void *arg) {
    fk *f = arg;
    symmComm_t comm;
    if (f->how) setenv("SYMM_TIMEOUT", "500", 1);
    comm = fk_open(f, rank, n);
    if (rank == 1) {
        f->k.value = (int)getpid();
        kit_barrier(&f->k, n);
        raise(SIGSTOP);
    } else {
        kit_barrier(&f->k, n);
        if (rank == 2) kit_sleep(f->how ? 50 : 2000);
    }
    if (rank == 2 && !f->how) kill(f->k.value, SIGCONT);
    uint64_t start = symm_now_ns();
    symmResult_t r = symmBarrier(comm, NULL);
    if (f->how && rank != 1) {
        T_EQ(r, symmTimeout);
        T_MSG(symmGetLastError(comm), "rank 1");
        T_CHECKF(fk_ms_since(start) < 2000, "after %d ms", (int)fk_ms_since(start));
        if (rank == 2) kit_sleep(200); /* both have had their say */
        if (rank == 2) kill(f->k.value, SIGCONT);
    } else if (f->how) {
        /* What it waited for was there when it woke. It learns that it was given up. */
        T_CHECK(r == symmSuccess || r == symmTimeout);
        T_ERR(symmBarrier(comm, NULL), symmTimeout);
    } else {
        T_EQ(r, symmSuccess);
        fk_works(comm, rank, n);
    }
    T_OK(symmCommDestroy(comm));
}

static void a_stopped_rank_is_late_not_dead(void) {
    T_FORK(3, stopped_rank, fk_new(1, 0));
}

static void a_stopped_rank_is_too_late_for_a_limit(void) {
    T_EXPECT_WARNINGS();
    T_FORK(3, stopped_rank, fk_new(1, 1));
}

T_MAIN(T(killed_inside_each_kernel), T(killed_under_a_registering_peer),
       T(who_gives_up_is_not_taken_for_dead), T(told_before_the_end), T(killed_while_idle),
       T(killed_under_a_stream), T(a_child_does_not_hide_the_death),
       T(a_watcher_in_need_sees_deaths), T(killed_while_each_does_something_else),
       T(a_rank_that_never_comes), T(a_rank_that_leaves_orderly), T(leaving_last_is_no_fault),
       T(abort_and_revoke_free_the_others), T(abort_from_another_thread),
       T(a_stopped_rank_is_late_not_dead), T(a_stopped_rank_is_too_late_for_a_limit))
