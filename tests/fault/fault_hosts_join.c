/* fault_hosts_join.c - ranks of several hosts of one NVLink fabric that cannot connect, on the fake
 * driver: one that dies before it has a connection to anybody, one that a firewall or a wrong
 * interface keeps apart. All hear of it, by name. No lock: what ranks share stands behind
 * barriers. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "hosts_kit.h"

#include <sched.h>
#include <sys/prctl.h>

#include "host/life/comm_create.h"
#include "transport/boot/boot.h"

/* ---- a rank that dies while the ranks connect ------------------------------------------------ */

enum { ID_OF_A_RANK, ID_OF_A_LAUNCHER }; /* who makes the id; the launcher is no rank */
enum { SOON = 2500 };

static void arm(int rank) {
    T_EQ(symm_fail_arm(rank ? "mesh_connect:kill:1" : "mesh_accept:kill:1"), 0);
}

static void expect_death(symmResult_t got, int victim, uint64_t since) {
    char who[32];
    snprintf(who, sizeof who, "rank %d ", victim);
    T_EQ(got, symmRemoteError);
    T_MSG(symmGetLastError(NULL), who);
    T_MSG(symmGetLastError(NULL), "died or left");
    T_CHECKF(fk_ms_since(since) < SOON, "it took %d ms: %s", (int)fk_ms_since(since),
             symmGetLastError(NULL));
}

static void launcher(fk *f, int n) {
    setenv("SYMM_SOCKET_IFNAME", "lo", 1);
    T_OK(symmGetUniqueId(&f->id));
    kit_barrier(&f->k, n);
    kit_barrier(&f->k, n - 1);
}
/* The last process is the launcher, if there is one. */
static void creates_rank(int rank, int n, void *arg) {
    hosts *h = arg;
    fk *f = &h->f;
    const int ranks = n - (f->how == ID_OF_A_LAUNCHER);
    symmComm_t comm = NULL;
    if (rank == ranks) {
        launcher(f, n);
        return;
    }
    const fk_gauges before = begin(h, rank, ranks);
    if (rank == 0 && f->how == ID_OF_A_RANK) T_OK(symmGetUniqueId(&f->id));
    kit_barrier(&f->k, n);
    if (rank == f->victim) arm(rank);
    const uint64_t since = symm_now_ns();
    expect_death(symmCommInitRank(&comm, ranks, f->id, rank), f->victim, since);
    T_CHECK(!comm);
    kit_barrier(&f->k, n - 1);
    FK_UNCHANGED(&before);
}
static void who_dies_before_it_connects_is_named(void) {
    T_EXPECT_WARNINGS();
    for (int victim = 0; victim < 3; victim++) {
        T_FORK_DIES(3, victim, creates_rank, hosts_new(1, 0, victim, ID_OF_A_RANK));
        T_FORK_DIES(4, victim, creates_rank, hosts_new(2, 0, victim, ID_OF_A_RANK));
    }
    T_FORK_DIES(4, 3, creates_rank, hosts_new(2, 0, 3, ID_OF_A_RANK));
}
static void so_it_is_where_a_launcher_made_the_id(void) {
    T_EXPECT_WARNINGS();
    for (int victim = 0; victim < 3; victim++)
        T_FORK_DIES(4, victim, creates_rank, hosts_new(1, 0, victim, ID_OF_A_LAUNCHER));
}

/* A child's ranks connect anew: the parent's connections show the death. */
static void splits_rank(int rank, int n, void *arg) {
    hosts *h = arg;
    fk *f = &h->f;
    symmComm_t child = NULL;
    begin(h, rank, n);
    symmComm_t comm = fk_open(f, rank, n);
    kit_barrier(&f->k, n);
    if (rank == f->victim) arm(rank);
    const uint64_t since = symm_now_ns();
    const symmResult_t got = f->how ? symmCommShrink(comm, NULL, 0, &child, NULL, 0)
                                    : symmCommSplit(comm, 0, rank, &child, NULL);
    expect_death(got, f->victim, since);
    T_CHECK(!child);
    kit_barrier(&f->k, n - 1);
    T_OK(symmCommAbort(comm));
}
static void who_dies_before_a_child_connects_is_named(void) {
    T_EXPECT_WARNINGS();
    for (int victim = 0; victim < 3; victim++)
        for (int shrinks = 0; shrinks < 2; shrinks++)
            T_FORK_DIES(3, victim, splits_rank, hosts_new(1, 0, victim, shrinks));
}

