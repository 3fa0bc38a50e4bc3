/* window.c - register, deregister, query. The communicator is one thread's. Lock: place_lock, as
 * window.h says. */
#include "window.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/fail.h"
#include "base/handle.h"
#include "base/sized.h"
#include "base/stats.h"
#include "host/comm/comm.h"
#include "host/comm/group.h"
#include "host/comm/outer.h"
#include "host/gpu/setup.h"
#include "exchange.h"
#include "multicast.h"
#include "space.h"

static pthread_mutex_t place_lock = PTHREAD_MUTEX_INITIALIZER;

void symm_window_lock(void) {
    pthread_mutex_lock(&place_lock);
}
void symm_window_unlock(void) {
    pthread_mutex_unlock(&place_lock);
}

/* ---- life ------------------------------------------------------------------------------------ */

void symm_window_ref(symm_win *w) {
    if (w->heap) {
        w->comm->source->ref(w);
        return;
    }
    SYMM_ASSERT(atomic_load_explicit(&w->refs, memory_order_relaxed) > 0);
    atomic_fetch_add_explicit(&w->refs, 1, memory_order_relaxed);
}

void symm_window_unref(symm_win *w) {
    if (w->heap) {
        w->comm->source->unref(w);
        return;
    }
    SYMM_ASSERT(atomic_load_explicit(&w->refs, memory_order_relaxed) > 0);
    /* Acquire and release: the one who gives it up comes after everyone's last use. */
    if (atomic_fetch_sub_explicit(&w->refs, 1, memory_order_acq_rel) != 1) return;
    if (w->slot)
        symm_slot_drop(w->comm->space, w->slot); /* mapped on: peers may still announce it */
    while (w->held) {
        symm_held *held = w->held;
        w->held = held->next;
        symm_slot_drop(w->comm->space, held->slot);
        free(held);
    }
    if (w->outer) symm_outer_put(w->outer->handle);
    symm_comm_unref(w->comm);
    free(w->off);
    free(w->size);
    free(w->lived);
    free(w);
    SYMM_STAT_ADD(windows, -1);
}

static void handle_gone(void *obj) {
    symm_window_unref(obj);
}

static void note_bytes(symm_comm *c, uint64_t more) {
    atomic_fetch_add_explicit(&c->windows.bytes, more, memory_order_relaxed);
}

/* pre: symm_window_make_room has succeeded. */
static void enter(symm_comm *c, symm_win *w) {
    if (w->bytes)
        symm_wtable_add(&c->windows.table, w, (uintptr_t)w->ptr, (uintptr_t)w->ptr + w->bytes);
    note_bytes(c, w->bytes);
    symm_window_changed(c); /* calls that are remembered must look again */
}

static void leave(symm_comm *c, symm_win *w) {
    symm_wtable_drop(&c->windows.table, w, (uintptr_t)w->ptr, (uintptr_t)w->ptr + w->bytes);
    note_bytes(c, -w->bytes);
    symm_window_changed(c);
}

symmResult_t symm_window_make_room(symm_comm *c) {
    if (!symm_wtable_room(&c->windows.table)) return symmSuccess;
    return SYMM_ERR(symmOutOfMemory, "no memory to list one more window than %d", c->windows.count);
}

void symm_window_lengthen(symm_win *w, uint64_t bytes, symm_lived *list, int n) {
    leave(w->comm, w);
    symm_window_lock();
    w->bytes = bytes;
    symm_window_unlock();
    symm_window_watch(w, list, n);
    enter(w->comm, w);
    SYMM_CHECK(symm_window_check(w));
}

static void check_pieces(const symm_win *w) {
    enum { MOST = 16 };
    int gone = 0;
    for (int i = 0; i < w->nlived; i++) {
        const symm_lived *p = &w->lived[i];
        gone += p->gone;
        if (i >= MOST) continue;
        SYMM_ASSERT(p->lo < p->hi && (i == 0 || p[-1].hi <= p->lo));
        SYMM_ASSERT(p->gone == 0 || p->gone == 1);
    }
    SYMM_ASSERT(gone == w->gone && w->foreign + w->dear <= w->nlived);
    SYMM_ASSERT(!w->nlived || w->lived[0].lo <= (uintptr_t)w->ptr);
    SYMM_ASSERT(!w->nlived || w->lived[w->nlived - 1].hi >= (uintptr_t)w->ptr + w->bytes);
}

