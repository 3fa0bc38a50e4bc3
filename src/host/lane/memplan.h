/* memplan.h - what the files of graph plans share. The communicator's user thread, except where
 * said.
 *
 * A plan is the memory of one graph: made by the first call that is captured on a stream while the
 * communicator has lanes, or for explicit nodes. It lives as long as its graph does or the program
 * holds its handle, whichever is longer. A region is where the blocks of a lane's graphs lie:
 * pieces of the heap. Every decision is of the order of calls: which graphs are gone is known
 * late and differs between ranks, so it only says when memory can be given back, never where a
 * block goes. */
#ifndef SYMM_MEMPLAN_H_
#define SYMM_MEMPLAN_H_

#include "host/window/region.h"
#include "memlane.h"

/* Memory that graphs share under addresses of their own (symmLaneAlias): this rank's pieces. Where
 * a block lies in it is said in numbers from `first` on, past all offsets of the heap: blocks of
 * two graphs lie in the same memory if they overlap in these, and for blocks that are not
 * aliased the numbers are their offsets. */
typedef struct symm_memalias {
    struct symm_memregion *region;
    int refs;              /* the region, plans */
    uint64_t first, bytes; /* a multiple of the granularity */
    uint64_t room;         /* bytes, and in guard mode as many on top, for red zones */
    uint64_t chunk;        /* of each piece, but for the last, and for the last of `bytes` */
    int count,
        most; /* pieces of `bytes`, of `room`; what is on top is made when a graph needs it */
    symm_vmm_handle **handles; /* [most] */
    /* its graphs are idle: the memory goes at the symmHeapCollect that finds it so on every rank */
    int trimmed;
    int left_out; /* of what the region has reserved, since it was trimmed */
} symm_memalias;

typedef struct symm_memregion {
    struct symm_memregion *next; /* of the set */
    symm_memlanes *set;
    int refs; /* the lane, plans */
    symm_mempiece *pieces[SYMM_MEM_ZONES];
    int npieces[SYMM_MEM_ZONES];
    struct symm_memretired
        *retired; /* given up, under graphs that still live or work that was not waited for */
    symm_memalias *alias; /* for the SYM blocks of what is captured from now on */
    uint64_t reserved, reserved_high, used_high;
    symmStream_t launch_stream; /* of the last launch of one of its plans */
    uint64_t launches;
    symm_memmark launched; /* its end, made when the stream changes */
    int stands;            /* guard mode: it was not reached in time */
    uint64_t placed;       /* blocks, so far */
    uint64_t lates;        /* uses that launches must follow, so far: memplan_late.c */
} symm_memregion;

typedef struct symm_memretired {
    struct symm_memretired *next;
    symm_mempiece piece;
    int zone;
} symm_memretired;

/* Until where a lane's stream has used blocks of a region that outlived their graphs. */
typedef struct symm_memlate {
    struct symm_memlate *next; /* of the set */
    symm_memregion *region;    /* NULL: gone; what it had waits in limbo */
    int lane;                  /* ordinal */
    int launched;              /* up to the last launch of the lane's graphs, not a free on it */
    int lazy;                  /* the mark is still to be made, at the stream's end */
    int followed;              /* launches over the region come behind it: memplan_late.c */
    int reached;               /* the host has waited for it */
    symmStream_t stream;
    symm_memmark mark;
    uint64_t from[SYMM_MEM_ZONES],
        to[SYMM_MEM_ZONES]; /* bytes, in the planner's numbers; to 0: none */
} symm_memlate;

typedef struct {
    uint64_t off, bytes;
    uint64_t at; /* the planner's: off, unless it is aliased */
    int zone;
    uint32_t red;    /* guard mode: the last of bytes, behind those that were asked for */
    int no;          /* of the planner; -1: KEEP, a block of the heap's own */
    uint64_t serial; /* of the region's blocks */
    int from;        /* point */
    int freed;       /* by a node of its own graph */
    int live;        /* outlives its graph, and has been launched since it was freed last */
    uint64_t given;  /* memplan_loose.c: the graph's launches when it was freed last */
    symm_memaccess access;
} symm_memblock;

