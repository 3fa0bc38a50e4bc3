/* symm_perf.c - symm-perf: how fast the collectives are, in nccl-tests' words. Reads the flags,
 * then runs every rank: this process is one of mpirun's ranks, or holds all of them as threads.
 * Main thread; no lock. */
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
static int run_threads(request *q) {
    if (perf_args_check(&q->cfg, q->cfg.threads, 0, q->err, sizeof q->err)) {
        q->bad = 1;
        return perf_world_threads(1, run_alone, q);
    }
    return perf_world_threads(q->cfg.threads, run_rank, &q->cfg);
}

#ifdef SYMM_HAVE_MPI
/* Whether somebody started this process as one of several: a complaint or a help text alone needs
 * no MPI_Init. */
static int launched(void) {
    static const char *const names[] = {"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK", "PMI_SIZE",
                                        "SLURM_PROCID"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (getenv(names[i])) return 1;
    return 0;
}

/* With -t one of several is refused, and one alone need not trouble MPI: a shell of a resource
 * manager's is none of several. */
static int several(void) {
    static const char *const names[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *n = getenv(names[i]);
        if (n && atoi(n) > 1) return 1;
    }
    return 0;
}

static int run_mpi(request *q, int *argc, char ***argv) {
    perf_world w;
    perf_mpi_open(argc, argv, &w);
    /* A single process: its threads are the ranks. */
    int alone = !q->bad && !q->cfg.help && q->cfg.threads && w.nranks == 1;
    int code = alone ? run_threads(q) : run_request(&w, q);
    perf_mpi_close();
    return code;
}
#endif

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
#ifdef SYMM_HAVE_MPI
    int processes = q.cfg.gpus > 1 ? launched() : several(); /* how many, MPI will tell */
#else
    int processes = 0;
    if (q.cfg.gpus && !q.cfg.threads) q.cfg.threads = 1; /* -g 1: the only rank */
#endif
    if (!q.bad && !q.cfg.help && q.cfg.threads && !processes) return run_threads(&q);
#ifdef SYMM_HAVE_MPI
    if (launched() || (!q.bad && !q.cfg.help)) return run_mpi(&q, &argc, &argv);
#else
    if (!q.bad && !q.cfg.help) {
        snprintf(q.err, sizeof q.err,
                 "built without MPI: give --threads N, or install Open MPI and build again");
        q.bad = 1;
    }
#endif
    return perf_world_threads(1, run_alone, &q);
}
