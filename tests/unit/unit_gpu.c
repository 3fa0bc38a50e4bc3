/* unit_gpu.c - communicators of GPUs on the fake CUDA driver: what creation loads, what a call
 * launches and what it does not do, order between streams, contexts. Ranks are driven from one
 * thread, for launches never wait. Capture, groups and failures of kernels: unit_gpu_graph.c. */
#include <fcntl.h>
#include <unistd.h>

#include "fgpu_kit.h"

static symmComm_t comms[GK_RANKS];

/* ---- creation ------------------------------------------------------------------------------- */

/* Kernels that a communicator of n ranks may launch, by the rows of coll.def: one for each type
 * where they reduce; the two of sends and receives; that of one-sided calls; with peers the one
 * that goes before copies. */
static unsigned loaded(int n) {
    unsigned count = 3 + (n > 1);
    for (int k = 0; k < SYMM_KERNEL_COUNT; k++) {
        const symm_kernel_row *row = &symm_kernels[k];
        if (row->flags & SYMM_K_GPU && n >= row->min_ranks &&
            (!row->max_ranks || n <= row->max_ranks))
            count += row->flags & SYMM_K_TYPED ? symmNumTypes : 1;
    }
    return count;
}

static void creation_loads_everything_once(void) {
    symmComm_t again[4];
    symmCommInfo_t info = {.size = sizeof info};
    int device;
    gk_start(4, 0);
    gk_open(comms, 4, NULL);
    T_EQ(fake_cuda_calls("cuLibraryLoadData"), SYMM_IMAGES);
    T_CHECK(loaded(4) > 4 * 12 + 3 + 1); /* those of all_reduce, all_gather and barrier alone */
    T_EQ(fake_cuda_calls("cuLibraryGetKernel"), 4 * loaded(4));
    T_EQ(fake_cuda_calls("cuKernelGetFunction"), fake_cuda_calls("cuLibraryGetKernel"));
    T_EQ(fake_cuda_calls("cuMemHostRegister"), 1); /* thread ranks share their pages */
    T_EQ(fake_cuda_calls("cuLaunchKernelEx"), 0);
    T_EQ(gk_device(), -1); /* the caller has still chosen none */
    for (int r = 0; r < 4; r++) {
        T_OK(symmCommDevice(comms[r], &device));
        T_EQ(device, r);
        T_OK(symmCommQuery(comms[r], &info));
        T_STREQ(info.backend, "cuda");
        T_CHECK(info.device == r && info.rank == r && info.nranks == 4 && info.threadRanks);
        T_EQ(gk_inside(comms[r])->gpus.sms, 132);
        T_EQ(gk_inside(comms[r])->gpus.shared, 0);
    }
    gk_open(again, 4, NULL);
    T_EQ(fake_cuda_calls("cuLibraryLoadData"), SYMM_IMAGES);
    gk_close(again, 4);
    gk_close(comms, 4);
    GK_LEFT(0);
    T_EQ(gk_device(), -1);
}

static void one_rank_has_its_own_kernels(void) {
    int *buf;
    gk_start(1, 0);
    gk_open(comms, 1, NULL);
    T_EQ(fake_cuda_calls("cuLibraryGetKernel"), loaded(1));
    buf = (int *)gk_memory(0, 4096);
    T_OK(symmAllReduce(buf, buf, 4, symmInt32, symmAvg, comms[0], NULL));
    T_STREQ(gk_last(0).kernel, "symm_all_reduce_local_i32_n1");
    T_OK(symmAllGather(buf, buf, 4, symmInt32, comms[0], NULL));
    T_STREQ(gk_last(0).kernel, "symm_all_gather_local_n1");
    T_OK(symmBarrier(comms[0], NULL));
    T_STREQ(gk_last(0).kernel, "symm_barrier_word_n0");
    gk_close(comms, 1);
    T_OK(symmMemFree(buf));
    GK_LEFT(0);
}

/* The blocks of all ranks are clear before anybody may use them, wherever the memory came from. */
static void control_blocks_and_pages_are_clear(void) {
    gk_start(3, 0);
    gk_open(comms, 3, NULL);
    for (int r = 0; r < 3; r++) {
        symm_comm *c = gk_inside(comms[r]);
        const char *block = (const char *)(uintptr_t)(c->base + (uint64_t)r * c->stride);
        for (uint64_t i = 0; i < SYMM_CTL_BYTES + GK_MB; i++)
            T_CHECKF(block[i] == 0, "rank %d, byte %llu", r, (unsigned long long)i);
        for (int p = 0; p < 3; p++) {
            const symm_ctl *ctl = symm_comm_ctl(c, p);
            T_CHECK(ctl->state == SYMM_STATE_ALIVE && !ctl->abort && !ctl->left);
            T_CHECK((uintptr_t)ctl == c->control.host_base + (unsigned)p * SYMM_PAGE_STRIDE);
            /* every rank's GPU may touch every block */
            T_EQ(fake_cuda_access((void *)(uintptr_t)(c->base + (uint64_t)p * c->stride)), 7);
        }
    }
    gk_close(comms, 3);
}

