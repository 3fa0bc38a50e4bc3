/* fault_hosts_cast.c - multicast windows of ranks on several hosts of one NVLink fabric, on the
 * fake driver: the object goes as a fabric handle. What is bound, each step refused on each rank,
 * a rank that dies in a step. What is stored there, and growth: fault_hosts_spread.c. Of each
 * rank's own thread; no lock: what ranks share stands behind barriers. */
#include "hosts_kit.h"

#define BYTES (4ull << 20)

static void wish(void) {
    setenv("SYMM_WIN_STRIDE", "4G", 1);
    setenv("SYMM_MULTICAST", "1", 1);
    unsetenv("NCCL_NVLS_ENABLE");
}

static int has(symmComm_t comm) {
    symmCommInfo_t info = {.size = sizeof info};
    T_OK(symmCommQuery(comm, &info));
    return info.multicast;
}

static void bound_rank(int rank, int n, void *arg) {
    hosts *h = arg;
    symmWindowInfo_t i = {.size = sizeof i};
    symmWindow_t win;
    void *buf, *at;
    wish();
    const fk_gauges before = begin(h, rank, n);
    symmComm_t comm = fk_open(&h->f, rank, n);
    T_EQ(has(comm), 1);
    T_OK(symmMemAlloc(&buf, BYTES));
    T_OK(symmWindowRegister(comm, buf, BYTES, &win, 0));
    T_OK(symmWindowMulticastPtr(win, 0, &at));
    fake_cuda_all_bound(at, BYTES, n);
    T_OK(symmWindowQuery(win, &i));
    T_EQ(i.multicast, 1);
    kit_barrier(&h->f.k, n); /* who destroys its communicator unbinds */
    T_OK(symmWindowDeregister(comm, win));
    T_OK(symmMemFree(buf));
    T_EQ(fake_cuda_calls("cuMulticastCreate"), rank == 0);
    const int binds = fake_cuda_calls("cuMulticastBindMem");
    T_OK(symmCommDestroy(comm));
    T_EQ(fake_cuda_calls("cuMulticastUnbind"), binds);
    FK_UNCHANGED(&before);
}
static void windows_are_bound_over_hosts(void) {
    T_EXPECT_WARNINGS();
    T_FORK(3, bound_rank, hosts_new(1, 0, -1, 0));
    T_FORK(4, bound_rank, hosts_new(2, 1, -1, 0));
    T_FORK(5, bound_rank, hosts_new(3, 0, -1, 0));
}

/* ---- every call refused ---------------------------------------------------------------------- */

static const char *const calls[] = {"cuMulticastGetGranularity", "cuMulticastCreate",
                                    "cuMulticastAddDevice", "cuMulticastBindMem"};

/* All go on without multicast, and say on which rank what was refused. */
static void refused_rank(int rank, int n, void *arg) {
    hosts *h = arg;
    fk *f = &h->f;
    const char *call = calls[f->how];
    char says[32];
    symmWindow_t win;
    void *buf, *at = NULL;
    wish();
    const fk_gauges before = begin(h, rank, n);
    if (rank == f->victim) fake_cuda_fail(call, 0, SYMM_CUDA_ERROR_NOT_PERMITTED);
    symmComm_t comm = fk_open(f, rank, n);
    T_OK(symmMemAlloc(&buf, BYTES));
    T_OK(symmWindowRegister(comm, buf, BYTES, &win, 0));
    if (rank == f->victim) f->hits[0] = fake_cuda_calls(call) > 0;
    kit_barrier(&f->k, n);
    snprintf(says, sizeof says, "rank %d: ", f->victim);
    if (f->hits[0]) {
        T_ERR(symmWindowMulticastPtr(win, 0, &at), symmNotSupported);
        T_MSG(symmGetLastError(NULL), says);
    }
    kit_barrier(&f->k, n);
    T_OK(symmWindowDeregister(comm, win));
    T_OK(symmMemFree(buf));
    T_OK(symmCommDestroy(comm));
    FK_UNCHANGED(&before);
}
static void a_refused_call_keeps_unicast_over_hosts(void) {
    T_EXPECT_WARNINGS();
    for (int call = 0; call < 4; call++) {
        int hits = 0;
        for (int victim = 0; victim < 3; victim++) {
            hosts *h = hosts_new(2, 0, victim, call);
            T_FORK(3, refused_rank, h);
            hits += h->f.hits[0];
        }
        T_EQ(hits, call == 1 ? 1 : 3); /* one rank makes the object */
    }
}

