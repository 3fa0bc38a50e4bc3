/* memlane_guard.c - guard mode of eager blocks: a red zone behind each block, poison in freed ones.
 * The communicator's user thread. Painting is work of the lanes' streams. The caller checks, after
 * that work. docs/memory-lane.md has the rules, and why they give no false alarm. */
#include <pthread.h>
#include <stdlib.h>

#include "base/fail.h"
#include "base/log.h"
#include "base/wait.h"
#include "host/comm/comm.h"
#include "host/gpu/gpu.h"
#include "host/heap/heap_int.h"
#include "memlane.h"

/* ---- life ------------------------------------------------------------------------------------ */

/* Guards of sets that have ended while a stream had still to paint. Under kept_lock. Any thread. */
static pthread_mutex_t kept_lock = PTHREAD_MUTEX_INITIALIZER;
static symm_memguard *kept;

/* 0: some stream has not reached what it is to paint. */
static int is_over(symm_comm *c, const symm_memguard *g, int wait_ms) {
    const uint64_t until = symm_now_ns() + (uint64_t)wait_ms * 1000000;
    int over = 1;
    for (int i = 0; i < g->n; i++) {
        const uint64_t now = symm_now_ns();
        const int ms = now < until ? (int)((until - now) / 1000000) : 0;
        over &= symm_memmark_soon(c, &g->lanes[i].painted, ms);
    }
    return over;
}

static void free_guard(symm_comm *c, symm_memguard *g) {
    for (int i = 0; i < g->n; i++) {
        symm_memmark_end(c, &g->lanes[i].painted);
        symm_memmark_end(c, &g->lanes[i].now);
    }
    free(g->lanes);
    free(g);
}

static void keep(symm_memguard *g) {
    pthread_mutex_lock(&kept_lock);
    g->next = kept;
    kept = g;
    pthread_mutex_unlock(&kept_lock);
}

/* Frees the guards, and lets go of the heaps, whose streams have painted since. */
static void reap(void) {
    pthread_mutex_lock(&kept_lock);
    symm_memguard *g = kept, *next;
    kept = NULL;
    pthread_mutex_unlock(&kept_lock);
    for (; g; g = next) {
        next = g->next;
        symm_heap *h = g->heap;
        if (!is_over(h->comm, g, 0)) {
            keep(g);
            continue;
        }
        free_guard(h->comm, g);
        symm_heap_unref(h);
    }
}

symmResult_t symm_memguard_new(symm_memlanes *s) {
    if (!s->heap->guard) return symmSuccess;
    reap();
    s->guard = SYMM_FAIL_ALLOC(memlane_guard, calloc(1, sizeof *s->guard));
    return s->guard ? symmSuccess : SYMM_ERR(symmOutOfMemory, "no memory for a lane's guard");
}

symmResult_t symm_memguard_add(symm_memlanes *s) {
    symm_memguard *g = s->guard;
    struct symm_memguarded *more =
        SYMM_FAIL_ALLOC(memlane_guard, realloc(g->lanes, ((size_t)s->made + 1) * sizeof *more));
    if (!more) return SYMM_ERR(symmOutOfMemory, "no memory for a lane's guard");
    g->lanes = more;
    if (g->n == s->made) more[g->n++] = (struct symm_memguarded){.stands = 0};
    return symmSuccess;
}

void symm_memguard_end(symm_memlanes *s) {
    symm_memguard *g = s->guard;
    if (!g) return;
    s->guard = NULL;
    reap();
    if (is_over(s->comm, g, SYMM_MEMGUARD_WAIT_MS)) {
        free_guard(s->comm, g);
        return;
    }
    SYMM_INFO(
        "guard mode: the memory of heap %s is kept until the stream of a lane has painted in it",
        s->heap->name);
    symm_heap_ref(s->heap);
    g->heap = s->heap;
    keep(g);
}

/* ---- painting -------------------------------------------------------------------------------- */

symmResult_t symm_memguard_paint(const symm_memlane *l, uint64_t off, uint64_t bytes, int poison) {
    return symm_guard_paint_later(l->set->heap, l->stream, off, bytes, poison);
}

/* Work on a stream that is shut would invalidate a capture. So nothing is painted there, and
 * nothing is checked there later. */
static int is_open(const symm_memlane *l) {
    return !symm_mem_shut(l->set->comm, l->stream);
}

/* Who follows this mark, or has seen it reached, is behind all that the lane has painted. */
static symmResult_t mark(symm_memlane *l) {
    symm_memlanes *s = l->set;
    return symm_memmark_set(s->comm, &s->guard->lanes[l->ordinal].painted, l->stream);
}

/* ---- looking --------------------------------------------------------------------------------- */

int symm_memguard_caught_up(symm_memlane *l, uint64_t off) {
    symm_memlanes *s = l->set;
    struct symm_memguarded *g = &s->guard->lanes[l->ordinal];
    if (g->stands) g->stands = !symm_memmark_soon(s->comm, &g->now, 0);
    if (!g->stands && is_open(l) && !symm_memmark_set(s->comm, &g->now, l->stream)) {
        g->stands = !symm_memmark_soon(s->comm, &g->now, SYMM_MEMGUARD_WAIT_MS);
        if (!g->stands) return 1;
    }
    SYMM_INFO("guard mode: the block at offset %llu is not checked: the stream of lane %d is "
              "still busy",
              (unsigned long long)off, l->ordinal);
    return 0;
}

static symm_spot red_zone(const symm_memrec *r) {
    return (symm_spot){.off = r->off + r->bytes - r->red,
                       .bytes = r->red,
                       .block = r->off,
                       .asked = r->bytes - r->red,
                       .owner = SYMM_OWNER_LANE,
                       .lane = r->lane};
}

