/* gpu_matrix.c - the collectives on GPUs with ranks as threads: a sample over types, reductions,
 * counts, places, alignments, kernels, CTAs, threads and scratch for 1 to 8 ranks, eager and
 * replayed; the bits of every type and reduction; memory that cannot be registered. T_SEED
 * repeats a sample, GPU_CASES=n shortens it, T_FULL=1 enlarges it. */
#include "gpu_cases.h"
#include "gpu_chain.h"

static int forced[symmNumColls]; /* by the environment of the communicator that runs */

static void matrix_rank(int rank, int n, void *arg) {
    gk_job *j = arg;
    const gc_rank g = gc_thread(j, rank);
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
    const gc_rank g = gc_thread(j, rank);
    (void)n;
    gc_all_bits(&g, j->comms[rank]);
}

static void bits(int from, int to) {
    static const int ranks[] = {1, 2, 3, 4, 5, 8};
    gk_job j = {.devices = gk_begin(), .seed = ck_seed()};
    gc_env_none();
    setenv("SYMM_SCRATCH", "112M", 1); /* every kernel has room for the message */
    for (int i = from; i < to; i++) {
        j.n = ranks[i];
        gk_run(&j, bits_rank);
    }
    gc_env_none();
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
    gk_meet(j);
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

/* ---- the wrap of epochs ---- */

/* From the next call on, while nothing runs; on all ranks. */
static void set_epoch(symmComm_t comm, int rank, uint32_t epoch, cu_stream stream) {
    const symm_comm *c = symm_handle_peek(SYMM_KIND_COMM, comm);
    const uintptr_t ctl = (uintptr_t)(c->base + (uint64_t)rank * c->stride);
    CU(cuMemsetD32Async(ctl + offsetof(symm_gpu_ctl, epoch), epoch, SYMM_GPU_MAX_CTAS, stream));
}
static uint32_t get_epoch(symmComm_t comm, int rank, cu_stream stream) {
    const symm_comm *c = symm_handle_peek(SYMM_KIND_COMM, comm);
    uint32_t epoch;
    gk_get(comm, stream, &epoch, (void *)(uintptr_t)(c->base + (uint64_t)rank * c->stride),
           sizeof epoch);
    return epoch;
}

/* A call by a kernel drawn from h, a reduction of the chain or a gather of it. */
static void any_call(gk_chain *c, symmComm_t comm, int n, uint64_t h, char *all, cu_stream stream) {
    int rows[SYMM_KERNEL_COUNT];
    const symmColl_t coll = h % 3 == 2 ? symmCollAllGather : symmCollAllReduce;
    const int count = gk_rows(coll, n, rows);
    uint64_t words, at = gk_chain_range(c, h, &words);
    gk_force(comm, coll, rows[(h >> 52) % (unsigned)count], 0, 0);
    if (coll == symmCollAllReduce) {
        gk_chain_call(c, at, words, stream);
        return;
    }
    T_OK(symmAllGather(c->dev + at * c->es, all, words, c->type, comm, gk_stream(stream)));
    for (int p = 0; p < n; p++)
        gk_chain_same(c, all + (uint64_t)p * words * c->es, at, words, 0, stream, "a gather");
}

static void jump(gk_job *j, symmComm_t comm, int rank, uint32_t epoch, cu_stream stream) {
    gk_wait(comm, stream);
    gk_meet(j);
    set_epoch(comm, rank, epoch, stream);
    gk_wait(comm, stream);
    gk_meet(j);
}

/* What the calls before have left in scratch is old, whatever the new epochs look like beside it;
 * but the epochs behind the wrap must not be those of calls before, which in truth are four
 * thousand million calls ago. */
static void wrap_rank(int rank, int n, void *arg) {
    enum { WORDS = 60000, BEFORE = 40, CALLS = 64 };
    gk_job *j = arg;
    symmComm_t comm = j->comms[rank];
    char *buf, *all;
    T_OK(symmSetDevice(rank % j->devices));
    cu_stream stream = gk_new_stream();
    T_OK(symmMemAlloc((void **)&buf, WORDS * 4));
    T_OK(symmMemAlloc((void **)&all, (size_t)n * WORDS * 4));
    gk_chain c = gk_chain_new(comm, rank, n, symmUint32, buf, WORDS, stream);
    gk_meet(j);
    for (int i = 0; i < BEFORE + CALLS; i++) {
        if (i == 0) jump(j, comm, rank, 0x10000000, stream);
        if (i == BEFORE) jump(j, comm, rank, 0xfffffff0u, stream);
        any_call(&c, comm, n, ck_hash(j->seed, (uint64_t)i, 3), all, stream);
    }
    gk_chain_check(&c, stream);
    T_EQ(get_epoch(comm, rank, stream), 0xfffffff0u + CALLS + 2u); /* 0 and 1 are passed over */
    gk_meet(j);
    gk_chain_free(&c);
    T_OK(symmCommDestroy(comm));
    T_OK(symmMemFree(buf));
    T_OK(symmMemFree(all));
    CU(cuStreamDestroy(stream));
}

static void epochs_wrap(void) {
    static const int ranks[] = {2, 3, 4, 8};
    const int devices = gk_begin();
    gc_env_none();
    for (int i = 0; i < 4; i++) {
        gk_job j = {.n = ranks[i], .devices = devices, .seed = ck_seed()};
        gk_run(&j, wrap_rank);
    }
}

T_MAIN(T_TIMEOUT(ranks_1, 60), T_TIMEOUT(ranks_2, 90), T_TIMEOUT(ranks_3, 90),
       T_TIMEOUT(ranks_4, 90), T_TIMEOUT(ranks_5, 90), T_TIMEOUT(ranks_8, 120),
       T_TIMEOUT(bits_are_the_hosts_1_2_3, 90), T_TIMEOUT(bits_are_the_hosts_4_5_8, 90),
       T(plain_memory_is_refused_by_name_and_works), T(barrier_holds_all), T(epochs_wrap))
