/* mesh_unix.c - the control mesh between processes: one AF_UNIX SOCK_SEQPACKET connection between
 * every two ranks, and the listener that they connect to. Every message shows the nonce of its
 * receiver. Runs in the thread that owns the mesh; put, fd and hung_up in any thread. No lock: the
 * kernel orders the messages of one socket. */
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
#include <sys/un.h>
#include <unistd.h>

#include "base/fail.h"
#include "base/fd.h"
#include "base/stats.h"
#include "transport/boot/lifeline.h"

/* Room in the listener's queue beside the ranks, so that strangers do not fill it at once. Ranks
 * retry at a full one. */
#define BACKLOG_EXTRA 64
#define NAME_TRIES    16

/* ---- the operations ---- */

static symmResult_t put(symm_mesh *m, int peer, int type, const void *payload, size_t bytes,
                        const int *fds, int nfds, int *state) {
    const symm_mesh_unix *u = (symm_mesh_unix *)m;
    *state = MESH_GONE;
    if (u->fds[peer] < 0) return symmSuccess;
    symm_wire_msg head = {.type = (uint16_t)type,
                          .nfds = (uint16_t)nfds,
                          .bytes = (uint32_t)bytes,
                          .from = (uint32_t)m->rank,
                          .to = (uint32_t)peer,
                          .nonce = u->nonces[peer]};
    return symm_mesh_packet_put(u->fds[peer], &head, payload, fds, state);
}

static symmResult_t take(symm_mesh *m, int peer, int *state) {
    const symm_mesh_unix *u = (symm_mesh_unix *)m;
    symm_mesh_in *in = &m->in;
    *state = MESH_GONE;
    if (u->fds[peer] < 0) return symmSuccess;
    SYMM_TRY(symm_mesh_packet_take(u->fds[peer], in, state));
    if (*state != MESH_READY || in->why) return symmSuccess;
    if (in->head.nonce != u->mine.nonce || in->head.from != (uint32_t)peer ||
        in->head.to != (uint32_t)m->rank) {
        in->why = "wrong nonce, sender or receiver";
    }
    return symmSuccess;
}

static void wait_unix(symm_mesh *m, uint8_t *want, int ms) {
    const symm_mesh_unix *u = (symm_mesh_unix *)m;
    nfds_t n = 0;
    for (int r = 0; r < m->nranks; r++) {
        if (!want[r] || u->fds[r] < 0) continue;
        short events = POLLRDHUP;
        if (want[r] & MESH_IN) events |= POLLIN;
        if (want[r] & MESH_OUT) events |= POLLOUT;
        u->polls[n++] = (struct pollfd){.fd = u->fds[r], .events = events};
    }
    /* After a signal, or without memory: the caller looks and comes back. */
    if (SYMM_FAIL_CALL(mesh_poll, -1, ENOMEM, poll(u->polls, n, ms)) <= 0) return;
    n = 0;
    for (int r = 0; r < m->nranks; r++) {
        if (!want[r] || u->fds[r] < 0) continue;
        if (u->polls[n++].revents & (POLLRDHUP | POLLHUP)) want[r] |= MESH_LOST;
    }
}

/* The kernel keeps the fds of a message that is only looked at. */
static size_t next_unix(symm_mesh *m, int peer, uint8_t *raw, size_t cap) {
    const int fd = ((symm_mesh_unix *)m)->fds[peer];
    ssize_t n;
    if (fd < 0) return 0;
    do n = recv(fd, raw, cap, MSG_PEEK | MSG_DONTWAIT);
    while (n < 0 && errno == EINTR);
    return n > 0 ? (size_t)n : 0;
}

static int hung_up(const symm_mesh *m, int peer) {
    struct pollfd p = {.fd = ((const symm_mesh_unix *)m)->fds[peer], .events = POLLRDHUP};
    if (p.fd < 0) return 0;
    int n;
    do n = SYMM_FAIL_CALL(mesh_probe, -1, ENOMEM, poll(&p, 1, 0));
    while (n < 0 && errno == EINTR);
    return n > 0 && (p.revents & (POLLRDHUP | POLLHUP)) != 0;
}

static int peer_fd(const symm_mesh *m, int peer) {
    return ((const symm_mesh_unix *)m)->fds[peer];
}

/* Shuts down, so that peers see the end now: a child that was not made by fork() may have
 * copies. */
