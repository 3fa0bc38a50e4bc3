/* heap_tidy.c - trim, collect and check. Collective calls, on the communicator's user thread.
 * h->lock is held where a zone changes or is looked at, never while waiting. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/log.h"
#include "host/comm/comm.h"
#include "host/comm/group.h"
#include "host/gpu/setup.h"
#include "transport/vmm/memcut.h"
#include "heap_int.h"

enum { IDLE_KINDS = 2 };

typedef struct {        /* the first message of each */
    int32_t code, idle; /* idle: bit k: the guest has idle things of kind k */
    uint64_t digest, keep, stripes;
} hello;

static symmResult_t fine(symm_heap *h) {
    (void)h;
    return symmSuccess;
}
static int none_waits(const symm_heap *h) {
    (void)h;
    return 0;
}
static uint64_t no_next(const symm_heap *h, uint64_t from) {
    (void)h, (void)from;
    return 0;
}
static symmResult_t let_none(symm_heap *h, uint64_t no, const void *site) {
    (void)h, (void)no, (void)site;
    return symmSuccess;
}
/* Used if a heap has no guest. The rank still takes part in what its peers' guests have. */
static const symm_heap_guest nobody = {
    fine, fine, {{none_waits, no_next, let_none}, {none_waits, no_next, let_none}}};

void symm_heap_set_guest(symm_heap *h, const symm_heap_guest *guest) {
    h->guest = guest ? guest : &nobody;
}

static int idle_kinds(const symm_heap *h) {
    int bits = 0;
    for (int k = 0; k < IDLE_KINDS; k++) bits |= h->guest->idle[k].waiting(h) << k;
    return bits;
}

/* Returns when all ranks have come, or the error of all if one has failed or their calls differ.
 * Their work on the heap has ended before. still: as in symm_heap_stripes_compare. */
static symmResult_t meet(symm_heap *h, symmResult_t status, uint64_t keep, int still,
                         const char *stage, int *idle) {
    symm_comm *c = h->comm;
    int alike = 1;
    hello all[SYMM_MAX_RANKS];
    hello mine = {.code = (int32_t)status,
                  .idle = idle_kinds(h),
                  .digest = h->digest,
                  .keep = keep,
                  .stripes = symm_heap_stripes_word(h)};
    SYMM_TRY(symm_comm_gather(c, &mine, all, sizeof mine, stage));
    *idle = 0;
    for (int r = 0; r < c->nranks; r++) *idle |= all[r].idle;
    for (int r = 0; r < c->nranks; r++)
        if (all[r].code) return symm_comm_agree(c, status, stage);
    for (int r = 1; r < c->nranks; r++) {
        if (all[r].keep != all[0].keep)
            return SYMM_ERR(symmMismatch, "%s: keep is %llu on rank 0, %llu on rank %d", stage,
                            (unsigned long long)all[0].keep, (unsigned long long)all[r].keep, r);
        SYMM_TRY(symm_heap_compare(h, all[0].digest, all[r].digest, r, stage));
        alike &= all[r].stripes == all[0].stripes;
    }
    return alike ? symmSuccess : symm_heap_stripes_compare(h, still, stage);
}

/* ---- trim ------------------------------------------------------------------------------------ */

/* Takes the highest chunks that have no block out of the zone, until at most `keep` bytes are left
 * behind it. list: room for all chunks; in heap offsets. With the lock; nothing is placed there
 * afterwards. */
static int take_out(symm_heap *h, int zone, uint64_t keep, symm_part *list) {
    symm_zone *z = &h->zone[zone];
    int n = 0;
    SYMM_HEAP_LOCKED(h);
    z->skipped = 0;
    for (int i = z->count; i-- > 0 && z->bytes > keep;) {
        const symm_part chunk = z->chunks[i];
        if (symm_place_cut(z->place, chunk.off, chunk.bytes)) { /* in use */
            z->skipped += chunk.bytes;
            continue;
        }
        list[n++] = (symm_part){symm_zone_flip(h, zone, chunk.off, chunk.bytes), chunk.bytes};
        z->bytes -= chunk.bytes;
        z->count--;
        memmove(&z->chunks[i], &z->chunks[i + 1], (size_t)(z->count - i) * sizeof *z->chunks);
    }
    const symm_part *last = z->count ? &z->chunks[z->count - 1] : NULL;
    symm_zone_set_extent(z, last ? last->off + last->bytes : 0);
    return n;
}

