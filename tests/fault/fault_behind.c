/* fault_behind.c - split and shrink that do not block, what a communicator that is being made says
 * of itself, and calls that make communicators or windows inside groups: queued, or refused at
 * the call. Forked ranks and thread ranks; no lock. */
#include <sched.h>

#include "symm_heap.h"

#include "fault_kit.h"

enum { RANKS = 3 };

static symmConfig_t behind(void) {
    symmConfig_t c = SYMM_CONFIG_INITIALIZER;
    c.blocking = 0;
    c.commName = "behind";
    return c;
}

static symmResult_t await_creation(symmComm_t comm) {
    symmResult_t r;
    do {
        T_OK(symmCommGetAsyncError(comm, &r));
        if (r == symmInProgress) usleep(500);
    } while (r == symmInProgress);
    return r;
}

static void dump_of(symmComm_t comm, char *text, size_t cap) {
    FILE *file = tmpfile();
    T_CHECK(file);
    T_OK(symmCommDump(comm, fileno(file)));
    rewind(file);
    text[fread(text, 1, cap - 1, file)] = 0;
    fclose(file);
}

/* A thread that goes on behind has ended, a moment after the communicator is there. */
static void no_threads(void) {
    for (int i = 0; i < 5000 && SYMM_STAT_GET(threads) > 1; i++) usleep(1000);
    T_CHECK(SYMM_STAT_GET(threads) <= 1); /* the watcher */
}

/* ---- behind ---- */

static void split_behind_rank(int rank, int n, void *arg) {
    fk *f = arg;
    symmComm_t comm = fk_open(f, rank, n), child = NULL, other = NULL;
    symmConfig_t config = behind();
    char text[8192];
    if (rank == n - 1) kit_await_flag(&f->k, 1); /* late, which must hold nobody up */
    T_ERR(symmCommSplit(comm, 0, 0, &child, &config), symmInProgress);
    T_CHECK(child != NULL);
    if (rank == 0) {
        int count;
        T_ERR(symmBarrier(comm, NULL), symmInProgress);
        T_ERR(symmBarrier(child, NULL), symmInProgress);
        T_ERR(symmCommSplit(comm, 0, 0, &other, NULL), symmInProgress);
        T_ERR(symmCommDestroy(comm), symmInProgress);
        T_OK(symmCommCount(comm, &count));
        dump_of(comm, text, sizeof text);
        T_MSG(text, "another one is being made from it");
        dump_of(child, text, sizeof text);
        T_MSG(text, "communicator behind\n  state: being created: ");
        atomic_store(&f->k.flag, 1);
    }
    T_EQ(await_creation(child), symmSuccess);
    T_EQ(await_creation(comm), symmSuccess);
    fk_works(child, rank, n);
    fk_works(comm, rank, n);
    other = comm;
    T_ERR(symmCommSplit(child, rank == 1 ? SYMM_SPLIT_NOCOLOR : 3, 0, &other, NULL),
          symmInProgress); /* config NULL: the parent's */
    T_EQ(await_creation(child), symmSuccess);
    T_EQ(other == NULL, rank == 1);
    if (other) {
        T_EQ(await_creation(other), symmSuccess);
        fk_works(other, rank ? rank - 1 : 0, n - 1);
        T_OK(symmCommDestroy(other));
    }
    fk_registers(child, rank, n);
    T_OK(symmCommDestroy(child));
    T_OK(symmCommDestroy(comm));
    no_threads();
}

static void a_split_that_does_not_block(void) {
    T_FORK(RANKS, split_behind_rank, fk_new(0, 0));
}

/* Once the new one says that it is done, whatever came of it, the parent may be called. Spins: the
 * moment is short. */
static void parent_after_child_rank(int rank, int n, void *arg) {
    symmComm_t comm = fk_open(arg, rank, n), child;
    symmConfig_t config = behind();
    symmResult_t r;
    for (int i = 0; i < 200; i++) {
        const int bad = i % 4 == 3;
        T_EQ(symm_fail_arm(bad     ? "boot_connect:error"
                           : i < 4 ? "behind_leave:delay=50" /* the parent is late */
                                   : ""),
             0);
        T_ERR(symmCommSplit(comm, 0, 0, &child, &config), symmInProgress);
        do {
            T_OK(symmCommGetAsyncError(child, &r));
            sched_yield();
        } while (r == symmInProgress);
        T_EQ(r, bad ? symmSystemError : symmSuccess);
        T_OK(symmBarrier(comm, NULL));
        T_OK(symmCommDestroy(child));
    }
    T_OK(symmCommDestroy(comm));
    no_threads();
}

