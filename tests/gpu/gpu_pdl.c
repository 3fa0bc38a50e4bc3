/* gpu_pdl.c - collectives between programmatically launched kernels of the user's: each lets the
 * next one in early, so only the waits keep them apart. Eager and in graphs, for each size class
 * of kernel. Thread ranks; each drives its own stream. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "host/gpu/gpu.h"
#include "transport/cuda/cuda_device.h"
#include "t.h"

enum { RANKS = 2, TURNS = 40, NARROW = 4, WIDE = 8192 /* CTAs: more than a GPU has room for */ };

#define CU(call) T_EQ(symm_cu.call, 0)

typedef struct {
    symmComm_t comms[RANKS];
    size_t count;
    int graph, wide; /* wide: what follows a collective fills the GPU */
    char *image;
    pthread_barrier_t *meet;
} job;

typedef struct {
    const job *j;
    int rank;
    cu_stream stream;
    cu_kernel fill, check;
    float *send, *recv;
    cu_deviceptr wrong;
} user;

static char *read_image(void) {
    const char *path = getenv("GPU_USER_FATBIN");
    FILE *f = fopen(path ? path : "build/cuda/user.fatbin", "rb");
    if (!f) T_SKIP("no build/cuda/user.fatbin (make check-gpu builds it where nvcc is)");
    T_EQ(fseek(f, 0, SEEK_END), 0);
    long n = ftell(f);
    char *image = malloc((size_t)n);
    rewind(f);
    T_CHECK(image && fread(image, 1, (size_t)n, f) == (size_t)n);
    fclose(f);
    return image;
}

static void launch(const user *u, cu_kernel k, unsigned ctas, void **args) {
    cu_launch_attr attr = {.id = SYMM_CUDA_LAUNCH_PROGRAMMATIC_SERIALIZATION,
                           .value.programmatic_serialization = 1};
    cu_launch_config config = {ctas, 1, 1, 128, 1, 1, 0, u->stream, &attr, 1};
    CU(cuLaunchKernelEx(&config, (cu_function)(void *)k, args, NULL));
}

/* The driver loads a kernel when it is first launched, and may wait for the GPU then: where ranks
 * share one, for a peer's kernel that waits for ours. */
static void load_kernels(user *u) {
    unsigned long long none = 0;
    float zero = 0;
    void *fill[] = {&u->send, &none, &zero, &none},
         *check[] = {&u->recv, &none, &zero, &zero, &u->wrong};
    launch(u, u->fill, NARROW, fill);
    launch(u, u->check, NARROW, check);
    CU(cuStreamSynchronize(u->stream));
}

/* Fill, reduce, check: the next turn's fill may not begin before the check has read, nor the reduce
 * before the fill has written. */
static void turn(user *u, int i) {
    unsigned long long n = u->j->count, delay = i % 3 ? 0 : 20000;
    float value = (float)(u->rank + 1 + i), want = 0, scale = RANKS;
    for (int r = 0; r < RANKS; r++) want += (float)(r + 1 + i);
    void *fill[] = {&u->send, &n, &value, &delay},
         *check[] = {&u->recv, &n, &want, &scale, &u->wrong};
    launch(u, u->fill, NARROW, fill);
    T_OK(symmAllReduce(u->send, u->recv, n, symmFloat32, symmSum, u->j->comms[u->rank],
                       (symmStream_t)(void *)u->stream));
    launch(u, u->check, u->j->wide ? WIDE : NARROW, check);
}

/* With wide kernels the one rank is late: its peer's have found their places by then. */
static void run_turns(user *u) {
    for (int i = 0; i < TURNS; i++) {
        if (u->j->wide && u->rank == i % 2 && i < 4) usleep(30000);
        turn(u, i);
    }
}

static void replay_turns(user *u) {
    cu_graph graph;
    cu_graph_exec exec;
    CU(cuStreamBeginCapture(u->stream, SYMM_CUDA_CAPTURE_MODE_THREAD_LOCAL));
    run_turns(u);
    CU(cuStreamEndCapture(u->stream, &graph));
    CU(cuGraphInstantiate(&exec, graph, 0));
    CU(cuGraphUpload(exec, u->stream)); /* before a peer's kernel waits for ours, as load_kernels */
    CU(cuStreamSynchronize(u->stream));
    pthread_barrier_wait(u->j->meet);
    for (int i = 0; i < 5; i++) CU(cuGraphLaunch(exec, u->stream));
    CU(cuStreamSynchronize(u->stream));
    CU(cuGraphExecDestroy(exec));
    CU(cuGraphDestroy(graph));
}

