/* place_kit.h - a naive model of the placement engine: a sorted array of pieces, searched from the
 * beginning. For unit_place.c and fuzz_place.c; needs pk_require(int). */
#ifndef PLACE_KIT_H_
#define PLACE_KIT_H_

#include <string.h>

#include "host/place/place.h"

enum { PK_MOST = 4096 };

typedef struct {
    symm_piece piece[PK_MOST];
    int n, fit;
    uint64_t peak, peak_used;
} pk_model;

static int pk_free(const pk_model *m, int i) {
    return i >= 0 && i < m->n && !m->piece[i].used;
}

static uint64_t pk_end(const symm_piece *q) {
    return q->off + q->bytes;
}

static void pk_remove(pk_model *m, int i) {
    memmove(m->piece + i, m->piece + i + 1, sizeof *m->piece * (size_t)(m->n - i - 1));
    m->n--;
}

static void pk_insert(pk_model *m, int i, symm_piece q) {
    pk_require(m->n < PK_MOST);
    memmove(m->piece + i + 1, m->piece + i, sizeof *m->piece * (size_t)(m->n - i));
    m->piece[i] = q;
    m->n++;
}

/* Piece i became free: joined with those that touch it. */
static void pk_join(pk_model *m, int i) {
    m->piece[i].used = 0;
    m->piece[i].tag = 0;
    if (pk_free(m, i + 1) && pk_end(&m->piece[i]) == m->piece[i + 1].off) {
        m->piece[i].bytes += m->piece[i + 1].bytes;
        pk_remove(m, i + 1);
    }
    if (pk_free(m, i - 1) && pk_end(&m->piece[i - 1]) == m->piece[i].off) {
        m->piece[i - 1].bytes += m->piece[i].bytes;
        pk_remove(m, i);
    }
}

/* [off, off+bytes) of the hole i becomes q, or with q.bytes 0 nothing. */
static void pk_carve(pk_model *m, int i, uint64_t off, uint64_t bytes, symm_piece q) {
    symm_piece hole = m->piece[i];
    uint64_t behind = pk_end(&hole) - (off + bytes);
    pk_remove(m, i);
    if (behind) pk_insert(m, i, (symm_piece){off + bytes, behind, 0, 0});
    if (q.bytes) pk_insert(m, i, q);
    if (off > hole.off) pk_insert(m, i, (symm_piece){hole.off, off - hole.off, 0, 0});
}

static uint64_t pk_used(const pk_model *m) {
    uint64_t used = 0;
    for (int i = 0; i < m->n; i++) used += m->piece[i].used ? m->piece[i].bytes : 0;
    return used;
}

static void pk_note(pk_model *m, uint64_t end) {
    uint64_t used = pk_used(m);
    if (end > m->peak) m->peak = end;
    if (used > m->peak_used) m->peak_used = used;
}

static uint64_t pk_round(uint64_t bytes) {
    return (bytes + SYMM_PLACE_UNIT - 1) / SYMM_PLACE_UNIT * SYMM_PLACE_UNIT;
}

static int pk_add(pk_model *m, uint64_t off, uint64_t bytes) {
    int i = 0;
    if (!bytes || off % SYMM_PLACE_UNIT || bytes % SYMM_PLACE_UNIT) return -1;
    while (i < m->n && pk_end(&m->piece[i]) <= off) i++;
    if (i < m->n && m->piece[i].off < off + bytes) return -1;
    pk_insert(m, i, (symm_piece){off, bytes, 0, 1});
    pk_join(m, i);
    return 0;
}

/* The hole that holds all of a range, -1 if none does. */
static int pk_hole(const pk_model *m, uint64_t off, uint64_t bytes) {
    if (!bytes || off % SYMM_PLACE_UNIT || bytes % SYMM_PLACE_UNIT) return -1;
    for (int i = 0; i < m->n; i++)
        if (!m->piece[i].used && m->piece[i].off <= off && pk_end(&m->piece[i]) >= off + bytes)
            return i;
    return -1;
}

static int pk_cut(pk_model *m, uint64_t off, uint64_t bytes) {
    int i = pk_hole(m, off, bytes);
    if (i >= 0) pk_carve(m, i, off, bytes, (symm_piece){0, 0, 0, 0});
    return i < 0 ? -1 : 0;
}