/* Where a window is on each rank. */
void symm_window_check(const symm_win *w) {
    const symm_comm *c = w->comm;
    SYMM_ASSERT(w->off && w->size && w->handle && !w->heap);
    SYMM_ASSERT(w->size[c->rank] == w->bytes && (w->ptr || !w->bytes));
    SYMM_ASSERT(!w->slot == (c->threads || w->ended) && (!w->held || w->slot || w->ended));
    for (int r = 0; r < c->nranks && w->slot; r++) {
        const uint64_t in = w->off[r] + c->base - c->space->base - w->slot->off;
        SYMM_ASSERT(in <= w->slot->bytes && w->size[r] <= w->slot->bytes - in);
        SYMM_ASSERT(w->size[r] <= w->slot->rank_bytes[r]);
    }
    check_pieces(w);
}

void symm_windows_check(const symm_comm *c) {
    enum { MOST = 64 }; /* of a long list: the newest */
    const symm_win *w = c->windows.newest, *const *at = (const symm_win *const *)&c->windows.newest;
    int n = 0;
    for (; w && n < MOST; at = (const symm_win *const *)&w->next, w = w->next, n++) {
        SYMM_ASSERT((const symm_win *const *)w->link == at);
        SYMM_ASSERT(w->comm == c && !w->heap && atomic_load(&w->refs) > 0);
    }
    SYMM_ASSERT(w ? c->windows.count > n : c->windows.count == n);
    SYMM_ASSERT(c->windows.version > 0);
}

symm_win *symm_window_of(const symm_comm *c, symmWindow_t win) {
    return symm_handle_peek_at(SYMM_KIND_WINDOW, win, c);
}

static void link_window(symm_comm *c, symm_win *w) {
    SYMM_CHECK(symm_windows_check(c));
    w->next = c->windows.newest;
    w->link = &c->windows.newest;
    if (w->next) w->next->link = &w->next;
    c->windows.newest = w;
    c->windows.count++;
    enter(c, w);
    SYMM_CHECK(symm_windows_check(c));
    SYMM_CHECK(symm_window_check(w));
}

static void close_window(symm_comm *c, symm_win *w) {
    SYMM_CHECK(symm_windows_check(c));
    SYMM_CHECK(symm_window_check(w));
    leave(c, w);
    *w->link = w->next;
    if (w->next) w->next->link = w->link;
    c->windows.count--;
    if (symm_handle_close(SYMM_KIND_WINDOW, w->handle))
        symm_handle_put(SYMM_KIND_WINDOW, w->handle);
    SYMM_CHECK(symm_windows_check(c));
}

void symm_window_drop_all(symm_comm *c) {
    symm_wtable_end(&c->windows.table);
    while (c->windows.newest) close_window(c, c->windows.newest);
}

/* Takes the pieces of w in [lo, hi) that have ended out of the table, so that no later call finds
 * them. */
static void forget_ended(symm_comm *c, symm_win *w, uint64_t lo, uint64_t hi) {
    for (int i = 0; i < w->nlived; i++) {
        const symm_lived *p = &w->lived[i];
        if (p->gone && p->lo < hi && lo < p->hi)
            symm_wtable_cut(&c->windows.table, w, p->lo, p->hi);
    }
}

symm_win *symm_window_at(symm_comm *c, const void *ptr, uint64_t bytes) {
    const uint64_t lo = (uintptr_t)ptr, hi = lo + bytes;
    symm_win *w;
    if (hi < lo) return NULL; /* beyond the end of the address space */
    while ((w = symm_wtable_find(&c->windows.table, lo, hi))) {
        if (symm_window_lives(w, ptr, bytes)) return w;
        forget_ended(c, w, lo, hi);
    }
    return c->source->at(c, ptr, bytes);
}

