/* arena_int.h - the records of an arena, and what its files call of each other. An arena uses
 * offsets only. It does not know addresses and does not touch its memory, which may be a GPU's.
 * upstream  where pieces come from; a heap, or a test global    the pieces, in one placement
 * engine: superblocks and large blocks super     the record of a superblock: who owns it, which
 * blocks begin in it. Found by offset, in one load sub       a sub-arena: an engine over its
 * superblocks, of a thread, a stream or a stripe guard     guard mode, around all of it; the only
 * part that looks at memory  A file calls only files that come before it in this list, but for the
 * pairs arena_global.c and arena_more.c, arena_core.c and arena_guard.c: arena_wait.c,
 * arena_global.c, arena_more.c, arena_sub.c, arena_bins.c, arena_threads.c, arena_core.c,
 * arena_guard.c, arena_gpu.c, arena_dump.c, arena.c.  Locks, in this order: the process's list of
 * arenas, an arena's list of subs, a sub's, its far_lock, the global part's, guard mode's. None is
 * held while a thread waits for a stream. */
#ifndef SYMM_ARENA_INT_H_
#define SYMM_ARENA_INT_H_

#include <pthread.h>
#include <stdatomic.h>

#include "base/check.h"
#include "machine/thread.h"
#include "host/place/place.h"
#include "host/stream/stream.h"

#define SYMM_ARENA_UNIT 256u

/* ---- order between streams: the host backend's, or a GPU's ----------------------------------- */

typedef struct {
    symm_order host;
    void *shared; /* GPUs: arena_gpu.c */
} symm_point;

/* Points are taken and waited for in any thread. Every point that was taken is dropped once. */
typedef struct {
    /* The point behind everything given to s so far. 0: there is nothing to wait for, and no point
     * was taken. -1: a point cannot be taken; this call has waited for the work instead. */
    int (*take)(void *ctx, symmStream_t s, symm_point *p);
    /* Work that s is given later comes after p. The host backend's NULL stream waits here. */
    symmResult_t (*wait)(void *ctx, symmStream_t s, const symm_point *p);
    symmResult_t (*reach)(void *ctx, const symm_point *p); /* this thread waits */
    void (*share)(void *ctx, const symm_point *p);         /* p will be dropped once more */
    void (*drop)(void *ctx, symm_point *p);
    /* 1: the work before the point has ended. 2: s itself has ended. p may be NULL: then only 2 is
     * asked for. Used to shorten lists, never to place. */
    int (*idle)(void *ctx, symmStream_t s, const symm_point *p);
    /* Whether s, which is not NULL, can be used: it lives, and is not being captured. */
    symmResult_t (*check)(void *ctx, symmStream_t s);
    /* Whether a call that is not on s may take a point of s and make s wait. 0 while s is being
     * captured. */
    int (*able)(void *ctx, symmStream_t s);
    /* Whether this thread may wait for s, which may be NULL. 0 while s, or a stream that the legacy
     * stream would wait for, is being captured. */
    int (*still)(void *ctx, symmStream_t s);
    void (*end)(void *ctx); /* all points were dropped */
    void *ctx;
    int recycles; /* the handle of a stream that is gone may become another stream's */
    int here;     /* who takes memory for the NULL stream waits itself */
    int dear;     /* a point costs driver calls: none is taken while one stream is alone */
} symm_arena_order;

struct symm_comm;
extern const symm_arena_order symm_arena_order_host;
/* Marks that no entry has now, for the next points: making an event costs more than recording
 * it. */
typedef struct {
    struct symm_comm *comm;
    pthread_mutex_t lock;
    void *unused;
} symm_arena_events;
/* The order of the communicator's streams (arena_gpu.c). e belongs to the arena and lives as
 * long. */
symm_arena_order symm_arena_order_of(struct symm_comm *c, symm_arena_events *e);

/* ---- records --------------------------------------------------------------------------------- */