static void the_parent_is_free_when_the_child_is_done(void) {
    T_EXPECT_WARNINGS();
    T_FORK(RANKS, parent_after_child_rank, fk_new(0, 0));
}

/* The other way round: NCCL's programs ask the parent, and use the new one then. */
static void child_after_parent_rank(int rank, int n, void *arg) {
    symmComm_t comm = fk_open(arg, rank, n), child;
    symmConfig_t config = behind();
    symmResult_t r;
    for (int i = 0; i < 4; i++) {
        T_EQ(symm_fail_arm("behind_done:delay=50"), 0);
        T_ERR(symmCommSplit(comm, 0, 0, &child, &config), symmInProgress);
        T_EQ(await_creation(comm), symmSuccess);
        T_OK(symmCommGetAsyncError(child, &r));
        T_EQ(r, symmSuccess);
        T_OK(symmCommDestroy(child));
    }
    T_OK(symmCommDestroy(comm));
    no_threads();
}

static void the_child_is_done_when_the_parent_is_free(void) {
    T_FORK(RANKS, child_after_parent_rank, fk_new(0, 0));
}

/* Rank 1 never comes, and the deadline is far. */
static void abort_parent_rank(int rank, int n, void *arg) {
    fk *f = arg;
    symmComm_t comm = fk_open(f, rank, n), child = NULL;
    symmConfig_t config = behind();
    if (rank == 1) {
        kit_barrier(&f->k, n);
        T_ERR(symmBarrier(comm, NULL), symmAborted);
    } else {
        T_ERR(symmCommSplit(comm, 0, 0, &child, &config), symmInProgress);
        if (rank == 0) kit_sleep(20);
        if (rank == 0) T_OK(symmCommAbort(comm));
        T_EQ(await_creation(child), symmAborted);
        T_OK(symmCommDestroy(child));
        kit_barrier(&f->k, n);
    }
    if (rank) {
        symmResult_t r;
        while ((r = symmCommDestroy(comm)) == symmInProgress) usleep(500);
        T_OK(r);
    }
    no_threads();
}

static void the_parent_is_aborted_meanwhile(void) {
    T_EXPECT_WARNINGS();
    T_FORK(RANKS, abort_parent_rank, fk_new(0, 0));
}

/* ---- given up at the last moment ---- */

typedef struct {
    symmComm_t comms[RANKS];
    int parent; /* 1: that is what rank 0 aborts */
} last_moment;

/* Rank 0 is held up when the others may have the new one already, which must not wait for it. */
static void last_moment_of(int rank, symmComm_t parent, int aborts_parent) {
    symmComm_t child = NULL;
    symmConfig_t config = behind();
    symmResult_t r;
    T_ERR(symmCommSplit(parent, 0, 0, &child, &config), symmInProgress);
    if (rank == 0) {
        kit_sleep(100);
        T_OK(symmCommAbort(aborts_parent ? parent : child));
        if (aborts_parent && await_creation(child))
            T_OK(symmCommDestroy(child));
        else if (aborts_parent) /* it was made all the same */
            T_OK(symmCommAbort(child));
        return;
    }
    r = await_creation(child);
    T_CHECK(r == symmSuccess || r == symmAborted);
    T_ERR(symmBarrier(child, NULL), symmAborted);
    T_OK(symmCommDestroy(child));
}

static void last_moment_thread(int rank, int n, void *arg) {
    last_moment *m = arg;
    (void)n;
    last_moment_of(rank, m->comms[rank], m->parent);
}

static void last_moment_process(int rank, int n, void *arg) {
    fk *f = arg;
    symmComm_t comm = fk_open(f, rank, n);
    T_EQ(symm_fail_arm(f->how & 1 ? "comm_live:delay=300:2:0" : "comm_live:delay=300:1:0"), 0);
    last_moment_of(rank, comm, f->how >> 1);
    if (rank || f->how < 2)
        while (symmCommDestroy(comm) == symmInProgress) usleep(500);
    no_threads();
}

