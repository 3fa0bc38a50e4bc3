/* heap_grow.c - memory behind a heap's zones: more of it, or all of it in another region.
 * Collective calls, on the communicator's user thread. h->lock is held where a zone changes, never
 * while waiting. */
#include <stdio.h>
#include <stdlib.h>

#include "base/fail.h"
#include "host/comm/comm.h"
#include "host/comm/group.h"
#include "host/gpu/setup.h"
#include "heap_int.h"

/* ---- what there is to be mapped -------------------------------------------------------------- */

typedef struct { /* one growth of a heap, on this rank */
    symm_heap *h;
    uint64_t reserve; /* the heap's, or what it will be */
    symm_part *parts; /* for the region; in heap offsets */
    symm_part *zoned; /* the same in zone offsets */
    int count;        /* of both zones, SYM first */
    int of[SYMM_ZONES];
    uint64_t extent[SYMM_ZONES];
} plan;

/* Lists pieces of at most a chunk for `bytes` more behind a zone, in the lowest gaps. If list is
 * NULL, only counts them. The result depends only on the zone's chunks, the heap's graph ranges and
 * the size, so for SYM it is the same on all ranks. */
static int list_parts(const symm_heap *h, int zone, uint64_t bytes, symm_part *list,
                      uint64_t *extent) {
    const symm_zone *z = &h->zone[zone];
    uint64_t at = 0;
    int n = 0, i = 0;
    *extent = z->extent;
    while (bytes) {
        symm_part next = symm_heap_next_graph_range(h, zone, at); /* what is in the way */
        while (i < z->count && z->chunks[i].off + z->chunks[i].bytes <= at) i++;
        if (i < z->count && z->chunks[i].off < next.off) next = z->chunks[i];
        while (bytes && at < next.off) {
            uint64_t take = bytes < h->chunk ? bytes : h->chunk;
            if (take > next.off - at) take = next.off - at;
            if (list) list[n] = (symm_part){at, take};
            n++;
            at += take;
            bytes -= take;
            if (at > *extent) *extent = at;
        }
        at = next.off + next.bytes;
    }
    return n;
}

static symmResult_t no_addresses(const symm_heap *h, symm_more more) {
    return SYMM_ERR(symmOutOfMemory,
                    "symBytes=%llu, localBytes=%llu: heap %s has addresses for %llu bytes, and "
                    "%llu and %llu are behind its zones",
                    (unsigned long long)more.sym, (unsigned long long)more.local, h->name,
                    (unsigned long long)h->reserve,
                    (unsigned long long)h->zone[SYMM_ZONE_SYM].extent,
                    (unsigned long long)h->zone[SYMM_ZONE_LOCAL].extent);
}

static void plan_check(const plan *p) {
    SYMM_ASSERT(p->count == p->of[SYMM_ZONE_SYM] + p->of[SYMM_ZONE_LOCAL] && p->count >= 0);
    SYMM_ASSERT(p->extent[0] + p->extent[1] <= p->reserve);
    for (int i = 0; i < p->count; i++) {
        const symm_part *z = &p->zoned[i];
        const int zone = i < p->of[SYMM_ZONE_SYM] ? SYMM_ZONE_SYM : SYMM_ZONE_LOCAL;
        SYMM_ASSERT(z->bytes && z->bytes <= p->h->chunk && p->parts[i].bytes == z->bytes);
        SYMM_ASSERT(z->off + z->bytes <= p->extent[zone]);
        SYMM_ASSERT(i == 0 || i == p->of[SYMM_ZONE_SYM] || z[-1].off + z[-1].bytes <= z->off);
    }
}

