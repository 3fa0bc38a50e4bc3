/* across_messages.c - sends and receives of a communicator over several domains. Those with a rank
 * of the own domain are the inner communicator's; the others go by the mover, in a way of their
 * own, so that the collectives of either side wait for none of them. Checks: any thread; what runs
 * them: the thread inside. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "symm_p2p.h"

#include "base/check.h"
#include "base/fail.h"
#include "device/host/reduce.h"
#include "host/comm/comm.h"
#include "host/comm/group.h"
#include "host/gpu/gpu.h"
#include "host/gpu/point.h"
#include "host/launch/launch.h"
#include "across_gpu.h"

/* Up to here a send is copied, and ends without its receive. MPI passes on so much at once: what it
 * keeps would move only while this rank is in MPI, and it may wait inside its domain instead. */
enum { POST_BYTES = 3968 };

/* ---- run ------------------------------------------------------------------------------------- */

typedef struct { /* that run together */
    symm_across *s;
    const symm_message *m;
    int n;
} several;

static int is_inside(const symm_across *s, const symm_message *m) {
    return s->map.domain_of[m->peer] == s->map.domain;
}

static size_t bytes_of(const symm_message *m) {
    return m->count * symm_type_size(m->type);
}

/* Of what both sides must say alike. */
static uint32_t mark_of(const symm_message *m) {
    uint64_t h = (m->count + 1) * 0x9e3779b97f4a7c15ull ^ (m->type + 1) * 0xc2b2ae3d27d4eb4full;
    h ^= h >> 29;
    h *= 0xbf58476d1ce4e5b9ull;
    return (uint32_t)(h >> (64 - SYMM_MARK_BITS));
}

/* Receives begin first: what comes has its place. */
static symmResult_t begin_crossing(const several *all, int sends) {
    symm_net *net = all->s->net;
    for (const symm_message *m = all->m; m < all->m + all->n; m++) {
        const symm_net_end end = {m->peer, SYMM_NET_MESSAGES, mark_of(m)};
        int posted = 0;
        if (is_inside(all->s, m) || m->sends != sends) continue;
        if (all->s->gpu) {
            SYMM_TRY(symm_across_gpu_message(all->s, m->peer, sends, m->buff, bytes_of(m)));
            continue;
        }
        if (sends && bytes_of(m) <= POST_BYTES)
            SYMM_TRY(net->ops->post(net, end, m->buff, bytes_of(m), &posted));
        if (sends && !posted) SYMM_TRY(net->ops->send(net, end, m->buff, bytes_of(m)));
        if (!sends) SYMM_TRY(net->ops->receive(net, end, m->buff, bytes_of(m)));
    }
    return symmSuccess;
}

static symmResult_t call_inner(const symm_across *s, const symm_message *m) {
    const symmComm_t inner = s->outer.inner;
    const int place = s->map.place_of[m->peer];
    const symmDataType_t type = (symmDataType_t)m->type;
    return m->sends ? symmSend(m->buff, m->count, type, place, inner, m->stream)
                    : symmRecv(m->buff, m->count, type, place, inner, m->stream);
}

static symmResult_t run_inside(const several *all) {
    int inside = 0;
    for (int i = 0; i < all->n; i++) inside += is_inside(all->s, &all->m[i]);
    if (!inside) return symmSuccess;
    if (all->n == 1) return call_inner(all->s, all->m);
    SYMM_TRY(symmGroupStart());
    for (int i = 0; i < all->n; i++)
        if (is_inside(all->s, &all->m[i])) (void)call_inner(all->s, &all->m[i]);
    return symmGroupEnd(); /* what one of the calls said */
}

static symmResult_t run(void *arg) {
    const several *all = arg;
    SYMM_ASSERT(all->n > 0 && all->s->net);
    SYMM_TRY(begin_crossing(all, 0));
    SYMM_TRY(begin_crossing(all, 1));
    SYMM_TRY(run_inside(all));
    return symm_cross_finish(all->s);
}

/* ---- in a group ------------------------------------------------------------------------------ */

typedef struct { /* what a group has queued */
    symmComm_t comm;
    symm_message *m;
    symmStream_t *streams; /* [room] of the run */
    int n, room;
} queued;

typedef struct { /* what a stream of the host backend is given */
    symm_across_job job;
    int n;
    symm_message m[];
} later;

static symmResult_t run_all(symm_across *s, const symm_message *m, int n) {
    several all = {s, m, n};
    SYMM_ASSERT(n > 0);
    return symm_across_run(s, m->stream, run, &all);
}
static symmResult_t run_later(symm_across_job *j, symm_across *s) {
    const later *l = (const later *)j;
    return run_all(s, l->m, l->n);
}

/* Inside, its worker makes them on no stream. */
static symmResult_t give(symm_across *s, symmStream_t stream, const symm_message *m, int n) {
    const size_t bytes = sizeof(later) + (size_t)n * sizeof *m;
    later *l = SYMM_FAIL_ALLOC(across_queue, malloc(bytes));
    if (!l) return SYMM_ERR(symmOutOfMemory, "no memory for %d messages of a stream", n);
    memset(l, 0, sizeof *l);
    l->job = (symm_across_job){s->outer.handle, run_later};
    l->n = n;
    for (int i = 0; i < n; i++) l->m[i] = m[i], l->m[i].stream = NULL;
    const symmResult_t r = symm_across_give(s, stream, &l->job, bytes);
    free(l);
    return r;
}

static symmResult_t run_now(symm_across *s, const symm_message *m, int n) {
    SYMM_TRY(symm_across_follow(s));
    SYMM_TRY(symm_across_begin(s));
    const symmResult_t r = run_all(s, m, n);
    symm_across_leave(s);
    return r;
}

