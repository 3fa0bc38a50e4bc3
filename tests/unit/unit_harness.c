/* unit_harness.c - checks the checkers: runs itself with `--broken NAME`, where NAME is a test that
 * misbehaves in one way, and asserts that the harness says so. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "t.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"
#include "base/stats.h"
#include "base/status.h"

/* ---- tests that misbehave ----------------------------------------------------------------- */

static void bad_check(void) {
    printf("said before the end\n");
    T_CHECK(1 + 1 == 3);
}

static void bad_eq(void) {
    T_EQ(40 + 2, 43);
}

static void bad_streq(void) {
    T_STREQ("one", "two");
}

static void bad_ok(void) {
    symm_status_adopt("the reason");
    T_OK(symmTimeout);
}

static void bad_err(void) {
    T_ERR(symmSuccess, symmMismatch);
}

static void bad_msg(void) {
    T_MSG("some text", "other");
}

static void bad_fd(void) {
    T_CHECK(open("/dev/null", O_RDONLY) >= 0);
}

static void bad_closed_fd(void) {
    close(STDIN_FILENO);
}

static void bad_gauge(void) {
    SYMM_STAT_ADD(handles, 2);
}

static void bad_warning(void) {
    SYMM_WARN("unexpected");
}

static void bad_abort(void) {
    abort();
}

static void bad_access(void) {
    raise(SIGSEGV);
}

static void bad_exit(void) {
    exit(0);
}

static void bad_hang(void) {
    pid_t pid = fork();
    if (pid == 0)
        for (;;) pause();
    printf("straggler %d\n", (int)pid);
    for (;;) pause();
}

static void rank_fails(int rank, int n, void *arg) {
    (void)arg;
    T_CHECKF(rank != n - 1, "not me");
}

static void bad_rank(void) {
    T_FORK(3, rank_fails, NULL);
}

static void bad_thread(void) {
    T_THREADS(3, rank_fails, NULL);
}

static void rank_fails_others_hang(int rank, int n, void *arg) {
    rank_fails(rank, n, arg);
    for (;;) pause();
}

static void bad_rank_others_hang(void) {
    T_FORK(3, rank_fails_others_hang, NULL);
}

static void rank_dies(int rank, int n, void *arg) {
    (void)n;
    (void)arg;
    if (rank == 1) raise(SIGKILL);
}

static void bad_rank_dies(void) {
    T_FORK(2, rank_dies, NULL);
}

static void bad_wrong_rank_dies(void) {
    T_FORK_DIES(3, 2, rank_dies, NULL);
}

static void rank_exits(int rank, int n, void *arg) {
    (void)n;
    (void)arg;
    if (rank == 1) exit(0);
}

static void bad_rank_exits(void) {
    T_FORK(2, rank_exits, NULL);
}

static void rank_does_nothing(int rank, int n, void *arg) {
    (void)rank;
    (void)n;
    (void)arg;
}

static void bad_rank_lives(void) {
    T_FORK_DIES(2, 0, rank_does_nothing, NULL);
}

static void rank_leaks(int rank, int n, void *arg) {
    (void)n;
    (void)arg;
    if (rank == 1) SYMM_STAT_ADD(maps, 1);
}

static void bad_rank_leaks(void) {
    T_FORK(2, rank_leaks, NULL);
}

static void rank_warns(int rank, int n, void *arg) {
    (void)n;
    (void)arg;
    if (rank == 0) SYMM_WARN("unexpected");
}

static void bad_rank_warns(void) {
    T_FORK(2, rank_warns, NULL);
}

static void *volatile kept;

static void bad_memory(void) {
    kept = malloc(1234);
    kept = NULL;
}

static void rank_loses_memory(int rank, int n, void *arg) {
    (void)n;
    (void)arg;
    if (rank == 1) bad_memory();
}

static void bad_rank_memory(void) {
    T_FORK(2, rank_loses_memory, NULL);
}

static int raced;

static void race(int rank, int n, void *arg) {
    (void)rank;
    (void)n;
    (void)arg;
    for (int i = 0; i < 1000; i++) {
        raced++;
        sched_yield();
    }
}

static void bad_race(void) {
    T_THREADS(2, race, NULL);
}

/* ---- and tests that do not ---------------------------------------------------------------- */

static void good_warning(void) {
    T_EXPECT_WARNINGS();
    SYMM_WARN("expected");
    printf("unseen\n");
    T_FORK(2, rank_warns, NULL);
}

static void good_death(void) {
    T_FORK_DIES(3, 1, rank_dies, NULL);
    T_FORK_DIES(2, 1, rank_exits, NULL);
}

static void good_skip(void) {
    T_SKIP("needs %s", "nothing");
}

