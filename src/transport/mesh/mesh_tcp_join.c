/* mesh_tcp_join.c - how processes of several hosts connect: rank r connects to every lower rank and
 * accepts every higher one. Both sides send HELLO, which shows the receiver's nonce. Everybody who
 * reaches the port can connect. So a connection that is not from an awaited rank is closed, and a
 * silent one is kept in a short list; neither delays the ranks. Runs in the thread that owns the
 * mesh. No lock.
 *
 * A higher rank that dies before it connects ends no connection, and pids of other hosts cannot be
 * watched. Another rank's REVOKE may tell it, or w->check, which looks at the bootstrap. Besides,
 * this rank knocks at higher ranks that are late: it connects to their listeners and waits. A rank
 * that lives listens until it has a connection to this one, or gives up. So one that was reached
 * and refuses later is gone. One that has refused from the beginning is gone, or a firewall refuses
 * for it: it has as much time as a host that does not answer. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "mesh_tcp.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/log.h"
#include "base/stats.h"

#define HELD_EXTRA   16          /* silent connections that are kept beyond one per rank */
#define ACCEPT_BURST 64          /* connections accepted between two looks at the others */
#define DIAL_TRIES   200         /* how often a living listener may close this rank's connection */
#define DIAL_MS      5           /* pause between attempts */
#define HEAR_MS      50          /* pause between looks at what connected ranks say */
#define SILENCE_NS   1000000000u /* after that an unanswered attempt is noted */
#define KNOCK_MS     200         /* before the first knock, and between looks at who refuses */
#define GONE_MS      300         /* a rank that gives up has said why by then */

/* What a pollfd stands for. */
enum { AT_DIAL, AT_HELD, AT_UP, AT_LISTENER };

typedef struct { /* accepted, but silent so far */
    int fd;      /* -1: settled */
    int knocks;  /* a lower rank that only wants to see that this one is there */
    symm_mesh_part in;
} visitor;

typedef struct {
    int fd, connecting; /* connected: HELLO was sent, an answer is awaited */
    int tries;
    symm_mesh_part in; /* of the answer */
    uint64_t since;
    int reached;      /* a higher rank: its listener was there */
    uint64_t refused; /* a higher rank: since when it refuses; 0: it does not */
    struct sockaddr_storage addr;
    socklen_t len;
} dialled;

typedef struct symm_mesh_tcp_join {
    symm_mesh_tcp *t;
    const symm_mesh_addr *addrs;
    const symm_wait *w;
    int n, rank, left; /* left: peers not yet connected */
    int noted;         /* m->seen is about this rank, which has not answered; -1: about others */
    uint64_t dial_at;  /* no attempt to connect before this time */
    uint64_t hear_at;  /* no look at the connected ranks before this time */
    uint64_t knock_at; /* no knock before this time */
    dialled *dial;     /* [n] connections to lower ranks, knocks at higher ones */
    visitor *held;     /* oldest first; one place more than are kept */
    int nheld, max_held;
    struct pollfd *polls;
    struct {
        int kind, index;
    } * at; /* what each of polls stands for */
} join;

/* ---- who is it ---- */

static int awaits(const join *j, int peer) {
    return peer > j->rank && j->t->links[peer].fd < 0;
}

static void turn_away(join *j, int *fd, const char *why) {
    struct sockaddr_storage addr = {0};
    socklen_t len = sizeof addr;
    char from[80] = "an unknown address"; /* it may be gone already */
    char *seen = j->t->base.seen;
    if (getpeername(*fd, (struct sockaddr *)&addr, &len) == 0)
        symm_tcp_address_text(&addr, from, sizeof from);
    snprintf(seen, sizeof j->t->base.seen, "turned away a connection from %s: %s", from, why);
    j->noted = -1;
    SYMM_INFO("control mesh: %s", seen);
    SYMM_STAT_ADD(intruders, 1);
    symm_mesh_fd_close(fd);
}

/* A first message. A fresh socket has room for it: *state is READY, or GONE. */
static symmResult_t greet(const join *j, int fd, int peer, int type, const void *payload,
                          size_t bytes, int *state) {
    uint8_t raw[SYMM_WIRE_HEADER];
    const symm_wire_msg head = {.type = (uint16_t)type,
                                .bytes = (uint32_t)bytes,
                                .from = (uint32_t)j->rank,
                                .to = (uint32_t)peer,
                                .nonce = j->addrs[peer].nonce};
    const struct iovec iov[2] = {{raw, sizeof raw}, {(void *)(uintptr_t)payload, bytes}};
    size_t sent;
    symm_wire_put(&head, raw);
    SYMM_TRY(symm_mesh_tcp_write(fd, iov, bytes ? 2 : 1, &sent, state));
    if (sent != sizeof raw + bytes) *state = MESH_GONE;
    return symmSuccess;
}

