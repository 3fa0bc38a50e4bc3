/* unit_lane.c - stream order on one rank: what is used again, by whom, behind what; what is
 * refused. Several ranks: thr_lane.c. Graphs: unit_lane_graph.c. The test's thread drives all;
 * tasks run in the streams' threads. */
#include <unistd.h>

#include "graph_kit.h"
#include "lane_kit.h"

/* ---- one stream ------------------------------------------------------------------------------ */

static void what_a_lane_frees_it_has_again_at_once(void) {
    lk k;
    lk_alone(&k, 1);
    char *a = lk_local(k.lane[0], 1000), *b = lk_local(k.lane[0], 1000),
         *s = lk_sym(k.lane[0], 5000);
    T_CHECK(a != b);
    lk_free(k.lane[0], a);
    T_CHECK(lk_local(k.lane[0], 1024) == a); /* rounded to the same size */
    lk_free(k.lane[0], s);
    T_CHECK(lk_sym(k.lane[0], 5000) == s); /* one rank: nobody else to wait for */
    lk_free(k.lane[0], a), lk_free(k.lane[0], b), lk_free(k.lane[0], s);
    lk_close(&k);
}

/* The steady state: whatever is asked for has been freed before. */
static void a_thousand_calls_take_nothing_from_the_heap(void) {
    lk k;
    char *p[16];
    lk_alone(&k, 1);
    symmHeapInfo_t before = {.size = sizeof before}, after = {.size = sizeof after};
    for (int round = 0; round < 200; round++) {
        for (int i = 0; i < 16; i++) p[i] = lk_local(k.lane[0], 256 * (size_t)(1 + i % 5));
        for (int i = 0; i < 16; i++) lk_free(k.lane[0], p[i]);
        if (round == 1) T_OK(symmHeapQuery(k.heap, &before));
    }
    T_OK(symmHeapQuery(k.heap, &after));
    T_EQ(after.localUsed, before.localUsed);
    T_EQ(after.blocks, before.blocks);
    T_EQ(lk_info(k.lane[0]).allocs, 3200);
    T_EQ(lk_info(k.lane[0]).follows, 0);
    lk_close(&k);
}

static void nothing_and_null_are_no_work(void) {
    lk k;
    void *p = &k;
    lk_alone(&k, 1);
    T_OK(symmLaneAlloc(k.lane[0], 0, SYMM_ALLOC_LOCAL, &p));
    T_CHECK(p == NULL);
    T_OK(symmLaneFree(k.lane[0], NULL));
    T_EQ(lk_info(k.lane[0]).allocs + lk_info(k.lane[0]).frees, 0);
    lk_close(&k);
}

static void queries_know_a_lanes_blocks(void) {
    lk k;
    symmMemInfo_t i = {.size = sizeof i};
    symmRef_t ref;
    lk_alone(&k, 2);
    char *a = lk_local(k.lane[1], 3000), *b = lk_sym(k.lane[0], 700);
    T_OK(symmMemQuery(a + 100, &i));
    T_CHECK(i.block == a && i.bytes == 3072 && i.lane == 1 && !i.symmetric);
    T_OK(symmRefGet(b + 256, &ref));
    T_EQ(ref.len, 512);
    T_OK(symmMemQuery(b, &i));
    T_CHECK(i.block == b && i.bytes == 768 && i.lane == 0 && i.symmetric);
    lk_free(k.lane[1], a), lk_free(k.lane[0], b);
    lk_close(&k);
}

/* ---- several streams ------------------------------------------------------------------------- */

/* Bytes that lane 0 has given go to lane 1 behind what stream 0 was given before: shown by work
 * that has not ended. */
