/* unit_boot.c - the bootstraps when all goes as it should, and their answers to wrong arguments:
 * TCP, threads, callbacks, through a mesh; and the beacons. What goes wrong at run time is
 * fault_boot.c. */
#include "boot_kit.h"

#include <dlfcn.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/wait.h>

#include "transport/boot/beacon.h"

/* ---- tcp ---- */

static void tcp_rank(int rank, int n, void *arg) {
    job *j = arg;
    symm_boot *b;
    symm_wait w = kit_wait("meeting", KIT_MS);
    job_id(j, rank, n);
    T_OK(symm_boot_tcp_open(&j->id, rank, n, &w, &b));
    T_EQ(b->rank, rank);
    T_EQ(b->nranks, n);
    T_STREQ(b->ops->name, "tcp");
    block_storm(b, j->how);
    kit_barrier(&j->k, n); /* closing is nobody's business: also before others have read all */
    symm_boot_close(b);
}

static void tcp_processes(void) {
    static const int ranks[] = {1, 2, 3, 5, 8};
    for (int i = 0; i < 5; i++) T_FORK(ranks[i], tcp_rank, job_new(0, 40, KIT_MS));
}

static void tcp_threads(void) {
    static const int ranks[] = {1, 2, 3, 5, 8};
    for (int i = 0; i < 5; i++) T_THREADS(ranks[i], tcp_rank, job_new(0, 40, KIT_MS));
}

/* Whichever rank makes the id; among threads whichever comes first relays. */
static void tcp_id_of_any_rank(void) {
    for (int maker = 0; maker < 4; maker++) {
        job *j = job_new(0, 8, KIT_MS);
        j->maker = maker;
        T_FORK(4, tcp_rank, j);
        T_THREADS(4, tcp_rank, j);
    }
}

static void tcp_many_threads(void) {
    T_THREADS(72, tcp_rank, job_new(0, 3, KIT_MS));
}

static void big_rank(int rank, int n, void *arg) {
    job *j = arg;
    symm_boot *b;
    symm_wait w = kit_wait("moving", KIT_MS);
    job_id(j, rank, n);
    T_OK(symm_boot_tcp_open(&j->id, rank, n, &w, &b));
    for (int i = 0; i < 2; i++) T_OK(block_exchange(b, (size_t)j->how, i, &w));
    symm_boot_close(b); /* at once: nobody else may lose its result by that */
}

static void tcp_big_blocks(void) {
    T_FORK(3, big_rank, job_new(0, T_TSAN ? 1 << 20 : 6 << 20, KIT_MS));
    T_FORK(8, big_rank, job_new(0, 1 << 20, KIT_MS));
}

/* Ranks that come long before and after rank 0 meet all the same. */
static void staggered_rank(int rank, int n, void *arg) {
    job *j = arg;
    symm_boot *b;
    job_id(j, rank, n);
    kit_sleep(((rank + j->victim) % n) * 100);
    symm_wait w = kit_wait("meeting", KIT_MS);
    T_OK(symm_boot_tcp_open(&j->id, rank, n, &w, &b));
    block_storm(b, 2);
    symm_boot_close(b);
    symm_tcp_keep_wait(); /* whose process may serve the others */
}

static void tcp_any_order(void) {
    for (int first = 0; first < 4; first++) T_FORK(4, staggered_rank, job_new(first, 0, KIT_MS));
}

/* In place: the own block lies where it will be. */
static void in_place_rank(int rank, int n, void *arg) {
    job *j = arg;
    symm_boot *b;
    int all[8];
    symm_wait w = kit_wait("meeting", KIT_MS);
    job_id(j, rank, n);
    T_OK(symm_boot_tcp_open(&j->id, rank, n, &w, &b));
    all[rank] = rank + 100;
    T_OK(symm_boot_allgather(b, &all[rank], all, sizeof(int), &w));
    for (int r = 0; r < n; r++) T_EQ(all[r], r + 100);
    symm_boot_close(b);
}

static void tcp_in_place(void) {
    T_THREADS(8, in_place_rank, job_new(0, 0, KIT_MS));
}

static void drop_id(const symmUniqueId_t *id) {
    symm_boot *b;
    symm_wait w = kit_wait("closing", KIT_MS);
    T_OK(symm_boot_tcp_open(id, 0, 1, &w, &b));
    symm_boot_close(b);
}

/* An id that is made before the ranks are forked serves as well. By hand: the ranks close a
 * listener that they inherited, so their gauges end below their start. */
