/* fault_keep.c - ids of a process that is no rank: it serves the meeting from a thread. Whoever
 * comes, is late, differs, dies or never comes, the ranks hear the same; and nothing is left in the
 * process, whether its ids are used or not. The last process of a test is the maker, which is no
 * rank; where a test says so, it is one of the ranks that comes late. */
#include "boot_kit.h"

#include <sys/wait.h>

#include "fault_kit.h"
#include "symm_grow.h"
#include "symm_meet.h"

enum {
    SHORT_MS = 2000,
    PATIENT_MS = 10000,
    LATE_MS = 300,
    HELD_MS = 1400 /* the meeting is not given back */
};

static int64_t threads(void) {
    return SYMM_STAT_GET(threads);
}

/* The maker has made an id and all processes have it. */
static void begin(job *j, int rank, int n) {
    j->maker = n - 1;
    job_id(j, rank, n);
}
/* All have done what they came for; nothing of the meeting is left. */
static void end(job *j, int n) {
    kit_barrier(&j->k, n);
    symm_tcp_keep_wait();
    T_EQ(threads(), 0);
}

static void opens(job *j, int rank, int nranks, int as, int ms) {
    symm_boot *b = NULL;
    symm_wait w = kit_wait("meeting", ms);
    const symmResult_t r = symm_boot_tcp_open(&j->id, as, nranks, &w, &b);
    job_note(j, rank, r);
    if (!r) symm_boot_close(b);
}

/* ---- all goes well --------------------------------------------------------------------------- */

static void served_rank(int rank, int n, void *arg) {
    job *j = arg;
    symm_boot *b;
    symm_wait w = kit_wait("meeting", KIT_MS);
    begin(j, rank, n);
    if (rank < n - 1) {
        T_OK(symm_boot_tcp_open(&j->id, rank, n - 1, &w, &b));
        T_EQ(b->ops->meets_only, 1);
        block_storm(b, j->how);
        symm_boot_close(b);
    }
    end(j, n);
}

static void ranks_of_a_launcher(void) {
    static const int ranks[] = {1, 2, 3, 5, 8};
    for (int i = 0; i < 5; i++) T_FORK(ranks[i] + 1, served_rank, job_new(0, 12, KIT_MS));
}

/* Strangers come first, and stay: silent, with a part of a hello, with a wrong secret, with noise.
 * how: the maker is a rank too, and comes when its process serves already. */
enum { STRANGERS = 40, STAY_MS = 1300 };

