/* heap.c - how heaps come, are found and go. The communicator's user thread, except references and
 * symm_heap_of (any thread). Lock: table_lock guards the process's table of heaps; inside it
 * references are taken, nothing else. */
#include "heap_int.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/fail.h"
#include "base/handle.h"
#include "base/log.h"
#include "base/stats.h"
#include "host/comm/comm.h"
#include "host/comm/group.h"
#include "host/gpu/gpu.h"
#include "host/window/space.h"

#define CHUNK_DEFAULT (64ull << 20)

static pthread_mutex_t table_lock = PTHREAD_MUTEX_INITIALIZER;
static symm_heap *table;

/* Held for one placement, so whoever has it goes on at once, unless it was interrupted: then this
 * thread makes way, and sleeps in the end, for the other one may be of less importance to the
 * system. */
void symm_heap_wait(symm_heap *h) {
    const struct timespec moment = {0, 50000};
    int tries = 0;
    do {
        while (atomic_load_explicit(&h->lock, memory_order_relaxed))
            if (tries++ < 1000)
                sched_yield();
            else
                nanosleep(&moment, NULL);
    } while (atomic_exchange_explicit(&h->lock, 1, memory_order_acquire));
}

/* ---- life ------------------------------------------------------------------------------------ */

void symm_heap_ref(symm_heap *h) {
    atomic_fetch_add_explicit(&h->refs, 1, memory_order_relaxed);
}

static void free_zone(symm_zone *z) {
    if (z->place) symm_place_end(z->place);
    free(z->chunks);
}

/* As comm.c's: the rank's own thread may have looked up the handle, and holds no reference on its
 * way into the communicator, which refuses it. */
static void keep_aborted(symm_heap *h) {
    static _Atomic(symm_heap *) aborted;
    h->next_all = atomic_load_explicit(&aborted, memory_order_relaxed);
    /* Nobody takes one out; the list is there so that checkers of leaks find them. */
    while (!atomic_compare_exchange_weak_explicit(&aborted, &h->next_all, h, memory_order_release,
                                                  memory_order_relaxed))
        ;
}

static void free_record(symm_heap *h) {
    for (int i = 0; i < SYMM_ZONES; i++) free_zone(&h->zone[i]);
    free(h->win.off);
    free(h->win.size);
    free(h->tracts);
    SYMM_STAT_ADD(heaps, -1);
    if (symm_comm_is_aborted(h->comm))
        keep_aborted(h);
    else
        free(h);
}

static void drop_left(symm_heap *h) {
    while (h->left) {
        symm_left *left = h->left;
        h->left = left->next;
        symm_region_close(&left->region);
        free(left);
    }
}

/* Thread ranks unmap here, when they are the last; that acts on the device which is current. */
static void close_regions(symm_heap *h) {
    symm_cuda_scope scope;
    const symmResult_t inside = symm_gpu_push(h->comm, &scope);
    drop_left(h);
    symm_region_close(&h->region);
    if (!inside) symm_gpu_pop(h->comm, &scope);
}

void symm_heap_unref(symm_heap *h) {
    /* Acquire and release: the one who frees it comes after everyone's last use. */
    if (atomic_fetch_sub_explicit(&h->refs, 1, memory_order_acq_rel) != 1) return;
    symm_comm *c = h->comm;
    symm_ledger_close(h->ledger);
    close_regions(h);
    free_record(h);
    symm_comm_unref(c);
}

static void handle_gone(void *obj) {
    symm_heap_unref(obj);
}

static void unlink_heap(symm_comm *c, symm_heap *h) {
    symm_heap **at = &c->heaps.newest;
    pthread_mutex_lock(&c->heaps.lock); /* for heap_window.c */
    while (*at != h) at = &(*at)->next;
    *at = h->next;
    pthread_mutex_unlock(&c->heaps.lock);
    symm_window_changed(c); /* calls that are remembered must look again */
    pthread_mutex_lock(&table_lock);
    for (at = &table; *at != h;) at = &(*at)->next_all;
    *at = h->next_all;
    pthread_mutex_unlock(&table_lock);
}