static void another_lane_comes_behind_the_free(void) {
    enum { BYTES = 8 << 20, PART = 64 << 10 };
    lk k;
    lk_gate gate = {0};
    lk_alone(&k, 2);
    char *a = lk_local(k.lane[0], 6 * BYTES);
    lk_hold(k.stream[0], &gate);
    lk_fill(k.stream[0], a, PART, 1);
    lk_free(k.lane[0], a);
    char *b = lk_local(k.lane[1], 6 * BYTES); /* the zone does not hold both */
    T_CHECK(a == b);
    lk_fill(k.stream[1], b, PART, 2);
    lk_check(k.stream[1], b, PART, 2);
    T_EQ(lk_info(k.lane[1]).follows, 1);
    while (!atomic_load(&gate.reached)) sched_yield();
    usleep(30000); /* it would be through by now, if nothing held it */
    T_EQ(symmStreamQuery(k.stream[1]), symmInProgress);
    atomic_store(&gate.open, 1);
    T_OK(symmStreamSynchronize(k.stream[1]));
    for (int i = 0; i < 100; i++) { /* once for all that was given until then */
        char *c = lk_local(k.lane[1], 256 + 256 * (size_t)i);
        lk_free(k.lane[1], c);
    }
    T_EQ(lk_info(k.lane[1]).follows, 1);
    lk_free(k.lane[1], b);
    lk_close(&k);
}

static void a_block_may_be_freed_on_another_lane(void) {
    lk k;
    lk_alone(&k, 3);
    char *a = lk_local(k.lane[0], 4096);
    lk_fill(k.stream[0], a, 4096, 7);
    lk_order(k.stream[0], k.stream[2]);
    lk_check(k.stream[2], a, 4096, 7);
    lk_free(k.lane[2], a);
    T_EQ(lk_info(k.lane[0]).localLive, 0);
    T_EQ(lk_info(k.lane[2]).localKept, 4096);
    T_CHECK(lk_local(k.lane[0], 4096) != a); /* lane 0 is not behind it */
    T_CHECK(lk_local(k.lane[2], 4096) == a);
    lk_free(k.lane[2], a);
    symmLaneInfo_t i = lk_info(k.lane[0]);
    T_EQ(i.localLive, 4096);
    T_OK(symmHeapDestroy(k.heap)); /* with a block in it: it goes along */
    for (int n = 0; n < 3; n++) {
        T_OK(symmLaneDestroy(k.lane[n]));
        T_OK(symmStreamDestroy(k.stream[n]));
    }
    T_OK(symmCommDestroy(k.comm));
}

static symmResult_t nap_task(void *args) {
    usleep(*(useconds_t *)args);
    return symmSuccess;
}
static void nap(symmStream_t s, useconds_t us) {
    T_OK(symm_stream_submit(s, nap_task, &us, sizeof us));
}

/* The stream that is waited for is gone when its turn comes; what it did is there all the same. */
static void a_stream_that_has_ended_is_still_before(void) {
    lk k;
    lk_alone(&k, 2);
    char *a = lk_local(k.lane[0], 4096);
    nap(k.stream[0], 20000);
    lk_fill(k.stream[0], a, 4096, 7);
    nap(k.stream[1], 120000);
    lk_order(k.stream[0], k.stream[1]);
    lk_check(k.stream[1], a, 4096, 7);
    lk_free(k.lane[1], a);
    T_OK(symmLaneDestroy(k.lane[0]));
    T_OK(symmStreamDestroy(k.stream[0]));
    usleep(250000); /* not a lock of the other stream meanwhile, which would order the two */
    T_OK(symmStreamSynchronize(k.stream[1]));
    T_OK(symmLaneDestroy(k.lane[1]));
    T_OK(symmStreamDestroy(k.stream[1]));
    T_OK(symmHeapDestroy(k.heap));
    T_OK(symmCommDestroy(k.comm));
}

static void a_lane_that_ends_hands_over_what_it_had(void) {
    enum { BYTES = 48 << 20, PART = 64 << 10 };
    lk k;
    lk_gate gate = {0};
    lk_alone(&k, 3);
    char *live = lk_local(k.lane[0], 512), *a = lk_local(k.lane[0], BYTES);
    lk_hold(k.stream[0], &gate);
    lk_fill(k.stream[0], a, PART, 1);
    lk_free(k.lane[0], a);
    T_OK(symmLaneDestroy(k.lane[0]));
    k.lane[0] = NULL;
    char *b = lk_local(k.lane[2], BYTES);
    lk_fill(k.stream[2], b, PART, 2);
    lk_check(k.stream[2], b, PART, 2);
    while (!atomic_load(&gate.reached)) sched_yield();
    usleep(30000); /* as above */
    T_EQ(symmStreamQuery(k.stream[2]), symmInProgress);
    atomic_store(&gate.open, 1);
    lk_free(k.lane[2], b);
    lk_free(k.lane[1], live); /* its lane is gone, it is not */
    lk_close(&k);
}

