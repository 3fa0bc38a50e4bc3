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

#define FREES(symbol)                                                      \
    EXPORT void symbol(void *comm, MPI_Fint *error) {                      \
        const int here = (void *)MPI_COMM_WORLD != NULL;                   \
        const MPI_Comm c = here ? PMPI_Comm_f2c(*(MPI_Fint *)comm) : NULL; \
        const MPI_Comm before = pmpi_going(c);                             \
        ((void (*)(void *, MPI_Fint *))pmpi_next(#symbol))(comm, error);   \
        pmpi_going(before);                                                \
    }
FREES(mpi_comm_free_)
FREES(mpi_comm_free_f08_)
FREES(mpi_comm_disconnect_)
FREES(mpi_comm_disconnect_f08_)

#define MAKES(symbol)                                                                           \
    EXPORT void symbol(void *comm, void *made, void *request, MPI_Fint *error) {                \
        pmpi_makes_in_background();                                                             \
        ((void (*)(void *, void *, void *, MPI_Fint *))pmpi_next(#symbol))(comm, made, request, \
                                                                           error);              \
    }
MAKES(mpi_comm_idup_)
MAKES(mpi_comm_idup_f08_)

#define ENDS(symbol)                                       \
    EXPORT void symbol(MPI_Fint *error) {                  \
        pmpi_finish();                                     \
        ((void (*)(MPI_Fint *))pmpi_next(#symbol))(error); \
    }
ENDS(mpi_finalize_)
ENDS(mpi_finalize_f08_)