static void link_heap(symm_comm *c, symm_heap *h) {
    pthread_mutex_lock(&c->heaps.lock);
    h->next = c->heaps.newest;
    c->heaps.newest = h;
    pthread_mutex_unlock(&c->heaps.lock);
    symm_window_changed(c);
    pthread_mutex_lock(&table_lock);
    h->next_all = table;
    table = h;
    pthread_mutex_unlock(&table_lock);
}

void symm_heap_close(symm_comm *c, symm_heap *h) {
    const void *handle = h->handle;
    const int kind = h->kind;
    unlink_heap(c, h);
    if (symm_handle_close(kind, handle)) symm_handle_put(kind, handle);
}

void symm_heap_drop_all(symm_comm *c) {
    while (c->heaps.newest) symm_heap_close(c, c->heaps.newest);
}

uint64_t symm_heap_all_bytes(symm_comm *c) {
    uint64_t sum = 0;
    pthread_mutex_lock(&c->heaps.lock); /* the list's; the numbers are atomics */
    for (const symm_heap *h = c->heaps.newest; h; h = h->next)
        sum += h->zone[SYMM_ZONE_SYM].bytes + h->zone[SYMM_ZONE_LOCAL].bytes + h->apart;
    pthread_mutex_unlock(&c->heaps.lock);
    return sum;
}

/* ---- finding --------------------------------------------------------------------------------- */

void symm_heap_say_range(const symm_heap *h) {
    if (h->handle)
        symm_handle_set_range(h->kind, h->handle, h->win.ptr, h->zone[SYMM_ZONE_SYM].extent);
}

symm_heap *symm_heap_of(const void *ptr) {
    pthread_mutex_lock(&table_lock);
    symm_heap *h = table;
    while (h && symm_heap_offset(h, ptr) == SYMM_NO_OFFSET) h = h->next_all;
    if (h) symm_heap_ref(h); /* it has its handle's still: it leaves the table first */
    pthread_mutex_unlock(&table_lock);
    return h;
}

symm_comm *symm_heap_comm(const symm_heap *h) {
    return h->comm;
}

char *symm_heap_addr(const symm_heap *h, int rank, uint64_t off) {
    return symm_region_addr(&h->region, rank, off);
}

uint64_t symm_heap_offset(const symm_heap *h, const void *ptr) {
    const uint64_t in = (uint64_t)((uintptr_t)ptr - (uintptr_t)h->win.ptr);
    return in < h->reserve ? in : SYMM_NO_OFFSET;
}

uint64_t symm_heap_granularity(const symm_heap *h) {
    return h->granularity;
}

const char *symm_heap_name(const symm_heap *h) {
    return h->name;
}

int symm_heap_guarded(const symm_heap *h) {
    return h->guard;
}

static symmResult_t bad_handle(int kind, const void *handle) {
    const char *name = kind == SYMM_KIND_VEC ? "vec" : "heap";
    return SYMM_ERR(symmInvalidArgument, "%s=%p is not a living one (destroyed already?)", name,
                    handle);
}

symmResult_t symm_heap_enter_kind(int kind, const void *handle, int live, symm_heap **out) {
    symm_heap *h = symm_handle_peek(kind, handle);
    if (!h) return bad_handle(kind, handle);
    SYMM_TRY(symm_comm_enter_known(h->comm, live));
    *out = h;
    return symmSuccess;
}

symmResult_t symm_heap_enter(symmHeap_t handle, int live, symm_heap **out) {
    return symm_heap_enter_kind(SYMM_KIND_HEAP, handle, live, out);
}

void symm_heap_leave(symm_heap *h) {
    symm_comm_leave(h->comm);
}

