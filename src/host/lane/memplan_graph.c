/* memplan_graph.c - plans as the program holds them: bound to a graph, launched, made of explicit
 * nodes. The communicator's user thread. */
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/handle.h"
#include "host/comm/comm.h"
#include "host/comm/group.h"
#include "host/gpu/gpu.h"
#include "host/launch/launch.h"
#include "host/window/space.h"
#include "memplan.h"

/* ---- making ---------------------------------------------------------------------------------- */

static void free_nothing(void *obj) {
    (void)obj; /* the plan lives on with its graph */
}

static symmResult_t check_flags(const char *call, unsigned flags) {
    if (flags & ~(SYMM_MEMPLAN_AUTO_FREE | SYMM_MEMPLAN_ALIAS | SYMM_MEMPLAN_HOLD))
        return SYMM_ERR(symmInvalidArgument, "%s: flags=0x%x", call, flags);
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

/* With SYMM_MEMPLAN_HOLD the graph gives what it holds, the plan itself too. */
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

/* A plan keeps the order of its lane's launches: another one's would be kept in vain. */
static symmResult_t check_lane(const symm_memplan *p, const symm_memlane *l, symmGraph_t graph) {
    for (int i = 0; i < p->ncallers; i++)
        if (p->callers[i] == l->ordinal) return symmSuccess;
    if (!p->ncallers)
        return SYMM_ERR(symmInvalidArgument,
                        "symmMemPlanBind: graph=%p has no call of a lane of this heap",
                        (void *)graph);
    return SYMM_ERR(symmInvalidArgument,
                    "symmMemPlanBind: graph=%p has no call of lane %d: lane %d has made %s in it",
                    (void *)graph, l->ordinal, p->callers[0],
                    p->ncallers > 1 ? "the first" : "those");
}

static symmResult_t bind(symm_memlane *l, symmGraph_t graph, unsigned flags, symmMemPlan_t *plan) {
    symm_memplan_reap(l->set->comm);
    symm_memplan *p = find_graph(l, graph);
    if (!p)
        return SYMM_ERR(symmInvalidArgument,
                        "symmMemPlanBind: graph=%p has no call of a lane of this heap, is bound "
                        "already, or is gone",
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

symmResult_t symm_memplan_enter(symmMemPlan_t plan, const char *call, symm_memplan **out) {
    symm_heap *h;
    symm_memplan *p = symm_handle_peek(SYMM_KIND_PLAN, plan);
    if (!p)
        return SYMM_ERR(symmInvalidArgument, "%s: plan=%p is not a living plan", call,
                        (void *)plan);
    SYMM_TRY(symm_heap_enter(p->set->handle, 1, &h));
    *out = p;
    return symmSuccess;
}

void symm_memplan_leave(symm_memplan *p) {
    symm_heap_leave(p->set->heap);
}

/* ---- launching ------------------------------------------------------------------------------- */

static symmResult_t still_live(const symm_memplan *p) {
    for (int i = 0; i < p->nblocks; i++)
        if (p->blocks[i].live)
            return SYMM_ERR(symmInvalidUsage,
                            "symmMemPlanLaunch: ptr=%p (%llu bytes), which the last launch of this "
                            "graph has left, is still allocated: free it, or bind with "
                            "SYMM_MEMPLAN_AUTO_FREE",
                            symm_memlanes_address(p->set, p->blocks[i].off),
                            (unsigned long long)(p->blocks[i].bytes - p->blocks[i].red));
    return symmSuccess;
}

/* Does a block that another graph has left lie where this one has its own? */
static symmResult_t check_others(const symm_memplan *p) {
    for (const symm_memplan *o = p->set->plans; o; o = o->next)
        for (int i = 0; o != p && o->nlive && o->region == p->region && i < o->nblocks; i++) {
            const symm_memblock *b = &o->blocks[i];
            if (!b->live || !symm_gplan_touches(p->points, b->zone, b->at, b->bytes)) continue;
            return SYMM_ERR(
                symmInvalidUsage,
                "symmMemPlanLaunch: ptr=%p (%llu bytes), which another graph of the lane "
                "has left allocated, lies in this graph's memory: free it first, or "
                "capture it with SYMM_ALLOC_KEEP",
                symm_memlanes_address(p->set, b->off), (unsigned long long)(b->bytes - b->red));
        }
    return symmSuccess;
}

/* Blocks that this graph frees must be there. */
static symmResult_t check_frees(const symm_memplan *p) {
    for (int i = 0; i < p->nfrees; i++) {
        const symm_memplan *o = p->frees[i].plan;
        const symm_memblock *b = &o->blocks[p->frees[i].block];
        if (!b->live && !symm_memloose_may_free(o, b))
            return SYMM_ERR(
                symmInvalidUsage,
                "symmMemPlanLaunch: ptr=%p, which this graph frees, is not allocated now",
                symm_memlanes_address(p->set, b->off));
    }
    return symmSuccess;
}

/* Behind the lane's last launch on another stream: all that one was given by now. */
static symmResult_t follow_launch(symm_memregion *r, symmStream_t stream) {
    if (!r->launches || r->launch_stream == stream) return symmSuccess;
    SYMM_TRY(symm_memlate_mark(r->set->comm, &r->launched, r->launch_stream));
    return symm_memmark_follow(r->set->comm, &r->launched, stream);
}

static symmResult_t order(symm_memplan *p, symmStream_t stream) {
    symm_memlanes *s = p->set;
    symm_memstate st;
    SYMM_TRY(symm_mem_state(s->comm, stream, &st));
    if (st.how == SYMM_STREAM_CAPTURED)
        return SYMM_ERR(symmInvalidUsage,
                        "symmMemPlanLaunch: stream=%p is under capture, and a graph that allocates "
                        "cannot become part of another",
                        (void *)stream);
    SYMM_TRY(follow_launch(p->region, stream));
    SYMM_TRY(symm_memlate_follow(p, stream));
    /* Explicit SYM nodes have no barrier in the graph, so there is one in front. */
    if (p->explicit_nodes && p->has_sym && s->comm->nranks > 1)
        SYMM_TRY(symm_coll_barrier(s->comm, stream));
    return symmSuccess;
}

/* A graph that holds calls of the communicator, barriers of SYM blocks too, comes behind its last
 * call, and later ones come behind it. */
static symmResult_t start(symm_memplan *p, symmGraphExec_t exec, symmStream_t stream) {
    return exec ? symm_launch_graph(p->set->comm, p->ncalls > 0, exec, stream) : symmSuccess;
}

static void note_launch(symm_memplan *p, int here, symmStream_t stream) {
    symm_memlate_launched(p, here, stream);
    for (int i = 0; i < p->nfrees; i++) {
        symm_memplan *o = p->frees[i].plan;
        symm_memblock *b = &o->blocks[p->frees[i].block];
        if (b->live) o->nlive--;
        b->live = 0;
        symm_memloose_freed(o, b);
        symm_memplan_settle(o); /* it stays, as this one refers to it, but may hold nothing now */
    }
    p->nlive = 0;
    for (int i = 0; i < p->nblocks; i++) {
        p->blocks[i].live = !p->blocks[i].freed;
        p->nlive += p->blocks[i].live;
    }
    p->launches++;
}

static symmResult_t check_upload(const symm_memplan *p) {
    int there;
    const int pieces = symm_memalias_pieces(p, &there);
    if (pieces <= there) return symmSuccess;
    return SYMM_ERR(
        symmInvalidUsage,
        "symmMemPlanLaunch: plan=%p: of the %d pieces of memory under its addresses, %d "
        "are mapped on all ranks: symmMemPlanUpload on all of them first",
        (void *)p->handle, pieces, there);
}

/* Later work, of whichever thread, is put behind a launch by its stream's name. */
static symmResult_t check_name(const symm_comm *c, symmStream_t stream) {
    if (!c->cuda || !symm_gpu_is_per_thread(stream)) return symmSuccess;
    return SYMM_ERR(symmInvalidArgument,
                    "symmMemPlanLaunch: stream=%p means another stream in each thread",
                    (void *)stream);
}

/* Host backend: the graph holds the plan, or it is a part of it. A plan of explicit nodes has none
 * of its own, and takes any that is nobody else's. CUDA does not say of which graph an
 * executable was made. */
static symmResult_t check_graph(const symm_memplan *p, symmGraphExec_t exec) {
    if (p->set->comm->cuda || !exec) return symmSuccess;
    const int found =
        symm_graph_tells(exec, p->explicit_nodes ? NULL : (const void *)p, &symm_memloose_user);
    if (found < 0)
        return SYMM_ERR(symmInvalidArgument,
                        "symmMemPlanLaunch: exec=%p is not a live executable of a host graph",
                        (void *)exec);
    if (found == !p->explicit_nodes) return symmSuccess;
    for (const symm_memplan *o = p->set->plans; o; o = o->next)
        if (o->handle && symm_graph_tells(exec, o, &symm_memloose_user) > 0)
            return SYMM_ERR(
                symmInvalidArgument,
                "symmMemPlanLaunch: exec=%p is not of the graph of plan=%p, but of that of plan %p",
                (void *)exec, (void *)p->handle, (void *)o->handle);
    return SYMM_ERR(
        symmInvalidArgument,
        "symmMemPlanLaunch: exec=%p is not of the graph of plan=%p, nor of another plan's",
        (void *)exec, (void *)p->handle);
}

static symmResult_t launch(symm_memplan *p, symmGraphExec_t exec, symmStream_t stream) {
    symm_memregion *r = p->region;
    SYMM_TRY(check_name(p->set->comm, stream));
    SYMM_TRY(check_graph(p, exec));
    SYMM_TRY(check_upload(p));
    if (p->nlive && !(p->flags & SYMM_MEMPLAN_AUTO_FREE)) return still_live(p);
    SYMM_TRY(check_frees(p));
    SYMM_TRY(check_others(p));
    SYMM_TRY(order(p, stream));
    SYMM_TRY(symm_memlate_reserve(p));
    SYMM_TRY(start(p, exec, stream));
    symm_memlate_followed(p);
    if (p->nfrees || p->nleft || p->explicit_nodes)
        note_launch(p, exec != NULL, stream);
    else
        p->launches++;
    r->launch_stream = stream;
    r->launches++;
    return symmSuccess;
}

symmResult_t symmMemPlanLaunch(symmMemPlan_t plan, symmGraphExec_t exec, symmStream_t stream) {
    symm_memplan *p;
    SYMM_TRY(symm_memplan_enter(plan, "symmMemPlanLaunch", &p));
    symmResult_t r = launch(p, exec, stream);
    symm_memplan_leave(p);
    return r;
}

/* ---- uploading ------------------------------------------------------------------------------- */

typedef struct {
    symmMemPlan_t plan;
    symmGraphExec_t exec;
    symmStream_t stream;
} upload_args;

static symmResult_t check_exec(const symm_memplan *p, symmGraphExec_t exec) {
    if (p->alias && !exec) return symmSuccess; /* maps, and no more */
    if (!exec) return SYMM_ERR(symmInvalidArgument, "symmMemPlanUpload: exec is NULL");
    if (!p->set->comm->cuda && symm_graph_tells(exec, NULL, &symm_memloose_user) < 0)
        return SYMM_ERR(symmInvalidArgument,
                        "symmMemPlanUpload: exec=%p is not a live executable of a host graph",
                        (void *)exec);
    return symmSuccess;
}

/* The driver's part. */
static symmResult_t upload_exec(const symm_comm *c, symmGraphExec_t exec, symmStream_t stream) {
    symm_cuda_scope scope;
    if (!c->cuda || !exec) return symmSuccess;
    SYMM_TRY(symm_gpu_enter(c, &scope));
    cu_result cu = symm_cu.cuGraphUpload((cu_graph_exec)(void *)exec, symm_gpu_stream(stream));
    symm_gpu_leave(&scope);
    return symm_cuda_error(cu, "uploading graph %p", (void *)exec);
}

/* A rank with a bad argument takes part where something is to be mapped. */
static symmResult_t upload_job(void *args) {
    const upload_args *a = args;
    symm_memplan *p;
    SYMM_TRY(symm_memplan_enter(a->plan, "symmMemPlanUpload", &p));
    symmResult_t r = symm_memalias_upload(p, check_exec(p, a->exec));
    if (!r) r = upload_exec(p->set->comm, a->exec, a->stream);
    symm_memplan_leave(p);
    return r;
}

symmResult_t symmMemPlanUpload(symmMemPlan_t plan, symmGraphExec_t exec, symmStream_t stream) {
    upload_args a = {plan, exec, stream};
    const symm_memplan *p = symm_handle_peek(SYMM_KIND_PLAN, plan);
    if (!p || !p->alias) return upload_job(&a);
    return symm_group_run(p->set->comm->handle, SYMM_JOB_BLOCKS, upload_job, &a, sizeof a);
}

/* ---- end ------------------------------------------------------------------------------------- */

static void end_plan(symm_memplan *p) {
    const symmMemPlan_t handle = p->handle;
    symm_memregion_measure(p->region);
    p->destroyed = 1;
    symm_handle_close(SYMM_KIND_PLAN, handle);
    symm_memplan_settle(p);
    symm_handle_put(SYMM_KIND_PLAN, handle);
}

symmResult_t symmMemPlanDestroy(symmMemPlan_t plan) {
    symm_heap *h;
    symm_memplan *p = symm_handle_peek(SYMM_KIND_PLAN, plan);
    if (!p)
        return SYMM_ERR(symmInvalidArgument, "symmMemPlanDestroy: plan=%p is not a living plan",
                        (void *)plan);
    symm_kept *pins = p->pins; /* with the plan itself among them, it lives on until they go */
    if (!symm_handle_open(SYMM_KIND_HEAP, p->set->handle)) {
        symm_memplan_lock_dead();
        p->nlive = 0; /* the heap has taken its blocks along */
        p->pins = NULL;
        end_plan(p);
        symm_memplan_unlock_dead();
        symm_gpu_let_go(&pins);
        symm_memplan_reap(NULL);
        return symmSuccess;
    }
    SYMM_TRY(symm_heap_enter(p->set->handle, 0, &h));
    symm_heap_ref(h); /* the set may end here, and the heap with it */
    symm_memplan_reap(symm_heap_comm(h));
    p->pins = NULL;
    end_plan(p);
    symm_gpu_let_go(&pins);
    symm_memplan_reap(symm_heap_comm(h));
    symm_heap_leave(h);
    symm_heap_unref(h);
    return symmSuccess;
}

/* ---- explicit nodes -------------------------------------------------------------------------- */

static symmResult_t check_nodes(const symm_memplan *p, const char *call,
                                const symmGraphNode_t *deps, int ndeps, const void *node) {
    if (!p->explicit_nodes)
        return SYMM_ERR(
            symmInvalidUsage,
            "%s: plan=%p is of a capture: explicit nodes go to one of symmMemPlanCreate", call,
            (void *)p->handle);
    if (ndeps < 0 || (ndeps && !deps))
        return SYMM_ERR(symmInvalidArgument, "%s: ndeps=%d, deps=%p", call, ndeps,
                        (const void *)deps);
    if (!node) return SYMM_ERR(symmInvalidArgument, "%s: node is NULL", call);
    return symmSuccess;
}

static symm_memlane *lane_of(const symm_memplan *p) {
    for (int i = 0; i < p->set->made; i++)
        if (p->set->lanes[i] && p->set->lanes[i]->region == p->region) return p->set->lanes[i];
    return NULL;
}

static symmResult_t add_alloc(symm_memplan *p, const symmGraphNode_t *deps, int ndeps,
                              const symmAllocNode_t *a, const void *site, symmGraphNode_t *node,
                              void **ptr) {
    symm_memaccess access = {0};
    int point, block;
    symmGraphNode_t made;
    symm_memlane *l = lane_of(p);
    if (!l)
        return SYMM_ERR(symmInvalidUsage, "symmMemPlanAddAllocNode: the plan's lane is destroyed");
    if (!a || a->size < sizeof *a || !a->bytes || a->bytes > SIZE_MAX / 2 ||
        (a->flags & ~(SYMM_ALLOC_LOCAL | SYMM_ALLOC_KEEP)))
        return SYMM_ERR(symmInvalidArgument,
                        "symmMemPlanAddAllocNode: params: bytes=%llu flags=0x%x",
                        a ? (unsigned long long)a->bytes : 0, a ? a->flags : 0);
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
