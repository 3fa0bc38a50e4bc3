/* memplan_life.c - how long plans and regions live. Graphs, the program and allocated blocks hold
 * them. Threads as in memplan.h, except:
 *  - symm_memplan_release runs in any thread, also in the driver's. There it only notes that the
 *    graph is gone, under gone_lock.
 *  - dead_lock protects plans and lanes of destroyed communicators, which no longer have a thread
 *    of their own. While what a communicator has is dropped, its thread holds the lock; not while
 *    it waits for launches, for a graph that ends before one takes the lock. */
#include <pthread.h>
#include <stdlib.h>

#include "base/fail.h"
#include "base/handle.h"
#include "base/stats.h"
#include "host/comm/comm.h"
#include "host/window/space.h"
#include "memplan.h"

static pthread_mutex_t gone_lock = PTHREAD_MUTEX_INITIALIZER;
static symm_memplan *gone;

static symmResult_t no_memory(void) {
    return SYMM_ERR(symmOutOfMemory, "no memory for the plan of a graph");
}

/* ---- plans ----------------------------------------------------------------------------------- */

symmResult_t symm_memplan_new(symm_memlanes *s, symm_memplan **out) {
    symm_memplan *p = SYMM_FAIL_ALLOC(memplan_alloc, calloc(1, sizeof *p));
    if (p) p->points = symm_gplan_new(s->comm->nranks);
    if (!p || !p->points) {
        free(p);
        return SYMM_ERR(symmOutOfMemory, "no memory for the plan of a graph");
    }
    p->set = s;
    p->start = -1;
    p->graph_range = SYMM_NO_OFFSET;
    p->next = s->plans;
    s->plans = p;
    s->refs++;
    SYMM_STAT_ADD(plans, 1);
    *out = p;
    return symmSuccess;
}

static void free_plan(symm_memplan *p) {
    SYMM_ASSERT(!p->held && !p->nlive && !p->queued);
    symm_memlanes *s = p->set;
    for (symm_memplan **at = &s->plans; *at; at = &(*at)->next)
        if (*at == p) {
            *at = p->next;
            break;
        }
    symm_memalias_close(p);
    symm_memalias_unref(p->alias);
    if (p->region) symm_memregion_unref(p->region);
    symm_memplan_free_points(p);
    symm_gplan_end(p->points);
    free(p->blocks);
    free(p->frees);
    free(p->barriers);
    free(p->calls);
    free(p->callers);
    free(p);
    SYMM_STAT_ADD(plans, -1);
    symm_memlanes_unref(s);
}

/* Another graph frees a block of this plan: the plan stays until that graph's plan is gone. */
static int is_referred(const symm_memplan *p) {
    for (const symm_memplan *o = p->set->plans; o; o = o->next)
        for (int i = 0; i < o->nfrees; i++)
            if (o != p && o->frees[i].plan == p) return 1;
    return 0;
}

static int heap_lives(const symm_memlanes *s) {
    return symm_handle_open(SYMM_KIND_HEAP, s->handle);
}

/* Gives a piece back to the heap. used: it may still be in use. Such a piece, and any SYM piece
 * (other ranks may use it), waits for a symmHeapCollect. */
static void give_piece(symm_memlanes *s, int zone, const symm_mempiece *e, int used) {
    if (!heap_lives(s)) return;
    if (used || zone == SYMM_MEM_SYM)
        symm_heap_give_later(s->heap, e->off);
    else
        symm_heap_give(s->heap, e->off, SYMM_OWNER_GRAPH, NULL, NULL);
}

/* SYMM_ALLOC_KEEP blocks go when their plan goes. A LOCAL block waits in the region if work on it
 * has not been waited for. */
static void give_keeps(symm_memplan *p) {
    symm_memregion *r = p->region;
    const int used = r && symm_memuse_open(r);
    for (int i = 0; i < p->nblocks; i++) {
        const symm_memblock *b = &p->blocks[i];
        const symm_mempiece e = {b->off, b->bytes};
        if (b->no >= 0) continue;
        const int wait = used && b->zone == SYMM_MEM_LOCAL;
        symm_memretired *t = wait ? SYMM_FAIL_ALLOC(memplan_retire_keep, malloc(sizeof *t)) : NULL;
        if (t) {
            *t = (symm_memretired){r->retired, e, b->zone};
            r->retired = t;
        } else {
            give_piece(p->set, b->zone, &e, used);
        }
        r->reserved -= b->bytes;
    }
}

