/* thr_onesided.c - one-sided calls among thread ranks: every size and place, signals as counts,
 * streams, groups, captures and replays, what is refused, what is counted. Each rank is a thread;
 * no lock. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "coll_data.h"
#include "onesided_kit.h"

enum { MOST = 8, BIG = 3 << 20, HALF = BIG + 8192 };

typedef struct {
    symmComm_t comms[MOST];
} job;

static void with_ranks(int n, t_rank_fn fn) {
    job j;
    T_OK(symmCommInitAll(j.comms, n, NULL));
    T_THREADS(n, fn, &j);
    for (int r = 0; r < n; r++) T_OK(symmCommDestroy(j.comms[r]));
}

/* ---- puts and gets --------------------------------------------------------------------------- */

static const uint64_t sizes[] = {0, 1, 7, 8, 64, 65, 4096, 8193, 100001, BIG};
enum { SIZES = sizeof sizes / sizeof *sizes };

/* Each rank puts to the next one, with a signal, which sends one back. */
static void put_rank(int me, int n, void *arg) {
    const job *j = arg;
    const int next = (me + 1) % n, prev = (me + n - 1) % n;
    ok_world w;
    ok_open(&w, j->comms[me], me, n, 2 * HALF);
    for (int i = 0; i < SIZES * 4; i++) {
        const uint64_t bytes = sizes[i / 4], at = 1000 + (unsigned)i % 3;
        char *from = pk_half(&w.p, i & 1) + HALF + 64 + (i >> 1 & 1);
        pk_fill(from, bytes, me, next, (unsigned)i);
        pk_empty(w.p.memory + at, bytes);
        ok_credit(&w, prev, next);
        T_OK(symmPutSignal(from, bytes, symmUint8, next, w.p.win, at, i % SYMM_SIGNALS, w.p.comm,
                           NULL));
        memset(from, 0x77, bytes); /* it may be used again */
        ok_wait(&w, prev, i % SYMM_SIGNALS, 1, NULL);
        pk_received(w.p.memory + at, bytes, prev, me, (unsigned)i);
    }
    ok_close(&w);
}
static void every_size_and_place(void) {
    with_ranks(1, put_rank);
    with_ranks(2, put_rank);
    with_ranks(5, put_rank);
}

static void get_rank(int me, int n, void *arg) {
    const job *j = arg;
    const int next = (me + 1) % n, prev = (me + n - 1) % n;
    ok_world w;
    ok_open(&w, j->comms[me], me, n, 2 * HALF);
    for (int i = 0; i < SIZES * 4; i++) {
        const uint64_t bytes = sizes[i / 4], at = 1000 + (unsigned)i % 3;
        char *to = pk_half(&w.p, i & 1) + HALF + 128 + (i >> 1 & 1);
        pk_fill(w.p.memory + at, bytes, me, 0, (unsigned)i);
        pk_empty(to, bytes);
        T_OK(symmSignal(prev, 3, w.p.comm, NULL));
        ok_wait(&w, next, 3, 1, NULL);
        T_OK(symmGet(to, bytes, symmUint8, next, w.p.win, at, w.p.comm, NULL));
        pk_received(to, bytes, next, 0, (unsigned)i);
        ok_credit(&w, next, prev);
    }
    ok_close(&w);
}
static void gets_of_every_size(void) {
    with_ranks(1, get_rank);
    with_ranks(2, get_rank);
    with_ranks(5, get_rank);
}

/* A signal tells of all puts before it, whatever came between. */
static void many_rank(int me, int n, void *arg) {
    const job *j = arg;
    enum { PUTS = 200 };
    ok_world w;
    ok_open(&w, j->comms[me], me, n, BIG);
    int32_t *mine = (int32_t *)(void *)w.p.memory;
    for (int round = 1; round <= 20; round++) {
        for (int i = 0; me == 0 && i < PUTS; i++) {
            const int32_t v = round * PUTS + i;
            for (int q = 1; q < n; q++)
                T_OK(symmPut(&v, 1, symmInt32, q, w.p.win, 4 * (unsigned)i, w.p.comm, NULL));
        }
        for (int q = 1; me == 0 && q < n; q++) T_OK(symmSignal(q, round, w.p.comm, NULL));
        if (me) ok_wait(&w, 0, round, 1, NULL);
        for (int i = 0; me && i < PUTS; i++) T_EQ(mine[i], round * PUTS + i);
        if (me) T_OK(symmSignal(0, 63, w.p.comm, NULL));
        for (int q = 1; me == 0 && q < n; q++) ok_wait(&w, q, 63, 1, NULL);
    }
    ok_close(&w);
}
static void one_signal_for_many_puts(void) {
    with_ranks(3, many_rank);
}

