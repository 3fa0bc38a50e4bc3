/* arena.c - the public calls on arenas: checks arguments, turns offsets into addresses, makes the
 * heap the upstream. Any thread, except create, destroy and calls on SYM (symm_arena.h). */
#include <stdlib.h>
#include <string.h>

#include "symm_arena.h"
#include "base/fail.h"
#include "base/handle.h"
#include "base/sized.h"
#include "host/comm/comm.h"
#include "host/heap/heap.h"
#include "host/window/space.h"
#include "arena_int.h"

struct symm_arena_handle {
    symm_arena *core;
    symm_arena_events events; /* the core's */
    symm_heap *heap;
    symmHeap_t heap_handle;
    const void *site; /* of the call that creates or destroys: for the heap's ledger */
    char *base;       /* this rank's address of offset 0 */
    uint64_t align;   /* largest: the granularity */
    int sym, dump;
    symm_stripes stripes; /* sym: what the heap's ranks compare */
};
typedef struct symm_arena_handle record;

enum { DEFAULT_SUPERBLOCK = 16 << 10, DEFAULT_PIECE = 2 << 20, LEAST = 16 << 10, MOST = 1 << 20 };

/* ---- the heap as upstream -------------------------------------------------------------------- */

static symmResult_t heap_take(void *ctx, uint64_t bytes, uint64_t align, uint64_t *off) {
    record *r = ctx;
    return symm_heap_take(r->heap, bytes, align, r->sym ? SYMM_ALLOC_SYM : SYMM_ALLOC_LOCAL,
                          SYMM_OWNER_ARENA, -1, r->site, off);
}

static int heap_take_at(void *ctx, uint64_t off, uint64_t bytes) {
    const record *r = ctx;
    return symm_heap_take_at(r->heap, off, bytes, SYMM_OWNER_ARENA);
}

static int heap_part(void *ctx, uint64_t off) {
    const record *r = ctx;
    return symm_heap_part(r->heap, off, SYMM_OWNER_ARENA);
}

static int heap_hole(void *ctx, uint64_t off, uint64_t *begin, uint64_t *end) {
    const record *r = ctx;
    return symm_heap_hole(r->heap, off, begin, end);
}

static uint64_t heap_room(void *ctx) {
    const record *r = ctx;
    return symm_heap_room(r->heap, r->sym ? SYMM_ALLOC_SYM : SYMM_ALLOC_LOCAL);
}

/* For symmMemQuery and symmRefGet. */
static int inside(void *heap, uint64_t off, uint64_t *begin, uint64_t *bytes, int *lane) {
    symm_arena *a = NULL;
    int found = 0;
    *lane = -1;
    while (!found && (a = symm_arenas_next(heap, a)))
        found = symm_arena_block(a, off, begin, bytes);
    symm_arenas_leave(a);
    return found;
}

static void heap_give(void *ctx, uint64_t off, uint64_t bytes) {
    record *r = ctx;
    for (uint64_t end = off + bytes, had = 0; off < end; off += had, had = 0) {
        (void)symm_heap_give(r->heap, off, SYMM_OWNER_ARENA, r->site, &had);
        if (!had) return; /* not possible: the block is the arena's */
    }
}

/* Guard mode. */
static symmResult_t check_arenas(void *heap) {
    symmResult_t status = symmSuccess;
    symm_arena *a = NULL;
    while (!status && (a = symm_arenas_next(heap, a)))
        if (a->guard) status = symm_arena_guard_check(a);
    symm_arenas_leave(a);
    return status;
}

static void look_at_stripe(void *ctx, int stripe, uint64_t *calls, uint64_t *digest) {
    const record *r = ctx;
    symm_sub_tally(r->core->stripe[stripe], calls, digest);
}

static void show_stripes(record *r) {
    r->stripes = (symm_stripes){
        .count = r->core->stripes, .name = r->core->name, .look = look_at_stripe, .ctx = r};
    symm_heap_watch(r->heap, &r->stripes);
}

/* ---- create and destroy ---------------------------------------------------------------------- */

