/* unit_lane_order.c - many lanes of one heap take each other's bytes: who waits for whom, how
 * often, and for whom nobody waits. One rank, host streams; the same decisions on GPUs:
 * unit_gpu_lane.c. The test's thread drives all; tasks run in the streams' threads. T_SEED:
 * another game. */
#include <unistd.h>

#include "host/heap/heap.h"
#include "lane_kit.h"
#include "trace.h"

#define PART (64 * LK_KB)

static uint64_t follows(const lk *k) {
    uint64_t n = 0;
    for (int i = 0; i < k->lanes; i++) n += k->lane[i] ? lk_info(k->lane[i]).follows : 0;
    return n;
}

/* ---- how often ------------------------------------------------------------------------------- */

/* A block for which there is room once: each lane is behind all that had it before, by one wait. */
static void one_wait_stands_for_all_who_gave_before(void) {
    enum { LANES = 16, LAPS = 4, BYTES = 48 << 20 };
    lk k;
    lk_gate gate = {0};
    lk_alone(&k, LANES);
    lk_hold(k.stream[0], &gate);
    for (int turn = 0; turn < LAPS * LANES; turn++) {
        const int i = turn % LANES;
        char *p = lk_local(k.lane[i], BYTES);
        if (turn) lk_check(k.stream[i], p, PART, turn - 1);
        lk_fill(k.stream[i], p, PART, turn);
        lk_free(k.lane[i], p);
        T_EQ(follows(&k), turn);
    }
    while (!atomic_load(&gate.reached)) sched_yield();
    usleep(20000); /* they would be through by now, if nothing held them */
    for (int i = 0; i < LANES; i++) T_EQ(symmStreamQuery(k.stream[i]), symmInProgress);
    atomic_store(&gate.open, 1);
    lk_close(&k);
}

/* Two lanes that have followed nobody give; the first is held up. */
static void a_mark_stands_for_nobody_whom_its_lane_has_not_followed(void) {
    enum { HALF = 28 << 20 };
    for (int held = 0; held < 2; held++) {
        lk k;
        lk_gate gate = {0};
        lk_alone(&k, 4);
        char *a = lk_local(k.lane[0], HALF), *b = lk_local(k.lane[1], HALF);
        lk_hold(k.stream[held], &gate);
        lk_fill(k.stream[0], a, PART, 1);
        lk_fill(k.stream[1], b, PART, 2);
        lk_free(k.lane[0], a);
        lk_free(k.lane[1], b);
        char *c = lk_local(k.lane[2], 2 * HALF); /* of both: they are made to give */
        T_CHECK(c == (a < b ? a : b));
        lk_fill(k.stream[2], c, PART, 3);
        T_EQ(lk_info(k.lane[2]).follows, 2);
        lk_free(k.lane[2], c);
        c = lk_local(k.lane[3], 2 * HALF); /* from lane 2, which is behind both */
        lk_check(k.stream[3], c, PART, 3);
        T_EQ(lk_info(k.lane[3]).follows, 1);
        while (!atomic_load(&gate.reached)) sched_yield();
        usleep(20000);
        T_EQ(symmStreamQuery(k.stream[2]), symmInProgress);
        T_EQ(symmStreamQuery(k.stream[3]), symmInProgress);
        atomic_store(&gate.open, 1);
        lk_free(k.lane[3], c);
        lk_close(&k);
    }
}

/* Lane 1 has followed and given, and lane 3 has only followed; what they are given later holds
 * nobody up. */
static void later_work_and_lanes_that_only_took_are_not_waited_for(void) {
    enum { BYTES = 60 << 20 };
    lk k;
    lk_gate gate[2] = {{0}};
    lk_alone(&k, 4);
    lk_free(k.lane[0], lk_local(k.lane[0], BYTES));
    char *small = lk_local(k.lane[3], 30 << 20); /* lane 0 is made to give */
    T_EQ(lk_info(k.lane[3]).follows, 1);
    lk_hold(k.stream[3], &gate[0]);
    lk_free(k.lane[1], lk_local(k.lane[1], 30 << 20));
    char *p = lk_local(k.lane[2], 30 << 20); /* and lane 1 */
    lk_hold(k.stream[1], &gate[1]);
    lk_fill(k.stream[2], p, PART, 1);
    T_OK(symmStreamSynchronize(k.stream[2]));
    lk_free(k.lane[2], p);
    p = lk_local(k.lane[0], 30 << 20);
    lk_fill(k.stream[0], p, PART, 2);
    T_OK(symmStreamSynchronize(k.stream[0])); /* though two are held up */
    for (int i = 0; i < 2; i++) {
        while (!atomic_load(&gate[i].reached)) sched_yield();
        atomic_store(&gate[i].open, 1);
    }
    lk_free(k.lane[0], p);
    lk_free(k.lane[3], small);
    lk_close(&k);
}

