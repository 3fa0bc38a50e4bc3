/* unit_status.c - result codes, error texts and the log's lines. One process per test; threads
 * where it says so. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "t.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/log.h"
#include "base/stats.h"
#include "base/status.h"

static void every_code_has_its_own_text(void) {
    for (int i = 0; i < symmNumResults; i++) {
        const char *text = symmGetErrorString((symmResult_t)i);
        T_CHECK(text && text[0]);
        for (int k = 0; k < i; k++) T_CHECK(strcmp(text, symmGetErrorString((symmResult_t)k)) != 0);
    }
    T_STREQ(symmGetErrorString(symmSuccess), "no error");
}

static void codes_outside_the_table_have_a_text(void) {
    const int codes[] = {-1, symmNumResults, 1000, INT32_MAX, INT32_MIN};
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++)
        T_STREQ(symmGetErrorString((symmResult_t)codes[i]), "unknown result code");
}

static void version_is_the_header_s(void) {
    int version = -1;
    T_OK(symmGetVersion(&version));
    T_EQ(version, SYMM_VERSION_CODE);
    T_EXPECT_WARNINGS();
    T_ERR(symmGetVersion(NULL), symmInvalidArgument);
    T_MSG(symmGetLastError(NULL), "version is NULL");
}

static void an_error_keeps_its_text_and_counts_as_a_warning(void) {
    T_EXPECT_WARNINGS();
    int64_t before = SYMM_STAT_GET(log_warnings);
    T_STREQ(symmGetLastError(NULL), "");
    T_ERR(SYMM_ERR(symmTimeout, "rank %d is %s", 3, "late"), symmTimeout);
    T_STREQ(symm_status_text(), "rank 3 is late");
    T_STREQ(symmGetLastError(NULL), "rank 3 is late");
    T_EQ(SYMM_STAT_GET(log_warnings), before + 1);
}

static void a_text_may_quote_the_last_one(void) {
    T_EXPECT_WARNINGS();
    T_EQ(SYMM_ERR(symmSystemError, "inner"), symmSystemError);
    T_EQ(SYMM_ERR(symmSystemError, "outer (%s)", symm_status_text()), symmSystemError);
    T_STREQ(symm_status_text(), "outer (inner)");
    symm_status_adopt(symm_status_text() + 7);
    T_STREQ(symm_status_text(), "inner)");
}

static void a_long_text_is_cut(void) {
    T_EXPECT_WARNINGS();
    T_EQ(SYMM_ERR(symmSystemError, "%*d", 4000, 1), symmSystemError);
    T_EQ(strlen(symm_status_text()), SYMM_ERR_TEXT - 1);
    char text[2 * SYMM_ERR_TEXT];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = 0;
    symm_status_adopt(text);
    T_EQ(strlen(symm_status_text()), SYMM_ERR_TEXT - 1);
}

static void adopting_logs_nothing(void) {
    symm_status_adopt("said by rank 2");
    T_STREQ(symmGetLastError(NULL), "said by rank 2");
    symm_status_adopt(NULL);
    T_STREQ(symmGetLastError(NULL), "");
    T_EQ(SYMM_STAT_GET(log_warnings), 0);
}

static symmResult_t tried(symmResult_t inner, int *reached) {
    SYMM_TRY(inner);
    *reached = 1;
    return symmSuccess;
}

static symmResult_t tried_goto(symmResult_t inner, int *undone) {
    symmResult_t status;
    SYMM_TRY_GOTO(inner, undo);
    return symmSuccess;
undo:
    *undone = 1;
    return status;
}

static void try_passes_codes_on(void) {
    int reached = 0, undone = 0;
    T_ERR(tried(symmTimeout, &reached), symmTimeout);
    T_EQ(reached, 0);
    T_OK(tried(symmSuccess, &reached));
    T_EQ(reached, 1);
    T_OK(tried_goto(symmSuccess, &undone));
    T_EQ(undone, 0);
    T_ERR(tried_goto(symmMismatch, &undone), symmMismatch);
    T_EQ(undone, 1);
}

static void own_text(int rank, int n, void *barrier) {
    char want[32];
    snprintf(want, sizeof want, "thread %d of %d", rank, n);
    symm_status_adopt(want);
    pthread_barrier_wait(barrier);
    T_STREQ(symm_status_text(), want);
}

static void texts_belong_to_threads(void) {
    pthread_barrier_t barrier;
    pthread_barrier_init(&barrier, NULL, 8);
    T_THREADS(8, own_text, &barrier);
    pthread_barrier_destroy(&barrier);
    T_STREQ(symm_status_text(), "");
}

/* ---- the log: each test sends it to a file of its own and reads that ------------------------ */

