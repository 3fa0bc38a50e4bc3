/* mp_across_mover.c - the mover over MPI by itself (net_mpi.c): when it finds what has come, and
 * what it gives up. */
#include <mpi.h>

#include <sched.h>
#include <stdatomic.h>

#include "mpi_across.h"
#include "transport/mpi/net_mpi.h"

/* A word in memory that all ranks of this machine have. MPI is not entered to read it. */
static _Atomic int *shared_word(MPI_Win *win) {
    MPI_Aint bytes;
    int unit;
    void *at;
    MPI_Win_allocate_shared(rank ? 0 : 64, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &at, win);
    MPI_Win_shared_query(*win, 0, &bytes, &unit, &at);
    if (rank == 0) atomic_store((_Atomic int *)at, 0);
    MPI_Barrier(MPI_COMM_WORLD);
    return at;
}

/* A message that has come is found by one test of the mover: who finds nothing gives the core away.
 * One that is not what was expected is found, however long another one does not come. */
static void one_test_finds_what_has_come(void) {
    enum { TESTS = 8 };
    same_seed();
    if (ranks < 2) T_SKIP("it takes two ranks to meet");
    if (getenv("T_HOSTS")) T_SKIP("the ranks share no memory");
    T_EXPECT_WARNINGS();
    symm_net_end other = {.rank = 1 - rank, .way = SYMM_NET_CALLS, .mark = 5};
    symm_net *n;
    MPI_Win win;
    int left = 1, peer = -1, x = 7, y = -1;
    symmResult_t r = symmSuccess;
    T_OK(symm_net_mpi_open(&(MPI_Comm){MPI_COMM_WORLD}, &n));
    _Atomic int *word = shared_word(&win);
    if (rank == 0) T_OK(n->ops->receive(n, other, &y, 4));
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 1) T_OK(n->ops->send(n, other, &x, 4)), atomic_store(word, 1);
    while (!atomic_load(word)) sched_yield();
    if (rank < 2) T_OK(n->ops->test(n, &left, &peer));
    if (rank < 2) T_EQ(left, 0);
    if (rank == 0) T_EQ(y, x);
    if (rank == 0) T_OK(n->ops->receive(n, other, &y, 4)); /* which is never sent */
    other.way = SYMM_NET_MESSAGES;
    if (rank == 0) T_OK(n->ops->receive(n, other, &y, 4));
    other.mark++;
    if (rank == 1) T_OK(n->ops->send(n, other, &x, 4));
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 0; i < TESTS && !r && rank == 0; i++) r = n->ops->test(n, &left, &peer);
    T_EQ(r, rank ? symmSuccess : symmMismatch);
    n->ops->cancel(n);
    n->ops->close(n, NULL);
    MPI_Win_free(&win);
}

static int tested;
int MPI_Testsome(int n, MPI_Request *all, int *some, int *which, MPI_Status *status) {
    tested++;
    return PMPI_Testsome(n, all, some, which, status);
}

/* With GPUs a thread that may not be in MPI ends communicators, too: what is done is left alone. */
static void nothing_to_cancel(void) {
    same_seed();
    if (ranks < 2) T_SKIP("it takes two ranks to meet");
    const symm_net_end other = {.rank = 1 - rank, .way = SYMM_NET_CALLS};
    symm_net *n;
    int left = 1, peer, x = rank, y = -1;
    T_OK(symm_net_mpi_open(&(MPI_Comm){MPI_COMM_WORLD}, &n));
    if (rank < 2) T_OK(n->ops->receive(n, other, &y, 4)), T_OK(n->ops->send(n, other, &x, 4));
    while (left) T_OK(n->ops->test(n, &left, &peer));
    tested = 0;
    n->ops->cancel(n);
    T_EQ(tested, 0);
    n->ops->close(n, NULL);
}

int main(int argc, char **argv) {
    static const t_test tests[] = {T(one_test_finds_what_has_come), T(nothing_to_cancel)};
    int level;
    return run_tests(argc, argv, MPI_THREAD_SINGLE, &level, tests,
                     (int)(sizeof tests / sizeof *tests));
}
