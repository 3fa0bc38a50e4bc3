/* window_table.h - which addresses are whose window: runs of addresses, in order, that may overlap.
 * A window is one run, or several once memory inside it has ended. The communicator's user thread;
 * no lock. */
#ifndef SYMM_WINDOW_TABLE_H_
#define SYMM_WINDOW_TABLE_H_

#include <stdint.h>

struct symm_win;

typedef struct {
    uint64_t hi;
    struct symm_win *win;
    int link; /* the nearest run before this one that ends behind it; -1: none */
} symm_run;

typedef struct {
    uint64_t *lo; /* apart from the rest: what is searched lies close together */
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
/* [lo, hi) is in no run of w any more. Where a run falls apart and there is no memory for one more,
 * what is behind hi goes too. */
void symm_wtable_cut(symm_wtable *t, const struct symm_win *w, uint64_t lo, uint64_t hi);
/* A window with a run that holds all of [lo, hi); NULL: none. Logarithmic, but for runs that lie
 * inside each other like shells: those around the address that end too early are gone through. */
struct symm_win *symm_wtable_find(symm_wtable *t, uint64_t lo, uint64_t hi);
/* The run that holds lo and ends last, or else the first that begins before hi; -1: none. */
int symm_wtable_near(symm_wtable *t, uint64_t lo, uint64_t hi);
void symm_wtable_end(symm_wtable *t);
/* Asserts the invariants: in order, no empty run, links lead to runs that end later. */
void symm_wtable_check(const symm_wtable *t);

#endif