symmResult_t symm_heap_pin_kind(int kind, const void *handle, symm_heap **out) {
    symm_heap *h = symm_handle_get(kind, handle);
    if (!h) return bad_handle(kind, handle);
    *out = h;
    return symmSuccess;
}

symmResult_t symm_heap_pin(symmHeap_t handle, symm_heap **out) {
    return symm_heap_pin_kind(SYMM_KIND_HEAP, handle, out);
}

void symm_heap_unpin(symm_heap *h) {
    symm_handle_put(h->kind, h->handle);
}

/* ---- creation -------------------------------------------------------------------------------- */

typedef struct {
    symmComm_t comm;
    symmHeapConfig_t config;
    char name[32];
    symmHeap_t *heap;
} create_args;

typedef struct { /* what the ranks compare */
    int32_t code, fit, guard, serial;
    uint64_t reserve, sym, chunk;
} terms;

static uint64_t round_up(uint64_t n, uint64_t to) {
    return (n + to - 1) / to * to;
}

static symmResult_t check_config(const symm_comm *c, const symmHeapConfig_t *k, int kind) {
    const uint64_t g = c->caps.granularity, most = c->room;
    if (k->size != sizeof *k)
        return SYMM_ERR(symmInvalidArgument,
                        "config.size=%zu: start from SYMM_HEAP_CONFIG_INITIALIZER", k->size);
    if (k->fit != SYMM_FIT_FIRST && k->fit != SYMM_FIT_BEST)
        return SYMM_ERR(symmInvalidArgument,
                        "config.fit=%d: must be SYMM_FIT_FIRST or SYMM_FIT_BEST", k->fit);
    if (k->guard != 0 && k->guard != 1)
        return SYMM_ERR(symmInvalidArgument, "config.guard=%d: must be 0 or 1", k->guard);
    if (k->chunk % g)
        return SYMM_ERR(symmInvalidArgument,
                        "config.chunk=%llu: must be a multiple of the granularity, %llu",
                        (unsigned long long)k->chunk, (unsigned long long)g);
    if (k->reserve > most || k->symBytes > most || k->localBytes > most)
        return SYMM_ERR(symmOutOfMemory,
                        "config.%s=%llu, symBytes=%llu, localBytes=%llu: the window space has "
                        "%llu bytes per rank (SYMM_WIN_STRIDE enlarges it)",
                        kind == SYMM_KIND_VEC ? "max" : "reserve", (unsigned long long)k->reserve,
                        (unsigned long long)k->symBytes, (unsigned long long)k->localBytes,
                        (unsigned long long)most);
    if (k->reserve &&
        round_up(k->symBytes, g) + round_up(k->localBytes, g) > round_up(k->reserve, g))
        return SYMM_ERR(symmInvalidArgument,
                        "config.reserve=%llu does not hold symBytes=%llu and localBytes=%llu",
                        (unsigned long long)k->reserve, (unsigned long long)k->symBytes,
                        (unsigned long long)k->localBytes);
    return symmSuccess;
}

/* The configuration as it will be used. pre: checked. */
static void settle_config(const symm_comm *c, symmHeapConfig_t *k, int kind) {
    const uint64_t g = c->caps.granularity;
    if (!k->chunk) k->chunk = round_up(CHUNK_DEFAULT, g);
    if (!k->reserve) k->reserve = c->room / 4;
    k->reserve = round_up(k->reserve, g);
    if (kind == SYMM_KIND_HEAP) k->guard |= (int)c->params.heap_guard;
}

