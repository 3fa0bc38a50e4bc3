/* fault_shrink.c - survivors who go on: lists that lack a rank and are tried again, lists that
 * differ, several deaths, deaths during a shrink. Forked ranks; no lock. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "fault_kit.h"
#include "host/comm/watch.h"

enum { MOMENTS = 12 };

static void die(void) {
    kill(getpid(), SIGKILL);
}

/* Several ranks of T_FORK are to die: the rank is a child of this process. 1 in the child; 0 when
 * it is dead, which f->hits[0] counts. */
static int as_a_victim(fk *f) {
    int status;
    const pid_t p = fork();
    T_CHECK(p >= 0);
    if (!p) return 1;
    while (waitpid(p, &status, 0) < 0) continue;
    T_CHECKF(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL, "a victim ended with %x", status);
    atomic_fetch_add(&f->hits[0], 1);
    return 0;
}

static void await_deaths(fk *f, int n) {
    while (atomic_load(&f->hits[0]) < n) usleep(500);
}

static void *die_later(void *arg) {
    usleep((unsigned)(uintptr_t)arg);
    die();
    return NULL;
}

static void doom_in(int us) {
    pthread_t t;
    T_EQ(pthread_create(&t, NULL, die_later, (void *)(uintptr_t)us), 0);
}

/* All have it before one dies: a rank that dies while its last confirmations leave may split the
 * outcome (failures.md). */
static symmComm_t open_all(fk *f, int rank, int n) {
    symmComm_t comm = fk_open(f, rank, n);
    kit_barrier(&f->k, n);
    return comm;
}

/* Works, and again when its parent is gone. */
static void lives_on(symmComm_t parent, symmComm_t child) {
    int rank, n;
    T_OK(symmCommUserRank(child, &rank));
    T_OK(symmCommCount(child, &n));
    fk_works(child, rank, n);
    T_OK(symmCommDestroy(parent));
    fk_registers(child, rank, n);
    fk_works(child, rank, n);
    T_OK(symmCommDestroy(child));
}

/* ---- again, with another list ---- */

static void incomplete_rank(int rank, int n, void *arg) {
    fk *f = arg;
    symmComm_t comm = open_all(f, rank, n), next = NULL;
    if (rank == f->victim) die();
    T_ERR(symmBarrier(comm, NULL), symmRemoteError);
    for (int i = 0; i < 5; i++) { /* the ranks are not in step */
        T_ERR(symmCommShrink(comm, NULL, 0, &next, NULL, 0), symmRemoteError);
        T_MSG(symmGetLastError(comm), "rank 1 died or left, and is not in excludeRanks");
    }
    T_CHECK(next == NULL);
    T_OK(symmCommShrink(comm, &f->victim, 1, &next, NULL, 0));
    lives_on(comm, next);
}

static void a_list_that_lacks_the_dead_one(void) {
    T_EXPECT_WARNINGS();
    T_FORK_DIES(3, 1, incomplete_rank, fk_new(1, 0));
    T_FORK_DIES(2, 1, incomplete_rank, fk_new(1, 0));
}

/* Rank 2 is wrong, then rank 0, in several ways. */
static void differing_rank(int rank, int n, void *arg) {
    fk *f = arg;
    static const int lists[][2] = {{1, 1}, {1, 3}, {1, 0}, {1, 2}};
    symmComm_t comm = open_all(f, rank, n), next = NULL;
    if (rank == f->victim) die();
    T_ERR(symmBarrier(comm, NULL), symmRemoteError);
    for (int i = 1; i < 4; i++) {
        const int odd = i == 2 ? 2 : 0;
        const symmResult_t r = symmCommShrink(comm, lists[rank == odd ? i : 0], 2, &next, NULL, 0);
        T_CHECKF(r == symmMismatch, "list %d: code %d: %s", i, (int)r, symmGetLastError(comm));
        T_MSG(symmGetLastError(comm), "leaves out ");
        kit_barrier(&f->k, n - 1);
    }
    T_OK(symmCommShrink(comm, &f->victim, 1, &next, NULL, 0));
    lives_on(comm, next);
}

