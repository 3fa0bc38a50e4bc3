/* dev_comm.c - device communicators (symm_device.h): their memory, which is a heap of its own, and
 * what kernels are told of it; windows for kernels. The communicator's user thread. No lock. */
#include "symm_device_host.h"

#include <stddef.h>
#include <stdio.h>

#include "base/check.h"
#include "base/fail.h"
#include "base/handle.h"
#include "host/comm/comm.h"
#include "host/comm/group.h"
#include "host/gpu/gpu.h"
#include "host/gpu/setup.h"
#include "host/heap/heap_int.h"
#include "host/window/multicast.h"
#include "host/window/window.h"
#include "dev_comm.h"

#define STAGE "making a device communicator"

enum {
    LINE = 128,           /* bytes of a cache line */
    MOST_BYTES = 64 << 20 /* of llBytes and of lineBytes */
};
_Static_assert(SYMM_DEV_STATE_LEFT == SYMM_STATE_LEFT, "symm_device.cuh compares with it");
_Static_assert(SYMM_DEV_STAGE == SYMM_STAGE_DEVICE, "symm_device.cuh tells it");

typedef struct {
    symmComm_t comm;
    symmDevRequirements_t need;
    int given; /* 0: requirements is NULL */
    symmDevComm_t *out;
} create_args;

typedef struct { /* what the ranks compare */
    int32_t code, barriers, signals, pad;
    uint64_t ll, line;
} terms;

/* ---- what it needs --------------------------------------------------------------------------- */

static symmResult_t check_need(const create_args *a) {
    const symmDevRequirements_t *q = &a->need;
    if (!a->out) return SYMM_ERR(symmInvalidArgument, "devComm is NULL");
    if (!a->given) return SYMM_ERR(symmInvalidArgument, "requirements is NULL");
    if (q->size != sizeof *q)
        return SYMM_ERR(symmInvalidArgument,
                        "requirements.size=%zu: start from SYMM_DEV_REQUIREMENTS_INITIALIZER",
                        q->size);
    if (q->version / 100 != SYMM_VERSION_CODE / 100)
        return SYMM_ERR(symmInvalidArgument,
                        "requirements.version=%u: must be of %d.%d, so that kernels and library "
                        "agree: compile them again",
                        q->version, SYMM_MAJOR, SYMM_MINOR);
    if (q->barriers < 0 || q->barriers > SYMM_DEV_MAX_BARRIERS)
        return SYMM_ERR(symmInvalidArgument, "requirements.barriers=%d: must be 0 to %d",
                        q->barriers, SYMM_DEV_MAX_BARRIERS);
    if (q->signals < 0 || q->signals > SYMM_DEV_MAX_SIGNALS)
        return SYMM_ERR(symmInvalidArgument, "requirements.signals=%d: must be 0 to %d", q->signals,
                        SYMM_DEV_MAX_SIGNALS);
    if (q->llBytes > MOST_BYTES || q->lineBytes > MOST_BYTES)
        return SYMM_ERR(
            symmInvalidArgument, "requirements.llBytes=%llu, lineBytes=%llu: must be at most %d",
            (unsigned long long)q->llBytes, (unsigned long long)q->lineBytes, MOST_BYTES);
    if ((q->llBytes || q->lineBytes) && !q->barriers)
        return SYMM_ERR(symmInvalidArgument,
                        "requirements.llBytes=%llu, lineBytes=%llu, but "
                        "barriers=0: each of them has its packets",
                        (unsigned long long)q->llBytes, (unsigned long long)q->lineBytes);
    return symmSuccess;
}

uint64_t symm_dev_comm_lay_out(const symmDevRequirements_t *q, symmDevComm_t *d) {
    const uint64_t groups = (uint64_t)q->barriers, n = (uint64_t)d->nranks;
    uint64_t at = symm_round_up(groups * SYMM_DEV_EPOCH_BYTES, LINE);
    SYMM_ASSERT(d->nranks > 0 && d->nranks <= SYMM_MAX_RANKS);
    d->barriers = q->barriers;
    d->signals = q->signals;
    d->llBytes = symm_round_up(q->llBytes, 8);
    d->lineBytes = (q->lineBytes + 479) / 480 * 480; /* a block is 480 bytes of data in 512 */
    d->lineSlot = d->lineBytes / 480 * 512;
    d->arrivedAt = at;
    at += symm_round_up(groups * n * sizeof(uint64_t), LINE);
    d->signalAt = at;
    at += symm_round_up((uint64_t)q->signals * sizeof(uint64_t), LINE);
    d->llAt = at;
    at += groups * 2 * n * d->llBytes * 2;
    at = symm_round_up(at, LINE);
    d->lineAt = at;
    at += groups * 2 * n * d->lineSlot;
    return at;
}

