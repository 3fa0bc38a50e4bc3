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
/* The communicator is still being made, or another one from it: ncclInvalidArgument, as in NCCL,
 * whose ncclInProgress means that a call was accepted and goes on. An open group goes on. */
ncclResult_t symm_nccl_unready(const char *call);
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
#define NCCL_PARAM_ENUM(field, var, def, names, help)   int field;
#include "params.def"
#undef NCCL_PARAM_INT
#undef NCCL_PARAM_STR
#undef NCCL_PARAM_ENUM
} symm_nccl_params;
/* Reads them anew. A bad value: ncclInvalidArgument, with what is allowed. Unknown SYMM_NCCL names:
 * a warning, once in a process. */
ncclResult_t symm_nccl_params_load(symm_nccl_params *out);

/* ---- communicators (comm.c) ------------------------------------------------------------------ */

/* Calls that are counted. Native ones are reported once for each distinct shape (shapes.c). */
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
    CALL_PUT_SIGNAL,
    CALL_SIGNAL,
    CALL_WAIT_SIGNAL,
    CALLS
} nccl_call;

/* FORWARDED: by a real NCCL, to its end. The others are of native ones. */
enum { COMM_FREE, COMM_MAKING, COMM_LIVE, COMM_FINAL, COMM_ENDING, COMM_FORWARDED };

/* It may still be made, or another one from it, which symm is to be asked; its own rank has revoked
 * it; or has ended its calls by a shrink. */
enum { COMM_UNREADY = 1, COMM_REVOKED = 2, COMM_STOPPED = 4 };

typedef struct symm_nccl_registered symm_nccl_registered; /* of ncclCommRegister: window.c */

/* The record behind an ncclComm_t. Its first word is not the one that NCCL's records begin with, so
 * that a real NCCL refuses the handle. */
typedef struct {
    _Alignas(128) uint64_t magic;
    _Atomic int state;             /* COMM_*; LIVE is stored, released, when comm is set */
    unsigned char reads_windows;   /* under window.c's lock: kernels may read handles of windows */
    _Atomic unsigned char refuses; /* COMM_UNREADY and others: why it may take no calls */
    unsigned char over; /* native: it has a shadow, or gets one while it is made; set with MAKING */
    unsigned char behind;        /* creation goes on behind the call; set with MAKING */
    _Atomic unsigned char stuck; /* a thread was inside for long: window.c */
    symmComm_t comm;
    symm_nccl_registered *registered; /* under comm.c's lock */
    ncclComm_t real;                  /* forwarded: the real NCCL's; set before the state says so */
    struct nccl_making *making;       /* agree.c; NULL: made in the call, or made */
    _Atomic uint64_t calls[CALLS];
    char why[96]; /* forwarded: the reason, set with real; cut off where it is longer */
} nccl_comm;
_Static_assert(sizeof(nccl_comm) == 256, "a power of two: handles are checked by it");

#define NCCL_MAX_COMMS 65536
extern nccl_comm symm_nccl_comms[NCCL_MAX_COMMS];

/* What stands beside a native communicator with SYMM_NCCL_FORWARD=op: a communicator of the real
 * NCCL over the same ranks, for calls that symm does not serve. */
typedef struct {
    _Atomic(ncclComm_t) comm;          /* NULL: none yet, or none any more */
    _Atomic uint64_t calls[CALLS + 1]; /* the last: those that are no nccl_call */
    ncclRedOp_t *ops; /* under comm.c's lock: the real NCCL's handles, ours are numbered by it */
    int nops;
} nccl_shadow;
extern nccl_shadow symm_nccl_shadows[NCCL_MAX_COMMS];

static inline nccl_shadow *nccl_shadow_of(const nccl_comm *c) {
    return &symm_nccl_shadows[c - symm_nccl_comms];
}

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
/* The same of one that may have become forwarded since the caller looked. */
ncclResult_t symm_nccl_comm_find_any(ncclComm_t comm, const char *call, nccl_comm **out);
/* The error of a handle that is not live. A group that is open runs nothing then. */
ncclResult_t symm_nccl_comm_none(ncclComm_t comm, const char *call);
/* 1: it is still being made, or another one from it (asked of symm). Does not report. */
int symm_nccl_comm_in_progress(nccl_comm *c);
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

/* The record of a forwarded communicator; NULL if it is none. Does not report. */
static inline nccl_comm *nccl_comm_forwarded(ncclComm_t comm) {
    return LIKELY(nccl_comm_state(comm) == COMM_FORWARDED) ? (nccl_comm *)(void *)comm : NULL;
}

