/* thr_p2p_model.c - the model test of sends and receives (p2p_model.h): random schedules over
 * random subsets of thread ranks, in groups and out of them, on the NULL stream and on others,
 * eager, captured and replayed, beside collectives. Every schedule ends, and every rank finds what
 * it must. Each rank is a thread; no lock. */
#include <pthread.h>
#include <stdio.h>

#include "p2p_model.h"

enum { MOST = 6, STEPS = 6, HALF = 12 << 20 };

typedef struct {
    symmComm_t comms[MOST];
    uint64_t seed;
    int schedules;
} job;

static void replay(pm_rank *r, const pm_step *st, symmStream_t s) {
    const pm_streams one = {{s}, 1};
    symmGraph_t graph;
    symmGraphExec_t exec;
    T_OK(symmStreamBeginCapture(s));
    pm_call(r, st, &one);
    T_OK(symmStreamEndCapture(s, &graph));
    T_OK(symmGraphInstantiate(graph, &exec));
    for (int i = 0; i < st->repeats; i++) T_OK(symmGraphLaunch(exec, s));
    T_OK(symmStreamSynchronize(s));
    T_OK(symmGraphExecDestroy(exec));
    T_OK(symmGraphDestroy(graph));
}

/* How a rank makes its calls is its own affair. */
static void run_step(pm_rank *r, const pm_step *st) {
    const uint64_t how = t_draw(&r->rolls, 8);
    const pm_streams one = {{r->streams[how % PM_STREAMS]}, 1};
    symmStream_t s = one.at[0];
    pm_prepare(r, st);
    if (s && how >= 5) {
        replay(r, st, s);
    } else {
        for (int i = 0; i < st->repeats; i++) pm_call(r, st, &one);
        if (s) T_OK(symmStreamSynchronize(s));
    }
    pm_check(r, st);
}

static void run_rank(int me, int n, void *arg) {
    const job *j = arg;
    int32_t sum[2 * PM_SUM];
    pk_world in, out;
    pm_step st;
    pk_open(&in, j->comms[me], me, n, HALF);
    pk_open(&out, j->comms[me], me, n, HALF);
    pm_rank r = {.rank = me,
                 .n = n,
                 .comm = j->comms[me],
                 .half = {{in.heap, in.memory}, {out.heap, out.memory}},
                 .sum = sum,
                 .rolls = ck_hash(j->seed, (uint64_t)me, 77)};
    for (int i = 1; i < PM_STREAMS; i++) T_OK(symmStreamCreate(&r.streams[i]));
    for (int k = 0; k < j->schedules; k++)
        for (int i = 0; i < STEPS; i++) {
            pm_draw(&st, ck_hash(j->seed, (uint64_t)k, (uint64_t)i), n, HALF);
            run_step(&r, &st);
        }
    for (int i = 1; i < PM_STREAMS; i++) T_OK(symmStreamDestroy(r.streams[i]));
    pk_close(&in);
    pk_close(&out);
}

static void run_job(uint64_t seed, int i, int schedules) {
    static const char *const scratch[] = {"112M", "1M", "16M"};
    job j = {.seed = ck_hash(seed, (uint64_t)i, 5), .schedules = schedules};
    const int n = 1 + (int)(j.seed % MOST);
    setenv("SYMM_SCRATCH", scratch[i % 3], 1);
    setenv("SYMM_DIRECT", i % 2 ? "2" : "0", 1);
    T_OK(symmCommInitAll(j.comms, n, NULL));
    T_THREADS(n, run_rank, &j);
    for (int r = 0; r < n; r++) T_OK(symmCommDestroy(j.comms[r]));
}

/* T_FULL=1: ten thousand schedules. */
static void random_schedules(void) {
    const uint64_t seed = ck_seed();
    const int jobs = ck_full() ? 200 : PM_SLOW ? 5 : 16, each = ck_full() ? 50 : 8;
    printf("# T_SEED=%llu, %d schedules\n", (unsigned long long)seed, jobs * each);
    fflush(stdout);
    for (int i = 0; i < jobs; i++) run_job(seed, i, each);
}

T_MAIN(T_TIMEOUT(random_schedules, 1500))
