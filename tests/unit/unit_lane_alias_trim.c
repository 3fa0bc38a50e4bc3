/* unit_lane_alias_trim.c - memory of symmLaneAlias whose graphs are idle goes, and comes back with
 * the next upload at the same addresses. Ranks as processes and as threads; each drives its own
 * lane. */
#include <sys/stat.h>

#include "graph_kit.h"
#include "transport/vmm/memcut.h"
#include "alias_kit.h"

enum { RANKS = 3, POOL = 4 << 20 };

static uint64_t trim(rig *g) {
    uint64_t freed = 0;
    T_OK(symmLaneTrimGraphMem(g->lane, &freed));
    return freed;
}

static void gauges(rig *g, int64_t maps, int64_t handles) {
    hk_barrier(g->k);
    T_EQ(SYMM_STAT_GET(maps), maps);
    T_EQ(SYMM_STAT_GET(handles), handles);
    hk_barrier(g->k);
}

static uint64_t pages_of(int fd) {
    struct stat st;
    T_EQ(fstat(fd, &st), 0);
    return (uint64_t)st.st_blocks * 512;
}

/* Pages of this rank go back in the call itself, though peers may unmap them later than it does.
 * fd: the file that all memory of this process is parts of. */
static void collected(rig *g, int fd) {
    hk_barrier(g->k);
    const uint64_t before = pages_of(fd);
    hk_barrier(g->k);
    T_OK(symmHeapCollect(g->heap));
    const uint64_t after = pages_of(fd);
    if (!g->k->threads)
        T_CHECKF(after + 2 * B <= before, "%llu bytes of pages before, %llu after",
                 (unsigned long long)before, (unsigned long long)after);
}

static void upload(rig *g, const aliased *a) {
    T_OK(symmMemPlanUpload(a->plan, xg_exec(a->graph), g->s[0]));
}

static void needs_upload(rig *g, const aliased *a) {
    T_ERR(symmMemPlanLaunch(a->plan, xg_exec(a->graph), g->s[0]), symmInvalidUsage);
    T_MSG(symmGetLastError(NULL), "symmMemPlanUpload");
}

static void idle(void *arg) {
    rig g = set_up(arg, 128 * HK_MB, 0);
    hk_barrier(g.k);
    const int64_t maps = SYMM_STAT_GET(maps), handles = SYMM_STAT_GET(handles);
    symm_memcut part;
    uint64_t id[2];
    T_EQ(symm_memcut_make(SYMM_MEMCUT_GRANULE, &part, id), 0);
    hk_barrier(g.k);
    T_OK(symmLaneAlias(g.lane, POOL));
    aliased a = capture(&g, B, 10), b = capture(&g, POOL, 40);
    upload(&g, &a), upload(&g, &b);
    for (int round = 0; round < 3; round++) {
        launch(&g, &a, 0), launch(&g, &b, 1);
        T_EQ(trim(&g), POOL); /* waits for both */
        T_EQ(trim(&g), 0);
        needs_upload(&g, &a), needs_upload(&g, &b);
        collected(&g, part.fd);
        gauges(&g, maps, handles);
        T_EQ(lk_mem(g.lane, SYMM_GRAPH_MEM_RESERVED), 0);
        needs_upload(&g, &a);
        upload(&g, round % 2 ? &a : &b);
        needs_upload(&g, round % 2 ? &b : &a);
        T_EQ(lk_mem(g.lane, SYMM_GRAPH_MEM_RESERVED), POOL);
        upload(&g, round % 2 ? &b : &a);
    }
    launch(&g, &a, 0), launch(&g, &b, 1);
    wait_all(&g);
    trim(&g);
    drop(&a), drop(&b);
    T_OK(symmLaneAlias(g.lane, 0));
    T_OK(symmHeapCollect(g.heap));
    gauges(&g, maps, handles);
    T_EQ(lk_mem(g.lane, SYMM_GRAPH_MEM_RESERVED), 0);
    T_OK(symmHeapCheck(g.heap));
    tear_down(&g);
    symm_memcut_free(&part);
}
static void G_6_idle_graphs_give_back_and_come_again(void) {
    T_EXPECT_WARNINGS();
    both(RANKS, idle, NULL);
    both(1, idle, NULL);
}

