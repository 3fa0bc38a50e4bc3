/* fault_mesh.c - deaths and shortages in the control mesh: a rank is killed in each stage, mail of
 * the dead is not lost, a watcher sees the end, a forked child changes nothing, fds in flight run
 * out. Forked ranks and threads; no lock. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "mesh_kit.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>

static void soon(uint64_t start) {
    T_CHECK(symm_now_ns() - start < 1500000000ull);
}

static void expect_dead(symm_mesh *m, int peer, const symm_wait *w) {
    char who[64];
    uint64_t start = symm_now_ns();
    snprintf(who, sizeof who, "rank %d died or left (%s)", peer, w->stage);
    T_ERR(symm_mesh_recv(m, peer, SYMM_MSG_BOOT, NULL, 0, NULL, NULL, 0, w), symmRemoteError);
    T_MSG(symm_status_text(), who);
    T_EQ(symm_mesh_alive(m, peer), 0);
    T_ERR(symm_mesh_send(m, peer, SYMM_MSG_BOOT, NULL, 0, NULL, 0, w), symmRemoteError);
    T_MSG(symm_status_text(), who);
    soon(start);
}

/* ---- killed while connecting ---- */

static void connect_rank(int rank, int n, void *arg) {
    kit *k = arg;
    symm_mesh *m = kit_listen(k, rank, n);
    symm_wait w = kit_wait("connecting", KIT_MS);
    uint64_t start = symm_now_ns();
    if (rank == k->value) T_EQ(symm_fail_arm(k->text[0]), 0);
    symmResult_t code = symm_mesh_connect(m, k->addrs, NULL, &w);
    T_CHECK(rank != k->value);
    if (code == symmSuccess) { /* it was there when this rank saw it last */
        expect_dead(m, k->value, &w);
    } else {
        T_EQ(code, symmRemoteError);
        T_MSG(symm_status_text(), "died or left (connecting)");
    }
    soon(start);
    symm_mesh_close(m);
}

static void a_rank_killed_while_connecting_is_noticed(void) {
    T_EXPECT_WARNINGS();
    for (int rank = 0; rank < 4; rank++) {
        for (int nth = 1; nth <= 3; nth++) {
            kit *k = kit_new(0, rank);
            /* a rank dials the lower ones; the listener of the last one is never used */
            const char *point = nth <= rank ? "mesh_connect" : "mesh_accept";
            if (nth > rank && nth != rank + 1) continue;
            if (rank == 3 && nth > rank) continue;
            snprintf(k->text[0], sizeof k->text[0], "%s:kill:%d", point, nth <= rank ? nth : 1);
            T_FORK_DIES(4, rank, connect_rank, k);
        }
    }
}

static void point_rank(int rank, int n, void *arg) {
    kit *k = arg;
    symm_mesh *m = kit_listen(k, rank, n);
    symm_wait w = kit_wait("connecting", KIT_MS);
    if (!k->threads || rank == 0) T_EQ(symm_fail_arm(k->text[0]), 0);
    kit_barrier(k, n);
    symmResult_t code = symm_mesh_connect(m, k->addrs, k->mailboxes, &w);
    if (rank == k->value) {
        T_EQ(code, symmSystemError);
        T_MSG(symm_status_text(), "failpoint mesh_");
    } else if (code != symmSuccess) { /* told so, or met the closed door */
        T_CHECK(code == symmSystemError || code == symmRemoteError);
        T_MSG(symm_status_text(),
              code == symmSystemError ? "revoked: failpoint mesh_" : "died or left");
    } else {
        code = symm_agree(m, symmSuccess, &w, NULL);
        T_CHECK(code == symmSystemError || code == symmRemoteError);
    }
    symm_mesh_close(m);
    kit_barrier(k, n);
}

static void a_rank_that_fails_to_connect_tells_the_others(void) {
    T_EXPECT_WARNINGS();
    for (int kind = SYMM_MESH_UNIX; kind <= SYMM_MESH_TCP; kind++) {
        for (int rank = 0; rank < 3; rank++) {
            for (int accepting = 0; accepting < 2; accepting++) {
                if (rank == (accepting ? 2 : 0)) continue; /* never reached there */
                kit *k = kit_new(kind, rank);
                snprintf(k->text[0], sizeof k->text[0], "mesh_%s:error:0:%d",
                         accepting ? "accept" : "connect", rank);
                if (k->threads)
                    T_THREADS(3, point_rank, k);
                else
                    T_FORK(3, point_rank, k);
            }
        }
    }
}

