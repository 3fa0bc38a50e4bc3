/* uneven.c - the collectives with a count per rank: all_gatherv, reduce_scatterv, alltoallv. Ranks
 * have different counts, so nothing that all must agree on depends on them: one kernel each, and in
 * it each pair of ranks goes its own way.
 *
 * On entry a rank tells every peer, in a line of the peer's control block (symm_pair), how much it
 * gives it, how much it expects from it, and where its part lies: here already, as a packet; in a
 * window; in memory that is read through the kernel; in staging. Both sides compare before a byte
 * is read or written, so ranks that disagree both hear of it in this call, and neither writes
 * beyond what it was told to expect.
 *
 * The lines are written and read once a call, for parts of no bytes too, so every rank hears from
 * every rank, and the proof of signature.inl holds for these bodies: a line of parity e & 1 is
 * written again in e+2. Of the pairs that are no packet the taker says arrive, the giver waits for
 * it before it ends; a staged part is as in zerocopy.inl, between the two ranks alone. So what is
 * said there of ready and arrive holds for each pair: the words of epoch e have been used when
 * the one that wrote them ends.
 *
 * No deadlock: to stage chunk k of a pair waits for nothing but that the taker has had chunk k-2,
 * and to take chunk k for nothing but that the giver has staged it. Every rank goes through all its
 * chunks in that order.
 *
 * Runs on the thread that calls symm_kernel_run (kernels_host.c). No lock. */
#include "dev.h"
#include "split.inl"
#include "signature.inl"
#include "zerocopy.inl"

typedef struct {
    int same;    /* every rank is given the same part: it is staged once */
    int reduces; /* what comes is reduced, in rank order */
} symm_uneven;

/* This rank's part for rank q in its source; that from rank p in its destination. */
SYMM_DEV const symm_extent *symm_part_to(const symm_cta *c, int q) {
    return &c->a->extents[q];
}
SYMM_DEV const symm_extent *symm_part_of_rank(const symm_cta *c, int p) {
    return &c->a->extents[c->a->nranks + p];
}
SYMM_DEV symm_pair *symm_pair_of(const symm_cta *c, int rank, int src) {
    return &symm_ctl_of(c->a, rank)->pair[c->epoch & 1u][src];
}

/* ---- what the ranks tell each other ---------------------------------------------------------- */

/* Where a peer finds its part. */
SYMM_DEV uint64_t symm_where(const symm_cta *c, const symm_extent *part) {
    if (part->bytes <= c->a->host.pairs) return SYMM_PACKED;
    return c->a->src_off == SYMM_STAGED ? SYMM_STAGED : c->a->src_off + part->at;
}
SYMM_DEV void symm_pair_put(const symm_cta *c, int peer) {
    const symm_args *a = c->a;
    const symm_extent *part = symm_part_to(c, peer);
    symm_pair *line = symm_pair_of(c, peer, a->rank);
    const uint64_t where = symm_where(c, part);
    if (where == SYMM_PACKED && part->bytes) {
        char *data = symm_packet_data(symm_slot(c, peer, 0, a->rank));
        symm_move_cached(data, (const char *)a->src + part->at, part->bytes);
        for (uint64_t at = 0; part->bytes <= SYMM_HAND_OVER && at < part->bytes; at += 64)
            symm_give_line(data + at);
    }
    symm_st_relaxed(&line->gives, part->bytes);
    symm_st_relaxed(&line->takes, symm_part_of_rank(c, peer)->bytes);
    symm_st_relaxed(&line->where, where);
    /* Pairs with symm_pair_wait. It carries the signature, as a packet's flag does. */
    symm_st_release(&line->flag, symm_word(c->epoch, a->sig));
    symm_give_line(line);
}

/* Leaves, and says which of the two ranks means what. */
SYMM_DEV int symm_pair_unequal(symm_cta *c, int peer, uint64_t gives, uint64_t takes) {
    const symm_args *a = c->a;
    const int to_us = gives != symm_part_of_rank(c, peer)->bytes;
    const unsigned from = (unsigned)(to_us ? peer : a->rank),
                   to = (unsigned)(to_us ? a->rank : peer);
    symm_unequal *say = &c->ctl->unequal;
    symm_st_relaxed(&say->gives, to_us ? gives : symm_part_to(c, peer)->bytes);
    symm_st_relaxed(&say->takes, to_us ? symm_part_of_rank(c, peer)->bytes : takes);
    /* pairs with unequal_counts (revoke.c) */
    symm_st_release(&say->who, (uint64_t)a->esize << 32 | from << 16 | (to + 1));
    c->out->code = symmMismatch;
    c->out->rank = peer;
    c->out->epoch = c->epoch;
    c->out->stage = SYMM_STAGE_COUNTS;
    return 1;
}

