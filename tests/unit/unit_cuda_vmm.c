/* unit_cuda_vmm.c - the CUDA memory driver on the fake CUDA driver: the rules of vmm.h, and what is
 * CUDA's alone: what a device can do, contents, several devices. Handing on and refusals:
 * unit_cuda_share.c. */
#define _GNU_SOURCE 1
#include <stdio.h>

#include "fake_cuda.h"
#include "transport/cuda/cuda_device.h"

#define V              (&symm_vmm_cuda)
#define SAYS_ERRNO     (-1)
#define MAPPINGS_COUNT 0
#include "vmm_rules.inl"

static void *mapped(symm_vmm_handle *h, uint64_t bytes) {
    void *va = reserved(bytes);
    DONE(V->map(va, bytes, 0, h));
    DONE(V->set_access(va, bytes));
    return va;
}

static void unmapped(void *va, uint64_t bytes) {
    DONE(V->unmap(va, bytes));
    DONE(V->unreserve(va, bytes));
}

/* What the library keeps of CUDA's to the end of the process: a stream, once it has filled
 * something. */
static int kept(void) {
    return fake_cuda_calls("cuStreamCreate");
}

#define NOTHING_LEFT() T_EQ(fake_cuda_live(), kept())

/* ---- what a device can do ------------------------------------------------------------------- */

static void query_describes_the_device(void) {
    symm_vmm_caps caps;
    IS(V->query(NULL), INVALID_VALUE);
    T_OK(symm_cuda_set(1));
    DONE(V->query(&caps));
    T_STREQ(caps.name, "cuda");
    T_STREQ(V->name, "cuda");
    T_EQ(caps.device, 1);
    T_EQ(caps.granularity, G);
    T_EQ(caps.device_bytes, 1ull << 30);
    T_EQ(caps.fd_handles, 1);
    T_EQ(caps.fabric_handles, 0);
    T_STREQ(caps.fabric_reason, "the device has no fabric handles");
    int creations = fake_cuda_calls("cuMemCreate");
    T_CHECK(creations > 0); /* it was tried */
    DONE(V->query(&caps));
    T_EQ(fake_cuda_calls("cuMemCreate"), creations); /* once */
    NOTHING_LEFT();
}

static symm_vmm_caps caps_of(fake_cuda_config config) {
    symm_vmm_caps caps;
    fake_cuda_install(&config);
    DONE(V->query(&caps));
    NOTHING_LEFT();
    return caps;
}

static void fabric_handles_are_tried_not_believed(void) {
    fake_cuda_config config = fake_cuda_defaults();
    config.fabric_attr = 1; /* it says yes, and creation is refused */
    symm_vmm_caps caps = caps_of(config);
    T_EQ(caps.fabric_handles, 0);
    T_STREQ(caps.fabric_reason, "creation refused: CUDA_ERROR_NOT_PERMITTED (800)");
    T_EQ(caps.fd_handles, 1);
    config.fabric_code = 0;
    caps = caps_of(config);
    T_EQ(caps.fabric_handles, 1);
    T_STREQ(caps.fabric_reason, "");
    config.version = 12000; /* does not know the attribute */
    caps = caps_of(config);
    T_EQ(caps.fabric_handles, 0);
    T_STREQ(caps.fabric_reason, "the device has no fabric handles");
}

/* The first export of a probe is the descriptor's. */
static void fabric_steps_that_are_refused_are_named(void) {
    fake_cuda_config config = fake_cuda_defaults();
    symm_vmm_caps caps;
    config.fabric_attr = 1;
    config.fabric_code = 0;
    const struct {
        const char *call, *reason;
        int nth;
    } steps[] = {
        {"cuMemGetAllocationGranularity", "granularity refused: CUDA_ERROR_NOT_SUPPORTED (801)", 3},
        {"cuMemCreate", "creation refused: CUDA_ERROR_NOT_SUPPORTED (801)", 2},
        {"cuMemExportToShareableHandle", "export refused: CUDA_ERROR_NOT_SUPPORTED (801)", 2},
        {"cuMemImportFromShareableHandle", "import refused: CUDA_ERROR_NOT_SUPPORTED (801)", 2}};
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        fake_cuda_install(&config);
        fake_cuda_fail(steps[i].call, steps[i].nth, 801);
        DONE(V->query(&caps));
        T_EQ(caps.fabric_handles, 0);
        T_STREQ(caps.fabric_reason, steps[i].reason);
        T_EQ(caps.fd_handles, 1);
        NOTHING_LEFT();
    }
}

