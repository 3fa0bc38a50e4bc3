/* fault_nccl.c - the drop-in where things go wrong: each call of the CUDA driver refused in turn
 * (fake driver, thread ranks), and bad input, for which programs get NCCL's own codes, every rank
 * alike. No lock. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "nccl_kit.h"
#include "refuse_kit.h"

/* ---- the driver refuses --------------------------------------------------------------------- */

static ncclComm_t comms[RANKS];
static int hits[GK_CALLS]; /* calls of the driver between arm and disarm */
static gk_calls armed;

/* From here to disarm the nth call of `name` is refused; "": none. */
static void arm(const char *name, int nth) {
    armed = gk_count();
    if (*name) fake_cuda_fail(name, nth, CODE);
}
static void disarm(void) {
    fake_cuda_fail("cuInit", 1, 0);
    for (int i = 0; fake_cuda_call_name(i); i++) hits[i] = calls_of(&armed, i);
}

/* One of NCCL's codes, with a text. */
static int failed(ncclResult_t r, const char *name, int nth) {
    T_CHECKF(r <= ncclRemoteError, "%s %d: code %d", name, nth, (int)r);
    T_CHECKF(!r || *ncclGetLastError(NULL), "%s %d: code %d without a text", name, nth, (int)r);
    return r != ncclSuccess;
}

static void check_works(void *const *mem, const char *name, int nth) {
    for (int r = 0; r < RANKS; r++) {
        int had = gk_last(r).count;
        const ncclResult_t code = ncclBroadcast(mem[r], mem[r], 1, ncclInt8, 0, comms[r], NULL);
        T_CHECKF(!code && gk_last(r).count == had + 1, "%s %d: afterwards: %s", name, nth,
                 ncclGetLastError(NULL));
    }
}

static void end_all(void) {
    for (int r = 0; r < RANKS; r++) N_OK(ncclCommDestroy(comms[r]));
}

static int act_create(const char *name, int nth) {
    memset(comms, 0, sizeof comms);
    arm(name, nth);
    const int bad = failed(ncclCommInitAll(comms, RANKS, NULL), name, nth);
    disarm();
    for (int r = 0; r < RANKS; r++) T_EQ(comms[r] != NULL, !bad);
    if (!bad) end_all();
    return bad;
}

static void fill_windows(void *const *mem, ncclWindow_t *win) {
    for (int r = 0; r < RANKS; r++) {
        win[r] = NULL;
        N_OK(ncclCommWindowRegister(comms[r], mem[r], WIN, &win[r], NCCL_WIN_COLL_SYMMETRIC));
    }
}

/* In one group, as nccl-tests do: on all ranks or on none; then the same again. */
static int act_register(const char *name, int nth) {
    void *mem[RANKS];
    ncclWindow_t win[RANKS];
    for (int r = 0; r < RANKS; r++) mem[r] = gk_memory(r, WIN);
    arm(name, nth);
    N_OK(ncclGroupStart());
    fill_windows(mem, win);
    const int bad = failed(ncclGroupEnd(), name, nth);
    disarm();
    for (int r = 0; r < RANKS; r++) T_EQ(win[r] != NULL, !bad);
    check_works(mem, name, nth);
    if (bad) {
        N_OK(ncclGroupStart());
        fill_windows(mem, win);
        N_OK(ncclGroupEnd());
    }
    for (int r = 0; r < RANKS; r++) {
        N_OK(ncclCommWindowDeregister(comms[r], win[r]));
        N_OK(ncclMemFree(mem[r]));
    }
    return bad;
}

/* A refused launch may end the communicator; then it says so, and can be ended. */
static int act_launch(const char *name, int nth) {
    cu_stream stream[2] = {gk_stream(0), gk_stream(0)};
    void *x = gk_memory(0, WIN);
    int bad = 0;
    T_OK(symm_cuda_set(1));
    arm(name, nth);
    for (int i = 0; i < 4 && !bad; i++)
        bad = failed(ncclAllReduce(x, x, 8, ncclInt32, ncclSum, comms[0], gk_user(stream[i / 2])),
                     name, nth);
    disarm();
    T_CHECKF(gk_device() == 1, "%s %d: device %d is current", name, nth, gk_device());
    N_OK(ncclMemFree(x));
    return bad;
}

