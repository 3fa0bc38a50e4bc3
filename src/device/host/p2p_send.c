/* p2p_send.c - the sender's side of a channel. Runs on the thread that runs the kernel. No lock.
 *
 * tiny   in the head of the message.
 * small  into the ring; then the head.
 * big    the head first. Then chunks, which the sender claims from the front: straight into the
 *        receiver's window as soon as it knows that, else into the ring. A receiver that reaches
 *        the sender's buffer, in a window or through the kernel, claims chunks from the back. The
 *        sender ends when all chunks are claimed and nobody reads its buffer any more. */
#include "p2p.inl"

/* What the receiver has given back: it reads there no more. Nothing lies in what was skipped: it is
 * free as soon as all before it is. So a message that fits the ring ends alone, also one that began
 * in a new lap while the one before it was still being read. */
static void look(symm_p2p_out *out) {
    const uint64_t at = symm_ld_acquire(&out->taken_at); /* pairs with give_back */
    out->seen = symm_ld_acquire(&out->taken);            /* pairs with received */
    if ((int64_t)(at - out->seen_at) > 0) out->seen_at = at;
    if (out->seen_at == out->skip_from) out->seen_at = out->skip_to;
}

/* Data lies from position `at` to `end` now. What was left empty before it is noted for look. */
static void use_ring(symm_p2p_out *out, uint64_t at, uint64_t end) {
    if (at != out->at) {
        out->skip_from = out->at;
        out->skip_to = at;
    }
    out->at = end;
}

/* Whether message seq of the past has been received. */
static int is_taken(symm_p2p_out *out, uint64_t seq) {
    if ((int64_t)(seq - out->seen) > 0) look(out);
    return (int64_t)(seq - out->seen) <= 0;
}

/* Up to which position of a ring it is used before its beginning is, if that is free. */
static uint64_t lap_of(const symm_args *a) {
    const uint64_t rings = (unsigned)a->nranks * (unsigned)(a->nranks - 1);
    uint64_t lap = a->scratch.host.p2p_ring;
    while (lap > SYMM_P2P_LAP && lap * rings > SYMM_P2P_WALK) lap /= 2;
    return lap;
}

/* Where the next `bytes` begin: in one piece, if they fit a ring, else at its beginning, so that no
 * chunk crosses its end. What is skipped of a ring that is empty is not waited for. A ring is
 * walked through even where its beginning is free: stores to lines that the receiver has read a
 * short time ago are slow. */
static uint64_t begin_at(const symm_args *a, symm_p2p_out *out, uint64_t bytes) {
    const uint64_t ring = a->scratch.host.p2p_ring;
    uint64_t at = out->at;
    const uint64_t end = (at & (ring - 1)) + bytes;
    if (end <= lap_of(a)) return at;
    look(out);
    const int empty = out->seen_at == out->at;
    if (empty || end > ring) at = (at + ring - 1) & ~(ring - 1);
    if (empty) out->seen_at = out->at = at;
    return at;
}

/* Whether the ring is free up to position `end`. */
static int has_room(symm_p2p_out *out, uint64_t ring, uint64_t end) {
    if (end - out->seen_at > ring) look(out);
    return end - out->seen_at <= ring;
}

static void put_head(const symm_p2p *p, symm_p2p_head *head, uint64_t seq, symm_p2p_out *out) {
    head->count = p->at->count;
    head->type = p->at->type;
    symm_st_release(&head->seq, seq); /* pairs with symm_p2p_receive */
    symm_give_line(head);
    out->sent = seq;
}

static int send_small(symm_p2p *p, symm_p2p_out *out, symm_p2p_head *head, uint64_t seq) {
    const symm_args *a = p->cta.a;
    const uint64_t ring = a->scratch.host.p2p_ring, need = symm_p2p_lines(p->at->bytes);
    const uint64_t at = begin_at(a, out, need);
    if (!has_room(out, ring, at + need)) return 0;
    char *place = symm_p2p_place(a, a->rank, p->at->peer, at);
    symm_move_cached(place, p->at->buff, p->at->bytes);
    head->at = at;
    use_ring(out, at, at + need);
    put_head(p, head, seq, out);
    if (p->at->bytes <= SYMM_HAND_OVER)
        for (uint64_t i = 0; i < p->at->bytes; i += 64) symm_give_line(place + i);
    return 1;
}

static void begin_big(symm_p2p *p, symm_p2p_channel *ch, symm_p2p_out *out, symm_p2p_in *in,
                      uint64_t seq) {
    symm_p2p_head *head = symm_p2p_head_of(in, seq);
    ch->big = out->bigs++ % SYMM_P2P_BIGS;
    out->big_seq[ch->big] = seq;
    symm_p2p_big *big = &in->big[ch->big];
    symm_st_relaxed(&big->claim, 0);
    symm_st_relaxed(&big->put, 0);
    symm_st_relaxed(&big->ringed, 0);
    head->src_off = p->at->off;
    put_head(p, head, seq, out);
    ch->seq = seq;
    ch->chunks = symm_p2p_chunks(p->cta.a, p->at);
    ch->done = ch->ringed = 0;
    ch->met = 0;
}