/* Bytes of the pool that nobody has given: lane 0, which has given others, is held up, and lane 1
 * need not wait. */
static void bytes_that_nobody_gave_are_had_at_once(void) {
    lk k;
    lk_gate gate = {0};
    lk_alone(&k, 2);
    void *wall[2]; /* so that the pieces do not join */
    char *a = lk_sym(k.lane[0], 256);
    T_OK(symmHeapAlloc(k.heap, 256, 0, SYMM_ALLOC_SYM, &wall[0]));
    char *b = lk_sym(k.lane[0], LK_MB); /* a piece each; a's has room */
    T_OK(symmHeapAlloc(k.heap, 256, 0, SYMM_ALLOC_SYM, &wall[1]));
    lk_hold(k.stream[0], &gate);
    lk_fill(k.stream[0], b, PART, 1);
    lk_free(k.lane[0], b);
    char *c = lk_sym(k.lane[0], 2 * LK_MB), *d = lk_sym(k.lane[1], 512); /* b is given */
    T_CHECK(d == a + 256 && lk_info(k.lane[0]).symKept == 0);
    T_EQ(follows(&k), 0);
    lk_fill(k.stream[1], d, 512, 2);
    T_OK(symmStreamSynchronize(k.stream[1]));
    char *e = lk_sym(k.lane[1], 3 * LK_MB / 4); /* of b */
    T_CHECK(e >= b && e < b + LK_MB);
    T_EQ(follows(&k), 1);
    lk_fill(k.stream[1], e, PART, 3);
    usleep(20000);
    T_EQ(symmStreamQuery(k.stream[1]), symmInProgress);
    atomic_store(&gate.open, 1);
    lk_free(k.lane[0], a), lk_free(k.lane[0], c), lk_free(k.lane[1], d), lk_free(k.lane[1], e);
    for (int i = 0; i < 2; i++) T_OK(symmHeapFree(k.heap, wall[i]));
    lk_close(&k);
}

/* More blocks are given than are known one by one. The lowest is the first of them. */
static void bytes_that_were_given_long_ago_are_waited_for(void) {
    enum { MANY = SYMM_MEMLANE_GIVEN + 128 };
    lk k;
    lk_gate gate = {0};
    char *p[MANY], *next;
    lk_alone(&k, 2);
    for (int i = 0; i < MANY; i++) p[i] = lk_sym(k.lane[0], PART);
    lk_hold(k.stream[0], &gate);
    for (int i = MANY; i-- > 0;) {
        if (i == 64) lk_fill(k.stream[0], p[i], PART, 1);
        lk_free(k.lane[0], p[i]);
    }
    char *q = lk_sym(k.lane[0], 64 * PART); /* none is as large: they are given */
    T_CHECK(q == p[0]);
    next = lk_sym(k.lane[1], PART);
    T_CHECK(next == q + 64 * PART);
    T_EQ(lk_info(k.lane[1]).follows, 1);
    lk_fill(k.stream[1], next, PART, 2);
    usleep(20000);
    T_EQ(symmStreamQuery(k.stream[1]), symmInProgress);
    atomic_store(&gate.open, 1);
    lk_free(k.lane[0], q), lk_free(k.lane[1], next);
    lk_close(&k);
}

/* A stream may get the handle of one that is gone; its new lane is behind nothing. */
static void a_new_lane_has_followed_nobody(void) {
    enum { BYTES = 48 << 20 };
    lk k;
    lk_gate gate = {0};
    lk_alone(&k, 2);
    char *p = lk_local(k.lane[1], BYTES);
    lk_hold(k.stream[1], &gate);
    lk_fill(k.stream[1], p, PART, 1);
    lk_free(k.lane[1], p);
    T_OK(symmLaneDestroy(k.lane[1])); /* lane 0 is behind it */
    symmStream_t old = k.stream[1];
    T_OK(symmStreamCreate(&k.stream[1]));
    T_OK(symmLaneCreate(k.heap, k.stream[1], &k.lane[1]));
    p = lk_local(k.lane[1], BYTES);
    lk_fill(k.stream[1], p, PART, 2);
    T_EQ(lk_info(k.lane[1]).follows, 1);
    usleep(20000);
    T_EQ(symmStreamQuery(k.stream[1]), symmInProgress);
    atomic_store(&gate.open, 1);
    T_OK(symmStreamSynchronize(old));
    T_OK(symmStreamDestroy(old));
    lk_free(k.lane[1], p);
    lk_close(&k);
}

