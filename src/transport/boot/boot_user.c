/* boot_user.c - bootstrap through the caller's callbacks. They run in the thread that is inside the
 * call, and in no other; no lock. They cannot be interrupted, so they must end by themselves. */
#include <stdlib.h>

#include "base/fail.h"
#include "boot.h"
#include "boot_text.h"

typedef struct {
    symm_boot base;
    symmBoot_t cb;
    int failed;
} boot_user;

static symmResult_t exchange(boot_user *u, const void *send, void *recv, size_t bytes,
                             const symm_wait *w) {
    SYMM_TRY(symm_boot_check(w));
    if (SYMM_FAIL_HERE(boot_allgather))
        return SYMM_ERR(symmSystemError, "failpoint boot_allgather on rank %d", u->base.rank);
    /* Some allgathers refuse a size of 0. For 0 bytes a barrier does the same. */
    int rc = bytes ? u->cb.allgather(u->cb.ctx, send, recv, bytes) : u->cb.barrier(u->cb.ctx);
    if (rc)
        return SYMM_ERR(
            symmSystemError, "the caller's %s callback failed with %d on rank %d (%zu bytes, %s)",
            bytes ? "allgather" : "barrier", rc, u->base.rank, bytes, symm_boot_stage(w));
    return symmSuccess;
}

static symmResult_t user_allgather(symm_boot *b, const void *send, void *recv, size_t bytes,
                                   const symm_wait *w) {
    boot_user *u = (boot_user *)b;
    if (u->failed)
        return SYMM_ERR(symmInvalidUsage, "bootstrap callbacks: an exchange has failed before (%s)",
                        symm_boot_stage(w));
    symmResult_t status = exchange(u, send, recv, bytes, w);
    u->failed = status != symmSuccess;
    return status;
}

static void user_close(symm_boot *b) {
    free(b);
}

static const symm_boot_ops user_ops = {"callbacks", user_allgather, user_close, 0, NULL};

symmResult_t symm_boot_user_open(const symmBoot_t *cb, int rank, int nranks, symm_boot **out) {
    if (!cb || !cb->allgather || !cb->barrier)
        return SYMM_ERR(symmInvalidArgument, "bootstrap callbacks: %s is NULL",
                        !cb              ? "boot"
                        : !cb->allgather ? "boot->allgather"
                                         : "boot->barrier");
    if (nranks < 1 || rank < 0 || rank >= nranks)
        return SYMM_ERR(symmInvalidArgument, "rank %d of %d ranks: rank must be in [0, nranks)",
                        rank, nranks);
    if (SYMM_FAIL_HERE(boot_connect))
        return SYMM_ERR(symmSystemError, "failpoint boot_connect on rank %d", rank);
    boot_user *u = SYMM_FAIL_ALLOC(boot_alloc, calloc(1, sizeof(*u)));
    if (!u) return SYMM_ERR(symmOutOfMemory, "bootstrap callbacks: out of memory (rank %d)", rank);
    u->base = (symm_boot){.ops = &user_ops, .rank = rank, .nranks = nranks};
    u->cb = *cb;
    *out = &u->base;
    return symmSuccess;
}
