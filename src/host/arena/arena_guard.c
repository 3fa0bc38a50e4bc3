/* arena_guard.c - guard mode inside an arena: a red zone behind each block, poison everywhere else,
 * both painted and looked at with the heap's functions. The core is asked for more bytes than the
 * program asked for. A table by offset (a placement that places nothing) says how many those were.
 * Any thread. g->lock guards the table; it is taken after the global part's, and no lock after it.
 * Blocks are painted without it, marked as busy. */
#include <stdlib.h>

#include "base/fail.h"
#include "host/comm/comm.h"
#include "host/heap/heap.h"
#include "arena_int.h"

/* A block's tag in the table: its red zone, and whether it is being taken or given just now. */
#define TAG_RED  0xffffull
#define TAG_BUSY (1ull << 16)

struct symm_arena_guard {
    pthread_mutex_t lock; /* all below */
    symm_heap *heap;
    symm_place *blocks; /* that live; a hole over all other offsets */
    /* Not looked at: somewhere in it bytes were freed while their stream could not be waited for,
     * or the driver did not paint them. */
    uint64_t dark, dark_end;
};

symmResult_t symm_arena_guard_new(symm_arena *a, struct symm_heap *h) {
    if (!symm_heap_guarded(h)) return symmSuccess;
    symm_arena_guard *g = SYMM_FAIL_ALLOC(arena_guard, calloc(1, sizeof *g));
    if (g) {
        pthread_mutex_init(&g->lock, NULL);
        g->heap = h;
        g->blocks = symm_place_new(SYMM_PLACE_FIRST);
        a->guard = g;
    }
    /* A red zone is no longer than its block, in units of placement, so twice the limit is
     * enough. */
    if (!a->sym) a->most = 2 * a->limit + a->super;
    if (g && g->blocks && !symm_place_add(g->blocks, 0, a->up.limit)) return symmSuccess;
    return SYMM_ERR(symmOutOfMemory, "arena %s: no memory for the table of guard mode", a->name);
}

void symm_arena_guard_end(symm_arena_guard *g) {
    if (!g) return;
    symm_place_end(g->blocks);
    pthread_mutex_destroy(&g->lock);
    free(g);
}

/* With the lock. */
static void guard_check(const symm_arena_guard *g) {
    symm_place_stats s;
    symm_place_measure(g->blocks, &s);
    SYMM_ASSERT(s.blocks * SYMM_RED_ZONE <= s.used); /* each has its red zone */
    SYMM_ASSERT(g->dark <= g->dark_end && (!g->dark_end || g->dark < g->dark_end));
}

/* With the lock. */
static int is_dark(const symm_arena_guard *g, uint64_t off, uint64_t bytes) {
    return off < g->dark_end && off + bytes > g->dark;
}
static void darken(symm_arena_guard *g, uint64_t off, uint64_t bytes) {
    if (!g->dark_end || off < g->dark) g->dark = off;
    if (off + bytes > g->dark_end) g->dark_end = off + bytes;
}

static void darken_now(symm_arena_guard *g, uint64_t off, uint64_t bytes) {
    pthread_mutex_lock(&g->lock);
    darken(g, off, bytes);
    SYMM_CHECK(guard_check(g));
    pthread_mutex_unlock(&g->lock);
}

/* ---- taking ---------------------------------------------------------------------------------- */

/* Enters the block into the table, busy. -1: no memory. */
static int enter(symm_arena_guard *g, uint64_t off, uint64_t room, uint64_t red, int *dark) {
    pthread_mutex_lock(&g->lock);
    const int bad = symm_place_take_at(g->blocks, off, room, red | TAG_BUSY);
    *dark = is_dark(g, off, room);
    SYMM_ASSERT(red >= SYMM_RED_ZONE && red <= room && red <= TAG_RED);
    SYMM_CHECK(guard_check(g));
    pthread_mutex_unlock(&g->lock);
    return bad;
}

