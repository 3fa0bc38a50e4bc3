/* unit_stream.c - host streams, events and order points: what runs when, what is refused. Captures
 * and graphs: unit_graph.c. Each test is a process of its own; workers touch what the test reads
 * only behind a synchronize. */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/stats.h"
#include "base/status.h"
#include "host/stream/stream.h"
#include "t.h"

/* A task that holds its stream up until the test opens the gate. */
struct gate {
    atomic_int reached, open;
};

static void wait_for(atomic_int *flag) {
    while (!atomic_load(flag)) sched_yield();
}

static void pass_gate(void *arg) {
    struct gate *g = arg;
    atomic_store(&g->reached, 1);
    wait_for(&g->open);
}

static void open_gate(struct gate *g) {
    atomic_store(&g->open, 1);
}

/* A log of numbers, written by one stream (or by streams that are ordered). */
struct trail {
    int n;
    int seen[20000];
};

struct note {
    struct trail *trail;
    int value;
    unsigned char fill[SYMM_TASK_BYTES - 16];
};
_Static_assert(sizeof(struct note) == SYMM_TASK_BYTES, "a note is to be as large as a task may be");

static symmResult_t write_note(void *args) {
    struct note *note = args;
    for (size_t i = 0; i < sizeof note->fill; i++)
        if (note->fill[i] != (unsigned char)note->value) return symmInternalError;
    note->trail->seen[note->trail->n++] = note->value;
    return symmSuccess;
}

static symmResult_t give_note(symmStream_t s, struct trail *trail, int value) {
    struct note note = {trail, value, {0}};
    memset(note.fill, value, sizeof note.fill);
    symmResult_t status = symm_stream_submit(s, write_note, &note, sizeof note);
    memset(&note, 0xee, sizeof note); /* the stream must have its own copy by now */
    return status;
}

static struct trail trail;

static void expect_trail(int n) {
    T_EQ(trail.n, n);
    for (int i = 0; i < n; i++) T_EQ(trail.seen[i], i);
}

static symmResult_t fail_with(void *args) {
    symmResult_t code = *(symmResult_t *)args;
    return SYMM_ERR(code, "made to fail with %d", (int)code);
}

static symmResult_t give_failure(symmStream_t s, symmResult_t code) {
    return symm_stream_submit(s, fail_with, &code, sizeof code);
}

static symmStream_t new_stream(void) {
    symmStream_t s = NULL;
    T_OK(symmStreamCreate(&s));
    T_CHECK(s != NULL);
    return s;
}

static symmEvent_t new_event(void) {
    symmEvent_t e = NULL;
    T_OK(symmEventCreate(&e));
    T_CHECK(e != NULL);
    return e;
}

/* ---- one stream ------------------------------------------------------------------------------ */

static void tasks_run_in_order(void) {
    symmStream_t s = new_stream();
    for (int i = 0; i < 5000; i++) T_OK(give_note(s, &trail, i));
    T_OK(symmStreamSynchronize(s));
    expect_trail(5000);
    T_OK(symmStreamDestroy(s));
}

/* The queue grows several times while its first task runs, from a position that is not its start.
 */
static void queue_grows_behind_a_busy_worker(void) {
    symmStream_t s = new_stream();
    struct gate gate = {0};
    for (int i = 0; i < 21; i++) T_OK(give_note(s, &trail, i));
    T_OK(symmStreamSynchronize(s));
    T_OK(symmStreamHostFunc(s, pass_gate, &gate));
    wait_for(&gate.reached);
    for (int i = 21; i < 700; i++) T_OK(give_note(s, &trail, i));
    T_EQ(symmStreamQuery(s), symmInProgress);
    open_gate(&gate);
    T_OK(symmStreamSynchronize(s));
    T_EQ(symmStreamQuery(s), symmSuccess);
    expect_trail(700);
    T_OK(symmStreamDestroy(s));
}

static void null_stream_runs_in_the_caller(void) {
    T_EXPECT_WARNINGS();
    T_OK(give_note(NULL, &trail, 0));
    expect_trail(1);
    T_ERR(give_failure(NULL, symmTimeout), symmTimeout);
    T_OK(symmStreamSynchronize(NULL)); /* the error was returned where it happened */
    T_OK(symmStreamQuery(NULL));
    T_EQ(symm_stream_capturing(NULL), 0);
}

