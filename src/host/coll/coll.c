/* coll.c - from a collective call to a kernel: check, find windows, plan, launch. The hot path: no
 * lock, no allocation, no message. Runs on the caller's thread; the launcher (launch.h) decides
 * where the kernel runs. */

#include <stdlib.h>
#include <string.h>

#include "device/host/reduce.h"
#include "host/comm/comm.h"
#include "host/comm/group.h"
#include "host/comm/outer.h"
#include "host/window/multicast.h"
#include "host/window/window.h"
#include "coll.h"
#include "redop.h"
#include "copies.h"
#include "counts.h"
#include "fused.h"
#include "grouped.h"
#include "plan_table.h"

/* ---- check ----------------------------------------------------------------------------------- */

static symmResult_t check_counts(const symm_coll *k, int nranks) {
    uint64_t per = symm_type_size(k->type), bytes;
    if (k->extents) return symmSuccess; /* symm_counts_read has looked */
    if (!per)
        return SYMM_ERR(symmInvalidArgument, "datatype=%u: must be 0 to %d", k->type,
                        symmNumTypes - 1);
    per *= symm_coll_parts(&symm_colls[k->coll], nranks);
    if (__builtin_mul_overflow(k->count, per, &bytes) || bytes >> 60)
        return SYMM_ERR(symmInvalidArgument, "count=%llu elements of %zu bytes overflow",
                        (unsigned long long)k->count, symm_type_size(k->type));
    return symmSuccess;
}

/* In place the smaller buffer is this rank's part of the larger one. */
static symmResult_t check_overlap(const symm_coll *k, int me, int nranks, uint64_t in,
                                  uint64_t out) {
    static const char *const part[] = {"", " + rank*sendcount", "", "", " + displs[rank]", ""};
    static const char *const whole[] = {"", "", " + rank*recvcount",
                                        "", "", " + the counts of the ranks before"};
    uintptr_t s = (uintptr_t)k->src, d = (uintptr_t)k->dst;
    const symm_coll_row *row = &symm_colls[k->coll];
    const symm_extent *e = k->extents;
    const int smaller = row->in < row->out   ? 1
                        : row->in > row->out ? 2
                                             : 0,
              side = smaller + (e ? 3 : 0);
    const uint64_t rank = (unsigned)me;
    uintptr_t place = d, from = s;
    if (smaller == 1) place += e ? e[nranks + me].at : rank * in;
    if (smaller == 2) from += e ? e[me].at : rank * out;
    if (in == 0 || out == 0 || s + in <= d || d + out <= s) return symmSuccess;
    if (symm_colls[k->coll].apart)
        return SYMM_ERR(symmInvalidArgument,
                        "sendbuff=%p and recvbuff=%p overlap: %s is never "
                        "done in place",
                        k->src, k->dst, symm_colls[k->coll].call);
    if (from == place) return symmSuccess;
    return SYMM_ERR(symmInvalidArgument,
                    "sendbuff=%p and recvbuff=%p overlap; in place means sendbuff%s == recvbuff%s",
                    k->src, k->dst, whole[side], part[side]);
}

symmResult_t symm_coll_check_buffer(const char *name, const void *p, uint64_t bytes) {
    if (!p && bytes) return SYMM_ERR(symmInvalidArgument, "%s is NULL", name);
    /* Page 0 is never mapped and the upper half of the addresses is the kernel's: a wild pointer is
     * caught here, not by a signal. */
    if (bytes && ((uintptr_t)p < 4096 || (uintptr_t)p + bytes < (uintptr_t)p ||
                  ((uintptr_t)p + bytes) >> 56))
        return SYMM_ERR(symmInvalidArgument, "%s=%p is not an address of %llu bytes", name, p,
                        (unsigned long long)bytes);
    return symmSuccess;
}