static symm_spot free_bytes(uint64_t off, uint64_t bytes) {
    return (symm_spot){.off = off, .bytes = bytes, .poison = 1, .owner = SYMM_OWNER_LANE};
}

/* No other rank may use the block. So the order of this rank's own streams is enough. */
static int is_alone(const symm_memlanes *s, int zone) {
    return zone == SYMM_MEM_LOCAL || s->comm->nranks == 1;
}

/* ---- blocks ---------------------------------------------------------------------------------- */

symmResult_t symm_memguard_taken(symm_memlane *l, symm_memrec *r, uint64_t asked) {
    symm_memlanes *s = l->set;
    const int poisoned =
        r->state == SYMM_REC_KEPT ? r->painted : !s->guard->unpainted[r->zone]; /* pooled */
    const symm_spot freed = free_bytes(r->off, r->bytes);
    r->painted = 0;
    if (poisoned && is_alone(s, r->zone) && symm_memguard_caught_up(l, r->off))
        symm_guard_warn(s->heap, &freed);
    symmResult_t status = symmSuccess;
    if (is_open(l)) {
        status = symm_memguard_paint(l, r->off + asked, r->bytes - asked, 0);
        if (!status) status = mark(l);
        r->painted = !status;
    }
    if (status) return status;
    r->red = (uint16_t)(r->bytes - asked);
    l->zone[r->zone].red += r->red;
    s->red += r->red;
    return symmSuccess;
}

symmResult_t symm_memguard_freed(symm_memlane *l, symm_memrec *r, symmResult_t *found) {
    symm_memlanes *s = l->set;
    symm_memlane *from = s->lanes[r->lane];
    const symm_spot red = red_zone(r);
    const symm_memmark *painted = &s->guard->lanes[r->lane].painted;
    const int open = is_open(l);
    /* The red zone must not be painted after the bytes belong to another block, so this lane
     * follows the painting. If the painting has ended, a stream that is shut need not follow. */
    if (from != l && (open || !symm_memmark_soon(s->comm, painted, 0)))
        SYMM_TRY(symm_memmark_follow(s->comm, painted, l->stream));
    if (r->painted && symm_memguard_caught_up(l, r->off)) *found = symm_guard_freed(s->heap, &red);
    r->painted =
        open && is_alone(s, r->zone) && !symm_memguard_paint(l, r->off, r->bytes, 1) && !mark(l);
    if (from) from->zone[r->zone].red -= r->red;
    s->red -= r->red;
    return symmSuccess;
}

/* After the first barrier (symm_memlane_close) no rank uses what is pending. No lane gets it before
 * the second barrier, which ends after every rank has painted its memory. */
symmResult_t symm_memguard_heard(symm_memlane *l) {
    int bad = 0;
    for (symm_memrec *r = l->pending_first; r; r = r->next)
        r->painted = !symm_memguard_paint(l, r->off, r->bytes, 1);
    bad = mark(l) != symmSuccess;
    for (symm_memrec *r = l->pending_first; r && bad; r = r->next) r->painted = 0;
    return symm_coll_barrier(l->set->comm, l->stream); /* also if this rank could not paint */
}

/* ---- all of them ----------------------------------------------------------------------------- */

/* 1 unless p is damaged. together: all ranks are in the same call. If they are not, a peer may
 * already have taken a SYM block that is free here, and may write to it. */
static int spot_good(const symm_memlanes *s, int zone, const symm_piece *p, int together,
                     char *text) {
    const uint64_t off = symm_mempool_bytes(p->off), bytes = symm_mempool_bytes(p->bytes);
    const symm_memrec *r = p->used ? symm_memtable_find(&s->table, off) : NULL;
    symm_spot spot = free_bytes(off, bytes);
    if (r && r->state == SYMM_REC_LIVE) {
        spot = red_zone(r);
        return !r->painted || symm_guard_look(s->heap, &spot, text);
    }
    if (p->used ? !r || r->state != SYMM_REC_KEPT || !r->painted : s->guard->unpainted[zone])
        return 1;
    if (!together && !is_alone(s, zone)) return 1;
    return symm_guard_look(s->heap, &spot, text);
}

/* 0: damaged; text says where first. Nothing is checked before all streams have painted. */
static int all_good(symm_memlanes *s, int together, char *text) {
    symm_piece p;
    for (int i = 0; i < s->guard->n; i++)
        if (!symm_memmark_soon(s->comm, &s->guard->lanes[i].painted, SYMM_MEMGUARD_WAIT_MS)) {
            SYMM_INFO("guard mode: the lanes of heap %s are not checked: the stream of lane %d "
                      "has not painted yet",
                      s->heap->name, i);
            return 1;
        }
    for (int z = 0; z < SYMM_MEM_ZONES; z++)
        for (uint64_t at = 0; symm_place_at(s->pool[z].place, at, &p); at = p.off + p.bytes)
            if (!spot_good(s, z, &p, together, text)) return 0;
    return 1;
}

symmResult_t symm_memguard_check(symm_heap *h) {
    char text[SYMM_GUARD_TEXT];
    for (symm_memlanes *s = h->comm->lanes.sets; s; s = s->next)
        if (s->heap == h && s->guard && !all_good(s, 1, text))
            return SYMM_ERR(symmInvalidUsage, "%s", text);
    return symmSuccess;
}

void symm_memguard_look(symm_memlanes *s) {
    char text[SYMM_GUARD_TEXT];
    if (!all_good(s, 0, text)) symm_guard_note(s->heap, text);
}
