/* all_reduce.c - all_reduce on the host backend, four ways. Every way reduces in rank order, so all
 * give the same bits. Runs on the thread that calls symm_kernel_run (kernels_host.c). No lock. */
#include "base/check.h"
#include "dev.h"
#include "split.inl"
#include "signature.inl"
#include "zerocopy.inl"

/* Bytes that are reduced at once and copied to all destinations while they are in L1. On the stack
 * of the one function that needs it: a thread-local block would be in every thread of the process,
 * and a library that is opened late may not have so much. */
#define BLOCK (16u << 10)

/* Block by block: each is reduced into the own destination (own: that is near[0]) or into a block
 * on the stack that stays in L1, and copied from there. */
static __attribute__((noinline)) void symm_reduce_blocks(const symm_cta *c, char *const *near,
                                                         int nnear, char *const *past, int npast,
                                                         int own, const void *const *srcs,
                                                         uint64_t count) {
    char block[BLOCK] __attribute__((aligned(64)));
    const symm_args *a = c->a;
    const uint64_t step = BLOCK >> a->host.esize_log;
    for (uint64_t i = 0; i < count; i += step) {
        const uint64_t len = count - i < step ? count - i : step, at = i << a->host.esize_log;
        const void *src[SYMM_MAX_RANKS];
        for (int r = 0; r < a->nranks; r++) src[r] = (const char *)srcs[r] + at;
        char *first = own ? near[0] + at : block;
        symm_reduce->reduce[a->type][a->op](first, src, a->nranks, len, c->scalars);
        for (int k = 0; k < nnear; k++)
            symm_move_cached(near[k] + at, first, len << a->host.esize_log);
        for (int k = 0; k < npast; k++)
            symm_reduce->copy_nt(past[k] + at, first, len << a->host.esize_log);
    }
}

/* Reduces `count` elements of srcs (rank order) and stores them to every dsts[r]; dsts[rank] is
 * this rank's own. A private one is NULL: it is filled from the own, by whoever moves it. A
 * destination that is also its rank's source (in place) was read just now and is in the cache: it
 * is written there. The others, where the message is too large to stay in the caches, are written
 * past them: two straight from the reduction, the rest from a block that stays in L1. */
SYMM_DEV void symm_reduce_to(const symm_cta *c, char *const *dsts, const void *const *srcs,
                             uint64_t count) {
    const symm_args *a = c->a;
    char *past[SYMM_MAX_RANKS], *near[SYMM_MAX_RANKS];
    int npast = 0, nnear = 0, absent = 0;
    for (int p = 0; p < a->nranks; p++) absent |= !dsts[p];
    for (int q = 0; q < a->nranks; q++) { /* the own first, then staggered */
        int p = symm_peer(a, q);
        if (!dsts[p]) continue;
        if ((a->flags & SYMM_ARG_NT) && dsts[p] != srcs[p] && !(absent && p == a->rank))
            past[npast++] = dsts[p];
        else
            near[nnear++] = dsts[p];
    }
    if (npast == 2 && nnear == 0) {
        symm_reduce->reduce_nt2[a->type][a->op](past[0], past[1], srcs, a->nranks, count,
                                                c->scalars);
        return;
    }
    symm_reduce_blocks(c, near, nnear, past, npast, !npast && near[0] == dsts[a->rank], srcs,
                       count);
}

void symm_body_ar_local(symm_cta *c) {
    const void *src = c->a->src;
    if (c->cta) return; /* once: in place, a second time would apply a scalar twice */
    symm_reduce_here(c, (char *)c->a->dst, &src, c->a->count);
}

/* One-shot push: every rank sends everything to everyone and reduces everything itself. Packet k of
 * the message is CTA k % nctas's. Reads the user's buffer and writes the user's buffer; only
 * scratch is symmetric. */
