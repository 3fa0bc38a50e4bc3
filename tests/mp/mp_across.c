/* mp_across.c - communicators over several domains, with ranks as processes under mpirun:
 * SYMM_DOMAIN_SIZE cuts this machine into domains. The matrix of all collectives; who is in which
 * domain; what serves one domain only; bits; what ranks do wrong. */
#include <mpi.h>

#include <unistd.h>

#include "base/fail.h"
#include "base/stats.h"
#include "base/wait.h"
#include "coll_kit.h"
#include "fault_kit.h"
#include "mpi_across.h"
#include "symm_host.h"

static void matrix_of(const char *ordered) {
    const int cases = ck_full() ? 240 : 24;
    uint64_t seed = same_seed();
    setenv("SYMM_DETERMINISTIC", ordered, 1);
    for (EACH_SIZE(size))
        for (int env = 0; env < CK_ENVS && (size < ranks || env == 0); env++) {
            ck_env(env);
            symmComm_t comm = new_comm(size);
            symmDomainInfo_t d = {.size = sizeof d};
            T_OK(symmDomainQuery(comm, &d));
            ck_domains = *ordered == '1' ? 0 : d.domains;
            for (int r = 0; r < ranks; r++) T_OK(symmDomainOf(comm, r, &ck_domain_of[r], NULL));
            ck_matrix(comm, rank, ranks, ck_hash(seed, (unsigned)size, 1), env, cases);
        }
    unsetenv("SYMM_DETERMINISTIC");
}

static void matrix(void) {
    matrix_of("0");
}
static void matrix_in_rank_order(void) {
    matrix_of("1");
}

/* ---- who is where ---------------------------------------------------------------------------- */

/* Where a rank must be: as SYMM_DOMAIN_SIZE cuts, or as MPI finds the hosts. Domains are numbered
 * by their lowest ranks. */
static void expect_places(int size, int *domain, int *place, int *members) {
    MPI_Comm host;
    int lowest[SYMM_MAX_RANKS], mine = rank / (size ? size : 1) * size, seen[SYMM_MAX_RANKS] = {0};
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &host);
    if (!size) MPI_Allreduce(&rank, &mine, 1, MPI_INT, MPI_MIN, host);
    MPI_Allgather(&mine, 1, MPI_INT, lowest, 1, MPI_INT, MPI_COMM_WORLD);
    MPI_Comm_free(&host);
    for (int r = 0, n = 0; r < ranks; r++) {
        domain[r] = lowest[r] == r ? n++ : domain[lowest[r]];
        place[r] = seen[lowest[r]]++;
    }
    *members = seen[lowest[rank]];
}

static void ranks_are_where_they_say(void) {
    same_seed();
    T_EXPECT_WARNINGS();
    for (EACH_SIZE(size)) {
        int at[SYMM_MAX_RANKS], places[SYMM_MAX_RANKS], mine, last = 0;
        expect_places(size, at, places, &mine);
        symmComm_t comm = new_comm(size), inside;
        symmDomainInfo_t d = {.size = sizeof d};
        symmCommInfo_t c = {.size = sizeof c}, in = {.size = sizeof in};
        int count, user, device, domain, place;
        T_OK(symmDomainQuery(comm, &d));
        for (int r = 0; r < ranks; r++) {
            T_OK(symmDomainOf(comm, r, &domain, &place));
            T_EQ(domain, at[r]);
            T_EQ(place, places[r]);
            if (at[r] > last) last = at[r];
        }
        T_EQ(d.domains, last + 1);
        T_EQ(d.domain, at[rank]);
        T_EQ(d.place, places[rank]);
        T_EQ(d.ranks, mine);
        T_STREQ(d.mover, d.domains > 1 ? "mpi" : "");
        T_ERR(symmDomainOf(comm, ranks, &domain, NULL), symmInvalidArgument);
        T_OK(symmCommCount(comm, &count));
        T_OK(symmCommUserRank(comm, &user));
        T_OK(symmCommDevice(comm, &device));
        T_EQ(count, ranks);
        T_EQ(user, rank);
        T_EQ(device, -1);
        T_OK(symmCommDomain(comm, &inside));
        T_EQ(inside == comm, d.domains == 1);
        T_OK(symmCommQuery(comm, &c));
        T_OK(symmCommQuery(inside, &in));
        T_EQ(c.rank, rank);
        T_EQ(c.nranks, ranks);
        T_EQ(c.domainSize, mine);
        T_EQ(in.rank, places[rank]);
        T_EQ(in.nranks, mine);
        T_OK(symmCommFinalize(comm));
        T_OK(symmCommDestroy(comm));
        T_ERR(symmDomainQuery(comm, &d), symmInvalidArgument);
    }
}

