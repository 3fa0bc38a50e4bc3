/* perf_table.c - the text output: nccl-tests' columns, then those of --vs and --limits. Rank 0's
 * thread only. */
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "perf_gpu.h"
#include "perf_nccl.h"

enum { LARGE = 8 << 20, SMALL = 1 << 10 };

static void print_ranks(const perf_rank *p, const perf_place *places) {
    symmCommInfo_t info = {.size = sizeof info};
    PERF_MUST((perf_rank *)p, symmCommQuery(p->comm, &info));
    printf("# backend %s, bootstrap %s, %d ranks on ", info.backend, info.bootstrap, info.nranks);
    if (p->gpu) {
        int driver = perf_gpu_driver(p);
        printf("GPUs, driver of CUDA %d.%d\n", driver / 1000, driver % 1000 / 10);
    } else {
        printf("%ld cores%s\n", sysconf(_SC_NPROCESSORS_ONLN),
               info.oversubscribed ? " (oversubscribed)" : "");
    }
    for (int r = 0; r < p->world->nranks; r++) {
        const perf_place *at = &places[r];
        printf("#  Rank %2d Pid %6d on %s device %d", r, at->pid, at->host, at->device);
        if (at->core >= 0) printf(" core %d", at->core);
        if (*at->gpu) printf(" [%s] %s", at->pci, at->gpu);
        printf("\n");
    }
}

static void print_nccl(const perf_rank *p) {
    perf_nccl_info n = perf_nccl_describe(p);
    printf("# NCCL %d.%d.%d (%s), registered: %s, memory: %s, on the same stream\n",
           n.version / 10000, n.version / 100 % 100, n.version % 100, n.path, n.registered,
           n.own_memory ? "its own" : "the same");
    if (n.calls) printf("# NCCL runs %s\n", n.calls);
}

/* The rival has a bandwidth of its own where both are made of the same stuff. */
static int shows_bandwidths(const perf_config *cfg) {
    return cfg->vs == PERF_VS_NCCL;
}

/* The head of one cell: its name, the columns' names, their units. */
static void print_cell_head(const perf_rank *p, int line, const char *name) {
    const perf_config *cfg = p->cfg;
    static const char *const ours[] = {NULL, "     time   algbw   busbw  #wrong",
                                       "     (us)  (GB/s)  (GB/s)        "};
    static const char *const limit[] = {"                ", "    limit    of it",
                                        "     (us)         "};
    static const char *const bandwidths[] = {"", "   algbw   busbw", "  (GB/s)  (GB/s)"};
    static const char *const ratio[] = {"", "   ratio", "        "};
    static const char *const issue[] = {"", "    issue", "     (us)"};
    int has_rival = p->rival != NULL;
    if (line)
        printf("%s", ours[line]);
    else
        printf("%21s%-12s", name, "");
    if (has_rival) {
        printf("%9s", line == 1 ? p->rival->name : line == 2 ? "(us)" : "");
        if (shows_bandwidths(cfg)) printf("%-16s", bandwidths[line]);
        printf("%-8s", ratio[line]);
    }
    if (cfg->limits && !p->gpu) printf("%-18s", limit[line]);
    if (cfg->limits && p->gpu) printf("%-9s", issue[line]);
    if (cfg->limits && p->gpu && has_rival)
        printf("%9s", line == 1 ? p->rival->name : line == 2 ? "(us)" : "");
}

void perf_table_head(const perf_rank *p, const perf_place *places) {
    static const char *const row[] = {"#                                                      ",
                                      "#       size         count      type   redop    root",
                                      "#        (B)    (elements)                            "};
    const perf_config *cfg = p->cfg;
    printf("# symm-perf %d.%d.%d: %s\n", SYMM_MAJOR, SYMM_MINOR, SYMM_PATCH, cfg->row->name);
    printf("# nRanks %d minBytes %llu maxBytes %llu step: %llu(%s) warmup iters: %d iters: ",
           p->world->nranks, (unsigned long long)cfg->min_bytes, (unsigned long long)cfg->max_bytes,
           cfg->step_factor > 1 ? (unsigned long long)cfg->step_factor
                                : (unsigned long long)cfg->step_bytes,
           cfg->step_factor > 1 ? "factor" : "bytes", cfg->warmup);
    printf(cfg->iters ? "%d" : "adaptive", cfg->iters);
    printf(" agg iters: %d rounds: %d validation: %d graph: %d windows: %s\n#\n", cfg->agg,
           cfg->rounds, cfg->check, cfg->graph, cfg->registered ? "yes" : "no");
    print_ranks(p, places);
    if (p->nccl) print_nccl(p);
    printf("#\n");
    for (int line = 0; line < 3; line++) {
        printf("%-52s", row[line]);
        print_cell_head(p, line, "out-of-place");
        if (perf_cells(cfg) > 1) print_cell_head(p, line, "in-place");
        printf("\n");
    }
    fflush(stdout);
}

/* As many decimals as say something in seven places. */
static void print_us(double us) {
    if (us <= 0)
        printf("      N/A");
    else
        printf("  %7.*f", us < 100 ? 3 - (us >= 10) : us < 10000 ? 1 : 0, us);
}

