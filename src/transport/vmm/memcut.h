/* memcut.h - memory as parts of larger files, so that many take one descriptor. A file's
 * size costs nothing before its pages are used, so files are made much larger than what is asked
 * for.
 *
 * A part is given back to its file when its owner frees it and nobody else has it. Who else has it
 * the kernel knows: what is handed on is a description of the file of its own, with a lock on the
 * part, and the lock lives as long as any descriptor or mapping that came from it, in any process.
 * A forked child has such a lock on all that was in use at the fork, until it ends, becomes another
 * program, or has freed all that it inherited of the file.
 * The part's place travels as the description's position. Errors are errno values, 0 is none. Any
 * thread; a lock inside. */
#ifndef SYMM_MEMCUT_H_
#define SYMM_MEMCUT_H_

#include <stdatomic.h>
#include <stdint.h>

#define SYMM_MEMCUT_GRANULE (2ull << 20)

typedef struct symm_memcut_file symm_memcut_file;

typedef struct {
    symm_memcut_file *file;
    int fd; /* the file's; for mapping */
    uint64_t off, bytes;
    _Atomic int handed; /* symm_memcut_export has been called */
} symm_memcut;

/* New memory of zeros, a multiple of the granule; sealed against another size. id: as in memfd.h.
 * */
int symm_memcut_make(uint64_t bytes, symm_memcut *cut, uint64_t id[2]);
/* The caller has no mapping of it any more. */
void symm_memcut_free(symm_memcut *cut);
/* A new descriptor, CLOEXEC, beyond those of stdio, the caller's to count and close. Not beside a
 * free. */
int symm_memcut_export(symm_memcut *cut, int *fd);
/* Where in a foreign file what was handed on lies; why it must not be mapped. */
int symm_memcut_inspect(int fd, uint64_t bytes, uint64_t *off, uint64_t id[2]);
/* Where others may have let go: pages of what was freed here and nobody has any more go back to the
 * system. Costs little where nothing waits, or holders stay. */
void symm_memcut_look(void);

#endif
