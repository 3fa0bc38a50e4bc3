/* unit_arena_order.c - the order of memory that was freed on a stream, over offsets: what a thread
 * waits for, what a stream that is captured or destroyed still uses, and waits that are refused. */
#include <unistd.h>

#include "arena_fix.h"

static _Atomic int gate, waits;

static void wait_gate(void *arg) {
    (void)arg;
    while (!atomic_load(&gate)) usleep(50);
}

/* An arena of one piece, and a stream that does not come on until the gate opens. */
typedef struct {
    fix *f;
    symmStream_t s;
} held;

static held open_held(uint64_t bytes) {
    held h = {.f = open_fix(bytes, 64 * KB, bytes, 0)};
    T_OK(symmStreamCreate(&h.s));
    atomic_store(&gate, 0);
    T_OK(symmStreamHostFunc(h.s, wait_gate, NULL));
    return h;
}

static void close_held(held *h) {
    if (h->s) T_OK(symmStreamDestroy(h->s));
    close_fix(h->f);
}

/* ---- a thread that waits --------------------------------------------------------------------- */

enum { BLOCKS = 4 };

/* All of the arena, freed on the stream; then the thread waits for that. */
static void *free_and_wait(void *arg) {
    const held *h = arg;
    uint64_t off[BLOCKS];
    for (int i = 0; i < BLOCKS; i++) off[i] = take(h->f, 16 * KB);
    for (int i = 0; i < BLOCKS; i++) T_OK(symm_arena_give(h->f->a, h->s, off[i]));
    atomic_store(&waits, 1);
    give(h->f, take(h->f, 16 * KB));
    T_EQ(atomic_load(&gate), 1);
    return NULL;
}

/* Its blocks stay where they are: no other call places them, and a trim gives nothing back. */
static void what_a_thread_waits_for_is_nobodys(void) {
    held h = open_held(64 * KB);
    pthread_t t;
    uint64_t off;
    atomic_store(&waits, 0);
    T_EXPECT_WARNINGS();
    T_EQ(pthread_create(&t, NULL, free_and_wait, &h), 0);
    while (!atomic_load(&waits)) usleep(100);
    for (int i = 0; i < 200; i++) {
        usleep(200);
        T_EQ(symm_arena_trim(h.f->a), 0);
    }
    T_EQ(count(h.f).supers, 1);
    symmStream_t other;
    T_OK(symmStreamCreate(&other));
    T_CHECK(symm_arena_take(h.f->a, other, 16 * KB, U, &off) != symmSuccess);
    atomic_store(&gate, 1);
    T_EQ(pthread_join(t, NULL), 0);
    T_EQ(symm_arena_trim(h.f->a), 64 * KB);
    T_OK(symmStreamDestroy(other));
    close_held(&h);
}

T_MAIN(T(what_a_thread_waits_for_is_nobodys))
