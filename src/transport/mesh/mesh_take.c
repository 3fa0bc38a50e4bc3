/* mesh_take.c - takes the next message of a peer, and sorts out what belongs to no exchange that is
 * under way: messages of survive.c are kept for it, pieces of a shrink that failed are dropped, and
 * a LEFT is the peer's end. Runs in the thread that owns the mesh. No lock. */
#include <string.h>
#include <unistd.h>

#include "base/stats.h"
#include "mesh_impl.h"

static void check_wills(const symm_wills *k) {
    SYMM_ASSERT(k->n >= 0 && k->n <= SYMM_WILLS && (k->called == 0 || k->called == 1));
    for (int i = 0; i < k->n; i++)
        SYMM_ASSERT(k->at[i].text[sizeof k->at[i].text - 1] == 0 && k->at[i].code >= symmSuccess &&
                    k->at[i].code < symmNumResults);
}

void symm_mesh_check(const symm_mesh *m) {
    const int self = m->rank, blame = m->blame;
    SYMM_ASSERT(m->ops && self >= 0 && self < m->nranks);
    SYMM_ASSERT(blame >= -1 && blame < m->nranks && blame != self);
    SYMM_ASSERT(!m->dead[self] && !m->wills[self].n && !m->wills[self].called);
    SYMM_ASSERT(m->in.nfds >= 0 && m->in.nfds <= MESH_SCM_MAX);
    for (int p = 0; p < m->nranks; p++) {
        SYMM_ASSERT(m->dead[p] <= 1);
        SYMM_ASSERT(m->want[p] < 2 * MESH_LOST && m->pending[p] < 2 * MESH_LOST);
        check_wills(&m->wills[p]);
    }
}

void symm_mesh_in_drop(symm_mesh_in *in) {
    for (int i = 0; i < in->nfds; i++) {
        close(in->fds[i]);
        SYMM_STAT_ADD(fds, -1);
    }
    in->nfds = 0;
}

/* Of each call keeps the outcome, or else the newest round. If there is no room, the oldest is
 * dropped: a rank that is so far behind joins the newest. */
static void keep(symm_mesh *m, int peer, const symm_will *x) {
    symm_wills *k = &m->wills[peer];
    int n = 0;
    if (x->call <= m->call) return; /* of a call that is over for this rank */
    for (int i = 0; i < k->n; i++)
        if (x->what == CONFIRMED || k->at[i].call != x->call) k->at[n++] = k->at[i];
    if (n == SYMM_WILLS) memmove(&k->at[0], &k->at[1], (size_t)--n * sizeof k->at[0]);
    k->at[n++] = *x;
    k->n = n;
    k->called = x->what != DECIDED && !symm_ranks_has(&x->out, m->rank);
}

/* m->in is a message of this file's. 0: a malformed one. */
int symm_mesh_read_will(const symm_mesh *m, symm_will *x) {
    if (m->in.head.bytes != sizeof *x) return 0;
    memcpy(x, m->in.buf + SYMM_WIRE_HEADER, sizeof *x);
    x->text[sizeof x->text - 1] = 0;
    if (x->code < symmSuccess || x->code >= symmNumResults) x->code = symmInternalError;
    return 1;
}

/* m->in is a piece of the making of a child that has failed. */
int symm_mesh_left_behind(const symm_mesh *m) {
    uint32_t session;
    if (m->in.head.type != SYMM_MSG_CHILD || m->in.head.bytes < sizeof session) return 0;
    memcpy(&session, m->in.buf + SYMM_WIRE_HEADER, sizeof session);
    return session != m->session;
}

/* LEFT is a rank's last message. Its connection may stand a while longer. */
symmResult_t symm_mesh_take_any(symm_mesh *m, int peer, int *state) {
    SYMM_TRY(m->ops->take(m, peer, state));
    if (*state != MESH_READY || m->in.why || m->in.head.type != SYMM_MSG_LEFT) return symmSuccess;
    symm_mesh_in_drop(&m->in);
    atomic_store_explicit(&m->left[peer], 1, memory_order_relaxed); /* first: it is not dead */
    symm_mesh_mark_dead(m, peer);
    *state = MESH_GONE;
    return symmSuccess;
}

int symm_mesh_next(symm_mesh *m, int peer, void *payload, size_t cap, size_t *got) {
    uint8_t raw[SYMM_WIRE_HEADER + SYMM_MESH_MAX];
    symm_wire_msg head;
    *got = 0;
    if (!symm_mesh_is_peer(m, peer)) return 0;
    const size_t n = m->ops->next(m, peer, raw, sizeof raw);
    if (n < SYMM_WIRE_HEADER || symm_wire_head(raw, SYMM_MESH_MAX, MESH_SCM_MAX, &head) ||
        n - SYMM_WIRE_HEADER < head.bytes)
        return 0; /* of a stream: it has not come whole */
    *got = head.bytes < cap ? head.bytes : cap;
    if (*got) memcpy(payload, raw + SYMM_WIRE_HEADER, *got);
    return head.type;
}

symmResult_t symm_mesh_take(symm_mesh *m, int peer, int *state) {
    symm_will x;
    SYMM_ASSERT(!m->in.nfds); /* the caller has taken over those of the last one, or closed them */
    for (;;) {
        SYMM_TRY(symm_mesh_take_any(m, peer, state));
        if (*state != MESH_READY || m->in.why) return symmSuccess;
        if (m->in.head.type != SYMM_MSG_WILL && !symm_mesh_left_behind(m)) return symmSuccess;
        symm_mesh_in_drop(&m->in); /* these messages carry no fds */
        if (m->in.head.type == SYMM_MSG_WILL && symm_mesh_read_will(m, &x)) keep(m, peer, &x);
    }
}
