/* arena_sub.c - sub-arenas: blocks in superblocks, and blocks that others free. Any thread; a sub's
 * lock for its engine, its far_lock for what others free. Blocks that a thread keeps for its next
 * calls: arena_bins.c. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "arena_int.h"

/* If an owner's list is longer, whoever frees a block of it places the blocks, so that the list of
 * an idle owner does not grow for ever. */
enum { FAR_MOST = 256 };

static symm_sub *sub_memory(void) {
    return SYMM_FAIL_ALLOC(arena_sub, aligned_alloc(64, sizeof(symm_sub)));
}

symm_sub *symm_sub_new(symm_arena *a, int kind, symmStream_t s) {
    symm_sub *sub = sub_memory();
    if (!sub) return NULL;
    memset(sub, 0, sizeof *sub);
    /* There are many streams with little memory each: best fit saves them more than its time costs.
     * Threads mostly take what they keep. */
    sub->place =
        symm_place_new(kind == SYMM_SUB_STREAM && !a->first ? SYMM_PLACE_BEST : SYMM_PLACE_FIRST);
    if (!sub->place) {
        free(sub);
        return NULL;
    }
    pthread_mutex_init(&sub->lock, NULL);
    pthread_mutex_init(&sub->far_lock, NULL);
    sub->arena = a;
    atomic_store_explicit(&sub->stream, s, memory_order_relaxed);
    atomic_store_explicit(&sub->kind, kind, memory_order_relaxed);
    return sub;
}

void symm_sub_free(symm_sub *sub) {
    symm_pending_clear(sub->arena, &sub->waits);
    symm_place_end(sub->place);
    pthread_mutex_destroy(&sub->lock);
    pthread_mutex_destroy(&sub->far_lock);
    free(sub->far);
    free(sub);
}

/* ---- giving back ----------------------------------------------------------------------------- */

/* Gives superblocks in the hole at off to the global part while the sub has more than `keep`. */
static void release_at(symm_sub *sub, uint64_t off, uint64_t keep) {
    symm_arena *a = sub->arena;
    symm_piece hole;
    if (!symm_place_at(sub->place, off, &hole) || hole.used) return;
    uint64_t at = (hole.off + a->super - 1) & -a->super, end = hole.off + hole.bytes;
    for (; at + a->super <= end && sub->supers > keep; at += a->super) {
        if (symm_place_cut(sub->place, at, a->super)) return; /* no memory to split: it stays */
        SYMM_ASSERT(sub->supers > 0);
        sub->supers--;
        (void)symm_global_give(a, sub, symm_sub_stream(sub), at);
    }
}

/* One superblock stays, for the next block. A stripe keeps all. A sub that has ended keeps `ended`,
 * because work may still run in them. */
static void give_locked(symm_sub *sub, uint64_t off, uint64_t ended) {
    symm_place_give(sub->place, off);
    int kind = atomic_load_explicit(&sub->kind, memory_order_relaxed);
    if (kind != SYMM_SUB_STRIPE) release_at(sub, off, kind == SYMM_SUB_ENDED ? ended : 1);
}

/* Counts a call on a stripe. bytes 0: a free. With the lock. */
static void tally(symm_sub *sub, uint64_t bytes, uint64_t align, uint64_t off) {
    uint64_t d = (sub->digest ^ bytes) * 0x9fb21c651e98df25ull;
    d = (d ^ d >> 32 ^ align) * 0x9fb21c651e98df25ull;
    d = (d ^ d >> 32 ^ off) * 0x9fb21c651e98df25ull;
    sub->digest = d ^ d >> 32 ^ ++sub->calls;
}

void symm_sub_tally(symm_sub *sub, uint64_t *calls, uint64_t *digest) {
    symm_sub_lock(sub);
    *calls = sub->calls;
    *digest = sub->digest;
    symm_sub_unlock(sub);
}

void symm_sub_give(symm_sub *sub, uint64_t off) {
    symm_sub_lock(sub);
    if (atomic_load_explicit(&sub->kind, memory_order_relaxed) == SYMM_SUB_STRIPE)
        tally(sub, 0, 0, off);
    give_locked(sub, off, UINT64_MAX);
    symm_sub_unlock(sub);
}

