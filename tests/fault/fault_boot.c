/* fault_boot.c - bootstraps under fire: missing, late, dying, doubled and disagreeing ranks, and
 * strangers at the listener. What is proven each time: nobody waits past the deadline, everybody
 * that lives gets the same error, the error names who. */
#include "boot_kit.h"

#include <errno.h>
#include <pthread.h>
#include <sys/resource.h>

enum { SHORT_MS = 400, PATIENT_MS = 10000 };

/* The code and text of an open that shall fail, and of what it left behind: nothing. */
static void open_fails(job *j, int rank, int as, int nranks, symm_wait *w) {
    symm_boot *b = NULL;
    job_note(j, rank, symm_boot_tcp_open(&j->id, as, nranks, w, &b));
    T_CHECKF(b == NULL, "rank %d opened", rank);
}

/* ---- missing ranks ---- */

static void missing_rank(int rank, int n, void *arg) {
    job *j = arg;
    uint64_t start = symm_now_ns();
    job_id(j, rank, n);
    if (rank != j->victim) {
        /* Rank 0 is the more patient one where `how` says so: then another rank's deadline decides.
         */
        symm_wait w = kit_wait("meeting", rank == 0 && j->how ? PATIENT_MS : j->ms + 50 * rank);
        open_fails(j, rank, rank, n, &w);
        T_CHECK(symm_now_ns() - start < 5000000000ull);
    }
    kit_barrier(&j->k, n);
    if (rank == j->maker && rank == j->victim) symm_boot_tcp_refuse(&j->id, rank, n);
    symm_tcp_keep_wait();
}

static void missing_rank_is_named(void) {
    T_EXPECT_WARNINGS();
    static const char *const in[] = {"", ".xxx", "x.xx", "xx.x", "xxx."};
    static const char *const says[] = {"", "", "rank 1 never came", "rank 2 never came",
                                       "rank 3 never came"};
    for (int how = 0; how < 2; how++)
        for (int victim = 1; victim < 4; victim++) {
            job *j = job_new(victim, how, SHORT_MS);
            T_FORK(4, missing_rank, j);
            job_same(j, 4, in[victim + 1], symmTimeout, says[victim + 1]);
            T_MSG(j->k.text[0], "while meeting");
        }
}

static void missing_root_is_named(void) {
    T_EXPECT_WARNINGS();
    job *j = job_new(0, 0, SHORT_MS);
    T_FORK(3, missing_rank, j);
    T_EQ(j->k.code[1], symmTimeout); /* its deadline is the first */
    T_MSG(j->k.text[1], "who made the id (process");
    T_MSG(j->k.text[1], "does not answer");
    T_EQ(j->k.code[2], symmRemoteError); /* the process of rank 0 tells it */
    T_MSG(j->k.text[2], "rank 1 (process");
    T_MSG(j->k.text[2], "died or left");
}

/* The rank that made the id knows who is missing, whichever it is. */
static void missing_rank_0_is_named(void) {
    T_EXPECT_WARNINGS();
    for (int maker = 1; maker < 4; maker += 2) {
        job *j = job_new(0, 0, SHORT_MS);
        j->maker = maker;
        T_FORK(4, missing_rank, j);
        job_same(j, 4, ".xxx", symmTimeout, "rank 0 never came");
    }
}

static void many_missing_rank(int rank, int n, void *arg) {
    job *j = arg;
    job_id(j, rank, n);
    symm_wait w = kit_wait("meeting", SHORT_MS);
    open_fails(j, rank, rank ? 9 : 0, 20, &w);
}

static void many_missing_are_listed(void) {
    T_EXPECT_WARNINGS();
    job *j = job_new(0, 0, SHORT_MS);
    T_THREADS(2, many_missing_rank, j);
    job_same(j, 2, "xx", symmTimeout, "ranks 1-8, 10-19 never came");
}

/* ---- disagreement ---- */

static void twin_rank(int rank, int n, void *arg) {
    job *j = arg;
    symm_wait w = kit_wait("meeting", PATIENT_MS);
    job_id(j, rank, n);
    if (rank == 2) kit_sleep(j->how);
    open_fails(j, rank, rank == 2 ? 1 : rank, n, &w);
}

static void rank_given_twice(void) {
    T_EXPECT_WARNINGS();
    for (int late = 0; late < 2; late++) {
        job *j = job_new(0, late * 200, 0);
        T_FORK(3, twin_rank, j);
        job_same(j, 3, "xxx", symmInvalidArgument, "rank 1 was given twice");
    }
}

