/* heap_int.h - the record of a heap, for the files of heaps and for those vectors and lanes that
 * need more than heap.h. A file calls only files that come before it in this list:
 *   heap_sizes.c    sizes of vectors, to and from other hosts
 *   heap.c          references, lists of heaps, finding a heap
 *   heap_graph_range.c  addresses that belong to no zone
 *   heap_guard.c    guard mode
 *   heap_block.c    blocks: take, give back
 *   heap_stripes.c  compares calls on the stripes of symmetric arenas
 *   heap_grow.c     memory behind the zones
 *   heap_tidy.c     trim, collect, check
 *   heap_create.c   create and destroy
 *   heap_api.c      public calls on blocks; heap_dump.c: pictures; heap_window.c: for collectives
 *
 * A zone counts its own offsets up from 0. Those of SYM are the heap's, those of LOCAL run against
 * them (zone offset z of a piece is reserve - off - bytes), so one code serves both.
 * Lock: h->lock guards both zones, what waits for symmHeapCollect and the digest. It is held for
 * one placement, or in guard mode for a look at 16 KiB. The communicator's user thread changes what
 * only collective calls change (chunks, extents) with the lock, and may read it without. */
#ifndef SYMM_HOST_HEAP_INT_H_
#define SYMM_HOST_HEAP_INT_H_

#include "base/check.h"
#include "host/place/place.h"
#include "host/window/handle_exchange.h"
#include "host/window/region.h"
#include "host/window/window.h"
#include "heap.h"
#include "ledger.h"

enum { SYMM_ZONE_SYM, SYMM_ZONE_LOCAL, SYMM_ZONES };

typedef struct {
    symm_place *place;
    symm_part *chunks; /* in zone offsets, in order */
    int count, cap;
    _Atomic uint64_t bytes; /* of all chunks; symmCommQuery reads it from any thread, as apart */
    uint64_t skipped;       /* bytes of chunks that the last trim found in use; with the lock */
    uint64_t extent;        /* end of the highest chunk; read without the lock: symm_zone_extent */
} symm_zone;

/* Read without the lock to tell the zone of an offset. Relaxed: it orders nothing. */
static inline uint64_t symm_zone_extent(const symm_zone *z) {
    return __atomic_load_n(&z->extent, __ATOMIC_RELAXED);
}
static inline void symm_zone_set_extent(symm_zone *z, uint64_t extent) {
    __atomic_store_n(&z->extent, extent, __ATOMIC_RELAXED);
}

typedef struct { /* heap_graph_range.c */
    uint64_t off, bytes;
    int lane, uncollected;
} symm_graph_range;

typedef struct symm_left { /* a region that was left; pointers into it may still be in use */
    struct symm_left *next;
    symm_region region;
} symm_left;

struct symm_heap {
    symm_win win;     /* what collectives find: the whole range, of which a part is mapped */
    _Atomic int refs; /* handle, windows of captured calls, objects made of it */
    void *handle;
    int kind;                   /* SYMM_KIND_HEAP, _VEC or _DEVCOMM */
    int closed;                 /* the order of calls has ended; with the lock */
    int fixed;                  /* a vector that must not move (SYMM_VEC_FIXED) */
    struct symm_heap *next;     /* communicator's list */
    struct symm_heap *next_all; /* process's table */
    symm_comm *comm;
    symm_region region;
    struct symm_left *left; /* regions that the heap has moved out of */
    uint32_t id;            /* equal on all ranks */
    int fit, guard;
    uint64_t reserve, chunk, granularity;
    char name[32];
    _Atomic int lock;
    symm_zone zone[SYMM_ZONES];
    uint64_t local_extent; /* the largest of any rank */
    uint64_t uncollected_bytes;
    symm_graph_range
        *graph_ranges; /* by offset; equal on all ranks, except which were given back */
    int ngraph_ranges, graph_range_cap;
    _Atomic uint64_t
        apart; /* bytes of memory that objects made of the heap have mapped in graph ranges */
    uint64_t calls, digest;
    uint64_t share; /* this heap's part of the communicator's digest */
    symm_ledger *ledger;
    struct symm_sizes *sizes; /* a vector, ranks of several hosts; else NULL */
    symm_stripes *stripes;    /* heap_stripes.c; by age */
    uint32_t stripes_made;
    struct { /* who knows the smaller blocks inside those of an owner; with the lock */
        symm_heap_inside find;
        symm_heap_look check;
        symm_heap_access access;
        void *arg, *check_arg, *access_arg;
    } inside[SYMM_OWNER_HEAP + 1];
    const symm_heap_guest *guest; /* the communicator's user thread */
    unsigned unchecked; /* test builds: checks since the last one of chunks and graph ranges */
    char damage[SYMM_GUARD_TEXT]; /* guard mode: the first damage found; with the lock */
};

