/* unit_cuda_share.c - the CUDA memory driver on the fake CUDA driver: handing memory on, memory of
 * other allocators, every refusal of every call. The rules of vmm.h: unit_cuda_vmm.c. */
#define _GNU_SOURCE 1
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/stats.h"
#include "fake_cuda.h"
#include "t.h"
#include "transport/cuda/cuda_device.h"
#include "transport/vmm/vmm.h"

#define G              (2ull << 20)
#define V              (&symm_vmm_cuda)
#define IS(call, code) T_EQ((call), SYMM_CU_##code)
#define DONE(call)     IS(call, SUCCESS)

static uint8_t *at(void *va, uint64_t offset) {
    return (uint8_t *)va + offset;
}

static void *reserved(uint64_t bytes) {
    void *va = NULL;
    DONE(V->reserve(bytes, 0, &va));
    return va;
}

static symm_vmm_handle *created(uint64_t bytes) {
    symm_vmm_handle *h = NULL;
    DONE(V->create(bytes, &h));
    return h;
}

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

/* ---- handing on ----------------------------------------------------------------------------- */

static void export_and_import_give_the_same_memory(void) {
    uint64_t bytes, id[2], other[2];
    int fd = -1;
    symm_vmm_handle *h = created(2 * G), *got = NULL;
    IS(V->export_fd(h, NULL), INVALID_VALUE);
    DONE(V->export_fd(h, &fd));
    T_CHECK(fd > 2 && (fcntl(fd, F_GETFD) & FD_CLOEXEC));
    IS(V->import_fd(fd, 2 * G, NULL), INVALID_VALUE);
    DONE(V->import_fd(fd, 2 * G, &got));
    T_CHECK(fcntl(fd, F_GETFD) >= 0); /* stays the caller's */
    close(fd);
    T_CHECK(got != h);
    DONE(V->identify(got, &bytes, other));
    T_EQ(bytes, 2 * G);
    DONE(V->identify(h, &bytes, id));
    IS(V->identify(h, NULL, id), INVALID_VALUE);
    IS(V->identify(h, &bytes, NULL), INVALID_VALUE);
    uint8_t *a = mapped(h, 2 * G), *b = mapped(got, 2 * G);
    *(volatile uint8_t *)(a + G + 3) = 33;
    T_EQ(*(volatile uint8_t *)(b + G + 3), 33);
    DONE(V->release(h));
    DONE(V->release(got));
    unmapped(a, 2 * G);
    T_EQ(b[G + 3], 33);
    unmapped(b, 2 * G);
    NOTHING_LEFT();
}

static void equal_memory_has_equal_identity(void) {
    uint64_t bytes, id[2], again[2], third[2], size;
    void *base;
    symm_vmm_handle *h = created(G), *other = created(G), *back;
    void *va = mapped(h, G);
    DONE(V->identify(h, &bytes, id));
    DONE(V->identify(other, &bytes, third));
    T_CHECK(id[0] != third[0] || id[1] != third[1]);
    DONE(V->release(h));
    DONE(V->retain(va, &back, &base, &size));
    DONE(V->identify(back, &bytes, again));
    T_CHECK(again[0] == id[0] && again[1] == id[1]);
    T_CHECK(base == va && size == G && bytes == G);
    DONE(V->release(back));
    DONE(V->release(other));
    unmapped(va, G);
    NOTHING_LEFT();
}

static void import_refuses_what_is_no_memory(void) {
    symm_vmm_handle *h = NULL;
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    IS(V->import_fd(-1, G, &h), INVALID_VALUE);
    IS(V->import_fd(1 << 20, G, &h), INVALID_VALUE);
    T_EQ(symm_vmm_cuda_errno(), EBADF);
    IS(V->import_fd(null, G, &h), INVALID_VALUE);
    IS(V->import_fd(null, 0, &h), INVALID_VALUE);
    IS(V->import_fd(null, G + 1, &h), INVALID_VALUE);
    IS(V->import_fd(null, UINT64_MAX - G + 1, &h), INVALID_VALUE);
    close(null);
    T_CHECK(!h);
    NOTHING_LEFT();
}

