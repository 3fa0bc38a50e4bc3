/* thr_device_api.c - host kernels (symm_device_host.h) of thread ranks: barriers, signals, packets,
 * puts and reductions over many rounds and kernels, on one and more threads of a rank, on streams
 * and in replays; what is refused; how each wait ends when a peer aborts, leaves or does not come.
 * Each rank is a thread; no lock. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "coll_data.h"
#include "graph_kit.h"
#include "host_kernel_kit.h"

enum { MOST = 8, KERNELS = 3 };

typedef struct {
    symmComm_t comms[MOST];
    hkk_rank rank[MOST];
    hk_kernel kernel;
    int ctas, rounds, slow_us, any;
    _Atomic int came;
} job;

static void with_job(job *j, int n, t_rank_fn fn) {
    T_OK(symmCommInitAll(j->comms, n, NULL));
    T_THREADS(n, fn, j);
    for (int r = 0; r < n; r++)
        if (j->comms[r]) T_OK(symmCommDestroy(j->comms[r]));
}

/* ---- each part, many rounds ------------------------------------------------------------------ */

/* Several kernels in a row. One rank is slow. */
static void rounds_rank(int me, int n, void *arg) {
    job *j = arg;
    hkk_rank *w = &j->rank[me];
    hkk_open(w, j->comms[me], me, n);
    hk_args a = hkk_args(w, 0, j->rounds);
    a.any = j->any;
    a.slow_us = me == n - 1 ? j->slow_us : 0;
    for (int k = 0; k < KERNELS; k++, a.first += j->rounds) hkk_run(j->kernel, &a, j->ctas);
    hkk_close(w);
}
static void many_rounds(hk_kernel kernel, int rounds, int slow_us) {
    static const int ranks[] = {1, 2, 3, 4, 8};
    for (unsigned i = 0; i < sizeof ranks / sizeof *ranks; i++) {
        const int ctas = ranks[i] > 4 ? 1 : 1 + (int)i % HKK_CTAS;
        job j = {.kernel = kernel, .ctas = ctas, .rounds = rounds, .slow_us = slow_us};
        with_job(&j, ranks[i], rounds_rank);
    }
}

static void barriers(void) {
    many_rounds(hk_barriers, 40, 0);
    many_rounds(hk_barriers, 3, 2000);
}
static void words_that_are_there_already(void) {
    many_rounds(hk_apart, 5, 3000);
}
static void puts_and_signals_in_a_ring(void) {
    many_rounds(hk_ring, 40, 0);
    many_rounds(hk_ring, 3, 2000);
}
static void signals_of_any_rank(void) {
    job j = {.kernel = hk_ring, .ctas = 2, .rounds = 20, .any = 1};
    with_job(&j, 3, rounds_rank);
}
static void signals_that_are_polled(void) {
    many_rounds(hk_polls, 20, 0);
}
static void signals_are_counts_and_can_be_reset(void) {
    many_rounds(hk_counts, 20, 0);
}
static void packets(void) {
    many_rounds(hk_packets, 40, 0);
    many_rounds(hk_packets, 5, 3000);
}

/* ---- puts ------------------------------------------------------------------------------------ */

/* Any size and place, and past the caches; what lies beside it stays. */
static void puts_rank(int me, int n, void *arg) {
    static const size_t sizes[] = {0, 1, 7, 8, 63, 64, 65, 4096, 100001, (3 << 20) + 5};
    job *j = arg;
    hkk_rank *w = &j->rank[me];
    symmHostCta_t cta;
    const int next = (me + 1) % n, prev = (me + n - 1) % n;
    unsigned char *data = malloc(HKK_BYTES);
    T_CHECK(data != NULL);
    hkk_open(w, j->comms[me], me, n);
    T_OK(symmHostCtaBegin(&w->dev, 0, &cta));
    for (int i = 0; i < 10; i++) {
        const size_t bytes = sizes[i], at = 100 + (size_t)i * 3;
        memset(w->mem, 0x5a, bytes + 300);
        for (size_t b = 0; b < bytes; b++) data[b] = (unsigned char)(b * 7 + (size_t)(me + i) * 31);
        T_EQ(symmHostBarrierSync(&cta), 0);
        T_OK(symmHostPutSignal(&cta, &w->win, next, at, data, bytes, HK_FULL));
        T_EQ(symmHostSignalWait(&cta, HK_FULL, (uint64_t)i + 1, prev), 0);
        for (size_t b = 0; b < bytes; b++)
            T_EQ((unsigned char)w->mem[at + b], (unsigned char)(b * 7 + (size_t)(prev + i) * 31));
        T_CHECK(w->mem[at - 1] == 0x5a && w->mem[at + bytes] == 0x5a);
        T_EQ(symmHostBarrierSync(&cta), 0);
    }
    T_OK(symmHostCtaEnd(&cta));
    hkk_close(w);
    free(data);
}
static void puts_of_every_size(void) {
    for (int n = 1; n <= 3; n++) {
        job j = {.ctas = 1};
        with_job(&j, n, puts_rank);
    }
}

