/* moe_device.cu - a layer of a mixture of experts, one expert per rank: dispatch, expert and
 * combine as one kernel over symm's windows (moe_kernel.cuh), beside symmAlltoAllv, a kernel for
 * the expert, symmAlltoAllv. Tokens are rows of floats; a token's expert multiplies it by a number.
 * Half of the tokens go to one of two experts that everybody likes. moe_dispatch.c is the same for
 * ranks without GPUs.
 *
 * Both ways are compared bit for bit. Times are those of a call in CUDA graphs of CALLS calls: the
 * median of replays, on the slowest rank.
 *
 *     moe_device [ranks]          forks the ranks, a GPU each; default: as many as GPUs, at most 8
 *
 * Runs in: one thread of one process per rank. No lock. */
#include <cuda_runtime.h>
#include <algorithm>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "moe_kernel.cuh"
#include "symm_heap.h"

enum {
    MOST_RANKS = 8,
    COLUMNS = 2048,
    VECS = COLUMNS / 4, /* of 16 bytes, of a row */
    MOST_TOKENS = 512,
    THREADS = 512,
    MOST_CTAS = 256,
    LEAST_PARTS = 8, /* CTAs for each pair of ranks */
    EACH = 2,        /* vectors of a thread, as far as there are CTAs */
    ROWS_BYTES = MOST_TOKENS * VECS * 16,
    BOX_BYTES = MOST_CTAS * 16 + ROWS_BYTES,
    CALLS = 20, /* of a graph */
    REPLAYS = 21
};

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

/* ---- kernels --------------------------------------------------------------------------------- */

/* A rank that gives up returns: the communicator is over, and the host hears why. */
__global__ void __launch_bounds__(THREADS) fused(const __grid_constant__ moe_call a) {
    moe_layer(a);
}

/* The unfused way: rows by expert; the expert; rows where the tokens were. */
__global__ void pack(const uint4 *tokens, const uint32_t *order, uint4 *sorted) {
    for (unsigned i = threadIdx.x; i < VECS; i += blockDim.x)
        sorted[(uint64_t)blockIdx.x * VECS + i] = tokens[(uint64_t)order[blockIdx.x] * VECS + i];
}
__global__ void unpack(const uint4 *sorted, const uint32_t *order, uint4 *y) {
    for (unsigned i = threadIdx.x; i < VECS; i += blockDim.x)
        y[(uint64_t)order[blockIdx.x] * VECS + i] = sorted[(uint64_t)blockIdx.x * VECS + i];
}
__global__ void expert(float4 *x, uint64_t n, float scale) {
    const uint64_t step = (uint64_t)gridDim.x * blockDim.x;
    for (uint64_t i = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x; i < n; i += step) {
        const float4 v = x[i];
        x[i] = make_float4(__fmul_rn(v.x, scale), __fmul_rn(v.y, scale), __fmul_rn(v.z, scale),
                           __fmul_rn(v.w, scale));
    }
}

__global__ void fill(float *to, uint32_t n, uint32_t seed) {
    for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        uint32_t h = (i ^ seed * 0x9e3779b9u) * 0x85ebca6bu;
        h = (h ^ h >> 13) * 0xc2b2ae35u;
        to[i] = (float)(int)(h >> 8) / (1 << 23) - 1;
    }
}
__global__ void differing(const uint32_t *a, const uint32_t *b, uint32_t words, uint32_t *count) {
    for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < words; i += gridDim.x * blockDim.x)
        if (a[i] != b[i]) atomicAdd(count, 1);
}

/* ---- a rank ---------------------------------------------------------------------------------- */

typedef struct {
    int rank, ranks, tokens, parts; /* parts: CTAs for each pair, with so many tokens */
    symmComm_t comm;
    symmHeap_t heap;
    moe_call fused;        /* what the kernel is told */
    char *inbox, *results; /* in the heap: boxes of the kernel, parts of symmAlltoAllv */
    char *tokens_at, *y, *want, *sorted; /* this rank's alone */
    uint32_t *order;                     /* [MOST_TOKENS], then [MOST_RANKS + 1]: first */
    uint64_t *calls;
    float *time; /* a word that is reduced over ranks */
    uint32_t *wrong;
    size_t to[MOST_RANKS], from[MOST_RANKS], incoming; /* floats, for symmAlltoAllv */
    cudaStream_t stream;
    cudaEvent_t begin, end;
} rank_state;

