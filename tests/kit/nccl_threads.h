/* nccl_threads.h - an NCCL between ranks that are threads of one process, on the fake CUDA driver:
 * what transport/net/nccl.h uses of one. A group of sends and receives is one host function of its
 * stream. There a message is copied when both ends have begun it, from where it then lies: so a
 * sender that changes its memory too early, or a stage that is used again, is found out. Like NCCL,
 * it does not block: a communicator is made when all its ranks have come; both ends of a captured
 * message must be of memory that it would register, or neither; and a communicator's end waits for
 * graphs with its messages. Lock: one, for all. */
#ifndef NCCL_THREADS_H_
#define NCCL_THREADS_H_

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fake_cuda.h"
#include "host/gpu/gpu.h"
#include "t.h"
#include "transport/cuda/cuda_driver.h"
#include "transport/net/nccl.h"

enum { NN_RANKS = 8, NN_OPS = 64, NN_VERSION = 23200, NN_ERROR = 2 };

typedef struct { /* a message's end */
    int peer, sends, done;
    int registered; /* captured, and in memory that can be exported */
    char *at;
    size_t bytes;
} nn_op;
typedef struct nn_meeting { /* of the ranks of a communicator */
    struct nn_meeting *next;
    int here;
    nn_op *queue[NN_RANKS][NN_RANKS][NN_OPS]; /* sends by sender, receiver: the oldest first */
    int queued[NN_RANKS][NN_RANKS];
} nn_meeting;
struct ncclComm {
    struct ncclComm *next;
    nn_meeting *m;
    int rank, n, over, asked; /* over: it ends */
    int graphs;               /* groups of it that live in graphs */
    nccl_result async;
};
typedef struct nn_job { /* a group; kept, because a graph runs it again */
    struct nn_job *next;
    nccl_comm c;
    void *stream;
    int n;
    nn_op op[NN_OPS];
} nn_job;

static struct {
    pthread_mutex_t lock;
    pthread_cond_t moved;
    nn_meeting *meetings;
    nccl_comm comms;
    nn_job *jobs;
    int direct;               /* NCCL_GRAPH_REGISTER=0: none is registered */
    int live, slow;           /* communicators; answers "in progress" before a call has ended */
    int leaving;              /* threads in a communicator's end */
    uint64_t messages, bytes; /* that have crossed */
} nn = {.lock = PTHREAD_MUTEX_INITIALIZER, .moved = PTHREAD_COND_INITIALIZER};

/* Of this thread: the nth call of that name from now fails; its version. */
static _Thread_local const char *nn_failing;
static _Thread_local int nn_nth, nn_version = NN_VERSION, nn_depth, nn_refused; /* in the group */
static _Thread_local nn_job *nn_open;

static inline void nn_fail(const char *call, int nth) {
    nn_failing = call;
    nn_nth = nth;
}
static inline int nn_fails(const char *call) {
    const int now = nn_failing && !strcmp(nn_failing, call) && --nn_nth == 0;
    nn_refused |= now && nn_depth;
    return now;
}

/* ---- a group in its stream ------------------------------------------------------------------- */

static inline int nn_is_first(const nn_op *op, const nn_op *all) {
    for (const nn_op *o = all; o < op; o++)
        if (!o->done && !o->sends && o->peer == op->peer) return 0;
    return 1;
}

static inline void nn_take(const struct ncclComm *c, nn_op *op) {
    nn_op **queue = c->m->queue[op->peer][c->rank];
    int *n = &c->m->queued[op->peer][c->rank];
    if (!*n) return;
    T_CHECKF(queue[0]->bytes == op->bytes, "rank %d sends %zu bytes, rank %d receives %zu",
             op->peer, queue[0]->bytes, c->rank, op->bytes);
    T_CHECKF(queue[0]->registered == op->registered,
             "NCCL would hang: a captured message between memory of two kinds, %zu bytes",
             op->bytes);
    memcpy(op->at, queue[0]->at, op->bytes);
    queue[0]->done = op->done = 1;
    memmove(queue, queue + 1, (size_t)-- * n * sizeof *queue);
    nn.messages++;
    nn.bytes += op->bytes;
    pthread_cond_broadcast(&nn.moved);
}

/* An aborted one leaves nothing behind that points here. */
static inline void nn_withdraw(const struct ncclComm *c, const nn_op *op, int n) {
    for (int p = 0; p < c->n; p++) {
        nn_op **queue = c->m->queue[c->rank][p];
        int *many = &c->m->queued[c->rank][p], left = 0;
        for (int i = 0; i < *many; i++)
            if (queue[i] < op || queue[i] >= op + n) queue[left++] = queue[i];
        *many = left;
    }
}

