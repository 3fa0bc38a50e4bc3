/* unit_arena_bins.c - what threads keep for their next calls: it is bounded, trim and a call that
 * finds no memory take it back from all threads, idle ones and running ones. Over offsets. */
#include <sched.h>
#include <unistd.h>

#include "arena_fix.h"

enum { MANY = T_TSAN ? 20000 : 100000, SIZE = 512 };

static void shuffle(uint64_t *off, uint64_t n) {
    uint64_t state = 3;
    for (uint64_t i = n; i > 1; i--) {
        const uint64_t k = t_draw(&state, i), was = off[i - 1];
        off[i - 1] = off[k];
        off[k] = was;
    }
}

/* A thread frees all its blocks, in whatever order; then trim leaves nothing. */
static void trim_empties_the_callers_bins(void) {
    static uint64_t off[MANY];
    fix *f = open_fix(AK_GB, 16 * KB, 2 * MB, 0);
    for (int i = 0; i < MANY; i++) off[i] = take(f, SIZE);
    T_CHECK(count(f).held >= (uint64_t)MANY * SIZE);
    shuffle(off, MANY);
    for (int i = 0; i < MANY; i++) give(f, off[i]);
    T_CHECK(count(f).kept > 0);
    const uint64_t held = count(f).held;
    T_EQ(symm_arena_trim(f->a), held);
    T_EQ(count(f).kept, 0);
    T_EQ(count(f).held, 0);
    close_fix(f);
}

/* What a thread keeps and does not need goes back after some calls, though the thread is busy with
 * other sizes. */
static void unused_blocks_leave_the_bins(void) {
    enum { EACH = 20, SIZES = 40 };
    fix *f = open_fix(64 * MB, 16 * KB, 2 * MB, 0);
    uint64_t off[SIZES * EACH];
    for (int i = 0; i < SIZES * EACH; i++) off[i] = take(f, U * (uint64_t)(i % SIZES + 1));
    shuffle(off, SIZES * EACH);
    for (int i = 0; i < SIZES * EACH; i++) give(f, off[i]);
    const uint64_t kept = count(f).kept, supers = count(f).supers;
    T_CHECK(kept > 100 * KB && supers > 10);
    for (int i = 0; i < 3 * SYMM_KEEP_CALLS; i++) give(f, take(f, SIZE));
    T_CHECKF(count(f).kept <= SIZE, "%llu bytes are kept, %llu before",
             (unsigned long long)count(f).kept, (unsigned long long)kept);
    T_CHECK(count(f).supers <= 2);
    close_fix(f);
}

/* ---- other threads --------------------------------------------------------------------------- */

typedef struct {
    fix *f;
    pthread_barrier_t meet;
    _Atomic int stop;
    _Atomic uint64_t wholes;
    int trims;
} crowd;

/* An idle thread keeps a block, of its own and of another's: the whole arena is to be had all the
 * same. */
static void be_idle(int rank, int n, void *arg) {
    crowd *c = arg;
    static uint64_t others[8];
    (void)n;
    if (rank) {
        for (int i = 0; i < 8; i++) others[i] = take(c->f, SIZE);
        pthread_barrier_wait(&c->meet);
        pthread_barrier_wait(&c->meet); /* the other one has freed them, and is idle */
        if (c->trims) T_EQ(symm_arena_trim(c->f->a), 4 * MB);
        const uint64_t all = take(c->f, 4 * MB);
        T_EQ(count(c->f).kept, 0);
        give(c->f, all);
        pthread_barrier_wait(&c->meet);
        return;
    }
    for (int i = 0; i < 30; i++) give(c->f, take(c->f, U * (uint64_t)(i + 1)));
    pthread_barrier_wait(&c->meet);
    for (int i = 0; i < 8; i++) give(c->f, others[i]);
    T_CHECK(count(c->f).kept > 0);
    pthread_barrier_wait(&c->meet);
    pthread_barrier_wait(&c->meet);
    give(c->f, take(c->f, SIZE)); /* it goes on */
}
static void idle_threads_give_back(void) {
    static crowd c;
    for (c.trims = 0; c.trims < 2; c.trims++) {
        c.f = open_fix(4 * MB, 16 * KB, c.trims ? 4 * MB : 2 * MB, 0);
        pthread_barrier_init(&c.meet, NULL, 2);
        T_THREADS(2, be_idle, &c);
        pthread_barrier_destroy(&c.meet);
        T_EQ(count(c.f).used, 0);
        close_fix(c.f);
    }
}

