/* peer_memory.h - memory of another process, read and written through the kernel where the system
 * allows it. Any thread, no lock. Nothing else in the library writes into another process
 * (tests/check/check_symbols.sh). */
#ifndef SYMM_PEER_MEMORY_H_
#define SYMM_PEER_MEMORY_H_

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Bytes that were read into `mine` from `theirs`, an address of process pid, which may be this one.
 * Fewer than `bytes`: errno says why not the next one. Memory that is not mapped, here or there, is
 * EFAULT. */
size_t symm_peer_read(int pid, void *mine, uint64_t theirs, size_t bytes);

/* A page by which a process lets others write into its memory, until it closes the page: what is
 * written goes there first. NULL: no memory for it. */
void *symm_peer_gate(void);
/* From here on no write begins. One that has begun may still be under way. The page is kept, so
 * that nothing else comes to lie there. 0, or errno. */
int symm_peer_gate_close(void *gate);
/* Of a gate that was never closed, when no process knows it any more. */
void symm_peer_gate_free(void *gate);

/* Bytes that were written from `mine` to `theirs`, an address of the process pid whose gate that
 * is. Fewer than `bytes`: errno says why not the next one. -1: the gate could not be written. It is
 * closed, or errno says what else; EFAULT if the process is no longer the same. At most 1 GiB. */
ssize_t symm_peer_write(int pid, uint64_t gate, uint64_t theirs, const void *mine, size_t bytes);

/* What the errno of a refused read or write comes from, as a part of a sentence. */
const char *symm_peer_why(int err);

#endif
