/* fault_nccl_over.c - native communicators with a real NCCL beside them (SYMM_NCCL_FORWARD=op,
 * tests/fake/nccl_whole.c): each way to make and to end one, failures in between, ranks that
 * differ. Ranks are processes, threads, or one thread. No lock. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>

#include "base/fail.h"
#include "base/stats.h"
#include "nccl_over_kit.h"

extern int symm_test_where[2];

enum { BY_RANK, BY_CONFIG, BY_IDS, BY_SPLIT, BY_SHRINK, BY_GROW, WAYS };
typedef struct {
    ncclUniqueId id, more;
    _Atomic int made, here;
    int way, end, far, without;
    const char *over[4]; /* of each rank; NULL: op */
    ncclResult_t code[RANKS];
    char text[RANKS][256], why[RANKS][128];
} plan;

static plan *new_plan(void) {
    plan *p = T_SHARED(sizeof *p);
    p->without = -1;
    return p;
}

/* All ranks of the test. */
static void together(plan *p, int n) {
    const int round = p->here++ / n;
    while (p->here < (round + 1) * n) usleep(200);
}

/* A native call, then two that symm does not serve, on what the one before has left. */
static void works(ncclComm_t comm, int rank, int n) {
    int x = rank + 1, squares = 0;
    for (int r = 0; r < n; r++) squares += sum_to(n) * sum_to(n) * n * n;
    N_OK(ncclAllReduce(&x, &x, 1, ncclInt32, ncclSum, comm, NULL));
    T_EQ(x, sum_to(n));
    N_OK(ncclAllReduce(&x, &x, 1, TYPE, ncclSum, comm, NULL));
    T_EQ(x, sum_to(n) * n);
    N_OK(ncclAllReduce(&x, &x, 1, ncclInt32, OP, comm, NULL));
    T_EQ(x, squares);
    T_EQ(over(comm, CALL_ALL_REDUCE), 2);
    T_EQ(((nccl_comm *)(void *)comm)->calls[CALL_ALL_REDUCE], 1);
}

/* ---- each way to make it, each to end it ----------------------------------------------------- */

static ncclResult_t first(plan *p, int way, int rank, int n, ncclComm_t *comm) {
    ncclConfig_t config = n_config(NCCL_VERSION_CODE, sizeof config);
    if (!rank) {
        N_OK(ncclGetUniqueId(&p->id));
        if (p->way == BY_GROW) N_OK(ncclGetUniqueId(&p->more));
        p->made = 1;
    }
    while (!p->made) usleep(1000);
    if (way == BY_CONFIG) return ncclCommInitRankConfig(comm, n, p->id, rank, &config);
    if (way == BY_IDS) return ncclCommInitRankScalable(comm, n, rank, 1, &p->id, NULL);
    return ncclCommInitRank(comm, n, p->id, rank);
}

/* Without the last rank. */
static ncclResult_t second(plan *p, int rank, int n, ncclComm_t parent, ncclComm_t *comm) {
    int gone = n - 1;
    if (p->way == BY_SPLIT)
        return ncclCommSplit(parent, rank == gone ? NCCL_SPLIT_NOCOLOR : 4, -rank, comm, NULL);
    return ncclCommShrink(parent, &gone, 1, comm, NULL, NCCL_SHRINK_ABORT);
}

static void one_way(int rank, int n, void *arg) {
    plan *p = arg;
    ncclComm_t comm = NULL, parent = NULL;
    const int last = rank == n - 1;
    if (p->way != BY_GROW)
        N_OK(first(p, p->way, rank, n, &parent));
    else if (!last)
        N_OK(first(p, p->way, rank, n - 1, &parent));
    while (!p->made) usleep(1000);
    if (p->way == BY_SPLIT || (p->way == BY_SHRINK && !last))
        N_OK(second(p, rank, n, parent, &comm));
    if (p->way == BY_GROW)
        N_OK(ncclCommGrow(parent, n, last || !rank ? &p->more : NULL, last ? rank : -1, &comm,
                          NULL));
    if (p->way < BY_SPLIT) comm = parent;
    if (p->way == BY_SPLIT && last) T_CHECK(!comm);
    const int members = p->way == BY_SPLIT || p->way == BY_SHRINK ? n - 1 : n;
    if (comm) {
        T_CHECK(shadow(comm) != NULL);
        works(comm, p->way == BY_SPLIT ? n - 2 - rank : rank, members);
    }
    together(p, n);
    if (comm) end_one(comm, p->end);
    if (parent && parent != comm) N_OK(ncclCommDestroy(parent));
}

