/* perf_plot.c - time over size as an SVG, both axes logarithmic: one line per contestant and
 * placement. Several types or reductions: the first one is drawn. Rank 0's thread only. */
#include <math.h>
#include <string.h>

#include "perf.h"

enum { WIDTH = 860, HEIGHT = 520, LEFT = 80, RIGHT = 190, TOP = 50, BOTTOM = 60 };

typedef struct {
    double x0, x1, y0, y1; /* log2 of bytes, log10 of us */
} range;

typedef double (*value_fn)(const perf_cell *c);
static double ours(const perf_cell *c) {
    return c->time_us;
}
static double rival(const perf_cell *c) {
    return c->rival_us;
}
static double limit(const perf_cell *c) {
    return c->limit_us;
}

static const struct {
    const char *name, *color, *dash; /* name NULL: the rival's */
    int cell;
    value_fn value;
} lines[] = {
    {"symm", "#0b6e4f", "none", 0, ours},       {"symm, in place", "#0b6e4f", "6 4", 1, ours},
    {NULL, "#c1121f", "none", 0, rival},        {NULL, "#c1121f", "6 4", 1, rival},
    {"bare loop", "#6c757d", "none", 0, limit}, {"bare loop, in place", "#6c757d", "6 4", 1, limit},
};
enum { NLINES = sizeof lines / sizeof *lines };

static int is_drawn(const perf_results *r, const perf_row *row) {
    return row->type == r->row[0].type && row->op == r->row[0].op && row->bytes > 0;
}

static double at_x(const range *g, double bytes) {
    return LEFT + (log2(bytes) - g->x0) / (g->x1 - g->x0) * (WIDTH - LEFT - RIGHT);
}
static double at_y(const range *g, double us) {
    return HEIGHT - BOTTOM - (log10(us) - g->y0) / (g->y1 - g->y0) * (HEIGHT - TOP - BOTTOM);
}

/* Whole powers on both axes; at least one step, also for a single row. */
static range find_range(const perf_results *r) {
    range g = {.x0 = 64, .y0 = 64, .x1 = -64, .y1 = -64};
    for (size_t i = 0; i < r->n; i++) {
        const perf_row *row = &r->row[i];
        if (!is_drawn(r, row)) continue;
        g.x0 = fmin(g.x0, floor(log2((double)row->bytes)));
        g.x1 = fmax(g.x1, ceil(log2((double)row->bytes)));
        for (int k = 0; k < NLINES; k++) {
            double us = lines[k].value(&row->cell[lines[k].cell]);
            if (us <= 0) continue;
            g.y0 = fmin(g.y0, floor(log10(us)));
            g.y1 = fmax(g.y1, ceil(log10(us)));
        }
    }
    if (g.x1 <= g.x0) g.x1 = g.x0 + 1;
    if (g.y1 <= g.y0) g.y1 = g.y0 + 1;
    return g;
}

static void size_name(double bytes, char *out, size_t cap) {
    static const char units[] = " KMGT";
    int u = 0;
    while (bytes >= 1024 && u < 4) bytes /= 1024, u++;
    snprintf(out, cap, "%g%.*s", bytes, u > 0, units + u);
}

