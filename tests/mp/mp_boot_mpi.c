/* mp_boot_mpi.c - the MPI bootstrap under mpirun, any number of ranks: exchanges, what is
 * duplicated and freed, a rank that never comes, exchanges that fail, and when MPI must not be
 * entered. Runs in the ranks themselves; rank 0 prints the TAP. MPI calls that make and free
 * communicators are counted on their way through. */
#include <mpi.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/fail.h"
#include "base/log.h"
#include "base/stats.h"
#include "transport/mpi/boot_mpi.h"
#include "symm_mpi.h"
#include "t.h"

static int splits, frees;

int MPI_Comm_split(MPI_Comm comm, int color, int key, MPI_Comm *newcomm) {
    splits++;
    return PMPI_Comm_split(comm, color, key, newcomm);
}

int MPI_Comm_free(MPI_Comm *comm) {
    frees++;
    return PMPI_Comm_free(comm);
}

/* Which MPI this is; NULL: the one that there is. */
static const char *version;
int MPI_Get_library_version(char *out, int *n) {
    if (!version) return PMPI_Get_library_version(out, n);
    *n = sprintf(out, "%s", version);
    return MPI_SUCCESS;
}

static int my_rank, ranks;

static symm_wait wait_ms(int ms) {
    return (symm_wait){.deadline_ns = symm_now_ns() + (uint64_t)ms * 1000000, .stage = "testing"};
}

static symm_boot *open_over(MPI_Comm comm) {
    symm_boot *b;
    symm_wait w = wait_ms(30000);
    T_OK(symm_boot_mpi_open(&comm, &w, &b));
    return b;
}

static void exchange(symm_boot *b, size_t bytes, int salt) {
    size_t n = (size_t)b->nranks;
    unsigned char *send = malloc(bytes + 1), *recv = malloc(n * bytes + 1);
    symm_wait w = wait_ms(30000);
    T_CHECK(send && recv);
    for (size_t i = 0; i < bytes; i++) send[i] = (unsigned char)(b->rank * 31 + salt + (int)i % 97);
    T_OK(symm_boot_allgather(b, bytes ? send : NULL, bytes ? recv : NULL, bytes, &w));
    for (size_t i = 0; i < n * bytes; i++)
        T_EQ(recv[i], (unsigned char)((int)(i / bytes) * 31 + salt + (int)(i % bytes) % 97));
    free(send);
    free(recv);
}

/* The public call tells all ranks of a variable that one of them has wrong, and at once. */
static void a_bad_variable_is_told_to_all(void) {
    T_EXPECT_WARNINGS();
    char says[40];
    symmComm_t comm = NULL;
    snprintf(says, sizeof says, "rank %d: SYMM_SCRATCH", ranks - 1);
    if (my_rank == ranks - 1) setenv("SYMM_SCRATCH", "little", 1);
    T_ERR(symmCommInitMPI(&comm, MPI_COMM_WORLD, NULL), symmInvalidArgument);
    T_MSG(symm_status_text(), says);
    unsetenv("SYMM_SCRATCH");
    T_OK(symmCommInitMPI(&comm, MPI_COMM_WORLD, NULL));
    T_OK(symmCommDestroy(comm));
}

/* And of an argument, with one domain and with several. */
static void a_bad_argument_is_told_to_all(void) {
    T_EXPECT_WARNINGS();
    symmConfig_t config = SYMM_CONFIG_INITIALIZER;
    const int odd = my_rank == ranks - 1;
    for (int what = 0; what < 4; what++) {
        symmComm_t comm = NULL;
        if (what & 2) setenv("SYMM_DOMAIN_SIZE", "1", 1);
        config.timeoutMs = odd && what & 1 ? 0 : 20000;
        T_ERR(symmCommInitMPI(odd && !(what & 1) ? NULL : &comm, MPI_COMM_WORLD, &config),
              symmInvalidArgument);
        T_MSG(symm_status_text(), what & 1 ? "timeoutMs=0" : "comm is NULL");
        T_CHECK(comm == NULL);
    }
    unsetenv("SYMM_DOMAIN_SIZE");
}

