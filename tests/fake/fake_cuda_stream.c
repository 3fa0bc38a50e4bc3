/* fake_cuda_stream.c - the fake driver's streams and events, and capture. See fake_cuda.h,
 * fake_cuda_work.h.
 *
 * An op runs without the lock: in the caller's thread, or in that of a stream that is queued. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "fake_cuda_work.h"
#include "t.h"

static cu_stream streams;
static cu_event events;
static uint64_t captures;

/* ---- ops ------------------------------------------------------------------------------------ */

struct op *fake_op(int kind) {
    struct op *op = calloc(1, sizeof *op);
    T_CHECK(op != NULL);
    op->kind = kind;
    return op;
}

struct op *fake_op_copy(const struct op *op) {
    struct op *copy = fake_op(op->kind);
    memcpy(copy, op, sizeof *copy);
    copy->next = NULL;
    return copy;
}

void fake_op_append(struct op **first, struct op **last, struct op *op) {
    if (*first)
        (*last)->next = op;
    else
        *first = op;
    *last = op;
}

void fake_deps_add(struct deps *to, const struct deps *more) {
    for (int i = 0; i < more->n; i++) {
        int k = 0;
        while (k < to->n && to->at[k] != more->at[i]) k++;
        if (k < to->n) continue;
        T_CHECK(to->n < FAKE_DEPS);
        to->at[to->n++] = more->at[i];
    }
}

static void event_unref(cu_event e) {
    cu_event *at = &events;
    if (--e->refs > 0) return;
    while (*at != e) at = &(*at)->next;
    *at = e->next;
    fake_record_unref(e->last);
    free(e);
}

static _Thread_local const char *running;

const char *fake_cuda_running(void) {
    return running;
}

static void run_kernel(struct op *op) {
    void *args[FAKE_ARGS];
    fake_room_take(op, 1);
    for (int i = 0; i < op->nargs; i++) args[i] = (char *)op->data + op->at[i];
    op->config.attrs = op->attrs;
    running = op->name;
    op->kernel(&op->config, args);
    running = NULL;
    fake_room_take(op, -1);
}

static void run_event(struct op *op) {
    fake_lock();
    while (op->kind == OP_WAIT && !op->when->done) fake_wait();
    if (op->kind == OP_RECORD) {
        op->when->done = 1;
        op->when->ms = fake_now_ms();
        fake_wake();
        event_unref(op->event);
    }
    fake_record_unref(op->when);
    fake_unlock();
}

/* Runs the op and frees it. */
static void run(struct op *op) {
    switch (op->kind) {
    case OP_KERNEL: run_kernel(op); break;
    case OP_HOST: op->host(op->arg); break;
    case OP_SET8: memset(op->to, (int)op->value, op->count); break;
    case OP_SET32:
        for (uint64_t i = 0; i < op->count; i++)
            __atomic_store_n(&((unsigned *)op->to)[i], (unsigned)op->value, __ATOMIC_RELAXED);
        break;
    case OP_COPY: fake_move(op->to, op->from, op->count); break;
    case OP_WORD: fake_word_await(op); break;
    case OP_EMPTY: break;
    default: run_event(op);
    }
    if (op->exec) fake_exec_unref(op->exec);
    free(op);
}

/* ---- streams -------------------------------------------------------------------------------- */

static void *worker(void *arg) {
    cu_stream s = arg;
    fake_lock();
    for (;;) {
        while (!s->first && !s->stop) fake_wait_for(&s->given);
        if (!s->first) break;
        struct op *op = s->first;
        s->first = op->next;
        s->busy = 1;
        fake_unlock();
        run(op);
        fake_lock();
        s->busy = 0;
        fake_wake();
    }
    fake_unlock();
    return NULL;
}

static cu_stream new_stream(cu_context context, unsigned flags) {
    cu_stream s = calloc(1, sizeof *s);
    T_CHECK(s != NULL);
    *s = (struct cu_stream_st){.next = streams, .context = context, .flags = flags};
    pthread_cond_init(&s->given, NULL);
    s->threaded = fake.queued;
    if (s->threaded) T_EQ(pthread_create(&s->thread, NULL, worker, s), 0);
    return streams = s;
}

static void stop(cu_stream s) {
    fake_lock();
    s->stop = 1;
    pthread_cond_signal(&s->given);
    fake_unlock();
    if (s->threaded) pthread_join(s->thread, NULL);
    pthread_cond_destroy(&s->given);
}