typedef struct {
    int (*act)(const char *name, int nth);
    int made; /* 1: over communicators that are there */
} phase_of;

static int once(const phase_of *p, const char *name, int nth) {
    if (p->made) N_OK(ncclCommInitAll(comms, RANKS, NULL));
    const int bad = p->act(name, nth);
    if (p->made)
        for (int r = 0; r < RANKS; r++) N_OK(ncclCommAbort(comms[r]));
    return bad;
}

static void refuse_each(const phase_of *p, int at_least) {
    int met = 0, count[GK_CALLS];
    T_EXPECT_WARNINGS();
    gk_start(RANKS, 0);
    T_EQ(once(p, "", 0), 0);
    memcpy(count, hits, sizeof count);
    for (int call = 0; fake_cuda_call_name(call); call++) {
        const char *name = fake_cuda_call_name(call);
        if (gives_back(name) || !strcmp(name, "cuInit")) continue;
        for (int i = 0, nth; (nth = hit_of(i, count[call])) > 0; i++) {
            const fk_gauges gauges = fk_take();
            gk_start(RANKS, 0);
            met += once(p, name, nth);
            FK_UNCHANGED(&gauges);
            T_EQ(once(p, "", 0), 0); /* the same process can do it again */
            FK_UNCHANGED(&gauges);
        }
    }
    T_CHECKF(met >= at_least, "only %d refusals were met", met);
}

static void refusals_in_creation(void) {
    static const phase_of p = {act_create, 0};
    refuse_each(&p, 30);
}
static void refusals_in_registration(void) {
    static const phase_of p = {act_register, 1};
    refuse_each(&p, 8);
}
static void refusals_of_launches(void) {
    static const phase_of p = {act_launch, 1};
    refuse_each(&p, 4);
}

static void devices_that_are_not_there(void) {
    T_EXPECT_WARNINGS();
    static const int far[] = {0, 9};
    gk_start(RANKS, 0);
    N_REFUSED(ncclCommInitAll(comms, RANKS, far), ncclInvalidArgument, "devices[1]=9");
    N_REFUSED(ncclCommInitAll(comms, 3, NULL), ncclInvalidArgument, "there are 2 GPUs");
}

/* ---- bad input, on the host backend --------------------------------------------------------- */

enum { FORKED = 3 };
typedef struct {
    kit k;
    ncclUniqueId id;
} meeting;

static ncclComm_t meet(meeting *m, int rank, int n) {
    ncclComm_t comm = NULL;
    setenv("SYMM_BACKEND", "host", 1);
    if (!rank) N_OK(ncclGetUniqueId(&m->id));
    kit_barrier(&m->k, n);
    N_OK(ncclCommInitRank(&comm, n, m->id, rank));
    return comm;
}

static void forked(t_rank_fn fn) {
    meeting *m = T_SHARED(sizeof *m);
    T_EXPECT_WARNINGS();
    T_FORK(FORKED, fn, m);
}

static void sums(ncclComm_t comm) {
    int x = 1;
    N_OK(ncclAllReduce(&x, &x, 1, ncclInt32, ncclSum, comm, NULL));
    T_EQ(x, FORKED);
}

