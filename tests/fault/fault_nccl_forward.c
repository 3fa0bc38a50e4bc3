/* fault_nccl_forward.c - communicators that a real NCCL serves (tests/fake/nccl_whole.c): who is
 * asked and why, every rank alike; the calls; a real NCCL that is missing, older, or fails at each
 * call; order at switches. Ranks are processes, threads, or one thread. No lock. */
#define _GNU_SOURCE
#include <pthread.h>

#include "../../nccl-tests-plugin/plugin.h"
#include "base/stats.h"
#include "nccl_kit.h"
#include "nccl_real_kit.h"

enum { RANKS = 3, MANY = 80 };
extern int symm_test_where[2];

/* ---- ranks ----------------------------------------------------------------------------------- */

typedef struct {
    ncclUniqueId id;
    _Atomic int made;
    const char *mode[4]; /* of each rank; NULL: as it is */
    int far;             /* rank 1 is on another host */
    int without;         /* the rank that has no real NCCL; -1: none */
    ncclResult_t code[MANY];
    char text[MANY][256], why[MANY][128];
} plan;

static plan *new_plan(void) {
    plan *p = T_SHARED(sizeof *p);
    p->without = -1;
    return p;
}

static ncclComm_t join(plan *p, int rank, int n) {
    ncclComm_t comm = NULL;
    if (!rank) {
        N_OK(ncclGetUniqueId(&p->id));
        p->made = 1;
    }
    while (!p->made) usleep(1000);
    p->code[rank] = ncclCommInitRank(&comm, n, p->id, rank);
    snprintf(p->text[rank], sizeof p->text[rank], "%s",
             p->code[rank] ? ncclGetLastError(NULL) : "");
    T_EQ(comm != NULL, p->code[rank] == ncclSuccess);
    return comm;
}

static uint64_t counted(ncclComm_t comm, nccl_call call) {
    return ((nccl_comm *)(void *)comm)->calls[call];
}

static const char *reason(ncclComm_t comm) {
    return ((nccl_comm *)(void *)comm)->why;
}

static int is_forwarded(ncclComm_t comm) {
    return nccl_comm_forwarded(comm) != NULL;
}

static void all_say(const plan *p, int n, ncclResult_t code, const char *part) {
    for (int r = 0; r < n; r++) {
        T_CHECKF(p->code[r] == code, "rank %d: %d: %s", r, (int)p->code[r], p->text[r]);
        T_STREQ(p->text[r], p->text[0]);
        if (code) T_MSG(p->text[r], part);
    }
}

static int sum_to(int n) {
    return n * (n + 1) / 2;
}

static void works(ncclComm_t comm, int rank, int n) {
    int x = rank + 1, got = -1, all[RANKS];
    N_OK(ncclAllReduce(&x, &x, 1, ncclInt32, ncclSum, comm, NULL));
    T_EQ(x, sum_to(n));
    N_OK(ncclAllGather(&rank, all, 1, ncclInt32, comm, NULL));
    for (int r = 0; r < n; r++) T_EQ(all[r], r);
    N_OK(ncclCommCount(comm, &got));
    T_EQ(got, n);
    N_OK(ncclCommUserRank(comm, &got));
    T_EQ(got, rank);
}

/* ---- who serves ------------------------------------------------------------------------------ */

static void one_process(int rank, int n, void *arg) {
    plan *p = arg;
    use_real(rank < 4 && p->mode[rank] ? p->mode[rank] : "auto", "libnccl-real.so");
    if (rank == p->without) setenv("SYMM_NCCL_LIB", "/nowhere/libnccl.so.2", 1);
    symm_test_where[0] = p->far && rank == 1;
    ncclComm_t comm = join(p, rank, n);
    if (!comm) return;
    T_EQ(is_forwarded(comm), p->far || (p->mode[0] && *p->mode[0] == 'f'));
    snprintf(p->why[rank], sizeof p->why[rank], "%s", reason(comm));
    works(comm, rank, n);
    N_OK(ncclCommDestroy(comm));
    all_gone();
}

static void native_where_it_can_be(void) {
    plan *p = new_plan();
    T_FORK(2, one_process, p);
    all_say(p, 2, ncclSuccess, "");
}

static void forwarded_as_asked(void) {
    plan *p = new_plan();
    for (int r = 0; r < RANKS; r++) p->mode[r] = "forward";
    T_FORK(RANKS, one_process, p);
    all_say(p, RANKS, ncclSuccess, "");
}

