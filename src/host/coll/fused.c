/* fused.c - see fused.h. Pure; any thread, no lock. */
#include "fused.h"

#include <string.h>

#include "base/check.h"
#include "base/status.h"
#include "device/host/reduce.h"

typedef struct { /* what a call reads or writes here */
    uintptr_t at;
    uint64_t bytes;
} piece;

static const symm_coll_row *row_of(const symm_coll *k) {
    return &symm_colls[k->coll];
}
static uint64_t bytes_of(const symm_coll *k) {
    return k->count * symm_type_size(k->type);
}
static piece read_by(const symm_coll *k, int rank) {
    const int has = !row_of(k)->root_gives || k->root == rank;
    return (piece){(uintptr_t)k->src, has ? bytes_of(k) : 0};
}
static piece written_by(const symm_coll *k, int rank) {
    const int has = !row_of(k)->root_takes || k->root == rank;
    return (piece){(uintptr_t)k->dst, has ? bytes_of(k) : 0};
}

/* ---- which ----------------------------------------------------------------------------------- */

int symm_fused_add(symm_fused *f, const symm_coll *like, const symm_coll *k) {
    uint64_t *word = &f->roots[k->root / 64];
    const uint64_t bit = 1ull << k->root % 64;
    SYMM_ASSERT(k->root >= 0 && k->root < SYMM_MAX_RANKS);
    if (!row_of(k)->fuses || k->extents || (unsigned)k->op >= symmNumOps) return 0;
    if (k->coll != like->coll || k->type != like->type || k->op != like->op || *word & bit)
        return 0;
    *word |= bit;
    f->n++;
    return 1;
}

int symm_fused_pays(const symm_fused *f, const symm_coll *like, int nranks) {
    return f->n > 1 && (!(row_of(like)->flags & SYMM_COLL_REDUCES) || 2 * f->n >= nranks);
}

/* ---- whether one needs another --------------------------------------------------------------- */

static int overlap(piece a, piece b) {
    return a.bytes && b.bytes && a.at < b.at + b.bytes && b.at < a.at + a.bytes;
}

symmResult_t symm_fused_check(const symm_coll *const *calls, int n, int rank) {
    for (int i = 0; i < n; i++)
        for (int p = 0; p < n; p++) {
            const piece to = written_by(calls[i], rank);
            if (p == i) continue;
            if (overlap(to, read_by(calls[p], rank)) || overlap(to, written_by(calls[p], rank)))
                return SYMM_ERR(symmInvalidArgument,
                                "%s of roots %d and %d run as one in this group, but recvbuff=%p "
                                "of root %d overlaps a buffer of the other: end the group between "
                                "them",
                                row_of(calls[i])->call, calls[i]->root, calls[p]->root,
                                calls[i]->dst, calls[i]->root);
        }
    return symmSuccess;
}

/* ---- the one call ---------------------------------------------------------------------------- */

/* Where the first of the parts begins, which are at addresses now; they are behind that then. */
static uintptr_t base_of(symm_extent *parts, int n) {
    uint64_t first = UINT64_MAX;
    for (int p = 0; p < n; p++)
        if (parts[p].bytes && parts[p].at < first) first = parts[p].at;
    for (int p = 0; p < n; p++) parts[p].at = parts[p].bytes ? parts[p].at - first : 0;
    return first == UINT64_MAX ? 0 : first;
}

symm_coll symm_fused_call(const symm_coll *const *calls, int n, int rank, int nranks,
                          symm_extent *extents) {
    const symm_coll *like = calls[0];
    symm_coll k = {.coll = (symmColl_t)row_of(like)->fuses,
                   .fused = n - 1,
                   .type = like->type,
                   .op = like->op,
                   .extents = extents};
    symm_extent *to = extents, *from = extents + nranks;
    const int gives = row_of(like)->root_gives;
    SYMM_ASSERT(n > 1 && n <= nranks && rank >= 0 && rank < nranks);
    memset(extents, 0, 2u * (unsigned)nranks * sizeof *extents);
    for (int i = 0; i < n; i++) {
        const piece in = read_by(calls[i], rank), out = written_by(calls[i], rank);
        const int root = calls[i]->root;
        /* A root's source is for every rank, or every rank's is for the root. */
        for (int p = 0; p < nranks; p++) {
            if (gives ? root == rank : p == root) to[p] = (symm_extent){in.at, in.bytes};
            if (gives ? p == root : root == rank) from[p] = (symm_extent){out.at, out.bytes};
        }
    }
    k.src = (const void *)base_of(to, nranks);
    k.dst = (void *)base_of(from, nranks);
    SYMM_ASSERT(to[rank].bytes == from[rank].bytes);
    return k;
}

static uint64_t different(const symm_extent *parts, int n, int same) {
    uint64_t bytes = 0;
    for (int p = 0; p < (same ? 1 : n); p++) bytes += parts[p].bytes;
    return bytes;
}

uint64_t symm_fused_bytes(const symm_coll *k, int nranks) {
    const symm_coll_row *row = row_of(k);
    return different(k->extents, nranks, row->in != SYMM_VARIES) +
           different(k->extents + nranks, nranks, row->out != SYMM_VARIES);
}
