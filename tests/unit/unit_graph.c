/* unit_graph.c - capture of host streams, and the replay of graphs. Streams and events by
 * themselves: unit_stream.c. What a worker writes is read only behind a synchronize, except where
 * an atomic says so. */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/stats.h"
#include "base/status.h"
#include "host/stream/stream.h"
#include "graph_kit.h"
#include "t.h"

enum { LOG = 40000 };
static int log_n, log_seen[LOG];

static symmResult_t write_log(void *args) {
    int *value = args;
    log_seen[log_n++] = *value;
    *value = -1; /* a task may change its copy; the next replay must not see it */
    return symmSuccess;
}

static void give(symmStream_t s, int value) {
    T_OK(symm_stream_submit(s, write_log, &value, sizeof value));
}

static void expect_log(const int *want, int n) {
    T_EQ(log_n, n);
    for (int i = 0; i < n; i++) T_EQ(log_seen[i], want[i]);
    log_n = 0;
}

static symmStream_t new_stream(void) {
    symmStream_t s = NULL;
    T_OK(symmStreamCreate(&s));
    return s;
}

static symmEvent_t new_event(void) {
    symmEvent_t e = NULL;
    T_OK(symmEventCreate(&e));
    return e;
}

/* `to` continues behind everything given to `from` so far. */
static void order(symmStream_t from, symmStream_t to) {
    symmEvent_t e = new_event();
    T_OK(symmEventRecord(e, from));
    T_OK(symmStreamWaitEvent(to, e));
    T_OK(symmEventDestroy(e));
}

static symmGraph_t end_capture(symmStream_t s) {
    symmGraph_t g = NULL;
    T_OK(symmStreamEndCapture(s, &g));
    T_CHECK(g != NULL);
    T_EQ(symm_stream_capturing(s), 0);
    return g;
}

/* A graph that logs first, first + 1, ... */
static symmGraph_t capture_log(symmStream_t s, int first, int n) {
    T_OK(symmStreamBeginCapture(s));
    T_EQ(symm_stream_capturing(s), 1);
    for (int i = 0; i < n; i++) give(s, first + i);
    return end_capture(s);
}

struct gate {
    atomic_int reached, open;
};

static void pass_gate(void *arg) {
    struct gate *g = arg;
    atomic_store(&g->reached, 1);
    while (!atomic_load(&g->open)) sched_yield();
}

static void wait_reached(struct gate *g) {
    while (!atomic_load(&g->reached)) sched_yield();
}

/* ---- replay ---------------------------------------------------------------------------------- */

static void captured_calls_run_at_replay_only(void) {
    static const int want[] = {1, 2, 3, 1, 2, 3, 9};
    symmStream_t s = new_stream();
    symmGraph_t g = capture_log(s, 1, 3);
    T_OK(symmStreamSynchronize(s));
    expect_log(NULL, 0);
    T_OK(symmGraphLaunch(xg_exec(g), s));
    T_OK(symmGraphLaunch(xg_exec(g), s));
    give(s, 9);
    T_OK(symmStreamSynchronize(s));
    expect_log(want, 7);
    T_OK(symmGraphLaunch(xg_exec(g), NULL)); /* inline: done on return */
    expect_log(want, 3);
    T_OK(xg_destroy(g));
    T_OK(symmStreamDestroy(s));
}

static void thousands_of_replays_between_eager_tasks(void) {
    enum { ROUNDS = 4000 };
    symmStream_t s = new_stream();
    symmGraph_t g = capture_log(s, 1, 5);
    for (int i = 0; i < ROUNDS; i++) {
        T_OK(symmGraphLaunch(xg_exec(g), s));
        give(s, 100 + i);
    }
    T_OK(symmStreamSynchronize(s));
    T_EQ(log_n, 6 * ROUNDS);
    for (int i = 0; i < log_n; i++) T_EQ(log_seen[i], i % 6 < 5 ? 1 + i % 6 : 100 + i / 6);
    T_OK(xg_destroy(g));
    T_OK(symmStreamDestroy(s));
}

static void a_graph_outlives_its_stream_and_its_events(void) {
    static const int want[] = {7, 8};
    symmStream_t a = new_stream(), b = new_stream();
    symmGraph_t g = capture_log(a, 7, 2);
    T_OK(symmStreamDestroy(a));
    T_OK(symmGraphLaunch(xg_exec(g), b));
    T_OK(symmStreamSynchronize(b));
    expect_log(want, 2);
    T_OK(symmStreamDestroy(b));
    T_OK(xg_destroy(g));
}