static cu_stream implied(cu_context c) {
    cu_stream s = new_stream(c, SYMM_CUDA_STREAM_DEFAULT);
    s->implied = 1;
    return s;
}

/* Each thread has one of its own in each context. */
static cu_stream per_thread(cu_context c) {
    for (cu_stream s = streams; s; s = s->next)
        if (s->implied && s != c->legacy && s->context == c &&
            pthread_equal(s->owner, pthread_self()))
            return s;
    cu_stream s = implied(c);
    s->owner = pthread_self();
    return s;
}

cu_stream fake_stream(cu_stream stream) {
    cu_context c = fake_current();
    if (stream == SYMM_CUDA_STREAM_PER_THREAD) return c ? per_thread(c) : NULL;
    if ((uintptr_t)stream < (uintptr_t)SYMM_CUDA_STREAM_PER_THREAD) {
        if (c && !c->legacy) c->legacy = implied(c);
        return c ? c->legacy : NULL;
    }
    for (cu_stream s = streams; s; s = s->next)
        if (s == stream) return s;
    return NULL;
}

/* The handle's stream, or the code of a handle that means none. */
static int find(cu_stream *stream) {
    int implied = (uintptr_t)*stream <= (uintptr_t)SYMM_CUDA_STREAM_PER_THREAD;
    if (implied && !fake_current()) return SYMM_CUDA_ERROR_INVALID_CONTEXT;
    *stream = fake_stream(*stream);
    return *stream ? SYMM_CUDA_SUCCESS : SYMM_CUDA_ERROR_INVALID_HANDLE;
}

/* The NULL stream would wait for blocking streams under capture. Who asks spoils nothing. */
static int implicit(cu_stream s, int asks) {
    if (!s->context || s->context->legacy != s) return SYMM_CUDA_SUCCESS;
    for (cu_stream other = streams; other; other = other->next) {
        if (!other->capture || other->context != s->context) continue;
        if (other->flags & SYMM_CUDA_STREAM_NON_BLOCKING) continue;
        if (!asks) other->capture->status = SYMM_CUDA_CAPTURE_INVALIDATED;
        return SYMM_CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    }
    return SYMM_CUDA_SUCCESS;
}

int fake_enqueue(cu_stream stream, struct op *op) {
    fake_lock();
    int cu = find(&stream), now = 0;
    if (!cu) cu = implicit(stream, 0);
    if (!cu && stream->capture && stream->capture->status != SYMM_CUDA_CAPTURE_ACTIVE)
        cu = SYMM_CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (!cu && stream->capture) {
        op->deps = stream->deps;
        stream->deps = (struct deps){{(cu_graph_node)(void *)op}, 1};
        fake_op_append(&stream->capture->first, &stream->capture->last, op);
        stream->placed++;
    } else if (!cu && stream->threaded) {
        fake_op_append(&stream->first, &stream->last, op);
        pthread_cond_signal(&stream->given);
    } else {
        now = !cu;
    }
    fake_unlock();
    if (now) run(op);
    if (cu) free(op);
    return cu;
}

void fake_drain(cu_stream s) {
    fake_lock();
    while (s->first || s->busy) fake_wait();
    fake_unlock();
}

/* Graphs and libraries of an earlier install are the test's to destroy before; a sanitizer tells
 * it. */
void fake_stream_reset(void) {
    for (cu_stream s = streams; s; s = s->next) stop(s);
    fake_lock();
    while (streams) {
        cu_stream next = streams->next;
        if (streams->context->legacy == streams) streams->context->legacy = NULL;
        free(streams);
        streams = next;
    }
    while (events) {
        cu_event next = events->next;
        fake_record_unref(events->last);
        free(events);
        events = next;
    }
    fake_graph_reset();
    fake_unlock();
}

int fake_stream_live(void) {
    int n = fake_graph_live();
    for (cu_event e = events; e; e = e->next) n++;
    return n + fake_stream_kept();
}

int fake_stream_kept(void) {
    int n = 0;
    for (cu_stream s = streams; s; s = s->next) n += !s->implied;
    return n;
}

cu_result fk_cuStreamCreate(cu_stream *stream, unsigned flags) {
    ENTER(cuStreamCreate);
    if (!stream || flags > SYMM_CUDA_STREAM_NON_BLOCKING) return SYMM_CUDA_ERROR_INVALID_VALUE;
    if (!fake_current()) return SYMM_CUDA_ERROR_INVALID_CONTEXT;
    fake_lock();
    *stream = new_stream(fake_current(), flags);
    fake_unlock();
    return SYMM_CUDA_SUCCESS;
}

