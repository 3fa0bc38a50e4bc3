/* mp_nccl.c - a program in NCCL's ABI, as others write them, over the drop-in (the library itself,
 * not its objects) under mpirun: every call that is served, on the host backend. */
#include <dirent.h>
#include <mpi.h>
#include <unistd.h>

#include "nccl_kit.h"

enum { COUNT = 1000, MANY = 300000 };

static int rank, ranks;

static ncclUniqueId id_of(int maker) {
    ncclUniqueId id;
    if (rank == maker) N_OK(ncclGetUniqueId(&id));
    MPI_Bcast(&id, sizeof id, MPI_BYTE, maker, MPI_COMM_WORLD);
    return id;
}

static ncclUniqueId shared_id(void) {
    return id_of(0);
}

static ncclComm_t world(void) {
    ncclComm_t comm = NULL;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    N_OK(ncclCommInitRank(&comm, ranks, shared_id(), rank));
    return comm;
}

static int sum_of_ranks(int n) {
    return n * (n + 1) / 2; /* of rank + 1 */
}

/* value(rank, i) of element i */
static void fill(int *x, size_t count, int seed) {
    for (size_t i = 0; i < count; i++) x[i] = seed * 1000 + (int)(i % 997);
}

static void holds(const int *x, size_t count, int seed, int times) {
    for (size_t i = 0; i < count; i++)
        T_CHECKF(x[i] == times * (int)(i % 997) + seed * 1000, "element %zu is %d", i, x[i]);
}

static void who_is_who(void) {
    int n, me, device, version;
    ncclResult_t error = ncclInternalError;
    ncclComm_t comm = world();
    N_OK(ncclCommCount(comm, &n));
    N_OK(ncclCommUserRank(comm, &me));
    N_OK(ncclCommCuDevice(comm, &device));
    N_OK(ncclCommGetAsyncError(comm, &error));
    N_OK(ncclGetVersion(&version));
    T_EQ(n, ranks);
    T_EQ(me, rank);
    T_EQ(device, -1);
    T_EQ(error, ncclSuccess);
    T_EQ(version, 22809);
    T_CHECK(*(uint64_t *)(void *)comm != 0x0280028002800280ull); /* NCCL's own begin so */
    N_OK(ncclCommFinalize(comm));
    N_REFUSED(ncclAllReduce(&n, &n, 1, ncclInt32, ncclSum, comm, NULL), ncclInvalidUsage,
              "was finalized");
    N_OK(ncclCommDestroy(comm));
}

/* ---- collectives ----------------------------------------------------------------------------- */

static void reductions(ncclComm_t comm, int *a, int *b, size_t count) {
    fill(a, count * (size_t)ranks, rank + 1);
    N_OK(ncclAllReduce(a, b, count, ncclInt32, ncclSum, comm, NULL));
    holds(b, count, sum_of_ranks(ranks), ranks);
    N_OK(ncclAllReduce(a, b, count, ncclInt32, ncclMax, comm, NULL));
    holds(b, count, ranks, 1);
    memset(b, 0, count * sizeof *b);
    N_OK(ncclReduce(a, b, count, ncclInt32, ncclMin, ranks - 1, comm, NULL));
    if (rank == ranks - 1) holds(b, count, 1, 1);
    for (int p = 0; p < ranks; p++) fill(a + (size_t)p * count, count, p + 1);
    N_OK(ncclReduceScatter(a, b, count, ncclInt32, ncclSum, comm, NULL));
    holds(b, count, ranks * (rank + 1), ranks);
}

