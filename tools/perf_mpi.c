/* perf_mpi.c - the ranks' meeting place when mpirun started them, and the rival: MPI's own
 * collectives. `make bench` compiles it once more for each MPI that is there, without libsymm-mpi,
 * which is for one of them: then ranks of several hosts are refused. Main thread only. */
#include <limits.h>
#include <mpi.h>
#include <stdlib.h>
#include <string.h>

#include "perf.h"
#include "symm_mpi.h"

#pragma weak symmCommInitMPI

static void barrier(perf_world *w) {
    (void)w;
    MPI_Barrier(MPI_COMM_WORLD);
}

static void gather(perf_world *w, const void *send, void *recv, size_t bytes) {
    (void)w;
    MPI_Allgather(send, (int)bytes, MPI_BYTE, recv, (int)bytes, MPI_BYTE, MPI_COMM_WORLD);
}

static symmResult_t create(perf_world *w, symmComm_t *comm) {
    symmUniqueId_t id;
    if (symmCommInitMPI) return symmCommInitMPI(comm, MPI_COMM_WORLD, NULL);
    symmResult_t r = w->rank ? symmSuccess : symmGetUniqueId(&id);
    MPI_Bcast(&r, (int)sizeof r, MPI_BYTE, 0, MPI_COMM_WORLD);
    if (r) return r;
    MPI_Bcast(&id, (int)sizeof id, MPI_BYTE, 0, MPI_COMM_WORLD);
    return symmCommInitRank(comm, w->nranks, id, w->rank);
}

static __attribute__((noreturn)) void end_job(perf_world *w, int code) {
    (void)w;
    fflush(NULL);
    MPI_Abort(MPI_COMM_WORLD, code);
    abort();
}

/* MPI_DATATYPE_NULL: MPI has no such number. */
static MPI_Datatype number(int type) {
    switch (type) {
    case symmInt8: return MPI_INT8_T;
    case symmUint8: return MPI_UINT8_T;
    case symmInt32: return MPI_INT32_T;
    case symmUint32: return MPI_UINT32_T;
    case symmInt64: return MPI_INT64_T;
    case symmUint64: return MPI_UINT64_T;
    case symmFloat32: return MPI_FLOAT;
    case symmFloat64: return MPI_DOUBLE;
    default: return MPI_DATATYPE_NULL;
    }
}

/* For moving, an integer of the same size serves. */
static MPI_Datatype container(int type) {
    MPI_Datatype t = number(type);
    return t != MPI_DATATYPE_NULL ? t : perf_type_size(type) == 2 ? MPI_UINT16_T : MPI_UINT8_T;
}

static MPI_Op reduction(int op) {
    switch (op) {
    case PERF_SUM: return MPI_SUM;
    case PERF_PROD: return MPI_PROD;
    case PERF_MAX: return MPI_MAX;
    case PERF_MIN: return MPI_MIN;
    default: return MPI_OP_NULL;
    }
}

typedef struct {
    const perf_case *c;
    const void *from; /* MPI_IN_PLACE, or c->send */
    int n, root, is_root, rank, nranks;
} mpi_call;

