/* arena_wait.c - lists of memory that was freed, with the points that another stream must wait for
 * before it uses it. Any thread, with the lock of the list's owner. Lists are short, because
 * entries that are reached or handed on leave them. */
#include <stdlib.h>

#include "base/fail.h"
#include "base/handle.h"
#include "host/stream/stream_int.h"
#include "arena_int.h"

enum { LOOK_AT = 32 };

/* ---- what is true whenever a lock is free ---------------------------------------------------- */

#ifdef SYMM_TESTING
enum { FEW = 64 };

void symm_pendings_check(const symm_pendings *list) {
    int loose = 0;
    SYMM_ASSERT(0 <= list->n && list->n <= list->cap);
    SYMM_ASSERT(0 <= list->loose && list->loose <= list->n);
    if (list->n > FEW) return;
    for (int i = 0; i < list->n; i++) {
        SYMM_ASSERT(list->at[i].off < list->at[i].end);
        SYMM_ASSERT(list->at[i].loose == !list->at[i].seq); /* a point has a number */
        SYMM_ASSERT(list->at[i].stream != SYMM_STREAM_NOBODY);
        SYMM_ASSERT(list->at[i].stream != SYMM_STREAM_MANY);
        loose += list->at[i].loose;
    }
    SYMM_ASSERT(loose == list->loose);
}

static void check_pieces(const symm_arena *a) {
    uint64_t held = 0, end = 0, supers = 0;
    for (int i = 0; i < a->npieces; i++) {
        const symm_range *r = &a->pieces[i];
        SYMM_ASSERT(r->off >= end && r->bytes);
        SYMM_ASSERT(r->off % a->super == 0 && r->bytes % a->super == 0);
        SYMM_ASSERT(!r->loose || a->order.dear);
        end = r->off + r->bytes;
        held += r->bytes;
    }
    SYMM_ASSERT(end <= a->up.limit);
    SYMM_ASSERT(held == a->held);
    for (const symm_super *s = a->all; s; s = s->next)
        supers += atomic_load_explicit(&s->owner, memory_order_relaxed) != NULL;
    SYMM_ASSERT(supers == a->supers);
}

static void check_sizes(const symm_arena *a) {
    SYMM_ASSERT(a->super == 1ull << a->shift && a->units == a->super / SYMM_ARENA_UNIT);
    SYMM_ASSERT(a->limit <= a->up.limit && a->map && a->place);
    SYMM_ASSERT(a->map_bytes / sizeof *a->map > a->up.limit / a->super);
    SYMM_ASSERT(!a->stripes == !a->sym && !a->stripe == !a->sym);
    SYMM_ASSERT(a->order.dear || atomic_load(&a->only) == SYMM_STREAM_MANY);
}

/* Lists are walked each 64th time. */
void symm_arena_check(symm_arena *a) {
    symm_place_stats s;
    symm_place_measure(a->place, &s);
    SYMM_ASSERT(s.free + s.used == a->held);
    SYMM_ASSERT(a->held <= a->held_peak);
    SYMM_ASSERT(a->held <= a->most);
    SYMM_ASSERT(a->supers * a->super <= s.used);
    SYMM_ASSERT(a->supers + a->larges == s.blocks);
    SYMM_ASSERT(a->npieces <= a->pieces_cap);
    symm_pendings_check(&a->pending);
    check_sizes(a);
    if (a->unchecked++ % FEW == 0) check_pieces(a);
}

void symm_sub_check(symm_sub *sub) {
    symm_place_stats s;
    symm_place_measure(sub->place, &s);
    SYMM_ASSERT(s.free + s.used == sub->supers * sub->arena->super);
    const int kind = atomic_load_explicit(&sub->kind, memory_order_relaxed);
    SYMM_ASSERT(kind >= SYMM_SUB_THREAD && kind <= SYMM_SUB_ENDED);
    SYMM_ASSERT((kind == SYMM_SUB_STRIPE) == (sub->arena->sym != 0));
    SYMM_ASSERT(kind != SYMM_SUB_STRIPE || sub->ordinal < sub->arena->stripes);
    SYMM_ASSERT(kind == SYMM_SUB_STRIPE || (!sub->calls && !sub->digest));
    SYMM_ASSERT(atomic_load_explicit(&sub->barred, memory_order_relaxed) >= 0);
}
#endif

/* ---- the host backend's order ---------------------------------------------------------------- */

static int host_take(void *ctx, symmStream_t s, symm_point *p) {
    (void)ctx;
    if (!s) return 0; /* calls on the NULL stream return when their work has ended */
    symm_order_take(s, &p->host);
    p->shared = NULL;
    return 1;
}

