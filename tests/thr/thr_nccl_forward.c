/* thr_nccl_forward.c - forwarded communicators, and native ones with a real NCCL beside them, used
 * by threads: ranks that are threads, creation behind the call, ends and questions from other
 * threads than the one that makes it. The real NCCL is tests/fake/nccl_whole.c. Ranks are threads;
 * no lock. */
#define _GNU_SOURCE
#include <pthread.h>

#include "../../nccl-tests-plugin/plugin.h"
#include "base/stats.h"
#include "nccl_kit.h"
#include "nccl_real_kit.h"

enum { RANKS = 3, ROUNDS = 40 };

typedef struct {
    ncclUniqueId id;
    _Atomic int ready, asked, ended;
    _Atomic(ncclComm_t) comm[RANKS];
} plan;

static plan *new_plan(void) {
    plan *p = T_SHARED(sizeof *p);
    use_real("forward", "libnccl-real.so");
    return p;
}

static ncclComm_t join(plan *p, int rank, int n, ncclConfig_t *config, ncclResult_t want) {
    ncclComm_t comm = NULL;
    if (!rank) {
        N_OK(ncclGetUniqueId(&p->id));
        p->ready = 1;
    }
    while (!p->ready) usleep(200);
    N_ERR(ncclCommInitRankConfig(&comm, n, p->id, rank, config), want);
    return comm;
}

static void await_threads(void) {
    for (int i = 0; i < 3000 && SYMM_STAT_GET(threads); i++) usleep(1000);
    T_EQ(SYMM_STAT_GET(threads), 0);
    all_gone();
}

/* ---- calls ----------------------------------------------------------------------------------- */

static void calls(ncclComm_t comm, int rank, int n) {
    int x[RANKS], got = 0;
    for (int k = 0; k < ROUNDS; k++) {
        x[0] = rank + k;
        N_OK(ncclAllReduce(x, &got, 1, ncclInt32, ncclSum, comm, NULL));
        T_EQ(got, n * k + n * (n - 1) / 2);
        N_OK(ncclGroupStart());
        N_OK(ncclSend(x, 1, ncclInt32, (rank + 1) % n, comm, NULL));
        N_OK(ncclRecv(&got, 1, ncclInt32, (rank + n - 1) % n, comm, NULL));
        N_OK(ncclGroupEnd());
        T_EQ(got, (rank + n - 1) % n + k);
    }
    const nccl_comm *c = nccl_comm_forwarded(comm);
    T_CHECK(c != NULL);
    if (c) T_EQ(c->calls[CALL_ALL_REDUCE] + c->calls[CALL_SEND] + c->calls[CALL_RECV], 3 * ROUNDS);
}

static void one_rank(int rank, int n, void *arg) {
    ncclComm_t comm = join(arg, rank, n, NULL, ncclSuccess);
    calls(comm, rank, n);
    N_OK(ncclCommDestroy(comm));
}

static void ranks_that_are_threads(void) {
    T_THREADS(RANKS, one_rank, new_plan());
    all_gone();
}

/* A group that is only simulated runs nothing of theirs, whoever counts the time. */
static void simulated(ncclSimInfo_t *info, ncclResult_t want) {
    ncclUniqueId id;
    ncclComm_t comm;
    int x = 1, got = 0;
    N_OK(ncclGetUniqueId(&id));
    N_OK(ncclCommInitRank(&comm, 1, id, 0));
    N_OK(ncclGroupStart());
    N_OK(ncclAllReduce(&x, &got, 1, ncclInt32, ncclSum, comm, NULL));
    N_ERR(ncclGroupSimulateEnd(info), want);
    T_EQ(got, 0);
    N_OK(ncclAllReduce(&x, &got, 1, ncclInt32, ncclSum, comm, NULL));
    T_EQ(got, 1);
    N_OK(ncclCommDestroy(comm));
}

static void a_group_that_is_only_simulated(void) {
    ncclSimInfo_t info = {sizeof info, NCCL_SIM_MAGIC, NCCL_VERSION_CODE, 7};
    use_real("forward", "libnccl-real.so");
    simulated(&info, ncclSuccess);
    T_CHECK(info.estimatedTime == 3);
    simulated(NULL, ncclSuccess); /* which is no simulation to the real NCCL */
    all_gone();
}