static void establish(join *j, int *fd, int peer) {
    j->t->links[peer].fd = *fd;
    *fd = -1;
    j->left--;
    symm_mesh_fd_close(&j->dial[peer].fd); /* a knock */
    if (j->noted != peer) return;
    j->noted = -1;
    j->t->base.seen[0] = 0;
}

static int is_revoke(const join *j) {
    return j->t->base.in.head.type == SYMM_MSG_REVOKE;
}

static symmResult_t died(join *j, int peer) {
    return symm_mesh_lost(&j->t->base, peer, j->w);
}

/* ---- lower ranks: dial and wait for the answer ---- */

static void pause_dialing(join *j) {
    j->dial_at = symm_now_ns() + DIAL_MS * 1000000ull;
}

/* Begins to connect. 0, or errno. */
static int try_connect(dialled *d) {
    d->fd = symm_mesh_tcp_socket(d->addr.ss_family);
    if (d->fd < 0) return errno;
    d->connecting = 1;
    d->in.have = 0;
    d->since = symm_now_ns();
    int rc =
        SYMM_FAIL_CALL(mesh_dial, -1, ENOMEM, connect(d->fd, (struct sockaddr *)&d->addr, d->len));
    if (rc == 0 || errno == EINPROGRESS || errno == EINTR) return 0;
    rc = errno;
    symm_mesh_fd_close(&d->fd);
    return rc;
}

/* The peer has closed the connection, perhaps because strangers filled its list. If it is dead, the
 * next attempt shows that. */
static symmResult_t dial_later(join *j, int peer) {
    symm_mesh_fd_close(&j->dial[peer].fd);
    pause_dialing(j);
    if (++j->dial[peer].tries < DIAL_TRIES) return symmSuccess;
    return SYMM_ERR(symmRemoteError, "rank %d turned this rank's connections away %d times (%s)",
                    peer, j->dial[peer].tries, j->w->stage);
}

static const char *dialled_from(const join *j, const dialled *d, char *buf, size_t cap) {
    return symm_mesh_tcp_from(d->fd, j->t->mine.name, buf, cap);
}

/* It listened before any rank knew its address. So where nobody listens it has died or left, or a
 * firewall refuses for it. To this rank it is dead; others are not told so, for they would tell it
 * nothing any more. */
static symmResult_t unreachable(join *j, int peer, int error, const char *from) {
    symm_mesh *m = &j->t->base;
    char where[80];
    const int refused = error == ECONNREFUSED;
    if (refused) {
        symm_mesh_mark_dead(m, peer);
        m->refused = 1;
    }
    return SYMM_ERR(refused ? symmRemoteError : symmSystemError,
                    "rank %d cannot reach rank %d at %s from %s: %s (%s) (%s)", j->rank, peer,
                    symm_tcp_address_text(&j->dial[peer].addr, where, sizeof where), from,
                    strerror(error),
                    refused ? "it died or left, or a firewall refuses"
                            : "a firewall, or the wrong interface: SYMM_SOCKET_IFNAME",
                    j->w->stage);
}

/* Descriptors are short. 1: some were those of knocks, of which there will be no more. */
static int stop_knocking(join *j) {
    int any = 0;
    j->knock_at = UINT64_MAX;
    for (int p = j->rank + 1; p < j->n; p++) {
        any |= j->dial[p].fd >= 0;
        symm_mesh_fd_close(&j->dial[p].fd);
    }
    return any;
}

/* What else fails than a refusal says nothing about the peer. */
static symmResult_t knock_failed(join *j, int peer, int error) {
    dialled *d = &j->dial[peer];
    char from[80];
    const uint64_t now = symm_now_ns();
    const int ms = d->reached ? GONE_MS : j->t->base.patience_ms;
    dialled_from(j, d, from, sizeof from);
    symm_mesh_fd_close(&d->fd);
    if (error != ECONNREFUSED || !d->refused) d->refused = error == ECONNREFUSED ? now : 0;
    if (!d->refused || now - d->refused < (uint64_t)ms * 1000000) return symmSuccess;
    return unreachable(j, peer, error, from);
}

