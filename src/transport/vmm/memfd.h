/* memfd.h - memory as sealed files, which other processes map from a descriptor. Errors are errno
 * values, 0 is none. Any thread. */
#ifndef SYMM_MEMFD_H_
#define SYMM_MEMFD_H_

#include <stdint.h>

/* A new file of zeros, sealed against a change of size, CLOEXEC, beyond the descriptors of stdio;
 * the caller counts and closes it. id: equal for the same file in every process of the host. */
int symm_memfd_make(uint64_t bytes, int *fd, uint64_t id[2]);
/* Whether the machine can have a file of that size: a file allocates pages only when they are
 * used. */
int symm_memfd_fits(uint64_t bytes);
/* Why a received file must not be mapped for writing; 0 if it may. */
int symm_memfd_inspect(int fd, uint64_t bytes, uint64_t id[2]);
/* Memory of this machine. */
uint64_t symm_memfd_machine_bytes(int with_swap);

#endif
