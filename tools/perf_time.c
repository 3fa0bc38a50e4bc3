/* perf_time.c - how long a call takes, and what its rivals take in the same minute on the same
 * buffers.
 *
 * All contestants run in every round, in an order that turns round each time, so that a machine
 * that slows down slows them all. A round is a back-to-back loop of k calls, k such that it lasts
 * some milliseconds; what counts of it is the time per call, over the ranks as -a says; what counts
 * of the rounds is the median. With -G a round is n launches of a graph of calls; on GPUs the time
 * between two events around them counts, as a contestant's own time on its stream. Each rank runs
 * this in its own thread. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "host/coll/counts.h"
#include "perf.h"

enum { OURS, RIVAL, EXCHANGE, LOOP, LOOP_STREAM, ISSUE, RIVAL_ISSUE, CONTESTANTS };
enum { ROUND_US = 2000, MOST_CALLS = 1000000, PROGRESS_US = 2000000 };
enum { ISSUE_CALLS = 64 }; /* far fewer than a stream takes before it makes the host wait */

typedef struct {
    perf_rank *p;
    const perf_case *c;
    perf_graph *graph[RIVAL + 1]; /* -G: the captured calls; NULL: it calls */
    int plays[CONTESTANTS];
    int k[CONTESTANTS]; /* per loop: calls, or launches of its graph */
    double *us;         /* [contestant][round]: this rank's time per call */
} contest;

static symmResult_t call_uneven(const perf_rank *p, const symm_coll *k, const perf_counts *v) {
    const symm_counts u = {{.counts = v->count[PERF_SENT], .name = "sendcounts"},
                           {.counts = v->count[PERF_RECEIVED], .name = "recvcounts"}};
    return symm_coll_call_uneven(k, &u, p->comm, p->stream);
}

/* As the public call of the collective does. */
void perf_call(perf_rank *p, const perf_case *c) {
    if (p->cfg->pattern >= 0) {
        perf_pattern_of(p->cfg)->call(p, c);
        return;
    }
    const symm_coll k = {.coll = p->cfg->coll,
                         .root = p->root,
                         .src = c->send,
                         .dst = c->recv,
                         .count = c->v ? c->v->count[PERF_SENT][0] : c->count,
                         .type = (uint32_t)c->type,
                         .op = perf_reduces(p->cfg) ? c->redop : symmSum};
    const symmResult_t r = c->v ? call_uneven(p, &k, c->v) : symm_coll_call(&k, p->comm, p->stream);
    if (r != symmSuccess) perf_must(p, r, p->cfg->row->name);
}

static void call_ours(perf_rank *p, const perf_case *c) {
    if (p->cfg->agg > 1) PERF_MUST(p, symmGroupStart());
    for (int m = 0; m < p->cfg->agg; m++) perf_call(p, c);
    if (p->cfg->agg > 1) PERF_MUST(p, symmGroupEnd());
}

static void call_rival(perf_rank *p, const perf_case *c) {
    const perf_rival *r = p->rival;
    int groups = r->group && p->cfg->agg > 1;
    if (groups) r->group(p, 0);
    for (int m = 0; m < (r->group ? p->cfg->agg : 1); m++) r->call(p, c);
    if (groups) r->group(p, 1);
}

static void call_many(perf_rank *p, const perf_case *c, int who, int k) {
    int waits = p->cfg->blocking && (who == OURS || p->rival->on_stream);
    for (int i = 0; i < k; i++) {
        if (who == OURS)
            call_ours(p, c);
        else
            call_rival(p, c);
        if (waits) perf_stream_finish(p);
    }
}

/* How long it took, in us. */
static double play(contest *t, int who, int k) {
    perf_rank *p = t->p;
    if (who <= RIVAL && t->graph[who]) return perf_graph_play(p, t->graph[who], k);
    double start = perf_now_us();
    if (who >= ISSUE) {
        call_many(p, t->c, who == ISSUE ? OURS : RIVAL, k);
        double us = perf_now_us() - start;
        perf_stream_finish(p);
        return us;
    }
    if (who > RIVAL)
        perf_limits_loop(p, t->c, who - EXCHANGE, k);
    else
        call_many(p, t->c, who, k);
    if (who == OURS || (who == RIVAL && p->rival->on_stream)) perf_stream_finish(p);
    return perf_now_us() - start;
}

