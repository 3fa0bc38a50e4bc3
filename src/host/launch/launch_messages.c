/* launch_messages.c - sends and receives on the host backend: a list runs in the caller's thread
 * (NULL stream), on a stream's worker, or in a replay of its graph. The communicator's user thread;
 * run_task and the functions that a graph calls: any thread. No lock. A list of several calls that
 * does not run at once is copied. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "host/comm/call_log.h"
#include "host/comm/comm.h"
#include "host/gpu/hold.h"
#include "host/window/window.h"
#include "launch.h"

/* A list that waits for its turn, or that a graph replays. */
typedef struct {
    _Atomic int refs;
    int captured; /* the communicator and the windows are held */
    symm_comm *comm;
    _Atomic uint64_t ends; /* of mappings, relaxed: a hint that nothing has ended since */
    symm_p2p_list list;
    symm_lived *pieces; /* captured: of the windows under the buffers */
    int npieces;
} kept_list;

typedef struct {
    symm_comm *comm;
    kept_list *kept; /* NULL: the one call is here */
    const symm_args *args;
    symm_p2p_op op;
} task;

/* ---- running --------------------------------------------------------------------------------- */

static void reason(symm_comm *c, const symm_p2p_outcome *o, char *text, size_t cap) {
    if (o->left.code == symmInvalidUsage)
        snprintf(text, cap, "a message of rank %d to itself has no other call that could end it",
                 c->rank);
    else
        symm_comm_reason(c, (symmResult_t)o->left.code, o->left.rank, text, cap);
}

static symmResult_t report(symm_comm *c, const symm_p2p_outcome *o) {
    char text[SYMM_ERR_TEXT], why[SYMM_ERR_TEXT - 160], call[120];
    symm_message_text(o->op->sends, o->op->count, o->op->type, o->op->peer, call, sizeof call);
    const symmResult_t known = symm_comm_async(c); /* the watcher or an abort has said it better */
    if (known) {
        snprintf(text, sizeof text, "%.320s (rank %d in %s)", symm_status_text(), c->rank, call);
        symm_status_adopt(text);
        return known;
    }
    reason(c, o, why, sizeof why);
    snprintf(text, sizeof text, "%s (rank %d in %s)", why, c->rank, call);
    symm_comm_fail(c, (symmResult_t)o->left.code, o->left.rank, text);
    return SYMM_ERR((symmResult_t)o->left.code, "communicator %s: %s", c->name, text);
}

static symmResult_t run(symm_comm *c, const symm_p2p_list *list) {
    symm_p2p_outcome out;
    symm_p2p_run(list->args, list->ops, list->channels, list->nchannels, &out);
    return __builtin_expect(out.left.code != 0, 0) ? report(c, &out) : symmSuccess;
}

/* ---- lists that are kept --------------------------------------------------------------------- */

static void retain_list(void *p) {
    atomic_fetch_add_explicit(&((kept_list *)p)->refs, 1, memory_order_relaxed);
}

static void release_list(void *p) {
    kept_list *k = p;
    /* Acquire and release: whoever frees comes after every replay. */
    if (atomic_fetch_sub_explicit(&k->refs, 1, memory_order_acq_rel) != 1) return;
    for (int i = 0; k->captured && i < k->list.n; i++)
        if (k->list.wins[i]) symm_window_unref(k->list.wins[i]);
    if (k->captured) symm_comm_unref(k->comm);
    free(k);
}

static const symm_graph_user held = {.retain = retain_list, .release = release_list};

static int count_pieces(const symm_p2p_list *l, symm_lived *out) {
    int n = 0;
    for (int i = 0; i < l->n; i++)
        if (l->wins[i])
            n += symm_window_pieces(l->wins[i], l->ops[i].buff, l->ops[i].bytes,
                                    out ? out + n : NULL);
    return n;
}