static symmResult_t check_config(const symmArenaConfig_t *c, uint64_t granularity) {
    if (c->size != sizeof *c)
        return SYMM_ERR(symmInvalidArgument,
                        "config->size=%zu: start from SYMM_ARENA_CONFIG_INITIALIZER" SYMM_NEWER,
                        c->size);
    if (c->flags & ~(SYMM_ARENA_SYM | SYMM_ARENA_DUMP | SYMM_ARENA_LATE))
        return SYMM_ERR(symmInvalidArgument,
                        "config->flags=%u: must be a sum of SYMM_ARENA_SYM, SYMM_ARENA_DUMP and "
                        "SYMM_ARENA_LATE",
                        c->flags);
    uint64_t s = c->superblock;
    if (s && (s & (s - 1) || s < LEAST || s > MOST || s > granularity))
        return SYMM_ERR(
            symmInvalidArgument,
            "config->superblock=%llu: must be a power of two from %d to %d, at most the "
            "granularity of %llu",
            (unsigned long long)s, LEAST, MOST, (unsigned long long)granularity);
    if (!s) s = DEFAULT_SUPERBLOCK;
    if (c->piece % s)
        return SYMM_ERR(symmInvalidArgument,
                        "config->piece=%llu: must be a multiple of the superblock of %llu",
                        (unsigned long long)c->piece, (unsigned long long)s);
    if (c->fit != SYMM_FIT_FIRST && c->fit != SYMM_FIT_BEST)
        return SYMM_ERR(symmInvalidArgument,
                        "config->fit=%d: must be SYMM_FIT_FIRST or SYMM_FIT_BEST", c->fit);
    if (c->stripes < 1 || c->stripes > 1 << 16)
        return SYMM_ERR(symmInvalidArgument, "config->stripes=%d: must be 1 to 65536", c->stripes);
    if (!(c->flags & SYMM_ARENA_SYM) && c->stripes != 1)
        return SYMM_ERR(symmInvalidArgument,
                        "config->stripes=%d: only symmetric arenas have stripes", c->stripes);
    if (c->bytes && c->bytes < s * (unsigned)c->stripes)
        return SYMM_ERR(symmInvalidArgument,
                        "config->bytes=%llu: must be at least a superblock of %llu for each of %d "
                        "stripes",
                        (unsigned long long)c->bytes, (unsigned long long)s, c->stripes);
    return symmSuccess;
}

static symmResult_t options_of(const symmArenaConfig_t *c, symmHeap_t heap, symm_arena_options *o,
                               uint64_t *reserve) {
    symmHeapInfo_t info = {.size = sizeof info};
    SYMM_TRY(symmHeapQuery(heap, &info));
    int sym = (c->flags & SYMM_ARENA_SYM) != 0;
    *o = (symm_arena_options){.bytes = c->bytes,
                              .superblock = c->superblock ? c->superblock : DEFAULT_SUPERBLOCK,
                              .piece = c->piece ? c->piece : DEFAULT_PIECE,
                              .sym = sym,
                              .stripes = c->stripes,
                              .late = (c->flags & SYMM_ARENA_LATE) != 0,
                              .name = c->name,
                              .first = c->fit == SYMM_FIT_FIRST};
    *reserve = info.reserve;
    uint64_t left = sym ? info.symBytes - info.symUsed : info.localBytes - info.localUsed;
    if (!o->bytes) o->bytes = left / 2 & -o->superblock;
    if (o->bytes < o->superblock * (unsigned)c->stripes)
        return SYMM_ERR(symmNeedGrow,
                        "half of the zone's free %llu bytes is less than a superblock of %llu for "
                        "each of %d stripes",
                        (unsigned long long)left, (unsigned long long)o->superblock, c->stripes);
    return symmSuccess;
}

static void free_record(void *obj) {
    record *r = obj;
    symm_heap_unref(r->heap);
    free(r);
}

static symmResult_t create(symm_heap *h, const symmArenaConfig_t *c, const symm_arena_options *o,
                           uint64_t reserve, symmHeap_t heap, const void *site, symmArena_t *out) {
    record *r = SYMM_FAIL_ALLOC(arena_record, calloc(1, sizeof *r));
    if (!r) return SYMM_ERR(symmOutOfMemory, "no memory for the record of an arena");
    *r = (record){.heap = h,
                  .heap_handle = heap,
                  .site = site,
                  .base = symm_heap_addr(h, symm_heap_comm(h)->rank, 0),
                  .align = symm_heap_granularity(h),
                  .sym = o->sym,
                  .dump = (c->flags & SYMM_ARENA_DUMP) != 0};
    symm_heap_ref(h);
    symm_upstream up = {r,         reserve,   r->align,     !o->sym,   heap_take,
                        heap_give, heap_room, heap_take_at, heap_part, heap_hole};
    symm_arena_order order = symm_arena_order_of(symm_heap_comm(h), &r->events);
    symmResult_t status = symm_arena_new(&up, &order, o, &r->core);
    if (!status) {
        status = symm_arena_guard_new(r->core, h);
        symm_heap_set_inside(h, SYMM_OWNER_ARENA, inside, h);
        symm_heap_set_check(h, SYMM_OWNER_ARENA, check_arenas, h);
        if (!status) symm_arena_is_of(r->core, h);
        if (!status) status = symm_handle_new(SYMM_KIND_ARENA, r, free_record, (void **)out);
        if (status) symm_arena_end(r->core);
    }
    if (status)
        free_record(r);
    else if (o->sym)
        show_stripes(r);
    return status;
}

