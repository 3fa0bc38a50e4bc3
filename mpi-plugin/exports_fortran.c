/* exports_fortran.c - the MPI functions as programs in Fortran call them: mpi_allreduce_ by mpif.h
 * and `use mpi`, mpi_allreduce_f08_ by `use mpi_f08`. MPI's own go to PMPI_Allreduce, past the
 * functions in C. These make C's arguments of Fortran's and call the function in C, which finds out
 * whether the call is served. Fortran's whole numbers are C's int here (mk/build.mk asks for that).
 * Where that is not the MPI that this was built for, the next function of that name is called. The
 * program's thread. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>

#include "sides.h"

/* Variables of MPI's: arguments with their addresses are no buffers. */
OMPI_DECLSPEC extern int mpi_fortran_in_place_, mpi_fortran_bottom_;
#pragma weak mpi_fortran_in_place_
#pragma weak mpi_fortran_bottom_

static void *buffer(void *at) {
    if (at == &mpi_fortran_in_place_) return MPI_IN_PLACE;
    return at == &mpi_fortran_bottom_ ? MPI_BOTTOM : at;
}
static int number(const void *at) {
    return *(const MPI_Fint *)at;
}

pmpi_function *pmpi_next(const char *name) {
    pmpi_function *f = (pmpi_function *)dlsym(RTLD_NEXT, name);
    if (f || (void *)MPI_COMM_WORLD) return f;
    pmpi_warn("%s: MPI was loaded later than this library, where it cannot be found", name);
    abort();
}

/* All arguments are addresses, of handles too. */
#define ARGS_1 void *a1
#define ARGS_5 ARGS_1, void *a2, void *a3, void *a4, void *a5
#define ARGS_6 ARGS_5, void *a6
#define ARGS_7 ARGS_6, void *a7
#define ARGS_8 ARGS_7, void *a8
#define ARGS_9 ARGS_8, void *a9
#define SAME_1 a1
#define SAME_5 SAME_1, a2, a3, a4, a5
#define SAME_6 SAME_5, a6
#define SAME_7 SAME_6, a7
#define SAME_8 SAME_7, a8
#define SAME_9 SAME_8, a9

#define BUFFER(i) buffer(a##i)
#define INT(i)    number(a##i)
#define INTS(i)   a##i
#define TYPE(i)   PMPI_Type_f2c(number(a##i))
#define OP(i)     PMPI_Op_f2c(number(a##i))
#define COMM(i)   PMPI_Comm_f2c(number(a##i))

/* error: may be absent in `use mpi_f08`, and is NULL then. */
#define NAMED(symbol, call, n, ...)                                                \
    EXPORT void symbol(ARGS_##n, MPI_Fint *error) {                                \
        if (!(void *)MPI_COMM_WORLD) {                                             \
            ((void (*)(ARGS_##n, MPI_Fint *))pmpi_next(#symbol))(SAME_##n, error); \
            return;                                                                \
        }                                                                          \
        const int r = MPI_##call(__VA_ARGS__);                                     \
        if (error) *error = r;                                                     \
    }
#define FORTRAN(call, name, n, ...)            \
    NAMED(mpi_##name##_, call, n, __VA_ARGS__) \
    NAMED(mpi_##name##_f08_, call, n, __VA_ARGS__)

/* Every row of calls.def (tests/check/check_pmpi.sh). */
FORTRAN(Allreduce, allreduce, 6, BUFFER(1), BUFFER(2), INT(3), TYPE(4), OP(5), COMM(6))
FORTRAN(Reduce, reduce, 7, BUFFER(1), BUFFER(2), INT(3), TYPE(4), OP(5), INT(6), COMM(7))
FORTRAN(Reduce_scatter, reduce_scatter, 6, BUFFER(1), BUFFER(2), INTS(3), TYPE(4), OP(5), COMM(6))
FORTRAN(Reduce_scatter_block, reduce_scatter_block, 6, BUFFER(1), BUFFER(2), INT(3), TYPE(4), OP(5),
        COMM(6))
FORTRAN(Allgather, allgather, 7, BUFFER(1), INT(2), TYPE(3), BUFFER(4), INT(5), TYPE(6), COMM(7))
FORTRAN(Allgatherv, allgatherv, 8, BUFFER(1), INT(2), TYPE(3), BUFFER(4), INTS(5), INTS(6), TYPE(7),
        COMM(8))
FORTRAN(Alltoall, alltoall, 7, BUFFER(1), INT(2), TYPE(3), BUFFER(4), INT(5), TYPE(6), COMM(7))
FORTRAN(Alltoallv, alltoallv, 9, BUFFER(1), INTS(2), INTS(3), TYPE(4), BUFFER(5), INTS(6), INTS(7),
        TYPE(8), COMM(9))
FORTRAN(Bcast, bcast, 5, BUFFER(1), INT(2), TYPE(3), INT(4), COMM(5))
FORTRAN(Gather, gather, 8, BUFFER(1), INT(2), TYPE(3), BUFFER(4), INT(5), TYPE(6), INT(7), COMM(8))
FORTRAN(Scatter, scatter, 8, BUFFER(1), INT(2), TYPE(3), BUFFER(4), INT(5), TYPE(6), INT(7),
        COMM(8))
FORTRAN(Gatherv, gatherv, 9, BUFFER(1), INT(2), TYPE(3), BUFFER(4), INTS(5), INTS(6), TYPE(7),
        INT(8), COMM(9))
FORTRAN(Scatterv, scatterv, 9, BUFFER(1), INTS(2), INTS(3), TYPE(4), BUFFER(5), INT(6), TYPE(7),
        INT(8), COMM(9))
FORTRAN(Barrier, barrier, 1, COMM(1))