/* Notes of the plan: GPUs that are shared have fewer multiprocessors a rank, and no PDL. */
static void ranks_may_share_gpus(void) {
    static const int devices[] = {0, 0, 1, 0};
    static const int twice[] = {1, 1};
    symmResult_t async;
    gk_start(2, 0);
    gk_open(comms, 4, devices);
    for (int r = 0; r < 4; r++) {
        symm_comm *c = gk_inside(comms[r]);
        T_CHECK(c->gpus.shared && c->gpus.sms == 132 / 3 && !c->gpu->programmatic);
        T_EQ(c->caps.device, devices[r]);
        T_EQ(c->gpus.mate != 0, devices[r] == 0);
        /* Who waited for a thread on the same GPU is told what such ranks keep to. */
        for (int p = 0; p < 4; p++) {
            char text[SYMM_ERR_TEXT];
            symm_comm_reason(c, symmTimeout, p, text, sizeof text);
            T_CHECK(strstr(text, "did not come before a deadline"));
            T_EQ(strstr(text, "on the same GPU") != NULL, p != r && devices[p] == devices[r]);
        }
    }
    gk_close(comms, 4);
    gk_open(comms, 2, twice);
    T_EQ(gk_inside(comms[0])->gpus.sms, 66);
    /* Their legacy stream is one stream: the second kernel would never start. */
    const int launched = fake_cuda_calls("cuLaunchKernelEx");
    T_EXPECT_WARNINGS();
    T_EQ(symmBarrier(comms[0], NULL), symmInvalidUsage);
    T_CHECK(
        strstr(symmGetLastError(comms[0]), "rank 1 is a thread of this process on the same GPU 1"));
    T_EQ(fake_cuda_calls("cuLaunchKernelEx"), launched);
    T_OK(symmCommGetAsyncError(comms[0], &async));
    T_EQ(async, symmSuccess);
    gk_close(comms, 2);
    GK_LEFT(0);
}

/* ---- launches ------------------------------------------------------------------------------- */

typedef struct {
    symmColl_t coll;
    size_t count;
    symmDataType_t type;
} shape;

static const shape shapes[] = {{symmCollAllReduce, 1, symmInt8},
                               {symmCollAllReduce, 3000, symmFloat32},
                               {symmCollAllReduce, 60000, symmBfloat16},
                               {symmCollAllReduce, 400000, symmFloat64},
                               {symmCollAllReduce, 5000000, symmFloat8e4m3},
                               {symmCollAllReduce, 20000000, symmUint8},
                               {symmCollAllReduce, 0, symmInt32},
                               {symmCollAllGather, 7, symmFloat16},
                               {symmCollAllGather, 100000, symmInt32},
                               {symmCollAllGather, 1000000, symmInt64},
                               {symmCollBarrier, 0, symmUint8}};
enum { SHAPES = sizeof shapes / sizeof *shapes };

static void call(const shape *s, int rank, const char *src, char *dst, symmStream_t stream) {
    T_OK(symm_test_call(s->coll, src, dst, s->count, s->type, symmSum, 0, comms[rank], stream));
}

static void plan_of(const shape *s, int rank, const char *src, char *dst, symm_launch *l) {
    const int none = !coll_moves(s->coll);
    symm_coll k = {.coll = s->coll,
                   .src = none ? NULL : src,
                   .dst = none ? NULL : dst,
                   .count = s->count,
                   .type = s->type,
                   .op = symmSum};
    T_OK(symm_coll_prepare(gk_inside(comms[rank]), &k, l));
}

