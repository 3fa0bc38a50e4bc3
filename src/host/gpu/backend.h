/* backend.h - which backend this process's calls use, host or GPUs (SYMM_BACKEND). Any thread; no
 * lock of its own. */
#ifndef SYMM_BACKEND_H_
#define SYMM_BACKEND_H_

#include "base/param.h"
#include "transport/cuda/cuda_driver.h"
#include "transport/vmm/vmm.h"

/* cuda: 1 GPUs, 0 host. `auto` takes GPUs if there are a driver, a device and kernels in this
 * build. `cuda` without them is symmNotSupported with the reason. */
symmResult_t symm_backend_pick(const symm_params *p, int *cuda);
const symm_vmm *symm_backend_vmm(int cuda);
/* The GPU that is current; -1 on the host backend, or if there is none. */
int symm_backend_device(const symm_params *p);
/* The calling thread's current context, for work that another thread does for it. NULL: it has
 * none, or GPUs are not used. */
cu_context symm_backend_context(void);
/* Why GPUs cannot be used; "" if they can. */
const char *symm_backend_why(void);

#endif
