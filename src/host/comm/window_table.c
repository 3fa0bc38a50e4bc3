/* window_table.c - a sorted array: windows change rarely, and each call looks. Threads as in
 * window_table.h. */
#include "window_table.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/fail.h"

void symm_wtable_check(const symm_wtable *t) {
    enum { MOST = 64 }; /* of a long table: its beginning */
    SYMM_ASSERT(t->n >= 0 && t->n <= t->cap);
    for (int i = 0; i < t->n && i < MOST; i++) {
        const symm_run *r = &t->run[i];
        SYMM_ASSERT(r->win && r->hi > t->lo[i]);
        SYMM_ASSERT(i == 0 || t->lo[i - 1] <= t->lo[i]);
        if (!t->linked) continue;
        SYMM_ASSERT(r->link >= -1 && r->link < i);
        SYMM_ASSERT(r->link < 0 || t->run[r->link].hi > r->hi);
    }
}

/* How many runs begin at or before `at`. Without a branch that depends on the data: a guess wrong
 * every second time costs more than the loads. */
static int count_upto(const symm_wtable *t, uint64_t at) {
    const uint64_t *base = t->lo;
    int n = t->n;
    if (!n || t->lo[0] > at) return 0;
    while (n > 1) {
        const int half = n / 2;
        base = base[half] <= at ? base + half : base;
        n -= half;
    }
    return (int)(base - t->lo) + 1;
}

int symm_wtable_room(symm_wtable *t) {
    if (t->n < t->cap) return 0;
    const int cap = t->cap ? t->cap * 2 : 8;
    uint64_t *lo = SYMM_FAIL_ALLOC(win_table, realloc(t->lo, (size_t)cap * sizeof *lo));
    if (!lo) return -1;
    t->lo = lo;
    symm_run *run = SYMM_FAIL_ALLOC(win_runs, realloc(t->run, (size_t)cap * sizeof *run));
    if (!run) return -1;
    t->run = run;
    t->cap = cap;
    return 0;
}

void symm_wtable_add(symm_wtable *t, struct symm_win *w, uint64_t lo, uint64_t hi) {
    SYMM_CHECK(symm_wtable_check(t));
    SYMM_ASSERT(lo < hi && t->n < t->cap);
    const int at = count_upto(t, lo);
    const size_t behind = (size_t)(t->n - at);
    memmove(&t->lo[at + 1], &t->lo[at], behind * sizeof *t->lo);
    memmove(&t->run[at + 1], &t->run[at], behind * sizeof *t->run);
    t->lo[at] = lo;
    t->run[at] = (symm_run){hi, w, -1};
    t->n++;
    t->linked = 0;
    SYMM_CHECK(symm_wtable_check(t));
}

/* The first run that begins at or behind lo. */
static int first_from(const symm_wtable *t, uint64_t lo) {
    return lo ? count_upto(t, lo - 1) : 0;
}

static void take_out(symm_wtable *t, int at) {
    const size_t behind = (size_t)(t->n - at - 1);
    memmove(&t->lo[at], &t->lo[at + 1], behind * sizeof *t->lo);
    memmove(&t->run[at], &t->run[at + 1], behind * sizeof *t->run);
    t->n--;
    t->linked = 0;
}

void symm_wtable_drop(symm_wtable *t, const struct symm_win *w, uint64_t lo, uint64_t hi) {
    SYMM_CHECK(symm_wtable_check(t));
    for (int i = first_from(t, lo); i < t->n && t->lo[i] < hi;)
        if (t->run[i].win == w)
            take_out(t, i);
        else
            i++;
    SYMM_CHECK(symm_wtable_check(t));
}

/* Runs of one window do not overlap, so at most one of them reaches over lo. */
void symm_wtable_cut(symm_wtable *t, const struct symm_win *w, uint64_t lo, uint64_t hi) {
    SYMM_CHECK(symm_wtable_check(t));
    for (int i = 0; i < t->n && t->lo[i] < hi;) {
        const symm_run was = t->run[i];
        const uint64_t from = t->lo[i];
        if (was.win != w || was.hi <= lo) {
            i++;
            continue;
        }
        t->linked = 0;
        if (from < lo)
            t->run[i++].hi = lo;
        else
            take_out(t, i);
        if (was.hi > hi && !symm_wtable_room(t)) symm_wtable_add(t, was.win, hi, was.hi);
    }
    SYMM_CHECK(symm_wtable_check(t));
}

static void link_runs(symm_wtable *t) {
    for (int i = 0; i < t->n; i++) {
        int before = i - 1;
        while (before >= 0 && t->run[before].hi <= t->run[i].hi) before = t->run[before].link;
        t->run[i].link = before;
    }
    t->linked = 1;
    SYMM_CHECK(symm_wtable_check(t));
}

struct symm_win *symm_wtable_find(symm_wtable *t, uint64_t lo, uint64_t hi) {
    if (!t->linked) link_runs(t);
    int i = count_upto(t, lo) - 1;
    while (i >= 0 && t->run[i].hi < hi) i = t->run[i].link;
    return i < 0 ? NULL : t->run[i].win;
}

int symm_wtable_near(symm_wtable *t, uint64_t lo, uint64_t hi) {
    if (!t->linked) link_runs(t);
    const int begins = count_upto(t, lo);
    int last = begins - 1;
    while (last >= 0 && t->run[last].link >= 0) last = t->run[last].link; /* ends last of all */
    if (last >= 0 && t->run[last].hi > lo) return last;
    return begins < t->n && t->lo[begins] < hi ? begins : -1;
}

void symm_wtable_end(symm_wtable *t) {
    free(t->lo);
    free(t->run);
    *t = (symm_wtable){0};
}