/* Waits for the peer's line and compares. CTAs run in turn: the first one looks for all. */
SYMM_DEV int symm_pair_wait(symm_cta *c, int peer) {
    const symm_pair *line = symm_pair_of(c, c->a->rank, peer);
    const uint64_t want = symm_word(c->epoch, c->a->sig);
    uint64_t turns = 0;
    for (uint32_t i = 1; symm_ld_acquire(&line->flag) != want; i++)
        if (symm_wait_turn(c, &i, peer, SYMM_STAGE_COUNTS, &turns)) return 1;
    const uint64_t gives = symm_ld_relaxed(&line->gives), takes = symm_ld_relaxed(&line->takes);
    if (gives == symm_part_of_rank(c, peer)->bytes && takes == symm_part_to(c, peer)->bytes)
        return 0;
    return symm_pair_unequal(c, peer, gives, takes);
}

/* ---- chunks ---------------------------------------------------------------------------------- */

SYMM_DEV uint32_t symm_uneven_log(const symm_cta *c, symm_uneven s) {
    return symm_log_over(c->a->host.chunk_log, s.same ? 1 : c->a->nranks);
}
/* Chunks of a part of so many bytes that this CTA handles; and the k-th of them. */
SYMM_DEV uint64_t symm_uneven_chunks(const symm_cta *c, symm_uneven s, uint64_t bytes) {
    return symm_share(symm_chunks(bytes, symm_uneven_log(c, s)), c->cta, c->a->nctas);
}
SYMM_DEV symm_part symm_uneven_chunk(const symm_cta *c, symm_uneven s, uint64_t bytes, uint64_t k) {
    return symm_chunk_of(bytes, symm_uneven_log(c, s),
                         (unsigned)c->cta + k * (unsigned)c->a->nctas);
}
/* So many turns hand over every part that this rank stages or takes. */
SYMM_DEV uint64_t symm_uneven_turns(const symm_cta *c, symm_uneven s) {
    uint64_t most = 0;
    for (int p = 0; p < c->a->nranks; p++) {
        const symm_extent *to = symm_part_to(c, p), *from = symm_part_of_rank(c, p);
        if (from->bytes > most) most = from->bytes;
        if (symm_where(c, to) == SYMM_STAGED && to->bytes > most) most = to->bytes;
    }
    return symm_uneven_chunks(c, s, most);
}

/* ---- giving ---------------------------------------------------------------------------------- */

SYMM_DEV char *symm_uneven_place(const symm_cta *c, symm_uneven s, int giver, int taker,
                                 uint64_t k) {
    return symm_stage(c, giver, k, 0) +
           (s.same ? 0 : (uint64_t)(unsigned)taker << symm_uneven_log(c, s));
}
/* Whether there is a chunk k to be staged for peer. */
SYMM_DEV int symm_stages_for(const symm_cta *c, symm_uneven s, int peer, uint64_t k) {
    const symm_extent *part = symm_part_to(c, peer);
    return symm_where(c, part) == SYMM_STAGED && k < symm_uneven_chunks(c, s, part->bytes);
}
/* Chunk k of every part that goes through staging. */
SYMM_DEV int symm_uneven_stage(symm_cta *c, symm_uneven s, uint64_t k) {
    const symm_args *a = c->a;
    int staged = 0;
    for (int q = 1; k >= 2 && q < a->nranks; q++) {
        const int peer = symm_peer(a, q);
        if (symm_stages_for(c, s, peer, k) && symm_arrive_from(c, peer, k - 1)) return 1;
    }
    for (int q = 1; q < a->nranks; q++) {
        const int peer = symm_peer(a, q);
        if (!symm_stages_for(c, s, peer, k)) continue;
        const symm_extent *part = symm_part_to(c, peer);
        const symm_part chunk = symm_uneven_chunk(c, s, part->bytes, k);
        if (!s.same || !staged++)
            symm_move_cached(symm_uneven_place(c, s, a->rank, peer, k),
                             (const char *)a->src + part->at + chunk.at, chunk.len);
        symm_ready_to(c, peer, (uint32_t)(k + 1));
    }
    return 0;
}
/* Nobody reads the source, or what is staged of it, any more. */
SYMM_DEV int symm_uneven_given(symm_cta *c, symm_uneven s) {
    for (int q = 1; q < c->a->nranks; q++) {
        const int peer = symm_peer(c->a, q);
        const symm_extent *part = symm_part_to(c, peer);
        const uint64_t chunks = symm_uneven_chunks(c, s, part->bytes);
        if (symm_where(c, part) != SYMM_PACKED && chunks && symm_arrive_from(c, peer, chunks))
            return 1;
    }
    return 0;
}

/* ---- taking ---------------------------------------------------------------------------------- */

/* Waits until chunk k of the peer's part, which begins at byte `at` of it, can be read: *from, or
 * NULL where only the kernel reaches it. */