static void tcp_id_before_fork(void) {
    enum { RANKS = 3 };
    symmUniqueId_t id;
    pid_t pid[RANKS];
    T_OK(symm_boot_tcp_id(&id, NULL));
    for (int r = 0; r < RANKS; r++) {
        pid[r] = fork();
        T_CHECK(pid[r] >= 0);
        if (pid[r]) continue;
        symm_boot *b;
        symm_wait w = kit_wait("meeting", KIT_MS);
        T_OK(symm_boot_tcp_open(&id, r, RANKS, &w, &b));
        block_storm(b, 8);
        symm_boot_close(b);
        T_EQ(SYMM_STAT_GET(fds), 0);
        _exit(0);
    }
    for (int r = 0; r < RANKS; r++) {
        int status;
        T_EQ(waitpid(pid[r], &status, 0), pid[r]);
        T_EQ(status, 0);
    }
    T_OK(symm_boot_tcp_drop(&id)); /* the copy that is here */
}

/* As launchers do that are ranks themselves: who made the id, or any of its children. */
static void tcp_id_before_fork_of_a_rank(void) {
    enum { RANKS = 3 };
    for (int turn = 0; turn < 20; turn++) {
        symmUniqueId_t id;
        pid_t pid[RANKS - 1];
        const int me = turn % RANKS;
        T_OK(symm_boot_tcp_id(&id, NULL));
        for (int i = 0; i < RANKS; i++) {
            pid_t child = i < RANKS - 1 ? fork() : 0;
            T_CHECK(child >= 0);
            if (child) {
                pid[i] = child;
                continue;
            }
            symm_boot *b;
            symm_wait w = kit_wait("meeting", KIT_MS);
            T_OK(symm_boot_tcp_open(&id, (me + i) % RANKS, RANKS, &w, &b));
            block_storm(b, 8);
            symm_boot_close(b);
            T_EQ(SYMM_STAT_GET(fds), 0);
            if (i < RANKS - 1) _exit(0);
        }
        for (int i = 0; i < RANKS - 1; i++) {
            int status;
            T_EQ(waitpid(pid[i], &status, 0), pid[i]);
            T_EQ(status, 0);
        }
    }
}

/* Who made the id and finds it claimed by a child has nothing to keep: however late the keeper
 * wakes, it and its descriptor are gone when the rank is. */
static void a_claim_that_is_lost_leaves_no_keeper(void) {
    symmUniqueId_t id;
    symm_boot *b;
    int status;
    T_OK(symm_boot_tcp_id(&id, NULL));
    T_EQ(symm_fail_arm("keep_wakes:delay=300"), 0);
    T_LET_THREADS_REST();
    const pid_t child = fork();
    T_CHECK(child >= 0);
    if (child) kit_sleep(100); /* the child claims it first */
    symm_wait w = kit_wait("meeting", KIT_MS);
    T_OK(symm_boot_tcp_open(&id, child != 0, 2, &w, &b));
    symm_boot_close(b);
    T_EQ(SYMM_STAT_GET(fds), 0);
    T_EQ(SYMM_STAT_GET(threads), 0);
    if (!child) _exit(0);
    T_EQ(waitpid(child, &status, 0), child);
    T_EQ(status, 0);
}

static void ids_differ(void) {
    symmUniqueId_t a, b;
    T_OK(symm_boot_tcp_id(&a, NULL));
    T_OK(symm_boot_tcp_id(&b, ""));
    T_CHECK(memcmp(&a, &b, sizeof a) != 0);
    drop_id(&b);
    drop_id(&a);
}

static void garbage_ids(void) {
    T_EXPECT_WARNINGS();
    symmUniqueId_t good, bad;
    symm_boot *b = NULL;
    symm_wait w = kit_wait("meeting", KIT_MS);
    memset(&bad, 0, sizeof bad);
    T_ERR(symm_boot_tcp_open(&bad, 1, 2, &w, &b), symmInvalidArgument);
    T_MSG(symm_status_text(), "symmGetUniqueId");
    memset(&bad, 0xff, sizeof bad);
    T_ERR(symm_boot_tcp_open(&bad, 0, 2, &w, &b), symmInvalidArgument);
    T_OK(symm_boot_tcp_id(&good, "lo"));
    for (size_t i = 0; i < sizeof bad; i++) {
        bad = good;
        bad.internal[i] ^= 0x10;
        T_ERR(symm_boot_tcp_open(&bad, 1, 2, &w, &b), symmInvalidArgument);
    }
    T_CHECK(b == NULL);
    drop_id(&good);
}