/* 64 lanes that replace blocks of their own, of any size, 15 each. At most one wait or mark in two
 * calls, and three tenths more held than is in use. */
static void many_lanes_wait_seldom_and_keep_little(void) {
    enum { BLOCKS = 15, MAX = 80 << 10, STEPS = 150 };
    lk k;
    lk_alone(&k, LK_LANES);
    trace t = trace_streams(LK_LANES, BLOCKS, STEPS, MAX, 5);
    struct {
        char *p;
        uint32_t lane;
    } *at = calloc(t.ids, sizeof *at);
    T_CHECK(at != NULL);
    for (size_t i = 0; i < t.n; i++) {
        const trace_event *e = &t.at[i];
        if (e->op == TRACE_TAKE)
            at[e->id].p = lk_local(k.lane[at[e->id].lane = e->stream], e->bytes);
        else
            lk_free(k.lane[e->stream], at[e->id].p), at[e->id].p = NULL;
    }
    const symm_mempool *p = &symm_memlane_peek(k.lane[0])->set->pool[SYMM_MEM_LOCAL];
    const uint64_t events = follows(&k) + p->gives; /* each is a call of the driver on a GPU */
    T_CHECKF(events * 2 < t.n, "%llu waits and marks in %zu calls", (unsigned long long)events,
             t.n);
    T_CHECKF(p->reserved * 10 < t.peak_live * 13, "%llu held, %llu in use",
             (unsigned long long)p->reserved, (unsigned long long)t.peak_live);
    for (uint32_t i = 0; i < t.ids; i++)
        if (at[i].p) lk_free(k.lane[at[i].lane], at[i].p);
    free(t.at);
    free(at);
    lk_close(&k);
}

/* Its heir stands for a lane that has ended, and for what that one had given. */
static void the_heir_stands_for_a_lane_that_has_ended(void) {
    enum { BYTES = 48 << 20 };
    lk k;
    lk_gate gate = {0};
    lk_alone(&k, 4);
    for (int i = 0; i < 3; i++) {
        if (i == 1) lk_hold(k.stream[1], &gate);
        lk_free(k.lane[i], lk_local(k.lane[i], BYTES));
    }
    for (int i = 1; i < 3; i++) {
        T_OK(symmLaneDestroy(k.lane[i]));
        k.lane[i] = NULL;
    }
    char *p = lk_local(k.lane[3], BYTES);
    lk_fill(k.stream[3], p, PART, 1);
    T_EQ(lk_info(k.lane[3]).follows, 1); /* lane 0, which has come behind them */
    while (!atomic_load(&gate.reached)) sched_yield();
    usleep(20000);
    T_EQ(symmStreamQuery(k.stream[3]), symmInProgress);
    atomic_store(&gate.open, 1);
    lk_free(k.lane[3], p);
    lk_close(&k);
}

/* ---- at random ------------------------------------------------------------------------------- */

enum { LANES = 12, LIVE = 6, UNIT = 128, UNITS = 256 << 20 >> 7 };

typedef struct {
    char *at;
    uint64_t unit, units;
    int id;
} block;

typedef struct {
    lk k;
    block live[LANES][LIVE];
    uint64_t seed;
    int blocks;
} game;

static _Atomic int *owner; /* by unit of the heap; 0: nobody uses it */

static unsigned draw(game *g, unsigned below) {
    return (unsigned)t_draw(&g->seed, below);
}