static inline void nn_play(void *arg) {
    const nn_job *j = arg;
    const struct ncclComm *c = j->c;
    nn_op *op = malloc(sizeof j->op);
    T_CHECK(op != NULL);
    memcpy(op, j->op, sizeof j->op);
    pthread_mutex_lock(&nn.lock);
    for (int i = 0; i < j->n; i++)
        if (op[i].sends) {
            int *n = &c->m->queued[c->rank][op[i].peer];
            T_CHECK(*n < NN_OPS);
            c->m->queue[c->rank][op[i].peer][(*n)++] = &op[i];
        }
    pthread_cond_broadcast(&nn.moved);
    for (int left = 1; left && !c->over;) {
        left = 0;
        for (int i = 0; i < j->n; i++) {
            if (!op[i].sends && !op[i].done && nn_is_first(&op[i], op)) nn_take(c, &op[i]);
            left += !op[i].done;
        }
        if (left && !c->over) pthread_cond_wait(&nn.moved, &nn.lock);
    }
    nn_withdraw(c, op, j->n);
    pthread_mutex_unlock(&nn.lock);
    free(op);
}

static inline nccl_result nn_add(int sends, const void *at, size_t bytes, int peer, nccl_comm c,
                                 void *stream) {
    if (!nn_open) {
        T_CHECK((nn_open = calloc(1, sizeof *nn_open)) != NULL);
        nn_open->c = c;
        nn_open->stream = stream;
    }
    T_CHECK(nn_depth && nn_open->n < NN_OPS && bytes);
    T_CHECK(nn_open->c == c && nn_open->stream == stream && peer >= 0 && peer < c->n);
    symm_gpu_capture in;
    T_OK(symm_gpu_capture_of((symmStream_t)stream, &in));
    nn_open->op[nn_open->n++] =
        (nn_op){.peer = peer,
                .sends = sends,
                .registered = !nn.direct && in.graph && fake_cuda_access(at) != 0,
                .at = (char *)(uintptr_t)at,
                .bytes = bytes};
    return 0;
}

/* ---- the calls ------------------------------------------------------------------------------- */

static inline nccl_result nn_ncclGetVersion(int *version) {
    *version = nn_version;
    return nn_fails("ncclGetVersion") ? NN_ERROR : 0;
}

static inline nccl_result nn_ncclGetUniqueId(nccl_id *id) {
    nn_meeting *m = calloc(1, sizeof *m);
    T_CHECK(m != NULL);
    memset(id, 0, sizeof *id);
    memcpy(id->bytes, &m, sizeof m);
    pthread_mutex_lock(&nn.lock);
    m->next = nn.meetings;
    nn.meetings = m;
    pthread_mutex_unlock(&nn.lock);
    return nn_fails("ncclGetUniqueId") ? NN_ERROR : 0;
}

static inline nccl_result nn_ncclCommInitRankConfig(nccl_comm *comm, int n, nccl_id id, int rank,
                                                    nccl_config *config) {
    T_CHECK(config->size == sizeof *config && config->magic == 0xcafebeefu && !config->blocking);
    if (nn_fails("ncclCommInitRankConfig")) return NN_ERROR;
    nccl_comm c = calloc(1, sizeof *c);
    T_CHECK(c != NULL && n <= NN_RANKS);
    memcpy(&c->m, id.bytes, sizeof c->m);
    c->rank = rank, c->n = n;
    pthread_mutex_lock(&nn.lock);
    c->next = nn.comms;
    nn.comms = c;
    nn.live++;
    c->m->here++;
    pthread_mutex_unlock(&nn.lock);
    *comm = c;
    return NCCL_IN_PROGRESS;
}

static inline nccl_result nn_ncclCommGetAsyncError(nccl_comm c, nccl_result *error) {
    pthread_mutex_lock(&nn.lock);
    T_CHECK(!c->over);
    *error = c->async;
    if (!*error && c->asked++ < nn.slow) *error = NCCL_IN_PROGRESS;
    if (!*error && c->m->here < c->n) *error = NCCL_IN_PROGRESS;
    pthread_mutex_unlock(&nn.lock);
    return nn_fails("ncclCommGetAsyncError") ? NN_ERROR : 0;
}