/* CUDA tells no size, but it maps no more than there is. */
static void an_imported_size_is_checked_by_map(void) {
    symm_vmm_handle *h = created(G), *got = NULL;
    void *va = reserved(2 * G);
    int fd = -1;
    DONE(V->export_fd(h, &fd));
    DONE(V->import_fd(fd, 2 * G, &got));
    IS(V->map(va, 2 * G, 0, got), INVALID_VALUE);
    IS(V->map(va, G, 0, got), NOT_SUPPORTED);
    T_EQ(SYMM_STAT_GET(maps), 0);
    close(fd);
    DONE(V->release(got));
    DONE(V->release(h));
    DONE(V->unreserve(va, 2 * G));
    NOTHING_LEFT();
}

static void a_descriptor_never_takes_a_stdio_number(void) {
    int fd = -1, keep = fcntl(0, F_DUPFD_CLOEXEC, 10);
    symm_vmm_handle *h = created(G);
    close(0);
    DONE(V->export_fd(h, &fd));
    T_CHECK(fd > 2 && (fcntl(fd, F_GETFD) & FD_CLOEXEC));
    T_EQ(fcntl(0, F_GETFD), -1);
    close(fd);
    DONE(V->release(h));
    T_EQ(dup2(keep, 0), 0);
    close(keep);
}

static void the_limit_of_fds_is_named(void) {
    struct rlimit limit;
    int fd = -7, taken[64], n = 0;
    symm_vmm_handle *h = created(G);
    T_EXPECT_WARNINGS();
    T_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
    limit.rlim_cur = 32;
    T_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
    while (n < 64 && (taken[n] = fcntl(1, F_DUPFD_CLOEXEC, 3)) >= 0) n++;
    IS(V->export_fd(h, &fd), OS_ERROR);
    T_EQ(fd, -7);
    T_ERR(symm_vmm_error(V, SYMM_CU_OS_ERROR, "export"), symmFdLimit);
    T_MSG(symm_status_text(), "memory driver cuda: export: operating system error (304): Too many");
    while (n > 0) close(taken[--n]);
    DONE(V->export_fd(h, &fd));
    close(fd);
    DONE(V->release(h));
}

static void importer(int rank, int n, void *arg) {
    int *shared = arg; /* the descriptor is inherited, as good as sent */
    (void)rank, (void)n;
    symm_vmm_handle *h = NULL;
    DONE(V->import_fd(shared[0], G, &h));
    volatile uint32_t *va = mapped(h, G);
    DONE(V->release(h));
    T_EQ(va[1], 41);
    va[1] = 42;
    unmapped((void *)va, G);
}

static void another_process_sees_the_bytes(void) {
    int *shared = T_SHARED(sizeof *shared);
    symm_vmm_handle *h = created(G);
    volatile uint32_t *va = mapped(h, G);
    va[1] = 41;
    DONE(V->export_fd(h, &shared[0]));
    T_FORK(1, importer, shared);
    close(shared[0]);
    T_EQ(va[1], 42);
    DONE(V->release(h));
    unmapped((void *)va, G);
    NOTHING_LEFT();
}

/* ---- memory of others ----------------------------------------------------------------------- */

