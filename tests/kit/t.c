/* t.c - the harness of the C tests (contract in t.h). The harness process is single-threaded: it
 * forks one child per test, waits for it against a deadline and prints TAP. The failing process or
 * thread writes the failure into a page that all of them share. No lock. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "t.h"

#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <fcntl.h>

#include "base/stats.h"
#include "base/status.h"

enum { NONE, CLAIMED, FAILED, SKIPPED };
enum { MAX_GAUGES = 64, SHOWN_BYTES = 65536, POLL_MS = 20 };

typedef struct {
    _Atomic int state;    /* NONE until claimed; CLAIMED while its text is written */
    _Atomic int returned; /* the test's function came back and left nothing behind */
    char text[1024];
} report_t;

typedef struct {
    int64_t gauges[MAX_GAUGES], warnings;
    int fds;
} baseline_t;

static report_t *report;
static int expected, debug;    /* expected: T_WARNINGS, T_FDS */
static int inline_rank = -1;   /* >= 0: the tests run in this process and this is its MPI rank */
static char inline_label[256]; /* number and name of the test that runs */
static sigjmp_buf inline_out;
static _Thread_local int my_rank = -1;

/* ---- failing and skipping ---------------------------------------------------------------- */

static const char *base_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* Takes the report for the caller if nobody has it. A loser waits until the winner's text is
 * complete, because it may be about to end the process that both live in. */
static int claim(void) {
    int none = NONE;
    if (atomic_compare_exchange_strong(&report->state, &none, CLAIMED)) return 1;
    for (int i = 0; i < 1000 && atomic_load(&report->state) == CLAIMED; i++) usleep(1000);
    return 0;
}

static void publish(int state, const char *text) {
    size_t len = 0;
    for (; text[len] && len < sizeof report->text - 1; len++)
        report->text[len] = text[len] == '\n' ? ' ' : text[len]; /* TAP is line by line */
    report->text[len] = 0;
    atomic_store(&report->state, state);
}

static void leave_inline(int state) __attribute__((noreturn));
static void leave_inline(int state) {
    if (state == SKIPPED && my_rank < 0) siglongjmp(inline_out, 1);
    if (state == SKIPPED) _exit(0); /* a rank of T_FORK */
    if (inline_rank == 0) printf("not ok %s # %s\n", inline_label, report->text);
    fflush(stdout);
    _exit(1);
}

void t_fail(const char *file, int line, const char *fmt, ...) {
    char text[900], full[1024], who[32] = "";
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    int rank = inline_rank > 0 ? inline_rank : my_rank;
    if (rank >= 0) snprintf(who, sizeof who, "rank %d: ", rank);
    snprintf(full, sizeof full, "%s%s:%d %s", who, base_name(file), line, text);
    fprintf(stderr, "FAILED: %s%s%s\n", inline_label, inline_label[0] ? ": " : "", full);
    if (claim()) publish(FAILED, full);
    if (inline_rank >= 0) leave_inline(FAILED);
    _exit(1); /* not exit: other threads still run, and a failed test owes no clean-up */
}

