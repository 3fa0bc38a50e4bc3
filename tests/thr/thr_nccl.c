/* thr_nccl.c - the drop-in where the ranks are threads, or one thread has several ranks (-t and -g
 * of nccl-tests), on the host backend: groups, streams, captures, aborts by a watchdog. */
#include <pthread.h>
#include <stdatomic.h>

#include "base/stats.h"
#include "nccl_kit.h"

enum { RANKS = 4, COUNT = 5000 };

static ncclComm_t comms[RANKS];
static ncclUniqueId id;

static int all_ranks(int n) {
    return n * (n + 1) / 2;
}

static void destroy_all(void) {
    for (int r = 0; r < RANKS; r++) N_OK(ncclCommDestroy(comms[r]));
}

/* ---- a thread each --------------------------------------------------------------------------- */

static void one_rank(int rank, int n, void *arg) {
    ncclComm_t comm;
    int *x = arg, me;
    N_OK(ncclCommInitRank(&comm, n, id, rank));
    x[rank] = rank + 1;
    N_OK(ncclAllReduce(&x[rank], &x[rank], 1, ncclInt32, ncclSum, comm, NULL));
    T_EQ(x[rank], all_ranks(n));
    N_OK(ncclCommUserRank(comm, &me));
    T_EQ(me, rank);
    N_OK(ncclCommDestroy(comm));
}

static void a_thread_each(void) {
    int x[RANKS];
    N_OK(ncclGetUniqueId(&id));
    T_THREADS(RANKS, one_rank, x);
}

/* Main makes the communicators, threads use them: -t N. */
static void use_rank(int rank, int n, void *arg) {
    int x[COUNT];
    (void)arg;
    for (int i = 0; i < COUNT; i++) x[i] = rank + 1;
    for (int k = 0; k < 5; k++)
        N_OK(ncclAllReduce(x, x, COUNT, ncclInt32, ncclMax, comms[rank], NULL));
    for (int i = 0; i < COUNT; i++) T_EQ(x[i], n);
}

static void made_by_one_used_by_threads(void) {
    N_OK(ncclCommInitAll(comms, RANKS, NULL));
    T_THREADS(RANKS, use_rank, NULL);
    destroy_all();
}

/* ---- one thread ------------------------------------------------------------------------------ */

static void make_in_a_group(void) {
    N_OK(ncclGetUniqueId(&id));
    N_OK(ncclGroupStart());
    for (int r = 0; r < RANKS; r++) N_OK(ncclCommInitRank(&comms[r], RANKS, id, r));
    N_OK(ncclGroupEnd());
}

/* Registration of all of them in one group, windows that begin off their memory, collectives of
 * several in a group: -g N -R 2. */
static void one_thread_for_all(void) {
    int *x[RANKS];
    ncclWindow_t win[RANKS];
    void *peer;
    make_in_a_group();
    N_OK(ncclGroupStart());
    for (int r = 0; r < RANKS; r++) {
        N_OK(ncclMemAlloc((void **)&x[r], COUNT * sizeof(int)));
        N_OK(ncclCommWindowRegister(comms[r], x[r], COUNT * sizeof(int), &win[r], 1));
    }
    N_OK(ncclGroupEnd());
    for (int r = 0; r < RANKS; r++)
        for (int i = 0; i < COUNT; i++) x[r][i] = r + 1;
    for (int k = 0; k < 3; k++) {
        N_OK(ncclGroupStart());
        for (int r = 0; r < RANKS; r++)
            N_OK(ncclAllReduce(x[r] + 2, x[r] + 2, COUNT - 2, ncclInt32, k ? ncclMax : ncclSum,
                               comms[r], NULL));
        N_OK(ncclGroupEnd());
    }
    for (int r = 0; r < RANKS; r++) T_EQ(x[r][COUNT - 1], all_ranks(RANKS));
    N_OK(ncclGetPeerDevicePointer(win[0], 4 * (COUNT - 1), 3, &peer));
    T_EQ(*(int *)peer, all_ranks(RANKS));
    N_OK(ncclGetLsaDevicePointer(win[1], 0, 2, &peer));
    T_EQ(*(int *)peer, 3);
    for (int r = 0; r < RANKS; r++) N_OK(ncclCommWindowDeregister(comms[r], win[r]));
    destroy_all();
    for (int r = 0; r < RANKS; r++) N_OK(ncclMemFree(x[r]));
}

