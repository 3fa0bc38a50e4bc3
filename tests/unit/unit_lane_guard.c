/* unit_lane_guard.c - guard mode on lanes: overruns and writes after the free are told, work that
 * is allowed never is, whatever the streams' pace; nothing is lost by what is told. One rank,
 * and ranks that are threads. GPUs: unit_gpu_lane.c. The test's threads drive all; tasks run in
 * the streams' threads. */
#include <pthread.h>
#include <unistd.h>

#include "base/fail.h"
#include "graph_kit.h"
#include "lane_kit.h"

enum { POISON = 0xdd };

static void alone(lk *k, int lanes) {
    setenv("SYMM_HEAP_GUARD", "1", 1);
    lk_alone(k, lanes);
}

static void write_byte(symmStream_t s, char *at) {
    lk_fill(s, at, 1, 9);
}

/* ---- overruns -------------------------------------------------------------------------------- */

static void an_overrun_of_one_byte_is_told_by_the_free(void) {
    lk k;
    T_EXPECT_WARNINGS();
    alone(&k, 2);
    for (int sym = 0; sym < 2; sym++) {
        const unsigned flags = sym ? SYMM_ALLOC_SYM : SYMM_ALLOC_LOCAL;
        char *p = lk_alloc(k.lane[0], 1001, flags), *q = lk_alloc(k.lane[0], 10, flags);
        lk_fill(k.stream[0], p, 1001, 1), lk_fill(k.stream[0], q, 10, 1);
        T_OK(symmHeapCheck(k.heap));
        write_byte(k.stream[0], p + 1001); /* one too far, when the stream comes to it */
        T_ERR(symmLaneFree(k.lane[0], p), symmInvalidUsage);
        T_MSG(symmGetLastError(NULL), "byte 1001 was written, of a block of 1001 bytes at offset ");
        T_MSG(symmGetLastError(NULL), ", lane 0 (it is freed all the same)");
        T_ERR(symmLaneFree(k.lane[0], p), symmInvalidArgument);
        T_MSG(symmGetLastError(NULL), "already freed");
        T_OK(symmHeapCheck(k.heap));
        T_CHECK(lk_alloc(k.lane[0], 1001, flags) == p); /* nothing is lost */
        lk_free(k.lane[0], p), lk_free(k.lane[0], q);
    }
    T_EQ(lk_info(k.lane[0]).frees, 6);
    lk_close(&k);
}

/* The last byte of what is behind a block, of any size. */
static void all_that_lies_behind_a_block_is_looked_at(void) {
    lk k;
    T_EXPECT_WARNINGS();
    alone(&k, 1);
    for (size_t bytes = 1; bytes < 3000; bytes = bytes * 3 / 2 + 1) {
        char *p = lk_local(k.lane[0], bytes);
        const size_t all = symm_round_up(bytes + 256, symm_memlane_unit(bytes + 256));
        lk_fill(k.stream[0], p, bytes, 5);
        write_byte(k.stream[0], p + all - 1);
        T_OK(symmStreamSynchronize(k.stream[0]));
        T_ERR(symmHeapCheck(k.heap), symmInvalidUsage); /* without a free */
        T_ERR(symmLaneFree(k.lane[0], p), symmInvalidUsage);
        T_MSG(symmGetLastError(NULL), "was written, of a block of ");
        T_OK(symmHeapCheck(k.heap));
    }
    lk_close(&k);
}

/* Sizes that a red zone, or the pool's finer units, would take past 2^64. */
static void a_size_near_the_largest_is_refused(void) {
    const size_t tops[] = {SIZE_MAX, SIZE_MAX / 2 + 1, SIZE_MAX / 4 + 1, SIZE_MAX / 8 + 1};
    T_EXPECT_WARNINGS();
    for (int guard = 0; guard < 2; guard++) {
        lk k;
        void *q = NULL;
        setenv("SYMM_HEAP_GUARD", guard ? "1" : "0", 1);
        lk_alone(&k, 1);
        for (unsigned zone = 0; zone < 2; zone++) {
            char *p = lk_alloc(k.lane[0], 100, zone); /* the pool has a hole behind it */
            for (int i = 0; i < 4; i++)
                for (size_t less = 0; less < 2048; less = less * 2 + 1)
                    T_ERR(symmLaneAlloc(k.lane[0], tops[i] - less, zone, &q), symmOutOfMemory);
            T_CHECK(q == NULL);
            lk_free(k.lane[0], p);
            T_EQ(lk_info(k.lane[0]).symLive + lk_info(k.lane[0]).localLive, 0);
        }
        T_OK(symmStreamSynchronize(k.stream[0]));
        T_OK(symmHeapCheck(k.heap));
        lk_close(&k);
    }
}