static void lists_that_differ(void) {
    T_EXPECT_WARNINGS();
    T_FORK_DIES(4, 1, differing_rank, fk_new(1, 0));
}

/* A communicator that lives loses nothing by it, and may be shrunk often; whom it left out belongs
 * to it as before. */
static void healthy_rank(int rank, int n, void *arg) {
    fk *f = arg;
    const int last = n - 1, none = 99;
    symmComm_t comm = open_all(f, rank, n), next = NULL;
    for (int i = 0; i < 3; i++) {
        T_ERR(symmCommShrink(comm, rank == i ? &none : NULL, rank == i, &next, NULL, 0),
              symmInvalidArgument);
        fk_works(comm, rank, n);
        if (rank != last) {
            T_OK(symmCommShrink(comm, &last, 1, &next, NULL, 0));
            fk_works(next, rank, n - 1);
            T_OK(symmCommDestroy(next));
        }
        fk_registers(comm, rank, n);
        T_OK(symmCommSplit(comm, 0, 0, &next, NULL));
        fk_works(next, rank, n);
        T_OK(symmCommDestroy(next));
    }
    T_OK(symmCommShrink(comm, NULL, 0, &next, NULL, 0));
    lives_on(comm, next);
}

static void a_living_communicator_is_left_as_it_is(void) {
    T_EXPECT_WARNINGS();
    T_FORK(3, healthy_rank, fk_new(0, 0));
}

/* The ranks agree, and then one cannot go on. The pieces that it has not read lie there when they
 * try again. */
static void unmade_rank(int rank, int n, void *arg) {
    fk *f = arg;
    symmComm_t comm = open_all(f, rank, n), next = NULL;
    symmConfig_t config = SYMM_CONFIG_INITIALIZER;
    for (int i = 0; i < 3; i++) {
        config.maxCTAs = 2 + i; /* no try's pieces pass for another's */
        if (rank == i) T_EQ(symm_fail_arm("boot_allgather:error:1"), 0);
        T_ERR(symmCommShrink(comm, NULL, 0, &next, &config, 0), symmSystemError);
        T_EQ(symm_fail_arm(""), 0);
        T_MSG(symmGetLastError(comm), "failpoint boot_allgather on rank");
        T_CHECK(next == NULL);
    }
    T_OK(symmCommSplit(comm, 0, 0, &next, NULL)); /* over the same connections */
    fk_works(next, rank, n);
    T_OK(symmCommDestroy(next));
    T_OK(symmCommShrink(comm, NULL, 0, &next, NULL, 0));
    fk_works(comm, rank, n);
    lives_on(comm, next);
}

static void a_shrink_that_fails_after_they_agreed(void) {
    T_EXPECT_WARNINGS();
    T_FORK(3, unmade_rank, fk_new(0, 0));
}

/* ---- several deaths ---- */

static void two_die_rank(int rank, int n, void *arg) {
    fk *f = arg;
    const int dead[] = {1, 3}, victim = rank == 1 || rank == 3;
    symmComm_t next = NULL;
    if (victim && !as_a_victim(f)) return;
    symmComm_t comm = open_all(f, rank, n);
    if (victim) die();
    T_ERR(symmBarrier(comm, NULL), symmRemoteError);
    await_deaths(f, 2);
    T_ERR(symmCommShrink(comm, dead, 1, &next, NULL, 0), symmRemoteError);
    T_MSG(symmGetLastError(comm), "rank 3 died or left");
    T_ERR(symmCommShrink(comm, NULL, 0, &next, NULL, 0), symmRemoteError);
    T_MSG(symmGetLastError(comm), "ranks 1, 3 died or left, and are not in excludeRanks");
    T_OK(symmCommShrink(comm, dead, 2, &next, NULL, 0));
    lives_on(comm, next);
}

static void two_deaths_at_once(void) {
    T_EXPECT_WARNINGS();
    T_FORK(5, two_die_rank, fk_new(0, 0));
}

/* ---- a death meanwhile ---- */