/* Refused on every rank alike, and the communicator goes on. */
static void bad_arguments(int rank, int n, void *arg) {
    int64_t x[8] = {0}, y[8] = {0};
    ncclComm_t comm = meet(arg, rank, n);
    for (int t = -1; t < 100; t = t < 0 ? ncclNumTypes : t + 40)
        N_REFUSED(ncclAllReduce(x, y, 1, (ncclDataType_t)t, ncclSum, comm, NULL),
                  ncclInvalidArgument, "datatype");
    N_REFUSED(ncclAllReduce(x, y, 1, ncclInt64, (ncclRedOp_t)ncclNumOps, comm, NULL),
              ncclInvalidArgument, "op");
    N_ERR(ncclReduce(x, y, 1, ncclInt64, (ncclRedOp_t)-1, 0, comm, NULL), ncclInvalidArgument);
    N_ERR(ncclAllReduce(x, y, SIZE_MAX / 4, ncclInt64, ncclSum, comm, NULL), ncclInvalidArgument);
    N_ERR(ncclAllGather(x, y, SIZE_MAX / 16, ncclInt64, comm, NULL), ncclInvalidArgument);
    N_REFUSED(ncclBroadcast(x, y, 1, ncclInt64, n, comm, NULL), ncclInvalidArgument, "root=3");
    N_REFUSED(ncclGather(x, y, 1, ncclInt64, -1, comm, NULL), ncclInvalidArgument, "root=-1");
    N_REFUSED(ncclSend(x, 1, ncclInt64, n, comm, NULL), ncclInvalidArgument, "peer=3");
    N_ERR(ncclRecv(x, SIZE_MAX / 4, ncclInt64, 0, comm, NULL), ncclInvalidArgument);
    N_ERR(ncclAllReduce(NULL, y, 1, ncclInt64, ncclSum, comm, NULL), ncclInvalidArgument);
    N_ERR(ncclAllReduce(x, x + 1, 4, ncclInt64, ncclSum, comm, NULL), ncclInvalidArgument);
    N_REFUSED(ncclAlltoAll(x, x + 1, 1, ncclInt64, comm, NULL), ncclInvalidArgument,
              "overlap; in place means sendbuff == recvbuff");
    N_REFUSED(ncclAlltoAll(x, x, 1, (ncclDataType_t)77, comm, NULL), ncclInvalidArgument,
              "datatype=77");
    N_REFUSED(ncclAlltoAll(x, x, SIZE_MAX / 2, ncclInt8, comm, NULL), ncclInvalidArgument,
              "count=");
    N_ERR(ncclAlltoAll(x, x, SIZE_MAX / 16, ncclInt64, comm, NULL), ncclInvalidArgument);
    N_ERR(ncclAlltoAll((void *)8, (void *)8, 1, ncclInt64, comm, NULL), ncclInvalidArgument);
    N_ERR(ncclGroupEnd(), ncclInvalidUsage);
    sums(comm);
    N_OK(ncclCommDestroy(comm));
}

static void no_bytes_are_no_memory(void) {
    void *p = &p;
    setenv("SYMM_BACKEND", "host", 1);
    N_OK(ncclMemAlloc(&p, 0));
    T_CHECK(!p);
    N_OK(ncclMemFree(p));
}

static void bad_arguments_get_nccls_code(void) {
    forked(bad_arguments);
}

/* Ranks that differ: all are told, with who called what. */
static void differ(int rank, int n, void *arg) {
    int x[8] = {0};
    ncclResult_t now = ncclSuccess;
    ncclComm_t comm = meet(arg, rank, n);
    N_REFUSED(ncclAllReduce(x, x, rank == 2 ? 5 : 4, ncclInt32, ncclSum, comm, NULL),
              ncclInvalidUsage, "rank 2");
    N_OK(ncclCommGetAsyncError(comm, &now));
    T_EQ(now, ncclInvalidUsage);
    N_OK(ncclCommAbort(comm));
    comm = meet(arg, rank, n); /* a root goes ahead, and is told in its next call */
    if (rank == 0) N_OK(ncclBroadcast(x, x, 1, ncclInt32, 0, comm, NULL));
    N_REFUSED(ncclAllGather(x + rank, x, 1, ncclInt32, comm, NULL), ncclInvalidUsage, "symmBroad");
    N_OK(ncclCommAbort(comm));
    comm = meet(arg, rank, n);
    N_REFUSED(ncclAlltoAll(x, rank ? x : x + n, 1, ncclInt32, comm, NULL), ncclInvalidUsage,
              "in place");
    N_OK(ncclCommAbort(comm));
}

