/* mesh_join.c - how processes connect: rank r connects to every lower rank and accepts every higher
 * one. Both sides check the other's credentials and send HELLO, which shows the receiver's nonce.
 * Every process of the host can connect to an abstract name. So a connection that is not from an
 * awaited rank is closed, and a silent one is kept in a short list; neither delays the ranks. Runs
 * in the thread that owns the mesh. No lock. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "mesh_impl.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/fail.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/stats.h"

#define HELD_EXTRA     16  /* silent connections that are kept beyond one per rank */
#define ACCEPT_BURST   64  /* connections accepted between two looks at the others */
#define DIAL_TRIES     200 /* how often a living listener may close this rank's connection */
#define DIAL_MS        5   /* pause between attempts */
#define WATCH_AFTER_NS 20000000ull /* after that the processes of missing ranks are watched */

/* What a pollfd stands for; AWAITED: the pidfd of a higher rank that has not connected yet. */
enum { AT_ANSWER, AT_HELD, AT_UP, AT_AWAITED, AT_LISTENER };

typedef struct symm_mesh_join {
    symm_mesh_unix *u;
    const symm_mesh_addr *addrs;
    const symm_wait *w;
    int n, rank, left; /* left: peers not yet connected */
    uint64_t dial_at;  /* no attempt to connect before this time */
    int *dial;         /* [n] lower ranks: connected, HELLO sent, answer awaited */
    int *tries;        /* [n] */
    int *pidfds;       /* [n] -1 none, -2 not tried */
    int *held;         /* accepted, but silent so far; oldest first */
    int nheld, max_held;
    struct pollfd *polls;
    struct {
        int kind, index;
    } * at; /* what each of polls stands for */
} join;

/* ---- who is it ---- */

static int same_pidns(const join *j, int peer) {
    return j->u->mine.pidns && j->u->mine.pidns == j->addrs[peer].pidns;
}

static int is_rank(const join *j, const struct ucred *c, int peer) {
    const symm_mesh_addr *a = &j->addrs[peer];
    if (c->uid != geteuid() || c->uid != a->uid) return 0;
    return !same_pidns(j, peer) || (uint32_t)c->pid == a->pid;
}

static int credentials(int fd, struct ucred *c) {
    socklen_t len = sizeof *c;
    *c = (struct ucred){.pid = -1, .uid = (uid_t)-1, .gid = (gid_t)-1};
    return SYMM_FAIL_CALL(mesh_who, -1, ENOBUFS,
                          getsockopt(fd, SOL_SOCKET, SO_PEERCRED, c, &len)) == 0 &&
           len == sizeof *c;
}

static int awaits(const join *j, int peer) {
    return peer > j->rank && j->u->fds[peer] < 0;
}

static void turn_away(join *j, int *fd, const char *why) {
    struct ucred c = {.pid = -1, .uid = (uid_t)-1};
    credentials(*fd, &c);
    snprintf(j->u->base.seen, sizeof j->u->base.seen,
             "turned away a connection of pid %d uid %d: %s", (int)c.pid, (int)c.uid, why);
    SYMM_INFO("control mesh: %s", j->u->base.seen);
    SYMM_STAT_ADD(intruders, 1);
    symm_mesh_fd_close(fd);
}

static symmResult_t say_hello(const join *j, int fd, int peer, int *state) {
    symm_wire_msg hello = {.type = SYMM_MSG_HELLO,
                           .from = (uint32_t)j->rank,
                           .to = (uint32_t)peer,
                           .nonce = j->addrs[peer].nonce};
    return symm_mesh_packet_put(fd, &hello, NULL, NULL, state);
}

const char *symm_mesh_judge(symm_mesh *m, uint64_t nonce) {
    symm_mesh_in *in = &m->in;
    int fds = in->nfds || in->truncated;
    symm_mesh_in_drop(in);
    if (in->why) return in->why;
    if (fds || in->head.nfds) return "a greeting that carries file descriptors";
    int hello = in->head.type == SYMM_MSG_HELLO && !in->head.bytes;
    if (!hello && in->head.type != SYMM_MSG_REVOKE) return "no greeting";
    if (in->head.nonce != nonce) return "wrong nonce";
    if (in->head.to != (uint32_t)m->rank) return "meant for another rank";
    return NULL;
}

