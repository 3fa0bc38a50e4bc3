/* unit_mesh.c - the control mesh in working order: messages, fds, order, limits, deadlines,
 * revocation, all kinds. Deaths are in fault_mesh.c, strangers in fault_intruder.c. Ranks are
 * forked processes or threads; no lock. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "mesh_kit.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>

static void fill(uint8_t *p, size_t bytes, unsigned seed) {
    for (size_t i = 0; i < bytes; i++) p[i] = (uint8_t)(seed * 31 + i * 7 + (i >> 8));
}

static void expect_filled(const uint8_t *p, size_t bytes, unsigned seed) {
    for (size_t i = 0; i < bytes; i++) T_EQ(p[i], (uint8_t)(seed * 31 + i * 7 + (i >> 8)));
}

static int make_file(int content) {
    int fd = memfd_create("mesh test", MFD_CLOEXEC);
    T_CHECK(fd >= 0);
    T_EQ(pwrite(fd, &content, sizeof content, 0), sizeof content);
    return fd;
}

/* Closes a received fd, which the gauge has counted for the caller. */
static void take_file(int fd, int content) {
    int got = -1;
    T_EQ(pread(fd, &got, sizeof got, 0), sizeof got);
    T_EQ(got, content);
    T_CHECK(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    close(fd);
    SYMM_STAT_ADD(fds, -1);
}

/* ---- messages ---- */

static void all_to_all(symm_mesh *m, int nfds, int round) {
    int rank = symm_mesh_rank(m), n = symm_mesh_nranks(m), files[SYMM_MESH_FDS];
    symm_wait w = kit_wait("all to all", KIT_MS);
    uint8_t buf[SYMM_MESH_MAX];
    size_t bytes = (size_t)(round * 977 % (SYMM_MESH_MAX + 1)), got;
    for (int i = 0; i < nfds; i++) files[i] = make_file(rank * 1000 + i);
    fill(buf, bytes, (unsigned)rank);
    for (int p = 0; p < n; p++) {
        if (p != rank) T_OK(symm_mesh_send(m, p, SYMM_MSG_HANDLES, buf, bytes, files, nfds, &w));
    }
    for (int i = 0; i < nfds; i++) close(files[i]);
    for (int p = n - 1; p >= 0; p--) { /* the other way round than they were sent */
        if (p == rank) continue;
        T_OK(symm_mesh_recv(m, p, SYMM_MSG_HANDLES, buf, sizeof buf, &got, files, nfds, &w));
        T_EQ(got, bytes);
        expect_filled(buf, got, (unsigned)p);
        for (int i = 0; i < nfds; i++) take_file(files[i], p * 1000 + i);
    }
}

static void exchange_rank(int rank, int n, void *arg) {
    kit *k = arg;
    symm_mesh *m = kit_open(k, rank, n);
    T_EQ(symm_mesh_rank(m), rank);
    T_EQ(symm_mesh_nranks(m), n);
    for (int round = 0; round < 6; round++) all_to_all(m, round % 3 * k->value, round);
    for (int p = 0; p < n; p++) {
        T_EQ(symm_mesh_fd(m, p) >= 0, !k->threads && p != rank);
        T_EQ(symm_mesh_alive(m, p), 1);
        T_EQ(symm_mesh_hung_up(m, p), 0);
    }
    kit_barrier(k, n);
    symm_mesh_close(m);
}

static void processes_exchange_messages_and_fds(void) {
    for (int n = 1; n <= 4; n++) kit_run(0, n, exchange_rank, 3);
    kit_run(0, 8, exchange_rank, 1);
    kit_run(0, 2, exchange_rank, SYMM_MESH_FDS / 2);
}

static void threads_exchange_messages(void) {
    for (int n = 1; n <= 5; n++) kit_run(1, n, exchange_rank, 0);
}

static void hosts_exchange_messages(void) {
    for (int n = 1; n <= 4; n++) kit_run(SYMM_MESH_TCP, n, exchange_rank, 0);
    kit_run(SYMM_MESH_TCP, 9, exchange_rank, 0);
}

static void threads_are_seventy_two(void) {
    kit_run(1, 72, exchange_rank, 0);
}

/* Several ranks of one process may use sockets too (a unique id opened from threads). */
static void sockets_serve_threads(void) {
    T_THREADS(4, exchange_rank, kit_new(SYMM_MESH_UNIX, 2));
    T_THREADS(4, exchange_rank, kit_new(SYMM_MESH_TCP, 0));
}

static void burst_rank(int rank, int n, void *arg) {
    kit *k = arg;
    symm_mesh *m = kit_open(k, rank, n);
    symm_wait w = kit_wait("burst", KIT_MS);
    uint8_t buf[SYMM_MESH_MAX];
    size_t got;
    for (int turn = 0; turn < 2; turn++) {
        for (unsigned i = 0; i < 1500; i++) {
            size_t bytes = i % 3 ? SYMM_MESH_MAX : i % 50;
            if (turn == rank) {
                fill(buf, bytes, i);
                T_OK(symm_mesh_send(m, !rank, SYMM_MSG_BOOT, buf, bytes, NULL, 0, &w));
            } else {
                if (i == 200) kit_sleep(30); /* the sender meets a full queue */
                T_OK(symm_mesh_recv(m, !rank, SYMM_MSG_BOOT, buf, sizeof buf, &got, NULL, 0, &w));
                T_EQ(got, bytes);
                if (bytes)
                    T_EQ(buf[bytes - 1], (uint8_t)(i * 31 + (bytes - 1) * 7 + ((bytes - 1) >> 8)));
            }
        }
    }
    symm_mesh_close(m);
}

static void bursts_arrive_whole_and_in_order(void) {
    kit_run_all(2, burst_rank, 0);
}

/* What is looked at stays where it is. */
static void next_rank(int rank, int n, void *arg) {
    kit *k = arg;
    symm_mesh *m = kit_listen(k, rank, n);
    symm_wait w = kit_wait("looking", KIT_MS);
    uint8_t buf[SYMM_MESH_MAX] = {0}, sent[SYMM_MESH_MAX];
    size_t got = 9;
    T_EQ(symm_mesh_next(m, !rank, buf, sizeof buf, &got), 0); /* not connected */
    T_OK(symm_mesh_connect(m, k->addrs, k->mailboxes, &w));
    fill(sent, sizeof sent, 7);
    if (rank) {
        kit_barrier(k, n);
        T_OK(symm_mesh_send(m, 0, SYMM_MSG_HANDLES, sent, sizeof sent, NULL, 0, &w));
        T_OK(symm_mesh_send(m, 0, SYMM_MSG_BOOT, NULL, 0, NULL, 0, &w));
    } else {
        T_EQ(symm_mesh_next(m, 1, buf, sizeof buf, &got), 0);
        T_EQ(got, 0);
        kit_barrier(k, n);
        while (!symm_mesh_next(m, 1, buf, 5, &got)) kit_sleep(1);
        T_EQ(got, 5);
        T_CHECK(!memcmp(buf, sent, 5) && !buf[5]);
        T_EQ(symm_mesh_next(m, 1, buf, sizeof buf, &got), SYMM_MSG_HANDLES);
        T_EQ(got, sizeof sent);
        T_CHECK(!memcmp(buf, sent, got));
        T_EQ(symm_mesh_next(m, 0, buf, sizeof buf, &got), 0); /* itself */
        T_EQ(symm_mesh_next(m, 2, buf, sizeof buf, &got), 0);
        T_OK(symm_mesh_recv(m, 1, SYMM_MSG_HANDLES, buf, sizeof buf, &got, NULL, 0, &w));
        T_EQ(got, sizeof sent);
        while (symm_mesh_next(m, 1, buf, sizeof buf, &got) != SYMM_MSG_BOOT) kit_sleep(1);
        T_EQ(got, 0);
        T_OK(symm_mesh_recv(m, 1, SYMM_MSG_BOOT, buf, sizeof buf, &got, NULL, 0, &w));
        T_EQ(symm_mesh_next(m, 1, buf, sizeof buf, &got), 0);
    }
    symm_mesh_close(m);
}

static void the_next_message_is_looked_at(void) {
    kit_run_all(2, next_rank, 0);
}

static void alarm_rank(int rank, int n, void *arg) {
    kit *k = arg;
    kit_alarms(1);
    for (int i = 0; i < 5; i++) {
        symm_mesh *m = kit_open(k, rank, n);
        for (int round = 0; round < 40; round++) all_to_all(m, k->kind ? 0 : 2, round);
        symm_wait w = kit_wait("agreeing", KIT_MS);
        for (int round = 0; round < 100; round++) T_OK(symm_agree(m, symmSuccess, &w, NULL));
        kit_barrier(k, n);
        symm_mesh_close(m);
    }
    kit_alarms(0);
}

static void signals_interrupt_nothing(void) {
    kit_run_all(3, alarm_rank, 0);
}

/* ---- limits ---- */

/* Lowers the limit so that exactly `more` descriptors can still be opened. */
static void limit_files(int more, struct rlimit *old) {
    struct rlimit low;
    int limit = 0;
    for (int left = more; left >= 0; limit++) left -= fcntl(limit, F_GETFD) < 0;
    T_EQ(getrlimit(RLIMIT_NOFILE, old), 0);
    low = *old;
    low.rlim_cur = (rlim_t)limit - 1; /* the last one counted is the first that may not be had */
    T_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
}

static void fd_limit_rank(int rank, int n, void *arg) {
    kit *k = arg;
    symm_mesh *m = kit_open(k, rank, n);
    symm_wait w = kit_wait("sending handles", KIT_MS);
    struct rlimit old;
    int files[5];
    size_t got;
    if (rank == 0) {
        for (int i = 0; i < 5; i++) files[i] = make_file(i);
        for (int i = 0; i < 5; i++) {
            T_OK(symm_mesh_send(m, 1, SYMM_MSG_HANDLES, &i, sizeof i, files, 5, &w));
        }
        for (int i = 0; i < 5; i++) close(files[i]);
    } else {
        for (int i = 0, v; i < 5; i++) { /* room for 0, 1, 2, 3 and then for all 5 */
            limit_files(i == 4 ? 5 : i, &old);
            symmResult_t got_code =
                symm_mesh_recv(m, 0, SYMM_MSG_HANDLES, &v, sizeof v, &got, files, 5, &w);
            setrlimit(RLIMIT_NOFILE, &old);
            T_EQ(got_code, i == 4 ? symmSuccess : symmFdLimit);
            if (i < 4) T_MSG(symm_status_text(), "of 5 file descriptors from rank 0");
            if (i < 4) T_MSG(symm_status_text(), "sending handles");
        }
        for (int i = 0; i < 5; i++) take_file(files[i], i);
    }
    symm_mesh_close(m);
}

static void a_receiver_at_its_fd_limit_says_so(void) {
    T_EXPECT_WARNINGS();
    kit_run(0, 2, fd_limit_rank, 0);
}

/* What comes as descriptor 0 is moved; where that cannot be, it is the limit that was met. */
static void stdio_rank(int rank, int n, void *arg) {
    symm_mesh *m = kit_open(arg, rank, n);
    symm_wait w = kit_wait("handles", KIT_MS);
    int files[2];
    size_t got;
    if (rank == 0) {
        for (int i = 0; i < 2; i++) files[i] = make_file(i);
        for (int i = 0; i < 2; i++)
            T_OK(symm_mesh_send(m, 1, SYMM_MSG_HANDLES, NULL, 0, files, 2, &w));
        for (int i = 0; i < 2; i++) close(files[i]);
    } else {
        int keep = fcntl(0, F_DUPFD_CLOEXEC, 100);
        close(0);
        T_EQ(symm_fail_arm("fd_stdio:error:1"), 0);
        T_ERR(symm_mesh_recv(m, 0, SYMM_MSG_HANDLES, NULL, 0, &got, files, 2, &w), symmFdLimit);
        T_OK(symm_mesh_recv(m, 0, SYMM_MSG_HANDLES, NULL, 0, &got, files, 2, &w));
        T_EQ(fcntl(0, F_GETFD), -1);
        for (int i = 0; i < 2; i++) take_file(files[i], i);
        T_EQ(dup2(keep, 0), 0);
        close(keep);
    }
    symm_mesh_close(m);
}

static void a_received_descriptor_is_moved_or_refused(void) {
    T_EXPECT_WARNINGS();
    kit_run(0, 2, stdio_rank, 0);
}

static void no_fd_for_a_listener(void) {
    symm_mesh_addr mine;
    symm_mesh *m;
    struct rlimit old;
    T_EXPECT_WARNINGS();
    limit_files(0, &old);
    symmResult_t code = symm_mesh_listen(0, 2, SYMM_MESH_UNIX, NULL, &mine, &m);
    setrlimit(RLIMIT_NOFILE, &old);
    T_EQ(code, symmFdLimit);
    T_MSG(symm_status_text(), "ulimit -n");
}

static void no_fd_rank(int rank, int n, void *arg) {
    kit *k = arg;
    symm_mesh *m = kit_listen(k, rank, n);
    symm_wait w = kit_wait("connecting", KIT_MS);
    struct rlimit old;
    if (rank == k->value) limit_files(0, &old);
    symmResult_t code = symm_mesh_connect(m, k->addrs, NULL, &w);
    if (rank == k->value) setrlimit(RLIMIT_NOFILE, &old);
    /* Who cannot accept has nobody to tell; who cannot connect finds a descriptor for that, once
     * its listener is gone. */
    T_EQ(code, rank == 1 && k->value == 0 ? symmRemoteError : symmFdLimit);
    T_MSG(symm_status_text(), code == symmFdLimit        ? "file descriptor"
                              : k->kind == SYMM_MESH_TCP ? "rank 0 at 127.0.0.1:"
                                                         : "rank 0 died or left");
    symm_mesh_close(m);
}

static void no_fd_for_a_connection(void) {
    T_EXPECT_WARNINGS();
    for (int value = 0; value < 2; value++) { /* accepting, connecting */
        kit_run(SYMM_MESH_UNIX, 2, no_fd_rank, value);
        kit_run(SYMM_MESH_TCP, 2, no_fd_rank, value);
    }
}

static void surplus_rank(int rank, int n, void *arg) {
    symm_mesh *m = kit_open(arg, rank, n);
    symm_wait w = kit_wait("handles", KIT_MS);
    int files[4], value = 7;
    size_t got;
    if (rank == 0) {
        for (int i = 0; i < 4; i++) files[i] = make_file(i);
        T_OK(symm_mesh_send(m, 1, SYMM_MSG_HANDLES, NULL, 0, files, 4, &w));
        T_OK(symm_mesh_send(m, 1, SYMM_MSG_HANDLES, NULL, 0, files, 1, &w));
        T_OK(symm_mesh_send(m, 1, SYMM_MSG_BOOT, "twelve bytes", 12, NULL, 0, &w));
        T_OK(symm_mesh_send(m, 1, SYMM_MSG_VOTE, &value, sizeof value, files, 4, &w));
        T_OK(symm_mesh_send(m, 1, SYMM_MSG_BOOT, &value, sizeof value, NULL, 0, &w));
        for (int i = 0; i < 4; i++) close(files[i]);
    } else {
        T_ERR(symm_mesh_recv(m, 0, SYMM_MSG_HANDLES, NULL, 0, &got, files, 2, &w),
              symmInternalError);
        T_MSG(symm_status_text(), "sent 4 fds");
        T_ERR(symm_mesh_recv(m, 0, SYMM_MSG_HANDLES, NULL, 0, &got, files, 2, &w),
              symmInternalError);
        T_MSG(symm_status_text(), "sent 1 fds");
        T_ERR(symm_mesh_recv(m, 0, SYMM_MSG_BOOT, &value, 4, &got, NULL, 0, &w), symmInternalError);
        T_MSG(symm_status_text(), "sent 12 bytes, expected at most 4");
        T_ERR(symm_mesh_recv(m, 0, SYMM_MSG_BOOT, &value, 4, &got, NULL, 0, &w), symmInternalError);
        T_MSG(symm_status_text(), "sent VOTE where BOOT was expected (handles)");
        T_OK(symm_mesh_recv(m, 0, SYMM_MSG_BOOT, &value, 4, &got, NULL, 0, &w)); /* in step again */
        T_EQ(value, 7);
    }
    symm_mesh_close(m);
}

static void surplus_and_unexpected_are_refused(void) {
    T_EXPECT_WARNINGS();
    kit_run(0, 2, surplus_rank, 0);
}

/* As many fds as come, up to what was asked for; in step after one too many. */
static void some_rank(int rank, int n, void *arg) {
    symm_mesh *m = kit_open(arg, rank, n);
    symm_wait w = kit_wait("handles", 20000);
    int files[4], value = 7;
    size_t got;
    if (rank == 0) {
        for (int i = 0; i < 4; i++) files[i] = make_file(i);
        for (int i = 0; i < 5; i++)
            T_OK(symm_mesh_send(m, 1, SYMM_MSG_HANDLES, &value, sizeof value, files, i, &w));
        T_OK(symm_mesh_send(m, 1, SYMM_MSG_HANDLES, &value, sizeof value, files, 2, &w));
        for (int i = 0; i < 4; i++) close(files[i]);
    } else {
        for (int i = 0, nfds = 3; i < 4; i++, nfds = 3) {
            T_OK(symm_mesh_recv_some(m, 0, SYMM_MSG_HANDLES, &value, 4, &got, files, &nfds, &w));
            T_CHECK(nfds == i && got == 4 && value == 7);
            for (int k = 0; k < i; k++) take_file(files[k], k);
        }
        int nfds = 3;
        T_ERR(symm_mesh_recv_some(m, 0, SYMM_MSG_HANDLES, &value, 4, &got, files, &nfds, &w),
              symmInternalError);
        T_MSG(symm_status_text(), "sent 4 fds");
        nfds = 2;
        T_OK(symm_mesh_recv_some(m, 0, SYMM_MSG_HANDLES, &value, 4, &got, files, &nfds, &w));
        for (int k = 0; k < 2; k++) take_file(files[k], k);
    }
    symm_mesh_close(m);
}

static void as_many_fds_as_come(void) {
    T_EXPECT_WARNINGS();
    kit_run(0, 2, some_rank, 0);
}

static void bad_rank(int rank, int n, void *arg) {
    kit *k = arg;
    symm_mesh *m = kit_open(k, rank, n);
    symm_wait w = kit_wait("misuse", 200);
    char big[SYMM_MESH_MAX + 1] = {0};
    int fd = 0;
    T_ERR(symm_mesh_send(m, rank, SYMM_MSG_BOOT, big, 1, NULL, 0, &w), symmInternalError);
    T_ERR(symm_mesh_send(m, n, SYMM_MSG_BOOT, big, 1, NULL, 0, &w), symmInternalError);
    T_ERR(symm_mesh_send(m, -1, SYMM_MSG_BOOT, big, 1, NULL, 0, &w), symmInternalError);
    T_ERR(symm_mesh_send(m, !rank, SYMM_MSG_BOOT, big, sizeof big, NULL, 0, &w), symmInternalError);
    T_ERR(symm_mesh_send(m, !rank, SYMM_MSG_BOOT, big, 1, &fd, SYMM_MESH_FDS + 1, &w),
          symmInternalError);
    T_ERR(symm_mesh_recv(m, n, SYMM_MSG_BOOT, big, 1, NULL, NULL, 0, &w), symmInternalError);
    if (k->threads) {
        T_ERR(symm_mesh_send(m, !rank, SYMM_MSG_HANDLES, NULL, 0, &fd, 1, &w), symmInternalError);
        T_MSG(symm_status_text(), "threads pass none");
    } else if (k->kind == SYMM_MESH_TCP) {
        T_ERR(symm_mesh_send(m, !rank, SYMM_MSG_HANDLES, NULL, 0, &fd, 1, &w), symmInternalError);
        T_MSG(symm_status_text(), "ranks of several hosts pass none");
    }
    T_EQ(symm_mesh_fd(m, n), -1);
    T_EQ(symm_mesh_alive(m, n), 0);
    T_EQ(symm_mesh_hung_up(m, -1), 0);
    symm_mesh_mark_dead(m, n);
    symm_mesh_mark_dead(m, rank);
    T_EQ(symm_mesh_alive(m, rank), 1);
    kit_barrier(k, n);
    symm_mesh_close(m);
}

static void misuse_is_refused(void) {
    symm_mesh_addr mine;
    symm_mesh *m;
    T_EXPECT_WARNINGS();
    kit_run_all(2, bad_rank, 0);
    T_ERR(symm_mesh_listen(2, 2, SYMM_MESH_UNIX, NULL, &mine, &m), symmInternalError);
    T_ERR(symm_mesh_listen(-1, 2, SYMM_MESH_THREADS, NULL, &mine, &m), symmInternalError);
    symm_mesh_close(NULL);
}

/* ---- deadlines ---- */

static void missing_rank(int rank, int n, void *arg) {
    kit *k = arg;
    symm_mesh *m = kit_listen(k, rank, n);
    symm_wait w = kit_wait("connecting", 300);
    uint64_t start = symm_now_ns();
    if (rank < 2) {
        T_ERR(symm_mesh_connect(m, k->addrs, k->mailboxes, &w), symmTimeout);
        T_MSG(symm_status_text(), "ranks 2, 3 did not come before the deadline (connecting)");
        T_CHECK(symm_now_ns() - start < 3000000000ull);
    }
    kit_barrier(k, n); /* ranks 2 and 3 live, but do not come */
    if (k->threads && rank >= 2) {
        T_ERR(symm_mesh_connect(m, k->addrs, k->mailboxes, &w), symmTimeout);
        T_MSG(symm_status_text(), "rank 0 revoked: ranks 2, 3 did not come");
    }
    kit_barrier(k, n);
    symm_mesh_close(m);
}

static void missing_ranks_are_named(void) {
    T_EXPECT_WARNINGS();
    kit_run_all(4, missing_rank, 0);
}

static symmResult_t check_countdown(void *arg) {
    int *left = arg;
    return --*left > 0 ? symmSuccess : symmAborted;
}

static void silent_rank(int rank, int n, void *arg) {
    kit *k = arg;
    symm_mesh *m = kit_open(k, rank, n);
    if (rank == 0) {
        static char buf[SYMM_MESH_MAX]; /* TCP has room for megabytes */
        int left = 10;
        symm_wait w = kit_wait("hearing from you", 200);
        T_ERR(symm_mesh_recv(m, 1, SYMM_MSG_BOOT, buf, 8, NULL, NULL, 0, &w), symmTimeout);
        T_MSG(symm_status_text(), "rank 1 did not come before the deadline (hearing from you)");
        w = kit_wait("filling", 300);
        symmResult_t code = symmSuccess;
        for (int i = 0; code == symmSuccess && i < 100000; i++) {
            code = symm_mesh_send(m, 1, SYMM_MSG_BOOT, buf, k->kind ? sizeof buf : 8, NULL, 0, &w);
        }
        T_EQ(code, symmTimeout);
        w = (symm_wait){.stage = "no deadline", .check = check_countdown, .arg = &left};
        T_ERR(symm_mesh_recv(m, 1, SYMM_MSG_BOOT, buf, 8, NULL, NULL, 0, &w), symmAborted);
    }
    kit_barrier(k, n);
    symm_mesh_close(m);
}

static void waits_end_by_deadline_and_check(void) {
    T_EXPECT_WARNINGS();
    kit_run_all(2, silent_rank, 0);
}

/* ---- revocation ---- */

static void revoked_rank(int rank, int n, void *arg) {
    kit *k = arg;
    symm_mesh *m = kit_open(k, rank, n);
    symm_wait w = kit_wait("a vote", KIT_MS);
    int value = 41;
    if (rank == 1) {
        T_OK(symm_mesh_send(m, 0, SYMM_MSG_VOTE, &value, sizeof value, NULL, 0, &w));
        symm_agree_revoke(m, symmOutOfMemory, 1, "a stage", "rank 1 has no memory");
        T_OK(symm_mesh_send(m, 0, SYMM_MSG_COMMIT, NULL, 0, NULL, 0,
                            &w)); /* stale when it is read */
        symm_agree_revoke(m, symmOutOfMemory, 1, "a stage", "once more");
        value++;
        T_OK(symm_mesh_send(m, 0, SYMM_MSG_BOOT, &value, sizeof value, NULL, 0, &w));
    } else if (rank == 0) {
        T_OK(symm_mesh_recv(m, 1, SYMM_MSG_VOTE, &value, sizeof value, NULL, NULL, 0, &w));
        T_ERR(symm_mesh_recv(m, 1, SYMM_MSG_VOTE, &value, sizeof value, NULL, NULL, 0, &w),
              symmOutOfMemory);
        T_STREQ(symm_status_text(), "rank 1 revoked: rank 1 has no memory");
        T_OK(symm_mesh_recv(m, 1, SYMM_MSG_BOOT, &value, sizeof value, NULL, NULL, 0, &w));
        T_EQ(value, 42);
    } else {
        T_ERR(symm_agree(m, symmSuccess, &w, NULL), symmOutOfMemory);
        T_ERR(symm_agree(m, symmSuccess, &w, NULL), symmAborted);
    }
    kit_barrier(k, n);
    symm_mesh_close(m);
}

static void a_revocation_is_obeyed_and_then_passed_over(void) {
    T_EXPECT_WARNINGS();
    kit_run_all(3, revoked_rank, 0);
}

/* ---- failpoints ---- */

static void failpoint_rank(int rank, int n, void *arg) {
    kit *k = arg;
    symm_mesh *m;
    symm_wait w = kit_wait("points", KIT_MS);
    symm_log_rank(rank);
    if (rank == 0) {
        T_EQ(symm_fail_arm("mesh_socket:error:1:0,mesh_send:error:1:0,mesh_recv:error:1:0"), 0);
        T_ERR(symm_mesh_listen(rank, n, k->kind, "lo", &k->addrs[rank], &m), symmSystemError);
        T_MSG(symm_status_text(), "failpoint mesh_socket");
    }
    kit_barrier(k, n);
    m = kit_open(k, rank, n);
    int v = 5;
    if (rank == 0) {
        T_ERR(symm_mesh_send(m, 1, SYMM_MSG_BOOT, &v, sizeof v, NULL, 0, &w), symmSystemError);
        T_MSG(symm_status_text(), "failpoint mesh_send: BOOT to rank 1 (points)");
        T_OK(symm_mesh_send(m, 1, SYMM_MSG_BOOT, &v, sizeof v, NULL, 0, &w));
        T_ERR(symm_mesh_recv(m, 1, SYMM_MSG_BOOT, &v, sizeof v, NULL, NULL, 0, &w),
              symmSystemError);
        T_MSG(symm_status_text(), "failpoint mesh_recv");
        T_OK(symm_mesh_recv(m, 1, SYMM_MSG_BOOT, &v, sizeof v, NULL, NULL, 0, &w));
    } else {
        T_OK(symm_mesh_recv(m, 0, SYMM_MSG_BOOT, &v, sizeof v, NULL, NULL, 0, &w));
        T_OK(symm_mesh_send(m, 0, SYMM_MSG_BOOT, &v, sizeof v, NULL, 0, &w));
    }
    kit_barrier(k, n);
    symm_mesh_close(m);
}

static void failpoints_fail_with_their_name(void) {
    T_EXPECT_WARNINGS();
    kit_run_all(2, failpoint_rank, 0);
}

/* ---- mailboxes ---- */

static void shared_mailboxes_end_with_their_users(void) {
    symm_mesh_addr mine;
    symm_mesh *m;
    void *shared;
    symm_wait w = kit_wait("joining late", 50);
    T_EXPECT_WARNINGS();
    T_OK(symm_mesh_share(3, &shared));
    symm_mesh_unshare(shared); /* nobody came */
    T_OK(symm_mesh_share(3, &shared));
    symm_mesh_share_ref(shared);
    symm_mesh_unshare(shared); /* rank 0 has given up; rank 1 is in time */
    T_OK(symm_mesh_listen(1, 3, SYMM_MESH_THREADS, NULL, &mine, &m));
    T_ERR(symm_mesh_connect(m, &mine, shared, &w), symmTimeout);
    symm_mesh_close(m);
    T_OK(symm_mesh_share(3, &shared));
    T_OK(symm_mesh_listen(0, 2, SYMM_MESH_THREADS, NULL, &mine, &m));
    T_ERR(symm_mesh_connect(m, &mine, shared, &w), symmInternalError);
    symm_mesh_close(m);
}

T_MAIN(T(processes_exchange_messages_and_fds), T(threads_exchange_messages),
       T(hosts_exchange_messages), T(threads_are_seventy_two), T(sockets_serve_threads),
       T(bursts_arrive_whole_and_in_order), T(the_next_message_is_looked_at),
       T(signals_interrupt_nothing), T(a_receiver_at_its_fd_limit_says_so),
       T(a_received_descriptor_is_moved_or_refused), T(no_fd_for_a_listener),
       T(no_fd_for_a_connection), T(surplus_and_unexpected_are_refused), T(as_many_fds_as_come),
       T(misuse_is_refused), T(missing_ranks_are_named), T(waits_end_by_deadline_and_check),
       T(a_revocation_is_obeyed_and_then_passed_over), T(failpoints_fail_with_their_name),
       T(shared_mailboxes_end_with_their_users))
