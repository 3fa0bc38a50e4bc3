/* gpu_matrix.c - the collectives on GPUs with ranks as threads: a sample over types, reductions, counts, places, alignments, kernels,
 * CTAs, threads and scratch for 1 to 8 ranks, eager and replayed; the bits of every type and reduction; memory that cannot be
 * registered. T_SEED repeats a sample, GPU_CASES=n shortens it, T_FULL=1 enlarges it. */
#include "gpu_cases.h"

static void meet(void *arg) {
    gk_meet(arg);
}

static gc_rank self(gk_job *j, int rank) {
    return (gc_rank){rank, j->n, j->devices, j->seed, meet, j};
}

static int forced[symmNumColls]; /* by the environment of the communicator that runs */

static void matrix_rank(int rank, int n, void *arg) {
    gk_job *j = arg;
    const gc_rank g = self(j, rank);
    (void)n;
    gc_matrix(&g, j->comms[rank], j->how, j->cases, forced);
}

static void matrix(int n) {
    gk_job j = {.n = n, .devices = gk_begin(), .seed = ck_seed()};
    j.cases = gk_number("GPU_CASES", ck_full() ? 360 : 48);
    fprintf(stderr, "T_SEED=%#llx\n", (unsigned long long)j.seed);
    for (j.how = 0; j.how < gc_envs(n); j.how++) {
        gc_env(j.how, n, j.devices, forced);
        gk_run(&j, matrix_rank);
    }
    gc_settle();
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

/* ---- bits ---- */

static void bits_rank(int rank, int n, void *arg) {
    gk_job *j = arg;
    const gc_rank g = self(j, rank);
    (void)n;
    gc_all_bits(&g, j->comms[rank]);
}

static void bits(int from, int to) {
    static const int ranks[] = {1, 2, 3, 4, 5, 8};
    gk_job j = {.devices = gk_begin(), .seed = ck_seed()};
    gc_env_none();
    for (int i = from; i < to; i++) {
        j.n = ranks[i];
        gk_run(&j, bits_rank);
    }
}

static void bits_are_the_hosts_1_2_3(void) {
    bits(0, 3);
}
static void bits_are_the_hosts_4_5_8(void) {
    bits(3, 6);
}

/* ---- memory that cannot be registered ---- */

static void refused(gk_job *j, int rank, void *mine, void *good, const char *part) {
    symmWindow_t win;
    char address[64];
    void *p = rank ? mine : good; /* one rank's fault is everybody's */
    T_ERR(symmWindowRegister(j->comms[rank], p, 1 << 20, &win, SYMM_WIN_DEFAULT),
          symmInvalidArgument);
    snprintf(address, sizeof address, "buff=%p", mine);
    if (rank == 1) T_MSG(symmGetLastError(NULL), address);
    T_MSG(symmGetLastError(NULL), part);
}

static void plain_rank(int rank, int n, void *arg) {
    gk_job *j = arg;
    T_OK(symmSetDevice(rank % j->devices));
    cu_stream stream = gk_new_stream();
    char *plain = gk_plain(8 << 20), *pinned = gk_pinned(8 << 20);
    void *good;
    T_OK(symmMemAlloc(&good, 1 << 20));
    refused(j, rank, plain, good, "not memory that peers can map");
    refused(j, rank, pinned, good, "not memory that peers can map");
    gk_meet(j);
    for (int i = 0; i < 3; i++)
        gk_reduce(j->comms[rank], rank, n, (int *)(void *)plain, (int *)(void *)pinned,
                  (size_t)1 << (5 + 7 * i), stream);
    gk_meet(j);
    T_OK(symmCommDestroy(j->comms[rank]));
    gk_free_plain(plain);
    gk_free_pinned(pinned);
    T_OK(symmMemFree(good));
    CU(cuStreamDestroy(stream));
}

static void plain_memory_is_refused_by_name_and_works(void) {
    gk_job j = {.n = 2, .devices = gk_begin()};
    T_EXPECT_WARNINGS();
    gc_env_none();
    gk_run(&j, plain_rank);
}

/* ---- the barrier ---- */

/* Nobody's stream passes the barrier before the last has entered it. */
static void note_entry(void *arg) {
    usleep(3000);
    atomic_fetch_add((_Atomic uint64_t *)arg, 1);
}

static void barrier_rank(int rank, int n, void *arg) {
    gk_job *j = arg;
    const int rounds = 50;
    T_OK(symmSetDevice(rank % j->devices));
    cu_stream stream = gk_new_stream();
    for (int i = 0; i < rounds; i++) {
        if (ck_hash(j->seed, (uint64_t)i, 1) % (unsigned)n == (unsigned)rank) usleep(2000);
        CU(cuLaunchHostFunc(stream, note_entry,
                            &j->at_ns)); /* in stream order: before our kernel */
        T_OK(symmBarrier(j->comms[rank], gk_stream(stream)));
        gk_wait(j->comms[rank], stream);
        const uint64_t entered = atomic_load(&j->at_ns);
        T_CHECKF(entered >= (uint64_t)n * (unsigned)(i + 1),
                 "round %d: left the barrier after %llu entries of %d", i,
                 (unsigned long long)entered, n * (i + 1));
    }
    gk_meet(j);
    T_OK(symmCommDestroy(j->comms[rank]));
    CU(cuStreamDestroy(stream));
}

static void barrier_holds_all(void) {
    static const int ranks[] = {2, 5, 8};
    const int devices = gk_begin();
    gc_env_none();
    for (int i = 0; i < 3; i++) {
        gk_job j = {.n = ranks[i], .devices = devices, .seed = ck_seed()};
        gk_run(&j, barrier_rank);
    }
}

T_MAIN(T_TIMEOUT(ranks_1, 60), T_TIMEOUT(ranks_2, 90), T_TIMEOUT(ranks_3, 90),
       T_TIMEOUT(ranks_4, 90), T_TIMEOUT(ranks_5, 90), T_TIMEOUT(ranks_8, 120),
       T_TIMEOUT(bits_are_the_hosts_1_2_3, 90), T_TIMEOUT(bits_are_the_hosts_4_5_8, 90),
       T(plain_memory_is_refused_by_name_and_works), T(barrier_holds_all))
