/* window_table.h - finds windows by address: runs of addresses, sorted, which may overlap. A window
 * is one run, or several after memory inside it has ended. The user's thread; no lock. */
#ifndef SYMM_WINDOW_TABLE_H_
#define SYMM_WINDOW_TABLE_H_

#include <stdint.h>

struct symm_win;

typedef struct {
    uint64_t hi;
    struct symm_win *win;
    int link; /* the nearest run before this one that ends after it; -1: none */
} symm_run;

typedef struct {
    uint64_t *lo; /* separate from the rest, so that the search reads adjacent memory */
    symm_run *run;
    int n, cap;
    int linked; /* links are those of the runs as they are */
} symm_wtable;

/* Room for one run more, so that the next add cannot fail. -1: no memory. */
int symm_wtable_room(symm_wtable *t);
/* pre: room; lo < hi. */
void symm_wtable_add(symm_wtable *t, struct symm_win *w, uint64_t lo, uint64_t hi);
/* All runs of w, which lie in [lo, hi). */
void symm_wtable_drop(symm_wtable *t, const struct symm_win *w, uint64_t lo, uint64_t hi);
/* Takes [lo, hi) out of the runs of w. If a run must be split and there is no memory for one more,
 * its part after hi goes too. */
void symm_wtable_cut(symm_wtable *t, const struct symm_win *w, uint64_t lo, uint64_t hi);
/* A window with a run that holds all of [lo, hi); NULL: none. Logarithmic, plus one step for each
 * run around the address that ends too early (nested windows). */
struct symm_win *symm_wtable_find(symm_wtable *t, uint64_t lo, uint64_t hi);
/* The run that holds lo and ends last, or else the first that begins before hi; -1: none. */
int symm_wtable_near(symm_wtable *t, uint64_t lo, uint64_t hi);
void symm_wtable_end(symm_wtable *t);
/* Asserts the invariants: in order, no empty run, links lead to runs that end later. */
void symm_wtable_check(const symm_wtable *t);

#endif
