/* thr_way.c - buffers in no window, with thread ranks: calls go through staging, or through the
 * kernel, as rank 0 finds it faster for each collective and range of sizes, and change over while
 * they are made. The clock is the test's. Every word of every result is looked at, and that all
 * ranks take the same way.
 * One thread per rank; no lock: the library orders everything. */
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/handle.h"
#include "device/common/kernels.h"
#include "host/comm/comm.h"
#include "t.h"

enum { RANKS = 3, COUNT = 16384, PART = 8192, MOST = 4 * COUNT, BYTES = 4 * COUNT };
/* Rounds until the first decision, and until the other way has been tried whatever came before. Of
 * six calls each collective makes one, all_reduce two. */
enum { SOON = 6 * 12, SELDOM = 6 * (512 + 12), LONGEST = 8192 };
enum { SPARSE = 4 }; /* one call of so many may go either way */
enum { REDUCE_ALL, GATHER_ALL, REDUCE_PARTS, ALL_TO_ALL, KINDS };

static symmComm_t comms[RANKS];
static uint64_t now_ns;
static int sparse, sizes_differ, windows;
static int late; /* the last rank comes late to each call: rank 0 has said the next way by then */
static uint64_t cost[KINDS][2]; /* of a call through staging, and through the kernel */
static uint8_t ways[RANKS][LONGEST];
static _Thread_local int call_of; /* what this thread is in */
static _Thread_local unsigned count_of;
static _Thread_local int mapped;

/* Rank 0's thread alone: at the begin and at the end of a call. */
static uint64_t clock_of_test(const symm_ctl *ctl) {
    const uint64_t was = now_ns,
                   one = mapped ? 1000 : cost[call_of][ctl->way.now == SYMM_WAY_KERNEL];
    now_ns += sizes_differ ? one * (count_of + COUNT / 4) / COUNT : one;
    return was;
}

static uint32_t value(int rank, int round, unsigned i) {
    return (uint32_t)rank * 1000003u + (uint32_t)round * 8191u + i * 31u;
}
static void fill(uint32_t *in, int rank, int round, unsigned n) {
    for (unsigned i = 0; i < n; i++) in[i] = value(rank, round, i);
}
static uint32_t sum(int round, unsigned i) {
    uint32_t all = 0;
    for (int r = 0; r < RANKS; r++) all += value(r, round, i);
    return all;
}

/* ---- the collectives, each with its words ---- */

static void reduce_all(int rank, int round, uint32_t *in, uint32_t *out) {
    unsigned n = COUNT, seed = (unsigned)round;
    if (sizes_differ) n += (unsigned)rand_r(&seed) % (MOST - COUNT);
    count_of = n;
    fill(in, rank, round, n);
    T_OK(symmAllReduce(in, out, n, symmUint32, symmSum, comms[rank], NULL));
    for (unsigned i = 0; i < n; i++) T_EQ(out[i], sum(round, i));
}
static void reduce_parts(int rank, int round, uint32_t *in, uint32_t *out) {
    fill(in, rank, round, PART * RANKS);
    T_OK(symmReduceScatter(in, out, PART, symmUint32, symmSum, comms[rank], NULL));
    for (unsigned i = 0; i < PART; i++) T_EQ(out[i], sum(round, (unsigned)rank * PART + i));
}
static void gather_all(int rank, int round, uint32_t *in, uint32_t *out) {
    fill(in, rank, round, PART);
    T_OK(symmAllGather(in, out, PART, symmUint32, comms[rank], NULL));
    for (int r = 0; r < RANKS; r++)
        for (unsigned i = 0; i < PART; i++) T_EQ(out[(unsigned)r * PART + i], value(r, round, i));
}
static void all_to_all(int rank, int round, uint32_t *in, uint32_t *out) {
    fill(in, rank, round, PART * RANKS);
    T_OK(symmAlltoAll(in, out, PART, symmUint32, comms[rank], NULL));
    for (int r = 0; r < RANKS; r++)
        for (unsigned i = 0; i < PART; i++)
            T_EQ(out[(unsigned)r * PART + i], value(r, round, (unsigned)rank * PART + i));
}
/* These go one way only. */
static void others(int rank, int round, uint32_t *in, uint32_t *out) {
    fill(in, rank, round, PART);
    T_OK(symmBroadcast(in, out, PART, symmUint32, 1, comms[rank], NULL));
    for (unsigned i = 0; i < PART; i++) T_EQ(out[i], value(1, round, i));
    T_OK(symmBarrier(comms[rank], NULL));
}

