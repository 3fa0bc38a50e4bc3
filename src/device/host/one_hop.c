/* one_hop.c - the collectives in which data crosses once: all_gather, reduce_scatter, all_to_all,
 * broadcast, gather, scatter. A shape says who hands what to whom; three ways serve every
 * shape:
 *
 *   push   packets into the receivers' scratch. Small messages; with a root: ahead.c.
 *   pull   receivers load from the givers' windows, through the kernel, or from their staging; or
 *          a giver in no window sends packets. Large messages.
 *   share  with a root, where nothing is staged: givers store a part of what the others load into
 *          destinations that are windows, or that they may write through the kernel.
 *
 * A buffer holds one part, or one for each rank. The part of giver p for receiver q is part q of
 * p's source if that has one for each, and becomes part p of q's destination if that has one for
 * each. A rank that does not give, or does not take, still exchanges signatures with all
 * (signature.inl): so the proof of double buffering there holds for these bodies too.
 *
 * Staging inside one call: a giver fills place k & 1 again only after all that take from it have
 * arrived at chunk k-1, so nobody reads chunk k-2 any more. Who takes nothing is not waited for.
 *
 * Source and destination are one buffer in a swap (all_to_all in place). No peer reads it there: a
 * rank puts piece k of every part into packets or staging before it takes a piece k of anybody, and
 * what comes lies over what was sent.
 *
 * Runs on the thread that calls symm_kernel_run (kernels_host.c). No lock. */
#include "dev.h"
#include "split.inl"
#include "signature.inl"
#include "zerocopy.inl"

typedef struct {
    int src_each, dst_each;     /* that buffer has a part for each rank */
    int root_gives, root_takes; /* nobody but the root does */
    int reduces;                /* what comes is reduced, in rank order */
} symm_shape;

SYMM_DEV int symm_gives(const symm_cta *c, symm_shape s, int rank) {
    return !s.root_gives || rank == c->a->host.root;
}
SYMM_DEV int symm_takes(const symm_cta *c, symm_shape s, int rank) {
    return !s.root_takes || rank == c->a->host.root;
}
/* Bytes of a part; where the part for rank q begins in a source, and that of p in a destination. */
SYMM_DEV uint64_t symm_part_bytes(const symm_cta *c) {
    return c->a->count << c->a->host.esize_log;
}
SYMM_DEV uint64_t symm_part_for(const symm_cta *c, symm_shape s, int q) {
    return s.src_each ? (unsigned)q * symm_part_bytes(c) : 0;
}
SYMM_DEV uint64_t symm_part_from(const symm_cta *c, symm_shape s, int p) {
    return s.dst_each ? (unsigned)p * symm_part_bytes(c) : 0;
}

/* The own part, where it does not take the way of all others: bytes [at, at + bytes) of it. */
SYMM_DEV void symm_own_part(const symm_cta *c, symm_shape s, uint64_t at, uint64_t bytes) {
    const symm_args *a = c->a;
    if (s.reduces || !symm_gives(c, s, a->rank) || !symm_takes(c, s, a->rank)) return;
    char *to = (char *)a->dst + symm_part_from(c, s, a->rank) + at;
    const char *from = (const char *)a->src + symm_part_for(c, s, a->rank) + at;
    if (to != from) symm_move(c, to, from, bytes);
}

/* ---- push ------------------------------------------------------------------------------------ */

