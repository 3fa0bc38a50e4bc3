/* mp_across_stream.c - streams of communicators over several domains, with ranks as processes under
 * mpirun: workers of streams move messages while the program is in MPI, too. */
#include <mpi.h>

#include "mpi_across.h"
#include "stream_chain.h"

enum { STREAMS = 3 };
static int level;

static void make_streams(symmStream_t *s) {
    s[0] = NULL;
    for (int i = 1; i < STREAMS; i++) T_OK(symmStreamCreate(&s[i]));
}
static void end_streams(symmStream_t *s) {
    for (int i = 1; i < STREAMS; i++) T_OK(symmStreamDestroy(s[i]));
}

static void calls_keep_their_order(void) {
    const uint64_t seed = same_seed();
    if (level < MPI_THREAD_MULTIPLE) T_SKIP("this MPI gives no MPI_THREAD_MULTIPLE");
    for (EACH_SIZE(size)) {
        symmComm_t comm = new_comm(size);
        symmStream_t s[STREAMS];
        make_streams(s);
        for (unsigned i = 0; i < 4; i++) sc_chain(comm, rank, ranks, seed + i, s, STREAMS);
        T_OK(symmCommDestroy(comm));
        end_streams(s);
    }
}

/* Large messages of a stream flow while this thread is in MPI for itself. */
static void the_program_goes_on_in_mpi(void) {
    enum { COUNT = 1 << 20, ROUNDS = 200 };
    same_seed();
    if (level < MPI_THREAD_MULTIPLE) T_SKIP("this MPI gives no MPI_THREAD_MULTIPLE");
    symmComm_t comm = new_comm(getenv("T_HOSTS") ? 0 : 1);
    symmStream_t s[STREAMS];
    uint32_t *x = malloc(COUNT * sizeof *x), want = 1;
    T_CHECK(x != NULL);
    make_streams(s);
    for (unsigned i = 0; i < COUNT; i++) x[i] = i;
    for (int i = 0; i < 6; i++) {
        T_OK(symmAllReduce(x, x, COUNT, symmUint32, symmSum, comm, s[1 + i % 2]));
        want *= (uint32_t)ranks;
    }
    for (int i = 0; i < ROUNDS; i++) {
        int mine = i + rank, sum = 0;
        T_EQ(MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD), MPI_SUCCESS);
        T_EQ(sum, ranks * i + ranks * (ranks - 1) / 2);
    }
    T_OK(symmCommDestroy(comm)); /* waits for the streams */
    for (unsigned i = 0; i < COUNT; i++) T_EQ(x[i], want * i);
    end_streams(s);
    free(x);
}

int main(int argc, char **argv) {
    static const t_test tests[] = {T_TIMEOUT(calls_keep_their_order, 120),
                                   T_TIMEOUT(the_program_goes_on_in_mpi, 120)};
    return run_tests(argc, argv, MPI_THREAD_MULTIPLE, &level, tests,
                     (int)(sizeof tests / sizeof *tests));
}
