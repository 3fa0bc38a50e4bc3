/* step_gpu.cu - step.c on GPUs: a training step, captured once as a CUDA graph and replayed, on as
 * many ranks as there are GPUs (two share one). Weights lie in a symmetric heap. Activations and
 * gradients come from it inside the step, in stream order: the graph has their addresses for
 * life. The all_reduce works on the gradients in place; nothing is registered. After each replay
 * each rank compares its weights with what they must be.
 * Runs in: one thread per rank, each with one stream of its own. No lock: each communicator is one
 * thread's. */
#include <cuda_runtime.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "symm_lane.h"

enum { MOST = 8, WEIGHTS = 70000, STEPS = 20, THREADS = 256, TARGETS = 7 };
#define BYTES (WEIGHTS * sizeof(float))
#define RATE  0.1f

typedef struct {
    symmComm_t comm;
    int rank, ranks, device, inPlace;
    cudaStream_t stream;
    float *w, *host; /* SYM: at equal offsets on all ranks; pinned */
    long wrong;      /* weights, over all replays */
    double first, last;
} rank_state;

static pthread_barrier_t everybody;

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

__host__ __device__ static float target(int i) { /* what the weights should become */
    return (float)(i % TARGETS) - 3;
}
static float data_of(int rank, int ranks) {
    return 1 + (float)rank / (float)ranks;
}

/* ---- the step ---- */

__global__ void forward(float *act, const float *w, float x) {
    const int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (i < WEIGHTS) act[i] = w[i] * x;
}
__global__ void backward(float *grad, const float *act, float x) {
    const int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (i < WEIGHTS) grad[i] = 2 * (act[i] - target(i) * x) * x;
}
__global__ void update(float *w, const float *grad) {
    const int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (i < WEIGHTS) w[i] -= RATE * grad[i];
}

/* Kernels are loaded when they are first used. That should not happen inside a capture, nor while a
 * peer's kernel waits. */
static void load_kernels(void) {
    const void *kernels[] = {(const void *)forward, (const void *)backward, (const void *)update};
    cudaFuncAttributes unused;
    for (const void *k : kernels) cu(cudaFuncGetAttributes(&unused, k));
}

/* Each buffer lives from its alloc to its free in the order of the stream. */
static void step(rank_state *s, symmLane_t lane) {
    const int blocks = (WEIGHTS + THREADS - 1) / THREADS;
    const float x = data_of(s->rank, s->ranks);
    float *act, *grad;
    ok(symmLaneAlloc(lane, BYTES, SYMM_ALLOC_LOCAL, (void **)&act));
    forward<<<blocks, THREADS, 0, s->stream>>>(act, s->w, x);
    ok(symmLaneAlloc(lane, BYTES, SYMM_ALLOC_SYM, (void **)&grad));
    backward<<<blocks, THREADS, 0, s->stream>>>(grad, act, x);
    ok(symmLaneFree(lane, act));
    ok(symmAllReduce(grad, grad, WEIGHTS, symmFloat, symmAvg, s->comm, s->stream));
    update<<<blocks, THREADS, 0, s->stream>>>(s->w, grad);
    ok(symmLaneFree(lane, grad));
    cu(cudaGetLastError());
}

/* ---- what it must come to ---- */

/* One more step of all ranks; want: a weight of each target. */
static void expect(double *want, int ranks) {
    for (int t = 0; t < TARGETS; t++) {
        double sum = 0;
        for (int r = 0; r < ranks; r++)
            sum += 2 * (want[t] - target(t)) * data_of(r, ranks) * data_of(r, ranks);
        want[t] -= RATE * sum / ranks;
    }
}

static double look(rank_state *s, const double *want) {
    double sum = 0;
    cu(cudaMemcpyAsync(s->host, s->w, BYTES, cudaMemcpyDeviceToHost, s->stream));
    cu(cudaStreamSynchronize(s->stream));
    for (int i = 0; i < WEIGHTS; i++) {
        s->wrong += fabs(s->host[i] - want[i % TARGETS]) > 1e-5;
        sum += (s->host[i] - target(i)) * (s->host[i] - target(i));
    }
    return sum / WEIGHTS;
}

