/* gpu_p2p.c - sends and receives on GPUs, ranks are threads: random schedules among 1 to 8 ranks
 * (gpu_messages.h); sends that end without their receivers; a thousand calls in a group; ranks that
 * differ, abort, leave or never come; how long messages take. T_SEED repeats a run, GPU_CASES=n
 * shortens it, T_FULL=1 enlarges it. */
#include "gpu_messages.h"

static void run(int n, t_rank_fn fn) {
    gk_job j = {.n = n, .devices = gk_begin(), .seed = ck_seed()};
    j.cases = gk_number("GPU_CASES", ck_full() ? 400 : gk_number("GPU_FAKE", 0) ? 12 : 40);
    fprintf(stderr, "T_SEED=%#llx\n", (unsigned long long)j.seed);
    gk_run(&j, fn);
    gc_settle();
    T_EQ(SYMM_STAT_GET(windows), 0);
    T_EQ(SYMM_STAT_GET(comms), 0);
}

/* ---- schedules ------------------------------------------------------------------------------- */

static void schedules_rank(int rank, int n, void *arg) {
    gk_job *j = arg;
    const gc_rank g = gc_thread(j, rank);
    (void)n;
    gm_schedules(&g, j->comms[rank], j->cases);
}

static void schedules(const char *scratch, const char *ctas, const char *threads, int n) {
    gc_env_none();
    if (scratch) setenv("SYMM_SCRATCH", scratch, 1);
    if (ctas) setenv("SYMM_CTAS", ctas, 1);
    if (threads) setenv("SYMM_THREADS", threads, 1);
    run(n, schedules_rank);
    gc_env_none();
}
static void schedules_1(void) {
    schedules(NULL, NULL, NULL, 1);
}
static void schedules_2(void) {
    schedules(NULL, NULL, NULL, 2);
    schedules("1M", "1", "32", 2);
}
static void schedules_3_4(void) {
    schedules("4M", NULL, NULL, 3);
    schedules(NULL, "3", "64", 4);
}
static void schedules_5_8(void) {
    schedules("16M", NULL, NULL, 5);
    schedules(NULL, NULL, NULL, 8);
}

/* ---- what a receiver has not received -------------------------------------------------------- */

enum { ROOM = 1 << 20 };

/* Rank 0 sends what the room of a pair holds, and waits for its stream, before rank 1 receives. */
static void alone_rank(int rank, int n, void *arg) {
    static const uint64_t bytes[] = {0, 40, 8192, 65536, ROOM};
    gk_job *j = arg;
    symmComm_t comm = j->comms[rank];
    (void)n;
    T_OK(symmSetDevice(rank % j->devices));
    cu_stream s = gk_new_stream();
    char *device = gk_plain(ROOM + 2 * PK_GUARD), *host = gk_pinned(ROOM + 2 * PK_GUARD);
    gk_meet(j);
    for (unsigned i = 0; i < sizeof bytes / sizeof *bytes; i++) {
        if (rank == 0) {
            pk_fill(host, bytes[i], 0, 1, i);
            gk_put(s, device, host, bytes[i]);
            pk_send(comm, device, bytes[i], 1, gk_stream(s));
            gk_wait(comm, s);
        }
        gk_meet(j);
        if (rank == 1) {
            gk_fill(s, device, bytes[i] + 2 * PK_GUARD, PK_EMPTY);
            pk_recv(comm, device + PK_GUARD, bytes[i], 0, gk_stream(s));
            gk_get(comm, s, host, device, bytes[i] + 2 * PK_GUARD);
            pk_received(host + PK_GUARD, bytes[i], 0, 1, i);
        }
        gk_meet(j);
    }
    T_OK(symmCommDestroy(comm));
    gk_free_plain(device);
    gk_free_pinned(host);
    CU(cuStreamDestroy(s));
}
static void sends_end_without_their_receivers(void) {
    gc_env_none();
    run(2, alone_rank);
}

/* ---- many calls ------------------------------------------------------------------------------ */

enum { MANY = 1000, EACH = 3000 };

/* Every rank sends to the next one and receives from the one before, a thousand times in a group.
 * Twice eager, twice from a graph. */
