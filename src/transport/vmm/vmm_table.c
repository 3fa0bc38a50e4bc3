/* vmm_table.c - reservations, mappings and handles of a memory driver (see vmm_table.h). Any
 * thread, under the table's lock. */
#include "vmm_table.h"

_Atomic uint64_t symm_vmm_ends = 1; /* 0: never looked */

/* ---- invariants ------------------------------------------------------------------------------ */

static void check_handle(const symm_vmm_table *t, const symm_span *s) {
    SYMM_ASSERT(s->hi == s->lo + 1);
    SYMM_ASSERT(s->lo > t->mark && s->lo <= (t->mark | t->serial));
}

static void check_range(const symm_span *s) {
    SYMM_ASSERT(s->lo < s->hi && s->hi <= SYMM_VMM_SPACE);
    SYMM_ASSERT(s->lo % SYMM_VMM_GRANULE == 0 && s->hi % SYMM_VMM_GRANULE == 0);
}

/* A mapping lies in one reservation, and no other has its life. */
static void check_mapping(const symm_vmm_table *t, const symm_span *s) {
    const symm_vmm_mapping *m = (const symm_vmm_mapping *)s;
    check_range(s);
    SYMM_ASSERT(m->life >= 1 && m->life <= t->lives);
    SYMM_ASSERT(symm_span_around(t->reservations, s->lo, s->hi) != NULL);
}

enum { HANDLES, RESERVATIONS, MAPPINGS };

static void check_one(const symm_vmm_table *t, const symm_span *s, int set) {
    if (set == HANDLES) check_handle(t, s);
    if (set == RESERVATIONS) check_range(s);
    if (set == MAPPINGS) check_mapping(t, s);
}

/* In order, disjoint, inside [lo, hi); and a heap, which keeps the tree flat. */
static void check_all(const symm_vmm_table *t, const symm_span *s, int set, uint64_t lo,
                      uint64_t hi) {
    for (; s; s = s->right) {
        SYMM_ASSERT(s->lo >= lo && s->hi <= hi);
        SYMM_ASSERT(!s->left || s->left->heap <= s->heap);
        check_one(t, s, set);
        check_all(t, s->left, set, lo, s->lo);
        lo = s->hi;
    }
}

void symm_vmm_table_check(symm_vmm_table *t, uint64_t at) {
    symm_span *sets[] = {t->handles, t->reservations, t->mappings};
    const int whole = ++t->checked % 64 == 0;
    for (int i = HANDLES; i <= MAPPINGS; i++) {
        const symm_span *s = symm_span_floor(sets[i], at);
        if (s) check_one(t, s, i);
        if (whole) check_all(t, sets[i], i, 0, UINT64_MAX);
    }
}

/* ---- handles --------------------------------------------------------------------------------- */

void symm_vmm_give_handle(symm_vmm_table *t, symm_span *record) {
    record->lo = t->mark | ++t->serial;
    record->hi = record->lo + 1;
    symm_span_insert(&t->handles, record);
    SYMM_CHECK(symm_vmm_table_check(t, record->lo));
}

void symm_vmm_drop_handle(symm_vmm_table *t, symm_span *record) {
    SYMM_CHECK(symm_vmm_table_check(t, record->lo));
    const symm_span *gone = symm_span_take(&t->handles, record->lo, record->hi);
    SYMM_ASSERT(gone == record);
    (void)gone;
}

/* ---- ranges ---------------------------------------------------------------------------------- */

uint64_t symm_vmm_mapping_life(symm_vmm_table *t, const void *va) {
    const uint64_t at = (uintptr_t)va;
    if (at >= SYMM_VMM_SPACE) return 0;
    pthread_mutex_lock(&t->lock);
    const symm_vmm_mapping *m = symm_vmm_mapping_of(t, at);
    const uint64_t life = m ? m->life : 0;
    pthread_mutex_unlock(&t->lock);
    return life;
}

int symm_vmm_can_map(const symm_vmm_table *t, uint64_t lo, uint64_t hi) {
    return symm_span_around(t->reservations, lo, hi) && !symm_span_overlap(t->mappings, lo, hi);
}

void symm_vmm_add_mapping(symm_vmm_table *t, symm_vmm_mapping *m) {
    m->life = ++t->lives;
    symm_span_insert(&t->mappings, &m->span);
    SYMM_CHECK(symm_vmm_table_check(t, m->span.lo));
}

symm_span *symm_vmm_take_mappings(symm_vmm_table *t, uint64_t lo, uint64_t hi) {
    SYMM_CHECK(symm_vmm_table_check(t, lo));
    symm_span *gone = symm_span_take(&t->mappings, lo, hi);
    SYMM_ASSERT(gone && !symm_span_overlap(t->mappings, lo, hi));
    return gone;
}

void symm_vmm_add_reservation(symm_vmm_table *t, symm_span *s) {
    pthread_mutex_lock(&t->lock);
    SYMM_ASSERT(!symm_span_overlap(t->reservations, s->lo, s->hi));
    symm_span_insert(&t->reservations, s);
    SYMM_CHECK(symm_vmm_table_check(t, s->lo));
    pthread_mutex_unlock(&t->lock);
}

symm_span *symm_vmm_idle_reservation(const symm_vmm_table *t, uint64_t lo, uint64_t hi) {
    symm_span *s = symm_span_floor(t->reservations, lo);
    return s && s->lo == lo && s->hi == hi && !symm_span_overlap(t->mappings, lo, hi) ? s : NULL;
}