/* Rank 0 puts to rank 1 and fences; rank 2, which it tells of that, tells rank 1. */
static void fence_rank(int me, int n, void *arg) {
    const job *j = arg;
    ok_world w;
    ok_open(&w, j->comms[me], me, n, BIG);
    for (int round = 1; round <= 300; round++) {
        const int32_t v = round;
        if (me == 0) {
            T_OK(symmPut(&v, 1, symmInt32, 1, w.p.win, 8, w.p.comm, NULL));
            T_OK(symmFence(w.p.comm, NULL));
            T_OK(symmSignal(2, 0, w.p.comm, NULL));
            ok_wait(&w, 1, 1, 1, NULL);
        } else if (me == 2) {
            ok_wait(&w, 0, 0, 1, NULL);
            T_OK(symmSignal(1, 2, w.p.comm, NULL));
        } else {
            ok_wait(&w, 2, 2, 1, NULL);
            T_EQ(*(int32_t *)(void *)(w.p.memory + 8), round);
            T_OK(symmSignal(0, 1, w.p.comm, NULL));
        }
    }
    ok_close(&w);
}
static void a_third_rank_tells(void) {
    with_ranks(3, fence_rank);
}

/* ---- signals --------------------------------------------------------------------------------- */

/* Counts of one signal do not touch those of another, or of another peer. */
static void count_rank(int me, int n, void *arg) {
    const job *j = arg;
    ok_world w;
    ok_open(&w, j->comms[me], me, n, BIG);
    for (int q = 0; q < n; q++)
        for (int s = 0; s < SYMM_SIGNALS; s++)
            for (int k = 0; k < ok_times(me, q, s); k++) T_OK(symmSignal(q, s, w.p.comm, NULL));
    T_OK(symmBarrier(w.p.comm, NULL));
    for (int q = 0; q < n; q++)
        for (int s = 0; s < SYMM_SIGNALS; s++) T_EQ(ok_read(&w, q, s), ok_times(q, me, s));
    for (int q = 0; q < n; q++) {
        symmSignalWait_t all[2 * SYMM_SIGNALS];
        for (int s = 0; s < SYMM_SIGNALS; s++) { /* two of each, which add up */
            const size_t times = (size_t)ok_times(q, me, s);
            all[s] = (symmSignalWait_t){q, s, times / 2};
            all[SYMM_SIGNALS + s] = (symmSignalWait_t){q, s, times - times / 2};
        }
        T_OK(symmWaitSignal(2 * SYMM_SIGNALS, all, w.p.comm, NULL));
    }
    for (int q = 0; q < n; q++)
        for (int s = 0; s < SYMM_SIGNALS; s++) T_EQ(ok_read(&w, q, s), 0);
    ok_close(&w);
}
static void signals_are_counts(void) {
    with_ranks(3, count_rank);
}

static void reset_rank(int me, int n, void *arg) {
    const job *j = arg;
    ok_world w;
    ok_open(&w, j->comms[me], me, n, BIG);
    for (int k = 0; k < 5; k++) T_OK(symmSignal(1 - me, 7, w.p.comm, NULL));
    T_OK(symmSignal(1 - me, 8, w.p.comm, NULL));
    T_OK(symmBarrier(w.p.comm, NULL));
    T_EQ(ok_unused(&w), 6);
    ok_wait(&w, 1 - me, 7, 2, NULL);
    T_EQ(ok_read(&w, 1 - me, 7), 3);
    T_EQ(ok_unused(&w), 4);
    T_OK(symmSignalReset(1 - me, 7, w.p.comm, NULL));
    T_EQ(ok_read(&w, 1 - me, 7), 0);
    T_EQ(ok_read(&w, 1 - me, 8), 1);
    T_OK(symmBarrier(w.p.comm, NULL));
    T_OK(symmSignal(1 - me, 7, w.p.comm, NULL));
    ok_wait(&w, 1 - me, 7, 1, NULL); /* what comes later counts from 0 */
    T_EQ(ok_unused(&w), 1);
    ok_close(&w);
}
static void reset_uses_up_what_has_come(void) {
    with_ranks(2, reset_rank);
}

