/* dirty_ranges.c - ranges that were written (see dirty_ranges.h). Pure; the owner's thread. */
#include "dirty_ranges.h"

#include <string.h>

#include "base/check.h"

void symm_dirty_start(symm_dirty *d, int equal) {
    *d = (symm_dirty){.whole = !equal};
}

/* If the writer before has named no range, it may have written anywhere. */
void symm_dirty_hand_out(symm_dirty *d) {
    d->whole |= d->unnamed;
    d->unnamed = 1;
}

/* Joins the two neighbours with the smallest gap. The gap is then copied too; its bytes are equal
 * on both sides. */
static void join_nearest(symm_dirty_range *r, int *n) {
    int at = 0;
    for (int i = 1; i + 1 < *n; i++)
        if (r[i + 1].from - r[i].to < r[at + 1].from - r[at].to) at = i;
    r[at].to = r[at + 1].to;
    memmove(&r[at + 1], &r[at + 2], (size_t)(*n - at - 2) * sizeof *r);
    --*n;
}

void symm_dirty_name(symm_dirty *d, uint64_t from, uint64_t len) {
    symm_dirty_range r[SYMM_DIRTY_MAX + 1], add = {from, from + len};
    int n = 0, i = 0;
    d->unnamed = 0;
    if (!len) return;
    for (; i < d->n && d->range[i].to < add.from; i++) r[n++] = d->range[i];
    for (; i < d->n && d->range[i].from <= add.to; i++) {
        if (d->range[i].from < add.from) add.from = d->range[i].from;
        if (d->range[i].to > add.to) add.to = d->range[i].to;
    }
    r[n++] = add;
    for (; i < d->n; i++) r[n++] = d->range[i];
    if (n > SYMM_DIRTY_MAX) join_nearest(r, &n);
    memcpy(d->range, r, (size_t)n * sizeof *r);
    d->n = n;
}

int symm_dirty_list(const symm_dirty *d, uint64_t bytes, symm_dirty_range *out) {
    if (!bytes) return 0;
    if (d->whole || d->unnamed) {
        out[0] = (symm_dirty_range){0, bytes};
        return 1;
    }
    memcpy(out, d->range, (size_t)d->n * sizeof *out);
    return d->n;
}

void symm_dirty_check(const symm_dirty *d, uint64_t bytes) {
    SYMM_ASSERT(d->n >= 0 && d->n <= SYMM_DIRTY_MAX);
    for (int i = 0; i < d->n; i++) {
        SYMM_ASSERT(d->range[i].from < d->range[i].to && d->range[i].to <= bytes);
        SYMM_ASSERT(i == 0 || d->range[i - 1].to < d->range[i].from);
    }
}