static void given_up_at_the_last_moment(void) {
    T_EXPECT_WARNINGS();
    setenv("SYMM_BACKEND", "host", 1);
    for (int how = 0; how < 4; how++) {
        last_moment m = {.parent = how >> 1};
        T_OK(symmCommInitAll(m.comms, RANKS, NULL));
        T_EQ(symm_fail_arm(how & 1 ? "comm_live:delay=300:2:0" : "comm_live:delay=300:1:0"), 0);
        T_THREADS(RANKS, last_moment_thread, &m);
        T_EQ(symm_fail_arm(""), 0);
        for (int r = m.parent; r < RANKS; r++)
            while (symmCommDestroy(m.comms[r]) == symmInProgress) usleep(500);
        T_FORK(RANKS, last_moment_process, fk_new(0, how));
    }
    no_threads();
}

/* A rank that has failed when others have theirs: they hear why. */
static void fails_last_of(int rank, symmComm_t parent) {
    symmComm_t child = NULL;
    const symmResult_t r = symmCommSplit(parent, 0, 0, &child, NULL);
    if (rank == 1) T_EQ(r, symmSystemError);
    if (r) { /* who has not ended its own part by then has none either */
        T_EQ(r, symmSystemError);
        T_MSG(symmGetLastError(NULL), rank == 1 ? "comm_live" : "rank 1 ");
        T_CHECK(!child);
    } else {
        T_ERR(symmBarrier(child, NULL), symmSystemError);
        T_MSG(symmGetLastError(child), "rank 1 ");
        T_OK(symmCommDestroy(child));
    }
}

static void fails_last_thread(int rank, int n, void *arg) {
    (void)n;
    fails_last_of(rank, ((last_moment *)arg)->comms[rank]);
}

static void fails_last_process(int rank, int n, void *arg) {
    fk *f = arg;
    symmComm_t comm = fk_open(f, rank, n);
    T_EQ(symm_fail_arm("comm_live:error:2:1"), 0);
    fails_last_of(rank, comm);
    kit_barrier(&f->k, n);
    T_OK(symmCommDestroy(comm));
}

static void a_failure_at_the_last_moment(void) {
    T_EXPECT_WARNINGS();
    last_moment m;
    setenv("SYMM_BACKEND", "host", 1);
    T_OK(symmCommInitAll(m.comms, RANKS, NULL));
    T_EQ(symm_fail_arm("comm_live:error:2:1"), 0);
    T_THREADS(RANKS, fails_last_thread, &m);
    T_EQ(symm_fail_arm(""), 0);
    for (int r = 0; r < RANKS; r++) T_OK(symmCommDestroy(m.comms[r]));
    T_FORK(RANKS, fails_last_process, fk_new(0, 0));
}

/* Before the ranks of the new one are sorted no number names the one that gives up. */
static void before_it_has_ranks_rank(int rank, int n, void *arg) {
    fk *f = arg;
    symmComm_t comm = fk_open(f, rank, n), child = NULL;
    symmConfig_t config = behind();
    if (rank != 1) T_ERR(symmCommSplit(comm, 0, n - rank, &child, &config), symmInProgress);
    if (rank == 2) T_OK(symmCommAbort(child)); /* which will be rank 0 of it, not 2 */
    kit_barrier(&f->k, n);
    if (rank == 1) T_ERR(symmCommSplit(comm, 0, n - rank, &child, &config), symmInProgress);
    if (rank != 2) {
        T_EQ(await_creation(child), symmAborted);
        T_ERR(symmBarrier(child, NULL), symmAborted);
        T_MSG(symmGetLastError(child), " revoked: symmCommAbort was called while");
        T_OK(symmCommDestroy(child));
    }
    while (symmCommDestroy(comm) == symmInProgress) usleep(500);
}

static void given_up_before_it_has_ranks(void) {
    T_EXPECT_WARNINGS();
    T_FORK(RANKS, before_it_has_ranks_rank, fk_new(0, 0));
}

