/* boot_tcp_frame.c - the messages of the TCP bootstrap and the steps that move them over a
 * nonblocking socket; and the object that has the connections. Runs in the thread that owns it; no
 * lock. Numbers are
 * little-endian and have a fixed width. Everything that arrives is checked. */
#define _GNU_SOURCE
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/fail.h"
#include "base/stats.h"
#include "boot_tcp.h"
#include "lifeline.h"
#include "tcp_socket.h"

#define HELLO_MAGIC 0x48796d73u /* "smyH" */
#define FRAME_MAGIC 0x46796d73u /* "smyF" */

static void put32(uint8_t *p, uint32_t v) {
    for (int i = 0; i < 4; i++) p[i] = (uint8_t)(v >> (8 * i));
}

static void put64(uint8_t *p, uint64_t v) {
    put32(p, (uint32_t)v);
    put32(p + 4, (uint32_t)(v >> 32));
}

static uint32_t get32(const uint8_t *p) {
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static uint64_t get64(const uint8_t *p) {
    return get32(p) | (uint64_t)get32(p + 4) << 32;
}

/* Hello. Magic, version and secret are at the same places in every version, so a rank of another
 * version is recognised. */
void symm_tcp_hello_put(const symm_tcp_hello *h, uint8_t *out) {
    memset(out, 0, SYMM_TCP_HELLO);
    put32(out, HELLO_MAGIC);
    put32(out + 4, h->version);
    memcpy(out + 8, h->secret, SYMM_TCP_SECRET);
    put32(out + 24, (uint32_t)h->rank);
    put32(out + 28, (uint32_t)h->nranks);
    put32(out + 32, h->pid);
    put32(out + 36, h->refused);
    put64(out + 40, h->token);
}

int symm_tcp_hello_plausible(const uint8_t *in, size_t got) {
    return got < 4 || get32(in) == HELLO_MAGIC;
}

int symm_tcp_hello_get(const uint8_t *in, symm_tcp_hello *h) {
    if (get32(in) != HELLO_MAGIC) return 0;
    h->version = get32(in + 4);
    memcpy(h->secret, in + 8, SYMM_TCP_SECRET);
    h->rank = (int32_t)get32(in + 24);
    h->nranks = (int32_t)get32(in + 28);
    h->pid = get32(in + 32);
    h->refused = get32(in + 36);
    h->token = get64(in + 40);
    return 1;
}

/* Frame: magic, type, code, seq, bytes, and 8 reserved bytes that must be zero. */
static void frame_put(const symm_tcp_frame *f, uint8_t *out) {
    memset(out, 0, SYMM_TCP_FRAME);
    put32(out, FRAME_MAGIC);
    put32(out + 4, f->type);
    put32(out + 8, f->code);
    put32(out + 12, f->seq);
    put64(out + 16, f->bytes);
}

static int frame_get(const uint8_t *in, symm_tcp_frame *f) {
    f->type = get32(in + 4);
    f->code = get32(in + 8);
    f->seq = get32(in + 12);
    f->bytes = get64(in + 16);
    return get32(in) == FRAME_MAGIC && f->type > 0 && f->type < SYMM_TCP_TYPES &&
           get64(in + 24) == 0;
}

/* One read of up to `want` bytes: > 0 how many, else an outcome. */
static ssize_t read_some(int fd, void *buf, size_t want) {
    for (;;) {
        ssize_t k = SYMM_FAIL_CALL(boot_recv, -1, ECONNRESET, recv(fd, buf, want, MSG_DONTWAIT));
        if (k > 0) return k;
        if (k == 0) return SYMM_TCP_GONE;
        if (errno == EAGAIN || errno == EWOULDBLOCK) return SYMM_TCP_AGAIN;
        if (errno != EINTR) return SYMM_TCP_GONE;
    }
}

int symm_tcp_read_head(symm_tcp_conn *c, symm_tcp_frame *f) {
    while (c->head_got < SYMM_TCP_FRAME) {
        ssize_t k = read_some(c->fd, c->head + c->head_got, SYMM_TCP_FRAME - c->head_got);
        if (k <= 0) return (int)k;
        c->head_got += (size_t)k;
    }
    c->head_got = 0;
    c->body_got = 0;
    return frame_get(c->head, f) ? SYMM_TCP_DONE : SYMM_TCP_BAD;
}

int symm_tcp_peek_error(int fd, symm_tcp_frame *f, char *text, size_t cap) {
    uint8_t raw[SYMM_TCP_FRAME + SYMM_ERR_TEXT];
    const ssize_t k = recv(fd, raw, sizeof(raw), MSG_PEEK | MSG_DONTWAIT);
    *f = (symm_tcp_frame){0};
    if (k == 0) return SYMM_TCP_GONE;
    if (k < 0) return errno == EAGAIN || errno == EINTR ? SYMM_TCP_AGAIN : SYMM_TCP_GONE;
    if (k < SYMM_TCP_FRAME) return SYMM_TCP_AGAIN;
    if (!frame_get(raw, f) || f->type != SYMM_TCP_ERROR || !symm_tcp_is_error(f->code))
        return SYMM_TCP_BAD;
    if (f->bytes >= cap || f->bytes > (uint64_t)k - SYMM_TCP_FRAME) return SYMM_TCP_AGAIN;
    memcpy(text, raw + SYMM_TCP_FRAME, (size_t)f->bytes);
    text[f->bytes] = 0;
    return SYMM_TCP_DONE;
}

int symm_tcp_read_body(symm_tcp_conn *c, void *buf, uint64_t bytes) {
    while (c->body_got < bytes) {
        ssize_t k = read_some(c->fd, (char *)buf + c->body_got, (size_t)(bytes - c->body_got));
        if (k <= 0) return (int)k;
        c->body_got += (uint64_t)k;
    }
    return SYMM_TCP_DONE;
}

int symm_tcp_write(symm_tcp_conn *c, const symm_tcp_frame *f, const void *body) {
    uint8_t head[SYMM_TCP_FRAME];
    frame_put(f, head);
    while (c->sent < SYMM_TCP_FRAME + f->bytes) {
        struct iovec v[2];
        struct msghdr m = {.msg_iov = v};
        if (c->sent < SYMM_TCP_FRAME)
            v[m.msg_iovlen++] = (struct iovec){head + c->sent, (size_t)(SYMM_TCP_FRAME - c->sent)};
        uint64_t from = c->sent > SYMM_TCP_FRAME ? c->sent - SYMM_TCP_FRAME : 0;
        if (from < f->bytes)
            v[m.msg_iovlen++] = (struct iovec){(char *)body + from, (size_t)(f->bytes - from)};
        ssize_t k = SYMM_FAIL_CALL(boot_send, -1, ECONNRESET,
                                   sendmsg(c->fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL));
        if (k >= 0)
            c->sent += (uint64_t)k;
        else if (errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS)
            return SYMM_TCP_AGAIN;
        else if (errno != EINTR)
            return SYMM_TCP_GONE;
    }
    return SYMM_TCP_DONE;
}

int symm_tcp_send_small(symm_tcp_conn *c, const symm_tcp_frame *f, const void *body,
                        uint64_t limit_ns) {
    c->sent = 0;
    for (;;) {
        int k = symm_tcp_write(c, f, body);
        if (k == SYMM_TCP_DONE) return 0;
        if (k == SYMM_TCP_GONE || symm_now_ns() >= limit_ns) return -1;
        struct pollfd p = {.fd = c->fd, .events = POLLOUT};
        poll(&p, 1, 20);
    }
}

void symm_tcp_options(int fd, int idle_s, int interval_s, int count) {
    int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof(idle_s));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval_s, sizeof(interval_s));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof(count));
}

