/* symm_arena.h - an arena: many blocks of all sizes out of a heap, for many threads and streams at once.
 *
 * Each thread (for work of the NULL stream) and each stream has a sub-arena: superblocks of its own, blocks in them at the lowest address
 * that fits (of a stream: in the smallest hole that fits, of these the lowest), neighbours joined when freed. Superblocks come from the arena's global part and go back to it when empty; the global
 * part takes its memory from the heap. Small blocks that a thread frees are kept for its next calls: about 256 KiB, and what its last
 * 2,048 frees of such blocks did not need goes back. A call that finds no memory takes it from all threads. Blocks larger than 32 KiB and than half
 * a superblock come from the global part directly.
 *
 * Stream order. A block may be freed as soon as the last work on it was given to `stream`; what is freed so may be handed out at once to
 * later work of the same stream. Where memory goes to another stream, that one waits for the point of the free, in stream order: nobody
 * synchronises, and no stream is asked how far it is. The NULL stream of the host backend is the caller itself: there alloc waits.
 * CUDA's per-thread default stream is refused (symmInvalidArgument), for it is another stream in each thread; NULL is the
 * legacy stream, however the program was compiled.
 * GPUs: a free of a large block records an event. With SYMM_ARENA_LATE, as long as one stream alone has used the arena, it makes no call of the
 * driver but one question; when a second stream makes its first call, what was freed until then gets the point at which the first one is in
 * that moment. So with that flag a stream whose work may wait for another's (a kernel or a host function that waits for something which the
 * other one does later) is given such work only when both have made a call.
 *
 * The limit. A LOCAL arena gives what fits into its limit beside what is in use, whatever was taken and
 * freed before: a free piece is extended, and superblocks that nothing uses are changed for others in the
 * heap. The limit counts whole superblocks: one in which a block lies is in use. Live blocks, of the arena
 * or of others, may leave no room in one piece; then the call says symmNeedGrow. Before a call refuses, it
 * waits for the work that streams were given before they freed memory of the arena, unless a capture or a
 * function that a stream runs forbids that.
 *
 * Symmetric arenas (SYMM_ARENA_SYM) have stripes in the place of threads and streams: stripe i owns superblocks i, i+K, i+2K... of one block
 * of SYM memory. Offsets on a stripe depend on the calls on that stripe alone, so threads that each use a stripe of their own, alike on all
 * ranks, get equal offsets whatever their timing. No message is sent. Of several stripes none has a block larger than a superblock.
 * Ranks whose calls on a stripe differ (frees count) are told by symmHeapCheck, with the arena, the stripe and how many calls each has made; and by
 * symmHeapGrow, symmHeapTrim and symmHeapCollect where the ranks have made as many. Threads may use stripes during those three, but not
 * during symmHeapCheck, before which all ranks have made the same calls.
 *
 * Guard mode (of the heap: symm_heap.h). 256 bytes or more behind the last byte of a block that was asked for are painted, and freed blocks are
 * poisoned. symmArenaFree of a block with a painted byte changed: symmInvalidUsage saying which, and the block is freed all the same. A freed byte that is
 * written to is found by symmHeapCheck, or when it is handed out again: that is a warning, and an error of symmHeapCheck from then on. For this
 * symmArenaFree waits for the work that its stream was given: a program whose stream waits for what the same thread does behind the free hangs. Where
 * it cannot wait (the NULL stream while another stream that waits for it is captured; a function that a stream of the host backend runs), or the driver fails to paint, that block is not looked
 * at, nor is any memory between it and others that were freed so, until the arena ends. Each block takes 256 bytes more: of several stripes none has a
 * block larger than a superblock less 256 bytes. Offsets are others than without guard mode, and alike on all ranks.
 * A LOCAL arena's limit does not count them: what fits without guard mode fits with it, if the heap has the memory, and `held` may be more than `limit`.
 * Symmetric arenas: a peer writes to this rank's part of a block only when this rank has taken it too, as with symmHeapAlloc.
 *
 * Thread rule: every call may be made by any thread beside others, but for create and destroy. Calls on one stripe: one order on all ranks.
 * Conventions as in symm.h. */
#ifndef SYMM_ARENA_H_
#define SYMM_ARENA_H_

#include "symm_heap.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct symmArena *symmArena_t;

enum {
    SYMM_ARENA_LOCAL = 0,
    SYMM_ARENA_SYM = 1,  /* equal offsets on all ranks; config equal on all ranks */
    SYMM_ARENA_DUMP = 2, /* a call that finds no memory writes symmArenaDump to stderr */
    SYMM_ARENA_LATE = 4  /* GPUs: no events as long as one stream is alone; see above */
};

