/* memplan.h - what the files of memory plans share. The communicator's user thread, except where
 * said.
 *
 * A plan is the memory of one graph. The first call that is captured on a stream while the
 * communicator has lanes makes one; so does symmMemPlanCreate. It lives as long as its graph, or as
 * long as the program holds its handle, whichever is longer. A region is where the blocks of a
 * lane's graphs lie: pieces of the heap. Every decision about places depends on the order of calls
 * only. Which graphs are gone is known late and differs between ranks, so that decides only when
 * memory can be given back.
 *
 * Who calls whom, lowest first: memplan_point, memplan_unbound, memplan_uses; memplan_alias;
 * memplan_life; memplan_guard; memplan_blocks; memplan_capture, memplan_collect, memplan_access,
 * memplan_memory, memplan_handle, memplan_launch. */
#ifndef SYMM_MEMPLAN_H_
#define SYMM_MEMPLAN_H_

#include "host/window/region.h"
#include "memlane.h"

/* Memory that graphs share under addresses of their own (symmLaneAlias): this rank's pieces. The
 * planner gives a block in it a number from `first` on, past all offsets of the heap. Blocks of two
 * graphs lie in the same memory if their numbers overlap. For other blocks the number is the
 * offset. */
typedef struct symm_memalias {
    struct symm_memregion *region;
    int refs;                  /* the region, plans */
    uint64_t first;            /* the planner's number of the first byte */
    uint64_t bytes;            /* a multiple of the granularity */
    uint64_t room;             /* bytes; in guard mode as much again on top, for red zones */
    uint64_t chunk;            /* bytes of a piece; the last of `bytes` and of `room` may be less */
    int count;                 /* pieces of `bytes` */
    int most;                  /* pieces of `room`; those on top are made when a graph needs them */
    symm_vmm_handle **handles; /* [most] */
    int trimmed;  /* the memory goes at the symmHeapCollect that finds this set on every rank */
    int left_out; /* `bytes` are not in region->reserved, since it was trimmed */
} symm_memalias;

typedef struct symm_memregion {
    struct symm_memregion *next; /* of the set */
    symm_memlanes *set;
    int refs; /* the lane, plans */
    symm_mempiece *pieces[SYMM_MEM_ZONES];
    int npieces[SYMM_MEM_ZONES];
    struct symm_memretired *retired; /* given up, and still under graphs or unfinished work */
    symm_memalias *alias;            /* for SYM blocks of what is captured from now on */
    uint64_t reserved, reserved_high, used_high;
    symmStream_t launch_stream; /* of the last launch of one of its plans */
    uint64_t launches;
    symm_memmark launched; /* end of that launch, set when the stream changes */
    int stands;            /* guard mode: it was not reached in time */
    uint64_t placed;       /* blocks, so far */
    uint64_t uses;         /* uses that launches must follow, so far: memplan_uses.c */
} symm_memregion;

typedef struct symm_memretired {
    struct symm_memretired *next;
    symm_mempiece piece;
    int zone;
} symm_memretired;

/* How far a lane's stream has used blocks of a region that outlived their graphs. */
typedef struct symm_memuse {
    struct symm_memuse *next; /* of the set */
    symm_memregion *region;   /* NULL: gone; what it had waits for symmHeapCollect */
    int lane;                 /* ordinal */
    int launched;             /* 1: the last launch of the lane's graphs; 0: a free on the lane */
    int lazy;                 /* the mark is still to be set, at the stream's end */
    int followed;             /* whether launches over the region are behind it: memplan_uses.c */
    int reached;              /* the host has waited for it */
    symmStream_t stream;
    symm_memmark mark;
    uint64_t from[SYMM_MEM_ZONES]; /* bytes, in the planner's numbers; */
    uint64_t to[SYMM_MEM_ZONES];   /* 0: none */
} symm_memuse;

