/* dev_host.c - kernels of the program on the host backend (symm_device_host.h): how their threads
 * begin and end, wait, and move data. The rest is in the header, inline. Any thread of the rank, as
 * many as there are indices; no lock. A thread that has begun holds the memory of the device
 * communicator, and the end of the communicator waits for it. */
#include "symm_device_host.h"

#include "base/check.h"
#include "base/handle.h"
#include "device/common/signals.h"
#include "device/host/reduce.h"
#include "host/coll/plan.h"
#include "host/comm/comm.h"
#include "host/heap/heap_int.h"
#include "host/launch/launch.h"

/* How the library numbers what a kernel waits for, in revoke.c. */
_Static_assert(SYMM_HOST_BARRIER == 0 && SYMM_HOST_SIGNAL == 1 && SYMM_HOST_PACKET == 2,
               "as symm_device.cuh does");
_Static_assert((int)SYMM_OP_SUM == (int)symmSum && (int)SYMM_OP_AVG == (int)symmAvg,
               "reductions have their public numbers");

/* ---- beginning and ending -------------------------------------------------------------------- */

static const symm_comm *comm_of(const symmHostCta_t *cta) {
    const symm_heap *h = cta->inside;
    SYMM_ASSERT(h && h->kind == SYMM_KIND_DEVCOMM);
    return h->comm;
}

/* Of one index, in the resource memory of this rank: symmHostCta_t's `kept`. */
static uint64_t *kept_of(const symmDevComm_t *d, int index) {
    return (uint64_t *)(void *)symm_hk_line(d, d->rank, 0, (uint32_t)index);
}

