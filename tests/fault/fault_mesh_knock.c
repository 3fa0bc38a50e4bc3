/* fault_mesh_knock.c - ranks of several hosts that are late when the control mesh connects: one
 * that has died is missed, one that lives is waited for, whatever stands between. Ranks are forked;
 * no lock. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "fault_kit.h"

#include <fcntl.h>
#include <sys/resource.h>

#include "transport/boot/tcp_socket.h"

enum { LATE_MS = 1000, PATIENCE_MS = 2000 };

static void expect_refusal(symm_mesh *m, const kit *k, int victim, int least, int most) {
    symm_wait w = kit_wait("connecting", KIT_MS);
    char text[48];
    const uint64_t start = symm_now_ns();
    T_ERR(symm_mesh_connect(m, k->addrs, NULL, &w), symmRemoteError);
    const int ms = (int)fk_ms_since(start);
    T_CHECKF(ms >= least && ms < most, "it took %d ms: %s", ms, symm_status_text());
    snprintf(text, sizeof text, "cannot reach rank %d at 127.0.0.1:", victim);
    T_MSG(symm_status_text(), text);
    T_MSG(symm_status_text(), "Connection refused (it died or left, or a firewall refuses)");
}

/* The highest rank dies, so no other one connects to it. value: whether it is there for a while. */
static void dying_rank(int rank, int n, void *arg) {
    kit *k = arg;
    symm_mesh *m = kit_listen(k, rank, n);
    symm_mesh_patience(m, PATIENCE_MS);
    if (rank == n - 1) {
        if (k->value) kit_sleep(LATE_MS);
        kill(getpid(), SIGKILL);
    }
    if (!k->value) kit_sleep(100);
    if (k->value)
        expect_refusal(m, k, n - 1, 0, LATE_MS + 1500);
    else
        expect_refusal(m, k, n - 1, PATIENCE_MS, PATIENCE_MS + 2000);
    kit_barrier(k, n - 1);
    symm_mesh_close(m);
}

static void who_was_there_and_died_is_missed_soon(void) {
    T_EXPECT_WARNINGS();
    for (int n = 2; n <= 4; n++) T_FORK_DIES(n, n - 1, dying_rank, kit_new(SYMM_MESH_TCP, 1));
}

static void who_was_never_there_is_missed_later(void) {
    T_EXPECT_WARNINGS();
    for (int n = 2; n <= 3; n++) T_FORK_DIES(n, n - 1, dying_rank, kit_new(SYMM_MESH_TCP, 0));
}

/* value: a firewall refuses what the others send it. They find nobody at its address. */
static void late_rank(int rank, int n, void *arg) {
    kit *k = arg;
    symm_mesh *m = kit_listen(k, rank, n);
    symm_wait w = kit_wait("connecting", KIT_MS);
    const int64_t before = SYMM_STAT_GET(intruders);
    if (k->value && rank < n - 1) {
        struct sockaddr_storage addr;
        int door;
        T_OK(symm_tcp_listen("lo", "a test", 1, &addr, &door));
        close(door);
        SYMM_STAT_ADD(fds, -1);
        symm_mesh_addr addrs[KIT_RANKS];
        memcpy(addrs, k->addrs, sizeof addrs);
        symm_tcp_address_put(&addr, (uint8_t *)addrs[n - 1].name);
        T_OK(symm_mesh_connect(m, addrs, NULL, &w));
    } else {
        if (rank == n - 1) kit_sleep(LATE_MS);
        T_OK(symm_mesh_connect(m, k->addrs, NULL, &w));
    }
    T_OK(symm_agree(m, symmSuccess, &w, NULL));
    T_EQ(SYMM_STAT_GET(intruders) - before, 0); /* who knocks is no stranger */
    T_EQ(SYMM_STAT_GET(fds), n - 1);            /* no knock is left */
    symm_mesh_close(m);
}

static void who_is_late_is_waited_for(void) {
    for (int n = 2; n <= 4; n++) T_FORK(n, late_rank, kit_new(SYMM_MESH_TCP, 0));
}

static void a_firewall_that_refuses_is_no_death(void) {
    T_FORK(3, late_rank, kit_new(SYMM_MESH_TCP, 1));
}

/* It closes its listener, and says why in the next moment. */
static void leaving_rank(int rank, int n, void *arg) {
    kit *k = arg;
    symm_mesh *m = kit_listen(k, rank, n);
    symm_wait w = kit_wait("connecting", KIT_MS);
    if (rank == n - 1) {
        T_EQ(symm_fail_arm("mesh_connect:delay=1000:1,mesh_connect:error:1"), 0);
    }
    T_ERR(symm_mesh_connect(m, k->addrs, NULL, &w), symmSystemError);
    T_MSG(symm_status_text(), "failpoint mesh_connect: to rank 0");
    kit_barrier(k, n);
    symm_mesh_close(m);
}

static void who_gives_up_late_says_why(void) {
    T_EXPECT_WARNINGS();
    for (int n = 2; n <= 3; n++) T_FORK(n, leaving_rank, kit_new(SYMM_MESH_TCP, 0));
}

/* value: room for so many descriptors. The knock takes the last one, which the rank needs that is
 * late. */
static void short_rank(int rank, int n, void *arg) {
    kit *k = arg;
    symm_mesh *m = kit_listen(k, rank, n);
    symm_wait w = kit_wait("connecting", KIT_MS);
    struct rlimit was, few;
    T_EQ(getrlimit(RLIMIT_NOFILE, &was), 0);
    few = was;
    if (rank == 0) {
        const int lowest = fcntl(0, F_DUPFD_CLOEXEC, 3);
        T_CHECK(lowest >= 0);
        close(lowest);
        few.rlim_cur = (rlim_t)(lowest + k->value);
        T_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
    } else {
        kit_sleep(LATE_MS);
    }
    T_OK(symm_mesh_connect(m, k->addrs, NULL, &w));
    T_EQ(setrlimit(RLIMIT_NOFILE, &was), 0);
    symm_mesh_close(m);
}

static void a_knock_takes_no_descriptor_from_a_rank(void) {
    T_FORK(2, short_rank, kit_new(SYMM_MESH_TCP, 1));
}

T_MAIN(T(who_was_there_and_died_is_missed_soon), T(who_was_never_there_is_missed_later),
       T(who_is_late_is_waited_for), T(a_firewall_that_refuses_is_no_death),
       T(who_gives_up_late_says_why), T(a_knock_takes_no_descriptor_from_a_rank))
