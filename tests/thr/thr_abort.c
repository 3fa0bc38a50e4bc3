/* thr_abort.c - the end of a communicator beside other threads: symmCommAbort while the rank's own
 * thread goes from call to call and destroys it, questions about who is gone, and launches of a
 * graph. Run under the sanitizers too. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "graph_kit.h"
#include "coll_kit.h"
#include "symm_heap.h"

enum { ROUNDS = 60 };

typedef struct {
    symmComm_t comm;
    _Atomic int calls, over;
    int destroys;
} aborted;

static void *ends_it(void *arg) {
    aborted *a = arg;
    while (atomic_load(&a->calls) < 3) usleep(50);
    const symmResult_t r = symmCommAbort(a->comm);
    T_CHECK(!r || (a->destroys && r == symmInvalidArgument)); /* Destroy was first */
    return NULL;
}

/* The rank's thread knows nothing of the abort. */
static void *calls_on(void *arg) {
    aborted *a = arg;
    symmResult_t r = symmSuccess;
    int32_t x = 1;
    while (!r) {
        r = symmAllReduce(&x, &x, 1, symmInt32, symmSum, a->comm, NULL);
        atomic_fetch_add(&a->calls, 1);
    }
    T_CHECK(r == symmAborted || r == symmInvalidArgument);
    if (r == symmAborted) T_MSG(symmGetLastError(NULL), "symmCommAbort");
    if (!a->destroys) return NULL;
    r = symmCommDestroy(a->comm);
    T_CHECK(!r || r == symmAborted || r == symmInvalidArgument);
    return NULL;
}

static void abort_rounds(int destroys) {
    T_EXPECT_WARNINGS();
    for (int i = 0; i < ROUNDS; i++) {
        aborted a = {.destroys = destroys};
        pthread_t t[2];
        T_OK(symmCommInitAll(&a.comm, 1, NULL));
        T_EQ(pthread_create(&t[0], NULL, calls_on, &a), 0);
        T_EQ(pthread_create(&t[1], NULL, ends_it, &a), 0);
        for (int k = 0; k < 2; k++) pthread_join(t[k], NULL);
        T_ERR(symmBarrier(a.comm, NULL), symmInvalidArgument);
    }
}

static void an_abort_beside_the_next_call(void) {
    abort_rounds(0);
}

static void an_abort_beside_a_destroy(void) {
    abort_rounds(1);
}

/* ---- its heaps and windows beside an abort ---- */

typedef struct {
    aborted a;
    symmHeap_t heap;
    symmWindow_t win;
    void *buff;
} owner;

/* Calls on objects of the communicator, by handles that the abort ends. */
static void *uses_heap_and_window(void *arg) {
    owner *o = arg;
    symmResult_t r = symmSuccess, w = symmSuccess;
    while (!r) {
        symmWindowInfo_t info = {.size = sizeof info};
        void *ptr, *peer;
        r = symmHeapAlloc(o->heap, 512, 0, SYMM_ALLOC_SYM, &ptr);
        if (!r) r = symmHeapFree(o->heap, ptr);
        w = symmWindowQuery(o->win, &info);
        if (!w) w = symmWindowPeerPtr(o->win, 0, 0, &peer);
        atomic_fetch_add(&o->a.calls, 1);
    }
    T_CHECK(r == symmAborted || r == symmInvalidArgument);
    T_CHECK(!w || w == symmInvalidArgument);
    return NULL;
}

static void an_abort_beside_heaps_and_windows(void) {
    T_EXPECT_WARNINGS();
    for (int i = 0; i < ROUNDS; i++) {
        owner o = {0};
        pthread_t t[2];
        symmHeapConfig_t config = SYMM_HEAP_CONFIG_INITIALIZER;
        config.symBytes = 1 << 20;
        T_OK(symmCommInitAll(&o.a.comm, 1, NULL));
        T_OK(symmMemAlloc(&o.buff, 4096));
        T_OK(symmWindowRegister(o.a.comm, o.buff, 4096, &o.win, 0));
        T_OK(symmHeapCreate(o.a.comm, &config, &o.heap));
        T_EQ(pthread_create(&t[0], NULL, uses_heap_and_window, &o), 0);
        T_EQ(pthread_create(&t[1], NULL, ends_it, &o.a), 0);
        for (int k = 0; k < 2; k++) pthread_join(t[k], NULL);
        T_OK(symmMemFree(o.buff));
    }
}

