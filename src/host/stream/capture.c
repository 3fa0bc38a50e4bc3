/* capture.c - recording what is given to streams, between BeginCapture and EndCapture.
 * Any thread. Lock: the set-up lock guards every capture and the graph that it builds; recorded
 * objects are retained and released outside it. Who comes after whom is kept per lane as a count of
 * tasks of every lane (a vector clock): a capture is joined when the lane it began on comes after
 * every task. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "stream_int.h"

struct symm_capture {
    uint64_t id;
    struct symm_graph *graph;
    int failed; /* a call could not be recorded for want of memory: the graph would be wrong */
    struct symm_capture *next;
};

static struct symm_capture *captures; /* under way; set-up lock, as all statics here */
static uint64_t last_id;

static struct symm_capture *capture_of(struct symm_stream *s) {
    return atomic_load_explicit(&s->capture, memory_order_relaxed);
}

/* ---- clocks ---------------------------------------------------------------------------------- */

static size_t clock_at(const struct symm_clock *c, int lane) {
    return lane < c->n ? c->tasks[lane] : 0;
}

static int clock_reserve(struct symm_clock *c, int n) {
    if (n <= c->n) return 0;
    size_t *tasks = SYMM_FAIL_ALLOC(capture_clock, realloc(c->tasks, (size_t)n * sizeof *tasks));
    if (!tasks) return -1;
    memset(tasks + c->n, 0, (size_t)(n - c->n) * sizeof *tasks);
    SYMM_ASSERT(c->n >= 0 && (c->n == 0) == (c->tasks == NULL));
    c->tasks = tasks;
    c->n = n;
    return 0;
}

static int clock_merge(struct symm_clock *into, const struct symm_clock *from) {
    if (clock_reserve(into, from->n)) return -1;
    for (int i = 0; i < from->n; i++)
        if (into->tasks[i] < from->tasks[i]) into->tasks[i] = from->tasks[i];
    return 0;
}

static void clock_free(struct symm_clock *c) {
    free(c->tasks);
    *c = (struct symm_clock){NULL, 0};
}

/* Asserts what holds of a capture after something was recorded on s. Under the set-up lock. */
static void capture_check(const struct symm_capture *c, const struct symm_stream *s) {
    enum { LANES = 8 };
    const struct symm_graph *g = c->graph;
    SYMM_ASSERT(c->id && c->id <= last_id && g->capture == c->id && !g->threads && !g->tickets);
    SYMM_ASSERT(s->lane >= 0 && s->lane < g->nlanes && g->lanes[s->lane].stream == s);
    const struct symm_lane *lane = &g->lanes[s->lane];
    SYMM_ASSERT(lane->tasks <= lane->n && lane->n <= lane->cap && lane->before.n <= g->nlanes);
    for (int i = 0; i < lane->before.n && i < LANES; i++)
        SYMM_ASSERT(lane->before.tasks[i] <= g->lanes[i].tasks);
    for (int i = 0; i < g->nlanes && i < LANES; i++) {
        struct symm_stream *other = g->lanes[i].stream;
        SYMM_ASSERT(!other || (capture_of(other) == c && other->lane == i));
    }
}

/* ---- recording ------------------------------------------------------------------------------- */

static symmResult_t out_of_memory(struct symm_capture *c, struct symm_stream *s) {
    c->failed = 1;
    return SYMM_ERR(symmOutOfMemory, "stream %p: no memory to record a call; the capture is lost",
                    (void *)s->handle);
}

void symm_stream_lose_capture(symmStream_t stream) {
    struct symm_stream *s = symm_handle_get(SYMM_KIND_STREAM, stream);
    if (!s) return;
    symm_handle_lock();
    if (capture_of(s)) capture_of(s)->failed = 1;
    symm_handle_unlock();
    symm_stream_unpin(s);
}

/* 1 and its id while s is under capture. */
static int capture_id(struct symm_stream *s, uint64_t *id) {
    symm_handle_lock();
    const struct symm_capture *c = capture_of(s);
    if (c) *id = c->id;
    symm_handle_unlock();
    return c != NULL;
}