static void questions_do_not_see_what_lies_behind(void) {
    lk k;
    symmMemInfo_t i = {.size = sizeof i};
    symmRef_t ref;
    T_EXPECT_WARNINGS();
    alone(&k, 2);
    char *p = lk_sym(k.lane[1], 1001), *q = lk_sym(k.lane[1], 128);
    T_OK(symmMemQuery(p + 1000, &i));
    T_CHECK(i.block == p && i.bytes == 1001 && i.lane == 1);
    T_ERR(symmMemQuery(p + 1001, &i), symmInvalidArgument);
    T_OK(symmRefGet(p + 1, &ref));
    T_EQ(ref.len, 1000);
    T_ERR(symmRefGet(p + 1100, &ref), symmInvalidArgument);
    T_EQ(lk_info(k.lane[1]).symLive, 1129);
    lk_free(k.lane[0], p);
    T_EQ(lk_info(k.lane[1]).symLive, 128);
    T_ERR(symmLaneFree(k.lane[0], p), symmInvalidArgument);
    T_MSG(symmGetLastError(NULL), "(1001 bytes, lane 0)");
    T_OK(symmLaneDestroy(k.lane[0]));
    k.lane[0] = NULL;
    T_ERR(symmLaneDestroy(k.lane[1]), symmInvalidUsage); /* the last one, with a block */
    T_MSG(symmGetLastError(NULL), " 128 bytes");
    lk_free(k.lane[1], q);
    T_EQ(lk_info(k.lane[1]).symLive, 0);
    lk_close(&k);
}

/* ---- writes after the free ------------------------------------------------------------------- */

/* Kept by its lane, and pooled: found where it is, told again where it was handed out. */
static void a_write_after_the_free_is_found(void) {
    T_EXPECT_WARNINGS();
    for (int pooled = 0; pooled < 2; pooled++) {
        lk k;
        char text[64];
        alone(&k, 1);
        symm_memlane *l = symm_memlane_peek(k.lane[0]);
        char *p = lk_local(k.lane[0], 5000);
        const uint64_t off = symm_heap_offset(l->set->heap, p);
        snprintf(text, sizeof text, "the byte at offset %llu was written after",
                 (unsigned long long)off + 4321);
        lk_free(k.lane[0], p);
        if (pooled) T_OK(symm_memlane_flush(l, SYMM_MEM_LOCAL));
        T_OK(symmStreamSynchronize(k.stream[0]));
        T_CHECK((unsigned char)p[0] == POISON && (unsigned char)p[4999] == POISON);
        T_OK(symmHeapCheck(k.heap));
        p[4321] = 1;
        T_ERR(symmHeapCheck(k.heap), symmInvalidUsage);
        T_MSG(symmGetLastError(NULL), text);
        T_CHECK(lk_local(k.lane[0], 5000) == p); /* found once more, and remembered */
        p[4321] = 1;
        lk_free(k.lane[0], p);
        T_ERR(symmHeapCheck(k.heap), symmInvalidUsage);
        T_MSG(symmGetLastError(NULL), text);
        lk_close(&k);
    }
}

