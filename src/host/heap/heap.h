/* heap.h - a heap as the objects made of it see it: arenas, lanes, graph plans, vectors and synced
 * buffers take their blocks here. Any thread where the public header says so. The functions take
 * the heap's lock, for one placement, never while waiting or in a driver call. */
#ifndef SYMM_HOST_HEAP_H_
#define SYMM_HOST_HEAP_H_

#include "symm_heap.h"
#include "host/comm/types.h"

typedef struct symm_heap symm_heap;

/* The owner of a block, part of the tag of its placement. symmHeapFree refuses blocks whose owner
 * is not the user. */
enum {
    SYMM_OWNER_USER,
    SYMM_OWNER_ARENA,
    SYMM_OWNER_LANE,
    SYMM_OWNER_GRAPH,
    SYMM_OWNER_VEC,
    SYMM_OWNER_SYNCED,
    SYMM_OWNER_HEAP
};

/* Begins an API call on a heap that uses its communicator, as symm_comm_enter (live: refuses a
 * revoked one); leave ends it. */
symmResult_t symm_heap_enter(symmHeap_t handle, int live, symm_heap **out);
void symm_heap_leave(symm_heap *h);
/* For calls that any thread may make: pins the heap and does not enter the communicator. */
symmResult_t symm_heap_pin(symmHeap_t handle, symm_heap **out);
void symm_heap_unpin(symm_heap *h);
/* References: objects made of a heap keep its record and its memory alive. */
void symm_heap_ref(symm_heap *h);
void symm_heap_unref(symm_heap *h);

symm_comm *symm_heap_comm(const symm_heap *h);
/* This process's address of a byte of rank's part; off as in symmRef_t. */
char *symm_heap_addr(const symm_heap *h, int rank, uint64_t off);
/* Offset of an own address, SYMM_NO_OFFSET if it is not of this heap. */
uint64_t symm_heap_offset(const symm_heap *h, const void *ptr);
uint64_t symm_heap_granularity(const symm_heap *h);
const char *symm_heap_name(const symm_heap *h);

/* Takes a block, as symmHeapAlloc (bytes not 0). In guard mode it has a red zone behind it, except
 * an arena's, whose own blocks have theirs. flags: SYMM_ALLOC_*. lane: ordinal for symmMemQuery, -1
 * none. site: call site for the ledger (__builtin_return_address(0) of the API call). A call on SYM
 * enters the digest. */
symmResult_t symm_heap_take(symm_heap *h, uint64_t bytes, uint64_t align, unsigned flags, int owner,
                            int lane, const void *site, uint64_t *off);
/* Frees the block of that owner that begins at off; *bytes (may be NULL): its size.
 * symmInvalidArgument says why it cannot. */
symmResult_t symm_heap_give(symm_heap *h, uint64_t off, int owner, const void *site,
                            uint64_t *bytes);
/* For arenas, which extend and divide their pieces in LOCAL. take_at: a block at exactly this
 * place; -1: not all of it is free, or no memory. part: divides the block of that owner at off; -1:
 * it cannot, nothing changed. hole: the free memory that holds off; 0: none. */
int symm_heap_take_at(symm_heap *h, uint64_t off, uint64_t bytes, int owner);
int symm_heap_part(symm_heap *h, uint64_t off, int owner);
int symm_heap_hole(symm_heap *h, uint64_t off, uint64_t *begin, uint64_t *end);
/* Frees a SYM block whose end has no order common to the ranks: it waits for
 * symmHeapCollect. Any thread, no CUDA call. */
void symm_heap_give_later(symm_heap *h, uint64_t off);
/* Bytes, owner and lane of the block that begins at off; symmInvalidArgument if none does. */
symmResult_t symm_heap_block(symm_heap *h, uint64_t off, uint64_t *bytes, int *owner, int *lane);

/* Takes a graph range: addresses at one offset on all ranks that belong to neither zone. The caller
 * maps memory there. bytes: a multiple of the granularity. The communicator's user thread, in one
 * order on all ranks with calls on SYM. symmOutOfMemory, the same on all ranks: no addresses are
 * left. */
symmResult_t symm_heap_graph_range_take(symm_heap *h, uint64_t bytes, int lane, uint64_t *off);
/* Whether take would find addresses. The same on all ranks. */
int symm_heap_graph_range_fits(const symm_heap *h, uint64_t bytes);
/* Gives it back: it is unmapped and free after the symmHeapCollect by which every rank has given it
 * back. No CUDA call. */
void symm_heap_graph_range_later(symm_heap *h, uint64_t off);

/* Bytes of the largest block that take could place now. Equal on all ranks for SYM. */
uint64_t symm_heap_room(const symm_heap *h, unsigned flags);
/* Calls on SYM so far; equal on all ranks. The communicator's user thread. */
uint64_t symm_heap_calls(const symm_heap *h);
/* Enters a call on SYM into the digest, and into the ledger as a lane's. An object made of the heap
 * has answered it from memory that it holds. */
void symm_heap_note(symm_heap *h, int freed, uint64_t bytes, int lane, uint64_t off,
                    const void *site);
/* Stripes of an object made of the heap. Calls on one stripe have one order on all ranks; calls on
 * different stripes have none. look: the number of this rank's calls on one, and their digest.
 * Ranks compare them where they meet about the heap; the calls send no message. */