/* ---- killed later ---- */

static void mail_rank(int rank, int n, void *arg) {
    kit *k = arg;
    symm_mesh *m = kit_open(k, rank, n);
    symm_wait w = kit_wait("reading the mail", KIT_MS);
    int value = 3;
    kit_barrier(k, n);
    if (rank == 1) {
        kit_await_flag(k, 1); /* its queue holds a message that it never reads */
        for (int i = 0; i < 3; i++)
            T_OK(symm_mesh_send(m, 0, SYMM_MSG_BOOT, &i, sizeof i, NULL, 0, &w));
        atomic_store(&k->flag, 2);
        kill(getpid(), SIGKILL);
    }
    T_OK(symm_mesh_send(m, 1, SYMM_MSG_BOOT, &value, sizeof value, NULL, 0, &w));
    atomic_store(&k->flag, 1);
    kit_await_flag(k, 2);
    while (!symm_mesh_hung_up(m, 1)) usleep(1000);
    for (int i = 0; i < 3; i++) {
        T_OK(symm_mesh_recv(m, 1, SYMM_MSG_BOOT, &value, sizeof value, NULL, NULL, 0, &w));
        T_EQ(value, i);
    }
    expect_dead(m, 1, &w);
    symm_mesh_close(m);
}

static void mail_of_the_dead_is_read_first(void) {
    T_EXPECT_WARNINGS();
    T_FORK_DIES(2, 1, mail_rank, kit_new(SYMM_MESH_UNIX, 0));
    T_FORK_DIES(2, 1, mail_rank, kit_new(SYMM_MESH_TCP, 0));
}

/* In the place of libc's. Where the last message and the end come while Linux looks, it tells of
 * the end first: so do the next `early` calls. */
static _Atomic int early;
ssize_t recvmsg(int fd, struct msghdr *msg, int flags) {
    ssize_t (*real)(int, struct msghdr *, int);
    void *next = dlsym(RTLD_NEXT, "recvmsg");
    memcpy(&real, &next, sizeof real);
    if (atomic_load(&early) == 0) return real(fd, msg, flags);
    atomic_fetch_sub(&early, 1);
    msg->msg_controllen = 0;
    msg->msg_flags = 0;
    return 0;
}

static void early_rank(int rank, int n, void *arg) {
    kit *k = arg;
    symm_mesh *m = kit_open(k, rank, n);
    symm_wait w = kit_wait("reading the last message", KIT_MS);
    int value = 7, fd = -1;
    if (rank == 1) {
        fd = memfd_create("last", MFD_CLOEXEC);
        T_CHECK(fd >= 0);
        T_OK(symm_mesh_send(m, 0, SYMM_MSG_BOOT, &value, sizeof value, &fd, 1, &w));
        close(fd);
        symm_mesh_close(m);
        return;
    }
    value = 0;
    while (!symm_mesh_hung_up(m, 1)) usleep(1000);
    atomic_store(&early, 1);
    T_OK(symm_mesh_recv(m, 1, SYMM_MSG_BOOT, &value, sizeof value, NULL, &fd, 1, &w));
    T_EQ(atomic_load(&early), 0);
    T_EQ(value, 7);
    close(fd);
    SYMM_STAT_ADD(fds, -1);
    expect_dead(m, 1, &w);
    symm_mesh_close(m);
}

static void an_end_that_is_told_too_early_loses_no_message(void) {
    T_EXPECT_WARNINGS();
    T_FORK(2, early_rank, kit_new(0, 0));
}

static void left_rank(int rank, int n, void *arg) {
    kit *k = arg;
    symm_mesh *m = kit_open(k, rank, n);
    symm_wait w = kit_wait("reading the mail", KIT_MS);
    int value = 9;
    kit_barrier(k, n);
    if (rank == 1) {
        T_OK(symm_mesh_send(m, 0, SYMM_MSG_BOOT, &value, sizeof value, NULL, 0, &w));
        symm_mesh_close(m);
        kit_barrier(k, n);
        return;
    }
    kit_barrier(k, n);
    T_EQ(symm_mesh_hung_up(m, 1), 1);
    T_OK(symm_mesh_recv(m, 1, SYMM_MSG_BOOT, &value, sizeof value, NULL, NULL, 0, &w));
    expect_dead(m, 1, &w);
    symm_mesh_close(m);
}