static void print_rival(const perf_config *cfg, const perf_cell *c) {
    double ratio = c->rival_us > 0 ? c->rival_us / c->time_us : 0;
    print_us(c->rival_us);
    if (shows_bandwidths(cfg) && ratio > 0)
        printf("  %6.2f  %6.2f", c->alg_bw / ratio, c->bus_bw / ratio);
    else if (shows_bandwidths(cfg))
        printf("     N/A     N/A");
    if (ratio > 0)
        printf("  %5.2fx", ratio);
    else
        printf("     N/A");
}

static void print_cell(const perf_rank *p, const perf_cell *c) {
    const perf_config *cfg = p->cfg;
    print_us(c->time_us);
    printf("  %6.2f  %6.2f", c->alg_bw, c->bus_bw);
    if (c->wrong < 0)
        printf("     N/A");
    else
        printf("  %6lld", (long long)c->wrong);
    if (p->rival) print_rival(cfg, c);
    if (cfg->limits && p->gpu) {
        print_us(c->issue_us);
        if (p->rival) print_us(c->rival_issue_us);
    } else if (cfg->limits) {
        print_us(c->limit_us);
        printf("  %6.1f%%", 100 * c->limit_us / c->time_us);
    }
}

void perf_table_row(const perf_rank *p, const perf_row *row) {
    printf("%12llu  %12llu  %8s  %6s  %6d", (unsigned long long)row->bytes,
           (unsigned long long)row->count, row->type < 0 ? "none" : perf_type_names[row->type],
           row->op < 0 ? "none" : perf_op_names[row->op], row->root);
    print_cell(p, &row->cell[0]);
    if (perf_cells(p->cfg) > 1) print_cell(p, &row->cell[1]);
    printf("\n");
    fflush(stdout);
}

/* ---- closing lines ---- */

typedef struct {
    double log_sum, least;
    uint64_t least_bytes;
    int n;
} ratios;

static void add_ratio(ratios *r, const perf_row *row, const perf_cell *c) {
    if (c->rival_us <= 0) return;
    double ratio = c->rival_us / c->time_us;
    r->log_sum += log(ratio);
    if (!r->n++ || ratio < r->least) r->least = ratio, r->least_bytes = row->bytes;
}

static double mean(const ratios *r) {
    return r->n ? exp(r->log_sum / r->n) : 0;
}

static void print_ratios(const char *rival, const perf_results *results) {
    ratios all = {.n = 0}, cell[2] = {{.n = 0}, {.n = 0}};
    for (size_t i = 0; i < results->n; i++)
        for (int k = 0; k < 2; k++) {
            add_ratio(&cell[k], &results->row[i], &results->row[i].cell[k]);
            add_ratio(&all, &results->row[i], &results->row[i].cell[k]);
        }
    if (!all.n) {
        printf("# Ratio to %-13s : N/A (%s has none of these)\n", rival, rival);
        return;
    }
    printf("# Ratio to %-13s : %.2fx geometric mean (out-of-place %.2fx", rival, mean(&all),
           mean(&cell[0]));
    if (cell[1].n) printf(", in-place %.2fx", mean(&cell[1]));
    printf("), smallest %.2fx at %llu B\n", all.least, (unsigned long long)all.least_bytes);
}

static void print_limits(const perf_results *results) {
    double above = 0, share = 0;
    int small = 0, large = 0;
    for (size_t i = 0; i < results->n; i++)
        for (int k = 0; k < 2; k++) {
            const perf_row *row = &results->row[i];
            const perf_cell *c = &row->cell[k];
            double over = c->time_us - c->limit_us, of = c->limit_us / c->time_us;
            if (row->bytes < SMALL && (!small++ || over > above)) above = over;
            if (row->bytes >= LARGE && (!large++ || of < share)) share = of;
        }
    printf("# limit: a bare two-cache-line exchange takes %.3f us", results->exchange_us);
    if (small) printf("; calls under 1 KB at most %.3f us more", above);
    printf("\n");
    if (large)
        printf("# limit: from 8 MB up at least %.1f %% of a bare loop over the same mapping\n",
               100 * share);
}

void perf_table_foot(const perf_rank *p) {
    const perf_config *cfg = p->cfg;
    const perf_results *r = &p->results;
    double bus = 0;
    const int cells = perf_cells(cfg);
    for (size_t i = 0; i < r->n; i++)
        for (int k = 0; k < cells; k++) bus += r->row[i].cell[k].bus_bw;
    if (cfg->check && perf_moves(cfg))
        printf("# Out of bounds values : %lld %s\n", (long long)r->wrong,
               r->wrong ? "FAILED" : "OK");
    else
        printf("# Out of bounds values : not checked\n");
    if (r->rival_wrong >= 0)
        printf("# Wrong values of %-4s : %lld\n", p->rival->name, (long long)r->rival_wrong);
    printf("# Avg bus bandwidth    : %g\n", r->n ? bus / (double)r->n / cells : 0);
    if (p->rival) print_ratios(p->rival->name, r);
    if (cfg->limits && !p->gpu) print_limits(r);
    fflush(stdout);
}