static void made_and_ended_in_every_way(void) {
    T_EXPECT_WARNINGS();
    use_over("libnccl-real.so");
    for (int k = 0; k < WAYS * ENDS; k++) {
        plan *p = new_plan();
        p->way = k / ENDS;
        p->end = k % ENDS;
        T_THREADS(RANKS, one_way, p);
        all_gone();
    }
}

static void all_of_a_process(void) {
    T_EXPECT_WARNINGS();
    use_over("libnccl-real-old.so"); /* ncclCommInitRankConfig is enough */
    for (int how = 0; how < ENDS; how++) {
        make_all();
        end_all(how);
    }
}

/* Its parent decides, whatever the variables say then. */
static void children_are_as_their_parents(void) {
    ncclComm_t child[RANKS];
    use_over("libnccl-real.so");
    make_all();
    setenv("SYMM_NCCL_FORWARD", "never", 1);
    N_OK(ncclGroupStart());
    for (int r = 0; r < RANKS; r++) N_OK(ncclCommSplit(all[r], 0, r, &child[r], NULL));
    N_OK(ncclGroupEnd());
    for (int r = 0; r < RANKS; r++) T_CHECK(shadow(child[r]) != NULL);
    for (int r = 0; r < RANKS; r++) N_OK(ncclCommDestroy(child[r]));
    end_all(DESTROY);
    N_OK(ncclCommInitAll(all, RANKS, NULL));
    setenv("SYMM_NCCL_FORWARD", "op", 1);
    N_OK(ncclGroupStart());
    for (int r = 0; r < RANKS; r++) N_OK(ncclCommSplit(all[r], 0, r, &child[r], NULL));
    N_OK(ncclGroupEnd());
    for (int r = 0; r < RANKS; r++) T_CHECK(!shadow(child[r]) && !shadow(all[r]));
    for (int r = 0; r < RANKS; r++) N_OK(ncclCommDestroy(child[r]));
    end_all(DESTROY);
}

/* ---- ranks agree ----------------------------------------------------------------------------- */

static void note(plan *p, int rank, ncclResult_t code) {
    p->code[rank] = code;
    snprintf(p->text[rank], sizeof p->text[rank], "%s", code ? ncclGetLastError(NULL) : "");
}

static void all_say(const plan *p, int n, ncclResult_t code, const char *part) {
    for (int r = 0; r < n; r++) {
        T_CHECKF(p->code[r] == code, "rank %d: %d: %s", r, (int)p->code[r], p->text[r]);
        if (code) T_MSG(p->text[r], part);
    }
}

static void one_process(int rank, int n, void *arg) {
    plan *p = arg;
    ncclComm_t comm = NULL;
    use_over("libnccl-real.so");
    if (p->over[rank]) setenv("SYMM_NCCL_FORWARD", p->over[rank], 1);
    if (rank == p->without) setenv("SYMM_NCCL_LIB", "/nowhere/libnccl.so.2", 1);
    symm_test_where[0] = p->far && rank == 1;
    note(p, rank, first(p, BY_RANK, rank, n, &comm));
    T_EQ(comm != NULL, !p->code[rank]);
    if (!comm) return all_gone();
    T_EQ(nccl_comm_forwarded(comm) != NULL, p->far);
    T_EQ(ask_real("nccl_real_live"), 1);
    if (p->far) snprintf(p->why[rank], sizeof p->why[rank], "%s", ((nccl_comm *)comm)->why);
    if (!p->far) works(comm, rank, n);
    N_OK(ncclCommDestroy(comm));
    all_gone();
}

