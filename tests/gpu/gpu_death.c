/* gpu_death.c - ranks as processes: killed under the others' waiting kernels, revoked, out of
 * device memory, two on one GPU. The survivors' kernels leave in time, the error names the rank,
 * their contexts work, and they go on in a new communicator. Forked ranks that meet over TCP,
 * one process a rank, on GPU rank % devices; CUDA begins in the rank. */
#include "gpu_kit.h"
#include "fault_kit.h"
#include "symm_lane.h"

enum { SOON_MS = 1000, COUNT = 100000, RANKS = 3 };

typedef struct {
    symmComm_t comm;
    gk_bench bench;
    int devices;
} rig;

static int devices_here(void) {
    const char *why;
    const int devices = gk_find(&why);
    T_CHECKF(!*why, "no CUDA in this rank: %s", why);
    return devices;
}

static rig set_up(fk *f, int rank, int n, int device) {
    rig g = {.devices = devices_here()};
    T_OK(symmSetDevice(device >= 0 ? device : rank % g.devices));
    g.bench = gk_bench_new();
    g.comm = fk_open(f, rank, n);
    return g;
}

/* ---- kill -9 ---- */

static void *kill_later(void *arg) {
    fk *f = arg;
    kit_sleep(150); /* the others' kernels wait by now */
    atomic_store(&f->at_ns, symm_now_ns());
    kill(getpid(), SIGKILL);
    return NULL;
}

static symmResult_t issue(const rig *g, symmColl_t coll) {
    int *in = g->bench.device;
    symmStream_t stream = gk_stream(g->bench.stream);
    const size_t each = coll_parts(coll, 2) > 1 ? COUNT / 16 : COUNT; /* up to 16 ranks */
    return symm_test_call(coll, in, in + GK_WORKS, each, symmInt32, symmSum, 0, g->comm, stream);
}

/* The stream ends, every call says who died. Returns how long after the death that was known. */
static uint64_t hear_of_it(fk *f, rig *g) {
    symmResult_t async = symmSuccess;
    char who[16];
    gk_cu(gk_wait_code(g->comm, g->bench.stream), "the stream after a death", __FILE__, __LINE__);
    while (!atomic_load(&f->at_ns)) usleep(100); /* a kernel that ended with the victim's help */
    while (!async && fk_ms_since(atomic_load(&f->at_ns)) < 3 * SOON_MS)
        T_OK(symmCommGetAsyncError(g->comm, &async));
    const uint64_t late = fk_ms_since(atomic_load(&f->at_ns));
    T_EQ(async, symmRemoteError);
    snprintf(who, sizeof who, "rank %d", f->victim);
    T_MSG(symmGetLastError(g->comm), who);
    T_CHECKF(late < SOON_MS, "heard of the death after %d ms", (int)late);
    T_ERR(symmBarrier(g->comm, gk_stream(g->bench.stream)), symmRemoteError);
    T_MSG(symmGetLastError(g->comm), who);
    return late;
}

/* The survivors go on without the dead one. Destroys both communicators. */
static void go_on(fk *f, int rank, int n, rig *g) {
    symmComm_t next;
    gk_context_works(&g->bench);
    kit_barrier(&f->k, n - 1);
    T_OK(symmCommShrink(g->comm, &f->victim, 1, &next, NULL, 0));
    const int mine = rank > f->victim ? rank - 1 : rank;
    gk_works(next, mine, n - 1, &g->bench);
    T_OK(symmCommDestroy(g->comm)); /* the child stands on its own */
    gk_works(next, mine, n - 1, &g->bench);
    kit_barrier(&f->k, n - 1);
    T_OK(symmCommDestroy(next));
    gk_bench_free(&g->bench);
}

/* how: the kernel, times 2; odd: the victim calls too, again and again, until it dies. */
static void killed_rank(int rank, int n, void *arg) {
    fk *f = arg;
    rig g = set_up(f, rank, n, -1);
    const int row = f->how / 2, storm = f->how % 2;
    pthread_t t;
    gk_works(g.comm, rank, n, &g.bench);
    gk_force(g.comm, symm_kernels[row].coll, row, 0, 0);
    kit_barrier(&f->k, n);
    if (rank == f->victim) T_EQ(pthread_create(&t, NULL, kill_later, f), 0);
    while (rank == f->victim && !storm) pause();
    do {
        symmResult_t r = issue(&g, symm_kernels[row].coll);
        if (r) break;
        gk_cu(gk_wait_code(g.comm, g.bench.stream), "the stream of a killed rank's peer", __FILE__,
              __LINE__);
    } while (storm);
    T_CHECK(rank != f->victim);
    const uint64_t late = hear_of_it(f, &g);
    if (rank == (f->victim + 1) % n)
        gk_figure("kill -9 of rank %d of %d under %s%s: known after %d ms", f->victim, n,
                  symm_kernels[row].name, storm ? ", all calling" : "", (int)late);
    go_on(f, rank, n, &g);
}

