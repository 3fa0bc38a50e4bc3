/* across_stream.c - calls of a communicator over several domains on streams of the host backend. A
 * stream is given a task with a copy of the call; its worker, or who replays a graph, is then the
 * thread inside. Any thread. Lock: `giving` of the communicator, over the order in which calls are
 * given; nobody waits for a call under it. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "base/fail.h"
#include "host/comm/comm.h"
#include "host/comm/group.h"
#include "host/stream/stream.h"
#include "across.h"

/* ---- jobs ------------------------------------------------------------------------------------ */

/* Who has the job pins the record, which the handle finds also when it is closed. */
static symm_across *find(symmComm_t comm) {
    symm_across *s = symm_handle_find(SYMM_KIND_ACROSS, comm);
    SYMM_ASSERT(s && s->outer.handle == comm);
    return s;
}

symmResult_t symm_across_job_run(symm_across_job *j) {
    symm_across *s = find(j->comm);
    symmResult_t r = symm_across_known(s); /* of one that was aborted, too */
    if (!r) r = symm_across_begin(s);
    if (!r) {
        r = j->run(j, s);
        symm_across_leave(s);
    }
    symm_outer_put(j->comm);
    return r;
}

int symm_across_job_kind(symmStream_t later) {
    return later ? SYMM_JOB_STREAM : SYMM_JOB_STAYS;
}

typedef struct { /* a call that a stream or a graph has */
    _Atomic int holders;
    _Alignas(16) char job[]; /* symm_across_job */
} kept;

static void hold_kept(void *p) {
    /* relaxed: who holds one already gives it away */
    atomic_fetch_add_explicit(&((kept *)p)->holders, 1, memory_order_relaxed);
}
static void drop_kept(void *p) {
    kept *k = p;
    SYMM_ASSERT(atomic_load_explicit(&k->holders, memory_order_relaxed) > 0);
    /* acq_rel: what others did with it comes before the free */
    if (atomic_fetch_sub_explicit(&k->holders, 1, memory_order_acq_rel) == 1) free(k);
}
static const symm_graph_user kept_user = {.retain = hold_kept, .release = drop_kept};

static kept *keep(const symm_across_job *j, size_t bytes) {
    kept *k = SYMM_FAIL_ALLOC(across_queue, malloc(sizeof *k + bytes));
    if (!k) return NULL;
    atomic_init(&k->holders, 1);
    memcpy(k->job, j, bytes);
    return k;
}

static symmResult_t run_job(void *job) {
    return symm_across_job_run(job);
}
/* In a replay; the graph keeps the call. */
static symmResult_t run_replayed(void *args) {
    kept *k;
    memcpy(&k, args, sizeof k);
    return symm_group_apart(run_job, k->job);
}
/* Of a stream's worker, once. */
static symmResult_t run_once(void *args) {
    kept *k;
    memcpy(&k, args, sizeof k);
    symm_across_job *j = (symm_across_job *)k->job;
    const symmComm_t comm = j->comm;
    const symmResult_t r = symm_across_job_run(j);
    drop_kept(k);
    symm_outer_put(comm); /* as run_later has pinned it */
    return r;
}

/* ---- graphs ---------------------------------------------------------------------------------- */

static void retain_comm(void *p) {
    (void)find(((const symm_across *)p)->outer.handle);
}
static void release_comm(void *p) {
    symm_outer_put(((const symm_across *)p)->outer.handle);
}
/* The graph may be gone: who destroys it waits for the replay, not for this. */
static void launch_ended(void *p) {
    /* release pairs with the acquire in symm_across_drain */
    atomic_fetch_sub_explicit(&((symm_across *)p)->replays, 1, memory_order_release);
    release_comm(p);
}
static symmResult_t may_launch(void *p) {
    const symm_across *s = p;
    if (symm_handle_open(SYMM_KIND_ACROSS, s->outer.handle)) return symmSuccess;
    return SYMM_ERR(symmInvalidUsage,
                    "a graph that holds calls of communicator %s is launched after that was "
                    "destroyed",
                    s->outer.name);
}
/* Counted before the handle is asked: who ends the communicator waits for this launch, or the
 * launch is refused here or in its calls. */