static void check_launch(const symm_launch *l, int rank, cu_stream stream, int pdl) {
    gk_launch got = gk_last(rank);
    const symm_kernel_row *row = &symm_kernels[l->plan.kernel];
    const int n = l->args.nranks, typed = (row->flags & SYMM_K_TYPED) != 0;
    char name[64];
    snprintf(name, sizeof name, "symm_%s%s%s_n%d", row->name, typed ? "_" : "",
             typed ? gk_types[l->args.type] : "",
             !(row->flags & SYMM_K_ONE_IMAGE) && (n == 2 || n == 4 || n == 8) ? n : 0);
    T_STREQ(got.kernel, name);
    T_EQ(got.config.grid_x, l->plan.ctas);
    T_EQ(got.config.block_x, l->plan.threads + 32);
    T_CHECK(got.config.grid_y == 1 && got.config.grid_z == 1);
    T_CHECK(got.config.block_y == 1 && got.config.block_z == 1 && !got.config.shared_bytes);
    T_CHECK(got.config.stream == stream);
    T_EQ(got.config.num_attrs, pdl);
    T_CHECK(!pdl || (got.attr.id == SYMM_CUDA_LAUNCH_PROGRAMMATIC_SERIALIZATION &&
                     got.attr.value.programmatic_serialization == 1));
    T_EQ((got.args.flags & SYMM_ARG_APART) != 0, gk_inside(comms[rank])->gpus.shared);
    symm_args want = l->args;
    T_CHECK(got.args.gpu.serial != 0); /* eager: the host will look for its end */
    want.gpu.serial = got.args.gpu.serial;
    T_CHECK(memcmp(&got.args, &want, sizeof want) == 0);
    T_EQ(got.args.nctas, l->plan.ctas);
    T_EQ(got.args.gpu.host_stride, SYMM_PAGE_STRIDE);
}

/* Every shape by every rank, with its device current or another; the calls are counted. */
static void launch_shapes(int n, const int *devices, int pdl, const char *src[], char *dst[]) {
    for (int i = 0; i < SHAPES * n; i++) {
        const int r = i % n, device = devices ? devices[r] : r;
        symm_launch l;
        cu_stream stream = gk_stream(device);
        for (int elsewhere = 0; elsewhere < 2; elsewhere++) {
            T_OK(symm_cuda_set(elsewhere ? (device + 1) % 2 : device));
            plan_of(&shapes[i / n], r, src[r], dst[r], &l);
            /* until the change of stream is long ago */
            for (int k = 0; !elsewhere && k < 33; k++)
                call(&shapes[i / n], r, src[r], dst[r], gk_user(stream));
            int launches = gk_last(r).count;
            gk_calls before = gk_count();
            call(&shapes[i / n], r, src[r], dst[r], gk_user(stream));
            if (elsewhere)
                GK_EXACTLY(&before, "cuLaunchKernelEx cuStreamGetCaptureInfo_v3 "
                                    "cuCtxGetCurrent*2 cuCtxPushCurrent cuCtxPopCurrent "
                                    "cuThreadExchangeStreamCaptureMode*2");
            else
                GK_EXACTLY(&before, "cuLaunchKernelEx cuStreamGetCaptureInfo_v3 cuCtxGetCurrent");
            T_EQ(gk_last(r).count, launches + 1);
            check_launch(&l, r, stream, pdl);
        }
    }
}

static void check_calls(int n, const int *devices, int pdl) {
    setenv("SYMM_CTA_BUDGET", "256", 1); /* so that all overlap (unit_gpu_order) */
    const size_t bytes = 64 * GK_MB;
    const char *src[GK_RANKS];
    char *dst[GK_RANKS];
    symmWindow_t win[GK_RANKS][2];
    gk_start(n > 2 ? n : 2, 0);
    gk_open(comms, n, devices);
    for (int r = 0; r < n; r++) {
        src[r] = gk_memory(devices ? devices[r] : r, bytes);
        dst[r] = gk_memory(devices ? devices[r] : r, bytes);
    }
    launch_shapes(n, devices, pdl, src, dst);
    for (int k = 0; k < 2; k++) {
        T_OK(symmGroupStart());
        for (int r = 0; r < n; r++)
            T_OK(symmWindowRegister(comms[r], k ? dst[r] : (void *)(uintptr_t)src[r], bytes,
                                    &win[r][k], SYMM_WIN_DEFAULT));
        T_OK(symmGroupEnd());
    }
    launch_shapes(n, devices, pdl, src, dst);
    for (int i = 0; i < 2 * n; i++) T_OK(symmWindowDeregister(comms[i / 2], win[i / 2][i % 2]));
    gk_close(comms, n);
    for (int r = 0; r < n; r++) {
        T_OK(symmMemFree((void *)(uintptr_t)src[r]));
        T_OK(symmMemFree(dst[r]));
    }
}

static void two_ranks_launch_what_is_planned(void) {
    check_calls(2, NULL, 1);
}

static void three_ranks_launch_what_is_planned(void) {
    check_calls(3, NULL, 1);
}

