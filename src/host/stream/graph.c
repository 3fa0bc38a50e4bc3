/* graph.c - recorded work and its replay.
 * Any thread launches; `lane_worker` runs in a thread of each lane but the first, which a graph has
 * only if other streams joined its capture. Lock: the graph's; never while a step runs, nor while
 * objects are retained or released. Replays of one graph run one by one, in the order of their
 * launches: each launch takes a ticket. An executable is one more handle of the graph's record: the
 * last handle that is closed, of either kind, ends it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/stats.h"
#include "stream_int.h"

/* The graphs whose steps this thread is running, innermost first. */
struct frame {
    const struct symm_graph *graph;
    const struct frame *outer;
};
static _Thread_local const struct frame *frames;

/* ---- building -------------------------------------------------------------------------------- */

struct symm_graph *symm_graph_new(void) {
    struct symm_graph *g = SYMM_FAIL_ALLOC(graph_alloc, calloc(1, sizeof *g));
    if (!g) return NULL;
    pthread_mutex_init(&g->lock, NULL);
    pthread_cond_init(&g->moved, NULL);
    return g;
}

int symm_graph_add_lane(struct symm_graph *g, struct symm_stream *stream) {
    struct symm_lane *lanes =
        SYMM_FAIL_ALLOC(graph_lane, realloc(g->lanes, ((size_t)g->nlanes + 1) * sizeof *lanes));
    if (!lanes) return -1;
    g->lanes = lanes;
    lanes[g->nlanes] = (struct symm_lane){.stream = stream, .graph = g};
    return g->nlanes++;
}

int symm_graph_reserve(struct symm_lane *lane, size_t n) {
    if (lane->cap - lane->n >= n) return 0;
    size_t cap = lane->cap + (lane->cap / 2 > n ? lane->cap / 2 : n);
    struct symm_step *steps;
    if (SYMM_FAIL_CODE(
            graph_steps, ENOMEM,
            posix_memalign((void **)&steps, _Alignof(struct symm_step), cap * sizeof *steps)))
        return -1;
    if (lane->n) memcpy(steps, lane->steps, lane->n * sizeof *steps);
    free(lane->steps);
    lane->steps = steps;
    lane->cap = cap;
    return 0;
}

void symm_graph_retain(const struct symm_graph *g) {
    for (int i = 0; i < g->nlanes; i++)
        for (size_t k = 0; k < g->lanes[i].n; k++) {
            const struct symm_step *step = &g->lanes[i].steps[k];
            if (step->retain) step->retain(step->obj);
        }
    for (const struct symm_hold *h = g->holds; h; h = h->next) h->user.retain(h->obj);
}

void symm_graph_release(const struct symm_graph *g) {
    for (int i = 0; i < g->nlanes; i++)
        for (size_t k = 0; k < g->lanes[i].n; k++) {
            const struct symm_step *step = &g->lanes[i].steps[k];
            if (step->release) step->release(step->obj);
        }
    for (const struct symm_hold *h = g->holds; h; h = h->next) h->user.release(h->obj);
}

int symm_graph_copy_holds(const struct symm_graph *from, struct symm_hold **holds) {
    *holds = NULL;
    for (const struct symm_hold *h = from->holds; h; h = h->next) {
        struct symm_hold *copy = SYMM_FAIL_ALLOC(graph_hold, malloc(sizeof *copy));
        if (!copy) {
            symm_graph_drop_holds(*holds);
            return -1;
        }
        *copy = *h;
        copy->next = *holds;
        *holds = copy;
    }
    return 0;
}

void symm_graph_take_holds(struct symm_graph *to, struct symm_hold *holds) {
    struct symm_hold **end = &to->holds;
    while (*end) end = &(*end)->next;
    *end = holds;
}

void symm_graph_drop_holds(struct symm_hold *holds) {
    while (holds) {
        struct symm_hold *next = holds->next;
        free(holds);
        holds = next;
    }
}

static void free_graph(struct symm_graph *g) {
    symm_graph_drop_holds(g->holds);
    for (int i = 0; i < g->nlanes; i++) {
        free(g->lanes[i].steps);
        free(g->lanes[i].before.tasks);
    }
    free(g->lanes);
    pthread_cond_destroy(&g->moved);
    pthread_mutex_destroy(&g->lock);
    free(g);
}

/* ---- replay ---------------------------------------------------------------------------------- */

static symmResult_t run_step(const struct symm_step *step) {
    _Alignas(64) unsigned char
        args[SYMM_TASK_BYTES]; /* the task may change its arguments, the record stays */
    memcpy(args, step->task.args, step->task.bytes);
    return step->task.fn(args);
}