static void forwarded_on_two_hosts(void) {
    T_EXPECT_WARNINGS();
    plan *p = new_plan();
    p->far = 1;
    T_FORK(RANKS, one_process, p);
    all_say(p, RANKS, ncclSuccess, "");
    for (int r = 0; r < RANKS; r++) T_MSG(p->why[r], "rank 1 runs on host");
}

static void native_only_is_an_error_there(void) {
    T_EXPECT_WARNINGS();
    plan *p = new_plan();
    p->far = 1;
    for (int r = 0; r < RANKS; r++) p->mode[r] = "native";
    T_FORK(RANKS, one_process, p);
    all_say(p, RANKS, ncclInvalidUsage, "rank 1 runs on host");
}

static void ranks_that_differ(void) {
    T_EXPECT_WARNINGS();
    plan *p = new_plan();
    p->mode[2] = "native";
    T_FORK(RANKS, one_process, p);
    all_say(p, RANKS, ncclInvalidUsage,
            "SYMM_NCCL is native on rank 2 and auto on rank 0: it must be equal on all ranks");
}

static void a_mode_that_is_none(void) {
    T_EXPECT_WARNINGS();
    plan *p = new_plan();
    p->mode[1] = "sometimes";
    T_FORK(RANKS, one_process, p);
    all_say(p, RANKS, ncclInvalidArgument,
            "rank 1: SYMM_NCCL=sometimes: must be one of auto, native, forward");
}

static void a_rank_without_a_real_one(void) {
    T_EXPECT_WARNINGS();
    plan *p = new_plan();
    p->without = 2;
    for (int r = 0; r < RANKS; r++) p->mode[r] = "forward";
    T_FORK(RANKS, one_process, p);
    all_say(p, RANKS, ncclInvalidUsage, "SYMM_NCCL=forward; rank 2: SYMM_NCCL_LIB=/nowhere");
    p = new_plan();
    p->far = 1;
    p->without = 0;
    T_FORK(RANKS, one_process, p);
    all_say(p, RANKS, ncclInvalidUsage, "rank 0: SYMM_NCCL_LIB=/nowhere");
    T_MSG(p->text[1], "rank 1 runs on host");
}

/* ---- threads --------------------------------------------------------------------------------- */

static void one_thread(int rank, int n, void *arg) {
    plan *p = arg;
    ncclComm_t comm = join(p, rank, n);
    if (!comm) return;
    T_CHECK(is_forwarded(comm));
    if (n <= RANKS) works(comm, rank, n);
    N_OK(ncclCommFinalize(comm));
    N_OK(ncclCommDestroy(comm));
}

static void more_ranks_than_a_domain_has(void) {
    T_EXPECT_WARNINGS();
    use_real("auto", "libnccl-real-old.so");
    plan *p = new_plan();
    T_THREADS(MANY, one_thread, p);
    all_say(p, MANY, ncclSuccess, "");
    all_gone();
}

/* What fails in making one: the same error on all ranks, nobody waits, nothing is left. */
static void a_real_one_that_fails(void) {
    static const struct {
        const char *call;
        int rank;
        ncclResult_t code;
        const char *text;
    } rows[] = {
        {"ncclGetUniqueId", -1, ncclInternalError, "rank 0: ncclGetUniqueId, of the real NCCL: "},
        {"ncclCommInitRankConfig", 0, ncclInternalError, "rank 0: the real NCCL says: "},
        {"ncclCommInitRankConfig", 2, ncclInternalError, "rank 2: the real NCCL says: "},
        {"ncclCommInitRankConfig", -1, ncclInternalError, "the real NCCL says: "},
        {"late", 1, ncclInvalidUsage, "rank 1: the real NCCL says: it fails late"},
        {"slow", 2, ncclInvalidUsage, "rank 2: the real NCCL says: it fails soon"},
        {"duplicate", -1, ncclInvalidUsage, "the real NCCL says: Duplicate GPU detected"},
    };
    T_EXPECT_WARNINGS();
    use_real("forward", "libnccl-real.so");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        plan *p = new_plan();
        make_fail(rows[i].call, rows[i].rank);
        T_THREADS(RANKS, one_thread, p);
        all_say(p, RANKS, rows[i].code, rows[i].text);
        all_gone();
    }
    make_fail("", -1);
    plan *p = new_plan();
    T_THREADS(RANKS, one_thread, p); /* nothing is left behind */
    all_say(p, RANKS, ncclSuccess, "");
    all_gone();
}

