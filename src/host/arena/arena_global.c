/* arena_global.c - the global part of an arena: pieces from upstream, and the superblocks and large
 * blocks in them. Any thread; the global lock, which is not held while a thread waits. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "arena_int.h"

symm_super *symm_super_make(symm_arena *a, uint64_t off) {
    symm_super *super = symm_super_at(a, off);
    SYMM_ASSERT(off % a->super == 0 && off < a->up.limit);
    if (super) return super;
    size_t bytes = sizeof *super + sizeof *super->block * a->units;
    super = SYMM_FAIL_ALLOC(arena_super, calloc(1, bytes));
    if (!super) return NULL;
    super->next = a->all; /* kept until the arena ends: a free of a wild pointer may read it */
    a->all = super;
    atomic_store_explicit(&a->map[off >> a->shift], super, memory_order_release);
    return super;
}

/* ---- the engine's offsets -------------------------------------------------------------------- */

/* The engine takes the lowest place that fits. So memory taken later must have higher offsets in
 * the engine, else new memory would be used before old memory is full. If upstream gives the
 * highest first, the engine counts from the top. The function is its own inverse. */
static inline uint64_t flip(const symm_arena *a, uint64_t off, uint64_t bytes) {
    return a->up.down ? a->up.limit - off - bytes : off;
}

int symm_global_at(const symm_arena *a, uint64_t off, symm_piece *piece) {
    const uint64_t unit = off & -(uint64_t)SYMM_ARENA_UNIT;
    if (off >= a->up.limit) return 0;
    if (!symm_place_at(a->place, flip(a, unit, SYMM_ARENA_UNIT), piece)) return 0;
    piece->off = flip(a, piece->off, piece->bytes);
    return piece->off <= off && off - piece->off < piece->bytes;
}

/* If it counts from the top, the engine aligns the end of blocks. So a block whose size is no
 * multiple of its alignment is cut from a larger one, or every hole is searched. In the engine's
 * offsets. */
static uint64_t take_aligned(symm_arena *a, uint64_t bytes, uint64_t align, int *why) {
    const uint64_t whole = (bytes + align - 1) & -align, rest = whole - bytes;
    uint64_t at = symm_place_take(a->place, whole, align, 0, why);
    symm_piece q;
    if (!rest || (at == SYMM_PLACE_NONE && *why == ENOMEM)) return at;
    if (at != SYMM_PLACE_NONE) {
        const int bad = symm_place_split(a->place, at, rest);
        symm_place_give(a->place, at);
        if (!bad) return at + rest;
        *why = ENOMEM;
        return SYMM_PLACE_NONE;
    }
    for (at = 0; symm_place_at(a->place, at, &q); at = q.off + q.bytes) {
        const uint64_t hole = flip(a, q.off, q.bytes), off = (hole + align - 1) & -align;
        if (q.used || off + bytes > hole + q.bytes) continue;
        if (!symm_place_take_at(a->place, flip(a, off, bytes), bytes, 0))
            return flip(a, off, bytes);
        *why = ENOMEM;
        break;
    }
    return SYMM_PLACE_NONE;
}

static uint64_t engine_take(symm_arena *a, uint64_t bytes, uint64_t align, int *why) {
    const uint64_t room = (bytes + SYMM_ARENA_UNIT - 1) & -(uint64_t)SYMM_ARENA_UNIT;
    const uint64_t at = a->up.down && align > SYMM_ARENA_UNIT
                            ? take_aligned(a, room, align, why)
                            : symm_place_take(a->place, room, align, 0, why);
    return at == SYMM_PLACE_NONE ? at : flip(a, at, room);
}

/* Frees the superblock, or (bytes 0) the large block, that begins at off. Returns its bytes; 0:
 * none begins there. */
static uint64_t engine_give(symm_arena *a, uint64_t off, uint64_t bytes) {
    symm_piece q;
    if (a->up.down && !bytes) {
        if (!symm_global_at(a, off, &q) || !q.used || q.off != off) return 0;
        bytes = q.bytes;
    }
    return symm_place_give(a->place, flip(a, off, bytes));
}

