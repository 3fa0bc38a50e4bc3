/* heap.h - a heap as the objects made of it see it: arenas, lanes, graph plans, vectors, synced
 * buffers take blocks here and nowhere else. Any thread where the public header says so; the
 * heap's lock inside, held for one placement only, never while waiting or in a driver call. */
#ifndef SYMM_HOST_HEAP_H_
#define SYMM_HOST_HEAP_H_

#include "symm_heap.h"
#include "host/comm/types.h"

typedef struct symm_heap symm_heap;

/* Who a block belongs to, besides its user: the tag of its placement. symmHeapFree of a block whose
 * owner is not the user is refused. */
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
/* For calls that may run in any thread beside others: pinned, communicator not entered. */
symmResult_t symm_heap_pin(symmHeap_t handle, symm_heap **out);
void symm_heap_unpin(symm_heap *h);
/* Counted: objects made of a heap keep its record (and its memory) alive. */
void symm_heap_ref(symm_heap *h);
void symm_heap_unref(symm_heap *h);

symm_comm *symm_heap_comm(const symm_heap *h);
/* This process's address of a byte of rank's part; off as in symmRef_t. */
char *symm_heap_addr(const symm_heap *h, int rank, uint64_t off);
/* Offset of an own address, SYMM_NO_OFFSET if it is not of this heap. */
uint64_t symm_heap_offset(const symm_heap *h, const void *ptr);
uint64_t symm_heap_granularity(const symm_heap *h);
const char *symm_heap_name(const symm_heap *h);

/* A block, in guard mode with a red zone behind it but for arenas, whose own blocks have theirs.
 * flags: SYMM_ALLOC_*. lane: ordinal for symmMemQuery, -1 none. SYM: enters the digest. site:
 * call site for the ledger (__builtin_return_address(0) of the API call). As symmHeapAlloc
 * otherwise (bytes not 0). */
symmResult_t symm_heap_take(symm_heap *h, uint64_t bytes, uint64_t align, unsigned flags, int owner,
                            int lane, const void *site, uint64_t *off);
/* Frees a block of that owner that begins at off. symmInvalidArgument saying why not. *bytes (may
 * be NULL). */
symmResult_t symm_heap_give(symm_heap *h, uint64_t off, int owner, const void *site,
                            uint64_t *bytes);
/* For arenas, whose pieces in LOCAL change their ends. take_at: a block at exactly this place; -1:
 * not all of it is free, or no memory. part: the block of that owner that holds off becomes two,
 * the second of which begins at off; -1: it cannot, nothing changed. hole: the free memory that
 * holds off; 0: none. */
int symm_heap_take_at(symm_heap *h, uint64_t off, uint64_t bytes, int owner);
int symm_heap_part(symm_heap *h, uint64_t off, int owner);
int symm_heap_hole(symm_heap *h, uint64_t off, uint64_t *begin, uint64_t *end);
/* The same for a SYM block whose end has no order common to the ranks: it waits in limbo for
 * symmHeapCollect. Any thread, no CUDA. */
void symm_heap_give_later(symm_heap *h, uint64_t off);
/* Bytes, owner and lane of the block that begins at off; symmInvalidArgument if none does. */
symmResult_t symm_heap_block(symm_heap *h, uint64_t off, uint64_t *bytes, int *owner, int *lane);

/* A tract: addresses at one offset on all ranks, of neither zone, into which whoever takes it maps
 * memory. bytes: a multiple of the granularity. The communicator's user thread, in the same
 * order on all ranks as calls on SYM. symmOutOfMemory: none are left; alike on all ranks. */
symmResult_t symm_heap_tract_take(symm_heap *h, uint64_t bytes, int lane, uint64_t *off);
/* Whether take would find addresses; alike on all ranks. */
int symm_heap_tract_fits(const symm_heap *h, uint64_t bytes);
/* It is unmapped and free at the symmHeapCollect by which every rank has said so. No CUDA. */
void symm_heap_tract_later(symm_heap *h, uint64_t off);

/* Bytes of the largest block that take could place now. Equal on all ranks for SYM. */
uint64_t symm_heap_room(const symm_heap *h, unsigned flags);
/* Calls on SYM so far; equal on all ranks. The communicator's user thread. */
uint64_t symm_heap_calls(const symm_heap *h);
/* A call on SYM that an object made of the heap has answered out of what it holds: it enters the
 * digest, and the ledger as a lane's. */
void symm_heap_note(symm_heap *h, int freed, uint64_t bytes, int lane, uint64_t off,
                    const void *site);
/* Stripes of an object made of the heap, calls on each of which have one order on all ranks, but
 * none with those on others. look: how many calls this rank has made on one, and their digest.
 * Where the ranks meet about the heap they compare; no call sends a message. */
typedef struct symm_stripes {
    struct symm_stripes *next;
    uint32_t id; /* from 1; given by watch */
    int count;
    const char *name;
    void (*look)(void *ctx, int stripe, uint64_t *calls, uint64_t *digest);
    void *ctx;
} symm_stripes;
/* The communicator's user thread, in the same order on all ranks. s stays where it is until
 * unwatch, which may come behind the end of the heap's handle. */
void symm_heap_watch(symm_heap *h, symm_stripes *s);
void symm_heap_unwatch(symm_heap *h, symm_stripes *s);
/* Blocks of that owner hold smaller ones: symmMemQuery, symmRefGet and dumps ask `find` for the one
 * that holds off. 1: found, and begin, bytes and lane (-1 none) written. NULL: none do. Called
 * in the thread of the query. */
typedef int (*symm_heap_inside)(void *arg, uint64_t off, uint64_t *begin, uint64_t *bytes,
                                int *lane);
void symm_heap_set_inside(symm_heap *h, int owner, symm_heap_inside find, void *arg);
/* Some of these are for certain ranks only: 1, and `ranks` has a bit for each, in SYMM_MAX_RANKS
 * bits. In the thread of the query. */
typedef int (*symm_heap_access)(void *arg, uint64_t off, uint64_t *ranks);
void symm_heap_set_access(symm_heap *h, int owner, symm_heap_access access, void *arg);
/* Guard mode: symmHeapCheck has them look at the smaller ones too. symmInvalidUsage naming the
 * damage. In the thread of the check, without locks. */
typedef symmResult_t (*symm_heap_look)(void *arg);
void symm_heap_set_check(symm_heap *h, int owner, symm_heap_look check, void *arg);

/* Who lives in blocks of the heap and has a part in tidying it: lanes and their graphs. Collective
 * calls; the communicator's user thread. */
typedef struct {
    /* Work on blocks that were freed since has ended: waits for it. Memory that waited for that
     * goes back. */
    symmResult_t (*settle)(symm_heap *h);
    /* Guard mode: as symm_heap_look. */
    symmResult_t (*check)(symm_heap *h);
    /* What may go once all ranks are done with it: graphs that nobody bound, whose blocks come to
     * wait then; memory that idle graphs share. */
    struct {
        int (*waiting)(const symm_heap *h); /* whether there is any */
        /* The number of the next one, from `from` on, that this rank is done with; 0 none. */
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
