/* onesided.c - one-sided calls (symm_onesided.h): check, find the peer's memory, queue in a group.
 * As sends and receives they have no rows in coll.def: no two ranks need make the same calls. The
 * user's thread; symmSignalRead and the count of unused signals: any thread. No lock; only a group
 * allocates. */
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/handle.h"
#include "device/host/reduce.h"
#include "host/comm/comm.h"
#include "host/comm/group.h"
#include "host/window/window.h"
#include "coll.h"

_Static_assert(SYMM_SIGNALS == SYMM_SIGNAL_WORDS, "each signal has a word");

enum { PUT, GET, PUT_SIGNAL, SIGNAL, WAIT, RESET, READ, FENCE };

typedef struct { /* what the user asked for */
    int what;    /* PUT... */
    int peer, signal;
    uint32_t type;
    char *buff;
    uint64_t count;
    symmWindow_t win;
    uint64_t offset;
    symmStream_t stream;
    const symmSignalWait_t *waits;
    int n;
} request;

static const char *call_name(const request *q) {
    static const char *const names[] = {"symmPut",        "symmGet",        "symmPutSignal",
                                        "symmSignal",     "symmWaitSignal", "symmSignalReset",
                                        "symmSignalRead", "symmFence"};
    return names[q->what];
}
static int moves(const request *q) {
    return q->what <= PUT_SIGNAL;
}
static int signals(const request *q) {
    return q->what >= PUT_SIGNAL && q->what <= READ && q->what != WAIT;
}
static const char *buffer_name(const request *q) {
    return q->what == GET ? "recvbuff" : "sendbuff";
}
static uint64_t bytes_of(const request *q) {
    return q->count * symm_type_size(q->type);
}

/* ---- check ----------------------------------------------------------------------------------- */

static symmResult_t check_peer(const symm_comm *c, const char *call, int peer) {
    if ((unsigned)peer < (unsigned)c->nranks) return symmSuccess;
    return SYMM_ERR(symmInvalidArgument, "%s: peer=%d: must be 0 to %d", call, peer, c->nranks - 1);
}
static symmResult_t check_signal(const char *call, int signal) {
    if ((unsigned)signal < SYMM_SIGNALS) return symmSuccess;
    return SYMM_ERR(symmInvalidArgument, "%s: signal=%d: must be 0 to %d", call, signal,
                    SYMM_SIGNALS - 1);
}

static symmResult_t check_bytes(const request *q) {
    const uint64_t size = symm_type_size(q->type);
    uint64_t bytes;
    if (!size)
        return SYMM_ERR(symmInvalidArgument, "%s: datatype=%u: must be 0 to %d", call_name(q),
                        q->type, symmNumTypes - 1);
    if (__builtin_mul_overflow(q->count, size, &bytes) || bytes >> 46)
        return SYMM_ERR(symmInvalidArgument, "%s: count=%llu elements of %llu bytes overflow",
                        call_name(q), (unsigned long long)q->count, (unsigned long long)size);
    return symm_coll_check_buffer(buffer_name(q), q->buff, bytes);
}

/* What is no window of c. Held: another thread may end its communicator. */
static __attribute__((noinline, cold)) symmResult_t refuse_window(const symm_comm *c,
                                                                  const request *q) {
    const symm_win *w = symm_handle_get(SYMM_KIND_WINDOW, q->win);
    if (!w)
        return SYMM_ERR(symmInvalidArgument, "%s: win=%p is not a registered window", call_name(q),
                        (void *)q->win);
    const symmResult_t r =
        SYMM_ERR(symmInvalidArgument, "%s: win=%p belongs to communicator %s, not to %s",
                 call_name(q), (void *)q->win, w->comm->name, c->name);
    symm_handle_put(SYMM_KIND_WINDOW, q->win);
    return r;
}

static symmResult_t check_window(const symm_comm *c, const request *q, symm_win **out) {
    symm_win *w = symm_window_of(c, q->win);
    const char *call = call_name(q);
    if (!w) return refuse_window(c, q);
    if (w->ended)
        return SYMM_ERR(symmInvalidUsage,
                        "%s: win=%p: its memory was freed, and a registration since then has let "
                        "go of what it maps",
                        call, (void *)q->win);
    const uint64_t has = w->size[q->peer], bytes = bytes_of(q);
    if (q->offset > has || bytes > has - q->offset)
        return SYMM_ERR(symmInvalidArgument,
                        "%s: offset=%llu and %llu bytes: rank %d registered %llu bytes", call,
                        (unsigned long long)q->offset, (unsigned long long)bytes, q->peer,
                        (unsigned long long)has);
    *out = w;
    return symmSuccess;
}

