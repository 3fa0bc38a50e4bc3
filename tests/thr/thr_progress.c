/* thr_progress.c - symm_host.h: what a thread does while its calls wait, and the backend that a
 * program settles. Ranks are threads; no lock. */
#include <stdatomic.h>
#include <unistd.h>

#include "base/log.h"
#include "base/param.h"
#include "coll_kit.h"
#include "symm_host.h"
#include "t.h"

enum { RANKS = 3, LATE_US = 30000, COUNT = 5000, ENOUGH = 11, MOST_MS = 20000 };

typedef struct {
    symmComm_t comms[RANKS];
    _Atomic int calls[RANKS]; /* of its progress function, a rank each */
} job;

static void count(void *arg) {
    atomic_fetch_add((_Atomic int *)arg, 1);
}

static void reduce(const job *j, int me, float *data) {
    T_OK(symmAllReduce(data, data, COUNT, symmFloat32, symmSum, j->comms[me], NULL));
}
/* Rank 0 comes when rank 1 has been asked often enough, however busy the machine is. */
static void waiting_rank(int me, int n, void *arg) {
    job *j = arg;
    static float data[RANKS][COUNT];
    (void)n;
    if (me != 2) T_OK(symmSetProgress(count, &j->calls[me]));
    for (int ms = 0; me == 0 && j->calls[1] < ENOUGH && ms < MOST_MS; ms++) usleep(1000);
    reduce(j, me, data[me]);
    const int asked = j->calls[me];
    T_CHECKF(me != 1 || asked >= ENOUGH, "rank 1 was asked %d times", asked);
    T_OK(symmSetProgress(NULL, NULL));
    if (me == 0) usleep(LATE_US);
    reduce(j, me, data[me]);
    T_EQ(j->calls[me], asked);
}
static void a_thread_is_asked_while_it_waits(void) {
    job j = {.calls = {0}};
    T_OK(symmCommInitAll(j.comms, RANKS, NULL));
    T_THREADS(RANKS, waiting_rank, &j);
    T_EQ(j.calls[2], 0); /* it had set nothing */
    for (int r = 0; r < RANKS; r++) T_OK(symmCommDestroy(j.comms[r]));
}

/* Its own thread makes the last one's calls; others wait in threads of the group. The peer comes to
 * the first one when this thread has been asked again and again behind the last. */
typedef struct {
    job first, last;
    _Atomic int calls;
} jobs;
static void group_rank(int me, int n, void *arg) {
    jobs *j = arg;
    static float data[2][2][COUNT];
    (void)n;
    if (me == 0) {
        reduce(&j->last, 0, data[0][1]);
        const int before = j->calls;
        for (int ms = 0; j->calls < before + ENOUGH && ms < MOST_MS; ms++) usleep(1000);
        T_CHECKF(j->calls >= before + ENOUGH, "asked %d times", j->calls - before);
        reduce(&j->first, 0, data[0][0]);
        return;
    }
    T_OK(symmSetProgress(count, &j->calls));
    T_OK(symmGroupStart());
    reduce(&j->first, 1, data[1][0]);
    reduce(&j->last, 1, data[1][1]);
    T_OK(symmGroupEnd());
    T_OK(symmSetProgress(NULL, NULL));
}
static void a_thread_is_asked_while_its_group_waits(void) {
    jobs j = {.calls = 0};
    T_OK(symmCommInitAll(j.first.comms, 2, NULL));
    T_OK(symmCommInitAll(j.last.comms, 2, NULL));
    T_THREADS(2, group_rank, &j);
    for (int r = 0; r < 2; r++) {
        T_OK(symmCommDestroy(j.first.comms[r]));
        T_OK(symmCommDestroy(j.last.comms[r]));
    }
}

/* Rank 1's call waits for its own one before, on a stream, for which rank 0 has yet to come. */
static void stream_rank(int me, int n, void *arg) {
    job *j = arg;
    static float data[2][COUNT];
    symmStream_t stream;
    (void)n;
    if (me == 0) {
        for (int ms = 0; j->calls[1] < ENOUGH && ms < MOST_MS; ms++) usleep(1000);
        T_CHECKF(j->calls[1] >= ENOUGH, "asked %d times", j->calls[1]);
        for (int i = 0; i < 2; i++) reduce(j, 0, data[0]);
        return;
    }
    T_OK(symmStreamCreate(&stream));
    T_OK(symmAllReduce(data[1], data[1], COUNT, symmFloat32, symmSum, j->comms[1], stream));
    T_OK(symmSetProgress(count, &j->calls[1]));
    reduce(j, 1, data[1]);
    T_OK(symmSetProgress(NULL, NULL));
    T_OK(symmStreamDestroy(stream));
}
static void a_thread_is_asked_while_it_waits_for_a_stream(void) {
    job j = {.calls = {0}};
    T_OK(symmCommInitAll(j.comms, 2, NULL));
    T_THREADS(2, stream_rank, &j);
    for (int r = 0; r < 2; r++) T_OK(symmCommDestroy(j.comms[r]));
}

static void the_backend_of_a_program(void) {
    symm_params p;
    T_OK(symmSetBackend(SYMM_BACKEND_CUDA));
    T_OK(symm_param_load(&p));
    T_EQ(p.backend, SYMM_BACKEND_CUDA);
    setenv("SYMM_BACKEND", "auto", 1);
    T_OK(symmSetBackend(SYMM_BACKEND_HOST)); /* goes before the variable */
    T_OK(symm_param_load(&p));
    T_EQ(p.backend, SYMM_BACKEND_HOST);
    symmComm_t comm;
    T_OK(symmCommInitAll(&comm, 1, NULL));
    T_OK(symmCommDestroy(comm));
}
static void a_backend_that_is_none(void) {
    T_EXPECT_WARNINGS();
    T_EQ(symmSetBackend(3), symmInvalidArgument);
    T_MSG(symmGetLastError(NULL), "symmSetBackend: backend is 3: must be SYMM_BACKEND_AUTO");
    T_EQ(symmSetBackend(-1), symmInvalidArgument);
}

T_MAIN(T(a_thread_is_asked_while_it_waits), T(a_thread_is_asked_while_its_group_waits),
       T(a_thread_is_asked_while_it_waits_for_a_stream), T(the_backend_of_a_program),
       T(a_backend_that_is_none))
