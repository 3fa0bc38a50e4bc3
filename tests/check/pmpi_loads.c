/* pmpi_loads.c - a program in C which loads a module that uses MPI in Fortran (pmpi_ends.F90). Of
 * check_pmpi.sh. */
#include <dlfcn.h>
#include <mpi.h>
#include <stdio.h>

int main(int argc, char **argv) {
    int wrong = 0, rank, ended;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    void *module = argc > 1 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
    void (*ends)(int *) = module ? (void (*)(int *))dlsym(module, "ends_") : NULL;
    if (!ends || dlsym(RTLD_DEFAULT, "mpi_comm_rank_")) return printf("no module\n");
    ends(&wrong);
    MPI_Finalized(&ended);
    if (rank == 0) printf("%d wrong\n", wrong + !ended);
    return wrong != 0 || !ended;
}
