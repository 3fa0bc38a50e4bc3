/* heap_chart.c - a heap's picture as text and as JSON. Pure; see heap_chart.h. */
#include "heap_chart.h"

#include <stdio.h>
#include <string.h>

typedef unsigned long long ull;

const char *const symm_chart_kind[SYMM_CHART_KINDS] = {
    "user", "arena", "lane", "graph", "vector", "synced", "heap", "uncollected", "hole"};

void symm_chart_sum(const symm_chart_zone *z, symm_chart_sums *sums) {
    *sums = (symm_chart_sums){.largest = 0};
    for (int i = 0; i < z->npieces; i++) {
        const symm_chart_piece *p = &z->pieces[i];
        sums->bytes[p->kind] += p->bytes;
        sums->count[p->kind]++;
        if (p->kind != SYMM_CHART_HOLE) {
            sums->used += p->bytes;
            sums->blocks++;
        } else if (p->bytes > sums->largest) {
            sums->largest = p->bytes;
        }
    }
}

/* ---- text ---- */

enum { CELLS = 72, HOLES = 8 };

/* How much of [from, to) lies in blocks and in holes. Pieces before *at end before from. */
static void weigh(const symm_chart_zone *z, uint64_t from, uint64_t to, int *at, uint64_t *used,
                  uint64_t *unused) {
    *used = *unused = 0;
    while (*at < z->npieces && z->pieces[*at].off + z->pieces[*at].bytes <= from) ++*at;
    for (int i = *at; i < z->npieces && z->pieces[i].off < to; i++) {
        const symm_chart_piece *p = &z->pieces[i];
        const uint64_t lo = p->off > from ? p->off : from;
        const uint64_t end = p->off + p->bytes, hi = end < to ? end : to;
        *(p->kind == SYMM_CHART_HOLE ? unused : used) += hi - lo;
    }
}

/* One line: # full, + partly, . free, blank where there is no memory. */
static void put_bar(symm_text *t, const symm_chart_zone *z) {
    char bar[CELLS + 1];
    const uint64_t span = z->to - z->from;
    int at = 0;
    for (uint64_t i = 0; i < CELLS; i++) {
        uint64_t used, unused;
        const uint64_t step = span / CELLS, rest = span % CELLS;
        const uint64_t lo = z->from + step * i + rest * i / CELLS;
        const uint64_t hi = z->from + step * (i + 1) + rest * (i + 1) / CELLS;
        weigh(z, lo, hi, &at, &used, &unused);
        bar[i] = used && unused ? '+' : used ? '#' : unused ? '.' : ' ';
    }
    bar[CELLS] = 0;
    symm_text_put(t, "    |%s|\n", bar);
}

static void put_holes(symm_text *t, const symm_chart_zone *z) {
    uint64_t below = UINT64_MAX;
    char size[32];
    for (int n = 0, last = -1; n < HOLES; n++) {
        int best = -1;
        for (int i = 0; i < z->npieces; i++) {
            const symm_chart_piece *p = &z->pieces[i];
            if (p->kind != SYMM_CHART_HOLE || p->bytes > below) continue;
            if (p->bytes == below && i <= last) continue; /* shown already */
            if (best < 0 || p->bytes > z->pieces[best].bytes) best = i;
        }
        if (best < 0) return;
        last = best;
        below = z->pieces[best].bytes;
        symm_text_put(t, "    hole        %10s at %llu\n",
                      symm_text_bytes(below, size, sizeof size), (ull)z->pieces[best].off);
    }
}

static void put_zone(symm_text *t, const symm_chart_zone *z) {
    symm_chart_sums s;
    char a[32], b[32], c[32];
    symm_chart_sum(z, &s);
    const uint64_t unused = s.bytes[SYMM_CHART_HOLE];
    symm_text_put(t, "  %-5s  %s in %d chunk%s, offsets [%llu, %llu)\n", z->name,
                  symm_text_bytes(z->bytes, a, sizeof a), z->nchunks, z->nchunks == 1 ? "" : "s",
                  (ull)z->from, (ull)z->to);
    if (!z->bytes) return;
    symm_text_put(t, "    used        %10s in %llu block%s, at most %s so far\n",
                  symm_text_bytes(s.used, a, sizeof a), (ull)s.blocks, s.blocks == 1 ? "" : "s",
                  symm_text_bytes(z->peak, b, sizeof b));
    symm_text_put(t, "    free        %10s in %llu hole%s, the largest %s, fragmentation %.0f %%\n",
                  symm_text_bytes(unused, a, sizeof a), (ull)s.count[SYMM_CHART_HOLE],
                  s.count[SYMM_CHART_HOLE] == 1 ? "" : "s", symm_text_bytes(s.largest, c, sizeof c),
                  unused ? 100.0 - 100.0 * (double)s.largest / (double)unused : 0.0);
    put_bar(t, z);
    for (int k = 0; k < SYMM_CHART_HOLE; k++)
        if (s.count[k])
            symm_text_put(t, "    %-11s %10s in %llu\n", symm_chart_kind[k],
                          symm_text_bytes(s.bytes[k], a, sizeof a), (ull)s.count[k]);
    put_holes(t, z);
}

