/* synced_gpu.c - synced buffers on GPUs: copies run in the caller's streams. Runs in the buffer's
 * thread, with the communicator's context current; host_free also in the thread that drops the
 * last reference. No lock.
 *
 * The driver is called in the relaxed capture mode (symm_gpu_push), so pinned memory may be
 * allocated while some stream is under capture. */
#include "transport/cuda/cuda_driver.h"
#include "synced.h"

/* Makes the event, so that marking cannot fail because there is none. */
static symmResult_t look(symm_synced *s, symmStream_t stream, int *capturing) {
    symm_gpu_capture in;
    SYMM_TRY(symm_gpu_look(s->comm, stream, &in));
    *capturing = in.graph != NULL;
    return symm_cuda_error(symm_mark_make(&s->mark), "an event for a synced buffer");
}

static symmResult_t host_alloc(symm_synced *s, symm_side *side) {
    void *p = NULL;
    const size_t bytes = s->bytes ? s->bytes : 1;
    cu_result cu = symm_cu.cuMemAllocHost(&p, bytes);
    if (cu) return symm_cuda_error(cu, "pinned memory for the host side of %zu bytes", bytes);
    side->ptr = p;
    side->pinned = 1;
    return symmSuccess;
}

static void host_free(symm_synced *s, const symm_side *side) {
    (void)s;
    cu_result cu = symm_cu.cuMemFreeHost(side->ptr);
    if (cu) symm_cuda_error(cu, "freeing the host side of a synced buffer");
}

static symmResult_t check_device(symm_synced *s, const void *p) {
    int type = 0, device = -1;
    const int own = s->comm->gpu->device;
    cu_result cu =
        symm_cu.cuPointerGetAttribute(&type, SYMM_CUDA_POINTER_MEMORY_TYPE, (uintptr_t)p);
    if (cu == SYMM_CUDA_ERROR_INVALID_VALUE || (!cu && type != SYMM_CUDA_MEMORY_DEVICE))
        return SYMM_ERR(symmInvalidArgument, "symmSyncedSetGpu: ptr=%p: must be memory of a GPU",
                        p);
    if (!cu) cu = symm_cu.cuPointerGetAttribute(&device, SYMM_CUDA_POINTER_DEVICE, (uintptr_t)p);
    if (cu) return symm_cuda_error(cu, "asking where %p lies", p);
    if (device == own) return symmSuccess;
    return SYMM_ERR(symmInvalidArgument,
                    "symmSyncedSetGpu: ptr=%p is memory of GPU %d: must be of GPU %d", p, device,
                    own);
}

static symmResult_t copy(symm_synced *s, void *to, const void *from, uint64_t bytes,
                         symmStream_t stream) {
    cu_result cu =
        symm_cu.cuMemcpyAsync((uintptr_t)to, (uintptr_t)from, bytes, symm_gpu_stream(stream));
    return symm_cuda_error(cu, "copying %llu bytes of synced buffer %p", (unsigned long long)bytes,
                           (void *)s->handle);
}

static symmResult_t zero(symm_synced *s, uint64_t bytes, symmStream_t stream) {
    cu_result cu =
        symm_cu.cuMemsetD8Async((uintptr_t)s->gpu.ptr, 0, bytes, symm_gpu_stream(stream));
    return symm_cuda_error(cu, "clearing synced buffer %p", (void *)s->handle);
}

/* A fill carries its value; a copy would need a source that lives longer. The fill starts when the
 * copies before it in the stream have ended and are visible. */
static symmResult_t write_word(symm_synced *s, uint32_t value, symmStream_t stream) {
    cu_result cu = symm_cu.cuMemsetD32Async((uintptr_t)(void *)symm_synced_word(s, s->comm->rank),
                                            value, 1, symm_gpu_stream(stream));
    return symm_cuda_error(cu, "writing the generation of synced buffer %p", (void *)s->handle);
}

static void drain(symm_synced *s, symmStream_t stream) {
    (void)s;
    symm_cu.cuStreamSynchronize(symm_gpu_stream(stream));
}

static symmResult_t hold(symm_synced *s, symmStream_t stream) {
    symm_gpu_capture in;
    SYMM_TRY(symm_gpu_look(s->comm, stream, &in));
    return symm_graph_hold(s->comm, &in, stream, s, &symm_synced_held);
}

const symm_synced_ops symm_synced_gpu = {.look = look,
                                         .host_alloc = host_alloc,
                                         .host_free = host_free,
                                         .check_device = check_device,
                                         .copy = copy,
                                         .zero = zero,
                                         .write_word = write_word,
                                         .drain = drain,
                                         .hold = hold};
