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
 * LOCAL blocks: this rank's own order. A peer that was sent a symmRef_t must have ended before the free, as with any memory.
 *
 * Guard mode of the heap (symm_heap.h): behind each block is a red zone, which no question counts, and freed blocks are poisoned; offsets differ from those
 * without it, alike on all ranks. symmLaneFree waits for the lane's stream and looks at the red zone: symmInvalidUsage naming the first byte that was
 * written; the block is freed all the same. A block that was written after its free is found where it is handed out again (LOCAL, or one rank), where
 * the lanes give memory back (the same), and by symmHeapCheck, which tells of all three and looks at the red zones of blocks that live. A stream that
 * stands still is waited for no longer than a second, and what was to be looked at is not. An epoch takes two barriers then, and no collective spares one; SYM memory that the lanes take from the heap costs one more.
 * Memory of symmLaneAlias has red zones on top of its bytes, as far as the heap's addresses go: what fits into it without guard mode fits with it.
 * Graphs: blocks that are captured have a red zone; what was written there is told by an eager free of a block that outlives its graph, and on the
 * host backend, where its own graph frees it, by symmHeapCheck after the launch.
 * Not looked at: explicit nodes, frees in another graph, writes into a graph's memory after the free.
 *
 * Thread rule: use of the communicator, one thread at a time. Not between symmGroupStart and symmGroupEnd (symmInvalidUsage): what the
 * group has queued is on no stream yet; but for symmLaneAlias and symmMemPlanUpload where that is collective. Conventions as in symm.h. */
#ifndef SYMM_LANE_H_
#define SYMM_LANE_H_

#include "symm_heap.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct symmLane *symmLane_t;
typedef struct symmMemPlan *symmMemPlan_t;
/* The same C type as cudaGraphNode_t. On the host backend: a node of a plan made by symmMemPlanCreate. */
typedef struct CUgraphNode_st *symmGraphNode_t;

/* ---- lanes ---------------------------------------------------------------------------------------------- */

/* The lane's ordinal is the number of lanes made of this heap before, equal on all ranks. The stream may be NULL. CUDA's per-thread default stream
 * is refused (symmInvalidArgument), for it is another stream in each thread. [local, same order on all ranks] */
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
 * symmNeedGrow, symmOutOfMemory as symmHeapAlloc. symmInvalidArgument: the lane's stream is gone. That is sure on the host backend only: a stream of
 * CUDA's lives until its lane is destroyed, since the driver may crash over the handle of one that does not. [local; SYM: same on all ranks] */
SYMM_API symmResult_t symmLaneAlloc(symmLane_t lane, size_t bytes, unsigned flags, void **ptr);
/* All use, on every stream and, of SYM blocks, by this rank in every rank's memory, is over before this point of the lane's stream: whole
 * operations, a flag that a running kernel sets is not enough. Any lane of the heap will do. NULL: nothing. What does not begin a block
 * of a lane, is freed already, or was freed in its own graph: symmInvalidArgument saying so, nothing changed.
 * Captured: of blocks of this capture, and of blocks that outlive theirs. Whoever gets the bytes of such a block comes behind the free: graphs that
 * symmMemPlanLaunch launches, and the heap's memory. [local; SYM: same on all ranks] */
SYMM_API symmResult_t symmLaneFree(symmLane_t lane, void *ptr);
/* Gives memory that no lane's block uses back to the heap, what is SYM at the next symmHeapCollect. Waits for what the lanes' streams have been
 * given so far. *freed (may be NULL): bytes. [local, same order on all ranks] */
SYMM_API symmResult_t symmHeapTrimLanes(symmHeap_t heap, size_t *freed);

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

/* Where this differs from CUDA's graph memory nodes, and why. "On all ranks" is the reason of
 * most: what peers reach is mapped by a collective call, and neither a capture nor a launch sends a
 * message or waits for a peer.
 *
 *  CUDA                                  here
 *  each graph has addresses of its own   by symmLaneAlias; else graphs of a lane lie at the
 *                                        same offsets, and pointers of two may be equal
 *  memory comes with the first launch,   before: heap memory when the heap grows,
 *  on one device                         symmLaneAlias's at symmMemPlanUpload, on all ranks
 *  the pool of a device grows on demand  symmNeedGrow; then symmHeapGrow or symmLaneAlias, on
 *                                        all ranks, and the capture again
 *  all blocks share memory by aliases    SYM blocks alone: a tract of addresses is at one
 *                                        offset on all ranks; LOCAL and SYMM_ALLOC_KEEP blocks
 *                                        are not
 *  trim takes the memory of every graph  of symmLaneAlias: the same, but it goes at
 *  that does not run; a launch maps it   symmHeapCollect and comes with symmMemPlanUpload. Other:
 *  again                                 what is under no plan, and under no graph without one,
 *                                        for its offsets are the heap's, which other blocks get
 *                                        next
 *  every launch is checked and ordered   those by symmMemPlanLaunch: CUDA tells of no other one
 *  graphs that run at the same time do   graphs of one lane share always, and symmMemPlanLaunch
 *  not share, found at launch            puts one behind the other; use two lanes
 *  peer access is the pool's, by device  by rank, enforced where an address is handed out
 *  no clone, one executable at a time    any number: they have one address, so one runs at a
 *                                        time
 *  sizes are counted by device           by lane (symmLaneGetGraphMem) */

