/* perf_json.c - the results as JSON, with nccl-tests' names where it has them. Rank 0's thread
 * only. */
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/text.h"
#include "perf_gpu.h"
#include "perf_nccl.h"

/* File names and the environment may hold any bytes. */
static void put_text(FILE *f, const char *s) {
    char piece[SYMM_TEXT_JSON];
    putc('"', f);
    while (*s) {
        s += symm_text_json(s, piece);
        fputs(piece, f);
    }
    putc('"', f);
}

static void put_now(FILE *f) {
    char text[32];
    time_t t = time(NULL);
    struct tm tm;
    strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", localtime_r(&t, &tm));
    put_text(f, text);
}

/* What decides the result: the settings of the library, of MPI, NCCL and CUDA; the rest of the
 * environment is nobody's business. */
static void put_env(FILE *f) {
    extern char **environ;
    static const char *const prefixes[] = {"SYMM_", "OMPI_MCA_", "NCCL_", "CUDA_"};
    int n = 0;
    for (char **e = environ; *e; e++)
        for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++)
            if (!strncmp(*e, prefixes[i], strlen(prefixes[i]))) {
                if (n++) fputs(", ", f);
                put_text(f, *e);
            }
}

static void put_devices(FILE *f, const perf_rank *p, const perf_place *places) {
    for (int r = 0; r < p->world->nranks; r++) {
        fprintf(f, "%s\n    {\"rank\": %d, \"pid\": %d, \"hostname\": ", r ? "," : "", r,
                places[r].pid);
        put_text(f, places[r].host);
        if (p->gpu) {
            fprintf(f, ", \"device\": %d, \"pci\": ", places[r].device);
            put_text(f, places[r].pci);
            fputs(", \"name\": ", f);
            put_text(f, places[r].gpu);
        }
        putc('}', f);
    }
}

static void put_backend(FILE *f, const perf_rank *p) {
    fprintf(f, "   \"backend\": \"%s\", \"launch\": \"%s\"", p->gpu ? "cuda" : "host",
            p->cfg->graph ? "graph" : "eager");
    if (p->gpu) fprintf(f, ", \"cuda_driver\": %d", perf_gpu_driver(p));
    if (p->nccl) {
        perf_nccl_info n = perf_nccl_describe(p);
        fprintf(f,
                ",\n   \"nccl\": {\"version\": %d, \"registered\": \"%s\", \"own_memory\": %d, "
                "\"calls\": \"%s\", \"path\": ",
                n.version, n.registered, n.own_memory, n.calls ? n.calls : "none");
        put_text(f, n.path);
        putc('}', f);
    }
    fputs(",\n", f);
}

static void put_config(FILE *f, const perf_rank *p, const perf_place *places) {
    const perf_config *c = p->cfg;
    fprintf(f,
            "  \"config\": {\"collective\": \"%s\", \"ranks\": %d, \"bootstrap\": \"%s\", "
            "\"cores\": %ld,\n",
            c->row->name, p->world->nranks, p->world->how, sysconf(_SC_NPROCESSORS_ONLN));
    put_backend(f, p);
    fprintf(f,
            "   \"minimum_bytes\": %llu, \"maximum_bytes\": %llu, \"step_bytes\": %llu, "
            "\"step_factor\": %d,\n",
            (unsigned long long)c->min_bytes, (unsigned long long)c->max_bytes,
            (unsigned long long)c->step_bytes, c->step_factor);
    fprintf(f,
            "   \"warmup_iterations\": %d, \"iterations\": %d, \"aggregated_iterations\": %d, "
            "\"rounds\": %d, \"validation\": %d,\n",
            c->warmup, c->iters, c->agg, c->rounds, c->check);
    fprintf(f,
            "   \"graph\": %d, \"blocking\": %d, \"unalign\": %d, \"registered\": %d, \"average\": "
            "%d,\n   \"devices\": [",
            c->graph, c->blocking, c->unalign, c->registered, c->average);
    put_devices(f, p, places);
    fprintf(f, "\n   ]},\n");
}

