/* unit_gpu_synced.c - synced buffers of GPUs on the fake CUDA driver: the same states and cases as
 * on the host backend, which calls are made and which are not, streams, captures, devices, and
 * every call refused. */
#include "fgpu_kit.h"
#include "synced_kit.h"

static symmComm_t comm;
static symmHeap_t heap;
static cu_stream stream, other;

#define CU(call) T_EQ(symm_cu.call, 0)

static void gpu_set(void *dst, int value, size_t bytes, symmStream_t s) {
    CU(cuMemsetD8Async((uintptr_t)dst, (unsigned char)value, bytes, (cu_stream)(void *)s));
}
static void gpu_get(void *dst, const void *src, size_t bytes, symmStream_t s) {
    CU(cuMemcpyDtoHAsync(dst, (uintptr_t)src, bytes, (cu_stream)(void *)s));
    CU(cuStreamSynchronize((cu_stream)(void *)s));
}
static const sy_device gpu = {gpu_set, gpu_get};

static void start(int queued) {
    setenv("SYMM_HEAP_GUARD", "0", 1); /* it reads memory: calls are counted here */
    gk_start(2, queued);
    gk_open(&comm, 1, NULL);
    T_OK(symmSetDevice(0));
    heap = sy_heap(comm, 2 * SY_MB, 4 * SY_MB);
    stream = gk_stream(0);
    other = gk_stream(0);
}
static void stop(void) {
    CU(cuStreamDestroy(stream));
    CU(cuStreamDestroy(other));
    T_EQ(sy_used(heap), 0);
    T_EQ(SYMM_STAT_GET(synced_bytes), 0);
    T_OK(symmHeapDestroy(heap));
    gk_close(&comm, 1);
    GK_LEFT(0);
}

/* ---- states ---- */

static void caffes_cases(void) {
    for (int queued = 0; queued < 2; queued++) {
        start(queued);
        symmStream_t streams[] = {NULL, gk_user(stream), gk_user(SYMM_CUDA_STREAM_PER_THREAD)};
        for (int i = 0; i < 3; i++) {
            sy_case_initialization(heap);
            sy_case_allocation(heap, &gpu, streams[i]);
            sy_case_cpu_write(heap, streams[i]);
            sy_case_gpu_read(heap, &gpu, streams[i]);
            sy_case_gpu_write(heap, &gpu, streams[i]);
        }
        stop();
    }
}

static void every_state_times_every_call(void) {
    T_EXPECT_WARNINGS();
    for (int queued = 0; queued < 2; queued++) {
        start(queued);
        sy_walk w = {.heap = heap,
                     .device = &gpu,
                     .stream = gk_user(stream),
                     .own_cpu = malloc(SY_BYTES),
                     .own_gpu = gk_memory(0, SY_BYTES)};
        sy_table(&w);
        w.stream = NULL;
        sy_table(&w);
        free(w.own_cpu);
        T_OK(symmMemFree(w.own_gpu));
        stop();
    }
}

/* ---- which calls ---- */

static void no_call_where_nothing_is_to_be_done(void) {
    start(0);
    symmStream_t s = gk_user(stream);
    symmSynced_t b = sy_new(heap, SY_BYTES);
    const int copies = fake_cuda_calls("cuMemcpyAsync");
    memset(sy_mut_cpu(b, s, 1), 1, SY_BYTES);
    T_EQ(fake_cuda_calls("cuMemAllocHost"), 1);
    T_EQ(fake_cuda_calls("cuMemcpyAsync"), copies);
    sy_gpu(b, s);
    T_EQ(fake_cuda_calls("cuMemcpyAsync"), copies + 1);
    T_EQ(fake_cuda_calls("cuEventSynchronize"), 0); /* nobody waited */
    T_EQ(sy_head(b), SYMM_SYNCED_SYNCED);           /* asks the event: at rest from here on */
    gk_calls before = gk_count();
    for (int i = 0; i < 10; i++) {
        sy_cpu(b, s);
        sy_gpu(b, gk_user(other));
        T_EQ(sy_head(b), SYMM_SYNCED_SYNCED);
    }
    GK_EXACTLY(&before, "");
    T_OK(symmSyncedDestroy(b));
    T_EQ(fake_cuda_calls("cuMemFreeHost"), 1);
    stop();
}