static void first_error_is_kept_until_synchronize(void) {
    T_EXPECT_WARNINGS();
    symmStream_t s = new_stream();
    T_OK(give_failure(s, symmTimeout));
    T_OK(give_failure(s, symmRemoteError));
    T_OK(give_note(s, &trail, 0));
    while (symmStreamQuery(s) == symmInProgress) sched_yield();
    T_ERR(symmStreamQuery(s), symmTimeout);
    symm_status_adopt("something else");
    T_ERR(symmStreamSynchronize(s), symmTimeout);
    T_MSG(symmGetLastError(NULL), "made to fail with 8");
    expect_trail(1); /* later tasks ran */
    T_OK(symmStreamSynchronize(s));
    T_OK(give_failure(s, symmRemoteError));
    T_ERR(symmStreamSynchronize(s), symmRemoteError);
    T_OK(symmStreamDestroy(s));
}

static void too_large_a_task_is_refused(void) {
    static unsigned char bytes[SYMM_TASK_BYTES + 1];
    T_EXPECT_WARNINGS();
    symmStream_t s = new_stream();
    T_ERR(symm_stream_submit(s, write_note, bytes, sizeof bytes), symmInvalidArgument);
    T_MSG(symmGetLastError(NULL), "513 bytes");
    T_OK(symmStreamSynchronize(s));
    T_OK(symmStreamDestroy(s));
}

/* As by a thread that found no capture a moment before another one began it. */
static void what_came_before_a_capture_is_no_part_of_it(void) {
    symmStream_t s = new_stream();
    symmGraph_t graph = NULL;
    struct note note = {&trail, 0, {0}};
    trail.n = 0;
    T_OK(symmStreamBeginCapture(s));
    T_OK(symm_stream_run(s, write_note, &note, sizeof note));
    T_OK(symmStreamEndCapture(s, &graph));
    T_OK(symmStreamSynchronize(s));
    expect_trail(1);
    symmGraphExec_t exec = NULL;
    T_OK(symmGraphInstantiate(graph, &exec));
    T_OK(symmGraphLaunch(exec, s));
    T_OK(symmStreamSynchronize(s));
    T_EQ(trail.n, 1);
    T_OK(symmGraphExecDestroy(exec));
    T_OK(symmGraphDestroy(graph));
    T_OK(symmStreamDestroy(s));
}

static void destroy_waits_for_queued_work(void) {
    for (int round = 0; round < 20; round++) {
        symmStream_t s = new_stream();
        trail.n = 0;
        for (int i = 0; i < 200; i++) T_OK(give_note(s, &trail, i));
        T_OK(symmStreamDestroy(s));
        expect_trail(200);
    }
}

struct chain {
    symmStream_t stream;
    atomic_int left;
};

static void resubmit(void *arg) {
    struct chain *c = arg;
    if (atomic_fetch_sub(&c->left, 1) > 1) T_OK(symmStreamHostFunc(c->stream, resubmit, c));
}

static void a_task_may_give_more_work(void) {
    struct chain c = {new_stream(), 1000};
    T_OK(symmStreamHostFunc(c.stream, resubmit, &c));
    while (atomic_load(&c.left)) T_OK(symmStreamSynchronize(c.stream));
    T_OK(symmStreamDestroy(c.stream));
}

/* ---- several streams and threads ------------------------------------------------------------- */

enum { SUBMITTERS = 4, EACH = 1500 };

struct shared_stream {
    symmStream_t stream;
    int next[SUBMITTERS]; /* written by the worker */
};

struct ticket {
    struct shared_stream *shared;
    int who, number;
};

static symmResult_t check_ticket(void *args) {
    struct ticket *t = args;
    return t->shared->next[t->who]++ == t->number ? symmSuccess : symmInternalError;
}

static void submit_tickets(int who, int n, void *arg) {
    struct shared_stream *shared = arg;
    (void)n;
    for (int i = 0; i < EACH; i++) {
        struct ticket t = {shared, who, i};
        T_OK(symm_stream_submit(shared->stream, check_ticket, &t, sizeof t));
        if (i % 256 == 0) T_OK(symmStreamSynchronize(shared->stream));
    }
}

