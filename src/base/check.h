/* check.h - assertions. In test builds (SYMM_TESTING) SYMM_ASSERT(cond) ends the process with
 * SIGABRT when `cond` is false, after it has written file, line and condition to stderr. In release
 * builds it is nothing: `cond` is compiled, so that it cannot rot, and never evaluated. An
 * assertion states an invariant of our own objects, never what a caller or a peer may do: that is
 * an error code. Each object has a function `<object>_check` that asserts its invariants. What
 * changes the object calls it at its beginning and end, under the lock that guards the object,
 * through SYMM_CHECK. Any thread. */
#ifndef SYMM_CHECK_H_
#define SYMM_CHECK_H_

#ifdef SYMM_TESTING
#include <stdio.h>
#include <stdlib.h>

__attribute__((noreturn, cold)) static inline void symm_assert_failed(const char *file, int line,
                                                                      const char *condition) {
    fprintf(stderr, "%s:%d: assertion failed: %s\n", file, line, condition);
    abort();
}
#define SYMM_ASSERT(cond) \
    (__builtin_expect(!!(cond), 1) ? (void)0 : symm_assert_failed(__FILE__, __LINE__, #cond))
#define SYMM_CHECK(call) (call)
#else
#define SYMM_ASSERT(cond) ((void)sizeof(!!(cond)))
#define SYMM_CHECK(call) \
    do {                 \
        if (0) call;     \
    } while (0)
#endif

#endif