static inline int nccl_comm_refuses(const nccl_comm *c) {
    return atomic_load_explicit(&c->refuses, memory_order_relaxed);
}
/* 1 before a call that needs it made, and it is not. */
static inline int nccl_comm_unready(nccl_comm *c) {
    return UNLIKELY(nccl_comm_refuses(c) & COMM_UNREADY) && symm_nccl_comm_in_progress(c);
}
/* The error of a collective, a message or a signal, if it takes none now. One comparison as a
 * rule. */
ncclResult_t symm_nccl_comm_refusal(nccl_comm *c, const char *call);
static inline ncclResult_t nccl_comm_refusal(nccl_comm *c, const char *call) {
    return LIKELY(!nccl_comm_refuses(c)) ? ncclSuccess : symm_nccl_comm_refusal(c, call);
}

/* The result of a call that takes a communicator that is made. Between a look at that and the call
 * another thread may have begun to make one from it: then symm says that it is in progress, which
 * would mean to a program that the call was accepted. */
ncclResult_t symm_nccl_comm_done(const char *call, symmResult_t r);
static inline ncclResult_t nccl_done(const char *call, symmResult_t r) {
    return LIKELY(r == symmSuccess) ? ncclSuccess : symm_nccl_comm_done(call, r);
}

/* ---- windows (window.c) ---------------------------------------------------------------------- */

/* Takes the records of a communicator's windows and registrations: it has ended. */
void symm_nccl_windows_end(nccl_comm *c);
/* 1: the handle is one of ours, live or not. */
int symm_nccl_window_ours(ncclWindow_t win);
/* The real NCCL's window of the shadow, beside one of ours; NULL: there is none. */
ncclWindow_t symm_nccl_window_theirs(ncclWindow_t win);
/* The error of a handle that is no live window. */
ncclResult_t symm_nccl_window_none(ncclWindow_t win, const char *call);
/* symm's window behind a handle of this communicator's. */
ncclResult_t symm_nccl_window_of(const nccl_comm *c, ncclWindow_t win, const char *call,
                                 symmWindow_t *out);

/* ---- groups (group.c) ------------------------------------------------------------------------ */

/* 1: this thread is inside a group. */
int symm_nccl_group_open(void);
/* What is to be done behind the outermost group's end, in this thread, with its code; outside of a
 * group at once, with that of `now`. Returns NCCL's code of `now`. */
typedef void (*nccl_after)(void *record, void *out, ncclResult_t code);
ncclResult_t symm_nccl_after(nccl_after fn, void *record, void *out, symmResult_t now);
/* Before such a call: memory for it. symmOutOfMemory refuses the group. */
ncclResult_t symm_nccl_after_room(void);
/* 1: fn is to be called with this record when this thread's group ends. */
int symm_nccl_after_has(nccl_after fn, const void *record);
/* Of such a function: the group's result, if nothing else failed. */
void symm_nccl_after_failed(ncclResult_t code);
/* Before a call of a forwarded communicator: inside a group, the real NCCL's group is open too. */
void symm_nccl_group_real(const nccl_calls *real);
/* A call that this library refuses itself: the open group, if any, runs nothing. Returns code. */
ncclResult_t symm_nccl_group_refuse(ncclResult_t code);

/* ---- a real NCCL (real.c) -------------------------------------------------------------------- */

/* Its functions; NULL, with the reason in *why. Looks for the library the first time. */
const nccl_calls *symm_nccl_real(const char **why);
/* The same behind a call that succeeded, as there was one for every forwarded communicator; else
 * NULL. */
const nccl_calls *symm_nccl_real_calls(void);
/* Where it is, and "PATH has no pNAME". */
const char *symm_nccl_real_path(void);
const char *symm_nccl_real_lacks(const char *name);
/* Version of a real library that is loaded already, or that SYMM_NCCL_LIB names; 0: none. */
int symm_nccl_real_version(void);

/* How deep this thread is in functions of a real NCCL, which may call ours. */
extern _Thread_local int symm_nccl_inside_real;
static inline void nccl_left_real(const int *before) {
    symm_nccl_inside_real = *before;
}
/* In a block that calls them. */
#define NCCL_INSIDE_REAL \
    __attribute__((cleanup(nccl_left_real), unused)) const int before = symm_nccl_inside_real++

