/* perf_run.c - one rank's benchmark from the first size to the closing line: sizes, data checks.
 * Runs in the rank's own thread. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "perf_gpu.h"
#include "perf_nccl.h"

enum { LONGEST_BURST = 8, CHECKED_EACH = 1 << 20 };

void perf_must(perf_rank *p, symmResult_t r, const char *what) {
    if (r == symmSuccess) return;
    fprintf(stderr, "%s: rank %d: %s: %s: %s\n", perf_tool, p->world->rank, what,
            symmGetErrorString(r), symmGetLastError(p->comm));
    p->world->abort(p->world, 1);
}

/* ---- -T: a measurement that takes too long ends the job ---- */

static char timeout_text[160];

static void timed_out(int sig) {
    (void)sig;
    ssize_t ignored = write(2, timeout_text, strlen(timeout_text));
    (void)ignored;
    _exit(PERF_EXIT_TIMEOUT);
}

/* A stuck rank holds up all of them, so rank 0's clock is enough; its exit makes mpirun end the
 * others. */
static void arm_timeout(const perf_rank *p, const perf_case *c) {
    if (!p->cfg->timeout_s || p->world->rank) return;
    alarm(0);
    snprintf(timeout_text, sizeof timeout_text,
             "%s: timeout: %s of %llu bytes, %s, did not finish within %d s\n", perf_tool,
             p->cfg->row->name, (unsigned long long)c->bytes,
             c->in_place ? "in place" : "out of place", p->cfg->timeout_s);
    signal(SIGALRM, timed_out);
    alarm((unsigned)p->cfg->timeout_s);
}

/* ---- sizes ---- */

static uint64_t shown_bytes(const perf_config *cfg, int nranks, uint64_t count, int type) {
    uint64_t bytes = count * perf_type_size(type);
    return perf_parts(cfg) && !cfg->per_rank ? bytes * (unsigned)nranks : bytes;
}

/* 0 after the last one. */
static int next_size(const perf_config *cfg, uint64_t *bytes) {
    uint64_t next = cfg->step_factor > 1 ? (*bytes ? *bytes * (unsigned)cfg->step_factor : 1)
                                         : *bytes + cfg->step_bytes;
    if (next <= *bytes || next > cfg->max_bytes || !perf_moves(cfg)) return 0;
    *bytes = next;
    return 1;
}

/* ---- the check ---- */

static uint64_t received(const perf_rank *p, const perf_case *c) {
    return perf_total(p, c->count, PERF_RECEIVED) * perf_type_size(c->type);
}

/* What is not written shows. Puts come unasked: not before this. */
static void poison(perf_rank *p, const perf_case *c) {
    const perf_pattern *pattern = perf_pattern_of(p->cfg);
    perf_mem_poison(p, c->recv, received(p, c));
    if (pattern && pattern->puts) p->world->barrier(p->world);
}

static void fill(perf_rank *p, const perf_case *c) {
    if (!c->in_place || perf_parts(p->cfg)) poison(p, c);
    perf_mem_fill(p, c);
}

/* Whose data comes into a part. */
static int origin(const perf_rank *p, int part) {
    const perf_pattern *pattern = perf_pattern_of(p->cfg);
    if (pattern) return pattern->origin(p->world->rank, p->world->nranks, part);
    return p->cfg->row->root_gives ? p->root : part;
}

/* The first rank that has a result. */
static int spoiled_rank(const perf_rank *p) {
    return symm_coll_out(p->cfg->row, p->world->nranks, p->root == 0) ? 0 : p->root;
}