/* Without the call it is refused, and runs nothing either. */
static void a_simulation_that_the_real_one_lacks(void) {
    T_EXPECT_WARNINGS();
    ncclSimInfo_t info = {sizeof info, NCCL_SIM_MAGIC, NCCL_VERSION_CODE, 7};
    use_real("forward", "libnccl-real-old.so");
    simulated(&info, ncclInvalidUsage);
    T_CHECK(strstr(ncclGetLastError(NULL), "has no pncclGroupSimulateEnd") != NULL);
    simulated(NULL, ncclInvalidUsage);
    all_gone();
}

/* Split and shrink, each rank on its thread. */
static void one_parent(int rank, int n, void *arg) {
    ncclComm_t comm = join(arg, rank, n, NULL, ncclSuccess), child = NULL;
    N_OK(ncclCommSplit(comm, 0, -rank, &child, NULL));
    calls(child, n - 1 - rank, n);
    N_OK(ncclCommDestroy(child));
    N_OK(ncclCommDestroy(comm));
}

static void children_of_threads(void) {
    T_THREADS(RANKS, one_parent, new_plan());
    all_gone();
}

/* ---- behind the call ------------------------------------------------------------------------- */

static ncclConfig_t behind(void) {
    ncclConfig_t config = n_config(NCCL_VERSION_CODE, sizeof config);
    config.blocking = 0;
    return config;
}

static void await_made(ncclComm_t comm) {
    ncclResult_t now = ncclInProgress;
    for (int i = 0; i < 10000 && now == ncclInProgress; i++) {
        usleep(300);
        N_OK(ncclCommGetAsyncError(comm, &now));
    }
    T_EQ(now, ncclSuccess);
}

static void one_behind(int rank, int n, void *arg) {
    ncclConfig_t config = behind();
    ncclComm_t comm = join(arg, rank, n, &config, ncclInProgress);
    await_made(comm);
    calls(comm, rank, n);
    N_OK(ncclCommDestroy(comm));
}

static void made_behind_the_call(void) {
    T_THREADS(RANKS, one_behind, new_plan());
    await_threads();
}

/* Asked without a pause: also at the moment at which it becomes forwarded. */
static void asked_without_a_pause(void) {
    ncclConfig_t config = behind();
    use_real("forward", "libnccl-real.so");
    for (int k = 0; k < 200; k++) {
        ncclUniqueId id;
        ncclComm_t comm;
        ncclResult_t now = ncclInProgress, r = ncclSuccess;
        N_OK(ncclGetUniqueId(&id));
        N_ERR(ncclCommInitRankConfig(&comm, 1, id, 0, &config), ncclInProgress);
        while (!r && now == ncclInProgress) r = ncclCommGetAsyncError(comm, &now);
        T_CHECKF(!r && !now, "round %d: %d, %d: %s", k, (int)r, (int)now, ncclGetLastError(NULL));
        N_OK(ncclCommDestroy(comm));
    }
    await_threads();
}

/* The child's handle comes when the parent is ready again, as NCCL has it: the call says success
 * and writes NULL. The parent's watchdog asks, too. */
static void *asks_on(void *arg) {
    plan *p = arg;
    ncclResult_t now;
    while (!p->ended) N_OK(ncclCommGetAsyncError(p->comm[0], &now));
    return NULL;
}

enum { SPLIT, SHRINK, IN_A_GROUP, WITHOUT_COLOR, HOW };

static void make_child(ncclComm_t comm, int rank, int how, ncclComm_t *child) {
    const int color = how == WITHOUT_COLOR && rank ? NCCL_SPLIT_NOCOLOR : 0;
    if (how == IN_A_GROUP) N_OK(ncclGroupStart());
    if (how == SHRINK)
        N_OK(ncclCommShrink(comm, NULL, 0, child, NULL, 0));
    else
        N_OK(ncclCommSplit(comm, color, rank, child, NULL));
    if (how == IN_A_GROUP) N_OK(ncclGroupEnd());
}

