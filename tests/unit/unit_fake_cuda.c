/* unit_fake_cuda.c - the fake CUDA driver's work: order on streams, events, capture, graphs, user
 * objects. What tests of the library believe of it must hold. What multicast objects
 * are exported as. Its memory is tested through the memory driver, unit_cuda_vmm.c. */
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "fake_cuda.h"
#include "t.h"
#include "transport/cuda/cuda_device.h"
#include "transport/cuda/cuda_multicast.h"

#define OK(call) T_EQ((call), 0)

static int seen[64], seen_count;
static pthread_mutex_t seen_lock = PTHREAD_MUTEX_INITIALIZER;

static void note(const cu_launch_config *config, void **args) {
    int value = *(int *)args[0], step = *(char *)args[1];
    pthread_mutex_lock(&seen_lock);
    if (config->num_attrs) value += config->attrs[0].value.programmatic_serialization;
    if (seen_count < 64) seen[seen_count++] = value * step;
    pthread_mutex_unlock(&seen_lock);
}

static void note_host(void *arg) {
    pthread_mutex_lock(&seen_lock);
    seen[seen_count++] = -*(int *)arg;
    pthread_mutex_unlock(&seen_lock);
}

static int gate;
static void wait_for_gate(void *arg) {
    (void)arg;
    while (!__atomic_load_n(&gate, __ATOMIC_ACQUIRE)) usleep(100);
}

static cu_library library;
static cu_kernel kernel;

static void start(int queued) {
    const size_t sizes[] = {sizeof(int), sizeof(char)};
    fake_cuda_config config = fake_cuda_defaults();
    int device;
    config.queued = queued;
    fake_cuda_install(&config);
    fake_cuda_kernel("note", note, 2, sizes);
    T_OK(symm_cuda_current(&device));
    OK(symm_cu.cuLibraryLoadData(&library, "image", NULL, NULL, 0, NULL, NULL, 0));
    OK(symm_cu.cuLibraryGetKernel(&kernel, library, "note"));
    T_EQ(symm_cu.cuLibraryGetKernel(&kernel, library, "other"), SYMM_CUDA_ERROR_NOT_FOUND);
    seen_count = gate = 0;
}

static void done(void) {
    OK(symm_cu.cuLibraryUnload(library));
    T_EQ(fake_cuda_live(), 0);
}

static int launch(cu_stream stream, int value) {
    char step = 1;
    void *args[] = {&value, &step};
    cu_launch_config config = {4, 1, 1, 128, 1, 1, 0, stream, NULL, 0};
    return symm_cu.cuLaunchKernelEx(&config, (cu_function)kernel, args, NULL);
}

static cu_stream stream_of(unsigned flags) {
    cu_stream stream = NULL;
    OK(symm_cu.cuStreamCreate(&stream, flags));
    return stream;
}

static void launches_take_copies_and_keep_order(void) {
    for (int queued = 0; queued < 2; queued++) {
        start(queued);
        cu_launch_attr attr = {.id = SYMM_CUDA_LAUNCH_PROGRAMMATIC_SERIALIZATION};
        attr.value.programmatic_serialization = 1;
        cu_stream s = stream_of(SYMM_CUDA_STREAM_NON_BLOCKING);
        cu_launch_config config = {1, 1, 1, 1, 1, 1, 0, s, &attr, 1};
        int value = 10, mark = 3;
        char step = 2;
        void *args[] = {&value, &step};
        if (queued) OK(symm_cu.cuLaunchHostFunc(s, wait_for_gate, NULL));
        OK(symm_cu.cuLaunchKernelEx(&config, (cu_function)kernel, args, NULL));
        attr.value.programmatic_serialization = value = step = 77;
        OK(symm_cu.cuLaunchHostFunc(s, note_host, &mark));
        OK(launch(s, 5));
        T_EQ(symm_cu.cuStreamQuery(s), queued ? SYMM_CUDA_ERROR_NOT_READY : 0);
        __atomic_store_n(&gate, 1, __ATOMIC_RELEASE);
        OK(symm_cu.cuStreamSynchronize(s));
        OK(symm_cu.cuStreamQuery(s));
        T_CHECK(seen_count == 3 && seen[0] == 22 && seen[1] == -3 && seen[2] == 5);
        OK(symm_cu.cuStreamDestroy(s));
        T_EQ(symm_cu.cuStreamDestroy(s), SYMM_CUDA_ERROR_INVALID_HANDLE);
        done();
    }
}

