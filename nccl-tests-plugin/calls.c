/* calls.c - collectives, point-to-point, reductions: checks of the handle, then symm's call of that
 * name. Any thread; no lock, no allocation. */
#include "config.h"

#define SYMM_TYPE(type) ((symmDataType_t)(type))
#define SYMM_OP(op)     ((symmRedOp_t)(op))

/* A call that needs a communicator, with its arguments: its record is `c` in what follows. */
#define WITH(call, ...)                  \
    nccl_comm *c = nccl_comm_live(comm); \
    if (UNLIKELY(!c)) return NCCL_ELSE(call)(__VA_ARGS__)

ncclResult_t ncclAllReduce(const void *send, void *recv, size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
    WITH(ncclAllReduce, send, recv, count, type, op, comm, stream);
    symm_nccl_shape(c, CALL_ALL_REDUCE, send, recv, count, type, op, -1);
    return nccl_of(symmAllReduce(send, recv, count, SYMM_TYPE(type), SYMM_OP(op), c->comm, stream));
}
NCCL_ALIAS(ncclAllReduce);

ncclResult_t ncclAllGather(const void *send, void *recv, size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream) {
    WITH(ncclAllGather, send, recv, count, type, comm, stream);
    symm_nccl_shape(c, CALL_ALL_GATHER, send, recv, count, type, 0, -1);
    return nccl_of(symmAllGather(send, recv, count, SYMM_TYPE(type), c->comm, stream));
}
NCCL_ALIAS(ncclAllGather);

ncclResult_t ncclReduceScatter(const void *send, void *recv, size_t count, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
    WITH(ncclReduceScatter, send, recv, count, type, op, comm, stream);
    symm_nccl_shape(c, CALL_REDUCE_SCATTER, send, recv, count, type, op, -1);
    return nccl_of(
        symmReduceScatter(send, recv, count, SYMM_TYPE(type), SYMM_OP(op), c->comm, stream));
}
NCCL_ALIAS(ncclReduceScatter);

ncclResult_t ncclBroadcast(const void *send, void *recv, size_t count, ncclDataType_t type,
                           int root, ncclComm_t comm, cudaStream_t stream) {
    WITH(ncclBroadcast, send, recv, count, type, root, comm, stream);
    symm_nccl_shape(c, CALL_BROADCAST, send, recv, count, type, 0, root);
    return nccl_of(symmBroadcast(send, recv, count, SYMM_TYPE(type), root, c->comm, stream));
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
    symm_nccl_shape(c, CALL_REDUCE, send, recv, count, type, op, root);
    return nccl_of(
        symmReduce(send, recv, count, SYMM_TYPE(type), SYMM_OP(op), root, c->comm, stream));
}
NCCL_ALIAS(ncclReduce);

/* In place each part is exchanged for the one that comes, which NCCL does not promise. */
ncclResult_t ncclAlltoAll(const void *send, void *recv, size_t count, ncclDataType_t type,
                          ncclComm_t comm, cudaStream_t stream) {
    WITH(ncclAlltoAll, send, recv, count, type, comm, stream);
    symm_nccl_shape(c, CALL_ALL_TO_ALL, send, recv, count, type, 0, -1);
    return nccl_of(symmAlltoAll(send, recv, count, SYMM_TYPE(type), c->comm, stream));
}
NCCL_ALIAS(ncclAlltoAll);

ncclResult_t ncclGather(const void *send, void *recv, size_t count, ncclDataType_t type, int root,
                        ncclComm_t comm, cudaStream_t stream) {
    WITH(ncclGather, send, recv, count, type, root, comm, stream);
    symm_nccl_shape(c, CALL_GATHER, send, recv, count, type, 0, root);
    return nccl_of(symmGather(send, recv, count, SYMM_TYPE(type), root, c->comm, stream));
}
NCCL_ALIAS(ncclGather);

