/* unit_arena_threads.c - the arena over offsets, used by several threads and streams: sub-arenas,
 * what goes from one to another, stripes. */
#include <sched.h>
#include <unistd.h>

#include "arena_fix.h"

/* ---- threads --------------------------------------------------------------------------------- */

enum { THREADS = 4 };

typedef struct {
    fix *f;
    _Atomic uint64_t slot[64]; /* offset + 1 */
} crowd;

/* A mark for each unit at which a block begins while somebody has it: two owners would meet. */
static _Atomic unsigned char marks[256 * AK_MB / SYMM_ARENA_UNIT];

static uint64_t take_marked(fix *f, uint64_t bytes) {
    uint64_t off = take(f, bytes);
    T_EQ(atomic_exchange(&marks[off / U], 1), 0);
    return off;
}

static void give_marked(fix *f, uint64_t off) {
    T_EQ(atomic_exchange(&marks[off / U], 0), 1);
    give(f, off);
}

static void work_alone(int rank, int n, void *arg) {
    crowd *c = arg;
    uint64_t off[40] = {0}, state = 77 + (uint64_t)rank;
    (void)n;
    for (int i = 0; i < 4000; i++) {
        uint64_t k = t_draw(&state, 40);
        if (off[k]) {
            give_marked(c->f, off[k] - 1);
            off[k] = 0;
        } else {
            uint64_t bytes =
                t_draw(&state, 50) ? t_draw(&state, 20 * KB) + 1 : t_draw(&state, MB) + 1;
            off[k] = take_marked(c->f, bytes) + 1;
        }
    }
    for (int k = 0; k < 40; k++)
        if (off[k]) give_marked(c->f, off[k] - 1);
}

/* Nothing is in use, and all of it goes back. */
static void close_unused(fix *f) {
    T_EQ(count(f).used, 0);
    symm_arena_trim(f->a);
    T_EQ(count(f).used, 0);
    T_EQ(count(f).held, 0);
    close_fix(f);
}

static void four_threads_defragment(void) {
    crowd c = {.f = open_fix(256 * MB, 64 * KB, 2 * MB, 0)};
    T_THREADS(THREADS, work_alone, &c);
    T_EQ(count(c.f).kept, 0); /* the threads have ended */
    T_EQ(count(c.f).supers, 0);
    T_EQ(count(c.f).subs[SYMM_SUB_THREAD], 0);
    close_unused(c.f);
}

static void swap_blocks(int rank, int n, void *arg) {
    crowd *c = arg;
    uint64_t state = 5 + (uint64_t)rank;
    (void)n;
    for (int i = 0; i < 6000; i++) {
        uint64_t bytes = t_draw(&state, 100) ? t_draw(&state, 9000) + 1 : 100 * KB;
        uint64_t was = atomic_exchange(&c->slot[t_draw(&state, 64)], take_marked(c->f, bytes) + 1);
        if (was) give_marked(c->f, was - 1);
    }
}

static void blocks_freed_by_other_threads(void) {
    static crowd c;
    c.f = open_fix(256 * MB, 64 * KB, 2 * MB, 0);
    T_THREADS(THREADS, swap_blocks, &c);
    for (int k = 0; k < 64; k++)
        if (c.slot[k]) give_marked(c.f, c.slot[k] - 1);
    close_unused(c.f);
}

enum { RACES = 500 };

typedef struct {
    fix *f;
    uint64_t off[RACES];
    _Atomic int there, wins[RACES];
} race;

/* Both threads free each block at the same moment. */
static void free_all(int rank, int n, void *arg) {
    race *x = arg;
    (void)rank;
    for (int i = 0; i < RACES; i++) {
        atomic_fetch_add(&x->there, 1);
        for (int spins = 0; atomic_load(&x->there) < n * (i + 1); spins++)
            if (spins > 1000) sched_yield();
        symmResult_t r = symm_arena_give(x->f->a, NULL, x->off[i]);
        T_CHECKF(r == symmSuccess || r == symmInvalidArgument, "code %d", r);
        if (!r) atomic_fetch_add(&x->wins[i], 1);
    }
}

/* Whoever frees a block a second time is told, though the first free is still under way; and the
 * block comes back once. */
static void one_of_two_frees_wins(void) {
    static race x;
    T_EXPECT_WARNINGS();
    x.f = open_fix(64 * MB, 64 * KB, 2 * MB, 0);
    for (int i = 0; i < RACES; i++) x.off[i] = take(x.f, 512);
    T_THREADS(2, free_all, &x);
    for (int i = 0; i < RACES; i++)
        T_CHECKF(x.wins[i] == 1, "%d threads have freed block %d", x.wins[i], i);
    symm_arena_trim(x.f->a);
    T_EQ(count(x.f).used, 0);
    close_fix(x.f);
}