/* A capture of s may have begun since it was asked about. Nothing can wait there, so the caller
 * must keep the point. */
static symmResult_t host_wait(void *ctx, symmStream_t s, const symm_point *p) {
    (void)ctx;
    return symm_order_follow(s, p->host);
}

static symmResult_t host_reach(void *ctx, const symm_point *p) {
    return host_wait(ctx, NULL, p);
}

static symmResult_t host_check(void *ctx, symmStream_t s) {
    (void)ctx;
    SYMM_TRY(symm_stream_check(s));
    if (!symm_stream_capturing(s)) return symmSuccess;
    return SYMM_ERR(symmInvalidUsage, "stream=%p is being captured: an arena cannot be used there",
                    (void *)s);
}

static void host_share(void *ctx, const symm_point *p) {
    (void)ctx;
    (void)p;
}

static void host_drop(void *ctx, symm_point *p) {
    (void)ctx;
    symm_order_drop(&p->host);
}

/* A stream that is being captured or destroyed may still run what it was given before. */
static int host_idle(void *ctx, symmStream_t s, const symm_point *p) {
    (void)ctx;
    if (!symm_handle_find(SYMM_KIND_STREAM, s)) return 2;
    symm_handle_put(SYMM_KIND_STREAM, s);
    return p && symm_order_reached(p->host);
}

static int host_able(void *ctx, symmStream_t s) {
    (void)ctx;
    return !symm_stream_capturing(s);
}

/* There is nothing to wait for on the NULL stream. A function that a stream runs must not wait. */
static int host_still(void *ctx, symmStream_t s) {
    return !s || (!symm_stream_depth && host_able(ctx, s));
}

static void host_end(void *ctx) {
    (void)ctx;
}

const symm_arena_order symm_arena_order_host = {.take = host_take,
                                                .wait = host_wait,
                                                .reach = host_reach,
                                                .share = host_share,
                                                .drop = host_drop,
                                                .idle = host_idle,
                                                .check = host_check,
                                                .able = host_able,
                                                .still = host_still,
                                                .end = host_end,
                                                .here = 1};

/* ---- lists ----------------------------------------------------------------------------------- */

static inline int overlaps(const symm_pending *e, uint64_t off, uint64_t end) {
    return e->end > off && e->off < end;
}

static void leave(const symm_arena *a, symm_pendings *list, int i, int drop) {
    symm_pending *e = &list->at[i];
    SYMM_ASSERT(i >= 0 && i < list->n);
    list->loose -= e->loose;
    if (drop && !e->loose) a->order.drop(a->order.ctx, &e->point);
    list->at[i] = list->at[--list->n];
}

static int has_room(symm_pendings *list) {
    if (list->n < list->cap) return 1;
    int cap = list->cap ? 2 * list->cap : 8;
    symm_pending *at =
        SYMM_FAIL_ALLOC(arena_pending, realloc(list->at, sizeof *at * (unsigned)cap));
    if (!at) return 0;
    list->at = at;
    list->cap = cap;
    return 1;
}

/* Whether the first point comes after the second: a stream reaches its points in their order. */
static inline int behind(const symm_pending *e, const symm_pending *other) {
    if (e->loose || other->loose || e->stream != other->stream) return 0;
    return e->stream == SYMM_STREAM_GONE ? e->seq == other->seq : e->seq >= other->seq;
}

/* If entry i is reached, removes it and all earlier entries of its stream. Asks once. */
static int is_reached(const symm_arena *a, symm_pendings *list, int i) {
    const symm_pending e = list->at[i];
    if (!a->order.idle(a->order.ctx, e.stream, &e.point)) return 0;
    for (int k = list->n; k-- > 0;)
        if (behind(&e, &list->at[k])) leave(a, list, k, 1);
    return 1;
}

/* Shortens the list; decides nothing else. If asking is expensive, asks about one entry: if streams
 * keep up, the list loses at least as many entries as it gets. If they do not, questions become
 * rare. */
static void look(const symm_arena *a, symm_pendings *list) {
    int reached = 0;
    for (int i = list->n; !a->order.dear && i-- > 0;)
        if (i < list->n && !list->at[i].loose) reached |= is_reached(a, list, i);
    if (a->order.dear) {
        const int i = (int)(list->hand++ % (unsigned)list->n);
        reached = !list->at[i].loose && is_reached(a, list, i);
    }
    list->look_at = reached ? LOOK_AT : list->n + list->n / 2;
}