/* One serves them; the others would cost a descriptor each to the end of the process. */
static void ids_for_many_roots(void) {
    ncclUniqueId ids[3];
    for (int i = 0; i < 3; i++) N_OK(ncclGetUniqueId(&ids[i]));
    N_OK(ncclGroupStart());
    for (int r = 0; r < RANKS; r++)
        N_OK(ncclCommInitRankScalable(&comms[r], RANKS, r, 3, ids, NULL));
    N_OK(ncclGroupEnd());
    destroy_all();
}

static void splits_in_a_group(void) {
    ncclComm_t child[RANKS];
    int n, x[RANKS];
    make_in_a_group();
    N_OK(ncclGroupStart());
    for (int r = 0; r < RANKS; r++)
        N_OK(ncclCommSplit(comms[r], r == 3 ? NCCL_SPLIT_NOCOLOR : r % 2, r, &child[r], NULL));
    N_OK(ncclGroupEnd());
    T_CHECK(!child[3]);
    N_OK(ncclCommCount(child[0], &n));
    T_EQ(n, 2);
    N_OK(ncclGroupStart());
    for (int r = 0; r < 3; r++) {
        x[r] = 1;
        N_OK(ncclAllReduce(&x[r], &x[r], 1, ncclInt32, ncclSum, child[r], NULL));
    }
    N_OK(ncclGroupEnd());
    T_EQ(x[0], 2);
    T_EQ(x[1], 1);
    for (int r = 0; r < 3; r++) N_OK(ncclCommDestroy(child[r]));
    destroy_all();
}

/* Windows of NULL communicators, of a group that fails, of one that has ended. */
static void a_refused_call_takes_the_group_along(void) {
    T_EXPECT_WARNINGS();
    ncclWindow_t win = NULL;
    int x[RANKS] = {1, 1, 1, 1};
    make_in_a_group();
    N_OK(ncclGroupStart());
    for (int r = 0; r < RANKS; r++)
        N_OK(ncclAllReduce(&x[r], &x[r], 1, ncclInt32, ncclSum, comms[r], NULL));
    N_ERR(ncclCommWindowRegister(NULL, x, 4, &win, 1), ncclInvalidArgument);
    N_ERR(ncclAllReduce(x, x, 1, ncclInt32, (ncclRedOp_t)77, comms[0], NULL), ncclInvalidArgument);
    N_ERR(ncclGroupEnd(), ncclInvalidArgument);
    T_EQ(x[0], 1);
    T_CHECK(!win);
    destroy_all();
}

/* One that the drop-in refuses itself counts too: the library never hears of it. */
static void a_call_on_no_communicator_takes_the_group_along(void) {
    T_EXPECT_WARNINGS();
    int x[RANKS] = {1, 1, 1, 1};
    make_in_a_group();
    N_OK(ncclGroupStart());
    for (int r = 0; r < RANKS; r++)
        N_OK(ncclAllReduce(&x[r], &x[r], 1, ncclInt32, ncclSum, comms[r], NULL));
    N_ERR(ncclAllReduce(x, x, 1, ncclInt32, ncclSum, NULL, NULL), ncclInvalidArgument);
    N_ERR(ncclGroupEnd(), ncclInvalidArgument);
    for (int r = 0; r < RANKS; r++) T_EQ(x[r], 1);
    N_OK(ncclGroupStart()); /* the next group is none the worse */
    for (int r = 0; r < RANKS; r++)
        N_OK(ncclAllReduce(&x[r], &x[r], 1, ncclInt32, ncclSum, comms[r], NULL));
    N_OK(ncclGroupEnd());
    T_EQ(x[3], RANKS);
    destroy_all();
}

/* torch times a group by it: nothing runs, what stands behind the group is done, and no time is
 * made up. */
static void a_group_that_is_only_simulated_runs_nothing(void) {
    int x[RANKS] = {1, 1, 1, 1};
    ncclSimInfo_t info = {sizeof info, NCCL_SIM_MAGIC, NCCL_VERSION_CODE, 7};
    ncclComm_t child[RANKS];
    make_in_a_group();
    N_OK(ncclGroupStart());
    for (int r = 0; r < RANKS; r++) {
        N_OK(ncclAllReduce(&x[r], &x[r], 1, ncclInt32, ncclSum, comms[r], NULL));
        N_OK(ncclCommSplit(comms[r], 0, r, &child[r], NULL));
    }
    N_OK(ncclGroupStart());
    N_OK(ncclGroupSimulateEnd(&info)); /* of an inner one, as its end */
    N_OK(ncclGroupSimulateEnd(&info));
    for (int r = 0; r < RANKS; r++) {
        T_EQ(x[r], 1);
        T_CHECK(!child[r]);
    }
    T_CHECK(info.estimatedTime == -1); /* NCCL_UNDEF_FLOAT */
    N_OK(ncclGroupStart());
    N_OK(ncclGroupSimulateEnd(NULL));
    destroy_all();
}