static void use_several(int rank, int n, void *arg) {
    fix **f = arg;
    (void)rank;
    (void)n;
    for (int i = 0; i < 3; i++) {
        uint64_t a = take(f[i], 1000), b = take(f[i], 1000);
        give(f[i], a);
        (void)b;
    }
}

/* Each arena gets back what a thread that ended had: in all arenas, not only in the first. */
static void thread_exit_cleans_several_arenas(void) {
    fix *f[3];
    for (int i = 0; i < 3; i++) f[i] = open_fix(64 * MB, 64 * KB, 2 * MB, 0);
    T_THREADS(2, use_several, f);
    for (int i = 0; i < 3; i++) {
        T_EQ(count(f[i]).kept, 0);
        T_EQ(count(f[i]).subs[SYMM_SUB_THREAD], 0);
        int ended = count(f[i]).subs[SYMM_SUB_ENDED]; /* the second may have had the first one's */
        T_CHECK(ended == 1 || ended == 2);
        T_EQ(count(f[i]).used, 2 * 1024);
    }
    symm_arena_end(f[1]->a); /* with what they left */
    T_OK(ak_arena(&f[1]->up, 64 * MB, 64 * KB, 2 * MB, 0, &f[1]->a));
    T_THREADS(2, use_several, f); /* these take over what is there */
    T_CHECK(count(f[0]).subs[SYMM_SUB_ENDED] <= 2);
    T_EQ(count(f[0]).subs[SYMM_SUB_THREAD], 0);
    T_EQ(count(f[0]).used, 4 * 1024);
    for (int i = 0; i < 3; i++) close_fix(f[i]);
}

/* ---- destructors that run behind the arena's ------------------------------------------------- */

enum {
    PASSES = T_TSAN ? 3 : 6
}; /* more than a thread gives its destructors; ThreadSanitizer ends in the fourth pass itself */

typedef struct {
    fix *f;
    _Atomic int step;
    _Atomic(symm_sub *) mine, others;
    int passes, had_sub;
} late;

static pthread_key_t late_key;

static void use_a_while(fix *f) {
    uint64_t off[8] = {0};
    for (int i = 0; i < 400; i++) {
        if (off[i % 8]) give_marked(f, off[i % 8] - 1);
        off[i % 8] = take_marked(f, 512) + 1;
    }
    for (int i = 0; i < 8; i++) give_marked(f, off[i] - 1);
}

/* The arena's destructor has run; in the first pass another thread takes over what this one had,
 * and both go on. Sets its key again as long as the system takes notice. */
static void late_end(void *arg) {
    late *x = arg;
    if (!x->passes++) {
        atomic_store(&x->step, 1);
        while (atomic_load(&x->step) != 2) usleep(50);
    }
    use_a_while(x->f);
    uint64_t large = take(x->f, 100 * KB), left = take(x->f, 700);
    T_CHECK(left % U == 0 && large % U == 0);
    give(x->f, large);
    give(x->f, left);
    x->had_sub |= symm_sub_mine(x->f->a) != NULL;
    if (x->passes < PASSES) T_EQ(pthread_setspecific(late_key, x), 0);
}

static void *end_late(void *arg) {
    late *x = arg;
    T_EQ(pthread_setspecific(late_key, x), 0);
    give_marked(x->f, take_marked(x->f, 512));
    take(x->f, 512); /* is left, so that its sub is worth taking over */
    atomic_store(&x->mine, symm_sub_mine(x->f->a));
    return NULL;
}

static void *take_over(void *arg) {
    late *x = arg;
    while (atomic_load(&x->step) != 1) usleep(50);
    give_marked(x->f, take_marked(x->f, 512));
    atomic_store(&x->others, symm_sub_mine(x->f->a));
    atomic_store(&x->step, 2);
    use_a_while(x->f);
    return NULL;
}

/* A thread's sub may be another's before the thread's last destructor has run. That one gets
 * memory, and gives it back, all the same. */
