/* vec.c - vectors: a vector is a heap of its own with one SYM block at offset 0. The communicator's
 * user thread, except ptr, size and sync (any thread). Those read the sizes that ranks publish when
 * everything is mapped, and the region under h->lock. */
#include "symm_vec.h"

#include <stdio.h>

#include "base/handle.h"
#include "base/sized.h"
#include "host/comm/comm.h"
#include "host/comm/group.h"
#include "host/gpu/setup.h"
#include "host/heap/heap_int.h"

enum { RESERVE, GROW, SHRINK };

typedef struct {
    symmComm_t comm;
    symmVecConfig_t config;
    char name[32];
    symmVec_t *vec;
} create_args;

typedef struct {
    symmVec_t vec;
    int what;
    uint64_t bytes;
    const void *site;
} change_args;

/* One block at offset 0 of SYM, as long as this rank has published; nothing in LOCAL. In calls on
 * the vector, which are the user thread's. Test builds. */
static void vec_check(symm_heap *h) {
    symm_place_stats s;
    const uint64_t size = symm_ledger_size(h->ledger, h->comm->rank);
    SYMM_ASSERT(h->kind == SYMM_KIND_VEC && size <= h->reserve);
    SYMM_ASSERT(!h->fixed || !h->left); /* it has never moved */
    symm_heap_lock(h);
    symm_place_measure(h->zone[SYMM_ZONE_SYM].place, &s);
    SYMM_ASSERT(s.blocks == (size != 0));
    SYMM_ASSERT(s.used == symm_round_up(size, SYMM_PLACE_UNIT));
    SYMM_ASSERT(s.holes <= 1 && !h->ngraph_ranges && !h->uncollected_bytes);
    SYMM_ASSERT(!h->zone[SYMM_ZONE_LOCAL].bytes);
    symm_heap_unlock(h);
}

/* ---- create and destroy ---------------------------------------------------------------------- */

static symmResult_t check_config(const create_args *a) {
    if (!a->vec) return SYMM_ERR(symmInvalidArgument, "vec is NULL");
    if (a->config.size != sizeof a->config)
        return SYMM_ERR(symmInvalidArgument,
                        "config.size=%zu: start from SYMM_VEC_CONFIG_INITIALIZER" SYMM_NEWER,
                        a->config.size);
    if (a->config.flags & ~SYMM_VEC_FIXED)
        return SYMM_ERR(symmInvalidArgument, "config.flags=%u: must be 0 or SYMM_VEC_FIXED",
                        a->config.flags);
    return symmSuccess;
}

static symmResult_t create_job(void *p) {
    create_args *a = p;
    symm_heap *h;
    symm_setup s;
    symmHeapConfig_t k = SYMM_HEAP_CONFIG_INITIALIZER;
    SYMM_TRY(symm_setup_enter(a->comm, &s));
    symmResult_t r = s.status ? s.status : check_config(a);
    const int fixed = (a->config.flags & SYMM_VEC_FIXED) != 0;
    k.reserve = a->config.max;
    k.chunk = a->config.chunk;
    k.name = a->name;
    r = symm_heap_create(s.c, r, SYMM_KIND_VEC, fixed, &k, &h);
    if (!r) *a->vec = h->handle;
    return symm_setup_leave(&s, r);
}

symmResult_t symmVecCreate(symmComm_t comm, const symmVecConfig_t *config, symmVec_t *vec) {
    create_args a = {.comm = comm, .config = SYMM_VEC_CONFIG_INITIALIZER, .vec = vec};
    if (config && symm_sized_read(&a.config, sizeof a.config, sizeof a.config, config))
        a.config.size = config->size; /* refused where the ranks compare */
    if (a.config.size == sizeof a.config && a.config.name)
        snprintf(a.name, sizeof a.name, "%s", a.config.name);
    return symm_comm_run(comm, create_job, &a, sizeof a);
}

symmResult_t symmVecDestroy(symmVec_t vec) {
    symm_heap *h;
    SYMM_TRY(symm_heap_enter_kind(SYMM_KIND_VEC, vec, 0, &h));
    symm_comm *c = h->comm;
    symm_comm_ref(c);
    symm_heap_close(c, h);
    symm_comm_leave(c);
    symm_comm_unref(c);
    return symmSuccess;
}

/* ---- reserve, grow, shrink ------------------------------------------------------------------- */

static uint64_t own_size(const symm_heap *h) {
    return symm_ledger_size(h->ledger, h->comm->rank);
}

static symmResult_t no_addresses(const symm_heap *h, uint64_t bytes) {
    return SYMM_ERR(symmOutOfMemory, "bytes=%llu: vector %s has addresses for %llu%s",
                    (unsigned long long)bytes, h->name, (unsigned long long)h->reserve,
                    h->fixed ? " and is SYMM_VEC_FIXED" : ", and the window space for no more");
}

/* These values are equal on all ranks, so all return the same. */
static symmResult_t check_room(const symm_heap *h, uint64_t bytes) {
    if (bytes <= h->reserve) return symmSuccess;
    return h->fixed || bytes > h->comm->room ? no_addresses(h, bytes) : symmSuccess;
}

/* Moves, with memory for `more` bytes behind what there is. The new range is larger by at least a
 * half, else a program that appends would move the vector each time. */
