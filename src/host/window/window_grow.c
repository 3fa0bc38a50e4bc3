/* window_grow.c - symmWindowGrow: the window's slot gets longer where it is, or all of it is mapped
 * into a larger one. The communicator's user thread; takes the space's lock for moments. */
#include <stdlib.h>

#include "symm_heap.h"
#include "base/fail.h"
#include "base/handle.h"
#include "base/stats.h"
#include "host/comm/comm.h"
#include "host/comm/group.h"
#include "host/gpu/setup.h"
#include "exchange.h"
#include "multicast.h"
#include "space.h"
#include "window.h"

static const char stage[] = "growing a window";

typedef struct {
    symmWindow_t win;
    size_t size;
} grow_args;

typedef struct
{ /* what the ranks tell each other, twice: before and after they have looked at their addresses */
    int32_t code, count; /* new segments */
    uint64_t total, user_bytes, user_off;
    int32_t fits, pad;
} offer;

typedef struct {
    symm_comm *c;
    symm_win *w;
    symm_bring b; /* all segments of the longer window */
    int old;      /* of these, the slot has so many already */
    offer *all;
    symm_held *held;
    symm_lived *lived;
    symm_handle_exchange trade;
} growth;

/* ---- what this rank brings ------------------------------------------------------------------- */

/* Is segment i the one that the slot has at off? */
static int same_memory(const growth *g, int i, uint64_t off) {
    const symm_vmm *v = g->c->vmm;
    uint64_t bytes, here[2], there[2];
    symm_vmm_handle *h;
    void *base;
    if (v->retain(symm_space_addr(g->c->space, g->c->rank, g->w->slot->off + off), &h, &base,
                  &bytes))
        return 0;
    int same = bytes == g->b.parts[i].bytes && !v->identify(h, &bytes, there) &&
               !v->identify(g->b.handles[i], &bytes, here) && here[0] == there[0] &&
               here[1] == there[1];
    v->release(h);
    return same;
}

/* The slot's segments must come first, as they are. */
static symmResult_t check_prefix(growth *g) {
    const symm_win *w = g->w;
    const uint64_t mapped = w->slot ? w->slot->rank_bytes[g->c->rank] : 0;
    uint64_t off = 0;
    for (g->old = 0; off < mapped && g->old < g->b.count; g->old++) {
        if (!same_memory(g, g->old, off)) break;
        off += g->b.parts[g->old].bytes;
    }
    if (off >= mapped) return symmSuccess;
    return SYMM_ERR(symmInvalidArgument,
                    "win=%p: the memory behind byte %llu of the window is not what was registered",
                    (void *)w->handle, (unsigned long long)(off - g->b.user_off));
}

static symmResult_t bring(growth *g, const grow_args *a) {
    symm_win *w = g->w;
    if (a->size < w->bytes)
        return SYMM_ERR(symmInvalidArgument, "size=%zu: the window has %llu bytes already", a->size,
                        (unsigned long long)w->bytes);
    if (!w->ptr && a->size)
        return SYMM_ERR(symmInvalidArgument, "size=%zu: the window was registered with buff NULL",
                        a->size);
    if ((uintptr_t)w->ptr + a->size < (uintptr_t)w->ptr)
        return SYMM_ERR(symmInvalidArgument, "size=%zu: beyond the end of the address space",
                        a->size);
    SYMM_TRY(symm_window_find(g->c, w->ptr, a->size, &g->b));
    SYMM_TRY(symm_window_list(g->c, w->ptr, &g->b, &g->lived));
    SYMM_TRY(symm_window_make_room(g->c)); /* a window of nothing has none yet */
    if (g->c->threads) return symmSuccess;
    g->held = SYMM_FAIL_ALLOC(win_held, calloc(1, sizeof *g->held));
    if (!g->held) return SYMM_ERR(symmOutOfMemory, "no memory for the record of a window");
    return check_prefix(g);
}

