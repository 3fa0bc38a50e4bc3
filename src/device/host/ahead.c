/* ahead.c - broadcast, scatter, reduce and gather of small messages by ranks that do not wait for
 * their takers: a giver writes a message once, into a ring of its own, and goes on; takers load it
 * from there. Runs on the thread that runs the kernel. No lock.
 *
 * Nobody hears from all here, so these calls have no epoch, and the proof of double buffering
 * (signature.inl) goes over them. Instead:
 *
 *   credits  A giver may be SYMM_AHEAD_SLOTS messages and a ring ahead of those who take them. A
 *            taker releases the number of a message once it has loaded it; the giver acquires that
 *            before it writes the place again.
 *   places   A message lies in one piece. Where it begins follows from the messages before it, so
 *            all ranks find the same. Each counts those of every giver, whoever takes them.
 *   order    What a rank has called so is hashed (`said`). A head has the giver's hash, so a taker
 *            that has called something else finds out; and so does the next collective in which all
 *            hear from all, whose signature has it.
 *   gone on  Whoever waits here looks whether a peer is in a later call. What that peer gave and
 *            took before is visible then: if what is waited for is still missing, the peer has
 *            called something else. */
#include "device/common/kernels.h"
#include "dev.h"

typedef struct { /* who gives: the root, each taker its part if the source has one for each; or all
                  * others, to the root */
    int root_gives, each, reduces;
} shape;

typedef struct {
    int giver;
    uint64_t number, at; /* at: where it begins in the giver's ring */
} message;

typedef struct {
    symm_cta *c;
    const symm_args *a;
    symm_ahead *own;
    shape s;
    uint64_t part, step; /* bytes of a part, and from one to the next in the ring */
    uint64_t since;      /* a wait's */
    uint32_t looks;      /* that have failed, since the core was given away */
    const message *all;  /* at the root: those that it takes, by giver */
    int astray;          /* a peer that has called something else, if the next look fails; or -1 */
} ahead;

static symm_ahead *of(const ahead *m, int rank) {
    return &symm_ctl_of(m->a, rank)->ahead;
}
static uint64_t ring_of(const ahead *m) {
    return m->a->scratch.host.ahead_ring;
}

/* ---- messages -------------------------------------------------------------------------------- */

static uint32_t hash(uint32_t said, uint32_t sig) {
    uint32_t x = (said + 1) * 2246822519u ^ sig;
    x = (x ^ x >> 15) * 2654435761u;
    x ^= x >> 13;
    return x ? x : 1;
}

static int is_tiny(const ahead *m) {
    return !m->s.each && m->part <= SYMM_AHEAD_TINY;
}

/* The next message of a giver: it lies behind the one before, or at the ring's beginning if it does
 * not fit its end. */
static message next_of(const ahead *m, int giver) {
    const uint64_t parts = m->s.each ? (unsigned)m->a->nranks : 1u, ring = ring_of(m);
    const uint64_t bytes = is_tiny(m) ? 0 : parts * m->step;
    const uint64_t used =
        bytes <= SYMM_AHEAD_SHORT && SYMM_AHEAD_NEAR < ring ? SYMM_AHEAD_NEAR : ring;
    uint64_t at = m->own->from[giver].at;
    if (bytes && (at & (ring - 1)) + bytes > used) at = (at + ring - 1) & ~(ring - 1);
    m->own->from[giver].at = at + bytes;
    return (message){giver, ++m->own->from[giver].number, at};
}

static uint64_t flag_of(const ahead *m, const message *g) {
    return symm_word((uint32_t)g->number, m->own->said);
}
static symm_ahead_head *head_of(const ahead *m, int giver, uint64_t number) {
    return &of(m, giver)->head[number % SYMM_AHEAD_SLOTS];
}
/* The part for `taker`. */
static char *bytes_of(const ahead *m, const message *g, int taker) {
    if (is_tiny(m)) return head_of(m, g->giver, g->number)->tiny;
    return symm_flat(m->a, g->giver,
                     m->a->scratch.host.ahead_off + (g->at & (ring_of(m) - 1)) +
                         (m->s.each ? (unsigned)taker * m->step : 0));
}

/* ---- waiting --------------------------------------------------------------------------------- */

static int leave(ahead *m, uint32_t code, int rank, int stage) {
    m->c->out->code = code;
    m->c->out->rank = rank;
    m->c->out->epoch = m->c->epoch;
    m->c->out->stage = (uint32_t)stage;
    return 1;
}

/* Whether peer is in another call than this rank, or further on in the same one: it has posted its
 * signature of a collective in which all hear from all, or it wants a message that this rank has
 * not given (`given`: the last one that it has); or it has given a message that has not come up
 * here. What peer gave and took before is visible then: pairs with symm_post_signature, wait_for
 * and give. */
