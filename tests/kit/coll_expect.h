/* coll_expect.h - collectives by their rows of coll.def, for tests: any call by its number, and
 * what each must give. A new collective needs one function here: expect_<Id>. Pure but for the call
 * itself, which runs on the caller's thread; no lock. */
#ifndef COLL_EXPECT_H_
#define COLL_EXPECT_H_

#include "device/common/colls.h"
#include "device/common/kernels.h"
#include "t.h"

/* ---- counts per rank ------------------------------------------------------------------------- */

/* Of a call that has them, drawn: a quarter of the parts is empty, the others have 1 to `most`
 * elements, all ranks' the same from the same seed. layout: 0 one part follows the other, without
 * displacements; 1 the other way round; 2 with gaps. seed 0: every part has `most`. */
typedef struct {
    int n, layout;
    uint64_t seed, most;
} coll_counts;

static inline uint64_t coll_mix(uint64_t a, uint64_t b) {
    uint64_t z = a * 0x9e3779b97f4a7c15ull + b * 0xd1b54a32d192ed03ull + 0x94d049bb133111ebull;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    return z ^ (z >> 31);
}
/* Elements that rank `from` has for rank `to`. */
static inline uint64_t coll_pair(symmColl_t coll, const coll_counts *v, int from, int to) {
    const symm_coll_row *row = &symm_colls[coll];
    const uint64_t by = (row->out == SYMM_VARIES ? (unsigned)from + 1u : 0u) +
                        (row->in == SYMM_VARIES ? ((unsigned)to + 1u) << 16 : 0u),
                   h = coll_mix(v->seed, by);
    if (!v->seed || !v->most) return v->most;
    return h & 3 ? 1 + (h >> 8) % v->most : 0;
}
/* The same of side 0, rank's part for p, or 1, its part from p. */
static inline uint64_t coll_part(symmColl_t coll, const coll_counts *v, int side, int rank, int p) {
    return side ? coll_pair(coll, v, p, rank) : coll_pair(coll, v, rank, p);
}
/* Where that part begins in its buffer, in elements: side 0 sendbuff, 1 recvbuff. p == n: where the
 * last one ends. */
static inline uint64_t coll_place(symmColl_t coll, const coll_counts *v, int side, int rank,
                                  int p) {
    const symm_holds holds = side ? symm_colls[coll].out : symm_colls[coll].in;
    const int displaced = symm_colls[coll].flags & SYMM_COLL_REDUCES ? 0 : v->layout; /* has none */
    uint64_t at = 0;
    if (holds != SYMM_VARIES) return p < v->n ? 0 : coll_part(coll, v, side, rank, rank);
    for (int q = 0; q < v->n; q++)
        if (displaced == 1 && p < v->n ? q > p : q < p)
            at += coll_part(coll, v, side, rank, q) + (displaced == 2 && q + 1 < v->n);
    return at + (displaced == 2 && v->n > 1);
}

/* ---- a call ---------------------------------------------------------------------------------- */

/* The public call. What the collective does not take is ignored. */
static inline symmResult_t symm_test_call_v(symmColl_t coll, const void *send, void *recv,
                                            size_t count, const coll_counts *v, int rank,
                                            symmDataType_t type, symmRedOp_t op, int root,
                                            symmComm_t comm, symmStream_t stream) {
    size_t counts[2][SYMM_MAX_RANKS], displs[2][SYMM_MAX_RANKS];
    const size_t *at[2] = {v->layout ? displs[0] : NULL, v->layout ? displs[1] : NULL};
    for (int side = 0; side < 2 && symm_coll_varies(&symm_colls[coll]); side++)
        for (int p = 0; p < v->n; p++) {
            counts[side][p] = coll_part(coll, v, side, rank, p);
            displs[side][p] = coll_place(coll, v, side, rank, p);
        }
#define CALL_OUT_V   (send, counts[0][0], recv, counts[1], at[1], type, comm, stream)
#define CALL_IN_V_OP (send, recv, counts[0], type, op, comm, stream)
#define CALL_BOTH_V  (send, counts[0], at[0], recv, counts[1], at[1], type, comm, stream)
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
#undef CALL_OUT_V
#undef CALL_IN_V_OP
#undef CALL_BOTH_V
}