static void an_empty_graph_does_nothing(void) {
    symmStream_t s = new_stream();
    symmGraph_t g = capture_log(s, 0, 0);
    T_OK(symmGraphLaunch(xg_exec(g), s));
    T_OK(symmGraphLaunch(xg_exec(g), NULL));
    T_OK(symmStreamSynchronize(s));
    T_OK(xg_destroy(g));
    T_OK(symmStreamDestroy(s));
}

static atomic_int inside_now, overlaps;

static void count_inside(void *arg) {
    if (atomic_fetch_add(&inside_now, 1)) atomic_fetch_add(&overlaps, 1);
    ++*(int *)arg; /* TSan: replays of one graph are ordered */
    sched_yield();
    atomic_fetch_sub(&inside_now, 1);
}

struct launcher {
    symmGraph_t graph;
    symmStream_t streams[3];
};

static void launch_many(int who, int n, void *arg) {
    struct launcher *l = arg;
    (void)n;
    for (int i = 0; i < 200; i++)
        T_OK(symmGraphLaunch(xg_exec(l->graph), l->streams[(who + i) % 3]));
}

static void replays_of_one_graph_never_overlap(void) {
    int count = 0;
    struct launcher l = {.streams = {new_stream(), new_stream(), NULL}};
    T_OK(symmStreamBeginCapture(l.streams[0]));
    T_OK(symmStreamHostFunc(l.streams[0], count_inside, &count));
    l.graph = end_capture(l.streams[0]);
    T_THREADS(3, launch_many, &l);
    T_OK(symmStreamSynchronize(l.streams[0]));
    T_OK(symmStreamSynchronize(l.streams[1]));
    T_EQ(count, 600);
    T_EQ(atomic_load(&overlaps), 0);
    T_OK(xg_destroy(l.graph));
    T_OK(symmStreamDestroy(l.streams[0]));
    T_OK(symmStreamDestroy(l.streams[1]));
}

static symmResult_t fail_with(void *args) {
    symmResult_t code = *(symmResult_t *)args;
    return SYMM_ERR(code, "made to fail with %d", (int)code);
}

static void fail(symmStream_t s, symmResult_t code) {
    T_OK(symm_stream_submit(s, fail_with, &code, sizeof code));
}

static void a_replay_runs_to_its_end_and_returns_its_first_error(void) {
    static const int want[] = {1, 2};
    T_EXPECT_WARNINGS();
    symmStream_t s = new_stream(), fork = new_stream();
    T_OK(symmStreamBeginCapture(s));
    order(s, fork);
    fail(fork, symmTimeout);
    give(fork, 1);
    order(fork, s);
    fail(s, symmRemoteError);
    give(s, 2);
    symmGraph_t g = end_capture(s);
    for (int on_worker = 0; on_worker < 2; on_worker++) {
        symm_status_adopt("something else");
        if (on_worker) T_OK(symmGraphLaunch(xg_exec(g), s));
        T_ERR(on_worker ? symmStreamSynchronize(s) : symmGraphLaunch(xg_exec(g), NULL),
              symmTimeout);
        T_MSG(symmGetLastError(NULL), "made to fail with 8");
        expect_log(want, 2);
    }
    T_OK(symmStreamSynchronize(s));
    T_OK(xg_destroy(g));
    T_OK(symmStreamDestroy(s));
    T_OK(symmStreamDestroy(fork));
}

static void *open_later(void *arg) {
    usleep(20000);
    atomic_store(&((struct gate *)arg)->open, 1);
    return NULL;
}

static void destroy_waits_for_running_and_queued_replays(void) {
    struct gate gate = {0};
    pthread_t thread;
    symmStream_t s = new_stream();
    T_OK(symmStreamBeginCapture(s));
    T_OK(symmStreamHostFunc(s, pass_gate, &gate));
    give(s, 5);
    symmGraph_t g = end_capture(s);
    for (int i = 0; i < 50; i++) T_OK(symmGraphLaunch(xg_exec(g), s));
    wait_reached(&gate);
    T_EQ(pthread_create(&thread, NULL, open_later, &gate), 0);
    T_OK(xg_destroy(g));
    T_EQ(log_n, 50); /* TSan: destroy is behind the replays */
    T_EQ(pthread_join(thread, NULL), 0);
    T_OK(symmStreamDestroy(s));
}

