/* pages.c - host memory that all processes and GPUs of a communicator share. Thread rules as in
 * pages.h; the lock is for thread ranks, which register one set of pages at the same time. */
#include "pages.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/check.h"
#include "base/fail.h"
#include "base/log.h"
#include "base/stats.h"
#include "transport/cuda/cuda_driver.h"
#include "transport/vmm/memfd.h"

struct symm_pages {
    _Atomic int refs;
    int registered;
    pthread_mutex_t lock; /* registered */
    char *base;
    size_t bytes;
};

static symmResult_t map(int nranks, int fd, symm_pages **out) {
    symm_pages *p = SYMM_FAIL_ALLOC(pages_record, calloc(1, sizeof *p));
    if (!p) return SYMM_ERR(symmOutOfMemory, "no memory for the record of shared pages");
    p->bytes = (size_t)nranks * SYMM_PAGE_STRIDE;
    p->base = SYMM_FAIL_CALL(pages_map, MAP_FAILED, ENOMEM,
                             mmap(NULL, p->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
    if (p->base == MAP_FAILED) {
        symmResult_t r =
            SYMM_ERR(symmOutOfMemory, "mapping %zu bytes of shared pages: %m", p->bytes);
        free(p);
        return r;
    }
    atomic_store(&p->refs, 1);
    pthread_mutex_init(&p->lock, NULL);
    SYMM_STAT_ADD(maps, 1);
    *out = p;
    return symmSuccess;
}

symmResult_t symm_pages_new(int nranks, int *fd, symm_pages **out) {
    uint64_t id[2];
    int f, err = symm_memfd_make((uint64_t)nranks * SYMM_PAGE_STRIDE, &f, id);
    if (err)
        return SYMM_ERR(err == EMFILE || err == ENFILE ? symmFdLimit : symmSystemError,
                        "pages that %d ranks share: %s", nranks, strerror(err));
    symmResult_t status = map(nranks, f, out);
    if (status || !fd) {
        close(f);
        return status;
    }
    *fd = f;
    SYMM_STAT_ADD(fds, 1);
    return symmSuccess;
}

symmResult_t symm_pages_map(int nranks, int fd, symm_pages **out) {
    uint64_t id[2];
    int err = symm_memfd_inspect(fd, (uint64_t)nranks * SYMM_PAGE_STRIDE, id);
    if (err)
        return SYMM_ERR(symmInternalError, "rank 0 sent no sealed pages for %d ranks: %s", nranks,
                        strerror(err));
    return map(nranks, fd, out);
}

symmResult_t symm_pages_register(symm_pages *p, uint64_t *device) {
    cu_deviceptr at = 0;
    pthread_mutex_lock(&p->lock);
    cu_result cu = p->registered
                       ? 0
                       : symm_cu.cuMemHostRegister(
                             p->base, p->bytes, SYMM_CUDA_HOST_PORTABLE | SYMM_CUDA_HOST_DEVICEMAP);
    if (!cu) p->registered = 1;
    pthread_mutex_unlock(&p->lock);
    if (cu) return symm_cuda_error(cu, "registering %zu bytes of shared pages", p->bytes);
    cu = symm_cu.cuMemHostGetDevicePointer(&at, p->base, 0);
    if (cu) return symm_cuda_error(cu, "the device's address of the shared pages");
    SYMM_ASSERT(at);
    *device = at;
    return symmSuccess;
}

void symm_pages_ref(symm_pages *p) {
    SYMM_ASSERT(atomic_load_explicit(&p->refs, memory_order_relaxed) > 0);
    atomic_fetch_add_explicit(&p->refs, 1, memory_order_relaxed);
}

void symm_pages_unref(symm_pages *p) {
    /* Acquire and release: who unmaps comes after everyone's last use. */
    if (!p || atomic_fetch_sub_explicit(&p->refs, 1, memory_order_acq_rel) != 1) return;
    if (p->registered) {
        cu_result cu = symm_cu.cuMemHostUnregister(p->base);
        p->registered = cu != 0;
        if (cu) symm_cuda_error(cu, "unregistering the shared pages");
    }
    if (!p->registered) { /* if CUDA still has them registered, they must stay mapped */
        munmap(p->base, p->bytes);
        SYMM_STAT_ADD(maps, -1);
    }
    pthread_mutex_destroy(&p->lock);
    free(p);
}

symm_ctl *symm_pages_ctl(const symm_pages *p, int rank) {
    SYMM_ASSERT(rank >= 0 && (size_t)rank < p->bytes / SYMM_PAGE_STRIDE);
    return (symm_ctl *)(void *)(p->base + (size_t)rank * SYMM_PAGE_STRIDE);
}