int symm_stream_capturing(symmStream_t s) {
    struct symm_stream *stream = s ? symm_handle_get(SYMM_KIND_STREAM, s) : NULL;
    if (!stream) return 0;
    int capturing = atomic_load_explicit(&stream->capture, memory_order_relaxed) != NULL;
    symm_stream_unpin(stream);
    return capturing;
}

int symm_stream_capture(symmStream_t s, uint64_t *capture) {
    struct symm_stream *stream = s ? symm_handle_peek(SYMM_KIND_STREAM, s) : NULL;
    if (!stream) return s ? -1 : 0;
    return atomic_load_explicit(&stream->capture, memory_order_relaxed) != NULL &&
           capture_id(stream, capture);
}

/* A copy: the lane's own count, and what it comes after of the others. */
static int copy_clock(const struct symm_stream *s, size_t **counts, int *n) {
    const struct symm_lane *lane = &capture_of((struct symm_stream *)s)->graph->lanes[s->lane];
    *n = lane->before.n > s->lane ? lane->before.n : s->lane + 1;
    *counts = SYMM_FAIL_ALLOC(capture_point, calloc((size_t)*n, sizeof **counts));
    if (!*counts) return -1;
    for (int i = 0; i < *n; i++) (*counts)[i] = clock_at(&lane->before, i);
    (*counts)[s->lane] = lane->tasks;
    return 0;
}

int symm_stream_capture_clock(symmStream_t stream, size_t **counts, int *n) {
    struct symm_stream *s = symm_handle_get(SYMM_KIND_STREAM, stream);
    if (!s) return -1;
    symm_handle_lock();
    int r = capture_of(s) ? copy_clock(s, counts, n) : -1;
    symm_handle_unlock();
    symm_stream_unpin(s);
    return r;
}

/* Puts *record into the list of the stream's capture and sets it to NULL, unless the list is of
 * users to tell and has it already. 0: there is no capture. */
static int take_hold(struct symm_stream *s, struct symm_hold **record) {
    struct symm_hold *h = *record;
    symm_handle_lock();
    struct symm_capture *c = capture_of(s);
    if (c && !(h->user.begin && symm_graph_told(c->graph, h->obj, &h->user))) {
        struct symm_hold **list = h->user.begin ? &c->graph->told : &c->graph->held;
        h->next = *list;
        *list = h;
        *record = NULL;
    }
    symm_handle_unlock();
    return c != NULL;
}

symmResult_t symm_stream_capture_hold(symmStream_t stream, void *obj, const symm_graph_user *user) {
    struct symm_stream *s = symm_handle_get(SYMM_KIND_STREAM, stream);
    int taken = 0;
    struct symm_hold *h = SYMM_FAIL_ALLOC(capture_hold, malloc(sizeof *h));
    symmResult_t status =
        h ? symmSuccess
          : SYMM_ERR(symmOutOfMemory, "stream %p: no memory to record a call", (void *)stream);
    if (h && s) {
        *h = (struct symm_hold){NULL, obj, *user};
        user->retain(obj); /* first: another thread may end the capture as soon as it is in */
        taken = take_hold(s, &h);
        if (h) user->release(obj);
    }
    if (!status && !taken)
        status = SYMM_ERR(symmInvalidUsage, "stream %p is not under capture", (void *)stream);
    if (s) symm_stream_unpin(s);
    free(h);
    return status;
}

static symmResult_t append(struct symm_capture *c, struct symm_stream *s,
                           const struct symm_step *step) {
    struct symm_lane *lane = &c->graph->lanes[s->lane];
    if (symm_graph_reserve(lane, 1)) return out_of_memory(c, s);
    lane->steps[lane->n++] = *step;
    if (step->task.fn) lane->tasks++;
    SYMM_CHECK(capture_check(c, s));
    return symmSuccess;
}

