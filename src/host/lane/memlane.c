/* memlane.c - lanes: creation, destruction, eager allocation and eager free. The communicator's
 * user thread. The hot path is symmLaneAlloc and symmLaneFree of a size that the lane keeps. It
 * calls the driver once, to ask whether the stream is under capture. */
#include "memplan.h"

#include <stdlib.h>

#include "base/fail.h"
#include "base/handle.h"
#include "base/stats.h"
#include "host/comm/comm.h"
#include "host/gpu/gpu.h"
#include "host/launch/launch.h"
#include "host/window/space.h"

/* ---- sets ------------------------------------------------------------------------------------ */

/* The block that holds off, for symmMemQuery and symmRefGet. */
static int inside(void *arg, uint64_t off, uint64_t *begin, uint64_t *bytes, int *lane) {
    const symm_memlanes *s = arg;
    symm_piece piece;
    for (int z = 0; z < SYMM_MEM_ZONES; z++) {
        const uint64_t fine = symm_mempool_fine(off);
        if (!symm_place_at(s->pool[z].place, fine, &piece) || !piece.used || piece.off > fine)
            continue;
        const symm_memrec *r = symm_memtable_find(&s->table, symm_mempool_bytes(piece.off));
        if (!r || r->state != SYMM_REC_LIVE) return 0;
        if (off - r->off >= r->bytes - r->red) return 0; /* in its red zone */
        *begin = r->off;
        *bytes = r->bytes - r->red;
        *lane = r->lane;
        return 1;
    }
    return 0;
}

static void reap_dead(void) {
    symm_memplan_reap(NULL);
}

static symmResult_t new_set(symm_heap *heap, symmHeap_t handle, symm_memlanes **out) {
    symm_memlanes *s = SYMM_FAIL_ALLOC(memlane_set, calloc(1, sizeof *s));
    if (!s) return SYMM_ERR(symmOutOfMemory, "no memory for a lane");
    s->heap = heap;
    s->handle = handle;
    s->comm = symm_heap_comm(heap);
    symmResult_t r = symm_memguard_new(s);
    if (r) {
        free(s);
        return r;
    }
    for (int z = 0; z < SYMM_MEM_ZONES; z++)
        if (!(s->pool[z].place = SYMM_FAIL_ALLOC(memlane_pool, symm_place_new(SYMM_PLACE_FIRST)))) {
            for (int k = 0; k < z; k++) symm_mempool_end(&s->pool[k]);
            symm_memguard_end(s);
            free(s);
            return SYMM_ERR(symmOutOfMemory, "no memory for a lane's pool");
        }
    symm_heap_ref(heap);
    s->next = s->comm->lanes.sets;
    s->comm->lanes.sets = s;
    symm_launch_observe(s->comm, &symm_memlane_observer);
    symm_gpu_also_reap(reap_dead);
    symm_heap_set_guest(heap, &symm_memplan_guest);
    s->refs = 1;
    symm_heap_set_inside(heap, SYMM_OWNER_LANE, inside, s);
    symm_heap_set_inside(heap, SYMM_OWNER_GRAPH, symm_memplan_inside, s);
    symm_heap_set_access(heap, SYMM_OWNER_GRAPH, symm_memplan_access, s);
    *out = s;
    return symmSuccess;
}

/* The heap's set, with one more reference. */
static symmResult_t find_set(symm_heap *heap, symmHeap_t handle, symm_memlanes **out) {
    for (symm_memlanes *s = symm_heap_comm(heap)->lanes.sets; s; s = s->next) {
        if (s->heap != heap) continue;
        s->refs++;
        *out = s;
        return symmSuccess;
    }
    return new_set(heap, handle, out);
}

/* ---- life ------------------------------------------------------------------------------------ */

static void free_lane(void *obj) {
    free(obj);
}

static symmResult_t check_stream(const symm_comm *c, symmStream_t stream) {
    symm_memstate st;
    if (c->cuda && symm_gpu_is_per_thread(stream))
        return SYMM_ERR(symmInvalidArgument,
                        "symmLaneCreate: stream=%p is the per-thread default stream, another one "
                        "in each thread",
                        (void *)stream);
    return symm_mem_state(c, stream, &st);
}