/* Calls that enter the digest. */
enum { SYMM_OP_ALLOC = 1, SYMM_OP_FREE, SYMM_OP_COLLECT, SYMM_OP_RESIZE };

static inline uint64_t symm_heap_round(uint64_t n, uint64_t to) {
    return (n + to - 1) / to * to;
}

/* ---- heap_sizes.c ---- */
/* What a communicator over several hosts keeps of one vector: which peers know its size, and what
 * they said. */
typedef struct symm_sizes symm_sizes;
symm_sizes *symm_sizes_new(int nranks); /* zeroed; NULL: no memory */
/* From now on sizes of that vector are heard, until unlink, which takes s over. */
void symm_sizes_link(symm_comm *c, symm_sizes *s, uint32_t heap, symm_ledger *ledger);
void symm_sizes_unlink(symm_comm *c, symm_sizes *s);
/* The end of a communicator: after its watcher has ended. */
void symm_sizes_drop_all(symm_comm *c);
/* Before the mesh is connected: takes sizes that come over it. Does nothing on one host. */
void symm_sizes_listen(symm_comm *c);
/* This rank's size: to all ranks. Never waits, never fails. shrunk: at the end of a shrinking. */
void symm_heap_publish(symm_heap *h, uint64_t bytes, int shrunk);
/* ---- heap.c ---- */
/* Not a mutex: that costs two locked instructions and two calls, a twelfth of symmHeapAlloc. */
void symm_heap_wait(symm_heap *h);
/* Test builds: asserts what is true of h whenever its lock is free. With the lock. */
void symm_heap_check(symm_heap *h);
#define SYMM_HEAP_LOCKED(h) SYMM_ASSERT(atomic_load_explicit(&(h)->lock, memory_order_relaxed))
static inline void symm_heap_lock(symm_heap *h) {
    /* Pairs with the release in symm_heap_unlock. */
    if (__builtin_expect(atomic_exchange_explicit(&h->lock, 1, memory_order_acquire), 0))
        symm_heap_wait(h);
    SYMM_CHECK(symm_heap_check(h));
}
static inline void symm_heap_unlock(symm_heap *h) {
    SYMM_CHECK(symm_heap_check(h));
    atomic_store_explicit(&h->lock, 0, memory_order_release);
}
/* Frees a record that no list and no handle knows. */
void symm_heap_free_record(symm_heap *h);
/* Adds h to the lists in which the communicator and the process find their heaps. */
void symm_heap_link(symm_comm *c, symm_heap *h);
/* h->win becomes the window over h->region. */
void symm_heap_set_window(symm_heap *h);
/* Takes h out of the lists and puts its handle's reference. */
void symm_heap_close(symm_comm *c, symm_heap *h);
symmResult_t symm_heap_enter_kind(int kind, const void *handle, int live, symm_heap **out);
symmResult_t symm_heap_pin_kind(int kind, const void *handle, symm_heap **out);
/* The heap moves to `to`. `left` keeps the region that it leaves. */
void symm_heap_move(symm_heap *h, const symm_region *to, symm_left *left);
/* Closes regions that were left, unless captured calls may know them. */
void symm_heap_forget(symm_heap *h);
/* Tells the handle the addresses of SYM, for symmHeapFree, after they have changed. The
 * communicator's user thread. */
void symm_heap_say_range(const symm_heap *h);
/* ---- heap_window.c ---- */
extern const symm_win_source symm_heap_windows;
void symm_heap_drop_all(symm_comm *c);
uint64_t symm_heap_all_bytes(symm_comm *c);
/* The heap of this process whose own part holds ptr, with one more reference; or NULL. Any
 * thread. */
symm_heap *symm_heap_of(const void *ptr);