/* The bytes are poison: whoever freed them has waited for its stream. */
static void look_and_paint(const symm_arena *a, uint64_t off, uint64_t room, uint64_t red) {
    symm_heap *h = a->guard->heap;
    symm_guard_warn(h, &(symm_spot){.off = off, .bytes = room, .poison = 1, .arena = a->name});
    if (symm_guard_paint(h, off + room - red, red, 0)) darken_now(a->guard, off, room);
}

/* Whether the bytes that programs asked for fit into the limit. */
static symmResult_t fits(symm_arena *a, uint64_t bytes) {
    symm_place_stats s;
    pthread_mutex_lock(&a->guard->lock);
    symm_place_measure(a->guard->blocks, &s);
    pthread_mutex_unlock(&a->guard->lock);
    const uint64_t used = s.used - s.blocks * SYMM_RED_ZONE;
    if (bytes <= a->limit && used <= a->limit - bytes) return symmSuccess;
    return SYMM_ERR(
        symmOutOfMemory, "arena %s: %llu bytes do not fit: %llu are in use of its limit of %llu",
        a->name, (unsigned long long)bytes, (unsigned long long)used, (unsigned long long)a->limit);
}

symmResult_t symm_arena_guard_take(symm_arena *a, int stripe, symmStream_t s, uint64_t bytes,
                                   uint64_t align, uint64_t *off) {
    symm_arena_guard *g = a->guard;
    /* A size above the limit is passed on as it is, to be refused: with a red zone it might
     * overflow. */
    const uint64_t room =
        bytes > a->limit ? bytes : symm_round_up(bytes + SYMM_RED_ZONE, SYMM_ARENA_UNIT);
    int dark;
    if (!a->sym) SYMM_TRY(fits(a, bytes));
    SYMM_TRY(a->sym ? symm_arena_take_on(a, stripe, room, align, off)
                    : symm_arena_take(a, s, room, align, off));
    if (enter(g, *off, room, room - bytes, &dark)) {
        (void)symm_arena_give(a, s, *off);
        return SYMM_ERR(symmOutOfMemory, "arena %s: no memory for the record of a block", a->name);
    }
    if (!dark) look_and_paint(a, *off, room, room - bytes);
    pthread_mutex_lock(&g->lock);
    symm_place_set_tag(g->blocks, *off, room - bytes);
    pthread_mutex_unlock(&g->lock);
    return symmSuccess;
}

/* ---- giving back ----------------------------------------------------------------------------- */

/* Marks the block that begins at off as busy, for one of two frees. 0: none does, or it is busy. */
static uint64_t claim(symm_arena_guard *g, uint64_t off, uint64_t *red) {
    pthread_mutex_lock(&g->lock);
    uint64_t tag = 0, room = symm_place_block(g->blocks, off, &tag);
    if (tag & TAG_BUSY) room = 0;
    if (room) symm_place_set_tag(g->blocks, off, tag | TAG_BUSY);
    pthread_mutex_unlock(&g->lock);
    *red = tag & TAG_RED;
    return room;
}

/* Waits for the work that the stream was given before the free. 0: it cannot be waited for. Blocks
 * of symmetric arenas are freed when their work has ended. */
static int is_over(const symm_arena *a, symmStream_t s) {
    symm_point p;
    if (a->sym) return 1;
    if (!a->order.still(a->order.ctx, s)) return 0;
    if (a->order.take(a->order.ctx, s, &p) <= 0) return 1;
    const int over = a->order.reach(a->order.ctx, &p) == symmSuccess;
    a->order.drop(a->order.ctx, &p);
    return over;
}

static symmResult_t given(const symm_arena *a, uint64_t off, uint64_t room, uint64_t red) {
    symm_heap *h = a->guard->heap;
    const symm_spot s = {
        .off = off + room - red, .bytes = red, .block = off, .asked = room - red, .arena = a->name};
    symmResult_t r = symm_guard_freed(h, &s);
    if (symm_guard_paint(h, off, room, 1)) darken_now(a->guard, off, room);
    return r;
}