symmResult_t symm_coll_check_op(const symm_comm *c, const symm_coll *k, const symm_redop **user) {
    *user = NULL;
    if ((unsigned)k->op < symmNumOps) return symmSuccess;
    const symm_redop *o = k->user ? k->user : symm_redop_find(c, k->op);
    if (!o)
        return SYMM_ERR(
            symmInvalidArgument,
            "op=%d: neither 0 to %d nor made by symmRedOpCreatePreMulSum for this communicator",
            (int)k->op, symmNumOps - 1);
    if (o->type != k->type)
        return SYMM_ERR(symmInvalidArgument, "datatype=%u: op=%d was made for datatype %u", k->type,
                        (int)k->op, o->type);
    *user = o;
    return symmSuccess;
}

symmResult_t symm_coll_check(const symm_coll *k, int rank, int nranks, int fused, uint64_t *in,
                             uint64_t *out) {
    SYMM_TRY(check_counts(k, nranks));
    const symm_coll_row *row = &symm_colls[k->coll];
    const int is_root = k->root == rank;
    const symm_extent *e = k->extents;
    const uint64_t one = k->count * symm_type_size(k->type);
    *in = e ? symm_counts_end(e, nranks) : one * symm_coll_in(row, nranks, is_root);
    *out = e ? symm_counts_end(e + nranks, nranks) : one * symm_coll_out(row, nranks, is_root);
    SYMM_TRY(symm_coll_check_buffer("sendbuff", k->src, *in));
    SYMM_TRY(symm_coll_check_buffer("recvbuff", k->dst, *out));
    if (!fused) SYMM_TRY(check_overlap(k, rank, nranks, *in, *out));
    if ((row->flags & SYMM_COLL_ROOT) && (unsigned)k->root >= (unsigned)nranks)
        return SYMM_ERR(symmInvalidArgument, "%s: root=%d: must be 0 to %d", row->call, k->root,
                        nranks - 1);
    return symmSuccess;
}

/* ---- plan and arguments ---------------------------------------------------------------------- */

static uint32_t signature(const symm_call *k, uint32_t op) {
    uint64_t h = (k->count + 1) * 0x9e3779b97f4a7c15ull;
    h ^= ((uint64_t)(uint32_t)k->root << 32 | (uint32_t)k->swapped << 24 | k->coll << 16 |
          k->type << 8 | op) *
         0xc2b2ae3d27d4eb4full;
    h ^= h >> 29;
    h *= 0xbf58476d1ce4e5b9ull;
    return (uint32_t)(h >> 32);
}

/* If ranks have made different calls on heap memory, the same offset means different bytes. So they
 * disagree, as on a count. */
static uint32_t with_heaps(uint32_t sig, uint64_t digest) {
    return sig ^ (uint32_t)digest ^ (uint32_t)(digest >> 32);
}

/* All ranks' byte of flat offset 0; 0: there is no multicast range. */
static uint64_t cast_base(const symm_comm *c) {
    return c->cuda ? c->calls.proto.gpu.multicast : c->calls.proto.host.multicast;
}

static symm_plan_env plan_env(const symm_comm *c) {
    symm_plan_env e = {.nranks = c->nranks,
                       .oversubscribed = c->oversubscribed,
                       .gpu = c->cuda,
                       .sms = c->gpus.budget,
                       .quarter = c->gpus.quarter,
                       .threads = (int)c->params.threads,
                       .relay = (int)c->params.relay,
                       .ctas = (int)c->params.ctas,
                       .min_ctas = c->config.minCTAs > 0 ? c->config.minCTAs : 0,
                       .max_ctas = c->config.maxCTAs > 0 ? c->config.maxCTAs : 0,
                       .multicast = cast_base(c) != 0,
                       .cast_scratch = c->calls.cast_scratch,
                       .deterministic = (int)c->params.deterministic,
                       .direct = c->calls.reads.all,
                       .writes = c->calls.writes.all,
                       .near = c->calls.near,
                       .adapts = c->calls.adapts,
                       .keeps = c->calls.keeps,
                       .forced = c->calls.forced,
                       .rows = c->calls.rows,
                       .scratch = c->calls.proto.scratch};
    return e;
}