static void bad_behind_rank(int rank, int n, void *arg) {
    symmComm_t comm = fk_open(arg, rank, n), child = NULL;
    symmConfig_t config = behind();
    T_EQ(symm_fail_arm(rank == 1 ? "boot_connect:error" : ""), 0);
    T_ERR(symmCommSplit(comm, 0, 0, &child, &config), symmInProgress);
    T_EQ(await_creation(child), symmSystemError);
    T_EQ(symm_fail_arm(""), 0);
    T_ERR(symmBarrier(child, NULL), symmSystemError);
    T_MSG(symmGetLastError(child), "failpoint boot_connect on rank 1");
    T_EQ(await_creation(comm), symmSuccess);
    T_OK(symmCommDestroy(child));
    fk_works(comm, rank, n);
    T_OK(symmCommDestroy(comm));
    no_threads();
}

/* Rank 1 cannot go on behind: it takes its error to the others in the call. */
static void cannot_start_rank(int rank, int n, void *arg) {
    static const char *const points[] = {"behind_alloc:error:1", "behind_thread:error:1"};
    symmComm_t comm = fk_open(arg, rank, n), child = NULL;
    symmConfig_t config = behind();
    for (int i = 0; i < 2; i++) {
        if (rank == 1) T_EQ(symm_fail_arm(points[i]), 0);
        const symmResult_t r = symmCommSplit(comm, 0, 0, &child, &config),
                           want = i ? symmSystemError : symmOutOfMemory;
        T_EQ(symm_fail_arm(""), 0);
        if (rank == 1) {
            T_EQ(r, want);
        } else {
            T_EQ(r, symmInProgress);
            T_EQ(await_creation(child), want);
            T_OK(symmCommDestroy(child));
        }
        T_EQ(await_creation(comm), symmSuccess);
    }
    fk_works(comm, rank, n);
    T_OK(symmCommDestroy(comm));
    no_threads();
}

static void a_split_that_cannot_go_on_behind(void) {
    T_EXPECT_WARNINGS();
    T_FORK(RANKS, cannot_start_rank, fk_new(0, 0));
}

static void a_split_that_fails_behind(void) {
    T_EXPECT_WARNINGS();
    T_FORK(RANKS, bad_behind_rank, fk_new(0, 0));
}

static void shrink_behind_rank(int rank, int n, void *arg) {
    fk *f = arg;
    symmComm_t comm = fk_open(f, rank, n), next = NULL;
    symmConfig_t config = behind();
    if (rank == f->victim) {
        kill(getpid(), SIGKILL);
    }
    while (symmBarrier(comm, NULL) != symmRemoteError) usleep(500);
    T_ERR(symmCommShrink(comm, NULL, 0, &next, &config, 0), symmInProgress);
    T_EQ(await_creation(next), symmRemoteError);
    T_ERR(symmBarrier(next, NULL), symmRemoteError);
    T_MSG(symmGetLastError(next), "is not in excludeRanks");
    T_OK(symmCommDestroy(next));
    T_ERR(symmCommShrink(comm, &f->victim, 1, &next, &config, 0), symmInProgress);
    T_EQ(await_creation(next), symmSuccess);
    fk_works(next, rank ? 1 : 0, n - 1);
    T_OK(symmCommDestroy(comm));
    fk_works(next, rank ? 1 : 0, n - 1);
    T_OK(symmCommDestroy(next));
    no_threads();
}

static void a_shrink_that_does_not_block(void) {
    T_EXPECT_WARNINGS();
    T_FORK_DIES(RANKS, 1, shrink_behind_rank, fk_new(1, 0));
}

/* ---- dump ---- */

static void dump_creation_rank(int rank, int n, void *arg) {
    fk *f = arg;
    symmComm_t comm = NULL;
    symmConfig_t config = behind();
    char text[8192];
    config.timeoutMs = 400;
    fk_id(f, rank, n);
    if (rank == 1) return; /* never comes */
    T_ERR(symmCommInitRankConfig(&comm, n, f->id, rank, &config), symmInProgress);
    dump_of(comm, text, sizeof text);
    T_MSG(text, "communicator behind\n  state: being created");
    T_EQ(await_creation(comm), symmTimeout);
    dump_of(comm, text, sizeof text);
    T_MSG(text, "state: could not be created: waiting for the ranks to come");
    T_MSG(text, "error: rank 1");
    T_ERR(symmCommShrink(comm, NULL, 0, &comm, NULL, 0), symmInvalidUsage);
    T_OK(symmCommDestroy(comm));
    no_threads();
}

