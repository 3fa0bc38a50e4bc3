/* backend.h - host or GPUs: which one this process's calls use, as SYMM_BACKEND says. Any thread;
 * no lock of its own. */
#ifndef SYMM_BACKEND_H_
#define SYMM_BACKEND_H_

#include "base/param.h"
#include "transport/cuda/cuda_driver.h"
#include "transport/vmm/vmm.h"

/* *cuda: 1 GPUs, 0 host. auto takes GPUs where a driver, a device and this build's kernels are;
 * cuda without them is symmNotSupported with the reason. */
symmResult_t symm_backend_pick(const symm_params *p, int *cuda);
const symm_vmm *symm_backend_vmm(int cuda);
/* The calling thread's current context where GPUs are used, NULL if it has none: for work that
 * another thread does for it. */
cu_context symm_backend_context(void);
/* Why GPUs are not used, "" where they could be. */
const char *symm_backend_why(void);

#endif
