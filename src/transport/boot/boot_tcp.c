/* boot_tcp.c - the TCP bootstrap: its functions, and all ranks but the root, which has the id's
 * listener (boot_tcp_root.c). Runs in the thread that is inside the call; no lock. A rank has one
 * connection, to the root. Errors that the root finds come with code and text, and are returned as
 * they are. */
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

#define REFUSED_MS \
    2000 /* no listener for this long means that the root has ended: an id is made after listen */

#define TELL_MS 2000 /* how long a rank that cannot come tries to tell the others */

static const symm_boot_ops elsewhere_ops;

typedef struct { /* one call of a rank that is not 0 */
    symm_boot_tcp *t;
    const symm_wait *w;
    uint64_t start_ns;
    uint64_t limit_ns; /* the deadline; moved once, when the grace begins */
    int at_end;        /* what to do at the deadline */
} call;
enum {
    LEAVE = 0, /* the root does not know this rank yet, so there is nobody to ask */
    ASK = 1,   /* ask the root who is missing, and give it a grace to answer */
    LISTEN =
        2 /* wait for the grace only: half of our block is sent, so no message can go in between */
};

static call call_begin(symm_boot_tcp *t, const symm_wait *w, int at_end) {
    return (call){t, w, symm_now_ns(), w->deadline_ns, at_end};
}

/* The root in texts: "rank 2"; "who made the id" before it has answered, or if it is no rank. */
typedef struct {
    char text[48];
} root_name;

static root_name name_root(const call *c) {
    root_name n = {"who made the id"};
    if (c->t->root >= 0) snprintf(n.text, sizeof(n.text), "rank %d", c->t->root);
    return n;
}

/* With its process, if that is known. */
static root_name name_process(const call *c) {
    root_name n = name_root(c);
    const size_t at = strlen(n.text);
    if (c->t->id.agreed) return (root_name){"rank 0"};
    snprintf(n.text + at, sizeof(n.text) - at, " (process %u)", c->t->id.pid);
    return n;
}

static symmResult_t root_silent(const call *c) {
    char at[64];
    if (c->t->id.agreed)
        return SYMM_ERR(
            symmTimeout, "rank 0 does not answer at %s (rank %d waited %.1f s while %s)%s",
            symm_tcp_id_text(&c->t->id, at, sizeof(at)), c->t->base.rank,
            symm_boot_seconds(c->start_ns), symm_boot_stage(c->w), symm_tcp_id_reach(&c->t->id));
    return SYMM_ERR(symmTimeout,
                    "%s (process %u, %s) does not answer (rank %d waited %.1f s while %s)%s",
                    name_root(c).text, c->t->id.pid, symm_tcp_id_text(&c->t->id, at, sizeof(at)),
                    c->t->base.rank, symm_boot_seconds(c->start_ns), symm_boot_stage(c->w),
                    symm_tcp_id_reach(&c->t->id));
}

static symmResult_t root_gone(const call *c) {
    return SYMM_ERR(symmRemoteError, "%s died or left while %s", name_process(c).text,
                    symm_boot_stage(c->w));
}

static symmResult_t root_malformed(const call *c) {
    return SYMM_ERR(symmInternalError, "%s sent a malformed message while %s", name_root(c).text,
                    symm_boot_stage(c->w));
}

/* At the deadline only the root knows which ranks are missing. Asks it once and waits a little
 * longer. */
static symmResult_t deadline_reached(call *c) {
    int at_end = c->at_end;
    if (at_end == LEAVE) return root_silent(c);
    c->at_end = LEAVE;
    c->limit_ns = symm_tcp_grace();
    if (at_end == LISTEN) return symmSuccess;
    symm_tcp_conn *to = &c->t->peers[0];
    uint64_t sent = to->sent;
    symm_tcp_frame f = {.type = SYMM_TCP_GIVEUP, .seq = c->t->seq};
    symm_tcp_send_small(to, &f, NULL, symm_now_ns());
    to->sent = sent;
    return symmSuccess;
}

/* Sleeps until the connection is ready for `events`, or a slice is over. */
static symmResult_t pause_for(call *c, int events, int *ready) {
    struct pollfd p = {.fd = c->t->peers[0].fd, .events = (short)events};
    int k =
        SYMM_FAIL_CALL(boot_wait, -1, ENOMEM, poll(&p, 1, symm_boot_slice_ms(c->w, c->limit_ns)));
    if (ready) *ready = k > 0 ? p.revents : 0;
    if (k < 0 && errno != EINTR)
        return SYMM_ERR(symmSystemError, "rank %d cannot wait for %s: %s (%s)", c->t->base.rank,
                        name_root(c).text, strerror(errno), symm_boot_stage(c->w));
    /* A message that has come counts, even if the root has closed the connection meanwhile. */
    if (k > 0) return symmSuccess;
    SYMM_TRY(symm_boot_check(c->w));
    if (c->limit_ns && symm_now_ns() >= c->limit_ns) SYMM_TRY(deadline_reached(c));
    return symmSuccess;
}

