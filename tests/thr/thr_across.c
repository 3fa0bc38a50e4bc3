/* thr_across.c - communicators over several domains, with ranks as threads and a mover between them
 * (net_threads.h): the matrix of all collectives over layouts of ranks, how much crosses, what a
 * rank's own failure and an end do to the others. Each rank's thread uses its own communicator. */
#include <stdatomic.h>
#include <unistd.h>

#include "across_kit.h"
#include "symm_host.h"

static void matrix_rank(int rank, int n, void *arg) {
    ak_job *j = arg;
    ck_matrix(ak_open(j, rank, symmSuccess, symmSuccess), rank, n, j->seed, j->env, j->cases);
}

static void matrix(const char *hosts, const char *ordered) {
    setenv("SYMM_DETERMINISTIC", ordered, 1);
    for (int env = 0; env < CK_ENVS; env++) {
        ck_env(env);
        ak_job j = ak_new(hosts);
        j.env = env;
        j.cases = ck_full() ? 240 : CK_SLOW ? 12 : 48;
        j.hub->slow = env % 3 * 7;
        if (*ordered == '1') ck_domains = 0;
        T_THREADS(j.n, matrix_rank, &j);
        nt_hub_free(j.hub);
    }
    unsetenv("SYMM_DETERMINISTIC");
}

static void two_of_one(void) {
    matrix("ab", "0");
}
static void two_of_two(void) {
    matrix("aabb", "0");
}
static void three_in_turn(void) {
    matrix("abcabc", "0");
}
static void sizes_differ(void) {
    matrix("abbbac", "0");
    matrix("aaaab", "0");
}
static void in_rank_order(void) {
    matrix("abab", "1");
    matrix("abbc", "1");
}

/* ---- how much crosses ------------------------------------------------------------------------ */

enum { COUNT = 60000 };

/* Of S bytes each: an all_reduce sends 2(D-1)/D S for each domain, so 2(D-1) S in all, however many
 * ranks a domain has; an all_gather each part once to each other domain. */
static void traffic_rank(int rank, int n, void *arg) {
    ak_job *j = arg;
    symmComm_t comm = ak_open(j, rank, symmSuccess, symmSuccess);
    float *src = calloc(COUNT, sizeof *src), *dst = calloc((size_t)n * COUNT, sizeof *dst);
    T_CHECK(src && dst);
    if (j->mode)
        T_OK(symmAllGather(src, dst, COUNT, symmFloat32, comm, NULL));
    else
        T_OK(symmAllReduce(src, dst, COUNT, symmFloat32, symmSum, comm, NULL));
    T_OK(symmCommDestroy(comm));
    free(src), free(dst);
}

static void each_byte_crosses_once(void) {
    static const char *const layouts[] = {"ab", "aabb", "aaabbb", "aabbcc", "abcdefgh"};
    const uint64_t bytes = COUNT * sizeof(float);
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++)
        for (int mode = 0; mode < 2; mode++) {
            ak_job j = ak_new(layouts[i]);
            const uint64_t domains = (uint64_t)ck_domains;
            j.mode = mode;
            T_THREADS(j.n, traffic_rank, &j);
            T_EQ(j.hub->bytes,
                 mode ? (uint64_t)j.n * (domains - 1) * bytes : 2 * (domains - 1) * bytes);
            nt_hub_free(j.hub);
        }
}

/* ---- who waits for whom ---------------------------------------------------------------------- */

/* Of a small reduce a rank that is neither the root nor stands for it only gives. */
static void giving_rank(int rank, int n, void *arg) {
    enum { CALLS = 5 };
    ak_job *j = arg;
    symmComm_t comm = ak_open(j, rank, symmSuccess, symmSuccess);
    float x = (float)rank, y = 0;
    while (rank < n - 1 && !atomic_load(&j->met)) usleep(100);
    for (int i = 0; i < CALLS; i++) {
        T_OK(symmReduce(&x, &y, 1, symmFloat32, symmSum, 0, comm, NULL));
        if (rank == 0) T_EQ((int)y, n * (n - 1) / 2);
    }
    atomic_store(&j->met, 1);
    T_OK(symmCommDestroy(comm));
}

static void who_only_gives_waits_for_nobody(void) {
    ak_job j = ak_new("aabb");
    T_THREADS(j.n, giving_rank, &j);
    nt_hub_free(j.hub);
}