static void moves(ncclComm_t comm, int *a, int *b, size_t count) {
    fill(a, count, rank + 1);
    N_OK(ncclAllGather(a, b, count, ncclInt32, comm, NULL));
    for (int p = 0; p < ranks; p++) holds(b + (size_t)p * count, count, p + 1, 1);
    memset(b, 0, count * (size_t)ranks * sizeof *b);
    N_OK(ncclGather(a, b, count, ncclInt32, 0, comm, NULL));
    for (int p = 0; p < ranks && !rank; p++) holds(b + (size_t)p * count, count, p + 1, 1);
    N_OK(ncclBroadcast(a, b, count, ncclInt32, ranks - 1, comm, NULL));
    holds(b, count, ranks, 1);
    N_OK(ncclBcast(a, count, ncclInt32, 0, comm, NULL));
    holds(a, count, 1, 1);
    for (int p = 0; p < ranks; p++) fill(a + (size_t)p * count, count, 100 * rank + p);
    N_OK(ncclScatter(a, b, count, ncclInt32, 0, comm, NULL));
    holds(b, count, rank, 1);
    N_OK(ncclAlltoAll(a, b, count, ncclInt32, comm, NULL));
    for (int p = 0; p < ranks; p++) holds(b + (size_t)p * count, count, 100 * p + rank, 1);
    N_OK(ncclAlltoAll(b, b, count, ncclInt32, comm, NULL)); /* each part goes home */
    for (int p = 0; p < ranks; p++) holds(b + (size_t)p * count, count, 100 * rank + p, 1);
}

static void in_memory(ncclComm_t comm, int *a, int *b) {
    reductions(comm, a, b, COUNT);
    reductions(comm, a, b, MANY);
    moves(comm, a, b, COUNT);
    moves(comm, a, b, MANY);
    N_OK(ncclAllReduce(a, b, 0, ncclInt32, ncclSum, comm, NULL));
}

static void collectives(void) {
    ncclComm_t comm = world();
    const size_t bytes = (size_t)MANY * (size_t)ranks * sizeof(int);
    int *a = malloc(bytes), *b = malloc(bytes);
    T_CHECK(a && b);
    in_memory(comm, a, b);
    free(a);
    free(b);
    N_OK(ncclCommDestroy(comm));
}

/* As nccl-tests -R 2: memory and windows of NCCL, in one group. */
static void collectives_on_windows(void) {
    ncclComm_t comm = world();
    const size_t bytes = (size_t)MANY * (size_t)ranks * sizeof(int);
    void *a, *b, *user = NULL;
    ncclWindow_t win[2] = {NULL, NULL};
    N_OK(ncclGroupStart());
    N_OK(ncclMemAlloc(&a, bytes));
    N_OK(ncclMemAlloc(&b, bytes));
    N_OK(ncclCommWindowRegister(comm, a, bytes, &win[0], NCCL_WIN_COLL_SYMMETRIC));
    N_OK(ncclCommWindowRegister(comm, b, bytes, &win[1], NCCL_WIN_COLL_SYMMETRIC));
    T_CHECK(!win[0] && !win[1]);
    N_OK(ncclGroupEnd());
    T_CHECK(win[0] && win[1]);
    in_memory(comm, a, b);
#ifndef NCCL_TEST_HEADER
    N_OK(ncclWinGetUserPtr(comm, win[0], &user));
    T_CHECK(user == a);
#endif
    (void)user;
    N_OK(ncclCommWindowDeregister(comm, win[0]));
    N_ERR(ncclCommWindowDeregister(comm, win[0]), ncclInvalidArgument); /* stale */
    N_OK(ncclCommDeregister(comm, win[1]));                             /* as torch's abort */
    N_OK(ncclCommWindowDeregister(comm, NULL));
    N_OK(ncclCommDestroy(comm));
    N_OK(ncclMemFree(a));
    N_OK(ncclMemFree(b));
}

#ifndef NCCL_TEST_HEADER
/* What ncclGetLsaPointer and ncclGetPeerPointer of NCCL's headers do with a handle, in a kernel. */
static char *lsa_pointer(ncclWindow_t w, size_t offset, int peer) {
    return w->lsaFlatBase + ((uint64_t)((uint32_t)peer * w->stride4G) << 32) + offset;
}
static char *peer_pointer(ncclWindow_t w, size_t offset, int peer) {
    return lsa_pointer(w, offset, w->lsaRank + (peer - w->worldRank));
}

