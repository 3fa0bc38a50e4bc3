/* mesh_packet.c - single steps on one AF_UNIX SOCK_SEQPACKET socket: one packet out, one packet in,
 * with the descriptors that travel along (SCM_RIGHTS). Any thread, one at a time per direction of a
 * socket. No lock: the kernel orders the packets of a socket. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "mesh_impl.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fail.h"
#include "base/fd.h"
#include "base/stats.h"
#include "transport/boot/lifeline.h"

int symm_mesh_socket(void) {
    symm_lifeline_lock();
    int s = symm_fd_above(SYMM_FAIL_CALL(
        mesh_fd, -1, EMFILE, socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)));
    symm_lifeline_add(s);
    symm_lifeline_unlock();
    if (s >= 0) SYMM_STAT_ADD(fds, 1);
    return s;
}

int symm_mesh_accept(int listener) {
    symm_lifeline_lock();
    int fd = symm_fd_above(SYMM_FAIL_CALL(
        mesh_take, -1, EMFILE, accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK)));
    symm_lifeline_add(fd);
    symm_lifeline_unlock();
    if (fd >= 0) SYMM_STAT_ADD(fds, 1);
    return fd;
}

void symm_mesh_fd_close(int *fd) {
    if (*fd < 0) return;
    symm_lifeline_close(*fd);
    SYMM_STAT_ADD(fds, -1);
    *fd = -1;
}

static symmResult_t put_failed(int *state) {
    switch (errno) {
    case EAGAIN: *state = MESH_NOTHING; return symmSuccess;
    case EPIPE:
    case ECONNRESET:
    case ENOTCONN: *state = MESH_GONE; return symmSuccess;
    case ETOOMANYREFS: /* of this user's fds are in flight; receivers will take some out */
    case ENOBUFS:
    case ENOMEM: *state = MESH_BUSY; return symmSuccess;
    default: return SYMM_ERR(symmSystemError, "sendmsg on the control mesh: %m");
    }
}

symmResult_t symm_mesh_packet_put(int fd, const symm_wire_msg *head, const void *payload,
                                  const int *fds, int *state) {
    uint8_t raw[SYMM_WIRE_HEADER];
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(SYMM_MESH_FDS * sizeof(int))];
    struct iovec iov[2] = {{raw, sizeof raw}, {(void *)(uintptr_t)payload, head->bytes}};
    struct msghdr msg = {.msg_iov = iov, .msg_iovlen = head->bytes ? 2 : 1};
    symm_wire_put(head, raw);
    if (head->nfds) {
        size_t bytes = head->nfds * sizeof(int);
        memset(control, 0, sizeof control);
        msg.msg_control = control;
        msg.msg_controllen = CMSG_SPACE(bytes);
        struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(bytes);
        memcpy(CMSG_DATA(c), fds, bytes);
    }
    ssize_t n;
    do n = SYMM_FAIL_CALL(mesh_sendmsg, -1, EIO, sendmsg(fd, &msg, MSG_NOSIGNAL | MSG_DONTWAIT));
    while (n < 0 && errno == EINTR);
    if (n < 0) return put_failed(state);
    *state = MESH_READY;
    return symmSuccess;
}

static void collect_fds(struct msghdr *msg, symm_mesh_in *in) {
    for (struct cmsghdr *c = CMSG_FIRSTHDR(msg); c; c = CMSG_NXTHDR(msg, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
        int n = (int)((c->cmsg_len - CMSG_LEN(0)) / sizeof(int));
        for (int i = 0; i < n; i++) {
            int fd;
            memcpy(&fd, CMSG_DATA(c) + (size_t)i * sizeof fd, sizeof fd);
            fd = symm_fd_above(fd);
            if (fd < 0) { /* at the limit of descriptors: as if the kernel had found that */
                in->truncated = 1;
            } else if (in->nfds < MESH_SCM_MAX) {
                in->fds[in->nfds++] = fd;
                SYMM_STAT_ADD(fds, 1);
            } else {
                close(fd); /* the kernel never sends more; if it did, none may stay open */
            }
        }
    }
}

/* What recvmsg's errno means. ECONNRESET comes once, before messages that the peer had sent: take
 * those first. */
static symmResult_t take_failed(int *state, int *again) {
    *again = errno == EINTR || errno == ECONNRESET;
    if (*again) return symmSuccess;
    if (errno == EAGAIN) {
        *state = MESH_NOTHING;
        return symmSuccess;
    }
    if (errno == ENOTCONN) {
        *state = MESH_GONE;
        return symmSuccess;
    }
    return SYMM_ERR(symmSystemError, "recvmsg on the control mesh: %m");
}

/* One recvmsg. *n -1: nothing is there, and *state says why. 0: the end of file if no fds came; or
 * an empty packet, which the library never sends. */
static symmResult_t receive(int fd, symm_mesh_in *in, ssize_t *n, int *state) {
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(MESH_SCM_MAX * sizeof(int))];
    struct iovec iov = {in->buf, sizeof in->buf};
    struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
    int again = 0;
    in->nfds = in->truncated = 0;
    do {
        msg.msg_control = control;
        msg.msg_controllen = sizeof control;
        *n = SYMM_FAIL_CALL(mesh_recvmsg, -1, EIO,
                            recvmsg(fd, &msg, MSG_CMSG_CLOEXEC | MSG_DONTWAIT));
        if (*n < 0) SYMM_TRY(take_failed(state, &again));
    } while (*n < 0 && again);
    if (*n < 0) return symmSuccess;
    collect_fds(&msg, in);
    in->truncated |= (msg.msg_flags & MSG_CTRUNC) != 0;
    in->why = msg.msg_flags & MSG_TRUNC ? "longer than any message" : NULL;
    return symmSuccess;
}

static int is_end(const symm_mesh_in *in, ssize_t n) {
    return n == 0 && !in->nfds && !in->truncated;
}

symmResult_t symm_mesh_packet_take(int fd, symm_mesh_in *in, int *state) {
    ssize_t n;
    SYMM_TRY(receive(fd, in, &n, state));
    if (n < 0) return symmSuccess;
    /* The kernel looks into the queue first and then asks whether the peer has shut down. If the
     * peer sends its last message and ends between the two, the kernel reports the end while that
     * message is in the queue. So the end counts only after one more look has found nothing. */
    const int ended = is_end(in, n);
    if (ended) SYMM_TRY(receive(fd, in, &n, state));
    if (ended && is_end(in, n)) {
        *state = MESH_GONE;
        return symmSuccess;
    }
    if (n < 0) /* it has not ended: a stranger sent an empty packet */
        in->why = "empty";
    else if (!in->why)
        in->why = symm_wire_parse(in->buf, (size_t)n, SYMM_MESH_MAX, SYMM_MESH_FDS, &in->head);
    *state = MESH_READY;
    return symmSuccess;
}
