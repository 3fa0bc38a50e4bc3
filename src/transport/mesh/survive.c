/* survive.c - agreement among the ranks that are left (contract in survive.h). Runs in the thread
 * that owns the mesh; symm_survive_gone in any thread. No lock.
 *
 * A call has rounds: 1. Each rank sends a proposal to all others: the ranks that it found dead, its
 * list, its status. 2. When all ranks that it does not consider dead have proposed the same to it,
 * it confirms. 3. When all of them have confirmed, it succeeds. If a rank sees a death meanwhile,
 * it begins the next round with one rank less. A rank that has an outcome sends it to all others
 * (DECIDED) before it returns. A rank that receives an outcome passes it on and takes it.
 *
 * Why all living ranks return the same. Channels keep the order, and lose nothing that was sent
 * before a death. Let rank A succeed in round i. Then all ranks that A did not consider dead had
 * confirmed round i. A rank that has confirmed never fails for a reason of its own: it goes on to a
 * later round, which needs a proposal of A. A sends none, because it has decided. So either A's
 * DECIDED comes, or A is dead. A rank considers another dead only after it has taken all messages
 * of that one. So if A's DECIDED reached a living rank B, B has it before it proposes a round
 * without A, and passes it on instead. No rank can confirm or fail in a later round without B's
 * proposal. If A's DECIDED reached no living rank, then no living rank has succeeded. A rank that
 * has confirmed nothing in this call may fail at once, because no rank can succeed without it. */
#include "survive.h"

#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "transport/boot/boot_text.h"
#include "mesh_impl.h"

typedef struct {
    symm_mesh *m;
    const symm_wait *w;
    symm_will mine;  /* what this rank proposes */
    int may_succeed; /* it has confirmed a round of this call, so others may succeed */
    int confirmed;   /* this round */
    int ended;       /* the outcome is known: `outcome`, with its text the thread's last error */
    symmResult_t outcome;
    uint8_t has[SYMM_SET_RANKS], yes[SYMM_SET_RANKS]; /* who has proposed the same, confirmed */
} talk;

static const char *kind_name(int kind) {
    static const char *const names[] = {"?", "symmCommShrink with a list",
                                        "symmCommShrink with SYMM_SHRINK_FAILED",
                                        "symmCommFailedRanks with SYMM_FAILED_AGREE"};
    return kind >= 1 && kind <= 3 ? names[kind] : names[0];
}

const char *symm_ranks_text(const symm_ranks *s, char *text, size_t cap) {
    unsigned char in[SYMM_SET_RANKS];
    for (int r = 0; r < SYMM_SET_RANKS; r++) in[r] = (unsigned char)symm_ranks_has(s, r);
    if (symm_ranks_count(s)) return symm_boot_ranks(in, SYMM_SET_RANKS, text, cap);
    snprintf(text, cap, "nobody");
    return text;
}

void symm_survive_gone(const symm_mesh *m, symm_ranks *gone) {
    *gone = (symm_ranks){{0}};
    for (int p = 0; p < m->nranks && p < SYMM_SET_RANKS; p++)
        if (p != m->rank && (!symm_mesh_alive(m, p) || symm_mesh_hung_up(m, p)))
            symm_ranks_add(gone, p);
}

int symm_survive_came(const symm_mesh *m, int p) {
    return symm_ranks_has(&m->came, p);
}

/* ---- saying ---- */

static int is_member(const talk *t, int p) {
    return p != t->m->rank && !symm_ranks_has(&t->mine.dead, p) && !symm_ranks_has(&t->mine.out, p);
}

/* Also to ranks that are left out, as they may have another list; but never waits for those. */
static symmResult_t tell(talk *t, const symm_will *x) {
    symm_mesh *m = t->m;
    for (int i = 1; i < m->nranks; i++) {
        const int p = (m->rank + i) % m->nranks;
        int state;
        if (symm_ranks_has(&t->mine.dead, p)) continue;
        for (;;) {
            SYMM_TRY(m->ops->put(m, p, SYMM_MSG_WILL, x, sizeof *x, NULL, 0, &state));
            if (state == MESH_READY || state == MESH_GONE || !is_member(t, p) ||
                !symm_mesh_alive(m, p))
                break;
            memset(m->want, 0, (size_t)m->nranks);
            m->want[p] = MESH_OUT;
            SYMM_TRY(symm_mesh_pause(m, m->want, t->w, state == MESH_BUSY ? 1 : MESH_SLICE_MS));
        }
    }
    return symmSuccess;
}

