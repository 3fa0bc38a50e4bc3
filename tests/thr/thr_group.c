/* thr_group.c - collectives in groups, with thread ranks: what a call took is settled when it is
 * made; calls that follow each other run in one go, in their order, whatever stands between them;
 * what a group would do is told, or it is discarded.
 * One thread per rank, or one for all; no lock: the library orders everything. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fail.h"
#include "symm.h"
#include "symm_device.h"
#include "symm_heap.h"
#include "symm_lane.h"
#include "symm_vec.h"
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

/* ---- what the end would do ------------------------------------------------------------------- */

static symmGroupInfo_t simulate(void) {
    symmGroupInfo_t info = {.size = sizeof info};
    T_OK(symmGroupSimulateEnd(&info));
    return info;
}

static int same(const symmGroupInfo_t *a, const symmGroupInfo_t *b) {
    return a->calls == b->calls && a->setups == b->setups && a->messages == b->messages &&
           a->kernels == b->kernels && a->jobs == b->jobs && a->threads == b->threads &&
           !strcmp(a->text, b->text);
}

/* One thread calls three ranks, on a stream each and on the NULL stream; after each simulation the
 * group goes on, and its end gives what it would have given. */
static void a_simulated_group_goes_on(void) {
    static int in[RANKS], sum[RANKS], most[RANKS], sent[RANKS], got[RANKS];
    symmStream_t streams[RANKS];
    symmGroupInfo_t a, b;
    char line[100];
    open_all(1);
    for (int r = 0; r < RANKS; r++) in[r] = r + 1, T_OK(symmStreamCreate(&streams[r]));
    T_OK(symmGroupStart());
    a = simulate();
    T_EQ(a.calls + a.setups + a.kernels + a.jobs + a.threads, 0);
    T_STREQ(a.text, "");
    for (int r = 0; r < RANKS; r++) {
        T_OK(symmAllReduce(&in[r], &sum[r], 1, symmInt32, symmSum, comms[0][r], streams[r]));
        a = simulate();
        T_OK(symmBroadcast(&in[r], &most[r], 1, symmInt32, 2, comms[0][r], streams[r]));
        T_OK(symmAllReduce(&most[r], &most[r], 1, symmInt32, symmMax, comms[0][r], streams[r]));
    }
    T_EQ(a.calls, 7);
    T_EQ(a.jobs, 3);
    a = simulate(), b = simulate();
    T_CHECK(same(&a, &b));
    T_EQ(a.calls, 9);
    T_EQ(a.kernels, 9);
    T_EQ(a.jobs, 3);
    T_EQ(a.threads, 0);
    snprintf(line, sizeof line, "rank 1, stream %p: all_reduce_", (void *)streams[1]);
    T_MSG(a.text, line);
    T_MSG(a.text, ", broadcast_");
    for (int r = 0; r < RANKS; r++) {
        T_OK(symmSend(&in[r], 1, symmInt32, (r + 1) % RANKS, comms[0][r], NULL));
        T_OK(symmRecv(&got[r], 1, symmInt32, (r + RANKS - 1) % RANKS, comms[0][r], NULL));
        T_OK(symmSend(&in[r], 0, symmInt32, r, comms[0][r], NULL));
        T_OK(symmRecv(&sent[r], 0, symmInt32, r, comms[0][r], NULL));
    }
    T_OK(symmGroupStart());
    a = simulate();
    T_OK(symmGroupEnd());
    T_EQ(a.calls, 21);
    T_EQ(a.messages, 12);
    T_EQ(a.kernels, 12);
    T_EQ(a.jobs, 6);
    T_EQ(a.threads, RANKS - 1); /* messages of the NULL stream run in the call */
    T_MSG(a.text, "rank 0: 2 sends and 2 receives of 1 streams, in one kernel");
    T_OK(symmGroupEnd());
    for (int r = 0; r < RANKS; r++) {
        T_OK(symmStreamSynchronize(streams[r]));
        T_EQ(sum[r], 6);
        T_EQ(most[r], 3);
        T_EQ(got[r], (r + RANKS - 1) % RANKS + 1);
        T_OK(symmStreamDestroy(streams[r]));
    }
    close_all(1);
}

/* Calls of set-up write their handles at the end, and none before. */
static void simulated_set_up(void) {
    static symmComm_t new[2][RANKS];
    symmWindow_t win[RANKS];
    symmGroupInfo_t a;
    void *p[RANKS];
    open_all(1);
    T_OK(symmGroupStart());
    for (int r = 0; r < RANKS; r++) {
        T_OK(symmMemAlloc(&p[r], 1));
        T_OK(symmWindowRegister(comms[0][r], p[r], 1, &win[r], SYMM_WIN_DEFAULT));
        T_OK(symmCommSplit(comms[0][r], 0, 0, &new[0][r], NULL));
        T_OK(symmBarrier(comms[0][r], NULL));
    }
    a = simulate();
    T_EQ(a.calls, 9);
    T_EQ(a.setups, 6);
    T_EQ(a.kernels, 3);
    T_EQ(a.jobs, 9);
    T_EQ(a.threads, RANKS - 1);
    T_MSG(a.text, "set-up\n");
    T_MSG(a.text, "barrier_word");
    for (int r = 0; r < RANKS; r++) T_CHECK(!new[0][r]);
    T_OK(symmGroupEnd());
    for (int r = 0; r < RANKS; r++) {
        T_OK(symmWindowDeregister(comms[0][r], win[r]));
        T_OK(symmCommDestroy(new[0][r]));
        T_OK(symmMemFree(p[r]));
    }
    close_all(1);
}