/* Calls that memory needs, too: the one that is the object's comes first after another. */
static const struct {
    const char *after;
    int nth;
    const char *call, *what;
} steps[] = {
    {"cuMulticastGetGranularity", 4, "cuMemAddressReserve", "reserving addresses: "},
    {"cuMulticastCreate", 1, "cuMemExportToShareableHandle", "exporting the multicast object: "},
    {"cuMulticastGetGranularity", 4, "cuMemImportFromShareableHandle",
     "importing the multicast object: "},
    {"cuMulticastAddDevice", 1, "cuMemMap", "mapping the multicast object: "},
    {"cuMulticastAddDevice", 1, "cuMemSetAccess", "mapping the multicast object: "},
};

static void refused_step_rank(int rank, int n, void *arg) {
    hosts *h = arg;
    fk *f = &h->f;
    char says[96];
    void *at = NULL;
    wish();
    const fk_gauges before = begin(h, rank, n);
    if (rank == f->victim)
        fake_cuda_fail_after(steps[f->how].after, steps[f->how].nth, steps[f->how].call,
                             SYMM_CUDA_ERROR_NOT_PERMITTED);
    symmComm_t comm = fk_open(f, rank, n);
    T_EQ(fake_cuda_fail_waits(), 0);
    T_EQ(has(comm), 0);
    buffers b = buffers_new(comm, n);
    T_ERR(symmWindowMulticastPtr(b.win, 0, &at), symmNotSupported);
    snprintf(says, sizeof says, "rank %d: %s", f->victim, steps[f->how].what);
    T_MSG(symmGetLastError(NULL), says);
    T_MSG(symmGetLastError(NULL), "not permitted");
    T_CHECK(!at);
    reduces(comm, &b, rank, n);
    buffers_free(comm, &b);
    T_EQ(fake_cuda_calls("cuMulticastBindMem"), 0);
    T_OK(symmCommDestroy(comm));
    FK_UNCHANGED(&before);
}
static void a_refused_step_keeps_unicast_over_hosts(void) {
    enum { EXPORT = 1, IMPORT = 2, STEPS = sizeof steps / sizeof *steps };
    T_EXPECT_WARNINGS();
    for (int how = 0; how < STEPS; how++)
        for (int victim = how == IMPORT; victim < (how == EXPORT ? 1 : 3); victim++)
            T_FORK(3, refused_step_rank, hosts_new(2, 0, victim, how));
}

/* ---- a rank that dies in a step -------------------------------------------------------------- */

static void dies_rank(int rank, int n, void *arg) {
    static const char *const steps[] = {"mc_create:kill:1", "mc_import:kill:1", "mc_join:kill:1",
                                        "mc_bind:kill:1"};
    hosts *h = arg;
    fk *f = &h->f;
    symmComm_t comm = NULL;
    char who[32];
    wish();
    const fk_gauges before = begin(h, rank, n);
    fk_id(f, rank, n);
    if (rank == f->victim) T_EQ(symm_fail_arm(steps[f->how]), 0);
    T_EQ(symmCommInitRank(&comm, n, f->id, rank), symmRemoteError);
    snprintf(who, sizeof who, "rank %d ", f->victim);
    T_MSG(symmGetLastError(NULL), who);
    T_CHECK(!comm);
    kit_barrier(&f->k, n - 1);
    FK_UNCHANGED(&before);
}
static void who_dies_in_a_step_is_named(void) {
    T_EXPECT_WARNINGS();
    for (int how = 0; how < 4; how++)
        for (int victim = how == 1; victim < (how ? 3 : 1); victim++)
            T_FORK_DIES(3, victim, dies_rank, hosts_new(2, 0, victim, how));
}

T_MAIN(T_TIMEOUT(windows_are_bound_over_hosts, 60),
       T_TIMEOUT(a_refused_call_keeps_unicast_over_hosts, 60),
       T_TIMEOUT(a_refused_step_keeps_unicast_over_hosts, 60),
       T_TIMEOUT(who_dies_in_a_step_is_named, 60))