static symmResult_t propose(talk *t) {
    memset(t->has, 0, sizeof t->has);
    memset(t->yes, 0, sizeof t->yes);
    t->confirmed = 0;
    t->mine.what = PROPOSED;
    return tell(t, &t->mine);
}

/* Takes the outcome, whose text is the thread's last error, and sends it to all others. */
static void decide(talk *t, symmResult_t outcome) {
    char text[SYMM_ERR_TEXT];
    symm_will x = t->mine;
    snprintf(text, sizeof text, "%s", symm_status_text());
    x.what = DECIDED;
    x.code = outcome;
    snprintf(x.text, sizeof x.text, "%.*s", (int)sizeof x.text - 1, outcome ? text : "");
    t->ended = 1;
    t->outcome = outcome;
    (void)tell(t, &x); /* a rank that cannot be told sees that this connection has ended */
    if (outcome) symm_status_adopt(text);
}

/* ---- hearing ---- */

static void differ(talk *t, int p, const symm_will *x) {
    char a[120], b[120];
    const int self_first = t->m->rank < p;
    const symm_will *lo = self_first ? &t->mine : x, *hi = self_first ? x : &t->mine;
    const int low = self_first ? t->m->rank : p, high = self_first ? p : t->m->rank;
    if (lo->kind != hi->kind)
        decide(t, SYMM_ERR(symmMismatch, "rank %d called %s, rank %d %s", low, kind_name(lo->kind),
                           high, kind_name(hi->kind)));
    else
        decide(t, SYMM_ERR(symmMismatch, "rank %d leaves out %s, rank %d %s", low,
                           symm_ranks_text(&lo->out, a, sizeof a), high,
                           symm_ranks_text(&hi->out, b, sizeof b)));
}

/* Rank p knows the outcome. */
static void adopt(talk *t, int p, const symm_will *x) {
    symmResult_t outcome = (symmResult_t)x->code;
    if (!outcome && (symm_ranks_has(&x->out, t->m->rank) || x->kind != t->mine.kind)) {
        decide(t, SYMM_ERR(symmMismatch, "rank %d went on without this rank", p));
        return;
    }
    symm_status_adopt(x->text);
    t->mine.out = x->out;
    decide(t, outcome);
}

/* Marks them; they count as dead once their queues are empty (sweep). */
static void suspect(talk *t, const symm_ranks *dead) {
    for (int r = 0; r < t->m->nranks; r++)
        if (symm_ranks_has(dead, r)) symm_mesh_mark_dead(t->m, r);
}

static symmResult_t hear_proposal(talk *t, int p, const symm_will *x) {
    const int lists = t->mine.kind == SYMM_SURVIVE_LIST;
    if (x->kind != t->mine.kind || (lists && !symm_ranks_same(&x->out, &t->mine.out))) {
        differ(t, p, x); /* found in the first round: nothing was confirmed */
        return symmSuccess;
    }
    if (symm_ranks_has(&x->dead, t->m->rank)) {
        decide(t, SYMM_ERR(symmRemoteError, "rank %d takes this rank for dead", p));
        return symmSuccess;
    }
    suspect(t, &x->dead);
    if (x->round > t->mine.round) {
        t->mine.round = x->round;
        SYMM_TRY(propose(t));
    }
    if (x->round == t->mine.round) t->has[p] = symm_ranks_same(&x->dead, &t->mine.dead);
    return symmSuccess;
}

/* A message of this call, or of a later one. This rank joins a later one: the sender has made calls
 * that this rank has not. */
