/* p2p_receive.c - the receiver's side of a channel. Runs on the thread that runs the kernel. No
 * lock. What it finds in a message's head is compared with its own call before anything else: a
 * message of another count or type writes nothing into its buffer. */
#include "p2p.inl"

/* A sender that wants to store may do so from here on. */
static void announce(const symm_p2p *p, symm_p2p_channel *ch, symm_p2p_out *out, uint64_t seq) {
    ch->met = 1;
    symm_st_relaxed(&out->want_count, p->at->count);
    symm_st_relaxed(&out->want_type, p->at->type);
    symm_st_relaxed(&out->want_off, p->at->off);
    symm_st_release(&out->want, seq); /* pairs with meet */
}

/* Up to position `at` the ring is the sender's again. */
static void give_back(symm_p2p_out *out, uint64_t at) {
    symm_st_release(&out->taken_at, at); /* pairs with look */
}

/* The message has been received: its head, its record and the sender's buffer are read no more. */
static int received(symm_p2p *p, symm_p2p_channel *ch, symm_p2p_in *in, symm_p2p_out *out,
                    uint64_t seq) {
    in->received = seq;
    symm_st_release(&out->taken, seq); /* pairs with look */
    ch->met = 0;
    ch->chunks = 0;
    return symm_p2p_end(p, ch);
}

/* Says for all ranks what each of the two means. */
static int differs(symm_p2p *p, const symm_p2p_head *head) {
    const symm_args *a = p->cta.a;
    symm_p2p_note *note = &p->cta.ctl->p2p;
    if (head->count == p->at->count && head->type == p->at->type) return 0;
    symm_st_relaxed(&note->sent_count, head->count);
    symm_st_relaxed(&note->sent_type, head->type);
    symm_st_relaxed(&note->recv_count, p->at->count);
    symm_st_relaxed(&note->recv_type, p->at->type);
    /* Pairs with symm_message_differs (call_log.c). */
    symm_st_release(&note->differ, (uint64_t)(unsigned)p->at->peer << 32 | ((unsigned)a->rank + 1));
    p->cta.out->code = symmMismatch;
    p->cta.out->rank = p->at->peer;
    p->cta.out->stage = SYMM_STAGE_P2P;
    return 1;
}

static void take_small(symm_p2p *p, const symm_p2p_head *head, symm_p2p_out *out) {
    const symm_args *a = p->cta.a;
    symm_move_cached(p->at->buff, symm_p2p_place(a, p->at->peer, a->rank, head->at), p->at->bytes);
    give_back(out, head->at + symm_p2p_lines(p->at->bytes));
}

static void begin_big(const symm_p2p *p, symm_p2p_channel *ch, symm_p2p_in *in,
                      const symm_p2p_head *head, uint64_t seq) {
    ch->big = in->bigs++ % SYMM_P2P_BIGS;
    ch->seq = seq;
    ch->chunks = symm_p2p_chunks(p->cta.a, p->at);
    ch->done = ch->lo = ch->hi = 0;
    ch->off = head->src_off;
}

/* The next chunk that lies in the ring. 0: none does. */
static int take_ringed(symm_p2p *p, symm_p2p_channel *ch, symm_p2p_out *out,
                       const symm_p2p_big *big) {
    const symm_args *a = p->cta.a;
    const uint64_t k = ch->done, chunk = symm_p2p_chunk(a, p->at);
    if (symm_ld_acquire(&big->put) <= k || symm_ld_relaxed(&big->ringed) <= k) return 0;
    const uint64_t at = symm_ld_relaxed(&big->at) + k * chunk;
    const uint64_t len = symm_p2p_chunk_len(a, p->at, k);
    symm_p2p_move(p->at, p->at->buff + k * chunk, symm_p2p_place(a, p->at->peer, a->rank, at), len);
    ch->done++;
    give_back(out, at + symm_p2p_lines(len));
    return 1;
}