static symmResult_t make_record(symm_comm *c, const symmHeapConfig_t *k, symm_heap **out) {
    const size_t n = (size_t)c->nranks;
    symm_heap *h = SYMM_FAIL_ALLOC(heap_record, calloc(1, sizeof *h));
    if (!h) return SYMM_ERR(symmOutOfMemory, "no memory for the record of a heap");
    SYMM_STAT_ADD(heaps, 1);
    h->comm = c;
    h->fit = k->fit;
    h->guard = k->guard;
    symm_heap_set_guest(h, NULL);
    h->reserve = k->reserve;
    h->chunk = k->chunk;
    h->granularity = c->caps.granularity;
    atomic_store(&h->refs, 1);
    h->win.off = SYMM_FAIL_ALLOC(heap_offsets, calloc(n, sizeof *h->win.off));
    h->win.size = SYMM_FAIL_ALLOC(heap_sizes, calloc(n, sizeof *h->win.size));
    for (int i = 0; i < SYMM_ZONES; i++)
        h->zone[i].place =
            SYMM_FAIL_ALLOC(heap_place, symm_place_new(k->fit == SYMM_FIT_BEST ? SYMM_PLACE_BEST
                                                                               : SYMM_PLACE_FIRST));
    if (!h->win.off || !h->win.size || !h->zone[0].place || !h->zone[1].place) {
        free_record(h);
        return SYMM_ERR(symmOutOfMemory, "no memory for the record of a heap");
    }
    h->id = c->heaps.serial;
    if (*k->name)
        snprintf(h->name, sizeof h->name, "%s", k->name);
    else
        snprintf(h->name, sizeof h->name, "%u", h->id);
    *out = h;
    return symmSuccess;
}

/* Every rank sees the same terms, so all say the same. */
static symmResult_t compare(const symm_comm *c, const terms *all) {
    for (int r = 1; r < c->nranks; r++) {
        const terms *a = &all[0], *b = &all[r];
        if (a->serial == b->serial && a->fit == b->fit && a->guard == b->guard &&
            a->reserve == b->reserve && a->sym == b->sym && a->chunk == b->chunk)
            continue;
        return SYMM_ERR(
            symmMismatch,
            "creating a heap: rank 0 has reserve=%llu, symBytes=%llu, chunk=%llu, fit=%d, guard=%d "
            "(heap %d), rank %d %llu, %llu, %llu, %d, %d (heap %d)",
            (unsigned long long)a->reserve, (unsigned long long)a->sym,
            (unsigned long long)a->chunk, a->fit, a->guard, a->serial, r,
            (unsigned long long)b->reserve, (unsigned long long)b->sym,
            (unsigned long long)b->chunk, b->fit, b->guard, b->serial);
    }
    return symmSuccess;
}

/* Which heap is meant, alike on all ranks; whose status is bad, or whose terms differ, fails
 * everybody. */
static symmResult_t agree_terms(symm_comm *c, symmResult_t status, const symmHeapConfig_t *k) {
    terms all[SYMM_MAX_RANKS];
    terms mine = {.code = (int32_t)status,
                  .fit = k->fit,
                  .guard = k->guard,
                  .serial = (int32_t)c->heaps.serial,
                  .reserve = k->reserve,
                  .sym = round_up(k->symBytes, c->caps.granularity),
                  .chunk = k->chunk};
    SYMM_TRY(symm_comm_gather(c, &mine, all, sizeof mine, "creating a heap"));
    for (int r = 0; r < c->nranks; r++)
        if (all[r].code) return symm_comm_agree(c, status, "creating a heap");
    return compare(c, all);
}

static void place_window(symm_heap *h) {
    const symm_comm *c = h->comm;
    h->win.comm = h->comm;
    h->win.heap = h;
    h->win.ptr = symm_region_addr(&h->region, c->rank, 0);
    h->win.bytes = h->reserve;
    for (int r = 0; r < c->nranks; r++) {
        h->win.off[r] = (uint64_t)(uintptr_t)symm_region_addr(&h->region, r, 0) -
                        (c->base + (uint64_t)r * c->stride);
        h->win.size[r] = h->reserve;
    }
}

