/* symm_lane.h - memory of a heap in stream order and in graph order.
 *
 * A lane is a stream's door to a heap. What is freed on it is used again as soon as the order of
 * work allows: on the same stream at once, on another one behind an event, and for SYM blocks only
 * after every rank's lane has passed its own free. The stream decides whether a call runs now or is
 * recorded: under capture, the block is part of the graph, at one address for the graph's life.
 * Which place a block gets depends on the order of the calls, sizes and counts, and on nothing
 * else: no clock, no address, no query of an event.
 *
 * SYM blocks: every rank makes the same calls, on the lane of the same ordinal, in the same order,
 * and at the same places among the calls of the communicator. A stream that carries a lane on one
 * rank carries it on all, and is under capture on all at such a call, or on none. A call on a SYM
 * block may put one barrier of the communicator on the lane's stream; it counts as a call of the
 * communicator there. Only then do ranks wait for each other.
 * LOCAL blocks: each rank in its own order. A peer that was sent a symmRef_t is done with the block
 * before the free, as with any memory.
 *
 * See also docs/memory-graphs.md: how graphs share memory, and where this differs from CUDA's graph
 * memory nodes. Guard mode: docs/memory-guard.md.
 *
 * Threads: use of the communicator, one thread at a time. Refused between symmGroupStart and
 * symmGroupEnd (symmInvalidUsage), because what the group has queued is on no stream yet; except
 * symmLaneAlias, and symmMemPlanUpload where it is collective. Conventions as in symm.h. */
#ifndef SYMM_LANE_H_
#define SYMM_LANE_H_

#include "symm_heap.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct symmLane *symmLane_t;
typedef struct symmMemPlan *symmMemPlan_t;
/* The same C type as cudaGraphNode_t. Host backend: a node of a plan of symmMemPlanCreate. */
typedef struct CUgraphNode_st *symmGraphNode_t;

/* ---- lanes ----------------------------------------------------------------------------------- */

/* Makes a lane. Its ordinal is the number of lanes made of this heap before, equal on all ranks.
 * stream may be NULL.
 * Requires: on GPUs the stream lives until its lane is destroyed.
 * Order: local, same order on all ranks.
 * Errors: symmInvalidArgument: CUDA's per-thread default stream, which is another one in each
 * thread. */
SYMM_API symmResult_t symmLaneCreate(symmHeap_t heap, symmStream_t stream, symmLane_t *lane);
/* Ends a lane. What it had kept goes to the heap's other lanes, in order behind its stream. The
 * last lane waits for its own streams' work and gives all back: what is SYM, and memory of graphs
 * that other streams still used when their lane ended, at the next symmHeapCollect. Graphs keep
 * what they use. If the heap is destroyed, the blocks went with it; blocks of graphs without a plan
 * go with the last lane.
 * Requires: if it has freed SYM blocks, the same other lanes are under capture on all ranks: the
 * first that is not gets them.
 * Order: local, same order on all ranks.
 * Errors: symmInvalidUsage: the last lane, and blocks are still allocated; or all others are under
 * capture. Nothing changed. */
SYMM_API symmResult_t symmLaneDestroy(symmLane_t lane);

/* Beside SYMM_ALLOC_SYM and SYMM_ALLOC_LOCAL. For captured blocks that are not freed in their own
 * graph: a place that no other graph of the lane uses, whenever it was captured. */
#define SYMM_ALLOC_KEEP 4u

/* Allocates uninitialised memory, aligned to 256 bytes (eager blocks under 1 KiB: to 128). flags:
 * SYMM_ALLOC_*. bytes 0: *ptr = NULL.
 *  - Eager: for what the lane's stream is given from here on.
 *  - Captured: an address that the graph has for its whole life, for what comes after this call in
 *    it.
 * Order: LOCAL: local. SYM: local, same order on all ranks.
 * Errors: symmNeedGrow, symmOutOfMemory: as symmHeapAlloc. symmInvalidArgument: the lane's stream
 * is gone. Only the host backend is sure to notice: the driver may crash over the handle of a
 * stream that is gone. */