static void one_parent_behind(int rank, int n, void *arg) {
    plan *p = arg;
    pthread_t watchdog;
    ncclConfig_t config = behind();
    ncclComm_t comm = join(p, rank, n, &config, ncclInProgress), child[HOW];
    await_made(comm);
    if (!rank) p->comm[0] = comm;
    if (!rank) T_EQ(pthread_create(&watchdog, NULL, asks_on, p), 0);
    for (int how = 0; how < HOW; how++) {
        const int there = how != WITHOUT_COLOR || !rank;
        make_child(comm, rank, how, &child[how]);
        await_made(comm);
        T_EQ(child[how] != NULL, there);
        if (there) calls(child[how], rank, how == WITHOUT_COLOR ? 1 : n);
    }
    if (!rank) {
        p->ended = 1;
        T_EQ(pthread_join(watchdog, NULL), 0);
    }
    for (int how = 0; how < HOW; how++)
        if (child[how]) N_OK(ncclCommDestroy(child[how]));
    N_OK(ncclCommDestroy(comm));
}

static void children_that_come_later(void) {
    plan *p = new_plan();
    make_fail("child later", -1);
    T_THREADS(RANKS, one_parent_behind, p);
    make_fail("", -1);
    await_threads();
}

/* Nobody asks the parent any more: what has come by its end is the program's. */
static void a_parent_that_ends_first(void) {
    ncclConfig_t config = behind();
    use_real("forward", "libnccl-real.so");
    make_fail("child later", -1);
    for (int how = 0; how < 2; how++) {
        ncclUniqueId id;
        ncclComm_t comm, child;
        N_OK(ncclGetUniqueId(&id));
        N_ERR(ncclCommInitRankConfig(&comm, 1, id, 0, &config), ncclInProgress);
        await_made(comm);
        N_OK(ncclCommSplit(comm, how ? NCCL_SPLIT_NOCOLOR : 0, 0, &child, NULL));
        T_CHECK(!child);
        N_OK(ncclCommDestroy(comm));
        T_EQ(child != NULL, !how);
        if (child) calls(child, 0, 1);
        if (child) N_OK(ncclCommDestroy(child));
    }
    make_fail("", -1);
    await_threads();
}

/* A watchdog ends what a library thread is making, at whatever moment. */
static void one_watched(int rank, int n, void *arg) {
    plan *p = arg;
    if (rank == n - 1) {
        for (int r = 0; r < n - 1; r++) {
            ncclComm_t comm;
            while (!(comm = p->comm[r])) usleep(100);
            N_OK(ncclCommAbort(comm));
        }
        return;
    }
    ncclConfig_t config = behind();
    ncclComm_t comm = join(p, rank, n - 1, &config, ncclInProgress);
    usleep((useconds_t)p->asked);
    p->comm[rank] = comm;
}

static void an_abort_while_others_make_it(void) {
    T_EXPECT_WARNINGS();
    for (int k = 0; k < 24; k++) { /* from the beginning to long after it is made */
        plan *p = new_plan();
        p->asked = k * 700;
        T_THREADS(RANKS, one_watched, p);
        await_threads();
    }
}

/* ---- questions while others work ------------------------------------------------------------- */

static void one_asked(int rank, int n, void *arg) {
    plan *p = arg;
    if (rank == n - 1) { /* the watchdog: of all communicators, all the time */
        while (p->ended < n - 1)
            for (int r = 0; r < n - 1; r++) {
                ncclComm_t comm = p->comm[r];
                int count = -1;
                if (!comm) continue;
                N_OK(ncclCommCount(comm, &count));
                T_EQ(count, n - 1);
                T_CHECK(nccl_comm_forwarded(comm) != NULL);
            }
        return;
    }
    p->comm[rank] = join(p, rank, n - 1, NULL, ncclSuccess);
    calls(p->comm[rank], rank, n - 1);
    p->ended++;
}

static void a_watchdog_that_asks(void) {
    plan *p = new_plan();
    T_THREADS(RANKS, one_asked, p);
    for (int r = 0; r < RANKS - 1; r++) N_OK(ncclCommDestroy(p->comm[r]));
    all_gone();
}

