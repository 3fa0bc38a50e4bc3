/* fault_gpu_machine.c - machines and set-ups that lack something GPUs need, on the fake CUDA
 * driver: what is said, by all ranks alike, and what goes on without. No lock. */
#define _GNU_SOURCE 1 /* strcasestr */
#include <unistd.h>

#include "fault_kit.h"
#include "fgpu_kit.h"

static symmComm_t comms[GK_RANKS];

static void refused(int n, const int *devices, symmResult_t code, const char *part) {
    fk_gauges before = fk_take();
    T_ERR(symmCommInitAll(comms, n, devices), code);
    T_MSG(symmGetLastError(NULL), part);
    FK_UNCHANGED(&before);
    GK_LEFT(0);
}

/* The same of one of the ranks that are processes. */
static void refused_rank(fk *f, int rank, int n, symmResult_t code, const char *part) {
    symmComm_t comm = NULL;
    fk_id(f, rank, n);
    T_ERR(symmCommInitRank(&comm, n, f->id, rank), code);
    T_MSG(symmGetLastError(NULL), part);
    GK_LEFT(0);
}

static void good(int n, const int *devices) {
    fk_gauges before = fk_take();
    gk_open(comms, n, devices);
    for (int r = 0; r < n; r++) {
        const int device = devices ? devices[r] : r;
        T_OK(symmBarrier(comms[r], gk_user(gk_stream(device)))); /* ranks may share a GPU */
    }
    gk_close(comms, n);
    FK_UNCHANGED(&before);
    GK_LEFT(0);
}

/* ---- kernels -------------------------------------------------------------------------------- */

/* The driver says it at one of these, as it loads early or late. */
static void no_kernel_for_this_gpu(void) {
    static const char *const calls[] = {"cuLibraryLoadData", "cuLibraryGetKernel",
                                        "cuKernelGetFunction"};
    fake_cuda_config config = gk_config(2, 0);
    T_EXPECT_WARNINGS();
    config.cc_major = 7;
    for (int i = 0; i < 3; i++) {
        gk_env("cuda");
        gk_install(&config);
        fake_cuda_fail(calls[i], 0, SYMM_CUDA_ERROR_NO_BINARY_FOR_GPU);
        refused(2, NULL, symmNotSupported, "(Fake GPU ");
        T_MSG(symmGetLastError(NULL), "compute capability 7.0): this build has no kernels for it");
        T_MSG(symmGetLastError(NULL), "make CUDA_ARCHS=70");
        fake_cuda_fail(calls[i], 1, 0);
        good(2, NULL);
    }
}

/* Kernels of the two take other ways with eight ranks, and would wait for each other. */
static void another_rank(int rank, int n, void *arg) {
    fake_cuda_config config = gk_config(n, 0);
    config.cc_major = rank == 2 ? 10 : 9;
    gk_env("cuda");
    gk_install(&config);
    T_OK(symmSetDevice(rank));
    refused_rank(arg, rank, n, symmNotSupported,
                 "rank 2's GPU is of compute capability 10.x, rank 0's of 9.x");
}
static void gpus_of_two_generations_are_refused(void) {
    T_EXPECT_WARNINGS();
    T_FORK(3, another_rank, fk_new(0, 0));
}

static void a_kernel_that_is_not_there_is_named(void) {
    const fake_cuda_config config = gk_config(2, 0);
    T_EXPECT_WARNINGS();
    gk_env("cuda");
    fake_cuda_install(&config); /* no kernels in its images */
    refused(2, NULL, symmUnhandledCudaError, "loading kernel symm_all_reduce_ll_i8_n2");
    T_MSG(symmGetLastError(NULL), "CUDA_ERROR_NOT_FOUND");
}

/* ---- no GPUs -------------------------------------------------------------------------------- */

/* Lines of the log with all the parts. */
static int lines_with(const char *path, const char *part, const char *other) {
    char line[1024];
    int n = 0;
    FILE *f = fopen(path, "r");
    T_CHECK(f != NULL);
    while (fgets(line, sizeof line, f)) n += strstr(line, part) && strstr(line, other);
    fclose(f);
    return n;
}