/* ---- reductions ------------------------------------------------------------------------------ */

/* The bits of symmAllReduce, of any bits. */
static void reduce_rank(int me, int n, void *arg) {
    enum { COUNT = 1003, AT = 16 };
    job *j = arg;
    hkk_rank *w = &j->rank[me];
    static const int ops[] = {symmSum, symmProd, symmMax, symmMin, symmAvg};
    unsigned char got[COUNT * 8], want[COUNT * 8];
    hkk_open(w, j->comms[me], me, n);
    for (int type = 0; type < symmNumTypes; type++)
        for (int k = 0; k < 5; k++) {
            const size_t size = symm_type_size((unsigned)type);
            symmHostCta_t cta;
            for (size_t b = 0; b < COUNT * size; b++)
                w->mem[AT + b] = (char)ck_hash((uint64_t)(type * 5 + k), b, (uint64_t)me);
            T_OK(symmAllReduce(w->mem + AT, want, COUNT, (symmDataType_t)type, (symmRedOp_t)ops[k],
                               w->comm, NULL));
            memset(got, 0, sizeof got);
            T_OK(symmHostCtaBegin(&w->dev, 1, &cta));
            T_EQ(symmHostBarrierSync(&cta), 0);
            T_OK(symmHostLoadReduce(&cta, &w->win, AT, COUNT, (symmDataType_t)type,
                                    (symmRedOp_t)ops[k], got));
            T_EQ(symmHostBarrierSync(&cta), 0);
            T_OK(symmHostCtaEnd(&cta));
            T_CHECKF(!memcmp(got, want, COUNT * size), "rank %d of %d, type %d, op %d: other bits",
                     me, n, type, ops[k]);
        }
    hkk_close(w);
}
static void reductions_of_every_type(void) {
    static const int ranks[] = {1, 2, 3, 5};
    for (int i = 0; i < 4; i++) {
        job j = {.ctas = 1};
        with_job(&j, ranks[i], reduce_rank);
    }
}

/* ---- streams and graphs ---------------------------------------------------------------------- */

/* In a stream a kernel comes behind the collective before it, and before the one behind it. */
static void stream_rank(int me, int n, void *arg) {
    job *j = arg;
    hkk_rank *w = &j->rank[me];
    symmStream_t s;
    symmGraph_t graph;
    symmGraphExec_t exec;
    int32_t one = 1, sum = 0;
    hkk_open(w, j->comms[me], me, n);
    hk_args a = hkk_args(w, 0, 4);
    T_OK(symmStreamCreate(&s));
    T_OK(symmAllReduce(&one, &sum, 1, symmInt32, symmSum, w->comm, s));
    T_OK(symmStreamHostFunc(s, hk_barriers, &a));
    T_OK(symmStreamSynchronize(s));
    T_OK(a.ended);
    T_EQ(a.done, 4);
    T_EQ(sum, n);
    T_OK(symmStreamBeginCapture(s));
    T_OK(symmAllReduce(&sum, &sum, 1, symmInt32, symmSum, w->comm, s));
    T_OK(symmStreamHostFunc(s, hk_packets, &a));
    T_OK(symmStreamHostFunc(s, hk_barriers, &a));
    T_OK(symmStreamEndCapture(s, &graph));
    T_OK(symmGraphInstantiate(graph, &exec));
    for (int i = 0; i < 5; i++) {
        a.first += 4;
        T_OK(symmGraphLaunch(exec, s));
        T_OK(symmStreamSynchronize(s));
        T_OK(a.ended);
        T_CHECK(a.done == 4 && !a.wrong);
    }
    T_OK(symmGraphExecDestroy(exec));
    T_OK(symmGraphDestroy(graph));
    T_OK(symmStreamDestroy(s));
    hkk_close(w);
}
static void on_a_stream_and_in_replays(void) {
    for (int n = 1; n <= 4; n *= 2) {
        job j = {.ctas = 1};
        with_job(&j, n, stream_rank);
    }
}

