/* tune_choose.c - from times to rows. Pure. */
#include <math.h>
#include <string.h>

#include "tune.h"

/* As logarithms of a time. What a choice must gain beside that without a table; what it must gain
 * over all sizes that have it beside that of the next smaller size. */
#define MARGIN 0.05
#define CHANGE 0.10

double tune_median(const tune_candidate *c) {
    double v[TUNE_SAMPLES];
    memcpy(v, c->us, sizeof v);
    return c->n ? perf_median(v, c->n) : INFINITY;
}

tune_option tune_option_of(const tune_candidate *c, const tune_candidate *first) {
    const int n = c->n < first->n ? c->n : first->n;
    double ratio[TUNE_SAMPLES];
    for (int i = 0; i < n; i++) ratio[i] = c->us[i] / first->us[i];
    return (tune_option){
        .row = c->row, .us = tune_median(c), .ratio = n ? perf_median(ratio, n) : INFINITY};
}

static int same_row(const symm_plan_row *a, const symm_plan_row *b) {
    return a->kernel == b->kernel && a->warps == b->warps && a->ctas == b->ctas;
}

static double cost_of(const tune_size *s, int k) {
    return log(s->option[k].ratio) - (k == 0 ? MARGIN : 0);
}

/* The least sum of all costs and changes: of each option of a size the best way to it. */
void tune_choose(tune_size *size, int n) {
    double cost[TUNE_SIZES][TUNE_OPTIONS];
    int from[TUNE_SIZES][TUNE_OPTIONS] = {{0}}, best = 0;
    for (int i = 0; i < n; i++)
        for (int k = 0; k < size[i].n; k++) {
            cost[i][k] = i ? INFINITY : 0;
            for (int j = 0; i && j < size[i - 1].n; j++) {
                const int same = same_row(&size[i - 1].option[j].row, &size[i].option[k].row);
                const double by = cost[i - 1][j] + (same ? 0 : CHANGE);
                if (by < cost[i][k]) cost[i][k] = by, from[i][k] = j;
            }
            cost[i][k] += cost_of(&size[i], k);
        }
    for (int k = 1; n && k < size[n - 1].n; k++)
        if (cost[n - 1][k] < cost[n - 1][best]) best = k;
    for (int i = n - 1; i >= 0; best = from[i--][best]) size[i].chosen = best;
}

int tune_rows(const tune_size *size, int n, symm_plan_row *out) {
    int made = 0;
    for (int i = 0; i < n; i++) {
        const symm_plan_row *row = &size[i].option[size[i].chosen].row;
        const tune_size *next = i + 1 < n ? &size[i + 1] : NULL;
        if (next && same_row(row, &next->option[next->chosen].row)) continue;
        const double to =
            next ? sqrt((double)size[i].input * (double)next->input) : (double)size[i].input;
        out[made] = *row;
        out[made++].upto = (uint64_t)to;
    }
    return made;
}
