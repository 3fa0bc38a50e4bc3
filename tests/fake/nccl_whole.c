/* nccl_whole.c - a whole NCCL, as the drop-in finds it: communicators of ranks that are threads or
 * processes of one machine, over host memory. libnccl-real.so is made of it, and with -DOLD
 * libnccl-real-old.so, which lacks some calls. As in NCCL a group runs its calls at its end, and
 * none if one was refused. Streams are not looked at (nccl_real_stream: the last one). Each rank
 * uses a communicator from one thread at a time; what ranks share are atomics.
 *
 * A test steers it: nccl_real_fail makes calls of that name fail (other words: see there),
 * nccl_real_live counts what is not destroyed, nccl_real_calls what was called, nccl_real_failed
 * what was made fail. */
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../../nccl-tests-plugin/symbols.h"

enum { RANKS = 16, DEPTH = 4, BYTES = 4096, QUEUE = 64, PATIENCE_MS = 1500, VERSION = 23007 };
/* What no header of 2.32 has: a type, of ints here, and a reduction, the sum of squares. */
enum { NEW_TYPE = ncclNumTypes, NEW_OP = ncclNumOps };
#define MAGIC  0x0280028002800280ull
#define EXPORT __attribute__((visibility("default")))

typedef struct {
    _Atomic uint64_t posted, taken;
    char data[DEPTH][BYTES];
} lane;
typedef struct {
    _Atomic int here, attached;
    lane rank[RANKS];
    struct {
        _Atomic int full;
        size_t bytes;
        char data[BYTES];
    } box[RANKS][RANKS];
} meeting;
struct ncclComm {
    uint64_t magic;
    int rank, n, children;
    uint64_t calls;
    meeting *m;
    char name[96];
    _Atomic ncclResult_t async; /* watchdogs ask, too */
    ncclComm_t later, *to;      /* a child, and where it goes when the parent has settled */
};

/* ---- what tests steer ------------------------------------------------------------------------ */

static char failing[64];
static int failing_rank;
static _Atomic int live, called, failed;
static void *_Atomic last_stream; /* of a collective */
static _Thread_local char text[160];

EXPORT void nccl_real_fail(const char *name, int rank) {
    snprintf(failing, sizeof failing, "%s", name);
    failing_rank = rank;
}
EXPORT int nccl_real_live(void) {
    return live;
}
EXPORT int nccl_real_calls(void) {
    return called;
}
EXPORT int nccl_real_failed(void) {
    return failed;
}
EXPORT void *nccl_real_stream(void) {
    return last_stream;
}

static ncclResult_t fails(const char *name, int rank) {
    called++;
    if (strcmp(failing, name) || (failing_rank >= 0 && rank >= 0 && failing_rank != rank))
        return ncclSuccess;
    failed++;
    snprintf(text, sizeof text, "%s was told to fail", name);
    return ncclInternalError;
}

static ncclResult_t wrong(const char *name) {
    snprintf(text, sizeof text, "%s: no communicator of this library", name);
    return ncclInvalidArgument;
}

