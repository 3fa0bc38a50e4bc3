/* across.h - a communicator over several domains: an ordinary communicator of this rank's domain,
 * the inner one, and a mover to the other domains. One thread at a time is inside (across.c). */
#ifndef SYMM_ACROSS_H_
#define SYMM_ACROSS_H_

#include <pthread.h>
#include <stdatomic.h>

#include "host/coll/coll.h"
#include "host/coll/counts.h"
#include "host/comm/outer.h"
#include "host/comm/parts.h"
#include "transport/net/net.h"
#include "domains.h"

/* Bytes of a reduction that are inside, across or on their way in one step (across_reduce.c), on
 * the host backend. */
enum { SYMM_ACROSS_CHUNK = 1 << 20 };

/* Calls are in one order, because they share the stage and the mover: those outside of captures,
 * and those of each capture. Graphs are ordered by who launches them. */
typedef struct {
    symm_mark end; /* behind the last call */
    symmStream_t stream;
    uint64_t capture, no; /* that the call was in, 0: none; a later call has a greater number */
    int any;
} symm_across_last;
typedef struct {
    symm_across_last last[1 + SYMM_CAPTURES]; /* outside of captures; of each capture */
    uint64_t calls;
} symm_across_order;

typedef struct symm_across_gpu symm_across_gpu;
typedef struct symm_across {
    symm_outer outer;
    symm_domains map;
    symm_net *net;        /* NULL: closed */
    const char *mover;    /* the name of what carries calls' messages */
    const char *alone;    /* why streams of the host backend have no calls; NULL: they have */
    symm_across_gpu *gpu; /* NULL: host backend */
    size_t chunk;         /* bytes of a reduction in one step */
    int crowded, deterministic;
    int64_t timeout_ms; /* 0: none */
    int64_t setup_ms;
    pthread_mutex_t turn; /* errorcheck: who is inside */
    /* Of what streams were given: on the host backend under `giving`, on GPUs the thread inside. */
    symm_across_order order;
    pthread_mutex_t giving;
    _Atomic int replays; /* host backend: graphs with calls that run */
    /* Why it is over; the text is written before the code, under `reason`. */
    pthread_mutex_t reason;
    _Atomic int code;
    char text[SYMM_ERR_TEXT];
    /* Of the thread inside. */
    symm_net_word unsaid; /* that the others are still to be told; code 0: nothing */
    symm_progress users;  /* what symmSetProgress had set for it */
    uint32_t turns;       /* calls so far */
    uint32_t calls;       /* collectives of them, equal on all ranks */
    symm_extent *parts;   /* [4 * nranks] those for each rank, those from each: of the call, and
                           * of one that it is made of */
    size_t *counts;       /* [domain size] of an inner call */
    char **packed;        /* [domain size] where what a place brings to an inner call goes on */
    int32_t *codes;       /* [nranks] of what ranks agree on */
    int *left;            /* [nranks] whom a shrink keeps */
    const void **from;    /* [nranks] what is joined */
    char **others;        /* [domains - 1] where what the others send arrives */
    char *stage;          /* memory that calls stage in */
    size_t staged;
} symm_across;

/* A collective that is checked. */
typedef struct {
    symm_across *s;
    const symm_coll *k;
    symmStream_t stream; /* of the calls inside: NULL on the host backend */
    size_t esize;
    uint64_t bytes;          /* of `count` elements */
    const symm_extent *to;   /* [nranks] parts of the source, for each rank */
    const symm_extent *from; /* [nranks] parts of the destination, from each */
    symmRedOp_t op;          /* of inner calls */
    int joins;               /* SYMM_OP_*, of what crosses */
    int divides;             /* by the number of ranks at last, or 0 */
    int scaled;              /* the reduction is a user's: this rank's factor is in `scalar` */
    uint64_t scalar;
    const void *scalar_at; /* where it is read when the call runs; NULL: it is in `scalar` */
    uint32_t mark;
} symm_across_call;

/* ---- across.c -------------------------------------------------------------------------------- */

/* Takes over the map, the mover and the inner communicator, on success alone. The functions of
 * `outer` are the caller's to set. */
symmResult_t symm_across_make(symm_domains *map, symmComm_t inner, symm_net *net,
                              symm_across **out);
/* Frees the record, with its mover if that is still open. Pre: its handle, if any, is closed, and
 * the inner communicator has ended. */
void symm_across_free(void *across);
/* What a handle is of, pinned until symm_outer_put. Any thread. */
symmResult_t symm_across_get(symmComm_t comm, symm_across **out);
/* Lets go of the mover. The thread inside, for good. */
void symm_across_close_net(symm_across *s);
/* The inner communicator is over for the other ranks of this domain. Any thread. */
symmResult_t symm_across_revoke_inner(const symm_across *s, const char *what);
symmResult_t symm_across_enter(symm_across *s);
void symm_across_leave(symm_across *s);
/* Enters, if the communicator is not over and, on the host backend, this thread may use the mover.
 */
symmResult_t symm_across_begin(symm_across *s);
/* Whether a call may wait for symmGroupEnd or, on the host backend, for its stream. Not inside. */
symmResult_t symm_across_may_queue(symm_across *s, symmStream_t stream);
/* symmSuccess, or why it is over, with its text as the thread's last error. Any thread. */
symmResult_t symm_across_known(symm_across *s);
/* The same, where the inner one and the mover are asked too. uses: for who waits or calls: to them
 * the end of a rank of this domain is an error (peerDeath). The thread inside. */
symmResult_t symm_across_look(symm_across *s, int uses);
/* Whether the inner one is over. */
symmResult_t symm_across_look_inside(const symm_across *s, int uses);
/* It is over, for the reason in the thread's last error: for this domain and for the others.
 * Returns r. The thread inside. */
