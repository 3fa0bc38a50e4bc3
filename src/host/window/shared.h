/* shared.h - host memory that all ranks map: one part per rank, zeroed. Processes: one sealed memfd
 * of rank 0. Thread ranks: one mapping, found by its number. Open: the user's thread. Drop: any
 * thread. */
#ifndef SYMM_SHARED_H_
#define SYMM_SHARED_H_

#include "host/comm/types.h"

typedef struct symm_shared symm_shared;

/* bytes: of one rank's part, a multiple of the page size. mine: this rank's status so far. On all
 * ranks or on none. [collective] */
symmResult_t symm_shared_open(symm_comm *c, symmResult_t mine, size_t bytes, const char *stage,
                              symm_shared **out);
void symm_shared_drop(symm_shared *s); /* NULL is a no-op */
void *symm_shared_part(const symm_shared *s, int rank);

#endif
