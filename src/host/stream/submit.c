/* submit.c - giving work to a stream: a task or a graph is queued on the stream's worker, recorded
 * into the capture that the stream is part of, or run by the caller (NULL stream). Any thread.
 * Locks: those of what it calls, and the graph's, over the choice of a replay's turn. */
#include <string.h>

#include "stream_int.h"

/* ---- tasks ----------------------------------------------------------------------------------- */

/* EITHER: as the stream stands. RECORDED: not outside a capture. RUN: given before any capture. */
enum fate { EITHER, RECORDED, RUN };

static symmResult_t submit(struct symm_stream *s, enum fate fate, symm_task_fn fn, const void *args,
                           size_t bytes) {
    symmResult_t status;
    if (fate != RUN && atomic_load_explicit(&s->capture, memory_order_relaxed)) {
        struct symm_step step = {.lane = 0};
        step.task.fn = fn;
        step.task.bytes = bytes;
        if (bytes) memcpy(step.task.args, args, bytes);
        if (symm_capture_record(s, &step, &status)) return status;
    }
    if (fate != RECORDED) return symm_stream_push(s, fn, args, bytes);
    return SYMM_ERR(symmInvalidUsage, "another thread ended the capture of stream %p meanwhile",
                    (void *)s->handle);
}

static symmResult_t pin_and_submit(symmStream_t s, enum fate fate, symm_task_fn fn,
                                   const void *args, size_t bytes) {
    struct symm_stream *stream = NULL;
    if (bytes > SYMM_TASK_BYTES)
        return SYMM_ERR(symmInvalidArgument, "a task of %zu bytes: at most %d fit", bytes,
                        SYMM_TASK_BYTES);
    SYMM_TRY(symm_stream_pin(s, &stream));
    symmResult_t status = submit(stream, fate, fn, args, bytes);
    symm_stream_unpin(stream);
    return status;
}

symmResult_t symm_stream_submit(symmStream_t s, symm_task_fn fn, const void *args, size_t bytes) {
    if (!s) return fn((void *)args);
    return pin_and_submit(s, EITHER, fn, args, bytes);
}

symmResult_t symm_stream_record(symmStream_t s, symm_task_fn fn, const void *args, size_t bytes) {
    return pin_and_submit(s, RECORDED, fn, args, bytes);
}

symmResult_t symm_stream_run(symmStream_t s, symm_task_fn fn, const void *args, size_t bytes) {
    return pin_and_submit(s, RUN, fn, args, bytes);
}

struct host_call {
    void (*fn)(void *);
    void *arg;
};

static symmResult_t call_host(void *args) {
    struct host_call *call = args;
    call->fn(call->arg);
    return symmSuccess;
}

symmResult_t symmStreamHostFunc(symmStream_t stream, void (*fn)(void *), void *arg) {
    struct host_call call = {fn, arg};
    if (!fn) return SYMM_ERR(symmInvalidArgument, "symmStreamHostFunc: fn is NULL");
    return symm_stream_submit(stream, call_host, &call, sizeof call);
}

/* ---- graphs ------------------------------------------------------------------------------- */

struct replay_task {
    struct symm_graph *graph;
    symmGraphExec_t exec; /* pinned */
    uint64_t ticket;
};

static void tell_end(const struct symm_graph *g, const struct symm_hold *upto) {
    for (const struct symm_hold *h = g->told; h != upto; h = h->next)
        if (h->user.end) h->user.end(h->obj);
}

/* All users are told, or none. No lock: the list of a sealed graph does not change. */
static symmResult_t tell_begin(const struct symm_graph *g) {
    for (const struct symm_hold *h = g->told; h; h = h->next) {
        symmResult_t status = h->user.begin(h->obj);
        if (status == symmSuccess) continue;
        tell_end(g, h);
        return status;
    }
    return symmSuccess;
}

static symmResult_t replay_task(void *args) {
    struct replay_task *t = args;
    symmResult_t status = symm_graph_replay(t->graph, t->ticket);
    tell_end(t->graph, NULL);
    symm_graph_unpin_exec(t->exec);
    return status;
}

