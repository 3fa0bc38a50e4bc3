/* forward.c - calls of forwarded communicators, and those of native ones that go to their shadow:
 * each goes to the real NCCL's function of that name, with the real NCCL's handle. One function for
 * each row of symbols.def that has a communicator or a window. Any thread; no lock, no allocation.
 *
 * A native communicator and its shadow have nothing in common but the caller's stream. The kernels
 * of both stand in it in the order of the calls, as those of one communicator do, so a call finds
 * what the one before it has left, whoever serves them; neither waits for the other in any way that
 * another rank could turn round. On different streams they are as two communicators of NCCL. */
#include <stdio.h>

#include "plugin.h"

static _Atomic int windows_pass; /* there has been a forwarded communicator */

int symm_nccl_passes(ncclComm_t comm) {
    return nccl_comm_forwarded(comm) || (symm_nccl_inside_real && !nccl_comm_state(comm));
}

int symm_nccl_passes_window(ncclWindow_t win) {
    return win && atomic_load_explicit(&windows_pass, memory_order_relaxed) &&
           !symm_nccl_window_ours(win);
}

int symm_nccl_forward_take(nccl_comm *c, ncclComm_t real, const char *why) {
    int state = atomic_load_explicit(&c->state, memory_order_relaxed);
    c->real = real;
    snprintf(c->why, sizeof c->why, "%s", why);
    atomic_store_explicit(&windows_pass, 1, memory_order_relaxed);
    while (state == COMM_MAKING || state == COMM_LIVE)
        /* Release: pairs with nccl_comm_state, so that real and why are seen. */
        if (atomic_compare_exchange_weak_explicit(&c->state, &state, COMM_FORWARDED,
                                                  memory_order_release, memory_order_relaxed)) {
            symm_nccl_shapes_forwarded();
            return 1;
        }
    c->real = NULL;
    return 0;
}

ncclResult_t symm_nccl_forward_failed(const char *name, ncclComm_t real, ncclResult_t r) {
    const nccl_calls *calls = symm_nccl_real_calls();
    const char *text = calls->ncclGetLastError ? calls->ncclGetLastError(real) : "";
    if (r == ncclInProgress) return r;
    if (r > ncclInProgress) r = ncclRemoteError; /* codes that programs do not know */
    return symm_nccl_group_refuse(
        symm_nccl_fail(r, "%s, of the real NCCL: %.400s", name, text && *text ? text : "no text"));
}

static void lacks(const char *name) {
    symm_nccl_shapes_refused();
    symm_nccl_group_refuse(symm_nccl_fail(ncclInvalidUsage, "%s: it goes to a real NCCL, and %s",
                                          name, symm_nccl_real_lacks(name)));
}

/* ---- what is counted ------------------------------------------------------------------------- */

enum {
#define SYMBOL(class, ret, name, params, args, why) ROW_OF_##name,
#include "symbols.def"
#undef SYMBOL
    ROWS
};

#define COUNTED(name, call)   [ROW_OF_##name] = (call) + 1
#define WITH_BOTH(name, call) COUNTED(name, call), COUNTED(name##Config, call)

/* The call that a row counts as, and 1; 0: it counts as none. */
static const unsigned char counted[ROWS] = {
    WITH_BOTH(ncclAllReduce, CALL_ALL_REDUCE),
    WITH_BOTH(ncclAllGather, CALL_ALL_GATHER),
    WITH_BOTH(ncclReduceScatter, CALL_REDUCE_SCATTER),
    WITH_BOTH(ncclBroadcast, CALL_BROADCAST), /* ncclBcast, too */
    WITH_BOTH(ncclReduce, CALL_REDUCE),
    WITH_BOTH(ncclAlltoAll, CALL_ALL_TO_ALL),
    WITH_BOTH(ncclGather, CALL_GATHER),
    WITH_BOTH(ncclScatter, CALL_SCATTER),
    COUNTED(ncclSend, CALL_SEND),
    COUNTED(ncclRecv, CALL_RECV),
    COUNTED(ncclPutSignal, CALL_PUT_SIGNAL),
    COUNTED(ncclSignal, CALL_SIGNAL),
    COUNTED(ncclWaitSignal, CALL_WAIT_SIGNAL),
};

/* ---- shadows --------------------------------------------------------------------------------- */

int symm_nccl_has_shadow(ncclComm_t comm) {
    const nccl_comm *c = nccl_comm_live(comm);
    return c && c->over;
}

/* While symm's part is in progress, or has failed, so is all of it: a call that only the shadow
 * would take could not be told from one that was in time. */
ncclResult_t symm_nccl_shadow_ready(const nccl_comm *c, const char *name, int there,
                                    ncclComm_t *real) {
    symmResult_t now = symmSuccess;
    const symmResult_t r = symmCommGetAsyncError(c->comm, &now);
    /* Acquire: pairs with symm_nccl_shadow_set. */
    *real = atomic_load_explicit(&nccl_shadow_of(c)->comm, memory_order_acquire);
    if (!r && now == symmInProgress) return symm_nccl_group_refuse(symm_nccl_unready(name));
    if (r || now) return symm_nccl_group_refuse(symm_nccl_result(r ? r : now));
    if (*real && there) return ncclSuccess;
    symm_nccl_shapes_refused();
    return symm_nccl_group_refuse(symm_nccl_fail(
        ncclInvalidUsage, "%s: symm does not serve it, and %s", name,
        *real ? symm_nccl_real_lacks(name) : "another thread ends the communicator"));
}