/* ---- what is refused ------------------------------------------------------------------------- */

static void refused_rank(int me, int n, void *arg) {
    job *j = arg;
    hkk_rank *w = &j->rank[me];
    symmHostCta_t cta, second;
    char data[64] = "";
    hkk_open(w, j->comms[me], me, n);
    T_ERR(symmHostCtaBegin(NULL, 0, &cta), symmInvalidArgument);
    T_ERR(symmHostCtaBegin(&w->dev, 0, NULL), symmInvalidArgument);
    T_ERR(symmHostCtaBegin(&w->dev, HKK_CTAS, &cta), symmInvalidArgument);
    T_MSG(symmGetLastError(NULL), "index=3: must be below barriers=3");
    T_ERR(symmHostCtaBegin(&w->dev, -2, &cta), symmInvalidArgument);
    T_ERR(symmHostCtaEnd(&cta), symmInvalidArgument);
    T_OK(symmHostCtaBegin(&w->dev, 1, &cta));
    T_ERR(symmHostCtaBegin(&w->dev, 1, &second), symmInvalidUsage);
    T_MSG(symmGetLastError(NULL), "another thread");
    T_CHECK(symmHostBarrierSync(&second));        /* it has not begun */
    T_OK(symmHostCtaBegin(&w->dev, -1, &second)); /* without an index any number may */
    T_OK(symmHostCtaEnd(&second));
    T_ERR(symmHostPut(&cta, &w->win, n, 0, data, 1), symmInvalidArgument);
    T_ERR(symmHostPut(&cta, &w->win, 0, HKK_BYTES, data, 1), symmInvalidArgument);
    T_ERR(symmHostPutSignal(&cta, &w->win, 0, HKK_BYTES - 8, data, 9, HK_FULL),
          symmInvalidArgument);
    T_EQ(symmHostSignalRead(&cta, HK_FULL), 0);
    T_ERR(symmHostLoadReduce(&cta, &w->win, 0, HKK_BYTES / 4 + 1, symmFloat, symmSum, data),
          symmInvalidArgument);
    T_ERR(symmHostLoadReduce(&cta, &w->win, 0, 1, symmNumTypes, symmSum, data),
          symmInvalidArgument);
    T_ERR(symmHostLoadReduce(&cta, &w->win, 0, 1, symmFloat, (symmRedOp_t)(symmAvg + 1), data),
          symmInvalidArgument);
    T_CHECK(!symmHostPeerPtr(&w->dev, &w->win, -1, 0) && !symmHostPeerPtr(&w->dev, &w->win, n, 0));
    T_CHECK(!symmHostPeerPtr(&w->dev, &w->win, 0, HKK_BYTES));
    T_CHECK(symmHostLocalPtr(&w->win, 5) == w->mem + 5 && !symmHostLocalPtr(&w->win, HKK_BYTES));
    T_OK(symmHostCtaEnd(&cta));
    T_ERR(symmHostCtaEnd(&cta), symmInvalidArgument);
    hkk_close(w);
}
/* All of it is local, and the communicator stays. */
static void bad_arguments_change_nothing(void) {
    job j = {.ctas = 1};
    T_EXPECT_WARNINGS();
    with_job(&j, 2, refused_rank);
}

