/* memplan_blocks.c - blocks of a plan: their places, the barriers that they need, their frees. The
 * communicator's user thread. */
#include "memplan.h"

#include <stdlib.h>

#include "base/fail.h"
#include "host/comm/comm.h"

enum { GROW_MIN = 32 << 10, GROW_MAX = 16 << 20 };

static symmResult_t no_memory(void) {
    return SYMM_ERR(symmOutOfMemory, "no memory for the plan of a graph");
}

/* ---- regions --------------------------------------------------------------------------------- */

static int offer(symm_memplan *p, const symm_memregion *r) {
    for (int z = 0; z < SYMM_MEM_ZONES; z++)
        for (int i = 0; i < r->npieces[z] && !(p->alias && z == SYMM_MEM_SYM); i++)
            if (symm_gplan_offer(p->points, z, r->pieces[z][i].off, r->pieces[z][i].bytes))
                return -1;
    return p->alias ? symm_gplan_offer(p->points, SYMM_MEM_SYM, p->alias->first, p->alias->room)
                    : 0;
}

symmResult_t symm_memplan_settle_on(symm_memplan *p, symm_memlane *l) {
    if (p->region) return symmSuccess;
    SYMM_TRY(symm_memregion_of(l));
    symm_memregion *r = l->region;
    p->region = r;
    p->lane = l->ordinal;
    p->held = 1;
    r->refs++;
    if (r->alias && (!p->explicit_nodes || p->flags & SYMM_MEMPLAN_ALIAS)) {
        p->alias = r->alias;
        p->alias->refs++;
        symm_memalias_wake(p->alias);
    }
    if (!offer(p, r)) return symmSuccess;
    p->lost = 1; /* the planner knows only a part of the region */
    return no_memory();
}

static symmResult_t grow(symm_memplan *p, int zone, uint64_t bytes, const void *site) {
    symm_memregion *r = p->region;
    symm_heap *h = p->set->heap;
    const unsigned flags = (unsigned)symm_memlanes_flags(zone);
    const uint64_t unit = SYMM_PLACE_UNIT - 1, room = symm_heap_room(h, flags) & ~unit;
    uint64_t have = 0, off; /* of this zone only: LOCAL memory differs between ranks */
    for (int i = 0; i < r->npieces[zone]; i++) have += r->pieces[zone][i].bytes;
    uint64_t step = have / 16 & ~unit;
    step = step < GROW_MIN ? GROW_MIN : step > GROW_MAX ? GROW_MAX : step;
    if (step < bytes || room < bytes) step = bytes;
    if (step > room && room >= bytes) step = room;
    symm_mempiece *more = SYMM_FAIL_ALLOC(
        memplan_piece, realloc(r->pieces[zone], ((size_t)r->npieces[zone] + 1) * sizeof *more));
    if (!more) return no_memory();
    r->pieces[zone] = more;
    symmResult_t taken =
        symm_heap_take(h, step, SYMM_PLACE_UNIT, flags, SYMM_OWNER_GRAPH, p->lane, site, &off);
    if (taken == symmNeedGrow && step > bytes) { /* LOCAL: another thread has had some meanwhile */
        step = bytes;
        taken =
            symm_heap_take(h, step, SYMM_PLACE_UNIT, flags, SYMM_OWNER_GRAPH, p->lane, site, &off);
    }
    SYMM_TRY(taken);
    more[r->npieces[zone]++] = (symm_mempiece){off, step};
    r->reserved += step;
    if (r->reserved_high < r->reserved) r->reserved_high = r->reserved;
    return symm_gplan_offer(p->points, zone, off, step) ? no_memory() : symmSuccess;
}

/* ---- placing --------------------------------------------------------------------------------- */

