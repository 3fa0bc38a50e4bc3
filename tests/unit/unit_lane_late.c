/* unit_lane_late.c - memory that outlives its graph, while other streams still use it: who gets its
 * bytes comes behind them. Over captures of host streams, one rank; several ranks: thr_lane.c.
 * Tests are named after the items of the list of graph memory nodes. What is held up is held by
 * a gate, or for a moment where the call itself must wait. The test's thread drives all. */
#include <unistd.h>

#include "base/fail.h"
#include "graph_kit.h"
#include "lane_kit.h"

enum { B = 4096, BIG = 512 << 10 };

/* A graph that leaves a block filled with 9. */
static symmGraph_t capture_left(lk *k, int lane, size_t bytes, unsigned flags, char **p) {
    T_OK(symmStreamBeginCapture(k->stream[lane]));
    *p = lk_alloc(k->lane[lane], bytes, flags);
    lk_fill(k->stream[lane], *p, bytes, 9);
    return lk_end(k->stream[lane]);
}

/* A graph with one block, which it fills with 1. */
static symmGraph_t capture_own(lk *k, int lane, size_t bytes, unsigned flags, char **p) {
    T_OK(symmStreamBeginCapture(k->stream[lane]));
    *p = lk_alloc(k->lane[lane], bytes, flags);
    lk_fill(k->stream[lane], *p, bytes, 1);
    lk_free(k->lane[lane], *p);
    return lk_end(k->stream[lane]);
}

static void run(lk *k, symmMemPlan_t plan, symmGraph_t g, int stream) {
    T_OK(symmMemPlanLaunch(plan, xg_exec(g), k->stream[stream]));
}

/* Stream 1 comes behind stream 0 and looks at the block once the gate is open. */
static void look_late(lk *k, char *p, size_t bytes, lk_gate *gate) {
    lk_order(k->stream[0], k->stream[1]);
    lk_hold(k->stream[1], gate);
    lk_check(k->stream[1], p, bytes, 9);
}

/* What is on the stream waits until the gate opens. */
static void is_held(lk *k, int stream, lk_gate *gate) {
    while (!atomic_load(&gate->reached)) sched_yield();
    usleep(5000); /* it would be through by now, if nothing held it */
    T_EQ(symmStreamQuery(k->stream[stream]), symmInProgress);
    atomic_store(&gate->open, 1);
    for (int i = 0; i < k->lanes; i++) T_OK(symmStreamSynchronize(k->stream[i]));
}

/* The same, but the gate opens by itself, for the test's thread is to wait. */
static void moment(void *arg) {
    lk_gate *g = arg;
    usleep(20000);
    atomic_store(&g->open, 1);
}
static void look_in_a_moment(lk *k, char *p, size_t bytes, lk_gate *gate) {
    lk_order(k->stream[0], k->stream[1]);
    T_OK(symmStreamHostFunc(k->stream[1], moment, gate));
    lk_check(k->stream[1], p, bytes, 9);
}

static uint64_t local_used(lk *k) {
    symmHeapInfo_t i = {.size = sizeof i};
    T_OK(symmHeapQuery(k->heap, &i));
    return i.localUsed;
}

/* Whether the heap gives the program a block where that one was. */
static int heap_gives(lk *k, const char *p, size_t bytes, unsigned flags) {
    void *x = NULL;
    T_OK(symmHeapAlloc(k->heap, bytes, 0, flags, &x));
    memset(x, 5, bytes);
    T_OK(symmHeapFree(k->heap, x));
    return x == p;
}

/* ---- launches -------------------------------------------------------------------------------- */