/* Another thread may look at a count while this one waits: it sees what was put before. */
static void read_rank(int me, int n, void *arg) {
    const job *j = arg;
    enum { ROUNDS = 2000 };
    ok_world w;
    ok_open(&w, j->comms[me], me, n, BIG);
    int32_t *mine = (int32_t *)(void *)w.p.memory;
    for (int i = 0; i < ROUNDS; i++) {
        const int32_t v = i + 1;
        if (me == 0)
            T_OK(symmPutSignal(&v, 1, symmInt32, 1, w.p.win, 4 * (unsigned)i, 0, w.p.comm, NULL));
        if (me == 0) continue;
        while (ok_read(&w, 0, 0) < (unsigned)i + 1)
            ;
        T_EQ(mine[i], i + 1);
    }
    ok_close(&w);
}
static void a_count_can_be_polled(void) {
    with_ranks(2, read_rank);
}

/* ---- streams, groups, graphs ----------------------------------------------------------------- */

/* The calls of a communicator keep their order across streams. */
static void stream_rank(int me, int n, void *arg) {
    const job *j = arg;
    const int next = (me + 1) % n, prev = (me + n - 1) % n;
    symmStream_t s[3] = {NULL};
    int32_t v[64], sum[2] = {0};
    ok_world w;
    ok_open(&w, j->comms[me], me, n, BIG);
    T_OK(symmStreamCreate(&s[1]));
    T_OK(symmStreamCreate(&s[2]));
    int32_t *mine = (int32_t *)(void *)w.p.memory;
    for (int round = 0; round < 40; round++) {
        for (int i = 0; i < 64; i++) v[i] = round * 1000 + i;
        for (int i = 0; i < 64; i++)
            T_OK(symmPut(&v[i], 1, symmInt32, next, w.p.win, 4 * (unsigned)i, w.p.comm,
                         s[(i + round) % 3]));
        T_OK(symmSignal(next, 1, w.p.comm, s[round % 3]));
        ok_wait(&w, prev, 1, 1, s[(round + 1) % 3]);
        sum[0] = me;
        T_OK(symmAllReduce(&sum[0], &sum[1], 1, symmInt32, symmSum, w.p.comm, s[round % 3]));
        for (int i = 1; i < 3; i++) T_OK(symmStreamSynchronize(s[i]));
        T_EQ(sum[1], n * (n - 1) / 2);
        for (int i = 0; i < 64; i++) T_EQ(mine[i], round * 1000 + i);
        T_OK(symmBarrier(w.p.comm, NULL));
    }
    for (int i = 1; i < 3; i++) T_OK(symmStreamDestroy(s[i]));
    ok_close(&w);
}
static void streams_keep_the_order(void) {
    with_ranks(3, stream_rank);
}

/* What is put on one stream takes long; the signal on another one comes behind it all the same. */
static void late_rank(int me, int n, void *arg) {
    const job *j = arg;
    symmStream_t s[2];
    ok_world w;
    ok_open(&w, j->comms[me], me, n, 2 * HALF);
    T_OK(symmStreamCreate(&s[0]));
    T_OK(symmStreamCreate(&s[1]));
    for (int round = 1; round <= 30; round++) {
        char *from = w.p.memory + HALF;
        memset(from, round, BIG);
        if (me == 0) {
            for (int i = 0; i < 3; i++)
                T_OK(symmPut(from, BIG, symmUint8, 1, w.p.win, 0, w.p.comm, s[round % 2]));
            T_OK(symmSignal(1, 0, w.p.comm, s[1 - round % 2]));
        }
        if (me == 1) {
            ok_wait(&w, 0, 0, 1, NULL);
            T_EQ(w.p.memory[BIG - 1], round);
        }
        for (int i = 0; i < 2; i++) T_OK(symmStreamSynchronize(s[i]));
        T_OK(symmBarrier(w.p.comm, NULL));
    }
    T_OK(symmStreamDestroy(s[0]));
    T_OK(symmStreamDestroy(s[1]));
    ok_close(&w);
}
static void a_signal_behind_another_streams_put(void) {
    with_ranks(2, late_rank);
}

