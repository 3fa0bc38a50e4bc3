/* fd.h - keeps every descriptor that the library makes or receives above those of stdio. Else, in a
 * program that was started without stdio, printed text could go into a socket or memory of the
 * library. tests/check/check_descriptors.sh checks that no call is without it. Any thread, no
 * lock. */
#ifndef SYMM_FD_H_
#define SYMM_FD_H_

#include <stdio.h>

/* Returns the new descriptor fd, moved to above 2 if it is 0, 1 or 2; a moved one is CLOEXEC. -1 if
 * fd is -1, or if it cannot be moved: then it is closed, and errno says why. */
int symm_fd_above(int fd);
/* A file of the system to read from; NULL with errno. */
FILE *symm_fd_read(const char *path);

#endif
