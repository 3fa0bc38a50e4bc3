/* cuda_share.c - GPU memory handed on to other processes and taken from them: by descriptors, and
 * by fabric handles, 64 bytes that mean something on every machine of an NVLink domain. Threads as
 * in cuda_share.h. */
#define _GNU_SOURCE 1 /* O_PATH */
#include "cuda_share.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"

_Static_assert(sizeof(symm_vmm_fabric) == sizeof(cu_fabric_handle), "CUDA's bytes are passed on");

int symm_cuda_share_kinds(int handle_types) {
    return (handle_types & SYMM_CUDA_HANDLE_FD ? SYMM_SHARE_FD : 0) |
           (handle_types & SYMM_CUDA_HANDLE_FABRIC ? SYMM_SHARE_FABRIC : 0);
}

/* CUDA does not report that it got no descriptor; opening one tells. */
static cu_result lack_of_fds(cu_result cu, int *err) {
    int fd = symm_fd_above(open("/", O_PATH | O_CLOEXEC)), why = errno;
    if (fd >= 0) close(fd);
    *err = fd < 0 && (why == EMFILE || why == ENFILE) ? why : 0;
    return cu;
}

cu_result symm_cuda_share_fd(cu_mem_handle raw, int *fd, int *err) {
    int got = -1;
    const cu_result cu = symm_cu.cuMemExportToShareableHandle(&got, raw, SYMM_CUDA_HANDLE_FD, 0);
    if (cu) return lack_of_fds(cu, err);
    got = symm_fd_above(got);
    *err = got < 0 ? errno : 0;
    if (got < 0) return SYMM_CU_OS_ERROR;
    fcntl(got, F_SETFD, FD_CLOEXEC); /* CUDA's outlive an exec */
    *fd = got;
    return SYMM_CU_SUCCESS;
}

cu_result symm_cuda_share_from_fd(int fd, cu_mem_handle *raw, int *err) {
    *err = EBADF;
    if (fcntl(fd, F_GETFD) < 0) return SYMM_CU_INVALID_VALUE;
    const cu_result cu =
        symm_cu.cuMemImportFromShareableHandle(raw, (void *)(intptr_t)fd, SYMM_CUDA_HANDLE_FD);
    return cu ? lack_of_fds(cu, err) : cu;
}

cu_result symm_cuda_share_fabric(cu_mem_handle raw, symm_vmm_fabric *out) {
    cu_fabric_handle got;
    const cu_result cu =
        symm_cu.cuMemExportToShareableHandle(&got, raw, SYMM_CUDA_HANDLE_FABRIC, 0);
    if (!cu) memcpy(out, &got, sizeof *out);
    return cu;
}

cu_result symm_cuda_share_from_fabric(const symm_vmm_fabric *from, cu_mem_handle *raw) {
    cu_fabric_handle given;
    memcpy(&given, from, sizeof given);
    return symm_cu.cuMemImportFromShareableHandle(raw, &given, SYMM_CUDA_HANDLE_FABRIC);
}
