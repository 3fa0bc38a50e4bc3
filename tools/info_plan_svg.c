/* info_plan_svg.c - plans as SVG. Pure but for the file; see info_plan.h. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "info_plan.h"

enum { LEFT = 130, WIDTH = 900, BAR = 22, PITCH = 28, HEAD = 46, MARGIN = 20 };
/* The axis: powers of two, from 64 bytes to a gigabyte. Smaller ones lie in its first step. */
enum { FIRST = 6, LAST = 30, TICK = 4 };

/* Kernels of a collective have different colours; a colour means nothing else. */
static const char *const colour[] = {"#4e79a7", "#f28e2b", "#59a14f", "#b07aa1",
                                     "#76b7b2", "#edc948", "#9c755f", "#e15759"};
enum { COLOURS = sizeof colour / sizeof *colour };

/* Within the axis. Its right end is beyond the last power. */
static double x_of(uint64_t bytes) {
    const double at = bytes < 1u << FIRST ? FIRST : log2((double)bytes);
    const double in = at > LAST ? LAST : at;
    return LEFT + (in - FIRST) / (LAST - FIRST) * (bytes == UINT64_MAX ? WIDTH : WIDTH - 30);
}

/* The place of the kernel among those of its collective. */
static int number_of(symm_kernel_id kernel) {
    int n = 0;
    for (int k = 0; k < (int)kernel; k++) n += symm_kernels[k].coll == symm_kernels[kernel].coll;
    return n;
}

static void put_bytes(symm_text *t, uint64_t bytes) {
    char text[32];
    symm_text_put(t, "%s", symm_text_bytes(bytes, text, sizeof text));
}

/* A kernel's name without its collective's. */
static const char *short_name(const info_plan_row *r) {
    const char *name = symm_kernels[r->kernel].name;
    const size_t n = strlen(r->coll);
    return !strncmp(name, r->coll, n) && name[n] == '_' ? name + n + 1 : name;
}

static void put_row(symm_text *t, const info_plan_row *r, int y) {
    static const char *const edge[] = {"", " stroke=\"#333\" stroke-dasharray=\"4 3\"",
                                       " stroke=\"#000\" stroke-width=\"2\"",
                                       " stroke=\"#e15759\" stroke-width=\"2\""};
    const double x = x_of(r->from ? r->from : 1), width = x_of(r->to) - x;
    symm_text_put(t, "<rect x=\"%.1f\" y=\"%d\" width=\"%.1f\" height=\"%d\" fill=\"%s\"%s>", x, y,
                  width > 0.5 ? width : 0.5, BAR, colour[number_of(r->kernel) % COLOURS],
                  edge[r->source]);
    symm_text_put(t, "<title>%s: ", symm_kernels[r->kernel].name);
    put_bytes(t, r->from);
    if (r->to == UINT64_MAX)
        symm_text_put(t, " and more");
    else
        symm_text_put(t, " to "), put_bytes(t, r->to);
    symm_text_put(t, ", %s</title></rect>\n", symm_plan_source(r->source));
    if (width > 7.0 * (double)strlen(short_name(r)))
        symm_text_put(t, "<text x=\"%.1f\" y=\"%d\" class=\"k\">%s</text>\n", x + width / 2, y + 15,
                      short_name(r));
}

static void put_axis(symm_text *t, int y, int height) {
    for (int b = FIRST; b <= LAST; b += TICK) {
        const double x = x_of(1ull << b);
        symm_text_put(t, "<line x1=\"%.1f\" y1=\"%d\" x2=\"%.1f\" y2=\"%d\" stroke=\"#ddd\"/>", x,
                      y, x, y + height);
        symm_text_put(t, "<text x=\"%.1f\" y=\"%d\" class=\"a\">", x, y - 6);
        put_bytes(t, 1ull << b);
        symm_text_put(t, "</text>\n");
    }
}

static int count_colls(const info_plan *p) {
    int n = 0;
    for (int i = 0; i < p->n; i++) n += !i || strcmp(p->row[i].coll, p->row[i - 1].coll) != 0;
    return n;
}

static int height_of(const info_plan *p) {
    return HEAD + count_colls(p) * PITCH + MARGIN;
}

static void put_plan(symm_text *t, const info_plan *p, int y) {
    symm_text_put(t, "<text x=\"10\" y=\"%d\" class=\"t\">%s</text>\n", y + 16, p->title);
    put_axis(t, y + HEAD, count_colls(p) * PITCH);
    y += HEAD - PITCH;
    for (int i = 0; i < p->n; i++) {
        const info_plan_row *r = &p->row[i];
        if (!i || strcmp(r->coll, p->row[i - 1].coll) != 0) {
            y += PITCH;
            symm_text_put(t, "<text x=\"10\" y=\"%d\">%s</text>\n", y + 15, r->coll);
        }
        put_row(t, r, y);
    }
}

int info_plan_draw(int fd, const info_plan *plan, int n) {
    symm_text t = {.fd = fd};
    int y = 34, height = y;
    for (int i = 0; i < n; i++) height += height_of(&plan[i]);
    symm_text_put(&t,
                  "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
                  "font-family=\"sans-serif\" font-size=\"12\">\n"
                  "<style>.k{text-anchor:middle;fill:#fff}.a{text-anchor:middle;fill:#666;"
                  "font-size:10px}.t{font-weight:bold}</style>\n"
                  "<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n",
                  LEFT + WIDTH + MARGIN, height);
    symm_text_put(&t,
                  "<text x=\"10\" y=\"20\">Bytes of `count` elements. No edge: shipped; dashed: "
                  "predicted; black: measured here; red: forced</text>\n");
    for (int i = 0; i < n; y += height_of(&plan[i++])) put_plan(&t, &plan[i], y);
    symm_text_put(&t, "</svg>\n");
    return symm_text_end(&t) ? -1 : 0;
}