/* ---- a bootstrap that shows no loss, as that over MPI ---------------------------------------- */

enum { MEET_RANKS = 4, MEET_BYTES = 4096 };

/* In turn by two blocks: who writes into one has met all others at the other. */
typedef struct {
    hosts h;
    _Atomic int came[MEET_RANKS]; /* exchanges that a rank has begun */
    uint8_t block[2][MEET_RANKS][MEET_BYTES];
} meeting;

typedef struct {
    symm_boot base;
    meeting *at;
    int turn, last; /* exchanges; the one in which this rank dies, 0: none */
} meet;

static symmResult_t meet_all(symm_boot *base, const void *send, void *recv, size_t bytes,
                             const symm_wait *w) {
    meet *b = (meet *)base;
    const int turn = ++b->turn;
    T_CHECK(bytes <= MEET_BYTES);
    if (turn == b->last) kill(getpid(), SIGKILL);
    memcpy(b->at->block[turn % 2][base->rank], send, bytes);
    atomic_store(&b->at->came[base->rank], turn);
    for (int r = 0; r < base->nranks; r++) {
        while (atomic_load(&b->at->came[r]) < turn) {
            if (w->check) SYMM_TRY(w->check(w->arg));
            if (symm_now_ns() > w->deadline_ns) return SYMM_ERR(symmTimeout, "nobody came");
            usleep(500);
        }
        memcpy((uint8_t *)recv + (size_t)r * bytes, b->at->block[turn % 2][r], bytes);
    }
    return symmSuccess;
}

static void meet_close(symm_boot *base) {
    free(base);
}

static const symm_boot_ops meet_ops = {
    .name = "meet", .allgather = meet_all, .close = meet_close, .meets_only = 1};

static symmResult_t meet_and_create(meeting *at, int rank, int n, int last, symmComm_t *comm) {
    meet *b = calloc(1, sizeof *b);
    b->base = (symm_boot){.ops = &meet_ops, .rank = rank, .nranks = n};
    b->at = at;
    b->last = last;
    return symm_comm_create(&b->base, NULL, comm);
}

/* how: when the victim dies. Behind the last connection it has told nobody about an error. */
enum { AT_ONCE, LATER, CONNECTED };
enum { TURNS = 3 }; /* hello, greeting, how connecting went */
static const char *const when[] = {
    [AT_ONCE] = "mesh_connect:kill:1",
    [LATER] = "mesh_connect:delay=500:1,mesh_connect:kill:1",
    [CONNECTED] = "",
};

static void meets_rank(int rank, int n, void *arg) {
    meeting *at = arg;
    fk *f = &at->h.f;
    symmComm_t comm = NULL;
    const fk_gauges before = begin(&at->h, rank, n);
    setenv("SYMM_HOST_TIMEOUT", "2000", 1);
    if (rank == f->victim) T_EQ(symm_fail_arm(when[f->how]), 0);
    kit_barrier(&f->k, n);
    const uint64_t since = symm_now_ns();
    const symmResult_t got =
        meet_and_create(at, rank, n, rank == f->victim && f->how == CONNECTED ? TURNS : 0, &comm);
    char who[16];
    snprintf(who, sizeof who, "rank %d ", f->victim);
    T_EQ(got, symmRemoteError);
    T_MSG(symmGetLastError(NULL), who);
    T_MSG(symmGetLastError(NULL), "died or left");
    T_CHECKF(fk_ms_since(since) < SOON + 2000, "it took %d ms: %s", (int)fk_ms_since(since),
             symmGetLastError(NULL));
    T_CHECK(!comm);
    kit_barrier(&f->k, n - 1);
    FK_UNCHANGED(&before);
}
static void dies(int victim, int how) {
    meeting *at = T_SHARED(sizeof *at);
    at->h.per = 1, at->h.f.victim = victim, at->h.f.how = how;
    T_FORK_DIES(3, victim, meets_rank, at);
}
static void a_bootstrap_that_shows_nothing_hides_no_death(void) {
    T_EXPECT_WARNINGS();
    for (int victim = 0; victim < 3; victim++) {
        if (victim) dies(victim, AT_ONCE);
        if (victim) dies(victim, LATER);
        dies(victim, CONNECTED);
    }
}