/* Where memory leaves the lanes, by a trim or with the last one, it is looked at once more. */
static void what_leaves_the_lanes_is_looked_at(void) {
    T_EXPECT_WARNINGS();
    for (int end = 0; end < 2; end++) {
        lk k;
        alone(&k, 1);
        char *p = lk_local(k.lane[0], 5000);
        lk_free(k.lane[0], p);
        T_OK(symmStreamSynchronize(k.stream[0]));
        p[17] = 1;
        if (end) {
            T_OK(symmLaneDestroy(k.lane[0]));
            k.lane[0] = NULL;
        } else {
            T_OK(symmHeapTrimLanes(k.heap, NULL));
        }
        T_ERR(symmHeapCheck(k.heap), symmInvalidUsage);
        T_MSG(symmGetLastError(NULL), "was written after it was freed on a lane");
        lk_close(&k);
    }
}

/* ---- order ----------------------------------------------------------------------------------- */

/* A stream that stands still is not waited for longer than a second; what it is to paint comes in
 * its turn. */
static void poison_comes_behind_the_work(void) {
    lk k;
    lk_gate gate = {0};
    alone(&k, 1);
    char *p = lk_local(k.lane[0], 4096);
    lk_hold(k.stream[0], &gate);
    lk_fill(k.stream[0], p, 4096, 7);
    lk_check(k.stream[0], p, 4096, 7);
    lk_free(k.lane[0], p);
    char *q = lk_local(k.lane[0], 4096);
    T_CHECK(q == p);
    lk_fill(k.stream[0], q, 4096, 8);
    lk_check(k.stream[0], q, 4096, 8);
    char *r = lk_local(k.lane[0], 700);
    T_OK(symmHeapCheck(k.heap)); /* what is not painted yet is no damage */
    atomic_store(&gate.open, 1);
    lk_free(k.lane[0], r);
    lk_free(k.lane[0], q);
    T_OK(symmStreamSynchronize(k.stream[0]));
    T_EQ((unsigned char)p[0], POISON);
    T_OK(symmHeapCheck(k.heap));
    lk_close(&k);
}

/* A block that nobody used is freed on another lane, and its bytes are another block's before its
 * own lane comes to paint behind it. */
static void a_red_zone_never_comes_late(void) {
    lk k;
    lk_gate gate = {0};
    alone(&k, 2);
    lk_hold(k.stream[0], &gate);
    char *p = lk_local(k.lane[0], 1000);
    lk_free(k.lane[1], p);
    char *q = lk_local(k.lane[1], 1024);
    T_CHECK(p == q); /* the same with what is behind them */
    lk_fill(k.stream[1], q, 1024, 3);
    while (!atomic_load(&gate.reached)) sched_yield();
    usleep(30000); /* the other stream would be through, if nothing held it */
    T_EQ(symmStreamQuery(k.stream[1]), symmInProgress);
    atomic_store(&gate.open, 1);
    T_OK(symmStreamSynchronize(k.stream[0]));
    lk_check(k.stream[1], q, 1024, 3);
    lk_free(k.lane[1], q);
    lk_close(&k);
}

/* Its lane has ended meanwhile. */
static void a_block_outlives_the_lane_that_painted_it(void) {
    lk k;
    T_EXPECT_WARNINGS();
    alone(&k, 3);
    char *p = lk_local(k.lane[0], 1000), *q = lk_local(k.lane[0], 1000);
    T_OK(symmLaneDestroy(k.lane[0]));
    k.lane[0] = NULL;
    T_OK(symmStreamDestroy(k.stream[0]));
    k.stream[0] = NULL;
    p[1000] = 1;
    T_ERR(symmHeapCheck(k.heap), symmInvalidUsage);
    T_ERR(symmLaneFree(k.lane[2], p), symmInvalidUsage);
    lk_free(k.lane[1], q);
    T_OK(symmHeapCheck(k.heap));
    lk_close(&k);
}

