/* thr_lane.c - lanes and graph plans of several ranks, which are threads: equal offsets, and no
 * rank's memory used again before every rank has come to its own free. A peer that is late still
 * writes; who takes a block too early finds that. Each rank runs in a thread of its own, its
 * tasks in its streams' threads; only atomics are shared outside of heap memory. */
#include <pthread.h>
#include <unistd.h>

#include "graph_kit.h"
#include "lane_kit.h"

typedef struct {
    symmComm_t comms[8];
    pthread_barrier_t meet;
    _Atomic uint64_t word[8];
    void (*fn)(lk *k, void *job);
    int lanes;
    uint64_t sym;
} job;

static void meet(job *j) {
    pthread_barrier_wait(&j->meet);
}

static void rank_thread(int rank, int n, void *arg) {
    job *j = arg;
    lk k;
    lk_open(&k, rank, n, j->comms[rank], j->lanes, j->sym, 4 * LK_MB);
    meet(j);
    j->fn(&k, j);
    meet(j);
    if (k.comm) lk_close(&k);
}

static void run_job(int n, job *j) {
    lk_env();
    T_OK(symmCommInitAll(j->comms, n, NULL));
    pthread_barrier_init(&j->meet, NULL, (unsigned)n);
    T_THREADS(n, rank_thread, j);
    pthread_barrier_destroy(&j->meet);
}

static void run(int n, int lanes, uint64_t sym, void (*fn)(lk *, void *)) {
    job j = {.fn = fn, .lanes = lanes, .sym = sym};
    run_job(n, &j);
}

/* The same value on every rank. */
static void alike(lk *k, job *j, uint64_t value) {
    atomic_store(&j->word[k->rank], value);
    meet(j);
    for (int r = 0; r < k->n; r++) T_EQ(atomic_load(&j->word[r]), value);
    meet(j);
}

static char *at_rank(lk *k, void *p, int rank) {
    symmRef_t ref;
    void *q = NULL;
    T_OK(symmRefGet(p, &ref));
    T_OK(symmRefPtr(&ref, k->comm, rank, &q));
    return q;
}

static uint64_t offset_of(lk *k, void *p) {
    symmRef_t ref;
    (void)k;
    T_OK(symmRefGet(p, &ref));
    return ref.off;
}

static void nap(void *arg) {
    usleep((useconds_t)(uintptr_t)arg);
}
/* Everything that the stream gets from here on is late. */
static void delay(symmStream_t s, unsigned us) {
    T_OK(symmStreamHostFunc(s, nap, (void *)(uintptr_t)us));
}

/* ---- stream order ---------------------------------------------------------------------------- */

enum { BLOCK = 64 << 10, ROUNDS = 8 };

/* The last rank is late with its writes into everybody's block. */
static void late_writer(lk *k, char *p, int value) {
    if (k->rank != k->n - 1) return;
    delay(k->stream[0], 2000);
    for (int r = 0; r < k->n; r++) lk_fill(k->stream[0], at_rank(k, p, r), BLOCK, value);
}

static void slow_peer(lk *k, void *arg) {
    (void)arg;
    for (int i = 0; i < ROUNDS; i++) {
        char *p = lk_sym(k->lane[0], BLOCK);
        late_writer(k, p, 0xaa);
        lk_free(k->lane[0], p);
        char *q = lk_sym(k->lane[0], BLOCK);
        T_CHECK(q == p); /* used again: it is more than what may wait */
        lk_fill(k->stream[0], q, BLOCK, i);
        delay(k->stream[0], 5000);           /* longer than the peer is late */
        lk_check(k->stream[0], q, BLOCK, i); /* whoever was late has not written here since */
        T_OK(symmBarrier(k->comm, k->stream[0]));
        lk_free(k->lane[0], q);
    }
    T_OK(symmStreamSynchronize(k->stream[0]));
    T_EQ(lk_info(k->lane[0]).epochs,
         2 * ROUNDS - 1); /* none for the first: nothing had been freed */
}

