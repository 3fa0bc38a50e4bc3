/* perf_nccl.c - see perf_nccl.h. NCCL works on our buffers and our stream. Where -R asks for
 * windows and NCCL refuses them over our memory, it gets memory from ncclMemAlloc: it shall be
 * measured at its best. The table of its functions is written once, under a lock, before any
 * rank uses it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "perf_gpu.h"
#include "perf_nccl.h"
#include "symm_nccl.h"

/* ---- NCCL's side: what nccl.h declares; types and reductions have our numbers ---- */

typedef struct {
    char internal[128];
} nccl_id;
typedef void *nccl_comm, *nccl_window;
enum { NCCL_WIN_COLL_SYMMETRIC = 1, NCCL_WINDOWS_SINCE = 22700, NCCL_FLOAT8_SINCE = 22400 };

/* X(member, symbol, required, parameters); all return an ncclResult_t. Those of a collective, by
 * its arguments: */
#define DATA    (const void *, void *, size_t, int, nccl_comm, void *)
#define OP      (const void *, void *, size_t, int, int, nccl_comm, void *)
#define ROOT    (const void *, void *, size_t, int, int, nccl_comm, void *)
#define OP_ROOT (const void *, void *, size_t, int, int, int, nccl_comm, void *)
#define NCCL_CALLS(X)                                                             \
    X(version, "ncclGetVersion", 1, (int *))                                      \
    X(unique_id, "ncclGetUniqueId", 1, (nccl_id *))                               \
    X(init_rank, "ncclCommInitRank", 1, (nccl_comm *, int, nccl_id, int))         \
    X(destroy, "ncclCommDestroy", 1, (nccl_comm))                                 \
    X(all_reduce, "ncclAllReduce", 1, OP)                                         \
    X(all_gather, "ncclAllGather", 1, DATA)                                       \
    X(reduce_scatter, "ncclReduceScatter", 1, OP)                                 \
    X(broadcast, "ncclBroadcast", 1, ROOT)                                        \
    X(reduce, "ncclReduce", 1, OP_ROOT)                                           \
    X(alltoall, "ncclAlltoAll", 0, DATA)                                          \
    X(gather, "ncclGather", 0, ROOT)                                              \
    X(scatter, "ncclScatter", 0, ROOT)                                            \
    X(send, "ncclSend", 1, (const void *, size_t, int, int, nccl_comm, void *))   \
    X(recv, "ncclRecv", 1, (void *, size_t, int, int, nccl_comm, void *))         \
    X(abort, "ncclCommAbort", 1, (nccl_comm))                                     \
    X(group_start, "ncclGroupStart", 1, (void))                                   \
    X(group_end, "ncclGroupEnd", 1, (void))                                       \
    X(mem_alloc, "ncclMemAlloc", 0, (void **, size_t))                            \
    X(mem_free, "ncclMemFree", 0, (void *))                                       \
    X(comm_register, "ncclCommRegister", 0, (nccl_comm, void *, size_t, void **)) \
    X(comm_deregister, "ncclCommDeregister", 0, (nccl_comm, void *))              \
    X(window_register, "ncclCommWindowRegister", 0,                               \
      (nccl_comm, void *, size_t, nccl_window *, int))                            \
    X(window_deregister, "ncclCommWindowDeregister", 0, (nccl_comm, nccl_window))

typedef struct {
#define MEMBER(name, symbol, required, params) int(*name) params;
    NCCL_CALLS(MEMBER)
#undef MEMBER
    const char *(*error_string)(int);
    const char *(*last_error)(nccl_comm);
    int number; /* of the version */
    char path[1024];
} nccl_lib;
static nccl_lib lib;

struct perf_nccl {
    nccl_comm comm;
    char *send, *recv; /* ours, or memory of its own */
    size_t send_bytes, recv_bytes;
    void *handle[2]; /* windows or registrations of both */
    int windows, buffers, own;
};

/* ---- opening ---- */

/* The name of the first required function that is missing; NULL: none. */
static const char *look_up(void *so) {
#define FIND(name, symbol, required, params) \
    *(void **)&lib.name = dlsym(so, symbol); \
    if (required && !lib.name) return symbol;
    NCCL_CALLS(FIND)
#undef FIND
    *(void **)&lib.error_string = dlsym(so, "ncclGetErrorString");
    *(void **)&lib.last_error = dlsym(so, "ncclGetLastError");
    return lib.error_string ? NULL : "ncclGetErrorString";
}