static symmResult_t tell(growth *g, symmResult_t status, int fits) {
    offer mine = {.code = (int32_t)status,
                  .count = g->b.count - g->old,
                  .total = g->b.total,
                  .user_bytes = g->b.user_bytes,
                  .user_off = g->b.user_off,
                  .fits = fits};
    SYMM_TRY(symm_comm_gather(g->c, &mine, g->all, sizeof mine, stage));
    for (int r = 0; r < g->c->nranks; r++)
        if (g->all[r].code) return symm_comm_agree(g->c, status, stage);
    return symmSuccess;
}

/* ---- in place -------------------------------------------------------------------------------- */

static symmResult_t map_one(void *arg, int rank, symm_vmm_handle *h, symm_part part) {
    growth *g = arg;
    return symm_exchange_map(g->c, g->w->slot, g->all[rank].total, rank, h, part);
}

static void unmap_new(growth *g, const uint64_t *old) {
    symm_slot *slot = g->w->slot;
    for (int r = 0; r < g->c->nranks; r++) {
        const uint64_t more = slot->rank_bytes[r] - old[r];
        int cu =
            more ? g->c->vmm->unmap(symm_space_addr(g->c->space, r, slot->off + old[r]), more) : 0;
        if (cu)
            symm_vmm_error(g->c->vmm, cu, "unmapping %llu bytes of rank %d",
                           (unsigned long long)more, r);
        else
            slot->rank_bytes[r] = old[r];
    }
}

/* What every rank had is bound already; what every rank has now is bound too. */
static symmResult_t bind_more(growth *g, const uint64_t *old) {
    uint64_t lo = old[0], hi = g->all[0].total;
    for (int r = 1; r < g->c->nranks; r++) {
        if (old[r] < lo) lo = old[r];
        if (g->all[r].total < hi) hi = g->all[r].total;
    }
    return symm_multicast_bind_range(g->c, g->w->slot, g->b.handles, g->b.parts, g->b.count, lo, hi,
                                     stage);
}

/* The addresses behind the slot are this window's on every rank. */
static symmResult_t map_behind(growth *g) {
    uint64_t old[SYMM_MAX_RANKS];
    int counts[SYMM_MAX_RANKS];
    for (int r = 0; r < g->c->nranks; r++) {
        old[r] = g->w->slot->rank_bytes[r];
        counts[r] = g->all[r].count;
    }
    symmResult_t r = symm_handle_exchange_run(&g->trade, counts);
    if (!r && !g->trade.status && SYMM_FAIL_HERE(win_longer))
        g->trade.status = SYMM_ERR(symmSystemError, "failpoint win_longer");
    if (!r) r = symm_comm_agree(g->c, g->trade.status, stage);
    if (!r) r = bind_more(g, old);
    if (r) unmap_new(g, old);
    symm_window_lock();
    for (int p = 0; p < g->c->nranks && !r; p++) /* a part of nothing had no place yet */
        g->w->off[p] = g->c->space->base + g->w->slot->off + g->all[p].user_off - g->c->base;
    symm_window_unlock();
    return r;
}

/* ---- the whole ------------------------------------------------------------------------------- */

static uint64_t largest(const growth *g) {
    const uint64_t gran = g->c->caps.granularity;
    uint64_t most = gran;
    for (int r = 0; r < g->c->nranks; r++)
        if (g->all[r].total > most) most = g->all[r].total;
    return (most + gran - 1) / gran * gran;
}

/* Everything anew in another slot. Captured calls know the old one, so it is kept as long as there
 * are any. */
static symmResult_t move(growth *g) {
    symm_win *w = g->w;
    symm_brought brought[SYMM_MAX_RANKS];
    symm_slot *slot;
    int shared;
    SYMM_TRY(symm_exchange(g->c, symmSuccess, &g->b, stage, brought, &slot, &shared));
    symm_window_lock();
    for (int r = 0; r < g->c->nranks; r++)
        w->off[r] = g->c->space->base + slot->off + brought[r].user_off - g->c->base;
    if (atomic_load(&w->refs) > 1) {
        *g->held = (symm_held){w->held, w->slot};
        w->held = g->held;
        g->held = NULL;
    } else {
        symm_slot_drop(g->c->space, w->slot);
    }
    w->slot = slot;
    symm_window_unlock();
    return symmSuccess;
}

