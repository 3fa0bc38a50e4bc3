/* symm_lane.h - memory of a heap in stream order and in graph order.
 *
 * A lane is a stream's door to a heap. What is freed on it is used again where the order of work allows: on the same stream at once, on
 * another one behind an event, and for SYM blocks only after every rank's lane has passed its own free. Whether a call runs now or
 * is recorded is decided by the stream: under capture, the block is part of the graph (its plan), at one address for the graph's life.
 *
 * What is chosen depends on the order of the calls, sizes and counts, on nothing else: no clock, no address, no query of an event.
 *
 * SYM blocks: every rank makes the same calls, on the lane of the same ordinal, in the same order, and at the same places among the calls of
 * the communicator; a stream that carries a lane on one rank carries it on all. A call on a SYM block may put one barrier of the
 * communicator on the lane's stream; it counts as a call of the communicator there. Then and only then ranks wait for each other.
 * LOCAL blocks: this rank's own order. A peer that was sent a symmRef must have ended before the free, as with any memory.
 *
 * Guard mode of the heap (symm_heap.h): behind each block is a red zone, which no question counts, and freed blocks are poisoned; offsets differ from those
 * without it, alike on all ranks. symmFreeAsync waits for the lane's stream and looks at the red zone: symmInvalidUsage naming the first byte that was
 * written; the block is freed all the same. A block that was written after its free is found where it is handed out again (LOCAL, or one rank), where
 * the lanes give memory back (the same), and by symmHeapCheck, which tells of all three and looks at the red zones of blocks that live. A stream that
 * stands still is waited for no longer than a second, and what was to be looked at is not. An epoch takes two barriers then, and no collective spares one; SYM memory that the lanes take from the heap costs one more.
 * Memory of symmLaneAlias has red zones on top of its bytes, as far as the heap's addresses go: what fits into it without guard mode fits with it.
 * Graphs: blocks that are captured have a red zone; what was written there is told by an eager free of a block that outlives its graph, and on the
 * host backend, where its own graph frees it, by symmHeapCheck after the launch.
 * Not looked at: explicit nodes, frees in another graph, writes into a graph's memory after the free.
 *
 * Thread rule: use of the communicator, one thread at a time. Not between symmGroupStart and symmGroupEnd (symmInvalidUsage): what the
 * group has queued is on no stream yet; but for symmLaneAlias and symmPlanUpload where that is collective. Conventions as in symm.h. */
#ifndef SYMM_LANE_H_
#define SYMM_LANE_H_

#include "symm_heap.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct symmLane *symmLane_t;
typedef struct symmGraphPlan *symmGraphPlan_t;
/* The same C type as cudaGraphNode_t. On the host backend: a node of a plan made by symmPlanCreate. */
typedef struct CUgraphNode_st *symmNode_t;

/* ---- lanes ---------------------------------------------------------------------------------------------- */

/* The lane's ordinal is the number of lanes made of this heap before, equal on all ranks. The stream may be NULL. [local, same order on
 * all ranks] */
SYMM_API symmResult_t symmLaneCreate(symmHeap_t heap, symmStream_t stream, symmLane_t *lane);
/* What the lane had kept goes to the heap's other lanes, in order behind its stream. The last one waits for its own streams' work and gives
 * all back, what is SYM at the next symmHeapCollect, and so memory of graphs that other streams still used when its lane ended; blocks that are still
 * allocated then: symmInvalidUsage, nothing changed (unless the heap is destroyed: then they went with it; those of graphs without a
 * plan go with the last lane). Graphs keep what they use. [local, same
 * order on all ranks] */
SYMM_API symmResult_t symmLaneDestroy(symmLane_t lane);

/* Beside SYMM_ALLOC_SYM and SYMM_ALLOC_LOCAL. For captured blocks that are not freed in their own graph: a place that no other graph of the
 * lane uses, whenever it was captured. */
#define SYMM_ALLOC_KEEP 4u