static void rank_skips(int rank, int n, void *arg) {
    (void)n;
    (void)arg;
    if (rank == 1) T_SKIP("needs another rank");
    for (;;) pause();
}

static void good_rank_skips(void) {
    T_FORK(2, rank_skips, NULL);
}

static const t_test broken[] = {T(bad_check),
                                T(bad_eq),
                                T(bad_streq),
                                T(bad_ok),
                                T(bad_err),
                                T(bad_msg),
                                T(bad_fd),
                                T(bad_closed_fd),
                                T(bad_gauge),
                                T(bad_warning),
                                T(bad_abort),
                                T(bad_access),
                                T(bad_exit),
                                T_TIMEOUT(bad_hang, 1),
                                T(bad_rank),
                                T(bad_thread),
                                T(bad_rank_others_hang),
                                T(bad_rank_dies),
                                T(bad_wrong_rank_dies),
                                T(bad_rank_exits),
                                T(bad_rank_lives),
                                T(bad_rank_leaks),
                                T(bad_rank_warns),
                                T(bad_memory),
                                T(bad_rank_memory),
                                T(bad_race),
                                T(good_warning),
                                T(good_death),
                                T(good_skip),
                                T(good_rank_skips)};

/* ---- running them ------------------------------------------------------------------------- */

static char output[65536];

static size_t read_all(int fd) {
    size_t len = 0;
    ssize_t n;
    while ((n = read(fd, output + len, sizeof output - 1 - len)) != 0) {
        if (n < 0 && errno == EINTR) continue;
        T_CHECKF(n > 0, "read: %s", strerror(errno));
        len += (size_t)n;
    }
    output[len] = 0;
    return len;
}

/* Runs one misbehaving test under the harness; returns the harness's exit status, its output in
 * `output`. */
static int run(const char *name) {
    int ends[2], status;
    T_EQ(pipe2(ends, O_CLOEXEC), 0);
    unsetenv("T_SLOW"); /* the hang is to be short */
    pid_t pid = fork();
    T_CHECK(pid >= 0);
    if (pid == 0) {
        dup2(ends[1], STDOUT_FILENO);
        execl("/proc/self/exe", "unit_harness", "--broken", name, (char *)NULL);
        _exit(126);
    }
    close(ends[1]);
    read_all(ends[0]);
    close(ends[0]);
    while (waitpid(pid, &status, 0) < 0) T_EQ(errno, EINTR);
    T_CHECKF(WIFEXITED(status), "the harness itself died: %s", output);
    return WEXITSTATUS(status);
}

static void expect(const char *name, int status, const char *line, const char *text) {
    char want[256];
    int got = run(name);
    T_CHECKF(got == status, "%s: exit status %d: %s", name, got, output);
    snprintf(want, sizeof want, "1..1\n%s 1 - %s", line, name);
    T_CHECKF(strncmp(output, want, strlen(want)) == 0, "%s: %s", name, output);
    T_MSG(output, text);
}

static void fails(const char *name, const char *text) {
    expect(name, 1, "not ok", text);
}

static void failing_checks_are_reported(void) {
    fails("bad_check", "# unit_harness.c:");
    T_MSG(output, "check failed: 1 + 1 == 3\n");
    T_MSG(output, "#   said before the end\n");
    fails("bad_eq", "40 + 2 == 43: 42 (0x2a) != 43 (0x2b)");
    fails("bad_streq", "\"one\" != \"two\"");
    fails("bad_ok", "got 8 (deadline passed), wanted 0 (no error); last error \"the reason\"");
    fails("bad_err", "got 0 (no error), wanted 9 (");
    fails("bad_msg", "\"some text\" does not contain \"other\"");
}

static void leaks_are_reported(void) {
    fails("bad_fd", "leak: 1 file descriptors more than before");
    T_MSG(output, ": /dev/null\n");
    fails("bad_closed_fd", "leak: -1 file descriptors more than before");
    fails("bad_gauge", "leak: gauge handles was 0, is 2");
    fails("bad_rank_leaks", "rank 1: ");
    T_MSG(output, "leak: gauge maps was 0, is 1");
}

static void warnings_are_reported(void) {
    fails("bad_warning", "1 warnings logged");
    T_MSG(output, "symm WARN unit_harness.c:");
    fails("bad_rank_warns", "rank 0: ");
}

static void deaths_are_reported(void) {
    fails("bad_abort", "killed by signal 6 (Aborted)");
#if T_ASAN
    fails("bad_access", "ended with exit status 1");
#elif T_TSAN
    fails("bad_access", "ended with exit status 66");
#else
    fails("bad_access", "killed by signal 11 (Segmentation fault)");
#endif
    fails("bad_exit", "ended before its function returned");
}