/* Under the graph's lock. symmGraphExecDestroy closes the handle, then takes the lock, sets
 * `closed` and reads the tickets that it waits for. So a launch either has its ticket before that,
 * or finds the handle closed. Most graphs never have a closed executable: no look at the handle. */
static int is_open(const struct symm_graph *g, symmGraphExec_t exec) {
    return !g->closed || symm_handle_open(SYMM_KIND_EXEC, exec);
}

/* Ticket and place in the queue are taken under one lock: in a stream, an earlier ticket is never
 * behind a later one, so waiting for one's turn cannot hang. */
static symmResult_t launch_queued(symmGraphExec_t exec, struct symm_stream *s) {
    symmResult_t status;
    struct symm_graph *g = symm_handle_get(SYMM_KIND_EXEC, exec);
    struct replay_task task = {g, exec, 0};
    if (!g) return symm_graph_being_destroyed(exec);
    SYMM_TRY_GOTO(tell_begin(g), unpin);
    pthread_mutex_lock(&g->lock);
    task.ticket = g->tickets;
    status = is_open(g, exec) ? symm_stream_push(s, replay_task, &task, sizeof task)
                              : symm_graph_being_destroyed(exec);
    if (status == symmSuccess) g->tickets++;
    SYMM_CHECK(symm_graph_check(g, 0));
    pthread_mutex_unlock(&g->lock);
    if (status == symmSuccess) return symmSuccess;
    tell_end(g, NULL);
unpin:
    symm_graph_unpin_exec(exec);
    return status;
}

static symmResult_t launch_captured(struct symm_graph *g, symmGraphExec_t exec,
                                    struct symm_stream *s) {
    symmResult_t status;
    for (const struct symm_hold *h = g->told; h; h = h->next)
        if (h->user.allow) SYMM_TRY(h->user.allow(h->obj));
    pthread_mutex_lock(&g->lock);
    const int open = is_open(g, exec);
    if (open) g->copies++;
    pthread_mutex_unlock(&g->lock);
    if (!open) return symm_graph_being_destroyed(exec);
    int captured = symm_capture_copy(s, g, &status);
    pthread_mutex_lock(&g->lock);
    g->copies--;
    SYMM_CHECK(symm_graph_check(g, 0));
    pthread_cond_broadcast(&g->moved);
    pthread_mutex_unlock(&g->lock);
    return captured ? status : launch_queued(exec, s);
}

static symmResult_t replay_inline(struct symm_graph *g, symmGraphExec_t exec) {
    if (symm_graph_replays_here(g))
        return SYMM_ERR(symmInvalidUsage,
                        "symmGraphLaunch: exec=%p is launched from inside its own replay",
                        (void *)exec);
    pthread_mutex_lock(&g->lock);
    uint64_t ticket = g->tickets;
    symmResult_t status = symmSuccess;
    if (!is_open(g, exec))
        status = symm_graph_being_destroyed(exec);
    else if (g->serving != ticket)
        status = symm_stream_may_wait("symmGraphLaunch of a graph that is running");
    if (status == symmSuccess) g->tickets++;
    pthread_mutex_unlock(&g->lock);
    SYMM_TRY(status);
    return symm_graph_replay(g, ticket);
}

static symmResult_t launch_inline(struct symm_graph *g, symmGraphExec_t exec) {
    SYMM_TRY(tell_begin(g));
    symmResult_t status = replay_inline(g, exec);
    tell_end(g, NULL);
    return status;
}

static symmResult_t launch_on(struct symm_graph *g, symmGraphExec_t exec, symmStream_t stream) {
    struct symm_stream *s = NULL;
    SYMM_TRY(symm_stream_pin(stream, &s));
    int captured = atomic_load_explicit(&s->capture, memory_order_relaxed) != NULL;
    symmResult_t status = captured ? launch_captured(g, exec, s) : launch_queued(exec, s);
    symm_stream_unpin(s);
    return status;
}

symmResult_t symmGraphLaunch(symmGraphExec_t exec, symmStream_t stream) {
    struct symm_graph *g = NULL;
    SYMM_TRY(symm_graph_pin_exec("symmGraphLaunch", exec, &g));
    symmResult_t status = stream ? launch_on(g, exec, stream) : launch_inline(g, exec);
    symm_graph_unpin_exec(exec);
    return status;
}
