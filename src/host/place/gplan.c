/* gplan.c - see gplan.h. A point has the set of earlier points as bits. Each zone has one list of
 * blocks by offset, which an allocation walks once. A block that a later one covers leaves the
 * list: what may not lie on the old one may not lie on the new one either. The owner's thread. */
#include "gplan.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/fail.h"

typedef struct {
    uint64_t *before; /* bit i: point i is this one or lies before it; (id / 64 + 1) words */
    int kind;
} point;

typedef struct {
    uint64_t off, bytes;
    int from, to; /* points; to -1: not freed; from -1: barred */
} block;

typedef struct {
    uint64_t off, bytes;
} range;

struct zone {
    range *offered;
    int noffered;
    int *list; /* blocks by offset */
    int nlist;
};

struct symm_gplan {
    int nranks;
    point *points;
    block *blocks;
    int *hears; /* points */
    int npoints, nblocks, nhears;
    struct zone zones[SYMM_MEM_ZONES];
};

symm_gplan *symm_gplan_new(int nranks) {
    symm_gplan *p = SYMM_FAIL_ALLOC(gplan_alloc, calloc(1, sizeof *p));
    if (p) p->nranks = nranks;
    return p;
}

void symm_gplan_end(symm_gplan *p) {
    if (!p) return;
    for (int i = 0; i < p->npoints; i++) free(p->points[i].before);
    for (int z = 0; z < SYMM_MEM_ZONES; z++) {
        free(p->zones[z].offered);
        free(p->zones[z].list);
    }
    free(p->points);
    free(p->blocks);
    free(p->hears);
    free(p);
}

/* Makes room for one more of `size` bytes in an array that holds n; it doubles at powers of two. */
static int room(void **array, int n, size_t size) {
    if (n & (n - 1)) return 0;
    void *more = SYMM_FAIL_ALLOC(gplan_room, realloc(*array, (size_t)(n ? 2 * n : 1) * size));
    if (!more) return -1;
    *array = more;
    return 0;
}

/* ---- invariants ------------------------------------------------------------------------------ */

/* Of a long list: its beginning. */
static void zone_check(const symm_gplan *p, int zone) {
    enum { MOST = 16 };
    const struct zone *z = &p->zones[zone];
    SYMM_ASSERT(z->noffered >= 0 && z->nlist >= 0 && z->nlist <= p->nblocks);
    for (int i = 0; i < z->noffered && i < MOST; i++) {
        const range *r = &z->offered[i];
        SYMM_ASSERT(r->bytes && (i == 0 || r[-1].off + r[-1].bytes < r->off));
    }
    for (int k = 0; k < z->nlist && k < MOST; k++) {
        SYMM_ASSERT(z->list[k] >= 0 && z->list[k] < p->nblocks);
        const block *b = &p->blocks[z->list[k]];
        SYMM_ASSERT(b->bytes && b->from < p->npoints && b->to < p->npoints);
        SYMM_ASSERT(b->to < 0 || b->from <= b->to);
        SYMM_ASSERT(k == 0 || p->blocks[z->list[k - 1]].off <= b->off);
    }
}

/* ---- points ---------------------------------------------------------------------------------- */

static int has(const uint64_t *bits, int i) {
    return (int)(bits[i / 64] >> (i % 64) & 1);
}

int symm_gplan_point(symm_gplan *p, int kind, const int *after, int n) {
    const int id = p->npoints;
    if (room((void **)&p->points, id, sizeof *p->points)) return -1;
    if (kind == SYMM_POINT_HEAR && room((void **)&p->hears, p->nhears, sizeof *p->hears)) return -1;
    uint64_t *bits = SYMM_FAIL_ALLOC(gplan_point, calloc((size_t)id / 64 + 1, sizeof *bits));
    if (!bits) return -1;
    for (int i = 0; i < n; i++) SYMM_ASSERT(after[i] >= 0 && after[i] < id);
    for (int i = 0; i < n; i++)
        for (int w = 0; w <= after[i] / 64; w++) bits[w] |= p->points[after[i]].before[w];
    bits[id / 64] |= 1ull << (id % 64);
    p->points[id] = (point){bits, kind};
    if (kind == SYMM_POINT_HEAR) p->hears[p->nhears++] = id;
    SYMM_ASSERT(p->nhears <= id + 1 && (!p->nhears || p->hears[p->nhears - 1] <= id));
    return p->npoints++;
}

int symm_gplan_points(const symm_gplan *p) {
    return p->npoints;
}

int symm_gplan_follows(const symm_gplan *p, int point, int earlier) {
    SYMM_ASSERT(point >= 0 && point < p->npoints && earlier >= 0);
    return earlier <= point && has(p->points[point].before, earlier);
}

int symm_gplan_heard(const symm_gplan *p, int point) {
    for (int i = p->nhears; i-- > 0;)
        if (symm_gplan_follows(p, point, p->hears[i])) return 1;
    return 0;
}

