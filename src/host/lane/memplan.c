/* memplan.c - the memory of a capture: where its blocks lie, which barriers they need, who frees
 * them. The communicator's user thread. */
#include "memplan.h"

#include <stdlib.h>

#include "base/fail.h"
#include "host/comm/comm.h"
#include "host/window/space.h"

enum { GROW_MIN = 32 << 10, GROW_MAX = 16 << 20 };

static symmResult_t no_memory(void) {
    return SYMM_ERR(symmOutOfMemory, "no memory for the plan of a graph");
}

/* ---- regions --------------------------------------------------------------------------------- */

symmResult_t symm_memregion_of(symm_memlane *l) {
    if (l->region) return symmSuccess;
    symm_memregion *r = SYMM_FAIL_ALLOC(memplan_region, calloc(1, sizeof *r));
    if (!r) return no_memory();
    r->set = l->set;
    r->refs = 1;
    r->next = l->set->regions;
    l->set->regions = r;
    l->region = r;
    return symmSuccess;
}

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
    p->lost = 1; /* the planner knows a part of it */
    return no_memory();
}

static symmResult_t grow(symm_memplan *p, int zone, uint64_t bytes, const void *site) {
    symm_memregion *r = p->region;
    symm_heap *h = p->set->heap;
    const unsigned flags = (unsigned)symm_memlanes_flags(zone);
    const uint64_t unit = SYMM_PLACE_UNIT - 1, room = symm_heap_room(h, flags) & ~unit;
    uint64_t have = 0, off; /* of this zone: what ranks have in LOCAL differs */
    for (int i = 0; i < r->npieces[zone]; i++) have += r->pieces[zone][i].bytes;
    uint64_t step = have / 16 & ~unit;
    step = step < GROW_MIN ? GROW_MIN : step > GROW_MAX ? GROW_MAX : step;
    if (step < bytes || room < bytes) step = bytes;
    if (step > room && room >= bytes) step = room;
    symm_mempiece *more = SYMM_FAIL_ALLOC(
        memplan_piece, realloc(r->pieces[zone], ((size_t)r->npieces[zone] + 1) * sizeof *more));
    if (!more) return no_memory();
    r->pieces[zone] = more;
    SYMM_TRY(
        symm_heap_take(h, step, SYMM_PLACE_UNIT, flags, SYMM_OWNER_GRAPH, p->lane, site, &off));
    more[r->npieces[zone]++] = (symm_mempiece){off, step};
    r->reserved += step;
    if (r->reserved_high < r->reserved) r->reserved_high = r->reserved;
    return symm_gplan_offer(p->points, zone, off, step) ? no_memory() : symmSuccess;
}

/* ---- blocks ---------------------------------------------------------------------------------- */

static symmResult_t add_block(symm_memplan *p, const symm_memblock *b, int *block) {
    symm_memblock *more =
        SYMM_FAIL_ALLOC(memplan_block, realloc(p->blocks, ((size_t)p->nblocks + 1) * sizeof *more));
    if (!more) return no_memory();
    p->blocks = more;
    more[p->nblocks] = *b;
    *block = p->nblocks++;
    return symmSuccess;
}

/* Off the blocks that other graphs of the lane have got since this plan looked last and do not
 * free: they may be allocated while this one runs. */
static symmResult_t keep_off(symm_memplan *p) {
    const symm_memregion *r = p->region;
    if (p->seen == r->placed) return symmSuccess;
    for (const symm_memplan *o = p->set->plans; o; o = o->next) {
        if (o == p || o->region != r || !o->held) continue;
        for (int i = o->nblocks; i-- > 0 && o->blocks[i].serial > p->seen;) {
            const symm_memblock *b = &o->blocks[i];
            if (b->no < 0 || b->freed) continue;
            if (symm_gplan_bar(p->points, b->zone, b->at, b->bytes)) return no_memory();
        }
    }
    p->seen = r->placed;
    return symmSuccess;
}