typedef struct {
    void *ctx;
    uint64_t limit; /* of the offsets it gives */
    uint64_t align; /* largest it gives */
    int down;       /* it gives the highest first; limit is a multiple of align then */
    /* bytes: a multiple of the superblock. align: at least that. */
    symmResult_t (*take)(void *ctx, uint64_t bytes, uint64_t align, uint64_t *off);
    /* [off, off+bytes), which begins and ends where something that was taken does, or where it was
     * parted. */
    void (*give)(void *ctx, uint64_t off, uint64_t bytes);
    /* Bytes of the largest piece that take can find now. NULL: not known. */
    uint64_t (*room)(void *ctx);
    /* The three below are NULL if upstream is asked only once. take_at: takes exactly these bytes;
     * -1: not all are free. part: afterwards the bytes before off and those from off on may go back
     * separately; -1: not possible, nothing changed. hole: the free range around off; 0: off is not
     * free. */
    int (*take_at)(void *ctx, uint64_t off, uint64_t bytes);
    int (*part)(void *ctx, uint64_t off);
    int (*hole)(void *ctx, uint64_t off, uint64_t *begin, uint64_t *end);
} symm_upstream;

/* Of the unit at which a block begins; 0: none does. */
enum {
    SYMM_BLOCK_LIVE = 1u << 31,
    SYMM_BLOCK_KEPT = 1u << 30,
    SYMM_BLOCK_UNITS = SYMM_BLOCK_KEPT - 1
};

typedef struct symm_super {
    _Atomic(struct symm_sub *) owner; /* NULL: the global part */
    struct symm_super *next;          /* all of the arena's; the global lock */
    _Atomic uint32_t block[];         /* [units] */
} symm_super;

/* Blocks of one size that a thread freed last, its own and other threads'; the newest last. low:
 * the fewest there were since the last look at all bins, so as many were not needed since. Who may
 * use bins: see symm_bins_enter. */
enum {
    SYMM_KEEP_UNITS = 64,
    SYMM_KEEP_EACH = 62,
    SYMM_KEEP_BYTES = 256 << 10,
    SYMM_KEEP_CALLS = 1024 /* frees between two such looks */
};
typedef struct {
    uint32_t n, low;
    uint64_t off[SYMM_KEEP_EACH];
} symm_bin;

/* Not handles of streams. */
#define SYMM_STREAM_GONE   ((symmStream_t)(void *)UINTPTR_MAX)
#define SYMM_STREAM_NOBODY ((symmStream_t)(void *)(UINTPTR_MAX - 1))
#define SYMM_STREAM_MANY   ((symmStream_t)(void *)(UINTPTR_MAX - 2))
/* Memory that was freed on a stream, and the point behind which another stream may use it. */
typedef struct {
    uint64_t off, end;
    symmStream_t stream;
    uint64_t seq; /* of the point: of one stream, a higher one comes later; equal: the same point */
    symm_point point;
    int loose; /* no point was taken yet */
} symm_pending;
typedef struct {
    symm_pending *at;
    int n, cap;
    int loose;     /* how many are */
    int look_at;   /* with this many entries it is worth asking how far streams are */
    unsigned hand; /* the entry to ask about next */
} symm_pendings;

enum { SYMM_SUB_THREAD, SYMM_SUB_STREAM, SYMM_SUB_STRIPE, SYMM_SUB_ENDED };

