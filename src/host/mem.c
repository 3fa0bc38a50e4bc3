/* mem.c - symmMemAlloc and symmMemFree: VMM-backed memory that can be registered. Any thread; the driver's lock inside. */
#include "../transport/vmm.h"
#include "param.h"

symmResult_t symmMemAlloc(void **ptr, size_t size) {
    symm_params p;
    if (!ptr) return SYMM_ERR(symmInvalidArgument, "ptr is NULL");
    SYMM_TRY(symm_param_load(&p));
    symm_vmm_host_hugepages((int)p.hugepages);
    return symm_vmm_alloc(&symm_vmm_host, size, ptr);
}

symmResult_t symmMemFree(void *ptr) {
    return ptr ? symm_vmm_free(&symm_vmm_host, ptr) : symmSuccess;
}