symmResult_t symmArenaCreate(symmHeap_t heap, const symmArenaConfig_t *config, symmArena_t *arena) {
    symmArenaConfig_t c = SYMM_ARENA_CONFIG_INITIALIZER;
    symm_arena_options o;
    symm_heap *h;
    uint64_t reserve;
    if (!arena) return SYMM_ERR(symmInvalidArgument, "arena is NULL");
    if (!heap) return SYMM_ERR(symmInvalidArgument, "heap is NULL: an arena needs memory to give");
    if (config && symm_sized_read(&c, sizeof c, sizeof c, config)) c.size = config->size;
    SYMM_TRY(symm_heap_pin(heap, &h));
    symmResult_t status = check_config(&c, symm_heap_granularity(h));
    if (!status) status = options_of(&c, heap, &o, &reserve);
    symm_heap_unpin(h);
    if (status) return status;
    if (!o.sym) {
        SYMM_TRY(symm_heap_pin(heap, &h));
        status = create(h, &c, &o, reserve, heap, __builtin_return_address(0), arena);
        symm_heap_unpin(h);
        return status;
    }
    SYMM_TRY(symm_heap_enter(heap, 1, &h));
    status = create(h, &c, &o, reserve, heap, __builtin_return_address(0), arena);
    symm_heap_leave(h);
    return status;
}

/* No pin is needed: a program must not destroy an arena while another thread uses it. */
static symmResult_t arena_of(symmArena_t arena, record **r) {
    *r = symm_handle_peek(SYMM_KIND_ARENA, arena);
    return __builtin_expect(*r != NULL, 1)
               ? symmSuccess
               : SYMM_ERR(symmInvalidArgument, "arena=%p is not a live arena (destroyed already?)",
                          (void *)arena);
}

symmResult_t symmArenaDestroy(symmArena_t arena) {
    record *r;
    symm_heap *h;
    SYMM_TRY(arena_of(arena, &r));
    int entered = r->sym && symm_handle_open(SYMM_KIND_HEAP, r->heap_handle);
    if (entered) SYMM_TRY(symm_heap_enter(r->heap_handle, 0, &h));
    if (symm_handle_close(SYMM_KIND_ARENA, arena)) {
        r->site = __builtin_return_address(0);
        if (r->sym) symm_heap_unwatch(r->heap, &r->stripes);
        symm_arena_end(r->core);
        symm_handle_put(SYMM_KIND_ARENA, arena);
    }
    if (entered) symm_heap_leave(h);
    return symmSuccess;
}

/* ---- blocks ---------------------------------------------------------------------------------- */

static symmResult_t check_align(const record *r, size_t align) {
    return SYMM_ERR(symmInvalidArgument, "align=%zu: must be 0 or a power of two up to %llu", align,
                    (unsigned long long)r->align);
}

/* After a try that failed: writes the table if the config asks for it. */
static symmResult_t without(const record *r, symmResult_t status) {
    if (r->dump && (status == symmOutOfMemory || status == symmNeedGrow))
        (void)symm_arena_write(r->core, 2);
    return status;
}

static symmResult_t check_stream(const record *r, symmStream_t stream) {
    return r->core->order.check(r->core->order.ctx, stream);
}

static symmResult_t take_striped(const record *r, int stripe, size_t bytes, size_t align,
                                 void **ptr) {
    uint64_t off;
    symmResult_t status = __builtin_expect(r->core->guard != NULL, 0)
                              ? symm_arena_guard_take(r->core, stripe, NULL, bytes, align, &off)
                              : symm_arena_take_on(r->core, stripe, bytes, align, &off);
    if (status) return without(r, status);
    *ptr = r->base + off;
    return symmSuccess;
}

static symmResult_t give_nothing(void **ptr) {
    *ptr = NULL;
    return symmSuccess;
}

