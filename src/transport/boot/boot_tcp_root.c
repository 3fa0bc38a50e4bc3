/* boot_tcp_root.c - the root of the TCP bootstrap, which is the rank that has the id's listener:
 * accepts the other ranks, then relays their exchanges (a star). Its own place in peers is empty.
 * Runs in the thread that is inside the call; no lock. One poll loop serves all connections, so a
 * slow, dead or hostile one does not delay the others. The first error is kept, and all ranks get
 * it with the same text. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fail.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/stats.h"
#include "boot_tcp.h"
#include "lifeline.h"

#define HELLO_MS 2000 /* a connection without a hello after this time is closed */

typedef struct {
    int fd;
    uint64_t limit_ns;
    size_t got;
    uint8_t hello[SYMM_TCP_HELLO];
} pending;

typedef struct { /* set-up on the root, until all ranks are connected */
    symm_boot_tcp *t;
    const symm_wait *w;
    uint64_t start_ns;
    int came;             /* connected ranks; after an error also those that were sent it */
    symmResult_t verdict; /* the error that all ranks get; its text is `text` */
    char text[SYMM_ERR_TEXT];
    int npending;
    pending pend[SYMM_TCP_PENDING]; /* oldest first */
} setup;

/* Takes constant time, so an attacker cannot measure how much of a guess was right. */
static int secret_differs(const uint8_t *a, const uint8_t *b) {
    volatile uint8_t difference = 0;
    for (int i = 0; i < SYMM_TCP_SECRET; i++) difference |= (uint8_t)(a[i] ^ b[i]);
    return difference;
}

/* Sends the error to all connected ranks. A rank that is receiving a result cannot be sent an
 * error, so its connection is closed. */
static void broadcast_error(symm_boot_tcp *t, symmResult_t code, const char *text) {
    uint64_t limit = symm_tcp_grace();
    symm_tcp_frame f = {SYMM_TCP_ERROR, (uint32_t)code, t->seq, strlen(text)};
    for (int r = 0; r < t->base.nranks; r++) {
        symm_tcp_conn *c = &t->peers[r];
        if (c->fd < 0) continue;
        if (c->busy < 0 || symm_tcp_send_small(c, &f, text, limit)) shutdown(c->fd, SHUT_RDWR);
    }
}

/* ---- set-up: the error ---- */

/* The first error is kept. The caller has just recorded its text with SYMM_ERR. */
static void decide(setup *s, symmResult_t code) {
    if (s->verdict) return;
    s->verdict = code;
    snprintf(s->text, sizeof(s->text), "%s", symm_status_text());
}

static void decide_missing(setup *s) {
    unsigned char missing[s->t->base.nranks];
    char ranks[200], at[64];
    for (int r = 0; r < s->t->base.nranks; r++)
        missing[r] = r != s->t->root && s->t->peers[r].fd < 0;
    symm_boot_ranks(missing, s->t->base.nranks, ranks, sizeof(ranks));
    decide(s, SYMM_ERR(symmTimeout, "%s never came to %s (waited %.1f s while %s)%s", ranks,
                       symm_tcp_id_text(&s->t->id, at, sizeof(at)), symm_boot_seconds(s->start_ns),
                       symm_boot_stage(s->w), symm_tcp_id_reach(&s->t->id)));
}

/* ---- set-up: connections without a hello ---- */

static void forget_pending(setup *s, int i) {
    s->npending--;
    memmove(&s->pend[i], &s->pend[i + 1], (size_t)(s->npending - i) * sizeof(s->pend[0]));
}

static void close_pending(setup *s, int i) {
    symm_lifeline_close(s->pend[i].fd);
    SYMM_STAT_ADD(fds, -1);
    forget_pending(s, i);
}

static void turn_away(setup *s, int i, const char *why) {
    SYMM_STAT_ADD(intruders, +1);
    SYMM_INFO("unique id: a connection was turned away: %s", why);
    close_pending(s, i);
}

