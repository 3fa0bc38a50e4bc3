/* fault_rollback.c - a registration that fails on one rank has failed on all, and leaves every rank
 * as it was: the least that the transaction promises, on processes. Each rank is a forked process.
 * The harness compares gauges and descriptors. */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "base/fail.h"
#include "base/stats.h"
#include "t.h"

enum { RANKS = 2, BYTES = 3 << 20 };

typedef struct {
    symmUniqueId_t id;
    int made;
    const char *point; /* "" none; the failing rank arms it */
    int failing;
    volatile int code[RANKS];
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
    static const char *const points[] = {
        "vmm_retain:error:1", "vmm_export:error:1", "slot_record:error:1", "vmm_import:error:1",
        "vmm_map:error:1", "win_commit:error:1",
        /* memory: */
        "win_segments:error:1", "win_record:error:1", "win_offsets:error:1", "win_sizes:error:1",
        "win_lived:error:1", "win_table:error:1", "win_runs:error:1", "slot_parts:error:1",
        "vmm_record:error:1", "vmm_mapping:error:1"};
    const int n = (int)(sizeof points / sizeof *points);
    T_EXPECT_WARNINGS();
    for (int i = 0; i < n * RANKS; i++) {
        meeting *m = T_SHARED(sizeof *m);
        m->point = points[i / RANKS];
        m->failing = i % RANKS;
        T_FORK(RANKS, fail_rank, m);
    }
}

/* ---- a machine without memory ---- */

typedef struct hoard {
    struct hoard *next;
} hoard;

static rlim_t limit_to(rlim_t bytes) {
    struct rlimit limit;
    T_EQ(getrlimit(RLIMIT_AS, &limit), 0);
    const rlim_t old = limit.rlim_cur;
    limit.rlim_cur = bytes;
    T_EQ(setrlimit(RLIMIT_AS, &limit), 0);
    return old;
}

static rlim_t addresses(void) {
    unsigned long long pages = 0;
    FILE *f = fopen("/proc/self/statm", "re");
    T_CHECK(f && fscanf(f, "%llu", &pages) == 1);
    fclose(f);
    return (rlim_t)pages * 4096;
}

/* All that malloc has, but for about `spare` bytes in pieces of 512. */
static hoard *take_all(size_t spare) {
    hoard *all = NULL;
    for (size_t size = 1 << 20; size >= 24; size /= 2)
        for (hoard *h; (h = malloc(size)); all = h) {
            h->next = all;
            if (size == 512 && spare >= 512) {
                spare -= 512;
                hoard *more = malloc(24); /* keeps the pieces apart */
                free(h);
                if (!more) return all;
                h = more;
                h->next = all;
            }
        }
    return all;
}

static void no_memory_rank(int rank, int n, void *arg) {
    static const size_t spare[] = {0, 1024, 4096, 16384, 65536};
    meeting *m = arg;
    symmWindow_t win = NULL;
    int *x, refused = 0;
    symmComm_t comm = meet(m, rank, n);
    T_OK(symmMemAlloc((void **)&x, BYTES));
    for (size_t i = 0; i < sizeof spare / sizeof *spare; i++) {
        use_window(comm, rank, n, x);
        hoard *all = NULL;
        rlim_t old = 0;
        if (rank == m->failing) {
            old = limit_to(addresses() + (1 << 20));
            all = take_all(spare[i]);
        }
        symmResult_t r = symmWindowRegister(comm, x, BYTES, &win, SYMM_WIN_DEFAULT);
        while (all) {
            hoard *next = all->next;
            free(all);
            all = next;
        }
        if (rank == m->failing) limit_to(old);
        m->code[rank] = (int)r;
        T_OK(symmBarrier(comm, NULL));
        T_EQ(m->code[0], m->code[1]);
        T_CHECK(r == symmSuccess || r == symmOutOfMemory);
        if (r) T_MSG(symmGetLastError(comm), m->failing ? "rank 1" : "rank 0");
        if (!r) T_OK(symmWindowDeregister(comm, win));
        refused += r != symmSuccess;
        T_OK(symmBarrier(comm, NULL));
    }
    T_CHECK(refused > 0);
    use_window(comm, rank, n, x);
    T_OK(symmCommDestroy(comm));
    T_OK(symmMemFree(x));
}

static void without_memory_all_are_refused_and_go_on(void) {
#if T_ASAN || T_TSAN
    T_SKIP("the sanitizer itself needs addresses");
#endif
    T_EXPECT_WARNINGS();
    for (int failing = 0; failing < RANKS; failing++) {
        meeting *m = T_SHARED(sizeof *m);
        m->failing = failing;
        T_FORK(RANKS, no_memory_rank, m);
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

T_MAIN(T(windows_hold_no_descriptor), T(one_ranks_failure_is_everybodys),
       T(without_memory_all_are_refused_and_go_on))