/* A graph of puts, signals, waits, gets and a collective, launched many times; what its buffers
 * have then is what is moved. */
static void replay_rank(int me, int n, void *arg) {
    const job *j = arg;
    const int next = (me + 1) % n, prev = (me + n - 1) % n;
    symmSignalWait_t waits[20];
    symmStream_t s;
    symmGraph_t graph;
    symmGraphExec_t exec;
    int32_t out[16], back[16];
    ok_world w;
    ok_open(&w, j->comms[me], me, n, BIG);
    int32_t *mine = (int32_t *)(void *)w.p.memory;
    T_OK(symmStreamCreate(&s));
    for (int i = 0; i < 20; i++) waits[i] = (symmSignalWait_t){prev, i, 1};
    T_OK(symmStreamBeginCapture(s));
    T_OK(symmPutSignal(out, 16, symmInt32, next, w.p.win, 64, 0, w.p.comm, s));
    for (int i = 1; i < 20; i++) T_OK(symmSignal(next, i, w.p.comm, s));
    T_OK(symmWaitSignal(20, waits, w.p.comm, s)); /* more than one task has */
    T_OK(symmFence(w.p.comm, s));
    T_OK(symmBarrier(w.p.comm, s));
    T_OK(symmGet(back, 16, symmInt32, next, w.p.win, 64, w.p.comm, s));
    T_OK(symmBarrier(w.p.comm, s));
    T_OK(symmStreamEndCapture(s, &graph));
    T_OK(symmGraphInstantiate(graph, &exec));
    for (int round = 0; round < 50; round++) {
        for (int i = 0; i < 16; i++) out[i] = round * 100 + me * 16 + i;
        T_OK(symmGraphLaunch(exec, s));
        T_OK(symmStreamSynchronize(s));
        for (int i = 0; i < 16; i++) T_EQ(mine[16 + i], round * 100 + prev * 16 + i);
        for (int i = 0; i < 16; i++) T_EQ(back[i], round * 100 + me * 16 + i);
        T_OK(symmBarrier(w.p.comm, NULL));
    }
    T_EQ(ok_unused(&w), 0);
    T_OK(symmGraphExecDestroy(exec));
    T_OK(symmGraphDestroy(graph));
    T_OK(symmStreamDestroy(s));
    ok_close(&w);
}
static void captured_and_replayed(void) {
    with_ranks(2, replay_rank);
    with_ranks(3, replay_rank);
}

/* One thread drives both ranks: what each calls in the group keeps its order. */
static void a_group_of_both_ranks(void) {
    enum { N = 2 };
    symmComm_t comms[N];
    symmWindow_t win[N];
    int32_t *p[N];
    symmGroupInfo_t info = {.size = sizeof info};
    T_OK(symmCommInitAll(comms, N, NULL));
    for (int r = 0; r < N; r++) T_OK(symmMemAlloc((void **)&p[r], 4096));
    T_OK(symmGroupStart());
    for (int r = 0; r < N; r++)
        T_OK(symmWindowRegister(comms[r], p[r], 4096, &win[r], SYMM_WIN_DEFAULT));
    T_OK(symmGroupEnd());
    for (int round = 0; round < 20; round++) {
        symmSignalWait_t waits[40];
        for (int i = 0; i < 40; i++) waits[i] = (symmSignalWait_t){0, i, 1};
        for (int r = 0; r < N; r++) p[r][0] = 100 * round + r, p[r][1] = p[r][2] = -1;
        T_OK(symmGroupStart());
        for (int r = 0; r < N; r++) {
            T_OK(symmPut(&p[r][0], 1, symmInt32, 1 - r, win[r], 4, comms[r], NULL));
            for (int i = 0; i < 40; i++) T_OK(symmSignal(1 - r, i, comms[r], NULL));
            for (int i = 0; i < 40; i++) waits[i].peer = 1 - r;
            T_OK(symmWaitSignal(40, waits, comms[r], NULL));
            T_OK(symmGet(&p[r][2], 1, symmInt32, r, win[r], 4, comms[r], NULL));
        }
        memset(waits, 0xff, sizeof waits); /* the list was copied */
        T_OK(symmGroupSimulateEnd(&info));
        T_MSG(info.text, "symmWaitSignal");
        T_OK(symmGroupEnd());
        for (int r = 0; r < N; r++) {
            T_EQ(p[r][1], 100 * round + 1 - r);
            T_EQ(p[r][2], 100 * round + 1 - r);
        }
    }
    for (int r = 0; r < N; r++) T_OK(symmCommDestroy(comms[r]));
    for (int r = 0; r < N; r++) T_OK(symmMemFree(p[r]));
}