static void random_work_is_no_damage(void) {
    enum { LIVE = 64, CALLS = 4000, LANES = 4 };
    lk k;
    struct {
        char *p;
        size_t bytes;
        int lane, value;
    } live[LIVE] = {{0}};
    uint64_t seed = 7;
    alone(&k, LANES);
    for (int i = 0; i < CALLS; i++) {
        t_roll(&seed);
        const int at = (int)(seed >> 40) % LIVE, lane = (int)(seed >> 50) % LANES;
        if (i % 500 == 0) T_OK(symmHeapCheck(k.heap));
        if (i % 900 == 0) T_OK(symmHeapTrimLanes(k.heap, NULL));
        if (live[at].p) {
            if (live[at].lane != lane) lk_order(k.stream[live[at].lane], k.stream[lane]);
            lk_check(k.stream[lane], live[at].p, live[at].bytes, live[at].value);
            lk_free(k.lane[lane], live[at].p);
            live[at].p = NULL;
            continue;
        }
        live[at].bytes = 1 + (size_t)(seed >> 33) % (seed >> 60 ? 3000 : 300000);
        live[at].lane = lane;
        live[at].value = i;
        live[at].p = lk_alloc(k.lane[lane], live[at].bytes,
                              seed >> 20 & 1 ? SYMM_ALLOC_SYM : SYMM_ALLOC_LOCAL);
        lk_fill(k.stream[lane], live[at].p, live[at].bytes, i);
    }
    T_OK(symmHeapCheck(k.heap));
    for (int at = 0; at < LIVE; at++)
        if (live[at].p) lk_free(k.lane[live[at].lane], live[at].p);
    lk_close(&k);
}

/* ---- graphs ---------------------------------------------------------------------------------- */

typedef struct {
    symmGraph_t g;
    symmMemPlan_t plan;
} graph;

static graph end_graph(lk *k) {
    const symmGraph_t g = lk_end(k->stream[0]);
    return (graph){g, lk_bind(k->lane[0], g, 0)};
}
static void launch(lk *k, const graph *g, int on) {
    T_OK(symmMemPlanLaunch(g->plan, xg_exec(g->g), k->stream[on]));
}
static void drop_graph(const graph *g) {
    T_OK(symmMemPlanDestroy(g->plan));
    T_OK(xg_destroy(g->g));
}

static void a_graph_looks_where_it_frees(void) {
    T_EXPECT_WARNINGS();
    for (int over = 0; over < 2; over++) {
        lk k;
        alone(&k, 1);
        T_OK(symmStreamBeginCapture(k.stream[0]));
        char *p = lk_local(k.lane[0], 1001), *q = lk_sym(k.lane[0], 77);
        lk_fill(k.stream[0], p, 1001, 1), lk_fill(k.stream[0], q, 77, 2);
        if (over) write_byte(k.stream[0], p + 1001);
        lk_check(k.stream[0], p, 1001, 1), lk_check(k.stream[0], q, 77, 2);
        lk_free(k.lane[0], p), lk_free(k.lane[0], q);
        T_EQ(lk_mem(k.lane[0], SYMM_GRAPH_MEM_USED), 1078);
        const graph g = end_graph(&k);
        for (int i = 0; i < 3; i++) launch(&k, &g, 0);
        T_OK(symmStreamSynchronize(k.stream[0]));
        T_CHECK((unsigned char)p[0] == POISON && (unsigned char)q[76] == POISON);
        T_EQ(symmHeapCheck(k.heap), over ? symmInvalidUsage : symmSuccess);
        if (over) {
            T_MSG(symmGetLastError(NULL), "byte 1001 was written, of a block of 1001 bytes at ");
            T_MSG(symmGetLastError(NULL), ", in a graph of lane 0");
        }
        drop_graph(&g);
        lk_close(&k);
    }
}

/* What a graph does where it frees is a part of its use: nobody beside it has the bytes. */
static void a_graphs_look_is_before_the_next_block(void) {
    lk k;
    alone(&k, 2);
    T_OK(symmStreamBeginCapture(k.stream[0]));
    char *p = lk_local(k.lane[0], 1000);
    lk_fill(k.stream[0], p, 1000, 1);
    lk_order(k.stream[0], k.stream[1]);
    lk_free(k.lane[0], p);
    char *q = lk_local(k.lane[1], 1000); /* behind all of p's use, not behind the free */
    T_CHECK(q != p);
    lk_fill(k.stream[1], q, 1000, 2);
    lk_check(k.stream[1], q, 1000, 2);
    lk_free(k.lane[1], q);
    lk_order(k.stream[1], k.stream[0]);
    char *r = lk_local(k.lane[0], 1000);
    T_CHECK(r == (p < q ? p : q));
    lk_free(k.lane[0], r);
    const graph g = end_graph(&k);
    for (int i = 0; i < 20; i++) launch(&k, &g, 0);
    T_OK(symmStreamSynchronize(k.stream[0]));
    T_OK(symmHeapCheck(k.heap));
    drop_graph(&g);
    lk_close(&k);
}