/* Start from SYMM_ARENA_CONFIG_INITIALIZER. */
typedef struct {
    size_t size;      /* sizeof(symmArenaConfig_t) of the caller */
    uint32_t version; /* SYMM_VERSION_CODE of the caller */
    uint32_t flags;   /* SYMM_ARENA_* */
    uint64_t
        bytes; /* most that it takes from the heap; 0: half of what is free in the zone. SYM: taken at creation */
    uint64_t
        superblock; /* power of two from 16 KiB to 1 MiB (RMM's), at most the granularity; 0: 16 KiB */
    uint64_t
        piece; /* taken from the heap at a time, a multiple of the superblock; 0: 2 MiB. LOCAL */
    int32_t stripes; /* SYM: at least 1 */
    int32_t
        fit; /* SYMM_FIT_BEST: as above. SYMM_FIT_FIRST: all blocks lie at the lowest address that fits in
                        their thread's or stream's superblocks, small ones and those of streams too; threads keep
                        nothing for their next calls, and streams take the lowest superblock that is free */
    const char *name; /* copied; shown in errors and dumps */
} symmArenaConfig_t;
#define SYMM_ARENA_CONFIG_INITIALIZER                                                              \
    {                                                                                              \
        sizeof(symmArenaConfig_t), SYMM_VERSION_CODE, SYMM_ARENA_LOCAL, 0, 0, 0, 1, SYMM_FIT_BEST, \
            NULL                                                                                   \
    }

/* config NULL: LOCAL with defaults. SYM: every rank makes the same call at the same place among its calls on SYM. [local] */
SYMM_API symmResult_t symmArenaCreate(symmHeap_t heap, const symmArenaConfig_t *config,
                                      symmArena_t *arena);
/* All memory goes back to the heap, blocks too. Work on it must have ended; no other call on it may run. [local] */
SYMM_API symmResult_t symmArenaDestroy(symmArena_t arena);

/* align: 0 (256) or a power of two up to the granularity. bytes 0: *ptr = NULL. symmNeedGrow: the heap has not the memory, and growing it
 * might help; symmOutOfMemory: the arena's limit, or more than the heap can ever hold. SYM: stream NULL, and the arena has one stripe. [local] */
SYMM_API symmResult_t symmArenaAlloc(symmArena_t arena, size_t bytes, size_t align,
                                     symmStream_t stream, void **ptr);
/* SYM: from a stripe. [local] */
SYMM_API symmResult_t symmArenaAllocOn(symmArena_t arena, int stripe, size_t bytes, size_t align,
                                       void **ptr);
/* A pointer that this arena gave; NULL is a no-op. From any thread, on any stream. Freed already, inside a block, foreign:
 * symmInvalidArgument saying which. SYM: the caller's work on it, and the peers', must have ended. [local] */
SYMM_API symmResult_t symmArenaFree(symmArena_t arena, void *ptr, symmStream_t stream);

/* No thread gives work to this stream any more (GPUs: before it is destroyed): its superblocks are for others then. Streams of the host
 * backend and threads that ended are noticed without it. [local] */
SYMM_API symmResult_t symmArenaEndStream(symmArena_t arena, symmStream_t stream);
/* Threads keep nothing for their next calls, empty superblocks go to the global part, and superblocks in which
 * no block lies to the heap, where no work may still use them.
 * *freed (may be NULL): bytes. SYM: nothing, 0. [local] */
SYMM_API symmResult_t symmArenaTrim(symmArena_t arena, size_t *freed);

typedef struct {
    size_t size; /* in: sizeof(symmArenaInfo_t) of the caller */
    symmHeap_t heap;
    uint64_t limit; /* most that it takes from the heap */
    uint64_t held;  /* taken from the heap */
    uint64_t heldPeak;
    uint64_t assigned; /* of these, in superblocks of sub-arenas and in large blocks */
    uint64_t
        used; /* of these, in blocks that live, rounded to 256, without guard mode's red zones; not what
                          was freed, on whatever stream */
    uint64_t cached;  /* freed, kept by threads for their next calls */
    uint64_t largest; /* largest free piece of the global part */
    uint64_t superblocks, largeBlocks;
    uint64_t superblock; /* bytes of one */
    int32_t threads, streams, stripes,
        ended;      /* sub-arenas; ended: of threads and streams that are gone, with blocks left */
    uint64_t waits; /* of one stream for another's free */
} symmArenaInfo_t;
SYMM_API symmResult_t symmArenaQuery(symmArena_t arena, symmArenaInfo_t *info); /* [local] */
/* *equal: 1 where memory of the one may be freed in the other: they are the same. [local] */
SYMM_API symmResult_t symmArenaEqual(symmArena_t a, symmArena_t b, int *equal);
/* A table for people: the arena, its sub-arenas, each superblock. Written to fd. [local] */
SYMM_API symmResult_t symmArenaDump(symmArena_t arena, int fd);

#ifdef __cplusplus
}
#endif
#endif