typedef struct {
    uint64_t off, bytes;
    uint64_t at; /* the planner's number: off, unless the block is aliased */
    int zone;
    uint32_t red;    /* guard mode: the last of `bytes`, behind those that were asked for */
    int no;          /* of the planner; -1: KEEP, a block of the heap's own */
    uint64_t serial; /* of the region's blocks */
    int from;        /* point of the allocation */
    int freed;       /* by a node of its own graph */
    int live;        /* outlives its graph, and was launched since it was freed last */
    uint64_t given;  /* launches of the graph when it was freed last: memplan_unbound.c */
    symm_memaccess access;
} symm_memblock;

typedef struct symm_memplan {
    struct symm_memplan *next; /* of the set */
    symmMemPlan_t handle;      /* NULL: not bound */
    symm_memlanes *set;
    symm_memregion *region; /* NULL: no block yet */
    int lane;               /* ordinal */
    int *callers, ncallers; /* of a capture: ordinals of the lanes that have calls in it */
    int held; /* by a handle, by the lane before it is bound, or by blocks that are allocated */
    int destroyed;               /* the handle is gone */
    _Atomic int graphs;          /* how many hold it */
    struct symm_memplan *let_go; /* list of plans whose last graph is gone; under gone_lock */
    int queued;                  /* is in that list; under gone_lock */
    int explicit_nodes;          /* made by symmMemPlanCreate */
    int has_sym;                 /* has SYM blocks */
    int lost;                    /* a call could not be noted: later blocks fail */
    uint64_t sym_no;             /* captures with SYM blocks: equal on all ranks, grows; 0: none */
    _Atomic uint64_t direct;     /* host backend: launches, whoever made them */
    unsigned flags;
    symm_memalias *alias;
    uint64_t graph_range;       /* offset of its addresses; SYMM_NO_OFFSET: none yet */
    uint64_t graph_range_bytes; /* their number */
    uint64_t reach;             /* bytes of the graph range, from its start, that blocks lie in */
    int backed;                 /* pieces, from the first, that are mapped in this rank's part */
    int uploaded;               /* pieces, from the first, of every rank, mapped on every rank */
    uint64_t capture;           /* id */
    cu_graph graph;             /* GPUs */
    symm_kept *pins;            /* SYMM_MEMPLAN_HOLD: what the plan holds instead of the graph */
    symm_gplan *points;
    symm_memblock *blocks;
    int nblocks;
    int nlive;       /* blocks that outlive the graph and are allocated */
    int nleft;       /* blocks that the graph does not free itself */
    struct foreign { /* frees of blocks that outlived another graph */
        struct symm_memplan *plan;
        int block;
    } * frees;
    int nfrees;
    uint64_t seen;     /* serial up to which it keeps off other graphs' blocks */
    uint64_t clear_of; /* region->uses for which a launch has nothing to wait for */
    int *barriers;     /* points of the barriers that SYM blocks have put in */
    int *calls;        /* points of the communicator's calls, these barriers among them */
    int nbarriers, ncalls;
    uint64_t launches;
    /* memplan_point.c */
    struct symm_memclock { /* host: of each point */
        size_t *counts;
        int n;
    } * clocks;
    int nclocks;
    struct symm_memnode { /* GPUs: the latest known point that a node is or follows */
        cu_graph_node node;
        int point;
    } * nodes; /* open addressing */
    uint64_t nnodes, node_cap;
    int start; /* point that everything follows */
} symm_memplan;

/* memlane_check.c: SYMM_CHECK only. */
void symm_memregion_check(const symm_memregion *r);
void symm_memplan_check(const symm_memplan *p);

/* ---- memplan_point.c: both backends ---------------------------------------------------------- */

/* The point where the stream stands in the capture. */
symmResult_t symm_memplan_point(symm_memplan *p, symmStream_t stream, int kind, int *point);
/* A point behind explicit nodes. */
symmResult_t symm_memplan_point_after(symm_memplan *p, int kind, const symmGraphNode_t *deps,
                                      int ndeps, int *point, symmGraphNode_t *node);