#define MINE(call)                                                   \
    if (!comm || comm->magic != MAGIC) return refused(wrong(#call)); \
    if (fails(#call, comm->rank)) return refused(ncclInternalError)

/* ---- meeting --------------------------------------------------------------------------------- */

static meeting *attach(const char *name) {
    const int fd = shm_open(name, O_RDWR | O_CREAT, 0600);
    meeting *m = NULL;
    if (fd < 0) return NULL;
    if (!ftruncate(fd, sizeof *m))
        m = mmap(NULL, sizeof *m, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (m == MAP_FAILED) m = NULL;
    if (m) m->attached++;
    return m;
}

/* The last one takes the name away. */
static void detach(ncclComm_t c) {
    if (--c->m->attached == 0) shm_unlink(c->name);
    munmap(c->m, sizeof *c->m);
}

static ncclComm_t new_comm(const char *name, int rank, int n) {
    ncclComm_t c = calloc(1, sizeof *c);
    c->magic = MAGIC;
    c->rank = rank;
    c->n = n;
    snprintf(c->name, sizeof c->name, "%s", name);
    c->m = attach(name);
    live++;
    return c;
}

static pthread_mutex_t settling = PTHREAD_MUTEX_INITIALIZER; /* over later, to */
static ncclResult_t settle(ncclComm_t c) {
    pthread_mutex_lock(&settling);
    const ncclResult_t now = atomic_exchange(&c->async, ncclSuccess);
    /* Pairs with real_of in forward_life.c. */
    if (!now && c->to) __atomic_store_n(c->to, c->later, __ATOMIC_RELEASE), c->to = NULL;
    pthread_mutex_unlock(&settling);
    return now;
}

static void end_comm(ncclComm_t c) {
    if (settle(c)) settle(c);
    if (c->m) detach(c);
    c->magic = 0;
    free(c);
    live--;
}

/* ---- groups ---------------------------------------------------------------------------------- */

typedef enum { REDUCE, GATHER, SCATTER, BCAST, TOALL, RSCATTER, SEND, RECV, SPLIT } kind;
typedef struct {
    kind what;
    ncclComm_t comm, child;
    const char *send;
    char *recv;
    size_t in, out;    /* bytes of this rank's contribution, and of a rank's part of what it gets */
    int op, root, key; /* root -1: all ranks get it; the peer of a message; a split's color */
    uint64_t no;
} job;

static _Thread_local int depth, queued, bad; /* bad: a code */
static _Thread_local job queue[QUEUE];

static ncclResult_t refused(ncclResult_t r) {
    if (depth && !bad) bad = r;
    return r;
}

static void post(job *j) {
    meeting *m = j->comm->m;
    lane *l = &m->rank[j->comm->rank];
    if (j->what == RECV) return;
    if (j->what == SEND) {
        while (m->box[j->comm->rank][j->root].full) usleep(50);
        memcpy(m->box[j->comm->rank][j->root].data, j->send, j->in);
        m->box[j->comm->rank][j->root].full = 1;
        return;
    }
    j->no = j->comm->calls++;
    for (int r = 0; r < j->comm->n; r++)
        while (m->rank[r].taken + DEPTH <= j->no) usleep(50);
    if (j->what == SPLIT) {
        const int say[2] = {j->root, j->key};
        memcpy(l->data[j->no % DEPTH], say, sizeof say);
    } else if (j->send) {
        memcpy(l->data[j->no % DEPTH], j->send, j->in);
    }
    l->posted = j->no + 1;
}

static void reduce(const job *j, size_t at) {
    const meeting *m = j->comm->m;
    int *to = (int *)(void *)j->recv;
    for (size_t i = 0; i < j->out / sizeof(int); i++) {
        int sum = 0;
        for (int r = 0; r < j->comm->n; r++) {
            int x;
            memcpy(&x, m->rank[r].data[j->no % DEPTH] + at + i * sizeof x, sizeof x);
            if (j->op == NEW_OP) x *= x;
            sum = r == 0 ? x : j->op == ncclMax ? (x > sum ? x : sum) : sum + x;
        }
        to[i] = sum;
    }
}

/* Who has the child's rank: ordered by key, then by rank. */
static void be_child(const job *j) {
    const meeting *m = j->comm->m;
    int say[RANKS][2], rank = 0, n = 0;
    char name[96];
    for (int r = 0; r < j->comm->n; r++) memcpy(say[r], m->rank[r].data[j->no % DEPTH], 8);
    for (int r = 0; r < j->comm->n; r++) {
        if (say[r][0] != j->root) continue;
        n++;
        rank += say[r][1] < j->key || (say[r][1] == j->key && r < j->comm->rank);
    }
    snprintf(name, sizeof name, "%.60s-%d-%d", j->comm->name, (int)j->no, j->root);
    j->child->rank = rank;
    j->child->n = n;
    snprintf(j->child->name, sizeof j->child->name, "%s", name);
    j->child->m = attach(name);
}

static void collect_all(const job *j) {
    const int n = j->comm->n, me = j->comm->rank;
    const meeting *m = j->comm->m;
    const size_t k = j->no % DEPTH;
    if (j->what == SPLIT && j->child) be_child(j);
    if (j->root >= 0 && j->root != me && (j->what == REDUCE || j->what == GATHER)) return;
    if (j->what == REDUCE) reduce(j, 0);
    if (j->what == RSCATTER) reduce(j, (size_t)me * j->out);
    if (j->what == BCAST) memcpy(j->recv, m->rank[j->root].data[k], j->out);
    if (j->what == SCATTER) memcpy(j->recv, m->rank[j->root].data[k] + (size_t)me * j->out, j->out);
    for (int r = 0; r < n; r++) {
        char *to = j->recv + (size_t)r * j->out;
        if (j->what == GATHER) memcpy(to, m->rank[r].data[k], j->out);
        if (j->what == TOALL) memcpy(to, m->rank[r].data[k] + (size_t)me * j->out, j->out);
    }
}

static void collect(const job *j) {
    meeting *m = j->comm->m;
    const int me = j->comm->rank;
    if (j->what == SEND) return;
    if (j->what == RECV) {
        while (!m->box[j->root][me].full) usleep(50);
        memcpy(j->recv, m->box[j->root][me].data, j->out);
        m->box[j->root][me].full = 0;
        return;
    }
    for (int r = 0; r < j->comm->n; r++)
        while (m->rank[r].posted <= j->no) usleep(50);
    collect_all(j);
    m->rank[me].taken = j->no + 1;
}

static ncclResult_t run(job *j) {
    if (!depth) {
        post(j);
        collect(j);
    } else {
        queue[queued++] = *j;
    }
    return ncclSuccess;
}

ncclResult_t ncclGroupStart(void) {
    if (fails("ncclGroupStart", -1)) return ncclInternalError;
    if (!depth++) queued = 0, bad = ncclSuccess;
    return ncclSuccess;
}
NCCL_ALIAS(ncclGroupStart);
ncclResult_t ncclGroupEnd(void) {
    if (!depth) return ncclInvalidUsage;
    if (--depth) return ncclSuccess;
    if (fails("ncclGroupEnd", -1)) bad = ncclInternalError;
    for (int i = 0; !bad && i < queued; i++) post(&queue[i]);
    for (int i = 0; !bad && i < queued; i++) collect(&queue[i]);
    return (ncclResult_t)bad;
}
NCCL_ALIAS(ncclGroupEnd);

/* ---- life ------------------------------------------------------------------------------------ */

ncclResult_t ncclGetVersion(int *version) {
    *version = VERSION;
    return ncclSuccess;
}
NCCL_ALIAS(ncclGetVersion);
const char *ncclGetErrorString(ncclResult_t code) {
    return code ? "an error" : "no error";
}
NCCL_ALIAS(ncclGetErrorString);
const char *ncclGetLastError(ncclComm_t comm) {
    (void)comm;
    return text;
}
NCCL_ALIAS(ncclGetLastError);
ncclResult_t ncclGetUniqueId(ncclUniqueId *id) {
    static _Atomic int serial;
    if (fails("ncclGetUniqueId", -1)) return ncclInternalError;
    memset(id, 0, sizeof *id);
    snprintf(id->internal, sizeof id->internal, "/symm-nccl-real-%d-%d", (int)getpid(), ++serial);
    return ncclSuccess;
}
NCCL_ALIAS(ncclGetUniqueId);

/* As NCCL, which looks at the bus numbers of all ranks once they have come. */
static ncclResult_t end_init(ncclComm_t c, ncclComm_t *comm, const char *why) {
    snprintf(text, sizeof text, "%s", why);
    end_comm(c);
    *comm = NULL;
    return ncclInvalidUsage;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int n, ncclUniqueId id, int rank,
                                    ncclConfig_t *config) {
    if (fails("ncclCommInitRankConfig", rank)) return ncclInternalError;
    ncclComm_t c = new_comm(id.internal, rank, n);
    *comm = c;
    c->m->here++;
    for (int ms = 0; c->m->here < n; ms++) {
        if (ms == PATIENCE_MS) return end_init(c, comm, "a rank has not come");
        usleep(1000);
    }
    if (!strcmp(failing, "late") && rank == failing_rank) { /* when the others are done */
        usleep(150000);
        return end_init(c, comm, "it fails late");
    }
    if (!strcmp(failing, "slow")) { /* while the others are still inside */
        if (rank == failing_rank) return end_init(c, comm, "it fails soon");
        usleep(300000);
    }
    if (!strcmp(failing, "duplicate")) return end_init(c, comm, "Duplicate GPU detected");
    if (!config || config->blocking) return ncclSuccess;
    c->async = ncclInProgress;
    return ncclInProgress;
}
NCCL_ALIAS(ncclCommInitRankConfig);
ncclResult_t ncclCommInitAll(ncclComm_t *comms, int n, const int *devices) {
    ncclUniqueId id;
    (void)devices;
    if (fails("ncclCommInitAll", -1) || ncclGetUniqueId(&id) || *id.internal != '/')
        return ncclInternalError; /* or not its own id, but one of whoever was loaded first */
    for (int r = 0; r < n; r++) comms[r] = new_comm(id.internal, r, n);
    return ncclSuccess;
}
NCCL_ALIAS(ncclCommInitAll);

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *error) {
    MINE(ncclCommGetAsyncError);
    *error = settle(comm);
    return ncclSuccess;
}
NCCL_ALIAS(ncclCommGetAsyncError);

static ncclResult_t end(const char *name, ncclComm_t comm) {
    if (!comm || comm->magic != MAGIC) return wrong(name);
    const ncclResult_t r = fails(name, comm->rank);
    end_comm(comm);
    return r;
}
ncclResult_t ncclCommDestroy(ncclComm_t comm) {
    return end("ncclCommDestroy", comm);
}
NCCL_ALIAS(ncclCommDestroy);
ncclResult_t ncclCommAbort(ncclComm_t comm) {
    return end("ncclCommAbort", comm);
}
NCCL_ALIAS(ncclCommAbort);
ncclResult_t ncclCommFinalize(ncclComm_t comm) {
    MINE(ncclCommFinalize);
    return ncclSuccess;
}
NCCL_ALIAS(ncclCommFinalize);

ncclResult_t ncclCommCount(const ncclComm_t comm, int *count) {
    MINE(ncclCommCount);
    *count = comm->n;
    return ncclSuccess;
}
NCCL_ALIAS(ncclCommCount);
ncclResult_t ncclCommUserRank(const ncclComm_t comm, int *rank) {
    MINE(ncclCommUserRank);
    *rank = comm->rank;
    return ncclSuccess;
}
NCCL_ALIAS(ncclCommUserRank);
ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int *device) {
    MINE(ncclCommCuDevice);
    *device = comm->rank;
    return ncclSuccess;
}
NCCL_ALIAS(ncclCommCuDevice);

#ifndef OLD
/* As in NCCL: without a record it is the end. */
ncclResult_t ncclGroupSimulateEnd(ncclSimInfo_t *info) {
    if (info) queued = 0, info->estimatedTime = 3;
    return ncclGroupEnd();
}
NCCL_ALIAS(ncclGroupSimulateEnd);

/* Told "child later" it is as NCCL where the parent does not block. */
static void give_child(ncclComm_t parent, ncclComm_t child, ncclComm_t *to) {
    const int later = !strcmp(failing, "child later");
    *to = later ? NULL : child;
    pthread_mutex_lock(&settling);
    if (later) parent->later = child, parent->to = to, parent->async = ncclInProgress;
    pthread_mutex_unlock(&settling);
}

ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *newcomm,
                           ncclConfig_t *config) {
    (void)config;
    MINE(ncclCommSplit);
    job j = {.what = SPLIT, .comm = comm, .root = color, .key = key};
    if (color != NCCL_SPLIT_NOCOLOR) {
        j.child = calloc(1, sizeof *j.child);
        j.child->magic = MAGIC;
        live++;
    }
    give_child(comm, j.child, newcomm);
    return run(&j);
}
NCCL_ALIAS(ncclCommSplit);

ncclResult_t ncclCommShrink(ncclComm_t comm, int *excluded, int n, ncclComm_t *newcomm,
                            ncclConfig_t *config, int flags) {
    int rank = comm->rank;
    char name[96];
    (void)config, (void)flags;
    MINE(ncclCommShrink);
    for (int i = 0; i < n; i++) rank -= excluded[i] < comm->rank;
    snprintf(name, sizeof name, "%.60s-k%d", comm->name, comm->children++);
    give_child(comm, new_comm(name, rank, comm->n - n), newcomm);
    return ncclSuccess;
}
NCCL_ALIAS(ncclCommShrink);

ncclTeam_t ncclTeamWorld(ncclComm_t comm) {
    return (ncclTeam_t){comm->n, comm->rank, 1};
}
NCCL_ALIAS(ncclTeamWorld);
#endif

/* ---- calls ----------------------------------------------------------------------------------- */

static size_t bytes_of(size_t count, ncclDataType_t type) {
    static const int size[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
    return count * (size_t)((int)type == NEW_TYPE ? 4 : size[type]);
}

/* A reduction that is none, a type that is none. */
static int unknown(int type, int op) {
    if (type >= 0 && type <= NEW_TYPE && op >= 0 && op <= NEW_OP) return 0;
    snprintf(text, sizeof text, "type %d, reduction %d", type, op);
    return 1;
}

#define COLLECTIVE(name, params, ...)                                   \
    ncclResult_t name params {                                          \
        MINE(name);                                                     \
        if (unknown((int)type, 0)) return refused(ncclInvalidArgument); \
        const size_t b = bytes_of(count, type), n = (size_t)comm->n;    \
        (void)n;                                                        \
        last_stream = (void *)stream;                                   \
        job j = {.comm = comm, __VA_ARGS__};                            \
        if (unknown(0, j.op)) return refused(ncclInvalidArgument);      \
        return run(&j);                                                 \
    }                                                                   \
    NCCL_ALIAS(name)
#define FROM_TO const void *send, void *recv, size_t count, ncclDataType_t type
#define ON      ncclComm_t comm, cudaStream_t stream

COLLECTIVE(ncclAllReduce, (FROM_TO, ncclRedOp_t op, ON), .what = REDUCE, .send = send, .recv = recv,
           .in = b, .out = b, .op = (int)op, .root = -1);
COLLECTIVE(ncclReduce, (FROM_TO, ncclRedOp_t op, int root, ON), .what = REDUCE, .send = send,
           .recv = recv, .in = b, .out = b, .op = (int)op, .root = root);
COLLECTIVE(ncclAllGather, (FROM_TO, ON), .what = GATHER, .send = send, .recv = recv, .in = b,
           .out = b, .root = -1);
COLLECTIVE(ncclReduceScatter, (FROM_TO, ncclRedOp_t op, ON), .what = RSCATTER, .send = send,
           .recv = recv, .in = b * n, .out = b, .op = (int)op, .root = -1);
#ifndef OLD
COLLECTIVE(ncclAlltoAll, (FROM_TO, ON), .what = TOALL, .send = send, .recv = recv, .in = b * n,
           .out = b, .root = -1);
#endif
COLLECTIVE(ncclGather, (FROM_TO, int root, ON), .what = GATHER, .send = send, .recv = recv, .in = b,
           .out = b, .root = root);
COLLECTIVE(ncclScatter, (FROM_TO, int root, ON), .what = SCATTER,
           .send = comm->rank == root ? send : NULL, .recv = recv, .in = b * n, .out = b,
           .root = root);
COLLECTIVE(ncclBroadcast, (FROM_TO, int root, ON), .what = BCAST,
           .send = comm->rank == root ? send : NULL, .recv = recv, .in = b, .out = b, .root = root);

#ifndef OLD
/* The rest of these calls it lacks, as NCCL did before 2.31. */
ncclResult_t ncclAllReduceConfig(const void *send, void *recv, size_t count, ncclDataType_t type,
                                 ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream,
                                 const ncclCollConfig_t *config) {
    MINE(ncclAllReduceConfig);
    if (!config || config->minCTAs != 3) return refused(wrong("the config of ncclAllReduce"));
    return ncclAllReduce(send, recv, count, type, op, comm, stream);
}
NCCL_ALIAS(ncclAllReduceConfig);
#endif

ncclResult_t ncclSend(const void *send, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream) {
    MINE(ncclSend);
    job j = {.what = SEND, .comm = comm, .send = send, .in = bytes_of(count, type), .root = peer};
    (void)stream;
    return run(&j);
}
NCCL_ALIAS(ncclSend);
ncclResult_t ncclRecv(void *recv, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
    MINE(ncclRecv);
    job j = {.what = RECV, .comm = comm, .recv = recv, .out = bytes_of(count, type), .root = peer};
    (void)stream;
    return run(&j);
}
NCCL_ALIAS(ncclRecv);

/* ---- handles, which are numbers here --------------------------------------------------------- */

ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t *op, void *scalar, ncclDataType_t datatype,
                                      ncclScalarResidence_t residence, ncclComm_t comm) {
    MINE(ncclRedOpCreatePreMulSum);
    (void)scalar, (void)datatype, (void)residence;
    *op = ncclMax; /* what a test can tell from a sum */
    return ncclSuccess;
}
NCCL_ALIAS(ncclRedOpCreatePreMulSum);
ncclResult_t ncclRedOpDestroy(ncclRedOp_t op, ncclComm_t comm) {
    MINE(ncclRedOpDestroy);
    return op == ncclMax ? ncclSuccess : ncclInvalidArgument;
}
NCCL_ALIAS(ncclRedOpDestroy);

ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void *buff, size_t size, ncclWindow_t *win,
                                    int flags) {
    MINE(ncclCommWindowRegister);
    (void)size, (void)flags;
    *win = buff;
    return ncclSuccess;
}
NCCL_ALIAS(ncclCommWindowRegister);
ncclResult_t ncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t win) {
    MINE(ncclCommWindowDeregister);
    return win ? ncclSuccess : ncclInvalidArgument;
}
NCCL_ALIAS(ncclCommWindowDeregister);
ncclResult_t ncclGetLsaDevicePointer(ncclWindow_t win, size_t offset, int lsaRank, void **ptr) {
    *ptr = (char *)win + offset + lsaRank;
    return ncclSuccess;
}
NCCL_ALIAS(ncclGetLsaDevicePointer);
ncclResult_t ncclCommRegister(const ncclComm_t comm, void *buff, size_t size, void **handle) {
    MINE(ncclCommRegister);
    (void)size;
    *handle = buff;
    return ncclSuccess;
}
NCCL_ALIAS(ncclCommRegister);
ncclResult_t ncclCommDeregister(const ncclComm_t comm, void *handle) {
    MINE(ncclCommDeregister);
    return handle ? ncclSuccess : ncclInvalidArgument;
}
NCCL_ALIAS(ncclCommDeregister);