static void host_work(void) {
    symmCommInfo_t info = {.size = sizeof info};
    symmWindow_t win[2];
    int *buf[2];
    gk_open(comms, 2, NULL);
    T_OK(symmGroupStart());
    for (int r = 0; r < 2; r++) {
        T_OK(symmMemAlloc((void **)&buf[r], 4096));
        buf[r][0] = r + 5;
        T_OK(symmWindowRegister(comms[r], buf[r], 4096, &win[r], SYMM_WIN_DEFAULT));
    }
    T_OK(symmGroupEnd());
    T_OK(symmSetDevice(0));
    T_OK(symmGroupStart());
    for (int r = 0; r < 2; r++)
        T_OK(symmAllReduce(buf[r], buf[r], 1, symmInt32, symmSum, comms[r], NULL));
    T_OK(symmGroupEnd());
    for (int r = 0; r < 2; r++) {
        T_EQ(buf[r][0], 11);
        T_OK(symmCommQuery(comms[r], &info));
        T_CHECK(strcmp(info.backend, "host") == 0 && info.device == -1);
        T_OK(symmWindowDeregister(comms[r], win[r]));
    }
    gk_close(comms, 2);
    for (int r = 0; r < 2; r++) T_OK(symmMemFree(buf[r]));
}

/* level: of the one line under auto. A driver that cannot be used is told to everybody, a machine
 * without one to who asks. */
static void without_gpus(const fake_cuda_config *config, int images, const char *level,
                         const char *why) {
    char path[] = "/tmp/symm-gpu-log-XXXXXX";
    const int fd = mkstemp(path);
    void *p = NULL;
    symm_params params;
    T_EXPECT_WARNINGS();
    T_CHECK(fd >= 0);
    close(fd);
    gk_env("cuda");
    gk_install(config);
    symm_test_images = images;
    refused(2, NULL, symmNotSupported, "SYMM_BACKEND=cuda: ");
    T_MSG(symmGetLastError(NULL), why);
    T_ERR(symmMemAlloc(&p, 100), symmNotSupported);
    T_MSG(symmGetLastError(NULL), why);
    T_ERR(symmSetDevice(0), symmNotSupported);
    setenv("SYMM_BACKEND", "auto", 1);
    setenv("SYMM_DEBUG", "INFO", 1);
    setenv("SYMM_DEBUG_FILE", path, 1);
    host_work();
    host_work();
    T_EQ(lines_with(path, level, "host backend: "), 1);
    T_EQ(lines_with(path, "host backend: ", why), 1);
    setenv("SYMM_BACKEND", "host", 1);
    host_work();
    T_EQ(lines_with(path, "host backend: ", ""), 1);
    unlink(path);
    unsetenv("SYMM_DEBUG_FILE");
    T_OK(symm_param_load(&params)); /* closes it */
    T_CHECK(!p);
}

static void a_build_without_kernels(void) {
    const fake_cuda_config config = gk_config(2, 0);
    without_gpus(&config, 0, "INFO", "this build has no GPU kernels");
}

static void a_machine_without_gpus(void) {
    const fake_cuda_config config = gk_config(0, 0);
    without_gpus(&config, 1, "INFO", "0 devices");
}

static void a_driver_that_is_too_old(void) {
    fake_cuda_config config = gk_config(2, 0);
    config.version = 11040;
    without_gpus(&config, 1, "WARN", "driver 11.4 is too old");
}

static void a_driver_that_does_not_start(void) {
    fake_cuda_config config = gk_config(2, 0);
    config.init_code = SYMM_CUDA_ERROR_UNKNOWN;
    without_gpus(&config, 1, "WARN", "cuInit: CUDA_ERROR_UNKNOWN");
}

static void a_driver_that_finds_no_gpus(void) {
    fake_cuda_config config = gk_config(2, 0);
    config.init_code = SYMM_CUDA_ERROR_NO_DEVICE;
    without_gpus(&config, 1, "INFO", "cuInit: CUDA_ERROR_NO_DEVICE");
}