/* Caffe's set_cpu_data leaves the mark of pinned memory behind: foreign memory is then freed by
 * CUDA, or pinned memory by free. */
static void each_host_side_is_freed_as_it_was_allocated(void) {
    char *mine = malloc(SY_BYTES);
    start(0);
    symmSynced_t b = sy_new(heap, SY_BYTES);
    sy_mut_cpu(b, NULL, 1);
    T_OK(symmSyncedSetCpu(b, mine));
    T_EQ(fake_cuda_calls("cuMemFreeHost"), 1);
    T_OK(symmSyncedDiscard(b));
    sy_mut_cpu(b, NULL, 1);
    T_OK(symmSyncedSetCpu(b, mine));
    T_EQ(fake_cuda_calls("cuMemFreeHost"), 2);
    T_OK(symmSyncedDestroy(b));
    T_EQ(fake_cuda_calls("cuMemFreeHost"), 2);
    free(mine);
    stop();
}

/* ---- order ---- */

static void a_reader_comes_after_a_push(void) {
    char *seen = malloc(SY_BYTES);
    sy_gate gate = {0, 0};
    start(1);
    symmSynced_t b = sy_new(heap, SY_BYTES);
    memset(sy_mut_cpu(b, NULL, 1), 5, SY_BYTES);
    CU(cuLaunchHostFunc(stream, sy_pass, &gate));
    T_OK(symmSyncedPush(b, gk_user(stream)));
    T_EQ(sy_head(b), SYMM_SYNCED_PUSHING);
    CU(cuMemcpyDtoHAsync(seen, (uintptr_t)sy_gpu(b, gk_user(other)), SY_BYTES, other));
    usleep(10000);
    T_EQ(symm_cu.cuStreamQuery(other), SYMM_CUDA_ERROR_NOT_READY);
    sy_open(&gate);
    CU(cuStreamSynchronize(other));
    sy_all(seen, 5, SY_BYTES, "device side");
    T_EQ(sy_settled(b), SYMM_SYNCED_SYNCED);
    T_OK(symmSyncedDestroy(b));
    stop();
    free(seen);
}

static void a_writer_and_the_end_wait_for_a_push(void) {
    for (int end = 0; end < 2; end++) {
        sy_gate gate = {0, 0};
        pthread_t opener;
        start(1);
        symmSynced_t b = sy_new(heap, SY_BYTES);
        memset(sy_mut_cpu(b, NULL, 1), 5, SY_BYTES);
        CU(cuLaunchHostFunc(stream, sy_pass, &gate));
        T_OK(symmSyncedPush(b, gk_user(stream)));
        T_EQ(pthread_create(&opener, NULL, sy_open_later, &gate), 0);
        if (!end) memset(sy_mut_cpu(b, NULL, 1), 6, SY_BYTES);
        if (!end) sy_device_all(&gpu, b, gk_user(other), 6, SY_BYTES);
        T_OK(symmSyncedDestroy(b));
        T_EQ(atomic_load(&gate.open), 1);
        pthread_join(opener, NULL);
        stop();
    }
}

static void the_generation_follows_the_copy(void) {
    symmRef_t data, word;
    uint32_t g = 9;
    sy_gate gate = {0, 0};
    start(1);
    symmSynced_t b = sy_new(heap, SY_BYTES);
    memset(sy_mut_cpu(b, NULL, 1), 5, SY_BYTES);
    T_OK(symmSyncedRef(b, &data, &word));
    CU(cuLaunchHostFunc(stream, sy_pass, &gate));
    T_OK(symmSyncedPush(b, gk_user(stream)));
    T_OK(symmSyncedPoll(&word, comm, SYMM_REF_OWNER, &g));
    T_EQ(g, 0);
    sy_open(&gate);
    while (g < 1) T_OK(symmSyncedGeneration(b, 0, &g));
    T_EQ(g, 1);
    T_OK(symmSyncedPublish(b, gk_user(other), &g));
    T_EQ(g, 2);
    CU(cuStreamSynchronize(other));
    T_OK(symmSyncedPoll(&word, comm, SYMM_REF_OWNER, &g));
    T_EQ(g, 2);
    T_OK(symmSyncedDestroy(b));
    stop();
}