static int load(const char *path, char *err, size_t cap) {
    void *so = NULL;
    if (path)
        so = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    else
        (void)symmNcclOpen(getenv("SYMM_NCCL_LIB"), 0, &so, lib.path, sizeof lib.path);
    if (!so) {
        const char *why = path ? dlerror() : symmGetLastError(NULL);
        snprintf(err, cap, "--vs nccl: %.200s (--nccl FILE or PERF_NCCL_LIB names another)", why);
        return -1;
    }
    if (path) snprintf(lib.path, sizeof lib.path, "%s", path);
    const char *missing = look_up(so);
    int code = missing ? 0 : lib.version(&lib.number);
    if (!missing && !code) return 0;
    if (missing)
        snprintf(err, cap, "--vs nccl: %.200s has no %s", lib.path, missing);
    else
        snprintf(err, cap, "--vs nccl: %.200s: ncclGetVersion: %.60s", lib.path,
                 lib.error_string(code));
    dlclose(so);
    return -1;
}

int perf_nccl_load(const char *path, char *err, size_t cap) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static int done, result;
    static char why[PERF_ERR];
    pthread_mutex_lock(&lock);
    if (!done++) result = load(path, why, sizeof why);
    if (result) snprintf(err, cap, "%s", why);
    pthread_mutex_unlock(&lock);
    return result;
}

static void explain(nccl_comm comm, int code, char *out, size_t cap) {
    const char *last = lib.last_error ? lib.last_error(comm) : NULL;
    snprintf(out, cap, "%s%s%s", lib.error_string(code), last && *last ? ": " : "",
             last ? last : "");
}

static void must(perf_rank *p, int code, const char *what) {
    char why[512];
    if (!code) return;
    explain(p->nccl ? p->nccl->comm : NULL, code, why, sizeof why);
    fprintf(stderr, "%s: rank %d: NCCL: %s: %s\n", perf_tool, p->world->rank, what, why);
    p->world->abort(p->world, PERF_EXIT_WRONG);
}
#define MUST(p, call, args) must((p), lib.call args, #call)

/* ---- registration ---- */

/* NCCL wants whole pages; our allocations are made of larger ones. */
static size_t pages(size_t bytes) {
    return (bytes + 4095) & ~(size_t)4095;
}

static __attribute__((format(printf, 2, 3))) void say(const perf_rank *p, const char *fmt, ...) {
    va_list ap;
    if (p->world->rank) return;
    va_start(ap, fmt);
    printf("# NCCL ");
    vprintf(fmt, ap);
    printf("\n");
    va_end(ap);
}

/* One rank's refusal is everybody's: else some would run other kernels than the rest. Returns 1 if
 * all have it; why is set on the ranks that were refused. */
static int agree(perf_rank *p, int code, char *why, size_t cap) {
    if (code > 0) explain(p->nccl->comm, code, why, cap);
    if (code < 0) snprintf(why, cap, "it has no such call, or gave no handle");
    if (!code) snprintf(why, cap, "refused on another rank");
    return perf_world_sum(p->world, code != 0) == 0;
}

static void drop_handles(perf_nccl *n) {
    for (int i = 0; i < 2; i++) {
        if (!n->handle[i]) continue;
        if (n->buffers)
            lib.comm_deregister(n->comm, n->handle[i]);
        else
            lib.window_deregister(n->comm, n->handle[i]);
        n->handle[i] = NULL;
    }
}

/* 0, NCCL's code, or -1: not offered. The second window is tried whatever the first one gave: both
 * calls are collective. */
static int take_windows(perf_nccl *n) {
    if (!lib.window_register || !lib.window_deregister || lib.number < NCCL_WINDOWS_SINCE)
        return -1;
    int a = lib.window_register(n->comm, n->send, pages(n->send_bytes), &n->handle[0],
                                NCCL_WIN_COLL_SYMMETRIC);
    int b = lib.window_register(n->comm, n->recv, pages(n->recv_bytes), &n->handle[1],
                                NCCL_WIN_COLL_SYMMETRIC);
    if (a || b) return a ? a : b;
    return n->handle[0] && n->handle[1] ? 0 : -1;
}

static int take_buffers(perf_nccl *n) {
    if (!lib.comm_register || !lib.comm_deregister) return -1;
    int a = lib.comm_register(n->comm, n->send, pages(n->send_bytes), &n->handle[0]);
    int b = lib.comm_register(n->comm, n->recv, pages(n->recv_bytes), &n->handle[1]);
    return a ? a : b;
}

/* Rank 0's id counts. */
static void join(perf_rank *p, perf_nccl *n) {
    nccl_id mine = {{0}}, all[p->world->nranks];
    if (p->world->rank == 0) MUST(p, unique_id, (&mine));
    p->world->allgather(p->world, &mine, all, sizeof mine);
    MUST(p, init_rank, (&n->comm, p->world->nranks, all[0], p->world->rank));
}