static void many_calls(symmComm_t comm, int rank, int n, char *from, char *to, symmStream_t s) {
    T_OK(symmGroupStart());
    for (int i = 0; i < MANY / 2; i++)
        pk_send(comm, from + (size_t)i * EACH, (uint64_t)i * 6 % EACH, (rank + 1) % n, s);
    for (int i = 0; i < MANY / 2; i++)
        pk_recv(comm, to + (size_t)i * EACH, (uint64_t)i * 6 % EACH, (rank + n - 1) % n, s);
    T_OK(symmGroupEnd());
}

static void many_rank(int rank, int n, void *arg) {
    gk_job *j = arg;
    symmComm_t comm = j->comms[rank];
    const uint64_t all = (uint64_t)MANY / 2 * EACH;
    T_OK(symmSetDevice(rank % j->devices));
    cu_stream s = gk_new_stream();
    char *from = gk_plain(all), *to = gk_plain(all), *host = gk_pinned(all);
    const int before = (rank + n - 1) % n;
    for (int i = 0; i < MANY / 2; i++) pk_fill(host + (size_t)i * EACH, EACH, rank, 0, (uint64_t)i);
    gk_put(s, from, host, all);
    gk_wait(comm, s);
    gk_capture(s, SYMM_CUDA_CAPTURE_MODE_THREAD_LOCAL);
    many_calls(comm, rank, n, from, to, gk_stream(s));
    gk_graph graph = gk_captured(s);
    gk_meet(j);
    for (int round = 0; round < 4; round++) {
        gk_fill(s, to, all, PK_EMPTY);
        if (round % 2)
            CU(cuGraphLaunch(graph.exec, s));
        else
            many_calls(comm, rank, n, from, to, gk_stream(s));
        gk_get(comm, s, host, to, all);
        for (int i = 0; i < MANY / 2; i++) {
            const uint64_t bytes = (uint64_t)i * 6 % EACH;
            pk_check(host + (size_t)i * EACH, bytes, before, 0, (uint64_t)i);
            T_EQ(host[(size_t)i * EACH + bytes], PK_EMPTY);
        }
    }
    gk_meet(j);
    gk_drop(&graph);
    T_OK(symmCommDestroy(comm));
    gk_meet(j);
    gk_free_plain(from);
    gk_free_plain(to);
    gk_free_pinned(host);
    CU(cuStreamDestroy(s));
}
static void a_thousand_calls_in_a_group(void) {
    gc_env_none();
    run(3, many_rank);
}

/* ---- ranks that differ, or do not come ------------------------------------------------------- */

enum { DIFFERS, ABORTS, NEVER, ITSELF, FAULTS };
static const symmResult_t codes[FAULTS] = {symmMismatch, symmAborted, symmTimeout,
                                           symmInvalidUsage};

static void fault_rank(int rank, int n, void *arg) {
    gk_job *j = arg;
    symmComm_t comm = j->comms[rank];
    symmResult_t code = symmSuccess;
    (void)n;
    T_OK(symmSetDevice(rank % j->devices));
    cu_stream s = gk_new_stream();
    char *device = gk_plain(4 << 20);
    gk_fill(s, device, 4 << 20, PK_EMPTY);
    gk_wait(NULL, s);
    gk_meet(j);
    if (rank == 1 && j->how != ITSELF)
        pk_recv(comm, device, j->how == DIFFERS ? 2999999 : 3 << 20, 0, gk_stream(s));
    if (rank == 0 && j->how == DIFFERS) pk_send(comm, device, 3 << 20, 1, gk_stream(s));
    if (rank == 0 && j->how == ITSELF) pk_send(comm, device, 3 << 20, 0, gk_stream(s));
    if (rank == 0 && j->how == ABORTS) {
        usleep(20000); /* the other one waits by then */
        T_OK(symmCommRevoke(comm, 0));
    }
    gk_wait_code(NULL, s);
    while (!code) T_OK(symmCommGetAsyncError(comm, &code));
    T_EQ(code, codes[j->how]);
    if (j->how == DIFFERS)
        T_MSG(symmGetLastError(comm), "rank 0 sends 3145728 uint8, rank 1 receives 2999999 uint8");
    if (j->how == ITSELF)
        T_MSG(symmGetLastError(comm), "a message of rank 0 to itself has no other");
    if (j->how == NEVER && rank == 1) {
        T_MSG(symmGetLastError(comm), "rank 0 did not come");
        T_MSG(symmGetLastError(comm), "(rank 1 waits in symmRecv of 3145728 uint8 from rank 0)");
    }
    gk_meet(j);
    T_OK(symmCommDestroy(comm));
    gk_meet(j);
    gk_free_plain(device);
    CU(cuStreamDestroy(s));
}
static void ranks_that_differ_abort_or_never_come(void) {
    T_EXPECT_WARNINGS();
    gc_env_none();
    for (int how = 0; how < FAULTS; how++) {
        gk_job j = {.n = 2, .devices = gk_begin(), .how = how};
        setenv("SYMM_TIMEOUT", how == NEVER ? "500" : "15000", 1);
        gk_run(&j, fault_rank);
        gc_settle();
    }
    unsetenv("SYMM_TIMEOUT");
}

