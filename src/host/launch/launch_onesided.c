/* launch_onesided.c - one-sided calls on the host backend: they run in the caller's thread (NULL
 * stream), on a stream's worker, or in a replay of their graph. The communicator's user thread;
 * run_task: any thread. No lock. Only a capture allocates.
 *
 * A signal is a word with the rank that waits, which one rank alone writes: how often it has raised
 * it, from 0, for ever. So it stores a count that it keeps itself, and the word need not be read
 * across. Nothing is acknowledged: who waits counts what it has used up (symm_signal_tally). */
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "device/common/signals.h"
#include "device/host/reduce.h"
#include "host/comm/call_log.h"
#include "host/comm/comm.h"
#include "host/window/window.h"
#include "keep.h"
#include "launch.h"

typedef struct {
    symm_comm *comm;
    symm_kept_list *held; /* captured */
    const symm_args *args;
    int n;
    symm_onesided op[SYMM_ONESIDED_WAITS];
} task;

/* ---- words ----------------------------------------------------------------------------------- */

/* How often `source` has raised the signal at rank `at`. */
static uint64_t *raised_at(const symm_comm *c, int at, int source, int signal) {
    return &symm_comm_ctl(c, at)->signals[source].raised[signal];
}
/* How often the peer has raised the signal of `op` here. */
static uint64_t *raised_here(const symm_comm *c, const symm_onesided *op) {
    return raised_at(c, c->rank, op->peer, op->signal);
}
static symm_signal_tally *tally(const symm_comm *c, const symm_onesided *op) {
    return symm_onesided_tally(c, op->peer, op->signal);
}

/* ---- running --------------------------------------------------------------------------------- */

int symm_onesided_copies(const symm_comm *c, const symm_onesided *op) {
    SYMM_ASSERT(op->kind == SYMM_ONESIDED_COPY);
    return op->to != op->from && op->bytes && !(op->put && symm_comm_said_left(c, op->peer));
}

static void copy(const symm_comm *c, const symm_onesided *op) {
    if (!symm_onesided_copies(c, op)) return;
    if (op->nt)
        symm_reduce->copy_nt(op->to, op->from, op->bytes);
    else
        symm_reduce->copy(op->to, op->from, op->bytes);
}

static void raise_signal(const symm_comm *c, const symm_onesided *op) {
    symm_signal_raise(raised_at(c, op->peer, c->rank, op->signal), ++tally(c, op)->raised);
}

/* Pairs with the acquire of symmSignalRead: who sees that the signals are used sees that they have
 * come. */
static void use(symm_signal_tally *t, uint64_t upto) {
    SYMM_ASSERT(upto >= atomic_load_explicit(&t->used, memory_order_relaxed));
    atomic_store_explicit(&t->used, upto, memory_order_release);
}
static uint64_t used(const symm_signal_tally *t) {
    return atomic_load_explicit(&t->used, memory_order_relaxed);
}

static void reset(const symm_comm *c, const symm_onesided *op) {
    use(tally(c, op), symm_signal_raised(raised_here(c, op)));
}

/* What was put before is there, before anything that this rank stores later: so a later signal to
 * another peer tells of it too. Copies past the caches are fenced where they are made. */
static void fence(void) {
#if defined(__SANITIZE_THREAD__)
    /* ThreadSanitizer knows no fences. What comes later on this thread is behind anyway. */
#else
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
#endif
}

static void note(uint64_t *at, uint64_t v) {
    __atomic_store_n(at, v, __ATOMIC_RELAXED); /* it is for people */
}
/* For symmCommDump and messages: what this rank waits in, and how many have come. */
static void note_wait(symm_comm *c, const symm_onesided *op, uint64_t came) {
    symm_p2p_note *n = &symm_comm_ctl(c, c->rank)->p2p;
    note(&n->waits_count, op->count);
    note(&n->waits_type, came << 8 | (uint64_t)op->signal);
    note(&n->waits, (uint64_t)SYMM_P2P_SIGNAL << 32 | ((unsigned)op->peer + 1));
}
static void note_none(symm_comm *c) {
    note(&symm_comm_ctl(c, c->rank)->p2p.waits, 0);
}

/* Calls run in their order: what this rank has not raised at itself so far never comes. */
static int is_alone(const symm_comm *c, const symm_onesided *op, uint64_t want) {
    return op->peer == c->rank && tally(c, op)->raised < want;
}

static int give_up(const symm_args *a, symm_outcome *out) {
    *out = (symm_outcome){.code = symmInvalidUsage, .rank = a->rank, .stage = SYMM_STAGE_SIGNAL};
    symm_signal_give_up(a, out);
    return 1;
}

/* 0, or non-zero: *out says why the communicator is over. */
static int wait_for(symm_comm *c, const symm_args *a, const symm_onesided *op, symm_outcome *out) {
    symm_signal_tally *t = tally(c, op);
    const uint64_t *raised = raised_here(c, op);
    const uint64_t want = used(t) + op->count, has = symm_signal_raised(raised);
    int over = 0;
    if (has < want) {
        note_wait(c, op, has - used(t));
        over = is_alone(c, op, want) ? give_up(a, out)
                                     : symm_signal_wait(a, raised, want, op->peer, out);
        note_none(c);
    }
    if (!over) use(t, want);
    return over;
}

