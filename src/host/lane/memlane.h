/* memlane.h - what the files of lanes and graph plans share. The communicator's user thread; no
 * lock.
 *
 * All lanes of a heap make up one set: memory comes from the heap in pieces, lies in the set's pool
 * (a placement engine of its own per zone) and goes to the lanes block by block. A block that was
 * freed is
 *   pending  SYM only: on some rank its free may not have been reached; nobody may have it
 *   kept     the lane that freed it may have it at once, for its stream is behind the free on all
 *            ranks
 *   pooled   no block any more: bytes that any lane may take that has followed the lane which gave
 *            them
 * Everything is decided by counts, bytes and the order of calls. docs/memory-lane.md has the
 * proofs. */
#ifndef SYMM_MEMLANE_H_
#define SYMM_MEMLANE_H_

#include "symm_lane.h"
#include "host/coll/coll.h"
#include "host/comm/types.h"
#include "host/gpu/gpu.h"
#include "host/heap/heap.h"
#include "host/place/gplan.h"
#include "host/place/place.h"

enum {
    SYMM_MEMLANE_BINS = 64,
    SYMM_MEMLANE_LOOKS = 8,
    SYMM_MEMLANE_WINDOW = 1024,
    SYMM_MEMLANE_GIVEN = 128, /* blocks given to the pool that are known one by one */
    SYMM_MEMLANE_FEW = 4      /* lanes; more of them keep less each */
};
/* A lane keeps this much whatever its use, half of it where there are many, and waits for as much
 * to be pending before it spends a barrier on it. */
#define SYMM_MEMLANE_FLOOR (32ull << 10)

/* Size and place of eager blocks under SYMM_MEMLANE_SMALL bytes are multiples of this: a line of a
 * GPU's caches, so no two share one. Those of others are multiples of SYMM_PLACE_UNIT, as all of
 * the heap's. */
#define SYMM_MEMLANE_UNIT  128u
#define SYMM_MEMLANE_SMALL 1024u
static inline uint64_t symm_memlane_unit(uint64_t bytes) {
    return bytes < SYMM_MEMLANE_SMALL ? SYMM_MEMLANE_UNIT : SYMM_PLACE_UNIT;
}

enum { SYMM_MEMLANE_RED = 256 }; /* guard mode: bytes behind a block, at least */

enum { SYMM_REC_LIVE, SYMM_REC_KEPT, SYMM_REC_PENDING };

typedef struct symm_memrec {
    uint64_t off, bytes;
    uint64_t stamp; /* PENDING: the communicator's calls that were heard by all when it was freed */
    struct symm_memrec *next;
    int lane; /* ordinal of the lane that took it */
    uint8_t zone, state;
    /* Guard mode. red: the last of its bytes, behind those that were asked for. painted: LIVE
     * these, KEPT all of it */
    uint16_t red : 15, painted : 1;
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
    uint64_t off, bytes, seq; /* of pool.gives */
    int lane;                 /* ordinal of the one that gave it */
} symm_memgiven;

typedef struct {
    symm_place *place; /* counts in units of its own: see symm_mempool_fine */
    symm_mempiece *pieces;
    int npieces;
    uint64_t reserved;                       /* bytes of the pieces */
    uint64_t gives;                          /* times that some lane has given bytes to the pool */
    symm_memgiven given[SYMM_MEMLANE_GIVEN]; /* the last ones: a ring */
    uint64_t ngiven;
    struct symm_memlane *newest; /* gave last; the others that have given behind it, by older */
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
        symm_memmark painted; /* behind the last of it */
        symm_memmark now;     /* the end that was waited for last */
        int stands;           /* and that was not reached in time */
    } * lanes;                /* by ordinal, of those that have ended too */
    int n;
    int unpainted[SYMM_MEM_ZONES]; /* the pool has bytes that could not be painted */
    struct symm_memguard *next;    /* its lanes have ended before they have painted, */
    symm_heap *heap;               /* and this is kept for that */
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
    uint64_t live;              /* eager blocks */
    uint64_t red;               /* of them, in red zones */
    symm_memguard *guard;       /* NULL: not in guard mode */
    struct symm_memplan *plans; /* newest first */
    struct symm_memregion *regions;
    struct symm_memlate *lates; /* memplan_late.c */
    uint64_t blind;             /* a capture of which a call could not be noted */
    uint64_t aliased;           /* bytes of memory for aliases, so far */
} symm_memlanes;

