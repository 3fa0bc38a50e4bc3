/* memplan_point.c - where a stream is in its capture, as a point of the planner. The communicator's
 * user thread.
 *
 * A free is behind everything that its stream is behind. So a later place comes after the free if
 * it comes after all of that, whether or not an edge leads there from the call itself. Hence no
 * node marks a call in the graph:
 *  - Host: the capture counts tasks per stream. A place is a vector of counts. One place comes
 *    after another if none of its counts is less.
 *  - GPUs: a place is the set of nodes that the stream's next node would depend on. Mostly this is
 *    one node, and the point becomes the latest known point of that node. Other nodes are walked
 *    backwards to such nodes, each once. A node that was walked before a point was made in front of
 *    it is taken not to follow the point; that costs only memory. If a place is several nodes, an
 *    empty node is added that joins them. */
#include <stdlib.h>

#include "base/fail.h"
#include "host/comm/comm.h"
#include "host/gpu/gpu.h"
#include "memplan.h"

enum { DEPS = 64 };

static symmResult_t no_memory(void) {
    return SYMM_ERR(symmOutOfMemory, "no memory for the plan of a graph");
}

void symm_memplan_free_points(symm_memplan *p) {
    for (int i = 0; i < p->nclocks; i++) free(p->clocks[i].counts);
    free(p->clocks);
    free(p->nodes);
}

/* ---- host ------------------------------------------------------------------------------------ */

static int clock_within(const struct symm_memclock *a, const struct symm_memclock *b) {
    for (int i = 0; i < a->n; i++)
        if (a->counts[i] > (i < b->n ? b->counts[i] : 0)) return 0;
    return 1;
}

/* The latest points that come before `at`, without those that are behind another of them. */
static int points_before(const symm_memplan *p, const struct symm_memclock *at, int *deps) {
    int n = 0;
    for (int i = p->nclocks; i-- > 0;) {
        int known = 0;
        for (int k = 0; k < n && !known; k++) known = symm_gplan_follows(p->points, deps[k], i);
        if (!known && clock_within(&p->clocks[i], at)) deps[n++] = i;
    }
    return n;
}

static symmResult_t point_host(symm_memplan *p, symmStream_t stream, int kind, int *point) {
    struct symm_memclock at = {NULL, 0};
    symmResult_t status = symmSuccess;
    struct symm_memclock *clocks = SYMM_FAIL_ALLOC(
        memplan_clock, realloc(p->clocks, ((size_t)p->nclocks + 1) * sizeof *clocks));
    if (!clocks) return no_memory();
    p->clocks = clocks;
    int *deps = SYMM_FAIL_ALLOC(memplan_deps, malloc(((size_t)p->nclocks + 1) * sizeof *deps));
    if (!deps) return no_memory();
    if (symm_stream_capture_clock(stream, &at.counts, &at.n)) {
        status = no_memory();
        goto free_deps;
    }
    int made = symm_gplan_point(p->points, kind, deps, points_before(p, &at, deps));
    if (made < 0) {
        free(at.counts);
        status = no_memory();
        goto free_deps;
    }
    clocks[p->nclocks++] = at;
    *point = made;
free_deps:
    free(deps);
    return status;
}

/* ---- GPUs: nodes ----------------------------------------------------------------------------- */

static uint64_t home(const symm_memplan *p, cu_graph_node node) {
    return ((uintptr_t)node >> 4) * 0x9e3779b97f4a7c15ull >> 20 & (p->node_cap - 1);
}

static struct symm_memnode *find_node(const symm_memplan *p, cu_graph_node node) {
    uint64_t i = home(p, node);
    while (p->nodes[i].node && p->nodes[i].node != node) i = (i + 1) & (p->node_cap - 1);
    return &p->nodes[i];
}

static int widen_nodes(symm_memplan *p) {
    const symm_memplan old = *p;
    const uint64_t cap = p->node_cap ? 2 * p->node_cap : 256;
    struct symm_memnode *nodes = SYMM_FAIL_ALLOC(memplan_nodes, calloc(cap, sizeof *nodes));
    if (!nodes) return -1;
    p->nodes = nodes;
    p->node_cap = cap;
    for (uint64_t i = 0; i < old.node_cap; i++)
        if (old.nodes[i].node) *find_node(p, old.nodes[i].node) = old.nodes[i];
    free(old.nodes);
    return 0;
}