static void a_destructor_that_runs_late_has_no_sub(void) {
    static late x;
    pthread_t a, b;
    x.f = open_fix(64 * MB, 64 * KB, 2 * MB, 0);
    give(x.f, take(x.f, 256)); /* the arena's key is made first, so its destructor runs first */
    T_EQ(pthread_key_create(&late_key, late_end), 0);
    T_EQ(pthread_create(&a, NULL, end_late, &x), 0);
    T_EQ(pthread_create(&b, NULL, take_over, &x), 0);
    pthread_join(a, NULL);
    pthread_join(b, NULL);
    T_CHECK(x.passes > 1);
    T_CHECK(x.mine && x.mine == x.others); /* or this test shows nothing */
    T_CHECKF(!x.had_sub, "a thread that has given up its sub has one");
    T_EQ(count(x.f).subs[SYMM_SUB_THREAD], 1); /* this one's: none was made that nobody closes */
    T_EQ(count(x.f).larges, 0);
    T_EQ(count(x.f).used, 512);
    T_EQ(pthread_key_delete(late_key), 0);
    close_fix(x.f);
}

/* ---- streams --------------------------------------------------------------------------------- */

static _Atomic int gate;

static void wait_gate(void *arg) {
    (void)arg;
    while (!atomic_load(&gate)) usleep(50);
}

/* An arena of one piece and two streams; s does not come on until the gate opens. */
typedef struct {
    fix *f;
    symmStream_t s, t;
} held;

static held open_held(uint64_t bytes) {
    held h = {.f = open_fix(bytes, 64 * KB, bytes, 0)};
    T_OK(symmStreamCreate(&h.s));
    T_OK(symmStreamCreate(&h.t));
    atomic_store(&gate, 0);
    T_OK(symmStreamHostFunc(h.s, wait_gate, NULL));
    return h;
}

static void close_held(held *h) {
    T_OK(symmStreamDestroy(h->s));
    T_OK(symmStreamDestroy(h->t));
    close_fix(h->f);
}

static void per_thread_to_stream_dealloc(void) {
    fix *f = open_fix(64 * MB, 64 * KB, 2 * MB, 0);
    symmStream_t s;
    T_OK(symmStreamCreate(&s));
    uint64_t a = take(f, 256), b = take_as(f, s, 256, U);
    T_CHECK(a / (64 * KB) != b / (64 * KB));
    T_OK(symm_arena_give(f->a, s, a)); /* the thread's block, freed on a stream */
    give(f, b);                        /* the stream's block, freed by the thread */
    uint64_t c = take(f, 256), d = take_as(f, s, 256, U);
    T_OK(symm_arena_give(f->a, s, c));
    T_OK(symm_arena_give(f->a, s, d));
    symm_arena_stream_end(f->a, s);
    T_OK(symmStreamDestroy(s));
    close_unused(f);
}

static _Atomic int order, first_at, second_at;
static void note(void *at) {
    atomic_store((_Atomic int *)at, atomic_fetch_add(&order, 1) + 1);
}

/* A large block freed on s and taken by t: t's later work comes after s's earlier work, and nobody
 * waited for it here. */
static void a_block_goes_from_stream_to_stream(void) {
    held h = open_held(4 * MB);
    T_OK(symmStreamHostFunc(h.s, note, &first_at));
    uint64_t a = take_as(h.f, h.s, 3 * MB, U);
    T_OK(symm_arena_give(h.f->a, h.s, a)); /* returns though s has not come so far */
    T_EQ(first_at, 0);
    uint64_t again = take_as(h.f, h.s, 3 * MB, U); /* the same stream: at once, no wait */
    T_EQ(again, a);
    T_EQ(h.f->a->waits, 0);
    T_OK(symm_arena_give(h.f->a, h.s, again));
    T_EQ(take_as(h.f, h.t, 3 * MB, U), a);
    T_EQ(h.f->a->waits, 1);
    T_OK(symmStreamHostFunc(h.t, note, &second_at));
    usleep(2000);
    T_EQ(second_at, 0);
    atomic_store(&gate, 1);
    T_OK(symmStreamSynchronize(h.t));
    T_CHECK(first_at == 1 && second_at == 2);
    close_held(&h);
}

/* A small block of t's sub, freed on s: t waits before it uses what s freed, and only then. */
static void a_free_on_another_stream_is_waited_for(void) {
    held h = open_held(64 * KB);
    uint64_t a = take_as(h.f, h.t, 32 * KB, U), b = take_as(h.f, h.t, 16 * KB, U);
    T_OK(symm_arena_give(h.f->a, h.s, a));
    T_EQ(count(h.f).used, 16 * KB);                   /* a is free, though t does not have it yet */
    T_EQ(take_as(h.f, h.t, 16 * KB, U), b + 16 * KB); /* there is other room: no wait */
    T_EQ(take_as(h.f, h.t, 16 * KB, U), a);
    T_EQ(h.f->a->waits, 1);
    T_OK(symmStreamHostFunc(h.t, note, &second_at));
    usleep(1000);
    T_EQ(second_at, 0);
    atomic_store(&gate, 1);
    T_OK(symmStreamSynchronize(h.t));
    T_EQ(second_at, 1);
    close_held(&h);
}

