/* fault_life.c - the ways in which communicators come to be and end: split, non-blocking creation,
 * the caller's callbacks, groups; and what becomes of each when something fails half-way. Forked
 * ranks; no lock. */
#include <sys/wait.h>

#include "fault_kit.h"

static void identity(symmComm_t comm, int rank, int n) {
    int is = -1, of = -1;
    T_OK(symmCommUserRank(comm, &is));
    T_OK(symmCommCount(comm, &of));
    T_EQ(is, rank);
    T_EQ(of, n);
}

static void bootstrap_is(symmComm_t comm, const char *name) {
    symmCommInfo_t info = {.size = sizeof info};
    T_OK(symmCommQuery(comm, &info));
    T_STREQ(info.bootstrap, name);
    T_STREQ(info.backend, "host");
}

static void use_and_destroy(symmComm_t comm, int rank, int n) {
    identity(comm, rank, n);
    fk_works(comm, rank, n);
    fk_registers(comm, rank, n);
    T_OK(symmCommDestroy(comm));
}

/* ---- split ---- */

static void split_rank(int rank, int n, void *arg) {
    symmComm_t world = fk_open(arg, rank, n), half = NULL, turned = NULL, nested = NULL;
    symmComm_t none = world;
    T_OK(symmCommSplit(world, rank % 2, 0, &half, NULL)); /* even and odd, in order */
    bootstrap_is(half, "parent");
    identity(half, rank / 2, 2 + (n % 2 && !(rank % 2)));
    T_OK(symmCommSplit(world, 7, -rank, &turned, NULL)); /* all, turned round */
    identity(turned, n - 1 - rank, n);
    T_OK(symmCommSplit(world, rank ? 3 : SYMM_SPLIT_NOCOLOR, 5, &none, NULL));
    if (rank == 0)
        T_CHECK(none == NULL);
    else
        identity(none, rank - 1, n - 1);
    fk_works(turned, n - 1 - rank, n);
    fk_registers(world, rank, n);
    T_OK(symmCommDestroy(world)); /* the children stand on their own */
    T_OK(symmCommSplit(turned, (n - 1 - rank) / 2, 0, &nested, NULL));
    T_OK(symmCommDestroy(turned));
    int mine = (n - 1 - rank) % 2, size = (n - 1 - rank) / 2 * 2 + 2 > n ? 1 : 2;
    use_and_destroy(nested, mine, size);
    use_and_destroy(half, rank / 2, 2 + (n % 2 && !(rank % 2)));
    if (rank) use_and_destroy(none, rank - 1, n - 1);
}

static void split_by_color_and_key(void) {
    T_FORK(4, split_rank, fk_new(0, 0));
    T_FORK(5, split_rank, fk_new(0, 0));
}

/* A point that fails before the children begin leaves the parent as it was; one inside their
 * exchange, which goes through the parent, ends the parent on all ranks. */
static void split_fails_rank(int rank, int n, void *arg) {
    static const char *const points[] = {"boot_connect:error:1", "agree_enter:error:1",
                                         "vmm_create:error:1", "boot_allgather:error:2",
                                         "boot_allgather:error:3"};
    fk *f = arg;
    for (size_t i = 0; i < sizeof points / sizeof *points; i++) {
        symmComm_t world = fk_open(f, rank, n), child = NULL;
        symmResult_t async;
        kit_barrier(&f->k, n);
        if (rank == f->victim) T_EQ(symm_fail_arm(points[i]), 0);
        fk_note(f, rank, symmCommSplit(world, 0, 0, &child, NULL));
        T_EQ(symm_fail_arm(""), 0);
        kit_barrier(&f->k, n);
        for (int r = 0; r < n; r++)
            T_CHECKF(f->k.code[r] != symmSuccess, "%s: rank %d has made it", points[i], r);
        T_CHECK(child == NULL);
        T_OK(symmCommGetAsyncError(world, &async));
        T_CHECKF((async != symmSuccess) == (i >= 3), "%s: the parent's code is %d", points[i],
                 async);
        kit_barrier(&f->k, n);
        if (!async) {
            T_OK(symmCommSplit(world, 0, 0, &child, NULL));
            use_and_destroy(child, rank, n);
        }
        T_OK(symmCommDestroy(world));
    }
}

