/* threads.c - four ranks in one process, without MPI: a thread drives each, and a stream of its own
 * runs what it asks for. The ranks gather each other's numbers, first at once, then from a graph.
 * Runs in: one thread per rank. No lock: each communicator is one thread's. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "symm.h"

enum { RANKS = 4, REPLAYS = 10 };

typedef struct {
    symmComm_t comm;
    int rank, number, all[RANKS];
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

static void gather(rank_state *s, symmStream_t stream) {
    ok(symmAllGather(&s->number, s->all, 1, symmInt, s->comm, stream));
}

static void *drive(void *arg) {
    rank_state *s = arg;
    symmStream_t stream;
    symmGraph_t graph;
    symmGraphExec_t exec;
    ok(symmStreamCreate(&stream));
    gather(s, stream);
    ok(symmStreamBeginCapture(stream));
    gather(s, stream); /* recorded, not run */
    ok(symmStreamEndCapture(stream, &graph));
    ok(symmGraphInstantiate(graph, &exec));
    for (int i = 1; i <= REPLAYS; i++) {
        ok(symmStreamSynchronize(stream));
        s->number = 100 * i + s->rank; /* a replay reads what is there when it runs */
        ok(symmGraphLaunch(exec, stream));
    }
    ok(symmStreamSynchronize(stream));
    ok(symmGraphExecDestroy(exec));
    ok(symmGraphDestroy(graph));
    ok(symmStreamDestroy(stream));
    return NULL;
}

int main(void) {
    symmComm_t comms[RANKS];
    pthread_t threads[RANKS];
    rank_state ranks[RANKS];
    setenv("SYMM_BACKEND", "host", 0); /* streams and memory are the host's */
    ok(symmCommInitAll(comms, RANKS, NULL));
    needs_host(comms[0]);
    for (int r = 0; r < RANKS; r++) {
        ranks[r] = (rank_state){.comm = comms[r], .rank = r, .number = r};
        pthread_create(&threads[r], NULL, drive, &ranks[r]);
    }
    for (int r = 0; r < RANKS; r++) pthread_join(threads[r], NULL);
    for (int r = 0; r < RANKS; r++) {
        printf("rank %d gathered", r);
        for (int i = 0; i < RANKS; i++) printf(" %d", ranks[r].all[i]);
        printf("\n");
        ok(symmCommDestroy(comms[r]));
    }
}
