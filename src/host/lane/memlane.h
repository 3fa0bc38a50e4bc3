/* memlane.h - what the files of lanes and memory plans share. The communicator's user thread,
 * except where said; no lock.
 *
 * All lanes of a heap form one set. The set's pool takes pieces of the heap and gives their bytes
 * to the lanes, block by block. It has a placement engine for each zone. A freed block is
 *  - pending: SYM of several ranks; some rank may not have reached its free. Nobody may have it.
 *  - kept: the lane that freed it may have it at once, because its stream is behind the free on all
 *    ranks.
 *  - pooled: no longer a block. Any lane may take the bytes once it follows the lane that gave
 *    them.
 *
 * Every decision depends on counts, bytes and the order of calls only. docs/memory-lane.md has the
 * proofs.
 *
 * Who calls whom, lowest first: memlane_check, memlane_table, memlane_stream; memlane_guard;
 * memlane_pool; memplan_point, memplan_unbound, memplan_uses; memlane_set; the plans, up to
 * memplan_blocks (memplan.h); memlane, memlane_query. */
#ifndef SYMM_MEMLANE_H_
#define SYMM_MEMLANE_H_

#include "symm_lane.h"
#include "base/check.h"
#include "host/coll/coll.h"
#include "host/comm/types.h"
#include "host/gpu/gpu.h"
#include "host/heap/heap.h"
#include "host/place/gplan.h"
#include "host/place/place.h"

enum {
    SYMM_MEMLANE_BINS = 64,     /* lists of kept blocks, by a hash of their size */
    SYMM_MEMLANE_LOOKS = 8,     /* blocks of a list that an allocation looks at */
    SYMM_MEMLANE_WINDOW = 1024, /* allocations over which a peak is taken */
    SYMM_MEMLANE_GIVEN = 128,   /* the last blocks given to the pool: known one by one */
    SYMM_MEMLANE_FEW = 4        /* lanes; of more than these each keeps less */
};
/* A lane may keep this much whatever its use (half of it if there are many lanes). It spends a
 * barrier only when as much is pending. */
#define SYMM_MEMLANE_FLOOR (32ull << 10)

/* Eager blocks under SYMM_MEMLANE_SMALL bytes have sizes and offsets that are multiples of
 * SYMM_MEMLANE_UNIT, a cache line of a GPU, so no two of them share a line. Other blocks have
 * multiples of SYMM_PLACE_UNIT, as all blocks of the heap. */
#define SYMM_MEMLANE_UNIT  128u
#define SYMM_MEMLANE_SMALL 1024u
static inline uint64_t symm_memlane_unit(uint64_t bytes) {
    return bytes < SYMM_MEMLANE_SMALL ? SYMM_MEMLANE_UNIT : SYMM_PLACE_UNIT;
}

enum { SYMM_MEMLANE_RED = 256 }; /* guard mode: least bytes behind a block */

enum { SYMM_REC_LIVE, SYMM_REC_KEPT, SYMM_REC_PENDING };

/* A block of a lane. */
typedef struct symm_memrec {
    uint64_t off, bytes;
    uint64_t stamp; /* PENDING: comm->lanes.heard when it was freed */
    struct symm_memrec *next;
    int lane; /* ordinal of the lane that took it */
    uint8_t zone, state;
    uint16_t red : 15, /* guard mode: the last of `bytes`, behind those that were asked for */
        painted : 1;   /* guard mode. LIVE: these are painted; KEPT: all of the block is */
} symm_memrec;

/* Records by offset. */
typedef struct {
    symm_memrec **slots; /* open addressing; a power of two of them */
    uint64_t n, cap;
    symm_memrec *unused;
    void **slabs;
    int nslabs;
} symm_memtable;

typedef struct {
    uint64_t off, bytes;
} symm_mempiece;

/* A block whose bytes went to the pool. */
typedef struct {
    uint64_t off, bytes;
    uint64_t seq; /* pool.gives when it went */
    int lane;     /* ordinal of the lane that gave it */
} symm_memgiven;

typedef struct {
    symm_place *place; /* counts in units of its own: symm_mempool_fine */
    symm_mempiece *pieces;
    int npieces;
    uint64_t reserved;                       /* bytes of the pieces */
    uint64_t gives;                          /* how often a lane has given bytes to the pool */
    symm_memgiven given[SYMM_MEMLANE_GIVEN]; /* the last blocks given: a ring */
    uint64_t ngiven;                         /* blocks given so far */
    struct symm_memlane *newest; /* the lane that gave last; earlier ones follow by `older` */
} symm_mempool;

/* A point of a lane's stream that other streams can be put behind. */
typedef symm_mark symm_memmark;

