/* space.c - address space shared by communicators over the same ranks. Any thread; locks as in
 * space.h. */
#include "space.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/fail.h"
#include "base/log.h"
#include "base/stats.h"
#include "multicast.h"

#define SPACE_ALIGN (512ull << 20)

static pthread_mutex_t list_lock = PTHREAD_MUTEX_INITIALIZER; /* spaces and their refs */
static symm_space *spaces;

void symm_space_check(const symm_space *s) {
    enum { MOST = 64 }; /* of a long list: its beginning */
    uint64_t end = 0;
    int n = 0;
    SYMM_ASSERT(s->rank >= 0 && s->rank < s->nranks && s->nranks <= SYMM_MAX_RANKS);
    SYMM_ASSERT(s->base && s->base % SPACE_ALIGN == 0 && s->stride && s->vmm);
    for (const symm_slot *t = s->slots; t && n < MOST; t = t->next, n++) {
        SYMM_ASSERT((t->refs > 0) == (t->state == SYMM_SLOT_USED));
        SYMM_ASSERT(t->refs >= 0 && t->heard >= 0 && t->heard <= s->nranks);
        SYMM_ASSERT(t->state >= SYMM_SLOT_USED && t->state <= SYMM_SLOT_ENDING);
        SYMM_ASSERT(t->rank_bytes && (!t->maps.n || !t->id)); /* a region is found by nobody */
        SYMM_ASSERT(t->state != SYMM_SLOT_OFFERED || t->offerer);
        if (!t->bytes) continue; /* a window of nothing takes no range */
        SYMM_ASSERT(t->off >= end && t->off <= s->stride && t->bytes <= s->stride - t->off);
        end = t->off + t->bytes;
    }
}

static void lock(symm_space *s) {
    pthread_mutex_lock(&s->lock);
    SYMM_CHECK(symm_space_check(s));
}

static void unlock(symm_space *s) {
    SYMM_CHECK(symm_space_check(s));
    pthread_mutex_unlock(&s->lock);
}

uint64_t symm_space_taken(symm_space *s, uint64_t *dropped) {
    uint64_t taken = 0;
    *dropped = 0;
    lock(s);
    for (const symm_slot *t = s->slots; t; t = t->next) {
        const uint64_t bytes = t->bytes * (unsigned)s->nranks;
        taken += bytes;
        if (t->state != SYMM_SLOT_USED) *dropped += bytes;
    }
    unlock(s);
    SYMM_ASSERT(*dropped <= taken && taken <= s->stride * (unsigned)s->nranks);
    return taken;
}

/* ---- slots in the list ----------------------------------------------------------------------- */

static void insert(symm_space *s, symm_slot *slot) {
    symm_slot **at = &s->slots;
    while (*at && (*at)->off < slot->off) at = &(*at)->next;
    slot->next = *at;
    *at = slot;
}

static void take_out(symm_space *s, symm_slot *slot) {
    symm_slot **at = &s->slots;
    while (*at != slot) {
        SYMM_ASSERT(*at && (*at)->off <= slot->off);
        at = &(*at)->next;
    }
    *at = slot->next;
}

/* Under the lock. The gauge counts what is mapped for peers only. */
static void set_state(symm_slot *slot, int state) {
    SYMM_ASSERT(slot->state != SYMM_SLOT_ENDING || state == SYMM_SLOT_ENDING);
    SYMM_ASSERT(state != SYMM_SLOT_OFFERED || slot->state == SYMM_SLOT_DROPPED);
    int was = slot->state == SYMM_SLOT_DROPPED || slot->state == SYMM_SLOT_OFFERED;
    int is = state == SYMM_SLOT_DROPPED || state == SYMM_SLOT_OFFERED;
    slot->state = state;
    SYMM_STAT_ADD(dropped, is - was);
}

/* Without the lock. Nobody else touches the slot: it is ending, or its space has no user. The range
 * stays taken until it is unmapped. */
