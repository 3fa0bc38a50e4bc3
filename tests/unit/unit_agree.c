/* unit_agree.c - the status-carrying agreement: every rank leaves with the same code and text,
 * whoever fails, and with symmRemoteError naming the dead, whoever dies. Ranks are forked processes
 * or threads; no lock. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "mesh_kit.h"

/* ---- outcomes ---- */

/* Rank r reports an error if bit r of the mask is set. All leave with the lowest one's code and
 * text. */
static void vote_rank(int rank, int n, void *arg) {
    kit *k = arg;
    symm_mesh *m = kit_open(k, rank, n);
    for (int mask = 0; mask < (n < 8 ? 1 << n : 64); mask++) {
        symm_wait w = kit_wait("testing votes", KIT_MS);
        symmResult_t mine = symmSuccess, want = symmSuccess;
        char text[128] = "";
        int lowest = mask ? __builtin_ctz((unsigned)mask) : -1, dead = 99;
        if (mask >> rank & 1) mine = SYMM_ERR(4 + rank, "thing %d of rank %d", mask, rank);
        if (mask) want = 4 + lowest;
        T_EQ(symm_agree(m, mine, &w, &dead), want);
        T_EQ(dead, -1);
        if (!mask) continue;
        snprintf(text, sizeof text, "rank %d: thing %d of rank %d (testing votes)", lowest, mask,
                 lowest);
        if (n > 1) T_STREQ(symm_status_text(), text);
    }
    kit_barrier(k, n);
    symm_mesh_close(m);
}

static void errors_on_any_ranks_are_everybodys(void) {
    static const int sizes[] = {1, 2, 3, 5, 8};
    T_EXPECT_WARNINGS();
    for (int i = 0; i < 5; i++) {
        kit_run_all(sizes[i], vote_rank, 0);
    }
}

static void many_rank(int rank, int n, void *arg) {
    kit *k = arg;
    symm_mesh *m = kit_open(k, rank, n);
    for (int i = 0; i < k->value; i++) {
        symm_wait w = kit_wait("agreeing often", KIT_MS);
        T_OK(symm_agree(m, symmSuccess, &w, NULL));
    }
    uint64_t start = symm_now_ns();
    for (int i = 0; i < k->value; i++) {
        symm_wait w = kit_wait("agreeing often", KIT_MS);
        T_OK(symm_agree(m, symmSuccess, &w, NULL));
    }
    uint64_t each = (symm_now_ns() - start) / (uint64_t)k->value;
    if (rank == 0) printf("%d ranks, kind %d: %llu ns\n", n, k->kind, (unsigned long long)each);
    T_CHECKF(each < 1000000000, "an agreement of %d ranks takes %llu ns", n,
             (unsigned long long)each);
    kit_barrier(k, n);
    symm_mesh_close(m);
}

static void agreements_follow_each_other(void) {
    for (int n = 2; n <= 8; n *= 2) kit_run_all(n, many_rank, 500);
}

static void seventy_two_threads_agree(void) {
    kit_run(1, 72, many_rank, 3);
}

/* What a communicator might poll: the end of any connection. */
static symmResult_t check_ends(void *arg) {
    symm_mesh *m = arg;
    for (int p = 0; p < symm_mesh_nranks(m); p++) {
        if (!symm_mesh_hung_up(m, p)) continue;
        symm_mesh_mark_dead(m, p);
        symm_status_adopt("somebody hung up");
        return symmRemoteError;
    }
    return symmSuccess;
}

/* One rank fails, everybody closes at once: who is quick must not look dead to who is slow. */
static void leave_rank(int rank, int n, void *arg) {
    kit *k = arg;
    for (int i = 0; i < 25; i++) {
        symm_mesh *m = kit_open(k, rank, n);
        symm_wait w = kit_wait("leaving", KIT_MS);
        symmResult_t mine = symmSuccess;
        int bad = i % 2 ? i % n : -1;
        w.check = check_ends;
        w.arg = m;
        if (rank == bad) mine = SYMM_ERR(symmOutOfMemory, "no memory");
        if (rank == i / 2 % n) kit_sleep(2);
        T_EQ(symm_agree(m, mine, &w, NULL), bad < 0 ? symmSuccess : symmOutOfMemory);
        if (bad >= 0) T_MSG(symm_status_text(), "no memory");
        symm_mesh_close(m);
        kit_barrier(k, n);
    }
}

static void leaving_at_once_changes_nothing(void) {
    T_EXPECT_WARNINGS();
    kit_run_all(5, leave_rank, 0);
}