#define SYMM_MEMPLAN_AUTO_FREE 1u /* a launch frees what the last one left allocated */
#define SYMM_MEMPLAN_ALIAS \
    2u /* addresses of its own over memory that graphs share: symmLaneAlias */
/* GPUs: the graph itself holds nothing of what its calls use (blocks, windows, communicators); the plan does, from here to symmMemPlanDestroy, and by then
 * neither the graph nor an executable of it is launched any more. A graph that holds something is launched at a lower rate: executables made after
 * symmMemPlanBind with this flag are launched as fast as those of a graph without memory. Host backend: no difference. */
#define SYMM_MEMPLAN_HOLD 4u

/* Sets `bytes` of memory (rounded up to the granularity) on each rank apart for the lane's graphs. Captures whose first call on the lane comes after
 * it, and plans of symmMemPlanCreate with SYMM_MEMPLAN_ALIAS, have SYM addresses that no other graph has, over this memory: one byte of it is under
 * as many addresses as there are such graphs. So pointers of two graphs are never equal, and they need no more memory than the largest.
 *  - They must not run at the same time, as always on one lane; what one leaves allocated keeps others off the same memory.
 *  - The own part is there while capturing; what is under a peer's address (symmRefPtr) comes with symmMemPlanUpload. Collectives use it in place.
 *  - What does not fit: symmNeedGrow, as the memory does not grow: call this again and capture anew. No addresses left: symmOutOfMemory.
 *  - LOCAL blocks and SYMM_ALLOC_KEEP lie where they lie without it.
 *  - Captures are the same on all ranks, as with any SYM block.
 * Again: other memory for later captures; plans keep what they have. bytes 0: later captures are as before. Memory goes with its last plan, and
 * addresses when the plan is destroyed and its graph gone on all ranks, at a symmHeapCollect. symmHeapTrim does not
 * take it; symmLaneTrimGraphMem does while no block in it is allocated and all captures over it are bound: it goes at
 * the next symmHeapCollect, and the plans need symmMemPlanUpload before their next launch, which makes it again.
 * On all ranks or on none. [collective] */
SYMM_API symmResult_t symmLaneAlias(symmLane_t lane, size_t bytes);

/* The plan of what was captured on this lane, once the capture has ended. graph: host backend the symmGraph_t, GPUs the cudaGraph_t.
 * Without it the graph works all the same, but its launches are not checked:
 *  - It holds its memory until it is gone, for SYM of several ranks until a symmHeapCollect finds it gone on
 *    all of them; then symmLaneTrimGraphMem gives that back.
 *  - A block that it leaves is freed as any block. Its destruction frees none: such a block holds the graph's
 *    memory until it is freed. Host backend: launches are counted, a free without a launch is refused. GPUs:
 *    CUDA tells of no launch, so every free is believed, and after the first one the block counts as freed;
 *    a graph that is launched again after that is to be bound.
 * symmInvalidArgument: the lane has no call in the graph (of several lanes that have, any one will do).
 * SYMM_MEMPLAN_ALIAS must stand there if the capture found symmLaneAlias's memory, and only
 * then (symmInvalidUsage); such a graph must not be launched at all before symmMemPlanUpload. [local, same order on all ranks] */
SYMM_API symmResult_t symmMemPlanBind(symmLane_t lane, symmGraph_t graph, unsigned flags,
                                      symmMemPlan_t *plan);
/* A plan without a capture, for explicit nodes. graph: GPUs the cudaGraph_t that gets the nodes; host backend NULL. [local, same order on all
 * ranks] */
SYMM_API symmResult_t symmMemPlanCreate(symmLane_t lane, symmGraph_t graph, unsigned flags,
                                        symmMemPlan_t *plan);
/* Launches exec (host backend: the graph; GPUs: a cudaGraphExec_t of it) behind the lane's last launch, on whatever stream that was, and in
 * issue order with the communicator's calls where the graph holds any, barriers of SYM blocks included. Not on CUDA's per-thread stream, as
 * lanes are not (symmInvalidArgument): another thread could not be put behind it. exec NULL: only notes the launch.
 * symmInvalidArgument, host backend: exec is not the plan's graph, nor one that this has become a part of; or, for a plan of explicit nodes,
 * it is another plan's. GPUs: CUDA does not say of which graph an executable was made, so that is the program's to keep.
 * Blocks that the last launch left allocated: symmInvalidUsage naming one, unless SYMM_MEMPLAN_AUTO_FREE; so do blocks of other
 * graphs that are allocated where this one has its own, and SYMM_MEMPLAN_ALIAS before its upload. [local; with SYM blocks same on all ranks] */
