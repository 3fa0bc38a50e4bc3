/* mem.c - symmMemAlloc, symmMemFree, symmSetDevice: VMM-backed memory that can be registered. Any
 * thread; the driver's lock inside. */
#include "base/param.h"
#include "host/gpu/backend.h"
#include "host/gpu/gpu.h"
#include "transport/cuda/cuda_device.h"
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
