/* window_life.c - memory under a window may end (freed, unmapped). From then on the window no
 * longer covers that piece. Nobody tells of an end: each look asks the memory driver, but only if
 * the driver has counted an end since the last look. The user's thread; no lock. */
#include <stdlib.h>

#include "base/fail.h"
#include "host/comm/comm.h"
#include "space.h"
#include "window.h"

/* The first piece that ends behind `at`. */
static int first_piece(const symm_win *w, uint64_t at) {
    int lo = 0, hi = w->nlived;
    while (lo < hi) {
        const int mid = lo + (hi - lo) / 2;
        if (w->lived[mid].hi <= at)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

symmResult_t symm_window_list(symm_comm *c, const void *buff, const symm_bring *b,
                              symm_lived **out) {
    const uint64_t base = (uint64_t)(uintptr_t)buff - b->user_off;
    symm_lived *list = SYMM_FAIL_ALLOC(win_lived, calloc((size_t)b->count + 1, sizeof *list));
    if (!list) return SYMM_ERR(symmOutOfMemory, "no memory to list the pieces of a window");
    for (int i = 0; i < b->count; i++) {
        const uint64_t lo = base + b->parts[i].off;
        list[i] =
            (symm_lived){lo, lo + b->parts[i].bytes, c->vmm->life((const void *)(uintptr_t)lo), 0};
    }
    *out = list;
    return symmSuccess;
}

static int is_dear(const symm_lived *p) {
    return (p->life & SYMM_LIFE_DEAR) != 0;
}
static int is_foreign(const symm_lived *p) {
    return (p->life & SYMM_LIFE_FOREIGN) && !is_dear(p);
}

void symm_window_watch(symm_win *w, symm_lived *list, int n) {
    free(w->lived);
    w->lived = list;
    w->nlived = n;
    w->gone = w->foreign = w->dear = 0;
    w->looked_ends = 0;
    for (int i = 0; i < n; i++) {
        w->foreign += is_foreign(&list[i]);
        w->dear += is_dear(&list[i]);
    }
}

static void look_at(symm_win *w, symm_lived *p) {
    if (p->gone) return;
    p->gone = w->comm->vmm->life((const void *)(uintptr_t)p->lo) != p->life;
    w->gone += p->gone;
}

/* Looks at all pieces but foreign ones: those whose end is counted, and those that are too slow to
 * ask about at each call. */
static void look(symm_win *w) {
    const uint64_t ends = symm_vmm_ended(); /* first: a later end counts for the next look */
    if (w->looked_ends == ends && (!w->dear || w->looked_version == w->comm->windows.version))
        return;
    for (int i = 0; i < w->nlived; i++)
        if (!is_foreign(&w->lived[i])) look_at(w, &w->lived[i]);
    w->looked_ends = ends;
    w->looked_version = w->comm->windows.version;
}

int symm_window_lives(symm_win *w, const void *ptr, uint64_t bytes) {
    const uint64_t lo = (uintptr_t)ptr, hi = lo + bytes;
    look(w);
    if (!w->gone && !w->foreign) return 1;
    for (int i = first_piece(w, lo); i < w->nlived && w->lived[i].lo < hi; i++) {
        symm_lived *p = &w->lived[i];
        if (is_foreign(p)) look_at(w, p);
        if (p->gone) return 0;
    }
    return 1;
}

static int is_over(symm_win *w) {
    for (int i = 0; i < w->nlived; i++) look_at(w, &w->lived[i]);
    return w->nlived && w->gone == w->nlived;
}

void symm_window_sweep(symm_comm *c) {
    const uint64_t ends = symm_vmm_ended(); /* first, as in look */
    for (symm_win *w = c->windows.newest; w; w = w->next) {
        const int counted = !w->foreign && !w->dear;
        if (!w->slot || (c->windows.swept == ends && counted)) continue;
        if (atomic_load_explicit(&w->refs, memory_order_acquire) != 1 || !is_over(w)) continue;
        symm_window_lock();
        symm_slot_drop(c->space, w->slot);
        w->slot = NULL;
        w->ended = 1;
        symm_window_unlock();
    }
    c->windows.swept = ends;
}

int symm_window_pieces(const symm_win *w, const void *ptr, uint64_t bytes, symm_lived *out) {
    const uint64_t lo = (uintptr_t)ptr, hi = lo + bytes;
    int n = 0;
    for (int i = first_piece(w, lo); i < w->nlived && w->lived[i].lo < hi; i++, n++)
        if (out) out[n] = w->lived[i];
    return n;
}