static int expert_of(const rank_state *s, int from, int token) {
    const unsigned h = (unsigned)(from * MOST_TOKENS + token) * 2654435761u >> 8;
    const unsigned liked = s->ranks < 2 ? (unsigned)s->ranks : 2u;
    return (int)(h & 1 ? (h >> 1) % liked : (h >> 1) % (unsigned)s->ranks);
}

/* The router: tokens by expert, and what comes from each rank. */
static void route(rank_state *s, int tokens) {
    uint32_t order[MOST_TOKENS + MOST_RANKS + 1], at = 0;
    const int wanted =
                  (tokens * VECS + s->ranks * THREADS * EACH - 1) / (s->ranks * THREADS * EACH),
              least = wanted < LEAST_PARTS ? LEAST_PARTS : wanted, most = (int)s->fused.most;
    s->tokens = tokens;
    s->parts = least < most ? least : most;
    s->incoming = 0;
    memset(s->to, 0, sizeof s->to);
    memset(s->from, 0, sizeof s->from);
    for (int e = 0; e <= s->ranks; e++) {
        order[MOST_TOKENS + e] = at;
        for (int t = 0; t < tokens && e < s->ranks; t++)
            if (expert_of(s, s->rank, t) == e) order[at++] = (uint32_t)t, s->to[e] += COLUMNS;
    }
    for (int p = 0; p < s->ranks; p++) {
        for (int t = 0; t < tokens; t++)
            if (expert_of(s, p, t) == s->rank) s->from[p] += COLUMNS;
        s->incoming += s->from[p];
    }
    cu(cudaMemcpyAsync(s->order, order, sizeof order, cudaMemcpyHostToDevice, s->stream));
    cu(cudaStreamSynchronize(s->stream)); /* `order` is this function's */
}

static void call(const rank_state *s, int unfused) {
    if (!unfused) {
        fused<<<(unsigned)(s->ranks * s->parts), THREADS, 0, s->stream>>>(s->fused);
        return;
    }
    pack<<<(unsigned)s->tokens, 256, 0, s->stream>>>((uint4 *)s->tokens_at, s->order,
                                                     (uint4 *)s->sorted);
    ok(symmAlltoAllv(s->sorted, s->to, NULL, s->inbox, s->from, NULL, symmFloat, s->comm,
                     s->stream));
    expert<<<256, 256, 0, s->stream>>>((float4 *)s->inbox, s->incoming / 4, s->fused.scale);
    ok(symmAlltoAllv(s->inbox, s->from, NULL, s->results, s->to, NULL, symmFloat, s->comm,
                     s->stream));
    unpack<<<(unsigned)s->tokens, 256, 0, s->stream>>>((uint4 *)s->results, s->order,
                                                       (uint4 *)s->y);
}

/* All ranks are here, and what they have given to their streams has ended. */
static void meet(const rank_state *s) {
    symmResult_t async;
    ok(symmBarrier(s->comm, s->stream));
    cu(cudaStreamSynchronize(s->stream));
    ok(symmCommGetAsyncError(s->comm, &async));
    ok(async);
}

