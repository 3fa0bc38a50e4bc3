/* agree.c - the agreement on a status (contract in mesh.h). Runs in the thread that owns the mesh.
 * No lock.
 *
 * There are two rounds, for errors too. Round 1: every rank sends its vote to every other. Round 2:
 * every rank that has all votes sends a confirmation to every other. A rank returns the outcome
 * only when it has all confirmations. So it then knows that every rank has seen every vote. Hence:
 *  - A peer that hangs up while votes are missing has not finished: it died or gave up. This rank
 *    stops waiting at once.
 *  - A peer whose confirmation has come may hang up. Either it has finished, or it died and the
 *    ranks that still wait for its confirmation report that. Without the second round a rank that
 *    saw an error first could leave while another still waits for a slow third. The one that left
 *    would look dead, and the codes would differ.
 *
 * A rank that fails for a reason of its own (a death, the deadline, w->check, a failpoint) sends
 * REVOKE before it returns. So the others end with the same cause and not with a closed
 * connection. */
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

/* Any error beats success, and of two errors the lower rank's wins. So the outcome is the same on
 * every rank, in whatever order the votes come. */
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
        /* Not skipped if another thread has revoked meanwhile: the agreement is over then. */
        SYMM_TRY(symm_mesh_unexpected(m, peer, type, a->w, &skip));
        return SYMM_ERR(symmAborted, "the communicator was revoked (%s)", a->w->stage);
    }
    symm_mesh_in_drop(&m->in); /* votes carry no fds */
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

/* w->check and the deadline. In round 2 a rank that has confirmed may have left already. w->check
 * looks at connections and would take that for a death. So in round 2 it is called late, and an
 * answer of symmRemoteError is ignored. */
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

/* Sleeps until an awaited peer may have sent something. In round 1 all peers are watched for their
 * end, see the head. */
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
        int peer = (m->rank + i) % m->nranks; /* so that not all ranks send to rank 0 first */
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
        /* With more ranks than cores: yields so that the others send, rather than being woken by
         * each. */
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

/* Records the text of the outcome; the rank that found the error has logged it. */
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
        /* A rank that heard by the abort word that another gave up comes here early, and finds what
         * a third sent for the step before. The reason is in its queues. */
        if (status == symmInternalError) status = symm_mesh_cause_within(m, status, 0);
        if (status != symmSuccess) symm_mesh_spread(m, status, w);
    }
    if (dead) *dead = m->blame;
    SYMM_CHECK(symm_mesh_check(m));
    return status != symmSuccess ? status : conclude(&a);
}
