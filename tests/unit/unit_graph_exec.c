/* unit_graph_exec.c - executables of host graphs: in which orders graph and executables end, what
 * keeps running, and handles that are none. Capture and replay: unit_graph.c. */
#include <malloc.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include "base/fail.h"
#include "base/stats.h"
#include "base/status.h"
#include "host/stream/stream_int.h"
#include "t.h"

static atomic_int ran, held;

static void count(void *arg) {
    (void)arg;
    atomic_fetch_add(&ran, 1);
}

static void retain(void *obj) {
    atomic_fetch_add((atomic_int *)obj, 1);
}
static void release(void *obj) {
    atomic_fetch_sub((atomic_int *)obj, 1);
}
static const symm_graph_user user = {.retain = retain, .release = release};

/* Counts in `ran`, and keeps `held` above 0. */
static symmGraph_t capture(symmStream_t s) {
    symmGraph_t g = NULL;
    T_OK(symmStreamBeginCapture(s));
    T_OK(symmStreamHostFunc(s, count, NULL));
    T_OK(symm_stream_capture_hold(s, &held, &user));
    T_OK(symmStreamEndCapture(s, &g));
    return g;
}

static symmGraphExec_t make(symmGraph_t g) {
    symmGraphExec_t e = NULL;
    T_OK(symmGraphInstantiate(g, &e));
    T_CHECK(e != NULL);
    return e;
}

static void expect(int runs) {
    T_EQ(atomic_exchange(&ran, 0), runs);
}

/* All orders in which a graph and two executables of it can end: what was captured is kept until
 * the last one goes, and each executable that is left replays. */
