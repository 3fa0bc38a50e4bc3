/* gpu_lane_kit.h - a rank with a heap, two streams and a lane on each, for the tests of lanes on
 * GPUs. A rig is its rank's. */
#ifndef GPU_LANE_KIT_H_
#define GPU_LANE_KIT_H_

#include "host/gpu/gpu.h"
#include "gpu_kit.h"
#include "symm_lane.h"

enum { BLOCK = 256 << 10, ROUNDS = 12, LATE_US = 3000, WAIT_US = 8000 };

/* A rank. Whoever runs it gives it a way to meet the others on the host: threads of a job, or
 * processes. */
typedef struct {
    void (*meet)(void *arg);
    void *arg;
    int rank, n;
    symmComm_t comm;
    symmHeap_t heap;
    cu_stream stream[2];
    symmLane_t lane[2];
    char *pattern; /* BLOCK bytes of 0xaa */
    unsigned char *seen;
} rig;

typedef void (*rig_body)(rig *g);

static inline void meet(rig *g) {
    g->meet(g->arg);
}

static inline void settle_plans(void) {
    for (int i = 0; i < 500 && SYMM_STAT_GET(plans); i++) { /* the driver's thread lets graphs go */
        usleep(10000);
        symm_gpu_reap();
    }
    T_EQ(SYMM_STAT_GET(plans), 0);
    T_EQ(SYMM_STAT_GET(lanes), 0);
}

/* rank, n, comm, meet and arg are set; the rank's GPU is the thread's. */
static inline void set_up(rig *g) {
    symmHeapConfig_t c = SYMM_HEAP_CONFIG_INITIALIZER;
    void *p = NULL;
    c.reserve = 256ull << 20;
    c.symBytes = c.localBytes = 32ull << 20;
    T_OK(symmHeapCreate(g->comm, &c, &g->heap));
    for (int i = 0; i < 2; i++) {
        g->stream[i] = gk_new_stream();
        T_OK(symmLaneCreate(g->heap, gk_stream(g->stream[i]), &g->lane[i]));
    }
    T_OK(symmHeapAlloc(g->heap, BLOCK, 0, SYMM_ALLOC_LOCAL, &p));
    g->pattern = p;
    g->seen = (unsigned char *)gk_pinned(BLOCK);
    gk_fill(g->stream[0], g->pattern, BLOCK, 0xaa);
    gk_wait(g->comm, g->stream[0]);
    meet(g);
}

static inline void tear_down(rig *g) {
    for (int i = 0; i < 2; i++) gk_wait(g->comm, g->stream[i]);
    meet(g);
    T_OK(symmHeapFree(g->heap, g->pattern));
    gk_free_pinned((char *)g->seen);
    for (int i = 1; i >= 0; i--) T_OK(symmLaneDestroy(g->lane[i]));
    for (int i = 1; i >= 0; i--) CU(cuStreamDestroy(g->stream[i]));
    T_OK(symmHeapDestroy(g->heap));
    meet(g);
    T_OK(symmCommDestroy(g->comm));
    meet(g);
}

/* ---- thread ranks ---------------------------------------------------------------------------- */

static rig_body rig_current; /* one at a time in a process */

static inline void meet_threads(void *arg) {
    gk_meet(arg);
}
static inline void thread_rank(int rank, int n, void *arg) {
    gk_job *j = arg;
    rig g = {.meet = meet_threads, .arg = j, .rank = rank, .n = n, .comm = j->comms[rank]};
    T_OK(symmSetDevice(rank % j->devices));
    set_up(&g);
    rig_current(&g);
    tear_down(&g);
}
static inline void run(int n, rig_body fn) {
    gk_job j = {.devices = gk_begin(), .n = n};
    rig_current = fn;
    gk_run(&j, thread_rank);
    settle_plans();
}
/* What peers have no part in: as many ranks as there are GPUs, `most` of them. */
static inline void run_apart(int most, rig_body fn) {
    const int devices = gk_begin();
    run(devices < most ? devices : most, fn);
}
/* Ranks beyond the GPUs share them. */
static inline void run_sizes(rig_body fn) {
    static const int sizes[] = {2, 3, 5, 8};
    for (int i = 0; i < 4; i++) run(sizes[i], fn);
}

/* ---- calls ----------------------------------------------------------------------------------- */

static inline char *alloc(symmLane_t lane, size_t bytes, unsigned flags) {
    void *p = NULL;
    T_OK(symmLaneAlloc(lane, bytes, flags, &p));
    T_CHECK(p != NULL);
    return p;
}
static inline void drop(symmLane_t lane, void *p) {
    T_OK(symmLaneFree(lane, p));
}
static inline symmLaneInfo_t info(symmLane_t lane) {
    symmLaneInfo_t i = {.size = sizeof i};
    T_OK(symmLaneQuery(lane, &i));
    return i;
}
static inline void launch(symmMemPlan_t plan, cu_graph_exec exec, cu_stream s) {
    T_OK(symmMemPlanLaunch(plan, (symmGraphExec_t)(void *)exec, gk_stream(s)));
}
static inline void come_behind(cu_stream first, cu_stream then) {
    cu_event e;
    CU(cuEventCreate(&e, SYMM_CUDA_EVENT_DISABLE_TIMING));
    CU(cuEventRecord(e, first));
    CU(cuStreamWaitEvent(then, e, 0));
    CU(cuEventDestroy(e));
}
static inline cu_graph end_capture(cu_stream s) {
    cu_graph graph = NULL;
    CU(cuStreamEndCapture(s, &graph));
    return graph;
}

/* ---- work ------------------------------------------------------------------------------------ */

static inline void fill(cu_stream s, char *p, int value) {
    gk_fill(s, p, BLOCK, value);
}
/* In stream order; v lives until then, and as long as a graph has it. */
static inline void check(rig *g, cu_stream s, const char *p, int value, gk_view *v) {
    gk_check(s, p, BLOCK, value, g->seen, v);
}
static inline char *at_rank(rig *g, const void *p, int rank) {
    symmRef_t ref;
    void *q = NULL;
    T_OK(symmRefGet(p, &ref));
    T_OK(symmRefPtr(&ref, g->comm, rank, &q));
    return q;
}
/* The last rank is late, and then writes into everybody's block. */
static inline void late_writer(rig *g, cu_stream s, char *p) {
    if (g->rank != g->n - 1) return;
    gk_delay(s, LATE_US);
    for (int r = 0; r < g->n; r++)
        CU(cuMemcpyDtoDAsync((uintptr_t)at_rank(g, p, r), (uintptr_t)g->pattern, BLOCK, s));
}
/* It is late, and then looks at everybody's block, which holds value + rank. v: as many as
 * ranks. */
static inline void late_reader(rig *g, cu_stream s, const char *p, int value, gk_view *v) {
    if (g->rank != g->n - 1) return;
    gk_delay(s, LATE_US);
    for (int r = 0; r < g->n; r++) check(g, s, at_rank(g, p, r), value + r, &v[r]);
}

#endif
