/* unit_space.c - address space and slots: first fit against a naive model, finding and sharing
 * spaces, references, slots that are published, found, moved, dropped, offered and freed, with real
 * memory of the host driver behind them. One thread but where several offer, find and drop at
 * once. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "host/window/space.h"
#include "base/stats.h"
#include "t.h"

static uint64_t state = 0x51a7;

static uint64_t draw(uint64_t below) {
    return t_draw(&state, below);
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
    for (int i = 0; i < 20000; i++) {
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
    symm_space_ready(s);
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
#if T_TSAN
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
    symm_slot_discard(s, b);
    T_OK(symm_slot_take(s, 10 * MIB, 0, &none));
    T_CHECK(none == NULL);
    T_EQ(symm_slot_no_room(s, 10 * MIB), symmOutOfMemory);
    T_MSG(symmGetLastError(NULL), "8388608 free in one piece): raise SYMM_WIN_STRIDE");
    b = take(s, 4 * MIB, 10 * MIB);
    T_EQ(b->off, 10 * MIB);
    symm_slot *d = take(s, 2 * MIB, 0);
    T_EQ(d->off, 8 * MIB);
    T_EQ(symm_slot_move(s, d, 12 * MIB), 1); /* [12, 14) is taken by b */
    T_EQ(d->off, 14 * MIB);
    T_EQ(symm_slot_move(s, d, 31 * MIB), 0);
    T_EQ(d->off, 14 * MIB);
    symm_slot *in_order[] = {a, b, d, c};
    symm_slot *at = s->slots;
    for (int i = 0; i < 4; i++, at = at->next) T_CHECK(at == in_order[i]);
    T_CHECK(at == NULL);
    for (int i = 0; i < 4; i++) symm_slot_discard(s, in_order[i]);
    T_CHECK(s->slots == NULL);
    symm_slot_drop(s, NULL);
    symm_slot_discard(s, NULL);
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

/* The last reference of discard unmaps every rank's part, and only it; a slot is found by identity
 * and size until then. */
static void references_keep_memory(void) {
    symm_uuid m[3] = {{2, 1}, {2, 2}, {2, 3}};
    symm_space *s = new_space(m, 3, 1, 64 * MIB);
    int64_t maps = SYMM_STAT_GET(maps);
    uint64_t bytes;
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
    T_EQ(symm_slot_refs(s, slot, &bytes), 3);
    T_EQ(bytes, 8 * MIB);
    for (int i = 0; i < 3; i++) {
        T_EQ(SYMM_STAT_GET(maps), maps + 2);
        T_EQ(*symm_space_addr(s, 1, slot->off), 2);
        symm_slot_discard(s, slot);
    }
    T_EQ(SYMM_STAT_GET(maps), maps);
    T_CHECK(symm_slot_find(s, 77, 4 * MIB) == NULL);
    slot = take(s, 64 * MIB, 0); /* all of it is free again */
    T_EQ(slot->off, 0);
    symm_slot_discard(s, slot);
    symm_space_drop(s);
}

/* ---- dropped slots ---- */

static symm_slot *mapped(symm_space *s, uint64_t id) {
    symm_slot *slot = take(s, 2 * MIB, 0);
    for (int r = 0; r < s->nranks; r++) put_memory(s, slot, r, 2 * MIB);
    symm_slot_publish(s, slot, id);
    return slot;
}

