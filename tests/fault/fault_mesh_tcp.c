/* fault_mesh_tcp.c - what goes wrong on the control mesh between hosts: strangers at its port,
 * ranks that cannot be reached, junk and half messages of a peer, every failpoint on the way. What
 * all kinds meet is in fault_mesh.c. Ranks and strangers are forked; no lock. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "fault_kit.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include "transport/boot/tcp_socket.h"
#include "transport/mesh/wire.h"

enum { SILENT = 60, MOST_HITS = 12 };

static void soon(uint64_t start, int ms) {
    T_CHECKF(symm_now_ns() - start < (uint64_t)ms * 1000000, "it took %llu ms",
             (unsigned long long)fk_ms_since(start));
}

/* ---- strangers ---- */

typedef struct {
    void (*attack)(kit *k); /* by the last rank, which is no rank of the mesh, while rank 1 keeps
                               rank 0 waiting */
    int at_least;           /* connections that rank 0 must have turned away */
} scene;

static scene sc; /* set before the fork */

static int knock(const symm_mesh_addr *a) {
    struct sockaddr_storage addr;
    socklen_t len;
    T_CHECK(!symm_tcp_address_get((const uint8_t *)a->name, &addr, &len));
    int s = socket(addr.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    T_CHECK(s >= 0);
    T_EQ(connect(s, (struct sockaddr *)&addr, len), 0);
    return s;
}

static void say(int s, const void *bytes, size_t n) {
    ssize_t sent = send(s, bytes, n, MSG_NOSIGNAL);
    T_CHECK(sent == (ssize_t)n || errno == EPIPE || errno == ECONNRESET);
}

static void greet(int s, int type, int from, int to, uint64_t nonce, size_t bytes) {
    uint8_t raw[SYMM_WIRE_HEADER + SYMM_MESH_MAX] = {0};
    symm_wire_msg head = {.type = (uint16_t)type,
                          .bytes = (uint32_t)bytes,
                          .from = (uint32_t)from,
                          .to = (uint32_t)to,
                          .nonce = nonce};
    symm_wire_put(&head, raw);
    say(s, raw, SYMM_WIRE_HEADER + bytes);
}

/* The connection must end without a single byte for the stranger. */
static void expect_nothing(int s) {
    char buf[256];
    struct pollfd p = {.fd = s, .events = POLLIN};
    T_EQ(poll(&p, 1, 5000), 1);
    ssize_t n = recv(s, buf, sizeof buf, 0);
    T_CHECK(n == 0 || (n < 0 && errno == ECONNRESET));
    close(s);
}

static void send_garbage(kit *k) {
    static const size_t sizes[] = {32, 33, 4096, 4128, 4129, 100000};
    static uint8_t junk[100000];
    for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        for (size_t b = 0; b < sizes[i]; b++) junk[b] = (uint8_t)(b * 131 + i);
        int s = knock(&k->addrs[0]);
        say(s, junk, sizes[i]);
        expect_nothing(s);
    }
}

static void send_wrong_greetings(kit *k) {
    const uint64_t right = k->addrs[0].nonce;
    for (int i = 0; i < 8; i++) {
        static const int from[] = {0, 2, 1 << 30, -1}; /* nobody that rank 0 awaits */
        int s = knock(&k->addrs[0]);
        if (i < 4) greet(s, SYMM_MSG_HELLO, from[i], 0, right, 0);
        if (i == 4) greet(s, SYMM_MSG_HELLO, 1, 0, right ^ 1, 0);
        if (i == 5) greet(s, SYMM_MSG_HELLO, 1, 1, right, 0);
        if (i == 6) greet(s, SYMM_MSG_HELLO, 1, 0, right, 8);
        if (i == 7) greet(s, SYMM_MSG_VOTE, 1, 0, right, 256);
        expect_nothing(s);
    }
}

/* Some say nothing, some a part of a greeting. The oldest are turned away. */
static void hold_connections(kit *k) {
    int held[SILENT];
    for (int i = 0; i < SILENT; i++) {
        held[i] = knock(&k->addrs[0]);
        if (i % 2) say(held[i], "symm\1", (size_t)(1 + i % 5));
    }
    atomic_store(&k->flag, 1); /* rank 1 may come: they stay open meanwhile */
    kit_await_flag(k, 2);
    for (int i = 0; i < SILENT; i++) close(held[i]);
}