static void a_late_peer_does_not_write_into_a_block_used_again(void) {
    run(3, 1, 4 * LK_MB, slow_peer);
}

/* A collective of the program behind the free does what the barrier would. */
static void spared(lk *k, void *arg) {
    static float in[3][256], out[3][256];
    (void)arg;
    for (int i = 0; i < ROUNDS; i++) {
        char *p = lk_sym(k->lane[0], BLOCK);
        late_writer(k, p, 0xaa);
        lk_free(k->lane[0], p);
        T_OK(symmAllReduce(in[k->rank], out[k->rank], 256, symmFloat32, symmSum, k->comm,
                           k->stream[0]));
        char *q = lk_sym(k->lane[0], BLOCK);
        T_CHECK(q == p);
        lk_fill(k->stream[0], q, BLOCK, i);
        delay(k->stream[0], 5000); /* longer than the peer is late */
        lk_check(k->stream[0], q, BLOCK, i);
        lk_free(k->lane[0], q);
        T_OK(symmBarrier(k->comm, k->stream[0]));
    }
    T_OK(symmStreamSynchronize(k->stream[0]));
    T_EQ(lk_info(k->lane[0]).epochs, 0);
    T_CHECK(lk_info(k->lane[0]).spared >= 2 * ROUNDS - 1);
}

static void a_collective_behind_the_free_spares_the_barrier(void) {
    run(3, 1, 4 * LK_MB, spared);
}

/* One on another stream, or of nothing, or in which a rank goes ahead, proves nothing. */
static void not_spared(lk *k, void *arg) {
    static float in[2][4], out[2][4];
    (void)arg;
    char *p = lk_sym(k->lane[0], BLOCK);
    late_writer(k, p, 0xaa);
    lk_free(k->lane[0], p);
    T_OK(symmAllReduce(in[k->rank], out[k->rank], 0, symmFloat32, symmSum, k->comm, k->stream[0]));
    T_OK(symmBroadcast(in[k->rank], out[k->rank], 4, symmFloat32, 0, k->comm, k->stream[0]));
    lk_free(k->lane[0], lk_sym(k->lane[0], 256)); /* looks at what has been heard */
    T_EQ(lk_info(k->lane[0]).spared + lk_info(k->lane[0]).epochs, 1);
    T_OK(symmBarrier(k->comm, k->stream[1]));
    char *q = lk_sym(k->lane[0], BLOCK);
    T_CHECK(q < p + BLOCK && p < q + BLOCK);
    lk_fill(k->stream[0], q, BLOCK, 1);
    delay(k->stream[0], 5000);
    lk_check(k->stream[0], q, BLOCK, 1);
    T_EQ(lk_info(k->lane[0]).epochs, 1);
    T_EQ(lk_info(k->lane[0]).spared, 0);
    T_OK(symmBarrier(k->comm, k->stream[0]));
    lk_free(k->lane[0], q);
    T_OK(symmStreamSynchronize(k->stream[0]));
}

static void other_streams_and_empty_calls_spare_none(void) {
    run(2, 2, 4 * LK_MB, not_spared);
}

static void amortised(lk *k, void *arg) {
    enum { CALLS = 2000, BYTES = 1024 };
    job *j = arg;
    const int64_t sent = SYMM_STAT_GET(messages);
    meet(j);
    for (int i = 0; i < CALLS; i++) lk_free(k->lane[0], lk_sym(k->lane[0], BYTES));
    T_OK(symmStreamSynchronize(k->stream[0]));
    symmLaneInfo_t i = lk_info(k->lane[0]);
    T_CHECKF(i.epochs > 0 && i.epochs <= CALLS * BYTES / SYMM_MEMLANE_FLOOR, "%llu barriers",
             (unsigned long long)i.epochs);
    T_CHECK(i.symReserved <= 3 * SYMM_MEMLANE_FLOOR);
    T_EQ(SYMM_STAT_GET(messages), sent); /* barriers are words in memory */
    meet(j);
}

static void one_barrier_serves_many_small_blocks(void) {
    run(2, 1, 4 * LK_MB, amortised);
}

