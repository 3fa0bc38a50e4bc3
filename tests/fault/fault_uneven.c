/* fault_uneven.c - bad counts, displacements and buffers of the collectives with a count per rank:
 * a code, a text that names argument and value, and nothing changed: the communicator goes on.
 * Counts of two ranks that differ are in thr_uneven.c, deaths in fault_death.c. Forked ranks; no
 * lock. */
#include "fault_kit.h"

enum { COUNT = 1 << 16 };

typedef struct {
    int rank;
    symmComm_t comm;
    int *in, *out; /* COUNT each */
} ctx;

typedef void (*body_fn)(ctx *x);
static body_fn body; /* set before the ranks are forked */

static void case_rank(int rank, int n, void *arg) {
    fk *f = arg;
    ctx x = {.rank = rank, .comm = fk_open(f, rank, n)};
    x.in = calloc(COUNT, sizeof *x.in);
    x.out = calloc(COUNT, sizeof *x.out);
    T_CHECK(x.in && x.out);
    fk_gauges before = fk_take();
    body(&x);
    FK_COLLECTED(x.comm, &before);
    kit_barrier(&f->k, n);
    fk_works(x.comm, rank, n);
    T_OK(symmCommDestroy(x.comm));
    free(x.in);
    free(x.out);
}

static void run_case(body_fn fn) {
    T_EXPECT_WARNINGS();
    body = fn;
    T_FORK(2, case_rank, fk_new(1, 0));
}

