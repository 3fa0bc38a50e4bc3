/* mp_across_death.c - ranks of a communicator over several domains die, as processes under an
 * mpirun that goes on without them (tests/run.sh, recover=): one of a domain whose other ranks tell
 * of it, and whole domains, as when a host dies. The survivors shrink. One test a run. Nobody
 * enters MPI by itself again behind a death, not even to finalize it. */
#include <mpi.h>

#include <signal.h>
#include <unistd.h>

#include "base/wait.h"
#include "mpi_across.h"
#include "t.h"

static int died;

static int may_die(void) {
    const char *recovers = getenv("OMPI_MCA_orte_enable_recovery");
    same_seed();
    return recovers && !strcmp(recovers, "1") && ranks >= 4 && !died;
}

/* The last `deaths` ranks die while the others wait, who all have `error` with `text` within ms. */
static void last_ranks_die(symmComm_t comm, int deaths, symmResult_t error, const char *text,
                           int ms) {
    const int dead[2] = {ranks - 1, ranks - 2};
    symmComm_t rest = NULL;
    float x = 1, y = 0;
    symmResult_t r = symmSuccess;
    T_EXPECT_WARNINGS();
    T_OK(symmAllReduce(&x, &y, 1, symmFloat32, symmSum, comm, NULL));
    if (rank >= ranks - deaths) kill(getpid(), SIGKILL);
    const uint64_t from = symm_now_ns();
    died = 1;
    while (!r) r = symmAllReduce(&x, &y, 1, symmFloat32, symmSum, comm, NULL);
    T_CHECKF(symm_now_ns() - from < (uint64_t)ms * 1000000u, "heard of the death late");
    T_EQ(r, error);
    T_MSG(symmGetLastError(comm), text);
    T_OK(symmCommGetAsyncError(comm, &r));
    T_EQ(r, error);
    T_OK(symmCommShrink(comm, dead, deaths, &rest, NULL, 0));
    T_OK(symmAllReduce(&x, &y, 1, symmFloat32, symmSum, rest, NULL));
    T_EQ((int)y, ranks - deaths);
    T_OK(symmCommDestroy(rest));
    T_OK(symmCommDestroy(comm));
}

/* Those of its domain see it, and tell the other domains. */
static void a_death_ends_the_calls_of_all(void) {
    if (!may_die()) T_SKIP("needs recovery, and four ranks");
    last_ranks_die(new_comm(2), 1, symmRemoteError, "died", 3000);
}

/* Nobody is left to tell: the others find out at SYMM_TIMEOUT. */
static void last_domain_dies(int size) {
    setenv("SYMM_TIMEOUT", "1000", 1);
    symmComm_t comm = new_comm(size);
    unsetenv("SYMM_TIMEOUT");
    last_ranks_die(comm, size, symmTimeout, "SYMM_TIMEOUT", 5000);
}
static void a_domain_of_one_dies(void) {
    if (!may_die()) T_SKIP("needs recovery, and four ranks");
    last_domain_dies(1);
}
static void a_domain_of_two_dies(void) {
    if (!may_die()) T_SKIP("needs recovery, and four ranks");
    last_domain_dies(2);
}

int main(int argc, char **argv) {
    static const t_test tests[] = {T(a_death_ends_the_calls_of_all), T(a_domain_of_one_dies),
                                   T(a_domain_of_two_dies)};
    int here;
    if (MPI_Init(&argc, &argv) != MPI_SUCCESS) return 1;
    MPI_Comm_rank(MPI_COMM_WORLD, &here);
    int rc = t_inline(argc, argv, tests, (int)(sizeof tests / sizeof *tests), here);
    if (rc == 77) rc = 0;
    fflush(NULL);
    if (died) usleep(here ? 1000000 : 2000000); /* the launcher ends all with the first */
    /* MPI would wait for the dead; and over hosts its launcher, too, which hears of no end. */
    if (died && here == 0 && getenv("T_HOSTS")) MPI_Abort(MPI_COMM_WORLD, rc);
    if (died) _exit(rc);
    MPI_Finalize();
    return rc;
}