/* A mark for each unit at which a block begins while somebody has it: two owners would meet. The
 * limit is 8 MiB of the kit's 1 GiB, anywhere in it. */
static _Atomic unsigned char marks[AK_GB / SYMM_ARENA_UNIT];

static void keep_using(int rank, int n, void *arg) {
    crowd *c = arg;
    uint64_t off[16] = {0}, state = 17 + (uint64_t)rank, all;
    (void)n;
    if (rank == 0) { /* takes from the others what they keep, again and again */
        for (int i = 0; i < (T_TSAN ? 300 : 1500); i++) {
            if (i % 2) symm_arena_trim(c->f->a);
            if (symm_arena_take(c->f->a, NULL, 7 * MB, U, &all)) continue;
            atomic_fetch_add(&c->wholes, 1);
            give(c->f, all);
        }
        atomic_store(&c->stop, 1);
        return;
    }
    while (!atomic_load(&c->stop)) {
        for (int i = 0; i < 200; i++) {
            const uint64_t k = t_draw(&state, 16);
            if (off[k]) {
                T_EQ(atomic_exchange(&marks[(off[k] - 1) / U], 0), 1);
                give(c->f, off[k] - 1);
                off[k] = 0;
            } else if (!symm_arena_take(c->f->a, NULL, t_draw(&state, 3000) + 1, U, &off[k])) {
                T_EQ(atomic_exchange(&marks[off[k] / U], 1), 0);
                off[k]++;
            }
        }
        sched_yield();
    }
    for (int k = 0; k < 16; k++) {
        if (!off[k]) continue;
        T_EQ(atomic_exchange(&marks[(off[k] - 1) / U], 0), 1);
        give(c->f, off[k] - 1);
    }
}

/* Nothing but bins: the thread is in them most of the time. */
static void keep_keeping(int rank, int n, void *arg) {
    crowd *c = arg;
    uint64_t off[8];
    (void)n;
    for (int i = 0; rank == 0 && i < 300; i++) {
        for (int k = 0; k < 100 && !atomic_load(&c->wholes); k++) usleep(20);
        atomic_store(&c->wholes, 0); /* the other one has used them since */
        symm_arena_reclaim(c->f->a);
    }
    if (rank == 0) atomic_store(&c->stop, 1);
    while (rank && !atomic_load(&c->stop)) {
        for (int i = 0; i < 8; i++) off[i] = take(c->f, SIZE);
        for (int i = 0; i < 8; i++) {
            T_EQ(atomic_exchange(&marks[off[i] / U], 1), 0);
            T_EQ(atomic_exchange(&marks[off[i] / U], 0), 1);
        }
        for (int i = 0; i < 8; i++) give(c->f, off[i]);
        atomic_store(&c->wholes, 1);
    }
}

/* Threads that use their bins meanwhile lose nothing, and no block has two owners. */
static void running_threads_give_back(void) {
    static crowd c;
    T_EXPECT_WARNINGS();
    c.f = open_fix(8 * MB, 16 * KB, 2 * MB, 0);
    for (int fenced = symm_bins_fenced; fenced >= 0; fenced--) { /* without membarrier, too */
        symm_bins_fenced = fenced;
        atomic_store(&c.stop, 0);
        memset((void *)marks, 0, sizeof marks);
        T_THREADS(2, keep_keeping, &c);
        atomic_store(&c.stop, 0);
        T_THREADS(4, keep_using, &c);
        T_EQ(count(c.f).used, 0);
        T_EQ(count(c.f).kept, 0);
    }
    T_CHECK(c.wholes > 0);
    symm_arena_trim(c.f->a);
    T_EQ(count(c.f).held, 0);
    close_fix(c.f);
}

T_MAIN(T(trim_empties_the_callers_bins), T(unused_blocks_leave_the_bins), T(idle_threads_give_back),
       T(running_threads_give_back))
