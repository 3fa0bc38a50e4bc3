/* symm_arena.h - an arena: many blocks of all sizes out of a heap, for many threads and streams.
 *
 * Each thread (for work of the NULL stream) and each stream has a sub-arena with superblocks of its
 * own. Superblocks come from the arena's global part, which takes its memory from the heap, and go
 * back to it when they are empty. Small blocks that a thread frees are kept for its next calls:
 * about 256 KiB, of which goes back what the thread's last 2,048 frees of such blocks did not need.
 * A call that finds no memory takes it from all threads. A block larger than 32 KiB and than half a
 * superblock comes from the global part directly. Where a block lies: `fit` of the config.
 *
 * Stream order. A block may be freed as soon as the last work on it was given to `stream`, and may
 * be handed out at once to later work of the same stream. Where memory goes to another stream, that
 * one waits for the point of the free, in stream order: nobody synchronises, and no stream is asked
 * how far it is. The NULL stream of the host backend is the caller itself: there allocation waits.
 * In a function that a stream runs, which must not wait, it gets other memory instead.
 * CUDA's per-thread default stream is refused (symmInvalidArgument), because it is another stream
 * in each thread; NULL is the legacy stream, however the program was compiled.
 *
 * Symmetric arenas (SYMM_ARENA_SYM) have stripes in place of threads and streams. Stripe i owns
 * superblocks i, i+K, i+2K... of one block of SYM memory. Offsets on a stripe depend only on the
 * calls on that stripe: threads that each use a stripe of their own, alike on all ranks, get equal
 * offsets whatever their timing. No message is sent. With several stripes a block is no larger than
 * a superblock. Ranks whose calls on a stripe differ (frees count) are told by symmHeapCheck, with
 * arena, stripe and the number of calls of each; by symmHeapGrow, symmHeapTrim and symmHeapCollect
 * if the ranks have made as many. Threads may use stripes during those three, but not during
 * symmHeapCheck, before which all ranks have made the same calls.
 *
 * See also, in docs/memory-arena.md: what the limit promises, and SYMM_ARENA_LATE. Guard mode:
 * docs/memory-guard.md.
 *
 * Threads: any thread may make any call, beside others, except create and destroy. Calls on one
 * stripe come in one order on all ranks. Conventions as in symm.h. */
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
    SYMM_ARENA_LATE = 4  /* GPUs: no events as long as one stream is alone: docs/memory-arena.md */
};

/* Start from SYMM_ARENA_CONFIG_INITIALIZER. */
typedef struct {
    size_t size;      /* sizeof(symmArenaConfig_t) of the caller */
    uint32_t version; /* SYMM_VERSION_CODE of the caller; not looked at yet */
    uint32_t flags;   /* SYMM_ARENA_* */
    /* The limit: most that it takes from the heap; 0: half of what is free in the zone. LOCAL: more
     * than the heap has addresses for is as much as that. SYM: taken at creation. */
    uint64_t bytes;
    /* A power of two from 16 KiB to 1 MiB (RMM's), at most the granularity; 0: 16 KiB. */
    uint64_t superblock;
    /* LOCAL: taken from the heap at a time, a multiple of the superblock; 0: 2 MiB. */
    uint64_t piece;
    int32_t stripes; /* SYM: at least 1 */
    /* SYMM_FIT_BEST: a thread's blocks lie at the lowest address that fits in its superblocks, a
     * stream's in the smallest hole that fits, of these the lowest. SYMM_FIT_FIRST: all blocks lie
     * at the lowest address that fits in their thread's or stream's superblocks, small ones too;
     * threads keep nothing for their next calls, and streams take the lowest free superblock.
     * Neighbours are joined when they are freed. */
    int32_t fit;
    const char *name; /* copied; shown in errors and dumps */
} symmArenaConfig_t;
#define SYMM_ARENA_CONFIG_INITIALIZER                                                              \
    {                                                                                              \
        sizeof(symmArenaConfig_t), SYMM_VERSION_CODE, SYMM_ARENA_LOCAL, 0, 0, 0, 1, SYMM_FIT_BEST, \
            NULL                                                                                   \
    }

/* ---- life ------------------------------------------------------------------------------------ */

/* Makes an arena over a heap. config NULL: LOCAL with defaults.
 * Order: LOCAL: local. SYM: local, same order on all ranks, as a call on SYM.
 * Errors: symmNeedGrow: the zone has no room for its stripes. */
