/* memlane_pool.c - the memory that lanes share: pieces of the heap, given to lanes block by block.
 * The communicator's user thread. memlane.h defines the words. Every decision depends on counts and
 * bytes only. So ranks that make the same calls get the same offsets, and put the same barriers on
 * their streams. */
#include <stdlib.h>

#include "base/fail.h"
#include "host/comm/comm.h"
#include "memlane.h"

enum { STEP_MIN = 32 << 10, STEP_MAX = 16 << 20 };

static uint64_t most(uint64_t a, uint64_t b) {
    return a > b ? a : b;
}

static uint64_t peak(const symm_memzone *z) {
    return most(z->peak, z->peak_before);
}

/* ---- epochs ---------------------------------------------------------------------------------- */

void symm_memlane_keep(symm_memlane *l, symm_memrec *r) {
    symm_memzone *z = &l->zone[r->zone];
    symm_memrec **head = &z->bins[symm_memlane_bin(r->bytes)];
    r->state = SYMM_REC_KEPT;
    r->next = *head;
    *head = r;
    z->kept += r->bytes;
    SYMM_ASSERT(r->bytes && r->lane < l->set->made);
}

/* Blocks that were freed before call number `heard` (comm->lanes.heard) are free on all ranks. */
static void keep_until(symm_memlane *l, uint64_t heard) {
    symm_memzone *z = &l->zone[SYMM_MEM_SYM];
    while (l->pending_first && l->pending_first->stamp < heard) {
        symm_memrec *r = l->pending_first;
        l->pending_first = r->next;
        SYMM_ASSERT(r->bytes <= z->pending);
        z->pending -= r->bytes;
        symm_memlane_keep(l, r);
    }
    if (!l->pending_first) l->pending_last = NULL;
}

void symm_memlane_observe(symm_memlane *l) {
    const symm_comm *c = l->set->comm;
    if (l->set->guard) return; /* guard mode poisons between two barriers: symm_memguard_heard */
    if (!l->pending_first || c->lanes.heard_stream != l->stream || !c->lanes.heard_any) return;
    if (l->pending_first->stamp >= c->lanes.heard) return;
    keep_until(l, c->lanes.heard);
    l->spared++;
}

symmResult_t symm_memlane_close(symm_memlane *l) {
    symm_memlane_observe(l);
    if (!l->pending_first) return symmSuccess;
    SYMM_TRY(symm_mem_open(l->set->comm, l->stream));
    SYMM_TRY(symm_coll_barrier(l->set->comm, l->stream));
    if (l->set->guard) SYMM_TRY(symm_memguard_heard(l));
    keep_until(l, UINT64_MAX);
    l->epochs++;
    return symmSuccess;
}

/* ---- giving ---------------------------------------------------------------------------------- */

/* Removes the lane from the list of those that have given. */
static void unlist(symm_memlane *l, int zone) {
    symm_memzone *z = &l->zone[zone];
    if (!z->gave) return;
    SYMM_ASSERT(z->newer ? z->newer->zone[zone].older == l : l->set->pool[zone].newest == l);
    SYMM_ASSERT(!z->older || z->older->zone[zone].newer == l);
    *(z->newer ? &z->newer->zone[zone].older : &l->set->pool[zone].newest) = z->older;
    if (z->older) z->older->zone[zone].newer = z->newer;
    z->newer = z->older = NULL;
}

symmResult_t symm_memlane_mark(symm_memlane *l, int zone) {
    symm_mempool *p = &l->set->pool[zone];
    symm_memzone *z = &l->zone[zone];
    SYMM_TRY(symm_memmark_set(l->set->comm, &z->given, l->stream));
    SYMM_ASSERT(p->newest != l || z->gave == p->gives);
    unlist(l, zone);
    if (p->newest) p->newest->zone[zone].newer = l;
    z->older = p->newest;
    p->newest = l;
    z->behind = z->followed;
    z->gave = ++p->gives;
    if (z->followed == z->gave - 1) z->followed = z->gave; /* it has followed all but its own */
    return symmSuccess;
}

void symm_memlane_unmark(symm_memlane *l, int zone) {
    unlist(l, zone);
    l->zone[zone].gave = 0;
    symm_memmark_end(l->set->comm, &l->zone[zone].given);
}