/* Without elements a collective is this rank's alone, as in NCCL: no other rank makes the same. */
static void empty_calls(ncclComm_t comm, int n) {
    N_OK(ncclAllReduce(NULL, NULL, 0, ncclInt8, ncclMax, comm, NULL));
    N_OK(ncclAllGather(NULL, NULL, 0, ncclInt8, comm, NULL));
    N_OK(ncclReduceScatter(NULL, NULL, 0, ncclFloat64, ncclAvg, comm, NULL));
    N_OK(ncclBroadcast(NULL, NULL, 0, ncclInt8, n - 1, comm, NULL));
    N_OK(ncclBcast(NULL, 0, ncclInt8, 0, comm, NULL));
    N_OK(ncclReduce(NULL, NULL, 0, ncclInt8, ncclSum, n - 1, comm, NULL));
    N_OK(ncclAlltoAll(NULL, NULL, 0, ncclInt8, comm, NULL));
    N_OK(ncclGather(NULL, NULL, 0, ncclInt8, n - 1, comm, NULL));
    N_OK(ncclScatter(NULL, NULL, 0, ncclInt8, n - 1, comm, NULL));
    N_OK(ncclScatterConfig(NULL, NULL, 0, ncclInt8, n - 1, comm, NULL, NULL));
}

/* Its arguments are looked at all the same. */
static void bad_empty_calls(ncclComm_t comm, int n) {
    int scalar = 3;
    ncclRedOp_t op;
    N_OK(ncclRedOpCreatePreMulSum(&op, &scalar, ncclInt32, ncclScalarHostImmediate, comm));
    N_OK(ncclReduce(NULL, NULL, 0, ncclInt32, op, 0, comm, NULL));
    N_OK(ncclRedOpDestroy(op, comm));
    N_ERR(ncclReduce(NULL, NULL, 0, ncclInt32, op, 0, comm, NULL), ncclInvalidArgument);
    N_REFUSED(ncclAllReduce(NULL, NULL, 0, ncclNumTypes, ncclSum, comm, NULL), ncclInvalidArgument,
              "datatype=12");
    N_REFUSED(ncclBroadcast(NULL, NULL, 0, ncclInt8, n, comm, NULL), ncclInvalidArgument, "root=3");
    N_OK(ncclGroupStart()); /* one that is refused takes its group along */
    N_OK(ncclSend(&scalar, 1, ncclInt32, 0, comm, NULL));
    N_ERR(ncclGather(NULL, NULL, 0, ncclInt8, -1, comm, NULL), ncclInvalidArgument);
    N_ERR(ncclGroupEnd(), ncclInvalidArgument);
}

static void empty_on_some(int rank, int n, void *arg) {
    int x = rank;
    ncclComm_t comm = meet(arg, rank, n);
    if (!rank) empty_calls(comm, n);
    if (rank == 1) bad_empty_calls(comm, n);
    N_OK(ncclGroupStart());
    if (rank) empty_calls(comm, n);
    N_OK(ncclAllReduce(&x, &x, 1, ncclInt32, ncclMax, comm, NULL));
    N_OK(ncclGroupEnd());
    T_EQ(x, n - 1);
    N_OK(ncclCommDestroy(comm));
}

static void collectives_of_nothing(void) {
    forked(empty_on_some);
}

/* Of a new rank's variables the old ones hear, too. */
static void grow_by_a_wrong_one(int rank, int n, void *arg) {
    meeting *m = arg;
    const int old = rank < n - 1;
    ncclComm_t comm = NULL, more = NULL;
    setenv("SYMM_BACKEND", "host", 1);
    if (!rank) N_OK(ncclGetUniqueId(&m->id));
    kit_barrier(&m->k, n);
    if (old) N_OK(ncclCommInitRank(&comm, n - 1, m->id, rank));
    if (!rank) N_OK(ncclCommGetUniqueId(comm, &m->id));
    kit_barrier(&m->k, n);
    if (!old) setenv("SYMM_NCCL", "maybe", 1);
    N_REFUSED(ncclCommGrow(comm, n, old && rank ? NULL : &m->id, old ? -1 : rank, &more, NULL),
              ncclInvalidArgument, "rank 2: SYMM_NCCL=maybe: must be one of auto, native, forward");
    T_CHECK(!more);
    if (!old) return;
    N_OK(ncclAllReduce(&rank, &n, 1, ncclInt32, ncclSum, comm, NULL));
    T_EQ(n, 1);
    N_OK(ncclCommDestroy(comm));
}

