/* heap_api.c - the public calls on blocks, references and what a heap is. Threads as in
 * symm_heap.h: LOCAL blocks any thread, all else as use of the communicator. */
#include "base/handle.h"
#include "base/log.h"
#include "base/sized.h"
#include "host/comm/comm.h"
#include "host/window/space.h"
#include "heap_int.h"

/* ---- blocks ---------------------------------------------------------------------------------- */

static symmResult_t alloc_sym(symmHeap_t heap, uint64_t bytes, uint64_t align, const void *site,
                              void **ptr) {
    symm_heap *h;
    uint64_t off;
    SYMM_TRY(symm_heap_enter(heap, 1, &h));
    symmResult_t r =
        symm_heap_take(h, bytes, align, SYMM_ALLOC_SYM, SYMM_OWNER_USER, -1, site, &off);
    if (!r) *ptr = h->win.ptr + off;
    symm_heap_leave(h);
    return r;
}

static symmResult_t alloc_local(symmHeap_t heap, uint64_t bytes, uint64_t align, const void *site,
                                void **ptr) {
    symm_heap *h;
    uint64_t off;
    SYMM_TRY(symm_heap_pin(heap, &h));
    symmResult_t r =
        symm_heap_take(h, bytes, align, SYMM_ALLOC_LOCAL, SYMM_OWNER_USER, -1, site, &off);
    if (!r) *ptr = h->win.ptr + off;
    symm_heap_unpin(h);
    return r;
}

symmResult_t symmHeapAlloc(symmHeap_t heap, size_t bytes, size_t align, unsigned flags,
                           void **ptr) {
    if (!ptr) return SYMM_ERR(symmInvalidArgument, "ptr is NULL");
    if (flags & ~SYMM_ALLOC_LOCAL)
        return SYMM_ERR(symmInvalidArgument, "flags=%u: must be SYMM_ALLOC_SYM or SYMM_ALLOC_LOCAL",
                        flags);
    if (align & (align - 1))
        return SYMM_ERR(symmInvalidArgument, "align=%zu: must be 0 or a power of two", align);
    if (!bytes && symm_handle_open(SYMM_KIND_HEAP, heap)) {
        *ptr = NULL;
        return symmSuccess;
    }
    const void *site = __builtin_return_address(0);
    return flags & SYMM_ALLOC_LOCAL ? alloc_local(heap, bytes, align, site, ptr)
                                    : alloc_sym(heap, bytes, align, site, ptr);
}

static symmResult_t not_ours(const symm_heap *h, const void *ptr) {
    symm_heap *other = symm_heap_of(ptr);
    if (!other)
        return SYMM_ERR(symmInvalidArgument,
                        "ptr=%p is not memory of heap %s, which has [%p, %p), nor of another heap",
                        ptr, h->name, (void *)h->win.ptr, (void *)(h->win.ptr + h->reserve));
    symmResult_t r = SYMM_ERR(symmInvalidArgument, "ptr=%p is memory of heap %s, not of heap %s",
                              ptr, other->name, h->name);
    symm_heap_unref(other);
    return r;
}

/* Counts as use of the communicator. */
static symmResult_t free_sym(symmHeap_t heap, const void *ptr, const void *site) {
    symm_heap *h;
    SYMM_TRY(symm_heap_enter(heap, 0, &h));
    symmResult_t r = symm_heap_give(h, symm_heap_offset(h, ptr), SYMM_OWNER_USER, site, NULL);
    symm_heap_leave(h);
    return r;
}

/* Freeing a SYM block is use of the communicator, so the heap stays without a pin. Any thread may
 * free a LOCAL block. */
symmResult_t symmHeapFree(symmHeap_t heap, void *ptr) {
    const void *site = __builtin_return_address(0);
    symm_heap *h;
    if (symm_handle_peek_at(SYMM_KIND_HEAP, heap, ptr)) return free_sym(heap, ptr, site);
    SYMM_TRY(symm_heap_pin(heap, &h));
    const uint64_t off = symm_heap_offset(h, ptr);
    symmResult_t r = symmSuccess;
    if (ptr && off == SYMM_NO_OFFSET)
        r = not_ours(h, ptr);
    else if (ptr && symm_heap_zone(h, off) == SYMM_ZONE_SYM)
        r = free_sym(heap, ptr, site);
    else if (ptr)
        r = symm_heap_give(h, off, SYMM_OWNER_USER, site, NULL);
    symm_heap_unpin(h);
    return r;
}