uint64_t symm_dev_comm_lay_out_host(const symmDevRequirements_t *q, symmDevComm_t *d) {
    const uint64_t groups = (uint64_t)q->barriers, n = (uint64_t)d->nranks;
    const uint64_t items = (q->llBytes + SYMM_HOST_PACKET_BYTES - 1) / SYMM_HOST_PACKET_BYTES;
    SYMM_ASSERT(d->nranks > 0 && d->nranks <= SYMM_MAX_RANKS);
    d->barriers = q->barriers;
    d->signals = q->signals;
    d->llBytes = items * SYMM_HOST_PACKET_BYTES;
    uint64_t lines = groups; /* counts of each index come first */
    d->arrivedAt = lines * SYMM_HOST_LINE;
    lines += groups * n;
    d->signalAt = lines * SYMM_HOST_LINE;
    lines += (uint64_t)q->signals;
    d->llAt = lines * SYMM_HOST_LINE;
    lines += groups * 2 * n * items;
    return lines * SYMM_HOST_LINE;
}

/* Every rank sees the same terms, so all return the same. */
static symmResult_t compare(const symm_comm *c, const terms *all) {
    for (int r = 1; r < c->nranks; r++) {
        const terms *a = &all[0], *b = &all[r];
        if (a->barriers == b->barriers && a->signals == b->signals && a->ll == b->ll &&
            a->line == b->line)
            continue;
        return SYMM_ERR(symmMismatch,
                        STAGE ": rank 0 requires barriers=%d, signals=%d, llBytes=%llu, "
                              "lineBytes=%llu, rank %d %d, %d, %llu, %llu",
                        a->barriers, a->signals, (unsigned long long)a->ll,
                        (unsigned long long)a->line, r, b->barriers, b->signals,
                        (unsigned long long)b->ll, (unsigned long long)b->line);
    }
    return symmSuccess;
}

/* If a rank has failed, or requires something else, all fail. */
static symmResult_t agree_terms(symm_comm *c, symmResult_t status, const symmDevRequirements_t *q) {
    terms all[SYMM_MAX_RANKS];
    const terms mine = {.code = (int32_t)status,
                        .barriers = q->barriers,
                        .signals = q->signals,
                        .ll = q->llBytes,
                        .line = q->lineBytes};
    SYMM_TRY(symm_comm_gather(c, &mine, all, sizeof mine, STAGE));
    for (int r = 0; r < c->nranks; r++)
        if (all[r].code) return symm_comm_agree(c, status, STAGE);
    return compare(c, all);
}

/* ---- making one ------------------------------------------------------------------------------ */

/* Memory may have old contents, and kernels count from zero. No peer has its kernels yet. */
static symmResult_t clear(symm_comm *c, const symm_heap *h, uint64_t bytes) {
    const int cu = c->vmm->fill(h->win.ptr, bytes, 0);
    return cu ? symm_vmm_error(c->vmm, cu, "clearing %llu bytes of a device communicator",
                               (unsigned long long)bytes)
              : symmSuccess;
}

/* What kernels on GPUs poll and write when they give up. On the host backend the library does it
 * for them, and these stay 0. */
static void tell_words(const symm_comm *c, symmDevComm_t *d) {
    d->hostBase = c->control.host_base;
    d->hostStride = SYMM_PAGE_STRIDE;
    d->abortAt = offsetof(symm_ctl, abort);
    d->leftAt = offsetof(symm_ctl, left);
    d->deathAt = offsetof(symm_ctl, death);
    d->stateAt = offsetof(symm_ctl, state);
    d->overBase = c->base + offsetof(symm_gpu_ctl, over);
    d->overStride = c->stride;
    d->farBase = c->hosts > 1 ? c->base + offsetof(symm_gpu_ctl, far) : 0;
    d->farStride = c->stride;
    SYMM_ASSERT(d->hostBase && d->abortAt < SYMM_PAGE_STRIDE && d->stateAt < SYMM_PAGE_STRIDE);
}

