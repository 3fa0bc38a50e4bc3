/* fault_idle.c - a rank that ends or aborts while nobody uses the communicator: whose config says
 * so minds it only when it uses the communicator, and a process that ends by exit has left. Forked
 * ranks; no lock. */
#include <sys/wait.h>

#include "coll_expect.h"
#include "fault_kit.h"

enum { SOON_MS = 1000, SEEN_MS = 300, BYTES = 2 << 20 };
/* A message needs nobody: it would end without its receiver. */
enum { COLLECTIVE, ON_A_STREAM, REGISTRATION, SPLIT, MESSAGE, NO_CALL, CALLS };

static symmComm_t open_when_used(fk *f, int rank, int n) {
    symmComm_t comm = NULL;
    symmConfig_t config = SYMM_CONFIG_INITIALIZER;
    config.peerDeath = SYMM_DEATH_WHEN_USED;
    fk_id(f, rank, n);
    T_OK(symmCommInitRankConfig(&comm, n, f->id, rank, &config));
    return comm;
}

/* Ends the victim; the others return when they have had time to see it. */
static void lose(fk *f, int rank, int n) {
    kit_barrier(&f->k, n);
    if (rank == f->victim) kill(getpid(), SIGKILL);
    kit_sleep(SEEN_MS);
}

static void is_quiet(const fk *f, symmComm_t comm) {
    symmResult_t async = symmInternalError;
    symmCommInfo_t info = {.size = sizeof info};
    int gone[4] = {-1}, count = 0;
    T_OK(symmCommGetAsyncError(comm, &async));
    T_EQ(async, symmSuccess);
    T_OK(symmCommQuery(comm, &info));
    T_OK(symmCommFinalize(comm));
    T_OK(symmCommFailedRanks(comm, SYMM_FAILED_LOCAL, gone, 4, &count));
    T_EQ(count, 1);
    T_EQ(gone[0], f->victim);
}

static void names_the_victim(const fk *f, symmComm_t comm) {
    char who[16];
    snprintf(who, sizeof who, "rank %d", f->victim);
    T_MSG(symmGetLastError(comm), who);
}

static void shrink_and_work(fk *f, int rank, int n, symmComm_t comm, int listed) {
    symmComm_t next;
    symmResult_t async;
    T_OK(listed ? symmCommShrink(comm, &f->victim, 1, &next, NULL, 0)
                : symmCommShrink(comm, NULL, 0, &next, NULL, SYMM_SHRINK_FAILED));
    const int mine = rank > f->victim ? rank - 1 : rank;
    fk_works(next, mine, n - 1);
    fk_registers(next, mine, n - 1);
    if (f->how % CALLS == NO_CALL) {
        T_OK(symmCommGetAsyncError(comm, &async));
        T_EQ(async, symmSuccess);
    }
    T_OK(symmCommDestroy(comm));
    fk_works(next, mine, n - 1);
    T_OK(symmCommDestroy(next));
}

/* ---- a call that comes later ---- */

static symmResult_t use(const fk *f, symmComm_t comm) {
    symmResult_t r;
    symmStream_t stream;
    symmWindow_t win;
    symmComm_t child;
    void *buf;
    switch (f->how % CALLS) {
    case COLLECTIVE: return symmBarrier(comm, NULL);
    case REGISTRATION:
        T_OK(symmMemAlloc(&buf, BYTES));
        r = symmWindowRegister(comm, buf, BYTES, &win, 0);
        T_OK(symmMemFree(buf));
        return r;
    case MESSAGE: return symmSend(&f->victim, 1, symmInt32, f->victim, comm, NULL);
    case SPLIT: return symmCommSplit(comm, 0, 0, &child, NULL);
    default:
        T_OK(symmStreamCreate(&stream));
        r = symmBarrier(comm, stream);
        if (!r) r = symmStreamSynchronize(stream);
        T_OK(symmStreamDestroy(stream));
        return r;
    }
}

/* The next call ends with it, and so does all that comes behind. */
static void ends_with(const fk *f, symmComm_t comm, symmResult_t why) {
    symmResult_t async;
    if (f->how % CALLS == NO_CALL) return;
    T_EQ(use(f, comm), why);
    names_the_victim(f, comm);
    T_OK(symmCommGetAsyncError(comm, &async));
    T_EQ(async, why);
    T_ERR(symmBarrier(comm, NULL), why);
    T_ERR(symmCommFinalize(comm), why);
}

static void used_later_rank(int rank, int n, void *arg) {
    fk *f = arg;
    symmComm_t comm = open_when_used(f, rank, n);
    lose(f, rank, n);
    is_quiet(f, comm);
    kit_barrier(&f->k, n - 1);
    ends_with(f, comm, symmRemoteError);
    kit_barrier(&f->k, n - 1);
    shrink_and_work(f, rank, n, comm, f->how / CALLS);
}

