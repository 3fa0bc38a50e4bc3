/* memplan_collect.c - the lanes' part in symmHeapCollect and symmHeapCheck. The communicator's user
 * thread.
 *
 * The memory of a graph can go when the graph is gone. Ranks know that late, and at different
 * times. So each rank offers the numbers of what it is done with, and what all ranks have offered
 * goes: graphs without a plan that have SYM blocks of several ranks, and trimmed memory of
 * symmLaneAlias. */
#include "host/comm/comm.h"
#include "host/heap/heap_int.h"
#include "host/window/space.h"
#include "host/window/window.h"
#include "memplan.h"

static symmResult_t settle(symm_heap *h) {
    symm_comm *c = symm_heap_comm(h);
    symm_memplan_reap(c);
    for (symm_memlanes *s = c->lanes.sets; s; s = s->next) {
        if (s->heap != h) continue;
        SYMM_TRY(symm_memuse_reach(s, NULL));
        for (symm_memregion *r = s->regions; r; r = r->next) symm_memregion_sweep(r);
    }
    return symmSuccess;
}

/* ---- graphs without a plan ------------------------------------------------------------------- */

static int unbound_waiting(const symm_heap *h) {
    for (const symm_memlanes *s = symm_heap_comm(h)->lanes.sets; s; s = s->next)
        for (const symm_memplan *p = s->plans; s->heap == h && p; p = p->next)
            if (symm_unbound_waits(p)) return 1;
    return 0;
}

static uint64_t unbound_next(const symm_heap *h, uint64_t from) {
    uint64_t best = 0;
    for (const symm_memlanes *s = symm_heap_comm(h)->lanes.sets; s; s = s->next)
        for (symm_memplan *p = s->plans; s->heap == h && p; p = p->next) {
            if (p->sym_no < from || (best && p->sym_no >= best) || !symm_unbound_waits(p)) continue;
            if (symm_memplan_is_left(p) && !symm_unbound_any(p)) best = p->sym_no;
        }
    return best;
}

static symmResult_t unbound_let(symm_heap *h, uint64_t no, const void *site) {
    (void)site;
    for (symm_memlanes *s = symm_heap_comm(h)->lanes.sets; s; s = s->next)
        for (symm_memplan *p = s->plans; s->heap == h && p; p = p->next) {
            if (p->sym_no != no || !symm_unbound_waits(p)) continue;
            p->held = 0;
            symm_memplan_settle(p); /* this changes the list */
            return symmSuccess;
        }
    return symmSuccess;
}

/* ---- memory of idle graphs ------------------------------------------------------------------- */

/* After symmMemPlanDestroy the program may launch the graph without asking. */
static int is_gone(symm_memplan *p) {
    return !p->destroyed || symm_memplan_is_left(p);
}

/* The trimmed memory with the lowest `first`, not below `from`. here: only what no graph of this
 * rank uses any more. */
static symm_memalias *find_trimmed(const symm_heap *h, uint64_t from, int here) {
    symm_memalias *best = NULL;
    for (const symm_memlanes *s = symm_heap_comm(h)->lanes.sets; s; s = s->next) {
        if (s->heap != h) continue;
        for (const symm_memregion *r = s->regions; r; r = r->next)
            if (r->alias && r->alias->trimmed && r->alias->first >= from &&
                (!best || r->alias->first < best->first))
                best = r->alias;
        for (const symm_memplan *p = s->plans; p; p = p->next)
            if (p->alias && p->alias->trimmed && p->alias->first >= from &&
                (!best || p->alias->first < best->first))
                best = p->alias;
    }
    for (symm_memplan *p = best && here ? best->region->set->plans : NULL; p; p = p->next)
        if (p->alias == best && !is_gone(p)) return find_trimmed(h, best->first + 1, here);
    return best;
}

static int alias_waiting(const symm_heap *h) {
    return find_trimmed(h, 0, 0) != NULL;
}

static uint64_t alias_next(const symm_heap *h, uint64_t from) {
    const symm_memalias *a = find_trimmed(h, from, 1);
    return a ? a->first : 0;
}

/* What cannot be unmapped keeps its memory; the plan is not launched then. */
static symmResult_t alias_let(symm_heap *h, uint64_t no, const void *site) {
    symm_memalias *a = find_trimmed(h, no, 1);
    symmResult_t first = symmSuccess;
    (void)site;
    if (!a || a->first != no) return symmSuccess;
    for (symm_memplan *p = a->region->set->plans; p; p = p->next) {
        if (p->alias != a || p->graph_range == SYMM_NO_OFFSET) continue;
        symmResult_t r = symm_region_clear(&h->region, p->graph_range, p->graph_range_bytes);
        if (r && !first) first = r;
        p->backed = p->uploaded = 0;
    }
    symm_window_changed(h->comm); /* remembered calls may lie there */
    symm_memalias_release(a);
    a->trimmed = 0;
    return first;
}

const symm_heap_guest symm_memplan_guest = {
    settle,
    symm_memguard_check,
    {{unbound_waiting, unbound_next, unbound_let}, {alias_waiting, alias_next, alias_let}}};
