/* shapes.c - what a user of the drop-in sees of it at SYMM_DEBUG=INFO: a line for each
 * communicator, a line for each new shape of a native call, counts at its end and at exit. Any
 * thread; no lock. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "plugin.h"

enum { OPS = ncclNumOps + 1, BITS = 64 }; /* the last reduction stands for all that programs make */

typedef struct {
    const char *name;
    int coll; /* symmColl_t; -1: none */
} call_row;

static const call_row rows[CALLS] = {
    [CALL_ALL_REDUCE] = {"ncclAllReduce", symmCollAllReduce},
    [CALL_ALL_GATHER] = {"ncclAllGather", symmCollAllGather},
    [CALL_REDUCE_SCATTER] = {"ncclReduceScatter", symmCollReduceScatter},
    [CALL_BROADCAST] = {"ncclBroadcast", symmCollBroadcast},
    [CALL_REDUCE] = {"ncclReduce", symmCollReduce},
    [CALL_ALL_TO_ALL] = {"ncclAlltoAll", symmCollAlltoAll},
    [CALL_GATHER] = {"ncclGather", symmCollGather},
    [CALL_SCATTER] = {"ncclScatter", symmCollScatter},
    [CALL_SEND] = {"ncclSend", -1},
    [CALL_RECV] = {"ncclRecv", -1},
    [CALL_PUT_SIGNAL] = {"ncclPutSignal", -1},
    [CALL_SIGNAL] = {"ncclSignal", -1},
    [CALL_WAIT_SIGNAL] = {"ncclWaitSignal", -1},
};

enum { TYPES_SEEN = 16, OPS_SEEN = 16 }; /* of shadows; the last stands for all that are larger */

static _Atomic unsigned char seen[CALLS][ncclNumTypes][OPS][BITS];
static _Atomic unsigned char over_seen[CALLS][TYPES_SEEN][OPS_SEEN][BITS];
/* Of communicators that have ended; [1]: by a real NCCL. The last are what no nccl_call is. */
static _Atomic uint64_t ended[2][CALLS + 1];
static _Atomic uint64_t communicators, forwarded, shadows, refused;
static _Atomic int reporter; /* the process that reports at its exit; 0: none yet */

static int log_takes_info(void) {
    int level = 0;
    return symmLogQuery(&level) == symmSuccess && level >= symmLogInfo;
}

/* ---- shapes ---------------------------------------------------------------------------------- */

static void tell(nccl_comm *c, nccl_call call, const void *send, const void *recv, size_t count,
                 int type, int op, int root) {
    symmExplain_t plan = {.size = sizeof plan};
    const call_row *row = &rows[call];
    if (row->coll < 0) {
        symm_nccl_say(symmLogInfo, "%s of %zu elements of type %d: native", row->name, count, type);
        return;
    }
    if (symmExplain(c->comm, (symmColl_t)row->coll, send, recv, count, (symmDataType_t)type,
                    nccl_own_op(c, op), root, &plan))
        return;
    symm_nccl_say(symmLogInfo,
                  "%s of %zu elements of type %d, reduction %d: native, kernel %s, send buffer %s, "
                  "receive buffer %s: %.400s",
                  row->name, count, type, op, plan.kernel,
                  plan.zeroCopySend ? "used in place" : "staged",
                  plan.zeroCopyRecv ? "used in place" : "staged", plan.reason);
}

static int bits_of(size_t count) {
    return count ? BITS - 1 - __builtin_clzll(count) : 0;
}

static int first_time(_Atomic unsigned char *mark) {
    if (LIKELY(atomic_load_explicit(mark, memory_order_relaxed))) return 0;
    return !atomic_exchange_explicit(mark, 1, memory_order_relaxed) && log_takes_info();
}

