/* fault_nccl_over_calls.c - what goes to the real NCCL beside a native communicator
 * (SYMM_NCCL_FORWARD=op, tests/fake/nccl_whole.c): types, reductions and calls that symm does not
 * have, in groups too, with which handles; what is counted. One thread drives all ranks. */
#define _GNU_SOURCE
#include <pthread.h>

#include "nccl_over_kit.h"

/* Where the caller wants it. */
static void streams(void) {
    static char mark; /* no stream: the stand-in only keeps the address */
    const cudaStream_t stream = (cudaStream_t)(void *)&mark;
    int x = 3;
    void *(*last)(void) = NULL;
    ncclComm_t comm;
    use_over("libnccl-real.so");
    *(void **)(void *)&last = dlsym(real_lib, "nccl_real_stream");
    N_OK(ncclCommInitAll(&comm, 1, NULL));
    N_OK(ncclAllReduce(&x, &x, 1, TYPE, ncclSum, comm, stream));
    T_CHECK(last() == stream);
    N_OK(ncclBroadcast(&x, &x, 1, TYPE, 0, comm, NULL));
    T_CHECK(last() == NULL);
    N_OK(ncclCommDestroy(comm));
}

/* Without a real NCCL beside it they are refused, as ever. */
static void never(void) {
    T_EXPECT_WARNINGS();
    int x = 1;
    ncclRedOp_t op;
    ncclComm_t comm;
    use_real("auto", "libnccl-real.so");
    N_OK(ncclCommInitAll(&comm, 1, NULL));
    N_ERR(ncclAllReduce(&x, &x, 1, TYPE, ncclSum, comm, NULL), ncclInvalidArgument);
    N_ERR(ncclAllReduce(&x, &x, 1, ncclInt32, OP, comm, NULL), ncclInvalidArgument);
    N_ERR(ncclRedOpCreatePreMulSum(&op, &x, TYPE, ncclScalarHostImmediate, comm),
          ncclInvalidArgument);
    N_REFUSED(ncclCommSuspend(comm, 7), ncclInvalidUsage, "is not served yet");
    T_CHECK(!shadow(comm));
    N_OK(ncclCommDestroy(comm));
    T_EQ(ask_real("nccl_real_calls"), 0);
}

static void each(ncclResult_t (*call)(int rank, int *x, int *y), int x[RANKS][RANKS],
                 int y[RANKS][RANKS]) {
    for (int r = 0; r < RANKS; r++)
        for (int i = 0; i < RANKS; i++) x[r][i] = 10 * r + i, y[r][i] = -1;
    N_OK(ncclGroupStart());
    for (int r = 0; r < RANKS; r++) N_OK(call(r, x[r], y[r]));
    N_OK(ncclGroupEnd());
}

static ncclResult_t all_gather(int r, int *x, int *y) {
    return ncclAllGather(x, y, 1, TYPE, all[r], NULL);
}
static ncclResult_t reduce_scatter(int r, int *x, int *y) {
    return ncclReduceScatter(x, y, 1, ncclInt32, OP, all[r], NULL);
}
static ncclResult_t broadcast(int r, int *x, int *y) {
    return ncclBroadcast(x, y, 2, TYPE, 1, all[r], NULL);
}
static ncclResult_t bcast(int r, int *x, int *y) {
    (void)y;
    return ncclBcast(x, 2, TYPE, 1, all[r], NULL);
}
static ncclResult_t reduce(int r, int *x, int *y) {
    return ncclReduce(x, y, 2, TYPE, ncclMax, 2, all[r], NULL);
}
static ncclResult_t to_all(int r, int *x, int *y) {
    return ncclAlltoAll(x, y, 1, TYPE, all[r], NULL);
}
static ncclResult_t gather(int r, int *x, int *y) {
    return ncclGather(x, y, 1, TYPE, 1, all[r], NULL);
}
static ncclResult_t scatter(int r, int *x, int *y) {
    return ncclScatter(x, y, 1, TYPE, 2, all[r], NULL);
}
static ncclResult_t around(int r, int *x, int *y) {
    N_OK(ncclSend(x, 3, TYPE, (r + 1) % RANKS, all[r], NULL));
    return ncclRecv(y, 3, TYPE, (r + RANKS - 1) % RANKS, all[r], NULL);
}

