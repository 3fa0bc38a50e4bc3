/* p2p.inl - what both directions of a channel share: where its records lie, chunks and their
 * places in the ring. Runs on the thread that runs the kernel. No lock. */
#include <string.h>

#include "dev.h"
#include "p2p.h"

typedef struct { /* a kernel at work */
    symm_cta cta;
    const symm_p2p_op *ops;
    const symm_p2p_op *at; /* the call that is looked at */
    int polls;             /* of a head that has not come, one after the other */
    int patient;           /* what a receiver could load is not put into the ring yet */
    int loaded;            /* something was loaded out of a peer's window */
} symm_p2p;

/* Of messages from `source` to `rank`: what the source writes, and what `rank` writes. */
SYMM_DEV symm_p2p_in *symm_p2p_in_of(const symm_args *a, int source, int rank) {
    return &symm_ctl_of(a, rank)->p2p_in[source];
}
SYMM_DEV symm_p2p_out *symm_p2p_out_of(const symm_args *a, int source, int rank) {
    return &symm_ctl_of(a, source)->p2p_out[rank];
}
SYMM_DEV symm_p2p_head *symm_p2p_head_of(symm_p2p_in *in, uint64_t seq) {
    return &in->head[seq % SYMM_P2P_SLOTS];
}
/* Where position `at` of the ring from `source` to `rank` lies. */
SYMM_DEV char *symm_p2p_place(const symm_args *a, int source, int rank, uint64_t at) {
    const uint64_t ring = a->scratch.host.p2p_ring;
    return symm_flat(a, rank,
                     a->scratch.host.p2p_off + (unsigned)source * ring + (at & (ring - 1)));
}

SYMM_DEV int symm_p2p_is_tiny(const symm_p2p_op *op) {
    return op->bytes <= SYMM_P2P_TINY;
}
SYMM_DEV uint64_t symm_p2p_chunk(const symm_args *a, const symm_p2p_op *op) {
    return symm_p2p_chunk_bytes(a, op->bytes);
}
SYMM_DEV uint64_t symm_p2p_chunks(const symm_args *a, const symm_p2p_op *op) {
    const uint64_t chunk = symm_p2p_chunk(a, op);
    return (op->bytes + chunk - 1) / chunk;
}
/* What `bytes` take of the ring: whole lines. */
SYMM_DEV uint64_t symm_p2p_lines(uint64_t bytes) {
    return (bytes + 63) & ~63ull;
}
/* Bytes of chunk k. */
SYMM_DEV uint64_t symm_p2p_chunk_len(const symm_args *a, const symm_p2p_op *op, uint64_t k) {
    const uint64_t chunk = symm_p2p_chunk(a, op), left = op->bytes - k * chunk;
    return left < chunk ? left : chunk;
}

/* At most SYMM_P2P_TINY bytes, without a call. */
SYMM_DEV void symm_p2p_copy_tiny(char *dst, const char *src, uint64_t bytes) {
    if (bytes >= 16) {
        memcpy(dst, src, 16);
        if (bytes > 32) memcpy(dst + 16, src + 16, 16);
        memcpy(dst + bytes - 16, src + bytes - 16, 16);
    } else if (bytes >= 8) {
        memcpy(dst, src, 8);
        memcpy(dst + bytes - 8, src + bytes - 8, 8);
    } else if (bytes >= 4) {
        memcpy(dst, src, 4);
        memcpy(dst + bytes - 4, src + bytes - 4, 4);
    } else {
        for (uint64_t i = 0; i < bytes; i++) dst[i] = src[i];
    }
}

/* Claims up to n chunks that nobody has claimed, from the front (the sender) or from the back (the
 * receiver). How many. Acquire and release: what a rank read of the other's record before it
 * claimed belongs to this message, for without a claim the message may have ended. */
SYMM_DEV uint64_t symm_p2p_claim(symm_p2p_big *big, uint64_t chunks, int back, uint64_t n) {
    uint64_t word = symm_ld_relaxed(&big->claim), more;
    do {
        const uint64_t left = chunks - (uint32_t)word - (word >> 32);
        more = left < n ? left : n;
        if (!more) return 0;
    } while (!__atomic_compare_exchange_n(&big->claim, &word, word + (more << (back ? 32 : 0)), 0,
                                          __ATOMIC_ACQ_REL, __ATOMIC_RELAXED));
    return more;
}

SYMM_DEV void symm_p2p_move(const symm_p2p_op *op, void *dst, const void *src, uint64_t bytes) {
    if (op->nt)
        symm_reduce->copy_nt(dst, src, bytes);
    else
        symm_reduce->copy(dst, src, bytes);
}

/* One step of the channel's call, if it can be made without waiting. 0: nothing has moved. The call
 * has ended if ch->op has changed, or the list has to be left if c->out says so. */
int symm_p2p_send(symm_p2p *p, symm_p2p_channel *ch);
int symm_p2p_receive(symm_p2p *p, symm_p2p_channel *ch);

/* The channel's call has ended. */
SYMM_DEV int symm_p2p_end(const symm_p2p *p, symm_p2p_channel *ch) {
    ch->op = p->ops[ch->op].next;
    ch->seq = 0;
    return 1;
}
