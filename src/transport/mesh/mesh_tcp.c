/* mesh_tcp.c - the control mesh between processes of several hosts: one TCP connection between
 * every two ranks, and the listener that they connect to. Every message shows the nonce of its
 * receiver. Descriptors cannot travel. Runs in the thread that owns the mesh; put, push, peek, fd
 * and hung_up in any thread. Locks: each link has one for what is sent over it, and the mesh one
 * for what is received. No thread holds two of them. Who hears WORDs takes a lock of its own with
 * the mesh's, and holds it while it sends: so the order is mesh, that one, link.
 *
 * The kernel is the heartbeat: it probes silent connections, and ends one whose other host has not
 * answered for as long as symm_mesh_patience says. So is a peer's that has not read for that long
 * while its socket is full; exchanges have a few messages under way, far from that, and WORDs are
 * taken by any thread that looks.
 *
 * WORDs may fill a socket whose receiver looks late. A REVOKE or a LEFT goes behind them all the
 * same: it is kept, and sent once there is room, by whoever sends or pushes next. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "mesh_tcp.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fail.h"
#include "base/stats.h"

#define PEEK_BYTES (64u << 10)
#define WORD_BYTES (SYMM_WIRE_HEADER + SYMM_MESH_WORD)

enum {
    LOOKS = 2,   /* of PEEK_BYTES, in one peek: other threads wait for it */
    WORDS = 4096 /* that the owner takes before it looks at its deadline */
};

_Static_assert(SYMM_TCP_ADDRESS <= sizeof((symm_mesh_addr){0}).name, "on the wire");

/* ---- sending ---- */

/* Under l->lock. *state READY: nothing is left. */
static symmResult_t send_rest(symm_mesh_link *l, int *state) {
    *state = MESH_READY;
    while (l->at < l->end) {
        const struct iovec iov = {l->rest + l->at, l->end - l->at};
        size_t sent;
        SYMM_TRY(symm_mesh_tcp_write(l->fd, &iov, 1, &sent, state));
        if (*state == MESH_GONE) break;
        if (*state != MESH_READY) return symmSuccess;
        l->at += sent;
    }
    l->at = l->end = 0;
    atomic_store_explicit(&l->unsent, 0, memory_order_relaxed);
    return symmSuccess;
}

static size_t copy_message(uint8_t *to, const struct iovec *iov) {
    memcpy(to, iov[0].iov_base, iov[0].iov_len);
    if (iov[1].iov_len) memcpy(to + iov[0].iov_len, iov[1].iov_base, iov[1].iov_len);
    return iov[0].iov_len + iov[1].iov_len;
}

/* Under l->lock: what did not go of a message of two pieces. */
static void keep_rest(symm_mesh_link *l, const struct iovec *iov, size_t sent) {
    if (sent == iov[0].iov_len + iov[1].iov_len) return;
    l->end = copy_message(l->rest, iov);
    l->at = sent;
    atomic_store_explicit(&l->unsent, 1, memory_order_relaxed);
}

/* Under l->lock. There is no room for a message that nobody says again: it is kept whole, behind
 * what is unsent, and goes with that. 0: it can be said again, or has been said. */
static int keep_last(symm_mesh_link *l, int type, const struct iovec *iov) {
    const size_t bytes = iov[0].iov_len + iov[1].iov_len;
    if (type != SYMM_MSG_REVOKE && type != SYMM_MSG_LEFT) return 0;
    const size_t left = type == SYMM_MSG_REVOKE ? SYMM_WIRE_HEADER : 0; /* that one must fit, too */
    if (bytes > sizeof l->rest - left - l->end) return 0;
    l->end += copy_message(l->rest + l->end, iov);
    atomic_store_explicit(&l->unsent, 1, memory_order_relaxed);
    return 1;
}

