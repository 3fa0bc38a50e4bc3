/* gplan.h - placement of the blocks of a graph: the graph's points, their order, and offsets that
 * follow from it. Pure: no memory but its own, no clock, no address, no CUDA. Equal calls give
 * equal offsets in any process. Not thread-safe: the owner locks.
 *
 * Two blocks that may be alive at the same time never overlap. A block may reuse the place of
 * another if its first point comes after the other's last one. With SYM blocks of several ranks a
 * HEAR point must lie between, because another rank may be behind. */
#ifndef SYMM_GPLAN_H_
#define SYMM_GPLAN_H_

#include <stdint.h>

enum { SYMM_MEM_LOCAL, SYMM_MEM_SYM, SYMM_MEM_ZONES };
#define SYMM_GPLAN_NONE UINT64_MAX
/* Memory that may be left unused to spare a HEAR, at the least: see symm_gplan_alloc. */
#define SYMM_GPLAN_FLOOR (32ull << 10)

enum {
    SYMM_POINT_PLAIN,
    /* every rank hears from every rank: what comes after it is after all that any rank did
     * before */
    SYMM_POINT_HEAR
};

typedef struct symm_gplan symm_gplan;

symm_gplan *symm_gplan_new(int nranks); /* NULL: no memory */
void symm_gplan_end(symm_gplan *p);

/* Adds a point that comes after those given, and after all that they come after. Returns its
 * number, from 0; -1: no memory. */
int symm_gplan_point(symm_gplan *p, int kind, const int *after, int n);
int symm_gplan_points(const symm_gplan *p);
/* 1 if `point` is `earlier` or comes after it. */
int symm_gplan_follows(const symm_gplan *p, int point, int earlier);
/* 1 if a HEAR point is `point` or lies before it. */
int symm_gplan_heard(const symm_gplan *p, int point);
/* 1 if every HEAR point is `point` or lies before it. */
int symm_gplan_after_all(const symm_gplan *p, int point);

/* Blocks may be placed in [off, off+bytes), which joins ranges that it touches. -1: no memory. */
int symm_gplan_offer(symm_gplan *p, int zone, uint64_t off, uint64_t bytes);
/* No block is placed there any more, unless it is offered again. Bars in it are removed. -1: no
 * memory. */
int symm_gplan_withdraw(symm_gplan *p, int zone, uint64_t off, uint64_t bytes);
/* Nothing is placed there until it is withdrawn. -1: no memory. */
int symm_gplan_bar(symm_gplan *p, int zone, uint64_t off, uint64_t bytes);

enum { SYMM_GPLAN_SPACE, SYMM_GPLAN_MEMORY, SYMM_GPLAN_HEAR };
/* Places a block that is alive from `point` on, at the lowest offset that is free of blocks that
 * may be alive then. bytes: a multiple of 256, not 0. *block: its number; NULL: only the offset is
 * returned, nothing changes. SYMM_GPLAN_NONE and *why:
 * - SPACE: nothing offered holds it.
 * - MEMORY: no memory.
 * - HEAR, only if `hears`: make a HEAR point in front of this one first. That is so before the
 *   first SYM block, and if the block could lie lower then, and the memory that waits for a HEAR
 *   point is more than an eighth of the zone's footprint and more than SYMM_GPLAN_FLOOR. */
uint64_t symm_gplan_alloc(symm_gplan *p, int point, int zone, uint64_t bytes, int hears, int *block,
                          int *why);
/* The block is free after `point`. Returns 0; -1: freed already; -2: the point does not come after
 * the block's first one. */
int symm_gplan_free(symm_gplan *p, int point, int block);
/* Whether it has been freed. */
int symm_gplan_freed(const symm_gplan *p, int block);

/* Bytes of the zone that blocks cover, without barred ones. */
uint64_t symm_gplan_footprint(const symm_gplan *p, int zone);
/* The k-th piece that blocks cover, by offset; 0: past the last. Pieces may overlap. */
int symm_gplan_piece(const symm_gplan *p, int zone, int k, uint64_t *off, uint64_t *bytes);
/* Whether a block lies in any byte of [off, off+bytes). */
int symm_gplan_touches(const symm_gplan *p, int zone, uint64_t off, uint64_t bytes);

#endif
