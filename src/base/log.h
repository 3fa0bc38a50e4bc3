/* log.h - the log, in NCCL's habits: `host:pid:tid [rank] symm WARN text`. Any thread; one lock,
 * held only while a line is written. Level from SYMM_DEBUG (default WARN), destination from
 * SYMM_DEBUG_FILE (%h host, %p pid). Warnings and errors are counted in the gauge-like counter
 * `log_warnings`, so that tests can fail on them. */
#ifndef SYMM_LOG_H_
#define SYMM_LOG_H_

enum {
    SYMM_LOG_NONE = 0,
    SYMM_LOG_VERSION = 1,
    SYMM_LOG_WARN = 2,
    SYMM_LOG_INFO = 3,
    SYMM_LOG_TRACE = 4,
    SYMM_LOG_UNREAD = 5 /* the environment has not been asked yet: the first message does */
};

extern int
    symm_log_level; /* read without a lock (relaxed); set by symm_log_setup, from symm_param_load */

/* file NULL: a line of the program's. */
void symm_log_write(int level, const char *file, int line, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
/* The rank shown in this thread's lines (failpoints look at it too); -1 none. */
void symm_log_rank(int rank);
int symm_log_rank_now(void);
/* Sets level and destination ("" stderr; %h host, %p pid). A file that cannot be opened: a warning,
 * on stderr. The descriptor of the file lives as long as the process and is in no gauge. */
void symm_log_setup(int level, const char *file);
/* Sets both by what the environment says of them now, the defaults where that is bad. Says nothing
 * about bad values: symm_param_load reports them. */
void symm_log_ask(void);
/* The host's name without its domain, as log lines show it. */
const char *symm_log_host(void);

#define SYMM_LOG_AT(level, ...)                                                                 \
    do {                                                                                        \
        if (__builtin_expect(__atomic_load_n(&symm_log_level, __ATOMIC_RELAXED) >= (level), 0)) \
            symm_log_write((level), __FILE__, __LINE__, __VA_ARGS__);                           \
    } while (0)
#define SYMM_WARN(...)  SYMM_LOG_AT(SYMM_LOG_WARN, __VA_ARGS__)
#define SYMM_INFO(...)  SYMM_LOG_AT(SYMM_LOG_INFO, __VA_ARGS__)
#define SYMM_TRACE(...) SYMM_LOG_AT(SYMM_LOG_TRACE, __VA_ARGS__)

#endif
