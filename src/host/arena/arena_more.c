/* arena_more.c - more memory from upstream when an arena's own is not enough: a fresh piece, memory
 * beside a hole, or memory in exchange for unused superblocks. Any thread, with the global lock,
 * except symm_arena_await, which waits and holds no lock. */
#include "arena_int.h"

static uint64_t up_to(uint64_t n, uint64_t unit) {
    return (n + unit - 1) & -unit;
}

/* What the limit leaves, in whole superblocks. */
static uint64_t left_of(const symm_arena *a) {
    return (a->most - a->held) & -a->super;
}

static symmResult_t add(symm_arena *a, uint64_t off, uint64_t bytes) {
    const symmResult_t status = symm_global_add(a, off, bytes);
    if (status) a->up.give(a->up.ctx, off, bytes);
    return status;
}

/* ---- a fresh piece --------------------------------------------------------------------------- */

/* ask: upstream is asked even if it has no room, because its error says why. */
static symmResult_t fresh(symm_arena *a, uint64_t bytes, uint64_t align, int ask) {
    const uint64_t least = up_to(bytes, a->super), left = left_of(a);
    uint64_t off, size = least > a->piece ? least : a->piece;
    if (align < a->super) align = a->super;
    if (size > left) size = left;
    if (size < least) return symmOutOfMemory;
    if (a->up.room) { /* less than a piece is better than none; the room may be unaligned */
        const uint64_t room = a->up.room(a->up.ctx),
                       fits = room > align ? (room - align) & -align : 0;
        if (room < least && !ask) return symmOutOfMemory;
        if (size > least && size > fits) size = fits > least ? fits : least;
    }
    SYMM_TRY(a->up.take(a->up.ctx, size, align, &off));
    return add(a, off, size);
}

/* ---- beside a hole --------------------------------------------------------------------------- */

/* The end of the free bytes that begin at `at`. They are the arena's, or (*ours 0) whole
 * superblocks of upstream. */
static uint64_t free_end(const symm_arena *a, uint64_t at, int *ours) {
    symm_piece q;
    uint64_t begin, end;
    *ours = symm_global_at(a, at, &q);
    if (*ours) return q.used ? at : q.off + q.bytes;
    if (at % a->super || !a->up.hole(a->up.ctx, at, &begin, &end)) return at;
    end &= -a->super;
    return end > at ? end : at;
}

/* Bytes that upstream must give for a block at `at`; UINT64_MAX: not all are free. take: takes
 * them; after a failure, what was taken stays the arena's. */
static uint64_t gap_bytes(symm_arena *a, uint64_t at, uint64_t bytes, int take) {
    const uint64_t end = at + bytes;
    uint64_t sum = 0;
    symm_piece q;
    while (at < end) {
        const uint64_t from = symm_global_at(a, at, &q) ? at : at & -a->super;
        int ours;
        const uint64_t stop = free_end(a, from, &ours);
        if (stop <= at) return UINT64_MAX;
        const uint64_t gap = ours ? 0 : up_to(stop < end ? stop : end, a->super) - from;
        if (take && gap && (a->up.take_at(a->up.ctx, from, gap) || add(a, from, gap)))
            return UINT64_MAX;
        sum += gap;
        at = stop;
    }
    return sum;
}

/* The cheapest place so far. */
typedef struct {
    uint64_t bytes, align, at, cost;
} spot;

static void try_at(symm_arena *a, uint64_t at, spot *best) {
    const uint64_t cost = gap_bytes(a, at, best->bytes, 0);
    if (cost >= best->cost) return;
    best->at = at;
    best->cost = cost;
}

/* Tries places that begin in the hole, or in free memory of upstream right before it. The cheapest
 * place begins or ends where free memory of the arena does, or where free memory ends. */
static void try_hole(symm_arena *a, uint64_t hole, spot *best) {
    const uint64_t bytes = best->bytes, mask = -best->align;
    uint64_t low = hole, begin, end, at = hole;
    int ours;
    if (hole && hole % a->super == 0 && a->up.hole(a->up.ctx, hole - 1, &begin, &end))
        low = up_to(begin, a->super) < hole ? up_to(begin, a->super) : hole;
    for (uint64_t stop; at < up_to(hole, best->align) + bytes; at = stop) {
        if ((stop = free_end(a, at, &ours)) <= at) break;
        if (stop - low >= bytes && ((stop - bytes) & mask) >= low)
            try_at(a, (stop - bytes) & mask, best);
    }
    if (up_to(hole, best->align) + bytes <= at) try_at(a, up_to(hole, best->align), best);
    if (up_to(low, best->align) + bytes <= at) try_at(a, up_to(low, best->align), best);
}

