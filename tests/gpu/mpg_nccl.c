/* mpg_nccl.c - the drop-in for NCCL with a process per rank under mpirun, on GPUs: ids of any rank,
 * collectives, messages, windows, splits. On the fake driver, where ranks play hosts
 * (GPU_FAKE_HOST=k), also over tests/hosts.sh (T_CUT=1): that an id is reached from all hosts, by
 * the interface that NCCL's variable names. symm alone serves them (SYMM_NCCL=native). */
#include "mpg_kit.h"
#include "nccl_kit.h"

enum { COUNT = 5000, BYTES = COUNT * (int)sizeof(int) };

typedef struct {
    mpg_rank m;
    ncclComm_t comm;
    cu_stream stream;
    char *mem; /* a rank's part for each rank, and the same behind it for what comes */
    char *out;
} world;

static world begin(void) {
    world w = {.m = mpg_self()};
    T_EXPECT_WARNINGS();
    setenv("SYMM_NCCL", "native", 1);
    if (w.m.n < 2) T_SKIP("needs two ranks");
    T_OK(symmSetDevice(w.m.rank % w.m.devices));
    w.stream = gk_new_stream();
    return w;
}

static ncclResult_t meet(world *w, int maker) {
    ncclUniqueId id;
    if (w->m.rank == maker) N_OK(ncclGetUniqueId(&id));
    MPI_Bcast(&id, sizeof id, MPI_BYTE, maker, MPI_COMM_WORLD);
    return ncclCommInitRank(&w->comm, w->m.n, id, w->m.rank);
}

static void put(const world *w, int first) {
    static int values[COUNT];
    for (int p = 0; p < w->m.n; p++) {
        for (int i = 0; i < COUNT; i++) values[i] = first + 1000 * p + i % 7;
        gk_put(w->stream, w->mem + (size_t)p * BYTES, values, BYTES);
        CU(cuStreamSynchronize(w->stream)); /* the values are for the next part now */
    }
}
/* Part p of what has come. */
static void holds(const world *w, int p, int first, int times) {
    static int values[COUNT];
    CU(cuMemcpyDtoHAsync(values, (uintptr_t)w->out + (size_t)p * BYTES, BYTES, w->stream));
    CU(cuStreamSynchronize(w->stream));
    for (int i = 0; i < COUNT; i++)
        T_CHECKF(values[i] == first + times * (i % 7), "part %d: element %d is %d", p, i,
                 values[i]);
}

/* Of rank r, part p: 10 r + 1000 p + i % 7. */
static void collectives(const world *w, ncclComm_t comm, int rank, int n) {
    const cudaStream_t s = gk_stream(w->stream);
    put(w, 10 * rank);
    N_OK(ncclAllReduce(w->mem, w->out, COUNT, ncclInt32, ncclSum, comm, s));
    holds(w, 0, 10 * n * (n - 1) / 2, n);
    N_OK(ncclAllGather(w->mem, w->out, COUNT, ncclInt32, comm, s));
    for (int p = 0; p < n; p++) holds(w, p, 10 * p, 1);
    N_OK(ncclReduceScatter(w->mem, w->out, COUNT, ncclInt32, ncclMax, comm, s));
    holds(w, 0, 10 * (n - 1) + 1000 * rank, 1);
    N_OK(ncclBroadcast(w->mem, w->out, COUNT, ncclInt32, n - 1, comm, s));
    holds(w, 0, 10 * (n - 1), 1);
    N_OK(ncclGroupStart());
    N_OK(ncclSend(w->mem, COUNT, ncclInt32, (rank + 1) % n, comm, s));
    N_OK(ncclRecv(w->out, COUNT, ncclInt32, (rank + n - 1) % n, comm, s));
    N_OK(ncclGroupEnd());
    holds(w, 0, 10 * ((rank + n - 1) % n), 1);
}