static void append(const symm_arena *a, symm_pendings *list, symm_pending entry) {
    SYMM_CHECK(symm_pendings_check(list));
    SYMM_ASSERT(!entry.loose);
    if (list->look_at > 4 * list->n) list->look_at = LOOK_AT; /* the list has become short */
    if (list->n >= LOOK_AT && list->n >= list->look_at) look(a, list);
    if (has_room(list)) {
        list->at[list->n++] = entry;
        return;
    }
    /* No memory for the entry: wait for it here. If this thread may not wait, a stream runs it, and
     * the work before its free has ended. */
    (void)a->order.reach(a->order.ctx, &entry.point);
    a->order.drop(a->order.ctx, &entry.point);
}

/* ---- points ---------------------------------------------------------------------------------- */

static int take(symm_arena *a, symmStream_t s, symm_pending *e) {
    e->seq = atomic_fetch_add_explicit(&a->points, 1, memory_order_relaxed) + 1;
    return a->order.take(a->order.ctx, s, &e->point);
}

/* Entries of the stream without a point get that of `from`, which comes later in the stream. */
static void tie(const symm_arena *a, symm_pendings *list, const symm_pending *from) {
    for (int i = 0; list->loose && i < list->n; i++) {
        symm_pending *e = &list->at[i];
        if (!e->loose || e->stream != from->stream) continue;
        a->order.share(a->order.ctx, &from->point);
        e->point = from->point;
        e->seq = from->seq;
        e->loose = 0;
        list->loose--;
    }
}

void symm_pending_settle(symm_arena *a, symm_pendings *list, symmStream_t s) {
    symm_pending now = {.stream = s};
    SYMM_CHECK(symm_pendings_check(list));
    if (!list->loose) return;
    if (take(a, s, &now) > 0) {
        tie(a, list, &now);
        a->order.drop(a->order.ctx, &now.point);
        return;
    }
    for (int i = list->n; i-- > 0;) /* take has waited for the work instead */
        if (list->at[i].loose && list->at[i].stream == s) leave(a, list, i, 0);
}

void symm_pending_add(symm_arena *a, symm_pendings *list, uint64_t off, uint64_t end,
                      symmStream_t s) {
    symm_pending entry = {.off = off, .end = end, .stream = s};
    if (take(a, s, &entry) <= 0) return;
    tie(a, list, &entry);
    for (int i = list->n; i-- > 0;) { /* the newer point comes after the older one */
        symm_pending *e = &list->at[i];
        if (e->stream != s || e->end < off || e->off > end) continue;
        entry.off = e->off < entry.off ? e->off : entry.off;
        entry.end = e->end > entry.end ? e->end : entry.end;
        leave(a, list, i, 1);
    }
    append(a, list, entry);
}

int symm_pending_loose(symm_pendings *list, uint64_t off, uint64_t end, symmStream_t s) {
    if (!has_room(list)) return -1;
    list->at[list->n++] = (symm_pending){.off = off, .end = end, .stream = s, .loose = 1};
    list->loose++;
    return 0;
}

/* ---- who waits ------------------------------------------------------------------------------- */

/* An entry without a point, of another stream, on [off, end); -1: none. */
static int loose_in(const symm_pendings *list, uint64_t off, uint64_t end, symmStream_t s) {
    for (int i = 0; list->loose && i < list->n; i++)
        if (list->at[i].loose && list->at[i].stream != s && overlaps(&list->at[i], off, end))
            return i;
    return -1;
}

int symm_pending_may_wait(const symm_arena *a, symmStream_t s) {
    return s || !a->order.here || !symm_stream_depth;
}

const symm_pending *symm_pending_barred(const symm_arena *a, const symm_pendings *list,
                                        uint64_t off, uint64_t end, symmStream_t s) {
    const int i = loose_in(list, off, end, s), may = symm_pending_may_wait(a, s);
    if (i >= 0) return a->order.able(a->order.ctx, list->at[i].stream) ? NULL : &list->at[i];
    for (const symm_pending *e = list->at; !may && e < list->at + list->n; e++)
        if (overlaps(e, off, end) && !a->order.idle(a->order.ctx, e->stream, &e->point)) return e;
    return NULL;
}

/* Removes [off, end) from entry i. Without memory for a second part it stays whole, and somebody
 * waits for more than necessary. */