void symm_sub_tidy(symm_sub *sub, uint64_t keep) {
    symm_piece q;
    for (uint64_t at = 0; symm_place_at(sub->place, at, &q) && sub->supers > keep;
         at = q.off + q.bytes)
        if (!q.used) release_at(sub, q.off, keep);
}

void symm_sub_place(symm_sub *sub, uint64_t off) {
    give_locked(sub, off, UINT64_MAX);
}

/* ---- from afar ------------------------------------------------------------------------------- */

static int far_room(symm_sub *sub) {
    if (sub->nfar < sub->far_cap) return 1;
    int cap = sub->far_cap ? 2 * sub->far_cap : 64;
    uint64_t *far = SYMM_FAIL_ALLOC(arena_far, realloc(sub->far, sizeof *far * (unsigned)cap));
    if (!far) return 0;
    sub->far = far;
    sub->far_cap = cap;
    return 1;
}

void symm_sub_give_far(symm_sub *sub, uint64_t off, symmStream_t s) {
    symm_arena *a = sub->arena;
    symm_point point;
    pthread_mutex_lock(&sub->far_lock);
    symmStream_t own = symm_sub_stream(sub);
    int kind = atomic_load_explicit(&sub->kind, memory_order_acquire);
    int noted = far_room(sub), many = sub->nfar >= FAR_MOST;
    const int others = s != own || kind == SYMM_SUB_ENDED; /* somebody else will use it */
    if (noted) {
        SYMM_ASSERT(sub->nfar < sub->far_cap);
        sub->far[sub->nfar++] = off;
        if (others) symm_pending_add(a, &sub->waits, 0, 1, s);
    }
    pthread_mutex_unlock(&sub->far_lock);
    if (!noted) { /* no memory to queue the block: wait, and place it here */
        if (others && a->order.take(a->order.ctx, s, &point) > 0) {
            (void)a->order.reach(a->order.ctx, &point);
            a->order.drop(a->order.ctx, &point);
        }
        symm_sub_give(sub, off);
    } else if (kind == SYMM_SUB_ENDED || many) {
        symm_sub_lock(sub);
        if (kind != SYMM_SUB_STREAM || s == own || a->order.able(a->order.ctx, own))
            (void)symm_sub_drain(sub, kind == SYMM_SUB_STREAM); /* else the blocks stay queued */
        symm_sub_unlock(sub);
    }
}

uint64_t symm_sub_far_bytes(symm_sub *sub) {
    const symm_arena *a = sub->arena;
    uint64_t units = 0;
    pthread_mutex_lock(&sub->far_lock);
    for (int i = 0; i < sub->nfar; i++) {
        const uint64_t off = sub->far[i], unit = (off & (a->super - 1)) / SYMM_ARENA_UNIT;
        units += SYMM_BLOCK_UNITS &
                 atomic_load_explicit(&symm_super_at(a, off)->block[unit], memory_order_relaxed);
    }
    pthread_mutex_unlock(&sub->far_lock);
    return units * SYMM_ARENA_UNIT;
}

/* A stream is made to wait under the lock, so no user of the stream gets a block before. A thread
 * waits itself without the lock, because only it takes blocks of its sub. Meanwhile the blocks stay
 * queued, and nobody places them. */
symmResult_t symm_sub_drain(symm_sub *sub, int may_wait) {
    symm_arena *a = sub->arena;
    int kind = atomic_load_explicit(&sub->kind, memory_order_relaxed);
    symmStream_t stream = symm_sub_stream(sub);
    for (;;) {
        symm_pendings waits = {0};
        symm_pending stands = SYMM_PENDING_NONE;
        symmResult_t status = symmSuccess;
        pthread_mutex_lock(&sub->far_lock);
        if (sub->awaiting ||
            (!may_wait && symm_pending_busy(a, &sub->waits, 0, UINT64_MAX, &stands))) {
            pthread_mutex_unlock(&sub->far_lock); /* another time */
            return symmSuccess;
        }
        if (!sub->waits.n) break;
        waits = sub->waits;
        sub->waits = (symm_pendings){0};
        sub->awaiting = 1;
        pthread_mutex_unlock(&sub->far_lock);
        if (kind != SYMM_SUB_STREAM) symm_sub_unlock(sub);
        status = symm_pending_wait(a, &waits, stream);
        if (kind != SYMM_SUB_STREAM) symm_sub_lock(sub);
        pthread_mutex_lock(&sub->far_lock);
        sub->awaiting = 0;
        symm_pending_return(a, &sub->waits, &waits); /* not empty after an error */
        pthread_mutex_unlock(&sub->far_lock);
        symm_pending_clear(a, &waits);
        if (status) return status;
    }
    while (sub->nfar) {
        uint64_t off = sub->far[--sub->nfar];
        symm_super *super = symm_super_at(a, off);
        uint64_t unit = (off & (a->super - 1)) / SYMM_ARENA_UNIT;
        SYMM_ASSERT(super && atomic_load_explicit(&super->owner, memory_order_relaxed) == sub);
        atomic_store_explicit(&super->block[unit], 0, memory_order_relaxed);
        give_locked(sub, off, 0);
    }
    pthread_mutex_unlock(&sub->far_lock);
    return symmSuccess;
}

