/* beacon.h - presence: while a rank is inside a collective call that the means of exchange cannot
 * time out by themselves (MPI), it shows a light: an abstract AF_UNIX socket whose name every other
 * rank can work out. A name that nobody has bound is a rank that is not there. Any thread; one
 * lock. Same host (and network namespace) only. */
#ifndef SYMM_BEACON_H_
#define SYMM_BEACON_H_

#include <stdint.h>

#include "base/status.h"

/* Equal on all ranks that mean the same call, and on no others: the job, and a hash of the group's
 * members. */
typedef struct {
    uint64_t job, group;
} symm_beacon_key;

typedef struct symm_beacon symm_beacon;

/* What tells this job from others of the same user: from the launcher's environment, else the
 * launcher's pid. */
SYMM_API uint64_t symm_beacon_job(void);
/* FNV-1a, for putting a key together. `h` is 0 or the result so far. */
SYMM_API uint64_t symm_beacon_hash(uint64_t h, const void *data, size_t bytes);
/* Several lights of one rank under one key are one (counted). A name that a stranger holds is no
 * error: then peers see a light, which is true. symmFdLimit, symmSystemError, symmOutOfMemory. */
SYMM_API symmResult_t symm_beacon_light(const symm_beacon_key *key, int rank, symm_beacon **out);
SYMM_API void symm_beacon_douse(symm_beacon *b); /* NULL is fine */
/* 1: that rank's light is on. 0: it is not, the rank is not there. -1: cannot tell (no descriptor,
 * ...). Never blocks. */
SYMM_API int symm_beacon_seen(const symm_beacon_key *key, int rank);

#endif