SYMM_DEV void symm_push_out(const symm_cta *c, symm_shape s, uint64_t packets) {
    const symm_args *a = c->a;
    for (uint64_t k = (unsigned)c->cta; k < packets; k += (unsigned)a->nctas) {
        symm_part part = symm_chunk_of(symm_part_bytes(c), SYMM_PACKET_LOG, k);
        for (int q = 1; q < a->nranks; q++) {
            int peer = symm_peer(a, q);
            symm_packet_put(c, symm_slot(c, peer, 0, a->rank) + k * SYMM_PACKET_STRIDE,
                            (const char *)a->src + symm_part_for(c, s, peer) + part.at, part.len);
        }
    }
}
/* One packet of each rank, reduced. */
SYMM_DEV int symm_push_reduce(symm_cta *c, symm_shape s, uint64_t k, symm_part part) {
    const symm_args *a = c->a;
    const void *srcs[SYMM_MAX_RANKS];
    for (int p = 0; p < a->nranks; p++) {
        char *packet = symm_slot(c, a->rank, 0, p) + k * SYMM_PACKET_STRIDE;
        srcs[p] = p == a->rank ? (const char *)a->src + symm_part_for(c, s, p) + part.at
                               : symm_packet_data(packet);
        if (p != a->rank && symm_packet_wait(c, packet, p)) return 1;
    }
    symm_reduce_here(c, (char *)a->dst + part.at, srcs, part.len >> a->host.esize_log);
    return 0;
}
/* One packet of each rank, copied out. */
SYMM_DEV int symm_push_copy(symm_cta *c, symm_shape s, uint64_t k, symm_part part) {
    const symm_args *a = c->a;
    for (int q = 1; q < a->nranks; q++) {
        int peer = symm_peer(a, q);
        char *packet = symm_slot(c, a->rank, 0, peer) + k * SYMM_PACKET_STRIDE;
        if (symm_packet_wait(c, packet, peer)) return 1;
        symm_move_cached((char *)a->dst + symm_part_from(c, s, peer) + part.at,
                         symm_packet_data(packet), part.len);
    }
    symm_own_part(c, s, part.at, part.len);
    return 0;
}
SYMM_DEV void symm_push(symm_cta *c, symm_shape s) {
    const symm_args *a = c->a;
    const uint64_t packets = symm_chunks(symm_part_bytes(c), SYMM_PACKET_LOG);
    symm_push_out(c, s, packets);
    if (s.reduces && symm_scalars(c)) return;
    for (uint64_t k = (unsigned)c->cta; k < packets; k += (unsigned)a->nctas) {
        symm_part part = symm_chunk_of(symm_part_bytes(c), SYMM_PACKET_LOG, k);
        if (s.reduces ? symm_push_reduce(c, s, k, part) : symm_push_copy(c, s, k, part)) return;
    }
    /* A packet of this epoch and signature has come from each. */
    c->heard = packets > (unsigned)c->cta;
}

/* ---- pull ------------------------------------------------------------------------------------ */

/* Chunks of a part are as small as its pieces in staging, one for each rank. */
SYMM_DEV uint32_t symm_piece_log(const symm_cta *c, symm_shape s) {
    const uint32_t log = s.reduces ? c->a->host.chunk_log : symm_copy_log(c);
    return symm_log_over(log, s.src_each ? c->a->nranks : 1);
}
/* From one piece of a chunk in staging to the next. */
SYMM_DEV uint64_t symm_piece_stride(const symm_cta *c, symm_shape s) {
    const uint64_t most = 1ull << symm_piece_log(c, s), part = (symm_part_bytes(c) + 63) & ~63ull;
    return part < most ? part : most;
}
SYMM_DEV void symm_ready_takers(const symm_cta *c, symm_shape s, uint32_t chunks) {
    for (int q = 1; q < c->a->nranks; q++) {
        int peer = symm_peer(c->a, q);
        if (symm_takes(c, s, peer)) symm_ready_to(c, peer, chunks);
    }
}
SYMM_DEV int symm_arrive_takers(symm_cta *c, symm_shape s, uint64_t chunks) {
    for (int q = 1; chunks && q < c->a->nranks; q++) {
        int peer = symm_peer(c->a, q);
        if (symm_takes(c, s, peer) && symm_arrive_from(c, peer, chunks)) return 1;
    }
    return 0;
}
/* Parts of so many packets at most; larger ones walk through staging (staging.c) in less time. */
#define SYMM_PACKETS_PULLED 4u

/* Whether a part may come as packets, into the places that push has. A giver whose source peers do
 * not map sends it so where every byte goes to one rank: it waits for nobody then, while with
 * staging it waits until all have read. Its takers look for either (symm_offer_wait). All ranks
 * find the same, but for whether the source is mapped. */
