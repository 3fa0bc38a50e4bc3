/* arena_fix.h - an arena over offsets, for unit_arena.c and unit_arena_threads.c: opened, used,
 * closed with nothing left upstream. */
#ifndef ARENA_FIX_H_
#define ARENA_FIX_H_

#include <stdlib.h>

#include "t.h"
#include "arena_kit.h"

#define KB AK_KB
#define MB AK_MB
#define U  ((uint64_t)SYMM_ARENA_UNIT)

typedef struct {
    ak_upstream up;
    symm_arena *a;
} fix;

static inline fix *open_fix(uint64_t limit, uint64_t super, uint64_t piece, int stripes) {
    fix *f = calloc(1, sizeof *f);
    T_CHECK(f && ak_open(&f->up, limit > AK_GB ? limit : AK_GB) == 0);
    T_OK(ak_arena(&f->up, limit, super, piece, stripes, &f->a));
    return f;
}

static inline void close_fix(fix *f) {
    symm_place_stats s;
    symm_arena_end(f->a);
    symm_place_measure(f->up.place, &s);
    T_EQ(s.used, 0); /* all came back */
    ak_close(&f->up);
    free(f);
}

static inline uint64_t take_as(fix *f, symmStream_t s, uint64_t bytes, uint64_t align) {
    uint64_t off = 0;
    T_OK(symm_arena_take(f->a, s, bytes, align, &off));
    T_EQ(off % (align ? align : U), 0);
    return off;
}

static inline uint64_t take(fix *f, uint64_t bytes) {
    return take_as(f, NULL, bytes, U);
}

static inline void give(fix *f, uint64_t off) {
    T_OK(symm_arena_give(f->a, NULL, off));
}

static inline struct symm_arena_counts count(fix *f) {
    struct symm_arena_counts n;
    symm_arena_count(f->a, &n);
    return n;
}

#endif