static void bad_launches_are_refused(void) {
    start(0);
    cu_launch_config config = {1, 1, 1, 1025, 1, 1, 0, NULL, NULL, 0};
    int value = 1;
    char step = 1;
    void *args[] = {&value, &step};
    T_EQ(symm_cu.cuLaunchKernelEx(&config, (cu_function)kernel, args, NULL), 1);
    config.block_x = 0;
    T_EQ(symm_cu.cuLaunchKernelEx(&config, (cu_function)kernel, args, NULL), 1);
    config.block_x = 1;
    config.grid_x = 0;
    T_EQ(symm_cu.cuLaunchKernelEx(&config, (cu_function)kernel, args, NULL), 1);
    config.grid_x = 1;
    T_EQ(symm_cu.cuLaunchKernelEx(&config, (cu_function)&value, args, NULL), 400);
    T_EQ(symm_cu.cuLaunchKernelEx(&config, (cu_function)kernel, NULL, NULL), 1);
    config.stream = (cu_stream)&value;
    T_EQ(symm_cu.cuLaunchKernelEx(&config, (cu_function)kernel, args, NULL), 400);
    T_EQ(seen_count, 0);
    fake_cuda_fail("cuLaunchKernelEx", 2, 719);
    OK(launch(NULL, 1));
    T_EQ(launch(NULL, 2), 719);
    OK(launch(NULL, 3));
    T_CHECK(seen_count == 2 && seen[1] == 3);
    done();
}

static void events_order_streams(void) {
    cu_event a, b;
    float ms = -1;
    start(1);
    cu_stream first = stream_of(0), second = stream_of(0);
    OK(symm_cu.cuEventCreate(&a, SYMM_CUDA_EVENT_DEFAULT));
    OK(symm_cu.cuEventCreate(&b, SYMM_CUDA_EVENT_DEFAULT));
    OK(symm_cu.cuStreamWaitEvent(second, a, 0)); /* never recorded: nothing to wait for */
    OK(symm_cu.cuLaunchHostFunc(first, wait_for_gate, NULL));
    OK(launch(first, 1));
    OK(symm_cu.cuEventRecord(a, first));
    OK(symm_cu.cuStreamWaitEvent(second, a, 0));
    OK(launch(second, 2));
    OK(symm_cu.cuEventRecord(b, second));
    T_EQ(symm_cu.cuEventQuery(b), SYMM_CUDA_ERROR_NOT_READY);
    T_EQ(symm_cu.cuEventElapsedTime(&ms, a, b), SYMM_CUDA_ERROR_NOT_READY);
    usleep(20000);
    T_EQ(seen_count, 0); /* the second waits for the first */
    __atomic_store_n(&gate, 1, __ATOMIC_RELEASE);
    OK(symm_cu.cuEventSynchronize(b));
    OK(symm_cu.cuEventQuery(a));
    OK(symm_cu.cuEventElapsedTime(&ms, a, b));
    T_CHECK(ms >= 0 && seen_count == 2 && seen[0] == 1 && seen[1] == 2);
    OK(symm_cu.cuEventDestroy(a));
    OK(symm_cu.cuEventDestroy(b));
    OK(symm_cu.cuStreamDestroy(first));
    OK(symm_cu.cuStreamDestroy(second));
    done();
}

static int destroyed;
/* Who waits for an event waits for its last record at that time, though it is recorded again on
 * another stream that comes to it before. */
static void an_event_is_recorded_again_elsewhere(void) {
    cu_event e;
    start(1);
    cu_stream first = stream_of(0), second = stream_of(0), third = stream_of(0);
    OK(symm_cu.cuEventCreate(&e, SYMM_CUDA_EVENT_DISABLE_TIMING));
    OK(symm_cu.cuLaunchHostFunc(first, wait_for_gate, NULL));
    OK(launch(first, 1));
    OK(symm_cu.cuEventRecord(e, first));
    OK(symm_cu.cuStreamWaitEvent(second, e, 0));
    OK(launch(second, 2));
    OK(symm_cu.cuEventRecord(e, third));
    OK(symm_cu.cuEventSynchronize(e)); /* the third has come to it */
    usleep(20000);
    T_EQ(seen_count, 0);
    __atomic_store_n(&gate, 1, __ATOMIC_RELEASE);
    OK(symm_cu.cuStreamSynchronize(second));
    OK(symm_cu.cuEventQuery(e)); /* the first one's late record takes nothing back */
    T_CHECK(seen_count == 2 && seen[0] == 1 && seen[1] == 2);
    OK(symm_cu.cuEventDestroy(e));
    OK(symm_cu.cuStreamDestroy(first));
    OK(symm_cu.cuStreamDestroy(second));
    OK(symm_cu.cuStreamDestroy(third));
    done();
}