/* ---- messages of the root ---- */

/* Success with *how DONE, GONE or BAD; an error is the deadline's or the check's. */
static symmResult_t await_frame(call *c, symm_tcp_frame *f, int *how) {
    while ((*how = symm_tcp_read_head(&c->t->peers[0], f)) == SYMM_TCP_AGAIN)
        SYMM_TRY(pause_for(c, POLLIN, NULL));
    return symmSuccess;
}

static symmResult_t await_body(call *c, void *buf, uint64_t bytes) {
    int k;
    while ((k = symm_tcp_read_body(&c->t->peers[0], buf, bytes)) == SYMM_TCP_AGAIN)
        SYMM_TRY(pause_for(c, POLLIN, NULL));
    return k == SYMM_TCP_DONE ? symmSuccess : root_gone(c);
}

/* Adopts the error that the root sends. It has logged it. */
static symmResult_t take_error(call *c, const symm_tcp_frame *f) {
    char text[SYMM_ERR_TEXT];
    if (f->bytes >= sizeof(text) || !symm_tcp_is_error(f->code)) return root_malformed(c);
    SYMM_TRY(await_body(c, text, f->bytes));
    text[f->bytes] = 0;
    SYMM_INFO("bootstrap: %s says: %s", name_root(c).text, text);
    symm_status_adopt(text);
    return (symmResult_t)f->code;
}

/* The next message must be of this type; an error of the root is returned as this call's. */
static symmResult_t expect_frame(call *c, uint32_t type, symm_tcp_frame *f) {
    int how;
    SYMM_TRY(await_frame(c, f, &how));
    if (how == SYMM_TCP_GONE) return root_gone(c);
    if (how == SYMM_TCP_BAD) return root_malformed(c);
    if (f->type == SYMM_TCP_ERROR) return take_error(c, f);
    return f->type == type ? symmSuccess : root_malformed(c);
}

/* ---- connecting ---- */

/* One try to connect. *err 0: connected; else the errno of a try that may be repeated. */
static symmResult_t connect_once(call *c, int *err) {
    symm_boot_tcp *t = c->t;
    symm_lifeline_lock();
    int fd = symm_fd_above(SYMM_FAIL_CALL(
        boot_socket, -1, EMFILE,
        socket(t->id.addr.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)));
    symm_lifeline_add(fd);
    symm_lifeline_unlock();
    if (fd < 0)
        return SYMM_ERR(errno == EMFILE || errno == ENFILE ? symmFdLimit : symmSystemError,
                        "rank %d cannot make a socket: %s", t->base.rank, strerror(errno));
    SYMM_STAT_ADD(fds, +1);
    t->peers[0] = (symm_tcp_conn){.fd = fd};
    symm_tcp_tune(fd);
    *err = SYMM_FAIL_CALL(boot_dial, -1, EADDRNOTAVAIL,
                          connect(fd, (struct sockaddr *)&t->id.addr, t->id.addrlen))
               ? errno
               : 0;
    if (*err != EINPROGRESS && *err != EINTR) return symmSuccess;
    for (int ready = 0; !ready;) SYMM_TRY(pause_for(c, POLLOUT, &ready));
    socklen_t len = sizeof(*err);
    if (SYMM_FAIL_CALL(boot_outcome, -1, ENOBUFS, getsockopt(fd, SOL_SOCKET, SO_ERROR, err, &len)))
        *err = errno;
    return symmSuccess;
}

static symmResult_t fill_hello(const symm_boot_tcp *t, int nranks, symm_tcp_hello *h) {
    *h = (symm_tcp_hello){.version = SYMM_TCP_VERSION,
                          .pid = (uint32_t)getpid(),
                          .rank = t->base.rank,
                          .nranks = nranks};
    memcpy(h->secret, t->id.secret, sizeof(h->secret));
    return symm_tcp_random(&h->token, sizeof(h->token));
}

/* Sends the hello and waits until the root has seen it, which says who it is. *err != 0: this
 * connection has failed. */