ncclResult_t ncclScatter(const void *send, void *recv, size_t count, ncclDataType_t type, int root,
                         ncclComm_t comm, cudaStream_t stream) {
    WITH(ncclScatter, send, recv, count, type, root, comm, stream);
    symm_nccl_shape(c, CALL_SCATTER, send, recv, count, type, 0, root);
    return nccl_of(symmScatter(send, recv, count, SYMM_TYPE(type), root, c->comm, stream));
}
NCCL_ALIAS(ncclScatter);

ncclResult_t ncclSend(const void *send, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream) {
    WITH(ncclSend, send, count, type, peer, comm, stream);
    symm_nccl_shape(c, CALL_SEND, send, NULL, count, type, 0, peer);
    return nccl_of(symmSend(send, count, SYMM_TYPE(type), peer, c->comm, stream));
}
NCCL_ALIAS(ncclSend);

ncclResult_t ncclRecv(void *recv, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
    WITH(ncclRecv, recv, count, type, peer, comm, stream);
    symm_nccl_shape(c, CALL_RECV, NULL, recv, count, type, 0, peer);
    return nccl_of(symmRecv(recv, count, SYMM_TYPE(type), peer, c->comm, stream));
}
NCCL_ALIAS(ncclRecv);

/* ---- with a config: what it asks for is checked, then ignored -------------------------------- */

#define WITH_CONFIG(name, params, ...)                                                             \
    ncclResult_t name##Config params {                                                             \
        if (UNLIKELY(symm_nccl_passes(comm))) return NCCL_ELSE(name##Config)(__VA_ARGS__, config); \
        const ncclResult_t bad = symm_nccl_coll_config(config, #name "Config");                    \
        return bad ? symm_nccl_group_refuse(bad) : name(__VA_ARGS__);                              \
    }                                                                                              \
    NCCL_ALIAS(name##Config)
#define BUFFERS const void *send, void *recv, size_t count, ncclDataType_t type
#define WHERE   ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config

WITH_CONFIG(ncclAllReduce, (BUFFERS, ncclRedOp_t op, WHERE), send, recv, count, type, op, comm,
            stream);
WITH_CONFIG(ncclAllGather, (BUFFERS, WHERE), send, recv, count, type, comm, stream);
WITH_CONFIG(ncclReduceScatter, (BUFFERS, ncclRedOp_t op, WHERE), send, recv, count, type, op, comm,
            stream);
WITH_CONFIG(ncclBroadcast, (BUFFERS, int root, WHERE), send, recv, count, type, root, comm, stream);
WITH_CONFIG(ncclReduce, (BUFFERS, ncclRedOp_t op, int root, WHERE), send, recv, count, type, op,
            root, comm, stream);
WITH_CONFIG(ncclAlltoAll, (BUFFERS, WHERE), send, recv, count, type, comm, stream);
WITH_CONFIG(ncclGather, (BUFFERS, int root, WHERE), send, recv, count, type, root, comm, stream);
WITH_CONFIG(ncclScatter, (BUFFERS, int root, WHERE), send, recv, count, type, root, comm, stream);

/* ---- reductions ------------------------------------------------------------------------------ */

ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t *op, void *scalar, ncclDataType_t datatype,
                                      ncclScalarResidence_t residence, ncclComm_t comm) {
    symmRedOp_t mine;
    WITH(ncclRedOpCreatePreMulSum, op, scalar, datatype, residence, comm);
    if (!op) return symm_nccl_null("ncclRedOpCreatePreMulSum", "op");
    const symmResult_t r = symmRedOpCreatePreMulSum(&mine, scalar, SYMM_TYPE(datatype),
                                                    (symmScalarResidence_t)residence, c->comm);
    if (!r) *op = (ncclRedOp_t)mine;
    return nccl_of(r);
}
NCCL_ALIAS(ncclRedOpCreatePreMulSum);

/* Programs end a reduction behind the call that uses it, also in a group, which runs it later: the
 * call has taken what it needs of it. */
ncclResult_t ncclRedOpDestroy(ncclRedOp_t op, ncclComm_t comm) {
    WITH(ncclRedOpDestroy, op, comm);
    return nccl_of(symmRedOpDestroy(SYMM_OP(op), c->comm));
}
NCCL_ALIAS(ncclRedOpDestroy);
