/* mp_pmpi_threads.c - libsymm-pmpi.so under mpirun: threads of a program, on communicators of their
 * own (MPI_THREAD_MULTIPLE) or one after the other (MPI_THREAD_SERIALIZED). A program of others, as
 * mp_pmpi.c. Rank 0 prints the TAP. T_LEVEL: the level of threads that MPI is initialised with. */
#include <mpi.h>

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>

#include "t.h"

static int my_rank, ranks;

enum { THREADS = 3, ROUNDS = 300 };
static MPI_Comm each[THREADS];

static void *one_thread(void *arg) {
    const int t = (int)(intptr_t)arg;
    for (int i = 0; i < ROUNDS; i++) {
        int v[4] = {t, i, my_rank, 1}, sum[4];
        MPI_Allreduce(v, sum, 4, MPI_INT, MPI_SUM, each[t]);
        T_EQ(sum[3], ranks), T_EQ(sum[0], t * ranks), T_EQ(sum[1], i * ranks);
        if (i % 7 == t) MPI_Barrier(each[t]);
    }
    return NULL;
}
static void threads_on_their_own_communicators(void) {
    pthread_t thread[THREADS];
    int level;
    MPI_Query_thread(&level);
    if (level < MPI_THREAD_MULTIPLE) T_SKIP("needs MPI_THREAD_MULTIPLE");
    for (int t = 0; t < THREADS; t++) MPI_Comm_dup(MPI_COMM_WORLD, &each[t]);
    for (int t = 0; t < THREADS; t++)
        T_EQ(pthread_create(&thread[t], NULL, one_thread, (void *)(intptr_t)t), 0);
    for (int t = 0; t < THREADS; t++) pthread_join(thread[t], NULL);
    for (int t = 0; t < THREADS; t++) MPI_Comm_free(&each[t]);
}

/* MPI_THREAD_SERIALIZED: one after the other, on one communicator. Each opens and uses what another
 * has. */
static pthread_mutex_t turns = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t turned = PTHREAD_COND_INITIALIZER;
static int turn;
static MPI_Comm one_for_all;
static void *in_turn(void *arg) {
    const int t = (int)(intptr_t)arg;
    for (int i = 0; i < ROUNDS / 10; i++) {
        int v[64], sum[64];
        pthread_mutex_lock(&turns);
        while (turn % THREADS != t) pthread_cond_wait(&turned, &turns);
        for (int k = 0; k < 64; k++) v[k] = k * (t + 1) + i;
        MPI_Allreduce(v, sum, 64, MPI_INT, MPI_SUM, one_for_all);
        for (int k = 0; k < 64; k++) T_EQ(sum[k], ranks * v[k]);
        if (i % 4 == t) MPI_Barrier(one_for_all);
        turn++;
        pthread_cond_broadcast(&turned);
        pthread_mutex_unlock(&turns);
    }
    return NULL;
}
static void threads_in_turns(void) {
    pthread_t thread[THREADS];
    int level;
    MPI_Query_thread(&level);
    if (level < MPI_THREAD_SERIALIZED) T_SKIP("needs MPI_THREAD_SERIALIZED");
    MPI_Comm_dup(MPI_COMM_WORLD, &one_for_all);
    for (int t = 0; t < THREADS; t++)
        T_EQ(pthread_create(&thread[t], NULL, in_turn, (void *)(intptr_t)t), 0);
    for (int t = 0; t < THREADS; t++) pthread_join(thread[t], NULL);
    MPI_Comm_free(&one_for_all);
}

static const t_test tests[] = {T(threads_on_their_own_communicators), T(threads_in_turns)};

int main(int argc, char **argv) {
    const char *asked = getenv("T_LEVEL");
    int level;
    setenv("SYMM_PMPI", "all", 0);
    setenv("SYMM_PMPI_AFTER", "0", 0);
    setenv("SYMM_DEBUG", "NONE", 0);
    if (MPI_Init_thread(&argc, &argv, asked ? atoi(asked) : MPI_THREAD_MULTIPLE, &level)) return 1;
    MPI_Comm_rank(MPI_COMM_WORLD, &my_rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    const int rc = t_inline(argc, argv, tests, (int)(sizeof tests / sizeof *tests), my_rank);
    MPI_Finalize();
    return rc == 77 ? 0 : rc;
}
