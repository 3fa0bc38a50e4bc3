/* mpg_domains.c - communicators of GPUs over several domains with a process per rank under mpirun:
 * SYMM_DOMAIN_SIZE cuts this machine into domains, and NCCL carries the messages between them. A
 * rank has GPU rank % devices to itself, as NCCL demands. Skipped where there is no NCCL. */
#include "gpu_across.h"
#include "mpg_kit.h"
#include "symm_domains.h"

static mpg_rank me;

static gc_rank self(void) {
    me = mpg_self();
    if (gk_number("GPU_FAKE", 0)) T_SKIP("needs cuda: the fake driver has no NCCL");
    if (me.n < 2) T_SKIP("needs two ranks");
    if (me.n > me.devices) T_SKIP("needs a GPU for each of the %d ranks", me.n);
    if (me.rank == 0) printf("# T_SEED=%#llx\n", (unsigned long long)me.seed);
    return (gc_rank){
        .rank = me.rank, .n = me.n, .devices = me.devices, .seed = me.seed, .meet = mpg_meet};
}

/* Domains of `size` ranks each. A machine without NCCL is a skip, said by all ranks alike. */
static symmComm_t open_comm(int size) {
    char text[16];
    symmComm_t comm = NULL;
    symmDomainInfo_t d = {.size = sizeof d};
    snprintf(text, sizeof text, "%d", size);
    setenv("SYMM_DOMAIN_SIZE", text, 1);
    T_OK(symmSetDevice(me.rank % me.devices));
    const symmResult_t r = symmCommInitMPI(&comm, MPI_COMM_WORLD, NULL);
    unsetenv("SYMM_DOMAIN_SIZE");
    if (r == symmNotSupported && strstr(symmGetLastError(NULL), "need NCCL"))
        T_SKIP("needs nccl: %s", symmGetLastError(NULL));
    T_OK(r);
    T_OK(symmDomainQuery(comm, &d));
    T_STREQ(d.mover, "nccl");
    ck_domains = d.domains;
    for (int r2 = 0; r2 < me.n; r2++) T_OK(symmDomainOf(comm, r2, &ck_domain_of[r2], NULL));
    return comm;
}

#define EACH_SIZE(size) \
    int size = 1;       \
    size < me.n;        \
    size++

static void matrix(void) {
    gc_rank g = self();
    const uint64_t seed = g.seed;
    for (EACH_SIZE(size)) {
        g.seed = ck_hash(seed, (unsigned)size, 40);
        ga_matrix(&g, open_comm(size), gk_number("GPU_CASES", ck_full() ? 600 : 144));
    }
}

static void with_comm(void (*fn)(const gc_rank *g, symmComm_t comm)) {
    const gc_rank g = self();
    for (EACH_SIZE(size)) {
        symmComm_t comm = open_comm(size);
        fn(&g, comm);
        gc_meet(&g);
        T_OK(symmCommDestroy(comm));
    }
}

static void large_rank(const gc_rank *g, symmComm_t comm) {
    ga_large(g, comm, 17000003);
}
static void large(void) {
    with_comm(large_rank);
}
static void streams_rank(const gc_rank *g, symmComm_t comm) {
    ga_streams(g, comm, 20);
}
static void two_streams_eager_and_captured(void) {
    with_comm(streams_rank);
}
static void messages_rank(const gc_rank *g, symmComm_t comm) {
    ga_messages(g, comm, 8 << 20);
}
static void sends_receives_groups(void) {
    with_comm(messages_rank);
}
static void split(void) {
    with_comm(ga_split);
}
static void shrink(void) {
    T_EXPECT_WARNINGS();
    with_comm(ga_shrink);
}
static void windows(void) {
    with_comm(ga_window);
}

/* A rank that revokes ends what the others wait for on their GPUs. */
static void revoke_rank(const gc_rank *g, symmComm_t comm) {
    gk_bench b = gk_bench_new();
    symmResult_t async = symmSuccess;
    gc_meet(g);
    gk_works(comm, g->rank, g->n, &b);
    gc_meet(g);
    if (g->rank == g->n - 1) {
        usleep(200000);
        T_OK(symmCommRevoke(comm, 0));
    } else {
        T_OK(
            symmAllReduce(b.device, b.device, 5000, symmInt32, symmSum, comm, gk_stream(b.stream)));
    }
    const uint64_t since = symm_now_ns();
    while (!async && gk_ms_since(since) < 20000) {
        T_OK(symmCommGetAsyncError(comm, &async));
        usleep(1000);
    }
    T_EQ(async, symmAborted);
    (void)gk_wait_code(NULL, b.stream);
    gc_meet(g);
    gk_bench_free(&b);
}
static void a_revoked_one_ends_kernels(void) {
    T_EXPECT_WARNINGS();
    with_comm(revoke_rank);
}

/* The bits of one domain. */
static void in_rank_order(void) {
    gc_rank g = self();
    const uint64_t seed = g.seed;
    setenv("SYMM_DETERMINISTIC", "1", 1);
    for (EACH_SIZE(size)) {
        symmComm_t comm = open_comm(size);
        g.seed = ck_hash(seed, (unsigned)size, 41);
        ck_domains = 0;
        ga_matrix(&g, comm, gk_number("GPU_CASES", ck_full() ? 300 : 72));
    }
    unsetenv("SYMM_DETERMINISTIC");
}

/* The communicator ends before its graph does. revokes: the others are in its end by then, behind a
 * launch that the last rank does not join. */
static void end_with_a_graph(int revokes) {
    const gc_rank g = self();
    const int odd = g.rank == g.n - 1;
    for (EACH_SIZE(size)) {
        symmComm_t comm = open_comm(size);
        ga_memory m = ga_memory_new(500000);
        gc_meet(&g);
        gk_capture(m.stream, SYMM_CUDA_CAPTURE_MODE_THREAD_LOCAL);
        T_OK(symmAllReduce(m.device, m.device, m.count, symmInt32, symmSum, comm,
                           gk_stream(m.stream)));
        gk_graph graph = gk_captured(m.stream);
        gc_meet(&g);
        if (!odd || !revokes) CU(cuGraphLaunch(graph.exec, m.stream));
        gc_meet(&g);
        if (odd && revokes) {
            usleep(200000);
            T_OK(symmCommRevoke(comm, 0));
        }
        T_OK(symmCommDestroy(comm));
        (void)gk_wait_code(NULL, m.stream);
        gc_meet(&g);
        gk_drop(&graph);
        ga_memory_free(&m);
        gc_settle();
    }
}
static void graphs_outlive_it(void) {
    end_with_a_graph(0);
}
static void a_revoked_one_ends_graphs(void) {
    T_EXPECT_WARNINGS();
    end_with_a_graph(1);
}

T_MAIN_MPI(T_TIMEOUT(matrix, 120), T_TIMEOUT(in_rank_order, 120), T_TIMEOUT(large, 60),
           T_TIMEOUT(two_streams_eager_and_captured, 60), T_TIMEOUT(sends_receives_groups, 60),
           T_TIMEOUT(split, 60), T_TIMEOUT(shrink, 60), T_TIMEOUT(windows, 60),
           T_TIMEOUT(a_revoked_one_ends_kernels, 60), T_TIMEOUT(graphs_outlive_it, 60),
           T_TIMEOUT(a_revoked_one_ends_graphs, 60))