static symmResult_t make_plan(symm_heap *h, symm_more more, plan *p) {
    uint64_t want[SYMM_ZONES];
    if (more.sym > p->reserve || more.local > p->reserve) return no_addresses(h, more);
    want[SYMM_ZONE_SYM] = symm_heap_round(more.sym, h->granularity);
    want[SYMM_ZONE_LOCAL] = symm_heap_round(more.local, h->granularity);
    for (int i = 0; i < SYMM_ZONES; i++)
        p->count += p->of[i] = list_parts(h, i, want[i], NULL, &p->extent[i]);
    if (p->extent[0] + p->extent[1] > p->reserve) return no_addresses(h, more);
    p->parts = SYMM_FAIL_ALLOC(heap_parts, calloc((size_t)p->count + 1, sizeof *p->parts));
    p->zoned = SYMM_FAIL_ALLOC(heap_zoned, calloc((size_t)p->count + 1, sizeof *p->zoned));
    if (!p->parts || !p->zoned) {
        p->count = 0;
        return SYMM_ERR(symmOutOfMemory, "no memory to list what heap %s grows by", h->name);
    }
    list_parts(h, SYMM_ZONE_SYM, want[0], p->zoned, &p->extent[0]);
    list_parts(h, SYMM_ZONE_LOCAL, want[1], p->zoned + p->of[0], &p->extent[1]);
    for (int i = 0; i < p->count; i++) {
        const int zone = i < p->of[0] ? SYMM_ZONE_SYM : SYMM_ZONE_LOCAL;
        p->parts[i] = (symm_part){symm_zone_flip(h, zone, p->zoned[i].off, p->zoned[i].bytes),
                                  p->zoned[i].bytes};
    }
    SYMM_CHECK(plan_check(p));
    return symmSuccess;
}

/* ---- into the zones -------------------------------------------------------------------------- */

static int room_for(symm_zone *z, int more) {
    if (z->count + more <= z->cap) return 1;
    int cap = z->cap * 2 > z->count + more ? z->cap * 2 : z->count + more;
    symm_part *chunks =
        SYMM_FAIL_ALLOC(heap_chunks, realloc(z->chunks, (size_t)cap * sizeof *chunks));
    if (!chunks) return 0;
    z->chunks = chunks;
    z->cap = cap;
    return 1;
}

/* With the lock. There is room. */
static void enter_chunk(symm_zone *z, symm_part chunk) {
    int i = z->count++;
    SYMM_ASSERT(i < z->cap);
    for (; i > 0 && z->chunks[i - 1].off > chunk.off; i--) z->chunks[i] = z->chunks[i - 1];
    z->chunks[i] = chunk;
    z->bytes += chunk.bytes;
    if (chunk.off + chunk.bytes > z->extent) symm_zone_set_extent(z, chunk.off + chunk.bytes);
}

static int zone_of(const plan *p, int i) {
    return i < p->of[SYMM_ZONE_SYM] ? SYMM_ZONE_SYM : SYMM_ZONE_LOCAL;
}

/* All pieces become free, or none. With the lock. */
static int add_free(plan *p) {
    symm_heap *h = p->h;
    int n = 0;
    while (n < p->count &&
           !symm_place_add(h->zone[zone_of(p, n)].place, p->zoned[n].off, p->zoned[n].bytes))
        n++;
    if (n == p->count) return 1;
    while (n-- > 0)
        symm_place_cut(h->zone[zone_of(p, n)].place, p->zoned[n].off, p->zoned[n].bytes);
    return 0;
}

/* Called when everything is mapped, before the agreement: tries what can fail, so that all ranks
 * fail with it. Other threads take LOCAL blocks meanwhile, so the new memory must not be free yet.
 * Afterwards the placement has reserved what it needs to know of it. */
static symmResult_t try_zones(void *arg) {
    plan *p = arg;
    symm_heap *h = p->h;
    symm_heap_lock(h);
    int good = room_for(&h->zone[0], p->of[0]) && room_for(&h->zone[1], p->of[1]) && add_free(p);
    for (int i = p->count; good && i-- > 0;)
        good = !symm_place_cut(h->zone[zone_of(p, i)].place, p->zoned[i].off, p->zoned[i].bytes);
    symm_heap_unlock(h);
    if (!good) return SYMM_ERR(symmOutOfMemory, "no memory for the chunks of heap %s", h->name);
    return symmSuccess;
}