SYMM_DEV int symm_may_pack(const symm_cta *c, symm_shape s) {
    const symm_args *a = c->a;
    const uint64_t packets = symm_chunks(symm_part_bytes(c), SYMM_PACKET_LOG);
    if (a->flags & (SYMM_ARG_DIRECT | SYMM_ARG_EITHER)) return 0; /* the latter are large */
    if (!s.src_each && !s.root_takes && a->nranks > 2) return 0;
    if (packets > SYMM_PACKETS_PULLED) return 0;
    if (symm_piece_log(c, s) < SYMM_PACKET_LOG) return 0;
    return packets * SYMM_PACKET_STRIDE <= a->scratch.host.packet_slot;
}
/* First packet of a chunk in `to`'s scratch, from rank `from`. */
SYMM_DEV char *symm_packets_of(const symm_cta *c, int to, int from, symm_part chunk) {
    return symm_slot(c, to, 0, from) + (chunk.at >> SYMM_PACKET_LOG) * SYMM_PACKET_STRIDE;
}
SYMM_DEV int symm_has_packed(const symm_cta *c, symm_shape s, int peer, symm_part chunk) {
    return symm_may_pack(c, s) && symm_packet_came(c, symm_packets_of(c, c->a->rank, peer, chunk));
}
/* Sends a chunk of every part. */
SYMM_DEV void symm_pack_parts(const symm_cta *c, symm_shape s, symm_part chunk) {
    for (int q = 1; q < c->a->nranks; q++) {
        const int peer = symm_peer(c->a, q);
        if (!symm_takes(c, s, peer)) continue;
        char *packet = symm_packets_of(c, peer, c->a->rank, chunk);
        const char *from = (const char *)c->a->src + symm_part_for(c, s, peer) + chunk.at;
        for (uint64_t k = 0; k < symm_chunks(chunk.len, SYMM_PACKET_LOG); k++) {
            const symm_part p = symm_chunk_of(chunk.len, SYMM_PACKET_LOG, k);
            symm_packet_put(c, packet + k * SYMM_PACKET_STRIDE, from + p.at, p.len);
        }
    }
}
/* Takes a chunk whose first packet has come. */
SYMM_DEV int symm_unpack(symm_cta *c, int peer, const symm_part chunk, char *dst) {
    char *packet = symm_packets_of(c, c->a->rank, peer, chunk);
    for (uint64_t k = 0; k < symm_chunks(chunk.len, SYMM_PACKET_LOG); k++) {
        const symm_part p = symm_chunk_of(chunk.len, SYMM_PACKET_LOG, k);
        if (symm_packet_wait(c, packet + k * SYMM_PACKET_STRIDE, peer)) return 1;
        symm_move_cached(dst + p.at, symm_packet_data(packet + k * SYMM_PACKET_STRIDE), p.len);
    }
    return 0;
}
/* Puts chunk k of every part, for those that take it, where they can read it; then says ready. */
SYMM_DEV int symm_stage_parts(symm_cta *c, symm_shape s, uint64_t k, symm_part chunk) {
    const symm_args *a = c->a;
    if (k >= 2 && symm_arrive_takers(c, s, k - 1)) return 1;
    char *place = symm_stage(c, a->rank, k, 0);
    for (int q = s.src_each ? 1 : 0; q < (s.src_each ? a->nranks : 1); q++) {
        int peer = s.src_each ? symm_peer(a, q) : 0;
        symm_move_cached(place + (unsigned)peer * symm_piece_stride(c, s),
                         (const char *)a->src + symm_part_for(c, s, peer) + chunk.at, chunk.len);
    }
    symm_ready_takers(c, s, (uint32_t)(k + 1));
    return 0;
}
/* Chunk k of peer's part for this rank; in peer's staging all parts of chunk k lie together. */
SYMM_DEV symm_piece symm_part_piece(const symm_cta *c, symm_shape s, int peer, uint64_t k,
                                    symm_part chunk) {
    const int rank = c->a->rank;
    symm_piece p = {.k = k, .chunk = symm_part_for(c, s, rank) + chunk.at, .bytes = chunk.len};
    if (peer != rank && s.src_each && symm_src_off(c, peer) == SYMM_STAGED)
        p.at = (unsigned)rank * symm_piece_stride(c, s);
    return p;
}
/* *src: where bytes `at` of chunk k of peer's part can be loaded: in the packet that has just them,
 * or where the part lies. */
SYMM_DEV int symm_pull_load(symm_cta *c, symm_shape s, int peer, uint64_t k, symm_part chunk,
                            symm_part at, const void **src) {
    if (peer != c->a->rank && symm_may_pack(c, s)) {
        const symm_part bytes = {chunk.at + at.at, at.len};
        char *packet = symm_packets_of(c, c->a->rank, peer, bytes);
        *src = symm_packet_data(packet);
        if (symm_offer_wait(c, peer, k, packet)) return 1;
        if (symm_packet_came(c, packet)) return 0;
    }
    if (symm_ready_wait(c, peer, k)) return 1;
    symm_piece p = symm_part_piece(c, s, peer, k, chunk);
    p.at += at.at;
    p.bytes = at.len;
    return symm_load(c, peer, p, src);
}
SYMM_DEV int symm_pull_reduce(symm_cta *c, symm_shape s, uint64_t k, symm_part chunk) {
    const uint32_t log = symm_may_pack(c, s) ? SYMM_PACKET_LOG : 60;
    for (uint64_t i = 0; i < symm_chunks(chunk.len, log); i++) {
        const symm_part at = symm_chunk_of(chunk.len, log, i);
        const void *srcs[SYMM_MAX_RANKS];
        for (int p = 0; p < c->a->nranks; p++)
            if (symm_pull_load(c, s, p, k, chunk, at, &srcs[p])) return 1;
        symm_reduce_here(c, (char *)c->a->dst + chunk.at + at.at, srcs,
                         at.len >> c->a->host.esize_log);
    }
    for (int q = 1; q < c->a->nranks; q++) { /* no shape that reduces here has a root */
        const int peer = symm_peer(c->a, q);
        if (!symm_has_packed(c, s, peer, chunk)) symm_arrive_to(c, peer, (uint32_t)(k + 1));
    }
    return 0;
}
/* Chunk k of peer's part, out of packets, or from where it lies, which peer keeps until all have
 * arrived. */