/* After a refusal NCCL's communicator is no longer of use. */
static void rejoin(perf_rank *p, perf_nccl *n) {
    drop_handles(n);
    lib.abort(n->comm);
    n->comm = NULL;
    join(p, n);
}

static void use_our_memory(perf_rank *p, perf_nccl *n) {
    n->send = p->send, n->recv = p->recv;
    n->own = 0;
}

static void free_own_memory(perf_nccl *n) {
    if (n->send) lib.mem_free(n->send);
    if (n->recv) lib.mem_free(n->recv);
}

/* Returns 1 if all ranks have memory of NCCL's own. */
static int use_own_memory(perf_rank *p, perf_nccl *n) {
    char why[512];
    int code = -1;
    n->send = n->recv = NULL;
    if (lib.mem_alloc && lib.mem_free) {
        code = lib.mem_alloc((void **)&n->send, pages(n->send_bytes));
        if (!code) code = lib.mem_alloc((void **)&n->recv, pages(n->recv_bytes));
    }
    if (agree(p, code, why, sizeof why)) {
        perf_gpu_set(p, n->send, 0, n->send_bytes);
        perf_gpu_set(p, n->recv, 0, n->recv_bytes);
        n->own = 1;
        return 1;
    }
    say(p, "has no memory of its own: %s", why);
    free_own_memory(n);
    use_our_memory(p, n);
    return 0;
}

static void open_windows(perf_rank *p, perf_nccl *n) {
    char why[512];
    n->windows = agree(p, take_windows(n), why, sizeof why);
    if (n->windows) return;
    say(p, "refuses windows over this memory: %s", why);
    rejoin(p, n);
    if (!use_own_memory(p, n)) return;
    n->windows = agree(p, take_windows(n), why, sizeof why);
    if (n->windows) {
        say(p, "works on memory of its own");
        return;
    }
    say(p, "refuses windows over its own memory: %s", why);
    rejoin(p, n);
    free_own_memory(n);
    use_our_memory(p, n);
}

static void open_buffers(perf_rank *p, perf_nccl *n) {
    char why[512];
    n->buffers = 1;
    if (agree(p, take_buffers(n), why, sizeof why)) return;
    say(p, "refuses to register the buffers: %s", why);
    rejoin(p, n);
    n->buffers = 0;
}

/* ---- the calls ---- */

/* A call as NCCL gets it: buffers in its memory, the number that it knows the type by. */
typedef struct {
    perf_rank *p;
    const perf_counts *v;
    const char *send;
    char *recv;
    size_t count, size; /* of an element */
    int type, op, rank, nranks;
    nccl_comm comm;
    symmStream_t stream;
} nccl_call;
#define CALL(name, ...) MUST(m->p, name, (__VA_ARGS__, m->comm, m->stream))

static void all_reduce(const nccl_call *m) {
    CALL(all_reduce, m->send, m->recv, m->count, m->type, m->op);
}
static void all_gather(const nccl_call *m) {
    CALL(all_gather, m->send, m->recv, m->count, m->type);
}
static void reduce_scatter(const nccl_call *m) {
    CALL(reduce_scatter, m->send, m->recv, m->count, m->type, m->op);
}
static void broadcast(const nccl_call *m) {
    CALL(broadcast, m->send, m->recv, m->count, m->type, m->p->root);
}
static void reduce(const nccl_call *m) {
    CALL(reduce, m->send, m->recv, m->count, m->type, m->op, m->p->root);
}
static void alltoall(const nccl_call *m) {
    CALL(alltoall, m->send, m->recv, m->count, m->type);
}
static void gather(const nccl_call *m) {
    CALL(gather, m->send, m->recv, m->count, m->type, m->p->root);
}
static void scatter(const nccl_call *m) {
    CALL(scatter, m->send, m->recv, m->count, m->type, m->p->root);
}

static void begin(const nccl_call *m) {
    MUST(m->p, group_start, ());
}
static void end(const nccl_call *m) {
    MUST(m->p, group_end, ());
}
/* `count` elements from or to where `at` elements lie in front of them. */
static void send(const nccl_call *m, const char *from, size_t at, size_t count, int peer) {
    CALL(send, from + at * m->size, count, m->type, peer);
}
static void receive(const nccl_call *m, char *into, size_t at, size_t count, int peer) {
    CALL(recv, into + at * m->size, count, m->type, peer);
}