static void random_work_on_several_streams_never_meets(void) {
    enum { LIVE = 64, CALLS = 2500 };
    lk k;
    struct {
        char *p;
        size_t bytes;
        int lane, value;
    } live[LIVE] = {{0}};
    uint64_t seed = 99;
    lk_alone(&k, 4);
    for (int i = 0; i < CALLS; i++) {
        t_roll(&seed);
        int at = (int)(seed >> 40) % LIVE, lane = (int)(seed >> 50) % 4;
        if (live[at].p) {
            lk_check(k.stream[live[at].lane], live[at].p, live[at].bytes, live[at].value);
            lk_free(k.lane[live[at].lane], live[at].p);
            live[at].p = NULL;
            continue;
        }
        live[at].bytes = 1 + (size_t)(seed >> 33) % 6000;
        live[at].lane = lane;
        live[at].value = i;
        live[at].p = lk_local(k.lane[lane], live[at].bytes);
        lk_fill(k.stream[lane], live[at].p, live[at].bytes, i);
    }
    for (int at = 0; at < LIVE; at++)
        if (live[at].p) lk_free(k.lane[live[at].lane], live[at].p);
    lk_close(&k);
}

/* 64 lanes of small blocks, 16 MiB in use: at most 1.3 times what was asked for is taken from the
 * heap. */
static void are_tight(size_t most, int per) {
    enum { PER = 512, ROUNDS = 20 };
    static char *p[LK_LANES][PER];
    static size_t bytes[LK_LANES][PER];
    lk k;
    uint64_t seed = 5, live = 0, peak = 0;
    lk_alone(&k, LK_LANES);
    for (int round = 0; round < ROUNDS; round++)
        for (int i = 0; i < per; i++)
            for (int l = 0; l < LK_LANES; l++) {
                t_roll(&seed);
                if (p[l][i] && (seed >> 60) < 12) {
                    lk_free(k.lane[l], p[l][i]);
                    live -= bytes[l][i];
                    p[l][i] = NULL;
                }
                if (p[l][i]) continue;
                bytes[l][i] = 1 + (seed >> 33) % most;
                p[l][i] = lk_local(k.lane[l], bytes[l][i]);
                live += bytes[l][i];
                if (live > peak) peak = live;
            }
    uint64_t reserved = lk_info(k.lane[0]).localReserved;
    T_CHECKF(reserved * 10 <= peak * 13, "blocks to %zu: %llu bytes for %llu", most,
             (unsigned long long)reserved, (unsigned long long)peak);
    T_CHECK(peak > 12 * LK_MB);
    for (int l = 0; l < LK_LANES; l++)
        for (int i = 0; i < per; i++) {
            lk_free(k.lane[l], p[l][i]);
            p[l][i] = NULL;
        }
    lk_close(&k);
}

static void lanes_of_small_blocks_are_tight(void) {
    for (size_t most = 1024; most <= 16384; most *= 4) are_tight(most, (int)(512 * 1024 / most));
}

