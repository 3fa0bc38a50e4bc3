/* mem.c - symmMemAlloc, symmMemFree, symmSetDevice: VMM-backed memory that can be registered;
 * symmHostRegister: memory of the host for kernels. Any thread; the driver's lock inside. */
#include "base/check.h"
#include "base/param.h"
#include "host/gpu/backend.h"
#include "host/gpu/gpu.h"
#include "transport/cuda/cuda_device.h"
#include "transport/cuda/cuda_driver.h"
#include "transport/vmm/vmm.h"

symmResult_t symmMemAlloc(void **ptr, size_t size) {
    symm_params p;
    if (!ptr) return SYMM_ERR(symmInvalidArgument, "ptr is NULL");
    SYMM_TRY(symm_param_load(&p));
    int cuda;
    SYMM_TRY(symm_backend_pick(&p, &cuda));
    symm_vmm_host_hugepages((int)p.hugepages);
    if (cuda) symm_gpu_reap();
    return symm_vmm_alloc(symm_backend_vmm(cuda), size, ptr);
}

symmResult_t symmMemFree(void *ptr) {
    if (!ptr) return symmSuccess;
    const symm_vmm *v = symm_vmm_owner(ptr);
    return symm_vmm_free(v ? v : &symm_vmm_host, ptr);
}

symmResult_t symmSetDevice(int device) {
    symm_params p;
    int cuda;
    SYMM_TRY(symm_param_load(&p));
    SYMM_TRY(symm_backend_pick(&p, &cuda));
    return cuda ? symm_cuda_set(device) : symmSuccess;
}

/* ---- memory of the host for kernels ---------------------------------------------------------- */

/* Any context will do. The thread's own stays as it is, also if it has none. *cuda 0: the host
 * backend, and nothing to pop. */
static symmResult_t enter_any(int *cuda, symm_cuda_scope *scope) {
    symm_params p;
    int device;
    SYMM_TRY(symm_param_load(&p));
    SYMM_TRY(symm_backend_pick(&p, cuda));
    if (!*cuda) return symmSuccess;
    const uint64_t in_use = symm_cuda_in_use();
    if (in_use)
        device = __builtin_ctzll(in_use);
    else
        SYMM_TRY(symm_cuda_current(&device));
    SYMM_ASSERT(device >= 0);
    return symm_cuda_push(device, scope);
}

static symmResult_t pin(void *ptr, size_t bytes) {
    cu_deviceptr at = 0;
    SYMM_ASSERT(ptr && bytes);
    cu_result cu =
        symm_cu.cuMemHostRegister(ptr, bytes, SYMM_CUDA_HOST_PORTABLE | SYMM_CUDA_HOST_DEVICEMAP);
    if (cu) return symm_cuda_error(cu, "pinning %zu bytes of the host at %p", bytes, ptr);
    cu = symm_cu.cuMemHostGetDevicePointer(&at, ptr, 0);
    if (!cu && at == (uintptr_t)ptr) return symmSuccess;
    symm_cu.cuMemHostUnregister(ptr);
    if (cu) return symm_cuda_error(cu, "the device's address of host memory at %p", ptr);
    return SYMM_ERR(symmNotSupported,
                    "symmHostRegister: GPUs have ptr=%p at another address, %#llx", ptr,
                    (unsigned long long)at);
}

static symmResult_t unpin(void *ptr) {
    SYMM_ASSERT(ptr);
    cu_result cu = symm_cu.cuMemHostUnregister(ptr);
    return cu ? symm_cuda_error(cu, "unpinning host memory at %p", ptr) : symmSuccess;
}

symmResult_t symmHostRegister(void *ptr, size_t bytes) {
    symm_cuda_scope scope;
    int cuda;
    if (!ptr || !bytes)
        return SYMM_ERR(symmInvalidArgument,
                        "symmHostRegister: ptr=%p, bytes=%zu: must not be NULL and 0", ptr, bytes);
    SYMM_TRY(enter_any(&cuda, &scope));
    if (!cuda) return symmSuccess;
    const symmResult_t r = pin(ptr, bytes);
    symm_cuda_pop(&scope);
    return r;
}

symmResult_t symmHostUnregister(void *ptr) {
    symm_cuda_scope scope;
    int cuda;
    if (!ptr) return SYMM_ERR(symmInvalidArgument, "symmHostUnregister: ptr is NULL");
    SYMM_TRY(enter_any(&cuda, &scope));
    if (!cuda) return symmSuccess;
    const symmResult_t r = unpin(ptr);
    symm_cuda_pop(&scope);
    return r;
}