static void alltoall_sends(const nccl_call *m) {
    begin(m);
    for (int r = 0; r < m->nranks; r++) {
        send(m, m->send, (unsigned)r * m->count, m->count, r);
        receive(m, m->recv, (unsigned)r * m->count, m->count, r);
    }
    end(m);
}
static void gather_sends(const nccl_call *m) {
    begin(m);
    send(m, m->send, 0, m->count, m->p->root);
    for (int r = 0; r < m->nranks && m->rank == m->p->root; r++)
        receive(m, m->recv, (unsigned)r * m->count, m->count, r);
    end(m);
}
static void scatter_sends(const nccl_call *m) {
    begin(m);
    for (int r = 0; r < m->nranks && m->rank == m->p->root; r++)
        send(m, m->send, (unsigned)r * m->count, m->count, r);
    receive(m, m->recv, 0, m->count, m->p->root);
    end(m);
}

static void all_gatherv(const nccl_call *m) {
    const size_t *counts = m->v->count[PERF_RECEIVED];
    size_t at = 0;
    begin(m);
    for (int r = 0; r < m->nranks; at += counts[r++])
        CALL(broadcast, m->send, m->recv + at * m->size, counts[r], m->type, r);
    end(m);
}
static void reduce_scatterv(const nccl_call *m) {
    const size_t *counts = m->v->count[PERF_SENT];
    size_t at = 0;
    begin(m);
    for (int r = 0; r < m->nranks; at += counts[r++])
        CALL(reduce, m->send + at * m->size, m->recv, counts[r], m->type, m->op, r);
    end(m);
}
static void alltoallv(const nccl_call *m) {
    const size_t *out = m->v->count[PERF_SENT], *in = m->v->count[PERF_RECEIVED];
    size_t sent = 0, received = 0;
    begin(m);
    for (int r = 0; r < m->nranks; sent += out[r], received += in[r], r++) {
        send(m, m->send, sent, out[r], r);
        receive(m, m->recv, received, in[r], r);
    }
    end(m);
}

static void sendrecv(const nccl_call *m) {
    begin(m);
    send(m, m->send, 0, m->count, (m->rank + 1) % m->nranks);
    receive(m, m->recv, 0, m->count, (m->rank + m->nranks - 1) % m->nranks);
    end(m);
}
static void hypercube(const nccl_call *m) {
    char *own = m->recv + (unsigned)m->rank * m->count * m->size;
    if (own != m->send) perf_gpu_copy(m->p, own, m->send, m->count * m->size);
    for (int mask = 1; mask < m->nranks; mask *= 2) {
        const unsigned mine = (unsigned)(m->rank & ~(mask - 1)), theirs = mine ^ (unsigned)mask;
        const size_t n = m->count * (unsigned)mask;
        begin(m);
        send(m, m->recv, mine * m->count, n, m->rank ^ mask);
        receive(m, m->recv, theirs * m->count, n, m->rank ^ mask);
        end(m);
    }
}
static void pingpong(const nccl_call *m) {
    const int peer = 1 - m->rank;
    if (!m->rank) send(m, m->send, 0, m->count, peer);
    receive(m, m->recv, 0, m->count, peer);
    if (m->rank) send(m, m->send, 0, m->count, peer);
}

/* ---- the rival ---- */

/* What stands for a collective or a pattern. Without a call of its own in the library that is
 * loaded, or in any: the calls that programs make instead; NULL: it is not compared. */
typedef void (*nccl_fn)(const nccl_call *m);
typedef struct {
    const char *name; /* of its own call; NULL: NCCL has none */
    size_t member;    /* of that in `lib` */
    nccl_fn call, instead;
    const char *made_of; /* what `instead` is */
} nccl_row;
#define OWN(fn, symbol) .name = symbol, .member = offsetof(nccl_lib, fn), .call = fn
#define SENDS           "ncclSend and ncclRecv, in a group"

static const nccl_row rows[symmNumColls] = {
    [symmCollAllReduce] = {OWN(all_reduce, "ncclAllReduce")},
    [symmCollAllGather] = {OWN(all_gather, "ncclAllGather")},
    [symmCollReduceScatter] = {OWN(reduce_scatter, "ncclReduceScatter")},
    [symmCollBroadcast] = {OWN(broadcast, "ncclBroadcast")},
    [symmCollReduce] = {OWN(reduce, "ncclReduce")},
    [symmCollAlltoAll] = {OWN(alltoall, "ncclAlltoAll"), .instead = alltoall_sends,
                          .made_of = SENDS},
    [symmCollGather] = {OWN(gather, "ncclGather"), .instead = gather_sends, .made_of = SENDS},
    [symmCollScatter] = {OWN(scatter, "ncclScatter"), .instead = scatter_sends, .made_of = SENDS},
    [symmCollAllGatherv] = {.instead = all_gatherv, .made_of = "ncclBroadcast, in a group"},
    [symmCollReduceScatterv] = {.instead = reduce_scatterv, .made_of = "ncclReduce, in a group"},
    [symmCollAlltoAllv] = {.instead = alltoallv, .made_of = SENDS}};