/* *status keeps the first error. A mapping that cannot be removed stays to the end of the heap. */
static void unmap_all(symm_heap *h, int rank, const symm_part *list, int n, symmResult_t *status) {
    for (int i = 0; i < n; i++) {
        symmResult_t r = symm_region_unmap(&h->region, rank, list[i]);
        if (r && !*status) *status = r;
    }
}

enum { PARTS = 32 };
typedef struct {
    uint64_t extent; /* of LOCAL, afterwards */
    int32_t n, more;
    symm_part list[PARTS];
} leaving; /* LOCAL chunks of a rank; for as many messages as the longest list takes */

static symmResult_t trim_local(symm_heap *h, const symm_part *list, int n, leaving *all,
                               const char *stage, symmResult_t *soft) {
    symm_comm *c = h->comm;
    leaving mine = {.extent = h->zone[SYMM_ZONE_LOCAL].extent};
    int more = 1;
    for (int at = 0; more;) {
        mine.n = n - at < PARTS ? n - at : PARTS;
        memcpy(mine.list, list + at, (size_t)mine.n * sizeof *list);
        at += mine.n;
        mine.more = at < n;
        SYMM_TRY(symm_comm_gather(c, &mine, all, sizeof mine, stage));
        more = 0;
        h->local_extent = 0;
        for (int p = 0; p < c->nranks; p++) {
            unmap_all(h, p, all[p].list, all[p].n, soft);
            more |= all[p].more;
            if (all[p].extent > h->local_extent) h->local_extent = all[p].extent;
        }
    }
    return symmSuccess;
}

typedef struct { /* of a vector */
    uint64_t bytes;
    const void *site;
} shorter;

/* All ranks are going to shrink. Peers see the size before the memory goes. */
static void shorten(symm_heap *h, const shorter *s) {
    symmResult_t r = symm_heap_resize(h, s->bytes, s->site);
    if (r) symm_comm_break(h->comm, r, h->comm->rank, "shrinking a vector"); /* not to happen */
    symm_heap_publish(h, s->bytes, 1);
    symm_heap_forget(h); /* what it has left holds the memory too */
}

static void say_skipped(const symm_heap *h, uint64_t freed) {
    const symm_zone *sym = &h->zone[SYMM_ZONE_SYM], *local = &h->zone[SYMM_ZONE_LOCAL];
    if (!sym->skipped && !local->skipped) return;
    SYMM_INFO(
        "heap %s: trimmed by %llu bytes; chunks in use stay: %llu bytes of SYM, %llu of LOCAL",
        h->name, (unsigned long long)freed, (unsigned long long)sym->skipped,
        (unsigned long long)local->skipped);
}

/* All that can fail comes before the ranks meet. From there on a vector (s not NULL) has its new
 * size, whatever stays mapped: when the last message has come, all ranks have unmapped what they
 * can, and there is no further agreement. */
static symmResult_t trim(symm_heap *h, symmResult_t status, uint64_t keep, const shorter *s,
                         uint64_t *freed) {
    symm_comm *c = h->comm;
    symm_zone *sym = &h->zone[SYMM_ZONE_SYM], *local = &h->zone[SYMM_ZONE_LOCAL];
    const char *stage = s ? "shrinking a vector" : "trimming a heap";
    int idle;
    const size_t room = (size_t)(sym->count + local->count) + 1;
    const uint64_t before = sym->bytes + local->bytes;
    symm_part *list = SYMM_FAIL_ALLOC(heap_lists, calloc(room, sizeof *list));
    leaving *all = SYMM_FAIL_ALLOC(heap_leaving, calloc((size_t)c->nranks, sizeof *all));
    if (!status && (!list || !all))
        status = SYMM_ERR(symmOutOfMemory, "no memory to list what heap %s trims", h->name);
    status = meet(h, status, keep, 0, stage, &idle);
    if (status) {
        free(list);
        free(all);
        return status;
    }
    if (s) shorten(h, s);
    symm_heap_lock(h);
    const int nsym = take_out(h, SYMM_ZONE_SYM, keep, list);
    const int nlocal = take_out(h, SYMM_ZONE_LOCAL, keep, list + nsym);
    symm_heap_unlock(h);
    symm_heap_say_range(h);
    symm_window_changed(c);
    for (int p = 0; p < c->nranks; p++) unmap_all(h, p, list, nsym, &status);
    symmResult_t r = trim_local(h, list + nsym, nlocal, all, stage, &status);
    if (!r && !s) r = symm_comm_agree(c, status, stage); /* gone everywhere */
    symm_memcut_look();
    if (freed) *freed = before - sym->bytes - local->bytes;
    if (!r && !s) say_skipped(h, before - sym->bytes - local->bytes);
    free(list);
    free(all);
    return r;
}