SYMM_DEV int symm_pull_from(symm_cta *c, symm_shape s, int peer, uint64_t k, symm_part chunk) {
    char *dst = (char *)c->a->dst + symm_part_from(c, s, peer) + chunk.at;
    if (symm_may_pack(c, s) &&
        symm_offer_wait(c, peer, k, symm_packets_of(c, c->a->rank, peer, chunk)))
        return 1;
    if (symm_has_packed(c, s, peer, chunk)) return symm_unpack(c, peer, chunk, dst);
    if (symm_ready_wait(c, peer, k)) return 1;
    if (symm_fetch(c, peer, symm_part_piece(c, s, peer, k, chunk), dst)) return 1;
    symm_arrive_to(c, peer, (uint32_t)(k + 1));
    return 0;
}
SYMM_DEV int symm_pull_copy(symm_cta *c, symm_shape s, uint64_t k, symm_part chunk) {
    for (int q = 1; q < c->a->nranks; q++) {
        const int peer = symm_peer(c->a, q);
        if (symm_gives(c, s, peer) && symm_pull_from(c, s, peer, k, chunk)) return 1;
    }
    return 0;
}
/* ---- share ----------------------------------------------------------------------------------- */

/* Bytes [at, at + bytes) of a part, as they lie in the source of a giver, `at` behind where the
 * part for `to` begins; or in a destination. */
SYMM_DEV symm_piece symm_span(uint64_t part, symm_part span) {
    return (symm_piece){.chunk = part + span.at, .bytes = span.len};
}
/* What of each part this CTA moves. */
SYMM_DEV symm_part symm_share_all(const symm_cta *c) {
    return symm_part_of(symm_part_bytes(c), 0, c->a->nctas, c->cta);
}
/* Whether the root's own part lies in place. All ranks know it, from the root's ready word. */
SYMM_DEV int symm_root_in_place(const symm_cta *c, symm_shape s) {
    const int root = c->a->host.root, mine = root == c->a->rank;
    const uint64_t src = mine ? c->a->src_off : symm_src_off(c, root);
    const uint64_t dst = mine ? c->a->dst_off : symm_dst_off(c, root);
    return src + symm_part_for(c, s, root) == dst + symm_part_from(c, s, root);
}
/* How many bytes at the end of that the giver stores. All ranks move as much: of each part that
 * crosses the root moves a small share, for it has n-1 such parts, and copies its own besides if
 * that is not in place. A copy takes half as long as the kernel, and as long as what crosses
 * between windows. Into a private destination only where ranks may (dst_off is the taker's). */
SYMM_DEV uint64_t symm_share_stored(const symm_cta *c, symm_shape s, uint64_t dst_off) {
    const uint64_t part = symm_share_all(c).len;
    const int private = symm_is_private(dst_off);
    if (private && !(c->a->flags & SYMM_ARG_WRITES)) return 0;
    const uint64_t own = symm_root_in_place(c, s) ? 0 : private ? part / 2 : part;
    const uint64_t roots = symm_over_ranks(part - own, c->a->nranks);
    return (s.root_gives ? roots : part - roots) & ~63ull;
}
/* What crosses between this rank and peer, one of which is the root. */
SYMM_DEV int symm_share_with(symm_cta *c, symm_shape s, int peer) {
    const symm_args *a = c->a;
    const int rank = a->rank;
    symm_part all = symm_share_all(c);
    if (symm_ready_wait(c, peer, 0)) return 1;
    if (symm_takes(c, s, rank) && symm_gives(c, s, peer)) {
        all.len -= symm_share_stored(c, s, a->dst_off);
        return symm_fetch(c, peer, symm_span(symm_part_for(c, s, rank), all),
                          (char *)a->dst + symm_part_from(c, s, peer) + all.at);
    }
    const uint64_t stored = symm_share_stored(c, s, symm_dst_off(c, peer));
    all = (symm_part){all.at + all.len - stored, stored};
    return stored ? symm_put(c, peer, symm_span(symm_part_from(c, s, rank), all),
                             (const char *)a->src + symm_part_for(c, s, peer) + all.at)
                  : 0;
}
/* Ready and arrive go both ways between the root and each other rank, with one chunk of each CTA:
 * arrive says too that what the giver stores is there. */
