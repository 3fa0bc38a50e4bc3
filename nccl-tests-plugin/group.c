/* group.c - groups: symm's, and what is to be done behind them (handles that programs see are
 * filled then). Per thread; no lock. */
#include <stdlib.h>

#include "plugin.h"

typedef struct after {
    struct after *next;
    nccl_after fn;
    void *record, *out;
} after;

static _Thread_local struct {
    int depth;
    int real; /* the real NCCL's group is open: calls of forwarded communicators stand in it */
    ncclResult_t refused, late; /* late: of what was done behind it */
    after *first, **last;
    after *room; /* for the next one */
} group;

int symm_nccl_group_open(void) {
    return group.depth > 0;
}

ncclResult_t symm_nccl_after_room(void) {
    if (!group.depth || group.room) return ncclSuccess;
    group.room = malloc(sizeof *group.room);
    if (group.room) return ncclSuccess;
    return symm_nccl_group_refuse(
        symm_nccl_fail(ncclSystemError, "no memory for a call in a group"));
}

ncclResult_t symm_nccl_after(nccl_after fn, void *record, void *out, symmResult_t now) {
    if (group.depth && now == symmSuccess) {
        after *a = group.room;
        *a = (after){NULL, fn, record, out};
        group.room = NULL;
        *group.last = a;
        group.last = &a->next;
        return ncclSuccess;
    }
    const ncclResult_t r = nccl_of(now); /* the text, before fn makes other calls */
    fn(record, out, r);
    return r;
}

int symm_nccl_after_has(nccl_after fn, const void *record) {
    const after *a = group.depth ? group.first : NULL;
    while (a && (a->fn != fn || a->record != record)) a = a->next;
    return a != NULL;
}

void symm_nccl_after_failed(ncclResult_t code) {
    if (!group.late) group.late = code;
}

/* A call on no communicator is refused by symm, which then runs none of the group. */
ncclResult_t symm_nccl_group_refuse(ncclResult_t code) {
    if (!group.depth || group.refused) return code;
    group.refused = code;
    symmBarrier(NULL, NULL);
    return code;
}

ncclResult_t ncclGroupStart(void) {
    if (!group.depth) {
        group.refused = ncclSuccess;
        group.real = 0;
        group.first = NULL;
        group.last = &group.first;
    }
    group.depth++;
    return nccl_of(symmGroupStart());
}
NCCL_ALIAS(ncclGroupStart);

/* ---- the real NCCL's ------------------------------------------------------------------------- */

void symm_nccl_group_real(const nccl_calls *real) {
    if (LIKELY(!group.depth) || group.real || !real->ncclGroupStart || !real->ncclGroupEnd) return;
    group.real = real->ncclGroupStart() == ncclSuccess;
}

/* NCCL ends a group without running it if a call in it was refused: one of no communicator is. */
static void spoil(const nccl_calls *real) {
    if (real->ncclAllReduce) real->ncclAllReduce(NULL, NULL, 0, ncclInt8, ncclSum, NULL, NULL);
}

/* Behind the native calls, which all ranks run first. code: what came of them. info: that of a
 * simulation; NULL: it runs. */
static ncclResult_t end_real(ncclResult_t code, ncclSimInfo_t *info) {
    const nccl_calls *real = symm_nccl_real_calls();
    if (!group.real) return code;
    NCCL_INSIDE_REAL;
    const int runs = !code || code == ncclInProgress;
    group.real = 0;
    if (!runs) spoil(real);
    const ncclResult_t r = runs && info ? real->ncclGroupSimulateEnd(info) : real->ncclGroupEnd();
    if (!runs) return code;
    if (r && r != ncclInProgress) return symm_nccl_forward_failed("ncclGroupEnd", NULL, r);
    return r ? r : code;
}

/* Nothing of it runs, either. NULL is no simulation to NCCL, and older ones have none. */
static ncclResult_t simulate_real(ncclResult_t code, ncclSimInfo_t *info) {
    ncclSimInfo_t unseen = {sizeof unseen, NCCL_SIM_MAGIC, 22200, -1};
    if (!code && group.real && !symm_nccl_real_calls()->ncclGroupSimulateEnd)
        code =
            symm_nccl_fail(ncclInvalidUsage, "ncclGroupSimulateEnd: it goes to a real NCCL, and %s",
                           symm_nccl_real_lacks("ncclGroupSimulateEnd"));
    return end_real(code, info ? info : &unseen);
}

/* ---- the end --------------------------------------------------------------------------------- */

static ncclResult_t run_after(ncclResult_t code) {
    group.late = ncclSuccess;
    for (after *a = group.first, *next; a; a = next) {
        next = a->next;
        a->fn(a->record, a->out, code);
        free(a);
    }
    group.first = NULL;
    free(group.room);
    group.room = NULL;
    return code ? code : group.late;
}

ncclResult_t ncclGroupEnd(void) {
    const symmResult_t result = symmGroupEnd();
    if (!group.depth || --group.depth) return nccl_of(result);
    const ncclResult_t code = end_real(group.refused ? group.refused : nccl_of(result), NULL);
    return run_after(code);
}
NCCL_ALIAS(ncclGroupEnd);

static ncclResult_t check_info(const ncclSimInfo_t *info) {
    if (!info || (info->magic == NCCL_SIM_MAGIC && info->size >= sizeof *info)) return ncclSuccess;
    return symm_nccl_fail(ncclInvalidArgument,
                          "ncclGroupSimulateEnd: magic %#x, size %zu: it must be made with NCCL's "
                          "initializer",
                          info->magic, info->size);
}

/* The group ends without having run. symm estimates no times: that of a group with native calls is
 * NCCL's "undefined". */
static ncclResult_t simulate(ncclSimInfo_t *info) {
    symmGroupInfo_t plan = {.size = sizeof plan};
    const ncclResult_t bad = check_info(info);
    ncclResult_t code = group.refused ? group.refused : nccl_of(symmGroupSimulateEnd(&plan));
    if (bad) code = bad;
    symmGroupDiscard();
    group.depth = 0;
    const int mixed = group.real && plan.calls;
    if (!code && plan.calls)
        symm_nccl_say(symmLogInfo, "ncclGroupSimulateEnd: %d calls, as %d kernels: %.600s",
                      plan.calls, plan.kernels, plan.text);
    if (info && !bad) info->estimatedTime = -1;
    code = simulate_real(code, bad ? NULL : info);
    if (info && !bad && mixed) info->estimatedTime = -1;
    const ncclResult_t late = run_after(ncclSuccess);
    return code ? code : late;
}

ncclResult_t ncclGroupSimulateEnd(ncclSimInfo_t *info) {
    return group.depth == 1 ? simulate(info) : ncclGroupEnd();
}
NCCL_ALIAS(ncclGroupSimulateEnd);
