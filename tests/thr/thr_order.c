/* thr_order.c - what the protocols of the kernels promise about order, pinned down with thread
 * ranks: every word of a result is looked at, and whoever's call has returned writes over its
 * buffers at once. ThreadSanitizer sees each missing release or wait here, whatever the timing;
 * tests/check/check_mutants.sh takes them out one by one. Each rank is a thread; no lock: the
 * library orders everything. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "coll_expect.h"

enum { RANKS = 3, ROUNDS = 24 };
enum { NOBODY, ALL, ALL_BUT_0, ONLY_0 };

typedef struct {
    const char *algo; /* SYMM_ALGO */
    symmColl_t coll;
    int registered, in_place; /* registered: who */
    int direct;               /* what is in no window is used where it is, not staged */
    size_t count;
    symmComm_t comms[RANKS];
} plan;

static int32_t value(int rank, int round, size_t i) {
    return (int32_t)((uint32_t)rank * 1000003u + (uint32_t)round * 8191u + (uint32_t)i * 31u);
}

static int32_t wanted(const plan *p, int rank, int round, size_t i) {
    const symm_call call = {.coll = p->coll, .count = p->count, .type = symmInt, .esize = 4};
    const coll_origin o = coll_expect(&call, rank, (int)(i / p->count));
    i = i % p->count + o.at;
    if (o.from != EVERY_RANK) return value(o.from, round, i);
    uint32_t sum = 0;
    for (int r = 0; r < RANKS; r++) sum += (uint32_t)value(r, round, i);
    return (int32_t)sum;
}

static void check_round(const plan *p, int rank, int round, const int32_t *out, size_t n) {
    for (size_t i = 0; i < n; i++)
        T_CHECKF(out[i] == wanted(p, rank, round, i),
                 "%s, round %d, element %zu of %zu: %d, not %d", p->algo, round, i, n, out[i],
                 wanted(p, rank, round, i));
}

static symmResult_t call(const plan *p, const void *in, void *out, symmComm_t comm) {
    return symm_test_call(p->coll, in, out, p->count, symmInt, symmSum, 0, comm, NULL);
}

static void rounds(const plan *p, int rank, int32_t *in, int32_t *out) {
    const size_t n = p->count * (size_t)coll_out_at(p->coll, RANKS, rank == 0);
    if (p->in_place) in = out + p->count * (size_t)coll_send_part(p->coll, rank);
    for (int round = 0; round < ROUNDS; round++) {
        memset(out, 0xcc, n * sizeof *out); /* nobody may touch it before the call, or after it */
        for (size_t i = 0; i < p->count; i++) in[i] = value(rank, round, i);
        T_OK(call(p, in, out, p->comms[rank]));
        check_round(p, rank, round, out, n);
    }
}

static void unregistered(const plan *p, int rank, size_t bytes) {
    int32_t *in = malloc(bytes), *out = malloc(bytes);
    rounds(p, rank, in, out);
    free(in);
    free(out);
}

static void registered(const plan *p, int rank, size_t bytes) {
    int32_t *in, *out;
    T_OK(symmMemAlloc((void **)&in, bytes));
    T_OK(symmMemAlloc((void **)&out, bytes));
    symmWindow_t win[2];
    T_OK(symmWindowRegister(p->comms[rank], in, bytes, &win[0], SYMM_WIN_DEFAULT));
    T_OK(symmWindowRegister(p->comms[rank], out, bytes, &win[1], SYMM_WIN_DEFAULT));
    rounds(p, rank, in, out);
    for (int i = 0; i < 2; i++) T_OK(symmWindowDeregister(p->comms[rank], win[i]));
    /* Thread ranks have one mapping for all, so it stays until all are done. */
    T_OK(symmBarrier(p->comms[rank], NULL));
    T_OK(symmMemFree(in));
    T_OK(symmMemFree(out));
}

/* Takes part in the others' registration and brings nothing. */
static void beside_registered(const plan *p, int rank, size_t bytes) {
    symmWindow_t win[2];
    for (int i = 0; i < 2; i++)
        T_OK(symmWindowRegister(p->comms[rank], NULL, 0, &win[i], SYMM_WIN_DEFAULT));
    unregistered(p, rank, bytes);
    for (int i = 0; i < 2; i++) T_OK(symmWindowDeregister(p->comms[rank], win[i]));
    T_OK(symmBarrier(p->comms[rank], NULL));
}

static void run_rank(int rank, int n, void *arg) {
    const plan *p = arg;
    const size_t bytes = p->count * sizeof(int32_t) * (size_t)n;
    if (p->registered == NOBODY)
        unregistered(p, rank, bytes);
    else if (p->registered == ALL || (p->registered == ONLY_0) == !rank)
        registered(p, rank, bytes);
    else
        beside_registered(p, rank, bytes);
}

static void with_ranks(plan *p, t_rank_fn fn) {
    setenv("SYMM_ALGO", p->algo, 1);
    setenv("SYMM_DIRECT", p->direct ? "2" : "0", 1);
    setenv("SYMM_SCRATCH", "1M", 1); /* small chunks: a staged message has several */
    T_OK(symmCommInitAll(p->comms, RANKS, NULL));
    T_THREADS(RANKS, fn, p);
    for (int r = 0; r < RANKS; r++) T_OK(symmCommDestroy(p->comms[r]));
}

