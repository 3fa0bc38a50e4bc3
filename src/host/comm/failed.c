/* failed.c - who is gone: symmCommFailedRanks, and texts that name all of them. Any thread; the
 * agreed form runs on the communicator's user thread. No lock. */
#include "failed.h"

#include <stdio.h>
#include <string.h>

#include "base/handle.h"
#include "base/log.h"
#include "comm.h"
#include "driver.h"
#include "group.h"

#define LONG_NS 1000000000ull

void symm_failed_see(const symm_comm *c, symm_ranks *gone) {
    *gone = (symm_ranks){{0}};
    /* Acquire pairs with the release in symm_comm_build: the mesh is there, and stays until the
     * end. */
    if (atomic_load_explicit(&c->entry.state, memory_order_acquire) != SYMM_COMM_LIVE ||
        !__atomic_load_n(&c->ctl, __ATOMIC_ACQUIRE)) /* pairs with the release in comm_make.c */
        return;
    symm_survive_gone(c->mesh, gone);
    const int told = symm_comm_dead(c);
    if (told >= 0 && told < c->nranks && told != c->rank) symm_ranks_add(gone, told);
}

void symm_failed_name_all(const symm_comm *c) {
    char who[160], text[SYMM_ERR_TEXT];
    symm_ranks gone;
    symm_failed_see(c, &gone);
    if (symm_ranks_count(&gone) < 2 || strstr(symm_status_text(), " are gone")) return;
    snprintf(text, sizeof text, "%.320s; %s are gone", symm_status_text(),
             symm_ranks_text(&gone, who, sizeof who));
    symm_status_adopt(text);
}

/* A rank that should come, and that this thread drives itself; -1 none. */
static int drives(const symm_remain *l) {
    symm_ranks gone;
    symm_failed_see(l->comm, &gone);
    for (int p = 0; p < l->comm->nranks; p++)
        if (symm_driver_same(l->comm, p) && !symm_ranks_has(&gone, p) &&
            !(l->out && symm_ranks_has(l->out, p)))
            return p;
    return -1;
}

symmResult_t symm_failed_check(void *arg) {
    const symm_remain *l = arg;
    symm_comm *c = l->comm;
    if (atomic_load(&c->entry.aborting)) return symm_comm_async(c);
    if (!c->exchange.wait_ns || symm_now_ns() - c->exchange.wait_ns < LONG_NS) return symmSuccess;
    c->exchange.wait_ns = 0; /* once a wait */
    symm_driver_warn(c, drives(l));
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
        symm_failed_see(c, &gone);
        tell(a, &gone, c->nranks);
    }
    symm_comm_unvisit(c);
    return made ? symmSuccess : symmInProgress;
}

symmResult_t symmCommFailedRanks(symmComm_t comm, unsigned flags, int *ranks, int cap, int *count) {
    failed_args a = {comm, cap, ranks, count};
    if (flags != SYMM_FAILED_LOCAL && flags != SYMM_FAILED_AGREE)
        return SYMM_ERR(symmInvalidArgument,
                        "flags=%u: must be SYMM_FAILED_LOCAL or SYMM_FAILED_AGREE", flags);
    if (flags == SYMM_FAILED_LOCAL) return look(&a);
    return symm_group_run(comm, SYMM_JOB_BLOCKS, agree, &a, sizeof a);
}
