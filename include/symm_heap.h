/* symm_heap.h - a symmetric heap: memory that all ranks of a communicator reach, and out of which every other memory object is made.
 *
 * A heap is one growable window: addr(rank, off) = base + rank*stride + off, for every byte of it, in every process. Two zones:
 *  - SYM grows up from offset 0. Its offsets are equal on all ranks: placement depends on nothing but the order of the calls, which every
 *    rank makes alike (size, alignment and flags equal). No message is sent. Ranks that do not keep to that are told so, with the first
 *    call that differs, at the communicator's next collective, by symmHeapCheck, or at the next call below that is collective.
 *  - LOCAL grows down from the end. Every rank allocates there as it likes; peers reach a block through a symmRef_t that they were sent.
 * Memory of a heap is registered memory: collectives use it in place.
 *
 * Thread rule: symmHeapAlloc and symmHeapFree of LOCAL blocks may be called by any thread. All else of a heap counts as use of its
 * communicator: one thread at a time.
 * Conventions as in symm.h. */
#ifndef SYMM_HEAP_H_
#define SYMM_HEAP_H_

#include "symm.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct symmHeap *symmHeap_t;

enum {
    SYMM_FIT_FIRST = 0,
    SYMM_FIT_BEST = 1
}; /* lowest address that fits; smallest hole that fits */

/* Start from SYMM_HEAP_CONFIG_INITIALIZER. Equal on all ranks but for localBytes and name. */
typedef struct {
    size_t size;      /* sizeof(symmHeapConfig_t) of the caller */
    uint32_t version; /* SYMM_VERSION_CODE of the caller */
    int32_t fit;      /* SYMM_FIT_* */
    uint64_t
        reserve; /* addresses for both zones together; what the heap can grow to. 0: a quarter of the window space */
    uint64_t symBytes;   /* memory behind SYM at creation */
    uint64_t localBytes; /* memory behind LOCAL at creation, of this rank */
    uint64_t
        chunk; /* memory comes in pieces of at most this size, a multiple of the granularity; 0: 64 MiB */
    int32_t
        guard; /* 1: poison freed blocks, check red zones, in arenas, lanes and graphs too (symm_arena.h, symm_lane.h); SYMM_HEAP_GUARD=1 does so for all heaps */
    int32_t pad;
    const char *name; /* copied; shown in errors and dumps */
} symmHeapConfig_t;
#define SYMM_HEAP_CONFIG_INITIALIZER \
    { sizeof(symmHeapConfig_t), SYMM_VERSION_CODE, SYMM_FIT_FIRST, 0, 0, 0, 0, 0, 0, NULL }

/* config NULL: an empty heap of the default reserve. [collective] */
SYMM_API symmResult_t symmHeapCreate(symmComm_t comm, const symmHeapConfig_t *config,
                                     symmHeap_t *heap);
/* Ends the heap here; blocks that are still allocated go with it. Waits for no peer; the caller's own work on it must have ended.
 * Memory is freed as that of a deregistered window (symmWindowDeregister). symmCommDestroy does it for heaps that are left. [local] */
SYMM_API symmResult_t symmHeapDestroy(symmHeap_t heap);

/* Puts more memory behind the zones: symBytes (equal on all ranks) and localBytes (of this rank), rounded up to the granularity. Nothing
 * moves, nothing is copied. On all ranks or on none. symmOutOfMemory: no memory on some rank, or no addresses left. [collective] */
SYMM_API symmResult_t symmHeapGrow(symmHeap_t heap, size_t symBytes, size_t localBytes);
/* Gives back memory that no block uses, whole chunks, from the top of SYM and from the bottom of LOCAL first, until at most `keep` bytes
 * lie behind each zone; chunks in use are skipped, and counted (symSkipped and localSkipped of symmHeapInfo_t). *freed (may be NULL): bytes of this
 * rank. The ranks' work on the heap must have ended. [collective] */
SYMM_API symmResult_t symmHeapTrim(symmHeap_t heap, size_t keep, size_t *freed);
/* Returns to SYM what was freed where the ranks have no common order (by graphs that are gone): as much as every rank has. Lets go
 * of captures' memory that was never bound to a plan (symm_lane.h), where every rank's graph is gone. It waits for this rank's work
 * on blocks that graphs had left and the program has freed (symmLaneFree); addresses of graphs' own (symmLaneAlias) that every rank is done with
 * are unmapped. [collective] */
SYMM_API symmResult_t symmHeapCollect(symmHeap_t heap);
/* symmMismatch on every rank, naming sequence, sizes and call site of the first call on SYM that differs, if one does; of a call of long ago, between which
 * calls it lies. Then the same for the stripes of symmetric arenas (symm_arena.h), naming one: no thread uses them meanwhile. In guard mode all red
 * zones and all free memory are looked at too, also inside arenas, and those of lanes if their streams come within a second to what they were given
 * (symmInvalidUsage: damage); other threads may allocate and free LOCAL blocks meanwhile. [collective] */
