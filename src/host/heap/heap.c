/* heap.c - the record of a heap: references, the lists in which it is found, what its handle opens.
 * The communicator's user thread, except references, pins and symm_heap_of (any thread). Lock:
 * table_lock guards the process's table of heaps. Inside it only references and a heap's own lock
 * are taken. */
#include <sched.h>
#include <stdlib.h>
#include <time.h>

#include "base/handle.h"
#include "base/stats.h"
#include "host/comm/comm.h"
#include "host/gpu/gpu.h"
#include "host/window/space.h"
#include "heap_int.h"

static pthread_mutex_t table_lock = PTHREAD_MUTEX_INITIALIZER;
static symm_heap *table;

/* The lock is held for one placement. So its holder gives it back at once, unless it was
 * interrupted. Then this thread yields, and in the end sleeps, because the holder may have a lower
 * priority. */
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

#ifdef SYMM_TESTING
static void check_chunks(const symm_heap *h, const symm_zone *z) {
    uint64_t bytes = 0, end = 0;
    for (int i = 0; i < z->count; i++) {
        const symm_part *k = &z->chunks[i];
        SYMM_ASSERT(k->bytes && k->bytes <= h->chunk);
        SYMM_ASSERT(k->off % h->granularity == 0 && k->bytes % h->granularity == 0);
        SYMM_ASSERT(k->off >= end);
        end = k->off + k->bytes;
        bytes += k->bytes;
    }
    SYMM_ASSERT(bytes == z->bytes);
    SYMM_ASSERT(end == z->extent);
}

/* What collectives find is the whole range, and it is where the region is. */
static void check_window(const symm_heap *h) {
    const symm_comm *c = h->comm;
    SYMM_ASSERT(h->win.heap == h && h->win.comm == c && !h->win.slot && !h->win.handle);
    SYMM_ASSERT(h->win.bytes == h->reserve && h->reserve <= h->region.bytes);
    SYMM_ASSERT(h->win.ptr == symm_region_addr(&h->region, c->rank, 0));
    SYMM_ASSERT(h->win.size[c->rank] == h->reserve);
    SYMM_ASSERT(h->region.c == c);
}

static void check_settled(const symm_heap *h) {
    SYMM_ASSERT(h->granularity && h->chunk % h->granularity == 0 && h->chunk);
    SYMM_ASSERT(h->reserve % h->granularity == 0);
    SYMM_ASSERT(h->ngraph_ranges >= 0 && (!h->stripes || h->stripes_made));
    SYMM_ASSERT(h->name[sizeof h->name - 1] == 0 && h->ledger);
    SYMM_ASSERT(h->guard || !h->damage[0]);
}

static void check_graph_ranges(const symm_heap *h) {
    uint64_t end = h->zone[SYMM_ZONE_SYM].extent;
    for (int i = 0; i < h->ngraph_ranges; i++) {
        const symm_graph_range *t = &h->graph_ranges[i];
        SYMM_ASSERT(t->bytes && t->off % h->granularity == 0);
        SYMM_ASSERT(t->bytes % h->granularity == 0 && (t->uncollected == 0 || t->uncollected == 1));
        SYMM_ASSERT(!i || t->off >= end);
        end = t->off + t->bytes;
    }
    SYMM_ASSERT(!h->ngraph_ranges || end <= h->reserve);
}

/* The lists are walked each 64th time. */
void symm_heap_check(symm_heap *h) {
    uint64_t used = 0;
    SYMM_HEAP_LOCKED(h);
    SYMM_ASSERT(atomic_load_explicit(&h->refs, memory_order_relaxed) >= 0);
    SYMM_ASSERT(h->zone[0].extent + h->zone[1].extent <= h->reserve);
    SYMM_ASSERT(h->ngraph_ranges <= h->graph_range_cap);
    SYMM_ASSERT(h->guest);
    check_settled(h);
    for (int i = 0; i < SYMM_ZONES; i++) {
        const symm_zone *z = &h->zone[i];
        symm_place_stats s;
        symm_place_measure(z->place, &s);
        SYMM_ASSERT(s.free + s.used == z->bytes);
        SYMM_ASSERT(z->bytes <= z->extent && z->count <= z->cap);
        used += s.used;
    }
    SYMM_ASSERT(h->uncollected_bytes <= used);
    if (h->unchecked++ % 64) return;
    for (int i = 0; i < SYMM_ZONES; i++) check_chunks(h, &h->zone[i]);
    check_graph_ranges(h);
    check_window(h);
}
#endif

