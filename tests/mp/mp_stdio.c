/* mp_stdio.c - ranks under mpirun that close stdout and print: the MPI bootstrap, and what the
 * ranks make once they have met, leave its place alone. */
#include <mpi.h>

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "symm_mpi.h"
#include "t.h"

static void silent(const char *after) {
    T_CHECKF(write(1, "spoken\n", 7) == -1, "after %s descriptor 1 takes words", after);
    printf("printed after %s\n", after);
    fflush(stdout);
}

static void stdout_is_closed(void) {
    symmComm_t comm;
    symmWindow_t win;
    void *x;
    int n;
    MPI_Comm_size(MPI_COMM_WORLD, &n);
    fflush(stdout);
    int keep = fcntl(1, F_DUPFD_CLOEXEC, 100);
    T_CHECK(keep >= 0);
    close(1);
    T_OK(symmCommInitMPI(&comm, MPI_COMM_WORLD, NULL));
    silent("creation");
    T_OK(symmMemAlloc(&x, 1 << 20));
    T_OK(symmWindowRegister(comm, x, 1 << 20, &win, SYMM_WIN_DEFAULT));
    silent("a registration");
    *(int *)x = 1;
    T_OK(symmAllReduce(x, x, 1, symmInt, symmSum, comm, NULL));
    T_EQ(*(int *)x, n);
    T_OK(symmWindowDeregister(comm, win));
    T_OK(symmCommDestroy(comm));
    T_OK(symmMemFree(x));
    silent("the end");
    clearerr(stdout);
    T_EQ(dup2(keep, 1), 1);
    close(keep);
}

T_MAIN_MPI(T(stdout_is_closed))