static void graph_and_executables_end_in_any_order(void) {
    T_EXPECT_WARNINGS();
    static const int orders[6][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2},
                                     {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    symmStream_t s;
    T_OK(symmStreamCreate(&s));
    const int64_t before = SYMM_STAT_GET(streams);
    for (int o = 0; o < 6; o++) {
        symmGraph_t g = capture(s);
        symmGraphExec_t e[3] = {NULL, make(g), make(g)};
        T_CHECK(e[1] != e[2]);
        for (int i = 0; i < 3; i++) {
            const int goes = orders[o][i];
            T_EQ(atomic_load(&held), 1);
            T_OK(goes ? symmGraphExecDestroy(e[goes]) : symmGraphDestroy(g));
            if (goes)
                T_ERR(symmGraphLaunch(e[goes], s), symmInvalidArgument);
            else
                T_ERR(symmGraphInstantiate(g, &e[0]), symmInvalidArgument);
            e[goes] = NULL;
            for (int k = 1; k < 3; k++)
                if (e[k]) {
                    T_OK(symmGraphLaunch(e[k], s));
                    T_OK(symmGraphLaunch(e[k], NULL));
                    T_OK(symmStreamSynchronize(s));
                    expect(2);
                }
        }
        T_EQ(atomic_load(&held), 0);
    }
    T_EQ(SYMM_STAT_GET(streams), before);
    T_OK(symmStreamDestroy(s));
}

static void what_is_no_graph_or_executable_is_refused(void) {
    T_EXPECT_WARNINGS();
    symmStream_t s;
    T_OK(symmStreamCreate(&s));
    symmGraph_t g = capture(s);
    symmGraphExec_t e = make(g), gone = make(g), out = e;
    T_OK(symmGraphExecDestroy(gone));
    const symmGraphExec_t execs[] = {NULL, (symmGraphExec_t)(void *)1, (symmGraphExec_t)(void *)g,
                                     (symmGraphExec_t)(void *)s, gone};
    for (size_t i = 0; i < sizeof execs / sizeof *execs; i++) {
        T_ERR(symmGraphLaunch(execs[i], s), symmInvalidArgument);
        T_MSG(symmGetLastError(NULL), "symmGraphInstantiate");
        T_ERR(symmGraphLaunch(execs[i], NULL), symmInvalidArgument);
        T_ERR(symmGraphExecDestroy(execs[i]), symmInvalidArgument);
    }
    const symmGraph_t graphs[] = {NULL, (symmGraph_t)(void *)1, (symmGraph_t)(void *)e,
                                  (symmGraph_t)(void *)s};
    for (size_t i = 0; i < sizeof graphs / sizeof *graphs; i++) {
        T_ERR(symmGraphInstantiate(graphs[i], &out), symmInvalidArgument);
        T_ERR(symmGraphDestroy(graphs[i]), symmInvalidArgument);
    }
    T_ERR(symmGraphInstantiate(g, NULL), symmInvalidArgument);
    T_CHECK(out == e); /* written on success only */
    T_OK(symmGraphDestroy(g));
    T_ERR(symmGraphDestroy(g), symmInvalidArgument);
    T_OK(symmGraphLaunch(e, NULL));
    expect(1);
    T_OK(symmGraphExecDestroy(e));
    T_ERR(symmGraphExecDestroy(e), symmInvalidArgument);
    T_EQ(atomic_load(&held), 0);
    T_OK(symmStreamDestroy(s));
}

struct gate {
    atomic_int reached, open;
};
static void pass_gate(void *arg) {
    struct gate *gate = arg;
    atomic_store(&gate->reached, 1);
    while (!atomic_load(&gate->open)) sched_yield();
}

struct ending {
    symmGraphExec_t exec;
    atomic_int done;
};
static void *end_exec(void *arg) {
    struct ending *e = arg;
    T_OK(symmGraphExecDestroy(e->exec));
    atomic_store(&e->done, 1);
    return NULL;
}

/* It waits for its own launches; one that was given after that does not keep it. */
static void destroying_an_executable_waits_for_its_launches(void) {
    struct gate gate = {0};
    symmStream_t s, t;
    symmGraph_t g;
    pthread_t thread;
    T_OK(symmStreamCreate(&s));
    T_OK(symmStreamCreate(&t));
    T_OK(symmStreamBeginCapture(s));
    T_OK(symmStreamHostFunc(s, pass_gate, &gate));
    T_OK(symmStreamEndCapture(s, &g));
    struct ending ending = {.exec = make(g)};
    symmGraphExec_t other = make(g);
    T_OK(symmGraphLaunch(ending.exec, s));
    while (!atomic_load(&gate.reached)) sched_yield();
    T_OK(symmGraphDestroy(g)); /* waits for nothing */
    T_EQ(pthread_create(&thread, NULL, end_exec, &ending), 0);
    for (int i = 0; i < 1000; i++) sched_yield();
    T_EQ(atomic_load(&ending.done), 0);
    T_OK(symmGraphLaunch(other, t));
    atomic_store(&gate.open, 1);
    T_EQ(pthread_join(thread, NULL), 0);
    T_OK(symmGraphExecDestroy(other));
    T_OK(symmStreamDestroy(s));
    T_OK(symmStreamDestroy(t));
}

struct launcher {
    symmGraphExec_t exec;
    symmStream_t stream;
    int launched;
};
static void *launch_on(void *arg) {
    struct launcher *l = arg;
    while (symmGraphLaunch(l->exec, l->launched % 2 ? l->stream : NULL) == symmSuccess)
        l->launched++;
    return NULL;
}

/* Launches race with the end of their executable, and with those of another one, which stays. */
static void a_launch_is_whole_or_refused(void) {
    enum { THREADS = 3, ROUNDS = 40 };
    T_EXPECT_WARNINGS();
    symmStream_t s[THREADS];
    for (int i = 0; i < THREADS; i++) T_OK(symmStreamCreate(&s[i]));
    for (int round = 0; round < ROUNDS; round++) {
        pthread_t thread[THREADS];
        struct launcher l[THREADS];
        symmGraph_t g = capture(s[0]);
        symmGraphExec_t e = make(g), kept = make(g);
        T_OK(symmGraphDestroy(g));
        for (int i = 0; i < THREADS; i++) {
            l[i] = (struct launcher){e, s[i], 0};
            T_EQ(pthread_create(&thread[i], NULL, launch_on, &l[i]), 0);
        }
        for (int i = 0; i < round * 5; i++) T_OK(symmGraphLaunch(kept, NULL));
        T_OK(symmGraphExecDestroy(e));
        int launches = round * 5;
        for (int i = 0; i < THREADS; i++) {
            T_EQ(pthread_join(thread[i], NULL), 0);
            T_OK(symmStreamSynchronize(s[i]));
            launches += l[i].launched;
        }
        expect(launches);
        T_EQ(atomic_load(&held), 1);
        T_OK(symmGraphExecDestroy(kept));
        T_EQ(atomic_load(&held), 0);
    }
    for (int i = 0; i < THREADS; i++) T_OK(symmStreamDestroy(s[i]));
}

static void destroy_in_replay(void *arg) {
    symmGraphExec_t *e = arg;
    T_ERR(symmGraphExecDestroy(*e), symmInvalidUsage);
    atomic_fetch_add(&ran, 1);
}

static void a_replay_must_not_end_an_executable(void) {
    T_EXPECT_WARNINGS();
    symmStream_t s;
    symmGraph_t g;
    symmGraphExec_t e;
    T_OK(symmStreamCreate(&s));
    T_OK(symmStreamBeginCapture(s));
    T_OK(symmStreamHostFunc(s, destroy_in_replay, &e));
    T_OK(symmStreamEndCapture(s, &g));
    e = make(g);
    T_OK(symmGraphLaunch(e, s));
    T_OK(symmStreamSynchronize(s));
    expect(1);
    T_OK(symmGraphExecDestroy(e));
    T_OK(symmGraphDestroy(g));
    T_OK(symmStreamDestroy(s));
}

struct making {
    symmGraph_t graph;
    symmGraphExec_t exec;
    symmResult_t result;
};
static void *make_exec(void *arg) {
    struct making *m = arg;
    m->result = symmGraphInstantiate(m->graph, &m->exec);
    return NULL;
}

/* The executable is half made when the graph's handle goes: it keeps what was captured. */
static void a_graph_goes_while_an_executable_is_made(void) {
    symmStream_t s;
    pthread_t thread;
    T_OK(symmStreamCreate(&s));
    struct making m = {.graph = capture(s)};
    struct symm_graph *g = symm_handle_get(SYMM_KIND_GRAPH, m.graph);
    symm_handle_lock(); /* the new handle needs it */
    T_EQ(pthread_create(&thread, NULL, make_exec, &m), 0);
    while (atomic_load(&g->refs) < 2) sched_yield();
    T_OK(symmGraphDestroy(m.graph));
    symm_handle_unlock();
    T_EQ(pthread_join(thread, NULL), 0);
    symm_handle_put(SYMM_KIND_GRAPH, m.graph);
    T_OK(m.result);
    T_EQ(atomic_load(&held), 1);
    T_OK(symmGraphLaunch(m.exec, s));
    T_OK(symmStreamSynchronize(s));
    expect(1);
    T_OK(symmGraphExecDestroy(m.exec));
    T_EQ(atomic_load(&held), 0);
    T_OK(symmStreamDestroy(s));
}

/* ---- a graph that is launched into a capture ------------------------------------------------- */

static symmResult_t agrees(void *obj) {
    (void)obj;
    return symmSuccess;
}
static const symm_graph_user told = {.retain = retain, .release = release, .begin = agrees};

/* The memory of 1,000 captures that had none for the second of two holds. A sanitizer keeps what
 * was freed, and finds what was not itself. */
static void a_copy_without_memory_leaves_nothing(void) {
    enum { TIMES = 1000, WARM = 10 };
    static atomic_int objs[2];
    symmStream_t s;
    symmGraph_t g;
    size_t before = 0;
    T_EXPECT_WARNINGS();
    T_OK(symmStreamCreate(&s));
    T_OK(symmStreamBeginCapture(s));
    for (int i = 0; i < 2; i++) T_OK(symm_stream_capture_hold(s, &objs[i], &told));
    T_OK(symmStreamEndCapture(s, &g));
    symmGraphExec_t e = make(g);
    for (int i = 0; i < TIMES; i++) {
        symmGraph_t none;
        if (i == WARM) before = mallinfo2().uordblks;
        T_OK(symmStreamBeginCapture(s));
        T_EQ(symm_fail_arm("graph_hold:error:2"), 0);
        T_ERR(symmGraphLaunch(e, s), symmOutOfMemory);
        T_EQ(symm_fail_arm(""), 0);
        T_ERR(symmStreamEndCapture(s, &none), symmOutOfMemory);
    }
    const size_t after = mallinfo2().uordblks;
    T_CHECKF(after < before + TIMES, "%zu bytes are in use, %zu before", after, before);
    for (int i = 0; i < 2; i++) T_EQ(atomic_load(&objs[i]), 1);
    T_OK(symmGraphExecDestroy(e));
    T_OK(symmGraphDestroy(g));
    T_OK(symmStreamDestroy(s));
}

T_MAIN(T(graph_and_executables_end_in_any_order), T(what_is_no_graph_or_executable_is_refused),
       T(destroying_an_executable_waits_for_its_launches), T(a_launch_is_whole_or_refused),
       T(a_replay_must_not_end_an_executable), T(a_graph_goes_while_an_executable_is_made),
       T(a_copy_without_memory_leaves_nothing))