SYMM_API symmResult_t symmLaneAlloc(symmLane_t lane, size_t bytes, unsigned flags, void **ptr);
/* Frees a block, in the order of the lane's stream. Any lane of the heap will do. NULL: nothing.
 * Captured: a block of this capture, or one that outlives its own graph. Whoever gets the bytes of
 * such a block comes behind the free: graphs that symmMemPlanLaunch launches, and the heap's
 * memory.
 * Requires: all use is over before this point of the lane's stream: on every stream and, for SYM
 * blocks, by this rank in every rank's memory. Whole operations: a flag that a running kernel sets
 * is not enough.
 * Order: as symmLaneAlloc of that block.
 * Errors: symmInvalidArgument, nothing changed: ptr does not begin a block of a lane, is freed
 * already, or was freed in its own graph; says which. symmInvalidUsage: guard mode: somebody wrote
 * behind the block, which is freed all the same. */
SYMM_API symmResult_t symmLaneFree(symmLane_t lane, void *ptr);
/* Gives memory that no lane's block uses back to the heap; what is SYM at the next symmHeapCollect.
 * Waits for what the lanes' streams have been given so far. *freed (may be NULL): bytes.
 * Order: local, same order on all ranks. */
SYMM_API symmResult_t symmHeapTrimLanes(symmHeap_t heap, size_t *freed);

typedef struct {
    size_t size;
    int ordinal; /* of the lane */
    int pad;
    uint64_t symLive, localLive; /* bytes in blocks of this lane */
    uint64_t symKept, localKept; /* freed on this lane, which may use them at once */
    uint64_t symPending;         /* freed on this lane; some rank may not have come so far */
    uint64_t symReserved;        /* taken from the heap, by all lanes together */
    uint64_t localReserved;
    uint64_t allocs, frees; /* calls */
    uint64_t epochs;        /* barriers that were put on the stream */
    uint64_t spared;        /* epochs that a collective of the program has ended instead */
    uint64_t follows;       /* waits for another lane's stream */
} symmLaneInfo_t;
/* Sizes and counts of a lane. Order: local. */
SYMM_API symmResult_t symmLaneQuery(symmLane_t lane, symmLaneInfo_t *info);

/* ---- memory plans: the memory of a graph -----------------------------------------------------
 * Graphs of one lane share offsets: they must not run at the same time. Inside a graph a block lies
 * where another one has ended only if it comes after that one's free along the graph's edges; for
 * SYM also only if a collective or barrier in which every rank hears from every rank lies between.
 * The lane puts a barrier into the graph where one is needed to save memory, and one in front of
 * the first SYM block, because a rank may still run the replay before. */

#define SYMM_MEMPLAN_AUTO_FREE 1u /* a launch frees what the last one left allocated */
#define SYMM_MEMPLAN_ALIAS     2u /* addresses of its own over shared memory: symmLaneAlias */
/* GPUs: the plan, not the graph, holds what the graph's calls use (blocks, windows, communicators),
 * until symmMemPlanDestroy; by then neither the graph nor an executable of it is launched any more.
 * A graph that holds something is launched at a lower rate: executables made after symmMemPlanBind
 * with this flag are launched as fast as those of a graph without memory. Host backend: no
 * difference. */
#define SYMM_MEMPLAN_HOLD 4u

/* Sets `bytes` of memory (rounded up to the granularity) on each rank apart for graphs of the lane
 * that have SYM addresses of their own: captures whose first call on the lane comes after it, and
 * plans of symmMemPlanCreate with SYMM_MEMPLAN_ALIAS. Pointers of two such graphs are never equal,
 * and together they need no more memory than the largest.
 * Called again: other memory for later captures; plans keep what they have. bytes 0: later captures
 * are as before. When the memory and the addresses go: docs/memory-graphs.md. On all ranks or on
 * none.
 *  - The own part is there while capturing. What is under a peer's address (symmRefPtr) comes with
 *    symmMemPlanUpload. Collectives use it in place.
 *  - LOCAL and SYMM_ALLOC_KEEP blocks lie where they lie without it.
 * Requires: captures are the same on all ranks, as with any SYM block. The graphs do not run at the
 * same time; what one leaves allocated keeps others off the same memory.
 * Order: collective.
 * Errors, of the captures: symmNeedGrow: a block does not fit, because this memory does not grow:
 * call this again and capture anew. symmOutOfMemory: no addresses are left. */