static symmResult_t begin_task(void *args) {
    const block *b = args;
    for (uint64_t u = b->unit; u < b->unit + b->units; u++) {
        const int had = atomic_exchange_explicit(&owner[u], b->id, memory_order_relaxed);
        T_CHECKF(!had, "block %d has unit %llu, which block %d uses", b->id, (unsigned long long)u,
                 had);
    }
    return symmSuccess;
}
static symmResult_t end_task(void *args) {
    const block *b = args;
    for (uint64_t u = b->unit; u < b->unit + b->units; u++) {
        const int had = atomic_exchange_explicit(&owner[u], 0, memory_order_relaxed);
        T_CHECKF(had == b->id, "unit %llu of block %d is block %d's", (unsigned long long)u, b->id,
                 had);
    }
    return symmSuccess;
}
static void give_task(symmStream_t s, symmResult_t (*fn)(void *), block *b) {
    T_OK(symm_stream_submit(s, fn, b, sizeof *b));
}

static void nap(void *arg) {
    usleep((useconds_t)(uintptr_t)arg);
}

static void take(game *g, int lane, block *b) {
    const size_t small = draw(g, 5) ? 8 : 1; /* lanes give these smaller units */
    const size_t bytes = (1 + draw(g, draw(g, 3) ? 16 : 256)) * small * UNIT;
    const symm_memlane *l = symm_memlane_peek(g->k.lane[lane]);
    b->at = lk_alloc(g->k.lane[lane], bytes, draw(g, 4) ? SYMM_ALLOC_LOCAL : SYMM_ALLOC_SYM);
    b->unit = symm_heap_offset(l->set->heap, b->at) / UNIT;
    b->units = bytes / UNIT;
    b->id = ++g->blocks;
    T_CHECK(b->unit + b->units <= UNITS);
    give_task(g->k.stream[lane], begin_task, b);
}

/* On its own lane, or on another one behind its own; either way the stream that frees may be held
 * up. */
static void drop(game *g, int lane, block *b) {
    int on = draw(g, 6) ? lane : (int)draw(g, LANES);
    if (!g->k.lane[on]) on = lane;
    if (on != lane) lk_order(g->k.stream[lane], g->k.stream[on]);
    if (!draw(g, 4))
        T_OK(symmStreamHostFunc(g->k.stream[on], nap, (void *)(uintptr_t)draw(g, 400)));
    give_task(g->k.stream[on], end_task, b);
    lk_free(g->k.lane[on], b->at);
    b->at = NULL;
}

static void end_or_make(game *g, int lane) {
    for (int i = 0; i < LIVE; i++)
        if (g->live[lane][i].at) drop(g, lane, &g->live[lane][i]);
    T_OK(symmLaneDestroy(g->k.lane[lane]));
    T_OK(symmLaneCreate(g->k.heap, g->k.stream[lane], &g->k.lane[lane]));
}

static void whoever_gets_bytes_is_behind_their_users(void) {
    const char *seed = getenv("T_SEED");
    game *g = calloc(1, sizeof *g);
    owner = calloc(UNITS, sizeof *owner);
    T_CHECK(g && owner);
    lk_alone(&g->k, LANES);
    g->seed = seed ? strtoull(seed, NULL, 0) : 7;
    for (int step = 0; step < (T_TSAN || T_ASAN ? 4000 : 20000); step++) {
        const int lane = (int)draw(g, LANES);
        block *b = &g->live[lane][draw(g, LIVE)];
        if (b->at)
            drop(g, lane, b);
        else
            take(g, lane, b);
        if (!draw(g, 300)) end_or_make(g, lane);
        if (!draw(g, 1000)) T_OK(symmHeapTrimLanes(g->k.heap, NULL));
    }
    T_CHECK(follows(&g->k) > 20);
    for (int l = 0; l < LANES; l++)
        for (int i = 0; i < LIVE; i++)
            if (g->live[l][i].at) drop(g, l, &g->live[l][i]);
    for (int l = 0; l < LANES; l++) T_OK(symmStreamSynchronize(g->k.stream[l]));
    for (uint64_t u = 0; u < UNITS; u++) T_EQ(atomic_load(&owner[u]), 0);
    lk_close(&g->k);
    free(owner);
    free(g);
}

T_MAIN(T(one_wait_stands_for_all_who_gave_before),
       T(a_mark_stands_for_nobody_whom_its_lane_has_not_followed),
       T(later_work_and_lanes_that_only_took_are_not_waited_for),
       T(bytes_that_nobody_gave_are_had_at_once), T(bytes_that_were_given_long_ago_are_waited_for),
       T(a_new_lane_has_followed_nobody), T(many_lanes_wait_seldom_and_keep_little),
       T(the_heir_stands_for_a_lane_that_has_ended), T(whoever_gets_bytes_is_behind_their_users))