static symmResult_t hear(talk *t, int p, const symm_will *x) {
    if (x->what != DECIDED) symm_ranks_add(&t->m->came, p);
    if (x->call < t->mine.call || x->what < PROPOSED || x->what > DECIDED) return symmSuccess;
    if (x->call > t->mine.call) {
        t->mine.call = x->call;
        t->mine.round = 0;
        t->may_succeed = 0;
        SYMM_TRY(propose(t));
    }
    if (x->what == DECIDED) adopt(t, p, x);
    if (x->what == PROPOSED) return hear_proposal(t, p, x);
    if (x->what == CONFIRMED && x->round == t->mine.round) t->yes[p] = 1;
    return symmSuccess;
}

/* Another message is in the queue. Skipped if the communicator is revoked, or if a shrink that
 * failed has left it. Else the peer is in another call. */
static symmResult_t hear_other(talk *t, int p) {
    symm_mesh *m = t->m;
    const int type = m->in.head.type;
    if (!m->in.why && type == SYMM_MSG_REVOKE && !symm_mesh_revoked(m)) {
        symm_mesh_obey(m, p);
        return symmSuccess;
    }
    symm_mesh_in_drop(&m->in);
    if (m->in.why || symm_mesh_revoked(m) || symm_mesh_left_behind(m)) return symmSuccess;
    return SYMM_ERR(symmMismatch, "the ranks are in different calls: rank %d: %s; rank %d: another",
                    m->rank, kind_name(t->mine.kind), p);
}

/* Takes all messages of peer p. *end: p has ended, and its queue is empty. */
static symmResult_t listen_to(talk *t, int p, int *end) {
    symm_wills *k = &t->m->wills[p];
    symm_will x;
    *end = 0;
    while (!t->ended) {
        if (k->n) {
            x = k->at[0];
            memmove(&k->at[0], &k->at[1], (size_t)--k->n * sizeof k->at[0]);
            SYMM_TRY(hear(t, p, &x));
            continue;
        }
        int state, alive = symm_mesh_alive(t->m, p); /* before the look into its queue */
        SYMM_TRY(symm_mesh_take_any(t->m, p, &state));
        if (state != MESH_READY) {
            *end = state == MESH_GONE || (!alive && state != MESH_BUSY);
            return symmSuccess;
        }
        if (t->m->in.why || t->m->in.head.type != SYMM_MSG_WILL) {
            SYMM_TRY(hear_other(t, p));
            continue;
        }
        symm_mesh_in_drop(&t->m->in); /* none belong there */
        if (symm_mesh_read_will(t->m, &x)) SYMM_TRY(hear(t, p, &x));
    }
    return symmSuccess;
}

/* ---- rounds ---- */

/* More ranks are dead: begins a round without them. */
static symmResult_t lose(talk *t) {
    char who[160];
    t->mine.round++;
    if (t->mine.kind == SYMM_SURVIVE_LIST) {
        symm_ranks lost = t->mine.dead;
        for (int i = 0; i < 2; i++) lost.bit[i] &= ~t->mine.out.bit[i];
        t->mine.code = symmRemoteError;
        SYMM_SAY(t->mine.text, sizeof t->mine.text, "%s died or left, and %s not in excludeRanks",
                 symm_ranks_text(&lost, who, sizeof who),
                 symm_ranks_count(&lost) > 1 ? "are" : "is");
    }
    return propose(t);
}

static symmResult_t sweep(talk *t) {
    int lost = 0;
    for (int p = 0; p < t->m->nranks && !t->ended; p++) {
        int end;
        if (!is_member(t, p)) continue;
        SYMM_TRY(listen_to(t, p, &end));
        if (!end || t->ended) continue;
        symm_mesh_mark_dead(t->m, p);
        symm_ranks_add(&t->mine.dead, p);
        lost = 1;
    }
    return lost && !t->ended ? lose(t) : symmSuccess;
}

static int missing(const talk *t, const uint8_t *in) {
    int n = 0;
    for (int p = 0; p < t->m->nranks; p++) n += is_member(t, p) && !in[p];
    return n;
}

/* If all have proposed the same: fails if a rank is lost, as no rank can have confirmed then; else
 * confirms, and succeeds when all have confirmed. */