symmResult_t symmArenaAlloc(symmArena_t arena, size_t bytes, size_t align, symmStream_t stream,
                            void **ptr) {
    record *r;
    uint64_t off = 0;
    if (!ptr) return SYMM_ERR(symmInvalidArgument, "ptr is NULL");
    SYMM_TRY(arena_of(arena, &r));
    if (align & (align - 1) || align > r->align) return check_align(r, align);
    if (!bytes) return give_nothing(ptr);
    if (!r->sym) {
        if (stream) SYMM_TRY(check_stream(r, stream));
        symmResult_t status = __builtin_expect(r->core->guard != NULL, 0)
                                  ? symm_arena_guard_take(r->core, 0, stream, bytes, align, &off)
                                  : symm_arena_take(r->core, stream, bytes, align, &off);
        if (__builtin_expect(status != symmSuccess, 0)) return without(r, status);
        *ptr = r->base + off;
        return symmSuccess;
    }
    if (stream || r->core->stripes > 1)
        return SYMM_ERR(
            symmInvalidUsage,
            "arena %s is symmetric and has %d stripes: symmArenaAllocOn, or stream NULL "
            "and one stripe",
            r->core->name, r->core->stripes);
    return take_striped(r, 0, bytes, align, ptr);
}

symmResult_t symmArenaAllocOn(symmArena_t arena, int stripe, size_t bytes, size_t align,
                              void **ptr) {
    record *r;
    if (!ptr) return SYMM_ERR(symmInvalidArgument, "ptr is NULL");
    SYMM_TRY(arena_of(arena, &r));
    if (align & (align - 1) || align > r->align) return check_align(r, align);
    if (stripe < 0 || stripe >= r->core->stripes)
        return SYMM_ERR(symmInvalidArgument, "stripe=%d: arena %s has %d", stripe, r->core->name,
                        r->core->stripes);
    if (!bytes) return give_nothing(ptr);
    return take_striped(r, stripe, bytes, align, ptr);
}

symmResult_t symmArenaFree(symmArena_t arena, void *ptr, symmStream_t stream) {
    record *r;
    SYMM_TRY(arena_of(arena, &r));
    if (!ptr) return symmSuccess;
    if (stream) SYMM_TRY(check_stream(r, stream));
    uint64_t off = symm_heap_offset(r->heap, ptr);
    if (off == SYMM_NO_OFFSET)
        return SYMM_ERR(symmInvalidArgument, "ptr=%p is not memory of arena %s's heap", ptr,
                        r->core->name);
    if (r->sym) stream = NULL;
    return __builtin_expect(r->core->guard != NULL, 0) ? symm_arena_guard_give(r->core, stream, off)
                                                       : symm_arena_give(r->core, stream, off);
}

/* ---- the rest -------------------------------------------------------------------------------- */

symmResult_t symmArenaEndStream(symmArena_t arena, symmStream_t stream) {
    record *r;
    SYMM_TRY(arena_of(arena, &r));
    symm_arena_stream_end(r->core, stream);
    return symmSuccess;
}

symmResult_t symmArenaTrim(symmArena_t arena, size_t *freed) {
    record *r;
    SYMM_TRY(arena_of(arena, &r));
    uint64_t bytes = symm_arena_trim(r->core);
    if (freed) *freed = bytes;
    return symmSuccess;
}

symmResult_t symmArenaQuery(symmArena_t arena, symmArenaInfo_t *info) {
    record *r;
    struct symm_arena_counts n;
    SYMM_TRY(arena_of(arena, &r));
    if (!symm_sized_holds(info, sizeof *info))
        return SYMM_ERR(symmInvalidArgument, "info is %s", info ? SYMM_NO_SIZE : "NULL");
    symm_arena_count(r->core, &n);
    const symmArenaInfo_t i = {.size = sizeof i,
                               .heap = r->heap_handle,
                               .limit = r->core->limit,
                               .held = n.held,
                               .heldPeak = n.held_peak,
                               .assigned = n.assigned,
                               .used = n.used,
                               .cached = n.kept,
                               .largest = n.largest,
                               .superblocks = n.supers,
                               .largeBlocks = n.larges,
                               .superblock = r->core->super,
                               .threads = n.subs[SYMM_SUB_THREAD],
                               .streams = n.subs[SYMM_SUB_STREAM],
                               .stripes = n.subs[SYMM_SUB_STRIPE],
                               .ended = n.subs[SYMM_SUB_ENDED],
                               .waits =
                                   atomic_load_explicit(&r->core->waits, memory_order_relaxed)};
    symm_sized_answer(info, &i, sizeof i);
    return symmSuccess;
}

symmResult_t symmArenaEqual(symmArena_t a, symmArena_t b, int *equal) {
    record *x, *y;
    if (!equal) return SYMM_ERR(symmInvalidArgument, "equal is NULL");
    SYMM_TRY(arena_of(a, &x));
    SYMM_TRY(arena_of(b, &y));
    *equal = x == y;
    return symmSuccess;
}

symmResult_t symmArenaDump(symmArena_t arena, int fd) {
    record *r;
    SYMM_TRY(arena_of(arena, &r));
    return symm_arena_write(r->core, fd);
}
