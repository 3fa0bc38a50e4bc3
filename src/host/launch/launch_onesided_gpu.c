/* launch_onesided_gpu.c - one-sided calls on GPUs: one kernel for a call, with all of it in its
 * arguments, so that a graph has it by value (cuda/onesided.cuh). The communicator's user thread,
 * with its context current; symm_signals_unused_gpu: any thread. No lock. An eager call allocates
 * nothing. */
#include "base/check.h"
#include "host/comm/comm.h"
#include "host/gpu/gpu.h"
#include "host/window/window.h"
#include "keep.h"
#include "launch.h"

/* ---- arguments ------------------------------------------------------------------------------- */

static symm_gpu_onesided_op op_of(const symm_onesided *op) {
    return (symm_gpu_onesided_op){.count = op->count,
                                  .kind = op->kind,
                                  .peer = (uint8_t)op->peer,
                                  .signal = (uint8_t)(op->signal & 255)};
}

/* The copy is the first one, if there is any. */
static void fill(const symm_comm *c, symm_gpu_onesided_args *args, const symm_onesided_call *call) {
    SYMM_ASSERT(call->n > 0 && call->n <= SYMM_GPU_ONESIDED_OPS);
    for (const symm_onesided *op = call->op; op < call->op + call->n; op++) {
        if (op->kind != SYMM_ONESIDED_COPY) {
            args->op[args->ops++] = op_of(op);
            continue;
        }
        SYMM_ASSERT(op == call->op);
        args->to = (uintptr_t)op->to;
        args->from = (uintptr_t)op->from;
        args->bytes = symm_onesided_copies(c, op) ? op->bytes : 0;
    }
}

/* A call that has nothing to do runs all the same: it is a point of the order. */
static symmResult_t launch(symm_comm *c, void *arg, symmStream_t stream, uint64_t capture,
                           uint32_t serial, int *ctas) {
    const symm_onesided_call *call = arg;
    symm_gpu_onesided_args args = {.a = *call->args};
    fill(c, &args, call);
    const symm_message_grid g = symm_launch_copy_grid(c, args.bytes);
    const symm_gpu_grid grid = {c->gpu->onesided, g.ctas, g.threads, SYMM_GRID_OVERLAPS};
    SYMM_ASSERT(grid.ctas <= c->gpus.budget || c->gpus.budget < 1);
    args.a.nctas = grid.ctas;
    args.a.gpu.serial = serial;
    *ctas = grid.ctas;
    void *at[] = {&args};
    return symm_launch_kernel(c, &grid, at, stream, capture);
}

/* ---- launching ------------------------------------------------------------------------------- */

static symmResult_t hold(symm_comm *c, const symm_gpu_capture *in, void *arg) {
    const symm_onesided_call *call = arg;
    if (symm_gpu_pins(c)) {
        SYMM_TRY(symm_launch_pin(c, call->near));
        return symm_launch_pin(c, call->target);
    }
    return symm_launch_hold(c, in, symm_kept_onesided(c, call), &symm_kept_list_held,
                            "a one-sided call");
}
static const symm_gpu_call onesided = {launch, hold};

symmResult_t symm_launch_onesided_gpu(symm_comm *c, const symm_onesided_call *call,
                                      symmStream_t stream) {
    symm_cuda_scope scope;
    symm_gpu_capture in = {NULL, 0};
    symmResult_t r = symm_gpu_enter(c, &scope);
    if (!r) {
        r = symm_launch_look(c, stream, &in);
        if (!r) r = symm_launch_uncounted(c, &onesided, (void *)call, stream, &in);
        symm_gpu_leave(&scope);
    }
    return symm_launch_result(c, r, &in);
}

/* ---- counts ---------------------------------------------------------------------------------- */

/* The words are in the GPU's memory. A copy of some takes as long as of one, and waits for no work
 * of the program's (cuda_copy.c). What was used up is copied first: it never exceeds what had come
 * then, so the difference is no less than 0. Pairs with wait_signals and reset_signal
 * (onesided.cuh). */
static symmResult_t unused(const symm_comm *c, int peer, int first, int n, uint64_t *count) {
    uint64_t used[SYMM_SIGNAL_WORDS], raised[SYMM_SIGNAL_WORDS], all = 0;
    const size_t bytes = (unsigned)n * sizeof *used;
    const symm_gpu_ctl *ctl =
        (const symm_gpu_ctl *)(uintptr_t)(c->base + (uint64_t)c->rank * c->stride);
    SYMM_ASSERT(first >= 0 && n > 0 && first + n <= SYMM_SIGNAL_WORDS);
    int cu = c->vmm->copy(used, &ctl->onesided.tally[peer].used[first], bytes);
    if (!cu) cu = c->vmm->copy(raised, &ctl->signals[peer].raised[first], bytes);
    if (cu) return symm_vmm_error(c->vmm, cu, "reading signals of rank %d", peer);
    for (int i = 0; i < n; i++) {
        SYMM_ASSERT(raised[i] >= used[i]);
        all += raised[i] - used[i];
    }
    *count = all;
    return symmSuccess;
}

/* The caller may be a thread without a context, or with another GPU's. */
symmResult_t symm_signals_unused_gpu(const symm_comm *c, int peer, int first, int n,
                                     uint64_t *count) {
    symm_cuda_scope scope;
    *count = 0;
    SYMM_TRY(symm_gpu_push(c, &scope));
    const symmResult_t r = unused(c, peer, first, n, count);
    symm_gpu_pop(c, &scope);
    return r;
}