SYMM_API symmResult_t symmArenaCreate(symmHeap_t heap, const symmArenaConfig_t *config,
                                      symmArena_t *arena);
/* Ends it. All memory goes back to the heap, blocks too.
 * Requires: work on it has ended, and no other call on it runs.
 * Order: as symmArenaCreate. */
SYMM_API symmResult_t symmArenaDestroy(symmArena_t arena);

/* ---- blocks ---------------------------------------------------------------------------------- */

/* Allocates memory for work of `stream`. align: 0 (256) or a power of two up to the granularity.
 * bytes 0: *ptr = NULL. SYM: stream NULL, and the arena has one stripe.
 * Order: LOCAL: local, any thread. SYM: local, same order on all ranks.
 * Errors: symmNeedGrow: the heap has not the memory, and growing it might help. symmOutOfMemory:
 * the arena's limit, or more than the heap can ever hold. symmInvalidUsage: the stream is captured
 * (take a lane there, symm_lane.h). */
SYMM_API symmResult_t symmArenaAlloc(symmArena_t arena, size_t bytes, size_t align,
                                     symmStream_t stream, void **ptr);
/* As symmArenaAlloc, from a stripe of a SYM arena.
 * Order: local, same order on all ranks for each stripe; any thread. */
SYMM_API symmResult_t symmArenaAllocOn(symmArena_t arena, int stripe, size_t bytes, size_t align,
                                       void **ptr);
/* Frees what this arena gave, from any thread, on any stream. NULL: nothing.
 * Requires: the last work on the block was given to `stream`. SYM: the caller's work on it, and the
 * peers', has ended.
 * Order: as the block's allocation.
 * Errors: symmInvalidArgument: ptr does not begin a block of it; says which (freed already, inside
 * a block, foreign). symmInvalidUsage: the stream is captured; or guard mode: somebody wrote behind
 * the block, which is freed all the same. */
SYMM_API symmResult_t symmArenaFree(symmArena_t arena, void *ptr, symmStream_t stream);

/* ---- giving back ----------------------------------------------------------------------------- */

/* Says that no thread gives work to this stream any more: its superblocks are then for others.
 * Streams of the host backend, and threads, that have ended are noticed without it.
 * Requires, on GPUs: called before the stream is destroyed.
 * Order: local, any thread. */
SYMM_API symmResult_t symmArenaEndStream(symmArena_t arena, symmStream_t stream);
/* Gives memory back: threads keep nothing for their next calls, empty superblocks go to the global
 * part, and superblocks in which no block lies go to the heap, unless work may still use them.
 * *freed (may be NULL): bytes. SYM: nothing, 0.
 * Order: local, any thread. */
SYMM_API symmResult_t symmArenaTrim(symmArena_t arena, size_t *freed);

/* ---- questions ------------------------------------------------------------------------------- */

typedef struct {
    size_t size;
    symmHeap_t heap;
    uint64_t limit;    /* most that it takes from the heap */
    uint64_t held;     /* taken from the heap; in guard mode it may be more than limit */
    uint64_t heldPeak; /* most so far */
    uint64_t assigned; /* of held: in superblocks of sub-arenas, and in large blocks */
    /* Of assigned: in blocks that live, rounded to 256, without guard mode's red zones. What was
     * freed does not count, on whatever stream. */
    uint64_t used;
    uint64_t cached;                   /* freed, kept by threads for their next calls */
    uint64_t largest;                  /* largest free piece of the global part */
    uint64_t superblocks;              /* how many */
    uint64_t largeBlocks;              /* how many come from the global part directly */
    uint64_t superblock;               /* bytes of one */
    int32_t threads, streams, stripes; /* sub-arenas */
    int32_t ended;                     /* those of threads and streams that are gone, with blocks */
    uint64_t waits;                    /* of one stream for another's free */
} symmArenaInfo_t;
/* Sizes and counts. Order: local, any thread. */
SYMM_API symmResult_t symmArenaQuery(symmArena_t arena, symmArenaInfo_t *info);
/* *equal: 1 if memory of the one may be freed in the other: they are the same.
 * Order: local, any thread. */
SYMM_API symmResult_t symmArenaEqual(symmArena_t a, symmArena_t b, int *equal);
/* Writes a table to fd, for people: the arena, its sub-arenas, each superblock.
 * Order: local, any thread. */
SYMM_API symmResult_t symmArenaDump(symmArena_t arena, int fd);

#ifdef __cplusplus
}
#endif
#endif