SYMM_API symmResult_t symmLaneAlias(symmLane_t lane, size_t bytes);

/* Makes the plan of what was captured on this lane, once the capture has ended. flags:
 * SYMM_MEMPLAN_*. A graph works without a plan too, but its launches are not checked, and its
 * memory is given back later (docs/memory-graphs.md).
 * Order: local, same order on all ranks.
 * Errors: symmInvalidArgument: the lane has no call in the graph (of several lanes that have, any
 * one will do). symmInvalidUsage: flags has SYMM_MEMPLAN_ALIAS and the capture did not find
 * symmLaneAlias's memory, or the other way round. A graph whose capture found it must not be
 * launched at all before symmMemPlanUpload. */
SYMM_API symmResult_t symmMemPlanBind(symmLane_t lane, symmGraph_t graph, unsigned flags,
                                      symmMemPlan_t *plan);
/* Makes a plan without a capture, for explicit nodes. graph: on GPUs the one that gets the nodes,
 * on the host backend NULL.
 * Order: local, same order on all ranks. */
SYMM_API symmResult_t symmMemPlanCreate(symmLane_t lane, symmGraph_t graph, unsigned flags,
                                        symmMemPlan_t *plan);
/* Launches an executable of the plan's graph behind the lane's last launch, whatever its stream. If
 * the graph holds calls of the communicator, barriers of SYM blocks included, the launch is in
 * issue order with the communicator's calls. exec NULL: only notes the launch.
 * Requires, on GPUs: exec is of the plan's graph; CUDA does not say of which graph it was made.
 * Order: local; with SYM blocks same order on all ranks.
 * Errors:
 *  - symmInvalidUsage, names a block: the last launch left it allocated, and the plan is without
 *    SYMM_MEMPLAN_AUTO_FREE; or a live block of another graph overlaps this graph's memory. Also:
 *    SYMM_MEMPLAN_ALIAS before its upload.
 *  - symmInvalidArgument: CUDA's per-thread stream, because another thread could not be put behind
 *    it. Host backend: exec is neither of the plan's graph nor of one that this has become a part
 *    of; for a plan of explicit nodes: it is another plan's. */
SYMM_API symmResult_t symmMemPlanLaunch(symmMemPlan_t plan, symmGraphExec_t exec,
                                        symmStream_t stream);
/* Does what a first launch would do besides running: the driver's upload.
 * With SYMM_MEMPLAN_ALIAS it first maps the memory of every rank behind the plan's addresses on
 * every rank, or on none; exec may then be NULL. If all of it is mapped already (no node was added
 * since), no message is sent.
 * Order: local; with SYMM_MEMPLAN_ALIAS collective.
 * Errors: symmMismatch: the ranks mean other plans. */
SYMM_API symmResult_t symmMemPlanUpload(symmMemPlan_t plan, symmGraphExec_t exec,
                                        symmStream_t stream);
/* Ends the record. Frees no block: those that are allocated stay so until they are freed. The graph
 * keeps its memory as long as it lives. If no lane of the heap is left, it may wait for work on
 * such blocks.
 * Order: local, same order on all ranks. */
SYMM_API symmResult_t symmMemPlanDestroy(symmMemPlan_t plan);

/* ---- explicit nodes --------------------------------------------------------------------------
 * Of a plan of symmMemPlanCreate. deps[0..ndeps): nodes of the same graph that come before. Calls
 * on SYM blocks are calls on SYM: ranks that differ in them are told (symm_heap.h).
 * Order: local, same order on all ranks. */

typedef struct {
    size_t size;      /* sizeof(symmAllocNode_t) of the caller */
    uint64_t bytes;   /* of the block */
    unsigned flags;   /* SYMM_ALLOC_* */
    int nranks;       /* length of ranks; 0: every rank may access */
    const int *ranks; /* who may access the block beside this rank; copied */
} symmAllocNode_t;
/* Adds a node that allocates; *ptr is known at once. SYM blocks are not placed where others have
 * ended, because the plan knows of no collective between. */
