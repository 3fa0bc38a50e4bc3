/* message_plan.c - how a kernel of messages or one-sided calls runs: its grid on GPUs, and what
 * symmExplainMessage says of one message. The communicator's user thread; no lock. */
#include <stdio.h>
#include <string.h>

#include "base/sized.h"
#include "device/host/p2p.h"
#include "host/comm/comm.h"
#include "host/window/window.h"
#include "launch.h"

/* ---- the grid -------------------------------------------------------------------------------- */

/* CTAS: of WARPS; more do not make the link faster. PER_WARP: bytes that it has under way at once,
 * in lines and directly. QUARTERS: of a CTA, where it may take only one of a multiprocessor. Other
 * kernels of this rank and other ranks may have other grids. */
enum { WARPS = SYMM_GPU_P2P_THREADS / 32, CTAS = 32, QUARTERS = 4 };
enum { PER_WARP_LINES = 4 * 480, PER_WARP_DIRECT = 4096 };

static int clamp(int v, int lo, int hi) {
    return v < lo ? lo : v > hi ? hi : v;
}

static int most_ctas(const symm_comm *c) {
    const symmConfig_t *f = &c->config;
    int most = c->gpus.quarter ? CTAS * QUARTERS : CTAS;
    if (f->minCTAs > most) most = f->minCTAs;
    if (f->maxCTAs > 0 && f->maxCTAs < most) most = f->maxCTAs;
    if (c->params.ctas) most = (int)c->params.ctas;
    return clamp(most, 1, c->gpus.budget < SYMM_GPU_MAX_CTAS ? c->gpus.budget : SYMM_GPU_MAX_CTAS);
}

static int warps_of(const symm_comm *c) {
    const int forced = (int)c->params.threads / 32,
              most = c->gpus.quarter ? WARPS / QUARTERS : WARPS;
    return forced ? clamp(forced, 1, most) : most;
}

/* Warps that a message keeps busy. */
static uint64_t busy_with(const symm_p2p_op *op, uint64_t ring) {
    return 1 + op->bytes / (op->bytes > ring ? PER_WARP_DIRECT : PER_WARP_LINES);
}

/* Of so many warps, as far as there are so many. */
static symm_message_grid grid_of(const symm_comm *c, uint64_t all) {
    const uint64_t warps = (unsigned)warps_of(c), most = (unsigned)most_ctas(c),
                   ctas = (all + warps - 1) / warps;
    return (symm_message_grid){.ctas = (int)(ctas < most ? ctas : most),
                               .threads = 32 * (int)(all < warps ? all : warps)};
}

/* Each channel has as many warps as its largest message of all keeps busy, as far as there are so
 * many: the kernel divides them evenly. */
symm_message_grid symm_launch_message_grid(const symm_comm *c, const symm_args *a,
                                           const symm_p2p_op *ops, int n, int channels) {
    const uint64_t warps = (unsigned)warps_of(c), most = (unsigned)most_ctas(c);
    uint64_t team = 1;
    for (int i = 0; i < n; i++) {
        const uint64_t busy = busy_with(&ops[i], a->scratch.gpu.p2p_ring);
        if (busy > team) team = busy;
    }
    if (team > most * warps) team = most * warps; /* no overflow */
    return grid_of(c, team * (unsigned)channels);
}

symm_message_grid symm_launch_copy_grid(const symm_comm *c, uint64_t bytes) {
    const uint64_t pieces = (bytes + PER_WARP_DIRECT - 1) / PER_WARP_DIRECT;
    return grid_of(c, pieces ? pieces : 1);
}

/* ---- what one would do ----------------------------------------------------------------------- */

static void tell_chunks(symm_comm *c, uint64_t ring, const symm_p2p_op *op, const symm_win *win,
                        char *text, size_t cap) {
    char why[400];
    if (op->off == SYMM_STAGED) {
        symm_window_why(c, op->sends ? "sendbuff" : "recvbuff", op->buff, op->bytes, why,
                        sizeof why);
        snprintf(text, cap,
                 "%s: what the peer's window does not let pass goes through the ring "
                 "(symmWindowRegister)",
                 why);
    } else if (op->off >> 62 == SYMM_PRIVATE >> 62) {
        snprintf(text, cap, "in no window: the peer may read it through the kernel (SYMM_DIRECT)");
    } else {
        snprintf(text, cap, "%s: the peer may %s", win ? "in a window" : "the own memory",
                 op->sends ? "load it from there" : "store into it");
    }
    if (!op->sends) return;
    const size_t at = strlen(text);
    snprintf(text + at, cap - at,
             op->bytes <= ring ? "; ends without its receiver while the ring, "
                                 "of %llu bytes, has room"
                               : "; waits for its receiver: larger than the "
                                 "ring, of %llu bytes",
             (unsigned long long)ring);
}

void symm_launch_tell_message(symm_comm *c, const symm_args *a, const symm_p2p_op *op,
                              const symm_win *win, symmExplain_t *plan) {
    const uint64_t ring = c->cuda ? a->scratch.gpu.p2p_ring : a->scratch.host.p2p_ring;
    const int big = op->bytes > (c->cuda ? ring : SYMM_P2P_ONE_PIECE(ring)),
              direct = big && op->off != SYMM_STAGED;
    symmExplain_t p = {.size = plan->size,
                       .ctas = c->cuda ? symm_launch_message_grid(c, a, op, 1, 1).ctas : 1};
    snprintf(p.kernel, sizeof p.kernel, "%s", op->sends ? "message_send" : "message_receive");
    if (big && !c->cuda) p.chunkBytes = symm_p2p_chunk_bytes(a, op->bytes);
    *(op->sends ? &p.zeroCopySend : &p.zeroCopyRecv) = direct;
    if (!big && c->cuda)
        snprintf(p.reason, sizeof p.reason,
                 "up to %llu bytes: in lines through the receiver's ring; ends without its "
                 "receiver while that has room",
                 (unsigned long long)ring);
    else if (op->bytes <= SYMM_P2P_TINY)
        snprintf(p.reason, sizeof p.reason, "up to %d bytes: within the message's head, a line",
                 SYMM_P2P_TINY);
    else if (!big)
        snprintf(p.reason, sizeof p.reason, "in one piece through the receiver's ring");
    else
        tell_chunks(c, ring, op, win, p.reason, sizeof p.reason);
    symm_sized_answer(plan, &p, sizeof p);
}
