/* point.c - see point.h. No lock. */
#include "point.h"

#include <unistd.h>

#include "base/check.h"
#include "base/wait.h"
#include "gpu.h"

/* A mark is the host's or a GPU's. */
static void mark_check(const symm_comm *c, const symm_mark *m) {
    SYMM_ASSERT(c->cuda ? !m->order.stream : !m->event);
    SYMM_ASSERT(!m->order.stream || m->order.tasks);
    SYMM_ASSERT(!c->cuda || !m->seq || m->event);
    SYMM_ASSERT(c->cuda || m->seq || !m->order.stream);
}

cu_result symm_mark_make(symm_mark *m) {
    return m->event ? 0 : symm_cu.cuEventCreate(&m->event, SYMM_CUDA_EVENT_DISABLE_TIMING);
}

cu_result symm_mark_record(symm_mark *m, symmStream_t stream) {
    cu_result cu = symm_mark_make(m);
    if (!cu) cu = symm_cu.cuEventRecord(m->event, symm_gpu_stream(stream));
    if (!cu) m->seq++;
    return cu;
}

cu_result symm_mark_await(const symm_mark *m, symmStream_t stream) {
    return m->seq ? symm_cu.cuStreamWaitEvent(symm_gpu_stream(stream), m->event, 0) : 0;
}

/* A stream that is gone runs what it was given; nobody knows where. */
static cu_result record_or_reach(const symm_comm *c, symm_mark *m, symmStream_t stream) {
    cu_result cu = symm_mark_record(m, stream);
    if (!symm_gpu_means_none(cu)) return cu;
    cu = symm_gpu_reach_all(c);
    if (!cu) m->seq++; /* whatever the event was recorded for has ended too */
    return cu;
}

symmResult_t symm_mark_set(const symm_comm *c, symm_mark *m, symmStream_t stream) {
    symm_cuda_scope scope;
    SYMM_CHECK(mark_check(c, m));
    if (!c->cuda) {
        symm_order_take(stream, &m->order);
        m->seq++;
        return symmSuccess;
    }
    SYMM_TRY(symm_gpu_enter(c, &scope));
    const cu_result cu = record_or_reach(c, m, stream);
    symm_gpu_leave(&scope);
    return symm_cuda_error(cu, "marking the end of the work of stream %p", (void *)stream);
}

symmResult_t symm_mark_follow(const symm_comm *c, const symm_mark *m, symmStream_t stream) {
    symm_cuda_scope scope;
    SYMM_CHECK(mark_check(c, m));
    if (!m->seq) return symmSuccess;
    if (!c->cuda) return symm_order_wait(stream, m->order);
    SYMM_TRY(symm_gpu_enter(c, &scope));
    const cu_result cu = symm_mark_await(m, stream);
    symm_gpu_leave(&scope);
    return symm_cuda_error(cu, "ordering stream %p after the work of another one", (void *)stream);
}

symmResult_t symm_mark_reach(const symm_comm *c, const symm_mark *m) {
    symm_cuda_scope scope;
    SYMM_CHECK(mark_check(c, m));
    if (!m->seq) return symmSuccess;
    if (!c->cuda) return symm_order_wait(NULL, m->order);
    SYMM_TRY(symm_gpu_push(c, &scope));
    const cu_result cu = symm_cu.cuEventSynchronize(m->event);
    symm_gpu_pop(c, &scope);
    return symm_cuda_error(cu, "waiting for the work of a stream");
}

int symm_mark_reached(const symm_comm *c, const symm_mark *m) {
    symm_cuda_scope scope;
    if (!m->seq) return 1;
    if (!c->cuda) return symm_order_reached(m->order);
    if (symm_gpu_push(c, &scope)) return 0;
    const cu_result cu = symm_cu.cuEventQuery(m->event);
    symm_gpu_pop(c, &scope);
    return cu == 0;
}

int symm_mark_soon(const symm_comm *c, const symm_mark *m, int ms) {
    enum { NAP_US = 50 };
    const uint64_t until = symm_now_ns() + (uint64_t)ms * 1000000;
    while (!symm_mark_reached(c, m)) {
        if (symm_now_ns() >= until) return 0;
        usleep(NAP_US);
    }
    return 1;
}

void symm_mark_end(const symm_comm *c, symm_mark *m) {
    symm_cuda_scope scope = {.pushed = 0};
    if (m->event) {
        (void)symm_gpu_enter(c, &scope); /* even if the context is gone, the event must go */
        (void)symm_cuda_error(symm_cu.cuEventDestroy(m->event), "destroying an event");
        symm_gpu_leave(&scope);
    }
    *m = (symm_mark){.seq = 0};
}
