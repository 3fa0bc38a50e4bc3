/* unit_arena_shared.c - blocks that a thread frees and another one took: kept for the thread's next
 * calls, given to their owner when they are too many or the thread ends, whoever ends first.
 * Over offsets. */
#include <sched.h>

#include "arena_fix.h"

enum { MANY = 1000, FEW = 40, ROUNDS = 30, BYTES = 512 };

typedef struct {
    fix *f;
    uint64_t off[MANY];
    pthread_barrier_t meet;
    symmStream_t stream;
} pair;

static void meet(pair *p) {
    pthread_barrier_wait(&p->meet);
}

static pair *open_pair(void) {
    pair *p = calloc(1, sizeof *p);
    T_CHECK(p != NULL);
    p->f = open_fix(64 * MB, 64 * KB, 2 * MB, 0);
    pthread_barrier_init(&p->meet, NULL, 2);
    return p;
}

/* Nothing is left, wherever it was. */
static void close_pair(pair *p) {
    T_EQ(count(p->f).used, 0);
    T_EQ(count(p->f).kept, 0);
    symm_arena_trim(p->f->a);
    T_EQ(count(p->f).held, 0);
    pthread_barrier_destroy(&p->meet);
    close_fix(p->f);
    free(p);
}

static void take_all(pair *p, int n) {
    for (int i = 0; i < n; i++) p->off[i] = take(p->f, BYTES);
}
static void give_all(pair *p, int n) {
    for (int i = 0; i < n; i++) give(p->f, p->off[i]);
}
static void have_a_sub(pair *p) {
    give(p->f, take(p->f, 4 * KB));
}

static void keep_others(int rank, int n, void *arg) {
    pair *p = arg;
    (void)n;
    have_a_sub(p);
    if (!rank) take_all(p, FEW);
    meet(p);
    if (rank) {
        give_all(p, FEW);
        T_EQ(count(p->f).used, 0);
        T_EXPECT_WARNINGS();
        T_EQ(symm_arena_give(p->f->a, NULL, p->off[3]), symmInvalidArgument); /* freed already */
        for (int i = FEW; i-- > 0;) T_EQ(take(p->f, BYTES), p->off[i]);
        T_EQ(count(p->f).used, (uint64_t)FEW * BYTES);
        give_all(p, FEW);
    }
    meet(p);
}
static void what_a_thread_frees_it_takes_again(void) {
    pair *p = open_pair();
    T_THREADS(2, keep_others, p);
    close_pair(p);
}

/* More than is kept. */
static void one_way(int rank, int n, void *arg) {
    pair *p = arg;
    uint64_t supers = 0;
    (void)n;
    have_a_sub(p);
    for (int round = 0; round < ROUNDS; round++) {
        if (!rank) take_all(p, MANY);
        if (!rank && round == 2) supers = count(p->f).supers;
        meet(p);
        if (rank) give_all(p, MANY);
        meet(p);
    }
    if (rank) return;
    T_CHECKF(count(p->f).supers <= supers, "%llu superblocks, and %llu after two rounds",
             (unsigned long long)count(p->f).supers, (unsigned long long)supers);
    T_CHECK(supers >= MANY * BYTES / (64 * KB));
}
static void what_is_too_much_goes_to_its_owner(void) {
    pair *p = open_pair();
    T_THREADS(2, one_way, p);
    close_pair(p);
}

/* ---- threads that end ------------------------------------------------------------------------ */

static void *free_and_end(void *arg) {
    pair *p = arg;
    have_a_sub(p);
    give_all(p, FEW);
    return NULL;
}
static void in_a_thread(void *(*fn)(void *), pair *p) {
    pthread_t t;
    T_EQ(pthread_create(&t, NULL, fn, p), 0);
    T_EQ(pthread_join(t, NULL), 0);
}

/* Runs in a thread of its own, so that what it keeps is nobody's afterwards. */
static void owner_goes_on(int rank, int n, void *arg) {
    pair *p = arg;
    (void)rank, (void)n;
    take_all(p, FEW);
    in_a_thread(free_and_end, p);
    T_EQ(count(p->f).used, 0); /* though it has not looked for some yet */
    const uint64_t supers = count(p->f).supers;
    take_all(p, FEW);
    T_EQ(count(p->f).used, (uint64_t)FEW * BYTES);
    T_CHECK(count(p->f).supers <= supers);
    give_all(p, FEW);
}
static void the_keeper_ends_first(void) {
    pair *p = open_pair();
    T_THREADS(1, owner_goes_on, p);
    close_pair(p);
}