static void handles_as_kernels_read_them(void) {
    ncclComm_t comm = world();
    ncclWindow_t win;
    int *a;
    void *at;
    N_OK(ncclMemAlloc((void **)&a, 1 << 20));
    N_OK(ncclCommWindowRegister(comm, a + 100, 4000, &win, NCCL_WIN_COLL_SYMMETRIC));
    for (int p = 0; p < ranks; p++) {
        N_OK(ncclGetLsaDevicePointer(win, 12, p, &at));
        if (p != rank) T_CHECK(lsa_pointer(win, 12, p) == at && peer_pointer(win, 12, p) == at);
        *(int *)(void *)lsa_pointer(win, 4 * (size_t)rank, p) = 10 * rank + p;
    }
    N_OK(ncclAllReduce(a + 2000, a + 2000, 1, ncclInt32, ncclSum, comm, NULL));
    MPI_Barrier(MPI_COMM_WORLD);
    for (int p = 0; p < ranks; p++) T_EQ(a[100 + p], 10 * p + rank);
    N_OK(ncclCommWindowDeregister(comm, win));
    N_OK(ncclCommWindowRegister(comm, a + 100 * rank, 4000, &win, 0));
    T_CHECK(!win->lsaFlatBase == (ranks > 1)); /* no base and stride say where the parts lie */
    for (int p = 0; p < ranks; p++) N_OK(ncclGetLsaDevicePointer(win, 12, p, &at));
    N_OK(ncclCommWindowDeregister(comm, win));
    N_OK(ncclCommDestroy(comm));
    N_OK(ncclMemFree(a));
}
#else
static void handles_as_kernels_read_them(void) {
    T_SKIP("needs the drop-in's own declarations");
}
#endif

/* -u of nccl-tests: the largest size begins in a window and ends behind it. */
static void buffers_that_run_past_their_window(void) {
    ncclComm_t comm = world();
    ncclWindow_t win;
    int *a;
    N_OK(ncclMemAlloc((void **)&a, 4 * MANY * sizeof *a));
    N_OK(ncclCommWindowRegister(comm, a, MANY * sizeof *a, &win, NCCL_WIN_COLL_SYMMETRIC));
    for (int shift = 0; shift < 10; shift += 3) {
        fill(a + shift, MANY, rank + 1);
        N_OK(ncclAllReduce(a + shift, a + shift, MANY, ncclInt32, ncclSum, comm, NULL));
        holds(a + shift, MANY, sum_of_ranks(ranks), ranks);
    }
    N_OK(ncclCommWindowDeregister(comm, win));
    N_OK(ncclCommDestroy(comm));
    N_OK(ncclMemFree(a));
}

/* -p 1 of nccl-tests: memory goes before its windows, and nobody deregisters. */
static void memory_ends_under_its_window(void) {
    ncclComm_t comm = world();
    int x = rank + 1, *a;
    ncclWindow_t win;
    N_OK(ncclMemAlloc((void **)&a, 1 << 20));
    N_OK(ncclCommWindowRegister(comm, a, 1 << 20, &win, NCCL_WIN_COLL_SYMMETRIC));
    N_OK(ncclMemFree(a));
    N_OK(ncclAllReduce(&x, &x, 1, ncclInt32, ncclSum, comm, NULL));
    T_EQ(x, sum_of_ranks(ranks));
    N_OK(ncclCommDestroy(comm));
}

