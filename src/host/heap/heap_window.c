/* heap_window.c - heaps as windows: what collectives find at an address of a heap, and error texts
 * where a heap has less memory than a call needs or ranks differ in their calls. The communicator's
 * user thread; references and explain: any thread (the lock of the communicator's heaps). */
#include <stdio.h>

#include "host/window/space.h"
#include "heap_int.h"

static symm_win *window_at(symm_comm *c, const void *ptr, uint64_t bytes) {
    for (symm_heap *h = c->heaps.newest; h; h = h->next) {
        const uint64_t in = (uint64_t)((uintptr_t)ptr - (uintptr_t)h->win.ptr);
        if (in >= h->reserve || bytes > h->reserve - in) continue;
        return symm_region_backed(&h->region, c->rank, in, bytes) ? &h->win : NULL;
    }
    return NULL;
}

/* SYM memory stays for as long as the own block does. Of LOCAL memory a trim takes what its owner
 * does not use, whatever others have there. */
static int is_backed(const symm_win *w, int rank, uint64_t in, uint64_t bytes) {
    return in + bytes <= symm_zone_extent(&w->heap->zone[SYMM_ZONE_SYM]) &&
           symm_region_backed(&w->heap->region, rank, in, bytes);
}

static int explain(symm_comm *c, char *text, size_t cap) {
    char call[SYMM_ERR_TEXT];
    int found = 0;
    pthread_mutex_lock(&c->heaps.lock);
    for (const symm_heap *h = c->heaps.newest; h && !found; h = h->next) {
        found = symm_ledger_differ(h->ledger, 0, call, sizeof call);
        if (found)
            snprintf(text, cap, "the ranks differ in their calls on zone SYM of heap %s: %s",
                     h->name, call);
    }
    pthread_mutex_unlock(&c->heaps.lock);
    return found;
}

/* How many of the buffer's bytes have memory. */
static uint64_t backed(const symm_heap *h, uint64_t off, uint64_t bytes) {
    uint64_t good = 0, bad = bytes + 1;
    while (bad - good > 1) {
        const uint64_t n = good + (bad - good) / 2;
        if (symm_region_backed(&h->region, h->comm->rank, off, n))
            good = n;
        else
            bad = n;
    }
    return good;
}

static int why(symm_comm *c, const char *name, const void *p, uint64_t bytes, char *text,
               size_t cap) {
    for (const symm_heap *h = c->heaps.newest; h; h = h->next) {
        const uint64_t off = symm_heap_offset(h, p);
        if (off == SYMM_NO_OFFSET) continue;
        const uint64_t most = bytes < h->reserve - off ? bytes : h->reserve - off;
        snprintf(text, cap, "heap %s has memory for %llu of %s's %llu bytes", h->name,
                 (unsigned long long)backed(h, off, most), name, (unsigned long long)bytes);
        return 1;
    }
    return 0;
}

static void ref(symm_win *w) {
    symm_heap_ref(w->heap);
}
static void unref(symm_win *w) {
    symm_heap_unref(w->heap);
}

const symm_win_source symm_heap_windows = {window_at, is_backed, why, ref, unref, explain};