static void count_destroyed(void *arg) {
    destroyed += *(int *)arg;
}

static void a_graph_replays_and_holds_its_objects(void) {
    cu_graph graph, now;
    cu_graph_exec exec;
    cu_user_object object;
    int one = 1, status;
    uint64_t id;
    for (int queued = 0; queued < 2; queued++) {
        start(queued);
        destroyed = 0;
        cu_stream s = stream_of(SYMM_CUDA_STREAM_NON_BLOCKING);
        OK(symm_cu.cuStreamBeginCapture(s, SYMM_CUDA_CAPTURE_MODE_GLOBAL));
        OK(launch(s, 1));
        OK(symm_cuda_capture_info(s, &status, &id, &now));
        OK(symm_cu.cuUserObjectCreate(&object, &one, count_destroyed, 1,
                                      SYMM_CUDA_USER_OBJECT_NO_DESTRUCTOR_SYNC));
        OK(symm_cu.cuGraphRetainUserObject(now, object, 1, SYMM_CUDA_GRAPH_USER_OBJECT_MOVE));
        OK(launch(s, 2));
        OK(symm_cu.cuStreamEndCapture(s, &graph));
        T_EQ(seen_count, 0);
        OK(symm_cu.cuGraphInstantiate(&exec, graph, 0));
        OK(symm_cu.cuGraphDestroy(graph));
        T_EQ(destroyed, 0); /* the executable holds it */
        if (queued) OK(symm_cu.cuLaunchHostFunc(s, wait_for_gate, NULL));
        for (int i = 0; i < 3; i++) OK(symm_cu.cuGraphLaunch(exec, s));
        OK(symm_cu.cuGraphExecDestroy(exec));
        T_EQ(destroyed, !queued); /* what has not run yet holds it too */
        __atomic_store_n(&gate, 1, __ATOMIC_RELEASE);
        OK(symm_cu.cuStreamSynchronize(s));
        T_EQ(destroyed, 1);
        T_EQ(seen_count, 6);
        for (int i = 0; i < 6; i++) T_EQ(seen[i], i % 2 + 1);
        OK(symm_cu.cuStreamDestroy(s));
        done();
    }
}