static void auto_takes_gpus(void) {
    symmCommInfo_t info = {.size = sizeof info};
    gk_start(2, 0);
    setenv("SYMM_BACKEND", "auto", 1);
    gk_open(comms, 2, NULL);
    T_OK(symmCommQuery(comms[1], &info));
    T_CHECK(strcmp(info.backend, "cuda") == 0 && info.device == 1);
    gk_close(comms, 2);
    setenv("SYMM_BACKEND", "host", 1);
    int calls = fake_cuda_calls(NULL);
    host_work();
    T_EQ(fake_cuda_calls(NULL), calls); /* whoever asks for the host gets no CUDA */
}

/* ---- which GPUs ----------------------------------------------------------------------------- */

static void devices_that_do_not_exist(void) {
    static const int high[] = {0, 2}, low[] = {-1, 0}, fine[] = {1, 0};
    T_EXPECT_WARNINGS();
    gk_start(2, 0);
    refused(2, high, symmInvalidArgument, "devices[1]=2: there are GPUs 0 to 1");
    refused(2, low, symmInvalidArgument, "devices[0]=-1: there are GPUs 0 to 1");
    refused(3, NULL, symmInvalidArgument, "n=3: there are 2 GPUs");
    T_ERR(symmSetDevice(2), symmInvalidArgument);
    T_MSG(symmGetLastError(NULL), "device=2");
    T_ERR(symmSetDevice(-1), symmInvalidArgument);
    good(2, fine);
}

static void no_such_device(int rank, int n, void *arg) {
    gk_start(2, 0);
    setenv("SYMM_DEVICE", rank ? "5" : "0", 1);
    refused_rank(arg, rank, n, symmInvalidArgument,
                 "SYMM_DEVICE=5: this process sees 2 CUDA devices");
    T_MSG(symmGetLastError(NULL), "rank 1");
}

static void a_device_of_one_rank_that_does_not_exist(void) {
    T_EXPECT_WARNINGS();
    T_FORK(2, no_such_device, fk_new(-1, 0));
}

/* ---- GPUs that do not go together ----------------------------------------------------------- */

static void gpus_that_do_not_reach_each_other(void) {
    static const int same[] = {1, 1};
    fake_cuda_config config = gk_config(3, 0);
    T_EXPECT_WARNINGS();
    config.apart = 1;
    gk_env("cuda");
    gk_install(&config);
    refused(2, NULL, symmNotSupported, "no peer access between them");
    T_MSG(symmGetLastError(NULL), "device 0 (0000:10:00.0)");
    T_MSG(symmGetLastError(NULL), "device 1 (0000:11:00.0)");
    /* Communicators of one GPU each do not mind. */
    good(2, same);
    good(1, NULL);
}

static void refused_pair(int rank, int n, void *arg, const fake_cuda_config *config,
                         const char *part) {
    gk_env("cuda");
    gk_install(config);
    T_OK(symmSetDevice(rank));
    refused_rank(arg, rank, n, symmNotSupported, part);
}

static void apart(int rank, int n, void *arg) {
    fake_cuda_config config = gk_config(2, 0);
    config.apart = 1;
    refused_pair(rank, n, arg, &config, "device 0 (0000:10:00.0)");
    T_MSG(symmGetLastError(NULL), "device 1 (0000:11:00.0)");
}

static void processes_name_the_pair_as_well(void) {
    T_EXPECT_WARNINGS();
    T_FORK(2, apart, fk_new(-1, 0));
}

/* Peer access without NVLink: each pair of which one is on PCIe alone is named, others work; the
 * driver's refusal to say is no yes. */
static void gpus_without_nvlink(void) {
    static const int pairs[][2] = {{0, 2}, {2, 0}, {1, 2}}, joined[] = {0, 1, 3}, same[] = {2, 2};
    fake_cuda_config config = gk_config(4, 0);
    char name[32];
    T_EXPECT_WARNINGS();
    config.pcie = 1u << 2;
    gk_env("cuda");
    gk_install(&config);
    for (int i = 0; i < 3; i++) {
        refused(2, pairs[i], symmNotSupported, "not joined by NVLink");
        for (int k = 0; k < 2; k++) {
            snprintf(name, sizeof name, "device %d (0000:1%d:00.0)", pairs[i][k], pairs[i][k]);
            T_MSG(symmGetLastError(NULL), name);
        }
    }
    refused(4, NULL, symmNotSupported, "device 2 (0000:12:00.0)");
    good(3, joined);
    good(2, same); /* nothing lies between */
    good(1, &same[0]);
    fake_cuda_fail("cuDeviceGetP2PAttribute", 0, SYMM_CUDA_ERROR_UNKNOWN);
    refused(2, joined, symmUnhandledCudaError, "asking how device 0 (0000:10:00.0) and device 1");
    T_MSG(symmGetLastError(NULL), "CUDA_ERROR_UNKNOWN");
    good(2, same);
    fake_cuda_fail("cuDeviceGetP2PAttribute", 1, 0);
    good(2, joined);
}