/* The system's interfaces, or a test's. */
static struct ifaddrs *pretended;
int getifaddrs(struct ifaddrs **out) {
    static int (*real)(struct ifaddrs **);
    *(void **)(void *)&real = dlsym(RTLD_NEXT, "getifaddrs");
    *out = pretended;
    return pretended ? 0 : real(out);
}
void freeifaddrs(struct ifaddrs *list) {
    static void (*real)(struct ifaddrs *);
    *(void **)(void *)&real = dlsym(RTLD_NEXT, "freeifaddrs");
    if (list != pretended) real(list);
}

/* Each once, also one whose name is the beginning of another's. */
static void the_interfaces_there_are(void) {
    struct sockaddr_in at = {.sin_family = AF_INET};
    struct ifaddrs all[] = {{.ifa_name = "eth10"}, {.ifa_name = "eth1"}, {.ifa_name = "eth1"}};
    symmUniqueId_t id;
    T_EXPECT_WARNINGS();
    for (int i = 0; i < 3; i++) {
        all[i].ifa_next = i < 2 ? &all[i + 1] : NULL;
        all[i].ifa_flags = IFF_UP | IFF_RUNNING;
        all[i].ifa_addr = (struct sockaddr *)&at;
    }
    pretended = all;
    T_ERR(symm_boot_tcp_id(&id, "nosuchif"), symmInvalidArgument);
    T_MSG(symm_status_text(), "(there are: eth10, eth1)");
    pretended = NULL;
}

static void bad_ranks(void) {
    T_EXPECT_WARNINGS();
    symmUniqueId_t id;
    symm_boot *b = NULL;
    symm_wait w = kit_wait("meeting", KIT_MS);
    T_OK(symm_boot_tcp_id(&id, "lo"));
    T_ERR(symm_boot_tcp_open(&id, -1, 2, &w, &b), symmInvalidArgument);
    T_ERR(symm_boot_tcp_open(&id, 2, 2, &w, &b), symmInvalidArgument);
    T_ERR(symm_boot_tcp_open(&id, 0, 0, &w, &b), symmInvalidArgument);
    drop_id(&id);
    T_ERR(symm_boot_tcp_open(&id, 0, 1, &w, &b), symmInvalidUsage);
    T_MSG(symm_status_text(), "one communicator");
    T_ERR(symm_boot_tcp_id(NULL, NULL), symmInvalidArgument);
    T_ERR(symm_boot_tcp_id(&id, "nosuchif"), symmInvalidArgument);
    T_MSG(symm_status_text(), "nosuchif");
    T_CHECK(b == NULL);
}

/* ---- threads ---- */

typedef struct {
    symm_boot_group *g;
    int turns;
} group_arg;

static void group_rank(int rank, int n, void *arg) {
    group_arg *a = arg;
    symm_boot *b;
    (void)n;
    T_OK(symm_boot_threads_open(a->g, rank, &b));
    T_STREQ(b->ops->name, "threads");
    block_storm(b, a->turns);
    symm_boot_close(b);
}

static void threads_meet(void) {
    static const int ranks[] = {1, 2, 3, 5, 8};
    for (int i = 0; i < 5; i++) {
        group_arg a = {NULL, T_TSAN ? 20 : 100};
        T_OK(symm_boot_group_create(ranks[i], &a.g));
        T_THREADS(ranks[i], group_rank, &a);
    }
}

static void threads_72(void) {
    group_arg a = {NULL, T_TSAN ? 2 : 4};
    T_OK(symm_boot_group_create(72, &a.g));
    T_THREADS(72, group_rank, &a);
}

static void threads_bad_arguments(void) {
    T_EXPECT_WARNINGS();
    symm_boot_group *g = NULL;
    symm_boot *b, *other = NULL;
    T_ERR(symm_boot_group_create(0, &g), symmInvalidArgument);
    T_OK(symm_boot_group_create(2, &g));
    T_ERR(symm_boot_threads_open(g, 2, &other), symmInvalidArgument);
    T_ERR(symm_boot_threads_open(g, -1, &other), symmInvalidArgument);
    T_OK(symm_boot_threads_open(g, 1, &b));
    T_ERR(symm_boot_threads_open(g, 1, &other), symmInvalidArgument);
    T_MSG(symm_status_text(), "rank 1 of this group was given twice");
    T_CHECK(other == NULL);
    symm_boot_close(b);
    symm_boot_group_abandon(g); /* the last: frees it */
    T_OK(symm_boot_group_create(3, &g));
    symm_boot_group_abandon(g); /* nobody came at all */
}