/* -1: not checked. */
static void put_wrong(FILE *f, int64_t wrong) {
    if (wrong < 0)
        fputs("null", f);
    else
        fprintf(f, "%lld", (long long)wrong);
}

static void put_rival(FILE *f, const perf_rival *rival, const perf_cell *c) {
    double ratio = c->rival_us / c->time_us;
    fprintf(f, ", \"%s_time\": %.6g, \"%s_ratio\": %.6g", rival->key, c->rival_us, rival->key,
            ratio);
    if (rival->on_stream)
        fprintf(f, ", \"%s_alg_bw\": %.6g, \"%s_bus_bw\": %.6g", rival->key, c->alg_bw / ratio,
                rival->key, c->bus_bw / ratio);
    if (rival->places) {
        fprintf(f, ", \"%s_nwrong\": ", rival->key);
        put_wrong(f, c->rival_wrong);
    }
    if (c->rival_issue_us > 0)
        fprintf(f, ", \"%s_issue_time\": %.6g", rival->key, c->rival_issue_us);
}

static void put_cell(FILE *f, const perf_rank *p, const char *name, const perf_cell *c) {
    fprintf(f, ",\n     \"%s\": {\"time\": %.6g, \"alg_bw\": %.6g, \"bus_bw\": %.6g, \"nwrong\": ",
            name, c->time_us, c->alg_bw, c->bus_bw);
    put_wrong(f, c->wrong);
    if (c->rival_us > 0) put_rival(f, p->rival, c);
    if (c->issue_us > 0) fprintf(f, ", \"issue_time\": %.6g", c->issue_us);
    if (c->limit_us > 0)
        fprintf(f, ", \"limit_time\": %.6g, \"limit_share\": %.6g", c->limit_us,
                c->limit_us / c->time_us);
    putc('}', f);
}

static void put_row(FILE *f, const perf_rank *p, const perf_row *row) {
    fprintf(f,
            "    {\"size\": %llu, \"count\": %llu, \"type\": \"%s\", \"redop\": \"%s\", \"root\": "
            "\"%d\"",
            (unsigned long long)row->bytes, (unsigned long long)row->count,
            row->type < 0 ? "none" : perf_type_names[row->type],
            row->op < 0 ? "none" : perf_op_names[row->op], row->root);
    put_cell(f, p, "out_of_place", &row->cell[0]);
    if (perf_cells(p->cfg) > 1) put_cell(f, p, "in_place", &row->cell[1]);
    putc('}', f);
}

static void put_all(FILE *f, const perf_rank *p, const perf_place *places) {
    const perf_results *r = &p->results;
    fprintf(f, "{\n  \"version\": 3,\n  \"symm_version\": \"%d.%d.%d\",\n  \"args\": [", SYMM_MAJOR,
            SYMM_MINOR, SYMM_PATCH);
    for (int i = 0; i < p->cfg->argc; i++) {
        if (i) fputs(", ", f);
        put_text(f, p->cfg->argv[i]);
    }
    fputs("],\n  \"env\": [", f);
    put_env(f);
    fputs("],\n", f);
    put_config(f, p, places);
    fputs("  \"results\": [\n", f);
    for (size_t i = 0; i < r->n; i++) {
        put_row(f, p, &r->row[i]);
        fputs(i + 1 < r->n ? ",\n" : "\n", f);
    }
    fputs("  ],\n  \"out_of_bounds\": ", f);
    put_wrong(f, p->cfg->check && perf_moves(p->cfg) ? r->wrong : -1);
    fputs(",\n", f);
    if (r->exchange_us > 0) fprintf(f, "  \"exchange_time\": %.6g,\n", r->exchange_us);
    fputs("  \"end_time\": ", f);
    put_now(f);
    fputs("\n}\n", f);
}

int perf_json_write(const char *path, const perf_rank *p, const perf_place *places) {
    FILE *f = fopen(path, "w");
    if (!f) return -1;
    put_all(f, p, places);
    int bad = ferror(f);
    return fclose(f) || bad ? -1 : 0;
}