static int has_said(const ahead *m, int peer, uint64_t given) {
    const symm_inbox *box = symm_inbox_of(m->c, peer);
    return (uint32_t)(symm_ld_acquire(&box->sig[m->c->epoch & 1u]) >> 32) == m->c->epoch ||
           symm_ld_acquire(&m->own->taken[peer].wants) > given;
}
static int has_given(const ahead *m, int peer) {
    const uint64_t next = m->own->from[peer].number + 1;
    return symm_ld_acquire(&head_of(m, peer, next)->flag) >> 32 == (uint32_t)next;
}
static int has_gone_on(const ahead *m, int peer, uint64_t given) {
    return has_said(m, peer, given) || has_given(m, peer);
}

/* Every `spin` looks that have failed: non-zero if it is time for more than looking. */
static int is_slow(ahead *m) {
    if (++m->looks < 32) return 0; /* as symm_wait_turn */
    symm_relax();
    if (m->looks < m->a->host.spin) return 0;
    m->looks = 0;
    return 1;
}

/* Between two calls of this what is waited for is looked at once at least. astray: a peer that has
 * gone on, or -1; if it had before, it has called something else. */
static int rest(ahead *m, int peer, int astray, int stage) {
    const int again = astray >= 0 && astray == m->astray;
    symm_st_relaxed4(&m->own->awaits, (uint32_t)peer + 1);
    if (symm_wait_abort(m->c, stage)) return 1;
    if (again) return leave(m, symmMismatch, astray, stage);
    m->astray = astray;
    if (symm_wait_clock(m->c, peer, stage, &m->since)) return 1;
    if (astray < 0) symm_give_core(m->a, &m->c->vain);
    return 0;
}

/* ---- giving ---------------------------------------------------------------------------------- */

/* The rank that has taken the fewest of this one's messages to all; *low: the last of them. */
static int slowest(const ahead *m, uint64_t *low) {
    int who = m->a->rank;
    *low = UINT64_MAX;
    for (int q = 1; q < m->a->nranks; q++) {
        const int peer = symm_peer(m->a, q);
        const uint64_t taken = symm_ld_acquire(&m->own->taken[peer].number); /* pairs with took */
        if (taken < *low) *low = taken, who = peer;
    }
    return who;
}

/* Moves `seen` on, up to the message before g. The rank that has not taken the one behind it, and
 * in *had what that has taken; -1: all have been taken. */
static int look(const ahead *m, const message *g, uint64_t *had) {
    symm_ahead *own = m->own;
    uint64_t low = 0;
    int last = -1;
    for (; own->seen + 1 < g->number; own->seen++) {
        const uint64_t k = own->seen + 1;
        const int64_t taker = own->given[k % SYMM_AHEAD_SLOTS].taker;
        if (taker == SYMM_AHEAD_ALL && last < 0) last = slowest(m, &low);
        /* pairs with took */
        *had = taker == SYMM_AHEAD_ALL ? low : symm_ld_acquire(&own->taken[taker].number);
        if (*had < k) return taker == SYMM_AHEAD_ALL ? last : (int)taker;
    }
    return -1;
}

static int has_room(const ahead *m, const message *g) {
    const symm_ahead *own = m->own;
    const uint64_t oldest = own->seen + 1, end = own->from[g->giver].at;
    return oldest == g->number || (g->number - own->seen <= SYMM_AHEAD_SLOTS &&
                                   end - own->given[oldest % SYMM_AHEAD_SLOTS].at <= ring_of(m));
}

static int wait_for_room(ahead *m, const message *g) {
    uint64_t had = 0;
    int peer = -1;
    m->since = 0;
    m->astray = -1;
    while (!has_room(m, g)) {
        if (peer < 0 || symm_ld_relaxed(&m->own->taken[peer].number) != had)
            peer = look(m, g, &had);
        else if (is_slow(m) &&
                 rest(m, peer, has_gone_on(m, peer, g->number - 1) ? peer : -1, SYMM_STAGE_ARRIVE))
            return 1;
    }
    return 0;
}

/* One message with what this rank has for others. taker: one of them, or SYMM_AHEAD_ALL. */
static int give(ahead *m, int taker) {
    const symm_args *a = m->a;
    const message g = next_of(m, a->rank);
    const char *src = (const char *)a->src;
    symm_ahead_head *head = head_of(m, g.giver, g.number);
    if (wait_for_room(m, &g)) return 1;
    for (int p = 0; m->s.each && p < a->nranks; p++)
        if (p != a->rank)
            symm_move_cached(bytes_of(m, &g, p), src + (unsigned)p * m->part, m->part);
    if (!m->s.each) symm_move_cached(bytes_of(m, &g, 0), src, m->part);
    m->own->given[g.number % SYMM_AHEAD_SLOTS].at = g.at;
    m->own->given[g.number % SYMM_AHEAD_SLOTS].taker = taker;
    head->scalar = m->c->scalars[a->rank];
    symm_st_release(&head->flag, flag_of(m, &g)); /* pairs with wait_for */
    symm_give_line(head);
    return 0;
}

/* ---- taking ---------------------------------------------------------------------------------- */

/* A giver of this call whose message is of another one. */
static int other_giver(const ahead *m) {
    for (int q = 1; q < m->a->nranks; q++) {
        const message *g = &m->all[symm_peer(m->a, q)];
        const uint64_t flag = symm_ld_acquire(&head_of(m, g->giver, g->number)->flag);
        if (flag >> 32 == (uint32_t)g->number && flag != flag_of(m, g)) return g->giver;
    }
    return -1;
}

