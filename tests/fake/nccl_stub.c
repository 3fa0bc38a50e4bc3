/* nccl_stub.c - an NCCL for symm-perf --vs nccl without a GPU: check_perf_gpu.sh makes a library of
 * it beside perf_stub.c. Ranks are threads of one process; a collective is a host function of the
 * stream, float sums and gathers only. What is refused says NCCL_STUB_REFUSES: init, windows
 * (over the program's memory), all-windows, buffers (on rank 1), memory. */
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS = 8, FLOAT = 7, VERSION = 22809, REFUSED = 5 };

typedef struct {
    char internal[128];
} unique_id;
typedef struct {
    int rank, n;
} comm;
typedef struct {
    const comm *c;
    const char *send;
    char *recv;
    size_t count, bytes; /* of a rank's block */
    int gathers;
} job;

int perf_stub_enqueue(void *stream, void (*fn)(void *), void *arg);
void *perf_stub_alloc(size_t bytes);
void perf_stub_free(void *at);

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t turn = PTHREAD_COND_INITIALIZER;
static int here, turns;
static const job *jobs[RANKS];

static int refuses(const char *what) {
    const char *said = getenv("NCCL_STUB_REFUSES");
    return said && !strcmp(said, what) ? REFUSED : 0;
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

static float sum_at(size_t i, int n) {
    float sum = 0;
    for (int r = 0; r < n; r++) sum += ((const float *)(const void *)jobs[r]->send)[i];
    return sum;
}

/* Into separate memory first: in place, the others still read. */
static void play(void *arg) {
    const job *j = arg;
    const int n = j->c->n;
    const size_t bytes = j->bytes * (size_t)(j->gathers ? n : 1);
    char *made = malloc(bytes + 1);
    jobs[j->c->rank] = j;
    meet(n);
    for (int r = 0; j->gathers && r < n; r++)
        memcpy(made + (size_t)r * j->bytes, jobs[r]->send, j->bytes);
    for (size_t i = 0; !j->gathers && i < j->count; i++) ((float *)(void *)made)[i] = sum_at(i, n);
    meet(n);
    memcpy(j->recv, made, bytes);
    meet(n);
    free(made);
}

static int post(job j, void *stream) {
    job *kept = malloc(sizeof *kept); /* a graph runs it again */
    *kept = j;
    return perf_stub_enqueue(stream, play, kept);
}

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

int ncclAllReduce(const void *send, void *recv, size_t count, int type, int op, void *c,
                  void *stream) {
    if (type != FLOAT || op) return REFUSED;
    return post((job){c, send, recv, count, count * sizeof(float), 0}, stream);
}
int ncclAllGather(const void *send, void *recv, size_t count, int type, void *c, void *stream) {
    if (type != FLOAT) return REFUSED;
    return post((job){c, send, recv, count, count * sizeof(float), 1}, stream);
}
int ncclGroupStart(void) {
    return 0;
}
int ncclGroupEnd(void) {
    return 0;
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

const char *ncclGetErrorString(int code) {
    return code ? "refused by the stub" : "no error";
}
const char *ncclGetLastError(void *c) {
    (void)c;
    return "";
}
