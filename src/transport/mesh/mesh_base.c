/* mesh_base.c - what all files of the control mesh stand on: the common part of its record, what
 * any thread may ask about a peer, waiting with a deadline, deaths and revocations. Runs in the
 * thread that owns the mesh; symm_mesh_fd, _alive, _mark_dead, _hung_up, _revoked and
 * symm_agree_revoke in any thread. No lock: what other threads look at is atomic. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fail.h"
#include "mesh_impl.h"

_Static_assert(sizeof(symm_mesh_addr) == 64, "on the wire");
_Static_assert(sizeof(symm_vote) == 256 && sizeof(symm_vote) <= SYMM_MESH_MAX, "on the wire");
_Static_assert(SYMM_MESH_FDS <= MESH_SCM_MAX, "one message carries them");

const char *symm_mesh_type_name(unsigned type) {
    static const char *const names[] = {"none",   "HELLO", "VOTE",  "COMMIT", "HANDLES", "BOOT",
                                        "REVOKE", "WILL",  "CHILD", "LEFT",   "WORD"};
    return type < sizeof names / sizeof *names ? names[type] : "unknown";
}

symmResult_t symm_mesh_init(symm_mesh *m, const symm_mesh_ops *ops, int rank, int nranks) {
    m->ops = ops;
    m->rank = rank;
    m->nranks = nranks;
    m->owner = getpid();
    m->patience_ms = 10000;
    m->blame = -1;
    m->dead = calloc((size_t)nranks, sizeof *m->dead);
    m->left = calloc((size_t)nranks, sizeof *m->left);
    m->want = calloc((size_t)nranks, 1);
    m->pending = calloc((size_t)nranks, 1);
    m->wills = calloc((size_t)nranks, sizeof *m->wills);
    if (m->dead && m->left && m->want && m->pending && m->wills && !SYMM_FAIL_HERE(mesh_parts))
        return symmSuccess;
    symm_mesh_fini(m);
    return SYMM_ERR(symmOutOfMemory, "no memory for a control mesh of %d ranks", nranks);
}

void symm_mesh_fini(symm_mesh *m) {
    free(m->dead);
    free(m->left);
    free(m->want);
    free(m->pending);
    free(m->wills);
    m->wills = NULL;
    m->dead = m->left = NULL;
    m->want = m->pending = NULL;
}

symmResult_t symm_mesh_random(void *out, size_t bytes) {
    ssize_t n;
    do n = SYMM_FAIL_CALL(mesh_random, -1, EIO, getrandom(out, bytes, 0));
    while (n < 0 && errno == EINTR);
    if (n != (ssize_t)bytes) return SYMM_ERR(symmSystemError, "getrandom of %zu bytes: %m", bytes);
    return symmSuccess;
}

symmResult_t symm_mesh_describe(symm_mesh_addr *a) {
    struct stat st;
    memset(a, 0, sizeof *a);
    a->pid = (uint32_t)getpid();
    a->uid = (uint32_t)geteuid();
    /* 0 where /proc is missing: then pids are not compared */
    if (SYMM_FAIL_CALL(mesh_pidns, -1, ENOENT, stat("/proc/self/ns/pid", &st)) == 0)
        a->pidns = (uint64_t)st.st_ino;
    return symm_mesh_random(&a->nonce, sizeof a->nonce);
}

void symm_mesh_patience(symm_mesh *m, int ms) {
    m->patience_ms = ms;
}

void symm_mesh_set_words(symm_mesh *m, const symm_mesh_words *words, void *arg) {
    m->words = words;
    m->words_arg = arg;
}

void symm_mesh_session(symm_mesh *m, uint32_t session) {
    m->session = session;
}

int symm_mesh_rank(const symm_mesh *m) {
    return m->rank;
}
int symm_mesh_nranks(const symm_mesh *m) {
    return m->nranks;
}

/* ---- what any thread may ask ---- */

int symm_mesh_fd(const symm_mesh *m, int peer) {
    return symm_mesh_is_peer(m, peer) ? m->ops->fd(m, peer) : -1;
}

/* Acquire pairs with the release in symm_mesh_mark_dead: a rank that reads here that the peer has
 * ended, and then looks into the queue, finds all messages that the peer had sent. */
int symm_mesh_alive(const symm_mesh *m, int peer) {
    if (peer < 0 || peer >= m->nranks) return 0;
    return !atomic_load_explicit(&m->dead[peer], memory_order_acquire);
}

void symm_mesh_mark_dead(symm_mesh *m, int peer) {
    if (symm_mesh_is_peer(m, peer)) atomic_store_explicit(&m->dead[peer], 1, memory_order_release);
}

int symm_mesh_refused(const symm_mesh *m) {
    return m->refused;
}

void symm_mesh_blame(symm_mesh *m, int peer) {
    if (!symm_mesh_is_peer(m, peer)) return;
    m->blame = peer;
    symm_mesh_mark_dead(m, peer);
}

