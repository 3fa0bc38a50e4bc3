/* gpu_lane.c - lanes and graph plans on GPUs: stream order under work that still runs and peers that still write, capture and replay with
 * memory used again, forks, graphs that share offsets, blocks that outlive their graph, explicit nodes; and what a call costs beside CUDA's
 * own. Ranks are threads. A peer is made late by a host function in its stream, so whoever takes a block too early finds its bytes. */
#include <dlfcn.h>

#include "../src/host/gpu.h"
#include "gpu_kit.h"
#include "symm_lane.h"

enum { N = 2, BLOCK = 256 << 10, ROUNDS = 12, LATE_US = 3000, WAIT_US = 8000 };

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

static rig set_up(gk_job *j, int rank, int n) {
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
    CU(cuMemsetD8Async((uintptr_t)g.pattern, 0xaa, BLOCK, g.stream[0]));
    gk_wait(g.comm, g.stream[0]);
    gk_meet(j);
    return g;
}

static void tear_down(rig *g) {
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

static void run(int n, t_rank_fn fn) {
    gk_job j = {.devices = gk_begin(), .n = n};
    gk_run(&j, fn);
    for (int i = 0; i < 100 && SYMM_STAT_GET(plans); i++) { /* the driver's thread lets graphs go */
        usleep(10000);
        symm_gpu_reap();
    }
    T_EQ(SYMM_STAT_GET(plans), 0);
    T_EQ(SYMM_STAT_GET(lanes), 0);
}

/* ---- work ------------------------------------------------------------------------------------------------ */

static void nap(void *arg) {
    usleep((useconds_t)(uintptr_t)arg);
}
static void delay(cu_stream s, unsigned us) {
    CU(cuLaunchHostFunc(s, nap, (void *)(uintptr_t)us));
}
static void fill(cu_stream s, char *p, int value) {
    CU(cuMemsetD8Async((uintptr_t)p, (unsigned char)value, BLOCK, s));
}

typedef struct {
    const unsigned char *seen;
    int value;
} look;

static void check_seen(void *arg) {
    look *l = arg;
    for (int i = 0; i < BLOCK; i++)
        T_CHECKF(l->seen[i] == (unsigned char)l->value, "byte %d is %d, not %d", i, l->seen[i],
                 l->value);
}
/* In stream order; l lives until then, and as long as a graph has it. */
static void check(rig *g, cu_stream s, const char *p, int value, look *l) {
    *l = (look){g->seen, value};
    CU(cuMemcpyDtoHAsync(g->seen, (uintptr_t)p, BLOCK, s));
    CU(cuLaunchHostFunc(s, check_seen, l));
}

static char *alloc(symmLane_t lane, size_t bytes, unsigned flags) {
    void *p = NULL;
    T_OK(symmAllocAsync(lane, bytes, flags, &p));
    T_CHECK(p != NULL);
    return p;
}
static void drop(symmLane_t lane, void *p) {
    T_OK(symmFreeAsync(lane, p));
}
static symmLaneInfo_t info(symmLane_t lane) {
    symmLaneInfo_t i = {.size = sizeof i};
    T_OK(symmLaneQuery(lane, &i));
    return i;
}
/* The last rank is late, and then writes into everybody's block. */
static void late_writer(rig *g, cu_stream s, char *p) {
    symmRef ref;
    if (g->rank != g->n - 1) return;
    T_OK(symmRefOf(p, &ref));
    delay(s, LATE_US);
    for (int r = 0; r < g->n; r++) {
        void *q = NULL;
        T_OK(symmRefPtr(g->comm, &ref, r, &q));
        CU(cuMemcpyDtoDAsync((uintptr_t)q, (uintptr_t)g->pattern, BLOCK, s));
    }
}

/* ---- stream order ---------------------------------------------------------------------------------------- */

static void stream_rank(int rank, int n, void *arg) {
    rig g = set_up(arg, rank, n);
    look l;
    for (int i = 0; i < ROUNDS; i++) {
        char *p = alloc(g.lane[0], BLOCK, SYMM_ALLOC_SYM);
        late_writer(&g, g.stream[0], p);
        drop(g.lane[0], p);
        if (i & 1) T_OK(symmBarrier(g.comm, gk_stream(g.stream[0]))); /* does for the lane's own */
        char *q = alloc(g.lane[0], BLOCK, SYMM_ALLOC_SYM);
        T_CHECK(p == q);
        fill(g.stream[0], q, i);
        delay(g.stream[0], WAIT_US);
        check(&g, g.stream[0], q, i, &l);
        gk_wait(g.comm, g.stream[0]);
        gk_meet(g.j);
        drop(g.lane[0], q);
    }
    T_EQ(info(g.lane[0]).epochs + info(g.lane[0]).spared, 2 * ROUNDS - 1);
    T_CHECK(info(g.lane[0]).spared >= ROUNDS / 2);
    tear_down(&g);
}

static void a_block_is_used_again_behind_every_ranks_free(void) {
    run(N, stream_rank);
}

/* LOCAL: at once on its own stream, behind an event on another. */
static void lanes_rank(int rank, int n, void *arg) {
    enum { BIG = 20 << 20 };
    rig g = set_up(arg, rank, n);
    look l[2];
    for (int i = 0; i < ROUNDS; i++) {
        const int a = i & 1, b = !a;
        char *p = alloc(g.lane[a], BIG, SYMM_ALLOC_LOCAL);
        delay(g.stream[a], LATE_US);
        CU(cuMemsetD8Async((uintptr_t)p, 0x77, BIG, g.stream[a]));
        drop(g.lane[a], p);
        char *q = alloc(g.lane[b], BIG, SYMM_ALLOC_LOCAL); /* the heap does not hold two */
        T_CHECK(p == q);
        fill(g.stream[b], q, i);
        check(&g, g.stream[b], q, i, &l[0]);
        drop(g.lane[b], q);
        char *r = alloc(g.lane[b], BIG, SYMM_ALLOC_LOCAL);
        T_CHECK(r == q);
        fill(g.stream[b], r, i + 1);
        check(&g, g.stream[b], r, i + 1, &l[1]);
        drop(g.lane[b], r);
        gk_wait(g.comm, g.stream[b]);
    }
    T_CHECK(info(g.lane[0]).follows > 0 && info(g.lane[1]).follows > 0);
    tear_down(&g);
}

static void lanes_come_one_behind_the_other(void) {
    run(N, lanes_rank);
}

/* ---- graph order ----------------------------------------------------------------------------------------- */

static cu_graph end_capture(cu_stream s) {
    cu_graph graph = NULL;
    CU(cuStreamEndCapture(s, &graph));
    return graph;
}

static void replay_rank(int rank, int n, void *arg) {
    rig g = set_up(arg, rank, n);
    cu_stream s = g.stream[0];
    cu_graph_exec exec;
    symmGraphPlan_t plan;
    look l;
    gk_capture(s, SYMM_CUDA_CAPTURE_MODE_THREAD_LOCAL);
    char *p = alloc(g.lane[0], BLOCK, SYMM_ALLOC_SYM);
    late_writer(&g, s, p);
    drop(g.lane[0], p);
    char *q = alloc(g.lane[0], BLOCK, SYMM_ALLOC_SYM);
    T_CHECK(p == q);
    fill(s, q, 5);
    delay(s, WAIT_US);
    check(&g, s, q, 5, &l);
    drop(g.lane[0], q);
    cu_graph graph = end_capture(s);
    T_EQ(info(g.lane[0]).epochs, 2);
    T_OK(symmPlanBind(g.lane[0], graph, 0, &plan));
    gk_meet(g.j);
    CU(cuGraphInstantiate(&exec, graph, 0));
    T_OK(symmPlanUpload(plan, (symmGraph_t)(void *)exec, gk_stream(s)));
    CU(cuStreamSynchronize(s));
    gk_meet(g.j);
    for (int i = 0; i < ROUNDS; i++) {
        T_OK(symmPlanLaunch(plan, (symmGraph_t)(void *)exec, gk_stream(s)));
        if (i % 5 == rank) gk_wait(g.comm, s);
    }
    gk_wait(g.comm, s);
    gk_meet(g.j);
    T_OK(symmPlanDestroy(plan));
    CU(cuGraphExecDestroy(exec));
    CU(cuGraphDestroy(graph));
    tear_down(&g);
}

static void a_replay_waits_for_late_peers(void) {
    run(N, replay_rank);
}

/* Forks get places of their own, joins all of them; two graphs share what both use; nothing is left after a trim. */
static void fork_rank(int rank, int n, void *arg) {
    rig g = set_up(arg, rank, n);
    cu_stream s = g.stream[0], t = g.stream[1];
    cu_event forked, joined;
    symmGraphPlan_t plan[2];
    cu_graph graph[2];
    cu_graph_exec exec[2];
    look l[4];
    uint64_t used = 0, freed = 0;
    CU(cuEventCreate(&forked, SYMM_CUDA_EVENT_DISABLE_TIMING));
    CU(cuEventCreate(&joined, SYMM_CUDA_EVENT_DISABLE_TIMING));
    for (int i = 0; i < 2; i++) {
        gk_capture(s, SYMM_CUDA_CAPTURE_MODE_THREAD_LOCAL);
        char *a = alloc(g.lane[0], BLOCK, SYMM_ALLOC_LOCAL);
        fill(s, a, 1 + i);
        CU(cuEventRecord(forked, s));
        CU(cuStreamWaitEvent(t, forked, 0));
        char *b = alloc(g.lane[1], BLOCK, SYMM_ALLOC_LOCAL);
        fill(t, b, 3 + i);
        drop(g.lane[1], b);
        char *c = alloc(g.lane[0], BLOCK, SYMM_ALLOC_LOCAL);
        T_CHECK(a != b && b != c && a != c);
        fill(s, c, 5 + i);
        check(&g, s, a, 1 + i, &l[2 * i]);
        CU(cuEventRecord(joined, t));
        CU(cuStreamWaitEvent(s, joined, 0));
        drop(g.lane[0], a);
        drop(g.lane[0], c);
        char *d = alloc(g.lane[0], 3 * BLOCK, SYMM_ALLOC_LOCAL);
        T_CHECK(d == (a < b && a < c ? a : b < c ? b : c)); /* over all three */
        fill(s, d + 2 * BLOCK, 7 + i);
        check(&g, s, d + 2 * BLOCK, 7 + i, &l[2 * i + 1]);
        drop(g.lane[0], d);
        graph[i] = end_capture(s);
        T_OK(symmPlanBind(g.lane[0], graph[i], 0, &plan[i]));
        gk_meet(g.j);
        CU(cuGraphInstantiate(&exec[i], graph[i], 0));
        gk_meet(g.j);
    }
    T_OK(symmGraphMemGet(g.lane[0], SYMM_GRAPH_MEM_USED, &used));
    T_EQ(used, 3 * BLOCK);       /* of both */
    for (int i = 0; i < 40; i++) /* alternating graphs and streams: the plan keeps the order */
        T_OK(symmPlanLaunch(plan[i & 1], (symmGraph_t)(void *)exec[i & 1],
                            gk_stream(i % 3 ? s : t)));
    gk_wait(g.comm, s);
    gk_wait(g.comm, t);
    for (int i = 0; i < 2; i++) {
        T_OK(symmPlanDestroy(plan[i]));
        CU(cuGraphExecDestroy(exec[i]));
        CU(cuGraphDestroy(graph[i]));
    }
    T_OK(symmGraphMemTrim(g.lane[0], &freed));
    T_CHECK(freed >= 3 * BLOCK);
    CU(cuEventDestroy(forked));
    CU(cuEventDestroy(joined));
    tear_down(&g);
}

static void forks_joins_and_shared_offsets(void) {
    run(N, fork_rank);
}

static void outlive_rank(int rank, int n, void *arg) {
    rig g = set_up(arg, rank, n);
    cu_stream s = g.stream[0];
    cu_graph_exec exec;
    symmGraphPlan_t plan;
    look l;
    T_EXPECT_WARNINGS();
    gk_capture(s, SYMM_CUDA_CAPTURE_MODE_RELAXED);
    char *p = alloc(g.lane[0], BLOCK, SYMM_ALLOC_LOCAL);
    fill(s, p, 9);
    cu_graph graph = end_capture(s);
    T_OK(symmPlanBind(g.lane[0], graph, 0, &plan));
    gk_meet(g.j);
    CU(cuGraphInstantiate(&exec, graph, 0));
    gk_meet(g.j);
    for (int i = 0; i < ROUNDS; i++) {
        const int on = i & 1;
        T_OK(symmPlanLaunch(plan, (symmGraph_t)(void *)exec, gk_stream(s)));
        T_ERR(symmPlanLaunch(plan, (symmGraph_t)(void *)exec, gk_stream(s)), symmInvalidUsage);
        cu_event e;
        CU(cuEventCreate(&e, SYMM_CUDA_EVENT_DISABLE_TIMING));
        CU(cuEventRecord(e, s));
        CU(cuStreamWaitEvent(g.stream[on], e, 0));
        if (on) delay(g.stream[1], LATE_US);
        check(&g, g.stream[on], p, 9, &l);
        drop(g.lane[on], p); /* the next launch comes behind it, on whatever stream */
        if (!on) {
            char *q = alloc(g.lane[0], BLOCK, SYMM_ALLOC_LOCAL);
            T_CHECK(q != p);
            fill(s, q, 1);
            drop(g.lane[0], q);
        }
        CU(cuEventDestroy(e));
        gk_wait(g.comm, g.stream[on]);
    }
    gk_wait(g.comm, s);
    T_OK(symmPlanDestroy(plan));
    CU(cuGraphExecDestroy(exec));
    CU(cuGraphDestroy(graph));
    tear_down(&g);
}

static void blocks_that_outlive_their_graph(void) {
    run(N, outlive_rank);
}

static void nodes_rank(int rank, int n, void *arg) {
    rig g = set_up(arg, rank, n);
    cu_graph graph = NULL;
    cu_graph_exec exec;
    symmGraphPlan_t plan;
    symmNode_t a, b, c, d, f;
    void *p, *q, *r;
    symmAllocNode_t params = {.size = sizeof params, .bytes = BLOCK, .flags = SYMM_ALLOC_LOCAL};
    T_EXPECT_WARNINGS();
    /* an empty capture is an empty graph */
    gk_capture(g.stream[0], SYMM_CUDA_CAPTURE_MODE_RELAXED);
    graph = end_capture(g.stream[0]);
    T_OK(symmPlanCreate(g.lane[0], graph, 0, &plan));
    T_OK(symmGraphAddAllocNode(plan, NULL, 0, &params, &a, &p));
    T_OK(symmGraphAddOrderNode(plan, &a, 1, &b));
    T_OK(symmGraphAddOrderNode(plan, NULL, 0, &c));
    T_ERR(symmGraphAddFreeNode(plan, &c, 1, p, &d), symmInvalidArgument);
    T_OK(symmGraphAddFreeNode(plan, &b, 1, p, &d));
    T_OK(symmGraphAddAllocNode(plan, &b, 1, &params, &f, &q));
    T_OK(symmGraphAddAllocNode(plan, &d, 1, &params, &c, &r));
    T_CHECK(q != p && r == p);
    T_OK(symmGraphAddFreeNode(plan, &f, 1, q, &a));
    T_OK(symmGraphAddFreeNode(plan, &c, 1, r, &a));
    gk_meet(g.j);
    CU(cuGraphInstantiate(&exec, graph, 0));
    gk_meet(g.j);
    for (int i = 0; i < 3; i++)
        T_OK(symmPlanLaunch(plan, (symmGraph_t)(void *)exec, gk_stream(g.stream[0])));
    gk_wait(g.comm, g.stream[0]);
    T_OK(symmPlanDestroy(plan));
    CU(cuGraphExecDestroy(exec));
    CU(cuGraphDestroy(graph));
    tear_down(&g);
}

static void explicit_nodes(void) {
    run(N, nodes_rank);
}

/* ---- what it costs --------------------------------------------------------------------------------------- */

typedef cu_result (*alloc_fn)(cu_deviceptr *va, size_t bytes, cu_stream s);
typedef cu_result (*free_fn)(cu_deviceptr va, cu_stream s);

/* CUDA's own pair, from the library that is loaded already. */
static int cuda_pair(alloc_fn *a, free_fn *f) {
    void *lib = gk_number("GPU_FAKE", 0) ? NULL : dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
    if (!lib) return 0;
    void *sa = dlsym(lib, "cuMemAllocAsync"), *sf = dlsym(lib, "cuMemFreeAsync");
    memcpy(a, &sa, sizeof sa);
    memcpy(f, &sf, sizeof sf);
    return sa && sf;
}

static double since(uint64_t ns, int calls) {
    return (double)(symm_now_ns() - ns) / calls;
}

static double smallest(const double *v, int n) {
    double best = v[0];
    for (int i = 1; i < n; i++) best = v[i] < best ? v[i] : best;
    return best;
}

enum { PAIRS = 20000, TRIES = 5 };

static double our_pair(rig *g, size_t bytes, unsigned flags) {
    double ns[TRIES];
    for (int t = 0; t < TRIES; t++) {
        uint64_t at = symm_now_ns();
        for (int i = 0; i < PAIRS; i++) drop(g->lane[0], alloc(g->lane[0], bytes, flags));
        ns[t] = since(at, PAIRS);
        gk_wait(g->comm, g->stream[0]);
    }
    return smallest(ns, TRIES);
}

static double their_pair(rig *g, size_t bytes, alloc_fn a, free_fn f) {
    double ns[TRIES];
    for (int t = 0; t < TRIES; t++) {
        uint64_t at = symm_now_ns();
        for (int i = 0; i < PAIRS; i++) {
            cu_deviceptr va = 0;
            T_EQ(a(&va, bytes, g->stream[0]), 0);
            T_EQ(f(va, g->stream[0]), 0);
        }
        ns[t] = since(at, PAIRS);
        gk_wait(g->comm, g->stream[0]);
    }
    return smallest(ns, TRIES);
}

enum { NODES = 8, LAUNCHES = 2000 };

static void gone(void *p) {
    (void)p;
}
static void hold_nothing(cu_graph graph) {
    cu_user_object object;
    CU(cuUserObjectCreate(&object, graph, gone, 1, SYMM_CUDA_USER_OBJECT_NO_DESTRUCTOR_SYNC));
    CU(cuGraphRetainUserObject(graph, object, 1, SYMM_CUDA_GRAPH_USER_OBJECT_MOVE));
}

/* A graph of NODES fills: on memory that was there (how 0; 4: with a user object), ours (1), CUDA's (2). */
static gk_graph fills(rig *g, int how, char *fixed, alloc_fn a, free_fn f) {
    gk_graph graph = {NULL, NULL};
    gk_capture(g->stream[0], SYMM_CUDA_CAPTURE_MODE_RELAXED);
    for (int i = 0; i < NODES; i++) {
        cu_deviceptr va = (uintptr_t)fixed;
        if (how == 1) va = (uintptr_t)alloc(g->lane[0], BLOCK, SYMM_ALLOC_LOCAL);
        if (how == 2) T_EQ(a(&va, BLOCK, g->stream[0]), 0);
        CU(cuMemsetD8Async(va, 1, 4096, g->stream[0]));
        if (how == 1) drop(g->lane[0], (void *)(uintptr_t)va);
        if (how == 2) T_EQ(f(va, g->stream[0]), 0);
    }
    graph.graph = end_capture(g->stream[0]);
    if (how == 4) hold_nothing(graph.graph);
    CU(cuGraphInstantiate(&graph.exec, graph.graph, 0));
    CU(cuGraphUpload(graph.exec, g->stream[0]));
    CU(cuStreamSynchronize(g->stream[0]));
    return graph;
}

/* *call: host time of a launch into an idle stream; *each: of one in a row of many, its end waited for. */
static void launches(rig *g, const gk_graph *graph, symmGraphPlan_t plan, double *call,
                     double *each) {
    double calls[TRIES * 200], rows[TRIES];
    for (int t = 0; t < TRIES * 200; t++) {
        uint64_t at = symm_now_ns();
        if (plan)
            T_OK(symmPlanLaunch(plan, (symmGraph_t)(void *)graph->exec, gk_stream(g->stream[0])));
        else
            CU(cuGraphLaunch(graph->exec, g->stream[0]));
        calls[t] = since(at, 1);
        gk_wait(g->comm, g->stream[0]);
    }
    for (int t = 0; t < TRIES; t++) {
        uint64_t at = symm_now_ns();
        for (int i = 0; i < LAUNCHES; i++)
            if (plan)
                T_OK(symmPlanLaunch(plan, (symmGraph_t)(void *)graph->exec,
                                    gk_stream(g->stream[0])));
            else
                CU(cuGraphLaunch(graph->exec, g->stream[0]));
        gk_wait(g->comm, g->stream[0]);
        rows[t] = since(at, LAUNCHES);
    }
    *call = smallest(calls, TRIES * 200);
    *each = smallest(rows, TRIES);
}

/* A graph that holds a user object is launched at a lower rate, whatever else is in it: one such stands beside ours. */
static void launch_costs(rig *g, int peer, const char *holder, alloc_fn a, free_fn f) {
    static const char *const names[] = {"without allocations", "with ours", "with CUDA's",
                                        "with ours, by symmPlanLaunch",
                                        "without allocations, with a user object"};
    double call, each;
    for (int how = 0; how < 5; how++) {
        symmGraphPlan_t plan = NULL;
        if (how == 2 && !peer) continue;
        gk_graph graph = fills(g, how == 3 ? 1 : how, g->pattern, a, f);
        if (how == 3) T_OK(symmPlanBind(g->lane[0], graph.graph, 0, &plan));
        launches(g, &graph, plan, &call, &each);
        gk_figure("lane: graph of %d fills %s%s: launch call %.0f ns, in a row %.0f ns each", NODES,
                  names[how], holder, call, each);
        if (plan) T_OK(symmPlanDestroy(plan));
        gk_drop(&graph);
    }
}

static void costs_rank(int rank, int n, void *arg) {
    rig g = set_up(arg, rank, n);
    alloc_fn a = NULL;
    free_fn f = NULL;
    const int peer = cuda_pair(&a, &f);
    for (size_t bytes = 512; bytes <= 8 << 20; bytes *= 128) {
        gk_figure("lane: LOCAL pair of %zu bytes: %.0f ns", bytes,
                  our_pair(&g, bytes, SYMM_ALLOC_LOCAL));
        gk_figure("lane: SYM pair of %zu bytes, 1 rank: %.0f ns", bytes,
                  our_pair(&g, bytes, SYMM_ALLOC_SYM));
        if (peer)
            gk_figure("lane: cuMemAllocAsync + cuMemFreeAsync of %zu bytes: %.0f ns", bytes,
                      their_pair(&g, bytes, a, f));
    }
    launch_costs(&g, peer, "", a, f);
    tear_down(&g);
}

static void what_calls_and_launches_cost(void) {
    run(1, costs_rank);
}

static void launches_rank(int rank, int n, void *arg) {
    rig g = set_up(arg, rank, n);
    alloc_fn a = NULL;
    free_fn f = NULL;
    const int peer = cuda_pair(&a, &f);
    launch_costs(&g, peer, " (SYMM_GRAPH_HOLD=comm)", a, f);
    tear_down(&g);
}

static void what_launches_cost_when_the_communicator_keeps(void) {
    setenv("SYMM_GRAPH_HOLD", "comm", 1);
    run(1, launches_rank);
    unsetenv("SYMM_GRAPH_HOLD");
}

/* SYM of several ranks: the barriers are part of it. */
static void sym_costs_rank(int rank, int n, void *arg) {
    rig g = set_up(arg, rank, n);
    for (size_t bytes = 512; bytes <= 64 << 10; bytes *= 128) {
        uint64_t epochs = info(g.lane[0]).epochs, at = symm_now_ns();
        for (int i = 0; i < PAIRS / 10; i++)
            drop(g.lane[0], alloc(g.lane[0], bytes, SYMM_ALLOC_SYM));
        double ns = since(at, PAIRS / 10);
        gk_wait(g.comm, g.stream[0]);
        if (rank == 0)
            gk_figure("lane: SYM pair of %zu bytes, %d ranks: %.0f ns, %llu barriers in %d pairs",
                      bytes, n, ns, (unsigned long long)(info(g.lane[0]).epochs - epochs),
                      PAIRS / 10);
    }
    tear_down(&g);
}

static void what_pairs_of_several_ranks_cost(void) {
    run(N, sym_costs_rank);
}

T_MAIN(T(a_block_is_used_again_behind_every_ranks_free), T(lanes_come_one_behind_the_other),
       T(a_replay_waits_for_late_peers), T(forks_joins_and_shared_offsets),
       T(blocks_that_outlive_their_graph), T(explicit_nodes), T(what_calls_and_launches_cost),
       T(what_launches_cost_when_the_communicator_keeps), T(what_pairs_of_several_ranks_cost))
