/* vmm.c - what is the same for all memory drivers: errors as texts, and symmMemAlloc / symmMemFree.
 *
 * Any thread. One lock (allocs.lock) guards the set of allocations. No driver call is made under
 * it. */
#define _GNU_SOURCE 1 /* strerror_r that returns the text */
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "base/fail.h"
#include "base/span.h"
#include "transport/cuda/cuda_driver.h"
#include "vmm.h"

#define ALLOC_ALIGN (2ull << 20)

struct alloc {
    symm_span span;
    const symm_vmm *driver;
    int unmapped; /* its free has failed after the unmap; the next one only unreserves */
};

static struct {
    pthread_mutex_t lock;
    symm_span *live; /* struct alloc */
} allocs = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* ---- refusals ------------------------------------------------------------------------------- */

const char *symm_vmm_code_name(int cu) {
    const char *name;
    switch (cu) {
    case SYMM_CU_SUCCESS: return "success";
    case SYMM_CU_INVALID_VALUE: return "invalid value";
    case SYMM_CU_OUT_OF_MEMORY: return "out of memory";
    case SYMM_CU_NOT_INITIALIZED: return "not initialised";
    case SYMM_CU_OS_ERROR: return "operating system error";
    case SYMM_CU_INVALID_HANDLE: return "invalid handle";
    case SYMM_CU_NOT_PERMITTED: return "not permitted";
    case SYMM_CU_NOT_SUPPORTED: return "not supported";
    case SYMM_CU_UNKNOWN: return "unknown error";
    default: name = symm_cuda_code_name(cu); return name ? name : "error";
    }
}

static int is_fd_limit(int err) {
    return err == EMFILE || err == ENFILE;
}

static symmResult_t code_of(int cu, int err) {
    if (is_fd_limit(err)) return symmFdLimit;
    switch (cu) {
    case SYMM_CU_SUCCESS: return symmSuccess;
    case SYMM_CU_OUT_OF_MEMORY: return symmOutOfMemory;
    case SYMM_CU_INVALID_VALUE:
    case SYMM_CU_INVALID_HANDLE: return symmInvalidArgument;
    case SYMM_CU_NOT_INITIALIZED: /* there is no CUDA */
    case SYMM_CU_NOT_SUPPORTED: return symmNotSupported;
    default: return symmUnhandledCudaError;
    }
}

/* ": Too many open files (limit 1024, see ulimit -n)", or "" if err is 0. */
static void describe_errno(int err, char *out, size_t cap) {
    char text[96];
    struct rlimit limit;
    out[0] = 0;
    if (err == 0) return;
    const char *what = strerror_r(err, text, sizeof text);
    if (err == EMFILE && getrlimit(RLIMIT_NOFILE, &limit) == 0)
        snprintf(out, cap, ": %s (limit %llu, see ulimit -n)", what,
                 (unsigned long long)limit.rlim_cur);
    else
        snprintf(out, cap, ": %s", what);
}

/* Each driver has its own: the errno of one driver's refusal says nothing about another's. */
static int errno_of(const symm_vmm *v) {
    if (v == &symm_vmm_host) return symm_vmm_errno();
    return v == &symm_vmm_cuda ? symm_vmm_cuda_errno() : 0;
}

symmResult_t symm_vmm_error(const symm_vmm *v, int cu, const char *fmt, ...) {
    char what[256], os[160];
    va_list args;
    if (cu == SYMM_CU_SUCCESS) return symmSuccess;
    va_start(args, fmt);
    vsnprintf(what, sizeof what, fmt, args);
    va_end(args);
    int err = errno_of(v);
    describe_errno(err, os, sizeof os);
    const char *why = cu == SYMM_CU_NOT_INITIALIZED && v == &symm_vmm_cuda ? symm_cuda_why() : "";
    return SYMM_ERR(code_of(cu, err), "memory driver %s: %s: %s (%d)%s%s%s", v ? v->name : "(none)",
                    what, symm_vmm_code_name(cu), cu, os, *why ? ": no CUDA: " : "", why);
}

/* ---- allocations ---------------------------------------------------------------------------- */

/* Maps h somewhere; the mapping then holds the memory. */
static symmResult_t map_anywhere(const symm_vmm *v, symm_vmm_handle *h, uint64_t bytes, void **va) {
    symmResult_t status;
    void *at = NULL;
    int cu = v->reserve(bytes, ALLOC_ALIGN, &at);
    if (cu) return symm_vmm_error(v, cu, "reservation of %" PRIu64 " bytes", bytes);
    if ((cu = v->map(at, bytes, 0, h)) != 0) {
        status = symm_vmm_error(v, cu, "map of %" PRIu64 " bytes at %p", bytes, at);
        goto unreserve;
    }
    if ((cu = v->set_access(at, bytes)) != 0) {
        status = symm_vmm_error(v, cu, "access to %" PRIu64 " bytes at %p", bytes, at);
        goto unmap;
    }
    *va = at;
    return symmSuccess;
unmap:
    v->unmap(at, bytes);
unreserve:
    v->unreserve(at, bytes);
    return status;
}

/* A rounded size, or 0 where the sum does not fit. */
static uint64_t round_up(uint64_t bytes, uint64_t to) {
    uint64_t rest = bytes % to;
    if (rest == 0) return bytes;
    return bytes > UINT64_MAX - (to - rest) ? 0 : bytes + (to - rest);
}