#define CASE(name)                   \
    static void name##_body(ctx *x); \
    static void name(void) {         \
        run_case(name##_body);       \
    }                                \
    static void name##_body(ctx *x)

#define REFUSED(call, part) FK_REFUSED(x->comm, call, symmInvalidArgument, part)
#define GATHERV(in, n, out, counts, displs) \
    symmAllGatherv(in, n, out, counts, displs, symmInt32, x->comm, NULL)
#define SCATTERV(in, out, counts) \
    symmReduceScatterv(in, out, counts, symmInt32, symmSum, x->comm, NULL)
#define ALLV(in, s, sd, out, r, rd) symmAlltoAllv(in, s, sd, out, r, rd, symmInt32, x->comm, NULL)

static const size_t two[] = {2, 2}, none[] = {0, 0};

CASE(arrays_that_are_not_there) {
    REFUSED(GATHERV(x->in, 2, x->out, NULL, NULL), "symmAllGatherv: recvcounts is NULL");
    REFUSED(SCATTERV(x->in, x->out, NULL), "symmReduceScatterv: recvcounts is NULL");
    REFUSED(ALLV(x->in, NULL, NULL, x->out, two, NULL), "symmAlltoAllv: sendcounts is NULL");
    REFUSED(ALLV(x->in, two, NULL, x->out, NULL, NULL), "symmAlltoAllv: recvcounts is NULL");
    T_OK(ALLV(x->in, two, NULL, x->out, two, NULL));
}

CASE(buffers_that_are_not_there) {
    REFUSED(GATHERV(NULL, 2, x->out, two, NULL), "sendbuff is NULL");
    REFUSED(GATHERV(x->in, 2, NULL, two, NULL), "recvbuff is NULL");
    REFUSED(SCATTERV(NULL, x->out, two), "sendbuff is NULL");
    REFUSED(SCATTERV(x->in, NULL, two), "recvbuff is NULL");
    REFUSED(ALLV(NULL, two, NULL, x->out, two, NULL), "sendbuff is NULL");
    REFUSED(ALLV(x->in, two, NULL, NULL, two, NULL), "recvbuff is NULL");
    REFUSED(ALLV((void *)8, two, NULL, x->out, two, NULL), "sendbuff=0x8 is not an address");
    T_OK(GATHERV(NULL, 0, NULL, none, NULL)); /* nothing is no fault */
    T_OK(SCATTERV(NULL, NULL, none));
    T_OK(ALLV(NULL, none, NULL, NULL, none, NULL));
    const size_t of_0[] = {2, 0}, of_1[] = {0, 2}; /* rank 0 gives, rank 1 takes */
    if (x->rank)
        T_OK(ALLV(NULL, none, NULL, x->out, of_0, NULL));
    else
        T_OK(ALLV(x->in, of_1, NULL, NULL, none, NULL));
}

CASE(counts_that_overflow) {
    const size_t most[] = {SIZE_MAX, 1}, more[] = {2, 1ull << 58}, far[] = {0, SIZE_MAX / 4},
                 wraps[] = {0, SIZE_MAX};
    REFUSED(GATHERV(x->in, SIZE_MAX, x->out, two, NULL), "count=18446744073709551615");
    REFUSED(GATHERV(x->in, 2, x->out, most, NULL), "recvcounts[0]=18446744073709551615");
    REFUSED(GATHERV(x->in, 2, x->out, more, NULL), "recvcounts[1]=288230376151711744");
    REFUSED(GATHERV(x->in, 2, x->out, two, far), "displacement 4611686018427387903");
    REFUSED(GATHERV(x->in, 2, x->out, two, wraps), "displacement 18446744073709551615");
    REFUSED(SCATTERV(x->in, x->out, more), "recvcounts[1]=288230376151711744");
    REFUSED(ALLV(x->in, most, NULL, x->out, two, NULL), "sendcounts[0]=18446744073709551615");
    REFUSED(ALLV(x->in, two, wraps, x->out, two, NULL), "sendcounts[1]=2");
}

CASE(parts_that_overlap) {
    const size_t near[] = {0, 1}, back[] = {1, 0}, same[] = {5, 5}, apart[] = {2, 0},
                 one[] = {2, 0};
    REFUSED(GATHERV(x->in, 2, x->out, two, near), "parts of ranks 0 and 1 in recvbuff overlap");
    REFUSED(GATHERV(x->in, 2, x->out, two, back), "parts of ranks 1 and 0 in recvbuff overlap");
    REFUSED(ALLV(x->in, two, NULL, x->out, two, same), "2 elements at 5, 2 at 5");
    T_OK(ALLV(x->in, two, same, x->out, two, apart)); /* sent twice is no fault */
    if (x->rank == 0) /* nor is a part of nothing inside another one */
        T_OK(GATHERV(x->in, 2, x->out, one, same));
    else
        T_OK(GATHERV(x->in, 0, x->out, one, same));
}

CASE(what_a_rank_sends_itself) {
    const size_t three[] = {3, 3};
    REFUSED(GATHERV(x->in, 3, x->out, two, NULL), "sends itself 3 elements and expects 2");
    REFUSED(ALLV(x->in, three, NULL, x->out, two, NULL), "sends itself 3 elements and expects 2");
}

CASE(in_place_or_not) {
    const size_t counts[] = {3, 5}, far[] = {10, 2};
    const size_t at = x->rank ? 3 : 0, mine = counts[x->rank];
    T_OK(GATHERV(x->out + at, mine, x->out, counts, NULL));
    T_OK(GATHERV(x->out + far[x->rank], mine, x->out, counts, far));
    REFUSED(GATHERV(x->out + at + 1, mine, x->out, counts, NULL),
            "in place means sendbuff == recvbuff + displs[rank]");
    T_OK(SCATTERV(x->in, x->in + at, counts));
    REFUSED(SCATTERV(x->in, x->in + at + 1, counts), "sendbuff + the counts of the ranks before");
    REFUSED(ALLV(x->in, two, NULL, x->in, two, NULL), "never done in place");
    REFUSED(ALLV(x->in, two, NULL, x->in + 3, two, NULL), "never done in place");
    T_OK(ALLV(x->in, two, NULL, x->in + 4, two, NULL));
}

CASE(types_reductions_and_explain) {
    symmExplain_t plan = {.size = sizeof plan};
    REFUSED(symmAllGatherv(x->in, 2, x->out, two, NULL, symmNumTypes, x->comm, NULL),
            "datatype=12");
    REFUSED(symmReduceScatterv(x->in, x->out, two, symmInt32, (symmRedOp_t)77, x->comm, NULL),
            "op=77");
    T_OK(symmExplain(x->comm, symmCollAlltoAllv, x->in, x->out, 5, symmInt32, symmSum, 0, &plan));
    T_STREQ(plan.kernel, "alltoallv_pairs");
    T_EQ(plan.zeroCopySend, 0);
    T_MSG(plan.reason, "sendbuff");
    T_OK(symmExplain(x->comm, symmCollAlltoAllv, x->in, x->out, 0, symmInt32, symmSum, 0, &plan));
    T_EQ(plan.zeroCopySend, 1);
}

T_MAIN(T(arrays_that_are_not_there), T(buffers_that_are_not_there), T(counts_that_overflow),
       T(parts_that_overlap), T(what_a_rank_sends_itself), T(in_place_or_not),
       T(types_reductions_and_explain))