/* Alignment by size; neighbours share no line. */
static void small_blocks_are_whole_lines(void) {
    lk k;
    T_EXPECT_WARNINGS();
    lk_alone(&k, 1);
    char *one = lk_local(k.lane[0], 1), *line = lk_local(k.lane[0], 128),
         *two = lk_local(k.lane[0], 129), *most = lk_local(k.lane[0], 896),
         *large = lk_local(k.lane[0], 897);
    T_CHECK(line == one + 128 && two == line + 128 && most == two + 256);
    T_EQ((uintptr_t)large % 256, 0); /* lk_alloc looks at the others */
    T_EQ(lk_info(k.lane[0]).localLive, 128 + 128 + 256 + 896 + 1024);
    symmMemInfo_t m = {.size = sizeof m};
    T_OK(symmMemQuery(line + 127, &m));
    T_CHECK(m.block == line && m.bytes == 128);
    T_ERR(symmLaneFree(k.lane[0], two + 128), symmInvalidArgument);
    char *p[] = {one, line, two, most, large};
    for (int i = 0; i < 5; i++) lk_free(k.lane[0], p[i]);
    T_ERR(symmMemQuery(line, &m), symmInvalidArgument); /* though the lane keeps it */
    lk_close(&k);
}

/* ---- giving back ----------------------------------------------------------------------------- */

static void trim_and_the_last_lane_give_all_back(void) {
    lk k;
    symmHeapInfo_t i = {.size = sizeof i};
    uint64_t freed = 0;
    lk_alone(&k, 2);
    char *a = lk_local(k.lane[0], 3 * LK_MB), *b = lk_sym(k.lane[1], 2 * LK_MB),
         *c = lk_local(k.lane[1], 512);
    lk_free(k.lane[0], a), lk_free(k.lane[1], b);
    T_OK(symmHeapTrimLanes(k.heap, &freed));
    T_CHECK(freed >= 4 * LK_MB); /* of the piece under c nothing */
    T_EQ(lk_info(k.lane[0]).symReserved, 0);
    T_OK(symmHeapQuery(k.heap, &i));
    T_CHECK(i.uncollected >= 2 * LK_MB);
    T_OK(symmHeapCollect(k.heap));
    lk_free(k.lane[0], c);
    T_OK(symmStreamSynchronize(k.stream[0]));
    for (int n = 0; n < 2; n++) T_OK(symmLaneDestroy(k.lane[n]));
    k.lane[0] = k.lane[1] = NULL;
    T_OK(symmHeapCollect(k.heap));
    T_OK(symmHeapQuery(k.heap, &i));
    T_EQ(i.symUsed + i.localUsed + i.uncollected, 0);
    lk_close(&k);
}

static void what_does_not_fit_is_told_and_changes_nothing(void) {
    lk k;
    void *p = NULL;
    T_EXPECT_WARNINGS();
    lk_alone(&k, 2);
    char *a = lk_local(k.lane[0], 40 * LK_MB);
    T_ERR(symmLaneAlloc(k.lane[1], 40 * LK_MB, SYMM_ALLOC_LOCAL, &p), symmNeedGrow);
    T_ERR(symmLaneAlloc(k.lane[1], 40ull << 30, SYMM_ALLOC_SYM, &p), symmOutOfMemory);
    T_ERR(symmLaneAlloc(k.lane[1], SIZE_MAX - 3, SYMM_ALLOC_LOCAL, &p), symmOutOfMemory);
    T_CHECK(p == NULL);
    T_OK(symmHeapGrow(k.heap, 0, 64 * LK_MB));
    char *b = lk_local(k.lane[1], 40 * LK_MB);
    lk_free(k.lane[0], a), lk_free(k.lane[1], b);
    lk_close(&k);
}

/* ---- misuse ---------------------------------------------------------------------------------- */

static void bad_pointers_are_refused_by_name(void) {
    lk k;
    int here;
    T_EXPECT_WARNINGS();
    lk_alone(&k, 2);
    void *user = NULL;
    T_OK(symmHeapAlloc(k.heap, 4096, 0, SYMM_ALLOC_LOCAL, &user));
    char *a = lk_local(k.lane[0], 4096), *b = lk_local(k.lane[0], 4096);
    symmLaneInfo_t before = lk_info(k.lane[0]), after;
    T_ERR(symmLaneFree(k.lane[0], a + 256), symmInvalidArgument);
    T_MSG(symmGetLastError(NULL), "does not begin");
    T_ERR(symmLaneFree(k.lane[0], &here), symmInvalidArgument);
    T_MSG(symmGetLastError(NULL), "not of the heap");
    T_ERR(symmLaneFree(k.lane[0], user), symmInvalidArgument);
    T_ERR(symmHeapFree(k.heap, a), symmInvalidArgument);
    after = lk_info(k.lane[0]);
    T_EQ(memcmp(&before, &after, sizeof before), 0);
    lk_free(k.lane[0], a);
    T_ERR(symmLaneFree(k.lane[1], a), symmInvalidArgument);
    T_MSG(symmGetLastError(NULL), "already freed");
    lk_free(k.lane[0], b);
    T_OK(symmHeapFree(k.heap, user));
    lk_close(&k);
}

