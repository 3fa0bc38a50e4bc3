/* memplan_handle.c - plans as the program holds them: bound to a graph or made for explicit nodes,
 * and destroyed. The communicator's user thread. */

#include "base/handle.h"
#include "base/sized.h"
#include "host/comm/comm.h"
#include "host/gpu/gpu.h"
#include "host/window/space.h"
#include "memplan.h"

/* ---- making ---------------------------------------------------------------------------------- */

static void free_nothing(void *obj) {
    (void)obj; /* the plan lives on with its graph */
}

static symmResult_t check_flags(const char *call, unsigned flags) {
    if (flags & ~(SYMM_MEMPLAN_AUTO_FREE | SYMM_MEMPLAN_ALIAS | SYMM_MEMPLAN_HOLD))
        return SYMM_ERR(symmInvalidArgument,
                        "%s: flags=0x%x: must be SYMM_MEMPLAN_* "
                        "flags",
                        call, flags);
    return symmSuccess;
}

static symmResult_t give_handle(symm_memplan *p, unsigned flags, symmMemPlan_t *plan) {
    void *handle;
    SYMM_TRY(symm_handle_new(SYMM_KIND_PLAN, p, free_nothing, &handle));
    p->handle = handle;
    p->held = 1;
    p->flags = flags;
    *plan = p->handle;
    return symmSuccess;
}

/* With SYMM_MEMPLAN_HOLD the graph hands what it holds to the plan, the plan's own reference
 * too. */
static symmResult_t take_hold(symm_memplan *p, unsigned flags, symmMemPlan_t *plan) {
    const symm_gpu_capture in = {p->graph, p->capture};
    SYMM_TRY(give_handle(p, flags, plan));
    if (!(flags & SYMM_MEMPLAN_HOLD) || !p->set->comm->cuda) return symmSuccess;
    symmResult_t r = symm_gpu_take(&in, p, &p->pins);
    if (!r) return symmSuccess;
    symm_handle_close(SYMM_KIND_PLAN, p->handle);
    symm_handle_put(SYMM_KIND_PLAN, p->handle);
    p->handle = NULL;
    return r;
}

static symm_memplan *find_graph(const symm_memlane *l, symmGraph_t graph) {
    const uint64_t id = l->set->comm->cuda ? 0 : symm_graph_capture(graph);
    for (symm_memplan *p = l->set->plans; p; p = p->next) {
        const int same =
            l->set->comm->cuda ? (void *)p->graph == (void *)graph : id && p->capture == id;
        if (same && !p->explicit_nodes && !p->handle && !p->destroyed &&
            atomic_load_explicit(&p->graphs, memory_order_acquire))
            return p;
    }
    return NULL;
}

/* A plan orders the launches of its lane. For a lane that has no call in the graph that would be
 * useless. */
static symmResult_t check_lane(const symm_memplan *p, const symm_memlane *l, symmGraph_t graph) {
    for (int i = 0; i < p->ncallers; i++)
        if (p->callers[i] == l->ordinal) return symmSuccess;
    if (!p->ncallers)
        return SYMM_ERR(symmInvalidArgument,
                        "symmMemPlanBind: graph=%p has no call of a lane of this heap",
                        (void *)graph);
    return SYMM_ERR(symmInvalidArgument,
                    "symmMemPlanBind: graph=%p has no call of lane %d: its calls are of lane %d%s",
                    (void *)graph, l->ordinal, p->callers[0], p->ncallers > 1 ? " and others" : "");
}

static symmResult_t bind(symm_memlane *l, symmGraph_t graph, unsigned flags, symmMemPlan_t *plan) {
    symm_memplan_reap(l->set->comm);
    symm_memplan *p = find_graph(l, graph);
    if (!p)
        return SYMM_ERR(symmInvalidArgument,
                        "symmMemPlanBind: graph=%p has no call of a lane of this heap, is already "
                        "bound, or is gone",
                        (void *)graph);
    if (p->lost) return SYMM_ERR(symmOutOfMemory, "symmMemPlanBind: memory ran out in the capture");
    SYMM_TRY(check_lane(p, l, graph));
    if (!p->alias != !(flags & SYMM_MEMPLAN_ALIAS))
        return SYMM_ERR(
            symmInvalidUsage,
            "symmMemPlanBind: flags=0x%x %s SYMM_MEMPLAN_ALIAS, and the capture began %s lane "
            "%d had memory for it (symmLaneAlias)",
            flags, flags & SYMM_MEMPLAN_ALIAS ? "has" : "lacks", p->alias ? "when" : "before",
            p->lane);
    SYMM_TRY(take_hold(p, flags, plan));
    symm_memregion_measure(p->region);
    return symmSuccess;
}

