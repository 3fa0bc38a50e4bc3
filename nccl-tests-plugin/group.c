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
    ncclResult_t refused;
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
    fn(record, out, now);
    return r;
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
        group.first = NULL;
        group.last = &group.first;
    }
    group.depth++;
    return nccl_of(symmGroupStart());
}
NCCL_ALIAS(ncclGroupStart);

static void run_after(symmResult_t result) {
    for (after *a = group.first, *next; a; a = next) {
        next = a->next;
        a->fn(a->record, a->out, result);
        free(a);
    }
    group.first = NULL;
    free(group.room);
    group.room = NULL;
}

ncclResult_t ncclGroupEnd(void) {
    const symmResult_t result = symmGroupEnd();
    if (!group.depth || --group.depth) return nccl_of(result);
    const ncclResult_t code = group.refused ? group.refused : nccl_of(result);
    run_after(result);
    return code;
}
NCCL_ALIAS(ncclGroupEnd);

/* The group ends without having run. There is no estimate to give. */
ncclResult_t ncclGroupSimulateEnd(ncclSimInfo_t *info) {
    (void)info;
    if (!group.depth) return nccl_of(symmGroupEnd());
    symm_nccl_shapes_refused();
    const ncclResult_t code = symm_nccl_group_refuse(
        symm_nccl_fail(ncclInvalidUsage, "ncclGroupSimulateEnd: symm estimates no times; the group "
                                         "has ended and none of its calls has run"));
    ncclGroupEnd();
    return code;
}
NCCL_ALIAS(ncclGroupSimulateEnd);