/* Rank 1 is dead; rank 3 shrinks with the others and dies at some moment of it, or soon after. What
 * they then have may be broken: the others know by a barrier, and shrink the old one again. */
static void meanwhile_rank(int rank, int n, void *arg) {
    fk *f = arg;
    const int dead[] = {1, 3}, victim = rank == 1 || rank == 3;
    symmComm_t next = NULL;
    if (victim && !as_a_victim(f)) return;
    symmComm_t comm = open_all(f, rank, n);
    if (rank == 1) die();
    T_ERR(symmBarrier(comm, NULL), symmRemoteError);
    await_deaths(f, 1);
    if (rank == 3) doom_in(f->how);
    for (int tries = 0;; tries++) {
        const int all = atomic_load(&f->hits[0]) == 2;
        T_CHECK(tries < 100000);
        if (symmCommShrink(comm, dead, all ? 2 : 1, &next, NULL, 0)) {
            usleep(100); /* who counts the deaths needs a core */
            continue;
        }
        int good = 0, rest = 0;
        T_OK(symmCommCount(next, &rest));
        while (!symmBarrier(next, NULL) && rest != n - 2) usleep(100); /* until rank 3 dies */
        good = rest == n - 2;
        if (good) break;
        T_OK(symmCommDestroy(next));
    }
    lives_on(comm, next);
}

static void a_death_during_the_shrink(void) {
    const int many = getenv("T_FULL") ? 20 * MOMENTS : MOMENTS;
    T_EXPECT_WARNINGS();
    for (int i = 0; i < many; i++)
        T_FORK(5, meanwhile_rank, fk_new(0, i % MOMENTS * 700 + i / MOMENTS * 31));
}

/* ---- who is gone ---- */

static void asks_rank(int rank, int n, void *arg) {
    fk *f = arg;
    const int victim = rank == 1 || rank == 3;
    int gone[5] = {-1, -1, -1, -1, -1}, count = -1;
    symmComm_t next = NULL;
    if (victim && !as_a_victim(f)) return;
    symmComm_t comm = open_all(f, rank, n);
    T_OK(symmCommFailedRanks(comm, SYMM_FAILED_AGREE, gone, 5, &count));
    T_EQ(count, 0);
    fk_works(comm, rank, n); /* as good as before */
    if (victim) die();
    await_deaths(f, 2);
    T_OK(symmCommFailedRanks(comm, SYMM_FAILED_AGREE, gone, 1, &count));
    T_EQ(count, 2);
    T_EQ(gone[0], 1);
    T_EQ(gone[1], -1);
    T_ERR(symmCommFailedRanks(comm, SYMM_FAILED_AGREE, gone, rank ? 5 : -1, &count),
          symmInvalidArgument);
    T_MSG(symmGetLastError(comm), "rank 0: cap=-1");
    T_OK(symmCommFailedRanks(comm, SYMM_FAILED_LOCAL, gone, 5, &count));
    T_EQ(count, 2);
    T_EQ(gone[1], 3);
    while (symmBarrier(comm, NULL) != symmRemoteError) usleep(1000);
    T_ERR(symmBarrier(comm, NULL), symmRemoteError);
    T_MSG(symmGetLastError(comm), "; ranks 1, 3 are gone");
    const symmResult_t r = rank == 2
                               ? symmCommShrink(comm, NULL, 0, &next, NULL, 0)
                               : symmCommShrink(comm, NULL, 0, &next, NULL, SYMM_SHRINK_FAILED);
    T_EQ(r, symmMismatch);
    T_MSG(symmGetLastError(comm), "SYMM_SHRINK_FAILED");
    T_OK(symmCommShrink(comm, NULL, 0, &next, NULL, SYMM_SHRINK_FAILED));
    lives_on(comm, next);
}

static void the_ranks_that_are_gone_are_told(void) {
    T_EXPECT_WARNINGS();
    T_FORK(5, asks_rank, fk_new(0, 0));
}