void symm_memplan_free_points(symm_memplan *p);

/* ---- memplan_unbound.c: graphs that no plan was bound to ------------------------------------- */

/* The block may be allocated: a launch has left it, or nothing says otherwise. 0 for plans that are
 * bound. */
int symm_unbound_out(const symm_memplan *p, const symm_memblock *b);
/* Whether any block may be. */
int symm_unbound_any(const symm_memplan *p);
/* Whether a free of the block is accepted. */
int symm_unbound_may_free(const symm_memplan *p, const symm_memblock *b);
void symm_unbound_freed(const symm_memplan *p, symm_memblock *b);
/* No block is allocated any more: the memory ends. */
void symm_unbound_forget(symm_memplan *p);
/* The plan goes: notes what its graph has freed of others. */
void symm_unbound_ends(const symm_memplan *p);
/* This rank alone decides when the plan is let go. */
int symm_unbound_is_own(const symm_memplan *p);
/* The plan waits for all ranks to let it go. */
int symm_unbound_waits(const symm_memplan *p);

/* ---- memplan_uses.c -------------------------------------------------------------------------- */

/* A block that outlived its graph is freed on the lane's stream, where all its uses have ended. */
symmResult_t symm_memuse_freed(symm_memregion *r, const symm_memblock *b, symm_memlane *l);
/* Before a launch: makes room for the notes of symm_memuse_launched, one for each block that the
 * graph frees. here: the launch was given to the stream by now. */
symmResult_t symm_memuse_reserve(const symm_memplan *p);
void symm_memuse_launched(const symm_memplan *p, int here, symmStream_t stream);
/* Before a launch: puts the stream behind all uses of bytes under the plan's blocks that no launch
 * over the region is behind yet. After it: these uses are followed. */
symmResult_t symm_memuse_follow(const symm_memplan *p, symmStream_t stream);
void symm_memuse_followed(symm_memplan *p);
/* Whether the host has still to wait for a use of the region's blocks. */
int symm_memuse_open(const symm_memregion *r);
/* Marks the end of what was given to a stream that launches. symmInvalidUsage: it is under
 * capture. */
symmResult_t symm_memuse_mark(symm_comm *c, symm_memmark *m, symmStream_t stream);
/* The region ends. */
void symm_memuse_leave(const symm_memregion *r);

/* ---- memplan_alias.c ------------------------------------------------------------------------- */

/* Makes this rank's memory for symmLaneAlias; discard frees memory that no region has got. */
symmResult_t symm_memalias_make(symm_memlane *l, uint64_t bytes, symm_memalias **out);
void symm_memalias_discard(symm_comm *c, symm_memalias *a);
/* It is the memory of the lane's later captures (NULL: none). Plans keep the one they have. */
void symm_memalias_replace(symm_memlane *l, symm_memalias *next);
void symm_memalias_unref(symm_memalias *a);
/* Takes addresses for the plan, if it has none. */
symmResult_t symm_memalias_open(symm_memplan *p);
/* Gives them back: no graph can use them any more. */
void symm_memalias_close(symm_memplan *p);
static inline uint64_t symm_memalias_offset(const symm_memplan *p, uint64_t at) {
    return p->graph_range + (at - p->alias->first);
}
/* Maps this rank's memory behind a block. */
symmResult_t symm_memalias_back(symm_memplan *p, const symm_memblock *b);
/* symmNeedGrow, and why: the memory holds no block of that size. */
symmResult_t symm_memalias_full(const symm_memplan *p, uint64_t bytes);
/* A capture or an upload needs the memory: it is not trimmed any more. */
void symm_memalias_wake(symm_memalias *a);
/* Marks what the region's idle graphs share as trimmed. Returns the bytes that left the region. */
uint64_t symm_memalias_trim(const symm_memregion *r);
/* Releases the pieces if no plan has mapped them. */
void symm_memalias_release(symm_memalias *a);
/* Pieces under the plan's blocks, and how many of them a launch would find. */
int symm_memalias_pieces(const symm_memplan *p, int *there);
/* Maps the memory of every rank here. status: of this rank so far. [collective if something is to
 * be mapped] */