static void serves(world *w) {
    const size_t bytes = (size_t)w->m.n * BYTES;
    ncclResult_t error = ncclInternalError;
    ncclWindow_t win = NULL;
    ncclComm_t child = NULL;
    int n, me, device;
    N_OK(ncclCommCount(w->comm, &n));
    N_OK(ncclCommUserRank(w->comm, &me));
    N_OK(ncclCommCuDevice(w->comm, &device));
    T_EQ(n, w->m.n);
    T_EQ(me, w->m.rank);
    T_EQ(device, w->m.rank % w->m.devices);
    N_OK(ncclMemAlloc((void **)&w->mem, 2 * bytes));
    w->out = w->mem + bytes;
    collectives(w, w->comm, me, n); /* in no window */
    N_OK(ncclCommWindowRegister(w->comm, w->mem, 2 * bytes, &win, NCCL_WIN_COLL_SYMMETRIC));
    T_CHECK(win != NULL);
    collectives(w, w->comm, me, n);
    N_OK(ncclCommSplit(w->comm, me % 2, me, &child, NULL)); /* over hosts of an even number */
    collectives(w, child, me / 2, (n + 1 - me % 2) / 2);
    N_OK(ncclCommDestroy(child));
    N_OK(ncclCommWindowDeregister(w->comm, win));
    N_OK(ncclCommGetAsyncError(w->comm, &error));
    T_EQ(error, ncclSuccess);
    N_OK(ncclMemFree(w->mem));
    N_OK(ncclCommDestroy(w->comm));
}

static void end(const world *w) {
    CU(cuStreamDestroy(w->stream));
    MPI_Barrier(MPI_COMM_WORLD);
}

static void an_id_of_any_rank_joins_all(void) {
    world w = begin();
    for (int maker = 0; maker < w.m.n; maker += w.m.n - 1) {
        N_OK(meet(&w, maker));
        serves(&w);
    }
    end(&w);
}

/* On hosts of a network of their own, each of which has eth0 and lo. */
static void the_interface_is_the_one_that_nccl_s_variable_names(void) {
    static const char *const good[] = {"=eth0", "eth", "^lo,docker", "ib,eth"};
    if (!gk_number("T_CUT", 0)) T_SKIP("needs hosts: see tests/check/check_fabric.sh");
    world w = begin();
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        setenv("NCCL_SOCKET_IFNAME", good[i], 1);
        N_OK(meet(&w, 0));
        N_OK(ncclCommDestroy(w.comm));
    }
    setenv("NCCL_SOCKET_IFNAME", "nosuch", 1); /* symm's own goes first */
    setenv("SYMM_SOCKET_IFNAME", "eth0", 1);
    N_OK(meet(&w, 0));
    N_OK(ncclCommDestroy(w.comm));
    unsetenv("SYMM_SOCKET_IFNAME");
    ncclUniqueId id;
    N_REFUSED(ncclGetUniqueId(&id), ncclInvalidArgument,
              "NCCL_SOCKET_IFNAME=nosuch names no interface that is up");
    unsetenv("NCCL_SOCKET_IFNAME");
    end(&w);
}

/* Its listener is where other hosts do not come: they say so. */
static void an_interface_that_leads_nowhere_is_told(void) {
    if (!gk_number("T_CUT", 0)) T_SKIP("needs hosts: see tests/check/check_fabric.sh");
    setenv("SYMM_SETUP_TIMEOUT", "4000", 1);
    world w = begin();
    setenv("NCCL_SOCKET_IFNAME", "lo", 1);
    const ncclResult_t r = meet(&w, 0);
    T_CHECK(r != ncclSuccess);
    t_msg(ncclGetLastError(NULL), "that is a loopback address", "ncclGetLastError", __FILE__,
          __LINE__);
    unsetenv("NCCL_SOCKET_IFNAME");
    unsetenv("SYMM_SETUP_TIMEOUT");
    end(&w);
}

T_MAIN_MPI(T(an_id_of_any_rank_joins_all), T(the_interface_is_the_one_that_nccl_s_variable_names),
           T(an_interface_that_leads_nowhere_is_told))