/* Eager: memory for whatever is given to the lane's stream from here on. Captured: an address that the graph has for its whole life, used in
 * it by what comes after this call. Uninitialised, aligned to 256 bytes (eager ones under 1 KiB: to 128). bytes 0: *ptr = NULL.
 * symmNeedGrow, symmOutOfMemory as symmAlloc. symmInvalidArgument: the lane's stream is gone. That is sure on the host backend only: a stream of
 * CUDA's lives until its lane is destroyed, since the driver may crash over the handle of one that does not. [local; SYM: same on all ranks] */
SYMM_API symmResult_t symmAllocAsync(symmLane_t lane, size_t bytes, unsigned flags, void **ptr);
/* All use, on every stream and, of SYM blocks, by this rank in every rank's memory, is over before this point of the lane's stream: whole
 * operations, a flag that a running kernel sets is not enough. Any lane of the heap will do. NULL: nothing. What does not begin a block
 * of a lane, is freed already, or was freed in its own graph: symmInvalidArgument saying so, nothing changed.
 * Captured: of blocks of this capture, and of blocks that outlive theirs. Whoever gets the bytes of such a block comes behind the free: graphs that
 * symmPlanLaunch launches, and the heap's memory. [local; SYM: same on all ranks] */
SYMM_API symmResult_t symmFreeAsync(symmLane_t lane, void *ptr);
/* Gives memory that no lane's block uses back to the heap, what is SYM at the next symmHeapCollect. Waits for what the lanes' streams have been
 * given so far. *freed (may be NULL): bytes. [local, same order on all ranks] */
SYMM_API symmResult_t symmLaneTrim(symmHeap_t heap, uint64_t *freed);

typedef struct {
    size_t size; /* in: sizeof(symmLaneInfo_t) of the caller */
    int ordinal;
    int pad;
    uint64_t symLive, localLive; /* bytes in blocks of this lane */
    uint64_t symKept, localKept; /* freed on this lane, which may use them at once */
    uint64_t symPending;         /* freed on this lane; some rank may not have come so far */
    uint64_t symReserved;        /* taken from the heap, by all lanes together */
    uint64_t localReserved;
    uint64_t allocs, frees;
    uint64_t epochs;  /* barriers that were put on the stream */
    uint64_t spared;  /* epochs that a collective of the program has ended instead */
    uint64_t follows; /* waits for another lane's stream */
} symmLaneInfo_t;
SYMM_API symmResult_t symmLaneQuery(symmLane_t lane, symmLaneInfo_t *info); /* [local] */

/* ---- plans: the memory of a graph ----------------------------------------------------------------------- */

/* Inside a graph a block lies where another one has ended only if it comes after that one's free along the graph's edges, and for SYM only if
 * a collective or barrier in which every rank hears from every rank lies between; where one is needed to save memory the lane puts
 * one into the graph, and one in front of the first SYM block, for a rank may still run the replay before. Graphs of one lane share
 * offsets: they must not run at the same time. */

#define SYMM_PLAN_AUTO_FREE 1u /* a launch frees what the last one left allocated */
#define SYMM_PLAN_ALIAS     2u /* addresses of its own over memory that graphs share: symmLaneAlias */
/* GPUs: the graph itself holds nothing of what its calls use (blocks, windows, communicators); the plan does, from here to symmPlanDestroy, and by then
 * neither the graph nor an executable of it is launched any more. A graph that holds something is launched at a lower rate: executables made after
 * symmPlanBind with this flag are launched as fast as those of a graph without memory. Host backend: no difference. */
#define SYMM_PLAN_HOLD 4u