static void end_slot(symm_space *s, symm_slot *slot) {
    symm_multicast_end(s, slot);
    for (int r = 0; r < s->nranks; r++) {
        if (!slot->rank_bytes[r]) continue;
        int cu = s->vmm->unmap(symm_space_addr(s, r, slot->off), slot->rank_bytes[r]);
        if (cu)
            symm_vmm_error(s->vmm, cu, "unmapping rank %d's part of the slot at offset %llu", r,
                           (unsigned long long)slot->off);
    }
    for (int i = 0; i < slot->maps.n; i++) {
        const symm_mapping *m = &slot->maps.at[i];
        int cu = s->vmm->unmap(symm_space_addr(s, m->rank, slot->off + m->off), m->bytes);
        if (cu)
            symm_vmm_error(s->vmm, cu, "unmapping %llu bytes of rank %d",
                           (unsigned long long)m->bytes, m->rank);
    }
    lock(s);
    set_state(slot, SYMM_SLOT_ENDING);
    take_out(s, slot);
    unlock(s);
    SYMM_STAT_ADD(slots, -1);
    symm_mappings_end(&slot->maps);
    free(slot->rank_bytes);
    free(slot);
}

/* ---- spaces ---------------------------------------------------------------------------------- */

static int same_members(const symm_space *s, const symm_uuid *members, int nranks, int rank) {
    return s->nranks == nranks && s->rank == rank &&
           !memcmp(s->members, members, sizeof *members * (size_t)nranks);
}

symm_space *symm_space_find(const symm_uuid *members, int nranks, int rank) {
    pthread_mutex_lock(&list_lock);
    symm_space *s = spaces;
    while (s && (!s->ready || !same_members(s, members, nranks, rank))) s = s->next;
    if (s) s->refs++;
    pthread_mutex_unlock(&list_lock);
    return s;
}

symmResult_t symm_space_create(const symm_vmm *vmm, uint64_t granularity, const symm_uuid *members,
                               int nranks, int rank, uint64_t stride, uint64_t id,
                               symm_space **out) {
    symm_space *s = SYMM_FAIL_ALLOC(space_record, calloc(1, sizeof *s));
    symmResult_t status = symmOutOfMemory;
    const size_t bytes = sizeof *members * (size_t)nranks;
    void *va;
    if (!s || !(s->members = SYMM_FAIL_ALLOC(space_members, malloc(bytes)))) {
        status =
            SYMM_ERR(symmOutOfMemory, "no memory for the record of a space of %d ranks", nranks);
        goto free_record;
    }
    memcpy(s->members, members, bytes);
    s->refs = 1;
    s->nranks = nranks;
    s->rank = rank;
    s->id = id;
    s->vmm = vmm;
    s->granularity = granularity;
    s->stride = stride;
    int cu = vmm->reserve(stride * (unsigned)nranks, SPACE_ALIGN, &va);
    if (cu) {
        status = symm_vmm_error(vmm, cu, "reserving %d x %llu MiB of addresses", nranks,
                                (unsigned long long)(stride >> 20));
        goto free_record;
    }
    s->base = (uint64_t)(uintptr_t)va;
    pthread_mutex_init(&s->lock, NULL);
    pthread_mutex_lock(&list_lock);
    s->next = spaces;
    spaces = s;
    pthread_mutex_unlock(&list_lock);
    *out = s;
    return symmSuccess;
free_record:
    if (s) free(s->members);
    free(s);
    return status;
}

void symm_space_ready(symm_space *s) {
    pthread_mutex_lock(&list_lock);
    SYMM_ASSERT(!s->ready && s->refs > 0);
    s->ready = 1;
    pthread_mutex_unlock(&list_lock);
}

void symm_space_ref(symm_space *s) {
    pthread_mutex_lock(&list_lock);
    SYMM_ASSERT(s->refs > 0);
    s->refs++;
    pthread_mutex_unlock(&list_lock);
}

void symm_space_drop(symm_space *s) {
    if (!s) return;
    pthread_mutex_lock(&list_lock);
    SYMM_ASSERT(s->refs > 0);
    int last = --s->refs == 0;
    for (symm_space **at = &spaces; last && *at; at = &(*at)->next)
        if (*at == s) {
            *at = s->next;
            break;
        }
    pthread_mutex_unlock(&list_lock);
    if (!last) return;
    while (s->slots)
        end_slot(s, s->slots); /* all are dropped: a user of a slot has a reference to the space */
    symm_multicast_close(s);
    int cu = s->vmm->unreserve((void *)(uintptr_t)s->base, s->stride * (unsigned)s->nranks);
    if (cu) symm_vmm_error(s->vmm, cu, "giving back the addresses of %d ranks", s->nranks);
    pthread_mutex_destroy(&s->lock);
    free(s->members);
    free(s);
}