static void what_a_simulation_finds(void) {
    T_EXPECT_WARNINGS();
    int x = 1;
    ncclSimInfo_t info = {4, NCCL_SIM_MAGIC, NCCL_VERSION_CODE, 7};
    N_OK(ncclCommInitAll(comms, 1, NULL));
    N_OK(ncclGroupStart());
    N_ERR(ncclAllReduce(&x, &x, 1, ncclInt32, (ncclRedOp_t)77, comms[0], NULL),
          ncclInvalidArgument);
    N_ERR(ncclGroupSimulateEnd(NULL), ncclInvalidArgument);
    N_ERR(ncclGroupEnd(), ncclInvalidUsage); /* that one is over */
    N_OK(ncclGroupStart());
    N_REFUSED(ncclGroupSimulateEnd(&info), ncclInvalidArgument, "must be made with NCCL's");
    N_ERR(ncclGroupEnd(), ncclInvalidUsage);
    T_CHECK(info.estimatedTime == 7);
    N_OK(ncclCommDestroy(comms[0]));
}

/* One rank makes the id, whichever; new ranks come with it. */
static void they_grow(void) {
    ncclComm_t more[RANKS];
    ncclUniqueId grown;
    int n, x[RANKS];
    N_OK(ncclCommInitAll(comms, 2, NULL));
    N_OK(ncclCommGetUniqueId(comms[1], &grown));
    N_OK(ncclGroupStart());
    for (int r = 0; r < RANKS; r++)
        N_OK(ncclCommGrow(r < 2 ? comms[r] : NULL, RANKS, r ? &grown : NULL, r < 2 ? -1 : r,
                          &more[r], NULL));
    N_OK(ncclGroupEnd());
    N_OK(ncclGroupStart());
    for (int r = 0; r < RANKS; r++) {
        x[r] = r + 1;
        N_OK(ncclAllReduce(&x[r], &x[r], 1, ncclInt32, ncclSum, more[r], NULL));
    }
    N_OK(ncclGroupEnd());
    for (int r = 0; r < RANKS; r++) T_EQ(x[r], all_ranks(RANKS));
    N_OK(ncclCommCount(more[3], &n));
    T_EQ(n, RANKS);
    for (int r = 0; r < RANKS; r++) N_OK(ncclCommDestroy(more[r]));
    for (int r = 0; r < 2; r++) N_OK(ncclCommDestroy(comms[r]));
}

static void growth_that_is_refused(void) {
    T_EXPECT_WARNINGS();
    ncclComm_t more = (ncclComm_t)(void *)&id;
    N_OK(ncclCommInitAll(comms, 1, NULL));
    N_REFUSED(ncclCommGrow(comms[0], 2, NULL, -1, &more, NULL), ncclInvalidArgument,
              "id is NULL on all ranks of comm");
    T_CHECK(!more);
    N_REFUSED(ncclCommGrow(NULL, 2, NULL, 1, &more, NULL), ncclInvalidArgument, "id is NULL");
    N_ERR(ncclCommGrow(comms[0], 2, &id, -1, NULL, NULL), ncclInvalidArgument);
    N_ERR(ncclCommGetUniqueId(NULL, &id), ncclInvalidArgument);
    N_ERR(ncclCommGetUniqueId(comms[0], NULL), ncclInvalidArgument);
    N_OK(ncclCommDestroy(comms[0]));
}

/* Control words and scratch are there from the beginning; what a heap takes comes on top. */
static void what_they_hold(void) {
    T_EXPECT_WARNINGS();
    uint64_t persist = 0, total = 0, none = 1;
    N_OK(ncclCommInitAll(comms, 1, NULL));
    N_OK(ncclCommMemStats(comms[0], ncclStatGpuMemPersist, &persist));
    N_OK(ncclCommMemStats(comms[0], ncclStatGpuMemTotal, &total));
    N_OK(ncclCommMemStats(comms[0], ncclStatGpuMemSuspended, &none));
    T_CHECK(persist > 32u << 20 && persist < 64u << 20);
    T_EQ(total, persist);
    T_EQ(none, 0);
    N_ERR(ncclCommMemStats(comms[0], (ncclCommMemStat_t)9, &none), ncclInvalidArgument);
    N_OK(ncclCommDestroy(comms[0]));
}

