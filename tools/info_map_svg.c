/* info_map_svg.c - a heap's map as SVG: each zone is a stack of bars, read like lines of text;
 * blocks are coloured by their owner, a line below the bars shows the chunks. Pure; see
 * info_map.h.
 *
 * A piece narrower than a pixel is drawn together with its neighbours, in the colour of the most of
 * them, so the file's size follows the picture's and not the heap's. */
#include "info_map.h"

#include <stdio.h>

typedef unsigned long long ull;

enum { LEFT = 110, WIDTH = 960, BAR = 22, PITCH = 36, LINES = 12, MARGIN = 20 };

static const char *const colour[SYMM_CHART_KINDS] = {"#4e79a7", "#59a14f", "#edc948",
                                                     "#b07aa1", "#f28e2b", "#76b7b2",
                                                     "#9c755f", "#bab0ac", "#ffffff"};
static const char *const meaning[SYMM_CHART_KINDS] = {
    "the user's blocks", "arenas", "lanes",          "graphs", "vectors",
    "synced buffers",    "heap",   "in uncollected", "free"};

static void put_escaped(symm_text *t, const char *s) {
    for (; *s; s++) switch (*s) {
        case '<': symm_text_put(t, "&lt;"); break;
        case '>': symm_text_put(t, "&gt;"); break;
        case '&': symm_text_put(t, "&amp;"); break;
        case '"': symm_text_put(t, "&quot;"); break;
        default: /* XML has no other control characters, and a name may be no UTF-8 */
            symm_text_put(t, "%c", (unsigned char)*s < 0x20 || *s & 0x80 ? '?' : *s);
        }
}

/* ---- one zone ---- */

typedef struct {
    symm_text *t;
    const symm_chart_zone *z;
    uint64_t line; /* bytes in a bar */
    int lines, y;
} canvas;

/* The whole zone in at most LINES bars of a round size. */
static canvas canvas_of(symm_text *t, const symm_chart_zone *z, int y) {
    canvas c = {t, z, 4096, 0, y};
    const uint64_t span = z->to - z->from;
    while (span / c.line + (span % c.line != 0) > LINES) c.line *= 2;
    c.lines = (int)(span / c.line + (span % c.line != 0));
    return c;
}

/* The end of the bar that holds off. */
static uint64_t line_end(const canvas *c, uint64_t off) {
    const uint64_t in = off - c->z->from;
    const uint64_t end = c->z->from + (in / c->line + 1) * c->line;
    return end < c->z->to ? end : c->z->to;
}

static double x_of(const canvas *c, uint64_t off) {
    return LEFT + (double)((off - c->z->from) % c->line) / (double)c->line * WIDTH;
}
static double width_of(const canvas *c, uint64_t bytes) {
    return (double)bytes / (double)c->line * WIDTH;
}
static int y_of(const canvas *c, uint64_t off) {
    return c->y + (int)((off - c->z->from) / c->line) * PITCH;
}

/* A part of one bar. height 0: a chunk's line below it. */
static void put_rect(const canvas *c, uint64_t off, uint64_t bytes, const char *fill, int chunk) {
    symm_text_put(c->t, "<rect x=\"%.2f\" y=\"%d\" width=\"%.2f\" height=\"%d\" fill=\"%s\"",
                  x_of(c, off), y_of(c, off) + (chunk ? BAR + 2 : 0), width_of(c, bytes),
                  chunk ? 3 : BAR, fill);
    if (!chunk && width_of(c, bytes) >= 3)
        symm_text_put(c->t, " stroke=\"#555\" stroke-width=\"0.5\"");
    symm_text_put(c->t, ">");
}

static void put_piece(const canvas *c, const symm_chart_piece *p) {
    char size[32];
    const uint64_t end = p->off + p->bytes;
    for (uint64_t at = p->off; at < end;) {
        const uint64_t stop = line_end(c, at) < end ? line_end(c, at) : end;
        put_rect(c, at, stop - at, colour[p->kind], 0);
        symm_text_put(c->t, "<title>%s: %s at offset %llu", symm_chart_kind[p->kind],
                      symm_text_bytes(p->bytes, size, sizeof size), (ull)p->off);
        if (p->lane >= 0) symm_text_put(c->t, ", lane %d", p->lane);
        symm_text_put(c->t, "</title></rect>\n");
        at = stop;
    }
}

/* From piece i on: neighbours that together are a pixel wide. Returns the first piece behind
 * them. */
static int put_crowd(const canvas *c, int i) {
    const symm_chart_zone *z = c->z;
    uint64_t bytes[SYMM_CHART_KINDS] = {0}, end = z->pieces[i].off;
    const uint64_t from = end, stop = line_end(c, from);
    int n = 0, most = 0;
    while (i + n < z->npieces && z->pieces[i + n].off == end && end < stop) {
        const symm_chart_piece *p = &z->pieces[i + n];
        if (width_of(c, p->bytes) >= 1 || p->off + p->bytes > stop) break;
        bytes[p->kind] += p->bytes;
        end += p->bytes;
        n++;
        if (width_of(c, end - from) >= 1) break;
    }
    if (n < 2) { /* alone, or across the end of a bar */
        put_piece(c, &z->pieces[i]);
        return i + 1;
    }
    for (int k = 1; k < SYMM_CHART_KINDS; k++)
        if (bytes[k] > bytes[most]) most = k;
    put_rect(c, from, end - from, colour[most], 0);
    symm_text_put(c->t, "<title>%d pieces at offset %llu</title></rect>\n", n, (ull)from);
    return i + n;
}