static void calls(int rank, int n, void *arg) {
    static void (*const all[])(int, int, uint32_t *, uint32_t *) = {
        reduce_all, gather_all, reduce_parts, all_to_all, reduce_all, others};
    const int rounds = *(const int *)arg;
    const symm_ctl *ctl = symm_comm_ctl(symm_handle_peek(SYMM_KIND_COMM, comms[rank]), rank);
    (void)n;
    uint32_t *in = malloc(sizeof *in * MOST), *out = malloc(sizeof *out * MOST);
    void *win = NULL;
    symmWindow_t w;
    T_OK(symmMemAlloc(&win, 2 * BYTES));
    T_OK(symmWindowRegister(comms[rank], win, 2 * BYTES, &w, SYMM_WIN_DEFAULT));
    T_CHECK(rounds <= LONGEST);
    for (int round = 0; round < rounds; round++) {
        const unsigned which = (unsigned)round % (sizeof all / sizeof *all);
        if (late && rank == RANKS - 1) usleep(100);
        call_of = sparse || sizes_differ || windows ? REDUCE_ALL : which % KINDS;
        mapped = windows && round % 2;
        if (sparse && round % SPARSE)
            T_OK(symmBarrier(comms[rank], NULL));
        else if (mapped)
            reduce_all(rank, round, win, (uint32_t *)win + COUNT);
        else
            all[call_of == REDUCE_ALL ? 0 : which](rank, round, in, out);
        ways[rank][round] = (uint8_t)ctl->way.now;
    }
    free(in);
    free(out);
    T_OK(symmWindowDeregister(comms[rank], w));
    T_OK(symmMemFree(win));
}

static const symm_ctl *first_ctl(void) {
    return symm_comm_ctl(symm_handle_peek(SYMM_KIND_COMM, comms[0]), 0);
}
/* The way that calls of a kind are kept on, in the range of sizes that this test makes. */
static int kept(int kind) {
    const symm_comm *c = symm_handle_peek(SYMM_KIND_COMM, comms[0]);
    static const int row[KINDS] = {0, 3, 1, 4}, size[KINDS] = {1};
    const uint32_t other = first_ctl()->way.kept >> (row[kind] * SYMM_WAY_SIZES + size[kind]) & 1;
    return other != (uint32_t)c->calls.near ? SYMM_WAY_STAGING : SYMM_WAY_KERNEL;
}
static void all_cost(uint64_t staged, uint64_t kernel) {
    for (int k = 0; k < KINDS; k++) cost[k][0] = staged, cost[k][1] = kernel;
}
/* So many more calls. All ranks have gone the same way in each. */
static void play(int rounds) {
    T_THREADS(RANKS, calls, &rounds);
    for (int i = 0; i < rounds; i++)
        for (int r = 1; r < RANKS; r++)
            T_CHECKF(ways[r][i] == ways[0][i], "call %d: rank %d goes another way", i, r);
}
static int went(int way, int rounds) {
    int n = 0;
    for (int i = 0; i < rounds; i++) n += ways[0][i] == way;
    return n;
}
static void kept_by_all(int way) {
    for (int k = 0; k < KINDS; k++) T_CHECKF(kept(k) == way, "kind %d", k);
}

static void open_all(const char *direct) {
    setenv("SYMM_BACKEND", "host", 1);
    setenv("SYMM_DIRECT", direct, 1);
    symm_way_clock = clock_of_test;
    T_OK(symmCommInitAll(comms, RANKS, NULL));
}
static void close_all(void) {
    for (int r = 0; r < RANKS; r++) T_OK(symmCommDestroy(comms[r]));
    symm_way_clock = NULL;
}
/* As the default does; but some systems let no process read another's memory. */
static void open_both_ways(void) {
    open_all("1");
    const symm_comm *c = symm_handle_peek(SYMM_KIND_COMM, comms[0]);
    const int direct = c->calls.reads.all;
    if (direct) return;
    close_all();
    T_SKIP("needs process_vm_readv");
}