static symmResult_t grow_processes(growth *g) {
    symm_claim was;
    symm_space *s = g->c->space;
    const int fits = symm_slot_claim(s, g->w->slot, largest(g), &was);
    int all_fit = 1;
    symmResult_t r = fits ? symm_handle_exchange_export(&g->trade) : symmSuccess;
    r = tell(g, r, fits);
    for (int p = 0; p < g->c->nranks && !r; p++) all_fit &= g->all[p].fits;
    if (!r && all_fit) r = map_behind(g);
    if (!r && all_fit)
        symm_slot_publish(s, g->w->slot, g->b.id);
    else if (fits)
        symm_slot_unclaim(s, g->w->slot, &was);
    symm_handle_exchange_close(&g->trade);
    return r || all_fit ? r : move(g);
}

static symmResult_t grow(growth *g, symmResult_t status, const grow_args *a) {
    symm_win *w = g->w;
    if (!status) status = bring(g, a);
    g->trade = (symm_handle_exchange){.c = g->c,
                                      .stage = stage,
                                      .handles = g->b.handles + g->old,
                                      .parts = g->b.parts + g->old,
                                      .count = g->b.count - g->old,
                                      .map = map_one,
                                      .arg = g};
    SYMM_TRY(tell(g, status, 0));
    if (!g->c->threads) SYMM_TRY(grow_processes(g));
    symm_window_lock();
    for (int r = 0; r < g->c->nranks; r++) w->size[r] = g->all[r].user_bytes;
    symm_window_unlock();
    symm_window_lengthen(w, a->size, g->lived, g->b.count);
    g->lived = NULL;
    return symmSuccess;
}

static symmResult_t with_lists(symm_comm *c, symm_win *w, symmResult_t status, const grow_args *a) {
    offer all[SYMM_MAX_RANKS];
    growth g = {.c = c, .w = w, .all = all};
    if (!status && !symm_handle_open(SYMM_KIND_WINDOW, w->handle)) /* before this thread's turn */
        status = SYMM_ERR(symmInvalidArgument, "win=%p was deregistered by another thread",
                          (void *)w->handle);
    if (!status && (w->ended || (w->bytes && !symm_window_lives(w, w->ptr, w->bytes))))
        status = SYMM_ERR(symmInvalidUsage, "win=%p: its memory at %p was freed", (void *)w->handle,
                          (void *)w->ptr);
    status = grow(&g, status, a);
    symm_window_let_go(c, &g.b);
    free(g.held);
    free(g.lived);
    return status;
}

static symmResult_t grow_job(void *p) {
    const grow_args *a = p;
    symm_setup s;
    symm_win *w = symm_handle_get(SYMM_KIND_WINDOW, a->win);
    if (!w)
        return SYMM_ERR(symmInvalidArgument, "win=%p is not a registered window", (void *)a->win);
    symmResult_t r = symm_setup_enter(w->comm->handle, &s);
    if (!r) r = symm_setup_leave(&s, with_lists(s.c, w, s.status, a));
    symm_handle_put(SYMM_KIND_WINDOW, a->win);
    return r;
}

symmResult_t symmWindowGrow(symmWindow_t win, size_t size) {
    grow_args a = {win, size};
    symm_win *w = symm_handle_get(SYMM_KIND_WINDOW, win);
    if (!w)
        return symm_group_refuse(
            SYMM_ERR(symmInvalidArgument, "win=%p is not a registered window", (void *)win));
    symmResult_t r =
        w->outer ? symm_group_refuse(SYMM_ERR(
                       symmNotSupported,
                       "win=%p is over several domains: such a window does not grow", (void *)win))
                 : symm_group_run(w->comm->handle, SYMM_JOB_BLOCKS, grow_job, &a, sizeof a);
    symm_handle_put(SYMM_KIND_WINDOW, win);
    return r;
}