static void come_and_go(kit *k) {
    for (int i = 0; i < 300; i++) close(knock(&k->addrs[0]));
}

static void play_rank(int rank, int n, void *arg) {
    kit *k = arg;
    int ranks = n - 1;
    if (rank == ranks) {
        kit_barrier(k, n);
        sc.attack(k);
        atomic_store(&k->flag, atomic_load(&k->flag) ? 3 : 2); /* rank 1 may come */
        _exit(0);
    }
    symm_mesh *m;
    struct rusage before_cpu, after_cpu;
    symm_log_rank(rank);
    T_OK(symm_mesh_listen(rank, ranks, SYMM_MESH_TCP, "lo", &k->addrs[rank], &m));
    int64_t before = SYMM_STAT_GET(intruders);
    kit_barrier(k, n);
    if (rank == 1) kit_await_flag(k, 1);
    if (rank == 1 && k->flag == 1) kit_sleep(300); /* silence costs rank 0 nothing meanwhile */
    uint64_t start = symm_now_ns();
    symm_wait w = kit_wait("connecting", KIT_MS);
    getrusage(RUSAGE_SELF, &before_cpu);
    T_OK(symm_mesh_connect(m, k->addrs, NULL, &w));
    getrusage(RUSAGE_SELF, &after_cpu);
    if (k->flag == 1)
        T_CHECK(after_cpu.ru_utime.tv_sec == before_cpu.ru_utime.tv_sec &&
                after_cpu.ru_utime.tv_usec - before_cpu.ru_utime.tv_usec < 150000);
    if (rank == 1) soon(start, 2000);
    T_OK(symm_agree(m, symmSuccess, &w, NULL));
    if (rank == 0) T_CHECK(SYMM_STAT_GET(intruders) - before >= sc.at_least);
    T_EQ(SYMM_STAT_GET(fds), ranks - 1); /* one connection each, nothing of the stranger's */
    if (rank == 1 && atomic_load(&k->flag) == 1) atomic_store(&k->flag, 2);
    symm_mesh_close(m);
}

static void play(void (*attack)(kit *), int at_least) {
    sc = (scene){attack, at_least};
    T_FORK_DIES(3, 2, play_rank, kit_new(SYMM_MESH_TCP, 0));
}

static void garbage_is_turned_away(void) {
    play(send_garbage, 6);
}
static void wrong_greetings_are_turned_away(void) {
    play(send_wrong_greetings, 8);
}
static void silence_holds_up_nobody(void) {
    play(hold_connections, SILENT - 2 - 16);
}
static void coming_and_going_harms_nothing(void) {
    play(come_and_go, 100);
}

/* The first to show the nonce is the rank; it cannot come twice. */
static void twice_rank(int rank, int n, void *arg) {
    kit *k = arg;
    symm_mesh *m = kit_listen(k, rank, n);
    symm_wait w = kit_wait("connecting", 500);
    char hello[64];
    if (rank == 0) {
        int64_t before = SYMM_STAT_GET(intruders);
        T_ERR(symm_mesh_connect(m, k->addrs, NULL, &w), symmTimeout); /* rank 2 does not come */
        T_MSG(symm_status_text(), "rank 2 did not come before the deadline (connecting); this rank "
                                  "has turned away a connection from 127.0.0.1:");
        T_MSG(symm_status_text(), "greets as a rank that is not awaited");
        T_EQ(SYMM_STAT_GET(intruders) - before, 1);
    }
    if (rank == 1) {
        int s = knock(&k->addrs[0]);
        greet(s, SYMM_MSG_HELLO, 1, 0, k->addrs[0].nonce, 0);
        T_EQ(recv(s, hello, sizeof hello, 0), SYMM_WIRE_HEADER);
        int again = knock(&k->addrs[0]);
        greet(again, SYMM_MSG_HELLO, 1, 0, k->addrs[0].nonce, 0);
        expect_nothing(again);
        kit_barrier(k, n);
        close(s);
    } else {
        kit_barrier(k, n);
    }
    symm_mesh_close(m);
}