symm_win *symm_window_also(symm_comm *c, symm_win *w, const void *ptr, uint64_t bytes) {
    const uint64_t in = w ? (uint64_t)((uintptr_t)ptr - (uintptr_t)w->ptr) : 0;
    if (w && !w->heap && in < w->bytes && bytes <= w->bytes - in &&
        symm_window_lives(w, ptr, bytes))
        return w;
    return symm_window_at(c, ptr, bytes);
}

static symmResult_t make_record(symm_comm *c, void *buff, size_t size, symm_win **out) {
    const size_t n = (size_t)c->nranks;
    symm_win *w = SYMM_FAIL_ALLOC(win_record, calloc(1, sizeof *w));
    uint64_t *off = SYMM_FAIL_ALLOC(win_offsets, calloc(n, sizeof *off)),
             *sizes = SYMM_FAIL_ALLOC(win_sizes, calloc(n, sizeof *sizes));
    if (!w || !off || !sizes) {
        free(w);
        free(off);
        free(sizes);
        return SYMM_ERR(symmOutOfMemory, "no memory for the record of a window");
    }
    w->off = off;
    w->size = sizes;
    w->comm = c;
    w->ptr = buff;
    w->bytes = size;
    atomic_store(&w->refs, 1);
    symm_comm_ref(c);
    SYMM_STAT_ADD(windows, 1);
    *out = w;
    return symmSuccess;
}

/* ---- register -------------------------------------------------------------------------------- */

static uint64_t mix(uint64_t h, uint64_t v) {
    h ^= v + 0x9e3779b97f4a7c15ull + (h << 6) + (h >> 2);
    return h * 0xff51afd7ed558ccdull;
}

/* For one more segment. */
static symmResult_t make_list_room(symm_bring *b) {
    enum { FIRST = 16 };
    const int room = b->room ? 2 * b->room : FIRST;
    if (b->count < b->room) return symmSuccess;
    void *h = SYMM_FAIL_ALLOC(win_segments, realloc(b->handles, (size_t)room * sizeof *b->handles));
    if (h) b->handles = h;
    void *p = h ? realloc(b->parts, (size_t)room * sizeof *b->parts) : NULL;
    if (!p) return SYMM_ERR(symmOutOfMemory, "no memory to list a window's segments");
    b->parts = p;
    b->room = room;
    return symmSuccess;
}

symmResult_t symm_window_find(symm_comm *c, char *buff, size_t size, symm_bring *b) {
    char *at = buff, *end = buff + size;
    b->user_bytes = size;
    while (at < end) {
        void *base;
        uint64_t bytes, id[2];
        if (b->count == SYMM_MAX_SEGMENTS)
            return SYMM_ERR(symmNotSupported, "buff=%p, size=%zu lies in more than %d segments",
                            (void *)buff, size, SYMM_MAX_SEGMENTS);
        SYMM_TRY(make_list_room(b));
        int cu = c->vmm->retain(at, &b->handles[b->count], &base, &bytes);
        if (cu == SYMM_CU_INVALID_VALUE)
            return SYMM_ERR(
                symmInvalidArgument,
                "buff=%p, size=%zu: byte %zu is not memory that peers can map (symmMemAlloc makes "
                "such memory; "
                "other memory works in collectives all the same, staged through scratch)",
                (void *)buff, size, (size_t)(at - buff));
        if (cu)
            return symm_vmm_error(c->vmm, cu, "finding the memory behind buff=%p", (void *)buff);
        b->parts[b->count] = (symm_part){b->total, bytes};
        /* Thread ranks use it at this address. Devices of some of them may have been set up after
         * its access was set. */
        cu = c->cuda && c->threads ? c->vmm->set_access(base, bytes) : 0;
        if (cu) {
            c->vmm->release(b->handles[b->count]);
            return symm_vmm_error(
                c->vmm, cu, "giving every GPU access to the memory behind buff=%p", (void *)buff);
        }
        if (b->count++ == 0) b->user_off = (uint64_t)(buff - (char *)base);
        b->total += bytes;
        if (c->vmm->identify(b->handles[b->count - 1], &bytes, id) == SYMM_CU_SUCCESS)
            b->id = mix(mix(mix(b->id, id[0]), id[1]), bytes);
        at = (char *)base + b->parts[b->count - 1].bytes;
    }
    b->id |= 1; /* never 0 */
    return symmSuccess;
}

