/* unit_lane_alias.c - graphs with addresses of their own over memory that they share (memory.md
 * G.1, G.4): ranks as processes and as threads, on host streams. Each rank drives its own lane;
 * its tasks run in its streams' threads. Only atomics and heap memory are shared. */
#define _GNU_SOURCE 1 /* pipe2 */
#include <fcntl.h>
#include <unistd.h>

#include "graph_kit.h"
#include "alias_kit.h"

enum { RANKS = 3, POOL = 5 << 20, POOL_ROUNDED = 6 << 20 };

/* Written by whoever has rank's part under one address, read by all under the other. */
static void same_bytes(rig *g, char *p, char *q, size_t bytes) {
    for (int writer = 0; writer < g->n; writer++) {
        for (int r = 0; r < g->n && g->rank == writer; r++)
            hk_fill(hk_peer(g->k, p, r), bytes, r, writer);
        hk_barrier(g->k);
        for (int r = 0; r < g->n; r++) hk_holds(hk_peer(g->k, q, r), bytes, r, writer);
        hk_barrier(g->k);
    }
}

static void settled(rig *g, int64_t maps, int64_t handles) {
    T_OK(symmHeapCollect(g->heap));
    hk_barrier(g->k);
    T_EQ(SYMM_STAT_GET(maps), maps);
    T_EQ(SYMM_STAT_GET(handles), handles);
    hk_barrier(g->k);
}

/* ---- what it is ------------------------------------------------------------------------------ */

static void two_addresses(void *arg) {
    rig g = set_up(arg, 128 * HK_MB, 0);
    hk_barrier(g.k);
    const int64_t maps = SYMM_STAT_GET(maps), handles = SYMM_STAT_GET(handles);
    hk_barrier(g.k);
    T_OK(symmLaneAlias(g.lane, POOL));
    T_EQ(lk_mem(g.lane, SYMM_GRAPH_MEM_RESERVED), POOL_ROUNDED);
    aliased a = capture(&g, B, 10), b = capture(&g, 5 << 20, 40);
    T_CHECK(a.p + B <= b.p || b.p + (5 << 20) <= a.p);
    HK_ALIKE(g.k, hk_off(g.heap, g.k, a.p));
    HK_ALIKE(g.k, hk_off(g.heap, g.k, b.p));
    T_EQ(lk_mem(g.lane, SYMM_GRAPH_MEM_USED), 5 << 20);
    T_ERR(symmMemPlanLaunch(a.plan, xg_exec(a.graph), g.s[0]), symmInvalidUsage);
    T_MSG(symmGetLastError(NULL), "symmMemPlanUpload");
    T_OK(symmMemPlanUpload(a.plan, xg_exec(a.graph), g.s[0]));
    T_OK(symmMemPlanUpload(b.plan, NULL, NULL));
    if (g.rank == 1)
        T_OK(symmMemPlanUpload(a.plan, xg_exec(a.graph), g.s[0])); /* nothing to do: alone */
    same_bytes(&g, a.p, b.p, B);
    same_bytes(&g, b.p, a.p, B);
    for (int i = 0; i < 12; i++) launch(&g, i & 1 ? &a : &b, i % 3 == 0);
    wait_all(&g);
    T_OK(symmHeapTrim(g.heap, 0, NULL));      /* what no block uses; this is none of it */
    T_OK(symmLaneTrimGraphMem(g.lane, NULL)); /* both are idle */
    T_EQ(lk_mem(g.lane, SYMM_GRAPH_MEM_RESERVED), 0);
    T_ERR(symmMemPlanLaunch(b.plan, xg_exec(b.graph), g.s[0]), symmInvalidUsage);
    T_OK(symmMemPlanUpload(b.plan, xg_exec(b.graph),
                           g.s[0])); /* it was not collected: it is there still */
    T_EQ(lk_mem(g.lane, SYMM_GRAPH_MEM_RESERVED), POOL_ROUNDED);
    for (int i = 0; i < 4; i++) launch(&g, i & 1 ? &a : &b, 0);
    wait_all(&g);
    drop(&a);
    T_OK(symmHeapCollect(g.heap)); /* one goes, the other stays */
    launch(&g, &b, 0);
    wait_all(&g);
    T_OK(symmLaneAlias(g.lane, 0));
    launch(&g, &b, 0);
    wait_all(&g);
    T_EQ(lk_mem(g.lane, SYMM_GRAPH_MEM_RESERVED), POOL_ROUNDED);
    drop(&b);
    T_EQ(lk_mem(g.lane, SYMM_GRAPH_MEM_RESERVED), 0);
    T_OK(symmHeapCheck(g.heap));
    T_OK(symmHeapGrow(g.heap, 4 * HK_MB, 2 * HK_MB)); /* what the trim took */
    settled(&g, maps, handles);
    tear_down(&g);
}
static void G_4_2_two_graphs_have_two_addresses_over_the_same_bytes(void) {
    T_EXPECT_WARNINGS();
    both(RANKS, two_addresses, NULL);
    both(1, two_addresses, NULL);
}

