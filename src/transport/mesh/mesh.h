/* mesh.h - the control mesh: one ordered message channel between every two ranks of a communicator,
 * on this host. Carries file descriptors, votes and split exchanges; its end of file is how a death
 * is seen at once. One thread at a time per mesh, except symm_mesh_fd/_alive/_mark_dead, which any
 * thread may call.
 *
 * Two kinds behind one interface: mesh_unix (AF_UNIX SOCK_SEQPACKET between processes; random
 * abstract name; uid always, pid where the pid namespace is shared, and a nonce checked;
 * MSG_CMSG_CLOEXEC; truncation detected; surplus fds closed; one message is at most
 * SYMM_MESH_MAX bytes and SYMM_MESH_FDS fds) and mesh_threads (mailboxes, for thread ranks: no
 * fds). */
#ifndef SYMM_MESH_H_
#define SYMM_MESH_H_

#include <stddef.h>

#include "transport/boot/boot.h"

#define SYMM_MESH_MAX 4096 /* payload bytes of one message */
#define SYMM_MESH_FDS 64   /* fds of one message (the kernel takes 253) */

/* message types; a receiver that meets another type than it expects: REVOKE is obeyed, else
 * symmInternalError */
enum {
    SYMM_MSG_HELLO = 1,
    SYMM_MSG_VOTE = 2,
    SYMM_MSG_COMMIT = 3,
    SYMM_MSG_HANDLES = 4,
    SYMM_MSG_BOOT = 5,
    SYMM_MSG_REVOKE = 6, /* payload: symm_vote of the death or error that revoked */
    SYMM_MSG_WILL = 7,   /* survive.h; who receives something else keeps it for later */
    SYMM_MSG_CHILD = 8   /* a piece of the making of a shrink's child, see symm_mesh_session */
};

typedef struct symm_mesh symm_mesh;

/* What each rank tells the others about itself before the mesh exists; filled by symm_mesh_listen.
 * 64 bytes, on the wire. */
typedef struct {
    uint64_t pidns; /* inode of the pid namespace */
    uint64_t nonce; /* random; every connection to this rank must show it */
    uint32_t pid, uid;
    char name[40]; /* abstract socket name without the leading NUL; empty: thread ranks */
} symm_mesh_addr;

/* Step 1, before the bootstrap's allgather: makes the listener and *mine. threads != 0: no
 * socket. */
symmResult_t symm_mesh_listen(int rank, int nranks, int threads, symm_mesh_addr *mine,
                              symm_mesh **out);
/* Step 2, after it: addrs[nranks] in rank order. Connects to lower ranks, accepts higher ones,
 * closes the listener. threads: `shared` is one pointer equal on all ranks (see
 * symm_mesh_share), else NULL. On error the caller closes the mesh. */
symmResult_t symm_mesh_connect(symm_mesh *m, const symm_mesh_addr *addrs, void *shared,
                               const symm_wait *w);
/* Threads only: the mailbox block that rank 0 makes and passes by pointer; freed by the last mesh
 * that closes. */
symmResult_t symm_mesh_share(int nranks, void **shared);
/* Rank 0, where symm_mesh_connect will not be called after all (the bootstrap failed). Else connect
 * takes the block over. */
void symm_mesh_unshare(void *shared);
void symm_mesh_close(symm_mesh *m);

int symm_mesh_rank(const symm_mesh *m);
int symm_mesh_nranks(const symm_mesh *m);

/* Sends payload (<= SYMM_MESH_MAX) and fds (<= SYMM_MESH_FDS) to peer. The fds stay the caller's.
 * A peer that is gone: symmRemoteError naming it and w->stage. fd limit in flight
 * (ETOOMANYREFS): retried to the deadline. */
symmResult_t symm_mesh_send(symm_mesh *m, int peer, int type, const void *payload, size_t bytes,
                            const int *fds, int nfds, const symm_wait *w);
