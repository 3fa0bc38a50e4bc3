/* tune_measure.c - what may run a call, and how long each takes. Every rank runs it in its own
 * thread. A communicator is told row by row by which it is to plan; all candidates of a size take
 * turns, so that a machine that slows down slows them all. */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "device/host/reduce.h"
#include "host/coll/coll.h"
#include "tune.h"

/* PASSES: of all candidates; FINAL: of those that may be chosen. KERNELS: whose grids are tried. */
enum { PASSES = 3, FINAL_PASSES = 9, FINALISTS = TUNE_OPTIONS - 1, KERNELS = 2, MOST = 80 };
/* On GPUs calls are timed out of a graph, as their launches would hide what kernels take. */
enum { GRAPH_CALLS = 20, GRAPH_LAUNCHES = 3 };

typedef struct {
    tune_candidate at[MOST];
    symm_plan plan[MOST]; /* what each comes to, at this size */
    int n;
} candidates;

/* ---- candidates ------------------------------------------------------------------------------ */

static symm_plan plan_of(tune_rank *t, const symm_call *call, const symm_plan_row *row) {
    symm_plan_env env = t->env;
    t->one->row[0] = *row;
    env.rows = t->one;
    return symm_plan_make(&env, call);
}

static int same_plan(const symm_plan *a, const symm_plan *b) {
    return a->kernel == b->kernel && a->ctas == b->ctas && a->threads == b->threads &&
           a->line_warps == b->line_warps && a->lines == b->lines &&
           a->stage_ctas == b->stage_ctas && a->stage_warps == b->stage_warps &&
           a->stage_rows == b->stage_rows;
}

/* Unless it cannot run the call, or comes to what another one comes to. */
static void add(tune_rank *t, const symm_call *call, const symm_plan_row *row, candidates *c) {
    const symm_plan plan = plan_of(t, call, row);
    if (c->n == MOST || plan.kernel != row->kernel || plan.source != SYMM_PLAN_MEASURED) return;
    for (int i = 0; i < c->n; i++)
        if (same_plan(&c->plan[i], &plan)) return;
    c->plan[c->n] = plan;
    c->at[c->n++] = (tune_candidate){.row = *row};
}

/* The kernel, on GPUs with the grid that is built in for it. */
static symm_plan_row row_of(const tune_rank *t, const symm_call *call, int kernel) {
    const symm_plan_env *env = &t->env;
    symm_plan_row row = {.kernel = (symm_kernel_id)kernel, .max_ranks = env->nranks};
    if (!env->gpu) {
        row.cores = env->oversubscribed ? SYMM_CORES_FEW : SYMM_CORES_ENOUGH;
        return row;
    }
    const symm_plan_row *from = symm_plan_gpu_row(env, call, kernel);
    row.warps = from->warps, row.ctas = from->ctas, row.quarter = env->quarter;
    return row;
}

/* First what runs without a table. */
static void add_kernels(tune_rank *t, const symm_call *call, candidates *c) {
    const symm_plan_env *env = &t->env;
    const symm_plan shipped = symm_plan_make(env, call);
    symm_plan_row row = row_of(t, call, (int)shipped.kernel);
    if (env->gpu) {
        const symm_plan_row *own = symm_plan_gpu_row(env, call, -1);
        row.warps = own->warps, row.ctas = own->ctas;
    }
    c->n = 0;
    add(t, call, &row, c);
    for (int k = 0; k < SYMM_KERNEL_COUNT; k++) {
        if (!symm_plan_can(env, call, (symm_kernel_id)k, NULL)) continue;
        if (!env->gpu && symm_kernels[k].multicast) continue; /* emulated: to be right, not fast */
        row = row_of(t, call, k);
        add(t, call, &row, c);
    }
}

/* Other grids of the fastest kernels so far. */
static void add_grids(tune_rank *t, const symm_call *call, candidates *c) {
    static const int warps[] = {1, 2, 4, 8, 15}, ctas[] = {16, 32, 64, 132, 264};
    symm_plan_row kernels[KERNELS];
    int n = 0;
    for (int i = 0; i < c->n && n < KERNELS; i++) {
        int before = 0;
        for (int j = 0; j < c->n; j++)
            before += tune_median(&c->at[j]) < tune_median(&c->at[i]) ||
                      (j < i && tune_median(&c->at[j]) == tune_median(&c->at[i]));
        if (before < KERNELS) kernels[n++] = c->at[i].row;
    }
    for (int k = 0; k < n; k++)
        for (unsigned w = 0; w < sizeof warps / sizeof *warps; w++)
            for (unsigned i = 0; i < sizeof ctas / sizeof *ctas; i++) {
                kernels[k].warps = warps[w], kernels[k].ctas = ctas[i];
                if (ctas[i] <= t->env.sms) add(t, call, &kernels[k], c);
            }
}

/* ---- times ----------------------------------------------------------------------------------- */

static void sample(tune_rank *t, const perf_case *c, tune_candidate *k) {
    perf_cell cell = {.time_us = 0};
    perf_rank *p = &t->rank;
    t->one->row[0] = k->row;
    PERF_MUST(p, symm_coll_plan_by(p->comm, t->one));
    perf_time(p, c, &cell, NULL);
    SYMM_ASSERT(k->n < TUNE_SAMPLES);
    k->us[k->n++] = cell.time_us;
}

