/* kernels_host.c - the kernels of coll.def on the CPU: entry, body, exit. The bodies are in other
 * files, but for the barrier's. Runs on the thread that calls symm_kernel_run: the user's for the
 * NULL stream, else a stream's worker. No lock. */
#include <string.h>

#include "device/common/kernels.h"
#include "dev.h"
#include "signature.inl"

const symm_kernel_row symm_kernels[SYMM_KERNEL_COUNT] = {
#define SYMM_KERNEL(id, body, ...) {__VA_ARGS__},
#include "device/common/coll.def"
};

/* What every kernel does on entry and exit (signature.inl) is the barrier. */
void symm_body_barrier(symm_cta *c) {
    for (int q = 1; c->cta == 0 && q < c->a->nranks; q++)
        symm_give_line(symm_outbox(c, symm_peer(c->a, q)));
}

static void read_scalar(symm_cta *c) {
    uint64_t bits = c->a->scalar;
    if (c->a->scalar_ptr) {
        bits = 0;
        memcpy(&bits, c->a->scalar_ptr, c->a->esize);
    }
    c->scalars[c->a->rank] = bits;
}

/* Exit of CTA 0: every peer must have meant the same collective. */
static void check_signatures(symm_cta *c) {
    if (c->heard) return;
    for (int q = 1; q < c->a->nranks; q++)
        if (symm_signature_wait(c, symm_peer(c->a, q), SYMM_STAGE_SIGNATURE)) return;
}

/* CTA b advances word b, CTA 0 also those beyond the grid, so all words always equal the one
 * epoch. */
static void advance(const symm_cta *c) {
    uint32_t *epoch = c->ctl->epoch; /* symmCommDump reads it from other threads */
    symm_st_relaxed4(&epoch[c->cta], c->epoch);
    for (int b = c->a->nctas; c->cta == 0 && b < SYMM_MAX_CTAS; b++)
        symm_st_relaxed4(&epoch[b], c->epoch);
}

/* The lines that the next collective will write first: taken now, they are here when it comes. */
static void expect_next(const symm_cta *c, int packets) {
    symm_cta next = *c;
    next.cta = 0;
    next.epoch = c->epoch + 1;
    uint64_t ahead = c->a->count << c->a->host.esize_log; /* calls tend to repeat */
    if (ahead > SYMM_HAND_OVER) ahead = 0;
    for (int q = 1; q < c->a->nranks; q++) {
        int peer = symm_peer(c->a, q);
        symm_own_line(symm_outbox(&next, peer));
        char *packet = symm_slot(&next, peer, 0, c->a->rank);
        for (uint64_t at = 0; packets && at < 64 + ahead; at += 64) symm_own_line(packet + at);
    }
}

/* Of kernels for GPUs alone: the planner does not pick them here. */
void symm_body_none(symm_cta *c) {
    (void)c;
}

static void run_body(symm_kernel_id id, symm_cta *c) {
    switch (id) {
#define SYMM_KERNEL(kid, body, ...) \
    case SYMM_KERNEL_##kid:         \
        body(c);                    \
        break;
#include "device/common/coll.def"
    case SYMM_KERNEL_COUNT: break;
    }
}

/* Peers are told before the user may use the buffers again. */
static void leave_early(symm_cta *c) {
    c->out->epoch += c->ctl->ahead.calls; /* the number of the call */
    symm_tell_peers(c);
    symm_fence(); /* pairs with symm_direct_check */
    if (c->a->flags & SYMM_ARG_WRITES) symm_direct_close(c);
}

/* Givers that go ahead: no entry, no exit, no epoch. */
static void run_ahead(symm_kernel_id id, symm_cta *c) {
    read_scalar(c);
    run_body(id, c);
    if (c->out->code) leave_early(c);
}

void symm_kernel_run(symm_kernel_id id, const symm_args *a, symm_outcome *out) {
    uint64_t scalars[SYMM_MAX_RANKS];
    symm_ctl *ctl = symm_ctl_of(a, a->rank);
    symm_args staged, signed_too;
    symm_way_turn turn = {0};
    memset(out, 0, sizeof *out);
    if (symm_kernels[id].flags & SYMM_K_AHEAD) {
        run_ahead(id, &(symm_cta){.a = a, .ctl = ctl, .out = out, .scalars = scalars});
        return;
    }
    a = symm_ahead_sign(ctl, a, &signed_too);
    const uint32_t epoch = symm_next_epoch(ctl->epoch[0]), either = a->flags & SYMM_ARG_EITHER;
    if (either) a = symm_way_take(&turn, symm_kernels[id].coll, a, ctl, epoch, &staged);
    symm_cta c = {.a = a, .ctl = ctl, .out = out, .scalars = scalars};
    read_scalar(&c);
    for (c.cta = 0; c.cta < a->nctas && !out->code; c.cta++) {
        c.epoch = symm_next_epoch(c.ctl->epoch[c.cta]);
        c.heard = 0;
        c.walk = 0;
        if (c.cta == 0) symm_way_say(&c);
        if (c.cta == 0) symm_post_signature(&c);
        run_body(id, &c);
        if (c.cta == 0 && !out->code) check_signatures(&c);
        if (!out->code) {
            if (a->flags & SYMM_ARG_DIRECT || a->extents)
                symm_direct_check(&c);
            else
                symm_abort_check(&c);
        }
        if (!out->code) advance(&c);
    }
    if (out->code) {
        leave_early(&c);
    } else {
        ctl->ahead.said = 0; /* all have compared it */
        if (turn.timed) symm_way_learn(&turn, a, ctl);
        expect_next(&c, symm_kernels[id].cap == SYMM_CAP_PACKETS);
    }
}