/* ---- life ------------------------------------------------------------------------------------ */

void symm_heap_ref(symm_heap *h) {
    SYMM_ASSERT(atomic_load_explicit(&h->refs, memory_order_relaxed) > 0);
    atomic_fetch_add_explicit(&h->refs, 1, memory_order_relaxed);
}

static void free_zone(symm_zone *z) {
    if (z->place) symm_place_end(z->place);
    free(z->chunks);
}

/* As in comm.c. The rank's own thread may have looked up the handle. It holds no reference until
 * the communicator refuses it, so the record stays. */
static void keep_aborted(symm_heap *h) {
    static _Atomic(symm_heap *) aborted;
    h->next_all = atomic_load_explicit(&aborted, memory_order_relaxed);
    /* Records are never taken out. The list exists so that leak checkers find them. */
    while (!atomic_compare_exchange_weak_explicit(&aborted, &h->next_all, h, memory_order_release,
                                                  memory_order_relaxed))
        ;
}

void symm_heap_free_record(symm_heap *h) {
    for (int i = 0; i < SYMM_ZONES; i++) free_zone(&h->zone[i]);
    free(h->win.off);
    free(h->win.size);
    free(h->graph_ranges);
    free(h->sizes); /* of a heap that was never linked */
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

/* The last thread rank unmaps here, and that acts on the current device. */
static void close_regions(symm_heap *h) {
    symm_cuda_scope scope;
    const symmResult_t inside = symm_gpu_push(h->comm, &scope);
    drop_left(h);
    symm_region_close(&h->region);
    if (!inside) symm_gpu_pop(h->comm, &scope);
}

void symm_heap_unref(symm_heap *h) {
    SYMM_ASSERT(atomic_load_explicit(&h->refs, memory_order_relaxed) > 0);
    /* Acquire and release, pairs with itself: the free comes after all other threads' last use. */
    if (atomic_fetch_sub_explicit(&h->refs, 1, memory_order_acq_rel) != 1) return;
    symm_comm *c = h->comm;
    symm_ledger_close(h->ledger);
    close_regions(h);
    symm_heap_free_record(h);
    symm_comm_unref(c);
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
    if (h->sizes) symm_sizes_unlink(c, h->sizes);
    h->sizes = NULL;
}

void symm_heap_link(symm_comm *c, symm_heap *h) {
    pthread_mutex_lock(&c->heaps.lock);
    h->next = c->heaps.newest;
    c->heaps.newest = h;
    pthread_mutex_unlock(&c->heaps.lock);
    symm_window_changed(c);
    pthread_mutex_lock(&table_lock);
    h->next_all = table;
    table = h;
    pthread_mutex_unlock(&table_lock);
    if (h->sizes) symm_sizes_link(c, h->sizes, h->id, h->ledger);
}

void symm_heap_close(symm_comm *c, symm_heap *h) {
    const void *handle = h->handle;
    const int kind = h->kind;
    symm_heap_lock(h);
    h->closed = 1;
    symm_heap_unlock(h);
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
    if (h) symm_heap_ref(h); /* not the first: it leaves the table before its handle's is put */
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
    return SYMM_ERR(symmInvalidArgument, "%s=%p is not a live handle (destroyed already?)", name,
                    handle);
}

symmResult_t symm_heap_enter_kind(int kind, const void *handle, int live, symm_heap **out) {
    symm_heap *h = symm_handle_peek(kind, handle);
    if (!h) return bad_handle(kind, handle);
    symm_comm *c = h->comm;
    SYMM_TRY(symm_comm_enter_known(c, live));
    if (!symm_handle_open(kind, handle)) { /* destroyed before this thread's turn */
        symm_comm_leave(c);
        return bad_handle(kind, handle);
    }
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

/* ---- where it is ----------------------------------------------------------------------------- */

void symm_heap_set_window(symm_heap *h) {
    const symm_comm *c = h->comm;
    SYMM_ASSERT(h->reserve <= h->region.bytes);
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
    symm_heap_set_window(h);
    symm_heap_unlock(h);
    pthread_mutex_unlock(&table_lock);
    symm_window_changed(h->comm);
}

void symm_heap_forget(symm_heap *h) {
    if (atomic_load_explicit(&h->refs, memory_order_acquire) == 1) drop_left(h);
}