/* Ranks that may access a block. */
typedef struct {
    int some; /* 0: every rank */
    uint64_t ranks[(SYMM_MAX_RANKS + 63) / 64];
} symm_memaccess;

/* Guard mode: what lanes have painted in their streams. */
typedef struct symm_memguard {
    struct symm_memguarded {
        symm_memmark painted; /* behind the last painting */
        symm_memmark now;     /* the stream's end when it was waited for last */
        int stands;           /* 1: that end was not reached in time */
    } * lanes;                /* by ordinal, also of lanes that have ended */
    int n;
    int unpainted[SYMM_MEM_ZONES]; /* 1: the pool has bytes that could not be painted */
    /* Lanes ended before their streams had painted: the heap is kept until they have. */
    struct symm_memguard *next;
    symm_heap *heap;
} symm_memguard;

struct symm_memlane;
struct symm_memplan;

typedef struct symm_memlanes {
    struct symm_memlanes *next; /* of the communicator's sets */
    symm_heap *heap;
    symmHeap_t handle;
    symm_comm *comm;
    struct symm_memlane **lanes; /* by ordinal; NULL: destroyed */
    int made, alive;
    int refs; /* lanes, plans */
    symm_mempool pool[SYMM_MEM_ZONES];
    symm_memtable table;
    uint64_t live;              /* bytes of eager blocks */
    uint64_t red;               /* of these, in red zones */
    symm_memguard *guard;       /* NULL: not in guard mode */
    struct symm_memplan *plans; /* newest first */
    struct symm_memregion *regions;
    struct symm_memuse *uses; /* memplan_uses.c */
    uint64_t blind;           /* id of a capture of which a call could not be noted */
    uint64_t aliased;         /* bytes of memory for aliases, so far */
} symm_memlanes;

typedef struct {
    uint64_t live, kept, pending; /* bytes */
    uint64_t red;                 /* of `live`, in red zones */
    uint64_t peak, peak_before;   /* most live in this window and in the one before */
    uint64_t calls;               /* allocations in this window */
    uint64_t gave;                /* pool.gives when this lane gave last; 0: never */
    uint64_t followed;            /* pool.gives up to which this lane is behind all givers */
    symm_memmark given;           /* the stream's end when it gave last */
    uint64_t behind; /* `followed` at that mark: who follows the mark is behind that as well */
    struct symm_memlane *newer, *older; /* of the lanes that have given */
    symm_memrec *bins[SYMM_MEMLANE_BINS];
} symm_memzone;

typedef struct symm_memlane {
    symmLane_t handle;
    symm_memlanes *set;
    symmStream_t stream;
    int ordinal;
    symm_memzone zone[SYMM_MEM_ZONES];
    symm_memrec *pending_first, *pending_last; /* in the order of their frees */
    uint64_t allocs, frees, epochs, spared, follows;
    struct symm_memregion *region; /* where its graphs' blocks lie; NULL before the first */
    symm_memaccess access;         /* of what is captured from now on */
} symm_memlane;

/* The list of kept blocks of that size. */
static inline int symm_memlane_bin(uint64_t bytes) {
    return (int)(bytes / SYMM_MEMLANE_UNIT * 0x9e3779b97f4a7c15ull >> 58);
}

/* ---- memlane_check.c: SYMM_CHECK only -------------------------------------------------------- */

void symm_memlane_check(const symm_memlane *l);
void symm_mempool_check(const symm_memlanes *s, int zone);

/* ---- memlane_set.c --------------------------------------------------------------------------- */

/* Refuses a call between symmGroupStart and symmGroupEnd. */
symmResult_t symm_memlane_no_group(const char *call);
/* Begins a call: checks the handle, enters the heap and its communicator. leave ends the call. */
symmResult_t symm_memlane_enter(symmLane_t handle, const char *call, symm_memlane **out);
void symm_memlane_leave(symm_memlane *l);
symm_memlane *symm_memlane_peek(symmLane_t handle);
/* The error of a call on what is no lane, or no lane any more. */
symmResult_t symm_memlane_unknown(symmLane_t handle, const char *call);
/* A lane or a plan lets go of its set; the last one ends it. */
void symm_memlanes_unref(symm_memlanes *s);
/* This rank's address of an offset. */
static inline void *symm_memlanes_address(const symm_memlanes *s, uint64_t off) {
    return symm_heap_addr(s->heap, s->comm->rank, off);
}
static inline int symm_memlanes_flags(int zone) {
    return zone == SYMM_MEM_SYM ? SYMM_ALLOC_SYM : SYMM_ALLOC_LOCAL;
}

