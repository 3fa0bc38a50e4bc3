/* boot_tcp_relay.c - the root of the TCP bootstrap in the exchanges of its ranks: all send it their
 * blocks, it sends all blocks to all. It is one of the ranks, or a process that is none: then it
 * learns from the first header of an exchange how large a block is. Runs in the thread that is
 * inside the call, or that has the meeting; no lock. The first error ends it; all ranks get it with
 * the same text. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fail.h"
#include "boot_tcp.h"

const char *symm_tcp_root_text(const symm_boot_tcp *t, char *buf, size_t cap) {
    if (symm_tcp_root_is_rank(t))
        snprintf(buf, cap, "rank %d", t->root);
    else
        snprintf(buf, cap, "process %d, which made the id,", (int)getpid());
    return buf;
}

void symm_tcp_root_error(symm_boot_tcp *t, symmResult_t code, const char *text) {
    uint64_t limit = symm_tcp_grace();
    symm_tcp_frame f = {SYMM_TCP_ERROR, (uint32_t)code, t->seq, strlen(text)};
    for (int r = 0; r < t->base.nranks; r++) {
        symm_tcp_conn *c = &t->peers[r];
        if (c->fd < 0) continue;
        if (c->busy < 0 || symm_tcp_send_small(c, &f, text, limit)) shutdown(c->fd, SHUT_RDWR);
    }
}

symmResult_t symm_tcp_root_blind(const symm_boot_tcp *t, int n) {
    char root[64];
    return SYMM_ERR(errno == EINVAL ? symmFdLimit : symmSystemError,
                    "%s cannot watch %d connections: %s", symm_tcp_root_text(t, root, sizeof(root)),
                    n, strerror(errno));
}

/* ---- an exchange ---- */

typedef struct {
    symm_boot_tcp *t;
    const symm_wait *w;
    uint64_t start_ns;
    char *recv; /* NULL: the root is no rank, and no block has begun */
    size_t bytes;
    int sized; /* the rank that said how many */
    int left;  /* ranks whose part of the exchange is not complete */
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

static symmResult_t learn_size(exchange *x, int r, uint64_t bytes) {
    uint64_t all;
    if (!__builtin_mul_overflow(bytes, (uint64_t)x->t->base.nranks, &all) && all < SIZE_MAX)
        x->recv = malloc((size_t)all + 1);
    if (!x->recv)
        return SYMM_ERR(symmOutOfMemory,
                        "process %d, which made the id, has no room for %llu bytes"
                        " of each rank",
                        (int)getpid(), (unsigned long long)bytes);
    x->bytes = (size_t)bytes;
    x->sized = r;
    return symmSuccess;
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
    if (!x->recv) SYMM_TRY(learn_size(x, r, f->bytes));
    if (f->bytes != x->bytes)
        return SYMM_ERR(symmMismatch, "rank %d brings %llu bytes where rank %d brings %zu (%s)", r,
                        (unsigned long long)f->bytes, x->sized, x->bytes, symm_boot_stage(x->w));
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
    if (k < 0 && errno != EINTR) return symm_tcp_root_blind(x->t, n);
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
    const symm_tcp_frame f = {SYMM_TCP_DATA, 0, t->seq, (uint64_t)n * x->bytes};
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
        if (symm_tcp_root_is_rank(t)) t->polls[t->root] = (struct pollfd){.fd = -1};
        if (!x->left) return symmSuccess;
        SYMM_TRY(poll_ranks(x, n, "did not take the result"));
    }
}

