/* mesh.c - the control mesh as its users call it: makes one of the kinds, and sends and receives
 * messages with deadlines, types and texts. Runs in the thread that owns the mesh; post, offer,
 * leave, peek and push in any thread. No lock. */
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/stats.h"
#include "mesh_impl.h"

symmResult_t symm_mesh_listen(int rank, int nranks, int kind, const char *ifname,
                              symm_mesh_addr *mine, symm_mesh **out) {
    if (nranks < 1 || rank < 0 || rank >= nranks || !mine || !out) {
        return SYMM_ERR(symmInternalError, "symm_mesh_listen: rank %d of %d", rank, nranks);
    }
    if (kind == SYMM_MESH_THREADS) return symm_mesh_threads_listen(rank, nranks, mine, out);
    if (kind == SYMM_MESH_TCP) return symm_mesh_tcp_listen(rank, nranks, ifname, mine, out);
    return symm_mesh_unix_listen(rank, nranks, mine, out);
}

symmResult_t symm_mesh_connect(symm_mesh *m, const symm_mesh_addr *addrs, void *shared,
                               const symm_wait *w) {
    SYMM_CHECK(symm_mesh_check(m));
    symmResult_t status = m->ops->connect(m, addrs, shared, w);
    if (status != symmSuccess) symm_mesh_spread(m, status, w);
    SYMM_CHECK(symm_mesh_check(m));
    return status;
}

void symm_mesh_close(symm_mesh *m) {
    if (!m) return;
    m->ops->close(m);
    symm_mesh_fini(m);
    free(m);
}

/* ---- messages ---- */

static symmResult_t pause_for(symm_mesh *m, int peer, int bits, const symm_wait *w, int ms) {
    memset(m->want, 0, (size_t)m->nranks);
    m->want[peer] = (uint8_t)bits;
    symmResult_t status = symm_mesh_pause(m, m->want, w, ms);
    return status == symmRemoteError ? symm_mesh_cause(m) : status;
}

static symmResult_t send_step(symm_mesh *m, int peer, int state, const symm_wait *w) {
    if (state == MESH_NOTHING) return pause_for(m, peer, MESH_OUT, w, MESH_SLICE_MS);
    /* The socket has room: poll would return at once. */
    if (!symm_wait_over(w)) return pause_for(m, peer, MESH_HUP, w, 1);
    return SYMM_ERR(
        symmFdLimit,
        "too many file descriptors in flight, or no kernel memory, to send to rank %d (%s)", peer,
        w->stage);
}

symmResult_t symm_mesh_send(symm_mesh *m, int peer, int type, const void *payload, size_t bytes,
                            const int *fds, int nfds, const symm_wait *w) {
    if (!symm_mesh_is_peer(m, peer) || bytes > SYMM_MESH_MAX || nfds < 0 || nfds > SYMM_MESH_FDS) {
        return SYMM_ERR(symmInternalError, "symm_mesh_send: rank %d, %zu bytes, %d fds (%s)", peer,
                        bytes, nfds, w->stage);
    }
    if (SYMM_FAIL_HERE(mesh_send)) {
        return SYMM_ERR(symmSystemError, "failpoint mesh_send: %s to rank %d (%s)",
                        symm_mesh_type_name((unsigned)type), peer, w->stage);
    }
    for (;;) {
        int state = MESH_GONE;
        if (symm_mesh_alive(m, peer)) {
            SYMM_TRY(m->ops->put(m, peer, type, payload, bytes, fds, nfds, &state));
        }
        if (state == MESH_READY) {
            SYMM_STAT_ADD(messages, 1);
            return symmSuccess;
        }
        if (state == MESH_GONE) return symm_mesh_lost(m, peer, w);
        SYMM_TRY(send_step(m, peer, state, w));
    }
}

void symm_mesh_post(symm_mesh *m, int peer, int type, const void *payload, size_t bytes) {
    int state;
    if (symm_mesh_is_peer(m, peer) && bytes <= SYMM_MESH_MAX && symm_mesh_alive(m, peer))
        m->ops->put(m, peer, type, payload, bytes, NULL, 0, &state);
}

int symm_mesh_offer(symm_mesh *m, int peer, int type, const void *payload, size_t bytes) {
    int state = MESH_GONE;
    if (!symm_mesh_is_peer(m, peer) || bytes > SYMM_MESH_MAX || !symm_mesh_alive(m, peer)) return 1;
    if (m->ops->put(m, peer, type, payload, bytes, NULL, 0, &state)) return 0;
    return state == MESH_READY || state == MESH_GONE;
}

void symm_mesh_leave(symm_mesh *m) {
    if (!m->ops->peek) return; /* those of other kinds see the end itself */
    symm_mesh_push(m);         /* what is to be said before */
    for (int p = 0; p < m->nranks; p++) symm_mesh_post(m, p, SYMM_MSG_LEFT, NULL, 0);
}