/* What the backend's kernels are told of the plan. */
static void fill_plan(symm_args *a, const symm_plan *p, int gpu, int32_t root) {
    a->nctas = p->ctas;
    a->flags |= p->flags;
    if (gpu) {
        a->gpu.lines = p->lines;
        a->gpu.line_warps = (uint32_t)p->line_warps;
        a->gpu.stage_ctas = (uint32_t)p->stage_ctas;
        a->gpu.stage_warps = (uint32_t)p->stage_warps;
        a->gpu.stage_rows = (uint32_t)p->stage_rows;
        a->gpu.root = root;
        a->gpu.pairs = p->pairs;
    } else {
        a->host.chunk = p->chunk;
        a->host.chunk_log = (uint32_t)__builtin_ctzll(p->chunk);
        a->host.esize_log = (uint32_t)__builtin_ctz(a->esize);
        a->host.root = root;
        a->host.pairs = p->pairs;
    }
}

/* Where peers find a buffer. What is swapped they do not reach: a part that one reads would be
 * overwritten by another, and one that is stored would lie over what is still to be sent. */
static uint64_t place_of(const symm_launch *l, const symm_win *win, const void *p) {
    const symm_comm *c = l->comm;
    if (l->call.swapped) return SYMM_STAGED;
    if (win) return symm_window_offset(win, c->rank, p);
    return l->plan.flags & SYMM_ARG_DIRECT ? SYMM_PRIVATE | (uintptr_t)p : SYMM_STAGED;
}

/* Which buffers' bytes are bound in the multicast range. */
static uint32_t bound(const symm_launch *l) {
    const symm_args *a = &l->args;
    char why[SYMM_MULTICAST_WHY];
    uint32_t flags = 0;
    SYMM_ASSERT(cast_base(l->comm));
    if (l->src_win && a->src_off != SYMM_STAGED &&
        symm_multicast_flat(l->comm, a->src_off, l->in, why, sizeof why))
        flags |= SYMM_ARG_CAST_SRC;
    if (l->dst_win && a->dst_off != SYMM_STAGED &&
        symm_multicast_flat(l->comm, a->dst_off, l->out, why, sizeof why))
        flags |= SYMM_ARG_CAST_DST;
    return flags;
}

static void fill_args(symm_launch *l, const symm_coll *k, const symm_redop *user) {
    const symm_comm *c = l->comm;
    symm_args *a = &l->args;
    *a = c->calls.proto;
    a->src = k->src;
    a->dst = k->dst;
    a->src_off = place_of(l, l->src_win, k->src);
    a->dst_off = place_of(l, l->dst_win, k->dst);
    a->count = l->call.count;
    a->type = k->type;
    a->op = l->call.op;
    a->esize = l->call.esize;
    fill_plan(a, &l->plan, c->cuda, symm_fused_is(k) ? 0 : k->root);
    if (symm_kernels[l->plan.kernel].multicast) a->flags |= bound(l);
    a->extents = k->extents;
    l->sig = signature(&l->call, a->op);
    a->sig = with_heaps(l->sig, c->calls.digest);
    a->scalar = user ? user->scalar : 0;
    a->scalar_ptr = user ? user->ptr : NULL;
}