/* ---- what is refused ------------------------------------------------------------------------- */

#define REFUSED(call, code, part)         \
    do {                                  \
        T_ERR(call, code);                \
        T_MSG(symmGetLastError(c), part); \
    } while (0)

static void refused_signals(symmComm_t c) {
    symmSignalWait_t w = {1, 0, 1};
    uint64_t n = 5;
    REFUSED(symmSignal(2, 0, c, NULL), symmInvalidArgument, "symmSignal: peer=2: must be 0 to 1");
    REFUSED(symmSignal(-1, 0, c, NULL), symmInvalidArgument, "peer=-1: must be 0 to 1");
    REFUSED(symmSignal(1, 64, c, NULL), symmInvalidArgument, "signal=64: must be 0 to 63");
    REFUSED(symmSignalReset(1, -1, c, NULL), symmInvalidArgument, "symmSignalReset: signal=-1");
    REFUSED(symmSignalRead(2, 0, c, &n), symmInvalidArgument, "symmSignalRead: peer=2");
    REFUSED(symmSignalRead(1, 64, c, &n), symmInvalidArgument, "symmSignalRead: signal=64");
    REFUSED(symmSignalRead(1, 0, c, NULL), symmInvalidArgument, "count is NULL");
    REFUSED(symmWaitSignal(-1, &w, c, NULL), symmInvalidArgument, "n=-1: must be 0 or more");
    REFUSED(symmWaitSignal(1, NULL, c, NULL), symmInvalidArgument, "waits is NULL");
    w.peer = 9;
    REFUSED(symmWaitSignal(1, &w, c, NULL), symmInvalidArgument, "symmWaitSignal: peer=9");
    w = (symmSignalWait_t){1, 99, 1};
    REFUSED(symmWaitSignal(1, &w, c, NULL), symmInvalidArgument, "signal=99");
    w = (symmSignalWait_t){1, 9, (size_t)1 << 62};
    REFUSED(symmWaitSignal(1, &w, c, NULL), symmInvalidArgument, "must be below 2^62");
    T_EQ(n, 5);
    T_OK(symmWaitSignal(0, NULL, c, NULL));
    REFUSED(symmWaitSignal(0, NULL, c, (symmStream_t)(uintptr_t)0x1234), symmInvalidArgument,
            "stream");
    w = (symmSignalWait_t){1, 9, 0};
    T_OK(symmWaitSignal(1, &w, c, NULL));
}

