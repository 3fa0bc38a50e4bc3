/* fault_intruder.c - strangers at the door of the control mesh: garbage, forged and replayed
 * greetings, 253 fds, silent and flooding connections, another user, a squatted name, junk on a
 * connection that stands. Each is served nothing, harms nothing, leaves no fd behind, and the ranks
 * still find each other. The ranks and the stranger are forked; no lock. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "mesh_kit.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "transport/mesh/wire.h"

enum { SILENT = 50, SCM_MAX = 253 };

typedef struct {
    void (*attack)(const kit *k); /* by the last rank, which is no rank of the mesh, while rank 1
                                     keeps rank 0 waiting */
    int at_least;                 /* connections that rank 0 must have turned away */
    int foreign_pidns;            /* pids mean nothing: only uid and nonce protect */
} scene;

static scene sc; /* set before the fork */

/* ---- the stranger's means ---- */

static int make_socket(const symm_mesh_addr *a, struct sockaddr_un *sa, socklen_t *len) {
    *sa = (struct sockaddr_un){.sun_family = AF_UNIX};
    memcpy(sa->sun_path + 1, a->name, strlen(a->name));
    *len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(a->name));
    int s = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    T_CHECK(s >= 0);
    return s;
}

static int knock(const symm_mesh_addr *a) {
    struct sockaddr_un sa;
    socklen_t len;
    int s = make_socket(a, &sa, &len);
    while (connect(s, (struct sockaddr *)&sa, len) != 0) T_CHECK(errno == EINTR || errno == EAGAIN);
    return s;
}

static void say(int s, const void *bytes, size_t n) {
    ssize_t sent = send(s, bytes, n, MSG_NOSIGNAL);
    T_CHECK(sent == (ssize_t)n || errno == EPIPE ||
            errno == ECONNRESET); /* may be turned away already */
}

static void greet(const kit *k, int s, int from, uint64_t nonce) {
    uint8_t raw[SYMM_WIRE_HEADER];
    symm_wire_msg hello = {.type = SYMM_MSG_HELLO, .from = (uint32_t)from, .to = 0, .nonce = nonce};
    (void)k;
    symm_wire_put(&hello, raw);
    say(s, raw, sizeof raw);
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

static void send_fds(int s, int count, const void *bytes, size_t n) {
    int fds[SCM_MAX];
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof fds)] = {0};
    struct iovec iov = {(void *)(uintptr_t)bytes, n};
    struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control};
    msg.msg_controllen = CMSG_SPACE((size_t)count * sizeof(int));
    struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN((size_t)count * sizeof(int));
    for (int i = 0; i < count; i++) fds[i] = STDERR_FILENO;
    memcpy(CMSG_DATA(c), fds, (size_t)count * sizeof(int));
    T_CHECK(sendmsg(s, &msg, MSG_NOSIGNAL) >= 0 || errno == EPIPE || errno == ECONNRESET);
}

/* ---- attacks ---- */

static void send_garbage(const kit *k) {
    static const size_t sizes[] = {0, 1, 31, 32, 33, 4096, 4128, 4129, 100000};
    static uint8_t junk[100000];
    for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        for (size_t b = 0; b < sizes[i]; b++) junk[b] = (uint8_t)(b * 131 + i);
        int s = knock(&k->addrs[0]);
        say(s, junk, sizes[i]);
        expect_nothing(s);
    }
}

static void send_wrong_nonces(const kit *k) {
    for (int from = -1; from < 4; from++) {
        for (int other = 0; other < 3; other++) {
            int s = knock(&k->addrs[0]);
            greet(k, s, from, other == 2 ? 0 : k->addrs[0].nonce ^ (1ull << (other * 63)));
            expect_nothing(s);
        }
    }
}

/* The greeting as rank 1 would send it, byte for byte, from another process. */
static void replay_greeting(const kit *k) {
    for (int i = 0; i < 5; i++) {
        int s = knock(&k->addrs[0]);
        greet(k, s, 1, k->addrs[0].nonce);
        expect_nothing(s);
    }
}

static void forge_others(const kit *k) {
    static const int from[] = {0, 2, 3, 1 << 30, -1}; /* nobody that rank 0 awaits */
    for (unsigned i = 0; i < sizeof from / sizeof *from; i++) {
        int s = knock(&k->addrs[0]);
        greet(k, s, from[i], k->addrs[0].nonce);
        expect_nothing(s);
    }
}

static void send_253_fds(const kit *k) {
    uint8_t raw[SYMM_WIRE_HEADER];
    symm_wire_msg hello = {.type = SYMM_MSG_HELLO, .from = 1, .nonce = k->addrs[0].nonce};
    symm_wire_put(&hello, raw);
    for (int i = 0; i < 4; i++) {
        int s = knock(&k->addrs[0]);
        send_fds(s, SCM_MAX, i % 2 ? (const void *)raw : "x", i % 2 ? sizeof raw : 1);
        expect_nothing(s);
    }
}

