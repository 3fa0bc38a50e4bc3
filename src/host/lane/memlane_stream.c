/* memlane_stream.c - streams as lanes see them, on both backends: captured or not, marked,
 * followed. The communicator's user thread. On GPUs the communicator's context is made current
 * where a call needs one; asking for the capture needs none. */
#include <unistd.h>

#include "base/wait.h"
#include "host/comm/comm.h"
#include "host/gpu/gpu.h"
#include "memlane.h"

static symmResult_t gone(symmStream_t stream) {
    return SYMM_ERR(symmInvalidArgument,
                    "stream=%p is no live stream. If the stream of a lane is gone, free its "
                    "blocks on another lane of the heap",
                    (void *)stream);
}

static symmResult_t state_gpu(symmStream_t stream, symm_memstate *st) {
    int status = SYMM_CUDA_CAPTURE_NONE;
    if (symm_gpu_is_legacy(stream)) return symmSuccess;
    cu_result cu =
        symm_cuda_capture_info(symm_gpu_stream(stream), &status, &st->capture, &st->graph);
    if (symm_gpu_means_none(cu)) return gone(stream);
    if (cu) return symm_cuda_error(cu, "stream %p of a lane", (void *)stream);
    if (status == SYMM_CUDA_CAPTURE_INVALIDATED)
        return SYMM_ERR(symmInvalidUsage, "stream=%p: its capture was invalidated", (void *)stream);
    if (status == SYMM_CUDA_CAPTURE_ACTIVE) st->how = SYMM_STREAM_CAPTURED;
    return symmSuccess;
}

symmResult_t symm_mem_state(const symm_comm *c, symmStream_t stream, symm_memstate *st) {
    st->how = SYMM_STREAM_EAGER;
    st->capture = 0;
    st->graph = NULL;
    if (c->cuda) return state_gpu(stream, st);
    const int found = symm_stream_capture(stream, &st->capture);
    if (found < 0) return gone(stream);
    if (found) st->how = SYMM_STREAM_CAPTURED;
    return symmSuccess;
}

int symm_mem_alive(const symm_comm *c, symmStream_t stream) {
    int status;
    uint64_t id;
    if (!c->cuda) return symm_stream_capture(stream, &id) >= 0;
    return symm_gpu_is_legacy(stream) || !symm_gpu_means_none(symm_cuda_capture_info(
                                             symm_gpu_stream(stream), &status, &id, NULL));
}

int symm_mem_shut(symm_comm *c, symmStream_t stream) {
    symm_cuda_scope scope;
    int yes = 0;
    if (!c->cuda || !symm_gpu_is_legacy(stream) || symm_gpu_enter(c, &scope)) return 0;
    if (symm_gpu_in_a_capture(stream, &yes)) yes = 0; /* the call itself will return the error */
    symm_gpu_leave(&scope);
    return yes;
}

symmResult_t symm_mem_open(symm_comm *c, symmStream_t stream) {
    if (!symm_mem_shut(c, stream)) return symmSuccess;
    return SYMM_ERR(symmInvalidUsage,
                    "stream=%p: a lane of this heap is on the legacy stream, which cannot be used "
                    "while a blocking stream is captured",
                    (void *)stream);
}

/* A stream that is gone runs what it was given; where is not known any more. */
static symmResult_t record(const symm_comm *c, symm_memmark *m, symmStream_t stream) {
    if (!m->event) {
        cu_result cu = symm_cu.cuEventCreate(&m->event, SYMM_CUDA_EVENT_DISABLE_TIMING);
        if (cu) return symm_cuda_error(cu, "an event of a lane");
    }
    cu_result cu = symm_cu.cuEventRecord(m->event, symm_gpu_stream(stream));
    if (symm_gpu_means_none(cu)) cu = symm_gpu_reach_all(c);
    return symm_cuda_error(cu, "marking the end of a lane's work");
}

symmResult_t symm_memmark_set(symm_comm *c, symm_memmark *m, symmStream_t stream) {
    symm_cuda_scope scope;
    if (!c->cuda) {
        symm_order_take(stream, &m->order);
        m->seq++;
        return symmSuccess;
    }
    SYMM_TRY(symm_mem_open(c, stream));
    SYMM_TRY(symm_gpu_enter(c, &scope));
    symmResult_t r = record(c, m, stream);
    symm_gpu_leave(&scope);
    if (!r) m->seq++;
    return r;
}

symmResult_t symm_memmark_follow(symm_comm *c, const symm_memmark *m, symmStream_t stream) {
    symm_cuda_scope scope;
    if (!m->seq) return symmSuccess;
    if (!c->cuda) return symm_order_wait(stream, m->order);
    SYMM_ASSERT(m->event != NULL);
    SYMM_TRY(symm_mem_open(c, stream));
    SYMM_TRY(symm_gpu_enter(c, &scope));
    cu_result cu = symm_cu.cuStreamWaitEvent(symm_gpu_stream(stream), m->event, 0);
    symm_gpu_leave(&scope);
    return symm_cuda_error(cu, "putting stream %p behind a lane", (void *)stream);
}

symmResult_t symm_memmark_reach(symm_comm *c, const symm_memmark *m) {
    symm_cuda_scope scope;
    if (!m->seq) return symmSuccess;
    if (!c->cuda) return symm_order_wait(NULL, m->order);
    SYMM_TRY(
        symm_gpu_push(c, &scope)); /* an unrelated capture of the caller's is not our business */
    cu_result cu = symm_cu.cuEventSynchronize(m->event);
    symm_gpu_pop(c, &scope);
    return symm_cuda_error(cu, "waiting for a lane's work");
}

static int is_reached(symm_comm *c, const symm_memmark *m) {
    symm_cuda_scope scope;
    if (!c->cuda) return symm_order_reached(m->order);
    if (symm_gpu_push(c, &scope)) return 0;
    const cu_result cu = symm_cu.cuEventQuery(m->event);
    symm_gpu_pop(c, &scope);
    return cu == 0;
}

int symm_memmark_soon(symm_comm *c, const symm_memmark *m, int ms) {
    enum { NAP_US = 50 };
    const uint64_t until = symm_now_ns() + (uint64_t)ms * 1000000;
    if (!m->seq) return 1;
    while (!is_reached(c, m)) {
        if (symm_now_ns() >= until) return 0;
        usleep(NAP_US);
    }
    return 1;
}

void symm_memmark_end(symm_comm *c, symm_memmark *m) {
    symm_cuda_scope scope;
    if (m->event && symm_gpu_enter(c, &scope) == symmSuccess) {
        symm_cu.cuEventDestroy(m->event);
        symm_gpu_leave(&scope);
    }
    *m = (symm_memmark){0};
}