static void the_dump_of_one_that_is_being_made(void) {
    T_EXPECT_WARNINGS();
    T_FORK(2, dump_creation_rank, fk_new(0, 0));
}

/* ---- groups: one thread drives all ranks ---- */

static void barrier_all(symmComm_t *comms, int n) {
    T_OK(symmGroupStart());
    for (int r = 0; r < n; r++) T_OK(symmBarrier(comms[r], NULL));
    T_OK(symmGroupEnd());
}

static void destroy_all(symmComm_t *comms, int n) {
    for (int r = 0; r < n; r++) T_OK(symmCommDestroy(comms[r]));
}

static void shrink_in_a_group(void) {
    T_EXPECT_WARNINGS();
    symmComm_t comms[RANKS], next[RANKS] = {NULL}, third[RANKS];
    int gone[RANKS], count[RANKS];
    T_OK(symmCommInitAll(comms, RANKS, NULL));
    T_OK(symmGroupStart());
    for (int r = 0; r < RANKS; r++) {
        int nobody = 1;
        T_OK(symmCommShrink(comms[r], &nobody, 0, &next[r], NULL, 0));
        T_OK(symmCommFailedRanks(comms[r], SYMM_FAILED_AGREE, &gone[r], 1, &count[r]));
        nobody = 99;
    }
    T_CHECK(next[0] == NULL); /* End makes them */
    T_OK(symmGroupEnd());
    for (int r = 0; r < RANKS; r++) T_EQ(count[r], 0);
    barrier_all(next, RANKS);
    T_OK(symmCommDestroy(next[1])); /* it is gone */
    T_OK(symmGroupStart());
    for (int r = 0; r < RANKS; r++) {
        int one = 1;
        if (r == 1) continue;
        T_OK(symmCommFailedRanks(next[r], SYMM_FAILED_AGREE, &gone[r], 1, &count[r]));
        T_OK(symmCommShrink(next[r], &one, 1, &third[r], NULL, 0));
        one = 0; /* the list was read at the call */
    }
    T_OK(symmGroupEnd());
    T_EQ(count[0] + count[2], 2);
    T_EQ(gone[2], 1);
    next[1] = third[2];
    third[1] = third[2];
    barrier_all(third, 2);
    destroy_all(third, 2);
    T_OK(symmCommDestroy(next[0]));
    T_OK(symmCommDestroy(next[2]));
    destroy_all(comms, RANKS);
}

/* Everything that is collective may stand in a group; what would come before it is refused. */
static void calls_in_a_group(void) {
    T_EXPECT_WARNINGS();
    symmComm_t comms[RANKS], child[RANKS];
    symmWindow_t win[RANKS], also[RANKS];
    symmHeap_t heap[RANKS];
    void *buf[RANKS];
    T_OK(symmCommInitAll(comms, RANKS, NULL));
    T_OK(symmGroupStart());
    for (int r = 0; r < RANKS; r++) {
        symmHeapConfig_t c = SYMM_HEAP_CONFIG_INITIALIZER;
        c.reserve = 64 << 20;
        T_OK(symmMemAlloc(&buf[r], 2 << 20));
        T_OK(symmWindowRegister(comms[r], buf[r], 2 << 20, &win[r], 0));
        T_OK(symmCommSplit(comms[r], 0, 0, &child[r], NULL));
        T_OK(symmHeapCreate(comms[r], &c, &heap[r]));
    }
    T_OK(symmGroupEnd());
    T_OK(symmGroupStart());
    for (int r = 0; r < RANKS; r++) T_OK(symmHeapGrow(heap[r], 4 << 20, 0));
    T_ERR(symmWindowDeregister(comms[0], win[0]), symmInvalidUsage);
    T_MSG(symmGetLastError(NULL), "symmWindowDeregister: this group has calls of the communicator");
    T_ERR(symmGroupEnd(), symmInvalidUsage); /* runs none of them */
    T_OK(symmGroupStart());
    T_OK(symmBarrier(comms[1], NULL));
    T_ERR(symmCommDestroy(comms[1]), symmInvalidUsage);
    T_ERR(symmCommFinalize(comms[1]), symmInvalidUsage);
    T_ERR(symmGroupEnd(), symmInvalidUsage);
    T_OK(symmGroupStart());
    for (int r = 0; r < RANKS; r++) T_OK(symmHeapGrow(heap[r], 4 << 20, 0));
    for (int r = 0; r < RANKS; r++)
        T_OK(symmWindowRegister(child[r], buf[r], 2 << 20, &also[r], 0));
    T_OK(symmGroupEnd());
    T_OK(symmGroupStart()); /* nothing of theirs stands in it: made at once */
    for (int r = 0; r < RANKS; r++) T_OK(symmWindowDeregister(child[r], also[r]));
    for (int r = 0; r < RANKS; r++) T_OK(symmWindowDeregister(comms[r], win[r]));
    T_OK(symmGroupEnd());
    for (int r = 0; r < RANKS; r++) {
        T_OK(symmHeapDestroy(heap[r]));
        T_OK(symmMemFree(buf[r]));
    }
    destroy_all(child, RANKS);
    destroy_all(comms, RANKS);
}