/* What was kept is in a sub that has ended since, or that a stream has taken over, and goes
 * there. */
static void owner_ends(int rank, int n, void *arg) {
    pair *p = arg;
    (void)n;
    have_a_sub(p);
    if (!rank) take_all(p, FEW);
    meet(p);
    if (rank) give_all(p, FEW / 2);
    meet(p);
    if (!rank) return;
    while (count(p->f).subs[SYMM_SUB_ENDED] == 0) sched_yield();
    T_EQ(take(p->f, BYTES), p->off[FEW / 2 - 1]); /* still kept, and to be had */
    give(p->f, p->off[FEW / 2 - 1]); /* as all of its owner from now on, it is not kept */
    for (int i = FEW / 2; i < FEW; i++) give(p->f, p->off[i]);
    T_EQ(count(p->f).kept, 4 * KB + (FEW / 2 - 1) * (uint64_t)BYTES);
    T_EQ(count(p->f).used, 0);
    if (!p->stream) return;
    const uint64_t off = take_as(p->f, p->stream, BYTES, U);
    T_EQ(count(p->f).subs[SYMM_SUB_ENDED], 0);
    T_OK(symm_arena_give(p->f->a, p->stream, off));
}
static void the_owner_ends_first(void) {
    pair *p = open_pair();
    T_THREADS(2, owner_ends, p);
    close_pair(p);
}
static void a_stream_has_the_owners_place(void) {
    pair *p = open_pair();
    T_OK(symmStreamCreate(&p->stream));
    T_THREADS(2, owner_ends, p);
    symm_arena_stream_end(p->f->a, p->stream);
    T_OK(symmStreamDestroy(p->stream));
    close_pair(p);
}

/* ---- more threads than an arena knows by address; addresses that other threads had ----------- */

enum { CROWD = SYMM_THREAD_SLOTS + 16, IN_A_ROW = 100 };

static void one_of_many(int rank, int n, void *arg) {
    pair *p = arg;
    (void)n;
    have_a_sub(p);
    symm_sub *mine = symm_sub_mine(p->f->a);
    T_CHECK(mine && symm_sub_is(mine, NULL));
    p->off[rank] = take(p->f, BYTES);
    meet(p);
    if (rank == 0) T_EQ(count(p->f).subs[SYMM_SUB_THREAD], CROWD);
    for (int i = 0; i < CROWD; i++) T_CHECK(i == rank || p->off[i] != p->off[rank]);
    for (int i = 0; i < 100; i++) { /* what it freed last is what it gets, and nobody else */
        uint64_t off = take(p->f, BYTES);
        give(p->f, off);
        T_EQ(take(p->f, BYTES), off);
        give(p->f, off);
    }
    T_CHECK(symm_sub_mine(p->f->a) == mine);
    meet(p);
    give(p->f, p->off[(rank + 1) % CROWD]);
}
static void each_of_many_threads_has_its_own(void) {
    pair *p = open_pair();
    pthread_barrier_destroy(&p->meet);
    pthread_barrier_init(&p->meet, NULL, CROWD);
    T_THREADS(CROWD, one_of_many, p);
    close_pair(p);
}

static void *comes_and_goes(void *arg) {
    pair *p = arg;
    T_CHECK(symm_sub_mine(p->f->a) == NULL);
    have_a_sub(p);
    T_CHECK(symm_sub_mine(p->f->a) != NULL);
    return NULL;
}
static void a_threads_address_is_not_its_name(void) {
    pair *p = open_pair();
    for (int i = 0; i < IN_A_ROW; i++) in_a_thread(comes_and_goes, p);
    T_EQ(count(p->f).subs[SYMM_SUB_THREAD], 0);
    T_EQ(count(p->f).subs[SYMM_SUB_ENDED], 1);
    close_pair(p);
}

T_MAIN(T(what_a_thread_frees_it_takes_again), T(what_is_too_much_goes_to_its_owner),
       T(the_keeper_ends_first), T(the_owner_ends_first), T(a_stream_has_the_owners_place),
       T(each_of_many_threads_has_its_own), T(a_threads_address_is_not_its_name))
