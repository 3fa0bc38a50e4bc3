/* fail.h - failpoints. In test builds (SYMM_TESTING) SYMM_FAIL_HERE(name) evaluates to true when
 * the environment variable SYMM_FAIL arms `name` with action `error` for this hit; `kill` ends the
 * process with SIGKILL; `delay=MS` sleeps. In release builds it is the constant 0 and the variable
 * is an unknown name. Any thread; one lock in test builds. SYMM_FAIL="name:action[:nth[:rank]]":
 * nth hit counts from 1 (0 or absent: every hit); rank: only in threads or processes whose
 * symm_log_rank is that rank (absent: all). */
#ifndef SYMM_FAIL_H_
#define SYMM_FAIL_H_

#include <errno.h>
#include <stddef.h>

enum {
#define SYMM_FAILPOINT(name, where, help) symm_fp_##name,
#include "fail.def"
#undef SYMM_FAILPOINT
    symm_fp_count
};

#ifdef SYMM_TESTING
int symm_fail_hit(int point); /* 1: fail here */
int symm_fail_arm(
    const char *spec);         /* replaces everything armed; "" disarms; -1 if the spec is bad */
int symm_fail_hits(int point); /* how often the point was reached since the last arm */
const char *symm_fail_name(int point);
const char *symm_fail_help(int point);
const char *symm_fail_where(int point); /* the scenarios that reach it, as words */
int symm_fail_check(const char *spec);  /* 0 if symm_fail_arm would take it, else -1. Pure */
/* Arms `value` if it differs from the value that the environment armed last. symm_param_load calls
 * it with SYMM_FAIL, and the first hit of a process does, so that what symm_fail_arm armed outlives
 * later loads. */
void symm_fail_env(const char *value);
/* 1 while something is armed: what is kept for later use is not used, so that all points are met.
 * */
int symm_fail_any(void);
#define SYMM_FAIL_HERE(name) __builtin_expect(symm_fail_hit(symm_fp_##name), 0)
#else
#define SYMM_FAIL_HERE(name) 0
#define symm_fail_any()      0
#endif

/* A call, or what it is like when it fails: `bad` with errno, a null pointer, or a code that is an
 * errno. The code behind cannot tell the one from the other, so it takes the path of a real
 * failure.
 */
#define SYMM_FAIL_CALL(name, bad, err, call) \
    (SYMM_FAIL_HERE(name) ? (errno = (err), (bad)) : (call))
#define SYMM_FAIL_ALLOC(name, call)     SYMM_FAIL_CALL(name, NULL, ENOMEM, call)
#define SYMM_FAIL_CODE(name, err, call) (SYMM_FAIL_HERE(name) ? (err) : (call))

#endif
