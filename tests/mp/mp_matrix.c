/* mp_matrix.c - the collectives with ranks as processes under mpirun, any number of them: a sample
 * over types, reductions, counts, places, alignments, kernels, CTAs and scratch; the barrier; and
 * the wrap of the epochs. T_SEED repeats a sample, T_FULL=1 enlarges it. */
#include <mpi.h>

#include <unistd.h>

#include "change_kit.h"
#include "mpi_ranks.h"
#include "symm_mpi.h"

static symmComm_t new_comm(int env) {
    symmComm_t comm;
    ck_env(env);
    T_OK(symmCommInitMPI(&comm, MPI_COMM_WORLD, NULL));
    return comm;
}

/* Many ranks on few cores run in turn, so a case of them takes many times as long. */
static void matrix(void) {
    const int cases = ck_full() && ranks <= 8 ? 720 : 72;
    uint64_t seed = same_seed();
    for (int env = 0; env < CK_ENVS; env++) ck_matrix(new_comm(env), rank, ranks, seed, env, cases);
}

static uint64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t); /* of the machine, so it compares between processes */
    return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

/* Nobody leaves before the last has entered, and what was written before is seen behind it. */
static void barrier_holds_all(void) {
    uint64_t seed = same_seed(), entered[SYMM_MAX_RANKS];
    symmComm_t comm = new_comm(CK_ALGOS - 1);
    symmWindow_t win;
    int *mine, *theirs;
    T_OK(symmMemAlloc((void **)&mine, 4096));
    memset(mine, 0, 4096);
    T_OK(symmWindowRegister(comm, mine, 4096, &win, 0));
    for (int i = 0; i < 40; i++) {
        if (ck_hash(seed, (uint64_t)i, 1) % (unsigned)ranks == (unsigned)rank) usleep(2000);
        for (int p = 0; p < ranks; p++) {
            T_OK(symmWindowPeerPtr(win, 0, p, (void **)&theirs));
            theirs[rank] = i + 1;
        }
        uint64_t in = now();
        T_OK(symmBarrier(comm, NULL));
        uint64_t out = now();
        for (int p = 0; p < ranks; p++) T_EQ(mine[p], i + 1);
        MPI_Allgather(&in, 1, MPI_UINT64_T, entered, 1, MPI_UINT64_T, MPI_COMM_WORLD);
        for (int p = 0; p < ranks; p++) T_CHECK(entered[p] <= out);
    }
    T_OK(symmWindowDeregister(comm, win));
    T_OK(symmCommDestroy(comm));
    T_OK(symmMemFree(mine));
}

static void calls_follow_windows_and_scalars(void) {
    same_seed();
    symmComm_t comm = new_comm(CK_ALGOS - 1);
    ck_follow(comm, rank, ranks, 24);
    T_OK(symmCommDestroy(comm));
}

static void epochs_wrap(void) {
    uint64_t seed = same_seed();
    for (int env = 0; env < CK_ENVS; env++) {
        ck_world w;
        ck_open(&w, new_comm(env), rank, ranks, seed);
        T_OK(symmBarrier(w.comm, NULL));
        MPI_Barrier(MPI_COMM_WORLD);
        ck_set_epochs(w.comm, 0xfffffff0u);
        MPI_Barrier(MPI_COMM_WORLD);
        ck_wrap(&w, seed + (unsigned)env);
        ck_close(&w, 1);
    }
}

T_MAIN_MPI(T(matrix), T(barrier_holds_all), T(calls_follow_windows_and_scalars), T(epochs_wrap))
