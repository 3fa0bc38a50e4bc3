/* unit_lane_fail.c - every allocation that lanes and graph plans make fails in turn, on the host
 * backend; the driver's side is in unit_gpu_lane.c. Each failure is told, what was there is as
 * before, and nothing is left. One rank, or two that are threads where a point needs a peer. */
#include "base/fail.h"
#include "graph_kit.h"
#include "lane_kit.h"

enum { B = 4096, MANY = 80 };

#define STEP(call)                                  \
    do {                                            \
        if (result == symmSuccess) result = (call); \
    } while (0)

/* ---- one rank -------------------------------------------------------------------------------- */

typedef struct {
    symmLane_t lane[2];
    symmGraph_t graph, copy;
    symmMemPlan_t plan, nodes;
    void *left, *p[MANY];
} made;

static symmResult_t eager(lk *k, made *m) {
    symmResult_t result = symmSuccess;
    for (int i = 0; i < 2; i++) STEP(symmLaneCreate(k->heap, k->stream[i], &m->lane[i]));
    for (int i = 0; i < MANY; i++)
        STEP(symmLaneAlloc(m->lane[0], B + 256 * (size_t)(i % 7), SYMM_ALLOC_LOCAL, &m->p[i]));
    return result;
}

static symmResult_t captured(lk *k, made *m) {
    symmResult_t result = symmSuccess;
    symmGraph_t g = NULL;
    void *p = NULL;
    STEP(symmStreamBeginCapture(k->stream[0]));
    if (result) return result;
    STEP(symmLaneAlloc(m->lane[0], B, SYMM_ALLOC_LOCAL, &p));
    STEP(symmLaneFree(m->lane[0], p));
    STEP(symmLaneAlloc(m->lane[0], B, SYMM_ALLOC_LOCAL, &m->left));
    symmResult_t ended = symmStreamEndCapture(k->stream[0], &g);
    STEP(ended);
    if (!ended) m->graph = g;
    STEP(symmMemPlanBind(m->lane[0], g, 0, &m->plan));
    STEP(symmStreamBeginCapture(k->stream[1]));
    if (result) return result;
    STEP(symmLaneFree(m->lane[1], m->left));
    STEP(xg_launch(m->graph, k->stream[1])); /* a copy holds what the graph holds */
    ended = symmStreamEndCapture(k->stream[1], &g);
    STEP(ended);
    if (!ended) m->copy = g;
    return result;
}

static symmResult_t launched(lk *k, made *m) {
    symmResult_t result = symmSuccess;
    symmGraphNode_t node, deps[100];
    symmAllocNode_t params = {.size = sizeof params, .bytes = B, .flags = SYMM_ALLOC_LOCAL};
    void *p;
    uint64_t v;
    symmGraphExec_t exec = NULL;
    STEP(xg_get(m->graph, &exec));
    STEP(symmMemPlanLaunch(m->plan, exec, k->stream[0]));
    STEP(symmLaneFree(m->lane[1], m->left));
    STEP(symmMemPlanCreate(m->lane[0], NULL, 0, &m->nodes));
    STEP(symmMemPlanAddAllocNode(m->nodes, NULL, 0, &params, &node, &p));
    for (int i = 0; i < 100; i++) deps[i] = node;
    STEP(symmMemPlanAddFreeNode(m->nodes, deps, 100, p, &node));
    STEP(symmLaneGetGraphMem(m->lane[0], SYMM_GRAPH_MEM_USED, &v));
    if (!result) T_EQ(v, 2 * B);
    return result;
}

/* Everything goes, whatever came of it; the last steps may fail too. */
static symmResult_t end(lk *k, made *m) {
    symmResult_t result = symmSuccess;
    for (int i = 0; i < 2; i++) T_OK(symmStreamSynchronize(k->stream[i]));
    if (m->copy) T_OK(xg_destroy(m->copy));
    if (m->graph) T_OK(xg_destroy(m->graph));
    if (m->plan) T_OK(symmMemPlanDestroy(m->plan));
    if (m->nodes) T_OK(symmMemPlanDestroy(m->nodes));
    if (m->plan) STEP(symmLaneTrimGraphMem(m->lane[0], NULL));
    return result;
}

static symmResult_t scenario(void) {
    lk k;
    made m;
    memset(&m, 0, sizeof m);
    lk_alone(&k, 0);
    for (int i = 0; i < 2; i++) T_OK(symmStreamCreate(&k.stream[i]));
    symmResult_t result = eager(&k, &m);
    STEP(captured(&k, &m));
    STEP(launched(&k, &m));
    symmResult_t ended = end(&k, &m);
    STEP(ended);
    if (!result) {
        for (int i = 0; i < MANY; i++) lk_free(m.lane[0], m.p[i]);
        for (int i = 0; i < 2; i++) T_OK(symmLaneDestroy(m.lane[i])), m.lane[i] = NULL;
    }
    symmHeapInfo_t i = {.size = sizeof i};
    T_OK(symmHeapQuery(k.heap, &i));
    if (!result) T_EQ(i.localUsed, 0);
    T_OK(symmHeapDestroy(k.heap));
    for (int n = 0; n < 2; n++)
        if (m.lane[n]) T_OK(symmLaneDestroy(m.lane[n]));
    for (int n = 0; n < 2; n++) T_OK(symmStreamDestroy(k.stream[n]));
    T_OK(symmCommDestroy(k.comm));
    T_EQ(SYMM_STAT_GET(lanes) + SYMM_STAT_GET(plans) + SYMM_STAT_GET(comms), 0);
    return result;
}

