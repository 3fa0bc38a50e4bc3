/* cuda_copy.c - fills and copies of the library's own, which it waits for; the life of memory of
 * other allocators.
 *
 * Any thread, no lock. They run in the library's own stream of the device, so waiting for them
 * waits for no work of the user. So they may be called while a kernel spins on what they bring. */
#include "transport/cuda/cuda_device.h"
#include "vmm.h"

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

/* New memory, which has no mapping yet: maps it for the fill. */
cu_result symm_cuda_clear(int device, cu_mem_handle raw, uint64_t bytes) {
    const cu_mem_access access = {{SYMM_CUDA_LOCATION_DEVICE, device}, SYMM_CUDA_ACCESS_READWRITE};
    cu_deviceptr va = 0;
    int cu = symm_cu.cuMemAddressReserve(&va, bytes, 0, 0, 0), undone;
    if (cu) return cu;
    if ((cu = symm_cu.cuMemMap(va, bytes, 0, raw, 0)) != 0) goto unreserve;
    cu = symm_cu.cuMemSetAccess(va, bytes, &access, 1);
    if (!cu) cu = symm_cuda_fill(device, va, bytes, 0);
    undone = symm_cu.cuMemUnmap(va, bytes);
    if (!cu) cu = undone;
unreserve:
    undone = symm_cu.cuMemAddressFree(va, bytes);
    return cu ? cu : undone;
}

/* CUDA gives every allocation of a process a number, which is quick to ask for. Memory without a
 * number is known by its handle, which is retained and released for the question. */
uint64_t symm_cuda_foreign_life(cu_deviceptr va) {
    unsigned long long number = 0;
    cu_mem_handle raw = 0;
    const uint64_t marks = SYMM_LIFE_FOREIGN | SYMM_LIFE_DEAR;
    if (!symm_cu.cuPointerGetAttribute(&number, SYMM_CUDA_POINTER_BUFFER_ID, va) && number)
        return SYMM_LIFE_FOREIGN | (number & ~marks);
    if (symm_cu.cuMemRetainAllocationHandle(&raw, (void *)(uintptr_t)va)) return 0;
    symm_cu.cuMemRelease(raw);
    return marks | raw;
}