static symmResult_t connect_failed(join *j, int peer, int error) {
    char from[80];
    if (peer > j->rank) return knock_failed(j, peer, error);
    dialled_from(j, &j->dial[peer], from, sizeof from);
    symm_mesh_fd_close(&j->dial[peer].fd);
    switch (error) {
    case ECONNRESET: return dial_later(j, peer);
    case EMFILE:
    case ENFILE:
        if (stop_knocking(j)) return dial_later(j, peer);
        return SYMM_ERR(symmFdLimit,
                        "no file descriptor left to connect to rank %d: %s (ulimit -n) (%s)", peer,
                        strerror(error), j->w->stage);
    default: return unreachable(j, peer, error, from);
    }
}

static symmResult_t on_connected(join *j, int peer) {
    dialled *d = &j->dial[peer];
    const int error = symm_mesh_tcp_outcome(d->fd);
    if (error) return connect_failed(j, peer, error);
    d->connecting = 0;
    d->reached = 1;
    d->refused = 0;
    symm_mesh_tcp_tune(d->fd, j->t->base.patience_ms);
    int state;
    SYMM_TRY(greet(j, d->fd, peer, SYMM_MSG_HELLO, NULL, 0, &state));
    if (state != MESH_READY && peer > j->rank) symm_mesh_fd_close(&d->fd);
    return state == MESH_READY || peer > j->rank ? symmSuccess : dial_later(j, peer);
}

static symmResult_t on_answer(join *j, int peer) {
    symm_mesh *m = &j->t->base;
    int state;
    char where[80];
    if (peer > j->rank) { /* nobody answers a knock, so this is its end */
        symm_mesh_fd_close(&j->dial[peer].fd);
        return symmSuccess;
    }
    SYMM_TRY(symm_mesh_tcp_take(j->dial[peer].fd, &j->dial[peer].in, &m->in, &state));
    if (state == MESH_NOTHING) return symmSuccess;
    if (state == MESH_GONE) return dial_later(j, peer);
    const char *why = symm_mesh_judge(m, j->t->mine.nonce);
    if (!why && m->in.head.from != (uint32_t)peer) why = "from another rank";
    if (!why) {
        establish(j, &j->dial[peer].fd, peer);
        return is_revoke(j) ? symm_mesh_obey(m, peer) : symmSuccess;
    }
    symm_mesh_mark_dead(m, peer);
    m->blame = peer;
    symm_tcp_address_text(&j->dial[peer].addr, where, sizeof where);
    return SYMM_ERR(symmRemoteError,
                    "rank %d died or left: at its control socket %s somebody else answers: %s (%s)",
                    peer, where, why, j->w->stage);
}

static symmResult_t dial(join *j, int peer) {
    if (SYMM_FAIL_HERE(mesh_connect)) {
        return SYMM_ERR(symmSystemError, "failpoint mesh_connect: to rank %d (%s)", peer,
                        j->w->stage);
    }
    const int error = try_connect(&j->dial[peer]);
    return error ? connect_failed(j, peer, error) : symmSuccess;
}

/* An attempt that nobody answers, for the text about the deadline. */
static void note_silence(join *j, int peer) {
    char where[80], from[80];
    const dialled *d = &j->dial[peer];
    if (!d->connecting || j->noted >= 0 || symm_now_ns() - d->since < SILENCE_NS) return;
    j->noted = peer;
    snprintf(j->t->base.seen, sizeof j->t->base.seen,
             "no answer from rank %d at %s, asked from %s (a firewall, or the wrong interface: "
             "SYMM_SOCKET_IFNAME)",
             peer, symm_tcp_address_text(&d->addr, where, sizeof where),
             dialled_from(j, d, from, sizeof from));
}

/* *ms is lowered to when it should be called again. */
static symmResult_t dial_all(join *j, int *ms) {
    int waiting = 0;
    for (int p = 0; p < j->rank; p++) {
        if (j->t->links[p].fd >= 0) continue;
        if (j->dial[p].fd >= 0) {
            note_silence(j, p);
            continue;
        }
        if (symm_now_ns() >= j->dial_at) SYMM_TRY(dial(j, p));
        waiting |= j->dial[p].fd < 0;
    }
    if (waiting && *ms > DIAL_MS) *ms = DIAL_MS;
    return symmSuccess;
}