void symm_body_ar_push(symm_cta *c) {
    const symm_args *a = c->a;
    const uint32_t per = SYMM_PACKET_LOG - a->host.esize_log;
    const uint64_t packets = symm_chunks(a->count, per);
    const char *src = (const char *)a->src;
    for (uint64_t k = (unsigned)c->cta; k < packets; k += (unsigned)a->nctas) {
        symm_part part = symm_chunk_of(a->count, per, k);
        for (int q = 1; q < a->nranks; q++) {
            char *slot = symm_slot(c, symm_peer(a, q), 0, a->rank);
            symm_packet_put(c, slot + k * SYMM_PACKET_STRIDE, src + part.at * a->esize,
                            part.len * a->esize);
        }
    }
    symm_packets_reduce(c);
}
void symm_packets_reduce(symm_cta *c) {
    const symm_args *a = c->a;
    const uint32_t per = SYMM_PACKET_LOG - a->host.esize_log;
    const uint64_t packets = symm_chunks(a->count, per);
    const char *src = (const char *)a->src;
    if (symm_scalars(c)) return;
    for (uint64_t k = (unsigned)c->cta; k < packets; k += (unsigned)a->nctas) {
        symm_part part = symm_chunk_of(a->count, per, k);
        const void *srcs[SYMM_MAX_RANKS];
        for (int p = 0; p < a->nranks; p++) {
            char *packet = symm_slot(c, a->rank, 0, p) + k * SYMM_PACKET_STRIDE;
            srcs[p] = p == a->rank ? src + part.at * a->esize : symm_packet_data(packet);
            if (p != a->rank && symm_packet_wait(c, packet, p)) return;
        }
        c->heard = 1; /* all peers' packets of this epoch and signature are here */
        symm_reduce_here(c, (char *)a->dst + part.at * a->esize, srcs, part.len);
    }
}

/* Sends `part` of the message at `from` to peer's slot of `phase`; CTA b sends packets b, b +
 * nctas, ... */
SYMM_DEV void symm_part_put(const symm_cta *c, int peer, int phase, const char *from,
                            symm_part part) {
    const uint32_t per = SYMM_PACKET_LOG - c->a->host.esize_log;
    const uint64_t packets = symm_chunks(part.len, per);
    char *slot = symm_slot(c, peer, phase, c->a->rank);
    for (uint64_t k = (unsigned)c->cta; k < packets; k += (unsigned)c->a->nctas) {
        symm_part p = symm_chunk_of(part.len, per, k);
        symm_packet_put(c, slot + k * SYMM_PACKET_STRIDE, from + p.at * c->a->esize,
                        p.len * c->a->esize);
    }
}

/* Reduces this rank's slice from the packets of phase 0 into dst and sends the result on in phase
 * 1. */
SYMM_DEV int symm_slice_reduce(symm_cta *c, symm_part mine) {
    const symm_args *a = c->a;
    const uint32_t per = SYMM_PACKET_LOG - a->host.esize_log;
    const uint64_t packets = symm_chunks(mine.len, per);
    for (uint64_t k = (unsigned)c->cta; k < packets; k += (unsigned)a->nctas) {
        symm_part p = symm_chunk_of(mine.len, per, k);
        const uint64_t at = (mine.at + p.at) * a->esize, bytes = p.len * a->esize;
        const void *srcs[SYMM_MAX_RANKS];
        for (int r = 0; r < a->nranks; r++) {
            char *packet = symm_slot(c, a->rank, 0, r) + k * SYMM_PACKET_STRIDE;
            srcs[r] = r == a->rank ? (const char *)a->src + at : symm_packet_data(packet);
            if (r != a->rank && symm_packet_wait(c, packet, r)) return 1;
        }
        symm_reduce_here(c, (char *)a->dst + at, srcs, p.len);
        for (int q = 1; q < a->nranks; q++) {
            char *slot = symm_slot(c, symm_peer(a, q), 1, a->rank);
            symm_packet_put(c, slot + k * SYMM_PACKET_STRIDE, (char *)a->dst + at, bytes);
        }
    }
    return 0;
}

/* Two-shot push, packets in both phases: 2(n-1)/n of the bytes of one-shot, one hop more. In place
 * is safe: a slice of src is sent in phase 0 before anything is written over it in phase 1. */
void symm_body_ar_twoshot(symm_cta *c) {
    const symm_args *a = c->a;
    const uint32_t per = SYMM_PACKET_LOG - a->host.esize_log;
    for (int q = 1; q < a->nranks; q++) {
        symm_part part = symm_part_of(a->count, a->host.esize_log, a->nranks, symm_peer(a, q));
        symm_part_put(c, symm_peer(a, q), 0, (const char *)a->src + part.at * a->esize, part);
    }
    if (symm_scalars(c)) return;
    if (symm_slice_reduce(c, symm_part_of(a->count, a->host.esize_log, a->nranks, a->rank))) return;
    for (int q = 1; q < a->nranks; q++) {
        int peer = symm_peer(a, q);
        symm_part part = symm_part_of(a->count, a->host.esize_log, a->nranks, peer);
        uint64_t packets = symm_chunks(part.len, per);
        for (uint64_t k = (unsigned)c->cta; k < packets; k += (unsigned)a->nctas) {
            symm_part p = symm_chunk_of(part.len, per, k);
            char *packet = symm_slot(c, a->rank, 1, peer) + k * SYMM_PACKET_STRIDE;
            if (symm_packet_wait(c, packet, peer)) return;
            symm_move_cached((char *)a->dst + (part.at + p.at) * a->esize, symm_packet_data(packet),
                             p.len * a->esize);
        }
    }
}