int symm_capture_record(struct symm_stream *s, const struct symm_step *step, symmResult_t *status) {
    symm_handle_lock();
    struct symm_capture *c = capture_of(s);
    if (c) *status = append(c, s, step);
    symm_handle_unlock();
    return c != NULL;
}

int symm_capture_event(struct symm_stream *s, struct symm_capture_mark *mark,
                       symmResult_t *status) {
    symm_handle_lock();
    struct symm_capture *c = capture_of(s);
    if (c) {
        const struct symm_lane *lane = &c->graph->lanes[s->lane];
        int n = lane->before.n > s->lane ? lane->before.n : s->lane + 1;
        struct symm_clock before = {NULL, 0}; /* the event's may be of a capture with more lanes */
        if (clock_reserve(&before, n)) {
            *status = out_of_memory(c, s);
        } else {
            for (int i = 0; i < n; i++) before.tasks[i] = clock_at(&lane->before, i);
            before.tasks[s->lane] = lane->tasks;
            clock_free(&mark->before);
            mark->before = before;
            mark->capture = c->id;
            mark->lane = s->lane;
            mark->steps = lane->n;
            *status = symmSuccess;
        }
    }
    symm_handle_unlock();
    return c != NULL;
}

/* Makes s a lane of c. */
static symmResult_t enter(struct symm_capture *c, struct symm_stream *s) {
    SYMM_ASSERT(!capture_of(s));
    if (!symm_handle_open(SYMM_KIND_STREAM, s->handle))
        return SYMM_ERR(symmInvalidArgument, "stream: %p is being destroyed", (void *)s->handle);
    int lane = symm_graph_add_lane(c->graph, s);
    if (lane < 0) return out_of_memory(c, s);
    s->lane = lane;
    atomic_store_explicit(&s->capture, c, memory_order_relaxed);
    return symmSuccess;
}

static symmResult_t join(struct symm_stream *s, const struct symm_capture_mark *mark) {
    struct symm_capture *c = captures, *other = capture_of(s);
    while (c && c->id != mark->capture) c = c->next;
    if (!c)
        return SYMM_ERR(
            symmInvalidUsage,
            "symmStreamWaitEvent: the event was last recorded inside a capture that has "
            "ended: record it again");
    if (other && other != c)
        return SYMM_ERR(
            symmInvalidUsage,
            "symmStreamWaitEvent: stream %p and the event are of two different captures",
            (void *)s->handle);
    if (!other) SYMM_TRY(enter(c, s));
    SYMM_ASSERT(mark->lane < c->graph->nlanes && mark->steps <= c->graph->lanes[mark->lane].n);
    SYMM_ASSERT(mark->before.n > mark->lane && mark->before.n <= c->graph->nlanes);
    if (s->lane == mark->lane) return symmSuccess;
    struct symm_step wait = {.lane = mark->lane, .upto = mark->steps};
    if (clock_merge(&c->graph->lanes[s->lane].before, &mark->before)) return out_of_memory(c, s);
    return append(c, s, &wait);
}

symmResult_t symm_capture_join(struct symm_stream *s, const struct symm_capture_mark *mark) {
    symm_handle_lock();
    symmResult_t status = join(s, mark);
    symm_handle_unlock();
    return status;
}

symmResult_t symm_stream_follow_captured(symmStream_t stream, symmStream_t last) {
    struct symm_stream *s = NULL, *from = NULL;
    struct symm_capture_mark mark = {.capture = 0};
    symmResult_t status = symmSuccess;
    SYMM_TRY(symm_stream_pin(stream, &s));
    SYMM_TRY_GOTO(symm_stream_pin(last, &from), unpin);
    if (symm_capture_event(from, &mark, &status) && !status) status = symm_capture_join(s, &mark);
    clock_free(&mark.before);
    symm_stream_unpin(from);
unpin:
    symm_stream_unpin(s);
    return status;
}

/* ---- a graph launched into a capture --------------------------------------------------------- */

