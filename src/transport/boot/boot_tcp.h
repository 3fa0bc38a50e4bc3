/* boot_tcp.h - what the files of the TCP bootstrap share: the id, the frames and the object.
 * Private to boot_tcp*.c. boot_tcp_id.c makes ids and keeps the listeners, boot_tcp_frame.c moves
 * bytes, boot_tcp_root.c is the root, boot_tcp.c is every other rank and the public side. */
#ifndef SYMM_BOOT_TCP_H_
#define SYMM_BOOT_TCP_H_

#include <poll.h>
#include <sys/socket.h>

#include "boot.h"
#include "boot_text.h"

#define SYMM_TCP_RANKS \
    65536 /* more ranks are a mistake, and their tables would not fit on the stack */
#define SYMM_TCP_VERSION  1
#define SYMM_TCP_SECRET   16
#define SYMM_TCP_HELLO    64   /* bytes of the first message of a connection */
#define SYMM_TCP_FRAME    32   /* bytes of the header of every later one */
#define SYMM_TCP_GRACE_MS 1000 /* how long the end waits for the last message of a peer */

/* ---- id (boot_tcp_id.c) ---- */

typedef struct {
    struct sockaddr_storage addr;
    socklen_t addrlen;
    uint8_t secret[SYMM_TCP_SECRET];
    uint32_t pid; /* of the process that made it; for messages */
} symm_tcp_id;

/* symmInvalidArgument for bytes that symmGetUniqueId did not write, symmVersionMismatch for another
 * version's. */
symmResult_t symm_tcp_id_parse(const symmUniqueId_t *id, symm_tcp_id *out);
/* *listener: the id's, which one caller gets, among all threads and the children that were forked
 * after the id was made; it calls symm_tcp_id_done, then closes it. -1: it is elsewhere, or another
 * one has it. A copy that a fork brought here is closed then: it would keep the port open after the
 * death of who listens. symmInvalidUsage: the id was made in this process, and is used up. */
symmResult_t symm_tcp_id_claim(const symm_tcp_id *id, int *listener);
/* Who claimed it listens no more: the id is used up. */
void symm_tcp_id_done(const symm_tcp_id *id);
/* "10.0.0.1:4711"; returns buf. */
const char *symm_tcp_id_text(const symm_tcp_id *id, char *buf, size_t cap);
/* For errors about ranks that do not connect: a hint if only processes of the root's host can reach
 * the address, else "". */
const char *symm_tcp_id_reach(const symm_tcp_id *id);
/* Bytes that nobody can guess. */
symmResult_t symm_tcp_random(void *out, size_t bytes);

/* ---- messages (boot_tcp_frame.c) ---- */

enum {
    SYMM_TCP_SEEN =
        1, /* root: the hello is accepted; an end of the connection means now that the root
             died; code: its rank */
    SYMM_TCP_GO = 2,   /* root: all ranks are connected */
    SYMM_TCP_DATA = 3, /* client: its block; root: all blocks */
    SYMM_TCP_ERROR =
        4, /* root: creation or exchange has failed; code and text are the same for all ranks */
    SYMM_TCP_GIVEUP =
        5, /* client: its deadline has passed; the root tells all ranks who is missing */
    SYMM_TCP_TYPES = 6
};

typedef struct {
    uint32_t type, code, seq;
    uint64_t bytes; /* that follow */
} symm_tcp_frame;

typedef struct {
    uint32_t version, pid;
    int32_t rank, nranks;
    uint64_t token; /* random per open: a second connection with the same one is the same rank
                       trying again */
    uint8_t secret[SYMM_TCP_SECRET];
} symm_tcp_hello;

typedef struct {
    int fd; /* -1: none */
    uint32_t pid;
    uint64_t token;
    uint8_t head[SYMM_TCP_FRAME];
    size_t head_got;
    uint64_t body_got, sent;
    int busy; /* root: the header of a block was read, and its bytes follow */
    int done; /* root: this rank's part of the exchange is complete */
} symm_tcp_conn;

/* Outcome of one step of input or output. No step blocks. */
enum { SYMM_TCP_BAD = -2, SYMM_TCP_GONE = -1, SYMM_TCP_AGAIN = 0, SYMM_TCP_DONE = 1 };

void symm_tcp_hello_put(const symm_tcp_hello *h, uint8_t *out);
/* 0 if the first `got` bytes cannot be the beginning of a hello. */
int symm_tcp_hello_plausible(const uint8_t *in, size_t got);
int symm_tcp_hello_get(const uint8_t *in, symm_tcp_hello *h);

int symm_tcp_read_head(symm_tcp_conn *c, symm_tcp_frame *f);
int symm_tcp_read_body(symm_tcp_conn *c, void *buf, uint64_t bytes);
/* Continues at c->sent, which the caller sets to 0 before the first step. */
int symm_tcp_write(symm_tcp_conn *c, const symm_tcp_frame *f, const void *body);
/* Sends a small message; waits for room in the socket until limit_ns. 0, or -1 if not all of it was
 * sent. */
int symm_tcp_send_small(symm_tcp_conn *c, const symm_tcp_frame *f, const void *body,
                        uint64_t limit_ns);
/* symm_now_ns() at the end of the grace that begins now. */
static inline uint64_t symm_tcp_grace(void) {
    return symm_now_ns() + SYMM_TCP_GRACE_MS * 1000000ull;
}
/* Options that every connection gets. */
void symm_tcp_tune(int fd);
/* Closes c->fd, if it is open, and counts it out of the gauge. */
void symm_tcp_close(symm_tcp_conn *c);

/* ---- object ---- */

typedef struct {
    symm_boot base; /* first: the object is known by its address */
    symm_tcp_id id;
    int root;             /* its rank; -1: not known yet */
    int listener;         /* root, while ranks are coming; -1 otherwise */
    int failed;           /* an exchange failed: only close is left */
    uint32_t seq;         /* number of the exchange that runs or ran last */
    symm_tcp_conn *peers; /* root: one per rank, its own unused; others: [0] is the root */
    struct pollfd *polls; /* root: room for the listener, the pending and the ranks */
} symm_boot_tcp;

#define SYMM_TCP_PENDING 64 /* connections without a hello; one more closes the oldest */

/* Returns when all ranks are connected and know it, or when all connected ranks have the same
 * error. */
symmResult_t symm_tcp_root_open(symm_boot_tcp *t, const symm_wait *w);
/* Closes the listener, if there is one: the id is used up. */
void symm_tcp_end_listener(symm_boot_tcp *t);
symmResult_t symm_tcp_root_allgather(symm_boot_tcp *t, const void *send, void *recv, size_t bytes,
                                     const symm_wait *w);

#endif