typedef struct symm_stripes {
    struct symm_stripes *next;
    uint32_t id; /* from 1; given by watch */
    int count;
    const char *name;
    void (*look)(void *ctx, int stripe, uint64_t *calls, uint64_t *digest);
    void *ctx;
} symm_stripes;
/* The communicator's user thread, in the same order on all ranks. s must stay until unwatch, which
 * may come after the end of the heap's handle. */
void symm_heap_watch(symm_heap *h, symm_stripes *s);
void symm_heap_unwatch(symm_heap *h, symm_stripes *s);
/* For an owner whose blocks hold smaller ones: symmMemQuery and symmRefGet ask `find` for the one
 * that holds off. 1: found; begin, bytes and lane (-1 none) are written. NULL: there are none.
 * Called in the thread of the query, without locks; of lanes and graphs, in a turn of its own. */
typedef int (*symm_heap_inside)(void *arg, uint64_t off, uint64_t *begin, uint64_t *bytes,
                                int *lane);
void symm_heap_set_inside(symm_heap *h, int owner, symm_heap_inside find, void *arg);
/* Access lists of such blocks. 1: only certain ranks may access this one; `ranks` has
 * SYMM_MAX_RANKS bits, one per rank. Called as `find`. */
typedef int (*symm_heap_access)(void *arg, uint64_t off, uint64_t *ranks);
void symm_heap_set_access(symm_heap *h, int owner, symm_heap_access access, void *arg);
/* Guard mode: symmHeapCheck calls this for the smaller blocks. symmInvalidUsage telling the damage.
 * Called in the thread of the check, without locks. */
typedef symmResult_t (*symm_heap_look)(void *arg);
void symm_heap_set_check(symm_heap *h, int owner, symm_heap_look check, void *arg);

/* The guest of a heap takes part in tidying it: lanes and their graphs. Collective calls; the
 * communicator's user thread. */
typedef struct {
    /* Waits for the work on freed blocks. Memory that was waiting for it goes back. */
    symmResult_t (*settle)(symm_heap *h);
    /* Guard mode: as symm_heap_look. */
    symmResult_t (*check)(symm_heap *h);
    /* Things that go when all ranks are done with them. 0: graphs that nobody bound, whose blocks
     * then wait for symmHeapCollect. 1: memory that idle graphs share. */
    struct {
        int (*waiting)(const symm_heap *h); /* whether there are any */
        /* The next number, from `from` on, of one that this rank is done with; 0 none. */
        uint64_t (*next)(const symm_heap *h, uint64_t from);
        symmResult_t (*let)(symm_heap *h, uint64_t no, const void *site);
    } idle[2];
} symm_heap_guest;
/* NULL: nobody. */
void symm_heap_set_guest(symm_heap *h, const symm_heap_guest *guest);

/* ---- guard mode: heap_guard.c ---- */
int symm_heap_guarded(const symm_heap *h);
enum {
    SYMM_RED_ZONE = 256,      /* bytes behind a block, at least; less than twice as many */
    SYMM_GUARD_PIECE = 16384, /* most bytes that are looked at with a lock */
    SYMM_GUARD_TEXT = 256
};
/* Painting and looking need no lock of the heap: the bytes are the caller's. On GPUs they are calls
 * of the driver, which do not wait for work of the user's streams. Offsets are the heap's, of this
 * rank. -1: the driver refused; its error is logged. */
int symm_guard_paint(symm_heap *h, uint64_t off, uint64_t bytes, int poison);
/* The stream paints, or the graph that it is captured into. */
symmResult_t symm_guard_paint_later(const symm_heap *h, symmStream_t stream, uint64_t off,
                                    uint64_t bytes, int poison);
typedef struct {           /* bytes that were painted, and whose they are */
    uint64_t off, bytes;   /* 0 bytes: nothing to look at */
    int poison;            /* they are free; else the red zone behind a block */
    uint64_t block, asked; /* that block, and the bytes that were asked for */
    int owner, lane;       /* lane: of SYMM_OWNER_LANE and SYMM_OWNER_GRAPH */
    const char *arena;     /* name; else NULL */
} symm_spot;
/* 1: intact. 0: text, of SYMM_GUARD_TEXT bytes, tells the damage. */
int symm_guard_look(symm_heap *h, const symm_spot *s, char *text);
/* Damage that the call which finds it does not return: a warning. symmHeapCheck returns the
 * first. */
void symm_guard_note(symm_heap *h, const char *text);
/* Looks, and notes damage. */
void symm_guard_warn(symm_heap *h, const symm_spot *s);
/* Looks at the red zone of a block that is freed; symmInvalidUsage telling the damage. */
symmResult_t symm_guard_freed(symm_heap *h, const symm_spot *s);
/* Looks at all that is painted, while other threads take and free. next, between lock and unlock:
 * the spot at or behind `at`; returns where the one behind it begins, 0 if there is none.
 * symmInvalidUsage telling the first damage. */
typedef struct {
    void *ctx;
    void (*lock)(void *ctx), (*unlock)(void *ctx);
    uint64_t (*next)(void *ctx, uint64_t at, symm_spot *s);
} symm_guard_walker;
symmResult_t symm_guard_walk(symm_heap *h, const symm_guard_walker *w);

#endif