void symm_nccl_shape(nccl_comm *c, nccl_call call, const void *send, const void *recv, size_t count,
                     int type, int op, int root) {
    atomic_fetch_add_explicit(&c->calls[call], 1, memory_order_relaxed);
    if (UNLIKELY((unsigned)type >= ncclNumTypes)) return; /* symm refuses it */
    const int kind = (unsigned)op < ncclNumOps ? op : ncclNumOps;
    if (first_time(&seen[call][type][kind][bits_of(count)]))
        tell(c, call, send, recv, count, type, op, root);
}

/* ---- what goes to shadows -------------------------------------------------------------------- */

void symm_nccl_shadow_shape(nccl_call call, size_t count, int type, int op) {
    const unsigned kind = (unsigned)op < OPS_SEEN ? (unsigned)op : OPS_SEEN - 1;
    const unsigned known = (unsigned)type < TYPES_SEEN ? (unsigned)type : TYPES_SEEN - 1;
    if (!first_time(&over_seen[call][known][kind][bits_of(count)])) return;
    symm_nccl_say(symmLogInfo,
                  "%s of %zu elements of type %d, reduction %d: by the real NCCL, as symm has no "
                  "such %s",
                  rows[call].name, count, type, op, type >= ncclNumTypes ? "type" : "reduction");
}

void symm_nccl_shadow_count(const nccl_comm *c, int counted) {
    nccl_shadow *s = nccl_shadow_of(c);
    const int at = counted ? counted - 1 : CALLS;
    atomic_fetch_add_explicit(&s->calls[at], 1, memory_order_relaxed);
}

/* ---- communicators, the end ------------------------------------------------------------------ */

enum { LINE = 512 };

/* "ncclAllReduce 3, ncclSend 1" */
static void list(const uint64_t calls[CALLS + 1], char line[LINE]) {
    int at = snprintf(line, LINE, "no calls"), n = 0;
    for (int i = 0; i < CALLS; i++)
        if (calls[i] && n < LINE) {
            at = n;
            n += snprintf(line + at, LINE - (size_t)at, "%s%s %llu", at ? ", " : "", rows[i].name,
                          (unsigned long long)calls[i]);
        }
    if (calls[CALLS] && n < LINE)
        snprintf(line + n, LINE - (size_t)n, "%sothers %llu", n ? ", " : "",
                 (unsigned long long)calls[CALLS]);
}

/* What went to the shadow. */
static void load_over(const nccl_comm *c, uint64_t calls[CALLS + 1]) {
    for (int i = 0; i <= CALLS; i++) calls[i] = atomic_load(&nccl_shadow_of(c)->calls[i]);
}

/* Of one communicator: which calls went where, and why. */
static void tell_calls(nccl_comm *c, int passed, const char *when) {
    uint64_t calls[CALLS + 1] = {0}, over[CALLS + 1];
    char line[LINE], other[LINE] = "";
    for (int i = 0; i < CALLS; i++) calls[i] = atomic_load(&c->calls[i]);
    list(calls, line);
    load_over(c, over);
    if (c->over) list(over, other);
    if (passed)
        symm_nccl_say(symmLogInfo, "drop-in: communicator %p %s: forwarded, as %s: %s", (void *)c,
                      when, c->why, line);
    else
        symm_nccl_say(symmLogInfo, "drop-in: communicator %p %s: native: %s%s%s", (void *)c, when,
                      line, c->over ? "; forwarded: " : "", other);
}

/* All that were counted: of communicators that have ended, and of those that live, which get their
 * line now. */
static void sum_up(uint64_t calls[2][CALLS + 1]) {
    uint64_t over[CALLS + 1];
    for (int k = 0; k < 2; k++)
        for (int i = 0; i <= CALLS; i++) calls[k][i] = atomic_load(&ended[k][i]);
    for (int k = 0; k < NCCL_MAX_COMMS && symm_nccl_comms[k].magic; k++) {
        nccl_comm *c = &symm_nccl_comms[k];
        const int state = nccl_comm_state(nccl_handle(c));
        if (state != COMM_LIVE && state != COMM_FINAL && state != COMM_FORWARDED) continue;
        const int passed = state == COMM_FORWARDED;
        tell_calls(c, passed, "was not ended");
        for (int i = 0; i < CALLS; i++) calls[passed][i] += atomic_load(&c->calls[i]);
        load_over(c, over);
        for (int i = 0; i <= CALLS; i++) calls[1][i] += over[i];
    }
}