static void ranks_that_are_processes(void) {
    plan *p = new_plan();
    T_FORK(RANKS, one_process, p);
    all_say(p, RANKS, ncclSuccess, "");
}

static void ranks_that_differ(void) {
    T_EXPECT_WARNINGS();
    plan *p = new_plan();
    p->over[2] = "never";
    T_FORK(RANKS, one_process, p);
    all_say(p, RANKS, ncclInvalidUsage,
            "SYMM_NCCL_FORWARD is never on rank 2 and op on rank 0: it must be equal on all ranks");
    p = new_plan();
    p->over[1] = "all";
    T_FORK(RANKS, one_process, p);
    all_say(p, RANKS, ncclInvalidArgument,
            "rank 1: SYMM_NCCL_FORWARD=all: must be one of never, op");
}

static void a_rank_without_a_real_one(void) {
    T_EXPECT_WARNINGS();
    plan *p = new_plan();
    p->without = 1;
    T_FORK(RANKS, one_process, p);
    all_say(p, RANKS, ncclInvalidUsage, "SYMM_NCCL_FORWARD=op; rank 1: SYMM_NCCL_LIB=/nowhere");
}

/* Ranks that symm cannot serve: what was made beside it serves them alone. */
static void ranks_on_two_hosts(void) {
    T_EXPECT_WARNINGS();
    plan *p = new_plan();
    p->far = 1;
    T_FORK(RANKS, one_process, p);
    all_say(p, RANKS, ncclSuccess, "");
    for (int r = 0; r < RANKS; r++) T_MSG(p->why[r], "rank 1 runs on host");
}

/* A new rank, and those that it comes to. */
static void one_grown(int rank, int n, void *arg) {
    plan *p = arg;
    ncclComm_t comm = NULL, parent = NULL;
    const int last = rank == n - 1;
    use_over("libnccl-real.so");
    if (p->over[rank]) setenv("SYMM_NCCL_FORWARD", p->over[rank], 1);
    if (!last) N_OK(first(p, BY_RANK, rank, n - 1, &parent));
    while (!p->made) usleep(1000);
    note(p, rank,
         ncclCommGrow(parent, n, last || !rank ? &p->more : NULL, last ? rank : -1, &comm, NULL));
    T_CHECK(!comm);
    if (parent) N_OK(ncclCommDestroy(parent));
    all_gone();
}

static void a_new_rank_that_differs(void) {
    T_EXPECT_WARNINGS();
    for (int k = 0; k < 2; k++) {
        plan *p = new_plan();
        p->way = BY_GROW;
        for (int r = 0; r < RANKS; r++) p->over[r] = (r == RANKS - 1) == k ? "op" : "never";
        T_FORK(RANKS, one_grown, p);
        all_say(p, RANKS, ncclInvalidUsage, "SYMM_NCCL_FORWARD is ");
    }
}

/* ---- creation that fails --------------------------------------------------------------------- */

static void one_that_fails(int rank, int n, void *arg) {
    plan *p = arg;
    ncclComm_t comm = NULL, parent = NULL;
    const int last = rank == n - 1;
    const int child = p->way >= BY_SPLIT;
    if (child && !(p->way == BY_GROW && last))
        N_OK(first(p, p->way, rank, p->way == BY_GROW ? n - 1 : n, &parent));
    while (child && !p->made) usleep(1000);
    together(p, n);
    if (!rank) make_fail(p->why[0], p->without);
    together(p, n);
    if (!child) note(p, rank, first(p, p->way, rank, n, &comm));
    if (p->way == BY_SPLIT) note(p, rank, ncclCommSplit(parent, 0, rank, &comm, NULL));
    if (p->way == BY_SHRINK) note(p, rank, ncclCommShrink(parent, NULL, 0, &comm, NULL, 0));
    if (p->way == BY_GROW)
        note(p, rank,
             ncclCommGrow(parent, n, last || !rank ? &p->more : NULL, last ? rank : -1, &comm,
                          NULL));
    T_CHECK(!comm);
    together(p, n);
    if (!rank) make_fail("", -1);
    together(p, n);
    if (parent && p->way != BY_GROW) works(parent, rank, n); /* it is as it was */
    together(p, n);
    if (parent) N_OK(ncclCommDestroy(parent));
}