/* Blocks that are allocated, and graphs that nobody has bound, keep it. */
static void in_use(void *arg) {
    rig g = set_up(arg, 64 * HK_MB, POOL);
    aliased a = {NULL, NULL, NULL};
    T_OK(symmStreamBeginCapture(g.s[0]));
    a.p = lk_sym(g.lane, B);
    lk_fill(g.s[0], a.p, B, 9);
    a.graph = lk_end(g.s[0]);
    T_EQ(trim(&g), 0);
    a.plan = lk_bind(g.lane, a.graph, SYMM_MEMPLAN_ALIAS);
    upload(&g, &a);
    launch(&g, &a, 0);
    T_EQ(trim(&g), 0);
    T_OK(symmHeapCollect(g.heap));
    lk_check(g.s[0], a.p, B, 9);
    lk_free(g.lane, a.p);
    T_EQ(trim(&g), POOL);
    aliased b = capture(&g, B, 3); /* wants the memory */
    T_EQ(lk_mem(g.lane, SYMM_GRAPH_MEM_RESERVED), POOL);
    T_OK(symmHeapCollect(g.heap));
    upload(&g, &b);
    launch(&g, &b, 0);
    launch(&g, &a, 0); /* which has lost nothing */
    lk_check(g.s[0], a.p, B, 9);
    lk_free(g.lane, a.p);
    T_EQ(trim(&g), POOL);
    T_OK(symmHeapCollect(g.heap));
    aliased c = capture(&g, POOL / 2, 5); /* makes it anew, as far as the capture reaches */
    upload(&g, &c), upload(&g, &b);
    launch(&g, &c, 0), launch(&g, &b, 1);
    wait_all(&g);
    drop(&a), drop(&b), drop(&c);
    T_OK(symmHeapCollect(g.heap));
    tear_down(&g);
}
static void what_is_in_use_is_not_trimmed(void) {
    T_EXPECT_WARNINGS();
    both(2, in_use, NULL);
}

/* LOCAL blocks, and graphs that have no others, are each rank's own business. The last rank frees
 * and destroys them later; the memory goes on all ranks alike. */
static void local_at_different_times(void *arg) {
    rig g = set_up(arg, 64 * HK_MB, POOL);
    const int late = g.n > 1 && g.rank == g.n - 1;
    aliased a = {NULL, NULL, NULL};
    T_OK(symmStreamBeginCapture(g.s[0]));
    lk_free(g.lane, lk_local(g.lane, B));
    symmGraph_t unbound = lk_end(g.s[0]);
    T_OK(symmStreamBeginCapture(g.s[0]));
    char *left = lk_local(g.lane, B);
    a.p = lk_sym(g.lane, B);
    exchange(&g, a.p, B, 5);
    lk_free(g.lane, a.p);
    bind(&g, &a);
    upload(&g, &a);
    launch(&g, &a, 0);
    if (!late) {
        lk_free(g.lane, left);
        T_OK(xg_destroy(unbound));
    }
    T_EQ(trim(&g), POOL);
    needs_upload(&g, &a);
    T_OK(symmHeapCollect(g.heap));
    if (late) {
        lk_free(g.lane, left);
        T_OK(xg_destroy(unbound));
    }
    upload(&g, &a);
    launch(&g, &a, 0);
    lk_free(g.lane, left);
    wait_all(&g);
    drop(&a);
    T_OK(symmHeapCollect(g.heap));
    tear_down(&g);
}
static void what_is_local_does_not_keep_it(void) {
    T_EXPECT_WARNINGS();
    both(3, local_at_different_times, NULL);
}

/* A plan that was destroyed has no say, but one rank has its graph still, and may launch it. */
static void lives_on(void *arg) {
    rig g = set_up(arg, 64 * HK_MB, 0);
    hk_barrier(g.k);
    const int64_t maps = SYMM_STAT_GET(maps), handles = SYMM_STAT_GET(handles);
    hk_barrier(g.k);
    T_OK(symmLaneAlias(g.lane, POOL));
    aliased a = capture(&g, B, 3);
    upload(&g, &a);
    T_OK(symmMemPlanDestroy(a.plan));
    if (g.rank) T_OK(xg_destroy(a.graph));
    T_EQ(trim(&g), POOL);
    T_OK(symmHeapCollect(g.heap));
    if (!g.rank) {
        for (int r = 0; r < g.n; r++) *(volatile char *)hk_peer(g.k, a.p, r) = 1;
        T_OK(xg_destroy(a.graph));
    }
    T_OK(symmHeapCollect(g.heap));
    gauges(&g, maps, handles);
    tear_down(&g);
}
static void a_graph_that_lives_on_one_rank_keeps_it(void) {
    both(2, lives_on, NULL);
}

T_MAIN(T(G_6_idle_graphs_give_back_and_come_again), T(what_is_in_use_is_not_trimmed),
       T(what_is_local_does_not_keep_it), T(a_graph_that_lives_on_one_rank_keeps_it))