static void alarm_rank(int rank, int n, void *arg) {
    kit *k = arg;
    kit_alarms(1);
    many_rank(rank, n, k);
    kit_alarms(0);
}

static void signals_interrupt_no_agreement(void) {
    kit_run_all(4, alarm_rank, 300);
}

/* ---- failures inside ---- */

static void point_rank(int rank, int n, void *arg) {
    kit *k = arg;
    static const char *const points[] = {"agree_enter", "agree_commit", "mesh_send"};
    symm_log_rank(rank);
    for (int point = 0; point < 3; point++) {
        for (int bad = 0; bad < n; bad++) {
            char spec[64];
            symm_mesh *m = kit_open(k, rank, n);
            symm_wait w = kit_wait("points", KIT_MS);
            snprintf(spec, sizeof spec, "%s:error:1:%d", points[point], bad);
            if (!k->threads || rank == 0) T_EQ(symm_fail_arm(spec), 0);
            kit_barrier(k, n);
            T_ERR(symm_agree(m, symmSuccess, &w, NULL), symmSystemError);
            T_MSG(symm_status_text(), points[point]);
            T_MSG(symm_status_text(), "points");
            kit_barrier(k, n);
            symm_mesh_close(m);
        }
    }
}

static void failpoints_fail_everybody_alike(void) {
    T_EXPECT_WARNINGS();
    kit_run(0, 1, vote_rank, 0);
    kit_run_all(3, point_rank, 0);
}

static void one_rank_meets_its_failpoint(void) {
    symm_mesh_addr mine;
    symm_mesh *m;
    symm_wait w = kit_wait("alone", KIT_MS);
    T_EXPECT_WARNINGS();
    T_OK(symm_mesh_listen(0, 1, SYMM_MESH_UNIX, NULL, &mine, &m));
    T_OK(symm_mesh_connect(m, &mine, NULL, &w));
    T_EQ(symm_fail_arm("agree_enter:error:1"), 0);
    T_ERR(symm_agree(m, symmSuccess, &w, NULL), symmSystemError);
    T_OK(symm_agree(m, symmSuccess, &w, NULL));
    T_EQ(symm_fail_arm("agree_commit:error:1"), 0);
    T_ERR(symm_agree(m, symmSuccess, &w, NULL), symmSystemError);
    symm_mesh_close(m);
}

static void late_rank(int rank, int n, void *arg) {
    kit *k = arg;
    symm_mesh *m = kit_open(k, rank, n);
    symm_wait w = kit_wait("being in time", 300);
    int late = rank >= 2, dead = 99;
    uint64_t start = symm_now_ns();
    if (late) kit_sleep(900);
    w.deadline_ns += late ? 20000000000ull : 0;
    T_ERR(symm_agree(m, symmSuccess, &w, &dead), symmTimeout);
    T_EQ(dead, -1);
    if (!late)
        T_MSG(symm_status_text(), "ranks 2, 3 did not come before the deadline (being in time)");
    if (late) T_MSG(symm_status_text(), "revoked: ranks 2, 3 did not come");
    T_CHECK(symm_now_ns() - start < 5000000000ull);
    kit_barrier(k, n);
    symm_mesh_close(m);
}

static void the_late_are_named_and_told(void) {
    T_EXPECT_WARNINGS();
    kit_run_all(4, late_rank, 0);
}

static symmResult_t check_aborted(void *arg) {
    _Atomic int *calls = arg;
    return atomic_fetch_add(calls, 1) < 5 ? symmSuccess : symmAborted;
}

static void check_rank(int rank, int n, void *arg) {
    kit *k = arg;
    symm_mesh *m = kit_open(k, rank, n);
    symm_wait w = kit_wait("checking", KIT_MS);
    _Atomic int calls = 0;
    if (rank == 1) {
        w.check = check_aborted;
        w.arg = &calls;
    }
    if (rank == 2) kit_await_flag(k, 1); /* keeps the others inside until rank 1 has given up */
    T_ERR(symm_agree(m, symmSuccess, &w, NULL), symmAborted);
    if (rank == 1) atomic_store(&k->flag, 1);
    kit_barrier(k, n);
    symm_mesh_close(m);
}

static void a_check_ends_it_for_all(void) {
    T_EXPECT_WARNINGS();
    kit_run_all(3, check_rank, 0);
}

/* ---- deaths ---- */