void symm_chart_text(symm_text *t, const symm_chart *m) {
    char a[32], b[32];
    symm_text_put(t, "heap %s: rank %d of %d, %s of addresses, granularity %s\n", m->name, m->rank,
                  m->nranks, symm_text_bytes(m->reserve, a, sizeof a),
                  symm_text_bytes(m->granularity, b, sizeof b));
    symm_text_put(t, "  calls on SYM so far: %llu, digest %016llx\n", (ull)m->calls,
                  (ull)m->digest);
    for (int i = 0; i < 2; i++) put_zone(t, &m->zone[i]);
    if (m->graph_ranges || m->graph_range_memory)
        symm_text_put(t, "  apart  %s for graphs, under %s of addresses in %d graph range%s\n",
                      symm_text_bytes(m->graph_range_memory, a, sizeof a),
                      symm_text_bytes(m->graph_range_bytes, b, sizeof b), m->graph_ranges,
                      m->graph_ranges == 1 ? "" : "s");
}

/* ---- JSON ---- */

static void put_string(symm_text *t, const char *s) {
    char piece[SYMM_TEXT_JSON];
    symm_text_put(t, "\"");
    while (*s) {
        s += symm_text_json(s, piece);
        symm_text_put(t, "%s", piece);
    }
    symm_text_put(t, "\"");
}

static void put_zone_json(symm_text *t, const symm_chart_zone *z) {
    symm_chart_sums s;
    symm_chart_sum(z, &s);
    symm_text_put(t,
                  "{\"name\":\"%s\",\"from\":%llu,\"to\":%llu,\"bytes\":%llu,\"used\":%llu,"
                  "\"peak\":%llu,\"largest\":%llu,\n  \"chunks\":[",
                  z->name, (ull)z->from, (ull)z->to, (ull)z->bytes, (ull)s.used, (ull)z->peak,
                  (ull)s.largest);
    for (int i = 0; i < z->nchunks; i++)
        symm_text_put(t, "%s[%llu,%llu]", i ? "," : "", (ull)z->chunks[i].off,
                      (ull)z->chunks[i].bytes);
    symm_text_put(t, "],\n  \"pieces\":[");
    for (int i = 0; i < z->npieces; i++) {
        const symm_chart_piece *p = &z->pieces[i];
        symm_text_put(t, "%s\n   {\"off\":%llu,\"bytes\":%llu,\"kind\":\"%s\",\"lane\":%d}",
                      i ? "," : "", (ull)p->off, (ull)p->bytes, symm_chart_kind[p->kind], p->lane);
    }
    symm_text_put(t, "]}");
}

void symm_chart_json(symm_text *t, const symm_chart *m) {
    symm_text_put(t, "{\"heap\":");
    put_string(t, m->name);
    symm_text_put(t,
                  ",\"rank\":%d,\"nranks\":%d,\"reserve\":%llu,\"granularity\":%llu,\"calls\":%llu,"
                  "\"digest\":\"%016llx\",\"graph_ranges\":%d,\"graph_range_bytes\":%llu,"
                  "\"graph_range_memory\":%llu,\n \"zones\":[",
                  m->rank, m->nranks, (ull)m->reserve, (ull)m->granularity, (ull)m->calls,
                  (ull)m->digest, m->graph_ranges, (ull)m->graph_range_bytes,
                  (ull)m->graph_range_memory);
    for (int i = 0; i < 2; i++) {
        if (i) symm_text_put(t, ",\n  ");
        put_zone_json(t, &m->zone[i]);
    }
    symm_text_put(t, "]}\n");
}