/* A block that outlives its graph is looked at by its free, wherever the graph runs. */
static void a_block_that_a_graph_left_is_looked_at(void) {
    lk k;
    lk_gate gate = {0};
    symmMemInfo_t i = {.size = sizeof i};
    T_EXPECT_WARNINGS();
    alone(&k, 2);
    T_OK(symmStreamBeginCapture(k.stream[0]));
    char *p = lk_local(k.lane[0], 1001);
    const graph g = end_graph(&k);
    launch(&k, &g, 0);
    T_OK(symmMemQuery(p + 1000, &i));
    T_CHECK(i.block == p && i.bytes == 1001);
    lk_fill(k.stream[0], p, 1001, 3);
    lk_free(k.lane[0], p);
    launch(&k, &g, 0);
    lk_fill(k.stream[0], p, 1002, 3);
    T_ERR(symmLaneFree(k.lane[0], p), symmInvalidUsage);
    T_MSG(symmGetLastError(NULL), "byte 1001 was written, of a block of 1001 bytes at offset ");
    T_ERR(symmLaneFree(k.lane[0], p), symmInvalidArgument); /* it was freed */
    memset(p + 1001, 0, 100);
    lk_hold(k.stream[1], &gate);
    launch(&k, &g, 1);     /* it has not painted yet */
    lk_free(k.lane[0], p); /* nobody used it */
    atomic_store(&gate.open, 1);
    T_OK(symmStreamSynchronize(k.stream[1]));
    T_OK(symmHeapCheck(k.heap));
    drop_graph(&g);
    lk_close(&k);
}

/* ---- several ranks --------------------------------------------------------------------------- */

enum { RANKS = 3, BLOCK = 64 << 10 };

typedef struct {
    symmComm_t comms[RANKS];
    pthread_barrier_t meet;
    _Atomic uint64_t word[RANKS];
    void (*fn)(lk *k, void *job);
    uint64_t sym;
} job;

static void meet(job *j) {
    pthread_barrier_wait(&j->meet);
}

static void rank_thread(int rank, int n, void *arg) {
    job *j = arg;
    lk k;
    lk_open(&k, rank, n, j->comms[rank], 2, j->sym, 4 * LK_MB);
    meet(j);
    j->fn(&k, j);
    meet(j);
    lk_close(&k);
}

static void ranks(uint64_t sym, void (*fn)(lk *, void *)) {
    job j = {.fn = fn, .sym = sym};
    setenv("SYMM_HEAP_GUARD", "1", 1);
    lk_env();
    T_OK(symmCommInitAll(j.comms, RANKS, NULL));
    pthread_barrier_init(&j.meet, NULL, RANKS);
    T_THREADS(RANKS, rank_thread, &j);
    pthread_barrier_destroy(&j.meet);
}

static uint64_t alike(lk *k, job *j, char *p) {
    symmRef_t ref;
    T_OK(symmRefGet(p, &ref));
    atomic_store(&j->word[k->rank], ref.off);
    meet(j);
    for (int r = 0; r < k->n; r++) T_EQ(atomic_load(&j->word[r]), ref.off);
    meet(j);
    return ref.off;
}

static char *at_rank(lk *k, char *p, int rank) {
    symmRef_t ref;
    void *q = NULL;
    T_OK(symmRefGet(p, &ref));
    T_OK(symmRefPtr(&ref, k->comm, rank, &q));
    return q;
}

static void nap(void *arg) {
    usleep((useconds_t)(uintptr_t)arg);
}

/* One rank is late, and uses everybody's block until its own free, behind which the others have
 * long come: neither is that damage, nor does their poison come into it, nor into the next
 * block. */
