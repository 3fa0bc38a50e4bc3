/* unit_arena_order.c - the order of memory that was freed on a stream, over offsets: what a thread
 * waits for, what a stream that is captured or destroyed still uses, and waits that are refused. */
#include <unistd.h>

#include "arena_fix.h"
#include "base/handle.h"

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

/* ---- a stream that is captured or destroyed -------------------------------------------------- */

/* The stream's work has not ended, so its memory stays with the arena. */
static void freed_on(const held *h) {
    T_OK(symm_arena_give(h->f->a, h->s, take_as(h->f, h->s, 64 * KB, U)));
    T_EQ(symm_arena_trim(h->f->a), 0);
}

static void a_captured_streams_work_is_waited_for(void) {
    held h = open_held(64 * KB);
    symmGraph_t g;
    freed_on(&h);
    T_OK(symmStreamBeginCapture(h.s));
    T_EQ(symm_arena_trim(h.f->a), 0);
    atomic_store(&gate, 1);
    while (!symm_arena_trim(h.f->a)) usleep(100);
    T_EQ(count(h.f).held, 0);
    T_OK(symmStreamEndCapture(h.s, &g));
    T_OK(symmGraphDestroy(g));
    close_held(&h);
}

static void *destroy(void *arg) {
    held *h = arg;
    T_OK(symmStreamDestroy(h->s));
    return NULL;
}

static void a_destroyed_streams_work_is_waited_for(void) {
    held h = open_held(64 * KB);
    pthread_t t;
    freed_on(&h);
    T_EQ(pthread_create(&t, NULL, destroy, &h), 0);
    while (symm_handle_open(SYMM_KIND_STREAM, h.s)) usleep(100);
    T_EQ(symm_arena_trim(h.f->a), 0);
    atomic_store(&gate, 1);
    T_EQ(pthread_join(t, NULL), 0);
    h.s = NULL;
    T_EQ(symm_arena_trim(h.f->a), 64 * KB);
    close_held(&h);
}

/* The host's order, but a capture of `caught` begins as soon as the arena has asked about it. */
static symmStream_t caught;
static int able_then_captured(void *ctx, symmStream_t s) {
    const int able = symm_arena_order_host.able(ctx, s);
    if (able && s == caught) T_OK(symmStreamBeginCapture(s));
    return able;
}

/* t cannot be made to wait for s any more: the block that s freed is not t's before it can. */
static void a_capture_that_begins_before_the_wait(void) {
    held h = open_held(64 * KB);
    symmStream_t t;
    symmGraph_t g;
    T_EXPECT_WARNINGS();
    T_OK(symmStreamCreate(&t));
    const uint64_t off = take_as(h.f, t, 32 * KB, U);
    T_OK(symm_arena_give(h.f->a, h.s, off));
    h.f->a->order.able = able_then_captured;
    caught = t;
    symm_arena_defragment(h.f->a);
    caught = NULL;
    T_EQ(h.f->a->waits, 0);
    T_EQ(count(h.f).supers, 1);
    T_OK(symmStreamEndCapture(t, &g));
    T_CHECK(take_as(h.f, t, 32 * KB, U) != off);
    T_EQ(h.f->a->waits, 0);
    T_EQ(take_as(h.f, t, 32 * KB, U), off);
    T_EQ(h.f->a->waits, 1);
    atomic_store(&gate, 1);
    T_OK(symmGraphDestroy(g));
    T_OK(symmStreamDestroy(t));
    close_held(&h);
}

/* ---- a function that a stream runs ----------------------------------------------------------- */

typedef struct { /* what one takes for the NULL stream */
    symm_arena *a;
    uint64_t bytes, off;
    symmResult_t status;
} inside;

static void take_inside(void *arg) {
    inside *in = arg;
    in->status = symm_arena_take(in->a, NULL, in->bytes, U, &in->off);
}

static inside take_in(const held *h, symmStream_t t, uint64_t bytes) {
    inside in = {.a = h->f->a, .bytes = bytes};
    T_OK(symmStreamHostFunc(t, take_inside, &in));
    T_OK(symmStreamSynchronize(t));
    return in;
}

/* It must not wait for what another stream freed, so it gets other bytes, and those as soon as the
 * work before their free has ended. */
static void what_a_function_must_not_wait_for_is_skipped(void) {
    held h = open_held(320 * KB);
    symmStream_t t;
    T_EXPECT_WARNINGS();
    T_OK(symmStreamCreate(&t));
    const uint64_t large = take_as(h.f, h.s, 64 * KB, U), small = take_as(h.f, h.s, 16 * KB, U);
    T_OK(symm_arena_give(h.f->a, h.s, large));
    T_OK(symm_arena_give(h.f->a, h.s, small));
    const inside first = take_in(&h, t, 64 * KB), mine = take_in(&h, t, 32 * KB);
    T_OK(first.status);
    T_OK(mine.status);
    T_CHECK(first.off != large && mine.off / (64 * KB) != large / (64 * KB));
    /* Another stream frees a block of the function's thread, whose superblock is full. */
    T_OK(take_in(&h, t, 32 * KB).status);
    T_OK(symm_arena_give(h.f->a, h.s, mine.off));
    const inside next = take_in(&h, t, 32 * KB);
    T_OK(next.status);
    T_CHECK(next.off != mine.off);
    T_EQ(take_in(&h, t, 64 * KB).status, symmOutOfMemory);
    T_EQ(h.f->a->waits, 0);
    atomic_store(&gate, 1);
    T_OK(symmStreamSynchronize(h.s));
    const inside last = take_in(&h, t, 64 * KB);
    T_OK(last.status);
    T_EQ(last.off, large);
    T_OK(symmStreamDestroy(t));
    close_held(&h);
}

/* However long it is: in one step, not one for each superblock. */
static void a_long_range_is_skipped_at_once(void) {
    held h = open_held(8 * AK_GB);
    symmStream_t t;
    T_OK(symmStreamCreate(&t));
    const uint64_t large = take_as(h.f, h.s, 7 * AK_GB, U);
    T_OK(symm_arena_give(h.f->a, h.s, large));
    const inside in = take_in(&h, t, KB);
    T_OK(in.status);
    T_CHECK(in.off < large || in.off >= large + 7 * AK_GB);
    T_EQ(count(h.f).supers, 1);
    atomic_store(&gate, 1);
    T_OK(symmStreamDestroy(t));
    close_held(&h);
}

T_MAIN(T(a_captured_streams_work_is_waited_for), T(a_destroyed_streams_work_is_waited_for),
       T(a_capture_that_begins_before_the_wait), T(what_a_thread_waits_for_is_nobodys),
       T(what_a_function_must_not_wait_for_is_skipped), T(a_long_range_is_skipped_at_once))