/* No graph has the plan, and it is not in the list `gone`. */
int symm_memplan_is_left(symm_memplan *p) {
    pthread_mutex_lock(&gone_lock);
    const int left = !p->queued && !atomic_load_explicit(&p->graphs, memory_order_acquire);
    pthread_mutex_unlock(&gone_lock);
    return left;
}

void symm_memplan_settle(symm_memplan *p) {
    const int left = symm_memplan_is_left(p), out = p->nlive || symm_unbound_any(p);
    if (!out && (p->destroyed || (left && symm_unbound_is_own(p)))) p->held = 0;
    if (!p->handle && left && !out) symm_memalias_close(p); /* no handle, and none can be made */
    if (p->held || is_referred(p) || !symm_memplan_is_left(p)) return;
    give_keeps(p);
    symm_unbound_ends(p);
    symm_memregion *r = p->region;
    if (r) r->refs++;
    symm_memlanes *s = p->set;
    s->refs++;
    struct foreign *frees = p->frees;
    int nfrees = p->nfrees;
    p->frees = NULL;
    p->nfrees = 0;
    free_plan(p);
    for (int i = 0; i < nfrees; i++) symm_memplan_settle(frees[i].plan);
    free(frees);
    if (r) {
        symm_memregion_sweep(r);
        symm_memregion_unref(r);
    }
    symm_memlanes_unref(s);
}

int symm_memplan_holds(const symm_memplan *p, int zone) {
    SYMM_ASSERT(zone == SYMM_MEM_LOCAL || zone == SYMM_MEM_SYM);
    if (!p->held || !p->destroyed) return p->held;
    for (int i = 0; i < p->nblocks; i++) {
        const symm_memblock *b = &p->blocks[i];
        if (b->zone == zone && (b->live || symm_unbound_out(p, b))) return 1;
    }
    return 0;
}

/* ---- held by graphs -------------------------------------------------------------------------- */

void symm_memplan_retain(void *plan) {
    atomic_fetch_add_explicit(&((symm_memplan *)plan)->graphs, 1, memory_order_relaxed);
}

static int is_dead(const symm_comm *c) {
    return symm_comm_state(c) == SYMM_COMM_FINAL;
}

/* Acquire and release: who frees the plan comes after every use of it. */
void symm_memplan_release(void *plan) {
    symm_memplan *p = plan;
    pthread_mutex_lock(&gone_lock);
    const int host = !p->set->comm->cuda;
    SYMM_ASSERT(atomic_load(&p->graphs) > 0);
    if (atomic_fetch_sub_explicit(&p->graphs, 1, memory_order_acq_rel) == 1) {
        p->let_go = gone;
        p->queued = 1;
        gone = p;
    }
    pthread_mutex_unlock(&gone_lock);
    if (host) symm_memplan_reap(NULL);
}

static int is_for(const symm_memplan *p, const symm_comm *c) {
    return c ? p->set->comm == c : p->set->comm->lanes.over;
}

/* Destroyed communicators have no user thread. Any thread may do it, one at a time. */
static pthread_mutex_t dead_lock = PTHREAD_MUTEX_INITIALIZER;

void symm_memplan_reap(const symm_comm *c) {
    symm_memplan *mine = NULL;
    if (!c) pthread_mutex_lock(&dead_lock);
    pthread_mutex_lock(&gone_lock);
    for (symm_memplan **at = &gone; *at;) {
        symm_memplan *p = *at;
        if (!is_for(p, c)) {
            at = &p->let_go;
            continue;
        }
        *at = p->let_go;
        p->let_go = mine;
        mine = p;
    }
    pthread_mutex_unlock(&gone_lock);
    while (mine) { /* this may settle others, but none of this list */
        symm_memplan *p = mine;
        mine = p->let_go;
        pthread_mutex_lock(&gone_lock);
        p->let_go = NULL;
        p->queued = 0;
        pthread_mutex_unlock(&gone_lock);
        symm_memplan_settle(p);
    }
    if (!c) pthread_mutex_unlock(&dead_lock);
}