static void registrations_of_one_rank(void) {
    ncclComm_t comm = world();
    void *handle[2], *none = &rank;
    int x[4];
    N_OK(ncclCommRegister(comm, x, sizeof x, &handle[0]));
    N_OK(ncclCommRegister(comm, x, sizeof x, &handle[1]));
    T_CHECK(handle[0] && handle[0] != handle[1]);
    N_OK(ncclCommDeregister(comm, handle[0]));
    N_REFUSED(ncclCommDeregister(comm, none), ncclInvalidUsage, "no handle");
    N_REFUSED(ncclCommRegister(comm, NULL, 4, &handle[0]), ncclInvalidArgument, "buff is NULL");
    N_OK(ncclCommDestroy(comm)); /* with the other one */
}

/* ---- reductions of programs, point-to-point -------------------------------------------------- */

/* The reduction ends before its group does, and each rank has its own scalar. */
static void premulsum_in_a_group(void) {
    ncclComm_t comm = world();
    float x[COUNT], scalar = rank % 2 ? 2.0f : 1.0f, want = 0;
    ncclRedOp_t op;
    for (int i = 0; i < COUNT; i++) x[i] = 3;
    for (int r = 0; r < ranks; r++) want += r % 2 ? 6 : 3;
    N_OK(ncclRedOpCreatePreMulSum(&op, &scalar, ncclFloat32, ncclScalarHostImmediate, comm));
    T_CHECK(op >= ncclNumOps);
    N_OK(ncclGroupStart());
    N_OK(ncclAllReduce(x, x, COUNT, ncclFloat32, op, comm, NULL));
    N_OK(ncclRedOpDestroy(op, comm));
    N_OK(ncclGroupEnd());
    for (int i = 0; i < COUNT; i++) T_CHECK(x[i] == want);
    N_OK(ncclCommDestroy(comm));
}

static void a_ring_of_messages(void) {
    ncclComm_t comm = world();
    int out[COUNT], in[COUNT];
    const int to = (rank + 1) % ranks, from = (rank + ranks - 1) % ranks;
    fill(out, COUNT, rank);
    N_OK(ncclGroupStart());
    N_OK(ncclRecv(in, COUNT, ncclInt32, from, comm, NULL));
    N_OK(ncclSend(out, COUNT, ncclInt32, to, comm, NULL));
    N_OK(ncclGroupEnd());
    holds(in, COUNT, from, 1);
    N_OK(ncclCommDestroy(comm));
}

#ifndef NCCL_TEST_HEADER
/* Each rank puts COUNT words beside each other's, and waits for all: one call after the other, or
 * in a group. */
static void put_to_all(ncclComm_t comm, ncclWindow_t win, const int *out, int grouped) {
    ncclWaitSignalDesc_t *all = malloc((size_t)ranks * sizeof *all);
    T_CHECK(all != NULL);
    for (int p = 0; p < ranks; p++) all[p] = (ncclWaitSignalDesc_t){p == rank ? 2 : 1, p, 0, 0};
    if (grouped) N_OK(ncclGroupStart());
    for (int p = 0; p < ranks; p++)
        N_OK(ncclPutSignal(out + p * COUNT, COUNT, ncclInt32, p, win,
                           sizeof *out * COUNT * (size_t)rank, 0, 0, 0, comm, NULL));
    N_OK(ncclSignal(rank, 0, 0, 0, comm, NULL));
    N_OK(ncclWaitSignal(ranks, all, comm, NULL));
    if (grouped) N_OK(ncclGroupEnd());
    free(all);
}

