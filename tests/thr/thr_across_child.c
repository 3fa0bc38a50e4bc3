/* thr_across_child.c - communicators made from one over several domains, with ranks as threads and
 * a mover between them (across_kit.h): split by any colors and keys, shrink with and without an
 * error before, what one rank does wrong. Each rank's thread uses its own communicators. */
#include "across_kit.h"

#include "base/fail.h"

/* Every rank of comm is the one that `ranks` says, in the domains of the parent; calls work. */
static void check_child(symmComm_t comm, symmComm_t parent, const int *ranks, int n) {
    int32_t all[NT_RANKS], me, sum = -1, from[NT_RANKS], to[NT_RANKS];
    int rank, count, domains = 0, domain, there, at[NT_RANKS], is[NT_RANKS];
    symmDomainInfo_t d = {.size = sizeof d};
    T_OK(symmCommUserRank(comm, &rank));
    T_OK(symmCommCount(comm, &count));
    T_EQ(count, n);
    me = ranks[rank];
    T_OK(symmAllGather(&me, all, 1, symmInt32, comm, NULL));
    for (int i = 0; i < n; i++) T_EQ(all[i], ranks[i]);
    T_OK(symmAllReduce(&me, &sum, 1, symmInt32, symmSum, comm, NULL));
    for (int i = 0; i < n; i++) sum -= ranks[i], from[i] = 100 * rank + i;
    T_EQ(sum, 0);
    T_OK(symmAlltoAll(from, to, 1, symmInt32, comm, NULL));
    for (int i = 0; i < n; i++) T_EQ(to[i], 100 * i + rank);
    for (int i = 0; i < n; i++) {
        T_OK(symmDomainOf(parent, ranks[i], &at[i], NULL));
        T_OK(symmDomainOf(comm, i, &is[i], NULL));
        for (there = 0; there < i && at[there] != at[i];) there++;
        domain = there < i ? is[there] : domains++;
        T_EQ(is[i], domain);
    }
    T_OK(symmDomainQuery(comm, &d));
    T_EQ(d.domains, domains);
}

/* ---- split ----------------------------------------------------------------------------------- */

static void split_rank(int me, int n, void *arg) {
    ak_job *j = arg;
    const symmComm_t comm = ak_open(j, me, symmSuccess, symmSuccess);
    for (int round = 0; round < (ck_full() ? 60 : 10); round++) {
        uint64_t s = ck_hash(j->seed, (uint64_t)round, 8);
        int color[NT_RANKS], key[NT_RANKS], ranks[NT_RANKS], members = 0;
        const int colors = 1 + (int)t_draw(&s, 3);
        for (int r = 0; r < n; r++) {
            color[r] = t_draw(&s, 6) ? (int)t_draw(&s, (unsigned)colors) : SYMM_SPLIT_NOCOLOR;
            if (color[r] == 1) color[r] = -7; /* any number is a color */
            key[r] = (int)t_draw(&s, 4) - 2;
        }
        for (int k = -2; k < 2; k++)
            for (int r = 0; r < n; r++)
                if (color[r] == color[me] && key[r] == k) ranks[members++] = r;
        symmComm_t child = comm, again;
        T_OK(symmCommSplit(comm, color[me], key[me], &child, NULL));
        T_EQ(child == NULL, color[me] == SYMM_SPLIT_NOCOLOR);
        if (child) {
            check_child(child, comm, ranks, members);
            T_OK(symmCommSplit(child, 0, 0, &again, NULL));
            T_OK(symmCommDestroy(child));
            check_child(again, comm, ranks, members);
            T_OK(symmCommDestroy(again));
        }
    }
    /* One outlives its parent. */
    symmComm_t child;
    T_OK(symmCommSplit(comm, 7, -me, &child, NULL));
    T_OK(symmCommDestroy(comm));
    int32_t one = 1, sum = 0;
    T_OK(symmAllReduce(&one, &sum, 1, symmInt32, symmSum, child, NULL));
    T_EQ(sum, n);
    T_OK(symmCommDestroy(child));
}

static void split_by_any_color_and_key(void) {
    static const char *const layouts[] = {"ab", "aabb", "abcabc", "abbbac"};
    const uint64_t seed = ck_seed();
    printf("# T_SEED=%llu\n", (unsigned long long)seed);
    for (int i = 0; i < 4; i++) {
        ak_job j = ak_new(layouts[i]);
        j.seed = ck_hash(seed, (uint64_t)i, 4);
        T_THREADS(j.n, split_rank, &j);
        nt_hub_free(j.hub);
    }
}

/* mode 0: one rank has no place for the handle; 1: a wrong config. Nobody gets a communicator, and
 * the parent goes on. */