static void collectives(void) {
    int x[RANKS][RANKS], y[RANKS][RANKS];
    use_over("libnccl-real.so");
    make_all();
    each(all_gather, x, y);
    for (int i = 0; i < RANKS; i++) T_EQ(y[2][i], 10 * i);
    each(reduce_scatter, x, y);
    for (int r = 0; r < RANKS; r++)
        T_EQ(y[r][0], r * r + (10 + r) * (10 + r) + (20 + r) * (20 + r));
    each(broadcast, x, y);
    for (int r = 0; r < RANKS; r++) T_CHECK(y[r][0] == 10 && y[r][1] == 11 && y[r][2] == -1);
    each(bcast, x, y);
    for (int r = 0; r < RANKS; r++) T_CHECK(x[r][0] == 10 && x[r][1] == 11);
    each(reduce, x, y);
    T_CHECK(y[2][0] == 20 && y[2][1] == 21 && y[1][0] == -1);
    each(to_all, x, y);
    for (int r = 0; r < RANKS; r++)
        for (int i = 0; i < RANKS; i++) T_EQ(y[r][i], 10 * i + r);
    each(gather, x, y);
    for (int i = 0; i < RANKS; i++) T_CHECK(y[1][i] == 10 * i && y[0][i] == -1);
    each(scatter, x, y);
    for (int r = 0; r < RANKS; r++) T_EQ(y[r][0], 20 + r);
    each(around, x, y);
    for (int r = 0; r < RANKS; r++) T_EQ(y[r][2], 10 * ((r + RANKS - 1) % RANKS) + 2);
    for (int r = 0; r < RANKS; r++) {
        T_EQ(over(all[r], CALL_BROADCAST), 2);
        for (int i = CALL_ALL_GATHER; i <= CALL_RECV; i++)
            if (i != CALL_BROADCAST) T_EQ(over(all[r], i), 1);
        for (int i = 0; i < CALLS; i++) T_EQ(((nccl_comm *)(void *)all[r])->calls[i], 0);
    }
    end_all(DESTROY);
}

/* Native ones run first, then the others; none if one of either kind is refused. */
static void groups_of_both(void) {
    T_EXPECT_WARNINGS();
    use_over("libnccl-real.so");
    make_all();
    for (int k = 0; k < 3; k++) {
        int x[RANKS] = {1, 2, 3}, y[RANKS] = {1, 2, 3};
        N_OK(ncclGroupStart());
        for (int r = 0; r < RANKS; r++) {
            N_OK(ncclAllReduce(&y[r], &y[r], 1, TYPE, ncclMax, all[r], NULL));
            N_OK(ncclGroupStart());
            N_OK(ncclAllReduce(&x[r], &x[r], 1, ncclInt32, ncclSum, all[r], NULL));
            N_OK(ncclGroupEnd());
        }
        if (k == 1)
            N_ERR(ncclAllReduce(x, x, 1, ncclInt32, (ncclRedOp_t)4711, all[1], NULL),
                  ncclInvalidArgument);
        if (k == 2)
            N_ERR(ncclAllReduce(x, x, 1, ncclInt32, (ncclRedOp_t)9, all[1], NULL),
                  ncclInvalidArgument);
        for (int r = 0; r < RANKS; r++) T_CHECK(x[r] == r + 1 && y[r] == r + 1);
        N_ERR(ncclGroupEnd(), k ? ncclInvalidArgument : ncclSuccess);
        for (int r = 0; r < RANKS; r++)
            T_CHECK(x[r] == (k ? r + 1 : sum_to(RANKS)) && y[r] == (k ? r + 1 : RANKS));
    }
    end_all(DESTROY);
}

