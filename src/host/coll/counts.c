/* counts.c - see counts.h. Pure; any thread, no lock. */
#include "counts.h"

#include <string.h>

#include "base/check.h"
#include "base/status.h"
#include "device/host/reduce.h"

enum { MOST_LOG = 60 }; /* no buffer ends at 2^60 bytes */

static const char *call_name(const symm_coll *k) {
    return symm_colls[k->coll].call;
}

static symmResult_t overflows(const symm_coll *k, const symm_side *s, int p, uint64_t esize) {
    if (s->displs)
        return SYMM_ERR(symmInvalidArgument,
                        "%s: %s[%d]=%zu elements of %llu bytes at displacement %zu overflow",
                        call_name(k), s->name, p, s->counts[p], (unsigned long long)esize,
                        s->displs[p]);
    return SYMM_ERR(symmInvalidArgument, "%s: up to %s[%d]=%zu elements of %llu bytes overflow",
                    call_name(k), s->name, p, s->counts[p], (unsigned long long)esize);
}

static symmResult_t read_side(const symm_coll *k, const symm_side *s, int n, uint64_t esize,
                              symm_extent *out) {
    uint64_t end = 0;
    if (!s->counts) return SYMM_ERR(symmInvalidArgument, "%s: %s is NULL", call_name(k), s->name);
    for (int p = 0; p < n; p++) {
        uint64_t at = end, bytes;
        if ((s->displs && __builtin_mul_overflow(s->displs[p], esize, &at)) ||
            __builtin_mul_overflow(s->counts[p], esize, &bytes) || at >> MOST_LOG ||
            bytes >> MOST_LOG || (at + bytes) >> MOST_LOG)
            return overflows(k, s, p, esize);
        out[p] = (symm_extent){at, bytes};
        end = at + bytes;
    }
    return symmSuccess;
}

/* Two parts of recvbuff overlap. */
static symmResult_t check_apart(const symm_coll *k, const symm_side *s, int n,
                                const symm_extent *part) {
    uint16_t by_place[SYMM_COUNTS_RANKS]; /* those of some bytes, sorted */
    int some = 0;
    for (int p = 0; p < n; p++) {
        int i = some;
        if (!part[p].bytes) continue;
        for (; i > 0 && part[by_place[i - 1]].at > part[p].at; i--) by_place[i] = by_place[i - 1];
        by_place[i] = (uint16_t)p;
        some++;
    }
    for (int i = 1; i < some; i++) {
        const int a = by_place[i - 1], b = by_place[i];
        if (part[a].at + part[a].bytes > part[b].at)
            return SYMM_ERR(symmInvalidArgument,
                            "%s: the parts of ranks %d and %d in recvbuff overlap: %zu elements at "
                            "%zu, %zu at %zu",
                            call_name(k), a, b, s->counts[a], s->displs[a], s->counts[b],
                            s->displs[b]);
    }
    return symmSuccess;
}

static symmResult_t check_own(const symm_coll *k, int rank, uint64_t esize, const symm_extent *to,
                              const symm_extent *from) {
    if (to->bytes == from->bytes) return symmSuccess;
    return SYMM_ERR(symmInvalidArgument,
                    "%s: rank %d sends itself %llu elements and expects %llu from itself: must be "
                    "equal",
                    call_name(k), rank, (unsigned long long)(to->bytes / esize),
                    (unsigned long long)(from->bytes / esize));
}

static void all_the_same(symm_extent part, int n, symm_extent *out) {
    for (int p = 0; p < n; p++) out[p] = part;
}

symmResult_t symm_counts_read(const symm_coll *k, const symm_counts *u, int rank, int nranks,
                              symm_extent *out) {
    const symm_coll_row *row = &symm_colls[k->coll];
    const uint64_t esize = symm_type_size(k->type);
    SYMM_ASSERT(rank >= 0 && rank < nranks && nranks <= SYMM_COUNTS_RANKS);
    symm_extent *to = out, *from = out + nranks;
    uint64_t bytes;
    if (!esize)
        return SYMM_ERR(symmInvalidArgument, "datatype=%u: must be 0 to %d", k->type,
                        symmNumTypes - 1);
    if (__builtin_mul_overflow(k->count, esize, &bytes) || bytes >> MOST_LOG)
        return SYMM_ERR(symmInvalidArgument, "count=%llu elements of %llu bytes overflow",
                        (unsigned long long)k->count, (unsigned long long)esize);
    if (row->in == SYMM_VARIES) SYMM_TRY(read_side(k, &u->in, nranks, esize, to));
    if (row->out == SYMM_VARIES) SYMM_TRY(read_side(k, &u->out, nranks, esize, from));
    /* The other buffer is one part: for all the same, or made of what is for this rank. */
    if (row->in != SYMM_VARIES) all_the_same((symm_extent){0, bytes}, nranks, to);
    if (row->out != SYMM_VARIES) all_the_same((symm_extent){0, to[rank].bytes}, nranks, from);
    if (row->out == SYMM_VARIES && u->out.displs) SYMM_TRY(check_apart(k, &u->out, nranks, from));
    return check_own(k, rank, esize, &to[rank], &from[rank]);
}

uint64_t symm_counts_end(const symm_extent *parts, int n) {
    uint64_t end = 0;
    for (int p = 0; p < n; p++)
        if (parts[p].bytes && parts[p].at + parts[p].bytes > end)
            end = parts[p].at + parts[p].bytes;
    return end;
}