/* ---- references ------------------------------------------------------------------------------ */

static void retain_int(void *obj) {
    ++*(int *)obj;
}
static void release_int(void *obj) {
    --*(int *)obj;
}

static const symm_graph_user hold_int = {.retain = retain_int, .release = release_int};

static void give_with(symmStream_t s, int value, int *obj) {
    T_OK(symm_stream_capture_hold(s, obj, &hold_int));
    give(s, value);
}

static void a_graph_holds_what_its_calls_use(void) {
    T_EXPECT_WARNINGS();
    int refs = 0, others = 0;
    symmStream_t s = new_stream(), t = new_stream();
    T_ERR(symm_stream_capture_hold(s, &refs, &hold_int), symmInvalidUsage);
    T_ERR(symm_stream_capture_hold(NULL, &refs, &hold_int), symmInvalidUsage);
    T_EQ(refs, 0);
    T_OK(symmStreamBeginCapture(s));
    for (int i = 0; i < 3; i++) give_with(s, i, &refs);
    give_with(s, 3, &others);
    T_EQ(refs, 3);
    symmGraph_t g = end_capture(s);
    for (int i = 0; i < 10; i++) T_OK(symmGraphLaunch(xg_exec(g), s));
    T_OK(symmStreamSynchronize(s));
    T_EQ(refs, 3);
    T_OK(symmStreamBeginCapture(t));
    T_OK(symmGraphLaunch(xg_exec(g), t));
    symmGraph_t parent = end_capture(t);
    T_EQ(refs, 6);
    T_OK(xg_destroy(g));
    T_EQ(refs, 3);
    T_OK(symmGraphLaunch(xg_exec(parent), t));
    T_OK(xg_destroy(parent));
    T_EQ(refs, 0);
    T_EQ(others, 0);
    T_OK(symmStreamDestroy(s));
    T_OK(symmStreamDestroy(t));
}

/* ---- fork and join --------------------------------------------------------------------------- */

static void meet(void *arg) {
    atomic_int *met = arg;
    int target = (atomic_fetch_add(met, 1) / 2 + 1) * 2;
    while (atomic_load(met) < target) sched_yield();
}

/* Two lanes wait for each other, as two ranks of one process do: a replay of one after the other
 * would hang. */
static void lanes_run_at_the_same_time(void) {
    enum { REPLAYS = 300 };
    static const int want[] = {1, 2, 3, 4};
    atomic_int met = 0;
    symmStream_t s = new_stream(), fork = new_stream();
    T_OK(symmStreamBeginCapture(s));
    give(s, 1);
    order(s, fork);
    T_EQ(symm_stream_capturing(fork), 1);
    T_OK(symmStreamHostFunc(s, meet, &met));
    T_OK(symmStreamHostFunc(fork, meet, &met));
    give(fork, 2);
    order(fork, s);
    give(s, 3);
    order(s, fork); /* and back once more */
    give(fork, 4);
    order(fork, s);
    symmGraph_t g = end_capture(s);
    T_EQ(symm_stream_capturing(fork), 0);
    T_EQ(SYMM_STAT_GET(threads), 3); /* two streams, one lane more than the first */
    for (int i = 0; i < REPLAYS; i++)
        T_OK(symmGraphLaunch(xg_exec(g), i % 3 ? s : i % 2 ? fork : NULL));
    T_OK(symmStreamSynchronize(s));
    T_OK(symmStreamSynchronize(fork));
    T_EQ(atomic_load(&met), 2 * REPLAYS);
    T_EQ(log_n, 4 * REPLAYS);
    for (int i = 0; i < log_n; i++) T_EQ(log_seen[i], want[i % 4]);
    T_OK(xg_destroy(g));
    T_OK(symmStreamDestroy(s));
    T_OK(symmStreamDestroy(fork));
}

/* Forks of forks, joined through one another; every edge carries the log, so a missing one is a
 * race to TSan. */