int symm_mesh_obeyed(const symm_mesh *m, int *peer, symm_vote *v) {
    const int who = atomic_load_explicit(&m->obeyed, memory_order_acquire);
    if (!who) return 0;
    *peer = who - 1;
    *v = m->vote; /* written once */
    return 1;
}

int symm_mesh_said_left(const symm_mesh *m, int peer) {
    return symm_mesh_is_peer(m, peer) && atomic_load_explicit(&m->left[peer], memory_order_relaxed);
}

int symm_mesh_revoked(const symm_mesh *m) {
    return atomic_load_explicit(&m->revoked, memory_order_relaxed);
}

int symm_mesh_hung_up(const symm_mesh *m, int peer) {
    return symm_mesh_is_peer(m, peer) && m->ops->hung_up(m, peer);
}

/* ---- waiting ---- */

/* "rank 3" or "ranks 3, 5, 7": the peers with IN or OUT in want. */
static const char *list_missing(const symm_mesh *m, const uint8_t *want, char *text, size_t cap) {
    char list[200];
    size_t at = 0;
    int count = 0;
    list[0] = 0;
    for (int r = 0; r < m->nranks; r++) {
        if (!(want[r] & (MESH_IN | MESH_OUT))) continue;
        if (at + 16 < sizeof list) {
            at += (size_t)snprintf(list + at, sizeof list - at, count ? ", %d" : "%d", r);
        }
        count++;
    }
    int cut = at + 16 >= sizeof list;
    snprintf(text, cap, "rank%s %s%s", count == 1 ? "" : "s", list, cut ? ", ..." : "");
    return text;
}

symmResult_t symm_mesh_look(symm_mesh *m, const uint8_t *want, const symm_wait *w, int *ms) {
    int slice = MESH_SLICE_MS;
    if (w->check) {
        SYMM_TRY(w->check(w->arg));
        slice = MESH_CHECK_MS;
    }
    if (w->deadline_ns) {
        uint64_t now = symm_now_ns();
        if (now >= w->deadline_ns) {
            char who[256];
            return SYMM_ERR(symmTimeout, "%s did not come before the deadline (%s)%s%s",
                            list_missing(m, want, who, sizeof who), w->stage,
                            m->seen[0] ? "; this rank has " : "", m->seen);
        }
        uint64_t left = (w->deadline_ns - now) / 1000000 + 1; /* up: a sleep of 0 ms would spin */
        if (left < (uint64_t)slice) slice = (int)left;
    }
    *ms = slice;
    return symmSuccess;
}

symmResult_t symm_mesh_pause(symm_mesh *m, uint8_t *want, const symm_wait *w, int ms) {
    int slice;
    SYMM_TRY(symm_mesh_look(m, want, w, &slice));
    m->ops->wait(m, want, slice < ms ? slice : ms);
    return symmSuccess;
}

/* ---- deaths and revocations ---- */

void symm_mesh_vote(symm_vote *v, symmResult_t code, int rank, const char *stage,
                    const char *text) {
    memset(v, 0, sizeof *v);
    v->code = code;
    v->rank = rank;
    if (code == symmSuccess) return;
    snprintf(v->stage, sizeof v->stage, "%s", stage ? stage : "");
    snprintf(v->text, sizeof v->text, "%s", text ? text : "");
}

void symm_agree_revoke(symm_mesh *m, symmResult_t code, int rank, const char *stage,
                       const char *text) {
    symm_vote v;
    int state;
    atomic_store_explicit(&m->revoked, 1, memory_order_relaxed);
    if (code == symmRemoteError && rank == m->rank) rank = m->blame; /* who speaks is not dead */
    symm_mesh_vote(&v, code, rank, stage, text);
    for (int p = 0; p < m->nranks; p++) {
        if (p == m->rank || !symm_mesh_alive(m, p)) continue;
        m->ops->put(m, p, SYMM_MSG_REVOKE, &v, sizeof v, NULL, 0, &state);
    }
}

void symm_mesh_read_revoke(int peer, const uint8_t *payload, size_t bytes, symm_vote *v) {
    if (bytes == sizeof *v) {
        memcpy(v, payload, sizeof *v);
    } else {
        symm_mesh_vote(v, symmInternalError, peer, "", "for a reason that cannot be read");
    }
    v->stage[sizeof v->stage - 1] = 0;
    v->text[sizeof v->text - 1] = 0;
    if (v->code <= symmSuccess || v->code >= symmNumResults) v->code = symmInternalError;
}

symmResult_t symm_mesh_obey(symm_mesh *m, int peer) {
    symm_vote v;
    symm_mesh_in_drop(&m->in);
    symm_mesh_read_revoke(peer, m->in.buf + SYMM_WIRE_HEADER, m->in.head.bytes, &v);
    if (v.code == symmRemoteError && symm_mesh_is_peer(m, v.rank)) {
        m->blame = v.rank;
        symm_mesh_mark_dead(m, v.rank);
    }
    if (!m->obeyed) {
        m->vote = v;
        /* pairs with symm_mesh_obeyed: the vote is there */
        atomic_store_explicit(&m->obeyed, 1 + peer, memory_order_release);
    }
    /* Passed on, because this rank may leave before all ranks have the original. A rank that then
     * finds this connection closed has the cause in its queue. */
    symm_agree_revoke(m, (symmResult_t)v.code, v.rank, v.stage, v.text);
    return SYMM_ERR((symmResult_t)v.code, "rank %d revoked: %s", peer,
                    v.text[0] ? v.text : v.stage);
}

