/* peer_ptr.c - three processes without MPI: they find each other by a unique id, and each writes
 * straight into the others' memory. A barrier says when everybody has.
 * Runs in: one thread per process. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "symm.h"

enum { RANKS = 3 };

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

static void run(symmUniqueId_t id, int rank) {
    symmComm_t comm;
    symmWindow_t win;
    int *mine, *theirs, sum = 0;
    ok(symmCommInitRank(&comm, RANKS, id, rank));
    needs_host(comm);
    ok(symmMemAlloc((void **)&mine, RANKS * sizeof *mine)); /* zero-filled */
    ok(symmWindowRegister(comm, mine, RANKS * sizeof *mine, &win, SYMM_WIN_DEFAULT));
    for (int peer = 0; peer < RANKS; peer++) {
        ok(symmWindowPeerPtr(win, (size_t)rank * sizeof *mine, peer, (void **)&theirs));
        *theirs = 10 * (rank + 1); /* element `rank` of peer's array */
    }
    ok(symmBarrier(comm, NULL)); /* what was written before it is visible after it */
    for (int r = 0; r < RANKS; r++) sum += mine[r];
    printf("rank %d found %d %d %d, sum %d\n", rank, mine[0], mine[1], mine[2], sum);
    ok(symmBarrier(comm, NULL)); /* nobody goes while others may still read */
    ok(symmWindowDeregister(comm, win));
    ok(symmMemFree(mine));
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