/* The error that this hello, with the right secret, causes on all ranks; success: none. */
static symmResult_t judge_hello(setup *s, const symm_tcp_hello *h) {
    symm_boot_tcp *t = s->t;
    if (h->version != SYMM_TCP_VERSION)
        return SYMM_ERR(
            symmVersionMismatch,
            "a rank (process %u) speaks version %u of the bootstrap, rank %d version %u", h->pid,
            h->version, t->root, SYMM_TCP_VERSION);
    if (h->nranks != t->base.nranks)
        return SYMM_ERR(symmInvalidArgument,
                        "nranks differs: rank %d says %d, rank %d (process %u) says %d", t->root,
                        t->base.nranks, h->rank, h->pid, h->nranks);
    if (h->rank < 0 || h->rank >= h->nranks)
        return SYMM_ERR(symmInvalidArgument, "rank %d (process %u) is not below nranks %d", h->rank,
                        h->pid, h->nranks);
    if (h->rank == t->root)
        return SYMM_ERR(symmInvalidArgument,
                        "rank %d was given twice: to process %d and process %u", t->root,
                        (int)getpid(), h->pid);
    if (t->peers[h->rank].fd >= 0 && t->peers[h->rank].token != h->token)
        return SYMM_ERR(symmInvalidArgument,
                        "rank %d was given twice: to process %u and process %u", h->rank,
                        t->peers[h->rank].pid, h->pid);
    return symmSuccess;
}

static void tell_pending(setup *s, int i, int rank) {
    symm_tcp_conn c = {.fd = s->pend[i].fd};
    symm_tcp_frame f = {SYMM_TCP_ERROR, (uint32_t)s->verdict, 0, strlen(s->text)};
    symm_tcp_send_small(&c, &f, s->text, symm_now_ns()); /* a new connection has room */
    if (rank >= 0 && rank != s->t->root && rank < s->t->base.nranks && s->t->peers[rank].fd < 0)
        s->came++;
    close_pending(s, i);
}

static void let_in(setup *s, int i, const symm_tcp_hello *h) {
    symm_tcp_conn *c = &s->t->peers[h->rank];
    if (c->fd >= 0)
        symm_tcp_close(c); /* the same rank has connected again */
    else
        s->came++;
    *c = (symm_tcp_conn){.fd = s->pend[i].fd, .pid = h->pid, .token = h->token};
    forget_pending(s, i);
    symm_tcp_tune(c->fd);
    symm_tcp_frame f = {.type = SYMM_TCP_SEEN, .code = (uint32_t)s->t->root};
    /* If sending fails, the rank is gone. The next read of its connection finds that out. */
    symm_tcp_send_small(c, &f, NULL, symm_now_ns());
}

static void take_hello(setup *s, int i) {
    symm_tcp_hello h;
    if (!symm_tcp_hello_get(s->pend[i].hello, &h) || secret_differs(h.secret, s->t->id.secret)) {
        turn_away(s, i, "it does not know the secret");
        return;
    }
    if (!s->verdict) {
        symmResult_t status = judge_hello(s, &h);
        if (!status) {
            let_in(s, i, &h);
            return;
        }
        decide(s, status);
    }
    tell_pending(s, i, h.rank);
}

/* Reads what has arrived. pend[i] may be removed. */
static void read_pending(setup *s, int i) {
    pending *p = &s->pend[i];
    while (p->got < SYMM_TCP_HELLO) {
        ssize_t k =
            SYMM_FAIL_CALL(boot_greet, -1, ECONNRESET,
                           recv(p->fd, p->hello + p->got, SYMM_TCP_HELLO - p->got, MSG_DONTWAIT));
        if (k < 0 && errno == EINTR) continue;
        if (k < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
            if (symm_now_ns() >= p->limit_ns) turn_away(s, i, "it did not say hello in time");
            return;
        }
        if (k <= 0) {
            turn_away(s, i, "it ended without a hello");
            return;
        }
        p->got += (size_t)k;
        if (!symm_tcp_hello_plausible(p->hello, p->got)) {
            turn_away(s, i, "it speaks something else");
            return;
        }
    }
    take_hello(s, i);
}

/* After a failed accept: 1 to try the next connection, 0 to stop until the next poll. */
static int accept_failed(setup *s) {
    int e = errno;
    if (e == EAGAIN || e == EWOULDBLOCK) return 0;
    if ((e == EMFILE || e == ENFILE) && s->npending) {
        turn_away(s, 0, "descriptors are short");
        return 1;
    }
    if (e == EMFILE || e == ENFILE || e == EBADF || e == EINVAL || e == ENOTSOCK) {
        if (!s->verdict)
            decide(s, SYMM_ERR(e == EMFILE || e == ENFILE ? symmFdLimit : symmSystemError,
                               "rank %d cannot accept connections: %s", s->t->root, strerror(e)));
        return 0;
    }
    if (e == ENOBUFS || e == ENOMEM) { /* temporary, but the listener stays readable */
        struct timespec nap = {0, 10000000};
        nanosleep(&nap, NULL);
        return 0;
    }
    return 1; /* only this connection broke */
}