static void tell_addresses(const symm_comm *c, const symm_heap *h, uint64_t bytes,
                           symmDevComm_t *d) {
    char why[SYMM_MULTICAST_WHY];
    d->handle = h->handle;
    d->timeoutNs = c->calls.proto.timeout_ns;
    d->base = h->region.base;
    d->stride = h->region.stride;
    d->multicast = (uint64_t)(uintptr_t)symm_multicast_of(&h->win, 0, bytes, why, sizeof why);
    if (c->cuda) tell_words(c, d);
    d->serial = h->id;
    SYMM_ASSERT(d->base && d->stride >= bytes);
}

/* A rank that has failed, or has a bad argument, takes part all the same. */
static symmResult_t create(symm_comm *c, symmResult_t status, const create_args *a) {
    symm_heap *h;
    symmDevComm_t d = {.rank = c->rank, .nranks = c->nranks};
    symmHeapConfig_t k = SYMM_HEAP_CONFIG_INITIALIZER;
    if (!status) status = check_need(a);
    SYMM_TRY(agree_terms(c, status, &a->need));
    SYMM_ASSERT(a->out && a->need.barriers >= 0 && a->need.signals >= 0);
    const uint64_t bytes =
        c->cuda ? symm_dev_comm_lay_out(&a->need, &d) : symm_dev_comm_lay_out_host(&a->need, &d);
    if (bytes > c->room)
        return SYMM_ERR(symmOutOfMemory,
                        STAGE
                        ": it requires %llu bytes of each rank, and the window space has %llu "
                        "(SYMM_WIN_STRIDE enlarges it)",
                        (unsigned long long)bytes, (unsigned long long)c->room);
    k.chunk = k.reserve = k.symBytes = symm_heap_round(bytes ? bytes : 1, c->caps.granularity);
    k.name = "device";
    SYMM_TRY(symm_heap_create(c, symmSuccess, SYMM_KIND_DEVCOMM, 0, &k, &h));
    status = symm_comm_agree(c, clear(c, h, k.symBytes), STAGE);
    if (status) {
        symm_heap_close(c, h);
        return status;
    }
    tell_addresses(c, h, bytes ? bytes : 1, &d);
    *a->out = d;
    return symmSuccess;
}

static symmResult_t create_job(void *p) {
    const create_args *a = p;
    symm_setup s;
    SYMM_TRY(symm_setup_enter(a->comm, &s));
    return symm_setup_leave(&s, create(s.c, s.status, a));
}

symmResult_t symmDevCommCreate(symmComm_t comm, const symmDevRequirements_t *requirements,
                               symmDevComm_t *devComm) {
    create_args a = {.comm = comm, .given = requirements != NULL, .out = devComm};
    if (requirements) a.need.size = requirements->size;
    if (a.need.size == sizeof a.need) a.need = *requirements; /* else it may end before */
    return symm_comm_run(comm, create_job, &a, sizeof a);
}

/* ---- ending one ------------------------------------------------------------------------------ */

symmResult_t symmDevCommDestroy(symmComm_t comm, const symmDevComm_t *devComm) {
    symm_comm *c;
    symm_setup s;
    if (!devComm) return SYMM_ERR(symmInvalidArgument, "devComm is NULL");
    SYMM_TRY(symm_comm_enter(comm, SYMM_ENTER_ANY, &c));
    symm_heap *h = symm_handle_peek(SYMM_KIND_DEVCOMM, devComm->handle);
    symmResult_t r = symmSuccess;
    if (!h) {
        r = SYMM_ERR(symmInvalidArgument,
                     "devComm=%p is not a live device communicator (destroyed already?)",
                     (const void *)devComm);
    } else if (h->comm != c) {
        r = SYMM_ERR(symmInvalidArgument,
                     "devComm=%p belongs to communicator %s, not to communicator %s",
                     (const void *)devComm, h->comm->name, c->name);
    } else {
        symm_setup_begin(c, &s);
        symm_heap_close(c, h);
        symm_setup_end(&s);
    }
    symm_comm_leave(c);
    return r;
}

