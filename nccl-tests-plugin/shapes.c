/* shapes.c - what a user of the drop-in sees of it at SYMM_DEBUG=INFO: a line for each
 * communicator, a line for each new shape of a call, counts at exit. Any thread; no lock. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
};

static _Atomic unsigned char seen[CALLS][ncclNumTypes][OPS][BITS];
static _Atomic uint64_t ended[CALLS]; /* calls of communicators that have ended */
static _Atomic uint64_t communicators, forwarded, refused;
static _Atomic int reporting;

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
                    (symmRedOp_t)op, root, &plan))
        return;
    symm_nccl_say(symmLogInfo,
                  "%s of %zu elements of type %d, reduction %d: native, kernel %s, send buffer %s, "
                  "receive buffer %s: %.400s",
                  row->name, count, type, op, plan.kernel,
                  plan.zeroCopySend ? "used in place" : "staged",
                  plan.zeroCopyRecv ? "used in place" : "staged", plan.reason);
}

void symm_nccl_shape(nccl_comm *c, nccl_call call, const void *send, const void *recv, size_t count,
                     int type, int op, int root) {
    atomic_fetch_add_explicit(&c->calls[call], 1, memory_order_relaxed);
    if (UNLIKELY((unsigned)type >= ncclNumTypes)) return; /* symm refuses it */
    const int kind = (unsigned)op < ncclNumOps ? op : ncclNumOps;
    const int bits = count ? BITS - 1 - __builtin_clzll(count) : 0;
    _Atomic unsigned char *mark = &seen[call][type][kind][bits];
    if (LIKELY(atomic_load_explicit(mark, memory_order_relaxed))) return;
    if (atomic_exchange_explicit(mark, 1, memory_order_relaxed) || !log_takes_info()) return;
    tell(c, call, send, recv, count, type, op, root);
}

/* ---- communicators, the end ------------------------------------------------------------------ */

static void report(void) {
    char line[512];
    int at = 0;
    if (!log_takes_info()) return;
    for (int i = 0; i < CALLS; i++) {
        uint64_t n = atomic_load(&ended[i]);
        for (int k = 0; k < NCCL_MAX_COMMS && symm_nccl_comms[k].magic; k++)
            n += atomic_load(&symm_nccl_comms[k].calls[i]);
        if (n && at < (int)sizeof line)
            at += snprintf(line + at, sizeof line - (size_t)at, ", %s %llu", rows[i].name,
                           (unsigned long long)n);
    }
    char modes[64] = "all native";
    const unsigned long long passed = atomic_load(&forwarded);
    if (passed) snprintf(modes, sizeof modes, "%llu of them forwarded to a real NCCL", passed);
    symm_nccl_say(symmLogInfo, "drop-in: %llu communicators, %s; %llu calls refused%s",
                  (unsigned long long)atomic_load(&communicators), modes,
                  (unsigned long long)atomic_load(&refused), at ? line : "");
}

void symm_nccl_shapes_begin(const nccl_comm *c) {
    symmCommInfo_t info = {.size = sizeof info};
    symmResult_t now = symmInProgress;
    atomic_fetch_add(&communicators, 1);
    if (!atomic_exchange(&reporting, 1)) atexit(report);
    if (!log_takes_info() || nccl_comm_state((ncclComm_t)(uintptr_t)c) == COMM_FORWARDED) return;
    if (symmCommGetAsyncError(c->comm, &now) || now || symmCommQuery(c->comm, &info))
        symm_nccl_say(symmLogInfo, "drop-in: communicator %p: native, being made", (const void *)c);
    else
        symm_nccl_say(symmLogInfo,
                      "drop-in: communicator %p%s%s: rank %d of %d, native, backend %s",
                      (const void *)c, *info.name ? " " : "", info.name, info.rank, info.nranks,
                      info.backend);
}

void symm_nccl_forward_tell(const nccl_comm *c, const char *why) {
    const nccl_calls *real = symm_nccl_real_calls();
    int rank = -1, n = -1;
    atomic_fetch_add(&forwarded, 1);
    if (!log_takes_info()) return;
    NCCL_INSIDE_REAL;
    if (real->ncclCommUserRank && real->ncclCommCount &&
        (real->ncclCommUserRank(c->real, &rank) || real->ncclCommCount(c->real, &n)))
        n = -1;
    symm_nccl_say(symmLogInfo,
                  "drop-in: communicator %p: rank %d of %d, forwarded to %s, as it is not native: "
                  "%.300s",
                  (const void *)c, rank, n, symm_nccl_real_path(), why);
}

void symm_nccl_shapes_end(nccl_comm *c) {
    for (int i = 0; i < CALLS; i++) atomic_fetch_add(&ended[i], atomic_exchange(&c->calls[i], 0));
}

void symm_nccl_shapes_refused(void) {
    atomic_fetch_add(&refused, 1);
}
