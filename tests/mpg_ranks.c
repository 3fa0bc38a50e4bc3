/* mpg_ranks.c - the collectives on GPUs with a process per rank under mpirun, any number of them, on GPU rank % devices: the sample of
 * gpu_cases.h, the bits of every type and reduction, the torture. Seeds and times as in gpu_matrix.c and gpu_torture.c. */
#include <mpi.h>

#include "gpu_storm.h"
#include "symm_mpi.h"

static void meet(void *arg) {
    (void)arg;
    MPI_Barrier(MPI_COMM_WORLD);
}

/* The same seed everywhere; a skip on every rank where one has no GPU. */
static gc_rank self(void) {
    const char *why;
    gc_rank g = {.meet = meet, .seed = ck_seed()};
    int none, any;
    MPI_Comm_rank(MPI_COMM_WORLD, &g.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &g.n);
    MPI_Bcast(&g.seed, 1, MPI_UINT64_T, 0, MPI_COMM_WORLD);
    g.devices = gk_find(&why);
    none = *why != 0;
    MPI_Allreduce(&none, &any, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    if (any) T_SKIP("needs cuda: %s", *why ? why : "another rank has none");
    if (g.rank == 0) printf("# T_SEED=%#llx\n", (unsigned long long)g.seed);
    return g;
}

static symmComm_t new_comm(const gc_rank *g) {
    symmComm_t comm;
    T_OK(symmSetDevice(g->rank % g->devices));
    T_OK(symmCommInitMPI(&comm, MPI_COMM_WORLD, NULL));
    return comm;
}

static void matrix(void) {
    const gc_rank g = self();
    int forced[symmNumColls];
    for (int i = 0; i < gc_envs(g.n); i++) {
        gc_env(i, g.n, g.devices, forced);
        gc_matrix(&g, new_comm(&g), i, gk_number("GPU_CASES", ck_full() ? 360 : 24), forced);
    }
    gc_settle();
}

static void bits_are_the_hosts(void) {
    const gc_rank g = self();
    gc_env_none();
    gc_all_bits(&g, new_comm(&g));
}

static int go_on(const gc_rank *g, double seconds) {
    int more = seconds < gk_number("T_SECONDS_TORTURE", 20) / 2.0;
    MPI_Bcast(&more, 1, MPI_INT, 0, MPI_COMM_WORLD);
    gc_meet(g);
    return more;
}

static void torture(void) {
    const gc_rank g = self();
    gc_env_none();
    gs_run(&g, new_comm(&g), go_on);
    gc_settle();
}

T_MAIN_MPI(T_TIMEOUT(matrix, 90), T_TIMEOUT(bits_are_the_hosts, 60), T_TIMEOUT(torture, 80))
