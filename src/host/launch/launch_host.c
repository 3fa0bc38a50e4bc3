/* launch_host.c - the host backend's launcher: a kernel runs in the caller's thread (NULL
 * stream), on the stream's worker, or in a replay of its graph. The communicator's user thread;
 * run_task and the functions that a graph calls: any thread. No lock. Only a capture allocates. */
#include <errno.h>
#include <stdio.h>

#include "host/comm/call_log.h"
#include "host/comm/comm.h"
#include "host/comm/group.h"
#include "host/gpu/hold.h"
#include "machine/peer_memory.h"
#include "keep.h"
#include "launch.h"

typedef struct {
    symm_comm *comm;
    symm_keep *kept; /* of a captured call */
    symm_kernel_id kernel;
    symm_args args;
} task;

/* Memory of a peer that should have been there. */
static void unreachable(const symm_outcome *o, char *text, size_t cap) {
    if (o->code == symmRemoteError)
        snprintf(text, cap, "rank %d died: its process is gone", o->rank);
    else if (o->mine)
        snprintf(text, cap, "a buffer of rank %d, which it passed itself, cannot be accessed",
                 o->rank);
    else
        snprintf(text, cap, "a buffer of rank %d cannot be accessed at %#llx: %s", o->rank,
                 (unsigned long long)o->at,
                 o->err == EFAULT ? "no memory is there (freed during the call?)"
                                  : symm_peer_why(o->err));
}

static symmResult_t report(symm_comm *c, const symm_outcome *o) {
    char text[SYMM_ERR_TEXT], why[SYMM_ERR_TEXT - 80];
    symmResult_t known = symm_comm_async(c); /* the watcher or an abort has said it better */
    if (known) return known;
    if (o->stage == SYMM_STAGE_DIRECT)
        unreachable(o, why, sizeof why);
    else
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

/* Runs on a worker or in a replay. */
static symmResult_t run_task(void *p) {
    task *t = p;
    if (symm_comm_state(t->comm) == SYMM_COMM_FINAL)
        return SYMM_ERR(symmInvalidUsage,
                        "a captured call is replayed after its communicator %s was destroyed",
                        t->comm->name);
    SYMM_TRY(symm_comm_told(t->comm)); /* it may have waited in its stream for long */
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

static void retain_comm(void *c) {
    symm_comm_ref(c);
}
static void release_comm(void *c) {
    symm_comm_unref(c);
}

static void launch_ended(void *p) {
    /* Pairs with the acquire of await_replays in drain.c: whoever waited sees what the replay
     * wrote. */
    atomic_fetch_sub_explicit(&((symm_comm *)p)->order.replays, 1, memory_order_release);
}

static symmResult_t may_launch(void *p) {
    const symm_comm *c = p;
    if (symm_comm_state(c) != SYMM_COMM_FINAL) return symmSuccess;
    return SYMM_ERR(symmInvalidUsage,
                    "a graph that holds calls of communicator %s is launched after that was "
                    "destroyed",
                    c->name);
}

/* Counted before `state` is read: if another thread destroys the communicator meanwhile, either it
 * waits for this launch, or the launch is refused here or in run_task. */
static symmResult_t launch_begins(void *c) {
    atomic_fetch_add(&((symm_comm *)c)->order.replays, 1);
    symmResult_t r = may_launch(c);
    if (r) launch_ended(c);
    return r;
}

static const symm_graph_user replayed = {.retain = retain_comm,
                                         .release = release_comm,
                                         .begin = launch_begins,
                                         .end = launch_ended,
                                         .allow = may_launch};

/* The graph tells the communicator of its launches, and keeps what the call uses. */
static symmResult_t hold_call(const symm_launch *l, symmStream_t stream, symm_keep *k) {
    SYMM_TRY(symm_graph_hold(l->comm, NULL, stream, l->comm, &replayed));
    return symm_graph_hold(l->comm, NULL, stream, k, &symm_keep_held);
}

static symmResult_t capture(const symm_launch *l, task *t, symmStream_t stream) {
    uint64_t id = 0;
    SYMM_TRY(symm_launch_may_capture(l->comm, stream));
    (void)symm_stream_capture(stream, &id); /* 0: another thread has ended it; `record` will say */
    SYMM_TRY(symm_captured_follow(l->comm, id, stream));
    symm_keep *k = t->kept = symm_keep_new(l);
    symmResult_t r = k ? hold_call(l, stream, k) : symmOutOfMemory;
    if (r == symmOutOfMemory) {
        r = SYMM_ERR(r, "no memory to capture a collective; the capture is lost");
        symm_stream_lose_capture(stream);
    }
    if (!r) r = symm_stream_record(stream, run_task, t, sizeof *t);
    if (k) symm_keep_release(k);
    if (!r) r = symm_captured_given(l->comm, id, stream);
    if (r) return r;
    symm_doing_capture(l->comm);
    symm_launch_done(l->comm, l, stream, 1);
    return symmSuccess;
}

static symmResult_t give(symm_comm *c, const symm_launch *l, symmStream_t stream) {
    task t = {c, NULL, l->plan.kernel, l->args};
    _Static_assert(sizeof t <= SYMM_TASK_BYTES, "a launch fits a task");
    if (symm_stream_capturing(stream)) return capture(l, &t, stream);
    symm_doing_begin(c, &l->call);
    symmResult_t r = symm_stream_submit(stream, run_task, &t, sizeof t);
    if (r) {
        symm_doing_undo(c);
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
    symm_doing_begin(c, &l->call);
    SYMM_TRY(run_kernel(c, l->plan.kernel, &l->args)); /* a failure ends the communicator */
    symm_launch_done(c, l, stream, 0);
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

const symm_launcher symm_launch_host = {launch, check_stream, check_buffer, job};
