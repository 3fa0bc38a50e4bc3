/* backend.c - which backend is used. Any thread; no lock of its own. */
#define _GNU_SOURCE /* environ */
#include "backend.h"

#include <stdatomic.h>
#include <unistd.h>

#include "base/log.h"
#include "base/param.h"
#include "device/common/kernels.h"
#include "symm_host.h"
#include "transport/cuda/cuda_device.h"

enum { AUTO, HOST, CUDA }; /* SYMM_BACKEND */

const char *symm_backend_why(void) {
    if (!symm_kernel_have_images()) return symm_kernel_why_none();
    return symm_cuda_there() ? "" : symm_cuda_why();
}

/* Said once: every call that makes or allocates something asks. No GPU is not worth a warning; a
 * driver that cannot be used is. */
static void say_host(const char *why) {
    static atomic_flag said = ATOMIC_FLAG_INIT;
    if (atomic_flag_test_and_set(&said)) return;
    if (symm_kernel_have_images() && symm_cuda_broken())
        SYMM_WARN("host backend: %s; GPUs are not used (SYMM_BACKEND=host if that is meant)", why);
    else
        SYMM_INFO("host backend: %s", why);
}

symmResult_t symm_backend_pick(const symm_params *p, int *cuda) {
    const char *why = p->backend == HOST ? "" : symm_backend_why();
    if (p->backend == CUDA && *why) return SYMM_ERR(symmNotSupported, "SYMM_BACKEND=cuda: %s", why);
    if (p->backend == AUTO && *why) say_host(why);
    *cuda = p->backend != HOST && !*why;
    return symmSuccess;
}

int symm_backend_device(const symm_params *p) {
    int cuda, device;
    if (symm_backend_pick(p, &cuda) || !cuda) return -1;
    return symm_cuda_current(&device) ? -1 : device;
}

cu_context symm_backend_context(void) {
    symm_params p;
    cu_context context = NULL;
    if (symm_param_parse(environ, &p) || p.backend == HOST || *symm_backend_why()) return NULL;
    return symm_cu.cuCtxGetCurrent(&context) ? NULL : context;
}

const symm_vmm *symm_backend_vmm(int cuda) {
    return cuda ? &symm_vmm_cuda : &symm_vmm_host;
}

symmResult_t symmSetBackend(int backend) {
    if (backend < SYMM_BACKEND_AUTO || backend > SYMM_BACKEND_CUDA)
        return SYMM_ERR(symmInvalidArgument,
                        "symmSetBackend: backend is %d: must be SYMM_BACKEND_AUTO, _HOST or _CUDA",
                        backend);
    symm_param_set_backend(backend);
    return symmSuccess;
}