/* More than the text has room for. */
static void a_text_says_what_it_leaves_out(void) {
    static symmStream_t streams[2][RANKS];
    symmGroupInfo_t a;
    open_all(1);
    for (int r = 0; r < RANKS; r++)
        for (int i = 0; i < 2; i++) T_OK(symmStreamCreate(&streams[i][r]));
    T_OK(symmGroupStart());
    for (int i = 0; i < MANY; i++)
        for (int r = 0; r < RANKS; r++) T_OK(symmBarrier(comms[0][r], streams[i % 2][r]));
    a = simulate();
    T_EQ(a.jobs, RANKS * MANY);
    int lines = 0, left;
    for (const char *p = a.text; (p = strchr(p, '\n')); p++) lines++;
    const char *last = strstr(a.text, "... and ");
    T_CHECK(last && sscanf(last, "... and %d more", &left) == 1);
    T_EQ(lines - 1 + left, RANKS * MANY);
    T_CHECK(a.text[strlen(a.text) - 1] == '\n');
    T_OK(symmGroupEnd());
    for (int r = 0; r < RANKS; r++)
        for (int i = 0; i < 2; i++) T_OK(symmStreamDestroy(streams[i][r]));
    close_all(1);
}

static void simulations_that_are_refused(void) {
    int x = 0;
    symmGroupInfo_t info = {.size = sizeof info, .calls = 77};
    T_EXPECT_WARNINGS();
    T_ERR(symmGroupSimulateEnd(&info), symmInvalidUsage);
    T_MSG(symmGetLastError(NULL), "without symmGroupStart");
    open_all(1);
    T_OK(symmGroupStart());
    T_ERR(symmGroupSimulateEnd(NULL), symmInvalidArgument);
    info.size = 8;
    T_ERR(symmGroupSimulateEnd(&info), symmInvalidArgument);
    T_MSG(symmGetLastError(NULL), "info is without its size");
    info.size = sizeof info;
    T_OK(symmBarrier(comms[0][0], NULL));
    T_EQ(symm_fail_arm("group_queue:error"), 0);
    T_ERR(symmGroupSimulateEnd(&info), symmOutOfMemory);
    T_EQ(symm_fail_arm(""), 0);
    T_EQ(info.calls, 77);
    T_EQ(simulate().jobs, 1);
    T_ERR(symmBroadcast(&x, &x, 1, symmInt32, 99, comms[0][0], NULL), symmInvalidArgument);
    T_ERR(symmGroupSimulateEnd(&info), symmInvalidArgument);
    T_MSG(symmGetLastError(NULL), "root=99");
    T_EQ(info.calls, 77);
    T_ERR(symmGroupEnd(), symmInvalidArgument);
    T_MSG(symmGetLastError(NULL), "root=99");
    close_all(1);
}

/* Nothing has run, nothing is left: the same ranks go on. */
static void a_discarded_group_runs_nothing(void) {
    int in[RANKS] = {1, 2, 3}, out[RANKS] = {0};
    symmComm_t none = NULL;
    T_EXPECT_WARNINGS();
    T_ERR(symmGroupDiscard(), symmInvalidUsage);
    open_all(1);
    T_OK(symmGroupStart());
    T_OK(symmGroupStart());
    T_OK(symmAllReduce(&in[0], &out[0], 1, symmInt32, symmSum, comms[0][0], NULL));
    T_OK(symmSend(&in[0], 1, symmInt32, 1, comms[0][0], NULL));
    T_OK(symmCommSplit(comms[0][0], 0, 0, &none, NULL));
    T_OK(symmGroupDiscard());
    T_CHECK(!none && !out[0]);
    T_ERR(symmGroupEnd(), symmInvalidUsage);
    T_OK(symmGroupStart());
    for (int r = 0; r < RANKS; r++)
        T_OK(symmAllReduce(&in[r], &out[r], 1, symmInt32, symmSum, comms[0][r], NULL));
    T_OK(symmGroupEnd());
    for (int r = 0; r < RANKS; r++) T_EQ(out[r], 6);
    close_all(1);
}

/* ---- refused --------------------------------------------------------------------------------- */