static void everywhere(const char *algo, symmColl_t coll, size_t count) {
    for (int i = 0; i < 4; i++) {
        plan p = {
            .algo = algo, .coll = coll, .registered = i & 1, .in_place = i >> 1, .count = count};
        with_ranks(&p, run_rank);
    }
}

static void pushed_packets(void) {
    everywhere("all_reduce_push_packet", symmCollAllReduce, 5);
    everywhere("all_reduce_push_packet", symmCollAllReduce, 1501);
}

static void two_shots(void) {
    everywhere("all_reduce_2shot_packet", symmCollAllReduce, 1501);
}

static void zero_copy(void) {
    everywhere("all_reduce_load_store", symmCollAllReduce, 1003);
}

/* Several chunks: places of the staging area are used again within a call. */
static void staged_chunks(void) {
    plan p = {.algo = "all_reduce_load_store", .coll = symmCollAllReduce, .count = 90001};
    plan g = {.algo = "all_gather_load", .coll = symmCollAllGather, .count = 90001};
    with_ranks(&p, run_rank);
    with_ranks(&g, run_rank);
}

/* Who has registered says ready once, for all chunks, so only arrivals hold the staged rank
 * back. */
static void staged_beside_registered(void) {
    plan p = {.algo = "all_reduce_load_store",
              .coll = symmCollAllReduce,
              .registered = ALL_BUT_0,
              .count = 90001};
    plan g = {.algo = "all_gather_load",
              .coll = symmCollAllGather,
              .registered = ALL_BUT_0,
              .count = 90001};
    plan r = {
        .algo = "reduce_load_store", .coll = symmCollReduce, .registered = ONLY_0, .count = 90001};
    with_ranks(&p, run_rank);
    with_ranks(&g, run_rank);
    with_ranks(&r, run_rank); /* those that give wait for no result */
}

static void gathered_packets(void) {
    everywhere("all_gather_push_packet", symmCollAllGather, 1501);
}

static void gathered_loads(void) {
    everywhere("all_gather_load", symmCollAllGather, 1003);
}

/* Large, in no window, in windows, or some of each: with a root both sides of a part move some of
 * it if its destination is a window. */
static void used_where_they_are(void) {
    static const symmColl_t colls[] = {symmCollAllReduce, symmCollAllGather, symmCollBroadcast,
                                       symmCollGather};
    static const int registered[] = {NOBODY, ALL, ALL_BUT_0};
    for (int i = 0; i < 24; i++) {
        plan p = {.algo = "",
                  .coll = colls[i % 4],
                  .in_place = i / 4 % 2,
                  .registered = registered[i / 8],
                  .direct = 1,
                  .count = 20011};
        with_ranks(&p, run_rank);
    }
}

static void several_ctas(void) {
    setenv("SYMM_CTAS", "3", 1);
    plan p = {.algo = "all_reduce_load_store", .coll = symmCollAllReduce, .count = 40001};
    with_ranks(&p, run_rank);
    everywhere("all_gather_push_packet", symmCollAllGather, 4001);
}

/* ---- barrier --------------------------------------------------------------------------------- */

static int board[RANKS];

/* Plain memory, written before a barrier and read after it. */
static void barrier_rank(int rank, int n, void *arg) {
    const plan *p = arg;
    for (int round = 0; round < 200; round++) {
        board[rank] = round * n + rank;
        T_OK(symmBarrier(p->comms[rank], NULL));
        for (int r = 0; r < n; r++) T_EQ(board[r], round * n + r);
        T_OK(symmBarrier(p->comms[rank], NULL));
    }
}

static void barriers_order_memory(void) {
    plan p = {.algo = ""};
    with_ranks(&p, barrier_rank);
}

/* ---- order of the sum ------------------------------------------------------------------------ */

/* (1 + 1e8) - 1e8 is 0 in float32; in any other order of the ranks it is not. */
static void sum_rank(int rank, int n, void *arg) {
    static const float brought[RANKS] = {1.0f, 1e8f, -1e8f};
    const plan *p = arg;
    float in[100], out[100];
    (void)n;
    for (int i = 0; i < 100; i++) in[i] = brought[rank];
    T_OK(symmAllReduce(in, out, 100, symmFloat, symmSum, p->comms[rank], NULL));
    for (int i = 0; i < 100; i++) T_CHECKF(out[i] == 0.0f, "%s: %g, not 0", p->algo, out[i]);
}

static void sums_go_in_rank_order(void) {
    static const char *const algos[] = {"all_reduce_push_packet", "all_reduce_2shot_packet",
                                        "all_reduce_load_store"};
    for (int i = 0; i < 3; i++) {
        plan p = {.algo = algos[i]};
        with_ranks(&p, sum_rank);
    }
}

T_MAIN(T(pushed_packets), T(two_shots), T(zero_copy), T(staged_chunks), T(staged_beside_registered),
       T(gathered_packets), T(gathered_loads), T(used_where_they_are), T(several_ctas),
       T(barriers_order_memory), T(sums_go_in_rank_order))
