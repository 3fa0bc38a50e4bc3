/* launch_host.c - the host backend's launcher: a kernel runs in the caller's thread (NULL
 * stream), on the stream's worker, or in a replay of its graph. The communicator's user thread;
 * run_task and the functions that a graph calls: any thread. No lock. Only a capture allocates. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "host/coll/counts.h"
#include "host/comm/call_log.h"
#include "host/comm/comm.h"
#include "host/comm/group.h"
#include "keep.h"
#include "launch.h"

typedef struct {
    symm_comm *comm;
    symm_keep *kept;            /* of a captured call */
    symm_extent_block *extents; /* of another one with a count per rank; else NULL */
    symm_kernel_id kernel;
    symm_args args;
} task;

static symmResult_t report(symm_comm *c, const symm_outcome *o) {
    char text[SYMM_ERR_TEXT], why[SYMM_ERR_TEXT - 80];
    symmResult_t known = symm_comm_async(c); /* the watcher or an abort has said it better */
    if (known) return known;
    if (o->stage == SYMM_STAGE_DIRECT && o->err) /* else another rank has said why */
        symm_host_task_unreachable(o, why, sizeof why);
    else
        symm_comm_reason(c, (symmResult_t)o->code, o->rank, why, sizeof why);
    SYMM_SAY(text, sizeof text, "%s (collective %u, %s)", why, o->epoch, symm_stage_name(o->stage));
    symm_comm_fail(c, (symmResult_t)o->code, o->rank, text);
    return SYMM_ERR((symmResult_t)o->code, "communicator %s: %s", c->name, text);
}

static symmResult_t run_kernel(symm_comm *c, symm_kernel_id kernel, const symm_args *a) {
    symm_outcome out;
    symm_kernel_run(kernel, a, &out);
    return __builtin_expect(out.code != 0, 0) ? report(c, &out) : symmSuccess;
}