static symmResult_t move(symm_heap *h, symmResult_t status, uint64_t bytes, uint64_t more) {
    uint64_t reserve = h->reserve + h->reserve / 2;
    if (reserve > h->comm->room / 2) reserve = 0;
    if (reserve < bytes) reserve = bytes;
    return symm_heap_relocate(h, status, symm_heap_round(reserve, h->granularity), more,
                              "moving a vector");
}

static symmResult_t reserve(symm_heap *h, symmResult_t status, uint64_t bytes) {
    if (!status) status = check_room(h, bytes);
    if (bytes <= h->reserve || h->fixed || bytes > h->comm->room) return status;
    return move(h, status, bytes, 0);
}

/* If the memory is there, no rank is waited for: the digest finds one that differs. Since the first
 * growth, what the record of the size needs is reserved. */
static symmResult_t grow(symm_heap *h, symmResult_t status, const change_args *a) {
    const uint64_t have = h->zone[SYMM_ZONE_SYM].bytes, bytes = a->bytes;
    if (bytes < own_size(h))
        return SYMM_ERR(symmInvalidArgument, "bytes=%llu: vector %s has %llu (symmVecShrink)",
                        (unsigned long long)bytes, h->name, (unsigned long long)own_size(h));
    SYMM_TRY(check_room(h, bytes));
    if (!status && bytes > have) status = symm_heap_try_resize(h, bytes);
    if (bytes > h->reserve)
        SYMM_TRY(move(h, status, bytes, bytes - have));
    else if (bytes > have)
        SYMM_TRY(symm_heap_more(h, status, (symm_more){bytes - have, 0}, "growing a vector"));
    SYMM_TRY(symm_heap_resize(h, bytes, a->site));
    symm_heap_publish(h, bytes, 0);
    return symmSuccess;
}

static symmResult_t shrink(symm_heap *h, symmResult_t status, const change_args *a) {
    if (!status && a->bytes > own_size(h))
        status = SYMM_ERR(symmInvalidArgument, "bytes=%llu: vector %s has %llu (symmVecGrow)",
                          (unsigned long long)a->bytes, h->name, (unsigned long long)own_size(h));
    return symm_heap_shorten(h, status, a->bytes, a->site);
}

static symmResult_t change_job(void *p) {
    const change_args *a = p;
    symm_heap *h;
    symm_setup s;
    symmResult_t r;
    SYMM_TRY(symm_heap_enter_kind(SYMM_KIND_VEC, a->vec, 1, &h));
    symm_setup_begin(h->comm, &s);
    SYMM_CHECK(vec_check(h));
    if (a->what == RESERVE)
        r = reserve(h, s.status, a->bytes);
    else
        r = a->what == GROW ? grow(h, s.status, a) : shrink(h, s.status, a);
    SYMM_CHECK(vec_check(h));
    return symm_setup_leave(&s, r);
}

static symmResult_t change(change_args a) {
    symm_heap *h;
    symmResult_t r = symm_heap_pin_kind(SYMM_KIND_VEC, a.vec, &h);
    if (r) return symm_group_refuse(r);
    r = symm_group_run(h->comm->handle, SYMM_JOB_BLOCKS, change_job, &a, sizeof a);
    symm_heap_unpin(h);
    return r;
}

symmResult_t symmVecReserve(symmVec_t vec, size_t bytes) {
    return change((change_args){vec, RESERVE, bytes, NULL});
}
symmResult_t symmVecGrow(symmVec_t vec, size_t bytes) {
    return change((change_args){vec, GROW, bytes, __builtin_return_address(0)});
}
symmResult_t symmVecShrink(symmVec_t vec, size_t bytes) {
    return change((change_args){vec, SHRINK, bytes, __builtin_return_address(0)});
}

/* ---- questions ------------------------------------------------------------------------------- */

symmResult_t symmVecPtr(symmVec_t vec, int rank, void **ptr) {
    symm_heap *h;
    symmResult_t r = symmSuccess;
    if (!ptr) return SYMM_ERR(symmInvalidArgument, "ptr is NULL");
    SYMM_TRY(symm_heap_pin_kind(SYMM_KIND_VEC, vec, &h));
    if (rank < 0 || rank >= h->comm->nranks) {
        r = SYMM_ERR(symmInvalidArgument, "rank=%d: the communicator has ranks 0 to %d", rank,
                     h->comm->nranks - 1);
    } else {
        symm_heap_lock(h);
        *ptr = symm_region_addr(&h->region, rank, 0);
        symm_heap_unlock(h);
    }
    symm_heap_unpin(h);
    return r;
}

symmResult_t symmVecSize(symmVec_t vec, size_t *bytes) {
    symm_heap *h;
    if (!bytes) return SYMM_ERR(symmInvalidArgument, "bytes is NULL");
    SYMM_TRY(symm_heap_pin_kind(SYMM_KIND_VEC, vec, &h));
    *bytes = own_size(h);
    symm_heap_unpin(h);
    return symmSuccess;
}

symmResult_t symmVecSync(symmVec_t vec, size_t *bytes) {
    symm_heap *h;
    uint64_t least = UINT64_MAX;
    if (!bytes) return SYMM_ERR(symmInvalidArgument, "bytes is NULL");
    SYMM_TRY(symm_heap_pin_kind(SYMM_KIND_VEC, vec, &h));
    for (int r = 0; r < h->comm->nranks; r++) {
        const uint64_t size = symm_ledger_size(h->ledger, r);
        if (size < least) least = size;
    }
    symm_heap_unpin(h);
    *bytes = least;
    return symmSuccess;
}