static void a_second_greeting_is_turned_away(void) {
    T_EXPECT_WARNINGS();
    T_FORK(3, twice_rank, kit_new(SYMM_MESH_TCP, 0));
}

/* ---- ranks that cannot be reached ---- */

/* value 0: rank 0 has closed its mesh; 1: another process has its port now, and answers badly. */
static void absent_rank(int rank, int n, void *arg) {
    kit *k = arg;
    symm_mesh *m = kit_listen(k, rank, n);
    symm_wait w = kit_wait("connecting", KIT_MS);
    if (rank == 0) {
        struct sockaddr_storage addr;
        symm_mesh_close(m);
        if (k->value) {
            int door;
            T_OK(symm_tcp_listen("lo", "a squatter", 1, &addr, &door));
            symm_tcp_address_put(&addr, (uint8_t *)k->addrs[0].name);
            kit_barrier(k, n);
            fcntl(door, F_SETFL, 0);
            int s = accept(door, NULL, NULL);
            greet(s, SYMM_MSG_HELLO, 0, 1, k->addrs[1].nonce + 1, 0);
            kit_barrier(k, n);
            close(s);
            close(door);
            SYMM_STAT_ADD(fds, -1);
            return;
        }
        kit_barrier(k, n);
        kit_barrier(k, n);
        return;
    }
    kit_barrier(k, n);
    uint64_t start = symm_now_ns();
    T_ERR(symm_mesh_connect(m, k->addrs, NULL, &w), symmRemoteError);
    T_MSG(symm_status_text(),
          k->value ? "rank 0 died or left" : "rank 1 cannot reach rank 0 at 127.0.0.1:");
    T_MSG(symm_status_text(), k->value ? "somebody else answers: wrong nonce"
                                       : "from 127.0.0.1 (lo): Connection refused (it died or "
                                         "left, or a firewall refuses) (connecting)");
    soon(start, 1000);
    T_EQ(symm_mesh_alive(m, 0), 0);
    kit_barrier(k, n);
    symm_mesh_close(m);
}

static void nobody_listens_for_a_dead_rank(void) {
    T_EXPECT_WARNINGS();
    T_FORK(2, absent_rank, kit_new(SYMM_MESH_TCP, 0));
    T_FORK(2, absent_rank, kit_new(SYMM_MESH_TCP, 1));
}

static void put_address(symm_mesh_addr *a, const char *text, int port) {
    struct sockaddr_storage addr = {0};
    struct sockaddr_in *in = (struct sockaddr_in *)&addr;
    in->sin_family = AF_INET;
    in->sin_port = htons((uint16_t)port);
    T_EQ(inet_pton(AF_INET, text, &in->sin_addr), 1);
    symm_tcp_address_put(&addr, (uint8_t *)a->name);
}

static void errors_name_rank_address_and_port(void) {
    symm_mesh_addr addrs[2] = {{0}};
    symm_mesh *m;
    symm_wait w = kit_wait("connecting", KIT_MS);
    T_EXPECT_WARNINGS();
    for (int i = 0; i < 2; i++) {
        T_OK(symm_mesh_listen(1, 2, SYMM_MESH_TCP, "lo", &addrs[1], &m));
        T_CHECK(addrs[1].name[0]);
        if (i == 0) put_address(&addrs[0], "224.0.0.1", 4711); /* the kernel has no way there */
        if (i == 1) addrs[0].name[0] = 0;
        T_ERR(symm_mesh_connect(m, addrs, NULL, &w), i ? symmInternalError : symmSystemError);
        T_MSG(symm_status_text(),
              i ? "rank 0's control socket has no address"
                : "rank 1 cannot reach rank 0 at 224.0.0.1:4711 from 127.0.0.1 (lo): Network is "
                  "unreachable (a firewall, or the wrong interface: SYMM_SOCKET_IFNAME) "
                  "(connecting)");
        symm_mesh_close(m);
    }
    T_ERR(symm_mesh_listen(1, 2, SYMM_MESH_TCP, "nosuch", &addrs[1], &m), symmInvalidArgument);
    T_MSG(symm_status_text(), "SYMM_SOCKET_IFNAME=nosuch names no interface");
}