/* A copy, with one reference. captured: it holds what a replay needs. NULL: no memory. */
static kept_list *keep_list(symm_comm *c, const symm_p2p_list *l, int captured) {
    const int n = captured ? count_pieces(l, NULL) : 0;
    const size_t ops = (size_t)l->n * sizeof *l->ops,
                 channels = (size_t)l->nchannels * sizeof *l->channels,
                 wins = (size_t)l->n * sizeof *l->wins, pieces = (size_t)n * sizeof(symm_lived);
    kept_list *k =
        SYMM_FAIL_ALLOC(p2p_keep, malloc(sizeof *k + ops + channels + wins + pieces));
    if (!k) return NULL;
    char *at = (char *)(k + 1);
    *k = (kept_list){.refs = 1, .captured = captured, .comm = c, .list = *l, .npieces = n};
    k->list.ops = memcpy(at, l->ops, ops);
    k->list.channels = memcpy(at + ops, l->channels, channels);
    k->list.wins = memcpy(at + ops + channels, l->wins, wins);
    k->pieces = (symm_lived *)(void *)(at + ops + channels + wins);
    if (!captured) return k;
    count_pieces(l, k->pieces);
    symm_comm_ref(c);
    for (int i = 0; i < l->n; i++)
        if (l->wins[i]) symm_window_ref(l->wins[i]);
    return k;
}

/* 1 if the memory under the buffers is still what it was captured with. */
static int lives(kept_list *k) {
    const uint64_t ends = symm_vmm_ended();
    if (atomic_load_explicit(&k->ends, memory_order_relaxed) == ends) return 1;
    for (int i = 0; i < k->npieces; i++)
        if (k->comm->vmm->life((const void *)(uintptr_t)k->pieces[i].lo) != k->pieces[i].life)
            return 0;
    atomic_store_explicit(&k->ends, ends, memory_order_relaxed);
    return 1;
}

static symmResult_t run_kept(kept_list *k) {
    if (!k->captured || lives(k)) return run(k->comm, &k->list);
    const symmResult_t r =
        SYMM_ERR(symmInvalidUsage, "captured sends and receives are replayed, but memory under the "
                                   "window of one of their buffers has ended (freed since?)");
    /* The peers would wait for its messages. */
    symm_comm_break(k->comm, r, k->comm->rank, "replaying captured sends and receives");
    return r;
}

/* Runs on a worker or in a replay. */
static symmResult_t run_task(void *p) {
    task *t = p;
    symm_p2p_channel channel = {.first = 0};
    const symm_p2p_list one = {t->args, &t->op, NULL, &channel, 1, 1};
    const int captured = t->kept && t->kept->captured;
    symmResult_t r = symm_launch_may_run(t->comm);
    if (!r) r = t->kept ? run_kept(t->kept) : run(t->comm, &one);
    if (t->kept && !captured) release_list(t->kept);
    return r;
}

/* ---- order among the streams of a group ------------------------------------------------------ */

/* Whether both are recorded into one capture, or neither is. */
static symmResult_t check_together(symmStream_t a, symmStream_t b) {
    uint64_t ia = 0, ib = 0;
    if (symm_stream_capture(a, &ia) < 1) ia = 0;
    if (symm_stream_capture(b, &ib) < 1) ib = 0;
    if (ia == ib) return symmSuccess;
    return SYMM_ERR(symmInvalidUsage,
                    "sends and receives of one group are on streams %p and %p, which are not "
                    "recorded into the same capture",
                    (void *)a, (void *)b);
}

/* What `stream` is given next comes behind what `last` has. */
static symmResult_t follow(symmStream_t stream, symmStream_t last) {
    symm_order point;
    if (symm_stream_capturing(last)) return symm_stream_follow_captured(stream, last);
    symm_order_take(last, &point);
    return symm_order_wait(stream, point);
}