static void G_3_3_another_graph_waits_for_a_free_on_another_stream(void) {
    lk k;
    char *p, *left, *apart;
    lk_alone(&k, 2);
    symmGraph_t g = capture_own(&k, 0, B, SYMM_ALLOC_LOCAL, &p),
                h = capture_left(&k, 0, B, SYMM_ALLOC_LOCAL, &left),
                i = capture_own(&k, 0, B, SYMM_ALLOC_LOCAL | SYMM_ALLOC_KEEP, &apart);
    symmMemPlan_t a = lk_bind(k.lane[0], g, 0), b = lk_bind(k.lane[0], h, 0),
                  c = lk_bind(k.lane[0], i, 0);
    T_CHECK(left == p && apart != p);
    for (int round = 0; round < 3; round++) {
        lk_gate gate = {0};
        run(&k, b, h, 0);
        look_late(&k, left, B, &gate);
        lk_free(k.lane[1], left);
        run(&k, c, i, 0); /* lies elsewhere: is held up by nobody */
        for (int n = 0; n < 5000 && symmStreamQuery(k.stream[0]) == symmInProgress; n++)
            usleep(1000);
        T_OK(symmStreamQuery(k.stream[0]));
        run(&k, a, g, 0);
        is_held(&k, 0, &gate);
    }
    T_OK(symmMemPlanDestroy(a)), T_OK(symmMemPlanDestroy(b)), T_OK(symmMemPlanDestroy(c));
    T_OK(xg_destroy(g)), T_OK(xg_destroy(h)), T_OK(xg_destroy(i));
    lk_close(&k);
}

/* A block of the heap's own is nobody else's, but its own graph writes there again. */
static void G_3_3_a_kept_block_is_waited_for_by_its_own_graph(void) {
    lk k;
    char *left;
    lk_gate gate = {0};
    lk_alone(&k, 2);
    symmGraph_t h = capture_left(&k, 0, B, SYMM_ALLOC_LOCAL | SYMM_ALLOC_KEEP, &left);
    symmMemPlan_t b = lk_bind(k.lane[0], h, 0);
    run(&k, b, h, 0);
    look_late(&k, left, B, &gate);
    lk_free(k.lane[1], left);
    run(&k, b, h, 0);
    is_held(&k, 0, &gate);
    lk_free(k.lane[0], left);
    T_OK(symmMemPlanDestroy(b));
    T_OK(xg_destroy(h));
    lk_close(&k);
}

static void G_3_3_a_graph_captured_later_waits_too(void) {
    for (int heir = 0; heir < 2; heir++) { /* also for what a lane was freed on that is no more */
        lk k;
        char *left, *p;
        lk_gate gate = {0};
        lk_alone(&k, 3);
        symmGraph_t h = capture_left(&k, 0, B, SYMM_ALLOC_LOCAL, &left);
        symmMemPlan_t b = lk_bind(k.lane[0], h, 0);
        run(&k, b, h, 0);
        T_OK(symmStreamSynchronize(k.stream[0]));
        look_late(&k, left, B, &gate);
        lk_free(k.lane[1], left);
        T_OK(symmMemPlanDestroy(b)), T_OK(xg_destroy(h));
        if (heir) {
            T_OK(symmLaneDestroy(k.lane[1]));
            k.lane[1] = NULL;
        }
        symmGraph_t g = capture_own(&k, 0, B, SYMM_ALLOC_LOCAL, &p);
        symmMemPlan_t a = lk_bind(k.lane[0], g, 0);
        T_CHECK(p == left);
        run(&k, a, g, 2);
        is_held(&k, 2, &gate);
        T_OK(symmMemPlanDestroy(a)), T_OK(xg_destroy(g));
        lk_close(&k);
    }
}

/* Lanes come, free and go: what they had used is behind the lane that stands in for them, in one
 * note with its own. */
static void G_3_3_lanes_that_freed_and_ended_are_waited_for(void) {
    enum { MANY = 20 };
    lk k;
    char *left[MANY];
    symmGraph_t g[MANY];
    symmMemPlan_t plan[MANY];
    symmStream_t stream[MANY];
    lk_gate gate = {0};
    lk_alone(&k, 2);
    for (int i = 0; i < MANY; i++) T_OK(symmStreamCreate(&stream[i]));
    for (int i = 0; i < MANY; i++) {
        symmStream_t s = stream[i];
        symmLane_t l;
        int notes = 0;
        g[i] = capture_left(&k, 0, B, SYMM_ALLOC_LOCAL, &left[i]);
        plan[i] = lk_bind(k.lane[0], g[i], 0);
        run(&k, plan[i], g[i], 1);
        T_OK(symmLaneCreate(k.heap, s, &l));
        lk_order(k.stream[1], s);
        if (i == MANY / 2) lk_hold(s, &gate);
        lk_check(s, left[i], B, 9);
        lk_free(l, left[i]);
        T_OK(symmLaneDestroy(l));
        const symm_memlanes *set = symm_memlane_peek(k.lane[0])->set;
        for (const symm_memuse *e = set->uses; e; e = e->next) notes++;
        T_CHECKF(notes == 1, "%d notes", notes);
    }
    run(&k, plan[MANY / 2], g[MANY / 2], 1);
    is_held(&k, 1, &gate);
    lk_free(k.lane[1], left[MANY / 2]);
    for (int i = 0; i < MANY; i++) {
        T_OK(symmMemPlanDestroy(plan[i])), T_OK(xg_destroy(g[i]));
        T_OK(symmStreamDestroy(stream[i]));
    }
    lk_close(&k);
}