void symm_dev_comm_drain(symm_comm *c) {
    const symm_heap *h = c->heaps.newest;
    while (h && h->kind != SYMM_KIND_DEVCOMM) h = h->next;
    if (!h || !c->gpu) return;
    /* Its kernels look at the abort word in pages that are freed next. A context that is beyond use
     * runs none. */
    const cu_result cu = symm_gpu_reach_all(c);
    if (cu) symm_vmm_error(c->vmm, (int)cu, "waiting for kernels of device communicators");
}

/* ---- windows --------------------------------------------------------------------------------- */

static uint64_t part_at(const symm_win *w, int rank, uint64_t in) {
    const symm_comm *c = w->comm;
    return c->base + (uint64_t)rank * c->stride + w->off[rank] + in;
}

static symmResult_t check_parts(const symm_win *w, uint64_t in, uint64_t bytes) {
    const symm_comm *c = w->comm;
    const uint64_t base = part_at(w, 0, in);
    const uint64_t stride = c->nranks > 1 ? part_at(w, 1, in) - base : 0;
    for (int r = 0; r < c->nranks; r++)
        if (in > w->size[r] || bytes > w->size[r] - in)
            return SYMM_ERR(symmInvalidArgument,
                            "mem is %llu bytes into its window, bytes=%llu: rank %d registered "
                            "%llu bytes",
                            (unsigned long long)in, (unsigned long long)bytes, r,
                            (unsigned long long)w->size[r]);
    for (int r = 0; w->heap && r < c->nranks; r++)
        if (!symm_region_backed(&w->heap->region, r, in, bytes))
            return SYMM_ERR(symmInvalidArgument,
                            "mem is %llu bytes into its heap: rank %d has no memory for bytes=%llu "
                            "there",
                            (unsigned long long)in, r, (unsigned long long)bytes);
    for (int r = 2; r < c->nranks; r++)
        if (part_at(w, r, in) != base + (uint64_t)r * stride)
            return SYMM_ERR(symmNotSupported,
                            "one base and stride cannot lead to all ranks' parts, because that of "
                            "rank %d lies elsewhere: take memory of a heap",
                            r);
    return symmSuccess;
}

static symmResult_t get_window(symm_comm *c, const void *mem, size_t bytes, symmDevWindow_t *out) {
    char why[SYMM_MULTICAST_WHY];
    if (!out || !mem || !bytes)
        return SYMM_ERR(symmInvalidArgument, "%s is %s",
                        !out   ? "window"
                        : !mem ? "mem"
                               : "bytes",
                        out && mem ? "0" : "NULL");
    const symm_win *w = symm_window_at(c, mem, bytes);
    if (!w) {
        symm_window_why(c, "mem", mem, bytes, why, sizeof why);
        return SYMM_ERR(symmInvalidArgument, "%s", why);
    }
    const uint64_t in = (uint64_t)((const char *)mem - w->ptr);
    SYMM_ASSERT(w->comm == c && in < w->bytes && bytes <= w->bytes - in);
    SYMM_TRY(check_parts(w, in, bytes));
    *out = (symmDevWindow_t){
        .base = part_at(w, 0, in),
        .stride = c->nranks > 1 ? part_at(w, 1, in) - part_at(w, 0, in) : 0,
        .own = (uint64_t)(uintptr_t)mem,
        .bytes = bytes,
        .multicast = (uint64_t)(uintptr_t)symm_multicast_of(w, in, bytes, why, sizeof why)};
    return symmSuccess;
}

symmResult_t symmDevWindowGet(symmComm_t comm, const void *mem, size_t bytes,
                              symmDevWindow_t *window) {
    symm_comm *c;
    SYMM_TRY(symm_comm_enter(comm, SYMM_ENTER_ANY, &c));
    const symmResult_t r = get_window(c, mem, bytes, window);
    symm_comm_leave(c);
    return r;
}