static void close_unix(symm_mesh *m) {
    symm_mesh_unix *u = (symm_mesh_unix *)m;
    int mine = getpid() == m->owner;
    symm_mesh_join_free(u);
    symm_mesh_fd_close(&u->listener);
    for (int r = 0; r < m->nranks; r++) {
        if (mine && u->fds[r] >= 0) shutdown(u->fds[r], SHUT_RDWR);
        symm_mesh_fd_close(&u->fds[r]);
    }
    free(u->fds);
    free(u->polls);
    free(u->nonces);
}

static const symm_mesh_ops unix_ops = {
    .connect = symm_mesh_unix_join,
    .put = put,
    .take = take,
    .wait = wait_unix,
    .next = next_unix,
    .hung_up = hung_up,
    .fd = peer_fd,
    .close = close_unix,
};

/* ---- the listener ---- */

/* A random name. If it is taken, another one is tried. */
static symmResult_t bind_name(int fd, symm_mesh_addr *a) {
    for (int i = 0; i < NAME_TRIES; i++) {
        struct sockaddr_un sa = {.sun_family = AF_UNIX};
        uint64_t r[2];
        SYMM_TRY(symm_mesh_random(r, sizeof r));
        int n = snprintf(a->name, sizeof a->name, "symm-%016llx%016llx", (unsigned long long)r[0],
                         (unsigned long long)r[1]);
        memcpy(sa.sun_path + 1, a->name, (size_t)n);
        socklen_t len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
        if (SYMM_FAIL_CALL(mesh_bind, -1, ENOMEM, bind(fd, (struct sockaddr *)&sa, len)) == 0)
            return symmSuccess;
        if (errno != EADDRINUSE) break;
    }
    return SYMM_ERR(symmSystemError, "bind of the control mesh's socket: %m");
}

static symmResult_t open_listener(symm_mesh_unix *u) {
    if (SYMM_FAIL_HERE(mesh_socket)) {
        return SYMM_ERR(symmSystemError, "failpoint mesh_socket (rank %d)", u->base.rank);
    }
    SYMM_TRY(symm_mesh_describe(&u->mine));
    u->listener = symm_mesh_socket();
    if (u->listener < 0) {
        int limit = errno == EMFILE || errno == ENFILE;
        return SYMM_ERR(limit ? symmFdLimit : symmSystemError,
                        "no socket for the control mesh: %m%s", limit ? " (ulimit -n)" : "");
    }
    SYMM_TRY(bind_name(u->listener, &u->mine));
    if (SYMM_FAIL_CALL(mesh_listen, -1, ENOMEM,
                       listen(u->listener, u->base.nranks + BACKLOG_EXTRA)) != 0) {
        return SYMM_ERR(symmSystemError, "listen on the control mesh's socket: %m");
    }
    return symmSuccess;
}

symmResult_t symm_mesh_unix_listen(int rank, int nranks, symm_mesh_addr *mine, symm_mesh **out) {
    symmResult_t status;
    symm_mesh_unix *u = SYMM_FAIL_ALLOC(mesh_alloc, calloc(1, sizeof *u));
    if (!u) return SYMM_ERR(symmOutOfMemory, "no memory for a control mesh");
    u->listener = -1;
    SYMM_TRY_GOTO(symm_mesh_init(&u->base, &unix_ops, rank, nranks), free_mesh);
    size_t n = (size_t)nranks;
    u->fds = malloc(n * sizeof *u->fds);
    u->polls = malloc(n * sizeof *u->polls);
    u->nonces = calloc(n, sizeof *u->nonces);
    if (!u->fds || !u->polls || !u->nonces || SYMM_FAIL_HERE(mesh_peers)) {
        status = SYMM_ERR(symmOutOfMemory, "no memory for a control mesh of %d ranks", nranks);
        goto free_parts;
    }
    for (int r = 0; r < nranks; r++) u->fds[r] = -1;
    SYMM_TRY_GOTO(symm_mesh_join_new(u), free_parts);
    SYMM_TRY_GOTO(open_listener(u), close_listener);
    *mine = u->mine;
    *out = &u->base;
    return symmSuccess;

close_listener:
    symm_mesh_fd_close(&u->listener);
    symm_mesh_join_free(u);
free_parts:
    free(u->fds);
    free(u->polls);
    free(u->nonces);
    symm_mesh_fini(&u->base);
free_mesh:
    free(u);
    return status;
}