void t_skip(const char *fmt, ...) {
    char text[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (claim()) publish(SKIPPED, text);
    if (inline_rank >= 0) leave_inline(SKIPPED);
    _exit(0);
}

void t_eq(long long a, long long b, const char *ea, const char *eb, const char *file, int line) {
    if (a != b)
        t_fail(file, line, "%s == %s: %lld (%#llx) != %lld (%#llx)", ea, eb, a,
               (unsigned long long)a, b, (unsigned long long)b);
}

void t_streq(const char *a, const char *b, const char *ea, const char *eb, const char *file,
             int line) {
    if (!a || !b || strcmp(a, b) != 0)
        t_fail(file, line, "%s == %s: \"%s\" != \"%s\"", ea, eb, a ? a : "(null)",
               b ? b : "(null)");
}

void t_result(symmResult_t got, symmResult_t want, const char *call, const char *file, int line) {
    if (got == want) return;
    t_fail(file, line, "%s: got %d (%s), wanted %d (%s); last error \"%s\"", call, (int)got,
           symmGetErrorString(got), (int)want, symmGetErrorString(want), symm_status_text());
}

void t_msg(const char *text, const char *part, const char *expr, const char *file, int line) {
    if (!text || !strstr(text, part))
        t_fail(file, line, "%s: \"%s\" does not contain \"%s\"", expr, text ? text : "(null)",
               part);
}

void t_expect(int what) {
    expected |= what;
}

/* ---- what a test must leave as it found it ------------------------------------------------ */

static int count_fds(void) {
    int n = 0;
    DIR *dir = opendir("/proc/self/fd");
    if (!dir) t_fail(__FILE__, __LINE__, "cannot list /proc/self/fd: %s", strerror(errno));
    while (readdir(dir)) n++;
    closedir(dir);
    return n; /* ".", ".." and the directory's own descriptor are in every count alike */
}

static void show_fds(void) {
    char path[64], target[256];
    for (int fd = 0; fd < 1024; fd++) {
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        ssize_t len = readlink(path, target, sizeof target - 1);
        if (len >= 0) fprintf(stderr, "fd %d: %.*s\n", fd, (int)len, target);
    }
}

static void take_baseline(baseline_t *b) {
    symm_stats_gauges(b->gauges, NULL, MAX_GAUGES);
    b->warnings = SYMM_STAT_GET(log_warnings);
    b->fds = inline_rank >= 0 ? 0 : count_fds();
}

/* Threads of the library that end by themselves are given a second. */
static int read_gauges(const baseline_t *b, int64_t *now, const char **names) {
    for (int tries = 0;; tries++) {
        const int n = symm_stats_gauges(now, names, MAX_GAUGES);
        if (!memcmp(now, b->gauges, sizeof *now * (size_t)n) || tries == 1000) return n;
        usleep(1000);
    }
}

static void check_baseline(const baseline_t *b, const char *name) {
    int64_t now[MAX_GAUGES];
    const char *names[MAX_GAUGES];
    const int n = read_gauges(b, now, names);
    for (int i = 0; i < n && i < MAX_GAUGES; i++)
        if (now[i] != b->gauges[i])
            t_fail(name, 0, "leak: gauge %s was %lld, is %lld", names[i], (long long)b->gauges[i],
                   (long long)now[i]);
    int fds = inline_rank >= 0 ? 0 : count_fds();
    if (fds != b->fds && !(expected & T_FDS)) {
        show_fds();
        t_fail(name, 0, "leak: %d file descriptors more than before", fds - b->fds);
    }
    int64_t logged = SYMM_STAT_GET(log_warnings) - b->warnings;
    if (logged && !(expected & T_WARNINGS))
        t_fail(name, 0, "%lld warnings logged without T_EXPECT_WARNINGS", (long long)logged);
}

/* ---- processes ---------------------------------------------------------------------------- */

static int64_t now_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static sigset_t only_sigchld(void) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    return set;
}

/* Sleeps until a child may have ended; bounded, for another thread may get the signal. SIGCHLD is
 * blocked meanwhile, so that it pends rather than gets lost between a look and the sleep. */
static void nap(void) {
    sigset_t set = only_sigchld();
    struct timespec t = {0, POLL_MS * 1000000L};
    sigtimedwait(&set, NULL, &t);
}

/* Ended, but not reaped: its pid (and process group) cannot be given to anybody else yet. */
static int has_ended(pid_t pid) {
    siginfo_t info = {0};
    if (waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0)
        return info.si_pid == pid;
    return errno == ECHILD; /* the test reaped it */
}

static int reap(pid_t pid) {
    int status = 0;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) continue;
    return status;
}

static void describe(int status, int returned, char *text, size_t cap) {
    const char *when = returned ? " after it had returned (sanitizer?)" : "";
    if (WIFSIGNALED(status))
        snprintf(text, cap, "killed by signal %d (%s)%s", WTERMSIG(status),
                 strsignal(WTERMSIG(status)), when);
    else if (status == 0 && !returned)
        snprintf(text, cap, "ended before its function returned");
    else
        snprintf(text, cap, "ended with exit status %d%s", WEXITSTATUS(status), when);
}

/* A forked child: dies with its parent, starts with an ordinary signal mask. */
static void become_child(pid_t parent, const sigset_t *mask) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1); /* the parent died before the request was in place */
    pthread_sigmask(SIG_SETMASK, mask, NULL);
}

/* ---- ranks -------------------------------------------------------------------------------- */

typedef struct {
    pid_t pid;
    int status, ended; /* wait status once reaped */
} rank_t;

typedef struct {
    int n, dying;
    rank_t *rank;
    _Atomic char *returned; /* shared: the rank's function came back and its checks held */
    const char *file;
    int line;
} ranks_t;