static void accept_some(setup *s) {
    for (int k = 0; k < SYMM_TCP_PENDING; k++) {
        symm_lifeline_lock();
        int fd = symm_fd_above(
            SYMM_FAIL_CALL(boot_accept, -1, EMFILE,
                           accept4(s->t->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK)));
        symm_lifeline_add(fd);
        symm_lifeline_unlock();
        if (fd < 0) {
            if (!accept_failed(s)) return;
            continue;
        }
        SYMM_STAT_ADD(fds, +1);
        /* A rank sends its hello at once, so the oldest connection without one is the least likely
         * to be a rank, and it makes room. */
        if (s->npending == SYMM_TCP_PENDING) turn_away(s, 0, "too many of them wait");
        s->pend[s->npending++] =
            (pending){.fd = fd, .limit_ns = symm_now_ns() + HELLO_MS * 1000000ull};
        read_pending(s, s->npending - 1);
    }
}

/* ---- set-up: connected ranks ---- */

/* Until all ranks are connected, a rank can only give up or die. */
static void hear_rank(setup *s, int r) {
    symm_tcp_conn *c = &s->t->peers[r];
    symm_tcp_frame f;
    int k = symm_tcp_read_head(c, &f);
    if (k == SYMM_TCP_AGAIN || s->verdict) return;
    if (k == SYMM_TCP_DONE && f.type == SYMM_TCP_GIVEUP)
        decide_missing(s);
    else if (k == SYMM_TCP_GONE)
        decide(s, SYMM_ERR(symmRemoteError, "rank %d (process %u) died or left while %s", r, c->pid,
                           symm_boot_stage(s->w)));
    else
        decide(s, SYMM_ERR(symmInternalError, "rank %d (process %u) sent a malformed message", r,
                           c->pid));
}

/* poll takes no more entries than the process may have descriptors. */
static symmResult_t poll_refused(const symm_boot_tcp *t, int n) {
    return SYMM_ERR(errno == EINVAL ? symmFdLimit : symmSystemError,
                    "rank %d cannot watch %d connections: %s", t->root, n, strerror(errno));
}

/* One pass of the loop: waits up to ms, then serves all that is ready. */
static void serve(setup *s, int ms) {
    symm_boot_tcp *t = s->t;
    struct pollfd *p = t->polls;
    int n = 0, npending = s->npending, nranks = t->base.nranks;
    p[n++] = (struct pollfd){.fd = t->listener, .events = POLLIN};
    for (int i = 0; i < npending; i++)
        p[n++] = (struct pollfd){.fd = s->pend[i].fd, .events = POLLIN};
    /* After an error, ranks that were sent it are not read any more; poll skips negative
     * descriptors. */
    for (int r = 0; r < nranks; r++)
        p[n++] = (struct pollfd){.fd = s->verdict ? -1 : t->peers[r].fd, .events = POLLIN};
    if (SYMM_FAIL_CALL(boot_door, -1, EINVAL, poll(p, (nfds_t)n, ms)) < 0) {
        if (errno != EINTR && !s->verdict) decide(s, poll_refused(t, n));
        return;
    }
    for (int r = 0; r < nranks; r++)
        if (p[1 + npending + r].revents) hear_rank(s, r);
    for (int i = npending - 1; i >= 0; i--) /* backwards, because entries are removed */
        if (p[1 + i].revents || symm_now_ns() >= s->pend[i].limit_ns) read_pending(s, i);
    if (p[0].revents) accept_some(s);
}

static void await_ranks(setup *s) {
    while (!s->verdict && s->came < s->t->base.nranks - 1) {
        uint64_t limit = s->w->deadline_ns;
        for (int i = 0; i < s->npending; i++)
            if (!limit || s->pend[i].limit_ns < limit) limit = s->pend[i].limit_ns;
        serve(s, symm_boot_slice_ms(s->w, limit));
        if (s->verdict || s->came == s->t->base.nranks - 1) break;
        symmResult_t status = symm_boot_check(s->w);
        if (status) decide(s, status);
        if (symm_wait_over(s->w)) decide_missing(s);
    }
    if (!s->verdict) serve(s, 0); /* a second rank of the same number may be waiting to connect */
}