/* ---- taking a range, and references ---------------------------------------------------------- */

uint64_t symm_slot_fit(const symm_slot *list, uint64_t bytes, uint64_t from, uint64_t limit) {
    uint64_t at = from;
    if (bytes > limit) return SYMM_NO_OFFSET;
    for (const symm_slot *s = list; s; s = s->next) {
        if (s->off + s->bytes <= at) continue;
        if (at <= s->off && s->off - at >= bytes) break;
        at = s->off + s->bytes;
    }
    return at <= limit - bytes ? at : SYMM_NO_OFFSET;
}

static uint64_t largest_hole(symm_space *s) {
    uint64_t at = 0, most = 0;
    lock(s);
    for (const symm_slot *t = s->slots; t; t = t->next) {
        if (t->off > at && t->off - at > most) most = t->off - at;
        if (t->off + t->bytes > at) at = t->off + t->bytes;
    }
    unlock(s);
    return s->stride > at && s->stride - at > most ? s->stride - at : most;
}

/* Heaps and vectors with default sizes usually use it up first. The text is short: peers get 190
 * characters of it. */
symmResult_t symm_slot_no_room(symm_space *s, uint64_t bytes) {
    return SYMM_ERR(symmOutOfMemory,
                    "%llu bytes do not fit in the window space (%llu per rank, %llu free in one "
                    "piece): raise SYMM_WIN_STRIDE, or lower config.reserve of heaps, config.max "
                    "of vectors",
                    (unsigned long long)bytes, (unsigned long long)s->stride,
                    (unsigned long long)largest_hole(s));
}

symmResult_t symm_slot_take(symm_space *s, uint64_t bytes, uint64_t from, symm_slot **slot) {
    symm_slot *n = SYMM_FAIL_ALLOC(slot_record, calloc(1, sizeof *n));
    uint64_t *rank_bytes =
        SYMM_FAIL_ALLOC(slot_parts, calloc((size_t)s->nranks, sizeof *rank_bytes));
    if (!n || !rank_bytes) {
        free(n);
        free(rank_bytes);
        return SYMM_ERR(symmOutOfMemory, "no memory for the record of a window slot");
    }
    n->rank_bytes = rank_bytes;
    n->bytes = bytes;
    n->refs = 1;
    lock(s);
    n->off = symm_slot_fit(s->slots, bytes, from, s->stride);
    if (n->off != SYMM_NO_OFFSET) insert(s, n);
    unlock(s);
    *slot = NULL;
    if (n->off == SYMM_NO_OFFSET) {
        free(rank_bytes);
        free(n);
        return symmSuccess;
    }
    SYMM_STAT_ADD(slots, 1);
    *slot = n;
    return symmSuccess;
}

int symm_slot_move(symm_space *s, symm_slot *slot, uint64_t from) {
    lock(s);
    take_out(s, slot);
    uint64_t off = symm_slot_fit(s->slots, slot->bytes, from, s->stride);
    if (off != SYMM_NO_OFFSET) slot->off = off;
    insert(s, slot);
    unlock(s);
    return off != SYMM_NO_OFFSET;
}

symm_slot *symm_slot_find(symm_space *s, uint64_t id, uint64_t bytes) {
    lock(s);
    symm_slot *slot = s->slots;
    while (slot && (slot->id != id || slot->rank_bytes[s->rank] != bytes ||
                    (slot->state != SYMM_SLOT_USED && slot->state != SYMM_SLOT_DROPPED)))
        slot = slot->next;
    if (slot) {
        slot->refs++;
        set_state(slot, SYMM_SLOT_USED);
    }
    unlock(s);
    return slot;
}

void symm_slot_publish(symm_space *s, symm_slot *slot, uint64_t id) {
    lock(s);
    /* An older slot of the same memory cannot be shared, because another rank has other memory in
     * it. Only the newest is found. */
    SYMM_ASSERT(slot->refs > 0);
    for (symm_slot *old = s->slots; old; old = old->next)
        if (old->id == id) old->id = 0;
    slot->id = id;
    unlock(s);
}

void symm_slot_drop(symm_space *s, symm_slot *slot) {
    if (!slot) return;
    lock(s);
    SYMM_ASSERT(slot->refs > 0 && slot->state == SYMM_SLOT_USED);
    if (--slot->refs == 0) set_state(slot, SYMM_SLOT_DROPPED);
    unlock(s);
}