/* A port that takes no more connections is as a firewall that drops them. */
static void who_does_not_answer_is_named(void) {
    symm_mesh_addr addrs[2] = {{0}};
    struct sockaddr_storage addr;
    socklen_t len;
    symm_mesh *m;
    int door, filled[4];
    symm_wait w = kit_wait("connecting", 1500);
    T_EXPECT_WARNINGS();
    T_OK(symm_tcp_listen("lo", "a test", 1, &addr, &door));
    T_EQ(listen(door, 0), 0);
    symm_tcp_address_put(&addr, (uint8_t *)addrs[0].name);
    T_CHECK(!symm_tcp_address_get((const uint8_t *)addrs[0].name, &addr, &len));
    for (int i = 0; i < 4; i++) {
        filled[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        T_CHECK(connect(filled[i], (struct sockaddr *)&addr, len) == 0 || errno == EINPROGRESS);
    }
    T_OK(symm_mesh_listen(1, 2, SYMM_MESH_TCP, "lo", &addrs[1], &m));
    uint64_t start = symm_now_ns();
    T_ERR(symm_mesh_connect(m, addrs, NULL, &w), symmTimeout);
    T_MSG(symm_status_text(), "rank 0 did not come before the deadline (connecting); this rank has "
                              "no answer from rank 0 at 127.0.0.1:");
    T_MSG(symm_status_text(), ", asked from 127.0.0.1 (lo) (a firewall");
    soon(start, 3000);
    symm_mesh_close(m);
    for (int i = 0; i < 4; i++) close(filled[i]);
    close(door);
    SYMM_STAT_ADD(fds, -1);
}

/* A rank that cannot go on tells the lower ranks, before it has connected to any. */
static void giving_up_rank(int rank, int n, void *arg) {
    kit *k = arg;
    symm_mesh *m = kit_listen(k, rank, n);
    symm_wait w = kit_wait("connecting", KIT_MS);
    if (rank == 2) T_EQ(symm_fail_arm("mesh_connect:error:1"), 0);
    if (rank == 2) kit_sleep(50);
    uint64_t start = symm_now_ns();
    const symmResult_t code = symm_mesh_connect(m, k->addrs, NULL, &w);
    soon(start, 2000);
    if (rank == 1 && code == symmRemoteError) { /* late: rank 0 has left for that reason */
        T_MSG(symm_status_text(), "rank 1 cannot reach rank 0");
    } else {
        T_EQ(code, symmSystemError);
        T_MSG(symm_status_text(), "failpoint mesh_connect: to rank 0 (connecting)");
        if (rank < 2) T_MSG(symm_status_text(), "revoked");
    }
    kit_barrier(k, n);
    symm_mesh_close(m);
}

static void who_gives_up_says_why(void) {
    T_EXPECT_WARNINGS();
    T_FORK(3, giving_up_rank, kit_new(SYMM_MESH_TCP, 0));
}

/* A rank dies before it connects. A higher one finds that, and a lower one, which awaits the dead
 * rank, has a connection to that higher one: it hears, though the connection stands. */
static void refused_rank(int rank, int n, void *arg) {
    kit *k = arg;
    symm_mesh *m = kit_listen(k, rank, n);
    symm_wait w = kit_wait("connecting", KIT_MS);
    if (rank == 1) kill(getpid(), SIGKILL);
    uint64_t start = symm_now_ns();
    T_ERR(symm_mesh_connect(m, k->addrs, NULL, &w), symmRemoteError);
    /* a late one may find that another has left for that reason */
    T_MSG(symm_status_text(), rank > 1 ? "cannot reach rank" : "cannot reach rank 1 at 127.0.0.1:");
    soon(start, 1000);
    kit_barrier(k, n - 1);
    symm_mesh_close(m);
}

static void who_waits_hears_what_others_found(void) {
    T_EXPECT_WARNINGS();
    for (int n = 3; n <= 5; n++) T_FORK_DIES(n, 1, refused_rank, kit_new(SYMM_MESH_TCP, 0));
}

/* ---- on a connection that stands ---- */

/* value 0: garbage; 1: a wrong nonce; 2: half a message, and the end; 3: half a header. */
static void junk_rank(int rank, int n, void *arg) {
    kit *k = arg;
    symm_mesh *m = kit_open(k, rank, n);
    symm_wait w = kit_wait("trusting nobody", KIT_MS);
    symm_mesh_news news;
    int value = 1;
    kit_barrier(k, n);
    if (rank == 1) {
        static uint8_t junk[20000];
        uint8_t raw[SYMM_WIRE_HEADER];
        const symm_wire_msg head = {
            .type = SYMM_MSG_BOOT, .bytes = 100, .from = 1, .nonce = k->addrs[0].nonce};
        const int s = symm_mesh_fd(m, 0);
        T_OK(symm_mesh_send(m, 0, SYMM_MSG_BOOT, &value, sizeof value, NULL, 0, &w));
        symm_wire_put(&head, raw);
        if (k->value == 0) say(s, junk, sizeof junk);
        if (k->value == 1) greet(s, SYMM_MSG_REVOKE, 1, 0, k->addrs[0].nonce + 1, 256);
        if (k->value >= 2) say(s, raw, k->value == 2 ? sizeof raw : 7);
        kit_barrier(k, n);
        if (k->value < 2)
            T_ERR(symm_mesh_recv(m, 0, SYMM_MSG_BOOT, NULL, 0, NULL, NULL, 0, &w), symmRemoteError);
        if (k->value < 2) kit_barrier(k, n);
        symm_mesh_close(m);
        return;
    }
    kit_barrier(k, n);
    T_EQ(symm_mesh_peek(m, 1, &news), 1);
    T_CHECK(!news.revoked && !news.left);
    T_OK(symm_mesh_recv(m, 1, SYMM_MSG_BOOT, &value, 4, NULL, NULL, 0, &w));
    if (k->value < 2) {
        T_ERR(symm_mesh_recv(m, 1, SYMM_MSG_BOOT, &value, 4, NULL, NULL, 0, &w), symmInternalError);
        T_MSG(symm_status_text(), k->value ? "rank 1 sent no valid message: wrong nonce"
                                           : "rank 1 sent no valid message: not a message");
        T_EQ(symm_mesh_hung_up(m, 1), 1);
    }
    T_ERR(symm_mesh_recv(m, 1, SYMM_MSG_BOOT, &value, 4, NULL, NULL, 0, &w), symmRemoteError);
    T_MSG(symm_status_text(), "rank 1 died or left (trusting nobody)");
    T_ERR(symm_mesh_send(m, 1, SYMM_MSG_BOOT, &value, 4, NULL, 0, &w), symmRemoteError);
    if (k->value < 2) kit_barrier(k, n);
    symm_mesh_close(m);
}

static void junk_ends_a_connection(void) {
    T_EXPECT_WARNINGS();
    for (int value = 0; value < 4; value++) T_FORK(2, junk_rank, kit_new(SYMM_MESH_TCP, value));
}

/* ---- a host that is gone ---- */

/* Of this network namespace, which is the test's own: down is as a cut cable. */
static void set_loopback(int up) {
    struct ifreq r = {.ifr_name = "lo", .ifr_flags = (short)(up ? IFF_UP : 0)};
    int s = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    T_CHECK(s >= 0);
    T_EQ(ioctl(s, SIOCSIFFLAGS, &r), 0);
    close(s);
}

/* Rank 0 sends something that nobody acknowledges, rank 1 is silent. No end of file tells them. */
static void cut_rank(int rank, int n, void *arg) {
    kit *k = arg;
    symm_mesh *m = kit_listen(k, rank, n);
    symm_wait w = kit_wait("hearing nothing", KIT_MS);
    int value = 1;
    symm_mesh_patience(m, 5000);
    T_OK(symm_mesh_connect(m, k->addrs, NULL, &w));
    kit_barrier(k, n);
    if (rank == 0) set_loopback(0);
    kit_barrier(k, n);
    uint64_t start = symm_now_ns();
    if (rank == 0) T_OK(symm_mesh_send(m, 1, SYMM_MSG_BOOT, &value, sizeof value, NULL, 0, &w));
    T_ERR(symm_mesh_recv(m, !rank, SYMM_MSG_BOOT, &value, 4, NULL, NULL, 0, &w), symmRemoteError);
    T_MSG(symm_status_text(), "died or left (hearing nothing)");
    soon(start, 9000);
    T_CHECK(fk_ms_since(start) > 3000);
    T_EQ(symm_mesh_hung_up(m, !rank), 1);
    symm_mesh_close(m);
}

static void a_host_that_is_gone_is_noticed(void) {
    T_EXPECT_WARNINGS();
    if (unshare(CLONE_NEWNET) != 0) T_SKIP("needs root, to cut a network of its own");
    set_loopback(1);
    T_FORK(2, cut_rank, kit_new(SYMM_MESH_TCP, 0));
}

/* ---- which interface ---- */

/* A network of this test's own with an interface of containers, which comes first, and one that
 * leads out of the host: no message says which, so the listener's address does. d1 and o1 have
 * addresses of their link alone. */
static const struct {
    const char *list, *at; /* at: the beginning of the address; NULL: refused */
} lists[] = {
    {NULL, "10.9.9.1:"},
    {"docker", "10.9.8.1:"},
    {"docker,out", "10.9.8.1:"},
    {"eth,out", "10.9.9.1:"},
    {"out0:1", "10.9.9.1:"},
    {"dock,out0", "10.9.9.1:"},
    {"=out0", "10.9.9.1:"},
    {"=out", NULL},
    {"=eth0,docker0", "10.9.8.1:"},
    {"^docker", "10.9.9.1:"},
    {"^out,o1,d1", "10.9.8.1:"},
    {"^=out", "10.9.9.1:"},
    {"^=out0,o1,d1", "10.9.8.1:"},
    {"^docker,out,o1,d1", "127.0."},
    {"^docker,out,lo,o1,d1", NULL},
    {"^=docker0,out0,o1,d1", "127.0."},
    {"lo", "127.0."},
    {"eth", NULL},
    {",,out", "10.9.9.1:"},
    {"=", NULL},
    {"^", "10.9.9.1:"},
    {"docker0x", NULL},
};

static void the_interface_that_leads_out_is_taken(void) {
    kit *k = kit_new(SYMM_MESH_TCP, 0);
    struct sockaddr_storage addr;
    socklen_t len;
    char where[80];
    T_EXPECT_WARNINGS();
    if (unshare(CLONE_NEWNET) != 0) T_SKIP("needs root, for a network of its own");
    if (system("ip link set lo up && ip link add docker0 type veth peer name d1 && ip link add "
               "out0 type veth peer name o1 && ip addr add 10.9.8.1/24 dev docker0 && ip addr add "
               "10.9.9.1/24 dev out0 && for i in docker0 d1 out0 o1; do ip link set $i up || exit "
               "1; done") != 0)
        T_SKIP("needs ip, and virtual interfaces");
    T_EQ(system("for n in $(seq 500); do test $(ip -o link | grep -c 'state UP') = 4 && exit 0; "
                "sleep 0.01; done; ip link; exit 1"),
         0); /* the system says so a little later */
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        symm_mesh *m = NULL;
        const symmResult_t r =
            symm_mesh_listen(0, 2, SYMM_MESH_TCP, lists[i].list, &k->addrs[0], &m);
        T_CHECKF(r == (lists[i].at ? symmSuccess : symmInvalidArgument), "%s: code %d",
                 lists[i].list, (int)r);
        if (r) continue;
        T_CHECK(!symm_tcp_address_get((const uint8_t *)k->addrs[0].name, &addr, &len));
        symm_tcp_address_text(&addr, where, sizeof where);
        T_CHECKF(!strncmp(where, lists[i].at, strlen(lists[i].at)), "%s: %s, not %s",
                 lists[i].list ? lists[i].list : "no list", where, lists[i].at);
        symm_mesh_close(m);
    }
}