static void several_threads_share_a_stream(void) {
    struct shared_stream shared = {.stream = new_stream()};
    T_THREADS(SUBMITTERS, submit_tickets, &shared);
    T_OK(symmStreamSynchronize(shared.stream));
    for (int i = 0; i < SUBMITTERS; i++) T_EQ(shared.next[i], EACH);
    T_OK(symmStreamDestroy(shared.stream));
}

static void events_order_streams(void) {
    symmStream_t a = new_stream(), b = new_stream();
    symmEvent_t e = new_event();
    struct gate gate = {0};
    T_OK(symmStreamHostFunc(a, pass_gate, &gate));
    T_OK(give_note(a, &trail, 0));
    T_OK(symmEventRecord(e, a));
    T_EQ(symmEventQuery(e), symmInProgress);
    T_OK(symmStreamWaitEvent(b, e));
    T_OK(give_note(b, &trail, 1));
    T_EQ(symmStreamQuery(b), symmInProgress);
    open_gate(&gate);
    T_OK(symmEventSynchronize(e));
    T_EQ(symmEventQuery(e), symmSuccess);
    T_OK(symmStreamSynchronize(b));
    expect_trail(2);
    T_OK(symmStreamDestroy(a));
    T_OK(symmStreamDestroy(b));
    T_OK(symmEventQuery(e)); /* its stream is gone, so its work has ended */
    T_OK(symmEventDestroy(e));
}

/* A wait is for what the event marked when the wait was given, also if it is recorded anew or
 * destroyed. */
static void a_wait_keeps_its_point(void) {
    symmStream_t a = new_stream(), b = new_stream();
    symmEvent_t e = new_event();
    struct gate first = {0}, second = {0};
    T_OK(symmStreamHostFunc(a, pass_gate, &first));
    T_OK(symmEventRecord(e, a));
    T_OK(symmStreamWaitEvent(b, e));
    T_OK(symmStreamHostFunc(a, pass_gate, &second));
    T_OK(symmEventRecord(e, a));
    open_gate(&first);
    T_OK(symmStreamSynchronize(b));
    T_EQ(symmEventQuery(e), symmInProgress);
    T_OK(symmStreamWaitEvent(b, e));
    T_OK(give_note(b, &trail, 0));
    T_OK(symmEventDestroy(e));
    T_EQ(symmStreamQuery(b), symmInProgress);
    open_gate(&second);
    T_OK(symmStreamSynchronize(b));
    expect_trail(1);
    T_OK(symmStreamDestroy(a));
    T_OK(symmStreamDestroy(b));
}

static void an_event_never_recorded_is_over(void) {
    symmStream_t s = new_stream();
    symmEvent_t e = new_event();
    T_OK(symmEventQuery(e));
    T_OK(symmEventSynchronize(e));
    T_OK(symmStreamWaitEvent(s, e));
    T_OK(symmStreamWaitEvent(NULL, e));
    T_OK(symmEventRecord(e, NULL));
    T_OK(symmEventQuery(e));
    T_OK(symmEventDestroy(e));
    T_OK(symmStreamDestroy(s));
}

static void *open_later(void *arg) {
    usleep(20000);
    open_gate(arg);
    return NULL;
}

static void null_stream_waits_for_events_and_points(void) {
    symmStream_t s = new_stream();
    symmEvent_t e = new_event();
    for (int use_event = 0; use_event < 2; use_event++) {
        struct gate gate = {0};
        pthread_t thread;
        symm_order o;
        trail.n = 0;
        T_OK(symmStreamHostFunc(s, pass_gate, &gate));
        T_OK(give_note(s, &trail, 0));
        T_OK(symmEventRecord(e, s));
        symm_order_take(s, &o);
        T_EQ(pthread_create(&thread, NULL, open_later, &gate), 0);
        T_OK(use_event ? symmStreamWaitEvent(NULL, e) : symm_order_wait(NULL, o));
        T_OK(give_note(NULL, &trail, 1)); /* TSan: no race with the stream's note */
        expect_trail(2);
        T_EQ(pthread_join(thread, NULL), 0);
    }
    T_OK(symmEventDestroy(e));
    T_OK(symmStreamDestroy(s));
}

