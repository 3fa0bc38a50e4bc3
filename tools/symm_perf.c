/* symm_perf.c - symm-perf: how fast the collectives are, in nccl-tests' words. Reads the flags,
 * then runs every rank. Main thread; no lock. */
#include <stdlib.h>
#include <string.h>

#include "perf.h"

static int run_rank(perf_world *w, void *arg) {
    return perf_run(w, arg);
}

/* Rank 0 speaks for all, and before any rank leaves: mpirun kills the others when the first one
 * returns non-zero. */
static int refuse(perf_world *w, const char *err) {
    if (w->rank == 0) fprintf(stderr, "symm-perf: %s\nsymm-perf: --help lists the flags\n", err);
    fflush(stderr);
    w->barrier(w);
    return PERF_EXIT_USAGE;
}

static int help(perf_world *w) {
    if (w->rank == 0) perf_args_usage(stdout);
    fflush(stdout);
    w->barrier(w);
    return 0;
}

typedef struct {
    perf_config cfg;
    char err[PERF_ERR];
    int bad;
} request;

static int run_request(perf_world *w, request *q) {
    if (q->bad) return refuse(w, q->err);
    if (q->cfg.help) return help(w);
    if (perf_args_check(&q->cfg, w->nranks, w->mpi != NULL, q->err, sizeof q->err))
        return refuse(w, q->err);
    return run_rank(w, &q->cfg);
}

static int run_alone(perf_world *w, void *arg) {
    return run_request(w, arg);
}

/* Thread ranks share one request: what it says of them is settled before they start. */
static int run_threads(void *arg) {
    request *q = arg;
    if (perf_args_check(&q->cfg, q->cfg.threads, 0, q->err, sizeof q->err)) {
        q->bad = 1;
        return perf_world_threads(1, run_alone, q);
    }
    return perf_world_threads(q->cfg.threads, run_rank, &q->cfg);
}

/* While there is one thread. PERF_NCCL_LIB is ours alone: the library would warn of a variable that
 * it does not know. NVLS, NCCL's use of multicast, is left out unless somebody asks for it: ours
 * does without. */
static void settle_environment(perf_config *cfg) {
    static char path[4096];
    const char *lib = getenv("PERF_NCCL_LIB");
    if (lib && *lib && !cfg->nccl) {
        snprintf(path, sizeof path, "%s", lib);
        cfg->nccl = path;
    }
    unsetenv("PERF_NCCL_LIB");
    if (cfg->vs == PERF_VS_NCCL) setenv("NCCL_NVLS_ENABLE", "0", 0);
}

int main(int argc, char **argv) {
    static request q;
    q.bad = perf_args_parse(argc, argv, &q.cfg, q.err, sizeof q.err);
    q.cfg.argc = argc;
    q.cfg.argv = argv;
    settle_environment(&q.cfg);
#ifndef SYMM_HAVE_MPI
    if (q.cfg.gpus && !q.cfg.threads) q.cfg.threads = 1; /* -g 1: the only rank */
    if (!q.bad && !q.cfg.help && !q.cfg.threads) {
        snprintf(q.err, sizeof q.err,
                 "built without MPI: give --threads N, or install Open MPI and build again");
        q.bad = 1;
    }
#endif
    const perf_job job = {.threads = q.cfg.threads,
                          .gpus = q.cfg.gpus,
                          .speaks = q.bad || q.cfg.help,
                          .rank = run_alone,
                          .all = run_threads,
                          .arg = &q};
    return perf_launch(&job, &argc, &argv);
}