static void the_faster_way_is_taken(void) {
    open_both_ways();
    all_cost(1000000, 500000);
    late = 1;
    play(SOON);
    late = 0;
    kept_by_all(SYMM_WAY_KERNEL);
    play(SELDOM); /* runs grow */
    play(SELDOM);
    T_CHECKF(went(SYMM_WAY_STAGING, SELDOM) < SELDOM / 50, "%d of %d calls were tries",
             went(SYMM_WAY_STAGING, SELDOM), SELDOM);
    kept_by_all(SYMM_WAY_KERNEL);
    all_cost(1000000, 1200000);
    play(SELDOM);
    kept_by_all(SYMM_WAY_STAGING);
    play(SOON);
    kept_by_all(SYMM_WAY_STAGING);
    close_all();
}

static void each_kind_has_its_own(void) {
    open_both_ways();
    for (int k = 0; k < KINDS; k++) cost[k][k & 1] = 1000000, cost[k][!(k & 1)] = 600000;
    play(SOON);
    for (int k = 0; k < KINDS; k++) T_EQ(kept(k), k & 1 ? SYMM_WAY_STAGING : SYMM_WAY_KERNEL);
    close_all();
}

/* Less than an eighth is no reason, whichever way calls go. */
static void nearly_as_fast_is_not_enough(void) {
    open_both_ways();
    all_cost(1000000, 500000);
    play(SOON);
    all_cost(920000, 1000000);
    play(SELDOM);
    kept_by_all(SYMM_WAY_KERNEL);
    all_cost(500000, 1000000);
    play(SELDOM);
    all_cost(1000000, 920000);
    play(SELDOM);
    kept_by_all(SYMM_WAY_STAGING);
    close_all();
}

/* Calls of one range differ in size up to four times, and those that are timed are few. */
static void sizes_of_a_range_are_weighed(void) {
    open_both_ways();
    sizes_differ = 1;
    all_cost(1000000, 1000000);
    const int before = kept(REDUCE_ALL);
    for (int i = 0; i < 40; i++) {
        play(64);
        T_EQ(kept(REDUCE_ALL), before);
    }
    cost[REDUCE_ALL][before == SYMM_WAY_KERNEL] = 1300000;
    play(SELDOM);
    T_CHECK(kept(REDUCE_ALL) != before);
    sizes_differ = 0;
    close_all();
}

/* They take as long either way, so of both ways the best call would be one of them. */
static void calls_between_windows_say_nothing(void) {
    windows = 1;
    open_both_ways();
    const int before = kept(REDUCE_ALL), staged = before == SYMM_WAY_STAGING;
    all_cost(staged ? 1000000 : 300000, staged ? 300000 : 1000000);
    play(2 * SOON);
    T_CHECK(kept(REDUCE_ALL) != before);
    windows = 0;
    close_all();
}

/* What rank 0 has said reaches calls that are not one behind the other. */
static void seldom_calls_change_over_too(void) {
    sparse = 1;
    open_both_ways();
    all_cost(1000000, 500000);
    play(SPARSE * 10);
    T_EQ(kept(REDUCE_ALL), SYMM_WAY_KERNEL);
    all_cost(500000, 1000000);
    play(SPARSE * 80);
    T_EQ(kept(REDUCE_ALL), SYMM_WAY_STAGING);
    sparse = 0;
    close_all();
}

/* Either is asked for: nothing is timed. */
static void what_was_asked_for_stays(void) {
    static const char *const asked[] = {"0", "2"};
    for (int i = 0; i < 2; i++) {
        open_all(asked[i]);
        all_cost(1, 1);
        play(SOON);
        T_EQ(first_ctl()->way.now, SYMM_WAY_UNSAID);
        T_EQ(now_ns, 0);
        close_all();
    }
}

T_MAIN(T(what_was_asked_for_stays), T_TIMEOUT(the_faster_way_is_taken, 120),
       T(each_kind_has_its_own), T_TIMEOUT(nearly_as_fast_is_not_enough, 120),
       T(calls_between_windows_say_nothing), T_TIMEOUT(sizes_of_a_range_are_weighed, 120),
       T(seldom_calls_change_over_too))