/* ---- higher ranks: knock, and accept ---- */

static symmResult_t knock_all(join *j) {
    const uint64_t now = symm_now_ns();
    if (now < j->knock_at) return symmSuccess;
    j->knock_at = now + KNOCK_MS * 1000000ull;
    for (int p = j->rank + 1; p < j->n; p++) {
        if (j->t->links[p].fd >= 0 || j->dial[p].fd >= 0) continue;
        const int error = try_connect(&j->dial[p]);
        if (error) SYMM_TRY(knock_failed(j, p, error));
    }
    return symmSuccess;
}

/* Looks for a message on a held connection; leaves -1 in v->fd unless it is still silent. */
static symmResult_t on_held(join *j, visitor *v) {
    symm_mesh *m = &j->t->base;
    int state, from = -1;
    if (symm_mesh_tcp_take(v->fd, &v->in, &m->in, &state) != symmSuccess) state = MESH_GONE;
    if (state == MESH_NOTHING) return symmSuccess;
    if (state == MESH_GONE && v->knocks) {
        symm_mesh_fd_close(&v->fd);
        return symmSuccess;
    }
    const char *why =
        state == MESH_GONE ? "hung up without a greeting" : symm_mesh_judge(m, j->t->mine.nonce);
    if (!why && m->in.head.from < (uint32_t)j->n) from = (int)m->in.head.from;
    if (!why && from >= 0 && from < j->rank && !is_revoke(j)) {
        v->knocks = 1;
        return symmSuccess;
    }
    if (!why && (from < 0 || !awaits(j, from))) why = "greets as a rank that is not awaited";
    if (why) {
        turn_away(j, &v->fd, why);
        return symmSuccess;
    }
    establish(j, &v->fd,
              from); /* first: if the rank is gone already, its queue may have the cause */
    if (is_revoke(j)) return symm_mesh_obey(m, from);
    SYMM_TRY(greet(j, j->t->links[from].fd, from, SYMM_MSG_HELLO, NULL, 0, &state));
    return state == MESH_READY ? symmSuccess : died(j, from);
}

/* Connections that were settled are -1 in the list; closes the gaps. */
static void compact(join *j) {
    int kept = 0;
    for (int i = 0; i < j->nheld; i++) {
        if (j->held[i].fd >= 0 && kept++ != i) j->held[kept - 1] = j->held[i];
    }
    j->nheld = kept;
}

static void drop_oldest(join *j, const char *why) {
    turn_away(j, &j->held[0].fd, why);
    compact(j);
}

static symmResult_t hold(join *j, int fd) {
    visitor *v = &j->held[j->nheld++];
    v->fd = fd;
    v->knocks = 0;
    v->in.have = 0;
    symm_mesh_tcp_tune(fd, j->t->base.patience_ms);
    SYMM_TRY(on_held(j, v)); /* its greeting may have come with it */
    compact(j);
    if (j->nheld > j->max_held) drop_oldest(j, "said nothing while others wait");
    return symmSuccess;
}

/* accept failed. *more: whether to go on. Linux passes errors of the new connection on, so all but
 * a shortage count as its end. At the limit of fds the oldest silent connection is closed. */
static symmResult_t accept_failed(join *j, int *more) {
    *more = errno != EAGAIN && errno != EINVAL && errno != ENOMEM && errno != ENOBUFS;
    if (errno == EINVAL || errno == ENOMEM || errno == ENOBUFS)
        return SYMM_ERR(symmSystemError, "accept on the control mesh: %m (%s)", j->w->stage);
    if (errno != EMFILE && errno != ENFILE) return symmSuccess;
    compact(j);
    if (stop_knocking(j)) return symmSuccess;
    if (!j->nheld) {
        return SYMM_ERR(symmFdLimit,
                        "no file descriptor left for the connection of a rank: %m (ulimit -n) (%s)",
                        j->w->stage);
    }
    drop_oldest(j, "said nothing while file descriptors are short");
    return symmSuccess;
}

static symmResult_t on_listener(join *j) {
    int more = 1;
    if (SYMM_FAIL_HERE(mesh_accept)) {
        return SYMM_ERR(symmSystemError, "failpoint mesh_accept (%s)", j->w->stage);
    }
    for (int i = 0; i < ACCEPT_BURST && more && j->left; i++) {
        int fd = symm_mesh_accept(j->t->listener);
        if (fd < 0)
            SYMM_TRY(accept_failed(j, &more));
        else
            SYMM_TRY(hold(j, fd));
    }
    return symmSuccess;
}