static void order_points_order_streams(void) {
    symmStream_t a = new_stream(), b = new_stream();
    for (int i = 0; i < 1000; i++) {
        symm_order o;
        T_OK(give_note(i & 1 ? b : a, &trail, i));
        symm_order_take(i & 1 ? b : a, &o);
        T_OK(symm_order_wait(i & 1 ? a : b, o));
    }
    T_OK(symmStreamSynchronize(a));
    T_OK(symmStreamSynchronize(b));
    expect_trail(1000);
    T_OK(symmStreamDestroy(a));
    T_OK(symmStreamDestroy(b));
}

static void order_points_that_need_no_wait(void) {
    symmStream_t a = new_stream(), b = new_stream();
    struct gate gate = {0};
    symm_order o, none;
    T_OK(symmStreamHostFunc(a, pass_gate, &gate));
    symm_order_take(a, &o);
    T_OK(symm_order_wait(a, o)); /* of the stream itself */
    symm_order_take(NULL, &none);
    T_OK(symm_order_wait(b, none));
    symm_order copy = o;
    symm_order_drop(&copy);
    T_OK(symm_order_wait(NULL, copy)); /* would hang if it were not dropped */
    T_OK(symmStreamSynchronize(b));
    open_gate(&gate);
    T_OK(symmStreamDestroy(a));
    T_OK(symm_order_wait(b, o)); /* of a stream that is gone */
    T_OK(symm_order_wait(NULL, o));
    symm_order_take(a, &o);
    T_OK(symm_order_wait(NULL, o));
    T_OK(symmStreamDestroy(b));
}

static void thirty_two_streams_pass_a_baton(void) {
    enum { STREAMS = 32, ROUNDS = 20 };
    symmStream_t s[STREAMS];
    symmEvent_t e[STREAMS];
    for (int i = 0; i < STREAMS; i++) s[i] = new_stream(), e[i] = new_event();
    T_EQ(SYMM_STAT_GET(threads), STREAMS);
    T_EQ(SYMM_STAT_GET(streams), 2 * STREAMS);
    for (int k = 0; k < STREAMS * ROUNDS; k++) {
        int i = k % STREAMS, before = (k + STREAMS - 1) % STREAMS;
        T_OK(symmStreamWaitEvent(s[i], e[before]));
        T_OK(give_note(s[i], &trail, k));
        T_OK(symmEventRecord(e[i], s[i]));
    }
    T_OK(symmEventSynchronize(e[STREAMS - 1]));
    expect_trail(STREAMS * ROUNDS);
    for (int i = 0; i < STREAMS; i++) {
        T_OK(symmStreamDestroy(s[i]));
        T_OK(symmEventDestroy(e[i]));
    }
}

static void nothing(void *arg) {
    (void)arg;
}

/* Thread 0 destroys the stream under the others, who see a clean refusal from some call on. */
static void use_until_destroyed(int who, int n, void *arg) {
    symmStream_t s = *(symmStream_t *)arg;
    static atomic_int given;
    (void)n;
    if (who == 0) {
        while (atomic_load(&given) < 500) sched_yield();
        T_OK(symmStreamDestroy(s));
        return;
    }
    symmResult_t status = symmSuccess;
    while (status == symmSuccess) {
        status = symmStreamSynchronize(s);
        if (status == symmSuccess) status = symmStreamHostFunc(s, nothing, NULL);
        atomic_fetch_add(&given, 1);
    }
    T_EQ(status, symmInvalidArgument);
}

static void destroy_beside_users_is_safe(void) {
    T_EXPECT_WARNINGS();
    symmStream_t s = new_stream();
    T_THREADS(3, use_until_destroyed, &s);
}

/* ---- misuse ---------------------------------------------------------------------------------- */