/* ---- references ------------------------------------------------------------------------------ */

/* If the owner divides its blocks, *b becomes the piece that holds off. 0: no piece does. -1: the
 * owner does not divide it. */
static int look_inside(symm_heap *h, uint64_t off, symm_block *b) {
    uint64_t begin, bytes;
    int lane;
    symm_heap_lock(h);
    const symm_heap_inside find = h->inside[b->owner].find;
    void *arg = h->inside[b->owner].arg;
    symm_heap_unlock(h);
    if (!find) return -1;
    if (!find(arg, off, &begin, &bytes, &lane)) return 0;
    b->off = begin;
    b->bytes = bytes;
    b->lane = lane;
    return 1;
}

/* Treats a graph range as a graph's block of SYM. With the lock. */
static int find_apart(const symm_heap *h, uint64_t off, symm_block *b) {
    symm_graph_range t;
    if (!symm_heap_graph_range_at(h, off, &t) || t.uncollected) return 0;
    *b = (symm_block){t.off, t.bytes, SYMM_ZONE_SYM, SYMM_OWNER_GRAPH, t.lane, 0, t.off, t.bytes};
    return 1;
}

/* Whether off is in a block that was given out; *b becomes that block. What arenas and lanes hold
 * and have not given out is nobody's. What a graph holds may be in use although its plan is gone,
 * except in a graph range. */
static int is_given(symm_heap *h, uint64_t off, symm_block *b, int apart) {
    const int in = look_inside(h, off, b);
    if (in > 0) return 1;
    if (apart) return 0;
    return in < 0 || (b->owner != SYMM_OWNER_ARENA && b->owner != SYMM_OWNER_LANE);
}

static int find(symm_heap *h, uint64_t off, symm_block *b, int *apart) {
    symm_heap_lock(h);
    *apart = find_apart(h, off, b);
    const int found = *apart || symm_heap_find(h, off, b);
    symm_heap_unlock(h);
    return found;
}

/* A block, and the heap that holds it, with one more reference. */
typedef struct {
    symm_heap *heap;
    symm_block block;
    int turn; /* 1: it has been entered, for its lanes and graphs change in turns */
} place;

static void let_go(const place *at) {
    if (at->turn) symm_heap_leave(at->heap);
    symm_heap_unref(at->heap);
}

/* Where ptr lies. let_go ends it. */
static symmResult_t locate(const void *ptr, place *at) {
    symm_heap *h = symm_heap_of(ptr), *same;
    symm_block *b = &at->block;
    symmResult_t status;
    int apart;
    if (h && !symm_handle_open(h->kind, h->handle)) { /* as in a forked child */
        symm_heap_unref(h);
        h = NULL;
    }
    *at = (place){.heap = h};
    if (!h)
        return SYMM_ERR(symmInvalidArgument,
                        "ptr=%p is not memory of this rank in a heap of this process", ptr);
    const uint64_t off = symm_heap_offset(h, ptr);
    int found = find(h, off, b, &apart);
    if (found && (b->owner == SYMM_OWNER_LANE || b->owner == SYMM_OWNER_GRAPH)) {
        SYMM_TRY_GOTO(symm_heap_enter_kind(h->kind, h->handle, 0, &same), fail);
        SYMM_ASSERT(same == h);
        at->turn = 1;
        found = find(h, off, b, &apart);
    }
    if (found && !b->uncollected && off < b->off + b->bytes && is_given(h, off, b, apart))
        return symmSuccess;
    status = SYMM_ERR(symmInvalidArgument, "ptr=%p, offset %llu of heap %s, is in no block", ptr,
                      (unsigned long long)off, h->name);
fail:
    let_go(at);
    return status;
}

/* A reference's flags: how its block was allocated, and above that the number of the list of ranks
 * that may access it; 0 all. */
enum { REF_ZONE = 0xff, REF_LIST = 8 };