/* A barrier in front, unless that would run beside another call of the communicator. */
static symmResult_t put_barrier(symm_memplan *p, symm_memlane *l, int *point) {
    for (int i = 0; i < p->ncalls; i++)
        if (!symm_gplan_follows(p->points, *point, p->calls[i]))
            return SYMM_ERR(symmInvalidUsage,
                            "symmLaneAlloc: a SYM block in a branch beside a captured call of the "
                            "communicator: the barrier it needs cannot be put there. Allocate "
                            "before the fork, or behind the join");
    int *more = SYMM_FAIL_ALLOC(memplan_barrier,
                                realloc(p->barriers, ((size_t)p->nbarriers + 1) * sizeof *more));
    if (!more) return no_memory();
    p->barriers = more;
    SYMM_TRY(symm_coll_barrier(p->set->comm, l->stream)); /* notes itself: symm_memplan_called */
    if (p->lost) return no_memory();
    more[p->nbarriers++] = p->calls[p->ncalls - 1];
    l->epochs++;
    return symm_memplan_point(p, l->stream, SYMM_POINT_PLAIN, point);
}

/* Aliased: memory is mapped where the block will lie before it does, so that where it cannot be
 * nothing has changed. */
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
            backed = 1; /* now for good: the same place */
            continue;
        }
        if (why == SYMM_GPLAN_MEMORY) return no_memory();
        if (why == SYMM_GPLAN_HEAR) {
            /* Where only memory is saved by it, a branch does without. */
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
    return symmSuccess;
drop:
    p->nblocks = id;
    return status;
}

/* ---- freeing --------------------------------------------------------------------------------- */

/* The newest block of the plan that begins there, -1 none. */
static int find_block(const symm_memplan *p, uint64_t off) {
    for (int i = p->nblocks; i-- > 0;)
        if (p->blocks[i].off == off) return i;
    return -1;
}

static symmResult_t free_own(symm_memplan *p, int point, symm_memblock *b, const void *ptr) {
    if (b->freed)
        return SYMM_ERR(symmInvalidArgument, "ptr=%p is freed already in this graph", ptr);
    int r = (b->no < 0 || b->red) && !symm_gplan_follows(p->points, point, b->from) ? -2 : 0;
    if (!r && b->no >= 0) r = symm_gplan_free(p->points, point, b->no);
    if (r == -2)
        return SYMM_ERR(symmInvalidArgument,
                        "ptr=%p is freed where its allocation does not come before", ptr);
    b->freed = 1;
    p->nleft--;
    return symmSuccess;
}

/* How sure it is that the block is allocated. */
static int sureness(const symm_memplan *p, const symm_memblock *b) {
    return b->live ? 2 : symm_memloose_out(p, b);
}

/* A block of another graph that outlives it, one that is allocated before one whose plan is about
 * to go; NULL: none, and *own: it was freed in its own. One that has got its free after the
 * launch that left it is allocated still: this launch's. */