static void a_new_rank_that_is_wrong(void) {
    forked(grow_by_a_wrong_one);
}

static void ranks_that_differ_are_told(void) {
    forked(differ);
}

/* An id serves one communicator, on every rank. */
static void twice(int rank, int n, void *arg) {
    meeting *m = arg;
    ncclComm_t comm = meet(m, rank, n), other = comm;
    const ncclResult_t r = ncclCommInitRank(&other, n, m->id, rank);
    T_CHECKF(r == (rank ? ncclRemoteError : ncclInvalidUsage), "%d", (int)r);
    T_CHECK(!other);
    sums(comm);
    N_OK(ncclCommDestroy(comm));
}

static void an_id_used_twice(void) {
    forked(twice);
}

/* An id of a process that is no rank, the last one, which is there until the communicator is. */
static void launched(int rank, int n, void *arg) {
    meeting *m = arg;
    ncclComm_t comm = NULL;
    int x = 1;
    setenv("SYMM_BACKEND", "host", 1);
    if (rank == n - 1) N_OK(ncclGetUniqueId(&m->id));
    kit_barrier(&m->k, n);
    if (rank < n - 1) N_OK(ncclCommInitRank(&comm, n - 1, m->id, rank));
    kit_barrier(&m->k, n);
    if (rank == n - 1) raise(SIGKILL);
    N_OK(ncclAllReduce(&x, &x, 1, ncclInt32, ncclSum, comm, NULL));
    T_EQ(x, n - 1);
    N_OK(ncclCommDestroy(comm));
}

static void an_id_of_a_launcher(void) {
    meeting *m = T_SHARED(sizeof *m);
    T_FORK_DIES(FORKED + 1, FORKED, launched, m);
}

/* Every rank makes the id itself, of an address. Rank 0 comes later than a listener that has ended
 * is waited for; and again at once, while connections of the one before end. */
typedef struct {
    kit k;
    char at[32];
} place;
static void make_at(const char *at, int rank, int n) {
    ncclUniqueId id;
    ncclComm_t comm = NULL;
    int x = 1;
    setenv("NCCL_COMM_ID", at, 1);
    N_OK(ncclGetUniqueId(&id));
    N_OK(ncclCommInitRank(&comm, n, id, rank));
    N_OK(ncclAllReduce(&x, &x, 1, ncclInt32, ncclSum, comm, NULL));
    T_EQ(x, n);
    N_OK(ncclCommDestroy(comm));
}
static void met_at(int rank, int n, void *arg) {
    static const char *const bad[] = {
        "here",    "127.0.0.1", "127.0.0.1:", "127.0.0.1:0",  "127.0.0.1:x",
        "[::1:80", "::1:80",    ":80",        "1.2.3.4:70000"};
    place *p = arg;
    ncclUniqueId id;
    setenv("SYMM_BACKEND", "host", 1);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        setenv("NCCL_COMM_ID", bad[i], 1);
        N_REFUSED(ncclGetUniqueId(&id), ncclInvalidArgument, bad[i]);
    }
    if (!rank) sleep(3);
    for (int i = 0; i < 3; i++) make_at(p->at, rank, n);
    kit_barrier(&p->k, n);
    if (rank) return;
    /* Of no host. */
    setenv("NCCL_COMM_ID", "192.0.2.1:4711", 1);
    ncclComm_t comm = NULL;
    N_OK(ncclGetUniqueId(&id));
    N_REFUSED(ncclCommInitRank(&comm, n, id, 0), ncclSystemError, "cannot listen at 192.0.2.1");
}

