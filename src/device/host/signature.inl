/* signature.inl - what every kernel does on entry and exit. By itself this is the barrier. Runs on
 * the thread that runs the kernel. No lock.
 *
 * Entry: CTA 0 stores {epoch, signature} to every peer. Exit: CTA 0 waits for every peer's and
 * compares, unless its body has had a packet from every peer, whose flag is the same word. So in
 * every collective each rank hears from each rank. The double buffering of scratch follows:
 *
 *   A rank writes epoch e into a peer's scratch of parity e & 1 only inside its kernel e. That
 *   kernel began after its kernel e-1 had ended (one order per communicator), which had heard from
 *   the peer in epoch e-1. The peer had spoken inside its kernel e-1, so its kernel e-2, the last
 *   user of this parity, had ended. What it said is a release and our wait an acquire, so its reads
 *   of e-2 happen before our writes of e. Nothing here depends on which kernels, how many CTAs or
 *   which sizes those were; a count of zero runs a kernel too. Calls in which ranks go ahead
 *   (ahead.c) have no epoch, and touch nothing of what is meant here. */

SYMM_DEV void symm_post_signature(const symm_cta *c) {
    for (int q = 1; q < c->a->nranks; q++) {
        symm_inbox *box = symm_outbox(c, symm_peer(c->a, q));
        symm_st_relaxed(&box->scalar[c->epoch & 1u], c->scalars[c->a->rank]);
        /* Pairs with symm_signature_wait and differing_rank: also publishes that our previous
         * kernel has ended. */
        symm_st_release(&box->sig[c->epoch & 1u], symm_word(c->epoch, c->a->sig));
    }
}

/* Compares the signature that has come from peer. 0, or non-zero: c->out says who differs. */
SYMM_DEV int symm_signature_differs(symm_cta *c, int peer) {
    uint64_t word = symm_ld_relaxed(&c->ctl->inbox[0][peer].sig[c->epoch & 1u]);
    if (word == symm_word(c->epoch, c->a->sig)) return 0;
    c->out->code = symmMismatch;
    c->out->rank = peer;
    c->out->epoch = c->epoch;
    c->out->stage = SYMM_STAGE_SIGNATURE;
    return 1;
}

/* 0, or non-zero: c->out says who differs or is missing. */
SYMM_DEV int symm_signature_wait(symm_cta *c, int peer, int stage) {
    const uint64_t *word = &c->ctl->inbox[0][peer].sig[c->epoch & 1u];
    if (symm_wait_epoch(c, word, symm_word(c->epoch, 0), peer, stage)) return 1;
    return symm_signature_differs(c, peer);
}

/* premulsum: collects every rank's scalar, which travels beside its signature. */
SYMM_DEV int symm_scalars(symm_cta *c) {
    if (c->a->op != SYMM_OP_PREMUL) return 0;
    for (int p = 0; p < c->a->nranks; p++) {
        if (p == c->a->rank) continue;
        if (symm_signature_wait(c, p, SYMM_STAGE_SCALAR)) return 1;
        c->scalars[p] = symm_ld_relaxed(&c->ctl->inbox[0][p].scalar[c->epoch & 1u]);
    }
    return 0;
}
