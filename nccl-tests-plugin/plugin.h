/* plugin.h - what the files of the drop-in share: errors, variables, communicators, windows.
 *
 * A handle that a program holds is an address in a table of ours (comm.c, window.c), so it can be
 * checked without reading what it points to. Everything is in libnccl.so.2 alone, beside a copy of
 * libsymm; the prefix is symm_nccl_. */
#ifndef SYMM_NCCL_PLUGIN_H_
#define SYMM_NCCL_PLUGIN_H_

#include <stdatomic.h>

#include "symbols.h"

#define LIKELY(x)   __builtin_expect(!!(x), 1)
#define UNLIKELY(x) __builtin_expect(!!(x), 0)

/* ---- errors (report.c) ----------------------------------------------------------------------- */

/* Records the text for ncclGetLastError, writes it to the log as a warning, returns code. */
ncclResult_t symm_nccl_fail(ncclResult_t code, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* A result of symm as NCCL's: codes that only symm has become the nearest that every version of
 * NCCL has. The text of symm's last error becomes ncclGetLastError's. */
ncclResult_t symm_nccl_result(symmResult_t r);
/* NULL where a pointer is needed. */
ncclResult_t symm_nccl_null(const char *call, const char *argument);
/* A line in the log, at INFO or as a warning. */
void symm_nccl_say(symmLogLevel_t level, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* The result of most calls: nothing is left to be done where it is success. */
static inline ncclResult_t nccl_of(symmResult_t r) {
    return LIKELY(r == symmSuccess) ? ncclSuccess : symm_nccl_result(r);
}

/* ---- variables (params.c) -------------------------------------------------------------------- */

typedef struct {
#define NCCL_PARAM_INT(field, var, def, min, max, help) int field;
#define NCCL_PARAM_STR(field, var, help)                char field[256];
#include "params.def"
#undef NCCL_PARAM_INT
#undef NCCL_PARAM_STR
} symm_nccl_params;
/* Reads them anew. A bad value: ncclInvalidArgument, with what is allowed. Unknown SYMM_NCCL names:
 * a warning, once in a process. */
ncclResult_t symm_nccl_params_load(symm_nccl_params *out);

/* ---- communicators (comm.c) ------------------------------------------------------------------ */

/* Calls that are counted, and reported once for each distinct shape (shapes.c). */
typedef enum {
    CALL_ALL_REDUCE,
    CALL_ALL_GATHER,
    CALL_REDUCE_SCATTER,
    CALL_BROADCAST,
    CALL_REDUCE,
    CALL_ALL_TO_ALL,
    CALL_GATHER,
    CALL_SCATTER,
    CALL_SEND,
    CALL_RECV,
    CALLS
} nccl_call;

enum { COMM_FREE, COMM_MAKING, COMM_LIVE, COMM_FINAL, COMM_ENDING };

typedef struct symm_nccl_registered symm_nccl_registered; /* of ncclCommRegister: window.c */

/* The record behind an ncclComm_t. Its first word is not the one that NCCL's records begin with, so
 * that a real NCCL refuses the handle. */
typedef struct {
    _Alignas(128) uint64_t magic;
    _Atomic int state; /* COMM_*; LIVE is stored, released, when comm is set */
    symmComm_t comm;
    symm_nccl_registered *registered; /* under comm.c's lock */
    int reads_windows;                /* under window.c's: kernels may read handles of windows */
    _Atomic uint64_t calls[CALLS];
} nccl_comm;
_Static_assert(sizeof(nccl_comm) == 128, "one of them in two lines");

#define NCCL_MAX_COMMS 65536
extern nccl_comm symm_nccl_comms[NCCL_MAX_COMMS];

/* A new record that is being made; NULL, with the error reported, if there are too many. */
nccl_comm *symm_nccl_comm_new(void);
/* Its creation has succeeded or is in progress: it can be used from now on. */
void symm_nccl_comm_live(nccl_comm *c);
/* One thread only may end it. The state before if that is the caller, else 0. */
int symm_nccl_comm_end(nccl_comm *c);
/* Takes the record: the handle is stale from now on. */
void symm_nccl_comm_free(nccl_comm *c);
/* The record of a handle that a program passed, whatever it is: live or finalized. Else an error,
 * of a question: an open group goes on. */
ncclResult_t symm_nccl_comm_find(ncclComm_t comm, const char *call, nccl_comm **out);
/* The error of a handle that is not live. A group that is open runs nothing then. */
ncclResult_t symm_nccl_comm_none(ncclComm_t comm, const char *call);
/* Held while lists of a record are changed. */
void symm_nccl_lock(void);
void symm_nccl_unlock(void);

static inline ncclComm_t nccl_handle(nccl_comm *c) {
    return (ncclComm_t)(void *)c;
}

/* A record's state if the address is one of them, else COMM_FREE. */
static inline int nccl_comm_state(ncclComm_t comm) {
    const uintptr_t at = (uintptr_t)comm - (uintptr_t)symm_nccl_comms;
    if (UNLIKELY(at >= sizeof symm_nccl_comms || at % sizeof(nccl_comm))) return COMM_FREE;
    /* Acquire: pairs with symm_nccl_comm_live, so that comm is seen. */
    return atomic_load_explicit(&((nccl_comm *)(void *)comm)->state, memory_order_acquire);
}

/* For calls that must be fast: NULL if it is not live. Does not report. */
static inline nccl_comm *nccl_comm_live(ncclComm_t comm) {
    return LIKELY(nccl_comm_state(comm) == COMM_LIVE) ? (nccl_comm *)(void *)comm : NULL;
}

/* ---- windows (window.c) ---------------------------------------------------------------------- */

/* Takes the records of a communicator's windows and registrations: it has ended. */
void symm_nccl_windows_end(nccl_comm *c);

/* ---- groups (group.c) ------------------------------------------------------------------------ */

/* 1: this thread is inside a group. */
int symm_nccl_group_open(void);
/* What is to be done behind the outermost group's end, in this thread, with its result; outside of
 * a group at once, with `now`. Returns NCCL's code of `now`. */
typedef void (*nccl_after)(void *record, void *out, symmResult_t result);
ncclResult_t symm_nccl_after(nccl_after fn, void *record, void *out, symmResult_t now);
/* Before such a call: memory for it. symmOutOfMemory refuses the group. */
ncclResult_t symm_nccl_after_room(void);
/* A call that this library refuses itself: the open group, if any, runs nothing. Returns code. */
ncclResult_t symm_nccl_group_refuse(ncclResult_t code);

/* ---- a real NCCL (real.c) -------------------------------------------------------------------- */

/* Its function of that name (a pncclX name); NULL, with the reason in *why. Looks for the library
 * the first time. */
void *symm_nccl_real(const char *name, const char **why);
/* While its function runs: entered before, left behind, with what entered returned. */
int symm_nccl_real_entered(void);
void symm_nccl_real_left(const int *before);
/* Version of a real library that is loaded already, or that SYMM_NCCL_LIB names; 0: none. */
int symm_nccl_real_version(void);

/* ---- counters and shapes (shapes.c) ---------------------------------------------------------- */

/* Counts a call. A shape (collective, type, reduction, power of two of the count) that comes for
 * the first time gets a line in the log that says how it runs. */
void symm_nccl_shape(nccl_comm *c, nccl_call call, const void *send, const void *recv, size_t count,
                     int type, int op, int root);
/* A communicator was made: its line, and the report at exit. */
void symm_nccl_shapes_begin(const nccl_comm *c);
/* It ends: its counts are kept. */
void symm_nccl_shapes_end(nccl_comm *c);
/* A call that is not served was made. */
void symm_nccl_shapes_refused(void);

#endif