enum { SYMM_SUB_LEFT = 16 };
typedef struct symm_sub {
    /* symm_thread_self of the thread whose NULL stream it is for; 0: none. On a cache line of its
     * own, because many threads read it. */
    struct {
        _Atomic uintptr_t self;
    } thread __attribute__((aligned(64)));
    pthread_mutex_t lock
        __attribute__((aligned(64))); /* everything below, except where another lock is named */
    struct symm_arena *arena;
    struct symm_sub *next; /* arena's list lock */
    symm_place *place;
    _Atomic(symmStream_t) stream; /* of a SYMM_SUB_STREAM */
    int ordinal;                  /* in order of creation: its name */
    _Atomic int kind;
    uint64_t supers;
    uint64_t calls, digest; /* of a stripe: symm_sub_tally */
    pthread_mutex_t
        far_lock; /* the next three: what others freed and this sub has not placed again yet */
    uint64_t *far;
    int nfar, far_cap;
    symm_pendings waits; /* of those that other streams freed */
    int awaiting;        /* so are some that are not in `waits`: do not place; far_lock */
    /* From here to the bins: symm_bins_enter. */
    _Atomic int busy __attribute__((aligned(64))); /* the thread is in them */
    _Atomic int barred;                            /* how many others want the thread to stay out */
    uint32_t frees;                                /* kept since the last look at all bins */
    _Atomic uint64_t kept;                         /* bytes in bins; may be read by all */
    symm_bin bin[SYMM_KEEP_UNITS + 1];
    uint64_t
        left[SYMM_SUB_LEFT]; /* of a stream: superblocks it gave back last; with the global lock */
    unsigned nleft;
} symm_sub;

typedef struct {
    uint64_t off, bytes;
    int loose; /* the lone stream has freed in it since its last point */
} symm_range;

typedef struct symm_arena {
    uint64_t serial; /* never used again, unlike addresses */
    /* The stream that alone has used the arena; SYMM_STREAM_NOBODY, SYMM_STREAM_MANY. Written under
     * the global lock. */
    _Atomic(symmStream_t) only;
    struct symm_arena *next;
    _Atomic(symm_sub *) mine[SYMM_THREAD_SLOTS]; /* see symm_sub_mine */
    symm_upstream up;
    const void *of;                 /* whose offsets these are; the process's list's lock */
    struct symm_arena_guard *guard; /* guard mode; else NULL */
    int looks; /* so many look at it, see symm_arenas_next; the process's list's lock */
    symm_arena_order order;
    char name[32];
    uint64_t limit, super, units, piece;
    uint64_t most;  /* bytes that it may hold: the limit; in guard mode red zones are added */
    uint64_t small; /* largest block of a sub */
    uint64_t keep;  /* units of the largest block that threads keep; 0: none */
    int first;      /* lowest address first, for all */
    unsigned shift; /* of super */
    int sym, stripes;
    _Atomic(symm_super *) *map; /* [up.limit / super] */
    uint64_t map_bytes;
    symm_super *all;
    pthread_mutex_t list_lock;
    symm_sub *subs;
    symm_sub **stripe; /* [stripes] */
    int nsubs;
    pthread_mutex_t lock; /* the global part: all below */
    symm_place *place;    /* in its own offsets: arena_global.c */
    symm_range *pieces;   /* by offset */
    int npieces, pieces_cap;
    uint64_t held, held_peak, supers, larges;
    uint64_t lately,
        look_after; /* bytes given since the last try to return some; bytes before the next try */
    symm_pendings pending;
    unsigned unchecked; /* test builds: checks since the last one of all pieces */
    _Atomic uint64_t waits, points;
} symm_arena;

typedef struct {
    uint64_t bytes, superblock, piece;
    int sym, stripes, late; /* late: SYMM_ARENA_LATE */
    const char *name;
    int first; /* SYMM_FIT_FIRST */
} symm_arena_options;

/* ---- locks, and what is true whenever they are free ------------------------------------------ */

/* Test builds: asserts it; of the global part, of a sub, of a list. With the lock. arena_wait.c. */
void symm_arena_check(symm_arena *a);
void symm_sub_check(symm_sub *sub);
void symm_pendings_check(const symm_pendings *list);

