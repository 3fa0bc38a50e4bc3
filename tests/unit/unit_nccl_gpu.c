/* unit_nccl_gpu.c - the drop-in on GPUs, on the fake CUDA driver: each call works on its
 * communicator's device and leaves the caller's as it was; captures; changes of stream. */
#include "fgpu_kit.h"
#include "nccl_kit.h"
#include "../../nccl-tests-plugin/plugin.h"

enum { RANKS = 2, COUNT = 1000 };

static ncclComm_t comms[RANKS];
static ncclWindow_t win[RANKS];
static char *buf[RANKS];
static cu_stream streams[RANKS];

static void start(void) {
    gk_start(RANKS, 0);
    N_OK(ncclCommInitAll(comms, RANKS, NULL));
    N_OK(ncclGroupStart());
    for (int r = 0; r < RANKS; r++) {
        streams[r] = gk_stream(r);
        buf[r] = gk_memory(r, 4 * GK_MB);
        N_OK(ncclCommWindowRegister(comms[r], buf[r], 4 * GK_MB, &win[r], 1));
    }
    N_OK(ncclGroupEnd());
}

static void finish(void) {
    for (int r = 0; r < RANKS; r++) {
        N_OK(ncclCommDestroy(comms[r]));
        N_OK(ncclMemFree(buf[r]));
    }
    GK_LEFT(0);
}

/* ---- calls that were looked at -------------------------------------------------------------- */

#define ROW_native(name) #name,
#define ROW_native_comm  ROW_native
#define ROW_native_win   ROW_native
#define ROW_later_comm(name)
#define ROW_refused_comm(name)
#define ROW_refused_win(name)
#define ROW_refused(name)
#define ROW_forwarded(name)
#define ROW_refused_both(name)
#define SYMBOL(class, ret, name, params, args, why) ROW_##class(name)
static const char *const natives[] = {
#include "../../nccl-tests-plugin/symbols.def"
};
#undef SYMBOL
enum { NATIVES = sizeof natives / sizeof *natives };
static int met[NATIVES];