static int knock_as(const symm_tcp_id *id, int kind) {
    uint8_t said[SYMM_TCP_HELLO] = {0};
    symm_tcp_hello h = {.version = SYMM_TCP_VERSION, .rank = 1, .nranks = 3};
    const int fd = socket(id->addr.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    T_EQ(connect(fd, (const struct sockaddr *)&id->addr, id->addrlen), 0);
    memcpy(h.secret, id->secret, sizeof h.secret);
    if (kind % 4 == 2 || kind % 4 == 0) h.secret[kind % SYMM_TCP_SECRET] ^= 1;
    symm_tcp_hello_put(&h, said);
    const size_t bytes = kind % 4 == 1 ? 20 : kind % 4 ? sizeof said : 0;
    if (kind % 4 == 3) memset(said, 0xff, sizeof said);
    if (bytes) T_EQ(send(fd, said, bytes, MSG_NOSIGNAL), (ssize_t)bytes);
    return fd;
}

static void besieged_rank(int rank, int n, void *arg) {
    job *j = arg;
    symm_boot *b;
    symm_tcp_id id;
    int fds[STRANGERS];
    const int ranks = n - !j->how;
    const int64_t before = SYMM_STAT_GET(intruders);
    begin(j, rank, n);
    T_OK(symm_tcp_id_parse(&j->id, &id));
    for (int i = 0; rank == 0 && i < STRANGERS; i++) fds[i] = knock_as(&id, i);
    kit_barrier(&j->k, n);
    kit_sleep(STAY_MS);
    if (rank < ranks) {
        symm_wait w = kit_wait("meeting", KIT_MS);
        const uint64_t since = symm_now_ns();
        T_OK(symm_boot_tcp_open(&j->id, rank, ranks, &w, &b));
        T_CHECKF(fk_ms_since(since) < 2000, "it took %d ms", (int)fk_ms_since(since));
        block_storm(b, 4);
        symm_boot_close(b);
    }
    kit_barrier(&j->k, n);
    if (rank == j->maker) T_CHECK(SYMM_STAT_GET(intruders) - before >= STRANGERS / 2);
    for (int i = 0; rank == 0 && i < STRANGERS; i++) close(fds[i]);
    end(j, n);
}

static void strangers_before_all_ranks(void) {
    T_FORK(4, besieged_rank, job_new(0, 0, KIT_MS));
    T_FORK(3, besieged_rank, job_new(0, 1, KIT_MS));
}

/* With communicators: they need their launcher until they are made, and no longer. */
static void outlives_rank(int rank, int n, void *arg) {
    fk *f = arg;
    const int maker = n - 1;
    symmComm_t comm = NULL;
    symmWindow_t win;
    void *buf;
    if (rank == maker) T_OK(symmGetUniqueId(&f->id));
    kit_barrier(&f->k, n);
    if (rank < maker) T_OK(symmCommInitRank(&comm, n - 1, f->id, rank));
    kit_barrier(&f->k, n);
    if (rank == maker) raise(SIGKILL);
    kit_sleep(100);
    T_OK(symmMemAlloc(&buf, 1 << 20));
    T_OK(symmWindowRegister(comm, buf, 1 << 20, &win, 0)); /* an exchange of all ranks */
    fk_works(comm, rank, n - 1);
    T_OK(symmWindowDeregister(comm, win));
    T_OK(symmCommDestroy(comm));
    T_OK(symmMemFree(buf));
}

static void communicators_outlive_their_launcher(void) {
    for (int ranks = 2; ranks <= 8; ranks += 3)
        T_FORK_DIES(ranks + 1, ranks, outlives_rank, fk_new(ranks, 0));
}

/* Two ids of one maker, at once. */
typedef struct {
    job *j;
    symmUniqueId_t other;
} two_ids;

static void two_rank(int rank, int n, void *arg) {
    two_ids *two = arg;
    job *j = two->j;
    symm_boot *b;
    symm_wait w = kit_wait("meeting", KIT_MS);
    if (rank == n - 1) T_OK(symm_boot_tcp_id(&two->other, "lo"));
    begin(j, rank, n);
    if (rank < n - 1) {
        const symmUniqueId_t *id = rank % 2 ? &two->other : &j->id;
        T_OK(symm_boot_tcp_open(id, rank / 2, (n - 1) / 2, &w, &b));
        block_storm(b, 8);
        symm_boot_close(b);
    }
    end(j, n);
}

static void two_ids_at_once(void) {
    two_ids *two = T_SHARED(sizeof *two);
    two->j = job_new(0, 0, 0);
    T_FORK(7, two_rank, two);
}

/* A rank of the maker's process that comes when the process serves already: it becomes the root
 * (how 0), unless that has begun to (2). A child of the maker (1) is let in as the others are. */
static void late_rank(int rank, int n, void *arg) {
    job *j = arg;
    symm_boot *b;
    symm_wait w = kit_wait("meeting", KIT_MS);
    begin(j, rank, n);
    pid_t child = 0;
    if (rank == n - 1) {
        if (j->how == 1) T_CHECK((child = fork()) >= 0);
        kit_sleep(j->how == 2 ? HELD_MS : LATE_MS);
    }
    if (!child) {
        T_OK(symm_boot_tcp_open(&j->id, rank, n, &w, &b));
        T_EQ(b->ops->meets_only, j->how > 0);
        block_storm(b, 8);
        symm_boot_close(b);
    }
    if (rank == n - 1 && j->how == 1 && !child) _exit(0);
    if (child) {
        int status;
        T_EQ(waitpid(child, &status, 0), child);
        T_EQ(status, 0);
    }
    end(j, n);
}

static void a_rank_of_the_maker_is_late(void) {
    for (int how = 0; how < 3; how++) T_FORK(3, late_rank, job_new(0, how, 0));
}

/* ---- who has nothing to serve ---------------------------------------------------------------- */

/* The thread is there while somebody may need it, and no longer. */
static void claimed_ids_cost_no_thread(void) {
    symmUniqueId_t a, b;
    symm_boot *boot;
    symm_wait w = kit_wait("meeting", KIT_MS);
    for (int turn = 0; turn < 50; turn++) {
        T_OK(symm_boot_tcp_id(&a, "lo"));
        T_OK(symm_boot_tcp_id(&b, "lo"));
        T_EQ(threads(), 1);
        T_OK(symm_boot_tcp_open(&b, 0, 1, &w, &boot));
        symm_boot_close(boot);
        T_EQ(threads(), 1);
        symm_boot_tcp_refuse(&a, 0, 2);
        T_EQ(threads(), 0);
        T_EQ(SYMM_STAT_GET(fds), 0);
    }
}

/* Ends as `how` says: 0 returns from main, 1 dies. */
static void leaves_an_id(symmUniqueId_t *id, int how) {
    pid_t child = fork();
    T_CHECK(child >= 0);
    if (!child) {
        if (symm_boot_tcp_id(id, "lo") || threads() != 1) _exit(1);
        if (how) raise(SIGKILL);
        exit(0);
    }
    int status;
    T_EQ(waitpid(child, &status, 0), child);
    T_EQ(status, how ? SIGKILL : 0);
}

static void an_id_that_is_never_used(void) {
    T_EXPECT_WARNINGS();
    symmUniqueId_t *id = T_SHARED(sizeof *id);
    for (int how = 0; how < 2; how++) {
        symm_boot *b = NULL;
        const uint64_t start = symm_now_ns();
        leaves_an_id(id, how);
        T_CHECK(symm_now_ns() - start < 4000000000ull); /* sanitizers take a second */
        symm_wait w = kit_wait("meeting", PATIENT_MS);
        T_ERR(symm_boot_tcp_open(id, 0, 2, &w, &b), symmRemoteError);
        T_MSG(symm_status_text(), "nobody listens");
        T_MSG(symm_status_text(), "who made the id (process");
    }
}

/* ---- ranks that fail ------------------------------------------------------------------------- */

enum { MISSING, NRANKS, TWICE, REFUSED, EXITS, DIES, DIES_LATE };

static void failing_rank(int rank, int n, void *arg) {
    job *j = arg;
    const int maker = n - 1, me = rank == j->victim;
    const uint64_t start = symm_now_ns();
    begin(j, rank, n);
    if (rank < maker && !(me && j->how == MISSING)) {
        kit_sleep(me ? LATE_MS : 0);
        opens(j, rank,
              j->how == NRANKS && me ? 7
              : j->how >= REFUSED    ? n
                                     : maker,
              j->how == TWICE && me ? 0 : rank, j->how == MISSING ? SHORT_MS : PATIENT_MS);
        T_CHECK(symm_now_ns() - start < 5000000000ull);
    }
    if (rank == maker && j->how >= REFUSED) kit_sleep(j->how == DIES_LATE ? HELD_MS : 2 * LATE_MS);
    if (rank == maker && j->how == REFUSED) symm_boot_tcp_refuse(&j->id, rank, n);
    if (rank == maker && j->how == EXITS) exit(0);
    if (rank == maker && j->how >= DIES) raise(SIGKILL);
    end(j, j->how >= EXITS ? n - 1 : n);
}

static job *run_failing(int how) {
    job *j = job_new(1, how, 0);
    T_FORK_DIES(4, how >= EXITS ? 3 : -1, failing_rank, j);
    return j;
}
static void fails(int how, const char *in, symmResult_t code, const char *says) {
    job_same(run_failing(how), 3, in, code, says);
}

static void ranks_that_differ_are_named(void) {
    T_EXPECT_WARNINGS();
    fails(MISSING, "x.x", symmTimeout, "rank 1 never came to 127.0.0.1");
    fails(NRANKS, "xxx", symmInvalidArgument, "says 3, rank 1 (process");
    fails(TWICE, "xxx", symmInvalidArgument, "rank 0 was given twice");
}

/* The maker is gone, or says that its rank will not come, while three ranks wait for a fourth. */
static void a_maker_that_goes(void) {
    T_EXPECT_WARNINGS();
    fails(REFUSED, "xxx", symmRemoteError, "which made the id, ends, or a rank in it will not");
    fails(EXITS, "xxx", symmRemoteError, "which made the id, ends, or a rank in it will not");
    fails(DIES_LATE, "xxx", symmRemoteError, "who made the id (process");
    const job *j = run_failing(DIES); /* who has told no rank that it was seen: they came again */
    for (int r = 0; r < 3; r++) {
        T_EQ(j->k.code[r], symmRemoteError);
        T_MSG(j->k.text[r], "nobody listens");
        T_MSG(j->k.text[r], "who made the id (process");
    }
}

/* In an exchange: the victim brings another size (0), leaves (1) or dies (2). */
static void exchanging_rank(int rank, int n, void *arg) {
    job *j = arg;
    const int me = rank == j->victim;
    symm_boot *b;
    symm_wait w = kit_wait("trading", PATIENT_MS);
    begin(j, rank, n);
    if (rank < n - 1) {
        T_OK(symm_boot_tcp_open(&j->id, rank, n - 1, &w, &b));
        T_OK(block_exchange(b, 1000, 0, &w));
        if (me && j->how == 2) raise(SIGKILL);
        if (!(me && j->how == 1))
            job_note(j, rank, block_exchange(b, me && j->how == 0 ? 200 : 100, 1, &w));
        symm_boot_close(b);
    }
    end(j, j->how == 2 ? n - 1 : n);
}

static void exchanges_that_fail(void) {
    T_EXPECT_WARNINGS();
    for (int how = 0; how < 3; how++) {
        job *j = job_new(1, how, 0);
        T_FORK_DIES(4, how == 2 ? 1 : -1, exchanging_rank, j);
        job_same(j, 3, how ? "x.x" : "xxx", how ? symmRemoteError : symmMismatch,
                 how ? "rank 1 (process" : "bytes where rank");
    }
}

/* No thread is to be had when the first ranks knock: it is tried again. */
static void starved_rank(int rank, int n, void *arg) {
    job *j = arg;
    begin(j, rank, n);
    if (rank == n - 1) T_EQ(symm_fail_arm("keep_thread:error:1"), 0);
    kit_barrier(&j->k, n);
    if (rank < n - 1) opens(j, rank, n - 1, rank, PATIENT_MS);
    T_EQ(j->k.code[rank], 0);
    end(j, n);
    T_EQ(symm_fail_arm(""), 0);
}

static void no_thread_for_a_meeting(void) {
    T_EXPECT_WARNINGS();
    T_FORK(3, starved_rank, job_new(0, 0, 0));
}

/* ---- ids that are dropped -------------------------------------------------------------------- */

static void ids_that_are_dropped(void) {
    T_EXPECT_WARNINGS();
    symmUniqueId_t a, b, none = {{0}};
    symm_boot *boot;
    symm_wait w = kit_wait("meeting", KIT_MS);
    T_OK(symm_boot_tcp_id(&a, "lo"));
    T_OK(symm_boot_tcp_id(&b, "lo"));
    for (int again = 0; again < 2; again++) T_OK(symmUniqueIdDrop(&a));
    T_EQ(threads(), 1);
    T_ERR(symm_boot_tcp_open(&a, 0, 1, &w, &boot), symmInvalidUsage);
    T_OK(symm_boot_tcp_open(&b, 0, 1, &w, &boot)); /* the other is as it was */
    T_OK(symmUniqueIdDrop(&b));
    symm_boot_close(boot);
    T_ERR(symmUniqueIdDrop(&none), symmInvalidArgument);
    T_ERR(symmUniqueIdDrop(NULL), symmInvalidArgument);
    T_ERR(symmUniqueIdAt(NULL, &none), symmInvalidArgument);
    T_ERR(symmUniqueIdAt("127.0.0.1:1", NULL), symmInvalidArgument);
    T_EQ(threads(), 0);
    T_EQ(SYMM_STAT_GET(fds), 0);
}

/* By a rank that was forked from the maker: the maker listens no more either. */
static void an_id_that_a_child_drops(void) {
    symmUniqueId_t id;
    int status;
    T_OK(symm_boot_tcp_id(&id, "lo"));
    const pid_t child = fork();
    T_CHECK(child >= 0);
    if (!child) _exit(symmUniqueIdDrop(&id) || SYMM_STAT_GET(fds));
    T_EQ(waitpid(child, &status, 0), child);
    T_EQ(status, 0);
    T_OK(symmUniqueIdDrop(&id));
    T_EQ(threads(), 0);
    T_EQ(SYMM_STAT_GET(fds), 0);
}

/* Ranks have begun to come: they meet. A process that did not make the id changes nothing. */
static void dropped_rank(int rank, int n, void *arg) {
    job *j = arg;
    symm_boot *b;
    symm_wait w = kit_wait("meeting", KIT_MS);
    begin(j, rank, n);
    if (rank == 1) T_OK(symmUniqueIdDrop(&j->id));
    if (rank == n - 1) usleep(LATE_MS * 1000); /* the meeting has begun */
    if (rank == n - 1) T_OK(symmUniqueIdDrop(&j->id));
    if (rank) kit_barrier(&j->k, n - 1);
    if (rank < n - 1) {
        T_OK(symm_boot_tcp_open(&j->id, rank, n - 1, &w, &b));
        symm_boot_close(b);
    }
    end(j, n);
}

static void a_meeting_whose_id_is_dropped(void) {
    T_FORK(3, dropped_rank, job_new(0, 0, KIT_MS));
}

/* ---- numbers out of range -------------------------------------------------------------------- */

/* One rank passes them. Whoever made the id, and whoever comes first, all others hear of them. */
typedef struct {
    const char *text, *own; /* of all others; its own */
    int rank, nranks;       /* that it passes; 99: what is right */
    int of;                 /* other functions: 1 symmCommInitRankMeet, 2 symmCommGrow */
} odd_numbers;
static const odd_numbers odd_rows[] = {
    {"passed rank=3 of nranks=3: out of range", "rank=3: must be 0 to 2", 3, 99, 0},
    {"passed rank=-1 of nranks=3: out of range", "rank=-1: must be 0 to 2", -1, 99, 0},
    {"passed rank=1 of nranks=0: out of range", "nranks=0: must be 1 to 72", 99, 0, 0},
    {"passed rank=1 of nranks=73: out of range", "nranks=73: must be 1 to 72", 99, 73, 0},
    {"passed rank=-9 of nranks=-7: out of range", "nranks=-7: must be 1 to 65536", -9, -7, 1},
    {"passed rank=3 of nranks=3: out of range", "rank=3: must be 1 to 2 where", 3, 99, 2}};

static symmResult_t settles(void *ctx, const symmMeeting_t *meeting, symmResult_t status,
                            symmVerdict_t *verdict) {
    (void)ctx, (void)meeting, (void)verdict;
    return status;
}

static symmResult_t call_oddly(const job *j, const odd_numbers *o, int rank) {
    const symmMeet_t meet = {settles, NULL, NULL};
    const int is = o->rank == 99 ? rank : o->rank, of = o->nranks == 99 ? 3 : o->nranks;
    symmComm_t comm = NULL;
    const symmResult_t r = o->of == 1   ? symmCommInitRankMeet(&comm, of, j->id, is, NULL, &meet)
                           : o->of == 2 ? symmCommGrow(NULL, of, &j->id, is, &comm, NULL)
                                        : symmCommInitRank(&comm, of, j->id, is);
    T_CHECK(!comm);
    return r;
}

/* Three ranks, and a process that is none. how: the row; 10 more: the odd rank comes last. */
static void odd_rank(int rank, int n, void *arg) {
    job *j = arg;
    const odd_numbers *o = &odd_rows[j->how % 10];
    const int odd = rank == j->victim;
    symmComm_t comm = NULL;
    job_id(j, rank, n);
    if (odd == (j->how >= 10)) kit_sleep(LATE_MS);
    const uint64_t since = symm_now_ns();
    symmResult_t r = symmSuccess;
    if (rank < 3) r = odd ? call_oddly(j, o, rank) : symmCommInitRank(&comm, 3, j->id, rank);
    const uint64_t ms = fk_ms_since(since);
    T_CHECKF(ms < SHORT_MS, "rank %d waited %llu ms", rank, (unsigned long long)ms);
    job_note(j, rank, r);
    end(j, n);
    T_EQ(j->k.code[rank], rank < 3 ? symmInvalidArgument : symmSuccess);
    if (rank < 3) T_MSG(j->k.text[rank], odd ? o->own : o->text);
}

static void numbers_out_of_range(void) {
    T_EXPECT_WARNINGS();
    setenv("SYMM_SETUP_TIMEOUT", "9000", 1);
    for (int maker = 0; maker < 4; maker++)
        for (int how = maker % 2; how < (int)(sizeof odd_rows / sizeof *odd_rows); how += 2) {
            job *j = job_new(1, how + (how / 2 + maker / 2) % 2 * 10, 0);
            j->maker = maker;
            T_FORK(4, odd_rank, j);
        }
}

/* Not its numbers: it has no thread, or no memory, to be made behind the call. */
static void short_rank(int rank, int n, void *arg) {
    static const char *const points[] = {"behind_thread:error:1", "behind_alloc:error:1",
                                         "comm_alloc:error:1"};
    job *j = arg;
    symmComm_t comm = NULL;
    symmConfig_t config = SYMM_CONFIG_INITIALIZER;
    config.blocking = rank != j->victim;
    job_id(j, rank, n);
    if (rank == j->victim) T_EQ(symm_fail_arm(points[j->how]), 0);
    const uint64_t since = symm_now_ns();
    job_note(j, rank, symmCommInitRankConfig(&comm, n, j->id, rank, &config));
    T_CHECKF(fk_ms_since(since) < SHORT_MS, "%d ms", (int)fk_ms_since(since));
    end(j, n);
    T_CHECK(!comm);
    if (rank == j->victim)
        T_CHECKF(strstr(j->k.text[rank], "communicator") || strstr(j->k.text[rank], "thread"), "%s",
                 j->k.text[rank]);
    else
        T_MSG(j->k.text[rank], "cannot come: it has an error");
    T_CHECK(j->k.code[rank] == symmRemoteError || rank == j->victim);
}

static void a_rank_that_cannot_begin(void) {
    T_EXPECT_WARNINGS();
    setenv("SYMM_SETUP_TIMEOUT", "9000", 1);
    for (int how = 0; how < 3; how++) T_FORK(3, short_rank, job_new(1, how, 0));
}

/* In a group the calls beside it are not made: they would wait for each other. */
static void numbers_out_of_range_in_a_group(void) {
    T_EXPECT_WARNINGS();
    symmUniqueId_t id, none = {{0}};
    symmComm_t comm[2] = {NULL, NULL};
    T_OK(symmGetUniqueId(&id));
    T_OK(symmGroupStart());
    T_OK(symmCommInitRank(&comm[0], 2, id, 0));
    T_ERR(symmCommInitRank(&comm[1], 2, id, 2), symmInvalidArgument);
    T_MSG(symm_status_text(), "rank=2: must be 0 to 1");
    T_ERR(symmGroupEnd(), symmInvalidArgument);
    T_MSG(symm_status_text(), "rank=2: must be 0 to 1");
    T_CHECK(!comm[0] && !comm[1]);
    T_ERR(symmCommInitRank(&comm[0], 2, none, 2), symmInvalidArgument); /* nobody to tell */
    T_MSG(symm_status_text(), "rank=2: must be 0 to 1");
    symm_tcp_keep_wait();
    T_ERR(symmCommInitRank(&comm[0], 2, id, 0), symmInvalidUsage); /* it is used up */
}

/* Nobody of the ranks is there: it does not wait for long. Who comes then hears it. */
static void numbers_that_nobody_hears(void) {
    T_EXPECT_WARNINGS();
    symmUniqueId_t id;
    symm_boot_tcp root = {.id = {.pid = 0}}, *t;
    symmComm_t comm = NULL;
    symm_wait w = kit_wait("meeting", KIT_MS);
    T_OK(symm_tcp_id_make("lo", &id, &root.listener));
    T_OK(symm_tcp_id_parse(&id, &root.id));
    const uint64_t since = symm_now_ns();
    T_ERR(symmCommInitRank(&comm, 2, id, 5), symmInvalidArgument);
    T_CHECKF(fk_ms_since(since) < 4000, "%d ms", (int)fk_ms_since(since));
    T_MSG(symm_status_text(), "rank=5: must be 0 to 1");
    /* A rank of this process asks for the listener at that moment: the error is told all the
     * same. */
    T_OK(symm_tcp_make(-1, 0, 1, &t));
    t->id = root.id;
    t->listener = root.listener;
    atomic_store(&t->standing, SYMM_TCP_YIELDS);
    T_ERR(symm_tcp_root_open(t, &w), symmInvalidArgument);
    T_MSG(symm_status_text(), "passed rank=5 of nranks=2: out of range");
    symm_tcp_end_listener(t);
    symm_tcp_free(t);
}

/* Who does not know the secret tells nothing. */
static void numbers_of_a_stranger(void) {
    T_EXPECT_WARNINGS();
    symm_tcp_hello h = {.version = SYMM_TCP_VERSION, .rank = 5, .nranks = 2, .refused = 1};
    uint8_t bytes[SYMM_TCP_HELLO], nothing;
    symmUniqueId_t id;
    symm_tcp_id parsed;
    symmComm_t comm;
    T_OK(symm_boot_tcp_id(&id, "lo"));
    T_OK(symm_tcp_id_parse(&id, &parsed));
    const int fd = socket(parsed.addr.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    T_EQ(connect(fd, (struct sockaddr *)&parsed.addr, parsed.addrlen), 0);
    symm_tcp_hello_put(&h, bytes);
    T_EQ(write(fd, bytes, sizeof bytes), sizeof bytes);
    T_EQ(read(fd, &nothing, 1), 0); /* turned away by the keeper's meeting */
    T_OK(symmCommInitRank(&comm, 1, id, 0));
    T_OK(symmCommDestroy(comm));
    close(fd);
}

T_MAIN(T(ranks_of_a_launcher), T(strangers_before_all_ranks),
       T(communicators_outlive_their_launcher), T(two_ids_at_once), T(a_rank_of_the_maker_is_late),
       T(claimed_ids_cost_no_thread), T(an_id_that_is_never_used), T(ranks_that_differ_are_named),
       T(a_maker_that_goes), T(exchanges_that_fail), T(no_thread_for_a_meeting),
       T(ids_that_are_dropped), T(an_id_that_a_child_drops), T(a_meeting_whose_id_is_dropped),
       T(numbers_out_of_range), T(numbers_out_of_range_in_a_group), T(numbers_that_nobody_hears),
       T(numbers_of_a_stranger), T(a_rank_that_cannot_begin))