symmResult_t symmMemPlanBind(symmLane_t lane, symmGraph_t graph, unsigned flags,
                             symmMemPlan_t *plan) {
    symm_memlane *l;
    if (!plan || !graph)
        return SYMM_ERR(symmInvalidArgument, "symmMemPlanBind: %s is NULL",
                        plan ? "graph" : "plan");
    SYMM_TRY(check_flags("symmMemPlanBind", flags));
    SYMM_TRY(symm_memlane_enter(lane, "symmMemPlanBind", &l));
    symmResult_t r = bind(l, graph, flags, plan);
    symm_memlane_leave(l);
    return r;
}

static symmResult_t create(symm_memlane *l, symmGraph_t graph, unsigned flags,
                           symmMemPlan_t *plan) {
    symm_memplan *p;
    const int cuda = l->set->comm->cuda;
    if (cuda != (graph != NULL))
        return SYMM_ERR(symmInvalidArgument, "symmMemPlanCreate: graph=%p: %s", (void *)graph,
                        cuda ? "on GPUs the graph that gets the nodes"
                             : "the host backend has none");
    if (cuda && !symm_cuda_sees_graphs())
        return SYMM_ERR(symmNotSupported, "symmMemPlanCreate: needs a driver of 12.3 or later");
    if (flags & SYMM_MEMPLAN_ALIAS && !(l->region && l->region->alias))
        return SYMM_ERR(
            symmInvalidUsage,
            "symmMemPlanCreate: flags=0x%x: lane %d has no memory for SYMM_MEMPLAN_ALIAS "
            "(symmLaneAlias)",
            flags, l->ordinal);
    symm_memplan_reap(l->set->comm);
    SYMM_TRY(symm_memplan_new(l->set, &p));
    p->explicit_nodes = 1;
    p->graph = (cu_graph)(void *)graph;
    p->flags = flags;
    symm_memplan_retain(p);
    symmResult_t r = cuda ? symm_memplan_hold(p, NULL) : symmSuccess;
    if (!r) r = symm_memplan_settle_on(p, l);
    if (!r) r = take_hold(p, flags, plan);
    if (r) p->held = 0;
    symm_memplan_release(p);
    if (r || !cuda) symm_memplan_reap(l->set->comm);
    return r;
}

symmResult_t symmMemPlanCreate(symmLane_t lane, symmGraph_t graph, unsigned flags,
                               symmMemPlan_t *plan) {
    symm_memlane *l;
    if (!plan) return SYMM_ERR(symmInvalidArgument, "symmMemPlanCreate: plan is NULL");
    SYMM_TRY(check_flags("symmMemPlanCreate", flags));
    SYMM_TRY(symm_memlane_enter(lane, "symmMemPlanCreate", &l));
    symmResult_t r = create(l, graph, flags, plan);
    symm_memlane_leave(l);
    return r;
}

/* ---- entering -------------------------------------------------------------------------------- */

static symmResult_t find_plan(symmMemPlan_t plan, const char *call, symm_memplan **out) {
    *out = symm_handle_peek(SYMM_KIND_PLAN, plan);
    if (*out) return symmSuccess;
    return SYMM_ERR(symmInvalidArgument, "%s: plan=%p is not a live plan", call, (void *)plan);
}

symmResult_t symm_memplan_enter(symmMemPlan_t plan, const char *call, symm_memplan **out) {
    symm_heap *h;
    symm_memplan *p;
    SYMM_TRY(find_plan(plan, call, &p));
    SYMM_TRY(symm_memlane_no_group(call));
    SYMM_TRY(symm_heap_enter(p->set->handle, 1, &h));
    const symmResult_t r = find_plan(plan, call, out); /* it may have ended before this turn */
    if (r)
        symm_heap_leave(h);
    else
        SYMM_CHECK(symm_memplan_check(*out));
    return r;
}