static void later_work_is_not_waited_for(void) {
    held h = open_held(4 * MB);
    atomic_store(&gate, 1);
    T_OK(symm_arena_give(h.f->a, h.s, take_as(h.f, h.s, 3 * MB, U)));
    T_OK(symmStreamSynchronize(h.s));
    atomic_store(&gate, 0);
    T_OK(symmStreamHostFunc(h.s, wait_gate, NULL));
    take_as(h.f, h.t, 3 * MB, U);     /* the same */
    T_OK(symmStreamSynchronize(h.t)); /* though the gate is shut: the point is that of the free */
    atomic_store(&gate, 1);
    close_held(&h);
}

/* The first stream's superblock, which went back, is waited for by the second. */
static void superblocks_carry_their_order(void) {
    held h = open_held(64 * KB);
    uint64_t a = take_as(h.f, h.s, 256, U);
    T_OK(symm_arena_give(h.f->a, h.s, a));
    symm_arena_defragment(h.f->a);
    T_EQ(count(h.f).supers, 0);
    T_EQ(take_as(h.f, h.t, 256, U), a);
    T_EQ(h.f->a->waits, 1);
    atomic_store(&gate, 1);
    close_held(&h);
}

/* Each stream gets the superblock again that it had, though a lower one is free: nobody waits. */
static void a_stream_gets_its_own_superblocks_again(void) {
    held h = open_held(128 * KB);
    uint64_t low = take_as(h.f, h.t, 256, U), high = take_as(h.f, h.s, 256, U);
    T_CHECK(low < high);
    T_OK(symm_arena_give(h.f->a, h.t, low));
    T_OK(symm_arena_give(h.f->a, h.s, high));
    symm_arena_defragment(h.f->a);
    T_EQ(count(h.f).supers, 0);
    T_EQ(take_as(h.f, h.s, 256, U), high);
    T_EQ(take_as(h.f, h.t, 256, U), low);
    T_EQ(h.f->a->waits, 0);
    atomic_store(&gate, 1);
    close_held(&h);
}

/* A stream ends while its work runs, with a block left in its superblock: what it freed there is
 * nobody's until that work is done. */
static void an_ended_streams_holes_wait_for_its_work(void) {
    held h = open_held(128 * KB);
    uint64_t a = take_as(h.f, h.s, 256, U), left = take_as(h.f, h.s, 256, U);
    T_OK(symm_arena_give(h.f->a, h.s, a));
    symm_arena_stream_end(h.f->a, h.s);
    T_EQ(count(h.f).subs[SYMM_SUB_ENDED], 1);
    uint64_t other = take_as(h.f, h.t, 256, U);
    T_CHECK(other / (64 * KB) != a / (64 * KB)); /* t could have it only behind s */
    atomic_store(&gate, 1);
    T_OK(symmStreamSynchronize(h.s));
    T_EQ(take(h.f, 256), a); /* this thread has taken over what s left */
    T_EQ(count(h.f).subs[SYMM_SUB_ENDED], 0);
    T_EQ(h.f->a->waits, 0);
    give(h.f, left);
    close_held(&h);
}

static void streams_that_are_gone_leave_their_keys(void) {
    fix *f = open_fix(64 * MB, 64 * KB, 2 * MB, 0);
    for (int i = 0; i < 50; i++) {
        symmStream_t s;
        T_OK(symmStreamCreate(&s));
        uint64_t a = take_as(f, s, 256, U);
        if (i % 2) T_OK(symm_arena_give(f->a, s, a));
        T_OK(symmStreamDestroy(s));
    }
    struct symm_arena_counts n = count(f);
    T_EQ(n.used, 25 * 256);
    T_CHECK(f->a->nsubs <= 2);
    T_EQ(n.subs[SYMM_SUB_STREAM], 1);
    T_CHECK(n.supers <= 2);
    close_fix(f);
}

/* 64 streams of blocks as asked for, not rounded, 16 MiB live over all of them: what their
 * superblocks hold over that, in thousandths. */