/* With one count for all ranks. */
static inline symmResult_t symm_test_call(symmColl_t coll, const void *send, void *recv,
                                          size_t count, symmDataType_t type, symmRedOp_t op,
                                          int root, symmComm_t comm, symmStream_t stream) {
    coll_counts v = {.most = count};
    int rank = 0;
    if (symm_coll_varies(&symm_colls[coll])) {
        symmResult_t r = symmCommCount(comm, &v.n);
        if (!r) r = symmCommUserRank(comm, &rank);
        if (r) return r;
    }
    return symm_test_call_v(coll, send, recv, count, &v, rank, type, op, root, comm, stream);
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
        if (!(row->flags & backend) || row->coll != coll || row->multicast) continue;
        if (n >= row->min_ranks && (!row->max_ranks || n <= row->max_ranks)) kernels[count++] = k;
    }
    return count;
}

/* The h-th, for any h, of a backend's collectives that reduce, or that only move; varies: 1 those
 * with a count per rank, 0 the others, -1 both. */
static inline symmColl_t coll_draw_of(uint64_t h, unsigned backend, int reduces, int varies) {
    symmColl_t some[symmNumColls];
    int kernels[SYMM_KERNEL_COUNT];
    unsigned n = 0;
    for (int c = 0; c < symmNumColls; c++)
        if (coll_moves((symmColl_t)c) && coll_reduces((symmColl_t)c) == reduces &&
            (varies < 0 || symm_coll_varies(&symm_colls[c]) == varies) &&
            coll_kernels((symmColl_t)c, backend, SYMM_MAX_RANKS, kernels))
            some[n++] = (symmColl_t)c;
    T_CHECK(n > 0);
    return some[h % n];
}
static inline symmColl_t coll_draw(uint64_t h, unsigned backend, int reduces) {
    return coll_draw_of(h, backend, reduces, -1);
}

/* ---- what it must give ----------------------------------------------------------------------- */

/* Where `count` elements of a result come from: `from`'s sendbuff, or the reduction of all ranks'
 * (EVERY_RANK), from element `at` on. */
enum { EVERY_RANK = -1 };
typedef struct {
    int from;
    uint64_t at;
} coll_origin;

/* expect_<Id>: part `part` of what rank `rank` has in recvbuff. v: the counts, where there is one
 * per rank. */
#define EXPECT(id, ...)                                                                          \
    static inline coll_origin expect_##id(const symm_call *call, const coll_counts *v, int rank, \
                                          int part) {                                            \
        (void)call, (void)v, (void)rank, (void)part;                                             \
        return (coll_origin){__VA_ARGS__};                                                       \
    }
EXPECT(AllReduce, EVERY_RANK, 0)
EXPECT(AllGather, part, 0)
EXPECT(ReduceScatter, EVERY_RANK, (unsigned)rank * call->count)
EXPECT(AlltoAll, part, (unsigned)rank * call->count)
EXPECT(Broadcast, call->root, 0)
EXPECT(Reduce, EVERY_RANK, 0)
EXPECT(Gather, part, 0)
EXPECT(Scatter, call->root, (unsigned)rank * call->count)
EXPECT(Barrier, EVERY_RANK, 0) /* has no part */
EXPECT(AllGatherv, part, 0)
EXPECT(ReduceScatterv, EVERY_RANK, coll_place(call->coll, v, 0, rank, rank))
EXPECT(AlltoAllv, part, coll_place(call->coll, v, 0, part, rank))
#undef EXPECT

static inline coll_origin coll_expect_v(const symm_call *call, const coll_counts *v, int rank,
                                        int part) {
    static coll_origin (*const expected[])(const symm_call *call, const coll_counts *v, int rank,
                                           int part) = {
#define SYMM_COLL(id, ...) expect_##id,
#include "device/common/coll.def"
    };
    return expected[call->coll](call, v, rank, part);
}
/* With one count for all of at most SYMM_MAX_RANKS ranks. */
static inline coll_origin coll_expect(const symm_call *call, int rank, int part) {
    const coll_counts v = {.n = SYMM_MAX_RANKS, .most = call->count};
    return coll_expect_v(call, &v, rank, part);
}

#endif