/* torch aborts all communicators of a process in one group, while their calls stand still. */
static void *waits_in_vain(void *arg) {
    int x = 1;
    N_ERR(ncclAllReduce(&x, &x, 1, ncclInt32, ncclSum, arg, NULL), ncclRemoteError);
    return NULL;
}

static void a_group_of_aborts(void) {
    T_EXPECT_WARNINGS();
    pthread_t stuck[2];
    ncclComm_t other[RANKS];
    N_OK(ncclCommInitAll(comms, RANKS, NULL));
    N_OK(ncclCommInitAll(other, RANKS, NULL));
    T_EQ(pthread_create(&stuck[0], NULL, waits_in_vain, comms[1]), 0);
    T_EQ(pthread_create(&stuck[1], NULL, waits_in_vain, other[2]), 0);
    usleep(30000);
    N_OK(ncclGroupStart());
    for (int r = 0; r < RANKS; r++) {
        N_OK(ncclCommAbort(comms[r]));
        N_OK(ncclCommAbort(other[r]));
    }
    N_OK(ncclGroupEnd());
    for (int i = 0; i < 2; i++) T_EQ(pthread_join(stuck[i], NULL), 0);
}

/* An abort of a communicator whose calls stand in the group, which then runs none of them. */
static void an_abort_of_what_stands_in_the_group(void) {
    T_EXPECT_WARNINGS();
    int x[RANKS] = {1, 1, 1, 1};
    N_OK(ncclCommInitAll(comms, RANKS, NULL));
    N_OK(ncclGroupStart());
    for (int r = 0; r < RANKS; r++)
        N_OK(ncclAllReduce(&x[r], &x[r], 1, ncclInt32, ncclSum, comms[r], NULL));
    N_OK(ncclCommAbort(comms[0]));
    T_CHECK(ncclGroupEnd() != ncclSuccess);
    T_CHECK(x[0] == 1);
    for (int r = 1; r < RANKS; r++) N_OK(ncclCommAbort(comms[r]));
}

static void a_communicator_in_use_by_its_group_is_not_destroyed(void) {
    T_EXPECT_WARNINGS();
    int x[RANKS] = {1, 1, 1, 1}, n;
    make_in_a_group();
    N_OK(ncclGroupStart());
    for (int r = 0; r < RANKS; r++)
        N_OK(ncclAllReduce(&x[r], &x[r], 1, ncclInt32, ncclSum, comms[r], NULL));
    N_ERR(ncclCommDestroy(comms[0]), ncclInvalidUsage);
    N_OK(ncclCommCount(comms[0], &n)); /* it lives on */
    N_ERR(ncclGroupEnd(), ncclInvalidUsage);
    destroy_all();
}

/* ---- creation that does not block ------------------------------------------------------------ */

static ncclComm_t join(int rank, int n) {
    ncclComm_t comm = NULL;
    ncclConfig_t config = n_config(NCCL_VERSION_CODE, sizeof config);
    config.blocking = 0;
    N_ERR(ncclCommInitRankConfig(&comm, n, id, rank, &config), ncclInProgress);
    T_CHECK(comm != NULL);
    return comm;
}

static ncclComm_t begin_alone(void) {
    N_OK(ncclGetUniqueId(&id));
    return join(0, 2);
}

/* The thread that made it ends soon after, and with it what it held. */
static void await_threads(void) {
    for (int i = 0; i < 2000 && SYMM_STAT_GET(threads); i++) usleep(1000);
    T_EQ(SYMM_STAT_GET(threads), 0);
}

static void await_made(ncclComm_t comm) {
    ncclResult_t now = ncclInProgress;
    for (int i = 0; i < 10000 && now == ncclInProgress; i++) {
        usleep(1000);
        N_OK(ncclCommGetAsyncError(comm, &now));
    }
    T_EQ(now, ncclSuccess);
}

static void sum_of_two(const ncclComm_t *of) {
    int x[2] = {1, 2};
    N_OK(ncclGroupStart());
    for (int r = 0; r < 2; r++)
        N_OK(ncclAllReduce(&x[r], &x[r], 1, ncclInt32, ncclSum, of[r], NULL));
    N_OK(ncclGroupEnd());
    T_CHECK(x[0] == 3 && x[1] == 3);
}