void symm_tcp_tune(int fd) {
    symm_tcp_options(fd, 30, 10, 3);
}

void symm_tcp_close(symm_tcp_conn *c) {
    if (c->fd < 0) return;
    symm_lifeline_close(c->fd);
    SYMM_STAT_ADD(fds, -1);
    c->fd = -1;
}

/* ---- the object ---- */

symmResult_t symm_tcp_make(int rank, int nranks, int root, symm_boot_tcp **out) {
    const size_t npeers = root && nranks ? (size_t)nranks : 1;
    symm_boot_tcp *t = calloc(1, sizeof(*t));
    symm_tcp_conn *peers = calloc(npeers, sizeof(*peers));
    struct pollfd *polls = calloc(1 + SYMM_TCP_PENDING + npeers, sizeof(*polls));
    if (!t || !peers || !polls || SYMM_FAIL_HERE(boot_alloc)) {
        free(t);
        free(peers);
        free(polls);
        return SYMM_ERR(symmOutOfMemory, "bootstrap tcp: out of memory (rank %d of %d)", rank,
                        nranks);
    }
    for (size_t i = 0; i < npeers; i++) peers[i].fd = -1;
    t->base = (symm_boot){.rank = rank, .nranks = nranks};
    t->root = root ? rank : -1;
    t->said = rank;
    atomic_init(&t->standing, rank < 0 ? SYMM_TCP_HOLDS : SYMM_TCP_SERVES);
    t->listener = -1;
    t->peers = peers;
    t->polls = polls;
    *out = t;
    return symmSuccess;
}

symmResult_t symm_tcp_root_expect(symm_boot_tcp *t, int nranks, int said) {
    const size_t n = (size_t)nranks;
    symm_tcp_conn *peers = realloc(t->peers, n * sizeof(*peers));
    struct pollfd *polls = realloc(t->polls, (1 + SYMM_TCP_PENDING + n) * sizeof(*polls));
    if (peers) t->peers = peers;
    if (polls) t->polls = polls;
    if (!peers || !polls)
        return SYMM_ERR(symmOutOfMemory, "bootstrap tcp: out of memory (%d ranks)", nranks);
    for (int r = 0; r < nranks; r++) peers[r] = (symm_tcp_conn){.fd = -1};
    t->base.nranks = nranks;
    t->said = said;
    return symmSuccess;
}

void symm_tcp_free(symm_boot_tcp *t) {
    const int n = t->root == t->base.rank ? t->base.nranks : 1;
    for (int i = 0; i < n; i++) symm_tcp_close(&t->peers[i]);
    free(t->peers);
    free(t->polls);
    free(t);
}