static symmResult_t add_block(symm_memplan *p, const symm_memblock *b, int *block) {
    symm_memblock *more =
        SYMM_FAIL_ALLOC(memplan_block, realloc(p->blocks, ((size_t)p->nblocks + 1) * sizeof *more));
    if (!more) return no_memory();
    p->blocks = more;
    more[p->nblocks] = *b;
    *block = p->nblocks++;
    return symmSuccess;
}

/* Keeps this plan off blocks that other graphs of the lane have got since it looked last, and do
 * not free. They may be allocated while this graph runs. */
static symmResult_t keep_off(symm_memplan *p) {
    const symm_memregion *r = p->region;
    if (p->seen == r->placed) return symmSuccess;
    for (const symm_memplan *o = p->set->plans; o; o = o->next) {
        if (o == p || o->region != r) continue;
        const int holds[] = {[SYMM_MEM_LOCAL] = symm_memplan_holds(o, SYMM_MEM_LOCAL),
                             [SYMM_MEM_SYM] = symm_memplan_holds(o, SYMM_MEM_SYM)};
        for (int i = o->nblocks; i-- > 0 && o->blocks[i].serial > p->seen;) {
            const symm_memblock *b = &o->blocks[i];
            if (b->no < 0 || b->freed || !holds[b->zone]) continue;
            if (symm_gplan_bar(p->points, b->zone, b->at, b->bytes)) return no_memory();
        }
    }
    p->seen = r->placed;
    return symmSuccess;
}

/* Captures a barrier in front of the block. An error if it would run beside another call of the
 * communicator. */
static symmResult_t put_barrier(symm_memplan *p, symm_memlane *l, int *point) {
    for (int i = 0; i < p->ncalls; i++)
        if (!symm_gplan_follows(p->points, *point, p->calls[i]))
            return SYMM_ERR(symmInvalidUsage,
                            "symmLaneAlloc: this SYM block needs a barrier, which would run "
                            "beside a captured call of the communicator: allocate before the "
                            "fork, or after the join");
    int *more = SYMM_FAIL_ALLOC(memplan_barrier,
                                realloc(p->barriers, ((size_t)p->nbarriers + 1) * sizeof *more));
    if (!more) return no_memory();
    p->barriers = more;
    SYMM_TRY(symm_coll_barrier(p->set->comm, l->stream)); /* the observer notes it: note_captured */
    if (p->lost) return no_memory();
    SYMM_ASSERT(p->ncalls > p->nbarriers); /* the barrier was noted */
    more[p->nbarriers++] = p->calls[p->ncalls - 1];
    l->epochs++;
    return symm_memplan_point(p, l->stream, SYMM_POINT_PLAIN, point);
}

/* Aliased blocks: the planner is asked for the place, the memory is mapped there, then the block is
 * placed. So nothing has changed if the memory cannot be mapped. */
static symmResult_t place(symm_memplan *p, symm_memlane *l, int *point, symm_memblock *b,
                          const void *site) {
    const int aliased = p->alias && b->zone == SYMM_MEM_SYM;
    int why, hears = !p->explicit_nodes, grown = 0, backed = !aliased;
    SYMM_TRY(keep_off(p));
    if (aliased) SYMM_TRY(symm_memalias_open(p));
    for (;;) {
        int *no = backed ? &b->no : NULL;
        b->at = symm_gplan_alloc(p->points, *point, b->zone, b->bytes, hears, no, &why);
        b->off = aliased ? symm_memalias_offset(p, b->at) : b->at;
        if (b->at != SYMM_GPLAN_NONE && backed) return symmSuccess;
        if (b->at != SYMM_GPLAN_NONE) {
            SYMM_TRY(symm_memalias_back(p, b));
            backed = 1; /* now place it, at the same offset */
            continue;
        }
        if (why == SYMM_GPLAN_MEMORY) return no_memory();
        if (why == SYMM_GPLAN_HEAR) {
            /* If the barrier would only save memory, a branch goes without it. */
            const int needed = !symm_gplan_heard(p->points, *point);
            if (!needed && !symm_gplan_after_all(p->points, *point)) {
                hears = 0;
                continue;
            }
            SYMM_TRY(put_barrier(p, l, point));
        } else if (aliased) {
            return symm_memalias_full(p, b->bytes);
        } else {
            if (grown++) return SYMM_ERR(symmInternalError, "a region grew and holds no block");
            SYMM_TRY(grow(p, b->zone, b->bytes, site));
        }
    }
}

