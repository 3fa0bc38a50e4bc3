/* agree.c - the status-carrying agreement and the revocation (contracts in mesh.h).
 * Owner thread of the mesh; symm_agree_revoke: any thread. No lock.
 *
 * Why two rounds, for errors too. Round 1: everybody sends its vote to everybody. Round 2:
 * everybody who has all votes sends a confirmation to everybody. A rank returns the agreed outcome
 * only with all confirmations in hand, so whoever returned it knows that every rank has seen every
 * vote. Two things follow. A peer that hangs up while votes are missing has not finished: it died
 * or gave up, so this rank may stop waiting for the others at once. And a peer whose confirmation
 * is here may hang up freely: it has finished, or (if it died) the ranks that still wait for its
 * confirmation say so. With an error outcome and no second round, a rank that saw the error first
 * could leave while another still waits for a slow third: the leaver would look like a death and
 * the codes would differ. Whoever fails for a reason of its own (death seen, deadline, check,
 * failpoint) sends REVOKE before it returns, so the others end with the same cause instead of
 * meeting a closed connection. */
#include "mesh_impl.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "base/fail.h"

#define YIELDS          3            /* looks before the first sleep of a round */
#define COMMIT_QUIET_NS 100000000ull /* w->check is not asked this early in round 2 */

typedef struct {
    symm_mesh *m;
    const symm_wait *w;
    uint64_t since;  /* start of the round */
    symm_vote worst; /* code symmSuccess as long as nobody reported an error */
} agreement;

/* Any error beats success; among errors the lowest rank's wins: the same on every rank, in whatever
 * order they come. */
static void weigh(agreement *a, const symm_vote *v) {
    if (v->code == symmSuccess) return;
    if (a->worst.code == symmSuccess || v->rank < a->worst.rank) a->worst = *v;
}

static symmResult_t read_vote(agreement *a, int peer) {
    symm_mesh_in *in = &a->m->in;
    symm_vote v;
    if (in->head.bytes != sizeof v) {
        return SYMM_ERR(symmInternalError, "rank %d sent a vote of %u bytes (%s)", peer,
                        in->head.bytes, a->w->stage);
    }
    memcpy(&v, in->buf + SYMM_WIRE_HEADER, sizeof v);
    if (v.code < symmSuccess || v.code >= symmNumResults) v.code = symmInternalError;
    v.rank = peer;
    v.stage[sizeof v.stage - 1] = 0;
    v.text[sizeof v.text - 1] = 0;
    weigh(a, &v);
    return symmSuccess;
}

/* The message just taken from an awaited peer. */
static symmResult_t accept_from(agreement *a, int peer, int type) {
    symm_mesh *m = a->m;
    int skip;
    if (m->in.why || m->in.head.type != type) {
        /* Not skipped even if another thread has revoked meanwhile: then the agreement is over. */
        SYMM_TRY(symm_mesh_unexpected(m, peer, type, a->w, &skip));
        return SYMM_ERR(symmAborted, "the communicator was revoked (%s)", a->w->stage);
    }
    symm_mesh_in_drop(&m->in); /* none belong here */
    if (type == SYMM_MSG_VOTE) SYMM_TRY(read_vote(a, peer));
    m->pending[peer] = 0;
    return symmSuccess;
}

/* One look at every awaited peer. *came: messages taken. */
static symmResult_t sweep(agreement *a, int type, int *came) {
    symm_mesh *m = a->m;
    *came = 0;
    for (int p = 0; p < m->nranks; p++) {
        int state, alive = symm_mesh_alive(m, p); /* before the look into its queue */
        if (!m->pending[p]) continue;
        SYMM_TRY(symm_mesh_take(m, p, &state));
        if (state == MESH_READY) {
            SYMM_TRY(accept_from(a, p, type));
            ++*came;
        } else if (state == MESH_GONE || !alive) {
            return symm_mesh_lost(m, p, a->w);
        }
    }
    return symmSuccess;
}

/* w->check and the deadline. In round 2 nobody's end counts that is not awaited: who has confirmed
 * may have left already, which a check that looks at connections would take for a death. So it is
 * asked late there, and believed in other things. */