/* Bytes go from lane to lane behind the epoch of the one that gave them. */
static void between_lanes(lk *k, void *arg) {
    enum { BIG = 3 << 20 };
    (void)arg;
    for (int i = 0; i < 8; i++) {
        int a = i & 1, b = !a;
        char *p = lk_sym(k->lane[a], BIG);
        if (k->rank == 1) {
            delay(k->stream[a], 4000);
            for (int r = 0; r < k->n; r++) lk_fill(k->stream[a], at_rank(k, p, r), BIG, 0xaa);
        }
        lk_free(k->lane[a], p);
        char *q = lk_sym(k->lane[b], BIG); /* there is no other place */
        T_CHECK(p == q);
        lk_fill(k->stream[b], q, BIG, i);
        delay(k->stream[b], 6000);
        lk_check(k->stream[b], q, BIG, i);
        lk_free(k->lane[b], q);
    }
    T_OK(symmStreamSynchronize(k->stream[0]));
    T_OK(symmStreamSynchronize(k->stream[1]));
    T_CHECK(lk_info(k->lane[0]).follows > 0 && lk_info(k->lane[1]).follows > 0);
}

static void a_lane_takes_anothers_bytes_behind_its_epoch(void) {
    run(2, 2, 4 * LK_MB, between_lanes);
}

/* Ranks that run at their own pace, lanes that come and go: the same offsets, and memory that holds
 * what was written. */
static void skewed(lk *k, void *arg) {
    enum { LIVE = 24, CALLS = 900 };
    job *j = arg;
    struct {
        char *p;
        size_t bytes;
        int lane, value;
    } live[LIVE] = {{0}};
    uint64_t seed = 7, sum = 0, own = (uint64_t)k->rank;
    for (int i = 0; i < CALLS; i++) {
        t_roll(&seed);
        own = own * 6364136223846793005ull + 99991;
        if ((own >> 60) == 0) usleep(300);
        int at = (int)(seed >> 40) % LIVE, lane = (int)(seed >> 50) % k->lanes;
        if ((seed >> 58) == 1) T_OK(symmBarrier(k->comm, k->stream[lane]));
        if (live[at].p) {
            lk_check(k->stream[live[at].lane], live[at].p, live[at].bytes, live[at].value);
            lk_free(k->lane[live[at].lane], live[at].p);
            live[at].p = NULL;
            continue;
        }
        live[at].bytes = 1 + (size_t)(seed >> 33) % 30000;
        live[at].lane = lane;
        live[at].value = i + k->rank;
        live[at].p = lk_sym(k->lane[lane], live[at].bytes);
        sum = sum * 31 + offset_of(k, live[at].p);
        lk_fill(k->stream[lane], live[at].p, live[at].bytes, live[at].value);
    }
    for (int at = 0; at < LIVE; at++)
        if (live[at].p) lk_free(k->lane[live[at].lane], live[at].p);
    alike(k, j, sum);
    T_OK(symmHeapCheck(k->heap));
}

static void offsets_do_not_depend_on_the_ranks_pace(void) {
    run(4, 3, 4 * LK_MB, skewed);
}

static void last_out(lk *k, void *arg) {
    symmHeapInfo_t i = {.size = sizeof i};
    char *p = lk_sym(k->lane[1], BLOCK), *q = lk_sym(k->lane[0], BLOCK);
    (void)arg;
    late_writer(k, q, 1);
    lk_free(k->lane[0], q);
    T_OK(symmLaneDestroy(k->lane[0])); /* with a block that some rank may still write */
    k->lane[0] = NULL;
    char *r = lk_sym(k->lane[1], BLOCK);
    lk_fill(k->stream[1], r, BLOCK, 2);
    delay(k->stream[1], 4000);
    lk_check(k->stream[1], r, BLOCK, 2);
    T_OK(symmBarrier(k->comm, k->stream[1]));
    lk_free(k->lane[1], p);
    lk_free(k->lane[1], r);
    T_OK(symmLaneDestroy(k->lane[1]));
    k->lane[1] = NULL;
    T_OK(symmHeapCollect(k->heap));
    T_OK(symmHeapQuery(k->heap, &i));
    T_EQ(i.symUsed + i.uncollected, 0);
}