static int64_t count_wrong(perf_rank *p, const perf_case *c, int calls) {
    const uint64_t size = perf_type_size(c->type), bytes = received(p, c);
    const int n = p->world->nranks, rank = p->world->rank;
    const uint64_t parts = symm_coll_out(p->cfg->row, n, rank == p->root);
    uint64_t wrong = 0;
    if (p->cfg->corrupt && rank == spoiled_rank(p) && bytes) perf_mem_spoil(p, c->recv + bytes / 2);
    if (perf_reduces(p->cfg))
        return !parts ? 0
                      : (int64_t)perf_mem_check_reduced(
                            p, c->recv, perf_offset(p, c->count, rank, PERF_SENT, rank),
                            perf_part(p, c->count, PERF_RECEIVED, rank), calls);
    for (int r = 0; r < (int)parts; r++) {
        const int from = origin(p, r);
        wrong += perf_mem_check_copied(
            p, from, c->recv + perf_offset(p, c->count, rank, PERF_RECEIVED, r) * size,
            perf_offset(p, c->count, from, PERF_SENT, rank),
            perf_part(p, c->count, PERF_RECEIVED, r));
    }
    return (int64_t)wrong;
}

/* Calls as the timed loop makes them: with -G out of a graph. */
typedef struct {
    perf_rank *p;
    const perf_case *c;
    perf_call_fn call;
    perf_graph *graph;
} caller;

static caller make_caller(perf_rank *p, const perf_case *c, perf_call_fn call, int calls) {
    caller by = {.p = p, .c = c, .call = call};
    if (p->cfg->graph) by.graph = perf_graph_of(p, c, call, calls);
    return by;
}

static void run_calls(const caller *by, int calls) {
    if (by->graph)
        perf_graph_play(by->p, by->graph, 1);
    else
        for (int i = 0; i < calls; i++) by->call(by->p, by->c);
    perf_stream_finish(by->p);
}

/* Each call reduces what the one before left: other data every time. As many as stay
 * predictable. */
static int64_t check_chain(perf_rank *p, const perf_case *c) {
    const int calls = perf_data_calls(&p->data, LONGEST_BURST);
    caller by = make_caller(p, c, perf_call, calls);
    p->data.round++;
    fill(p, c);
    run_calls(&by, calls);
    perf_graph_free(p, by.graph);
    return count_wrong(p, c, calls);
}

/* Other data for every call, so that what a call finds of the one before is wrong. Large messages
 * are looked at after the last one. */
static int64_t check_series(perf_rank *p, const perf_case *c) {
    int64_t wrong = 0;
    caller by = make_caller(p, c, perf_call, 1);
    for (int i = 1; i <= LONGEST_BURST; i++) {
        p->data.round++;
        fill(p, c);
        run_calls(&by, 1);
        if (i == LONGEST_BURST || received(p, c) <= CHECKED_EACH) wrong += count_wrong(p, c, 1);
    }
    perf_graph_free(p, by.graph);
    return wrong;
}

/* No rank waits for another between filling and calling: a call must not let a fast rank's data
 * into a buffer that is still in use. */
static int64_t check_round(perf_rank *p, const perf_case *c) {
    const int chain =
        c->in_place && perf_reduces(p->cfg) && !perf_parts(p->cfg) && !perf_has_root(p->cfg);
    return chain ? check_chain(p, c) : check_series(p, c);
}

/* One call: does the rival do the same work? -1: not checked. An average is not, because it may be
 * rounded in other places than ours; all other data are exact (perf_data.c). */
static int64_t check_rival(perf_rank *p, const perf_case *c) {
    const perf_rival *rival = p->rival;
    if (!rival || !rival->places || c->op == PERF_AVG || !rival->offers(p, c)) return -1;
    const perf_case its = rival->places(p, c);
    caller by = make_caller(p, c, rival->call, 1);
    p->data.round++;
    fill(p, &its);
    run_calls(&by, 1);
    perf_graph_free(p, by.graph);
    return count_wrong(p, &its, 1);
}

/* After the timed loop the buffers still tell the result, except where a reduction in place was
 * repeated too often. */
static int loop_is_predictable(const perf_rank *p, const perf_case *c) {
    return !c->in_place || !perf_reduces(p->cfg) || c->op == PERF_MAX || c->op == PERF_MIN;
}

