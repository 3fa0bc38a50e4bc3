/* grouped.c - see grouped.h. A call of a group is checked, planned and copied when it is made, with
 * its reduction, scalar and counts, so that the program may end or change them before symmGroupEnd.
 * Then it is launched as it is, unless windows have changed meanwhile: these are looked up again.
 * Calls of one communicator and stream that follow each other are one job (group.h): the
 * communicator is entered once, and a stream of the host backend is given one task. The thread of
 * the group; group.c says which thread runs a job. No lock. */
#include "grouped.h"

#include <string.h>

#include "base/check.h"
#include "host/comm/comm.h"
#include "host/comm/group.h"
#include "host/window/window.h"
#include "counts.h"
#include "redop.h"

typedef struct queued {
    struct queued *next, *last; /* the calls that run with this one; last: of the first one alone */
    int calls;                  /* of the first one: how many they are */
    symmComm_t comm;
    symmStream_t stream;
    symm_coll k;
    symm_redop user;        /* if k has one */
    uint64_t version, ends; /* with which l was made; version 0: to be made again */
    symm_launch l;
    symm_extent extents[]; /* of a call with a count per rank: 2 * nranks */
} queued;

/* ---- the call -------------------------------------------------------------------------------- */

/* Ends of other allocators' memory are not counted, so the windows are looked up again. */
static int lasts(const symm_launch *l) {
    return (!l->src_win || !l->src_win->foreign) && (!l->dst_win || !l->dst_win->foreign);
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

/* ---- its turn -------------------------------------------------------------------------------- */

static symmResult_t refresh(symm_comm *c, queued *q) {
    if (q->version != symm_window_version(c) || q->ends != symm_vmm_ended())
        return symm_coll_prepare(c, &q->k, &q->l);
    symm_coll_sign(c, &q->l);
    return symmSuccess;
}

/* All are refreshed before the first is launched: it is all of them or none, but for what a launch
 * says. */
static symmResult_t run_list(symm_comm *c, queued *first) {
    SYMM_ASSERT(first->last && !first->last->next);
    for (queued *q = first; q; q = q->next) {
        SYMM_TRY(refresh(c, q));
        q->l.next = q->next ? &q->next->l : NULL;
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

/* Whether the second call, of the same communicator, has become part of the first one's job. */
static int join(void *first, void *second) {
    queued *a = first, *b = second;
    if (a->stream != b->stream) return 0;
    SYMM_ASSERT(a->comm == b->comm && a->last && !a->last->next);
    point_home(b);
    a->last->next = b;
    a->last = b;
    a->calls++;
    return 1;
}

static void settle(void *p) {
    queued *q = p;
    q->last = q;
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
    q->calls = 1;
    q->comm = comm;
    q->stream = stream;
    q->k = *k;
    symmResult_t r = symm_comm_enter(comm, SYMM_ENTER_COLL, &c);
    if (r) return symm_group_refuse(r);
    r = resolve(c, counts, q);
    const int kind = c->launcher->job(stream);
    const size_t bytes = sizeof *q + (q->k.extents ? symm_extents_bytes(c->nranks) : 0);
    symm_comm_leave(c);
    if (r) return symm_group_refuse(r);
    static const symm_job_row row = {run, join, settle};
    return symm_group_join(comm, kind, &row, q, bytes);
}
