/* perf_parts.c - how the buffers of a case are divided among the ranks. Where a collective has a
 * count per rank, the counts rise from half of what they would be if all were equal to one and a
 * half of it, and buffers have the same total on every rank (all_gatherv and reduce_scatterv: the
 * larger buffer). Each rank's thread calls it; no lock. */
#include <stdlib.h>

#include "perf.h"

/* The i-th of m counts that have m*count as their sum. */
static uint64_t rising(uint64_t count, int i, int m) {
    const uint64_t low = i < m / 2 ? (uint64_t)i : (uint64_t)(m - 1 - i);
    if (2 * i + 1 == m) return count;
    const uint64_t less = count / 2 + (count - count / 2) * low / (unsigned)(m - 1);
    return i < m / 2 ? less : 2 * count - less;
}

/* Elements that rank `from` has for rank `to`. alltoallv: by the distance between the two, so that
 * each sends and gets as much as the others. */
static uint64_t pair(const perf_rank *p, uint64_t count, int from, int to) {
    const symm_coll_row *row = p->cfg->row;
    const int n = p->world->nranks;
    if (!symm_coll_varies(row)) return count;
    if (row->in != SYMM_VARIES) return rising(count, from, n);
    if (row->out != SYMM_VARIES) return rising(count, to, n);
    return from == to ? count : rising(count, (to - from + n) % n - 1, n - 1);
}

static uint64_t of_side(const perf_rank *p, uint64_t count, int rank, int side, int q) {
    return side == PERF_SENT ? pair(p, count, rank, q) : pair(p, count, q, rank);
}

uint64_t perf_offset(const perf_rank *p, uint64_t count, int rank, int side, int q) {
    const symm_coll_row *row = p->cfg->row;
    uint64_t at = 0;
    if ((side == PERF_SENT ? row->in : row->out) < SYMM_EACH) return 0;
    for (int i = 0; i < q; i++) at += of_side(p, count, rank, side, i);
    return at;
}

uint64_t perf_part(const perf_rank *p, uint64_t count, int side, int q) {
    return of_side(p, count, p->world->rank, side, q);
}

uint64_t perf_total(const perf_rank *p, uint64_t count, int side) {
    const symm_coll_row *row = p->cfg->row;
    const symm_holds holds = side == PERF_SENT ? row->in : row->out;
    if (holds == SYMM_NONE) return 0;
    if (holds == SYMM_COUNT) return perf_part(p, count, side, p->world->rank);
    return perf_offset(p, count, p->world->rank, side, p->world->nranks);
}

perf_counts *perf_counts_of(perf_rank *p, uint64_t count) {
    const int n = p->world->nranks;
    if (!symm_coll_varies(p->cfg->row)) return NULL;
    perf_counts *v = calloc(1, sizeof *v);
    if (!v) perf_must(p, symmOutOfMemory, "the counts of the ranks");
    for (int side = 0; side < PERF_SIDES; side++)
        for (int q = 0; q < n; q++) {
            v->count[side][q] = perf_part(p, count, side, q);
            v->count_int[side][q] = (int)v->count[side][q];
            v->displ_int[side][q] = (int)perf_offset(p, count, p->world->rank, side, q);
        }
    return v;
}