static void memory_has_the_handles_that_work(void) {
    fake_cuda_config config = fake_cuda_defaults();
    cu_mem_handle raw = 0;
    cu_mem_prop prop;
    for (int fabric = 0; fabric < 2; fabric++) {
        config.fabric_attr = 1;
        config.fabric_code = fabric ? 0 : 800;
        fake_cuda_install(&config);
        symm_vmm_handle *h = created(G);
        void *va = mapped(h, G);
        T_EQ(symm_cu.cuMemRetainAllocationHandle(&raw, va), 0);
        T_EQ(symm_cu.cuMemGetAllocationPropertiesFromHandle(&prop, raw), 0);
        T_EQ(prop.handle_types, SYMM_CUDA_HANDLE_FD | (fabric ? SYMM_CUDA_HANDLE_FABRIC : 0));
        T_EQ(symm_cu.cuMemRelease(raw), 0);
        DONE(V->release(h));
        unmapped(va, G);
        NOTHING_LEFT();
    }
}

static void a_device_without_descriptors_still_has_memory(void) {
    fake_cuda_config config = fake_cuda_defaults();
    config.fd = 0;
    symm_vmm_caps caps = caps_of(config);
    T_EQ(caps.fd_handles, 0);
    symm_vmm_handle *h = created(G);
    int fd = -1;
    IS(V->export_fd(h, &fd), INVALID_VALUE);
    T_EQ(fd, -1);
    DONE(V->release(h));
    config.vmm = 0; /* and one without virtual memory has none at all */
    fake_cuda_install(&config);
    IS(V->query(&caps), NOT_SUPPORTED);
    IS(V->create(G, &h), NOT_SUPPORTED);
    NOTHING_LEFT();
}

static void a_larger_granularity_is_kept_to(void) {
    fake_cuda_config config = fake_cuda_defaults();
    symm_vmm_handle *h = NULL;
    void *va = NULL;
    config.grain = 8 * G;
    T_EQ(caps_of(config).granularity, 8 * G);
    IS(V->create(4 * G, &h), INVALID_VALUE);
    IS(V->reserve(4 * G, 0, &va), INVALID_VALUE);
    DONE(V->create(8 * G, &h));
    va = mapped(h, 8 * G);
    T_EQ((uintptr_t)va % (8 * G), 0);
    DONE(V->release(h));
    unmapped(va, 8 * G);
    NOTHING_LEFT();
}

static void more_than_the_device_has_is_out_of_memory(void) {
    symm_vmm_handle *h = NULL, *half = created(512ull << 20);
    IS(V->create(1ull << 62, &h), OUT_OF_MEMORY);
    IS(V->create((512ull << 20) + G, &h), OUT_OF_MEMORY);
    T_CHECK(!h);
    T_EXPECT_WARNINGS();
    T_ERR(symm_vmm_error(V, SYMM_CU_OUT_OF_MEMORY, "create"), symmOutOfMemory);
    DONE(V->release(half));
    DONE(V->release(created(G)));
    NOTHING_LEFT();
}

/* ---- contents ------------------------------------------------------------------------------- */

/* One call of CUDA's, and whatever it gives. */
static void memory_as_it_is_takes_one_call(void) {
    symm_vmm_handle *h = NULL;
    DONE(V->release(created(G))); /* what is done once is done */
    const int maps = fake_cuda_calls("cuMemMap"), made = fake_cuda_calls("cuMemCreate");
    DONE(V->create_as_is(G, &h));
    T_EQ(fake_cuda_calls("cuMemMap"), maps);
    T_EQ(fake_cuda_calls("cuMemCreate"), made + 1);
    void *va = mapped(h, G);
    T_CHECK(((unsigned char *)va)[G / 2] != 0);
    IS(V->create_as_is(G + 1, &h), INVALID_VALUE);
    IS(V->create_as_is(G, NULL), INVALID_VALUE);
    DONE(V->release(h));
    unmapped(va, G);
    NOTHING_LEFT();
}