/* ---- what goes wrong ------------------------------------------------------------------------- */

/* mode 0: one rank could not make its part. 1: one rank leaves, the others call. 2: one rank makes
 * another call, of another size. 3: one rank revokes. 4: of the same size. 5: one revokes,
 * and calls no more. */
static void wrong_rank(int rank, int n, void *arg) {
    ak_job *j = arg;
    const int odd = rank == n - 1;
    float x[4] = {1}, y[4] = {0};
    symmResult_t r = symmSuccess, async;
    if (j->mode == 0) {
        if (odd) (void)SYMM_ERR(symmSystemError, "this rank has failed");
        (void)ak_open(j, rank, odd ? symmSystemError : symmSuccess, symmSystemError);
        T_MSG(symmGetLastError(NULL), "this rank has failed");
        return;
    }
    symmComm_t comm = ak_open(j, rank, symmSuccess, symmSuccess);
    T_OK(symmAllReduce(x, y, 4, symmFloat32, symmSum, comm, NULL));
    atomic_fetch_add(&j->met, 1);
    while (atomic_load(&j->met) < n) usleep(100); /* what is told later ends no call of before */
    if (odd && j->mode == 1) {
        T_OK(symmCommDestroy(comm));
        return;
    }
    if (odd && (j->mode == 3 || j->mode == 5)) T_OK(symmCommRevoke(comm, 0));
    if (odd && j->mode == 5) { /* it makes no call that could tell them */
        while (atomic_load(&j->over) < n - 1) usleep(1000);
        T_OK(symmCommDestroy(comm));
        return;
    }
    for (int i = 0; i < 1000 && !r; i++)
        r = symmAllReduce(x, y, odd && j->mode == 2 ? 3 : 4, symmFloat32,
                          odd && j->mode == 4 ? symmMax : symmSum, comm, NULL);
    T_CHECK(r != symmSuccess);
    atomic_fetch_add(&j->over, 1);
    if (j->mode == 2 || j->mode == 4) T_EQ(r, symmMismatch);
    if (j->mode == 3 || j->mode == 5) T_EQ(r, symmAborted);
    if (j->mode == 1) T_EQ(r, symmRemoteError);
    T_OK(symmCommGetAsyncError(comm, &async));
    T_CHECK(async != symmSuccess);
    T_OK(symmCommDestroy(comm));
}

static void what_one_rank_does_is_told_to_all(void) {
    static const char *const layouts[] = {"ab", "aabb", "abc"};
    T_EXPECT_WARNINGS();
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++)
        for (int mode = 0; mode < 6; mode++) {
            ak_job j = ak_new(layouts[i]);
            j.mode = mode;
            T_THREADS(j.n, wrong_rank, &j);
            nt_hub_free(j.hub);
        }
}

/* A call from inside a call of the same thread would wait for itself. */
static symmComm_t again;
static symmResult_t inside;
static void call_again(void *arg) {
    float x = 1, y;
    (void)arg;
    if (inside == symmSuccess) inside = symmAllReduce(&x, &y, 1, symmFloat32, symmSum, again, NULL);
}
static void again_rank(int rank, int n, void *arg) {
    symmComm_t comm = ak_open(arg, rank, symmSuccess, symmSuccess);
    float x = 1, y = 0;
    if (rank == 0) again = comm;
    if (rank == 0) T_OK(symmSetProgress(call_again, NULL));
    if (rank == 1) usleep(50000); /* rank 0 waits for it, inside its domain */
    T_OK(symmAllReduce(&x, &y, 1, symmFloat32, symmSum, comm, NULL));
    T_EQ((int)y, n);
    if (rank == 0) T_EQ(inside, symmInvalidUsage);
    if (rank == 0) T_OK(symmSetProgress(NULL, NULL));
    T_OK(symmCommDestroy(comm));
}
static void a_call_inside_a_call_is_refused(void) {
    T_EXPECT_WARNINGS();
    ak_job j = ak_new("aab");
    T_THREADS(j.n, again_rank, &j);
    nt_hub_free(j.hub);
}

T_MAIN(T(two_of_one), T(two_of_two), T(three_in_turn), T(sizes_differ), T(in_rank_order),
       T(each_byte_crosses_once), T(who_only_gives_waits_for_nobody),
       T(what_one_rank_does_is_told_to_all), T(a_call_inside_a_call_is_refused))
