/* unit_lane_alias_guard.c - guard mode and memory that graphs share: what a lane's graphs fit into
 * without it they fit into with it. Ranks as processes and as threads, each drives its own lane. */
#include "graph_kit.h"
#include "alias_kit.h"

enum { POOL = 4 << 20, BLOCKS = 512, EACH = POOL / BLOCKS };

static rig guarded(hk *k, uint64_t reserve, uint64_t alias) {
    rig g = {.k = k, .rank = k->rank, .n = k->n};
    symmHeapConfig_t c = hk_config(reserve, 2 * HK_MB, 2 * HK_MB);
    c.guard = 1;
    T_OK(symmHeapCreate(k->comm, &c, &g.heap));
    for (int i = 0; i < 2; i++) T_OK(symmStreamCreate(&g.s[i]));
    T_OK(symmLaneCreate(g.heap, g.s[0], &g.lane));
    T_OK(symmLaneAlias(g.lane, alias));
    return g;
}

static void run(rig *g, aliased *a) {
    T_OK(symmMemPlanUpload(a->plan, xg_exec(a->graph), NULL));
    for (int i = 0; i < 3; i++) launch(g, a, i & 1);
    for (int i = 0; i < 2; i++) T_OK(symmStreamSynchronize(g->s[i]));
    T_OK(symmHeapCheck(g->heap));
}

/* One block of all of it; then many that fill it, all at once; both over the same memory. */
static void fill_it(void *arg) {
    rig g = guarded(arg, 64 * HK_MB, POOL);
    static _Thread_local char *p[BLOCKS];
    aliased many = {NULL, NULL, NULL}, one = capture(&g, POOL, 3);
    T_EQ(lk_mem(g.lane, SYMM_GRAPH_MEM_RESERVED), POOL); /* what the program asked for */
    T_OK(symmStreamBeginCapture(g.s[0]));
    for (int i = 0; i < BLOCKS; i++) p[i] = lk_sym(g.lane, EACH);
    for (int i = 0; i < BLOCKS; i++) lk_fill(g.s[0], p[i], EACH, i % 100);
    for (int i = 0; i < BLOCKS; i++) lk_check(g.s[0], p[i], EACH, i % 100);
    for (int i = 0; i < BLOCKS; i++) lk_free(g.lane, p[i]);
    bind(&g, &many);
    run(&g, &one);
    run(&g, &many);
    run(&g, &one);
    drop(&one), drop(&many);
    T_OK(symmHeapCollect(g.heap));
    tear_down(&g);
}
static void what_fits_without_guard_mode_fits_with_it(void) {
    T_EXPECT_WARNINGS();
    both(2, fill_it, NULL);
}

/* The red zone on top of it is looked at. */
static void overrun(void *arg) {
    rig g = guarded(arg, 64 * HK_MB, POOL);
    aliased a = {NULL, NULL, NULL};
    T_OK(symmStreamBeginCapture(g.s[0]));
    a.p = lk_sym(g.lane, POOL);
    lk_fill(g.s[0], a.p + POOL, 1, 9);
    lk_free(g.lane, a.p);
    bind(&g, &a);
    T_OK(symmMemPlanUpload(a.plan, xg_exec(a.graph), NULL));
    launch(&g, &a, 0);
    T_OK(symmStreamSynchronize(g.s[0]));
    T_ERR(symmHeapCheck(g.heap), symmInvalidUsage);
    T_MSG(symmGetLastError(NULL), "byte 4194304 was written, of a block of 4194304 bytes");
    drop(&a);
    T_OK(symmHeapCollect(g.heap));
    tear_down(&g);
}
static void an_overrun_of_all_of_it_is_told(void) {
    T_EXPECT_WARNINGS();
    both(1, overrun, NULL);
}

/* Of the heap's addresses so few are left that a graph gets those that it would have without guard
 * mode. */
static void scarce(void *arg) {
    rig g = guarded(arg, 10 * HK_MB, POOL);
    aliased a = capture(&g, POOL - 256, 3);
    char *p;
    void *none;
    run(&g, &a);
    T_OK(symmStreamBeginCapture(g.s[0]));
    T_ERR(symmLaneAlloc(g.lane, B, SYMM_ALLOC_SYM, &none), symmOutOfMemory); /* no other graph's */
    T_MSG(symmGetLastError(NULL), "of addresses in one piece");
    symmGraph_t empty = lk_end(g.s[0]);
    T_OK(xg_destroy(empty));
    drop(&a);
    T_OK(symmHeapCollect(g.heap));
    T_OK(symmStreamBeginCapture(g.s[0]));
    p = lk_sym(g.lane, B);
    T_ERR(symmLaneAlloc(g.lane, POOL - B, SYMM_ALLOC_SYM, &none), symmNeedGrow);
    T_MSG(symmGetLastError(NULL), "do not fit in the 4194304 bytes");
    lk_free(g.lane, p);
    bind(&g, &a);
    run(&g, &a);
    drop(&a);
    T_OK(symmHeapCollect(g.heap));
    tear_down(&g);
}
static void scarce_addresses_are_enough_for_smaller_blocks(void) {
    T_EXPECT_WARNINGS();
    both(2, scarce, NULL);
}

T_MAIN(T(what_fits_without_guard_mode_fits_with_it), T(an_overrun_of_all_of_it_is_told),
       T(scarce_addresses_are_enough_for_smaller_blocks))