static void run_rank(ranks_t *r, int rank, t_rank_fn fn, void *arg) __attribute__((noreturn));
static void run_rank(ranks_t *r, int rank, t_rank_fn fn, void *arg) {
    baseline_t before;
    my_rank = rank;
    take_baseline(&before);
    fn(rank, r->n, arg);
    check_baseline(&before, r->file);
    atomic_store(&r->returned[rank], 1);
    exit(0); /* not _exit: sanitizers report from here */
}

static int rank_is_bad(const ranks_t *r, int rank) {
    int returned = atomic_load(&r->returned[rank]);
    if (rank == r->dying) return returned;
    return !returned || r->rank[rank].status != 0;
}

/* Reaps ranks that have ended; returns how many run, and in *bad the first that ended badly. */
static int collect(ranks_t *r, int *bad) {
    int live = 0;
    for (int i = 0; i < r->n; i++) {
        rank_t *rank = &r->rank[i];
        if (rank->ended) continue;
        rank->ended = has_ended(rank->pid);
        live += !rank->ended;
        if (!rank->ended) continue;
        rank->status = reap(rank->pid);
        if (*bad < 0 && rank_is_bad(r, i)) *bad = i;
    }
    return live;
}

static void kill_ranks(ranks_t *r) {
    for (int i = 0; i < r->n; i++) {
        if (r->rank[i].ended || r->rank[i].pid <= 0) continue;
        kill(r->rank[i].pid, SIGKILL);
        reap(r->rank[i].pid);
    }
}

/* Ends the test in the name of rank `bad`, which said why itself unless it died. */
static void give_up(ranks_t *r, int bad) __attribute__((noreturn));
static void give_up(ranks_t *r, int bad) {
    char how[128];
    if (atomic_load(&report->state) != NONE) _exit(atomic_load(&report->state) == SKIPPED ? 0 : 1);
    describe(r->rank[bad].status, atomic_load(&r->returned[bad]), how, sizeof how);
    my_rank = bad;
    t_fail(r->file, r->line, "%s", bad == r->dying ? "was to die, but returned" : how);
}

static void await_ranks(ranks_t *r) {
    int bad = -1;
    int64_t deadline = INT64_MAX;
    while (collect(r, &bad) > 0 && now_ms() < deadline) {
        int state = atomic_load(&report->state);
        if (state == SKIPPED) break;
        if (deadline == INT64_MAX && (bad >= 0 || state != NONE))
            deadline = now_ms() + T_GRACE_SECONDS * 1000;
        nap();
    }
    kill_ranks(r);
    if (bad >= 0 || atomic_load(&report->state) != NONE) give_up(r, bad);
}

static void start_ranks(ranks_t *r, t_rank_fn fn, void *arg, const sigset_t *mask) {
    pid_t self = getpid();
    fflush(NULL);
    for (int i = 0; i < r->n; i++) {
        pid_t pid = r->rank[i].pid = fork();
        if (pid == 0) {
            become_child(self, mask);
            run_rank(r, i, fn, arg);
        }
        if (pid < 0) {
            int err = errno;
            kill_ranks(r);
            t_fail(r->file, r->line, "fork of rank %d: %s", i, strerror(err));
        }
    }
}

void t_fork(int n, int dying_rank, t_rank_fn fn, void *arg, const char *file, int line) {
    ranks_t r = {.n = n, .dying = dying_rank, .file = file, .line = line};
    sigset_t set = only_sigchld(), old;
    if (n < 1 || dying_rank >= n)
        t_fail(file, line, "T_FORK of %d ranks, %d to die", n, dying_rank);
    r.rank = calloc((size_t)n, sizeof *r.rank);
    if (!r.rank) t_fail(file, line, "no memory for %d ranks", n);
    r.returned = t_shared((size_t)n, file, line);
    pthread_sigmask(SIG_BLOCK, &set, &old);
    start_ranks(&r, fn, arg, &old);
    await_ranks(&r);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    munmap((void *)r.returned, (size_t)n);
    free(r.rank);
}

typedef struct {
    pthread_t thread;
    int rank, n;
    t_rank_fn fn;
    void *arg;
} thread_rank_t;

static void *run_thread(void *p) {
    thread_rank_t *t = p;
    my_rank = t->rank;
    t->fn(t->rank, t->n, t->arg);
    return NULL;
}

