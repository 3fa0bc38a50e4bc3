/* bench_across.c - collectives over several domains beside MPI's over the same ranks, in turns on
 * the same buffers, which are in no window. Under mpirun; rank 0 prints. SYMM_DOMAIN_SIZE cuts one
 * machine into domains. Arguments: the largest size in bytes (default 16777216).
 *
 *   SYMM_DOMAIN_SIZE=2 mpirun -np 4 build/test/bench_across */
#include "bench_pairs.h"
#include "symm_domains.h"
#include "symm_mpi.h"

static symmComm_t comm, ordered; /* the latter with SYMM_DETERMINISTIC=1 */

#define OURS_OF(comm, call, ...)                                                          \
    do {                                                                                  \
        if (call(__VA_ARGS__, comm, NULL)) {                                              \
            fprintf(stderr, "rank %d: %s: %s\n", my_rank, #call, symmGetLastError(NULL)); \
            MPI_Abort(W, 1);                                                              \
        }                                                                                 \
    } while (0)
#define OURS(...) OURS_OF(comm, __VA_ARGS__)
#define T_        symmFloat32
CASE(barrier, MPI_Barrier(W), (void)symmBarrier(comm, NULL))
CASE(all_reduce, MPI_Allreduce(in, out, n, F, MPI_SUM, W),
     OURS(symmAllReduce, in, out, (size_t)n, T_, symmSum))
CASE(reduce, MPI_Reduce(in, out, n, F, MPI_SUM, 0, W),
     OURS(symmReduce, in, out, (size_t)n, T_, symmSum, 0))
CASE(reduce_scatter, MPI_Reduce_scatter_block(in, out, n, F, MPI_SUM, W),
     OURS(symmReduceScatter, in, out, (size_t)n, T_, symmSum))
CASE(all_gather, MPI_Allgather(in, n, F, out, n, F, W), OURS(symmAllGather, in, out, (size_t)n, T_))
CASE(all_to_all, MPI_Alltoall(in, n, F, out, n, F, W), OURS(symmAlltoAll, in, out, (size_t)n, T_))
CASE(broadcast, MPI_Bcast(in, n, F, 0, W), OURS(symmBroadcast, in, in, (size_t)n, T_, 0))
CASE(gather, MPI_Gather(in, n, F, out, n, F, 0, W), OURS(symmGather, in, out, (size_t)n, T_, 0))
CASE(scatter, MPI_Scatter(in, n, F, out, n, F, 0, W), OURS(symmScatter, in, out, (size_t)n, T_, 0))

/* What rank order over all ranks costs. */
#define BOTH(name, ...) \
    CASE(name##_ordered, OURS_OF(comm, __VA_ARGS__), OURS_OF(ordered, __VA_ARGS__))
BOTH(all_reduce, symmAllReduce, in, out, (size_t)n, T_, symmSum)
BOTH(reduce, symmReduce, in, out, (size_t)n, T_, symmSum, 0)
BOTH(reduce_scatter, symmReduceScatter, in, out, (size_t)n, T_, symmSum)

/* Of two domains: what an all_reduce sends across, by MPI alone. */
static int partner = MPI_PROC_NULL, rails = 1;
CASE(mover,
     MPI_Sendrecv(in, n / rails, F, partner, 0, out, n / rails, F, partner, 0, W,
                  MPI_STATUS_IGNORE),
     OURS(symmAllReduce, in, out, (size_t)n, T_, symmSum))

static void find_partner(const symmDomainInfo_t *own) {
    int size[2] = {0, 0}, domain, place;
    for (int r = 0; r < ranks && own->domains == 2; r++) {
        symmDomainOf(comm, r, &domain, &place);
        size[domain]++;
        if (domain != own->domain && place == own->place) partner = r;
    }
    if (own->domains == 2) rails = size[0] < size[1] ? size[0] : size[1];
}

static const char by_domains[] = "domain by domain";
static const bench_case cases[] = {
    {"barrier", barrier_once, 0, NULL},
    {"all_reduce", all_reduce_once, 0, NULL},
    {"reduce", reduce_once, 0, NULL},
    {"reduce_scatter", reduce_scatter_once, 1, NULL},
    {"all_gather", all_gather_once, 1, NULL},
    {"alltoall", all_to_all_once, 1, NULL},
    {"broadcast", broadcast_once, 0, NULL},
    {"gather", gather_once, 1, NULL},
    {"scatter", scatter_once, 1, NULL},
    {"all_reduce in rank order", all_reduce_ordered_once, 0, by_domains},
    {"reduce in rank order", reduce_ordered_once, 0, by_domains},
    {"reduce_scatter in rank order", reduce_scatter_ordered_once, 1, by_domains},
    {"all_reduce, beside what crosses by MPI alone", mover_once, 0, "these messages"},
};

static void make(symmComm_t *out_comm) {
    if (symmCommInitMPI(out_comm, W, NULL) == symmSuccess) return;
    fprintf(stderr, "rank %d: %s\n", my_rank, symmGetLastError(NULL));
    MPI_Abort(W, 1);
}

int main(int argc, char **argv) {
    const size_t most = argc > 1 ? strtoull(argv[1], NULL, 10) : 16u << 20;
    symmDomainInfo_t info = {.size = sizeof info};
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(W, &my_rank);
    MPI_Comm_size(W, &ranks);
    if (ranks > PARTS) MPI_Abort(W, 2);
    make(&comm);
    setenv("SYMM_DETERMINISTIC", "1", 1);
    make(&ordered);
    if (symmDomainQuery(comm, &info)) MPI_Abort(W, 1);
    if (my_rank == 0) printf("%d ranks, %d domains\n", ranks, info.domains);
    find_partner(&info);
    /* The last one is for two domains. */
    tables(cases, (int)(sizeof cases / sizeof *cases) - (info.domains != 2), 8, most);
    symmCommDestroy(ordered);
    symmCommDestroy(comm);
    MPI_Finalize();
    return 0;
}