/* -1: no memory. */
static int set_node(symm_memplan *p, cu_graph_node node, int point) {
    if (2 * (p->nnodes + 1) > p->node_cap && widen_nodes(p)) return -1;
    struct symm_memnode *n = find_node(p, node);
    if (!n->node) p->nnodes++;
    *n = (struct symm_memnode){node, point};
    return 0;
}

static int known_node(const symm_memplan *p, cu_graph_node node, int *point) {
    if (!p->node_cap) return 0;
    const struct symm_memnode *n = find_node(p, node);
    if (n->node) *point = n->point;
    return n->node != NULL;
}

static int start_point(symm_memplan *p) {
    if (p->start < 0) p->start = symm_gplan_point(p->points, SYMM_POINT_PLAIN, NULL, 0);
    return p->start;
}

typedef struct {
    cu_graph_node *nodes;
    size_t n, cap;
} nodes;

static int push(nodes *s, cu_graph_node node) {
    if (s->n == s->cap) {
        size_t cap = s->cap ? 2 * s->cap : 64;
        cu_graph_node *more = SYMM_FAIL_ALLOC(memplan_walk, realloc(s->nodes, cap * sizeof *more));
        if (!more) return -1;
        s->nodes = more;
        s->cap = cap;
    }
    s->nodes[s->n++] = node;
    return 0;
}

/* *deps: allocated, the caller frees it. */
static symmResult_t dependencies(cu_graph_node node, cu_graph_node **deps, size_t *n) {
    cu_result cu = symm_cuda_node_dependencies(node, NULL, n);
    if (cu) return symm_cuda_error(cu, "what a node depends on");
    *deps = SYMM_FAIL_ALLOC(memplan_node_deps, malloc((*n ? *n : 1) * sizeof **deps));
    if (!*deps) return no_memory();
    cu = *n ? symm_cuda_node_dependencies(node, *deps, n) : 0;
    if (!cu) return symmSuccess;
    free(*deps);
    return symm_cuda_error(cu, "what a node depends on");
}

/* A point that all of these are or follow: their common one, or a new one if there are several. */
static symmResult_t join(symm_memplan *p, const cu_graph_node *deps, size_t n, int kind,
                         int *point) {
    int *points = SYMM_FAIL_ALLOC(memplan_join, malloc((n ? n : 1) * sizeof *points));
    int distinct = 0, at = 0;
    if (!points) return no_memory();
    for (size_t i = 0; i < n; i++) {
        known_node(p, deps[i], &at);
        int k = 0;
        while (k < distinct && points[k] != at) k++;
        if (k == distinct) points[distinct++] = at;
    }
    if (!distinct) points[distinct++] = start_point(p);
    *point = points[0];
    if (*point >= 0 && (distinct > 1 || kind >= 0))
        *point = symm_gplan_point(p->points, kind < 0 ? SYMM_POINT_PLAIN : kind, points, distinct);
    free(points);
    return *point < 0 ? no_memory() : symmSuccess;
}

/* Makes the top node known if all that it depends on is known; else pushes what is not. */
static symmResult_t step(symm_memplan *p, nodes *stack) {
    const cu_graph_node node = stack->nodes[stack->n - 1];
    cu_graph_node *deps = NULL;
    size_t n = 0;
    int point;
    if (known_node(p, node, &point)) {
        stack->n--;
        return symmSuccess;
    }
    SYMM_TRY(dependencies(node, &deps, &n));
    symmResult_t r = symmSuccess;
    const size_t before = stack->n;
    for (size_t i = 0; i < n && !r; i++)
        if (!known_node(p, deps[i], &point) && push(stack, deps[i])) r = no_memory();
    if (!r && stack->n == before) {
        r = join(p, deps, n, -1, &point);
        if (!r && set_node(p, node, point)) r = no_memory();
        stack->n--;
    }
    free(deps);
    return r;
}