/* The block's bytes go to the pool. The lane has been marked. */
static void give(symm_memlane *l, symm_memrec *r) {
    symm_mempool *p = &l->set->pool[r->zone];
    SYMM_ASSERT(p->newest == l && l->zone[r->zone].gave == p->gives);
    p->given[p->ngiven++ % SYMM_MEMLANE_GIVEN] =
        (symm_memgiven){r->off, r->bytes, p->gives, l->ordinal};
    if (l->set->guard && !r->painted) l->set->guard->unpainted[r->zone] = 1;
    symm_place_give(p->place, symm_mempool_fine(r->off));
    symm_memtable_drop(&l->set->table, r);
}

symmResult_t symm_memlane_flush(symm_memlane *l, int zone) {
    symm_memzone *z = &l->zone[zone];
    if (!z->kept) return symmSuccess;
    SYMM_TRY(symm_memlane_mark(l, zone));
    for (int i = 0; i < SYMM_MEMLANE_BINS; i++) {
        for (symm_memrec *r = z->bins[i], *next; r; r = next) {
            next = r->next;
            give(l, r);
        }
        z->bins[i] = NULL;
    }
    z->kept = 0;
    SYMM_CHECK(symm_mempool_check(l->set, zone));
    return symmSuccess;
}

/* Puts the lane's stream behind everything that others have given since it last followed them. The
 * mark of a lane that had followed others when it gave stands for theirs too. So the walk goes from
 * the newest mark down, and stops where the rest is behind a mark that was followed. A lane that
 * takes comes behind all of them in any case. If it also gives, it follows first, so that its mark
 * stands for theirs: where lanes take and give in turns, the next one waits for the newest mark
 * only. */
static symmResult_t follow_others(symm_memlane *l, int zone) {
    symm_mempool *p = &l->set->pool[zone];
    symm_memzone *z = &l->zone[zone];
    uint64_t behind = z->followed;
    for (symm_memlane *o = p->newest; o && o->zone[zone].gave > behind; o = o->zone[zone].older) {
        const symm_memzone *g = &o->zone[zone];
        behind = most(behind, g->behind);
        if (o->stream == l->stream) continue; /* the same stream needs no wait */
        SYMM_TRY(symm_memmark_follow(l->set->comm, &g->given, l->stream));
        l->follows++;
    }
    z->followed = p->gives;
    return symmSuccess;
}

/* 1: another lane has given some of these bytes since this lane last followed all; or the ring does
 * not reach back that far. */
static int given_since(const symm_memlane *l, int zone, uint64_t off, uint64_t bytes) {
    const symm_mempool *p = &l->set->pool[zone];
    for (uint64_t i = p->ngiven; i-- > 0;) {
        const symm_memgiven *g = &p->given[i % SYMM_MEMLANE_GIVEN];
        if (p->ngiven - i > SYMM_MEMLANE_GIVEN) return 1;
        if (g->seq <= l->zone[zone].followed) return 0;
        if (g->lane != l->ordinal && g->off < off + bytes && off < g->off + g->bytes) return 1;
    }
    return 0;
}

/* ---- pieces ---------------------------------------------------------------------------------- */

static symmResult_t no_memory(void) {
    return SYMM_ERR(symmOutOfMemory, "no memory for a lane's records");
}

static symmResult_t add_piece(symm_memlane *l, int zone, uint64_t bytes, const void *site) {
    symm_memlanes *s = l->set;
    symm_mempool *p = &s->pool[zone];
    symmResult_t status;
    uint64_t off;
    symm_mempiece *more =
        SYMM_FAIL_ALLOC(memlane_piece, realloc(p->pieces, ((size_t)p->npieces + 1) * sizeof *more));
    if (!more) return no_memory();
    p->pieces = more;
    SYMM_TRY(symm_heap_take(s->heap, bytes, SYMM_PLACE_UNIT, (unsigned)symm_memlanes_flags(zone),
                            SYMM_OWNER_LANE, l->ordinal, site, &off));
    /* Guard mode: a peer may still free and poison the last block that was there. */
    if (s->guard && zone == SYMM_MEM_SYM && s->comm->nranks > 1)
        SYMM_TRY_GOTO(symm_coll_barrier(s->comm, l->stream), give_back);
    if (symm_place_add(p->place, symm_mempool_fine(off), symm_mempool_fine(bytes))) {
        SYMM_TRY_GOTO(no_memory(), give_back);
    }
    SYMM_ASSERT(off % SYMM_PLACE_UNIT == 0 && bytes % SYMM_PLACE_UNIT == 0);
    more[p->npieces++] = (symm_mempiece){off, bytes};
    p->reserved += bytes;
    return symmSuccess;
give_back:
    symm_heap_give(s->heap, off, SYMM_OWNER_LANE, site, NULL);
    return status;
}