SYMM_API symmResult_t symmHeapCheck(symmHeap_t heap);

#define SYMM_ALLOC_SYM   0u /* equal offsets on all ranks; every rank makes the same call */
#define SYMM_ALLOC_LOCAL 1u /* this rank's alone */
/* Uninitialised memory. align: 0 (256) or a power of two up to the granularity. bytes 0: *ptr = NULL. symmNeedGrow where memory behind
 * the zone does not hold it and growing might; symmOutOfMemory where growing could not help either. Guard mode: as symmHeapFree poisons this rank's part of a SYM
 * block, and symmHeapAlloc looks at it, a peer writes there only when this rank has made the call too. A block takes 256 bytes more of its zone,
 * so a zone of just the memory that a program needs must be larger there. [local] */
SYMM_API symmResult_t symmHeapAlloc(symmHeap_t heap, size_t bytes, size_t align, unsigned flags,
                                    void **ptr);
/* A pointer that symmHeapAlloc gave; NULL is a no-op. The caller's work on it, and for SYM blocks the peers', must have ended. A pointer that is
 * not the beginning of a block of this heap (freed already, inside one, foreign): symmInvalidArgument saying which. [local] */
SYMM_API symmResult_t symmHeapFree(symmHeap_t heap, void *ptr);

/* Names bytes of a heap in a message to a peer. Plain data, 24 bytes. */
typedef struct {
    uint64_t off; /* from the beginning of the heap */
    uint64_t len;
    uint32_t heap; /* equal on all ranks for one heap */
    int16_t rank;  /* owner */
    uint16_t
        flags; /* SYMM_ALLOC_* of the block; above its 8 bits the number of an access list (symmLaneSetAccess), 0 none */
} symmRef_t;
#define SYMM_REF_OWNER (-1)
/* ptr: any byte of a block of a heap of this process; the reference reaches from there to the end of the block.
 * symmOutOfMemory: the block has an access list, and references of this rank to the heap name 128 other ones. [local] */
SYMM_API symmResult_t symmRefGet(const void *ptr, symmRef_t *ref);
/* Where this process reaches what ref names, on `rank` (SYMM_REF_OWNER, or for SYM blocks any rank). Maps nothing, sends nothing. comm: that of the
 * heap. symmInvalidArgument: bytes outside the heap's addresses, or (len not 0) without memory; or the block has an access list, this rank is not
 * in it, and `rank` is another one. [local] */
SYMM_API symmResult_t symmRefPtr(const symmRef_t *ref, symmComm_t comm, int rank, void **ptr);

typedef struct {
    size_t size; /* in: sizeof(symmMemInfo_t) of the caller */
    symmHeap_t heap;
    void *block; /* beginning and size of the block that holds the address */
    uint64_t bytes;
    uint64_t offset; /* of the block in the heap */
    int owner;       /* rank; this one's own blocks only are known */
    int symmetric;   /* 1: SYM */
    int lane;        /* ordinal of the lane it was allocated on, -1 none */
    int pad;
} symmMemInfo_t;
SYMM_API symmResult_t symmMemQuery(const void *ptr, symmMemInfo_t *info); /* [local] */

typedef struct {
    size_t size;           /* in: sizeof(symmHeapInfo_t) of the caller */
    uint64_t base, stride; /* addr(rank, off) = base + rank*stride + off, off from 0 */
    uint64_t reserve;
    uint64_t symBytes, localBytes; /* memory behind the zones, of this rank */
    uint64_t symUsed, localUsed;   /* in blocks, as requested and rounded to the placement's unit */
    uint64_t symPeak, localPeak;   /* most used so far */
    uint64_t symLargest, localLargest; /* largest free piece */
    uint64_t blocks, chunks;
    uint64_t limbo;                    /* bytes that wait for symmHeapCollect */
    uint64_t calls;                    /* calls on SYM so far; equal on all ranks */
    uint64_t digest;                   /* of them */
    uint64_t symSkipped, localSkipped; /* bytes of chunks that the last symmHeapTrim found in use */
} symmHeapInfo_t;
SYMM_API symmResult_t symmHeapQuery(symmHeap_t heap, symmHeapInfo_t *info); /* [local] */

enum { SYMM_DUMP_TEXT = 0, SYMM_DUMP_SVG = 1, SYMM_DUMP_JSON = 2 };
/* A map of the heap, for people: zones, chunks, blocks, holes. Written to fd. [local] */
SYMM_API symmResult_t symmHeapDump(symmHeap_t heap, int fd, int format);

/* Makes the window longer: [buff, buff+size) of every rank, where the memory behind its first bytes is what the window has now. What is mapped stays
 * mapped; the new segments are mapped behind it, or, where addresses there are taken, all of them at another offset (peers' pointers change
 * then: symmWindowQuery, symmWindowPeerPtr). Nothing is copied. On all ranks or on none. [collective] */

#ifdef __cplusplus
}
#endif
#endif
