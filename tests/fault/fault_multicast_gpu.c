/* fault_multicast_gpu.c - multicast windows on GPUs: the real memory driver on the fake CUDA
 * driver, ranks as processes with a GPU each. What is bound where, every call of CUDA refused on
 * every rank, and the locks before the entry points. */
#include "host/window/multicast.h"
#include "fault_kit.h"
#include "fgpu_kit.h"
#include "transport/cuda/cuda_multicast.h"

enum { RANKS = 3 };
#define BYTES (4 * GK_MB)

static void start(void) {
    fake_cuda_config config = gk_config(RANKS, 0);
    gk_env("cuda");
    gk_install(&config);
    setenv("SYMM_SCRATCH", "1M", 1);
    setenv("SYMM_WIN_STRIDE", "4G", 1);
    setenv("SYMM_SETUP_TIMEOUT", "20000", 1);
    setenv("SYMM_MULTICAST", "1", 1);
    unsetenv("NCCL_NVLS_ENABLE");
}

static symmComm_t open_rank(fk *f, int rank, int n) {
    symm_log_rank(rank);
    T_OK(symmSetDevice(rank));
    return fk_open(f, rank, n);
}

static int has_multicast(symmComm_t comm) {
    symmCommInfo_t info = {.size = sizeof info};
    T_OK(symmCommQuery(comm, &info));
    return info.multicast;
}

/* Who asked for multicast is told by symmExplain, too, what keeps a call from it. */
static void explains(symmComm_t comm, const char *buf, const char *why) {
    symmExplain_t plan = {.size = sizeof plan};
    const char *asked = getenv("SYMM_MULTICAST");
    T_OK(symmExplain(comm, symmCollAllReduce, buf, buf, GK_MB / 4, symmFloat32, symmSum, 0, &plan));
    if (asked && strcmp(asked, "0"))
        T_MSG(plan.reason, why);
    else
        T_CHECKF(!strstr(plan.reason, "SYMM_MULTICAST=0"), "%s", plan.reason);
    T_OK(symmExplain(comm, symmCollAlltoAll, buf, buf, 4, symmFloat32, symmSum, 0, &plan));
    T_CHECKF(!strstr(plan.reason, why), "%s", plan.reason); /* it has no kernel there */
}

/* A window of own memory has no multicast address, and the text says why. Collective. */
static void has_none(symmComm_t comm, const char *why) {
    symmWindow_t win;
    void *buf, *at = NULL;
    T_OK(symmMemAlloc(&buf, BYTES));
    T_OK(symmWindowRegister(comm, buf, BYTES, &win, 0));
    T_ERR(symmWindowMulticastPtr(win, 0, &at), symmNotSupported);
    T_MSG(symmGetLastError(NULL), why);
    T_CHECK(!at);
    explains(comm, buf, why);
    T_OK(symmWindowDeregister(comm, win));
    T_OK(symmMemFree(buf));
}

static void bound_rank(int rank, int n, void *arg) {
    start();
    symmComm_t comm = open_rank(arg, rank, n);
    symmWindow_t win;
    void *buf, *at;
    T_EQ(has_multicast(comm), 1);
    for (int round = 0; round < 3; round++) {
        T_OK(symmMemAlloc(&buf, BYTES));
        T_OK(symmWindowRegister(comm, buf, BYTES, &win, 0));
        T_OK(symmWindowMulticastPtr(win, GK_MB, &at));
        fake_cuda_all_bound(at, 2 * GK_MB, n);
        T_OK(symmMemMulticastPtr(comm, buf, BYTES, &at));
        fake_cuda_all_bound(at, BYTES, n);
        T_OK(symmSetDevice((rank + 1) % n)); /* unbinding is for the device that has bound */
        T_OK(symmWindowDeregister(comm, win));
        T_OK(symmMemFree(buf));
        fk_collect(comm);
        T_OK(symmSetDevice(rank));
    }
    const int binds = fake_cuda_calls("cuMulticastBindMem");
    T_EQ(fake_cuda_calls("cuMulticastCreate"), rank == 0);
    T_EQ(fake_cuda_calls("cuMulticastAddDevice"), 1);
    T_CHECK(binds >= 4); /* the control block, three windows */
    T_OK(symmCommDestroy(comm));
    T_EQ(fake_cuda_calls("cuMulticastUnbind"), binds);
    GK_LEFT(0);
}
static void windows_are_bound(void) {
    T_EXPECT_WARNINGS();
    for (int n = 2; n <= RANKS; n++) T_FORK(n, bound_rank, fk_new(0, 0));
}