static inline void symm_arena_lock(symm_arena *a) {
    pthread_mutex_lock(&a->lock);
    SYMM_CHECK(symm_arena_check(a));
}
static inline void symm_arena_unlock(symm_arena *a) {
    SYMM_CHECK(symm_arena_check(a));
    pthread_mutex_unlock(&a->lock);
}
static inline void symm_sub_lock(symm_sub *sub) {
    pthread_mutex_lock(&sub->lock);
    SYMM_CHECK(symm_sub_check(sub));
}
static inline void symm_sub_unlock(symm_sub *sub) {
    SYMM_CHECK(symm_sub_check(sub));
    pthread_mutex_unlock(&sub->lock);
}

/* ---- arena_core.c ---------------------------------------------------------------------------- */

symmResult_t symm_arena_new(const symm_upstream *up, const symm_arena_order *order,
                            const symm_arena_options *o, symm_arena **arena);
void symm_arena_end(symm_arena *a);
symmResult_t symm_arena_take(symm_arena *a, symmStream_t s, uint64_t bytes, uint64_t align,
                             uint64_t *off);
symmResult_t symm_arena_take_on(symm_arena *a, int stripe, uint64_t bytes, uint64_t align,
                                uint64_t *off);
symmResult_t symm_arena_give(symm_arena *a, symmStream_t s, uint64_t off);
/* symmInvalidArgument that says why no live block begins at off. */
symmResult_t symm_arena_refuse(symm_arena *a, uint64_t off);
/* The live block that holds off. 0: none does. */
int symm_arena_block(symm_arena *a, uint64_t off, uint64_t *begin, uint64_t *bytes);
void symm_arena_stream_end(symm_arena *a, symmStream_t s);
/* All bins of all threads are emptied. */
void symm_arena_reclaim(symm_arena *a);
/* Empty superblocks of all subs go to the global part. */
void symm_arena_defragment(symm_arena *a);
uint64_t symm_arena_trim(symm_arena *a);

static inline symmStream_t symm_sub_stream(const symm_sub *sub) {
    return atomic_load_explicit(&sub->stream, memory_order_relaxed);
}

/* ---- arena_threads.c ------------------------------------------------------------------------- */

/* The sub of this thread (s NULL) or of a stream; found or made. NULL for a thread that is
 * ending. */
symmResult_t symm_sub_for(symm_arena *a, symmStream_t s, symm_sub **sub);
/* 1 if sub is for the NULL stream of this thread, which is not ending. */
static inline int symm_sub_is_mine(const symm_sub *sub) {
    return atomic_load_explicit(&sub->thread.self, memory_order_relaxed) == symm_thread_self();
}
/* Whether it is still that stream's, or (s NULL) this thread's. */
static inline int symm_sub_is(const symm_sub *sub, symmStream_t s) {
    if (!s) return symm_sub_is_mine(sub);
    return atomic_load_explicit(&sub->kind, memory_order_relaxed) == SYMM_SUB_STREAM &&
           symm_sub_stream(sub) == s;
}
/* This thread's sub; NULL if it has none. The arena's table has the subs of the threads that came
 * first: found without a call and without a thread-local variable. The others are searched. */
symm_sub *symm_sub_look(symm_arena *a);
static inline symm_sub *symm_sub_mine(symm_arena *a) {
    /* Pairs with the release in remember: the sub is complete. */
    symm_sub *sub =
        atomic_load_explicit(&a->mine[symm_thread_slot(symm_thread_self())], memory_order_acquire);
    return __builtin_expect(sub && symm_sub_is_mine(sub), 1) ? sub : symm_sub_look(a);
}
/* Threads that end can find the arena from now on. */
void symm_arena_enlist(symm_arena *a);
void symm_arena_delist(symm_arena *a);
/* Its offsets are those of `of`, and symm_arenas_next finds it. */
void symm_arena_is_of(symm_arena *a, const void *of);
/* One after the other, the arenas whose offsets are of's: the first (last NULL), or the next one
 * and `last` is let go. NULL: there is none. An arena does not end before it is let go. No lock is
 * held. */