/* Nobody has a list. Rank 3 dies at some moment of the shrink. */
static void failed_rank(int rank, int n, void *arg) {
    fk *f = arg;
    const int victim = rank == 1 || rank == 3;
    symmComm_t next = NULL;
    if (victim && !as_a_victim(f)) return;
    symmComm_t comm = open_all(f, rank, n);
    if (rank == 1) die();
    if (rank == 3) doom_in(f->how);
    for (int rest = n; rest != n - 2;) {
        if (symmCommShrink(comm, NULL, 0, &next, NULL, SYMM_SHRINK_FAILED)) continue;
        T_OK(symmCommCount(next, &rest));
        if (rest == n - 2) break;
        while (!symmBarrier(next, NULL)) usleep(100); /* until the others die */
        T_OK(symmCommDestroy(next));
    }
    lives_on(comm, next);
}

static void everybody_who_is_gone_is_left_out(void) {
    const int many = getenv("T_FULL") ? 10 * MOMENTS : MOMENTS / 2;
    T_EXPECT_WARNINGS();
    for (int i = 0; i < many; i++)
        T_FORK(4, failed_rank, fk_new(0, i % MOMENTS * 900 + i / MOMENTS * 37));
}

/* A child of the caller's: keeps the connections to `peer` open for a while after the caller's
 * death. */
static void outlive_me(pid_t peer, int ms) {
    const pid_t self = getpid();
    int held = 0;
    for (int fd = 3; fd < 512; fd++) {
        struct ucred who = {0};
        socklen_t bytes = sizeof who;
        if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &bytes) || who.pid != peer) continue;
        held += dup(fd) >= 0; /* the library closes its own in a child */
    }
    T_CHECK(held > 0);
    const pid_t p = fork();
    T_CHECK(p >= 0);
    if (p) return;
    while (getppid() == self) usleep(500);
    usleep((unsigned)ms * 1000);
    _exit(0);
}

/* Rank 2 dies as they build: rank 1 finds it, and rank 0 hears of that before its own connection
 * has ended. Both try again. */
static void told_first_rank(int rank, int n, void *arg) {
    fk *f = arg;
    symmConfig_t config = SYMM_CONFIG_INITIALIZER;
    symmComm_t next = NULL;
    int rest;
    if (rank == 0) T_EQ(symm_fail_arm("watch_pidfd:error"), 0); /* only the connection tells */
    symmComm_t comm = open_all(f, rank, n);
    T_EQ(symm_fail_arm(rank == 1 ? "boot_allgather:delay=100:1" : ""), 0);
    config.timeoutMs = 5000;
    atomic_store(&f->hits[rank], getpid());
    kit_barrier(&f->k, n);
    if (rank == f->victim) {
        outlive_me(atomic_load(&f->hits[0]), 500);
        T_EQ(symm_fail_arm("boot_allgather:kill:1"), 0);
    }
    T_OK(symmCommShrink(comm, NULL, 0, &next, &config, SYMM_SHRINK_FAILED));
    T_OK(symmCommCount(next, &rest));
    T_EQ(rest, n - 1);
    lives_on(comm, next);
}

static void a_death_that_another_rank_tells_first(void) {
    T_EXPECT_WARNINGS();
    T_FORK_DIES(3, 2, told_first_rank, fk_new(2, 0));
}

/* One rank waits in a barrier for a peer that never comes: with ABORT that call ends first. */
static void *wait_in_barrier(void *arg) {
    T_ERR(symmBarrier(arg, NULL), symmAborted);
    return NULL;
}

static void abort_rank(int rank, int n, void *arg) {
    fk *f = arg;
    symmComm_t comm = open_all(f, rank, n), next = NULL;
    pthread_t t;
    if (rank == 0) {
        T_EQ(pthread_create(&t, NULL, wait_in_barrier, comm), 0);
        kit_sleep(50);
    }
    kit_barrier(&f->k, n);
    T_OK(symmCommShrink(comm, NULL, 0, &next, NULL, SYMM_SHRINK_ABORT | SYMM_SHRINK_FAILED));
    if (rank == 0) T_EQ(pthread_join(t, NULL), 0);
    T_ERR(symmBarrier(comm, NULL), symmAborted);
    lives_on(comm, next);
}