static symmResult_t add_lane(symm_memlanes *s, symmStream_t stream, symm_memlane **out) {
    symmResult_t status;
    void *handle;
    symm_memlane **lanes =
        SYMM_FAIL_ALLOC(memlane_list, realloc(s->lanes, ((size_t)s->made + 1) * sizeof *lanes));
    if (!lanes) return SYMM_ERR(symmOutOfMemory, "no memory for a lane");
    s->lanes = lanes;
    if (s->guard) SYMM_TRY(symm_memguard_add(s));
    symm_memlane *l = SYMM_FAIL_ALLOC(memlane_alloc, calloc(1, sizeof *l));
    if (!l) return SYMM_ERR(symmOutOfMemory, "no memory for a lane");
    l->set = s;
    l->stream = stream;
    l->ordinal = s->made;
    SYMM_TRY_GOTO(symm_handle_new(SYMM_KIND_LANE, l, free_lane, &handle), free_memory);
    l->handle = handle;
    s->lanes[s->made++] = l;
    s->alive++;
    SYMM_STAT_ADD(lanes, 1);
    *out = l;
    return symmSuccess;
free_memory:
    free(l);
    return status;
}

static symmResult_t create(symm_heap *h, symmHeap_t heap, symmStream_t stream, symmLane_t *lane) {
    symm_memlanes *s;
    symm_memlane *l = NULL;
    SYMM_TRY(check_stream(symm_heap_comm(h), stream));
    SYMM_TRY(find_set(h, heap, &s));
    symmResult_t r = add_lane(s, stream, &l);
    if (r)
        symm_memlanes_unref(s);
    else
        *lane = l->handle;
    return r;
}

symmResult_t symmLaneCreate(symmHeap_t heap, symmStream_t stream, symmLane_t *lane) {
    symm_heap *h;
    if (!lane) return SYMM_ERR(symmInvalidArgument, "symmLaneCreate: lane is NULL");
    SYMM_TRY(symm_memlane_no_group("symmLaneCreate"));
    SYMM_TRY(symm_heap_enter(heap, 1, &h));
    symmResult_t r = create(h, heap, stream, lane);
    symm_heap_leave(h);
    return r;
}

/* The lane ends. Its heir takes over its marks and its pending blocks. The heir's stream is put
 * behind this lane's stream. */
static symmResult_t inherit(symm_memlane *l, symm_memlane *heir) {
    symm_comm *c = l->set->comm;
    symm_memmark now = {0};
    symmResult_t r = symm_memmark_set(c, &now, l->stream);
    if (!r && !symm_mem_alive(c, heir->stream))
        r = symm_memmark_reach(c, &now); /* the heir's stream takes no more work */
    else if (!r && heir->stream != l->stream)
        r = symm_memmark_follow(c, &now, heir->stream);
    for (int z = 0; z < SYMM_MEM_ZONES && !r; z++)
        if (l->zone[z].gave) r = symm_memlane_mark(heir, z);
    symm_memmark_end(c, &now);
    if (!r) r = symm_memuse_inherit(l, heir);
    SYMM_TRY(r);
    for (symm_memrec *m = l->pending_first; m; m = m->next) m->stamp = c->lanes.heard;
    if (l->pending_first) {
        *(heir->pending_last ? &heir->pending_last->next : &heir->pending_first) = l->pending_first;
        heir->pending_last = l->pending_last;
        heir->zone[SYMM_MEM_SYM].pending += l->zone[SYMM_MEM_SYM].pending;
        l->pending_first = l->pending_last = NULL;
    }
    return symmSuccess;
}