static void refused_moves(symmComm_t c, symmWindow_t win, symmWindow_t other, char *own) {
    char b[64] = {0};
    const symmStream_t none = (symmStream_t)(uintptr_t)0x1234;
    REFUSED(symmPut(b, 8, symmInt8, 2, win, 0, c, NULL), symmInvalidArgument, "symmPut: peer=2");
    REFUSED(symmPut(b, 8, symmInt8, 1, NULL, 0, c, NULL), symmInvalidArgument,
            "is not a registered window");
    REFUSED(symmPut(b, 8, symmInt8, 1, other, 0, c, NULL), symmInvalidArgument,
            "belongs to communicator");
    REFUSED(symmPut(b, 8, (symmDataType_t)12, 1, win, 0, c, NULL), symmInvalidArgument,
            "datatype=12: must be 0 to 11");
    REFUSED(symmPut(b, SIZE_MAX / 2, symmInt64, 1, win, 0, c, NULL), symmInvalidArgument,
            "overflow");
    REFUSED(symmPut(NULL, 8, symmInt8, 1, win, 0, c, NULL), symmInvalidArgument,
            "sendbuff is NULL");
    REFUSED(symmGet(NULL, 8, symmInt8, 1, win, 0, c, NULL), symmInvalidArgument,
            "recvbuff is NULL");
    /* Rank 1 has registered 4,000 bytes, rank 0 has 8,192. */
    REFUSED(symmPut(b, 8, symmInt8, 1, win, 3993, c, NULL), symmInvalidArgument,
            "symmPut: offset=3993 and 8 bytes: rank 1 registered 4000 bytes");
    REFUSED(symmGet(b, 1, symmInt8, 1, win, 4000, c, NULL), symmInvalidArgument, "offset=4000");
    REFUSED(symmPutSignal(b, 8, symmInt8, 1, win, SIZE_MAX - 3, 0, c, NULL), symmInvalidArgument,
            "symmPutSignal: offset=18446744073709551612");
    REFUSED(symmPutSignal(b, 8, symmInt8, 1, win, 0, 64, c, NULL), symmInvalidArgument,
            "symmPutSignal: signal=64");
    REFUSED(symmPut(own + 1, 8, symmInt8, 0, win, 0, c, NULL), symmInvalidArgument, "overlaps");
    REFUSED(symmPut(b, 8, symmInt8, 1, win, 0, c, none), symmInvalidArgument, "stream");
    REFUSED(symmFence(c, none), symmInvalidArgument, "stream");
    T_OK(symmPut(own, 8, symmInt8, 0, win, 0, c, NULL)); /* onto itself */
    T_OK(symmPut(NULL, 0, symmInt8, 1, win, 4000, c, NULL));
    T_OK(symmPut(b, 8, symmInt8, 1, win, 3992, c, NULL));
}

/* In a group, and under capture, the same; a group with a call that was refused runs none. */
static void refused_later(symmComm_t c, symmWindow_t win, symmWindow_t gone) {
    char b[64] = {0};
    symmStream_t s;
    symmGraph_t graph;
    uint64_t n;
    T_OK(symmGroupStart());
    T_OK(symmSignal(0, 5, c, NULL));
    REFUSED(symmPut(b, 8, symmInt8, 1, win, 3993, c, NULL), symmInvalidArgument, "offset=3993");
    REFUSED(symmGroupEnd(), symmInvalidArgument, "offset=3993");
    T_OK(symmSignalRead(0, 5, c, &n));
    T_EQ(n, 0);
    T_OK(symmStreamCreate(&s));
    T_OK(symmStreamBeginCapture(s));
    REFUSED(symmPut(b, 8, symmInt8, 1, gone, 0, c, s), symmInvalidArgument,
            "is not a registered window");
    T_OK(symmPut(b, 8, symmInt8, 1, win, 0, c, s)); /* the capture goes on */
    T_OK(symmStreamEndCapture(s, &graph));
    T_OK(symmGraphDestroy(graph));
    T_OK(symmStreamDestroy(s));
}

static void refuse_rank(int me, int n, void *arg) {
    const job *j = arg;
    symmComm_t c = j->comms[me], sub;
    symmWindow_t win, other, gone;
    char *p;
    T_OK(symmMemAlloc((void **)&p, 8192));
    T_OK(symmCommSplit(c, 0, me, &sub, NULL));
    T_OK(symmWindowRegister(c, p, me ? 4000 : 8192, &win, SYMM_WIN_DEFAULT));
    T_OK(symmWindowRegister(c, p, 4000, &gone, SYMM_WIN_DEFAULT));
    T_OK(symmWindowRegister(sub, p, 4000, &other, SYMM_WIN_DEFAULT));
    T_OK(symmWindowDeregister(c, gone));
    if (me == 0) refused_signals(c);
    if (me == 0) refused_moves(c, win, other, p);
    if (me == 0) refused_later(c, win, gone);
    T_OK(symmBarrier(c, NULL));
    T_OK(symmCommDestroy(sub));
    T_OK(symmWindowDeregister(c, win));
    T_OK(symmBarrier(c, NULL));
    T_OK(symmMemFree(p));
    (void)n;
}
static void bad_arguments_change_nothing(void) {
    T_EXPECT_WARNINGS();
    with_ranks(2, refuse_rank);
}

