/* memlane_table.c - blocks of lanes by offset: open addressing with linear probing, records from
 * slabs. The communicator's user thread. */
#include <stdlib.h>

#include "base/fail.h"
#include "memlane.h"

enum { SLAB = 256, FIRST_SLOTS = 256 };

static uint64_t home(const symm_memtable *t, uint64_t off) {
    return off / SYMM_MEMLANE_UNIT * 0x9e3779b97f4a7c15ull >> 20 & (t->cap - 1);
}

symm_memrec *symm_memtable_find(const symm_memtable *t, uint64_t off) {
    if (!t->cap) return NULL;
    for (uint64_t i = home(t, off); t->slots[i]; i = (i + 1) & (t->cap - 1))
        if (t->slots[i]->off == off) return t->slots[i];
    return NULL;
}

static void table_check(const symm_memtable *t) {
    SYMM_ASSERT((t->cap & (t->cap - 1)) == 0 && !t->cap == !t->slots);
    SYMM_ASSERT(2 * t->n <= t->cap && t->n <= (uint64_t)t->nslabs * SLAB);
    SYMM_ASSERT((t->n == (uint64_t)t->nslabs * SLAB) == !t->unused);
}

static void put(symm_memtable *t, symm_memrec *r) {
    uint64_t i = home(t, r->off);
    while (t->slots[i]) i = (i + 1) & (t->cap - 1);
    t->slots[i] = r;
}

static int widen(symm_memtable *t) {
    symm_memtable wide = *t;
    wide.cap = t->cap ? 2 * t->cap : FIRST_SLOTS;
    wide.slots = SYMM_FAIL_ALLOC(memlane_table, calloc(wide.cap, sizeof *wide.slots));
    if (!wide.slots) return -1;
    for (uint64_t i = 0; i < t->cap; i++)
        if (t->slots[i]) put(&wide, t->slots[i]);
    free(t->slots);
    *t = wide;
    return 0;
}

static int more_records(symm_memtable *t) {
    void **slabs =
        SYMM_FAIL_ALLOC(memlane_slabs, realloc(t->slabs, ((size_t)t->nslabs + 1) * sizeof *slabs));
    if (!slabs) return -1;
    t->slabs = slabs;
    symm_memrec *r = SYMM_FAIL_ALLOC(memlane_slab, calloc(SLAB, sizeof *r));
    if (!r) return -1;
    slabs[t->nslabs++] = r;
    for (int i = SLAB; i-- > 0;) {
        r[i].next = t->unused;
        t->unused = &r[i];
    }
    return 0;
}

int symm_memtable_reserve(symm_memtable *t) {
    if (2 * (t->n + 1) > t->cap && widen(t)) return -1;
    return t->unused ? 0 : more_records(t);
}

symm_memrec *symm_memtable_add(symm_memtable *t, uint64_t off) {
    if (symm_memtable_reserve(t)) return NULL;
    symm_memrec *r = t->unused;
    SYMM_ASSERT(!symm_memtable_find(t, off));
    t->unused = r->next;
    *r = (symm_memrec){.off = off};
    put(t, r);
    t->n++;
    SYMM_CHECK(table_check(t));
    return r;
}

void symm_memtable_drop(symm_memtable *t, symm_memrec *r) {
    const uint64_t mask = t->cap - 1;
    SYMM_ASSERT(t->n > 0 && symm_memtable_find(t, r->off) == r);
    uint64_t i = home(t, r->off);
    while (t->slots[i] != r) i = (i + 1) & mask;
    /* Later entries move up, unless one would then be before its home slot. */
    for (uint64_t k = (i + 1) & mask; t->slots[k]; k = (k + 1) & mask) {
        if (((k - home(t, t->slots[k]->off)) & mask) < ((k - i) & mask)) continue;
        t->slots[i] = t->slots[k];
        i = k;
    }
    t->slots[i] = NULL;
    t->n--;
    r->next = t->unused;
    t->unused = r;
    SYMM_CHECK(table_check(t));
}

void symm_memtable_end(symm_memtable *t) {
    for (int i = 0; i < t->nslabs; i++) free(t->slabs[i]);
    free(t->slabs);
    free(t->slots);
    *t = (symm_memtable){0};
}