typedef struct symm_memplan {
    struct symm_memplan *next; /* of the set */
    symmMemPlan_t handle;      /* NULL: not bound */
    symm_memlanes *set;
    symm_memregion *region; /* NULL: no block yet */
    int lane;               /* ordinal */
    int *callers, ncallers; /* of a capture: ordinals of the lanes that have calls in it */
    int held; /* 1: by a handle, by the lane before it is bound, or by blocks that are allocated */
    int destroyed;               /* the handle is gone */
    _Atomic int graphs;          /* that hold it */
    struct symm_memplan *let_go; /* list of those whose last graph has gone; gone_lock, as queued */
    int queued;                  /* is in it */
    int explicit_nodes;
    int has_sym, lost;
    uint64_t sym_no;         /* of captures with SYM blocks: equal on all ranks, grows; 0 none */
    _Atomic uint64_t direct; /* host backend: launches, whoever made them */
    unsigned flags;
    symm_memalias *alias;
    uint64_t tract; /* its addresses; SYMM_NO_OFFSET: none yet */
    uint64_t tract_bytes;
    uint64_t reach; /* bytes of the tract that blocks lie in, from its start */
    int backed,
        /* pieces behind them, from the first: of this rank here; of every rank everywhere */
        uploaded;
    uint64_t capture;
    cu_graph graph;  /* GPUs */
    symm_kept *pins; /* what the graph has given to the program's hands: SYMM_MEMPLAN_HOLD */
    symm_gplan *points;
    symm_memblock *blocks;
    int nblocks, nlive; /* blocks; of those that outlive the graph, how many are allocated */
    int nleft;          /* blocks that the graph does not free itself */
    struct foreign {    /* frees of blocks that outlived another graph */
        struct symm_memplan *plan;
        int block;
    } * frees;
    int nfrees;
    uint64_t seen;     /* serial up to which it keeps off other graphs' blocks */
    uint64_t clear_of; /* of region->lates: a launch has nothing to wait for */
    int *barriers;     /* points of those that SYM blocks have put in */
    int *calls;        /* points of the communicator's calls, barriers too */
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

/* ---- memplan_life.c, memplan.c --------------------------------------------------------------- */

symmResult_t symm_memplan_new(symm_memlanes *s, symm_memplan **out);
/* Frees it if nobody holds it. */
void symm_memplan_settle(symm_memplan *p);
/* A graph holds the plan: retained, and let go, by any thread. */
void symm_memplan_retain(void *plan);
void symm_memplan_release(void *plan);
/* No graph has it any more. */
int symm_memplan_is_left(symm_memplan *p);
/* Gives the plan its lane's region, and the planner what it may use. */
symmResult_t symm_memplan_settle_on(symm_memplan *p, symm_memlane *l);
/* Places a block that begins at that point. hears: barriers may be put in front, on the lane's
 * stream. */
symmResult_t symm_memplan_place(symm_memplan *p, symm_memlane *l, int point, uint64_t bytes,
                                unsigned flags, const void *site, int *block);
/* Frees the block that begins at off, at that point: of this plan, or one that outlives its own. */
symmResult_t symm_memplan_free_at(symm_memplan *p, int point, uint64_t off, const void *ptr,
                                  const void *site);
/* A call on that block enters the heap's digest, if it is SYM. */
void symm_memplan_note(const symm_memplan *p, int block, int freed, int lane, const void *site);
void symm_memregion_unref(symm_memregion *r);
/* Gives back what was trimmed and no graph is over any more. */
void symm_memregion_sweep(symm_memregion *r);

/* symmMemPlan calls: the plan, its heap and communicator entered. leave ends it. */
symmResult_t symm_memplan_enter(symmMemPlan_t plan, const char *call, symm_memplan **out);
void symm_memplan_leave(symm_memplan *p);
/* The lane's region, made if there is none. */
symmResult_t symm_memregion_of(symm_memlane *l);

/* ---- memplan_late.c -------------------------------------------------------------------------- */

/* A block that outlived its graph is freed on the lane's stream, where all its uses have ended. */
symmResult_t symm_memlate_freed(symm_memregion *r, const symm_memblock *b, symm_memlane *l);
/* Before a launch: room for what symm_memlate_launched notes of blocks that the graph frees. here:
 * it was given to the stream by now. */
symmResult_t symm_memlate_reserve(const symm_memplan *p);
void symm_memlate_launched(const symm_memplan *p, int here, symmStream_t stream);
/* The stream is behind all uses of bytes under the plan's blocks that no launch over its region is
 * behind yet; once that launch was given to it, they are followed. */
symmResult_t symm_memlate_follow(const symm_memplan *p, symmStream_t stream);
void symm_memlate_followed(symm_memplan *p);
/* Whether some use of the region's blocks has not been waited for. */
int symm_memlate_open(const symm_memregion *r);
/* Marks the end of what was given to a stream that launches; symmInvalidUsage: it is under
 * capture. */
symmResult_t symm_memlate_mark(symm_comm *c, symm_memmark *m, symmStream_t stream);
/* The region ends. */
void symm_memlate_leave(const symm_memregion *r);

/* ---- memplan_loose.c: graphs that no plan was bound to --------------------------------------- */

/* Tells the plan of its graph's launches (host backend). */
extern const symm_graph_user symm_memloose_user;
/* The block may be allocated: a launch has left it, or for all that is known. 0 for plans that are
 * bound. */
int symm_memloose_out(const symm_memplan *p, const symm_memblock *b);
int symm_memloose_any(const symm_memplan *p);
/* A free of it is to be believed. */
int symm_memloose_may_free(const symm_memplan *p, const symm_memblock *b);
void symm_memloose_freed(const symm_memplan *p, symm_memblock *b);
/* Nothing of it is allocated any more: its memory ends. */
void symm_memloose_forget(symm_memplan *p);
/* The plan goes, with what its graph has freed of others. */
void symm_memloose_ends(const symm_memplan *p);
/* This rank alone decides when it is let go. */
int symm_memloose_is_own(const symm_memplan *p);

/* ---- memplan_guard.c: where the set has a guard ---------------------------------------------- */

/* The block, of which `asked` bytes are the caller's, has just been captured on the lane: the graph
 * paints what is behind. */
symmResult_t symm_memguard_captured(symm_memlane *l, symm_memplan *p, symm_memblock *b,
                                    uint64_t asked);
/* A captured free of the plan's own block comes next on the lane: what its graph does before. */
symmResult_t symm_memguard_uncaptured(symm_memlane *l, const symm_memplan *p,
                                      const symm_memblock *b);
/* An eager free of a block that outlived its graph: symmInvalidUsage naming what was written behind
 * it. */
symmResult_t symm_memguard_left(symm_memlane *l, const symm_memplan *p, const symm_memblock *b);

/* ---- memplan_alias.c ------------------------------------------------------------------------- */

void symm_memalias_unref(symm_memalias *a);
/* Addresses for the plan, if it has none. */
symmResult_t symm_memalias_open(symm_memplan *p);
static inline uint64_t symm_memalias_offset(const symm_memplan *p, uint64_t at) {
    return p->tract + (at - p->alias->first);
}
/* This rank's memory behind a block. */
symmResult_t symm_memalias_back(symm_memplan *p, const symm_memblock *b);
/* symmNeedGrow, and why: the memory holds no block of that size. */
symmResult_t symm_memalias_full(const symm_memplan *p, uint64_t bytes);
/* No graph can use them any more. */
void symm_memalias_close(symm_memplan *p);
/* A capture or an upload wants the memory: it is not trimmed any more. */
void symm_memalias_wake(symm_memalias *a);
/* Marks what the region's idle graphs share; bytes that left the region. */
uint64_t symm_memalias_trim(const symm_memregion *r);
/* Pieces under the plan's blocks; and how many of them a launch would find. */
int symm_memalias_pieces(const symm_memplan *p, int *there);
/* The memory of every rank, here too. status: this rank's so far. [collective where something is to
 * be mapped] */
symmResult_t symm_memalias_upload(symm_memplan *p, symmResult_t status);

/* ---- memplan_mem.c --------------------------------------------------------------------------- */

/* Brings the highs up to date; a plan is about to go, or has been filled. */
void symm_memregion_measure(symm_memregion *r);
/* nranks 0: every rank. symmInvalidArgument: a rank that is none. */
symmResult_t symm_memaccess_set(symm_memaccess *a, const symm_comm *c, const int *ranks,
                                int nranks);

/* ---- memplan_point.c: both backends ---------------------------------------------------------- */

/* The point where the stream stands in the capture. */
symmResult_t symm_memplan_point(symm_memplan *p, symmStream_t stream, int kind, int *point);
/* A point behind explicit nodes. */
symmResult_t symm_memplan_point_after(symm_memplan *p, int kind, const symmGraphNode_t *deps,
                                      int ndeps, int *point, symmGraphNode_t *node);
/* The capture's graph holds the plan. */
symmResult_t symm_memplan_hold(symm_memplan *p, symmStream_t stream);
void symm_memplan_free_points(symm_memplan *p);

#endif