/* ---- a rank that cannot be reached ----------------------------------------------------------- */

/* A network of this test's own: rank r listens at w0, w1, ... with 10.9.r+1.1. To that of rank 1
 * goes what `rule` says. */
static void make_network(const char *rule) {
    char command[1024];
    snprintf(command, sizeof command,
             "ip link set lo up && for i in 0 1 2 3; do ip link add w$i type veth peer name x$i && "
             "ip link set w$i up && ip link set x$i up || exit 1; done && for i in 1 2 3; do ip "
             "addr add 10.9.$i.1/24 dev w$((i - 1)) || exit 1; done && ip route add 10.9.2.1 dev "
             "w3 src 10.9.3.1 table 77 && ip neigh add 10.9.2.1 lladdr 02:00:00:00:00:09 dev w3 "
             "nud permanent && ip route add unreachable 10.9.2.1 table 78 && ip rule add pref 100 "
             "lookup local && ip rule del pref 0 && ip rule "
             "add pref 10 to 10.9.2.1 %s",
             rule);
    if (unshare(CLONE_NEWNET) != 0) T_SKIP("needs root, for a network of its own");
    if (system(command) != 0) T_SKIP("needs ip, virtual interfaces and rules");
}

/* Another host that has rank 1's address and no listener, at the other end of w3. */
static void add_stranger(void) {
    int ready[2];
    char command[256], byte = 0;
    T_EQ(pipe(ready), 0);
    const pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (unshare(CLONE_NEWNET) == 0 && write(ready[1], &byte, 1) == 1)
            for (;;) pause();
        _exit(1);
    }
    T_EQ(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    close(ready[1]);
    snprintf(command, sizeof command,
             "ip link set x3 netns %d && nsenter -t %d -n sh -c 'ip link set x3 address "
             "02:00:00:00:00:09 up && ip addr add 10.9.2.1/16 dev x3' && cd "
             "/proc/sys/net/ipv4/conf && echo 1 >w3/accept_local && echo 0 >w3/rp_filter && echo 0 "
             ">all/rp_filter",
             (int)pid, (int)pid);
    if (system(command) != 0) T_SKIP("needs nsenter, and settings of a network");
}

/* LATE: as NO_LISTENER, and rank 1 comes so late that rank 0 has given up meanwhile. */
enum { NO_WAY, NO_ANSWER, NO_LISTENER, LATE };
static const char *const apart_text[][2] = {
    [NO_WAY] = {"rank 2 cannot reach rank 1 at 10.9.2.1:",
                " from 10.9.3.1 (w2): No route to host (a firewall"},
    [NO_ANSWER] = {"rank 2: rank 1 did not come before the deadline",
                   "no answer from rank 1 at 10.9.2.1:"},
    [NO_LISTENER] = {"rank 2 cannot reach rank 1 at 10.9.2.1:",
                     " from 10.9.3.1 (w2): Connection refused (it died or left, or a firewall"},
    [LATE] = {"rank 2 cannot reach rank 1 at 10.9.2.1:",
              " from 10.9.3.1 (w2): Connection refused (it died or left, or a firewall"},
};