typedef struct {
    char path[64], text[65536];
} logfile_t;

static logfile_t logfile;

static void open_log(int level) {
    strcpy(logfile.path, "/tmp/symm-unit-XXXXXX");
    int fd = mkstemp(logfile.path);
    T_CHECKF(fd >= 0, "mkstemp: %s", strerror(errno));
    close(fd);
    symm_log_setup(level, logfile.path);
}

/* Closes the log and returns what was written. */
static const char *read_log(void) {
    symm_log_setup(SYMM_LOG_WARN, "");
    FILE *f = fopen(logfile.path, "r");
    T_CHECK(f != NULL);
    size_t n = fread(logfile.text, 1, sizeof logfile.text - 1, f);
    logfile.text[n] = 0;
    fclose(f);
    unlink(logfile.path);
    return logfile.text;
}

static void lines_have_nccl_s_shape(void) {
    char want[512];
    T_EXPECT_WARNINGS();
    open_log(SYMM_LOG_INFO);
    SYMM_WARN("no rank");
    int line = __LINE__ - 1;
    symm_log_rank(5);
    SYMM_INFO("with %s", "rank");
    symm_log_rank(-1);
    int pid = (int)getpid(), tid = (int)syscall(SYS_gettid);
    snprintf(want, sizeof want,
             "%s:%d:%d symm WARN unit_status.c:%d no rank\n%s:%d:%d [5] symm INFO with rank\n",
             symm_log_host(), pid, tid, line, symm_log_host(), pid, tid);
    T_STREQ(read_log(), want);
}

static void levels_filter(void) {
    open_log(SYMM_LOG_NONE);
    SYMM_WARN("unseen");
    T_EQ(SYMM_STAT_GET(log_warnings), 0);
    T_STREQ(read_log(), "");
    open_log(SYMM_LOG_INFO);
    SYMM_TRACE("unseen");
    SYMM_INFO("seen");
    T_CHECK(!strstr(read_log(), "unseen"));
    T_MSG(logfile.text, "symm INFO seen");
}

static void propagation_is_traced(void) {
    int reached = 0;
    open_log(SYMM_LOG_TRACE);
    T_ERR(tried(symmTimeout, &reached), symmTimeout);
    T_MSG(read_log(), "symm TRACE unit_status.c:");
    T_MSG(logfile.text, "inner -> 8 (deadline passed)");
    T_EQ(SYMM_STAT_GET(log_warnings), 0);
}

static void logging_leaves_errno_alone(void) {
    open_log(SYMM_LOG_INFO);
    errno = EXDEV;
    SYMM_INFO("x");
    T_EQ(errno, EXDEV);
    read_log();
}

static void a_long_line_is_cut_and_ended(void) {
    open_log(SYMM_LOG_INFO);
    SYMM_INFO("%*d", 10000, 7);
    SYMM_INFO("next");
    const char *text = read_log(), *end = strchr(text, '\n');
    T_CHECK(end && end - text < 2048);
    T_MSG(end, "symm INFO next\n");
}

static void the_file_s_name_takes_host_and_pid(void) {
    char dir[] = "/tmp/symm-unit-XXXXXX", pattern[128], path[512];
    T_CHECK(mkdtemp(dir) != NULL);
    snprintf(pattern, sizeof pattern, "%s/%%h.%%p.log", dir);
    snprintf(path, sizeof path, "%s/%s.%d.log", dir, symm_log_host(), (int)getpid());
    symm_log_setup(SYMM_LOG_INFO, pattern);
    SYMM_INFO("hello");
    symm_log_setup(SYMM_LOG_WARN, "");
    FILE *f = fopen(path, "r");
    T_CHECKF(f != NULL, "%s was not written", path);
    T_CHECK(fgets(logfile.text, sizeof logfile.text, f) != NULL);
    fclose(f);
    T_MSG(logfile.text, "hello");
    T_EQ(unlink(path), 0);
    T_EQ(rmdir(dir), 0);
}