static void capture_spreads_over_events_and_must_be_joined(void) {
    cu_graph graph;
    cu_event fork, join;
    start(0);
    cu_stream s = stream_of(1), side = stream_of(1);
    OK(symm_cu.cuEventCreate(&fork, SYMM_CUDA_EVENT_DISABLE_TIMING));
    OK(symm_cu.cuEventCreate(&join, SYMM_CUDA_EVENT_DISABLE_TIMING));
    for (int joined = 1; joined >= 0; joined--) {
        OK(symm_cu.cuStreamBeginCapture(s, SYMM_CUDA_CAPTURE_MODE_THREAD_LOCAL));
        OK(launch(s, 1));
        OK(symm_cu.cuEventRecord(fork, s));
        OK(symm_cu.cuStreamWaitEvent(side, fork, 0));
        OK(launch(side, 2));
        T_EQ(symm_cu.cuEventQuery(fork), SYMM_CUDA_ERROR_CAPTURED_EVENT);
        T_EQ(symm_cu.cuStreamEndCapture(side, &graph), SYMM_CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
        OK(symm_cu.cuEventRecord(join, side));
        if (joined) OK(symm_cu.cuStreamWaitEvent(s, join, 0));
        T_EQ(symm_cu.cuStreamEndCapture(s, &graph),
             joined ? 0 : SYMM_CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
        T_EQ(graph != NULL, joined);
        if (graph) OK(symm_cu.cuGraphDestroy(graph));
    }
    T_EQ(seen_count, 0);
    OK(launch(side, 9)); /* no stream is captured any more */
    T_EQ(seen_count, 1);
    OK(symm_cu.cuEventDestroy(fork));
    OK(symm_cu.cuEventDestroy(join));
    OK(symm_cu.cuStreamDestroy(s));
    OK(symm_cu.cuStreamDestroy(side));
    done();
}

static void what_capture_forbids_spoils_it(void) {
    cu_deviceptr va;
    cu_graph graph;
    int status;
    start(0);
    cu_stream s = stream_of(SYMM_CUDA_STREAM_NON_BLOCKING), blocking = stream_of(0);
    for (int way = 0; way < 4; way++) {
        cu_stream captured = way == 3 ? blocking : s;
        OK(symm_cu.cuStreamBeginCapture(captured, SYMM_CUDA_CAPTURE_MODE_GLOBAL));
        if (way == 0) T_EQ(symm_cu.cuMemAlloc(&va, 64), SYMM_CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        if (way == 1)
            T_EQ(symm_cu.cuStreamSynchronize(s), SYMM_CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        if (way == 2) T_EQ(symm_cu.cuCtxSynchronize(), SYMM_CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        if (way == 3) T_EQ(launch(NULL, 1), SYMM_CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
        OK(symm_cu.cuStreamIsCapturing(captured, &status));
        T_EQ(status, SYMM_CUDA_CAPTURE_INVALIDATED);
        T_EQ(launch(captured, 2), SYMM_CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
        T_EQ(symm_cu.cuStreamEndCapture(captured, &graph),
             SYMM_CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
        T_CHECK(!graph);
    }
    T_EQ(seen_count, 0);
    OK(launch(s, 3));
    T_EQ(seen_count, 1);
    OK(symm_cu.cuStreamDestroy(s));
    OK(symm_cu.cuStreamDestroy(blocking));
    done();
}

static void memory_of_the_host_is_registered_once(void) {
    static char page[8192];
    cu_deviceptr va = 0;
    start(0);
    T_EQ(symm_cu.cuMemHostGetDevicePointer(&va, page, 0), 1);
    OK(symm_cu.cuMemHostRegister(page, 4096, SYMM_CUDA_HOST_PORTABLE | SYMM_CUDA_HOST_DEVICEMAP));
    T_EQ(symm_cu.cuMemHostRegister(page + 100, 1, 0),
         SYMM_CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
    OK(symm_cu.cuMemHostGetDevicePointer(&va, page + 8, 0));
    OK(symm_cu.cuMemsetD8(va, 7, 3));
    T_CHECK(page[7] == 0 && page[8] == 7 && page[10] == 7 && page[11] == 0);
    T_EQ(symm_cu.cuMemsetD8(va, 7, 8192), 1); /* past its end */
    OK(symm_cu.cuMemHostUnregister(page));
    T_EQ(symm_cu.cuMemHostUnregister(page), SYMM_CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
    done();
}

/* ---- multicast objects ---- */

/* As CUDA: what was created for one handle type is exported as that alone, by its maker and by who
 * has imported it. */
static void an_object_is_exported_as_what_it_was_made_for(void) {
    static const int types[] = {SYMM_CUDA_HANDLE_FD, SYMM_CUDA_HANDLE_FABRIC};
    fake_cuda_config config = fake_cuda_defaults();
    config.fabric_attr = 1, config.fabric_code = 0;
    fake_cuda_install(&config);
    int device;
    T_OK(symm_cuda_current(&device));
    T_CHECK(!symm_cuda_multicast_load());
    for (int is = 0; is < 2; is++) {
        const cu_multicast_prop prop = {
            .devices = 2, .bytes = 4ull << 20, .handle_types = (unsigned)types[is]};
        cu_mem_handle made, got;
        OK(symm_cu_multicast.cuMulticastCreate(&made, &prop));
        for (int who = 0; who < 2; who++) {
            cu_fabric_handle shared = {{0}}, none = {{0}}, untouched = {{0}};
            const cu_mem_handle h = who ? got : made;
            T_EQ(symm_cu.cuMemExportToShareableHandle(&none, h, types[!is], 0),
                 SYMM_CUDA_ERROR_INVALID_VALUE);
            T_CHECK(!memcmp(&none, &untouched, sizeof none));
            OK(symm_cu.cuMemExportToShareableHandle(&shared, h, types[is], 0));
            int fd = -1;
            memcpy(&fd, &shared, sizeof fd);
            if (!who)
                OK(symm_cu.cuMemImportFromShareableHandle(
                    &got, is ? (void *)&shared : (void *)(intptr_t)fd, types[is]));
            if (!is) T_EQ(close(fd), 0);
        }
        OK(symm_cu.cuMemRelease(got));
        OK(symm_cu.cuMemRelease(made));
    }
    T_EQ(fake_cuda_live(), 0);
}

T_MAIN(T(launches_take_copies_and_keep_order), T(bad_launches_are_refused), T(events_order_streams),
       T(an_event_is_recorded_again_elsewhere), T(a_graph_replays_and_holds_its_objects),
       T(capture_spreads_over_events_and_must_be_joined), T(what_capture_forbids_spoils_it),
       T(memory_of_the_host_is_registered_once), T(an_object_is_exported_as_what_it_was_made_for))