/* What the kernel of a call is told, and people. */
static void told(symmComm_t comm, char *buf, symmColl_t coll, const char *kernel, uint32_t flags,
                 const char *says) {
    symmExplain_t plan = {.size = sizeof plan};
    int rank;
    T_OK(symmCommUserRank(comm, &rank));
    T_OK(symmExplain(comm, coll, buf, buf, GK_MB / 4, symmFloat32, symmSum, 0, &plan));
    T_MSG(plan.reason, says);
    T_CHECKF(!strcmp(plan.kernel, kernel), "%s, not %s", plan.kernel, kernel);
    if (coll == symmCollAllReduce)
        T_OK(symmAllReduce(buf, buf, GK_MB / 4, symmFloat32, symmSum, comm, NULL));
    else
        T_OK(symmBroadcast(buf, buf, GK_MB / 4, symmFloat32, 0, comm, NULL));
    const gk_launch l = gk_last(rank);
    T_CHECKF(!strncmp(l.kernel + 5, kernel, strlen(kernel)), "%s", l.kernel);
    T_EQ(l.args.flags & (SYMM_ARG_CAST_SRC | SYMM_ARG_CAST_DST), flags);
}
static void kernels_rank(int rank, int n, void *arg) {
    start();
    symmComm_t comm = open_rank(arg, rank, n);
    const uint32_t both = SYMM_ARG_CAST_SRC | SYMM_ARG_CAST_DST;
    symmWindow_t win;
    void *buf, *at;
    T_OK(symmMemAlloc(&buf, BYTES));
    told(comm, buf, symmCollAllReduce, "all_reduce_multicast", 0,
         "sendbuff: not over the multicast range: it is in no window");
    T_OK(symmWindowRegister(comm, buf, BYTES, &win, 0));
    told(comm, buf, symmCollAllReduce, "all_reduce_multicast", both, "over the multicast range if");
    T_OK(symmWindowMulticastPtr(win, 0, &at));
    const gk_launch l = gk_last(rank);
    T_EQ(l.args.gpu.multicast + l.args.dst_off, (uint64_t)(uintptr_t)at);
    told(comm, buf, symmCollBroadcast, "broadcast_multicast", rank ? SYMM_ARG_CAST_DST : both,
         "over the multicast range if");
    T_OK(symmWindowDeregister(comm, win));
    T_OK(symmMemFree(buf));
    T_OK(symmCommDestroy(comm));
    GK_LEFT(0);
}
/* Scratch is bound where there are objects at all, and what is not in a window goes there. */
static void packets_rank(int rank, int n, void *arg) {
    fk *f = arg;
    float *buf;
    symmExplain_t plan = {.size = sizeof plan};
    start();
    setenv("SYMM_ALGO", "all_reduce_multicast_packet", 1);
    if (rank == f->victim) fake_cuda_fail("cuMulticastBindMem", 0, SYMM_CUDA_ERROR_NOT_PERMITTED);
    symmComm_t comm = open_rank(f, rank, n);
    T_EQ(has_multicast(comm), 1);
    T_OK(symmMemAlloc((void **)&buf, 4096));
    T_OK(symmAllReduce(buf, buf, 3, symmFloat32, symmMax, comm, NULL));
    T_OK(symmExplain(comm, symmCollAllReduce, buf, buf, 3, symmFloat32, symmMax, 0, &plan));
    const gk_launch l = gk_last(rank);
    if (f->victim < 0) {
        T_CHECKF(strstr(l.kernel, "all_reduce_multicast_packet"), "%s", l.kernel);
        T_CHECKF(!strstr(plan.reason, "not over"), "%s", plan.reason);
        fake_cuda_all_bound((char *)(uintptr_t)(l.args.gpu.multicast + l.args.scratch.gpu.ll_off),
                            2 * (unsigned)n * l.args.scratch.gpu.ll_slot, n);
    } else {
        T_CHECKF(strstr(l.kernel, "all_reduce_ll"), "%s", l.kernel);
        T_MSG(plan.reason, "scratch could not be bound");
    }
    kit_barrier(&f->k, n);
    T_OK(symmMemFree(buf));
    T_OK(symmCommDestroy(comm));
    GK_LEFT(0);
}
static void packets_go_where_scratch_is_bound(void) {
    T_EXPECT_WARNINGS();
    for (int victim = -1; victim < RANKS; victim++) T_FORK(RANKS, packets_rank, fk_new(victim, 0));
}
static void kernels_use_the_range(void) {
    T_EXPECT_WARNINGS();
    T_FORK(RANKS, kernels_rank, fk_new(0, 0));
}