/* A plan that had nothing to wait for gets a block in bytes that are still read. */
static void G_3_3_a_plan_waits_for_the_bytes_of_its_new_block(void) {
    lk k;
    char *left;
    void *x, *y;
    symmMemPlan_t open;
    symmGraphNode_t n;
    lk_gate gate = {0};
    symmAllocNode_t params = {.size = sizeof params, .bytes = B, .flags = SYMM_ALLOC_LOCAL};
    lk_alone(&k, 2);
    T_OK(symmMemPlanCreate(k.lane[0], NULL, 0, &open));
    T_OK(symmMemPlanAddAllocNode(open, NULL, 0, &params, &n, &x));
    symmGraph_t h = capture_left(&k, 0, B, SYMM_ALLOC_LOCAL, &left);
    symmMemPlan_t b = lk_bind(k.lane[0], h, 0);
    run(&k, b, h, 0);
    T_OK(symmStreamSynchronize(k.stream[0]));
    look_late(&k, left, B, &gate);
    lk_free(k.lane[1], left);
    T_OK(symmMemPlanDestroy(b)), T_OK(xg_destroy(h));
    T_OK(symmMemPlanLaunch(open, NULL, k.stream[0]));
    T_OK(symmStreamSynchronize(k.stream[0])); /* lies elsewhere */
    lk_free(k.lane[0], x);
    T_OK(symmMemPlanAddAllocNode(open, NULL, 0, &params, &n, &y));
    T_CHECK(y == left);
    T_OK(symmMemPlanLaunch(open, NULL, k.stream[0]));
    lk_fill(k.stream[0], y, B, 1);
    is_held(&k, 0, &gate);
    lk_free(k.lane[0], x), lk_free(k.lane[0], y);
    T_OK(symmMemPlanDestroy(open));
    lk_close(&k);
}

/* Another lane's graph frees the block, launched here or (NULL) by the program, which gives its
 * work to the stream behind the call. */
static void G_3_3_a_free_in_another_lanes_graph_is_waited_for(void) {
    for (int by_program = 0; by_program < 2; by_program++) {
        lk k;
        char *left;
        lk_gate gate = {0};
        lk_alone(&k, 2);
        symmGraph_t h = capture_left(&k, 0, B, SYMM_ALLOC_LOCAL, &left);
        symmMemPlan_t b = lk_bind(k.lane[0], h, 0);
        T_OK(symmStreamBeginCapture(k.stream[1]));
        lk_hold(k.stream[1], &gate);
        lk_check(k.stream[1], left, B, 9);
        lk_free(k.lane[1], left);
        symmGraph_t f = lk_end(k.stream[1]);
        symmMemPlan_t c = lk_bind(k.lane[1], f, 0);
        run(&k, b, h, 0);
        lk_order(k.stream[0], k.stream[1]);
        run(&k, c, by_program ? NULL : f, 1);
        if (by_program) T_OK(symmGraphLaunch(xg_exec(f), k.stream[1]));
        run(&k, b, h, 0);
        is_held(&k, 0, &gate);
        lk_free(k.lane[0], left);
        T_OK(symmMemPlanDestroy(c)), T_OK(xg_destroy(f));
        T_OK(symmMemPlanDestroy(b)), T_OK(xg_destroy(h));
        lk_close(&k);
    }
}

/* ---- plans that are open at once ------------------------------------------------------------- */

