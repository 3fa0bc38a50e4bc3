/* fused_ranks.cuh - what the examples of fused kernels share: ranks that are forked, a GPU each;
 * data that is drawn; the time of a call in CUDA graphs; words in which two ways differ. Each
 * example's rank_state begins with `fused_rank`.
 * Runs in: one thread of one process per rank. No lock. */
#ifndef FUSED_RANKS_CUH_
#define FUSED_RANKS_CUH_

#include <cuda_runtime.h>
#include <algorithm>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include "symm.h"

enum { MOST_RANKS = 8 };

static void ok(symmResult_t r) {
    if (r == symmSuccess) return;
    fprintf(stderr, "%s: %s\n", symmGetErrorString(r), symmGetLastError(NULL));
    exit(1);
}
static void cu(cudaError_t e) {
    if (e == cudaSuccess) return;
    fprintf(stderr, "%s\n", cudaGetErrorString(e));
    exit(1);
}

/* ---- data ------------------------------------------------------------------------------------ */

template <class T> __global__ void fill(T *to, uint32_t n, uint32_t seed) { /* -1..1 */
    for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        uint32_t h = (i ^ seed * 0x9e3779b9u) * 0x85ebca6bu;
        h = (h ^ h >> 13) * 0xc2b2ae35u;
        to[i] = (T)((float)(int)(h >> 8) / (1 << 23) - 1);
    }
}
static __global__ void differing(const uint32_t *a, const uint32_t *b, uint32_t words,
                                 uint32_t *count) {
    for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < words; i += gridDim.x * blockDim.x)
        if (a[i] != b[i]) atomicAdd(count, 1);
}

/* ---- a rank ---------------------------------------------------------------------------------- */

struct fused_rank {
    int rank, ranks, gpus;
    cudaDeviceProp gpu;
    symmComm_t comm; /* made by the example, once its kernels are loaded */
    cudaStream_t stream;
    cudaEvent_t begin, end;
    float *time; /* a word that is reduced over ranks */
    uint32_t *wrong;
};

static void open_rank(fused_rank *s, int rank, int ranks) {
    s->rank = rank, s->ranks = ranks;
    setenv("SYMM_TIMEOUT", "20000", 0);
    cu(cudaGetDeviceCount(&s->gpus));
    cu(cudaSetDevice(rank % s->gpus));
    cu(cudaGetDeviceProperties(&s->gpu, rank % s->gpus));
    cu(cudaStreamCreateWithFlags(&s->stream, cudaStreamNonBlocking));
    cu(cudaEventCreate(&s->begin));
    cu(cudaEventCreate(&s->end));
    cu(cudaMalloc((void **)&s->time, 256));
    cu(cudaMalloc((void **)&s->wrong, 256));
}
/* Behind the end of the communicator. */
static void close_rank(fused_rank *s) {
    cu(cudaFree(s->time));
    cu(cudaFree(s->wrong));
    cu(cudaEventDestroy(s->begin));
    cu(cudaEventDestroy(s->end));
    cu(cudaStreamDestroy(s->stream));
}

/* Kernels are loaded when they are first used: not inside a capture, nor while a peer waits. */
static void load_kernels(const std::vector<const void *> &kernels) {
    cudaFuncAttributes unused;
    for (const void *k : kernels) cu(cudaFuncGetAttributes(&unused, k));
}
/* A CTA that has no place keeps its peers waiting: the whole grid must fit. How many CTAs the GPU
 * has places for; of those a rank that shares it with others may count on its share. */
static int places(const fused_rank *s, const void *kernel, int threads, int shared) {
    int ctas;
    cu(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&ctas, kernel, threads, (size_t)shared));
    return ctas * s->gpu.multiProcessorCount;
}
static inline int share_of(const fused_rank *s, int all) {
    return all / ((s->ranks + s->gpus - 1) / s->gpus);
}

/* All ranks are here, and what they have given to their streams has ended. */
static void meet(const fused_rank *s) {
    symmResult_t async;
    ok(symmBarrier(s->comm, s->stream));
    cu(cudaStreamSynchronize(s->stream));
    ok(symmCommGetAsyncError(s->comm, &async));
    ok(async);
}