/* Whether the receiver has come to this message, and where its buffer is. A receive of another
 * count or type is met as well: its rank finds that out, and ends both. */
static void meet(const symm_p2p *p, symm_p2p_channel *ch, const symm_p2p_out *out) {
    if (ch->met || symm_ld_acquire(&out->want) != ch->seq) return; /* pairs with announce */
    const int same = symm_ld_relaxed(&out->want_count) == p->at->count &&
                     symm_ld_relaxed(&out->want_type) == p->at->type;
    ch->off = same ? symm_ld_relaxed(&out->want_off) : SYMM_STAGED;
    ch->met = 1;
}

static void put_chunk(symm_p2p_channel *ch, symm_p2p_big *big) {
    symm_st_release(&big->put, ++ch->done); /* pairs with take_ringed and has_all */
}

/* The next chunk into the receiver's window. 0: none is left. */
static int store_chunk(symm_p2p *p, symm_p2p_channel *ch, symm_p2p_big *big) {
    const symm_args *a = p->cta.a;
    const uint64_t k = ch->done, from = k * symm_p2p_chunk(a, p->at);
    if (!symm_p2p_claim(big, ch->chunks, 0, 1)) return 0;
    symm_p2p_move(p->at, symm_flat(a, p->at->peer, ch->off) + from, p->at->buff + from,
                  symm_p2p_chunk_len(a, p->at, k));
    put_chunk(ch, big);
    return 1;
}

/* The next chunk into the ring. 0: none is left, or there is no room. */
static int ring_chunk(symm_p2p *p, symm_p2p_channel *ch, symm_p2p_out *out, symm_p2p_big *big) {
    const symm_args *a = p->cta.a;
    const uint64_t ring = a->scratch.host.p2p_ring, chunk = symm_p2p_chunk(a, p->at), k = ch->done,
                   len = symm_p2p_chunk_len(a, p->at, k);
    if (k == 0) ch->at = begin_at(a, out, p->at->bytes);
    const uint64_t at = ch->at + k * chunk, end = at + symm_p2p_lines(len);
    if (!has_room(out, ring, end) || !symm_p2p_claim(big, ch->chunks, 0, 1)) return 0;
    symm_move_cached(symm_p2p_place(a, a->rank, p->at->peer, at), p->at->buff + k * chunk, len);
    if (k == 0) symm_st_relaxed(&big->at, ch->at);
    symm_st_relaxed(&big->ringed, ++ch->ringed);
    use_ring(out, at, end);
    put_chunk(ch, big);
    return 1;
}

/* Whether chunks go through the ring: nothing better is known to come, or the message fits and so
 * ends without its receiver, which has not come for a while. */
static int may_ring(const symm_p2p *p, const symm_p2p_channel *ch) {
    if (p->at->off == SYMM_STAGED) return 1;
    return !p->patient && !ch->met && p->at->bytes <= p->cta.a->scratch.host.p2p_ring;
}

/* All chunks are claimed, and the receiver has loaded those that it has claimed. */
static int is_sent(const symm_p2p_channel *ch, symm_p2p_out *out, const symm_p2p_big *big) {
    const uint64_t claim = symm_ld_relaxed(&big->claim), back = claim >> 32;
    if ((uint32_t)claim + back < ch->chunks) return 0;
    return !back || is_taken(out, ch->seq);
}

static int send_big(symm_p2p *p, symm_p2p_channel *ch, symm_p2p_out *out, symm_p2p_in *in) {
    symm_p2p_big *big = &in->big[ch->big];
    int moved = 0;
    meet(p, ch, out);
    if (ch->met && ch->off != SYMM_STAGED)
        moved = store_chunk(p, ch, big);
    else if (may_ring(p, ch))
        moved = ring_chunk(p, ch, out, big);
    if (moved || !is_sent(ch, out, big)) return moved;
    ch->chunks = 0;
    return symm_p2p_end(p, ch);
}

int symm_p2p_send(symm_p2p *p, symm_p2p_channel *ch) {
    const symm_args *a = p->cta.a;
    symm_p2p_out *out = symm_p2p_out_of(a, a->rank, p->at->peer);
    symm_p2p_in *in = symm_p2p_in_of(a, a->rank, p->at->peer);
    if (ch->chunks) return send_big(p, ch, out, in);
    const uint64_t seq = out->sent + 1;
    symm_p2p_head *head = symm_p2p_head_of(in, seq);
    if (seq > SYMM_P2P_SLOTS && !is_taken(out, seq - SYMM_P2P_SLOTS)) return 0;
    if (symm_p2p_is_big(a, p->at->bytes)) {
        if (!is_taken(out, out->big_seq[out->bigs % SYMM_P2P_BIGS])) return 0;
        begin_big(p, ch, out, in, seq);
        return 1;
    }
    if (!symm_p2p_is_tiny(p->at)) return send_small(p, out, head, seq) && symm_p2p_end(p, ch);
    symm_p2p_copy_tiny(head->tiny, p->at->buff, p->at->bytes);
    put_head(p, head, seq, out);
    return symm_p2p_end(p, ch);
}
