/* grow.c - a vector that grows while everybody reads it: three processes append to their parts, and
 * a second thread of each reads the parts of all the others meanwhile. Nothing is copied, and what
 * was read once stays where it is.
 * Runs in: two threads per process. No lock: `written` tells the reader how far all ranks are. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "symm_vec.h"

enum { RANKS = 3, GROWTHS = 8, STEP = 1 << 20 }; /* STEP: elements per growth */

typedef struct {
    symmVec_t vec;
    _Atomic size_t written; /* elements that every rank has written */
    size_t wrong;
} reader_state;

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

static int element(int rank, size_t i) {
    return (int)(i * 3) + rank;
}

/* Reads what is there over and over, until all of it is. */
static void *read_all(void *arg) {
    reader_state *s = arg;
    size_t n = 0;
    while (n < (size_t)GROWTHS * STEP) {
        n = atomic_load_explicit(&s->written, memory_order_acquire); /* the writer's release */
        for (int rank = 0; rank < RANKS; rank++) {
            void *part;
            ok(symmVecPtr(s->vec, rank, &part));
            for (size_t i = 0; i < n; i += 997) s->wrong += ((int *)part)[i] != element(rank, i);
        }
    }
    return NULL;
}

static void append(symmComm_t comm, int rank, reader_state *s) {
    for (size_t k = 0; k < GROWTHS; k++) {
        void *own;
        ok(symmVecGrow(s->vec, (k + 1) * STEP * sizeof(int))); /* together with all ranks */
        ok(symmVecPtr(s->vec, rank, &own));
        for (size_t i = k * STEP; i < (k + 1) * STEP; i++) ((int *)own)[i] = element(rank, i);
        ok(symmBarrier(comm, NULL)); /* all have written */
        atomic_store_explicit(&s->written, (k + 1) * STEP, memory_order_release);
    }
}

static void run(symmUniqueId_t id, int rank) {
    symmComm_t comm;
    symmVecConfig_t config = SYMM_VEC_CONFIG_INITIALIZER;
    reader_state s = {.wrong = 0};
    pthread_t reader;
    void *before, *after;
    ok(symmCommInitRank(&comm, RANKS, id, rank));
    needs_host(comm);
    config.max = 64 << 20; /* addresses only: as long as they suffice it stays where it is */
    ok(symmVecCreate(comm, &config, &s.vec));
    ok(symmVecGrow(s.vec, 4096));
    ok(symmVecPtr(s.vec, rank, &before));
    pthread_create(&reader, NULL, read_all, &s);
    append(comm, rank, &s);
    pthread_join(reader, NULL);
    ok(symmVecPtr(s.vec, rank, &after));
    printf("rank %d: %d MiB of each rank, %zu elements wrong, %s\n", rank,
           (int)(GROWTHS * STEP * sizeof(int) >> 20), s.wrong,
           before == after ? "at the same address" : "moved");
    ok(symmBarrier(comm, NULL)); /* nobody goes while others read */
    ok(symmVecDestroy(s.vec));
    ok(symmCommDestroy(comm));
}

int main(void) {
    symmUniqueId_t id;
    int failed = 0, status;
    setenv("SYMM_BACKEND", "host", 0); /* the CPU reads and writes the memory */
    ok(symmGetUniqueId(&id));          /* rank 0 stays in this process */
    for (int rank = 1; rank < RANKS; rank++) {
        if (fork()) continue;
        run(id, rank);
        return 0;
    }
    run(id, 0);
    while (wait(&status) > 0) failed |= status;
    return failed != 0;
}