/* Pairs with give_index: a thread that comes later finds the counts of the one before. */
static symmResult_t take_index(const symmDevComm_t *d, int index) {
    uint64_t none = 0;
    if (index < 0 || __atomic_compare_exchange_n(&kept_of(d, index)[2], &none, 1, 0,
                                                 __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
        return symmSuccess;
    return SYMM_ERR(symmInvalidUsage,
                    "index=%d: another thread of rank %d is in a kernel with it (or returned "
                    "without symmHostCtaEnd)",
                    index, d->rank);
}
static void give_index(const symmHostCta_t *cta) {
    if (cta->index >= 0) __atomic_store_n(&cta->kept[2], 0, __ATOMIC_RELEASE);
}

static symmResult_t check_begin(const symmDevComm_t *d, int index, const symm_comm *c) {
    if (c->cuda)
        return SYMM_ERR(symmNotSupported,
                        "symmHostCtaBegin: devComm belongs to communicator %s, whose kernels run "
                        "on GPUs",
                        c->name);
    if (index < -1 || index >= d->barriers)
        return SYMM_ERR(symmInvalidArgument,
                        "symmHostCtaBegin: index=%d: must be below barriers=%d of the requirements "
                        "(-1: none)",
                        index, d->barriers);
    return symmSuccess;
}

symmResult_t symmHostCtaBegin(const symmDevComm_t *devComm, int index, symmHostCta_t *cta) {
    symm_heap *h;
    if (!devComm || !cta)
        return SYMM_ERR(symmInvalidArgument, "symmHostCtaBegin: %s is NULL",
                        devComm ? "cta" : "devComm");
    *cta = (symmHostCta_t){.dev = devComm, .index = -1, .over = 1}; /* until it has begun */
    if (!(h = symm_handle_get(SYMM_KIND_DEVCOMM, devComm->handle)))
        return SYMM_ERR(symmInvalidArgument,
                        "symmHostCtaBegin: devComm=%p is not a live device communicator (ended "
                        "already?)",
                        (const void *)devComm);
    symmResult_t r = check_begin(devComm, index, h->comm);
    if (!r) r = symm_launch_begins(h->comm);
    if (!r && (r = take_index(devComm, index))) symm_launch_ended(h->comm);
    if (r) {
        symm_heap_unpin(h);
        return r;
    }
    SYMM_ASSERT(devComm->rank == h->comm->rank && devComm->serial == h->id);
    *cta = (symmHostCta_t){.dev = devComm, .inside = h, .index = index};
    if (index >= 0) {
        cta->kept = kept_of(devComm, index);
        cta->barrier = cta->kept[0];
        cta->session = cta->kept[1];
    }
    return symmSuccess;
}

symmResult_t symmHostCtaEnd(symmHostCta_t *cta) {
    if (!cta || !cta->inside)
        return SYMM_ERR(symmInvalidArgument,
                        "symmHostCtaEnd: cta=%p has not begun, or has ended already", (void *)cta);
    symm_heap *h = cta->inside;
    symm_comm *c = h->comm;
    const symmResult_t r = cta->over ? symm_comm_told(c) : symmSuccess;
    SYMM_ASSERT(!cta->over || r);
    give_index(cta);
    cta->inside = NULL;
    cta->over = 1;
    symm_heap_unpin(h); /* it may be the last reference; the communicator lives until `ended` */
    symm_launch_ended(c);
    return r;
}

/* ---- waiting --------------------------------------------------------------------------------- */

int symmHostCtaAwait(symmHostCta_t *cta, const uint64_t *word, uint64_t want, uint64_t ahead,
                     int peer, int what) {
    const symm_comm *c = comm_of(cta);
    SYMM_ASSERT(peer >= -1 && peer < c->nranks && !cta->over);
    cta->over = symm_program_wait(&c->calls.proto, word, want, ahead, peer, (uint32_t)what);
    return cta->over;
}

void symmHostCtaMisused(symmHostCta_t *cta, int what) {
    const symm_comm *c = comm_of(cta);
    symm_outcome out = {.code = symmInvalidUsage, .rank = c->rank};
    SYMM_ASSERT(!cta->over);
    symm_program_over(&c->calls.proto, &out, (uint32_t)what);
    cta->over = 1;
}

/* ---- data ------------------------------------------------------------------------------------ */

void symmHostCopy(const symmHostCta_t *cta, void *to, const void *from, size_t bytes) {
    if (!cta->inside || cta->over || to == from || !bytes) return;
    /* copy_nt ends with the fence that orders it before a later release */
    if (symm_plan_past_caches(2 * (uint64_t)bytes, comm_of(cta)->calls.keeps))
        symm_reduce->copy_nt(to, from, bytes);
    else
        symm_reduce->copy(to, from, bytes);
}

symmResult_t symmHostPut(const symmHostCta_t *cta, const symmDevWindow_t *window, int peer,
                         uint64_t offset, const void *data, size_t bytes) {
    if (!cta->inside || !symm_hk_is_rank(cta->dev, peer) || offset > window->bytes ||
        bytes > window->bytes - offset)
        return SYMM_ERR(symmInvalidArgument,
                        "symmHostPut: peer=%d, offset=%llu, bytes=%zu: the window has %llu bytes",
                        peer, (unsigned long long)offset, bytes, (unsigned long long)window->bytes);
    if (bytes && !cta->over)
        symmHostCopy(cta, symmHostPeerPtr(cta->dev, window, peer, offset), data, bytes);
    return symmSuccess;
}

symmResult_t symmHostLoadReduce(const symmHostCta_t *cta, const symmDevWindow_t *window,
                                uint64_t offset, size_t count, symmDataType_t datatype,
                                symmRedOp_t op, void *to) {
    const void *parts[SYMM_MAX_RANKS];
    const size_t size = symm_type_size((unsigned)datatype);
    if (!cta->inside)
        return SYMM_ERR(symmInvalidArgument, "symmHostLoadReduce: cta=%p has not begun",
                        (const void *)cta);
    if (!size)
        return SYMM_ERR(symmInvalidArgument, "symmHostLoadReduce: datatype=%d: must be 0 to %d",
                        (int)datatype, symmNumTypes - 1);
    if ((unsigned)op > SYMM_OP_AVG)
        return SYMM_ERR(symmInvalidArgument,
                        "symmHostLoadReduce: op=%d: must be symmSum, symmProd, symmMax, symmMin or "
                        "symmAvg",
                        (int)op);
    if (offset > window->bytes || count > (window->bytes - offset) / size)
        return SYMM_ERR(symmInvalidArgument,
                        "symmHostLoadReduce: offset=%llu, count=%zu: the window has %llu bytes",
                        (unsigned long long)offset, count, (unsigned long long)window->bytes);
    if (!count || cta->over) return symmSuccess;
    SYMM_ASSERT(cta->dev->nranks <= SYMM_MAX_RANKS);
    for (int p = 0; p < cta->dev->nranks; p++)
        parts[p] = symmHostPeerPtr(cta->dev, window, p, offset);
    symm_reduce->reduce[datatype][op](to, parts, cta->dev->nranks, count, NULL);
    return symmSuccess;
}