/* A lane whose stream takes work now; if there is none, a lane whose stream is gone. */
static symmResult_t find_heir(const symm_memlane *l, symm_memlane **heir) {
    symm_memlanes *s = l->set;
    symm_memstate st;
    *heir = NULL;
    for (int i = 0; i < s->made; i++) {
        symm_memlane *o = s->lanes[i];
        if (!o || o == l) continue;
        if (!symm_mem_alive(s->comm, o->stream)) {
            *heir = o;
            continue;
        }
        SYMM_TRY(symm_mem_state(s->comm, o->stream, &st));
        if (st.how != SYMM_STREAM_EAGER || symm_mem_shut(s->comm, o->stream)) continue;
        *heir = o;
        return symmSuccess;
    }
    if (*heir) return symmSuccess;
    return SYMM_ERR(
        symmInvalidUsage,
        "symmLaneDestroy: lane %d: no other lane can take its place: their streams are under "
        "capture, or the legacy stream while one is",
        l->ordinal);
}

/* The lane gives what it keeps to the pool. Then another lane takes its place; or, after the last
 * one, the pool is given back to the heap. */
static symmResult_t hand_over(symm_memlane *l, const void *site) {
    symm_memlanes *s = l->set;
    symm_memlane *heir = NULL;
    if (s->alive > 1) {
        SYMM_TRY(find_heir(l, &heir));
    } else if (s->live || symm_memplan_live(s)) {
        return SYMM_ERR(symmInvalidUsage,
                        "symmLaneDestroy: lane %d is the last one of its heap, and %llu bytes of "
                        "lanes and %d blocks of graphs are still allocated",
                        l->ordinal, (unsigned long long)(s->live - s->red), symm_memplan_live(s));
    }
    for (int z = 0; z < SYMM_MEM_ZONES; z++) SYMM_TRY(symm_memlane_flush(l, z));
    if (heir) return inherit(l, heir);
    symm_memmark now = {0};
    symmResult_t r = symm_memmark_set(s->comm, &now, l->stream);
    if (!r) r = symm_memmark_reach(s->comm, &now);
    symm_memmark_end(s->comm, &now);
    if (!r) r = symm_memuse_reach(s, NULL);
    SYMM_TRY(r);
    if (s->guard) symm_memguard_look(s);
    while (l->pending_first) { /* this rank's work on it has ended; the heap waits for the peers' */
        symm_memrec *m = l->pending_first;
        l->pending_first = m->next;
        symm_place_give(s->pool[SYMM_MEM_SYM].place, symm_mempool_fine(m->off));
        symm_memtable_drop(&s->table, m);
    }
    l->pending_last = NULL;
    l->zone[SYMM_MEM_SYM].pending = 0;
    for (int z = 0; z < SYMM_MEM_ZONES; z++) symm_mempool_shrink(s, z, site);
    return symmSuccess;
}

static void end_lane(symm_memlane *l) {
    symm_memlanes *s = l->set;
    const symmLane_t handle = l->handle;
    symm_memplan_orphan(l);
    for (int z = 0; z < SYMM_MEM_ZONES; z++) symm_memlane_unmark(l, z);
    SYMM_ASSERT(s->lanes[l->ordinal] == l && !l->region);
    s->lanes[l->ordinal] = NULL;
    s->alive--;
    symm_handle_close(SYMM_KIND_LANE, handle);
    symm_handle_put(SYMM_KIND_LANE, handle);
    SYMM_STAT_ADD(lanes, -1);
    symm_memlanes_unref(s);
}

static symmResult_t destroy(symm_memlane *l, const void *site) {
    symm_memstate st;
    symm_memlanes *s = l->set;
    symmResult_t r = symmSuccess;
    if (symm_mem_alive(s->comm, l->stream))
        r = symm_mem_state(s->comm, l->stream, &st);
    else
        st.how = SYMM_STREAM_EAGER; /* hand_over waits for its work */
    if (!r && st.how == SYMM_STREAM_CAPTURED)
        return SYMM_ERR(symmInvalidUsage, "symmLaneDestroy: stream=%p of lane %d is under capture",
                        (void *)l->stream, l->ordinal);
    return hand_over(l, site);
}