/* All ranks are connected: tells them. If that fails for a rank, it has died. */
static void say_go(setup *s) {
    symm_tcp_frame f = {.type = SYMM_TCP_GO};
    uint64_t limit = symm_tcp_grace();
    for (int r = 0; r < s->t->base.nranks && !s->verdict; r++)
        if (r != s->t->root && symm_tcp_send_small(&s->t->peers[r], &f, NULL, limit))
            decide(s, SYMM_ERR(symmRemoteError, "rank %d (process %u) died or left while %s", r,
                               s->t->peers[r].pid, symm_boot_stage(s->w)));
}

/* Ranks that connect a little later get the error, instead of finding no listener. After a timeout
 * only ranks that are connecting already get it. */
static void linger(setup *s) {
    uint64_t limit = s->verdict == symmTimeout ? 0 : symm_tcp_grace();
    serve(s, 0);
    while (s->came < s->t->base.nranks - 1 && symm_now_ns() < limit) serve(s, 20);
}

void symm_tcp_end_listener(symm_boot_tcp *t) {
    if (t->listener < 0) return;
    symm_tcp_id_done(&t->id);
    symm_lifeline_close(t->listener);
    SYMM_STAT_ADD(fds, -1);
    t->listener = -1;
}

symmResult_t symm_tcp_root_open(symm_boot_tcp *t, const symm_wait *w) {
    setup s = {.t = t, .w = w, .start_ns = symm_now_ns()};
    await_ranks(&s);
    if (!s.verdict) say_go(&s);
    if (s.verdict) {
        broadcast_error(t, s.verdict, s.text);
        linger(&s);
    }
    while (s.npending) turn_away(&s, 0, "set-up is over");
    symm_tcp_end_listener(t);
    if (s.verdict) symm_status_adopt(s.text);
    return s.verdict;
}

/* ---- exchange ---- */

typedef struct {
    symm_boot_tcp *t;
    const symm_wait *w;
    uint64_t start_ns;
    char *recv;
    size_t bytes;
    int left; /* ranks whose part of the exchange is not complete */
} exchange;

static symmResult_t rank_gone(const exchange *x, int r) {
    return SYMM_ERR(symmRemoteError, "rank %d (process %u) died or left while %s", r,
                    x->t->peers[r].pid, symm_boot_stage(x->w));
}

static symmResult_t exchange_late(const exchange *x, const char *verb) {
    int n = x->t->base.nranks;
    unsigned char missing[n];
    char ranks[256];
    for (int r = 0; r < n; r++) missing[r] = r != x->t->root && !x->t->peers[r].done;
    symm_boot_ranks(missing, n, ranks, sizeof(ranks));
    return SYMM_ERR(symmTimeout, "%s %s (waited %.1f s while %s)", ranks, verb,
                    symm_boot_seconds(x->start_ns), symm_boot_stage(x->w));
}

/* A message of rank r has begun. The header of a block has the number of the exchange and the size,
 * which must be ours. */
static symmResult_t take_header(exchange *x, int r, const symm_tcp_frame *f) {
    symm_tcp_conn *c = &x->t->peers[r];
    if (f->type == SYMM_TCP_GIVEUP && f->bytes == 0) {
        /* A request that was sent before our last answer arrived is ignored. */
        return f->seq == x->t->seq ? exchange_late(x, "did not come to the exchange") : symmSuccess;
    }
    if (f->type != SYMM_TCP_DATA || f->seq != x->t->seq || c->done)
        return SYMM_ERR(symmInternalError, "rank %d sent a message out of turn while %s", r,
                        symm_boot_stage(x->w));
    if (f->bytes != x->bytes)
        return SYMM_ERR(symmMismatch, "rank %d brings %llu bytes where rank %d brings %zu (%s)", r,
                        (unsigned long long)f->bytes, x->t->root, x->bytes, symm_boot_stage(x->w));
    c->busy = 1;
    return symmSuccess;
}

static symmResult_t hear_block(exchange *x, int r) {
    symm_tcp_conn *c = &x->t->peers[r];
    for (;;) {
        if (c->busy) {
            int k = symm_tcp_read_body(c, x->recv + (size_t)r * x->bytes, x->bytes);
            if (k == SYMM_TCP_GONE) return rank_gone(x, r);
            if (k == SYMM_TCP_AGAIN) return symmSuccess;
            c->busy = 0;
            c->done = 1;
            x->left--;
        }
        symm_tcp_frame f;
        int k = symm_tcp_read_head(c, &f);
        if (k == SYMM_TCP_AGAIN) return symmSuccess;
        if (k == SYMM_TCP_GONE) return rank_gone(x, r);
        if (k == SYMM_TCP_BAD)
            return SYMM_ERR(symmInternalError, "rank %d sent a malformed message while %s", r,
                            symm_boot_stage(x->w));
        SYMM_TRY(take_header(x, r, &f));
    }
}