static double calls_of(const contest *t, int who, int k) {
    const perf_config *cfg = t->p->cfg;
    const perf_pattern *pattern = perf_pattern_of(cfg);
    if (pattern) k *= pattern->legs;
    int is_rival = who == RIVAL || who == RIVAL_ISSUE, is_bare = who > RIVAL && who < ISSUE;
    if (is_bare || (is_rival && !t->p->rival->group)) return k;
    return (double)k * cfg->agg * (who <= RIVAL && t->graph[who] ? cfg->iters : 1);
}

/* One loop, alone: the first calls after another contestant meet cold caches and are not counted.
 */
static double time_loop(contest *t, int who, int k) {
    perf_world *w = t->p->world;
    int warm = t->p->cfg->warmup < k / 10 + 1 ? t->p->cfg->warmup : k / 10 + 1;
    /* A bare loop writes into the other rank's buffers: not before that one is done with them. */
    if (who > RIVAL) w->barrier(w);
    if (warm) play(t, who, warm);
    w->barrier(w);
    double us = play(t, who, k) / calls_of(t, who, k);
    /* A bare loop ends when this rank's half is done; the other rank may still write into our
     * buffers. */
    if (who > RIVAL) w->barrier(w);
    return us;
}

/* Every rank must come to the same number: it is made of the slowest rank's time. */
static int calibrate(contest *t, int who) {
    if (who <= RIVAL && t->graph[who]) return t->p->cfg->graph;
    if (who >= ISSUE) return ISSUE_CALLS / t->p->cfg->agg + 1;
    if (t->p->cfg->iters) return t->p->cfg->iters;
    double best = INFINITY;
    int k = 1;
    for (int tries = 0; tries < 12; tries++) {
        double us = perf_world_max(t->p->world, time_loop(t, who, k));
        best = us < best ? us : best;
        if (tries && us * k >= ROUND_US / 2) break;
        double want = ROUND_US / (best > 0.01 ? best : 0.01);
        k = want > 10.0 * k ? 10 * k : want < 1 ? 1 : (int)want;
        if (k > MOST_CALLS) k = MOST_CALLS;
        if (k == 1 && tries) break;
    }
    return k;
}

static void capture(contest *t, int who) {
    t->graph[who] =
        perf_graph_of(t->p, t->c, who == OURS ? call_ours : call_rival, t->p->cfg->iters);
}

static void show_progress(const contest *t, int round, double since) {
    const perf_rank *p = t->p;
    if (p->world->rank || perf_now_us() - since < PROGRESS_US || !isatty(2)) return;
    fprintf(stderr, "\r# %llu B %s: round %d of %d ", (unsigned long long)t->c->bytes,
            t->c->in_place ? "in place" : "out of place", round + 1, p->cfg->rounds);
    if (round + 1 == p->cfg->rounds) fprintf(stderr, "\r%60s\r", "");
}

static void run_rounds(contest *t, void (*before_last)(perf_rank *p, const perf_case *c)) {
    int rounds = t->p->cfg->rounds;
    double since = perf_now_us();
    for (int round = 0; round < rounds; round++) {
        int last = round + 1 == rounds,
            backwards = (rounds - 1 - round) % 2 ==
                        0; /* ours is first in the table: last in the last round */
        show_progress(t, round, since);
        for (int i = 0; i < CONTESTANTS; i++) {
            int who = backwards ? CONTESTANTS - 1 - i : i;
            if (!t->plays[who]) continue;
            if (last && who == OURS && before_last) before_last(t->p, t->c);
            t->us[who * rounds + round] = time_loop(t, who, t->k[who]);
        }
    }
}

