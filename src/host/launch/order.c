/* order.c - calls of a communicator run in the order in which they were made, whatever their
 * streams: its eager calls, and the calls of each capture. The communicator's user thread; on GPUs
 * with its context current, except symm_launch_graph and symm_launch_close. */
#include <sched.h>

#include "base/check.h"
#include "device/common/kernels.h"
#include "host/comm/comm.h"
#include "host/gpu/gpu.h"
#include "host/gpu/point.h"
#include "host/stream/stream.h"
#include "launch.h"

/* Puts the stream behind the last call, which was given to another stream. */
typedef symmResult_t add_edge(symm_comm *c, symm_last *last, symmStream_t stream);

static void order_check(const symm_comm *c) {
    const symm_comm_order *o = &c->order;
    SYMM_ASSERT(o->eager.any || !o->eager.marked);
    SYMM_ASSERT(o->behind != SYMM_BEHIND_GRAPH || o->graph_end.seq);
    for (int i = 0; i < SYMM_CAPTURES; i++) {
        const symm_captured *at = &o->captured[i];
        SYMM_ASSERT(at->no <= o->ncaptured && (at->id == 0 || at->last.any));
        SYMM_ASSERT(!at->last.marked || at->last.end.seq);
        for (int k = 0; k < i && at->id; k++)
            SYMM_ASSERT(o->captured[k].id != at->id && o->captured[k].no != at->no);
    }
}

static symmResult_t follow(symm_comm *c, symm_last *last, symmStream_t stream, add_edge *edge) {
    SYMM_CHECK(order_check(c));
    return last->any && (stream != last->stream || symm_gpu_is_per_thread(stream))
               ? edge(c, last, stream)
               : symmSuccess;
}

/* The per-thread stream is another stream in each thread: only this one can mark it. */
static symmResult_t given(symm_last *last, symmStream_t stream, int packs) {
    last->stream = stream;
    last->any = 1;
    last->marked = 0;
    last->packed = packs;
    if (!symm_gpu_is_per_thread(stream)) return symmSuccess;
    const cu_result cu = symm_mark_record(&last->end, stream);
    last->marked = cu == 0;
    return symm_gpu_order_error(cu, stream);
}

/* ---- edges ----------------------------------------------------------------------------------- */

/* The stream's work may wait for a peer, and the peer for what this thread has set
 * (symmSetProgress): then this polls. Where it must not wait it is refused behind this. */
static void go_on_until(const symm_comm *c, const symm_mark *end) {
    while (!symm_stream_inside() && !symm_mark_reached(c, end) && symm_progress_turn())
        sched_yield();
}

/* The caller has waited for all: nothing is left to follow. */
static symmResult_t edge_host(symm_comm *c, symm_last *last, symmStream_t stream) {
    if (!stream) go_on_until(c, &last->end);
    const symmResult_t r = symm_mark_follow(c, &last->end, stream);
    if (r && !stream)
        return SYMM_ERR(
            r,
            "communicator %s: its last call, on stream %p, has not ended: a function of a "
            "stream or graph must not wait for it (several domains: for symmCommDomain's)",
            c->name, (void *)last->stream);
    if (!r && !stream) *last = (symm_last){.any = 0};
    return r;
}

static symmResult_t edge_host_captured(symm_comm *c, symm_last *last, symmStream_t stream) {
    (void)c;
    return symm_stream_follow_captured(stream, last->stream);
}

/* Few programs need an event in a capture, so the first call that does makes it. A capture under
 * way does not forbid that. */
static symmResult_t edge_gpu(symm_comm *c, symm_last *last, symmStream_t stream) {
    (void)c;
    cu_result cu = last->marked ? 0 : symm_mark_record(&last->end, last->stream);
    if (!cu) cu = symm_mark_await(&last->end, stream);
    return symm_gpu_order_error(cu, stream);
}

/* A driver without waits for words: the last call's stream must be there still. If it is not, a
 * driver need not say so. */
static symmResult_t edge_gpu_by_stream(symm_comm *c, symm_last *last, symmStream_t stream) {
    int captured = 0;
    const cu_result cu = symm_gpu_in_a_capture(last->stream, &captured);
    if (cu) return symm_gpu_order_error(cu, stream);
    if (!captured) return edge_gpu(c, last, stream);
    return SYMM_ERR(symmInvalidUsage,
                    "stream %p has this communicator's last call and %s: a call on another stream "
                    "cannot be ordered after it",
                    (void *)last->stream,
                    symm_gpu_is_legacy(last->stream)
                        ? "waits for blocking streams, of which one is being captured"
                        : "is being captured");
}

/* The last call's stream may be gone, so it is not touched. */
static symmResult_t edge_gpu_eager(symm_comm *c, symm_last *last, symmStream_t stream) {
    enum { OFTEN = 32 };
    cu_result cu = SYMM_CUDA_ERROR_NOT_SUPPORTED;
    c->order.often = OFTEN;
    if (last->marked)
        cu = symm_mark_await(&last->end, stream);
    else if (c->order.behind == SYMM_BEHIND_GRAPH)
        cu = symm_mark_await(&c->order.graph_end, stream);
    else if (c->order.behind == SYMM_BEHIND_WORDS)
        cu = symm_gpu_await_last(c, stream);
    return cu == SYMM_CUDA_ERROR_NOT_SUPPORTED ? edge_gpu_by_stream(c, last, stream)
                                               : symm_gpu_order_error(cu, stream);
}

/* ---- eager calls ----------------------------------------------------------------------------- */

symmResult_t symm_launch_change(symm_comm *c, symmStream_t stream) {
    return follow(c, &c->order.eager, stream, c->cuda ? edge_gpu_eager : edge_host);
}

