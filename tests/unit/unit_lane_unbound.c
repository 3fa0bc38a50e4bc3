/* unit_lane_unbound.c - graphs with blocks of a lane that no plan was bound to: they give back what
 * they have, and free like any other. One rank, and several as threads, each with streams of its
 * own. */
#include <pthread.h>

#include "graph_kit.h"
#include "lane_kit.h"

enum { B = 4096, BIG = 8 << 20 };

static uint64_t heap_used(lk *k) {
    symmHeapInfo_t i = {.size = sizeof i};
    T_OK(symmHeapQuery(k->heap, &i));
    return i.symUsed + i.localUsed;
}

static uint64_t trim(lk *k, int lane) {
    uint64_t freed = 0;
    T_OK(symmLaneTrimGraphMem(k->lane[lane], &freed));
    return freed;
}

static void launch(lk *k, symmGraph_t g) {
    T_OK(symmGraphLaunch(xg_exec(g), k->stream[0]));
    T_OK(symmStreamSynchronize(k->stream[0]));
}

/* A graph that leaves a block. */
static symmGraph_t capture_left(lk *k, int lane, size_t bytes, unsigned flags, char **p) {
    T_OK(symmStreamBeginCapture(k->stream[lane]));
    *p = lk_alloc(k->lane[lane], bytes, flags);
    lk_fill(k->stream[lane], *p, B, 9);
    return lk_end(k->stream[lane]);
}

static void memory_comes_back(void) {
    lk k;
    lk_alone(&k, 1);
    const uint64_t before = heap_used(&k);
    T_OK(symmStreamBeginCapture(k.stream[0]));
    char *p = lk_sym(k.lane[0], BIG), *q = lk_local(k.lane[0], BIG);
    char *kept = lk_alloc(k.lane[0], BIG, SYMM_ALLOC_LOCAL | SYMM_ALLOC_KEEP);
    lk_fill(k.stream[0], p, BIG, 1);
    lk_free(k.lane[0], p), lk_free(k.lane[0], q), lk_free(k.lane[0], kept);
    symmGraph_t g = lk_end(k.stream[0]);
    for (int i = 0; i < 3; i++) launch(&k, g);
    T_EQ(trim(&k, 0), 0); /* the graph may be launched again */
    T_CHECK(lk_mem(k.lane[0], SYMM_GRAPH_MEM_RESERVED) >= 3ull * BIG);
    T_OK(xg_destroy(g));
    T_CHECK(trim(&k, 0) >= 2ull * BIG);
    T_EQ(lk_mem(k.lane[0], SYMM_GRAPH_MEM_RESERVED), 0);
    T_EQ(lk_mem(k.lane[0], SYMM_GRAPH_MEM_USED), 0);
    T_OK(symmHeapCollect(k.heap));
    T_EQ(heap_used(&k), before);
    T_EQ(SYMM_STAT_GET(plans), 0);
    lk_close(&k);
}

/* A capture that fails leaves nothing behind either. */
static void a_discarded_capture_gives_back(void) {
    lk k;
    symmGraph_t g;
    T_EXPECT_WARNINGS();
    lk_alone(&k, 2);
    const uint64_t before = heap_used(&k);
    T_OK(symmStreamBeginCapture(k.stream[0]));
    lk_local(k.lane[0], BIG); /* never launched, so never allocated */
    lk_order(k.stream[0], k.stream[1]);
    lk_fill(k.stream[1], lk_local(k.lane[1], B), B, 1);
    T_ERR(symmStreamEndCapture(k.stream[0], &g), symmInvalidUsage); /* unjoined */
    T_CHECK(trim(&k, 0) >= BIG);
    T_EQ(heap_used(&k), before);
    lk_close(&k);
}