/* The same error on all ranks, nothing is left, and what it is made from lives on. */
static void a_real_one_that_fails(void) {
    static const struct {
        const char *call;
        int rank;
        ncclResult_t code;
        const char *text;
    } rows[] = {
        {"ncclGetUniqueId", -1, ncclInternalError, "rank 0: ncclGetUniqueId, of the real NCCL: "},
        {"ncclCommInitRankConfig", 1, ncclInternalError, "rank 1: the real NCCL says: "},
        {"late", 1, ncclInvalidUsage, "rank 1: the real NCCL says: it fails late"},
        {"slow", 2, ncclInvalidUsage, "rank 2: the real NCCL says: it fails soon"},
    };
    static const int ways[] = {BY_RANK, BY_SPLIT, BY_SHRINK, BY_GROW};
    T_EXPECT_WARNINGS();
    use_over("libnccl-real.so");
    for (size_t i = 0; i < 4 * sizeof rows / sizeof *rows; i++) {
        plan *p = new_plan();
        p->way = ways[i % 4];
        p->without = rows[i / 4].rank;
        snprintf(p->why[0], sizeof p->why[0], "%s", rows[i / 4].call);
        T_THREADS(RANKS, one_that_fails, p);
        all_say(p, RANKS, rows[i / 4].code, rows[i / 4].text);
        all_gone();
    }
}

static void all_of_a_process_that_fails(void) {
    T_EXPECT_WARNINGS();
    use_over("libnccl-real.so");
    make_fail("ncclCommInitRankConfig", 1);
    N_REFUSED(ncclCommInitAll(all, RANKS, NULL), ncclInternalError, "rank 1: the real NCCL says");
    all_gone();
    make_fail("", -1);
    make_all();
    end_all(DESTROY);
}

/* Symm's part fails when the real NCCL's is made. */
static void symms_part_that_fails(void) {
    T_EXPECT_WARNINGS();
    T_EXPECT_FDS();
    ncclComm_t child[RANKS];
    use_over("libnccl-real.so");
    T_EQ(symm_fail_arm("comm_ctl:error"), 0);
    N_ERR(ncclCommInitAll(all, RANKS, NULL), ncclSystemError);
    all_gone();
    symm_fail_arm("");
    make_all();
    T_EQ(symm_fail_arm("comm_ctl:error"), 0);
    N_OK(ncclGroupStart());
    for (int r = 0; r < RANKS; r++) N_OK(ncclCommSplit(all[r], 0, r, &child[r], NULL));
    N_ERR(ncclGroupEnd(), ncclSystemError);
    symm_fail_arm("");
    T_EQ(ask_real("nccl_real_live"), RANKS);
    for (int r = 0; r < RANKS; r++) T_CHECK(!child[r]);
    end_all(DESTROY);
}

/* ---- behind the call, errors later ----------------------------------------------------------- */

static ncclResult_t await(ncclComm_t comm) {
    ncclResult_t now = ncclInProgress;
    for (int i = 0; i < 5000 && now == ncclInProgress; i++) {
        usleep(1000);
        N_OK(ncclCommGetAsyncError(comm, &now));
    }
    return now;
}

static void await_threads(void) {
    for (int i = 0; i < 3000 && SYMM_STAT_GET(threads); i++) usleep(1000);
    T_EQ(SYMM_STAT_GET(threads), 0);
    all_gone();
}

/* By an id, then by split, which goes on behind the call as its parent did; ends at whatever
 * moment. */