/* What serves one domain names the way out, and does no harm. */
static void what_serves_one_domain_says_so(void) {
    same_seed();
    if (ranks < 2) T_SKIP("there are several domains from two ranks on");
    T_EXPECT_WARNINGS();
    symmComm_t comm = new_comm(1);
    symmStream_t stream;
    float x = (float)rank, y = 0;
    T_OK(symmStreamCreate(&stream));
    T_ERR(symmSignal(0, 0, comm, NULL), symmNotSupported);
    T_MSG(symmGetLastError(NULL), "symmCommDomain");
    T_ERR(symmSend(&x, 1, symmFloat32, 0, comm, stream), symmNotSupported);
    T_MSG(symmGetLastError(NULL), "streams need MPI_THREAD_MULTIPLE");
    T_ERR(symmSend(&x, 1, symmFloat32, ranks, comm, NULL), symmInvalidArgument);
    T_ERR(symmRecv(NULL, 1, symmFloat32, 0, comm, NULL), symmInvalidArgument);
    T_OK(symmGroupStart());
    T_ERR(symmAllReduce(&x, &y, 1, symmFloat32, symmSum, comm, stream), symmNotSupported);
    T_ERR(symmGroupEnd(), symmNotSupported);
    T_ERR(symmAllReduce(&x, &y, 1, symmFloat32, (symmRedOp_t)77, comm, NULL), symmInvalidArgument);
    T_ERR(symmBroadcast(&x, &y, 1, symmFloat32, ranks, comm, NULL), symmInvalidArgument);
    T_ERR(symmAllReduce(NULL, &y, 1, symmFloat32, symmSum, comm, NULL), symmInvalidArgument);
    T_OK(symmAllReduce(&x, &y, 1, symmFloat32, symmSum, comm, NULL));
    T_EQ((int)y, ranks * (ranks - 1) / 2);
    T_OK(symmAllReduce(&x, &y, 0, symmFloat32, symmSum, comm, NULL));
    T_OK(symmStreamDestroy(stream));
    T_OK(symmCommDestroy(comm));
}

/* A window over all domains: addresses inside the own one, none outside; collectives find it; it is
 * made on all ranks or on none. */