/* ---- when all goes well ---- */

static void blocks_of_all_sizes(void) {
    static const size_t sizes[] = {0, 1, 64, 100000};
    symm_boot *b = open_over(MPI_COMM_WORLD);
    T_STREQ(b->ops->name, "mpi");
    T_EQ(b->rank, my_rank);
    T_EQ(b->nranks, ranks);
    for (int i = 0; i < 24; i++) exchange(b, sizes[i % 4], i);
    symm_boot_close(b);
}

static void one_duplicate_serves_all(void) {
    MPI_Comm comm;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    splits = frees = 0;
    for (int i = 0; i < 20; i++) {
        symm_boot *b = open_over(comm);
        exchange(b, (size_t)i * 7, i);
        symm_boot_close(b);
    }
    T_EQ(splits, 1);
    T_EQ(frees, 0);
    MPI_Comm_free(&comm); /* takes the duplicate along */
    T_EQ(frees, 2);
}

/* Halves in opposite orders, each with its own ranks; a communicator of one. */
static void parts_of_the_world(void) {
    MPI_Comm half;
    MPI_Comm_split(MPI_COMM_WORLD, my_rank % 2, -my_rank, &half);
    symm_boot *b = open_over(half), *alone = open_over(MPI_COMM_SELF);
    T_EQ(alone->nranks, 1);
    exchange(alone, 100, 1);
    exchange(b, 1000, 5);
    symm_boot_close(b);
    symm_boot_close(alone);
    MPI_Comm_free(&half);
}

/* Freed while a bootstrap still uses it: what it needs stays. */
static void freed_under_a_bootstrap(void) {
    MPI_Comm comm;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    symm_boot *b = open_over(comm);
    MPI_Comm_free(&comm);
    exchange(b, 64, 3);
    symm_boot_close(b);
}

static int copies, deletes;
static int copied(MPI_Comm comm, int key, void *extra, void *in, void *out, int *flag) {
    (void)comm, (void)key, (void)extra;
    copies++;
    *(void **)out = in;
    *flag = 1;
    return MPI_SUCCESS;
}
static int deleted(MPI_Comm comm, int key, void *value, void *extra) {
    (void)comm, (void)key, (void)value, (void)extra;
    deletes++;
    return MPI_SUCCESS;
}

/* The program's attributes are on its communicator alone: they may be freed with it. */
static void attributes_stay_alone(void) {
    MPI_Comm comm;
    int key;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_create_keyval(copied, deleted, &key, NULL);
    MPI_Comm_set_attr(comm, key, &copies);
    copies = deletes = 0;
    symm_boot *b = open_over(comm);
    exchange(b, 10, 4);
    symm_boot_close(b);
    MPI_Comm_free(&comm);
    MPI_Comm_free_keyval(&key);
    T_EQ(copies, 0), T_EQ(deletes, 1);
}

/* ---- a rank that does not come ---- */

static void late_rank_is_named(void) {
    if (ranks == 1) T_SKIP("needs 2 ranks");
    T_EXPECT_WARNINGS();
    int late = ranks > 2 ? 2 : 1;
    char says[80];
    snprintf(says, sizeof says, "rank %d never called symmCommInitMPI (waited 0.", late);
    MPI_Comm comm, world = MPI_COMM_WORLD;
    MPI_Comm_dup(world, &comm);
    splits = 0;
    for (int again = 0; again < 2; again++) {
        symm_boot *b = NULL;
        symm_wait w = wait_ms(400);
        if (my_rank != late) {
            T_ERR(symm_boot_mpi_open(&comm, &w, &b), symmTimeout);
            T_MSG(symm_status_text(), says);
            T_CHECK(b == NULL);
            T_EQ(splits, 0); /* nothing that would hold up other users of MPI */
        }
        MPI_Barrier(world);
    }
    MPI_Comm other; /* MPI goes on serving everybody else */
    MPI_Comm_dup(world, &other);
    MPI_Comm_free(&other);
    symm_boot *b = open_over(comm); /* now it comes: the others go on where they were */
    exchange(b, 100, 9);
    symm_boot_close(b);
    b = open_over(comm);
    exchange(b, 100, 10);
    symm_boot_close(b);
    T_EQ(splits, 1);
    MPI_Comm_free(&comm);
}

