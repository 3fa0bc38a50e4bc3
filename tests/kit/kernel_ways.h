/* kernel_ways.h - behind kernel_kit.h: which way the data of a call takes in a direct kernel, as
 * the documents say it. */
#ifndef SYMM_TEST_KERNEL_WAYS_H_
#define SYMM_TEST_KERNEL_WAYS_H_

#include "kernel_kit.h"

/* The ways of direct kernels. */
enum {
    STRAIGHT,
    STRAIGHT_OFF,
    BY_RESULTS,
    PULLED,
    PULLED_OFF,
    LINES,
    FEW_LINES,
    STAGED,
    COPIED,
    WAYS
};
static const char *const way_names[] = {"between windows",
                                        "the same, off a multiple of 16",
                                        "by the rows of each result",
                                        "loads from the peer",
                                        "the same, off a multiple of 16",
                                        "lines",
                                        "lines of some warps",
                                        "staging",
                                        "copy engines"};

static int reduces_in_windows(const symm_kernel_row *row) {
    return row->staged && coll_reduces(row->coll);
}
static int in_two_hops(symmColl_t coll, int n) {
    return n > 2 && (coll == symmCollBroadcast || coll == symmCollReduce);
}
static int varies(int kernel) { /* -1: of unit_multicast_kernels */
    const symm_kernel_row *row = &symm_kernels[kernel];
    return row->multicast ? -1 : symm_coll_varies(&symm_colls[row->coll]);
}

/* Two, four and eight ranks load what they reduce where all sources are in windows and have the
 * same alignment. Of a reduce of more than two, the root's result too. Beyond two ranks some
 * kernels of 1-byte types have no registers for it. */
static int is_pulled(const sample *s) {
    const int reduce = s->call.coll == symmCollReduce, root = s->call.root,
              most = s->call.esize > 1 ? 8
                     : reduce          ? 2
                                       : 4;
    uint64_t bad = s->src[0] % s->call.esize;
    for (int r = 0; r < k.n; r++) bad |= (s->staged[r] & OUT_SRC) || (s->src[r] - s->src[0]) % 16;
    /* staging, which is slow off a multiple of 16, is the faster one beyond */
    if (s->call.coll == symmCollReduceScatter && k.n == 2 &&
        !((s->src[0] | s->call.count * s->call.esize) % 16) &&
        (s->call.esize != 2 || s->call.op != SYMM_OP_SUM))
        bad |= s->call.count * s->call.esize > EMU_PULL_MOST;
    if (reduce && k.n > 2) bad |= (s->staged[root] & OUT_DST) || (s->dst[root] - s->src[0]) % 16;
    return (k.n == 2 || k.n == 4 || k.n == 8) && k.n <= most && !bad &&
           reduces_in_windows(&symm_kernels[s->plan.kernel]);
}
/* Kernels without lines: between windows, where each destination is in one. In two hops they must
 * be at a multiple of 16, too. */
static int way_of_hop(const sample *s) {
    const uint64_t part = s->call.count * s->call.esize;
    const symmColl_t coll = s->call.coll;
    int straight = ends((int)s->plan.kernel)->stages_dst, off = 0;
    if (is_pulled(s))
        return s->src[0] % 16 || (coll_in(coll, k.n) > 1 && part % 16) ? PULLED_OFF : PULLED;
    for (int r = 0; r < k.n; r++) {
        if (!coll_out_at(coll, k.n, s->call.root == r)) continue;
        straight &= !(s->staged[r] & OUT_DST);
        off |= s->dst[r] % 16 || (coll_out(coll, k.n) > 1 && part % 16);
    }
    if (!straight || (off && in_two_hops(coll, k.n))) return STAGED;
    return off ? STRAIGHT_OFF : STRAIGHT;
}
/* Whether the tests should see it go so. */
static int has_way(const symm_kernel_row *own, int way) {
    const symm_kernel_row *row = ends((int)(own - symm_kernels));
    const int uneven = symm_coll_varies(&symm_colls[row->coll]);
    if (way == COPIED) return own->copies != 0;
    /* seldom drawn: of two ranks, one result in no window; the kernel that ends it is seen so */
    if (way == STAGED && own->copies && own->max_ranks == 2) return 0;
    if (way == PULLED || way == PULLED_OFF) return reduces_in_windows(row) && !uneven;
    if (way == BY_RESULTS) return row->coll == symmCollAllGather && row->relay;
    if (row->relay) return 1;
    if (uneven) return way == LINES || way == STAGED || (row->stages_dst && way != FEW_LINES);
    return row->staged &&
           (way == STAGED || (row->stages_dst && (way == STRAIGHT || way == STRAIGHT_OFF)));
}

/* Between windows, where all buffers are in some and have the same alignment; an all_gather without
 * lines also where the results are. */
static int way_of(const sample *s) {
    uint64_t word[RANKS] = {0};
    if (is_copied(s, word)) return COPIED;
    if (!symm_kernels[s->plan.kernel].relay) return way_of_hop(s);
    const int reduces = coll_reduces(s->call.coll);
    const uint64_t first = s->dst[0], part = s->call.count * s->call.esize;
    int alike = !reduces || first % s->call.esize == 0, results = !reduces;
    for (int r = 0; r < k.n; r++) {
        alike &= !s->staged[r] && (s->dst[r] - first) % 16 == 0 &&
                 (s->src[r] - first - (unsigned)coll_send_part(s->call.coll, r) * part) % 16 == 0;
        results &= !(s->staged[r] & OUT_DST);
    }
    if (alike && k.n == 2 && reduces && part <= EMU_PULL_MOST)
        return first % 16 ? PULLED_OFF : PULLED;
    if (alike) return first % 16 ? STRAIGHT_OFF : STRAIGHT;
    if (!s->plan.line_warps) return results ? BY_RESULTS : STAGED;
    return s->plan.line_warps < s->plan.threads / 32 ? FEW_LINES : LINES;
}

#endif