/* The heap has gone, and this memory with it. */
static symmResult_t destroy_dead(symmLane_t lane, symm_comm *c) {
    symmResult_t r = symmSuccess;
    int turn;
    SYMM_TRY(symm_memplan_enter_dead(c, &turn));
    symm_memlane *l = symm_memlane_peek(lane); /* another thread may have been here before */
    if (l) {
        symm_memplan_forget(l->set);
        end_lane(l);
    } else {
        r = symm_memlane_unknown(lane, "symmLaneDestroy");
    }
    symm_memplan_leave_dead(c, turn);
    return r;
}

symmResult_t symmLaneDestroy(symmLane_t lane) {
    symm_heap *h;
    const symm_memlane *known = symm_memlane_peek(lane);
    if (!known) return symm_memlane_unknown(lane, "symmLaneDestroy");
    SYMM_TRY(symm_memlane_no_group("symmLaneDestroy"));
    if (!symm_handle_open(SYMM_KIND_HEAP, known->set->handle))
        return destroy_dead(lane, known->set->comm);
    SYMM_TRY(symm_heap_enter(known->set->handle, 0, &h));
    symm_heap_ref(h);                          /* the set may end before symm_heap_leave */
    symm_memlane *l = symm_memlane_peek(lane); /* NULL: ended before this thread's turn */
    symmResult_t r =
        l ? destroy(l, __builtin_return_address(0)) : symm_memlane_unknown(lane, "symmLaneDestroy");
    if (!r) end_lane(l);
    symm_heap_leave(h);
    symm_heap_unref(h);
    return r;
}

/* ---- allocating ------------------------------------------------------------------------------ */

static void count_taken(symm_memlane *l, symm_memrec *r) {
    symm_memzone *z = &l->zone[r->zone];
    r->state = SYMM_REC_LIVE;
    r->lane = l->ordinal;
    z->live += r->bytes;
    l->set->live += r->bytes;
    l->allocs++;
    if (++z->calls == SYMM_MEMLANE_WINDOW) {
        z->calls = 0;
        z->peak_before = z->peak;
        z->peak = 0;
    }
    if (z->peak < z->live) z->peak = z->live;
}

static void note(symm_memlane *l, const symm_memrec *r, int freed, const void *site) {
    if (r->zone == SYMM_MEM_SYM)
        symm_heap_note(l->set->heap, freed, r->bytes - r->red, l->ordinal, r->off, site);
}

static symmResult_t alloc_now(symm_memlane *l, uint64_t asked, int zone, const void *site,
                              uint64_t *off) {
    symm_memrec *r;
    const uint64_t bytes = l->set->guard ? asked + SYMM_MEMLANE_RED : asked;
    if (zone == SYMM_MEM_SYM) symm_memlane_observe(l);
    SYMM_TRY(symm_mempool_take(l, zone, symm_round_up(bytes, symm_memlane_unit(bytes)), site, &r));
    if (__builtin_expect(l->set->guard != NULL, 0)) {
        const symmResult_t painted = symm_memguard_taken(l, r, asked);
        if (painted) symm_memlane_keep(l, r);
        SYMM_TRY(painted);
    }
    count_taken(l, r);
    note(l, r, 0, site);
    *off = r->off;
    return symmSuccess;
}

static symmResult_t check_alloc(size_t bytes, unsigned flags) {
    if (flags & ~(SYMM_ALLOC_LOCAL | SYMM_ALLOC_KEEP))
        return SYMM_ERR(symmInvalidArgument,
                        "symmLaneAlloc: flags=0x%x: must be SYMM_ALLOC_SYM or SYMM_ALLOC_LOCAL, "
                        "with or without SYMM_ALLOC_KEEP",
                        flags);
    if (bytes > SIZE_MAX / 4) /* with a red zone, and twice that as the pool counts: no overflow */
        return SYMM_ERR(symmOutOfMemory, "symmLaneAlloc: bytes=%zu is more than any heap", bytes);
    return symmSuccess;
}

static symmResult_t alloc(symm_memlane *l, size_t bytes, unsigned flags, const void *site,
                          uint64_t *off) {
    symm_memstate st;
    const int zone = flags & SYMM_ALLOC_LOCAL ? SYMM_MEM_LOCAL : SYMM_MEM_SYM;
    SYMM_TRY(symm_mem_state(l->set->comm, l->stream, &st));
    if (st.how == SYMM_STREAM_CAPTURED) return symm_memplan_alloc(l, &st, bytes, flags, site, off);
    return alloc_now(l, bytes, zone, site, off);
}