static symmResult_t send_message(symm_mesh_link *l, int type, const struct iovec *iov, int *state) {
    size_t sent = 0;
    SYMM_TRY(send_rest(l, state));
    if (*state == MESH_READY)
        SYMM_TRY(symm_mesh_tcp_write(l->fd, iov, iov[1].iov_len ? 2 : 1, &sent, state));
    if (*state == MESH_READY)
        keep_rest(l, iov, sent);
    else if (*state != MESH_GONE && keep_last(l, type, iov))
        *state = MESH_READY;
    return symmSuccess;
}

static symmResult_t put(symm_mesh *m, int peer, int type, const void *payload, size_t bytes,
                        const int *fds, int nfds, int *state) {
    symm_mesh_link *l = &((symm_mesh_tcp *)m)->links[peer];
    uint8_t raw[SYMM_WIRE_HEADER];
    const symm_wire_msg head = {.type = (uint16_t)type,
                                .bytes = (uint32_t)bytes,
                                .from = (uint32_t)m->rank,
                                .to = (uint32_t)peer,
                                .nonce = l->nonce};
    const struct iovec iov[2] = {{raw, sizeof raw}, {(void *)(uintptr_t)payload, bytes}};
    (void)fds;
    *state = MESH_GONE;
    if (nfds)
        return SYMM_ERR(symmInternalError,
                        "%d file descriptors for rank %d: ranks of several hosts pass none", nfds,
                        peer);
    if (l->fd < 0) return symmSuccess;
    symm_wire_put(&head, raw);
    pthread_mutex_lock(&l->lock);
    symmResult_t status = send_message(l, type, iov, state);
    pthread_mutex_unlock(&l->lock);
    return status;
}

/* Any thread. An error shows at the next put. */
static void push_link(symm_mesh_link *l) {
    int state;
    if (!atomic_load_explicit(&l->unsent, memory_order_relaxed)) return;
    pthread_mutex_lock(&l->lock);
    (void)send_rest(l, &state);
    pthread_mutex_unlock(&l->lock);
}

static void push(symm_mesh *m) {
    for (int r = 0; r < m->nranks; r++) push_link(&((symm_mesh_tcp *)m)->links[r]);
}

/* ---- receiving ---- */

static const char *check_head(const symm_mesh_tcp *t, int peer, const symm_wire_msg *head) {
    if (head->nonce != t->mine.nonce || head->from != (uint32_t)peer ||
        head->to != (uint32_t)t->base.rank)
        return "wrong nonce, sender or receiver";
    if (head->type == SYMM_MSG_WORD && head->bytes != SYMM_MESH_WORD)
        return "a word of another length";
    return NULL;
}

/* Under t->lock, so that words are heard in order, whichever threads take them. */
static void hear_word(const symm_mesh *m, int peer, const uint8_t *message) {
    if (m->words) m->words->hear(m->words_arg, peer, message + SYMM_WIRE_HEADER);
}

/* Under t->lock. */
static symmResult_t take_next(symm_mesh_tcp *t, int peer, int *state) {
    symm_mesh *m = &t->base;
    symm_mesh_link *l = &t->links[peer];
    for (int i = 0; i < WORDS; i++) {
        SYMM_TRY(symm_mesh_tcp_take(l->fd, &l->in, &m->in, state));
        if (*state != MESH_READY) return symmSuccess;
        if (!m->in.why) m->in.why = check_head(t, peer, &m->in.head);
        if (m->in.why || m->in.head.type != SYMM_MSG_WORD) return symmSuccess;
        hear_word(m, peer, m->in.buf);
    }
    *state = MESH_BUSY;
    return symmSuccess;
}

static symmResult_t take(symm_mesh *m, int peer, int *state) {
    symm_mesh_tcp *t = (symm_mesh_tcp *)m;
    symm_mesh_link *l = &t->links[peer];
    *state = MESH_GONE;
    if (l->fd < 0 || l->broken) return symmSuccess;
    push_link(l);
    pthread_mutex_lock(&t->lock);
    symmResult_t status = take_next(t, peer, state);
    pthread_mutex_unlock(&t->lock);
    if (status != symmSuccess) return status;
    if (*state != MESH_READY || !m->in.why) return symmSuccess;
    l->broken = 1;
    shutdown(l->fd, SHUT_RDWR); /* for all threads, and for the peer: it has ended */
    return symmSuccess;
}