/* -1: no hole can be extended far enough. */
static int extend(symm_arena *a, uint64_t bytes, uint64_t align) {
    spot best = {bytes, align < SYMM_ARENA_UNIT ? SYMM_ARENA_UNIT : align, 0, UINT64_MAX};
    symm_place_stats stats;
    symm_piece q;
    symm_place_measure(a->place, &stats);
    if (!a->up.hole || stats.free + left_of(a) < bytes) return -1;
    for (int i = 0; i < a->npieces; i++) {
        const symm_range r = a->pieces[i];
        for (uint64_t at = r.off; at < r.off + r.bytes && symm_global_at(a, at, &q);
             at = q.off + q.bytes)
            if (!q.used && q.off >= r.off) try_hole(a, q.off, &best);
    }
    if (best.cost > left_of(a)) return -1;
    return gap_bytes(a, best.at, bytes, 1) == UINT64_MAX ? -1 : 0;
}

/* ---- back ------------------------------------------------------------------------------------ */

/* [from, to) of piece i, free, goes upstream. -1: no memory; it stays. */
static int part_with(symm_arena *a, int i, uint64_t from, uint64_t to) {
    const uint64_t begin = a->pieces[i].off, end = begin + a->pieces[i].bytes;
    if (from > begin && to < end && symm_global_room(a)) return -1;
    if (from > begin && (!a->up.part || a->up.part(a->up.ctx, from))) return -1;
    if (to < end && (!a->up.part || a->up.part(a->up.ctx, to))) return -1;
    if (symm_global_cut(a, from, to - from)) return -1;
    a->up.give(a->up.ctx, from, to - from);
    if (from > begin && to < end) {
        for (int k = a->npieces++; k > i; k--) a->pieces[k] = a->pieces[k - 1];
        a->pieces[i + 1].off = to;
        a->pieces[i + 1].bytes = end - to;
        a->pieces[i].bytes = from - begin;
    } else if (from > begin) {
        a->pieces[i].bytes = from - begin;
    } else if (to < end) {
        a->pieces[i].off = to;
        a->pieces[i].bytes = end - to;
    } else {
        a->npieces--;
        for (int k = i; k < a->npieces; k++) a->pieces[k] = a->pieces[k + 1];
    }
    return 0;
}

/* Returns unused superblocks of the pieces from i on, up to `end`, to upstream. Returns the first
 * piece behind them. */
static int return_from(symm_arena *a, int i, uint64_t at, uint64_t end, symm_pending *stands) {
    symm_piece q;
    while (at < end && symm_global_at(a, at, &q)) {
        const symm_range r = a->pieces[i];
        const uint64_t behind = q.off + q.bytes < end ? q.off + q.bytes : end;
        const uint64_t from = up_to(q.off > r.off ? q.off : r.off, a->super);
        const uint64_t to = behind & -a->super;
        at = behind;
        /* Other users of the heap know nothing of our streams. */
        if (q.used || from >= to || symm_pending_busy(a, &a->pending, from, to, stands)) continue;
        if (part_with(a, i, from, to)) continue;
        if (to == end) return from > r.off ? i + 1 : i;
        i += from > r.off; /* the rest behind it is the next piece */
    }
    return i + 1;
}

uint64_t symm_global_return_parts(symm_arena *a) {
    const uint64_t held = a->held;
    symm_pending stands = SYMM_PENDING_NONE;
    for (int i = 0; i < a->npieces;) {
        const symm_range r = a->pieces[i];
        i = symm_global_list(a, &a->pieces[i]) ? i + 1
                                               : return_from(a, i, r.off, r.off + r.bytes, &stands);
    }
    return held - a->held;
}

/* ---- all of it ------------------------------------------------------------------------------- */

symmResult_t symm_global_more(symm_arena *a, uint64_t bytes, uint64_t align, int last) {
    if (!fresh(a, bytes, align, 0) || !extend(a, bytes, align)) return symmSuccess;
    if (symm_global_return_parts(a) && (!fresh(a, bytes, align, 0) || !extend(a, bytes, align)))
        return symmSuccess;
    if (!last) return symmOutOfMemory;
    if (up_to(bytes, a->super) <= left_of(a)) return fresh(a, bytes, align, 1);
    return SYMM_ERR(symmOutOfMemory,
                    "arena %s: %llu bytes do not fit: it has %llu of at most %llu bytes", a->name,
                    (unsigned long long)bytes, (unsigned long long)a->held,
                    (unsigned long long)a->most);
}

/* Entries stay listed; they leave when they are looked at next. */
void symm_arena_await(symm_arena *a) {
    symm_pendings list = {0};
    symm_arena_lock(a);
    symm_pending_copy(a, &a->pending, &list);
    symm_arena_unlock(a);
    pthread_mutex_lock(&a->list_lock);
    for (symm_sub *sub = a->subs; sub; sub = sub->next) {
        pthread_mutex_lock(&sub->far_lock);
        symm_pending_copy(a, &sub->waits, &list);
        pthread_mutex_unlock(&sub->far_lock);
    }
    pthread_mutex_unlock(&a->list_lock);
    symm_pending_reach(a, &list);
}
