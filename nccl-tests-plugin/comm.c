/* comm.c - the table of communicators that programs hold handles of, and questions about them. Any
 * thread. Lock: guards which records are free, and the lists that hang on a record. */
#include <pthread.h>
#include <string.h>

#include "plugin.h"

#define MAGIC 0x6c63636e6d6d7973ull /* "symmnccl" */

nccl_comm symm_nccl_comms[NCCL_MAX_COMMS];

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned fresh;                 /* records that were never used begin here */
static uint32_t freed[NCCL_MAX_COMMS]; /* a ring: who was freed first is used again first */
static unsigned freed_first, freed_count;

void symm_nccl_lock(void) {
    pthread_mutex_lock(&lock);
}

void symm_nccl_unlock(void) {
    pthread_mutex_unlock(&lock);
}

/* A record is used again only when all others were, so that a stale handle stays one for long. */
static nccl_comm *take_free(void) {
    if (fresh < NCCL_MAX_COMMS) return &symm_nccl_comms[fresh++];
    if (!freed_count) return NULL;
    nccl_comm *c = &symm_nccl_comms[freed[freed_first]];
    freed_first = (freed_first + 1) % NCCL_MAX_COMMS;
    freed_count--;
    return c;
}

nccl_comm *symm_nccl_comm_new(void) {
    symm_nccl_lock();
    nccl_comm *c = take_free();
    symm_nccl_unlock();
    if (!c) {
        symm_nccl_fail(ncclSystemError, "there are %d communicators: no more can be made",
                       NCCL_MAX_COMMS);
        return NULL;
    }
    c->magic = MAGIC;
    c->comm = NULL;
    c->registered = NULL;
    c->real = NULL;
    c->making = NULL;
    c->reads_windows = 0;
    c->over = c->behind = 0;
    atomic_store_explicit(&c->stuck, 0, memory_order_relaxed);
    atomic_store_explicit(&c->refuses, 0, memory_order_relaxed);
    atomic_store_explicit(&c->state, COMM_MAKING, memory_order_relaxed);
    return c;
}

void symm_nccl_comm_live(nccl_comm *c) {
    int making = COMM_MAKING; /* else it is forwarded, as the ranks have settled behind the call */
    /* Release: pairs with nccl_comm_state. */
    atomic_compare_exchange_strong_explicit(&c->state, &making, COMM_LIVE, memory_order_release,
                                            memory_order_relaxed);
}

int symm_nccl_comm_end(nccl_comm *c) {
    int state = atomic_load_explicit(&c->state, memory_order_relaxed);
    while (state == COMM_LIVE || state == COMM_FINAL || state == COMM_FORWARDED)
        if (atomic_compare_exchange_weak(&c->state, &state, COMM_ENDING)) return state;
    return 0;
}

void symm_nccl_comm_free(nccl_comm *c) {
    if (c->making) symm_nccl_making_end(c->making, 1);
    if (c->over) symm_nccl_shadow_end(c, 1); /* of one that was not made, or not to the end */
    atomic_store_explicit(&c->state, COMM_FREE, memory_order_release);
    symm_nccl_lock();
    freed[(freed_first + freed_count++) % NCCL_MAX_COMMS] = (uint32_t)(c - symm_nccl_comms);
    symm_nccl_unlock();
}

/* Seen ready once, it is not asked again before another one is made from it. */
int symm_nccl_comm_in_progress(nccl_comm *c) {
    symmResult_t now = symmSuccess;
    if (symmCommGetAsyncError(c->comm, &now) == symmSuccess && now == symmInProgress) return 1;
    atomic_fetch_and_explicit(&c->refuses, (unsigned char)~COMM_UNREADY, memory_order_relaxed);
    return 0;
}

ncclResult_t symm_nccl_comm_done(const char *call, symmResult_t r) {
    return r == symmInProgress ? symm_nccl_group_refuse(symm_nccl_unready(call))
                               : symm_nccl_result(r);
}

ncclResult_t symm_nccl_comm_refusal(nccl_comm *c, const char *call) {
    if (nccl_comm_unready(c)) return symm_nccl_group_refuse(symm_nccl_unready(call));
    if (!(nccl_comm_refuses(c) & COMM_REVOKED)) return ncclSuccess;
    return symm_nccl_group_refuse(
        symm_nccl_fail(ncclInvalidUsage, "%s: the communicator was revoked", call));
}

static ncclResult_t wrong(ncclComm_t comm, const char *call) {
    switch (comm ? nccl_comm_state(comm) : COMM_FREE) {
    case COMM_MAKING:
        return symm_nccl_fail(ncclInvalidUsage,
                              "%s: the communicator is made by a group that has not ended", call);
    case COMM_FINAL:
        return symm_nccl_fail(ncclInvalidUsage, "%s: the communicator was finalized", call);
    case COMM_FORWARDED:
    case COMM_LIVE: /* another thread has just made it */
    case COMM_ENDING:
        return symm_nccl_fail(ncclInvalidUsage, "%s: another thread ends the communicator", call);
    default:
        if (!comm) return symm_nccl_null(call, "comm");
        return symm_nccl_fail(ncclInvalidArgument, "%s: %p is no communicator of symm, or it ended",
                              call, (void *)comm);
    }
}

ncclResult_t symm_nccl_comm_none(ncclComm_t comm, const char *call) {
    return symm_nccl_group_refuse(wrong(comm, call));
}

ncclResult_t symm_nccl_comm_find(ncclComm_t comm, const char *call, nccl_comm **out) {
    const int state = nccl_comm_state(comm);
    if (state != COMM_LIVE && state != COMM_FINAL) return wrong(comm, call);
    *out = (nccl_comm *)(void *)comm;
    return ncclSuccess;
}

ncclResult_t symm_nccl_comm_find_any(ncclComm_t comm, const char *call, nccl_comm **out) {
    const int state = nccl_comm_state(comm); /* once: it may change in between */
    if (state != COMM_LIVE && state != COMM_FINAL && state != COMM_FORWARDED)
        return wrong(comm, call);
    *out = (nccl_comm *)(void *)comm;
    return ncclSuccess;
}