static void needs_rank(int me, int n, void *arg) {
    job *j = arg;
    symmDevComm_t d = {.rank = 77};
    symmDevRequirements_t q = hkk_need();
    (void)n;
    q.signals += me;
    T_ERR(symmDevCommCreate(j->comms[me], &q, &d), symmMismatch);
    T_MSG(symmGetLastError(NULL), "signals=12");
    T_MSG(symmGetLastError(NULL), "rank 1 3, 13");
    q = hkk_need();
    if (me == 1) q.barriers = SYMM_DEV_MAX_BARRIERS + 1;
    T_ERR(symmDevCommCreate(j->comms[me], &q, &d), symmInvalidArgument);
    T_MSG(symmGetLastError(NULL), "requirements.barriers=1025");
    T_ERR(symmDevCommCreate(j->comms[me], me ? &q : NULL, &d), symmInvalidArgument);
    T_EQ(d.rank, 77);
}
/* The same on every rank, and the communicator stays. */
static void requirements_that_differ(void) {
    job j = {.ctas = 1};
    T_EXPECT_WARNINGS();
    with_job(&j, 2, needs_rank);
}

/* Two in a group; each has its own memory. */
static void group_rank(int me, int n, void *arg) {
    job *j = arg;
    const symmDevRequirements_t q = hkk_need();
    hkk_rank *w = &j->rank[me], second;
    hkk_open(w, j->comms[me], me, n);
    second = *w;
    T_OK(symmGroupStart());
    T_OK(symmDevCommCreate(w->comm, &q, &second.dev));
    T_OK(symmGroupEnd());
    hk_args a = hkk_args(w, 0, 3), b = hkk_args(&second, 0, 2);
    hkk_run(hk_packets, &a, 2);
    hkk_run(hk_packets, &b, 2);
    a.first = 3;
    hkk_run(hk_packets, &a, 2);
    T_OK(symmDevCommDestroy(w->comm, &second.dev));
    hkk_close(w);
}
static void several_of_one_communicator(void) {
    job j = {.ctas = 1};
    with_job(&j, 2, group_rank);
}

/* ---- ends ------------------------------------------------------------------------------------ */

static void used_after_its_end(void) {
    hkk_rank w;
    symmComm_t comm;
    symmHostCta_t cta;
    T_EXPECT_WARNINGS();
    T_OK(symmCommInitAll(&comm, 1, NULL));
    hkk_open(&w, comm, 0, 1);
    const symmDevComm_t first = w.dev;
    T_OK(symmDevCommDestroy(comm, &first));
    T_ERR(symmHostCtaBegin(&first, 0, &cta), symmInvalidArgument);
    T_MSG(symmGetLastError(NULL), "not a live device communicator");
    const symmDevRequirements_t q = hkk_need();
    T_OK(symmDevCommCreate(comm, &q, &w.dev));
    T_OK(symmCommDestroy(comm)); /* with the second one, and the heap */
    T_ERR(symmHostCtaBegin(&w.dev, 0, &cta), symmInvalidArgument);
    T_CHECK(cta.over && !cta.inside);
}

typedef struct {
    symmDevComm_t dev;
    _Atomic int inside, ended;
} runner;

static void *stays_inside(void *arg) {
    runner *k = arg;
    symmHostCta_t cta;
    T_OK(symmHostCtaBegin(&k->dev, 0, &cta));
    atomic_store(&k->inside, 1);
    usleep(50000);
    T_EQ(symmHostBarrierSync(&cta), 0); /* its memory is there */
    atomic_store(&k->ended, 1);
    T_OK(symmHostCtaEnd(&cta));
    return NULL;
}

/* A kernel that is running keeps the device communicator's memory; the communicator waits for
 * it. */