void symm_slot_discard(symm_space *s, symm_slot *slot) {
    if (!slot) return;
    lock(s);
    SYMM_ASSERT(slot->refs > 0 && slot->state == SYMM_SLOT_USED);
    int last = --slot->refs == 0;
    if (last) set_state(slot, SYMM_SLOT_ENDING); /* no registration finds or offers it */
    unlock(s);
    if (last) end_slot(s, slot);
}

int symm_slot_refs(symm_space *s, const symm_slot *slot, uint64_t *bytes) {
    lock(s);
    int refs = slot->refs;
    *bytes = slot->bytes;
    unlock(s);
    return refs;
}

void symm_slot_ref(symm_space *s, symm_slot *slot) {
    lock(s);
    SYMM_ASSERT(slot->refs > 0);
    slot->refs++;
    unlock(s);
}

int symm_slot_claim(symm_space *s, symm_slot *slot, uint64_t bytes, symm_claim *was) {
    lock(s);
    const uint64_t limit = slot->next ? slot->next->off : s->stride;
    const int good = slot->refs == 1 && bytes <= limit - slot->off;
    *was = (symm_claim){slot->bytes, slot->id};
    if (good && bytes > slot->bytes) slot->bytes = bytes;
    if (good) slot->id = 0;
    unlock(s);
    return good;
}

void symm_slot_unclaim(symm_space *s, symm_slot *slot, const symm_claim *was) {
    lock(s);
    SYMM_ASSERT(slot->refs == 1 && was->bytes <= slot->bytes && !slot->id);
    slot->bytes = was->bytes;
    slot->id = was->id;
    unlock(s);
}

/* ---- freeing what all have dropped ----------------------------------------------------------- */

uint64_t symm_slots_dropped(symm_space *s, const symm_slot *also) {
    lock(s);
    uint64_t n = also && also->refs == 1;
    for (const symm_slot *slot = s->slots; slot; slot = slot->next)
        n += slot->state == SYMM_SLOT_DROPPED;
    unlock(s);
    return n;
}

void symm_slots_offer(symm_space *s, const void *by, uint64_t most) {
    lock(s);
    for (symm_slot *slot = s->slots; slot && most; slot = slot->next) {
        if (slot->state != SYMM_SLOT_DROPPED) continue;
        set_state(slot, SYMM_SLOT_OFFERED);
        slot->offerer = by;
        slot->heard = 0;
        most--;
    }
    unlock(s);
}

/* The next slot of this offer, from `slot` on; under the lock. */
static symm_slot *next_offered(symm_slot *slot, const void *by) {
    while (slot && (slot->state != SYMM_SLOT_OFFERED || slot->offerer != by)) slot = slot->next;
    return slot;
}

uint64_t symm_slots_offered(symm_space *s, const void *by, uint64_t from, uint64_t *off, int cap) {
    int n = 0;
    lock(s);
    for (symm_slot *slot = next_offered(s->slots, by); slot && n < cap;
         slot = next_offered(slot->next, by))
        if (slot->off >= from) off[n++] = slot->off;
    unlock(s);
    if (n) from = off[n - 1] + 1;
    while (n < cap) off[n++] = SYMM_NO_OFFSET;
    return from;
}

void symm_slots_heard(symm_space *s, const void *by, const uint64_t *off, int cap) {
    lock(s);
    symm_slot *slot = next_offered(s->slots, by);
    for (int i = 0; i < cap && off[i] != SYMM_NO_OFFSET; i++) { /* both are in order */
        while (slot && slot->off < off[i]) slot = next_offered(slot->next, by);
        if (slot && slot->off == off[i]) slot->heard++;
    }
    unlock(s);
}

void symm_slots_settle(symm_space *s, const void *by) {
    for (;;) {
        lock(s);
        symm_slot *slot = next_offered(s->slots, by);
        int all = slot && slot->heard == s->nranks;
        if (slot) set_state(slot, all ? SYMM_SLOT_ENDING : SYMM_SLOT_DROPPED);
        unlock(s);
        if (!slot) return;
        if (all) end_slot(s, slot);
    }
}

void symm_slots_withdraw(symm_space *s, const void *by) {
    lock(s);
    for (symm_slot *slot = s->slots; (slot = next_offered(slot, by)); slot = slot->next) {
        set_state(slot, SYMM_SLOT_DROPPED);
        slot->id = 0;
    }
    unlock(s);
}
