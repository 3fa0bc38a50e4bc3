/* report.c - errors of the drop-in: codes, the text for ncclGetLastError, lines in symm's log. Any
 * thread. Lock: guards the last text of the process. */
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "plugin.h"

enum { TEXT_BYTES = 512 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Thread_local char text[TEXT_BYTES]; /* this thread's */
static char last[TEXT_BYTES];               /* of all threads, as NCCL has one alone */

static void keep(const char *line) {
    snprintf(text, sizeof text, "%s", line);
    pthread_mutex_lock(&lock);
    memcpy(last, text, sizeof last);
    pthread_mutex_unlock(&lock);
}

ncclResult_t symm_nccl_fail(ncclResult_t code, const char *fmt, ...) {
    char line[TEXT_BYTES]; /* an argument may be the old text */
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    keep(line);
    symmLogWrite(symmLogWarn, text);
    return code;
}

ncclResult_t symm_nccl_unready(const char *call) {
    return symm_nccl_fail(ncclInvalidArgument,
                          "%s: the communicator is still being made, or another one from it: "
                          "ncclCommGetAsyncError tells when it can be used",
                          call);
}

ncclResult_t symm_nccl_null(const char *call, const char *argument) {
    return symm_nccl_fail(ncclInvalidArgument, "%s: %s is NULL", call, argument);
}

void symm_nccl_say(symmLogLevel_t level, const char *fmt, ...) {
    char line[1024];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    symmLogWrite(level, line);
}

/* Programs were compiled with codes up to 7. */
static ncclResult_t nearest(symmResult_t r) {
    switch (r) {
    case symmTimeout:
    case symmAborted: return ncclRemoteError;
    case symmOutOfMemory:
    case symmFdLimit: return ncclSystemError;
    case symmMismatch:
    case symmNotSupported:
    case symmVersionMismatch:
    case symmNeedGrow: return ncclInvalidUsage;
    default: return r > symmInProgress ? ncclInternalError : (ncclResult_t)r;
    }
}

ncclResult_t symm_nccl_result(symmResult_t r) {
    if (r != symmSuccess && r != symmInProgress) keep(symmGetLastError(NULL));
    return nearest(r);
}

/* The thread's own where it has one: no other thread changes that while it is read. */
const char *ncclGetLastError(ncclComm_t comm) {
    static _Thread_local char others[TEXT_BYTES];
    (void)comm;
    if (*text) return text;
    pthread_mutex_lock(&lock);
    memcpy(others, last, sizeof others);
    pthread_mutex_unlock(&lock);
    return others;
}
NCCL_ALIAS(ncclGetLastError);

/* WHO_IS_IT is no code of NCCL's: by it symmNcclOpen knows this library. */
enum { WHO_IS_IT = 0x73796d6d };

const char *ncclGetErrorString(ncclResult_t result) {
    if ((int)result == WHO_IS_IT) return "symm";
    return symmGetErrorString(result >= ncclNumResults ? symmNumResults : (symmResult_t)result);
}
NCCL_ALIAS(ncclGetErrorString);

/* symm reads its variables whenever a communicator is made. */
void ncclResetDebugInit(void) {}
NCCL_ALIAS(ncclResetDebugInit);
void ncclResetDebugInitInternal(void) {}
NCCL_ALIAS(ncclResetDebugInitInternal);