/* Under t->lock. */
static void read_news(const symm_mesh_tcp *t, int peer, size_t bytes, symm_mesh_news *news) {
    symm_wire_msg head;
    for (size_t at = 0; bytes - at >= SYMM_WIRE_HEADER; at += SYMM_WIRE_HEADER + head.bytes) {
        const uint8_t *x = t->peeked + at;
        if (symm_wire_head(x, SYMM_MESH_MAX, 0, &head) || check_head(t, peer, &head)) return;
        if (bytes - at < SYMM_WIRE_HEADER + head.bytes) return;
        if (head.type == SYMM_MSG_LEFT) news->left = 1;
        if (head.type == SYMM_MSG_REVOKE && !news->revoked) {
            news->revoked = 1;
            symm_mesh_read_revoke(peer, x + SYMM_WIRE_HEADER, head.bytes, &news->vote);
        }
    }
}

/* Under t->lock. Copies what waits to t->peeked, and takes nothing. The number of bytes. */
static size_t look(symm_mesh_tcp *t, const symm_mesh_link *l) {
    const size_t have = l->in.have; /* the beginning of the first message, which the owner has */
    ssize_t n;
    memcpy(t->peeked, l->in.got, have);
    do n = recv(l->fd, t->peeked + have, PEEK_BYTES - have, MSG_PEEK | MSG_DONTWAIT);
    while (n < 0 && errno == EINTR);
    return have + (n > 0 ? (size_t)n : 0);
}

/* Under t->lock. Hears the WORDs at the beginning of what was looked at. How many bytes. */
static size_t hear_words(const symm_mesh_tcp *t, int peer, size_t bytes) {
    symm_wire_msg head;
    size_t at = 0;
    for (; bytes - at >= WORD_BYTES; at += WORD_BYTES) {
        const uint8_t *x = t->peeked + at;
        if (symm_wire_head(x, SYMM_MESH_MAX, 0, &head) || check_head(t, peer, &head)) break;
        if (head.type != SYMM_MSG_WORD) break;
        hear_word(&t->base, peer, x);
    }
    return at;
}

/* Takes bytes that were looked at. Fewer only if the connection breaks: nothing is behind them. */
static size_t drain(int fd, uint8_t *to, size_t bytes) {
    size_t got = 0;
    while (got < bytes) {
        const ssize_t n = recv(fd, to + got, bytes - got, MSG_DONTWAIT);
        if (!n || (n < 0 && errno != EINTR)) break;
        if (n > 0) got += (size_t)n;
    }
    return got;
}

/* Under t->lock. Takes the WORDs that were looked at. */
static void drop_words(symm_mesh_tcp *t, symm_mesh_link *l, size_t words) {
    if (!words) return;
    SYMM_ASSERT(words > l->in.have);
    drain(l->fd, t->peeked, words - l->in.have);
    l->in.have = 0;
}

/* Under t->lock. The first of what was looked at is for the owner, also if nobody can read it. Half
 * a header may be that of a WORD. */
static int is_message(const symm_mesh_tcp *t, int peer, size_t bytes) {
    symm_wire_msg head;
    return bytes >= SYMM_WIRE_HEADER && (symm_wire_head(t->peeked, SYMM_MESH_MAX, 0, &head) ||
                                         check_head(t, peer, &head) || head.type != SYMM_MSG_WORD);
}

/* Under t->lock. Only a part of a message has come, at t->peeked: takes it, because a window that
 * has closed may open only then (mesh_tcp_stream.c). A whole one is left to the owner, who may wait
 * for the socket; of a part the rest will be there. */
