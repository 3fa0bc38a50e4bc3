/* thr_group.c - collectives in groups, with thread ranks: what a call took is settled when it is
 * made; calls that follow each other run in one go, in their order, whatever stands between them.
 * One thread per rank, or one for all; no lock: the library orders everything. */
#include <stdlib.h>
#include <string.h>

#include "symm.h"
#include "t.h"

enum { RANKS = 3, MANY = 1000, SOME = 64 };

static symmComm_t comms[2][RANKS];

static void open_all(int n) {
    for (int i = 0; i < n; i++) T_OK(symmCommInitAll(comms[i], RANKS, NULL));
}
static void close_all(int n) {
    for (int i = 0; i < n; i++)
        for (int r = 0; r < RANKS; r++) T_OK(symmCommDestroy(comms[i][r]));
}

/* One thread calls all ranks, and ends each reduction before the group. Its number is given to
 * another one meanwhile. */
static void reductions_may_end_first(void) {
    static int in[RANKS][2][SOME], out[RANKS][2][SOME];
    open_all(1);
    T_OK(symmGroupStart());
    for (int r = 0; r < RANKS; r++)
        for (int i = 0; i < 2; i++) {
            int scalar = 10 * (r + 1) + i;
            symmRedOp_t op;
            for (int e = 0; e < SOME; e++) in[r][i][e] = e + r;
            T_OK(symmRedOpCreatePreMulSum(&op, &scalar, symmInt32, symmScalarHostImmediate,
                                          comms[0][r]));
            T_OK(symmAllReduce(in[r][i], out[r][i], SOME, symmInt32, op, comms[0][r], NULL));
            T_OK(symmRedOpDestroy(op, comms[0][r]));
        }
    T_OK(symmGroupEnd());
    for (int r = 0; r < RANKS; r++)
        for (int i = 0; i < 2; i++)
            for (int e = 0; e < SOME; e++) {
                int want = 0;
                for (int p = 0; p < RANKS; p++) want += (10 * (p + 1) + i) * (e + p);
                T_EQ(out[r][i][e], want);
            }
    close_all(1);
}

/* Calls of several kinds, and each needs what the one before has left. */
static void chain_rank(int rank, int n, void *arg) {
    symmStream_t stream = NULL;
    int *x = calloc(MANY + 1, sizeof *x), on_stream = arg != NULL;
    if (on_stream) T_OK(symmStreamCreate(&stream));
    x[0] = 1;
    T_OK(symmGroupStart());
    for (int i = 0; i < MANY; i++) {
        if (i % 3 == 0)
            T_OK(symmAllReduce(&x[i], &x[i + 1], 1, symmInt32, symmMax, comms[0][rank], stream));
        else if (i % 3 == 1)
            T_OK(symmBroadcast(&x[i], &x[i + 1], 1, symmInt32, i % n, comms[0][rank], stream));
        else
            T_OK(symmAllReduce(&x[i], &x[i + 1], 1, symmInt32, symmSum, comms[0][rank], stream));
    }
    T_OK(symmGroupEnd());
    if (on_stream) T_OK(symmStreamSynchronize(stream));
    uint32_t want = 1;
    for (int i = 0; i < MANY; i++) {
        if (i % 3 == 2) want *= (uint32_t)n;
        T_EQ((uint32_t)x[i + 1], want);
    }
    if (on_stream) T_OK(symmStreamDestroy(stream));
    free(x);
}

static void a_thousand_calls(void) {
    open_all(1);
    T_THREADS(RANKS, chain_rank, NULL);
    close_all(1);
}
static void a_thousand_calls_of_a_stream(void) {
    open_all(1);
    T_THREADS(RANKS, chain_rank, comms);
    close_all(1);
}

/* Two communicators on one stream: rank 0 has a group, the others have none. */
static void alternate_rank(int rank, int n, void *arg) {
    symmStream_t stream;
    int in[SOME], out[SOME];
    (void)arg;
    T_OK(symmStreamCreate(&stream));
    for (int i = 0; i < SOME; i++) in[i] = i + rank;
    if (rank == 0) T_OK(symmGroupStart());
    for (int i = 0; i < SOME; i++) /* A B A A B A A B ... */
        T_OK(
            symmAllReduce(&in[i], &out[i], 1, symmInt32, symmSum, comms[i % 3 == 1][rank], stream));
    if (rank == 0) T_OK(symmGroupEnd());
    T_OK(symmStreamSynchronize(stream));
    for (int i = 0; i < SOME; i++) T_EQ(out[i], n * i + n * (n - 1) / 2);
    T_OK(symmStreamDestroy(stream));
}

static void the_order_across_communicators_stays(void) {
    open_all(2);
    T_THREADS(RANKS, alternate_rank, NULL);
    close_all(2);
}

/* A group inside a capture, with counts per rank among its calls. */
static void captured_rank(int rank, int n, void *arg) {
    symmStream_t stream;
    symmGraph_t graph;
    symmGraphExec_t exec;
    int in[SOME], sum[SOME], all[RANKS];
    size_t counts[RANKS] = {1, 1, 1};
    (void)arg;
    T_OK(symmStreamCreate(&stream));
    T_OK(symmStreamBeginCapture(stream));
    T_OK(symmGroupStart());
    T_OK(symmAllReduce(in, sum, SOME, symmInt32, symmSum, comms[0][rank], stream));
    T_OK(symmAllGatherv(&sum[rank], 1, all, counts, NULL, symmInt32, comms[0][rank], stream));
    T_OK(symmGroupEnd());
    T_OK(symmStreamEndCapture(stream, &graph));
    T_OK(symmGraphInstantiate(graph, &exec));
    for (int round = 0; round < 5; round++) {
        for (int i = 0; i < SOME; i++) in[i] = i + rank + round;
        T_OK(symmGraphLaunch(exec, stream));
        T_OK(symmStreamSynchronize(stream));
        for (int p = 0; p < n; p++) T_EQ(all[p], n * (p + round) + n * (n - 1) / 2);
    }
    T_OK(symmGraphExecDestroy(exec));
    T_OK(symmGraphDestroy(graph));
    T_OK(symmStreamDestroy(stream));
}

static void groups_in_captures(void) {
    open_all(1);
    T_THREADS(RANKS, captured_rank, NULL);
    close_all(1);
}

T_MAIN(T(reductions_may_end_first), T(a_thousand_calls), T(a_thousand_calls_of_a_stream),
       T(the_order_across_communicators_stays), T(groups_in_captures))
