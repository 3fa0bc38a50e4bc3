/* grouped.c - see grouped.h. A call of a group is checked, planned and copied when it is made, with
 * its reduction, scalar and counts, so that the program may end or change them before symmGroupEnd.
 * Then it is launched as it is, unless windows have changed meanwhile: these are looked up again.
 * Calls of one communicator and stream that follow each other are one job (group.h): the
 * communicator is entered once, and a stream of the host backend is given one task. Of these,
 * rooted calls with different roots run as one kernel (fused.h). The thread of the group; group.c
 * says which thread runs a job. No lock. */
#include "grouped.h"

#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "host/comm/comm.h"
#include "host/comm/group.h"
#include "host/window/window.h"
#include "counts.h"
#include "fused.h"
#include "redop.h"

typedef struct queued {
    struct queued *next, *last; /* the calls that run with this one; last: of the first one alone */
    int calls;                  /* of the first one: how many they are */
    struct queued *newest;      /* of the first one: the last one that is not fused to another */
    symm_fused fused;           /* of that one: the roots of those that follow, if any may */
    symmComm_t comm;
    symmStream_t stream;
    int rank, nranks, may_fuse;
    symm_coll k;
    symm_redop user;        /* if k has one */
    uint64_t version, ends; /* with which l was made; version 0: to be made again */
    symm_launch l;
    symm_extent extents[]; /* of a call with a count per rank, or fused: 2 * nranks */
} queued;

/* ---- the call -------------------------------------------------------------------------------- */

/* Ends of other allocators' memory are not counted, so the windows are looked up again. */
static int lasts(const symm_launch *l) {
    return (!l->src_win || !l->src_win->foreign) && (!l->dst_win || !l->dst_win->foreign) &&
           (!l->from || !l->from->foreign);
}

/* Inside the communicator. */
static symmResult_t resolve(symm_comm *c, const symm_counts *counts, queued *q) {
    const symm_launch *l;
    symm_coll *k = &q->k;
    if (counts) {
        SYMM_TRY(symm_counts_read(k, counts, c->rank, c->nranks, q->extents));
        k->extents = q->extents;
    }
    SYMM_TRY(symm_coll_ready(c, k, &l));
    SYMM_TRY(c->launcher->check_stream(c, q->stream));
    q->l = *l;
    q->ends = symm_vmm_ended();
    q->version = lasts(l) ? symm_window_version(c) : 0;
    const symm_redop *user = symm_redop_find(c, k->op);
    if (user) q->user = *user;
    return symmSuccess;
}

/* What points into the record of the call, wherever that has been copied to. */
static void point_home(queued *q) {
    q->k.extents = q->k.extents ? q->extents : NULL;
    q->k.user = q->user.live ? &q->user : NULL;
    if (q->k.extents) q->l.args.extents = q->extents;
}

/* ---- calls that are one ---------------------------------------------------------------------- */

/* Those that q's kernel runs: itself, or the fused ones from it on. How many. */
static int as_one(const queued *q, const symm_coll **calls) {
    const int n = symm_fused_pays(&q->fused, &q->k, q->nranks) ? q->fused.n : 1;
    SYMM_ASSERT(n <= q->nranks);
    for (int i = 0; i < n; i++, q = q->next) calls[i] = &q->k;
    return n;
}
/* The one behind n of them; NULL: none. */
static queued *behind(const queued *q, int n) {
    const queued *at = q;
    while (n--) at = at->next;
    return (queued *)(uintptr_t)at;
}

static symmResult_t check(const void *p) {
    const symm_coll *calls[SYMM_MAX_RANKS];
    int n;
    for (const queued *q = p; q; q = behind(q, n))
        if ((n = as_one(q, calls)) > 1) SYMM_TRY(symm_fused_check(calls, n, q->rank));
    return symmSuccess;
}

/* ---- its turn -------------------------------------------------------------------------------- */

static symmResult_t refresh(symm_comm *c, queued *q) {
    if (q->version != symm_window_version(c) || q->ends != symm_vmm_ended())
        return symm_coll_prepare(c, &q->k, &q->l);
    symm_coll_sign(c, &q->l);
    return symmSuccess;
}

static symmResult_t ready(symm_comm *c, queued *q, const symm_coll *const *calls, int n) {
    if (n == 1) return refresh(c, q);
    const symm_coll k = symm_fused_call(calls, n, c->rank, c->nranks, q->extents);
    return symm_coll_prepare(c, &k, &q->l);
}

/* All are refreshed before the first is launched: it is all of them or none, but for what a launch
 * says. */
static symmResult_t run_list(symm_comm *c, queued *first) {
    const symm_coll *calls[SYMM_MAX_RANKS];
    SYMM_ASSERT(first->last && !first->last->next);
    for (queued *q = first, *next; q; q = next) {
        const int n = as_one(q, calls);
        next = behind(q, n);
        SYMM_TRY(ready(c, q, calls, n));
        q->l.next = next ? &next->l : NULL;
    }
    return symm_coll_launch_list(c, &first->l, first->stream);
}