/* What the all_reduce would do with memory of the heap. */
static int in_place(const rank_state *s) {
    symmExplain_t plan = {};
    plan.size = sizeof plan;
    ok(symmExplain(s->comm, symmCollAllReduce, s->w, s->w, WEIGHTS, symmFloat, symmAvg, 0, &plan));
    return plan.zeroCopySend && plan.zeroCopyRecv;
}

/* ---- one rank ---- */

static void run(rank_state *s, symmHeap_t heap) {
    double want[TARGETS] = {};
    symmLane_t lane;
    symmMemPlan_t plan;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    /* the same calls on all ranks */
    ok(symmHeapAlloc(heap, BYTES, 0, SYMM_ALLOC_SYM, (void **)&s->w));
    cu(cudaMemsetAsync(s->w, 0, BYTES, s->stream));
    s->inPlace = in_place(s);
    s->first = look(s, want);
    ok(symmLaneCreate(heap, s->stream, &lane));
    cu(cudaStreamBeginCapture(s->stream, cudaStreamCaptureModeThreadLocal));
    step(s, lane); /* recorded, not run */
    cu(cudaStreamEndCapture(s->stream, &graph));
    ok(symmMemPlanBind(lane, graph, 0, &plan));
    cu(cudaGraphInstantiate(&exec, graph, 0));
    /* instantiating may wait for the GPU, and ranks may share it */
    pthread_barrier_wait(&everybody);
    for (int i = 0; i < STEPS; i++) {
        ok(symmMemPlanLaunch(plan, exec, s->stream));
        expect(want, s->ranks);
        s->last = look(s, want);
    }
    pthread_barrier_wait(&everybody);
    ok(symmMemPlanDestroy(plan));
    cu(cudaGraphExecDestroy(exec));
    cu(cudaGraphDestroy(graph));
    ok(symmLaneDestroy(lane));
    ok(symmHeapFree(heap, s->w));
}

static void *drive(void *arg) {
    rank_state *s = (rank_state *)arg;
    symmHeap_t heap;
    symmHeapConfig_t config = SYMM_HEAP_CONFIG_INITIALIZER;
    cu(cudaSetDevice(s->device));
    cu(cudaStreamCreateWithFlags(&s->stream, cudaStreamNonBlocking));
    cu(cudaMallocHost((void **)&s->host, BYTES));
    load_kernels();
    config.symBytes = config.localBytes = 4 << 20;
    ok(symmHeapCreate(s->comm, &config, &heap));
    run(s, heap);
    ok(symmHeapDestroy(heap));
    cu(cudaFreeHost(s->host));
    cu(cudaStreamDestroy(s->stream));
    return NULL;
}

int main(void) {
    symmComm_t comms[MOST];
    pthread_t threads[MOST];
    rank_state ranks[MOST] = {};
    int gpus = 0, device[MOST];
    if (cudaGetDeviceCount(&gpus) != cudaSuccess || !gpus) {
        printf("no GPU here\n");
        return 0;
    }
    const int n = gpus < 2 ? 2 : gpus < MOST ? gpus : MOST;
    for (int r = 0; r < n; r++) device[r] = r % gpus;
    ok(symmCommInitAll(comms, n, device));
    pthread_barrier_init(&everybody, NULL, (unsigned)n);
    for (int r = 0; r < n; r++) {
        ranks[r].comm = comms[r];
        ranks[r].rank = r;
        ranks[r].ranks = n;
        ranks[r].device = device[r];
        pthread_create(&threads[r], NULL, drive, &ranks[r]);
    }
    for (int r = 0; r < n; r++) pthread_join(threads[r], NULL);
    for (int r = 0; r < n; r++) {
        printf("rank %d: %d replays, %ld weights wrong; error %.4f before, %.4f after; memory of "
               "the heap is %s\n",
               r, STEPS, ranks[r].wrong, ranks[r].first, ranks[r].last,
               ranks[r].inPlace ? "used in place" : "staged");
        ok(symmCommDestroy(comms[r]));
    }
    pthread_barrier_destroy(&everybody);
}
