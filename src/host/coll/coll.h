/* coll.h - a collective call on its way to a kernel. The user's thread. */
#ifndef SYMM_COLL_H_
#define SYMM_COLL_H_

#include "device/host/p2p.h"
#include "host/comm/types.h"
#include "plan.h"

typedef struct symm_coll { /* what the user asked for */
    symmColl_t coll;
    union {
        int32_t root;  /* a rank; 0 where the collective has none */
        int32_t fused; /* with a count per rank, in place of rooted calls of a group (fused.h):
                        * how many they are, less one */
    };
    const void *src;
    void *dst;
    uint64_t count;
    uint32_t type;
    symmRedOp_t op;
    /* A count per rank: the parts for each rank, then those from each (counts.h); else NULL. */
    const symm_extent *extents;
    /* What op was when the call was made, if it may have ended since; NULL: op says. Such a call is
     * not remembered. */
    const struct symm_redop *user;
} symm_coll;
_Static_assert(sizeof(symm_coll) == 56, "calls are compared byte by byte");

typedef struct symm_message { /* a send or a receive, as the user asked for it */
    void *buff;
    uint64_t count;
    symmStream_t stream;
    uint32_t type;
    int32_t peer;
    int sends;
} symm_message;

typedef struct symm_launch {        /* checked, planned, ready to launch */
    const struct symm_launch *next; /* of a list: the call that comes behind this one */
    symm_comm *comm;
    symm_win *src_win, *dst_win; /* NULL: staged */
    /* By copy engines (copies.h): the window that all ranks' sources are taken to be in, NULL none;
     * rank p's at from_in + p * from_step. */
    symm_win *from;
    uint64_t from_in, from_step;
    uint64_t in, out; /* bytes of both buffers */
    symm_plan_env env;
    symm_call call;
    symm_plan plan;
    symm_args args;
    uint32_t sig; /* of the call alone; args.sig has the digest of the heaps in it */
} symm_launch;

typedef struct {           /* sends and receives, ready to run as one kernel */
    const symm_args *args; /* the communicator's, for as long as it lives */
    symm_p2p_op *ops;
    symm_win **wins; /* of each; NULL: staged */
    symm_p2p_channel *channels;
    int n, nchannels;
    _Atomic int refs; /* 0: of one call, on its caller's stack */
} symm_p2p_list;
/* Of a list with references; any thread. The last one frees it. */
void symm_p2p_list_ref(symm_p2p_list *list);
void symm_p2p_list_unref(symm_p2p_list *list);

/* What a one-sided call is made of; symmPutSignal is two of them, its copy first. */
typedef struct {
    uint8_t kind; /* SYMM_ONESIDED_* */
    uint8_t nt;   /* copy, host backend: stores past the caches pay at this size */
    int16_t peer, signal;
    uint8_t put; /* copy: into the peer's memory */
    union {
        struct { /* copy */
            char *to;
            const char *from;
            uint64_t bytes;
        };
        uint64_t count; /* wait: for how many */
    };
} symm_onesided;
/* Of a call, at most. A list of waits that is longer is several: symm_launcher.waits. */
enum { SYMM_ONESIDED_OPS = SYMM_GPU_ONESIDED_OPS };
typedef struct {
    const symm_args *args; /* the communicator's, for as long as it lives */
    int n;
    symm_win *target; /* whose memory is the peer's; NULL: none is */
    symm_win *near;   /* the window that has `buff`; NULL: none */
    char *buff;       /* the own buffer, NULL none */
    uint64_t bytes;
    symm_onesided op[SYMM_ONESIDED_OPS];
} symm_onesided_call;

/* The last calls, prepared: a program calls with the same arguments again and again. Direct-mapped
 * by the arguments; an entry is good while `version` is the communicator's, which changes with its
 * windows and reductions, and while no mapping has ended. */
enum { SYMM_MEMOS = 8 };
typedef struct symm_memo {
    symm_coll k; /* with its own extents */
    symm_extent extents[2 * SYMM_MAX_RANKS];
    uint64_t version; /* 0: empty */
    uint64_t ends;    /* of mappings, as its windows were looked at */
    uint64_t digest;  /* of the heaps, that is in the signature */
    symm_launch l;
} symm_memo;

/* Checks the arguments of a rank of so many, all but the reduction. fused: it stands for calls of a
 * group (fused.h). *in, *out: bytes of its buffers. */
symmResult_t symm_coll_check(const symm_coll *k, int rank, int nranks, int fused, uint64_t *in,
                             uint64_t *out);
/* *user: what the reduction is, if a user made it; else NULL. symmInvalidArgument: it is none. */
symmResult_t symm_coll_check_op(const symm_comm *c, const symm_coll *k,
                                const struct symm_redop **user);
/* Checks arguments, finds windows, plans. Changes nothing except that windows lose memory that has
 * ended. */
symmResult_t symm_coll_prepare(symm_comm *c, const symm_coll *k, symm_launch *l);

