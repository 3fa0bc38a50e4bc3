/* handle_exchange.c - handles over the mesh: a message to one peer, a message from another, in
 * turn. Threads as in handle_exchange.h. The kernel limits how many descriptors of a user are in
 * flight (sent, not yet received) in all processes together: RLIMIT_NOFILE of the sender; root is
 * exempt. If every rank sent all it has before it received anything, the ranks would wait for each
 * other. So a rank receives a message before it sends the next, and all send the same number of
 * messages; a rank without more segments sends empty ones. Then each rank has sent at most one
 * message more than it has received, and at most one per rank is in flight. Together they carry at
 * most IN_FLIGHT descriptors, or one per rank if there are more ranks. A limit that leaves each
 * rank its connections is above that. Communicators that exchange at the same time add up, so a
 * rank that waits receives meanwhile what has arrived. */
#include "handle_exchange.h"

#include <poll.h>
#include <string.h>
#include <unistd.h>

#include "base/stats.h"
#include "host/comm/comm.h"
#include "machine/fd_closer.h"

void symm_handle_exchange_close(symm_handle_exchange *t) {
    t->noffers = 0;
    if (!t->nfds) return; /* perhaps before it was filled in */
    if (t->c->cuda) {
        symm_closer_take(t->fds, t->nfds);
    } else {
        for (int i = 0; i < t->nfds; i++) close(t->fds[i]);
        SYMM_STAT_ADD(fds, -t->nfds);
    }
    t->nfds = 0;
}

/* IN_FLIGHT: descriptors of all ranks together; far below the usual limits, because there may be
 * more communicators. AT_ONCE: segments of one message. */
enum { IN_FLIGHT = 64, AT_ONCE = SYMM_HANDLES_AT_ONCE };
_Static_assert((int)AT_ONCE <= SYMM_MESH_FDS && AT_ONCE * sizeof(symm_offer) <= SYMM_MESH_MAX,
               "a message takes them");

/* Segments of a full message: the same on all ranks, so it does not depend on a rank's limits. */
static int full(const symm_comm *c) {
    const int n = IN_FLIGHT / c->nranks;
    return n > AT_ONCE ? AT_ONCE : n ? n : 1;
}

/* Segments, of count, in the message that begins with the one numbered `first`. */
static int batch(const symm_comm *c, int count, int first) {
    const int left = count > first ? count - first : 0;
    return left < full(c) ? left : full(c);
}

/* Descriptors, unless all is to go as fabric handles. Memory of another allocator may have been
 * made for one of the two. 0: for none that all ranks can take. */
static int kind_of(const symm_comm *c, int kinds) {
    if (!c->fabric) kinds &= ~SYMM_SHARE_FABRIC;
    if (c->hosts > 1) kinds &= ~SYMM_SHARE_FD;
    if (kinds & SYMM_SHARE_FABRIC && (c->fabric > 1 || !(kinds & SYMM_SHARE_FD)))
        return SYMM_SHARE_FABRIC;
    return kinds & SYMM_SHARE_FD;
}

static symmResult_t export_one(symm_handle_exchange *t, int i) {
    const symm_vmm *v = t->c->vmm;
    symm_offer *o = &t->offers[t->noffers];
    int kinds = 0, cu = v->shares(t->handles[i], &kinds);
    if (cu) return symm_vmm_error(v, cu, "asking how segment %d of %d is exported", i, t->count);
    *o = (symm_offer){.part = t->parts[i], .kind = (unsigned)kind_of(t->c, kinds)};
    if (!o->kind && t->c->hosts > 1)
        return SYMM_ERR(symmInvalidArgument,
                        "segment %d of %d was made to be exported as a descriptor only, and the "
                        "ranks are on %d hosts",
                        i, t->count, t->c->hosts);
    if (!o->kind)
        return SYMM_ERR(
            symmInvalidArgument,
            "segment %d of %d was made to be exported as a fabric handle only, and %s", i, t->count,
            t->c->params.handles == SYMM_HANDLES_FD ? "SYMM_HANDLES=fd"
                                                    : "not every rank can take those (symm-info)");
    cu = o->kind == SYMM_SHARE_FD ? v->export_fd(t->handles[i], &t->fds[t->nfds])
                                  : v->export_fabric(t->handles[i], &o->fabric);
    if (cu) return symm_vmm_error(v, cu, "exporting segment %d of %d", i, t->count);
    t->noffers++;
    if (o->kind != SYMM_SHARE_FD) return symmSuccess;
    t->nfds++;
    SYMM_STAT_ADD(fds, 1);
    return symmSuccess;
}

