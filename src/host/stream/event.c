/* event.c - events of host streams: an order point that a user can keep, or a place inside a
 * capture. Any thread. Lock: the event's, never while waiting; the set-up lock may be taken inside
 * it. */
#include <stdlib.h>

#include "base/fail.h"
#include "stream_int.h"

struct event {
    symmEvent_t handle;
    pthread_mutex_t lock;
    int recorded;
    symm_order at;                    /* where no capture was under way */
    struct symm_capture_mark capture; /* .capture 0: not recorded inside one */
};

static symmResult_t pin(symmEvent_t handle, struct event **out) {
    struct event *found = symm_handle_get(SYMM_KIND_EVENT, handle);
    if (!found)
        return SYMM_ERR(symmInvalidArgument, "event: %p is not a live host event", (void *)handle);
    *out = found;
    return symmSuccess;
}

/* Under the event's lock. */
static void event_check(const struct event *e) {
    const struct symm_capture_mark *m = &e->capture;
    SYMM_ASSERT(e->recorded || (!m->capture && !e->at.stream));
    SYMM_ASSERT(!m->capture || (m->lane >= 0 && m->lane < m->before.n));
    SYMM_ASSERT(!m->capture || m->before.tasks[m->lane] <= m->steps);
    SYMM_ASSERT(!e->at.stream == !e->at.tasks);
}

static void unpin(struct event *e) {
    symm_handle_put(SYMM_KIND_EVENT, e->handle);
}

static void free_event(void *obj) {
    struct event *e = obj;
    free(e->capture.before.tasks);
    pthread_mutex_destroy(&e->lock);
    free(e);
}

symmResult_t symmEventCreate(symmEvent_t *event) {
    symmResult_t status;
    void *handle;
    if (!event) return SYMM_ERR(symmInvalidArgument, "symmEventCreate: event is NULL");
    struct event *e = SYMM_FAIL_ALLOC(event_alloc, calloc(1, sizeof *e));
    if (!e) return SYMM_ERR(symmOutOfMemory, "no memory for a host event");
    pthread_mutex_init(&e->lock, NULL);
    SYMM_TRY_GOTO(symm_handle_new(SYMM_KIND_EVENT, e, free_event, &handle), free_memory);
    e->handle = handle;
    *event = e->handle;
    return symmSuccess;
free_memory:
    free_event(e);
    return status;
}

/* Who waits for the event waits for the point it marked: destroying it holds nobody up and lets
 * nobody go early. */
symmResult_t symmEventDestroy(symmEvent_t event) {
    struct event *e = NULL;
    SYMM_TRY(pin(event, &e));
    int closed = symm_handle_close(SYMM_KIND_EVENT, event);
    if (closed) symm_handle_put(SYMM_KIND_EVENT, event);
    unpin(e);
    if (closed) return symmSuccess;
    return SYMM_ERR(symmInvalidArgument, "event: %p is being destroyed", (void *)event);
}

/* Under the event's lock. */
static symmResult_t record(struct event *e, struct symm_stream *s) {
    symmResult_t status;
    if (s && symm_capture_event(s, &e->capture, &status)) {
        if (status == symmSuccess) e->recorded = 1;
        return status;
    }
    symm_order_take(s ? s->handle : NULL, &e->at);
    e->capture.capture = 0;
    e->recorded = 1;
    return symmSuccess;
}

symmResult_t symmEventRecord(symmEvent_t event, symmStream_t stream) {
    struct event *e = NULL;
    struct symm_stream *s = NULL;
    symmResult_t status;
    SYMM_TRY(pin(event, &e));
    if (stream) SYMM_TRY_GOTO(symm_stream_pin(stream, &s), unpin_event);
    pthread_mutex_lock(&e->lock);
    SYMM_CHECK(event_check(e));
    status = record(e, s);
    if (!status) SYMM_CHECK(event_check(e));
    pthread_mutex_unlock(&e->lock);
    if (s) symm_stream_unpin(s);
unpin_event:
    unpin(e);
    return status;
}

/* The point that an eager wait waits for. Refuses an event of a capture. */
static symmResult_t point(symmEvent_t event, const char *call, symm_order *at) {
    struct event *e = NULL;
    SYMM_TRY(pin(event, &e));
    pthread_mutex_lock(&e->lock);
    int captured = e->capture.capture != 0;
    symm_order found = e->at;
    SYMM_CHECK(event_check(e));
    pthread_mutex_unlock(&e->lock);
    unpin(e);
    if (captured)
        return SYMM_ERR(symmInvalidUsage,
                        "%s: event %p was last recorded inside a capture, so it never happens",
                        call, (void *)event);
    *at = found;
    return symmSuccess;
}

symmResult_t symmEventSynchronize(symmEvent_t event) {
    symm_order at;
    SYMM_TRY(symm_stream_may_wait("symmEventSynchronize"));
    SYMM_TRY(point(event, "symmEventSynchronize", &at));
    symm_order_reach(at);
    return symmSuccess;
}

symmResult_t symmEventQuery(symmEvent_t event) {
    symm_order at;
    SYMM_TRY(point(event, "symmEventQuery", &at));
    return symm_order_reached(at) ? symmSuccess : symmInProgress;
}

/* s is under capture, or the event is of a capture. Under the event's lock. */
static symmResult_t wait_captured(struct symm_stream *s, const struct event *e) {
    if (e->capture.capture) return symm_capture_join(s, &e->capture);
    if (!e->recorded) return symmSuccess;
    return SYMM_ERR(symmInvalidUsage,
                    "symmStreamWaitEvent: stream %p is under capture and event %p was recorded "
                    "outside it: a replay "
                    "cannot wait for it",
                    (void *)s->handle, (void *)e->handle);
}

static symmResult_t wait_in_stream(struct symm_stream *s, struct event *e) {
    symmResult_t status;
    pthread_mutex_lock(&e->lock);
    int captured = e->capture.capture || atomic_load_explicit(&s->capture, memory_order_relaxed);
    if (captured) status = wait_captured(s, e);
    symm_order at = e->at;
    pthread_mutex_unlock(&e->lock);
    return captured ? status : symm_order_wait(s->handle, at);
}

static symmResult_t wait_inline(symmEvent_t event) {
    symm_order at;
    SYMM_TRY(symm_stream_may_wait("symmStreamWaitEvent on the NULL stream"));
    SYMM_TRY(point(event, "symmStreamWaitEvent on the NULL stream", &at));
    symm_order_reach(at);
    return symmSuccess;
}

symmResult_t symmStreamWaitEvent(symmStream_t stream, symmEvent_t event) {
    struct symm_stream *s = NULL;
    struct event *e = NULL;
    symmResult_t status;
    if (!stream) return wait_inline(event);
    SYMM_TRY(symm_stream_pin(stream, &s));
    SYMM_TRY_GOTO(pin(event, &e), unpin_stream);
    status = wait_in_stream(s, e);
    unpin(e);
unpin_stream:
    symm_stream_unpin(s);
    return status;
}