static const nccl_row rows_of_patterns[PERF_PATTERNS] = {
    [PERF_SENDRECV] = {.instead = sendrecv, .made_of = SENDS},
    [PERF_HYPERCUBE] = {.instead = hypercube, .made_of = SENDS " for each step"},
    [PERF_PINGPONG] = {.instead = pingpong, .made_of = "ncclSend and ncclRecv, one by one"},
    [PERF_ALLTOALL_SENDS] = {.instead = alltoall_sends, .made_of = SENDS}};

static const nccl_row *row_of(const perf_config *cfg) {
    return cfg->pattern < 0 ? &rows[cfg->coll] : &rows_of_patterns[cfg->pattern];
}
static int has_own(const nccl_row *row) {
    return row->name && *(void *const *)(const void *)((const char *)&lib + row->member);
}
/* NULL: there is nothing to compare with. */
static nccl_fn chosen(const nccl_row *row) {
    return has_own(row) ? row->call : row->instead;
}

static int knows(int type) {
    return type < symmFloat8e4m3 || lib.number >= NCCL_FLOAT8_SINCE;
}

static int offers(const perf_rank *p, const perf_case *c) {
    if (!chosen(row_of(p->cfg))) return 0;
    return !perf_reduces(p->cfg) || (c->op < PERF_MULSUM && knows(c->type));
}

/* As far into its buffer as ours is into ours. */
static char *its(const perf_rank *p, char *ours) {
    const perf_nccl *n = p->nccl;
    if (!n->own) return ours;
    int in_recv = ours >= p->recv && ours < p->recv + p->recv_bytes;
    return in_recv ? n->recv + (ours - p->recv) : n->send + (ours - p->send);
}

static perf_case places(const perf_rank *p, const perf_case *c) {
    perf_case moved = *c;
    moved.send = its(p, c->send);
    moved.recv = its(p, c->recv);
    return moved;
}

/* For moving, bytes serve where NCCL is older than a type. */
static void call(perf_rank *p, const perf_case *c) {
    const nccl_call m = {.p = p,
                         .v = c->v,
                         .send = its(p, c->send),
                         .recv = its(p, c->recv),
                         .count = c->count,
                         .size = perf_type_size(c->type),
                         .type = knows(c->type) ? c->type : symmUint8,
                         .op = c->op,
                         .rank = p->world->rank,
                         .nranks = p->world->nranks,
                         .comm = p->nccl->comm,
                         .stream = p->stream};
    chosen(row_of(p->cfg))(&m);
}

static void group(perf_rank *p, int end) {
    if (end)
        MUST(p, group_end, ());
    else
        MUST(p, group_start, ());
}

static const perf_rival rival = {.name = "NCCL",
                                 .key = "nccl",
                                 .on_stream = 1,
                                 .offers = offers,
                                 .call = call,
                                 .group = group,
                                 .places = places};

void perf_nccl_open(perf_rank *p) {
    perf_nccl *n = calloc(1, sizeof *n);
    if (!n) perf_must(p, symmOutOfMemory, "NCCL");
    p->nccl = n;
    join(p, n);
    p->rival = &rival;
    n->send_bytes = p->send_bytes;
    n->recv_bytes = p->recv_bytes;
    use_our_memory(p, n);
    if (p->cfg->registered == 2) open_windows(p, n);
    if (p->cfg->registered == 1) open_buffers(p, n);
}

void perf_nccl_close(perf_rank *p) {
    perf_nccl *n = p->nccl;
    if (!n) return;
    drop_handles(n);
    if (n->own) free_own_memory(n);
    MUST(p, destroy, (n->comm));
    p->nccl = NULL;
    free(n);
}

perf_nccl_info perf_nccl_describe(const perf_rank *p) {
    const perf_nccl *n = p->nccl;
    const nccl_row *row = row_of(p->cfg);
    return (perf_nccl_info){.version = lib.number,
                            .path = lib.path,
                            .registered = n->windows   ? "windows"
                                          : n->buffers ? "buffers"
                                                       : "no",
                            .own_memory = n->own,
                            .calls = has_own(row) ? row->name : row->made_of};
}