static symmResult_t report(symm_comm *c, const symm_onesided *op, const symm_outcome *left) {
    char call[160], alone[120];
    const uint64_t has = symm_signal_raised(raised_here(c, op)) - used(tally(c, op));
    symm_signal_text(op->count, op->signal, op->peer, has, call, sizeof call);
    symm_signal_alone(c->rank, alone, sizeof alone);
    return symm_host_task_left(c, left, call, alone);
}

static symmResult_t run_ops(symm_comm *c, const symm_args *a, const symm_onesided *ops, int n) {
    symm_outcome left;
    SYMM_ASSERT(n > 0 && n <= SYMM_ONESIDED_WAITS && a->rank == c->rank);
    for (const symm_onesided *op = ops; op < ops + n; op++) {
        switch (op->kind) {
        case SYMM_ONESIDED_COPY: copy(c, op); break;
        case SYMM_ONESIDED_SIGNAL: raise_signal(c, op); break;
        case SYMM_ONESIDED_RESET: reset(c, op); break;
        case SYMM_ONESIDED_FENCE: fence(); break;
        case SYMM_ONESIDED_WAIT:
            if (__builtin_expect(wait_for(c, a, op, &left), 0)) return report(c, op, &left);
            break;
        default: SYMM_ASSERT(0);
        }
    }
    return symmSuccess;
}

static symmResult_t check_held(symm_comm *c, symm_kept_list *h) {
    if (!h || symm_kept_list_lives(h)) return symmSuccess;
    const symmResult_t r =
        SYMM_ERR(symmInvalidUsage, "a captured one-sided call is replayed, but memory under the "
                                   "window of its buffer has ended (freed since?)");
    symm_comm_break(c, r, c->rank, "replaying a captured one-sided call");
    return r;
}

/* Runs on a worker or in a replay. */
static symmResult_t run_task(void *p) {
    const task *t = p;
    SYMM_TRY(symm_launch_may_run(t->comm));
    SYMM_TRY(check_held(t->comm, t->held));
    return run_ops(t->comm, t->args, t->op, t->n);
}

/* ---- launching ------------------------------------------------------------------------------- */

static task make_task(symm_comm *c, const symm_onesided_call *call) {
    SYMM_ASSERT(call->n > 0 && call->n <= SYMM_ONESIDED_WAITS && call->args->rank == c->rank);
    task t = {.comm = c, .args = call->args, .n = call->n};
    memcpy(t.op, call->op, (unsigned)call->n * sizeof *t.op);
    return t;
}

static symmResult_t capture(symm_comm *c, const symm_onesided_call *call, symmStream_t stream) {
    task t = make_task(c, call);
    _Static_assert(sizeof t <= SYMM_TASK_BYTES, "a call fits a task");
    t.held = symm_kept_onesided(c, call);
    const symm_host_task job = {.fn = run_task,
                                .args = &t,
                                .bytes = sizeof t,
                                .what = "a one-sided call",
                                .kept = t.held,
                                .held = &symm_kept_list_held};
    const symmResult_t r = symm_host_task_capture(c, &job, stream);
    if (t.held) symm_kept_list_release(t.held);
    return r;
}

static symmResult_t give(symm_comm *c, const symm_onesided_call *call, symmStream_t stream) {
    const task t = make_task(c, call);
    SYMM_TRY(symm_stream_run(stream, run_task, &t, sizeof t));
    return symm_host_task_given(c, stream);
}

symmResult_t symm_launch_onesided(symm_comm *c, const symm_onesided_call *call,
                                  symmStream_t stream) {
    if (stream) SYMM_TRY(symm_stream_check(stream));
    if (stream && symm_stream_capturing(stream)) return capture(c, call, stream);
    SYMM_TRY(symm_launch_follow(c, stream));
    if (stream) return give(c, call, stream);
    SYMM_TRY(run_ops(c, call->args, call->op, call->n));
    return symm_host_task_given(c, NULL);
}

/* ---- counts ---------------------------------------------------------------------------------- */

/* `used` first, acquired: it never exceeds what had come when it was released, so the difference
 * is no less than 0. Pairs with `use`. */
static uint64_t unused(const symm_comm *c, int peer, int signal) {
    const uint64_t used =
        atomic_load_explicit(&symm_onesided_tally(c, peer, signal)->used, memory_order_acquire);
    const uint64_t raised = symm_signal_raised(raised_at(c, c->rank, peer, signal));
    SYMM_ASSERT(raised >= used);
    return raised - used;
}

symmResult_t symm_signals_unused(const symm_comm *c, int peer, int first, int n, uint64_t *count) {
    *count = 0;
    for (int s = first; s < first + n; s++) *count += unused(c, peer, s);
    return symmSuccess;
}
