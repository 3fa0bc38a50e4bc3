/* parts.h - the parts of a communicator's record (symm_comm in types.h). Each part belongs to one
 * folder. Only the owner's files name its fields, and those of src/host/life, which makes and ends
 * communicators. Other folders call a function of the owner's header. docs/communicator.md
 * lists parts and owners, and tests/check/check_parts.sh compares. "User's thread": the one thread
 * that is inside the communicator (symm_comm_enter). */
#ifndef SYMM_PARTS_H_
#define SYMM_PARTS_H_

#include <pthread.h>
#include <stdatomic.h>

#include "symm.h"
#include "device/common/records.h"
#include "base/status.h"
#include "device/common/kernels.h"
#include "host/stream/stream.h"
#include "transport/mesh/survive.h"
#include "window_table.h"

struct symm_comm;

enum { SYMM_COMM_MAKING, SYMM_COMM_LIVE, SYMM_COMM_FINAL };
enum { SYMM_COMM_IS_MADE = 1, SYMM_COMM_IS_GIVEN_UP };

/* Owner: comm. Who is inside, and in which phase of its life it is. Any thread. */
typedef struct {
    _Atomic int refs;                 /* handle, captured calls */
    _Atomic int state;                /* SYMM_COMM_* */
    _Atomic uintptr_t busy;           /* a thread (symm_thread_self); 0: none; 1: one to come */
    _Atomic int waiting;              /* threads that want to be next */
    pthread_mutex_t turn;             /* the one of them that looks at busy */
    _Atomic int visitors;             /* calls that any thread may make; the end waits for them */
    _Atomic int parenting;            /* splits and shrinks of it that go on behind; it is busy */
    _Atomic int behind;               /* the thread that makes it is not done with its parent yet */
    _Atomic(const char *) making;     /* what it waits for while it is being made; a literal */
    _Atomic int aborting;             /* symmCommAbort has begun */
    _Atomic int outcome;              /* of its making: SYMM_COMM_IS_*, the first; 0: none */
    void (*undo)(struct symm_comm *); /* frees what making it has made */
    struct symm_comm *next_aborted;   /* comm.c keeps the records of aborted ones */
} symm_comm_entry;

/* Owner: comm. Why the communicator is revoked, and who looks for deaths. Any thread. */
typedef struct {
    _Atomic int code;     /* symmResult_t; written under lock, once */
    pthread_mutex_t lock; /* text */
    char text[SYMM_ERR_TEXT];
    struct symm_watch *watch; /* watch.c */
    symm_ranks late; /* that mind the end of a peer when they use the communicator; set once */
} symm_comm_failure;

enum { SYMM_MULTICAST_WHY = 160 }; /* room for the reason why there is none */

/* Owner: comm. Exchanges of set-up. The user's thread. */
typedef struct {
    struct symm_boot *boot;
    struct symm_boot *over_mesh; /* replaces boot once the mesh is connected */
    int shares_space;            /* 1: with a communicator that all ranks had before */
    /* When a wait first saw that a peer had left, or was in a collective instead; 0: not seen. */
    uint64_t left_ns, astray_ns;
    uint64_t wait_ns;         /* thread ranks: when the wait began; 0 once it was told to be long */
    struct symm_comm *parent; /* what it is made from, while it is made; else NULL */
    int outlives; /* 1: of the parent's ends only this rank's symmCommAbort ends the making */
} symm_comm_exchange;

/* Owner: comm. Memory of the control blocks. Written by the thread that makes it. */
typedef struct {
    struct symm_slot *slot;   /* control block and scratch */
    struct symm_pages *pages; /* GPUs: the parts of control blocks that the host writes too */
    uint64_t host_base;       /* GPUs: address of these pages for kernels */
} symm_comm_control;

/* Owner: window. The user's thread; atomics: symmCommQuery and symmCommDump in any thread. */
typedef struct {
    struct symm_win *newest;
    symm_wtable table; /* by address */
    _Atomic int count;
    _Atomic uint64_t bytes; /* relaxed */
    uint64_t version;       /* symm_window_changed; starts at 1 */
    uint64_t swept;         /* ends of memory when symm_window_sweep last looked */
    /* Settled at creation, equal on all ranks: whether windows are bound for multicast too, and why
     * not. */
    int multicast;
    char no_multicast[SYMM_MULTICAST_WHY];
} symm_comm_windows;

/* Sends and receives that were launched or captured, and in how many kernels. Written by the
 * user's thread, read by any; relaxed. */
typedef struct {
    _Atomic uint64_t kernels, sends, receives, sent_bytes, received_bytes;
} symm_message_counts;

/* One-sided calls likewise. */
typedef struct {
    _Atomic uint64_t puts, gets, signals, waits, put_bytes, got_bytes;
} symm_onesided_counts;

/* Of one signal and peer, on this rank. raised: how often it was raised at the peer; written by
 * what runs the communicator's calls, in their order. used: how many of those that came from the
 * peer have been used up; written likewise, released, and read by any thread. */
typedef struct {
    uint64_t raised;
    _Atomic uint64_t used;
} symm_signal_tally;

/* Whether every rank reaches every other's memory through the kernel; if not, the first pair (from
 * cannot reach to) and the errno (reach.c). */
typedef struct {
    int all, from, to, err;
} symm_reach;