/* All ranks have the memory: it becomes free. */
static symmResult_t keep(plan *p, uint64_t local_extent) {
    symm_heap *h = p->h;
    for (int i = 0; h->guard && i < p->count; i++)
        (void)symm_guard_paint(h, p->parts[i].off, p->parts[i].bytes, 1);
    symm_heap_lock(h);
    SYMM_ASSERT(p->extent[SYMM_ZONE_LOCAL] <= local_extent);
    const int good = add_free(p);
    for (int i = 0; i < p->count; i++) enter_chunk(&h->zone[zone_of(p, i)], p->zoned[i]);
    h->local_extent = local_extent;
    symm_heap_unlock(h);
    symm_heap_say_range(h);
    symm_window_changed(h->comm);
    if (good) return symmSuccess;
    symmResult_t r =
        SYMM_ERR(symmOutOfMemory, "no memory for the record of what heap %s grew by", h->name);
    symm_comm_break(h->comm, r, h->comm->rank, "growing a heap"); /* the others have grown */
    return r;
}

/* ---- grow ------------------------------------------------------------------------------------ */

typedef struct { /* what the ranks tell each other */
    int32_t code, count;
    uint64_t sym, local_extent, digest, stripes;
} offer;

symmResult_t symm_heap_compare(const symm_heap *h, uint64_t digest0, uint64_t digest, int rank,
                               const char *stage) {
    char text[SYMM_ERR_TEXT];
    if (digest == digest0) return symmSuccess;
    if (!symm_ledger_differ(h->ledger, 1, text, sizeof text))
        snprintf(text, sizeof text, "ranks 0 and %d, longer ago than the last %d calls", rank,
                 SYMM_LEDGER_CALLS);
    return SYMM_ERR(symmMismatch, "%s: the ranks differ in their calls on zone SYM of heap %s: %s",
                    stage, h->name, text);
}

/* All ranks see the same offers and return the same. */
static symmResult_t compare(symm_heap *h, const offer *all, const char *stage) {
    int alike = 1;
    for (int r = 1; r < h->comm->nranks; r++) {
        if (all[r].sym != all[0].sym)
            return SYMM_ERR(symmMismatch,
                            "%s: rank 0 grows zone SYM by %llu bytes, rank %d by %llu", stage,
                            (unsigned long long)all[0].sym, r, (unsigned long long)all[r].sym);
        SYMM_TRY(symm_heap_compare(h, all[0].digest, all[r].digest, r, stage));
        alike &= all[r].stripes == all[0].stripes;
    }
    return alike ? symmSuccess : symm_heap_stripes_compare(h, 0, stage);
}

static symmResult_t grow(symm_heap *h, symmResult_t status, symm_growth *g, plan *p, symm_more more,
                         uint64_t *local_extent) {
    symm_comm *c = h->comm;
    offer all[SYMM_MAX_RANKS];
    int counts[SYMM_MAX_RANKS];
    offer mine = {.code = (int32_t)status,
                  .count = g->count,
                  .sym = more.sym,
                  .local_extent = p->extent[SYMM_ZONE_LOCAL],
                  .digest = h->digest,
                  .stripes = symm_heap_stripes_word(h)};
    SYMM_TRY(symm_comm_gather(c, &mine, all, sizeof mine, g->stage));
    for (int r = 0; r < c->nranks; r++)
        if (all[r].code) return symm_comm_agree(c, status, g->stage);
    SYMM_TRY(compare(h, all, g->stage));
    *local_extent = 0;
    for (int r = 0; r < c->nranks; r++) {
        counts[r] = all[r].count;
        if (all[r].local_extent > *local_extent) *local_extent = all[r].local_extent;
    }
    return symm_growth_commit(g, counts);
}