static void an_error_of_the_next_call(void) {
    T_EXPECT_WARNINGS();
    for (int how = 0; how < 2 * CALLS; how++)
        T_FORK_DIES(3, how % 3, used_later_rank, fk_new(how % 3, how));
}

static void destroyed_rank(int rank, int n, void *arg) {
    fk *f = arg;
    symmComm_t comm = open_when_used(f, rank, n);
    lose(f, rank, n);
    is_quiet(f, comm);
    kit_barrier(&f->k, n - 1); /* who has left is gone, too */
    T_OK(symmCommDestroy(comm));
}

/* Nobody warns. */
static void no_error_of_who_only_ends_it(void) {
    T_FORK_DIES(4, 2, destroyed_rank, fk_new(2, 0));
}

/* ---- a call that is under way ---- */

static void under_way_rank(int rank, int n, void *arg) {
    fk *f = arg;
    symmComm_t comm = open_when_used(f, rank, n);
    kit_barrier(&f->k, n);
    if (rank == f->victim) {
        kit_sleep(SEEN_MS);
        atomic_store(&f->at_ns, symm_now_ns());
        kill(getpid(), SIGKILL);
    }
    T_EQ(use(f, comm), symmRemoteError);
    names_the_victim(f, comm);
    T_CHECKF(fk_ms_since(atomic_load(&f->at_ns)) < SOON_MS, "heard after %d ms",
             (int)fk_ms_since(atomic_load(&f->at_ns)));
    kit_barrier(&f->k, n - 1);
    shrink_and_work(f, rank, n, comm, 1);
}

static void an_error_of_a_call_under_way(void) {
    T_EXPECT_WARNINGS();
    for (int how = 0; how < MESSAGE; how++)
        T_FORK_DIES(3, how % 3, under_way_rank, fk_new(how % 3, how));
}

/* ---- a peer that aborts ---- */

static void aborted_rank(int rank, int n, void *arg) {
    fk *f = arg;
    symmComm_t comm = open_when_used(f, rank, n);
    fk_works(comm, rank, n);
    kit_barrier(&f->k, n);
    if (rank == f->victim) {
        T_OK(symmCommAbort(comm));
        kit_barrier(&f->k, n);
        return;
    }
    kit_barrier(&f->k, n);
    kit_sleep(SEEN_MS); /* until its connection has ended, too */
    is_quiet(f, comm);
    ends_with(f, comm, symmAborted);
    kit_barrier(&f->k, n - 1);
    shrink_and_work(f, rank, n, comm, f->how / CALLS);
}

static void an_abort_is_an_error_of_the_next_call(void) {
    T_EXPECT_WARNINGS();
    for (int how = 0; how < 2 * CALLS; how++) T_FORK(3, aborted_rank, fk_new(how % 3, how));
}

static void abort_under_way_rank(int rank, int n, void *arg) {
    fk *f = arg;
    symmComm_t comm = open_when_used(f, rank, n);
    kit_barrier(&f->k, n);
    if (rank == f->victim) {
        kit_sleep(SEEN_MS);
        atomic_store(&f->at_ns, symm_now_ns());
        T_OK(symmCommAbort(comm));
        return;
    }
    T_EQ(use(f, comm), symmAborted);
    names_the_victim(f, comm);
    T_CHECKF(fk_ms_since(atomic_load(&f->at_ns)) < SOON_MS, "heard after %d ms",
             (int)fk_ms_since(atomic_load(&f->at_ns)));
    T_OK(symmCommDestroy(comm));
}

static void an_abort_ends_a_call_under_way(void) {
    T_EXPECT_WARNINGS();
    for (int how = 0; how < MESSAGE; how++) T_FORK(3, abort_under_way_rank, fk_new(how % 3, how));
}

/* The last rank minds it at once. And a revocation is told to all at once. */
static void mixed_rank(int rank, int n, void *arg) {
    fk *f = arg;
    symmResult_t async;
    symmComm_t comm = NULL;
    symmConfig_t config = SYMM_CONFIG_INITIALIZER;
    config.peerDeath = rank == n - 1 ? SYMM_DEATH_AT_ONCE : SYMM_DEATH_WHEN_USED;
    fk_id(f, rank, n);
    T_OK(symmCommInitRankConfig(&comm, n, f->id, rank, &config));
    kit_barrier(&f->k, n);
    if (rank == f->victim && !f->how) T_OK(symmCommAbort(comm));
    if (rank == f->victim && f->how) T_OK(symmCommRevoke(comm, 0));
    kit_barrier(&f->k, n);
    if (rank == f->victim && !f->how) return;
    T_OK(symmCommGetAsyncError(comm, &async));
    T_EQ(async, f->how || rank == n - 1 ? symmAborted : symmSuccess);
    T_OK(symmCommDestroy(comm));
}