/* The list runs on one of the streams: NULL if that is among them, as its work ends in the call. */
static symmStream_t lead_of(const symmStream_t *streams, int n) {
    for (int i = 0; i < n; i++)
        if (!streams[i]) return NULL;
    return streams[0];
}

static symmResult_t gather(symmStream_t lead, const symmStream_t *streams, int n) {
    for (int i = 0; i < n; i++)
        if (streams[i] != lead) SYMM_TRY(check_together(lead, streams[i]));
    for (int i = 0; i < n; i++)
        if (streams[i] != lead) SYMM_TRY(follow(lead, streams[i]));
    return symmSuccess;
}

static symmResult_t scatter(symmStream_t lead, const symmStream_t *streams, int n) {
    for (int i = 0; lead && i < n; i++)
        if (streams[i] != lead) SYMM_TRY(follow(streams[i], lead));
    return symmSuccess;
}

/* ---- launching ------------------------------------------------------------------------------- */

static symmResult_t hold(symm_comm *c, kept_list *k, symmStream_t stream) {
    SYMM_TRY(symm_graph_hold(c, NULL, stream, c, &symm_launch_replayed));
    return symm_graph_hold(c, NULL, stream, k, &held);
}

static void observe(symm_comm *c, symmStream_t stream, int captured) {
    if (c->order.observer) c->order.observer->called(c, stream, 0, captured);
}

static symmResult_t capture(symm_comm *c, const symm_p2p_list *list, symmStream_t stream) {
    uint64_t id = 0;
    SYMM_TRY(symm_launch_may_capture(c, stream));
    (void)symm_stream_capture(stream, &id); /* 0: another thread has ended it; `record` will say */
    SYMM_TRY(symm_captured_follow(c, id, stream));
    task t = {.comm = c, .kept = keep_list(c, list, 1)};
    symmResult_t r = t.kept ? hold(c, t.kept, stream) : symmOutOfMemory;
    if (r == symmOutOfMemory) {
        r = SYMM_ERR(r, "no memory to capture sends and receives; the capture is lost");
        symm_stream_lose_capture(stream);
    }
    if (!r) r = symm_stream_record(stream, run_task, &t, sizeof t);
    if (t.kept) release_list(t.kept);
    if (!r) r = symm_captured_given(c, id, stream);
    if (!r) observe(c, stream, 1);
    return r;
}

static symmResult_t give(symm_comm *c, const symm_p2p_list *list, symmStream_t stream) {
    task t = {.comm = c, .args = list->args, .op = list->ops[0]};
    _Static_assert(sizeof t <= SYMM_TASK_BYTES, "a call fits a task");
    if (list->n > 1 && !(t.kept = keep_list(c, list, 0)))
        return SYMM_ERR(symmOutOfMemory, "no memory for %d sends and receives on a stream",
                        list->n);
    const symmResult_t r = symm_stream_submit(stream, run_task, &t, sizeof t);
    if (r && t.kept) release_list(t.kept);
    if (r) return r;
    observe(c, stream, 0);
    return symm_launch_given(c, stream);
}

static symmResult_t launch(symm_comm *c, const symm_p2p_list *list, symmStream_t stream) {
    if (stream && symm_stream_capturing(stream)) return capture(c, list, stream);
    SYMM_TRY(symm_launch_follow(c, stream));
    if (stream) return give(c, list, stream);
    SYMM_TRY(run(c, list));
    observe(c, NULL, 0);
    return symmSuccess;
}

symmResult_t symm_launch_messages(symm_comm *c, const symm_p2p_list *list,
                                  const symmStream_t *streams, int nstreams) {
    const symmStream_t lead = lead_of(streams, nstreams);
    if (lead) SYMM_TRY(symm_stream_check(lead));
    if (nstreams > 1) SYMM_TRY(gather(lead, streams, nstreams));
    SYMM_TRY(launch(c, list, lead));
    return nstreams > 1 ? scatter(lead, streams, nstreams) : symmSuccess;
}
