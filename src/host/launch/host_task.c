/* host_task.c - what calls of the host backend share on their way to a stream or a graph: whether
 * they may run, how they are captured, what happens behind them, and what becomes of a kernel that
 * had to leave. The communicator's user thread; symm_launch_may_run, symm_launch_begins and _ended,
 * symm_host_task_left and the functions that a graph calls: any thread. No lock. */
#include <errno.h>
#include <stdio.h>

#include "base/check.h"
#include "host/comm/comm.h"
#include "machine/peer_memory.h"
#include "launch.h"

/* ---- replays --------------------------------------------------------------------------------- */

symmResult_t symm_launch_may_run(symm_comm *c) {
    if (symm_comm_state(c) == SYMM_COMM_FINAL)
        return SYMM_ERR(symmInvalidUsage,
                        "a captured call is replayed after its communicator %s was destroyed",
                        c->name);
    return symm_comm_used(c); /* it may have waited in its stream for long */
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

/* Kernels of the program that the calling thread is in. */
static _Thread_local int kernels_here;

int symm_launch_inside(void) {
    return kernels_here;
}

/* The same of a kernel of the program, which any of its threads may run. */
symmResult_t symm_launch_begins(symm_comm *c) {
    atomic_fetch_add(&c->order.replays, 1);
    symmResult_t r = symmSuccess;
    if (symm_comm_state(c) == SYMM_COMM_FINAL)
        r = SYMM_ERR(symmInvalidUsage, "a kernel begins after its communicator %s was destroyed",
                     c->name);
    if (!r) r = symm_comm_used(c);
    if (r)
        launch_ended(c);
    else
        kernels_here++;
    return r;
}
void symm_launch_ended(symm_comm *c) {
    SYMM_ASSERT(atomic_load_explicit(&c->order.replays, memory_order_relaxed) > 0);
    SYMM_ASSERT(kernels_here > 0); /* the thread that began */
    kernels_here--;
    launch_ended(c);
}

const symm_graph_user symm_launch_replayed = {.retain = retain_comm,
                                              .release = release_comm,
                                              .begin = launch_begins,
                                              .end = launch_ended,
                                              .allow = may_launch};

/* ---- calls ----------------------------------------------------------------------------------- */

static symmResult_t hold(symm_comm *c, const symm_host_task *t, symmStream_t stream) {
    SYMM_TRY(symm_graph_hold(c, NULL, stream, c, &symm_launch_replayed));
    return symm_graph_hold(c, NULL, stream, t->kept, t->held);
}

static void observe(symm_comm *c, symmStream_t stream, int hears, int captured) {
    if (c->order.observer) c->order.observer->called(c, stream, hears, captured);
}

symmResult_t symm_host_task_capture(symm_comm *c, const symm_host_task *t, symmStream_t stream) {
    uint64_t id = 0;
    SYMM_ASSERT(stream && t->bytes <= SYMM_TASK_BYTES && t->fn);
    SYMM_TRY(symm_launch_may_capture(c, stream));
    (void)symm_stream_capture(stream, &id); /* 0: another thread has ended it; `record` will say */
    SYMM_TRY(symm_captured_follow(c, id, stream));
    symmResult_t r = t->kept ? hold(c, t, stream) : symmOutOfMemory;
    if (r == symmOutOfMemory) {
        r = SYMM_ERR(r, "no memory to capture %s; the capture is lost", t->what);
        symm_stream_lose_capture(stream);
    }
    if (!r) r = symm_stream_record(stream, t->fn, t->args, t->bytes);
    if (!r) r = symm_captured_given(c, id, stream);
    if (!r) observe(c, stream, t->hears, 1);
    return r;
}

symmResult_t symm_host_task_given(symm_comm *c, symmStream_t stream) {
    observe(c, stream, 0, 0);
    return stream ? symm_launch_given(c, stream) : symmSuccess;
}

void symm_host_task_unreachable(const symm_outcome *o, char *text, size_t cap) {
    if (o->code == symmRemoteError)
        SYMM_SAY(text, cap, "rank %d died: its process is gone", o->rank);
    else if (o->mine)
        SYMM_SAY(text, cap, "a buffer of rank %d, which it passed itself, cannot be accessed",
                 o->rank);
    else
        SYMM_SAY(text, cap, "a buffer of rank %d cannot be accessed at %#llx: %s", o->rank,
                 (unsigned long long)o->at,
                 o->err == EFAULT
                     ? "no memory is there that peers reach (freed, read-only, or of a device?)"
                     : symm_peer_why(o->err));
}

symmResult_t symm_host_task_left(symm_comm *c, const symm_outcome *left, const char *call,
                                 const char *alone) {
    char text[SYMM_ERR_TEXT], why[SYMM_ERR_TEXT - 160];
    const symmResult_t code = (symmResult_t)left->code;
    SYMM_ASSERT(code != symmSuccess);
    const symmResult_t known = symm_comm_async(c); /* the watcher or an abort has said it better */
    if (known) {
        SYMM_SAY(text, sizeof text, "%.320s (rank %d in %s)", symm_status_text(), c->rank, call);
        symm_status_adopt(text);
        return known;
    }
    if (left->stage == SYMM_STAGE_DIRECT && left->err)
        symm_host_task_unreachable(left, why, sizeof why);
    else if (code == symmInvalidUsage)
        SYMM_SAY(why, sizeof why, "%s", alone);
    else
        symm_comm_reason(c, code, left->rank, why, sizeof why);
    SYMM_SAY(text, sizeof text, "%s (rank %d in %s)", why, c->rank, call);
    symm_comm_fail(c, code, left->rank, text);
    return SYMM_ERR(code, "communicator %s: %s", c->name, text);
}