static symmResult_t enroll(call *c, const symm_tcp_hello *h, int *err) {
    symm_boot_tcp *t = c->t;
    uint8_t bytes[SYMM_TCP_HELLO];
    symm_tcp_hello_put(h, bytes);
    /* A new connection has room for the hello. If it has none, the connection is broken. */
    if (SYMM_FAIL_CALL(boot_hello, -1, ENOBUFS,
                       send(t->peers[0].fd, bytes, sizeof(bytes), MSG_NOSIGNAL)) !=
        (ssize_t)sizeof(bytes)) {
        *err = ECONNRESET;
        return symmSuccess;
    }
    symm_tcp_frame f;
    int how;
    SYMM_TRY(await_frame(c, &f, &how));
    if (how == SYMM_TCP_DONE && f.type == SYMM_TCP_ERROR) return take_error(c, &f);
    *err = how == SYMM_TCP_DONE && f.type == SYMM_TCP_SEEN ? 0 : ECONNRESET;
    if (*err) return symmSuccess;
    t->root = (int)f.code;
    if (!symm_tcp_root_is_rank(t)) t->base.ops = &elsewhere_ops;
    return symmSuccess;
}

static symmResult_t nobody_listens(const call *c) {
    char at[64];
    return SYMM_ERR(symmRemoteError,
                    "nobody listens at %s any more: who made the id (process %u) has ended, or the "
                    "ranks of this id are complete (rank %d, while %s)%s",
                    symm_tcp_id_text(&c->t->id, at, sizeof(at)), c->t->id.pid, c->t->base.rank,
                    symm_boot_stage(c->w), symm_tcp_id_reach(&c->t->id));
}

/* Between two tries. An id that every rank makes is there before rank 0 listens. */
static symmResult_t back_off(call *c, int err, uint64_t *refused_ns, int *nap_ms) {
    uint64_t now = symm_now_ns();
    SYMM_TRACE("bootstrap: connecting to the root: %s; trying again", strerror(err));
    if (err != ECONNREFUSED || c->t->id.agreed)
        *refused_ns = 0;
    else if (!*refused_ns)
        *refused_ns = now;
    else if (now - *refused_ns >= REFUSED_MS * 1000000ull)
        return nobody_listens(c);
    symm_tcp_close(&c->t->peers[0]);
    for (uint64_t until = now + (uint64_t)*nap_ms * 1000000; symm_now_ns() < until;) {
        SYMM_TRY(symm_boot_check(c->w));
        if (symm_wait_over(c->w)) return root_silent(c);
        struct timespec nap = {0, 5000000};
        nanosleep(&nap, NULL);
    }
    if (*nap_ms < 320) *nap_ms *= 2;
    return symmSuccess;
}

static symmResult_t client_open(symm_boot_tcp *t, const symm_wait *w) {
    call c = call_begin(t, w, LEAVE);
    symm_tcp_hello h;
    uint64_t refused_ns = 0;
    int nap_ms = 10, err;
    SYMM_TRY(fill_hello(t, t->base.nranks, &h));
    for (;;) {
        SYMM_TRY(connect_once(&c, &err));
        if (!err) SYMM_TRY(enroll(&c, &h, &err));
        if (!err) break;
        SYMM_TRY(back_off(&c, err, &refused_ns, &nap_ms));
    }
    symm_tcp_frame f;
    c.at_end = ASK;
    return expect_frame(&c, SYMM_TCP_GO, &f);
}

/* Until the root has answered, with the error that all ranks get, or nobody listens. What has come
 * of it is no error of its own: the rank has one. */
static void tell_refusal(symm_boot_tcp *t, int nranks, uint32_t refused) {
    const symm_wait w = {.deadline_ns = symm_now_ns() + TELL_MS * 1000000ull,
                         .stage = "telling the ranks that it will not come"};
    call c = call_begin(t, &w, LEAVE);
    symm_tcp_hello h;
    uint64_t refused_ns = 0;
    int nap_ms = 10, err;
    if (fill_hello(t, nranks, &h)) return;
    h.refused = refused;
    for (;;) {
        if (connect_once(&c, &err) || (!err && enroll(&c, &h, &err))) return;
        const int gone = err == ECONNREFUSED && !t->id.agreed;
        if (!err || gone || back_off(&c, err, &refused_ns, &nap_ms)) return;
    }
}

/* ---- exchange ---- */

/* Sends this rank's block. If the root sends anything before it has all of it, that is an error. */
static symmResult_t send_block(call *c, const void *send, size_t bytes) {
    symm_tcp_conn *to = &c->t->peers[0];
    symm_tcp_frame f = {SYMM_TCP_DATA, 0, c->t->seq, bytes};
    to->sent = 0;
    c->at_end = LISTEN;
    while (symm_tcp_write(to, &f, send) == SYMM_TCP_AGAIN) {
        int ready;
        SYMM_TRY(pause_for(c, POLLIN | POLLOUT, &ready));
        if (ready & (POLLIN | POLLHUP | POLLERR)) break;
    }
    if (c->at_end == LISTEN && to->sent == SYMM_TCP_FRAME + bytes) c->at_end = ASK;
    return symmSuccess;
}

