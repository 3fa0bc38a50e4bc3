/* log.c - writes the log's lines and owns its destination. Any thread; log_lock is held while one
 * line is written and while the destination changes, never while anything else is done. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "log.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "symm.h"
#include "fail.h"
#include "fd.h"
#include "param.h"
#include "stats.h"
#include "status.h"

enum { LINE_BYTES = 2048, PATH_BYTES = 512 };

int symm_log_level = SYMM_LOG_UNREAD;

static pthread_mutex_t log_lock = PTHREAD_MUTEX_INITIALIZER;
static int log_fd = STDERR_FILENO; /* under log_lock, as are the next two */
static char log_pattern[PATH_BYTES];
static pid_t log_pid;
static _Thread_local int log_rank = -1;

static pthread_once_t host_once = PTHREAD_ONCE_INIT;
static char host_name[64];

static void find_host(void) {
    if (gethostname(host_name, sizeof host_name - 1) != 0) strcpy(host_name, "localhost");
    host_name[strcspn(host_name, ".")] = 0;
}

const char *symm_log_host(void) {
    pthread_once(&host_once, find_host);
    return host_name;
}

void symm_log_rank(int rank) {
    log_rank = rank;
}

int symm_log_rank_now(void) {
    return log_rank;
}

/* ---- lines -------------------------------------------------------------------------------- */

/* Appends to a line; what does not fit is cut, so that the line stays one write. */
__attribute__((format(printf, 3, 0))) static size_t add(char *line, size_t len, const char *fmt,
                                                        va_list ap) {
    int n = vsnprintf(line + len, LINE_BYTES - 1 - len, fmt, ap);
    if (n < 0) return len;
    return len + (size_t)n < LINE_BYTES - 1 ? len + (size_t)n : LINE_BYTES - 2;
}

__attribute__((format(printf, 3, 4))) static size_t addf(char *line, size_t len, const char *fmt,
                                                         ...) {
    va_list ap;
    va_start(ap, fmt);
    len = add(line, len, fmt, ap);
    va_end(ap);
    return len;
}

static const char *base_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static size_t add_head(char *line, int level, const char *file, int line_no) {
    static const char *const names[] = {"NONE", "VERSION", "WARN", "INFO", "TRACE"};
    size_t len =
        addf(line, 0, "%s:%d:%d ", symm_log_host(), (int)getpid(), (int)syscall(SYS_gettid));
    if (log_rank >= 0) len = addf(line, len, "[%d] ", log_rank);
    len = addf(line, len, "symm %s ", names[level]);
    /* where it was said helps with trouble and traces, and is noise elsewhere */
    if (file && (level == SYMM_LOG_WARN || level == SYMM_LOG_TRACE))
        len = addf(line, len, "%s:%d ", base_name(file), line_no);
    return len;
}

static void put_line(const char *line, size_t len) {
    pthread_mutex_lock(&log_lock);
    while (len > 0) {
        ssize_t n = SYMM_FAIL_CALL(log_write, -1, ENOSPC, write(log_fd, line, len));
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) break; /* nobody left to tell */
        line += n;
        len -= (size_t)n;
    }
    pthread_mutex_unlock(&log_lock);
}

/* A message before any communicator: nothing has read SYMM_DEBUG yet. */
static int is_wanted(int level) {
    if (__atomic_load_n(&symm_log_level, __ATOMIC_RELAXED) != SYMM_LOG_UNREAD) return 1;
    symm_log_ask();
    return level <= __atomic_load_n(&symm_log_level, __ATOMIC_RELAXED);
}

