/* thr_matrix.c - the collectives with ranks as threads: a sample over types, reductions, counts,
 * places, alignments, kernels, CTAs and scratch, for 1 to 8 ranks; the barrier; and the wrap of the
 * epochs. T_SEED repeats a sample, T_FULL=1 enlarges it. Each rank's thread uses its own
 * communicator. */
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "change_kit.h"

typedef struct {
    symmComm_t comms[SYMM_MAX_RANKS];
    uint64_t seed;
    int env, cases;
    pthread_barrier_t meet;
    _Atomic int entered;
} job;

static void matrix_rank(int rank, int n, void *arg) {
    job *j = arg;
    ck_matrix(j->comms[rank], rank, n, j->seed, j->env, j->cases);
}

static void matrix(int n) {
    job j = {.seed = ck_seed(), .cases = ck_full() ? 240 : CK_SLOW ? 24 : 72};
    for (j.env = 0; j.env < CK_ENVS; j.env++) {
        ck_env(j.env);
        T_OK(symmCommInitAll(j.comms, n, NULL));
        T_THREADS(n, matrix_rank, &j);
    }
}

static void ranks_1(void) {
    matrix(1);
}
static void ranks_2(void) {
    matrix(2);
}
static void ranks_3(void) {
    matrix(3);
}
static void ranks_4(void) {
    matrix(4);
}
static void ranks_5(void) {
    matrix(5);
}
static void ranks_8(void) {
    matrix(8);
}

/* ---- barrier ---- */

/* Nobody leaves before the last has entered; and what was written before is seen behind it, written
 * without any order of its own (ThreadSanitizer judges that too). */
static void barrier_rank(int rank, int n, void *arg) {
    job *j = arg;
    const int rounds = 40;
    int *mine, *theirs;
    symmWindow_t win;
    T_OK(symmMemAlloc((void **)&mine, 4096));
    memset(mine, 0, 4096);
    T_OK(symmWindowRegister(j->comms[rank], mine, 4096, &win, 0));
    for (int i = 0; i < rounds; i++) {
        if (ck_hash(j->seed, (uint64_t)i, 1) % (unsigned)n == (unsigned)rank) usleep(2000);
        for (int p = 0; p < n; p++) {
            T_OK(symmWindowPeerPtr(win, 0, p, (void **)&theirs));
            theirs[rank] = i + 1;
        }
        atomic_fetch_add_explicit(&j->entered, 1, memory_order_relaxed);
        T_OK(symmBarrier(j->comms[rank], NULL));
        T_CHECK(atomic_load_explicit(&j->entered, memory_order_relaxed) >= n * (i + 1));
        for (int p = 0; p < n; p++) T_EQ(mine[p], i + 1);
        T_OK(symmBarrier(j->comms[rank], NULL)); /* all have looked */
    }
    T_OK(symmWindowDeregister(j->comms[rank], win));
    T_OK(symmCommDestroy(j->comms[rank]));
    T_OK(symmMemFree(mine));
}

static void barrier_holds_all(void) {
    static const int ranks[] = {1, 2, 5, 8};
    for (int i = 0; i < 4; i++) {
        job j = {.seed = ck_seed()};
        ck_env(CK_ALGOS - 1);
        T_OK(symmCommInitAll(j.comms, ranks[i], NULL));
        T_THREADS(ranks[i], barrier_rank, &j);
    }
}

/* ---- change ---- */

static void follow_rank(int rank, int n, void *arg) {
    job *j = arg;
    ck_follow(j->comms[rank], rank, n, CK_SLOW ? 6 : 24);
    T_OK(symmCommDestroy(j->comms[rank]));
}

static void calls_follow_windows_and_scalars(void) {
    for (int n = 1; n <= 3; n++) {
        job j = {.env = CK_ALGOS - 1};
        ck_env(j.env);
        T_OK(symmCommInitAll(j.comms, n, NULL));
        T_THREADS(n, follow_rank, &j);
    }
}

/* ---- wrap ---- */

static void wrap_rank(int rank, int n, void *arg) {
    job *j = arg;
    ck_world w;
    ck_open(&w, j->comms[rank], rank, n, j->seed);
    T_OK(symmBarrier(w.comm, NULL));
    pthread_barrier_wait(&j->meet);
    ck_set_epochs(w.comm, 0xfffffff0u);
    pthread_barrier_wait(&j->meet);
    ck_wrap(&w, j->seed);
    ck_close(&w, 1);
}

static void epochs_wrap(void) {
    for (int n = 2; n <= 3; n++)
        for (int env = 0; env < CK_ENVS; env++) {
            job j = {.seed = ck_seed() + (unsigned)env};
            ck_env(env);
            pthread_barrier_init(&j.meet, NULL, (unsigned)n);
            T_OK(symmCommInitAll(j.comms, n, NULL));
            T_THREADS(n, wrap_rank, &j);
            pthread_barrier_destroy(&j.meet);
        }
}

/* In the last epoch before the wrap a word that nobody has written is one epoch ahead. The last
 * rank comes late, so the others wait for such words. */
static void last_epoch_rank(int rank, int n, void *arg) {
    job *j = arg;
    ck_world w;
    const ck_case k = {.coll = symmCollAllReduce,
                       .type = symmInt32,
                       .op = SYMM_OP_SUM,
                       .count = 20000,
                       .seed = j->seed,
                       .registered = CK_BOTH};
    ck_open(&w, j->comms[rank], rank, n, j->seed);
    T_OK(symmBarrier(w.comm, NULL));
    pthread_barrier_wait(&j->meet);
    ck_set_epochs(w.comm, 0xfffffffeu);
    pthread_barrier_wait(&j->meet);
    if (rank == n - 1) usleep(30000);
    ck_run(&w, &k);
    T_EQ(ck_epoch(w.comm), UINT32_MAX);
    ck_close(&w, 1);
}

static void unwritten_words_in_the_last_epoch(void) {
    job j = {.seed = ck_seed()};
    ck_env(CK_ALGOS - 1);
    pthread_barrier_init(&j.meet, NULL, 3);
    T_OK(symmCommInitAll(j.comms, 3, NULL));
    T_THREADS(3, last_epoch_rank, &j);
    pthread_barrier_destroy(&j.meet);
}

T_MAIN(T(ranks_1), T(ranks_2), T(ranks_3), T(ranks_4), T(ranks_5), T(ranks_8), T(barrier_holds_all),
       T(calls_follow_windows_and_scalars), T(epochs_wrap), T(unwritten_words_in_the_last_epoch))
