/* mappings.c - a sorted array, because look-ups are frequent and growth is rare. Threads as in
 * mappings.h. */
#include "mappings.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/fail.h"

void symm_mappings_check(const symm_mappings *m, int i) {
    SYMM_ASSERT(m->n >= 0 && m->n <= m->cap && i >= 0);
    for (int k = i > 0 ? i - 1 : 0; k <= i + 1 && k < m->n; k++) {
        const symm_mapping *at = &m->at[k];
        SYMM_ASSERT(at->bytes && at->off + at->bytes > at->off && at->rank >= 0);
        if (k == 0 || at->rank != at[-1].rank)
            SYMM_ASSERT(k == 0 || at->rank > at[-1].rank);
        else
            SYMM_ASSERT(at[-1].off + at[-1].bytes <= at->off);
    }
}

int symm_mappings_find(const symm_mappings *m, int rank, uint64_t off) {
    int lo = 0, hi = m->n;
    while (lo < hi) {
        const int mid = lo + (hi - lo) / 2;
        const symm_mapping *at = &m->at[mid];
        if (at->rank < rank || (at->rank == rank && at->off + at->bytes <= off))
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

int symm_mappings_add(symm_mappings *m, symm_mapping map) {
    if (m->n == m->cap) {
        const int cap = m->cap ? m->cap * 2 : 8;
        symm_mapping *at = SYMM_FAIL_ALLOC(maps_grow, realloc(m->at, (size_t)cap * sizeof *m->at));
        if (!at) return -1;
        m->at = at;
        m->cap = cap;
    }
    const int i = symm_mappings_find(m, map.rank, map.off);
    memmove(&m->at[i + 1], &m->at[i], (size_t)(m->n - i) * sizeof *m->at);
    m->at[i] = map;
    m->n++;
    SYMM_CHECK(symm_mappings_check(m, i));
    return 0;
}

void symm_mappings_remove(symm_mappings *m, int i) {
    SYMM_ASSERT(i >= 0 && i < m->n);
    m->n--;
    memmove(&m->at[i], &m->at[i + 1], (size_t)(m->n - i) * sizeof *m->at);
    SYMM_CHECK(symm_mappings_check(m, i));
}

void symm_mappings_end(symm_mappings *m) {
    free(m->at);
    *m = (symm_mappings){NULL, 0, 0};
}

int symm_mappings_cover(const symm_mappings *m, int rank, uint64_t off, uint64_t bytes) {
    const uint64_t end = off + bytes;
    if (end < off) return 0;
    for (int i = symm_mappings_find(m, rank, off); off < end; i++) {
        if (i >= m->n || m->at[i].rank != rank || m->at[i].off > off) return 0;
        off = m->at[i].off + m->at[i].bytes;
    }
    return 1;
}

uint64_t symm_mappings_bytes(const symm_mappings *m, int rank) {
    uint64_t sum = 0;
    for (int i = symm_mappings_find(m, rank, 0); i < m->n && m->at[i].rank == rank; i++)
        sum += m->at[i].bytes;
    return sum;
}