void symm_memplan_leave(symm_memplan *p) {
    SYMM_CHECK(symm_memplan_check(p));
    symm_heap_leave(p->set->heap);
}

/* ---- end ------------------------------------------------------------------------------------- */

static const char destroying[] = "symmMemPlanDestroy";

/* *pins: what the plan held; the plan is among them, so it lives until they go. */
static void end_plan(symm_memplan *p, symm_kept **pins) {
    const symmMemPlan_t handle = p->handle;
    SYMM_ASSERT(handle && !p->destroyed);
    *pins = p->pins;
    p->pins = NULL;
    symm_memregion_measure(p->region);
    p->destroyed = 1;
    symm_handle_close(SYMM_KIND_PLAN, handle);
    symm_memplan_settle(p);
    symm_handle_put(SYMM_KIND_PLAN, handle);
}

/* The heap has gone, and its blocks with it. Another thread may have been here before. */
static symmResult_t destroy_dead(symmMemPlan_t plan, symm_comm *c) {
    symm_memplan *p;
    symm_kept *pins = NULL;
    int turn;
    SYMM_TRY(symm_memplan_enter_dead(c, &turn));
    const symmResult_t r = find_plan(plan, destroying, &p);
    if (!r) {
        p->nlive = 0;
        end_plan(p, &pins);
    }
    if (turn) {
        symm_gpu_let_go(&pins);
        symm_memplan_reap(c);
    }
    symm_memplan_leave_dead(c, turn);
    symm_gpu_let_go(&pins); /* without the lock, which a plan's end may take */
    symm_memplan_reap(NULL);
    return r;
}

symmResult_t symmMemPlanDestroy(symmMemPlan_t plan) {
    symm_heap *h;
    symm_memplan *p;
    symm_kept *pins = NULL;
    SYMM_TRY(find_plan(plan, destroying, &p));
    SYMM_TRY(symm_memlane_no_group(destroying));
    if (!symm_handle_open(SYMM_KIND_HEAP, p->set->handle)) return destroy_dead(plan, p->set->comm);
    SYMM_TRY(symm_heap_enter(p->set->handle, 0, &h));
    symm_heap_ref(h); /* the set may end here, and the heap with it */
    symm_memplan_reap(symm_heap_comm(h));
    const symmResult_t r = find_plan(plan, destroying, &p); /* it may have ended before this turn */
    if (!r) end_plan(p, &pins);
    symm_gpu_let_go(&pins);
    symm_memplan_reap(symm_heap_comm(h));
    symm_heap_leave(h);
    symm_heap_unref(h);
    return r;
}

/* ---- explicit nodes -------------------------------------------------------------------------- */

static symmResult_t check_nodes(const symm_memplan *p, const char *call,
                                const symmGraphNode_t *deps, int ndeps, const void *node) {
    if (!p->explicit_nodes)
        return SYMM_ERR(
            symmInvalidUsage,
            "%s: plan=%p is of a capture: explicit nodes need a plan of symmMemPlanCreate", call,
            (void *)p->handle);
    if (ndeps < 0 || (ndeps && !deps))
        return SYMM_ERR(symmInvalidArgument,
                        "%s: ndeps=%d, deps=%p: ndeps must be at least 0, "
                        "and deps not NULL if it is more",
                        call, ndeps, (const void *)deps);
    if (!node) return SYMM_ERR(symmInvalidArgument, "%s: node is NULL", call);
    return symmSuccess;
}

static symm_memlane *lane_of(const symm_memplan *p) {
    for (int i = 0; i < p->set->made; i++)
        if (p->set->lanes[i] && p->set->lanes[i]->region == p->region) return p->set->lanes[i];
    return NULL;
}