symmResult_t symm_heap_trim(symm_heap *h, symmResult_t status, uint64_t keep, uint64_t *freed) {
    return trim(h, status, keep, NULL, freed);
}

symmResult_t symm_heap_shorten(symm_heap *h, symmResult_t status, uint64_t bytes,
                               const void *site) {
    const shorter s = {bytes, site};
    if (!status) status = symm_heap_try_resize(h, bytes);
    return trim(h, status, bytes, &s, NULL);
}

/* ---- collect --------------------------------------------------------------------------------- */

enum { OFFSETS = 62 };
typedef struct { /* the next blocks of SYM, or graph ranges or graphs, that wait here, in order */
    int32_t n, more;
    uint64_t pad, off[OFFSETS];
} waiting;

/* From `from` on. With the lock. */
static void list_uncollected(const symm_heap *h, uint64_t from, waiting *w) {
    symm_piece p;
    symm_block b;
    *w = (waiting){0};
    SYMM_HEAP_LOCKED(h);
    if (!h->uncollected_bytes) return;
    for (; symm_place_at(h->zone[SYMM_ZONE_SYM].place, from, &p); from = p.off + p.bytes) {
        if (!p.used || !symm_heap_find(h, p.off, &b) || b.uncollected != SYMM_UNCOLLECTED) continue;
        if (w->n == OFFSETS) {
            w->more = 1;
            return;
        }
        w->off[w->n++] = p.off;
    }
}

static void list_graph_ranges(const symm_heap *h, uint64_t from, waiting *w) {
    *w = (waiting){0};
    SYMM_HEAP_LOCKED(h);
    for (int i = 0; i < h->ngraph_ranges; i++) {
        const symm_graph_range *t = &h->graph_ranges[i];
        if (!t->uncollected || t->off < from) continue;
        if (w->n == OFFSETS) {
            w->more = 1;
            return;
        }
        w->off[w->n++] = t->off;
    }
}

static void list_by(uint64_t (*next)(const symm_heap *h, uint64_t from), const symm_heap *h,
                    uint64_t from, waiting *w) {
    *w = (waiting){0};
    for (uint64_t no; (no = next(h, from)) != 0; from = no + 1) {
        if (w->n == OFFSETS) {
            w->more = 1;
            return;
        }
        w->off[w->n++] = no;
    }
}

static int has(const waiting *w, uint64_t off) {
    for (int i = 0; i < w->n; i++)
        if (w->off[i] == off) return 1;
    return 0;
}

static symmResult_t give_back(symm_heap *h, uint64_t off, const void *site) {
    symm_block b;
    symm_heap_lock(h);
    if (symm_heap_find(h, off, &b) && b.uncollected == SYMM_UNCOLLECTED) {
        symm_heap_unlock(h);
        if (h->guard) (void)symm_guard_paint(h, b.off, b.room, 1);
        symm_heap_lock(h);
        SYMM_ASSERT(h->uncollected_bytes >= b.room);
        h->uncollected_bytes -= b.room;
        symm_place_give(h->zone[b.zone].place, b.z);
        if (b.zone == SYMM_ZONE_SYM)
            symm_heap_count(h, SYMM_OP_COLLECT, b.bytes, 0, b.lane, off, site);
    }
    symm_heap_unlock(h);
    return symmSuccess;
}

static symmResult_t end_graph_range(symm_heap *h, uint64_t off, const void *site) {
    (void)site;
    return symm_heap_graph_range_end(h, off);
}