static void a_file_that_cannot_be_opened_is_named(void) {
    T_EXPECT_WARNINGS();
    symm_log_setup(SYMM_LOG_WARN, "/nonexistent/dir/log");
    T_EQ(SYMM_STAT_GET(log_warnings), 1);
    symm_log_setup(SYMM_LOG_WARN, "/nonexistent/dir/log");
    T_EQ(SYMM_STAT_GET(log_warnings), 1); /* said once, not at every communicator */
    symm_log_setup(SYMM_LOG_WARN, "");
}

/* symmLogQuery, symmLogWrite: lines of a program go where ours do, or nowhere. */
static void a_programs_own_lines(void) {
    T_EXPECT_WARNINGS();
    for (int level = SYMM_LOG_NONE; level <= SYMM_LOG_TRACE; level++) {
        int now = 77, lines = 0;
        open_log(level);
        T_OK(symmLogQuery(&now));
        T_EQ(now, level);
        T_OK(symmLogWrite(symmLogWarn, "mine 2 %s %n")); /* no format */
        T_OK(symmLogWrite(symmLogInfo, "mine 3"));
        T_OK(symmLogWrite(symmLogTrace, "mine 4"));
        read_log();
        for (const char *at = logfile.text; (at = strstr(at, "mine ")); at++) lines++;
        T_EQ(lines, level < symmLogWarn ? 0 : level - symmLogWarn + 1);
        if (lines) T_MSG(logfile.text, "symm WARN mine 2 %s %n\n");
    }
}

static void bad_lines_are_refused(void) {
    T_EXPECT_WARNINGS();
    open_log(SYMM_LOG_INFO);
    T_ERR(symmLogQuery(NULL), symmInvalidArgument);
    T_ERR(symmLogWrite(symmLogInfo, NULL), symmInvalidArgument);
    T_ERR(symmLogWrite((symmLogLevel_t)1, "unseen"), symmInvalidArgument);
    T_MSG(symmGetLastError(NULL), "level=1: must be 2 to 4");
    T_ERR(symmLogWrite((symmLogLevel_t)5, "unseen"), symmInvalidArgument);
    T_CHECK(!strstr(read_log(), "unseen"));
}

enum { LINES = 100, WRITERS = 4 };

static void write_lines(int rank, int n, void *arg) {
    (void)n;
    (void)arg;
    symm_log_rank(rank);
    for (int i = 0; i < LINES; i++) SYMM_INFO("line %03d of %d END", i, rank);
}

static void lines_of_threads_do_not_mix(void) {
    int next[WRITERS] = {0}, lines = 0;
    open_log(SYMM_LOG_INFO);
    T_THREADS(WRITERS, write_lines, NULL);
    char *save = NULL;
    read_log();
    for (char *s = strtok_r(logfile.text, "\n", &save); s; s = strtok_r(NULL, "\n", &save)) {
        int rank, number;
        const char *at = strstr(s, "line ");
        T_CHECKF(at && sscanf(at, "line %d of %d", &number, &rank) == 2, "torn line: %s", s);
        T_CHECK(rank >= 0 && rank < WRITERS);
        T_EQ(number, next[rank]++);
        T_STREQ(strrchr(s, ' '), " END");
        lines++;
    }
    T_EQ(lines, LINES * WRITERS);
}

T_MAIN(T(every_code_has_its_own_text), T(codes_outside_the_table_have_a_text),
       T(version_is_the_header_s), T(an_error_keeps_its_text_and_counts_as_a_warning),
       T(a_text_may_quote_the_last_one), T(a_long_text_is_cut), T(adopting_logs_nothing),
       T(try_passes_codes_on), T(texts_belong_to_threads), T(lines_have_nccl_s_shape),
       T(levels_filter), T(propagation_is_traced), T(logging_leaves_errno_alone),
       T(a_long_line_is_cut_and_ended), T(the_file_s_name_takes_host_and_pid),
       T(a_file_that_cannot_be_opened_is_named), T(a_programs_own_lines), T(bad_lines_are_refused),
       T(lines_of_threads_do_not_mix))