symmResult_t symm_memalias_upload(symm_memplan *p, symmResult_t status);

/* ---- memplan_life.c -------------------------------------------------------------------------- */

symmResult_t symm_memplan_new(symm_memlanes *s, symm_memplan **out);
/* Frees the plan if nobody holds it. */
void symm_memplan_settle(symm_memplan *p);
/* 1: blocks of the zone keep the plan. For SYM equal on all ranks, which free LOCAL blocks that the
 * graph of an ended plan has left at different times. */
int symm_memplan_holds(const symm_memplan *p, int zone);
/* A graph holds the plan, or lets it go. Any thread. */
void symm_memplan_retain(void *plan);
void symm_memplan_release(void *plan);
/* The capture's graph holds the plan. */
symmResult_t symm_memplan_hold(symm_memplan *p, symmStream_t stream);
/* Host backend: how a graph tells its plan of its launches. */
extern const symm_graph_user symm_memplan_graph_user;
/* No graph has the plan any more. */
int symm_memplan_is_left(symm_memplan *p);
/* The lane's region, made if there is none. */
symmResult_t symm_memregion_of(symm_memlane *l);
void symm_memregion_unref(symm_memregion *r);
/* Gives back what was trimmed and is under no graph any more. */
void symm_memregion_sweep(symm_memregion *r);

/* ---- memplan_guard.c: only where the set has a guard ----------------------------------------- */

/* The block, of which `asked` bytes are the caller's, was just captured on the lane: the graph
 * paints its red zone. */
symmResult_t symm_memguard_captured(symm_memlane *l, symm_memplan *p, symm_memblock *b,
                                    uint64_t asked);
/* A captured free of the plan's own block comes next on the lane: what the graph does before it. */
symmResult_t symm_memguard_uncaptured(symm_memlane *l, const symm_memplan *p,
                                      const symm_memblock *b);
/* An eager free of a block that outlived its graph. symmInvalidUsage, names what was written behind
 * it. */
symmResult_t symm_memguard_left(symm_memlane *l, const symm_memplan *p, const symm_memblock *b);

/* ---- memplan_blocks.c ------------------------------------------------------------------------ */

/* Gives the plan its lane's region, and the planner the memory that it may use. */
symmResult_t symm_memplan_settle_on(symm_memplan *p, symm_memlane *l);
/* Places a block that begins at that point; may put a barrier in front, on the lane's stream. */
symmResult_t symm_memplan_place(symm_memplan *p, symm_memlane *l, int point, uint64_t bytes,
                                unsigned flags, const void *site, int *block);
/* The newest block of the plan that begins at off; -1: none. */
int symm_memplan_find(const symm_memplan *p, uint64_t off);
/* Frees the block that begins at off, at that point: one of this plan, or one that outlived its
 * graph. */
symmResult_t symm_memplan_free_at(symm_memplan *p, int point, uint64_t off, const void *ptr,
                                  const void *site);
/* A call on that block enters the heap's digest, if it is SYM. */
void symm_memplan_note(const symm_memplan *p, int block, int freed, int lane, const void *site);

/* ---- memplan_access.c, memplan_memory.c, memplan_handle.c ------------------------------------ */

/* nranks 0: every rank. symmInvalidArgument: an entry is no rank. */
symmResult_t symm_memaccess_set(symm_memaccess *a, const symm_comm *c, const int *ranks,
                                int nranks);
/* Brings used_high up to date; a plan is about to go, or was filled. */
void symm_memregion_measure(symm_memregion *r);
/* Begins a symmMemPlan call: checks the handle, refuses inside a group, enters the heap and its
 * communicator. leave ends the call. */
symmResult_t symm_memplan_enter(symmMemPlan_t plan, const char *call, symm_memplan **out);
void symm_memplan_leave(symm_memplan *p);

#endif
