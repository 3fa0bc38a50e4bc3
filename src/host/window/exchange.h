/* exchange.h - maps one segment list of every rank into one slot on every rank, or nothing
 * anywhere. Collective; runs on the thread inside the API call; takes the space's lock only for
 * moments. */
#ifndef SYMM_EXCHANGE_H_
#define SYMM_EXCHANGE_H_

#include "handle_exchange.h"

#define SYMM_MAX_SEGMENTS 1024

typedef struct {                                 /* what this rank brings */
    symm_vmm_handle *handles[SYMM_MAX_SEGMENTS]; /* one reference each, the caller's */
    symm_part parts[SYMM_MAX_SEGMENTS];          /* one behind the other */
    int count;
    uint64_t total;      /* sum of bytes */
    uint64_t id;         /* hash of the segments, never 0 if count */
    uint64_t user_bytes; /* of the window, and where it begins in the first segment */
    uint64_t user_off;
} symm_bring;

typedef struct { /* what every rank brought, after the exchange */
    int32_t code, count;
    uint64_t total, user_bytes, user_off, ptr, slot, propose, dropped; /* dropped: how many slots */
} symm_brought;

/* `mine` is this rank's status so far (its text the thread's last error): a rank that failed takes
 * part all the same, and all return the worst. all[nranks]: the records. shared: 1 if an existing
 * slot was referenced and nothing mapped. Where something is mapped, slots that every rank has
 * dropped are freed before. On error nothing else has changed on any rank, unless a peer died:
 * then the communicator is revoked as well. */
symmResult_t symm_exchange(symm_comm *c, symmResult_t mine, const symm_bring *bring,
                           const char *stage, symm_brought *all, symm_slot **slot, int *shared);

/* Maps the next segment of a rank, of `total` bytes in all, behind what the slot has of that rank.
 * Also after an error the slot unmaps what rank_bytes counts. [local] */
symmResult_t symm_exchange_map(symm_comm *c, symm_slot *slot, uint64_t total, int rank,
                               symm_vmm_handle *h, symm_part part);

#endif