/* 1 if the process has ended; who adopted it may take its time to reap it. */
static int ended(int pid) {
    char path[32], text[256] = "";
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    FILE *f = fopen(path, "r");
    if (!f) return kill(pid, 0) == -1 && errno == ESRCH;
    size_t n = fread(text, 1, sizeof text - 1, f);
    fclose(f);
    const char *state = n ? strrchr(text, ')') : NULL;
    return state && (state[2] == 'Z' || state[2] == 'X');
}

static void hangs_are_reported_and_leave_nothing(void) {
    int pid = 0;
    fails("bad_hang", "timed out after 1 s");
    const char *at = strstr(output, "straggler ");
    T_CHECK(at && sscanf(at, "straggler %d", &pid) == 1 && pid > 1);
    for (int i = 0; i < 1000 && !ended(pid); i++) usleep(1000);
    T_CHECK(ended(pid));
}

static void ranks_that_fail_or_die_are_reported(void) {
    fails("bad_rank", "# rank 2: unit_harness.c:");
    T_MSG(output, " not me\n");
    fails("bad_thread", "# rank 2: unit_harness.c:");
    fails("bad_rank_others_hang", "# rank 2: unit_harness.c:"); /* after the grace period */
    fails("bad_rank_dies", "killed by signal 9 (Killed)");
    T_MSG(output, "# rank 1: ");
    fails("bad_wrong_rank_dies", "# rank ");
    fails("bad_rank_exits", "ended before its function returned");
    fails("bad_rank_lives", "# rank 0: ");
    T_MSG(output, "was to die, but returned");
}

static void lost_memory_is_reported(void) {
#if T_ASAN
    fails("bad_memory", "ended with exit status");
    T_MSG(output, "Direct leak of 1234 byte");
    fails("bad_rank_memory", "# rank 1: ");
#else
    T_SKIP("needs an ASan build");
#endif
}

static void races_are_reported(void) {
#if T_TSAN
    fails("bad_race", "");
    T_MSG(output, "data race");
#else
    T_SKIP("needs a TSan build");
#endif
}

/* A hook that its runtime does not find is no error there: it is as if it had not been written. */
static void sanitizers_find_their_hooks(void) {
#if T_ASAN
    T_CHECK(dlsym(RTLD_DEFAULT, "__asan_default_options"));
#elif T_TSAN
    T_CHECK(dlsym(RTLD_DEFAULT, "__tsan_default_suppressions"));
#else
    T_SKIP("needs an ASan or a TSan build");
#endif
}

static void good_tests_pass_in_silence(void) {
    expect("good_warning", 0, "ok", "");
    T_STREQ(output, "1..1\nok 1 - good_warning\n");
    expect("good_death", 0, "ok", "");
    T_STREQ(output, "1..1\nok 1 - good_death\n");
}

static void skips_are_told_apart(void) {
    expect("good_skip", 77, "ok", "good_skip # SKIP needs nothing\n");
    expect("good_rank_skips", 77, "ok", "good_rank_skips # SKIP needs another rank\n");
}

static void unknown_names_are_refused(void) {
    T_EQ(run("no_such_test"), 2);
    T_STREQ(output, "");
    T_EQ(run("-l"), 0);
    T_MSG(output, "bad_check\n");
    T_MSG(output, "good_skip\n");
}

static void add_up(int rank, int n, void *shared) {
    _Atomic int *sum = shared;
    T_EQ(n, 5);
    *sum += rank + 1;
}

static void ranks_get_their_numbers_and_share(void) {
    _Atomic int *sum = T_SHARED(sizeof *sum);
    T_EQ(*sum, 0);
    T_FORK(5, add_up, sum);
    T_EQ(*sum, 15);
    T_THREADS(5, add_up, sum);
    T_EQ(*sum, 30);
}

static const t_test tests[] = {T(failing_checks_are_reported),
                               T(leaks_are_reported),
                               T(warnings_are_reported),
                               T(deaths_are_reported),
                               T(hangs_are_reported_and_leave_nothing),
                               T(ranks_that_fail_or_die_are_reported),
                               T(lost_memory_is_reported),
                               T(races_are_reported),
                               T(sanitizers_find_their_hooks),
                               T(good_tests_pass_in_silence),
                               T(skips_are_told_apart),
                               T(unknown_names_are_refused),
                               T(ranks_get_their_numbers_and_share)};

#define COUNT(list) ((int)(sizeof(list) / sizeof *(list)))

int main(int argc, char **argv) {
    if (argc > 1 && !strcmp(argv[1], "--broken"))
        return t_main(argc - 1, argv + 1, broken, COUNT(broken));
    return t_main(argc, argv, tests, COUNT(tests));
}