/* ---- giving up ---- */

/* One round over the lower ranks that do not know yet. The number of attempts that still run. */
static nfds_t tell_lower(join *j, const symm_vote *v) {
    nfds_t n = 0;
    for (int p = 0; p < j->rank; p++) {
        dialled *d = &j->dial[p];
        if (d->fd < 0) continue;
        if (d->connecting) {
            j->polls[n] = (struct pollfd){.fd = d->fd, .events = POLLOUT};
            j->at[n++].index = p;
            continue;
        }
        int state;
        (void)greet(j, d->fd, p, SYMM_MSG_REVOKE, v, sizeof *v, &state);
        symm_mesh_tcp_end(&d->fd);
    }
    return n;
}

/* Tells this rank's failure to the lower ranks that have no connection to it yet. Connected ranks
 * hear it from symm_mesh_spread; higher ranks find no listener any more. Best effort: reports
 * nothing, and takes MESH_TCP_END_MS at most. */
static void farewell(join *j, symmResult_t code) {
    const symm_mesh *m = &j->t->base;
    const uint64_t until = symm_now_ns() + MESH_TCP_END_MS * 1000000ull;
    symm_vote v;
    char own[SYMM_ERR_TEXT]; /* an error of a greeting is not this rank's */
    snprintf(own, sizeof own, "%s", symm_status_text());
    symm_mesh_vote(&v, code, symm_mesh_about(m, code), j->w->stage, own);
    for (int p = 0; p < j->rank; p++) {
        if (!symm_mesh_alive(m, p))
            symm_mesh_fd_close(&j->dial[p].fd);
        else if (j->t->links[p].fd < 0 && j->dial[p].fd < 0 && j->dial[p].len)
            (void)try_connect(&j->dial[p]);
    }
    for (;;) {
        const nfds_t n = tell_lower(j, &v);
        const uint64_t now = symm_now_ns();
        symm_status_adopt(own);
        if (!n || now >= until) return;
        if (poll(j->polls, n, (int)((until - now) / 1000000) + 1) <= 0) continue;
        for (nfds_t i = 0; i < n; i++) {
            dialled *d = &j->dial[j->at[i].index];
            if (!j->polls[i].revents) continue;
            if (symm_mesh_tcp_outcome(d->fd)) symm_mesh_fd_close(&d->fd);
            d->connecting = 0;
        }
    }
}

/* ---- the loop ---- */

static void add(join *j, nfds_t *n, int fd, short events, int kind, int index) {
    if (fd < 0) return;
    j->polls[*n] = (struct pollfd){.fd = fd, .events = events};
    j->at[*n].kind = kind;
    j->at[*n].index = index;
    ++*n;
}

/* All sockets that may have something. The listener comes last: messages of held connections are
 * taken before new connections push them out. */
static nfds_t collect(join *j) {
    nfds_t n = 0;
    compact(j);
    for (int p = 0; p < j->n; p++) {
        const dialled *d = &j->dial[p];
        add(j, &n, d->fd, d->connecting ? POLLOUT : POLLIN, AT_DIAL, p);
        add(j, &n, j->t->links[p].fd, POLLRDHUP, AT_UP, p);
    }
    for (int i = 0; i < j->nheld; i++) add(j, &n, j->held[i].fd, POLLIN, AT_HELD, i);
    add(j, &n, j->t->listener, POLLIN, AT_LISTENER, 0);
    return n;
}

static symmResult_t dispatch(join *j, nfds_t n) {
    for (nfds_t i = 0; i < n; i++) {
        const int index = j->at[i].index;
        if (!j->polls[i].revents) continue;
        switch (j->at[i].kind) {
        case AT_DIAL:
            SYMM_TRY(j->dial[index].connecting ? on_connected(j, index) : on_answer(j, index));
            break;
        case AT_HELD: SYMM_TRY(on_held(j, &j->held[index])); break;
        case AT_LISTENER: SYMM_TRY(on_listener(j)); break;
        default: return died(j, index);
        }
    }
    return symmSuccess;
}