static void second_root_rank(int rank, int n, void *arg) {
    job *j = arg;
    symm_wait w = kit_wait("meeting", SHORT_MS);
    job_id(j, rank, n);
    open_fails(j, rank, 0, 3, &w);
}

static void root_elsewhere(void) {
    T_EXPECT_WARNINGS();
    job *j = job_new(0, 0, 0);
    T_FORK(2, second_root_rank, j);
    job_same(j, 2, "xx", symmInvalidArgument, "rank 0 was given twice");
}

static void other_nranks_rank(int rank, int n, void *arg) {
    job *j = arg;
    symm_wait w = kit_wait("meeting", PATIENT_MS);
    job_id(j, rank, n);
    if (rank == n - 1) kit_sleep(200); /* comes when the error is decided: is told all the same */
    open_fails(j, rank, rank, rank == j->victim ? n + j->how : n, &w);
}

static void nranks_differs(void) {
    T_EXPECT_WARNINGS();
    for (int how = -1; how < 2; how += 2) {
        job *j = job_new(1, how, 0);
        T_FORK(4, other_nranks_rank, j);
        job_same(j, 4, "xxxx", symmInvalidArgument,
                 how < 0 ? "rank 0 says 4, rank 1" : "nranks differs");
    }
}

/* ---- strangers ---- */

static int stranger(const symm_tcp_id *id) {
    int fd = socket(id->addr.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    T_CHECK(fd >= 0);
    /* Refused: the door is closed, the ranks are complete. */
    if (connect(fd, (const struct sockaddr *)&id->addr, id->addrlen)) {
        close(fd);
        return -1;
    }
    return fd;
}

static void say(int fd, const void *bytes, size_t n) {
    if (send(fd, bytes, n, MSG_NOSIGNAL) < 0) T_CHECK(errno == EPIPE || errno == ECONNRESET);
}

static void hello_bytes(const symm_tcp_id *id, symm_tcp_hello h, uint8_t *out) {
    memcpy(h.secret, id->secret, sizeof h.secret);
    if (!h.version) h.version = SYMM_TCP_VERSION;
    symm_tcp_hello_put(&h, out);
}

/* One of each kind; those that stay are kept in fds. */
static int molest(const symm_tcp_id *id, int turn, int *fds, int many) {
    static const char request[] = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
    static const char babble[] = "smyH, which is how a hello begins, and so on and on";
    uint8_t hello[SYMM_TCP_HELLO];
    int fd = stranger(id);
    if (fd < 0) return many;
    struct linger reset = {1, 0};
    hello_bytes(id, (symm_tcp_hello){.rank = 1, .nranks = 3}, hello);
    switch (turn % 7) {
    case 0: break; /* says nothing */
    case 1: say(fd, request, sizeof request - 1); break;
    case 2: /* the right form, a secret that is wrong in one bit */
        hello[8 + turn % SYMM_TCP_SECRET] ^= 1;
        say(fd, hello, sizeof hello);
        break;
    case 3: say(fd, hello, 20); break;                                   /* half of a true one */
    case 4: setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset); /* fall through */
    case 5: close(fd); return many;
    default: /* much more than anybody asked for */
        for (int k = 0; k < 64; k++) say(fd, babble, sizeof babble - 1);
    }
    fds[many] = fd;
    return many + 1;
}

typedef struct {
    symm_tcp_id id;
    int turns, fast;
    _Atomic int stop;
} siege;

static void *besiege(void *arg) {
    enum { KEEP = 300 };
    siege *s = arg;
    int fds[KEEP], many = 0;
    for (int i = 0; i < s->turns && many < KEEP && !atomic_load(&s->stop); i++) {
        many = molest(&s->id, s->fast ? 0 : i, fds, many);
        if (!s->fast) usleep(2000);
    }
    while (!atomic_load(&s->stop)) usleep(1000);
    for (int i = 0; i < many; i++) close(fds[i]);
    return NULL;
}

