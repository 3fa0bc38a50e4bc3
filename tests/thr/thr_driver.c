/* thr_driver.c - threads and ranks: one thread that calls thread ranks one after the other is told
 * why it waits, and a second thread may watch, dump and end a communicator that others use. Run
 * under ThreadSanitizer too. */
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/stats.h"
#include "transport/mesh/mesh.h"
#include "coll_kit.h"
#include "symm_heap.h"

enum { N = 3, ROUNDS = 12, LOOKS = 3 };

/* ---- one thread that calls ranks one after the other ---- */

typedef struct {
    symmComm_t comm[N];
    void *buf;
    int registers;
} alone;

static void *other_ranks(void *arg) {
    alone *a = arg;
    symmWindow_t win;
    const uint64_t until = symm_now_ns() + 1800000000ull;
    while (symm_now_ns() < until) usleep(1000);
    for (int r = 1; r < 2; r++) {
        if (a->registers)
            T_OK(symmWindowRegister(a->comm[r], NULL, 0, &win, 0));
        else
            T_OK(symmBarrier(a->comm[r], NULL));
    }
    return NULL;
}

/* stderr while fn runs. */
static const char *said(void (*fn)(void *), void *arg) {
    static char text[16384];
    char path[] = "/tmp/symm-thr-XXXXXX";
    int fd = mkstemp(path), old = dup(STDERR_FILENO);
    T_CHECK(fd >= 0 && old >= 0);
    unlink(path);
    dup2(fd, STDERR_FILENO);
    fn(arg);
    dup2(old, STDERR_FILENO);
    const ssize_t n = pread(fd, text, sizeof text - 1, 0);
    text[n > 0 ? n : 0] = 0;
    close(fd);
    close(old);
    return text;
}

/* Another thread comes in the end, so that the test does. */
static void wait_for_itself(void *arg) {
    alone *a = arg;
    symmWindow_t win;
    pthread_t t;
    T_EQ(pthread_create(&t, NULL, other_ranks, a), 0);
    if (a->registers)
        T_OK(symmWindowRegister(a->comm[0], NULL, 0, &win, 0));
    else
        T_OK(symmBarrier(a->comm[0], NULL));
    pthread_join(t, NULL);
}

static void one_thread_is_told(int registers) {
    alone a = {.registers = registers};
    T_EXPECT_WARNINGS();
    T_OK(symmCommInitAll(a.comm, 2, NULL));
    T_OK(symmGroupStart()); /* right, and leaves the ranks this thread's */
    for (int r = 0; r < 2; r++) T_OK(symmBarrier(a.comm[r], NULL));
    T_OK(symmGroupEnd());
    T_EQ(SYMM_STAT_GET(log_warnings), 0);
    T_MSG(said(wait_for_itself, &a),
          "rank 0 has waited a second for rank 1, which this same thread called or made last");
    T_EQ(SYMM_STAT_GET(log_warnings), 1);
    for (int r = 0; r < 2; r++) T_OK(symmCommDestroy(a.comm[r]));
}

static void a_collective_that_waits_for_its_own_thread(void) {
    one_thread_is_told(0);
}

static void a_registration_that_waits_for_its_own_thread(void) {
    one_thread_is_told(1);
}

static void a_limit_tells_it_in_its_error(void) {
    symmComm_t comm[2];
    T_EXPECT_WARNINGS();
    setenv("SYMM_TIMEOUT", "300", 1);
    T_OK(symmCommInitAll(comm, 2, NULL));
    T_ERR(symmBarrier(comm[0], NULL), symmTimeout);
    T_MSG(symmGetLastError(NULL), "this same thread called or made it last");
    for (int r = 0; r < 2; r++) T_OK(symmCommDestroy(comm[r]));
}

/* Nothing is said of a rank that has a thread of its own, however late that is. */
static void late_rank(int rank, int n, void *arg) {
    alone *a = arg;
    (void)n;
    const uint64_t until = symm_now_ns() + 1500000000ull;
    T_OK(symmBarrier(a->comm[rank], NULL));
    while (rank == 1 && symm_now_ns() < until) usleep(1000);
    T_OK(symmBarrier(a->comm[rank], NULL));
}

static void a_late_thread_is_not_taken_for_it(void) {
    alone a;
    T_OK(symmCommInitAll(a.comm, 2, NULL));
    T_THREADS(2, late_rank, &a);
    for (int r = 0; r < 2; r++) T_OK(symmCommDestroy(a.comm[r]));
}

/* ---- a second thread that watches ---- */

typedef struct {
    symmComm_t comm[N];
    _Atomic int looks, over, stuck;
    int fd, revokes;
} watched;

/* Every call that any thread may make. 0 once the communicator is gone. */
static int look_at(watched *w, symmComm_t comm) {
    symmCommInfo_t info = {.size = sizeof info};
    symmResult_t async;
    char json[2048];
    int n;
    size_t needed;
    const symmResult_t r = symmCommQuery(comm, &info);
    if (r) T_EQ(r, symmInvalidArgument);
    if (!r) T_EQ(info.nranks, N);
    if (!symmCommCount(comm, &n)) T_EQ(n, N);
    symmCommFailedRanks(comm, SYMM_FAILED_LOCAL, NULL, 0, &n);
    symmCommUserRank(comm, &n);
    symmCommDevice(comm, &n);
    if (!symmCommGetAsyncError(comm, &async)) T_CHECK(!async || async == symmAborted);
    symmStats(comm, json, sizeof json, &needed);
    symmCommDump(comm, w->fd);
    atomic_fetch_add(&w->looks, 1);
    return !r;
}