int symm_gplan_after_all(const symm_gplan *p, int point) {
    for (int i = 0; i < p->nhears; i++)
        if (!symm_gplan_follows(p, point, p->hears[i])) return 0;
    return 1;
}

/* ---- ranges ---------------------------------------------------------------------------------- */

int symm_gplan_offer(symm_gplan *p, int zone, uint64_t off, uint64_t bytes) {
    struct zone *z = &p->zones[zone];
    int at = 0;
    if (room((void **)&z->offered, z->noffered, sizeof *z->offered)) return -1;
    while (at < z->noffered && z->offered[at].off < off) at++;
    memmove(z->offered + at + 1, z->offered + at, (size_t)(z->noffered - at) * sizeof(range));
    z->offered[at] = (range){off, bytes};
    z->noffered++;
    for (int i = 0; i + 1 < z->noffered;) { /* a range that has grown may touch one more */
        range *r = &z->offered[i];
        if (r[0].off + r[0].bytes < r[1].off) {
            i++;
            continue;
        }
        const uint64_t end = r[1].off + r[1].bytes;
        if (end > r[0].off + r[0].bytes) r[0].bytes = end - r[0].off;
        memmove(r + 1, r + 2, (size_t)(z->noffered - i - 2) * sizeof(range));
        z->noffered--;
    }
    SYMM_CHECK(zone_check(p, zone));
    return 0;
}

static void lift_bars(const symm_gplan *p, struct zone *z, uint64_t off, uint64_t end) {
    int n = 0;
    for (int k = 0; k < z->nlist; k++) {
        const block *b = &p->blocks[z->list[k]];
        if (b->from >= 0 || b->off >= end || b->off + b->bytes <= off) z->list[n++] = z->list[k];
    }
    z->nlist = n;
}

int symm_gplan_withdraw(symm_gplan *p, int zone, uint64_t off, uint64_t bytes) {
    struct zone *z = &p->zones[zone];
    const uint64_t end = off + bytes;
    int n = 0;
    range right = {0, 0}; /* what is left of the range that holds its end */
    if (room((void **)&z->offered, z->noffered, sizeof *z->offered)) return -1;
    for (int i = 0; i < z->noffered; i++) {
        const range r = z->offered[i];
        const uint64_t last = r.off + r.bytes;
        if (r.off < end && end < last) right = (range){end, last - end};
        if (last > off && r.off < end) {
            if (r.off < off) z->offered[n++] = (range){r.off, off - r.off};
        } else {
            z->offered[n++] = r;
        }
    }
    z->noffered = n;
    lift_bars(p, z, off, end);
    SYMM_CHECK(zone_check(p, zone));
    return right.bytes ? symm_gplan_offer(p, zone, right.off, right.bytes) : 0;
}

static int insert(symm_gplan *p, int zone, const block *b) {
    struct zone *z = &p->zones[zone];
    int at = z->nlist;
    if (room((void **)&p->blocks, p->nblocks, sizeof *p->blocks)) return -1;
    /* The list shrinks too, so its room is that of all blocks. */
    int *list =
        SYMM_FAIL_ALLOC(gplan_list, realloc(z->list, ((size_t)p->nblocks + 1) * sizeof *list));
    if (!list) return -1;
    z->list = list;
    while (at > 0 && p->blocks[list[at - 1]].off > b->off) at--;
    memmove(list + at + 1, list + at, (size_t)(z->nlist - at) * sizeof *list);
    list[at] = p->nblocks;
    z->nlist++;
    p->blocks[p->nblocks++] = *b;
    SYMM_CHECK(zone_check(p, zone));
    return p->nblocks - 1;
}

int symm_gplan_bar(symm_gplan *p, int zone, uint64_t off, uint64_t bytes) {
    const block b = {off, bytes, -1, -1};
    return insert(p, zone, &b) < 0 ? -1 : 0;
}

/* ---- placing --------------------------------------------------------------------------------- */

/* Whether a block that begins at `point` may lie on b. FREE: yes. HARD: no. UNHEARD: only if a HEAR
 * point lies between. */
enum { FREE, UNHEARD, HARD };

static int standing(const symm_gplan *p, int zone, int point, const block *b) {
    if (b->to < 0 || !symm_gplan_follows(p, point, b->to)) return HARD;
    if (zone != SYMM_MEM_SYM || p->nranks == 1) return FREE;
    for (int i = p->nhears; i-- > 0 && p->hears[i] > b->to;)
        if (symm_gplan_follows(p, point, p->hears[i]) && symm_gplan_follows(p, p->hears[i], b->to))
            return FREE;
    return UNHEARD;
}