/* As on any lane, a block that is left keeps other graphs off its memory, whatever its address;
 * later captures lie elsewhere. */
static void left_allocated(void *arg) {
    rig g = set_up(arg, 64 * HK_MB, POOL);
    aliased a = capture(&g, B, 1), b = {NULL, NULL, NULL};
    T_OK(symmStreamBeginCapture(g.s[0]));
    b.p = lk_sym(g.lane, B);
    lk_fill(g.s[0], b.p, B, 77);
    bind(&g, &b);
    aliased c = capture(&g, B, 2);
    T_OK(symmMemPlanUpload(a.plan, xg_exec(a.graph), NULL));
    T_OK(symmMemPlanUpload(b.plan, xg_exec(b.graph), NULL));
    T_OK(symmMemPlanUpload(c.plan, xg_exec(c.graph), NULL));
    launch(&g, &b, 0);
    T_ERR(symmMemPlanLaunch(a.plan, xg_exec(a.graph), g.s[0]), symmInvalidUsage);
    T_MSG(symmGetLastError(NULL), "another graph");
    launch(&g, &c, 0);
    lk_check(g.s[0], b.p, B, 77);
    wait_all(&g);
    same_bytes(&g, a.p, b.p, B);
    lk_free(g.lane, b.p);
    launch(&g, &a, 0);
    launch(&g, &b, 0);
    usleep(1000);
    lk_fill(g.s[0], b.p, B, 5);
    lk_free(g.lane, b.p);
    wait_all(&g);
    drop(&b), drop(&c);
    if (g.rank == 0) drop(&a);
    T_OK(symmHeapCollect(g.heap)); /* one rank has its graph still */
    for (int r = 0; r < g.n && g.rank == 1; r++)
        T_CHECK(*(volatile char *)hk_peer(g.k, a.p, r) != 99);
    if (g.rank == 1) drop(&a);
    tear_down(&g);
}
static void G_4_2_live_memory_keeps_other_addresses_out(void) {
    T_EXPECT_WARNINGS();
    both(2, left_allocated, NULL);
}

static void nap(void *arg) {
    usleep((useconds_t)(uintptr_t)arg);
}

/* One rank's replay of the first graph still writes into everybody's block while the others have
 * come to the second. */
