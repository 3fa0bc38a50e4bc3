/* launch_kernel.c - what calls on GPUs share on their way to a kernel: the launch, numbers of eager
 * calls, streams of ranks that share a GPU, what a graph holds; and the whole way of calls that are
 * not counted. The communicator's user thread, with its context current; no lock. */
#include <pthread.h>

#include "base/check.h"
#include "host/comm/call_log.h"
#include "host/comm/comm.h"
#include "host/gpu/gpu.h"
#include "host/window/window.h"
#include "launch.h"

symmResult_t symm_launch_kernel(symm_comm *c, const symm_gpu_grid *grid, void **args,
                                symmStream_t stream, uint64_t capture) {
    const int overlaps = grid->overlap == SYMM_GRID_OVERLAPS &&
                         symm_launch_overlaps(c, capture, grid->ctas) && c->gpu->programmatic;
    if (grid->overlap == SYMM_GRID_BEHIND) symm_launch_stands(c, grid->ctas);
    SYMM_ASSERT(grid->kernel && grid->ctas > 0 && grid->ctas <= SYMM_GPU_MAX_CTAS);
    SYMM_ASSERT(grid->threads > 0 && grid->threads % 32 == 0);
    cu_launch_attr attr = {.id = SYMM_CUDA_LAUNCH_PROGRAMMATIC_SERIALIZATION,
                           .value.programmatic_serialization = 1};
    cu_launch_config config = {.grid_x = (unsigned)grid->ctas,
                               .grid_y = 1,
                               .grid_z = 1,
                               .block_x = (unsigned)grid->threads,
                               .block_y = 1,
                               .block_z = 1,
                               .stream = symm_gpu_stream(stream),
                               .attrs = &attr,
                               .num_attrs = (unsigned)overlaps};
    /* CUDA takes a cu_kernel, which has no context, in place of a function. */
    cu_result cu = symm_cu.cuLaunchKernelEx(&config, (cu_function)(void *)grid->kernel, args, NULL);
    if (symm_gpu_is_of_capture(cu))
        return SYMM_ERR(symmInvalidUsage, "stream=%p: a capture under way forbids this call (%s)",
                        (void *)stream, symm_cuda_code_name(cu));
    return symm_cuda_error(cu, "launching a kernel");
}

symmResult_t symm_launch_look(symm_comm *c, symmStream_t stream, symm_gpu_capture *in) {
    SYMM_TRY(symm_gpu_capture_of(stream, in));
    if (c->order.eager.any && stream == c->order.eager.stream) return symmSuccess;
    SYMM_TRY(symm_gpu_check_alone(c, stream));
    return symm_gpu_check_home(c, stream);
}

uint32_t symm_launch_serial(const symm_comm *c) {
    return c->gpu->serial == UINT32_MAX ? 1 : c->gpu->serial + 1;
}

uint64_t symm_launch_show_stream(const symm_comm *c, symmStream_t stream) {
    const uint64_t own =
        symm_gpu_is_per_thread(stream) ? (uintptr_t)pthread_self() | 1 : (uintptr_t)stream;
    __atomic_store_n(&c->ctl->stream, own, __ATOMIC_SEQ_CST); /* pairs with both check_mates */
    return own;
}

/* As check_mates of launch_gpu.c, but these calls are not counted: a stream that another rank has
 * used last is refused. */
static symmResult_t check_mates(const symm_comm *c, symmStream_t stream) {
    const uint64_t own = symm_launch_show_stream(c, stream);
    for (int p = 0; p < c->nranks; p++) {
        if (!(c->gpus.mates[p / 64] >> p % 64 & 1) || !symm_comm_sees(c, p)) continue;
        if (__atomic_load_n(&symm_comm_ctl(c, p)->stream, __ATOMIC_SEQ_CST) != own) continue;
        return SYMM_ERR(symmInvalidUsage,
                        "stream=%p was used last by rank %d, also a thread of this process on GPU "
                        "%d: their kernels would wait for each other; give each rank its own",
                        (void *)stream, p, c->gpu->device);
    }
    return symmSuccess;
}

/* A graph holds windows and communicator; a communicator that pins holds the windows. */
static void ref_window(void *w) {
    symm_window_ref(w);
}
static void unref_window(void *w) {
    symm_window_unref(w);
}
static const symm_graph_user pinned = {.retain = ref_window, .release = unref_window};

symmResult_t symm_launch_pin(symm_comm *c, symm_win *w) {
    return w ? symm_graph_hold(c, NULL, NULL, w, &pinned) : symmSuccess;
}

symmResult_t symm_launch_hold(symm_comm *c, const symm_gpu_capture *in, void *kept,
                              const symm_graph_user *held, const char *what) {
    if (!kept) return SYMM_ERR(symmOutOfMemory, "no memory to capture %s", what);
    const symmResult_t r = symm_graph_hold(c, in, NULL, kept, held);
    held->release(kept);
    return r;
}

symmResult_t symm_launch_result(symm_comm *c, symmResult_t r, const symm_gpu_capture *in) {
    if (r && r != symmInvalidArgument && r != symmInvalidUsage && !in->graph)
        symm_comm_break(c, r, c->rank, "launching a kernel");
    return r;
}

/* ---- calls that are not counted -------------------------------------------------------------- */

static void observed(symm_comm *c, symmStream_t stream, int captured) {
    if (c->order.observer) c->order.observer->called(c, stream, 0, captured);
}

static symmResult_t launch_now(symm_comm *c, const symm_gpu_call *kind, void *call,
                               symmStream_t stream) {
    struct symm_gpu *g = c->gpu;
    int ctas;
    SYMM_TRY(symm_launch_follow(c, stream));
    const uint32_t serial = symm_launch_serial(c);
    if (c->gpus.mate) SYMM_TRY(check_mates(c, stream));
    SYMM_TRY(kind->launch(c, call, stream, 0, serial, &ctas));
    g->serial = serial;
    g->ctas = ctas;
    observed(c, stream, 0);
    return symm_launch_given(c, stream);
}

/* The graph holds what the call needs before it has the call. */
static symmResult_t launch_captured(symm_comm *c, const symm_gpu_call *kind, void *call,
                                    symmStream_t stream, const symm_gpu_capture *in) {
    int ctas;
    SYMM_TRY(symm_launch_may_capture(c, stream));
    SYMM_TRY(kind->hold(c, in, call));
    SYMM_TRY(symm_captured_follow(c, in->id, stream));
    SYMM_TRY(kind->launch(c, call, stream, in->id, 0, &ctas));
    SYMM_TRY(symm_captured_given(c, in->id, stream));
    symm_call_log_capture(c);
    observed(c, stream, 1);
    return symmSuccess;
}

symmResult_t symm_launch_uncounted(symm_comm *c, const symm_gpu_call *kind, void *call,
                                   symmStream_t stream, const symm_gpu_capture *in) {
    return in->graph ? launch_captured(c, kind, call, stream, in)
                     : launch_now(c, kind, call, stream);
}