static void what_it_leaves_is_freed_as_any_block(void) {
    lk k;
    char *p;
    T_EXPECT_WARNINGS();
    lk_alone(&k, 2);
    const uint64_t before = heap_used(&k);
    symmGraph_t g = capture_left(&k, 0, B, SYMM_ALLOC_LOCAL, &p);
    T_ERR(symmLaneFree(k.lane[0], p), symmInvalidArgument);
    T_MSG(symmGetLastError(NULL), "its graph was not launched since");
    for (int i = 0; i < 3; i++) {
        launch(&k, g);
        lk_check(k.stream[1], p, B, 9);
        lk_order(k.stream[1], k.stream[0]); /* no plan orders the next launch */
        lk_free(k.lane[i % 2], p);
        T_ERR(symmLaneFree(k.lane[0], p), symmInvalidArgument); /* freed already */
    }
    launch(&k, g);
    T_OK(xg_destroy(g)); /* frees nothing */
    T_EQ(trim(&k, 0), 0);
    T_OK(symmHeapCollect(k.heap));
    T_EQ(SYMM_STAT_GET(plans), 1);
    lk_check(k.stream[1], p, B, 9);
    lk_free(k.lane[1], p);
    T_ERR(symmLaneFree(k.lane[0], p), symmInvalidArgument);
    T_CHECK(trim(&k, 0) >= B);
    T_EQ(heap_used(&k), before);
    lk_close(&k);
}

/* It is still there when its lane has gone, and another one frees it. */
static void what_it_leaves_outlives_its_lane(void) {
    lk k;
    char *p;
    lk_alone(&k, 2);
    symmGraph_t g = capture_left(&k, 0, BIG, SYMM_ALLOC_LOCAL, &p);
    launch(&k, g);
    T_OK(symmLaneDestroy(k.lane[0]));
    k.lane[0] = NULL;
    T_OK(xg_destroy(g));
    T_OK(symmHeapCollect(k.heap));
    T_CHECK(heap_used(&k) >= BIG);
    lk_check(k.stream[1], p, B, 9);
    lk_free(k.lane[1], p);
    T_OK(symmHeapCollect(k.heap));
    T_EQ(heap_used(&k), 0);
    symmGraph_t h = capture_left(&k, 1, B, SYMM_ALLOC_LOCAL, &p);
    T_OK(symmGraphLaunch(xg_exec(h), k.stream[1]));
    T_OK(symmStreamSynchronize(k.stream[1]));
    T_OK(xg_destroy(h));
    lk_close(&k); /* the last lane takes along what is left */
    T_EQ(SYMM_STAT_GET(plans), 0);
}

/* A heap without lanes, of which a graph still holds memory, has no part in later captures: they
 * hold nothing of it, and its memory goes with its graph, even in the midst of one. */
static void captures_leave_a_heap_without_lanes_alone(void) {
    for (int gone = 0; gone < 2; gone++) {
        lk k;
        static float x[64];
        lk_alone(&k, 1);
        T_OK(symmStreamBeginCapture(k.stream[0]));
        lk_free(k.lane[0], lk_local(k.lane[0], B));
        symmGraph_t g = lk_end(k.stream[0]), h;
        T_OK(symmLaneDestroy(k.lane[0]));
        k.lane[0] = NULL;
        T_EQ(SYMM_STAT_GET(plans), 1);
        if (gone) T_OK(xg_destroy(g)); /* what it holds goes with the next call that looks */
        T_OK(symmStreamBeginCapture(k.stream[0]));
        for (int i = 0; i < 2; i++)
            T_OK(symmAllReduce(x, x, 64, symmFloat32, symmSum, k.comm, k.stream[0]));
        h = lk_end(k.stream[0]);
        T_EQ(SYMM_STAT_GET(plans), 1);
        launch(&k, h);
        T_OK(xg_destroy(h));
        if (!gone) T_OK(xg_destroy(g));
        T_OK(symmHeapCollect(k.heap));
        T_EQ(SYMM_STAT_GET(plans), 0);
        T_EQ(heap_used(&k), 0);
        lk_close(&k);
    }
}