static symm_memplan *find_outliving(const symm_memlanes *s, const symm_memplan *but, uint64_t off,
                                    int *block, int *own) {
    symm_memplan *found = NULL;
    int best = -1;
    *own = 0;
    for (symm_memplan *p = s->plans; p && best < 2; p = p->next) {
        const int i = p == but ? -1 : find_block(p, off);
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
                        "ptr=%p was allocated outside of any graph: a captured free cannot free it",
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
    int block = find_block(p, off), own;
    if (block >= 0) {
        SYMM_TRY(free_own(p, point, &p->blocks[block], ptr));
        symm_memplan_note(p, block, 1, p->lane, site);
        return symmSuccess;
    }
    symm_memplan *o = find_outliving(p->set, p, off, &block, &own);
    if (o && o->blocks[block].freed) { /* in its own graph: from the next launch on */
        o = NULL;
        own = 1;
    }
    if (!o) return not_there(p->set, own, off, ptr);
    for (int i = 0; i < p->nfrees; i++)
        if (p->frees[i].plan == o && p->frees[i].block == block)
            return SYMM_ERR(symmInvalidArgument, "ptr=%p is freed already in this graph", ptr);
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
    if (!b->live && !symm_memloose_may_free(p, b))
        return SYMM_ERR(symmInvalidArgument,
                        "ptr=%p is not allocated: %s launched its graph since it was freed", ptr,
                        p->handle ? "symmMemPlanLaunch has not" : "nobody has");
    const symmResult_t found = l->set->guard && b->live ? symm_memguard_left(l, p, b) : symmSuccess;
    SYMM_TRY(symm_memlate_freed(p->region, b, l));
    if (b->live) p->nlive--;
    b->live = 0;
    symm_memloose_freed(p, b);
    l->frees++;
    symm_memplan_note(p, block, 1, l->ordinal, site);
    symm_memplan_settle(p);
    return found;
}

/* ---- captured calls -------------------------------------------------------------------------- */

static symm_memplan *find_capture(const symm_memlanes *s, uint64_t capture) {
    for (symm_memplan *p = s->plans; p; p = p->next)
        if (p->capture == capture && !p->explicit_nodes) return p;
    return NULL;
}

static symmResult_t plan_of(symm_memlanes *s, symmStream_t stream, const symm_memstate *st,
                            symm_memplan **out) {
    *out = find_capture(s, st->capture);
    if (*out) return symmSuccess;
    if (s->comm->cuda && !symm_cuda_sees_graphs())
        return SYMM_ERR(symmNotSupported,
                        "captured allocations need a CUDA driver of 12.3 or later, not %d.%d",
                        symm_cuda_version() / 1000, symm_cuda_version() % 1000 / 10);
    if (s->blind == st->capture) return no_memory();
    symm_memplan_reap(s->comm);
    SYMM_TRY(symm_memplan_new(s, out));
    (*out)->capture = st->capture;
    (*out)->graph = st->graph;
    symm_memplan_retain(*out); /* so that it is let go in one way, whatever fails */
    symmResult_t r = symm_memplan_hold(*out, stream);
    symm_memplan_release(*out);
    if (r) symm_memplan_reap(s->comm);
    return r;
}

static symmResult_t note_caller(symm_memplan *p, const symm_memlane *l) {
    for (int i = 0; i < p->ncallers; i++)
        if (p->callers[i] == l->ordinal) return symmSuccess;
    int *more = SYMM_FAIL_ALLOC(memplan_callers,
                                realloc(p->callers, ((size_t)p->ncallers + 1) * sizeof *more));
    if (!more) return no_memory();
    p->callers = more;
    more[p->ncallers++] = l->ordinal;
    return symmSuccess;
}

symmResult_t symm_memplan_alloc(symm_memlane *l, const symm_memstate *st, uint64_t asked,
                                unsigned flags, const void *site, uint64_t *off) {
    const uint64_t bytes =
        symm_round_up(l->set->guard ? asked + SYMM_MEMLANE_RED : asked, SYMM_PLACE_UNIT);
    symm_memplan *p;
    int point, block;
    SYMM_TRY(plan_of(l->set, l->stream, st, &p));
    if (p->lost) return no_memory();
    SYMM_TRY(symm_memplan_settle_on(p, l));
    SYMM_TRY(note_caller(p, l));
    SYMM_TRY(symm_memplan_point(p, l->stream, SYMM_POINT_PLAIN, &point));
    SYMM_TRY(symm_memplan_place(p, l, point, bytes, flags, site, &block));
    if (l->set->guard) SYMM_TRY(symm_memguard_captured(l, p, &p->blocks[block], asked));
    l->allocs++;
    *off = p->blocks[block].off;
    symm_memplan_note(p, block, 0, l->ordinal, site);
    return symmSuccess;
}

/* Guard mode: what the graph does with its own block comes before the free's point. What cannot be
 * freed there is left to whoever says so. */
static symmResult_t guard_free(symm_memplan *p, symm_memlane *l, uint64_t off, int *point) {
    const int i = find_block(p, off);
    const symm_memblock *b = i < 0 ? NULL : &p->blocks[i];
    if (!b || !b->red || b->freed || !symm_gplan_follows(p->points, *point, b->from))
        return symmSuccess;
    SYMM_TRY(symm_memguard_uncaptured(l, p, b));
    return symm_memplan_point(p, l->stream, SYMM_POINT_PLAIN, point);
}

symmResult_t symm_memplan_free(symm_memlane *l, const symm_memstate *st, uint64_t off,
                               const void *ptr, const void *site) {
    symm_memplan *p;
    int point;
    SYMM_TRY(plan_of(l->set, l->stream, st, &p));
    if (p->lost) return no_memory();
    SYMM_TRY(symm_memplan_settle_on(p, l));
    SYMM_TRY(note_caller(p, l));
    SYMM_TRY(symm_memplan_point(p, l->stream, SYMM_POINT_PLAIN, &point));
    if (l->set->guard) SYMM_TRY(guard_free(p, l, off, &point));
    SYMM_TRY(symm_memplan_free_at(p, point, off, ptr, site));
    l->frees++;
    return symmSuccess;
}

int symm_memplan_live(const symm_memlanes *s) {
    int n = 0;
    for (const symm_memplan *p = s->plans; p; p = p->next) n += p->nlive;
    return n;
}

void symm_memplan_forget(symm_memlanes *s) {
    symm_memplan *p = s->plans;
    while (p) {
        const int had = p->nlive || symm_memloose_any(p);
        for (int i = 0; had && i < p->nblocks; i++) p->blocks[i].live = 0;
        p->nlive = 0;
        symm_memloose_forget(p);
        if (had) symm_memplan_settle(p); /* which may free others */
        p = had ? s->plans : p->next;
    }
}

/* Nobody can bind a plan of the lane any more. Settling one may free others: each time the list is
 * looked at anew. */
static int orphan_one(symm_memlane *l) {
    for (symm_memplan *p = l->set->plans; p; p = p->next) {
        if (p->region != l->region || p->handle || p->destroyed) continue;
        p->destroyed = 1;
        symm_memplan_settle(p);
        return 1;
    }
    return 0;
}

void symm_memplan_orphan(symm_memlane *l) {
    symm_memplan_reap(l->set->comm);
    if (l->set->alive == 1) symm_memplan_forget(l->set); /* watched blocks have been refused */
    if (!l->region) return;
    while (orphan_one(l)) continue;
    symm_memalias_unref(l->region->alias);
    l->region->alias = NULL;
    symm_memregion_unref(l->region);
    l->region = NULL;
}

/* ---- the communicator's calls ---------------------------------------------------------------- */

static symmResult_t add_call(symm_memplan *p, symmStream_t stream, int hears) {
    int point;
    int *more =
        SYMM_FAIL_ALLOC(memplan_call, realloc(p->calls, ((size_t)p->ncalls + 1) * sizeof *more));
    if (!more) return no_memory();
    p->calls = more;
    SYMM_TRY(symm_memplan_point(p, stream, hears ? SYMM_POINT_HEAR : SYMM_POINT_PLAIN, &point));
    more[p->ncalls++] = point;
    return symmSuccess;
}

/* The call itself is captured: what fails here makes later blocks of this capture fail. */
void symm_memplan_called(symm_comm *c, symmStream_t stream, int hears) {
    symm_memstate st;
    if (symm_mem_state(c, stream, &st) || st.how != SYMM_STREAM_CAPTURED) return;
    for (symm_memlanes *s = c->lanes.sets; s; s = s->next) {
        symm_memplan *p;
        if (plan_of(s, stream, &st, &p))
            s->blind = st.capture;
        else if (add_call(p, stream, hears))
            p->lost = 1;
    }
}

symmResult_t symm_memplan_may_call(symm_comm *c, symmStream_t stream) {
    symm_memstate st;
    SYMM_TRY(symm_mem_state(c, stream, &st));
    for (symm_memlanes *s = c->lanes.sets; s; s = s->next) {
        int point;
        symm_memplan *p = find_capture(s, st.capture);
        if (!p || !p->nbarriers) continue;
        SYMM_TRY(symm_memplan_point(p, stream, SYMM_POINT_PLAIN, &point));
        for (int i = 0; i < p->nbarriers; i++)
            if (!symm_gplan_follows(p->points, point, p->barriers[i]))
                return SYMM_ERR(symmInvalidUsage,
                                "stream=%p: this call would run beside a barrier that a SYM block "
                                "of the same capture needs: join its stream first",
                                (void *)stream);
    }
    return symmSuccess;
}

void symm_memlane_called(symm_comm *c, symmStream_t stream, int hears, int captured) {
    if (captured) {
        if (!c->cuda || symm_cuda_sees_graphs()) symm_memplan_called(c, stream, hears);
    } else if (hears) {
        c->lanes.heard++;
        c->lanes.heard_stream = stream;
        c->lanes.heard_any = 1;
    }
}

const symm_observer symm_memlane_observer = {symm_memplan_may_call, symm_memlane_called};

int symm_memplan_inside(void *set, uint64_t off, uint64_t *begin, uint64_t *bytes, int *lane) {
    const symm_memlanes *s = set;
    for (const symm_memplan *p = s->plans; p; p = p->next)
        for (int i = p->nblocks; i-- > 0;) {
            const symm_memblock *b = &p->blocks[i];
            if (off - b->off >= b->bytes - b->red) continue;
            *begin = b->off;
            *bytes = b->bytes - b->red;
            *lane = p->lane;
            return 1;
        }
    return 0;
}