static symmResult_t client_allgather(symm_boot_tcp *t, const void *send, void *recv, size_t bytes,
                                     const symm_wait *w) {
    call c = call_begin(t, w, ASK);
    symm_tcp_frame f;
    t->seq++;
    if (SYMM_FAIL_HERE(boot_allgather))
        return SYMM_ERR(symmSystemError, "failpoint boot_allgather on rank %d", t->base.rank);
    SYMM_TRY(send_block(&c, send, bytes));
    SYMM_TRY(expect_frame(&c, SYMM_TCP_DATA, &f));
    if (f.seq != t->seq || f.bytes != (uint64_t)t->base.nranks * bytes) return root_malformed(&c);
    return await_body(&c, recv, f.bytes);
}

/* ---- public side ---- */

static int is_root(const symm_boot_tcp *t) {
    return t->root == t->base.rank;
}

static symmResult_t tcp_allgather(symm_boot *b, const void *send, void *recv, size_t bytes,
                                  const symm_wait *w) {
    symm_boot_tcp *t = (symm_boot_tcp *)b;
    if (t->failed)
        return SYMM_ERR(symmInvalidUsage, "bootstrap tcp: an exchange has failed before (%s)",
                        symm_boot_stage(w));
    if (bytes > SIZE_MAX / (size_t)b->nranks)
        return SYMM_ERR(symmInvalidArgument, "bootstrap tcp: %zu bytes per rank are too many",
                        bytes);
    char nothing;
    if (!bytes) recv = &nothing; /* it may be NULL, and adding an offset to NULL is undefined */
    symmResult_t status = is_root(t) ? symm_tcp_root_allgather(t, send, recv, bytes, w)
                                     : client_allgather(t, send, recv, bytes, w);
    if (status) {
        t->failed = 1;
        if (!is_root(t)) shutdown(t->peers[0].fd, SHUT_RDWR); /* so that the root sees it at once */
    }
    return status;
}

/* Between two exchanges the root says nothing but an error of all ranks. */
static int client_lost(symm_boot_tcp *t, const symm_wait *w, symm_boot_loss *loss) {
    const call c = call_begin(t, w, LEAVE);
    symm_tcp_frame f;
    const int how = symm_tcp_peek_error(t->peers[0].fd, &f, loss->text, sizeof(loss->text));
    loss->rank = -1;
    loss->code = (symmResult_t)f.code;
    if (how != SYMM_TCP_GONE) return how == SYMM_TCP_DONE;
    loss->rank = t->root;
    loss->code = symmRemoteError;
    snprintf(loss->text, sizeof(loss->text), "%s died or left while %s", name_process(&c).text,
             symm_boot_stage(w));
    return 1;
}

static int tcp_lost(symm_boot *b, const uint8_t *awaited, const symm_wait *w,
                    symm_boot_loss *loss) {
    symm_boot_tcp *t = (symm_boot_tcp *)b;
    if (t->failed) return 0; /* its error is known */
    return is_root(t) ? symm_tcp_root_lost(t, awaited, w, loss) : client_lost(t, w, loss);
}

static void tcp_close(symm_boot *b) {
    symm_boot_tcp *t = (symm_boot_tcp *)b;
    symm_tcp_end_listener(t);
    symm_tcp_free(t);
}

static const symm_boot_ops tcp_ops = {"tcp", tcp_allgather, tcp_close, 0, tcp_lost};
/* The root is no rank: it is left as soon as the ranks can reach each other. */
static const symm_boot_ops elsewhere_ops = {"tcp", tcp_allgather, tcp_close, 1, tcp_lost};

symmResult_t symm_boot_tcp_id(symmUniqueId_t *id, const char *ifname) {
    symm_tcp_kept *k;
    symm_tcp_id parsed;
    int listener;
    symmResult_t status;
    if (!id) return SYMM_ERR(symmInvalidArgument, "symmGetUniqueId: id is NULL");
    SYMM_TRY(symm_tcp_keep_new(&k));
    SYMM_TRY_GOTO(symm_tcp_id_make(ifname && ifname[0] ? ifname : NULL, id, &listener),
                  free_record);
    SYMM_TRY_GOTO(symm_tcp_id_parse(id, &parsed), close_listener);
    SYMM_TRY_GOTO(symm_tcp_keep(k, &parsed, listener), close_listener);
    return symmSuccess;
close_listener:
    close(listener);
    SYMM_STAT_ADD(fds, -1);
free_record:
    symm_tcp_keep_free(k);
    return status;
}