/* LOCAL blocks need no order among ranks. */
static void collect_local(symm_heap *h, const void *site) {
    uint64_t z = 0;
    symm_piece p;
    symm_block b;
    for (;;) {
        symm_heap_lock(h);
        int found = h->uncollected_bytes && symm_place_at(h->zone[SYMM_ZONE_LOCAL].place, z, &p);
        int uncollected = found && p.used &&
                          symm_heap_find(h, symm_zone_flip(h, SYMM_ZONE_LOCAL, p.off, 1), &b) &&
                          b.uncollected == SYMM_UNCOLLECTED;
        symm_heap_unlock(h);
        if (!found) return;
        if (uncollected) (void)give_back(h, b.off, site);
        z = p.off + p.bytes;
    }
}

static const char collecting[] = "collecting a heap";

typedef struct { /* what waits for all ranks to have given it back */
    void (*list)(const symm_heap *h, uint64_t from, waiting *w);
    uint64_t (*next)(const symm_heap *h, uint64_t from); /* instead of list */
    symmResult_t (*give)(symm_heap *h, uint64_t off, const void *site);
} kind;

/* A list that goes on in the next message is known up to its last offset. Up to the lowest of these
 * all lists are known: what is in all of them is returned, in order, and the next messages begin
 * behind it. Every rank sees the same messages. */
static symmResult_t collect_all(symm_heap *h, const kind *what, const void *site,
                                symmResult_t *soft) {
    symm_comm *c = h->comm;
    waiting mine, all[SYMM_MAX_RANKS];
    int more = 1;
    for (uint64_t from = 0, upto = 0; more; from = upto + 1) {
        symm_heap_lock(h);
        if (what->next)
            list_by(what->next, h, from, &mine);
        else
            what->list(h, from, &mine);
        symm_heap_unlock(h);
        SYMM_TRY(symm_comm_gather(c, &mine, all, sizeof mine, collecting));
        upto = UINT64_MAX - 1;
        more = 0;
        for (int r = 0; r < c->nranks; r++) {
            if (all[r].more && all[r].off[OFFSETS - 1] < upto) upto = all[r].off[OFFSETS - 1];
            more |= all[r].more;
        }
        for (int i = 0; i < all[0].n && all[0].off[i] <= upto; i++) {
            int in = 1;
            for (int r = 1; r < c->nranks && in; r++) in = has(&all[r], all[0].off[i]);
            symmResult_t r = in ? what->give(h, all[0].off[i], site) : symmSuccess;
            if (r && !*soft) *soft = r;
        }
    }
    return symmSuccess;
}

static symmResult_t collect_idle(symm_heap *h, int k, const void *site, symmResult_t *soft) {
    const kind what = {NULL, h->guest->idle[k].next, h->guest->idle[k].let};
    return collect_all(h, &what, site, soft);
}

/* Memory that is collected is not in use. Work of graphs has ended, else they would hold it. Work
 * of streams on blocks that graphs left is waited for before the ranks meet. */
static symmResult_t collect(symm_heap *h, symmResult_t status, const void *site) {
    static const kind blocks = {list_uncollected, NULL, give_back},
                      graph_ranges = {list_graph_ranges, NULL, end_graph_range};
    int idle;
    const int apart = h->ngraph_ranges; /* equal on all ranks */
    symmResult_t soft = symmSuccess;
    if (!status) status = h->guest->settle(h);
    SYMM_TRY(meet(h, status, 0, 0, collecting, &idle));
    for (int k = 0; k < IDLE_KINDS; k++) /* first, because blocks enter uncollected by it */
        if (idle >> k & 1) SYMM_TRY(collect_idle(h, k, site, &soft));
    SYMM_TRY(collect_all(h, &blocks, site, &soft));
    collect_local(h, site);
    if (apart) SYMM_TRY(collect_all(h, &graph_ranges, site, &soft));
    /* Guard mode: no peer writes to what this rank is still painting. */
    if (apart || h->guard) soft = symm_comm_agree(h->comm, soft, collecting);
    symm_memcut_look();
    return apart || h->guard ? soft : symmSuccess;
}

/* ---- check ----------------------------------------------------------------------------------- */

typedef struct {
    symm_heap *h;
    int zone;
} walk;

static void lock(void *ctx) {
    symm_heap_lock(((walk *)ctx)->h);
}
static void unlock(void *ctx) {
    symm_heap_unlock(((walk *)ctx)->h);
}