static void ranks_of_one_gpu_launch_without_overlap(void) {
    static const int devices[] = {1, 1};
    check_calls(2, devices, 0);
}

/* ---- arguments ------------------------------------------------------------------------------ */

/* The kernel reads it like a buffer. (Buffers: fault_gpu_machine.) */
static void a_device_scalar_in_host_memory_is_refused(void) {
    symmRedOp_t op;
    float *host = calloc(4, sizeof *host), *mine;
    T_EXPECT_WARNINGS();
    gk_start(2, 0);
    gk_open(comms, 2, NULL);
    mine = (float *)(void *)gk_memory(0, 4096);
    T_ERR(symmRedOpCreatePreMulSum(&op, host, symmFloat32, symmScalarDevice, comms[0]),
          symmInvalidArgument);
    T_MSG(symmGetLastError(comms[0]), "scalar=");
    T_OK(symmRedOpCreatePreMulSum(&op, host, symmFloat32, symmScalarHostImmediate, comms[0]));
    T_OK(symmRedOpCreatePreMulSum(&op, mine, symmFloat32, symmScalarDevice, comms[0]));
    gk_close(comms, 2);
    T_OK(symmMemFree(mine));
    free(host);
    GK_LEFT(0);
}

/* 0 is the number of captured calls, whose end nobody looks for: an eager one that had it would be
 * waited for without end. */
static void calls_are_never_number_zero(void) {
    gk_start(2, 0);
    gk_open(comms, 2, NULL);
    T_OK(symm_cuda_set(0));
    gk_inside(comms[0])->gpu->serial = UINT32_MAX - 1;
    T_OK(symmBarrier(comms[0], NULL));
    T_EQ(gk_last(0).args.gpu.serial, UINT32_MAX);
    T_OK(symmBarrier(comms[0], NULL));
    T_EQ(gk_last(0).args.gpu.serial, 1);
    gk_close(comms, 2);
}

/* ---- contexts ------------------------------------------------------------------------------- */

typedef struct {
    cu_context context;
    int mode;
} place;

static place here(cu_context context) {
    place p = {context, SYMM_CUDA_CAPTURE_MODE_THREAD_LOCAL};
    T_EQ(symm_cu.cuCtxSetCurrent(context), 0);
    T_EQ(symm_cu.cuThreadExchangeStreamCaptureMode(&p.mode), 0);
    return p;
}

static void still(cu_context context, int line) {
    cu_context now = NULL;
    int mode = SYMM_CUDA_CAPTURE_MODE_THREAD_LOCAL;
    T_EQ(symm_cu.cuCtxGetCurrent(&now), 0);
    T_CHECKF(now == context, "line %d: another context is current", line);
    T_EQ(symm_cu.cuThreadExchangeStreamCaptureMode(&mode), 0);
    T_CHECKF(mode == SYMM_CUDA_CAPTURE_MODE_THREAD_LOCAL, "line %d: capture mode %d", line, mode);
}

#define STILL(call)           \
    do {                      \
        T_OK(call);           \
        still(now, __LINE__); \
    } while (0)

/* Every public call, with `now` current: it is current afterwards, and the capture mode is. */
static void all_calls(cu_context now) {
    symmWindow_t win[2];
    symmWindowInfo_t winfo = {.size = sizeof winfo};
    symmExplain_t plan = {.size = sizeof plan};
    symmRedOp_t op;
    symmResult_t async;
    symmComm_t one[2];
    float scalar = 2;
    void *peer, *mem;
    char *buf[2] = {gk_memory(0, 4 * GK_MB), gk_memory(1, 4 * GK_MB)};
    int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
    here(now);
    STILL(symmCommInitAll(comms, 2, NULL));
    T_OK(symmGroupStart());
    for (int r = 0; r < 2; r++)
        STILL(symmWindowRegister(comms[r], buf[r], 4 * GK_MB, &win[r], SYMM_WIN_DEFAULT));
    STILL(symmGroupEnd());
    for (int r = 0; r < 2; r++) {
        STILL(symmWindowQuery(win[r], &winfo));
        STILL(symmWindowPeerPtr(win[r], 100, 1 - r, &peer));
        T_CHECK(peer == buf[1 - r] + 100);
        STILL(symmAllReduce(buf[r], buf[r], 100, symmInt8, symmSum, comms[r], NULL));
        STILL(symmAllGather(buf[r], buf[r] + GK_MB, 100, symmInt8, comms[r], NULL));
        STILL(symmBarrier(comms[r], NULL));
        STILL(symmExplain(comms[r], symmCollAllReduce, buf[r], buf[r], 9, symmInt8, symmSum, 0,
                          &plan));
        STILL(
            symmRedOpCreatePreMulSum(&op, &scalar, symmFloat32, symmScalarHostImmediate, comms[r]));
        STILL(symmRedOpDestroy(op, comms[r]));
        STILL(symmCommDump(comms[r], null));
        STILL(symmCommGetAsyncError(comms[r], &async));
        STILL(symmWindowDeregister(comms[r], win[r]));
        STILL(symmCommFinalize(comms[r]));
    }
    T_OK(symmGroupStart());
    for (int r = 0; r < 2; r++) STILL(symmCommSplit(comms[r], r, 0, &one[r], NULL));
    STILL(symmGroupEnd());
    for (int r = 0; r < 2; r++) STILL(symmCommDestroy(one[r]));
    if (now) { /* a thread that has none gets one here */
        STILL(symmMemAlloc(&mem, 10));
        STILL(symmMemFree(mem));
    }
    STILL(symmCommDestroy(comms[0]));
    STILL(symmCommAbort(comms[1]));
    for (int r = 0; r < 2; r++) STILL(symmMemFree(buf[r]));
    close(null);
}