static void windows(void) {
    same_seed();
    T_EXPECT_WARNINGS();
    for (EACH_SIZE(size)) {
        symmComm_t comm = new_comm(size), inside;
        symmWindow_t win = NULL, none = NULL;
        symmDomainInfo_t d = {.size = sizeof d};
        symmWindowInfo_t w = {.size = sizeof w};
        int *mine, *theirs, domain, place;
        T_OK(symmDomainQuery(comm, &d));
        T_OK(symmMemAlloc((void **)&mine, 65536));
        T_OK(symmWindowRegister(comm, mine, 65536, &win, 0));
        mine[0] = rank;
        T_OK(symmBarrier(comm, NULL));
        for (int r = 0; r < ranks; r++) {
            T_OK(symmDomainOf(comm, r, &domain, &place));
            if (domain == d.domain) {
                T_OK(symmWindowPeerPtr(win, 0, r, (void **)&theirs));
                T_EQ(theirs[0], r);
            } else {
                T_ERR(symmWindowPeerPtr(win, 0, r, (void **)&theirs), symmNotSupported);
                T_MSG(symmGetLastError(NULL), "domain");
            }
        }
        T_ERR(symmWindowPeerPtr(win, 0, ranks, (void **)&theirs), symmInvalidArgument);
        T_OK(symmWindowQuery(win, &w));
        T_CHECK(w.userPtr == (void *)mine && w.bytes == 65536);
        T_OK(symmBarrier(comm, NULL));
        T_OK(symmAllReduce(mine, mine, 1, symmInt32, symmSum, comm, NULL));
        T_EQ(mine[0], ranks * (ranks - 1) / 2);
        /* One rank has no memory there. */
        T_CHECK(symmWindowRegister(comm, rank == ranks - 1 ? (void *)64 : mine, 4096, &none, 0));
        T_CHECK(none == NULL);
        T_OK(symmCommDomain(comm, &inside));
        T_OK(symmWindowDeregister(comm, win));
        T_ERR(symmWindowDeregister(comm, win), symmInvalidArgument);
        T_OK(symmBarrier(comm, NULL));
        T_OK(symmCommDestroy(comm));
        T_OK(symmMemFree(mine));
    }
}

/* Nobody leaves a barrier before the last has come. */
static void barrier_holds_all(void) {
    const uint64_t seed = same_seed();
    for (EACH_SIZE(size)) {
        symmComm_t comm = new_comm(size);
        double entered[SYMM_MAX_RANKS];
        for (int i = 0; i < 20; i++) {
            if (ck_hash(seed, (uint64_t)i, 1) % (unsigned)ranks == (unsigned)rank) usleep(2000);
            double in = (double)symm_now_ns();
            T_OK(symmBarrier(comm, NULL));
            const double out = (double)symm_now_ns();
            MPI_Allgather(&in, 1, MPI_DOUBLE, entered, 1, MPI_DOUBLE, MPI_COMM_WORLD);
            for (int p = 0; p < ranks; p++) T_CHECK(entered[p] <= out);
        }
        T_OK(symmCommDestroy(comm));
    }
}

/* More than a chunk, with every number of slices; messages of every size around the steps between
 * ways. All ranks have the same bits. */
static void large_messages(void) {
    static const size_t counts[] = {1, 2047, 2048, 2049, 4097, 100003, 262143, 262145, 1000003};
    same_seed();
    float *src = malloc(1000003 * sizeof *src), *dst = malloc(1000003 * sizeof *dst);
    T_CHECK(src && dst);
    for (EACH_SIZE(size)) {
        symmComm_t comm = new_comm(size);
        for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
            uint64_t sum[2] = {0, 0}, all[2];
            for (size_t e = 0; e < counts[i]; e++)
                src[e] = (float)(e % 1000 + 7 * (size_t)rank) / 3;
            T_OK(symmAllReduce(src, dst, counts[i], symmFloat32, symmSum, comm, NULL));
            for (size_t e = 0; e < counts[i]; e++) {
                uint32_t bits;
                memcpy(&bits, &dst[e], sizeof bits);
                sum[0] = sum[0] * 31 + bits;
                const float exact =
                    ((float)(e % 1000) * (float)ranks + 3.5f * (float)ranks * (float)(ranks - 1)) /
                    3;
                sum[1] += dst[e] > exact * 1.0001f || dst[e] < exact * 0.9999f;
            }
            T_EQ(sum[1], 0);
            MPI_Allreduce(sum, all, 1, MPI_UINT64_T, MPI_MAX, MPI_COMM_WORLD);
            T_EQ(sum[0], all[0]);
            T_OK(symmReduce(src, dst, counts[i], symmFloat32, symmMax, ranks - 1, comm, NULL));
            for (size_t e = 0; e < counts[i] && rank == ranks - 1; e++)
                T_CHECK(dst[e] == (float)(e % 1000 + 7 * (size_t)rank) / 3);
        }
        T_OK(symmCommDestroy(comm));
    }
    free(src), free(dst);
}