static symmResult_t check_waits(const symm_comm *c, const request *q) {
    if (q->n < 0)
        return SYMM_ERR(symmInvalidArgument, "%s: n=%d: must be 0 or more", call_name(q), q->n);
    if (q->n && !q->waits) return SYMM_ERR(symmInvalidArgument, "%s: waits is NULL", call_name(q));
    for (int i = 0; i < q->n; i++) {
        SYMM_TRY(check_peer(c, call_name(q), q->waits[i].peer));
        SYMM_TRY(check_signal(call_name(q), q->waits[i].signal));
        if (q->waits[i].count >> 62)
            return SYMM_ERR(symmInvalidArgument, "%s: count=%zu: must be below 2^62", call_name(q),
                            q->waits[i].count);
    }
    return symmSuccess;
}

/* *target: only written for a call that has one. */
static symmResult_t check(const symm_comm *c, const request *q, symm_win **target) {
    if (q->what == WAIT) return check_waits(c, q);
    if (q->what != FENCE) SYMM_TRY(check_peer(c, call_name(q), q->peer));
    if (signals(q)) SYMM_TRY(check_signal(call_name(q), q->signal));
    if (!moves(q)) return symmSuccess;
    SYMM_TRY(check_bytes(q));
    return check_window(c, q, target);
}

/* ---- what is run ----------------------------------------------------------------------------- */

symm_signal_tally *symm_onesided_tally(const symm_comm *c, int peer, int signal) {
    SYMM_ASSERT((unsigned)peer < (unsigned)c->nranks && (unsigned)signal < SYMM_SIGNALS);
    return &c->calls.tallies[peer * SYMM_SIGNAL_WORDS + signal];
}

static void count(_Atomic uint64_t *n, uint64_t more) {
    atomic_store_explicit(n, atomic_load_explicit(n, memory_order_relaxed) + more,
                          memory_order_relaxed);
}

static symm_onesided *add_op(symm_onesided_call *call, int kind, int peer, int signal) {
    symm_onesided *op = &call->op[call->n++];
    SYMM_ASSERT(call->n <= SYMM_ONESIDED_OPS);
    op->kind = (uint8_t)kind;
    op->peer = (int16_t)peer;
    op->signal = (int16_t)signal;
    op->count = 0;
    return op;
}

/* The peer's memory as this process reaches it; the own one at the pointer that was registered. */
static char *far_memory(const symm_comm *c, const symm_win *w, int peer, uint64_t offset) {
    SYMM_ASSERT(w->comm == c && offset <= w->size[peer]);
    if (peer == c->rank) return w->ptr + offset;
    return (char *)(uintptr_t)(c->base + (uint64_t)peer * c->stride + w->off[peer] + offset);
}

static symmResult_t add_copy(symm_comm *c, const request *q, symm_onesided_call *call) {
    const uint64_t bytes = bytes_of(q);
    symm_onesided *op = add_op(call, SYMM_ONESIDED_COPY, q->peer, -1);
    char *far = far_memory(c, call->target, q->peer, q->offset);
    op->to = q->what == GET ? q->buff : far;
    op->from = q->what == GET ? far : q->buff;
    op->bytes = bytes;
    op->put = q->what != GET;
    op->nt = bytes > SYMM_P2P_SMALL && symm_plan_past_caches(2 * bytes, c->calls.keeps);
    call->buff = q->buff;
    call->bytes = bytes;
    if (!bytes) return symmSuccess;
    if (q->stream) call->near = symm_window_at(c, q->buff, bytes); /* for a graph */
    return call->near ? symmSuccess : c->launcher->check_buffer(c, buffer_name(q), q->buff);
}

static void count_copy(symm_comm *c, const request *q) {
    SYMM_ASSERT(moves(q));
    symm_onesided_counts *to = &c->calls.onesided;
    count(q->what == GET ? &to->gets : &to->puts, 1);
    count(q->what == GET ? &to->got_bytes : &to->put_bytes, bytes_of(q));
}

static symmResult_t check_overlap(const request *q, const symm_onesided *op) {
    const uintptr_t to = (uintptr_t)op->to, from = (uintptr_t)op->from;
    if (to == from || to + op->bytes <= from || from + op->bytes <= to) return symmSuccess;
    return SYMM_ERR(symmInvalidArgument,
                    "%s: buffer=%p overlaps the %llu bytes at offset=%llu of rank %d's part",
                    call_name(q), (void *)q->buff, (unsigned long long)op->bytes,
                    (unsigned long long)q->offset, q->peer);
}