/* The fake driver's new memory is not. */
static void new_memory_is_clear(void) {
    symm_vmm_handle *h = created(4 * G);
    uint8_t *va = mapped(h, 4 * G);
    for (uint64_t i = 0; i < 4 * G; i += 8) T_EQ(*(uint64_t *)(va + i), 0);
    DONE(V->release(h));
    unmapped(va, 4 * G);
}

static void contents_need_access(void) {
    void *va = reserved(G);
    symm_vmm_handle *h = created(G);
    uint32_t word = 5;
    IS(V->fill(va, 4, 1), INVALID_VALUE);
    DONE(V->map(va, G, 0, h));
    IS(V->fill(va, 4, 1), INVALID_VALUE);
    IS(V->copy(&word, va, 4), INVALID_VALUE);
    IS(V->copy(va, &word, 4), INVALID_VALUE);
    DONE(V->set_access(va, G));
    DONE(V->copy(va, &word, 4));
    DONE(V->release(h));
    unmapped(va, G);
}

static volatile int spinning, go_on;
static void spin(const cu_launch_config *config, void **args) {
    (void)config, (void)args;
    __atomic_store_n(&spinning, 1, __ATOMIC_RELEASE);
    while (!__atomic_load_n(&go_on, __ATOMIC_ACQUIRE)) usleep(100);
}

/* A kernel that waits for its peers: this call may be what they wait for. */
static void contents_wait_for_no_kernel(void) {
    fake_cuda_config config = fake_cuda_defaults();
    cu_launch_config launch = {1, 1, 1, 1, 1, 1, 0, NULL, NULL, 0};
    cu_library library;
    cu_kernel kernel;
    int device;
    config.queued = 1;
    fake_cuda_install(&config);
    fake_cuda_kernel("spin", spin, 0, NULL);
    T_OK(symm_cuda_current(&device));
    T_EQ(symm_cu.cuLibraryLoadData(&library, "image", NULL, NULL, 0, NULL, NULL, 0), 0);
    T_EQ(symm_cu.cuLibraryGetKernel(&kernel, library, "spin"), 0);
    T_EQ(symm_cu.cuLaunchKernelEx(&launch, (cu_function)kernel, NULL, NULL), 0);
    while (!__atomic_load_n(&spinning, __ATOMIC_ACQUIRE)) usleep(100);
    symm_vmm_handle *h = created(G);
    uint32_t *va = mapped(h, G), word = 0;
    DONE(V->fill(va, G, 9));
    DONE(V->copy(&word, va + 1, 4));
    T_EQ(word, 9);
    DONE(V->release(h));
    unmapped(va, G);
    T_EQ(symm_cu.cuStreamQuery(NULL), SYMM_CUDA_ERROR_NOT_READY); /* it still spins */
    T_EQ(fake_cuda_calls("cuCtxSynchronize"), 0);
    __atomic_store_n(&go_on, 1, __ATOMIC_RELEASE);
    T_EQ(symm_cu.cuStreamSynchronize(NULL), 0);
    T_EQ(symm_cu.cuLibraryUnload(library), 0);
    NOTHING_LEFT();
}

static void a_capture_is_not_spoilt(void) {
    cu_stream stream;
    cu_graph graph;
    int device, status;
    T_OK(symm_cuda_current(&device));
    T_EQ(symm_cu.cuStreamCreate(&stream, SYMM_CUDA_STREAM_NON_BLOCKING), 0);
    T_EQ(symm_cu.cuStreamBeginCapture(stream, SYMM_CUDA_CAPTURE_MODE_GLOBAL), 0);
    symm_vmm_handle *h = created(G);
    void *va = mapped(h, G);
    DONE(V->fill(va, G, 9));
    T_EQ(symm_cu.cuStreamIsCapturing(stream, &status), 0);
    T_EQ(status, SYMM_CUDA_CAPTURE_ACTIVE);
    T_EQ(symm_cu.cuStreamEndCapture(stream, &graph), 0);
    T_EQ(*(uint32_t *)va, 9); /* done, not captured */
    T_EQ(symm_cu.cuGraphDestroy(graph), 0);
    T_EQ(symm_cu.cuStreamDestroy(stream), 0);
    DONE(V->release(h));
    unmapped(va, G);
    T_EQ(fake_cuda_live(), 1); /* the library's stream */
}