/* A message of more than a piece (net_mpi.c). */
static void messages_of_several_pieces(void) {
    enum { BYTES = (40 << 20) + 13 };
    same_seed();
    symmComm_t comm = new_comm(1);
    unsigned char *p = malloc(BYTES);
    T_CHECK(p != NULL);
    for (size_t i = 0; i < BYTES; i++) p[i] = rank ? 0 : (unsigned char)(i * 7 + i / 1000003);
    T_OK(symmBroadcast(p, p, BYTES, symmUint8, 0, comm, NULL));
    for (size_t i = 0; i < BYTES; i++) T_CHECK(p[i] == (unsigned char)(i * 7 + i / 1000003));
    T_OK(symmCommDestroy(comm));
    free(p);
}

/* Numbers of reductions that users make are a rank's own. */
static void reductions_of_other_numbers(void) {
    same_seed();
    symmComm_t comm = new_comm(1);
    symmRedOp_t op[2];
    float factor = 2, x = (float)rank + 1, y = 0;
    for (int i = 0; i <= (rank == 0); i++)
        T_OK(symmRedOpCreatePreMulSum(&op[i], &factor, symmFloat32, symmScalarHostImmediate, comm));
    T_OK(symmAllReduce(&x, &y, 1, symmFloat32, op[rank == 0], comm, NULL));
    T_EQ((int)y, ranks * (ranks + 1));
    for (int i = 0; i <= (rank == 0); i++) T_OK(symmRedOpDestroy(op[i], comm));
    T_OK(symmCommDestroy(comm));
}

static int progressed;
static void progress(void *arg) {
    ++*(int *)arg;
}

/* The program's own progress goes on while a rank waits for another domain. */
static void progress_of_the_program(void) {
    same_seed();
    if (ranks < 2) T_SKIP("there are several domains from two ranks on");
    symmComm_t comm = new_comm(1);
    float x = 1, y = 0;
    T_OK(symmSetProgress(progress, &progressed));
    if (rank == 1) usleep(300000);
    T_OK(symmAllReduce(&x, &y, 1, symmFloat32, symmSum, comm, NULL));
    T_OK(symmSetProgress(NULL, NULL));
    if (rank == 0) T_CHECK(progressed > 10);
    T_OK(symmCommDestroy(comm));
}

/* ---- what goes wrong ------------------------------------------------------------------------- */

/* Each rank has an error, and the rank that is `told` says why; then a new one works. */
static void over_for_all(symmComm_t comm, symmResult_t r) {
    symmResult_t async;
    float x = 1, y = 0;
    T_CHECK(r != symmSuccess);
    T_CHECK(symmAllReduce(&x, &y, 1, symmFloat32, symmSum, comm, NULL) != symmSuccess);
    T_OK(symmCommGetAsyncError(comm, &async));
    T_CHECK(async != symmSuccess);
    T_OK(symmCommDestroy(comm));
    MPI_Barrier(MPI_COMM_WORLD);
    comm = new_comm(1);
    T_OK(symmAllReduce(&x, &y, 1, symmFloat32, symmSum, comm, NULL));
    T_EQ((int)y, ranks);
    T_OK(symmCommDestroy(comm));
}

