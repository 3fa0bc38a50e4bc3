/* handle.c - the table of live objects, one per kind (see handle.h). Any thread. The set-up lock
 * guards the free lists and the growth of the tables; the state of a slot is one atomic word. Slots
 * are never freed, as a stale handle may read one at any time. So the memory follows the largest
 * number that was alive at once. */
#include "handle.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "check.h"
#include "fail.h"
#include "stats.h"

enum { CHUNK = 256, CHUNKS = 1024 }; /* 262144 objects of a kind */
#define INDEX_BITS 20                /* of the handle; 18 are used */

/* state: generation << 32 | CLOSED | references. No references: the slot is free. */
#define CLOSED         0x80000000u
#define REFS(state)    ((uint32_t)(state) & (CLOSED - 1))
#define GENERATION(st) ((uint32_t)((st) >> 32))

struct slot {
    _Atomic uint64_t state;
    _Atomic(void *) obj; /* a stale handle may read it while one object ends and the next starts */
    void (*free_obj)(void *);
    struct slot *next_free;
    uint32_t index;
    _Atomic uint64_t lo, bytes; /* see symm_handle_set_range */
};

struct table {
    _Atomic(struct slot *) chunk[CHUNKS];
    struct slot *free;
    uint32_t slots, unused; /* unused: in the free list */
    unsigned checked;       /* how often the invariants were asked for, see symm_handle_check */
};

static pthread_mutex_t setup_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t fork_once = PTHREAD_ONCE_INIT;
static struct table tables[SYMM_KIND_COUNT];
/* The top byte makes a handle a non-canonical address (using one as a pointer faults) and differs
 * between kinds. */
static const uint8_t tags[] = {0x53, 0x45, 0x47, 0x58, 0x43, 0x57, 0x48,
                               0x56, 0x59, 0x4c, 0x50, 0x41, 0x44, SYMM_TAG_ACROSS,
                               0x54};
_Static_assert(sizeof tags == SYMM_KIND_COUNT, "without a tag the first handle would be NULL");

/* Communicators and the objects made from them count themselves. */
static void count(int kind, int n) {
    if (kind <= SYMM_KIND_EXEC) SYMM_STAT_ADD(streams, n);
}

/* Under the set-up lock. A free slot has no references and no object, and lies where its index
 * says. Each 64th call walks a free list of up to 1,024, the others look at its head. */
static void symm_handle_check(struct table *t) {
    const int whole = ++t->checked % 64 == 0 && t->unused <= 1024;
    uint32_t n = 0;
    SYMM_ASSERT(t->slots % CHUNK == 0 && t->unused <= t->slots && !t->unused == !t->free);
    for (const struct slot *s = t->free; s && (whole || !n); s = s->next_free, n++) {
        SYMM_ASSERT(n < t->unused && s->index < t->slots);
        SYMM_ASSERT(s == &atomic_load(&t->chunk[s->index / CHUNK])[s->index % CHUNK]);
        SYMM_ASSERT(!REFS(atomic_load(&s->state)) && !atomic_load(&s->obj));
    }
    SYMM_ASSERT(!whole || n == t->unused);
}

void symm_handle_lock(void) {
    pthread_mutex_lock(&setup_lock);
}
void symm_handle_unlock(void) {
    pthread_mutex_unlock(&setup_lock);
}

/* A child has no threads of the objects, so its handles become stale. References stay, so that the
 * forking thread can put the pins that it has. The objects are not touched. */
static void forked(void) {
    for (int kind = 0; kind < SYMM_KIND_COUNT; kind++)
        for (uint32_t i = 0; i < tables[kind].slots; i++) {
            struct slot *slot = &atomic_load(&tables[kind].chunk[i / CHUNK])[i % CHUNK];
            uint64_t state = atomic_load(&slot->state);
            if (!REFS(state)) continue;
            atomic_store(&slot->state, state + (1ull << 32));
            if (state & CLOSED) continue;
            count(kind, -1);
        }
    symm_handle_unlock();
}