static void an_id_by_an_address(void) {
    T_EXPECT_WARNINGS();
    place *p = T_SHARED(sizeof *p);
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof at;
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    T_EQ(bind(fd, (struct sockaddr *)&at, len), 0);
    T_EQ(getsockname(fd, (struct sockaddr *)&at, &len), 0);
    close(fd); /* a port that is free */
    snprintf(p->at, sizeof p->at, "127.0.0.1:%d", ntohs(at.sin_port));
    T_FORK(FORKED, met_at, p);
}

/* Windows of others, and those that ended; a bad registration on one rank is everybody's. */
static void bad_windows(int rank, int n, void *arg) {
    void *a, *p;
    ncclWindow_t win = NULL, none = NULL;
    ncclComm_t comm = meet(arg, rank, n), child = NULL;
    N_OK(ncclCommSplit(comm, 0, rank, &child, NULL));
    N_OK(ncclMemAlloc(&a, 1 << 20));
    N_OK(ncclCommWindowRegister(comm, a, 1 << 20, &win, 0));
    N_REFUSED(ncclCommWindowDeregister(child, win), ncclInvalidArgument, "another communicator");
    N_ERR(ncclCommWindowRegister(comm, a, rank == 1 ? SIZE_MAX : 1 << 20, &none, 0),
          ncclInvalidArgument);
    T_CHECK(!none);
    N_ERR(ncclGetPeerDevicePointer(win, 1 << 21, 0, &p), ncclInvalidArgument);
    N_ERR(ncclGetPeerDevicePointer(win, 0, n, &p), ncclInvalidArgument);
    N_OK(ncclCommWindowDeregister(comm, win));
    N_REFUSED(ncclGetPeerDevicePointer(win, 0, 0, &p), ncclInvalidArgument, "no window of symm");
    N_OK(ncclCommWindowRegister(comm, a, 1 << 20, &win, 0));
    N_OK(ncclCommDestroy(comm)); /* and its window with it */
    N_REFUSED(ncclGetPeerDevicePointer(win, 0, 0, &p), ncclInvalidArgument, "no window of symm");
    N_ERR(ncclCommWindowDeregister(comm, win), ncclInvalidArgument);
    N_OK(ncclCommDestroy(child));
    N_OK(ncclMemFree(a));
}

static void windows_that_are_none(void) {
    forked(bad_windows);
}

/* ---- what ranks wish to end ------------------------------------------------------------------ */

static void is_no_error(ncclComm_t comm) {
    ncclResult_t now = ncclInternalError;
    N_OK(ncclCommGetAsyncError(comm, &now));
    T_EQ(now, ncclSuccess);
}

/* Calls that do not fit have failed on all ranks before: as with NCCL's, that is over then. */
static void all_ranks_revoke(void) {
    T_EXPECT_WARNINGS();
    ncclResult_t now = ncclSuccess;
    int x[RANKS];
    N_OK(ncclCommInitAll(comms, RANKS, NULL));
    N_OK(ncclGroupStart());
    for (int r = 0; r < RANKS; r++)
        N_OK(ncclAllReduce(&x[r], &x[r], 1, ncclInt32, r ? ncclMax : ncclMin, comms[r], NULL));
    N_ERR(ncclGroupEnd(), ncclInvalidUsage);
    N_OK(ncclCommGetAsyncError(comms[0], &now));
    T_EQ(now, ncclInvalidUsage);
    for (int r = 0; r < RANKS; r++) N_OK(ncclCommRevoke(comms[r], 0));
    for (int r = 0; r < RANKS; r++) {
        is_no_error(comms[r]);
        N_REFUSED(ncclCommFinalize(comms[r]), ncclInvalidArgument, "was revoked");
    }
    end_all();
}

/* Programs ask the parent whether the child is made. */
static void a_shrink_that_ends_its_parent(void) {
    T_EXPECT_WARNINGS();
    int gone = RANKS - 1;
    ncclComm_t child[RANKS];
    N_OK(ncclCommInitAll(comms, RANKS, NULL));
    N_OK(ncclGroupStart());
    for (int r = 0; r < gone; r++)
        N_OK(ncclCommShrink(comms[r], &gone, 1, &child[r], NULL, NCCL_SHRINK_ABORT));
    N_OK(ncclGroupEnd());
    for (int r = 0; r < gone; r++) {
        is_no_error(comms[r]);
        is_no_error(child[r]);
        N_OK(ncclCommDestroy(child[r]));
    }
    end_all();
}

