/* exports_life.c - ends of communicators and of MPI. MPI's own functions do all; only this is
 * noticed: while a communicator is freed, and once MPI ends, MPI serves what attribute callbacks of
 * the program's call. In what order callbacks run differs between ranks. For Fortran the next
 * function of the name is called, as it is for C under the name PMPI_. The program's thread. */
#include "sides.h"

/* Another MPI's handles may be shorter, and are not looked at. */
static MPI_Comm at(const MPI_Comm *comm) {
    return (void *)MPI_COMM_WORLD && comm ? *comm : NULL;
}

EXPORT int MPI_Comm_free(MPI_Comm *comm) {
    const MPI_Comm before = pmpi_going(at(comm));
    const int r = PMPI_Comm_free(comm);
    pmpi_going(before);
    return r;
}

EXPORT int MPI_Comm_disconnect(MPI_Comm *comm) {
    const MPI_Comm before = pmpi_going(at(comm));
    const int r = PMPI_Comm_disconnect(comm);
    pmpi_going(before);
    return r;
}

EXPORT int MPI_Comm_idup(MPI_Comm comm, MPI_Comm *newcomm, MPI_Request *request) {
    pmpi_makes_in_background();
    return PMPI_Comm_idup(comm, newcomm, request);
}

EXPORT int MPI_Finalize(void) {
    pmpi_finish();
    return PMPI_Finalize();
}

/* ---- Fortran --------------------------------------------------------------------------------- */

/* A library that the program loads by dlopen may bring MPI's functions for Fortran, and calls these
 * here, behind which there are none then (`next`). So MPI's function in C is called, as they do. */
typedef void frees_in_fortran(void *comm, MPI_Fint *error);
static void free_it(pmpi_function *next, int (*in_c)(MPI_Comm *), MPI_Fint *comm, MPI_Fint *error) {
    MPI_Comm c = (void *)MPI_COMM_WORLD ? PMPI_Comm_f2c(*comm) : NULL;
    const MPI_Comm before = pmpi_going(c);
    if (next) {
        ((frees_in_fortran *)next)(comm, error);
    } else {
        const int r = in_c(&c);
        if (!r) *comm = PMPI_Comm_c2f(c);
        if (error) *error = r;
    }
    pmpi_going(before);
}
#define FREES(symbol, call)                                    \
    EXPORT void symbol(void *comm, MPI_Fint *error) {          \
        free_it(pmpi_next(#symbol), PMPI_##call, comm, error); \
    }
FREES(mpi_comm_free_, Comm_free)
FREES(mpi_comm_free_f08_, Comm_free)
FREES(mpi_comm_disconnect_, Comm_disconnect)
FREES(mpi_comm_disconnect_f08_, Comm_disconnect)

typedef void makes_in_fortran(void *comm, void *made, void *request, MPI_Fint *error);
static void make_it(pmpi_function *next, MPI_Fint *comm, MPI_Fint *made, MPI_Fint *request,
                    MPI_Fint *error) {
    MPI_Comm c = NULL;
    MPI_Request q = NULL;
    pmpi_makes_in_background();
    if (next) {
        ((makes_in_fortran *)next)(comm, made, request, error);
        return;
    }
    const int r = PMPI_Comm_idup(PMPI_Comm_f2c(*comm), &c, &q);
    if (!r) *made = PMPI_Comm_c2f(c), *request = PMPI_Request_c2f(q);
    if (error) *error = r;
}
#define MAKES(symbol)                                                            \
    EXPORT void symbol(void *comm, void *made, void *request, MPI_Fint *error) { \
        make_it(pmpi_next(#symbol), comm, made, request, error);                 \
    }
MAKES(mpi_comm_idup_)
MAKES(mpi_comm_idup_f08_)

typedef void ends_in_fortran(MPI_Fint *error);
static void end_it(pmpi_function *next, MPI_Fint *error) {
    pmpi_finish();
    if (next) {
        ((ends_in_fortran *)next)(error);
        return;
    }
    const int r = PMPI_Finalize();
    if (error) *error = r;
}
#define ENDS(symbol)                       \
    EXPORT void symbol(MPI_Fint *error) {  \
        end_it(pmpi_next(#symbol), error); \
    }
ENDS(mpi_finalize_)
ENDS(mpi_finalize_f08_)
