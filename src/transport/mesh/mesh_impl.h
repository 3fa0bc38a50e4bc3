/* mesh_impl.h - what the files of the control mesh share. Private to them. In layers, lowest first:
 *
 *   wire, mesh_packet, mesh_take   headers; packets of one socket; the next message of a peer
 *   mesh_base                      waiting, deadlines, deaths and revocations, once for all kinds
 *   mesh_join, mesh_unix           ranks that are processes
 *   mesh_tcp*                      ranks that are processes of several hosts (mesh_tcp.h)
 *   mesh_threads                   ranks that are threads
 *   mesh                           makes one of the kinds; sends and receives
 *   agree, survive, boot_mesh      agreements and allgathers over it
 *
 * The kinds offer steps that never block. Runs in the thread that owns the mesh. No lock here: what
 * other threads may look at is atomic. */
#ifndef SYMM_MESH_IMPL_H_
#define SYMM_MESH_IMPL_H_

#include <poll.h>
#include <stdatomic.h>
#include <sys/types.h>

#include "base/check.h"
#include "mesh.h"
#include "survive.h"
#include "wire.h"

#define MESH_SCM_MAX  253 /* fds of one message at most, by the kernel; any surplus is closed */
#define MESH_SLICE_MS 50  /* longest sleep; an event ends it early */
#define MESH_CHECK_MS 5   /* the same where w->check must be polled */

/* What a step found. BUSY: the kernel was short of a resource; try again a little later. */
enum { MESH_NOTHING, MESH_READY, MESH_GONE, MESH_BUSY };

/* What to wait for, per peer. LOST is an answer: the peer has hung up. */
enum { MESH_IN = 1, MESH_OUT = 2, MESH_HUP = 4, MESH_LOST = 8 };

/* The message that was taken last. Its fds belong to the mesh until the caller takes them over. */
typedef struct {
    symm_wire_msg head;
    const char *why; /* not NULL: no valid message, and why */
    int truncated;   /* the kernel dropped fds */
    int nfds;        /* that came */
    int fds[MESH_SCM_MAX];
    uint8_t buf[SYMM_WIRE_HEADER + SYMM_MESH_MAX];
} symm_mesh_in;

typedef struct {
    symmResult_t (*connect)(symm_mesh *m, const symm_mesh_addr *addrs, void *shared,
                            const symm_wait *w);
    /* One attempt to hand a message over; *state NOTHING: no room. Any thread. */
    symmResult_t (*put)(symm_mesh *m, int peer, int type, const void *payload, size_t bytes,
                        const int *fds, int nfds, int *state);
    /* One attempt to take the next message of peer into m->in, past WORDs. GONE only after the last
     * one was taken; BUSY: there were so many WORDs that the caller shall look at its deadline. */
    symmResult_t (*take)(symm_mesh *m, int peer, int *state);
    /* Sleeps until something of want[nranks] may be there, at most ms; sets MESH_LOST bits. */
    void (*wait)(symm_mesh *m, uint8_t *want, int ms);
    /* Copies the beginning of the next message of peer, header and payload, and leaves it there;
     * returns how many bytes, 0: none. */
    size_t (*next)(symm_mesh *m, int peer, uint8_t *raw, size_t cap);
    int (*hung_up)(const symm_mesh *m, int peer); /* any thread */
    int (*fd)(const symm_mesh *m, int peer);      /* any thread */
    void (*close)(symm_mesh *m);                  /* frees what the kind holds, not m's own parts */
    /* NULL where no message is kept or can be looked at. Any thread. */
    int (*peek)(symm_mesh *m, int peer, symm_mesh_news *news); /* *news is zeroed before */
    void (*push)(symm_mesh *m);
} symm_mesh_ops;

/* survive.c: one message of a call of it, on the wire. dead: ranks that the sender found dead. */
enum { PROPOSED = 1, CONFIRMED, DECIDED }; /* what */
typedef struct {
    uint32_t call, round;
    int32_t what, kind, code, pad;
    symm_ranks dead, out;
    char text[200];
} symm_will;

enum { SYMM_WILLS = 16 };
typedef struct { /* of one peer: messages that came while this rank was in another call, in order */
    int n;
    int called; /* the last one expects this rank in a call that is not over */
    symm_will at[SYMM_WILLS];
} symm_wills;

struct symm_mesh { /* first member of each kind's own struct */
    const symm_mesh_ops *ops;
    int rank, nranks;
    int patience_ms;     /* symm_mesh_patience */
    pid_t owner;         /* a forked child must not shut down its parent's connections */
    int refused;         /* see symm_mesh_refused */
    _Atomic int blame;   /* the rank whose death ended the last step, -1 none */
    _Atomic int revoked; /* a REVOKE was sent or obeyed: older messages are skipped */
    _Atomic int obeyed;  /* 1 + the peer whose REVOKE was obeyed first: `vote` is there; 0: none */
    symm_vote vote;
    _Atomic uint8_t *dead;
    _Atomic uint8_t *left; /* a LEFT was taken */
    uint8_t *want;         /* [nranks] MESH_* bits of the wait under way */
    uint8_t *pending;      /* [nranks] for agree and for joining: who is awaited */
    symm_wills *wills;     /* [nranks] */
    uint32_t session;      /* number of the shrink whose exchange is under way; 0: none */
    uint32_t call;         /* number of the last call of survive.c */
    symm_ranks came;       /* survive.c: who has said something in the call under way */
    /* NULL: WORDs are dropped. Neither changes once the mesh is connected. */
    const symm_mesh_words *words;
    void *words_arg;
    char seen[220]; /* who was turned away last; the error about missing ranks ends with it */
    symm_mesh_in in;
};