static void all_reduce(const mpi_call *m) {
    MPI_Allreduce(m->from, m->c->recv, m->n, number(m->c->type), reduction(m->c->op),
                  MPI_COMM_WORLD);
}
static void all_gather(const mpi_call *m) {
    const MPI_Datatype type = container(m->c->type);
    MPI_Allgather(m->from, m->n, type, m->c->recv, m->n, type, MPI_COMM_WORLD);
}
static void meet(const mpi_call *m) {
    (void)m;
    MPI_Barrier(MPI_COMM_WORLD);
}
/* In place MPI takes all parts out of the buffer that it puts the result at the beginning of. */
static void reduce_scatter(const mpi_call *m) {
    const int in_place = m->c->in_place;
    MPI_Reduce_scatter_block(m->from, in_place ? m->c->send : m->c->recv, m->n, number(m->c->type),
                             reduction(m->c->op), MPI_COMM_WORLD);
}
static void alltoall(const mpi_call *m) {
    const MPI_Datatype type = container(m->c->type);
    MPI_Alltoall(m->from, m->n, type, m->c->recv, m->n, type, MPI_COMM_WORLD);
}
/* MPI's has one buffer. */
static void broadcast(const mpi_call *m) {
    MPI_Bcast(m->is_root ? m->c->send : m->c->recv, m->n, container(m->c->type), m->root,
              MPI_COMM_WORLD);
}
static void reduce(const mpi_call *m) {
    MPI_Reduce(m->is_root ? m->from : m->c->send, m->c->recv, m->n, number(m->c->type),
               reduction(m->c->op), m->root, MPI_COMM_WORLD);
}
static void gather_parts(const mpi_call *m) {
    const MPI_Datatype type = container(m->c->type);
    MPI_Gather(m->is_root ? m->from : m->c->send, m->n, type, m->c->recv, m->n, type, m->root,
               MPI_COMM_WORLD);
}
static void scatter_parts(const mpi_call *m) {
    const MPI_Datatype type = container(m->c->type);
    void *to = m->is_root && m->c->in_place ? MPI_IN_PLACE : m->c->recv;
    MPI_Scatter(m->c->send, m->n, type, to, m->n, type, m->root, MPI_COMM_WORLD);
}
static void exchange(const mpi_call *m, const char *from, int to, char *into, int peer, int n) {
    const MPI_Datatype type = container(m->c->type);
    MPI_Sendrecv(from, n, type, to, 0, into, n, type, peer, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}
static void sendrecv(const mpi_call *m) {
    exchange(m, m->c->send, (m->rank + 1) % m->nranks, m->c->recv,
             (m->rank + m->nranks - 1) % m->nranks, m->n);
}
static void hypercube(const mpi_call *m) {
    const size_t block = (size_t)m->n * perf_type_size(m->c->type);
    char *recv = m->c->recv;
    if (recv + (size_t)m->rank * block != m->c->send)
        memcpy(recv + (size_t)m->rank * block, m->c->send, block);
    for (int mask = 1; mask < m->nranks; mask *= 2) {
        const unsigned mine = (unsigned)(m->rank & ~(mask - 1)), theirs = mine ^ (unsigned)mask;
        exchange(m, recv + mine * block, m->rank ^ mask, recv + theirs * block, m->rank ^ mask,
                 m->n * mask);
    }
}
static void pingpong(const mpi_call *m) {
    const MPI_Datatype type = container(m->c->type);
    const int peer = 1 - m->rank;
    if (!m->rank) MPI_Send(m->c->send, m->n, type, peer, 0, MPI_COMM_WORLD);
    MPI_Recv(m->c->recv, m->n, type, peer, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (m->rank) MPI_Send(m->c->send, m->n, type, peer, 0, MPI_COMM_WORLD);
}
static void (*const theirs_of_patterns[PERF_PATTERNS])(const mpi_call *m) = {
    [PERF_SENDRECV] = sendrecv,
    [PERF_HYPERCUBE] = hypercube,
    [PERF_PINGPONG] = pingpong,
    [PERF_ALLTOALL_SENDS] = alltoall,
    [PERF_PUT] = pingpong};

static void all_gatherv(const mpi_call *m) {
    const MPI_Datatype type = container(m->c->type);
    const perf_counts *v = m->c->v;
    MPI_Allgatherv(m->from, v->count_int[PERF_SENT][0], type, m->c->recv,
                   v->count_int[PERF_RECEIVED], v->displ_int[PERF_RECEIVED], type, MPI_COMM_WORLD);
}
/* In place as reduce_scatter above. */
static void reduce_scatterv(const mpi_call *m) {
    const int in_place = m->c->in_place;
    MPI_Reduce_scatter(m->from, in_place ? m->c->send : m->c->recv, m->c->v->count_int[PERF_SENT],
                       number(m->c->type), reduction(m->c->op), MPI_COMM_WORLD);
}
static void alltoallv(const mpi_call *m) {
    const MPI_Datatype type = container(m->c->type);
    const perf_counts *v = m->c->v;
    MPI_Alltoallv(m->from, v->count_int[PERF_SENT], v->displ_int[PERF_SENT], type, m->c->recv,
                  v->count_int[PERF_RECEIVED], v->displ_int[PERF_RECEIVED], type, MPI_COMM_WORLD);
}
/* A collective without an entry is not compared. */
static void (*const theirs[symmNumColls])(const mpi_call *m) = {
    [symmCollAllReduce] = all_reduce,
    [symmCollAllGather] = all_gather,
    [symmCollBarrier] = meet,
    [symmCollReduceScatter] = reduce_scatter,
    [symmCollAlltoAll] = alltoall,
    [symmCollBroadcast] = broadcast,
    [symmCollReduce] = reduce,
    [symmCollGather] = gather_parts,
    [symmCollScatter] = scatter_parts,
    [symmCollAllGatherv] = all_gatherv,
    [symmCollReduceScatterv] = reduce_scatterv,
    [symmCollAlltoAllv] = alltoallv};

static void (*theirs_of(const perf_config *cfg))(const mpi_call *m) {
    return cfg->pattern < 0 ? theirs[cfg->coll] : theirs_of_patterns[cfg->pattern];
}

static int offers(const perf_rank *p, const perf_case *c) {
    if (c->count > INT_MAX || !theirs_of(p->cfg)) return 0;
    if (c->v && c->count > INT_MAX / (unsigned)p->world->nranks) return 0; /* its displacements */
    return !perf_reduces(p->cfg) ||
           (number(c->type) != MPI_DATATYPE_NULL && reduction(c->op) != MPI_OP_NULL);
}

static void call(perf_rank *p, const perf_case *c) {
    const mpi_call m = {.c = c,
                        .from = c->in_place ? MPI_IN_PLACE : c->send,
                        .n = (int)c->count,
                        .root = p->root,
                        .is_root = p->world->rank == p->root,
                        .rank = p->world->rank,
                        .nranks = p->world->nranks};
    theirs_of(p->cfg)(&m);
}

static const perf_rival rival = {.name = "MPI", .key = "mpi", .offers = offers, .call = call};

void perf_mpi_open(int *argc, char ***argv, perf_world *w) {
    MPI_Init(argc, argv);
    *w = (perf_world){.how = "mpi",
                      .barrier = barrier,
                      .allgather = gather,
                      .comm_create = create,
                      .device = -1,
                      .abort = end_job,
                      .mpi = &rival};
    MPI_Comm_rank(MPI_COMM_WORLD, &w->rank);
    MPI_Comm_size(MPI_COMM_WORLD, &w->nranks);
}

void perf_mpi_close(void) {
    MPI_Finalize();
}