static cudaGraphExec_t record(const rank_state *s, int unfused) {
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    cu(cudaStreamBeginCapture(s->stream, cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < CALLS; i++) call(s, unfused);
    cu(cudaStreamEndCapture(s->stream, &graph));
    cu(cudaGraphInstantiate(&exec, graph, 0));
    cu(cudaGraphDestroy(graph));
    cu(cudaGraphUpload(exec, s->stream));
    return exec;
}

/* Compares what the last call has left with the unfused way's. */
static uint32_t look(const rank_state *s) {
    uint32_t wrong = 0;
    cu(cudaMemsetAsync(s->wrong, 0, sizeof wrong, s->stream));
    differing<<<64, 256, 0, s->stream>>>((uint32_t *)s->y, (uint32_t *)s->want,
                                         (uint32_t)s->tokens * COLUMNS, s->wrong);
    cu(cudaMemcpyAsync(&wrong, s->wrong, sizeof wrong, cudaMemcpyDeviceToHost, s->stream));
    cu(cudaStreamSynchronize(s->stream));
    return wrong;
}

/* Microseconds of a call: the median of this rank's replays, then the slowest rank's. */
static float measure(rank_state *s, int unfused, uint32_t *wrong) {
    float us[REPLAYS];
    cudaGraphExec_t exec = record(s, unfused);
    cu(cudaMemsetAsync(s->y, 0xff, ROWS_BYTES, s->stream));
    meet(s);
    for (int i = 0; i < REPLAYS; i++) {
        float ms;
        cu(cudaEventRecord(s->begin, s->stream));
        cu(cudaGraphLaunch(exec, s->stream));
        cu(cudaEventRecord(s->end, s->stream));
        cu(cudaStreamSynchronize(s->stream));
        cu(cudaEventElapsedTime(&ms, s->begin, s->end));
        us[i] = ms * 1000 / CALLS;
    }
    meet(s);
    if (unfused)
        cu(cudaMemcpyAsync(s->want, s->y, ROWS_BYTES, cudaMemcpyDeviceToDevice, s->stream));
    else
        *wrong += look(s);
    std::sort(us, us + REPLAYS);
    cu(cudaMemcpyAsync(s->time, &us[REPLAYS / 2], sizeof *us, cudaMemcpyHostToDevice, s->stream));
    ok(symmAllReduce(s->time, s->time, 1, symmFloat, symmMax, s->comm, s->stream));
    cu(cudaMemcpyAsync(us, s->time, sizeof *us, cudaMemcpyDeviceToHost, s->stream));
    meet(s);
    cu(cudaGraphExecDestroy(exec));
    return us[0];
}

/* ---- set-up ---------------------------------------------------------------------------------- */

/* Kernels are loaded when they are first used: not inside a capture, nor while a peer waits. And a
 * CTA that has no place keeps its peers waiting: the whole grid must fit, beside those of other
 * ranks on this GPU. Returns how many CTAs each pair of ranks may have. */
static int prepare_kernels(int ranks, int gpus) {
    const void *kernels[] = {(const void *)fused,  (const void *)pack, (const void *)unpack,
                             (const void *)expert, (const void *)fill, (const void *)differing};
    cudaFuncAttributes unused;
    int device, sms, ctas;
    for (const void *k : kernels) cu(cudaFuncGetAttributes(&unused, k));
    cu(cudaGetDevice(&device));
    cu(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device));
    cu(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&ctas, (const void *)fused, THREADS, 0));
    const int places = ctas * sms / ((ranks + gpus - 1) / gpus),
              most = (places < MOST_CTAS ? places : MOST_CTAS) / ranks;
    if (most >= 1) return most;
    fprintf(stderr, "%d CTAs must run at once, the GPU has places for %d\n", ranks, places);
    exit(1);
}

static void open_buffers(rank_state *s) {
    symmHeapConfig_t config = SYMM_HEAP_CONFIG_INITIALIZER;
    symmDevRequirements_t need = SYMM_DEV_REQUIREMENTS_INITIALIZER;
    const size_t boxes = (size_t)s->ranks * BOX_BYTES;
    char **own[] = {&s->tokens_at, &s->y, &s->want, &s->sorted};
    config.symBytes = 2 * boxes + 4096;
    need.signals = 2 * s->ranks * (int)s->fused.most;
    ok(symmHeapCreate(s->comm, &config, &s->heap));
    ok(symmHeapAlloc(s->heap, boxes, 0, SYMM_ALLOC_SYM, (void **)&s->inbox));
    ok(symmHeapAlloc(s->heap, boxes, 0, SYMM_ALLOC_SYM, (void **)&s->results));
    for (char **p : own) cu(cudaMalloc((void **)p, ROWS_BYTES));
    cu(cudaMalloc((void **)&s->order, (MOST_TOKENS + MOST_RANKS + 1) * sizeof *s->order));
    cu(cudaMalloc((void **)&s->calls, MOST_CTAS * sizeof *s->calls));
    cu(cudaMalloc((void **)&s->time, 256));
    cu(cudaMalloc((void **)&s->wrong, 256));
    cu(cudaMemsetAsync(s->calls, 0, MOST_CTAS * sizeof *s->calls, s->stream));
    fill<<<64, 256, 0, s->stream>>>((float *)s->tokens_at, ROWS_BYTES / 4, 100 + (uint32_t)s->rank);
    ok(symmDevWindowGet(s->comm, s->inbox, boxes, &s->fused.inbox));
    ok(symmDevWindowGet(s->comm, s->results, boxes, &s->fused.results));
    ok(symmDevCommCreate(s->comm, &need, &s->fused.dev));
    s->fused.tokens = (const uint4 *)s->tokens_at, s->fused.y = (uint4 *)s->y;
    s->fused.order = s->order, s->fused.first = s->order + MOST_TOKENS;
    s->fused.calls = s->calls;
    s->fused.vecs = VECS, s->fused.places = MOST_TOKENS;
    s->fused.scale = (float)(s->rank + 2);
}

