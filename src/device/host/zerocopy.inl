/* zerocopy.inl - ready and arrival words, and the staging of buffers that peers cannot reach. Runs
 * on the thread that runs the kernel. No lock.
 *
 * ready {e, k}   chunks 0..k-1 of this rank's CTA may be read (src) and written (dst). It carries
 *                the flat offsets of both, or SYMM_STAGED, or the owner's addresses, which are
 *                reached through the kernel (direct.c). A rank with nothing staged sends it once,
 *                for all its chunks. symm_ready pairs with symm_ready_wait and symm_offer_wait.
 * arrive {e, k}  the sender has finished chunks 0..k-1: it reads this rank's source of these chunks
 *                no more, and all that it stores into this rank's destination has arrived.
 *                symm_arrive pairs with symm_arrive_wait.
 *
 * A staged rank has two places for chunks that go in and two for chunks that go out. It fills place
 * k & 1 again only after every peer has arrived at k-1, so that no peer reads chunk k-2 any more.
 * It sends ready k+1 only after it has copied chunk k-2 out, so that no peer writes over it. */

SYMM_DEV void symm_ready_to(const symm_cta *c, int peer, uint32_t chunks) {
    symm_inbox *box = symm_outbox(c, peer);
    symm_st_relaxed(&box->src_off, c->a->src_off);
    symm_st_relaxed(&box->dst_off, c->a->dst_off);
    symm_st_release(&box->ready, symm_word(c->epoch, chunks)); /* pairs with symm_ready_wait */
    symm_give_line(box);
    symm_own_line(&box->arrive);
}
SYMM_DEV void symm_ready(const symm_cta *c, uint32_t chunks) {
    for (int q = 1; q < c->a->nranks; q++) symm_ready_to(c, symm_peer(c->a, q), chunks);
}
/* A peer posts its signature before its first ready word: it is compared here, before anything is
 * done with that word's offsets (CTAs run in turn, so CTA 0 looks for all). */
SYMM_DEV int symm_ready_wait(symm_cta *c, int peer, uint64_t k) {
    if (peer == c->a->rank) return 0;
    if (symm_wait_number(c, &symm_inbox_of(c, peer)->ready, symm_word(c->epoch, (uint32_t)(k + 1)),
                         peer, SYMM_STAGE_READY))
        return 1;
    return c->cta == 0 && k == 0 && symm_signature_differs(c, peer);
}
/* Waits for the ready word of a peer, or for the packet that it sends instead: then it says no
 * ready in this epoch, and may be in its next call. The caller looks which has come. */
SYMM_DEV int symm_offer_wait(symm_cta *c, int peer, uint64_t k, const char *packet) {
    const uint64_t *ready = &symm_inbox_of(c, peer)->ready,
                   want = symm_word(c->epoch, (uint32_t)(k + 1));
    uint64_t turns = 0;
    /* Pairs with symm_ready_to and symm_packet_put. A ready word of the next epoch is further
     * beyond want, and ends nothing: the packet was released before it. */
    for (uint32_t i = 1; symm_ld_acquire(ready) - want > INT32_MAX; i++) {
        if (symm_packet_came(c, packet)) return 0;
        if (symm_wait_turn(c, &i, peer, SYMM_STAGE_READY, &turns)) return 1;
    }
    return 0;
}
SYMM_DEV void symm_arrive_to(const symm_cta *c, int peer, uint32_t chunks) {
    uint64_t *arrive = &symm_outbox(c, peer)->arrive;
    symm_st_release(arrive, symm_word(c->epoch, chunks)); /* pairs with symm_arrive_from */
    symm_give_line(arrive);
}
SYMM_DEV void symm_arrive(const symm_cta *c, uint32_t chunks) {
    for (int q = 1; q < c->a->nranks; q++) symm_arrive_to(c, symm_peer(c->a, q), chunks);
}
SYMM_DEV int symm_arrive_from(symm_cta *c, int peer, uint64_t chunks) {
    return symm_wait_number(c, &symm_inbox_of(c, peer)->arrive,
                            symm_word(c->epoch, (uint32_t)chunks), peer, SYMM_STAGE_ARRIVE);
}
SYMM_DEV int symm_arrive_wait(symm_cta *c, uint64_t chunks) {
    for (int q = 1; chunks && q < c->a->nranks; q++)
        if (symm_arrive_from(c, symm_peer(c->a, q), chunks)) return 1;
    return 0;
}

/* Some bytes of a message: of chunk k, which begins at byte `chunk`, those from `at` on. */
typedef struct {
    uint64_t k, chunk, at, bytes;
} symm_piece;

/* Where a piece of peer's is read from and written to, after symm_ready_wait; where peer's buffer
 * is private, NULL: it is reached through the kernel (direct.c). */
