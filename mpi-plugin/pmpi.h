/* pmpi.h - what the files of the preload library share. It takes MPI's collectives through MPI's
 * profiling interface and runs them with symm on the host backend.
 *
 *   exports.c           the MPI_ functions: whether a call is served, and how it looks to symm
 *   exports_v.c         those with a count per rank
 *   exports_fortran.c   the same functions for Fortran
 *   sides.c             the program's buffers as bytes without gaps
 *   exports_life.c      ends of communicators and of MPI, which are not taken but noticed
 *   state.c             what there is for each MPI communicator, and when
 *   opening.c           whether and how its symm communicator is made
 *   types.c             MPI's types and reductions as symm's; types with gaps
 *   report.c            counters, and the line at exit
 *
 * Every rank must decide alike on every call. So nothing decides but what MPI's rules make the same
 * on all ranks, and what all have agreed on when the symm communicator was made. */
#ifndef PMPI_H_
#define PMPI_H_

#include <mpi.h>
#include <stddef.h>
#include <stdint.h>

#include "symm.h"
#include "weak.h"

enum {
#define CALL(name, ...) CALL_##name,
#include "calls.def"
#undef CALL
    PMPI_CALLS
};

/* Of an MPI communicator; hangs on it as an attribute. Used by the thread that is in a collective
 * on it: MPI allows one at a time. */
typedef struct pmpi_state {
    struct pmpi_state *next, **at; /* list of all; under the lock of state.c */
    MPI_Comm comm;
    symmComm_t symm; /* NULL but while `how` is SERVED */
    enum { YOUNG, SERVED, LEFT_TO_MPI } how;
    int rank, n, crowded, told; /* told: an error was said */
    int apart;                  /* over several hosts */
    unsigned seen;              /* calls that MPI served while it was young */
    void *spare[2]; /* what goes in and what comes out, where the program's type has gaps */
    size_t room[2];
    size_t *counts; /* four arrays of n: of calls with a count per rank */
    int opening;    /* the symm communicator is being made */
} pmpi_state;

/* ---- state.c --------------------------------------------------------------------------------- */

/* At the beginning of each call. NULL: MPI serves it, as it does all calls of a communicator that
 * is young or not served. Collective, as the call is. */
pmpi_state *pmpi_begin(MPI_Comm comm);
/* Whether symm serves a call of so many bytes, on all ranks alike. */
int pmpi_serves(const pmpi_state *s, int call, size_t bytes);
/* What the MPI call returns; what went wrong is raised at the communicator's error handler. A
 * communicator that has failed stays so, and MPI does not go on in its place: ranks may be at
 * different calls, which MPI would take for one. */
int pmpi_end(pmpi_state *s, int call, size_t bytes, symmResult_t r);
/* Room for `bytes` that stays until the next call; side: 0 in, 1 out. NULL: no memory. */
void *pmpi_room(pmpi_state *s, int side, size_t bytes);
/* MPI alone serves this communicator in this thread, while it is freed: the program's attributes on
 * it may have calls, and ours is gone or not at a different moment on each rank. NULL: none.
 * Returns which one it was before. */
MPI_Comm pmpi_going(MPI_Comm comm);
/* Ends what is left of us, before MPI ends: from here on MPI serves all. */
void pmpi_finish(void);
/* What fails on one rank alone, in the middle of an agreement. */
void pmpi_give_up(const char *what);

/* ---- opening.c ------------------------------------------------------------------------------- */

enum pmpi_mode { OFF, AUTO, ALL }; /* SYMM_PMPI */
/* Makes the symm communicator, or leaves all to MPI; s->how says which. Collective. */
void pmpi_open(pmpi_state *s, enum pmpi_mode mode);
/* The program makes a communicator in the background, which may last as long as it likes. */
void pmpi_makes_in_background(void);

/* ---- exports_fortran.c ----------------------------------------------------------------------- */

typedef void pmpi_function(void);
/* The function of that name behind this library's. NULL: there is none, but this is the MPI that
 * the library was built for, which has it in C. */
pmpi_function *pmpi_next(const char *name);

/* ---- types.c --------------------------------------------------------------------------------- */

typedef struct {
    symmDataType_t type;
    symmRedOp_t op;
    size_t each, bytes; /* elements of `type` in one of MPI's, and their bytes */
} pmpi_reduction;
/* Once, before the others. */
void pmpi_types_set_up(void);
/* 1: symm has this reduction of this type. The same on all ranks, which pass the same. */
int pmpi_reduces(MPI_Datatype type, MPI_Op op, pmpi_reduction *out);

/* Data of any type as bytes. Types may differ between ranks; their bytes may not. */
typedef struct {
    size_t each;    /* bytes of one element */
    size_t extent;  /* from one element to the next */
    int contiguous; /* each == extent, and the bytes are in the order in which they are sent */
} pmpi_layout;
/* 0: no type. */
int pmpi_layout_of(MPI_Datatype type, pmpi_layout *out);

/* ---- report.c -------------------------------------------------------------------------------- */

void pmpi_count(int call, int served, size_t bytes);
/* The line at exit, of rank 0, with SYMM_DEBUG=INFO. */
void pmpi_report(void);
__attribute__((format(printf, 1, 2))) void pmpi_warn(const char *fmt, ...);
__attribute__((format(printf, 1, 2))) void pmpi_info(const char *fmt, ...);

#endif