static void wrong_split_rank(int me, int n, void *arg) {
    ak_job *j = arg;
    const symmComm_t comm = ak_open(j, me, symmSuccess, symmSuccess);
    const int odd = me == n - 1;
    for (int mode = 0; mode < 2; mode++) {
        symmComm_t child = (symmComm_t)comm;
        symmConfig_t config = SYMM_CONFIG_INITIALIZER;
        if (odd && mode == 1) config.minCTAs = -7;
        T_ERR(symmCommSplit(comm, 0, me, odd && mode == 0 ? NULL : &child, &config),
              symmInvalidArgument);
        T_MSG(symmGetLastError(NULL), odd ? "" : "another rank");
        T_CHECK(child == comm);
    }
    int32_t one = 1, sum = 0;
    T_OK(symmAllReduce(&one, &sum, 1, symmInt32, symmSum, comm, NULL));
    T_EQ(sum, n);
    T_OK(symmCommDestroy(comm));
}
static void a_wrong_split_is_one_for_all(void) {
    T_EXPECT_WARNINGS();
    ak_job j = ak_new("aabb");
    T_THREADS(j.n, wrong_split_rank, &j);
    nt_hub_free(j.hub);
}

/* Splits of a group are made at its end. */
static void grouped_rank(int me, int n, void *arg) {
    const symmComm_t comm = ak_open(arg, me, symmSuccess, symmSuccess);
    symmComm_t halves = NULL, all = NULL;
    int32_t one = 1, sum = 0;
    T_OK(symmGroupStart());
    T_OK(symmAllReduce(&one, &sum, 1, symmInt32, symmSum, comm, NULL));
    T_OK(symmCommSplit(comm, me % 2, 0, &halves, NULL));
    T_OK(symmCommSplit(comm, 0, 0, &all, NULL));
    T_CHECK(!halves && !all && !sum);
    T_OK(symmGroupEnd());
    T_EQ(sum, n);
    T_OK(symmAllReduce(&one, &sum, 1, symmInt32, symmSum, halves, NULL));
    T_EQ(sum, n / 2);
    T_OK(symmAllReduce(&one, &sum, 1, symmInt32, symmSum, all, NULL));
    T_EQ(sum, n);
    T_OK(symmCommDestroy(halves));
    T_OK(symmCommDestroy(all));
    T_OK(symmCommDestroy(comm));
}
static void splits_of_a_group(void) {
    ak_job j = ak_new("aabb");
    T_THREADS(j.n, grouped_rank, &j);
    nt_hub_free(j.hub);
}

/* ---- shrink ---------------------------------------------------------------------------------- */

/* The last rank leaves, and others by mode: 0, the parent is well; 1, it has failed by a call that
 * differs; 2, a rank is inside of it meanwhile, which SYMM_SHRINK_ABORT ends. */
static void shrink_rank(int me, int n, void *arg) {
    ak_job *j = arg;
    const symmComm_t comm = ak_open(j, me, symmSuccess, symmSuccess);
    const int out[] = {n - 1, n - 1, 0};
    int ranks[NT_RANKS], members = 0;
    const int leave = 1 + j->mode % 2; /* of out[1..] */
    float x[4] = {1}, y[4];
    symmResult_t r = symmSuccess;
    for (int q = 0; q < n; q++)
        if (q != n - 1 && (leave < 2 || q != 0)) ranks[members++] = q;
    if (j->mode == 1) {
        for (int i = 0; i < 1000 && !r; i++)
            r = symmAllReduce(x, y, me == n - 1 ? 3 : 4, symmFloat32, symmSum, comm, NULL);
        T_CHECK(r != symmSuccess);
    }
    if (me != n - 1 && (leave < 2 || me != 0)) {
        symmComm_t child = NULL;
        T_OK(symmCommShrink(comm, out, leave + 1, &child, NULL,
                            j->mode == 2 ? SYMM_SHRINK_ABORT : 0));
        check_child(child, comm, ranks, members);
        T_OK(symmCommDestroy(child));
    } else if (j->mode == 2) {
        T_EQ(symmAllReduce(x, y, 4, symmFloat32, symmSum, comm, NULL), symmAborted);
    }
    T_OK(symmCommDestroy(comm));
}
static void ranks_that_stay_go_on(void) {
    static const char *const layouts[] = {"aab", "aabb", "abcabc", "abbbac"};
    T_EXPECT_WARNINGS();
    for (int i = 0; i < 4; i++)
        for (int mode = 0; mode < 3; mode++) {
            ak_job j = ak_new(layouts[i]);
            j.mode = mode;
            T_THREADS(j.n, shrink_rank, &j);
            nt_hub_free(j.hub);
        }
}