static void puts_that_are_refused(ncclComm_t comm, ncclWindow_t win, int *out) {
    ncclWaitSignalDesc_t w = {1, 0, 1, 0}, less = {-1, 0, 0, 0};
    N_REFUSED(ncclPutSignal(out, 1, ncclInt32, 0, win, 0, 1, 0, 0, comm, NULL), ncclInvalidArgument,
              "sigIdx=1, ctx=0, flags=0: all must be 0");
    N_REFUSED(ncclPutSignal(out, 1, ncclInt32, ranks, win, 0, 0, 0, 0, comm, NULL),
              ncclInvalidArgument, "peer=");
    N_REFUSED(ncclPutSignal(out, 1, ncclInt32, 0, NULL, 0, 0, 0, 0, comm, NULL),
              ncclInvalidArgument, "win is NULL");
    N_REFUSED(
        ncclPutSignal(out, 1, ncclInt32, 0, (ncclWindow_t)(void *)out, 0, 0, 0, 0, comm, NULL),
        ncclInvalidArgument, "is no window of symm");
    N_REFUSED(ncclPutSignal(out, 1, ncclInt32, 0, win, 1 << 30, 0, 0, 0, comm, NULL),
              ncclInvalidArgument, "offset=1073741824");
    N_REFUSED(ncclSignal(0, 0, 2, 0, comm, NULL), ncclInvalidArgument, "ctx=2");
    N_REFUSED(ncclSignal(0, 0, 0, 4, comm, NULL), ncclInvalidArgument, "flags=4");
    N_REFUSED(ncclWaitSignal(1, &w, comm, NULL), ncclInvalidArgument, "sigIdx=1");
    N_REFUSED(ncclWaitSignal(1, &less, comm, NULL), ncclInvalidArgument, "opCnt=-1");
    N_REFUSED(ncclWaitSignal(-1, &less, comm, NULL), ncclInvalidArgument, "nDesc=-1");
    N_REFUSED(ncclWaitSignal(0, NULL, comm, NULL), ncclInvalidArgument, "nDesc=0");
    N_REFUSED(ncclWaitSignal(1, NULL, comm, NULL), ncclInvalidArgument, "signalDescs is NULL");
    N_OK(ncclGroupStart()); /* none of a group runs of which one is refused */
    N_OK(ncclSignal(rank, 0, 0, 0, comm, NULL));
    N_ERR(ncclSignal(rank, 0, 1, 0, comm, NULL), ncclInvalidArgument);
    N_ERR(ncclGroupEnd(), ncclInvalidArgument);
}

static void puts_and_signals(void) {
    ncclComm_t comm = world(), other = world();
    ncclWindow_t win, foreign;
    const size_t bytes = sizeof(int) * COUNT * (size_t)ranks;
    int *in, *out = malloc(bytes);
    T_CHECK(out != NULL);
    for (int p = 0; p < ranks; p++) fill(out + p * COUNT, COUNT, 10 * rank + p);
    N_OK(ncclMemAlloc((void **)&in, bytes));
    N_OK(ncclCommWindowRegister(comm, in, bytes, &win, NCCL_WIN_COLL_SYMMETRIC));
    N_OK(ncclCommWindowRegister(other, in, bytes, &foreign, NCCL_WIN_COLL_SYMMETRIC));
    for (int round = 0; round < 6; round++) {
        memset(in, 0, bytes);
        MPI_Barrier(MPI_COMM_WORLD);
        put_to_all(comm, win, out, round % 2);
        for (int p = 0; p < ranks; p++) holds(in + p * COUNT, COUNT, 10 * p + rank, 1);
        MPI_Barrier(MPI_COMM_WORLD);
        if (round == 2) puts_that_are_refused(comm, win, out);
    }
    N_REFUSED(ncclPutSignal(out, 1, ncclInt32, 0, foreign, 0, 0, 0, 0, comm, NULL),
              ncclInvalidArgument, "is of another communicator");
    N_OK(ncclCommDestroy(other));
    N_OK(ncclCommDestroy(comm));
    N_OK(ncclMemFree(in));
    free(out);
}
#else
static void puts_and_signals(void) {
    T_SKIP("needs the drop-in's own declarations");
}
#endif

/* In place, as nccl-tests' sendrecv, and its alltoall where a NCCL has none: what the buffer holds
 * then is nobody's promise, but the calls succeed, and what is sent to oneself arrives. */
