/* halo.c - a grid in slabs of rows, one slab for each rank, round a ring. Before each step of a
 * stencil a rank needs the last row of the rank above and the first row of the rank below: its
 * halo. Four ways to get them, each with a check of what has come: symmSend and symmRecv in a
 * group, stores through pointers to the neighbours' memory, symmPutSignal, and MPI_Sendrecv. */
#include <stdio.h>
#include <stdlib.h>
#include "symm_mpi.h"

enum { ROWS = 64, COLUMNS = 16384, STEPS = 200 };

static int rank, n, above, below;
static symmComm_t comm;
static symmWindow_t win;
static float *slab;                /* ROWS rows, with a row of halo before and behind */
static float *up_slab, *down_slab; /* the neighbours', as this process reaches them */

static void ok(symmResult_t r) {
    if (r == symmSuccess) return;
    fprintf(stderr, "%s (%d): %s\n", symmGetErrorString(r), r, symmGetLastError(NULL));
    MPI_Abort(MPI_COMM_WORLD, r);
}

static float *row(float *of, int i) { /* -1 and ROWS: halo */
    return of + (size_t)(i + 1) * COLUMNS;
}

static void by_messages(void) {
    ok(symmGroupStart());
    ok(symmSend(row(slab, 0), COLUMNS, symmFloat, above, comm, NULL));
    ok(symmSend(row(slab, ROWS - 1), COLUMNS, symmFloat, below, comm, NULL));
    /* With two ranks both come from the same one, in the order in which it sends them. */
    ok(symmRecv(row(slab, ROWS), COLUMNS, symmFloat, below, comm, NULL));
    ok(symmRecv(row(slab, -1), COLUMNS, symmFloat, above, comm, NULL));
    ok(symmGroupEnd());
}

/* The first barrier: the neighbours have read the halo of the step before. The second: theirs is
 * here. */
static void by_pointers(void) {
    ok(symmBarrier(comm, NULL));
    for (int i = 0; i < COLUMNS; i++) row(up_slab, ROWS)[i] = row(slab, 0)[i];
    for (int i = 0; i < COLUMNS; i++) row(down_slab, -1)[i] = row(slab, ROWS - 1)[i];
    ok(symmBarrier(comm, NULL));
}

/* No rank waits for others than its neighbours: each says that its halo has been read, and each row
 * that comes raises a signal. With two ranks all are of the same one: their numbers tell. */
static void by_puts(void) {
    enum { TOP_IS_FREE, BOTTOM_IS_FREE, TOP_IS_HERE, BOTTOM_IS_HERE };
    const symmSignalWait_t free_there[] = {{above, BOTTOM_IS_FREE, 1}, {below, TOP_IS_FREE, 1}},
                           here[] = {{above, TOP_IS_HERE, 1}, {below, BOTTOM_IS_HERE, 1}};
    const size_t bytes = COLUMNS * sizeof *slab;
    ok(symmSignal(above, TOP_IS_FREE, comm, NULL));
    ok(symmSignal(below, BOTTOM_IS_FREE, comm, NULL));
    ok(symmWaitSignal(2, free_there, comm, NULL));
    ok(symmPutSignal(row(slab, 0), COLUMNS, symmFloat, above, win, (ROWS + 1) * bytes,
                     BOTTOM_IS_HERE, comm, NULL));
    ok(symmPutSignal(row(slab, ROWS - 1), COLUMNS, symmFloat, below, win, 0, TOP_IS_HERE, comm,
                     NULL));
    ok(symmWaitSignal(2, here, comm, NULL));
}

static void by_mpi(void) {
    MPI_Sendrecv(row(slab, 0), COLUMNS, MPI_FLOAT, above, 0, row(slab, ROWS), COLUMNS, MPI_FLOAT,
                 below, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Sendrecv(row(slab, ROWS - 1), COLUMNS, MPI_FLOAT, below, 1, row(slab, -1), COLUMNS,
                 MPI_FLOAT, above, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static float value(int of, int i, int step) {
    return (float)(of * 1000 + i + step);
}

/* Other edges in every step, and what has come of them. How many elements are wrong. */
static long check(void (*exchange)(void)) {
    long wrong = 0;
    for (int step = 0; step < 8; step++) {
        for (int i = 0; i < COLUMNS; i++) {
            row(slab, 0)[i] = value(rank, i, 2 * step);
            row(slab, ROWS - 1)[i] = value(rank, i, 2 * step + 1);
        }
        exchange();
        for (int i = 0; i < COLUMNS; i++) {
            wrong += row(slab, ROWS)[i] != value(below, i, 2 * step);
            wrong += row(slab, -1)[i] != value(above, i, 2 * step + 1);
        }
    }
    MPI_Allreduce(MPI_IN_PLACE, &wrong, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
    return wrong;
}

/* Microseconds of one exchange, of the slowest rank. */
static double time_of(void (*exchange)(void)) {
    for (int i = 0; i < 10; i++) exchange();
    MPI_Barrier(MPI_COMM_WORLD);
    double took = MPI_Wtime();
    for (int i = 0; i < STEPS; i++) exchange();
    took = (MPI_Wtime() - took) * 1e6 / STEPS;
    MPI_Allreduce(MPI_IN_PLACE, &took, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return took;
}

int main(int argc, char **argv) {
    static void (*const ways[])(void) = {by_messages, by_pointers, by_puts, by_mpi};
    const size_t bytes = (ROWS + 2) * (size_t)COLUMNS * sizeof *slab;
    long wrong = 0;
    double us[4];
    setenv("SYMM_BACKEND", "host", 0); /* unless it is set: the CPU touches the slab */
    MPI_Init(&argc, &argv);
    ok(symmCommInitMPI(&comm, MPI_COMM_WORLD, NULL));
    ok(symmCommUserRank(comm, &rank));
    ok(symmCommCount(comm, &n));
    above = (rank + n - 1) % n;
    below = (rank + 1) % n;
    ok(symmMemAlloc((void **)&slab, bytes));
    ok(symmWindowRegister(comm, slab, bytes, &win, SYMM_WIN_DEFAULT));
    ok(symmWindowPeerPtr(win, 0, above, (void **)&up_slab));
    ok(symmWindowPeerPtr(win, 0, below, (void **)&down_slab));
    for (int w = 0; w < 4; w++) wrong += check(ways[w]);
    for (int w = 0; w < 4; w++) us[w] = time_of(ways[w]);
    if (rank == 0) {
        printf("%d slabs, edges of %zu bytes: %ld wrong\n", n, COLUMNS * sizeof *slab, wrong);
        printf("send and receive: %.2f us, pointers: %.2f us, puts: %.2f us, "
               "MPI_Sendrecv: %.2f us\n",
               us[0], us[1], us[2], us[3]);
    }
    ok(symmWindowDeregister(comm, win));
    ok(symmBarrier(comm, NULL));
    ok(symmMemFree(slab));
    ok(symmCommDestroy(comm));
    MPI_Finalize();
    return wrong != 0;
}