/* By a graph that is bound, and by one that is not. */
static void another_graph_frees_what_it_leaves(void) {
    lk k;
    char *p;
    T_EXPECT_WARNINGS();
    lk_alone(&k, 2);
    const uint64_t before = heap_used(&k);
    for (int bound = 0; bound < 2; bound++) {
        symmMemPlan_t plan = NULL;
        symmGraph_t g = capture_left(&k, 0, B, SYMM_ALLOC_LOCAL, &p), h;
        T_OK(symmStreamBeginCapture(k.stream[1]));
        lk_check(k.stream[1], p, B, 9);
        lk_free(k.lane[1], p);
        h = lk_end(k.stream[1]);
        if (bound) plan = lk_bind(k.lane[1], h, 0);
        if (bound)
            T_ERR(symmMemPlanLaunch(plan, xg_exec(h), k.stream[0]),
                  symmInvalidUsage); /* not allocated */
        for (int i = 0; i < 3; i++) {
            launch(&k, g);
            if (bound) {
                T_OK(symmMemPlanLaunch(plan, xg_exec(h), k.stream[0]));
                T_OK(symmStreamSynchronize(k.stream[0]));
                T_ERR(symmLaneFree(k.lane[0], p), symmInvalidArgument);
            } else {
                launch(&k, h);
            }
        }
        T_OK(xg_destroy(g)), T_OK(xg_destroy(h));
        if (bound) T_OK(symmMemPlanDestroy(plan));
        trim(&k, 0), trim(&k, 1);
        T_EQ(heap_used(&k), before);
        T_EQ(SYMM_STAT_GET(plans), 0);
    }
    lk_close(&k);
}

/* ---- several ranks ---- */

typedef struct {
    symmComm_t comms[4];
    pthread_barrier_t meet;
    _Atomic uint64_t off[4];
    void *kept[4];
    void (*fn)(lk *k, void *job);
} job;

static void rank_thread(int rank, int n, void *arg) {
    job *j = arg;
    lk k;
    lk_open(&k, rank, n, j->comms[rank], 1, 64 * LK_MB, 64 * LK_MB);
    j->fn(&k, j);
    lk_close(&k);
}

static void run(int n, void (*fn)(lk *, void *)) {
    static job j;
    j.fn = fn;
    lk_env();
    T_OK(symmCommInitAll(j.comms, n, NULL));
    pthread_barrier_init(&j.meet, NULL, (unsigned)n);
    T_THREADS(n, rank_thread, &j);
    pthread_barrier_destroy(&j.meet);
}

/* Graphs go on one rank earlier than on the other: the memory of each comes back when both have
 * said so, and no sooner. */
static void gone_at_different_times(lk *k, void *arg) {
    enum { GRAPHS = 70 }; /* more than one message tells of */
    symmGraph_t g[GRAPHS];
    symmHeapInfo_t i = {.size = sizeof i};
    (void)arg;
    for (int n = 0; n < GRAPHS; n++) {
        T_OK(symmStreamBeginCapture(k->stream[0]));
        char *p = lk_sym(k->lane[0], n ? B : BIG);
        char *kept = lk_alloc(k->lane[0], B, SYMM_ALLOC_SYM | SYMM_ALLOC_KEEP);
        lk_fill(k->stream[0], p, B, n), lk_fill(k->stream[0], kept, B, n);
        lk_free(k->lane[0], p), lk_free(k->lane[0], kept);
        g[n] = lk_end(k->stream[0]);
    }
    for (int n = 0; n < GRAPHS; n++) launch(k, g[n]);
    T_OK(symmHeapQuery(k->heap, &i));
    T_CHECK(i.symUsed >= BIG + GRAPHS * B);
    const uint64_t used = i.symUsed;
    for (int n = 0; n < GRAPHS; n++)
        if (k->rank || n % 2) T_OK(xg_destroy(g[n]));
    T_OK(symmHeapCollect(k->heap));
    T_OK(symmHeapQuery(k->heap, &i));
    T_EQ(i.symUsed, used - GRAPHS / 2 * B); /* the kept blocks of every second one */
    T_EQ(trim(k, 0), 0);                    /* on rank 1 as on rank 0 */
    for (int n = 0; n < GRAPHS; n += 2)
        if (k->rank == 0) T_OK(xg_destroy(g[n]));
    T_OK(symmHeapCollect(k->heap));
    T_CHECK(trim(k, 0) >= BIG);
    T_OK(symmHeapCollect(k->heap));
    T_OK(symmHeapQuery(k->heap, &i));
    T_EQ(i.symUsed, 0);
    T_OK(symmHeapCheck(k->heap));
}

