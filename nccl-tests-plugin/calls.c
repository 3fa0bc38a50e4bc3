/* calls.c - collectives, point-to-point, one-sided calls, reductions: checks of the handle, then
 * symm's call of that name; or the shadow's, of what symm does not serve. Any thread; no lock, no
 * allocation but for reductions that programs make of the shadow's types. */
#include "config.h"

#define SYMM_TYPE(type) ((symmDataType_t)(type))
#define SYMM_OP(op)     nccl_own_op(c, (int)(op))

/* A call that needs a communicator, with its arguments: its record is `c` in what follows. */
#define OF(call, ...)                    \
    nccl_comm *c = nccl_comm_live(comm); \
    if (UNLIKELY(!c)) return NCCL_ELSE(call)(__VA_ARGS__)
/* One that does something between ranks, too. */
#define WITH(call, ...)                                       \
    OF(call, __VA_ARGS__);                                    \
    const ncclResult_t refusal = nccl_comm_refusal(c, #call); \
    if (UNLIKELY(refusal)) return refusal
/* One of this rank alone. */
#define OF_MADE(call, ...) \
    OF(call, __VA_ARGS__); \
    if (nccl_comm_unready(c)) return symm_nccl_group_refuse(symm_nccl_unready(#call))

/* 1: it may be a call that symm does not serve, or has a reduction that a program made. */
#define UNUSUAL(type, op) UNLIKELY((unsigned)(type) >= ncclNumTypes || (unsigned)(op) >= ncclNumOps)
/* Then it goes to the shadow, if there is one. */
#define REDUCES(call, which, ...)                                     \
    if (UNUSUAL(type, op) && nccl_goes_over(c, (int)type, (int)op)) { \
        symm_nccl_shadow_shape(which, count, (int)type, (int)op);     \
        op = symm_nccl_shadow_op(c, op);                              \
        return NCCL_OVER(call)(__VA_ARGS__);                          \
    }
#define MOVES(call, which, ...)                                            \
    if (UNUSUAL(type, ncclSum) && nccl_goes_over(c, (int)type, ncclSum)) { \
        symm_nccl_shadow_shape(which, count, (int)type, ncclSum);          \
        return NCCL_OVER(call)(__VA_ARGS__);                               \
    }

/* A collective of no elements: as in NCCL this rank's arguments are looked at, then it is dropped,
 * whatever the other ranks do. It is in no group and in no graph. */
static ncclResult_t drop_empty(const char *name, nccl_comm *c, nccl_call call, symmColl_t coll,
                               ncclDataType_t type, symmRedOp_t op, int root) {
    symmExplain_t plan = {.size = sizeof plan};
    symm_nccl_count(c, (int)call + 1);
    const symmResult_t r =
        symmExplain(c->comm, coll, NULL, NULL, 0, SYMM_TYPE(type), op, root, &plan);
    return r ? symm_nccl_group_refuse(symm_nccl_comm_done(name, r)) : ncclSuccess;
}
#define EMPTY(which, coll, op, root) \
    if (UNLIKELY(!count)) return drop_empty(__func__, c, which, coll, type, op, root)

ncclResult_t ncclAllReduce(const void *send, void *recv, size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
    WITH(ncclAllReduce, send, recv, count, type, op, comm, stream);
    REDUCES(ncclAllReduce, CALL_ALL_REDUCE, send, recv, count, type, op, comm, stream);
    EMPTY(CALL_ALL_REDUCE, symmCollAllReduce, SYMM_OP(op), 0);
    symm_nccl_shape(c, CALL_ALL_REDUCE, send, recv, count, type, op, -1);
    return nccl_done(
        __func__, symmAllReduce(send, recv, count, SYMM_TYPE(type), SYMM_OP(op), c->comm, stream));
}
NCCL_ALIAS(ncclAllReduce);

ncclResult_t ncclAllGather(const void *send, void *recv, size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream) {
    WITH(ncclAllGather, send, recv, count, type, comm, stream);
    MOVES(ncclAllGather, CALL_ALL_GATHER, send, recv, count, type, comm, stream);
    EMPTY(CALL_ALL_GATHER, symmCollAllGather, symmSum, 0);
    symm_nccl_shape(c, CALL_ALL_GATHER, send, recv, count, type, 0, -1);
    return nccl_done(__func__, symmAllGather(send, recv, count, SYMM_TYPE(type), c->comm, stream));
}
NCCL_ALIAS(ncclAllGather);

ncclResult_t ncclReduceScatter(const void *send, void *recv, size_t count, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
    WITH(ncclReduceScatter, send, recv, count, type, op, comm, stream);
    REDUCES(ncclReduceScatter, CALL_REDUCE_SCATTER, send, recv, count, type, op, comm, stream);
    EMPTY(CALL_REDUCE_SCATTER, symmCollReduceScatter, SYMM_OP(op), 0);
    symm_nccl_shape(c, CALL_REDUCE_SCATTER, send, recv, count, type, op, -1);
    return nccl_done(__func__, symmReduceScatter(send, recv, count, SYMM_TYPE(type), SYMM_OP(op),
                                                 c->comm, stream));
}
NCCL_ALIAS(ncclReduceScatter);

ncclResult_t ncclBroadcast(const void *send, void *recv, size_t count, ncclDataType_t type,
                           int root, ncclComm_t comm, cudaStream_t stream) {
    WITH(ncclBroadcast, send, recv, count, type, root, comm, stream);
    MOVES(ncclBroadcast, CALL_BROADCAST, send, recv, count, type, root, comm, stream);
    EMPTY(CALL_BROADCAST, symmCollBroadcast, symmSum, root);
    symm_nccl_shape(c, CALL_BROADCAST, send, recv, count, type, 0, root);
    return nccl_done(__func__,
                     symmBroadcast(send, recv, count, SYMM_TYPE(type), root, c->comm, stream));
}
NCCL_ALIAS(ncclBroadcast);

ncclResult_t ncclBcast(void *buff, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                       cudaStream_t stream) {
    return ncclBroadcast(buff, buff, count, type, root, comm, stream);
}
NCCL_ALIAS(ncclBcast);

ncclResult_t ncclReduce(const void *send, void *recv, size_t count, ncclDataType_t type,
                        ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream) {
    WITH(ncclReduce, send, recv, count, type, op, root, comm, stream);
    REDUCES(ncclReduce, CALL_REDUCE, send, recv, count, type, op, root, comm, stream);
    EMPTY(CALL_REDUCE, symmCollReduce, SYMM_OP(op), root);
    symm_nccl_shape(c, CALL_REDUCE, send, recv, count, type, op, root);
    return nccl_done(__func__, symmReduce(send, recv, count, SYMM_TYPE(type), SYMM_OP(op), root,
                                          c->comm, stream));
}
NCCL_ALIAS(ncclReduce);

/* In place each part is exchanged for the one that comes, which NCCL does not promise. */
ncclResult_t ncclAlltoAll(const void *send, void *recv, size_t count, ncclDataType_t type,
                          ncclComm_t comm, cudaStream_t stream) {
    WITH(ncclAlltoAll, send, recv, count, type, comm, stream);
    MOVES(ncclAlltoAll, CALL_ALL_TO_ALL, send, recv, count, type, comm, stream);
    EMPTY(CALL_ALL_TO_ALL, symmCollAlltoAll, symmSum, 0);
    symm_nccl_shape(c, CALL_ALL_TO_ALL, send, recv, count, type, 0, -1);
    return nccl_done(__func__, symmAlltoAll(send, recv, count, SYMM_TYPE(type), c->comm, stream));
}
NCCL_ALIAS(ncclAlltoAll);

ncclResult_t ncclGather(const void *send, void *recv, size_t count, ncclDataType_t type, int root,
                        ncclComm_t comm, cudaStream_t stream) {
    WITH(ncclGather, send, recv, count, type, root, comm, stream);
    MOVES(ncclGather, CALL_GATHER, send, recv, count, type, root, comm, stream);
    EMPTY(CALL_GATHER, symmCollGather, symmSum, root);
    symm_nccl_shape(c, CALL_GATHER, send, recv, count, type, 0, root);
    return nccl_done(__func__,
                     symmGather(send, recv, count, SYMM_TYPE(type), root, c->comm, stream));
}
NCCL_ALIAS(ncclGather);

ncclResult_t ncclScatter(const void *send, void *recv, size_t count, ncclDataType_t type, int root,
                         ncclComm_t comm, cudaStream_t stream) {
    WITH(ncclScatter, send, recv, count, type, root, comm, stream);
    MOVES(ncclScatter, CALL_SCATTER, send, recv, count, type, root, comm, stream);
    EMPTY(CALL_SCATTER, symmCollScatter, symmSum, root);
    symm_nccl_shape(c, CALL_SCATTER, send, recv, count, type, 0, root);
    return nccl_done(__func__,
                     symmScatter(send, recv, count, SYMM_TYPE(type), root, c->comm, stream));
}
NCCL_ALIAS(ncclScatter);

ncclResult_t ncclSend(const void *send, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream) {
    WITH(ncclSend, send, count, type, peer, comm, stream);
    MOVES(ncclSend, CALL_SEND, send, count, type, peer, comm, stream);
    symm_nccl_shape(c, CALL_SEND, send, NULL, count, type, 0, peer);
    return nccl_done(__func__, symmSend(send, count, SYMM_TYPE(type), peer, c->comm, stream));
}
NCCL_ALIAS(ncclSend);

ncclResult_t ncclRecv(void *recv, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
    WITH(ncclRecv, recv, count, type, peer, comm, stream);
    MOVES(ncclRecv, CALL_RECV, recv, count, type, peer, comm, stream);
    symm_nccl_shape(c, CALL_RECV, NULL, recv, count, type, 0, peer);
    return nccl_done(__func__, symmRecv(recv, count, SYMM_TYPE(type), peer, c->comm, stream));
}
NCCL_ALIAS(ncclRecv);

/* ---- one-sided: never by the shadow, whose signals are not symm's ---------------------------- */

/* What NCCL has not given a meaning yet must be 0. */
static ncclResult_t only_zero(const char *call, int sig, int ctx, unsigned flags) {
    if (LIKELY(!sig && !ctx && !flags)) return ncclSuccess;
    return symm_nccl_group_refuse(symm_nccl_fail(ncclInvalidArgument,
                                                 "%s: sigIdx=%d, ctx=%d, flags=%u: all must be 0",
                                                 call, sig, ctx, flags));
}

ncclResult_t ncclPutSignal(const void *local, size_t count, ncclDataType_t type, int peer,
                           ncclWindow_t win, size_t offset, int sig, int ctx, unsigned flags,
                           ncclComm_t comm, cudaStream_t stream) {
    static const char call[] = "ncclPutSignal";
    symmWindow_t own;
    WITH(ncclPutSignal, local, count, type, peer, win, offset, sig, ctx, flags, comm, stream);
    ncclResult_t bad = only_zero(call, sig, ctx, flags);
    if (bad) return bad;
    bad = symm_nccl_window_of(c, win, call, &own);
    if (bad) return symm_nccl_group_refuse(bad);
    symm_nccl_shape(c, CALL_PUT_SIGNAL, local, NULL, count, type, 0, peer);
    return nccl_done(__func__, symmPutSignal(local, count, SYMM_TYPE(type), peer, own, offset, 0,
                                             c->comm, stream));
}
NCCL_ALIAS(ncclPutSignal);

ncclResult_t ncclSignal(int peer, int sig, int ctx, unsigned flags, ncclComm_t comm,
                        cudaStream_t stream) {
    WITH(ncclSignal, peer, sig, ctx, flags, comm, stream);
    const ncclResult_t bad = only_zero("ncclSignal", sig, ctx, flags);
    if (bad) return bad;
    symm_nccl_count(c, CALL_SIGNAL + 1);
    return nccl_done(__func__, symmSignal(peer, 0, c->comm, stream));
}
NCCL_ALIAS(ncclSignal);

static ncclResult_t check_signals(int n, const ncclWaitSignalDesc_t *signals) {
    static const char call[] = "ncclWaitSignal";
    if (n < 1)
        return symm_nccl_group_refuse(
            symm_nccl_fail(ncclInvalidArgument, "%s: nDesc=%d: must be at least 1", call, n));
    if (!signals) return symm_nccl_group_refuse(symm_nccl_null(call, "signalDescs"));
    for (int i = 0; i < n; i++) {
        const ncclResult_t bad = only_zero(call, signals[i].sigIdx, signals[i].ctx, 0);
        if (bad) return bad;
        if (signals[i].opCnt < 1)
            return symm_nccl_group_refuse(symm_nccl_fail(
                ncclInvalidArgument, "%s: opCnt=%d: must be at least 1", call, signals[i].opCnt));
    }
    return ncclSuccess;
}

/* A list is several calls of symm, one after the other. */
ncclResult_t ncclWaitSignal(int n, ncclWaitSignalDesc_t *signals, ncclComm_t comm,
                            cudaStream_t stream) {
    enum { AT_ONCE = 72 }; /* as many ranks as there can be */
    symmSignalWait_t waits[AT_ONCE];
    symmResult_t r = symmSuccess;
    WITH(ncclWaitSignal, n, signals, comm, stream);
    const ncclResult_t bad = check_signals(n, signals);
    if (bad) return bad;
    symm_nccl_count(c, CALL_WAIT_SIGNAL + 1);
    for (int i = 0, k; i < n && !r; i += k) {
        for (k = 0; k < AT_ONCE && i + k < n; k++)
            waits[k] = (symmSignalWait_t){signals[i + k].peer, 0, (size_t)signals[i + k].opCnt};
        r = symmWaitSignal(k, waits, c->comm, stream);
    }
    return nccl_done(__func__, r);
}
NCCL_ALIAS(ncclWaitSignal);

/* ---- with a config: what it asks for is checked, then ignored -------------------------------- */

/* What goes to the shadow takes its config along, if the real NCCL has configs of calls. */
#define WITH_CONFIG(name, PLACE, which, params, ...)                                               \
    ncclResult_t name##Config params {                                                             \
        if (UNLIKELY(symm_nccl_passes(comm))) return NCCL_ELSE(name##Config)(__VA_ARGS__, config); \
        nccl_comm *c = nccl_comm_live(comm);                                                       \
        if (c && c->over && symm_nccl_real_calls()->name##Config)                                  \
            PLACE(name##Config, which, __VA_ARGS__, config)                                        \
        const ncclResult_t bad = symm_nccl_coll_config(config, #name "Config");                    \
        return bad ? symm_nccl_group_refuse(bad) : name(__VA_ARGS__);                              \
    }                                                                                              \
    NCCL_ALIAS(name##Config)
#define BUFFERS const void *send, void *recv, size_t count, ncclDataType_t type
#define WHERE   ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config

WITH_CONFIG(ncclAllReduce, REDUCES, CALL_ALL_REDUCE, (BUFFERS, ncclRedOp_t op, WHERE), send, recv,
            count, type, op, comm, stream);
WITH_CONFIG(ncclAllGather, MOVES, CALL_ALL_GATHER, (BUFFERS, WHERE), send, recv, count, type, comm,
            stream);
WITH_CONFIG(ncclReduceScatter, REDUCES, CALL_REDUCE_SCATTER, (BUFFERS, ncclRedOp_t op, WHERE), send,
            recv, count, type, op, comm, stream);
WITH_CONFIG(ncclBroadcast, MOVES, CALL_BROADCAST, (BUFFERS, int root, WHERE), send, recv, count,
            type, root, comm, stream);
WITH_CONFIG(ncclReduce, REDUCES, CALL_REDUCE, (BUFFERS, ncclRedOp_t op, int root, WHERE), send,
            recv, count, type, op, root, comm, stream);
WITH_CONFIG(ncclAlltoAll, MOVES, CALL_ALL_TO_ALL, (BUFFERS, WHERE), send, recv, count, type, comm,
            stream);
WITH_CONFIG(ncclGather, MOVES, CALL_GATHER, (BUFFERS, int root, WHERE), send, recv, count, type,
            root, comm, stream);
WITH_CONFIG(ncclScatter, MOVES, CALL_SCATTER, (BUFFERS, int root, WHERE), send, recv, count, type,
            root, comm, stream);

/* ---- reductions ------------------------------------------------------------------------------ */

/* Of a type that symm does not have: only calls of that type use it, and they go to the shadow. */
static ncclResult_t create_over(ncclRedOp_t *op, void *scalar, ncclDataType_t datatype,
                                ncclScalarResidence_t residence, nccl_comm *c) {
    const ncclComm_t comm = nccl_handle(c);
    ncclRedOp_t theirs = ncclSum;
    const ncclResult_t r =
        NCCL_OVER(ncclRedOpCreatePreMulSum)(&theirs, scalar, datatype, residence, comm);
    if (r) return r;
    const int ours = symm_nccl_shadow_op_new(c, theirs);
    if (ours) *op = (ncclRedOp_t)ours;
    if (!ours) NCCL_OVER(ncclRedOpDestroy)(theirs, comm);
    return ours ? ncclSuccess : ncclSystemError;
}

ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t *op, void *scalar, ncclDataType_t datatype,
                                      ncclScalarResidence_t residence, ncclComm_t comm) {
    symmRedOp_t mine;
    OF_MADE(ncclRedOpCreatePreMulSum, op, scalar, datatype, residence, comm);
    if (!op) return symm_nccl_null("ncclRedOpCreatePreMulSum", "op");
    if (UNLIKELY(nccl_goes_over(c, (int)datatype, ncclSum)))
        return create_over(op, scalar, datatype, residence, c);
    const symmResult_t r = symmRedOpCreatePreMulSum(&mine, scalar, SYMM_TYPE(datatype),
                                                    (symmScalarResidence_t)residence, c->comm);
    if (!r) *op = (ncclRedOp_t)((int)mine + (c->over ? NCCL_OP_HANDLES - ncclNumOps : 0));
    return nccl_done(__func__, r);
}
NCCL_ALIAS(ncclRedOpCreatePreMulSum);

/* Programs end a reduction behind the call that uses it, also in a group, which runs it later: the
 * call has taken what it needs of it. */
ncclResult_t ncclRedOpDestroy(ncclRedOp_t op, ncclComm_t comm) {
    OF_MADE(ncclRedOpDestroy, op, comm);
    const ncclRedOp_t theirs =
        c->over && (int)op >= NCCL_OP_THEIRS ? symm_nccl_shadow_op_take(c, op) : (ncclRedOp_t)-1;
    if ((int)theirs >= 0) return NCCL_OVER(ncclRedOpDestroy)(theirs, comm);
    return nccl_done(__func__, symmRedOpDestroy(SYMM_OP(op), c->comm));
}
NCCL_ALIAS(ncclRedOpDestroy);