static void note_error(struct symm_graph *g, symmResult_t error) {
    pthread_mutex_lock(&g->lock);
    if (g->error == symmSuccess) {
        g->error = error;
        snprintf(g->error_text, sizeof g->error_text, "%s", symm_status_text());
    }
    pthread_mutex_unlock(&g->lock);
}

/* Waits until the lane has done `upto` steps of this replay. Cannot hang: the capture recorded
 * those steps first. */
static void wait_lane(struct symm_graph *g, const struct symm_lane *lane, uint64_t ticket,
                      size_t upto) {
    pthread_mutex_lock(&g->lock);
    while (lane->done < ticket * lane->n + upto) pthread_cond_wait(&g->moved, &g->lock);
    pthread_mutex_unlock(&g->lock);
}

static void count_step(struct symm_graph *g, struct symm_lane *lane) {
    pthread_mutex_lock(&g->lock);
    lane->done++;
    pthread_cond_broadcast(&g->moved);
    pthread_mutex_unlock(&g->lock);
}

/* A failed step does not keep the later ones from running: as with eager calls, peers are about to
 * run them too. */
static void run_lane(struct symm_graph *g, struct symm_lane *lane, uint64_t ticket) {
    struct frame frame = {g, frames};
    frames = &frame;
    symm_stream_depth++;
    for (size_t k = 0; k < lane->n; k++) {
        const struct symm_step *step = &lane->steps[k];
        symmResult_t result = symmSuccess;
        if (step->task.fn)
            result = run_step(step);
        else
            wait_lane(g, &g->lanes[step->lane], ticket, step->upto);
        if (result) note_error(g, result);
        if (g->threads) count_step(g, lane);
    }
    symm_stream_depth--;
    frames = frame.outer;
}

static void *lane_worker(void *arg) {
    struct symm_lane *lane = arg;
    struct symm_graph *g = lane->graph;
    for (uint64_t ticket = 0;; ticket++) {
        pthread_mutex_lock(&g->lock);
        while (g->started == ticket && !g->stop) pthread_cond_wait(&g->moved, &g->lock);
        int stop = g->started == ticket;
        pthread_mutex_unlock(&g->lock);
        if (stop) return NULL;
        run_lane(g, lane, ticket);
    }
}

/* Runs the replay of this ticket, once its turn has come, and gives the turn to the next. */
static symmResult_t replay(struct symm_graph *g, uint64_t ticket) {
    pthread_mutex_lock(&g->lock);
    while (g->serving != ticket) pthread_cond_wait(&g->moved, &g->lock);
    g->started = ticket + 1;
    if (g->threads) pthread_cond_broadcast(&g->moved);
    pthread_mutex_unlock(&g->lock);
    run_lane(g, &g->lanes[0], ticket);
    for (int i = 1; i < g->nlanes; i++) wait_lane(g, &g->lanes[i], ticket, g->lanes[i].n);
    pthread_mutex_lock(&g->lock);
    symmResult_t error = g->error;
    g->error = symmSuccess;
    if (error) symm_status_adopt(g->error_text);
    g->serving = ticket + 1;
    pthread_cond_broadcast(&g->moved);
    pthread_mutex_unlock(&g->lock);
    return error;
}

/* ---- life ------------------------------------------------------------------------------------ */

static void stop_lanes(struct symm_graph *g) {
    pthread_mutex_lock(&g->lock);
    g->stop = 1;
    pthread_cond_broadcast(&g->moved);
    pthread_mutex_unlock(&g->lock);
    for (; g->threads; g->threads--) {
        pthread_join(g->lanes[g->threads].thread, NULL);
        SYMM_STAT_ADD(threads, -1);
    }
}

/* A slot of a handle is free. */
static void put_graph(void *obj) {
    struct symm_graph *g = obj;
    if (atomic_fetch_sub(&g->refs, 1) == 1) free_graph(g);
}

static symmResult_t open_handle(struct symm_graph *g, int kind, void **handle) {
    atomic_fetch_add(&g->refs, 1);
    symmResult_t status = symm_handle_new(kind, g, put_graph, handle);
    if (status) {
        atomic_fetch_sub(&g->refs, 1);
        return status;
    }
    pthread_mutex_lock(&g->lock);
    g->users++;
    pthread_mutex_unlock(&g->lock);
    return symmSuccess;
}