static void mail_of_the_departed_is_read_first(void) {
    T_EXPECT_WARNINGS();
    kit_run_all(2, left_rank, 0);
}

/* value 0: the survivor waits in recv, 1: in send with a full queue. */
static void waiting_rank(int rank, int n, void *arg) {
    kit *k = arg;
    symm_mesh *m = kit_open(k, rank, n);
    symm_wait w = kit_wait("waiting", KIT_MS);
    char big[SYMM_MESH_MAX] = {0};
    kit_barrier(k, n);
    if (rank == 1) {
        kit_sleep(200);
        kill(getpid(), SIGKILL);
    }
    uint64_t start = symm_now_ns();
    symmResult_t code = symmSuccess;
    while (k->value && code == symmSuccess) {
        code = symm_mesh_send(m, 1, SYMM_MSG_BOOT, big, sizeof big, NULL, 0, &w);
    }
    if (k->value) T_EQ(code, symmRemoteError);
    expect_dead(m, 1, &w);
    soon(start);
    symm_mesh_close(m);
}

static void a_rank_killed_under_a_waiting_peer_is_noticed(void) {
    T_EXPECT_WARNINGS();
    for (int value = 0; value < 2; value++) {
        T_FORK_DIES(2, 1, waiting_rank, kit_new(SYMM_MESH_UNIX, value));
        T_FORK_DIES(2, 1, waiting_rank, kit_new(SYMM_MESH_TCP, value));
    }
}

static void marked_rank(int rank, int n, void *arg) {
    kit *k = arg;
    symm_mesh *m = kit_open(k, rank, n);
    symm_wait w = kit_wait("believing", KIT_MS);
    int value = 8;
    if (rank == 1) T_OK(symm_mesh_send(m, 0, SYMM_MSG_BOOT, &value, sizeof value, NULL, 0, &w));
    kit_barrier(k, n);
    if (rank == 0) { /* declared dead from outside: its mail is read, nothing is waited for */
        symm_mesh_mark_dead(m, 1);
        T_EQ(symm_mesh_hung_up(m, 1), 0);
        T_OK(symm_mesh_recv(m, 1, SYMM_MSG_BOOT, &value, sizeof value, NULL, NULL, 0, &w));
        expect_dead(m, 1, &w);
    }
    kit_barrier(k, n);
    symm_mesh_close(m);
}

static void a_peer_marked_dead_is_not_waited_for(void) {
    T_EXPECT_WARNINGS();
    kit_run_all(2, marked_rank, 0);
}

/* ---- others look on ---- */

typedef struct {
    symm_mesh *m;
    int peer;
    _Atomic int stop, seen;
} watcher;

static void *watch(void *arg) {
    watcher *x = arg;
    while (!atomic_load(&x->stop)) {
        if (symm_mesh_alive(x->m, x->peer) && symm_mesh_hung_up(x->m, x->peer)) {
            symm_mesh_mark_dead(x->m, x->peer);
            atomic_store(&x->seen, 1);
        }
        T_EQ(symm_mesh_fd(x->m, x->m ? symm_mesh_rank(x->m) : 0), -1);
        usleep(200);
    }
    return NULL;
}

static void watched_rank(int rank, int n, void *arg) {
    kit *k = arg;
    symm_mesh *m = kit_open(k, rank, n);
    watcher x = {.m = m, .peer = (rank + 1) % n};
    pthread_t thread;
    T_EQ(pthread_create(&thread, NULL, watch, &x), 0);
    for (int i = 0; i < 300; i++) {
        symm_wait w = kit_wait("being watched", KIT_MS);
        T_OK(symm_agree(m, symmSuccess, &w, NULL));
    }
    kit_barrier(k, n);
    T_EQ(atomic_load(&x.seen), 0);
    kit_barrier(k, n);
    if (rank == 0) {
        while (!atomic_load(&x.seen)) usleep(200); /* rank 1 closes */
        T_EQ(symm_mesh_alive(m, 1), 0);
    }
    atomic_store(&x.stop, 1);
    pthread_join(thread, NULL);
    symm_mesh_close(m);
    kit_barrier(k, n);
}