void t_threads(int n, t_rank_fn fn, void *arg, const char *file, int line) {
    thread_rank_t *t = calloc((size_t)(n > 0 ? n : 1), sizeof *t);
    if (!t || n < 1) t_fail(file, line, "T_THREADS: cannot make %d threads", n);
    for (int i = 0; i < n; i++) {
        t[i] = (thread_rank_t){.rank = i, .n = n, .fn = fn, .arg = arg};
        int err = pthread_create(&t[i].thread, NULL, run_thread, &t[i]);
        if (err) t_fail(file, line, "thread of rank %d: %s", i, strerror(err));
    }
    for (int i = 0; i < n; i++) pthread_join(t[i].thread, NULL);
    free(t);
}

void *t_shared(size_t size, const char *file, int line) {
    void *p =
        mmap(NULL, size ? size : 1, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) t_fail(file, line, "T_SHARED(%zu): %s", size, strerror(errno));
    return p;
}

/* ---- one test ----------------------------------------------------------------------------- */

static int64_t limit_ms(const t_test *test) {
    const char *slow = getenv("T_SLOW");
    int factor = slow ? atoi(slow) : 1;
    return (int64_t)test->seconds * 1000 * (factor > 0 ? factor : 1);
}

static void run_child(const t_test *test, int output) __attribute__((noreturn));
static void run_child(const t_test *test, int output) {
    baseline_t before;
    struct rlimit no_core = {0, 0};
    int null = open("/dev/null", O_RDONLY);
    setrlimit(RLIMIT_CORE, &no_core);
    dup2(null, STDIN_FILENO); /* a background process group would be stopped by the terminal */
    dup2(output, STDOUT_FILENO);
    dup2(output, STDERR_FILENO);
    close(null);
    close(output);
    take_baseline(&before);
    test->fn();
    check_baseline(&before, test->name);
    atomic_store(&report->returned, 1);
    exit(0); /* not _exit: sanitizers report from here */
}

/* Waits for the test, kills what is left of its process group, and says what is wrong with its end
 * ("" nothing). */
static void await_child(pid_t pid, const t_test *test, char *why, size_t cap) {
    int64_t limit = limit_ms(test), deadline = now_ms() + limit;
    int late = 0;
    while (!has_ended(pid) && !late) {
        nap();
        late = now_ms() > deadline && !has_ended(pid);
    }
    kill(-pid, SIGKILL); /* not reaped yet, so the group is still this test's */
    int status = reap(pid);
    while (waitpid(-1, NULL, WNOHANG) > 0) continue; /* orphans come to their subreaper */
    why[0] = 0;
    int returned = atomic_load(&report->returned);
    if (late)
        snprintf(why, cap, "timed out after %lld s", (long long)limit / 1000);
    else if (status != 0 || !returned)
        describe(status, returned, why, cap);
}

static void show_output(int output) {
    static char buf[SHOWN_BYTES + 1];
    off_t size = lseek(output, 0, SEEK_END);
    ssize_t len = pread(output, buf, SHOWN_BYTES, size > SHOWN_BYTES ? size - SHOWN_BYTES : 0);
    if (len <= 0) return;
    buf[len] = 0;
    char *save = NULL;
    for (char *s = strtok_r(buf, "\n", &save); s; s = strtok_r(NULL, "\n", &save))
        printf("#   %s\n", s);
}

/* Prints the TAP line; returns the test's outcome. */
static int judge(const t_test *test, int number, const char *why, int output) {
    if (atomic_load(&report->state) == NONE && why[0]) publish(FAILED, why);
    int state = atomic_load(&report->state);
    if (state == CLAIMED) state = FAILED; /* killed while it wrote its text */
    printf("%s %d - %s", state == FAILED ? "not ok" : "ok", number, test->name);
    if (state != NONE) printf(" # %s%s", state == SKIPPED ? "SKIP " : "", report->text);
    printf("\n");
    if (state == FAILED) show_output(output);
    fflush(stdout);
    return state;
}

static int run_forked(const t_test *test, int number) {
    char why[128];
    sigset_t set = only_sigchld(), old;
    pid_t self = getpid();
    int output = memfd_create("test output", MFD_CLOEXEC);
    if (output < 0) {
        printf("not ok %d - %s # no file for its output: %s\n", number, test->name,
               strerror(errno));
        return FAILED;
    }
    memset(report, 0, sizeof *report);
    fflush(NULL);
    pthread_sigmask(SIG_BLOCK, &set, &old);
    pid_t pid = fork();
    if (pid == 0) {
        setpgid(0, 0);
        become_child(self, &old);
        run_child(test, output);
    }
    if (pid > 0) {
        setpgid(pid, pid); /* here as well: await_child kills the group, however early */
        await_child(pid, test, why, sizeof why);
    } else
        snprintf(why, sizeof why, "fork: %s", strerror(errno));
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    int state = judge(test, number, why, output);
    close(output);
    return state;
}

