/* p2p.c - a list of sends and receives as one kernel: its channels go on in turn until all have
 * ended. Runs on the thread that runs the kernel. No lock. */
#define _GNU_SOURCE

#include "device/common/kernels.h"
#include "p2p.inl"

/* BARE: a pause costs as much as the line's way here. ALONE: polls at once of what the only channel
 * waits for. LOOK: yields of the core between looks at the abort word and the clock. */
enum { BARE_POLLS = 64, ALONE_POLLS = 16, LOOK_YIELDS = 16 };

static int ended(const symm_p2p_channel *ch) {
    return ch->op < 0;
}

/* As many steps as can be made one after the other; 0: none. A big message gives way to the other
 * channels after each chunk. */
static int step(symm_p2p *p, symm_p2p_channel *ch) {
    int moved = 0, more = 1;
    while (more && !ended(ch)) {
        p->at = &p->ops[ch->op];
        more = p->at->sends ? symm_p2p_send(p, ch) : symm_p2p_receive(p, ch);
        moved |= more;
        if (ch->chunks) break;
    }
    return moved;
}

/* ---- waiting --------------------------------------------------------------------------------- */

/* For symmCommDump and messages: what this rank waits in. */
static void note_wait(symm_p2p *p, const symm_p2p_op *op) {
    symm_p2p_note *note = &p->cta.ctl->p2p;
    const uint64_t word =
        op ? (uint64_t)(op->sends ? SYMM_P2P_SEND : SYMM_P2P_RECV) << 32 | ((unsigned)op->peer + 1)
           : 0;
    if (symm_ld_relaxed(&note->waits) == word) return;
    symm_st_relaxed(&note->waits_count, op ? op->count : 0);
    symm_st_relaxed(&note->waits_type, op ? op->type : 0);
    symm_st_relaxed(&note->waits, word);
}

/* Nobody but this kernel could make the other call of a message of this rank to itself. */
static int waits_for_itself(const symm_p2p *p, const symm_p2p_channel *channels, int n) {
    const int self = p->cta.a->rank;
    int sends = 0, receives = 0;
    for (int i = 0; i < n; i++) {
        if (ended(&channels[i]) || p->ops[channels[i].op].peer != self) continue;
        if (p->ops[channels[i].op].sends)
            sends = 1;
        else
            receives = 1;
    }
    return sends != receives;
}

/* 1 if the list has to be left. Every channel has been polled since the last time. */
static int give_up(symm_p2p *p, const symm_p2p_channel *channels, int n, uint64_t *turns) {
    /* One that may still go through the ring has not been tried. */
    const int alone = !p->patient && waits_for_itself(p, channels, n);
    const uint64_t seen = p->cta.left_seen;
    uint64_t seen_now = seen;
    const symm_p2p_op *first = NULL;
    for (int i = 0; i < n; i++) {
        if (ended(&channels[i])) continue;
        p->at = &p->ops[channels[i].op];
        if (!first) note_wait(p, first = p->at);
        if (symm_wait_abort(&p->cta, SYMM_STAGE_P2P)) return 1;
        if (alone && p->at->peer == p->cta.a->rank) {
            p->cta.out->code = symmInvalidUsage;
            p->cta.out->rank = p->at->peer;
            p->cta.out->stage = SYMM_STAGE_P2P;
            return 1;
        }
        p->cta.left_seen = seen; /* each channel is polled once more behind this look */
        if (symm_wait_clock(&p->cta, p->at->peer, SYMM_STAGE_P2P, turns)) return 1;
        if (p->cta.left_seen != seen) seen_now = p->cta.left_seen;
    }
    p->cta.left_seen = seen_now;
    return 0;
}

typedef struct {    /* since something has moved */
    uint64_t turns; /* of wait.c */
    uint32_t polls; /* of heads and words, since the core was yielded */
    uint32_t yields;
} idle;

/* Nothing has moved. 1 if the list has to be left. A clock is read for each channel, so only now
 * and then. */
static int rest(symm_p2p *p, const symm_p2p_channel *channels, int n, int left, idle *w) {
    w->polls += (unsigned)(p->polls * left);
    if (w->polls < BARE_POLLS) return 0;
    symm_relax();
    if (w->polls < p->cta.a->host.spin) {
        p->patient = 0;
        return 0;
    }
    w->polls = 0;
    if (++w->yields % LOOK_YIELDS == 0 && give_up(p, channels, n, &w->turns)) return 1;
    if (w->yields > (unsigned)p->cta.a->nranks) p->patient = 0; /* all have had the core */
    symm_give_core(p->cta.a, &p->cta.vain);
    return 0;
}

/* ---- the kernel ------------------------------------------------------------------------------ */

/* One round over all channels. *left: those that have not ended. */
static int round_of(symm_p2p *p, symm_p2p_channel *channels, int n, int *left) {
    int moved = 0;
    *left = 0;
    for (int i = 0; i < n && !p->cta.out->code; i++) {
        if (ended(&channels[i])) continue;
        moved |= step(p, &channels[i]);
        *left += !ended(&channels[i]);
    }
    return moved;
}

static void run(symm_p2p *p, symm_p2p_channel *channels, int n) {
    idle w = {.polls = 0};
    for (int left = n;;) {
        p->polls = left == 1 ? ALONE_POLLS : 1;
        const int moved = round_of(p, channels, n, &left);
        if (!left || p->cta.out->code) return;
        if (moved)
            w = (idle){.polls = 0};
        else if (rest(p, channels, n, left, &w))
            return;
    }
}

void symm_p2p_run(const symm_args *a, const symm_p2p_op *ops, symm_p2p_channel *channels, int n,
                  symm_p2p_outcome *out) {
    out->left = (symm_outcome){.code = 0};
    out->op = NULL;
    symm_p2p p = {.cta = {.a = a, .ctl = symm_ctl_of(a, a->rank), .out = &out->left},
                  .ops = ops,
                  .patient = 1};
    for (int i = 0; i < n; i++) {
        channels[i].op = channels[i].first;
        channels[i].seq = channels[i].chunks = 0;
        channels[i].met = 0;
    }
    run(&p, channels, n);
    if (p.cta.ctl->p2p.waits) note_wait(&p, NULL);
    if (!out->left.code && p.loaded)
        symm_direct_check(&p.cta);
    else if (!out->left.code)
        symm_abort_check(&p.cta);
    if (!out->left.code) return;
    out->op = p.at;
    symm_tell_peers(&p.cta);
    symm_fence(); /* as in symm_kernel_run */
}
