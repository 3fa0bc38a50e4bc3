/* unit_window_table.c - the list of windows by address: held against a plain list in random lives
 * of runs that overlap, lie inside each other and fall apart; and that ten thousand of them cost a
 * call little more than ten. One thread; of processes where it says so. */
#include "base/fail.h"
#include "host/comm/window_table.h"
#include "coll_kit.h"
#include "heap_kit.h"

enum { MOST = 200, SPAN = 400 };

/* ---- a plain list: bit i of a window's map is byte i ---- */

typedef struct {
    uint64_t lo, hi;
    int used;
    unsigned char has[SPAN];
} plain;

static int plain_holds(const plain *w, uint64_t lo, uint64_t hi) {
    if (!w->used) return 0;
    for (uint64_t i = lo; i < hi; i++)
        if (!w->has[i]) return 0;
    return 1;
}

static int plain_find(const plain *all, uint64_t lo, uint64_t hi) {
    for (int i = 0; i < MOST; i++)
        if (plain_holds(&all[i], lo, hi)) return 1;
    return 0;
}

static uint64_t plain_end(const plain *w, uint64_t at) {
    uint64_t end = at;
    while (w->used && end < SPAN && w->has[end]) end++;
    return end;
}

/* near says the run that reaches farthest, or the next one that begins. */
static void check_near(symm_wtable *t, const plain *all, uint64_t lo, uint64_t hi) {
    uint64_t most = lo;
    for (int i = 0; i < MOST; i++) {
        uint64_t end = plain_end(&all[i], lo);
        if (end > most) most = end;
    }
    const int at = symm_wtable_near(t, lo, hi);
    if (most > lo) {
        T_CHECK(at >= 0 && t->lo[at] <= lo);
        T_EQ(t->run[at].hi, most);
        return;
    }
    uint64_t next = hi;
    for (int i = 0; i < MOST; i++)
        for (uint64_t k = lo; k < next && all[i].used; k++)
            if (all[i].has[k]) next = k;
    T_EQ(at >= 0, next < hi);
    if (at >= 0) T_EQ(t->lo[at], next);
}

static struct symm_win *name_of(plain *w) {
    return (struct symm_win *)(void *)w; /* the table looks into none */
}

static void step(symm_wtable *t, plain *all, uint64_t h) {
    plain *w = &all[h % MOST];
    uint64_t lo = 1 + (h >> 8) % (SPAN - 2), hi = lo + 1 + (h >> 20) % (h >> 60 ? 40 : SPAN);
    if (hi > SPAN) hi = SPAN;
    if (!w->used) {
        T_EQ(symm_wtable_room(t), 0);
        symm_wtable_add(t, name_of(w), lo, hi);
        *w = (plain){lo, hi, 1, {0}};
        memset(w->has + lo, 1, hi - lo);
    } else if (h >> 40 & 1) {
        symm_wtable_cut(t, name_of(w), lo, hi);
        memset(w->has + lo, 0, hi - lo);
    } else {
        symm_wtable_drop(t, name_of(w), w->lo, w->hi);
        w->used = 0;
    }
}

static void windows_overlap_and_fall_apart(void) {
    const uint64_t seed = ck_seed();
    printf("# T_SEED=%llu\n", (unsigned long long)seed);
    for (int life = 0; life < 20; life++) {
        static plain all[MOST];
        symm_wtable t = {0};
        memset(all, 0, sizeof all);
        for (uint64_t i = 0; i < 1500; i++) {
            const uint64_t h = ck_hash(seed, (uint64_t)life, i), g = ck_hash(h, 1, 2);
            step(&t, all, h);
            const uint64_t lo = g % (SPAN - 1), hi = lo + 1 + (g >> 20) % (SPAN - 1 - lo);
            plain *w = (plain *)(void *)symm_wtable_find(&t, lo, hi);
            T_EQ(w != NULL, plain_find(all, lo, hi));
            if (w) T_CHECK(plain_holds(w, lo, hi));
            check_near(&t, all, lo, hi);
        }
        symm_wtable_end(&t);
    }
}

static void without_memory_less_is_known(void) {
    symm_wtable t = {0};
    int w[9];
    for (uint64_t i = 0; i < 8; i++) {
        T_EQ(symm_wtable_room(&t), 0);
        symm_wtable_add(&t, (struct symm_win *)(void *)&w[i], 100 * i + 1, 100 * i + 91);
    }
    T_EQ(symm_fail_arm("win_table:error"), 0);
    T_EQ(symm_wtable_room(&t), -1);
    symm_wtable_cut(&t, (struct symm_win *)(void *)&w[3], 320, 330);
    T_EQ(symm_fail_arm(""), 0);
    T_EQ(t.n, 8);
    T_CHECK(symm_wtable_find(&t, 301, 320) != NULL);
    T_CHECK(symm_wtable_find(&t, 330, 340) == NULL);
    symm_wtable_end(&t);
}

/* ---- what a call pays for them ---- */

enum { FEW = 10, MANY = 10000, EACH = 1024, CALLS = 20000, ROUNDS = T_TSAN ? 2 : 7 };

static double rotate(symmComm_t comm, char *p, int n) {
    double best = 1e9;
    for (int round = 0; round < ROUNDS; round++) {
        const uint64_t from = symm_now_ns();
        for (int i = 0; i < CALLS; i++) {
            char *at = p + (size_t)(i % n) * 2 * EACH;
            T_OK(symmAllReduce(at, at + EACH, EACH / 4, symmFloat32, symmSum, comm, NULL));
        }
        const double ns = (double)(symm_now_ns() - from) / CALLS;
        if (ns < best) best = ns;
    }
    return best;
}

/* The same buffers in one window, then in one each. */
static void many(void *arg) {
    hk *k = arg;
    char *p;
    static symmWindow_t win[MANY];
    T_OK(symmMemAlloc((void **)&p, (size_t)MANY * 2 * EACH));
    T_OK(symmWindowRegister(k->comm, p, (size_t)MANY * 2 * EACH, &win[0], 0));
    const double few = rotate(k->comm, p, FEW), one = rotate(k->comm, p, MANY);
    for (int i = 1; i < MANY; i++)
        T_OK(symmWindowRegister(k->comm, p + (size_t)i * 2 * EACH, 2 * EACH, &win[i], 0));
    const double many = rotate(k->comm, p, MANY);
    printf("# over %d of %d buffers: %.0f ns; over all: %.0f ns; with a window each: %.0f ns\n",
           FEW, MANY, few, one, many);
    T_CHECKF(many < 5 * one + 1000, "a call takes %.0f ns with %d windows, %.0f ns with one", many,
             MANY, one);
    symmCommInfo_t info = {.size = sizeof info};
    T_OK(symmCommQuery(k->comm, &info));
    T_EQ(info.windows, MANY);
    T_EQ(info.usedBytes, (uint64_t)MANY * 2 * EACH + (MANY - 1) * 2ull * EACH);
    for (int i = 0; i < MANY; i += 2) T_OK(symmWindowDeregister(k->comm, win[i]));
    rotate(k->comm, p, MANY);
    T_OK(symmMemFree(p));
}
static void a_call_finds_one_of_ten_thousand(void) {
    hk_processes(1, many, NULL);
}

T_MAIN(T(windows_overlap_and_fall_apart), T(without_memory_less_is_known),
       T(a_call_finds_one_of_ten_thousand))
