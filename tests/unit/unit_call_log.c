/* unit_call_log.c - what ranks are told of each other (call_log.h), over control blocks in plain
 * memory: who differs, who is alone with it, what the ring has forgotten, who has not come yet.
 * One thread; no lock. */
#include <stdlib.h>
#include <string.h>

#include "device/host/reduce.h"
#include "host/comm/call_log.h"
#include "t.h"

enum { RANKS = 5, CAP = 512 };

/* Ranks of one process, each with its own communicator and block. */
typedef struct {
    symm_comm c[RANKS];
    symm_ctl *ctl;
} world;

static world *world_new(int n) {
    world *w = calloc(1, sizeof *w);
    T_CHECK(w && (w->ctl = calloc((size_t)n, sizeof *w->ctl)));
    for (int r = 0; r < n; r++) {
        w->c[r].base = (uint64_t)(uintptr_t)w->ctl;
        w->c[r].stride = sizeof *w->ctl;
        w->c[r].rank = r;
        w->c[r].nranks = n;
        w->c[r].ctl = &w->ctl[r];
    }
    return w;
}

static void world_free(world *w) {
    free(w->ctl);
    free(w);
}

static void calls(world *w, int rank, symmColl_t coll, uint64_t count, uint32_t type, uint32_t op) {
    const symm_call k = {.coll = coll, .count = count, .type = type, .op = op};
    symm_call_log_begin(&w->c[rank], &k);
}

static void all_call(world *w, int n, uint64_t count) {
    for (int r = 0; r < n; r++) calls(w, r, symmCollAllReduce, count, symmFloat32, symmSum);
}

/* Every rank finds the same words, or none. */
static void told(world *w, int n, const char *want) {
    for (int r = 0; r < n; r++) {
        char text[CAP] = "";
        T_EQ(symm_call_log_differ(&w->c[r], text, sizeof text), want[0] != 0);
        T_STREQ(text, want);
    }
}

static void who_is_alone_is_named(void) {
    world *w = world_new(5);
    for (int i = 0; i < 3; i++) all_call(w, 5, 100);
    told(w, 5, "");
    for (int r = 0; r < 5; r++)
        calls(w, r, r == 3 ? symmCollAllGather : symmCollAllReduce, 8, symmFloat32, symmSum);
    all_call(w, 5, 100);
    for (int r = 0; r < 5; r++) calls(w, r, symmCollBarrier, 0, symmUint8, (uint32_t)(r == 1));
    told(w, 5,
         "call 4: ranks 0-2, 4: symmAllReduce of 8 float32 (sum); rank 3: symmAllGather of 8 "
         "float32");
    world_free(w);
}

static void two_are_named_both(void) {
    world *w = world_new(2);
    calls(w, 0, symmCollAllReduce, 8, symmInt32, SYMM_OP_PREMUL);
    told(w, 2, ""); /* rank 1 is to come */
    calls(w, 1, symmCollBarrier, 0, symmUint8, symmSum);
    told(w, 2, "call 1: rank 0: symmAllReduce of 8 int32 (premulsum); rank 1: symmBarrier");
    world_free(w);
}

static void several_sides_are_two_of_them(void) {
    world *w = world_new(5);
    for (int r = 0; r < 5; r++) calls(w, r, symmCollAllGather, r < 2 ? 9 : 7 - r, symmInt8, 0);
    told(w, 5, "call 1: ranks 0, 1: symmAllGather of 9 int8; rank 2: symmAllGather of 5 int8");
    world_free(w);
}

/* A rank that left a call out, long ago. */
static void what_the_ring_has_forgotten_is_said(void) {
    world *w = world_new(2);
    for (uint64_t i = 1; i <= 200; i++) {
        if (i != 2) calls(w, 0, symmCollAllReduce, i, symmInt64, symmMax);
        calls(w, 1, symmCollAllReduce, i, symmInt64, symmMax);
    }
    told(
        w, 2,
        "call 73 (or an older one): rank 0: symmAllReduce of 74 int64 (max); rank 1: symmAllReduce "
        "of 73 int64 (max)");
    for (int i = 0; i < 2 * SYMM_CALL_LOG_CALLS; i++)
        for (int r = 0; r < 2; r++) calls(w, r, symmCollBarrier, 0, symmUint8, symmSum);
    told(w, 2, "");
    world_free(w);
}