/* value: the rank that dies of its failpoint (text[0]); flag: the outcome may split. */
static void death_rank(int rank, int n, void *arg) {
    kit *k = arg;
    symm_mesh *m = kit_open(k, rank, n);
    symm_wait w = kit_wait("surviving", KIT_MS);
    char who[32];
    int dead = -1;
    kit_barrier(k, n); /* nobody is still connecting */
    uint64_t start = symm_now_ns();
    if (rank == k->value) T_EQ(symm_fail_arm(k->text[0]), 0);
    symmResult_t code = symm_agree(m, symmSuccess, &w, &dead);
    /* Only who dies while its confirmations leave may split the outcome; the next call meets the
     * death. */
    if (code == symmSuccess && k->flag) code = symm_agree(m, symmSuccess, &w, &dead);
    T_EQ(code, symmRemoteError);
    T_EQ(dead, k->value);
    T_EQ(symm_mesh_alive(m, k->value), 0);
    snprintf(who, sizeof who, "rank %d died or left (surviving)", k->value);
    T_MSG(symm_status_text(), who);
    T_CHECK(symm_now_ns() - start < 1000000000ull);
    symm_mesh_close(m);
}

static void die_at(int n, int rank, const char *spec, int may_split) {
    for (int kind = SYMM_MESH_UNIX; kind <= SYMM_MESH_TCP; kind += SYMM_MESH_TCP) {
        kit *k = kit_new(kind, rank);
        snprintf(k->text[0], sizeof k->text[0], "%s", spec);
        k->flag = may_split;
        T_FORK_DIES(n, rank, death_rank, k);
    }
}

static void a_death_reaches_everybody(void) {
    T_EXPECT_WARNINGS();
    for (int n = 2; n <= 5; n++) {
        for (int rank = 0; rank < n; rank++) {
            die_at(n, rank, "agree_enter:kill", 0);
            die_at(n, rank, "agree_commit:kill", 0);
        }
    }
}

static void a_death_between_messages_hangs_nobody(void) {
    char spec[64];
    T_EXPECT_WARNINGS();
    for (int nth = 1; nth <= 6; nth++) { /* 4 ranks: 3 votes, then 3 confirmations */
        snprintf(spec, sizeof spec, "mesh_send:kill:%d", nth);
        for (int rank = 0; rank < 4; rank++) die_at(4, rank, spec, nth > 3);
    }
}

/* Rank 1 dies after its vote, rank 2 is slow: rank 0 must not wait for rank 2 to learn it. */
static void slow_rank(int rank, int n, void *arg) {
    kit *k = arg;
    symm_mesh *m = kit_open(k, rank, n);
    symm_wait w = kit_wait("surviving", KIT_MS);
    int dead = -1;
    kit_barrier(k, n);
    if (rank == 1) {
        symm_vote vote = {.code = symmSuccess, .rank = 1};
        T_OK(symm_mesh_send(m, 0, SYMM_MSG_VOTE, &vote, sizeof vote, NULL, 0, &w));
        T_OK(symm_mesh_send(m, 2, SYMM_MSG_VOTE, &vote, sizeof vote, NULL, 0, &w));
        kit_sleep(100);
        kill(getpid(), SIGKILL);
    }
    if (rank == 2) kit_await_flag(k, 1);
    uint64_t start = symm_now_ns();
    T_ERR(symm_agree(m, symmSuccess, &w, &dead), symmRemoteError);
    T_EQ(dead, 1);
    T_MSG(symm_status_text(), "rank 1 died or left (surviving)");
    T_CHECK(symm_now_ns() - start < 600000000ull);
    atomic_store(&k->flag, 1);
    symm_mesh_close(m);
}

static void a_death_is_seen_while_another_is_slow(void) {
    T_EXPECT_WARNINGS();
    T_FORK_DIES(3, 1, slow_rank, kit_new(SYMM_MESH_UNIX, 0));
    T_FORK_DIES(3, 1, slow_rank, kit_new(SYMM_MESH_TCP, 0));
}

static void quit_rank(int rank, int n, void *arg) {
    kit *k = arg;
    symm_mesh *m = kit_open(k, rank, n);
    symm_wait w = kit_wait("staying", KIT_MS);
    int dead = -1;
    kit_barrier(k, n);
    if (rank == n - 1) {
        kit_sleep(50);
        symm_mesh_close(m); /* without a word */
        return;
    }
    T_ERR(symm_agree(m, symmSuccess, &w, &dead), symmRemoteError);
    T_EQ(dead, n - 1);
    kit_sleep(20);
    symm_mesh_close(m);
}