static void lanes_end_with_blocks_that_peers_still_write(void) {
    run(2, 2, 4 * LK_MB, last_out);
}

/* A rank that makes another call is named at the next collective. */
static void diverging(lk *k, void *arg) {
    job *j = arg;
    char *p = lk_sym(k->lane[0], k->rank ? 512 : 1024);
    meet(j);
    (void)p;
    symmResult_t r = symmHeapCheck(k->heap);
    T_EQ(r, symmMismatch);
    T_MSG(symmGetLastError(k->comm), "512");
    T_OK(symmCommAbort(k->comm));
    T_OK(symmLaneDestroy(k->lane[0]));
    T_OK(symmStreamDestroy(k->stream[0]));
    k->comm = NULL;
}

static void ranks_that_differ_are_told(void) {
    T_EXPECT_WARNINGS();
    run(2, 1, 4 * LK_MB, diverging);
}

enum { NODE_SIZE, NODE_FREE, CAPTURED_FREE, LATER_FREE, GRAPHS };

/* The ranks' graphs differ in one call. */
static void bend_graph(lk *k, int how) {
    symmStream_t s = k->stream[0];
    symmAllocNode_t a = {.size = sizeof a, .bytes = k->rank && how == NODE_SIZE ? 768 : 256};
    symmMemPlan_t plan;
    symmGraphNode_t node;
    void *p, *q;
    if (how < CAPTURED_FREE) {
        T_OK(symmMemPlanCreate(k->lane[0], NULL, 0, &plan));
        T_OK(symmMemPlanAddAllocNode(plan, NULL, 0, &a, &node, &p));
        if (how == NODE_FREE && k->rank)
            T_OK(symmMemPlanAddFreeNode(plan, &node, 1, p, &node));
        else if (how == NODE_FREE)
            T_OK(symmMemPlanAddAllocNode(plan, &node, 1, &a, &node, &q));
        T_OK(symmMemPlanDestroy(plan));
        return;
    }
    T_OK(symmStreamBeginCapture(s));
    p = lk_sym(k->lane[0], 256);
    if (how == CAPTURED_FREE && k->rank) lk_free(k->lane[0], p);
    if (how == CAPTURED_FREE && !k->rank) lk_sym(k->lane[0], 768);
    symmGraph_t g = lk_end(s);
    if (how == LATER_FREE) {
        plan = lk_bind(k->lane[0], g, 0);
        T_OK(symmMemPlanLaunch(plan, xg_exec(g), s));
        if (k->rank) lk_free(k->lane[0], p);
        lk_sym(k->lane[0], 256);
        if (!k->rank) lk_free(k->lane[0], p);
        T_OK(symmMemPlanDestroy(plan));
    }
    T_OK(xg_destroy(g));
}

static void diverging_graph(lk *k, void *arg) {
    job *j = arg;
    const int how = (int)atomic_load(&j->word[0]);
    bend_graph(k, how);
    meet(j);
    T_ERR(symmHeapCheck(k->heap), symmMismatch);
    T_MSG(symmGetLastError(k->comm),
          how == NODE_SIZE ? "symmHeapAlloc of 768" : "symmHeapFree of 256");
    T_MSG(symmGetLastError(k->comm), "from thr_lane");
    T_OK(symmCommAbort(k->comm));
    T_OK(symmLaneDestroy(k->lane[0]));
    T_OK(symmStreamDestroy(k->stream[0]));
    k->comm = NULL;
}

static void ranks_whose_graphs_differ_are_told(void) {
    T_EXPECT_WARNINGS();
    for (int how = 0; how < GRAPHS; how++) {
        job j = {.fn = diverging_graph, .lanes = 1, .sym = 4 * LK_MB, .word = {(uint64_t)how}};
        run_job(2, &j);
    }
}