/* Sets `bytes` of memory (rounded up to the granularity) on each rank apart for the lane's graphs. Captures whose first call on the lane comes after
 * it, and plans of symmPlanCreate with SYMM_PLAN_ALIAS, have SYM addresses that no other graph has, over this memory: one byte of it is under
 * as many addresses as there are such graphs. So pointers of two graphs are never equal, and they need no more memory than the largest.
 *  - They must not run at the same time, as always on one lane; what one leaves allocated keeps others off the same memory.
 *  - The own part is there while capturing; what is under a peer's address (symmRefPtr) comes with symmPlanUpload. Collectives use it in place.
 *  - What does not fit: symmNeedGrow, as the memory does not grow: call this again and capture anew. No addresses left: symmOutOfMemory.
 *  - LOCAL blocks and SYMM_ALLOC_KEEP lie where they lie without it.
 *  - Captures are the same on all ranks, as with any SYM block.
 * Again: other memory for later captures; plans keep what they have. bytes 0: later captures are as before. Memory goes with its last plan, and
 * addresses when the plan is destroyed and its graph gone on all ranks, at a symmHeapCollect. Neither symmHeapTrim nor symmGraphMemTrim takes
 * it. On all ranks or on none. [collective] */
SYMM_API symmResult_t symmLaneAlias(symmLane_t lane, uint64_t bytes);

/* The plan of what was captured on this lane, once the capture has ended. graph: host backend the symmGraph_t, GPUs the cudaGraph_t.
 * Without it the graph works all the same, but its launches are not checked:
 *  - It holds its memory until it is gone, for SYM of several ranks until a symmHeapCollect finds it gone on
 *    all of them; then symmGraphMemTrim gives that back.
 *  - A block that it leaves is freed as any block. Its destruction frees none: such a block holds the graph's
 *    memory until it is freed. Host backend: launches are counted, a free without a launch is refused. GPUs:
 *    CUDA tells of no launch, so every free is believed, and after the first one the block counts as freed;
 *    a graph that is launched again after that is to be bound.
 * SYMM_PLAN_ALIAS must stand there if the capture found symmLaneAlias's memory, and only
 * then (symmInvalidUsage); such a graph must not be launched at all before symmPlanUpload. [local, same order on all ranks] */
SYMM_API symmResult_t symmPlanBind(symmLane_t lane, void *graph, unsigned flags,
                                   symmGraphPlan_t *plan);
/* A plan without a capture, for explicit nodes. graph: GPUs the cudaGraph_t that gets the nodes; host backend NULL. [local, same order on all
 * ranks] */
SYMM_API symmResult_t symmPlanCreate(symmLane_t lane, void *graph, unsigned flags,
                                     symmGraphPlan_t *plan);
/* Launches exec (host backend: the graph; GPUs: a cudaGraphExec_t of it) behind the lane's last launch, on whatever stream that was, and in
 * issue order with the communicator's calls where the graph holds any, barriers of SYM blocks included. Not on CUDA's per-thread stream, as
 * lanes are not (symmInvalidArgument): another thread could not be put behind it. exec NULL: only notes the launch. Blocks that the last launch left allocated: symmInvalidUsage naming one, unless SYMM_PLAN_AUTO_FREE; so do blocks of other
 * graphs that are allocated where this one has its own, and SYMM_PLAN_ALIAS before its upload. [local; with SYM blocks same on all ranks] */
SYMM_API symmResult_t symmPlanLaunch(symmGraphPlan_t plan, symmGraph_t exec, symmStream_t stream);
/* What a first launch would do besides running. The addresses are mapped since the heap has grown, so it is the driver's own upload. [local]
 * SYMM_PLAN_ALIAS: maps the memory of every rank behind the plan's addresses on every rank, or on none; then the driver's upload, unless exec is NULL.
 * Where all of it is mapped already (no node was added since), no message is sent. symmMismatch: the ranks mean other plans. [collective] */
SYMM_API symmResult_t symmPlanUpload(symmGraphPlan_t plan, symmGraph_t exec, symmStream_t stream);
/* Ends the record. Frees no block: those that are allocated stay so until they are freed; the graph keeps its memory as long as it lives. Where no lane
 * of the heap is left it may wait for work on such blocks. [local, same order on all ranks] */
SYMM_API symmResult_t symmPlanDestroy(symmGraphPlan_t plan);

