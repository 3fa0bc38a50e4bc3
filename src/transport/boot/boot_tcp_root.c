/* boot_tcp_root.c - the root of the TCP bootstrap, which has the id's listener: accepts the ranks
 * (boot_tcp_relay.c relays their exchanges then, a star). It is a rank, whose own place in peers is
 * empty, or the process that made the id (boot_tcp_keep.c). Runs in the thread that is inside the
 * call, or that has the meeting; no lock. One poll loop serves all connections, so a slow, dead or
 * hostile one does not delay the others. The first error is kept, and all ranks get it with the
 * same text. */
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
#define HOLD_MS \
    1000 /* where a rank of this process may still come and be the root: for so long, unless all
            ranks have come before */

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

/* How many ranks there are, where the root is none of them. */
static symmResult_t expect_as(setup *s, const symm_tcp_hello *h) {
    if (s->t->base.nranks) return symmSuccess;
    if (h->nranks < 1 || h->nranks > SYMM_TCP_RANKS)
        return SYMM_ERR(symmInvalidArgument, "rank %d (process %u) says that there are %d ranks",
                        h->rank, h->pid, h->nranks);
    return symm_tcp_root_expect(s->t, h->nranks, h->rank);
}

/* The error that this hello, with the right secret, causes on all ranks; success: none. */
static symmResult_t judge_hello(setup *s, const symm_tcp_hello *h) {
    symm_boot_tcp *t = s->t;
    char root[64];
    if (h->version != SYMM_TCP_VERSION)
        return SYMM_ERR(symmVersionMismatch,
                        "a rank (process %u) speaks version %u of the bootstrap, %s version %u",
                        h->pid, h->version, symm_tcp_root_text(t, root, sizeof(root)),
                        SYMM_TCP_VERSION);
    if (h->refused == SYMM_TCP_CANNOT)
        return SYMM_ERR(symmRemoteError, "rank %d (process %u) cannot come: it has an error",
                        h->rank, h->pid);
    if (h->refused)
        return SYMM_ERR(symmInvalidArgument, "process %u passed rank=%d of nranks=%d: out of range",
                        h->pid, h->rank, h->nranks);
    SYMM_TRY(expect_as(s, h));
    if (h->nranks != t->base.nranks)
        return SYMM_ERR(symmInvalidArgument,
                        "nranks differs: rank %d says %d, rank %d (process %u) says %d", t->said,
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

/* The sender of this hello, whose connection is not kept, is one of the ranks that were to come. */
static int is_awaited(const symm_boot_tcp *t, const symm_tcp_hello *h) {
    const int n = t->base.nranks;
    if (h->refused) return n > 0; /* in whoever's place; it comes once */
    return h->rank >= 0 && h->rank != t->root && h->rank < n && t->peers[h->rank].fd < 0;
}

static void tell_pending(setup *s, int i, const symm_tcp_hello *h) {
    symm_tcp_conn c = {.fd = s->pend[i].fd};
    symm_tcp_frame f = {SYMM_TCP_ERROR, (uint32_t)s->verdict, 0, strlen(s->text)};
    symm_tcp_send_small(&c, &f, s->text, symm_now_ns()); /* a new connection has room */
    s->came += is_awaited(s->t, h);
    close_pending(s, i);
}

static void say_seen(const symm_boot_tcp *t, symm_tcp_conn *c) {
    const symm_tcp_frame f = {.type = SYMM_TCP_SEEN, .code = (uint32_t)t->root};
    /* If sending fails, the rank is gone. The next read of its connection finds that out. */
    symm_tcp_send_small(c, &f, NULL, symm_now_ns());
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
    if (atomic_load(&s->t->standing) == SYMM_TCP_SERVES) say_seen(s->t, c);
}

/* 0: a rank of this process is the root instead, unless there is an error: who has caused it may
 * have been told, and not come again. */
static int begin_serving(symm_boot_tcp *t) {
    int now = SYMM_TCP_HOLDS;
    if (!atomic_compare_exchange_strong(&t->standing, &now, SYMM_TCP_SERVES))
        return now == SYMM_TCP_SERVES;
    for (int r = 0; r < t->base.nranks; r++)
        if (t->peers[r].fd >= 0) say_seen(t, &t->peers[r]);
    return 1;
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
    tell_pending(s, i, &h);
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
        char root[64];
        if (!s->verdict)
            decide(s, SYMM_ERR(e == EMFILE || e == ENFILE ? symmFdLimit : symmSystemError,
                               "%s cannot accept connections: %s",
                               symm_tcp_root_text(s->t, root, sizeof(root)), strerror(e)));
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
        if (errno != EINTR && !s->verdict) decide(s, symm_tcp_root_blind(t, n));
        return;
    }
    for (int r = 0; r < nranks; r++)
        if (p[1 + npending + r].revents) hear_rank(s, r);
    /* Backwards, because entries are removed. A hello may move the table (expect_as). */
    for (int i = npending - 1; i >= 0; i--)
        if (t->polls[1 + i].revents || symm_now_ns() >= s->pend[i].limit_ns) read_pending(s, i);
    if (t->polls[0].revents) accept_some(s);
}

static void await_ranks(setup *s) {
    while (!s->verdict && s->came < symm_tcp_others(s->t)) {
        uint64_t limit = s->w->deadline_ns;
        for (int i = 0; i < s->npending; i++)
            if (!limit || s->pend[i].limit_ns < limit) limit = s->pend[i].limit_ns;
        serve(s, symm_boot_slice_ms(s->w, limit));
        if (s->verdict || s->came == symm_tcp_others(s->t)) break;
        symmResult_t status = symm_boot_check(s->w);
        if (status) decide(s, status);
        if (symm_wait_over(s->w)) decide_missing(s);
        if (symm_now_ns() - s->start_ns >= HOLD_MS * 1000000ull) begin_serving(s->t);
        if (atomic_load(&s->t->standing) == SYMM_TCP_YIELDS) return;
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
    while (s->came < symm_tcp_others(s->t) && symm_now_ns() < limit) serve(s, 20);
}

symmResult_t symm_tcp_root_open(symm_boot_tcp *t, const symm_wait *w) {
    setup s = {.t = t, .w = w, .start_ns = symm_now_ns()};
    await_ranks(&s);
    if (!begin_serving(t) && !s.verdict) {
        while (s.npending) close_pending(&s, 0);
        for (int r = 0; r < t->base.nranks; r++) symm_tcp_close(&t->peers[r]);
        return symmInProgress;
    }
    if (!s.verdict) say_go(&s);
    if (s.verdict) {
        symm_tcp_root_error(t, s.verdict, s.text);
        linger(&s);
    }
    while (s.npending) turn_away(&s, 0, "set-up is over");
    if (s.verdict) symm_status_adopt(s.text);
    return s.verdict;
}