int symm_mesh_peek(symm_mesh *m, int peer, symm_mesh_news *news) {
    int some = 0;
    do {
        memset(news, 0, sizeof *news);
        if (symm_mesh_is_peer(m, peer) && m->ops->peek) some = m->ops->peek(m, peer, news);
    } while (news->more && symm_mesh_hung_up(m, peer)); /* no more come: its last words are found */
    news->left |= symm_mesh_said_left(m, peer);
    return some;
}

void symm_mesh_push(symm_mesh *m) {
    if (m->ops->push) m->ops->push(m);
    if (m->words) m->words->again(m->words_arg);
}

typedef struct { /* what a receiver asks for, and where it goes */
    void *payload;
    size_t cap, got;
    int *fds;
    int least, most, nfds; /* fds: how many may come, and have come */
} parts;

/* The message that came has the right type: are its fds and size what was asked for? */
static symmResult_t check_parts(symm_mesh *m, int peer, const parts *p, const symm_wait *w) {
    const symm_mesh_in *in = &m->in;
    const int said = in->head.nfds;
    if (said < p->least || said > p->most || in->nfds > said) {
        return SYMM_ERR(symmInternalError, "rank %d sent %d fds (announced %d), expected %d (%s)",
                        peer, in->nfds, said, p->most, w->stage);
    }
    if (in->truncated || in->nfds < said) {
        return SYMM_ERR(
            symmFdLimit,
            "only %d of %d file descriptors from rank %d could be received: this process "
            "is at its limit of open files (ulimit -n) (%s)",
            in->nfds, said, peer, w->stage);
    }
    if (in->head.bytes > p->cap) {
        return SYMM_ERR(symmInternalError, "rank %d sent %u bytes, expected at most %zu (%s)", peer,
                        in->head.bytes, p->cap, w->stage);
    }
    return symmSuccess;
}

static symmResult_t hand_over(symm_mesh *m, int peer, parts *p, const symm_wait *w) {
    symmResult_t status = check_parts(m, peer, p, w);
    if (status != symmSuccess) {
        symm_mesh_in_drop(&m->in);
        return status;
    }
    if (m->in.head.bytes) memcpy(p->payload, m->in.buf + SYMM_WIRE_HEADER, m->in.head.bytes);
    if (m->in.nfds) memcpy(p->fds, m->in.fds, (size_t)m->in.nfds * sizeof *p->fds);
    p->nfds = m->in.nfds;
    m->in.nfds = 0; /* the caller's now */
    p->got = m->in.head.bytes;
    return symmSuccess;
}

static symmResult_t receive(symm_mesh *m, int peer, int type, parts *p, const symm_wait *w) {
    if (!symm_mesh_is_peer(m, peer) || p->most < 0 || p->most > SYMM_MESH_FDS) {
        return SYMM_ERR(symmInternalError, "symm_mesh_recv: rank %d, %d fds (%s)", peer, p->most,
                        w->stage);
    }
    if (SYMM_FAIL_HERE(mesh_recv)) {
        return SYMM_ERR(symmSystemError, "failpoint mesh_recv: %s from rank %d (%s)",
                        symm_mesh_type_name((unsigned)type), peer, w->stage);
    }
    for (;;) {
        int state, skip, alive = symm_mesh_alive(m, peer); /* before the look into its queue */
        SYMM_TRY(symm_mesh_take(m, peer, &state));
        if (state == MESH_READY) {
            if (!m->in.why && m->in.head.type == type) {
                return hand_over(m, peer, p, w);
            }
            SYMM_TRY(symm_mesh_unexpected(m, peer, type, w, &skip));
            continue;
        }
        if (state == MESH_GONE || !alive) return symm_mesh_lost(m, peer, w);
        if (m->wills[peer].called && !symm_mesh_revoked(m))
            return SYMM_ERR(symmMismatch,
                            "the ranks are in different calls: rank %d: symmCommShrink or "
                            "symmCommFailedRanks; rank %d: %s",
                            peer, m->rank, w->stage);
        SYMM_TRY(pause_for(m, peer, MESH_IN, w, MESH_SLICE_MS));
    }
}

symmResult_t symm_mesh_recv(symm_mesh *m, int peer, int type, void *payload, size_t cap,
                            size_t *got, int *fds, int nfds, const symm_wait *w) {
    parts p = {.payload = payload, .cap = cap, .fds = fds, .least = nfds, .most = nfds};
    SYMM_TRY(receive(m, peer, type, &p, w));
    if (got) *got = p.got;
    return symmSuccess;
}

symmResult_t symm_mesh_recv_some(symm_mesh *m, int peer, int type, void *payload, size_t cap,
                                 size_t *got, int *fds, int *nfds, const symm_wait *w) {
    parts p = {.payload = payload, .cap = cap, .fds = fds, .most = *nfds};
    SYMM_TRY(receive(m, peer, type, &p, w));
    *got = p.got;
    *nfds = p.nfds;
    return symmSuccess;
}
