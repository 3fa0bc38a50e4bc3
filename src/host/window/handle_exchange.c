/* handle_exchange.c - handles over the mesh: all of mine to everybody, then everybody's in rank order. Threads as in handle_exchange.h. */
#include "handle_exchange.h"

#include <string.h>
#include <unistd.h>

#include "base/stats.h"
#include "host/comm/comm.h"
#include "machine/fd_closer.h"

_Static_assert(SYMM_MESH_FDS * sizeof(symm_part) <= SYMM_MESH_MAX, "a message takes its parts");

void symm_trade_close(symm_trade *t) {
    if (!t->nfds) return; /* perhaps before it was filled in */
    if (t->c->cuda) {
        symm_closer_take(t->fds, t->nfds);
    } else {
        for (int i = 0; i < t->nfds; i++) close(t->fds[i]);
        SYMM_STAT_ADD(fds, -t->nfds);
    }
    t->nfds = 0;
}

/* Segments that one message takes, from `first` on. */
static int batch(const symm_trade *t, int first) {
    return t->count - first < SYMM_MESH_FDS ? t->count - first : SYMM_MESH_FDS;
}

static symmResult_t export_some(symm_trade *t, int first) {
    const symm_vmm *v = t->c->vmm;
    for (const int n = batch(t, first); t->nfds < n;) {
        const int i = first + t->nfds;
        int cu = v->export_fd(t->handles[i], &t->fds[t->nfds]);
        if (cu) return symm_vmm_error(v, cu, "exporting segment %d of %d", i, t->count);
        t->nfds++;
        SYMM_STAT_ADD(fds, 1);
    }
    return symmSuccess;
}

symmResult_t symm_trade_export(symm_trade *t) {
    if (t->c->nranks == 1)
        return symmSuccess; /* nobody to send to; on GPUs it costs a millisecond */
    return export_some(t, 0);
}

/* Everybody has the batch before. What cannot be exported now is announced all the same, as
 * nothing: the messages stay in step, and this rank votes against. */
static void next_batch(symm_trade *t, int first) {
    int fds[SYMM_MESH_FDS];
    symm_trade next = {.c = t->c, .handles = t->handles, .count = t->count, .fds = fds};
    if (!t->status) t->status = export_some(&next, first);
    t->lacks = t->status != symmSuccess;
    if (t->lacks) {
        symm_trade_close(&next);
        return;
    }
    symm_trade_close(t);
    memcpy(t->fds, fds, (size_t)next.nfds * sizeof *fds);
    t->nfds = next.nfds;
}

static symmResult_t send_some(symm_trade *t, int peer, int first, const symm_wait *w) {
    const int n = batch(t, first);
    symm_part none[SYMM_MESH_FDS] = {{0, 0}};
    int fds[SYMM_MESH_FDS];
    for (int i = 0; i < n; i++) fds[i] = t->fds[t->lacks ? 0 : i];
    return symm_mesh_send(t->c->mesh, peer, SYMM_MSG_HANDLES, t->lacks ? none : &t->parts[first],
                          (size_t)n * sizeof t->parts[0], fds, n, w);
}

static symmResult_t send_all(symm_trade *t, const symm_wait *w) {
    for (int first = 0; first < t->count && t->c->nranks > 1; first += SYMM_MESH_FDS) {
        if (first) next_batch(t, first);
        for (int p = 0; p < t->c->nranks; p++)
            if (p != t->c->rank) SYMM_TRY(send_some(t, p, first, w));
    }
    return symmSuccess;
}

static symmResult_t map_fd(symm_trade *t, int rank, int fd, symm_part part) {
    symm_vmm_handle *h;
    int cu = t->c->vmm->import_fd(fd, part.bytes, &h);
    if (cu)
        return symm_vmm_error(t->c->vmm, cu, "importing %llu bytes of rank %d",
                              (unsigned long long)part.bytes, rank);
    symmResult_t r = t->map(t->arg, rank, h, part);
    t->c->vmm->release(h); /* the mapping holds the memory */
    return r;
}

/* All of one message; the descriptors are closed whatever became of them. */
static void map_some(symm_trade *t, int peer, const symm_part *parts, size_t got, const int *fds,
                     int n) {
    const int whole = got == (size_t)n * sizeof parts[0];
    for (int i = 0; i < n; i++) {
        if (!t->status && whole && parts[i].bytes) /* else its sender votes against */
            t->status = map_fd(t, peer, fds[i], parts[i]);
        close(fds[i]);
    }
    SYMM_STAT_ADD(fds, -n);
    if (!t->status && !whole)
        t->status = SYMM_ERR(symmInternalError, "rank %d sent %zu bytes of sizes for %d segments",
                             peer, got, n);
}

static symmResult_t take(symm_trade *t, int peer, int count, const symm_wait *w) {
    symm_part parts[SYMM_MESH_FDS];
    int fds[SYMM_MESH_FDS];
    for (int left = count; left > 0; left -= SYMM_MESH_FDS) {
        const int n = left < SYMM_MESH_FDS ? left : SYMM_MESH_FDS;
        size_t got = 0;
        symmResult_t r = symm_mesh_recv(t->c->mesh, peer, SYMM_MSG_HANDLES, parts, sizeof parts,
                                        &got, fds, n, w);
        if (r == symmFdLimit) {
            if (!t->status) t->status = r;
            continue;
        }
        if (r) return r;
        map_some(t, peer, parts, got, fds, n);
    }
    return symmSuccess;
}

symmResult_t symm_trade_run(symm_trade *t, const int *counts) {
    symm_comm *c = t->c;
    symm_wait w = symm_comm_wait(c, t->stage);
    symmResult_t broken = send_all(t, &w);
    for (int i = 0; i < t->count && !t->status; i++)
        t->status = t->map(t->arg, c->rank, t->handles[i], t->parts[i]);
    for (int p = 0; p < c->nranks && !broken; p++)
        if (p != c->rank) broken = take(t, p, counts[p], &w);
    if (broken) /* out of step with a peer: nobody can go on */
        symm_comm_break(c, broken, c->rank, t->stage);
    return broken;
}