static void besieged_rank(int rank, int n, void *arg) {
    job *j = arg;
    siege s = {.turns = j->how ? 300 : 100, .fast = j->how};
    pthread_t t;
    symm_boot *b;
    int64_t before = SYMM_STAT_GET(intruders);
    job_id(j, rank, n);
    T_OK(symm_tcp_id_parse(&j->id, &s.id));
    if (rank == 1) T_EQ(pthread_create(&t, NULL, besiege, &s), 0);
    if (rank > 0) kit_sleep(300);
    symm_wait w = kit_wait("meeting", KIT_MS);
    T_OK(symm_boot_tcp_open(&j->id, rank, n, &w, &b));
    block_storm(b, 8);
    symm_boot_close(b);
    if (rank == 0) T_CHECK(SYMM_STAT_GET(intruders) > before);
    kit_barrier(&j->k, n);
    atomic_store(&s.stop, 1);
    if (rank == 1) pthread_join(t, NULL);
}

static void strangers_do_no_harm(void) {
    T_FORK(3, besieged_rank, job_new(0, 0, 0));
}

static void floods_do_no_harm(void) {
    T_FORK(3, besieged_rank, job_new(0, 1, 0));
}

/* The true secret and something that cannot be: everybody shall know. */
static void odd_hello_rank(int rank, int n, void *arg) {
    job *j = arg;
    job_id(j, rank, n);
    symm_wait w = kit_wait("meeting", PATIENT_MS);
    if (rank < 2) {
        open_fails(j, rank, rank, n, &w);
        return;
    }
    static const symm_tcp_hello odd[] = {{.version = 99, .rank = 2, .nranks = 3, .pid = 77},
                                         {.rank = 0, .nranks = 3, .pid = 77},
                                         {.rank = -5, .nranks = 3, .pid = 77},
                                         {.rank = 3, .nranks = 3, .pid = 77}};
    uint8_t hello[SYMM_TCP_HELLO];
    symm_tcp_id id;
    T_OK(symm_tcp_id_parse(&j->id, &id));
    hello_bytes(&id, odd[j->how], hello);
    kit_sleep(100);
    int fd = stranger(&id);
    for (int i = 0; i < SYMM_TCP_HELLO; i++) { /* in very small pieces */
        say(fd, hello + i, 1);
        usleep(1000);
    }
    symm_tcp_conn c = {.fd = fd};
    symm_tcp_frame f;
    int k;
    while ((k = symm_tcp_read_head(&c, &f)) == SYMM_TCP_AGAIN) usleep(1000);
    T_EQ(k, SYMM_TCP_DONE);
    T_EQ(f.type, SYMM_TCP_ERROR);
    close(fd);
}

static void odd_hellos_are_everybodys_error(void) {
    T_EXPECT_WARNINGS();
    static const char *const says[] = {"speaks version 99", "rank 0 was given twice",
                                       "rank -5 (process 77) is not below", "rank 3 (process 77)"};
    for (int how = 0; how < 4; how++) {
        job *j = job_new(0, how, 0);
        T_FORK(3, odd_hello_rank, j);
        job_same(j, 3, "xx.", how ? symmInvalidArgument : symmVersionMismatch, says[how]);
    }
}

/* A rank that was let in and then speaks nonsense. One rank more than there are is expected, so
 * that set-up goes on. */
static void babbling_rank(int rank, int n, void *arg) {
    job *j = arg;
    job_id(j, rank, n);
    symm_wait w = kit_wait("meeting", PATIENT_MS);
    if (rank < 2) {
        open_fails(j, rank, rank, n + 1, &w);
        return;
    }
    uint8_t hello[SYMM_TCP_HELLO], junk[SYMM_TCP_FRAME] = {1, 2, 3};
    symm_tcp_id id;
    T_OK(symm_tcp_id_parse(&j->id, &id));
    hello_bytes(&id, (symm_tcp_hello){.rank = 2, .nranks = n + 1, .pid = 77}, hello);
    int fd = stranger(&id);
    say(fd, hello, sizeof hello);
    kit_sleep(300); /* the others are in by then */
    say(fd, junk, sizeof junk);
    char sink[4096];
    while (recv(fd, sink, sizeof sink, 0) > 0) continue;
    close(fd);
}

static void nonsense_of_a_rank_is_everybodys_error(void) {
    T_EXPECT_WARNINGS();
    job *j = job_new(0, 0, 0);
    T_FORK(3, babbling_rank, j);
    job_same(j, 3, "xx.", symmInternalError, "rank 2 (process 77) sent a malformed message");
}

/* ---- deaths ---- */

/* The victim ends while it waits in set-up (how 0), in an exchange (1), or before any of it (2).
 * The last rank never comes to what it dies in, so that everybody is inside. */