symmResult_t symm_heap_more(symm_heap *h, symmResult_t mine, symm_more more, const char *stage) {
    uint64_t local_extent = 0;
    plan p = {.h = h, .reserve = h->reserve};
    symm_growth g = {.r = &h->region, .stage = stage, .ready = try_zones, .arg = &p};
    if (!mine) mine = make_plan(h, more, &p);
    g.parts = p.parts;
    g.count = p.count;
    g.alike = p.of[SYMM_ZONE_SYM];
    if (!mine) mine = symm_growth_prepare(&g);
    symmResult_t r = grow(h, mine, &g, &p, more, &local_extent);
    symm_growth_end(&g, !r);
    if (!r) {
        r = keep(&p, local_extent);
        /* Peers write here as soon as they return, so this comes after the painting. */
        if (h->guard) r = symm_comm_agree(h->comm, r, stage);
    }
    free(p.parts);
    free(p.zoned);
    return r;
}

/* ---- another place --------------------------------------------------------------------------- */

/* What SYM has and what is new, in one list. */
static symmResult_t list_all(const symm_heap *h, const plan *p, symm_part **list) {
    const symm_zone *z = &h->zone[SYMM_ZONE_SYM];
    symm_part *all =
        SYMM_FAIL_ALLOC(heap_moves, calloc((size_t)(z->count + p->count) + 1, sizeof *all));
    if (!all) return SYMM_ERR(symmOutOfMemory, "no memory to list what heap %s has", h->name);
    for (int i = 0; i < z->count; i++) all[i] = z->chunks[i];
    for (int i = 0; i < p->count; i++) all[z->count + i] = p->parts[i];
    *list = all;
    return symmSuccess;
}

/* next is open on all ranks. */
static symmResult_t move_into(symm_heap *h, symm_region *next, uint64_t sym, const char *stage) {
    uint64_t local_extent = 0;
    symm_part *all = NULL;
    const symm_more more = {sym, 0};
    plan p = {.h = h, .reserve = next->bytes};
    symm_growth g = {.r = next,
                     .stage = stage,
                     .old = h->zone[SYMM_ZONE_SYM].count,
                     .from = &h->region,
                     .ready = try_zones,
                     .arg = &p};
    symm_left *left = SYMM_FAIL_ALLOC(heap_left, calloc(1, sizeof *left));
    symmResult_t r =
        left ? symmSuccess : SYMM_ERR(symmOutOfMemory, "no memory to move heap %s", h->name);
    if (!r) r = make_plan(h, more, &p);
    if (!r) r = list_all(h, &p, &all);
    g.parts = all;
    g.count = all ? g.old + p.count : 0;
    g.alike = g.count;
    if (!r) r = symm_growth_prepare(&g);
    r = grow(h, r, &g, &p, more, &local_extent);
    symm_growth_end(&g, !r);
    if (!r) {
        symm_heap_move(h, next, left);
        left = NULL;
        r = keep(&p, local_extent);
    } else {
        symm_region_discard(next);
    }
    free(left);
    free(all);
    free(p.parts);
    free(p.zoned);
    return r;
}

symmResult_t symm_heap_relocate(symm_heap *h, symmResult_t mine, uint64_t reserve, uint64_t sym,
                                const char *stage) {
    symm_region next;
    SYMM_TRY(symm_region_open(h->comm, mine, reserve, stage, &next));
    return move_into(h, &next, sym, stage);
}

/* ---- public ---------------------------------------------------------------------------------- */

typedef struct {
    symmHeap_t heap;
    symm_more more;
} grow_args;

static symmResult_t grow_job(void *p) {
    const grow_args *a = p;
    symm_heap *h;
    symm_setup s;
    SYMM_TRY(symm_heap_enter(a->heap, 1, &h));
    symm_setup_begin(h->comm, &s);
    return symm_setup_leave(&s, symm_heap_more(h, s.status, a->more, "growing a heap"));
}

symmResult_t symmHeapGrow(symmHeap_t heap, size_t symBytes, size_t localBytes) {
    grow_args a = {heap, {symBytes, localBytes}};
    symm_heap *h;
    symmResult_t r = symm_heap_pin(heap, &h);
    if (r) return symm_group_refuse(r);
    r = symm_group_run(h->comm->handle, SYMM_JOB_BLOCKS, grow_job, &a, sizeof a);
    symm_heap_unpin(h);
    return r;
}