static void late_peer(void *arg) {
    rig g = set_up(arg, 64 * HK_MB, POOL);
    aliased a = {NULL, NULL, NULL}, b = a;
    T_OK(symmStreamBeginCapture(g.s[0]));
    a.p = lk_sym(g.lane, B);
    if (g.rank == g.n - 1) {
        T_OK(symmStreamHostFunc(g.s[0], nap, (void *)3000));
        for (int r = 0; r < g.n; r++) lk_fill(g.s[0], hk_peer(g.k, a.p, r), B, 0xaa);
    }
    lk_free(g.lane, a.p);
    bind(&g, &a);
    T_OK(symmStreamBeginCapture(g.s[0]));
    b.p = lk_sym(g.lane, B);
    lk_fill(g.s[0], b.p, B, 5);
    T_OK(symmStreamHostFunc(g.s[0], nap, (void *)6000)); /* longer than the peer is late */
    lk_check(g.s[0], b.p, B, 5);
    lk_free(g.lane, b.p);
    bind(&g, &b);
    T_OK(symmMemPlanUpload(a.plan, NULL, NULL));
    T_OK(symmMemPlanUpload(b.plan, NULL, NULL));
    for (int i = 0; i < 12; i++) launch(&g, i & 1 ? &b : &a, i % 4 == 3); /* streams change too */
    wait_all(&g);
    drop(&a), drop(&b);
    tear_down(&g);
}
static void G_4_2_a_late_peer_of_one_graph_writes_into_no_other(void) {
    both(RANKS, late_peer, NULL);
}

/* Graphs come and go and are replayed in no order that a rule was made for, the same on all
 * ranks. */
static void long_life(void *arg) {
    enum { GRAPHS = 5, STEPS = 120 };
    rig g = set_up(arg, 64 * HK_MB, 2 * HK_MB);
    aliased a[GRAPHS];
    uint64_t x = 1;
    memset(a, 0, sizeof a);
    for (int i = 0; i < STEPS; i++) {
        t_roll(&x);
        aliased *one = &a[(x >> 33) % GRAPHS];
        const int what = (int)(x >> 40) % 8;
        if (!one->graph) {
            *one = capture(&g, (size_t)B * (1 + (x >> 50) % 3), i);
            T_OK(symmMemPlanUpload(one->plan, xg_exec(one->graph), g.s[0]));
        } else if (what == 0) {
            drop(one);
            one->graph = NULL;
        } else if (what == 1) {
            T_OK(symmHeapCollect(g.heap));
        } else if (what == 2 && i % 3 == 0) {
            T_OK(symmLaneAlias(g.lane, 2 * HK_MB)); /* other memory for those to come */
        } else {
            launch(&g, one, what & 1);
        }
    }
    for (int i = 0; i < GRAPHS; i++)
        if (a[i].graph) drop(&a[i]);
    T_OK(symmHeapCollect(g.heap));
    T_EQ(lk_mem(g.lane, SYMM_GRAPH_MEM_RESERVED), 2 * HK_MB);
    tear_down(&g);
}
static void graphs_come_and_go(void) {
    both(RANKS, long_life, NULL);
}

/* A collect unmaps no address that work of a stream still uses. */
static void late_work(void *arg) {
    rig g = set_up(arg, 64 * HK_MB, POOL);
    const int64_t maps = SYMM_STAT_GET(maps);
    symmStream_t s;
    symmLane_t other;
    T_OK(symmStreamCreate(&s));
    T_OK(symmLaneCreate(g.heap, s, &other));
    for (int i = 0; i < 2; i++) {
        aliased a = {NULL, NULL, NULL};
        T_OK(symmStreamBeginCapture(g.s[0]));
        a.p = lk_sym(g.lane, B);
        lk_fill(g.s[0], a.p, B, 7);
        bind(&g, &a);
        T_OK(symmMemPlanUpload(a.plan, xg_exec(a.graph), NULL));
        launch(&g, &a, 0);
        lk_order(g.s[0], s);
        wait_all(&g);
        if (g.rank == 0) T_OK(symmStreamHostFunc(s, nap, (void *)30000));
        for (int r = 0; r < g.n; r++) lk_fill(s, (char *)hk_peer(g.k, a.p, r) + 256 * g.rank, 9, 8);
        lk_free(other, a.p);
        drop(&a);
        T_EQ(lk_mem(g.lane, SYMM_GRAPH_MEM_USED), 0); /* the plan has gone by now */
        if (i) T_OK(symmLaneDestroy(other));          /* the lane that is left stands in for it */
        T_OK(symmHeapCollect(g.heap));
    }
    wait_all(&g);
    if (!g.k->threads) T_EQ(SYMM_STAT_GET(maps), maps);
    T_OK(symmStreamDestroy(s));
    tear_down(&g);
}
static void a_collect_waits_for_what_was_freed_behind_work(void) {
    both(2, late_work, NULL);
}