static symmResult_t run(void *p) {
    queued *q = p;
    symm_comm *c;
    SYMM_TRY(symm_comm_enter(q->comm, SYMM_ENTER_COLL, &c));
    point_home(q);
    symmResult_t r = symmSuccess;
    if (q->calls > 1)
        r = run_list(c, q);
    else if (!(r = refresh(c, q)))
        r = symm_coll_launch(c, &q->l, q->stream);
    symm_comm_leave(c);
    return r;
}

/* Whether b runs with those that are fused to a. */
static int fuses(queued *a, const queued *b) {
    if (!a->may_fuse || (!a->fused.n && !symm_fused_add(&a->fused, &a->k, &a->k))) return 0;
    return symm_fused_add(&a->fused, &a->k, &b->k);
}

/* Whether the second call, of the same communicator, has become part of the first one's job. */
static int join(void *first, void *second) {
    queued *a = first, *b = second;
    if (a->stream != b->stream) return 0;
    SYMM_ASSERT(a->comm == b->comm && a->last && !a->last->next);
    point_home(b);
    a->last->next = b;
    a->last = b;
    a->calls++;
    if (!fuses(a->newest, b)) a->newest = b;
    return 1;
}

static void settle(void *p) {
    queued *q = p;
    q->last = q;
    q->next = NULL;
    q->calls = 1;
    q->newest = q;
    q->fused = (symm_fused){.n = 0};
}

/* Behind the text; 0: it has no room for that and for the sign that something is left out. */
static int append(symm_job_tale *t, int more, int times, const char *what, const char *as) {
    const size_t at = strlen(t->text), room = sizeof t->text - at, sign = sizeof ", ...";
    char many[16] = "";
    if (times > 1) snprintf(many, sizeof many, "%d x ", times);
    const int n = snprintf(t->text + at, room, "%s%s%s%s%s", more ? ", " : " ", many, what,
                           as ? " as one " : "", as ? as : "");
    if (n >= 0 && (size_t)n + sign <= room) return 1;
    snprintf(t->text + at, room, ", ...");
    return 0;
}

/* The kernels, those that follow each other and are alike counted. */
static void tell_kernels(const queued *first, symm_job_tale *t) {
    const symm_coll *calls[SYMM_MAX_RANKS];
    int times = 0, room = 1, more = 0, n;
    for (const queued *q = first, *next; q; q = next) {
        n = as_one(q, calls);
        next = behind(q, n);
        t->kernels++;
        times += n;
        const symm_kernel_id kernel = q->l.plan.kernel;
        const int goes_on =
            n == 1 && next && next->l.plan.kernel == kernel && as_one(next, calls) == 1;
        if (goes_on || !room) continue;
        const symm_coll_row *row = &symm_colls[q->k.coll];
        room = n > 1 ? append(t, more, times, row->name, symm_coll_name(row->fuses))
                     : append(t, more, times, symm_kernels[kernel].name, NULL);
        times = 0, more = 1;
    }
}

static symmResult_t tell(const void *p, symm_job_tale *t) {
    const queued *first = p;
    symm_comm *c;
    SYMM_ASSERT(first->calls > 0 && first->last && !first->last->next);
    SYMM_TRY(symm_comm_visit(first->comm, &c));
    t->calls = first->calls;
    snprintf(t->text, sizeof t->text, "communicator %s, rank %d, stream %p:", c->name, c->rank,
             (void *)first->stream);
    symm_comm_unvisit(c);
    tell_kernels(first, t);
    return symmSuccess;
}

symmResult_t symm_grouped_call(const symm_coll *k, const symm_counts *counts, symmComm_t comm,
                               symmStream_t stream) {
    union {
        queued q;
        char room[sizeof(queued) + SYMM_EXTENTS * sizeof(symm_extent)];
    } u;
    symm_comm *c;
    queued *q = &u.q;
    memset(q, 0, sizeof *q);
    q->comm = comm;
    q->stream = stream;
    q->k = *k;
    symmResult_t r = symm_comm_enter(comm, SYMM_ENTER_COLL, &c);
    if (r) return symm_group_refuse(r);
    r = resolve(c, counts, q);
    const int kind = c->launcher->job(stream);
    q->rank = c->rank;
    q->nranks = c->nranks;
    q->may_fuse = c->launcher->fuses && symm_colls[k->coll].fuses;
    const size_t bytes =
        sizeof *q + (q->k.extents || q->may_fuse ? symm_extents_bytes(c->nranks) : 0);
    symm_comm_leave(c);
    if (r) return symm_group_refuse(r);
    static const symm_job_row row = {
        .run = run, .tell = tell, .settle = settle, .join = join, .check = check};
    return symm_group_join(comm, kind, stream, &row, q, bytes);
}