static void draw_axes(FILE *f, const range *g) {
    int every = (int)((g->x1 - g->x0) / 12) + 1;
    for (double x = g->x0; x <= g->x1; x += every) {
        char name[32];
        double px = at_x(g, exp2(x));
        size_name(exp2(x), name, sizeof name);
        fprintf(f, "<line x1=\"%.1f\" y1=\"%d\" x2=\"%.1f\" y2=\"%d\" stroke=\"#ddd\"/>\n", px, TOP,
                px, HEIGHT - BOTTOM);
        fprintf(f, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%s</text>\n", px,
                HEIGHT - BOTTOM + 18, name);
    }
    for (double y = g->y0; y <= g->y1; y += 1) {
        double py = at_y(g, pow(10, y));
        fprintf(f, "<line x1=\"%d\" y1=\"%.1f\" x2=\"%d\" y2=\"%.1f\" stroke=\"#ddd\"/>\n", LEFT,
                py, WIDTH - RIGHT, py);
        fprintf(f, "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%g</text>\n", LEFT - 8, py + 4,
                pow(10, y));
    }
    fprintf(f, "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">size (bytes)</text>\n",
            (LEFT + WIDTH - RIGHT) / 2, HEIGHT - 16);
    fprintf(f,
            "<text transform=\"translate(22 %d) rotate(-90)\" text-anchor=\"middle\">time "
            "(us)</text>\n",
            (TOP + HEIGHT - BOTTOM) / 2);
}

static void put_name(FILE *f, const perf_rank *p, int k) {
    if (lines[k].name)
        fputs(lines[k].name, f);
    else
        fprintf(f, "%s%s", p->rival->name, lines[k].cell ? ", in place" : "");
}

/* Each time the table is measured again (-N) the line begins again. */
static void draw_line(FILE *f, const range *g, const perf_rank *p, int k, int *legend) {
    const perf_results *r = &p->results;
    int points = 0;
    uint64_t last = 0;
    for (size_t i = 0; i < r->n; i++) {
        double us = lines[k].value(&r->row[i].cell[lines[k].cell]);
        if (!is_drawn(r, &r->row[i]) || us <= 0) continue;
        if (!points++)
            fprintf(f,
                    "<path fill=\"none\" stroke=\"%s\" stroke-width=\"2\" "
                    "stroke-dasharray=\"%s\" d=\"",
                    lines[k].color, lines[k].dash);
        fprintf(f, "%c%.1f,%.1f ", r->row[i].bytes > last && last ? 'L' : 'M',
                at_x(g, (double)r->row[i].bytes), at_y(g, us));
        last = r->row[i].bytes;
    }
    if (!points) return;
    int y = TOP + 20 * (*legend)++;
    fprintf(f,
            "\"/>\n<line x1=\"%d\" y1=\"%d\" x2=\"%d\" y2=\"%d\" stroke=\"%s\" stroke-width=\"2\" "
            "stroke-dasharray=\"%s\"/>\n",
            WIDTH - RIGHT + 16, y, WIDTH - RIGHT + 46, y, lines[k].color, lines[k].dash);
    fprintf(f, "<text x=\"%d\" y=\"%d\">", WIDTH - RIGHT + 52, y + 4);
    put_name(f, p, k);
    fputs("</text>\n", f);
}

static void draw(FILE *f, const perf_rank *p) {
    const perf_results *r = &p->results;
    fprintf(f,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" "
            "font-family=\"sans-serif\" font-size=\"12\">\n",
            WIDTH, HEIGHT);
    fprintf(f,
            "<rect width=\"%d\" height=\"%d\" fill=\"white\"/>\n<text x=\"%d\" y=\"28\" "
            "font-size=\"16\">%s",
            WIDTH, HEIGHT, LEFT, p->cfg->row->name);
    if (r->n && r->row[0].type >= 0) fprintf(f, " %s", perf_type_names[r->row[0].type]);
    if (r->n && r->row[0].op >= 0) fprintf(f, " %s", perf_op_names[r->row[0].op]);
    fprintf(f, ", %d ranks</text>\n", p->world->nranks);
    range g = find_range(r);
    int legend = 0;
    if (g.x0 < 64) {
        draw_axes(f, &g);
        for (int k = 0; k < NLINES; k++) draw_line(f, &g, p, k, &legend);
    }
    fputs("</svg>\n", f);
}

int perf_plot_write(const char *path, const perf_rank *p) {
    FILE *f = fopen(path, "w");
    if (!f) return -1;
    draw(f, p);
    int bad = ferror(f);
    return fclose(f) || bad ? -1 : 0;
}