static void nodes(void *arg) {
    rig g = set_up(arg, 64 * HK_MB, POOL);
    symmMemPlan_t plain, own;
    symmGraphNode_t a, b, c, d;
    void *p, *q, *r;
    symmAllocNode_t params = {.size = sizeof params, .bytes = B, .flags = SYMM_ALLOC_SYM};
    T_OK(symmMemPlanCreate(g.lane, NULL, 0, &plain));
    T_OK(symmMemPlanCreate(g.lane, NULL, SYMM_MEMPLAN_ALIAS, &own));
    T_OK(symmMemPlanUpload(own, NULL, NULL)); /* nothing yet */
    T_OK(symmMemPlanAddAllocNode(plain, NULL, 0, &params, &a, &p));
    T_OK(symmMemPlanAddAllocNode(own, NULL, 0, &params, &b, &q));
    T_ERR(symmMemPlanLaunch(own, NULL, g.s[0]), symmInvalidUsage);
    T_OK(symmMemPlanUpload(own, NULL, NULL));
    params.bytes = 5 << 20; /* on into the second piece */
    T_OK(symmMemPlanAddAllocNode(own, &b, 1, &params, &c, &r));
    T_CHECK(q != p && (char *)r == (char *)q + B);
    T_ERR(symmMemPlanLaunch(own, NULL, g.s[0]), symmInvalidUsage);
    T_MSG(symmGetLastError(NULL), "of the 2 pieces of memory under its addresses, only 1 ");
    T_OK(symmMemPlanUpload(own, NULL, NULL));
    T_OK(symmMemPlanAddFreeNode(own, &c, 1, q, &d));
    T_OK(symmMemPlanAddFreeNode(own, &c, 1, r, &d));
    T_OK(symmMemPlanAddFreeNode(plain, &a, 1, p, &d));
    for (int i = 0; i < 3; i++) {
        T_OK(symmMemPlanLaunch(own, NULL, g.s[0]));
        T_OK(symmMemPlanLaunch(plain, NULL, g.s[0]));
    }
    wait_all(&g);
    same_bytes(&g, (char *)r + (5 << 20) - B, (char *)r + (5 << 20) - B, B);
    T_OK(symmMemPlanDestroy(plain));
    T_OK(symmMemPlanDestroy(own));
    tear_down(&g);
}
static void G_3_1_explicit_nodes_with_addresses_of_their_own(void) {
    T_EXPECT_WARNINGS();
    both(2, nodes, NULL);
}

/* ---- the heap around it ---------------------------------------------------------------------- */

static void dumped(symmHeap_t heap, const char *part) {
    char text[4096];
    int fds[2];
    T_EQ(pipe2(fds, O_CLOEXEC), 0);
    T_OK(symmHeapDump(heap, fds[1], SYMM_DUMP_TEXT));
    ssize_t n = read(fds[0], text, sizeof text - 1);
    T_CHECK(n > 0);
    text[n] = 0;
    T_MSG(text, part);
    close(fds[0]);
    close(fds[1]);
}