/* The last one ends the lanes' threads and lets go of what the graph kept. */
static void close_handle(struct symm_graph *g, int kind, const void *handle) {
    pthread_mutex_lock(&g->lock);
    const int last = --g->users == 0;
    pthread_mutex_unlock(&g->lock);
    if (last) {
        stop_lanes(g);
        symm_graph_release(g);
    }
    symm_handle_put(kind, handle);
}

symmResult_t symm_graph_seal(struct symm_graph *g, symmGraph_t *handle) {
    void *made;
    for (int i = 1; i < g->nlanes; i++) {
        SYMM_TRY(symm_stream_thread(&g->lanes[i].thread, lane_worker, &g->lanes[i], "symm-graph"));
        g->threads++;
    }
    SYMM_TRY(open_handle(g, SYMM_KIND_GRAPH, &made));
    g->handle = made;
    *handle = g->handle;
    return symmSuccess;
}

void symm_graph_discard(struct symm_graph *g) {
    stop_lanes(g);
    symm_graph_release(g);
    free_graph(g);
}

static symmResult_t pin_graph(const char *call, symmGraph_t handle, struct symm_graph **out) {
    struct symm_graph *found = symm_handle_get(SYMM_KIND_GRAPH, handle);
    if (!found)
        return SYMM_ERR(symmInvalidArgument, "%s: graph=%p is not a live host graph", call,
                        (void *)handle);
    *out = found;
    return symmSuccess;
}

static symmResult_t pin_exec(const char *call, symmGraphExec_t handle, struct symm_graph **out) {
    struct symm_graph *found = symm_handle_get(SYMM_KIND_EXEC, handle);
    if (!found)
        return SYMM_ERR(symmInvalidArgument,
                        "%s: exec=%p is not a live executable of a host graph "
                        "(symmGraphInstantiate)",
                        call, (void *)handle);
    *out = found;
    return symmSuccess;
}

static void unpin(symmGraphExec_t exec) {
    symm_handle_put(SYMM_KIND_EXEC, exec);
}

static symmResult_t being_destroyed(const void *handle) {
    return SYMM_ERR(symmInvalidArgument, "graph: %p is being destroyed", handle);
}

uint64_t symm_graph_capture(symmGraph_t graph) {
    const struct symm_graph *g = symm_handle_get(SYMM_KIND_GRAPH, graph);
    uint64_t id = g ? g->capture : 0;
    if (g) symm_handle_put(SYMM_KIND_GRAPH, graph);
    return id;
}

int symm_graph_tells(symmGraphExec_t exec, const void *obj, const symm_graph_user *user) {
    const struct symm_graph *g = symm_handle_get(SYMM_KIND_EXEC, exec);
    if (!g) return -1;
    const struct symm_hold *h = g->holds;
    while (h && ((obj && h->obj != obj) || h->user.begin != user->begin)) h = h->next;
    unpin(exec);
    return h != NULL;
}

symmResult_t symmGraphInstantiate(symmGraph_t graph, symmGraphExec_t *exec) {
    struct symm_graph *g = NULL;
    void *made;
    if (!exec) return SYMM_ERR(symmInvalidArgument, "symmGraphInstantiate: exec is NULL");
    SYMM_TRY(pin_graph("symmGraphInstantiate", graph, &g));
    symmResult_t status = open_handle(g, SYMM_KIND_EXEC, &made);
    symm_handle_put(SYMM_KIND_GRAPH, graph);
    if (status == symmSuccess) *exec = made;
    return status;
}

/* Waits for nothing: whatever runs belongs to an executable. */
symmResult_t symmGraphDestroy(symmGraph_t graph) {
    struct symm_graph *g = NULL;
    SYMM_TRY(symm_stream_may_wait("symmGraphDestroy"));
    SYMM_TRY(pin_graph("symmGraphDestroy", graph, &g));
    symmResult_t status = symmSuccess;
    if (symm_handle_close(SYMM_KIND_GRAPH, graph))
        close_handle(g, SYMM_KIND_GRAPH, graph);
    else
        status = being_destroyed(graph);
    symm_handle_put(SYMM_KIND_GRAPH, graph);
    return status;
}

symmResult_t symmGraphExecDestroy(symmGraphExec_t exec) {
    struct symm_graph *g = NULL;
    SYMM_TRY(symm_stream_may_wait("symmGraphExecDestroy"));
    SYMM_TRY(pin_exec("symmGraphExecDestroy", exec, &g));
    if (!symm_handle_close(SYMM_KIND_EXEC, exec)) {
        symmResult_t status = being_destroyed(exec);
        unpin(exec);
        return status;
    }
    pthread_mutex_lock(&g->lock);
    const uint64_t tickets = g->tickets; /* no later one is of this executable: it is closed */
    while (g->serving < tickets || g->copies) pthread_cond_wait(&g->moved, &g->lock);
    pthread_mutex_unlock(&g->lock);
    close_handle(g, SYMM_KIND_EXEC, exec);
    unpin(exec);
    return symmSuccess;
}

