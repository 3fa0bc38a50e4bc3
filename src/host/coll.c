/* coll.c - the collectives' way to a kernel: check, find windows, plan, launch. The hot path: no lock, no allocation, no message.
 * Runs on the caller's thread; the kernel on the same one (NULL stream) or on the stream's worker. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../device/reduce.h"
#include "coll.h"
#include "comm.h"
#include "doing.h"
#include "fail.h"
#include "gpu.h"
#include "group.h"
#include "heap_int.h"
#include "log.h"
#include "memlane.h"
#include "redop.h"
#include "stats.h"
#include "window.h"

/* ---- check ------------------------------------------------------------------------------------------------------------ */

static symmResult_t check_counts(const symm_coll *k, int nranks) {
    uint64_t per = symm_type_size(k->type), bytes;
    if (!per)
        return SYMM_ERR(symmInvalidArgument, "datatype=%u: must be 0 to %d", k->type,
                        symmNumTypes - 1);
    if (k->coll == symmCollAllGather) per *= (unsigned)nranks;
    if (__builtin_mul_overflow(k->count, per, &bytes) || bytes >> 60)
        return SYMM_ERR(symmInvalidArgument, "count=%llu elements of %zu bytes overflow",
                        (unsigned long long)k->count, symm_type_size(k->type));
    return symmSuccess;
}

static symmResult_t check_overlap(const symm_comm *c, const symm_coll *k, uint64_t in,
                                  uint64_t out) {
    uintptr_t s = (uintptr_t)k->src, d = (uintptr_t)k->dst;
    uintptr_t place = k->coll == symmCollAllGather ? d + (uint64_t)c->rank * in : d;
    if (s == place || in == 0 || s + in <= d || d + out <= s) return symmSuccess;
    return SYMM_ERR(symmInvalidArgument,
                    "sendbuff=%p and recvbuff=%p overlap; in place means sendbuff == recvbuff%s",
                    k->src, k->dst, k->coll == symmCollAllGather ? " + rank*sendcount" : "");
}

static symmResult_t check_buffer(const char *name, const void *p, uint64_t bytes) {
    if (!p && bytes) return SYMM_ERR(symmInvalidArgument, "%s is NULL", name);
    /* Page 0 is never mapped and the upper half of the addresses is the kernel's: a wild pointer is caught here, not by a signal. */
    if (bytes && ((uintptr_t)p < 4096 || (uintptr_t)p + bytes < (uintptr_t)p ||
                  ((uintptr_t)p + bytes) >> 56))
        return SYMM_ERR(symmInvalidArgument, "%s=%p is not an address of %llu bytes", name, p,
                        (unsigned long long)bytes);
    return symmSuccess;
}

