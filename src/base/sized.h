/* sized.h - records of the API that begin with their size, `size_t size`, as the program was
 * compiled with. A record may grow by fields at its end, whose 0 means what was before: so a
 * program may have fewer of them than this library, or more. Pure; any thread. */
#ifndef SYMM_SIZED_H_
#define SYMM_SIZED_H_

#include <stddef.h>
#include <string.h>

/* More than any record has: what was not set. */
#define SYMM_SIZED_MOST ((size_t)64 << 10)

/* Whether the program has the record at all. least: the bytes of its first version. */
static inline int symm_sized_holds(const void *record, size_t least) {
    if (!record) return 0;
    const size_t size = *(const size_t *)record;
    return size >= least && size <= SYMM_SIZED_MOST;
}

/* Answers: as much of `answer` as the program has fields for. Those that this library does not know
 * become 0. The record keeps its size. */
static inline void symm_sized_answer(void *record, const void *answer, size_t bytes) {
    const size_t size = *(const size_t *)record;
    if (size > bytes) memset((char *)record + bytes, 0, size - bytes);
    memcpy(record, answer, size < bytes ? size : bytes);
    *(size_t *)record = size;
}

/* Settings: copies what the program has of them into `settings`, which is filled with defaults and
 * keeps its size. 1: the record is no such one, or asks for something that this library does not
 * know: a field behind its own is not 0. */
static inline int symm_sized_read(void *settings, size_t bytes, size_t least, const void *record) {
    const size_t own = *(const size_t *)settings, size = *(const size_t *)record;
    if (!symm_sized_holds(record, least)) return 1;
    for (size_t i = bytes; i < size; i++)
        if (((const char *)record)[i]) return 1;
    memcpy(settings, record, size < bytes ? size : bytes);
    *(size_t *)settings = own;
    return 0;
}

#endif