/* ---- graph order ----------------------------------------------------------------------------- */

/* Alloc, late writes of a peer, free, and the same place again; many replays, at every rank's own
 * pace. */
static void captured_reuse(lk *k, void *arg) {
    job *j = arg;
    symmStream_t s = k->stream[0];
    T_OK(symmStreamBeginCapture(s));
    char *p = lk_sym(k->lane[0], BLOCK);
    late_writer(k, p, 0xaa);
    lk_free(k->lane[0], p);
    char *q = lk_sym(k->lane[0], BLOCK);
    T_CHECK(p == q);
    lk_fill(s, q, BLOCK, 5);
    delay(s, 5000);
    lk_check(s, q, BLOCK, 5);
    lk_free(k->lane[0], q);
    symmGraph_t g = lk_end(s);
    symmMemPlan_t plan = lk_bind(k->lane[0], g, 0);
    alike(k, j, offset_of(k, p));
    T_EQ(lk_info(k->lane[0]).epochs, 2); /* in front of the first, and between */
    for (int i = 0; i < ROUNDS; i++) {
        T_OK(symmMemPlanLaunch(plan, xg_exec(g), s));
        if (i % 5 == k->rank) T_OK(symmStreamSynchronize(s));
    }
    T_OK(symmStreamSynchronize(s));
    T_OK(symmMemPlanDestroy(plan));
    T_OK(xg_destroy(g));
}

static void G_3_3_a_replay_waits_for_late_peers(void) {
    run(3, 1, 4 * LK_MB, captured_reuse);
}

static void captured_spared(lk *k, void *arg) {
    static float in[2][64], out[2][64];
    symmStream_t s = k->stream[0];
    (void)arg;
    T_OK(symmStreamBeginCapture(s));
    T_OK(symmAllReduce(in[k->rank], out[k->rank], 64, symmFloat32, symmSum, k->comm, s));
    char *p = lk_sym(k->lane[0], BLOCK);
    late_writer(k, p, 0xaa);
    lk_free(k->lane[0], p);
    T_OK(symmBarrier(k->comm, s));
    char *q = lk_sym(k->lane[0], BLOCK);
    T_CHECK(p == q);
    lk_fill(s, q, BLOCK, 5);
    delay(s, 5000);
    lk_check(s, q, BLOCK, 5);
    lk_free(k->lane[0], q);
    symmGraph_t g = lk_end(s);
    symmMemPlan_t plan = lk_bind(k->lane[0], g, 0);
    T_EQ(lk_info(k->lane[0]).epochs, 0);
    for (int i = 0; i < ROUNDS; i++) T_OK(symmMemPlanLaunch(plan, xg_exec(g), s));
    T_OK(symmStreamSynchronize(s));
    T_OK(symmMemPlanDestroy(plan));
    T_OK(xg_destroy(g));
}

static void captured_collectives_spare_barriers(void) {
    run(2, 1, 4 * LK_MB, captured_spared);
}

/* Barriers that nobody sees: in a graph on one stream, eager on another. They are calls of one
 * communicator, one after the other. */
static void replays_and_epochs(lk *k, void *arg) {
    symmStream_t s = k->stream[0];
    enum { ROUNDS = 200 };
    (void)arg;
    T_OK(symmStreamBeginCapture(s));
    char *p = lk_sym(k->lane[0], BLOCK);
    if (k->rank) delay(s, 500);
    lk_fill(s, p, BLOCK, 1);
    lk_free(k->lane[0], p);
    p = lk_sym(k->lane[0], BLOCK);
    lk_free(k->lane[0], p);
    symmGraph_t g = lk_end(s);
    symmMemPlan_t plan = lk_bind(k->lane[0], g, 0);
    for (int i = 0; i < ROUNDS; i++) {
        T_OK(symmMemPlanLaunch(plan, xg_exec(g), s));
        lk_free(k->lane[1], lk_sym(k->lane[1], BLOCK));
    }
    T_OK(symmStreamSynchronize(s));
    T_OK(symmStreamSynchronize(k->stream[1]));
    T_EQ(lk_info(k->lane[1]).epochs, ROUNDS - 1);
    T_OK(symmMemPlanDestroy(plan));
    T_OK(xg_destroy(g));
}