static const char *judge(join *j) {
    return symm_mesh_judge(&j->u->base, j->u->mine.nonce);
}

static void establish(join *j, int *fd, int peer) {
    j->u->fds[peer] = *fd;
    *fd = -1;
    j->left--;
    symm_mesh_fd_close(&j->pidfds[peer]);
}

static int is_revoke(const join *j) {
    return j->u->base.in.head.type == SYMM_MSG_REVOKE;
}

static symmResult_t died(join *j, int peer) {
    return symm_mesh_lost(&j->u->base, peer, j->w);
}

/* ---- lower ranks: dial and wait for the answer ---- */

static void pause_dialing(join *j) {
    j->dial_at = symm_now_ns() + DIAL_MS * 1000000ull;
}

/* One connect; the fd, or -1 with errno. */
static int try_connect(const join *j, int peer) {
    struct sockaddr_un sa = {.sun_family = AF_UNIX};
    size_t n = strnlen(j->addrs[peer].name, sizeof j->addrs[peer].name);
    memcpy(sa.sun_path + 1, j->addrs[peer].name, n);
    socklen_t len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + n);
    int rc, fd = symm_mesh_socket();
    if (fd < 0) return -1;
    do rc = SYMM_FAIL_CALL(mesh_dial, -1, ENOMEM, connect(fd, (struct sockaddr *)&sa, len));
    while (rc != 0 && errno == EINTR);
    if (rc == 0) return fd;
    int why = errno;
    symm_mesh_fd_close(&fd);
    errno = why;
    return -1;
}

static symmResult_t connect_failed(join *j, int peer) {
    switch (errno) {
    case EAGAIN:
        pause_dialing(j);
        return symmSuccess; /* its queue is full */
    /* It listened before any rank knew its address, so no listener means that it is gone. */
    case ECONNREFUSED:
    case ECONNRESET: return died(j, peer);
    case EMFILE:
    case ENFILE:
        return SYMM_ERR(symmFdLimit,
                        "no file descriptor left to connect to rank %d: %m (ulimit -n) (%s)", peer,
                        j->w->stage);
    default:
        return SYMM_ERR(symmSystemError, "connect to rank %d's control socket: %m (%s)", peer,
                        j->w->stage);
    }
}

static symmResult_t dial(join *j, int peer) {
    struct ucred c;
    int state = MESH_GONE;
    if (SYMM_FAIL_HERE(mesh_connect)) {
        return SYMM_ERR(symmSystemError, "failpoint mesh_connect: to rank %d (%s)", peer,
                        j->w->stage);
    }
    j->dial[peer] = try_connect(j, peer);
    if (j->dial[peer] < 0) return connect_failed(j, peer);
    if (!credentials(j->dial[peer], &c))
        return SYMM_ERR(symmSystemError, "asking whose rank %d's control socket is: %m (%s)", peer,
                        j->w->stage);
    if (!is_rank(j, &c, peer)) {
        symm_mesh_fd_close(&j->dial[peer]);
        j->u->base.blame = peer;
        return SYMM_ERR(
            symmRemoteError,
            "rank %d died or left: its control socket belongs to pid %d uid %d now (%s)", peer,
            (int)c.pid, (int)c.uid, j->w->stage);
    }
    SYMM_TRY(say_hello(j, j->dial[peer], peer, &state));
    if (state == MESH_READY) return symmSuccess;
    symm_mesh_fd_close(&j->dial[peer]); /* it hung up meanwhile: try again */
    pause_dialing(j);
    return symmSuccess;
}

/* The peer has closed the connection, perhaps because strangers filled its list. If it is dead, the
 * next attempt shows that. */
static symmResult_t dial_later(join *j, int peer) {
    symm_mesh_fd_close(&j->dial[peer]);
    pause_dialing(j);
    if (++j->tries[peer] < DIAL_TRIES) return symmSuccess;
    return SYMM_ERR(symmRemoteError, "rank %d turned this rank's connections away %d times (%s)",
                    peer, j->tries[peer], j->w->stage);
}