/* SYM grows past addresses that graphs have, and nothing of the one is the other. */
static void past(void *arg) {
    rig g = set_up(arg, 32 * HK_MB, 4 * HK_MB);
    symmMemInfo_t info = {.size = sizeof info};
    symmRef_t ref;
    char *blocks[2];
    uint64_t freed;
    aliased a = capture(&g, 4 << 20, 3);
    T_EQ(hk_off(g.heap, g.k, a.p), 16 * HK_MB);
    T_OK(symmMemPlanUpload(a.plan, xg_exec(a.graph), NULL));
    T_OK(symmHeapGrow(g.heap, 20 * HK_MB, 2 * HK_MB)); /* 4 to 16, and 20 to 28 */
    T_EQ(hk_info(g.heap).symBytes, 24 * HK_MB);
    T_ERR(symmHeapGrow(g.heap, 2 * HK_MB, 0), symmOutOfMemory);
    blocks[0] = hk_sym(g.heap, 15 * HK_MB);
    blocks[1] = hk_sym(g.heap, 8 * HK_MB);
    T_CHECK(blocks[0] + 15 * HK_MB <= a.p && blocks[1] == a.p + 4 * HK_MB);
    void *none = NULL;
    T_ERR(symmHeapAlloc(g.heap, 2 * HK_MB, 0, SYMM_ALLOC_SYM, &none), symmOutOfMemory);
    char *last = blocks[0] + 15 * HK_MB - B; /* what is near to it */
    hk_fill(last, B, g.rank, 1);
    hk_fill(blocks[1], B, g.rank, 2);
    launch(&g, &a, 0);
    wait_all(&g);
    hk_holds(last, B, g.rank, 1);
    hk_holds(blocks[1], B, g.rank, 2);
    T_OK(symmMemQuery(a.p + 1000, &info)); /* the block's, and nobody's beside it */
    T_CHECK(info.block == a.p && info.bytes == 4 * HK_MB && info.symmetric && info.lane == 0);
    T_OK(symmRefGet(a.p + 1000, &ref));
    T_EQ(ref.len, 4 * HK_MB - 1000);
    T_ERR(symmHeapFree(g.heap, a.p), symmInvalidArgument);
    T_OK(symmHeapCheck(g.heap));
    dumped(g.heap, "  apart  4 MiB for graphs, under 4 MiB of addresses in 1 graph range\n");
    for (int i = 0; i < 2; i++) T_OK(symmHeapFree(g.heap, blocks[i]));
    T_OK(symmHeapTrim(g.heap, 0, &freed));
    launch(&g, &a, 0);
    wait_all(&g);
    drop(&a);
    T_OK(symmHeapCollect(g.heap));
    T_ERR(symmRefGet(a.p, &ref), symmInvalidArgument);
    T_OK(symmHeapGrow(g.heap, 28 * HK_MB, 0)); /* its addresses are SYM's now */
    blocks[0] = hk_sym(g.heap, 28 * HK_MB);
    T_OK(symmHeapFree(g.heap, blocks[0]));
    tear_down(&g);
}

/* The same for LOCAL, from above. */
static void past_from_above(void *arg) {
    rig g = set_up(arg, 32 * HK_MB, 4 * HK_MB);
    aliased a = capture(&g, 4 << 20, 3);
    T_EQ(hk_off(g.heap, g.k, a.p), 16 * HK_MB);
    T_OK(symmMemPlanUpload(a.plan, xg_exec(a.graph), NULL));
    T_ERR(symmHeapGrow(g.heap, 0, g.rank ? 24 * HK_MB : 0), symmOutOfMemory);
    T_OK(symmHeapGrow(g.heap, 0, g.rank ? 18 * HK_MB : 2 * HK_MB)); /* 30 to 20, and 16 to 8 */
    char *above = hk_local(g.heap, 3 * HK_MB), *below = NULL;
    if (g.rank) {
        char *rest = hk_local(g.heap, 9 * HK_MB);
        T_CHECK(rest == a.p + 4 * HK_MB);
        below = hk_local(g.heap, 8 * HK_MB);
        T_CHECK(below + 8 * HK_MB == a.p);
        hk_fill(rest, B, g.rank, 3);
        hk_fill(a.p - B, B, g.rank, 4);
        hk_fill(above, B, g.rank, 5);
        launch(&g, &a, 0);
        wait_all(&g);
        hk_holds(rest, B, g.rank, 3);
        hk_holds(a.p - B, B, g.rank, 4);
        hk_holds(above, B, g.rank, 5);
    } else {
        launch(&g, &a, 0);
        wait_all(&g);
    }
    T_ERR(symmHeapGrow(g.heap, 6 * HK_MB, 0), symmOutOfMemory); /* as rank 1 has it */
    T_OK(symmHeapGrow(g.heap, 4 * HK_MB, 0));
    drop(&a);
    tear_down(&g);
}
static void zones_grow_around_it(void) {
    T_EXPECT_WARNINGS();
    both(2, past, NULL);
    both(2, past_from_above, NULL);
}

