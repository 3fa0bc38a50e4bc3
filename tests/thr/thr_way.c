/* thr_way.c - buffers in no window, with thread ranks: calls go through staging, or through the
 * kernel, as the ranks find it faster, and change over while they are made. The clock is the
 * test's. Every word of every result is looked at.
 * One thread per rank; no lock: the library orders everything. */
#include <stdatomic.h>
#include <stdlib.h>

#include "base/handle.h"
#include "device/common/kernels.h"
#include "host/comm/comm.h"
#include "t.h"

enum { RANKS = 3, COUNT = 16384, PART = 8192 };
enum {
    SOON = 160,
    SELDOM = 1400
};                   /* calls until a way is left, and until the other one is tried */
enum { SPARSE = 4 }; /* one call of so many may go either way */

static symmComm_t comms[RANKS];
enum { QUICK = 10, SLOW = 1000000, NOBODY = -2, EVERYBODY = -1 };
static _Atomic uint64_t now_ns;
static int sparse;
static atomic_int slow;        /* whose copies take long: a rank, NOBODY, EVERYBODY */
static _Thread_local int mine; /* the rank of this thread */

static uint64_t clock_of_test(void) {
    const int who = atomic_load(&slow);
    return atomic_fetch_add(&now_ns, who == EVERYBODY || who == mine ? SLOW : QUICK);
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
    fill(in, rank, round, COUNT);
    T_OK(symmAllReduce(in, out, COUNT, symmUint32, symmSum, comms[rank], NULL));
    for (unsigned i = 0; i < COUNT; i++) T_EQ(out[i], sum(round, i));
}
static void reduce_to_one(int rank, int round, uint32_t *in, uint32_t *out) {
    const int root = round % RANKS;
    fill(in, rank, round, COUNT);
    T_OK(symmReduce(in, out, COUNT, symmUint32, symmSum, root, comms[rank], NULL));
    for (unsigned i = 0; rank == root && i < COUNT; i++) T_EQ(out[i], sum(round, i));
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
        reduce_all, gather_all, reduce_to_one, all_to_all, reduce_all, others};
    const int rounds = *(const int *)arg;
    mine = rank;
    uint32_t *in = malloc(sizeof *in * PART * (size_t)n),
             *out = malloc(sizeof *out * PART * (size_t)n);
    for (int round = 0; round < rounds; round++)
        if (!sparse)
            all[(unsigned)round % (sizeof all / sizeof *all)](rank, round, in, out);
        else if (round % SPARSE)
            T_OK(symmBarrier(comms[rank], NULL));
        else
            reduce_all(rank, round, in, out);
    free(in);
    free(out);
}

/* Which way calls go after so many more. */
static uint32_t way_after(int rounds, int who) {
    const symm_comm *c = symm_handle_peek(SYMM_KIND_COMM, comms[0]);
    atomic_store(&slow, who);
    T_THREADS(RANKS, calls, &rounds);
    return symm_comm_ctl(c, 0)->way.now;
}

static void open_all(const char *direct) {
    setenv("SYMM_BACKEND", "host", 1);
    setenv("SYMM_DIRECT", direct, 1);
    symm_copy_clock = clock_of_test;
    T_OK(symmCommInitAll(comms, RANKS, NULL));
}
static void close_all(void) {
    for (int r = 0; r < RANKS; r++) T_OK(symmCommDestroy(comms[r]));
    symm_copy_clock = NULL;
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
    T_EQ(way_after(SOON, EVERYBODY), SYMM_WAY_KERNEL);
    T_EQ(way_after(SELDOM, EVERYBODY), SYMM_WAY_KERNEL); /* what was tried was slow */
    T_EQ(way_after(SELDOM, NOBODY), SYMM_WAY_STAGING);
    T_EQ(way_after(SELDOM, NOBODY), SYMM_WAY_STAGING);
    T_EQ(way_after(SOON, RANKS - 1), SYMM_WAY_KERNEL); /* one is enough */
    T_EQ(way_after(SELDOM, RANKS - 1), SYMM_WAY_KERNEL);
    close_all();
}

/* The calls that are timed, or that try the other way, are not those behind one like them. */
static void seldom_calls_change_over_too(void) {
    sparse = 1;
    open_both_ways();
    T_EQ(way_after(SPARSE * SOON, EVERYBODY), SYMM_WAY_KERNEL);
    T_EQ(way_after(SPARSE * SELDOM, NOBODY), SYMM_WAY_STAGING);
    T_EQ(way_after(SPARSE * SOON, EVERYBODY), SYMM_WAY_KERNEL);
    close_all();
    sparse = 0;
}

/* Either is asked for: nothing is timed. */
static void what_was_asked_for_stays(void) {
    static const char *const asked[] = {"0", "2"};
    for (int i = 0; i < 2; i++) {
        open_all(asked[i]);
        T_EQ(way_after(SOON, EVERYBODY), SYMM_WAY_UNSAID);
        T_EQ(atomic_exchange(&now_ns, 0), 0);
        close_all();
    }
}

T_MAIN(T(what_was_asked_for_stays), T(the_faster_way_is_taken), T(seldom_calls_change_over_too))
