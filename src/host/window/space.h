/* space.h - the reservation that holds every mapping of a set of ranks, and the offsets in it. Any
 * thread. List of spaces and reference counts: one process-wide lock. Slots of a space: the space's
 * lock, because communicators over the same ranks share it. No lock is held while waiting for a
 * peer. */
#ifndef SYMM_SPACE_H_
#define SYMM_SPACE_H_

#include "host/comm/types.h"

#define SYMM_NO_OFFSET UINT64_MAX

/* The living space of exactly these ranks with one more reference, or NULL. */
symm_space *symm_space_find(const symm_uuid *members, int nranks, int rank);
/* Reserves nranks * stride, one reference. post: base is aligned to 512 MiB. */
symmResult_t symm_space_create(const symm_vmm *vmm, uint64_t granularity, const symm_uuid *members,
                               int nranks, int rank, uint64_t stride, uint64_t id,
                               symm_space **out);
/* From here on symm_space_find finds it: what belongs to it has been made, or given up. */
void symm_space_ready(symm_space *s);
void symm_space_ref(symm_space *s);
/* The last reference unmaps what is dropped and takes back the reservation; no other slot may be
 * left. */
void symm_space_drop(symm_space *s);

/* Takes the lowest free range of `bytes` at or above `from`; *slot is entered in the list with one
 * reference and nothing mapped. NULL where none is free. */
symmResult_t symm_slot_take(symm_space *s, uint64_t bytes, uint64_t from, symm_slot **slot);
/* Moves an unmapped slot to the lowest free range at or above `from`. 0: there is none, and it
 * stays where it is. */
int symm_slot_move(symm_space *s, symm_slot *slot, uint64_t from);
/* The error of a rank without a range for so many bytes. */
symmResult_t symm_slot_no_room(symm_space *s, uint64_t bytes);
/* The mapped slot, used or dropped, whose segments of this rank hash to `id`, with one more
 * reference; NULL if none. */
symm_slot *symm_slot_find(symm_space *s, uint64_t id, uint64_t bytes);
/* From now on symm_slot_find may find it. pre: mapped on every rank. */
void symm_slot_publish(symm_space *s, symm_slot *slot, uint64_t id);
/* Drops a reference. Peers may still use the slot, so with the last reference it stays mapped and
 * its range taken, until all ranks have offered it to each other, symm_slot_find brings it back, or
 * the space ends. Waits for no peer. */
void symm_slot_drop(symm_space *s, symm_slot *slot);
/* Drops a reference; the last one unmaps every rank's part and frees the range at once. For slots
 * that no peer can use any more: of a registration that has failed, of a communicator that has
 * ended. Waits for no peer. */
void symm_slot_discard(symm_space *s, symm_slot *slot);
/* If only the caller uses the slot and the addresses behind it are free: makes it longer, hides it
 * from symm_slot_find, and returns 1. Else 0. *was: for symm_slot_unclaim, which undoes it;
 * symm_slot_publish ends it. */
typedef struct {
    uint64_t bytes, id;
} symm_claim;
int symm_slot_claim(symm_space *s, symm_slot *slot, uint64_t bytes, symm_claim *was);
void symm_slot_unclaim(symm_space *s, symm_slot *slot, const symm_claim *was);
void symm_slot_ref(symm_space *s, symm_slot *slot);
/* *bytes: its length, which growth may change. */
int symm_slot_refs(symm_space *s, const symm_slot *slot, uint64_t *bytes);

/* Freeing what all ranks have dropped. `by`, any address of the caller's own, identifies the offer:
 * several threads may offer in one space; each slot is in one offer at a time. An offered slot is
 * not found, so it stays unused until the offer ends. If every rank has offered a slot, no rank
 * will use it again. */

/* How many slots are dropped. `also`, if not NULL, counts as one where it has the caller's
 * reference only. */
uint64_t symm_slots_dropped(symm_space *s, const symm_slot *also);
/* Offers what is dropped, `most` slots at most. */
void symm_slots_offer(symm_space *s, const void *by, uint64_t most);
/* The offsets of the next offered slots at or above `from`, in order; the rest of off[cap] is
 * filled with SYMM_NO_OFFSET. Returns where to go on. */
uint64_t symm_slots_offered(symm_space *s, const void *by, uint64_t from, uint64_t *off, int cap);
/* One rank's offsets, in order, as the above filled them: notes which of the slots offered here it
 * has offered too. Once for each rank and offset, this rank's own too. */
void symm_slots_heard(symm_space *s, const void *by, const uint64_t *off, int cap);
/* Ends the offer: slots that all of the space's ranks have offered are unmapped and their ranges
 * freed; the rest is dropped as before. */
void symm_slots_settle(symm_space *s, const void *by);
/* Ends an offer whose exchange has failed. Peers may have freed slots that they heard of, so none
 * of these is found again here. */
void symm_slots_withdraw(symm_space *s, const void *by);
/* Addresses that slots take, of all ranks; *dropped: of these, without a user here. */
uint64_t symm_space_taken(symm_space *s, uint64_t *dropped);
/* Pure: the lowest offset >= from at which `bytes` fit between the slots of a list ordered by
 * offset, below `limit`; SYMM_NO_OFFSET if none. */
uint64_t symm_slot_fit(const symm_slot *list, uint64_t bytes, uint64_t from, uint64_t limit);

/* Asserts the invariants of the slots: in order, none over another, references of used ones only.
 * Under the lock. */
void symm_space_check(const symm_space *s);

static inline char *symm_space_addr(const symm_space *s, int rank, uint64_t off) {
    return (char *)(uintptr_t)(s->base + (uint64_t)rank * s->stride + off);
}

#endif
