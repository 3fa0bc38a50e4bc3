/* comm_query.c - what a program asks of a communicator. Any thread: each call is a visit. */
#include <stdio.h>

#include "base/sized.h"
#include "host/comm/comm.h"
#include "host/comm/outer.h"
#include "host/heap/heap_int.h"
#include "host/window/multicast.h"
#include "host/window/space.h"
#include "across_end.h"
#include "comm_make.h"

symmResult_t symmCommGetAsyncError(symmComm_t comm, symmResult_t *asyncError) {
    symm_comm *c;
    if (!asyncError) return SYMM_ERR(symmInvalidArgument, "asyncError is NULL");
    if (symm_outer_is(comm)) return symm_across_async(comm, asyncError);
    SYMM_TRY(symm_comm_visit(comm, &c));
    const int goes_on = symm_comm_goes_on(c); /* before the error, which is stored before its end */
    const int making =
        atomic_load_explicit(&c->entry.state, memory_order_acquire) == SYMM_COMM_MAKING;
    symmResult_t r = symm_comm_told(c);
    if (goes_on || (making && !r)) r = symmInProgress;
    symm_comm_unvisit(c);
    *asyncError = r;
    return symmSuccess;
}

enum { COUNT, RANK, DEVICE };

static symmResult_t get_int(symmComm_t comm, int what, int *out) {
    static const char *const names[] = {"count", "rank", "device"};
    symm_comm *c;
    if (!out) return SYMM_ERR(symmInvalidArgument, "%s is NULL", names[what]);
    if (symm_outer_is(comm)) {
        symmCommInfo_t i = {.size = sizeof i};
        SYMM_TRY(symm_across_info(comm, &i));
        *out = what == COUNT ? i.nranks : what == RANK ? i.rank : i.device;
        return symmSuccess;
    }
    SYMM_TRY(symm_comm_visit_made(comm, &c));
    *out = what == COUNT ? c->nranks : what == RANK ? c->rank : c->caps.device;
    symm_comm_unvisit(c);
    return symmSuccess;
}

symmResult_t symmCommCount(symmComm_t comm, int *count) {
    return get_int(comm, COUNT, count);
}
symmResult_t symmCommUserRank(symmComm_t comm, int *rank) {
    return get_int(comm, RANK, rank);
}
symmResult_t symmCommDevice(symmComm_t comm, int *device) {
    return get_int(comm, DEVICE, device);
}

symmResult_t symmCommQuery(symmComm_t comm, symmCommInfo_t *info) {
    symm_comm *c;
    if (!symm_sized_holds(info, sizeof *info))
        return SYMM_ERR(symmInvalidArgument, "info is %s", info ? SYMM_NO_SIZE : "NULL");
    if (symm_outer_is(comm)) return symm_across_info(comm, info);
    SYMM_TRY(symm_comm_visit_made(comm, &c));
    symmCommInfo_t i = {.size = info->size,
                        .rank = c->rank,
                        .nranks = c->nranks,
                        .device = c->caps.device,
                        .domainSize = c->nranks,
                        .threadRanks = c->threads,
                        .oversubscribed = c->oversubscribed,
                        .multicast = !*symm_multicast_why(c),
                        .windows = c->windows.count,
                        .inside = symm_comm_has_other(c),
                        .base = c->base,
                        .stride = c->stride,
                        .scratchBytes = c->params.scratch};
    i.usedBytes = atomic_load_explicit(&c->windows.bytes, memory_order_relaxed);
    i.usedBytes += symm_heap_all_bytes(c);
    snprintf(i.backend, sizeof i.backend, "%s", c->vmm->name);
    snprintf(i.bootstrap, sizeof i.bootstrap, "%s", c->bootstrap ? c->bootstrap : "");
    snprintf(i.name, sizeof i.name, "%s", c->name);
    symm_comm_unvisit(c);
    symm_sized_answer(info, &i, sizeof i);
    return symmSuccess;
}

symmResult_t symmCommMemQuery(symmComm_t comm, symmCommMem_t *mem) {
    symm_comm *c;
    if (!symm_sized_holds(mem, sizeof *mem))
        return SYMM_ERR(symmInvalidArgument, "mem is %s", mem ? SYMM_NO_SIZE : "NULL");
    SYMM_TRY(symm_comm_visit_made(comm, &c));
    symmCommMem_t m = {.size = mem->size,
                       .controlBytes = SYMM_CTL_BYTES,
                       .scratchBytes = c->params.scratch,
                       .heapBytes = symm_heap_all_bytes(c)};
    m.windowBytes = atomic_load_explicit(&c->windows.bytes, memory_order_relaxed);
    m.addressBytes = symm_space_taken(c->space, &m.droppedBytes);
    symm_comm_unvisit(c);
    symm_sized_answer(mem, &m, sizeof m);
    return symmSuccess;
}