SYMM_API symmResult_t symmMemPlanLaunch(symmMemPlan_t plan, symmGraphExec_t exec,
                                        symmStream_t stream);
/* What a first launch would do besides running. The addresses are mapped since the heap has grown, so it is the driver's own upload. [local]
 * SYMM_MEMPLAN_ALIAS: maps the memory of every rank behind the plan's addresses on every rank, or on none; then the driver's upload, unless exec is NULL.
 * Where all of it is mapped already (no node was added since), no message is sent. symmMismatch: the ranks mean other plans. [collective] */
SYMM_API symmResult_t symmMemPlanUpload(symmMemPlan_t plan, symmGraphExec_t exec,
                                        symmStream_t stream);
/* Ends the record. Frees no block: those that are allocated stay so until they are freed; the graph keeps its memory as long as it lives. Where no lane
 * of the heap is left it may wait for work on such blocks. [local, same order on all ranks] */
SYMM_API symmResult_t symmMemPlanDestroy(symmMemPlan_t plan);

typedef struct {
    size_t size; /* sizeof(symmAllocNode_t) of the caller */
    uint64_t bytes;
    unsigned flags;   /* SYMM_ALLOC_* */
    int nranks;       /* length of ranks; 0: every rank may access */
    const int *ranks; /* who may access the block beside this rank; copied */
} symmAllocNode_t;
/* Nodes of a plan made by symmMemPlanCreate. deps: nodes that come before, of the same graph; *ptr is known at once. SYM blocks are not placed where
 * others have ended, as the plan knows of no collective between. [local, same order on all ranks] */
SYMM_API symmResult_t symmMemPlanAddAllocNode(symmMemPlan_t plan, const symmGraphNode_t *deps,
                                              int ndeps, const symmAllocNode_t *params,
                                              symmGraphNode_t *node, void **ptr);
/* ptr: of this plan, with an alloc node among what comes before; or a block that outlives its own graph. Of a block that the last launch has left the
 * node changes nothing: it is freed before the next launch, and the node frees those of later ones. Both calls are calls on SYM if the block is:
 * ranks that differ in them are told (symm_heap.h). [local, same order on all ranks] */
SYMM_API symmResult_t symmMemPlanAddFreeNode(symmMemPlan_t plan, const symmGraphNode_t *deps,
                                             int ndeps, void *ptr, symmGraphNode_t *node);
/* A node that only orders: on the host backend it stands for the program's work. */
SYMM_API symmResult_t symmMemPlanAddOrderNode(symmMemPlan_t plan, const symmGraphNode_t *deps,
                                              int ndeps, symmGraphNode_t *node);

/* Which ranks may access the blocks that this lane captures from now on; nranks 0: every one. Blocks that were captured keep what they have.
 * A rank that is not listed is refused by symmRefPtr (symm_heap.h); its own memory is always its own. Not a protection: the memory is mapped
 * for all ranks, and who computes addresses reaches it. Graphs of a lane share bytes: there it is whoever one of them allows. [local] */
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
SYMM_API symmResult_t symmLaneGetGraphMem(symmLane_t lane, int attr, size_t *value);
/* The two highs only, and to 0 only, which makes them what is current. [local] */
SYMM_API symmResult_t symmLaneSetGraphMem(symmLane_t lane, int attr, size_t value);
/* Gives back what lies under no plan's and no allocated block; what is SYM, or under graphs that still live, at a later symmHeapCollect. Memory
 * of symmLaneAlias too, see there. Waits for the graphs' launches, and for what used blocks that they had left and the program has freed. symmInvalidUsage: a
 * stream of such a launch is under capture. *freed (may be NULL): bytes that left SYMM_GRAPH_MEM_RESERVED. [local, same order on all ranks] */
SYMM_API symmResult_t symmLaneTrimGraphMem(symmLane_t lane, size_t *freed);

typedef struct {
    size_t size;   /* in: sizeof(symmMemSupport_t) of the caller */
    int driver;    /* of CUDA, as it counts (12040 is 12.4); 0: none, or too old to be used */
    int lanes;     /* symmLaneAlloc */
    int graphs;    /* captured */
    int nodes;     /* explicit nodes */
    int alias;     /* SYMM_MEMPLAN_ALIAS */
    char why[128]; /* of the first 0 above */
} symmMemSupport_t;
/* What this machine's backend can do; never an error for an old driver or none. [local, any thread] */
SYMM_API symmResult_t symmMemQuerySupport(symmMemSupport_t *support);

#ifdef __cplusplus
}
#endif
#endif