static void watch_fork(void) {
    pthread_atfork(symm_handle_lock, symm_handle_unlock, forked);
}

static void *encode(int kind, uint32_t generation, uint32_t index) {
    return (void *)((uintptr_t)tags[kind] << 56 | (uintptr_t)generation << INDEX_BITS | index);
}

/* The slot of a handle, whatever generation is there now; NULL if it is no handle of this kind.
 * Inlined, because every call of a collective does this. */
__attribute__((always_inline)) static inline struct slot *decode(int kind, const void *handle,
                                                                 uint32_t *generation) {
    uintptr_t h = (uintptr_t)handle;
    if (h >> 56 != tags[kind] || (h >> (32 + INDEX_BITS) & 0xf)) return NULL;
    *generation = (uint32_t)(h >> INDEX_BITS);
    uint32_t index = h & ((1u << INDEX_BITS) - 1);
    /* pairs with the release in grow: the chunk's slots are initialised */
    struct slot *chunk =
        atomic_load_explicit(&tables[kind].chunk[index / CHUNK], memory_order_acquire);
    return chunk ? &chunk[index % CHUNK] : NULL;
}

static symmResult_t grow(struct table *t) {
    if (t->slots == CHUNK * CHUNKS)
        return SYMM_ERR(symmOutOfMemory, "%u objects of one kind are alive: no more fit", t->slots);
    struct slot *chunk = SYMM_FAIL_ALLOC(handle_grow, calloc(CHUNK, sizeof *chunk));
    if (!chunk) return SYMM_ERR(symmOutOfMemory, "no memory for a table of %d handles", CHUNK);
    for (uint32_t i = CHUNK; i-- > 0;) {
        chunk[i].index = t->slots + i;
        chunk[i].next_free = t->free;
        t->free = &chunk[i];
    }
    /* pairs with the acquire in decode */
    atomic_store_explicit(&t->chunk[t->slots / CHUNK], chunk, memory_order_release);
    t->slots += CHUNK;
    t->unused += CHUNK;
    return symmSuccess;
}

symmResult_t symm_handle_new(int kind, void *obj, void (*free_obj)(void *), void **handle) {
    symmResult_t status = symmSuccess;
    struct table *t = &tables[kind];
    pthread_once(&fork_once, watch_fork);
    symm_handle_lock();
    if (!t->free) SYMM_TRY_GOTO(grow(t), unlock);
    SYMM_CHECK(symm_handle_check(t));
    struct slot *slot = t->free;
    t->free = slot->next_free;
    t->unused--;
    /* release: pairs with the acquire in peek, which then finds the new generation */
    atomic_store_explicit(&slot->obj, obj, memory_order_release);
    slot->free_obj = free_obj;
    atomic_store_explicit(&slot->bytes, 0, memory_order_relaxed);
    uint32_t generation = GENERATION(atomic_load_explicit(&slot->state, memory_order_relaxed));
    /* pairs with the acquire in pin: obj and free_obj are in place */
    atomic_store_explicit(&slot->state, (uint64_t)generation << 32 | 1, memory_order_release);
    count(kind, 1);
    *handle = encode(kind, generation, slot->index);
unlock:
    symm_handle_unlock();
    return status;
}

static void *pin(int kind, const void *handle, int closed_too) {
    uint32_t generation;
    struct slot *slot = decode(kind, handle, &generation);
    if (!slot) return NULL;
    /* Acquire, also for an object that is gone: the caller then sees what its last user did
     * (symm_order_reach). Pairs with the release in symm_handle_put. */
    uint64_t state = atomic_load_explicit(&slot->state, memory_order_acquire);
    do {
        if (GENERATION(state) != generation || !REFS(state)) return NULL;
        if ((state & CLOSED) && !closed_too) return NULL;
        /* acquire pairs with the release in symm_handle_new */
    } while (!atomic_compare_exchange_weak_explicit(&slot->state, &state, state + 1,
                                                    memory_order_acquire, memory_order_acquire));
    return atomic_load_explicit(&slot->obj, memory_order_relaxed);
}