static void other_memory_is_an_invalid_value(void) {
    symm_vmm_handle *h = NULL;
    cu_deviceptr plain = 0;
    void *base = NULL, *pinned = NULL;
    uint64_t bytes = 0;
    int device;
    T_OK(symm_cuda_current(&device));
    T_EQ(symm_cu.cuMemAlloc(&plain, 100), 0);
    T_EQ(symm_cu.cuMemAllocHost(&pinned, 100), 0);
    const void *all[] = {(void *)(uintptr_t)plain, pinned, &h, NULL, (void *)-1};
    const int codes[] = {1, 400, 500, 801}; /* drivers differ in what they call it */
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        IS(V->retain(all[i], &h, &base, &bytes), INVALID_VALUE);
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
        fake_cuda_fail("cuMemRetainAllocationHandle", 1, codes[i]);
        IS(V->retain(all[0], &h, &base, &bytes), INVALID_VALUE);
    }
    fake_cuda_fail("cuMemRetainAllocationHandle", 1, 700); /* this is not about the pointer */
    T_EQ(V->retain(all[0], &h, &base, &bytes), 700);
    T_CHECK(!h && !base && !bytes);
    T_EQ(symm_cu.cuMemFree(plain), 0);
    T_EQ(symm_cu.cuMemFreeHost(pinned), 0);
    NOTHING_LEFT();
}

/* As another allocator makes it: with CUDA itself, two pieces in one reservation. */
static cu_deviceptr foreign(int types, cu_mem_handle raw[2]) {
    const cu_mem_access access = {{SYMM_CUDA_LOCATION_DEVICE, 0}, SYMM_CUDA_ACCESS_READWRITE};
    cu_mem_prop prop = {.type = SYMM_CUDA_MEM_PINNED, .handle_types = types};
    cu_deviceptr va = 0;
    prop.location.type = SYMM_CUDA_LOCATION_DEVICE;
    T_EQ(symm_cu.cuMemAddressReserve(&va, 2 * G, 0, 0, 0), 0);
    for (uint64_t i = 0; i < 2; i++) {
        T_EQ(symm_cu.cuMemCreate(&raw[i], G, &prop, 0), 0);
        T_EQ(symm_cu.cuMemMap(va + i * G, G, 0, raw[i], 0), 0);
    }
    T_EQ(symm_cu.cuMemSetAccess(va, 2 * G, &access, 1), 0);
    return va;
}

static void drop_foreign(cu_deviceptr va, const cu_mem_handle raw[2]) {
    for (uint64_t i = 0; i < 2; i++) {
        T_EQ(symm_cu.cuMemUnmap(va + i * G, G), 0);
        T_EQ(symm_cu.cuMemRelease(raw[i]), 0);
    }
    T_EQ(symm_cu.cuMemAddressFree(va, 2 * G), 0);
}

static void memory_of_another_allocator_is_found_piece_by_piece(void) {
    symm_vmm_handle *h[2], *no = NULL;
    cu_mem_handle raw[2];
    void *base;
    uint64_t bytes;
    int fd;
    cu_deviceptr va = foreign(SYMM_CUDA_HANDLE_FD, raw);
    for (uint64_t i = 0; i < 2; i++) {
        DONE(V->retain(at((void *)(uintptr_t)va, i * G + 5), &h[i], &base, &bytes));
        T_CHECK(base == (void *)(uintptr_t)(va + i * G) && bytes == G);
        DONE(V->export_fd(h[i], &fd));
        close(fd);
        DONE(V->set_access(base, bytes)); /* devices may be in use that it was not made for */
        IS(V->set_access(at(base, 4096), bytes - 4096), INVALID_VALUE);
    }
    IS(V->set_access((void *)(uintptr_t)va, 2 * G), INVALID_VALUE); /* two of them */
    void *alias = mapped(h[1], G);
    *(volatile uint32_t *)(uintptr_t)(va + G) = 5;
    T_EQ(*(volatile uint32_t *)alias, 5);
    unmapped(alias, G);
    for (int i = 0; i < 2; i++) DONE(V->release(h[i]));
    IS(V->unmap((void *)(uintptr_t)va, G), INVALID_VALUE); /* not ours to unmap */
    drop_foreign(va, raw);
    va = foreign(SYMM_CUDA_HANDLE_NONE, raw); /* cannot be handed on */
    IS(V->retain((void *)(uintptr_t)va, &no, &base, &bytes), INVALID_VALUE);
    T_CHECK(!no);
    drop_foreign(va, raw);
    NOTHING_LEFT();
}