static void hold_connections(const kit *k) {
    int held[SILENT];
    for (int i = 0; i < SILENT; i++) held[i] = knock(&k->addrs[0]);
    atomic_store(&((kit *)(uintptr_t)k)->flag, 1); /* rank 1 may come: they stay open meanwhile */
    kit_await_flag((kit *)(uintptr_t)k, 2);
    for (int i = 0; i < SILENT; i++) close(held[i]);
}

static void come_and_go(const kit *k) {
    for (int i = 0; i < 500; i++) close(knock(&k->addrs[0]));
}

static void be_another_user(const kit *k) {
    T_EQ(setuid(65534), 0);
    replay_greeting(k);
    send_garbage(k);
}

/* ---- the play ---- */

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
    symm_log_rank(rank);
    T_OK(symm_mesh_listen(rank, ranks, SYMM_MESH_UNIX, NULL, &k->addrs[rank], &m));
    if (sc.foreign_pidns) k->addrs[rank].pidns += (uint64_t)rank + 1;
    int64_t before = SYMM_STAT_GET(intruders);
    kit_barrier(k, n);
    if (rank == 1) kit_await_flag(k, 1);
    uint64_t start = symm_now_ns();
    symm_wait w = kit_wait("connecting", KIT_MS);
    T_OK(symm_mesh_connect(m, k->addrs, NULL, &w));
    if (rank == 1) T_CHECK(symm_now_ns() - start < 2000000000ull);
    T_OK(symm_agree(m, symmSuccess, &w, NULL));
    if (rank == 0) T_CHECK(SYMM_STAT_GET(intruders) - before >= sc.at_least);
    T_CHECK(SYMM_STAT_GET(fds) ==
            ranks - 1); /* one connection each, no listener, nothing of the stranger's */
    if (rank == 1 && atomic_load(&k->flag) == 1) atomic_store(&k->flag, 2);
    symm_mesh_close(m);
}

static void play(void (*attack)(const kit *), int at_least, int foreign_pidns) {
    kit *k = kit_new(0, 0);
    sc = (scene){attack, at_least, foreign_pidns};
    T_FORK_DIES(3, 2, play_rank, k); /* the stranger ends by _exit: its fds are its own business */
}

static void garbage_is_turned_away(void) {
    play(send_garbage, 9, 0);
}
static void garbage_of_unknown_pid_is_turned_away(void) {
    play(send_garbage, 9, 1);
}
static void a_wrong_nonce_is_turned_away(void) {
    play(send_wrong_nonces, 15, 1);
}
static void a_replay_is_turned_away(void) {
    play(replay_greeting, 5, 0);
}
static void forged_ranks_are_turned_away(void) {
    play(forge_others, 5, 1);
}
static void fds_of_strangers_are_closed(void) {
    play(send_253_fds, 4, 0);
    play(send_253_fds, 4, 1);
}
static void silence_holds_up_nobody(void) {
    play(hold_connections, 1, 0);
    play(hold_connections, 30, 1);
}
static void coming_and_going_harms_nothing(void) {
    play(come_and_go, 100, 0);
    play(come_and_go, 100, 1);
}
static void another_user_is_turned_away(void) {
    if (geteuid() != 0) T_SKIP("needs root, to become another user");
    play(be_another_user, 14, 0);
    play(be_another_user, 14, 1);
}

/* ---- a rank's own second connection ---- */

static void duplicate_rank(int rank, int n, void *arg) {
    kit *k = arg;
    symm_mesh *m = kit_listen(k, rank, n);
    symm_wait w = kit_wait("connecting", KIT_MS);
    int64_t before = SYMM_STAT_GET(intruders);
    int s = -1;
    if (rank == 2) { /* until it comes rank 0's listener is open */
        kit_await_flag(k, 1);
        kit_sleep(100); /* rank 0 sees the end of rank 1 first */
    }
    if (rank == 1) {
        s = knock(&k->addrs[0]);
        greet(k, s, 1, k->addrs[0].nonce); /* this one is in order and is answered ... */
        char hello[64];
        T_EQ(recv(s, hello, sizeof hello, 0), SYMM_WIRE_HEADER);
        int again = knock(&k->addrs[0]);
        greet(k, again, 1, k->addrs[0].nonce);
        expect_nothing(again); /* ... so this one is not */
        close(s);
        atomic_store(&k->flag, 1);
        symm_mesh_close(m);
        return;
    }
    T_ERR(symm_mesh_connect(m, k->addrs, NULL, &w), symmRemoteError);
    if (rank == 0) T_EQ(SYMM_STAT_GET(intruders) - before, 1);
    T_MSG(symm_status_text(), rank ? "died or left" : "rank 1 died or left");
    symm_mesh_close(m);
}

static void a_second_greeting_is_turned_away(void) {
    T_EXPECT_WARNINGS();
    T_FORK(3, duplicate_rank, kit_new(0, 0));
}