/* Bytes for a new piece: enough for the block, and a 64th of what the pool has, as far as the heap
 * has room. 0: the heap has no room for the block. */
static uint64_t piece_for(const symm_memlanes *s, int zone, uint64_t bytes) {
    const uint64_t room = symm_heap_room(s->heap, (unsigned)symm_memlanes_flags(zone));
    uint64_t step = s->pool[zone].reserved / 64 & ~(uint64_t)(SYMM_PLACE_UNIT - 1);
    step = step < STEP_MIN ? STEP_MIN : step > STEP_MAX ? STEP_MAX : step;
    step = most(step, bytes);
    return room < bytes ? 0 : step < room ? step : room & ~(uint64_t)(SYMM_PLACE_UNIT - 1);
}

/* All lanes give what they can. A lane under capture cannot, because its stream takes no eager
 * work. Nor can a lane whose stream is shut. For SYM memory that is an error: other ranks, where
 * nothing is shut, would get the memory. */
static symmResult_t reclaim(symm_memlanes *s, int zone) {
    for (int i = 0; i < s->made; i++) {
        symm_memstate st;
        symm_memlane *o = s->lanes[i];
        if (!o || (!o->zone[zone].kept && !(zone == SYMM_MEM_SYM && o->pending_first))) continue;
        const int alive = symm_mem_alive(s->comm, o->stream);
        if (alive) SYMM_TRY(symm_mem_state(s->comm, o->stream, &st));
        if (alive && st.how == SYMM_STREAM_CAPTURED) continue;
        if (alive && zone == SYMM_MEM_LOCAL && symm_mem_shut(s->comm, o->stream)) continue;
        if (alive && zone == SYMM_MEM_SYM) SYMM_TRY(symm_memlane_close(o));
        SYMM_TRY(symm_memlane_flush(o, zone));
    }
    return symmSuccess;
}

/* ---- taking ---------------------------------------------------------------------------------- */

static symm_memrec *take_kept(symm_memzone *z, uint64_t bytes) {
    symm_memrec **at = &z->bins[symm_memlane_bin(bytes)];
    for (int i = 0; *at && i < SYMM_MEMLANE_LOOKS; i++, at = &(*at)->next) {
        symm_memrec *r = *at;
        if (r->bytes != bytes) continue;
        SYMM_ASSERT(r->state == SYMM_REC_KEPT && bytes <= z->kept);
        *at = r->next;
        z->kept -= bytes;
        return r;
    }
    return NULL;
}

/* *off SYMM_PLACE_NONE: the pool does not hold it. */
static symmResult_t take_pooled(symm_memlane *l, int zone, uint64_t bytes, uint64_t *off) {
    int why = 0;
    const uint64_t at = symm_place_take(l->set->pool[zone].place, symm_mempool_fine(bytes),
                                        symm_mempool_fine(symm_memlane_unit(bytes)), 0, &why);
    if (at == SYMM_PLACE_NONE && why == ENOMEM) return no_memory();
    *off = at == SYMM_PLACE_NONE ? SYMM_PLACE_NONE : symm_mempool_bytes(at);
    return symmSuccess;
}

static symmResult_t take_anew(symm_memlane *l, int zone, uint64_t bytes, const void *site,
                              uint64_t *off) {
    symm_memlanes *s = l->set;
    SYMM_TRY(take_pooled(l, zone, bytes, off));
    if (*off != SYMM_PLACE_NONE) return symmSuccess;
    if (l->zone[zone]
            .kept) { /* other sizes; together they may be enough, and the pool need not grow */
        SYMM_TRY(follow_others(l, zone));
        SYMM_TRY(symm_memlane_flush(l, zone));
        SYMM_TRY(take_pooled(l, zone, bytes, off));
        if (*off != SYMM_PLACE_NONE) return symmSuccess;
    }
    if (!piece_for(s, zone, bytes)) {
        SYMM_TRY(reclaim(s, zone));
        SYMM_TRY(take_pooled(l, zone, bytes, off));
        if (*off != SYMM_PLACE_NONE) return symmSuccess;
    }
    const uint64_t piece = piece_for(s, zone, bytes), least = symm_round_up(bytes, SYMM_PLACE_UNIT);
    symmResult_t r = add_piece(l, zone, piece ? piece : least, site); /* no room: the heap says */
    /* LOCAL: another thread may have had some of the room meanwhile. */
    if (r == symmNeedGrow && piece > least) r = add_piece(l, zone, least, site);
    SYMM_TRY(r);
    return take_pooled(l, zone, bytes, off);
}