static void messages_in_place(void) {
    ncclComm_t comm = world();
    int *x = malloc((size_t)MANY * (size_t)ranks * sizeof *x);
    T_CHECK(x != NULL);
    for (int count = 10; count <= MANY; count = count == MANY ? MANY + 1 : MANY) {
        fill(x, (size_t)count * (size_t)ranks, rank);
        N_OK(ncclGroupStart());
        N_OK(ncclSend(x, (size_t)count, ncclInt32, (rank + 1) % ranks, comm, NULL));
        N_OK(ncclRecv(x, (size_t)count, ncclInt32, (rank + ranks - 1) % ranks, comm, NULL));
        N_OK(ncclGroupEnd());
        N_OK(ncclGroupStart());
        for (int p = 0; p < ranks; p++) {
            int *part = x + (size_t)p * (size_t)count;
            N_OK(ncclSend(part, (size_t)count, ncclInt32, p, comm, NULL));
            N_OK(ncclRecv(part, (size_t)count, ncclInt32, p, comm, NULL));
        }
        N_OK(ncclGroupEnd());
    }
    free(x);
    N_OK(ncclCommDestroy(comm));
}

/* alltoall as nccl-tests make it where a NCCL has none, and as torch does always. */
static void an_alltoall_of_messages(void) {
    enum { MOST = 16 };
    ncclComm_t comm = world();
    int out[MOST * COUNT], in[MOST * COUNT];
    T_CHECK(ranks <= MOST);
    for (int p = 0; p < ranks; p++) fill(out + p * COUNT, COUNT, 100 * rank + p);
    N_OK(ncclGroupStart());
    for (int p = 0; p < ranks; p++) { /* each rank another count: alltoallv */
        N_OK(ncclSend(out + p * COUNT, (size_t)(COUNT - p), ncclInt32, p, comm, NULL));
        N_OK(ncclRecv(in + p * COUNT, (size_t)(COUNT - rank), ncclInt32, p, comm, NULL));
    }
    N_OK(ncclGroupEnd());
    for (int p = 0; p < ranks; p++)
        holds(in + p * COUNT, (size_t)(COUNT - rank), 100 * p + rank, 1);
    N_OK(ncclCommDestroy(comm));
}

static void nested_groups(void) {
    ncclComm_t comm = world();
    int x[2] = {rank + 1, rank + 1};
    N_OK(ncclGroupStart());
    N_OK(ncclAllReduce(&x[0], &x[0], 1, ncclInt32, ncclSum, comm, NULL));
    N_OK(ncclGroupStart());
    N_OK(ncclAllReduce(&x[1], &x[1], 1, ncclInt32, ncclMax, comm, NULL));
    N_OK(ncclGroupEnd());
    T_EQ(x[0], rank + 1); /* nothing has run yet */
    N_OK(ncclGroupEnd());
    T_EQ(x[0], sum_of_ranks(ranks));
    T_EQ(x[1], ranks);
    N_ERR(ncclGroupEnd(), ncclInvalidUsage);
    N_OK(ncclCommDestroy(comm));
}

/* ---- life ------------------------------------------------------------------------------------ */

static void made_in_a_group(void) {
    ncclComm_t comm = NULL;
    ncclConfig_t config = n_config(NCCL_VERSION_CODE, sizeof config);
    int x = 1;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    config.commName = "grouped";
    ncclUniqueId id = shared_id();
    N_OK(ncclGroupStart());
    N_OK(ncclCommInitRankConfig(&comm, ranks, id, rank, &config));
    T_CHECK(comm != NULL);
    N_REFUSED(ncclCommCount(comm, &x), ncclInvalidUsage, "has not ended");
    N_ERR(ncclAllReduce(&x, &x, 1, ncclInt32, ncclSum, comm, NULL), ncclInvalidUsage);
    N_ERR(ncclGroupEnd(), ncclInvalidUsage); /* a call was refused: it runs none */
    T_CHECK(comm == NULL);
    x = 1;
    id = shared_id();
    N_OK(ncclGroupStart());
    N_OK(ncclCommInitRankConfig(&comm, ranks, id, rank, &config));
    N_OK(ncclGroupEnd());
    N_OK(ncclAllReduce(&x, &x, 1, ncclInt32, ncclSum, comm, NULL));
    T_EQ(x, ranks);
    N_OK(ncclCommDestroy(comm));
}