static void replays_are_ordered_with_eager_barriers(void) {
    run(2, 2, 4 * LK_MB, replays_and_epochs);
}

/* What a barrier may not stand beside. */
static void branches(lk *k, void *arg) {
    symmStream_t s = k->stream[0], t = k->stream[1];
    void *p = NULL;
    (void)arg;
    T_OK(symmStreamBeginCapture(s));
    lk_fill(s, (char *)&p, 0, 0);
    lk_order(s, t);
    T_OK(symmBarrier(k->comm, t));
    T_ERR(symmLaneAlloc(k->lane[0], BLOCK, SYMM_ALLOC_SYM, &p), symmInvalidUsage);
    T_MSG(symmGetLastError(NULL), "beside a captured call");
    lk_order(t, s);
    T_OK(symmLaneAlloc(k->lane[0], BLOCK, SYMM_ALLOC_SYM, &p));
    lk_free(k->lane[0], p);
    symmGraph_t g = lk_end(s);
    T_OK(symmStreamBeginCapture(s));
    lk_fill(s, (char *)&p, 0, 0);
    lk_order(s, t);
    T_OK(symmLaneAlloc(k->lane[1], BLOCK, SYMM_ALLOC_SYM, &p)); /* with a barrier, on t */
    T_ERR(symmBarrier(k->comm, s), symmInvalidUsage);
    T_MSG(symmGetLastError(NULL), "beside a barrier");
    lk_free(k->lane[1], p);
    lk_order(t, s);
    T_OK(symmBarrier(k->comm, s));
    symmGraph_t h = lk_end(s);
    for (int i = 0; i < 5; i++) {
        T_OK(symmGraphLaunch(xg_exec(g), s));
        T_OK(symmGraphLaunch(xg_exec(h), s));
    }
    T_OK(symmStreamSynchronize(s));
    T_OK(xg_destroy(g));
    T_OK(xg_destroy(h));
}

static void barriers_are_not_put_beside_other_calls(void) {
    T_EXPECT_WARNINGS();
    run(2, 2, 4 * LK_MB, branches);
}

/* Explicit SYM nodes: each its own place, and a barrier in front of each launch. */
static void explicit_nodes(lk *k, void *arg) {
    symmMemPlan_t plan;
    symmGraphNode_t a, b, c;
    void *p, *q;
    symmAllocNode_t params = {.size = sizeof params, .bytes = BLOCK};
    job *j = arg;
    T_OK(symmMemPlanCreate(k->lane[0], NULL, 0, &plan));
    T_OK(symmMemPlanAddAllocNode(plan, NULL, 0, &params, &a, &p));
    T_OK(symmMemPlanAddFreeNode(plan, &a, 1, p, &b));
    T_OK(symmMemPlanAddAllocNode(plan, &b, 1, &params, &c, &q));
    T_OK(symmMemPlanAddFreeNode(plan, &c, 1, q, &b));
    T_CHECK(p != q);
    alike(k, j, offset_of(k, q));
    for (int i = 0; i < 10; i++) {
        T_OK(symmMemPlanLaunch(plan, NULL, k->stream[0]));
        lk_fill(k->stream[0], p, BLOCK, i);
        lk_check(k->stream[0], p, BLOCK, i);
        T_OK(symmBarrier(k->comm, k->stream[0])); /* for the block still lives */
        late_writer(k, p, 0x55);
    }
    T_OK(symmStreamSynchronize(k->stream[0]));
    T_OK(symmMemPlanDestroy(plan));
}

static void explicit_nodes_of_several_ranks(void) {
    run(2, 1, 4 * LK_MB, explicit_nodes);
}