/* Owner: coll. What prepares calls, and what has been called. The user's thread; atomics: any. */
typedef struct {
    symm_args proto;              /* what the arguments of all calls have in common */
    int16_t forced[symmNumColls]; /* kernel forced by SYMM_ALGO; -1: none */
    symm_plan_rows *rows;         /* SYMM_PLAN_TABLE's; NULL: none */
    uint64_t keeps;               /* cache_info.h */
    int cast_scratch;             /* scratch is bound in the multicast range; equal on all ranks */
    symm_reach reads, writes;     /* host backend: of memory, mapped or not; equal on all ranks */
    void *gate;                   /* of this rank (machine/peer_memory.h); NULL: none */
    int gate_settled;             /* all have tried it: from here on peers write in kernels alone */
    int near;                     /* what one rank has written another one reads fast (reach.c) */
    int adapts;                   /* calls change their way when that changes (staging.c) */
    struct symm_memo *memos;      /* [SYMM_MEMOS] */
    struct symm_redop *redops;    /* [nredops] */
    int nredops;
    uint64_t issued; /* collectives so far, eager or captured */
    /* Of all calls on zone SYM of heaps so far; equal on all ranks if they keep to the rules. */
    uint64_t digest;
    _Atomic uint64_t launches[SYMM_KERNEL_COUNT];
    symm_message_counts messages;
    symm_onesided_counts onesided;
    symm_signal_tally *tallies; /* [SYMM_MAX_RANKS * SYMM_SIGNAL_WORDS], peer by peer */
} symm_comm_calls;

/* A point behind a stream: all that the stream was given before (point.h). All zero: nothing to
 * wait for. */
typedef struct {
    symm_order order;          /* host backend */
    struct cu_event_st *event; /* GPUs; NULL until the first mark */
    uint64_t seq;              /* times that it was set; 0: never */
} symm_mark;

/* The last of some calls that run in issue order. */
typedef struct {
    symmStream_t stream;
    symm_mark end; /* host backend: behind the call. GPUs: the same once it is marked */
    int any;       /* there was a call */
    int packed; /* GPUs: CTAs of the last calls that may overlap, none waiting for another's end */
    int marked; /* GPUs: `end` is behind the call; set at once if only its thread can do it */
} symm_last;

/* A capture that has calls of the communicator. Of more captures than SYMM_CAPTURES those with the
 * latest calls are known. */
enum { SYMM_CAPTURES = 8 };
typedef struct {
    uint64_t id; /* 0: none */
    uint64_t no; /* of the last call, among all captured ones */
    symm_last last;
} symm_captured;

/* Told of calls while a communicator has lanes (symm_lane.h). The user's thread. */
typedef struct {
    /* Before a call is recorded: whether the capture, with what else it has, may take it. */
    symmResult_t (*may_capture)(struct symm_comm *c, symmStream_t stream);
    /* A call was launched or recorded. hears: every rank hears from every rank in it. */
    void (*called)(struct symm_comm *c, symmStream_t stream, int hears, int captured);
} symm_observer;

/* How a stream can be put behind the last eager call without its stream: by the words that its CTAs
 * write at their ends, by graph_end, or not at all. */
enum { SYMM_BEHIND_WORDS, SYMM_BEHIND_GRAPH, SYMM_BEHIND_NOTHING };

/* Owner: launch. Order of launches. The user's thread; replays: any. */
typedef struct {
    symm_last eager; /* of eager calls and of graphs of memory plans */
    int behind;      /* GPUs: what stands behind it, SYMM_BEHIND_* */
    int packs;       /* GPUs: what `packed` is behind the call that is being launched */
    int often;       /* GPUs: calls to come that are marked at once, as the stream changed lately */
    symm_captured captured[SYMM_CAPTURES]; /* of the calls of each capture */
    uint64_t ncaptured;                    /* captured calls so far */
    _Atomic int replays; /* host backend: launches of graphs with its calls, and threads of kernels
                            of the program, that have not ended */
    int graphs;          /* GPUs: graphs of memory plans were launched and may still run */
    symm_mark graph_end; /* GPUs: behind the last of them; not set: it could not be marked */
    const symm_observer *observer;            /* NULL: nobody */
    struct symm_extent_block *spare;          /* extents.c */
    _Atomic(struct symm_extent_block *) used; /* given back by tasks; any thread */
} symm_comm_order;

/* Owner: heap. Heaps over the communicator. The user's thread changes them, under the lock; any
 * other thread reads them under the lock. */
typedef struct {
    struct symm_heap *newest;
    pthread_mutex_t lock;      /* the list */
    uint32_t serial;           /* heaps so far, equal on all ranks; the user's thread */
    pthread_mutex_t size_lock; /* heap_sizes.c; also the watcher's thread */
    struct symm_sizes *sizes;
    int unsaid; /* of sizes: those that not all know */
} symm_comm_heaps;

/* Owner: lane. Lanes and graph memory of its heaps. The user's thread. */
typedef struct {
    struct symm_memlanes *sets; /* memlane.h */
    /* Eager calls so far in which every rank hears from every rank; counted while there are
     * sets. */
    uint64_t heard;
    symmStream_t heard_stream; /* of the last of them, if heard_any */
    int heard_any;
    int over; /* 1: plans are settled by any thread; under the lock of memplan_life.c */
} symm_comm_lanes;

#endif
