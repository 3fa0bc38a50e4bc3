/* gpu_life.c - the whole life of communicators and windows on GPUs, again and again: descriptors,
 * mappings, the library's gauges and device memory stay where they are after the first rounds.
 * Ranks as threads and as processes. How many rounds fitted is a figure. */
#include <dirent.h>

#include "host/gpu/gpu.h"
#include "gpu_chain.h"
#include "gpu_cases.h"
#include "fault_kit.h"

enum { WORDS = 4096, WARM = 20, ROUNDS = 1000, AGAIN = 10000, MAPS_SLACK = 32 };
static const uint64_t memory_slack = 8u << 20;

static int rounds(int many) {
    return gk_number("GPU_FAKE", 0) ? many / 20 + WARM + 1 : many;
}

/* ---- what must stay flat ---- */

typedef struct {
    int fds, maps;
    fk_gauges gauges;
    uint64_t unused[SYMM_CUDA_MAX_DEVICES];
} level;

static int count_fds(void) {
    int n = 0;
    DIR *dir = opendir("/proc/self/fd");
    T_CHECK(dir != NULL);
    while (readdir(dir)) n++;
    closedir(dir);
    return n;
}

static int count_maps(void) {
    int n = 0, c;
    FILE *f = fopen("/proc/self/maps", "re");
    T_CHECK(f != NULL);
    while ((c = fgetc(f)) != EOF) n += c == '\n';
    fclose(f);
    return n;
}

/* devices: of the process's ranks, 0 to devices - 1; 0: the calling thread's alone, for another one
 * would get a context. */
static level take(int devices) {
    level l = {.maps = count_maps(), .fds = count_fds(), .gauges = fk_take()};
    cu_context now = NULL;
    size_t total;
    CU(cuCtxGetCurrent(&now));
    for (int d = 0; d < devices || d == 0; d++) {
        size_t unused = 0;
        if (devices) T_OK(symmSetDevice(d));
        CU(cuMemGetInfo(&unused, &total));
        l.unused[d] = unused;
    }
    CU(cuCtxSetCurrent(now));
    return l;
}

static void flat(const level *before, int devices, const char *what, int times) {
    const level now = take(devices);
    FK_UNCHANGED(&before->gauges);
    T_CHECKF(now.fds <= before->fds, "%s, %d times: %d descriptors, had %d", what, times, now.fds,
             before->fds);
    T_CHECKF(now.maps <= before->maps + MAPS_SLACK, "%s, %d times: %d mappings, had %d", what,
             times, now.maps, before->maps);
    for (int d = 0; d < devices || d == 0; d++)
        T_CHECKF(now.unused[d] + memory_slack >= before->unused[d],
                 "%s, %d times: %llu bytes of GPU %d are free, were %llu", what, times,
                 (unsigned long long)now.unused[d], d, (unsigned long long)before->unused[d]);
}

/* ---- rounds of a whole life ---- */

typedef struct {
    cu_stream stream;
    char *host;
} kept; /* over all rounds, per rank */

static void one_life(gk_job *j, int rank, int n, const kept *k) {
    symmComm_t comm = j->comms[rank];
    symmWindow_t win[2];
    int *buf;
    T_OK(symmMemAlloc((void **)&buf, 4 << 20));
    T_OK(symmWindowRegister(comm, buf, 4 << 20, &win[0], SYMM_WIN_DEFAULT));
    T_OK(symmWindowRegister(comm, (char *)buf + 4096, 1 << 20, &win[1], SYMM_WIN_DEFAULT));
    gk_meet(j);
    gk_reduce(comm, rank, n, buf, (int *)(void *)k->host, WORDS, k->stream);
    gk_reduce(comm, rank, n, buf, (int *)(void *)k->host, 50 * WORDS, k->stream);
    gk_meet(j);
    if (j->how % 3) T_OK(symmWindowDeregister(comm, win[j->how % 2]));
    T_OK(symmCommDestroy(comm));
    T_OK(symmMemFree(buf));
    gk_meet(j);
}

