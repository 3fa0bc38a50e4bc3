/* gpu_lane_kit.h - a rank with a heap, two streams and a lane on each, for the tests of lanes on GPUs. Ranks are threads; a rig is its rank's. */
#ifndef GPU_LANE_KIT_H_
#define GPU_LANE_KIT_H_

#include "../src/host/gpu.h"
#include "gpu_kit.h"
#include "symm_lane.h"

enum { BLOCK = 256 << 10 };

typedef struct {
    gk_job *j;
    int rank, n;
    symmComm_t comm;
    symmHeap_t heap;
    cu_stream stream[2];
    symmLane_t lane[2];
    char *pattern; /* 256 pieces of BLOCK bytes would be much: one, filled when needed */
    unsigned char *seen;
} rig;

static inline rig set_up(gk_job *j, int rank, int n) {
    rig g = {.j = j, .rank = rank, .n = n, .comm = j->comms[rank]};
    symmHeapConfig_t c = SYMM_HEAP_CONFIG_INITIALIZER;
    void *p = NULL;
    T_OK(symmSetDevice(rank % j->devices));
    c.reserve = 256ull << 20;
    c.symBytes = c.localBytes = 32ull << 20;
    T_OK(symmHeapCreate(g.comm, &c, &g.heap));
    for (int i = 0; i < 2; i++) {
        g.stream[i] = gk_new_stream();
        T_OK(symmLaneCreate(g.heap, gk_stream(g.stream[i]), &g.lane[i]));
    }
    T_OK(symmAlloc(g.heap, BLOCK, 0, SYMM_ALLOC_LOCAL, &p));
    g.pattern = p;
    g.seen = (unsigned char *)gk_pinned(BLOCK);
    gk_fill(g.stream[0], g.pattern, BLOCK, 0xaa);
    gk_wait(g.comm, g.stream[0]);
    gk_meet(j);
    return g;
}

static inline void tear_down(rig *g) {
    for (int i = 0; i < 2; i++) gk_wait(g->comm, g->stream[i]);
    gk_meet(g->j);
    T_OK(symmFree(g->heap, g->pattern));
    gk_free_pinned((char *)g->seen);
    for (int i = 1; i >= 0; i--) T_OK(symmLaneDestroy(g->lane[i]));
    for (int i = 0; i < 2; i++) CU(cuStreamDestroy(g->stream[i]));
    T_OK(symmHeapDestroy(g->heap));
    gk_meet(g->j);
    T_OK(symmCommDestroy(g->comm));
    gk_meet(g->j);
}

static inline void run(int n, t_rank_fn fn) {
    gk_job j = {.devices = gk_begin(), .n = n};
    gk_run(&j, fn);
    for (int i = 0; i < 100 && SYMM_STAT_GET(plans); i++) { /* the driver's thread lets graphs go */
        usleep(10000);
        symm_gpu_reap();
    }
    T_EQ(SYMM_STAT_GET(plans), 0);
    T_EQ(SYMM_STAT_GET(lanes), 0);
}

static inline char *alloc(symmLane_t lane, size_t bytes, unsigned flags) {
    void *p = NULL;
    T_OK(symmAllocAsync(lane, bytes, flags, &p));
    T_CHECK(p != NULL);
    return p;
}
static inline void drop(symmLane_t lane, void *p) {
    T_OK(symmFreeAsync(lane, p));
}
static inline symmLaneInfo_t info(symmLane_t lane) {
    symmLaneInfo_t i = {.size = sizeof i};
    T_OK(symmLaneQuery(lane, &i));
    return i;
}
static inline cu_graph end_capture(cu_stream s) {
    cu_graph graph = NULL;
    CU(cuStreamEndCapture(s, &graph));
    return graph;
}

#endif