static void calls_leave_the_context_as_it_was(void) {
    cu_context primary[3];
    gk_start(3, 0);
    for (int d = 0; d < 3; d++) T_OK(symm_cuda_primary(d, &primary[d]));
    for (int d = 0; d < 3; d++) all_calls(primary[d]);
    all_calls(NULL);
    all_calls(fake_cuda_context(2));
}

/* ---- children have their parent's device ---------------------------------------------------- */

static void check_devices(symmComm_t *children, int n, int last) {
    int device, size;
    for (int r = 0; r < n; r++) {
        T_OK(symmCommDevice(children[r], &device));
        T_OK(symmCommCount(children[r], &size));
        T_CHECKF(device == r && size == n, "child %d: device %d, %d ranks", r, device, size);
        if (last) T_OK(symmCommDestroy(children[r]));
    }
}

static void children_live_on_their_parents_gpus(void) {
    symmComm_t children[3];
    gk_start(3, 0);
    gk_open(comms, 3, NULL);
    T_OK(symm_cuda_set(2));
    T_OK(symmGroupStart());
    for (int r = 0; r < 3; r++) T_OK(symmCommSplit(comms[r], 0, r, &children[r], NULL));
    T_OK(symmGroupEnd());
    check_devices(children, 3, 1);
    gk_close(comms, 3);
    GK_LEFT(0);
}

/* One thread chooses a device and creates a rank, again and again, as programs of NCCL do. */
static void a_group_creates_each_rank_on_the_device_that_was_current(void) {
    symmUniqueId_t id;
    gk_start(3, 0);
    T_OK(symmGetUniqueId(&id));
    T_OK(symmGroupStart());
    for (int r = 0; r < 3; r++) {
        T_OK(symmSetDevice(r));
        T_OK(symmCommInitRank(&comms[r], 3, id, r));
    }
    T_OK(symmGroupEnd());
    T_EQ(gk_device(), 2);
    check_devices(comms, 3, 0);
    gk_close(comms, 3);
    GK_LEFT(0);
}

static void creation_behind_takes_the_callers_device(void) {
    symmConfig_t config = SYMM_CONFIG_INITIALIZER;
    symmUniqueId_t id;
    symmResult_t now;
    config.blocking = 0;
    gk_start(3, 0);
    T_OK(symmGetUniqueId(&id));
    for (int r = 0; r < 3; r++) {
        T_OK(symmSetDevice(r));
        T_ERR(symmCommInitRankConfig(&comms[r], 3, id, r, &config), symmInProgress);
    }
    for (int r = 0; r < 3; r++) do {
            usleep(1000);
            T_OK(symmCommGetAsyncError(comms[r], &now));
        } while (now == symmInProgress);
    check_devices(comms, 3, 0);
    gk_close(comms, 3);
    GK_LEFT(0);
}

T_MAIN(T(creation_loads_everything_once), T(one_rank_has_its_own_kernels),
       T(control_blocks_and_pages_are_clear), T(ranks_may_share_gpus),
       T(two_ranks_launch_what_is_planned), T(three_ranks_launch_what_is_planned),
       T(ranks_of_one_gpu_launch_without_overlap), T(a_device_scalar_in_host_memory_is_refused),
       T(calls_are_never_number_zero), T(calls_leave_the_context_as_it_was),
       T(children_live_on_their_parents_gpus),
       T(a_group_creates_each_rank_on_the_device_that_was_current),
       T(creation_behind_takes_the_callers_device))
