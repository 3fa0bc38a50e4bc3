/* memlane_check.c - invariants of lanes, pools, regions and plans. Called through SYMM_CHECK, so in
 * test builds only. The communicator's user thread. Expensive checks run once in so many calls. */
#include "memplan.h"

#ifdef SYMM_TESTING
#include "host/window/space.h"

enum { FEW_BLOCKS = 32 };

/* 1 once in `every` calls, counted in each thread. Deterministic: a test that fails once fails
 * again. */
#define DUE(every)                  \
    __extension__({                 \
        static _Thread_local int n; \
        n = (n + 1) % (every);      \
        n == 1;                     \
    })

/* ---- lanes ----------------------------------------------------------------------------------- */

static void check_kept(const symm_memlane *l, int zone) {
    const symm_memzone *z = &l->zone[zone];
    uint64_t kept = 0;
    for (int i = 0; i < SYMM_MEMLANE_BINS; i++)
        for (const symm_memrec *r = z->bins[i]; r; r = r->next) {
            SYMM_ASSERT(r->state == SYMM_REC_KEPT && r->zone == zone);
            SYMM_ASSERT(symm_memlane_bin(r->bytes) == i);
            SYMM_ASSERT(symm_memtable_find(&l->set->table, r->off) == r);
            kept += r->bytes;
        }
    SYMM_ASSERT(kept == z->kept);
}

static void check_pending(const symm_memlane *l) {
    const symm_memrec *last = NULL;
    uint64_t pending = 0;
    for (const symm_memrec *r = l->pending_first; r; r = r->next) {
        SYMM_ASSERT(r->state == SYMM_REC_PENDING && r->zone == SYMM_MEM_SYM);
        SYMM_ASSERT(!last || last->stamp <= r->stamp); /* observe stops at the first that is new */
        pending += r->bytes;
        last = r;
    }
    SYMM_ASSERT(last == l->pending_last);
    SYMM_ASSERT(pending == l->zone[SYMM_MEM_SYM].pending);
    SYMM_ASSERT(l->zone[SYMM_MEM_LOCAL].pending == 0);
}

static void check_access(const symm_memaccess *a, int nranks) {
    const uint64_t last = a->ranks[(SYMM_MAX_RANKS - 1) / 64] >> (SYMM_MAX_RANKS - 1) % 64;
    SYMM_ASSERT(a->some == 0 || a->some == 1);
    SYMM_ASSERT(last >> 1 == 0 && (!last || nranks == SYMM_MAX_RANKS));
}

static void check_set(const symm_memlanes *s) {
    SYMM_ASSERT(s->heap && s->comm && s->handle && s->lanes && s->made > 0);
    SYMM_ASSERT(!s->guard || s->guard->n >= s->made);
    SYMM_ASSERT(!s->guard == !symm_heap_guarded(s->heap));
    SYMM_ASSERT(!s->comm->lanes.heard_any || s->comm->lanes.heard);
}

void symm_memlane_check(const symm_memlane *l) {
    const symm_memlanes *s = l->set;
    const int all = DUE(64);
    SYMM_ASSERT(l->ordinal < s->made && s->lanes[l->ordinal] == l);
    SYMM_ASSERT(s->alive > 0 && s->alive <= s->made && s->refs >= s->alive);
    SYMM_ASSERT(!l->pending_first == !l->pending_last);
    for (int i = 0; i < SYMM_MEM_ZONES; i++) {
        const symm_memzone *z = &l->zone[i];
        const uint64_t gives = s->pool[i].gives;
        SYMM_ASSERT(z->live <= s->live && z->red <= z->live && z->live <= z->peak);
        SYMM_ASSERT(z->gave <= gives && z->behind <= z->followed && z->followed <= gives);
        SYMM_ASSERT(z->calls < SYMM_MEMLANE_WINDOW);
        SYMM_ASSERT(!z->gave == (s->pool[i].newest != l && !z->newer));
        SYMM_ASSERT(!z->gave || z->given.seq);
        if (all) check_kept(l, i);
    }
    check_access(&l->access, s->comm->nranks);
    check_set(s);
    if (all) check_pending(l);
}

/* ---- pools ----------------------------------------------------------------------------------- */

/* Newest first, because follow_others stops at the first mark that the lane has followed. */
static void check_givers(const symm_mempool *p, int zone) {
    const symm_memlane *newer = NULL;
    for (const symm_memlane *l = p->newest; l; newer = l, l = l->zone[zone].older) {
        const symm_memzone *z = &l->zone[zone];
        SYMM_ASSERT(z->newer == newer && z->gave > 0 && z->given.seq > 0);
        SYMM_ASSERT(z->gave <= (newer ? newer->zone[zone].gave - 1 : p->gives));
    }
}

/* Every block of the placement engine has a record, and every record a block. */
static uint64_t check_records(const symm_memlanes *s, int zone) {
    symm_piece e;
    uint64_t n = 0, used = 0, free = 0;
    for (uint64_t at = 0; symm_place_at(s->pool[zone].place, at, &e); at = e.off + e.bytes) {
        if (!e.used) {
            free += e.bytes;
            continue;
        }
        const symm_memrec *r = symm_memtable_find(&s->table, symm_mempool_bytes(e.off));
        SYMM_ASSERT(r && r->zone == zone && symm_mempool_fine(r->bytes) == e.bytes);
        SYMM_ASSERT(r->lane < s->made && r->red < r->bytes);
        used += e.bytes;
        n++;
    }
    SYMM_ASSERT(symm_mempool_bytes(used + free) == s->pool[zone].reserved);
    return n;
}