void symm_window_let_go(symm_comm *c, symm_bring *b) {
    for (int i = 0; i < b->count; i++) c->vmm->release(b->handles[i]);
    free(b->handles);
    free(b->parts);
}

/* Thread ranks: the user's pointer is the only mapping, so the flat offset is computed from it. */
static symmResult_t meet_threads(symm_comm *c, symmResult_t status, symm_win *w,
                                 symm_brought *all) {
    symm_brought mine = {.code = (int32_t)status,
                         .ptr = w ? (uint64_t)(uintptr_t)w->ptr : 0,
                         .user_bytes = w ? w->bytes : 0};
    SYMM_TRY(symm_comm_gather(c, &mine, all, sizeof mine, "registering a window"));
    for (int r = 0; r < c->nranks; r++)
        if (all[r].code) return symm_comm_agree(c, status, "registering a window");
    for (int r = 0; r < c->nranks; r++) {
        w->off[r] = all[r].ptr - (c->base + (uint64_t)r * c->stride);
        w->size[r] = all[r].user_bytes;
    }
    return symmSuccess;
}

static symmResult_t meet_processes(symm_comm *c, symmResult_t status, symm_win *w, symm_bring *b,
                                   symm_brought *all) {
    int shared = 0;
    symm_slot *slot;
    SYMM_TRY(symm_exchange(c, status, b, "registering a window", all, &slot, &shared));
    w->slot = slot;
    SYMM_STAT_ADD(registrations_shared, shared);
    for (int r = 0; r < c->nranks; r++) {
        w->off[r] = c->space->base + slot->off + all[r].user_off - c->base;
        w->size[r] = all[r].user_bytes;
    }
    return symmSuccess;
}

static symmResult_t check_buffer(void *buff, size_t size, const symmWindow_t *win, int flags) {
    if (!win) return SYMM_ERR(symmInvalidArgument, "win is NULL");
    if (flags & ~SYMM_WIN_COLL_SYMMETRIC)
        return SYMM_ERR(symmInvalidArgument,
                        "flags=%d: must be SYMM_WIN_DEFAULT or SYMM_WIN_COLL_SYMMETRIC", flags);
    if (!buff && size) return SYMM_ERR(symmInvalidArgument, "buff is NULL but size=%zu", size);
    if ((uintptr_t)buff + size < (uintptr_t)buff)
        return SYMM_ERR(symmInvalidArgument,
                        "buff=%p, size=%zu: beyond the end of the address space", buff, size);
    return symmSuccess;
}

typedef struct {
    symmComm_t comm;
    void *buff;
    size_t size;
    symmWindow_t *win;
    int flags;
} register_args;

/* A rank that has failed, or has a bad argument, takes part all the same, so that all ranks return
 * its error. */
static symmResult_t register_window(symm_comm *c, symmResult_t status, const register_args *a) {
    symm_win *w = NULL;
    symm_lived *lived = NULL;
    void *handle = NULL;
    symm_brought all[SYMM_MAX_RANKS];
    symm_bring b = {.count = 0};
    symm_window_sweep(c);
    if (!status) status = check_buffer(a->buff, a->size, a->win, a->flags);
    if (!status) status = make_record(c, a->buff, a->size, &w);
    if (!status) status = symm_handle_new(SYMM_KIND_WINDOW, w, handle_gone, &handle);
    if (!status) status = symm_window_find(c, a->buff, a->size, &b);
    if (!status) status = symm_window_list(c, a->buff, &b, &lived);
    if (!status) symm_window_watch(w, lived, b.count);
    if (!status) status = symm_window_make_room(c);
    status = c->threads ? meet_threads(c, status, w, all) : meet_processes(c, status, w, &b, all);
    symm_window_let_go(c, &b);
    if (status) goto drop_record;
    w->handle = handle;
    symm_handle_set_range(SYMM_KIND_WINDOW, handle, c, 1); /* for symm_window_of */
    link_window(c, w);
    SYMM_STAT_ADD(registrations, 1);
    *a->win = handle;
    return symmSuccess;
drop_record:
    if (handle) {
        symm_handle_close(SYMM_KIND_WINDOW, handle);
        symm_handle_put(SYMM_KIND_WINDOW, handle);
    } else if (w) {
        symm_window_unref(w);
    }
    return status;
}

