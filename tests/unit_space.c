/* unit_space.c - address space and slots: first fit against a naive model, finding and sharing spaces, references, slots that are
 * published, found, moved and dropped, with real memory of the host driver behind them. One thread. */
#include <stdlib.h>
#include <string.h>

#include "../src/host/space.h"
#include "../src/host/stats.h"
#include "t.h"

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define UNDER_TSAN 1
#endif
#endif
#if defined(__SANITIZE_THREAD__)
#define UNDER_TSAN 1
#endif

static uint64_t state = 0x51a7;

static uint64_t draw(uint64_t below) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    return (state >> 33) % below;
}

/* ---- first fit ---- */

enum { CELLS = 48 };

/* The lowest place, cell by cell. */
static uint64_t naive_fit(const char *taken, uint64_t bytes, uint64_t from, uint64_t limit) {
    for (uint64_t at = from; at + bytes <= limit; at++) {
        uint64_t len = 0;
        while (len < bytes && !taken[at + len]) len++;
        if (len == bytes) return at;
    }
    return SYMM_NO_OFFSET;
}

/* A list of slots with random gaps, ordered by offset. */
static int draw_slots(symm_slot *slots, char *taken) {
    int n = 0;
    memset(taken, 0, CELLS);
    for (uint64_t at = draw(6); at < CELLS; at += draw(3) ? draw(7) : 0) {
        uint64_t bytes = 1 + draw(6);
        if (at + bytes > CELLS) break;
        slots[n] = (symm_slot){.off = at, .bytes = bytes};
        memset(taken + at, 1, bytes);
        if (n) slots[n - 1].next = &slots[n];
        at += bytes;
        n++;
    }
    return n;
}

static void fit_is_the_lowest(void) {
    symm_slot slots[CELLS];
    char taken[CELLS + 1];
    for (int i = 0; i < 200000; i++) {
        int n = draw_slots(slots, taken);
        uint64_t bytes = 1 + draw(12), from = draw(CELLS + 4), limit = CELLS - draw(2) * draw(10);
        T_EQ(symm_slot_fit(n ? slots : NULL, bytes, from, limit),
             naive_fit(taken, bytes, from, limit));
    }
    T_EQ(symm_slot_fit(NULL, 10, 0, 9), SYMM_NO_OFFSET);
    T_EQ(symm_slot_fit(NULL, 10, 0, 10), 0);
    T_EQ(symm_slot_fit(NULL, 1ull << 63, 1, 1ull << 63), SYMM_NO_OFFSET);
    T_EQ(symm_slot_fit(NULL, 1, UINT64_MAX, 1ull << 40), SYMM_NO_OFFSET);
}

/* ---- spaces ---- */

#define MIB (1ull << 20)

static uint64_t granularity(void) {
    symm_vmm_caps caps;
    T_EQ(symm_vmm_host.query(&caps), 0);
    return caps.granularity;
}

static symm_space *new_space(const symm_uuid *members, int n, int rank, uint64_t stride) {
    symm_space *s = NULL;
    T_OK(symm_space_create(&symm_vmm_host, granularity(), members, n, rank, stride, 42, &s));
    return s;
}

static void spaces_are_found_by_their_ranks(void) {
    symm_uuid m[3] = {{1, 2}, {3, 4}, {5, 6}}, other[3] = {{1, 2}, {5, 6}, {3, 4}};
    int64_t va = SYMM_STAT_GET(va_bytes);
    T_CHECK(symm_space_find(m, 3, 1) == NULL);
    symm_space *a = new_space(m, 3, 1, 64 * MIB), *b = new_space(other, 3, 1, 64 * MIB);
    T_CHECK(symm_space_find(m, 3, 1) == a);
    T_CHECK(symm_space_find(other, 3, 1) == b);
    T_CHECK(symm_space_find(m, 2, 1) == NULL);
    T_CHECK(symm_space_find(m, 3, 0) == NULL);
    T_EQ(a->base % (512 * MIB), 0);
    T_CHECK(a->base + 3 * a->stride <= b->base || b->base + 3 * b->stride <= a->base);
    T_CHECK(symm_space_addr(a, 2, 4096) == (char *)(uintptr_t)(a->base + 2 * 64 * MIB + 4096));
    symm_space_ref(a);
    for (int i = 0; i < 3; i++) { /* made, found, taken */
        T_CHECK(SYMM_STAT_GET(va_bytes) > va);
        symm_space *again = symm_space_find(m, 3, 1);
        T_CHECK(again == a);
        symm_space_drop(again);
        symm_space_drop(a);
    }
    T_CHECK(symm_space_find(m, 3, 1) == NULL);
    symm_space_drop(b);
    symm_space_drop(b);
    symm_space_drop(NULL);
    T_EQ(SYMM_STAT_GET(va_bytes), va);
}

/* 72 ranks of 192 GiB are addresses only. */
static void large_reservation(void) {
#ifdef UNDER_TSAN
    T_SKIP("ThreadSanitizer leaves no 14 TiB of addresses");
#endif
    symm_uuid m[72];
    for (int i = 0; i < 72; i++) m[i] = (symm_uuid){9, (uint64_t)i};
    symm_space_drop(new_space(m, 72, 0, 192ull << 30));
}