/* Waits until a rank can be served. Returns the error of the caller's check or of the deadline. */
static symmResult_t poll_ranks(exchange *x, int n, const char *late) {
    int k =
        SYMM_FAIL_CALL(boot_poll, -1, EINVAL,
                       poll(x->t->polls, (nfds_t)n, symm_boot_slice_ms(x->w, x->w->deadline_ns)));
    if (k < 0 && errno != EINTR) return poll_refused(x->t, n);
    if (k < 0)
        for (int i = 0; i < n; i++) x->t->polls[i].revents = 0;
    SYMM_TRY(symm_boot_check(x->w));
    if (k <= 0 && symm_wait_over(x->w)) return exchange_late(x, late);
    return symmSuccess;
}

/* Receives all blocks. Ranks that are done are still watched, because their death is an error of
 * all ranks. */
static symmResult_t gather(exchange *x) {
    int n = x->t->base.nranks;
    while (x->left) {
        for (int r = 0; r < n; r++)
            x->t->polls[r] = (struct pollfd){.fd = x->t->peers[r].fd, .events = POLLIN};
        SYMM_TRY(poll_ranks(x, n, "did not come to the exchange"));
        for (int r = 0; r < n; r++)
            if (x->t->polls[r].revents) SYMM_TRY(hear_block(x, r));
    }
    return symmSuccess;
}

/* Sends the result to all ranks at once, so a rank that reads slowly does not delay the others. If
 * a rank dies meanwhile, the others still get their result, and learn of the death afterwards. */
static symmResult_t scatter(exchange *x, int *dead) {
    symm_boot_tcp *t = x->t;
    int n = t->base.nranks;
    symm_tcp_frame f = {SYMM_TCP_DATA, 0, t->seq, (uint64_t)n * x->bytes};
    for (;;) {
        for (int r = 0; r < n; r++) {
            symm_tcp_conn *c = &t->peers[r];
            if (r == t->root) continue;
            int k = c->done ? SYMM_TCP_DONE : symm_tcp_write(c, &f, x->recv);
            if (k != SYMM_TCP_AGAIN && !c->done) {
                c->done = 1;
                c->busy = 0;
                x->left--;
                if (k == SYMM_TCP_GONE && *dead < 0) *dead = r;
            }
            t->polls[r] = (struct pollfd){c->done ? -1 : c->fd, POLLOUT, 0};
        }
        t->polls[t->root] = (struct pollfd){.fd = -1};
        if (!x->left) return symmSuccess;
        SYMM_TRY(poll_ranks(x, n, "did not take the result"));
    }
}

static void begin_phase(exchange *x, int busy) {
    x->left = x->t->base.nranks - 1;
    for (int r = 0; r <= x->left; r++) {
        symm_tcp_conn *c = &x->t->peers[r];
        c->busy = busy;
        c->done = 0;
        c->sent = 0;
    }
}

static symmResult_t relay(exchange *x) {
    int dead = -1;
    if (SYMM_FAIL_HERE(boot_allgather))
        return SYMM_ERR(symmSystemError, "failpoint boot_allgather on rank %d", x->t->root);
    begin_phase(x, 0);
    SYMM_TRY(gather(x));
    begin_phase(x, -1); /* negative: while a result is being sent, no error can be sent */
    SYMM_TRY(scatter(x, &dead));
    return dead < 0 ? symmSuccess : rank_gone(x, dead);
}

symmResult_t symm_tcp_root_allgather(symm_boot_tcp *t, const void *send, void *recv, size_t bytes,
                                     const symm_wait *w) {
    exchange x = {t, w, symm_now_ns(), recv, bytes, 0};
    t->seq++;
    if (bytes) memmove((char *)recv + (size_t)t->root * bytes, send, bytes);
    symmResult_t status = relay(&x);
    if (!status) return symmSuccess;
    char text[SYMM_ERR_TEXT];
    snprintf(text, sizeof(text), "%s", symm_status_text());
    broadcast_error(t, status, text);
    symm_status_adopt(text);
    return status;
}