/* ---- every call refused ---------------------------------------------------------------------- */

static const char *const calls[] = {"cuMulticastGetGranularity", "cuMulticastCreate",
                                    "cuMulticastAddDevice", "cuMulticastBindMem"};

/* Creation and registration go on without multicast, and say on which rank what was refused. */
static void refused_rank(int rank, int n, void *arg) {
    fk *f = arg;
    const char *call = calls[f->how];
    char says[32];
    symmWindow_t win;
    void *buf, *at = NULL;
    start();
    if (rank == f->victim) fake_cuda_fail(call, 0, SYMM_CUDA_ERROR_NOT_PERMITTED);
    symmComm_t comm = open_rank(f, rank, n);
    T_OK(symmMemAlloc(&buf, BYTES));
    T_OK(symmWindowRegister(comm, buf, BYTES, &win, 0));
    if (rank == f->victim) f->hits[0] = fake_cuda_calls(call) > 0;
    kit_barrier(&f->k, n);
    if (f->hits[0]) {
        snprintf(says, sizeof says, "rank %d: ", f->victim);
        T_ERR(symmWindowMulticastPtr(win, 0, &at), symmNotSupported);
        T_MSG(symmGetLastError(NULL), says);
        T_MSG(symmGetLastError(NULL), f->how ? "not permitted" : "CUDA_ERROR_NOT_PERMITTED (800)");
        explains(comm, buf, says);
    }
    kit_barrier(&f->k, n);
    if (rank == f->victim) fake_cuda_fail(call, 1, 0);
    T_OK(symmWindowDeregister(comm, win));
    T_OK(symmMemFree(buf));
    T_OK(symmCommDestroy(comm));
    GK_LEFT(0);
}
static void a_refused_call_keeps_unicast(void) {
    T_EXPECT_WARNINGS();
    for (int call = 0; call < 4; call++) {
        int hits = 0;
        for (int victim = 0; victim < RANKS; victim++) {
            fk *f = fk_new(victim, call);
            T_FORK(RANKS, refused_rank, f);
            hits += f->hits[0];
        }
        T_EQ(hits, call == 1 ? 1 : RANKS); /* one rank makes the object */
    }
}

/* A later look at the driver may fail where an earlier one did not. */
static void third_look(int rank, int n, void *arg) {
    start();
    if (rank == 1) fake_cuda_fail("cuMulticastGetGranularity", 3, SYMM_CUDA_ERROR_NOT_PERMITTED);
    symmComm_t comm = open_rank(arg, rank, n);
    T_EQ(has_multicast(comm), 0);
    T_OK(symmCommDestroy(comm));
    GK_LEFT(0);
}
static void the_driver_may_change_its_mind(void) {
    T_EXPECT_WARNINGS();
    T_FORK(RANKS, third_look, fk_new(0, 0));
}

/* 802: the machine's multicast software is not up yet. All try again. */
static void late_rank(int rank, int n, void *arg) {
    fk *f = arg;
    symmWindow_t win;
    void *buf, *at;
    start();
    symmComm_t comm = open_rank(f, rank, n);
    T_OK(symmMemAlloc(&buf, BYTES));
    if (rank == f->victim)
        fake_cuda_fail("cuMulticastBindMem", 1, SYMM_CUDA_ERROR_SYSTEM_NOT_READY);
    T_OK(symmWindowRegister(comm, buf, BYTES, &win, 0));
    T_EQ(fake_cuda_fail_waits(), 0);
    T_OK(symmWindowMulticastPtr(win, 0, &at));
    fake_cuda_all_bound(at, BYTES, n);
    kit_barrier(&f->k, n);
    T_OK(symmWindowDeregister(comm, win));
    T_OK(symmMemFree(buf));
    T_OK(symmCommDestroy(comm));
    GK_LEFT(0);
}
static void not_ready_is_tried_again_by_all(void) {
    T_EXPECT_WARNINGS();
    for (int victim = 0; victim < RANKS; victim++) T_FORK(RANKS, late_rank, fk_new(victim, 0));
}