/* Chunks that this rank has claimed, out of memory of the sender that is not mapped here. What is
 * read after the sender has left with an error is no message (direct.c). 1 then too: c->out says
 * why. */
static int load_private(symm_p2p *p, symm_p2p_channel *ch) {
    const uint64_t chunk = symm_p2p_chunk(p->cta.a, p->at), from = ch->lo * chunk;
    ch->lo = ch->hi - ch->lo < SYMM_P2P_AT_ONCE ? ch->hi : ch->lo + SYMM_P2P_AT_ONCE;
    const uint64_t end = ch->lo * chunk < p->at->bytes ? ch->lo * chunk : p->at->bytes;
    if (!symm_direct_read(&p->cta, p->at->peer, p->at->buff + from, (ch->off ^ SYMM_PRIVATE) + from,
                          end - from))
        symm_direct_check(&p->cta);
    return 1;
}

/* The last chunk that nobody has claimed, out of the sender's window. A sender that cannot store
 * here leaves all of them to the receiver. 0: none is left. */
static int load_chunk(symm_p2p *p, symm_p2p_channel *ch, symm_p2p_big *big) {
    const symm_args *a = p->cta.a;
    if (ch->off == SYMM_STAGED) return 0;
    if (ch->lo == ch->hi) {
        const uint64_t most = p->at->off == SYMM_STAGED ? ch->chunks : 1,
                       n = symm_p2p_claim(big, ch->chunks, 1, most);
        if (!n) return 0;
        ch->hi = ch->chunks - (symm_ld_relaxed(&big->claim) >> 32) + n;
        ch->lo = ch->hi - n;
    }
    if (symm_is_private(ch->off)) return load_private(p, ch);
    const uint64_t k = ch->lo++, from = k * symm_p2p_chunk(a, p->at);
    p->loaded = 1; /* its owner may leave with an error meanwhile: looked at behind the list */
    symm_p2p_move(p->at, p->at->buff + from, symm_flat(a, p->at->peer, ch->off) + from,
                  symm_p2p_chunk_len(a, p->at, k));
    return 1;
}

/* Every chunk is here. `done` counts those out of the ring; the sender has stored the others of
 * its own. */
static int has_all(const symm_p2p_channel *ch, const symm_p2p_big *big) {
    const uint64_t claim = symm_ld_relaxed(&big->claim), front = (uint32_t)claim;
    if (front + (claim >> 32) < ch->chunks || ch->lo < ch->hi) return 0;
    if (symm_ld_acquire(&big->put) < front) return 0; /* pairs with put_chunk */
    return ch->done >= symm_ld_relaxed(&big->ringed);
}

int symm_p2p_receive(symm_p2p *p, symm_p2p_channel *ch) {
    const symm_args *a = p->cta.a;
    symm_p2p_in *in = symm_p2p_in_of(a, p->at->peer, a->rank);
    symm_p2p_out *out = symm_p2p_out_of(a, p->at->peer, a->rank);
    if (ch->chunks) {
        symm_p2p_big *big = &in->big[ch->big];
        if (take_ringed(p, ch, out, big) || load_chunk(p, ch, big)) return 1;
        return has_all(ch, big) && received(p, ch, in, out, ch->seq);
    }
    const uint64_t seq = in->received + 1;
    const symm_p2p_head *head = symm_p2p_head_of(in, seq);
    const int big = symm_p2p_is_big(a, p->at->bytes);
    if (big && !ch->met) announce(p, ch, out, seq);
    for (int i = p->polls; symm_ld_acquire(&head->seq) != seq;) /* pairs with put_head */
        if (!--i) return 0;
    if (differs(p, head)) return 0;
    if (big) {
        begin_big(p, ch, in, head, seq);
        return 1;
    }
    if (symm_p2p_is_tiny(p->at))
        symm_p2p_copy_tiny(p->at->buff, head->tiny, p->at->bytes);
    else
        take_small(p, head, out);
    return received(p, ch, in, out, seq);
}