static void take_part(symm_mesh_tcp *t, symm_mesh_link *l, size_t bytes) {
    symm_wire_msg head;
    size_t need = SYMM_WIRE_HEADER;
    if (bytes >= need) {
        if (symm_wire_head(t->peeked, SYMM_MESH_MAX, 0, &head)) return;
        need += head.bytes;
    }
    if (bytes < need) l->in.have += drain(l->fd, l->in.got + l->in.have, bytes - l->in.have);
}

static int peek(symm_mesh *m, int peer, symm_mesh_news *news) {
    symm_mesh_tcp *t = (symm_mesh_tcp *)m;
    symm_mesh_link *l = &t->links[peer];
    size_t bytes = 0, words = 0;
    if (l->fd < 0) return 0;
    pthread_mutex_lock(&t->lock);
    for (int i = 0; i < LOOKS; i++) {
        bytes = look(t, l);
        words = hear_words(t, peer, bytes);
        if (!words) break;
        drop_words(t, l, words);
    }
    news->more = words > 0;
    if (words) bytes = 0; /* of what was looked at nothing is there any more */
    news->message = is_message(t, peer, bytes);
    read_news(t, peer, bytes, news);
    take_part(t, l, bytes);
    pthread_mutex_unlock(&t->lock);
    return bytes > 0;
}

static size_t next_tcp(symm_mesh *m, int peer, uint8_t *raw, size_t cap) {
    symm_mesh_tcp *t = (symm_mesh_tcp *)m;
    symm_mesh_link *l = &t->links[peer];
    symm_mesh_news news = {0};
    if (l->broken || !peek(m, peer, &news)) return 0; /* which takes the WORDs in front */
    pthread_mutex_lock(&t->lock);
    const size_t bytes = look(t, l), some = bytes < cap ? bytes : cap;
    memcpy(raw, t->peeked, some);
    pthread_mutex_unlock(&t->lock);
    return some;
}

/* ---- waiting ---- */

static short events_of(const symm_mesh_link *l, int want) {
    const int unsent = atomic_load_explicit(&l->unsent, memory_order_relaxed);
    if (l->fd < 0 || (!want && !unsent)) return 0;
    short events = POLLRDHUP;
    if (want & MESH_IN) events |= POLLIN;
    if ((want & MESH_OUT) || unsent) events |= POLLOUT;
    return events;
}

static void wait_tcp(symm_mesh *m, uint8_t *want, int ms) {
    symm_mesh_tcp *t = (symm_mesh_tcp *)m;
    for (int r = 0; r < m->nranks; r++) {
        const short events = events_of(&t->links[r], want[r]);
        t->polls[r] = (struct pollfd){.fd = events ? t->links[r].fd : -1, .events = events};
    }
    /* After a signal, or without memory: the caller looks and comes back. */
    if (SYMM_FAIL_CALL(mesh_poll, -1, ENOMEM, poll(t->polls, (nfds_t)m->nranks, ms)) <= 0) return;
    for (int r = 0; r < m->nranks; r++) {
        const int lost = t->polls[r].revents & (POLLRDHUP | POLLHUP | POLLERR);
        if (t->polls[r].revents & (POLLOUT | POLLHUP | POLLERR)) push_link(&t->links[r]);
        if (want[r] && lost) want[r] |= MESH_LOST;
    }
}

static int hung_up(const symm_mesh *m, int peer) {
    const int fd = ((const symm_mesh_tcp *)m)->links[peer].fd;
    return fd >= 0 && symm_mesh_tcp_ended(fd);
}

static int peer_fd(const symm_mesh *m, int peer) {
    return ((const symm_mesh_tcp *)m)->links[peer].fd;
}

/* ---- the end ---- */

/* What other threads have left unsent may be why this rank ends. */
static void push_all(symm_mesh_tcp *t) {
    const uint64_t until = symm_now_ns() + MESH_TCP_END_MS * 1000000ull;
    for (;;) {
        nfds_t n = 0;
        push(&t->base);
        for (int r = 0; r < t->base.nranks; r++)
            if (t->links[r].unsent)
                t->polls[n++] = (struct pollfd){.fd = t->links[r].fd, .events = POLLOUT};
        const uint64_t now = symm_now_ns();
        if (!n || now >= until) return;
        poll(t->polls, n, (int)((until - now) / 1000000) + 1);
    }
}