static void G_4_2_plans_open_at_once_keep_apart(void) {
    lk k;
    symmMemPlan_t a, b;
    symmGraphNode_t n, m;
    void *x, *y, *z;
    char *first, *captured;
    symmAllocNode_t params = {.size = sizeof params, .bytes = B, .flags = SYMM_ALLOC_LOCAL};
    lk_alone(&k, 1);
    symmGraph_t g = capture_own(&k, 0, 8 * B, SYMM_ALLOC_LOCAL, &first);
    T_OK(symmMemPlanCreate(k.lane[0], NULL, 0, &a));
    T_OK(symmMemPlanCreate(k.lane[0], NULL, 0, &b));
    T_OK(symmMemPlanAddAllocNode(a, NULL, 0, &params, &n, &x));
    T_CHECK(x == first); /* which its own graph frees */
    T_OK(symmMemPlanAddAllocNode(b, NULL, 0, &params, &m, &y));
    T_CHECK(y != x);
    T_OK(symmStreamBeginCapture(k.stream[0]));
    captured = lk_local(k.lane[0], B);
    T_CHECK(captured != x && captured != y);
    T_OK(symmMemPlanAddAllocNode(a, &n, 1, &params, &m, &z)); /* while that one is open */
    T_CHECK(z != x && z != y && z != captured);
    T_OK(symmMemPlanAddFreeNode(a, &m, 1, z, &n));
    char *shared = lk_local(k.lane[0], B); /* where z was: it is freed in its own graph */
    T_CHECK(shared == z);
    lk_free(k.lane[0], shared);
    symmGraph_t h = lk_end(k.stream[0]);
    symmMemPlan_t c = lk_bind(k.lane[0], h, 0);
    for (int i = 0; i < 3; i++) {
        T_OK(symmMemPlanLaunch(a, NULL, k.stream[0]));
        lk_fill(k.stream[0], x, B, 1);
        T_OK(symmMemPlanLaunch(b, NULL, k.stream[0]));
        lk_fill(k.stream[0], y, B, 2);
        run(&k, c, h, 0);
        lk_check(k.stream[0], x, B, 1);
        lk_check(k.stream[0], y, B, 2);
        lk_free(k.lane[0], x);
        lk_free(k.lane[0], captured);
        lk_free(k.lane[0], y);
    }
    T_OK(symmMemPlanDestroy(a)), T_OK(symmMemPlanDestroy(b)), T_OK(symmMemPlanDestroy(c));
    T_OK(xg_destroy(g)), T_OK(xg_destroy(h));
    lk_close(&k);
}

/* Two graphs that no plan keeps apart any more, one's block is allocated: that is the one to be
 * freed. */
static void G_3_3_the_block_that_is_allocated_is_freed(void) {
    lk k;
    char *left, *again;
    lk_alone(&k, 1);
    symmGraph_t h = capture_left(&k, 0, B, SYMM_ALLOC_LOCAL, &left);
    symmMemPlan_t b = lk_bind(k.lane[0], h, 0);
    run(&k, b, h, 0);
    lk_free(k.lane[0], left);
    T_OK(symmMemPlanDestroy(b)); /* its graph lives on */
    symmGraph_t g = capture_left(&k, 0, B, SYMM_ALLOC_LOCAL, &again);
    symmMemPlan_t a = lk_bind(k.lane[0], g, 0);
    T_CHECK(again == left);
    symmGraph_t later = capture_left(&k, 0, B, SYMM_ALLOC_LOCAL, &left);
    T_CHECK(left != again);
    run(&k, a, g, 0);
    lk_free(k.lane[0], again);
    T_OK(symmStreamSynchronize(k.stream[0]));
    T_OK(symmMemPlanDestroy(a));
    T_OK(xg_destroy(g)), T_OK(xg_destroy(h)), T_OK(xg_destroy(later));
    lk_close(&k);
}

/* ---- back to the heap ------------------------------------------------------------------------ */

static void G_6_trim_waits_for_a_late_free(void) {
    lk k;
    char *left;
    uint64_t freed = 0;
    lk_gate gate = {0};
    lk_alone(&k, 2);
    symmGraph_t h = capture_left(&k, 0, BIG, SYMM_ALLOC_LOCAL, &left);
    symmMemPlan_t b = lk_bind(k.lane[0], h, 0);
    run(&k, b, h, 0);
    T_OK(symmStreamSynchronize(k.stream[0]));
    T_OK(xg_destroy(h));
    look_in_a_moment(&k, left, BIG, &gate);
    lk_free(k.lane[1], left);
    T_OK(symmMemPlanDestroy(b));
    T_CHECK(!heap_gives(&k, left, BIG, SYMM_ALLOC_LOCAL));
    T_OK(symmLaneTrimGraphMem(k.lane[0], &freed));
    T_CHECK(freed >= BIG && atomic_load(&gate.open));
    T_EQ(local_used(&k), 0);
    T_CHECK(heap_gives(&k, left, BIG, SYMM_ALLOC_LOCAL));
    lk_close(&k);
}