static void report(void) {
    uint64_t calls[2][CALLS + 1];
    char native[LINE], passed[LINE], modes[LINE + 80] = "all native";
    const unsigned long long n = atomic_load(&forwarded), beside = atomic_load(&shadows);
    /* A child that is forked has inherited this, and none of the communicators. */
    if (!log_takes_info() || atomic_load(&reporter) != getpid()) return;
    sum_up(calls);
    list(calls[0], native);
    list(calls[1], passed);
    if (n) snprintf(modes, sizeof modes, "%llu of them forwarded to a real NCCL", n);
    if (beside) {
        const size_t at = strlen(modes);
        snprintf(modes + at, sizeof modes - at, ", %llu with a real NCCL beside them", beside);
    }
    symm_nccl_say(symmLogInfo,
                  "drop-in: %llu communicators, %s; %llu calls refused; native: %s%s%s",
                  (unsigned long long)atomic_load(&communicators), modes,
                  (unsigned long long)atomic_load(&refused), native,
                  n || beside ? "; forwarded: " : "", n || beside ? passed : "");
}

void symm_nccl_shapes_begin(const nccl_comm *c) {
    symmCommInfo_t info = {.size = sizeof info};
    symmResult_t now = symmInProgress;
    atomic_fetch_add(&communicators, 1);
    if (c->over && nccl_comm_state((ncclComm_t)(uintptr_t)c) != COMM_FORWARDED)
        atomic_fetch_add(&shadows, 1);
    if (!atomic_exchange(&reporter, getpid())) atexit(report);
    if (!log_takes_info() || nccl_comm_state((ncclComm_t)(uintptr_t)c) == COMM_FORWARDED) return;
    if (symmCommGetAsyncError(c->comm, &now) || now || symmCommQuery(c->comm, &info))
        symm_nccl_say(symmLogInfo, "drop-in: communicator %p: native, being made", (const void *)c);
    else
        symm_nccl_say(symmLogInfo,
                      "drop-in: communicator %p%s%s: rank %d of %d, native, backend %s",
                      (const void *)c, *info.name ? " " : "", info.name, info.rank, info.nranks,
                      info.backend);
}

void symm_nccl_forward_tell(const nccl_comm *c, ncclComm_t theirs, const char *why) {
    const nccl_calls *real = symm_nccl_real_calls();
    int rank = -1, n = -1;
    if (!log_takes_info()) return;
    NCCL_INSIDE_REAL;
    if (real->ncclCommUserRank && real->ncclCommCount &&
        (real->ncclCommUserRank(theirs, &rank) || real->ncclCommCount(theirs, &n)))
        n = -1;
    symm_nccl_say(symmLogInfo,
                  "drop-in: communicator %p: rank %d of %d, forwarded to %s, as it is not native: "
                  "%.300s",
                  (const void *)c, rank, n, symm_nccl_real_path(), why);
}

void symm_nccl_shapes_forwarded(void) {
    atomic_fetch_add(&forwarded, 1);
}

void symm_nccl_shapes_end(nccl_comm *c, int passed) {
    if (log_takes_info()) tell_calls(c, passed, "ends");
    for (int i = 0; i < CALLS; i++)
        atomic_fetch_add(&ended[passed][i], atomic_exchange(&c->calls[i], 0));
    for (int i = 0; i <= CALLS; i++)
        atomic_fetch_add(&ended[1][i], atomic_exchange(&nccl_shadow_of(c)->calls[i], 0));
}

void symm_nccl_shapes_refused(void) {
    atomic_fetch_add(&refused, 1);
}