/* What the graphs held goes when the driver has told of their end, in a thread of its own. */
static void await_graphs(void) {
    for (int i = 0; i < 200; i++) {
        symm_gpu_reap();
        usleep(1000);
    }
}

static void user_rank(int rank, int n, void *arg) {
    const job *j = arg;
    user u = {.j = j, .rank = rank};
    symmWindow_t in, out;
    cu_library lib;
    symmResult_t async;
    unsigned wrong = 1;
    (void)n;
    T_OK(symmSetDevice(rank % symm_cuda_devices()));
    CU(cuLibraryLoadData(&lib, j->image, NULL, NULL, 0, NULL, NULL, 0));
    CU(cuLibraryGetKernel(&u.fill, lib, "user_fill"));
    CU(cuLibraryGetKernel(&u.check, lib, "user_check"));
    CU(cuStreamCreate(&u.stream, SYMM_CUDA_STREAM_NON_BLOCKING));
    CU(cuMemAlloc(&u.wrong, sizeof wrong));
    CU(cuMemsetD32Async(u.wrong, 0, 1, u.stream));
    T_OK(symmMemAlloc((void **)&u.send, j->count * 4));
    T_OK(symmMemAlloc((void **)&u.recv, j->count * 4));
    load_kernels(&u); /* before the ranks meet */
    T_OK(symmWindowRegister(j->comms[rank], u.send, j->count * 4, &in, 0));
    T_OK(symmWindowRegister(j->comms[rank], u.recv, j->count * 4, &out, 0));
    if (j->graph)
        replay_turns(&u);
    else
        run_turns(&u);
    CU(cuStreamSynchronize(u.stream));
    T_OK(symmCommGetAsyncError(j->comms[rank], &async));
    T_CHECKF(!async, "a kernel left: %s", symmGetLastError(j->comms[rank]));
    CU(cuMemcpyDtoHAsync(&wrong, u.wrong, sizeof wrong, u.stream));
    CU(cuStreamSynchronize(u.stream));
    T_EQ(wrong, 0);
    CU(cuStreamDestroy(u.stream));
    CU(cuMemFree(u.wrong));
    T_OK(symmCommDestroy(j->comms[rank]));
    T_OK(symmMemFree(u.send));
    T_OK(symmMemFree(u.recv));
}

static void ranks_of(size_t count, int graph, int wide) {
    pthread_barrier_t meet;
    job j = {.count = count, .graph = graph, .wide = wide, .image = read_image(), .meet = &meet};
    int devices[RANKS];
    pthread_barrier_init(&meet, NULL, RANKS);
    for (int r = 0; r < RANKS; r++) devices[r] = r % symm_cuda_devices();
    T_OK(symmCommInitAll(j.comms, RANKS, devices));
    T_THREADS(RANKS, user_rank, &j);
    pthread_barrier_destroy(&meet);
    free(j.image);
}

static void begin(void) {
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
    setenv("SYMM_BACKEND", "cuda", 1);
    setenv("SYMM_TIMEOUT", "15000", 0);
    T_EXPECT_FDS(); /* CUDA opens descriptors of its own */
    if (symm_cuda_devices() < 1) T_SKIP("no GPU: %s", symm_cuda_why());
}

static const size_t counts[] = {256, 40000, 300000, 1500000, 6000000};

static void eager(void) {
    begin();
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) ranks_of(counts[i], 0, 0);
}

static void replayed(void) {
    begin();
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) ranks_of(counts[i], 1, 0);
    await_graphs();
}

/* Where ranks share a GPU, what is let in behind the one's collective may fill it, and the other's
 * has no place then. */
static void a_kernel_as_large_as_the_gpu_behind(void) {
    begin();
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) ranks_of(counts[i], 0, 1);
}

T_MAIN(T(eager), T(replayed), T(a_kernel_as_large_as_the_gpu_behind))
