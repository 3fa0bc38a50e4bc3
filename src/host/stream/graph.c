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

#ifdef SYMM_TESTING
static void check_steps(const struct symm_graph *g, const struct symm_lane *lane) {
    size_t tasks = 0;
    for (size_t k = 0; k < lane->n; k++) {
        const struct symm_step *step = &lane->steps[k];
        tasks += step->task.fn != NULL;
        if (step->task.fn) continue;
        SYMM_ASSERT(step->lane >= 0 && step->lane < g->nlanes && &g->lanes[step->lane] != lane);
        SYMM_ASSERT(step->upto <= g->lanes[step->lane].n);
    }
    SYMM_ASSERT(lane->tasks == tasks);
}

void symm_graph_check(const struct symm_graph *g, int steps) {
    enum { LANES = 8 };
    SYMM_ASSERT(g->nlanes > 0 && g->threads >= 0 && g->threads < g->nlanes);
    SYMM_ASSERT(g->users >= 0 && g->copies >= 0);
    SYMM_ASSERT(g->serving <= g->started && g->started <= g->serving + 1);
    SYMM_ASSERT(g->started <= g->tickets);
    for (int i = 0; i < g->nlanes && (steps || i < LANES); i++) {
        SYMM_ASSERT(g->lanes[i].n <= g->lanes[i].cap);
        SYMM_ASSERT(g->lanes[i].done <= g->started * g->lanes[i].n);
        SYMM_ASSERT(!g->lanes[i].stream || !g->threads); /* its capture has ended */
        if (steps) check_steps(g, &g->lanes[i]);
    }
}
#endif

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
    for (const struct symm_hold *h = g->told; h; h = h->next) h->user.retain(h->obj);
    for (const struct symm_hold *h = g->held; h; h = h->next) h->user.retain(h->obj);
}

void symm_graph_release(const struct symm_graph *g) {
    for (const struct symm_hold *h = g->told; h; h = h->next) h->user.release(h->obj);
    for (const struct symm_hold *h = g->held; h; h = h->next) h->user.release(h->obj);
}

int symm_graph_copy_holds(const struct symm_hold *from, struct symm_hold **copies) {
    for (const struct symm_hold *h = from; h; h = h->next) {
        struct symm_hold *copy = SYMM_FAIL_ALLOC(graph_hold, malloc(sizeof *copy));
        if (!copy) return -1;
        *copy = *h;
        copy->next = *copies;
        *copies = copy;
    }
    return 0;
}

void symm_graph_take_holds(struct symm_hold **list, struct symm_hold *more) {
    while (*list) list = &(*list)->next;
    *list = more;
}

int symm_graph_told(const struct symm_graph *g, const void *obj, const symm_graph_user *user) {
    const struct symm_hold *h = g->told;
    while (h && ((obj && h->obj != obj) || h->user.begin != user->begin)) h = h->next;
    return h != NULL;
}

void symm_graph_drop_holds(struct symm_hold *holds) {
    while (holds) {
        struct symm_hold *next = holds->next;
        free(holds);
        holds = next;
    }
}