/* Programs that change streams pay for an event behind each call, others for nothing: waits for
 * words are as many as the call had CTAs. */
static symmResult_t mark_often(symm_comm_order *o, symmStream_t stream) {
    if (!o->often || o->eager.marked) return symmSuccess;
    o->often--;
    const cu_result cu = symm_mark_record(&o->eager.end, stream);
    o->eager.marked = cu == 0;
    return symm_gpu_order_error(cu, stream);
}

symmResult_t symm_launch_given(symm_comm *c, symmStream_t stream) {
    symm_comm_order *o = &c->order;
    if (!c->cuda) SYMM_TRY(symm_mark_set(c, &o->eager.end, stream));
    o->behind = SYMM_BEHIND_WORDS;
    SYMM_TRY(given(&o->eager, stream, o->packs));
    return c->cuda ? mark_often(o, stream) : symmSuccess;
}

/* ---- captured calls -------------------------------------------------------------------------- */

static symm_captured *find(symm_comm *c, uint64_t id) {
    for (int i = 0; id && i < SYMM_CAPTURES; i++)
        if (c->order.captured[i].id == id) return &c->order.captured[i];
    return NULL;
}

symmResult_t symm_captured_follow(symm_comm *c, uint64_t id, symmStream_t stream) {
    symm_captured *at = find(c, id);
    return at ? follow(c, &at->last, stream, c->cuda ? edge_gpu : edge_host_captured) : symmSuccess;
}

symmResult_t symm_captured_given(symm_comm *c, uint64_t id, symmStream_t stream) {
    symm_captured *at = find(c, id);
    if (!at) { /* one that is free, or was silent longest */
        at = c->order.captured;
        for (int i = 1; i < SYMM_CAPTURES; i++)
            if (c->order.captured[i].no < at->no) at = &c->order.captured[i];
    }
    at->no = ++c->order.ncaptured;
    symmResult_t r = given(&at->last, stream, c->order.packs);
    at->id = r ? 0 : id; /* what is not marked cannot be followed */
    SYMM_CHECK(order_check(c));
    return r;
}

/* ---- overlap --------------------------------------------------------------------------------- */

/* A kernel that may overlap its predecessor is let in when that one has begun, and lets in its own
 * successor before it waits itself. So all that came since one that did not overlap may be on the
 * GPU at once. Of a capture that is not known, nobody knows how much that is. */
int symm_launch_overlaps(symm_comm *c, uint64_t capture, int ctas) {
    symm_comm_order *o = &c->order;
    const symm_captured *at = find(c, capture);
    const symm_last *last = at ? &at->last : capture ? NULL : &o->eager;
    const int before = last && last->any ? last->packed : 0,
              fits = last && before + ctas <= c->gpus.budget;
    o->packs = fits ? before + ctas : ctas;
    return fits || (!c->gpus.quarter && c->gpus.budget == c->gpus.sms);
}

void symm_launch_stands(symm_comm *c, int ctas) {
    c->order.packs = ctas;
}

/* ---- graphs of memory plans ------------------------------------------------------------------ */

/* Later calls may be on other streams, and this one may be gone when the end of the communicator
 * waits. If it cannot be marked, the end waits for the context instead. */
static symmResult_t note_graph(symm_comm *c, symmStream_t stream) {
    symm_comm_order *o = &c->order;
    o->graphs = 1;
    if (symm_mark_record(&o->graph_end, stream)) symm_mark_end(c, &o->graph_end);
    const symmResult_t r = symm_launch_given(c, stream);
    o->behind = o->graph_end.seq ? SYMM_BEHIND_GRAPH : SYMM_BEHIND_NOTHING;
    return r;
}

static symmResult_t launch_gpu(symm_comm *c, int ours, symmGraphExec_t exec, symmStream_t stream) {
    if (ours) {
        SYMM_TRY(symm_gpu_check_alone(c, stream));
        SYMM_TRY(symm_launch_follow(c, stream));
    }
    cu_result cu = symm_cu.cuGraphLaunch((cu_graph_exec)(void *)exec, symm_gpu_stream(stream));
    if (cu) return symm_cuda_error(cu, "launching graph %p", (void *)exec);
    return ours ? note_graph(c, stream) : symmSuccess;
}

symmResult_t symm_launch_graph(symm_comm *c, int ours, symmGraphExec_t exec, symmStream_t stream) {
    symm_cuda_scope scope;
    if (!c->cuda) {
        if (ours) SYMM_TRY(symm_launch_follow(c, stream));
        SYMM_TRY(symmGraphLaunch(exec, stream));
        return ours ? symm_launch_given(c, stream) : symmSuccess;
    }
    SYMM_TRY(symm_gpu_enter(c, &scope));
    symmResult_t r = launch_gpu(c, ours, exec, stream);
    symm_gpu_leave(&scope);
    return r;
}

/* ---- life ------------------------------------------------------------------------------------ */

symmResult_t symm_launch_open(symm_comm *c) {
    symm_cuda_scope scope;
    if (!c->gpu) return symmSuccess;
    SYMM_TRY(symm_gpu_push(c, &scope));
    const cu_result cu = symm_mark_make(&c->order.eager.end);
    symm_gpu_pop(c, &scope);
    return symm_cuda_error(cu, "an event on GPU %d", c->gpu->device);
}

void symm_launch_close(symm_comm *c) {
    symm_extents_close(c);
    symm_mark_end(c, &c->order.eager.end);
    symm_mark_end(c, &c->order.graph_end);
    for (int i = 0; i < SYMM_CAPTURES; i++) symm_mark_end(c, &c->order.captured[i].last.end);
}