/* ---- what symm does not serve ---------------------------------------------------------------- */

#ifndef OLD
/* Into the own part of the window, whatever the peer. */
ncclResult_t ncclPutSignal(const void *local, size_t count, ncclDataType_t type, int peer,
                           ncclWindow_t win, size_t offset, int sig, int ctx, unsigned flags,
                           ncclComm_t comm, cudaStream_t stream) {
    MINE(ncclPutSignal);
    (void)stream;
    if (peer || sig != 3 || ctx != 4 || flags != 5) return refused(ncclInvalidArgument);
    memcpy((char *)win + offset, local, bytes_of(count, type));
    return ncclSuccess;
}
NCCL_ALIAS(ncclPutSignal);
ncclResult_t ncclCommSuspend(ncclComm_t comm, int flags) {
    MINE(ncclCommSuspend);
    return flags == 7 ? ncclSuccess : ncclInvalidArgument;
}
NCCL_ALIAS(ncclCommSuspend);
ncclResult_t ncclCommRevoke(ncclComm_t comm, int flags) {
    MINE(ncclCommRevoke);
    (void)flags;
    return ncclSuccess;
}
NCCL_ALIAS(ncclCommRevoke);
ncclTeam_t ncclTeamCftMultimem(ncclComm_t comm) {
    return (ncclTeam_t){comm->n, comm->rank, 5};
}
NCCL_ALIAS(ncclTeamCftMultimem);
ncclResult_t ncclGetLsaMultimemDevicePointer(ncclWindow_t win, size_t offset, void **ptr) {
    *ptr = (char *)win + offset + 100;
    return ncclSuccess;
}
NCCL_ALIAS(ncclGetLsaMultimemDevicePointer);
#endif
