/* memcut.h - memory as parts of larger files, so that many parts need one descriptor. The size of a
 * file costs nothing before its pages are used. So files are made much larger than what is asked
 * for.
 *
 * A part becomes free in its file when its owner has freed it and no other process has it. The
 * kernel knows whether one has: an exported descriptor is an open file description of its own with
 * a lock on the part, and the lock lives as long as any descriptor or mapping made from it, in any
 * process. A forked child has such a lock on all parts in use at the fork, until it ends, executes
 * another program, or has freed all that it inherited of the file.
 *
 * The place of the part travels as the position of the description. Errors are errno values, 0 is
 * none. Any thread; a lock inside. */
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
/* A new descriptor, CLOEXEC, beyond those of stdio; the caller counts and closes it. Not at the
 * same time as a free of the part. */
int symm_memcut_export(symm_memcut *cut, int *fd);
/* For a received descriptor: the part's offset in its file. Returns why it must not be mapped. */
int symm_memcut_inspect(int fd, uint64_t bytes, uint64_t *off, uint64_t id[2]);
/* Called when others may have released parts: gives the pages of freed parts that no process has
 * any more back to the system. Cheap if no part waits, or if its holders stay. */
void symm_memcut_look(void);

#endif
