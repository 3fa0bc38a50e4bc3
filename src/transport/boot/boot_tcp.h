/* boot_tcp.h - what the files of the TCP bootstrap share: the id, the frames and the object.
 * Private to boot_tcp*.c. boot_tcp_id.c makes ids, boot_tcp_keep.c keeps their listeners and is the
 * root where no rank is, boot_tcp_frame.c moves bytes, boot_tcp_root.c lets the ranks in,
 * boot_tcp_relay.c is the root in their exchanges, boot_tcp.c is every other rank and the public
 * side. */
#ifndef SYMM_BOOT_TCP_H_
#define SYMM_BOOT_TCP_H_

#include <poll.h>
#include <stdatomic.h>
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
    int agreed; /* every rank has made it: rank 0 listens there when it comes. No secret, no pid */
} symm_tcp_id;

/* Opens a listener and writes the id that says where. ifname NULL: any interface. */
symmResult_t symm_tcp_id_make(const char *ifname, symmUniqueId_t *id, int *listener);
/* An id that every rank makes, of the same text ("10.0.0.1:4711"). Nobody listens there yet. */
symmResult_t symm_tcp_id_agree(const char *address, symmUniqueId_t *id);
/* The listener of such an id, of rank 0; it is in the set of lifeline.h. */
symmResult_t symm_tcp_id_listen(const symm_tcp_id *id, int *listener);
/* symmInvalidArgument for bytes that symmGetUniqueId did not write, symmVersionMismatch for another
 * version's. */
symmResult_t symm_tcp_id_parse(const symmUniqueId_t *id, symm_tcp_id *out);
/* "10.0.0.1:4711"; returns buf. */
const char *symm_tcp_id_text(const symm_tcp_id *id, char *buf, size_t cap);
/* For errors about ranks that do not connect: a hint if only processes of the root's host can reach
 * the address, else "". */
const char *symm_tcp_id_reach(const symm_tcp_id *id);
/* Bytes that nobody can guess. */
symmResult_t symm_tcp_random(void *out, size_t bytes);

/* ---- the ids of this process (boot_tcp_keep.c) ---- */

typedef struct symm_tcp_kept symm_tcp_kept;
/* A record without an id. */
symmResult_t symm_tcp_keep_new(symm_tcp_kept **out);
void symm_tcp_keep_free(symm_tcp_kept *k);
/* From now on the listener is there to be claimed. Ranks that knock at it while nobody claims it
 * are served by a thread of this process. An error: k and the listener are the caller's still. */
symmResult_t symm_tcp_keep(symm_tcp_kept *k, const symm_tcp_id *id, int listener);
/* *listener: the id's, which one caller gets, among all threads, the children that were forked
 * after the id was made, and the process that made it; it ends it by symm_tcp_end_listener.
 * -1: it is elsewhere, or another one has it. A copy that a fork brought here is closed then: it
 * would keep the port open after the death of who listens. symmInvalidUsage: the id was made in
 * this process, and is used up. */
symmResult_t symm_tcp_id_claim(const symm_tcp_id *id, int *listener);
/* Closes the listener, if t has one: the id is used up. */
struct symm_boot_tcp;
void symm_tcp_end_listener(struct symm_boot_tcp *t);
/* No rank will come. Closes the listener, if it is here and nobody has it: the id is used up. */
void symm_tcp_id_drop(const symm_tcp_id *id);
/* A rank of this process will not come: a meeting that this process serves ends with an error. 0:
 * it serves none of this id. */
int symm_tcp_keep_refuse(const symm_tcp_id *id);
/* For tests: until no thread serves a meeting, and none waits for nothing. */
void symm_tcp_keep_wait(void);

/* ---- messages (boot_tcp_frame.c) ---- */