/* ---- questions beside the end ---- */

static void *asks(void *arg) {
    aborted *a = arg;
    int who[2], n = 0;
    symmResult_t r = symmSuccess;
    while (!r) {
        r = symmCommFailedRanks(a->comm, SYMM_FAILED_LOCAL, who, 2, &n);
        atomic_fetch_add(&a->calls, 1);
    }
    T_EQ(r, symmInvalidArgument);
    return NULL;
}

static void who_is_gone_beside_a_destroy(void) {
    T_EXPECT_WARNINGS();
    for (int i = 0; i < ROUNDS; i++) {
        aborted a = {0};
        symmComm_t comm[2];
        pthread_t t;
        T_OK(symmCommInitAll(comm, 2, NULL));
        a.comm = comm[0];
        T_EQ(pthread_create(&t, NULL, asks, &a), 0);
        while (atomic_load(&a.calls) < 3) usleep(20);
        for (int r = 0; r < 2; r++) T_OK(symmCommDestroy(comm[r]));
        pthread_join(t, NULL);
    }
}

/* ---- launches beside the end ---- */

typedef struct {
    symmGraph_t graph;
    symmStream_t stream;
    symmComm_t comm;
    _Atomic int launches;
} launched;

static void *launches_on(void *arg) {
    launched *l = arg;
    symmResult_t r = symmSuccess;
    while (!r) {
        r = symmGraphLaunch(xg_exec(l->graph), l->stream);
        if (!r) r = symmStreamSynchronize(l->stream);
        atomic_fetch_add(&l->launches, 1);
    }
    T_EQ(r, symmInvalidUsage); /* of a destroyed communicator */
    return NULL;
}

static void a_launch_beside_a_destroy(void) {
    int32_t x = 1;
    T_EXPECT_WARNINGS();
    for (int i = 0; i < ROUNDS; i++) {
        launched l = {0};
        symmComm_t comm;
        pthread_t t;
        T_OK(symmCommInitAll(&comm, 1, NULL));
        T_OK(symmStreamCreate(&l.stream));
        T_OK(symmStreamBeginCapture(l.stream));
        T_OK(symmAllReduce(&x, &x, 1, symmInt32, symmSum, comm, l.stream));
        T_OK(symmStreamEndCapture(l.stream, &l.graph));
        T_EQ(pthread_create(&t, NULL, launches_on, &l), 0);
        while (atomic_load(&l.launches) < 3) usleep(20);
        T_OK(symmCommDestroy(comm));
        pthread_join(t, NULL);
        T_OK(xg_destroy(l.graph));
        symmStreamDestroy(l.stream);
    }
}

/* ---- a capture that another thread ends ---- */

static void *issues_on(void *arg) {
    launched *l = arg;
    int32_t x = 1;
    while (!atomic_load(&l->launches)) {
        const symmResult_t r = symmAllReduce(&x, &x, 1, symmInt32, symmSum, l->comm, l->stream);
        T_CHECK(!r || r == symmInvalidUsage); /* its capture has ended meanwhile */
    }
    T_OK(symmStreamSynchronize(l->stream));
    return NULL;
}

static void a_call_beside_the_end_of_its_capture(void) {
    launched l = {0};
    pthread_t t;
    T_EXPECT_WARNINGS();
    T_OK(symmCommInitAll(&l.comm, 1, NULL));
    T_OK(symmStreamCreate(&l.stream));
    T_EQ(pthread_create(&t, NULL, issues_on, &l), 0);
    for (int i = 0; i < 10 * ROUNDS; i++) {
        T_OK(symmStreamBeginCapture(l.stream));
        for (volatile int k = 0; k < i * 10; k++) {
        }
        T_OK(symmStreamEndCapture(l.stream, &l.graph));
        T_OK(xg_destroy(l.graph));
    }
    atomic_store(&l.launches, 1);
    pthread_join(t, NULL);
    T_OK(symmCommDestroy(l.comm));
    T_OK(symmStreamDestroy(l.stream));
}

