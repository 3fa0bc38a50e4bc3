/* fault_where.c - ranks that cannot find each other's sockets: on another host, in another network
 * namespace, of another user. All are told at once what differs, and the same on every rank. Forked
 * ranks that meet through memory they share, as a launcher's exchange would let them; no lock. */
#define _GNU_SOURCE
#include <sched.h>
#include <sys/prctl.h>

#include "transport/boot/boot_tcp.h"
#include "fault_kit.h"

extern int symm_test_where[2]; /* where.c: host, user */

enum { N = 3, BLOCK = 8192, SOON_MS = 5000 };
enum { HOST, USER, REAL_USER, NETWORK };

typedef struct {
    fk f;
    int can; /* the victim could leave its namespace or user */
    char block[N][BLOCK];
} apart;

typedef struct {
    apart *a;
    int rank;
} caller;

static int gather(void *ctx, const void *send, void *recv, size_t bytes) {
    caller *c = ctx;
    T_CHECK(bytes <= BLOCK);
    memcpy(c->a->block[c->rank], send, bytes);
    kit_barrier(&c->a->f.k, N);
    for (int r = 0; r < N; r++) memcpy((char *)recv + (size_t)r * bytes, c->a->block[r], bytes);
    kit_barrier(&c->a->f.k, N);
    return 0;
}

static int meet(void *ctx) {
    kit_barrier(&((caller *)ctx)->a->f.k, N);
    return 0;
}

static int stand_apart(int how) {
    switch (how) {
    case REAL_USER: return seteuid(65534);
    case NETWORK: return unshare(CLONE_NEWNET) ? unshare(CLONE_NEWUSER | CLONE_NEWNET) : 0;
    default: symm_test_where[how] = 1; return 0;
    }
}

/* A user namespace of its own comes with that of the network where this user may not make one: then
 * uids differ as well. */
static void apart_rank(int rank, int n, void *arg) {
    static const char *const says[] = {"symmCommInitMPI makes a communicator over several hosts",
                                       "are processes of one user", "runs as user 65534",
                                       "another network namespace than rank 0 (net:["};
    apart *a = arg;
    caller me = {a, rank};
    symmBoot_t boot = {gather, meet, &me};
    symmComm_t comm = NULL;
    char host[64] = "", who[16];
    setenv("SYMM_SETUP_TIMEOUT", "8000", 1);
    if (rank == a->f.victim) a->can = stand_apart(a->f.how) == 0;
    kit_barrier(&a->f.k, n);
    if (!a->can) return;
    const uint64_t start = symm_now_ns();
    fk_note(&a->f, rank, symmCommInitBoot(&comm, n, rank, &boot, NULL));
    T_CHECKF(fk_ms_since(start) < SOON_MS, "told after %d ms", (int)fk_ms_since(start));
    T_CHECK(comm == NULL);
    kit_barrier(&a->f.k, n);
    fk_same(&a->f, n, -1, symmNotSupported, says[a->f.how]);
    snprintf(who, sizeof who, "rank %d ", a->f.victim ? a->f.victim : 1);
    fk_same(&a->f, n, -1, symmNotSupported, who);
    T_EQ(gethostname(host, sizeof host - 1), 0);
    if (a->f.how == HOST || a->f.how == NETWORK) T_MSG(a->f.k.text[rank], host);
    if (a->f.how == REAL_USER && rank == a->f.victim) { /* or leaks could not be looked for */
        T_EQ(seteuid(0), 0);
        T_EQ(prctl(PR_SET_DUMPABLE, 1), 0);
    }
}

static int run_apart(int how, int victim) {
    apart *a = T_SHARED(sizeof *a);
    a->f.how = how;
    a->f.victim = victim;
    T_FORK(N, apart_rank, a);
    return a->can;
}

static void two_hosts_are_named(void) {
    T_EXPECT_WARNINGS();
    for (int victim = 0; victim < N; victim++) T_CHECK(run_apart(HOST, victim));
}

static void two_users_are_named(void) {
    T_EXPECT_WARNINGS();
    T_CHECK(run_apart(USER, 1));
    if (geteuid() == 0) T_CHECK(run_apart(REAL_USER, 2));
}