static symmResult_t export_some(symm_handle_exchange *t, int first) {
    for (const int n = batch(t->c, t->count, first); t->noffers < n;)
        SYMM_TRY(export_one(t, first + t->noffers));
    return symmSuccess;
}

symmResult_t symm_handle_exchange_export(symm_handle_exchange *t) {
    if (t->c->nranks == 1)
        return symmSuccess; /* nobody to send to; on GPUs it costs a millisecond */
    return export_some(t, 0);
}

/* Every peer has got the previous batch; this one may be empty. Segments that cannot be exported,
 * and those after them, are sent as offers of nothing: the messages stay in step, and this rank
 * votes against success. */
static void next_batch(symm_handle_exchange *t, int first) {
    symm_handle_exchange_close(t);
    if (!t->lacks) {
        const symmResult_t r = export_some(t, first);
        t->lacks = r != symmSuccess;
        if (!t->status) t->status = r;
    }
    if (t->lacks) symm_handle_exchange_close(t);
}

static symmResult_t send_some(symm_handle_exchange *t, int peer, int first, const symm_wait *w) {
    const int n = batch(t->c, t->count, first);
    const symm_offer none[AT_ONCE] = {{.kind = 0}};
    return symm_mesh_send(t->c->mesh, peer, SYMM_MSG_HANDLES, t->lacks ? none : t->offers,
                          (size_t)n * sizeof none[0], t->fds, t->nfds, w);
}

/* fd: of that kind. */
static symmResult_t map_offer(symm_handle_exchange *t, int rank, const symm_offer *o, int fd) {
    const symm_vmm *v = t->c->vmm;
    symm_vmm_handle *h;
    int cu = o->kind == SYMM_SHARE_FD ? v->import_fd(fd, o->part.bytes, &h)
                                      : v->import_fabric(&o->fabric, o->part.bytes, &h);
    if (cu)
        return symm_vmm_error(v, cu, "importing %llu bytes of rank %d",
                              (unsigned long long)o->part.bytes, rank);
    symmResult_t r = t->map(t->arg, rank, h, o->part);
    v->release(h); /* the mapping holds the memory */
    return r;
}

typedef struct { /* a message that has come */
    symm_offer offers[AT_ONCE];
    int fds[AT_ONCE];
    int n, nfds;
} message;

static int of_kind(const message *in, int kind) {
    int n = 0;
    for (int i = 0; i < in->n; i++) n += in->offers[i].kind == (unsigned)kind;
    return n;
}

/* Maps all of one message that should have n segments. The descriptors are closed in any case. */
static void map_some(symm_handle_exchange *t, int peer, const message *in, int n) {
    const int fds = of_kind(in, SYMM_SHARE_FD), none = of_kind(in, 0),
              whole =
                  in->n == n && fds == in->nfds && fds + none + of_kind(in, SYMM_SHARE_FABRIC) == n;
    for (int i = 0, at = 0; whole && i < n; i++) {
        const symm_offer *o = &in->offers[i];
        if (o->kind && !t->status) t->status = map_offer(t, peer, o, in->fds[at]);
        at += o->kind == SYMM_SHARE_FD; /* of one of no kind its sender votes against */
    }
    for (int i = 0; i < in->nfds; i++) close(in->fds[i]);
    SYMM_STAT_ADD(fds, -in->nfds);
    if (!t->status && !whole)
        t->status =
            SYMM_ERR(symmInternalError, "rank %d sent %d segments and %d descriptors, expected %d",
                     peer, in->n, in->nfds, n);
}

/* ---- the messages ---- */

typedef struct {
    symm_handle_exchange *t;
    const int *counts;
    int most;                 /* of counts: everybody sends as many messages as these take */
    int awaited;              /* the peer whose message is being waited for, -1 none */
    int next[SYMM_MAX_RANKS]; /* the segment of each peer with which its next message begins */
    symm_wait plain;
} flow;