static void what_was_refused_was_not_called(void) {
    world *w = world_new(2);
    char text[CAP];
    all_call(w, 2, 4);
    calls(w, 1, symmCollBarrier, 0, symmUint8, symmSum);
    symm_call_log_undo(&w->c[1]);
    T_STREQ(symm_call_log_text(&w->c[0], 1, text, sizeof text),
            "1 collectives, the last symmAllReduce of 4 float32 (sum)");
    all_call(w, 2, 5);
    told(w, 2, "");
    T_EQ(w->ctl[1].call_log.calls, 2);
    world_free(w);
}

/* Who reads while a call is taken back and another one is written under its number does not take
 * the one's count for the other's. */
static void a_number_that_is_used_again_is_told_apart(void) {
    world *w = world_new(2);
    calls(w, 0, symmCollBarrier, 0, symmUint8, symmSum);
    const uint64_t first = w->ctl[0].call_log.ring[1].seq;
    symm_call_log_undo(&w->c[0]);
    calls(w, 0, symmCollBarrier, 0, symmUint8, symmSum);
    T_CHECK(w->ctl[0].call_log.ring[1].seq != first);
    T_EQ(w->ctl[0].call_log.calls, 1);
    calls(w, 1, symmCollBarrier, 0, symmUint8, symmSum);
    told(w, 2, "");
    world_free(w);
}

static void every_call_has_words(void) {
    char seen[symmNumTypes * (SYMM_OP_PREMUL + 1)][CAP];
    int n = 0;
    for (uint32_t t = 0; t < symmNumTypes; t++)
        for (uint32_t op = 0; op <= SYMM_OP_PREMUL; op++, n++) {
            world *w = world_new(2);
            calls(w, 0, symmCollAllReduce, 3, t, op);
            symm_call_log_text(&w->c[1], 0, seen[n], CAP);
            T_MSG(seen[n], "1 collectives, the last symmAllReduce of 3 ");
            for (int i = 0; i < n; i++) T_CHECKF(strcmp(seen[i], seen[n]), "twice: %s", seen[n]);
            world_free(w);
        }
}

/* One rank may replay what another calls: numbers say less. */
static void graphs_are_not_counted(void) {
    world *w = world_new(2);
    symm_call_log_capture(&w->c[0]);
    calls(w, 1, symmCollBarrier, 0, symmUint8, symmSum);
    symm_call_log_enter(&w->c[0], "registering a window");
    w->c[0].exchange.astray_ns = 1;
    T_OK(symm_call_log_look(&w->c[0]));
    T_EQ(w->c[0].exchange.astray_ns, 0);
    told(w, 2, "");
    calls(w, 0, symmCollAllGather, 1, symmInt8, symmSum);
    told(w, 2, "call 1, graphs not counted: rank 0: symmAllGather of 1 int8; rank 1: symmBarrier");
    world_free(w);
}

/* Another process can write there what it likes; and while it writes, nothing is read. */
static void strange_words_do_no_harm(void) {
    world *w = world_new(2);
    char text[CAP];
    all_call(w, 2, 4);
    w->ctl[1].call_log.ring[1].what = ~0ull;
    told(w, 2, "call 1: rank 0: symmAllReduce of 4 float32 (sum); rank 1: ?");
    w->ctl[1].call_log.ring[1].seq = 0; /* as while it is written */
    told(w, 2, "");
    T_STREQ(symm_call_log_text(&w->c[0], 1, text, sizeof text), "1 collectives");
    memset(w->ctl[1].call_log.steps, 0xff, sizeof w->ctl[1].call_log.steps);
    w->ctl[1].call_log.step = 7;
    w->ctl[1].call_log.steps[7 % SYMM_CALL_LOG_STEPS].seq = 7;
    symm_call_log_text(&w->c[0], 1, text, sizeof text);
    T_CHECK(strlen(text) < SYMM_CALL_LOG_TEXT + 20);
    world_free(w);
}

/* ---- set-up ---------------------------------------------------------------------------------- */

static void steps(world *w, int rank, const char *stage) {
    symm_call_log_enter(&w->c[rank], stage);
    symm_call_log_leave(&w->c[rank]);
}