/* ---- launching ------------------------------------------------------------------------------- */

struct replay_task {
    struct symm_graph *graph;
    symmGraphExec_t exec; /* pinned */
    uint64_t ticket;
};

static void tell_end(const struct symm_graph *g, const struct symm_hold *upto) {
    for (const struct symm_hold *h = g->holds; h != upto; h = h->next)
        if (h->user.end) h->user.end(h->obj);
}

/* All are told, or none. Without the graph's lock: a sealed graph's list does not change. */
static symmResult_t tell_begin(const struct symm_graph *g) {
    for (const struct symm_hold *h = g->holds; h; h = h->next) {
        symmResult_t status = h->user.begin ? h->user.begin(h->obj) : symmSuccess;
        if (status == symmSuccess) continue;
        tell_end(g, h);
        return status;
    }
    return symmSuccess;
}

static symmResult_t replay_task(void *args) {
    struct replay_task *t = args;
    symmResult_t status = replay(t->graph, t->ticket);
    tell_end(t->graph, NULL);
    unpin(t->exec);
    return status;
}

/* Asked under the graph's lock: who finds it open has a ticket before symmGraphExecDestroy, which
 * closes it first, reads the tickets that it waits for. */
static int is_open(symmGraphExec_t exec) {
    return symm_handle_open(SYMM_KIND_EXEC, exec);
}

/* Ticket and place in the queue are taken under one lock: in a stream, an earlier ticket is never
 * behind a later one, so waiting for one's turn cannot hang. */
static symmResult_t launch_queued(symmGraphExec_t exec, struct symm_stream *s) {
    symmResult_t status;
    struct symm_graph *g = symm_handle_get(SYMM_KIND_EXEC, exec);
    struct replay_task task = {g, exec, 0};
    if (!g) return being_destroyed(exec);
    SYMM_TRY_GOTO(tell_begin(g), unpin);
    pthread_mutex_lock(&g->lock);
    task.ticket = g->tickets;
    status = is_open(exec) ? symm_stream_push(s, replay_task, &task, sizeof task)
                           : being_destroyed(exec);
    if (status == symmSuccess) g->tickets++;
    pthread_mutex_unlock(&g->lock);
    if (status == symmSuccess) return symmSuccess;
    tell_end(g, NULL);
unpin:
    unpin(exec);
    return status;
}

static symmResult_t launch_captured(struct symm_graph *g, symmGraphExec_t exec,
                                    struct symm_stream *s) {
    symmResult_t status;
    for (const struct symm_hold *h = g->holds; h; h = h->next)
        if (h->user.allow) SYMM_TRY(h->user.allow(h->obj));
    pthread_mutex_lock(&g->lock);
    const int open = is_open(exec);
    if (open) g->copies++;
    pthread_mutex_unlock(&g->lock);
    if (!open) return being_destroyed(exec);
    int captured = symm_capture_copy(s, g, &status);
    pthread_mutex_lock(&g->lock);
    g->copies--;
    pthread_cond_broadcast(&g->moved);
    pthread_mutex_unlock(&g->lock);
    return captured ? status : launch_queued(exec, s);
}

static symmResult_t replay_inline(struct symm_graph *g, symmGraphExec_t exec) {
    for (const struct frame *f = frames; f; f = f->outer)
        if (f->graph == g)
            return SYMM_ERR(symmInvalidUsage,
                            "symmGraphLaunch: exec=%p is launched from inside its own replay",
                            (void *)exec);
    pthread_mutex_lock(&g->lock);
    uint64_t ticket = g->tickets;
    symmResult_t status = symmSuccess;
    if (!is_open(exec))
        status = being_destroyed(exec);
    else if (g->serving != ticket)
        status = symm_stream_may_wait("symmGraphLaunch of a graph that is running");
    if (status == symmSuccess) g->tickets++;
    pthread_mutex_unlock(&g->lock);
    SYMM_TRY(status);
    return replay(g, ticket);
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
    SYMM_TRY(pin_exec("symmGraphLaunch", exec, &g));
    symmResult_t status = stream ? launch_on(g, exec, stream) : launch_inline(g, exec);
    unpin(exec);
    return status;
}