/* Of candidates [from, n). Every second pass goes backwards. */
static void run_passes(tune_rank *t, const perf_case *c, candidates *k, int from, int passes) {
    for (int pass = 0; pass < passes; pass++)
        for (int i = from; i < k->n; i++)
            sample(t, c, &k->at[pass & 1 ? k->n - 1 - (i - from) : i]);
}

/* Those that may be chosen, to the front: what runs without a table, then the fastest. They are
 * timed anew. */
static void keep_finalists(candidates *k) {
    for (int i = 1; i < k->n && i <= FINALISTS; i++) {
        int best = i;
        for (int j = i + 1; j < k->n; j++)
            if (tune_median(&k->at[j]) < tune_median(&k->at[best])) best = j;
        const tune_candidate c = k->at[i];
        k->at[i] = k->at[best], k->at[best] = c;
    }
    if (k->n > 1 + FINALISTS) k->n = 1 + FINALISTS;
    for (int i = 0; i < k->n; i++) k->at[i].n = 0;
}

/* How much of the time has gone, 1: all of it; the same on all ranks. */
static double gone(tune_rank *t) {
    const double us = perf_world_max(t->rank.world, perf_now_us() - t->began_us);
    return us / (t->cfg->seconds * 1e6);
}

static void measure(tune_rank *t, const perf_case *c, const symm_call *call, tune_size *out) {
    candidates *k = calloc(1, sizeof *k);
    if (!k) perf_must(&t->rank, symmOutOfMemory, "the list of candidates");
    const int hasty = gone(t) > (t->done + 1) / t->todo;
    add_kernels(t, call, k);
    const int kernels = k->n;
    if (kernels > 1 || t->env.gpu) run_passes(t, c, k, 0, hasty ? 1 : PASSES);
    if (t->env.gpu && !hasty) {
        add_grids(t, call, k);
        run_passes(t, c, k, kernels, PASSES);
    }
    keep_finalists(k);
    run_passes(t, c, k, 0, hasty ? PASSES : FINAL_PASSES);
    for (out->n = 0; out->n < k->n; out->n++)
        out->option[out->n] = tune_option_of(&k->at[out->n], &k->at[0]);
    free(k);
}

/* ---- a collective ---------------------------------------------------------------------------- */

int tune_has(symmColl_t coll) {
    return symm_coll_moves(&symm_colls[coll]) && !symm_coll_varies(&symm_colls[coll]);
}

int tune_sizes(const tune_config *cfg) {
    int n = 0;
    for (uint64_t bytes = cfg->min_bytes; bytes <= cfg->max_bytes && n < TUNE_SIZES; bytes *= 2)
        n++;
    return n;
}

static void begin(tune_rank *t, symmColl_t coll) {
    const int reduces = (symm_colls[coll].flags & SYMM_COLL_REDUCES) != 0;
    t->perf = (perf_config){.row = &symm_colls[coll],
                            .coll = coll,
                            .pattern = -1,
                            .min_bytes = t->cfg->min_bytes,
                            .max_bytes = t->cfg->max_bytes,
                            .step_factor = 2,
                            .iters = t->env.gpu ? GRAPH_CALLS : 0,
                            .graph = t->env.gpu ? GRAPH_LAUNCHES : 0,
                            .warmup = 1,
                            .cycles = 1,
                            .agg = 1,
                            .type = symmFloat32,
                            .op = reduces ? PERF_SUM : -1,
                            .registered = t->cfg->registered,
                            .stream = t->env.gpu,
                            .average = 3,
                            .threads = t->cfg->threads,
                            .gpus = t->cfg->gpus,
                            .rounds = 1};
    t->rank.cfg = &t->perf;
    perf_open_buffers(&t->rank);
}

static void log_size(const tune_rank *t, symmColl_t coll, const tune_size *s) {
    char line[160];
    const tune_option *o = &s->option[s->chosen];
    symm_plan_table_line(&o->row, line, sizeof line);
    fprintf(t->log, "%-15s %10llu  %-40s %9.2f", symm_coll_name(coll), (unsigned long long)s->bytes,
            line, o->us);
    if (s->chosen) {
        symm_plan_table_line(&s->option[0].row, line, sizeof line);
        fprintf(t->log, "  %5.2fx  of %s", 1 / o->ratio, line);
    }
    fprintf(t->log, "\n");
}

int tune_coll(tune_rank *t, symmColl_t coll, tune_size *out) {
    const int nranks = t->rank.world->nranks;
    int n = 0;
    begin(t, coll);
    for (int i = 0; i < tune_sizes(t->cfg); i++, t->done++) {
        const uint64_t bytes = t->cfg->min_bytes << i;
        perf_case c = {.count = perf_elements(&t->perf, nranks, bytes, symmFloat32),
                       .bytes = bytes,
                       .type = symmFloat32,
                       .op = t->perf.op,
                       .redop = symmSum};
        const symm_call call = {
            .coll = coll, .count = c.count, .type = symmFloat32, .op = SYMM_OP_SUM, .esize = 4};
        if (!c.count) continue;
        if (gone(t) > 1 && n) { /* the first size of each collective is measured */
            t->left++;
            continue;
        }
        perf_lay_case(&t->rank, &c, 0);
        out[n] = (tune_size){.bytes = bytes, .input = symm_plan_message(&call)};
        measure(t, &c, &call, &out[n++]);
    }
    tune_choose(out, n);
    for (int i = 0; i < n && t->log; i++) log_size(t, coll, &out[i]);
    if (t->log) fflush(t->log);
    PERF_MUST(&t->rank, symm_coll_plan_by(t->rank.comm, NULL));
    perf_close_buffers(&t->rank);
    return n;
}