typedef struct {
    size_t size; /* sizeof(symmAllocNode_t) of the caller */
    uint64_t bytes;
    unsigned flags;   /* SYMM_ALLOC_* */
    int nranks;       /* length of ranks; 0: every rank may access */
    const int *ranks; /* who may access the block beside this rank; copied */
} symmAllocNode_t;
/* Nodes of a plan made by symmPlanCreate. deps: nodes that come before, of the same graph; *ptr is known at once. SYM blocks are not placed where
 * others have ended, as the plan knows of no collective between. [local, same order on all ranks] */
SYMM_API symmResult_t symmGraphAddAllocNode(symmGraphPlan_t plan, const symmNode_t *deps, int ndeps,
                                            const symmAllocNode_t *params, symmNode_t *node,
                                            void **ptr);
/* ptr: of this plan, with an alloc node among what comes before; or a block that outlives its own graph. Both calls are calls on SYM if the block is:
 * ranks that differ in them are told (symm_heap.h). [local, same order on all ranks] */
SYMM_API symmResult_t symmGraphAddFreeNode(symmGraphPlan_t plan, const symmNode_t *deps, int ndeps,
                                           void *ptr, symmNode_t *node);
/* A node that only orders: on the host backend it stands for the program's work. */
SYMM_API symmResult_t symmGraphAddOrderNode(symmGraphPlan_t plan, const symmNode_t *deps, int ndeps,
                                            symmNode_t *node);

/* Which ranks may access the blocks that this lane captures from now on; nranks 0: every one. Blocks that were captured keep what they have.
 * Recorded, for whoever hands out references; what is mapped is mapped for all ranks. [local] */
SYMM_API symmResult_t symmLaneSetAccess(symmLane_t lane, const int *ranks, int nranks);
/* Whether `rank` may access a lane's or a graph's block. lane: any of the heap. [local] */
SYMM_API symmResult_t symmLaneGetAccess(symmLane_t lane, const void *ptr, int rank, int *allowed);

/* ---- footprint and support ------------------------------------------------------------------------------ */

enum {
    SYMM_GRAPH_MEM_USED = 0,      /* bytes that lie under blocks of plans, or are allocated */
    SYMM_GRAPH_MEM_USED_HIGH = 1, /* most so far, or since it was set to 0 */
    SYMM_GRAPH_MEM_RESERVED = 2,  /* bytes taken from the heap for graphs */
    SYMM_GRAPH_MEM_RESERVED_HIGH = 3
};
/* Of one lane's graphs. [local] */
SYMM_API symmResult_t symmGraphMemGet(symmLane_t lane, int attr, uint64_t *value);
/* The two highs only, and to 0 only, which makes them what is current. [local] */
SYMM_API symmResult_t symmGraphMemSet(symmLane_t lane, int attr, uint64_t value);
/* Gives back what lies under no plan's and no allocated block; what is SYM, or under graphs that still live, at a later symmHeapCollect. Not the
 * memory of symmLaneAlias. Waits for the graphs' launches, and for what used blocks that they had left and the program has freed. symmInvalidUsage: a
 * stream of such a launch is under capture. *freed (may be NULL): bytes that left SYMM_GRAPH_MEM_RESERVED. [local, same order on all ranks] */
SYMM_API symmResult_t symmGraphMemTrim(symmLane_t lane, uint64_t *freed);

typedef struct {
    size_t size;   /* in: sizeof(symmMemSupport_t) of the caller */
    int driver;    /* of CUDA, as it counts (12040 is 12.4); 0: none, or too old to be used */
    int lanes;     /* symmAllocAsync */
    int graphs;    /* captured */
    int nodes;     /* explicit nodes */
    int alias;     /* SYMM_PLAN_ALIAS */
    char why[128]; /* of the first 0 above */
} symmMemSupport_t;
/* What this machine's backend can do; never an error for an old driver or none. [local, any thread] */
SYMM_API symmResult_t symmMemSupport(symmMemSupport_t *support);

#ifdef __cplusplus
}
#endif
#endif