static void two_networks_are_named(void) {
    T_EXPECT_WARNINGS();
    if (!run_apart(NETWORK, 1)) T_SKIP("needs network namespaces");
    T_CHECK(run_apart(NETWORK, 0));
}

/* ---- over TCP: an address that the other cannot reach ---- */

static void unreached_rank(int rank, int n, void *arg) {
    apart *a = arg;
    symmComm_t comm;
    setenv("SYMM_SETUP_TIMEOUT", "2500", 1);
    setenv("SYMM_SOCKET_IFNAME", "lo", 1);
    fk_id(&a->f, rank, n);
    if (rank == 1) a->can = stand_apart(NETWORK) == 0;
    kit_barrier(&a->f.k, n);
    if (!a->can) return;
    T_CHECK(symmCommInitRank(&comm, n, a->f.id, rank) != symmSuccess);
    T_MSG(symmGetLastError(NULL), rank ? "the id (process" : "rank 1 never came to 127.0.0.1:");
    T_MSG(symmGetLastError(NULL), "processes of the id's host and network namespace reach");
}

static void a_loopback_address_is_told(void) {
    apart *a = T_SHARED(sizeof *a);
    T_EXPECT_WARNINGS();
    T_FORK(2, unreached_rank, a);
    if (!a->can) T_SKIP("needs network namespaces");
}

/* ---- who has knocked, where a rank did not come ---- */

static void turned_away_rank(int rank, int n, void *arg) {
    kit *k = arg;
    symm_mesh *m = kit_listen(k, rank, n);
    symm_wait w = kit_wait("meeting", rank ? KIT_MS : 300);
    char want[64];
    k->code[rank] = (int)getpid();
    kit_barrier(k, n);
    if (rank) { /* it shows what it should not, as one from another user namespace would */
        const uint64_t nonce = k->addrs[0].nonce;
        k->addrs[0].nonce++;
        T_CHECK(symm_mesh_connect(m, k->addrs, NULL, &w) != symmSuccess);
        k->addrs[0].nonce = nonce;
    } else {
        T_ERR(symm_mesh_connect(m, k->addrs, NULL, &w), symmTimeout);
        snprintf(want, sizeof want, "turned away a connection of pid %d uid %d: wrong nonce",
                 k->code[1], (int)geteuid());
        T_MSG(symm_status_text(), "rank 1 did not come before the deadline (meeting)");
        T_MSG(symm_status_text(), want);
    }
    symm_mesh_close(m);
}

static void who_was_turned_away_is_told(void) {
    T_EXPECT_WARNINGS();
    T_FORK(2, turned_away_rank, kit_new(0, 0));
}

/* ---- which interface the id's listener takes ---- */

static const char *listens_at(void) {
    static char text[64];
    symmUniqueId_t id;
    symm_tcp_id parsed;
    T_OK(symmGetUniqueId(&id));
    T_OK(symm_tcp_id_parse(&id, &parsed));
    symm_boot_tcp_refuse(&id, 0, 1);
    return symm_tcp_id_text(&parsed, text, sizeof text);
}

static void interfaces_are_named_or_chosen(void) {
    symmUniqueId_t id;
    T_EXPECT_WARNINGS();
    setenv("SYMM_SOCKET_IFNAME", "lo", 1);
    T_MSG(listens_at(), "127.0.0.1:");
    setenv("SYMM_SOCKET_IFNAME", "nosuch0", 1);
    T_ERR(symmGetUniqueId(&id), symmInvalidArgument);
    T_MSG(symmGetLastError(NULL), "SYMM_SOCKET_IFNAME=nosuch0 names no interface that is up");
    unsetenv("SYMM_SOCKET_IFNAME");
    if (stand_apart(NETWORK)) T_SKIP("needs network namespaces");
    T_MSG(listens_at(), "127.0.0.1:"); /* there is no other, and that one is down */
    T_ERR((setenv("SYMM_SOCKET_IFNAME", "lo", 1), symmGetUniqueId(&id)), symmInvalidArgument);
}

T_MAIN(T(interfaces_are_named_or_chosen), T(a_loopback_address_is_told),
       T(who_was_turned_away_is_told), T(two_hosts_are_named), T(two_users_are_named),
       T(two_networks_are_named))