/* Those of several streams are given to one of these. */
static void put_on(symm_message *m, int n, symmStream_t stream) {
    for (int i = 0; i < n; i++) m[i].stream = stream;
}

static symmResult_t run_host(symm_across *s, symm_comm *c, queued *q, int streams) {
    symmStream_t lead = symm_streams_lead(c, q->streams, streams);
    if (streams > 1) SYMM_TRY(symm_streams_gather(c, lead, q->streams, streams, NULL, NULL));
    put_on(q->m, q->n, NULL);
    SYMM_TRY(lead ? give(s, lead, q->m, q->n) : run_now(s, q->m, q->n));
    return symm_streams_scatter(c, lead, q->streams, streams, NULL);
}

static symmResult_t gather_and_run(symm_across *s, symm_comm *c, queued *q, int streams,
                                   symm_gpu_capture *in, symm_mark *m) {
    symmStream_t lead = symm_streams_lead(c, q->streams, streams);
    SYMM_TRY(symm_launch_look(c, lead, in));
    SYMM_TRY(symm_streams_gather(c, lead, q->streams, streams, in, m));
    put_on(q->m, q->n, lead);
    SYMM_TRY(run_all(s, q->m, q->n));
    return symm_streams_scatter(c, lead, q->streams, streams, m);
}

/* What is refused on this rank alone is the end for all, as the others wait; of a captured call
 * nothing has run. */
static symmResult_t run_gpu(symm_across *s, symm_comm *c, queued *q, int streams) {
    symm_cuda_scope scope;
    symm_gpu_capture in = {NULL, 0};
    symm_mark m = {.seq = 0};
    SYMM_TRY(symm_across_begin(s));
    symmResult_t r = symm_gpu_enter(c, &scope);
    if (!r) {
        r = gather_and_run(s, c, q, streams, &in, &m);
        symm_gpu_leave(&scope);
    }
    if (m.event) symm_mark_end(c, &m);
    if (r && !in.graph) r = symm_across_fail(s, r);
    symm_across_leave(s);
    return r;
}

static symmResult_t run_queued(void *args) {
    queued *q = args;
    symm_across *s;
    symm_comm *c;
    SYMM_TRY(symm_across_get(q->comm, &s));
    symmResult_t r = symm_comm_visit(s->outer.inner, &c);
    if (!r) {
        const int streams = symm_message_streams(q->m, q->n, q->streams);
        if (!s->gpu)
            r = run_host(s, c, q, streams);
        else
            r = streams > 1 ? run_gpu(s, c, q, streams) : run_now(s, q->m, q->n);
        symm_comm_unvisit(c);
    }
    symm_outer_put(q->comm);
    return r;
}

static void drop_queued(void *args) {
    queued *q = args;
    free(q->m);
    free(q->streams);
}

static symmResult_t tell_queued(const void *args, symm_job_tale *t) {
    const queued *q = args;
    symm_across *s;
    int inside = 0, sends = 0;
    SYMM_TRY(symm_across_get(q->comm, &s));
    for (int i = 0; i < q->n; i++) inside += is_inside(s, &q->m[i]), sends += q->m[i].sends;
    *t = (symm_job_tale){.calls = q->n, .messages = q->n, .kernels = inside > 0};
    snprintf(t->text, sizeof t->text,
             "communicator %s, rank %d: %d sends and %d receives, of which %d inside the domain",
             s->outer.name, s->map.rank, sends, q->n - sends, inside);
    symm_outer_put(q->comm);
    return symmSuccess;
}

static const symm_job_row queued_row = {
    .run = run_queued, .tell = tell_queued, .drop = drop_queued};

static symmResult_t make_room(queued *q) {
    const int room = q->room ? 2 * q->room : 16;
    symm_message *m = SYMM_FAIL_ALLOC(across_queue, realloc(q->m, (size_t)room * sizeof *m));
    if (m) q->m = m;
    symmStream_t *streams =
        SYMM_FAIL_ALLOC(across_queue, realloc(q->streams, (size_t)room * sizeof *streams));
    if (streams) q->streams = streams;
    if (!m || !streams) return SYMM_ERR(symmOutOfMemory, "no memory to queue a call in a group");
    q->room = room;
    return symmSuccess;
}

static symmResult_t queue(symm_across *s, const symm_message *m) {
    void *at;
    symmStream_t later = s->gpu ? NULL : m->stream;
    SYMM_TRY(symm_across_may_queue(s, later));
    SYMM_TRY(symm_group_behind(s->outer.inner, symm_across_job_kind(later), &queued_row,
                               sizeof(queued), &at));
    queued *q = at;
    q->comm = s->outer.handle;
    if (q->n == q->room) SYMM_TRY(make_room(q));
    SYMM_ASSERT(q->n < q->room && q->streams);
    q->m[q->n++] = *m;
    return symmSuccess;
}

/* ---- the call -------------------------------------------------------------------------------- */

static symmResult_t message_now(symm_across *s, const symm_message *m) {
    return m->stream && !s->gpu ? give(s, m->stream, m, 1) : run_now(s, m, 1);
}

symmResult_t symm_across_message(symm_outer *o, const symm_message *m) {
    symm_across *s = (symm_across *)o;
    uint64_t bytes;
    symmResult_t r = symm_message_check(m, s->map.nranks, &bytes);
    if (!r) r = symm_across_check_stream(s, symm_message_name(m), m->stream);
    if (!r && s->gpu && bytes)
        r = symm_across_gpu_reaches(s, m->sends ? m->buff : NULL, m->sends ? NULL : m->buff);
    if (!r) r = symm_group_open() ? queue(s, m) : message_now(s, m);
    return r ? symm_group_refuse(r) : symmSuccess;
}
