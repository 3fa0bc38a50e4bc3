/* space.h - the reservation that holds every mapping of a set of ranks, and the offsets in it.
 * List of spaces and reference counts: one process-wide lock. Slots of a space: the space's lock, because two
 * communicators over the same ranks (in two threads) may share it. No lock is held while waiting for a peer. */
#ifndef SYMM_SPACE_H_
#define SYMM_SPACE_H_

#include "types.h"

#define SYMM_NO_OFFSET UINT64_MAX

/* The living space of exactly these ranks with one more reference, or NULL. */
symm_space *symm_space_find(const symm_uuid *members, int nranks, int rank);
/* Reserves nranks * stride, one reference. post: base is aligned to 512 MiB. */
symmResult_t symm_space_create(const symm_vmm *vmm, uint64_t granularity, const symm_uuid *members,
                               int nranks, int rank, uint64_t stride, uint64_t id,
                               symm_space **out);
void symm_space_ref(symm_space *s);
/* The last reference takes back the reservation; no slot may be left. */
void symm_space_drop(symm_space *s);

/* Takes the lowest free range of `bytes` at or above `from`; *slot is entered in the list with one reference and nothing
 * mapped. symmOutOfMemory where none is free. */
symmResult_t symm_slot_take(symm_space *s, uint64_t bytes, uint64_t from, symm_slot **slot);
/* Moves an unmapped slot to the lowest free range at or above `from`. */
symmResult_t symm_slot_move(symm_space *s, symm_slot *slot, uint64_t from);
/* The mapped slot whose segments of this rank hash to `id`, with one more reference; NULL if none. */
symm_slot *symm_slot_find(symm_space *s, uint64_t id, uint64_t bytes);
/* From now on symm_slot_find may find it. pre: mapped on every rank. */
void symm_slot_publish(symm_space *s, symm_slot *slot, uint64_t id);
/* Drops a reference; the last one unmaps every rank's part and frees the range. Waits for no peer. */
void symm_slot_drop(symm_space *s, symm_slot *slot);
void symm_slot_ref(symm_space *s, symm_slot *slot);
int symm_slot_refs(symm_space *s, const symm_slot *slot);
/* Pure: the lowest offset >= from at which `bytes` fit between the slots of a list ordered by offset, below `limit`;
 * SYMM_NO_OFFSET if none. */
uint64_t symm_slot_fit(const symm_slot *list, uint64_t bytes, uint64_t from, uint64_t limit);

static inline char *symm_space_addr(const symm_space *s, int rank, uint64_t off) {
    return (char *)(uintptr_t)(s->base + (uint64_t)rank * s->stride + off);
}

#endif