/* Each rank asked gives the same answer; a rank's own memory is its own always. */
static void same_access(lk *k, void *arg) {
    const int some[] = {2};
    int allowed = -1;
    (void)arg;
    T_OK(symmLaneSetAccess(k->lane[0], some, 1));
    T_OK(symmStreamBeginCapture(k->stream[0]));
    char *p = lk_sym(k->lane[0], BLOCK);
    T_OK(symmLaneSetAccess(k->lane[0], NULL, 0)); /* too late for p */
    char *q = lk_sym(k->lane[0], BLOCK);
    lk_free(k->lane[0], p), lk_free(k->lane[0], q);
    symmGraph_t g = lk_end(k->stream[0]);
    for (int r = 0; r < k->n; r++) {
        T_OK(symmLaneGetAccess(k->lane[1], p, r, &allowed));
        T_EQ(allowed, r == 2 || r == k->rank);
        T_OK(symmLaneGetAccess(k->lane[1], q, r, &allowed));
        T_EQ(allowed, 1);
    }
    T_OK(xg_destroy(g));
}

static void G_7_all_ranks_answer_alike(void) {
    run(3, 2, 4 * LK_MB, same_access);
}

/* A block outlives its graph; the last rank's other stream is late and still writes to it, on all
 * ranks, when another graph with blocks in the same bytes is launched: the barrier in front of
 * that one's first block is behind every rank's free. */
static void late_free(lk *k, void *arg) {
    symmStream_t s = k->stream[0], t = k->stream[1];
    (void)arg;
    T_OK(symmStreamBeginCapture(s));
    char *p = lk_sym(k->lane[0], BLOCK);
    lk_fill(s, p, BLOCK, 1);
    delay(s, 6000); /* longer than the peer is late: what it writes after all is found */
    lk_check(s, p, BLOCK, 1);
    lk_free(k->lane[0], p);
    symmGraph_t g = lk_end(s);
    T_OK(symmStreamBeginCapture(s));
    char *left = lk_sym(k->lane[0], BLOCK);
    lk_fill(s, left, BLOCK, 9);
    symmGraph_t h = lk_end(s);
    symmMemPlan_t a = lk_bind(k->lane[0], g, 0), b = lk_bind(k->lane[0], h, 0);
    T_CHECK(left == p);
    for (int i = 0; i < ROUNDS / 2; i++) {
        T_OK(symmMemPlanLaunch(b, xg_exec(h), s));
        T_OK(symmBarrier(k->comm, s)); /* the block lives on all ranks */
        lk_order(s, t);
        if (k->rank == k->n - 1) {
            delay(t, 3000);
            for (int r = 0; r < k->n; r++) lk_fill(t, at_rank(k, left, r), BLOCK, 0xaa);
        }
        lk_free(k->lane[1], left);
        T_OK(symmMemPlanLaunch(a, xg_exec(g), s));
    }
    T_OK(symmStreamSynchronize(s));
    T_OK(symmStreamSynchronize(t));
    T_OK(symmMemPlanDestroy(a)), T_OK(symmMemPlanDestroy(b));
    T_OK(xg_destroy(g)), T_OK(xg_destroy(h));
}

static void G_3_3_another_graph_waits_for_every_ranks_free(void) {
    run(2, 2, 4 * LK_MB, late_free);
}

T_MAIN(T(a_late_peer_does_not_write_into_a_block_used_again),
       T(a_collective_behind_the_free_spares_the_barrier),
       T(other_streams_and_empty_calls_spare_none), T(one_barrier_serves_many_small_blocks),
       T(a_lane_takes_anothers_bytes_behind_its_epoch), T(offsets_do_not_depend_on_the_ranks_pace),
       T(lanes_end_with_blocks_that_peers_still_write), T(ranks_that_differ_are_told),
       T(ranks_whose_graphs_differ_are_told), T(G_3_3_a_replay_waits_for_late_peers),
       T(captured_collectives_spare_barriers), T(replays_are_ordered_with_eager_barriers),
       T(barriers_are_not_put_beside_other_calls), T(explicit_nodes_of_several_ranks),
       T(G_7_all_ranks_answer_alike), T(G_3_3_another_graph_waits_for_every_ranks_free))