/* ---- callbacks ---- */

typedef struct {
    symm_boot *under; /* the caller's exchange, here over threads */
    int gathers, barriers, fail;
} user_ctx;

static int user_gather(void *ctx, const void *send, void *recv, size_t bytes) {
    user_ctx *u = ctx;
    symm_wait w = kit_wait("calling back", KIT_MS);
    u->gathers++;
    if (u->fail) return u->fail;
    return symm_boot_allgather(u->under, send, recv, bytes, &w);
}

static int user_meet(void *ctx) {
    user_ctx *u = ctx;
    symm_wait w = kit_wait("calling back", KIT_MS);
    u->barriers++;
    return u->fail ? u->fail : (int)symm_boot_allgather(u->under, NULL, NULL, 0, &w);
}

static void user_rank(int rank, int n, void *arg) {
    group_arg *a = arg;
    user_ctx u = {0};
    symm_boot *b;
    T_OK(symm_boot_threads_open(a->g, rank, &u.under));
    symmBoot_t cb = {user_gather, user_meet, &u};
    T_OK(symm_boot_user_open(&cb, rank, n, &b));
    T_STREQ(b->ops->name, "callbacks");
    block_storm(b, a->turns);
    T_EQ(u.gathers, a->turns / 4 * 3);
    T_EQ(u.barriers, a->turns / 4);
    symm_boot_close(b);
    symm_boot_close(u.under);
}

static void callbacks_carry(void) {
    group_arg a = {NULL, 20};
    T_OK(symm_boot_group_create(4, &a.g));
    T_THREADS(4, user_rank, &a);
}

static void callbacks_that_fail(void) {
    T_EXPECT_WARNINGS();
    symm_wait w = kit_wait("asking", KIT_MS);
    for (int bytes = 0; bytes < 2; bytes++) {
        user_ctx u = {.fail = 42};
        symmBoot_t cb = {user_gather, user_meet, &u};
        symm_boot *b;
        char recv[3], send[1] = {0};
        T_OK(symm_boot_user_open(&cb, 1, 3, &b));
        T_ERR(symm_boot_allgather(b, send, recv, (size_t)bytes, &w), symmSystemError);
        T_MSG(symm_status_text(), bytes ? "allgather callback failed with 42 on rank 1"
                                        : "barrier callback failed with 42 on rank 1");
        u.fail = 0;
        T_ERR(symm_boot_allgather(b, send, recv, 1, &w),
              symmInvalidUsage); /* unusable from then on */
        T_EQ(u.gathers + u.barriers, 1);
        symm_boot_close(b);
    }
}

static void callbacks_bad_arguments(void) {
    T_EXPECT_WARNINGS();
    symmBoot_t none = {0}, half = {user_gather, NULL, NULL}, cb = {user_gather, user_meet, NULL};
    symm_boot *b = NULL;
    T_ERR(symm_boot_user_open(NULL, 0, 1, &b), symmInvalidArgument);
    T_ERR(symm_boot_user_open(&none, 0, 1, &b), symmInvalidArgument);
    T_MSG(symm_status_text(), "boot->allgather");
    T_ERR(symm_boot_user_open(&half, 0, 1, &b), symmInvalidArgument);
    T_MSG(symm_status_text(), "boot->barrier");
    T_ERR(symm_boot_user_open(&cb, 3, 3, &b), symmInvalidArgument);
    T_ERR(symm_boot_user_open(&cb, -1, 3, &b), symmInvalidArgument);
    T_CHECK(b == NULL);
}

/* ---- through a mesh ---- */

/* Members in another order than the mesh's; whoever is none has nothing to do with it. */
static void mesh_rank(int rank, int n, void *arg) {
    kit *k = arg;
    symm_mesh *m = kit_open(k, rank, n);
    symm_boot *b;
    int members[8], mine = -1, many = 0;
    for (int r = n - 1; r >= 0; r--) {
        if (n > 2 && r == k->value) continue;
        if (r == rank) mine = many;
        members[many++] = r;
    }
    if (mine >= 0) {
        T_OK(symm_boot_mesh_open(m, members, many, mine, &b));
        T_STREQ(b->ops->name, "parent");
        T_EQ(b->nranks, many);
        block_storm(b, 12);
        symm_boot_close(b);
    }
    kit_barrier(k, n);
    T_EQ(symm_mesh_nranks(m), n); /* still its owner's */
    symm_mesh_close(m);
}