/* ---- one thread for all ranks ---------------------------------------------------------------- */

static ncclComm_t native[RANKS], passed[RANKS];

static void make_both(void) {
    ncclUniqueId id;
    setenv("SYMM_NCCL", "native", 1);
    N_OK(ncclCommInitAll(native, RANKS, NULL));
    setenv("SYMM_NCCL", "forward", 1);
    N_OK(ncclGetUniqueId(&id));
    N_OK(ncclGroupStart());
    for (int r = 0; r < RANKS; r++) N_OK(ncclCommInitRank(&passed[r], RANKS, id, r));
    N_OK(ncclGroupEnd());
    for (int r = 0; r < RANKS; r++) T_CHECK(is_forwarded(passed[r]) && !is_forwarded(native[r]));
}

static void end_both(void) {
    for (int r = 0; r < RANKS; r++) {
        N_OK(ncclCommDestroy(native[r]));
        N_OK(ncclCommDestroy(passed[r]));
    }
    all_gone();
}

static void handles_that_have_ended(void) {
    T_EXPECT_WARNINGS();
    int x = 1;
    use_real("auto", "libnccl-real.so");
    make_both();
    end_both();
    N_ERR(ncclCommDestroy(passed[0]), ncclInvalidArgument);
    N_ERR(ncclCommAbort(passed[0]), ncclInvalidArgument);
    N_ERR(ncclAllReduce(&x, &x, 1, ncclInt32, ncclSum, passed[0], NULL), ncclInvalidArgument);
    N_ERR(ncclCommCount(passed[0], &x), ncclInvalidArgument);
}

/* Groups with calls of both: native ones run first, then those that are passed on. */
static void groups_of_both(void) {
    int x[RANKS], y[RANKS];
    use_real("auto", "libnccl-real.so");
    make_both();
    for (int k = 0; k < 3; k++) {
        for (int r = 0; r < RANKS; r++) x[r] = y[r] = r + 1;
        N_OK(ncclGroupStart());
        for (int r = 0; r < RANKS; r++) {
            N_OK(ncclAllReduce(&y[r], &y[r], 1, ncclInt32, ncclMax, passed[r], NULL));
            N_OK(ncclGroupStart());
            N_OK(ncclAllReduce(&x[r], &x[r], 1, ncclInt32, ncclSum, native[r], NULL));
            N_OK(ncclGroupEnd());
        }
        for (int r = 0; r < RANKS; r++) T_CHECK(x[r] == r + 1 && y[r] == r + 1);
        N_OK(ncclGroupEnd());
        for (int r = 0; r < RANKS; r++) {
            T_EQ(x[r], sum_to(RANKS));
            T_EQ(y[r], RANKS);
        }
    }
    end_both();
}

/* One after the other, each on what the one before has left. */
static void order_at_switches(void) {
    int x[RANKS];
    use_real("auto", "libnccl-real.so");
    make_both();
    for (int r = 0; r < RANKS; r++) x[r] = 1;
    for (int k = 0; k < 4; k++) {
        ncclComm_t *by = k % 2 ? passed : native;
        N_OK(ncclGroupStart());
        for (int r = 0; r < RANKS; r++)
            N_OK(ncclAllReduce(&x[r], &x[r], 1, ncclInt32, ncclSum, by[r], NULL));
        N_OK(ncclGroupEnd());
    }
    for (int r = 0; r < RANKS; r++) T_EQ(x[r], RANKS * RANKS * RANKS * RANKS);
    end_both();
}

/* A refused call of either kind: none of the group runs. */
static void a_refused_call_in_a_group_of_both(void) {
    T_EXPECT_WARNINGS();
    use_real("auto", "libnccl-real.so");
    make_both();
    for (int k = 0; k < 2; k++) {
        int x[RANKS] = {1, 1, 1}, y[RANKS] = {1, 1, 1};
        N_OK(ncclGroupStart());
        for (int r = 0; r < RANKS; r++) {
            N_OK(ncclAllReduce(&x[r], &x[r], 1, ncclInt32, ncclSum, native[r], NULL));
            N_OK(ncclAllReduce(&y[r], &y[r], 1, ncclInt32, ncclSum, passed[r], NULL));
        }
        if (k) {
            make_fail("ncclReduce", 1);
            N_REFUSED(ncclReduce(y, y, 1, ncclInt32, ncclSum, 0, passed[1], NULL),
                      ncclInternalError, "ncclReduce, of the real NCCL: ncclReduce was told");
        } else {
            N_ERR(ncclReduce(x, x, 1, ncclInt32, (ncclRedOp_t)77, 0, native[1], NULL),
                  ncclInvalidArgument);
        }
        N_ERR(ncclGroupEnd(), k ? ncclInternalError : ncclInvalidArgument);
        for (int r = 0; r < RANKS; r++) T_CHECK(x[r] == 1 && y[r] == 1);
    }
    make_fail("", -1);
    end_both();
}