#define NOT_READY(call) N_REFUSED(call, ncclInvalidArgument, "is still being made")

/* ncclInProgress would say that they were accepted. No handle is left in what they write. */
static void refused_while_it_is_made(ncclComm_t comm) {
    int x = 1, y = 7, scalar = 3, gone = 1;
    ncclRedOp_t op = ncclMax;
    ncclWindow_t win = (ncclWindow_t)(void *)&id;
    void *handle;
    ncclComm_t child = comm;
    uint64_t held = 7;
    NOT_READY(ncclAllReduce(&x, &y, 1, ncclInt32, ncclSum, comm, NULL));
    NOT_READY(ncclBcast(&y, 1, ncclInt32, 0, comm, NULL));
    NOT_READY(ncclAllGatherConfig(&x, &y, 1, ncclInt32, comm, NULL, NULL));
    NOT_READY(ncclSend(&x, 1, ncclInt32, 0, comm, NULL));
    NOT_READY(ncclSignal(0, 0, 0, 0, comm, NULL));
    NOT_READY(ncclRedOpCreatePreMulSum(&op, &scalar, ncclInt32, ncclScalarHostImmediate, comm));
    NOT_READY(ncclCommWindowRegister(comm, &x, 4, &win, 0));
    NOT_READY(ncclCommRegister(comm, &x, 4, &handle));
    NOT_READY(ncclCommSplit(comm, 0, 0, &child, NULL));
    NOT_READY(ncclCommShrink(comm, &gone, 1, &child, NULL, 0));
    NOT_READY(ncclCommGrow(comm, 3, &id, -1, &child, NULL));
    NOT_READY(ncclCommFinalize(comm));
    NOT_READY(ncclCommRevoke(comm, 0));
    NOT_READY(ncclCommUserRank(comm, &y));
    NOT_READY(ncclCommMemStats(comm, ncclStatGpuMemTotal, &held));
    T_EQ(ncclTeamWorld(comm).nRanks, 0);
    T_CHECK(op == ncclMax && y == 7 && held == 7 && !win && !child);
}

static void calls_while_it_is_made(void) {
    T_EXPECT_WARNINGS();
    int x = 1, y = 1;
    ncclComm_t ready, late[2] = {begin_alone()};
    N_OK(ncclCommInitAll(&ready, 1, NULL));
    refused_while_it_is_made(late[0]);
    N_OK(ncclGroupStart()); /* what stands beside such a call does not run */
    N_OK(ncclAllReduce(&x, &y, 0, ncclInt32, ncclSum, ready, NULL));
    N_OK(ncclSend(&x, 1, ncclInt32, 0, ready, NULL));
    N_OK(ncclRecv(&y, 1, ncclInt32, 0, ready, NULL));
    x = 2;
    NOT_READY(ncclAllReduce(&x, &x, 1, ncclInt32, ncclSum, late[0], NULL));
    N_ERR(ncclGroupEnd(), ncclInvalidArgument);
    T_EQ(y, 1);
    late[1] = join(1, 2);
    for (int r = 0; r < 2; r++) await_made(late[r]);
    sum_of_two(late);
    for (int r = 0; r < 2; r++) N_OK(ncclCommDestroy(late[r]));
    N_OK(ncclCommDestroy(ready));
}

/* The communicator is as if nobody had asked. */
static void a_destroy_while_it_is_made(void) {
    T_EXPECT_WARNINGS();
    ncclComm_t late[2] = {begin_alone()};
    NOT_READY(ncclCommDestroy(late[0]));
    late[1] = join(1, 2);
    for (int r = 0; r < 2; r++) await_made(late[r]);
    sum_of_two(late);
    for (int r = 0; r < 2; r++) N_OK(ncclCommDestroy(late[r]));
    await_threads();
}