/* ---- from a callback of the thread's own call ------------------------------------------------ */

typedef struct {
    symmComm_t comms[2], made[2];
    int blocking, refused;
    _Atomic int ends;
} inside;

/* All of these would wait until this thread has left the split that calls it. Rank 1 has no such
 * call: the communicator lives. */
static symmResult_t ends_inside(void *ctx, const symmMeeting_t *m, symmResult_t status,
                                symmVerdict_t *v) {
    static const char *const why = "would wait for itself";
    inside *in = ctx;
    symmComm_t other = NULL;
    const int one = 1;
    (void)v;
    if (m->rank || in->refused) return status;
    T_ERR(symmCommAbort(in->comms[0]), symmInvalidUsage);
    T_MSG(symmGetLastError(NULL), why);
    T_ERR(symmCommShrink(in->comms[0], &one, 1, &other, NULL, SYMM_SHRINK_ABORT), symmInvalidUsage);
    T_MSG(symmGetLastError(NULL), why);
    T_CHECK(!other);
    in->refused++;
    return status;
}

static void split_rank(int rank, int n, void *arg) {
    inside *in = arg;
    symmConfig_t config = SYMM_CONFIG_INITIALIZER;
    const symmMeet_t meet = {ends_inside, NULL, in};
    symmResult_t now = symmInProgress;
    int x = 1;
    config.blocking = in->blocking;
    const symmResult_t r =
        symmCommSplitMeet(in->comms[rank], 0, rank, &in->made[rank], &config, &meet);
    T_EQ(r, in->blocking ? symmSuccess : symmInProgress);
    while (now == symmInProgress) T_OK(symmCommGetAsyncError(in->comms[rank], &now));
    T_OK(now);
    T_OK(symmAllReduce(&x, &x, 1, symmInt32, symmSum, in->comms[rank], NULL));
    T_OK(symmAllReduce(&x, &x, 1, symmInt32, symmSum, in->made[rank], NULL));
    T_EQ(x, n * n);
    T_OK(symmCommDestroy(in->made[rank]));
}

static void an_end_inside_an_own_call(void) {
    T_EXPECT_WARNINGS();
    for (int blocking = 0; blocking < 2; blocking++) {
        inside in = {.blocking = blocking};
        T_OK(symmCommInitAll(in.comms, 2, NULL));
        T_THREADS(2, split_rank, &in);
        T_EQ(in.refused, 1);
        for (int r = 0; r < 2; r++) T_OK(symmCommDestroy(in.comms[r]));
    }
}

/* The thread that gave the split away is not inside: its abort ends both. */
static symmResult_t waits_inside(void *ctx, const symmMeeting_t *m, symmResult_t status,
                                 symmVerdict_t *v) {
    inside *in = ctx;
    (void)m, (void)v;
    for (int ms = 0; ms < 10000 && !in->ends; ms++) usleep(1000);
    return status;
}

static void an_abort_by_who_gave_the_split_away(void) {
    T_EXPECT_WARNINGS();
    symmConfig_t config = SYMM_CONFIG_INITIALIZER;
    config.blocking = 0;
    for (int k = 0; k < 20; k++) {
        inside in = {.ends = k % 2};
        const symmMeet_t meet = {waits_inside, NULL, &in};
        T_OK(symmCommInitAll(in.comms, 1, NULL));
        T_EQ(symmCommSplitMeet(in.comms[0], 0, 0, &in.made[0], &config, &meet), symmInProgress);
        in.ends = 1;
        T_OK(symmCommAbort(in.comms[0]));
        T_OK(symmCommAbort(in.made[0]));
    }
}

T_MAIN(T(an_abort_beside_the_next_call), T(an_abort_beside_a_destroy),
       T(an_abort_beside_heaps_and_windows), T(who_is_gone_beside_a_destroy),
       T(a_launch_beside_a_destroy), T(a_call_beside_the_end_of_its_capture),
       T(an_end_inside_an_own_call), T(an_abort_by_who_gave_the_split_away))