/* ---- figures --------------------------------------------------------------------------------- */

enum { LARGE = 64 << 20, ROUNDS = 20 };

/* Both ranks send and receive at once, from a graph of ROUNDS groups. */
static void exchange_many(symmComm_t comm, int rank, char *p, uint64_t bytes, symmStream_t s) {
    for (int i = 0; i < ROUNDS; i++) {
        T_OK(symmGroupStart());
        pk_send(comm, p, bytes, !rank, s);
        pk_recv(comm, p + LARGE, bytes, !rank, s);
        T_OK(symmGroupEnd());
    }
}

static double time_exchange(gk_job *j, symmComm_t comm, int rank, char *p, uint64_t bytes,
                            cu_stream s) {
    double best = 1e30;
    gk_meet(j);
    gk_capture(s, SYMM_CUDA_CAPTURE_MODE_THREAD_LOCAL);
    exchange_many(comm, rank, p, bytes, gk_stream(s));
    gk_graph graph = gk_captured(s);
    for (int i = 0; i < 5; i++) {
        gk_meet(j);
        const uint64_t since = symm_now_ns();
        CU(cuGraphLaunch(graph.exec, s));
        while (symm_cu.cuStreamQuery(s) == SYMM_CUDA_ERROR_NOT_READY)
            if (gk_ms_since(since) > GK_STUCK_MS) break;
        const double us = (double)(symm_now_ns() - since) / 1000 / ROUNDS;
        if (us < best) best = us;
        gk_wait(comm, s);
    }
    gk_meet(j);
    gk_drop(&graph);
    return best;
}

static void figures_rank(int rank, int n, void *arg) {
    static const uint64_t bytes[] = {8, 1024, 8192, 65536, 1 << 20, 4 << 20, LARGE};
    gk_job *j = arg;
    symmComm_t comm = j->comms[rank];
    symmWindow_t win;
    char *p;
    (void)n;
    T_OK(symmSetDevice(rank % j->devices));
    cu_stream s = gk_new_stream();
    T_OK(symmMemAlloc((void **)&p, 2ull * LARGE));
    for (int windows = 0; windows < 2; windows++) {
        if (windows) T_OK(symmWindowRegister(comm, p, 2ull * LARGE, &win, SYMM_WIN_DEFAULT));
        for (unsigned i = 0; i < sizeof bytes / sizeof *bytes; i++) {
            const double us = time_exchange(j, comm, rank, p, bytes[i], s);
            if (rank == 0)
                gk_figure("exchange of %8llu bytes, %s: %9.2f us, %7.2f GB/s each way",
                          (unsigned long long)bytes[i], windows ? "windows" : "no window", us,
                          (double)bytes[i] / us / 1000);
        }
    }
    gk_meet(j);
    T_OK(symmCommDestroy(comm));
    gk_meet(j);
    T_OK(symmMemFree(p));
    CU(cuStreamDestroy(s));
}
static void how_long_messages_take(void) {
    if (gk_number("GPU_FAKE", 0)) T_SKIP("figures need a GPU");
    gc_env_none();
    run(2, figures_rank);
}

T_MAIN(T_TIMEOUT(schedules_1, 120), T_TIMEOUT(schedules_2, 180), T_TIMEOUT(schedules_3_4, 240),
       T_TIMEOUT(schedules_5_8, 300), T(sends_end_without_their_receivers),
       T_TIMEOUT(a_thousand_calls_in_a_group, 120),
       T_TIMEOUT(ranks_that_differ_abort_or_never_come, 120),
       T_TIMEOUT(how_long_messages_take, 120))
