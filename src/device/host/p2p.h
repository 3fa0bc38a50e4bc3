/* p2p.h - point-to-point on the host backend: what a rank sends and receives in one kernel.
 *
 * A kernel is a list of calls. The calls of one direction of one pair of ranks are a channel, in
 * call order; channels go on beside each other, and none waits for another. So a list ends whatever
 * the order in which the ranks wrote theirs down. The protocol and its proof: docs/kernels.md,
 * "Point-to-point". Runs on the thread that runs the kernel. No lock, no allocation. */
#ifndef SYMM_P2P_H_
#define SYMM_P2P_H_

#include "device/common/records.h"
#include "device/common/p2p_ring.h"

/* Rings are walked through as long as all of a communicator's together are no larger than WALK, but
 * LAP bytes at least: then they stay in the caches. */
#define SYMM_P2P_WALK (2u << 20)
#define SYMM_P2P_LAP  (64u << 10)
/* Messages in chunks: those of up to SHORT in smaller ones, so that both ranks copy at once. */
#define SYMM_P2P_SHORT       (32u << 10)
#define SYMM_P2P_SHORT_CHUNK (8u << 10)
#define SYMM_P2P_CHUNK       (32u << 10)
/* From here on a message of a buffer in no window may be read through the kernel, as many chunks at
 * once. */
#define SYMM_P2P_DIRECT  (16u << 10)
#define SYMM_P2P_AT_ONCE 16u

typedef struct { /* one call */
    char *buff;
    uint64_t off; /* flat offset of buff, SYMM_STAGED, or of a send SYMM_PRIVATE */
    uint64_t count, bytes;
    uint32_t type;
    int16_t peer;
    uint8_t sends; /* 1 send, 0 receive */
    uint8_t nt;    /* stores past the caches pay at this size */
    int32_t next;  /* the next call of its channel; -1 none */
} symm_p2p_op;

typedef struct {         /* one direction between this rank and a peer */
    int32_t first;       /* its first call */
    int32_t op;          /* the one that is under way; -1: all have ended */
    uint64_t seq;        /* number of its message; 0: not begun */
    uint64_t big;        /* which record a big message has */
    uint64_t chunks;     /* of a big message; 0: another one, or not begun */
    uint64_t done;       /* sender: chunks put; receiver: chunks taken from the ring */
    uint64_t lo, hi;     /* receiver: chunks that it has claimed and not loaded yet */
    uint64_t ringed, at; /* sender: chunks in the ring, where the first one is */
    uint64_t off;        /* the other side's buffer, once `met` */
    int met;             /* sender: the receiver is here; receiver: it has said that it is */
} symm_p2p_channel;

/* Whether a message is moved in chunks, and so uses windows. */
static inline int symm_p2p_is_big(const symm_args *a, uint64_t bytes) {
    return bytes > SYMM_P2P_ONE_PIECE(a->scratch.host.p2p_ring);
}

/* Bytes of a chunk of such a message. Both ranks compute the same from the ring, which is agreed,
 * and from the size. */
static inline uint64_t symm_p2p_chunk_bytes(const symm_args *a, uint64_t bytes) {
    const uint64_t quarter = a->scratch.host.p2p_ring / 4,
                   chunk = bytes <= SYMM_P2P_SHORT ? SYMM_P2P_SHORT_CHUNK : SYMM_P2P_CHUNK;
    return quarter < chunk ? quarter : chunk;
}

typedef struct {
    symm_outcome left;     /* code 0: the list has ended */
    const symm_p2p_op *op; /* else the call in which it ended, or NULL */
} symm_p2p_outcome;

/* Runs the list. `channels` have their `first`; the rest is set here, so a list may be run again.
 * After an error the peers have been told, and the communicator must not be used again. */
void symm_p2p_run(const symm_args *a, const symm_p2p_op *ops, symm_p2p_channel *channels, int n,
                  symm_p2p_outcome *out);

#endif