static symmResult_t register_job(void *p) {
    register_args *a = p;
    symm_setup s;
    SYMM_TRY(symm_setup_enter(a->comm, &s));
    return symm_setup_leave(&s, register_window(s.c, s.status, a));
}

symmResult_t symmWindowRegister(symmComm_t comm, void *buff, size_t size, symmWindow_t *win,
                                int flags) {
    register_args a = {comm, buff, size, win, flags};
    symm_outer *o = symm_outer_get(comm);
    if (o) {
        const symmResult_t r = o->register_window(o, buff, size, win, flags);
        symm_outer_put(comm);
        return r;
    }
    return symm_comm_run(comm, register_job, &a, sizeof a);
}

symmResult_t symmWindowDeregister(symmComm_t comm, symmWindow_t win) {
    symm_comm *c;
    SYMM_TRY(symm_group_refuse_beside(symm_outer_inner(comm), "symmWindowDeregister"));
    SYMM_TRY(symm_comm_enter(symm_outer_inner(comm), 0, &c));
    /* Held: if it is another communicator's, another thread may end it. */
    symm_win *w = symm_handle_get(SYMM_KIND_WINDOW, win);
    symmResult_t r = symmSuccess;
    if (!w)
        r = SYMM_ERR(symmInvalidArgument, "win=%p is not a registered window (deregistered twice?)",
                     (void *)win);
    else if (w->comm != c)
        r = SYMM_ERR(symmInvalidArgument, "win=%p belongs to communicator %s, not to %s",
                     (void *)win, w->comm->name, c->name);
    else
        close_window(c, w);
    if (w) symm_handle_put(SYMM_KIND_WINDOW, win);
    symm_comm_leave(c);
    return r;
}

/* ---- questions ------------------------------------------------------------------------------- */

/* Holds the window until answered, because another thread may end the communicator, which frees its
 * windows, and locks it, because another thread may be inside and change it. */
static symmResult_t find_window(symmWindow_t win, symm_win **out) {
    *out = symm_handle_get(SYMM_KIND_WINDOW, win);
    if (!*out)
        return SYMM_ERR(symmInvalidArgument, "win=%p is not a registered window", (void *)win);
    symm_window_lock();
    return symmSuccess;
}

static symmResult_t answered(symmWindow_t win, symmResult_t r) {
    symm_window_unlock();
    symm_handle_put(SYMM_KIND_WINDOW, win);
    return r;
}

static uint64_t shortest(const symm_win *w) {
    uint64_t bytes = w->size[0];
    for (int r = 1; r < w->comm->nranks; r++)
        if (w->size[r] < bytes) bytes = w->size[r];
    return bytes;
}

static symmResult_t query(const symm_win *w, symmWindowInfo_t *info) {
    if (!symm_sized_holds(info, sizeof *info))
        return SYMM_ERR(symmInvalidArgument, "info is %s", info ? SYMM_NO_SIZE : "NULL");
    symmWindowInfo_t i = {.size = info->size,
                          .userPtr = w->ptr,
                          .bytes = w->bytes,
                          .offset = w->off[w->comm->rank],
                          .references = 1};
    char why[SYMM_MULTICAST_WHY];
    const uint64_t common = shortest(w);
    i.multicast = common && symm_multicast_of(w, 0, common, why, sizeof why);
    if (w->slot) {
        i.slotOffset = w->slot->off;
        i.references = symm_slot_refs(w->comm->space, w->slot, &i.slotBytes);
    }
    symm_sized_answer(info, &i, sizeof i);
    return symmSuccess;
}