static void domains_that_differ_are_told(void) {
    same_seed();
    if (ranks < 2) T_SKIP("there are several domains from two ranks on");
    T_EXPECT_WARNINGS();
    for (int what = 0; what < 4; what++) {
        const int size = ranks > 2 ? 2 : 1, odd = rank / size == 1;
        symmComm_t comm = new_comm(size);
        float x[64] = {1}, y[16 * SYMM_MAX_RANKS] = {0};
        symmResult_t r = symmSuccess;
        if (what == 0)
            r = symmAllReduce(x, y, odd ? 16 : 17, symmFloat32, symmSum, comm, NULL);
        else if (what == 1)
            r = symmAllReduce(x, y, 16, odd ? symmFloat32 : symmInt32, symmSum, comm, NULL);
        else if (what == 2)
            r = odd ? symmAllGather(x, y, 16, symmFloat32, comm, NULL)
                    : symmAllReduce(x, y, 16, symmFloat32, symmSum, comm, NULL);
        else
            r = symmAllReduce(x, y, 16, symmFloat32, odd ? symmMax : symmMin, comm, NULL);
        T_EQ(r, symmMismatch);
        over_for_all(comm, r);
    }
}

/* Rank 0 sends two pieces (net_mpi.c) where rank 1 expects one, which is as long as the first. */
static void a_longer_message_is_told(void) {
    enum { PIECE = 16 << 20 };
    same_seed();
    if (ranks < 2) T_SKIP("there are several domains from two ranks on");
    T_EXPECT_WARNINGS();
    symmComm_t comm = new_comm(1);
    size_t to[SYMM_MAX_RANKS] = {0}, from[SYMM_MAX_RANKS] = {0};
    static char x[2 * PIECE]; /* MPI may still read it when this has returned */
    char *y = malloc(PIECE);
    T_CHECK(y != NULL);
    if (rank == 0) to[1] = 2 * PIECE;
    if (rank == 1) from[0] = PIECE;
    symmResult_t r = symmAlltoAllv(x, to, NULL, y, from, NULL, symmUint8, comm, NULL);
    if (rank < 2) T_EQ(r, symmMismatch);
    for (int i = 0; i < 1000 && !r; i++) r = symmBarrier(comm, NULL);
    over_for_all(comm, r);
    free(y);
}

