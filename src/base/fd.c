/* fd.c - moves a descriptor (see fd.h). Any thread, no lock. Between the call that makes a
 * descriptor and the move, another thread may still print into it. So a program that prints in one
 * thread while another is inside the library should not close its stdio (docs/limits.md, Machines).
 * Linux has no call that makes a socket or opens a file at a number beyond 2, only copies. */
#define _GNU_SOURCE
#include "fd.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "fail.h"

int symm_fd_above(int fd) {
    if (fd < 0 || fd > 2) return fd;
    int moved = SYMM_FAIL_CALL(fd_stdio, -1, EMFILE, fcntl(fd, F_DUPFD_CLOEXEC, 3));
    int err = errno;
    close(fd);
    errno = err;
    return moved;
}

FILE *symm_fd_read(const char *path) {
    int fd = symm_fd_above(open(path, O_RDONLY | O_CLOEXEC));
    FILE *f = fd < 0 ? NULL : fdopen(fd, "r");
    if (!f && fd >= 0) {
        int err = errno;
        close(fd);
        errno = err;
    }
    return f;
}