static void a_group_that_fails_at_its_end(void) {
    T_EXPECT_WARNINGS();
    int x[RANKS] = {1, 1, 1};
    use_real("auto", "libnccl-real.so");
    make_both();
    N_OK(ncclGroupStart());
    for (int r = 0; r < RANKS; r++)
        N_OK(ncclAllReduce(&x[r], &x[r], 1, ncclInt32, ncclSum, passed[r], NULL));
    make_fail("ncclGroupEnd", -1);
    N_REFUSED(ncclGroupEnd(), ncclInternalError, "ncclGroupEnd, of the real NCCL");
    make_fail("", -1);
    N_OK(ncclGroupStart());
    N_OK(ncclGroupEnd());
    end_both();
}

/* ---- calls ----------------------------------------------------------------------------------- */

static void messages(void) {
    int x[2] = {7, 8}, y[2] = {0, 0};
    N_OK(ncclGroupStart());
    for (int r = 0; r < 2; r++) {
        N_OK(ncclSend(&x[r], 1, ncclInt32, 1 - r, passed[r], NULL));
        N_OK(ncclRecv(&y[r], 1, ncclInt32, 1 - r, passed[r], NULL));
    }
    N_OK(ncclGroupEnd());
    T_EQ(y[0], 8);
    T_EQ(y[1], 7);
}

static void handles(void) {
    ncclRedOp_t op;
    ncclWindow_t win;
    void *handle, *ptr;
    int two = 2, x[4];
    N_OK(ncclRedOpCreatePreMulSum(&op, &two, ncclInt32, ncclScalarHostImmediate, passed[0]));
    T_EQ(op, ncclMax); /* the stand-in's */
    N_OK(ncclRedOpDestroy(op, passed[0]));
    N_OK(ncclCommWindowRegister(passed[0], x, sizeof x, &win, 0));
    N_OK(ncclGetLsaDevicePointer(win, 4, 1, &ptr));
    T_CHECK(ptr == (char *)x + 5);
    N_OK(ncclCommWindowDeregister(passed[0], win));
    N_OK(ncclCommRegister(passed[0], x, sizeof x, &handle));
    N_OK(ncclCommDeregister(passed[0], handle));
    T_EQ(ncclTeamWorld(passed[1]).nRanks, RANKS);
}

static void the_calls(void) {
    use_real("auto", "libnccl-real.so");
    make_both();
    ncclResult_t now = ncclInternalError;
    int device = -1;
    N_OK(ncclCommGetAsyncError(passed[1], &now));
    T_EQ(now, ncclSuccess);
    N_OK(ncclCommCuDevice(passed[2], &device));
    T_EQ(device, 2);
    messages();
    handles();
    end_both();
}

/* Every call of either kind, once for each rank; whoever serves it. */
static void calls_are_counted_where_they_go(void) {
    int x[RANKS * RANKS] = {0}, y[RANKS][RANKS];
    use_real("auto", "libnccl-real.so");
    make_both();
    T_STREQ(reason(passed[0]), "SYMM_NCCL=forward");
    for (int k = 0; k < 2; k++) {
        ncclComm_t *by = k ? passed : native;
        N_OK(ncclGroupStart());
        for (int r = 0; r < RANKS; r++) {
            N_OK(ncclAllReduce(x, y[r], 1, ncclInt32, ncclSum, by[r], NULL));
            N_OK(ncclAllReduce(x, y[r], 1, ncclInt32, ncclSum, by[r], NULL));
            N_OK(ncclBcast(y[r], 1, ncclInt32, 0, by[r], NULL));
            N_OK(ncclAlltoAll(x, y[r], 1, ncclInt32, by[r], NULL));
            N_OK(ncclSend(x, 1, ncclInt32, r, by[r], NULL));
            N_OK(ncclRecv(y[r], 1, ncclInt32, r, by[r], NULL));
        }
        N_OK(ncclGroupEnd());
        for (int r = 0; r < RANKS; r++) {
            T_EQ(counted(by[r], CALL_ALL_REDUCE), 2);
            T_EQ(counted(by[r], CALL_BROADCAST), 1);
            T_EQ(counted(by[r], CALL_ALL_TO_ALL), 1);
            T_EQ(counted(by[r], CALL_GATHER), 0);
            T_EQ(counted(by[r], CALL_SEND) + counted(by[r], CALL_RECV), 2);
        }
    }
    end_both();
}