static void own_rank(int me, int n, void *arg) {
    const job *j = arg;
    symmComm_t c = j->comms[me];
    symmSignalWait_t w = {me, 4, 2};
    (void)n;
    T_OK(symmSignal(me, 4, c, NULL));
    if (me == 0) REFUSED(symmWaitSignal(1, &w, c, NULL), symmInvalidUsage, "no earlier call");
}
static void a_signal_to_oneself_that_never_comes(void) {
    T_EXPECT_WARNINGS();
    with_ranks(1, own_rank);
}

/* ---- what is counted ------------------------------------------------------------------------- */

static void stats_rank(int me, int n, void *arg) {
    const job *j = arg;
    char json[16384], v[100] = {0};
    ok_world w;
    ok_open(&w, j->comms[me], me, n, BIG);
    T_OK(symmPutSignal(v, 100, symmInt8, 1 - me, w.p.win, 0, 2, w.p.comm, NULL));
    T_OK(symmPut(v, 10, symmInt8, 1 - me, w.p.win, 0, w.p.comm, NULL));
    T_OK(symmSignal(1 - me, 3, w.p.comm, NULL));
    T_OK(symmSignal(1 - me, 3, w.p.comm, NULL));
    ok_wait(&w, 1 - me, 3, 1, NULL);
    T_OK(symmGet(v, 7, symmInt8, 1 - me, w.p.win, 200, w.p.comm, NULL));
    T_OK(symmBarrier(w.p.comm, NULL));
    T_OK(symmStats(w.p.comm, json, sizeof json, NULL));
    T_MSG(json, "\"one_sided\":{\"puts\":2,\"gets\":1,\"put_bytes\":110,\"got_bytes\":7,"
                "\"signals\":3,\"waits\":1,\"signals_unused\":2}");
    ok_close(&w);
}
static void calls_and_unused_signals_are_counted(void) {
    with_ranks(2, stats_rank);
}

/* Another thread makes communicators with a window and ends them, while calls here name it. */
typedef struct {
    _Atomic(symmWindow_t) win;
    _Atomic int over;
} passing;

static void *pass(void *arg) {
    enum { TURNS = 60 };
    passing *p = arg;
    void *memory;
    T_OK(symmMemAlloc(&memory, 4096));
    for (int i = 0; i < TURNS; i++) {
        symmComm_t comm;
        symmWindow_t win;
        T_OK(symmCommInitAll(&comm, 1, NULL));
        T_OK(symmWindowRegister(comm, memory, 4096, &win, SYMM_WIN_DEFAULT));
        atomic_store(&p->win, win);
        usleep(i % 4 * 100);
        T_OK(symmCommDestroy(comm));
    }
    T_OK(symmMemFree(memory));
    atomic_store(&p->over, 1);
    return NULL;
}

static void a_window_whose_communicator_ends(void) {
    T_EXPECT_WARNINGS();
    passing p = {NULL, 0};
    pthread_t other;
    symmComm_t comm;
    int64_t x = 0, alive = 0;
    T_OK(symmCommInitAll(&comm, 1, NULL));
    T_EQ(pthread_create(&other, NULL, pass, &p), 0);
    while (!atomic_load(&p.over)) {
        T_ERR(symmPut(&x, 1, symmInt64, 0, atomic_load(&p.win), 0, comm, NULL),
              symmInvalidArgument);
        const char *text = symmGetLastError(comm);
        const int lives = strstr(text, "belongs to communicator comm") != NULL;
        T_CHECKF(lives || strstr(text, "is not a registered window"), "%s", text);
        alive += lives;
    }
    T_EQ(pthread_join(other, NULL), 0);
    T_CHECK(alive > 0);
    T_OK(symmCommDestroy(comm));
}

T_MAIN(T(every_size_and_place), T(gets_of_every_size), T(one_signal_for_many_puts),
       T(a_third_rank_tells), T(signals_are_counts), T(reset_uses_up_what_has_come),
       T(a_count_can_be_polled), T(streams_keep_the_order), T(a_signal_behind_another_streams_put),
       T(captured_and_replayed), T(a_group_of_both_ranks), T(bad_arguments_change_nothing),
       T(a_signal_to_oneself_that_never_comes), T(calls_and_unused_signals_are_counted),
       T(a_window_whose_communicator_ends))