void *symm_handle_get(int kind, const void *handle) {
    return pin(kind, handle, 0);
}
void *symm_handle_find(int kind, const void *handle) {
    return pin(kind, handle, 1);
}

/* The object of an open slot, without a reference. If it ends meanwhile, the slot may have the next
 * object already. That one was stored after the generation was counted up. So a thread that reads
 * it (acquire) finds the other generation in the state, which it reads after. */
static void *peek(const struct slot *slot, uint32_t generation) {
    void *obj = atomic_load_explicit(&slot->obj, memory_order_acquire);
    /* acquire pairs with the release in symm_handle_new */
    const uint64_t state = atomic_load_explicit(&slot->state, memory_order_acquire);
    return GENERATION(state) == generation && REFS(state) && !(state & CLOSED) ? obj : NULL;
}

void *symm_handle_peek(int kind, const void *handle) {
    uint32_t generation;
    const struct slot *slot = decode(kind, handle, &generation);
    return slot ? peek(slot, generation) : NULL;
}

void *symm_handle_peek_at(int kind, const void *handle, const void *p) {
    uint32_t generation;
    const struct slot *slot = decode(kind, handle, &generation);
    if (!slot) return NULL;
    /* Relaxed: a thread that has such an address got it after these were stored. */
    const uint64_t lo = atomic_load_explicit(&slot->lo, memory_order_relaxed);
    if ((uintptr_t)p - lo >= atomic_load_explicit(&slot->bytes, memory_order_relaxed)) return NULL;
    return peek(slot, generation);
}

void symm_handle_set_range(int kind, const void *handle, const void *lo, uint64_t bytes) {
    uint32_t generation;
    struct slot *slot = decode(kind, handle, &generation);
    atomic_store_explicit(&slot->lo, (uintptr_t)lo, memory_order_relaxed);
    atomic_store_explicit(&slot->bytes, bytes, memory_order_relaxed);
}

int symm_handle_open(int kind, const void *handle) {
    uint32_t generation;
    struct slot *slot = decode(kind, handle, &generation);
    if (!slot) return 0;
    uint64_t state = atomic_load_explicit(&slot->state, memory_order_relaxed);
    return GENERATION(state) == generation && REFS(state) && !(state & CLOSED);
}

int symm_handle_close(int kind, const void *handle) {
    uint32_t generation;
    struct slot *slot = decode(kind, handle, &generation);
    if (!slot) return 0;
    uint64_t state = atomic_load_explicit(&slot->state, memory_order_relaxed);
    do {
        if (GENERATION(state) != generation || !REFS(state) || (state & CLOSED)) return 0;
    } while (!atomic_compare_exchange_weak_explicit(&slot->state, &state, state | CLOSED,
                                                    memory_order_acq_rel, memory_order_relaxed));
    count(kind, -1);
    return 1;
}

void symm_handle_put(int kind, const void *handle) {
    uint32_t generation;
    struct slot *slot = decode(kind, handle, &generation);
    /* release: what this user did comes before the free; acquire: the one who frees sees what all
     * users did */
    uint64_t state = atomic_fetch_sub_explicit(&slot->state, 1, memory_order_acq_rel) - 1;
    SYMM_ASSERT(REFS(state) != REFS(-1)); /* there was one to give back */
    if (REFS(state)) return;
    slot->free_obj(atomic_load_explicit(&slot->obj, memory_order_relaxed));
    symm_handle_lock();
    atomic_store_explicit(&slot->obj, NULL, memory_order_relaxed);
    /* release: pairs with the acquire in pin of a handle that is gone */
    atomic_store_explicit(&slot->state, (uint64_t)(GENERATION(state) + 1) << 32,
                          memory_order_release);
    slot->next_free = tables[kind].free;
    tables[kind].free = slot;
    tables[kind].unused++;
    SYMM_CHECK(symm_handle_check(&tables[kind]));
    symm_handle_unlock();
}