static void a_domain_that_does_not_come(void) {
    same_seed();
    if (ranks < 2) T_SKIP("there are several domains from two ranks on");
    T_EXPECT_WARNINGS();
    setenv("SYMM_TIMEOUT", "300", 1);
    symmComm_t comm = new_comm(ranks - 1);
    unsetenv("SYMM_TIMEOUT");
    const int late = rank == ranks - 1;
    float x = 1, y = 0;
    if (late) usleep(1500000);
    symmResult_t r = symmAllReduce(&x, &y, 1, symmFloat32, symmSum, comm, NULL);
    int first = r == symmTimeout && strstr(symmGetLastError(NULL), "SYMM_TIMEOUT"), some;
    MPI_Allreduce(&first, &some, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    T_CHECK(some);
    /* What the others had sent by then has come; that they gave up, it learns from them. */
    if (late && !r) r = symmBarrier(comm, NULL);
    T_EQ(r, symmTimeout);
    if (late && ranks == 2) T_MSG(symmGetLastError(NULL), "a rank of domain 0 says");
    over_for_all(comm, r);
}

static void a_revoked_one_is_over_in_all_domains(void) {
    same_seed();
    if (ranks < 2) T_SKIP("there are several domains from two ranks on");
    T_EXPECT_WARNINGS();
    symmComm_t comm = new_comm(ranks > 2 ? 2 : 1);
    float x = 1, y = 0;
    if (rank == ranks - 1) T_OK(symmCommRevoke(comm, 0));
    symmResult_t r = symmSuccess;
    for (int i = 0; i < 1000 && !r; i++)
        r = symmAllReduce(&x, &y, 1, symmFloat32, symmSum, comm, NULL);
    T_EQ(r, symmAborted);
    over_for_all(comm, r);
}

/* A rank that aborts, or destroys what was revoked, tells the others. */
static void an_abort_ends_the_others_calls(void) {
    same_seed();
    if (ranks < 2) T_SKIP("there are several domains from two ranks on");
    T_EXPECT_WARNINGS();
    symmComm_t comm = new_comm(1);
    float x = 1, y = 0;
    symmResult_t r = symmAborted;
    if (rank == 0)
        T_OK(symmCommAbort(comm));
    else
        r = symmAllReduce(&x, &y, 1, symmFloat32, symmSum, comm, NULL);
    T_EQ(r, symmAborted);
    if (rank == 1) T_MSG(symmGetLastError(NULL), "symmCommAbort");
    if (rank > 0) T_OK(symmCommDestroy(comm));
}

/* Destroyed inside a group that has calls of the inner one: refused, and nothing has ended. */
static void destroy_beside_a_group(void) {
    same_seed();
    T_EXPECT_WARNINGS();
    symmComm_t comm = new_comm(1), inside;
    symmWindow_t win;
    float *x, y = 0;
    T_OK(symmCommDomain(comm, &inside));
    T_OK(symmMemAlloc((void **)&x, 4096));
    T_OK(symmWindowRegister(comm, x, 4096, &win, 0));
    x[0] = 1;
    T_OK(symmGroupStart());
    T_OK(symmAllReduce(x, &y, 1, symmFloat32, symmSum, inside, NULL));
    T_ERR(symmCommDestroy(comm), symmInvalidUsage);
    T_ERR(symmGroupEnd(), symmInvalidUsage);
    T_OK(symmAllReduce(x, &y, 1, symmFloat32, symmSum, comm, NULL));
    T_EQ((int)y, ranks);
    if (ranks > 1) T_ERR(symmWindowGrow(win, 8192), symmNotSupported);
    T_OK(symmWindowDeregister(comm, win));
    T_OK(symmCommDestroy(comm));
    T_OK(symmMemFree(x));
}

static void sizes_that_differ_are_refused(void) {
    same_seed();
    if (ranks < 2) T_SKIP("it takes two ranks to differ");
    T_EXPECT_WARNINGS();
    symmComm_t comm = NULL;
    setenv("SYMM_DOMAIN_SIZE", rank ? "2" : "1", 1);
    T_ERR(symmCommInitMPI(&comm, MPI_COMM_WORLD, NULL), symmInvalidUsage);
    T_CHECK(strstr(symmGetLastError(NULL), "SYMM_DOMAIN_SIZE"));
    unsetenv("SYMM_DOMAIN_SIZE");
}

static int armed(int point, int by, const char *how) {
    char spec[64];
    snprintf(spec, sizeof spec, "%s:%s", symm_fail_name(point), how);
    return symm_fail_arm(rank == by ? spec : "") == 0;
}

/* What a point of a scenario is met by. */
static symmResult_t meet(const char *where, symmComm_t *comm, symmComm_t *child) {
    float x = 1, y = 0;
    if (!strcmp(where, "across_call"))
        return symmAllReduce(&x, &y, 1, symmFloat32, symmSum, *comm, NULL);
    if (!strcmp(where, "across_split")) return symmCommSplit(*comm, 0, 0, child, NULL);
    setenv("SYMM_DOMAIN_SIZE", "1", 1);
    const symmResult_t r = symmCommInitMPI(comm, MPI_COMM_WORLD, NULL);
    unsetenv("SYMM_DOMAIN_SIZE");
    return r;
}

/* On one rank: all have the same error, and what was made is gone. */
static void every_failpoint(void) {
    static const char *const all[] = {"across", "across_call", "across_split"};
    same_seed();
    if (ranks < 2) T_SKIP("there are several domains from two ranks on");
    T_EXPECT_WARNINGS();
    for (int i = 0; i < 3 * symm_fp_count; i++) {
        const int point = i % symm_fp_count, later = i >= symm_fp_count;
        const char *where = all[i / symm_fp_count];
        if (!fk_meets(point, where)) continue;
        const int64_t fds = SYMM_STAT_GET(fds), comms = SYMM_STAT_GET(comms);
        const int by = point % ranks;
        symmComm_t comm = NULL, child = NULL;
        if (later) comm = new_comm(1);
        T_CHECK(armed(point, by, "error"));
        const symmResult_t r = meet(where, &comm, &child);
        int ends[] = {(int)r, -(int)r};
        T_CHECKF(r != symmSuccess && !child, "%s: no error", symm_fail_name(point));
        MPI_Allreduce(MPI_IN_PLACE, ends, 2, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
        T_EQ(ends[0], -ends[1]);
        if (rank == by) T_CHECK(symm_fail_hits(point) > 0);
        T_EQ(symm_fail_arm(""), 0);
        if (later) T_OK(symmCommDestroy(comm));
        T_EQ(SYMM_STAT_GET(fds), fds);
        T_EQ(SYMM_STAT_GET(comms), comms);
        MPI_Barrier(MPI_COMM_WORLD);
    }
}

/* Without memory to queue a call the group does nothing, and the communicator goes on; without
 * memory for a copy a send waits for its receive. */
static void calls_without_memory(void) {
    same_seed();
    if (ranks < 2) T_SKIP("there are several domains from two ranks on");
    T_EXPECT_WARNINGS();
    const int next = (rank + 1) % ranks, prev = (rank + ranks - 1) % ranks;
    symmComm_t comm = new_comm(1);
    int x = rank, y = -1;
    for (int sends = 0; sends < 2; sends++) {
        T_EQ(symm_fail_arm("across_queue:error"), 0);
        T_OK(symmGroupStart());
        T_ERR(sends ? symmSend(&x, 1, symmInt32, next, comm, NULL)
                    : symmAllReduce(&x, &y, 1, symmInt32, symmSum, comm, NULL),
              symmOutOfMemory);
        T_ERR(symmGroupEnd(), symmOutOfMemory);
    }
    T_EQ(symm_fail_arm("net_post:error"), 0);
    T_OK(symmGroupStart());
    T_OK(symmSend(&x, 1, symmInt32, next, comm, NULL));
    T_OK(symmRecv(&y, 1, symmInt32, prev, comm, NULL));
    T_OK(symmGroupEnd());
    T_EQ(y, prev);
    T_EQ(symm_fail_arm(""), 0);
    T_OK(symmCommDestroy(comm));
}

/* Rounds of a whole life: MPI's communicators, descriptors and memory do not pile up. */
static void lives(void) {
    same_seed();
    const int64_t fds = SYMM_STAT_GET(fds);
    for (int i = 0; i < 100; i++) {
        symmComm_t comm = new_comm(1 + i % 2);
        float x = 1, y = 0;
        T_OK(symmAllReduce(&x, &y, 1, symmFloat32, symmSum, comm, NULL));
        T_EQ((int)y, ranks);
        T_OK(symmCommDestroy(comm));
    }
    T_EQ(SYMM_STAT_GET(fds), fds);
}

int main(int argc, char **argv) {
    static const t_test tests[] = {T_TIMEOUT(matrix, 300),
                                   T_TIMEOUT(matrix_in_rank_order, 300),
                                   T(ranks_are_where_they_say),
                                   T(what_serves_one_domain_says_so),
                                   T(windows),
                                   T(barrier_holds_all),
                                   T(large_messages),
                                   T(messages_of_several_pieces),
                                   T(reductions_of_other_numbers),
                                   T(progress_of_the_program),
                                   T(destroy_beside_a_group),
                                   T(domains_that_differ_are_told),
                                   T(a_longer_message_is_told),
                                   T(a_domain_that_does_not_come),
                                   T(a_revoked_one_is_over_in_all_domains),
                                   T(an_abort_ends_the_others_calls),
                                   T(sizes_that_differ_are_refused),
                                   T_TIMEOUT(every_failpoint, 120),
                                   T(calls_without_memory),
                                   T(lives)};
    int level;
    return run_tests(argc, argv, MPI_THREAD_SINGLE, &level, tests,
                     (int)(sizeof tests / sizeof *tests));
}