/* ---- beside native ones ---------------------------------------------------------------------- */

#define NEW_TYPE ((ncclDataType_t)ncclNumTypes)

static plan *new_beside(void) {
    plan *p = T_SHARED(sizeof *p);
    use_real("auto", "libnccl-real.so");
    setenv("SYMM_NCCL_FORWARD", "op", 1);
    return p;
}

/* Native ones, others, and groups of both; reductions of the real NCCL's come and go. */
static void both(ncclComm_t comm, int rank, int n) {
    int x = 0, y = 0, two = 2;
    ncclRedOp_t op;
    for (int k = 0; k < ROUNDS; k++) {
        x = rank + k;
        N_OK(ncclAllReduce(&x, &x, 1, ncclInt32, ncclSum, comm, NULL));
        N_OK(ncclAllReduce(&x, &y, 1, NEW_TYPE, ncclSum, comm, NULL));
        T_EQ(y, n * (n * k + n * (n - 1) / 2));
        N_OK(ncclRedOpCreatePreMulSum(&op, &two, NEW_TYPE, ncclScalarHostImmediate, comm));
        N_OK(ncclGroupStart());
        N_OK(ncclSend(&rank, 1, NEW_TYPE, (rank + 1) % n, comm, NULL));
        N_OK(ncclAllReduce(&rank, &x, 1, ncclInt32, ncclMax, comm, NULL));
        N_OK(ncclRecv(&y, 1, NEW_TYPE, (rank + n - 1) % n, comm, NULL));
        N_OK(ncclGroupEnd());
        T_CHECK(y == (rank + n - 1) % n && x == n - 1);
        N_OK(ncclRedOpDestroy(op, comm));
    }
}

static void one_beside(int rank, int n, void *arg) {
    ncclConfig_t config = behind();
    ncclComm_t comm = join(arg, rank, n, &config, ncclInProgress), child = NULL;
    await_made(comm);
    both(comm, rank, n);
    N_ERR(ncclCommSplit(comm, 0, -rank, &child, NULL), ncclInProgress);
    await_made(child);
    both(child, n - 1 - rank, n);
    N_OK(ncclCommDestroy(child));
    N_OK(ncclCommDestroy(comm));
}

static void beside_native_ones(void) {
    T_THREADS(RANKS, one_beside, new_beside());
    await_threads();
}

static void an_abort_while_others_make_both(void) {
    T_EXPECT_WARNINGS();
    for (int k = 0; k < 24; k++) {
        plan *p = new_beside();
        p->asked = k * 700;
        T_THREADS(RANKS, one_watched, p);
        await_threads();
    }
}

/* A watchdog asks for errors of both, all the time. */
static void one_asked_of_both(int rank, int n, void *arg) {
    plan *p = arg;
    ncclResult_t now;
    if (rank == n - 1) {
        while (p->ended < n - 1)
            for (int r = 0; r < n - 1; r++) {
                now = ncclSuccess;
                if (p->comm[r]) N_OK(ncclCommGetAsyncError(p->comm[r], &now));
                T_EQ(now, ncclSuccess);
            }
        return;
    }
    p->comm[rank] = join(p, rank, n - 1, NULL, ncclSuccess);
    both(p->comm[rank], rank, n - 1);
    p->ended++;
}

static void a_watchdog_that_asks_both(void) {
    plan *p = new_beside();
    T_THREADS(RANKS, one_asked_of_both, p);
    for (int r = 0; r < RANKS - 1; r++) N_OK(ncclCommDestroy(p->comm[r]));
    all_gone();
}

T_MAIN(T(ranks_that_are_threads), T(a_group_that_is_only_simulated),
       T(a_simulation_that_the_real_one_lacks), T(children_of_threads), T(made_behind_the_call),
       T(asked_without_a_pause), T(children_that_come_later), T(a_parent_that_ends_first),
       T(an_abort_while_others_make_it), T(a_watchdog_that_asks), T(beside_native_ones),
       T(an_abort_while_others_make_both), T(a_watchdog_that_asks_both))