/* Rank 0 makes the communicators, and stops when the time is over. */
static void lives_rank(int rank, int n, void *arg) {
    gk_job *j = arg;
    level before = {.fds = 0};
    const uint64_t since = symm_now_ns();
    T_OK(symmSetDevice(rank % j->devices));
    kept k = {gk_new_stream(), gk_pinned(50 * WORDS * sizeof(int))};
    for (int i = 0; i < j->cases; i++) {
        gk_meet(j);
        if (rank == 0 && i == WARM) before = take(j->devices);
        if (rank == 0 && i > WARM + 10 && gk_ms_since(since) > j->seed * 1000u) j->cases = i + 1;
        j->how = i; /* the same from every rank */
        if (rank == 0) gk_open(j);
        gk_meet(j);
        one_life(j, rank, n, &k);
    }
    if (rank == 0) flat(&before, j->devices, "a life of a communicator", j->cases - WARM);
    if (rank == 0)
        gk_figure("%d ranks created, used and destroyed %d times: %.1f ms each", n, j->cases,
                  (double)gk_ms_since(since) / j->cases);
    gk_meet(j);
    gk_free_pinned(k.host);
    CU(cuStreamDestroy(k.stream));
}

/* As many as fit into the seconds. */
static void lives(int n, int many, uint64_t seconds) {
    gk_job j = {.n = n, .devices = gk_begin(), .cases = rounds(many), .seed = seconds};
    if (j.devices > n) j.devices = n;
    pthread_barrier_init(&j.meet, NULL, (unsigned)n);
    T_THREADS(n, lives_rank, &j);
    pthread_barrier_destroy(&j.meet);
}

static void a_thousand_lives(void) {
    lives(2, ROUNDS, 40);
}
static void lives_of_eight_ranks(void) {
    lives(8, 60, 20);
}

/* ---- graphs, too ---- */

static void graphs_rank(int rank, int n, void *arg) {
    gk_job *j = arg;
    symmComm_t comm = j->comms[rank];
    level before = {.fds = 0};
    void *buf;
    T_OK(symmSetDevice(rank % j->devices));
    cu_stream stream = gk_new_stream();
    T_OK(symmMemAlloc(&buf, WORDS * 4));
    gk_chain c = gk_chain_new(comm, rank, n, symmUint32, buf, WORDS, stream);
    for (int i = 0; i < j->cases; i++) {
        gk_meet(j);
        if (rank == 0 && i == WARM) before = take(j->devices);
        gk_meet(j);
        gk_capture(stream, SYMM_CUDA_CAPTURE_MODE_THREAD_LOCAL);
        for (int k = 0; k < 8; k++) gk_chain_issue(&c, 0, WORDS, stream);
        gk_graph graph = gk_captured(stream);
        gk_meet(j);
        CU(cuGraphLaunch(graph.exec, stream));
        gk_chain_note(&c, 0, WORDS, 8);
        gk_wait(comm, stream);
        gk_meet(j);
        gk_drop(&graph);
    }
    gk_chain_check(&c, stream);
    gk_meet(j);
    if (rank == 0) flat(&before, j->devices, "a graph", j->cases - WARM);
    gk_meet(j);
    gk_chain_free(&c);
    T_OK(symmCommDestroy(comm));
    T_OK(symmMemFree(buf));
    CU(cuStreamDestroy(stream));
}

static void graphs_made_and_destroyed(void) {
    gk_job j = {.n = 2, .devices = gk_begin() > 1 ? 2 : 1, .cases = rounds(500)};
    gk_run(&j, graphs_rank);
    gc_settle();
}

/* ---- registration ---- */