static void a_split_that_fails_on_one_rank(void) {
    T_EXPECT_WARNINGS();
    T_FORK(3, split_fails_rank, fk_new(1, 0));
    T_FORK(3, split_fails_rank, fk_new(0, 0));
}

/* ---- non-blocking creation ---- */

static symmResult_t await_creation(symmComm_t comm) {
    symmResult_t r;
    do {
        T_OK(symmCommGetAsyncError(comm, &r));
        if (r == symmInProgress) usleep(500);
    } while (r == symmInProgress);
    return r;
}

static void nonblocking_rank(int rank, int n, void *arg) {
    fk *f = arg;
    symmComm_t comm = NULL, child;
    symmConfig_t config = SYMM_CONFIG_INITIALIZER;
    config.blocking = 0;
    config.commName = "behind";
    fk_id(f, rank, n);
    if (rank == n - 1) kit_await_flag(&f->k, 1); /* late, which must hold nobody up */
    T_ERR(symmCommInitRankConfig(&comm, n, f->id, rank, &config), symmInProgress);
    T_CHECK(comm != NULL);
    if (rank == 0) {
        symmCommInfo_t info = {.size = sizeof info};
        int x;
        T_ERR(symmBarrier(comm, NULL), symmInProgress);
        T_ERR(symmCommUserRank(comm, &x), symmInProgress);
        T_ERR(symmCommQuery(comm, &info), symmInProgress);
        T_ERR(symmCommDestroy(comm), symmInProgress);
        atomic_store(&f->k.flag, 1);
    }
    T_EQ(await_creation(comm), symmSuccess);
    config.blocking = 1;
    T_OK(symmCommSplit(comm, 0, 0, &child,
                       &config)); /* of a non-blocking parent: made in the call */
    use_and_destroy(child, rank, n);
    use_and_destroy(comm, rank, n);
}

static void creation_that_does_not_block(void) {
    T_FORK(3, nonblocking_rank, fk_new(0, 0));
}

/* One thread makes several at once: each goes on behind. */
static void several_behind_rank(int rank, int n, void *arg) {
    fk *f = arg;
    enum { SEVERAL = 4 };
    symmComm_t comm[SEVERAL];
    symmUniqueId_t *ids =
        (symmUniqueId_t *)(void *)f->k.text; /* shared, and not used otherwise here */
    symmConfig_t config = SYMM_CONFIG_INITIALIZER;
    config.blocking = 0;
    for (int i = 0; rank == 0 && i < SEVERAL; i++) T_OK(symmGetUniqueId(&ids[i]));
    kit_barrier(&f->k, n);
    for (int k = 0; k < SEVERAL; k++) {
        int i = rank ? SEVERAL - 1 - k : k; /* in opposite order */
        T_ERR(symmCommInitRankConfig(&comm[i], n, ids[i], rank, &config), symmInProgress);
    }
    for (int i = 0; i < SEVERAL; i++) T_EQ(await_creation(comm[i]), symmSuccess);
    for (int i = 0; i < SEVERAL; i++) use_and_destroy(comm[i], rank, n);
}

static void several_created_behind(void) {
    T_FORK(2, several_behind_rank, fk_new(0, 0));
}

static void gone(int64_t comms) {
    for (int i = 0; i < 2000 && SYMM_STAT_GET(threads); i++) usleep(1000);
    T_EQ(SYMM_STAT_GET(threads), 0);
    T_EQ(SYMM_STAT_GET(comms), comms);
}