/* The next message of a peer. */
static symmResult_t take(flow *f, int peer, const symm_wait *w) {
    symm_handle_exchange *t = f->t;
    message in = {.nfds = AT_ONCE};
    const int n = batch(t->c, f->counts[peer], f->next[peer]);
    size_t got = 0;
    symmResult_t r = symm_mesh_recv_some(t->c->mesh, peer, SYMM_MSG_HANDLES, in.offers,
                                         sizeof in.offers, &got, in.fds, &in.nfds, w);
    f->next[peer] += full(t->c);
    if (r == symmFdLimit && !symm_mesh_revoked(t->c->mesh)) { /* it has been taken: in step */
        if (!t->status) t->status = r;
        return symmSuccess;
    }
    in.n = got % sizeof in.offers[0] ? -1 : (int)(got / sizeof in.offers[0]);
    if (!r) map_some(t, peer, &in, n);
    return r;
}

/* Something of that peer can be read: whether it is a message. Sizes of vectors may come at any
 * time from another host, also in part, and who waits for a message behind one would wait too
 * early. */
static int has_message(const symm_comm *c, int peer) {
    symm_mesh_news news;
    if (c->hosts <= 1) return 1;
    symm_mesh_peek(c->mesh, peer, &news);
    return news.message || symm_mesh_hung_up(c->mesh, peer);
}

/* Polled while this thread waits to send or to receive. It receives what has arrived from others,
 * so that nothing stays in flight because this rank waits. */
static symmResult_t take_what_came(void *arg) {
    flow *f = arg;
    const symm_comm *c = f->t->c;
    struct pollfd polls[SYMM_MAX_RANKS];
    SYMM_TRY(f->plain.check(f->plain.arg));
    for (int p = 0; p < c->nranks; p++) {
        const int due = p != f->awaited && f->next[p] < f->most;
        polls[p] = (struct pollfd){.fd = due ? symm_mesh_fd(c->mesh, p) : -1, .events = POLLIN};
    }
    if (poll(polls, (nfds_t)c->nranks, 0) <= 0) return symmSuccess; /* looked at again soon */
    for (int p = 0; p < c->nranks; p++)
        if (polls[p].revents && has_message(c, p)) SYMM_TRY(take(f, p, &f->plain));
    return symmSuccess;
}

/* A message to each peer, and one from each, in pairs: at step k every rank sends to rank + k and
 * receives from rank - k. So what is received was sent at the same step. */
static symmResult_t one_round(flow *f, int first) {
    symm_handle_exchange *t = f->t;
    const int rank = t->c->rank, n = t->c->nranks;
    symm_wait w = f->plain;
    w.check = take_what_came;
    w.arg = f;
    for (int k = 1; k < n; k++) {
        const int from = (rank + n - k) % n;
        SYMM_TRY(send_some(t, (rank + k) % n, first, &w));
        if (f->next[from] > first) continue; /* taken while this rank waited */
        f->awaited = from;
        SYMM_TRY(take(f, from, &w));
        f->awaited = -1;
    }
    return symmSuccess;
}

/* The rank that the others name if they see only the abort word: the dead one, whoever told of it.
 * A late one is not known here. */
static int about(const symm_comm *c, symmResult_t code) {
    const int dead = symm_comm_dead(c);
    if (code == symmTimeout) return -1;
    return code == symmRemoteError && dead >= 0 ? dead : symm_mesh_about(c->mesh, code);
}

symmResult_t symm_handle_exchange_run(symm_handle_exchange *t, const int *counts) {
    symm_comm *c = t->c;
    flow f = {.t = t, .counts = counts, .awaited = -1, .plain = symm_comm_wait(c, t->stage)};
    symmResult_t broken = symmSuccess;
    for (int p = 0; p < c->nranks; p++)
        if (counts[p] > f.most) f.most = counts[p];
    for (int i = 0; i < t->count && !t->status; i++)
        t->status = t->map(t->arg, c->rank, t->handles[i], t->parts[i]);
    for (int first = 0; first < f.most && c->nranks > 1 && !broken; first += full(c)) {
        if (first) next_batch(t, first);
        broken = one_round(&f, first);
    }
    if (broken) /* out of step with a peer: nobody can go on */
        symm_comm_break(c, broken, about(c, broken), t->stage);
    return broken;
}