static symmResult_t weigh(talk *t) {
    if (missing(t, t->has)) return symmSuccess;
    if (t->mine.code) {
        decide(t, SYMM_ERR((symmResult_t)t->mine.code, "%s (%s)", t->mine.text, t->w->stage));
        return symmSuccess;
    }
    if (!t->confirmed) {
        symm_will x = t->mine;
        x.what = CONFIRMED;
        t->confirmed = t->may_succeed = 1;
        SYMM_TRY(tell(t, &x));
    }
    if (missing(t, t->yes)) return symmSuccess;
    if (t->mine.kind != SYMM_SURVIVE_LIST) t->mine.out = t->mine.dead;
    decide(t, symmSuccess);
    return symmSuccess;
}

/* The error at the deadline names the awaited ranks. A message of any member ends the sleep. */
static symmResult_t rest(talk *t) {
    symm_mesh *m = t->m;
    int ms;
    for (int p = 0; p < m->nranks; p++)
        m->want[p] = is_member(t, p) && !(t->has[p] && t->yes[p]) ? MESH_IN : 0;
    SYMM_TRY(symm_mesh_look(m, m->want, t->w, &ms));
    for (int p = 0; p < m->nranks; p++) m->want[p] = is_member(t, p) ? MESH_IN | MESH_HUP : 0;
    m->ops->wait(m, m->want, ms);
    return symmSuccess;
}

static symmResult_t run(talk *t) {
    SYMM_TRY(propose(t));
    for (;;) {
        SYMM_TRY(sweep(t));
        if (!t->ended) SYMM_TRY(weigh(t));
        if (t->ended) return t->outcome;
        SYMM_TRY(rest(t));
    }
}

/* On a living communicator: passes over calls that others have finished without this rank. Its own
 * is the next one. Not if a rank is gone: then all that are left should make the same call, and a
 * rank that they leave out is told so. */
static symmResult_t pass_over(talk *t) {
    symm_mesh *m = t->m;
    symm_ranks gone;
    symm_survive_gone(m, &gone);
    for (int p = 0; p < m->nranks; p++) {
        int state = MESH_READY;
        const symm_wills *k = &m->wills[p];
        if (p == m->rank || symm_mesh_revoked(m) || symm_ranks_count(&gone)) continue;
        while (state == MESH_READY || state == MESH_BUSY) {
            SYMM_TRY(symm_mesh_take(m, p, &state));
            if (state == MESH_READY) SYMM_TRY(hear_other(t, p));
        }
        for (int i = 0; i < k->n; i++)
            if (k->at[i].what == DECIDED && !k->at[i].code && k->at[i].call >= t->mine.call &&
                symm_ranks_has(&k->at[i].out, m->rank))
                t->mine.call = k->at[i].call + 1;
    }
    return symmSuccess;
}

symmResult_t symm_survive(symm_mesh *m, int kind, symmResult_t mine, symm_ranks *out,
                          uint32_t *call, const symm_wait *w) {
    talk t = {.m = m, .w = w};
    if (m->nranks > SYMM_SET_RANKS)
        return SYMM_ERR(symmInternalError, "%d ranks: no more than %d can be in a set", m->nranks,
                        SYMM_SET_RANKS);
    SYMM_CHECK(symm_mesh_check(m));
    m->came = (symm_ranks){{0}};
    t.mine = (symm_will){.call = m->call + 1, .kind = kind};
    if (kind == SYMM_SURVIVE_LIST) t.mine.out = *out;
    char own[SYMM_ERR_TEXT];
    snprintf(own, sizeof own, "%.480s", symm_status_text());
    symmResult_t r = pass_over(&t);
    if (mine) {
        r = mine;
        symm_status_adopt(own);
    }
    if (!r) r = run(&t);
    /* Failed for a reason of its own. After this rank has confirmed, others may have succeeded: so
     * it does not tell them that all have failed. */
    if (r && !t.ended) {
        snprintf(own, sizeof own, "rank %d: %.400s", m->rank, symm_status_text());
        symm_status_adopt(own);
        if (!t.may_succeed) decide(&t, r);
    }
    for (int p = 0; p < m->nranks; p++) m->wills[p].called = 0; /* this rank has come */
    SYMM_ASSERT(t.mine.call > m->call);                         /* numbers of calls only grow */
    m->call = t.mine.call;
    SYMM_CHECK(symm_mesh_check(m));
    *call = t.mine.call;
    if (!r) *out = t.mine.out;
    return r;
}