static void steps_that_differ_are_named(void) {
    world *w = world_new(5);
    T_EXPECT_WARNINGS();
    for (int i = 0; i < 9; i++)
        for (int r = 0; r < 5; r++) steps(w, r, i % 2 ? "growing a heap" : "creating a heap");
    for (int r = 0; r < 4; r++)
        symm_call_log_enter(&w->c[r], r == 2 ? "growing a heap" : "registering a window");
    told(w, 5,
         "the ranks are in different calls: ranks 0, 1, 3: registering a window; rank 2: growing a "
         "heap"); /* rank 4 too, which is in neither */
    for (int r = 0; r < 4; r++) {
        T_ERR(symm_call_log_look(&w->c[r]), symmMismatch);
        T_STREQ(symmGetLastError(NULL), "the ranks are in different calls: ranks 0, 1, 3: "
                                        "registering a window; rank 2: growing a heap");
    }
    world_free(w);
}

static void who_is_ahead_or_late_does_not_differ(void) {
    world *w = world_new(3);
    steps(w, 0, "creating a heap");
    symm_call_log_enter(&w->c[1], "creating a heap");
    T_OK(symm_call_log_look(&w->c[1]));
    T_EQ(symm_call_log_late(&w->c[0]), 2);
    T_EQ(symm_call_log_late(&w->c[2]), -1);
    for (int i = 0; i < 3; i++)
        symm_call_log_enter(&w->c[0], "growing a heap"); /* and it has issued more by then */
    calls(w, 0, symmCollBarrier, 0, symmUint8, symmSum);
    w->c[1].exchange.astray_ns = 1;
    T_OK(symm_call_log_look(&w->c[1]));
    T_EQ(w->c[1].exchange.astray_ns, 0);
    symm_comm none = {.nranks = 3};
    symm_call_log_enter(&none, "creating a communicator");
    symm_call_log_leave(&none);
    T_OK(symm_call_log_look(&none));
    T_EQ(symm_call_log_late(&none), -1);
    world_free(w);
}

static void a_peer_in_a_collective_is_given_time(void) {
    world *w = world_new(3);
    T_EXPECT_WARNINGS();
    all_call(w, 3, 4);
    for (int r = 0; r < 3; r++) steps(w, r, "creating a heap");
    calls(w, 2, symmCollAllGather, 6, symmBfloat16, symmSum);
    calls(w, 2, symmCollBarrier, 0, symmUint8, symmSum);
    symm_call_log_enter(&w->c[0], "registering a window");
    T_OK(symm_call_log_look(&w->c[0]));
    T_OK(symm_call_log_look(&w->c[0]));
    const uint64_t since = w->c[0].exchange.astray_ns;
    T_CHECK(since != 0);
    w->c[0].exchange.astray_ns = 1; /* long ago */
    T_ERR(symm_call_log_look(&w->c[0]), symmMismatch);
    T_STREQ(symmGetLastError(NULL), "the ranks are in different calls: rank 0: registering a "
                                    "window; rank 2: symmAllGather of 6 bfloat16 (call 2)");
    told(w, 3,
         "the ranks are in different calls: rank 0: registering a window; rank 2: symmAllGather of "
         "6 "
         "bfloat16 (call 2)");
    symm_call_log_enter(&w->c[2], "registering a window"); /* there it comes */
    T_OK(symm_call_log_look(&w->c[0]));
    T_EQ(w->c[0].exchange.astray_ns, 0);
    told(w, 3, "");
    world_free(w);
}

static void what_a_rank_does_is_told(void) {
    world *w = world_new(2);
    char text[CAP];
    T_STREQ(symm_call_log_text(&w->c[0], 1, text, sizeof text), "0 collectives");
    symm_call_log_enter(&w->c[1], "growing a heap");
    T_STREQ(symm_call_log_text(&w->c[0], 1, text, sizeof text), "0 collectives; growing a heap");
    symm_call_log_leave(&w->c[1]);
    calls(w, 1, symmCollBarrier, 0, symmUint8, symmSum);
    T_STREQ(symm_call_log_text(&w->c[0], 1, text, sizeof text),
            "1 collectives, the last symmBarrier");
    T_STREQ(symm_call_log_text(&w->c[0], 1, text, 8), "1 colle");
    world_free(w);
}

T_MAIN(T(who_is_alone_is_named), T(two_are_named_both), T(several_sides_are_two_of_them),
       T(what_the_ring_has_forgotten_is_said), T(what_was_refused_was_not_called),
       T(a_number_that_is_used_again_is_told_apart), T(every_call_has_words),
       T(graphs_are_not_counted), T(strange_words_do_no_harm), T(steps_that_differ_are_named),
       T(who_is_ahead_or_late_does_not_differ), T(a_peer_in_a_collective_is_given_time),
       T(what_a_rank_does_is_told))
