/* symm_heap.h - a symmetric heap: memory that all ranks of a communicator reach. Every other memory
 * object is made of one.
 *
 * A heap is one growable window. Every byte of it is at base + rank*stride + off in every process,
 * and collectives use it in place. It has two zones:
 *  - SYM grows up from offset 0. Its offsets are equal on all ranks, because placement depends only
 *    on the order of the calls on SYM, which every rank makes alike (equal size, alignment and
 *    flags). No message is sent. Ranks whose calls differ are told, with the first call that
 *    differs: at the communicator's next collective, by symmHeapCheck, or by the next call below
 *    that is collective.
 *  - LOCAL grows down from the end. Every rank allocates there as it likes. Peers reach a block
 *    through a symmRef_t that they were sent.
 *
 * Guard mode (`guard` of the config, or SYMM_HEAP_GUARD=1 for all heaps) finds writes behind a
 * block and after its free; what it asks of a program: docs/memory-guard.md.
 *
 * Threads: symmHeapAlloc and symmHeapFree of LOCAL blocks may be called by any thread. All other
 * calls count as use of the communicator: threads take turns. Conventions as in symm.h. */
#ifndef SYMM_HEAP_H_
#define SYMM_HEAP_H_

#include "symm.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct symmHeap *symmHeap_t;

/* ---- life ------------------------------------------------------------------------------------ */

/* Which free place a block gets. */
enum {
    SYMM_FIT_FIRST = 0, /* the lowest address that fits */
    SYMM_FIT_BEST = 1   /* the smallest hole that fits */
};

/* Start from SYMM_HEAP_CONFIG_INITIALIZER. Equal on all ranks except localBytes and name. */
typedef struct {
    size_t size;      /* sizeof(symmHeapConfig_t) of the caller */
    uint32_t version; /* SYMM_VERSION_CODE of the caller; not looked at yet */
    int32_t fit;      /* SYMM_FIT_* */
    /* Addresses of both zones together: what the heap can grow to. 0: a quarter of the window
     * space (SYMM_WIN_STRIDE); a fourth such heap does not fit. */
    uint64_t reserve;
    uint64_t symBytes;   /* memory behind SYM at creation */
    uint64_t localBytes; /* memory behind LOCAL at creation, of this rank */
    /* Memory comes in pieces of at most this size, a multiple of the granularity; 0: 64 MiB. */
    uint64_t chunk;
    int32_t guard; /* 1: guard mode, in arenas, lanes and graphs of the heap too */
    int32_t pad;
    const char *name; /* copied; shown in errors and dumps */
} symmHeapConfig_t;
#define SYMM_HEAP_CONFIG_INITIALIZER \
    { sizeof(symmHeapConfig_t), SYMM_VERSION_CODE, SYMM_FIT_FIRST, 0, 0, 0, 0, 0, 0, NULL }

/* Makes a heap. config NULL: an empty heap of the default reserve.
 * Order: collective.
 * Errors: symmMismatch: ranks differ in what must be equal (both are shown). symmOutOfMemory: no
 * memory on some rank, or not so many addresses are left (SYMM_WIN_STRIDE). */
SYMM_API symmResult_t symmHeapCreate(symmComm_t comm, const symmHeapConfig_t *config,
                                     symmHeap_t *heap);
/* Ends the heap here, with the blocks that are still allocated. Waits for no peer. Its memory is
 * freed as that of a deregistered window (symmWindowDeregister). symmCommDestroy ends the heaps
 * that are left.
 * Requires: the caller's own work on the heap has ended.
 * Order: local. */
SYMM_API symmResult_t symmHeapDestroy(symmHeap_t heap);

/* ---- memory behind the zones ----------------------------------------------------------------- */

/* Puts more memory behind the zones: symBytes (equal on all ranks) and localBytes (of this rank),
 * rounded up to the granularity. Nothing moves, nothing is copied. On all ranks or on none.
 * Order: collective.
 * Errors: symmOutOfMemory: no memory on some rank, or no addresses left. symmMismatch: ranks differ
 * in symBytes, or in their calls on SYM. */
SYMM_API symmResult_t symmHeapGrow(symmHeap_t heap, size_t symBytes, size_t localBytes);
/* Gives back memory that no block uses, in whole chunks, until at most `keep` bytes lie behind each
 * zone: from the top of SYM and from the bottom of LOCAL first. Chunks in use are skipped and
 * counted (symSkipped and localSkipped of symmHeapInfo_t). *freed (may be NULL): bytes, of this
 * rank.
 * Requires: the ranks' work on the heap has ended.
 * Order: collective.
 * Errors: symmMismatch: ranks differ in keep, or in their calls on SYM. */
SYMM_API symmResult_t symmHeapTrim(symmHeap_t heap, size_t keep, size_t *freed);
/* Gives back to SYM what was freed where the ranks have no common order (by graphs that are gone):
 * as much as every rank has. Also lets go, where every rank is done with them, of captures' memory
 * that was never bound to a plan (symm_lane.h) and whose graph is gone, and of the addresses of
 * graphs' own (symmLaneAlias). Waits for this rank's work on blocks that graphs had left and the
 * program has freed (symmLaneFree).
 * Order: collective.
 * Errors: symmMismatch: ranks differ in their calls on SYM. */