/* After who gave up all call again: there is one duplicate, for both. Ends comm. */
static void all_open_it_twice(MPI_Comm comm) {
    for (int i = 0; i < 2; i++) {
        symm_boot *b = open_over(comm);
        exchange(b, 100, i);
        symm_boot_close(b);
    }
    T_EQ(splits, 1);
    MPI_Comm_free(&comm);
}

/* The first rank has given up when the late one comes. The others, which wait longer, must not go
 * on into a call that waits for it for ever. Then all of them call again. */
static void who_gave_up_is_not_waited_for(void) {
    if (ranks < 3) T_SKIP("needs 3 ranks");
    T_EXPECT_WARNINGS();
    MPI_Comm comm;
    symm_boot *b = NULL;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    splits = 0;
    if (my_rank == ranks - 1) usleep(500000);
    symm_wait w = wait_ms(my_rank ? 1500 : 200);
    T_ERR(symm_boot_mpi_open(&comm, &w, &b), symmTimeout);
    T_CHECK(b == NULL);
    T_EQ(splits, 0);
    MPI_Barrier(MPI_COMM_WORLD);
    all_open_it_twice(comm);
}

/* The first rank has given up when the others meet, and they when it comes again: what they began
 * is complete then, and nobody is there. */
static void who_has_given_up_since_is_not_waited_for(void) {
    if (ranks < 3) T_SKIP("needs 3 ranks");
    T_EXPECT_WARNINGS();
    MPI_Comm comm;
    symm_boot *b = NULL;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    splits = 0;
    for (int step = 0; step < 3; step++) {
        symm_wait w = wait_ms(300);
        if (step == 0 ? my_rank != ranks - 1 : step == 1 ? my_rank != 0 : my_rank == 0)
            T_ERR(symm_boot_mpi_open(&comm, &w, &b), symmTimeout);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    T_CHECK(b == NULL);
    T_EQ(splits, 0);
    all_open_it_twice(comm);
}

/* A rank on another host, whose beacon nobody here sees, is late for an exchange. It has another
 * job here, which hides its beacon alike. */
static void late_on_another_host(void) {
    const char *job = getenv("PMIX_NAMESPACE");
    char own[256];
    const int there = my_rank == ranks - 1;
    snprintf(own, sizeof own, "%s", job ? job : "");
    if (there) setenv("PMIX_NAMESPACE", "elsewhere", 1);
    symm_boot *b = open_over(MPI_COMM_WORLD);
    if (there && job) setenv("PMIX_NAMESPACE", own, 1);
    if (there && !job) unsetenv("PMIX_NAMESPACE");
    if (there) usleep(6500000);
    exchange(b, 64, 5);
    symm_boot_close(b);
}

/* The public call reads its deadline from the config. Where ranks are on several hosts, as MPICH's
 * launcher says, it does not claim to know who is missing. */
static void init_times_out(void) {
    if (ranks == 1) T_SKIP("needs 2 ranks");
    T_EXPECT_WARNINGS();
    symmComm_t comm = NULL;
    symmConfig_t config = SYMM_CONFIG_INITIALIZER;
    MPI_Comm mine;
    MPI_Comm_dup(MPI_COMM_WORLD, &mine);
    config.timeoutMs = 300;
    for (int hosts = 1; hosts <= 2 && my_rank != ranks - 1; hosts++) {
        uint64_t start = symm_now_ns();
        if (hosts == 2) setenv("MPI_LOCALNRANKS", "1", 1), setenv("PMI_SIZE", "2", 1);
        T_ERR(symmCommInitMPI(&comm, mine, &config), symmTimeout);
        T_EQ(strstr(symm_status_text(), "cannot be told") != NULL, hosts == 2);
        T_CHECK(symm_now_ns() - start < 5000000000ull);
        T_CHECK(comm == NULL);
    }
    unsetenv("MPI_LOCALNRANKS"), unsetenv("PMI_SIZE");
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Comm_free(&mine); /* with the greeting still outstanding */
}

/* ---- exchanges that fail ---- */

/* The victim fails before it enters MPI, or leaves; the others give up, and all can start anew. */
static void failed_exchange(int leaves) {
    MPI_Comm comm;
    char all[64], one[1] = {1};
    int victim = ranks - 1;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    symm_boot *b = open_over(comm);
    exchange(b, 10, 1);
    symm_wait w = wait_ms(500);
    if (my_rank != victim) {
        T_ERR(symm_boot_allgather(b, one, all, 1, &w), symmTimeout);
        if (leaves && !getenv("T_HOSTS")) { /* of another host nobody can know */
            char says[64];
            snprintf(says, sizeof says, "rank %d ended or gave up while testing", victim);
            T_MSG(symm_status_text(), says);
        }
        T_ERR(symm_boot_allgather(b, one, all, 1, &w), symmInvalidUsage);
    } else if (!leaves) {
        T_EQ(symm_fail_arm("boot_allgather:error"), 0);
        T_ERR(symm_boot_allgather(b, one, all, 1, &w), symmSystemError);
        T_EQ(symm_fail_arm(""), 0);
    }
    if (my_rank == victim && leaves) symm_boot_close(b);
    MPI_Barrier(MPI_COMM_WORLD);
    if (my_rank != victim || !leaves) symm_boot_close(b);
    splits = 0;
    if (!leaves) { /* all know that it failed: all agree on a new duplicate */
        b = open_over(comm);
        T_EQ(splits, 1);
        exchange(b, 30, 2);
        symm_boot_close(b);
    } else { /* one has a duplicate that it thinks well of: still all agree */
        b = open_over(comm);
        T_EQ(splits, 1);
        exchange(b, 30, 3);
        symm_boot_close(b);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Comm_free(&comm);
}

static void new_beginning_after_a_failure(void) {
    if (ranks == 1) T_SKIP("needs 2 ranks");
    if (ranks > 64) T_SKIP("buffers are for 64 ranks");
    T_EXPECT_WARNINGS();
    failed_exchange(0);
    failed_exchange(1);
}

static void failpoint_in_open(void) {
    T_EXPECT_WARNINGS();
    MPI_Comm world = MPI_COMM_WORLD;
    symm_boot *b = NULL;
    symm_wait w = wait_ms(30000);
    T_EQ(symm_fail_arm("boot_connect:error:1"), 0);
    T_ERR(symm_boot_mpi_open(&world, &w, &b), symmSystemError);
    T_CHECK(b == NULL);
    T_EQ(symm_fail_arm(""), 0);
    symm_boot_close(open_over(MPI_COMM_WORLD));
}

/* How often the armed point is met by an opening and an exchange, the last rank being late: whom
 * the others then look for. */
static int meet_armed(MPI_Comm comm, const char *spec, symmResult_t *result) {
    symm_boot *b = NULL;
    symm_wait w = wait_ms(30000);
    char one = 1, all[64];
    T_EQ(symm_fail_arm(spec), 0);
    if (my_rank == ranks - 1) usleep(120000);
    *result = symm_boot_mpi_open(&comm, &w, &b);
    T_CHECK((*result == symmSuccess) == (b != NULL));
    if (b) {
        *result = symm_boot_allgather(b, &one, all, 1, &w);
        symm_boot_close(b);
    }
    int point = 0;
    while (strncmp(spec, symm_fail_name(point), strlen(symm_fail_name(point))) != 0) point++;
    int hits = symm_fail_hits(point);
    T_EQ(symm_fail_arm(""), 0);
    return hits;
}

/* On all ranks at once, before anything was begun that others would have to finish. */
static void every_failpoint(void) {
    if (ranks > 64) T_SKIP("buffers are for 64 ranks");
    T_EXPECT_WARNINGS();
    for (int point = 0; point < symm_fp_count; point++) {
        char spec[64];
        MPI_Comm comm;
        symmResult_t result;
        int looks = point == symm_fp_beacon_look;
        if (strcmp(symm_fail_where(point), "mpi") != 0 || (looks && ranks == 1)) continue;
        MPI_Comm_dup(MPI_COMM_WORLD, &comm);
        snprintf(spec, sizeof spec, "%s:error", symm_fail_name(point));
        int64_t fds = SYMM_STAT_GET(fds);
        int hits = meet_armed(comm, spec, &result);
        T_EQ(SYMM_STAT_GET(fds), fds);
        T_CHECKF(hits || (looks && my_rank == ranks - 1), "failpoint %s was not reached",
                 symm_fail_name(point));
        T_EQ(result != symmSuccess, !looks);
        symm_boot *b = open_over(comm);
        exchange(b, 20, point);
        symm_boot_close(b);
        MPI_Comm_free(&comm);
    }
}

/* ---- wrong use ---- */

static symmResult_t thread_result;

static void *open_in_thread(void *arg) {
    MPI_Comm self = MPI_COMM_SELF;
    symm_wait w = wait_ms(1000);
    symm_boot *b = NULL;
    (void)arg;
    thread_result = symm_boot_mpi_open(&self, &w, &b);
    symm_boot_close(b);
    return NULL;
}

static void wrong_thread(void) {
    T_EXPECT_WARNINGS();
    pthread_t t;
    int level;
    MPI_Query_thread(&level);
    T_EQ(pthread_create(&t, NULL, open_in_thread, NULL), 0);
    pthread_join(t, NULL);
    T_EQ(thread_result, level < MPI_THREAD_SERIALIZED ? symmInvalidUsage : symmSuccess);
}

static void wrong_arguments(void) {
    T_EXPECT_WARNINGS();
    symmComm_t comm = NULL;
    symm_boot *b = NULL;
    symm_wait w = wait_ms(1000);
    MPI_Comm null = MPI_COMM_NULL, inter;
    symmConfig_t config = SYMM_CONFIG_INITIALIZER;
    for (int domains = 0; domains < 2; domains++) { /* one rank's is the error of all, at once */
        symmComm_t comm = NULL;
        if (domains) setenv("SYMM_DOMAIN_SIZE", "1", 1);
        T_ERR(symmCommInitMPI(my_rank == ranks / 2 ? NULL : &comm, MPI_COMM_WORLD, NULL),
              symmInvalidArgument);
        T_MSG(symmGetLastError(NULL), "comm is NULL");
        T_CHECK(!comm);
    }
    unsetenv("SYMM_DOMAIN_SIZE");
    T_ERR(symmCommInitMPI(&comm, MPI_COMM_NULL, NULL), symmInvalidArgument);
    config.timeoutMs = 0;
    T_ERR(symmCommInitMPI(&comm, MPI_COMM_WORLD, &config), symmInvalidArgument);
    T_MSG(symm_status_text(), "timeoutMs");
    T_ERR(symm_boot_mpi_open(&null, &w, &b), symmInvalidArgument);
    if (ranks > 1) {
        MPI_Comm half;
        MPI_Comm_split(MPI_COMM_WORLD, my_rank % 2, my_rank, &half);
        MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, 1 - my_rank % 2, 4, &inter);
        T_ERR(symm_boot_mpi_open(&inter, &w, &b), symmInvalidArgument);
        MPI_Comm_free(&inter);
        MPI_Comm_free(&half);
    }
    T_CHECK(b == NULL && comm == NULL);
}

/* Its handles mean nothing to another MPI, which is named before any of them is used. */
static void another_mpi(void) {
    T_EXPECT_WARNINGS();
    static const char *const all[] = {"Open MPI v4.1.4, package: MPICH", "MPICH Version:\t4.0.2\n",
                                      "MVAPICH2 Version      :\t2.3.7\n",
                                      "Intel(R) MPI Library 2021.8"};
    char real[16384] = "";
    int n;
    PMPI_Get_library_version(real, &n);
    const int open = !strncmp(real, "Open MPI", 8);
    for (int i = 0; i < 4; i++) {
        symmComm_t comm = NULL;
        version = all[i];
        const symmResult_t r = symmCommInitMPI(&comm, MPI_COMM_WORLD, NULL);
        version = NULL;
        T_EQ(r, open == !i ? symmSuccess : symmInvalidUsage);
        if (r)
            T_MSG(symm_status_text(), i ? i == 1 ? "MPICH Version: 4.0.2: it" : "MPI" : "v4.1.4:");
        if (!r) T_OK(symmCommDestroy(comm));
    }
}

/* The second waits for its turn, up to its deadline. */
static void two_at_once(void) {
    T_EXPECT_WARNINGS();
    MPI_Comm self = MPI_COMM_SELF;
    symm_boot *b = open_over(MPI_COMM_SELF), *other = NULL;
    symm_wait w = wait_ms(100);
    T_ERR(symm_boot_mpi_open(&self, &w, &other), symmTimeout);
    T_MSG(symm_status_text(), "still running");
    T_CHECK(other == NULL);
    symm_boot_close(b);
    symm_boot_close(open_over(MPI_COMM_SELF));
}

static symmResult_t before_init;

static void before_mpi_init(void) {
    T_EQ(before_init, symmInvalidUsage);
}

/* Leaves MPI_COMM_WORLD with an outstanding greeting, as a job has it whose last rank never came:
 * finalising must get over that. The last test, for it cannot be taken back. */
static void finalize_in_the_middle(void) {
    T_EXPECT_WARNINGS();
    MPI_Comm world = MPI_COMM_WORLD;
    symm_boot *b = NULL;
    symm_wait w = wait_ms(200);
    if (ranks > 1 && my_rank != ranks - 1) T_ERR(symm_boot_mpi_open(&world, &w, &b), symmTimeout);
    MPI_Barrier(MPI_COMM_WORLD);
}

static const t_test tests[] = {
    T(before_mpi_init),
    T(blocks_of_all_sizes),
    T(one_duplicate_serves_all),
    T(parts_of_the_world),
    T(freed_under_a_bootstrap),
    T(attributes_stay_alone),
    T(a_bad_variable_is_told_to_all),
    T(a_bad_argument_is_told_to_all),
    T(late_rank_is_named),
    T(who_gave_up_is_not_waited_for),
    T(who_has_given_up_since_is_not_waited_for),
    T(late_on_another_host),
    T(init_times_out),
    T(new_beginning_after_a_failure),
    T(failpoint_in_open),
    T(every_failpoint),
    T(wrong_thread),
    T(wrong_arguments),
    T(another_mpi),
    T(two_at_once),
    T(finalize_in_the_middle),
};

int main(int argc, char **argv) {
    MPI_Comm world = MPI_COMM_WORLD;
    symm_wait w = wait_ms(1000);
    symm_boot *b = NULL;
    int level = symm_log_level;
    symm_log_level = SYMM_LOG_NONE; /* outside of the tests nothing expects warnings */
    before_init = symm_boot_mpi_open(&world, &w, &b);
    symm_log_level = level;
    if (MPI_Init(&argc, &argv) != MPI_SUCCESS) return 1;
    MPI_Comm_rank(MPI_COMM_WORLD, &my_rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    int rc = t_inline(argc, argv, tests, (int)(sizeof tests / sizeof *tests), my_rank);
    MPI_Finalize();
    symm_log_level = SYMM_LOG_NONE;
    if (symm_boot_mpi_open(&world, &w, &b) != symmInvalidUsage || b) return 1;
    return rc == 77 ? 0 : rc;
}