symm_arena *symm_arenas_next(const void *of, symm_arena *last);
void symm_arenas_leave(
    symm_arena *a); /* lets go of one, NULL too, where the others do not matter */
/* Its thread or stream has ended: its superblocks go as they become empty, or another takes them
 * over. list_lock. */
void symm_sub_close(symm_sub *sub);

/* ---- arena_sub.c ----------------------------------------------------------------------------- */

symm_sub *symm_sub_new(symm_arena *a, int kind, symmStream_t s);
void symm_sub_free(symm_sub *sub);
/* Places again what others freed. may_wait: the sub's stream is made to wait for them; 0: only if
 * their work has ended. lock, which is released in between if the thread must wait. */
symmResult_t symm_sub_drain(symm_sub *sub, int may_wait);
/* Empty superblocks go to the global part, but for `keep` of them. lock. */
void symm_sub_tidy(symm_sub *sub, uint64_t keep);
symmResult_t symm_sub_take(symm_sub *sub, uint64_t bytes, uint64_t align, int last, uint64_t *off);
/* The number of calls that changed a stripe, and a digest of them; equal on ranks that make the
 * same calls in one order. */
void symm_sub_tally(symm_sub *sub, uint64_t *calls, uint64_t *digest);
/* A block of this sub; its mark is cleared already. */
void symm_sub_give(symm_sub *sub, uint64_t off);
void symm_sub_give_far(symm_sub *sub, uint64_t off, symmStream_t s);
/* Bytes of the blocks that others have freed and that are not placed again yet. lock. */
uint64_t symm_sub_far_bytes(symm_sub *sub);
/* Places a free block of this sub again; its mark is cleared already. lock. */
void symm_sub_place(symm_sub *sub, uint64_t off);

/* ---- arena_bins.c ---------------------------------------------------------------------------- */

/* Three ways to use bins:
 * - their thread, between enter and leave, without a lock;
 * - their thread, with the sub's lock;
 * - another thread with the sub's lock, between bar and unbar.
 * enter returns 0 if somebody bars the bins; then the thread must take the lock. The store to busy
 * must come before the load of barred: whoever bars makes it so (symm_bins_bar: membarrier), or,
 * where the system has no membarrier, the exchange does. The load of barred pairs with the release
 * in symm_bins_unbar. */
extern int symm_bins_fenced; /* 1: membarrier is used. Written before there is an arena */
static inline int symm_bins_enter(symm_sub *sub) {
    if (__builtin_expect(symm_bins_fenced, 1)) {
        atomic_store_explicit(&sub->busy, 1, memory_order_relaxed);
        atomic_signal_fence(memory_order_seq_cst);
    } else {
        atomic_exchange_explicit(&sub->busy, 1, memory_order_seq_cst);
    }
    if (__builtin_expect(!atomic_load_explicit(&sub->barred, memory_order_seq_cst), 1)) return 1;
    atomic_store_explicit(&sub->busy, 0, memory_order_release);
    return 0;
}
/* Pairs with the acquire in symm_bins_bar. */
static inline void symm_bins_leave(symm_sub *sub) {
    atomic_store_explicit(&sub->busy, 0, memory_order_release);
}
/* Once, before the first arena. */
void symm_bins_open(void);
/* From now on the thread stays out of its bins and is not in them. 0: it does not leave them.
 * lock. */
int symm_bins_bar(symm_sub *sub);
void symm_bins_unbar(symm_sub *sub);
/* Empties all bins: own blocks into the engine, other threads' blocks to their owners. The thread,
 * or barred. lock, which may be released in between. */
void symm_sub_flush(symm_sub *sub);
/* Empties one bin, but for its newest `leave` blocks. As above. */
void symm_sub_flush_bin(symm_sub *sub, uint32_t units, uint32_t leave);
/* Makes room in the bin, and gives back what was not needed lately. The thread, outside enter and
 * leave. */