static symmResult_t walk(symm_memplan *p, const cu_graph_node *deps, size_t n) {
    nodes stack = {NULL, 0, 0};
    symmResult_t r = symmSuccess;
    for (size_t i = 0; i < n && !r; i++)
        if (push(&stack, deps[i])) r = no_memory();
    while (!r && stack.n) r = step(p, &stack);
    free(stack.nodes);
    return r;
}

/* A point at one node: what comes after the node comes after the point. */
static symmResult_t point_at(symm_memplan *p, cu_graph_node node, int kind, int *point) {
    SYMM_TRY(walk(p, &node, 1));
    SYMM_TRY(join(p, &node, 1, kind, point));
    return set_node(p, node, *point) ? no_memory() : symmSuccess;
}

static symmResult_t empty_node(cu_graph graph, const cu_graph_node *deps, size_t n,
                               cu_graph_node *node) {
    return symm_cuda_error(symm_cu.cuGraphAddEmptyNode(node, graph, deps, n),
                           "an empty node for a plan");
}

static symmResult_t point_gpu(symm_memplan *p, symmStream_t stream, int kind, int *point) {
    const cu_graph_node *deps = NULL;
    cu_graph_node node;
    cu_graph graph = NULL;
    size_t n = 0;
    cu_stream s = symm_gpu_stream(stream);
    cu_result cu = symm_cuda_capture_deps(s, &graph, &deps, &n);
    if (cu) return symm_cuda_error(cu, "what stream %p depends on in its capture", (void *)stream);
    if (n == 1) return point_at(p, deps[0], kind, point);
    if (n == 0) { /* the capture is empty: everything comes after this point */
        int start = start_point(p);
        if (start >= 0) start = symm_gplan_point(p->points, kind, &start, 1);
        if (start < 0) return no_memory();
        *point = p->start = start;
        return symmSuccess;
    }
    SYMM_TRY(empty_node(graph, deps, n, &node));
    cu = symm_cuda_capture_set_deps(s, &node, 1);
    if (cu) return symm_cuda_error(cu, "joining what stream %p depends on", (void *)stream);
    return point_at(p, node, kind, point);
}

symmResult_t symm_memplan_point(symm_memplan *p, symmStream_t stream, int kind, int *point) {
    return p->set->comm->cuda ? point_gpu(p, stream, kind, point)
                              : point_host(p, stream, kind, point);
}

/* ---- explicit nodes -------------------------------------------------------------------------- */

static symmResult_t after_gpu(symm_memplan *p, int kind, const symmGraphNode_t *deps, size_t n,
                              int *point, symmGraphNode_t *node) {
    cu_graph_node made;
    const cu_graph_node *from = (const cu_graph_node *)(const void *)deps;
    SYMM_TRY(walk(p, from, n));
    SYMM_TRY(empty_node(p->graph, from, n, &made));
    SYMM_TRY(join(p, from, n, kind, point));
    if (set_node(p, made, *point)) return no_memory();
    *node = (symmGraphNode_t)(void *)made;
    return symmSuccess;
}

/* Host backend: a node is its point's number plus 1, as a pointer. */
symmResult_t symm_memplan_point_after(symm_memplan *p, int kind, const symmGraphNode_t *deps,
                                      int ndeps, int *point, symmGraphNode_t *node) {
    int few[DEPS] = {0}, *points = few;
    if (p->set->comm->cuda) return after_gpu(p, kind, deps, (size_t)ndeps, point, node);
    if (ndeps > DEPS) {
        points = SYMM_FAIL_ALLOC(memplan_after, malloc((size_t)ndeps * sizeof *points));
        if (!points) return no_memory();
    }
    int bad = -1;
    for (int i = 0; i < ndeps; i++) {
        const uintptr_t no = (uintptr_t)(void *)deps[i];
        points[i] = (int)no - 1;
        if (no == 0 || no > (uintptr_t)symm_gplan_points(p->points)) bad = i;
    }
    int made = bad < 0 ? symm_gplan_point(p->points, kind, points, ndeps) : -1;
    if (points != few) free(points);
    if (bad >= 0)
        return SYMM_ERR(symmInvalidArgument, "deps[%d]=%p is no node of this plan", bad,
                        (void *)deps[bad]);
    if (made < 0) return no_memory();
    *point = made;
    *node = (symmGraphNode_t)(uintptr_t)(made + 1);
    return symmSuccess;
}