/* Numbers of reductions say where they belong: those that are built in, symm's, the real NCCL's. */
static void reductions(void) {
    T_EXPECT_WARNINGS();
    int two = 2, x = 3;
    ncclRedOp_t mine, theirs, again;
    ncclComm_t comm;
    use_over("libnccl-real.so");
    N_OK(ncclCommInitAll(&comm, 1, NULL));
    N_OK(ncclRedOpCreatePreMulSum(&mine, &two, ncclInt32, ncclScalarHostImmediate, comm));
    N_OK(ncclRedOpCreatePreMulSum(&theirs, &two, TYPE, ncclScalarHostImmediate, comm));
    T_EQ(mine, NCCL_OP_HANDLES);
    T_EQ(theirs, NCCL_OP_THEIRS);
    N_OK(ncclAllReduce(&x, &x, 1, ncclInt32, mine, comm, NULL));
    T_EQ(x, 6);
    N_OK(ncclAllReduce(&x, &x, 1, ncclInt32, OP, comm, NULL));
    T_EQ(x, 36);
    N_OK(ncclAllReduce(&x, &x, 1, TYPE, theirs, comm, NULL));
    T_EQ(over(comm, CALL_ALL_REDUCE), 2);
    N_ERR(ncclAllReduce(&x, &x, 1, ncclInt32, theirs, comm, NULL), ncclInvalidArgument);
    N_ERR(ncclAllReduce(&x, &x, 1, TYPE, mine, comm, NULL), ncclInvalidArgument);
    N_ERR(ncclRedOpDestroy(OP, comm), ncclInvalidArgument);
    N_OK(ncclRedOpDestroy(theirs, comm));
    N_ERR(ncclRedOpDestroy(theirs, comm), ncclInvalidArgument);
    N_ERR(ncclAllReduce(&x, &x, 1, TYPE, theirs, comm, NULL), ncclInvalidArgument);
    N_OK(ncclRedOpCreatePreMulSum(&again, &two, TYPE, ncclScalarHostImmediate, comm));
    T_EQ(again, theirs);
    N_OK(ncclRedOpDestroy(mine, comm));
    make_fail("ncclRedOpCreatePreMulSum", -1);
    N_REFUSED(ncclRedOpCreatePreMulSum(&again, &two, TYPE, ncclScalarHostImmediate, comm),
              ncclInternalError, "ncclRedOpCreatePreMulSum, of the real NCCL");
    make_fail("", -1);
    N_OK(ncclCommDestroy(comm));
    all_gone();
}

