/* peer_memory.h - memory of another process, read through the kernel where the system allows it.
 * Any thread, no lock. Nothing here writes into another process, and nothing else may
 * (tests/check/check_symbols.sh). */
#ifndef SYMM_PEER_MEMORY_H_
#define SYMM_PEER_MEMORY_H_

#include <stddef.h>
#include <stdint.h>

/* Bytes that were read into `mine` from `theirs`, an address of process pid, which may be this one.
 * Fewer than `bytes`: errno says why not the next one. Memory that is not mapped, here or there, is
 * EFAULT. */
size_t symm_peer_read(int pid, void *mine, uint64_t theirs, size_t bytes);

/* What the errno of a refused read comes from, as a part of a sentence. */
const char *symm_peer_why(int err);

#endif