static void bad_lanes_streams_and_flags_are_refused(void) {
    lk k, other;
    void *p = NULL;
    symmLane_t lane = NULL;
    T_EXPECT_WARNINGS();
    lk_alone(&k, 2);
    lk_alone(&other, 1);
    for (size_t bytes = 0; bytes < 128; bytes += 64) {
        T_ERR(symmLaneAlloc(k.lane[0], bytes, 32, &p), symmInvalidArgument);
        T_MSG(symmGetLastError(NULL), "flags=0x20");
    }
    T_ERR(symmLaneAlloc(k.lane[0], 64, 0, NULL), symmInvalidArgument);
    T_ERR(symmLaneAlloc((symmLane_t)&k, 64, 0, &p), symmInvalidArgument);
    T_ERR(symmLaneCreate(k.heap, (symmStream_t)&k, &lane), symmInvalidArgument);
    T_ERR(symmLaneCreate(k.heap, NULL, NULL), symmInvalidArgument);
    T_ERR(symmLaneCreate((symmHeap_t)&k, NULL, &lane), symmInvalidArgument);
    char *a = lk_local(other.lane[0], 64);
    T_ERR(symmLaneFree(k.lane[0], a), symmInvalidArgument); /* a lane of another heap */
    lk_free(other.lane[0], a);
    a = lk_local(k.lane[1], 64);
    T_ERR(symmGroupStart() ? symmSuccess : symmLaneFree(k.lane[1], a), symmInvalidUsage);
    T_MSG(symmGetLastError(NULL), "group");
    T_OK(symmGroupEnd());
    T_OK(symmStreamDestroy(k.stream[1]));
    k.stream[1] = NULL;
    T_ERR(symmLaneFree(k.lane[1], a), symmInvalidArgument);
    T_MSG(symmGetLastError(NULL), "no live stream");
    T_ERR(symmLaneAlloc(k.lane[1], 64, 0, &p), symmInvalidArgument);
    T_OK(symmLaneDestroy(k.lane[1]));
    T_ERR(symmLaneDestroy(k.lane[1]), symmInvalidArgument);
    k.lane[1] = NULL;
    T_ERR(symmLaneDestroy(k.lane[0]), symmInvalidUsage); /* the last one, with a block */
    T_MSG(symmGetLastError(NULL), " 128 bytes");
    lk_free(k.lane[0], a);
    T_CHECK(lane == NULL && p == NULL);
    lk_close(&other);
    lk_close(&k);
}

/* Lanes whose streams are gone neither keep others from working nor from ending. */
static void lanes_without_streams_end_in_any_order(void) {
    enum { BIG = 40 << 20 };
    lk k;
    lk_alone(&k, 3);
    lk_free(k.lane[0], lk_local(k.lane[0], BIG)), lk_free(k.lane[1], lk_local(k.lane[1], 512));
    for (int i = 0; i < 2; i++) {
        T_OK(symmStreamDestroy(k.stream[i]));
        k.stream[i] = NULL;
    }
    char *p = lk_local(k.lane[2], BIG); /* the first lane's */
    lk_free(k.lane[2], p);
    T_OK(symmStreamDestroy(k.stream[2]));
    k.stream[2] = NULL;
    T_OK(symmHeapTrimLanes(k.heap, NULL));
    for (int i = 0; i < 3; i++) {
        T_OK(symmLaneDestroy(k.lane[i]));
        k.lane[i] = NULL;
    }
    lk_close(&k);
}

