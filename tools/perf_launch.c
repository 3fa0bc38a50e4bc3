/* perf_launch.c - how a tool's ranks come to be: this process is one of mpirun's ranks, or holds
 * all of them as threads. Main thread; no lock. */
#include <stdlib.h>

#include "perf.h"

const char *perf_tool = "symm-perf";

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

static int run_mpi(const perf_job *job, int *argc, char ***argv) {
    perf_world w;
    perf_mpi_open(argc, argv, &w);
    /* A single process: its threads are the ranks. */
    const int alone = !job->speaks && job->threads && w.nranks == 1;
    const int code = alone ? job->all(job->arg) : job->rank(&w, job->arg);
    perf_mpi_close();
    return code;
}
#endif

int perf_launch(const perf_job *job, int *argc, char ***argv) {
#ifdef SYMM_HAVE_MPI
    const int processes = job->gpus > 1 ? launched() : several(); /* how many, MPI will tell */
#else
    const int processes = 0;
    (void)argc, (void)argv;
#endif
    if (!job->speaks && job->threads && !processes) return job->all(job->arg);
#ifdef SYMM_HAVE_MPI
    if (launched() || !job->speaks) return run_mpi(job, argc, argv);
#endif
    return perf_world_threads(1, job->rank, job->arg);
}