/* ---- pieces ---------------------------------------------------------------------------------- */

int symm_global_room(symm_arena *a) {
    if (a->npieces < a->pieces_cap) return 0;
    int cap = a->pieces_cap ? 2 * a->pieces_cap : 16;
    symm_range *more =
        SYMM_FAIL_ALLOC(arena_pieces, realloc(a->pieces, sizeof *more * (unsigned)cap));
    if (!more) return -1;
    a->pieces = more;
    a->pieces_cap = cap;
    return 0;
}

symmResult_t symm_global_add(symm_arena *a, uint64_t off, uint64_t bytes) {
    if (symm_global_room(a))
        return SYMM_ERR(symmOutOfMemory, "arena %s: no memory to list its pieces", a->name);
    if (symm_place_add(a->place, flip(a, off, bytes), bytes))
        return SYMM_ERR(symmOutOfMemory, "arena %s: no memory to place blocks", a->name);
    SYMM_ASSERT(bytes && off % a->super == 0 && bytes % a->super == 0);
    int i = a->npieces++;
    for (; i > 0 && a->pieces[i - 1].off > off; i--) a->pieces[i] = a->pieces[i - 1];
    a->pieces[i] = (symm_range){off, bytes, 0};
    a->held += bytes;
    if (a->held > a->held_peak) a->held_peak = a->held;
    return symmSuccess;
}

int symm_global_cut(symm_arena *a, uint64_t off, uint64_t bytes) {
    if (symm_place_cut(a->place, flip(a, off, bytes), bytes)) return -1;
    SYMM_ASSERT(bytes <= a->held);
    a->held -= bytes;
    return 0;
}

