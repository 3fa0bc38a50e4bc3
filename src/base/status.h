/* status.h - result codes inside the library and the per-thread text of the last error.
 * Any thread. No lock: the text is thread-local. Only the function that first detects an error
 * calls SYMM_ERR (which records and logs it); everybody above passes the code on with SYMM_TRY /
 * SYMM_TRY_GOTO. */
#ifndef SYMM_STATUS_H_
#define SYMM_STATUS_H_

#include "symm.h"

#define SYMM_ERR_TEXT 512

/* Records code and text for symmGetLastError, logs at WARN with file:line, returns code. */
SYMM_API symmResult_t symm_status_set(symmResult_t code, const char *file, int line,
                                      const char *fmt, ...) __attribute__((format(printf, 4, 5)));
/* Logs one propagation step at TRACE (a free backtrace), returns code. */
SYMM_API symmResult_t symm_status_pass(symmResult_t code, const char *file, int line,
                                       const char *expr);
/* The calling thread's last text, never NULL. */
SYMM_API const char *symm_status_text(void);
/* Replaces the calling thread's text without logging: a peer or another thread has logged it. */
void symm_status_adopt(const char *text);

/* What is wrong with a record whose first field is its size: "info is ...". */
#define SYMM_NO_SIZE \
    "without its size (set .size to sizeof before the call), or from an older header"

/* What a record with settings may be besides: behind where it should start from. */
#define SYMM_NEWER "; of a newer header no field may be set that is not known here"

/* The code stands in the expression itself so that the compiler knows it is an error. */
#define SYMM_ERR(code, ...) \
    (symm_status_set((code), __FILE__, __LINE__, __VA_ARGS__), (symmResult_t)(code))
/* snprintf, for a text that an error gets later: `symm-info errors` has it among the others. */
#define SYMM_SAY(text, cap, ...) snprintf(text, cap, __VA_ARGS__)
#define SYMM_TRY(x)                                         \
    do {                                                    \
        symmResult_t try_ = (x);                            \
        if (__builtin_expect(try_ != symmSuccess, 0)) {     \
            symm_status_pass(try_, __FILE__, __LINE__, #x); \
            return try_;                                    \
        }                                                   \
    } while (0)
/* `status` is a local symmResult_t; labels are named for what they undo, in reverse order. */
#define SYMM_TRY_GOTO(x, label)                               \
    do {                                                      \
        status = (x);                                         \
        if (__builtin_expect(status != symmSuccess, 0)) {     \
            symm_status_pass(status, __FILE__, __LINE__, #x); \
            goto label;                                       \
        }                                                     \
    } while (0)

#endif