static void splits(void) {
    ncclComm_t comm = world(), child = comm, same = NULL;
    int n, me, x = 1;
    const int color = rank % 2 ? -2 : 0; /* any but NCCL_SPLIT_NOCOLOR */
    N_OK(ncclCommSplit(comm, rank ? color : NCCL_SPLIT_NOCOLOR, -rank, &child, NULL));
    if (!rank) T_CHECK(child == NULL);
    N_OK(ncclGroupStart());
    N_OK(ncclCommSplit(comm, 0, -rank, &same, NULL));
    N_OK(ncclGroupEnd());
    N_OK(ncclCommUserRank(same, &me));
    T_EQ(me, ranks - 1 - rank);
    N_OK(ncclCommDestroy(comm)); /* its children live on */
    if (child) {
        N_OK(ncclAllReduce(&x, &x, 1, ncclInt32, ncclSum, child, NULL));
        N_OK(ncclCommCount(child, &n));
        T_EQ(x, n);
        N_OK(ncclCommDestroy(child));
    }
    N_OK(ncclCommDestroy(same));
}

static void shrinks(void) {
    ncclComm_t comm = world(), child = NULL;
    int gone = 0, n;
    if (rank && ranks > 1) {
        N_OK(ncclCommShrink(comm, &gone, 1, &child, NULL, NCCL_SHRINK_DEFAULT));
        N_OK(ncclCommCount(child, &n));
        T_EQ(n, ranks - 1);
        N_OK(ncclCommDestroy(child));
    }
    MPI_Barrier(MPI_COMM_WORLD);
    N_OK(ncclCommDestroy(comm));
}

static void await(ncclComm_t comm) {
    ncclResult_t now = ncclInProgress;
    while (now == ncclInProgress) N_OK(ncclCommGetAsyncError(comm, &now));
    N_OK(now);
}

static void made_without_blocking(void) {
    ncclComm_t comm = NULL, child = NULL;
    ncclConfig_t config = n_config(NCCL_VERSION_CODE, sizeof config);
    int x = 1;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    config.blocking = 0;
    ncclResult_t r = ncclCommInitRankConfig(&comm, ranks, shared_id(), rank, &config);
    T_CHECK(r == ncclSuccess || r == ncclInProgress);
    T_CHECK(comm != NULL);
    await(comm);
    r = ncclCommSplit(comm, 0, rank, &child, NULL);
    T_CHECK(r == ncclSuccess || r == ncclInProgress);
    await(comm);
    await(child);
    N_OK(ncclAllReduce(&x, &x, 1, ncclInt32, ncclSum, child, NULL));
    T_EQ(x, ranks);
    N_OK(ncclCommDestroy(child));
    N_OK(ncclCommDestroy(comm));
}

static void ids_for_many_roots(void) {
    ncclComm_t comm = NULL;
    ncclUniqueId ids[2];
    int x = 1;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    ids[0] = shared_id();
    ids[1] = shared_id();
    N_REFUSED(ncclCommInitRankScalable(&comm, ranks, rank, ranks + 1, ids, NULL),
              ncclInvalidArgument, "nId=");
    N_OK(ncclCommInitRankScalable(&comm, ranks, rank, ranks > 1 ? 2 : 1, ids, NULL));
    N_OK(ncclAllReduce(&x, &x, 1, ncclInt32, ncclSum, comm, NULL));
    T_EQ(x, ranks);
    N_OK(ncclCommDestroy(comm));
}