SYMM_DEV uint64_t symm_src_off(const symm_cta *c, int peer) {
    return symm_ld_relaxed(&symm_inbox_of(c, peer)->src_off);
}
SYMM_DEV uint64_t symm_dst_off(const symm_cta *c, int peer) {
    return symm_ld_relaxed(&symm_inbox_of(c, peer)->dst_off);
}
SYMM_DEV char *symm_mapped(const symm_cta *c, int peer, uint64_t off, int out, symm_piece p) {
    if (off == SYMM_STAGED) return symm_stage(c, peer, p.k, out) + p.at;
    return symm_is_private(off) ? NULL : symm_flat(c->a, peer, off) + p.chunk + p.at;
}
SYMM_DEV const char *symm_source(const symm_cta *c, int peer, symm_piece p) {
    if (peer == c->a->rank) /* one address only for each local byte */
        return (const char *)c->a->src + p.chunk + p.at;
    return symm_mapped(c, peer, symm_src_off(c, peer), 0, p);
}
SYMM_DEV char *symm_target(const symm_cta *c, int peer, symm_piece p) {
    if (peer == c->a->rank) return (char *)c->a->dst + p.chunk + p.at;
    return symm_mapped(c, peer, symm_dst_off(c, peer), 1, p);
}

/* A piece of peer's source, copied to dst. */
SYMM_DEV int symm_fetch(symm_cta *c, int peer, symm_piece p, char *dst) {
    const char *from = symm_source(c, peer, p);
    if (from) {
        symm_move(c, dst, from, p.bytes);
        return 0;
    }
    return symm_direct_read(c, peer, dst, (symm_src_off(c, peer) ^ SYMM_PRIVATE) + p.chunk + p.at,
                            p.bytes);
}
/* The same of a result that peer has put into its destination. */
SYMM_DEV int symm_fetch_result(symm_cta *c, int peer, symm_piece p, char *dst) {
    const char *from = symm_target(c, peer, p);
    if (from) {
        symm_move(c, dst, from, p.bytes);
        return 0;
    }
    return symm_direct_read(c, peer, dst, (symm_dst_off(c, peer) ^ SYMM_PRIVATE) + p.chunk + p.at,
                            p.bytes);
}
/* A piece, from src, to where it belongs in peer's destination, which is not staged. */
SYMM_DEV int symm_put(symm_cta *c, int peer, symm_piece p, const char *src) {
    char *to = symm_target(c, peer, p);
    if (to) {
        symm_move(c, to, src, p.bytes);
        return 0;
    }
    return symm_direct_write(c, peer, (symm_dst_off(c, peer) ^ SYMM_PRIVATE) + p.chunk + p.at, src,
                             p.bytes);
}
/* Room for a piece of rank's in the staging of `at`: free in a call in which buffers are private,
 * since nothing is staged then. plan.c sees to it that two slices of a chunk fit. */
SYMM_DEV uint64_t symm_room_bytes(const symm_cta *c) {
    return symm_over_ranks(4 * c->a->host.chunk, c->a->nranks) & ~63ull;
}
SYMM_DEV char *symm_room(const symm_cta *c, int at, int rank) {
    return symm_stage(c, at, 0, 0) + (unsigned)rank * symm_room_bytes(c);
}
/* *src: where a piece of peer's source can be loaded. */
SYMM_DEV int symm_load(symm_cta *c, int peer, symm_piece p, const void **src) {
    if ((*src = symm_source(c, peer, p))) return 0;
    char *room = symm_room(c, c->a->rank, peer);
    *src = room;
    return symm_fetch(c, peer, p, room);
}
/* Chunks of a call that only copies: where nothing is staged, all at once. */
SYMM_DEV uint32_t symm_copy_log(const symm_cta *c) {
    return c->a->flags & SYMM_ARG_DIRECT ? 60 : c->a->host.chunk_log;
}

/* Puts chunk k of a staged source where peers can read it, but for `own`, which none reads; then
 * says ready. */
SYMM_DEV int symm_stage_in(symm_cta *c, uint64_t k, const char *src, uint64_t bytes,
                           symm_part own) {
    const uint64_t lo = own.at * c->a->esize, hi = lo + own.len * c->a->esize;
    if (k >= 2 && symm_arrive_wait(c, k - 1)) return 1;
    if (c->a->src_off == SYMM_STAGED) {
        char *to = symm_stage(c, c->a->rank, k, 0);
        symm_move_cached(to, src, lo);
        symm_move_cached(to + hi, src + hi, bytes - hi);
    }
    symm_ready(c, (uint32_t)(k + 1));
    return 0;
}
/* Copies chunk k, once every peer has stored its slice, to an unmapped destination; `own` is
 * already there. */
SYMM_DEV int symm_stage_out(symm_cta *c, uint64_t k, char *dst, uint64_t bytes, symm_part own) {
    if (symm_arrive_wait(c, k + 1)) return 1;
    const char *from = symm_stage(c, c->a->rank, k, 1);
    uint64_t lo = own.at * c->a->esize, hi = lo + own.len * c->a->esize;
    symm_move_cached(dst, from, lo);
    symm_move_cached(dst + hi, from + hi, bytes - hi);
    return 0;
}