typedef struct {
    uint64_t live, kept, pending; /* bytes */
    uint64_t red;                 /* of those live, in red zones */
    uint64_t peak, peak_before;   /* most live in this window and the one before */
    uint64_t calls;               /* in this window */
    uint64_t gave;                /* pool.gives when this lane last gave; 0 never */
    uint64_t followed; /* of pool.gives: this lane is behind all that was given until then */
    symm_memmark given;
    uint64_t behind; /* followed as it was at that mark: who follows the mark is behind that too */
    struct symm_memlane *newer, *older; /* that have given */
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

/* ---- memlane.c ------------------------------------------------------------------------------- */

/* Begins a call: the lane, its heap and communicator entered, no group open. leave ends it. */
symmResult_t symm_memlane_enter(symmLane_t handle, const char *call, symm_memlane **out);
void symm_memlane_leave(symm_memlane *l);
symm_memlane *symm_memlane_peek(symmLane_t handle);
void *symm_memlanes_address(const symm_memlanes *s, uint64_t off);
void symm_memlanes_unref(symm_memlanes *s);
static inline int symm_memlanes_flags(int zone) {
    return zone == SYMM_MEM_SYM ? SYMM_ALLOC_SYM : SYMM_ALLOC_LOCAL;
}

/* ---- memlane_table.c ------------------------------------------------------------------------- */

symm_memrec *symm_memtable_find(const symm_memtable *t, uint64_t off);
/* A record that find will find; NULL: no memory. */
symm_memrec *symm_memtable_add(symm_memtable *t, uint64_t off);
/* Room for one more, so that the next add cannot fail. -1: no memory. */
int symm_memtable_reserve(symm_memtable *t);
void symm_memtable_drop(symm_memtable *t, symm_memrec *r);
void symm_memtable_end(symm_memtable *t);

/* Bytes as the pool's placement engine counts them: so many that its unit is ours. */
static inline uint64_t symm_mempool_fine(uint64_t bytes) {
    return bytes * (SYMM_PLACE_UNIT / SYMM_MEMLANE_UNIT);
}
static inline uint64_t symm_mempool_bytes(uint64_t fine) {
    return fine / (SYMM_PLACE_UNIT / SYMM_MEMLANE_UNIT);
}

/* ---- memlane_pool.c -------------------------------------------------------------------------- */

/* A block for the lane, by all means there are short of growing the heap. */
symmResult_t symm_mempool_take(symm_memlane *l, int zone, uint64_t bytes, const void *site,
                               symm_memrec **out);
/* Ends the lane's epoch: what is pending becomes kept, at the price of a barrier unless a call of
 * the program has done it. */
symmResult_t symm_memlane_close(symm_memlane *l);
/* What calls of the program have ended since. Free of charge. */
void symm_memlane_observe(symm_memlane *l);
/* A block that is free on all ranks behind this lane's stream. */
void symm_memlane_keep(symm_memlane *l, symm_memrec *r);
/* `more` bytes are about to come to the lane, `live` of them in use: beyond an eighth more than it
 * has used lately it gives what it keeps. */
symmResult_t symm_memlane_limit(symm_memlane *l, int zone, uint64_t more, uint64_t live);
/* Gives what the lane keeps to the pool. */
symmResult_t symm_memlane_flush(symm_memlane *l, int zone);
/* Marks the end of what the lane was given so far as the point behind which its bytes in the pool
 * may be used. */
symmResult_t symm_memlane_mark(symm_memlane *l, int zone);
/* Others follow the lane's marks no more: it ends. */
void symm_memlane_unmark(symm_memlane *l, int zone);
/* Gives whole pieces that hold no block back to the heap. The lanes' work on them has ended
 * here. */
uint64_t symm_mempool_shrink(symm_memlanes *s, int zone, const void *site);
void symm_mempool_end(symm_mempool *p);

/* ---- memlane_stream.c: both backends --------------------------------------------------------- */

enum { SYMM_STREAM_EAGER, SYMM_STREAM_CAPTURED };
typedef struct {
    int how;          /* SYMM_STREAM_* */
    uint64_t capture; /* its id; */
    cu_graph graph;   /* GPUs */
} symm_memstate;
/* Whether calls on the stream run or are recorded. symmInvalidArgument: it is gone. */
symmResult_t symm_mem_state(const symm_comm *c, symmStream_t stream, symm_memstate *st);
/* 1 unless the stream is known to be gone. Never logs. */
int symm_mem_alive(const symm_comm *c, symmStream_t stream);
/* 1: the legacy stream, while a blocking stream is captured. Nobody may use it then, and whoever
 * does spoils that capture. */
int symm_mem_shut(symm_comm *c, symmStream_t stream);
/* symmInvalidUsage: it is shut. */
symmResult_t symm_mem_open(symm_comm *c, symmStream_t stream);
/* Marks the end of what stream was given so far. symmInvalidUsage: it is shut. */
symmResult_t symm_memmark_set(symm_comm *c, symm_memmark *m, symmStream_t stream);
/* What is given to stream from now on starts behind the mark. */
symmResult_t symm_memmark_follow(symm_comm *c, const symm_memmark *m, symmStream_t stream);
/* Waits here until the mark is reached. */
symmResult_t symm_memmark_reach(symm_comm *c, const symm_memmark *m);
/* The same for so many ms at most: 1 if it is reached. */
int symm_memmark_soon(symm_comm *c, const symm_memmark *m, int ms);
void symm_memmark_end(symm_comm *c, symm_memmark *m);

/* ---- memlane_guard.c: where the set has a guard ---------------------------------------------- */

/* The set gets one if its heap is in guard mode. */
symmResult_t symm_memguard_new(symm_memlanes *s);
/* Room for one lane more. */
symmResult_t symm_memguard_add(symm_memlanes *s);
/* Where the lanes' streams do not come within a second to what they are to paint, the heap's memory
 * outlives that, and goes with a later guard. */
void symm_memguard_end(symm_memlanes *s);
/* The lane has got r, of which `asked` bytes are the caller's: looks whether what is there was
 * written after it was freed, and paints what is behind. An error: the lane keeps r. */
symmResult_t symm_memguard_taken(symm_memlane *l, symm_memrec *r, uint64_t asked);
/* r is about to be freed on the lane: what is behind it is looked at (*found: damage, which has
 * been told), and it is poisoned where its free here is its free everywhere. An error: nothing
 * has changed. */
symmResult_t symm_memguard_freed(symm_memlane *l, symm_memrec *r, symmResult_t *found);
/* In the order of the lane's stream, or as a part of what it captures. */
symmResult_t symm_memguard_paint(const symm_memlane *l, uint64_t off, uint64_t bytes, int poison);
/* Whether the lane's stream has done what it was given; off is for the log. It is waited for, but
 * not for ever, for it may wait for what the caller does next; and once only: while it stands
 * where it was found standing no call waits again. */
enum { SYMM_MEMGUARD_WAIT_MS = 1000 };
int symm_memguard_caught_up(symm_memlane *l, uint64_t off);
/* Every rank has freed what is pending, and the lane's stream is behind that: poisons it, and lets
 * the ranks meet once more. */
symmResult_t symm_memguard_heard(symm_memlane *l);
/* symmInvalidUsage naming damage to eager blocks, or to memory of the heap's lanes that is no
 * block's. */
symmResult_t symm_memguard_check(symm_heap *h);
/* The same where memory is about to leave the lanes; it is noted for symmHeapCheck. */
void symm_memguard_look(symm_memlanes *s);

/* ---- memplan.c: what is captured. memplan.h has the rest ------------------------------------- */

symmResult_t symm_memplan_alloc(symm_memlane *l, const symm_memstate *st, uint64_t bytes,
                                unsigned flags, const void *site, uint64_t *off);
symmResult_t symm_memplan_free(symm_memlane *l, const symm_memstate *st, uint64_t off,
                               const void *ptr, const void *site);
/* An eager free of a block that is none of the eager ones. */
symmResult_t symm_memplan_free_now(symm_memlane *l, uint64_t off, const void *ptr,
                                   const void *site);
/* Frees what graphs have let go, of this communicator (its thread); NULL: of all that are destroyed
 * (any thread that may call CUDA). */
void symm_memplan_reap(const symm_comm *c);
/* Over lanes and plans of communicators that are no more; their own thread has it while they
 * end. */
void symm_memplan_lock_dead(void);
void symm_memplan_unlock_dead(void);
/* Graphs without a plan that have SYM blocks of several ranks: whether there are any; the number of
 * the next one, from `from` on, that this rank is done with, 0 none; lets one go, which all
 * ranks are done with. */
int symm_memloose_waiting(const symm_heap *h);
uint64_t symm_memloose_next(const symm_heap *h, uint64_t from);
symmResult_t symm_memloose_let(symm_heap *h, uint64_t no, const void *site);
/* The same for memory of symmLaneAlias that was trimmed. */
int symm_memalias_waiting(const symm_heap *h);
uint64_t symm_memalias_next(const symm_heap *h, uint64_t from);
symmResult_t symm_memalias_let(symm_heap *h, uint64_t no, const void *site);
/* A lane ends: what its captures hold lives on with their graphs. */
void symm_memplan_orphan(symm_memlane *l);
/* Blocks that outlive their graphs and are allocated; the heap has taken them along. */
int symm_memplan_live(const symm_memlanes *s);
void symm_memplan_forget(symm_memlanes *s);
/* The program's work on blocks of the heap's graphs that it has freed since has ended: waits for
 * it. Memory that waited for that goes back. */
symmResult_t symm_memlate_settle(symm_heap *h);
/* Waits for the same of one region, or of all. */
symmResult_t symm_memlate_reach(symm_memlanes *s, const struct symm_memregion *r);
/* Another lane stands in for one that ends, and its stream is behind that one's. */
symmResult_t symm_memlate_inherit(symm_memlane *l, const symm_memlane *heir);
void symm_memlate_end(symm_memlanes *s);
/* For symmRefGet: see symm_heap_access. */
int symm_memplan_access(void *set, uint64_t off, uint64_t *ranks);
/* For symmMemQuery: see symm_heap_inside. */
int symm_memplan_inside(void *set, uint64_t off, uint64_t *begin, uint64_t *bytes, int *lane);

/* ---- for calls of the communicator, which tell its observer: only where it has lanes --------- */

/* Before a call of the communicator is captured: may it be, beside the barriers that SYM blocks
 * have put into the same graph? */
symmResult_t symm_memplan_may_call(symm_comm *c, symmStream_t stream);
/* A call has been given to the stream. */
void symm_memlane_called(symm_comm *c, symmStream_t stream, int hears, int captured);
extern const symm_observer symm_memlane_observer;
/* The captured ones of these. hears: every rank hears from every rank. */
void symm_memplan_called(symm_comm *c, symmStream_t stream, int hears);

#endif