void symm_log_write(int level, const char *file, int line_no, const char *fmt, ...) {
    char line[LINE_BYTES];
    int saved = errno; /* callers report errno after they have logged */
    va_list ap;
    if (!is_wanted(level)) {
        errno = saved;
        return;
    }
    if (level < SYMM_LOG_NONE) level = SYMM_LOG_NONE;
    if (level > SYMM_LOG_TRACE) level = SYMM_LOG_TRACE;
    if (level == SYMM_LOG_WARN) SYMM_STAT_ADD(log_warnings, 1);
    size_t len = add_head(line, level, file, line_no);
    va_start(ap, fmt);
    len = add(line, len, fmt, ap);
    va_end(ap);
    line[len++] = '\n';
    put_line(line, len);
    errno = saved;
}

/* ---- destination -------------------------------------------------------------------------- */

static void expand(const char *pattern, char *path) {
    size_t len = 0;
    path[0] = 0;
    for (; *pattern && len < PATH_BYTES - 1; pattern++) {
        int n = 1;
        if (pattern[0] == '%' && pattern[1] == 'h')
            n = snprintf(path + len, PATH_BYTES - len, "%s", symm_log_host()), pattern++;
        else if (pattern[0] == '%' && pattern[1] == 'p')
            n = snprintf(path + len, PATH_BYTES - len, "%d", (int)getpid()), pattern++;
        else
            path[len] = *pattern;
        len += (size_t)n;
    }
    path[len < PATH_BYTES ? len : PATH_BYTES - 1] = 0;
}

/* The destination is opened anew when the pattern changes, and in a forked child, whose %p is
 * another one. */
static int is_current(const char *pattern) {
    pthread_mutex_lock(&log_lock);
    int same =
        strncmp(pattern, log_pattern, PATH_BYTES - 1) == 0 && (!*pattern || log_pid == getpid());
    pthread_mutex_unlock(&log_lock);
    return same;
}

static void set_destination(int fd, const char *pattern) {
    pthread_mutex_lock(&log_lock);
    int old = log_fd;
    log_fd = fd;
    log_pid = getpid();
    snprintf(log_pattern, sizeof log_pattern, "%s", pattern);
    pthread_mutex_unlock(&log_lock);
    if (old != STDERR_FILENO) close(old); /* no writer holds it: writes happen under the lock */
}

void symm_log_setup(int level, const char *file) {
    char path[PATH_BYTES];
    __atomic_store_n(&symm_log_level, level, __ATOMIC_RELAXED);
    if (is_current(file)) return;
    int fd = STDERR_FILENO;
    expand(file, path);
    if (*file)
        fd = symm_fd_above(SYMM_FAIL_CALL(
            log_open, -1, EACCES, open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644)));
    int err = errno;
    set_destination(fd < 0 ? STDERR_FILENO : fd, file);
    if (fd < 0) SYMM_WARN("SYMM_DEBUG_FILE=%s: cannot open %s: %s", file, path, strerror(err));
}

void symm_log_ask(void) {
    const char *file;
    int level;
    symm_param_of_log(&level, &file);
    symm_log_setup(level, file);
}

/* ---- lines of programs -------------------------------------------------------------------- */

static int level_now(void) {
    if (__atomic_load_n(&symm_log_level, __ATOMIC_RELAXED) == SYMM_LOG_UNREAD) symm_log_ask();
    return __atomic_load_n(&symm_log_level, __ATOMIC_RELAXED);
}

symmResult_t symmLogQuery(int *level) {
    if (!level) return SYMM_ERR(symmInvalidArgument, "symmLogQuery: level is NULL");
    *level = level_now();
    return symmSuccess;
}

symmResult_t symmLogWrite(symmLogLevel_t level, const char *text) {
    if (!text) return SYMM_ERR(symmInvalidArgument, "symmLogWrite: text is NULL");
    if (level < symmLogWarn || level > symmLogTrace)
        return SYMM_ERR(symmInvalidArgument, "symmLogWrite: level=%d: must be %d to %d", (int)level,
                        symmLogWarn, symmLogTrace);
    if ((int)level <= level_now()) symm_log_write((int)level, NULL, 0, "%s", text);
    return symmSuccess;
}