/* ---- every refusal of every call ------------------------------------------------------------ */

/* All calls of the driver; the first refusal ends it, undone as far as it came. */
static int everything(void) {
    symm_vmm_caps caps;
    symm_vmm_handle *h = NULL, *back = NULL, *got = NULL;
    void *va = NULL, *base;
    uint64_t bytes, id[2];
    uint32_t word;
    int fd = -1, is_mapped = 0, undone = 0, cu = V->query(&caps);
    if (!cu) cu = V->create(G, &h);
    if (!cu) cu = V->reserve(G, 0, &va);
    if (!cu) is_mapped = (cu = V->map(va, G, 0, h)) == 0;
    if (!cu) cu = V->set_access(va, G);
    if (!cu) cu = V->fill(va, G, 3);
    if (!cu) cu = V->copy(&word, va, sizeof word);
    if (!cu) T_EQ(word, 3);
    if (!cu) cu = V->retain(va, &back, &base, &bytes);
    if (!cu) cu = V->export_fd(h, &fd);
    if (!cu) cu = V->import_fd(fd, G, &got);
    if (!cu) cu = V->identify(got, &bytes, id);
    if (fd >= 0) close(fd);
    symm_vmm_handle *const all[] = {h, back, got};
    for (int i = 0; i < 3; i++)
        if (all[i] && (undone = V->release(all[i])) && !cu) cu = undone;
    if (is_mapped && (undone = V->unmap(va, G))) {
        if (!cu) cu = undone;
        DONE(V->unmap(va, G)); /* nothing had changed */
    }
    if (va && (undone = V->unreserve(va, G))) {
        if (!cu) cu = undone;
        DONE(V->unreserve(va, G));
    }
    return cu;
}

/* Calls whose refusal may change nothing: those whose answer has a default, and those that put back
 * what was current. */
static int may_pass(const char *call) {
    const char *const names[] = {"cuDeviceGetCount",
                                 "cuGetErrorName",
                                 "cuMemGetAllocationPropertiesFromHandle",
                                 "cuThreadExchangeStreamCaptureMode",
                                 "cuCtxPopCurrent",
                                 "cuMemRelease",
                                 "cuMemAddressFree"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(call, names[i]) == 0) return 1;
    return 0;
}

/* Calls by which retain finds out whose memory it is: what they refuse is somebody else's. */
static int says_whose(const char *call) {
    return strcmp(call, "cuMemRetainAllocationHandle") == 0 ||
           strcmp(call, "cuMemGetAllocationPropertiesFromHandle") == 0;
}

/* What CUDA refuses to take back while new memory is cleared, or a handle that it does not release,
 * cannot be given back by anybody: the range with its mapping and its memory. */
static int lost_with(const char *call) {
    if (strcmp(call, "cuMemUnmap") == 0) return 3;
    return strcmp(call, "cuMemRelease") == 0 || strcmp(call, "cuMemAddressFree") == 0;
}

/* Fails each call that `everything` makes, the first time, the second, ... once the device has been
 * probed and the stream is there. */
static void each_refusal_is_passed_on_and_leaves_nothing(void) {
    const int codes[] = {2, 201, 700, 800, 801, 999};
    int tried = 0;
    DONE(everything());
    for (int i = 0; fake_cuda_call_name(i); i++) {
        const char *call = fake_cuda_call_name(i);
        int before = fake_cuda_calls(call);
        DONE(everything());
        int times = fake_cuda_calls(call) - before, alive = fake_cuda_live();
        for (int nth = 1; nth <= times; nth++) {
            int code = codes[tried++ % 6], lost = lost_with(call);
            fake_cuda_fail(call, nth, code);
            int got = everything();
            T_CHECKF(got == code || (got == 0 && may_pass(call)) ||
                         (got == SYMM_CU_INVALID_VALUE && says_whose(call)),
                     "%s, call %d, refused with %d: %d", call, nth, code, got);
            fake_cuda_fail(call, 0, 0);
            T_CHECKF(fake_cuda_live() <= alive + lost,
                     "%s, call %d, refused with %d: %d objects left", call, nth, code,
                     fake_cuda_live() - alive);
            T_EQ(SYMM_STAT_GET(handles) + SYMM_STAT_GET(maps) + SYMM_STAT_GET(va_bytes), 0);
            alive = fake_cuda_live();
        }
    }
    T_CHECKF(tried > 30, "only %d refusals", tried);
    fake_cuda_install(NULL); /* drops what was lost */
}