static uint64_t held_by_64_streams(uint64_t most, int each) {
    enum { N = 64, MOST_EACH = 512 };
    static struct { uint64_t off, bytes; } b[N][MOST_EACH];
    fix *f = open_fix(AK_GB, 16 * KB, 2 * MB, 0);
    symmStream_t s[N];
    uint64_t state = 3, live = 0;
    memset(b, 0, sizeof b);
    for (int i = 0; i < N; i++) T_OK(symmStreamCreate(&s[i]));
    for (int k = 0; k < (T_TSAN ? 2 : 5) * each; k++)
        for (int i = 0; i < N; i++) {
            uint64_t at = k < each ? (uint64_t)k : t_draw(&state, (uint64_t)each);
            if (k >= each) T_OK(symm_arena_give(f->a, s[i], b[i][at].off));
            live -= b[i][at].bytes;
            live += b[i][at].bytes = t_draw(&state, most) + 1;
            b[i][at].off = take_as(f, s[i], b[i][at].bytes, U);
        }
    T_CHECK(live > 15 * MB && live < 17 * MB);
    uint64_t held = count(f).assigned * 1000 / live;
    for (int i = 0; i < N; i++) T_OK(symmStreamDestroy(s[i]));
    close_fix(f);
    return held;
}

static void small_blocks_of_64_streams(void) {
    static const struct {
        uint64_t most, held; /* sizes 1 to most; thousandths */
    } row[] = {{1024, 1400}, /* 1250 of that is rounding to 256 */
               {4096, 1300},
               {16384, 1300}};
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        uint64_t held = held_by_64_streams(row[i].most, (int)(512 * KB / row[i].most));
        T_CHECKF(held <= row[i].held, "blocks of 1 to %llu bytes: %llu / 1000 of them is held",
                 (unsigned long long)row[i].most, (unsigned long long)held);
    }
}

/* A producer's stream fills blocks, a consumer's looks at them behind an event and frees them; one
 * thread gives work to each. */
enum { BOXES = 16, GOODS = 600, HELD_GOODS = 200, STORE = 512 << 10 };

typedef struct {
    uint64_t off, bytes;
    uint32_t id;
} goods;

typedef struct {
    fix *f;
    symmStream_t producer, consumer;
    symmEvent_t filled[BOXES];
    _Atomic int sent, taken, seen;
    uint64_t given; /* bytes handed out while the consumer's stream stood still */
    goods item[GOODS];
} trade;

static trade market;
/* A word of each unit; not atomic: streams have an order, or ThreadSanitizer says so. */
static uint32_t content[STORE / SYMM_ARENA_UNIT];

static void fill(void *arg) {
    const goods *g = arg;
    for (uint64_t u = g->off / U; u * U < g->off + g->bytes; u++) content[u] = g->id;
}

static void look(void *arg) {
    const goods *g = arg;
    for (uint64_t u = g->off / U; u * U < g->off + g->bytes; u++)
        T_CHECKF(content[u] == g->id, "block %u at %llu holds %u at %llu", g->id,
                 (unsigned long long)g->off, content[u], (unsigned long long)(u * U));
    atomic_fetch_add(&market.seen, 1);
}

static void produce(trade *m) {
    uint64_t state = 17;
    for (int i = 0; i < GOODS; i++) {
        goods *g = &m->item[i];
        while (i - atomic_load(&m->taken) >= BOXES) sched_yield();
        g->id = (uint32_t)i + 1;
        g->bytes = i % 10 ? t_draw(&state, 9000) + 1 : 40 * KB; /* those are from the global part */
        g->off = take_as(m->f, m->producer, g->bytes, U);
        T_OK(symmStreamHostFunc(m->producer, fill, g));
        T_OK(symmEventRecord(m->filled[i % BOXES], m->producer));
        atomic_store(&m->sent, i + 1);
    }
}

static void consume(trade *m) {
    for (int i = 0; i < GOODS; i++) {
        goods *g = &m->item[i];
        while (atomic_load(&m->sent) <= i) sched_yield();
        T_OK(symmStreamWaitEvent(m->consumer, m->filled[i % BOXES]));
        T_OK(symmStreamHostFunc(m->consumer, look, g));
        T_OK(symm_arena_give(m->f->a, m->consumer, g->off)); /* before it has been looked at */
        if (i < HELD_GOODS) m->given += g->bytes;
        atomic_store(&m->taken, i + 1);
        if (i + 1 != HELD_GOODS) continue;
        T_EQ(atomic_load(&m->seen), 0);
        T_CHECK(m->given > STORE); /* the same bytes were handed out again, and nobody has waited */
        usleep(2000);              /* time to go wrong */
        atomic_store(&gate, 1);
    }
}