static void G_6_collect_waits_for_a_late_free(void) {
    lk k;
    char *left;
    lk_gate gate = {0};
    symmHeapInfo_t i = {.size = sizeof i};
    lk_alone(&k, 2);
    symmGraph_t h = capture_left(&k, 0, BIG, SYMM_ALLOC_SYM | SYMM_ALLOC_KEEP, &left);
    symmMemPlan_t b = lk_bind(k.lane[0], h, 0);
    run(&k, b, h, 0);
    T_OK(symmStreamSynchronize(k.stream[0]));
    T_OK(xg_destroy(h));
    T_OK(symmMemPlanDestroy(b));
    look_in_a_moment(&k, left, BIG, &gate);
    lk_free(k.lane[1], left);
    T_CHECK(!heap_gives(&k, left, BIG, SYMM_ALLOC_SYM));
    T_OK(symmHeapCollect(k.heap));
    T_CHECK(atomic_load(&gate.open));
    T_OK(symmHeapQuery(k.heap, &i));
    T_EQ(i.symUsed + i.uncollected, 0);
    T_CHECK(heap_gives(&k, left, BIG, SYMM_ALLOC_SYM));
    lk_close(&k);
}

/* A plan that has ended holds its memory until its last block is freed, also by a graph: on all
 * ranks from that launch on, whenever graphs go. */
static void G_6_a_free_in_a_graph_lets_go_of_an_ended_plan(void) {
    lk k;
    char *left;
    uint64_t freed = 0;
    lk_alone(&k, 2);
    symmGraph_t h = capture_left(&k, 0, BIG, SYMM_ALLOC_LOCAL, &left);
    symmMemPlan_t b = lk_bind(k.lane[0], h, 0);
    T_OK(symmStreamBeginCapture(k.stream[1]));
    lk_check(k.stream[1], left, BIG, 9);
    lk_free(k.lane[1], left);
    symmGraph_t f = lk_end(k.stream[1]);
    symmMemPlan_t c = lk_bind(k.lane[1], f, 0);
    run(&k, b, h, 0);
    T_OK(symmStreamSynchronize(k.stream[0]));
    T_OK(symmMemPlanDestroy(b)), T_OK(xg_destroy(h));
    T_OK(symmLaneTrimGraphMem(k.lane[0], &freed));
    T_EQ(freed, 0);
    T_EQ(lk_mem(k.lane[0], SYMM_GRAPH_MEM_USED), BIG);
    run(&k, c, f, 1);
    T_EQ(lk_mem(k.lane[0], SYMM_GRAPH_MEM_USED), 0);
    T_OK(symmLaneTrimGraphMem(k.lane[0], &freed));
    T_EQ(freed, BIG);
    T_CHECK(local_used(&k) >= BIG); /* the graph that frees knows of it still */
    T_OK(symmMemPlanDestroy(c)), T_OK(xg_destroy(f));
    T_OK(symmLaneTrimGraphMem(k.lane[0], NULL));
    T_EQ(local_used(&k), 0);
    lk_close(&k);
}

/* What a trim gives back, a plan that is still being made had been offered too. */
static void G_6_a_trim_takes_from_plans_that_are_open(void) {
    lk k;
    symmMemPlan_t open;
    symmGraphNode_t n;
    char *p;
    void *x, *heaps;
    uint64_t freed = 0;
    symmAllocNode_t params = {.size = sizeof params, .bytes = BIG, .flags = SYMM_ALLOC_LOCAL};
    T_EXPECT_WARNINGS();
    lk_alone(&k, 1);
    symmGraph_t g = capture_own(&k, 0, BIG, SYMM_ALLOC_LOCAL, &p);
    symmMemPlan_t a = lk_bind(k.lane[0], g, 0);
    T_OK(symmMemPlanCreate(k.lane[0], NULL, 0, &open));
    T_OK(symmMemPlanDestroy(a)), T_OK(xg_destroy(g));
    T_EQ(symm_fail_arm("gplan_room:error"), 0);
    T_ERR(symmLaneTrimGraphMem(k.lane[0], &freed), symmOutOfMemory);
    T_EQ(symm_fail_arm(""), 0);
    T_EQ(freed, 0);
    T_OK(symmLaneTrimGraphMem(k.lane[0], &freed));
    T_EQ(freed, BIG);
    T_OK(symmHeapAlloc(k.heap, BIG, 0, SYMM_ALLOC_LOCAL, &heaps));
    T_CHECK(heaps == p);
    T_OK(symmMemPlanAddAllocNode(open, NULL, 0, &params, &n, &x));
    T_CHECK(x != p);
    T_OK(symmHeapFree(k.heap, heaps));
    T_OK(symmMemPlanAddFreeNode(open, &n, 1, x, &n));
    T_OK(symmMemPlanDestroy(open));
    T_OK(symmLaneTrimGraphMem(k.lane[0], NULL));
    T_EQ(local_used(&k), 0);
    lk_close(&k);
}

