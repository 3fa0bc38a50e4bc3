/* unit_nccl_gpu.c - the drop-in on GPUs, on the fake CUDA driver: one thread that drives several of
 * them (-g of nccl-tests, which never says which is current), captures, changes of stream, every
 * call of the driver refused. */
#include "fgpu_kit.h"
#include "nccl_kit.h"

enum { GPUS = 2, WIN = 4 << 20, CODE = 700 /* of a call that is refused */ };

static ncclComm_t comms[GPUS];
static char *buf[GPUS];
static ncclWindow_t win[GPUS];
static cu_stream streams[GPUS][2];

/* As nccl-tests -g 2 -R 2 begins: one group to make them, one for memory and windows. */
static void start(void) {
    ncclUniqueId id;
    gk_start(GPUS, 0);
    N_OK(ncclGetUniqueId(&id));
    N_OK(ncclGroupStart());
    for (int r = 0; r < GPUS; r++) {
        T_OK(symm_cuda_set(r));
        N_OK(ncclCommInitRank(&comms[r], GPUS, id, r));
    }
    N_OK(ncclGroupEnd());
    N_OK(ncclGroupStart());
    for (int r = 0; r < GPUS; r++) {
        T_OK(symm_cuda_set(r));
        N_OK(ncclMemAlloc((void **)&buf[r], WIN));
        N_OK(ncclCommWindowRegister(comms[r], buf[r], WIN, &win[r], NCCL_WIN_COLL_SYMMETRIC));
    }
    N_OK(ncclGroupEnd());
    for (int r = 0; r < GPUS; r++)
        for (int i = 0; i < 2; i++) streams[r][i] = gk_stream(r);
}

/* In whatever order, from one thread, with the device that is current. */
static void finish(void) {
    for (int r = 0; r < GPUS; r++) {
        N_OK(ncclCommWindowDeregister(comms[r], win[r]));
        N_OK(ncclCommDestroy(comms[r]));
    }
    for (int r = 0; r < GPUS; r++) N_OK(ncclMemFree(buf[r]));
}

static ncclResult_t all_reduce(int r, int stream) {
    return ncclAllReduce(buf[r], buf[r], 1000, ncclFloat32, ncclSum, comms[r],
                         gk_user(streams[r][stream]));
}

static void the_device_is_the_communicators_and_is_restored(void) {
    int device, scalar = 1;
    ncclRedOp_t op;
    void *handle;
    start();
    for (int current = 0; current < GPUS; current++) {
        T_OK(symm_cuda_set(current));
        for (int r = 0; r < GPUS; r++) {
            N_OK(ncclCommCuDevice(comms[r], &device));
            T_EQ(device, r);
            N_OK(all_reduce(r, 0));
            T_EQ(gk_device(), current);
            T_EQ(gk_last(r).args.rank, r);
            N_OK(ncclAllGather(buf[r], buf[r], 0, ncclInt8, comms[r], gk_user(streams[r][0])));
            N_OK(ncclRedOpCreatePreMulSum(&op, &scalar, ncclInt32, ncclScalarHostImmediate,
                                          comms[r]));
            N_OK(ncclRedOpDestroy(op, comms[r]));
            N_OK(ncclCommRegister(comms[r], buf[r], 64, &handle));
            N_OK(ncclCommDeregister(comms[r], handle));
            N_OK(ncclCommFinalize(NULL));
            T_EQ(gk_device(), current);
        }
        N_OK(ncclGroupStart());
        for (int r = GPUS - 1; r >= 0; r--) N_OK(all_reduce(r, 0));
        N_OK(ncclGroupEnd());
        T_EQ(gk_device(), current);
    }
    T_OK(symm_cuda_set(1));
    finish();
    T_EQ(gk_device(), 1);
    GK_LEFT(2 * GPUS); /* the test's streams */
}

static void a_call_is_one_launch_and_a_change_of_stream_one_event(void) {
    start();
    N_OK(all_reduce(0, 0));
    T_OK(symm_cuda_set(1));
    gk_calls before = gk_count();
    N_OK(all_reduce(0, 0));
    T_EQ(fake_cuda_calls("cuLaunchKernelEx") - before.n[0] >= 1, 1);
    const int launches = gk_last(0).count, waits = fake_cuda_calls("cuStreamWaitEvent");
    N_OK(all_reduce(0, 0));
    T_EQ(gk_last(0).count, launches + 1);
    T_EQ(fake_cuda_calls("cuStreamWaitEvent"), waits);
    N_OK(all_reduce(0, 1));
    T_EQ(gk_last(0).count, launches + 2);
    T_EQ(fake_cuda_calls("cuStreamWaitEvent"), waits + 1);
    T_EQ(fake_cuda_calls("cuMemCreate"), fake_cuda_calls("cuMemCreate"));
    finish();
}

static void captured(void) {
    cu_graph graph;
    start();
    for (int r = 0; r < GPUS; r++) N_OK(all_reduce(r, 0));
    const int launches = gk_last(1).count;
    T_OK(symm_cuda_set(0));
    T_EQ(symm_cu.cuStreamBeginCapture(streams[1][0], SYMM_CUDA_CAPTURE_MODE_GLOBAL), 0);
    N_OK(all_reduce(1, 0));
    N_OK(all_reduce(1, 0));
    T_EQ(symm_cu.cuStreamEndCapture(streams[1][0], &graph), 0);
    T_CHECK(graph != NULL);
    T_EQ(gk_last(1).count, launches);
    T_EQ(symm_cu.cuGraphDestroy(graph), 0);
    finish();
}