symmResult_t symm_memplan_place(symm_memplan *p, symm_memlane *l, int point, uint64_t bytes,
                                unsigned flags, const void *site, int *block) {
    symmResult_t status;
    symm_memblock b = {.bytes = bytes,
                       .zone = flags & SYMM_ALLOC_LOCAL ? SYMM_MEM_LOCAL : SYMM_MEM_SYM,
                       .access = l->access};
    const int id = p->nblocks;
    SYMM_TRY(add_block(p, &b, block));
    if (flags & SYMM_ALLOC_KEEP) {
        b.no = -1;
        if (b.zone == SYMM_MEM_SYM && !p->explicit_nodes && p->set->comm->nranks > 1 &&
            !symm_gplan_heard(p->points, point))
            SYMM_TRY_GOTO(put_barrier(p, l, &point), drop);
        SYMM_TRY_GOTO(symm_heap_take(p->set->heap, bytes, SYMM_PLACE_UNIT, flags & SYMM_ALLOC_LOCAL,
                                     SYMM_OWNER_GRAPH, p->lane, site, &b.off),
                      drop);
        b.at = b.off;
        p->region->reserved += bytes;
        if (p->region->reserved_high < p->region->reserved)
            p->region->reserved_high = p->region->reserved;
    } else {
        SYMM_TRY_GOTO(place(p, l, &point, &b, site), drop);
    }
    b.from = point;
    b.serial = ++p->region->placed;
    if (p->seen == b.serial - 1) p->seen = b.serial;
    p->clear_of = UINT64_MAX;
    p->blocks[id] = b;
    p->nleft++;
    if (b.zone == SYMM_MEM_SYM) p->has_sym = 1;
    if (p->has_sym && !p->sym_no) p->sym_no = symm_heap_calls(p->set->heap) + 1;
    SYMM_CHECK(symm_memplan_check(p));
    return symmSuccess;
drop:
    p->nblocks = id;
    return status;
}

/* ---- freeing --------------------------------------------------------------------------------- */

int symm_memplan_find(const symm_memplan *p, uint64_t off) {
    for (int i = p->nblocks; i-- > 0;)
        if (p->blocks[i].off == off) return i;
    return -1;
}

static symmResult_t free_own(symm_memplan *p, int point, symm_memblock *b, const void *ptr) {
    if (b->freed)
        return SYMM_ERR(symmInvalidArgument, "ptr=%p is already freed in this graph", ptr);
    int r = (b->no < 0 || b->red) && !symm_gplan_follows(p->points, point, b->from) ? -2 : 0;
    if (!r && b->no >= 0) r = symm_gplan_free(p->points, point, b->no);
    if (r == -2)
        return SYMM_ERR(symmInvalidArgument,
                        "ptr=%p is freed at a point that does not come after its allocation", ptr);
    b->freed = 1;
    p->nleft--;
    SYMM_CHECK(symm_memplan_check(p));
    return symmSuccess;
}

/* How sure it is that the block is allocated: 2 a plan's launch has left it, 1 it may be, 0 not. */
static int sureness(const symm_memplan *p, const symm_memblock *b) {
    return b->live ? 2 : symm_unbound_out(p, b);
}

/* Finds a block of another graph that outlives it. Prefers one that is surely allocated to one
 * whose plan is about to go. NULL: none; *own: a block there was freed in its own graph. A block
 * that got its free node after the launch that left it is still allocated by that launch. */