static void a_closed_mesh_is_a_death(void) {
    T_EXPECT_WARNINGS();
    kit_run_all(3, quit_rank, 0);
}

/* Rank 2 left a step early, for rank 1 gave up, and finds what rank 0 had sent for that step. */
static void early_rank(int rank, int n, void *arg) {
    kit *k = arg;
    symm_mesh *m = kit_open(k, rank, n);
    symm_wait w = kit_wait("coming early", KIT_MS);
    if (rank == 0) T_OK(symm_mesh_send(m, 2, SYMM_MSG_BOOT, NULL, 0, NULL, 0, &w));
    if (rank == 1) symm_agree_revoke(m, symmOutOfMemory, 1, "a stage", "no memory there");
    kit_barrier(k, n);
    if (rank == 2) {
        T_ERR(symm_agree(m, symmRemoteError, &w, NULL), symmOutOfMemory);
        T_MSG(symm_status_text(), "rank 1 revoked: no memory there");
    }
    kit_barrier(k, n);
    symm_mesh_close(m);
}

static void who_comes_early_learns_why(void) {
    T_EXPECT_WARNINGS();
    kit_run_all(3, early_rank, 0);
}

/* A check that sees the end of a rank which gave up must not hide why it did. */
static void cause_rank(int rank, int n, void *arg) {
    kit *k = arg;
    symm_mesh *m = kit_open(k, rank, n);
    symm_wait w = kit_wait("asking why", KIT_MS);
    w.check = check_ends;
    w.arg = m;
    kit_barrier(k, n);
    if (rank == 1) symm_agree_revoke(m, symmOutOfMemory, 1, "a stage", "no memory there");
    if (rank == 0) { /* waits for rank 2 */
        T_ERR(symm_mesh_recv(m, 2, SYMM_MSG_BOOT, NULL, 0, NULL, NULL, 0, &w), symmOutOfMemory);
        T_MSG(symm_status_text(), "rank 1 revoked: no memory there");
    }
    if (rank == 2) {
        kit_await_flag(k, 1);
        T_ERR(symm_agree(m, symmSuccess, &w, NULL), symmOutOfMemory);
    }
    if (rank == 1) symm_mesh_close(m);
    if (rank == 0) atomic_store(&k->flag, 1);
    kit_barrier(k, n);
    if (rank != 1) symm_mesh_close(m);
}

static void a_check_hides_no_cause(void) {
    T_EXPECT_WARNINGS();
    kit_run_all(3, cause_rank, 0);
}

/* Stopped past the deadline and continued: it learns that it was given up. */
static void stopped_rank(int rank, int n, void *arg) {
    kit *k = arg;
    symm_mesh *m = kit_open(k, rank, n);
    symm_wait w = kit_wait("stopping", rank ? KIT_MS : 300);
    if (rank == 1) {
        atomic_store(&k->code[1], (int)getpid());
        atomic_store(&k->flag, 1);
        kill(getpid(), SIGSTOP);
    } else {
        kit_await_flag(k, 1);
        kit_sleep(20);
    }
    T_ERR(symm_agree(m, symmSuccess, &w, NULL), symmTimeout);
    if (rank == 0) kill((pid_t)atomic_load(&k->code[1]), SIGCONT);
    T_MSG(symm_status_text(), rank ? "rank 0 revoked: rank 1 did not come" : "rank 1 did not come");
    kit_barrier(k, n);
    symm_mesh_close(m);
}

static void the_stopped_learn_it(void) {
    T_EXPECT_WARNINGS();
    T_FORK(2, stopped_rank, kit_new(SYMM_MESH_UNIX, 0));
    T_FORK(2, stopped_rank, kit_new(SYMM_MESH_TCP, 0));
}

T_MAIN(T(errors_on_any_ranks_are_everybodys), T(agreements_follow_each_other),
       T(seventy_two_threads_agree), T(leaving_at_once_changes_nothing),
       T(signals_interrupt_no_agreement), T(failpoints_fail_everybody_alike),
       T(one_rank_meets_its_failpoint), T(the_late_are_named_and_told), T(a_check_ends_it_for_all),
       T(a_death_reaches_everybody), T(a_death_between_messages_hangs_nobody),
       T(a_death_is_seen_while_another_is_slow), T(a_closed_mesh_is_a_death),
       T(a_check_hides_no_cause), T(who_comes_early_learns_why), T(the_stopped_learn_it))
