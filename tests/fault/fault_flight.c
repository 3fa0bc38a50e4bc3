/* fault_flight.c - descriptors in flight, sent and not yet taken: the kernel lets an ordinary user
 * have as many, in all processes together, as the sender may open. Ranks that hand their memory to
 * each other must not meet that limit by themselves. Each rank is a forked process that gives up
 * root; no lock. T_FULL=1 runs as many ranks as meet a limit of 1024. */
#define _GNU_SOURCE 1
#include <dirent.h>
#include <errno.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "heap_kit.h"
#include "symm_synced.h"

enum { NOBODY = 65534, SEGMENTS = 300, STEP = 2 << 20 };

/* ---- an ordinary user ---- */

/* Root that cannot become another user may be limited all the same, in a user namespace. */
static int become_ordinary(rlim_t limit) {
    const struct rlimit l = {limit, limit};
    if (geteuid() == 0 && setuid(NOBODY) == 0)
        prctl(PR_SET_DUMPABLE, 1); /* so that /proc/self/fd may still be listed */
    return setrlimit(RLIMIT_NOFILE, &l);
}

/* Sends copies of one descriptor, a message each, until the kernel refuses. */
static int is_limited(int most) {
    int s[2], sent = 0, ok = 1;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, s)) return 0;
    for (; ok && sent < most; sent++) {
        _Alignas(struct cmsghdr) char control[CMSG_SPACE(50 * sizeof(int))] = {0};
        struct iovec iov = {"", 1};
        struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control};
        struct cmsghdr *c;
        m.msg_controllen = sizeof control;
        c = CMSG_FIRSTHDR(&m);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(50 * sizeof(int));
        for (int i = 0; i < 50; i++)
            memcpy(CMSG_DATA(c) + (size_t)i * sizeof(int), &s[0], sizeof(int));
        ok = sendmsg(s[1], &m, MSG_NOSIGNAL) == 1;
    }
    return !ok && errno == ETOOMANYREFS;
}

/* What the tests are about happens to nobody else. Asked in a process of its own. */
static void needs_an_ordinary_user(void) {
    int status = -1;
    pid_t pid = fork();
    if (pid == 0) _exit(become_ordinary(64) ? 1 : is_limited(8) ? 0 : 2);
    T_EQ(waitpid(pid, &status, 0), pid);
    T_CHECK(WIFEXITED(status) && WEXITSTATUS(status) != 1);
    if (WEXITSTATUS(status))
        T_SKIP("neither this user nor one it can become is limited in descriptors in flight");
}

typedef struct {
    hk_call call;
    rlim_t limit;
} ordinary;

static void ordinary_rank(int rank, int n, void *arg) {
    ordinary *o = arg;
    T_EQ(become_ordinary(o->limit), 0);
    hk_process(rank, n, &o->call);
}

static void run(int n, rlim_t limit, void (*fn)(void *)) {
    ordinary o = {{fk_new(-1, 0), fn, NULL, NULL}, limit};
    needs_an_ordinary_user();
    T_FORK(n, ordinary_rank, &o);
}

static int open_descriptors(void) {
    int n = 0;
    DIR *d = opendir("/proc/self/fd");
    T_CHECK(d != NULL);
    while (readdir(d)) n++;
    closedir(d);
    return n;
}

/* ---- many segments ---- */

/* A block of that many segments of 2 MB. */
static char *block_of(symmHeap_t heap, int segments) {
    for (int i = 0; i <= segments; i++) T_OK(symmHeapGrow(heap, STEP, 0));
    return hk_sym(heap, (size_t)segments * STEP);
}

static void mark(char *p, int segments, int rank) {
    for (int i = 0; i < segments; i++) p[(size_t)i * STEP] = (char)(i + rank);
}

static void look(symmWindow_t win, const int *counts, int n) {
    void *peer;
    for (int r = 0; r < n; r++)
        for (int i = 0; i < counts[r]; i++) {
            T_OK(symmWindowPeerPtr(win, (size_t)i * STEP, r, &peer));
            T_EQ(*(char *)peer, (char)(i + r));
        }
}

