/* beacon.h - presence of ranks, for exchanges that cannot time out by themselves (MPI). While a
 * rank is inside such a call it has a beacon: an abstract AF_UNIX socket whose name every other
 * rank can compute. If no process has bound the name, the rank is not there. Any thread; one lock.
 * Only for ranks of one host and network namespace. */
#ifndef SYMM_BEACON_H_
#define SYMM_BEACON_H_

#include <stdint.h>

#include "base/status.h"

/* Equal on all ranks of the same call, and on no others: the job, and a hash of the members. */
typedef struct {
    uint64_t job, group;
} symm_beacon_key;

typedef struct symm_beacon symm_beacon;

/* Tells this job from others of the same user: a hash of the launcher's variables, else of the
 * launcher's pid. */
SYMM_API uint64_t symm_beacon_job(void);
/* Ranks of one job with the same number see each other's beacons; others are on another host, or in
 * another network namespace. */
SYMM_API uint64_t symm_beacon_sight(uint64_t job);
/* FNV-1a, for putting a key together. `h` is 0 or the result so far. */
SYMM_API uint64_t symm_beacon_hash(uint64_t h, const void *data, size_t bytes);
/* Lights the beacon. Several of one rank and key are one, which is counted. If another process has
 * the name, that is no error: peers see a beacon, and this rank is there. Errors: symmFdLimit,
 * symmSystemError, symmOutOfMemory. */
SYMM_API symmResult_t symm_beacon_light(const symm_beacon_key *key, int rank, symm_beacon **out);
SYMM_API void symm_beacon_douse(symm_beacon *b); /* NULL is fine */
/* 1: that rank's beacon is lit. 0: it is not, so the rank is not there. -1: unknown (no descriptor,
 * ...). Never blocks. */
SYMM_API int symm_beacon_seen(const symm_beacon_key *key, int rank);

#endif
