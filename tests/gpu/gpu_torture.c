/* gpu_torture.c - random calls for T_SECONDS_TORTURE seconds (20) on two ranks, and half of that
 * each on five and eight, which share GPUs. T_SEED repeats a run as far as its calls go. Ranks
 * are threads. */
#include "gpu_storm.h"

static struct {
    double seconds;
    int stop;
} turn; /* rank 0 writes stop between two meetings */

static void meet(void *arg) {
    gk_meet(arg);
}

static int go_on(const gc_rank *g, double seconds) {
    gc_meet(g);
    if (g->rank == 0) turn.stop = seconds > turn.seconds;
    gc_meet(g);
    return !turn.stop;
}

static void torture_rank(int rank, int n, void *arg) {
    gk_job *j = arg;
    const gc_rank g = {rank, n, j->devices, j->seed, meet, j};
    gs_run(&g, j->comms[rank], go_on);
}

static void torture(int n, int part) {
    gk_job j = {.n = n, .devices = gk_begin(), .seed = ck_seed()};
    gc_env_none();
    fprintf(stderr, "T_SEED=%#llx\n", (unsigned long long)j.seed);
    turn.seconds = (double)gk_number("T_SECONDS_TORTURE", 20) / part;
    gk_run(&j, torture_rank);
    gc_settle();
}

static void two_ranks(void) {
    torture(2, 1);
}
static void five_ranks(void) {
    torture(5, 2);
}
static void eight_ranks(void) {
    torture(8, 2);
}

T_MAIN(T_TIMEOUT(two_ranks, 100), T_TIMEOUT(five_ranks, 80), T_TIMEOUT(eight_ranks, 80))