static void late_peer(lk *k, void *arg) {
    job *j = arg;
    for (int round = 0; round < 6; round++) {
        char *p = lk_sym(k->lane[0], BLOCK - 3);
        alike(k, j, p);
        if (k->rank == RANKS - 1) {
            for (int r = 0; r < k->n; r++)
                lk_fill(k->stream[0], at_rank(k, p, r), BLOCK - 3, 40 + round);
            T_OK(symmStreamHostFunc(k->stream[0], nap, (void *)(uintptr_t)6000));
            for (int r = 0; r < k->n; r++)
                lk_check(k->stream[0], at_rank(k, p, r), BLOCK - 3, 40 + round);
        } else { /* it has written by then, and will look again */
            T_OK(symmStreamHostFunc(k->stream[0], nap, (void *)(uintptr_t)2000));
        }
        lk_free(k->lane[0], p);
        if (round == 2) T_OK(symmBarrier(k->comm, k->stream[0])); /* spares none */
        if (round == 3) T_OK(symmHeapCheck(k->heap));
    }
    T_CHECK(lk_info(k->lane[0]).epochs > 0);
    T_EQ(lk_info(k->lane[0]).spared, 0);
    T_OK(symmStreamSynchronize(k->stream[0]));
    T_OK(symmHeapCheck(k->heap));
}
static void peers_that_are_late_do_no_damage(void) {
    ranks(2 * BLOCK + 64 * 1024, late_peer);
}

/* A peer that has a block again writes to every rank's at once; the poison of the last free is
 * there before. */
static void painted_in_time(lk *k, void *arg) {
    enum { LARGE = 6 << 20, END = 4096 };
    job *j = arg;
    symm_memlane *l = symm_memlane_peek(k->lane[0]);
    for (int round = 0; round < 25; round++) {
        char *p = lk_sym(k->lane[0], LARGE), *to[RANKS];
        alike(k, j, p);
        for (int r = 0; r < k->n; r++) to[r] = at_rank(k, p, r);
        if (k->rank == round % RANKS)
            for (int r = 0; r < k->n; r++) lk_fill(k->stream[0], to[r] + LARGE - END, END, round);
        T_OK(symmBarrier(k->comm, k->stream[0]));
        lk_check(k->stream[0], p + LARGE - END, END, round);
        lk_free(k->lane[0], p);
        T_OK(symm_memlane_close(l));
    }
}
static void poison_is_there_before_a_peer_writes(void) {
    ranks(16 * LK_MB, painted_in_time);
}

/* Rank 0 takes memory, of the heap and then of what the lanes hold, that the others have taken
 * before, and what the lanes hold they have written to. Of the heap's, rank 0 has not even freed
 * what was there last. */
static void late_taker(lk *k, void *arg) {
    job *j = arg;
    char *p[2] = {NULL, NULL};
    void *last = NULL;
    T_OK(symmHeapAlloc(k->heap, 1000, 0, SYMM_ALLOC_SYM, &last));
    T_OK(symmBarrier(k->comm, NULL)); /* all use of it is over */
    for (int i = 0; i < 2; i++) {
        const size_t bytes = i ? 3000 : 20000;
        for (int late = 0; late < 2; late++) {
            if ((k->rank == 0) == late) {
                T_OK(symmHeapTrimLanes(k->heap, NULL));
                T_OK(symmHeapFree(k->heap, i ? NULL : last));
                p[i] = lk_sym(k->lane[0], bytes);
            }
            if (k->rank == 1 && !late) {
                lk_fill(k->stream[0], at_rank(k, p[i], 0), bytes, 6);
                if (i)
                    T_OK(symmStreamSynchronize(k->stream[0]));
                else /* it waits for rank 0; if not, it is done by then, on a busy machine too */
                    usleep(300000);
            }
            meet(j);
        }
        T_CHECK(i || p[i] == last);
        T_OK(symmStreamSynchronize(k->stream[0]));
        meet(j);
        alike(k, j, p[i]);
        if (k->rank == 0) lk_check(k->stream[0], p[i], bytes, 6);
        T_OK(symmHeapCheck(k->heap));
    }
    T_EQ(lk_info(k->lane[0]).symReserved, 32 * LK_KB); /* both are of one piece */
    lk_free(k->lane[0], p[0]), lk_free(k->lane[0], p[1]);
}
static void a_peer_may_have_its_block_earlier(void) {
    ranks(4 * LK_MB, late_taker);
}