void symm_heap_move(symm_heap *h, const symm_region *to, symm_left *left) {
    symm_heap_forget(h);
    *left = (symm_left){h->left, h->region};
    h->left = left;
    pthread_mutex_lock(&table_lock); /* for symm_heap_of */
    symm_heap_lock(h);               /* for symmVecPtr */
    h->region = *to;
    h->reserve = to->bytes;
    place_window(h);
    symm_heap_unlock(h);
    pthread_mutex_unlock(&table_lock);
    symm_window_changed(h->comm);
}

void symm_heap_forget(symm_heap *h) {
    if (atomic_load_explicit(&h->refs, memory_order_acquire) == 1) drop_left(h);
}

/* A rank that has failed takes part all the same: only so do all ranks return its error. */
symmResult_t symm_heap_create(symm_comm *c, symmResult_t status, int kind, symmHeapConfig_t *k,
                              symm_heap **out) {
    symm_heap *h = NULL;
    void *handle = NULL;
    c->heaps.serial++;
    if (!status) status = check_config(c, k, kind);
    if (!status) settle_config(c, k, kind);
    if (!status) status = make_record(c, k, &h);
    if (!status) status = symm_handle_new(kind, h, handle_gone, &handle);
    SYMM_TRY_GOTO(agree_terms(c, status, k), drop_record);
    SYMM_TRY_GOTO(symm_ledger_open(c, status, "creating a heap", &h->ledger), drop_record);
    SYMM_TRY_GOTO(symm_region_open(c, status, h->reserve, "creating a heap", &h->region),
                  drop_record);
    place_window(h);
    status = symm_heap_more(h, status, (symm_more){k->symBytes, k->localBytes}, "creating a heap");
    if (status) goto discard;
    h->handle = handle;
    h->kind = kind;
    symm_heap_say_range(h);
    symm_comm_ref(c);
    link_heap(c, h);
    *out = h;
    return symmSuccess;
discard:
    symm_region_discard(&h->region);
drop_record:
    if (handle) { /* nobody else has seen it: forgotten without the end that a heap has */
        symm_comm_ref(c);
        symm_handle_close(kind, handle);
        symm_handle_put(kind, handle);
    } else if (h) {
        free_record(h); /* it had no handle, so no ledger either */
    }
    return status;
}

static symmResult_t create_job(void *p) {
    create_args *a = p;
    symm_comm *c;
    symm_cuda_scope scope;
    SYMM_TRY(symm_comm_enter(a->comm, 1, &c));
    symm_log_rank(c->rank);
    if (c->cuda) symm_gpu_reap();
    const symmResult_t inside = symm_gpu_push(c, &scope);
    symmResult_t r = inside;
    symm_heap *h;
    if (!r && !a->heap) r = SYMM_ERR(symmInvalidArgument, "heap is NULL");
    a->config.name = a->name;
    r = symm_heap_create(c, r, SYMM_KIND_HEAP, &a->config, &h);
    if (!r) *a->heap = h->handle;
    if (!inside) symm_gpu_pop(c, &scope);
    symm_comm_leave(c);
    return r;
}

symmResult_t symmHeapCreate(symmComm_t comm, const symmHeapConfig_t *config, symmHeap_t *heap) {
    create_args a = {.comm = comm, .config = SYMM_HEAP_CONFIG_INITIALIZER, .heap = heap};
    if (config) a.config = *config;
    /* Inside a group it is made later. */
    if (a.config.size == sizeof a.config && a.config.name)
        snprintf(a.name, sizeof a.name, "%s", a.config.name);
    return symm_group_run(comm, SYMM_JOB_BLOCKS, create_job, &a, sizeof a);
}

symmResult_t symmHeapDestroy(symmHeap_t heap) {
    symm_heap *h;
    SYMM_TRY(symm_heap_enter(heap, 0, &h));
    symm_comm *c = h->comm;
    symm_comm_ref(c); /* the heap's may be the last but for the handle's */
    symm_heap_close(c, h);
    symm_comm_leave(c);
    symm_comm_unref(c);
    return symmSuccess;
}