/* One of the same signal that is in the call already grows. */
static void add_wait(symm_comm *c, const symmSignalWait_t *w, symm_onesided_call *call) {
    int i = 0;
    count(&c->calls.onesided.waits, 1);
    while (i < call->n && (call->op[i].peer != w->peer || call->op[i].signal != w->signal)) i++;
    symm_onesided *op =
        i < call->n ? &call->op[i] : add_op(call, SYMM_ONESIDED_WAIT, w->peer, w->signal);
    op->count += w->count;
    if (op->count >> 62) op->count = 1ull << 62; /* no overflow; so many never come */
}

/* An empty list launches nothing. The stream is checked all the same. */
static symmResult_t run_waits(symm_comm *c, const request *q, symm_onesided_call *call) {
    if (!q->n) return c->launcher->check_stream(c, q->stream);
    for (int i = 0; i < q->n; i++) {
        add_wait(c, &q->waits[i], call);
        if (call->n < c->launcher->waits && i + 1 < q->n) continue;
        SYMM_TRY(c->launcher->onesided(c, call, q->stream));
        call->n = 0;
    }
    return symmSuccess;
}

static symmResult_t run(symm_comm *c, const request *q, symm_win *target) {
    symm_onesided_call call;
    call.args = &c->calls.proto;
    call.n = 0;
    call.target = target;
    call.near = NULL;
    call.buff = NULL;
    call.bytes = 0;
    if (q->what == WAIT) return run_waits(c, q, &call);
    if (moves(q)) {
        SYMM_TRY(add_copy(c, q, &call));
        SYMM_TRY(check_overlap(q, &call.op[0]));
        count_copy(c, q);
    }
    if (q->what == PUT_SIGNAL || q->what == SIGNAL) {
        add_op(&call, SYMM_ONESIDED_SIGNAL, q->peer, q->signal);
        count(&c->calls.onesided.signals, 1);
    }
    if (q->what == RESET) add_op(&call, SYMM_ONESIDED_RESET, q->peer, q->signal);
    if (q->what == FENCE) add_op(&call, SYMM_ONESIDED_FENCE, 0, -1);
    return c->launcher->onesided(c, &call, q->stream);
}

/* ---- groups ---------------------------------------------------------------------------------- */

typedef struct {
    symmComm_t comm;
    request q;
    symmSignalWait_t waits[];
} queued;

/* Inside the communicator. */
static symmResult_t check_and_run(symm_comm *c, const request *q) {
    symm_win *target = NULL;
    SYMM_TRY(check(c, q, &target));
    return run(c, q, target);
}

static symmResult_t run_queued(void *p) {
    queued *w = p;
    symm_comm *c;
    SYMM_TRY(symm_comm_enter(w->comm, SYMM_ENTER_COLL, &c));
    w->q.waits = w->waits;
    const symmResult_t r = check_and_run(c, &w->q);
    symm_comm_leave(c);
    return r;
}

static symmResult_t tell_queued(const void *p, symm_job_tale *t) {
    const queued *w = p;
    symm_comm *c;
    SYMM_TRY(symm_comm_visit(w->comm, &c));
    *t = (symm_job_tale){.calls = 1, .kernels = 1};
    snprintf(t->text, sizeof t->text, "communicator %s, rank %d, stream %p: %s", c->name, c->rank,
             (void *)w->q.stream, call_name(&w->q));
    symm_comm_unvisit(c);
    return symmSuccess;
}

static const symm_job_row queued_row = {.run = run_queued, .tell = tell_queued};

static symmResult_t append(symm_comm *c, const request *q, symmComm_t comm) {
    enum { FEW = 16 };
    union {
        queued w;
        char room[sizeof(queued) + FEW * sizeof(symmSignalWait_t)];
    } u;
    const int kind = c->launcher->job(q->stream);
    int at = 0;
    do { /* a list of waits that is longer is several jobs */
        const int n = q->n - at < FEW ? q->n - at : FEW;
        u.w.comm = comm;
        u.w.q = *q;
        u.w.q.n = n;
        if (n) memcpy(u.w.waits, q->waits + at, (size_t)n * sizeof *q->waits);
        at += n;
        SYMM_TRY(symm_group_join(comm, kind, q->stream, &queued_row, &u.w,
                                 sizeof u.w + (size_t)n * sizeof *q->waits));
    } while (at < q->n);
    return symmSuccess;
}