symmResult_t symm_boot_tcp_agree(const char *address, symmUniqueId_t *id) {
    return symm_tcp_id_agree(address, id);
}

/* As a client, also where the listener is here: who listens, or the keeper, hears it. */
static void tell_root(const symm_tcp_id *id, int rank, int nranks, uint32_t refused) {
    symm_boot_tcp *t;
    if (symm_tcp_make(rank, 1, 0, &t)) return;
    t->id = *id;
    tell_refusal(t, nranks, refused);
    symm_tcp_free(t);
}

static void refuse(const symm_tcp_id *id, int rank, int nranks) {
    int fd = -1;
    if (!id->agreed && (symm_tcp_keep_refuse(id) || symm_tcp_id_claim(id, &fd))) return;
    symm_boot_tcp unmade = {.id = *id, .listener = fd};
    if (fd < 0) tell_root(id, rank, nranks, SYMM_TCP_CANNOT);
    symm_tcp_end_listener(&unmade);
}

void symm_boot_tcp_refuse(const symmUniqueId_t *id, int rank, int nranks) {
    char own[SYMM_ERR_TEXT];
    symm_tcp_id parsed;
    snprintf(own, sizeof(own), "%s", symm_status_text());
    if (!symm_tcp_id_parse(id, &parsed)) refuse(&parsed, rank, nranks);
    symm_status_adopt(own);
}

void symm_boot_tcp_refuse_numbers(const symmUniqueId_t *id, int rank, int nranks) {
    char own[SYMM_ERR_TEXT];
    symm_tcp_id parsed;
    snprintf(own, sizeof(own), "%s", symm_status_text());
    if (!symm_tcp_id_parse(id, &parsed)) tell_root(&parsed, rank, nranks, SYMM_TCP_BAD_NUMBERS);
    symm_status_adopt(own);
}

symmResult_t symm_boot_tcp_drop(const symmUniqueId_t *id) {
    symm_tcp_id parsed;
    SYMM_TRY(symm_tcp_id_parse(id, &parsed));
    symm_tcp_id_drop(&parsed);
    return symmSuccess;
}

/* The id's, if it is here and no other rank has taken it. */
static symmResult_t take_listener(const symm_tcp_id *id, int rank, int *listener) {
    *listener = -1;
    if (id->agreed) return rank ? symmSuccess : symm_tcp_id_listen(id, listener);
    SYMM_TRY(symm_tcp_id_claim(id, listener));
    symm_lifeline_lock(); /* until now a forked child could become the root instead */
    symm_lifeline_add(*listener);
    symm_lifeline_unlock();
    return symmSuccess;
}

/* The root, if it has the listener. */
static symmResult_t open_object(const symm_tcp_id *id, int rank, int nranks, symm_boot_tcp **out) {
    int listener;
    SYMM_TRY(take_listener(id, rank, &listener));
    symmResult_t status = symm_tcp_make(rank, nranks, listener >= 0, out);
    if (status) {
        symm_boot_tcp unmade = {.id = *id, .listener = listener};
        symm_tcp_end_listener(&unmade);
        return status;
    }
    (*out)->base.ops = &tcp_ops;
    (*out)->id = *id;
    (*out)->listener = listener;
    return symmSuccess;
}

symmResult_t symm_boot_tcp_open(const symmUniqueId_t *id, int rank, int nranks, const symm_wait *w,
                                symm_boot **out) {
    if (nranks < 1 || nranks > SYMM_TCP_RANKS || rank < 0 || rank >= nranks)
        return SYMM_ERR(symmInvalidArgument, "rank %d of %d ranks: rank must be in [0, nranks)",
                        rank, nranks);
    symm_tcp_id parsed;
    SYMM_TRY(symm_tcp_id_parse(id, &parsed));
    symm_boot_tcp *t;
    symmResult_t status;
    SYMM_TRY(open_object(&parsed, rank, nranks, &t));
    if (SYMM_FAIL_HERE(boot_connect)) {
        status = SYMM_ERR(symmSystemError, "failpoint boot_connect on rank %d", rank);
        goto close_object;
    }
    if (is_root(t)) {
        status = symm_tcp_root_open(t, w);
        symm_tcp_end_listener(t);
        if (status) goto close_object;
    } else
        SYMM_TRY_GOTO(client_open(t, w), close_object);
    *out = &t->base;
    return symmSuccess;
close_object:
    tcp_close(&t->base);
    return status;
}