static symmResult_t check_op(const symm_comm *c, const symm_coll *k, const symm_redop **user) {
    *user = NULL;
    if ((unsigned)k->op < symmNumOps) return symmSuccess;
    const symm_redop *o = symm_redop_find(c, k->op);
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

/* ---- plan and arguments ----------------------------------------------------------------------------------------------- */

static uint32_t signature(const symm_coll *k, uint32_t op) {
    uint64_t h = (k->count + 1) * 0x9e3779b97f4a7c15ull;
    h ^= ((uint64_t)k->coll << 16 | k->type << 8 | op) * 0xc2b2ae3d27d4eb4full;
    h ^= h >> 29;
    h *= 0xbf58476d1ce4e5b9ull;
    return (uint32_t)(h >> 32);
}

/* Ranks that have made different calls on heap memory mean different bytes by one offset: they disagree, as on a count. */
static uint32_t with_heaps(uint32_t sig, uint64_t digest) {
    return sig ^ (uint32_t)digest ^ (uint32_t)(digest >> 32);
}

static symm_plan_env plan_env(const symm_comm *c) {
    symm_plan_env e = {.nranks = c->nranks,
                       .oversubscribed = c->oversubscribed,
                       .gpu = c->cuda,
                       .sms = c->sms,
                       .threads = (int)c->params.threads,
                       .relay = (int)c->params.relay,
                       .ctas = (int)c->params.ctas,
                       .min_ctas = c->config.minCTAs > 0 ? c->config.minCTAs : 0,
                       .max_ctas = c->config.maxCTAs > 0 ? c->config.maxCTAs : 0,
                       .deterministic = (int)c->params.deterministic,
                       .keeps = c->keeps,
                       .forced = c->forced,
                       .scratch = c->proto.scratch};
    return e;
}

symmResult_t symm_coll_prepare(symm_comm *c, const symm_coll *k, symm_launch *l) {
    const symm_redop *user;
    SYMM_TRY(check_counts(k, c->nranks));
    const uint32_t esize = (uint32_t)symm_type_size(k->type);
    const uint64_t in = k->count * esize,
                   out = k->coll == symmCollAllGather ? in * (unsigned)c->nranks : in;
    SYMM_TRY(check_buffer("sendbuff", k->src, in));
    SYMM_TRY(check_buffer("recvbuff", k->dst, out));
    SYMM_TRY(check_overlap(c, k, in, out));
    SYMM_TRY(check_op(c, k, &user));
    const uint32_t op = user ? SYMM_OP_PREMUL : (uint32_t)k->op;
    const symm_call call = {
        .coll = k->coll, .count = k->count, .type = k->type, .op = op, .esize = esize};
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
    if (in && !l->src_win) symm_window_say_short(c, "sendbuff", k->src, in);
    if (out && !l->dst_win) symm_window_say_short(c, "recvbuff", k->dst, out);
    if (c->gpu && in && !l->src_win) SYMM_TRY(symm_gpu_check_buffer(c, "sendbuff", k->src));
    if (c->gpu && out && !l->dst_win) SYMM_TRY(symm_gpu_check_buffer(c, "recvbuff", k->dst));
    symm_args *a = &l->args;
    *a = c->proto;
    a->src = k->src;
    a->dst = k->dst;
    a->src_off = l->src_win ? symm_window_offset(l->src_win, c->rank, k->src) : SYMM_STAGED;
    a->dst_off = l->dst_win ? symm_window_offset(l->dst_win, c->rank, k->dst) : SYMM_STAGED;
    a->count = k->count;
    a->chunk = l->plan.chunk;
    a->chunk_log =
        c->cuda ? (uint32_t)l->plan.line_warps : (uint32_t)__builtin_ctzll(l->plan.chunk);
    a->stage_ctas = (uint32_t)l->plan.stage_ctas;
    a->stage_warps = (uint32_t)l->plan.stage_warps;
    a->stage_rows = (uint32_t)l->plan.stage_rows;
    a->esize_log = (uint32_t)__builtin_ctz(esize);
    a->nctas = l->plan.ctas;
    a->flags |= l->plan.flags;
    a->type = k->type;
    a->op = op;
    a->esize = esize;
    l->sig = signature(k, op);
    a->sig = with_heaps(l->sig, c->digest);
    a->scalar = user ? user->scalar : 0;
    a->scalar_ptr = user ? user->ptr : NULL;
    return symmSuccess;
}

/* ---- launch -------------------------------------------------------------------------------------------------------------- */

typedef struct keep keep;

typedef struct {
    symm_comm *comm;
    keep *kept; /* of a captured call */
    symm_kernel_id kernel;
    symm_args args;
} task;

static int keep_lives(keep *k);

static symmResult_t report(symm_comm *c, const symm_outcome *o) {
    char text[SYMM_ERR_TEXT], why[SYMM_ERR_TEXT - 80];
    symmResult_t known = symm_comm_async(c); /* the watcher or an abort has said it better */
    if (known) return known;
    symm_comm_reason(c, (symmResult_t)o->code, o->rank, why, sizeof why);
    snprintf(text, sizeof text, "%s (collective %u, %s)", why, o->epoch, symm_stage_name(o->stage));
    symm_comm_fail(c, (symmResult_t)o->code, o->rank, text);
    return SYMM_ERR((symmResult_t)o->code, "communicator %s: %s", c->name, text);
}

static symmResult_t run_kernel(symm_comm *c, symm_kernel_id kernel, const symm_args *a) {
    symm_outcome out;
    symm_kernel_run(kernel, a, &out);
    return __builtin_expect(out.code != 0, 0) ? report(c, &out) : symmSuccess;
}

/* On a worker, or from a graph. */
static symmResult_t run_task(void *p) {
    task *t = p;
    if (atomic_load_explicit(&t->comm->state, memory_order_acquire) == SYMM_COMM_FINAL)
        return SYMM_ERR(symmInvalidUsage,
                        "a captured call is replayed after its communicator %s was destroyed",
                        t->comm->name);
    SYMM_TRY(symm_comm_told(t->comm)); /* it may have waited in its stream for long */
    if (t->kept && !keep_lives(t->kept)) {
        symmResult_t r = SYMM_ERR(symmInvalidUsage,
                                  "a captured call is replayed, but memory that its window had at "
                                  "sendbuff=%p or recvbuff=%p has ended (freed since?)",
                                  t->args.src, t->args.dst);
        /* The graph's next call would meet the peers' part of this one. */
        symm_comm_break(t->comm, r, t->comm->rank, "replaying a captured call");
        return r;
    }
    return run_kernel(t->comm, t->kernel, &t->args);
}

/* What a captured call keeps alive until its graph is destroyed. */
struct keep {
    _Atomic int refs;
    symm_comm *comm;
    symm_win *src, *dst;
    _Atomic uint64_t ends; /* relaxed: a hint that nothing has ended since */
    int n;                 /* host backend: the pieces of windows under its buffers; else none */
    symm_lived at[];
};

/* Lanes of a graph may ask at once, beside the thread that uses the windows. */
static int keep_lives(keep *k) {
    const uint64_t ends = symm_vmm_ended();
    if (atomic_load_explicit(&k->ends, memory_order_relaxed) == ends) return 1;
    for (int i = 0; i < k->n; i++)
        if (k->comm->vmm->life((const void *)(uintptr_t)k->at[i].lo) != k->at[i].life) return 0;
    atomic_store_explicit(&k->ends, ends, memory_order_relaxed);
    return 1;
}

static void keep_retain(void *p) {
    atomic_fetch_add_explicit(&((keep *)p)->refs, 1, memory_order_relaxed);
}

void symm_keep_release(void *p) {
    keep *k = p;
    /* Acquire and release: whoever frees comes after every replay. */
    if (atomic_fetch_sub_explicit(&k->refs, 1, memory_order_acq_rel) != 1) return;
    if (k->src) symm_window_unref(k->src);
    if (k->dst) symm_window_unref(k->dst);
    symm_comm_unref(k->comm);
    free(k);
}

void *symm_keep_new(const symm_launch *l) {
    symm_win *src = l->src_win, *dst = l->dst_win;
    const int host = !l->comm->cuda,
              n = src && host ? symm_window_pieces(src, l->args.src, l->in, NULL) : 0,
              more = dst && host ? symm_window_pieces(dst, l->args.dst, l->out, NULL) : 0;
    keep *k =
        SYMM_FAIL_ALLOC(capture_call, calloc(1, sizeof *k + (size_t)(n + more) * sizeof k->at[0]));
    if (!k) return NULL;
    atomic_store(&k->refs, 1);
    k->comm = l->comm;
    k->src = src;
    k->dst = dst;
    k->n = n + more;
    if (n) symm_window_pieces(src, l->args.src, l->in, k->at);
    if (more) symm_window_pieces(dst, l->args.dst, l->out, k->at + n);
    symm_comm_ref(k->comm);
    if (k->src) symm_window_ref(k->src);
    if (k->dst) symm_window_ref(k->dst);
    return k;
}

symm_captured *symm_captured_find(symm_comm *c, uint64_t id) {
    for (int i = 0; id && i < SYMM_CAPTURES; i++)
        if (c->captured[i].id == id) return &c->captured[i];
    return NULL;
}

symm_captured *symm_captured_note(symm_comm *c, uint64_t id, symmStream_t stream) {
    symm_captured *at = symm_captured_find(c, id);
    if (!at) { /* one that is free, or was silent longest */
        at = c->captured;
        for (int i = 1; i < SYMM_CAPTURES; i++)
            if (c->captured[i].no < at->no) at = &c->captured[i];
    }
    *at = (symm_captured){id, ++c->ncaptured, stream};
    return at;
}

/* Captured calls keep their order as eager ones do, where one graph has both. */
static symmResult_t follow_captured(symm_comm *c, symmStream_t stream) {
    uint64_t id = 0;
    if (symm_stream_capture(stream, &id) != 1) return symmSuccess;
    const symm_captured *last = symm_captured_find(c, id);
    if (last && last->stream != stream) SYMM_TRY(symm_stream_follow_captured(stream, last->stream));
    symm_captured_note(c, id, stream);
    return symmSuccess;
}

static void retain_comm(void *c) {
    symm_comm_ref(c);
}
static void release_comm(void *c) {
    symm_comm_unref(c);
}

static void launch_ended(void *p) {
    /* Pairs with the acquire in comm.c's drain: what the replay wrote is visible to who waited for it. */
    atomic_fetch_sub_explicit(&((symm_comm *)p)->replays, 1, memory_order_release);
}

static symmResult_t may_launch(void *p) {
    const symm_comm *c = p;
    if (atomic_load(&c->state) != SYMM_COMM_FINAL) return symmSuccess;
    return SYMM_ERR(symmInvalidUsage,
                    "a graph that holds calls of communicator %s is launched after that was "
                    "destroyed",
                    c->name);
}

/* Counted before `state` is read: a Destroy that another thread makes meanwhile waits, or is seen here or in run_task. */
static symmResult_t launch_begins(void *c) {
    atomic_fetch_add(&((symm_comm *)c)->replays, 1);
    symmResult_t r = may_launch(c);
    if (r) launch_ended(c);
    return r;
}

static const symm_graph_user replayed = {retain_comm, release_comm, launch_begins, launch_ended,
                                         may_launch};

static symmResult_t capture(const symm_launch *l, task *t, symmStream_t stream) {
    if (l->comm->memlanes) SYMM_TRY(symm_memplan_may_call(l->comm, stream));
    SYMM_TRY(follow_captured(l->comm, stream));
    keep *k = symm_stream_capture_tell(stream, l->comm, &replayed, NULL) ? NULL : symm_keep_new(l);
    if (!k) {
        symm_stream_lose_capture(stream);
        return SYMM_ERR(symmOutOfMemory, "no memory to capture a collective; the capture is lost");
    }
    t->kept = k;
    symmResult_t r =
        symm_stream_record(stream, run_task, t, sizeof *t, k, keep_retain, symm_keep_release);
    symm_keep_release(k);
    if (r) return r;
    symm_doing_capture(l->comm);
    if (l->comm->memlanes) symm_memlane_called(l->comm, l, stream, 1);
    return symmSuccess;
}

static symmResult_t give(symm_comm *c, const symm_launch *l, symmStream_t stream) {
    task t = {c, NULL, l->plan.kernel, l->args};
    _Static_assert(sizeof t <= SYMM_TASK_BYTES, "a launch fits a task");
    if (symm_stream_capturing(stream)) return capture(l, &t, stream);
    symm_doing_begin(c, &l->call);
    symmResult_t r = symm_stream_submit(stream, run_task, &t, sizeof t, NULL, NULL, NULL);
    if (r) {
        symm_doing_undo(c);
        return r;
    }
    symm_order_take(stream, &c->last_order);
    if (c->memlanes) symm_memlane_called(c, l, stream, 0);
    return symmSuccess;
}

/* Calls of a communicator run in issue order: a change of stream waits for what was given to the last one. */
static symmResult_t launch(symm_comm *c, const symm_launch *l, symmStream_t stream) {
    /* Written by this thread alone; symmStats may read it from another. */
    uint64_t n = atomic_load_explicit(&c->launches[l->plan.kernel], memory_order_relaxed);
    atomic_store_explicit(&c->launches[l->plan.kernel], n + 1, memory_order_relaxed);
    __atomic_store_n(&c->ctl->issued, ++c->issued, __ATOMIC_RELAXED); /* read by ledger.c only */
    if (c->cuda) return symm_gpu_launch(c, l, stream);
    if (stream != c->last_stream) {
        SYMM_TRY(symm_stream_check(stream));
        if (!symm_stream_capturing(stream)) {
            SYMM_TRY(symm_order_wait(stream, c->last_order));
            c->last_stream = stream;
        }
    }
    if (stream) return give(c, l, stream);
    symm_doing_begin(c, &l->call);
    SYMM_TRY(run_kernel(c, l->plan.kernel, &l->args)); /* a failure ends the communicator */
    if (c->memlanes) symm_memlane_called(c, l, stream, 0);
    return symmSuccess;
}

typedef struct {
    symm_coll k;
    symmComm_t comm;
    symmStream_t stream;
} call_args;

static int same_call(const symm_coll *a, const symm_coll *b) {
    return a->src == b->src && a->dst == b->dst && a->count == b->count && a->coll == b->coll &&
           a->type == b->type && a->op == b->op;
}

/* The ends of other allocators' memory are not counted: each call asks. */
static int lasts(const symm_win *w) {
    return !w || !w->foreign;
}

/* The call, checked and planned: remembered from last time, or now. */
static symmResult_t prepare(symm_comm *c, const symm_coll *k, const symm_launch **out) {
    uint64_t mix = ((uint64_t)(uintptr_t)k->src >> 6) + ((uint64_t)(uintptr_t)k->dst >> 7) +
                   k->count + k->coll;
    symm_memo *m = &c->memos[(mix ^ mix >> 3 ^ mix >> 9) % SYMM_MEMOS];
    const uint64_t ends = symm_vmm_ended();
    if (m->version != c->version || m->ends != ends || !same_call(&m->k, k)) {
        m->version = 0;
        SYMM_TRY(symm_coll_prepare(c, k, &m->l));
        m->k = *k;
        m->version = lasts(m->l.src_win) && lasts(m->l.dst_win) ? c->version : 0;
        m->ends = ends;
        m->digest = c->digest;
    }
    if (m->digest != c->digest) {
        m->l.args.sig = with_heaps(m->l.sig, c->digest);
        m->digest = c->digest;
    }
    *out = &m->l;
    return symmSuccess;
}

symmResult_t symm_coll_barrier(symm_comm *c, symmStream_t stream) {
    const symm_coll k = {symmCollBarrier, NULL, NULL, 0, symmUint8, symmSum};
    const symm_launch *l;
    SYMM_TRY(prepare(c, &k, &l));
    return launch(c, l, stream);
}

static symmResult_t call_job(void *p) {
    call_args *a = p;
    symm_comm *c;
    const symm_launch *l;
    SYMM_TRY(symm_comm_enter(a->comm, SYMM_ENTER_COLL, &c));
    symmResult_t r = prepare(c, &a->k, &l);
    if (__builtin_expect(r == symmSuccess, 1)) r = launch(c, l, a->stream);
    symm_comm_leave(c);
    return r;
}

/* A kernel on the host's NULL stream runs in the call. */
static int job_kind(const symm_comm *c, symmStream_t stream) {
    if (!c->cuda) return stream ? SYMM_JOB_STREAM : SYMM_JOB_BLOCKS;
    return symm_gpu_is_per_thread(stream) ? SYMM_JOB_HERE : SYMM_JOB_STREAM;
}

/* What waits in a group is checked at the call, like what runs at once. */
static symmResult_t check_queued(const symm_coll *k, symmComm_t comm, symmStream_t stream,
                                 int *kind) {
    symm_comm *c;
    symm_launch l;
    SYMM_TRY(symm_comm_enter(comm, SYMM_ENTER_COLL, &c));
    symmResult_t r = symm_coll_prepare(c, k, &l);
    if (!r) r = c->cuda ? symm_gpu_check_stream(c, stream) : symm_stream_check(stream);
    *kind = job_kind(c, stream);
    symm_comm_leave(c);
    return r;
}

static symmResult_t submit(const symm_coll *k, symmComm_t comm, symmStream_t stream) {
    call_args a = {*k, comm, stream};
    int kind = SYMM_JOB_STREAM;
    if (__builtin_expect(symm_group_open(), 0)) {
        symmResult_t r = check_queued(k, comm, stream, &kind);
        if (r) return symm_group_refuse(r);
        return symm_group_run(comm, kind, call_job, &a, sizeof a);
    }
    return call_job(&a);
}

symmResult_t symmAllReduce(const void *sendbuff, void *recvbuff, size_t count,
                           symmDataType_t datatype, symmRedOp_t op, symmComm_t comm,
                           symmStream_t stream) {
    symm_coll k = {symmCollAllReduce, sendbuff, recvbuff, count, (uint32_t)datatype, op};
    return submit(&k, comm, stream);
}

symmResult_t symmAllGather(const void *sendbuff, void *recvbuff, size_t sendcount,
                           symmDataType_t datatype, symmComm_t comm, symmStream_t stream) {
    symm_coll k = {symmCollAllGather, sendbuff, recvbuff, sendcount, (uint32_t)datatype, symmSum};
    return submit(&k, comm, stream);
}

symmResult_t symmBarrier(symmComm_t comm, symmStream_t stream) {
    symm_coll k = {symmCollBarrier, NULL, NULL, 0, symmUint8, symmSum};
    return submit(&k, comm, stream);
}