static symmResult_t access_list(symm_heap *h, const symm_block *b, uint64_t off, int *list) {
    uint64_t ranks[SYMM_LEDGER_MASK];
    symm_heap_lock(h);
    const symm_heap_access access = h->inside[b->owner].access;
    void *arg = h->inside[b->owner].access_arg;
    symm_heap_unlock(h);
    *list = 0;
    if (!access || !access(arg, off, ranks)) return symmSuccess;
    if (h->comm->hosts > 1)
        return SYMM_ERR(symmNotSupported,
                        "heap %s: the block has an access list (symmLaneSetAccess), and the ranks "
                        "are on %d hosts, which do not see each other's lists",
                        h->name, h->comm->hosts);
    *list = symm_ledger_access(h->ledger, ranks);
    if (*list) return symmSuccess;
    return SYMM_ERR(
        symmOutOfMemory,
        "heap %s: references name %d different access lists already (symmLaneSetAccess)", h->name,
        SYMM_LEDGER_LISTS);
}

symmResult_t symmRefGet(const void *ptr, symmRef_t *ref) {
    place at;
    int list;
    if (!ref) return SYMM_ERR(symmInvalidArgument, "ref is NULL");
    SYMM_TRY(locate(ptr, &at));
    const symm_block *b = &at.block;
    const uint64_t off = symm_heap_offset(at.heap, ptr);
    symmResult_t r = access_list(at.heap, b, off, &list);
    if (!r)
        *ref = (symmRef_t){
            .off = off,
            .len = b->off + b->bytes - off,
            .heap = at.heap->id,
            .rank = (int16_t)at.heap->comm->rank,
            .flags = (uint16_t)((b->zone == SYMM_ZONE_SYM ? SYMM_ALLOC_SYM : SYMM_ALLOC_LOCAL) |
                                (unsigned)list << REF_LIST)};
    let_go(&at);
    return r;
}

/* Whether ref lies in a graph range. All ranks map memory there when the graph is uploaded, but
 * know the addresses before. */
static int has_graph_range(symm_heap *h, const symmRef_t *ref) {
    symm_graph_range t;
    symm_heap_lock(h);
    const int in = symm_heap_graph_range_at(h, ref->off, &t) && !t.uncollected &&
                   ref->len <= t.off + t.bytes - ref->off;
    symm_heap_unlock(h);
    return in;
}

/* A rank may always access its own memory. */
static symmResult_t check_access(const symm_heap *h, const symmRef_t *ref, int rank) {
    const int list = ref->flags >> REF_LIST, me = h->comm->rank;
    if (!list || rank == me) return symmSuccess;
    const int allowed = symm_ledger_allows(h->ledger, ref->rank, list, me);
    if (allowed > 0) return symmSuccess;
    if (allowed < 0)
        return SYMM_ERR(symmInvalidArgument, "ref->flags=0x%x: not made by symmRefGet", ref->flags);
    return SYMM_ERR(symmInvalidArgument,
                    "rank %d may not access the block of rank %d that ref names (off=%llu): it is "
                    "not in the block's access list (symmLaneSetAccess, symmAllocNode_t)",
                    me, rank, (unsigned long long)ref->off);
}

static symmResult_t check_ref(const symm_comm *c, const symmRef_t *ref, int rank,
                              const symm_heap **out) {
    symm_heap *h = c->heaps.newest;
    if (ref->rank < 0 || ref->rank >= c->nranks)
        return SYMM_ERR(symmInvalidArgument, "ref->rank=%d: the communicator has ranks 0 to %d",
                        ref->rank, c->nranks - 1);
    const unsigned zone = ref->flags & REF_ZONE;
    if (zone != SYMM_ALLOC_SYM && zone != SYMM_ALLOC_LOCAL)
        return SYMM_ERR(symmInvalidArgument, "ref->flags=%u: not made by symmRefGet", ref->flags);
    if (rank < 0 || rank >= c->nranks)
        return SYMM_ERR(symmInvalidArgument,
                        "rank=%d: must be SYMM_REF_OWNER, or for a SYM block 0 to %d", rank,
                        c->nranks - 1);
    if (zone == SYMM_ALLOC_LOCAL && rank != ref->rank)
        return SYMM_ERR(
            symmInvalidArgument,
            "rank=%d: ref names a LOCAL block of rank %d; other ranks have no such block", rank,
            ref->rank);
    while (h && h->id != ref->heap) h = h->next;
    if (!h)
        return SYMM_ERR(symmInvalidArgument, "ref->heap=%u: no heap of communicator %s (any more)",
                        ref->heap, c->name);
    /* An empty reference needs no memory, but its offset must be one of the heap. */
    if (ref->off > h->reserve || ref->len > h->reserve - ref->off)
        return SYMM_ERR(symmInvalidArgument,
                        "ref->off=%llu, len=%llu: heap %s has addresses for %llu bytes",
                        (unsigned long long)ref->off, (unsigned long long)ref->len, h->name,
                        (unsigned long long)h->reserve);
    if (!symm_region_backed(&h->region, rank, ref->off, ref->len) && !has_graph_range(h, ref))
        return SYMM_ERR(symmInvalidArgument,
                        "ref->off=%llu, len=%llu: rank %d has no memory there in heap %s",
                        (unsigned long long)ref->off, (unsigned long long)ref->len, rank, h->name);
    SYMM_TRY(check_access(h, ref, rank));
    *out = h;
    return symmSuccess;
}