/* Before our last loop: what a rival has left, right or wrong, must not stand for what we leave. */
static void refresh(perf_rank *p, const perf_case *c) {
    if (!c->in_place)
        poison(p, c);
    else if (loop_is_predictable(p, c))
        fill(p, c);
}

/* On a GPU a call that failed after its launch is told here, and by the data. */
static void must_be_well(perf_rank *p) {
    symmResult_t error = symmSuccess;
    if (!p->gpu) return;
    PERF_MUST(p, symmCommGetAsyncError(p->comm, &error));
    if (error != symmInProgress) perf_must(p, error, p->cfg->row->name);
}

static void add_rival_wrong(perf_results *r, int64_t wrong) {
    if (r->rival_wrong < 0) r->rival_wrong = 0;
    r->rival_wrong += wrong;
}

static void measure(perf_rank *p, const perf_case *c, perf_cell *cell) {
    int checks = !perf_moves(p->cfg) ? 0 : p->cfg->check;
    int64_t wrong = 0, theirs = -1;
    arm_timeout(p, c);
    for (int i = 0; i < checks; i++) wrong += check_round(p, c);
    if (checks) theirs = check_rival(p, c);
    p->data.round++;
    if (perf_moves(p->cfg)) fill(p, c);
    perf_time(p, c, cell, checks ? refresh : NULL);
    if (checks && loop_is_predictable(p, c)) wrong += count_wrong(p, c, 1);
    if (checks) wrong += check_round(p, c);
    must_be_well(p);
    cell->wrong = checks ? perf_world_sum(p->world, wrong) : -1;
    if (checks) p->results.wrong += cell->wrong;
    cell->rival_wrong = theirs < 0 ? -1 : perf_world_sum(p->world, theirs);
    if (theirs >= 0) add_rival_wrong(&p->results, cell->rival_wrong);
    if (p->cfg->timeout_s && !p->world->rank) alarm(0);
}

/* ---- rows ---- */

static symmRedOp_t make_redop(perf_rank *p, int type, int op) {
    if (op < PERF_MULSUM) return (symmRedOp_t)(op < 0 ? 0 : op);
    uint64_t scalar = perf_data_scalar(type, p->world->rank);
    symmRedOp_t made;
    PERF_MUST(p, symmRedOpCreatePreMulSum(&made, &scalar, (symmDataType_t)type,
                                          symmScalarHostImmediate, p->comm));
    return made;
}

static perf_row *add_row(perf_rank *p) {
    perf_results *r = &p->results;
    if (r->n == r->cap) {
        size_t cap = r->cap ? 2 * r->cap : 64;
        perf_row *row = realloc(r->row, cap * sizeof *row);
        if (!row) perf_must(p, symmOutOfMemory, "the table");
        r->row = row;
        r->cap = cap;
    }
    r->row[r->n] = (perf_row){0};
    return &r->row[r->n++];
}

static void run_row(perf_rank *p, uint64_t bytes, int type, int op, symmRedOp_t redop) {
    const perf_config *cfg = p->cfg;
    perf_row *row = add_row(p);
    uint64_t count = perf_elements(cfg, p->world->nranks, bytes, type);
    perf_counts *v = perf_counts_of(p, count);
    perf_case c = {.count = count,
                   .bytes = shown_bytes(cfg, p->world->nranks, count, type),
                   .type = type,
                   .op = op,
                   .redop = redop,
                   .v = v};
    *row = (perf_row){.bytes = c.bytes,
                      .count = count,
                      .root = perf_has_root(cfg) ? p->root : -1,
                      .op = op,
                      .type = !perf_moves(cfg) ? -1 : type};
    p->data.type = type;
    p->data.op = op < 0 ? PERF_MAX : op; /* all_gather: any data will do */
    for (int in_place = 0; in_place < perf_cells(cfg); in_place++) {
        perf_lay_case(p, &c, in_place);
        measure(p, &c, &row->cell[in_place]);
    }
    if (p->world->rank == 0) perf_table_row(p, row);
    free(v);
}

