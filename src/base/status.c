/* status.c - result codes, their texts, and the text of each thread's last error. Any thread; no
 * lock: the text is thread-local, everything else constant. */
#include "status.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "log.h"

static _Thread_local char last_text[SYMM_ERR_TEXT];

#define SYMM_ERROR(name, value, text) _Static_assert(name == (value), #name " has another value");
#include "errors.def"
#undef SYMM_ERROR

static const char *const error_texts[] = {
#define SYMM_ERROR(name, value, text) [value] = text,
#include "errors.def"
#undef SYMM_ERROR
};
_Static_assert(sizeof error_texts / sizeof *error_texts == symmNumResults, "a code has no text");

symmResult_t symm_status_set(symmResult_t code, const char *file, int line, const char *fmt, ...) {
    char text[SYMM_ERR_TEXT]; /* not straight into last_text, which may be among the arguments */
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    memcpy(last_text, text, sizeof text);
    if (__atomic_load_n(&symm_log_level, __ATOMIC_RELAXED) >= SYMM_LOG_WARN)
        symm_log_write(SYMM_LOG_WARN, file, line, "%s", text);
    return code;
}

symmResult_t symm_status_pass(symmResult_t code, const char *file, int line, const char *expr) {
    if (__atomic_load_n(&symm_log_level, __ATOMIC_RELAXED) >= SYMM_LOG_TRACE)
        symm_log_write(SYMM_LOG_TRACE, file, line, "%s -> %d (%s)", expr, (int)code,
                       symmGetErrorString(code));
    return code;
}

const char *symm_status_text(void) {
    return last_text;
}

void symm_status_adopt(const char *text) {
    size_t len = text ? strnlen(text, SYMM_ERR_TEXT - 1) : 0;
    if (len) memmove(last_text, text, len); /* the caller may hand us a part of our own text */
    last_text[len] = 0;
}

const char *symmGetErrorString(symmResult_t result) {
    if ((unsigned)result >= symmNumResults) return "unknown result code";
    return error_texts[result];
}

symmResult_t symmGetVersion(int *version) {
    if (!version) return SYMM_ERR(symmInvalidArgument, "symmGetVersion: version is NULL");
    *version = SYMM_VERSION_CODE;
    return symmSuccess;
}

const char *symmGetLastError(symmComm_t comm) {
    (void)comm; /* the text belongs to the thread, whichever communicator it was about */
    return symm_status_text();
}