/* ---- heap_block.c ---- */
static inline uint64_t symm_zone_flip(const symm_heap *h, int zone, uint64_t z, uint64_t bytes) {
    return zone == SYMM_ZONE_SYM ? z : h->reserve - z - bytes;
}
/* The zone that off lies in; -1 between them. */
int symm_heap_zone(const symm_heap *h, uint64_t off);
enum {
    SYMM_UNCOLLECTED = 1,
    SYMM_UNCOLLECTED_BUSY
};               /* BUSY: just taken or freed, guard mode paints it */
typedef struct { /* a block as the heap knows it */
    uint64_t off, bytes;
    int zone, owner, lane, uncollected;
    uint64_t z, room; /* zone offset and size of what is placed */
} symm_block;
/* The block that holds off; 0 if none does. With the lock. */
int symm_heap_find(const symm_heap *h, uint64_t off, symm_block *b);
/* Enters a call on SYM into digest and ledger. With the lock. */
void symm_heap_count(symm_heap *h, int op, uint64_t size, uint64_t align, int lane, uint64_t off,
                     const void *site);

/* Vectors: the one block, at offset 0, gets this size. Its memory is mapped. Cannot fail after
 * try_resize. */
symmResult_t symm_heap_resize(symm_heap *h, uint64_t bytes, const void *site);
/* Afterwards what the record of that size needs is reserved, whether or not its memory is mapped.
 * Nothing else changes. */
symmResult_t symm_heap_try_resize(symm_heap *h, uint64_t bytes);

/* ---- heap_create.c ---- */
/* [collective] A heap, or the one of a vector: config checked here, its name copied. status: this
 * rank's so far. fixed: a vector that must not move. */
symmResult_t symm_heap_create(symm_comm *c, symmResult_t status, int kind, int fixed,
                              symmHeapConfig_t *config, symm_heap **out);

/* ---- heap_grow.c ---- */
/* As symm_heap_more, in a larger region: all that SYM has is mapped there too. LOCAL is empty.
 * [collective] */
symmResult_t symm_heap_relocate(symm_heap *h, symmResult_t mine, uint64_t reserve, uint64_t sym,
                                const char *stage);
/* heap_tidy.c: symmHeapTrim. [collective] */
symmResult_t symm_heap_trim(symm_heap *h, symmResult_t status, uint64_t keep, uint64_t *freed);
/* A vector shrinks to `bytes` and its memory goes, on all ranks or on none. site: of the call.
 * [collective] */
symmResult_t symm_heap_shorten(symm_heap *h, symmResult_t status, uint64_t bytes, const void *site);
typedef struct {
    uint64_t sym, local;
} symm_more;
/* [collective] mine: this rank's status so far. */
symmResult_t symm_heap_more(symm_heap *h, symmResult_t mine, symm_more more, const char *stage);
/* In a collective call on h that all ranks have entered: symmMismatch, on all ranks, if their calls
 * on SYM differ. */
symmResult_t symm_heap_compare(const symm_heap *h, uint64_t digest0, uint64_t digest, int rank,
                               const char *stage);

/* ---- heap_stripes.c ---- */
/* Equal on ranks that have made the same calls on every stripe. */
uint64_t symm_heap_stripes_word(const symm_heap *h);
/* Called if the words differ between ranks, which all know: symmMismatch, on all ranks, that names
 * the stripe. still: no thread uses stripes meanwhile; else only stripes with equal numbers of
 * calls can be compared. [collective] */
symmResult_t symm_heap_stripes_compare(symm_heap *h, int still, const char *stage);

/* ---- heap_graph_range.c ---- */
/* The graph range that holds off; 0 if none does. With the lock. */
int symm_heap_graph_range_at(const symm_heap *h, uint64_t off, symm_graph_range *range);
/* The first graph range that ends behind `at`, in the zone's offsets; off UINT64_MAX: none. With
 * the lock, or in the user thread. */
symm_part symm_heap_next_graph_range(const symm_heap *h, int zone, uint64_t at);
/* Every rank has given the graph range back: unmaps what this rank has mapped there. Returns the
 * first error; the graph range is gone in any case. */
symmResult_t symm_heap_graph_range_end(symm_heap *h, uint64_t off);

#endif