static void run_type(perf_rank *p, int type) {
    const perf_config *cfg = p->cfg;
    int reduces = perf_reduces(cfg), from = cfg->op < 0 ? 0 : cfg->op,
        to = cfg->op < 0 ? PERF_OPS - 1 : cfg->op;
    for (int op = reduces ? from : -1; op <= (reduces ? to : -1); op++) {
        symmRedOp_t redop = make_redop(p, type, op);
        uint64_t bytes = cfg->min_bytes;
        do run_row(p, bytes, type, op, redop);
        while (next_size(cfg, &bytes));
        if (op == PERF_MULSUM) PERF_MUST(p, symmRedOpDestroy(redop, p->comm));
    }
}

static void run_types(perf_rank *p) {
    const int all = p->cfg->type < 0, most = perf_moves(p->cfg) ? symmNumTypes - 1 : 0,
              first = all ? 0 : p->cfg->type, last = all ? most : first;
    for (int type = first; type <= last; type++) run_type(p, type);
}

static void run_table(perf_rank *p) {
    const int rooted = perf_has_root(p->cfg), all = rooted && p->cfg->root < 0,
              first = all || !rooted ? 0 : p->cfg->root, last = all ? p->world->nranks - 1 : first;
    for (int cycle = 0; cycle < p->cfg->cycles; cycle++)
        for (p->root = first; p->root <= last; p->root++) run_types(p);
}

static perf_place *gather_places(perf_rank *p) {
    perf_place mine = {.pid = (int)getpid(), .core = p->core},
               *all = calloc((size_t)p->world->nranks, sizeof *all);
    if (!all) perf_must(p, symmOutOfMemory, "the list of ranks");
    gethostname(mine.host, sizeof mine.host - 1);
    PERF_MUST(p, symmCommDevice(p->comm, &mine.device));
    if (p->gpu) perf_gpu_describe(p, &mine);
    p->world->allgather(p->world, &mine, all, sizeof mine);
    return all;
}

static int report(const perf_rank *p, const perf_place *places) {
    int failed = 0;
    perf_table_foot(p);
    if (ferror(stdout)) failed = 1, fprintf(stderr, "symm-perf: cannot write the table\n");
    if (p->cfg->json && perf_json_write(p->cfg->json, p, places))
        failed = 1, fprintf(stderr, "%s: cannot write %s: %m\n", perf_tool, p->cfg->json);
    if (p->cfg->plot && perf_plot_write(p->cfg->plot, p))
        failed = 1, fprintf(stderr, "%s: cannot write %s: %m\n", perf_tool, p->cfg->plot);
    return failed;
}

static void open_rivals(perf_rank *p) {
    perf_open_buffers(p);
    if (p->cfg->vs == PERF_VS_MPI) p->rival = p->world->mpi;
    if (p->cfg->vs == PERF_VS_NCCL) perf_nccl_open(p);
    if (p->cfg->limits && !p->gpu) perf_limits_open(p);
}

static void close_rivals(perf_rank *p) {
    perf_limits_close(p);
    perf_nccl_close(p);
    perf_close_buffers(p);
}

int perf_run(perf_world *w, const perf_config *cfg) {
    perf_rank p = {
        .cfg = cfg, .world = w, .data = {.nranks = w->nranks}, .results = {.rival_wrong = -1}};
    int failed = 0;
    if (perf_open(&p)) return PERF_EXIT_USAGE;
    open_rivals(&p);
    perf_place *places = gather_places(&p);
    if (w->rank == 0) perf_table_head(&p, places);
    run_table(&p);
    if (w->rank == 0) failed = report(&p, places);
    free(places);
    close_rivals(&p);
    perf_close(&p);
    int wrong = p.results.wrong > 0;
    free(p.results.row);
    return wrong || failed ? PERF_EXIT_WRONG : 0;
}