/* In how many words what lies at a differs from what lies at b. */
static uint32_t look(const fused_rank *s, const void *a, const void *b, uint32_t words) {
    uint32_t wrong = 0;
    cu(cudaMemsetAsync(s->wrong, 0, sizeof wrong, s->stream));
    differing<<<256, 256, 0, s->stream>>>((const uint32_t *)a, (const uint32_t *)b, words,
                                          s->wrong);
    cu(cudaMemcpyAsync(&wrong, s->wrong, sizeof wrong, cudaMemcpyDeviceToHost, s->stream));
    cu(cudaStreamSynchronize(s->stream));
    return wrong;
}

/* ---- time ------------------------------------------------------------------------------------ */

/* A graph of calls [0, calls), made by call(i). */
template <class Call>
static cudaGraphExec_t record(const fused_rank *s, int calls, const Call &call) {
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    cu(cudaStreamBeginCapture(s->stream, cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < calls; i++) call(i);
    cu(cudaStreamEndCapture(s->stream, &graph));
    cu(cudaGraphInstantiate(&exec, graph, 0));
    cu(cudaGraphDestroy(graph));
    cu(cudaGraphUpload(exec, s->stream));
    return exec;
}

/* Microseconds of a call: the median of this rank's replays, then the slowest rank's. */
template <class Call>
static float measure(const fused_rank *s, int calls, int replays, const Call &call) {
    std::vector<float> us((size_t)replays);
    cudaGraphExec_t exec = record(s, calls, call);
    meet(s);
    for (float &t : us) {
        cu(cudaEventRecord(s->begin, s->stream));
        cu(cudaGraphLaunch(exec, s->stream));
        cu(cudaEventRecord(s->end, s->stream));
        cu(cudaStreamSynchronize(s->stream));
        cu(cudaEventElapsedTime(&t, s->begin, s->end));
        t *= 1000.0f / (float)calls;
    }
    std::sort(us.begin(), us.end());
    float median = us[us.size() / 2];
    cu(cudaMemcpyAsync(s->time, &median, sizeof median, cudaMemcpyHostToDevice, s->stream));
    ok(symmAllReduce(s->time, s->time, 1, symmFloat, symmMax, s->comm, s->stream));
    cu(cudaMemcpyAsync(&median, s->time, sizeof median, cudaMemcpyDeviceToHost, s->stream));
    meet(s);
    cu(cudaGraphExecDestroy(exec));
    return median;
}

/* ---- processes ------------------------------------------------------------------------------- */

typedef int run_fn(int rank, int ranks, const symmUniqueId_t *id); /* 1: something is wrong */

/* In a child: a process that has used CUDA cannot fork ranks. */
static int count_gpus(void) {
    const pid_t child = fork();
    int status = 0, n = 0;
    if (child == 0) _exit(cudaGetDeviceCount(&n) == cudaSuccess ? n : 0);
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 0;
}

static int fork_ranks(int ranks, run_fn *run) {
    symmUniqueId_t id;
    pid_t child[MOST_RANKS];
    int failed = 0;
    ok(symmGetUniqueId(&id));
    for (int r = 0; r < ranks; r++) {
        if ((child[r] = fork()) == 0) exit(run(r, ranks, &id));
        if (child[r] < 0) perror("fork"); /* the others will say that a rank does not come */
    }
    for (int r = 0; r < ranks; r++) {
        int status = 0;
        failed |= child[r] < 0;
        if (child[r] < 0) continue;
        waitpid(child[r], &status, 0);
        failed |= !WIFEXITED(status) || WEXITSTATUS(status);
    }
    return failed;
}

/* The first argument's number of ranks; by default as many as GPUs, and 2 at least. What main
 * returns. */
static int run_ranks(const char *name, int argc, char **argv, run_fn *run) {
    const int gpus = count_gpus(),
              wanted = argc > 1   ? atoi(argv[1])
                       : gpus < 2 ? 2
                                  : gpus,
              ranks = argc > 1 || wanted < MOST_RANKS ? wanted : MOST_RANKS;
    if (!gpus) {
        printf("no GPU here\n");
        return 0;
    }
    if (ranks < 1 || ranks > MOST_RANKS) {
        fprintf(stderr, "%s: 1 to %d ranks, not %d\n", name, MOST_RANKS, ranks);
        return 2;
    }
    return fork_ranks(ranks, run);
}

#endif