symmResult_t symm_across_fail(symm_across *s, symmResult_t r);
/* Tells the others of a failure that was met by a thread which may not use the mover, if this one
 * may. The thread inside. */
void symm_across_say(symm_across *s);
/* Memory for so many bytes, good until the next call of this. On GPUs all calls have the same, and
 * none needs more than there is. */
symmResult_t symm_across_stage(symm_across *s, size_t bytes, char **out);

/* ---- across_order.c: the thread inside, or under `giving` ------------------------------------ */

/* What a call comes behind that is in this capture, or in none (0); for the first of a capture a
 * free one, or that of the capture that was silent longest. */
symm_across_last *symm_across_last_of(symm_across_order *o, uint64_t capture);
/* `last` is behind what the stream was given; its mark is the caller's to set. */
void symm_across_given(symm_across_order *o, symm_across_last *last, symmStream_t stream,
                       uint64_t capture);

/* ---- across_stream.c: calls on streams of the host backend ----------------------------------- */

/* A call that is made later, with all that the program may change meanwhile: first member of what a
 * kind of calls keeps. */
typedef struct symm_across_job {
    symmComm_t comm;
    symmResult_t (*run)(struct symm_across_job *j, symm_across *s); /* the thread inside */
} symm_across_job;

/* In a group, by the stream whose worker makes the call; NULL: who ends the group does. */
int symm_across_job_kind(symmStream_t later);
/* Makes the call now, in this thread. */
symmResult_t symm_across_job_run(symm_across_job *j);
/* Gives the stream a copy of the call: its worker makes it, behind all that this was given before;
 * or its capture records it. Waits for no call. Any thread, not the one inside. */
symmResult_t symm_across_give(symm_across *s, symmStream_t stream, const symm_across_job *j,
                              size_t bytes);
/* The caller waits for what streams were given; on GPUs for nothing. Before it enters. */
symmResult_t symm_across_follow(symm_across *s);
/* The same, and for graphs that run; for the end of the communicator. */
symmResult_t symm_across_drain(symm_across *s);

/* ---- across_window.c ------------------------------------------------------------------------- */

/* all[rank] of each: a rank's `bytes`, outside of collectives' streams. [collective] */
symmResult_t symm_across_share(symm_across *s, const void *mine, void *all, size_t bytes);
/* Whether all ranks can go on; own: whether this one can, with its text. what: it did not do, in an
 * error of the others. [collective] */
symmResult_t symm_across_agree(symm_across *s, symmResult_t own, const char *what);

symmResult_t symm_across_register(symm_outer *o, void *buff, size_t size, symmWindow_t *win,
                                  int flags);

/* ---- cross.c: messages between domains ------------------------------------------------------- */

/* Begin a message of the call. */
symmResult_t symm_cross_send(const symm_across_call *a, int rank, const void *from, size_t bytes);
symmResult_t symm_cross_receive(const symm_across_call *a, int rank, void *to, size_t bytes);
/* Waits until all that have begun are done; on GPUs, gives them to the call's stream. */
symmResult_t symm_cross_finish(symm_across *s);
/* Of memory of the call. */
symmResult_t symm_cross_copy(const symm_across *s, void *to, const void *from, size_t bytes);
/* dst = the domains' partial results in the order of domains: dst that of the own one, others[] of
 * the other ones, in their order. count: elements. */
symmResult_t symm_cross_join(const symm_across_call *a, void *dst, char *const *others,
                             size_t count);

/* Of reductions by contributions: *at, in the stage, is this rank's factor. */
symmResult_t symm_cross_scalar(const symm_across_call *a, uint64_t *at);
/* dst = the contributions of all ranks, in their order, which lie one after the other. count: of
 * one. scalars: each rank's factor, if the reduction has one. */
symmResult_t symm_cross_reduce(const symm_across_call *a, void *dst, const char *all, size_t count,
                               const uint64_t *scalars);

/* ---- across_call.c, across_reduce.c, across_move.c ------------------------------------------- */

/* In a group they are queued with those of the inner communicator, in one order. */
symmResult_t symm_across_call_any(symm_outer *o, const symm_coll *k, const symm_counts *counts,
                                  symmStream_t stream);
/* A call of this communicator, as errors name it, on that stream: whether it is served. */
symmResult_t symm_across_check_stream(const symm_across *s, const char *call, symmStream_t stream);
/* Runs fn(arg), with what crosses going on in waits inside; on GPUs it gives work to that stream.
 * An error is the end for all. */
symmResult_t symm_across_run(symm_across *s, symmStream_t stream, symmResult_t (*fn)(void *arg),
                             void *arg);
symmResult_t symm_across_all_reduce(const symm_across_call *a);
symmResult_t symm_across_reduce(const symm_across_call *a);
symmResult_t symm_across_reduce_scatter(const symm_across_call *a);
symmResult_t symm_across_all_gather(const symm_across_call *a);
/* The same without the stage, for calls that have something in it. */
symmResult_t symm_across_all_gather_straight(const symm_across_call *a);
symmResult_t symm_across_alltoall(const symm_across_call *a);
symmResult_t symm_across_broadcast(const symm_across_call *a);
symmResult_t symm_across_gather(const symm_across_call *a);
symmResult_t symm_across_scatter(const symm_across_call *a);
symmResult_t symm_across_barrier(const symm_across_call *a);
/* The same by contributions, in rank order over all (across_ordered.c). */
symmResult_t symm_across_ordered(const symm_across_call *a);

/* ---- across_messages.c: sends and receives --------------------------------------------------- */

symmResult_t symm_across_message(symm_outer *o, const symm_message *m);

#endif