/* ---- one for each row ------------------------------------------------------------------------ */

#define DONE_ncclResult_t(name, real, r) \
    return LIKELY((r) == ncclSuccess) ? (r) : symm_nccl_forward_failed(name, real, r)
#define DONE_int(name, real, r)        return r
#define DONE_ncclTeam_t(name, real, r) return r

/* `comm` in args is the real NCCL's: ours is hidden. A call of the real NCCL has that already. */
#define ELSE_comm(ret, name, params, args)                                         \
    ret NCCL_ELSE(name) params {                                                   \
        const nccl_calls *calls = symm_nccl_real_calls();                          \
        nccl_comm *c = nccl_comm_forwarded((ncclComm_t)comm);                      \
        if (UNLIKELY(!c && !symm_nccl_passes((ncclComm_t)comm))) {                 \
            const ncclResult_t bad = symm_nccl_comm_none((ncclComm_t)comm, #name); \
            return NONE_##ret(bad);                                                \
        }                                                                          \
        if (UNLIKELY(!calls->name)) {                                              \
            lacks(#name);                                                          \
            return NCCL_EMPTY_##ret;                                               \
        }                                                                          \
        if (UNLIKELY(!c)) return calls->name args;                                 \
        NCCL_INSIDE_REAL;                                                          \
        symm_nccl_group_real(calls);                                               \
        symm_nccl_count(c, counted[ROW_OF_##name]);                                \
        const ncclComm_t real = c->real;                                           \
        ret r;                                                                     \
        {                                                                          \
            const ncclComm_t comm = real;                                          \
            r = calls->name args;                                                  \
        }                                                                          \
        DONE_##ret(#name, real, r);                                                \
    }

/* Of calls that have no shape: a line for each of them, once. */
static void count_over(const nccl_comm *c, int row, const char *name) {
    static _Atomic unsigned char told[ROWS];
    symm_nccl_shadow_count(c, counted[row]);
    if (!counted[row] && !atomic_exchange_explicit(&told[row], 1, memory_order_relaxed))
        symm_nccl_say(symmLogInfo, "%s: by the real NCCL, as symm does not serve it", name);
}

/* The same of a native communicator, with the shadow's. */
#define OVER_comm(ret, name, params, args)                                         \
    ret NCCL_OVER(name) params {                                                   \
        const nccl_calls *calls = symm_nccl_real_calls();                          \
        const nccl_comm *c = (const nccl_comm *)(const void *)comm;                \
        ncclComm_t real = NULL;                                                    \
        const ncclResult_t bad =                                                   \
            symm_nccl_shadow_ready(c, #name, calls && calls->name != NULL, &real); \
        if (bad) return NONE_##ret(bad);                                           \
        NCCL_INSIDE_REAL;                                                          \
        symm_nccl_group_real(calls);                                               \
        count_over(c, ROW_OF_##name, #name);                                       \
        ret r;                                                                     \
        {                                                                          \
            const ncclComm_t comm = real;                                          \
            r = calls->name args;                                                  \
        }                                                                          \
        DONE_##ret(#name, real, r);                                                \
    }

/* Of a window of a real NCCL, if there is one; or of what it has beside one of ours. */
#define ELSE_win(ret, name, params, args)                                      \
    ret NCCL_ELSE(name) params {                                               \
        const nccl_calls *calls = symm_nccl_real_calls();                      \
        const ncclWindow_t theirs =                                            \
            symm_nccl_passes_window(win) ? win : symm_nccl_window_theirs(win); \
        if (!theirs || !calls) return symm_nccl_window_none(win, #name);       \
        if (!calls->name) {                                                    \
            lacks(#name);                                                      \
            return NCCL_EMPTY_##ret;                                           \
        }                                                                      \
        NCCL_INSIDE_REAL;                                                      \
        ret r;                                                                 \
        {                                                                      \
            const ncclWindow_t win = theirs;                                   \
            r = calls->name args;                                              \
        }                                                                      \
        DONE_##ret(#name, NULL, r);                                            \
    }

#define NONE_ncclResult_t(bad) bad
#define NONE_int(bad)          ((void)(bad), 0)
#define NONE_ncclTeam_t(bad)   ((void)(bad), (ncclTeam_t){0, 0, 0})

#define ROW_native(ret, name, params, args)
#define ROW_later(ret, name, params, args)
#define ROW_refused(ret, name, params, args)
#define ROW_forwarded(ret, name, params, args)
#define ROW_native_comm(ret, name, params, args) \
    ELSE_comm(ret, name, params, args) OVER_comm(ret, name, params, args)
#define ROW_later_comm                           ROW_native_comm
#define ROW_refused_comm                         ROW_native_comm
#define ROW_native_win(ret, name, params, args)  ELSE_win(ret, name, params, args)
#define ROW_refused_win(ret, name, params, args) ELSE_win(ret, name, params, args)

#pragma GCC diagnostic ignored "-Wshadow"
#define SYMBOL(class, ret, name, params, args, why) ROW_##class(ret, name, params, args)
#include "symbols.def"