/* ---- failpoints ---- */

static symmResult_t pass_on(symm_mesh *m, int rank, int n, const symm_wait *w) {
    int value = rank;
    SYMM_TRY(symm_mesh_send(m, (rank + 1) % n, SYMM_MSG_BOOT, &value, 4, NULL, 0, w));
    for (int p = 0; p < n; p++) (void)symm_mesh_hung_up(m, p);
    SYMM_TRY(symm_mesh_recv(m, (rank + n - 1) % n, SYMM_MSG_BOOT, &value, 4, NULL, NULL, 0, w));
    T_EQ(value, (rank + n - 1) % n);
    return symmSuccess;
}

/* What a rank does with a mesh, up to its first error. The last agreement is without failpoints: so
 * it meets whatever went wrong before. */
static symmResult_t use_mesh(kit *k, symm_mesh *m, int rank, int n) {
    symm_wait w = kit_wait("points", KIT_MS);
    SYMM_TRY(symm_mesh_connect(m, k->addrs, NULL, &w));
    for (int i = 0; i < 2; i++) {
        if (rank == i) kit_sleep(15); /* the others sleep */
        SYMM_TRY(symm_agree(m, symmSuccess, &w, NULL));
    }
    symmResult_t code = pass_on(m, rank, n, &w);
    if (code && !symm_mesh_revoked(m))
        symm_agree_revoke(m, code, rank, w.stage, symm_status_text());
    if (code) return code;
    atomic_store(&k->dead[rank], symm_fail_hits(k->value));
    symm_fail_arm("");
    return symm_agree(m, symmSuccess, &w, NULL);
}