static void too_large_is_refused(void) {
    symm_uuid m[2] = {{7, 1}, {7, 2}};
    symm_space *s = NULL;
    T_EXPECT_WARNINGS();
    T_CHECK(symm_space_create(&symm_vmm_host, granularity(), m, 2, 0, 1ull << 50, 1, &s) !=
            symmSuccess);
    T_CHECK(s == NULL && symm_space_find(m, 2, 0) == NULL);
}

/* ---- slots ---- */

static symm_slot *take(symm_space *s, uint64_t bytes, uint64_t from) {
    symm_slot *slot = NULL;
    T_OK(symm_slot_take(s, bytes, from, &slot));
    return slot;
}

static void slots_fill_gaps(void) {
    symm_uuid m[1] = {{1, 1}};
    symm_space *s = new_space(m, 1, 0, 32 * MIB);
    T_EXPECT_WARNINGS();
    symm_slot *a = take(s, 8 * MIB, 0), *b = take(s, 8 * MIB, 0), *c = take(s, 8 * MIB, 0),
              *none = NULL;
    T_EQ(a->off, 0);
    T_EQ(b->off, 8 * MIB);
    T_EQ(c->off, 16 * MIB);
    symm_slot_drop(s, b);
    T_ERR(symm_slot_take(s, 10 * MIB, 0, &none), symmOutOfMemory);
    T_MSG(symmGetLastError(NULL), "SYMM_WIN_STRIDE");
    T_CHECK(none == NULL);
    b = take(s, 4 * MIB, 10 * MIB);
    T_EQ(b->off, 10 * MIB);
    symm_slot *d = take(s, 2 * MIB, 0);
    T_EQ(d->off, 8 * MIB);
    T_OK(symm_slot_move(s, d, 12 * MIB)); /* [12, 14) is taken by b */
    T_EQ(d->off, 14 * MIB);
    T_ERR(symm_slot_move(s, d, 31 * MIB), symmOutOfMemory);
    T_EQ(d->off, 14 * MIB);
    symm_slot *in_order[] = {a, b, d, c};
    symm_slot *at = s->slots;
    for (int i = 0; i < 4; i++, at = at->next) T_CHECK(at == in_order[i]);
    T_CHECK(at == NULL);
    for (int i = 0; i < 4; i++) symm_slot_drop(s, in_order[i]);
    T_CHECK(s->slots == NULL);
    symm_slot_drop(s, NULL);
    symm_space_drop(s);
}

static void put_memory(symm_space *s, symm_slot *slot, int rank, uint64_t bytes) {
    symm_vmm_handle *h;
    char *at = symm_space_addr(s, rank, slot->off);
    T_EQ(s->vmm->create(bytes, &h), 0);
    T_EQ(s->vmm->map(at, bytes, 0, h), 0);
    T_EQ(s->vmm->set_access(at, bytes), 0);
    T_EQ(s->vmm->release(h), 0);
    slot->rank_bytes[rank] = bytes;
    memset(at, rank + 1, bytes);
}

/* The last reference unmaps every rank's part, and only it; a slot is found by identity and size until then. */
static void references_keep_memory(void) {
    symm_uuid m[3] = {{2, 1}, {2, 2}, {2, 3}};
    symm_space *s = new_space(m, 3, 1, 64 * MIB);
    int64_t maps = SYMM_STAT_GET(maps);
    symm_slot *slot = take(s, 8 * MIB, 0);
    for (int r = 0; r < 3; r++)
        if (r != 2)
            put_memory(s, slot, r, (unsigned)(r + 1) * 2 * MIB); /* rank 2 brought nothing */
    T_CHECK(symm_slot_find(s, 77, 4 * MIB) == NULL);
    symm_slot_publish(s, slot, 77);
    T_CHECK(symm_slot_find(s, 78, 4 * MIB) == NULL);
    T_CHECK(symm_slot_find(s, 77, 2 * MIB) == NULL); /* another rank's size */
    T_CHECK(symm_slot_find(s, 77, 4 * MIB) == slot);
    symm_slot_ref(s, slot);
    T_EQ(symm_slot_refs(s, slot), 3);
    for (int i = 0; i < 3; i++) {
        T_EQ(SYMM_STAT_GET(maps), maps + 2);
        T_EQ(*symm_space_addr(s, 1, slot->off), 2);
        symm_slot_drop(s, slot);
    }
    T_EQ(SYMM_STAT_GET(maps), maps);
    T_CHECK(symm_slot_find(s, 77, 4 * MIB) == NULL);
    slot = take(s, 64 * MIB, 0); /* all of it is free again */
    T_EQ(slot->off, 0);
    symm_slot_drop(s, slot);
    symm_space_drop(s);
}

T_MAIN(T(fit_is_the_lowest), T(spaces_are_found_by_their_ranks), T(large_reservation),
       T(too_large_is_refused), T(slots_fill_gaps), T(references_keep_memory))