/* ---- taking ---------------------------------------------------------------------------------- */

/* Under the lock: places a block. SYMM_PLACE_NONE: there is no room; *why says what is missing. */
static uint64_t place_here(symm_sub *sub, uint64_t bytes, uint64_t align, int *why) {
    symm_arena *a = sub->arena;
    uint64_t off = symm_place_take(sub->place, bytes, align, 0, why);
    if (off == SYMM_PLACE_NONE) return off;
    symm_super *super = symm_super_at(a, off);
    SYMM_ASSERT(super && atomic_load_explicit(&super->owner, memory_order_relaxed) == sub);
    SYMM_ASSERT(off % SYMM_ARENA_UNIT == 0 && bytes <= sub->supers * a->super);
    uint32_t units = (uint32_t)((bytes + SYMM_ARENA_UNIT - 1) / SYMM_ARENA_UNIT);
    atomic_store_explicit(&super->block[(off & (a->super - 1)) / SYMM_ARENA_UNIT],
                          SYMM_BLOCK_LIVE | units, memory_order_relaxed);
    return off;
}

/* One superblock more, or as many as the block needs. They are the sub's when its stream has been
 * made to wait for their last users. */
static symmResult_t one_more_super(symm_sub *sub, uint64_t need, int last) {
    symm_arena *a = sub->arena;
    symmStream_t s = symm_sub_stream(sub);
    uint64_t off, bytes = (need + a->super - 1) & -a->super;
    SYMM_TRY(symm_global_take(a, sub, s, bytes, a->super, last, &off));
    SYMM_ASSERT(off % a->super == 0);
    symm_sub_lock(sub);
    int added = symm_place_add(sub->place, off, bytes);
    if (!added) sub->supers += bytes >> a->shift;
    symm_sub_unlock(sub);
    if (!added) return symmSuccess;
    for (uint64_t at = off; at < off + bytes; at += a->super) (void)symm_global_give(a, sub, s, at);
    return SYMM_ERR(symmOutOfMemory, "arena %s: no memory to place blocks", a->name);
}

symmResult_t symm_sub_take(symm_sub *sub, uint64_t bytes, uint64_t align, int last, uint64_t *off) {
    symm_arena *a = sub->arena;
    int stripe = atomic_load_explicit(&sub->kind, memory_order_relaxed) == SYMM_SUB_STRIPE;
    for (;;) {
        int why = 0;
        symm_sub_lock(sub);
        *off = place_here(sub, bytes, align, &why);
        symmResult_t status = symmSuccess;
        if (stripe && *off != SYMM_PLACE_NONE) tally(sub, bytes, align, *off);
        if (*off == SYMM_PLACE_NONE && !stripe) {
            status = symm_sub_drain(sub, symm_pending_may_wait(a, symm_sub_stream(sub)));
            if (!status) *off = place_here(sub, bytes, align, &why);
        }
        symm_sub_unlock(sub);
        if (status || *off != SYMM_PLACE_NONE) return status;
        if (why == ENOMEM)
            return SYMM_ERR(symmOutOfMemory, "arena %s: no memory to place blocks", a->name);
        if (stripe)
            return SYMM_ERR(symmOutOfMemory,
                            "arena %s: %llu bytes do not fit in stripe %d of %d, %llu bytes",
                            a->name, (unsigned long long)bytes, sub->ordinal, a->stripes,
                            (unsigned long long)(sub->supers * a->super));
        SYMM_TRY(one_more_super(sub, bytes, last));
    }
}