/* Blocking or not. */
static void ids_of_any_rank(void) {
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    for (int i = 0; i < 2 * ranks; i++) {
        ncclComm_t comm = NULL;
        ncclConfig_t config = n_config(NCCL_VERSION_CODE, sizeof config);
        int x = 1;
        config.blocking = i % 2;
        const ncclResult_t r = ncclCommInitRankConfig(&comm, ranks, id_of(i / 2), rank, &config);
        T_CHECK(r == ncclSuccess || r == ncclInProgress);
        await(comm);
        N_OK(ncclAllReduce(&x, &x, 1, ncclInt32, ncclSum, comm, NULL));
        T_EQ(x, ranks);
        N_OK(ncclCommDestroy(comm));
    }
}

/* A watchdog ends it; the others get an error, and a new communicator is made. */
static void an_abort(void) {
    ncclComm_t comm = world();
    int x = 1;
    if (!rank) {
        N_OK(ncclCommAbort(comm));
    } else {
        ncclResult_t r, now = ncclSuccess;
        while ((r = ncclAllReduce(&x, &x, 1, ncclInt32, ncclSum, comm, NULL)) == ncclSuccess) {
        }
        T_EQ(r, ncclRemoteError);
        N_OK(ncclCommGetAsyncError(comm, &now));
        T_EQ(now, ncclRemoteError);
        N_OK(ncclCommAbort(comm));
    }
    comm = world();
    x = 1;
    N_OK(ncclAllReduce(&x, &x, 1, ncclInt32, ncclSum, comm, NULL));
    T_EQ(x, ranks);
    N_OK(ncclCommDestroy(comm));
}

typedef struct {
    long fds, pages, resident; /* of this process; pages are of addresses */
} holding;

static holding held(void) {
    holding h = {0, 0, 0};
    DIR *d = opendir("/proc/self/fd");
    FILE *f = fopen("/proc/self/statm", "r");
    T_CHECK(d && f && fscanf(f, "%ld %ld", &h.pages, &h.resident) == 2);
    while (readdir(d)) h.fds++;
    closedir(d);
    fclose(f);
    return h;
}

/* Made, used with a window, destroyed, 200 times: after the first few nothing grows any more. */
static void two_hundred_communicators(void) {
    holding early = {0, 0, 0};
    for (int i = 0; i < 200; i++) {
        ncclComm_t comm = world();
        ncclWindow_t win;
        int *a;
        N_OK(ncclMemAlloc((void **)&a, 1 << 20));
        N_OK(ncclCommWindowRegister(comm, a, 1 << 20, &win, NCCL_WIN_COLL_SYMMETRIC));
        *a = rank + 1;
        N_OK(ncclAllReduce(a, a, 1, ncclInt32, ncclSum, comm, NULL));
        T_EQ(*a, sum_of_ranks(ranks));
        N_OK(ncclCommWindowDeregister(comm, win));
        N_OK(ncclCommDestroy(comm));
        N_OK(ncclMemFree(a));
        if (i == 19) early = held();
    }
    const holding late = held();
    const long spare = (1 << 20) / getpagesize(); /* the allocator's own, and MPI's */
    T_EQ(late.fds, early.fds);
    T_CHECKF(late.pages <= early.pages + spare, "%ld pages of addresses, were %ld", late.pages,
             early.pages);
    /* AddressSanitizer keeps what was freed for a while. */
    T_CHECKF(T_ASAN || late.resident <= early.resident + spare, "%ld pages of memory, were %ld",
             late.resident, early.resident);
}

T_MAIN_MPI(T(who_is_who), T(collectives), T(collectives_on_windows),
           T(handles_as_kernels_read_them), T(buffers_that_run_past_their_window),
           T(memory_ends_under_its_window), T(registrations_of_one_rank), T(premulsum_in_a_group),
           T(a_ring_of_messages), T(puts_and_signals), T(messages_in_place),
           T(an_alltoall_of_messages), T(nested_groups), T(made_in_a_group), T(splits), T(shrinks),
           T(made_without_blocking), T(ids_for_many_roots), T(ids_of_any_rank), T(an_abort),
           T(two_hundred_communicators))