static void ranks_agree_which_graphs_are_gone(void) {
    run(2, gone_at_different_times);
}

/* A rank's LOCAL blocks are its own business: the SYM ones of its graphs lie where the others'
 * do. */
static void more_local_on_one(lk *k, void *arg) {
    job *j = arg;
    symmRef_t ref;
    T_OK(symmStreamBeginCapture(k->stream[0]));
    if (k->rank == 0) lk_free(k->lane[0], lk_local(k->lane[0], BIG));
    char *first = lk_sym(k->lane[0], B), *p = lk_sym(k->lane[0], 100 << 10);
    void *own = NULL; /* where the region's step shows */
    lk_free(k->lane[0], first), lk_free(k->lane[0], p);
    symmGraph_t g = lk_end(k->stream[0]);
    T_OK(symmHeapAlloc(k->heap, B, 0, SYMM_ALLOC_SYM, &own));
    T_OK(symmRefGet(own, &ref));
    atomic_store(&j->off[k->rank], ref.off);
    pthread_barrier_wait(&j->meet);
    T_EQ(atomic_load(&j->off[0]), atomic_load(&j->off[1]));
    T_OK(symmHeapFree(k->heap, own));
    T_OK(symmHeapCheck(k->heap));
    T_OK(xg_destroy(g));
}

static void local_blocks_move_no_symmetric_ones(void) {
    run(2, more_local_on_one);
}

/* Rank 1 frees the LOCAL block that the graph of an ended plan had left later than rank 0. */
static void local_freed_later_on_one(lk *k, void *arg) {
    job *j = arg;
    symmRef_t ref;
    uint64_t freed;
    symmGraph_t g[3];
    for (int i = 0; i < 3; i++) {
        T_OK(symmStreamBeginCapture(k->stream[0]));
        char *p = lk_sym(k->lane[0], B), *local = i ? NULL : lk_local(k->lane[0], B);
        g[i] = lk_end(k->stream[0]);
        T_OK(symmRefGet(p, &ref));
        atomic_store(&j->off[k->rank], ref.off);
        pthread_barrier_wait(&j->meet);
        T_EQ(atomic_load(&j->off[0]), atomic_load(&j->off[1]));
        pthread_barrier_wait(&j->meet);
        symmMemPlan_t plan = lk_bind(k->lane[0], g[i], 0);
        T_OK(symmMemPlanLaunch(plan, xg_exec(g[i]), k->stream[0]));
        T_OK(symmMemPlanDestroy(plan));
        lk_free(k->lane[0], p);
        if (i == 0 && k->rank == 0) lk_free(k->lane[0], local);
        if (i == 0) j->kept[k->rank] = local;
        if (i == 1) T_OK(symmLaneTrimGraphMem(k->lane[0], &freed));
    }
    T_OK(symmHeapCheck(k->heap));
    if (k->rank == 1) lk_free(k->lane[0], j->kept[1]);
    for (int i = 0; i < 3; i++) T_OK(xg_destroy(g[i]));
}

static void local_blocks_that_are_left_move_no_symmetric_ones(void) {
    run(2, local_freed_later_on_one);
}

T_MAIN(T(memory_comes_back), T(a_discarded_capture_gives_back),
       T(what_it_leaves_is_freed_as_any_block), T(what_it_leaves_outlives_its_lane),
       T(captures_leave_a_heap_without_lanes_alone), T(another_graph_frees_what_it_leaves),
       T(ranks_agree_which_graphs_are_gone), T(local_blocks_move_no_symmetric_ones),
       T(local_blocks_that_are_left_move_no_symmetric_ones))