static symmResult_t add_alloc(symm_memplan *p, const symmGraphNode_t *deps, int ndeps,
                              const symmAllocNode_t *params, const void *site,
                              symmGraphNode_t *node, void **ptr) {
    symm_memaccess access = {0};
    symmAllocNode_t read = {.size = sizeof read};
    const symmAllocNode_t *a = &read;
    const int unread = !params || symm_sized_read(&read, sizeof read, sizeof read, params);
    int point, block;
    symmGraphNode_t made;
    symm_memlane *l = lane_of(p);
    if (!l)
        return SYMM_ERR(symmInvalidUsage, "symmMemPlanAddAllocNode: the plan's lane is destroyed");
    if (unread || !a->bytes || (a->flags & ~(SYMM_ALLOC_LOCAL | SYMM_ALLOC_KEEP)))
        return SYMM_ERR(symmInvalidArgument,
                        "symmMemPlanAddAllocNode: params: size=%zu, bytes=%llu, flags=0x%x: "
                        "size must be that of symmAllocNode_t, bytes at least 1, flags "
                        "SYMM_ALLOC_*" SYMM_NEWER,
                        params ? params->size : 0, (unsigned long long)a->bytes, a->flags);
    if (a->bytes > SIZE_MAX / 4) /* as symmLaneAlloc */
        return SYMM_ERR(symmOutOfMemory,
                        "symmMemPlanAddAllocNode: params: bytes=%llu is more than any heap",
                        (unsigned long long)a->bytes);
    SYMM_TRY(symm_memaccess_set(&access, p->set->comm, a->ranks, a->nranks));
    const uint64_t bytes = symm_round_up(a->bytes, SYMM_PLACE_UNIT);
    SYMM_TRY(symm_memplan_point_after(p, SYMM_POINT_PLAIN, deps, ndeps, &point, &made));
    SYMM_TRY(symm_memplan_place(p, l, point, bytes, a->flags, site, &block));
    p->blocks[block].access = access;
    symm_memplan_note(p, block, 0, p->lane, site);
    *node = made;
    *ptr = symm_memlanes_address(p->set, p->blocks[block].off);
    return symmSuccess;
}

symmResult_t symmMemPlanAddAllocNode(symmMemPlan_t plan, const symmGraphNode_t *deps, int ndeps,
                                     const symmAllocNode_t *params, symmGraphNode_t *node,
                                     void **ptr) {
    symm_memplan *p;
    if (!ptr) return SYMM_ERR(symmInvalidArgument, "symmMemPlanAddAllocNode: ptr is NULL");
    SYMM_TRY(symm_memplan_enter(plan, "symmMemPlanAddAllocNode", &p));
    symmResult_t r = check_nodes(p, "symmMemPlanAddAllocNode", deps, ndeps, node);
    if (!r) r = add_alloc(p, deps, ndeps, params, __builtin_return_address(0), node, ptr);
    symm_memplan_leave(p);
    return r;
}

static symmResult_t add_free(symm_memplan *p, const symmGraphNode_t *deps, int ndeps, void *ptr,
                             const void *site, symmGraphNode_t *node) {
    int point;
    symmGraphNode_t made;
    const uint64_t off = symm_heap_offset(p->set->heap, ptr);
    if (off == SYMM_NO_OFFSET)
        return SYMM_ERR(symmInvalidArgument,
                        "symmMemPlanAddFreeNode: ptr=%p is not of the plan's heap", ptr);
    SYMM_TRY(symm_memplan_point_after(p, SYMM_POINT_PLAIN, deps, ndeps, &point, &made));
    SYMM_TRY(symm_memplan_free_at(p, point, off, ptr, site));
    *node = made;
    return symmSuccess;
}

symmResult_t symmMemPlanAddFreeNode(symmMemPlan_t plan, const symmGraphNode_t *deps, int ndeps,
                                    void *ptr, symmGraphNode_t *node) {
    symm_memplan *p;
    SYMM_TRY(symm_memplan_enter(plan, "symmMemPlanAddFreeNode", &p));
    symmResult_t r = check_nodes(p, "symmMemPlanAddFreeNode", deps, ndeps, node);
    if (!r) r = add_free(p, deps, ndeps, ptr, __builtin_return_address(0), node);
    symm_memplan_leave(p);
    return r;
}

symmResult_t symmMemPlanAddOrderNode(symmMemPlan_t plan, const symmGraphNode_t *deps, int ndeps,
                                     symmGraphNode_t *node) {
    symm_memplan *p;
    int point;
    symmGraphNode_t made;
    SYMM_TRY(symm_memplan_enter(plan, "symmMemPlanAddOrderNode", &p));
    symmResult_t r = check_nodes(p, "symmMemPlanAddOrderNode", deps, ndeps, node);
    if (!r) r = symm_memplan_point_after(p, SYMM_POINT_PLAIN, deps, ndeps, &point, &made);
    if (!r) *node = made;
    symm_memplan_leave(p);
    return r;
}