static void dying_rank(int rank, int n, void *arg) {
    job *j = arg;
    symm_boot *b = NULL;
    fuse f = {j->how == 1 ? 8 : 20, symmSuccess}; /* long before the last rank comes */
    uint64_t start = symm_now_ns();
    job_id(j, rank, n);
    if (rank == j->victim && j->how == 2) raise(SIGKILL);
    symm_wait w = kit_wait("living", PATIENT_MS);
    symm_wait deadly = w;
    deadly.check = fuse_burn;
    deadly.arg = &f;
    if (j->how == 0 && rank == n - 1) kit_sleep(600);
    symmResult_t status =
        symm_boot_tcp_open(&j->id, rank, n, rank == j->victim && j->how == 0 ? &deadly : &w, &b);
    if (j->how == 1) {
        T_OK(status);
        T_OK(block_exchange(b, 1000, 1, &w));
        if (rank == n - 1) kit_sleep(500);
        status = block_exchange(b, 3000000, 2, rank == j->victim ? &deadly : &w);
    }
    job_note(j, rank, status);
    symm_boot_close(b);
    T_CHECK(symm_now_ns() - start < 6000000000ull);
}

static void death_is_everybodys_error(void) {
    T_EXPECT_WARNINGS();
    static const char *const in[] = {".xxx", "x.xx", "xx.x"};
    static const char *const says[] = {"rank 0 (process", "rank 1 (process", "rank 2 (process"};
    for (int i = 0; i < 6; i++) {
        const int victim = i / 2;
        job *j = job_new(victim, 1, 0);
        j->maker = i % 2 * 2;
        T_FORK_DIES(4, victim, dying_rank, j);
        job_same(j, 4, in[victim], symmRemoteError, says[victim]);
        T_MSG(j->k.text[3], "died or left while living");
    }
}

static void death_in_setup_is_everybodys_error(void) {
    T_EXPECT_WARNINGS();
    static const char *const in[] = {".xxx", "x.xx", "xx.x"};
    for (int victim = 0; victim < 3; victim++) {
        job *j = job_new(victim, 0, 0);
        T_FORK_DIES(4, victim, dying_rank, j);
        char who[32];
        snprintf(who, sizeof who, "rank %d (process", victim);
        if (victim) {
            job_same(j, 4, in[victim], symmRemoteError, who); /* rank 3 is late, but told */
            continue;
        }
        for (int r = 1; r < 4; r++) T_EQ(j->k.code[r], symmRemoteError);
        T_MSG(j->k.text[1], who);
        T_MSG(j->k.text[3], "nobody listens"); /* there is nobody left to tell it more */
    }
}

static void death_of_root_before_setup(void) {
    T_EXPECT_WARNINGS();
    job *j = job_new(0, 2, 0);
    T_FORK_DIES(3, 0, dying_rank, j);
    for (int r = 1; r < 3; r++) {
        T_EQ(j->k.code[r], symmRemoteError);
        T_MSG(j->k.text[r], "nobody listens");
    }
}

/* ---- exchanges that fail ---- */

enum { ABSENT, OTHER_SIZE, BURNT, FAILPOINT, LEAVES };

static void failing_rank(int rank, int n, void *arg) {
    job *j = arg;
    symm_boot *b;
    symm_wait w = kit_wait("trading", PATIENT_MS);
    job_id(j, rank, n);
    T_OK(symm_boot_tcp_open(&j->id, rank, n, &w, &b));
    T_OK(block_exchange(b, 10, 0, &w));
    int me = rank == j->victim;
    fuse f = {10, symmAborted};
    w = kit_wait("trading", j->how == ABSENT ? SHORT_MS + 50 * rank : PATIENT_MS);
    if (me && j->how == FAILPOINT) T_EQ(symm_fail_arm("boot_allgather:error"), 0);
    if (me && j->how == BURNT) {
        w.check = fuse_burn;
        w.arg = &f;
    }
    /* Somebody must be missing for a check to come into play. */
    if (j->how == BURNT && rank == (j->victim + 1) % n) kit_sleep(300);
    if (me && j->how == LEAVES) {
        symm_boot_close(b);
        return;
    }
    if (!me || j->how != ABSENT) {
        size_t bytes = me && j->how == OTHER_SIZE ? 200 : 100;
        job_note(j, rank, block_exchange(b, bytes, 1, &w));
        T_CHECK(j->k.code[rank] != symmSuccess);
        T_ERR(block_exchange(b, 10, 2, &w), symmInvalidUsage); /* only close is left */
    }
    if (j->how == ABSENT) kit_barrier(&j->k, n);
    symm_boot_close(b);
}