/* AF_UNIX. The fds do not change after connect has returned, so any thread may read them then. */
typedef struct {
    symm_mesh base;
    int listener;
    int *fds; /* [nranks] -1: none */
    struct pollfd *polls;
    symm_mesh_addr mine;
    uint64_t *nonces; /* [nranks] the nonce that each peer expects */
    struct symm_mesh_join
        *join; /* what connecting needs, from the beginning; NULL once it is over */
} symm_mesh_unix;

/* Single steps on one socket, also on a connection whose rank is not known yet. The states are
 * those of put and take. */
symmResult_t symm_mesh_packet_put(int fd, const symm_wire_msg *head, const void *payload,
                                  const int *fds, int *state);
symmResult_t symm_mesh_packet_take(int fd, symm_mesh_in *in, int *state);
/* A fresh SEQPACKET socket, or -1 with errno; the gauge counts it. symm_mesh_fd_close takes it back
 * and leaves -1. */
int symm_mesh_socket(void);
void symm_mesh_fd_close(int *fd);
/* The next connection of a listener, the same way. */
int symm_mesh_accept(int listener);
/* mesh_join.c: the connect step. Its memory is allocated before the peers wait for this rank. */
symmResult_t symm_mesh_join_new(symm_mesh_unix *u);
void symm_mesh_join_free(symm_mesh_unix *u);
symmResult_t symm_mesh_unix_join(symm_mesh *m, const symm_mesh_addr *addrs, void *shared,
                                 const symm_wait *w);

/* NULL if m->in is a first message to this rank, whose nonce is given: HELLO, or the REVOKE of a
 * rank that cannot go on. Else what is wrong with it. Closes its fds. */
const char *symm_mesh_judge(symm_mesh *m, uint64_t nonce);

/* The invariants of the common part. In the owner's thread. */
void symm_mesh_check(const symm_mesh *m);
/* Fills the common part; frees it. */
symmResult_t symm_mesh_init(symm_mesh *m, const symm_mesh_ops *ops, int rank, int nranks);
void symm_mesh_fini(symm_mesh *m);

/* What a rank tells the others about itself, but for its name. */
symmResult_t symm_mesh_describe(symm_mesh_addr *a);
symmResult_t symm_mesh_random(void *out, size_t bytes);
symmResult_t symm_mesh_tcp_listen(int rank, int nranks, const char *ifname, symm_mesh_addr *mine,
                                  symm_mesh **out);
symmResult_t symm_mesh_unix_listen(int rank, int nranks, symm_mesh_addr *mine, symm_mesh **out);
symmResult_t symm_mesh_threads_listen(int rank, int nranks, symm_mesh_addr *mine, symm_mesh **out);

/* One look at w->check and the deadline (symmTimeout names the peers with IN or OUT in `want`),
 * then a sleep of at most ms. */
symmResult_t symm_mesh_pause(symm_mesh *m, uint8_t *want, const symm_wait *w, int ms);
/* The first half of symm_mesh_pause: how many ms to sleep, or the error. */
symmResult_t symm_mesh_look(symm_mesh *m, const uint8_t *want, const symm_wait *w, int *ms);
/* The peer is gone: marks it dead, records the error and returns its code. If the peer's last
 * messages have a REVOKE, the error is that one's. */
symmResult_t symm_mesh_lost(symm_mesh *m, int peer, const symm_wait *w);
/* Reads the payload of a REVOKE. What cannot be is put right. */
void symm_mesh_read_revoke(int peer, const uint8_t *payload, size_t bytes, symm_vote *v);
/* m->in is a REVOKE of peer: marks the mesh, passes the message on, records its text and returns
 * its code. */
symmResult_t symm_mesh_obey(symm_mesh *m, int peer);
/* m->in is not what was expected. A REVOKE is obeyed. On a revoked mesh anything else is skipped
 * (*skip). Else it is an error. */
symmResult_t symm_mesh_unexpected(symm_mesh *m, int peer, int type, const symm_wait *w, int *skip);
/* "VOTE" for SYMM_MSG_VOTE: for messages about messages. */
const char *symm_mesh_type_name(unsigned type);
static inline int symm_mesh_is_peer(const symm_mesh *m, int peer) {
    return peer >= 0 && peer < m->nranks && peer != m->rank;
}
/* ops->take for survive.c. After a LEFT the peer is marked dead, and the state is GONE. */
symmResult_t symm_mesh_take_any(symm_mesh *m, int peer, int *state);
/* The same for all other files. Messages for survive.c are kept for it. */
symmResult_t symm_mesh_take(symm_mesh *m, int peer, int *state);
/* m->in is a message of survive.c: reads it. 0: it is malformed. */
int symm_mesh_read_will(const symm_mesh *m, symm_will *x);
/* m->in is a piece of the making of a child that has failed. */
int symm_mesh_left_behind(const symm_mesh *m);
/* Closes the fds of m->in. */
void symm_mesh_in_drop(symm_mesh_in *in);
/* Fills *v. Texts that are too long are cut. */
void symm_mesh_vote(symm_vote *v, symmResult_t code, int rank, const char *stage, const char *text);
/* After a failed step: tells the other ranks once, unless the error came from one of them. */
void symm_mesh_spread(symm_mesh *m, symmResult_t code, const symm_wait *w);

#endif
