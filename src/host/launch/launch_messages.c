/* launch_messages.c - sends and receives on the host backend: a list runs in the caller's thread
 * (NULL stream), on a stream's worker, or in a replay of its graph. The communicator's user thread;
 * run_task and the functions that a graph calls: any thread. No lock. A list of several calls that
 * does not run at once is copied. */
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "host/comm/call_log.h"
#include "host/comm/comm.h"
#include "host/gpu/hold.h"
#include "host/window/window.h"
#include "keep.h"
#include "launch.h"

typedef struct {
    symm_comm *comm;
    symm_kept_list *held; /* captured */
    symm_p2p_list *list;  /* NULL: the one call is here */
    const symm_args *args;
    symm_p2p_op op;
} task;

/* ---- running --------------------------------------------------------------------------------- */

static symmResult_t report(symm_comm *c, const symm_p2p_outcome *o) {
    char call[120], alone[120];
    SYMM_ASSERT(o->op);
    symm_message_text(o->op->sends, o->op->count, o->op->type, o->op->peer, call, sizeof call);
    symm_message_alone(c->rank, alone, sizeof alone);
    return symm_host_task_left(c, &o->left, call, alone);
}

static symmResult_t run(symm_comm *c, const symm_p2p_list *list) {
    symm_p2p_outcome out;
    SYMM_ASSERT(list->n > 0 && list->nchannels > 0 && list->args->rank == c->rank);
    symm_p2p_run(list->args, list->ops, list->channels, list->nchannels, &out);
    return __builtin_expect(out.left.code != 0, 0) ? report(c, &out) : symmSuccess;
}

/* ---- replays --------------------------------------------------------------------------------- */

static symmResult_t check_held(symm_comm *c, symm_kept_list *h) {
    if (!h || symm_kept_list_lives(h)) return symmSuccess;
    const symmResult_t r =
        SYMM_ERR(symmInvalidUsage, "captured sends and receives are replayed, but memory under the "
                                   "window of one of their buffers has ended (freed since?)");
    /* The peers would wait for its messages. */
    symm_comm_break(c, r, c->rank, "replaying captured sends and receives");
    return r;
}

/* Runs on a worker or in a replay. */
static symmResult_t run_task(void *p) {
    task *t = p;
    symm_p2p_channel channel = {.first = 0};
    const symm_p2p_list one = {t->args, &t->op, NULL, &channel, 1, 1, 0};
    symmResult_t r = symm_launch_may_run(t->comm);
    if (!r) r = check_held(t->comm, t->held);
    if (!r) r = run(t->comm, t->list ? t->list : &one);
    if (t->list && !t->held) symm_p2p_list_unref(t->list);
    return r;
}

/* ---- launching ------------------------------------------------------------------------------- */

static task make_task(symm_comm *c, symm_p2p_list *l) {
    SYMM_ASSERT(l->refs ? l->refs > 0 : l->n == 1);
    return (task){.comm = c, .list = l->refs ? l : NULL, .args = l->args, .op = l->ops[0]};
}

static symmResult_t capture(symm_comm *c, symm_p2p_list *list, symmStream_t stream) {
    task t = make_task(c, list);
    _Static_assert(sizeof t <= SYMM_TASK_BYTES, "a call fits a task");
    t.held = symm_kept_list_new(c, list);
    const symm_host_task job = {.fn = run_task,
                                .args = &t,
                                .bytes = sizeof t,
                                .what = "sends and receives",
                                .kept = t.held,
                                .held = &symm_kept_list_held};
    const symmResult_t r = symm_host_task_capture(c, &job, stream);
    if (t.held) symm_kept_list_release(t.held);
    return r;
}

static symmResult_t give(symm_comm *c, symm_p2p_list *list, symmStream_t stream) {
    const task t = make_task(c, list);
    if (t.list) symm_p2p_list_ref(t.list);
    const symmResult_t r = symm_stream_run(stream, run_task, &t, sizeof t);
    if (r && t.list) symm_p2p_list_unref(t.list);
    return r ? r : symm_host_task_given(c, stream);
}

static symmResult_t launch(symm_comm *c, symm_p2p_list *list, symmStream_t stream) {
    if (stream && symm_stream_capturing(stream)) return capture(c, list, stream);
    SYMM_TRY(symm_launch_follow(c, stream));
    if (stream) return give(c, list, stream);
    SYMM_TRY(run(c, list));
    return symm_host_task_given(c, NULL);
}

symmResult_t symm_launch_messages(symm_comm *c, symm_p2p_list *list, const symmStream_t *streams,
                                  int nstreams) {
    const symmStream_t lead = symm_streams_lead(c, streams, nstreams);
    SYMM_ASSERT(nstreams > 0 && nstreams <= list->n);
    if (lead) SYMM_TRY(symm_stream_check(lead));
    if (nstreams == 1) return launch(c, list, lead);
    SYMM_TRY(symm_streams_gather(c, lead, streams, nstreams, NULL, NULL));
    SYMM_TRY(launch(c, list, lead));
    return symm_streams_scatter(c, lead, streams, nstreams, NULL);
}