static void a_shrink_that_aborts_first(void) {
    T_EXPECT_WARNINGS();
    T_FORK(3, abort_rank, fk_new(0, 0));
}

/* ---- what the dump says of it ---- */

static void dump_has(symmComm_t comm, const char *part) {
    char text[16384];
    for (int i = 0;; i++) {
        FILE *file = tmpfile();
        T_CHECK(file);
        T_OK(symmCommDump(comm, fileno(file)));
        rewind(file);
        text[fread(text, 1, sizeof text - 1, file)] = 0;
        fclose(file);
        if (strstr(text, part)) return;
        T_CHECKF(i < 4000, "\"%s\" is not in\n%s", part, text);
        usleep(1000);
    }
}

static void *barrier_that_fails(void *arg) {
    T_ERR(symmBarrier(arg, NULL), symmRemoteError);
    return NULL;
}

static void dumped_rank(int rank, int n, void *arg) {
    fk *f = arg;
    symmComm_t comm = open_all(f, rank, n), next;
    pthread_t t;
    fk_works(comm, rank, n);
    if (rank == f->victim) {
        kit_await_flag(&f->k, 1);
        die();
    }
    T_EQ(pthread_create(&t, NULL, barrier_that_fails, comm), 0);
    if (rank == 0) {
        dump_has(comm, "symmBarrier; waiting for rank 2\n");
        dump_has(comm, "rank 2: alive");
        dump_has(comm, "rank 1: alive");
        atomic_store(&f->k.flag, 1);
    }
    T_EQ(pthread_join(t, NULL), 0);
    dump_has(comm, "rank 2: DEAD");
    dump_has(comm, "error: rank 2 died");
    T_OK(symmCommShrink(comm, NULL, 0, &next, NULL, SYMM_SHRINK_FAILED));
    lives_on(comm, next);
}

static void the_dump_says_dead_and_who_waits(void) {
    T_EXPECT_WARNINGS();
    T_FORK_DIES(3, 2, dumped_rank, fk_new(2, 0));
}

/* Who shrinks finds a death while the watcher sleeps, which tells it all the same: the parent is
 * over, also where nobody uses it. */
static void parent_of_the_dead_rank(int rank, int n, void *arg) {
    fk *f = arg;
    symmComm_t comm = open_all(f, rank, n), next = NULL;
    symmResult_t now = symmSuccess;
    T_EQ(symm_fail_arm("watch_poll:delay=300:1"), 0);
    symm_watch_look();
    while (!symm_fail_hits(symm_fp_watch_poll)) usleep(200);
    kit_barrier(&f->k, n);
    if (rank == f->victim) die();
    for (int left = n; left == n;) { /* it may still live */
        if (symmCommShrink(comm, NULL, 0, &next, NULL, SYMM_SHRINK_FAILED)) continue;
        T_OK(symmCommCount(next, &left));
        if (left == n) T_OK(symmCommDestroy(next));
    }
    for (int ms = 0; ms < 5000 && !now; ms++) {
        T_OK(symmCommGetAsyncError(comm, &now));
        usleep(1000);
    }
    T_EQ(now, symmRemoteError);
    T_ERR(symmBarrier(comm, NULL), symmRemoteError);
    lives_on(comm, next);
}

static void a_death_that_the_shrink_finds_first(void) {
    T_EXPECT_WARNINGS();
    for (int i = 0; i < 3; i++) T_FORK_DIES(3, 2, parent_of_the_dead_rank, fk_new(2, 0));
}

T_MAIN(T(a_list_that_lacks_the_dead_one), T(lists_that_differ),
       T(a_living_communicator_is_left_as_it_is), T(a_shrink_that_fails_after_they_agreed),
       T(two_deaths_at_once), T_TIMEOUT(a_death_during_the_shrink, 120),
       T(the_ranks_that_are_gone_are_told), T_TIMEOUT(everybody_who_is_gone_is_left_out, 120),
       T(a_death_that_another_rank_tells_first), T(a_shrink_that_aborts_first),
       T(the_dump_says_dead_and_who_waits), T(a_death_that_the_shrink_finds_first))