/* Addresses end, alike on all ranks; those of graphs that are gone come back, whether or not they
 * were ever bound. */
static void exhausted(void *arg) {
    rig g = set_up(arg, 64 * HK_MB, 8 * HK_MB);
    aliased a[16];
    void *p = NULL;
    int n = 0;
    for (int round = 0; round < 2; round++) {
        for (n = 0;; n++) {
            T_OK(symmStreamBeginCapture(g.s[0]));
            symmResult_t r = symmLaneAlloc(g.lane, B, SYMM_ALLOC_SYM, &p);
            if (!r) lk_free(g.lane, p);
            a[n].graph = lk_end(g.s[0]);
            if (r) T_EQ(r, symmOutOfMemory);
            if (r) break;
            if (n % 2) a[n].plan = lk_bind(g.lane, a[n].graph, SYMM_MEMPLAN_ALIAS);
        }
        T_MSG(symmGetLastError(NULL), "8388608 bytes of addresses");
        T_EQ(n, 6); /* of 58 MiB: three in the upper half, three below */
        T_OK(xg_destroy(a[n].graph));
        for (int i = 0; i < n; i++) {
            if (i % 2) T_OK(symmMemPlanDestroy(a[i].plan));
            T_OK(xg_destroy(a[i].graph));
        }
        T_OK(symmHeapCollect(g.heap));
    }
    tear_down(&g);
}
static void addresses_end_and_come_back(void) {
    T_EXPECT_WARNINGS();
    both(2, exhausted, NULL);
}

/* ---- bad input ------------------------------------------------------------------------------- */