/* Lane 0 of the copy continues the stream's lane; the others become new lanes of the capture,
 * `first` onwards. */
static int place(int lane, int into, int first) {
    return lane == 0 ? into : first + lane - 1;
}

/* Everything that copy_lanes needs, so that it cannot fail half way. -1: no memory; unused lanes do
 * no harm. */
static int make_room(struct symm_graph *to, int into, const struct symm_graph *from) {
    int first = to->nlanes;
    struct symm_hold *told = NULL, *held = NULL;
    if (symm_graph_copy_holds(from->told, &told)) goto free_holds;
    if (symm_graph_copy_holds(from->held, &held)) goto free_holds;
    for (int i = 1; i < from->nlanes; i++)
        if (symm_graph_add_lane(to, NULL) < 0) goto free_holds;
    for (int i = 0; i < from->nlanes; i++)
        if (symm_graph_reserve(&to->lanes[place(i, into, first)], from->lanes[i].n))
            goto free_holds;
    if (clock_reserve(&to->lanes[into].before, to->nlanes)) goto free_holds;
    symm_graph_take_holds(&to->told, told);
    symm_graph_take_holds(&to->held, held);
    return 0;
free_holds:
    symm_graph_drop_holds(told);
    symm_graph_drop_holds(held);
    return -1;
}

static void copy_lanes(struct symm_graph *to, int into, const struct symm_graph *from) {
    int first = to->nlanes - (from->nlanes - 1);
    SYMM_ASSERT(first > into && to->lanes[into].before.n == to->nlanes);
    size_t base = to->lanes[into].n; /* step 0 of the copy's lane 0 */
    for (int i = 0; i < from->nlanes; i++) {
        struct symm_lane *lane = &to->lanes[place(i, into, first)];
        for (size_t k = 0; k < from->lanes[i].n; k++) {
            struct symm_step *step = &lane->steps[lane->n++];
            *step = from->lanes[i].steps[k];
            if (step->task.fn) continue;
            if (step->lane == 0) step->upto += base;
            step->lane = place(step->lane, into, first);
        }
        lane->tasks += from->lanes[i].tasks;
        /* a sealed graph is joined: after its lane 0 comes nothing of the others */
        if (i) to->lanes[into].before.tasks[first + i - 1] = lane->tasks;
    }
}

/* g does not change and is not freed meanwhile: the caller holds it as a replay would. */
int symm_capture_copy(struct symm_stream *s, struct symm_graph *g, symmResult_t *status) {
    symm_graph_retain(g);
    symm_handle_lock();
    struct symm_capture *c = capture_of(s);
    symmResult_t result = symmSuccess;
    if (c && make_room(c->graph, s->lane, g)) result = out_of_memory(c, s);
    if (c && result == symmSuccess) {
        copy_lanes(c->graph, s->lane, g);
        SYMM_CHECK(capture_check(c, s));
    }
    symm_handle_unlock();
    if (!c || result) symm_graph_release(g);
    if (c) *status = result;
    return c != NULL;
}

/* ---- begin and end --------------------------------------------------------------------------- */

static symmResult_t begin(struct symm_stream *s, struct symm_capture *c) {
    if (capture_of(s))
        return SYMM_ERR(symmInvalidUsage,
                        "symmStreamBeginCapture: stream %p is under capture already",
                        (void *)s->handle);
    SYMM_TRY(enter(c, s));
    c->id = c->graph->capture = ++last_id;
    c->next = captures;
    captures = c;
    return symmSuccess;
}

