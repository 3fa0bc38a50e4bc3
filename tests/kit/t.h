/* t.h - the harness of the C tests. A program is a list of tests:
 *
 *     static void sum_is_exact(void) { T_OK(symmGetVersion(&v)); T_EQ(v, SYMM_VERSION_CODE); }
 *     T_MAIN(T(sum_is_exact), T_TIMEOUT(long_one, 120))
 *
 * Each test runs in a forked child that leads its own process group; what it prints is kept and
 * shown only when it fails. It fails when a check fails, when it crashes, hangs (60 s unless
 * T_TIMEOUT says otherwise; the environment variable T_SLOW multiplies every limit), ends without
 * returning, leaves a library gauge or the number of open file descriptors changed, or logs a
 * warning without T_EXPECT_WARNINGS(). Sanitizers report at the child's exit.
 *
 * Output is TAP; exit status 0 all passed, 1 a failure, 77 everything skipped. `prog name...` runs
 * the named tests, `prog -l` lists them, `prog -d name` runs one inside the calling process,
 * without a limit, for a debugger.
 *
 * A failed check ends the process that made it at once, so checks may stand in any thread, helper
 * or forked rank. Threads: the checks may be used by any; T_FORK, T_THREADS, T_SHARED by the thread
 * that runs the test. No lock: the first failure of a test claims the report with one atomic
 * exchange. */
#ifndef T_H_
#define T_H_

#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include "symm.h"

/* Which checker this is built for, 0 or 1 each; tests do less where one makes more of the same
 * slow. */
#if defined(__has_feature)
#define T_HAS(feature) __has_feature(feature)
#else
#define T_HAS(feature) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || T_HAS(address_sanitizer)
#define T_ASAN 1
#else
#define T_ASAN 0
#endif
#if defined(__SANITIZE_THREAD__) || T_HAS(thread_sanitizer)
#define T_TSAN 1
#else
#define T_TSAN 0
#endif
/* Before a fork beside threads of the library. AddressSanitizer's allocator (of GCC before 14)
 * minds no forks: if one of them is inside it just then, the child finds it locked for ever. */
#define T_LET_THREADS_REST()        \
    do {                            \
        if (T_ASAN) usleep(100000); \
    } while (0)

typedef struct {
    const char *name;
    void (*fn)(void);
    int seconds;
} t_test;

typedef void (*t_rank_fn)(int rank, int n, void *arg);

enum { T_SECONDS = 60, T_GRACE_SECONDS = 5 };
enum { T_WARNINGS = 1, T_FDS = 2 };

#define T(fn) \
    { #fn, fn, T_SECONDS }
#define T_TIMEOUT(fn, seconds) \
    { #fn, fn, seconds }
#define T_MAIN(...)                                                               \
    int main(int argc, char **argv) {                                             \
        static const t_test tests_[] = {__VA_ARGS__};                             \
        return t_main(argc, argv, tests_, (int)(sizeof tests_ / sizeof *tests_)); \
    }
/* A program that runs under mpirun (include mpi.h first): the tests run in the ranks themselves, in
 * the same order everywhere; rank 0 prints the TAP, another rank's failure goes to stderr and ends
 * the job. File descriptors are checked through the gauge only, for the MPI library opens its own
 * when it likes. T_SKIP must be called alike on all ranks. */
#define T_MAIN_MPI(...)                                                                   \
    int main(int argc, char **argv) {                                                     \
        static const t_test tests_[] = {__VA_ARGS__};                                     \
        int rank_, rc_;                                                                   \
        if (MPI_Init(&argc, &argv) != MPI_SUCCESS) return 1;                              \
        MPI_Comm_rank(MPI_COMM_WORLD, &rank_);                                            \
        rc_ = t_inline(argc, argv, tests_, (int)(sizeof tests_ / sizeof *tests_), rank_); \
        MPI_Finalize();                                                                   \
        return rc_ == 77 ? 0 : rc_;                                                       \
    }

#define T_CHECK(cond)                                                          \
    do {                                                                       \
        if (!(cond)) t_fail(__FILE__, __LINE__, "%s", "check failed: " #cond); \
    } while (0)
/* T_CHECK with the reason in the caller's words. */
#define T_CHECKF(cond, ...)                                   \
    do {                                                      \
        if (!(cond)) t_fail(__FILE__, __LINE__, __VA_ARGS__); \
    } while (0)
#define T_EQ(a, b)        t_eq((long long)(a), (long long)(b), #a, #b, __FILE__, __LINE__)
#define T_STREQ(a, b)     t_streq((a), (b), #a, #b, __FILE__, __LINE__)
#define T_OK(call)        t_result((call), symmSuccess, #call, __FILE__, __LINE__)
#define T_ERR(call, code) t_result((call), (code), #call, __FILE__, __LINE__)
/* text contains part. */
#define T_MSG(text, part) t_msg((text), (part), #text, __FILE__, __LINE__)
#define T_SKIP(...)       t_skip(__VA_ARGS__)
/* This process (and the ranks it forks from now on) may log warnings until the test ends. */
#define T_EXPECT_WARNINGS() t_expect(T_WARNINGS)
/* The same for file descriptors: a driver in this process opens its own when it likes. The
 * library's are in its gauge all the same. */
#define T_EXPECT_FDS() t_expect(T_FDS)

/* Runs fn(rank, n, arg) in n forked processes, each checked for leaks and warnings as a test is.
 * When one fails, the others have T_GRACE_SECONDS to end before they are killed, and the test fails
 * with the first failure. */
#define T_FORK(n, fn, arg) t_fork((n), -1, (fn), (arg), __FILE__, __LINE__)
/* The same; dying_rank must end without returning from fn (a signal or _exit). */
#define T_FORK_DIES(n, dying_rank, fn, arg) \
    t_fork((n), (dying_rank), (fn), (arg), __FILE__, __LINE__)
/* The same in n threads of this process. */
#define T_THREADS(n, fn, arg) t_threads((n), (fn), (arg), __FILE__, __LINE__)
/* Zeroed memory that forked ranks share; lives until the test ends. */
#define T_SHARED(size) t_shared((size), __FILE__, __LINE__)

/* The next number of the sequence that goes on from *state, for tests that draw. Its upper bits
 * are the good ones. */
static inline uint64_t t_roll(uint64_t *state) {
    return *state = *state * 6364136223846793005u + 1442695040888963407u;
}

static inline uint64_t t_draw(uint64_t *state, uint64_t below) {
    return (t_roll(state) >> 33) % below;
}

int t_main(int argc, char **argv, const t_test *tests, int n);
int t_inline(int argc, char **argv, const t_test *tests, int n, int rank);
void t_fail(const char *file, int line, const char *fmt, ...)
    __attribute__((format(printf, 3, 4), noreturn));
void t_skip(const char *fmt, ...) __attribute__((format(printf, 1, 2), noreturn));
void t_eq(long long a, long long b, const char *ea, const char *eb, const char *file, int line);
void t_streq(const char *a, const char *b, const char *ea, const char *eb, const char *file,
             int line);
void t_result(symmResult_t got, symmResult_t want, const char *call, const char *file, int line);
void t_msg(const char *text, const char *part, const char *expr, const char *file, int line);
void t_expect(int what);
void t_fork(int n, int dying_rank, t_rank_fn fn, void *arg, const char *file, int line);
void t_threads(int n, t_rank_fn fn, void *arg, const char *file, int line);
void *t_shared(size_t size, const char *file, int line);

#endif
