/* fake_run.h - what the fake driver's kernels share (fake_kernels.c, fake_onesided.c): the control
 * blocks of ranks, waits that found nothing, leaving, the end. In a stream's thread; no lock. */
#ifndef FAKE_RUN_H_
#define FAKE_RUN_H_

#include <unistd.h>

#include "base/wait.h"
#include "fake_cuda.h"
#include "symm.h"
#include "device/common/records.h"

#define NAP_US        20 /* between two looks: at first, and at most */
#define NAP_MOST_US   400
#define LEFT_GRACE_NS 1000000000ull

typedef struct {
    const symm_args *a;
    symm_gpu_ctl *ctl;
    uint32_t epoch;
    int meets; /* 1: it is what comes before copies */
} run;

static inline char *flat(const symm_args *a, int rank, uint64_t off) {
    return (char *)(uintptr_t)(a->base + (uint64_t)rank * a->stride + off);
}
static inline symm_gpu_ctl *ctl_of(const symm_args *a, int rank) {
    return (symm_gpu_ctl *)(void *)flat(a, rank, 0);
}
static inline symm_ctl *host_of(const symm_args *a, int rank) {
    return (symm_ctl *)(uintptr_t)(a->gpu.host_base + (uint64_t)rank * a->gpu.host_stride);
}
/* As dev.cuh's: where peers write a rank's abort word. */
static inline symm_ctl *told_of(const symm_args *a, int rank) {
    return a->flags & SYMM_ARG_HOSTS ? (symm_ctl *)(void *)ctl_of(a, rank)->far : host_of(a, rank);
}
static inline void give(uint64_t *word, uint64_t v) {
    __atomic_store_n(word, v, __ATOMIC_RELEASE);
}
static inline uint64_t take(const uint64_t *word) {
    return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}

static inline uint64_t own_abort(const symm_args *a) {
    const uint64_t word = take(&host_of(a, a->rank)->abort);
    return word ? word : take(&told_of(a, a->rank)->abort);
}
static inline uint64_t own_death(const symm_args *a) {
    const uint64_t word = take(&host_of(a, a->rank)->death);
    return word ? word : take(&told_of(a, a->rank)->death);
}

/* As dev.cuh's leave and tell. */
static inline int leave(const run *r, uint32_t code, int rank, int stage) {
    const uint64_t told = own_abort(r->a), death = own_death(r->a),
                   word = told ? told : (uint64_t)code << 32 | (uint32_t)(rank + 1);
    const int late = word >> 32 == symmAborted || word == death;
    symm_ctl *own = host_of(r->a, r->a->rank);
    if (!told) own->left = (uint64_t)r->epoch << 32 | (uint32_t)stage;
    if (!take(&own->abort)) give(&own->abort, word);
    for (int p = 0; p < r->a->nranks; p++) {
        symm_ctl *theirs = told_of(r->a, p);
        if (p == r->a->rank || take(&theirs->abort)) continue;
        if (!late)
            give(&theirs->abort, word);
        else if (!take(&theirs->death))
            give(&theirs->death, word);
    }
    return 1;
}

static inline int differing(const run *r) {
    for (int p = 0; p < r->a->nranks; p++) {
        uint64_t w = take(&r->ctl->inbox[p].sig[r->epoch & 1]);
        if (p != r->a->rank && (uint32_t)(w >> 32) == r->epoch && (uint32_t)w != r->a->sig)
            return p;
    }
    return -1;
}

/* One look that found nothing. 1: leave. *left: the peer was seen to have left, a look ago. */
static inline int again(const run *r, int peer, int stage, uint64_t since, int *left) {
    const uint64_t told = own_abort(r->a), abort = told ? told : own_death(r->a),
                   now = symm_now_ns();
    if (abort) return leave(r, (uint32_t)(abort >> 32), (int)(uint32_t)abort - 1, stage);
    if (differing(r) >= 0) return leave(r, symmMismatch, differing(r), stage);
    if (r->a->timeout_ns && now - since > r->a->timeout_ns)
        return leave(r, symmTimeout, peer, stage);
    if (now - since > LEFT_GRACE_NS &&
        __atomic_load_n(&host_of(r->a, peer)->state, __ATOMIC_ACQUIRE) == SYMM_STATE_LEFT &&
        (*left)++) /* as left_for_good of dev.cuh */
        return leave(r, symmRemoteError, peer, stage);
    const uint64_t nap = (now - since) / 8000; /* with more threads than cores, polls take time */
    usleep((useconds_t)(nap < NAP_US ? NAP_US : nap < NAP_MOST_US ? nap : NAP_MOST_US));
    return 0;
}

/* As frame.cuh: every CTA says that it has ended. The host polls it by copies, as it does a GPU's
 * memory; ThreadSanitizer would call that a race of two threads. */
static void __attribute__((noinline, no_sanitize("thread")))
ended(const cu_launch_config *config, const symm_args *a) {
    for (unsigned b = 0; a->gpu.serial && b < config->grid_x; b++)
        ctl_of(a, a->rank)->done[b] = a->gpu.serial;
}

/* symm_onesided_n0 (fake_onesided.c). */
void fake_onesided(const cu_launch_config *config, void **args);

#endif