static void children(void) {
    ncclComm_t child[RANKS];
    int x[RANKS], n, gone = 2;
    use_real("auto", "libnccl-real.so");
    make_both();
    N_OK(ncclGroupStart());
    for (int r = 0; r < RANKS; r++)
        N_OK(ncclCommSplit(passed[r], r == 2 ? NCCL_SPLIT_NOCOLOR : 0, -r, &child[r], NULL));
    N_OK(ncclGroupEnd());
    T_CHECK(!child[2]);
    N_OK(ncclCommUserRank(child[0], &n));
    T_EQ(n, 1); /* by key */
    T_MSG(reason(child[0]), "the one that it is made from");
    N_OK(ncclGroupStart());
    for (int r = 0; r < 2; r++) {
        x[r] = 5;
        N_OK(ncclAllReduce(&x[r], &x[r], 1, ncclInt32, ncclSum, child[r], NULL));
    }
    N_OK(ncclGroupEnd());
    T_EQ(x[1], 10);
    for (int r = 0; r < 2; r++) N_OK(ncclCommAbort(child[r]));
    for (int r = 0; r < 2; r++) N_OK(ncclCommShrink(passed[r], &gone, 1, &child[r], NULL, 0));
    N_OK(ncclCommCount(child[1], &n));
    T_EQ(n, 2);
    for (int r = 0; r < 2; r++) N_OK(ncclCommDestroy(child[r]));
    end_both();
}

/* All of a process, by the real NCCL's own call. */
static void all_of_a_process(void) {
    T_EXPECT_WARNINGS();
    use_real("forward", "libnccl-real.so");
    make_fail("ncclCommInitAll", -1);
    N_REFUSED(ncclCommInitAll(passed, RANKS, NULL), ncclInternalError, "ncclCommInitAll, of the");
    make_fail("", -1);
    N_OK(ncclCommInitAll(passed, RANKS, NULL));
    messages();
    for (int r = 0; r < RANKS; r++) N_OK(ncclCommDestroy(passed[r]));
    all_gone();
}