void symm_memplan_lock_ending(symm_comm *c) {
    pthread_mutex_lock(&dead_lock);
    c->lanes.over = 1;
}
void symm_memplan_unlock_dead(void) {
    pthread_mutex_unlock(&dead_lock);
}

symmResult_t symm_memplan_enter_dead(symm_comm *c, int *turn) {
    *turn = !is_dead(c);
    const symmResult_t r = *turn ? symm_comm_enter_known(c, 0) : symmSuccess;
    if (*turn && !is_dead(c)) return r; /* one that was entered does not end meanwhile */
    *turn = 0;
    pthread_mutex_lock(&dead_lock);
    return symmSuccess;
}

void symm_memplan_leave_dead(symm_comm *c, int turn) {
    if (turn)
        symm_comm_leave(c);
    else
        symm_memplan_unlock_dead();
}

static symmResult_t launched(void *plan) {
    atomic_fetch_add_explicit(&((symm_memplan *)plan)->direct, 1, memory_order_relaxed);
    return symmSuccess;
}

/* At once, because the next allocation must know that the graph is gone, not only the next call of
 * symm_gpu_reap. */
const symm_graph_user symm_memplan_graph_user = {.retain = symm_memplan_retain,
                                                 .release = symm_memplan_release,
                                                 .begin = launched,
                                                 .at_once = 1};

symmResult_t symm_memplan_hold(symm_memplan *p, symmStream_t stream) {
    const symm_gpu_capture in = {p->graph, p->capture};
    return symm_graph_hold(p->set->comm, &in, stream, p, &symm_memplan_graph_user);
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

void symm_memregion_sweep(symm_memregion *r) {
    const int open = symm_memuse_open(r);
    for (symm_memretired **at = &r->retired; *at;) {
        symm_memretired *t = *at;
        int used = open && t->zone == SYMM_MEM_LOCAL && r->refs;
        for (const symm_memplan *p = r->set->plans; p && !used; p = p->next)
            used = p->region == r &&
                   symm_gplan_touches(p->points, t->zone, t->piece.off, t->piece.bytes);
        if (used) {
            at = &t->next;
            continue;
        }
        *at = t->next;
        give_piece(r->set, t->zone, &t->piece, open);
        free(t);
    }
}

void symm_memregion_unref(symm_memregion *r) {
    SYMM_ASSERT(r->refs > 0);
    if (--r->refs) return;
    const int used = symm_memuse_open(r);
    symm_memregion_sweep(r);
    symm_memalias_unref(r->alias);
    for (int z = 0; z < SYMM_MEM_ZONES; z++) {
        for (int i = 0; i < r->npieces[z]; i++) give_piece(r->set, z, &r->pieces[z][i], used);
        free(r->pieces[z]);
    }
    symm_memuse_leave(r);
    symm_memregion **at = &r->set->regions;
    while (*at != r) at = &(*at)->next;
    *at = r->next;
    symm_memmark_end(r->set->comm, &r->launched);
    free(r);
}

/* ---- ends of lanes and heaps ----------------------------------------------------------------- */

int symm_memplan_live(const symm_memlanes *s) {
    int n = 0;
    for (const symm_memplan *p = s->plans; p; p = p->next) n += p->nlive;
    return n;
}

void symm_memplan_forget(symm_memlanes *s) {
    symm_memplan *p = s->plans;
    while (p) {
        const int had = p->nlive || symm_unbound_any(p);
        for (int i = 0; had && i < p->nblocks; i++) p->blocks[i].live = 0;
        p->nlive = 0;
        symm_unbound_forget(p);
        if (had) symm_memplan_settle(p); /* this may free others */
        p = had ? s->plans : p->next;
    }
}

/* The lane ends, so none of its plans can be bound any more. Settling one may free others, so the
 * caller walks the list again from the start. */
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
    if (l->set->alive == 1) symm_memplan_forget(l->set); /* hand_over has refused live ones */
    if (!l->region) return;
    while (orphan_one(l)) continue;
    symm_memalias_unref(l->region->alias);
    l->region->alias = NULL;
    symm_memregion_unref(l->region);
    l->region = NULL;
}