static void refuse_stream(symmStream_t bad, symmEvent_t event) {
    char value[32];
    snprintf(value, sizeof value, "%p", (void *)bad);
    T_ERR(symm_stream_check(bad), symmInvalidArgument);
    T_MSG(symmGetLastError(NULL), value);
    T_ERR(symmStreamSynchronize(bad), symmInvalidArgument);
    T_ERR(symmStreamQuery(bad), symmInvalidArgument);
    T_ERR(symmStreamDestroy(bad), symmInvalidArgument);
    T_ERR(symmStreamHostFunc(bad, nothing, NULL), symmInvalidArgument);
    T_ERR(symmStreamWaitEvent(bad, event), symmInvalidArgument);
    T_ERR(symmEventRecord(event, bad), symmInvalidArgument);
    T_ERR(symmStreamBeginCapture(bad), symmInvalidArgument);
    symmGraph_t graph = NULL;
    T_ERR(symmStreamEndCapture(bad, &graph), symmInvalidArgument);
    T_CHECK(graph == NULL);
    T_EQ(symm_stream_capturing(bad), 0);
}

static void refuse_event(symmEvent_t bad, symmStream_t stream) {
    T_ERR(symmEventRecord(bad, stream), symmInvalidArgument);
    T_ERR(symmEventRecord(bad, NULL), symmInvalidArgument);
    T_ERR(symmEventSynchronize(bad), symmInvalidArgument);
    T_ERR(symmEventQuery(bad), symmInvalidArgument);
    T_ERR(symmEventDestroy(bad), symmInvalidArgument);
    T_ERR(symmStreamWaitEvent(stream, bad), symmInvalidArgument);
    T_ERR(symmStreamWaitEvent(NULL, bad), symmInvalidArgument);
}

static void wild_and_stale_handles_are_refused(void) {
    T_EXPECT_WARNINGS();
    int object;
    symmStream_t s = new_stream(), stale = new_stream();
    symmEvent_t e = new_event(), stale_event = new_event();
    T_OK(symmStreamDestroy(stale));
    T_OK(symmEventDestroy(stale_event));
    symmStream_t successor = new_stream(); /* may live in the slot of the stale one */
    symmEvent_t successor_event = new_event();
    T_CHECK(successor != stale && successor_event != stale_event);
    void *wild[] = {(void *)1,
                    (void *)2,
                    &object,
                    (void *)UINTPTR_MAX,
                    (void *)((uintptr_t)s + 1),
                    (void *)((uintptr_t)s + (1 << 16)),
                    (void *)((uintptr_t)s ^ 1ull << 50)};
    for (size_t i = 0; i < sizeof wild / sizeof *wild; i++) {
        refuse_stream(wild[i], e);
        refuse_event(wild[i], s);
    }
    refuse_stream(stale, e);
    refuse_stream((symmStream_t)e, e);
    refuse_event(stale_event, s);
    refuse_event((symmEvent_t)s, s);
    refuse_event(NULL, s);
    T_OK(symm_stream_check(NULL));
    T_OK(symm_stream_check(s));
    T_OK(symmStreamDestroy(successor));
    T_OK(symmEventDestroy(successor_event));
    T_OK(symmStreamDestroy(s));
    T_OK(symmEventDestroy(e));
}

static void null_arguments_are_refused(void) {
    T_EXPECT_WARNINGS();
    T_ERR(symmStreamCreate(NULL), symmInvalidArgument);
    T_ERR(symmEventCreate(NULL), symmInvalidArgument);
    T_ERR(symmStreamDestroy(NULL), symmInvalidArgument);
    T_ERR(symmStreamHostFunc(NULL, NULL, NULL), symmInvalidArgument);
    T_MSG(symmGetLastError(NULL), "fn is NULL");
}

struct inside {
    symmStream_t self, other;
    symmEvent_t event;
    symm_order point;
    symmResult_t got[6];
};

static void wait_inside(void *arg) {
    struct inside *in = arg;
    in->got[0] = symmStreamSynchronize(in->self);
    in->got[1] = symmStreamSynchronize(in->other);
    in->got[2] = symmStreamDestroy(in->self);
    in->got[3] = symmEventSynchronize(in->event);
    in->got[4] = symmStreamWaitEvent(NULL, in->event);
    in->got[5] = symm_order_wait(NULL, in->point);
}