static void begin_phase(exchange *x, int busy) {
    x->left = symm_tcp_others(x->t);
    for (int r = 0; r < x->t->base.nranks; r++) {
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

/* The error that this thread has recorded last. */
static void tell_all(symm_boot_tcp *t, symmResult_t status) {
    char text[SYMM_ERR_TEXT];
    snprintf(text, sizeof(text), "%s", symm_status_text());
    symm_tcp_root_error(t, status, text);
    symm_status_adopt(text);
}

symmResult_t symm_tcp_root_allgather(symm_boot_tcp *t, const void *send, void *recv, size_t bytes,
                                     const symm_wait *w) {
    exchange x = {t, w, symm_now_ns(), recv, bytes, t->root, 0};
    t->seq++;
    if (bytes) memmove((char *)recv + (size_t)t->root * bytes, send, bytes);
    symmResult_t status = relay(&x);
    if (status) tell_all(t, status);
    return status;
}

/* ---- between two exchanges ---- */

/* What is to be read of a rank: 1 something, 0 nothing yet, -1 it has left. */
static int has_said(const symm_tcp_conn *c) {
    char byte;
    const ssize_t k = recv(c->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    return k > 0                                                                  ? 1
           : k < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) ? 0
                                                                                  : -1;
}

/* Rank r's death, as an error of all ranks. */
static void describe_gone(const symm_boot_tcp *t, int r, const symm_wait *w, symm_boot_loss *loss) {
    loss->code = symmRemoteError;
    loss->rank = r;
    snprintf(loss->text, sizeof(loss->text), "rank %d (process %u) died or left while %s", r,
             t->peers[r].pid, symm_boot_stage(w));
}

int symm_tcp_root_lost(symm_boot_tcp *t, const uint8_t *awaited, const symm_wait *w,
                       symm_boot_loss *loss) {
    for (int r = 0; r < t->base.nranks; r++) {
        const int said = t->peers[r].fd >= 0 ? has_said(&t->peers[r]) : 0;
        if (!said || (said > 0 && !awaited[r])) continue;
        describe_gone(t, r, w, loss);
        if (said > 0)
            snprintf(loss->text, sizeof(loss->text), "rank %d (process %u) has given up while %s",
                     r, t->peers[r].pid, symm_boot_stage(w));
        return 1;
    }
    return 0;
}

/* ---- a root that is no rank ---- */

/* A rank has left or died. Those that have ended their meeting do not read this; those that are
 * still to connect to it would wait for it until their deadline. */
static void tell_gone(symm_boot_tcp *t, int r, const symm_wait *w) {
    symm_boot_loss loss;
    describe_gone(t, r, w, &loss);
    symm_tcp_root_error(t, loss.code, loss.text);
}

/* Between two exchanges ranks may leave: they need no root once they can reach each other. *begun:
 * one has begun the next exchange; else all have left. A rank that left before is an error then. */
static symmResult_t await_first(exchange *x, int *begun) {
    symm_boot_tcp *t = x->t;
    int gone = -1, here = t->base.nranks;
    for (*begun = 0; here && !*begun;) {
        here = 0;
        for (int r = 0; r < t->base.nranks; r++) {
            t->polls[r] = (struct pollfd){.fd = t->peers[r].fd, .events = POLLIN};
            here += t->peers[r].fd >= 0;
        }
        if (here) SYMM_TRY(poll_ranks(x, t->base.nranks, "did not come to the exchange"));
        for (int r = 0; here && r < t->base.nranks; r++) {
            const int said = t->polls[r].revents ? has_said(&t->peers[r]) : 0;
            *begun |= said > 0;
            if (said >= 0) continue;
            symm_tcp_close(&t->peers[r]);
            if (gone >= 0) continue;
            gone = r;
            tell_gone(t, r, x->w);
        }
    }
    return *begun && gone >= 0 ? rank_gone(x, gone) : symmSuccess;
}

void symm_tcp_root_relay(symm_boot_tcp *t, const symm_wait *w) {
    symmResult_t status = symmSuccess;
    for (int begun = 1; !status && begun;) {
        exchange x = {.t = t, .w = w, .start_ns = symm_now_ns()};
        t->seq++;
        begin_phase(&x, 0);
        status = await_first(&x, &begun);
        if (!status && begun) status = relay(&x);
        free(x.recv);
    }
    if (status) tell_all(t, status);
}