/* ---- several devices ------------------------------------------------------------------------ */

static void every_device_in_use_gets_access(void) {
    symm_vmm_handle *h = created(G); /* of device 0 */
    void *va = mapped(h, G);
    T_EQ(fake_cuda_access(va), 1);
    T_OK(symm_cuda_use(1));
    T_EQ(fake_cuda_access(va), 1); /* what was mapped stays as it was */
    DONE(V->set_access(va, G));
    T_EQ(fake_cuda_access(va), 3);
    void *later = mapped(h, G);
    T_EQ(fake_cuda_access(later), 3);
    DONE(V->release(h));
    unmapped(va, G);
    unmapped(later, G);
    NOTHING_LEFT();
}

static void a_device_that_cannot_reach_is_left_out(void) {
    fake_cuda_config config = fake_cuda_defaults();
    config.apart = 1;
    fake_cuda_install(&config);
    T_OK(symm_cuda_set(0));
    T_OK(symm_cuda_use(1));
    symm_vmm_handle *h = created(G);
    void *va = mapped(h, G);
    T_EQ(fake_cuda_access(va), 1);
    T_OK(symm_cuda_set(1)); /* but who asks for itself is told */
    T_EQ(V->set_access(va, G), SYMM_CUDA_ERROR_INVALID_DEVICE);
    DONE(V->release(h));
    unmapped(va, G);
    NOTHING_LEFT();
}

static void memory_is_the_current_devices(void) {
    symm_vmm_handle *h[2];
    void *va[2];
    int value;
    for (int d = 0; d < 2; d++) {
        T_OK(symm_cuda_set(d));
        h[d] = created(G);
        va[d] = mapped(h[d], G);
        T_EQ(symm_cu.cuPointerGetAttribute(&value, SYMM_CUDA_POINTER_DEVICE, (uintptr_t)va[d]), 0);
        T_EQ(value, d);
    }
    for (int d = 0; d < 2; d++) {
        DONE(V->release(h[d]));
        unmapped(va[d], G);
    }
}

/* ---- threads -------------------------------------------------------------------------------- */

static void churn(int rank, int n, void *arg) {
    symm_vmm_handle *shared = arg, *back;
    void *base;
    uint64_t bytes;
    (void)n;
    T_OK(symm_cuda_set(rank % 2));
    for (int i = 0; i < 40; i++) {
        symm_vmm_handle *h = created(G);
        void *own = mapped(h, G), *alias = mapped(shared, G);
        DONE(V->retain(alias, &back, &base, &bytes));
        T_CHECK(back == shared && base == alias && bytes == G);
        DONE(V->fill(own, 64, (uint32_t)rank));
        T_EQ(*(uint32_t *)own, rank);
        DONE(V->release(h));
        DONE(V->release(back));
        unmapped(own, G);
        unmapped(alias, G);
    }
}

static void threads_may_use_it_at_once(void) {
    symm_vmm_handle *shared = created(G);
    T_THREADS(4, churn, shared);
    DONE(V->release(shared));
    IS(V->release(shared), INVALID_HANDLE);
    NOTHING_LEFT();
    T_EQ(fake_cuda_contexts(), 2); /* one retained of each device */
}

/* Each test's process inherits the installed driver. */
int main(int argc, char **argv) {
    static const t_test tests[] = {VMM_RULES,
                                   T(query_describes_the_device),
                                   T(fabric_handles_are_tried_not_believed),
                                   T(fabric_steps_that_are_refused_are_named),
                                   T(memory_has_the_handles_that_work),
                                   T(a_device_without_descriptors_still_has_memory),
                                   T(a_larger_granularity_is_kept_to),
                                   T(more_than_the_device_has_is_out_of_memory),
                                   T(memory_as_it_is_takes_one_call),
                                   T(new_memory_is_clear),
                                   T(contents_need_access),
                                   T(contents_wait_for_no_kernel),
                                   T(a_capture_is_not_spoilt),
                                   T(every_device_in_use_gets_access),
                                   T(a_device_that_cannot_reach_is_left_out),
                                   T(memory_is_the_current_devices),
                                   T(threads_may_use_it_at_once)};
    fake_cuda_install(NULL);
    return t_main(argc, argv, tests, (int)(sizeof tests / sizeof *tests));
}