/* ---- programs ----------------------------------------------------------------------------- */

static int is_chosen(const t_test *test, int argc, char **argv) {
    int named = 0;
    for (int i = 1; i < argc; i++) {
        if (argv[i][0] == '-') continue;
        if (strcmp(argv[i], test->name) == 0) return 1;
        named = 1;
    }
    return !named;
}

/* 0: go on. Otherwise the exit status plus 1. */
static int begin(int argc, char **argv, const t_test *tests, int n) {
    setenv("SYMM_BACKEND", "host", 0); /* whatever GPUs there are: tests of GPUs ask for them */
    for (int i = 1; i < argc; i++) {
        int known = !strcmp(argv[i], "-d");
        debug |= known;
        if (!strcmp(argv[i], "-l")) {
            for (int k = 0; k < n; k++) printf("%s\n", tests[k].name);
            return 1;
        }
        for (int k = 0; k < n && !known; k++) known = !strcmp(argv[i], tests[k].name);
        if (!known) {
            fprintf(stderr, "%s: no test named %s (-l lists them)\n", argv[0], argv[i]);
            return 3;
        }
    }
    return 0;
}

static int open_report(void) {
    report = mmap(NULL, sizeof *report, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (report != MAP_FAILED) return 0;
    fprintf(stderr, "no shared page for the report: %s\n", strerror(errno));
    return -1;
}

static int exit_status(const int *count) {
    return count[FAILED] ? 1 : count[SKIPPED] && !count[NONE] ? 77 : 0;
}

static void say_plan(int argc, char **argv, const t_test *tests, int n) {
    int chosen = 0;
    for (int i = 0; i < n; i++) chosen += is_chosen(&tests[i], argc, argv);
    printf("1..%d\n", chosen);
}

int t_main(int argc, char **argv, const t_test *tests, int n) {
    int count[SKIPPED + 1] = {0}, number = 0;
    int early = begin(argc, argv, tests, n);
    if (early) return early - 1;
    if (debug) return t_inline(argc, argv, tests, n, 0);
    if (open_report()) return 1;
    setvbuf(stdout, NULL, _IOLBF, 0); /* before any use; a failed check flushes nothing */
    signal(SIGCHLD, SIG_DFL);         /* ignored, it would reap the children */
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    say_plan(argc, argv, tests, n);
    for (int i = 0; i < n; i++)
        if (is_chosen(&tests[i], argc, argv)) count[run_forked(&tests[i], ++number)]++;
    munmap(report, sizeof *report);
    return exit_status(count);
}

/* ---- tests inside the calling process ------------------------------------------------------ */

static void inline_late(int sig) {
    (void)sig;
    t_fail(__FILE__, 0, "timed out"); /* unsafe in a handler, but the process is stuck */
}

static int run_inline(const t_test *test, int number) {
    baseline_t before;
    memset(report, 0, sizeof *report);
    expected = 0;
    snprintf(inline_label, sizeof inline_label, "%d - %s", number, test->name);
    if (!debug) alarm((unsigned)(limit_ms(test) / 1000));
    take_baseline(&before);
    if (sigsetjmp(inline_out, 1) == 0) {
        test->fn();
        check_baseline(&before, test->name);
    }
    alarm(0);
    int state = atomic_load(&report->state);
    if (inline_rank == 0)
        printf("ok %s%s%s\n", inline_label, state == SKIPPED ? " # SKIP " : "", report->text);
    fflush(stdout);
    return state;
}

int t_inline(int argc, char **argv, const t_test *tests, int n, int rank) {
    int count[SKIPPED + 1] = {0}, number = 0;
    int early = begin(argc, argv, tests, n);
    if (early) return early - 1;
    if (open_report()) return 1;
    inline_rank = rank;
    signal(SIGALRM, inline_late);
    if (rank == 0) say_plan(argc, argv, tests, n);
    for (int i = 0; i < n; i++)
        if (is_chosen(&tests[i], argc, argv)) count[run_inline(&tests[i], ++number)]++;
    munmap(report, sizeof *report);
    return exit_status(count);
}