static void refused(void *arg) {
    rig g = set_up(arg, 64 * HK_MB, 0);
    symmLane_t second;
    symmMemPlan_t plan = NULL;
    void *p = NULL;
    T_OK(symmLaneCreate(g.heap, g.s[1], &second));
    T_ERR(symmLaneAlias(NULL, 100), symmInvalidArgument);
    T_ERR(symmLaneAlias(g.lane, 65 * HK_MB), symmOutOfMemory);
    T_MSG(symmGetLastError(NULL), "bytes=68157440: heap 1 has addresses for 67108864");
    T_ERR(symmLaneAlias(g.lane, g.rank ? 200 : 100), symmMismatch);
    T_MSG(symmGetLastError(NULL), "lane 0 and bytes=100, rank 1 lane 0 and bytes=200");
    T_ERR(symmLaneAlias(g.rank ? g.lane : second, 100), symmMismatch);
    T_ERR(symmMemPlanCreate(g.lane, NULL, SYMM_MEMPLAN_ALIAS, &plan), symmInvalidUsage);
    T_MSG(symmGetLastError(NULL), "symmLaneAlias");
    T_OK(symmStreamBeginCapture(g.s[0]));
    lk_free(g.lane, lk_sym(g.lane, B));
    T_OK(symmLaneAlias(g.lane, POOL)); /* too late for this one */
    lk_free(g.lane, lk_sym(g.lane, B));
    symmGraph_t plain = lk_end(g.s[0]);
    T_ERR(symmMemPlanBind(g.lane, plain, SYMM_MEMPLAN_ALIAS, &plan), symmInvalidUsage);
    T_MSG(symmGetLastError(NULL), "before lane 0 had memory");
    T_OK(symmMemPlanBind(g.lane, plain, 0, &plan));
    T_ERR(symmMemPlanUpload(plan, NULL, NULL), symmInvalidArgument);
    T_OK(symmMemPlanDestroy(plan));
    T_OK(xg_destroy(plain));
    T_OK(symmStreamBeginCapture(g.s[0]));
    T_ERR(symmLaneAlloc(g.lane, 7 << 20, SYMM_ALLOC_SYM, &p), symmNeedGrow);
    T_MSG(symmGetLastError(NULL), "7340032 bytes do not fit in the 6291456 bytes");
    aliased a = {NULL, NULL, lk_sym(g.lane, 6 << 20)}; /* the capture goes on */
    char *local = lk_local(g.lane, B);
    T_ERR(symmLaneAlloc(g.lane, 256, SYMM_ALLOC_SYM, &p), symmNeedGrow);
    T_MSG(symmGetLastError(NULL), "this graph uses 6291456 of them");
    exchange(&g, a.p, B, 1);
    lk_free(g.lane, local);
    lk_free(g.lane, a.p);
    a.graph = lk_end(g.s[0]);
    T_ERR(symmMemPlanBind(g.lane, a.graph, 0, &plan), symmInvalidUsage);
    T_MSG(symmGetLastError(NULL), "lacks SYMM_MEMPLAN_ALIAS");
    T_OK(symmMemPlanBind(g.lane, a.graph, SYMM_MEMPLAN_ALIAS, &a.plan));
    symmGraph_t wrong = (symmGraph_t)(void *)&g;
    T_ERR(
        symmMemPlanUpload(a.plan, xg_exec(g.rank ? wrong : a.graph), NULL), /* everybody's error */
        g.rank ? symmInvalidArgument : symmInvalidArgument);
    T_ERR(symmMemPlanLaunch(a.plan, xg_exec(a.graph), g.s[0]), symmInvalidUsage);
    T_OK(symmMemPlanUpload(a.plan, xg_exec(a.graph), NULL));
    launch(&g, &a, 0);
    wait_all(&g);
    drop(&a);
    T_ERR(symmMemPlanUpload(a.plan, xg_exec(a.graph), NULL), symmInvalidArgument);
    aliased b = capture(&g, B, 4), c = capture(&g, B, 5);
    T_ERR(symmMemPlanUpload(g.rank ? b.plan : c.plan, NULL, NULL), symmMismatch);
    T_MSG(symmGetLastError(NULL), "symmMemPlanUpload: rank 0 has pieces 0 to 1");
    T_OK(symmMemPlanUpload(b.plan, NULL, NULL));
    launch(&g, &b, 0);
    wait_all(&g);
    drop(&b), drop(&c);
    T_OK(symmLaneDestroy(second));
    tear_down(&g);
}
static void wrong_calls_get_a_code_and_change_nothing(void) {
    T_EXPECT_WARNINGS();
    both(2, refused, NULL);
}