static symmResult_t run_now(task *t) {
    SYMM_TRY(symm_launch_may_run(t->comm));
    if (t->kept && !symm_keep_lives(t->kept)) {
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

/* Runs on a worker or in a replay. */
static symmResult_t run_task(void *p) {
    task *t = p;
    const symmResult_t r = run_now(t);
    if (t->extents) symm_extents_give(t->comm, t->extents);
    return r;
}

static symmResult_t capture(const symm_launch *l, task *t, symmStream_t stream) {
    symm_keep *k = t->kept = symm_keep_new(l);
    if (k) t->args.extents = symm_keep_extents(k);
    const symm_host_task job = {.fn = run_task,
                                .args = t,
                                .bytes = sizeof *t,
                                .what = "a collective",
                                .hears = symm_launch_hears(l),
                                .kept = k,
                                .held = &symm_keep_held};
    const symmResult_t r = symm_host_task_capture(l->comm, &job, stream);
    if (k) symm_keep_release(k);
    if (!r) symm_call_log_capture(l->comm);
    return r;
}

static symmResult_t give(symm_comm *c, const symm_launch *l, symmStream_t stream) {
    task t = {.comm = c, .kernel = l->plan.kernel, .args = l->args};
    _Static_assert(sizeof t <= SYMM_TASK_BYTES, "a launch fits a task");
    if (symm_stream_capturing(stream)) return capture(l, &t, stream);
    if (t.args.extents && !(t.extents = symm_extents_take(c, &t.args)))
        return SYMM_ERR(symmOutOfMemory, "no memory for the counts of a queued call");
    symm_call_log_begin(c, &l->call);
    symmResult_t r = symm_stream_run(stream, run_task, &t, sizeof t);
    if (r) {
        symm_call_log_undo(c);
        if (t.extents) symm_extents_give(c, t.extents);
        return r;
    }
    symm_launch_done(c, l, stream, 0);
    return symm_launch_given(c, stream);
}

static symmResult_t launch(symm_comm *c, const symm_launch *l, symmStream_t stream) {
    if (stream != c->order.eager.stream) {
        SYMM_TRY(symm_stream_check(stream));
        if (!symm_stream_capturing(stream)) SYMM_TRY(symm_launch_follow(c, stream));
    }
    if (stream) return give(c, l, stream);
    symm_call_log_begin(c, &l->call);
    SYMM_TRY(run_kernel(c, l->plan.kernel, &l->args)); /* a failure ends the communicator */
    symm_launch_done(c, l, stream, 0);
    return symmSuccess;
}

/* ---- lists ----------------------------------------------------------------------------------- */

/* The calls of a list that a stream was given as one task: its worker wakes up once. */
typedef struct {
    int n;
    task call[]; /* behind them their extents */
} batch;

/* Every call runs, as if each were a task; the first error counts. */
static symmResult_t run_batch(void *p) {
    batch *b = *(batch **)p;
    symmResult_t first = symmSuccess;
    for (int i = 0; i < b->n; i++) {
        const symmResult_t r = run_now(&b->call[i]);
        if (!first) first = r;
    }
    free(b);
    return first;
}

/* NULL: no memory. */
static batch *new_batch(symm_comm *c, const symm_launch *first) {
    size_t n = 0, uneven = 0, each = symm_extents_bytes(c->nranks);
    for (const symm_launch *l = first; l; l = l->next, n++) uneven += l->args.extents != NULL;
    batch *b =
        SYMM_FAIL_ALLOC(group_batch, malloc(sizeof *b + n * sizeof b->call[0] + uneven * each));
    if (!b) return NULL;
    char *extents = (char *)&b->call[n];
    b->n = 0;
    for (const symm_launch *l = first; l; l = l->next) {
        task *t = &b->call[b->n++];
        *t = (task){.comm = c, .kernel = l->plan.kernel, .args = l->args};
        if (!l->args.extents) continue;
        t->args.extents = memcpy(extents, l->args.extents, each);
        extents += each;
    }
    return b;
}

static symmResult_t give_batch(symm_comm *c, const symm_launch *first, batch *b,
                               symmStream_t stream) {
    for (const symm_launch *l = first; l; l = l->next) symm_call_log_begin(c, &l->call);
    symmResult_t r = symm_stream_run(stream, run_batch, &b, sizeof b);
    for (const symm_launch *l = first; l; l = l->next)
        if (r)
            symm_call_log_undo(c);
        else
            symm_launch_done(c, l, stream, 0);
    if (r) free(b);
    return r ? r : symm_launch_given(c, stream);
}

/* On the NULL stream a list saves nothing, and a capture records each call. Without memory for a
 * batch each call is a task. */
static symmResult_t launch_list(symm_comm *c, const symm_launch *first, symmStream_t stream) {
    const int one_task = stream && first->next && !symm_stream_capturing(stream);
    if (one_task && stream != c->order.eager.stream) {
        SYMM_TRY(symm_stream_check(stream));
        SYMM_TRY(symm_launch_follow(c, stream));
    }
    batch *b = one_task ? new_batch(c, first) : NULL;
    if (b) return give_batch(c, first, b, stream);
    for (const symm_launch *l = first; l; l = l->next) SYMM_TRY(launch(c, l, stream));
    return symmSuccess;
}

static symmResult_t check_stream(const symm_comm *c, symmStream_t stream) {
    (void)c;
    return symm_stream_check(stream);
}

/* Kernels of the host backend reach whatever this process does. */
static symmResult_t check_buffer(const symm_comm *c, const char *name, const void *p) {
    (void)c, (void)name, (void)p;
    return symmSuccess;
}

/* A kernel on the NULL stream runs in the call. */
static int job(symmStream_t stream) {
    return stream ? SYMM_JOB_STREAM : SYMM_JOB_BLOCKS;
}

const symm_launcher symm_launch_host = {launch,
                                        launch_list,
                                        check_stream,
                                        check_buffer,
                                        NULL,
                                        job,
                                        symm_launch_messages,
                                        symm_launch_tell_message,
                                        symm_launch_onesided,
                                        SYMM_ONESIDED_WAITS,
                                        symm_signals_unused,
                                        1};
