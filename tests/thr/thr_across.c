/* thr_across.c - communicators over several domains, with ranks as threads and a mover between them
 * (net_threads.h): the matrix of all collectives over layouts of ranks, how much crosses, what a
 * rank's own failure and an end do to the others. Each rank's thread uses its own communicator. */
#include <stdatomic.h>
#include <unistd.h>

#include "coll_kit.h"
#include "host/life/comm_across.h"
#include "host/across/domains.h"
#include "net_threads.h"
#include "symm_domains.h"
#include "symm_host.h"
#include "transport/boot/boot.h"

typedef struct {
    const char *hosts; /* a letter for each rank's */
    int n;
    nt_hub *hub;
    symm_boot_group *group;
    symmComm_t inner[NT_RANKS];
    uint64_t seed;
    int env, cases, mode;
    _Atomic int over;
} job;

/* The inner communicators of all domains, and what the ranks meet by. */
static job new_job(const char *hosts) {
    job j = {.hosts = hosts, .n = (int)strlen(hosts), .seed = ck_seed()};
    T_CHECK(j.n <= NT_RANKS);
    ck_domains = 0;
    for (int r = 0; r < j.n; r++) {
        symmComm_t comms[NT_RANKS];
        int members[NT_RANKS], size = 0;
        for (int p = 0; p < r; p++)
            if (hosts[p] == hosts[r]) size = -1;
        if (size < 0) continue;
        for (int p = r; p < j.n; p++)
            if (hosts[p] == hosts[r]) members[size++] = p;
        T_OK(symmCommInitAll(comms, size, NULL));
        for (int i = 0; i < size; i++) {
            j.inner[members[i]] = comms[i];
            ck_domain_of[members[i]] = ck_domains;
        }
        ck_domains++;
    }
    j.hub = nt_hub_new(j.n);
    T_OK(symm_boot_group_create(j.n, &j.group));
    return j;
}

static symmComm_t open_across(job *j, int rank, symmResult_t status, symmResult_t want) {
    const symm_wait w = {.stage = "testing", .deadline_ns = symm_now_ns() + 10000000000ull};
    symm_domain_key keys[NT_RANKS];
    symm_domains *map = calloc(1, sizeof *map);
    symm_boot *boot;
    symmComm_t comm = NULL;
    T_CHECK(map != NULL);
    for (int r = 0; r < j->n; r++) keys[r] = (symm_domain_key){1, (unsigned char)j->hosts[r], 0};
    T_OK(symm_domains_alloc(j->n, map));
    symm_domains_sort(keys, rank, 0, map);
    T_OK(symm_boot_threads_open(j->group, rank, &boot));
    T_EQ(symm_across_open(boot, &w, status, map, j->inner[rank], nt_open(j->hub, rank), &comm),
         want);
    symm_boot_close(boot);
    return comm;
}

static void matrix_rank(int rank, int n, void *arg) {
    job *j = arg;
    ck_matrix(open_across(j, rank, symmSuccess, symmSuccess), rank, n, j->seed, j->env, j->cases);
}

static void matrix(const char *hosts, const char *ordered) {
    setenv("SYMM_DETERMINISTIC", ordered, 1);
    for (int env = 0; env < CK_ENVS; env++) {
        ck_env(env);
        job j = new_job(hosts);
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
    job *j = arg;
    symmComm_t comm = open_across(j, rank, symmSuccess, symmSuccess);
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
            job j = new_job(layouts[i]);
            const uint64_t domains = (uint64_t)ck_domains;
            j.mode = mode;
            T_THREADS(j.n, traffic_rank, &j);
            T_EQ(j.hub->bytes,
                 mode ? (uint64_t)j.n * (domains - 1) * bytes : 2 * (domains - 1) * bytes);
            nt_hub_free(j.hub);
        }
}

/* ---- what goes wrong ------------------------------------------------------------------------- */

/* mode 0: one rank could not make its part. 1: one rank leaves, the others call. 2: one rank makes
 * another call, of another size. 3: one rank revokes. 4: of the same size. 5: one revokes,
 * and calls no more. */
static void wrong_rank(int rank, int n, void *arg) {
    job *j = arg;
    const int odd = rank == n - 1;
    float x[4] = {1}, y[4] = {0};
    symmResult_t r = symmSuccess, async;
    if (j->mode == 0) {
        if (odd) (void)SYMM_ERR(symmSystemError, "this rank has failed");
        (void)open_across(j, rank, odd ? symmSystemError : symmSuccess, symmSystemError);
        T_MSG(symmGetLastError(NULL), "this rank has failed");
        return;
    }
    symmComm_t comm = open_across(j, rank, symmSuccess, symmSuccess);
    T_OK(symmAllReduce(x, y, 4, symmFloat32, symmSum, comm, NULL));
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
            job j = new_job(layouts[i]);
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
    symmComm_t comm = open_across(arg, rank, symmSuccess, symmSuccess);
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
    job j = new_job("aab");
    T_THREADS(j.n, again_rank, &j);
    nt_hub_free(j.hub);
}

T_MAIN(T(two_of_one), T(two_of_two), T(three_in_turn), T(sizes_differ), T(in_rank_order),
       T(each_byte_crosses_once), T(what_one_rank_does_is_told_to_all),
       T(a_call_inside_a_call_is_refused))
