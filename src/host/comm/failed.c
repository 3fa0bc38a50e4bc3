/* failed.c - symmCommFailedRanks, and how ranks that are left wait for each other. The local form
 * runs in any thread, the rest in the user's. No lock. */
#include "failed.h"

#include <stdio.h>

#include "base/handle.h"
#include "base/log.h"
#include "call_log.h"
#include "comm.h"
#include "driver.h"
#include "group.h"

/* A rank that is awaited and that this thread drives itself; -1 none. */
static int drives(const symm_remain *l) {
    symm_ranks gone;
    symm_comm_gone(l->comm, &gone);
    for (int p = 0; p < l->comm->nranks; p++)
        if (symm_driver_same(l->comm, p) && !symm_ranks_has(&gone, p) &&
            !(l->out && symm_ranks_has(l->out, p)))
            return p;
    return -1;
}

/* Numbers of calls say nothing where some were captured. But who begins a collective says so to
 * this rank (signature.inl): if it is the next one here, and no stream of this rank is to run
 * another, p waits for a call that this rank has not made. */
static int waits_here(const symm_comm *c, int p, char *does, size_t cap) {
    if (!c->idle || !c->idle(c)) return 0;
    /* Never 0, over the wrap of epochs: nobody is found there. */
    const uint32_t next = __atomic_load_n(&c->ctl->epoch[0], __ATOMIC_RELAXED) + 1;
    const uint64_t *word = &c->ctl->inbox[0][p].sig[next & 1];
    snprintf(does, cap, "in a collective that rank %d has not called", c->rank);
    return (uint32_t)(__atomic_load_n(word, __ATOMIC_RELAXED) >> 32) == next;
}

/* A rank that should come, has said nothing, and has issued a collective that this rank has not.
 * That collective needs this rank, so it goes on only when this rank's call is over: no rank can
 * come before the deadline. Nobody is looked for where the communicator is over or a rank is gone,
 * as collectives end by themselves then. -1 none. */
static int elsewhere(const symm_remain *l, char *does, size_t cap) {
    const symm_comm *c = l->comm;
    symm_ranks gone;
    symm_comm_gone(c, &gone);
    if (symm_mesh_revoked(c->mesh) || symm_ranks_count(&gone) ||
        atomic_load_explicit(&c->failure.code, memory_order_relaxed))
        return -1;
    for (int p = 0; p < c->nranks; p++)
        if (p != c->rank && !(l->out && symm_ranks_has(l->out, p)) &&
            !symm_survive_came(c->mesh, p) &&
            (symm_call_log_ahead(c, p, does, cap) || waits_here(c, p, does, cap)))
            return p;
    return -1;
}

/* A program whose ranks order this call and a collective on a stream differently may get through,
 * so it is given a while. */
static symmResult_t look_elsewhere(const symm_remain *l) {
    symm_comm *c = l->comm;
    char does[160];
    const int p = elsewhere(l, does, sizeof does);
    const uint64_t now = symm_now_ns();
    if (p < 0 || !c->exchange.astray_ns) c->exchange.astray_ns = p < 0 ? 0 : now;
    if (p < 0 || now - c->exchange.astray_ns < SYMM_ASTRAY_NS) return symmSuccess;
    return SYMM_ERR(symmMismatch, SYMM_CALL_LOG_DIFFERENT ": rank %d: %s; rank %d: %s", c->rank,
                    l->out ? "symmCommShrink" : "symmCommFailedRanks", p, does);
}

symmResult_t symm_failed_check(void *arg) {
    const symm_remain *l = arg;
    symm_comm *c = l->comm;
    if (atomic_load(&c->entry.aborting)) return symm_comm_async(c);
    SYMM_TRY(look_elsewhere(l));
    if (symm_comm_waits_long(c)) symm_driver_warn(c, drives(l));
    return symmSuccess;
}

void symm_failed_explain(const symm_remain *l) {
    symm_driver_explain(l->comm, drives(l));
}

typedef struct {
    symmComm_t comm;
    int cap, *ranks, *count;
} failed_args;

static symmResult_t check_args(const failed_args *a) {
    if (!a->count) return SYMM_ERR(symmInvalidArgument, "count is NULL");
    if (a->cap < 0) return SYMM_ERR(symmInvalidArgument, "cap=%d: must not be negative", a->cap);
    if (a->cap && !a->ranks) return SYMM_ERR(symmInvalidArgument, "ranks is NULL, cap=%d", a->cap);
    return symmSuccess;
}

static void tell(const failed_args *a, const symm_ranks *gone, int nranks) {
    int n = 0;
    for (int r = 0; r < nranks; r++) {
        if (!symm_ranks_has(gone, r)) continue;
        if (n < a->cap) a->ranks[n] = r;
        n++;
    }
    *a->count = n;
}

static symmResult_t agree(void *p) {
    const failed_args *a = p;
    symm_comm *c;
    uint32_t call;
    symm_ranks gone;
    SYMM_TRY(symm_comm_enter(a->comm, 0, &c));
    symmResult_t r;
    if (!c->ctl) {
        r = SYMM_ERR(symmInvalidUsage, "communicator %s was never made", c->name);
    } else {
        symm_wait w = symm_comm_wait(c, "agreeing on who is gone");
        symm_remain left = {c, NULL};
        w.check = symm_failed_check;
        w.arg = &left;
        r = symm_survive(c->mesh, SYMM_SURVIVE_ASK, check_args(a), &gone, &call, &w);
        if (r == symmTimeout) symm_failed_explain(&left);
    }
    if (!r) tell(a, &gone, c->nranks);
    symm_comm_leave(c);
    return r;
}

static symmResult_t look(const failed_args *a) {
    symm_ranks gone;
    SYMM_TRY(check_args(a));
    symm_comm *c;
    SYMM_TRY(symm_comm_visit(a->comm, &c)); /* its end waits: the mesh is read */
    const int made =
        atomic_load_explicit(&c->entry.state, memory_order_acquire) != SYMM_COMM_MAKING;
    if (made) {
        symm_comm_gone(c, &gone);
        tell(a, &gone, c->nranks);
    }
    symm_comm_unvisit(c);
    return made ? symmSuccess : symmInProgress;
}

symmResult_t symmCommFailedRanks(symmComm_t comm, unsigned flags, int *ranks, int cap, int *count) {
    failed_args a = {comm, cap, ranks, count};
    if (flags != SYMM_FAILED_LOCAL && flags != SYMM_FAILED_AGREE)
        return symm_group_refuse(
            SYMM_ERR(symmInvalidArgument,
                     "flags=%u: must be SYMM_FAILED_LOCAL or SYMM_FAILED_AGREE", flags));
    if (flags == SYMM_FAILED_LOCAL) return look(&a);
    return symm_comm_run(comm, agree, &a, sizeof a);
}