void symm_mempool_check(const symm_memlanes *s, int zone) {
    const symm_mempool *p = &s->pool[zone];
    uint64_t reserved = 0, records = 0;
    SYMM_ASSERT((p->ngiven == 0 || p->gives > 0) && (!p->newest || p->gives > 0));
    SYMM_ASSERT(s->red <= s->live);
    SYMM_ASSERT(!p->npieces == !p->reserved);
    if (p->ngiven) SYMM_ASSERT(p->given[(p->ngiven - 1) % SYMM_MEMLANE_GIVEN].seq <= p->gives);
    if (!DUE(512)) return;
    for (int i = 0; i < p->npieces; i++) {
        SYMM_ASSERT(p->pieces[i].bytes && p->pieces[i].off % SYMM_PLACE_UNIT == 0);
        reserved += p->pieces[i].bytes;
    }
    SYMM_ASSERT(reserved == p->reserved);
    check_givers(p, zone);
    for (int z = 0; z < SYMM_MEM_ZONES; z++) records += check_records(s, z);
    SYMM_ASSERT(records == s->table.n);
}

/* ---- regions and plans ----------------------------------------------------------------------- */

static void check_alias(const symm_memalias *a, const symm_memregion *r) {
    SYMM_ASSERT(a->refs > 0 && a->region == r && a->handles);
    SYMM_ASSERT(a->chunk && a->bytes && a->bytes <= a->room);
    SYMM_ASSERT(a->count > 0 && a->count <= a->most);
    SYMM_ASSERT((uint64_t)a->count * a->chunk >= a->bytes);
    SYMM_ASSERT((a->most > a->count) == (a->room > a->bytes));
    SYMM_ASSERT(!a->trimmed || a->left_out);
}

void symm_memregion_check(const symm_memregion *r) {
    uint64_t reserved = 0;
    SYMM_ASSERT(r->refs > 0 && r->reserved <= r->reserved_high);
    if (r->alias) check_alias(r->alias, r);
    if (!DUE(16)) return;
    for (int z = 0; z < SYMM_MEM_ZONES; z++)
        for (int i = 0; i < r->npieces[z]; i++) reserved += r->pieces[z][i].bytes;
    SYMM_ASSERT(reserved <= r->reserved); /* besides these: SYMM_ALLOC_KEEP blocks, aliases */
    for (const symm_memretired *t = r->retired; t; t = t->next)
        for (int i = 0; i < r->npieces[t->zone]; i++)
            SYMM_ASSERT(r->pieces[t->zone][i].off != t->piece.off);
}

static void check_block(const symm_memplan *p, const symm_memblock *b) {
    const int aliased = p->alias && b->zone == SYMM_MEM_SYM && b->no >= 0;
    SYMM_ASSERT(b->bytes > b->red && b->serial <= p->region->placed);
    SYMM_ASSERT(b->from < symm_gplan_points(p->points));
    if (p->graph_range != SYMM_NO_OFFSET)
        SYMM_ASSERT(b->off == (aliased ? symm_memalias_offset(p, b->at) : b->at));
    SYMM_ASSERT(!aliased || b->at - p->alias->first + b->bytes <= p->reach);
    SYMM_ASSERT(b->no < 0 || !symm_gplan_freed(p->points, b->no) == !b->freed);
}

static void check_blocks(const symm_memplan *p) {
    int live = 0, left = 0;
    for (int i = 0; i < p->nblocks; i++) {
        check_block(p, &p->blocks[i]);
        live += p->blocks[i].live;
        left += !p->blocks[i].freed;
    }
    SYMM_ASSERT(live == p->nlive && left == p->nleft);
}

void symm_memplan_check(const symm_memplan *p) {
    SYMM_ASSERT(p->set->refs > 0 && atomic_load(&p->graphs) >= 0);
    SYMM_ASSERT(!p->handle || p->held || p->destroyed);
    SYMM_ASSERT(p->nlive >= 0 && p->nleft >= 0 && p->nleft <= p->nblocks && p->ncallers >= 0);
    SYMM_ASSERT(p->start < symm_gplan_points(p->points) && p->nclocks >= 0);
    SYMM_ASSERT(p->lane >= 0 && p->lane < p->set->made);
    SYMM_ASSERT(!p->nnodes || 2 * p->nnodes <= p->node_cap);
    SYMM_ASSERT(p->nlive <= p->nblocks && p->nbarriers <= p->ncalls);
    SYMM_ASSERT(!p->nblocks || p->region);
    SYMM_ASSERT(!p->has_sym == !p->sym_no);
    SYMM_ASSERT(p->uploaded <= p->backed && (!p->backed || p->backed <= p->alias->most));
    SYMM_ASSERT(!p->alias || p->reach <= p->graph_range_bytes);
    for (int i = 0; i < p->nfrees; i++)
        SYMM_ASSERT(p->frees[i].plan != p && p->frees[i].block < p->frees[i].plan->nblocks);
    if (p->region) SYMM_CHECK(symm_memregion_check(p->region));
    if (p->nblocks <= FEW_BLOCKS || DUE(64)) check_blocks(p);
}

#endif