static symm_memplan *find_outliving(const symm_memlanes *s, const symm_memplan *but, uint64_t off,
                                    int *block, int *own) {
    symm_memplan *found = NULL;
    int best = -1;
    *own = 0;
    for (symm_memplan *p = s->plans; p && best < 2; p = p->next) {
        const int i = p == but ? -1 : symm_memplan_find(p, off);
        if (i < 0) continue;
        if (p->blocks[i].freed && !p->blocks[i].live) {
            *own = 1;
            continue;
        }
        const int sure = sureness(p, &p->blocks[i]);
        if (sure <= best) continue;
        *block = i;
        found = p;
        best = sure;
    }
    return found;
}

static symmResult_t not_there(const symm_memlanes *s, int own, uint64_t off, const void *ptr) {
    if (own)
        return SYMM_ERR(symmInvalidArgument,
                        "ptr=%p was freed in the graph that allocates it: it cannot be freed "
                        "elsewhere",
                        ptr);
    if (symm_memtable_find(&s->table, off))
        return SYMM_ERR(symmInvalidArgument,
                        "ptr=%p was allocated outside a graph: a captured free cannot free it",
                        ptr);
    return SYMM_ERR(symmInvalidArgument, "ptr=%p does not begin a block of a lane", ptr);
}

void symm_memplan_note(const symm_memplan *p, int block, int freed, int lane, const void *site) {
    const symm_memblock *b = &p->blocks[block];
    if (b->zone == SYMM_MEM_SYM)
        symm_heap_note(p->set->heap, freed, b->bytes - b->red, lane, b->off, site);
}

symmResult_t symm_memplan_free_at(symm_memplan *p, int point, uint64_t off, const void *ptr,
                                  const void *site) {
    int block = symm_memplan_find(p, off), own;
    if (block >= 0) {
        SYMM_TRY(free_own(p, point, &p->blocks[block], ptr));
        symm_memplan_note(p, block, 1, p->lane, site);
        return symmSuccess;
    }
    symm_memplan *o = find_outliving(p->set, p, off, &block, &own);
    if (o && o->blocks[block].freed) { /* freed in its own graph, from the next launch on */
        o = NULL;
        own = 1;
    }
    if (!o) return not_there(p->set, own, off, ptr);
    for (int i = 0; i < p->nfrees; i++)
        if (p->frees[i].plan == o && p->frees[i].block == block)
            return SYMM_ERR(symmInvalidArgument, "ptr=%p is already freed in this graph", ptr);
    struct foreign *more =
        SYMM_FAIL_ALLOC(memplan_free, realloc(p->frees, ((size_t)p->nfrees + 1) * sizeof *more));
    if (!more) return no_memory();
    p->frees = more;
    more[p->nfrees++] = (struct foreign){o, block};
    symm_memplan_note(o, block, 1, p->lane, site);
    return symmSuccess;
}

symmResult_t symm_memplan_free_now(symm_memlane *l, uint64_t off, const void *ptr,
                                   const void *site) {
    int block, own;
    symm_memplan *p = find_outliving(l->set, NULL, off, &block, &own);
    if (!p) return not_there(l->set, own, off, ptr);
    symm_memblock *b = &p->blocks[block];
    if (!b->live && !symm_unbound_may_free(p, b))
        return SYMM_ERR(symmInvalidArgument,
                        "ptr=%p is not allocated: its graph was not launched %ssince it was "
                        "freed",
                        ptr, p->handle ? "by symmMemPlanLaunch " : "");
    const symmResult_t found = l->set->guard && b->live ? symm_memguard_left(l, p, b) : symmSuccess;
    SYMM_TRY(symm_memuse_freed(p->region, b, l));
    SYMM_ASSERT(!b->live || p->nlive > 0);
    if (b->live) p->nlive--;
    b->live = 0;
    symm_unbound_freed(p, b);
    l->frees++;
    symm_memplan_note(p, block, 1, l->ordinal, site);
    symm_memplan_settle(p);
    return found;
}
