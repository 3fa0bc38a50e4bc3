/* mesh_tcp_stream.c - single steps on one TCP connection of the control mesh: some bytes out, a
 * message in. Any thread, one at a time per direction. No lock: the kernel orders the bytes.
 *
 * Bytes are taken as they come, and a message is put together from them. To leave them in the
 * socket until all are there would not do: the kernel opens a window that is closed only after
 * something was read, so the rest of the message might never come. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "mesh_tcp.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>

#include "base/fail.h"
#include "base/fd.h"
#include "base/stats.h"
#include "transport/boot/lifeline.h"

#define DRAIN_READS 1024 /* of 4 KiB: more than a peer that waits for this rank has sent */

int symm_mesh_tcp_socket(int family) {
    symm_lifeline_lock();
    int s = symm_fd_above(SYMM_FAIL_CALL(
        mesh_fd, -1, EMFILE, socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)));
    symm_lifeline_add(s);
    symm_lifeline_unlock();
    if (s >= 0) SYMM_STAT_ADD(fds, 1);
    return s;
}

int symm_mesh_tcp_outcome(int fd) {
    int error = 0;
    socklen_t len = sizeof error;
    if (SYMM_FAIL_CALL(mesh_outcome, -1, ENOBUFS,
                       getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len)) != 0)
        return errno;
    return error;
}

const char *symm_mesh_tcp_from(int fd, const char *mine, char *buf, size_t cap) {
    static const struct in6_addr none;
    struct sockaddr_storage a = {0};
    socklen_t len = sizeof a;
    const int known = fd >= 0 && getsockname(fd, (struct sockaddr *)&a, &len) == 0;
    const int v4 = a.ss_family == AF_INET;
    const void *at = v4 ? (const void *)&((const struct sockaddr_in *)&a)->sin_addr
                        : (const void *)&((const struct sockaddr_in6 *)&a)->sin6_addr;
    if (!known || !memcmp(at, &none, v4 ? sizeof(struct in_addr) : sizeof none))
        (void)symm_tcp_address_get((const uint8_t *)mine, &a, &len);
    return symm_tcp_interface_text(&a, buf, cap);
}

/* After half of the time silence is probed, every second; what is not acknowledged for all of it
 * ends the connection. */
void symm_mesh_tcp_tune(int fd, int ms) {
    const int s = ms / 1000, idle = s / 2 > 0 ? s / 2 : 1;
    const unsigned gone = (unsigned)ms;
    symm_tcp_options(fd, idle, 1, s > idle ? s - idle : 1);
    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &gone, sizeof gone);
}

int symm_mesh_tcp_ended(int fd) {
    struct pollfd p = {.fd = fd, .events = POLLRDHUP};
    int n;
    do n = SYMM_FAIL_CALL(mesh_probe, -1, ENOMEM, poll(&p, 1, 0));
    while (n < 0 && errno == EINTR);
    return n > 0 && (p.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
}

/* Errors that end a connection: the peer's process, its host, or the way to it is gone. */
static int is_end(int error) {
    switch (error) {
    case EPIPE:
    case ECONNRESET:
    case ECONNABORTED:
    case ENOTCONN:
    case ETIMEDOUT:
    case EHOSTUNREACH:
    case EHOSTDOWN:
    case ENETUNREACH:
    case ENETDOWN: return 1;
    default: return 0;
    }
}

symmResult_t symm_mesh_tcp_write(int fd, const struct iovec *iov, int n, size_t *sent, int *state) {
    struct msghdr msg = {.msg_iov = (struct iovec *)(uintptr_t)iov, .msg_iovlen = (size_t)n};
    ssize_t k;
    do k = SYMM_FAIL_CALL(mesh_sendmsg, -1, EIO, sendmsg(fd, &msg, MSG_NOSIGNAL | MSG_DONTWAIT));
    while (k < 0 && errno == EINTR);
    *sent = k < 0 ? 0 : (size_t)k;
    *state = MESH_READY;
    if (k >= 0) return symmSuccess;
    if (errno == EAGAIN)
        *state = MESH_NOTHING;
    else if (errno == ENOBUFS || errno == ENOMEM)
        *state = MESH_BUSY;
    else if (is_end(errno))
        *state = MESH_GONE;
    else
        return SYMM_ERR(symmSystemError, "sendmsg on the control mesh: %m");
    return symmSuccess;
}

/* Up to `bytes` more. *state READY: some came. */
static symmResult_t receive(int fd, symm_mesh_part *part, size_t bytes, int *state) {
    ssize_t k;
    do
        k = SYMM_FAIL_CALL(mesh_recvmsg, -1, EIO,
                           recv(fd, part->got + part->have, bytes, MSG_DONTWAIT));
    while (k < 0 && errno == EINTR);
    if (k > 0) part->have += (size_t)k;
    *state = k > 0 ? MESH_READY : MESH_GONE;
    if (k < 0 && errno == EAGAIN) *state = MESH_NOTHING;
    if (k >= 0 || errno == EAGAIN || is_end(errno)) return symmSuccess;
    return SYMM_ERR(symmSystemError, "recv on the control mesh: %m");
}

symmResult_t symm_mesh_tcp_take(int fd, symm_mesh_part *part, symm_mesh_in *in, int *state) {
    in->why = NULL;
    in->nfds = in->truncated = 0;
    *state = MESH_READY;
    for (size_t need = SYMM_WIRE_HEADER;;) {
        if (part->have >= SYMM_WIRE_HEADER) {
            in->why = symm_wire_head(part->got, SYMM_MESH_MAX, 0, &in->head);
            if (in->why) return symmSuccess; /* nothing behind it can be read */
            need = SYMM_WIRE_HEADER + in->head.bytes;
        }
        if (part->have == need) break;
        SYMM_TRY(receive(fd, part, need - part->have, state));
        if (*state != MESH_READY) return symmSuccess;
    }
    memcpy(in->buf, part->got, part->have);
    part->have = 0;
    return symmSuccess;
}

/* A close with unread bytes would make the kernel throw away what it has not delivered yet, and
 * with it why this rank leaves. */
void symm_mesh_tcp_end(int *fd) {
    char unread[4096];
    if (*fd < 0) return;
    shutdown(*fd, SHUT_WR);
    for (int i = 0; i < DRAIN_READS && recv(*fd, unread, sizeof unread, MSG_DONTWAIT) > 0; i++) {
    }
    shutdown(*fd, SHUT_RDWR);
    symm_mesh_fd_close(fd);
}