/* The same without fds, best effort: never blocks, and whether it went is not told. */
void symm_mesh_post(symm_mesh *m, int peer, int type, const void *payload, size_t bytes);
/* Messages of type CHILD begin with the number of the session that they belong to, a shrink
 * (boot_mesh.c). Those of any other shrink than this one were left behind by one that failed,
 * and are dropped wherever they are met. */
void symm_mesh_session(symm_mesh *m, uint32_t session);
/* Receives the next message of peer, which must have `type`. Exactly nfds fds must come
 * (symmFdLimit if the kernel had to drop some for want of descriptors: all that came are
 * closed). *got <= cap. Received fds are CLOEXEC and the caller's (gauge fds). */
symmResult_t symm_mesh_recv(symm_mesh *m, int peer, int type, void *payload, size_t cap,
                            size_t *got, int *fds, int nfds, const symm_wait *w);

/* The socket to peer for poll(2), -1 if none (self, thread ranks). Do not read from it. */
int symm_mesh_fd(const symm_mesh *m, int peer);
int symm_mesh_alive(const symm_mesh *m, int peer);
void symm_mesh_mark_dead(symm_mesh *m, int peer);
/* A wait ended with symmRemoteError because a peer had hung up: the cause may lie in that peer's
 * queue. Returns the cause's code with its text, or symmRemoteError with the text as it was.
 * What else was queued is lost. */
symmResult_t symm_mesh_cause(symm_mesh *m);
/* An exchange of the bootstrap has failed, with the text as it is. A peer's REVOKE may tell more,
 * now or within ms: the bootstrap knows connections but no reasons, and a rank that gives up closes
 * its own before it tells why, perhaps because of a death that has not been seen here. Returns
 * code with the text as it was where no REVOKE comes until a connection of the mesh ends. */
symmResult_t symm_mesh_cause_within(symm_mesh *m, symmResult_t code, int ms);
/* The rank that a REVOKE about `code` names: the dead one (-1 unknown), or this rank, which found
 * the error. */
int symm_mesh_about(const symm_mesh *m, symmResult_t code);
/* 1 after a REVOKE was sent or obeyed. Any thread. */
int symm_mesh_revoked(const symm_mesh *m);
/* True if the connection to peer has reached its end of file (the peer's process ended or closed
 * its mesh). Never blocks. */
int symm_mesh_hung_up(const symm_mesh *m, int peer);

/* ---- agree (agree.c) ------------------------------------------------------------------------- */

#define SYMM_VOTE_TEXT 200
typedef struct {  /* on the wire */
    int32_t code; /* symmResult_t */
    int32_t rank; /* who found it */
    char stage[48];
    char text[SYMM_VOTE_TEXT];
} symm_vote;

/* Status-carrying agreement [every rank of the mesh]. `mine` is this rank's status (its text is the
 * thread's last error text). If nobody dies every rank returns the same code, that of the lowest
 * rank among the worst (codes compare by: any error beats success; among errors the lowest rank's),
 * and the thread's last error text is the same on all ("rank 2: out of memory ..."). If somebody
 * dies every survivor that is inside returns symmRemoteError naming rank and stage, and tells the
 * others with SYMM_MSG_REVOKE. Two rounds: votes, then confirmations; success needs every
 * confirmation, so nobody commits unless everybody has seen every vote. (A rank that dies while
 * its confirmations leave may split the outcome; those that returned success meet the death in
 * their next call.) *dead (may be NULL): the rank found dead, else -1. */
symmResult_t symm_agree(symm_mesh *m, symmResult_t mine, const symm_wait *w, int *dead);
/* Tells every living peer that this communicator is over. Best effort, never blocks, any thread.
 * rank: the dead one for symmRemoteError (-1 unknown), else who found the error. A receiver passes
 * it on once. From the first REVOKE on, sent or obeyed, symm_agree answers symmAborted and
 * symm_mesh_recv skips what has another type than it asks for, so that the survivors can still
 * talk (symmCommShrink). */
void symm_agree_revoke(symm_mesh *m, symmResult_t code, int rank, const char *stage,
                       const char *text);

#endif