symmResult_t symm_coll_prepare(symm_comm *c, const symm_coll *k, symm_launch *l) {
    const symm_redop *user;
    const uint32_t esize = (uint32_t)symm_type_size(k->type);
    const symm_coll_row *row = &symm_colls[k->coll];
    const symm_extent *e = k->extents;
    const int fused = symm_fused_is(k);
    uint64_t in, out;
    SYMM_TRY(symm_coll_check(k, c->rank, c->nranks, fused, &in, &out));
    SYMM_TRY(symm_coll_check_op(c, k, &user));
    const uint32_t op = user ? SYMM_OP_PREMUL : (uint32_t)k->op;
    const symm_call call = {.coll = k->coll,
                            .count = e ? 0 : k->count,
                            .type = k->type,
                            .op = op,
                            .esize = esize,
                            .root = k->root,
                            .local = fused ? symm_fused_bytes(k, c->nranks)
                                     : e   ? in + out
                                           : 0,
                            .swapped = row->swaps && in && k->src == k->dst};
    l->env = plan_env(c);
    l->call = call;
    l->plan = symm_plan_make(&l->env, &call);
    if (l->plan.kernel == SYMM_KERNEL_COUNT)
        return SYMM_ERR(symmNotSupported, "%s is not on the %s backend, for %d ranks",
                        symm_coll_name(k->coll), c->cuda ? "CUDA" : "host", c->nranks);
    l->comm = c;
    l->src_win = in ? symm_window_at(c, k->src, in) : NULL;
    l->dst_win = out ? symm_window_also(c, l->src_win, k->dst, out) : NULL;
    l->in = in;
    l->out = out;
    l->from = NULL;
    if (in && !l->src_win && !fused) symm_window_say_short(c, "sendbuff", k->src, in);
    if (out && !l->dst_win && !fused) symm_window_say_short(c, "recvbuff", k->dst, out);
    if (in && !l->src_win) SYMM_TRY(c->launcher->check_buffer(c, "sendbuff", k->src));
    if (out && !l->dst_win) SYMM_TRY(c->launcher->check_buffer(c, "recvbuff", k->dst));
    fill_args(l, k, user);
    if (symm_kernels[l->plan.kernel].copies) symm_copies_find(l);
    return symmSuccess;
}

/* ---- launch ---------------------------------------------------------------------------------- */

static void count_launch(symm_comm *c, const symm_launch *l) {
    SYMM_CHECK(symm_call_check(l));
    /* Written by this thread alone; symmStats may read it from another. */
    uint64_t n = atomic_load_explicit(&c->calls.launches[l->plan.kernel], memory_order_relaxed);
    atomic_store_explicit(&c->calls.launches[l->plan.kernel], n + 1, memory_order_relaxed);
    __atomic_store_n(&c->ctl->issued, ++c->calls.issued,
                     __ATOMIC_RELAXED); /* read by ledger.c only */
}

symmResult_t symm_coll_launch(symm_comm *c, const symm_launch *l, symmStream_t stream) {
    count_launch(c, l);
    return c->launcher->launch(c, l, stream);
}

symmResult_t symm_coll_launch_list(symm_comm *c, const symm_launch *first, symmStream_t stream) {
    for (const symm_launch *l = first; l; l = l->next) count_launch(c, l);
    return c->launcher->launch_list(c, first, stream);
}

void symm_coll_sign(const symm_comm *c, symm_launch *l) {
    l->args.sig = with_heaps(l->sig, c->calls.digest);
}

typedef struct {
    symm_coll k;
    symmComm_t comm;
    symmStream_t stream;
} call_args;

/* Whether the memo is of this call, by its arguments. */
static int same_call(const symm_memo *m, const symm_coll *k, int nranks) {
    if (__builtin_expect(!k->extents, 1)) return memcmp(&m->k, k, sizeof *k) == 0;
    symm_coll own = *k;
    own.extents = m->extents;
    return memcmp(&m->k, &own, sizeof own) == 0 &&
           memcmp(m->extents, k->extents, symm_extents_bytes(nranks)) == 0;
}

/* The call as the memo has it. */
static void remember_call(symm_memo *m, const symm_coll *k, int nranks) {
    m->k = *k;
    if (!k->extents) return;
    memcpy(m->extents, k->extents, symm_extents_bytes(nranks));
    m->k.extents = m->extents;
}

/* Ends of other allocators' memory are not counted, so each call must ask. */
static int lasts(const symm_win *w) {
    return !w || !w->foreign;
}