/* ---- a squatted name ---- */

static void squatted_rank(int rank, int n, void *arg) {
    kit *k = arg;
    symm_mesh *m;
    struct sockaddr_un sa;
    socklen_t len;
    T_OK(symm_mesh_listen(rank, n, SYMM_MESH_UNIX, NULL, &k->addrs[rank], &m));
    kit_barrier(k, n);
    if (rank == 0) { /* its place is taken by a child, which gets no greeting */
        symm_mesh_close(m);
        kit_barrier(k, n);
        kit_barrier(k, n);
        return;
    }
    kit_barrier(k, n);
    pid_t child = fork();
    if (child == 0) {
        int s = make_socket(&k->addrs[0], &sa, &len);
        if (bind(s, (struct sockaddr *)&sa, len) != 0 || listen(s, 4) != 0) _exit(1);
        atomic_store(&k->flag, 1);
        int c = accept(s, NULL, NULL);
        char byte;
        ssize_t got = recv(c, &byte, 1, 0);
        atomic_store(&k->flag, got > 0 ? 9 : 2);
        _exit(0);
    }
    kit_await_flag(k, 1);
    symm_wait w = kit_wait("connecting", KIT_MS);
    T_ERR(symm_mesh_connect(m, k->addrs, NULL, &w), symmRemoteError);
    T_MSG(symm_status_text(), "rank 0 died or left: its control socket belongs to pid");
    kit_await_flag(k, 2);
    T_EQ(atomic_load(&k->flag), 2);
    kit_barrier(k, n);
    symm_mesh_close(m);
}

static void a_squatted_name_learns_no_nonce(void) {
    T_EXPECT_WARNINGS();
    T_FORK(2, squatted_rank, kit_new(0, 0));
}

/* ---- junk on a connection that stands ---- */

static void junk_rank(int rank, int n, void *arg) {
    kit *k = arg;
    symm_mesh *m = kit_open(k, rank, n);
    symm_wait w = kit_wait("trusting nobody", KIT_MS);
    int fds[2], value = 1;
    uint8_t raw[SYMM_WIRE_HEADER];
    symm_wire_msg head = {.type = SYMM_MSG_BOOT, .from = 1, .nonce = k->addrs[0].nonce + 1};
    if (rank == 1) {
        int s = symm_mesh_fd(m, 0);
        static uint8_t junk[20000];
        say(s, "garbage", 7);
        say(s, junk, sizeof junk);
        symm_wire_put(&head, raw);
        say(s, raw, sizeof raw);
        head = (symm_wire_msg){
            .type = SYMM_MSG_HANDLES, .nfds = 2, .from = 1, .nonce = k->addrs[0].nonce};
        symm_wire_put(&head, raw);
        send_fds(s, SCM_MAX, raw, sizeof raw);
        T_OK(symm_mesh_send(m, 0, SYMM_MSG_BOOT, &value, sizeof value, NULL, 0, &w));
    } else {
        T_ERR(symm_mesh_recv(m, 1, SYMM_MSG_BOOT, &value, 4, NULL, NULL, 0, &w), symmInternalError);
        T_MSG(symm_status_text(), "rank 1 sent no valid message: shorter than a header");
        T_ERR(symm_mesh_recv(m, 1, SYMM_MSG_BOOT, &value, 4, NULL, NULL, 0, &w), symmInternalError);
        T_MSG(symm_status_text(), "longer than any message");
        T_ERR(symm_mesh_recv(m, 1, SYMM_MSG_BOOT, &value, 4, NULL, NULL, 0, &w), symmInternalError);
        T_MSG(symm_status_text(), "wrong nonce");
        T_ERR(symm_mesh_recv(m, 1, SYMM_MSG_HANDLES, NULL, 0, NULL, fds, 2, &w), symmInternalError);
        T_MSG(symm_status_text(), "sent 253 fds");
        T_OK(symm_mesh_recv(m, 1, SYMM_MSG_BOOT, &value, 4, NULL, NULL, 0, &w));
        T_EQ(SYMM_STAT_GET(fds), 1);
    }
    kit_barrier(k, n);
    symm_mesh_close(m);
}

static void junk_from_a_peer_is_named(void) {
    T_EXPECT_WARNINGS();
    T_FORK(2, junk_rank, kit_new(0, 0));
}

T_MAIN(T(garbage_is_turned_away), T(garbage_of_unknown_pid_is_turned_away),
       T(a_wrong_nonce_is_turned_away), T(a_replay_is_turned_away), T(forged_ranks_are_turned_away),
       T(fds_of_strangers_are_closed), T(silence_holds_up_nobody),
       T(coming_and_going_harms_nothing), T(another_user_is_turned_away),
       T(a_second_greeting_is_turned_away), T(a_squatted_name_learns_no_nonce),
       T(junk_from_a_peer_is_named))