static void *watchdog(void *arg) {
    watched *w = arg;
    int alive = 1;
    while (alive) {
        alive = 0;
        for (int r = 0; r < N; r++) alive += look_at(w, w->comm[r]);
    }
    return NULL;
}

static void work(symmComm_t comm, int rank, symmStream_t stream) {
    symmHeapConfig_t config = SYMM_HEAP_CONFIG_INITIALIZER;
    symmHeap_t heap;
    symmWindow_t win;
    symmComm_t child;
    float *x;
    T_OK(symmMemAlloc((void **)&x, 2 << 20));
    T_OK(symmWindowRegister(comm, x, 1 << 20, &win, 0));
    for (int i = 0; i < 100; i++) x[i] = (float)rank;
    T_OK(symmAllReduce(x, x, 100, symmFloat, symmSum, comm, NULL));
    T_OK(symmAllReduce(x, x, 1000, symmFloat, symmSum, comm, stream));
    T_OK(symmStreamSynchronize(stream));
    T_OK(symmWindowGrow(win, 2 << 20));
    T_OK(symmCommSplit(comm, 0, 0, &child, NULL));
    T_OK(symmHeapCreate(comm, &config, &heap));
    T_OK(symmHeapGrow(heap, 1 << 20, 0));
    T_OK(symmHeapDestroy(heap));
    T_OK(symmCommDestroy(child));
    T_OK(symmWindowDeregister(comm, win));
    T_OK(symmMemFree(x));
}

static void working_rank(int rank, int n, void *arg) {
    watched *w = arg;
    symmStream_t stream;
    symmResult_t r = symmSuccess;
    (void)n;
    T_OK(symmStreamCreate(&stream));
    for (int i = 0; i < ROUNDS && !w->revokes; i++) work(w->comm[rank], rank, stream);
    while (w->revokes && !r) r = symmBarrier(w->comm[rank], NULL);
    if (w->revokes) T_EQ(r, symmAborted);
    T_OK(symmStreamDestroy(stream));
    T_OK(symmCommDestroy(w->comm[rank])); /* beside the watchdog */
}

static void *revoker(void *arg) {
    watched *w = arg;
    while (atomic_load(&w->looks) < LOOKS * N) usleep(1000);
    usleep(50000);
    T_OK(symmCommRevoke(w->comm[1], 0));
    return NULL;
}

static void watch(int revokes) {
    static watched w;
    pthread_t dogs[2], ends;
    memset(&w, 0, sizeof w);
    w.revokes = revokes;
    w.fd = open("/dev/null", O_WRONLY | O_CLOEXEC);
    T_CHECK(w.fd >= 0);
    T_EXPECT_WARNINGS();
    T_OK(symmCommInitAll(w.comm, N, NULL));
    for (int i = 0; i < 2; i++) T_EQ(pthread_create(&dogs[i], NULL, watchdog, &w), 0);
    if (revokes) T_EQ(pthread_create(&ends, NULL, revoker, &w), 0);
    T_THREADS(N, working_rank, &w);
    if (revokes) pthread_join(ends, NULL);
    for (int i = 0; i < 2; i++) pthread_join(dogs[i], NULL);
    T_CHECK(atomic_load(&w.looks) >= LOOKS);
    close(w.fd);
}

static void a_watchdog_beside_every_call(void) {
    watch(0);
}

static void a_revoke_beside_every_call(void) {
    watch(1);
}

/* Whether its rank 0 is in a barrier: the log of its calls says so. */
static int is_in_barrier(const watched *w) {
    char text[8192];
    FILE *file = tmpfile();
    T_CHECK(file != NULL);
    T_OK(symmCommDump(w->comm[0], fileno(file)));
    const ssize_t got = pread(fileno(file), text, sizeof text - 1, 0);
    fclose(file);
    T_CHECK(got > 0);
    text[got] = 0;
    return strstr(text, "symmBarrier") != NULL;
}

static void *aborter(void *arg) {
    watched *w = arg;
    const int first = atomic_fetch_add(&w->over, 1);
    while (!first && !is_in_barrier(w)) usleep(1000);
    if (!first) atomic_store(&w->stuck, 1);
    while (!atomic_load(&w->stuck)) usleep(100); /* no dump of a communicator that may be gone */
    const symmResult_t r = symmCommAbort(w->comm[0]);
    T_CHECK(!r || r == symmInvalidArgument); /* the other one was first */
    return first ? NULL : (void *)(uintptr_t)r;
}

/* Two threads abort a rank that a third one is stuck in. */
static void aborted_twice(void) {
    static watched w;
    pthread_t t[2], dog;
    memset(&w, 0, sizeof w);
    w.fd = open("/dev/null", O_WRONLY | O_CLOEXEC);
    T_EXPECT_WARNINGS();
    T_OK(symmCommInitAll(w.comm, N, NULL));
    T_EQ(pthread_create(&dog, NULL, watchdog, &w), 0);
    for (int i = 0; i < 2; i++) T_EQ(pthread_create(&t[i], NULL, aborter, &w), 0);
    T_ERR(symmBarrier(w.comm[0], NULL), symmAborted);
    for (int i = 0; i < 2; i++) pthread_join(t[i], NULL);
    for (int r = 1; r < N; r++) T_OK(symmCommDestroy(w.comm[r]));
    pthread_join(dog, NULL);
    close(w.fd);
}

T_MAIN(T(a_revoke_beside_every_call), T(aborted_twice),
       T(a_collective_that_waits_for_its_own_thread),
       T(a_registration_that_waits_for_its_own_thread), T(a_limit_tells_it_in_its_error),
       T(a_late_thread_is_not_taken_for_it), T(a_watchdog_beside_every_call))
