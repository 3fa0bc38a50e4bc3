/* nccl_stub.c - an NCCL for symm-perf --vs nccl without a GPU: check_perf_gpu.sh makes libraries of
 * it beside perf_stub.c. -DOLD: one of before ncclAlltoAll, ncclGather and ncclScatter, windows and
 * 8-bit floats. Ranks are threads of one process.
 *
 * A call, or all of a group, is one host function of the stream. In it all ranks meet, and each
 * takes what it gets out of the others' buffers: collectives in their order, then the messages, the
 * n-th receive from a rank being of that rank's n-th send. Calls that do not fit together end the
 * program. A call of a group that fails refuses the group.
 *
 * What is refused says NCCL_STUB_REFUSES: init, windows (over the program's memory), all-windows,
 * buffers (on rank 1), memory, sends (on rank 1: the first that fails ends all, and how many say so
 * until then would be chance). NCCL_STUB_WRONG=1: the last byte of what a rank gets by each call is
 * wrong. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef OLD
enum { VERSION = 22203, TYPES = 10 };
#else
enum { VERSION = 22809, TYPES = 12 };
#endif
enum { RANKS = 8, OPS = 5, QUEUE = 64, REFUSED = 5 };

typedef struct {
    char internal[128];
} unique_id;
typedef struct {
    int rank, n;
} comm;
typedef enum { REDUCE, REDUCE_PARTS, BROADCAST, GATHER, SCATTER, ALLTOALL, SEND, RECV } kind;
typedef struct {
    kind what;
    int type, op, root; /* op -1: none; root -1: none; the peer of a message */
    size_t count;       /* of a part */
    const char *send;
    char *recv;
} action;
typedef struct {
    const comm *c;
    int collectives, messages;
    action collective[QUEUE], message[QUEUE];
} job;

int perf_stub_enqueue(void *stream, void (*fn)(void *), void *arg);
void *perf_stub_alloc(size_t bytes);
void perf_stub_free(void *at);
void perf_stub_reduce(void *dst, const void *const *src, int n, size_t count, int type, int op);

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t turn = PTHREAD_COND_INITIALIZER;
static int here, turns;
static const job *jobs[RANKS];

static int refuses(const char *what) {
    const char *said = getenv("NCCL_STUB_REFUSES");
    return said && !strcmp(said, what) ? REFUSED : 0;
}

static void must(int holds, const char *what) {
    if (holds) return;
    fprintf(stderr, "nccl_stub: %s\n", what);
    _Exit(1);
}

static void meet(int n) {
    pthread_mutex_lock(&lock);
    const int mine = turns;
    if (++here == n) {
        here = 0;
        turns++;
        pthread_cond_broadcast(&turn);
    }
    while (mine == turns) pthread_cond_wait(&turn, &lock);
    pthread_mutex_unlock(&lock);
}

/* ---- what a rank gets ---- */