static void failing_behind_rank(int rank, int n, void *arg) {
    fk *f = arg;
    symmComm_t comm = NULL;
    symmConfig_t config = SYMM_CONFIG_INITIALIZER;
    config.blocking = 0;
    config.timeoutMs = 300;
    fk_id(f, rank, n);
    if (rank == 1) return; /* never comes */
    T_ERR(symmCommInitRankConfig(&comm, n, f->id, rank, &config), symmInProgress);
    T_EQ(await_creation(comm), symmTimeout);
    T_MSG(symmGetLastError(comm), "rank 1");
    T_ERR(symmBarrier(comm, NULL), symmTimeout);
    if (rank == 0) T_OK(symmCommRevoke(comm, 0)); /* nothing to revoke is no crash */
    T_OK(rank ? symmCommDestroy(comm) : symmCommAbort(comm));
    gone(0);
}

static void creation_that_fails_behind(void) {
    T_EXPECT_WARNINGS();
    T_FORK(3, failing_behind_rank, fk_new(0, 0));
}

static void abort_behind_rank(int rank, int n, void *arg) {
    fk *f = arg;
    symmComm_t comm = NULL;
    symmConfig_t config = SYMM_CONFIG_INITIALIZER;
    config.blocking = 0;
    fk_id(f, rank, n);
    if (rank == 1) {
        kit_barrier(&f->k, n);
        return;
    }
    T_ERR(symmCommInitRankConfig(&comm, n, f->id, rank, &config), symmInProgress);
    kit_sleep(20);
    T_OK(symmCommAbort(comm)); /* rank 1 never comes, and the deadline is far */
    T_ERR(symmCommAbort(comm), symmInvalidArgument);
    gone(0);
    kit_barrier(&f->k, n);
}

static void creation_that_is_aborted(void) {
    T_EXPECT_WARNINGS();
    T_FORK(2, abort_behind_rank, fk_new(0, 0));
}

/* ---- threads that a forked child has not ---- */

static void nothing(void *arg) {
    (void)arg;
}

/* One with a branch: a replay needs a thread more. */
static symmGraph_t branched(symmStream_t s, symmStream_t branch) {
    symmEvent_t e;
    symmGraph_t g;
    T_OK(symmEventCreate(&e));
    T_OK(symmStreamBeginCapture(s));
    T_OK(symmEventRecord(e, s));
    T_OK(symmStreamWaitEvent(branch, e));
    T_OK(symmStreamHostFunc(s, nothing, NULL));
    T_OK(symmStreamHostFunc(branch, nothing, NULL));
    T_OK(symmEventRecord(e, branch));
    T_OK(symmStreamWaitEvent(s, e));
    T_OK(symmStreamEndCapture(s, &g));
    T_OK(symmEventDestroy(e));
    return g;
}