static inline nccl_result nn_end_comm(nccl_comm c) {
    pthread_mutex_lock(&nn.lock);
    T_CHECK(!c->over);
    c->over = 1;
    nn.live--;
    nn.leaving++;
    pthread_cond_broadcast(&nn.moved);
    while (c->graphs) pthread_cond_wait(&nn.moved, &nn.lock);
    nn.leaving--;
    pthread_cond_broadcast(&nn.moved);
    pthread_mutex_unlock(&nn.lock);
    return 0;
}
static inline nccl_result nn_ncclCommDestroy(nccl_comm c) {
    return nn_end_comm(c);
}
static inline nccl_result nn_ncclCommAbort(nccl_comm c) {
    return nn_end_comm(c);
}

static inline nccl_result nn_ncclSend(const void *at, size_t count, int type, int to, nccl_comm c,
                                      void *stream) {
    T_EQ(type, NCCL_BYTES);
    return nn_fails("ncclSend") ? NN_ERROR : nn_add(1, at, count, to, c, stream);
}
static inline nccl_result nn_ncclRecv(void *at, size_t count, int type, int from, nccl_comm c,
                                      void *stream) {
    T_EQ(type, NCCL_BYTES);
    return nn_fails("ncclRecv") ? NN_ERROR : nn_add(0, at, count, from, c, stream);
}

static inline nccl_result nn_ncclGroupStart(void) {
    T_EQ(nn_depth, 0);
    if (nn_fails("ncclGroupStart")) return NN_ERROR;
    nn_depth = 1;
    return 0;
}
static inline void nn_graph_gone(void *arg) {
    nccl_comm c = arg;
    pthread_mutex_lock(&nn.lock);
    c->graphs--;
    pthread_cond_broadcast(&nn.moved);
    pthread_mutex_unlock(&nn.lock);
}
static inline void nn_hold(nccl_comm c, void *stream) {
    symm_gpu_capture in;
    cu_user_object object;
    T_OK(symm_gpu_capture_of((symmStream_t)stream, &in));
    if (!in.graph) return;
    pthread_mutex_lock(&nn.lock);
    c->graphs++;
    pthread_mutex_unlock(&nn.lock);
    T_EQ(symm_cu.cuUserObjectCreate(&object, c, nn_graph_gone, 1,
                                    SYMM_CUDA_USER_OBJECT_NO_DESTRUCTOR_SYNC),
         0);
    T_EQ(symm_cu.cuGraphRetainUserObject(in.graph, object, 1, SYMM_CUDA_GRAPH_USER_OBJECT_MOVE), 0);
}
/* A group of which a call was refused does nothing. */
static inline nccl_result nn_ncclGroupEnd(void) {
    nn_job *j = nn_open;
    const int refused = nn_refused;
    T_EQ(nn_depth, 1);
    nn_depth = 0;
    nn_open = NULL;
    nn_refused = 0;
    if (!j) return refused ? NN_ERROR : 0;
    pthread_mutex_lock(&nn.lock);
    j->next = nn.jobs;
    nn.jobs = j;
    j->c->asked = 0;
    pthread_mutex_unlock(&nn.lock);
    if (nn_fails("ncclGroupEnd") || refused) return NN_ERROR;
    nn_hold(j->c, j->stream);
    T_EQ(symm_cu.cuLaunchHostFunc((cu_stream)j->stream, nn_play, j), 0);
    return nn.slow ? NCCL_IN_PROGRESS : 0;
}

static inline const char *nn_text(nccl_result code) {
    return code ? "refused by the test" : "no error";
}
static inline const char *nn_last(nccl_comm c) {
    (void)c;
    return "";
}

/* ---- the test's ------------------------------------------------------------------------------ */

static inline void nn_install(int slow) {
    symm_nccl n = {.ncclGetErrorString = nn_text, .ncclGetLastError = nn_last};
#define PUT(name, params) n.name = nn_##name;
    SYMM_NCCL_CALLS(PUT)
#undef PUT
    nn.slow = slow;
    nn.messages = nn.bytes = 0;
    symm_nccl_inject(&n);
}

/* No communicator is left, soon, and nothing waits. */
static inline int nn_living(void) {
    pthread_mutex_lock(&nn.lock);
    const int n = nn.live + nn.leaving;
    pthread_mutex_unlock(&nn.lock);
    return n;
}
static inline void nn_end(void) {
    for (int ms = 0; ms < 10000 && nn_living(); ms++) usleep(1000);
    T_EQ(nn_living(), 0);
    for (nn_job *j; (j = nn.jobs);) nn.jobs = j->next, free(j);
    for (nccl_comm c; (c = nn.comms);) nn.comms = c->next, free(c);
    for (nn_meeting *m; (m = nn.meetings);) {
        for (int i = 0; i < NN_RANKS * NN_RANKS; i++)
            T_EQ(m->queued[i / NN_RANKS][i % NN_RANKS], 0);
        nn.meetings = m->next, free(m);
    }
}

#endif