void symm_bins_shrink(symm_sub *sub, uint32_t units);
/* Blocks that others freed, with no point to wait for, go into the bins of the sub's thread, as if
 * it had freed them. The thread. Returns how many. */
int symm_sub_collect(symm_sub *sub);

/* ---- arena_global.c -------------------------------------------------------------------------- */

static inline symm_super *symm_super_at(const symm_arena *a, uint64_t off) {
    /* pairs with the release in symm_super_make */
    return off < a->up.limit ? atomic_load_explicit(&a->map[off >> a->shift], memory_order_acquire)
                             : NULL;
}
/* Adjacent superblocks for sub, or a large block (sub NULL). s: who will use it. last: this is the
 * last try, so an error has a text; else it is symmOutOfMemory without one. */
symmResult_t symm_global_take(symm_arena *a, symm_sub *sub, symmStream_t s, uint64_t bytes,
                              uint64_t align, int last, uint64_t *off);
/* A superblock of sub, or a large block (sub NULL). -1: none begins there; nothing changed. */
int symm_global_give(symm_arena *a, symm_sub *sub, symmStream_t s, uint64_t off);
/* s uses the arena from now on. symmOutOfMemory: nothing has changed. */
symmResult_t symm_global_meet(symm_arena *a, symmStream_t s);
static inline symmResult_t symm_arena_meet(symm_arena *a, symmStream_t s) {
    const symmStream_t only = atomic_load_explicit(&a->only, memory_order_relaxed);
    return __builtin_expect(only == SYMM_STREAM_MANY || only == s, 1) ? symmSuccess
                                                                      : symm_global_meet(a, s);
}
/* s has ended. */
void symm_global_stream_end(symm_arena *a, symmStream_t s);
/* The piece, block or hole, that holds off. 0: the global part has no memory there. lock. */
int symm_global_at(const symm_arena *a, uint64_t off, symm_piece *piece);
/* Enters [off, off+bytes) into records and engine. lock. */
symmResult_t symm_global_add(symm_arena *a, uint64_t off, uint64_t bytes);
/* The list of pieces has room for one more. -1: no memory. lock. */
int symm_global_room(symm_arena *a);
/* The opposite. -1: something uses the bytes, or no memory; nothing changed. lock. */
int symm_global_cut(symm_arena *a, uint64_t off, uint64_t bytes);
/* Lists what the lone stream has freed in the piece as entries. -1: no memory. lock. */
int symm_global_list(symm_arena *a, symm_range *r);
/* Returns unused pieces in [off, end) to upstream until at most `keep` free bytes are left. lock.
 * Returns bytes. */
uint64_t symm_global_return(symm_arena *a, uint64_t off, uint64_t end, uint64_t keep);
/* A record for the superblock at off; NULL: no memory. Only superblocks of subs have one. */
symm_super *symm_super_make(symm_arena *a, uint64_t off);

/* ---- arena_more.c ---------------------------------------------------------------------------- */

/* Makes room for the block: from upstream, beside a hole, or in exchange for unused memory. last:
 * as above. lock. */
symmResult_t symm_global_more(symm_arena *a, uint64_t bytes, uint64_t align, int last);
/* Returns all unused superblocks to upstream. lock. Returns bytes. */
uint64_t symm_global_return_parts(symm_arena *a);
/* This thread waits for all work before a free that it may wait for. No locks. */
void symm_arena_await(symm_arena *a);

/* ---- arena_wait.c ---------------------------------------------------------------------------- */

/* Lists that [off, end) was freed on s just now. If there is no memory for that, waits for the work
 * of s. */
void symm_pending_add(symm_arena *a, symm_pendings *list, uint64_t off, uint64_t end,
                      symmStream_t s);
/* Lists that [off, end) was freed on s some time ago. Its point is taken when one is needed, or at
 * the next add of s. -1: no memory. */
