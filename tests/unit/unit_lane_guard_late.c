/* unit_lane_guard_late.c - guard mode of lanes where what it paints comes late: beside a branch of
 * the same graph, on a stream that stands, behind the end of the heap. One rank; the test's
 * thread drives all, tasks run in the streams' threads. All else: unit_lane_guard.c. */
#include "base/wait.h"
#include "graph_kit.h"
#include "lane_kit.h"

static void alone(lk *k, int lanes) {
    setenv("SYMM_HEAP_GUARD", "1", 1);
    lk_alone(k, lanes);
}

/* Who frees must be behind what the graph paints: its branches run beside each other. */
static void a_branch_beside_the_painting_frees_nothing(void) {
    lk k;
    T_EXPECT_WARNINGS();
    alone(&k, 2);
    T_OK(symmStreamBeginCapture(k.stream[0]));
    lk_order(k.stream[0], k.stream[1]);
    char *p = lk_local(k.lane[0], 1000);
    T_ERR(symmLaneFree(k.lane[1], p), symmInvalidArgument);
    T_MSG(symmGetLastError(NULL), "at a point that does not come after its allocation");
    lk_order(k.stream[0], k.stream[1]);
    lk_free(k.lane[1], p);
    char *q = lk_local(k.lane[1], 1024);
    T_CHECK(q == p);
    lk_fill(k.stream[1], q, 1024, 3);
    lk_check(k.stream[1], q, 1024, 3);
    lk_free(k.lane[1], q);
    lk_order(k.stream[1], k.stream[0]);
    const symmGraph_t g = lk_end(k.stream[0]);
    const symmMemPlan_t plan = lk_bind(k.lane[0], g, 0);
    for (int i = 0; i < 20; i++) T_OK(symmMemPlanLaunch(plan, xg_exec(g), k.stream[0]));
    T_OK(symmStreamSynchronize(k.stream[0]));
    T_OK(symmHeapCheck(k.heap));
    T_OK(symmMemPlanDestroy(plan));
    T_OK(xg_destroy(g));
    lk_close(&k);
}

/* The graph's stream stands: the first free waits for a second, the others do not. */
static void a_graph_that_stands_is_waited_for_once(void) {
    enum { N = 4 };
    lk k;
    lk_gate gate = {0};
    char *p[N];
    alone(&k, 2);
    T_OK(symmStreamBeginCapture(k.stream[0]));
    for (int i = 0; i < N; i++) p[i] = lk_local(k.lane[0], 100);
    const symmGraph_t g = lk_end(k.stream[0]);
    const symmMemPlan_t plan = lk_bind(k.lane[0], g, 0);
    lk_hold(k.stream[1], &gate);
    T_OK(symmMemPlanLaunch(plan, xg_exec(g), k.stream[1]));
    const uint64_t begin = symm_now_ns();
    for (int i = 0; i < N; i++) lk_free(k.lane[0], p[i]);
    T_CHECKF(symm_now_ns() - begin < 2000000000ull, "each free has waited");
    atomic_store(&gate.open, 1);
    T_OK(symmStreamSynchronize(k.stream[1]));
    T_OK(symmHeapCheck(k.heap));
    T_OK(symmMemPlanDestroy(plan));
    T_OK(xg_destroy(g));
    lk_close(&k);
}

/* Nothing of the program's is left on the memory, but poison is on its way: the memory is there
 * until it has come. */
static void a_heap_ends_before_its_streams_paint(void) {
    lk k;
    lk_gate gate = {0};
    for (int late = 0; late < 2; late++) {
        alone(&k, 1);
        char *p = lk_local(k.lane[0], 1 << 20);
        atomic_store(&gate.open, 0);
        lk_hold(k.stream[0], &gate);
        lk_free(k.lane[0], p);
        T_OK(symmHeapDestroy(k.heap));
        if (!late) atomic_store(&gate.open, 1);
        T_OK(symmLaneDestroy(k.lane[0]));
        T_OK(symmCommDestroy(k.comm));
        atomic_store(&gate.open, 1);
        T_OK(symmStreamSynchronize(k.stream[0]));
        T_OK(symmStreamDestroy(k.stream[0]));
    }
    alone(&k, 1); /* the next one lets go of it */
    lk_close(&k);
}

T_MAIN(T(a_branch_beside_the_painting_frees_nothing), T(a_graph_that_stands_is_waited_for_once),
       T(a_heap_ends_before_its_streams_paint))