/* Who has gone on. Behind a broadcast or a scatter every rank has what the root gave, so any peer
 * says it; else the giver alone. */
static int gone_on(const ahead *m, const message *g) {
    const uint64_t given = m->own->from[m->a->rank].number;
    if (m->all) return has_gone_on(m, g->giver, given) ? g->giver : other_giver(m);
    for (int q = 1; q < m->a->nranks; q++)
        if (has_said(m, symm_peer(m->a, q), given)) return symm_peer(m->a, q);
    for (int q = 1; q < m->a->nranks; q++)
        if (has_given(m, symm_peer(m->a, q))) return symm_peer(m->a, q);
    return -1;
}

static int wait_for(ahead *m, const message *g) {
    const symm_ahead_head *head = head_of(m, g->giver, g->number);
    const uint64_t want = flag_of(m, g);
    uint64_t flag, *wants = &of(m, g->giver)->taken[m->a->rank].wants;
    int said = 0;
    m->since = 0;
    m->astray = -1;
    while ((flag = symm_ld_acquire(&head->flag)) != want) { /* pairs with give */
        if (flag >> 32 == want >> 32) return leave(m, symmMismatch, g->giver, SYMM_STAGE_SIGNATURE);
        if (!is_slow(m)) continue;
        if (!said) symm_st_release(wants, g->number); /* pairs with has_said */
        said = 1;
        if (rest(m, g->giver, gone_on(m, g), SYMM_STAGE_PACKET)) return 1;
    }
    m->c->scalars[g->giver] = head->scalar;
    return 0;
}

/* The giver may write the place again: pairs with slowest and look. */
static void took(const ahead *m, const message *g) {
    symm_st_release(&of(m, g->giver)->taken[m->a->rank].number, g->number);
}

/* ---- the kernels ----------------------------------------------------------------------------- */

static void from_root(ahead *m, int root) {
    const symm_args *a = m->a;
    if (a->rank == root) {
        if (!give(m, SYMM_AHEAD_ALL))
            symm_move_cached(
                a->dst, (const char *)a->src + (m->s.each ? (unsigned)root : 0) * m->part, m->part);
        return;
    }
    const message g = next_of(m, root);
    if (wait_for(m, &g)) return;
    symm_move_cached(a->dst, bytes_of(m, &g, a->rank), m->part);
    took(m, &g);
}

static void take_all(ahead *m, const message *g) {
    const symm_args *a = m->a;
    const void *srcs[SYMM_MAX_RANKS];
    for (int p = 0; p < a->nranks; p++) {
        char *to = (char *)a->dst + (m->s.reduces ? 0 : (unsigned)p * m->part);
        if (p != a->rank && wait_for(m, &g[p])) return;
        srcs[p] = p == a->rank ? (const char *)a->src : bytes_of(m, &g[p], a->rank);
        if (m->s.reduces) continue;
        symm_move_cached(to, srcs[p], m->part);
        if (p != a->rank) took(m, &g[p]);
    }
    if (!m->s.reduces) return;
    symm_reduce_here(m->c, (char *)a->dst, srcs, a->count);
    for (int p = 0; p < a->nranks; p++)
        if (p != a->rank) took(m, &g[p]);
}

static void at_root(ahead *m) {
    message g[SYMM_MAX_RANKS];
    for (int p = 0; p < m->a->nranks; p++)
        if (p != m->a->rank) g[p] = next_of(m, p);
    m->all = g;
    take_all(m, g);
    m->all = NULL;
}

static void to_root(ahead *m, int root) {
    const symm_args *a = m->a;
    if (a->rank == root) {
        at_root(m);
        return;
    }
    for (int p = 0; p < a->nranks; p++)
        if (p != a->rank && p != root) (void)next_of(m, p);
    (void)give(m, root);
}

static void run(symm_cta *c, shape s) {
    const symm_args *a = c->a;
    symm_ahead *own = &c->ctl->ahead;
    ahead m = {.c = c, .a = a, .own = own, .s = s, .part = a->count << a->host.esize_log};
    m.step = (m.part + 63) & ~63ull;
    c->epoch = symm_next_epoch(c->ctl->epoch[0]); /* of what comes behind */
    own->said = hash(own->said, a->sig);
    if (s.root_gives)
        from_root(&m, a->host.root);
    else
        to_root(&m, a->host.root);
    if (own->awaits) symm_st_relaxed4(&own->awaits, 0);
    if (!c->out->code) symm_st_relaxed4(&own->calls, own->calls + 1);
}

void symm_body_bc_ahead(symm_cta *c) {
    run(c, (shape){.root_gives = 1});
}
void symm_body_sc_ahead(symm_cta *c) {
    run(c, (shape){.root_gives = 1, .each = 1});
}
void symm_body_rd_ahead(symm_cta *c) {
    run(c, (shape){.reduces = 1});
}
void symm_body_ga_ahead(symm_cta *c) {
    run(c, (shape){.reduces = 0});
}
