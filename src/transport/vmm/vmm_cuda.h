/* vmm_cuda.h - what the CUDA memory driver's two files share: vmm_cuda.c has memory and mappings,
 * cuda_objects.c the multicast objects. Any thread, no lock to take. */
#ifndef SYMM_VMM_CUDA_H_
#define SYMM_VMM_CUDA_H_

#include "transport/cuda/cuda_driver.h"
#include "multicast_driver.h"

extern const struct symm_vmm_multicast symm_cuda_objects;

/* Returns cu; err is kept for symm_vmm_cuda_errno. */
int symm_cuda_vmm_refuse(int cu, int err);
/* Takes over one of CUDA's references to `raw`, also if it fails. */
int symm_cuda_vmm_adopt(cu_mem_handle raw, uint64_t bytes, int device, symm_vmm_handle **h);
typedef struct {
    cu_mem_handle raw;
    uint64_t bytes;
    int device; /* where the memory is, or which has joined the object; -1: none that is known */
} symm_cuda_held;
/* What is behind h, held until symm_vmm_cuda.release drops h. INVALID_HANDLE if h is not live. */
int symm_cuda_vmm_hold(symm_vmm_handle *h, symm_cuda_held *out);
/* h is an object that the device has joined: its mappings are for that device alone. */
void symm_cuda_vmm_joined(symm_vmm_handle *h, int device);

#endif