/* Mapped, in the way, and found: until the space ends. */
static void dropped_slots_stay(void) {
    symm_uuid m[2] = {{3, 1}, {3, 2}};
    symm_space *s = new_space(m, 2, 0, 32 * MIB);
    int64_t maps = SYMM_STAT_GET(maps), slots = SYMM_STAT_GET(slots);
    uint64_t bytes;
    symm_slot *a = mapped(s, 5), *b = mapped(s, 6);
    T_EQ(symm_slots_dropped(s, NULL), 0);
    T_EQ(symm_slots_dropped(s, a), 1); /* but for the caller's reference */
    symm_slot_drop(s, a);
    T_EQ(symm_slots_dropped(s, NULL), 1);
    T_EQ(symm_slots_dropped(s, b), 2);
    T_EQ(SYMM_STAT_GET(dropped), 1);
    T_EQ(SYMM_STAT_GET(maps), maps + 4);
    T_EQ(*symm_space_addr(s, 1, a->off), 2);
    symm_slot *c = take(s, 2 * MIB, 0);
    T_EQ(c->off, 4 * MIB);
    T_CHECK(symm_slot_find(s, 5, 2 * MIB) == a);
    T_EQ(symm_slot_refs(s, a, &bytes), 1);
    T_EQ(symm_slots_dropped(s, NULL), 0);
    T_EQ(SYMM_STAT_GET(dropped), 0);
    symm_slot_ref(s, a);
    T_EQ(symm_slots_dropped(s, a), 0); /* somebody else's too */
    symm_slot_drop(s, a);
    symm_slot_drop(s, a);
    symm_slot_publish(s, b, 5); /* the same memory, newer */
    T_CHECK(symm_slot_find(s, 5, 2 * MIB) == b);
    symm_slot_drop(s, b);
    symm_slot_drop(s, b);
    symm_slot_discard(s, c);
    T_EQ(symm_slots_dropped(s, NULL), 2);
    T_EQ(SYMM_STAT_GET(slots), slots + 2);
    symm_space_drop(s);
    T_EQ(SYMM_STAT_GET(maps), maps);
    T_EQ(SYMM_STAT_GET(slots), slots);
    T_EQ(SYMM_STAT_GET(dropped), 0);
}

/* An offer frees what all ranks have named and nothing else; what is offered is not found, nor
 * offered by others. */
static void offers_free_what_all_have_named(void) {
    enum { N = 3, SLOTS = 7 };
    symm_uuid m[N] = {{4, 1}, {4, 2}, {4, 3}};
    symm_space *s = new_space(m, N, 2, 64 * MIB);
    uint64_t off[4], other[4];
    symm_slot *slot[SLOTS];
    int me, them;
    for (int i = 0; i < SLOTS; i++) slot[i] = mapped(s, 10 + (uint64_t)i);
    for (int i = 0; i < SLOTS; i++)
        if (i != 3) symm_slot_drop(s, slot[i]); /* slot 3 is in use */
    symm_slots_offer(s, &me, 5);                /* slots 0 1 2 4 5 */
    T_EQ(symm_slots_dropped(s, NULL), 1);
    T_EQ(SYMM_STAT_GET(dropped), SLOTS - 1);
    symm_slots_offer(s, &them, 5); /* slot 6 */
    T_EQ(symm_slots_dropped(s, NULL), 0);
    for (int i = 0; i < SLOTS; i++)
        T_CHECK(!symm_slot_find(s, 10 + (uint64_t)i, 2 * MIB) == (i != 3));
    symm_slot_drop(s, slot[3]);
    uint64_t from = symm_slots_offered(s, &me, 0, off, 4);
    T_CHECK(off[0] == 0 && off[1] == 2 * MIB && off[2] == 4 * MIB && off[3] == 8 * MIB);
    for (int r = 0; r < N; r++)
        symm_slots_heard(s, &me, off, r == 1 ? 3 : 4); /* rank 1: not slot 4 */
    from = symm_slots_offered(s, &me, from, off, 4);
    T_CHECK(off[0] == 10 * MIB && off[1] == SYMM_NO_OFFSET && off[3] == SYMM_NO_OFFSET);
    T_EQ(symm_slots_offered(s, &me, from, other, 4), from);
    T_EQ(other[0], SYMM_NO_OFFSET);
    symm_slots_heard(s, &me, other, 4);
    off[1] = 12 * MIB; /* slot 6, in another offer; and one that is not dropped here */
    off[2] = 6 * MIB + 1;
    for (int r = 0; r < N; r++) symm_slots_heard(s, &me, off, 3);
    int64_t maps = SYMM_STAT_GET(maps);
    symm_slots_settle(s, &me);
    T_EQ(SYMM_STAT_GET(maps), maps - 4 * N); /* 0 1 2 5 */
    for (int i = 0; i < SLOTS; i++) {
        symm_slot *again = symm_slot_find(s, 10 + (uint64_t)i, 2 * MIB);
        T_CHECKF((again != NULL) == (i == 3 || i == 4), "slot %d", i);
        T_CHECK(!again || again == slot[i]);
        if (again) T_EQ(*symm_space_addr(s, 1, again->off), 2);
        if (again && i == 4) symm_slot_drop(s, again);
    }
    symm_slot *big = take(s, 6 * MIB, 0);
    T_EQ(big->off, 0);             /* what was freed is one range again */
    symm_slots_withdraw(s, &them); /* slot 6: dropped, but never found again */
    T_EQ(symm_slots_dropped(s, NULL), 2);
    T_CHECK(symm_slot_find(s, 16, 2 * MIB) == NULL);
    symm_slots_offer(s, &me, 5);
    symm_slots_offered(s, &me, 0, off, 4);
    T_CHECK(off[0] == 8 * MIB && off[1] == 12 * MIB && off[2] == SYMM_NO_OFFSET);
    for (int r = 0; r < N; r++) symm_slots_heard(s, &me, off, 4);
    symm_slots_settle(s, &me);
    T_CHECK(s->slots == big && big->next == slot[3] && !slot[3]->next);
    symm_slot_discard(s, big);
    symm_slot_discard(s, slot[3]);
    T_EQ(SYMM_STAT_GET(dropped), 0);
    symm_space_drop(s);
}

