/* nccl.c - see nccl.h; nccl_open.c says where a NCCL is looked for. Lock: held meanwhile. */
#define _GNU_SOURCE
#include "nccl.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/fail.h"
#include "base/log.h"
#include "symm_nccl.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int looked, there;
static symm_nccl calls;
static char found[400]; /* its file, or why there is none */
static char lacks[64];  /* what it has not; "": it has all */

/* NCCL reads it once, and its default is yes. */
static int registers(void) {
    const char *said = getenv("NCCL_GRAPH_REGISTER");
    return !said || !*said || strtol(said, NULL, 0) != 0;
}

/* The functions that are used; what is missing is in `lacks`. Then no other NCCL is looked for: the
 * error names this one. */
static void take(void *library) {
#define LOOK_UP(name)                                          \
    *(void **)(void *)&calls.name = dlsym(library, "p" #name); \
    if (!calls.name) snprintf(lacks, sizeof lacks, "p" #name);
#define CALL(name, params) LOOK_UP(name)
    SYMM_NCCL_CALLS(CALL)
    LOOK_UP(ncclGetErrorString)
    LOOK_UP(ncclGetLastError)
#undef CALL
#undef LOOK_UP
    calls.registers = registers();
}
static void look(const char *named) {
    void *library;
    if (symmNcclOpen(named, 0, &library, found, sizeof found)) {
        snprintf(found, sizeof found, "%s", symm_status_text());
        return;
    }
    take(library);
    there = !*lacks;
    if (there) SYMM_INFO("messages between domains of GPUs go by the NCCL in %s", found);
}

symmResult_t symm_nccl_find(const char *named, const symm_nccl **out) {
    if (SYMM_FAIL_HERE(nccl_find))
        return SYMM_ERR(symmNotSupported, "GPUs of several domains need NCCL: none (a test)");
    pthread_mutex_lock(&lock);
    if (!looked) look(named);
    looked = 1;
    pthread_mutex_unlock(&lock);
    *out = &calls;
    if (there) return symmSuccess;
    return SYMM_ERR(symmNotSupported, "GPUs of several domains need NCCL: %s%s%s", found,
                    *lacks ? " has no " : "", lacks);
}

const char *symm_nccl_path(void) {
    return found;
}

symmResult_t symm_nccl_error(const symm_nccl *n, nccl_result code, const char *call) {
    if (!code) return symmSuccess;
    const char *last = n->ncclGetLastError(NULL);
    return SYMM_ERR(symmSystemError, "%s failed between domains: %s (%d)%s%.200s", call,
                    n->ncclGetErrorString(code), code, last && *last ? ": " : "", last ? last : "");
}

#ifdef SYMM_TESTING
void symm_nccl_inject(const symm_nccl *n) {
    looked = there = n != NULL;
    if (n) calls = *n;
    calls.registers = registers();
}
#endif