static symmResult_t on_answer(join *j, int peer) {
    int state;
    SYMM_TRY(symm_mesh_packet_take(j->dial[peer], &j->u->base.in, &state));
    if (state == MESH_NOTHING) return symmSuccess;
    if (state == MESH_GONE) return dial_later(j, peer);
    const char *why = judge(j);
    if (!why && j->u->base.in.head.from != (uint32_t)peer) why = "from another rank";
    if (!why) {
        establish(j, &j->dial[peer], peer);
        return is_revoke(j) ? symm_mesh_obey(&j->u->base, peer) : symmSuccess;
    }
    return SYMM_ERR(symmInternalError, "rank %d answered with no greeting: %s (%s)", peer, why,
                    j->w->stage);
}

/* *ms is lowered to when it should be called again. */
static symmResult_t dial_all(join *j, int *ms) {
    int waiting = 0;
    for (int p = 0; p < j->rank; p++) {
        if (j->u->fds[p] >= 0 || j->dial[p] >= 0) continue;
        if (symm_now_ns() >= j->dial_at) SYMM_TRY(dial(j, p));
        waiting |= j->dial[p] < 0;
    }
    if (waiting && *ms > DIAL_MS) *ms = DIAL_MS;
    return symmSuccess;
}

/* ---- higher ranks: accept ---- */

/* Looks for a message on a held connection; leaves -1 in *fd unless it is still silent. */
static symmResult_t on_held(join *j, int *fd) {
    struct ucred c;
    int state;
    if (symm_mesh_packet_take(*fd, &j->u->base.in, &state) != symmSuccess) state = MESH_GONE;
    if (state == MESH_NOTHING) return symmSuccess;
    const char *why = state == MESH_GONE ? "hung up without a greeting" : judge(j);
    int from = -1;
    if (!why && j->u->base.in.head.from < (uint32_t)j->n) from = (int)j->u->base.in.head.from;
    if (!why && (from < 0 || !awaits(j, from))) why = "greets as a rank that is not awaited";
    if (!why && (!credentials(*fd, &c) || !is_rank(j, &c, from))) why = "greets as another process";
    if (why) {
        turn_away(j, fd, why);
        return symmSuccess;
    }
    establish(j, fd, from); /* first: if the rank is gone already, its queue may have the cause */
    if (is_revoke(j)) return symm_mesh_obey(&j->u->base, from);
    SYMM_TRY(say_hello(j, j->u->fds[from], from, &state));
    return state == MESH_READY ? symmSuccess : died(j, from);
}

/* Connections that were settled are -1 in the list; closes the gaps. */
static void compact(join *j) {
    int kept = 0;
    for (int i = 0; i < j->nheld; i++) {
        if (j->held[i] >= 0) j->held[kept++] = j->held[i];
    }
    j->nheld = kept;
}

static symmResult_t hold(join *j, int fd) {
    struct ucred c;
    int known = 0;
    if (credentials(fd, &c)) {
        for (int p = j->rank + 1; p < j->n && !known; p++)
            known = awaits(j, p) && is_rank(j, &c, p);
    }
    if (!known) {
        turn_away(j, &fd, "not an awaited rank's process");
        return symmSuccess;
    }
    symmResult_t status = on_held(j, &fd); /* a rank greets as soon as it is connected */
    if (status != symmSuccess) {
        symm_mesh_fd_close(&fd);
        return status;
    }
    if (fd < 0) return symmSuccess;
    compact(j);
    if (j->nheld == j->max_held) {
        turn_away(j, &j->held[0], "said nothing while others wait");
        compact(j);
    }
    j->held[j->nheld++] = fd;
    return symmSuccess;
}

/* accept failed. *more: whether to go on. At the limit of fds the oldest silent connection is
 * closed. */
