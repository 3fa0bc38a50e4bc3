/* memplan_launch.c - launching and uploading the graph of a plan. The communicator's user
 * thread. */
#include "base/handle.h"
#include "host/comm/comm.h"
#include "host/comm/group.h"
#include "host/gpu/gpu.h"
#include "host/launch/launch.h"
#include "memplan.h"

/* ---- checks ---------------------------------------------------------------------------------- */

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

/* Refuses a launch while a live block of another graph overlaps this graph's memory. */
static symmResult_t check_others(const symm_memplan *p) {
    for (const symm_memplan *o = p->set->plans; o; o = o->next)
        for (int i = 0; o != p && o->nlive && o->region == p->region && i < o->nblocks; i++) {
            const symm_memblock *b = &o->blocks[i];
            if (!b->live || !symm_gplan_touches(p->points, b->zone, b->at, b->bytes)) continue;
            return SYMM_ERR(
                symmInvalidUsage,
                "symmMemPlanLaunch: ptr=%p (%llu bytes), which another graph of the lane has left "
                "allocated, overlaps this graph's memory: free it first, or capture it with "
                "SYMM_ALLOC_KEEP",
                symm_memlanes_address(p->set, b->off), (unsigned long long)(b->bytes - b->red));
        }
    return symmSuccess;
}

/* Refuses a launch if a block that the graph frees is not allocated. */
static symmResult_t check_frees(const symm_memplan *p) {
    for (int i = 0; i < p->nfrees; i++) {
        const symm_memplan *o = p->frees[i].plan;
        const symm_memblock *b = &o->blocks[p->frees[i].block];
        if (!b->live && !symm_unbound_may_free(o, b))
            return SYMM_ERR(symmInvalidUsage,
                            "symmMemPlanLaunch: ptr=%p, which this graph frees, is not allocated",
                            symm_memlanes_address(p->set, b->off));
    }
    return symmSuccess;
}

static symmResult_t check_upload(const symm_memplan *p) {
    int there;
    const int pieces = symm_memalias_pieces(p, &there);
    if (pieces <= there) return symmSuccess;
    return SYMM_ERR(
        symmInvalidUsage,
        "symmMemPlanLaunch: plan=%p: of the %d pieces of memory under its addresses, only %d are "
        "mapped on all ranks: call symmMemPlanUpload on all ranks first",
        (void *)p->handle, pieces, there);
}

/* Later work, of any thread, is put behind this launch by the stream's handle. */
static symmResult_t check_name(const symm_comm *c, symmStream_t stream) {
    if (!c->cuda || !symm_gpu_is_per_thread(stream)) return symmSuccess;
    return SYMM_ERR(symmInvalidArgument,
                    "symmMemPlanLaunch: stream=%p is the per-thread default stream, another one "
                    "in each thread",
                    (void *)stream);
}

/* Host backend: the executable must be of the plan's graph, or of one that this graph has become a
 * part of. A plan of explicit nodes has no graph, and accepts one that belongs to no other plan.
 * CUDA does not say of which graph an executable was made. */
static symmResult_t check_graph(const symm_memplan *p, symmGraphExec_t exec) {
    if (p->set->comm->cuda || !exec) return symmSuccess;
    const int found = symm_graph_tells(exec, p->explicit_nodes ? NULL : (const void *)p,
                                       &symm_memplan_graph_user);
    if (found < 0)
        return SYMM_ERR(symmInvalidArgument,
                        "symmMemPlanLaunch: exec=%p is not a live executable of a host graph",
                        (void *)exec);
    if (found == !p->explicit_nodes) return symmSuccess;
    for (const symm_memplan *o = p->set->plans; o; o = o->next)
        if (o->handle && symm_graph_tells(exec, o, &symm_memplan_graph_user) > 0)
            return SYMM_ERR(
                symmInvalidArgument,
                "symmMemPlanLaunch: exec=%p is not of the graph of plan=%p, but of the graph of "
                "plan %p",
                (void *)exec, (void *)p->handle, (void *)o->handle);
    return SYMM_ERR(
        symmInvalidArgument,
        "symmMemPlanLaunch: exec=%p is not of the graph of plan=%p, nor of the graph of another "
        "plan",
        (void *)exec, (void *)p->handle);
}

/* ---- launching ------------------------------------------------------------------------------- */

/* If the lane's last launch was on another stream, this one comes behind all that stream was given
 * by now. */
static symmResult_t follow_launch(symm_memregion *r, symmStream_t stream) {
    if (!r->launches || r->launch_stream == stream) return symmSuccess;
    SYMM_TRY(symm_memuse_mark(r->set->comm, &r->launched, r->launch_stream));
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
    SYMM_TRY(symm_memuse_follow(p, stream));
    /* A graph of explicit nodes has no barrier inside, so one is put in front of it. */
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
    symm_memuse_launched(p, here, stream);
    for (int i = 0; i < p->nfrees; i++) {
        symm_memplan *o = p->frees[i].plan;
        symm_memblock *b = &o->blocks[p->frees[i].block];
        if (b->live) o->nlive--;
        b->live = 0;
        symm_unbound_freed(o, b);
        symm_memplan_settle(o); /* may hold nothing now; stays, because this plan refers to it */
    }
    p->nlive = 0;
    for (int i = 0; i < p->nblocks; i++) {
        p->blocks[i].live = !p->blocks[i].freed;
        p->nlive += p->blocks[i].live;
    }
    p->launches++;
    SYMM_CHECK(symm_memplan_check(p));
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
    SYMM_TRY(symm_memuse_reserve(p));
    SYMM_TRY(start(p, exec, stream));
    symm_memuse_followed(p);
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
    if (p->alias && !exec) return symmSuccess; /* only maps */
    if (!exec) return SYMM_ERR(symmInvalidArgument, "symmMemPlanUpload: exec is NULL");
    if (!p->set->comm->cuda && symm_graph_tells(exec, NULL, &symm_memplan_graph_user) < 0)
        return SYMM_ERR(symmInvalidArgument,
                        "symmMemPlanUpload: exec=%p is not a live executable of a host graph",
                        (void *)exec);
    return symmSuccess;
}

static symmResult_t upload_exec(const symm_comm *c, symmGraphExec_t exec, symmStream_t stream) {
    symm_cuda_scope scope;
    if (!c->cuda || !exec) return symmSuccess;
    SYMM_TRY(symm_gpu_enter(c, &scope));
    cu_result cu = symm_cu.cuGraphUpload((cu_graph_exec)(void *)exec, symm_gpu_stream(stream));
    symm_gpu_leave(&scope);
    return symm_cuda_error(cu, "uploading graph %p", (void *)exec);
}

/* If something is to be mapped, a rank with a bad argument takes part too. */
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
    if (!p) return symm_group_refuse(upload_job(&a)); /* this returns the error */
    if (!p->alias) return upload_job(&a);
    return symm_group_run(p->set->comm->handle, SYMM_JOB_BLOCKS, upload_job, &a, sizeof a);
}
