/* mpg_ranks.c - the collectives on GPUs with a process per rank under mpirun, any number of them,
 * on GPU rank % devices: the sample of gpu_cases.h, the bits of every type and reduction, the
 * torture, sends and receives, puts and signals. Seeds and times as in gpu_matrix.c and
 * gpu_torture.c. */
#include "gpu_messages.h"
#include "gpu_puts.h"
#include "gpu_storm.h"
#include "mpg_kit.h"

static gc_rank self(mpg_rank *m) {
    *m = mpg_self();
    if (m->rank == 0) printf("# T_SEED=%#llx\n", (unsigned long long)m->seed);
    return (gc_rank){
        .rank = m->rank, .n = m->n, .devices = m->devices, .seed = m->seed, .meet = mpg_meet};
}

static void matrix(void) {
    mpg_rank m;
    const gc_rank g = self(&m);
    int forced[symmNumColls];
    for (int i = 0; i < gc_envs(g.n); i++) {
        gc_env(i, g.n, g.devices, forced);
        gc_matrix(&g, mpg_comm(&m), i, gk_number("GPU_CASES", ck_full() ? 360 : 24), forced);
    }
    gc_settle();
}

static void bits_are_the_hosts(void) {
    mpg_rank m;
    const gc_rank g = self(&m);
    gc_env_none();
    setenv("SYMM_SCRATCH", "112M", 1); /* every kernel has room for the message */
    gc_all_bits(&g, mpg_comm(&m));
    gc_env_none();
}

static int go_on(const gc_rank *g, double seconds) {
    int more = seconds < gk_number("T_SECONDS_TORTURE", 20) / 2.0;
    MPI_Bcast(&more, 1, MPI_INT, 0, MPI_COMM_WORLD);
    gc_meet(g);
    return more;
}

static void torture(void) {
    mpg_rank m;
    const gc_rank g = self(&m);
    gc_env_none();
    gs_run(&g, mpg_comm(&m), go_on);
    gc_settle();
}

/* Sends and receives: random schedules. */
static void messages(void) {
    mpg_rank m;
    const gc_rank g = self(&m);
    gc_env_none();
    gm_schedules(&g, mpg_comm(&m), gk_number("GPU_CASES", ck_full() ? 400 : 24));
    gc_settle();
}

/* One-sided calls: random programs. */
static void puts_and_signals(void) {
    mpg_rank m;
    const gc_rank g = self(&m);
    gc_env_none();
    if (g.n > OM_MOST) T_SKIP("needs at most %d ranks", OM_MOST);
    gu_programs(&g, mpg_comm(&m), gk_number("GPU_CASES", ck_full() ? 200 : 12));
    gc_settle();
}

T_MAIN_MPI(T_TIMEOUT(matrix, 90), T_TIMEOUT(bits_are_the_hosts, 60), T_TIMEOUT(torture, 80),
           T_TIMEOUT(messages, 90), T_TIMEOUT(puts_and_signals, 90))
