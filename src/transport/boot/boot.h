/* boot.h - bootstrap: the exchange that exists before ranks can map each other's memory. One thread
 * at a time per object; no lock.
 *
 * Its only operation is an allgather of blocks of equal size. It ends at w->deadline_ns and polls
 * w->check. Its error names the missing ranks if the kind knows them. After a failed allgather only
 * close may be called. Kinds: boot_mpi, boot_tcp, boot_threads, boot_user (callbacks), boot_mesh
 * (through the mesh of a parent communicator). */
#ifndef SYMM_BOOT_H_
#define SYMM_BOOT_H_

#include <stddef.h>

#include "base/wait.h"

typedef struct symm_boot symm_boot;
typedef struct { /* why no exchange will come about any more */
    symmResult_t code;
    int rank; /* that is the reason; -1: not known, or it is no rank */
    char text[SYMM_ERR_TEXT];
} symm_boot_loss;
typedef struct {
    const char *name; /* "mpi", "tcp", "threads", "callbacks", "parent" */
    /* pre: send has `bytes`, recv nranks*bytes; every rank passes the same `bytes`.
   * post: recv[r*bytes..] is rank r's block, on every rank. */
    symmResult_t (*allgather)(symm_boot *b, const void *send, void *recv, size_t bytes,
                              const symm_wait *w);
    void (*close)(symm_boot *b); /* frees b; never blocks; waits for no peer */
    /* 1: used only until there is a mesh, and then closed, because others use its means too
     * (MPI). */
    int meets_only;
    /* See symm_boot_lost. NULL: the kind has nothing that would show it. */
    int (*lost)(symm_boot *b, const uint8_t *awaited, const symm_wait *w, symm_boot_loss *loss);
} symm_boot_ops;
struct symm_boot { /* first member of every kind's own struct */
    const symm_boot_ops *ops;
    int rank, nranks;
    symmMeet_t meet; /* what its ranks settle first; settle NULL: nothing */
    int beside;      /* ranks on the same cores that are none of its own */
};

/* TCP. id_create opens this process's listener and writes a 128-byte id (magic, version, address,
 * port, 128-bit secret). The listener lives until the root's boot is closed; an id never used is
 * dropped at exit. open: of the ranks in the process that made the id, or in children that were
 * forked later, the first to call is the root. If none of them calls while others knock, a thread
 * of that process is, until all ranks have closed their boot (meets_only is 1 then). Others connect
 * (retrying until the deadline), prove the secret and say rank and nranks. Stray, slow and
 * malformed connections are dropped and harm nothing; a duplicate rank or a differing nranks is an
 * error on every rank. Afterwards the root relays (star): allgather = send to root, root sends
 * everything back. */
symmResult_t symm_boot_tcp_id(symmUniqueId_t *id, const char *ifname);
symmResult_t symm_boot_tcp_open(const symmUniqueId_t *id, int rank, int nranks, const symm_wait *w,
                                symm_boot **out);
/* A rank of this process will not open the id. Closes the listener, if it is here and no rank has
 * it, or ends the meeting that this process serves, so that the others do not wait for it. Else
 * tells them, and waits for that for at most 2 s. The thread's last error stays. */
void symm_boot_tcp_refuse(const symmUniqueId_t *id, int rank, int nranks);
/* A rank was given numbers that are out of range, and will not open the id. All ranks get an error
 * that names them. Waits for that for at most 2 s. The thread's last error stays. */
void symm_boot_tcp_refuse_numbers(const symmUniqueId_t *id, int rank, int nranks);
/* No rank will open the id: as refuse, but a meeting that is under way goes on. */
symmResult_t symm_boot_tcp_drop(const symmUniqueId_t *id);
/* An id that every rank makes itself, of the same address: rank 0 listens there when it comes. */
symmResult_t symm_boot_tcp_agree(const char *address, symmUniqueId_t *id);

/* Threads of one process: group_create makes one shared meeting point, open joins it. The last
 * close frees it. abandon: no rank is to come any more; ranks that wait get symmRemoteError. */
typedef struct symm_boot_group symm_boot_group;
symmResult_t symm_boot_group_create(int nranks, symm_boot_group **out);
symmResult_t symm_boot_threads_open(symm_boot_group *g, int rank, symm_boot **out);
void symm_boot_group_abandon(symm_boot_group *g);
/* held 1: neither abandon nor the last close frees the group before a call with 0 (which may free
 * it at once). */
void symm_boot_group_hold(symm_boot_group *g, int held);

/* The caller's callbacks. A callback that returns non-zero is symmSystemError. The deadline cannot
 * interrupt it. */
symmResult_t symm_boot_user_open(const symmBoot_t *cb, int rank, int nranks, symm_boot **out);

/* Through the control mesh of a living communicator: members[i] is the mesh rank of new rank i.
 * Used by split and shrink. */
struct symm_mesh;
symmResult_t symm_boot_mesh_open(struct symm_mesh *mesh, const int *members, int nmembers, int rank,
                                 symm_boot **out);
/* The child has a mesh of its own now: its exchanges go through that, and the parent may end. Does
 * nothing for other kinds. */
void symm_boot_mesh_rehome(symm_boot *b, struct symm_mesh *own);
/* Whether b is over that mesh, and rank of the mesh has a part in it. Any thread. */
int symm_boot_mesh_has(const symm_boot *b, const struct symm_mesh *mesh, int rank);
/* For shrink, after an open over all ranks: from now on only these are members, in the call of that
 * number (survive.h), also if the parent is revoked. A failure leaves the parent as it is. */
void symm_boot_mesh_survive(symm_boot *b, uint32_t session, const int *members, int nmembers,
                            int rank);

static inline symmResult_t symm_boot_allgather(symm_boot *b, const void *send, void *recv,
                                               size_t bytes, const symm_wait *w) {
    return b->ops->allgather(b, send, recv, bytes, w);
}
/* A look between two exchanges, while the ranks do something else together: 1 if a rank has died or
 * given up, as far as this rank's connections show it. awaited[nranks]: ranks that cannot begin the
 * next exchange yet; one that has begun it has given up. Takes nothing of what has come, records no
 * error, never blocks. */
static inline int symm_boot_lost(symm_boot *b, const uint8_t *awaited, const symm_wait *w,
                                 symm_boot_loss *loss) {
    return b->ops->lost ? b->ops->lost(b, awaited, w, loss) : 0;
}
static inline void symm_boot_close(symm_boot *b) {
    if (b) b->ops->close(b);
}

#endif