static void wrong_shrink_rank(int me, int n, void *arg) {
    const symmComm_t comm = ak_open(arg, me, symmSuccess, symmSuccess);
    symmComm_t child = comm;
    const int none[] = {n}, self[] = {me}, other[] = {(me + 1) % n};
    T_ERR(symmCommShrink(comm, none, 1, &child, NULL, 0), symmInvalidArgument);
    T_ERR(symmCommShrink(comm, self, 1, &child, NULL, 0), symmInvalidArgument);
    T_ERR(symmCommShrink(comm, NULL, 1, &child, NULL, 0), symmInvalidArgument);
    T_ERR(symmCommShrink(comm, other, -1, &child, NULL, 0), symmInvalidArgument);
    T_ERR(symmCommShrink(comm, other, 1, &child, NULL, 8), symmInvalidArgument);
    symmConfig_t wrong = SYMM_CONFIG_INITIALIZER;
    if (me == 1) wrong.minCTAs = -7;
    T_ERR(symmCommShrink(comm, NULL, 0, &child, &wrong, 0), symmInvalidArgument);
    T_ERR(symmCommShrink(comm, NULL, 0, me == 1 ? NULL : &child, NULL, 0), symmInvalidArgument);
    T_ERR(symmCommShrink(comm, NULL, 0, &child, NULL, SYMM_SHRINK_FAILED), symmNotSupported);
    T_CHECK(child == comm);
    T_OK(symmCommShrink(comm, NULL, 0, &child, NULL, 0)); /* the same ranks */
    int32_t one = 1, sum = 0;
    T_OK(symmAllReduce(&one, &sum, 1, symmInt32, symmSum, child, NULL));
    T_EQ(sum, n);
    T_OK(symmCommDestroy(child));
    /* Those that stay are of one domain, which hears of the error by its own part alone. */
    const int of_b[] = {1, 3};
    child = comm;
    if (me % 2 == 0)
        T_ERR(symmCommShrink(comm, of_b, 2, me ? &child : NULL, NULL, 0), symmInvalidArgument);
    T_CHECK(child == comm);
    T_OK(symmCommDestroy(comm));
}
static void a_wrong_list_is_refused(void) {
    T_EXPECT_WARNINGS();
    ak_job j = ak_new("abab");
    T_THREADS(j.n, wrong_shrink_rank, &j);
    nt_hub_free(j.hub);
}

/* A rank has no memory for what it needs to sort those that stay: all hear it. how: of what; 10
 * more: those that stay are of one domain. */
static void short_shrink_rank(int me, int n, void *arg) {
    static const char *const points[] = {"across_members:error:1", "domains_alloc:error:1"};
    ak_job *j = arg;
    const symmComm_t comm = ak_open(j, me, symmSuccess, symmSuccess);
    symmComm_t child = comm;
    const int of_b[] = {1, 3}, leave = j->mode >= 10 ? 2 : 0;
    int32_t one = 1, sum = 0;
    T_OK(symmAllReduce(&one, &sum, 1, symmInt32, symmSum, comm, NULL));
    if (me == 2) T_EQ(symm_fail_arm(points[j->mode % 10]), 0);
    if (me != 2) usleep(200000); /* the failpoint is that rank's */
    if (!leave || me % 2 == 0) {
        const uint64_t start = symm_now_ns();
        T_ERR(symmCommShrink(comm, leave ? of_b : NULL, leave, &child, NULL, 0), symmOutOfMemory);
        T_MSG(symmGetLastError(NULL), "no memory to sort 4 ranks");
        T_CHECK(symm_now_ns() - start < 3000000000ull);
    }
    T_CHECK(child == comm);
    T_OK(symmAllReduce(&one, &sum, 1, symmInt32, symmSum, comm, NULL)); /* the parent is well */
    T_EQ(sum, n);
    if (me == 2) T_EQ(symm_fail_arm(""), 0);
    T_OK(symmCommShrink(comm, NULL, 0, &child, NULL, 0));
    T_OK(symmAllReduce(&one, &sum, 1, symmInt32, symmSum, child, NULL));
    T_EQ(sum, n);
    T_OK(symmCommDestroy(child));
    T_OK(symmCommDestroy(comm));
}
static void a_rank_without_memory_is_told(void) {
    T_EXPECT_WARNINGS();
    setenv("SYMM_SETUP_TIMEOUT", "8000", 1);
    for (int i = 0; i < 4; i++) {
        ak_job j = ak_new("abab");
        j.mode = i % 2 + i / 2 * 10;
        T_THREADS(j.n, short_shrink_rank, &j);
        nt_hub_free(j.hub);
    }
}

T_MAIN(T_TIMEOUT(split_by_any_color_and_key, 300), T(a_wrong_split_is_one_for_all),
       T(splits_of_a_group), T_TIMEOUT(ranks_that_stay_go_on, 120), T(a_wrong_list_is_refused),
       T(a_rank_without_memory_is_told))