static const char *const but[] = {".xxx", "x.xx", "xx.x", "xxx."};

static job *fail_exchange(int victim, int how) {
    job *j = job_new(victim, how, 0);
    T_FORK(4, failing_rank, j);
    return j;
}

static void absent_rank_is_named(void) {
    T_EXPECT_WARNINGS();
    for (int v = 1; v < 4; v++) {
        char who[64];
        snprintf(who, sizeof who, "rank %d did not come to the exchange", v);
        job_same(fail_exchange(v, ABSENT), 4, but[v], symmTimeout, who);
    }
    job *j = fail_exchange(0, ABSENT);
    for (int r = 1; r < 4; r++) {
        T_EQ(j->k.code[r], symmTimeout);
        T_MSG(j->k.text[r], "rank 0");
    }
}

static void sizes_differ(void) {
    T_EXPECT_WARNINGS();
    job_same(fail_exchange(2, OTHER_SIZE), 4, "xxxx", symmMismatch,
             "rank 2 brings 200 bytes where rank 0 brings 100");
    job_same(fail_exchange(0, OTHER_SIZE), 4, "xxxx", symmMismatch, "where rank 0 brings 200");
}

static void who_gives_up_is_named(void) {
    T_EXPECT_WARNINGS();
    static const int hows[] = {BURNT, FAILPOINT, LEAVES};
    for (int i = 0; i < 3; i++)
        for (int v = 1; v < 4; v++) {
            char who[32];
            snprintf(who, sizeof who, "rank %d (process", v);
            job *j = fail_exchange(v, hows[i]);
            job_same(j, 4, but[v], symmRemoteError, who);
            if (hows[i] == BURNT) T_EQ(j->k.code[v], symmAborted);
            if (hows[i] == FAILPOINT) T_EQ(j->k.code[v], symmSystemError);
        }
    job_same(fail_exchange(0, BURNT), 4, "xxxx", symmAborted, "the fuse has burnt");
    job_same(fail_exchange(0, FAILPOINT), 4, "xxxx", symmSystemError, "failpoint");
    job_same(fail_exchange(0, LEAVES), 4, ".xxx", symmRemoteError, "rank 0 (process");
}

static void connect_failpoint_rank(int rank, int n, void *arg) {
    job *j = arg;
    symm_wait w = kit_wait("meeting", SHORT_MS);
    job_id(j, rank, n);
    if (rank == j->victim) T_EQ(symm_fail_arm("boot_connect:error"), 0);
    open_fails(j, rank, rank, n, &w);
}

static void failpoint_in_open(void) {
    T_EXPECT_WARNINGS();
    for (int v = 0; v < 3; v++) {
        job *j = job_new(v, 0, 0);
        T_FORK(3, connect_failpoint_rank, j);
        for (int r = 0; r < 3; r++)
            T_CHECK(j->k.code[r] ==
                    (r == v   ? symmSystemError
                     : v == 0 ? (j->k.code[r] == symmTimeout ? symmTimeout : symmRemoteError)
                              : symmTimeout));
        T_MSG(j->k.text[v], "failpoint boot_connect");
    }
}

/* ---- no descriptors left ---- */

static void starving_rank(int rank, int n, void *arg) {
    job *j = arg;
    int fds[64], many = 0;
    symm_boot *b = NULL;
    symm_wait w = kit_wait("meeting", PATIENT_MS);
    job_id(j, rank, n);
    if (rank == j->victim) {
        struct rlimit low = {40, 40};
        T_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
        while (many < 64 && (fds[many] = dup(2)) >= 0) many++;
    }
    job_note(j, rank, symm_boot_tcp_open(&j->id, rank, n, &w, &b));
    T_CHECK(b == NULL);
    while (many) close(fds[--many]);
}

static void no_descriptors_left(void) {
    T_EXPECT_WARNINGS();
    job *j = job_new(0, 0, 0);
    T_FORK(3, starving_rank, j);
    T_EQ(j->k.code[0], symmFdLimit);
    for (int r = 1; r < 3; r++) /* told, or not let in */
        T_CHECK(j->k.code[r] == symmFdLimit || j->k.code[r] == symmRemoteError);
}

/* ---- threads ---- */