/* Pieces that are no multiple of what the device binds. */
static void coarse_rank(int rank, int n, void *arg) {
    fake_cuda_config config = gk_config(RANKS, 0);
    start();
    config.cast = 8 * GK_MB;
    gk_install(&config);
    symmComm_t comm = open_rank(arg, rank, n);
    T_EQ(has_multicast(comm), 1);
    has_none(comm, "rank 0: a piece of 4194304 bytes at 0 is no multiple of 8388608");
    T_OK(symmCommDestroy(comm));
    GK_LEFT(0);
}
static void memory_that_does_not_fit_keeps_unicast(void) {
    T_EXPECT_WARNINGS();
    T_FORK(RANKS, coarse_rank, fk_new(0, 0));
}

/* An object has a device once. */
static void sharing_rank(int rank, int n, void *arg) {
    start();
    symm_log_rank(rank);
    T_OK(symmSetDevice(rank ? 1 : 0));
    symmComm_t comm = fk_open(arg, rank, n);
    T_EQ(has_multicast(comm), 0);
    has_none(comm, "rank 0: ranks share a GPU");
    T_EQ(fake_cuda_calls("cuMulticastGetGranularity"), 0);
    T_OK(symmCommDestroy(comm));
    GK_LEFT(0);
}
static void ranks_that_share_a_gpu_have_none(void) {
    T_EXPECT_WARNINGS();
    T_FORK(RANKS, sharing_rank, fk_new(0, 0));
}

/* ---- the locks ------------------------------------------------------------------------------- */

static int looked;
static void *note(const char *symbol) {
    looked++;
    return strcmp(symbol, "cuMulticastUnbind") ? (void *)(uintptr_t)1 : NULL;
}

/* how: 0: SYMM_MULTICAST is not set; 1: it is 0; 2: NCCL_NVLS_ENABLE=0; 3: the device has none;
 * 4: the driver lacks one. */
static void locked_rank(int rank, int n, void *arg) {
    static const char *const why[] = {
        "SYMM_MULTICAST=0", "SYMM_MULTICAST=0", "NCCL_NVLS_ENABLE=0 forbids it",
        "the device has no multicast", "the driver lacks cuMulticastUnbind"};
    fk *f = arg;
    fake_cuda_config config = gk_config(RANKS, 0);
    start();
    config.multicast = f->how != 3;
    gk_install(&config);
    if (f->how == 0) unsetenv("SYMM_MULTICAST");
    if (f->how == 1) setenv("SYMM_MULTICAST", "0", 1);
    if (f->how == 2) setenv("NCCL_NVLS_ENABLE", "0", 1);
    symm_cuda_multicast_inject(note);
    symmComm_t comm = open_rank(f, rank, n);
    T_EQ(has_multicast(comm), 0);
    has_none(comm, why[f->how]);
    T_EQ(looked, f->how == 4 ? 5 : 0);
    T_OK(symmCommDestroy(comm));
    for (int i = 0; fake_cuda_call_name(i); i++)
        if (strstr(fake_cuda_call_name(i), "Multicast"))
            T_EQ(fake_cuda_calls(fake_cuda_call_name(i)), 0);
    GK_LEFT(0);
}
static void nothing_is_looked_up_unless_asked_for(void) {
    T_EXPECT_WARNINGS();
    for (int how = 0; how <= 4; how++) T_FORK(2, locked_rank, fk_new(0, how));
}

/* What an earlier communicator has looked up is of no use to one that may not. */
static void vetoed_later(int rank, int n, void *arg) {
    start();
    symmComm_t first = open_rank(arg, rank, n), second;
    T_EQ(has_multicast(first), 1);
    setenv("NCCL_NVLS_ENABLE", "0", 1);
    T_OK(symmCommSplit(first, 0, n - rank, &second, NULL)); /* another order: a space of its own */
    has_none(second, "NCCL_NVLS_ENABLE=0 forbids it");
    T_EQ(fake_cuda_calls("cuMulticastCreate"), rank == 0);
    T_EQ(fake_cuda_calls("cuMulticastAddDevice"), 1);
    T_OK(symmCommDestroy(second));
    T_OK(symmCommDestroy(first));
    GK_LEFT(0);
}
static void a_veto_counts_for_each_communicator(void) {
    T_EXPECT_WARNINGS();
    T_FORK(2, vetoed_later, fk_new(0, 0));
}

T_MAIN(T(windows_are_bound), T(kernels_use_the_range), T(packets_go_where_scratch_is_bound),
       T(a_refused_call_keeps_unicast), T(the_driver_may_change_its_mind),
       T(not_ready_is_tried_again_by_all), T(memory_that_does_not_fit_keeps_unicast),
       T(ranks_that_share_a_gpu_have_none), T(nothing_is_looked_up_unless_asked_for),
       T(a_veto_counts_for_each_communicator))