static symmResult_t accept_failed(join *j, int *more) {
    *more = errno == EINTR || errno == ECONNABORTED;
    if (*more || errno == EAGAIN) return symmSuccess;
    if (errno != EMFILE && errno != ENFILE) {
        return SYMM_ERR(symmSystemError, "accept on the control mesh: %m (%s)", j->w->stage);
    }
    compact(j);
    if (!j->nheld) {
        return SYMM_ERR(symmFdLimit,
                        "no file descriptor left for the connection of a rank: %m (ulimit -n) (%s)",
                        j->w->stage);
    }
    turn_away(j, &j->held[0], "said nothing while file descriptors are short");
    *more = 1;
    return symmSuccess;
}

static symmResult_t on_listener(join *j) {
    int more = 1;
    if (SYMM_FAIL_HERE(mesh_accept)) {
        return SYMM_ERR(symmSystemError, "failpoint mesh_accept (%s)", j->w->stage);
    }
    for (int i = 0; i < ACCEPT_BURST && more && j->left; i++) {
        int fd = symm_mesh_accept(j->u->listener);
        if (fd < 0)
            SYMM_TRY(accept_failed(j, &more));
        else
            SYMM_TRY(hold(j, fd));
    }
    return symmSuccess;
}

/* ---- deaths ---- */

/* A higher rank that dies before it connects leaves no connection that could show it. So its
 * process is watched, if both are in one pid namespace. Best effort: without pidfds the deadline
 * finds it. */
static symmResult_t watch_awaited(join *j) {
#ifdef SYS_pidfd_open
    for (int p = j->rank + 1; p < j->n; p++) {
        if (!awaits(j, p) || j->pidfds[p] != -2) continue;
        j->pidfds[p] = -1;
        if (!same_pidns(j, p) || j->addrs[p].pid == (uint32_t)getpid()) continue;
        int fd = symm_fd_above(SYMM_FAIL_CALL(
            mesh_pidfd, -1, EPERM, (int)syscall(SYS_pidfd_open, (pid_t)j->addrs[p].pid, 0)));
        if (fd < 0 && errno == ESRCH) return died(j, p);
        if (fd < 0) continue;
        SYMM_STAT_ADD(fds, 1);
        j->pidfds[p] = fd;
    }
#else
    (void)j;
#endif
    return symmSuccess;
}

/* ---- giving up ---- */

/* Tells this rank's failure to the lower ranks that have no connection to it yet. Connected ranks
 * hear it from symm_mesh_spread; higher ranks find no listener any more. Best effort: reports
 * nothing, and uses one fd at a time. */
static void farewell(join *j, symmResult_t code) {
    const symm_mesh *m = &j->u->base;
    symm_vote v;
    symm_mesh_vote(&v, code, symm_mesh_about(m, code), j->w->stage, symm_status_text());
    for (int p = 0; p < j->rank; p++) {
        struct ucred c;
        int state, *fd = &j->dial[p];
        if (j->u->fds[p] >= 0 || !symm_mesh_alive(m, p)) continue;
        if (*fd < 0) {
            *fd = try_connect(j, p);
            if (*fd < 0 || !credentials(*fd, &c) || !is_rank(j, &c, p)) continue;
        }
        symm_wire_msg head = {.type = SYMM_MSG_REVOKE,
                              .bytes = sizeof v,
                              .from = (uint32_t)j->rank,
                              .to = (uint32_t)p,
                              .nonce = j->addrs[p].nonce};
        symm_mesh_packet_put(*fd, &head, &v, NULL, &state);
        symm_mesh_fd_close(fd);
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
        add(j, &n, j->dial[p], POLLIN, AT_ANSWER, p);
        add(j, &n, j->u->fds[p], POLLRDHUP, AT_UP, p);
        add(j, &n, j->pidfds[p], POLLIN, AT_AWAITED, p);
    }
    for (int i = 0; i < j->nheld; i++) add(j, &n, j->held[i], POLLIN, AT_HELD, i);
    add(j, &n, j->u->listener, POLLIN, AT_LISTENER, 0);
    return n;
}

static symmResult_t dispatch(join *j, nfds_t n) {
    for (nfds_t i = 0; i < n; i++) {
        int index = j->at[i].index;
        if (!j->polls[i].revents) continue;
        switch (j->at[i].kind) {
        case AT_ANSWER: SYMM_TRY(on_answer(j, index)); break;
        case AT_HELD: SYMM_TRY(on_held(j, &j->held[index])); break;
        case AT_LISTENER: SYMM_TRY(on_listener(j)); break;
        default: return died(j, index);
        }
    }
    return symmSuccess;
}