/* Ranks 0 and 1 see nothing wrong between their GPUs, and say what rank 2 says. */
static void one_on_pcie(int rank, int n, void *arg) {
    fake_cuda_config config = gk_config(3, 0);
    config.pcie = rank == 2 ? 1u << 2 : 0;
    refused_pair(rank, n, arg, &config, "rank 2: device 2 (0000:12:00.0) and device 0");
    T_MSG(symmGetLastError(NULL), "not joined by NVLink");
}

static void a_pair_that_one_process_sees_is_refused_by_all(void) {
    T_EXPECT_WARNINGS();
    T_FORK(3, one_on_pcie, fk_new(-1, 0));
}

static void no_handles(int rank, int n, void *arg) {
    fake_cuda_config config = gk_config(2, 0);
    config.fd = 0;
    refused_pair(rank, n, arg, &config, "makes no memory that other processes can map");
    good(2, NULL); /* threads need none */
}

static void memory_without_descriptors_is_for_threads(void) {
    T_EXPECT_WARNINGS();
    T_FORK(2, no_handles, fk_new(-1, 0));
}

static void mixed(int rank, int n, void *arg) {
    fk *f = arg;
    gk_start(2, 0);
    setenv("SYMM_BACKEND", rank == f->victim ? "host" : "cuda", 1);
    refused_rank(f, rank, n, symmInvalidUsage,
                 f->victim ? "rank 1 uses the host backend, rank 0 a GPU"
                           : "rank 1 uses a GPU, rank 0 the host backend");
    T_MSG(symmGetLastError(NULL), "SYMM_BACKEND");
}

static void backends_that_differ(void) {
    T_EXPECT_WARNINGS();
    for (int victim = 0; victim < 2; victim++) T_FORK(2, mixed, fk_new(victim, 0));
}

/* One rank finds no driver where the others have GPUs: under auto it would be the host. */
static void lone(int rank, int n, void *arg) {
    fk *f = arg;
    fake_cuda_config config = gk_config(rank ? 2 : 0, 0);
    gk_env(f->how ? "auto" : "cuda");
    gk_install(&config);
    refused_rank(f, rank, n, f->how ? symmInvalidUsage : symmNotSupported,
                 f->how ? "rank 1 uses a GPU, rank 0 the host backend"
                        : "rank 0: SYMM_BACKEND=cuda: 0");
}

static void a_rank_without_a_gpu(void) {
    T_EXPECT_WARNINGS();
    for (int how = 0; how < 2; how++) T_FORK(3, lone, fk_new(-1, how));
}

/* ---- memory --------------------------------------------------------------------------------- */

static void no_room_on_one_gpu(void) {
    T_EXPECT_WARNINGS();
    gk_start(3, 0);
    setenv("SYMM_SCRATCH", "256M", 1);
    char *hog = gk_memory(1, 900 * GK_MB);
    fk_gauges before = fk_take();
    T_ERR(symmCommInitAll(comms, 3, NULL), symmOutOfMemory);
    T_MSG(symmGetLastError(NULL), "bytes of control block and scratch");
    T_MSG(symmGetLastError(NULL), "rank 1");
    FK_UNCHANGED(&before);
    T_OK(symmMemFree(hog));
    setenv("SYMM_SCRATCH", "1M", 1);
    good(3, NULL);
}