/* text[0]: what the victim, rank flag, arms. */
static void point_rank(int rank, int n, void *arg) {
    kit *k = arg;
    symm_mesh *m = NULL;
    symm_log_rank(rank);
    if (rank == k->flag) T_EQ(symm_fail_arm(k->text[0]), 0);
    symmResult_t code = symm_mesh_listen(rank, n, SYMM_MESH_TCP, NULL, &k->addrs[rank], &m);
    atomic_store(&k->code[rank], (int)code);
    if (rank == k->flag) atomic_store(&k->dead[rank], symm_fail_hits(k->value));
    kit_barrier(k, n);
    uint64_t start = symm_now_ns();
    for (int r = 0; r < n; r++) code = code ? code : (symmResult_t)k->code[r];
    if (!code) {
        code = use_mesh(k, m, rank, n);
        if (rank == k->flag && symm_fail_hits(k->value))
            atomic_store(&k->dead[rank], symm_fail_hits(k->value));
    }
    symm_fail_arm("");
    soon(start, 3000);
    kit_barrier(k, n);
    atomic_store(&k->code[rank], (int)code);
    kit_barrier(k, n);
    for (int r = 0; r < n; r++)
        T_CHECKF(!k->code[r] == !code, "%s on rank %d: rank %d ended with %d, rank %d with %d",
                 k->text[0], k->flag, r, k->code[r], rank, (int)code);
    symm_mesh_close(m);
}