static symmResult_t join_all(join *j) {
    symm_mesh *m = &j->u->base;
    uint64_t start = symm_now_ns();
    while (j->left) {
        int ms;
        for (int p = 0; p < j->n; p++) {
            m->pending[p] = p != j->rank && j->u->fds[p] < 0 ? MESH_IN : 0;
        }
        SYMM_TRY(symm_mesh_look(m, m->pending, j->w, &ms));
        SYMM_TRY(dial_all(j, &ms));
        nfds_t n = collect(j);
        int found = SYMM_FAIL_CALL(mesh_await, -1, ENOMEM, poll(j->polls, n, ms));
        if (found > 0) SYMM_TRY(dispatch(j, n));
        /* not worth its calls if all ranks are on time */
        if (symm_now_ns() - start > WATCH_AFTER_NS) SYMM_TRY(watch_awaited(j));
    }
    return symmSuccess;
}

static symmResult_t join_alloc(join *j) {
    size_t n = (size_t)j->n;
    j->max_held = j->n + HELD_EXTRA;
    size_t places = 3 * n + (size_t)j->max_held + 1;
    j->dial = malloc(n * sizeof *j->dial);
    j->tries = calloc(n, sizeof *j->tries);
    j->pidfds = malloc(n * sizeof *j->pidfds);
    j->held = malloc((size_t)j->max_held * sizeof *j->held);
    j->polls = malloc(places * sizeof *j->polls);
    j->at = malloc(places * sizeof *j->at);
    for (int p = 0; p < j->n; p++) { /* before any error: join_free goes through them */
        if (j->dial) j->dial[p] = -1;
        if (j->pidfds) j->pidfds[p] = -2;
    }
    if (j->dial && j->tries && j->pidfds && j->held && j->polls && j->at &&
        !SYMM_FAIL_HERE(join_parts))
        return symmSuccess;
    return SYMM_ERR(symmOutOfMemory, "no memory to connect %d ranks", j->n);
}

void symm_mesh_join_free(symm_mesh_unix *u) {
    join *j = u->join;
    u->join = NULL;
    if (!j) return;
    for (int p = 0; p < j->n; p++) {
        if (j->dial) symm_mesh_fd_close(&j->dial[p]);
        if (j->pidfds) symm_mesh_fd_close(&j->pidfds[p]);
    }
    for (int i = 0; i < j->nheld; i++) symm_mesh_fd_close(&j->held[i]);
    free(j->dial);
    free(j->tries);
    free(j->pidfds);
    free(j->held);
    free(j->polls);
    free(j->at);
    free(j);
}

symmResult_t symm_mesh_join_new(symm_mesh_unix *u) {
    join *j = SYMM_FAIL_ALLOC(join_alloc, calloc(1, sizeof *j));
    if (!j) return SYMM_ERR(symmOutOfMemory, "no memory to connect %d ranks", u->base.nranks);
    u->join = j;
    j->u = u;
    j->n = u->base.nranks;
    j->rank = u->base.rank;
    j->left = j->n - 1;
    symmResult_t status = join_alloc(j);
    if (status != symmSuccess) symm_mesh_join_free(u);
    return status;
}

symmResult_t symm_mesh_unix_join(symm_mesh *m, const symm_mesh_addr *addrs, void *shared,
                                 const symm_wait *w) {
    symm_mesh_unix *u = (symm_mesh_unix *)m;
    join *j = u->join;
    (void)shared;
    if (!j)
        return SYMM_ERR(symmInternalError, "the control mesh was connected before (%s)", w->stage);
    j->addrs = addrs;
    j->w = w;
    for (int p = 0; p < j->n; p++) u->nonces[p] = addrs[p].nonce;
    symmResult_t status = join_all(j);
    symm_mesh_fd_close(&u->listener);
    if (status != symmSuccess) farewell(j, status);
    symm_mesh_join_free(u);
    return status;
}