static void cut(const symm_arena *a, symm_pendings *list, int i, uint64_t off, uint64_t end) {
    symm_pending rest = list->at[i];
    if (rest.off < off && rest.end > end) {
        if (!has_room(list)) return;
        if (!rest.loose) a->order.share(a->order.ctx, &rest.point);
        list->loose += rest.loose;
        rest.off = end;
        list->at[list->n++] = rest;
    }
    if (list->at[i].off < off)
        list->at[i].end = off;
    else
        list->at[i].off = end;
}

void symm_pending_for(symm_arena *a, symm_pendings *list, uint64_t off, uint64_t end,
                      symmStream_t s, symm_pendings *out) {
    for (int i; (i = loose_in(list, off, end, s)) >= 0;)
        symm_pending_settle(a, list, list->at[i].stream);
    for (int i = list->n; i-- > 0;) {
        symm_pending e = list->at[i];
        const int covered = e.off >= off && e.end <= end, own = e.stream == s;
        if (!overlaps(&e, off, end)) continue;
        if (!covered && !own) a->order.share(a->order.ctx, &e.point);
        if (covered)
            leave(a, list, i, own);
        else
            cut(a, list, i, off, end);
        if (own) continue;
        if (e.off < off) e.off = off;
        if (e.end > end) e.end = end;
        append(a, out, e);
    }
}

void symm_pending_return(symm_arena *a, symm_pendings *list, symm_pendings *from) {
    SYMM_CHECK(symm_pendings_check(list));
    for (int i = 0; i < from->n; i++) append(a, list, from->at[i]);
    from->n = 0;
}

void symm_pending_disown(symm_pendings *list, symmStream_t s) {
    for (int i = 0; i < list->n; i++)
        if (list->at[i].stream == s) list->at[i].stream = SYMM_STREAM_GONE;
}

int symm_pending_busy(symm_arena *a, symm_pendings *list, uint64_t off, uint64_t end,
                      symm_pending *stands) {
    for (int i = list->n; i-- > 0;) {
        const symm_pending *e = &list->at[i];
        if (!overlaps(e, off, end)) continue;
        if (e->loose) {
            if (!a->order.able(a->order.ctx, e->stream)) return 1;
            symm_pending_settle(a, list, e->stream);
        } else if (behind(e, stands) || !is_reached(a, list, i)) {
            *stands = list->at[i];
            return 1;
        }
        i = list->n; /* entries have moved */
    }
    return 0;
}

/* Whether the point of another entry is enough, or the same point was waited for already. */
static int spared(const symm_pendings *list, int i) {
    for (int k = 0; k < list->n; k++)
        if (k != i && behind(&list->at[k], &list->at[i]) &&
            (k < i || !behind(&list->at[i], &list->at[k])))
            return 1;
    return 0;
}

symmResult_t symm_pending_wait(symm_arena *a, symm_pendings *list, symmStream_t s) {
    SYMM_CHECK(symm_pendings_check(list));
    SYMM_ASSERT(!list->loose);
    for (int i = 0; i < list->n; i++) {
        if (spared(list, i)) continue;
        SYMM_TRY(a->order.wait(a->order.ctx, s, &list->at[i].point));
        atomic_fetch_add_explicit(&a->waits, 1, memory_order_relaxed);
    }
    while (list->n) leave(a, list, list->n - 1, 1);
    return symmSuccess;
}

void symm_pending_copy(symm_arena *a, symm_pendings *list, symm_pendings *out) {
    for (int i = 0; list->loose && i < list->n; i++) {
        if (!list->at[i].loose || !a->order.able(a->order.ctx, list->at[i].stream)) continue;
        symm_pending_settle(a, list, list->at[i].stream);
        i = -1; /* entries have moved */
    }
    for (int i = 0; i < list->n && has_room(out); i++) {
        if (list->at[i].loose) continue;
        a->order.share(a->order.ctx, &list->at[i].point);
        out->at[out->n++] = list->at[i];
    }
}

void symm_pending_reach(const symm_arena *a, symm_pendings *list) {
    SYMM_ASSERT(!list->loose);
    for (int i = 0; i < list->n; i++) {
        const symm_pending *e = &list->at[i];
        if (spared(list, i)) continue;
        if (e->stream == SYMM_STREAM_GONE || a->order.still(a->order.ctx, e->stream))
            (void)a->order.reach(a->order.ctx, &e->point);
    }
    symm_pending_clear(a, list);
}

void symm_pending_clear(const symm_arena *a, symm_pendings *list) {
    SYMM_CHECK(symm_pendings_check(list));
    while (list->n) leave(a, list, list->n - 1, 1);
    free(list->at);
    *list = (symm_pendings){0};
}