static void expect_threads_in_child(int threads) {
    int status;
    const pid_t pid = fork();
    T_CHECK(pid >= 0);
    if (pid == 0) _exit(SYMM_STAT_GET(threads) == threads ? 0 : 1);
    T_EQ(waitpid(pid, &status, 0), pid);
    T_CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void a_child_has_none_of_the_threads(void) {
    symmUniqueId_t id;
    symmStream_t s, branch;
    symmComm_t comm = NULL;
    symmConfig_t config = SYMM_CONFIG_INITIALIZER;
    T_EXPECT_WARNINGS();
    T_OK(symmStreamCreate(&s));
    T_OK(symmStreamCreate(&branch));
    symmGraph_t g = branched(s, branch);
    T_EQ(SYMM_STAT_GET(threads), 3);
    expect_threads_in_child(0);
    T_OK(symmGraphDestroy(g));
    T_OK(symmStreamDestroy(s));
    T_OK(symmStreamDestroy(branch));
    T_EQ(SYMM_STAT_GET(threads), 0);
    config.blocking = 0;
    T_OK(symmGetUniqueId(&id));
    T_ERR(symmCommInitRankConfig(&comm, 2, id, 0, &config), symmInProgress);
    T_CHECK(SYMM_STAT_GET(threads) >= 1); /* it waits for rank 1 */
    expect_threads_in_child(0);
    T_OK(symmCommAbort(comm));
    gone(0);
}

/* ---- callbacks ---- */

typedef struct {
    fk f;
    int n, rank; /* rank: private to each process after the fork */
    int fail_at;
    char block[8][64 << 10];
} exchange;

static int calls;

typedef struct {
    exchange *x;
    int rank;
} member;

static int shm_allgather(void *ctx, const void *send, void *recv, size_t bytes) {
    member *m = ctx;
    exchange *x = m->x;
    if (x->fail_at && ++calls == x->fail_at) return 17;
    T_CHECK(bytes <= sizeof x->block[0]);
    memcpy(x->block[m->rank], send, bytes);
    kit_barrier(&x->f.k, x->n);
    for (int r = 0; r < x->n; r++) memcpy((char *)recv + (size_t)r * bytes, x->block[r], bytes);
    kit_barrier(&x->f.k, x->n);
    return 0;
}

static int shm_barrier(void *ctx) {
    member *m = ctx;
    kit_barrier(&m->x->f.k, m->x->n);
    return 0;
}

static void callback_rank(int rank, int n, void *arg) {
    exchange *x = arg;
    member m = {x, rank};
    symmBoot_t boot = {shm_allgather, shm_barrier, &m};
    symmComm_t comm = NULL;
    calls = 0;
    if (x->fail_at) { /* on every rank at the same call: nobody is left waiting in the callback */
        symmResult_t r = symmCommInitBoot(&comm, n, rank, &boot, NULL);
        /* Once the mesh stands a rank may see that the other has given up before it does itself. */
        T_CHECK(r == symmSystemError || (x->fail_at > 3 && r == symmRemoteError));
        T_MSG(symmGetLastError(NULL),
              r == symmSystemError ? "allgather callback failed with 17" : "rank");
        T_CHECK(comm == NULL);
        return;
    }
    T_OK(symmCommInitBoot(&comm, n, rank, &boot, NULL));
    bootstrap_is(comm, "callbacks");
    use_and_destroy(comm, rank, n);
}

static void the_callers_own_exchange(void) {
    exchange *x = T_SHARED(sizeof *x);
    x->n = 3;
    T_FORK(3, callback_rank, x);
}

static void callbacks_that_fail(void) {
    T_EXPECT_WARNINGS();
    for (int at = 1; at <= 4; at++) {
        exchange *x = T_SHARED(sizeof *x);
        x->n = 2;
        x->fail_at = at;
        T_FORK(2, callback_rank, x);
    }
}

/* ---- groups ---- */

static void group_rank(int rank, int n, void *arg) {
    fk *f = arg;
    symmUniqueId_t *ids = (symmUniqueId_t *)(void *)f->k.text;
    symmComm_t comm[3] = {NULL}, child[3] = {NULL};
    symmWindow_t win[3];
    int *buf[3];
    if (rank == 0)
        for (int i = 0; i < 3; i++) T_OK(symmGetUniqueId(&ids[i]));
    kit_barrier(&f->k, n);
    T_OK(symmGroupStart());
    for (int k = 0; k < 3; k++) { /* another order on each rank */
        int i = (k + rank) % 3;
        T_OK(symmCommInitRank(&comm[i], n, ids[i], rank));
        T_CHECK(comm[i] == NULL); /* End writes it */
    }
    T_OK(symmGroupEnd());
    for (int i = 0; i < 3; i++) T_OK(symmMemAlloc((void **)&buf[i], 2 << 20));
    T_OK(symmGroupStart());
    for (int k = 0; k < 3; k++) {
        int i = (k + rank) % 3;
        T_OK(symmWindowRegister(comm[i], buf[i], 2 << 20, &win[i], 0));
        T_OK(symmCommSplit(comm[i], 0, 0, &child[i], NULL));
    }
    T_OK(symmGroupEnd());
    for (int refused = 1; refused >= 0; refused--) {
        T_OK(symmGroupStart());
        for (int i = 0; i < 3; i++) {
            buf[i][0] = rank + i;
            T_OK(symmAllReduce(buf[i], buf[i] + 64, 1, symmInt32, symmSum, comm[i], NULL));
        }
        if (refused) {
            T_ERR(symmAllReduce(buf[0], NULL, 1, symmInt32, symmSum, comm[0], NULL),
                  symmInvalidArgument); /* at the call, and End runs nothing */
            T_ERR(symmGroupEnd(), symmInvalidArgument);
            T_MSG(symmGetLastError(NULL), "recvbuff is NULL");
            T_EQ(buf[0][64], 0);
        } else {
            T_OK(symmGroupEnd());
        }
    }
    for (int i = 0; i < 3; i++) {
        T_EQ(buf[i][64], n * i + n * (n - 1) / 2);
        T_OK(symmWindowDeregister(comm[i], win[i]));
        use_and_destroy(child[i], rank, n);
        use_and_destroy(comm[i], rank, n);
        T_OK(symmMemFree(buf[i]));
    }
}

static void groups_make_several_at_once(void) {
    T_EXPECT_WARNINGS();
    T_FORK(3, group_rank, fk_new(0, 0));
}

/* One thread drives all ranks of a communicator. */
static void one_thread_all_ranks(void) {
    enum { RANKS = 4 };
    symmComm_t comm[RANKS];
    symmUniqueId_t id;
    int in[RANKS], out[RANKS];
    T_OK(symmGetUniqueId(&id));
    T_OK(symmGroupStart());
    for (int r = 0; r < RANKS; r++) T_OK(symmCommInitRank(&comm[r], RANKS, id, r));
    T_OK(symmGroupEnd());
    T_OK(symmGroupStart());
    for (int r = 0; r < RANKS; r++) {
        in[r] = r + 1;
        T_OK(symmAllReduce(&in[r], &out[r], 1, symmInt32, symmProd, comm[r], NULL));
    }
    T_OK(symmGroupEnd());
    for (int r = 0; r < RANKS; r++) {
        T_EQ(out[r], 24);
        T_OK(symmCommDestroy(comm[r]));
    }
}

static void group_error_rank(int rank, int n, void *arg) {
    fk *f = arg;
    symmComm_t comm = fk_open(f, rank, n);
    symmWindow_t win = NULL;
    char *buf;
    T_OK(symmMemAlloc((void **)&buf, 2 << 20));
    T_OK(symmGroupStart()); /* a bad registration is everybody's, at End */
    T_OK(symmWindowRegister(comm, rank ? buf : buf + 1, 2 << 20, &win, 0));
    T_ERR(symmGroupEnd(), symmInvalidArgument);
    T_MSG(symmGetLastError(comm), "rank 0");
    T_CHECK(win == NULL);
    fk_registers(comm, rank, n);
    T_OK(symmCommDestroy(comm));
    T_OK(symmMemFree(buf));
}

static void an_error_in_a_group(void) {
    T_EXPECT_WARNINGS();
    T_FORK(2, group_error_rank, fk_new(0, 0));
}

/* ---- many ---- */

static void many_rank(int rank, int n, void *arg) {
    enum { MANY = 12 };
    symmComm_t comm[MANY];
    setenv("SYMM_SCRATCH", "2M", 1);
    for (int i = 0; i < MANY; i++) comm[i] = fk_open(arg, rank, n);
    for (int i = 0; i < MANY; i++) fk_works(comm[i], rank, n);
    for (int k = 0; k < MANY; k++) { /* ends in an order of its own on each rank */
        int i = (k * 5 + rank * 3) % MANY;
        T_OK(symmCommFinalize(comm[i]));
        T_OK(symmCommDestroy(comm[i]));
    }
}

static void many_at_once(void) {
    T_FORK(3, many_rank, fk_new(0, 0));
}

T_MAIN(T(split_by_color_and_key), T(a_split_that_fails_on_one_rank),
       T(creation_that_does_not_block), T(several_created_behind), T(creation_that_fails_behind),
       T(creation_that_is_aborted), T(a_child_has_none_of_the_threads), T(the_callers_own_exchange),
       T(callbacks_that_fail), T(groups_make_several_at_once), T(one_thread_all_ranks),
       T(an_error_in_a_group), T(many_at_once))
