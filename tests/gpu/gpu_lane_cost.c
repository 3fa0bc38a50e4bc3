/* gpu_lane_cost.c - what calls on lanes cost on GPUs beside CUDA's own, and what graphs with our
 * blocks cost to launch. Figures; the checks are that everything works. Ranks are threads. */
#include <dlfcn.h>

#include "gpu_lane_kit.h"

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

enum { N = 2, PAIRS = 20000, TRIES = 5 };

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

/* A graph of NODES fills: on memory that was there (how 0; 4: with a user object), ours (1; 3, 5:
 * with a plan, which holds what the graph uses in 5), CUDA's (2). */
static gk_graph fills(rig *g, int how, char *fixed, alloc_fn a, free_fn f, symmMemPlan_t *plan) {
    const int ours = how == 1 || how == 3 || how == 5;
    gk_graph graph = {NULL, NULL};
    gk_capture(g->stream[0], SYMM_CUDA_CAPTURE_MODE_RELAXED);
    for (int i = 0; i < NODES; i++) {
        cu_deviceptr va = (uintptr_t)fixed;
        if (ours) va = (uintptr_t)alloc(g->lane[0], BLOCK, SYMM_ALLOC_LOCAL);
        if (how == 2) T_EQ(a(&va, BLOCK, g->stream[0]), 0);
        CU(cuMemsetD8Async(va, 1, 4096, g->stream[0]));
        if (ours) drop(g->lane[0], (void *)(uintptr_t)va);
        if (how == 2) T_EQ(f(va, g->stream[0]), 0);
    }
    graph.graph = end_capture(g->stream[0]);
    if (how == 4) hold_nothing(graph.graph);
    *plan = NULL;
    if (how == 3 || how == 5)
        T_OK(symmMemPlanBind(g->lane[0], (symmGraph_t)(void *)graph.graph,
                             how == 5 ? SYMM_MEMPLAN_HOLD : 0, plan));
    CU(cuGraphInstantiate(&graph.exec, graph.graph, 0));
    CU(cuGraphUpload(graph.exec, g->stream[0]));
    CU(cuStreamSynchronize(g->stream[0]));
    return graph;
}

/* *call: host time of a launch into an idle stream; *each: of one in a row of many, its end waited
 * for. */
static void launches(rig *g, const gk_graph *graph, symmMemPlan_t plan, double *call,
                     double *each) {
    double calls[TRIES * 200], rows[TRIES];
    for (int t = 0; t < TRIES * 200; t++) {
        uint64_t at = symm_now_ns();
        if (plan)
            T_OK(symmMemPlanLaunch(plan, (symmGraphExec_t)(void *)graph->exec,
                                   gk_stream(g->stream[0])));
        else
            CU(cuGraphLaunch(graph->exec, g->stream[0]));
        calls[t] = since(at, 1);
        gk_wait(g->comm, g->stream[0]);
    }
    for (int t = 0; t < TRIES; t++) {
        uint64_t at = symm_now_ns();
        for (int i = 0; i < LAUNCHES; i++)
            if (plan)
                T_OK(symmMemPlanLaunch(plan, (symmGraphExec_t)(void *)graph->exec,
                                       gk_stream(g->stream[0])));
            else
                CU(cuGraphLaunch(graph->exec, g->stream[0]));
        gk_wait(g->comm, g->stream[0]);
        rows[t] = since(at, LAUNCHES);
    }
    *call = smallest(calls, TRIES * 200);
    *each = smallest(rows, TRIES);
}

/* A graph that holds a user object is launched at a lower rate, whatever else is in it: one such
 * stands beside ours. */
static void launch_costs(rig *g, int peer, const char *holder, alloc_fn a, free_fn f) {
    static const char *const names[] = {"without allocations",
                                        "with ours",
                                        "with CUDA's",
                                        "with ours, by symmMemPlanLaunch",
                                        "without allocations, with a user object",
                                        "with ours, by symmMemPlanLaunch, held by the plan"};
    double call, each;
    for (int how = 0; how < 6; how++) {
        symmMemPlan_t plan;
        if (how == 2 && !peer) continue;
        gk_graph graph = fills(g, how, g->pattern, a, f, &plan);
        launches(g, &graph, plan, &call, &each);
        gk_figure("lane: graph of %d fills %s%s: launch call %.0f ns, in a row %.0f ns each", NODES,
                  names[how], holder, call, each);
        gk_drop(&graph);
        if (plan) T_OK(symmMemPlanDestroy(plan));
    }
}

static void costs_rank(rig *g) {
    alloc_fn a = NULL;
    free_fn f = NULL;
    const int peer = cuda_pair(&a, &f);
    for (size_t bytes = 512; bytes <= 8 << 20; bytes *= 128) {
        gk_figure("lane: LOCAL pair of %zu bytes: %.0f ns", bytes,
                  our_pair(g, bytes, SYMM_ALLOC_LOCAL));
        gk_figure("lane: SYM pair of %zu bytes, 1 rank: %.0f ns", bytes,
                  our_pair(g, bytes, SYMM_ALLOC_SYM));
        if (peer)
            gk_figure("lane: cuMemAllocAsync + cuMemFreeAsync of %zu bytes: %.0f ns", bytes,
                      their_pair(g, bytes, a, f));
    }
    launch_costs(g, peer, "", a, f);
}

static void what_calls_and_launches_cost(void) {
    run(1, costs_rank);
}

static void launches_rank(rig *g) {
    alloc_fn a = NULL;
    free_fn f = NULL;
    const int peer = cuda_pair(&a, &f);
    launch_costs(g, peer, " (SYMM_GRAPH_HOLD=comm)", a, f);
}

static void what_launches_cost_when_the_communicator_keeps(void) {
    setenv("SYMM_GRAPH_HOLD", "comm", 1);
    run(1, launches_rank);
    unsetenv("SYMM_GRAPH_HOLD");
}

/* SYM of several ranks: the barriers are part of it. */
static void sym_costs_rank(rig *g) {
    for (size_t bytes = 512; bytes <= 64 << 10; bytes *= 128) {
        uint64_t epochs = info(g->lane[0]).epochs, at = symm_now_ns();
        for (int i = 0; i < PAIRS / 10; i++)
            drop(g->lane[0], alloc(g->lane[0], bytes, SYMM_ALLOC_SYM));
        double ns = since(at, PAIRS / 10);
        gk_wait(g->comm, g->stream[0]);
        if (g->rank == 0)
            gk_figure("lane: SYM pair of %zu bytes, %d ranks: %.0f ns, %llu barriers in %d pairs",
                      bytes, g->n, ns, (unsigned long long)(info(g->lane[0]).epochs - epochs),
                      PAIRS / 10);
    }
}

static void what_pairs_of_several_ranks_cost(void) {
    run(N, sym_costs_rank);
}

T_MAIN(T(what_calls_and_launches_cost), T(what_launches_cost_when_the_communicator_keeps),
       T(what_pairs_of_several_ranks_cost))