/* Empties the queue of a peer that is gone, up to a REVOKE. Bounded, as a peer that was only
 * declared dead may still send. */
static symmResult_t find_revoke(symm_mesh *m, int peer, int *found) {
    int state;
    *found = 0;
    for (int i = 0; i < 4096 && !*found; i++) {
        SYMM_TRY(symm_mesh_take(m, peer, &state));
        if (state == MESH_BUSY) continue; /* behind many WORDs */
        if (state != MESH_READY) break;
        *found = !m->in.why && m->in.head.type == SYMM_MSG_REVOKE;
        if (!*found) symm_mesh_in_drop(&m->in);
    }
    return symmSuccess;
}

symmResult_t symm_mesh_lost(symm_mesh *m, int peer, const symm_wait *w) {
    int found = 0;
    symm_mesh_mark_dead(m, peer);
    if (!atomic_load_explicit(&m->revoked, memory_order_relaxed)) {
        SYMM_TRY(find_revoke(m, peer, &found));
    }
    if (found) return symm_mesh_obey(m, peer);
    m->blame = peer;
    return SYMM_ERR(symmRemoteError, "rank %d died or left (%s)", peer, w->stage);
}

symmResult_t symm_mesh_cause(symm_mesh *m) {
    int found = 0;
    for (int p = 0; p < m->nranks; p++) {
        if (!symm_mesh_hung_up(m, p)) continue;
        if (m->blame < 0) m->blame = p;
        if (atomic_load_explicit(&m->revoked, memory_order_relaxed)) continue;
        SYMM_TRY(find_revoke(m, p, &found));
        if (found) return symm_mesh_obey(m, p);
    }
    return symmRemoteError;
}

/* Empties the peers' queues, up to the first REVOKE. Other messages are lost: the communicator ends
 * here. */
static symmResult_t any_revoke(symm_mesh *m) {
    for (int p = 0, found; p < m->nranks; p++) {
        if (!symm_mesh_is_peer(m, p)) continue;
        SYMM_TRY(find_revoke(m, p, &found));
        if (found) return symm_mesh_obey(m, p);
    }
    return symmSuccess;
}

static int any_gone(const symm_mesh *m) {
    for (int p = 0; p < m->nranks; p++)
        if (symm_mesh_is_peer(m, p) && (!symm_mesh_alive(m, p) || symm_mesh_hung_up(m, p)))
            return 1;
    return 0;
}

symmResult_t symm_mesh_cause_within(symm_mesh *m, symmResult_t code, int ms) {
    const struct timespec nap = {0, 1000000};
    uint64_t end = symm_now_ns() + (uint64_t)ms * 1000000;
    while (!symm_mesh_revoked(m)) {
        SYMM_TRY(any_revoke(m));
        if (any_gone(m)) return code == symmRemoteError ? symm_mesh_cause(m) : code;
        if (symm_now_ns() >= end) break;
        nanosleep(&nap, NULL);
    }
    return code;
}

symmResult_t symm_mesh_hear(symm_mesh *m) {
    for (int p = 0; p < m->nranks && m->ops->peek && !symm_mesh_revoked(m); p++) {
        symm_mesh_news news = {0};
        if (!symm_mesh_is_peer(m, p) || !m->ops->peek(m, p, &news) || !news.revoked) continue;
        return symm_mesh_cause_within(m, symmRemoteError, 0);
    }
    return symmSuccess;
}

symmResult_t symm_mesh_unexpected(symm_mesh *m, int peer, int type, const symm_wait *w, int *skip) {
    symm_mesh_in *in = &m->in;
    *skip = 0;
    if (in->why) {
        symm_mesh_in_drop(in);
        return SYMM_ERR(symmInternalError, "rank %d sent no valid message: %s (%s)", peer, in->why,
                        w->stage);
    }
    if (atomic_load_explicit(&m->revoked, memory_order_relaxed)) {
        symm_mesh_in_drop(in);
        *skip = 1;
        return symmSuccess;
    }
    if (in->head.type == SYMM_MSG_REVOKE) return symm_mesh_obey(m, peer);
    symm_mesh_in_drop(in);
    return SYMM_ERR(symmInternalError, "rank %d sent %s where %s was expected (%s)", peer,
                    symm_mesh_type_name(in->head.type), symm_mesh_type_name((unsigned)type),
                    w->stage);
}

int symm_mesh_about(const symm_mesh *m, symmResult_t code) {
    return code == symmRemoteError ? m->blame : m->rank;
}

void symm_mesh_spread(symm_mesh *m, symmResult_t code, const symm_wait *w) {
    if (atomic_load_explicit(&m->revoked, memory_order_relaxed)) return;
    symm_agree_revoke(m, code, symm_mesh_about(m, code), w->stage, symm_status_text());
}