/* Nor is the one ready that another one is made from, until that is made. */
static void a_destroy_while_it_is_split(void) {
    T_EXPECT_WARNINGS();
    int n = 0;
    ncclComm_t parent[2] = {begin_alone(), join(1, 2)}, child[2];
    for (int r = 0; r < 2; r++) await_made(parent[r]);
    N_ERR(ncclCommSplit(parent[0], 0, 0, &child[0], NULL), ncclInProgress);
    NOT_READY(ncclCommDestroy(parent[0]));
    NOT_READY(ncclCommFinalize(parent[0]));
    NOT_READY(ncclAllReduce(&n, &n, 1, ncclInt32, ncclSum, parent[0], NULL));
    NOT_READY(ncclCommSplit(parent[0], 0, 0, &child[1], NULL));
    NOT_READY(ncclCommDestroy(child[0]));
    N_OK(ncclCommCount(parent[0], &n));
    T_EQ(n, 2);
    N_ERR(ncclCommSplit(parent[1], NCCL_SPLIT_NOCOLOR, 0, &child[1], NULL), ncclInProgress);
    T_CHECK(!child[1]);
    for (int r = 0; r < 2; r++) await_made(parent[r]);
    sum_of_two(parent);
    N_OK(ncclCommDestroy(child[0]));
    for (int r = 0; r < 2; r++) N_OK(ncclCommDestroy(parent[r]));
    await_threads();
}

/* The state and the end are answered while it is made, other calls are not ready. */
static void an_abort_while_it_is_made(void) {
    T_EXPECT_WARNINGS();
    int x = 1, n;
    ncclResult_t now = ncclSuccess;
    ncclComm_t comm = begin_alone();
    N_OK(ncclCommGetAsyncError(comm, &now));
    T_EQ(now, ncclInProgress);
    NOT_READY(ncclCommCount(comm, &n)); /* as NCCL */
    NOT_READY(ncclAllReduce(&x, &x, 1, ncclInt32, ncclSum, comm, NULL));
    N_OK(ncclCommAbort(comm));
    N_ERR(ncclCommGetAsyncError(comm, &now), ncclInvalidArgument);
    await_threads();
}

/* The rank that never comes is the error of the communicator, which can still be ended. */
static void a_creation_that_fails_behind(void) {
    T_EXPECT_WARNINGS();
    int x = 1;
    ncclResult_t now = ncclInProgress;
    setenv("SYMM_SETUP_TIMEOUT", "200", 1);
    ncclComm_t comm = begin_alone();
    for (int i = 0; i < 1000 && now == ncclInProgress; i++) {
        usleep(10000);
        N_OK(ncclCommGetAsyncError(comm, &now));
    }
    T_EQ(now, ncclRemoteError);
    T_MSG(ncclGetLastError(comm), "rank 1 never came");
    N_ERR(ncclAllReduce(&x, &x, 1, ncclInt32, ncclSum, comm, NULL), ncclRemoteError);
    N_OK(ncclCommAbort(comm));
}

/* ---- streams, captures ----------------------------------------------------------------------- */

static void streams_and_replays(void) {
    symmStream_t s[RANKS];
    symmGraph_t graph;
    symmGraphExec_t exec[RANKS];
    int x[RANKS];
    N_OK(ncclCommInitAll(comms, RANKS, NULL));
    for (int r = 0; r < RANKS; r++) {
        T_OK(symmStreamCreate(&s[r]));
        x[r] = 1;
        N_OK(ncclAllReduce(&x[r], &x[r], 1, ncclInt32, ncclSum, comms[r], s[r]));
    }
    for (int r = 0; r < RANKS; r++) {
        T_OK(symmStreamSynchronize(s[r]));
        T_EQ(x[r], RANKS);
        T_OK(symmStreamBeginCapture(s[r]));
        N_OK(ncclAllReduce(&x[r], &x[r], 1, ncclInt32, ncclSum, comms[r], s[r]));
        T_OK(symmStreamEndCapture(s[r], &graph));
        T_OK(symmGraphInstantiate(graph, &exec[r]));
        T_OK(symmGraphDestroy(graph));
    }
    for (int k = 0; k < 2; k++)
        for (int r = 0; r < RANKS; r++) T_OK(symmGraphLaunch(exec[r], s[r]));
    for (int r = 0; r < RANKS; r++) {
        T_OK(symmStreamSynchronize(s[r]));
        T_EQ(x[r], RANKS * RANKS * RANKS);
        T_OK(symmGraphExecDestroy(exec[r]));
        T_OK(symmStreamDestroy(s[r]));
    }
    destroy_all();
}

/* ---- the end --------------------------------------------------------------------------------- */

static void *waits_for_ever(void *arg) {
    int x = 1;
    (void)arg;
    N_ERR(ncclAllReduce(&x, &x, 1, ncclInt32, ncclSum, comms[0], NULL), ncclRemoteError);
    return NULL;
}