static void mesh_of_threads(void) {
    static const int ranks[] = {1, 2, 3, 5, 8};
    for (int i = 0; i < 5; i++) T_THREADS(ranks[i], mesh_rank, kit_new(1, i % ranks[i]));
}

static void mesh_of_processes(void) {
    static const int ranks[] = {1, 2, 3, 5, 8};
    for (int i = 0; i < 5; i++) T_FORK(ranks[i], mesh_rank, kit_new(0, i % ranks[i]));
}

static void mesh_args_rank(int rank, int n, void *arg) {
    symm_mesh *m = kit_open(arg, rank, n);
    symm_boot *b = NULL;
    int good[2] = {rank, !rank}, twice[2] = {rank, rank}, outside[2] = {rank, 2};
    T_ERR(symm_boot_mesh_open(m, good, 2, 1, &b), symmInternalError); /* not this rank's place */
    T_ERR(symm_boot_mesh_open(m, good, 2, 2, &b), symmInternalError);
    T_ERR(symm_boot_mesh_open(m, good, 0, 0, &b), symmInternalError);
    T_ERR(symm_boot_mesh_open(m, twice, 2, 0, &b), symmInternalError);
    T_ERR(symm_boot_mesh_open(m, outside, 2, 0, &b), symmInternalError);
    T_CHECK(b == NULL);
    kit_barrier(arg, n);
    symm_mesh_close(m);
}

static void mesh_bad_arguments(void) {
    T_EXPECT_WARNINGS();
    T_THREADS(2, mesh_args_rank, kit_new(1, 0));
}

/* ---- beacons ---- */

static void beacon_rank(int rank, int n, void *arg) {
    kit *k = arg;
    symm_beacon_key key = {(uint64_t)k->value, 7}, other = {(uint64_t)k->value, 8};
    symm_beacon *b, *again;
    if (rank != 1) T_OK(symm_beacon_light(&key, rank, &b));
    kit_barrier(k, n);
    for (int r = 0; r < n; r++) {
        T_EQ(symm_beacon_seen(&key, r), r != 1);
        T_EQ(symm_beacon_seen(&other, r), 0);
    }
    if (rank != 1) T_OK(symm_beacon_light(&key, rank, &again));
    kit_barrier(k, n);
    if (rank == 0) symm_beacon_douse(again); /* one of two: still lit */
    kit_barrier(k, n);
    T_EQ(symm_beacon_seen(&key, 0), 1);
    kit_barrier(k, n);
    if (rank == 0) symm_beacon_douse(b);
    kit_barrier(k, n);
    T_EQ(symm_beacon_seen(&key, 0), 0);
    kit_barrier(k, n);
    if (rank > 1) symm_beacon_douse(again);
    if (rank > 1) symm_beacon_douse(b);
    symm_beacon_douse(NULL);
}

static void beacons_show_presence(void) {
    T_FORK(4, beacon_rank, kit_new(0, (int)getpid()));
    T_CHECK(symm_beacon_job() != 0);
    T_CHECK(symm_beacon_job() == symm_beacon_job());
}

/* Many looks at a light that nobody answers. */
static void beacons_endure_looks(void) {
    symm_beacon_key key = {(uint64_t)getpid(), 9};
    symm_beacon *b;
    T_OK(symm_beacon_light(&key, 3, &b));
    for (int i = 0; i < 6000; i++) T_EQ(symm_beacon_seen(&key, 3), 1);
    symm_beacon_douse(b);
    T_EQ(symm_beacon_seen(&key, 3), 0);
}

T_MAIN(T(tcp_processes), T(tcp_threads), T(tcp_id_of_any_rank), T(tcp_many_threads),
       T(tcp_big_blocks), T(tcp_any_order), T(tcp_in_place), T(tcp_id_before_fork),
       T(tcp_id_before_fork_of_a_rank), T(a_claim_that_is_lost_leaves_no_keeper), T(ids_differ),
       T(garbage_ids), T(the_interfaces_there_are), T(bad_ranks), T(threads_meet), T(threads_72),
       T(threads_bad_arguments), T(callbacks_carry), T(callbacks_that_fail),
       T(callbacks_bad_arguments), T(mesh_of_threads), T(mesh_of_processes), T(mesh_bad_arguments),
       T(beacons_show_presence), T(beacons_endure_looks))