/* Windows and registrations are the real NCCL's too; what it does not take stays symm's. */
static void windows(void) {
    T_EXPECT_WARNINGS();
    int *x = NULL, y = 7;
    const size_t bytes = 4096;
    void *ptr, *handle;
    ncclWindow_t win;
    ncclComm_t comm;
    use_over("libnccl-real.so");
    N_OK(ncclCommInitAll(&comm, 1, NULL));
    N_OK(ncclMemAlloc((void **)&x, bytes));
    for (int k = 0; k < 2; k++) {
        if (k) N_OK(ncclGroupStart());
        N_OK(ncclCommWindowRegister(comm, x, bytes, &win, 0));
        if (k) N_OK(ncclGroupEnd());
        N_OK(ncclPutSignal(&y, 1, ncclInt32, 0, win, 8, 0, 0, 0, comm, NULL)); /* by symm */
        T_EQ(x[2], 7);
        x[2] = 0;
        N_REFUSED(ncclPutSignal(&y, 1, ncclInt32, 0, win, 8, 3, 4, 5, comm, NULL),
                  ncclInvalidArgument, "sigIdx=3, ctx=4, flags=5: all must be 0");
        N_OK(ncclGetLsaMultimemDevicePointer(win, 4, &ptr));
        T_CHECK(ptr == (char *)x + 104);
        N_OK(ncclGetLsaDevicePointer(win, 4, 0, &ptr));
        x[1] = 5;
        T_CHECK(*(int *)ptr == 5 && ptr != (char *)x + 4); /* symm's mapping */
        make_fail("ncclCommWindowDeregister", -1);
        N_OK(k ? ncclCommDeregister(comm, win) : ncclCommWindowDeregister(comm, win));
        T_EQ(ask_real("nccl_real_failed"), k + 1);
        make_fail("", -1);
        N_REFUSED(ncclPutSignal(&y, 1, ncclInt32, 0, win, 8, 0, 0, 0, comm, NULL),
                  ncclInvalidArgument, "is no window of symm, or it ended");
    }
    make_fail("ncclCommWindowRegister", -1);
    N_OK(ncclCommWindowRegister(comm, x, bytes, &win, 0));
    N_OK(ncclPutSignal(&y, 1, ncclInt32, 0, win, 8, 0, 0, 0, comm, NULL));
    T_EQ(x[2], 7);
    N_ERR(ncclGetLsaMultimemDevicePointer(win, 4, &ptr), ncclInvalidUsage);
    N_OK(ncclCommWindowDeregister(comm, win));
    make_fail("ncclCommDeregister", -1);
    N_OK(ncclCommRegister(comm, x, bytes, &handle));
    N_OK(ncclCommDeregister(comm, handle));
    T_EQ(ask_real("nccl_real_failed"), 4);
    make_fail("", -1);
    N_OK(ncclMemFree(x));
    N_OK(ncclCommDestroy(comm));
    all_gone();
}

static void configs_of_calls(void) {
    int x = 3;
    ncclComm_t comm;
    ncclCollConfig_t config;
    memset(&config, 0, sizeof config);
    config.size = sizeof config;
    config.magic = NCCL_API_MAGIC;
    config.minCTAs = 3;
    for (int k = 0; k < 2; k++) { /* without it, where the real NCCL is older */
        use_over("libnccl-real.so");
        N_OK(ncclCommInitAll(&comm, 1, NULL));
        if (k) make_fail("ncclAllReduceConfig", -1);
        N_ERR(ncclAllReduceConfig(&x, &x, 1, TYPE, ncclSum, comm, NULL, &config),
              k ? ncclInternalError : ncclSuccess);
        N_OK(ncclAllReduceConfig(&x, &x, 1, ncclInt32, ncclSum, comm, NULL, &config));
        N_OK(ncclReduceConfig(&x, &x, 1, TYPE, ncclSum, 0, comm, NULL, &config));
        T_EQ(over(comm, CALL_REDUCE), 1);
        T_EQ(over(comm, CALL_ALL_REDUCE), 1);
        make_fail("", -1);
        N_OK(ncclCommDestroy(comm));
        T_EXPECT_WARNINGS();
    }
}

/* Calls that symm does not have, by what the real NCCL is. */
static void other_calls(void) {
    T_EXPECT_WARNINGS();
    ncclComm_t comm;
    use_over("libnccl-real.so");
    N_OK(ncclCommInitAll(&comm, 1, NULL));
    N_OK(ncclCommSuspend(comm, 7));
    N_REFUSED(ncclCommSuspend(comm, 8), ncclInvalidArgument, "ncclCommSuspend, of the real NCCL");
    T_EQ(ncclTeamCftMultimem(comm).stride, 5);
    T_EQ(over(comm, CALLS), 3);
    N_REFUSED(ncclCommResume(comm), ncclInvalidUsage,
              "ncclCommResume: symm does not serve it, and ");
    N_OK(ncclCommFinalize(comm));
    N_ERR(ncclCommSuspend(comm, 7), ncclInvalidUsage);
    N_OK(ncclCommDestroy(comm));
    all_gone();
}

T_MAIN(T(never), T(streams), T(collectives), T(groups_of_both), T(reductions), T(windows),
       T(configs_of_calls), T(other_calls))