/* ---- ranks that end in any order ------------------------------------------------------------- */

enum { ABORTS, ABORTS_A_CALL, EXITS, DIES, WAYS, GONE = 1, SEEN_US = 300000 };

typedef struct {
    meeting m;
    int how;
} ending;

/* Rank GONE's end. Its last call stands still, and no other rank takes part in it. */
static void go(ncclComm_t comm, int how) {
    int x = 1;
    symmStream_t stream;
    if (how == ABORTS_A_CALL) {
        T_OK(symmStreamCreate(&stream));
        N_OK(ncclAllReduce(&x, &x, 1, ncclInt32, ncclSum, comm, (cudaStream_t)(void *)stream));
        usleep(50000);
    }
    if (how == ABORTS || how == ABORTS_A_CALL) N_OK(ncclCommAbort(comm));
    if (how == DIES) kill(getpid(), SIGKILL);
    exit(0);
}

/* A call of rank 2 needs the one that is gone. */
static void need(ncclComm_t comm) {
    ncclResult_t now = ncclSuccess;
    int x = 1;
    N_ERR(ncclAllReduce(&x, &x, 1, ncclInt32, ncclSum, comm, NULL), ncclRemoteError);
    N_OK(ncclCommGetAsyncError(comm, &now));
    T_EQ(now, ncclRemoteError);
    N_OK(ncclCommDestroy(comm));
}

/* Rank 0 has no call left and never hears of anything. */
static void end_quietly(ncclComm_t comm) {
    ncclResult_t now = ncclInternalError;
    N_OK(ncclCommGetAsyncError(comm, &now));
    T_EQ(now, ncclSuccess);
    N_OK(ncclCommFinalize(comm));
    N_OK(ncclCommDestroy(comm));
}

/* Rank 0 is there while rank 2 makes its call, or, if the other one has left in good order, not any
 * more: the call would wait for it. */
static void stay(ncclComm_t comm, int rank, ending *e) {
    const int first = e->how == EXITS ? 0 : 2;
    usleep(SEEN_US);
    if (rank != first) kit_barrier(&e->m.k, FORKED - 1);
    if (rank)
        need(comm);
    else
        end_quietly(comm);
    if (rank == first) kit_barrier(&e->m.k, FORKED - 1);
}

static void one_ends(int rank, int n, void *arg) {
    ending *e = arg;
    ncclComm_t comm = meet(&e->m, rank, n), child = NULL;
    sums(comm);
    N_OK(ncclCommSplit(comm, 0, rank, &child, NULL)); /* is as its parent */
    sums(child);
    N_OK(ncclCommDestroy(comm));
    kit_barrier(&e->m.k, n);
    if (rank == GONE) go(child, e->how);
    stay(child, rank, e);
}

static void who_needs_nobody_does_not_hear_of_an_end(void) {
    T_EXPECT_WARNINGS();
    for (int how = 0; how < WAYS; how++) {
        ending *e = T_SHARED(sizeof *e);
        e->how = how;
        T_FORK_DIES(FORKED, GONE, one_ends, e);
    }
}

T_MAIN(T_TIMEOUT(refusals_in_creation, 180), T_TIMEOUT(refusals_in_registration, 180),
       T_TIMEOUT(refusals_of_launches, 180), T(devices_that_are_not_there),
       T(bad_arguments_get_nccls_code), T(ranks_that_differ_are_told), T(collectives_of_nothing),
       T(a_new_rank_that_is_wrong), T(an_id_used_twice), T(an_id_of_a_launcher),
       T(an_id_by_an_address), T(no_bytes_are_no_memory), T(windows_that_are_none),
       T(all_ranks_revoke), T(a_shrink_that_ends_its_parent),
       T(who_needs_nobody_does_not_hear_of_an_end))