SYMM_API symmResult_t symmMemPlanAddAllocNode(symmMemPlan_t plan, const symmGraphNode_t *deps,
                                              int ndeps, const symmAllocNode_t *params,
                                              symmGraphNode_t *node, void **ptr);
/* Adds a node that frees. If the last launch has left the block, the node does not change that: it
 * is freed before the next launch, and the node frees those of later ones.
 * Requires: ptr is of this plan, with its alloc node among what comes before; or a block that
 * outlives its own graph. */
SYMM_API symmResult_t symmMemPlanAddFreeNode(symmMemPlan_t plan, const symmGraphNode_t *deps,
                                             int ndeps, void *ptr, symmGraphNode_t *node);
/* Adds a node that only orders: on the host backend it stands for the program's work. */
SYMM_API symmResult_t symmMemPlanAddOrderNode(symmMemPlan_t plan, const symmGraphNode_t *deps,
                                              int ndeps, symmGraphNode_t *node);

/* ---- access ---------------------------------------------------------------------------------- */

/* Sets which ranks may access the blocks that this lane captures from now on; nranks 0: every one.
 * Blocks that were captured keep what they have. symmRefPtr (symm_heap.h) refuses a rank that is
 * not listed; its own memory is always its own. This is no protection: the memory is mapped for all
 * ranks, and who computes addresses reaches it. Graphs of a lane share bytes: there it is whoever
 * one of them allows.
 * Order: local. */
SYMM_API symmResult_t symmLaneSetAccess(symmLane_t lane, const int *ranks, int nranks);
/* *allowed: 1 if `rank` may access a lane's or a graph's block. lane: any of the heap.
 * Order: local. */
SYMM_API symmResult_t symmLaneGetAccess(symmLane_t lane, const void *ptr, int rank, int *allowed);

/* ---- footprint and support ------------------------------------------------------------------- */

enum {
    SYMM_GRAPH_MEM_USED = 0,         /* bytes that lie under blocks of plans, or are allocated */
    SYMM_GRAPH_MEM_USED_HIGH = 1,    /* most so far, or since it was set to 0 */
    SYMM_GRAPH_MEM_RESERVED = 2,     /* bytes taken from the heap for graphs */
    SYMM_GRAPH_MEM_RESERVED_HIGH = 3 /* most so far, or since it was set to 0 */
};
/* Bytes of one lane's graphs. attr: SYMM_GRAPH_MEM_*. Order: local. */
SYMM_API symmResult_t symmLaneGetGraphMem(symmLane_t lane, int attr, size_t *value);
/* Only of the two highs, and only to 0, which makes them what is current. Order: local. */
SYMM_API symmResult_t symmLaneSetGraphMem(symmLane_t lane, int attr, size_t value);
/* Gives back what lies under no plan's and no allocated block; what is SYM, or under graphs that
 * still live, at a later symmHeapCollect. Memory of symmLaneAlias too (docs/memory-graphs.md).
 * Waits for the graphs' launches, and for what used blocks that they had left and the program has
 * freed. *freed (may be NULL): bytes that left SYMM_GRAPH_MEM_RESERVED.
 * Order: local, same order on all ranks.
 * Errors: symmInvalidUsage: a stream of such a launch is under capture. */
SYMM_API symmResult_t symmLaneTrimGraphMem(symmLane_t lane, size_t *freed);

typedef struct {
    size_t size;
    int driver;    /* of CUDA, as it counts (12040 is 12.4); 0: none, or too old to be used */
    int lanes;     /* 1: symmLaneAlloc works */
    int graphs;    /* 1: captured */
    int nodes;     /* 1: explicit nodes */
    int alias;     /* 1: SYMM_MEMPLAN_ALIAS */
    char why[128]; /* of the first 0 above */
} symmMemSupport_t;
/* What this machine's backend can do; never an error for an old driver or none.
 * Order: local, any thread. */
SYMM_API symmResult_t symmMemQuerySupport(symmMemSupport_t *support);

#ifdef __cplusplus
}
#endif
#endif