static symmResult_t read_addresses(join *j) {
    for (int p = 0; p < j->n; p++) {
        dialled *d = &j->dial[p];
        j->t->links[p].nonce = j->addrs[p].nonce;
        if (p == j->rank) continue;
        const char *why =
            symm_tcp_address_get((const uint8_t *)j->addrs[p].name, &d->addr, &d->len);
        if (why)
            return SYMM_ERR(symmInternalError, "rank %d's control socket has no address: %s (%s)",
                            p, why, j->w->stage);
    }
    return symmSuccess;
}

/* A connected rank that has given up says so, and its connection stands: it waits for this rank's
 * status. What others send already is for later, and is left there. */
static symmResult_t hear_connected(join *j) {
    const uint64_t now = symm_now_ns();
    if (now < j->hear_at) return symmSuccess;
    j->hear_at = now + HEAR_MS * 1000000ull;
    return symm_mesh_hear(&j->t->base);
}

static symmResult_t join_all(join *j) {
    symm_mesh *m = &j->t->base;
    SYMM_TRY(read_addresses(j));
    j->knock_at = symm_now_ns() + KNOCK_MS * 1000000ull;
    while (j->left) {
        int ms;
        for (int p = 0; p < j->n; p++) {
            m->pending[p] = p != j->rank && j->t->links[p].fd < 0 ? MESH_IN : 0;
        }
        SYMM_TRY(symm_mesh_look(m, m->pending, j->w, &ms));
        SYMM_TRY(hear_connected(j));
        SYMM_TRY(dial_all(j, &ms));
        SYMM_TRY(knock_all(j));
        nfds_t n = collect(j);
        int found = SYMM_FAIL_CALL(mesh_await, -1, ENOMEM, poll(j->polls, n, ms));
        if (found > 0) SYMM_TRY(dispatch(j, n));
    }
    return symmSuccess;
}

static symmResult_t join_alloc(join *j) {
    size_t n = (size_t)j->n;
    j->max_held = j->n + HELD_EXTRA;
    size_t places = 2 * n + (size_t)j->max_held + 1;
    j->dial = calloc(n, sizeof *j->dial);
    j->held = malloc(((size_t)j->max_held + 1) * sizeof *j->held);
    j->polls = malloc(places * sizeof *j->polls);
    j->at = malloc(places * sizeof *j->at);
    for (int p = 0; p < j->n && j->dial; p++) j->dial[p].fd = -1; /* join_free goes through them */
    if (j->dial && j->held && j->polls && j->at && !SYMM_FAIL_HERE(join_parts)) return symmSuccess;
    return SYMM_ERR(symmOutOfMemory, "no memory to connect %d ranks", j->n);
}

void symm_mesh_tcp_join_free(symm_mesh_tcp *t) {
    join *j = t->join;
    t->join = NULL;
    if (!j) return;
    for (int p = 0; p < j->n && j->dial; p++) symm_mesh_fd_close(&j->dial[p].fd);
    for (int i = 0; i < j->nheld; i++) symm_mesh_fd_close(&j->held[i].fd);
    free(j->dial);
    free(j->held);
    free(j->polls);
    free(j->at);
    free(j);
}

/* Its memory is allocated before the peers wait for this rank. */
symmResult_t symm_mesh_tcp_join_new(symm_mesh_tcp *t) {
    join *j = SYMM_FAIL_ALLOC(join_alloc, calloc(1, sizeof *j));
    if (!j) return SYMM_ERR(symmOutOfMemory, "no memory to connect %d ranks", t->base.nranks);
    t->join = j;
    j->t = t;
    j->n = t->base.nranks;
    j->rank = t->base.rank;
    j->left = j->n - 1;
    j->noted = -1;
    symmResult_t status = join_alloc(j);
    if (status != symmSuccess) symm_mesh_tcp_join_free(t);
    return status;
}

symmResult_t symm_mesh_tcp_connect(symm_mesh *m, const symm_mesh_addr *addrs, void *shared,
                                   const symm_wait *w) {
    symm_mesh_tcp *t = (symm_mesh_tcp *)m;
    join *j = t->join;
    (void)shared;
    if (!j)
        return SYMM_ERR(symmInternalError, "the control mesh was connected before (%s)", w->stage);
    j->addrs = addrs;
    j->w = w;
    symmResult_t status = join_all(j);
    symm_mesh_fd_close(&t->listener);
    if (status != symmSuccess) farewell(j, status);
    symm_mesh_tcp_join_free(t);
    return status;
}