/* A watchdog aborts a communicator that another thread is stuck in. */
static void a_watchdog_aborts(void) {
    T_EXPECT_WARNINGS();
    pthread_t stuck;
    ncclResult_t now;
    N_OK(ncclCommInitAll(comms, 2, NULL));
    T_EQ(pthread_create(&stuck, NULL, waits_for_ever, NULL), 0);
    usleep(50000);
    N_OK(ncclCommGetAsyncError(comms[0], &now));
    T_EQ(now, ncclSuccess);
    N_OK(ncclCommAbort(comms[0]));
    T_EQ(pthread_join(stuck, NULL), 0);
    N_ERR(ncclCommGetAsyncError(comms[0], &now), ncclInvalidArgument);
    N_OK(ncclCommAbort(comms[1]));
}

static void abort_one(int rank, int n, void *arg) {
    _Atomic int *ended = arg;
    (void)rank, (void)n;
    const ncclResult_t r = ncclCommAbort(comms[0]);
    if (r == ncclSuccess) atomic_fetch_add(ended, 1);
}

/* Threads that end one communicator at once: it ends, once. */
static void two_threads_abort(void) {
    T_EXPECT_WARNINGS();
    for (int k = 0; k < 20; k++) {
        _Atomic int ended = 0;
        N_OK(ncclCommInitAll(comms, 1, NULL));
        T_THREADS(3, abort_one, &ended);
        T_CHECK(ended >= 1);
        N_ERR(ncclCommAbort(comms[0]), ncclInvalidArgument);
    }
}

static void revoked(void) {
    T_EXPECT_WARNINGS();
    int x = 1;
    ncclRedOp_t op;
    ncclResult_t now;
    N_OK(ncclCommInitAll(comms, 2, NULL));
    N_OK(ncclCommRevoke(NULL, 0));
    N_ERR(ncclCommRevoke(comms[0], 5), ncclInvalidArgument);
    N_OK(ncclCommRevoke(comms[0], 0));
    N_ERR(ncclAllReduce(&x, &x, 1, ncclInt32, ncclSum, comms[1], NULL), ncclRemoteError);
    N_OK(ncclCommGetAsyncError(comms[1], &now));
    T_EQ(now, ncclRemoteError);
    N_OK(ncclCommGetAsyncError(comms[0], &now)); /* it is what this rank wanted */
    T_EQ(now, ncclSuccess);
    N_REFUSED(ncclCommRevoke(comms[0], 0), ncclInvalidArgument, "revoked already");
    N_REFUSED(ncclAllReduce(&x, &x, 1, ncclInt32, ncclSum, comms[0], NULL), ncclInvalidUsage,
              "ncclAllReduce: the communicator was revoked");
    N_ERR(ncclSend(&x, 1, ncclInt32, 1, comms[0], NULL), ncclInvalidUsage);
    N_OK(ncclGroupStart());
    N_ERR(ncclRecv(&x, 1, ncclInt32, 1, comms[0], NULL), ncclInvalidUsage);
    N_ERR(ncclGroupEnd(), ncclInvalidUsage);
    N_OK(ncclRedOpCreatePreMulSum(&op, &x, ncclInt32, ncclScalarHostImmediate, comms[0]));
    N_OK(ncclRedOpDestroy(op, comms[0]));
    N_OK(ncclCommCount(comms[0], &x));
    T_EQ(x, 2);
    for (int r = 0; r < 2; r++) N_OK(ncclCommAbort(comms[r]));
}

T_MAIN(T(a_thread_each), T(made_by_one_used_by_threads), T(one_thread_for_all),
       T(ids_for_many_roots), T(splits_in_a_group), T(a_refused_call_takes_the_group_along),
       T(a_call_on_no_communicator_takes_the_group_along),
       T(a_group_that_is_only_simulated_runs_nothing), T(what_a_simulation_finds), T(they_grow),
       T(growth_that_is_refused), T(what_they_hold), T(a_group_of_aborts),
       T(an_abort_of_what_stands_in_the_group),
       T(a_communicator_in_use_by_its_group_is_not_destroyed), T(calls_while_it_is_made),
       T(a_destroy_while_it_is_made), T(a_destroy_while_it_is_split), T(an_abort_while_it_is_made),
       T(a_creation_that_fails_behind), T(streams_and_replays), T(a_watchdog_aborts),
       T(two_threads_abort), T(revoked))
