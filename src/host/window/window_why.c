/* window_why.c - texts that say why a buffer is in no window: the window there ends too early or
 * begins too late, and by how much, or its memory has ended. The user's thread; no lock. */
#include <stdio.h>

#include "base/log.h"
#include "host/comm/comm.h"
#include "space.h"
#include "window.h"

static int has_ended(const symm_comm *c, const char *name, uint64_t lo, uint64_t hi, char *text,
                     size_t cap) {
    for (const symm_win *w = c->windows.newest; w; w = w->next)
        for (int i = 0; i < w->nlived; i++)
            if (w->lived[i].gone && w->lived[i].lo < hi && lo < w->lived[i].hi) {
                snprintf(text, cap, "the memory that was registered at %s has ended", name);
                return 1;
            }
    return 0;
}

/* A run that has a part of the buffer; 0: none. */
static int too_short(symm_comm *c, const char *name, uint64_t lo, uint64_t hi, char *text,
                     size_t cap) {
    const int at = symm_wtable_near(&c->windows.table, lo, hi);
    if (at < 0) return 0;
    const uint64_t from = c->windows.table.lo[at], end = c->windows.table.run[at].hi;
    if (from > lo)
        snprintf(text, cap, "%s begins %llu bytes before its window", name,
                 (unsigned long long)(from - lo));
    else
        snprintf(text, cap, "%s's window ends %llu bytes before the buffer does", name,
                 (unsigned long long)(hi - end));
    return 1;
}

void symm_window_why(symm_comm *c, const char *name, const void *p, uint64_t bytes, char *text,
                     size_t cap) {
    const uint64_t lo = (uintptr_t)p, hi = lo + bytes;
    if (hi < lo) {
        snprintf(text, cap, "%s is beyond the end of the address space", name);
        return;
    }
    if (has_ended(c, name, lo, hi, text, cap) || too_short(c, name, lo, hi, text, cap) ||
        c->source->why(c, name, p, bytes, text, cap))
        return;
    snprintf(text, cap, "%s is in no window", name);
}

void symm_window_say_short(symm_comm *c, const char *name, const void *p, uint64_t bytes) {
    char text[160];
    const int at = symm_wtable_near(&c->windows.table, (uintptr_t)p, (uintptr_t)p + bytes);
    if (at < 0 || c->windows.table.run[at].win->told) return;
    c->windows.table.run[at].win->told = 1;
    if (too_short(c, name, (uintptr_t)p, (uintptr_t)p + bytes, text, sizeof text))
        SYMM_INFO("%s: it is staged through scratch (said once for each window)", text);
}