static void no_room(int rank, int n, void *arg) {
    fk *f = arg;
    symmComm_t comm = NULL;
    gk_start(2, 0);
    setenv("SYMM_SCRATCH", "256M", 1);
    char *hog = gk_memory(rank, (rank == f->victim ? 900 : 4) * GK_MB);
    T_OK(symmSetDevice(rank));
    fk_id(f, rank, n);
    T_ERR(symmCommInitRank(&comm, n, f->id, rank), symmOutOfMemory);
    T_MSG(symmGetLastError(NULL), "bytes of control block and scratch");
    T_MSG(symmGetLastError(NULL), f->victim ? "rank 1" : "rank 0");
    T_OK(symmMemFree(hog));
    GK_LEFT(0);
    setenv("SYMM_SCRATCH", "1M", 1);
    comm = fk_open(f, rank, n);
    T_OK(symmBarrier(comm, NULL));
    T_OK(symmCommDestroy(comm));
    GK_LEFT(0);
}

static void no_room_on_the_gpu_of_one_process(void) {
    T_EXPECT_WARNINGS();
    for (int victim = 0; victim < 2; victim++) T_FORK(2, no_room, fk_new(victim, 0));
}

/* Memory of the host that CUDA was told nothing of: either buffer is named, before anything
 * runs. */
static void no_host_pointer(symmComm_t comm, char *good, char *host) {
    const int launches = fake_cuda_calls("cuLaunchKernelEx");
    T_ERR(symmAllReduce(host, good, 10, symmInt32, symmSum, comm, NULL), symmInvalidArgument);
    T_MSG(symmGetLastError(comm), "sendbuff=");
    T_MSG(symmGetLastError(comm), "is memory that GPU 0 cannot reach");
    T_ERR(symmAllReduce(good, host, 10, symmInt32, symmSum, comm, NULL), symmInvalidArgument);
    T_MSG(symmGetLastError(comm), "recvbuff=");
    T_ERR(symmAllGather(host, good, 10, symmInt32, comm, NULL), symmInvalidArgument);
    T_MSG(symmGetLastError(comm), "sendbuff=");
    T_ERR(symmAllGather(good, host, 10, symmInt32, comm, NULL), symmInvalidArgument);
    T_MSG(symmGetLastError(comm), "recvbuff=");
    T_EQ(fake_cuda_calls("cuLaunchKernelEx"), launches);
}

static void a_host_pointer_is_refused_by_name(void) {
    fake_cuda_config config = gk_config(2, 0);
    char *host = malloc(4096);
    void *pinned;
    T_EXPECT_WARNINGS();
    for (config.pageable = 0; config.pageable < 2; config.pageable++) {
        gk_env("cuda");
        gk_install(&config);
        gk_open(comms, 2, NULL);
        char *good = gk_memory(0, 4096);
        if (!config.pageable) no_host_pointer(comms[0], good, host);
        T_OK(symmSetDevice(0));
        T_EQ(symm_cu.cuMemAllocHost(&pinned, 4096), 0);
        /* The communicator has taken no harm, and what the GPU reaches is a buffer. */
        T_OK(symmAllReduce(pinned, good, 10, symmInt32, symmSum, comms[0], NULL));
        T_OK(symmAllGather(good, pinned, 10, symmInt32, comms[0], NULL));
        if (config.pageable)
            T_OK(symmAllReduce(host, host, 10, symmInt32, symmSum, comms[0], NULL));
        gk_close(comms, 2);
        T_EQ(symm_cu.cuMemFreeHost(pinned), 0);
        T_OK(symmMemFree(good));
        GK_LEFT(0);
    }
    free(host);
}

/* Of two that do not reach each other: a communicator of the one, memory of the other. */
static void memory_of_a_gpu_out_of_reach_is_named(void) {
    fake_cuda_config config = gk_config(2, 0);
    T_EXPECT_WARNINGS();
    for (config.apart = 0; config.apart < 2; config.apart++) {
        gk_env("cuda");
        gk_install(&config);
        gk_open(comms, 1, NULL);
        char *good = gk_memory(0, 4096), *far = gk_memory(1, 4096);
        T_OK(symmSetDevice(0));
        if (config.apart) {
            const int launches = fake_cuda_calls("cuLaunchKernelEx");
            T_ERR(symmAllReduce(far, good, 10, symmInt32, symmSum, comms[0], NULL),
                  symmInvalidArgument);
            T_MSG(symmGetLastError(comms[0]), "sendbuff=");
            T_MSG(symmGetLastError(comms[0]), "is memory of GPU 1, which kernels of GPU 0 cannot");
            T_ERR(symmAllGather(good, far, 10, symmInt32, comms[0], NULL), symmInvalidArgument);
            T_MSG(symmGetLastError(comms[0]), "recvbuff=");
            T_EQ(fake_cuda_calls("cuLaunchKernelEx"), launches);
        } else {
            T_OK(symmAllReduce(far, good, 10, symmInt32, symmSum, comms[0], NULL));
        }
        T_OK(symmAllReduce(good, good, 10, symmInt32, symmSum, comms[0], NULL));
        gk_close(comms, 1);
        T_OK(symmMemFree(good));
        T_OK(symmMemFree(far));
        GK_LEFT(0);
    }
}