/* Checks the arguments of a message among so many ranks; *bytes: of its buffer. */
symmResult_t symm_message_check(const symm_message *m, int nranks, uint64_t *bytes);
/* Each stream of n messages once; how many. */
int symm_message_streams(const symm_message *m, int n, symmStream_t *streams);
static inline const char *symm_message_name(const symm_message *m) {
    return m->sends ? "symmSend" : "symmRecv";
}

/* Checks a buffer's address; name: of the argument. */
symmResult_t symm_coll_check_buffer(const char *name, const void *p, uint64_t bytes);
/* Asserts the invariants of a call that is ready (call_check.c). */
void symm_call_check(const symm_launch *l);
/* The same as it is remembered, or now; *l until the next call. */
symmResult_t symm_coll_ready(symm_comm *c, const symm_coll *k, const symm_launch **l);
/* Puts what the heaps of today are into the signature. */
void symm_coll_sign(const symm_comm *c, symm_launch *l);
symmResult_t symm_coll_launch(symm_comm *c, const symm_launch *l, symmStream_t stream);
/* The calls of a list, one after the other. */
symmResult_t symm_coll_launch_list(symm_comm *c, const symm_launch *first, symmStream_t stream);

/* How a backend launches a call that is ready; the communicator has its backend's. */
typedef struct symm_launcher {
    /* Runs the call, gives it to the stream, or records it if the stream is captured; in issue
     * order. */
    symmResult_t (*launch)(symm_comm *c, const symm_launch *l, symmStream_t stream);
    /* The same for the calls of a list; those before one that fails have been given. */
    symmResult_t (*launch_list)(symm_comm *c, const symm_launch *first, symmStream_t stream);
    /* The errors that launch would return for the stream; for calls that are queued in a group. */
    symmResult_t (*check_stream)(const symm_comm *c, symmStream_t stream);
    /* Whether kernels can reach a buffer that is in no window. */
    symmResult_t (*check_buffer)(const symm_comm *c, const char *name, const void *p);
    /* GPUs: whether copies to p, in no window, keep nobody waiting but their stream. */
    int (*copies_to)(const void *p);
    int (*job)(symmStream_t stream); /* SYMM_JOB_*: how it may run beside others of its group */
    /* Runs, gives or records a list of sends and receives, as `launch` does a call. streams: of
     * its calls, each once; the list comes behind all of them and before what they are given next.
     * It takes a reference, or copies the one call. An eager list
     * needs no memory here: a rank that failed would leave its peers waiting. */
    symmResult_t (*messages)(symm_comm *c, symm_p2p_list *list, const symmStream_t *streams,
                             int nstreams);
    /* What a message of op would do, and why; of symmExplainMessage. a: the communicator's. */
    void (*tell_message)(symm_comm *c, const symm_args *a, const symm_p2p_op *op,
                         const symm_win *win, symmExplain_t *plan);
    /* The same as `launch` for a one-sided call. waits: how many one may have. */
    symmResult_t (*onesided)(symm_comm *c, const symm_onesided_call *call, symmStream_t stream);
    int waits;
    /* *count: signals [first, first + n) of the peer that have come and that nothing has used up.
     * What was put before is seen. Any thread; waits for no stream. */
    symmResult_t (*unused)(const symm_comm *c, int peer, int first, int n, uint64_t *count);
    int fuses; /* 1: rooted calls of a group may run as one with a count per rank (fused.h) */
} symm_launcher;

/* The digest of calls on heaps goes into the signature of every call from here on. more: what it
 * grows by. */
static inline void symm_coll_note_heap(symm_comm *c, uint64_t more) {
    c->calls.digest += more;
}
/* Host backend: what this rank counts of a signal of the peer. */
symm_signal_tally *symm_onesided_tally(const symm_comm *c, int peer, int signal);
/* Signals of the peer that have come and that nothing has used up. Any thread. */
uint64_t symm_onesided_unused(const symm_comm *c, int peer);
/* Collectives of this rank so far. */
static inline uint64_t symm_coll_issued(const symm_comm *c) {
    return c->calls.issued;
}

/* The body of every collective's public function. Arguments that a collective does not have are
 * NULL, 0, symmSum. */
symmResult_t symm_coll_call(const symm_coll *k, symmComm_t comm, symmStream_t stream);
struct symm_counts;
/* The same of a call with a count per rank. The counts are read before it returns. */
symmResult_t symm_coll_call_uneven(const symm_coll *k, const struct symm_counts *counts,
                                   symmComm_t comm, symmStream_t stream);
/* By what its calls are planned. For tools. Errors: those of a handle; symmNotSupported over
 * several domains. */
symmResult_t symm_coll_env(symmComm_t comm, symm_plan_env *env);
/* From the next call on the communicator plans by these rows before those of coll.def, as if
 * SYMM_PLAN_TABLE had had them; NULL: none. They are copied. For symm-tune. Pre: all ranks do the
 * same between the same calls. */
symmResult_t symm_coll_plan_by(symmComm_t comm, const symm_plan_rows *rows);
/* symmBarrier from inside the library: the communicator is entered, no group is open. */
symmResult_t symm_coll_barrier(symm_comm *c, symmStream_t stream);

#endif