/* Each call of the real NCCL fails once: its code, its text, and the communicator lives on. */
static void each_call_fails_once(void) {
    T_EXPECT_WARNINGS();
    int x[RANKS] = {1}, n;
    ncclResult_t now;
    ncclComm_t child;
    void *handle;
    ncclWindow_t win;
    ncclRedOp_t op;
    use_real("auto", "libnccl-real.so");
    make_both();
#define FAILS(name, args)                                                    \
    do {                                                                     \
        make_fail(#name, -1);                                                \
        N_REFUSED(name args, ncclInternalError, #name ", of the real NCCL"); \
    } while (0)
    FAILS(ncclAllReduce, (x, x, 1, ncclInt32, ncclSum, passed[0], NULL));
    FAILS(ncclBroadcast, (x, x, 1, ncclInt32, 0, passed[0], NULL));
    FAILS(ncclSend, (x, 1, ncclInt32, 1, passed[0], NULL));
    FAILS(ncclCommSplit, (passed[0], 0, 0, &child, NULL));
    T_CHECK(!child);
    FAILS(ncclCommShrink, (passed[0], x, 1, &child, NULL, 0));
    FAILS(ncclCommCount, (passed[0], &n));
    FAILS(ncclCommGetAsyncError, (passed[0], &now));
    FAILS(ncclCommRegister, (passed[0], x, 4, &handle));
    FAILS(ncclCommWindowRegister, (passed[0], x, 4, &win, 0));
    FAILS(ncclRedOpCreatePreMulSum, (&op, x, ncclInt32, ncclScalarHostImmediate, passed[0]));
    FAILS(ncclCommFinalize, (passed[0]));
    FAILS(ncclCommDestroy, (passed[0]));
    make_fail("", -1);
    N_ERR(ncclCommDestroy(passed[0]), ncclInvalidArgument); /* it is gone all the same */
    for (int r = 0; r < RANKS; r++) N_OK(ncclCommDestroy(native[r]));
    for (int r = 1; r < RANKS; r++) N_OK(ncclCommDestroy(passed[r]));
    all_gone();
}

/* What the real NCCL is too old for is refused with its name; the rest works. */
static void an_older_one(void) {
    T_EXPECT_WARNINGS();
    ncclComm_t child;
    int x[RANKS * RANKS] = {0};
    use_real("auto", "libnccl-real-old.so");
    make_both();
    N_REFUSED(ncclAlltoAll(x, x, 1, ncclInt32, passed[0], NULL), ncclInvalidUsage,
              "libnccl-real-old.so has no pncclAlltoAll");
    N_REFUSED(ncclCommSplit(passed[0], 0, 0, &child, NULL), ncclInvalidUsage,
              "has no pncclCommSplit");
    N_REFUSED(ncclCommSuspend(passed[0], 0), ncclInvalidUsage, "has no pncclCommSuspend");
    N_REFUSED(ncclCommRevoke(passed[0], 0), ncclInvalidUsage, "has no pncclCommRevoke");
    T_EQ(ncclTeamWorld(passed[0]).nRanks, 0);
    N_REFUSED(ncclCommSuspend(native[0], 0), ncclInvalidUsage, "is not served yet");
    messages();
    end_both();
}

/* ---- behind the call ------------------------------------------------------------------------- */

static ncclResult_t begin_behind(ncclComm_t *comm, ncclUniqueId id, int rank, int n) {
    ncclConfig_t config = n_config(NCCL_VERSION_CODE, sizeof config);
    config.blocking = 0;
    config.commName = "behind";
    return ncclCommInitRankConfig(comm, n, id, rank, &config);
}

static void await_threads(void) {
    for (int i = 0; i < 3000 && SYMM_STAT_GET(threads); i++) usleep(1000);
    T_EQ(SYMM_STAT_GET(threads), 0);
}

static void made_behind_the_call(void) {
    ncclUniqueId id;
    use_real("forward", "libnccl-real.so");
    N_OK(ncclGetUniqueId(&id));
    for (int r = 0; r < RANKS; r++) N_ERR(begin_behind(&passed[r], id, r, RANKS), ncclInProgress);
    for (int r = 0; r < RANKS; r++) {
        ncclResult_t now = ncclInProgress;
        for (int i = 0; i < 3000 && now == ncclInProgress; i++) {
            usleep(1000);
            N_OK(ncclCommGetAsyncError(passed[r], &now));
        }
        T_EQ(now, ncclSuccess);
        T_CHECK(is_forwarded(passed[r]));
    }
    messages();
    for (int r = 0; r < RANKS; r++) N_OK(ncclCommDestroy(passed[r]));
    all_gone();
    await_threads();
}

static void an_abort_while_it_is_made(void) {
    T_EXPECT_WARNINGS();
    ncclUniqueId id;
    use_real("forward", "libnccl-real.so");
    N_OK(ncclGetUniqueId(&id));
    N_ERR(begin_behind(&passed[0], id, 0, 2), ncclInProgress);
    N_OK(ncclCommAbort(passed[0]));
    await_threads();
    all_gone();
}

/* While it is inside the real NCCL, where the other rank fails to come. */
static void an_abort_inside_the_real_one(void) {
    T_EXPECT_WARNINGS();
    ncclUniqueId id;
    use_real("forward", "libnccl-real.so");
    make_fail("ncclCommInitRankConfig", 1);
    N_OK(ncclGetUniqueId(&id));
    for (int r = 0; r < 2; r++) N_ERR(begin_behind(&passed[r], id, r, 2), ncclInProgress);
    for (int r = 0; r < 2; r++) N_OK(ncclCommAbort(passed[r]));
    await_threads();
    all_gone();
}

T_MAIN(T(native_where_it_can_be), T(forwarded_as_asked), T(forwarded_on_two_hosts),
       T(native_only_is_an_error_there), T(ranks_that_differ), T(a_mode_that_is_none),
       T(a_rank_without_a_real_one), T(more_ranks_than_a_domain_has), T(a_real_one_that_fails),
       T(handles_that_have_ended), T(groups_of_both), T(order_at_switches),
       T(a_refused_call_in_a_group_of_both), T(a_group_that_fails_at_its_end), T(the_calls),
       T(calls_are_counted_where_they_go), T(children), T(all_of_a_process),
       T(each_call_fails_once), T(an_older_one), T(made_behind_the_call),
       T(an_abort_while_it_is_made), T(an_abort_inside_the_real_one))