/* What must be painted at or behind zone offset z: a part of a hole, or a block's red zone. Arenas
 * and the like look at blocks inside theirs themselves. */
static uint64_t next_spot(void *ctx, uint64_t z, symm_spot *s) {
    const walk *w = ctx;
    symm_piece p;
    symm_block b;
    *s = (symm_spot){0};
    if (!symm_place_at(w->h->zone[w->zone].place, z, &p)) return 0;
    uint64_t next = p.off + p.bytes;
    if (p.used) {
        if (!symm_heap_find(w->h, symm_zone_flip(w->h, w->zone, p.off, 1), &b)) return next;
        *s = (symm_spot){.off = b.off + b.bytes, .block = b.off, .asked = b.bytes};
        s->bytes = b.uncollected == SYMM_UNCOLLECTED_BUSY ? 0 : b.room - b.bytes;
        return next;
    }
    if (p.off > z) z = p.off;
    if (next - z > SYMM_GUARD_PIECE) next = z + SYMM_GUARD_PIECE;
    *s = (symm_spot){symm_zone_flip(w->h, w->zone, z, next - z), next - z, .poison = 1};
    return next;
}

/* Blocks inside those of an owner: the owner looks at them. */
static symmResult_t check_inside(symm_heap *h) {
    for (int owner = 0; owner <= SYMM_OWNER_HEAP; owner++) {
        symm_heap_lock(h);
        const symm_heap_look look = h->inside[owner].check;
        void *arg = h->inside[owner].check_arg;
        symm_heap_unlock(h);
        if (look) SYMM_TRY(look(arg));
    }
    return symmSuccess;
}

/* Guard mode: the first damage, of now or of before. */
static symmResult_t check_painted(symm_heap *h) {
    char old[SYMM_GUARD_TEXT];
    symm_heap_lock(h);
    snprintf(old, sizeof old, "%s", h->damage);
    symm_heap_unlock(h);
    if (old[0]) return SYMM_ERR(symmInvalidUsage, "%s", old);
    for (int zone = 0; zone < SYMM_ZONES; zone++) {
        walk w = {h, zone};
        SYMM_TRY(symm_guard_walk(h, &(symm_guard_walker){&w, lock, unlock, next_spot}));
    }
    SYMM_TRY(check_inside(h));
    return h->guest->check(h);
}

static symmResult_t check(symm_heap *h, symmResult_t status) {
    if (!status && h->guard) status = check_painted(h);
    int idle;
    return meet(h, status, 0, 1, "checking a heap", &idle);
}

/* ---- public ---------------------------------------------------------------------------------- */

enum { TRIM, COLLECT, CHECK };
typedef struct {
    symmHeap_t heap;
    int what;
    uint64_t keep, *freed;
    const void *site;
} tidy_args;

static symmResult_t tidy_job(void *p) {
    const tidy_args *a = p;
    symm_heap *h;
    symm_setup s;
    SYMM_TRY(symm_heap_enter(a->heap, 1, &h));
    symm_setup_begin(h->comm, &s);
    symmResult_t r;
    if (a->what == TRIM)
        r = symm_heap_trim(h, s.status, a->keep, a->freed);
    else if (a->what == COLLECT)
        r = collect(h, s.status, a->site);
    else
        r = check(h, s.status);
    return symm_setup_leave(&s, r);
}

static symmResult_t tidy(tidy_args a) {
    symm_heap *h;
    symmResult_t r = symm_heap_pin(a.heap, &h);
    if (r) return symm_group_refuse(r);
    r = symm_group_run(h->comm->handle, SYMM_JOB_BLOCKS, tidy_job, &a, sizeof a);
    symm_heap_unpin(h);
    return r;
}

symmResult_t symmHeapTrim(symmHeap_t heap, size_t keep, size_t *freed) {
    if (freed) *freed = 0;
    return tidy((tidy_args){.heap = heap, .what = TRIM, .keep = keep, .freed = freed});
}

symmResult_t symmHeapCollect(symmHeap_t heap) {
    return tidy((tidy_args){.heap = heap, .what = COLLECT, .site = __builtin_return_address(0)});
}

symmResult_t symmHeapCheck(symmHeap_t heap) {
    return tidy((tidy_args){.heap = heap, .what = CHECK});
}
