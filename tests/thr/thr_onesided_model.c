/* thr_onesided_model.c - the model test of one-sided calls (onesided_model.h): random programs of
 * puts, gets, signals, waits, counts and fences over 1 to 8 thread ranks, on the NULL stream and on
 * others, in groups, captured and replayed. Each rank is a thread; no lock. */
#include <stdio.h>

#include "onesided_model.h"

typedef struct {
    symmComm_t comms[OM_MOST];
    uint64_t seed;
    int programs;
} job;

static void run_rank(int me, int n, void *arg) {
    const job *j = arg;
    om_program *p = malloc(sizeof *p);
    om_rank r;
    T_CHECK(p != NULL);
    om_open(&r, j->comms[me], me, n);
    for (int k = 0; k < j->programs; k++) {
        const uint64_t seed = ck_hash(j->seed, (uint64_t)k, 6);
        om_draw(p, seed, n);
        om_run(&r, p, seed);
    }
    om_close(&r);
    free(p);
}

static void run_job(uint64_t seed, int i, int programs) {
    job j = {.seed = ck_hash(seed, (uint64_t)i, 5), .programs = programs};
    const int n = 1 + (int)(j.seed % OM_MOST);
    T_OK(symmCommInitAll(j.comms, n, NULL));
    T_THREADS(n, run_rank, &j);
    for (int r = 0; r < n; r++) T_OK(symmCommDestroy(j.comms[r]));
}

/* Ten thousand programs; fewer where each takes longer. */
static void random_programs(void) {
    const uint64_t seed = ck_seed();
    const int jobs = T_TSAN || T_ASAN ? 8 : 200, each = T_TSAN || T_ASAN ? 10 : 50;
    printf("# T_SEED=%llu, %d programs\n", (unsigned long long)seed, jobs * each);
    fflush(stdout);
    for (int i = 0; i < jobs; i++) run_job(seed, i, each);
}

T_MAIN(T_TIMEOUT(random_programs, 1500))