cu_result fk_cuStreamDestroy(cu_stream stream) {
    ENTER(cuStreamDestroy);
    if ((uintptr_t)stream <= (uintptr_t)SYMM_CUDA_STREAM_PER_THREAD)
        return SYMM_CUDA_ERROR_INVALID_HANDLE;
    fake_lock();
    cu_stream s = fake_stream(stream), *at = &streams;
    fake_unlock();
    if (!s) return SYMM_CUDA_ERROR_INVALID_HANDLE;
    stop(s);
    fake_lock();
    while (*at != s) at = &(*at)->next;
    *at = s->next;
    fake_unlock();
    free(s);
    return SYMM_CUDA_SUCCESS;
}

static int settled(cu_stream *stream) {
    fake_lock();
    int cu = find(stream);
    if (!cu && (*stream)->capture) {
        (*stream)->capture->status = SYMM_CUDA_CAPTURE_INVALIDATED;
        cu = SYMM_CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    fake_unlock();
    return cu;
}

cu_result fk_cuStreamSynchronize(cu_stream stream) {
    ENTER(cuStreamSynchronize);
    int cu = settled(&stream);
    if (!cu) fake_drain(stream);
    return cu;
}

cu_result fk_cuStreamQuery(cu_stream stream) {
    ENTER(cuStreamQuery);
    int cu = settled(&stream);
    if (cu) return cu;
    fake_lock();
    cu = stream->first || stream->busy ? SYMM_CUDA_ERROR_NOT_READY : SYMM_CUDA_SUCCESS;
    fake_unlock();
    return cu;
}

cu_result fk_cuStreamGetCtx(cu_stream stream, cu_context *context) {
    ENTER(cuStreamGetCtx);
    fake_lock();
    int cu = find(&stream);
    if (!cu) *context = stream->context;
    fake_unlock();
    return cu;
}

cu_result fk_cuCtxSynchronize(void) {
    cu_stream s;
    ENTER(cuCtxSynchronize);
    int cu = fake_current() ? fake_unsafe() : SYMM_CUDA_ERROR_INVALID_CONTEXT;
    if (cu) return cu;
    fake_lock();
    for (s = streams; s;) { /* others may have destroyed it while this waited */
        const int busy = s->context == fake_current() && (s->first || s->busy);
        if (busy) fake_wait();
        s = busy ? streams : s->next;
    }
    fake_unlock();
    return SYMM_CUDA_SUCCESS;
}

/* ---- events --------------------------------------------------------------------------------- */

cu_result fk_cuEventCreate(cu_event *event, unsigned flags) {
    ENTER(cuEventCreate);
    if (!event || flags > 7) return SYMM_CUDA_ERROR_INVALID_VALUE;
    if (!fake_current()) return SYMM_CUDA_ERROR_INVALID_CONTEXT;
    cu_event e = calloc(1, sizeof *e);
    T_CHECK(e != NULL);
    fake_lock();
    *e = (struct cu_event_st){.next = events, .flags = flags, .refs = 1};
    *event = events = e;
    fake_unlock();
    return SYMM_CUDA_SUCCESS;
}

cu_result fk_cuEventDestroy(cu_event event) {
    ENTER(cuEventDestroy);
    fake_lock();
    event_unref(event);
    fake_unlock();
    return SYMM_CUDA_SUCCESS;
}

cu_result fk_cuEventRecord(cu_event event, cu_stream stream) {
    ENTER(cuEventRecord);
    struct op *op = fake_op(OP_RECORD);
    struct record *when = calloc(1, sizeof *when);
    T_CHECK(when != NULL);
    when->refs = 2;
    fake_lock();
    int cu = find(&stream), captured = !cu && stream->capture;
    if (captured) {
        event->captured = stream->capture;
        event->stream = stream;
        event->place = stream->placed;
        event->deps = stream->deps;
    } else if (!cu) {
        event->captured = NULL;
        event->refs++;
        fake_record_unref(event->last);
        op->event = event;
        op->when = event->last = when;
    }
    fake_unlock();
    if (!cu && !captured) return fake_enqueue(stream, op);
    free(op);
    free(when);
    return cu;
}

/* Under the lock. A stream that waits for a captured event joins its capture; the event's stream
 * counts as joined if the capture's first stream waits. */
static int join(cu_stream s, cu_event e) {
    if (s->capture && s->capture != e->captured) return SYMM_CUDA_ERROR_STREAM_CAPTURE_MERGE;
    if (!s->capture) s->deps.n = 0;
    s->capture = e->captured;
    fake_deps_add(&s->deps, &e->deps);
    if (s == s->capture->origin && e->place > e->stream->joined) e->stream->joined = e->place;
    return SYMM_CUDA_SUCCESS;
}

cu_result fk_cuStreamWaitEvent(cu_stream stream, cu_event event, unsigned flags) {
    struct record *when = NULL;
    ENTER(cuStreamWaitEvent);
    if (flags > 1) return SYMM_CUDA_ERROR_INVALID_VALUE;
    fake_lock();
    int cu = find(&stream);
    if (!cu) cu = implicit(stream, 0);
    if (!cu && event->captured) {
        cu = join(stream, event);
    } else if (!cu && stream->capture) {
        /* work outside of the capture cannot be waited for inside */
        stream->capture->status = SYMM_CUDA_CAPTURE_INVALIDATED;
        cu = SYMM_CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
    } else if (!cu) {
        if (event->last && !event->last->done) when = event->last;
        if (when) when->refs++;
    }
    fake_unlock();
    if (!when) return cu;
    struct op *op = fake_op(OP_WAIT);
    op->when = when;
    return fake_enqueue(stream, op);
}

cu_result fk_cuEventQuery(cu_event event) {
    ENTER(cuEventQuery);
    int cu = event->captured ? SYMM_CUDA_ERROR_CAPTURED_EVENT : fake_unsafe();
    fake_lock();
    if (!cu && !fake_is_passed(event)) cu = SYMM_CUDA_ERROR_NOT_READY;
    fake_unlock();
    return cu;
}

cu_result fk_cuEventSynchronize(cu_event event) {
    ENTER(cuEventSynchronize);
    int cu = event->captured ? SYMM_CUDA_ERROR_CAPTURED_EVENT : fake_unsafe();
    fake_lock();
    while (!cu && !fake_is_passed(event)) fake_wait();
    fake_unlock();
    return cu;
}

cu_result fk_cuEventElapsedTime(float *ms, cu_event from, cu_event to) {
    ENTER(cuEventElapsedTime);
    fake_lock();
    int cu = SYMM_CUDA_SUCCESS;
    if (!from->last || !to->last || ((from->flags | to->flags) & 2))
        cu = SYMM_CUDA_ERROR_INVALID_HANDLE;
    else if (!fake_is_passed(from) || !fake_is_passed(to))
        cu = SYMM_CUDA_ERROR_NOT_READY;
    else
        *ms = (float)(to->last->ms - from->last->ms);
    fake_unlock();
    return cu;
}

/* ---- capture -------------------------------------------------------------------------------- */

int fake_any_global_capture(void) {
    int any = 0;
    for (cu_stream s = streams; s; s = s->next) {
        if (!s->capture || s->capture->mode == SYMM_CUDA_CAPTURE_MODE_RELAXED) continue;
        if (s->capture->mode == SYMM_CUDA_CAPTURE_MODE_THREAD_LOCAL &&
            !pthread_equal(s->capture->thread, pthread_self()))
            continue;
        s->capture->status = SYMM_CUDA_CAPTURE_INVALIDATED;
        any = 1;
    }
    return any;
}

cu_result fk_cuStreamBeginCapture(cu_stream stream, int mode) {
    ENTER(cuStreamBeginCapture);
    if (mode < 0 || mode > SYMM_CUDA_CAPTURE_MODE_RELAXED) return SYMM_CUDA_ERROR_INVALID_VALUE;
    fake_lock();
    int cu = find(&stream);
    if (!cu && (stream->context->legacy == stream || stream->capture))
        cu = stream->capture ? SYMM_CUDA_ERROR_ILLEGAL_STATE
                             : SYMM_CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    if (!cu) {
        cu_graph g = fake_graph_new();
        g->id = ++captures;
        g->status = SYMM_CUDA_CAPTURE_ACTIVE;
        g->mode = mode;
        g->origin = stream;
        g->thread = pthread_self();
        stream->capture = g;
        stream->placed = stream->joined = 0;
        stream->deps.n = 0;
    }
    fake_unlock();
    return cu;
}

/* Under the lock. All streams of the capture leave it. */
static int end(cu_graph g) {
    int cu = g->status == SYMM_CUDA_CAPTURE_ACTIVE ? SYMM_CUDA_SUCCESS
                                                   : SYMM_CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    for (cu_stream s = streams; s; s = s->next) {
        if (s->capture != g) continue;
        if (!cu && s != g->origin && s->joined < s->placed)
            cu = SYMM_CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
        s->capture = NULL;
        s->placed = s->joined = 0;
    }
    for (cu_event e = events; e; e = e->next)
        if (e->captured == g) e->captured = NULL;
    g->status = SYMM_CUDA_CAPTURE_NONE;
    return cu;
}

cu_result fk_cuStreamEndCapture(cu_stream stream, cu_graph *graph) {
    cu_graph g = NULL;
    ENTER(cuStreamEndCapture);
    *graph = NULL;
    fake_lock();
    int cu = find(&stream);
    if (!cu) g = stream->capture;
    if (!cu && !g) cu = SYMM_CUDA_ERROR_ILLEGAL_STATE;
    if (!cu && g->origin != stream) cu = SYMM_CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
    if (!cu && g->mode != SYMM_CUDA_CAPTURE_MODE_RELAXED &&
        !pthread_equal(g->thread, pthread_self()))
        cu = SYMM_CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
    int over = !cu;
    if (over) cu = end(g);
    fake_unlock();
    if (over && cu) fake_graph_drop(g);
    if (!cu) *graph = g;
    return cu;
}

cu_result fk_cuStreamIsCapturing(cu_stream stream, int *status) {
    ENTER(cuStreamIsCapturing);
    fake_lock();
    int cu = find(&stream);
    if (!cu) cu = implicit(stream, 1);
    if (!cu) *status = stream->capture ? stream->capture->status : SYMM_CUDA_CAPTURE_NONE;
    fake_unlock();
    return cu;
}

static int capture_info(cu_stream stream, int *status, uint64_t *id, cu_graph *graph) {
    fake_lock();
    int cu = find(&stream);
    if (!cu) cu = implicit(stream, 1);
    cu_graph g = cu ? NULL : stream->capture;
    if (!cu) *status = g ? g->status : SYMM_CUDA_CAPTURE_NONE;
    if (g && g->status == SYMM_CUDA_CAPTURE_ACTIVE) {
        if (id) *id = g->id;
        if (graph) *graph = g;
    }
    fake_unlock();
    return cu;
}

cu_result fk_cuStreamGetCaptureInfo_v2(cu_stream stream, int *status, uint64_t *id, cu_graph *graph,
                                       const cu_graph_node **nodes, size_t *count) {
    ENTER(cuStreamGetCaptureInfo_v2);
    if (nodes || count) return SYMM_CUDA_ERROR_NOT_SUPPORTED; /* this fake keeps none */
    return capture_info(stream, status, id, graph);
}

/* The array is the stream's own, as the driver's is: good until the next call on it. */
cu_result fk_cuStreamGetCaptureInfo_v3(cu_stream stream, int *status, uint64_t *id, cu_graph *graph,
                                       const cu_graph_node **nodes, const void **edges,
                                       size_t *count) {
    ENTER(cuStreamGetCaptureInfo_v3);
    int cu = capture_info(stream, status, id, graph);
    if (cu || *status != SYMM_CUDA_CAPTURE_ACTIVE) return cu;
    fake_lock();
    find(&stream);
    if (nodes) *nodes = stream->deps.at;
    if (edges) *edges = NULL;
    if (count) *count = (size_t)stream->deps.n;
    fake_unlock();
    return cu;
}

cu_result fk_cuStreamUpdateCaptureDependencies_v2(cu_stream stream, cu_graph_node *deps,
                                                  const cu_graph_edge *edges, size_t count,
                                                  unsigned flags) {
    struct deps set = {{NULL}, 0};
    ENTER(cuStreamUpdateCaptureDependencies_v2);
    if (flags > SYMM_CUDA_CAPTURE_SET_DEPENDENCIES || edges || (count && !deps) ||
        count > FAKE_DEPS)
        return SYMM_CUDA_ERROR_INVALID_VALUE;
    fake_lock();
    int cu = find(&stream);
    if (!cu && !stream->capture) cu = SYMM_CUDA_ERROR_ILLEGAL_STATE;
    for (size_t i = 0; i < count && !cu; i++) {
        const struct op *op = stream->capture->first;
        while (op && (cu_graph_node)(const void *)op != deps[i]) op = op->next;
        if (!op) cu = SYMM_CUDA_ERROR_INVALID_VALUE;
        set.at[set.n++] = deps[i];
    }
    if (!cu && flags == SYMM_CUDA_CAPTURE_SET_DEPENDENCIES) stream->deps.n = 0;
    if (!cu) fake_deps_add(&stream->deps, &set);
    fake_unlock();
    return cu;
}