SYMM_DEV void symm_pull_shared(symm_cta *c, symm_shape s) {
    const symm_args *a = c->a;
    const int root = a->host.root, is_root = root == a->rank, last = is_root ? a->nranks : 2;
    const symm_part all = symm_share_all(c);
    for (int q = 1; q < last; q++) symm_ready_to(c, is_root ? symm_peer(a, q) : root, 1);
    for (int q = 1; q < last; q++) {
        const int peer = is_root ? symm_peer(a, q) : root;
        if (symm_share_with(c, s, peer)) return;
        symm_arrive_to(c, peer, 1);
    }
    symm_own_part(c, s, all.at, all.len);
    c->heard = is_root; /* with each ready word */
    for (int q = 1; q < last; q++)
        if (symm_arrive_from(c, is_root ? symm_peer(a, q) : root, 1)) return;
}

/* ---- pull or share ---- */

SYMM_DEV void symm_pull(symm_cta *c, symm_shape s) {
    const symm_args *a = c->a;
    if (c->a->flags & SYMM_ARG_DIRECT && s.root_gives + s.root_takes && !s.reduces) {
        symm_pull_shared(c, s);
        return;
    }
    const uint64_t bytes = symm_part_bytes(c), chunks = symm_chunks(bytes, symm_piece_log(c, s)),
                   mine = symm_share(chunks, c->cta, a->nctas);
    const int gives = symm_gives(c, s, a->rank), takes = symm_takes(c, s, a->rank);
    const int staged = gives && a->src_off == SYMM_STAGED, packs = staged && symm_may_pack(c, s);
    symm_walk(c, symm_piece_stride(c, s) * (s.src_each ? (unsigned)a->nranks : 1u));
    if (gives && !staged) symm_ready_takers(c, s, (uint32_t)mine);
    if (takes && s.reduces && symm_scalars(c)) return;
    for (uint64_t k = 0; k < mine; k++) {
        symm_part chunk =
            symm_chunk_of(bytes, symm_piece_log(c, s), (unsigned)c->cta + k * (unsigned)a->nctas);
        if (packs) symm_pack_parts(c, s, chunk);
        if (staged && !packs && symm_stage_parts(c, s, k, chunk)) return;
        if (takes &&
            (s.reduces ? symm_pull_reduce(c, s, k, chunk) : symm_pull_copy(c, s, k, chunk)))
            return;
        symm_own_part(c, s, chunk.at, chunk.len); /* while the peers still read */
    }
    c->heard = mine > 0 && takes && !s.root_gives;       /* with each ready word or packet */
    if (gives && !packs) symm_arrive_takers(c, s, mine); /* nobody reads our source any more */
}

/* ---- the collectives ------------------------------------------------------------------------- */

#define SYMM_SHAPE_AG  ((symm_shape){.dst_each = 1})
#define SYMM_SHAPE_RS  ((symm_shape){.src_each = 1, .reduces = 1})
#define SYMM_SHAPE_A2A ((symm_shape){.src_each = 1, .dst_each = 1})
#define SYMM_SHAPE_BC  ((symm_shape){.root_gives = 1})
#define SYMM_SHAPE_GA  ((symm_shape){.dst_each = 1, .root_takes = 1})
#define SYMM_SHAPE_SC  ((symm_shape){.src_each = 1, .root_gives = 1})

#define SYMM_PUSH(name, shape)                  \
    void symm_body_##name##_push(symm_cta *c) { \
        symm_push(c, SYMM_SHAPE_##shape);       \
    }
#define SYMM_PULL(name, shape)                  \
    void symm_body_##name##_pull(symm_cta *c) { \
        symm_pull(c, SYMM_SHAPE_##shape);       \
    }
SYMM_PUSH(ag, AG)
SYMM_PULL(ag, AG)
SYMM_PUSH(rs, RS)
SYMM_PULL(rs, RS)
SYMM_PUSH(a2a, A2A)
SYMM_PULL(a2a, A2A)
SYMM_PULL(bc, BC)
SYMM_PULL(ga, GA)
SYMM_PULL(sc, SC)
void symm_body_ag_local(symm_cta *c) {
    if (c->cta == 0) symm_move(c, c->a->dst, c->a->src, symm_part_bytes(c));
}
#undef SYMM_PUSH
#undef SYMM_PULL