static void one_behind(int rank, int n, void *arg) {
    plan *p = arg;
    ncclConfig_t config = n_config(NCCL_VERSION_CODE, sizeof config);
    ncclComm_t comm = NULL, child = NULL;
    int x = 1;
    config.blocking = 0;
    if (!rank) {
        N_OK(ncclGetUniqueId(&p->id));
        p->made = 1;
    }
    while (!p->made) usleep(1000);
    N_ERR(ncclCommInitRankConfig(&comm, n, p->id, rank, &config), ncclInProgress);
    together(p, n);
    if (p->way == BY_RANK) return end_one(comm, ABORT);
    T_EQ(await(comm), ncclSuccess);
    works(comm, rank, n);
    N_ERR(ncclCommSplit(comm, 0, rank, &child, p->way == BY_SHRINK ? &config : NULL),
          ncclInProgress);
    if (p->way == BY_SPLIT) {
        const ncclResult_t early = ncclAllReduce(&x, &x, 1, TYPE, ncclSum, child, NULL);
        T_CHECK(early == ncclInvalidArgument || early == ncclSuccess);
        T_EQ(await(child), ncclSuccess);
        if (early) N_OK(ncclAllReduce(&x, &x, 1, TYPE, ncclSum, child, NULL));
        T_EQ(x, n);
    }
    together(p, n);
    end_one(child, p->way == BY_SPLIT ? DESTROY : ABORT);
    end_one(comm, p->way == BY_SPLIT ? FINALIZE : ABORT);
}

static void made_behind_the_call(void) {
    T_EXPECT_WARNINGS();
    static const int ways[] = {BY_SPLIT, BY_RANK, BY_SHRINK};
    use_over("libnccl-real.so");
    for (int k = 0; k < 3; k++) {
        plan *p = new_plan();
        p->way = ways[k];
        T_THREADS(RANKS, one_behind, p);
        await_threads();
    }
}

/* The old ranks as their communicator was made, the new one as it asks. */
static void one_grown_behind(int rank, int n, void *arg) {
    plan *p = arg;
    ncclConfig_t config = n_config(NCCL_VERSION_CODE, sizeof config);
    ncclComm_t comm = NULL, parent = NULL;
    const int last = rank == n - 1;
    config.blocking = 0;
    if (!rank) {
        N_OK(ncclGetUniqueId(&p->id));
        N_OK(ncclGetUniqueId(&p->more));
        p->made = 1;
    }
    while (!p->made) usleep(1000);
    if (!last) {
        N_ERR(ncclCommInitRankConfig(&parent, n - 1, p->id, rank, &config), ncclInProgress);
        T_EQ(await(parent), ncclSuccess);
    }
    N_ERR(ncclCommGrow(parent, n, last || !rank ? &p->more : NULL, last ? rank : -1, &comm,
                       last ? &config : NULL),
          ncclInProgress);
    T_EQ(await(comm), ncclSuccess);
    works(comm, rank, n);
    together(p, n);
    N_OK(ncclCommDestroy(comm));
    if (parent) N_OK(ncclCommDestroy(parent));
}

static void grown_behind_the_call(void) {
    use_over("libnccl-real.so");
    T_THREADS(RANKS, one_grown_behind, new_plan());
    await_threads();
}

static void fails_behind_the_call(void) {
    T_EXPECT_WARNINGS();
    ncclUniqueId id;
    ncclConfig_t config = n_config(NCCL_VERSION_CODE, sizeof config);
    int x = 1;
    config.blocking = 0;
    use_over("libnccl-real.so");
    make_fail("late", 1);
    N_OK(ncclGetUniqueId(&id));
    for (int r = 0; r < 2; r++)
        N_ERR(ncclCommInitRankConfig(&all[r], 2, id, r, &config), ncclInProgress);
    for (int r = 0; r < 2; r++) T_EQ(await(all[r]), ncclInvalidUsage);
    N_ERR(ncclAllReduce(&x, &x, 1, TYPE, ncclSum, all[0], NULL), ncclInvalidUsage);
    for (int r = 0; r < 2; r++) N_OK(ncclCommAbort(all[r]));
    await_threads();
}