/* ---- memlane_table.c ------------------------------------------------------------------------- */

symm_memrec *symm_memtable_find(const symm_memtable *t, uint64_t off);
/* A new record for `off`. NULL: no memory. */
symm_memrec *symm_memtable_add(symm_memtable *t, uint64_t off);
/* Makes room for one record, so that the next add cannot fail. -1: no memory. */
int symm_memtable_reserve(symm_memtable *t);
void symm_memtable_drop(symm_memtable *t, symm_memrec *r);
void symm_memtable_end(symm_memtable *t);

/* The pool's placement engine counts in units of SYMM_MEMLANE_UNIT: to its numbers, and back. */
static inline uint64_t symm_mempool_fine(uint64_t bytes) {
    return bytes * (SYMM_PLACE_UNIT / SYMM_MEMLANE_UNIT);
}
static inline uint64_t symm_mempool_bytes(uint64_t fine) {
    return fine / (SYMM_PLACE_UNIT / SYMM_MEMLANE_UNIT);
}

/* ---- memlane_pool.c -------------------------------------------------------------------------- */

/* A block for the lane, by every means short of growing the heap. */
symmResult_t symm_mempool_take(symm_memlane *l, int zone, uint64_t bytes, const void *site,
                               symm_memrec **out);
/* Ends the lane's epoch: pending blocks become kept. Puts a barrier on the stream, unless a call of
 * the program has served as one. */
symmResult_t symm_memlane_close(symm_memlane *l);
/* Keeps what a call of the program has ended since. Costs no barrier. */
void symm_memlane_observe(symm_memlane *l);
/* The block is free on all ranks behind this lane's stream: the lane keeps it. */
void symm_memlane_keep(symm_memlane *l, symm_memrec *r);
/* `more` bytes are about to come to the lane, `live` of them in use. If it would then be over its
 * limit, it gives what it keeps to the pool. */
symmResult_t symm_memlane_limit(symm_memlane *l, int zone, uint64_t more, uint64_t live);
/* Gives what the lane keeps to the pool. */
symmResult_t symm_memlane_flush(symm_memlane *l, int zone);
/* Marks the end of what the stream was given so far: who takes the lane's bytes from the pool comes
 * behind this mark. */
symmResult_t symm_memlane_mark(symm_memlane *l, int zone);
/* The lane ends: others no longer follow its marks. */
void symm_memlane_unmark(symm_memlane *l, int zone);
/* Gives whole pieces that hold no block back to the heap. The caller has waited for the lanes' work
 * on them. Returns the bytes. */
uint64_t symm_mempool_shrink(symm_memlanes *s, int zone, const void *site);
void symm_mempool_end(symm_mempool *p);

/* ---- memlane_stream.c: both backends --------------------------------------------------------- */

enum { SYMM_STREAM_EAGER, SYMM_STREAM_CAPTURED };
typedef struct {
    int how;          /* SYMM_STREAM_* */
    uint64_t capture; /* CAPTURED: its id */
    cu_graph graph;   /* CAPTURED, GPUs */
} symm_memstate;
/* Whether calls on the stream run or are recorded. symmInvalidArgument: the stream is gone. */
symmResult_t symm_mem_state(const symm_comm *c, symmStream_t stream, symm_memstate *st);
/* 1 unless the stream is known to be gone. Never logs. */
int symm_mem_alive(const symm_comm *c, symmStream_t stream);
/* 1: the legacy stream, while a blocking stream is captured. Its use would invalidate that
 * capture. */
int symm_mem_shut(symm_comm *c, symmStream_t stream);
/* symmInvalidUsage: the stream is shut. */
symmResult_t symm_mem_open(symm_comm *c, symmStream_t stream);
/* Marks the end of what the stream was given so far. symmInvalidUsage: the stream is shut. */
symmResult_t symm_memmark_set(symm_comm *c, symm_memmark *m, symmStream_t stream);
/* What is given to the stream from now on starts behind the mark. */
symmResult_t symm_memmark_follow(symm_comm *c, const symm_memmark *m, symmStream_t stream);
/* Waits here until the mark is reached. */
symmResult_t symm_memmark_reach(symm_comm *c, const symm_memmark *m);
/* The same for at most `ms` milliseconds. 1: it is reached. */
int symm_memmark_soon(symm_comm *c, const symm_memmark *m, int ms);
void symm_memmark_end(symm_comm *c, symm_memmark *m);

/* ---- memlane_guard.c: only where the set has a guard ----------------------------------------- */

/* Makes a guard if the heap is in guard mode. */
symmResult_t symm_memguard_new(symm_memlanes *s);
/* Makes room for one more lane. */
symmResult_t symm_memguard_add(symm_memlanes *s);
/* Ends the guard. If the lanes' streams do not reach what they are to paint within a second, the
 * heap's memory is kept until they have, and goes with a later guard. */
