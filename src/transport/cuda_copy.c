/* cuda_copy.c - fills and copies that the library does for itself, and waits for.
 *
 * Any thread, no lock. They run on the library's own stream of the device: waiting for that waits
 * for nothing of the user's, so they may be called while a kernel spins on what they bring. */
#include "cuda_device.h"

/* Inside the device's scope. */
static cu_result finish(cu_result cu, cu_stream stream) {
    return cu ? cu : symm_cu.cuStreamSynchronize(stream);
}

cu_result symm_cuda_fill(int device, cu_deviceptr va, uint64_t bytes, uint32_t word) {
    symm_cuda_scope scope;
    cu_stream stream;
    int cu = symm_cuda_push_cu(device, &scope);
    if (cu) return cu;
    cu = symm_cuda_private_stream(device, &stream);
    if (!cu) cu = finish(symm_cu.cuMemsetD32Async(va, word, bytes / sizeof word, stream), stream);
    symm_cuda_pop(&scope);
    return cu;
}

cu_result symm_cuda_copy(int device, void *dst, const void *src, uint64_t bytes) {
    symm_cuda_scope scope;
    cu_stream stream;
    int cu = symm_cuda_push_cu(device, &scope);
    if (cu) return cu;
    cu = symm_cuda_private_stream(device, &stream);
    if (!cu)
        cu = finish(symm_cu.cuMemcpyAsync((uintptr_t)dst, (uintptr_t)src, bytes, stream), stream);
    symm_cuda_pop(&scope);
    return cu;
}
