/* heap_chart.h - a picture of a heap at one moment, and how it is written. Taken under the heap's
 * lock (heap_dump.c), written without; writing knows nothing of heaps but this record. symm-info
 * draws its map from the JSON (tools/info_map.h). */
#ifndef SYMM_HEAP_CHART_H_
#define SYMM_HEAP_CHART_H_

#include <stdint.h>

#include "base/text.h"

/* What a piece is: SYMM_OWNER_*, then these. */
enum { SYMM_CHART_UNCOLLECTED = 7, SYMM_CHART_HOLE, SYMM_CHART_KINDS };

typedef struct {
    uint64_t off, bytes; /* in the heap */
    int kind, lane;      /* lane: -1 none */
} symm_chart_piece;

typedef struct {
    uint64_t off, bytes;
} symm_chart_chunk;

typedef struct {
    const char *name;
    uint64_t from, to; /* offsets between its end at the edge of the heap and its farthest chunk */
    uint64_t bytes;    /* of chunks */
    uint64_t peak;     /* most bytes in blocks so far */
    const symm_chart_chunk *chunks; /* both ascending, apart from each other */
    const symm_chart_piece *pieces;
    int nchunks, npieces;
} symm_chart_zone;

typedef struct {
    const char *name;
    int rank, nranks;
    uint64_t reserve, granularity, calls, digest;
    symm_chart_zone zone[2]; /* SYM, LOCAL */
    int graph_ranges;        /* addresses that are neither's, and memory behind them */
    uint64_t graph_range_bytes, graph_range_memory;
} symm_chart;

/* Sums over a zone's pieces. */
typedef struct {
    uint64_t bytes[SYMM_CHART_KINDS], count[SYMM_CHART_KINDS];
    uint64_t used, blocks, largest; /* blocks of all owners; the largest hole */
} symm_chart_sums;
void symm_chart_sum(const symm_chart_zone *z, symm_chart_sums *sums);

extern const char *const symm_chart_kind[SYMM_CHART_KINDS];

void symm_chart_text(symm_text *t, const symm_chart *m);
void symm_chart_json(symm_text *t, const symm_chart *m);

#endif