static void the_end_waits_for_kernels(void) {
    enum { FINALIZED, DESTROYED, ABORTED, MEMORY_FIRST, WAYS };
    T_EXPECT_WARNINGS();
    for (int how = 0; how < WAYS; how++) {
        hkk_rank w;
        symmComm_t comm;
        runner k = {.ended = 0};
        pthread_t t;
        T_OK(symmCommInitAll(&comm, 1, NULL));
        hkk_open(&w, comm, 0, 1);
        k.dev = w.dev;
        T_EQ(pthread_create(&t, NULL, stays_inside, &k), 0);
        while (!atomic_load(&k.inside)) usleep(100);
        if (how == MEMORY_FIRST) T_OK(symmDevCommDestroy(comm, &w.dev));
        T_OK(how == FINALIZED ? symmCommFinalize(comm)
             : how == ABORTED ? symmCommAbort(comm)
                              : symmCommDestroy(comm));
        T_CHECK(atomic_load(&k.ended));
        pthread_join(t, NULL);
        if (how == FINALIZED) T_OK(symmCommDestroy(comm));
    }
}

/* It would wait for itself. */
static void no_end_from_inside(void) {
    T_EXPECT_WARNINGS();
    for (int aborted = 0; aborted < 2; aborted++) {
        hkk_rank w;
        symmComm_t comm;
        symmHostCta_t cta;
        T_OK(symmCommInitAll(&comm, 1, NULL));
        hkk_open(&w, comm, 0, 1);
        T_OK(symmHostCtaBegin(&w.dev, 0, &cta));
        T_ERR(aborted ? symmCommAbort(comm) : symmCommDestroy(comm), symmInvalidUsage);
        T_MSG(symmGetLastError(NULL), "from inside a kernel");
        T_EQ(symmHostBarrierSync(&cta), 0); /* all is there */
        T_OK(symmHostCtaEnd(&cta));
        T_OK(symmCommDestroy(comm));
    }
}

/* ---- waits that do not end ------------------------------------------------------------------- */

/* Rank 1 does not come: it revokes the communicator, or the deadline passes. All threads of rank 0
 * give up, and no kernel begins after that. */
static void late_rank(int me, int n, void *arg) {
    job *j = arg;
    hkk_rank *w = &j->rank[me];
    const symmResult_t code = j->any ? symmAborted : symmTimeout;
    hkk_thread t[2];
    pthread_t thread;
    hkk_open(w, j->comms[me], me, n);
    for (int i = 0; i < 2; i++) t[i] = (hkk_thread){j->kernel, hkk_args(w, i, 1)};
    if (me == 1) {
        usleep(20000);
        if (j->any) T_OK(symmCommRevoke(w->comm, 0));
    } else {
        T_EQ(pthread_create(&thread, NULL, hkk_run_thread, &t[1]), 0);
        hkk_run_thread(&t[0]);
        pthread_join(thread, NULL);
        for (int i = 0; i < 2; i++) {
            T_CHECK(t[i].args.began == symmSuccess || t[i].args.began == code);
            T_EQ(t[i].args.began ? code : t[i].args.ended, code);
            T_EQ(t[i].args.done, 0);
        }
        T_ERR(symmBarrier(w->comm, NULL), code);
        t[0].kernel(&t[0].args);
        T_EQ(t[0].args.began, code);
        if (!j->any) T_MSG(symmGetLastError(w->comm), "(a kernel of the program, waiting for a ");
    }
}
static void a_rank_that_does_not_come(void) {
    static const hk_kernel kernels[] = {hk_barriers, hk_ring, hk_packets};
    T_EXPECT_WARNINGS();
    for (int k = 0; k < 6; k++) {
        job j = {.kernel = kernels[k / 2], .any = k % 2};
        setenv("SYMM_TIMEOUT", j.any ? "20000" : "200", 1);
        with_job(&j, 2, late_rank);
    }
}

T_MAIN(T_TIMEOUT(barriers, 120), T(words_that_are_there_already),
       T_TIMEOUT(puts_and_signals_in_a_ring, 120), T(signals_of_any_rank),
       T_TIMEOUT(signals_that_are_polled, 120), T(signals_are_counts_and_can_be_reset),
       T_TIMEOUT(packets, 120), T(puts_of_every_size), T(reductions_of_every_type),
       T(on_a_stream_and_in_replays), T(bad_arguments_change_nothing), T(requirements_that_differ),
       T(several_of_one_communicator), T(used_after_its_end), T(the_end_waits_for_kernels),
       T(no_end_from_inside), T(a_rank_that_does_not_come))