static void put_chunks(const canvas *c) {
    char size[32];
    for (int i = 0; i < c->z->nchunks; i++) {
        const symm_chart_chunk *k = &c->z->chunks[i];
        for (uint64_t at = k->off; at < k->off + k->bytes;) {
            const uint64_t end = k->off + k->bytes;
            const uint64_t stop = line_end(c, at) < end ? line_end(c, at) : end;
            put_rect(c, at, stop - at, i % 2 ? "#999999" : "#333333", 1);
            symm_text_put(c->t, "<title>chunk %d: %s at offset %llu</title></rect>\n", i,
                          symm_text_bytes(k->bytes, size, sizeof size), (ull)k->off);
            at = stop;
        }
    }
}

/* Where the bar begins; from the heap's end where that is nearer, as LOCAL is read. */
static void put_label(const canvas *c, int line) {
    char size[32];
    const uint64_t off = c->z->from + (uint64_t)line * c->line;
    const int back = c->z->from > 0;
    symm_text_put(c->t, "<text x=\"%d\" y=\"%d\" text-anchor=\"end\">%s%s</text>\n", LEFT - 8,
                  c->y + line * PITCH + BAR - 6, back ? "end - " : "",
                  symm_text_bytes(back ? c->z->to - off : off, size, sizeof size));
}

static int put_zone(symm_text *t, const symm_chart_zone *z, int y) {
    symm_chart_sums s;
    char a[32], b[32], d[32];
    symm_chart_sum(z, &s);
    symm_text_put(t,
                  "<text x=\"%d\" y=\"%d\" font-weight=\"bold\">%s: %s in %d chunks, %s used in "
                  "%llu blocks, largest hole %s</text>\n",
                  MARGIN, y, z->name, symm_text_bytes(z->bytes, a, sizeof a), z->nchunks,
                  symm_text_bytes(s.used, b, sizeof b), (ull)s.blocks,
                  symm_text_bytes(s.largest, d, sizeof d));
    if (z->from == z->to) return y + PITCH;
    const canvas c = canvas_of(t, z, y + 12);
    for (int i = 0; i < c.lines; i++) put_label(&c, i);
    for (int i = 0; i < z->npieces;) {
        const int small = width_of(&c, z->pieces[i].bytes) < 1;
        if (!small) put_piece(&c, &z->pieces[i]);
        i = small ? put_crowd(&c, i) : i + 1;
    }
    put_chunks(&c);
    return c.y + c.lines * PITCH + PITCH / 2;
}

/* ---- around it ---- */

static int zone_height(const symm_chart_zone *z) {
    if (z->from == z->to) return PITCH;
    return 12 + canvas_of(NULL, z, 0).lines * PITCH + PITCH / 2;
}

/* What is there, in two rows. */
static void put_legend(symm_text *t, const symm_chart *m, int y) {
    char size[32];
    int x = MARGIN;
    symm_chart_sums s[2];
    for (int i = 0; i < 2; i++) symm_chart_sum(&m->zone[i], &s[i]);
    for (int k = 0; k < SYMM_CHART_KINDS; k++) {
        const uint64_t bytes = s[0].bytes[k] + s[1].bytes[k];
        if (!bytes) continue;
        symm_text_put(t,
                      "<rect x=\"%d\" y=\"%d\" width=\"14\" height=\"14\" fill=\"%s\" "
                      "stroke=\"#555\" stroke-width=\"0.5\"/>",
                      x, y, colour[k]);
        symm_text_put(t, "<text x=\"%d\" y=\"%d\">%s, %s</text>\n", x + 20, y + 12, meaning[k],
                      symm_text_bytes(bytes, size, sizeof size));
        x += 210;
        if (x + 210 > LEFT + WIDTH + MARGIN) {
            x = MARGIN;
            y += 24;
        }
    }
}

void info_map_svg(symm_text *t, const symm_chart *m) {
    char size[32];
    int y = 84;
    const int height = y + zone_height(&m->zone[0]) + zone_height(&m->zone[1]) + 48 + MARGIN;
    symm_text_put(t,
                  "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
                  "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
                  "viewBox=\"0 0 %d %d\" font-family=\"sans-serif\" font-size=\"12\">\n",
                  LEFT + WIDTH + MARGIN, height, LEFT + WIDTH + MARGIN, height);
    symm_text_put(t, "<rect width=\"100%%\" height=\"100%%\" fill=\"#fafafa\"/>\n"
                     "<text x=\"20\" y=\"30\" font-size=\"16\">heap ");
    put_escaped(t, m->name);
    symm_text_put(t, ", rank %d of %d</text>\n", m->rank, m->nranks);
    symm_text_put(t,
                  "<text x=\"20\" y=\"50\">%s of addresses; a bar is read like a line of text, the "
                  "line below it shows the chunks of memory</text>\n",
                  symm_text_bytes(m->reserve, size, sizeof size));
    for (int i = 0; i < 2; i++) y = put_zone(t, &m->zone[i], y);
    put_legend(t, m, y);
    symm_text_put(t, "</svg>\n");
}