static void each_rank_minds_it_as_its_config_says(void) {
    T_EXPECT_WARNINGS();
    T_FORK(3, mixed_rank, fk_new(1, 0));
    T_FORK(3, mixed_rank, fk_new(1, 1));
}

/* ---- exit ---- */

static void exiting_rank(int rank, int n, void *arg) {
    fk *f = arg;
    symmResult_t async;
    symmComm_t comm = f->how ? open_when_used(f, rank, n) : fk_open(f, rank, n);
    fk_works(comm, rank, n);
    kit_barrier(&f->k, n);
    if (rank == f->victim) exit(0);
    kit_sleep(SEEN_MS);
    T_OK(symmCommGetAsyncError(comm, &async));
    T_EQ(async, symmSuccess);
    T_ERR(symmBarrier(comm, NULL), symmRemoteError);
    names_the_victim(f, comm);
    T_OK(symmCommDestroy(comm));
}

static void who_exits_has_left(void) {
    T_EXPECT_WARNINGS();
    T_FORK_DIES(3, 1, exiting_rank, fk_new(1, 0));
    T_FORK_DIES(2, 0, exiting_rank, fk_new(0, 1));
}

/* Nobody destroys anything, and nobody hears of a death. */
static void all_exit_rank(int rank, int n, void *arg) {
    fk *f = arg;
    symmComm_t comm = fk_open(f, rank, n);
    fk_works(comm, rank, n);
    if (rank == f->victim) exit(0);
    T_OK(symmCommDestroy(comm));
}

static void who_returns_from_main_is_no_death(void) {
    for (int i = 0; i < 5; i++) T_FORK_DIES(4, i % 4, all_exit_rank, fk_new(i % 4, 0));
}

/* The sanitizer looks for leaks when a process exits, and asks this before. In a child that fork's
 * handlers did not see it would wait for ever for a lock of the allocator that another thread held
 * when the child was made. The parent's memory, of which it has a copy, is looked at there. */
static int is_copy;
__attribute__((visibility("default"))) int __lsan_is_turned_off(void);
int __lsan_is_turned_off(void) {
    return is_copy;
}

/* A child that fork's handlers did not see has copies of everything. Its exit is not its
 * parent's. */
static void child_exits_rank(int rank, int n, void *arg) {
    fk *f = arg;
    symmComm_t comm = fk_open(f, rank, n);
    if (rank == f->victim) {
        const pid_t child = kit_clone();
        T_CHECK(child >= 0);
        is_copy = child == 0;
        if (child == 0) exit(0);
        T_EQ(waitpid(child, NULL, 0), child);
    }
    kit_barrier(&f->k, n);
    if (rank != f->victim) {
        const uint64_t start = symm_now_ns();
        kit_sleep(50);
        T_OK(symmBarrier(comm, NULL));
        T_CHECK(fk_ms_since(start) >= 1000);
    } else {
        kit_sleep(1500); /* longer than a rank that has left may owe something */
        T_OK(symmBarrier(comm, NULL));
    }
    T_OK(symmCommDestroy(comm));
}

static void the_exit_of_a_child_says_nothing(void) {
    T_FORK(2, child_exits_rank, fk_new(1, 0));
}

/* ---- config ---- */

static void older_config_rank(int rank, int n, void *arg) {
    fk *f = arg;
    symmComm_t comm = NULL;
    symmConfig_t config = SYMM_CONFIG_INITIALIZER;
    config.size = offsetof(symmConfig_t, peerDeath);
    config.peerDeath = 77; /* behind what the caller's version has */
    fk_id(f, rank, n);
    T_OK(symmCommInitRankConfig(&comm, n, f->id, rank, &config));
    fk_works(comm, rank, n);
    T_OK(symmCommDestroy(comm));
    config.size = sizeof config;
    fk_id(f, rank, n);
    T_ERR(symmCommInitRankConfig(&comm, n, f->id, rank, &config), symmInvalidArgument);
    T_MSG(symmGetLastError(NULL), "peerDeath=77");
}

static void a_config_of_an_older_version(void) {
    T_EXPECT_WARNINGS();
    T_FORK(2, older_config_rank, fk_new(0, 0));
}

T_MAIN(T(an_error_of_the_next_call), T(no_error_of_who_only_ends_it),
       T(an_error_of_a_call_under_way), T(an_abort_is_an_error_of_the_next_call),
       T(an_abort_ends_a_call_under_way), T(each_rank_minds_it_as_its_config_says),
       T(who_exits_has_left), T(who_returns_from_main_is_no_death),
       T(the_exit_of_a_child_says_nothing), T(a_config_of_an_older_version))
