/* launch_gpu.c - the launcher for GPUs: one cuLaunchKernelEx per call, and for large ones copies
 * before it. The communicator's user thread, with its context current; no lock. */
#include <string.h>

#include "base/check.h"
#include "host/coll/counts.h"
#include "host/comm/call_log.h"
#include "host/comm/comm.h"
#include "host/comm/group.h"
#include "host/gpu/gpu.h"
#include "host/window/window.h"
#include "keep.h"
#include "launch.h"

static symmResult_t launch(symm_comm *c, const symm_launch *l, symmStream_t stream,
                           const symm_gpu_capture *in, uint32_t serial) {
    const int copies = symm_kernels[l->plan.kernel].copies;
    symm_args with = l->args;
    with.gpu.serial = serial;
    const int type = symm_kernels[l->plan.kernel].flags & SYMM_K_TYPED ? (int)l->args.type : 0;
    const symm_gpu_grid grid = {c->gpu->kernel[l->plan.kernel][type], l->plan.ctas,
                                l->plan.threads + 32, /* the warp for signatures */
                                copies ? SYMM_GRID_BEHIND : SYMM_GRID_OVERLAPS};
    symm_extents extents; /* the driver copies both arguments, for a graph too */
    void *args[] = {&with, &extents};
    SYMM_ASSERT(!l->args.extents == !symm_coll_varies(&symm_colls[l->call.coll]));
    if (l->args.extents) memcpy(extents.part, l->args.extents, symm_extents_bytes(c->nranks));
    with.extents = NULL;
    if (copies) SYMM_TRY(symm_launch_copies(c, l, stream, in));
    return symm_launch_kernel(c, &grid, args, stream, in->id);
}

/* Thread ranks of one GPU must not use one stream: the second one's kernel would be behind the
 * first one's, which waits for it. Each rank counts its call and writes its stream before it looks
 * at the others. So of two ranks that do this at once, at least one sees the other. A rank that has
 * captured calls may replay what others call, so counts say nothing then. */
static symmResult_t check_mates(const symm_comm *c, symmStream_t stream) {
    const uint64_t own = symm_launch_show_stream(c, stream);
    for (int p = 0; p < c->nranks; p++) {
        const symm_ctl *ctl = symm_comm_ctl(c, p);
        if (!(c->gpus.mates[p / 64] >> p % 64 & 1) || !symm_comm_sees(c, p)) continue;
        if (__atomic_load_n(&ctl->stream, __ATOMIC_SEQ_CST) != own) continue;
        if (!symm_call_log_level(c, p)) continue;
        return SYMM_ERR(
            symmInvalidUsage,
            "stream=%p has rank %d's call in it that waits for this one (both ranks are "
            "threads of this process on GPU %d): give each rank a stream of its own",
            (void *)stream, p, c->gpu->device);
    }
    return symmSuccess;
}

static symmResult_t launch_now(symm_comm *c, const symm_launch *l, symmStream_t stream,
                               const symm_gpu_capture *in) {
    struct symm_gpu *g = c->gpu;
    SYMM_TRY(symm_launch_follow(c, stream));
    const uint32_t serial = symm_launch_serial(c);
    symm_call_log_begin(c, &l->call);
    symmResult_t r = c->gpus.mate ? check_mates(c, stream) : symmSuccess;
    if (!r) r = launch(c, l, stream, in, serial);
    if (r) {
        symm_call_log_undo(c);
        return r;
    }
    g->serial = serial;
    g->ctas = l->plan.ctas;
    symm_launch_done(c, l, stream, 0);
    return symm_launch_given(c, stream);
}

static symmResult_t hold_call(const symm_gpu_capture *in, const symm_launch *l) {
    if (symm_gpu_pins(l->comm)) {
        SYMM_TRY(symm_launch_pin(l->comm, l->src_win ? l->src_win : l->from));
        return symm_launch_pin(l->comm, l->dst_win);
    }
    return symm_launch_hold(l->comm, in, symm_keep_new(l), &symm_keep_held, "a collective");
}

/* The graph holds what the call needs before it has the call. The program orders the replay. */
static symmResult_t launch_captured(symm_comm *c, const symm_launch *l, symmStream_t stream,
                                    const symm_gpu_capture *in) {
    SYMM_TRY(symm_launch_may_capture(c, stream));
    SYMM_TRY(hold_call(in, l));
    SYMM_TRY(symm_captured_follow(c, in->id, stream));
    SYMM_TRY(launch(c, l, stream, in, 0));
    SYMM_TRY(symm_captured_given(c, in->id, stream));
    symm_call_log_capture(c);
    symm_launch_done(c, l, stream, 1);
    return symmSuccess;
}

static symmResult_t order_and_launch(symm_comm *c, const symm_launch *l, symmStream_t stream,
                                     symm_gpu_capture *in) {
    SYMM_TRY(symm_launch_look(c, stream, in));
    return in->graph ? launch_captured(c, l, stream, in) : launch_now(c, l, stream, in);
}

static symmResult_t launch_call(symm_comm *c, const symm_launch *l, symmStream_t stream) {
    symm_cuda_scope scope;
    symm_gpu_capture in = {NULL, 0};
    symmResult_t r = symm_gpu_enter(c, &scope);
    if (!r) {
        r = order_and_launch(c, l, stream, &in);
        symm_gpu_leave(&scope);
    }
    return symm_launch_result(c, r, &in);
}

static symmResult_t check_stream(const symm_comm *c, symmStream_t stream) {
    symm_cuda_scope scope;
    symm_gpu_capture in;
    SYMM_TRY(symm_gpu_enter(c, &scope));
    symmResult_t r = symm_gpu_look(c, stream, &in);
    if (!r) r = symm_gpu_check_alone(c, stream);
    symm_gpu_leave(&scope);
    return r;
}

static int job(symmStream_t stream) {
    return symm_gpu_is_per_thread(stream) ? SYMM_JOB_HERE : SYMM_JOB_STREAM;
}

static symmResult_t launch_list(symm_comm *c, const symm_launch *first, symmStream_t stream) {
    for (const symm_launch *l = first; l; l = l->next) SYMM_TRY(launch_call(c, l, stream));
    return symmSuccess;
}

const symm_launcher symm_launch_gpu = {launch_call,
                                       launch_list,
                                       check_stream,
                                       symm_gpu_check_buffer,
                                       symm_gpu_is_device,
                                       job,
                                       symm_launch_messages_gpu,
                                       symm_launch_tell_message,
                                       symm_launch_onesided_gpu,
                                       SYMM_GPU_ONESIDED_OPS,
                                       symm_signals_unused_gpu,
                                       0};