symmResult_t symmWindowQuery(symmWindow_t win, symmWindowInfo_t *info) {
    symm_win *w;
    SYMM_TRY(find_window(win, &w));
    return answered(win, query(w, info));
}

static symmResult_t peer_ptr(const symm_win *w, size_t offset, int rank, void **ptr) {
    const symm_comm *c = w->comm;
    if (!ptr) return SYMM_ERR(symmInvalidArgument, "ptr is NULL");
    if (w->outer) SYMM_TRY(symm_outer_place(w->outer, &rank));
    if (rank < 0 || rank >= c->nranks)
        return SYMM_ERR(symmInvalidArgument, "rank=%d: the communicator has ranks 0 to %d", rank,
                        c->nranks - 1);
    if (w->ended)
        return SYMM_ERR(symmInvalidUsage,
                        "win=%p: its memory at %p was freed, and a registration since then has let "
                        "go of what it maps",
                        (void *)w->handle, (void *)w->ptr);
    if (offset >= w->size[rank])
        return SYMM_ERR(symmInvalidArgument, "offset=%zu: rank %d registered %llu bytes", offset,
                        rank, (unsigned long long)w->size[rank]);
    *ptr = (void *)(uintptr_t)(c->base + (uint64_t)rank * c->stride + w->off[rank] + offset);
    return symmSuccess;
}

symmResult_t symmWindowPeerPtr(symmWindow_t win, size_t offset, int rank, void **ptr) {
    symm_win *w;
    SYMM_TRY(find_window(win, &w));
    return answered(win, peer_ptr(w, offset, rank, ptr));
}

static symmResult_t multicast_ptr(const symm_win *w, size_t offset, void **ptr) {
    char why[SYMM_MULTICAST_WHY];
    if (!ptr) return SYMM_ERR(symmInvalidArgument, "ptr is NULL");
    if (offset >= shortest(w))
        return SYMM_ERR(symmInvalidArgument,
                        "offset=%zu: some rank's part of the window has %llu bytes", offset,
                        (unsigned long long)shortest(w));
    char *at = symm_multicast_of(w, offset, 1, why, sizeof why);
    if (!at) return SYMM_ERR(symmNotSupported, "no multicast window: %s", why);
    *ptr = at;
    return symmSuccess;
}

symmResult_t symmWindowMulticastPtr(symmWindow_t win, size_t offset, void **ptr) {
    symm_win *w;
    SYMM_TRY(find_window(win, &w));
    return answered(win, multicast_ptr(w, offset, ptr));
}

/* Of memory that some window or heap of the communicator has. */
static symmResult_t mem_multicast(symm_comm *c, const void *mem, size_t bytes, void **ptr) {
    char why[SYMM_MULTICAST_WHY];
    if (!ptr || !mem || !bytes)
        return SYMM_ERR(symmInvalidArgument, "%s is %s",
                        !ptr   ? "ptr"
                        : !mem ? "mem"
                               : "bytes",
                        ptr && mem ? "0" : "NULL");
    symm_win *w = symm_window_at(c, mem, bytes);
    if (!w) {
        symm_window_why(c, "mem", mem, bytes, why, sizeof why);
        return SYMM_ERR(symmInvalidArgument, "%s", why);
    }
    char *at = symm_multicast_of(w, (uint64_t)((const char *)mem - w->ptr), bytes, why, sizeof why);
    if (!at) return SYMM_ERR(symmNotSupported, "no multicast window: %s", why);
    *ptr = at;
    return symmSuccess;
}

symmResult_t symmMemMulticastPtr(symmComm_t comm, const void *mem, size_t bytes, void **ptr) {
    symm_comm *c;
    SYMM_TRY(symm_comm_enter(comm, 0, &c));
    const symmResult_t r = mem_multicast(c, mem, bytes, ptr);
    symm_comm_leave(c);
    return r;
}