/* A block of the heap's own, LOCAL, goes with its plan: not while it is read. A trim brings it
 * back, or a collect; where not even a record of it can be had, the collect. */
static void G_6_a_kept_block_goes_when_its_readers_have_ended(void) {
    for (int way = 0; way < 3; way++) {
        lk k;
        char *left;
        lk_gate gate = {0};
        lk_alone(&k, 2);
        symmGraph_t h = capture_left(&k, 0, BIG, SYMM_ALLOC_LOCAL | SYMM_ALLOC_KEEP, &left);
        symmMemPlan_t b = lk_bind(k.lane[0], h, 0);
        run(&k, b, h, 0);
        T_OK(symmStreamSynchronize(k.stream[0]));
        T_OK(xg_destroy(h));
        T_OK(symmMemPlanDestroy(b));
        look_in_a_moment(&k, left, BIG, &gate);
        if (way == 2) T_EQ(symm_fail_arm("memplan_retire_keep:error"), 0);
        lk_free(k.lane[1], left);
        T_EQ(symm_fail_arm(""), 0);
        T_CHECK(!heap_gives(&k, left, BIG, SYMM_ALLOC_LOCAL));
        if (way != 1) T_OK(symmLaneTrimGraphMem(k.lane[0], NULL));
        if (way != 0) T_OK(symmHeapCollect(k.heap));
        T_CHECK(atomic_load(&gate.open));
        T_EQ(local_used(&k), 0);
        T_CHECK(heap_gives(&k, left, BIG, SYMM_ALLOC_LOCAL));
        lk_close(&k);
    }
}

/* A lane goes, and its graphs' memory with it; another one stands in for it, so nobody waits: the
 * memory does. */
static void G_6_memory_of_a_lane_that_ends_waits_for_its_readers(void) {
    for (int reader_ends = 0; reader_ends < 2; reader_ends++) {
        lk k;
        char *left;
        lk_gate gate = {0};
        lk_alone(&k, 3);
        symmGraph_t h = capture_left(&k, 0, BIG, SYMM_ALLOC_LOCAL, &left);
        symmMemPlan_t b = lk_bind(k.lane[0], h, 0);
        run(&k, b, h, 0);
        T_OK(symmStreamSynchronize(k.stream[0]));
        T_OK(symmMemPlanDestroy(b)), T_OK(xg_destroy(h));
        look_in_a_moment(&k, left, BIG, &gate);
        lk_free(k.lane[1], left);
        T_OK(symmLaneDestroy(k.lane[0])), k.lane[0] = NULL;
        if (reader_ends) T_OK(symmLaneDestroy(k.lane[1])), k.lane[1] = NULL;
        T_CHECK(!heap_gives(&k, left, BIG, SYMM_ALLOC_LOCAL));
        T_OK(symmHeapCollect(k.heap));
        T_CHECK(atomic_load(&gate.open));
        T_EQ(local_used(&k), 0);
        lk_close(&k);
    }
}

/* The last lane waits for all: also for what another lane's graph frees, launched on a stream that
 * is no lane's. */