static int are_many(const symm_memlane *l) {
    return l->set->alive > SYMM_MEMLANE_FEW;
}

static uint64_t slack(const symm_memlane *l, int zone) {
    const uint64_t used = peak(&l->zone[zone]);
    return are_many(l) ? most(used / 12, SYMM_MEMLANE_FLOOR / 2)
                       : most(used / 8, SYMM_MEMLANE_FLOOR);
}

static int many_pending(const symm_memlane *l) {
    const uint64_t pending = l->zone[SYMM_MEM_SYM].pending;
    return pending && pending >= slack(l, SYMM_MEM_SYM);
}

/* Whether the lane would have more than its recent peak and the slack. Many lanes reach their peaks
 * at different times, and would together keep far more than is ever in use at once. So with many
 * lanes the limit lies halfway between present use and recent peak. */
static int over_limit(const symm_memlane *l, int zone, uint64_t more, uint64_t live) {
    const symm_memzone *z = &l->zone[zone];
    const uint64_t used = z->live + live;
    uint64_t most_used = most(peak(z), used);
    if (are_many(l)) most_used = (most_used + used) / 2;
    return z->live + z->kept + z->pending + more > most_used + slack(l, zone);
}

symmResult_t symm_memlane_limit(symm_memlane *l, int zone, uint64_t more, uint64_t live) {
    const symm_memzone *z = &l->zone[zone];
    if (!over_limit(l, zone, more, live)) return symmSuccess;
    if (z->pending > slack(l, zone) / 2) SYMM_TRY(symm_memlane_close(l));
    return symm_memlane_flush(l, zone);
}

symmResult_t symm_mempool_take(symm_memlane *l, int zone, uint64_t bytes, const void *site,
                               symm_memrec **out) {
    symm_memlanes *s = l->set;
    symmResult_t status;
    uint64_t off = SYMM_PLACE_NONE;
    *out = take_kept(&l->zone[zone], bytes);
    if (*out) return symmSuccess;
    if (zone == SYMM_MEM_SYM && many_pending(l)) {
        SYMM_TRY(symm_memlane_close(l));
        *out = take_kept(&l->zone[zone], bytes);
        if (*out) return symmSuccess;
    }
    if (over_limit(l, zone, bytes, bytes)) {
        SYMM_TRY(follow_others(l, zone));
        SYMM_TRY(symm_memlane_limit(l, zone, bytes, bytes));
    }
    if (symm_memtable_reserve(&s->table)) return no_memory();
    SYMM_TRY(take_anew(l, zone, bytes, site, &off));
    /* If no lane gave these bytes lately, no wait is needed. */
    if (given_since(l, zone, off, bytes)) SYMM_TRY_GOTO(follow_others(l, zone), give_back);
    *out = symm_memtable_add(&s->table, off);
    (*out)->bytes = bytes;
    (*out)->zone = (uint8_t)zone;
    SYMM_CHECK(symm_mempool_check(s, zone));
    return symmSuccess;
give_back:
    symm_place_give(s->pool[zone].place, symm_mempool_fine(off));
    return status;
}

/* ---- end ------------------------------------------------------------------------------------- */

uint64_t symm_mempool_shrink(symm_memlanes *s, int zone, const void *site) {
    symm_mempool *p = &s->pool[zone];
    uint64_t freed = 0;
    int n = 0;
    for (int i = 0; i < p->npieces; i++) {
        const symm_mempiece *e = &p->pieces[i];
        if (symm_place_cut(p->place, symm_mempool_fine(e->off), symm_mempool_fine(e->bytes))) {
            p->pieces[n++] = *e;
            continue;
        }
        freed += e->bytes;
        if (zone == SYMM_MEM_SYM)
            symm_heap_give_later(s->heap, e->off); /* peers may still use it */
        else
            symm_heap_give(s->heap, e->off, SYMM_OWNER_LANE, site, NULL);
    }
    SYMM_ASSERT(freed <= p->reserved && n <= p->npieces);
    p->npieces = n;
    p->reserved -= freed;
    SYMM_CHECK(symm_mempool_check(s, zone));
    return freed;
}

void symm_mempool_end(symm_mempool *p) {
    symm_place_end(p->place);
    free(p->pieces);
    *p = (symm_mempool){0};
}