/* cudaDeviceReset behind the library's first use: who makes a communicator is told what has
 * happened. */
static void a_gpu_that_was_reset_is_refused(void) {
    fake_cuda_config config = gk_config(1, 0);
    symmComm_t comm;
    T_EXPECT_WARNINGS();
    gk_env("cuda");
    gk_install(&config);
    gk_open(comms, 1, NULL);
    gk_close(comms, 1);
    fake_cuda_fail("cuEventCreate", 0, SYMM_CUDA_ERROR_CONTEXT_IS_DESTROYED);
    T_ERR(symmCommInitAll(&comm, 1, NULL), symmUnhandledCudaError);
    T_MSG(symmGetLastError(NULL), "has ended the context (cudaDeviceReset");
    fake_cuda_fail("cuInit", 1, 0);
    GK_LEFT(0);
}

/* ---- what is looked up ---------------------------------------------------------------------- */

static char looked_up[256][64];
static int lookups;

static void *find(const char *symbol) {
    T_CHECK(lookups < 256);
    snprintf(looked_up[lookups++], sizeof looked_up[0], "%s", symbol);
    return fake_cuda_symbol(symbol);
}

static void multicast_is_never_looked_up(void) {
    symmWindow_t win[2];
    char *buf[2];
    void *at;
    gk_start(2, 0);
    setenv("SYMM_MULTICAST", "1", 1);
    T_EXPECT_WARNINGS();
    T_OK(symm_cuda_load_by(find));
    gk_open(comms, 2, NULL);
    T_OK(symmGroupStart());
    for (int r = 0; r < 2; r++) {
        buf[r] = gk_memory(r, 4096);
        T_OK(symmWindowRegister(comms[r], buf[r], 4096, &win[r], SYMM_WIN_DEFAULT));
    }
    T_OK(symmGroupEnd());
    for (int r = 0; r < 2; r++) {
        T_OK(symmAllReduce(buf[r], buf[r], 10, symmInt8, symmSum, comms[r], NULL));
        T_ERR(symmWindowMulticastPtr(win[r], 0, &at), symmNotSupported);
        T_OK(symmWindowDeregister(comms[r], win[r]));
    }
    gk_close(comms, 2);
    T_CHECK(lookups > 50);
    for (int i = 0; i < lookups; i++)
        T_CHECKF(!strcasestr(looked_up[i], "multicast"), "%s", looked_up[i]);
    for (int r = 0; r < 2; r++) T_OK(symmMemFree(buf[r]));
}

T_MAIN(T(no_kernel_for_this_gpu), T(gpus_of_two_generations_are_refused),
       T(a_kernel_that_is_not_there_is_named), T(a_build_without_kernels),
       T(a_machine_without_gpus), T(a_driver_that_is_too_old), T(a_driver_that_does_not_start),
       T(a_driver_that_finds_no_gpus), T(auto_takes_gpus), T(devices_that_do_not_exist),
       T(a_device_of_one_rank_that_does_not_exist), T(gpus_that_do_not_reach_each_other),
       T(processes_name_the_pair_as_well), T(gpus_without_nvlink),
       T(a_pair_that_one_process_sees_is_refused_by_all),
       T(memory_without_descriptors_is_for_threads), T(backends_that_differ),
       T(a_rank_without_a_gpu), T(no_room_on_one_gpu), T(no_room_on_the_gpu_of_one_process),
       T(a_host_pointer_is_refused_by_name), T(memory_of_a_gpu_out_of_reach_is_named),
       T(a_gpu_that_was_reset_is_refused), T(multicast_is_never_looked_up))