static void killed(int storm) {
    int rows[SYMM_KERNEL_COUNT], count = 0;
    gk_begin_forked();
    T_EXPECT_WARNINGS();
    for (int coll = 0; coll < symmNumColls; coll++)
        count += gk_rows((symmColl_t)coll, RANKS, rows + count);
    for (int i = 0; i < count; i++)
        T_FORK_DIES(RANKS, i % RANKS, killed_rank, fk_new(i % RANKS, 2 * rows[i] + storm));
}

static void killed_under_each_waiting_kernel(void) {
    killed(0);
}
static void killed_while_all_call(void) {
    killed(1);
}
static void killed_one_of_two(void) {
    int rows[SYMM_KERNEL_COUNT];
    gk_begin_forked();
    T_EXPECT_WARNINGS();
    gk_rows(symmCollAllReduce, 2, rows);
    for (int victim = 0; victim < 2; victim++)
        T_FORK_DIES(2, victim, killed_rank, fk_new(victim, 2 * rows[0]));
}

/* ---- kill -9 of a rank whose signals are waited for ---- */

static void waiting_rank(int rank, int n, void *arg) {
    fk *f = arg;
    rig g = set_up(f, rank, n, -1);
    symmStream_t stream = gk_stream(g.bench.stream);
    const symmSignalWait_t two = {f->victim, 7, 2};
    pthread_t t;
    for (int p = 0; p < n && rank == f->victim; p++) T_OK(symmSignal(p, 7, g.comm, stream));
    gk_wait(g.comm, g.bench.stream);
    kit_barrier(&f->k, n);
    if (rank == f->victim) T_EQ(pthread_create(&t, NULL, kill_later, f), 0);
    while (rank == f->victim) pause();
    T_OK(symmWaitSignal(1, &two, g.comm, stream));
    const uint64_t late = hear_of_it(f, &g);
    if (rank == (f->victim + 1) % n)
        gk_figure("kill -9 of rank %d of %d under a wait for its signal: known after %d ms",
                  f->victim, n, (int)late);
    go_on(f, rank, n, &g);
}

static void killed_under_a_wait_for_a_signal(void) {
    gk_begin_forked();
    T_EXPECT_WARNINGS();
    for (int victim = 0; victim < RANKS; victim++)
        T_FORK_DIES(RANKS, victim, waiting_rank, fk_new(victim, 0));
}

/* ---- kill -9 under a graph that symmMemPlanLaunch has launched ---- */

static void replaying_rank(int rank, int n, void *arg) {
    fk *f = arg;
    rig g = set_up(f, rank, n, -1);
    symmHeapConfig_t c = SYMM_HEAP_CONFIG_INITIALIZER;
    symmHeap_t heap;
    symmLane_t lane;
    symmMemPlan_t plan;
    gk_graph graph;
    void *p;
    pthread_t t;
    c.reserve = 64 << 20;
    c.symBytes = 4 << 20;
    T_OK(symmHeapCreate(g.comm, &c, &heap));
    T_OK(symmLaneCreate(heap, gk_stream(g.bench.stream), &lane));
    gk_capture(g.bench.stream, SYMM_CUDA_CAPTURE_MODE_RELAXED);
    T_OK(symmLaneAlloc(lane, COUNT * sizeof(int), SYMM_ALLOC_SYM, &p));
    T_OK(symmAllReduce(p, p, COUNT, symmInt32, symmSum, g.comm, gk_stream(g.bench.stream)));
    T_OK(symmLaneFree(lane, p));
    CU(cuStreamEndCapture(g.bench.stream, &graph.graph));
    T_OK(symmMemPlanBind(lane, (symmGraph_t)(void *)graph.graph, 0, &plan));
    CU(cuGraphInstantiate(&graph.exec, graph.graph, 0));
    CU(cuGraphUpload(graph.exec, g.bench.stream));
    CU(cuStreamSynchronize(g.bench.stream));
    kit_barrier(&f->k, n);
    if (rank == f->victim) T_EQ(pthread_create(&t, NULL, kill_later, f), 0);
    while (rank == f->victim) pause();
    T_OK(symmMemPlanLaunch(plan, (symmGraphExec_t)(void *)graph.exec, gk_stream(g.bench.stream)));
    T_ERR(symmCommFinalize(g.comm), symmRemoteError); /* it waits, and hears of the death */
    T_CHECK(atomic_load(&f->at_ns) != 0);
    hear_of_it(f, &g);
    gk_drop(&graph);
    T_OK(symmMemPlanDestroy(plan));
    T_OK(symmLaneDestroy(lane));
    T_OK(symmHeapDestroy(heap));
    go_on(f, rank, n, &g);
}

static void killed_under_a_launched_plan(void) {
    gk_begin_forked();
    T_EXPECT_WARNINGS();
    T_FORK_DIES(RANKS, 1, replaying_rank, fk_new(1, 0));
}

/* ---- revoke ---- */

