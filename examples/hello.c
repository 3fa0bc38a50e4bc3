/* hello.c - every rank brings its number, every rank gets the sum of them. */
#include <stdio.h>
#include <stdlib.h>

#include "symm_mpi.h"

#define COUNT 1024
#define OK(call) \
    if (call) fprintf(stderr, "%s\n", symmGetLastError(NULL)), MPI_Abort(MPI_COMM_WORLD, 1)

int main(int argc, char **argv) {
    int rank;
    float *x;
    symmComm_t comm;
    symmWindow_t win;
    setenv("SYMM_BACKEND", "host", 1); /* the CPU fills x, whatever GPUs there are */
    MPI_Init(&argc, &argv);
    OK(symmCommInitMPI(&comm, MPI_COMM_WORLD, NULL));
    OK(symmCommUserRank(comm, &rank));
    OK(symmMemAlloc((void **)&x, COUNT * sizeof *x));
    OK(symmWindowRegister(comm, x, COUNT * sizeof *x, &win, SYMM_WIN_DEFAULT));
    for (int i = 0; i < COUNT; i++) x[i] = (float)rank;
    OK(symmAllReduce(x, x, COUNT, symmFloat, symmSum, comm, NULL));
    printf("rank %d: the sum is %g\n", rank, x[COUNT - 1]);
    OK(symmWindowDeregister(comm, win));
    OK(symmMemFree(x));
    OK(symmCommDestroy(comm));
    MPI_Finalize();
}