static void a_chain_of_forks_keeps_its_order(void) {
    enum { STREAMS = 6, REPLAYS = 50 };
    symmStream_t s[STREAMS];
    for (int i = 0; i < STREAMS; i++) s[i] = new_stream();
    T_OK(symmStreamBeginCapture(s[0]));
    for (int i = 0; i < STREAMS; i++) {
        if (i) order(s[i - 1], s[i]);
        give(s[i], i);
    }
    order(s[STREAMS - 1], s[0]); /* comes after all of them */
    give(s[0], STREAMS);
    symmGraph_t g = end_capture(s[0]);
    for (int i = 0; i < REPLAYS; i++) T_OK(symmGraphLaunch(xg_exec(g), s[i % STREAMS]));
    T_OK(xg_destroy(g));
    T_EQ(log_n, REPLAYS * (STREAMS + 1));
    for (int i = 0; i < log_n; i++) T_EQ(log_seen[i], i % (STREAMS + 1));
    for (int i = 0; i < STREAMS; i++) T_OK(symmStreamDestroy(s[i]));
}

/* A forked graph, launched into the capture of another, between calls and twice. */
static void a_graph_is_copied_into_a_capture(void) {
    static const int want[] = {10, 1, 2, 3, 11, 1, 2, 3};
    symmStream_t s = new_stream(), fork = new_stream();
    T_OK(symmStreamBeginCapture(s));
    give(s, 1);
    order(s, fork);
    give(fork, 2);
    order(fork, s);
    give(s, 3);
    symmGraph_t child = end_capture(s);
    T_OK(symmStreamBeginCapture(s));
    give(s, 10);
    order(s, fork);
    order(s, fork);
    T_OK(symmGraphLaunch(xg_exec(child), fork));
    give(fork, 11);
    order(fork, s);
    T_OK(symmGraphLaunch(xg_exec(child), s));
    symmGraph_t parent = end_capture(s);
    T_OK(xg_destroy(child));
    for (int i = 0; i < 100; i++) T_OK(symmGraphLaunch(xg_exec(parent), i & 1 ? s : NULL));
    T_OK(symmStreamSynchronize(s));
    T_EQ(log_n, 800);
    for (int i = 0; i < log_n; i++) T_EQ(log_seen[i], want[i % 8]);
    T_OK(xg_destroy(parent));
    T_OK(symmStreamDestroy(s));
    T_OK(symmStreamDestroy(fork));
}

static void unjoined_work_discards_the_capture(void) {
    static const int want[] = {8, 9};
    int refs = 0;
    T_EXPECT_WARNINGS();
    symmStream_t s = new_stream(), fork = new_stream();
    symmGraph_t g = NULL;
    char name[32];
    snprintf(name, sizeof name, "%p", (void *)fork);
    for (int joined_too_early = 0; joined_too_early < 2; joined_too_early++) {
        T_OK(symmStreamBeginCapture(s));
        give_with(s, 1, &refs);
        order(s, fork);
        if (joined_too_early) give_with(fork, 2, &refs), order(fork, s);
        give_with(fork, 3, &refs);
        T_ERR(symmStreamEndCapture(s, &g), symmInvalidUsage);
        T_MSG(symmGetLastError(NULL), "unjoined work");
        T_MSG(symmGetLastError(NULL), name);
        T_CHECK(g == NULL);
        T_EQ(refs, 0);
    }
    T_EQ(symm_stream_capturing(s) + symm_stream_capturing(fork), 0);
    give(s, 8); /* both are as before */
    order(s, fork);
    give(fork, 9);
    T_OK(symmStreamSynchronize(fork));
    expect_log(want, 2);
    T_OK(symmStreamDestroy(s));
    T_OK(symmStreamDestroy(fork));
}

/* A stream that joined but was given nothing leaves no work behind. */
static void a_forked_stream_without_work_needs_no_join(void) {
    symmStream_t s = new_stream(), fork = new_stream();
    T_OK(symmStreamBeginCapture(s));
    give(s, 1);
    order(s, fork);
    symmGraph_t g = end_capture(s);
    for (int i = 0; i < 100; i++) T_OK(symmGraphLaunch(xg_exec(g), fork));
    T_OK(symmStreamSynchronize(fork));
    T_EQ(log_n, 100);
    T_OK(xg_destroy(g));
    T_OK(symmStreamDestroy(s));
    T_OK(symmStreamDestroy(fork));
}

/* ---- misuse ---------------------------------------------------------------------------------- */