static symmResult_t launch_begins(void *p) {
    retain_comm(p);
    atomic_fetch_add(&((symm_across *)p)->replays, 1);
    const symmResult_t r = may_launch(p);
    if (r) launch_ended(p);
    return r;
}
static const symm_graph_user comm_user = {.retain = retain_comm,
                                          .release = release_comm,
                                          .begin = launch_begins,
                                          .end = launch_ended,
                                          .allow = may_launch};

/* ---- giving ---------------------------------------------------------------------------------- */

static symmResult_t hold(symm_across *s, symmStream_t stream, kept *k) {
    SYMM_TRY(symm_stream_capture_hold(stream, s, &comm_user));
    return symm_stream_capture_hold(stream, k, &kept_user);
}

static symmResult_t record(symm_across *s, symmStream_t stream, kept *k, uint64_t capture) {
    symm_across_last *l = symm_across_last_of(&s->order, capture);
    if (l->any && l->capture == capture && l->stream != stream)
        SYMM_TRY(symm_stream_follow_captured(stream, l->stream));
    symmResult_t r = hold(s, stream, k);
    if (r == symmOutOfMemory) symm_stream_lose_capture(stream);
    if (!r) r = symm_stream_record(stream, run_replayed, &k, sizeof k);
    if (!r) symm_across_given(&s->order, l, stream, capture);
    return r;
}

static symmResult_t run_later(symm_across *s, symmStream_t stream, kept *k) {
    symm_across_last *l = &s->order.last[0];
    if (l->stream != stream) SYMM_TRY(symm_order_wait(stream, l->end.order));
    hold_kept(k); /* for the task */
    retain_comm(s);
    const symmResult_t r = symm_stream_run(stream, run_once, &k, sizeof k);
    if (r) {
        release_comm(s);
        drop_kept(k);
        return r;
    }
    symm_order_take(stream, &l->end.order);
    symm_across_given(&s->order, l, stream, 0);
    return symmSuccess;
}

symmResult_t symm_across_give(symm_across *s, symmStream_t stream, const symm_across_job *j,
                              size_t bytes) {
    uint64_t capture = 0;
    SYMM_ASSERT(stream && !s->gpu && bytes >= sizeof *j && j->comm == s->outer.handle);
    kept *k = keep(j, bytes);
    if (!k) {
        symm_stream_lose_capture(stream); /* if there is one: a graph without the call is wrong */
        return SYMM_ERR(symmOutOfMemory, "no memory to give a call to a stream");
    }
    pthread_mutex_lock(&s->giving);
    const int captured = symm_stream_capture(stream, &capture) == 1;
    const symmResult_t r = captured ? record(s, stream, k, capture) : run_later(s, stream, k);
    pthread_mutex_unlock(&s->giving);
    drop_kept(k);
    return r;
}

/* ---- waiting for it -------------------------------------------------------------------------- */

symmResult_t symm_across_follow(symm_across *s) {
    if (s->gpu) return symmSuccess;
    pthread_mutex_lock(&s->giving);
    const symm_order last = s->order.last[0].end.order;
    pthread_mutex_unlock(&s->giving);
    return symm_order_wait(NULL, last);
}

symmResult_t symm_across_drain(symm_across *s) {
    enum { NAP_US = 50 };
    SYMM_TRY(symm_across_follow(s));
    /* acquire pairs with the release of launch_ended */
    while (atomic_load_explicit(&s->replays, memory_order_acquire)) {
        SYMM_TRY(symm_stream_may_wait("ending a communicator whose calls a graph replays"));
        usleep(NAP_US);
    }
    return symmSuccess;
}
