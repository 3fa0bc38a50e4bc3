/* fd.h - every descriptor that the library makes or receives lies above those of stdio: in a
 * program that was started without them, what it prints would else go into a socket or into
 * memory of ours. tests/check/check_descriptors.sh sees to it that no call is made without. Any
 * thread, no lock. */
#ifndef SYMM_FD_H_
#define SYMM_FD_H_

#include <stdio.h>

/* The new descriptor fd, moved away from 0, 1 and 2, CLOEXEC as moved. -1 if fd is, or if it
 * cannot be moved: closed, errno says why. */
int symm_fd_above(int fd);
/* A file of the system to read from; NULL with errno. */
FILE *symm_fd_read(const char *path);

#endif