int symm_pending_loose(symm_pendings *list, uint64_t off, uint64_t end, symmStream_t s);
/* Takes the point of such entries now. */
void symm_pending_settle(symm_arena *a, symm_pendings *list, symmStream_t s);
/* Whether s can be made to wait now. A function that a stream runs must not wait itself. */
int symm_pending_may_wait(const symm_arena *a, symmStream_t s);
/* Not NULL: s cannot have [off, end) now, because of that entry: it was freed on another stream,
 * whose point is needed and cannot be taken, or is not reached, and s must not wait. */
const symm_pending *symm_pending_barred(const symm_arena *a, const symm_pendings *list,
                                        uint64_t off, uint64_t end, symmStream_t s);
/* s takes [off, end): entries on it leave the list, and those of other streams go to *out. */
void symm_pending_for(symm_arena *a, symm_pendings *list, uint64_t off, uint64_t end,
                      symmStream_t s, symm_pendings *out);
/* Moves all of *from into the list, points as they are. */
void symm_pending_return(symm_arena *a, symm_pendings *list, symm_pendings *from);
/* s has ended. A later stream with its handle waits as others do. */
void symm_pending_disown(symm_pendings *list, symmStream_t s);
/* 1 if work on [off, end) may still run. Asks how far streams are, so it must not decide placement.
 * *stands: the entry that was not reached the last time, which is not asked about again; begins as
 * SYMM_PENDING_NONE. */
#define SYMM_PENDING_NONE \
    { .loose = 1 }
int symm_pending_busy(symm_arena *a, symm_pendings *list, uint64_t off, uint64_t end,
                      symm_pending *stands);
/* s waits for all of the list, which is empty afterwards; after an error it is as before. */
symmResult_t symm_pending_wait(symm_arena *a, symm_pendings *list, symmStream_t s);
/* Copies entries that have a point, or can get one now, to *out; as many as there is memory for. */
void symm_pending_copy(symm_arena *a, symm_pendings *list, symm_pendings *out);
/* This thread waits for all entries that it may wait for. The list is empty afterwards. */
void symm_pending_reach(const symm_arena *a, symm_pendings *list);
void symm_pending_clear(const symm_arena *a, symm_pendings *list);

/* ---- arena_guard.c --------------------------------------------------------------------------- */

typedef struct symm_arena_guard symm_arena_guard;
struct symm_heap;
/* a is in guard mode from now on if its heap h is. After an error symm_arena_end frees what was
 * made. */
symmResult_t symm_arena_guard_new(symm_arena *a, struct symm_heap *h);
void symm_arena_guard_end(symm_arena_guard *g);
/* As symm_arena_take, take_on (of a symmetric arena) and give, in guard mode. give waits for the
 * work of s. */
symmResult_t symm_arena_guard_take(symm_arena *a, int stripe, symmStream_t s, uint64_t bytes,
                                   uint64_t align, uint64_t *off);
symmResult_t symm_arena_guard_give(symm_arena *a, symmStream_t s, uint64_t off);
/* The bytes that were asked for, of the block that begins there. 0: off is behind them, or the
 * block is being taken or freed. */
int symm_arena_guard_narrow(symm_arena_guard *g, uint64_t begin, uint64_t off, uint64_t *bytes);
/* Bytes of red zones in all blocks, rounded as blocks are. */
uint64_t symm_arena_guard_red(symm_arena_guard *g);
/* Looks at red zones and holes, while other threads take and free. symmInvalidUsage telling the
 * first damage. */
symmResult_t symm_arena_guard_check(symm_arena *a);

/* ---- arena_dump.c ---------------------------------------------------------------------------- */

struct symm_arena_counts {
    uint64_t held, held_peak, assigned, used, kept, largest, supers, larges;
    int subs[4]; /* by kind */
};
void symm_arena_count(symm_arena *a, struct symm_arena_counts *n);
symmResult_t symm_arena_write(symm_arena *a, int fd);

#endif
