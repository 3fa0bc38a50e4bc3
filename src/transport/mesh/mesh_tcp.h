/* mesh_tcp.h - what the files of the control mesh between hosts share (mesh_tcp*.c). Private to
 * them. mesh_tcp_stream.c makes single steps on one connection, mesh_tcp_join.c connects the ranks,
 * mesh_tcp.c is the mesh. The fds do not change after connect has returned, so any thread may read
 * them then. */
#ifndef SYMM_MESH_TCP_H_
#define SYMM_MESH_TCP_H_

#include <pthread.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "mesh_impl.h"
#include "transport/boot/tcp_socket.h"

#define MESH_TCP_END_MS 200 /* how long the end of a mesh waits for room for what is unsent */

/* Room for a REVOKE and a LEFT behind an unsent message: nobody says those again. */
#define MESH_TCP_LAST (2 * SYMM_WIRE_HEADER + sizeof(symm_vote))

/* What has come of a message that is not whole yet. */
typedef struct {
    size_t have;
    uint8_t got[SYMM_WIRE_HEADER + SYMM_MESH_MAX];
} symm_mesh_part;

typedef struct {
    int fd;         /* -1: none */
    int broken;     /* owner: what came is no message, so nobody knows where the next one begins */
    uint64_t nonce; /* that the peer expects */
    symm_mesh_part in;    /* under the mesh's lock */
    pthread_mutex_t lock; /* of sending: messages of several threads do not mix */
    size_t at, end;       /* under lock: rest[at..end) is the unsent end of a message, and... */
    _Atomic int unsent;   /* at < end */
    uint8_t rest[SYMM_WIRE_HEADER + SYMM_MESH_MAX + MESH_TCP_LAST]; /* ...last words; under lock */
} symm_mesh_link;

typedef struct {
    symm_mesh base;
    int listener;
    symm_mesh_link *links; /* [nranks] */
    struct pollfd *polls;  /* [nranks] */
    symm_mesh_addr mine;
    pthread_mutex_t lock; /* of receiving: the owner takes, and others look */
    uint8_t *peeked;      /* under lock */
    struct symm_mesh_tcp_join
        *join; /* what connecting needs, from the beginning; NULL once it is over */
} symm_mesh_tcp;

/* A fresh nonblocking socket, or -1 with errno; the gauge counts it (symm_mesh_fd_close). */
int symm_mesh_tcp_socket(int family);
/* An attempt to connect has ended: 0, or an error, which is asked for once. */
int symm_mesh_tcp_outcome(int fd);
/* The address that the kernel has taken for an attempt to connect; where it has found no way, the
 * one that this rank listens at, whose bytes are `mine`. Returns buf. */
const char *symm_mesh_tcp_from(int fd, const char *mine, char *buf, size_t cap);
/* What every connection gets once it stands; ms: symm_mesh_patience. */
void symm_mesh_tcp_tune(int fd, int ms);
/* The peer has sent its last byte, or the connection is broken. Any thread. */
int symm_mesh_tcp_ended(int fd);
/* One attempt to send; *sent may be less than asked for. The states are those of put. */
symmResult_t symm_mesh_tcp_write(int fd, const struct iovec *iov, int n, size_t *sent, int *state);
/* One attempt to take a message; what has come of it is kept in *part. The states are those of
 * take. */
symmResult_t symm_mesh_tcp_take(int fd, symm_mesh_part *part, symm_mesh_in *in, int *state);
/* Closes it so that what was sent arrives. Does nothing for -1. */
void symm_mesh_tcp_end(int *fd);

symmResult_t symm_mesh_tcp_join_new(symm_mesh_tcp *t);
void symm_mesh_tcp_join_free(symm_mesh_tcp *t);
symmResult_t symm_mesh_tcp_connect(symm_mesh *m, const symm_mesh_addr *addrs, void *shared,
                                   const symm_wait *w);

#endif
