/* memlane_stream.c - streams as lanes see them, on both backends: captured or not, marked,
 * followed. The communicator's user thread. On GPUs the communicator's context is made current
 * where a call needs one; asking for the capture needs none. */
#include "host/comm/comm.h"
#include "host/gpu/gpu.h"
#include "host/gpu/point.h"
#include "memlane.h"

static symmResult_t gone(symmStream_t stream) {
    return SYMM_ERR(symmInvalidArgument,
                    "stream=%p is no live stream; if a lane's stream is gone, free its blocks on "
                    "another lane of the heap",
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

symmResult_t symm_memmark_set(symm_comm *c, symm_memmark *m, symmStream_t stream) {
    SYMM_TRY(symm_mem_open(c, stream));
    return symm_mark_set(c, m, stream);
}

symmResult_t symm_memmark_follow(symm_comm *c, const symm_memmark *m, symmStream_t stream) {
    if (m->seq) SYMM_TRY(symm_mem_open(c, stream));
    return symm_mark_follow(c, m, stream);
}

symmResult_t symm_memmark_reach(symm_comm *c, const symm_memmark *m) {
    return symm_mark_reach(c, m);
}

int symm_memmark_soon(symm_comm *c, const symm_memmark *m, int ms) {
    return symm_mark_soon(c, m, ms);
}

void symm_memmark_end(symm_comm *c, symm_memmark *m) {
    symm_mark_end(c, m);
}
