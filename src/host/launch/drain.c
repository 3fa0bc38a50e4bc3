/* drain.c - the end of a communicator waits for its calls, and for the graphs with its calls that
 * the library was told of. The communicator's user thread; no lock. */
#include <unistd.h>

#include "base/check.h"
#include "host/comm/call_log.h"
#include "host/comm/comm.h"
#include "host/gpu/gpu.h"
#include "host/gpu/point.h"
#include "launch.h"

enum { FIRST_NAP_US = 20, LONGEST_NAP_US = 1000 };

static void nap(useconds_t *us) {
    usleep(*us);
    if (*us < LONGEST_NAP_US) *us *= 2;
}

/* ---- host backend ---------------------------------------------------------------------------- */

/* Launches of graphs are counted, not ordered: they may be on any streams. The watcher still runs,
 * so what waits for a peer hears of its death. */
static symmResult_t await_replays(symm_comm *c) {
    useconds_t us = FIRST_NAP_US;
    SYMM_ASSERT(!c->order.eager.any && atomic_load(&c->order.replays) >= 0);
    /* acquire pairs with the release of launch_ended in host_task.c */
    while (atomic_load_explicit(&c->order.replays, memory_order_acquire)) {
        SYMM_TRY(symm_stream_may_wait("ending a communicator whose calls a graph replays"));
        if (symm_launch_inside())
            return SYMM_ERR(symmInvalidUsage,
                            "communicator %s is ended from inside a kernel (before its "
                            "symmHostCtaEnd), and would wait for it",
                            c->name);
        nap(&us);
    }
    return symmSuccess;
}

/* Refused if a task of a stream would wait for a stream. */
static symmResult_t drain_host(symm_comm *c, int *runs) {
    *runs = 1;
    SYMM_TRY(symm_mark_reach(c, &c->order.eager.end));
    c->order.eager = (symm_last){.any = 0};
    return await_replays(c);
}

/* ---- GPUs ------------------------------------------------------------------------------------ */

/* Every CTA of the last eager call has ended. */
static int has_ended(symm_comm *c, int *cu) {
    uint32_t done[SYMM_GPU_MAX_CTAS];
    const symm_gpu_ctl *ctl =
        (const symm_gpu_ctl *)(uintptr_t)(c->base + (uint64_t)c->rank * c->stride);
    const int n = c->gpu->ctas;
    SYMM_ASSERT(n >= 0 && n <= SYMM_GPU_MAX_CTAS && !n == !c->gpu->serial);
    if (!n) return 1; /* only graphs were launched */
    *cu = c->vmm->copy(done, ctl->done, (size_t)n * sizeof done[0]);
    for (int b = 0; b < n && !*cu; b++)
        if (done[b] != c->gpu->serial) return 0;
    return 1;
}

/* The program has ended the communicator's context (cudaDeviceReset, cuCtxDestroy), or the driver
 * itself has ended. Its kernels went with it, and no later try would find it. */
static int context_is_gone(const symm_comm *c) {
    cu_context popped;
    cu_result cu = symm_cu.cuCtxPushCurrent(c->gpu->context);
    if (!cu) symm_cu.cuCtxPopCurrent(&popped);
    return cu == SYMM_CUDA_ERROR_CONTEXT_IS_DESTROYED || cu == SYMM_CUDA_ERROR_INVALID_CONTEXT ||
           cu == SYMM_CUDA_ERROR_DEINITIALIZED;
}

static int has_replayed(const symm_mark *end, int *cu) {
    *cu = symm_cu.cuEventQuery(end->event);
    if (*cu != SYMM_CUDA_ERROR_NOT_READY) return 1;
    *cu = 0;
    return 0;
}

/* Graphs with its calls that only the communicator keeps alive: nobody tells of their launches. */
static int has_loose_graphs(const symm_comm *c) {
    return symm_gpu_pins(c) && c->ctl && symm_call_log_captured(c);
}

/* Pushed: a capture of the caller's forbids none of it. The watcher still runs, so what waits for a
 * peer hears of its death. */
static int await_work(symm_comm *c) {
    const symm_comm_order *o = &c->order;
    const int marked = o->graphs && o->graph_end.seq;
    const int all = (o->graphs && !marked) || has_loose_graphs(c);
    int cu = 0;
    for (useconds_t us = FIRST_NAP_US; o->eager.any && !has_ended(c, &cu);) nap(&us);
    for (useconds_t us = FIRST_NAP_US; !cu && marked && !has_replayed(&o->graph_end, &cu);)
        nap(&us);
    return !cu && all ? (int)symm_cu.cuCtxSynchronize() : cu;
}

static symmResult_t drain_gpu(symm_comm *c, int *runs) {
    symm_cuda_scope scope;
    symm_comm_order *o = &c->order;
    *runs = 0;
    if (!c->gpu || (!o->eager.any && !o->graphs && !has_loose_graphs(c))) return symmSuccess;
    symmResult_t r = symm_gpu_push(c, &scope);
    *runs = r && !context_is_gone(c);
    if (r) return r;
    const int cu = await_work(c);
    symm_gpu_pop(c, &scope);
    *runs = symm_gpu_is_of_capture(cu);
    if (*runs)
        return SYMM_ERR(symmInvalidUsage,
                        "communicator %s: a capture under way forbids to wait for its graphs (%s)",
                        c->name, symm_cuda_code_name(cu));
    /* A context that is beyond use runs nothing any more. */
    o->eager.any = o->eager.marked = o->graphs = 0;
    return cu ? symm_vmm_error(c->vmm, cu, "waiting for the last call of communicator %s", c->name)
              : symmSuccess;
}

symmResult_t symm_launch_drain(symm_comm *c, int *runs) {
    return c->cuda ? drain_gpu(c, runs) : drain_host(c, runs);
}

int symm_launch_idle(const symm_comm *c) {
    const symm_comm_order *o = &c->order;
    /* acquire pairs with the release of launch_ended in host_task.c */
    return !c->cuda && !atomic_load_explicit(&o->replays, memory_order_acquire) &&
           (!o->eager.any || symm_order_reached(o->eager.end.order));
}