static void free_parts(symm_mesh_tcp *t) {
    for (int r = 0; t->links && r < t->base.nranks; r++) pthread_mutex_destroy(&t->links[r].lock);
    pthread_mutex_destroy(&t->lock);
    free(t->links);
    free(t->polls);
    free(t->peeked);
}

/* A forked child only lets go: the connections, and what is unsent, are its parent's. */
static void close_tcp(symm_mesh *m) {
    symm_mesh_tcp *t = (symm_mesh_tcp *)m;
    const int mine = getpid() == m->owner;
    symm_mesh_tcp_join_free(t);
    symm_mesh_fd_close(&t->listener);
    if (mine) push_all(t);
    for (int r = 0; r < m->nranks; r++) {
        if (mine) symm_mesh_tcp_end(&t->links[r].fd);
        symm_mesh_fd_close(&t->links[r].fd);
    }
    free_parts(t);
}

static const symm_mesh_ops tcp_ops = {
    .connect = symm_mesh_tcp_connect,
    .put = put,
    .take = take,
    .wait = wait_tcp,
    .next = next_tcp,
    .hung_up = hung_up,
    .fd = peer_fd,
    .close = close_tcp,
    .peek = peek,
    .push = push,
};

/* ---- the beginning ---- */

static symmResult_t open_listener(symm_mesh_tcp *t, const char *ifname) {
    struct sockaddr_storage addr;
    if (SYMM_FAIL_HERE(mesh_socket))
        return SYMM_ERR(symmSystemError, "failpoint mesh_socket (rank %d)", t->base.rank);
    SYMM_TRY(symm_mesh_describe(&t->mine));
    SYMM_TRY(symm_tcp_listen(ifname, "the control mesh", 0, &addr, &t->listener));
    symm_tcp_address_put(&addr, (uint8_t *)t->mine.name);
    return symmSuccess;
}

static symmResult_t alloc_parts(symm_mesh_tcp *t) {
    const size_t n = (size_t)t->base.nranks;
    pthread_mutex_init(&t->lock, NULL);
    t->links = calloc(n, sizeof *t->links);
    t->polls = malloc(n * sizeof *t->polls);
    t->peeked = malloc(PEEK_BYTES);
    for (size_t r = 0; t->links && r < n; r++) {
        t->links[r].fd = -1;
        pthread_mutex_init(&t->links[r].lock, NULL);
    }
    if (t->links && t->polls && t->peeked && !SYMM_FAIL_HERE(mesh_peers)) return symmSuccess;
    return SYMM_ERR(symmOutOfMemory, "no memory for a control mesh of %d ranks", t->base.nranks);
}

symmResult_t symm_mesh_tcp_listen(int rank, int nranks, const char *ifname, symm_mesh_addr *mine,
                                  symm_mesh **out) {
    symmResult_t status;
    symm_mesh_tcp *t = SYMM_FAIL_ALLOC(mesh_alloc, calloc(1, sizeof *t));
    if (!t) return SYMM_ERR(symmOutOfMemory, "no memory for a control mesh");
    t->listener = -1;
    SYMM_TRY_GOTO(symm_mesh_init(&t->base, &tcp_ops, rank, nranks), free_mesh);
    SYMM_TRY_GOTO(alloc_parts(t), free_links);
    SYMM_TRY_GOTO(symm_mesh_tcp_join_new(t), free_links);
    SYMM_TRY_GOTO(open_listener(t, ifname), free_join);
    *mine = t->mine;
    *out = &t->base;
    return symmSuccess;

free_join:
    symm_mesh_tcp_join_free(t);
free_links:
    free_parts(t);
    symm_mesh_fini(&t->base);
free_mesh:
    free(t);
    return status;
}