static void apart_rank(int rank, int n, void *arg) {
    hosts *h = arg;
    fk *f = &h->f;
    char name[8];
    symmComm_t comm = NULL;
    const symmResult_t code = f->how == NO_ANSWER ? symmTimeout : symmSystemError;
    if (f->how == NO_ANSWER) setenv("SYMM_SETUP_TIMEOUT", "2500", 1);
    const fk_gauges before = begin(h, rank, n);
    snprintf(name, sizeof name, "w%d", rank);
    setenv("SYMM_SOCKET_IFNAME", name, 1);
    fk_id(f, rank, n);
    if (f->how == LATE && rank == 1) T_EQ(symm_fail_arm("mesh_connect:delay=400:1"), 0);
    const uint64_t since = symm_now_ns();
    fk_note(f, rank, symmCommInitRank(&comm, n, f->id, rank));
    T_CHECKF(fk_ms_since(since) < SOON + (f->how == NO_ANSWER ? 2500 : 0), "it took %d ms",
             (int)fk_ms_since(since));
    kit_barrier(&f->k, n);
    for (int i = 0; i < 2; i++) fk_same(f, n, -1, code, apart_text[f->how][i]);
    if (f->how == NO_ANSWER) fk_same(f, n, -1, code, "asked from 10.9.3.1 (w2)");
    T_CHECK(!comm);
    FK_UNCHANGED(&before);
}
static void who_cannot_be_reached_is_named_on_all_ranks(void) {
    T_EXPECT_WARNINGS();
    make_network("lookup 78");
    T_FORK(3, apart_rank, hosts_new(1, 0, -1, NO_WAY));
}
static void who_is_refused_is_named_on_all_ranks(void) {
    T_EXPECT_WARNINGS();
    make_network("lookup 77");
    add_stranger();
    T_FORK(3, apart_rank, hosts_new(1, 0, -1, NO_LISTENER));
    T_FORK(3, apart_rank, hosts_new(1, 0, -1, LATE));
}
static void who_does_not_answer_is_named_on_all_ranks(void) {
    T_EXPECT_WARNINGS();
    make_network("lookup 77");
    T_FORK(3, apart_rank, hosts_new(1, 0, -1, NO_ANSWER));
}

/* It cannot tell rank 0 either why it gives up: the bootstrap shows that it does. */
static void silent_rank(int rank, int n, void *arg) {
    hosts *h = arg;
    fk *f = &h->f;
    symmComm_t comm = NULL;
    const fk_gauges before = begin(h, rank, n);
    fk_id(f, rank, n);
    if (rank == 1) T_EQ(symm_fail_arm("mesh_dial:error"), 0);
    const uint64_t since = symm_now_ns();
    fk_note(f, rank, symmCommInitRank(&comm, n, f->id, rank));
    T_CHECKF(fk_ms_since(since) < SOON, "it took %d ms", (int)fk_ms_since(since));
    kit_barrier(&f->k, n);
    fk_same(f, n, -1, symmSystemError, "rank 1: rank 1 cannot reach rank 0 at 127.0.0.1:");
    T_CHECK(!comm);
    FK_UNCHANGED(&before);
}
static void who_reaches_nobody_is_heard_by_the_bootstrap(void) {
    T_EXPECT_WARNINGS();
    T_FORK(2, silent_rank, hosts_new(1, 0, -1, 0));
}

T_MAIN(T_TIMEOUT(who_dies_before_it_connects_is_named, 90),
       T_TIMEOUT(so_it_is_where_a_launcher_made_the_id, 60),
       T_TIMEOUT(who_dies_before_a_child_connects_is_named, 60),
       T_TIMEOUT(a_bootstrap_that_shows_nothing_hides_no_death, 90),
       T_TIMEOUT(who_cannot_be_reached_is_named_on_all_ranks, 60),
       T_TIMEOUT(who_is_refused_is_named_on_all_ranks, 60),
       T_TIMEOUT(who_does_not_answer_is_named_on_all_ranks, 60),
       T_TIMEOUT(who_reaches_nobody_is_heard_by_the_bootstrap, 60))