/* The NULL stream runs calls inline: a free there is over when it returns. */
static void a_lane_of_the_null_stream_is_synchronous(void) {
    lk k;
    symmLane_t lane;
    lk_alone(&k, 1);
    T_OK(symmLaneCreate(k.heap, NULL, &lane));
    char *a = lk_local(k.lane[0], 4096);
    lk_fill(k.stream[0], a, 4096, 3);
    T_OK(symmStreamSynchronize(k.stream[0]));
    lk_free(lane, a);
    T_CHECK(lk_local(lane, 4096) == a);
    memset(a, 1, 4096);
    lk_free(lane, a);
    T_OK(symmLaneDestroy(lane));
    lk_close(&k);
}

static void lanes_may_outlive_heap_and_communicator(void) {
    lk k;
    void *p;
    T_EXPECT_WARNINGS();
    lk_alone(&k, 2);
    lk_local(k.lane[0], 100);
    T_OK(symmCommDestroy(k.comm));
    T_ERR(symmLaneAlloc(k.lane[0], 100, 0, &p), symmInvalidArgument);
    for (int i = 0; i < 2; i++) {
        T_OK(symmLaneDestroy(k.lane[i]));
        T_OK(symmStreamDestroy(k.stream[i]));
    }
}

/* Memory in use stays, and the log says how much. */
static void trims_say_what_they_leave(void) {
    char path[] = "/tmp/symm-unit-XXXXXX", text[8192] = "", *p, *q;
    const int fd = mkstemp(path);
    symm_params defaults;
    lk k;
    setenv("SYMM_DEBUG", "INFO", 1);
    setenv("SYMM_DEBUG_FILE", path, 1);
    lk_alone(&k, 1);
    p = lk_local(k.lane[0], 5000);
    T_OK(symmStreamBeginCapture(k.stream[0]));
    q = lk_local(k.lane[0], 5000);
    lk_free(k.lane[0], q);
    symmGraph_t g = lk_end(k.stream[0]);
    symmMemPlan_t a = lk_bind(k.lane[0], g, 0);
    T_OK(symmHeapTrimLanes(k.heap, NULL));
    T_OK(symmLaneTrimGraphMem(k.lane[0], NULL));
    T_OK(symmHeapTrim(k.heap, 0, NULL));
    T_CHECK(read(fd, text, sizeof text - 1) > 0);
    T_MSG(text, "INFO lanes trimmed by 0 bytes; pieces of ");
    T_MSG(text, "INFO graphs of lane 0 trimmed by 0 bytes; pieces of ");
    T_MSG(text,
          "INFO heap 1: trimmed by 67108864 bytes; chunks in use stay: 0 bytes of SYM, 67108864 of "
          "LOCAL");
    lk_free(k.lane[0], p);
    T_OK(symmMemPlanDestroy(a));
    T_OK(xg_destroy(g));
    lk_close(&k);
    unsetenv("SYMM_DEBUG_FILE");
    unsetenv("SYMM_DEBUG");
    T_OK(symm_param_load(&defaults)); /* closes the file */
    close(fd);
    unlink(path);
}

T_MAIN(T(what_a_lane_frees_it_has_again_at_once), T(a_thousand_calls_take_nothing_from_the_heap),
       T(nothing_and_null_are_no_work), T(queries_know_a_lanes_blocks),
       T(another_lane_comes_behind_the_free), T(a_block_may_be_freed_on_another_lane),
       T(a_stream_that_has_ended_is_still_before), T(a_lane_that_ends_hands_over_what_it_had),
       T(random_work_on_several_streams_never_meets), T(lanes_of_small_blocks_are_tight),
       T(small_blocks_are_whole_lines), T(trim_and_the_last_lane_give_all_back),
       T(what_does_not_fit_is_told_and_changes_nothing), T(bad_pointers_are_refused_by_name),
       T(bad_lanes_streams_and_flags_are_refused), T(lanes_without_streams_end_in_any_order),
       T(a_lane_of_the_null_stream_is_synchronous), T(lanes_may_outlive_heap_and_communicator),
       T(trims_say_what_they_leave))