/* Whether reducers write their slices into private destinations. */
SYMM_DEV int symm_writes(const symm_cta *c) {
    return (c->a->flags & SYMM_ARG_WRITES) != 0;
}
/* Else a private destination is written by its owner alone, who fetches the others' slices: from
 * their destinations (all_reduce), or, since other ranks have none, from two places in their
 * staging. */
SYMM_DEV int symm_fetches(const symm_cta *c, int root, int rank) {
    if ((root >= 0 && root != rank) || symm_writes(c)) return 0;
    return symm_is_private(rank == c->a->rank ? c->a->dst_off : symm_dst_off(c, rank));
}
SYMM_DEV char *symm_left(const symm_cta *c, int rank, uint64_t k) {
    return symm_room(c, rank, rank) + (k & 1) * (symm_room_bytes(c) / 2 & ~63ull);
}
/* Of `count` elements those that rank reduces. Who writes its slice, besides reading n-1 sources,
 * reduces fewer than the root does: n-1 for its n. Its sources lie beside each other in a room. */
SYMM_DEV symm_part symm_share_of(const symm_cta *c, int root, uint64_t count, int rank) {
    const int n = c->a->nranks;
    const uint32_t log = c->a->host.esize_log;
    if (root < 0 || !symm_writes(c)) return symm_part_of(count, log, n, rank);
    const uint64_t lines = (count + (64u >> log) - 1) >> (6 - log);
    const unsigned parts = (unsigned)(n + (n - 1) * (n - 1)),
                   first = (unsigned)(rank * (n - 1) + (rank > root)),
                   last = first + (unsigned)(n - 1 + (rank == root));
    const uint64_t at = lines * first / parts << (6 - log), end = lines * last / parts << (6 - log);
    symm_part part = {at < count ? at : count, 0};
    part.len = (end < count ? end : count) - part.at;
    SYMM_ASSERT(part.len << log <= symm_room_bytes(c));
    return part;
}
SYMM_DEV symm_piece symm_slice_of(const symm_cta *c, int root, uint64_t k, int rank) {
    const symm_args *a = c->a;
    const uint32_t log = a->host.esize_log;
    const symm_part chunk = symm_chunk_of(a->count, a->host.chunk_log - log,
                                          (unsigned)c->cta + k * (unsigned)a->nctas),
                    part = symm_share_of(c, root, chunk.len, rank);
    return (symm_piece){k, chunk.at << log, part.at << log, part.len << log};
}

/* The own slice to the private destinations, from the own one. In place it goes over their owner's
 * source: nobody else loads that slice. */
SYMM_DEV int symm_write_slice(symm_cta *c, char *const *dsts, symm_piece p) {
    for (int q = 1; q < c->a->nranks; q++) {
        const int peer = symm_peer(c->a, q);
        if (!dsts[peer] && symm_put(c, peer, p, dsts[c->a->rank])) return 1;
    }
    return 0;
}
/* Reduces this rank's slice of a chunk from all sources and stores it to every destination, or to
 * the root's alone. */
SYMM_DEV int symm_slice(symm_cta *c, int root, symm_piece p) {
    const symm_args *a = c->a;
    const uint64_t count = p.bytes >> a->host.esize_log;
    char *dsts[SYMM_MAX_RANKS], *to = NULL;
    const void *srcs[SYMM_MAX_RANKS];
    for (int r = 0; r < a->nranks; r++) {
        if (symm_ready_wait(c, r, p.k) || symm_load(c, r, p, &srcs[r])) return 1;
        if (root < 0) dsts[r] = symm_target(c, r, p);
        if (root >= 0 && root == r) to = symm_target(c, r, p);
    }
    if (root < 0) {
        symm_reduce_to(c, dsts, srcs, count);
        return symm_writes(c) && symm_write_slice(c, dsts, p);
    }
    if (!to && symm_writes(c)) {
        symm_reduce_here(c, symm_left(c, a->rank, 0), srcs, count);
        return symm_put(c, root, p, symm_left(c, a->rank, 0));
    }
    /* The place was last filled with chunk k-2, which the root has fetched when it arrives. */
    if (!to && p.k >= 2 && symm_arrive_from(c, root, p.k - 1)) return 1;
    symm_reduce_here(c, to ? to : symm_left(c, a->rank, p.k), srcs, count);
    return 0;
}

/* Fetches the peers' slices of chunk k, once they are there. In place this rank's source of such a
 * slice goes: its reducer has loaded it. */