SYMM_API symmResult_t symmHeapCollect(symmHeap_t heap);
/* Compares the ranks' calls on SYM, then those on the stripes of symmetric arenas (symm_arena.h).
 * In guard mode it also looks at all red zones and all free memory, inside arenas too, and at those
 * of lanes whose streams come within a second to what they were given.
 * Requires: no thread uses stripes meanwhile. Other threads may allocate and free LOCAL blocks.
 * Order: collective.
 * Errors: symmMismatch on every rank: names sequence, sizes and call site of the first call that
 * differs (of a call of long ago, between which calls it lies), or one stripe. symmInvalidUsage:
 * guard mode found damage. */
SYMM_API symmResult_t symmHeapCheck(symmHeap_t heap);

/* ---- blocks ---------------------------------------------------------------------------------- */

#define SYMM_ALLOC_SYM   0u /* equal offsets on all ranks; every rank makes the same call */
#define SYMM_ALLOC_LOCAL 1u /* this rank's alone */
/* Allocates uninitialised memory. align: 0 (256) or a power of two up to the granularity. flags:
 * one of the above. bytes 0: *ptr = NULL.
 * Requires: in guard mode a peer writes to this rank's part of a SYM block only when this rank has
 * made the call too; a block takes 256 bytes more of its zone.
 * Order: SYM: local, same order on all ranks. LOCAL: local, any thread.
 * Errors: symmNeedGrow: the memory behind the zone does not hold it, and growing might help.
 * symmOutOfMemory: growing could not help either. */
SYMM_API symmResult_t symmHeapAlloc(symmHeap_t heap, size_t bytes, size_t align, unsigned flags,
                                    void **ptr);
/* Frees what symmHeapAlloc gave. NULL: nothing.
 * Requires: the caller's work on the block has ended, and for SYM the peers' too.
 * Order: as symmHeapAlloc of that block.
 * Errors: symmInvalidArgument: ptr does not begin a block of this heap; says which (freed already,
 * inside a block, foreign). symmInvalidUsage: guard mode: somebody wrote behind the block, which is
 * freed all the same. */
SYMM_API symmResult_t symmHeapFree(symmHeap_t heap, void *ptr);

/* ---- references and questions ---------------------------------------------------------------- */

/* Names bytes of a heap in a message to a peer. Plain data, 24 bytes. */
typedef struct {
    uint64_t off;   /* from the beginning of the heap */
    uint64_t len;   /* bytes */
    uint32_t heap;  /* equal on all ranks for one heap */
    int16_t rank;   /* owner */
    uint16_t flags; /* low 8 bits: SYMM_ALLOC_*; above: access list (symmLaneSetAccess), 0 none */
} symmRef_t;
#define SYMM_REF_OWNER (-1)
/* Names memory from ptr to the end of its block. ptr: any byte of a block of this process's heaps.
 * Order: local.
 * Errors: symmOutOfMemory: the block has an access list, and references of this rank to the heap
 * name 128 other ones. */
SYMM_API symmResult_t symmRefGet(const void *ptr, symmRef_t *ref);
/* Where this process reaches what ref names, on `rank`: SYMM_REF_OWNER, or for SYM blocks any rank.
 * Maps nothing, sends nothing. comm: that of the heap.
 * Order: local.
 * Errors: symmInvalidArgument: bytes outside the heap's addresses, or (len not 0) without memory;
 * the block has an access list without this rank, and `rank` is another one. */
SYMM_API symmResult_t symmRefPtr(const symmRef_t *ref, symmComm_t comm, int rank, void **ptr);

typedef struct {
    size_t size;
    symmHeap_t heap;
    void *block;     /* beginning of the block that holds the address */
    uint64_t bytes;  /* its size */
    uint64_t offset; /* of the block in the heap */
    int owner;       /* rank; only this rank's own blocks are known */
    int symmetric;   /* 1: SYM */
    int lane;        /* ordinal of the lane it was allocated on, -1 none */
    int pad;
} symmMemInfo_t;
/* Which block an address lies in. Order: local. */
SYMM_API symmResult_t symmMemQuery(const void *ptr, symmMemInfo_t *info);

typedef struct {
    size_t size;
    uint64_t base, stride;             /* addr(rank, off) = base + rank*stride + off, off from 0 */
    uint64_t reserve;                  /* addresses of both zones */
    uint64_t symBytes, localBytes;     /* memory behind the zones, of this rank */
    uint64_t symUsed, localUsed;       /* in blocks, rounded to the placement's unit */
    uint64_t symPeak, localPeak;       /* most used so far */
    uint64_t symLargest, localLargest; /* largest free piece */
    uint64_t blocks, chunks;           /* how many */
    uint64_t uncollected;              /* bytes that wait for symmHeapCollect */
    uint64_t calls;                    /* calls on SYM so far; equal on all ranks */
    uint64_t digest;                   /* of them */
    uint64_t symSkipped, localSkipped; /* bytes of chunks that the last symmHeapTrim found in use */
} symmHeapInfo_t;
/* Sizes and counts of a heap. Order: local. */
SYMM_API symmResult_t symmHeapQuery(symmHeap_t heap, symmHeapInfo_t *info);

enum { SYMM_DUMP_TEXT = 0, SYMM_DUMP_JSON = 1 };
/* Writes to fd what is in the heap: zones, chunks, blocks, holes. format: SYMM_DUMP_TEXT for
 * people, SYMM_DUMP_JSON for programs. `symm-info --map FILE --svg FILE` draws the JSON.
 * Order: local. */
SYMM_API symmResult_t symmHeapDump(symmHeap_t heap, int fd, int format);

#ifdef __cplusplus
}
#endif
#endif