/* -a: one number from all ranks' times of one round. */
static double over_ranks(const double *us, int nranks, size_t stride, int how) {
    double sum = 0, least = us[0], most = us[0];
    for (int r = 0; r < nranks; r++) {
        double v = us[(size_t)r * stride];
        sum += v;
        least = v < least ? v : least;
        most = v > most ? v : most;
    }
    return how == 0 ? us[0] : how == 1 ? sum / nranks : how == 2 ? least : most;
}

static void settle(contest *t, double *result) {
    perf_world *w = t->p->world;
    int rounds = t->p->cfg->rounds;
    size_t mine = (size_t)rounds * CONTESTANTS;
    double *all = malloc(mine * (size_t)w->nranks * sizeof *all);
    if (!all) perf_must(t->p, symmOutOfMemory, "gathering the times");
    w->allgather(w, t->us, all, mine * sizeof *all);
    for (int who = 0; who < CONTESTANTS; who++) {
        double *us = &t->us[who * rounds];
        for (int i = 0; i < rounds; i++)
            us[i] = over_ranks(&all[who * rounds + i], w->nranks, mine, t->p->cfg->average);
        result[who] = t->plays[who] ? perf_median(us, rounds) : 0;
    }
    free(all);
}

static void fill_cell(perf_rank *p, const perf_case *c, const double *us, perf_cell *cell) {
    int n = p->world->nranks;
    double bytes = (double)(c->count * perf_type_size(c->type));
    if (perf_parts(p->cfg)) bytes *= n;
    if (!perf_moves(p->cfg)) bytes = 0;
    double loop = us[LOOP] < us[LOOP_STREAM] ? us[LOOP] : us[LOOP_STREAM];
    cell->time_us = us[OURS];
    cell->alg_bw = us[OURS] > 0 ? bytes / us[OURS] / 1e3 : 0;
    /* What each link carries, whatever the algorithm (as nccl-tests counts it): all that a root
     * sends or gets; else all but the own part, twice where everybody gets the reduction of all. */
    const double others = (double)(n - 1) / n, twice = perf_reduces(p->cfg) ? 2.0 : 1.0;
    cell->bus_bw =
        cell->alg_bw * (perf_parts(p->cfg)                              ? others
                        : perf_has_root(p->cfg) || p->cfg->pattern >= 0 ? 1.0
                                                                        : twice * others);
    cell->rival_us = us[RIVAL];
    cell->issue_us = us[ISSUE];
    cell->rival_issue_us = us[RIVAL_ISSUE];
    cell->limit_us = us[EXCHANGE] > loop ? us[EXCHANGE] : loop;
    double *least = &p->results.exchange_us;
    if (us[EXCHANGE] > 0 && (*least == 0 || us[EXCHANGE] < *least)) *least = us[EXCHANGE];
}

static void choose_contestants(contest *t) {
    const perf_rank *p = t->p;
    int issues = p->cfg->limits && p->gpu && !p->cfg->blocking;
    t->plays[OURS] = 1;
    t->plays[RIVAL] = p->rival && p->rival->offers(p, t->c);
    for (int who = EXCHANGE; who <= LOOP_STREAM; who++) t->plays[who] = p->limits != NULL;
    t->plays[ISSUE] = issues;
    t->plays[RIVAL_ISSUE] = issues && t->plays[RIVAL];
}

void perf_time(perf_rank *p, const perf_case *c, perf_cell *cell,
               void (*before_last)(perf_rank *p, const perf_case *c)) {
    double result[CONTESTANTS];
    contest t = {.p = p, .c = c};
    t.us = calloc((size_t)p->cfg->rounds * CONTESTANTS, sizeof *t.us);
    if (!t.us) perf_must(p, symmOutOfMemory, "the table of times");
    choose_contestants(&t);
    if (p->cfg->graph) capture(&t, OURS);
    if (p->cfg->graph && t.plays[RIVAL] && p->rival->on_stream) capture(&t, RIVAL);
    for (int who = 0; who < CONTESTANTS; who++)
        if (t.plays[who]) t.k[who] = calibrate(&t, who);
    run_rounds(&t, before_last);
    settle(&t, result);
    fill_cell(p, c, result, cell);
    for (int who = OURS; who <= RIVAL; who++) perf_graph_free(p, t.graph[who]);
    free(t.us);
}
