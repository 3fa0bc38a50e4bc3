/* arena_wait.c - what another stream must wait for before it uses memory. Any thread, under the lock of whoever has the list; lists are
 * short, for what is reached or handed on leaves them. */
#include <stdlib.h>

#include "arena_int.h"
#include "fail.h"
#include "handle.h"

enum { TIDY_AT = 32 };

/* ---- the host backend's order ---------------------------------------------------------------------------------------- */

static int host_take(void *ctx, symmStream_t s, symm_point *p) {
    (void)ctx;
    if (!s) return 0; /* its work ended in the calls that gave it */
    symm_order_take(s, &p->host);
    p->event = NULL;
    return 1;
}

static symmResult_t host_wait(void *ctx, symmStream_t s, const symm_point *p) {
    (void)ctx;
    return symm_order_wait(s, p->host);
}

static symmResult_t host_reach(void *ctx, const symm_point *p) {
    return host_wait(ctx, NULL, p);
}

static symmResult_t host_check(void *ctx, symmStream_t s) {
    (void)ctx;
    SYMM_TRY(symm_stream_check(s));
    if (!symm_stream_capturing(s)) return symmSuccess;
    return SYMM_ERR(symmInvalidUsage, "stream=%p is being captured: arenas have no part in that",
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

static int host_idle(void *ctx, symmStream_t s, const symm_point *p) {
    (void)ctx;
    if (!symm_handle_open(SYMM_KIND_STREAM, s)) return 2;
    return p && symmStreamQuery(s) != symmInProgress;
}

const symm_arena_order symm_arena_order_host = {
    host_take, host_wait, host_reach, host_share, host_drop, host_idle, host_check, NULL, 0};

/* ---- lists ----------------------------------------------------------------------------------------------------------- */

static void leave(const symm_arena *a, symm_pendings *list, int i, int drop) {
    if (drop) a->order.drop(a->order.ctx, &list->at[i].point);
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

/* What is reached needs no entry. Decides nothing but how long the list is. */
static void tidy(const symm_arena *a, symm_pendings *list) {
    for (int i = list->n; i-- > 0;)
        if (a->order.idle(a->order.ctx, list->at[i].stream, &list->at[i].point))
            leave(a, list, i, 1);
}

static void append(const symm_arena *a, symm_pendings *list, symm_pending entry) {
    if (list->n >= TIDY_AT && list->n == list->cap) tidy(a, list);
    if (has_room(list)) {
        list->at[list->n++] = entry;
        return;
    }
    /* No memory to remember it: waited for here. Where this thread may not wait, a stream runs it, and what it freed it has done. */
    (void)a->order.reach(a->order.ctx, &entry.point);
    a->order.drop(a->order.ctx, &entry.point);
}

void symm_pending_add(const symm_arena *a, symm_pendings *list, uint64_t off, uint64_t end,
                      symmStream_t s) {
    symm_pending entry = {.off = off, .end = end, .stream = s};
    if (a->order.take(a->order.ctx, s, &entry.point) <= 0) return;
    for (int i = list->n; i-- > 0;) { /* the newer point comes after the older one */
        symm_pending *e = &list->at[i];
        if (e->stream != s || e->end < off || e->off > end) continue;
        entry.off = e->off < entry.off ? e->off : entry.off;
        entry.end = e->end > entry.end ? e->end : entry.end;
        leave(a, list, i, 1);
    }
    append(a, list, entry);
}

void symm_pending_for(const symm_arena *a, symm_pendings *list, uint64_t off, uint64_t end,
                      symmStream_t s, symm_pendings *out) {
    for (int i = list->n; i-- > 0;) {
        symm_pending e = list->at[i];
        if (e.end <= off || e.off >= end) continue;
        int covered = e.off >= off && e.end <= end;
        if (e.stream == s) {
            if (covered) leave(a, list, i, 1);
            continue;
        }
        if (covered)
            leave(a, list, i, 0);
        else
            a->order.share(a->order.ctx, &e.point);
        append(a, out, e);
    }
}

void symm_pending_disown(symm_pendings *list, symmStream_t s) {
    for (int i = 0; i < list->n; i++)
        if (list->at[i].stream == s) list->at[i].stream = SYMM_STREAM_GONE;
}

int symm_pending_busy(const symm_arena *a, symm_pendings *list, uint64_t off, uint64_t end) {
    tidy(a, list);
    for (int i = 0; i < list->n; i++)
        if (list->at[i].end > off && list->at[i].off < end) return 1;
    return 0;
}

symmResult_t symm_pending_wait(symm_arena *a, symm_pendings *list, symmStream_t s) {
    while (list->n) {
        SYMM_TRY(a->order.wait(a->order.ctx, s, &list->at[list->n - 1].point));
        atomic_fetch_add_explicit(&a->waits, 1, memory_order_relaxed);
        leave(a, list, list->n - 1, 1);
    }
    return symmSuccess;
}

void symm_pending_clear(const symm_arena *a, symm_pendings *list) {
    while (list->n) leave(a, list, list->n - 1, 1);
    free(list->at);
    *list = (symm_pendings){0};
}
