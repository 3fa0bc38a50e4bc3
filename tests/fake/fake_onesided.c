/* fake_onesided.c - one-sided calls on the fake CUDA driver: the copy and the signals of
 * cuda/onesided.cuh, by one thread of a stream, through the same words. */
#include <string.h>

#include "fake_run.h"
#include "t.h"

typedef struct {
    run r;
    const symm_gpu_onesided_args *args;
} call;

static uint64_t *raised_at(const symm_args *a, int owner, int source, int signal) {
    return &ctl_of(a, owner)->signals[source].raised[signal];
}
static symm_gpu_tally *tally_of(const call *k, const symm_gpu_onesided_op *op) {
    return &k->r.ctl->onesided.tally[op->peer];
}
static uint64_t *raised_here(const call *k, const symm_gpu_onesided_op *op) {
    return raised_at(k->r.a, k->r.a->rank, op->peer, op->signal);
}

static void raise_signal(const call *k, const symm_gpu_onesided_op *op) {
    const uint64_t now = ++tally_of(k, op)->raised[op->signal];
    give(raised_at(k->r.a, op->peer, k->r.a->rank, op->signal), now); /* pairs with await */
}

static void note(const call *k, const symm_gpu_onesided_op *op, uint64_t came) {
    symm_p2p_note *n = &host_of(k->r.a, k->r.a->rank)->p2p;
    give(&n->waits_count, op->count);
    give(&n->waits_type, came << 8 | op->signal);
    give(&n->waits, (uint64_t)SYMM_P2P_SIGNAL << 32 | (op->peer + 1u));
}

/* 1: leave. */
static int await_signal(const call *k, const symm_gpu_onesided_op *op) {
    uint64_t *used = &tally_of(k, op)->used[op->signal];
    const uint64_t before = take(used), want = before + op->count, since = symm_now_ns();
    int left = 0, noted = 0;
    for (uint64_t has; (has = take(raised_here(k, op))) < want; noted = 1) {
        note(k, op, has - before);
        if (op->peer == k->r.a->rank)
            return leave(&k->r, symmInvalidUsage, op->peer, SYMM_STAGE_SIGNAL);
        if (again(&k->r, op->peer, SYMM_STAGE_SIGNAL, since, &left)) return 1;
    }
    give(used, want);
    if (noted) give(&host_of(k->r.a, k->r.a->rank)->p2p.waits, 0);
    return 0;
}

/* 1: leave. */
static int run_op(const call *k, const symm_gpu_onesided_op *op) {
    switch (op->kind) {
    case SYMM_ONESIDED_WAIT: return await_signal(k, op);
    case SYMM_ONESIDED_SIGNAL: raise_signal(k, op); break;
    case SYMM_ONESIDED_RESET:
        give(&tally_of(k, op)->used[op->signal], take(raised_here(k, op)));
        break;
    case SYMM_ONESIDED_FENCE: break; /* one thread; what comes later is behind */
    default: T_CHECKF(0, "an op of kind %d", op->kind);
    }
    return 0;
}

void fake_onesided(const cu_launch_config *config, void **args) {
    const symm_gpu_onesided_args *a = args[0];
    const call k = {.r = {.a = &a->a, .ctl = ctl_of(&a->a, a->a.rank)}, .args = a};
    T_CHECK(a->ops <= SYMM_GPU_ONESIDED_OPS && config->block_x % 32 == 0);
    int left = take(&host_of(&a->a, a->a.rank)->abort) != 0;
    if (!left && a->bytes)
        memmove((char *)(uintptr_t)a->to, (const char *)(uintptr_t)a->from, a->bytes);
    for (unsigned i = 0; i < a->ops && !left; i++) left = run_op(&k, &a->op[i]);
    ended(config, &a->a);
}
