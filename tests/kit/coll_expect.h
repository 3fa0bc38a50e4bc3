/* coll_expect.h - collectives by their rows of coll.def, for tests: any call by its number, and
 * what each must give. A new collective needs one function here: expect_<Id>. Pure but for the call
 * itself, which runs on the caller's thread; no lock. */
#ifndef COLL_EXPECT_H_
#define COLL_EXPECT_H_

#include "device/common/colls.h"
#include "device/common/kernels.h"
#include "t.h"

/* ---- a call ---------------------------------------------------------------------------------- */

/* The public call. What the collective does not take is ignored. */
static inline symmResult_t symm_test_call(symmColl_t coll, const void *send, void *recv,
                                          size_t count, symmDataType_t type, symmRedOp_t op,
                                          int root, symmComm_t comm, symmStream_t stream) {
#define CALL_NONE    (comm, stream)
#define CALL_DATA    (send, recv, count, type, comm, stream)
#define CALL_OP      (send, recv, count, type, op, comm, stream)
#define CALL_ROOT    (send, recv, count, type, root, comm, stream)
#define CALL_OP_ROOT (send, recv, count, type, op, root, comm, stream)
#define SYMM_COLL(id, name, args, ...) \
    if (coll == symmColl##id) return symm##id CALL_##args;
#include "device/common/coll.def"
    T_CHECKF(0, "coll=%d is no collective", (int)coll);
    return symmInternalError;
#undef CALL_NONE
#undef CALL_DATA
#undef CALL_OP
#undef CALL_ROOT
#undef CALL_OP_ROOT
}

static inline int coll_moves(symmColl_t coll) {
    return symm_coll_moves(&symm_colls[coll]);
}
static inline int coll_reduces(symmColl_t coll) {
    return (symm_colls[coll].flags & SYMM_COLL_REDUCES) != 0;
}
/* Parts of `count` elements in a rank's buffers, and in the larger one. */
static inline int coll_in(symmColl_t coll, int n) {
    return (int)symm_holds_parts(symm_colls[coll].in, n);
}
static inline int coll_out(symmColl_t coll, int n) {
    return (int)symm_holds_parts(symm_colls[coll].out, n);
}
static inline int coll_parts(symmColl_t coll, int n) {
    return (int)symm_coll_parts(&symm_colls[coll], n);
}
/* The same of a rank that is the root, or is not. */
static inline int coll_in_at(symmColl_t coll, int n, int is_root) {
    return (int)symm_coll_in(&symm_colls[coll], n, is_root);
}
static inline int coll_out_at(symmColl_t coll, int n, int is_root) {
    return (int)symm_coll_out(&symm_colls[coll], n, is_root);
}
/* In place the smaller buffer is this rank's part of the larger one: at which part of it sendbuff,
 * and at which recvbuff begins. */
static inline int coll_send_part(symmColl_t coll, int rank) {
    return symm_colls[coll].in < symm_colls[coll].out ? rank : 0;
}
static inline int coll_recv_part(symmColl_t coll, int rank) {
    return symm_colls[coll].in > symm_colls[coll].out ? rank : 0;
}

/* Kernels of a collective that n ranks can run on a backend (SYMM_K_HOST, SYMM_K_GPU), in the order
 * of coll.def. */
static inline int coll_kernels(symmColl_t coll, unsigned backend, int n, int *kernels) {
    int count = 0;
    for (int k = 0; k < SYMM_KERNEL_COUNT; k++) {
        const symm_kernel_row *row = &symm_kernels[k];
        if (!(row->flags & backend) || row->coll != coll) continue;
        if (n >= row->min_ranks && (!row->max_ranks || n <= row->max_ranks)) kernels[count++] = k;
    }
    return count;
}

/* The h-th, for any h, of a backend's collectives that reduce, or that only move. */
static inline symmColl_t coll_draw(uint64_t h, unsigned backend, int reduces) {
    symmColl_t some[symmNumColls];
    int kernels[SYMM_KERNEL_COUNT];
    unsigned n = 0;
    for (int c = 0; c < symmNumColls; c++)
        if (coll_moves((symmColl_t)c) && coll_reduces((symmColl_t)c) == reduces &&
            coll_kernels((symmColl_t)c, backend, SYMM_MAX_RANKS, kernels))
            some[n++] = (symmColl_t)c;
    T_CHECK(n > 0);
    return some[h % n];
}

/* ---- what it must give ----------------------------------------------------------------------- */

/* Where `count` elements of a result come from: `from`'s sendbuff, or the reduction of all ranks'
 * (EVERY_RANK), from element `at` on. */
enum { EVERY_RANK = -1 };
typedef struct {
    int from;
    uint64_t at;
} coll_origin;

/* expect_<Id>: part `part` of what rank `rank` has in recvbuff. */
static inline coll_origin expect_AllReduce(const symm_call *call, int rank, int part) {
    (void)call, (void)rank, (void)part;
    return (coll_origin){EVERY_RANK, 0};
}
static inline coll_origin expect_AllGather(const symm_call *call, int rank, int part) {
    (void)call, (void)rank;
    return (coll_origin){part, 0};
}
static inline coll_origin expect_ReduceScatter(const symm_call *call, int rank, int part) {
    (void)part;
    return (coll_origin){EVERY_RANK, (unsigned)rank * call->count};
}
static inline coll_origin expect_AlltoAll(const symm_call *call, int rank, int part) {
    return (coll_origin){part, (unsigned)rank * call->count};
}
static inline coll_origin expect_Broadcast(const symm_call *call, int rank, int part) {
    (void)rank, (void)part;
    return (coll_origin){call->root, 0};
}
static inline coll_origin expect_Reduce(const symm_call *call, int rank, int part) {
    (void)call, (void)rank, (void)part;
    return (coll_origin){EVERY_RANK, 0};
}
static inline coll_origin expect_Gather(const symm_call *call, int rank, int part) {
    (void)call, (void)rank;
    return (coll_origin){part, 0};
}
static inline coll_origin expect_Scatter(const symm_call *call, int rank, int part) {
    (void)part;
    return (coll_origin){call->root, (unsigned)rank * call->count};
}
static inline coll_origin expect_Barrier(const symm_call *call, int rank, int part) {
    (void)call, (void)rank, (void)part;
    return (coll_origin){EVERY_RANK, 0}; /* has no part */
}

static inline coll_origin coll_expect(const symm_call *call, int rank, int part) {
    static coll_origin (*const expected[])(const symm_call *call, int rank, int part) = {
#define SYMM_COLL(id, ...) expect_##id,
#include "device/common/coll.def"
    };
    return expected[call->coll](call, rank, part);
}

#endif
