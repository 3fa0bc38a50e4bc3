/* vmm_table.h - what a memory driver remembers: reservations, mappings and handles. Both drivers
 * use it, so both find a stale handle, a map over a map and a part of a mapping by the same rules.
 *
 * A handle is a serial number in the shape of a pointer, never an address. A stale one is found
 * missing, and is not taken for a newer one whose record has the same address.
 *
 * Any thread. The driver takes t->lock around every call that is not said to take it. */
#ifndef SYMM_VMM_TABLE_H_
#define SYMM_VMM_TABLE_H_

#include <pthread.h>

#include "base/check.h"
#include "base/span.h"
#include "vmm.h"

#define SYMM_VMM_GRANULE (2ull << 20) /* the least granularity of any driver */
#define SYMM_VMM_SPACE   (1ull << 57) /* beyond any address: sums below it do not wrap */

/* First member of the driver's record of a mapping. */
typedef struct {
    symm_span span;
    uint64_t life; /* see symm_vmm.life */
} symm_vmm_mapping;

typedef struct {
    pthread_mutex_t lock;
    const uint64_t mark;     /* high bits of this driver's handles: not a canonical address */
    symm_span *reservations; /* plain symm_span, each its own allocation */
    symm_span *mappings;     /* symm_vmm_mapping */
    symm_span *handles;      /* first member of the driver's record of memory: [handle, handle+1) */
    uint64_t serial, lives;  /* the last ones given to a handle, to a mapping */
    unsigned checked;        /* how often the invariants were asked for, see symm_vmm_table_check */
} symm_vmm_table;

static inline void *symm_vmm_address(uint64_t at) {
    return (void *)(uintptr_t)at;
}
static inline int symm_vmm_size_ok(uint64_t bytes) {
    return bytes != 0 && bytes % SYMM_VMM_GRANULE == 0;
}
static inline int symm_vmm_range_ok(const void *va, uint64_t bytes) {
    const uint64_t lo = (uintptr_t)va;
    return lo != 0 && lo % SYMM_VMM_GRANULE == 0 && symm_vmm_size_ok(bytes) &&
           lo < SYMM_VMM_SPACE && bytes <= SYMM_VMM_SPACE - lo;
}

/* The record behind a handle; NULL if there is none. */
static inline symm_span *symm_vmm_live(const symm_vmm_table *t, const symm_vmm_handle *h) {
    symm_span *s = symm_span_floor(t->handles, (uintptr_t)h);
    return s && s->lo == (uintptr_t)h ? s : NULL;
}
/* Gives the record a handle. A new number each time, so that a handle that was released stays
 * dead. Dropping takes it back. */
void symm_vmm_give_handle(symm_vmm_table *t, symm_span *record);
void symm_vmm_drop_handle(symm_vmm_table *t, symm_span *record);

/* The mapping that holds `at`; NULL if there is none. */
static inline symm_vmm_mapping *symm_vmm_mapping_of(const symm_vmm_table *t, uint64_t at) {
    return (symm_vmm_mapping *)symm_span_around(t->mappings, at, at + 1);
}
/* Its life, 0 if there is none. Takes the lock. */
uint64_t symm_vmm_mapping_life(symm_vmm_table *t, const void *va);
/* Whether [lo, hi) lies in one reservation and nothing is mapped there. */
int symm_vmm_can_map(const symm_vmm_table *t, uint64_t lo, uint64_t hi);
/* Records a mapping, whose span is set, and gives it a life. Taking out returns all mappings of
 * [lo, hi) as a set. */
void symm_vmm_add_mapping(symm_vmm_table *t, symm_vmm_mapping *m);
symm_span *symm_vmm_take_mappings(symm_vmm_table *t, uint64_t lo, uint64_t hi);

/* Records a reservation, whose span is set. Takes the lock. */
void symm_vmm_add_reservation(symm_vmm_table *t, symm_span *s);
/* The reservation that is exactly [lo, hi) and has nothing mapped inside; NULL if there is none. */
symm_span *symm_vmm_idle_reservation(const symm_vmm_table *t, uint64_t lo, uint64_t hi);

/* The invariants. Each 64th call looks at everything, the others at what has `at` in it. */
void symm_vmm_table_check(symm_vmm_table *t, uint64_t at);

#endif