/* What is beside it waits for the end that the program makes. */
static void symms_part_fails_behind_the_call(void) {
    T_EXPECT_WARNINGS();
    T_EXPECT_FDS();
    ncclUniqueId id;
    ncclConfig_t config = n_config(NCCL_VERSION_CODE, sizeof config);
    int x = 1;
    config.blocking = 0;
    use_over("libnccl-real.so");
    T_EQ(symm_fail_arm("comm_ctl:error"), 0);
    N_OK(ncclGetUniqueId(&id));
    for (int r = 0; r < 2; r++)
        N_ERR(ncclCommInitRankConfig(&all[r], 2, id, r, &config), ncclInProgress);
    for (int r = 0; r < 2; r++) T_EQ(await(all[r]), ncclSystemError);
    symm_fail_arm("");
    T_EQ(ask_real("nccl_real_live"), 2);
    N_ERR(ncclAllReduce(&x, &x, 1, TYPE, ncclSum, all[0], NULL), ncclSystemError);
    make_fail("ncclCommDestroy", -1); /* it is aborted */
    for (int r = 0; r < 2; r++) N_OK(ncclCommDestroy(all[r]));
    make_fail("", -1);
    await_threads();
}

/* A child alone has failed then. */
static void fails_behind_a_split(void) {
    T_EXPECT_WARNINGS();
    ncclUniqueId id;
    ncclConfig_t config = n_config(NCCL_VERSION_CODE, sizeof config);
    ncclComm_t child[2];
    int x[2] = {1, 1};
    config.blocking = 0;
    use_over("libnccl-real.so");
    N_OK(ncclGetUniqueId(&id));
    for (int r = 0; r < 2; r++)
        N_ERR(ncclCommInitRankConfig(&all[r], 2, id, r, &config), ncclInProgress);
    for (int r = 0; r < 2; r++) T_EQ(await(all[r]), ncclSuccess);
    make_fail("late", 0);
    for (int r = 0; r < 2; r++) N_ERR(ncclCommSplit(all[r], 7, r, &child[r], NULL), ncclInProgress);
    for (int r = 0; r < 2; r++) T_EQ(await(child[r]), ncclInvalidUsage);
    make_fail("", -1);
    T_EQ(ask_real("nccl_real_live"), 2);
    for (int r = 0; r < 2; r++) N_OK(ncclCommAbort(child[r]));
    N_OK(ncclGroupStart());
    for (int r = 0; r < 2; r++) N_OK(ncclAllReduce(&x[r], &x[r], 1, TYPE, ncclSum, all[r], NULL));
    N_OK(ncclGroupEnd());
    T_EQ(x[1], 2);
    for (int r = 0; r < 2; r++) N_OK(ncclCommDestroy(all[r]));
    await_threads();
}

/* What has failed is aborted, and gets no more calls; an error of the real NCCL is one of both. */
static void errors_of_either(void) {
    T_EXPECT_WARNINGS();
    int x = 1;
    ncclResult_t now = ncclSuccess;
    use_over("libnccl-real.so");
    make_all();
    N_OK(ncclCommRevoke(all[0], 0));
    N_ERR(ncclAllReduce(&x, &x, 1, TYPE, ncclSum, all[1], NULL), ncclRemoteError);
    make_fail("ncclCommDestroy", -1);
    N_OK(ncclCommDestroy(all[0]));
    make_fail("", -1);
    for (int r = 1; r < RANKS; r++) N_OK(ncclCommAbort(all[r]));
    all_gone();
    make_all();
    make_fail("ncclCommGetAsyncError", 1);
    N_OK(ncclCommGetAsyncError(all[0], &now));
    N_REFUSED(ncclCommGetAsyncError(all[1], &now), ncclInternalError, "of the real NCCL");
    make_fail("ncclCommFinalize", 2);
    N_ERR(ncclCommFinalize(all[2]), ncclInternalError);
    make_fail("ncclCommRevoke", 2);
    N_ERR(ncclCommRevoke(all[2], 0), ncclInternalError);
    make_fail("ncclCommAbort", 2);
    N_REFUSED(ncclCommDestroy(all[2]), ncclInternalError, "ncclCommAbort, of the real NCCL");
    make_fail("", -1);
    for (int r = 0; r < 2; r++) N_OK(ncclCommAbort(all[r]));
    all_gone();
}