SYMM_DEV int symm_uneven_await(symm_cta *c, symm_uneven s, int peer, uint64_t k, uint64_t at,
                               const char **from) {
    const symm_args *a = c->a;
    const uint64_t where = symm_ld_relaxed(&symm_pair_of(c, a->rank, peer)->where);
    if (peer == a->rank)
        *from = (const char *)a->src + symm_part_to(c, peer)->at + at;
    else if (where == SYMM_PACKED)
        *from = symm_packet_data(symm_slot(c, a->rank, 0, peer)) + at;
    else if (where != SYMM_STAGED)
        *from = symm_is_private(where) ? NULL : symm_flat(a, peer, where) + at;
    else if (symm_ready_wait(c, peer, k))
        return 1;
    else
        *from = symm_uneven_place(c, s, peer, a->rank, k);
    return 0;
}
/* Chunk k of `chunks` of a peer's part has been read. */
SYMM_DEV void symm_uneven_taken(const symm_cta *c, int peer, uint64_t k, uint64_t chunks) {
    const uint64_t where = symm_ld_relaxed(&symm_pair_of(c, c->a->rank, peer)->where);
    if (peer != c->a->rank && where != SYMM_PACKED && (where == SYMM_STAGED || k + 1 == chunks))
        symm_arrive_to(c, peer, (uint32_t)(k + 1));
}
/* Copies what symm_uneven_await has found. */
SYMM_DEV int symm_uneven_read(symm_cta *c, int peer, const char *from, char *dst, symm_part chunk) {
    if (from) {
        symm_move(c, dst, from, chunk.len);
        return 0;
    }
    const uint64_t where = symm_ld_relaxed(&symm_pair_of(c, c->a->rank, peer)->where);
    return symm_direct_read(c, peer, dst, (where ^ SYMM_PRIVATE) + chunk.at, chunk.len);
}
/* Chunk k of each rank's part, the own one last. */
SYMM_DEV int symm_uneven_copy(symm_cta *c, symm_uneven s, uint64_t k) {
    const symm_args *a = c->a;
    for (int q = 1; q <= a->nranks; q++) {
        const int peer = symm_peer(a, q);
        if (c->cta == 0 && k == 0 && peer != a->rank && symm_pair_wait(c, peer)) return 1;
        const symm_extent *part = symm_part_of_rank(c, peer);
        const uint64_t chunks = symm_uneven_chunks(c, s, part->bytes);
        const char *from;
        if (k >= chunks) continue;
        const symm_part chunk = symm_uneven_chunk(c, s, part->bytes, k);
        if (symm_uneven_await(c, s, peer, k, chunk.at, &from)) return 1;
        if (symm_uneven_read(c, peer, from, (char *)a->dst + part->at + chunk.at, chunk)) return 1;
        symm_uneven_taken(c, peer, k, chunks);
    }
    return 0;
}
/* Chunk k of the own part, reduced. */
SYMM_DEV int symm_uneven_reduce(symm_cta *c, symm_uneven s, uint64_t k) {
    const symm_args *a = c->a;
    const symm_extent *part = symm_part_of_rank(c, a->rank);
    const uint64_t chunks = symm_uneven_chunks(c, s, part->bytes);
    const void *srcs[SYMM_MAX_RANKS];
    for (int q = 1; c->cta == 0 && k == 0 && q < a->nranks; q++)
        if (symm_pair_wait(c, symm_peer(a, q))) return 1;
    if (k >= chunks) return 0;
    const symm_part chunk = symm_uneven_chunk(c, s, part->bytes, k);
    for (int p = 0; p < a->nranks; p++) {
        const char *from;
        if (symm_uneven_await(c, s, p, k, chunk.at, &from)) return 1;
        srcs[p] = from;
    }
    symm_reduce_here(c, (char *)a->dst + part->at + chunk.at, srcs, chunk.len >> a->host.esize_log);
    for (int p = 0; p < a->nranks; p++) symm_uneven_taken(c, p, k, chunks);
    return 0;
}

/* ---- the collectives ------------------------------------------------------------------------- */

SYMM_DEV void symm_uneven_run(symm_cta *c, symm_uneven s) {
    uint64_t k = 0;
    for (int q = 1; c->cta == 0 && q < c->a->nranks; q++) symm_pair_put(c, symm_peer(c->a, q));
    if (s.reduces && symm_scalars(c)) return;
    const uint64_t turns = symm_uneven_turns(c, s);
    do { /* once at least: the peers' lines are compared in the first turn */
        if (k < turns && symm_uneven_stage(c, s, k)) return;
        if (s.reduces ? symm_uneven_reduce(c, s, k) : symm_uneven_copy(c, s, k)) return;
    } while (++k < turns);
    c->heard = 1; /* with each line */
    symm_uneven_given(c, s);
}

void symm_body_agv(symm_cta *c) {
    symm_uneven_run(c, (symm_uneven){.same = 1});
}
void symm_body_rsv(symm_cta *c) {
    symm_uneven_run(c, (symm_uneven){.reduces = 1});
}
void symm_body_a2av(symm_cta *c) {
    symm_uneven_run(c, (symm_uneven){0});
}