/* The hits of a point on one rank, one after the other. How often it was met. */
static int drive(int point, int rank) {
    int met = 0;
    for (int nth = 1; nth <= MOST_HITS; nth++) {
        kit *k = kit_new(SYMM_MESH_TCP, point);
        k->flag = rank;
        snprintf(k->text[0], sizeof k->text[0], "%s:error:%d", symm_fail_name(point), nth);
        T_FORK(3, point_rank, k);
        if (k->dead[rank] < nth) break;
        met++;
        T_CHECKF(k->code[0] || fk_survived(point), "%s on rank %d failed, and nothing came of it",
                 k->text[0], rank);
    }
    return met;
}

static void every_failure_is_everybodys(void) {
    T_EXPECT_WARNINGS();
    for (int point = 0; point < symm_fp_count; point++) {
        int met = 0;
        if (!fk_meets(point, "mesh_tcp")) continue;
        for (int rank = 0; rank < 3; rank++) met += drive(point, rank);
        T_CHECKF(met, "%s was not met", symm_fail_name(point));
    }
}

T_MAIN(T(garbage_is_turned_away), T(wrong_greetings_are_turned_away), T(silence_holds_up_nobody),
       T(coming_and_going_harms_nothing), T(a_second_greeting_is_turned_away),
       T(nobody_listens_for_a_dead_rank), T(errors_name_rank_address_and_port),
       T(who_does_not_answer_is_named), T(who_gives_up_says_why),
       T(who_waits_hears_what_others_found), T(junk_ends_a_connection),
       T(a_host_that_is_gone_is_noticed), T(the_interface_that_leads_out_is_taken),
       T_TIMEOUT(every_failure_is_everybodys, 180))