symmResult_t symm_arena_guard_give(symm_arena *a, symmStream_t s, uint64_t off) {
    symm_arena_guard *g = a->guard;
    symmResult_t r = symmSuccess;
    uint64_t red;
    SYMM_TRY(symm_arena_meet(a, s)); /* the only step that can fail, before painting */
    const uint64_t room = claim(g, off, &red);
    if (!room) return symm_arena_refuse(a, off);
    const int over = is_over(a, s);
    pthread_mutex_lock(&g->lock);
    if (!over) darken(g, off, room);
    const int dark = is_dark(g, off, room);
    pthread_mutex_unlock(&g->lock);
    if (!dark) r = given(a, off, room, red);
    pthread_mutex_lock(&g->lock);
    symm_place_give(g->blocks, off); /* before another thread can get these bytes */
    pthread_mutex_unlock(&g->lock);
    const symmResult_t gave = symm_arena_give(a, s, off);
    return r ? r : gave;
}

/* ---- questions ------------------------------------------------------------------------------- */

int symm_arena_guard_narrow(symm_arena_guard *g, uint64_t begin, uint64_t off, uint64_t *bytes) {
    uint64_t tag = 0;
    pthread_mutex_lock(&g->lock);
    const uint64_t room = symm_place_block(g->blocks, begin, &tag);
    pthread_mutex_unlock(&g->lock);
    if (!room || tag & TAG_BUSY) return 0;
    *bytes = room - (tag & TAG_RED);
    return off - begin < *bytes;
}

uint64_t symm_arena_guard_red(symm_arena_guard *g) {
    symm_place_stats s;
    pthread_mutex_lock(&g->lock);
    symm_place_measure(g->blocks, &s);
    pthread_mutex_unlock(&g->lock);
    return s.blocks * SYMM_RED_ZONE;
}

/* ---- the check ------------------------------------------------------------------------------- */

/* Both, in the order of arena_int.h. */
static void lock(void *ctx) {
    symm_arena *a = ctx;
    symm_arena_lock(a);
    pthread_mutex_lock(&a->guard->lock);
}
static void unlock(void *ctx) {
    symm_arena *a = ctx;
    pthread_mutex_unlock(&a->guard->lock);
    symm_arena_unlock(a);
}

/* What must be painted at or behind `at`, in memory that the arena holds now. */
static uint64_t next_spot(void *ctx, uint64_t at, symm_spot *s) {
    const symm_arena *a = ctx;
    const symm_arena_guard *g = a->guard;
    symm_piece p;
    int i = 0;
    *s = (symm_spot){.arena = a->name};
    while (i < a->npieces && a->pieces[i].off + a->pieces[i].bytes <= at) i++;
    if (i == a->npieces) return 0;
    if (at < a->pieces[i].off) at = a->pieces[i].off;
    if (!symm_place_at(g->blocks, at, &p)) return 0;
    uint64_t next = p.off + p.bytes;
    if (p.used) {
        s->block = p.off;
        s->asked = p.bytes - (p.tag & TAG_RED);
        s->off = s->block + s->asked;
        s->bytes = p.tag & TAG_BUSY || is_dark(g, p.off, p.bytes) ? 0 : p.tag & TAG_RED;
        return next;
    }
    const uint64_t end = a->pieces[i].off + a->pieces[i].bytes;
    if (next > end) next = end;
    if (next - at > SYMM_GUARD_PIECE) next = at + SYMM_GUARD_PIECE;
    s->poison = 1;
    s->off = at;
    s->bytes = is_dark(g, at, next - at) ? 0 : next - at;
    return next;
}

symmResult_t symm_arena_guard_check(symm_arena *a) {
    return symm_guard_walk(a->guard->heap, &(symm_guard_walker){a, lock, unlock, next_spot});
}