enum {
    SYMM_TCP_SEEN =
        1, /* root: the hello is accepted; an end of the connection means now that the root
             died; code: its rank, ~0 of a process that is none */
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

/* BAD_NUMBERS: its library takes no such rank and nranks. CANNOT: it has another error. */
enum { SYMM_TCP_BAD_NUMBERS = 1, SYMM_TCP_CANNOT = 2 };

typedef struct {
    uint32_t version, pid;
    int32_t rank, nranks;
    uint32_t refused; /* SYMM_TCP_*: no rank comes, and all ranks are told; 0: it is one */
    uint64_t token;   /* random per open: a second connection with the same one is the same rank
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
/* DONE: an error has come, whole; it is left to be read. BAD: something else has. */
int symm_tcp_peek_error(int fd, symm_tcp_frame *f, char *text, size_t cap);
/* Continues at c->sent, which the caller sets to 0 before the first step. */
int symm_tcp_write(symm_tcp_conn *c, const symm_tcp_frame *f, const void *body);
/* Sends a small message; waits for room in the socket until limit_ns. 0, or -1 if not all of it was
 * sent. */
int symm_tcp_send_small(symm_tcp_conn *c, const symm_tcp_frame *f, const void *body,
                        uint64_t limit_ns);
/* A code that an error may have. */
static inline int symm_tcp_is_error(uint32_t code) {
    return code != symmSuccess && code != symmInProgress && code < symmNumResults;
}
/* symm_now_ns() at the end of the grace that begins now. */
static inline uint64_t symm_tcp_grace(void) {
    return symm_now_ns() + SYMM_TCP_GRACE_MS * 1000000ull;
}
/* Options that every connection gets. */
void symm_tcp_tune(int fd);
/* Closes c->fd, if it is open, and counts it out of the gauge. */
void symm_tcp_close(symm_tcp_conn *c);

/* ---- object (boot_tcp_frame.c) ---- */

/* A root that is no rank gives way to a rank of its process that comes after all: HOLDS becomes
 * YIELDS. Until it SERVES, no rank is told that it was seen: so it comes again, to the other
 * root. */
enum { SYMM_TCP_SERVES, SYMM_TCP_HOLDS, SYMM_TCP_YIELDS };

typedef struct symm_boot_tcp {
    symm_boot base; /* first: the object is known by its address */
    symm_tcp_id id;
    int root;             /* its rank; -1: not known yet, or it is none */
    int said;             /* root: the rank that said how many ranks there are */
    _Atomic int standing; /* root: SYMM_TCP_SERVES, or of one that is no rank also the others */
    int listener;         /* root, while ranks are coming; -1 otherwise */
    int failed;           /* an exchange failed: only close is left */
    uint32_t seq;         /* number of the exchange that runs or ran last */
    symm_tcp_conn *peers; /* root: one per rank, its own unused; others: [0] is the root */
    struct pollfd *polls; /* root: room for the listener, the pending and the ranks */
} symm_boot_tcp;

/* An object without connections and ops. rank -1, nranks 0: the root of ranks among which it is
 * none; how many they are the first one says (symm_tcp_root_expect). */
symmResult_t symm_tcp_make(int rank, int nranks, int root, symm_boot_tcp **out);
/* Closes all connections. */
void symm_tcp_free(symm_boot_tcp *t);
symmResult_t symm_tcp_root_expect(symm_boot_tcp *t, int nranks, int said);
static inline int symm_tcp_root_is_rank(const symm_boot_tcp *t) {
    return t->root >= 0;
}
/* Ranks that connect to the root; before it knows, one. */
static inline int symm_tcp_others(const symm_boot_tcp *t) {
    if (symm_tcp_root_is_rank(t)) return t->base.nranks - 1;
    return t->base.nranks ? t->base.nranks : 1;
}
/* The root in its own texts: "rank 2", "process 77, which made the id,"; returns buf. */
const char *symm_tcp_root_text(const symm_boot_tcp *t, char *buf, size_t cap);

#define SYMM_TCP_PENDING 64 /* connections without a hello; one more closes the oldest */

/* Returns when all ranks are connected and know it, or when all connected ranks have the same
 * error. symmInProgress: it yields, and the connections are closed. The listener is the caller's to
 * end. */
symmResult_t symm_tcp_root_open(symm_boot_tcp *t, const symm_wait *w);
/* Sends the error to all connected ranks. A rank that is receiving a result cannot be sent an
 * error, so its connection is closed. */
void symm_tcp_root_error(symm_boot_tcp *t, symmResult_t code, const char *text);
/* errno of a poll that failed. It takes no more entries than the process may have descriptors. */
symmResult_t symm_tcp_root_blind(const symm_boot_tcp *t, int n);
symmResult_t symm_tcp_root_allgather(symm_boot_tcp *t, const void *send, void *recv, size_t bytes,
                                     const symm_wait *w);
/* symm_boot_lost on a root that is a rank. */
int symm_tcp_root_lost(symm_boot_tcp *t, const uint8_t *awaited, const symm_wait *w,
                       symm_boot_loss *loss);
/* Of a root that is no rank: serves all exchanges, until the last rank has left or one fails, which
 * all ranks are told. */
void symm_tcp_root_relay(symm_boot_tcp *t, const symm_wait *w);

#endif