/* The lowest place where everything in the way is below `bad`. */
static uint64_t lowest(const symm_gplan *p, int zone, int point, uint64_t bytes, int bad) {
    const struct zone *z = &p->zones[zone];
    int k = 0;
    uint64_t reach = 0; /* end of what is in the way so far, over all ranges */
    for (int i = 0; i < z->noffered; i++) {
        const range *r = &z->offered[i];
        uint64_t at = reach > r->off ? reach : r->off;
        for (; k < z->nlist; k++) {
            const block *b = &p->blocks[z->list[k]];
            if (b->off >= r->off + r->bytes) break;
            if (standing(p, zone, point, b) < bad) continue;
            if (b->off >= at && b->off - at >= bytes) return at;
            if (b->off + b->bytes > reach) reach = b->off + b->bytes;
            if (reach > at) at = reach;
        }
        if (at < r->off + r->bytes && r->off + r->bytes - at >= bytes) return at;
    }
    return SYMM_GPLAN_NONE;
}

static uint64_t unheard(const symm_gplan *p, int point) {
    const struct zone *z = &p->zones[SYMM_MEM_SYM];
    uint64_t sum = 0;
    for (int k = 0; k < z->nlist; k++) {
        const block *b = &p->blocks[z->list[k]];
        if (standing(p, SYMM_MEM_SYM, point, b) == UNHEARD) sum += b->bytes;
    }
    return sum;
}

/* Takes out of the list the blocks that b covers and was free to cover. */
static void uncover(symm_gplan *p, int zone, const block *b) {
    struct zone *z = &p->zones[zone];
    int n = 0;
    for (int k = 0; k < z->nlist; k++) {
        const block *o = &p->blocks[z->list[k]];
        int covered = o != b && o->from >= 0 && o->off >= b->off &&
                      o->off + o->bytes <= b->off + b->bytes && o->to >= 0;
        if (!covered) z->list[n++] = z->list[k];
    }
    z->nlist = n;
}

/* Whether the caller must make a HEAR point first. here: the place without one. */
static int wants_hear(const symm_gplan *p, int point, uint64_t bytes, uint64_t here) {
    if (!symm_gplan_heard(p, point)) return 1;
    const uint64_t lower = lowest(p, SYMM_MEM_SYM, point, bytes, HARD);
    if (lower == SYMM_GPLAN_NONE || lower >= here) return 0;
    const uint64_t most = symm_gplan_footprint(p, SYMM_MEM_SYM) / 8, waits = unheard(p, point);
    return here == SYMM_GPLAN_NONE || (waits >= most && waits >= SYMM_GPLAN_FLOOR);
}

uint64_t symm_gplan_alloc(symm_gplan *p, int point, int zone, uint64_t bytes, int hears,
                          int *block_no, int *why) {
    const uint64_t off = lowest(p, zone, point, bytes, UNHEARD);
    *why = SYMM_GPLAN_HEAR;
    if (hears && zone == SYMM_MEM_SYM && p->nranks > 1 && wants_hear(p, point, bytes, off))
        return SYMM_GPLAN_NONE;
    *why = SYMM_GPLAN_SPACE;
    if (off == SYMM_GPLAN_NONE || !block_no) return off;
    SYMM_ASSERT(point >= 0 && point < p->npoints && bytes);
    const block b = {off, bytes, point, -1};
    const int id = insert(p, zone, &b);
    *why = SYMM_GPLAN_MEMORY;
    if (id < 0) return SYMM_GPLAN_NONE;
    uncover(p, zone, &p->blocks[id]);
    *block_no = id;
    return off;
}

int symm_gplan_free(symm_gplan *p, int point, int id) {
    SYMM_ASSERT(id >= 0 && id < p->nblocks);
    block *b = &p->blocks[id];
    SYMM_ASSERT(b->from >= 0); /* no bar */
    if (b->to >= 0) return -1;
    if (!symm_gplan_follows(p, point, b->from)) return -2;
    b->to = point;
    return 0;
}

int symm_gplan_freed(const symm_gplan *p, int id) {
    return p->blocks[id].to >= 0;
}

/* ---- what it covers -------------------------------------------------------------------------- */

uint64_t symm_gplan_footprint(const symm_gplan *p, int zone) {
    const struct zone *z = &p->zones[zone];
    uint64_t sum = 0, reach = 0;
    for (int k = 0; k < z->nlist; k++) {
        const block *b = &p->blocks[z->list[k]];
        const uint64_t end = b->off + b->bytes, from = b->off > reach ? b->off : reach;
        if (b->from < 0 || end <= from) continue;
        sum += end - from;
        reach = end;
    }
    return sum;
}

int symm_gplan_piece(const symm_gplan *p, int zone, int k, uint64_t *off, uint64_t *bytes) {
    const struct zone *z = &p->zones[zone];
    if (k >= z->nlist) return 0;
    const block *b = &p->blocks[z->list[k]];
    *off = b->off;
    *bytes = b->from < 0 ? 0 : b->bytes;
    return 1;
}

int symm_gplan_touches(const symm_gplan *p, int zone, uint64_t off, uint64_t bytes) {
    const struct zone *z = &p->zones[zone];
    for (int k = 0; k < z->nlist; k++) {
        const block *b = &p->blocks[z->list[k]];
        if (b->from >= 0 && b->off < off + bytes && off < b->off + b->bytes) return 1;
    }
    return 0;
}