static void register_and_look(hk *k, char *p, const int *counts) {
    symmWindow_t win;
    const int mine = counts[k->rank];
    T_OK(symmWindowRegister(k->comm, mine ? p : NULL, (size_t)mine * STEP, &win, 0));
    T_OK(symmBarrier(k->comm, NULL));
    look(win, counts, k->n);
    T_OK(symmBarrier(k->comm, NULL));
    T_OK(symmWindowDeregister(k->comm, win));
    fk_collect(k->comm);
}

/* What cannot be mapped in the middle is everybody's error, and leaves the messages in step. */
static void fail_in_the_middle(hk *k, char *p) {
    symmWindow_t win;
    const int before = open_descriptors();
    if (k->rank == 1) T_EQ(symm_fail_arm("vmm_import:error:150"), 0);
    T_CHECK(symmWindowRegister(k->comm, p, (size_t)SEGMENTS * STEP, &win, 0) != symmSuccess);
    T_MSG(symmGetLastError(k->comm), "rank 1");
    if (k->rank == 1) T_CHECK(symm_fail_hits(symm_fp_vmm_import) >= 150);
    T_EQ(symm_fail_arm(""), 0);
    T_EQ(open_descriptors(), before);
}

static void segments(void *arg) {
    static const int all[2] = {SEGMENTS, SEGMENTS}, one[2] = {0, SEGMENTS};
    hk *k = arg;
    symmWindow_t win;
    symmHeap_t heap = hk_heap(k, 2ull << 30, 0, 0);
    char *p = block_of(heap, SEGMENTS);
    mark(p, SEGMENTS, k->rank);
    fail_in_the_middle(k, p);
    register_and_look(k, p, all);
    register_and_look(k, p, one);
    T_OK(symmWindowRegister(k->comm, p, STEP, &win, 0));
    T_OK(symmWindowGrow(win, (size_t)SEGMENTS * STEP));
    look(win, all, k->n);
    T_OK(symmBarrier(k->comm, NULL));
    T_OK(symmWindowDeregister(k->comm, win));
    T_OK(symmHeapFree(heap, p));
    T_OK(symmHeapDestroy(heap));
}

static void a_window_of_300_segments_under_256_descriptors(void) {
    T_EXPECT_WARNINGS();
    run(2, 256, segments);
}

/* Ranks that bring many, few and none: who has nothing left keeps pace with the others. */
static void uneven(void *arg) {
    static const int counts[4] = {150, 0, 3, 70};
    hk *k = arg;
    symmHeap_t heap = hk_heap(k, 2ull << 30, 0, 0);
    char *p = block_of(heap, counts[0]);
    mark(p, counts[k->rank], k->rank);
    for (int i = 0; i < 3; i++) register_and_look(k, p, counts);
    T_OK(symmHeapFree(heap, p));
    T_OK(symmHeapDestroy(heap));
}

static void ranks_that_bring_many_few_and_none(void) {
    run(4, 128, uneven);
}

/* ---- many ranks ---- */

/* All that hands descriptors on, with one segment of each rank. */
static void all_kinds(void *arg) {
    hk *k = arg;
    symmComm_t half = NULL, rest = NULL;
    symmSynced_t synced = NULL;
    const int last = k->n - 1;
    symmHeap_t heap = hk_heap(k, 64 * HK_MB, 4 * HK_MB, 0);
    T_OK(symmHeapGrow(heap, 4 * HK_MB, 0));
    T_OK(symmSyncedCreate(heap, 1000, SYMM_ALLOC_SYM, &synced));
    T_OK(symmSyncedDestroy(synced));
    fk_registers(k->comm, k->rank, k->n);
    T_OK(symmCommSplit(k->comm, 0, -k->rank, &half, NULL));
    T_OK(symmBarrier(half, NULL));
    T_OK(symmCommDestroy(half));
    if (k->rank != last) {
        T_OK(symmCommShrink(k->comm, &last, 1, &rest, NULL, 0));
        T_OK(symmBarrier(rest, NULL));
        T_OK(symmCommDestroy(rest));
    }
    hk_barrier(k);
    T_OK(symmHeapDestroy(heap));
}