/* ---- several threads in one space ---- */

typedef struct {
    symm_space *space;
    _Atomic int making[4]; /* of each identity: a thread maps it */
} crowd;

/* What a thread holds stays mapped, whatever the others offer and free. */
static void *find_drop_offer(void *arg) {
    crowd *c = arg;
    symm_space *s = c->space;
    uint64_t off[8];
    for (int i = 0; i < (T_TSAN ? 100 : 400); i++) {
        int k = i % 4, by;
        symm_slot *slot = symm_slot_find(s, 30 + (uint64_t)k, 2 * MIB);
        if (slot) {
            T_CHECK(*(volatile char *)symm_space_addr(s, 0, slot->off) == 1);
            symm_slot_drop(s, slot);
        } else if (atomic_exchange(&c->making[k], 1) == 0) { /* one thread makes it anew */
            symm_slot_drop(s, mapped(s, 30 + (uint64_t)k));
            atomic_store(&c->making[k], 0);
        }
        if (i % 3) continue;
        symm_slots_offer(s, &by, 2);
        symm_slots_offered(s, &by, 0, off, 8);
        symm_slots_heard(s, &by, off, 8);
        if (i % 2) symm_slots_heard(s, &by, off, 8); /* both ranks */
        if (i % 33 == 0)
            symm_slots_withdraw(s, &by);
        else
            symm_slots_settle(s, &by);
    }
    return NULL;
}

static void threads_find_and_free(void) {
    symm_uuid m[2] = {{5, 1}, {5, 2}};
    crowd c = {.space = new_space(m, 2, 0, 512 * MIB)};
    pthread_t thread[3];
    for (int i = 0; i < 3; i++) T_EQ(pthread_create(&thread[i], NULL, find_drop_offer, &c), 0);
    for (int i = 0; i < 3; i++) T_EQ(pthread_join(thread[i], NULL), 0);
    for (const symm_slot *slot = c.space->slots; slot; slot = slot->next)
        T_CHECK(slot->state == SYMM_SLOT_DROPPED && slot->refs == 0);
    symm_space_drop(c.space);
}

T_MAIN(T(fit_is_the_lowest), T(spaces_are_found_by_their_ranks), T(large_reservation),
       T(too_large_is_refused), T(slots_fill_gaps), T(references_keep_memory),
       T(dropped_slots_stay), T(offers_free_what_all_have_named), T(threads_find_and_free))