symmResult_t symmStreamBeginCapture(symmStream_t stream) {
    struct symm_stream *s = NULL;
    symmResult_t status = symmSuccess;
    if (!stream)
        return SYMM_ERR(symmInvalidUsage,
                        "symmStreamBeginCapture: the NULL stream cannot be captured");
    SYMM_TRY(symm_stream_pin(stream, &s));
    struct symm_capture *c = SYMM_FAIL_ALLOC(capture_alloc, calloc(1, sizeof *c));
    if (c) c->graph = symm_graph_new();
    if (!c || !c->graph) {
        status = SYMM_ERR(symmOutOfMemory, "symmStreamBeginCapture: no memory");
        goto free_capture;
    }
    symm_handle_lock();
    status = begin(s, c);
    symm_handle_unlock();
    if (status) goto discard_graph;
    symm_stream_unpin(s);
    return symmSuccess;
discard_graph:
    symm_graph_discard(c->graph);
free_capture:
    free(c);
    symm_stream_unpin(s);
    return status;
}

/* NULL, or the lane with a task that the first lane does not come after. */
static const struct symm_lane *unjoined(const struct symm_graph *g) {
    for (int i = 1; i < g->nlanes; i++)
        if (clock_at(&g->lanes[0].before, i) < g->lanes[i].tasks) return &g->lanes[i];
    return NULL;
}

static void detach(struct symm_capture *c) {
    for (struct symm_capture **p = &captures; *p; p = &(*p)->next)
        if (*p == c) {
            *p = c->next;
            break;
        }
    for (int i = 0; i < c->graph->nlanes; i++) {
        struct symm_lane *lane = &c->graph->lanes[i];
        SYMM_ASSERT(!lane->stream || (capture_of(lane->stream) == c && lane->stream->lane == i));
        if (lane->stream) atomic_store_explicit(&lane->stream->capture, NULL, memory_order_relaxed);
        lane->stream = NULL;
        clock_free(&lane->before);
    }
}

/* Takes the capture off its streams: the caller owns *ended, also if it cannot become a graph
 * (*fault). */
static symmResult_t finish(struct symm_stream *s, struct symm_capture **ended,
                           symmResult_t *fault) {
    struct symm_capture *c = capture_of(s);
    if (!c)
        return SYMM_ERR(symmInvalidUsage, "symmStreamEndCapture: stream %p is not under capture",
                        (void *)s->handle);
    if (s->lane != 0)
        return SYMM_ERR(symmInvalidUsage,
                        "symmStreamEndCapture: stream %p joined a capture that began on stream %p: "
                        "end it there",
                        (void *)s->handle, (void *)c->graph->lanes[0].stream->handle);
    const struct symm_lane *open = unjoined(c->graph);
    *fault = symmSuccess;
    if (c->failed)
        *fault =
            SYMM_ERR(symmOutOfMemory,
                     "symmStreamEndCapture: memory ran out during the capture of stream %p; it "
                     "is discarded",
                     (void *)s->handle);
    else if (open)
        *fault = SYMM_ERR(symmInvalidUsage,
                          "symmStreamEndCapture: unjoined work: the capture of stream %p does not "
                          "wait for the last call on stream %p; it is discarded",
                          (void *)s->handle, open->stream ? (void *)open->stream->handle : NULL);
    detach(c);
    *ended = c;
    return symmSuccess;
}

static symmResult_t end(struct symm_stream *s, symmGraph_t *graph) {
    struct symm_capture *c = NULL;
    symmResult_t fault = symmSuccess;
    symm_handle_lock();
    symmResult_t status = finish(s, &c, &fault);
    symm_handle_unlock();
    SYMM_TRY(status);
    if (fault == symmSuccess) fault = symm_graph_seal(c->graph, graph);
    if (fault) symm_graph_discard(c->graph);
    free(c);
    return fault;
}

symmResult_t symmStreamEndCapture(symmStream_t stream, symmGraph_t *graph) {
    struct symm_stream *s = NULL;
    if (!graph) return SYMM_ERR(symmInvalidArgument, "symmStreamEndCapture: graph is NULL");
    if (!stream)
        return SYMM_ERR(symmInvalidUsage,
                        "symmStreamEndCapture: the NULL stream cannot be captured");
    SYMM_TRY(symm_stream_pin(stream, &s));
    symmResult_t status = end(s, graph);
    symm_stream_unpin(s);
    return status;
}