void symm_memguard_end(symm_memlanes *s);
/* The lane has got r, of which `asked` bytes are the caller's. Checks whether r was written after
 * its free, and paints the red zone. After an error the caller keeps r. */
symmResult_t symm_memguard_taken(symm_memlane *l, symm_memrec *r, uint64_t asked);
/* r is about to be freed on the lane. Checks its red zone (*found: damage, which has been logged),
 * and poisons r if its free on this rank is its free everywhere. After an error nothing has
 * changed. */
symmResult_t symm_memguard_freed(symm_memlane *l, symm_memrec *r, symmResult_t *found);
/* Paints as work of the lane's stream; under capture as a part of the graph. */
symmResult_t symm_memguard_paint(const symm_memlane *l, uint64_t off, uint64_t bytes, int poison);
/* 1: the lane's stream has done all it was given. Waits for it, but not for ever, because it may
 * wait for what the caller does next; and only once: while the stream has not moved on, no call
 * waits again. off: for the log. */
enum { SYMM_MEMGUARD_WAIT_MS = 1000 };
int symm_memguard_caught_up(symm_memlane *l, uint64_t off);
/* Every rank has freed what is pending, and the lane's stream is behind that. Poisons it, and lets
 * the ranks meet once more. */
symmResult_t symm_memguard_heard(symm_memlane *l);
/* symmInvalidUsage, names damage to an eager block or to lanes' memory that is in no block. */
symmResult_t symm_memguard_check(symm_heap *h);
/* The same before memory leaves the lanes; damage is kept for symmHeapCheck. */
void symm_memguard_look(symm_memlanes *s);

/* ---- plans, as lanes see them; memplan.h has the rest ---------------------------------------- */

/* Captured allocations and frees (memplan_capture.c). */
symmResult_t symm_memplan_alloc(symm_memlane *l, const symm_memstate *st, uint64_t bytes,
                                unsigned flags, const void *site, uint64_t *off);
symmResult_t symm_memplan_free(symm_memlane *l, const symm_memstate *st, uint64_t off,
                               const void *ptr, const void *site);
/* An eager free of a block that is no eager block (memplan_blocks.c). */
symmResult_t symm_memplan_free_now(symm_memlane *l, uint64_t off, const void *ptr,
                                   const void *site);

/* memplan_life.c. Frees what graphs have let go: of this communicator (its thread); NULL: of all
 * destroyed ones (any thread that may call CUDA). */
void symm_memplan_reap(const symm_comm *c);
/* The lock over lanes and plans of destroyed communicators. The thread that ends one holds it, once
 * no graph runs that has calls of it; from then on other threads settle its plans too, after that
 * one. */
void symm_memplan_lock_ending(symm_comm *c);
void symm_memplan_unlock_dead(void);
/* Begins a call on a lane or a plan whose heap has gone: in a turn of the communicator (*turn 1),
 * or, if that has ended too, under that lock. leave_dead ends the call. */
symmResult_t symm_memplan_enter_dead(symm_comm *c, int *turn);
void symm_memplan_leave_dead(symm_comm *c, int turn);
/* A lane ends: what its captures hold lives on with their graphs. */
void symm_memplan_orphan(symm_memlane *l);
/* Number of allocated blocks that outlive their graphs. */
int symm_memplan_live(const symm_memlanes *s);
/* The heap has gone, with these blocks in it. */
void symm_memplan_forget(symm_memlanes *s);

/* memplan_uses.c. Waits for the program's work on blocks of graphs that it has freed since: of one
 * region, or of all (r NULL). */
symmResult_t symm_memuse_reach(symm_memlanes *s, const struct symm_memregion *r);
/* The lane ends. Its heir's stream is behind its own, and takes over what it has used. */
symmResult_t symm_memuse_inherit(symm_memlane *l, const symm_memlane *heir);
void symm_memuse_end(symm_memlanes *s);

/* memplan_access.c. For symmRefGet (symm_heap_access) and symmMemQuery (symm_heap_inside). */
int symm_memplan_access(void *set, uint64_t off, uint64_t *ranks);
int symm_memplan_inside(void *set, uint64_t off, uint64_t *begin, uint64_t *bytes, int *lane);

/* Told of the communicator's calls while it has lanes (memplan_capture.c). */
extern const symm_observer symm_memlane_observer;
/* The lanes' part in symmHeapCollect and symmHeapCheck (memplan_collect.c). */
extern const symm_heap_guest symm_memplan_guest;

#endif