static void captures_out_of_turn_are_refused(void) {
    T_EXPECT_WARNINGS();
    symmStream_t s = new_stream(), fork = new_stream();
    symmGraph_t g = NULL;
    T_ERR(symmStreamBeginCapture(NULL), symmInvalidUsage);
    T_ERR(symmStreamEndCapture(NULL, &g), symmInvalidUsage);
    T_ERR(symmStreamEndCapture(s, &g), symmInvalidUsage);
    T_MSG(symmGetLastError(NULL), "not under capture");
    T_OK(symmStreamBeginCapture(s));
    T_ERR(symmStreamBeginCapture(s), symmInvalidUsage);
    T_ERR(symmStreamDestroy(s), symmInvalidUsage);
    T_ERR(symmStreamSynchronize(s), symmInvalidUsage);
    T_ERR(symmStreamQuery(s), symmInvalidUsage);
    T_ERR(symmStreamEndCapture(s, NULL), symmInvalidArgument);
    order(s, fork);
    T_ERR(symmStreamEndCapture(fork, &g), symmInvalidUsage);
    T_MSG(symmGetLastError(NULL), "end it there");
    T_ERR(symmStreamDestroy(fork), symmInvalidUsage);
    T_CHECK(g == NULL);
    give(s, 4); /* none of it harmed the capture */
    g = end_capture(s);
    T_OK(symmGraphLaunch(xg_exec(g), NULL));
    T_EQ(log_n, 1);
    T_OK(xg_destroy(g));
    T_OK(symmStreamDestroy(s));
    T_OK(symmStreamDestroy(fork));
}

static void events_across_the_edge_of_a_capture_are_refused(void) {
    T_EXPECT_WARNINGS();
    symmStream_t s = new_stream(), t = new_stream();
    symmEvent_t outside = new_event(), inside = new_event(), never = new_event();
    T_OK(symmEventRecord(outside, t));
    T_OK(symmStreamBeginCapture(s));
    T_ERR(symmStreamWaitEvent(s, outside), symmInvalidUsage);
    T_OK(symmStreamWaitEvent(s, never));
    T_OK(symmEventRecord(inside, s));
    T_ERR(symmEventQuery(inside), symmInvalidUsage);
    T_ERR(symmEventSynchronize(inside), symmInvalidUsage);
    T_ERR(symmStreamWaitEvent(NULL, inside), symmInvalidUsage);
    T_OK(symmStreamBeginCapture(t));
    T_ERR(symmStreamWaitEvent(t, inside), symmInvalidUsage);
    T_MSG(symmGetLastError(NULL), "two different captures");
    symmGraph_t a = end_capture(s), b = end_capture(t);
    T_ERR(symmStreamWaitEvent(t, inside), symmInvalidUsage);
    T_MSG(symmGetLastError(NULL), "has ended");
    T_OK(symmEventRecord(inside, t)); /* an eager record makes it an ordinary event again */
    T_OK(symmEventSynchronize(inside));
    T_OK(xg_destroy(a));
    T_OK(xg_destroy(b));
    T_OK(symmEventDestroy(outside));
    T_OK(symmEventDestroy(inside));
    T_OK(symmEventDestroy(never));
    T_OK(symmStreamDestroy(s));
    T_OK(symmStreamDestroy(t));
}

/* Eager work from before a capture keeps its order point; captured calls have none. */
static void order_points_leave_captures_alone(void) {
    struct gate gate = {0};
    symm_order eager, later;
    symmStream_t s = new_stream(), t = new_stream();
    T_OK(symmStreamHostFunc(s, pass_gate, &gate));
    symm_order_take(s, &eager);
    T_OK(symmStreamBeginCapture(s));
    T_OK(symmStreamBeginCapture(t));
    give(s, 1);
    symm_order_take(s, &later);
    T_EQ(later.tasks, eager.tasks);
    T_OK(symm_order_wait(t, eager)); /* records nothing */
    symmGraph_t a = end_capture(s), b = end_capture(t);
    T_OK(symmGraphLaunch(xg_exec(b), NULL));
    atomic_store(&gate.open, 1);
    T_OK(symmStreamSynchronize(s));
    T_OK(xg_destroy(a));
    T_OK(xg_destroy(b));
    T_OK(symmStreamDestroy(s));
    T_OK(symmStreamDestroy(t));
}