static void a_watcher_sees_who_hangs_up(void) {
    T_THREADS(3, watched_rank, kit_new(0, 0));
    T_THREADS(3, watched_rank, kit_new(1, 0));
    T_FORK(3, watched_rank, kit_new(0, 0));
    T_FORK(3, watched_rank, kit_new(SYMM_MESH_TCP, 0));
}

static void forking_rank(int rank, int n, void *arg) {
    kit *k = arg;
    symm_mesh *m = kit_open(k, rank, n);
    symm_wait w = kit_wait("forking", KIT_MS);
    pid_t child = 0;
    if (rank == 1) {
        child = fork();
        T_CHECK(child >= 0);
        if (child == 0) {
            symm_mesh_close(m); /* a copy: must not end the parent's connections */
            _exit(0);
        }
        T_EQ(waitpid(child, NULL, 0), child);
        child = kit_clone(); /* holds copies of the sockets for as long as it lives */
        while (child == 0) pause();
    }
    T_OK(symm_agree(m, symmSuccess, &w, NULL));
    if (rank == 1) symm_mesh_close(m);
    if (rank == 0) {
        expect_dead(m, 1, &w); /* the end is seen in spite of the copies */
        symm_mesh_close(m);
    }
    kit_barrier(k, n);
    if (child) {
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
    }
}

static void a_forked_child_ends_nothing(void) {
    T_EXPECT_WARNINGS();
    T_FORK(2, forking_rank, kit_new(SYMM_MESH_UNIX, 0));
    T_FORK(2, forking_rank, kit_new(SYMM_MESH_TCP, 0));
}

/* ---- fds in flight ---- */

static void become_nobody(void) {
    if (geteuid() == 0) T_EQ(setuid(65534), 0);
    prctl(PR_SET_DUMPABLE, 1); /* so that the harness may still list /proc/self/fd */
}

/* Only users without CAP_SYS_RESOURCE are limited. value 0: the receiver makes room late, 1: never.
 */
static void flight_rank(int rank, int n, void *arg) {
    kit *k = arg;
    int files[40], sent = 0;
    struct rlimit old, low;
    become_nobody();
    symm_mesh *m = kit_open(k, rank, n);
    symm_wait w = kit_wait("sending many", k->value ? 400 : KIT_MS);
    T_EQ(getrlimit(RLIMIT_NOFILE, &old), 0);
    low = old;
    low.rlim_cur = 100;
    if (rank == 0) {
        symmResult_t code = symmSuccess;
        T_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
        for (int i = 0; i < 40; i++) T_CHECK((files[i] = memfd_create("many", MFD_CLOEXEC)) >= 0);
        if (k->value) w = kit_wait("sending many", 1500); /* time to come to the limit first */
        for (; sent < 12 && code == symmSuccess; sent++) {
            code = symm_mesh_send(m, 1, SYMM_MSG_HANDLES, NULL, 0, files, 40, &w);
        }
        T_EQ(code, k->value ? symmFdLimit : symmSuccess);
        if (k->value) T_MSG(symm_status_text(), "in flight");
        for (int i = 0; i < 40; i++) close(files[i]);
        setrlimit(RLIMIT_NOFILE, &old);
    } else if (!k->value) {
        kit_sleep(100);
        for (int i = 0; i < 12; i++) {
            T_OK(symm_mesh_recv(m, 0, SYMM_MSG_HANDLES, NULL, 0, NULL, files, 40, &w));
            for (int f = 0; f < 40; f++) close(files[f]);
            SYMM_STAT_ADD(fds, -40);
        }
    }
    kit_barrier(k, n);
    symm_mesh_close(m);
}

static void fds_in_flight_are_limited(void) {
    T_EXPECT_WARNINGS();
    if (geteuid() != 0) T_SKIP("needs root, to become a user who has no fds in flight elsewhere");
    kit_run(0, 2, flight_rank, 0);
    kit_run(0, 2, flight_rank, 1);
}

T_MAIN(T(a_rank_killed_while_connecting_is_noticed),
       T(a_rank_that_fails_to_connect_tells_the_others), T(mail_of_the_dead_is_read_first),
       T(an_end_that_is_told_too_early_loses_no_message), T(mail_of_the_departed_is_read_first),
       T(a_rank_killed_under_a_waiting_peer_is_noticed), T(a_peer_marked_dead_is_not_waited_for),
       T(a_watcher_sees_who_hangs_up), T(a_forked_child_ends_nothing), T(fds_in_flight_are_limited))
