/* all_gather.c - all_gather on the host backend, three ways. It moves bytes: of the type only the
 * size matters. Runs on the thread that calls symm_kernel_run (kernels_host.c). No lock. */
#include "dev.h"
#include "split.inl"
#include "signature.inl"
#include "zerocopy.inl"

SYMM_DEV char *symm_gather_place(const symm_cta *c, int rank) {
    return (char *)c->a->dst + (uint64_t)rank * c->a->count * c->a->esize;
}

void symm_body_ag_local(symm_cta *c) {
    if (c->cta) return;
    symm_move(c, c->a->dst, c->a->src, c->a->count * c->a->esize);
}

/* Push: packets to every peer, what came from them, then the own part. */
void symm_body_ag_push(symm_cta *c) {
    const symm_args *a = c->a;
    const uint64_t bytes = a->count * a->esize, packets = symm_chunks(bytes, SYMM_PACKET_LOG);
    for (uint64_t k = (unsigned)c->cta; k < packets; k += (unsigned)a->nctas) {
        symm_part part = symm_chunk_of(bytes, SYMM_PACKET_LOG, k);
        for (int q = 1; q < a->nranks; q++) {
            char *slot = symm_slot(c, symm_peer(a, q), 0, a->rank);
            symm_packet_put(c, slot + k * SYMM_PACKET_STRIDE, (const char *)a->src + part.at,
                            part.len);
        }
    }
    for (int q = 1; q < a->nranks; q++) {
        int peer = symm_peer(a, q);
        for (uint64_t k = (unsigned)c->cta; k < packets; k += (unsigned)a->nctas) {
            symm_part part = symm_chunk_of(bytes, SYMM_PACKET_LOG, k);
            char *packet = symm_slot(c, a->rank, 0, peer) + k * SYMM_PACKET_STRIDE;
            if (symm_packet_wait(c, packet, peer)) return;
            symm_move_cached(symm_gather_place(c, peer) + part.at, symm_packet_data(packet),
                             part.len);
        }
    }
    c->heard =
        packets > (unsigned)c->cta; /* a packet of this epoch and signature has come from each */
    for (uint64_t k = (unsigned)c->cta; k < packets; k += (unsigned)a->nctas) {
        symm_part part = symm_chunk_of(bytes, SYMM_PACKET_LOG, k);
        symm_move_cached(symm_gather_place(c, a->rank) + part.at, (const char *)a->src + part.at,
                         part.len);
    }
}

/* Zero-copy: ready words out, each peer's source loaded into dst, and the own part while the peers
 * still read. Only sources can be staged. */
void symm_body_ag_load(symm_cta *c) {
    const symm_args *a = c->a;
    const uint64_t bytes = a->count * a->esize;
    const uint64_t mine = symm_share(symm_chunks(bytes, symm_copy_log(c)), c->cta, a->nctas);
    const int staged = a->src_off == SYMM_STAGED;
    const symm_part nothing = {0, 0};
    if (!staged) symm_ready(c, (uint32_t)mine);
    for (uint64_t k = 0; k < mine; k++) {
        symm_part chunk =
            symm_chunk_of(bytes, symm_copy_log(c), (unsigned)c->cta + k * (unsigned)a->nctas);
        const symm_piece piece = {.k = k, .chunk = chunk.at, .bytes = chunk.len};
        if (staged && symm_stage_in(c, k, (const char *)a->src + chunk.at, chunk.len, nothing))
            return;
        for (int q = 1; q < a->nranks; q++) {
            int peer = symm_peer(a, q);
            if (symm_ready_wait(c, peer, k)) return;
            if (symm_fetch(c, peer, piece, symm_gather_place(c, peer) + chunk.at)) return;
        }
        symm_arrive(c, (uint32_t)(k + 1));
        symm_move(c, symm_gather_place(c, a->rank) + chunk.at, (const char *)a->src + chunk.at,
                  chunk.len);
    }
    c->heard = mine > 0;       /* with each ready word */
    symm_arrive_wait(c, mine); /* nobody reads our src any more */
}