symmResult_t symm_coll_ready(symm_comm *c, const symm_coll *k, const symm_launch **out) {
    uint64_t mix = ((uint64_t)(uintptr_t)k->src >> 6) + ((uint64_t)(uintptr_t)k->dst >> 7) +
                   k->count + k->coll;
    symm_memo *m = &c->calls.memos[(mix ^ mix >> 3 ^ mix >> 9) % SYMM_MEMOS];
    const uint64_t ends = symm_vmm_ended();
    if (m->version != symm_window_version(c) || m->ends != ends || !same_call(m, k, c->nranks)) {
        m->version = 0;
        remember_call(m, k, c->nranks);
        SYMM_TRY(symm_coll_prepare(c, &m->k, &m->l));
        m->version = lasts(m->l.src_win) && lasts(m->l.dst_win) && lasts(m->l.from)
                         ? symm_window_version(c)
                         : 0;
        m->ends = ends;
        m->digest = c->calls.digest;
    }
    if (m->digest != c->calls.digest) {
        symm_coll_sign(c, &m->l);
        m->digest = c->calls.digest;
    }
    *out = &m->l;
    return symmSuccess;
}

symmResult_t symm_coll_env(symmComm_t comm, symm_plan_env *env) {
    symm_comm *c;
    if (symm_outer_is(comm))
        return SYMM_ERR(symmNotSupported,
                        "comm=%p is over several domains, and each plans by itself: pass "
                        "what symmCommDomain gives",
                        (void *)comm);
    SYMM_TRY(symm_comm_enter(comm, SYMM_ENTER_COLL, &c));
    *env = plan_env(c);
    symm_comm_leave(c);
    return symmSuccess;
}

symmResult_t symm_coll_plan_by(symmComm_t comm, const symm_plan_rows *rows) {
    symm_comm *c;
    symm_plan_rows *copy = rows ? symm_plan_rows_copy(rows) : NULL;
    if (rows && !copy) return SYMM_ERR(symmOutOfMemory, "no memory for plan rows");
    const symmResult_t r = symm_comm_enter(comm, SYMM_ENTER_COLL, &c);
    if (r) {
        free(copy);
        return r;
    }
    free(c->calls.rows);
    c->calls.rows = copy;
    memset(c->calls.memos, 0, SYMM_MEMOS * sizeof *c->calls.memos); /* they have plans */
    symm_comm_leave(c);
    return symmSuccess;
}

symmResult_t symm_coll_barrier(symm_comm *c, symmStream_t stream) {
    const symm_coll k = {.coll = symmCollBarrier, .type = symmUint8};
    const symm_launch *l;
    SYMM_TRY(symm_coll_ready(c, &k, &l));
    return symm_coll_launch(c, l, stream);
}

static symmResult_t call_job(call_args *a) {
    symm_comm *c;
    const symm_launch *l;
    SYMM_TRY(symm_comm_enter(a->comm, SYMM_ENTER_COLL, &c));
    symmResult_t r = symm_coll_ready(c, &a->k, &l);
    if (__builtin_expect(r == symmSuccess, 1)) r = symm_coll_launch(c, l, a->stream);
    symm_comm_leave(c);
    return r;
}

/* Of a communicator over several domains. */
static symmResult_t call_outer(const symm_coll *k, const symm_counts *counts, symmComm_t comm,
                               symmStream_t stream) {
    symm_outer *o = symm_outer_get(comm);
    if (!o) return symm_comm_bad_handle(comm);
    const symmResult_t r = o->call(o, k, counts, stream);
    symm_outer_put(comm);
    return r;
}

symmResult_t symm_coll_call(const symm_coll *k, symmComm_t comm, symmStream_t stream) {
    call_args a = {*k, comm, stream};
    if (__builtin_expect(symm_outer_is(comm), 0)) return call_outer(k, NULL, comm, stream);
    if (__builtin_expect(symm_group_open(), 0)) return symm_grouped_call(k, NULL, comm, stream);
    return call_job(&a);
}

