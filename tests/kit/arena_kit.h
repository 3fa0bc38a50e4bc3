/* arena_kit.h - an arena over an upstream of offsets: no heap, no memory. For unit_arena.c and
 * bench_memory.c. Any thread may take and give upstream, under the kit's lock. */
#ifndef ARENA_KIT_H_
#define ARENA_KIT_H_

#include <errno.h>
#include <pthread.h>

#include "host/arena/arena_int.h"

#define AK_KB (1ull << 10)
#define AK_MB (1ull << 20)
#define AK_GB (1ull << 30)

typedef struct {
    symm_place *place;
    pthread_mutex_t lock;
    uint64_t takes, gives, given, bytes, super; /* given: bytes */
    int down;                                   /* the highest first, as a heap's LOCAL zone */
} ak_upstream;

static inline uint64_t ak_flip(const ak_upstream *u, uint64_t off, uint64_t bytes) {
    return u->down ? u->bytes - off - bytes : off;
}

/* Of one that gives the highest first the end is what is aligned: a whole number of alignments,
 * less what lies behind. */
static inline symmResult_t ak_take(void *ctx, uint64_t bytes, uint64_t align, uint64_t *off) {
    ak_upstream *u = ctx;
    const uint64_t whole = u->down ? (bytes + align - 1) & -align : bytes;
    pthread_mutex_lock(&u->lock);
    *off = symm_place_take(u->place, whole, align, 0, NULL);
    if (*off != SYMM_PLACE_NONE && whole > bytes) {
        symm_place_give(u->place, *off);
        *off += whole - bytes;
        if (symm_place_take_at(u->place, *off, bytes, 0)) *off = SYMM_PLACE_NONE;
    }
    u->takes++;
    pthread_mutex_unlock(&u->lock);
    if (*off == SYMM_PLACE_NONE)
        return SYMM_ERR(symmNeedGrow, "upstream has not %llu bytes", (unsigned long long)bytes);
    *off = ak_flip(u, *off, bytes);
    return symmSuccess;
}

/* In the engine's offsets, of the piece that holds off; p->used 0: none does. */
static inline int ak_at(const ak_upstream *u, uint64_t off, symm_piece *p) {
    const uint64_t at = ak_flip(u, off, SYMM_PLACE_UNIT);
    return off < u->bytes && symm_place_at(u->place, at, p) && p->off <= at;
}

static inline void ak_give(void *ctx, uint64_t off, uint64_t bytes) {
    ak_upstream *u = ctx;
    symm_piece q;
    pthread_mutex_lock(&u->lock);
    for (uint64_t end = off + bytes; off < end; off += q.bytes) {
        if (!ak_at(u, off, &q) || !symm_place_give(u->place, q.off)) break;
        u->gives++;
        u->given += q.bytes;
    }
    pthread_mutex_unlock(&u->lock);
}

static inline int ak_take_at(void *ctx, uint64_t off, uint64_t bytes) {
    ak_upstream *u = ctx;
    pthread_mutex_lock(&u->lock);
    const int bad = symm_place_take_at(u->place, ak_flip(u, off, bytes), bytes, 0);
    pthread_mutex_unlock(&u->lock);
    return bad;
}

static inline int ak_part(void *ctx, uint64_t off) {
    ak_upstream *u = ctx;
    symm_piece q = {0};
    pthread_mutex_lock(&u->lock);
    int bad = !ak_at(u, off, &q) || !q.used;
    const uint64_t begin = ak_flip(u, q.off, q.bytes), first = off - begin;
    if (!bad && first) bad = symm_place_split(u->place, q.off, u->down ? q.bytes - first : first);
    pthread_mutex_unlock(&u->lock);
    return bad;
}

static inline int ak_hole(void *ctx, uint64_t off, uint64_t *begin, uint64_t *end) {
    ak_upstream *u = ctx;
    symm_piece q = {0};
    pthread_mutex_lock(&u->lock);
    const int found = ak_at(u, off, &q) && !q.used;
    pthread_mutex_unlock(&u->lock);
    *begin = ak_flip(u, q.off, q.bytes);
    *end = *begin + q.bytes;
    return found;
}

static inline int ak_open(ak_upstream *u, uint64_t bytes) {
    *u = (ak_upstream){.bytes = bytes, .place = symm_place_new(SYMM_PLACE_FIRST)};
    pthread_mutex_init(&u->lock, NULL);
    return u->place ? symm_place_add(u->place, 0, bytes) : -1;
}

static inline void ak_close(ak_upstream *u) {
    symm_place_end(u->place);
    pthread_mutex_destroy(&u->lock);
}

static inline symmResult_t ak_arena(ak_upstream *u, uint64_t limit, uint64_t super, uint64_t piece,
                                    int stripes, symm_arena **a) {
    symm_upstream up = {u,       u->bytes, 2 * AK_MB,  u->down, ak_take,
                        ak_give, NULL,     ak_take_at, ak_part, ak_hole};
    symm_arena_options o = {limit, super, piece, stripes > 0, stripes, 0, "test", 0};
    u->super = super;
    return symm_arena_new(&up, &symm_arena_order_host, &o, a);
}

#endif