static void waits_inside_a_task_are_refused(void) {
    T_EXPECT_WARNINGS();
    struct inside in = {.self = new_stream(), .other = new_stream(), .event = new_event()};
    struct gate gate = {0}, other = {0};
    T_OK(symmStreamHostFunc(in.self, pass_gate, &gate));
    T_OK(symmStreamHostFunc(in.other, pass_gate, &other));
    symm_order_take(in.other, &in.point);
    T_OK(symmStreamHostFunc(in.self, wait_inside, &in));
    T_OK(symmEventRecord(in.event, in.self));
    open_gate(&gate);
    T_OK(symmStreamSynchronize(in.self));
    open_gate(&other);
    for (int i = 0; i < 6; i++) T_EQ(in.got[i], symmInvalidUsage);
    T_OK(symmStreamDestroy(in.self));
    T_OK(symmStreamDestroy(in.other));
    T_OK(symmEventDestroy(in.event));
}

enum { CHILD_MAY_START_THREADS = !T_TSAN };

static void use_new_stream(void) {
    symmStream_t own = new_stream();
    T_OK(give_note(own, &trail, 1));
    T_OK(symmStreamSynchronize(own));
    T_OK(symmStreamDestroy(own));
}

/* The child has no workers: inherited handles are stale there, new streams work. TSan itself ends a
 * forked child that starts threads. */
static void forked_child_has_no_streams(void) {
    symmStream_t s = new_stream();
    symmEvent_t e = new_event();
    T_OK(give_note(s, &trail, 0));
    T_EXPECT_WARNINGS();
    T_LET_THREADS_REST();
    pid_t pid = fork();
    T_CHECK(pid >= 0);
    if (pid == 0) {
        T_EQ(SYMM_STAT_GET(threads), 0);
        T_EQ(SYMM_STAT_GET(streams), 0);
        refuse_stream(s, e);
        if (CHILD_MAY_START_THREADS) use_new_stream();
        _exit(0);
    }
    int status;
    T_EQ(waitpid(pid, &status, 0), pid);
    T_CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    T_OK(symmStreamSynchronize(s));
    expect_trail(1);
    T_OK(symmStreamDestroy(s));
    T_OK(symmEventDestroy(e));
}

static void slots_are_used_again(void) {
    for (int i = 0; i < 70000; i++) { /* more than the table has room for at once */
        symmEvent_t e = new_event();
        T_OK(symmEventDestroy(e));
    }
    T_EQ(SYMM_STAT_GET(streams), 0);
}

static void a_full_table_refuses_and_recovers(void) {
    enum { ROOM = 262144 };
    static symmEvent_t events[ROOM + 1];
    T_EXPECT_WARNINGS();
    for (int i = 0; i < ROOM; i++) T_OK(symmEventCreate(&events[i]));
    T_ERR(symmEventCreate(&events[ROOM]), symmOutOfMemory);
    T_MSG(symmGetLastError(NULL), "262144");
    T_CHECK(events[ROOM] == NULL);
    T_OK(symmEventDestroy(events[ROOM / 2]));
    T_OK(symmEventCreate(&events[ROOM / 2]));
    for (int i = 0; i < ROOM; i++) T_OK(symmEventDestroy(events[i]));
}

T_MAIN(T(tasks_run_in_order), T(queue_grows_behind_a_busy_worker),
       T(null_stream_runs_in_the_caller), T(first_error_is_kept_until_synchronize),
       T(too_large_a_task_is_refused), T(what_came_before_a_capture_is_no_part_of_it),
       T(destroy_waits_for_queued_work), T(a_task_may_give_more_work),
       T(several_threads_share_a_stream), T(events_order_streams), T(a_wait_keeps_its_point),
       T(an_event_never_recorded_is_over), T(null_stream_waits_for_events_and_points),
       T(order_points_order_streams), T(order_points_that_need_no_wait),
       T(thirty_two_streams_pass_a_baton), T(destroy_beside_users_is_safe),
       T(wild_and_stale_handles_are_refused), T(null_arguments_are_refused),
       T(waits_inside_a_task_are_refused), T(forked_child_has_no_streams), T(slots_are_used_again),
       T(a_full_table_refuses_and_recovers))