static int pk_take_at(pk_model *m, uint64_t off, uint64_t bytes, uint64_t tag) {
    bytes = pk_round(bytes);
    int i = pk_hole(m, off, bytes);
    if (i < 0) return -1;
    pk_carve(m, i, off, bytes, (symm_piece){off, bytes, tag, 1});
    pk_note(m, off + bytes);
    return 0;
}

static uint64_t pk_take(pk_model *m, uint64_t bytes, uint64_t align, uint64_t tag) {
    int best = -1;
    uint64_t at = 0;
    bytes = pk_round(bytes);
    for (int i = 0; i < m->n; i++) {
        const symm_piece *q = &m->piece[i];
        uint64_t a = (q->off + align - 1) / align * align;
        if (q->used || !bytes || a + bytes > pk_end(q)) continue;
        if (best >= 0 && (m->fit == SYMM_PLACE_FIRST || q->bytes >= m->piece[best].bytes)) continue;
        best = i;
        at = a;
    }
    if (best < 0) return SYMM_PLACE_NONE;
    pk_carve(m, best, at, bytes, (symm_piece){at, bytes, tag, 1});
    pk_note(m, at + bytes);
    return at;
}

static int pk_block(const pk_model *m, uint64_t off) {
    for (int i = 0; i < m->n; i++)
        if (m->piece[i].used && m->piece[i].off == off) return i;
    return -1;
}

static uint64_t pk_give(pk_model *m, uint64_t off) {
    int i = pk_block(m, off);
    uint64_t bytes = i < 0 ? 0 : m->piece[i].bytes;
    if (i >= 0) pk_join(m, i);
    return bytes;
}

static int pk_resize(pk_model *m, uint64_t off, uint64_t bytes) {
    int i = pk_block(m, off);
    bytes = pk_round(bytes);
    if (i < 0 || !bytes) return -1;
    uint64_t was = m->piece[i].bytes;
    m->piece[i].bytes = bytes;
    if (bytes < was) {
        pk_insert(m, i + 1, (symm_piece){off + bytes, was - bytes, 0, 1});
        pk_join(m, i + 1);
    } else if (bytes > was) {
        symm_piece *next = &m->piece[i + 1];
        if (!pk_free(m, i + 1) || next->off != off + was || next->bytes < bytes - was) {
            m->piece[i].bytes = was;
            return -1;
        }
        next->off += bytes - was;
        next->bytes -= bytes - was;
        if (!next->bytes) pk_remove(m, i + 1);
        pk_note(m, off + bytes);
    }
    return 0;
}

static int pk_split(pk_model *m, uint64_t off, uint64_t bytes) {
    int i = pk_block(m, off);
    if (i < 0 || !bytes || bytes % SYMM_PLACE_UNIT || bytes >= m->piece[i].bytes) return -1;
    symm_piece rest = {off + bytes, m->piece[i].bytes - bytes, m->piece[i].tag, 1};
    m->piece[i].bytes = bytes;
    pk_insert(m, i + 1, rest);
    return 0;
}

/* Both hold the same pieces and count the same. */
static void pk_compare(const symm_place *p, const pk_model *m) {
    symm_place_stats s, want = {.peak = m->peak, .peak_used = m->peak_used};
    symm_piece q;
    uint64_t at = 0;
    for (int i = 0; i < m->n; i++) {
        const symm_piece *w = &m->piece[i];
        pk_require(symm_place_at(p, at, &q));
        pk_require(q.off == w->off && q.bytes == w->bytes && q.used == w->used && q.tag == w->tag);
        at = pk_end(w);
        *(w->used ? &want.used : &want.free) += w->bytes;
        *(w->used ? &want.blocks : &want.holes) += 1;
        if (!w->used && w->bytes > want.largest) want.largest = w->bytes;
    }
    pk_require(!symm_place_at(p, at, &q));
    symm_place_measure(p, &s);
    pk_require(s.used == want.used && s.free == want.free && s.largest == want.largest);
    pk_require(s.blocks == want.blocks && s.holes == want.holes);
    pk_require(s.peak == want.peak && s.peak_used == want.peak_used);
}

/* Where first fit puts a block, by walking the engine itself: for more pieces than the model
 * has. */
static inline uint64_t pk_lowest(const symm_place *p, uint64_t bytes) {
    symm_piece q;
    uint64_t at = 0;
    while (symm_place_at(p, at, &q) && (q.used || q.bytes < bytes)) at = q.off + q.bytes;
    return q.off;
}

#endif