/* The same memory, or pieces of it, again and again; what lies in it is used in between. */
static int register_again(symmComm_t comm, int rank, int n, int times, int *buf, int *host,
                          cu_stream stream) {
    symmWindow_t win;
    const uint64_t since = symm_now_ns();
    int i = 0;
    for (; i < times; i++) {
        const size_t at = (size_t)(i % 5) * 4096;
        T_OK(symmWindowRegister(comm, (char *)buf + at, (2 << 20) - at, &win, SYMM_WIN_DEFAULT));
        if (i % 200 == 0) gk_reduce(comm, rank, n, buf, host, WORDS, stream);
        T_OK(symmWindowDeregister(comm, win));
    }
    if (rank == 0)
        gk_figure("the same memory registered %d times by %d ranks: %.1f us each", i, n,
                  (double)gk_ms_since(since) * 1e3 / i);
    return i;
}

static void again_rank(int rank, int n, void *arg) {
    gk_job *j = arg;
    symmComm_t comm = j->comms[rank];
    level before = {.fds = 0};
    int *buf;
    T_OK(symmSetDevice(rank % j->devices));
    cu_stream stream = gk_new_stream();
    int *host = (int *)(void *)gk_pinned(WORDS * sizeof *host);
    T_OK(symmMemAlloc((void **)&buf, 2 << 20));
    register_again(comm, rank, n, WARM, buf, host, stream);
    gk_meet(j);
    if (rank == 0) before = take(j->devices);
    gk_meet(j);
    register_again(comm, rank, n, rounds(AGAIN), buf, host, stream);
    gk_meet(j);
    if (rank == 0) flat(&before, j->devices, "a registration", AGAIN);
    gk_meet(j);
    T_OK(symmCommDestroy(comm));
    T_OK(symmMemFree(buf));
    gk_free_pinned((char *)host);
    CU(cuStreamDestroy(stream));
}

static void one_buffer_ten_thousand_times(void) {
    gk_job j = {.n = 2, .devices = gk_begin() > 1 ? 2 : 1};
    gk_run(&j, again_rank);
}

/* ---- processes ---- */

/* New memory each time, freed while its mapping is only dropped; then the same memory many
 * times. */
static void process_rank(int rank, int n, void *arg) {
    fk *f = arg;
    const char *why;
    const int devices = gk_find(&why);
    level before = {.fds = 0};
    const int many = f->how;
    T_OK(symmSetDevice(rank % devices));
    gk_bench bench = gk_bench_new();
    for (int i = 0; i < many; i++) {
        symmWindow_t win;
        int *buf;
        if (i == many / 3) before = take(0);
        symmComm_t comm = fk_open(f, rank, n);
        T_OK(symmMemAlloc((void **)&buf, 4 << 20));
        T_OK(symmWindowRegister(comm, buf, 4 << 20, &win, SYMM_WIN_DEFAULT));
        gk_reduce(comm, rank, n, buf, bench.host, 50 * WORDS, bench.stream);
        if (i % 2) T_OK(symmWindowDeregister(comm, win));
        kit_barrier(&f->k, n);
        T_OK(symmCommDestroy(comm));
        T_OK(symmMemFree(buf));
        kit_barrier(&f->k, n);
    }
    kit_sleep(200);
    flat(&before, 0, "a life of a communicator of processes", many - many / 3);
    symmComm_t comm = fk_open(f, rank, n);
    register_again(comm, rank, n, WARM, bench.device, bench.host, bench.stream);
    kit_barrier(&f->k, n);
    before = take(0);
    kit_barrier(&f->k, n);
    register_again(comm, rank, n, rounds(AGAIN), bench.device, bench.host, bench.stream);
    kit_barrier(&f->k, n);
    flat(&before, 0, "a registration by processes", rounds(AGAIN));
    kit_barrier(&f->k, n);
    T_OK(symmCommDestroy(comm));
    gk_bench_free(&bench);
}

static void lives_of_processes(void) {
    gk_begin_forked();
    T_FORK(2, process_rank, fk_new(0, gk_number("GPU_FAKE", 0) ? 12 : 60));
}

T_MAIN(T_TIMEOUT(a_thousand_lives, 80), T_TIMEOUT(lives_of_eight_ranks, 80),
       T_TIMEOUT(graphs_made_and_destroyed, 60), T_TIMEOUT(one_buffer_ten_thousand_times, 100),
       T_TIMEOUT(lives_of_processes, 90))