typedef struct {
    symm_boot_group *g;
    job *j;
    int come; /* 0: the victim never opens */
} thread_job;

static void thread_rank(int rank, int n, void *arg) {
    thread_job *t = arg;
    job *j = t->j;
    symm_boot *b;
    int me = rank == j->victim;
    fuse f = {5, symmAborted};
    symm_log_rank(rank);
    symm_wait w = kit_wait("trading", j->how == ABSENT ? SHORT_MS : PATIENT_MS);
    if (me && !t->come) {
        kit_sleep(200);
        if (j->how == LEAVES) symm_boot_group_abandon(t->g);
        return;
    }
    T_OK(symm_boot_threads_open(t->g, rank, &b));
    T_OK(t->come ? block_exchange(b, 10, 0, &w) : symmSuccess);
    if (me && j->how == BURNT) {
        w.check = fuse_burn;
        w.arg = &f;
    }
    if (j->how == BURNT && rank == (j->victim + 1) % n) kit_sleep(300);
    if (!me || (j->how != ABSENT && j->how != LEAVES)) {
        if (me && j->how == OTHER_SIZE) kit_sleep(100);
        job_note(j, rank, block_exchange(b, me && j->how == OTHER_SIZE ? 200 : 100, 1, &w));
        T_CHECK(j->k.code[rank] != symmSuccess);
        T_CHECK(block_exchange(b, 10, 2, &w) != symmSuccess);
    }
    if (j->how == ABSENT) kit_barrier(&j->k, n);
    symm_boot_close(b);
}

static job *fail_threads(int victim, int how, int come) {
    thread_job t = {NULL, job_new(victim, how, 0), come};
    T_OK(symm_boot_group_create(4, &t.g));
    T_THREADS(4, thread_rank, &t);
    return t.j;
}

static void threads_name_who_failed(void) {
    T_EXPECT_WARNINGS();
    for (int v = 0; v < 4; v++) {
        char who[64];
        snprintf(who, sizeof who, "rank %d did not come (waited", v);
        job_same(fail_threads(v, ABSENT, 1), 4, but[v], symmTimeout, who);
        snprintf(who, sizeof who, "rank %d left while trading", v);
        job_same(fail_threads(v, LEAVES, 1), 4, but[v], symmRemoteError, who);
        snprintf(who, sizeof who, "rank %d never came and will not", v);
        job_same(fail_threads(v, LEAVES, 0), 4, but[v], symmRemoteError, who);
        snprintf(who, sizeof who, "rank %d gave up while trading: the fuse has burnt", v);
        job *j = fail_threads(v, BURNT, 1);
        job_same(j, 4, but[v], symmRemoteError, who);
        T_EQ(j->k.code[v], symmAborted);
        snprintf(who, sizeof who, "rank %d brings 200 bytes", v);
        job_same(fail_threads(v, OTHER_SIZE, 1), 4, "xxxx", symmMismatch, who);
    }
}

static void threads_failpoints(void) {
    T_EXPECT_WARNINGS();
    symm_boot_group *g;
    symm_boot *b = NULL;
    char all[1], one[1] = {1};
    symm_wait w = kit_wait("trading", SHORT_MS);
    T_OK(symm_boot_group_create(1, &g));
    T_EQ(symm_fail_arm("boot_connect:error:1"), 0);
    T_ERR(symm_boot_threads_open(g, 0, &b), symmSystemError);
    T_CHECK(b == NULL);
    T_OK(symm_boot_threads_open(g, 0, &b)); /* the rank may come again */
    T_EQ(symm_fail_arm("boot_allgather:error:1"), 0);
    T_ERR(symm_boot_allgather(b, one, all, 1, &w), symmSystemError);
    symm_boot_close(b);
}

T_MAIN(T(missing_rank_is_named), T(missing_root_is_named), T(missing_rank_0_is_named),
       T(many_missing_are_listed), T(rank_given_twice), T(root_elsewhere), T(nranks_differs),
       T(strangers_do_no_harm), T(floods_do_no_harm), T(odd_hellos_are_everybodys_error),
       T(nonsense_of_a_rank_is_everybodys_error), T(death_is_everybodys_error),
       T(death_in_setup_is_everybodys_error), T(death_of_root_before_setup),
       T(absent_rank_is_named), T(sizes_differ), T(who_gives_up_is_named), T(failpoint_in_open),
       T(no_descriptors_left), T(threads_name_who_failed), T(threads_failpoints))
