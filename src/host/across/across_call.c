/* across_call.c - from a collective call on a communicator over several domains to the function
 * that makes it of calls inside a domain and messages between domains. Which one follows from the
 * collective's row: what each buffer holds, whether it reduces, whether it has a root. Checks: any
 * thread; the calls themselves: the thread inside. */
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/fail.h"
#include "device/host/reduce.h"
#include "host/coll/redop.h"
#include "host/comm/comm.h"
#include "host/comm/group.h"
#include "across_gpu.h"

typedef struct {
    symm_holds in, out; /* SYMM_VARIES is as SYMM_EACH */
    unsigned flags;     /* SYMM_COLL_* */
    symmResult_t (*run)(const symm_across_call *a);
} shape;
static const shape shapes[] = {
    {SYMM_NONE, SYMM_NONE, 0, symm_across_barrier},
    {SYMM_COUNT, SYMM_COUNT, SYMM_COLL_REDUCES, symm_across_all_reduce},
    {SYMM_EACH, SYMM_COUNT, SYMM_COLL_REDUCES, symm_across_reduce_scatter},
    {SYMM_COUNT, SYMM_COUNT, SYMM_COLL_REDUCES | SYMM_COLL_ROOT, symm_across_reduce},
    {SYMM_COUNT, SYMM_EACH, 0, symm_across_all_gather},
    {SYMM_EACH, SYMM_EACH, 0, symm_across_alltoall},
    {SYMM_COUNT, SYMM_COUNT, SYMM_COLL_ROOT, symm_across_broadcast},
    {SYMM_COUNT, SYMM_EACH, SYMM_COLL_ROOT, symm_across_gather},
    {SYMM_EACH, SYMM_COUNT, SYMM_COLL_ROOT, symm_across_scatter},
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

static symm_holds even(symm_holds h) {
    return h == SYMM_VARIES ? SYMM_EACH : h;
}

static const shape *shape_of(const symm_coll_row *row) {
    for (int i = 0; i < SHAPES; i++)
        if (shapes[i].in == even(row->in) && shapes[i].out == even(row->out) &&
            shapes[i].flags == row->flags)
            return &shapes[i];
    return NULL;
}

/* ---- check ----------------------------------------------------------------------------------- */

symmResult_t symm_across_check_stream(const symm_across *s, const char *call, symmStream_t stream) {
    if (s->gpu) return symm_across_gpu_check(s, call, stream);
    if (!stream) return symmSuccess;
    if (!s->alone) return symm_stream_check(stream);
    return SYMM_ERR(symmNotSupported,
                    "%s: on a communicator over several domains (%s) stream must be NULL: %s", call,
                    s->outer.name, s->alone);
}

/* coll.def has a row of a shape that is not above. */
static symmResult_t no_way(const symm_across *s, const symm_coll_row *row) {
    return SYMM_ERR(symmNotSupported, "%s: not over several domains (%s)", row->call,
                    s->outer.name);
}

static symmResult_t check_place(const symm_across *s, const symm_coll_row *row,
                                const symm_counts *counts, symmStream_t stream) {
    SYMM_TRY(symm_across_check_stream(s, row->call, stream));
    if (counts && s->map.nranks > SYMM_COUNTS_RANKS)
        return SYMM_ERR(symmNotSupported,
                        "%s: of %d ranks over several domains: with a count per rank at most %d "
                        "are served",
                        row->call, s->map.nranks, SYMM_COUNTS_RANKS);
    return symmSuccess;
}

static void even_parts(const symm_across *s, symm_holds holds, uint64_t bytes, symm_extent *out) {
    const uint64_t step = holds == SYMM_EACH ? bytes : 0;
    for (int r = 0; r < s->map.nranks; r++) out[r] = (symm_extent){(unsigned)r * step, bytes};
}

/* A reduction of the program's. It is asked for inside, and so behind a call that is made there. */
static symmResult_t find_scalar(symm_across_call *a) {
    const symm_redop *user = NULL;
    symm_comm *c;
    SYMM_TRY(symm_comm_enter(a->s->outer.inner, SYMM_ENTER_ANY, &c));
    const symmResult_t r = symm_coll_check_op(c, a->k, &user);
    a->scaled = user != NULL;
    if (user) a->scalar = user->scalar;
    if (user) a->scalar_at = user->ptr;
    symm_comm_leave(c);
    return r;
}

/* Averages are sums inside and across, which are divided at the end. */
static symmResult_t settle_op(symm_across_call *a) {
    const int built_in = (unsigned)a->k->op < symmNumOps;
    if (!built_in) SYMM_TRY(find_scalar(a));
    const int average = a->k->op == symmAvg;
    a->op = average ? symmSum : a->k->op;
    a->joins = !built_in || average ? SYMM_OP_SUM : (int)a->k->op;
    a->divides = average ? a->s->map.nranks : 0;
    SYMM_ASSERT(a->joins >= 0 && a->joins < SYMM_OP_AVG);
    return symmSuccess;
}

/* parts: [2 * nranks], which the call keeps. */
static symmResult_t check_call(symm_across_call *a, const symm_coll_row *row,
                               const symm_counts *counts, symm_extent *parts) {
    const symm_domains *d = &a->s->map;
    symm_coll k = *a->k;
    uint64_t in, out;
    if (counts) {
        SYMM_TRY(symm_counts_read(&k, counts, d->rank, d->nranks, parts));
        k.extents = parts;
    }
    SYMM_TRY(symm_coll_check(&k, d->rank, d->nranks, 0, &in, &out));
    if (a->s->gpu) SYMM_TRY(symm_across_gpu_reaches(a->s, in ? k.src : NULL, out ? k.dst : NULL));
    a->esize = symm_type_size(k.type);
    a->bytes = k.count * a->esize;
    if (!counts) even_parts(a->s, row->in, a->bytes, parts);
    if (!counts) even_parts(a->s, row->out, a->bytes, parts + d->nranks);
    a->to = parts;
    a->from = parts + d->nranks;
    return row->flags & SYMM_COLL_REDUCES ? settle_op(a) : symmSuccess;
}

/* ---- call ------------------------------------------------------------------------------------ */

enum { ASK_EVERY = 16 };

/* Of what all ranks must say alike. Counts that differ show in the sizes of messages. */
static uint32_t mark_of(const symm_across_call *a, int varies) {
    const symm_coll *k = a->k;
    uint64_t h = (varies ? 0 : k->count + 1) * 0x9e3779b97f4a7c15ull;
    const uint32_t op = a->scaled ? SYMM_OP_PREMUL : (uint32_t)k->op; /* numbers are local */
    h ^= ((uint64_t)(uint32_t)k->root << 32 | (uint64_t)k->coll << 16 | k->type << 8 | op) *
         0xc2b2ae3d27d4eb4full;
    h ^= a->s->calls * 0x165667b19e3779f9ull;
    h ^= h >> 29;
    h *= 0xbf58476d1ce4e5b9ull;
    SYMM_ASSERT(a->s->map.ndomains > 1);
    return (uint32_t)(h >> (64 - SYMM_MARK_BITS));
}

/* From inside waits of the calls inside: what crosses goes on meanwhile. An error is found again
 * when it is waited for. */
typedef struct {
    symm_across *s;
    int failed;
} pushed;
static void push(void *arg) {
    pushed *p = arg;
    int left, rank;
    p->failed = p->failed || p->s->net->ops->test(p->s->net, &left, &rank);
    if (p->s->users.fn) p->s->users.fn(p->s->users.arg);
}

/* What the rank lacks for itself is no error of the others, and they wait: so it is one for all. */
symmResult_t symm_across_run(symm_across *s, symmStream_t stream, symmResult_t (*fn)(void *arg),
                             void *arg) {
    /* Asking the mover takes some us. Waits do; and who never waits, a sender, once in a while. */
    symmResult_t r =
        s->turns++ % ASK_EVERY ? symm_across_look_inside(s, 1) : symm_across_look(s, 1);
    if (s->gpu) return r ? symm_across_fail(s, r) : symm_across_gpu_run(s, stream, fn, arg);
    pushed p = {.s = s};
    symm_progress with = {push, &p};
    symm_progress_swap(&with);
    s->users = with;
    if (!r) r = fn(arg);
    symm_progress_swap(&with);
    return r ? symm_across_fail(s, r) : symmSuccess;
}

typedef struct {
    symm_across_call a;
    const shape *as;
    int varies;
} ready; /* a collective that is checked */

static symmResult_t run(void *arg) {
    const ready *c = arg;
    const int ordered = c->a.s->deterministic && (c->as->flags & SYMM_COLL_REDUCES);
    return ordered ? symm_across_ordered(&c->a) : c->as->run(&c->a);
}

static symmResult_t run_ready(ready *c) {
    c->a.mark = mark_of(&c->a, c->varies);
    c->a.s->calls++;
    return symm_across_run(c->a.s, c->a.stream, run, c);
}

/* ---- later ----------------------------------------------------------------------------------- */

typedef struct { /* a call that waits for symmGroupEnd or for its stream */
    symm_across_job job;
    symmStream_t stream; /* of the host backend: whose worker makes it */
    ready c;
    symm_coll k;
    symm_extent parts[]; /* [2 * nranks] */
} queued;

static size_t queued_bytes(const symm_across *s) {
    return sizeof(queued) + 2 * (size_t)s->map.nranks * sizeof(symm_extent);
}

/* The reduction is made anew: the program may have ended its own. */
static symmResult_t run_scaled(queued *q) {
    const symmComm_t inner = q->c.a.s->outer.inner;
    const void *at = q->c.a.scalar_at; /* is read when the call runs */
    symmResult_t r = symmRedOpCreatePreMulSum(
        &q->c.a.op, at ? (void *)(uintptr_t)at : &q->c.a.scalar, (symmDataType_t)q->k.type,
        at ? symmScalarDevice : symmScalarHostImmediate, inner);
    if (r) return symm_across_fail(q->c.a.s, r); /* the others wait for it */
    r = run_ready(&q->c);
    (void)symmRedOpDestroy(q->c.a.op, inner); /* of a communicator that is over, too */
    return r;
}

static symmResult_t run_job(symm_across_job *j, symm_across *s) {
    queued *q = (queued *)j;
    SYMM_ASSERT(q->c.a.s == s);
    q->c.a.k = &q->k;
    q->c.a.to = q->parts;
    q->c.a.from = q->parts + s->map.nranks;
    return q->c.a.scaled ? run_scaled(q) : run_ready(&q->c);
}

static symmResult_t run_queued(void *args) {
    queued *q = args;
    symm_across *s;
    SYMM_TRY(symm_across_get(q->job.comm, &s));
    symmResult_t r = q->stream ? symm_across_give(s, q->stream, &q->job, queued_bytes(s))
                               : symm_across_follow(s);
    if (!r && !q->stream) r = symm_across_job_run(&q->job);
    symm_outer_put(q->job.comm);
    return r;
}

static symmResult_t tell_queued(const void *args, symm_job_tale *t) {
    const queued *q = args;
    symm_across *s;
    SYMM_TRY(symm_across_get(q->job.comm, &s));
    snprintf(t->text, sizeof t->text, "communicator %s, rank %d: %s over %d domains", s->outer.name,
             s->map.rank, symm_colls[q->k.coll].name, s->map.ndomains);
    symm_outer_put(q->job.comm);
    return symmSuccess;
}

static const symm_job_row queued_row = {.run = run_queued, .tell = tell_queued};

/* Whether there is something to do. */
static int does(const ready *c) {
    return c->as->in == SYMM_NONE || c->varies || c->a.k->count;
}

static symmResult_t check_and_queue(queued *q, const symm_coll_row *row,
                                    const symm_counts *counts) {
    symm_across *s = q->c.a.s;
    SYMM_TRY(check_call(&q->c.a, row, counts, q->parts));
    if (!does(&q->c)) return symmSuccess;
    q->c.a.to = q->c.a.from = NULL; /* where the record is copied to is not known yet (run_job) */
    return symm_group_open() ? symm_group_join(s->outer.inner, symm_across_job_kind(q->stream),
                                               q->stream, &queued_row, q, queued_bytes(s))
                             : run_queued(q);
}

/* In a group, or on a stream of the host backend. Nobody is inside. */
static symmResult_t call_later(const ready *c, const symm_coll_row *row, const symm_counts *counts,
                               symmStream_t stream) {
    symm_across *s = c->a.s;
    SYMM_TRY(symm_across_may_queue(s, stream));
    queued *q = SYMM_FAIL_ALLOC(across_queue, calloc(1, queued_bytes(s)));
    if (!q) return SYMM_ERR(symmOutOfMemory, "no memory to queue a call");
    q->job = (symm_across_job){s->outer.handle, run_job};
    q->stream = stream;
    q->c = *c;
    q->k = *c->a.k;
    q->c.a.k = &q->k;
    const symmResult_t r = check_and_queue(q, row, counts);
    free(q);
    return r;
}

/* ---- the call -------------------------------------------------------------------------------- */

static symmResult_t call_inside(ready *c, const symm_coll_row *row, const symm_counts *counts) {
    SYMM_TRY(check_call(&c->a, row, counts, c->a.s->parts));
    SYMM_ASSERT(!symm_coll_moves(row) || c->a.esize > 0);
    return does(c) ? run_ready(c) : symmSuccess;
}

static symmResult_t call_now(ready *c, const symm_coll_row *row, const symm_counts *counts) {
    symm_across *s = c->a.s;
    SYMM_TRY(symm_across_follow(s));
    SYMM_TRY(symm_across_begin(s));
    const symmResult_t r = call_inside(c, row, counts);
    symm_across_leave(s);
    return r;
}

symmResult_t symm_across_call_any(symm_outer *o, const symm_coll *k, const symm_counts *counts,
                                  symmStream_t stream) {
    symm_across *s = (symm_across *)o;
    const symm_coll_row *row = &symm_colls[k->coll];
    symmStream_t later = s->gpu ? NULL : stream;
    ready c = {.a = {.s = s, .k = k, .stream = s->gpu ? stream : NULL},
               .as = shape_of(row),
               .varies = symm_coll_varies(row)};
    symmResult_t r = c.as ? check_place(s, row, counts, stream) : no_way(s, row);
    if (!r)
        r = later || symm_group_open() ? call_later(&c, row, counts, later)
                                       : call_now(&c, row, counts);
    return r ? symm_group_refuse(r) : symmSuccess;
}

/* Who leaves the barrier inside knows that all ranks of its domain have come. Each rank hears that
 * from one rank of each other domain. */
static symmResult_t barrier_on_host(const symm_across_call *a) {
    const symm_domains *d = &a->s->map;
    SYMM_TRY(symmBarrier(a->s->outer.inner, a->stream));
    for (int e = 0; e < d->ndomains; e++)
        if (e != d->domain) SYMM_TRY(symm_cross_receive(a, symm_domain_partner(d, e), NULL, 0));
    for (int q = 0; q < d->nranks; q++)
        if (d->domain_of[q] != d->domain && symm_domain_stand_in(d, q) == d->place)
            SYMM_TRY(symm_cross_send(a, q, NULL, 0));
    return symm_cross_finish(a->s);
}

/* On GPUs the first ranks of the domains tell each other, and the others hear it inside: a kernel
 * more, and few messages. */
symmResult_t symm_across_barrier(const symm_across_call *a) {
    const symm_domains *d = &a->s->map;
    enum { WORD = 4 }; /* NCCL's messages of nothing wait for nobody */
    char *words;
    if (!a->s->gpu) return barrier_on_host(a);
    SYMM_TRY(symm_across_stage(a->s, WORD * (size_t)(d->ndomains + 1), &words));
    SYMM_TRY(symmBarrier(a->s->outer.inner, a->stream));
    for (int e = 0; e < d->ndomains && d->place == 0; e++) {
        if (e == d->domain) continue;
        SYMM_TRY(symm_cross_send(a, symm_domain_rank(d, e, 0), words, WORD));
        SYMM_TRY(symm_cross_receive(a, symm_domain_rank(d, e, 0), words + WORD * (e + 1), WORD));
    }
    SYMM_TRY(symm_cross_finish(a->s));
    return symmBarrier(a->s->outer.inner, a->stream);
}
