/* exchange.h - maps one list of segments of every rank into one slot on every rank, or nothing
 * anywhere. Collective. The thread inside the API call; the space's lock is never held while
 * waiting for a peer. */
#ifndef SYMM_EXCHANGE_H_
#define SYMM_EXCHANGE_H_

#include "handle_exchange.h"

#define SYMM_MAX_SEGMENTS 65536

typedef struct {               /* what this rank brings */
    symm_vmm_handle **handles; /* [count] one reference each, the caller's */
    symm_part *parts;          /* [count] one after the other */
    int count, room;           /* room: of both lists, where symm_window_find has made them */
    uint64_t total;            /* sum of bytes */
    uint64_t id;               /* hash of the segments, never 0 if count */
    uint64_t user_bytes;       /* of the window, and where it begins in the first segment */
    uint64_t user_off;
} symm_bring;

typedef struct { /* what every rank brought, after the exchange */
    int32_t code, count;
    uint64_t total, user_bytes, user_off, ptr, slot, propose, dropped; /* dropped: how many slots */
} symm_brought;

/* `mine` is this rank's status so far (its text is the thread's last error). A rank that failed
 * takes part all the same, and all return the worst status. all[nranks]: the records. shared: 1 if
 * an existing slot was referenced and nothing mapped. Before something is mapped, slots that every
 * rank has dropped are freed. On error nothing else has changed on any rank; if a peer died, the
 * communicator is also revoked. */
symmResult_t symm_exchange(symm_comm *c, symmResult_t mine, const symm_bring *bring,
                           const char *stage, symm_brought *all, symm_slot **slot, int *shared);

/* Maps the next segment of a rank, which brings `total` bytes in all, behind what the slot has of
 * that rank. rank_bytes counts what the slot unmaps later, also after an error. [local] */
symmResult_t symm_exchange_map(symm_comm *c, symm_slot *slot, uint64_t total, int rank,
                               symm_vmm_handle *h, symm_part part);

#endif