static void G_6_the_last_lane_waits_for_all_readers(void) {
    for (int way = 0; way < 2; way++) {
        lk k;
        char *left;
        symmStream_t other;
        lk_gate gate = {0};
        lk_alone(&k, 2);
        T_OK(symmStreamCreate(&other));
        symmGraph_t h = capture_left(&k, 0, BIG, SYMM_ALLOC_LOCAL, &left);
        symmMemPlan_t b = lk_bind(k.lane[0], h, 0), c;
        symmGraphNode_t node;
        T_OK(symmMemPlanCreate(k.lane[1], NULL, 0, &c));
        T_OK(symmMemPlanAddFreeNode(c, NULL, 0, left, &node));
        run(&k, b, h, 0);
        T_OK(symmStreamSynchronize(k.stream[0]));
        lk_order(k.stream[0], other);
        T_OK(symmMemPlanLaunch(c, NULL, other)); /* the plan's own work comes behind the call */
        T_OK(symmStreamHostFunc(other, moment, &gate));
        lk_check(other, left, BIG, 9);
        T_OK(symmMemPlanDestroy(c));
        T_OK(symmMemPlanDestroy(b)), T_OK(xg_destroy(h));
        if (way == 0) T_OK(symmLaneTrimGraphMem(k.lane[0], NULL));
        for (int i = 2; way && i-- > 0;) T_OK(symmLaneDestroy(k.lane[i])), k.lane[i] = NULL;
        T_CHECK(atomic_load(&gate.open));
        T_EQ(local_used(&k), 0);
        T_OK(symmStreamSynchronize(other));
        T_OK(symmStreamDestroy(other));
        lk_close(&k);
    }
}

/* Nodes that no graph holds: the work that the plan stands for is the program's own, and may run
 * when the plan has ended; also when no lane is left that would remember it. */
static void G_6_explicit_nodes_keep_memory_until_their_work_has_ended(void) {
    lk k;
    symmMemPlan_t plan;
    symmGraphNode_t a, b;
    void *x;
    symmAllocNode_t params = {
        .size = sizeof params, .bytes = BIG, .flags = SYMM_ALLOC_LOCAL | SYMM_ALLOC_KEEP};
    for (int lanes = 2; lanes >= 0; lanes -= 2) {
        lk_gate gate = {0};
        lk_alone(&k, 2);
        T_OK(symmMemPlanCreate(k.lane[0], NULL, 0, &plan));
        T_OK(symmMemPlanAddAllocNode(plan, NULL, 0, &params, &a, &x));
        T_OK(symmMemPlanAddFreeNode(plan, &a, 1, x, &b));
        for (int i = 0; !lanes && i < 2; i++) T_OK(symmLaneDestroy(k.lane[i])), k.lane[i] = NULL;
        T_OK(symmMemPlanLaunch(plan, NULL, k.stream[1]));
        lk_fill(k.stream[1], x, BIG, 9);
        T_OK(symmStreamHostFunc(k.stream[1], moment, &gate));
        lk_check(k.stream[1], x, BIG, 9);
        T_OK(symmMemPlanDestroy(plan));
        if (lanes) T_CHECK(!heap_gives(&k, x, BIG, SYMM_ALLOC_LOCAL));
        if (lanes) T_OK(symmLaneTrimGraphMem(k.lane[0], NULL));
        T_CHECK(atomic_load(&gate.open));
        if (!lanes) T_OK(symmHeapCollect(k.heap));
        T_EQ(local_used(&k), 0);
        lk_close(&k);
    }
}

T_MAIN(T(G_3_3_another_graph_waits_for_a_free_on_another_stream),
       T(G_3_3_a_kept_block_is_waited_for_by_its_own_graph),
       T(G_3_3_a_graph_captured_later_waits_too),
       T(G_3_3_lanes_that_freed_and_ended_are_waited_for),
       T(G_3_3_a_plan_waits_for_the_bytes_of_its_new_block),
       T(G_3_3_a_free_in_another_lanes_graph_is_waited_for), T(G_4_2_plans_open_at_once_keep_apart),
       T(G_3_3_the_block_that_is_allocated_is_freed), T(G_6_trim_waits_for_a_late_free),
       T(G_6_collect_waits_for_a_late_free), T(G_6_a_free_in_a_graph_lets_go_of_an_ended_plan),
       T(G_6_a_trim_takes_from_plans_that_are_open),
       T(G_6_a_kept_block_goes_when_its_readers_have_ended),
       T(G_6_memory_of_a_lane_that_ends_waits_for_its_readers),
       T(G_6_the_last_lane_waits_for_all_readers),
       T(G_6_explicit_nodes_keep_memory_until_their_work_has_ended))
