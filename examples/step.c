/* step.c - a training step, captured once and replayed: two ranks fit the same weights to data of
 * their own. Weights lie in a symmetric heap. Activations and gradients come from it inside the
 * step, in stream order, and go back to it: the graph has its addresses for life. The all_reduce
 * works on the gradients in place; nothing is registered.
 * Runs in: one thread per rank, and a thread of each stream. No lock: each communicator is one
 * thread's. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "symm_lane.h"

enum { RANKS = 2, WEIGHTS = 70000, STEPS = 20 };
#define BYTES (WEIGHTS * sizeof(float))

typedef struct {
    symmComm_t comm;
    int rank, inPlace;
    float x;            /* this rank's data */
    float *w, *grad;    /* SYM: at equal offsets on all ranks */
    float *act;         /* LOCAL: this rank's alone */
    double first, last; /* mean square error, before and after */
} rank_state;

static void ok(symmResult_t r) {
    if (r == symmSuccess) return;
    fprintf(stderr, "%s: %s\n", symmGetErrorString(r), symmGetLastError(NULL));
    exit(1);
}

/* The CPU touches the memory, so it must not be a GPU's. */
static void needs_host(symmComm_t comm) {
    int gpu;
    ok(symmCommDevice(comm, &gpu));
    if (gpu < 0) return;
    fprintf(stderr, "%s: memory would be on a GPU: leave SYMM_BACKEND unset, or host\n", __FILE__);
    exit(1);
}

static float target(int i) { /* what the weights should become */
    return (float)(i % 7) - 3;
}

/* ---- the step, as functions that a stream runs ---- */

static void forward(void *arg) {
    rank_state *s = arg;
    for (int i = 0; i < WEIGHTS; i++) s->act[i] = s->w[i] * s->x;
}

static void backward(void *arg) {
    rank_state *s = arg;
    for (int i = 0; i < WEIGHTS; i++) s->grad[i] = 2 * (s->act[i] - target(i) * s->x) * s->x;
}

static void update(void *arg) {
    rank_state *s = arg;
    for (int i = 0; i < WEIGHTS; i++) s->w[i] -= 0.1f * s->grad[i];
}

/* Each buffer lives from its alloc to its free in the order of the stream. */
static void step(rank_state *s, symmLane_t lane, symmStream_t stream) {
    ok(symmLaneAlloc(lane, BYTES, SYMM_ALLOC_LOCAL, (void **)&s->act));
    ok(symmStreamHostFunc(stream, forward, s));
    ok(symmLaneAlloc(lane, BYTES, SYMM_ALLOC_SYM, (void **)&s->grad));
    ok(symmStreamHostFunc(stream, backward, s));
    ok(symmLaneFree(lane, s->act));
    ok(symmAllReduce(s->grad, s->grad, WEIGHTS, symmFloat, symmAvg, s->comm, stream));
    ok(symmStreamHostFunc(stream, update, s));
    ok(symmLaneFree(lane, s->grad));
}

/* What the all_reduce would do with memory of the heap. */
static int in_place(const rank_state *s) {
    symmExplain_t plan = {.size = sizeof plan};
    ok(symmExplain(s->comm, symmCollAllReduce, s->w, s->w, WEIGHTS, symmFloat, symmAvg, 0, &plan));
    return plan.zeroCopySend && plan.zeroCopyRecv;
}

/* ---- one rank ---- */

static double mean_error(const rank_state *s) {
    double sum = 0;
    for (int i = 0; i < WEIGHTS; i++) sum += (s->w[i] - target(i)) * (s->w[i] - target(i));
    return sum / WEIGHTS;
}

static void run(rank_state *s, symmHeap_t heap) {
    symmStream_t stream;
    symmLane_t lane;
    symmGraph_t graph;
    symmGraphExec_t exec;
    ok(symmHeapAlloc(heap, BYTES, 0, SYMM_ALLOC_SYM,
                     (void **)&s->w)); /* the same calls on all ranks */
    for (int i = 0; i < WEIGHTS; i++) s->w[i] = 0;
    s->inPlace = in_place(s);
    s->first = mean_error(s);
    ok(symmStreamCreate(&stream));
    ok(symmLaneCreate(heap, stream, &lane));
    ok(symmStreamBeginCapture(stream));
    step(s, lane, stream); /* recorded, not run */
    ok(symmStreamEndCapture(stream, &graph));
    ok(symmGraphInstantiate(graph, &exec));
    for (int i = 0; i < STEPS; i++) ok(symmGraphLaunch(exec, stream));
    ok(symmStreamSynchronize(stream));
    s->last = mean_error(s);
    ok(symmGraphExecDestroy(exec));
    ok(symmGraphDestroy(graph));
    ok(symmLaneDestroy(lane));
    ok(symmStreamDestroy(stream));
    ok(symmHeapFree(heap, s->w));
}

static void *drive(void *arg) {
    rank_state *s = arg;
    symmHeap_t heap;
    symmHeapConfig_t config = SYMM_HEAP_CONFIG_INITIALIZER;
    config.symBytes = config.localBytes = 4 << 20;
    ok(symmHeapCreate(s->comm, &config, &heap));
    run(s, heap);
    ok(symmHeapDestroy(heap));
    return NULL;
}

int main(void) {
    symmComm_t comms[RANKS];
    pthread_t threads[RANKS];
    rank_state ranks[RANKS];
    setenv("SYMM_BACKEND", "host", 0); /* the CPU computes */
    ok(symmCommInitAll(comms, RANKS, NULL));
    needs_host(comms[0]);
    for (int r = 0; r < RANKS; r++) {
        ranks[r] = (rank_state){.comm = comms[r], .rank = r, .x = (float)(r + 1)};
        pthread_create(&threads[r], NULL, drive, &ranks[r]);
    }
    for (int r = 0; r < RANKS; r++) pthread_join(threads[r], NULL);
    for (int r = 0; r < RANKS; r++) {
        printf("rank %d: error %.4f before, %.4f after %d steps; memory of the heap is %s\n", r,
               ranks[r].first, ranks[r].last, STEPS, ranks[r].inPlace ? "used in place" : "staged");
        ok(symmCommDestroy(comms[r]));
    }
}
