/* fgpu_lane_kit.h - lanes on the fake CUDA driver: ranks with a heap each, and two streams with a
 * lane each, both of rank 0. One thread. */
#ifndef FGPU_LANE_KIT_H_
#define FGPU_LANE_KIT_H_

#include "fgpu_kit.h"
#include "symm_lane.h"

enum { KB4 = 4096, BIG = 256 << 10 };

static symmComm_t comms[GK_RANKS];
static symmHeap_t heaps[GK_RANKS];
static cu_stream streams[2];
static symmLane_t lanes[2];

/* Two streams and lanes, both of rank 0. */
static inline void start(int ranks) {
    symmHeapConfig_t c = SYMM_HEAP_CONFIG_INITIALIZER;
    gk_start(2, 0);
    gk_open(comms, ranks, NULL);
    c.reserve = 256 * GK_MB;
    c.symBytes = c.localBytes = 8 * GK_MB;
    T_OK(symmGroupStart());
    for (int r = 0; r < ranks; r++) T_OK(symmHeapCreate(comms[r], &c, &heaps[r]));
    T_OK(symmGroupEnd());
    T_OK(symm_cuda_set(0));
    for (int i = 0; i < 2; i++) {
        streams[i] = gk_stream(0);
        T_OK(symmLaneCreate(heaps[0], gk_user(streams[i]), &lanes[i]));
    }
}

static inline void finish(int ranks) {
    for (int i = 0; i < 2; i++)
        if (lanes[i]) T_OK(symmLaneDestroy(lanes[i]));
    for (int r = 0; r < ranks; r++) T_OK(symmHeapDestroy(heaps[r]));
    gk_close(comms, ranks);
    symm_gpu_reap();
    T_EQ(SYMM_STAT_GET(plans) + SYMM_STAT_GET(lanes), 0);
    GK_LEFT(0);
}

static inline char *alloc(int lane, size_t bytes, unsigned flags) {
    void *p = NULL;
    T_OK(symmLaneAlloc(lanes[lane], bytes, flags, &p));
    T_CHECK(p != NULL);
    return p;
}
static inline char *local(int lane, size_t bytes) {
    return alloc(lane, bytes, SYMM_ALLOC_LOCAL);
}
static inline void drop(int lane, void *p) {
    T_OK(symmLaneFree(lanes[lane], p));
}
static inline void work(int i, char *p) {
    T_EQ(symm_cu.cuMemsetD8Async((uintptr_t)p, 1, 64, streams[i]), 0);
}
static inline void begin(void) {
    T_EQ(symm_cu.cuStreamBeginCapture(streams[0], SYMM_CUDA_CAPTURE_MODE_RELAXED), 0);
}
static inline cu_graph end(void) {
    cu_graph graph = NULL;
    T_EQ(symm_cu.cuStreamEndCapture(streams[0], &graph), 0);
    return graph;
}
static inline void order(int from, int to) {
    gk_order(streams[from], streams[to]);
}

/* A graph, its executable and its plan. */
typedef struct {
    cu_graph graph;
    cu_graph_exec exec;
    symmMemPlan_t plan;
    char *p;
} bound;

/* A graph of lane 0 with a block, which it leaves or frees. */
static inline bound bind_one(int leave, unsigned flags) {
    bound b;
    begin();
    b.p = alloc(0, KB4, SYMM_ALLOC_LOCAL | flags);
    work(0, b.p);
    if (!leave) drop(0, b.p);
    b.graph = end();
    T_OK(symmMemPlanBind(lanes[0], (symmGraph_t)(void *)b.graph, 0, &b.plan));
    T_EQ(symm_cu.cuGraphInstantiate(&b.exec, b.graph, 0), 0);
    return b;
}
static inline symmResult_t launch(const bound *b, int stream) {
    return symmMemPlanLaunch(b->plan, (symmGraphExec_t)(void *)b->exec, gk_user(streams[stream]));
}
static inline void unbind(const bound *b) {
    T_OK(symmMemPlanDestroy(b->plan));
    T_EQ(symm_cu.cuGraphExecDestroy(b->exec), 0);
    T_EQ(symm_cu.cuGraphDestroy(b->graph), 0);
}

#endif
