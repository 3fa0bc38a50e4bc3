/* hello.c - every rank brings its number, every rank gets the sum of them. */
#include <stdio.h>
#include <stdlib.h>
#include "symm_mpi.h"
static void ok(symmResult_t r) {
    if (r == symmSuccess) return;
    fprintf(stderr, "%s (%d): %s\n", symmGetErrorString(r), r, symmGetLastError(NULL));
    MPI_Abort(MPI_COMM_WORLD, r);
}
int main(int argc, char **argv) {
    int rank, gpu, count = 1024;
    float *x;
    symmComm_t comm;
    symmWindow_t win;
    setenv("SYMM_BACKEND", "host", 0); /* unless it is set: the CPU fills x */
    MPI_Init(&argc, &argv);
    ok(symmCommInitMPI(&comm, MPI_COMM_WORLD, NULL));
    ok(symmCommUserRank(comm, &rank));
    ok(symmCommDevice(comm, &gpu)); /* -1: none */
    if (gpu >= 0) printf("x is on a GPU, where the CPU cannot fill it\n"), ok(symmInvalidUsage);
    ok(symmMemAlloc((void **)&x, count * sizeof *x));
    ok(symmWindowRegister(comm, x, count * sizeof *x, &win, SYMM_WIN_DEFAULT));
    for (int i = 0; i < count; i++) x[i] = (float)rank;
    ok(symmAllReduce(x, x, count, symmFloat, symmSum, comm, NULL));
    printf("rank %d: the sum is %g\n", rank, x[count - 1]);
    ok(symmWindowDeregister(comm, win));
    ok(symmMemFree(x));
    ok(symmCommDestroy(comm));
    MPI_Finalize();
}