SYMM_DEV int symm_fetch_slices(symm_cta *c, int root, uint64_t k) {
    for (int q = 1; q < c->a->nranks; q++) {
        const int peer = symm_peer(c->a, q);
        const symm_piece p = symm_slice_of(c, root, k, peer);
        char *dst = (char *)c->a->dst + p.chunk + p.at;
        if (symm_arrive_from(c, peer, k + 1)) return 1;
        if (root >= 0)
            symm_move(c, dst, symm_left(c, peer, k), p.bytes);
        else if (symm_fetch_result(c, peer, p, dst))
            return 1;
    }
    return 0;
}
/* In a call in which buffers may be private. all_reduce: arrive k says that the own slices of
 * chunks 0..k-1 are where they belong; a rank that fetches says `mine` + 1 when it has fetched all.
 * Root: a root that fetches says k when it has fetched chunks 0..k-1. Slices are fetched a chunk
 * behind, when the peers have had the time to reduce them.
 *
 * Which peers fetch is looked up before the last arrive: behind that, a peer may announce the
 * buffers of the next call. */
SYMM_DEV void symm_slices_private(symm_cta *c, int root, uint64_t mine) {
    const symm_args *a = c->a;
    const int fetches = symm_fetches(c, root, a->rank), late = fetches && root >= 0;
    uint8_t more[SYMM_MAX_RANKS];
    for (uint64_t k = 0; k < mine + (unsigned)fetches; k++) {
        if (k < mine && symm_slice(c, root, symm_slice_of(c, root, k, a->rank))) return;
        for (int p = 0; !k && mine && p < a->nranks; p++)
            more[p] = root < 0 && symm_fetches(c, root, p);
        if (k < mine && !late) symm_arrive(c, (uint32_t)(k + 1));
        if (fetches && k && symm_fetch_slices(c, root, k - 1)) return;
        if (late && k) symm_arrive(c, (uint32_t)k);
    }
    c->heard = mine > 0; /* with each ready word */
    if (fetches && mine && root < 0) symm_arrive(c, (uint32_t)(mine + 1));
    for (int q = 1; mine && q < a->nranks; q++) {
        const int peer = symm_peer(a, q);
        if (symm_arrive_from(c, peer, mine + more[peer])) return;
    }
}

/* Zero-copy: for each chunk every rank reduces its slice straight from all sources and stores it
 * straight to all destinations, or to the root's alone (root -1: every rank has one). A rank whose
 * source or destination is staged puts chunks into staging instead (zerocopy.inl). */
static inline __attribute__((always_inline)) void symm_by_slices(symm_cta *c, int root) {
    const symm_args *a = c->a;
    const int takes = root < 0 || root == a->rank;
    const uint32_t per = a->host.chunk_log - a->host.esize_log;
    const uint64_t mine = symm_share(symm_chunks(a->count, per), c->cta, a->nctas);
    const uint64_t now =
        a->src_off != SYMM_STAGED && (!takes || a->dst_off != SYMM_STAGED) ? mine : 0;
    const uint64_t bytes = a->count * a->esize;
    symm_walk(c, bytes < a->host.chunk ? bytes : a->host.chunk);
    if (now == mine) symm_ready(c, (uint32_t)mine);
    if (symm_scalars(c)) return;
    if (a->flags & SYMM_ARG_DIRECT) {
        symm_slices_private(c, root, mine);
        return;
    }
    for (uint64_t k = 0; k < mine; k++) {
        symm_part chunk = symm_chunk_of(a->count, per, (unsigned)c->cta + k * (unsigned)a->nctas);
        const uint64_t at = chunk.at * a->esize, bytes = chunk.len * a->esize;
        symm_part part = symm_part_of(chunk.len, a->host.esize_log, a->nranks, a->rank);
        if (now != mine && symm_stage_in(c, k, (const char *)a->src + at, bytes, part)) return;
        if (symm_slice(c, root, (symm_piece){k, at, part.at * a->esize, part.len * a->esize}))
            return;
        symm_arrive(c, (uint32_t)(k + 1));
        if (takes && a->dst_off == SYMM_STAGED &&
            symm_stage_out(c, k, (char *)a->dst + at, bytes, part))
            return;
    }
    c->heard = mine > 0;       /* with each ready word */
    symm_arrive_wait(c, mine); /* every peer has stored to our dst and is done with our src */
}

void symm_body_ar_zerocopy(symm_cta *c) {
    symm_by_slices(c, -1);
}
/* Large reduces: every rank reduces a slice for the root. */
void symm_body_rd_slices(symm_cta *c) {
    symm_by_slices(c, c->a->host.root);
}