static symmResult_t memory_alloc(const symm_vmm *v, uint64_t bytes, void **va) {
    symm_vmm_handle *h = NULL;
    int cu = v->create(bytes, &h);
    if (cu) return symm_vmm_error(v, cu, "create of %" PRIu64 " bytes", bytes);
    symmResult_t status = map_anywhere(v, h, bytes, va);
    v->release(h);
    return status;
}

symmResult_t symm_vmm_alloc(const symm_vmm *v, uint64_t bytes, void **ptr) {
    symm_vmm_caps caps;
    void *va = NULL;
    if (!v) return SYMM_ERR(symmInvalidArgument, "allocation: the memory driver is NULL");
    if (!ptr) return SYMM_ERR(symmInvalidArgument, "allocation: ptr is NULL");
    if (bytes == 0)
        return SYMM_ERR(symmInvalidArgument, "allocation: size=%" PRIu64 ": must be at least 1",
                        bytes);
    int cu = v->query(&caps);
    if (cu) return symm_vmm_error(v, cu, "query");
    uint64_t rounded = round_up(bytes, caps.granularity);
    if (rounded == 0)
        return SYMM_ERR(symmOutOfMemory, "allocation: no machine has %" PRIu64 " bytes", bytes);
    struct alloc *a = SYMM_FAIL_ALLOC(mem_alloc, calloc(1, sizeof *a));
    if (!a) return SYMM_ERR(symmOutOfMemory, "allocation: no memory for its record");
    symmResult_t status = memory_alloc(v, rounded, &va);
    if (status != symmSuccess) {
        free(a);
        return symm_status_pass(status, __FILE__, __LINE__, "memory_alloc");
    }
    a->span.lo = (uintptr_t)va;
    a->span.hi = a->span.lo + rounded;
    a->driver = v;
    pthread_mutex_lock(&allocs.lock);
    symm_span_insert(&allocs.live, &a->span);
    pthread_mutex_unlock(&allocs.lock);
    *ptr = va;
    return symmSuccess;
}

/* Takes the allocation that starts at ptr out of the set, so of two frees at once one fails. If
 * there is none, *near is a copy of the allocation that contains ptr; its span is empty if none
 * does. */
static struct alloc *claim(const symm_vmm *v, const void *ptr, struct alloc *near) {
    uint64_t at = (uintptr_t)ptr;
    struct alloc *found = NULL;
    *near = (struct alloc){.driver = NULL};
    pthread_mutex_lock(&allocs.lock);
    struct alloc *a = (struct alloc *)symm_span_floor(allocs.live, at);
    if (a && a->span.lo == at && a->driver == v)
        found = (struct alloc *)symm_span_take(&allocs.live, at, at + 1);
    else if (a && at < a->span.hi)
        *near = *a;
    pthread_mutex_unlock(&allocs.lock);
    return found;
}

const symm_vmm *symm_vmm_owner(const void *ptr) {
    uint64_t at = (uintptr_t)ptr;
    pthread_mutex_lock(&allocs.lock);
    struct alloc *a = (struct alloc *)symm_span_floor(allocs.live, at);
    const symm_vmm *v = a && at < a->span.hi ? a->driver : NULL;
    pthread_mutex_unlock(&allocs.lock);
    return v;
}

static symmResult_t refuse_free(const symm_vmm *v, const void *ptr, const struct alloc *near) {
    uint64_t at = (uintptr_t)ptr, lo = near->span.lo;
    if (near->span.hi == 0)
        return SYMM_ERR(symmInvalidArgument,
                        "free: %p is not an allocation of this library, or was freed before", ptr);
    if (lo != at)
        return SYMM_ERR(symmInvalidArgument,
                        "free: %p lies %" PRIu64 " bytes inside the allocation of %" PRIu64
                        " bytes at %p; pass its start",
                        ptr, at - lo, near->span.hi - lo, (void *)(uintptr_t)lo);
    return SYMM_ERR(symmInvalidArgument, "free: %p belongs to memory driver %s, not %s", ptr,
                    near->driver->name, v->name);
}

/* The free has failed; it may be called again. */
static void put_back(struct alloc *a) {
    pthread_mutex_lock(&allocs.lock);
    symm_span_insert(&allocs.live, &a->span);
    pthread_mutex_unlock(&allocs.lock);
}

symmResult_t symm_vmm_free(const symm_vmm *v, void *ptr) {
    struct alloc near;
    if (!ptr) return symmSuccess;
    if (!v) return SYMM_ERR(symmInvalidArgument, "free of %p: the memory driver is NULL", ptr);
    struct alloc *a = claim(v, ptr, &near);
    if (!a) return refuse_free(v, ptr, &near);
    uint64_t bytes = a->span.hi - a->span.lo;
    int cu = a->unmapped ? 0 : v->unmap(ptr, bytes);
    if (cu) {
        put_back(a);
        return symm_vmm_error(v, cu, "unmap of %" PRIu64 " bytes at %p", bytes, ptr);
    }
    a->unmapped = 1;
    cu = v->unreserve(ptr, bytes);
    if (cu) {
        put_back(a);
        return symm_vmm_error(v, cu, "return of %" PRIu64 " bytes at %p", bytes, ptr);
    }
    free(a);
    return symmSuccess;
}
