/* boot_text.h - texts and time slices that all bootstraps share, so that their errors read alike.
 * Pure; any thread. */
#ifndef SYMM_BOOT_TEXT_H_
#define SYMM_BOOT_TEXT_H_

#include <stdio.h>

#include "base/wait.h"

/* What is being waited for, for error texts. */
static inline const char *symm_boot_stage(const symm_wait *w) {
    return w->stage ? w->stage : "setting up";
}

static inline double symm_boot_seconds(uint64_t since_ns) {
    return (double)(symm_now_ns() - since_ns) / 1e9;
}

/* How many ms to sleep before the next look: not beyond limit_ns (0: none), and short if w->check
 * must be polled. Not 0 before the limit, so that no caller spins in its last millisecond. */
static inline int symm_boot_slice_ms(const symm_wait *w, uint64_t limit_ns) {
    uint64_t slice = w->check ? 5 : 100;
    if (limit_ns) {
        uint64_t now = symm_now_ns();
        uint64_t left = limit_ns > now ? (limit_ns - now + 999999) / 1000000 : 0;
        if (left < slice) slice = left;
    }
    return (int)slice;
}

static inline symmResult_t symm_boot_check(const symm_wait *w) {
    return w->check ? w->check(w->arg) : symmSuccess;
}

/* "rank 3" or "ranks 1, 4-6, 9": the members r of [0,n) with in[r] != 0. A list that does not fit
 * ends in "...". Returns buf. */
static inline const char *symm_boot_ranks(const unsigned char *in, int n, char *buf, size_t cap) {
    int many = 0;
    for (int r = 0; r < n; r++) many += in[r] != 0;
    size_t at = (size_t)snprintf(buf, cap, many == 1 ? "rank " : "ranks ");
    const char *comma = "";
    for (int r = 0; r < n; r++) {
        if (!in[r]) continue;
        int last = r;
        while (last + 1 < n && in[last + 1]) last++;
        if (at + 32 > cap) {
            snprintf(buf + at, cap - at, "%s...", comma);
            return buf;
        }
        if (last - r < 2) last = r; /* two in a row read better apart: 4, 5 */
        at += (size_t)snprintf(buf + at, cap - at, last > r ? "%s%d-%d" : "%s%d", comma, r, last);
        comma = ", ";
        r = last;
    }
    return buf;
}

#endif