/* What a peer writes behind the block of rank 0, and into what all have freed. */
static void peers_damage(lk *k, void *arg) {
    job *j = arg;
    symm_memlane *l = symm_memlane_peek(k->lane[0]);
    char *p = lk_sym(k->lane[0], 5000), *theirs = at_rank(k, p, 0);
    const uint64_t off = alike(k, j, p);
    char text[64];
    T_OK(symmBarrier(k->comm, k->stream[0])); /* it is painted */
    if (k->rank == 1) write_byte(k->stream[0], theirs + 5000);
    T_OK(symmBarrier(k->comm, k->stream[0]));
    if (k->rank == 0) {
        T_ERR(symmLaneFree(k->lane[0], p), symmInvalidUsage);
        T_MSG(symmGetLastError(NULL), "byte 5000 was written, of a block of 5000 bytes");
    } else {
        lk_free(k->lane[0], p);
    }
    T_OK(symm_memlane_close(l));
    T_OK(symmHeapCheck(k->heap)); /* the ranks agree still */
    if (k->rank == 1) theirs[123] = 1;
    meet(j);
    T_ERR(symmHeapCheck(k->heap), symmInvalidUsage);
    snprintf(text, sizeof text, "offset %llu was written after", (unsigned long long)off + 123);
    if (k->rank == 0) T_MSG(symmGetLastError(NULL), text);
    meet(j);
    T_CHECK(lk_sym(k->lane[0], 5000) == p); /* and on all ranks */
    alike(k, j, p);
    lk_free(k->lane[0], p);
    T_OK(symmHeapCheck(k->heap));
}
static void what_peers_damage_is_found(void) {
    T_EXPECT_WARNINGS();
    ranks(4 * LK_MB, peers_damage);
}

/* ---- memory ---------------------------------------------------------------------------------- */

static void no_memory_for_the_guard_is_told(void) {
    lk k;
    T_EXPECT_WARNINGS();
    alone(&k, 0);
    T_OK(symmStreamCreate(&k.stream[0]));
    for (int nth = 1; nth <= 2; nth++) {
        char spec[64];
        symmLane_t lane = NULL;
        snprintf(spec, sizeof spec, "memlane_guard:error:%d", nth);
        T_EQ(symm_fail_arm(spec), 0);
        T_ERR(symmLaneCreate(k.heap, k.stream[0], &lane), symmOutOfMemory);
        T_EQ(symm_fail_arm(""), 0);
        T_CHECK(lane == NULL);
        T_EQ(SYMM_STAT_GET(lanes), 0);
    }
    T_OK(symmLaneCreate(k.heap, k.stream[0], &k.lane[0]));
    k.lanes = 1;
    lk_free(k.lane[0], lk_local(k.lane[0], 100));
    lk_close(&k);
}

T_MAIN(T(an_overrun_of_one_byte_is_told_by_the_free), T(all_that_lies_behind_a_block_is_looked_at),
       T(a_size_near_the_largest_is_refused), T(questions_do_not_see_what_lies_behind),
       T(a_write_after_the_free_is_found), T(what_leaves_the_lanes_is_looked_at),
       T(poison_comes_behind_the_work), T(a_red_zone_never_comes_late),
       T(a_block_outlives_the_lane_that_painted_it), T(random_work_is_no_damage),
       T(a_graph_looks_where_it_frees), T(a_graphs_look_is_before_the_next_block),
       T(a_block_that_a_graph_left_is_looked_at), T(peers_that_are_late_do_no_damage),
       T(poison_is_there_before_a_peer_writes), T(a_peer_may_have_its_block_earlier),
       T(what_peers_damage_is_found), T(no_memory_for_the_guard_is_told))