/* One thread for all ranks: the collective calls stand in a group. */
static void one_thread_drives_two_ranks(void) {
    symmComm_t comms[2];
    symmHeap_t heaps[2];
    symmLane_t lanes[2];
    symmStream_t s[2];
    aliased a[2];
    symmHeapConfig_t c = hk_config(64 * HK_MB, 4 * HK_MB, 0);
    hk_env();
    T_OK(symmCommInitAll(comms, 2, NULL));
    T_OK(symmGroupStart());
    for (int r = 0; r < 2; r++) T_OK(symmHeapCreate(comms[r], &c, &heaps[r]));
    T_OK(symmGroupEnd());
    for (int r = 0; r < 2; r++) {
        T_OK(symmStreamCreate(&s[r]));
        T_OK(symmLaneCreate(heaps[r], s[r], &lanes[r]));
    }
    T_OK(symmGroupStart());
    for (int r = 0; r < 2; r++) T_OK(symmLaneAlias(lanes[r], POOL));
    T_OK(symmGroupEnd());
    for (int r = 0; r < 2; r++) {
        T_OK(symmStreamBeginCapture(s[r]));
        a[r].p = lk_sym(lanes[r], B);
        lk_fill(s[r], a[r].p, B, 3);
        T_OK(symmAllReduce(a[r].p, a[r].p, B, symmUint8, symmSum, comms[r], s[r]));
        lk_check(s[r], a[r].p, B, 6);
        lk_free(lanes[r], a[r].p);
        a[r].graph = lk_end(s[r]);
        a[r].plan = lk_bind(lanes[r], a[r].graph, SYMM_MEMPLAN_ALIAS);
    }
    T_OK(symmGroupStart());
    for (int r = 0; r < 2; r++) T_OK(symmMemPlanUpload(a[r].plan, xg_exec(a[r].graph), NULL));
    T_OK(symmGroupEnd());
    for (int r = 0; r < 2; r++) T_OK(symmMemPlanLaunch(a[r].plan, xg_exec(a[r].graph), s[r]));
    for (int r = 0; r < 2; r++) T_OK(symmStreamSynchronize(s[r]));
    for (int r = 0; r < 2; r++) {
        drop(&a[r]);
        T_OK(symmLaneDestroy(lanes[r]));
        T_OK(symmStreamDestroy(s[r]));
    }
    for (int r = 0; r < 2; r++) T_OK(symmHeapDestroy(heaps[r]));
    for (int r = 0; r < 2; r++) T_OK(symmCommDestroy(comms[r]));
}

/* ---- ends ------------------------------------------------------------------------------------ */

/* Graph and plan, lane, heap, communicator: whichever goes first, nothing is left. */
static void ends(void *arg) {
    hk *k = arg;
    const int order = *(int *)k->arg;
    rig g = set_up(k, 64 * HK_MB, POOL);
    aliased a = capture(&g, B, 1), b = capture(&g, B, 2);
    T_OK(symmMemPlanUpload(a.plan, xg_exec(a.graph), NULL));
    launch(&g, &a, 0);
    wait_all(&g);
    T_OK(symmMemPlanDestroy(b.plan));
    if (order == 2) T_OK(symmCommDestroy(k->comm));
    if (order == 1) T_OK(symmHeapDestroy(g.heap));
    if (order == 3) T_OK(symmMemPlanDestroy(a.plan));
    T_OK(symmLaneDestroy(g.lane));
    if (order == 0) launch(&g, &a, 0), wait_all(&g);
    for (int i = 0; i < 2; i++) T_OK(symmStreamDestroy(g.s[i]));
    if (order == 0 || order == 3) T_OK(symmHeapDestroy(g.heap));
    if (order != 3) T_OK(symmMemPlanDestroy(a.plan));
    T_OK(xg_destroy(a.graph));
    T_OK(xg_destroy(b.graph));
    if (order == 2) k->comm = NULL;
}
static void ends_in_any_order(void) {
    T_EXPECT_WARNINGS();
    for (int order = 0; order < 4; order++) both(2, ends, &order);
}

T_MAIN(T(G_4_2_two_graphs_have_two_addresses_over_the_same_bytes),
       T(G_4_2_live_memory_keeps_other_addresses_out),
       T(G_4_2_a_late_peer_of_one_graph_writes_into_no_other), T(graphs_come_and_go),
       T(a_collect_waits_for_what_was_freed_behind_work),
       T(G_3_1_explicit_nodes_with_addresses_of_their_own), T(zones_grow_around_it),
       T(addresses_end_and_come_back), T(wrong_calls_get_a_code_and_change_nothing),
       T(one_thread_drives_two_ranks), T(ends_in_any_order))