static size_t bytes_of(const action *a) {
    static const unsigned char size[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
    return a->count * size[a->type];
}

static int parts(const action *a, int n, int rank) {
    const int takes = a->root < 0 || a->root == rank;
    if (a->what == GATHER) return takes ? n : 0;
    if (a->what == REDUCE) return takes;
    return a->what == ALLTOALL ? n : 1;
}

static void agree(const action *a, const action *b) {
    must(a->what == b->what && a->type == b->type && a->op == b->op && a->root == b->root &&
             a->count == b->count,
         "ranks call different things");
}

/* The i-th collective, into separate memory: in place, the others still read. */
static void take_collective(const job *j, int i, char *made) {
    const action *a = &j->collective[i];
    const int n = j->c->n, me = j->c->rank;
    const size_t bytes = bytes_of(a), at = (size_t)me * bytes;
    const void *from[RANKS];
    for (int r = 0; r < n; r++) {
        const action *b = &jobs[r]->collective[i];
        must(jobs[r]->collectives == j->collectives, "ranks call different numbers of collectives");
        agree(a, b);
        from[r] = b->send + (a->what == REDUCE_PARTS || a->what == ALLTOALL ? at : 0);
    }
    if (a->what == REDUCE || a->what == REDUCE_PARTS)
        perf_stub_reduce(made, from, n, a->count, a->type, a->op);
    if (a->what == BROADCAST) memcpy(made, from[a->root], bytes);
    if (a->what == SCATTER) memcpy(made, jobs[a->root]->collective[i].send + at, bytes);
    for (int r = 0; r < n && (a->what == GATHER || a->what == ALLTOALL); r++)
        memcpy(made + (size_t)r * bytes, from[r], bytes);
}

static void spoil(char *at, size_t bytes) {
    if (bytes && getenv("NCCL_STUB_WRONG")) at[bytes - 1] ^= 1;
}

static void play_collective(const job *j, int i) {
    const action *a = &j->collective[i];
    const size_t bytes = bytes_of(a) * (size_t)parts(a, j->c->n, j->c->rank);
    char *made = malloc(bytes + 1);
    if (bytes) take_collective(j, i, made);
    spoil(made, bytes);
    meet(j->c->n);
    if (bytes) memcpy(a->recv, made, bytes);
    meet(j->c->n);
    free(made);
}

/* The n-th message of this kind with that peer; NULL: there are not so many. */
static const action *message(const job *j, kind what, int peer, int n) {
    for (int i = 0; i < j->messages; i++) {
        const action *a = &j->message[i];
        if (a->what == what && a->root == peer && n-- == 0) return a;
    }
    return NULL;
}

/* All messages from one rank, into memory that take_message makes; the last one has no receive. */
static int take_message(const job *j, int from, int n, char **made) {
    const action *to = message(j, RECV, from, n), *of = message(jobs[from], SEND, j->c->rank, n);
    must(!to == !of, "a send or receive without the other");
    if (!to) return 0;
    must(bytes_of(to) == bytes_of(of), "a send and its receive differ in size");
    *made = malloc(bytes_of(to) + 1);
    memcpy(*made, of->send, bytes_of(to));
    spoil(*made, bytes_of(to));
    return 1;
}

static void play_messages(const job *j) {
    char *made[RANKS][QUEUE];
    int many[RANKS] = {0};
    for (int r = 0; r < j->c->n; r++)
        while (take_message(j, r, many[r], &made[r][many[r]])) many[r]++;
    meet(j->c->n);
    for (int r = 0; r < j->c->n; r++)
        for (int i = 0; i < many[r]; i++) {
            const action *to = message(j, RECV, r, i);
            memcpy(to->recv, made[r][i], bytes_of(to));
            free(made[r][i]);
        }
    meet(j->c->n);
}

static void play(void *arg) {
    const job *j = arg;
    jobs[j->c->rank] = j;
    meet(j->c->n);
    for (int i = 0; i < j->collectives; i++) play_collective(j, i);
    play_messages(j);
}

/* ---- calls and groups ---- */

static _Thread_local int depth, bad;
static _Thread_local job *open_job;
static _Thread_local void *open_stream;

/* A job is kept: a graph runs it again. */
static int post(void) {
    job *j = open_job;
    open_job = NULL;
    return j ? perf_stub_enqueue(open_stream, play, j) : 0;
}

static int call(action a, void *c, void *stream) {
    const int is_message = a.what == SEND || a.what == RECV;
    if (a.type < 0 || a.type >= TYPES || a.op >= OPS || a.root >= ((comm *)c)->n ||
        (a.what == SEND && ((comm *)c)->rank == 1 && refuses("sends")))
        return bad = REFUSED;
    if (!open_job) open_job = calloc(1, sizeof *open_job);
    open_job->c = c;
    open_stream = stream;
    int *many = is_message ? &open_job->messages : &open_job->collectives;
    must(*many < QUEUE, "a group of too many calls");
    (is_message ? open_job->message : open_job->collective)[(*many)++] = a;
    return depth ? 0 : post();
}

#define FROM_TO const void *send, void *recv, size_t count, int type
#define ON      void *c, void *stream
#define COLLECTIVE(name, params, kind_of_it, its_op, its_root)                                   \
    int name params {                                                                            \
        return call((action){kind_of_it, type, its_op, its_root, count, send, recv}, c, stream); \
    }
COLLECTIVE(ncclAllReduce, (FROM_TO, int op, ON), REDUCE, op, -1)
COLLECTIVE(ncclReduce, (FROM_TO, int op, int root, ON), REDUCE, op, root)
COLLECTIVE(ncclReduceScatter, (FROM_TO, int op, ON), REDUCE_PARTS, op, -1)
COLLECTIVE(ncclAllGather, (FROM_TO, ON), GATHER, -1, -1)
COLLECTIVE(ncclBroadcast, (FROM_TO, int root, ON), BROADCAST, -1, root)
#ifndef OLD
COLLECTIVE(ncclAlltoAll, (FROM_TO, ON), ALLTOALL, -1, -1)
COLLECTIVE(ncclGather, (FROM_TO, int root, ON), GATHER, -1, root)
COLLECTIVE(ncclScatter, (FROM_TO, int root, ON), SCATTER, -1, root)
#endif

int ncclSend(const void *send, size_t count, int type, int peer, void *c, void *stream) {
    return call((action){SEND, type, -1, peer, count, send, NULL}, c, stream);
}
int ncclRecv(void *recv, size_t count, int type, int peer, void *c, void *stream) {
    return call((action){RECV, type, -1, peer, count, NULL, recv}, c, stream);
}
int ncclGroupStart(void) {
    if (!depth++) bad = 0;
    return 0;
}
int ncclGroupEnd(void) {
    if (--depth) return 0;
    return bad ? bad : post();
}

/* ---- life and memory ---- */

int ncclGetVersion(int *version) {
    *version = VERSION;
    return 0;
}
int ncclGetUniqueId(unique_id *id) {
    memset(id, 0, sizeof *id);
    return 0;
}
int ncclCommInitRank(void **made, int n, unique_id id, int rank) {
    (void)id;
    if (refuses("init")) return REFUSED;
    comm *c = malloc(sizeof *c);
    *c = (comm){rank, n};
    *made = c;
    return 0;
}
int ncclCommDestroy(void *c) {
    free(c);
    return 0;
}
int ncclCommAbort(void *c) {
    return ncclCommDestroy(c);
}

int ncclMemAlloc(void **at, size_t bytes) {
    *at = refuses("memory") ? NULL : perf_stub_alloc(bytes);
    return *at ? 0 : REFUSED;
}
int ncclMemFree(void *at) {
    perf_stub_free(at);
    return 0;
}
int ncclCommRegister(void *c, void *at, size_t bytes, void **handle) {
    (void)bytes;
    *handle = at;
    return refuses("buffers") && ((const comm *)c)->rank == 1 ? REFUSED : 0;
}
int ncclCommDeregister(void *c, void *handle) {
    (void)c, (void)handle;
    return 0;
}

#ifndef OLD
/* The first two windows of each of two ranks are over the program's memory. */
int ncclCommWindowRegister(void *c, void *at, size_t bytes, void **handle, int flags) {
    static int windows;
    (void)c, (void)bytes, (void)flags;
    if (refuses("all-windows")) return REFUSED;
    if (refuses("windows") && __atomic_fetch_add(&windows, 1, __ATOMIC_RELAXED) < 4) return REFUSED;
    *handle = at;
    return 0;
}
int ncclCommWindowDeregister(void *c, void *handle) {
    (void)c, (void)handle;
    return 0;
}
#endif

const char *ncclGetErrorString(int code) {
    return code ? "refused by the stub" : "no error";
}
const char *ncclGetLastError(void *c) {
    (void)c;
    return "";
}