/* ends: the real NCCL's call for what a shrink that aborts leaves behind. If it fails, the child is
 * made all the same. */
static void shrink_all(const char *lib, const char *ends) {
    ncclComm_t child[RANKS];
    use_over(lib);
    for (int flags = 0; flags <= NCCL_SHRINK_ABORT; flags++) {
        make_all();
        const int before = ask_real("nccl_real_failed");
        make_fail(ends, -1);
        N_OK(ncclGroupStart());
        for (int r = 0; r < RANKS; r++)
            N_OK(ncclCommShrink(all[r], NULL, 0, &child[r], NULL, flags));
        N_OK(ncclGroupEnd());
        T_EQ(ask_real("nccl_real_failed") - before, flags ? RANKS : 0);
        make_fail("", -1);
        for (int r = 0; r < RANKS; r++) {
            T_CHECK(shadow(child[r]) != NULL);
            N_OK(ncclCommDestroy(child[r]));
        }
        end_all(ABORT);
    }
}

static void a_shrink_that_aborts(void) {
    T_EXPECT_WARNINGS();
    shrink_all("libnccl-real.so", "ncclCommRevoke");
}

static void a_shrink_that_aborts_an_older_one(void) {
    T_EXPECT_WARNINGS();
    shrink_all("libnccl-real-old.so", "ncclCommAbort");
}

/* It leaves only symm's part to die: the stand-in cannot clean up behind the dead. */
static void die(ncclComm_t comm) {
    ncclResult_t (*gone)(ncclComm_t comm) = NULL;
    *(void **)(void *)&gone = dlsym(real_lib, "ncclCommAbort");
    N_OK(gone(shadow(comm)));
    kill(getpid(), SIGKILL);
}

static void one_survivor(int rank, int n, void *arg) {
    plan *p = arg;
    ncclComm_t comm = NULL, child = NULL;
    ncclResult_t now = ncclSuccess;
    int x = 1, dead = n - 1;
    use_over("libnccl-real.so");
    N_OK(first(p, BY_RANK, rank, n, &comm));
    works(comm, rank, n);
    together(p, n);
    if (rank == dead) die(comm);
    for (int i = 0; i < 5000 && !now; i++) {
        usleep(1000);
        N_OK(ncclCommGetAsyncError(comm, &now));
    }
    T_EQ(now, ncclRemoteError);
    N_ERR(ncclAllReduce(&x, &x, 1, TYPE, ncclSum, comm, NULL), ncclRemoteError);
    N_OK(ncclCommShrink(comm, &dead, 1, &child, NULL, NCCL_SHRINK_ABORT));
    works(child, rank, n - 1);
    N_OK(ncclCommDestroy(child));
    make_fail("ncclCommDestroy", -1); /* it is aborted */
    N_OK(ncclCommDestroy(comm));
    all_gone();
}

/* No call goes to the real NCCL then, where it would wait for the dead; a shrink goes on. */
static void a_rank_that_dies(void) {
    T_EXPECT_WARNINGS();
    T_FORK_DIES(RANKS, RANKS - 1, one_survivor, new_plan());
}

T_MAIN(T(made_and_ended_in_every_way), T(all_of_a_process), T(children_are_as_their_parents),
       T(ranks_that_are_processes), T(ranks_that_differ), T(a_rank_without_a_real_one),
       T(ranks_on_two_hosts), T(a_new_rank_that_differs), T(a_real_one_that_fails),
       T(all_of_a_process_that_fails), T(symms_part_that_fails), T(made_behind_the_call),
       T(grown_behind_the_call), T(fails_behind_the_call), T(fails_behind_a_split),
       T(symms_part_fails_behind_the_call), T(errors_of_either), T(a_rank_that_dies),
       T(a_shrink_that_aborts), T(a_shrink_that_aborts_an_older_one))
