/* mesh.h - the control mesh: one ordered message channel between every two ranks of a communicator.
 * It carries file descriptors, votes, and exchanges of split and shrink. The end of file of a
 * channel shows a death at once. One thread at a time per mesh; symm_mesh_fd, _alive, _mark_dead,
 * _hung_up, _revoked, _post, _offer, _peek, _push, _leave and symm_agree_revoke in any thread.
 *
 * Three kinds have this interface:
 *  - mesh_unix, between processes: AF_UNIX SOCK_SEQPACKET with a random abstract name. The peer's
 *    uid and a nonce are checked, and its pid where both are in one pid namespace. Received fds are
 *    close-on-exec. A truncated message is an error, surplus fds are closed.
 *  - mesh_threads, between threads: mailboxes. They carry no fds.
 *  - mesh_tcp, between processes of several hosts: TCP. A nonce is checked. It carries no fds.
 * A message has at most SYMM_MESH_MAX bytes and SYMM_MESH_FDS fds. */
#ifndef SYMM_MESH_H_
#define SYMM_MESH_H_

#include <stddef.h>

#include "transport/boot/boot.h"

#define SYMM_MESH_MAX 4096 /* payload bytes of one message */
#define SYMM_MESH_FDS 64   /* fds of one message (the kernel takes 253) */

enum { SYMM_MESH_UNIX, SYMM_MESH_THREADS, SYMM_MESH_TCP }; /* kinds */

/* Message types. A receiver that gets another type than it expects obeys a REVOKE, takes a LEFT for
 * the end of the peer, and returns symmInternalError for any other. */
enum {
    SYMM_MSG_HELLO = 1,
    SYMM_MSG_VOTE = 2,
    SYMM_MSG_COMMIT = 3,
    SYMM_MSG_HANDLES = 4,
    SYMM_MSG_BOOT = 5,
    SYMM_MSG_REVOKE = 6, /* payload: symm_vote of the death or error that revoked */
    SYMM_MSG_WILL = 7,   /* survive.h; a receiver of another type keeps it for later */
    SYMM_MSG_CHILD = 8,  /* a piece of the making of a shrink's child, see symm_mesh_session */
    SYMM_MSG_LEFT = 9,   /* the last one of a rank that leaves: to a receiver its end */
    SYMM_MSG_WORD = 10   /* of no exchange: no receiver sees it, see symm_mesh_words */
};

typedef struct symm_mesh symm_mesh;

#define SYMM_VOTE_TEXT 200
typedef struct {  /* a status, on the wire */
    int32_t code; /* symmResult_t */
    int32_t rank; /* who found it */
    char stage[48];
    char text[SYMM_VOTE_TEXT];
} symm_vote;

/* What each rank tells the others about itself before the mesh exists. symm_mesh_listen fills it.
 * 64 bytes, on the wire. */
typedef struct {
    uint64_t pidns; /* inode of the pid namespace */
    uint64_t nonce; /* random; every message to this rank shows it */
    uint32_t pid, uid;
    /* Abstract socket name without the leading NUL. Thread ranks: empty. TCP: the bytes of
     * symm_tcp_address_put. */
    char name[40];
} symm_mesh_addr;

/* Step 1, before the bootstrap's allgather: makes the listener and *mine. Threads: no socket.
 * ifname: which interface TCP listens at (SYMM_SOCKET_IFNAME); NULL: any. */
symmResult_t symm_mesh_listen(int rank, int nranks, int kind, const char *ifname,
                              symm_mesh_addr *mine, symm_mesh **out);
/* TCP, between the two steps: how long a host may not answer before its ranks count as dead; else
 * 10 s. */
void symm_mesh_patience(symm_mesh *m, int ms);
/* Step 2, after it: addrs[nranks] in rank order. Connects to lower ranks, accepts higher ones,
 * closes the listener. threads: `shared` is the same block on all ranks (see symm_mesh_share), and
 * the mesh takes over a reference of the caller's, also on error; else NULL. On error the caller
 * closes the mesh. */
symmResult_t symm_mesh_connect(symm_mesh *m, const symm_mesh_addr *addrs, void *shared,
                               const symm_wait *w);
/* Threads only: the block of mailboxes, with one reference. Any thread; the last unshare, or the
 * last mesh that closes, frees it. */
symmResult_t symm_mesh_share(int nranks, void **shared);
void symm_mesh_share_ref(void *shared);
void symm_mesh_unshare(void *shared);
void symm_mesh_close(symm_mesh *m);

int symm_mesh_rank(const symm_mesh *m);
int symm_mesh_nranks(const symm_mesh *m);

/* Sends payload (<= SYMM_MESH_MAX) and fds (<= SYMM_MESH_FDS) to peer. The fds stay the caller's.
 * A peer that is gone: symmRemoteError naming it and w->stage. fd limit in flight
 * (ETOOMANYREFS): retried to the deadline. */
symmResult_t symm_mesh_send(symm_mesh *m, int peer, int type, const void *payload, size_t bytes,
                            const int *fds, int nfds, const symm_wait *w);
/* The same without fds, best effort: never blocks, and does not report whether it was sent. */
void symm_mesh_post(symm_mesh *m, int peer, int type, const void *payload, size_t bytes);
/* The same, and tells whether to try again later: 0 if there was no room. 1: handed over, or nobody
 * is there to take it. */
int symm_mesh_offer(symm_mesh *m, int peer, int type, const void *payload, size_t bytes);
/* Tells every living peer that this rank leaves on purpose. Only TCP says so: its peers may be on
 * other hosts, where nothing else tells a rank that left from one that died. Best effort, never
 * blocks, any thread. */