/* ---- forwarded communicators (forward.c, forward_life.c) ------------------------------------- */

/* 1: a function that is native passes the call on: the communicator is forwarded, or one of the
 * real NCCL's own, which calls us. The same of a window that is none of ours. */
int symm_nccl_passes(ncclComm_t comm);
int symm_nccl_passes_window(ncclWindow_t win);
/* A function of the real NCCL has failed: its text becomes ours, an open group runs nothing.
 * Returns r. */
ncclResult_t symm_nccl_forward_failed(const char *name, ncclComm_t real, ncclResult_t r);
/* Says in the log that c, which no other thread has yet, becomes the real NCCL's. why: a reason. */
void symm_nccl_forward_tell(const nccl_comm *c, ncclComm_t real, const char *why);
/* A communicator of the real NCCL in a record that is being made, from now on: then another thread
 * may end it. 0: the record was ended meanwhile. */
int symm_nccl_forward_take(nccl_comm *c, ncclComm_t real, const char *why);
/* Ends one whose record is the caller's, by the real NCCL's call of that name. */
ncclResult_t symm_nccl_forward_destroy(nccl_comm *c);
ncclResult_t symm_nccl_forward_abort(nccl_comm *c);
ncclResult_t symm_nccl_forward_finalize(ncclComm_t comm);
ncclResult_t symm_nccl_forward_split(ncclComm_t comm, int color, int key, ncclComm_t *newcomm,
                                     ncclConfig_t *config);
ncclResult_t symm_nccl_forward_shrink(ncclComm_t comm, int *excluded, int n, ncclComm_t *newcomm,
                                      ncclConfig_t *config, int flags);
/* comm may be NULL: a new rank. */
ncclResult_t symm_nccl_forward_grow(ncclComm_t comm, int nranks, const ncclUniqueId *id, int rank,
                                    ncclComm_t *newcomm, ncclConfig_t *config);
/* A child of one that does not block is there when its parent is ready again: the real NCCL writes
 * its handle then. Before the parent's state is asked for: what to pass behind it; 0: no child is
 * being waited for. */
uint64_t symm_nccl_forward_births(void);
/* The parent was ready: the programs get the handles of its children. */
void symm_nccl_forward_settled(const nccl_comm *parent, uint64_t births);
/* All n of a process. why: the reason. */
ncclResult_t symm_nccl_forward_all(ncclComm_t *comms, int n, const int *devices, const char *why);

/* ---- shadows (forward.c, forward_life.c) ----------------------------------------------------- */

enum { NCCL_FORWARD_NEVER, NCCL_FORWARD_OP };

/* Reductions that programs make of a communicator that may have a shadow: symm's from HANDLES on,
 * the real NCCL's from THEIRS on. So 5 to HANDLES-1 are left to reductions that newer versions of
 * NCCL have built in, and what an op means, and where it goes, is seen by its number. */
enum { NCCL_OP_HANDLES = 64, NCCL_OP_THEIRS = 1 << 30 };

/* 1: a call of this type and reduction is one that symm does not serve, and c has a shadow. The
 * answer is the same on all ranks: they agree on `over`, and NCCL wants type and op equal. */
static inline int nccl_goes_over(const nccl_comm *c, int type, int op) {
    return c->over && (type >= ncclNumTypes || (op >= ncclNumOps && op < NCCL_OP_HANDLES));
}
/* What symm calls the reduction op of a communicator. */
static inline symmRedOp_t nccl_own_op(const nccl_comm *c, int op) {
    if (LIKELY((unsigned)op < ncclNumOps) || !c->over) return (symmRedOp_t)op;
    return (symmRedOp_t)(op < NCCL_OP_HANDLES ? -1 : op - NCCL_OP_HANDLES + ncclNumOps);
}
/* What the real NCCL calls it; -1: nothing. */
ncclRedOp_t symm_nccl_shadow_op(const nccl_comm *c, ncclRedOp_t op);
/* A handle for a reduction of the real NCCL's; 0: no memory, reported. */
int symm_nccl_shadow_op_new(const nccl_comm *c, ncclRedOp_t theirs);
/* Takes the handle back; -1: it is none. */
ncclRedOp_t symm_nccl_shadow_op_take(const nccl_comm *c, ncclRedOp_t op);

/* 1: a live native communicator that has one. */
int symm_nccl_has_shadow(ncclComm_t comm);
/* Before a call goes there: the real NCCL's handle, or the error of the communicator, also if it is
 * still made. there: the real NCCL has the function. */