static void revoke_rank(int rank, int n, void *arg) {
    fk *f = arg;
    rig g = set_up(f, rank, n, -1);
    symmComm_t next;
    symmResult_t async = symmSuccess;
    kit_barrier(&f->k, n);
    if (rank != f->victim) {
        T_OK(issue(&g, symmCollAllReduce));
    } else {
        kit_sleep(100);
        atomic_store(&f->at_ns, symm_now_ns());
        T_OK(symmCommRevoke(g.comm, 0));
    }
    gk_cu(gk_wait_code(g.comm, g.bench.stream), "the stream after a revoke", __FILE__, __LINE__);
    const uint64_t late = rank == f->victim ? 0 : fk_ms_since(atomic_load(&f->at_ns));
    T_CHECKF(late < 100, "free after %d ms", (int)late);
    T_OK(symmCommGetAsyncError(g.comm, &async));
    T_EQ(async, symmAborted);
    kit_barrier(&f->k, n);
    T_OK(symmCommShrink(g.comm, NULL, 0, &next, NULL, 0));
    gk_works(next, rank, n, &g.bench);
    kit_barrier(&f->k, n);
    T_OK(symmCommDestroy(g.comm));
    T_OK(symmCommDestroy(next));
    gk_bench_free(&g.bench);
}

static void a_revoked_communicator_has_a_successor(void) {
    gk_begin_forked();
    T_EXPECT_WARNINGS();
    T_FORK(2, revoke_rank, fk_new(1, 0));
    T_FORK(3, revoke_rank, fk_new(0, 0));
}

/* ---- two processes on one GPU ---- */

static void shared_rank(int rank, int n, void *arg) {
    fk *f = arg;
    rig g = set_up(f, rank, n, 0);
    symmWindow_t win;
    int *buf;
    for (int i = 0; i < 3; i++) gk_works(g.comm, rank, n, &g.bench);
    T_OK(symmWindowRegister(g.comm, g.bench.device, 2 * GK_WORKS * sizeof *buf, &win,
                            SYMM_WIN_DEFAULT));
    for (int i = 0; i < 3; i++) gk_works(g.comm, rank, n, &g.bench);
    kit_barrier(&f->k, n);
    T_OK(symmCommDestroy(g.comm));
    gk_bench_free(&g.bench);
}

static void two_processes_on_one_gpu(void) {
    gk_begin_forked();
    T_FORK(2, shared_rank, fk_new(0, 0));
}

/* ---- out of device memory ---- */

enum { CHUNKS = 4096 };

/* Leaves less than a communicator needs, whose scratch is 32 MiB. */
static int fill_device(void **chunks) {
    const size_t leave = 24u << 20, step = 2u << 20;
    size_t unused, total, next = 4ull << 30;
    int n = 0;
    while (n < CHUNKS) {
        CU(cuMemGetInfo(&unused, &total));
        if (unused < leave + step) break;
        if (next > unused - leave) next = (unused - leave) / step * step;
        if (symmMemAlloc(&chunks[n], next) == symmSuccess)
            n++;
        else if (next == step)
            break;
        else
            next = next / 2 / step * step > step ? next / 2 / step * step : step;
    }
    return n;
}

static void full_rank(int rank, int n, void *arg) {
    static void *chunks[CHUNKS];
    fk *f = arg;
    const int devices = devices_here();
    int count = 0;
    symmComm_t comm;
    T_OK(symmSetDevice(rank % devices));
    gk_bench bench = gk_bench_new();
    comm = fk_open(f, rank, n); /* what CUDA takes once, it takes now */
    gk_works(comm, rank, n, &bench);
    T_OK(symmCommDestroy(comm));
    kit_barrier(&f->k, n);
    if (rank == f->victim) count = fill_device(chunks);
    const fk_gauges before = fk_take();
    fk_id(f, rank, n);
    fk_note(f, rank, symmCommInitRank(&comm, n, f->id, rank));
    kit_barrier(&f->k, n);
    fk_same(f, n, -1, symmOutOfMemory, "");
    FK_UNCHANGED(&before);
    for (int i = 0; i < count; i++) T_OK(symmMemFree(chunks[i]));
    comm = fk_open(f, rank, n);
    gk_works(comm, rank, n, &bench);
    kit_barrier(&f->k, n);
    T_OK(symmCommDestroy(comm));
    gk_bench_free(&bench);
}

static void no_device_memory_on_one_rank(void) {
    gk_begin_forked();
    T_EXPECT_WARNINGS();
    setenv("SYMM_SCRATCH", "32M", 1); /* a smaller one would do with what is left */
    T_FORK(2, full_rank, fk_new(1, 0));
    T_FORK(2, full_rank, fk_new(0, 0));
}

T_MAIN(T_TIMEOUT(killed_under_each_waiting_kernel, 180), T_TIMEOUT(killed_while_all_call, 180),
       T(killed_one_of_two), T(killed_under_a_launched_plan), T(killed_under_a_wait_for_a_signal),
       T(a_revoked_communicator_has_a_successor), T(two_processes_on_one_gpu),
       T_TIMEOUT(no_device_memory_on_one_rank, 90))