void symm_mesh_leave(symm_mesh *m);
/* What is waiting to be received from a peer. */
typedef struct {
    int message;    /* the next one is no WORD, and its header has come at least: the owner's */
    int more;       /* behind so many WORDs nothing was looked at; not if the peer has hung up */
    int left;       /* a LEFT */
    int revoked;    /* a REVOKE */
    symm_vote vote; /* that of the first one */
} symm_mesh_news;
/* Looks through the messages of peer that are waiting, and takes none: for a watcher that must
 * learn of a peer's end while the owner is not inside the mesh. Takes leading WORDs, though, some
 * thousand at a time. 1 if anything else waits, also a part of a WORD. Sees 64 KiB behind WORDs.
 * Never blocks, any thread. Only TCP; other kinds return 0 and no news. */
int symm_mesh_peek(symm_mesh *m, int peer, symm_mesh_news *news);
/* The same of what the owner has taken meanwhile. obeyed: the first REVOKE that it has obeyed, and
 * whose; 0: none. said_left: it has taken a LEFT of peer. Any thread. */
int symm_mesh_obeyed(const symm_mesh *m, int *peer, symm_vote *vote);
int symm_mesh_said_left(const symm_mesh *m, int peer);
/* TCP may take a part of a message and keep the rest: sends what was kept, as far as it goes. The
 * owner's calls do that too. Then words.again. Never blocks, any thread. */
void symm_mesh_push(symm_mesh *m);
/* Messages of type WORD belong to no exchange and may come at any time, and any number of them:
 * unread they would fill the connection, and end it. So they are taken wherever one is the next
 * message of its peer, by the owner and by symm_mesh_peek, and given to `hear`; in the order in
 * which they were sent, also to other messages. Only TCP.
 *   hear    payload: SYMM_MESH_WORD bytes. Any thread, one at a time, with the mesh's lock of
 *           receiving: it must call no function of the mesh
 *   again   offers again what found no room. In symm_mesh_push */
enum { SYMM_MESH_WORD = 16 };
typedef struct {
    void (*hear)(void *arg, int peer, const void *payload);
    void (*again)(void *arg);
} symm_mesh_words;
/* Before symm_mesh_connect. */
void symm_mesh_set_words(symm_mesh *m, const symm_mesh_words *words, void *arg);
/* Messages of type CHILD begin with the number of the shrink that they belong to (boot_mesh.c).
 * From now on those of any other shrink are dropped when they are received: one that failed left
 * them. */
void symm_mesh_session(symm_mesh *m, uint32_t session);
/* Receives the next message of peer, which must have `type`. Exactly nfds fds must come
 * (symmFdLimit if the kernel had to drop some for want of descriptors: all that came are
 * closed). *got <= cap. Received fds are CLOEXEC and the caller's (gauge fds). */
symmResult_t symm_mesh_recv(symm_mesh *m, int peer, int type, void *payload, size_t cap,
                            size_t *got, int *fds, int nfds, const symm_wait *w);

/* The same with as many fds as come: *nfds at most, which becomes how many they were. */
symmResult_t symm_mesh_recv_some(symm_mesh *m, int peer, int type, void *payload, size_t cap,
                                 size_t *got, int *fds, int *nfds, const symm_wait *w);

/* The type of the next message of peer, which stays where it is, and the beginning of its payload;
 * 0: none has come. Never blocks. */
int symm_mesh_next(symm_mesh *m, int peer, void *payload, size_t cap, size_t *got);

/* The socket to peer for poll(2), -1 if none (self, thread ranks). Do not read from it. */
int symm_mesh_fd(const symm_mesh *m, int peer);
int symm_mesh_alive(const symm_mesh *m, int peer);
void symm_mesh_mark_dead(symm_mesh *m, int peer);
/* w->check of a call has found that this rank's death is why the call must end. Owner's thread. */
void symm_mesh_blame(symm_mesh *m, int peer);
/* A wait ended with symmRemoteError because a peer had hung up. The queue of that peer may hold the
 * cause, a REVOKE. Returns the code of the cause with its text, or symmRemoteError with the text as
 * it was. Other queued messages are lost. */
symmResult_t symm_mesh_cause(symm_mesh *m);
/* An exchange of the bootstrap has failed. Waits up to ms for a REVOKE of a peer, which may say
 * why: the bootstrap sees that a connection has ended and not the reason, and a rank that gives up
 * closes its bootstrap before it tells why, perhaps because of a death that was not seen here. If
 * no REVOKE comes before a connection of the mesh ends, returns code with the text as it was. */
symmResult_t symm_mesh_cause_within(symm_mesh *m, symmResult_t code, int ms);
/* While the owner waits for something else: if a peer has sent a REVOKE, obeys it, which passes it
 * on, and returns its code. Other messages stay where they are. TCP alone, as symm_mesh_peek. */
symmResult_t symm_mesh_hear(symm_mesh *m);
/* The rank that a REVOKE about `code` names: the dead one (-1: unknown), or for other codes this
 * rank, which found the error. */
int symm_mesh_about(const symm_mesh *m, symmResult_t code);
/* 1: connecting has failed with symmRemoteError because a peer's address refuses connections. A
 * caller who knows that the peer lives knows that something stands between. */
int symm_mesh_refused(const symm_mesh *m);
/* 1 after a REVOKE was sent or obeyed. Any thread. */
int symm_mesh_revoked(const symm_mesh *m);
/* True if the connection to peer has reached its end of file (the peer's process ended or closed
 * its mesh). Never blocks. */
int symm_mesh_hung_up(const symm_mesh *m, int peer);

/* ---- agree (agree.c) ------------------------------------------------------------------------- */

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