/* ---- configs ---- */

static int gather_alone(void *ctx, const void *send, void *recv, size_t bytes) {
    (void)ctx;
    memmove(recv, send, bytes);
    return 0;
}

static int meet_alone(void *ctx) {
    (void)ctx;
    return 0;
}

static const symmBoot_t alone = {.allgather = gather_alone, .barrier = meet_alone};

static symmComm_t alone_by_callbacks(const symmConfig_t *config) {
    symmComm_t comm;
    T_OK(symmCommInitBoot(&comm, 1, 0, &alone, config));
    return comm;
}

/* For what is created by callbacks 0 is as 1, and so it is for what is made from it. */
static void blocking_0_of_callbacks_is_not_inherited(void) {
    symmConfig_t config = behind();
    symmComm_t comm = alone_by_callbacks(&config), child = NULL;
    T_OK(symmCommSplit(comm, 0, 0, &child, NULL));
    T_OK(symmCommDestroy(child));
    T_OK(symmCommShrink(comm, NULL, 0, &child, NULL, 0));
    T_OK(symmCommDestroy(child));
    T_OK(symmCommDestroy(comm));
}

static void is_named(symmComm_t comm, const char *name) {
    char text[8192], line[64];
    dump_of(comm, text, sizeof text);
    snprintf(line, sizeof line, "communicator %s: ", name);
    T_MSG(text, line);
    T_OK(symmCommDestroy(comm));
}

/* Config and name are the caller's again once the call has returned: the group does not look at
 * them. */
static void a_group_keeps_configs_and_names(void) {
    const symmConfig_t plain = SYMM_CONFIG_INITIALIZER;
    char name[32] = "kept";
    symmConfig_t config = plain;
    symmUniqueId_t id;
    symmComm_t comm[4] = {NULL}, parent = alone_by_callbacks(NULL);
    T_OK(symmGetUniqueId(&id));
    config.commName = name;
    T_OK(symmGroupStart());
    T_OK(symmCommInitRankConfig(&comm[0], 1, id, 0, &config));
    T_OK(symmCommInitBoot(&comm[1], 1, 0, &alone, &config));
    T_OK(symmCommSplit(parent, 0, 0, &comm[2], &config));
    T_OK(symmCommShrink(parent, NULL, 0, &comm[3], &config, 0));
    memset(name, 'x', sizeof name - 1);
    config.minCTAs = -7; /* refused by who looks at it now */
    T_OK(symmGroupEnd());
    for (int i = 0; i < 4; i++) is_named(comm[i], "kept");
    T_OK(symmCommDestroy(parent));
}

T_MAIN(T(a_split_that_does_not_block), T(the_parent_is_free_when_the_child_is_done),
       T(the_child_is_done_when_the_parent_is_free), T(the_parent_is_aborted_meanwhile),
       T(given_up_at_the_last_moment), T(a_failure_at_the_last_moment),
       T(given_up_before_it_has_ranks), T(a_split_that_fails_behind),
       T(a_split_that_cannot_go_on_behind), T(a_shrink_that_does_not_block),
       T(the_dump_of_one_that_is_being_made), T(shrink_in_a_group), T(calls_in_a_group),
       T(blocking_0_of_callbacks_is_not_inherited), T(a_group_keeps_configs_and_names))