/* ---- captures ---- */

static cu_graph_exec captured(cu_graph *graph) {
    cu_graph_exec exec = NULL;
    CU(cuStreamEndCapture(stream, graph));
    CU(cuGraphInstantiate(&exec, *graph, 0));
    return exec;
}

/* In the strictest mode, in which pinned memory could not be had otherwise. */
static void pushes_and_pulls_are_captured(void) {
    cu_graph graph[2];
    start(0);
    symmStream_t s = gk_user(stream);
    symmSynced_t b = sy_new(heap, SY_BYTES);
    sy_mut_gpu(b, s, 1);
    CU(cuStreamBeginCapture(stream, SYMM_CUDA_CAPTURE_MODE_GLOBAL));
    T_OK(symmSyncedPull(b, s)); /* allocates the host side */
    T_EQ(sy_head(b), SYMM_SYNCED_HEAD_AT_GPU);
    cu_graph_exec down = captured(&graph[0]);
    CU(cuStreamBeginCapture(stream, SYMM_CUDA_CAPTURE_MODE_GLOBAL));
    T_OK(symmSyncedPush(b, s));
    cu_graph_exec up = captured(&graph[1]);
    for (int i = 1; i < 4; i++) {
        gpu_set(sy_mut_gpu(b, s, 0), i, SY_BYTES, s);
        CU(cuGraphLaunch(down, stream));
        CU(cuStreamSynchronize(stream));
        char *p = sy_mut_cpu(b, s, 0);
        sy_all(p, i, SY_BYTES, "after a replay down");
        memset(p, i + 20, SY_BYTES);
        CU(cuGraphLaunch(up, stream));
        char *q = sy_mut_gpu(b, s, 0), seen[SY_BYTES];
        gpu_get(seen, q, SY_BYTES, s);
        sy_all(seen, i + 20, SY_BYTES, "after a replay up");
    }
    char mine[SY_BYTES];
    T_EXPECT_WARNINGS();
    T_ERR(symmSyncedSetCpu(b, mine), symmInvalidUsage); /* the graph knows the old memory */
    T_OK(symmSyncedDestroy(b));
    T_CHECK(sy_used(heap) > 0 && fake_cuda_calls("cuMemFreeHost") == 0);
    CU(cuGraphLaunch(up, stream)); /* the graph has what it needs */
    CU(cuStreamSynchronize(stream));
    CU(cuGraphExecDestroy(up));
    CU(cuGraphExecDestroy(down));
    CU(cuGraphDestroy(graph[0]));
    CU(cuGraphDestroy(graph[1]));
    symm_gpu_reap();
    T_EQ(fake_cuda_calls("cuMemFreeHost"), 1);
    stop();
}

static void a_capture_takes_no_copy_that_would_run_now(void) {
    const void *p;
    cu_graph graph;
    T_EXPECT_WARNINGS();
    start(0);
    symmStream_t s = gk_user(stream);
    symmSynced_t b = sy_new(heap, SY_BYTES), fresh = sy_new(heap, SY_BYTES);
    sy_mut_cpu(b, s, 1);
    CU(cuStreamBeginCapture(stream, SYMM_CUDA_CAPTURE_MODE_GLOBAL));
    T_ERR(symmSyncedGpu(b, s, &p), symmInvalidUsage);
    T_ERR(symmSyncedPublish(b, s, NULL), symmInvalidUsage);
    sy_gpu(b, gk_user(other));
    sy_gpu(b, s); /* waits for the copy on the other stream: the capture cannot */
    char seen[SY_BYTES];
    const char *zeros = sy_gpu(fresh, s);
    CU(cuStreamEndCapture(stream, &graph)); /* none of it invalidated the capture */
    gpu_get(seen, zeros, SY_BYTES, s);
    sy_all(seen, 0, SY_BYTES, "first touch in a capture");
    CU(cuGraphDestroy(graph));
    T_OK(symmSyncedDestroy(b));
    T_OK(symmSyncedDestroy(fresh));
    stop();
}