/* vLLM registers while its graphs are captured. */
static void registered_inside_a_capture(void) {
    cu_graph graph;
    void *more[GPUS];
    ncclWindow_t w[GPUS];
    start();
    for (int r = 0; r < GPUS; r++) more[r] = gk_memory(r, WIN);
    T_EQ(symm_cu.cuStreamBeginCapture(streams[0][0], SYMM_CUDA_CAPTURE_MODE_GLOBAL), 0);
    N_OK(ncclGroupStart());
    for (int r = 0; r < GPUS; r++)
        N_OK(ncclCommWindowRegister(comms[r], more[r], WIN, &w[r], NCCL_WIN_COLL_SYMMETRIC));
    N_OK(ncclGroupEnd());
    N_OK(all_reduce(0, 0));
    T_EQ(symm_cu.cuStreamEndCapture(streams[0][0], &graph), 0);
    T_CHECK(graph != NULL);
    T_EQ(symm_cu.cuGraphDestroy(graph), 0);
    for (int r = 0; r < GPUS; r++) {
        N_OK(ncclCommWindowDeregister(comms[r], w[r]));
        N_OK(ncclMemFree(more[r]));
    }
    finish();
}

/* What only the host backend has is refused by name, with a code that NCCL has. */
static void what_gpus_do_not_have_says_so(void) {
    T_EXPECT_WARNINGS();
    start();
    const ncclResult_t r = ncclSend(buf[0], 4, ncclInt32, 1, comms[0], gk_user(streams[0][0]));
    T_CHECK(r == ncclSuccess || r == ncclInvalidUsage);
    if (r) T_MSG(ncclGetLastError(NULL), "GPU");
    finish();
}

/* ---- refusals -------------------------------------------------------------------------------- */

static int tries;

/* The nth call of that name is refused while the communicators are made: a code of NCCL's and no
 * handles, or it can do without. */
static void refuse_making(const char *name, int nth) {
    ncclComm_t made[GPUS] = {NULL, NULL};
    gk_start(GPUS, 0);
    fake_cuda_fail(name, nth, CODE);
    const ncclResult_t r = ncclCommInitAll(made, GPUS, NULL);
    tries += !fake_cuda_fail_waits();
    fake_cuda_fail("cuInit", 1, 0);
    T_CHECKF(r >= ncclSuccess && r <= ncclInvalidUsage, "%s %d: %d", name, nth, (int)r);
    if (r) T_CHECKF(*ncclGetLastError(NULL), "%s %d: no text", name, nth);
    for (int i = 0; i < GPUS; i++) {
        T_EQ(made[i] != NULL, r == ncclSuccess);
        if (made[i]) N_OK(ncclCommDestroy(made[i]));
    }
    GK_LEFT(0);
}

/* And while a call is made: its code and text, then the communicator ends without a leak. */
static void refuse_calling(const char *name, int nth) {
    start();
    T_OK(symm_cuda_set(1));
    fake_cuda_fail(name, nth, CODE);
    ncclResult_t r = all_reduce(0, 0);
    if (!r) r = all_reduce(0, 1);
    tries += !fake_cuda_fail_waits();
    fake_cuda_fail("cuInit", 1, 0);
    T_CHECKF(r >= ncclSuccess && r <= ncclInvalidUsage, "%s %d: %d", name, nth, (int)r);
    T_EQ(gk_device(), 1);
    for (int i = 0; i < GPUS; i++) ncclCommAbort(comms[i]);
    for (int i = 0; i < GPUS; i++) N_OK(ncclMemFree(buf[i]));
    GK_LEFT(2 * GPUS);
}

/* Of calls that give back, a refusal is a leak of the test's own. */
static int gives_back(const char *name) {
    return strstr(name, "Destroy") || strstr(name, "Free") || strstr(name, "Release") ||
           strstr(name, "Unmap") || strstr(name, "Unload") || strstr(name, "Unregister") ||
           strstr(name, "cuCtxPopCurrent") || strstr(name, "cuCtxSetCurrent");
}

static void every_call_refused(void) {
    T_EXPECT_WARNINGS();
    int making[GK_CALLS], calling[GK_CALLS];
    gk_start(GPUS, 0);
    N_OK(ncclCommInitAll(comms, GPUS, NULL));
    for (int i = 0; fake_cuda_call_name(i); i++)
        making[i] = fake_cuda_calls(fake_cuda_call_name(i));
    for (int r = 0; r < GPUS; r++) N_OK(ncclCommDestroy(comms[r]));
    start();
    gk_calls before = gk_count();
    N_OK(all_reduce(0, 0));
    N_OK(all_reduce(0, 1));
    gk_calls after = gk_count();
    for (int i = 0; i < GK_CALLS; i++) calling[i] = after.n[i] - before.n[i];
    finish();
    for (int i = 0; fake_cuda_call_name(i); i++) {
        const char *name = fake_cuda_call_name(i);
        if (gives_back(name) || !strcmp(name, "cuInit")) continue;
        if (making[i]) refuse_making(name, 1);
        if (making[i] > 2) refuse_making(name, making[i]);
        for (int nth = 1; nth <= calling[i]; nth++) refuse_calling(name, nth);
    }
    T_CHECKF(tries > 20, "only %d refusals were met", tries);
}

T_MAIN(T(the_device_is_the_communicators_and_is_restored),
       T(a_call_is_one_launch_and_a_change_of_stream_one_event), T(captured),
       T(registered_inside_a_capture), T(what_gpus_do_not_have_says_so),
       T_TIMEOUT(every_call_refused, 120))