static symmResult_t look(agreement *a, int type, int *ms) {
    symm_wait quiet = *a->w;
    quiet.check = NULL;
    SYMM_TRY(symm_mesh_look(a->m, a->m->pending, &quiet, ms));
    if (!a->w->check) return symmSuccess;
    if (type == SYMM_MSG_COMMIT && symm_now_ns() - a->since < COMMIT_QUIET_NS) return symmSuccess;
    if (*ms > MESH_CHECK_MS) *ms = MESH_CHECK_MS;
    symmResult_t status = a->w->check(a->w->arg);
    if (status != symmRemoteError) return status;
    return type == SYMM_MSG_COMMIT ? symmSuccess : symm_mesh_cause(a->m);
}

/* Sleeps until an awaited peer may have spoken. In round 1 everybody is watched for its end, see
 * above. */
static symmResult_t sleep_round(agreement *a, int type) {
    symm_mesh *m = a->m;
    int ms;
    for (int p = 0; p < m->nranks; p++) {
        int others = type == SYMM_MSG_VOTE && p != m->rank ? MESH_HUP : 0;
        m->want[p] = m->pending[p] ? MESH_IN : (uint8_t)others;
    }
    SYMM_TRY(look(a, type, &ms));
    m->ops->wait(m, m->want, ms);
    for (int p = 0; p < m->nranks; p++) {
        /* Awaited ones are swept first: their message may be in the queue still. */
        if ((m->want[p] & MESH_LOST) && !m->pending[p]) return symm_mesh_lost(m, p, a->w);
    }
    return symmSuccess;
}

/* Sends this rank's message of one round to everybody and takes everybody's. */
static symmResult_t exchange(agreement *a, int type, const void *payload, size_t bytes) {
    symm_mesh *m = a->m;
    int left = m->nranks - 1, came, yields = 0;
    for (int i = 1; i < m->nranks; i++) {
        int peer = (m->rank + i) % m->nranks; /* staggered, so that they do not all wake rank 0 */
        SYMM_TRY(symm_mesh_send(m, peer, type, payload, bytes, NULL, 0, a->w));
    }
    a->since = symm_now_ns();
    memset(m->pending, MESH_IN, (size_t)m->nranks);
    m->pending[m->rank] = 0;
    for (;;) {
        SYMM_TRY(sweep(a, type, &came));
        left -= came;
        if (!left) return symmSuccess;
        if (came) continue;
        /* More ranks than cores: let them speak, rather than sleep and be woken by each of them. */
        if (yields++ < YIELDS)
            sched_yield();
        else
            SYMM_TRY(sleep_round(a, type));
    }
}

static symmResult_t both_rounds(agreement *a, symmResult_t mine) {
    symm_mesh *m = a->m;
    symm_vote vote;
    if (SYMM_FAIL_HERE(agree_enter)) {
        mine = SYMM_ERR(symmSystemError, "failpoint agree_enter (%s)", a->w->stage);
    }
    symm_mesh_vote(&vote, mine, m->rank, a->w->stage, symm_status_text());
    weigh(a, &vote);
    SYMM_TRY(exchange(a, SYMM_MSG_VOTE, &vote, sizeof vote));
    if (SYMM_FAIL_HERE(agree_commit)) {
        return SYMM_ERR(symmSystemError, "failpoint agree_commit (%s)", a->w->stage);
    }
    return exchange(a, SYMM_MSG_COMMIT, NULL, 0);
}

/* The agreed outcome in words; the rank that found the error has logged it. */
static symmResult_t conclude(const agreement *a) {
    char text[SYMM_ERR_TEXT];
    const symm_vote *v = &a->worst;
    if (v->code == symmSuccess) return symmSuccess;
    if (a->m->nranks > 1) {
        int said = strstr(v->text, v->stage) != NULL; /* many texts end with the stage */
        snprintf(text, sizeof text, "rank %d: %s%s%s%s", v->rank, v->text, said ? "" : " (",
                 said ? "" : v->stage, said ? "" : ")");
        symm_status_adopt(text);
    }
    return (symmResult_t)v->code;
}

symmResult_t symm_agree(symm_mesh *m, symmResult_t mine, const symm_wait *w, int *dead) {
    agreement a = {.m = m, .w = w};
    symmResult_t status;
    SYMM_CHECK(symm_mesh_check(m));
    m->blame = -1;
    if (atomic_load_explicit(&m->revoked, memory_order_relaxed)) {
        status = SYMM_ERR(symmAborted, "the communicator was revoked before (%s)", w->stage);
    } else {
        status = both_rounds(&a, mine);
        if (status != symmSuccess) symm_mesh_spread(m, status, w);
    }
    if (dead) *dead = m->blame;
    SYMM_CHECK(symm_mesh_check(m));
    return status != symmSuccess ? status : conclude(&a);
}