/* The first piece at or above off. */
static int piece_at(const symm_arena *a, uint64_t off) {
    int low = 0, high = a->npieces;
    while (low < high) {
        int mid = low + (high - low) / 2;
        if (a->pieces[mid].off < off)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

/* Under the lock: nothing uses the piece. */
static int is_free(const symm_arena *a, const symm_range *r) {
    symm_piece q;
    return symm_global_at(a, r->off, &q) && !q.used && q.off + q.bytes >= r->off + r->bytes;
}

/* Under the lock: lists unused pieces from `first` up to `end` in which the lone stream has freed,
 * so that they get a point, one for all. */
static void list_free(symm_arena *a, int first, uint64_t end) {
    const symmStream_t only = atomic_load_explicit(&a->only, memory_order_relaxed);
    for (int i = first; i < a->npieces && a->pieces[i].off < end; i++) {
        symm_range *r = &a->pieces[i];
        if (r->loose && is_free(a, r) &&
            !symm_pending_loose(&a->pending, r->off, r->off + r->bytes, only))
            r->loose = 0;
    }
}

/* Under the lock: whether something uses the piece, or work in it may still run. */
static int is_busy(symm_arena *a, const symm_range *r, symm_pending *stands) {
    return r->loose || !is_free(a, r) ||
           symm_pending_busy(a, &a->pending, r->off, r->off + r->bytes, stands);
}

uint64_t symm_global_return(symm_arena *a, uint64_t off, uint64_t end, uint64_t keep) {
    symm_place_stats stats;
    symm_pending stands = SYMM_PENDING_NONE;
    uint64_t returned = 0;
    int first = piece_at(a, off), to = first, i = first;
    symm_place_measure(a->place, &stats);
    list_free(a, first, end);
    for (; i < a->npieces && a->pieces[i].off < end && stats.free - returned > keep; i++) {
        symm_range *r = &a->pieces[to];
        *r = a->pieces[i];
        to++;
        /* Other users of the heap know nothing of our streams. */
        if (is_busy(a, r, &stands)) continue;
        if (symm_global_cut(a, r->off, r->bytes)) continue; /* in use, or no memory to split */
        to--;
        returned += r->bytes;
        a->up.give(a->up.ctx, r->off, r->bytes);
    }
    SYMM_ASSERT(to <= i && i <= a->npieces);
    memmove(a->pieces + to, a->pieces + i, sizeof *a->pieces * (size_t)(a->npieces - i));
    a->npieces -= i - to;
    return returned;
}

/* ---- one stream alone ------------------------------------------------------------------------ */

/* While only one stream has used the arena, what it frees is for itself and needs no point. A piece
 * only has a mark that the stream has freed there (`loose`). When another stream makes its first
 * call, the free bytes of such pieces become entries and get a point. If the point cannot be taken
 * because the lone stream is being captured, they have none until its next free.
 * docs/memory-arena.md says why that is right. */

/* Under the lock: [off, off+bytes) was freed by the lone stream. */
static void note_loose(symm_arena *a, uint64_t off, uint64_t bytes) {
    int i = piece_at(a, off);
    if (i == a->npieces || a->pieces[i].off > off) i--;
    for (; i < a->npieces && a->pieces[i].off < off + bytes; i++) a->pieces[i].loose = 1;
}

/* Under the lock: the holes of the piece become entries. -1: no memory. */
static int list_holes(symm_arena *a, const symm_range *r, symmStream_t s) {
    const uint64_t begin = flip(a, r->off, r->bytes), end = begin + r->bytes;
    symm_piece q;
    for (uint64_t at = begin; at < end && symm_place_at(a->place, at, &q) && q.off < end;
         at = q.off + q.bytes) {
        const uint64_t from = q.off > begin ? q.off : begin;
        const uint64_t to = q.off + q.bytes < end ? q.off + q.bytes : end;
        const uint64_t off = flip(a, from, to - from);
        if (!q.used && symm_pending_loose(&a->pending, off, off + (to - from), s)) return -1;
    }
    return 0;
}

/* Under the lock: lists what the lone stream has freed as entries. -1: no memory; nothing
 * changed. */
static int list_loose(symm_arena *a, symmStream_t s) {
    const int before = a->pending.n, loose = a->pending.loose;
    for (int i = 0; i < a->npieces; i++) {
        if (!a->pieces[i].loose || !list_holes(a, &a->pieces[i], s)) continue;
        a->pending.n = before;
        a->pending.loose = loose;
        return -1;
    }
    for (int i = 0; i < a->npieces; i++) a->pieces[i].loose = 0;
    return 0;
}

int symm_global_list(symm_arena *a, symm_range *r) {
    const symmStream_t only = atomic_load_explicit(&a->only, memory_order_relaxed);
    if (r->loose && list_holes(a, r, only)) return -1;
    r->loose = 0;
    return 0;
}

symmResult_t symm_global_meet(symm_arena *a, symmStream_t s) {
    symmResult_t status = symmSuccess;
    symm_arena_lock(a);
    const symmStream_t only = atomic_load_explicit(&a->only, memory_order_relaxed);
    if (only == SYMM_STREAM_NOBODY) {
        atomic_store_explicit(&a->only, s, memory_order_relaxed);
    } else if (only != s && only != SYMM_STREAM_MANY) {
        if (list_loose(a, only))
            status =
                SYMM_ERR(symmOutOfMemory, "arena %s: no memory to list what waits for stream %p",
                         a->name, (void *)only);
        else
            atomic_store_explicit(&a->only, SYMM_STREAM_MANY, memory_order_relaxed);
        /* Now, because a later point would be behind work that has nothing to do with the
         * blocks. */
        if (!status && a->pending.loose && a->order.able(a->order.ctx, only))
            symm_pending_settle(a, &a->pending, only);
    }
    symm_arena_unlock(a);
    return status;
}

void symm_global_stream_end(symm_arena *a, symmStream_t s) {
    symm_point now;
    symm_arena_lock(a);
    if (atomic_load_explicit(&a->only, memory_order_relaxed) == s) {
        if (list_loose(a, s)) { /* no memory for the list: wait */
            if (a->order.take(a->order.ctx, s, &now) > 0) {
                (void)a->order.reach(a->order.ctx, &now);
                a->order.drop(a->order.ctx, &now);
            }
            for (int i = 0; i < a->npieces; i++) a->pieces[i].loose = 0;
        }
        atomic_store_explicit(&a->only, SYMM_STREAM_NOBODY, memory_order_relaxed);
    }
    symm_pending_settle(a, &a->pending, s);
    symm_pending_disown(&a->pending, s);
    symm_arena_unlock(a);
}

/* ---- superblocks and large blocks ------------------------------------------------------------ */

/* Under the lock: frees the superblock, or the large block, at off. Returns its bytes; 0: none
 * begins there. */
static uint64_t unplace(symm_arena *a, uint64_t off, int is_super) {
    uint64_t bytes = engine_give(a, off, is_super ? a->super : 0);
    if (!bytes) return 0;
    if (is_super) {
        SYMM_ASSERT(a->supers > 0 && bytes == a->super);
        a->supers--;
        atomic_store_explicit(&symm_super_at(a, off)->owner, NULL, memory_order_release);
    } else {
        SYMM_ASSERT(a->larges > 0);
        a->larges--;
    }
    return bytes;
}

/* Under the lock: the block at off becomes superblocks of sub. -1: no memory; it is free again. */
static int deal(symm_arena *a, symm_sub *sub, uint64_t off, uint64_t bytes) {
    uint64_t end = off + bytes, at = off, from = flip(a, off, bytes), done = 0;
    for (; at < end; at += a->super)
        if (!symm_super_make(a, at)) break;
    while (at == end && done + a->super < bytes &&
           !symm_place_split(a->place, from + done, a->super))
        done += a->super;
    if (at < end || done + a->super < bytes) {
        for (uint64_t k = 0; k <= done; k += a->super) symm_place_give(a->place, from + k);
        return -1;
    }
    for (at = off; at < end; at += a->super, a->supers++)
        atomic_store_explicit(&symm_super_at(a, at)->owner, sub, memory_order_release);
    return 0;
}

/* Under the lock: a superblock that the stream gave back lately, if it is still free. The stream
 * need not wait before it uses that; before the lowest one it mostly would. The choice depends on
 * the calls alone, as all placement does. */
static uint64_t place_again(symm_arena *a, symm_sub *sub, uint64_t bytes) {
    for (unsigned k = sub->nleft < SYMM_SUB_LEFT ? sub->nleft : SYMM_SUB_LEFT; k > 0; k--) {
        uint64_t off = sub->left[--sub->nleft % SYMM_SUB_LEFT];
        if (!symm_place_take_at(a->place, flip(a, off, bytes), bytes, 0)) return off;
    }
    sub->nleft = 0;
    return SYMM_PLACE_NONE;
}

/* Under the lock: of the free bytes behind the block, in the engine's order, what the entry bars
 * too is taken, in the engine's offsets. So each entry is skipped in one step. */
static uint64_t take_rest(symm_arena *a, uint64_t off, uint64_t bytes, const symm_pending *e) {
    const uint64_t room = symm_round_up(bytes, SYMM_ARENA_UNIT), at = flip(a, off, room) + room;
    const uint64_t end = flip(a, e->off, e->end - e->off) + e->end - e->off;
    symm_piece q;
    if (at >= end || !symm_place_at(a->place, at, &q) || q.used || q.off > at)
        return SYMM_PLACE_NONE;
    const uint64_t stop = q.off + q.bytes < end ? q.off + q.bytes : end;
    return symm_place_take_at(a->place, at, stop - at, 0) ? SYMM_PLACE_NONE : at;
}

/* Under the lock. Bytes for which s cannot be made to wait are skipped: they stay taken until the
 * engine has found others. */
static symmResult_t find(symm_arena *a, symm_sub *sub, symmStream_t s, uint64_t bytes,
                         uint64_t align, int last, uint64_t *off) {
    int why = ENOSPC;
    *off = sub && s && !a->first ? place_again(a, sub, bytes) : SYMM_PLACE_NONE;
    if (*off == SYMM_PLACE_NONE) *off = engine_take(a, bytes, align, &why);
    if (*off == SYMM_PLACE_NONE && why == ENOSPC) {
        SYMM_TRY(symm_global_more(a, bytes, align, last));
        *off = engine_take(a, bytes, align, &why);
    }
    if (*off == SYMM_PLACE_NONE)
        return SYMM_ERR(symmOutOfMemory, "arena %s: no memory for the record of %llu bytes",
                        a->name, (unsigned long long)bytes);
    const symm_pending *e = symm_pending_barred(a, &a->pending, *off, *off + bytes, s);
    if (!e) return symmSuccess;
    const uint64_t barred = *off, rest = take_rest(a, barred, bytes, e);
    symmResult_t status = find(a, sub, s, bytes, align, last, off);
    (void)engine_give(a, barred, 0);
    if (rest != SYMM_PLACE_NONE) symm_place_give(a->place, rest);
    return status;
}

/* Under the lock: memory for superblocks or a large block. */
static symmResult_t place(symm_arena *a, symm_sub *sub, symmStream_t s, uint64_t bytes,
                          uint64_t align, int last, uint64_t *off) {
    SYMM_TRY(find(a, sub, s, bytes, align, last, off));
    if (sub && deal(a, sub, *off, bytes))
        return SYMM_ERR(symmOutOfMemory, "arena %s: no memory for the record of %llu bytes",
                        a->name, (unsigned long long)bytes);
    /* A large block has no record but the engine's entry: records would be most of the memory that
     * is touched. */
    if (!sub) a->larges++;
    return symmSuccess;
}

symmResult_t symm_global_take(symm_arena *a, symm_sub *sub, symmStream_t s, uint64_t bytes,
                              uint64_t align, int last, uint64_t *off) {
    symm_pendings waits = {0};
    symm_arena_lock(a);
    symmResult_t status = place(a, sub, s, bytes, align, last, off);
    if (!status) symm_pending_for(a, &a->pending, *off, *off + bytes, s, &waits);
    symm_arena_unlock(a);
    if (status || !waits.at) return status;
    status = symm_pending_wait(a, &waits, s);
    if (status) {
        symm_arena_lock(a);
        for (uint64_t at = *off; at < *off + bytes; at += sub ? a->super : bytes)
            unplace(a, at, sub != NULL);
        symm_pending_return(a, &a->pending, &waits); /* the next taker must wait */
        symm_arena_unlock(a);
    }
    symm_pending_clear(a, &waits);
    return status;
}

/* Under the lock: the sub that has the superblock at off; NULL where none has. */
static symm_sub *owner_at(const symm_arena *a, uint64_t off) {
    symm_super *super = symm_super_at(a, off);
    return super ? atomic_load_explicit(&super->owner, memory_order_relaxed) : NULL;
}

/* Under the lock, after bytes at off were given back: returns memory to upstream if more than half
 * of what the arena holds is idle. Half stays, because each exchange costs the heap's lock. If
 * streams still work on the memory, or asking is expensive, the next try comes after the larger of
 * a piece and a sixteenth of what the arena holds has been given back. */
static void return_idle(symm_arena *a, uint64_t off, uint64_t bytes) {
    symm_place_stats stats;
    symm_piece hole;
    a->lately += bytes;
    if (a->sym || a->lately < a->look_after) return;
    symm_place_measure(a->place, &stats);
    (void)symm_global_at(a, off, &hole);
    if (hole.bytes < a->piece || stats.free <= stats.used + 8 * a->piece) return;
    const uint64_t keep = stats.used + 4 * a->piece, more = a->held / 16;
    const uint64_t returned = symm_global_return(a, hole.off, hole.off + hole.bytes, keep);
    a->look_after = returned && !a->order.dear ? 0 : more > a->piece ? more : a->piece;
    a->lately = 0;
}

int symm_global_give(symm_arena *a, symm_sub *sub, symmStream_t s, uint64_t off) {
    symm_arena_lock(a);
    uint64_t bytes = owner_at(a, off) == sub ? unplace(a, off, sub != NULL) : 0;
    if (!bytes) {
        symm_arena_unlock(a);
        return -1;
    }
    if (sub && s) sub->left[sub->nleft++ % SYMM_SUB_LEFT] = off;
    if (atomic_load_explicit(&a->only, memory_order_relaxed) == s)
        note_loose(a, off, bytes);
    else
        symm_pending_add(a, &a->pending, off, off + bytes, s);
    return_idle(a, off, bytes);
    symm_arena_unlock(a);
    return 0;
}