/* text: that of a call. It leaves the caller's device as it was. */
static void left(const char *text, int was) {
    const size_t n = strcspn(text, "(");
    T_CHECKF(gk_device() == was, "%s leaves device %d, was %d", text, gk_device(), was);
    for (int i = 0; i < NATIVES; i++)
        if (strlen(natives[i]) == n && !strncmp(natives[i], text, n)) met[i] = 1;
}
#define KEEPS(call)                   \
    do {                              \
        const int was_ = gk_device(); \
        call;                         \
        left(#call, was_);            \
    } while (0)
#define SAME(call)                    \
    do {                              \
        const int was_ = gk_device(); \
        N_OK(call);                   \
        left(#call, was_);            \
    } while (0)

/* ---- devices -------------------------------------------------------------------------------- */

typedef ncclResult_t (*call_fn)(int rank);

#define STREAM(r) gk_user(streams[r])
#define CALL(name, ...)                                    \
    static ncclResult_t call_##name(int r) {               \
        void *const a = buf[r], *const b = buf[r] + GK_MB; \
        (void)a, (void)b;                                  \
        return nccl##name(__VA_ARGS__);                    \
    }
CALL(AllReduce, a, b, COUNT, ncclInt32, ncclSum, comms[r], STREAM(r))
CALL(AllGather, a, b, COUNT, ncclInt32, comms[r], STREAM(r))
CALL(ReduceScatter, a, b, COUNT, ncclInt32, ncclMax, comms[r], STREAM(r))
CALL(Broadcast, a, b, COUNT, ncclInt32, 0, comms[r], STREAM(r))
CALL(Bcast, a, COUNT, ncclInt32, 1, comms[r], STREAM(r))
CALL(Reduce, a, b, COUNT, ncclInt32, ncclSum, 1, comms[r], STREAM(r))
CALL(AlltoAll, a, b, COUNT, ncclInt32, comms[r], STREAM(r))
CALL(Gather, a, b, COUNT, ncclInt32, 0, comms[r], STREAM(r))
CALL(Scatter, a, b, COUNT, ncclInt32, 0, comms[r], STREAM(r))
CALL(PutSignal, a, COUNT, ncclInt32, !r, win[r], 8, 0, 0, 0, comms[r], STREAM(r))
CALL(Signal, !r, 0, 0, 0, comms[r], STREAM(r))
static ncclWaitSignalDesc_t one_of_rank_0[] = {{1, 0, 0, 0}};
CALL(WaitSignal, 1, one_of_rank_0, comms[r], STREAM(r))
CALL(Send, a, COUNT, ncclInt32, !r, comms[r], STREAM(r))
CALL(Recv, b, COUNT, ncclInt32, !r, comms[r], STREAM(r))
CALL(AllReduceConfig, a, b, COUNT, ncclInt32, ncclSum, comms[r], STREAM(r), NULL)
CALL(AllGatherConfig, a, b, COUNT, ncclInt32, comms[r], STREAM(r), NULL)
CALL(ReduceScatterConfig, a, b, COUNT, ncclInt32, ncclMax, comms[r], STREAM(r), NULL)
CALL(BroadcastConfig, a, b, COUNT, ncclInt32, 0, comms[r], STREAM(r), NULL)
CALL(ReduceConfig, a, b, COUNT, ncclInt32, ncclSum, 1, comms[r], STREAM(r), NULL)
CALL(AlltoAllConfig, a, b, COUNT, ncclInt32, comms[r], STREAM(r), NULL)
CALL(GatherConfig, a, b, COUNT, ncclInt32, 0, comms[r], STREAM(r), NULL)
CALL(ScatterConfig, a, b, COUNT, ncclInt32, 0, comms[r], STREAM(r), NULL)
static const struct {
    const char *name;
    call_fn fn;
} launches[] = {
    {"ncclAllReduce", call_AllReduce},
    {"ncclAllGather", call_AllGather},
    {"ncclReduceScatter", call_ReduceScatter},
    {"ncclBroadcast", call_Broadcast},
    {"ncclBcast", call_Bcast},
    {"ncclReduce", call_Reduce},
    {"ncclAlltoAll", call_AlltoAll},
    {"ncclGather", call_Gather},
    {"ncclScatter", call_Scatter},
    {"ncclPutSignal", call_PutSignal},
    {"ncclSignal", call_Signal},
    {"ncclWaitSignal", call_WaitSignal},
    {"ncclSend", call_Send},
    {"ncclRecv", call_Recv},
    {"ncclAllReduceConfig", call_AllReduceConfig},
    {"ncclAllGatherConfig", call_AllGatherConfig},
    {"ncclReduceScatterConfig", call_ReduceScatterConfig},
    {"ncclBroadcastConfig", call_BroadcastConfig},
    {"ncclReduceConfig", call_ReduceConfig},
    {"ncclAlltoAllConfig", call_AlltoAllConfig},
    {"ncclGatherConfig", call_GatherConfig},
    {"ncclScatterConfig", call_ScatterConfig},
};
enum { LAUNCHES = sizeof launches / sizeof *launches };

/* Each call of each rank, with that device current, another one, or none. */
static void each_launch(int current) {
    for (int i = 0; i < LAUNCHES; i++)
        for (int r = 0; r < RANKS; r++) {
            const int had = gk_last(r).count;
            N_OK(launches[i].fn(r));
            T_CHECKF(gk_last(r).count == had + 1, "%s: rank %d did not run", launches[i].name, r);
            T_CHECKF(gk_last(r).config.stream == streams[r], "%s: another stream",
                     launches[i].name);
            left(launches[i].name, current);
        }
}

static void no_device(void) {
    T_EQ(symm_cu.cuCtxSetCurrent(NULL), 0);
}

/* nccl-tests make the calls of all ranks with the device that was current last. */
static void a_launch_leaves_the_device_as_it_was(void) {
    start();
    for (int device = 0; device < RANKS; device++) {
        T_OK(symm_cuda_set(device));
        each_launch(device);
    }
    no_device();
    each_launch(-1);
    finish();
}

static void questions(void) {
    ncclCommProperties_t props = {.size = sizeof props, .magic = NCCL_API_MAGIC, .version = 23007};
    ncclResult_t error;
    uint64_t held;
    int n;
    SAME(ncclGetVersion(&n));
    KEEPS(ncclGetErrorString(ncclSystemError));
    KEEPS(ncclGetLastError(NULL));
    KEEPS(ncclResetDebugInit());
    KEEPS(ncclResetDebugInitInternal());
    SAME(ncclCommCount(comms[0], &n));
    SAME(ncclCommUserRank(comms[0], &n));
    SAME(ncclCommCuDevice(comms[0], &n));
    T_EQ(n, 0);
    SAME(ncclCommGetAsyncError(comms[0], &error));
    SAME(ncclCommMemStats(comms[0], ncclStatGpuMemTotal, &held));
    SAME(ncclCommQueryProperties(comms[0], &props));
    KEEPS(ncclTeamWorld(comms[0]));
    KEEPS(ncclTeamLsa(comms[0]));
    KEEPS(ncclTeamRail(comms[0]));
    KEEPS(ncclTeamRankToWorld(comms[0], ncclTeamWorld(comms[0]), 1));
    KEEPS(ncclTeamRankToLsa(comms[0], ncclTeamWorld(comms[0]), 1));
}

/* Memory is the current device's, a window the communicator's. */
static void registrations(void) {
    void *p, *handle;
    ncclWindow_t w[RANKS];
    SAME(ncclMemAlloc(&p, GK_MB));
    SAME(ncclMemFree(p));
    SAME(ncclCommRegister(comms[0], buf[0], GK_MB, &handle));
    SAME(ncclCommDeregister(comms[0], handle));
    SAME(ncclGroupStart());
    for (int r = 0; r < RANKS; r++)
        SAME(ncclCommWindowRegister(comms[r], buf[r] + GK_MB, GK_MB, &w[r], 1));
    SAME(ncclGroupEnd());
    SAME(ncclWinGetUserPtr(comms[0], w[0], &p));
    SAME(ncclGetLsaDevicePointer(w[0], 0, 1, &p));
    SAME(ncclGetPeerDevicePointer(w[0], 0, 1, &p));
    for (int r = 0; r < RANKS; r++) SAME(ncclCommWindowDeregister(comms[r], w[r]));
}

static void reductions(void) {
    ncclRedOp_t op;
    float scalar = 2;
    SAME(ncclRedOpCreatePreMulSum(&op, &scalar, ncclFloat32, ncclScalarHostImmediate, comms[0]));
    SAME(ncclRedOpDestroy(op, comms[0]));
    SAME(ncclGroupStart());
    SAME(ncclAllReduce(buf[0], buf[0], 1, ncclInt32, ncclSum, comms[0], STREAM(0)));
    SAME(ncclGroupSimulateEnd(NULL));
}

static void end_of(ncclComm_t *of, int n) {
    for (int r = 0; r < n; r++) SAME(ncclCommDestroy(of[r]));
}

/* The new communicators are of their parents' devices; a new rank's is the current one. */
static void children(void) {
    ncclComm_t child[RANKS + 1] = {NULL};
    ncclUniqueId id;
    int n, gone = 1;
    SAME(ncclGroupStart());
    for (int r = 0; r < RANKS; r++) SAME(ncclCommSplit(comms[r], 0, r, &child[r], NULL));
    SAME(ncclGroupEnd());
    N_OK(ncclCommCuDevice(child[0], &n));
    T_EQ(n, 0);
    end_of(child, RANKS);
    SAME(ncclCommShrink(comms[0], &gone, 1, &child[0], NULL, 0));
    N_OK(ncclCommCuDevice(child[0], &n));
    T_EQ(n, 0);
    end_of(child, 1);
    SAME(ncclCommGetUniqueId(comms[0], &id));
    SAME(ncclGroupStart());
    for (int r = 0; r <= RANKS; r++)
        SAME(ncclCommGrow(r < RANKS ? comms[r] : NULL, RANKS + 1, r ? &id : NULL,
                          r < RANKS ? -1 : r, &child[r], NULL));
    SAME(ncclGroupEnd());
    N_OK(ncclCommCuDevice(child[RANKS], &n));
    T_EQ(n, gk_device());
    end_of(child, RANKS + 1);
}

static void creations(void) {
    ncclComm_t own = NULL, all[RANKS];
    ncclUniqueId id;
    ncclConfig_t config = n_config(NCCL_VERSION_CODE, sizeof config);
    SAME(ncclGetUniqueId(&id));
    SAME(ncclCommInitRank(&own, 1, id, 0));
    SAME(ncclCommRevoke(own, 0));
    SAME(ncclCommAbort(own));
    SAME(ncclGetUniqueId(&id));
    SAME(ncclCommInitRankConfig(&own, 1, id, 0, &config));
    SAME(ncclCommFinalize(own));
    SAME(ncclCommDestroy(own));
    SAME(ncclGetUniqueId(&id));
    SAME(ncclCommInitRankScalable(&own, 1, 0, 1, &id, NULL));
    SAME(ncclCommDestroy(own));
    SAME(ncclCommInitAll(all, RANKS, NULL));
    end_of(all, RANKS);
}

/* Each row of symbols.def that is native. */
static void every_call_leaves_the_device_as_it_was(void) {
    T_EXPECT_WARNINGS();
    start();
    T_OK(symm_cuda_set(1));
    each_launch(1);
    questions();
    registrations();
    reductions();
    children();
    creations();
    for (int i = 0; i < NATIVES; i++)
        T_CHECKF(met[i], "%s: no test looks at the device behind it", natives[i]);
    finish();
}

/* Calls of a group run at its end, where another device is current than at the calls. */
static void a_group_runs_each_call_on_its_device(void) {
    start();
    N_OK(ncclGroupStart());
    for (int r = 0; r < RANKS; r++) {
        T_OK(symm_cuda_set(1 - r));
        for (int i = 0; i < 3; i++) N_OK(launches[i].fn(r));
    }
    T_EQ(gk_last(0).count, 0);
    T_OK(symm_cuda_set(1));
    N_OK(ncclGroupEnd());
    T_EQ(gk_device(), 1);
    for (int r = 0; r < RANKS; r++) {
        T_EQ(gk_last(r).count, 3);
        T_CHECK(gk_last(r).config.stream == streams[r]);
    }
    finish();
}

/* Who makes a communicator has its device current; in a group each call keeps the one it had. */
static void a_communicator_is_of_the_device_that_was_current(void) {
    ncclUniqueId id;
    int device;
    gk_start(RANKS, 0);
    N_OK(ncclGetUniqueId(&id));
    N_OK(ncclGroupStart());
    for (int r = 0; r < RANKS; r++) {
        T_OK(symm_cuda_set(RANKS - 1 - r));
        N_OK(ncclCommInitRank(&comms[r], RANKS, id, r));
    }
    N_OK(ncclGroupEnd());
    for (int r = 0; r < RANKS; r++) {
        N_OK(ncclCommCuDevice(comms[r], &device));
        T_EQ(device, RANKS - 1 - r);
        N_OK(ncclCommDestroy(comms[r]));
    }
    GK_LEFT(0);
}

/* Kernels read a window's handle: the record is pinned while a communicator with windows lives, the
 * device stays as it was, and where it cannot be pinned the window is one all the same. */
static void kernels_read_the_handle_of_a_window(void) {
    cu_deviceptr at = 0;
    ncclWindow_t none;
    start();
    for (int r = 0; r < RANKS; r++) {
        T_EQ(symm_cu.cuMemHostGetDevicePointer(&at, win[r], 0), 0);
        T_EQ(at, (uintptr_t)win[r]);
    }
    N_OK(ncclCommWindowDeregister(comms[0], win[0])); /* kernels of others go on */
    T_EQ(symm_cu.cuMemHostGetDevicePointer(&at, win[1], 0), 0);
    none = win[1];
    finish();
    T_CHECK(symm_cu.cuMemHostGetDevicePointer(&at, none, 0) != 0);
    T_EXPECT_WARNINGS();
    gk_start(RANKS, 0);
    N_OK(ncclCommInitAll(comms, 1, NULL));
    buf[0] = gk_memory(0, 4 * GK_MB);
    fake_cuda_fail("cuMemHostRegister", 1, SYMM_CUDA_ERROR_UNKNOWN);
    N_OK(ncclCommWindowRegister(comms[0], buf[0], 4 * GK_MB, &win[0], 1));
    T_CHECK(symm_cu.cuMemHostGetDevicePointer(&at, win[0], 0) != 0);
    N_OK(ncclCommDestroy(comms[0]));
    N_OK(ncclMemFree(buf[0]));
    GK_LEFT(0);
}

/* ---- what a communicator takes --------------------------------------------------------------- */

static uint64_t unused(int device) {
    size_t left, total;
    T_OK(symm_cuda_set(device));
    T_EQ(symm_cu.cuMemGetInfo(&left, &total), 0);
    return left;
}

/* By what -M 1 of nccl-tests asks, with the scratch that is the default. */
static void takes_at_most_64_mib_of_a_gpu(int n) {
    ncclComm_t of[8];
    uint64_t before[8], says;
    fake_cuda_config config = gk_config(8, 0);
    gk_env("cuda");
    unsetenv("SYMM_SCRATCH");
    gk_install(&config);
    for (int r = 0; r < n; r++) before[r] = unused(r);
    N_OK(ncclCommInitAll(of, n, NULL));
    for (int r = 0; r < n; r++) {
        const uint64_t took = before[r] - unused(r);
        N_OK(ncclCommMemStats(of[r], ncclStatGpuMemPersist, &says));
        T_CHECKF(took <= 64 * GK_MB, "rank %d of %d takes %llu bytes", r, n,
                 (unsigned long long)took);
        T_CHECKF(says <= took && took - says < 2 * GK_MB, "it says %llu of %llu",
                 (unsigned long long)says, (unsigned long long)took);
    }
    for (int r = 0; r < n; r++) N_OK(ncclCommDestroy(of[r]));
    for (int r = 0; r < n; r++) T_EQ(unused(r), before[r]);
    GK_LEFT(0);
}

static void a_communicator_takes_little_of_a_gpu(void) {
    takes_at_most_64_mib_of_a_gpu(1);
    takes_at_most_64_mib_of_a_gpu(2);
    takes_at_most_64_mib_of_a_gpu(8);
}

/* ---- memory of PyTorch's --------------------------------------------------------------------- */

enum { PIECES = 6, HALF = 3 };
#define PIECE (2 * GK_MB)

typedef struct {
    cu_deviceptr at;
    cu_mem_handle raw[PIECES];
} segment;

/* An expandable segment: pieces in a row, access for its own device alone. */
static void expand(segment *s, int device, int from, int to) {
    const cu_mem_access access = {{SYMM_CUDA_LOCATION_DEVICE, device}, SYMM_CUDA_ACCESS_READWRITE};
    cu_mem_prop prop = {.type = SYMM_CUDA_MEM_PINNED, .handle_types = SYMM_CUDA_HANDLE_FD};
    prop.location.type = SYMM_CUDA_LOCATION_DEVICE;
    prop.location.id = device;
    T_OK(symm_cuda_set(device));
    if (!s->at) T_EQ(symm_cu.cuMemAddressReserve(&s->at, PIECES * PIECE, 0, 0, 0), 0);
    for (int i = from; i < to; i++) {
        const cu_deviceptr at = s->at + (unsigned)i * PIECE;
        T_EQ(symm_cu.cuMemCreate(&s->raw[i], PIECE, &prop, 0), 0);
        T_EQ(symm_cu.cuMemMap(at, PIECE, 0, s->raw[i], 0), 0);
        T_EQ(symm_cu.cuMemSetAccess(at, PIECE, &access, 1), 0);
    }
}
static void unmap(segment *s) {
    for (int i = 0; i < PIECES; i++) {
        T_EQ(symm_cu.cuMemUnmap(s->at + (unsigned)i * PIECE, PIECE), 0);
        T_EQ(symm_cu.cuMemRelease(s->raw[i]), 0);
    }
    T_EQ(symm_cu.cuMemAddressFree(s->at, PIECES * PIECE), 0);
}

static void register_pieces(const segment *s, int pieces, ncclWindow_t *w) {
    N_OK(ncclGroupStart());
    for (int r = 0; r < RANKS; r++)
        N_OK(ncclCommWindowRegister(comms[r], (void *)(uintptr_t)s[r].at, (unsigned)pieces * PIECE,
                                    &w[r], 1));
    N_OK(ncclGroupEnd());
}

/* 1: each rank's call on so many pieces goes straight to them. */
static int straight(const segment *s, int pieces) {
    int staged = 0;
    for (int r = 0; r < RANKS; r++) {
        void *p = (void *)(uintptr_t)s[r].at;
        N_OK(ncclAllReduce(p, p, (unsigned)pieces * PIECE, ncclInt8, ncclMax, comms[r], STREAM(r)));
        staged += gk_last(r).args.src_off == SYMM_STAGED;
    }
    T_CHECK(staged == 0 || staged == RANKS);
    return !staged;
}

/* PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True. What has grown is registered anew. */
static void expandable_segments(void) {
    segment s[RANKS] = {{0}};
    ncclWindow_t w[RANKS], more[RANKS];
    start();
    for (int r = 0; r < RANKS; r++) expand(&s[r], r, 0, HALF);
    T_CHECK(!straight(s, HALF)); /* in no window */
    register_pieces(s, HALF, w);
    T_CHECK(straight(s, HALF));
    for (int r = 0; r < RANKS; r++) expand(&s[r], r, HALF, PIECES);
    T_CHECK(!straight(s, PIECES)); /* it ends behind its window */
    for (int r = 0; r < RANKS; r++) N_OK(ncclCommWindowDeregister(comms[r], w[r]));
    register_pieces(s, PIECES, more);
    T_CHECK(straight(s, PIECES));
    for (int r = 0; r < RANKS; r++) N_OK(ncclCommWindowDeregister(comms[r], more[r]));
    for (int r = 0; r < RANKS; r++) unmap(&s[r]);
    finish();
}

/* ---- captures, streams ---------------------------------------------------------------------- */

static cu_graph_exec captured(int r, cu_stream stream, int times) {
    cu_graph_exec exec;
    cu_graph graph = NULL;
    T_OK(symm_cuda_set(r));
    T_EQ(symm_cu.cuStreamBeginCapture(stream, SYMM_CUDA_CAPTURE_MODE_GLOBAL), 0);
    for (int i = 0; i < times; i++)
        N_OK(ncclAllReduce(buf[r], buf[r], COUNT, ncclInt32, ncclSum, comms[r], gk_user(stream)));
    T_EQ(symm_cu.cuStreamEndCapture(stream, &graph), 0);
    T_EQ(symm_cu.cuGraphInstantiate(&exec, graph, 0), 0);
    T_EQ(symm_cu.cuGraphDestroy(graph), 0);
    return exec;
}

/* -G of nccl-tests: all calls of a stream in a graph, in the strictest mode; nothing runs before
 * it is launched, and everything each time it is. */
static void captures_and_replays(void) {
    cu_graph_exec exec[RANKS];
    start();
    for (int r = 0; r < RANKS; r++) exec[r] = captured(r, streams[r], 20);
    for (int r = 0; r < RANKS; r++) T_EQ(gk_last(r).count, 0);
    for (int k = 1; k <= 3; k++)
        for (int r = 0; r < RANKS; r++) {
            T_EQ(symm_cu.cuGraphLaunch(exec[r], streams[r]), 0);
            T_EQ(gk_last(r).count, 20 * k);
        }
    for (int r = 0; r < RANKS; r++) T_EQ(symm_cu.cuGraphExecDestroy(exec[r]), 0);
    finish();
}

/* A group within a capture: nothing but what is recorded, in the order of the calls. */
static void a_group_is_captured(void) {
    cu_graph_exec exec;
    cu_graph graph = NULL;
    start();
    T_OK(symm_cuda_set(0));
    T_EQ(symm_cu.cuStreamBeginCapture(streams[0], SYMM_CUDA_CAPTURE_MODE_THREAD_LOCAL), 0);
    N_OK(ncclGroupStart());
    for (int i = 0; i < 4; i++) N_OK(launches[i].fn(0));
    N_OK(ncclGroupEnd());
    T_EQ(symm_cu.cuStreamEndCapture(streams[0], &graph), 0);
    T_EQ(gk_last(0).count, 0);
    T_EQ(symm_cu.cuGraphInstantiate(&exec, graph, 0), 0);
    T_EQ(symm_cu.cuGraphDestroy(graph), 0);
    T_EQ(symm_cu.cuGraphLaunch(exec, streams[0]), 0);
    T_EQ(gk_last(0).count, 4);
    T_EQ(symm_cu.cuGraphExecDestroy(exec), 0);
    finish();
}

/* vLLM registers what its pool has grown by while it captures. */
static void a_registration_inside_a_capture(void) {
    cu_graph graph = NULL;
    char *more[RANKS];
    ncclWindow_t w[RANKS];
    start();
    T_OK(symm_cuda_set(0));
    T_EQ(symm_cu.cuStreamBeginCapture(streams[0], SYMM_CUDA_CAPTURE_MODE_GLOBAL), 0);
    for (int r = 0; r < RANKS; r++) more[r] = gk_memory(r, 2 * GK_MB);
    N_OK(ncclGroupStart());
    for (int r = 0; r < RANKS; r++)
        N_OK(ncclCommWindowRegister(comms[r], more[r], 2 * GK_MB, &w[r], 1));
    N_OK(ncclGroupEnd());
    N_OK(ncclAllReduce(more[0], more[0], 9, ncclInt8, ncclSum, comms[0], STREAM(0)));
    T_EQ(symm_cu.cuStreamEndCapture(streams[0], &graph), 0); /* it was not spoilt */
    T_CHECK(graph != NULL);
    T_EQ(symm_cu.cuGraphDestroy(graph), 0);
    symm_gpu_reap();
    for (int r = 0; r < RANKS; r++) {
        N_OK(ncclCommWindowDeregister(comms[r], w[r]));
        N_OK(ncclMemFree(more[r]));
    }
    finish();
}

/* Another stream for each call, the last one gone: the fake driver refuses its handle. */
static void streams_come_and_go(void) {
    start();
    T_OK(symm_cuda_set(0));
    cu_stream next = gk_stream(0);
    for (int i = 0; i < 50; i++) {
        cu_stream now = next;
        N_OK(ncclAllReduce(buf[0], buf[0], COUNT, ncclInt32, ncclSum, comms[0], gk_user(now)));
        T_CHECK(gk_last(0).config.stream == now);
        T_EQ(symm_cu.cuStreamDestroy(now), 0);
        next = gk_stream(0);
    }
    N_OK(ncclAllReduce(buf[0], buf[0], 1, ncclInt32, ncclSum, comms[0], NULL)); /* -y 1 */
    T_EQ(gk_last(0).count, 51);
    T_EQ(symm_cu.cuStreamDestroy(next), 0);
    finish();
}

/* As much as the library's own call asks of the driver, and nothing more. */
static void a_call_asks_the_driver_what_symms_does(void) {
    start();
    T_OK(symm_cuda_set(0));
    const symmComm_t mine = ((nccl_comm *)(void *)comms[0])->comm;
    for (int i = 0; i < 3; i++) {
        const gk_calls before = gk_count();
        T_OK(symmAllReduce(buf[0], buf[0], 9, symmInt8, symmSum, mine, STREAM(0)));
        const gk_calls between = gk_count();
        N_OK(ncclAllReduce(buf[0], buf[0], 9, ncclInt8, ncclSum, comms[0], STREAM(0)));
        const gk_calls after = gk_count();
        for (int k = 0; fake_cuda_call_name(k); k++)
            T_CHECKF(after.n[k] - between.n[k] == between.n[k] - before.n[k] || !i, "%s: %d more",
                     fake_cuda_call_name(k),
                     after.n[k] - between.n[k] - (between.n[k] - before.n[k]));
    }
    finish();
}

T_MAIN(T(a_launch_leaves_the_device_as_it_was), T(every_call_leaves_the_device_as_it_was),
       T(a_group_runs_each_call_on_its_device), T(a_communicator_is_of_the_device_that_was_current),
       T(kernels_read_the_handle_of_a_window), T(a_communicator_takes_little_of_a_gpu),
       T(expandable_segments), T(captures_and_replays), T(a_group_is_captured),
       T(a_registration_inside_a_capture), T(streams_come_and_go),
       T(a_call_asks_the_driver_what_symms_does))