symmResult_t symm_coll_call_uneven(const symm_coll *k, const symm_counts *counts, symmComm_t comm,
                                   symmStream_t stream) {
    symm_extent extents[SYMM_EXTENTS];
    symm_coll own = *k;
    symm_comm *c;
    const symm_launch *l;
    if (__builtin_expect(symm_outer_is(comm), 0)) return call_outer(k, counts, comm, stream);
    if (__builtin_expect(symm_group_open(), 0)) return symm_grouped_call(k, counts, comm, stream);
    SYMM_TRY(symm_comm_enter(comm, SYMM_ENTER_COLL, &c));
    own.extents = extents;
    symmResult_t r = symm_counts_read(k, counts, c->rank, c->nranks, extents);
    if (!r) r = symm_coll_ready(c, &own, &l);
    if (!r) r = symm_coll_launch(c, l, stream);
    symm_comm_leave(c);
    return r;
}

/* ---- the public calls: one per row of coll.def, with the arguments that the row names -------- */

#define CALL(id, takes, ...)                                     \
    symmResult_t symm##id takes {                                \
        const symm_coll k = {.coll = symmColl##id, __VA_ARGS__}; \
        return symm_coll_call(&k, comm, stream);                 \
    }
#define BUFFERS const void *sendbuff, void *recvbuff, size_t count, symmDataType_t datatype
#define WHERE   symmComm_t comm, symmStream_t stream
#define MOVES   .src = sendbuff, .dst = recvbuff, .count = count, .type = (uint32_t)datatype

#define CALL_NONE(id) CALL(id, (WHERE), .type = symmUint8)
#define CALL_DATA(id) CALL(id, (BUFFERS, WHERE), MOVES)
#define CALL_OP(id)   CALL(id, (BUFFERS, symmRedOp_t op, WHERE), MOVES, .op = op)
#define CALL_ROOT(id) CALL(id, (BUFFERS, int root, WHERE), MOVES, .root = root)
#define CALL_OP_ROOT(id) \
    CALL(id, (BUFFERS, symmRedOp_t op, int root, WHERE), MOVES, .op = op, .root = root)

/* With a count per rank. */
#define CALL_V(id, takes, sent, received, ...)                                               \
    symmResult_t symm##id takes {                                                            \
        const symm_coll k = {.coll = symmColl##id, __VA_ARGS__, .type = (uint32_t)datatype}; \
        const symm_counts u = {.in = {sent}, .out = {received}};                             \
        return symm_coll_call_uneven(&k, &u, comm, stream);                                  \
    }
#define SIDE(counts, displs) counts, displs, #counts
#define NO_SIDE              NULL, NULL, NULL
#define CALL_OUT_V(id)                                                                        \
    CALL_V(id,                                                                                \
           (const void *sendbuff, size_t sendcount, void *recvbuff, const size_t *recvcounts, \
            const size_t *displs, symmDataType_t datatype, WHERE),                            \
           NO_SIDE, SIDE(recvcounts, displs), .src = sendbuff, .dst = recvbuff,               \
           .count = sendcount)
#define CALL_IN_V_OP(id)                                                    \
    CALL_V(id,                                                              \
           (const void *sendbuff, void *recvbuff, const size_t *recvcounts, \
            symmDataType_t datatype, symmRedOp_t op, WHERE),                \
           SIDE(recvcounts, NULL), NO_SIDE, .src = sendbuff, .dst = recvbuff, .op = op)
#define CALL_BOTH_V(id)                                                                            \
    CALL_V(id,                                                                                     \
           (const void *sendbuff, const size_t *sendcounts, const size_t *sdispls, void *recvbuff, \
            const size_t *recvcounts, const size_t *rdispls, symmDataType_t datatype, WHERE),      \
           SIDE(sendcounts, sdispls), SIDE(recvcounts, rdispls), .src = sendbuff, .dst = recvbuff)

#define SYMM_COLL(id, name, args, ...) CALL_##args(id)
#include "device/common/coll.def"