static void close_buffers(rank_state *s) {
    void *own[] = {s->tokens_at, s->y, s->want, s->sorted, s->order, s->calls, s->time, s->wrong};
    ok(symmDevCommDestroy(s->comm, &s->fused.dev));
    ok(symmHeapDestroy(s->heap));
    for (void *p : own) cu(cudaFree(p));
}

/* 1: something is wrong. */
static int run_rank(int rank, int ranks, const symmUniqueId_t *id) {
    rank_state s = {};
    int gpus = 0;
    uint32_t wrong = 0;
    cudaDeviceProp prop;
    s.rank = rank, s.ranks = ranks;
    setenv("SYMM_TIMEOUT", "20000", 0);
    cu(cudaGetDeviceCount(&gpus));
    cu(cudaSetDevice(rank % gpus));
    cu(cudaGetDeviceProperties(&prop, rank % gpus));
    cu(cudaStreamCreateWithFlags(&s.stream, cudaStreamNonBlocking));
    cu(cudaEventCreate(&s.begin));
    cu(cudaEventCreate(&s.end));
    s.fused.most = (uint32_t)prepare_kernels(ranks, gpus);
    ok(symmCommInitRank(&s.comm, ranks, *id, rank));
    open_buffers(&s);
    meet(&s);
    if (rank == 0)
        printf("%d experts on %d of %s, tokens of %d floats, us of a call in a graph of %d\n"
               "tokens   unfused     fused\n",
               ranks, gpus < ranks ? gpus : ranks, prop.name, COLUMNS, CALLS);
    for (int tokens = 8; tokens <= MOST_TOKENS; tokens *= 4) {
        float us[2];
        route(&s, tokens);
        for (int way = 0; way < 2; way++) us[way] = measure(&s, way == 0, &wrong);
        if (rank == 0) printf("%6d %9.2f %9.2f   %.2fx\n", tokens, us[0], us[1], us[0] / us[1]);
    }
    printf("rank %d: %u words differ from the unfused way\n", rank, wrong);
    close_buffers(&s);
    ok(symmCommDestroy(s.comm));
    return wrong != 0;
}

/* ---- processes ------------------------------------------------------------------------------- */

/* In a child: a process that has used CUDA cannot fork ranks. */
static int count_gpus(void) {
    const pid_t child = fork();
    int status = 0, n = 0;
    if (child == 0) _exit(cudaGetDeviceCount(&n) == cudaSuccess ? n : 0);
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 0;
}

int main(int argc, char **argv) {
    const int gpus = count_gpus(), wanted = argc > 1 ? atoi(argv[1]) : gpus < 2 ? 2 : gpus;
    const int ranks = wanted < MOST_RANKS ? wanted : MOST_RANKS;
    symmUniqueId_t id;
    pid_t child[MOST_RANKS];
    int failed = 0;
    if (!gpus) {
        printf("no GPU here\n");
        return 0;
    }
    if (ranks < 1) {
        fprintf(stderr, "moe_device: 1 to %d ranks\n", MOST_RANKS);
        return 2;
    }
    ok(symmGetUniqueId(&id));
    for (int r = 0; r < ranks; r++)
        if ((child[r] = fork()) == 0) exit(run_rank(r, ranks, &id));
    for (int r = 0; r < ranks; r++) {
        int status = 0;
        waitpid(child[r], &status, 0);
        failed |= !WIFEXITED(status) || WEXITSTATUS(status);
    }
    return failed;
}