static void many_ranks(void) {
    const int many = getenv("T_FULL") != NULL;
    run(many ? 64 : 24, many ? 1024 : 128, all_kinds);
}

/* ---- many communicators ---- */

enum { PAIRS = 24, OF_PAIR = 8 };

typedef struct {
    fk *pairs[PAIRS];
    kit *all;
} couples;

/* All first ranks have sent, and so many descriptors are in flight that no second rank may send. */
static void late_second(void *arg) {
    hk *k = arg;
    const couples *c = k->arg;
    symmWindow_t win;
    symmHeap_t heap = hk_heap(k, 64 * HK_MB, 0, 0);
    char *p = block_of(heap, OF_PAIR);
    if (k->rank == 1) T_EQ(symm_fail_arm("vmm_map:delay=500:1"), 0);
    kit_barrier(c->all, 2 * PAIRS);
    T_OK(symmWindowRegister(k->comm, p, (size_t)OF_PAIR * STEP, &win, 0));
    T_EQ(symm_fail_arm(""), 0);
    T_OK(symmBarrier(k->comm, NULL));
    T_OK(symmWindowDeregister(k->comm, win));
    T_OK(symmHeapFree(heap, p));
    T_OK(symmHeapDestroy(heap));
}

static void rank_of_a_couple(int rank, int n, void *arg) {
    couples *c = arg;
    hk_call call = {c->pairs[rank / 2], late_second, c, NULL};
    (void)n;
    T_EQ(become_ordinary(64), 0);
    hk_process(rank % 2, 2, &call);
}

static void many_communicators_at_once(void) {
    couples c;
    needs_an_ordinary_user();
    c.all = kit_new(0, 0);
    for (int i = 0; i < PAIRS; i++) c.pairs[i] = fk_new(-1, 0);
    T_FORK(2 * PAIRS, rank_of_a_couple, &c);
}

/* ---- a death ---- */

enum { LIVING = 8, DYING = 2, OF_DYING = 24, IMPORTS = (LIVING - 1) * OF_DYING, MOMENTS = 12 };

/* Nobody is left waiting, everybody names the dead one, and not a rank that left because of it. */
static void death(void *arg) {
    hk *k = arg;
    char point[64];
    symmWindow_t win = NULL;
    symmHeap_t heap = hk_heap(k, 1ull << 30, 0, 0);
    char *p = block_of(heap, OF_DYING);
    const int before = open_descriptors();
    snprintf(point, sizeof point, "vmm_import:kill:%d", k->f->how);
    hk_barrier(k);
    if (k->rank == DYING) T_EQ(symm_fail_arm(point), 0);
    T_ERR(symmWindowRegister(k->comm, p, (size_t)OF_DYING * STEP, &win, 0), symmRemoteError);
    T_MSG(symmGetLastError(NULL), "rank 2 died");
    T_MSG(symmGetLastError(k->comm), "rank 2 died");
    T_EQ(open_descriptors(), before); /* those in its messages have gone as well */
    T_CHECK(win == NULL);
    symmHeapDestroy(heap); /* says that its communicator is broken */
}

static void a_rank_that_dies_in_the_middle(void) {
    T_EXPECT_WARNINGS();
    needs_an_ordinary_user();
    for (int i = 0; i < MOMENTS; i++) {
        ordinary o = {{fk_new(DYING, 3 + i * (IMPORTS - 5) / (MOMENTS - 1)), death, NULL, NULL},
                      128};
        T_FORK_DIES(LIVING, DYING, ordinary_rank, &o);
    }
}

T_MAIN(T(a_window_of_300_segments_under_256_descriptors), T(ranks_that_bring_many_few_and_none),
       T(many_ranks), T(many_communicators_at_once), T(a_rank_that_dies_in_the_middle))