ncclResult_t symm_nccl_shadow_ready(const nccl_comm *c, const char *name, int there,
                                    ncclComm_t *real);
/* Under comm.c's lock, while c is made: it has it from now on, or has it no more (may be NULL). */
void symm_nccl_shadow_set(const nccl_comm *c, ncclComm_t real);
ncclComm_t symm_nccl_shadow_take(const nccl_comm *c);
/* c ends, and with it what makes it. failed: the ranks may not come to its end together, so it is
 * aborted. */
ncclResult_t symm_nccl_shadow_end(nccl_comm *c, int failed);
/* With the native one, behind what was done to that. */
ncclResult_t symm_nccl_shadow_finalize(const nccl_comm *c);
ncclResult_t symm_nccl_shadow_revoke(const nccl_comm *c, int flags);
/* The same, as far as it goes: of one that a shrink leaves behind. */
void symm_nccl_shadow_stop(const nccl_comm *c);
ncclResult_t symm_nccl_shadow_async(const nccl_comm *c, ncclResult_t *error);

/* ---- the mode of a communicator, agreed when it is made (agree.c) ---------------------------- */

enum { NCCL_MODE_AUTO, NCCL_MODE_NATIVE, NCCL_MODE_FORWARD };
typedef struct nccl_making nccl_making;
/* What ranks settle with each other while c is being made, by its `over` and `behind`. config (may
 * be NULL) is copied. bad: this rank cannot go on, the text is the thread's last; the others are
 * told. NULL: no memory, reported. */
nccl_making *symm_nccl_making_new(nccl_comm *c, int mode, const ncclConfig_t *config,
                                  ncclResult_t bad);
symmMeet_t symm_nccl_making_meet(nccl_making *m);
/* The call has been made. begun 1: there is a communicator of symm, which may go on behind the
 * call: then m stays with the record. */
void symm_nccl_making_made(nccl_making *m, int begun);
/* The record ends; m is not used by it any more. */
void symm_nccl_making_end(nccl_making *m, int begun);

/* ---- making one of the real NCCL, on a thread of its own (enter.c) --------------------------- */

typedef struct nccl_kept nccl_kept; /* a program's config: config.h */
typedef struct {
    int nranks, rank, device; /* device -1: none is set */
    ncclUniqueId id;
    nccl_kept *config; /* NULL: none */
} nccl_entering;
typedef struct nccl_entry nccl_entry;
/* Begins. An error is reported, and *out is as it was. */
ncclResult_t symm_nccl_entry_begin(const nccl_entering *how, nccl_entry **out);
/* 1: it has come out, with *code and, of an error, the real NCCL's text. */
int symm_nccl_entry_done(nccl_entry *e, ncclResult_t *code, char *text, size_t cap);
/* Frees e. kept 1: it is done, and this is its communicator. 0: nobody wants it: it is aborted, now
 * or when the thread comes out of the real NCCL. */
ncclComm_t symm_nccl_entry_end(nccl_entry *e, int kept);

/* ---- counters and shapes (shapes.c) ---------------------------------------------------------- */

/* Counts a native call. A shape (collective, type, reduction, power of two of the count) that comes
 * for the first time gets a line in the log that says how it runs. */
void symm_nccl_shape(nccl_comm *c, nccl_call call, const void *send, const void *recv, size_t count,
                     int type, int op, int root);
/* A forwarded one. A row of symbols.def that is not counted: nothing. */
static inline void symm_nccl_count(nccl_comm *c, int counted) {
    if (counted) atomic_fetch_add_explicit(&c->calls[counted - 1], 1, memory_order_relaxed);
}
/* One that goes to the shadow: counted (0: it is no nccl_call), and a line for each new shape. */
void symm_nccl_shadow_count(const nccl_comm *c, int counted);
void symm_nccl_shadow_shape(nccl_call call, size_t count, int type, int op);
/* A communicator was made: its line, and the report at exit. */
void symm_nccl_shapes_begin(const nccl_comm *c);
/* It ends, and its record is the caller's: a line with its counts, which are kept. passed: it was
 * forwarded. */
void symm_nccl_shapes_end(nccl_comm *c, int passed);
/* A communicator is forwarded. */
void symm_nccl_shapes_forwarded(void);
/* A call that is not served was made. */
void symm_nccl_shapes_refused(void);

#endif