symmResult_t symmLaneAlloc(symmLane_t lane, size_t bytes, unsigned flags, void **ptr) {
    symm_memlane *l;
    uint64_t off;
    if (!ptr) return SYMM_ERR(symmInvalidArgument, "symmLaneAlloc: ptr is NULL");
    SYMM_TRY(symm_memlane_enter(lane, "symmLaneAlloc", &l));
    symmResult_t r = check_alloc(bytes, flags);
    if (!r && bytes) r = alloc(l, bytes, flags, __builtin_return_address(0), &off);
    if (!r) *ptr = bytes ? symm_memlanes_address(l->set, off) : NULL;
    symm_memlane_leave(l);
    return r;
}

/* ---- freeing --------------------------------------------------------------------------------- */

static void push_pending(symm_memlane *l, symm_memrec *r) {
    SYMM_ASSERT(r->zone == SYMM_MEM_SYM && l->set->comm->nranks > 1);
    r->state = SYMM_REC_PENDING;
    r->stamp = l->set->comm->lanes.heard;
    r->next = NULL;
    *(l->pending_last ? &l->pending_last->next : &l->pending_first) = r;
    l->pending_last = r;
    l->zone[SYMM_MEM_SYM].pending += r->bytes;
}

static symmResult_t bad_free(const symm_memlane *l, const symm_memrec *r, const void *ptr) {
    return SYMM_ERR(symmInvalidArgument,
                    "symmLaneFree: ptr=%p (%llu bytes, lane %d) is already freed", ptr,
                    (unsigned long long)(r->bytes - r->red), l->ordinal);
}

static symmResult_t free_now(symm_memlane *l, uint64_t off, const void *ptr, const void *site) {
    symm_memlanes *s = l->set;
    symm_memrec *r = symm_memtable_find(&s->table, off);
    if (!r) return symm_memplan_free_now(l, off, ptr, site);
    if (__builtin_expect(r->state != SYMM_REC_LIVE, 0)) return bad_free(l, r, ptr);
    const int zone = r->zone;
    symm_memlane *from = s->lanes[r->lane];
    symmResult_t found = symmSuccess;
    if (from != l) SYMM_TRY(symm_memlane_limit(l, zone, r->bytes, 0));
    if (__builtin_expect(s->guard != NULL, 0)) SYMM_TRY(symm_memguard_freed(l, r, &found));
    SYMM_ASSERT(r->bytes <= s->live && (!from || r->bytes <= from->zone[zone].live));
    if (from) from->zone[zone].live -= r->bytes;
    s->live -= r->bytes;
    l->frees++;
    note(l, r, 1, site);
    if (zone == SYMM_MEM_LOCAL || s->comm->nranks == 1) {
        symm_memlane_keep(l, r);
    } else {
        symm_memlane_observe(l);
        push_pending(l, r);
    }
    return found;
}

static symmResult_t free_any(symm_memlane *l, void *ptr, const void *site) {
    symm_memstate st;
    const uint64_t off = symm_heap_offset(l->set->heap, ptr);
    SYMM_TRY(symm_mem_state(l->set->comm, l->stream, &st));
    if (off == SYMM_NO_OFFSET)
        return SYMM_ERR(symmInvalidArgument, "symmLaneFree: ptr=%p is not of the heap of lane %d",
                        ptr, l->ordinal);
    if (st.how == SYMM_STREAM_CAPTURED) return symm_memplan_free(l, &st, off, ptr, site);
    return free_now(l, off, ptr, site);
}

symmResult_t symmLaneFree(symmLane_t lane, void *ptr) {
    symm_memlane *l;
    SYMM_TRY(symm_memlane_enter(lane, "symmLaneFree", &l));
    symmResult_t r = ptr ? free_any(l, ptr, __builtin_return_address(0)) : symmSuccess;
    symm_memlane_leave(l);
    return r;
}