static void refusals_say_what_cuda_said(void) {
    T_EXPECT_WARNINGS();
    T_ERR(symm_vmm_error(V, 700, "fill of %d bytes", 8), symmUnhandledCudaError);
    T_STREQ(symm_status_text(),
            "memory driver cuda: fill of 8 bytes: CUDA_ERROR_ILLEGAL_ADDRESS (700)");
    T_ERR(symm_vmm_error(V, 214, "map"), symmUnhandledCudaError);
    T_MSG(symm_status_text(), "CUDA_ERROR_ECC_UNCORRECTABLE (214)");
    T_ERR(symm_vmm_error(V, 1234567, "map"), symmUnhandledCudaError);
    T_MSG(symm_status_text(), "map: error (1234567)");
    T_STREQ(symm_vmm_code_name(719), "CUDA_ERROR_LAUNCH_FAILED");
}

static void without_cuda_every_call_says_so(void) {
    fake_cuda_config config = fake_cuda_defaults();
    symm_vmm_caps caps;
    symm_vmm_handle *h = NULL;
    void *va = NULL;
    uint64_t bytes, id[2];
    uint32_t word = 0;
    int fd;
    config.init_code = SYMM_CUDA_ERROR_NO_DEVICE;
    fake_cuda_install(&config);
    void *some = (void *)(uintptr_t)(8 * G);
    const int codes[] = {V->query(&caps),
                         V->reserve(G, 0, &va),
                         V->unreserve(some, G),
                         V->create(G, &h),
                         V->retain(some, &h, &va, &bytes),
                         V->release(h),
                         V->export_fd(h, &fd),
                         V->import_fd(0, G, &h),
                         V->identify(h, &bytes, id),
                         V->map(some, G, 0, h),
                         V->set_access(some, G),
                         V->unmap(some, G),
                         V->fill(some, G, 1),
                         V->copy(some, &word, 4)};
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++)
        T_EQ(codes[i], SYMM_CU_NOT_INITIALIZED);
    T_EXPECT_WARNINGS();
    T_ERR(symm_vmm_error(V, codes[0], "query"), symmNotSupported);
    T_STREQ(symm_status_text(), "memory driver cuda: query: not initialised (3): no CUDA: cuInit: "
                                "CUDA_ERROR_NO_DEVICE (100)");
}

/* Each test's process inherits the installed driver. */
int main(int argc, char **argv) {
    static const t_test tests[] = {T(export_and_import_give_the_same_memory),
                                   T(equal_memory_has_equal_identity),
                                   T(import_refuses_what_is_no_memory),
                                   T(an_imported_size_is_checked_by_map),
                                   T(a_descriptor_never_takes_a_stdio_number),
                                   T(the_limit_of_fds_is_named),
                                   T(another_process_sees_the_bytes),
                                   T(other_memory_is_an_invalid_value),
                                   T(memory_of_another_allocator_is_found_piece_by_piece),
                                   T(each_refusal_is_passed_on_and_leaves_nothing),
                                   T(refusals_say_what_cuda_said),
                                   T(without_cuda_every_call_says_so)};
    fake_cuda_install(NULL);
    return t_main(argc, argv, tests, (int)(sizeof tests / sizeof *tests));
}