static int ran[RANKS];
static void begin_beside(void) {
    static const int one = 1;
    memset(ran, 0, sizeof ran);
    T_OK(symmGroupStart());
    for (int r = 0; r < RANKS; r++)
        T_OK(symmAllReduce(&one, &ran[r], 1, symmInt32, symmSum, comms[0][r], NULL));
}
/* The call is refused, and so is the group: none of its calls runs. */
#define REFUSES(call)                                             \
    do {                                                          \
        begin_beside();                                           \
        T_ERR(call, symmInvalidArgument);                         \
        T_ERR(symmGroupEnd(), symmInvalidArgument);               \
        for (int r = 0; r < RANKS; r++) T_CHECKF(!ran[r], #call); \
    } while (0)

/* Of set-up, by what is no handle, or before there is anybody to tell. */
static void a_refused_set_up_takes_the_group_along(void) {
    const symmComm_t gone = (symmComm_t)(uintptr_t)0x123450;
    const symmBoot_t none = {NULL, NULL, NULL};
    symmComm_t made = NULL;
    symmWindow_t win;
    symmHeap_t heap;
    symmVec_t vec;
    symmDevComm_t dev;
    int n;
    T_EXPECT_WARNINGS();
    open_all(1);
    REFUSES(symmWindowRegister(gone, NULL, 0, &win, SYMM_WIN_DEFAULT));
    REFUSES(symmWindowGrow(NULL, 100));
    REFUSES(symmCommSplit(gone, 0, 0, &made, NULL));
    REFUSES(symmCommShrink(gone, NULL, 0, &made, NULL, 0));
    REFUSES(symmCommGrow(gone, RANKS, NULL, -1, &made, NULL));
    REFUSES(symmCommFailedRanks(gone, SYMM_FAILED_AGREE, NULL, 0, &n));
    REFUSES(symmCommFailedRanks(comms[0][0], 77, NULL, 0, &n));
    REFUSES(symmCommInitBoot(&made, 1, 0, NULL, NULL));
    REFUSES(symmCommInitBoot(&made, 1, 0, &none, NULL));
    REFUSES(symmCommInitBoot(&made, 0, 0, &none, NULL));
    REFUSES(symmDevCommCreate(gone, NULL, &dev));
    REFUSES(symmHeapCreate(gone, NULL, &heap));
    REFUSES(symmHeapGrow(NULL, 1, 1));
    REFUSES(symmHeapTrim(NULL, 0, NULL));
    REFUSES(symmVecCreate(gone, NULL, &vec));
    REFUSES(symmVecReserve(NULL, 1));
    REFUSES(symmLaneAlias(NULL, 1));
    REFUSES(symmMemPlanUpload(NULL, NULL, NULL));
    T_CHECK(!made);
    close_all(1);
}

/* ---- from a function of a stream ------------------------------------------------------------- */

static symmResult_t inside; /* what End says there */

/* Each call would wait for one that the stream runs behind this function. */
static void group_inside(void *arg) {
    int x[RANKS] = {0};
    usleep(100000); /* these have been given by then */
    T_OK(symmGroupStart());
    for (int r = 0; r < RANKS; r++)
        T_OK(symmAllReduce(&x[r], &x[r], 1, symmInt32, symmSum, comms[0][r], NULL));
    inside = symmGroupEnd();
    if (inside) T_MSG(symmGetLastError(NULL), "a function of a stream or graph must not wait");
    (void)arg;
}

/* The calls of several communicators have a thread each, which must not wait either. */
static void a_group_in_a_streams_function_does_not_wait(void) {
    symmStream_t streams[RANKS];
    symmEvent_t e;
    int x[RANKS] = {1, 1, 1};
    T_EXPECT_WARNINGS();
    open_all(1);
    T_OK(symmEventCreate(&e));
    for (int r = 0; r < RANKS; r++) T_OK(symmStreamCreate(&streams[r]));
    T_OK(symmStreamHostFunc(streams[0], group_inside, NULL));
    T_OK(symmEventRecord(e, streams[0]));
    for (int r = 0; r < RANKS; r++) {
        T_OK(symmStreamWaitEvent(streams[r], e));
        T_OK(symmAllReduce(&x[r], &x[r], 1, symmInt32, symmSum, comms[0][r], streams[r]));
    }
    for (int r = 0; r < RANKS; r++) T_OK(symmStreamSynchronize(streams[r]));
    T_EQ(inside, symmInvalidUsage);
    for (int r = 0; r < RANKS; r++) T_EQ(x[r], RANKS);
    for (int r = 0; r < RANKS; r++) T_OK(symmStreamDestroy(streams[r]));
    T_OK(symmEventDestroy(e));
    close_all(1);
}

T_MAIN(T(reductions_may_end_first), T(a_thousand_calls), T(a_thousand_calls_of_a_stream),
       T(the_order_across_communicators_stays), T(groups_in_captures), T(a_simulated_group_goes_on),
       T(simulated_set_up), T(a_text_says_what_it_leaves_out), T(simulations_that_are_refused),
       T(a_discarded_group_runs_nothing), T(a_refused_set_up_takes_the_group_along),
       T(a_group_in_a_streams_function_does_not_wait))