static symmResult_t queue(const request *q, symmComm_t comm) {
    symm_comm *c;
    symm_win *target;
    symmResult_t r = symm_comm_enter(comm, SYMM_ENTER_COLL, &c);
    if (r) return symm_group_refuse(r);
    r = check(c, q, &target);
    if (!r) r = c->launcher->check_stream(c, q->stream);
    if (!r) r = append(c, q, comm);
    symm_comm_leave(c);
    return r ? symm_group_refuse(r) : symmSuccess;
}

/* ---- the public calls ------------------------------------------------------------------------ */

static symmResult_t call(const request *q, symmComm_t comm) {
    symm_comm *c;
    if (__builtin_expect(symm_group_open(), 0)) return queue(q, comm);
    SYMM_TRY(symm_comm_enter(comm, SYMM_ENTER_COLL, &c));
    const symmResult_t r = check_and_run(c, q);
    symm_comm_leave(c);
    return r;
}

symmResult_t symmPut(const void *sendbuff, size_t count, symmDataType_t datatype, int peer,
                     symmWindow_t win, size_t offset, symmComm_t comm, symmStream_t stream) {
    const request q = {.what = PUT,
                       .peer = peer,
                       .type = (uint32_t)datatype,
                       .buff = (char *)(uintptr_t)sendbuff,
                       .count = count,
                       .win = win,
                       .offset = offset,
                       .stream = stream};
    return call(&q, comm);
}

symmResult_t symmGet(void *recvbuff, size_t count, symmDataType_t datatype, int peer,
                     symmWindow_t win, size_t offset, symmComm_t comm, symmStream_t stream) {
    const request q = {.what = GET,
                       .peer = peer,
                       .type = (uint32_t)datatype,
                       .buff = recvbuff,
                       .count = count,
                       .win = win,
                       .offset = offset,
                       .stream = stream};
    return call(&q, comm);
}

symmResult_t symmPutSignal(const void *sendbuff, size_t count, symmDataType_t datatype, int peer,
                           symmWindow_t win, size_t offset, int signal, symmComm_t comm,
                           symmStream_t stream) {
    const request q = {.what = PUT_SIGNAL,
                       .peer = peer,
                       .signal = signal,
                       .type = (uint32_t)datatype,
                       .buff = (char *)(uintptr_t)sendbuff,
                       .count = count,
                       .win = win,
                       .offset = offset,
                       .stream = stream};
    return call(&q, comm);
}

symmResult_t symmSignal(int peer, int signal, symmComm_t comm, symmStream_t stream) {
    const request q = {.what = SIGNAL, .peer = peer, .signal = signal, .stream = stream};
    return call(&q, comm);
}

symmResult_t symmWaitSignal(int n, const symmSignalWait_t *waits, symmComm_t comm,
                            symmStream_t stream) {
    const request q = {.what = WAIT, .n = n, .waits = waits, .stream = stream};
    return call(&q, comm);
}

symmResult_t symmSignalReset(int peer, int signal, symmComm_t comm, symmStream_t stream) {
    const request q = {.what = RESET, .peer = peer, .signal = signal, .stream = stream};
    return call(&q, comm);
}

symmResult_t symmFence(symmComm_t comm, symmStream_t stream) {
    const request q = {.what = FENCE, .stream = stream};
    return call(&q, comm);
}

/* ---- questions ------------------------------------------------------------------------------- */

/* 1: the communicator was made, and is not over. */
static int lives(const symm_comm *c) {
    /* pairs with comm_make.c's release */
    return symm_comm_state(c) == SYMM_COMM_LIVE && __atomic_load_n(&c->ctl, __ATOMIC_ACQUIRE);
}

uint64_t symm_onesided_unused(const symm_comm *c, int peer) {
    uint64_t n = 0;
    return lives(c) && !c->launcher->unused(c, peer, 0, SYMM_SIGNALS, &n) ? n : 0;
}

static symmResult_t read_signal(const symm_comm *c, int peer, int signal, uint64_t *n) {
    const request q = {.what = READ, .peer = peer, .signal = signal};
    if (!n) return SYMM_ERR(symmInvalidArgument, "count is NULL");
    SYMM_TRY(check(c, &q, NULL));
    if (!lives(c))
        return SYMM_ERR(symmInvalidUsage, "symmSignalRead: communicator %s was not made or is over",
                        c->name);
    return c->launcher->unused(c, peer, signal, 1, n);
}

symmResult_t symmSignalRead(int peer, int signal, symmComm_t comm, uint64_t *count) {
    symm_comm *c;
    SYMM_TRY(symm_comm_visit_made(comm, &c));
    const symmResult_t r = read_signal(c, peer, signal, count);
    symm_comm_unvisit(c);
    return r;
}