/* ---- devices ---- */

static void the_buffers_device_is_kept_to(void) {
    void *q;
    const void *p;
    char on_the_host[8];
    T_EXPECT_WARNINGS();
    start(0);
    char *away = gk_memory(1, SY_BYTES), *own = gk_memory(0, SY_BYTES);
    cu_stream far = gk_stream(1);
    symmSynced_t b = sy_new(heap, SY_BYTES);
    T_ERR(symmSyncedSetGpu(b, away), symmInvalidArgument);
    T_MSG(symmGetLastError(NULL), "is memory of GPU 1: must be of GPU 0");
    T_ERR(symmSyncedSetGpu(b, on_the_host), symmInvalidArgument);
    T_MSG(symmGetLastError(NULL), "must be memory of a GPU");
    T_ERR(symmSyncedGpu(b, gk_user(far), &p), symmInvalidArgument);
    T_MSG(symmGetLastError(NULL), "is not of GPU 0");
    T_ERR(symmSyncedMutableCpu(b, (symmStream_t)(void *)on_the_host, 1, &q), symmInvalidArgument);
    T_EQ(sy_head(b), SYMM_SYNCED_UNINITIALIZED);
    T_OK(symmSyncedSetGpu(b, own));
    /* from a thread whose device is another one, or none: neither matters nor changes */
    for (int d = 1; d >= -1; d -= 2) {
        if (d < 0)
            CU(cuCtxSetCurrent(NULL));
        else
            T_OK(symmSetDevice(d));
        memset(sy_mut_cpu(b, NULL, 1), 3, SY_BYTES);
        sy_gpu(b, gk_user(stream));
        T_EQ(gk_device(), d);
        T_OK(symmSetDevice(0));
        sy_device_all(&gpu, b, gk_user(stream), 3, SY_BYTES);
    }
    T_OK(symmSyncedDestroy(b));
    T_OK(symmMemFree(own));
    T_OK(symmMemFree(away));
    CU(cuStreamDestroy(far));
    stop();
}

/* ---- every call refused ---- */

typedef struct {
    const char *call;
    int state; /* from which a Gpu (HEAD_AT_CPU, UNINITIALIZED) or Cpu (HEAD_AT_GPU) is tried */
} refusal;

static const refusal refusals[] = {
    {"cuStreamGetCtx", 1},    {"cuEventCreate", 0},    {"cuMemsetD8Async", 0},
    {"cuMemcpyAsync", 1},     {"cuMemsetD32Async", 1}, {"cuMemsetD32Async", 0},
    {"cuEventRecord", 1},     {"cuEventRecord", 0},    {"cuMemAllocHost", 2},
    {"cuMemcpyAsync", 2},     {"cuEventRecord", 2},    {"cuStreamWaitEvent", 2},
    {"cuEventSynchronize", 2}};

/* A code, a text that names the call's purpose, the state as it was, and the next try works. */
static void every_refusal_changes_nothing(void) {
    T_EXPECT_WARNINGS();
    start(0);
    symmStream_t s = gk_user(stream);
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        const refusal *f = &refusals[i];
        const void *p = NULL;
        symmSynced_t b = sy_new(heap, SY_BYTES);
        sy_walk w = {.s = b, .stream = s, .device = &gpu};
        if (f->state == 1) memset(sy_mut_cpu(b, s, 1), 1, SY_BYTES);
        if (f->state == 2) gpu_set(sy_mut_gpu(b, gk_user(other), 1), 1, SY_BYTES, gk_user(other));
        fake_cuda_fail(f->call, 1, SYMM_CUDA_ERROR_ILLEGAL_STATE);
        symmResult_t r = f->state == 2 ? symmSyncedCpu(b, s, &p) : symmSyncedGpu(b, s, &p);
        T_CHECKF(!fake_cuda_fail_waits(), "%s was not called", f->call);
        fake_cuda_fail(f->call, 1, 0);
        T_CHECKF(r == symmUnhandledCudaError && !p, "%s refused: %d", f->call, r);
        T_CHECK(strstr(symmGetLastError(NULL), "(401)") != NULL);
        T_EQ(sy_settled(b) == f->state ||
                 (!strcmp(f->call, "cuEventSynchronize") && sy_settled(b) == SYMM_SYNCED_SYNCED),
             1);
        w.value = f->state ? 1 : 0;
        sy_all(sy_cpu(b, s), w.value, SY_BYTES, f->call);
        sy_device_all(&gpu, b, s, w.value, SY_BYTES);
        T_OK(symmSyncedDestroy(b));
    }
    stop();
}

