/* fault_rollback.c - a registration that fails on one rank has failed on all, and leaves every rank
 * as it was: the least that the transaction promises, on processes. Each rank is a forked process.
 * The harness compares gauges and descriptors. */
#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "../src/host/fail.h"
#include "../src/host/stats.h"
#include "t.h"

enum { RANKS = 2, BYTES = 3 << 20 };

typedef struct {
    symmUniqueId id;
    int made;
    const char *point; /* "" none; the failing rank arms it */
    int failing;
} meeting;

static symmComm_t meet(meeting *m, int rank, int n) {
    symmComm_t comm;
    if (rank == 0) {
        T_OK(symmGetUniqueId(&m->id));
        __atomic_store_n(&m->made, 1, __ATOMIC_RELEASE);
    }
    while (!__atomic_load_n(&m->made, __ATOMIC_ACQUIRE)) sched_yield();
    T_OK(symmCommInitRank(&comm, n, m->id, rank));
    return comm;
}

/* Registers, uses and drops a window; the sum shows that the memory is everybody's. */
static void use_window(symmComm_t comm, int rank, int n, int *x) {
    symmWindow_t win;
    int *theirs;
    T_OK(symmWindowRegister(comm, x, BYTES, &win, SYMM_WIN_DEFAULT));
    x[0] = rank + 1;
    T_OK(symmBarrier(comm, NULL));
    T_OK(symmWindowPeerPtr(win, 0, (rank + 1) % n, (void **)&theirs));
    T_EQ(theirs[0], (rank + 1) % n + 1);
    T_OK(symmBarrier(comm, NULL));
    T_OK(symmWindowDeregister(comm, win));
}

static void fail_rank(int rank, int n, void *arg) {
    meeting *m = arg;
    symmWindow_t win = (symmWindow_t)m;
    int *x;
    symmComm_t comm = meet(m, rank, n);
    T_OK(symmMemAlloc((void **)&x, BYTES));
    int64_t maps = SYMM_STAT_GET(maps), slots = SYMM_STAT_GET(slots), fds = SYMM_STAT_GET(fds);
    if (rank == m->failing) T_EQ(symm_fail_arm(m->point), 0);
    T_CHECK(symmWindowRegister(comm, x, BYTES, &win, SYMM_WIN_DEFAULT) != symmSuccess);
    char named[16];
    snprintf(named, sizeof named, "rank %d", m->failing);
    T_MSG(symmGetLastError(comm), named);
    T_CHECK(win == (symmWindow_t)m); /* written on success only */
    symm_fail_arm("");
    T_EQ(SYMM_STAT_GET(maps), maps);
    T_EQ(SYMM_STAT_GET(slots), slots);
    T_EQ(SYMM_STAT_GET(fds), fds);
    use_window(comm, rank, n, x);
    T_OK(symmCommDestroy(comm));
    T_OK(symmMemFree(x));
}

static void one_ranks_failure_is_everybodys(void) {
    static const char *const points[] = {"vmm_retain:error:1",  "vmm_export:error:1",
                                         "slot_record:error:1", "vmm_import:error:1",
                                         "vmm_map:error:1",     "win_commit:error:1"};
    T_EXPECT_WARNINGS();
    for (int i = 0; i < 6 * RANKS; i++) {
        meeting *m = T_SHARED(sizeof *m);
        m->point = points[i / RANKS];
        m->failing = i % RANKS;
        T_FORK(RANKS, fail_rank, m);
    }
}

static void good_rank(int rank, int n, void *arg) {
    int *x;
    symmComm_t comm = meet(arg, rank, n);
    T_OK(symmMemAlloc((void **)&x, BYTES));
    for (int i = 0; i < 3; i++) use_window(comm, rank, n, x);
    T_OK(symmCommDestroy(comm));
    T_OK(symmMemFree(x));
}

static void windows_hold_no_descriptor(void) {
    T_FORK(RANKS, good_rank, T_SHARED(sizeof(meeting)));
}

T_MAIN(T(windows_hold_no_descriptor), T(one_ranks_failure_is_everybodys))
