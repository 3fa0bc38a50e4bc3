/* bench_nonblocking.c - what MPI's nonblocking collectives would take if libsymm-pmpi.so served
 * them. Such a call must not wait for peers, so it runs on a stream, whose worker ends a
 * generalized request. Beside MPI's own, in turns on the same buffers, which are in no window.
 * Under mpirun; rank 0 prints. Argument: the largest size in bytes (default 16777216).
 *
 * Each call in three ways: the program waits for the request at once; it waits for the stream, as
 * if MPI_Wait were taken too; it reads as much of its own four times before it waits. */
#include "bench_pairs.h"
#include "symm_mpi.h"
#include "symm_stream.h"

static symmComm_t comm;
static symmStream_t stream;
static MPI_Request request;
static unsigned *own; /* what the program works on meanwhile */
static volatile unsigned sum;

static void must(int failed) {
    if (!failed) return;
    fprintf(stderr, "rank %d: %s\n", my_rank, symmGetLastError(NULL));
    MPI_Abort(W, 1);
}

/* ---- a request that a stream ends ------------------------------------------------------------ */

static int ask(void *state, MPI_Status *status) {
    (void)state;
    MPI_Status_set_elements(status, MPI_BYTE, 0);
    MPI_Status_set_cancelled(status, 0);
    return MPI_SUCCESS;
}
static int drop(void *state) {
    (void)state;
    return MPI_SUCCESS;
}
static int cancel(void *state, int complete) {
    (void)state, (void)complete;
    return MPI_SUCCESS;
}
static void done(void *arg) {
    MPI_Grequest_complete(*(MPI_Request *)arg);
}

/* ---- three ways ------------------------------------------------------------------------------ */

static void finish(void) {
    must(MPI_Wait(&request, MPI_STATUS_IGNORE));
}
static void finish_stream(void) {
    must(symmStreamSynchronize(stream));
    finish();
}
static void work(int n) {
    unsigned all = 0;
    for (int pass = 0; pass < 4; pass++, sum = all)
        for (int i = 0; i < n; i++) all += own[i] ^ (unsigned)pass;
}
#define WAYS(name, mpis, ours)                                \
    CASE(name, (mpis, finish()), (ours, finish()))            \
    CASE(name##_s, (mpis, finish()), (ours, finish_stream())) \
    CASE(name##_w, (mpis, work(n), finish()), (ours, work(n), finish()))
/* A request and a call; then what ends the one after the other. */
#define OURS(call)                                                            \
    (must(MPI_Grequest_start(ask, drop, cancel, NULL, &request)), must(call), \
     must(symmStreamHostFunc(stream, done, &request)))
WAYS(all_reduce, must(PMPI_Iallreduce(in, out, n, F, MPI_SUM, W, &request)),
     OURS(symmAllReduce(in, out, (size_t)n, symmFloat32, symmSum, comm, stream)))
WAYS(all_to_all, must(PMPI_Ialltoall(in, n, F, out, n, F, W, &request)),
     OURS(symmAlltoAll(in, out, (size_t)n, symmFloat32, comm, stream)))
WAYS(broadcast, must(PMPI_Ibcast(in, n, F, 0, W, &request)),
     OURS(symmBroadcast(in, in, (size_t)n, symmFloat32, 0, comm, stream)))
CASE(barrier, (must(PMPI_Ibarrier(W, &request)), finish()),
     (OURS(symmBarrier(comm, stream)), finish()))

static const bench_case cases[] = {
    {"MPI_Ibarrier", barrier_once, 0, NULL},
    {"MPI_Iallreduce, waited for at once", all_reduce_once, 0, NULL},
    {"MPI_Iallreduce, the stream waited for", all_reduce_s_once, 0, NULL},
    {"MPI_Iallreduce, work before the wait", all_reduce_w_once, 0, NULL},
    {"MPI_Ialltoall, waited for at once", all_to_all_once, 1, NULL},
    {"MPI_Ialltoall, the stream waited for", all_to_all_s_once, 1, NULL},
    {"MPI_Ialltoall, work before the wait", all_to_all_w_once, 1, NULL},
    {"MPI_Ibcast, waited for at once", broadcast_once, 0, NULL},
    {"MPI_Ibcast, the stream waited for", broadcast_s_once, 0, NULL},
    {"MPI_Ibcast, work before the wait", broadcast_w_once, 0, NULL},
};

int main(int argc, char **argv) {
    const size_t most = argc > 1 ? strtoull(argv[1], NULL, 10) : 16u << 20;
    int level;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    MPI_Comm_rank(W, &my_rank);
    MPI_Comm_size(W, &ranks);
    if (ranks > PARTS || level != MPI_THREAD_MULTIPLE) MPI_Abort(W, 2);
    must(symmCommInitMPI(&comm, W, NULL));
    must(symmStreamCreate(&stream));
    if (!(own = calloc(most, 1))) MPI_Abort(W, 1);
    tables(cases, (int)(sizeof cases / sizeof *cases), 8, most);
    free(own);
    must(symmStreamDestroy(stream));
    must(symmCommDestroy(comm));
    MPI_Finalize();
    return 0;
}