static void a_capture_that_cannot_hold_the_memory(void) {
    static const char *const calls[] = {"cuUserObjectCreate", "cuGraphRetainUserObject",
                                        "cuMemcpyAsync"};
    T_EXPECT_WARNINGS();
    for (int i = 0; i < 3; i++) {
        cu_graph graph;
        start(0);
        symmSynced_t b = sy_new(heap, SY_BYTES);
        sy_mut_cpu(b, NULL, 1);
        CU(cuStreamBeginCapture(stream, SYMM_CUDA_CAPTURE_MODE_RELAXED));
        fake_cuda_fail(calls[i], 1, SYMM_CUDA_ERROR_ILLEGAL_STATE);
        T_ERR(symmSyncedPush(b, gk_user(stream)), symmUnhandledCudaError);
        T_EQ(sy_head(b), SYMM_SYNCED_HEAD_AT_CPU);
        T_OK(symmSyncedPush(b, gk_user(stream)));
        CU(cuStreamEndCapture(stream, &graph));
        T_OK(symmSyncedDestroy(b));
        CU(cuGraphDestroy(graph));
        symm_gpu_reap();
        stop();
    }
}

/* What was given before a mark failed may not be forgotten: the call itself waits for it. */
static void a_copy_that_cannot_be_marked_is_waited_for(void) {
    sy_gate gate = {0, 0};
    pthread_t opener;
    const void *p;
    T_EXPECT_WARNINGS();
    start(1);
    symmSynced_t b = sy_new(heap, SY_BYTES);
    memset(sy_mut_cpu(b, NULL, 1), 1, SY_BYTES);
    CU(cuLaunchHostFunc(stream, sy_pass, &gate));
    fake_cuda_fail("cuEventRecord", 1, SYMM_CUDA_ERROR_ILLEGAL_STATE);
    T_EQ(pthread_create(&opener, NULL, sy_open_later, &gate), 0);
    T_ERR(symmSyncedGpu(b, gk_user(stream), &p), symmUnhandledCudaError);
    T_EQ(atomic_load(&gate.open), 1);
    pthread_join(opener, NULL);
    T_OK(symmSyncedDestroy(b));
    stop();
}

/* A context that is beyond use: the end says so, and comes. */
static void destroy_ends_what_cannot_be_waited_for(void) {
    T_EXPECT_WARNINGS();
    start(0);
    symmSynced_t b = sy_new(heap, SY_BYTES);
    sy_gpu(b, gk_user(stream));
    fake_cuda_fail("cuEventSynchronize", 1, SYMM_CUDA_ERROR_LAUNCH_FAILED);
    T_ERR(symmSyncedDestroy(b), symmUnhandledCudaError);
    T_ERR(symmSyncedDestroy(b), symmInvalidArgument);
    stop();
}

T_MAIN(T(caffes_cases), T(every_state_times_every_call), T(no_call_where_nothing_is_to_be_done),
       T(each_host_side_is_freed_as_it_was_allocated), T(a_reader_comes_after_a_push),
       T(a_writer_and_the_end_wait_for_a_push), T(the_generation_follows_the_copy),
       T(pushes_and_pulls_are_captured), T(a_capture_takes_no_copy_that_would_run_now),
       T(the_buffers_device_is_kept_to), T(every_refusal_changes_nothing),
       T(a_capture_that_cannot_hold_the_memory), T(a_copy_that_cannot_be_marked_is_waited_for),
       T(destroy_ends_what_cannot_be_waited_for))
