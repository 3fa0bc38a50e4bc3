/* memfd.c - memory as sealed files. The seals keep a process from removing pages that another has
 * mapped; a received file is checked for them before it is mapped. Any thread, no lock. */
#define _GNU_SOURCE 1 /* memfd_create, F_ADD_SEALS */
#include "memfd.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include "base/fail.h"
#include "base/fd.h"

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif
#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

#define SEALS    (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)
#define NO_WRITE (F_SEAL_WRITE | F_SEAL_FUTURE_WRITE)

/* Kernels since 6.3 have a flag for files that are not to be executed, and may require it. Older
 * ones return EINVAL for the flag. */
static int open_memfd(void) {
    const unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
    int fd = symm_fd_above(
        SYMM_FAIL_CALL(vmm_memfd, -1, EMFILE, memfd_create("symm", flags | MFD_NOEXEC_SEAL)));
    if (fd < 0 && errno == EINVAL) fd = symm_fd_above(memfd_create("symm", flags));
    return fd;
}

uint64_t symm_memfd_machine_bytes(int with_swap) {
    struct sysinfo info;
    if (sysinfo(&info) != 0) return 0;
    return ((uint64_t)info.totalram + (with_swap ? info.totalswap : 0)) * info.mem_unit;
}

/* A memfd allocates pages only when they are used, so a size that the machine cannot have is
 * refused here. The limit of file sizes comes first: ftruncate beyond it raises SIGXFSZ, which by
 * default ends the process. */
int symm_memfd_fits(uint64_t bytes) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && bytes > limit.rlim_cur) return 0;
    return bytes <= INT64_MAX && bytes <= symm_memfd_machine_bytes(1);
}

static int file_identity(int fd, uint64_t *bytes, uint64_t id[2]) {
    struct stat st;
    if (SYMM_FAIL_CALL(vmm_stat, -1, EOVERFLOW, fstat(fd, &st)) != 0) return errno;
    if (!S_ISREG(st.st_mode) || st.st_size < 0) return EINVAL;
    *bytes = (uint64_t)st.st_size;
    id[0] = st.st_dev;
    id[1] = st.st_ino;
    return 0;
}

int symm_memfd_make(uint64_t bytes, int *out, uint64_t id[2]) {
    uint64_t real;
    int fd = open_memfd();
    if (fd < 0) return errno;
    int err = SYMM_FAIL_CALL(vmm_size, -1, EFBIG, ftruncate(fd, (off_t)bytes)) != 0 ||
                      SYMM_FAIL_CALL(vmm_seal, -1, EPERM, fcntl(fd, F_ADD_SEALS, SEALS)) != 0
                  ? errno
                  : 0;
    if (!err) err = file_identity(fd, &real, id);
    if (err)
        close(fd);
    else
        *out = fd;
    return err;
}

/* Why a received file must not be mapped, as an errno; 0 if it may:
 *  - not sealed: the peer could remove pages, and the next access here would raise SIGBUS;
 *  - sealed against writing, or opened for reading: it cannot be mapped read-write;
 *  - more seals can be added: it could become such a file later. */
int symm_memfd_inspect(int fd, uint64_t bytes, uint64_t id[2]) {
    uint64_t real = 0;
    int err = file_identity(fd, &real, id);
    if (err) return err;
    if (real != bytes) return EINVAL;
    int seals = SYMM_FAIL_CALL(vmm_seals, -1, EINVAL, fcntl(fd, F_GET_SEALS));
    if (seals < 0) return errno;
    if ((seals & SEALS) != SEALS || (seals & NO_WRITE) != 0) return EPERM;
    int flags = SYMM_FAIL_CALL(vmm_flags, -1, EBADF, fcntl(fd, F_GETFL));
    if (flags < 0) return errno;
    return (flags & O_ACCMODE) == O_RDWR ? 0 : EACCES;
}