symmResult_t symmRefPtr(const symmRef_t *ref, symmComm_t comm, int rank, void **ptr) {
    symm_comm *c;
    const symm_heap *h;
    if (!ref) return SYMM_ERR(symmInvalidArgument, "ref is NULL");
    if (!ptr) return SYMM_ERR(symmInvalidArgument, "ptr is NULL");
    SYMM_TRY(symm_comm_enter(comm, 0, &c));
    if (rank == SYMM_REF_OWNER) rank = ref->rank;
    symmResult_t r = check_ref(c, ref, rank, &h);
    if (!r) *ptr = symm_heap_addr(h, rank, ref->off);
    symm_comm_leave(c);
    return r;
}

/* ---- questions ------------------------------------------------------------------------------- */

symmResult_t symmMemQuery(const void *ptr, symmMemInfo_t *info) {
    place at;
    if (!symm_sized_holds(info, sizeof *info))
        return SYMM_ERR(symmInvalidArgument, "info is %s", info ? SYMM_NO_SIZE : "NULL");
    SYMM_TRY(locate(ptr, &at));
    const symm_heap *h = at.heap;
    const symmMemInfo_t i = {.size = info->size,
                             .heap = h->kind == SYMM_KIND_HEAP ? h->handle : NULL,
                             .block = h->win.ptr + at.block.off,
                             .bytes = at.block.bytes,
                             .offset = at.block.off,
                             .owner = h->comm->rank,
                             .symmetric = at.block.zone == SYMM_ZONE_SYM,
                             .lane = at.block.lane};
    symm_sized_answer(info, &i, sizeof i);
    let_go(&at);
    return symmSuccess;
}

symmResult_t symmHeapQuery(symmHeap_t heap, symmHeapInfo_t *info) {
    symm_heap *h;
    symm_place_stats s[SYMM_ZONES];
    if (!symm_sized_holds(info, sizeof *info))
        return SYMM_ERR(symmInvalidArgument, "info is %s", info ? SYMM_NO_SIZE : "NULL");
    SYMM_TRY(symm_heap_enter(heap, 0, &h));
    symm_heap_lock(h);
    for (int z = 0; z < SYMM_ZONES; z++) symm_place_measure(h->zone[z].place, &s[z]);
    const symmHeapInfo_t i = {.size = info->size,
                              .base = h->region.base,
                              .stride = h->region.stride,
                              .reserve = h->reserve,
                              .symBytes = h->zone[SYMM_ZONE_SYM].bytes,
                              .localBytes = h->zone[SYMM_ZONE_LOCAL].bytes,
                              .symUsed = s[0].used,
                              .localUsed = s[1].used,
                              .symPeak = s[0].peak_used,
                              .localPeak = s[1].peak_used,
                              .symLargest = s[0].largest,
                              .localLargest = s[1].largest,
                              .blocks = s[0].blocks + s[1].blocks,
                              .chunks = (uint64_t)(h->zone[0].count + h->zone[1].count),
                              .uncollected = h->uncollected_bytes,
                              .calls = h->calls,
                              .digest = h->digest,
                              .symSkipped = h->zone[SYMM_ZONE_SYM].skipped,
                              .localSkipped = h->zone[SYMM_ZONE_LOCAL].skipped};
    symm_sized_answer(info, &i, sizeof i);
    symm_heap_unlock(h);
    symm_heap_leave(h);
    return symmSuccess;
}