static int is_for(int point, const char *where) {
    char words[128], *save = NULL;
    snprintf(words, sizeof words, "%s", symm_fail_where(point));
    for (char *w = strtok_r(words, " ", &save); w; w = strtok_r(NULL, " ", &save))
        if (!strcmp(w, where)) return 1;
    return 0;
}

static void each_point(const char *where, symmResult_t (*run)(void)) {
    int points = 0;
    for (int point = 0; point < symm_fp_count; point++) {
        if (!is_for(point, where)) continue;
        int told = 0;
        for (int nth = 1; nth < 60; nth++) {
            char spec[96];
            snprintf(spec, sizeof spec, "%s:error:%d", symm_fail_name(point), nth);
            T_EQ(symm_fail_arm(spec), 0);
            symmResult_t r = run();
            int hits = symm_fail_hits(point);
            T_EQ(symm_fail_arm(""), 0);
            if (hits < nth) {
                T_CHECKF(r == symmSuccess, "%s: %d", spec, (int)r);
                break;
            }
            /* Where it only keeps a high up to date, the count is made again later. */
            const int survives = point == symm_fp_memplan_used && r == symmSuccess;
            T_CHECKF(r == symmOutOfMemory || survives, "%s: %d", spec, (int)r);
            told += !survives;
        }
        T_CHECKF(told > 0, "%s is not met", symm_fail_name(point));
        points++;
    }
    T_CHECK(points > 0);
}

static void every_allocation_of_one_rank_fails_in_turn(void) {
    T_EXPECT_WARNINGS();
    T_OK(scenario());
    each_point("lane", scenario);
}

/* ---- two threads ----------------------------------------------------------------------------- */

static symmHeap_t shared;
static int reached;
static void *take_half(void *half) {
    while (!symm_fail_hits(reached)) sched_yield();
    T_OK(symmHeapAlloc(shared, 32 * LK_KB, 0, SYMM_ALLOC_LOCAL, half));
    return NULL;
}

/* The heap has 48 KiB in one piece. When the lane has seen that, another thread takes 32: what is
 * left is less than the lane would set apart, and enough for its block. */
static void local_memory_that_another_thread_has_first(void) {
    lk k;
    symmGraph_t g = NULL;
    for (int captured = 0; captured < 2; captured++) {
        char spec[64];
        pthread_t other;
        symmHeapInfo_t i = {.size = sizeof i};
        void *most, *half = NULL, *p = NULL;
        lk_alone(&k, 1);
        T_OK(symmHeapQuery(k.heap, &i));
        T_OK(symmHeapAlloc(k.heap, i.localBytes - 48 * LK_KB, 0, SYMM_ALLOC_LOCAL, &most));
        if (captured) T_OK(symmStreamBeginCapture(k.stream[0]));
        shared = k.heap;
        reached = captured ? symm_fp_memplan_piece : symm_fp_memlane_piece;
        snprintf(spec, sizeof spec, "%s:delay=300:1", symm_fail_name(reached));
        T_EQ(symm_fail_arm(spec), 0);
        T_EQ(pthread_create(&other, NULL, take_half, &half), 0);
        T_OK(symmLaneAlloc(k.lane[0], B, SYMM_ALLOC_LOCAL, &p));
        pthread_join(other, NULL);
        T_CHECK(half != NULL);
        T_EQ(symm_fail_arm(""), 0);
        lk_free(k.lane[0], p);
        if (captured) T_OK(symmStreamEndCapture(k.stream[0], &g));
        if (captured) T_OK(xg_destroy(g));
        T_OK(symmHeapFree(k.heap, half));
        T_OK(symmHeapFree(k.heap, most));
        lk_close(&k);
    }
}

/* ---- two ranks ------------------------------------------------------------------------------- */

static symmResult_t results[2];

/* Rank 0 fails alone; what it has captured is not replayed. */
static void rank(int r, int n, void *arg) {
    symmComm_t *comms = arg;
    symmResult_t result = symmSuccess;
    symmGraph_t g = NULL;
    void *p = NULL;
    lk k;
    lk_open(&k, r, n, comms[r], 1, LK_MB, LK_MB);
    T_OK(symmStreamBeginCapture(k.stream[0]));
    T_OK(symmBarrier(k.comm, k.stream[0]));
    STEP(symmLaneAlloc(k.lane[0], 64 * LK_KB, SYMM_ALLOC_SYM, &p));
    STEP(symmLaneFree(k.lane[0], p));
    STEP(symmLaneAlloc(k.lane[0], 64 * LK_KB, SYMM_ALLOC_SYM, &p));
    STEP(symmLaneFree(k.lane[0], p));
    if (symmStreamEndCapture(k.stream[0], &g) == symmSuccess) T_OK(xg_destroy(g));
    results[r] = result;
    T_OK(symmHeapDestroy(k.heap)); /* their calls differ from here on */
    T_OK(symmLaneDestroy(k.lane[0]));
    T_OK(symmStreamDestroy(k.stream[0]));
    T_OK(symmCommDestroy(k.comm));
}

static symmResult_t two_ranks(void) {
    symmComm_t comms[2];
    lk_env();
    T_OK(symmCommInitAll(comms, 2, NULL));
    T_THREADS(2, rank, comms);
    T_EQ(SYMM_STAT_GET(lanes) + SYMM_STAT_GET(plans) + SYMM_STAT_GET(comms), 0);
    return results[0] ? results[0] : results[1];
}

static void every_allocation_of_captured_barriers_fails_in_turn(void) {
    T_EXPECT_WARNINGS();
    T_OK(two_ranks());
    each_point("lane_ranks", two_ranks);
}

T_MAIN(T(every_allocation_of_one_rank_fails_in_turn), T(local_memory_that_another_thread_has_first),
       T(every_allocation_of_captured_barriers_fails_in_turn))
