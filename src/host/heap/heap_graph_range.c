/* heap_graph_range.c - graph ranges: ranges of a heap's addresses, at one offset on all ranks, that
 * belong to neither zone. Whoever takes one maps memory of its own there (memplan_alias.c). Graph
 * ranges are taken in the order of calls on SYM and given back by symmHeapCollect, so every rank
 * has the same ones at any time. The communicator's user thread changes the list, with h->lock,
 * because queries read it in any thread. */
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "host/comm/comm.h"
#include "heap_int.h"

/* The lowest place in [from, limit); UINT64_MAX none. */
static uint64_t fit(const symm_heap *h, uint64_t bytes, uint64_t from, uint64_t limit) {
    uint64_t at = from;
    for (int i = 0; i < h->ngraph_ranges; i++) {
        const symm_graph_range *t = &h->graph_ranges[i];
        if (t->off + t->bytes <= at) continue;
        if (t->off >= at && t->off - at >= bytes) break;
        at = t->off + t->bytes;
    }
    return at <= limit && limit - at >= bytes ? at : UINT64_MAX;
}

/* In the upper half of the addresses if it has room. SYM grows from below, so it stays in one piece
 * for longer. */
static uint64_t choose(const symm_heap *h, uint64_t bytes) {
    const uint64_t low = h->zone[SYMM_ZONE_SYM].extent, limit = h->reserve - h->local_extent;
    const uint64_t half = h->reserve / 2 / h->granularity * h->granularity;
    const uint64_t at = fit(h, bytes, half > low ? half : low, limit);
    return at == UINT64_MAX ? fit(h, bytes, low, limit) : at;
}

static symmResult_t no_room(const symm_heap *h, uint64_t bytes) {
    uint64_t held = 0;
    for (int i = 0; i < h->ngraph_ranges; i++) held += h->graph_ranges[i].bytes;
    return SYMM_ERR(symmOutOfMemory,
                    "heap %s has no %llu bytes of addresses in one piece: zones use %llu of %llu, "
                    "graphs %llu (symmHeapCollect returns those of ended graphs)",
                    h->name, (unsigned long long)bytes,
                    (unsigned long long)(h->zone[SYMM_ZONE_SYM].extent + h->local_extent),
                    (unsigned long long)h->reserve, (unsigned long long)held);
}

int symm_heap_graph_range_fits(const symm_heap *h, uint64_t bytes) {
    return choose(h, bytes) != UINT64_MAX;
}

/* With the lock. 0: no memory. */
static int insert(symm_heap *h, symm_graph_range range) {
    SYMM_HEAP_LOCKED(h);
    SYMM_ASSERT(range.bytes && range.bytes % h->granularity == 0);
    if (h->ngraph_ranges == h->graph_range_cap) {
        const int cap = h->graph_range_cap ? 2 * h->graph_range_cap : 8;
        symm_graph_range *more = SYMM_FAIL_ALLOC(
            heap_graph_ranges, realloc(h->graph_ranges, (size_t)cap * sizeof *more));
        if (!more) return 0;
        h->graph_ranges = more;
        h->graph_range_cap = cap;
    }
    int i = h->ngraph_ranges++;
    for (; i > 0 && h->graph_ranges[i - 1].off > range.off; i--)
        h->graph_ranges[i] = h->graph_ranges[i - 1];
    h->graph_ranges[i] = range;
    return 1;
}

symmResult_t symm_heap_graph_range_take(symm_heap *h, uint64_t bytes, int lane, uint64_t *off) {
    const uint64_t at = choose(h, bytes);
    if (at == UINT64_MAX) return no_room(h, bytes);
    symm_heap_lock(h);
    const int good = insert(h, (symm_graph_range){at, bytes, lane, 0});
    symm_heap_unlock(h);
    if (!good)
        return SYMM_ERR(symmOutOfMemory, "no memory for the record of a graph range of heap %s",
                        h->name);
    *off = at;
    return symmSuccess;
}

static symm_graph_range *find(const symm_heap *h, uint64_t off) {
    for (int i = 0; i < h->ngraph_ranges; i++)
        if (off - h->graph_ranges[i].off < h->graph_ranges[i].bytes) return &h->graph_ranges[i];
    return NULL;
}

void symm_heap_graph_range_later(symm_heap *h, uint64_t off) {
    symm_heap_lock(h);
    symm_graph_range *t = find(h, off);
    SYMM_ASSERT(!t || !t->uncollected);
    if (t) t->uncollected = 1;
    symm_heap_unlock(h);
}

int symm_heap_graph_range_at(const symm_heap *h, uint64_t off, symm_graph_range *range) {
    const symm_graph_range *t = find(h, off);
    if (t) *range = *t;
    return t != NULL;
}

symm_part symm_heap_next_graph_range(const symm_heap *h, int zone, uint64_t at) {
    symm_part best = {UINT64_MAX, 0};
    for (int i = 0; i < h->ngraph_ranges; i++) {
        const symm_graph_range *t = &h->graph_ranges[i];
        const uint64_t z = symm_zone_flip(h, zone, t->off, t->bytes);
        if (z + t->bytes > at && z < best.off) best = (symm_part){z, t->bytes};
    }
    return best;
}

/* The addresses become free even if unmapping fails. Then what stays mapped makes the next mapping
 * there fail. */
symmResult_t symm_heap_graph_range_end(symm_heap *h, uint64_t off) {
    symm_graph_range gone;
    symm_heap_lock(h);
    symm_graph_range *t = find(h, off);
    const int found = t != NULL;
    if (found) {
        SYMM_ASSERT(t->uncollected);
        gone = *t;
        h->ngraph_ranges--;
        memmove(t, t + 1, (size_t)(h->graph_ranges + h->ngraph_ranges - t) * sizeof *t);
    }
    symm_heap_unlock(h);
    if (!found) return symmSuccess;
    symm_window_changed(h->comm); /* remembered calls may lie there */
    return symm_region_clear(&h->region, gone.off, gone.bytes);
}