static void one_of_both(int rank, int n, void *arg) {
    (void)n;
    if (rank)
        consume(arg);
    else
        produce(arg);
}

/* What the producer's stream writes into a block that was freed comes after all that the consumer's
 * was to read there, though that one stands still when the block is freed. */
static void producer_and_consumer_on_two_streams(void) {
    trade *m = &market;
    m->f = open_fix(STORE, 16 * KB, STORE, 0);
    T_OK(symmStreamCreate(&m->producer));
    T_OK(symmStreamCreate(&m->consumer));
    for (int i = 0; i < BOXES; i++) T_OK(symmEventCreate(&m->filled[i]));
    atomic_store(&gate, 0);
    T_OK(symmStreamHostFunc(m->consumer, wait_gate, NULL));
    T_THREADS(2, one_of_both, m);
    T_OK(symmStreamSynchronize(m->consumer));
    T_EQ(m->seen, GOODS);
    T_CHECK(m->f->a->waits > 0);
    symm_arena_stream_end(m->f->a, m->producer);
    T_OK(symmStreamDestroy(m->producer));
    T_OK(symmStreamDestroy(m->consumer));
    for (int i = 0; i < BOXES; i++) T_OK(symmEventDestroy(m->filled[i]));
    close_unused(m->f);
}

/* ---- stripes --------------------------------------------------------------------------------- */

enum { STRIPES = 4 };
typedef struct {
    fix *f;
    uint64_t sum[STRIPES];
    int skew;
} striped;

static void use_stripe(int rank, int n, void *arg) {
    striped *x = arg;
    uint64_t state = 11 + (uint64_t)rank, off[32] = {0};
    (void)n;
    for (int i = 0; i < 3000; i++) {
        uint64_t k = t_draw(&state, 32);
        if ((i + rank) % x->skew == 0) sched_yield();
        if (off[k]) {
            give(x->f, off[k] - 1);
            off[k] = 0;
        } else {
            T_OK(symm_arena_take_on(x->f->a, rank, t_draw(&state, 16 * KB) + 1,
                                    U << t_draw(&state, 5), &off[k]));
            x->sum[rank] = (x->sum[rank] ^ ++off[k]) * 0x9e3779b97f4a7c15ull;
        }
    }
}

static void offsets_on_stripes_do_not_depend_on_timing(void) {
    striped a = {.skew = 1}, b = {.skew = 7};
    a.f = open_fix(64 * MB, 64 * KB, 2 * MB, STRIPES);
    b.f = open_fix(64 * MB, 64 * KB, 2 * MB, STRIPES);
    T_THREADS(STRIPES, use_stripe, &a);
    T_THREADS(STRIPES, use_stripe, &b);
    for (int i = 0; i < STRIPES; i++) T_CHECK(a.sum[i] == b.sum[i] && a.sum[i]);
    close_fix(a.f);
    close_fix(b.f);
}

static void stripe_i_owns_superblocks_i_and_i_plus_k(void) {
    fix *f = open_fix(MB + 64 * KB, 64 * KB, 2 * MB, STRIPES); /* 17: one is left over */
    for (int i = 0; i < STRIPES; i++) {
        uint64_t off;
        for (int k = 0; k < 4; k++) {
            T_OK(symm_arena_take_on(f->a, i, 64 * KB, U, &off));
            T_EQ(off, (uint64_t)(i + k * STRIPES) * 64 * KB);
        }
    }
    T_EQ(count(f).supers, 16);
    close_fix(f);
}

T_MAIN(T(four_threads_defragment), T(blocks_freed_by_other_threads), T(one_of_two_frees_wins),
       T(thread_exit_cleans_several_arenas), T(a_destructor_that_runs_late_has_no_sub),
       T(per_thread_to_stream_dealloc), T(a_block_goes_from_stream_to_stream),
       T(a_free_on_another_stream_is_waited_for), T(later_work_is_not_waited_for),
       T(superblocks_carry_their_order), T(a_stream_gets_its_own_superblocks_again),
       T(an_ended_streams_holes_wait_for_its_work), T(streams_that_are_gone_leave_their_keys),
       T(small_blocks_of_64_streams), T(producer_and_consumer_on_two_streams),
       T(offsets_on_stripes_do_not_depend_on_timing), T(stripe_i_owns_superblocks_i_and_i_plus_k))