static void wild_and_stale_graphs_are_refused(void) {
    T_EXPECT_WARNINGS();
    int object;
    symmStream_t s = new_stream();
    symmGraph_t stale = capture_log(s, 0, 1);
    T_OK(xg_destroy(stale));
    symmGraph_t g = capture_log(s, 0, 1);
    void *wild[] = {NULL, (void *)1, &object, s, stale};
    for (size_t i = 0; i < sizeof wild / sizeof *wild; i++) {
        T_ERR(symmGraphLaunch(xg_exec(wild[i]), s), symmInvalidArgument);
        T_ERR(symmGraphLaunch(xg_exec(wild[i]), NULL), symmInvalidArgument);
        T_ERR(xg_destroy(wild[i]), symmInvalidArgument);
    }
    T_ERR(symmGraphLaunch(xg_exec(g), (symmStream_t)g), symmInvalidArgument);
    T_EQ(log_n, 0);
    T_OK(xg_destroy(g));
    T_OK(symmStreamDestroy(s));
}

struct recursion {
    symmGraph_t graph;
    symmStream_t stream;
    int left;
    symmResult_t inline_launch, destroy;
};

static void launch_itself(void *arg) {
    struct recursion *r = arg;
    r->inline_launch = symmGraphLaunch(xg_exec(r->graph), NULL);
    r->destroy = xg_destroy(r->graph);
    if (r->left-- > 0)
        T_OK(symmGraphLaunch(xg_exec(r->graph), r->stream)); /* one more after this one */
}

static void a_graph_may_only_queue_itself(void) {
    T_EXPECT_WARNINGS();
    struct recursion r = {.stream = new_stream(), .left = 5};
    T_OK(symmStreamBeginCapture(r.stream));
    T_OK(symmStreamHostFunc(r.stream, launch_itself, &r));
    r.graph = end_capture(r.stream);
    T_OK(symmGraphLaunch(xg_exec(r.graph), r.stream));
    for (int i = 0; i < 6; i++) T_OK(symmStreamSynchronize(r.stream));
    T_EQ(r.left, -1);
    T_EQ(r.inline_launch, symmInvalidUsage);
    T_EQ(r.destroy, symmInvalidUsage);
    T_OK(symmGraphLaunch(xg_exec(r.graph), NULL)); /* the refusal holds inline as well */
    T_EQ(r.inline_launch, symmInvalidUsage);
    T_OK(xg_destroy(r.graph));
    T_OK(symmStreamDestroy(r.stream));
}

struct nested {
    symmGraph_t graph;
    symmResult_t got;
};

static void launch_nested(void *arg) {
    struct nested *n = arg;
    n->got = symmGraphLaunch(xg_exec(n->graph), NULL);
}

/* A task may run an idle graph inline; one that is running elsewhere would make it wait. */
static void a_task_must_not_wait_for_a_replay(void) {
    T_EXPECT_WARNINGS();
    struct gate gate = {0};
    symmStream_t s = new_stream(), t = new_stream();
    T_OK(symmStreamBeginCapture(s));
    T_OK(symmStreamHostFunc(s, pass_gate, &gate));
    struct nested nested = {.graph = end_capture(s)};
    T_OK(symmGraphLaunch(xg_exec(nested.graph), s));
    wait_reached(&gate);
    T_OK(symmStreamHostFunc(t, launch_nested, &nested));
    T_OK(symmStreamSynchronize(t));
    T_EQ(nested.got, symmInvalidUsage);
    atomic_store(&gate.open, 1);
    T_OK(symmStreamSynchronize(s));
    T_OK(symmStreamHostFunc(t, launch_nested, &nested));
    T_OK(symmStreamSynchronize(t));
    T_OK(nested.got);
    T_OK(xg_destroy(nested.graph));
    T_OK(symmStreamDestroy(s));
    T_OK(symmStreamDestroy(t));
}

T_MAIN(T(captured_calls_run_at_replay_only), T(thousands_of_replays_between_eager_tasks),
       T(a_graph_outlives_its_stream_and_its_events), T(an_empty_graph_does_nothing),
       T(replays_of_one_graph_never_overlap),
       T(a_replay_runs_to_its_end_and_returns_its_first_error),
       T(destroy_waits_for_running_and_queued_replays), T(a_graph_holds_what_its_calls_use),
       T(lanes_run_at_the_same_time), T(a_chain_of_forks_keeps_its_order),
       T(a_graph_is_copied_into_a_capture), T(unjoined_work_discards_the_capture),
       T(a_forked_stream_without_work_needs_no_join), T(captures_out_of_turn_are_refused),
       T(events_across_the_edge_of_a_capture_are_refused), T(order_points_leave_captures_alone),
       T(wild_and_stale_graphs_are_refused), T(a_graph_may_only_queue_itself),
       T(a_task_must_not_wait_for_a_replay))
