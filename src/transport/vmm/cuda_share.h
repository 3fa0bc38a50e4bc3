/* cuda_share.h - CUDA's handles of memory as descriptors and as fabric handles, and back: a call of
 * the driver each, on the thread's current context. CUDA's code; *err: errno behind a refusal, 0 if
 * there is none. Any thread, no lock. */
#ifndef SYMM_CUDA_SHARE_H_
#define SYMM_CUDA_SHARE_H_

#include "transport/cuda/cuda_driver.h"
#include "vmm.h"

/* SYMM_SHARE_* of CUDA's kinds. */
int symm_cuda_share_kinds(int handle_types);
/* CLOEXEC, the caller's. */
cu_result symm_cuda_share_fd(cu_mem_handle raw, int *fd, int *err);
cu_result symm_cuda_share_from_fd(int fd, cu_mem_handle *raw, int *err);
cu_result symm_cuda_share_fabric(cu_mem_handle raw, symm_vmm_fabric *out);
cu_result symm_cuda_share_from_fabric(const symm_vmm_fabric *from, cu_mem_handle *raw);

#endif