static void free_graph(struct symm_graph *g) {
    SYMM_ASSERT(!g->threads && !g->users && !g->copies && g->serving == g->tickets);
    symm_graph_drop_holds(g->told);
    symm_graph_drop_holds(g->held);
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

/* Waits until the lane has done `upto` steps of this replay. It cannot hang, because the capture
 * recorded those steps first. */
static void wait_lane(struct symm_graph *g, const struct symm_lane *lane, uint64_t ticket,
                      size_t upto) {
    pthread_mutex_lock(&g->lock);
    while (lane->done < ticket * lane->n + upto) pthread_cond_wait(&g->moved, &g->lock);
    pthread_mutex_unlock(&g->lock);
}

static void count_step(struct symm_graph *g, struct symm_lane *lane) {
    pthread_mutex_lock(&g->lock);
    lane->done++;
    SYMM_ASSERT(lane->done <= g->started * lane->n);
    pthread_cond_broadcast(&g->moved);
    pthread_mutex_unlock(&g->lock);
}

/* A failed step does not stop the later ones: as with eager calls, peers are about to run them
 * too. */
static void run_lane(struct symm_graph *g, struct symm_lane *lane, uint64_t ticket) {
    struct frame frame = {g, frames};
    const int depth = symm_stream_depth;
    frames = &frame;
    symm_stream_depth = depth + 1;
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
    symm_stream_depth = depth; /* a step that has forked made it 0 in the child */
    frames = frame.outer;
}

int symm_graph_replays_here(const struct symm_graph *g) {
    const struct frame *f = frames;
    while (f && f->graph != g) f = f->outer;
    return f != NULL;
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

symmResult_t symm_graph_replay(struct symm_graph *g, uint64_t ticket) {
    pthread_mutex_lock(&g->lock);
    SYMM_ASSERT(ticket < g->tickets && g->serving <= ticket);
    while (g->serving != ticket) pthread_cond_wait(&g->moved, &g->lock);
    g->started = ticket + 1;
    SYMM_CHECK(symm_graph_check(g, 0));
    if (g->threads) pthread_cond_broadcast(&g->moved);
    pthread_mutex_unlock(&g->lock);
    run_lane(g, &g->lanes[0], ticket);
    for (int i = 1; i < g->nlanes; i++) wait_lane(g, &g->lanes[i], ticket, g->lanes[i].n);
    pthread_mutex_lock(&g->lock);
    symmResult_t error = g->error;
    g->error = symmSuccess;
    if (error) symm_status_adopt(g->error_text);
    SYMM_ASSERT(g->serving == ticket && g->started == ticket + 1);
    g->serving = ticket + 1;
    SYMM_CHECK(symm_graph_check(g, 0));
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
        symm_stat_threads(-1);
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
    if (status) atomic_fetch_sub(&g->refs, 1);
    return status;
}

/* A user keeps the lanes' threads and what the graph holds. 0: the last one has gone. */
static int take_user(struct symm_graph *g) {
    pthread_mutex_lock(&g->lock);
    const int open = g->users > 0;
    g->users += open;
    pthread_mutex_unlock(&g->lock);
    return open;
}

/* The last one ends the lanes' threads and lets go of what the graph kept. */
static void drop_user(struct symm_graph *g) {
    pthread_mutex_lock(&g->lock);
    SYMM_ASSERT(g->users > 0);
    const int last = --g->users == 0;
    SYMM_CHECK(symm_graph_check(g, 0));
    pthread_mutex_unlock(&g->lock);
    if (!last) return;
    stop_lanes(g);
    symm_graph_release(g);
}

static void close_handle(struct symm_graph *g, int kind, const void *handle) {
    SYMM_ASSERT(atomic_load(&g->refs) > 0);
    drop_user(g);
    symm_handle_put(kind, handle);
}

symmResult_t symm_graph_seal(struct symm_graph *g, symmGraph_t *handle) {
    void *made;
    for (int i = 1; i < g->nlanes; i++) {
        SYMM_TRY(symm_stream_thread(&g->lanes[i].thread, lane_worker, &g->lanes[i], "symm-graph"));
        g->threads++;
    }
    SYMM_TRY(open_handle(g, SYMM_KIND_GRAPH, &made));
    g->users = 1; /* nobody else has the handle yet */
    SYMM_CHECK(symm_graph_check(g, 1));
    SYMM_ASSERT(g->capture && !g->tickets && g->threads == g->nlanes - 1);
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

symmResult_t symm_graph_pin_exec(const char *call, symmGraphExec_t handle,
                                 struct symm_graph **out) {
    struct symm_graph *found = symm_handle_get(SYMM_KIND_EXEC, handle);
    if (!found)
        return SYMM_ERR(symmInvalidArgument,
                        "%s: exec=%p is not a live executable of a host graph "
                        "(symmGraphInstantiate)",
                        call, (void *)handle);
    *out = found;
    return symmSuccess;
}

void symm_graph_unpin_exec(symmGraphExec_t exec) {
    symm_handle_put(SYMM_KIND_EXEC, exec);
}

symmResult_t symm_graph_being_destroyed(const void *handle) {
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
    const int told = symm_graph_told(g, obj, user);
    symm_graph_unpin_exec(exec);
    return told;
}

symmResult_t symmGraphInstantiate(symmGraph_t graph, symmGraphExec_t *exec) {
    struct symm_graph *g = NULL;
    void *made;
    if (!exec) return SYMM_ERR(symmInvalidArgument, "symmGraphInstantiate: exec is NULL");
    SYMM_TRY(pin_graph("symmGraphInstantiate", graph, &g));
    /* A user first: another thread may close the graph's handle meanwhile. */
    const int open = take_user(g);
    symmResult_t status =
        open ? open_handle(g, SYMM_KIND_EXEC, &made) : symm_graph_being_destroyed(graph);
    if (open && status) drop_user(g);
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
        status = symm_graph_being_destroyed(graph);
    symm_handle_put(SYMM_KIND_GRAPH, graph);
    return status;
}

symmResult_t symmGraphExecDestroy(symmGraphExec_t exec) {
    struct symm_graph *g = NULL;
    SYMM_TRY(symm_stream_may_wait("symmGraphExecDestroy"));
    SYMM_TRY(symm_graph_pin_exec("symmGraphExecDestroy", exec, &g));
    if (!symm_handle_close(SYMM_KIND_EXEC, exec)) {
        symmResult_t status = symm_graph_being_destroyed(exec);
        symm_graph_unpin_exec(exec);
        return status;
    }
    pthread_mutex_lock(&g->lock);
    g->closed = 1;
    const uint64_t tickets = g->tickets; /* no later one is of this executable: it is closed */
    while (g->serving < tickets || g->copies) pthread_cond_wait(&g->moved, &g->lock);
    pthread_mutex_unlock(&g->lock);
    close_handle(g, SYMM_KIND_EXEC, exec);
    symm_graph_unpin_exec(exec);
    return symmSuccess;
}
