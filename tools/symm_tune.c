/* symm_tune.c - symm-tune: measures on the machine at hand which kernel is the fastest for which
 * collective and size, and writes the table that SYMM_PLAN_TABLE names. Main thread of each rank;
 * no lock. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "host/coll/coll.h"
#include "machine/cores.h"
#include "transport/cuda/cuda_device.h"
#include "tune.h"

typedef struct {
    tune_config cfg;
    char err[PERF_ERR];
    int bad;
} request;

static const char usage[] =
    "usage: mpirun -np N symm-tune [flags] [collective...]\n"
    "Measures which kernel is the fastest for each size, and prints a table for SYMM_PLAN_TABLE.\n"
    "  -o FILE     where the table goes (default: the screen)\n"
    "  -s SECONDS  about how long it may take (default 170)\n"
    "  -b SIZE     smallest size, of the table (K, M, G suffixes; default 256)\n"
    "  -e SIZE     largest size (default 64M); sizes double\n"
    "  -R 0|2      0: buffers in no window; 2: in windows (default)\n"
    "  -t N        N thread ranks in this process, no MPI\n"
    "  -g N        N GPUs in this process, a thread rank for each\n"
    "  -h          this text\n"
    "Tables of several numbers of ranks may be put into one file, one behind the other.\n";

/* ---- arguments ------------------------------------------------------------------------------- */

/* 0 and *out; -1: it is no number from least to most. */
static int parse_number(const char *text, uint64_t least, uint64_t most, uint64_t *out) {
    static const char units[] = "KMG";
    char *end = NULL;
    errno = 0;
    if (*text < '0' || *text > '9') return -1;
    *out = strtoull(text, &end, 10);
    const char *unit = *end ? strchr(units, *end & ~32) : NULL;
    if (unit && *unit && !end[1]) {
        const int bits = 10 * (int)(unit - units + 1);
        if (*out >> (63 - bits)) return -1;
        *out <<= bits;
    } else if (*end) {
        return -1;
    }
    return errno || *out < least || *out > most ? -1 : 0;
}

static int bad_word(request *q, const char *flag, const char *value) {
    snprintf(q->err, sizeof q->err, "%s does not take '%s'", flag, value);
    return -1;
}

static int parse_flag(request *q, char flag, const char *value) {
    tune_config *cfg = &q->cfg;
    const char name[] = {'-', flag, 0};
    uint64_t v = 0;
    int bad = 0;
    if (flag == 'o') {
        cfg->out = value;
        return *value ? 0 : bad_word(q, name, value);
    }
    switch (flag) {
    case 's': bad = parse_number(value, 1, 86400, &v), cfg->seconds = (int)v; break;
    case 'b': bad = parse_number(value, 4, 1ull << 40, &cfg->min_bytes); break;
    case 'e': bad = parse_number(value, 4, 1ull << 40, &cfg->max_bytes); break;
    case 'R': bad = parse_number(value, 0, 2, &v), cfg->registered = (int)v; break;
    case 't': bad = parse_number(value, 2, SYMM_MAX_RANKS, &v), cfg->threads = (int)v; break;
    case 'g': bad = parse_number(value, 1, SYMM_MAX_RANKS, &v), cfg->gpus = (int)v; break;
    default: bad = -1;
    }
    return bad ? bad_word(q, name, value) : 0;
}

static int parse_coll(request *q, const char *name) {
    for (int c = 0; c < symmNumColls; c++)
        if (!strcmp(symm_coll_name(c), name) && tune_has((symmColl_t)c)) return q->cfg.colls[c] = 1;
    snprintf(q->err, sizeof q->err, "'%s' is no collective that can be tuned", name);
    return 0;
}

static int parse(int argc, char **argv, request *q) {
    int some = 0;
    q->cfg =
        (tune_config){.seconds = 170, .min_bytes = 256, .max_bytes = 64 << 20, .registered = 2};
    for (int i = 1; i < argc; i++) {
        const char *a = argv[i];
        if (!strcmp(a, "-h") || !strcmp(a, "--help")) return q->cfg.help = 1, 0;
        if (a[0] != '-') {
            if (!parse_coll(q, a)) return -1;
            some = 1;
        } else if (!a[1] || (!a[2] && ++i == argc)) {
            return bad_word(q, a, "");
        } else if (parse_flag(q, a[1], a[2] ? a + 2 : argv[i])) {
            return -1;
        }
    }
    for (int c = 0; c < symmNumColls && !some; c++) q->cfg.colls[c] = tune_has((symmColl_t)c);
    if (q->cfg.min_bytes <= q->cfg.max_bytes) return 0;
    snprintf(q->err, sizeof q->err, "-b is larger than -e");
    return -1;
}

/* ---- the table ------------------------------------------------------------------------------- */

static void put_head(FILE *f, const tune_rank *t) {
    const time_t now = time(NULL);
    struct tm tm;
    char day[16] = "", model[128];
    if (localtime_r(&now, &tm)) strftime(day, sizeof day, "%Y-%m-%d", &tm);
    symm_cpu_name(model, sizeof model);
    fprintf(f, "# What runs when, for SYMM_PLAN_TABLE. By symm-tune of symm %d.%d.%d, %s.\n",
            SYMM_MAJOR, SYMM_MINOR, SYMM_PATCH, day);
    fprintf(f, "# Measured with %d ranks, buffers in %s, on %s%s%s.\n", t->env.nranks,
            t->cfg->registered ? "windows" : "no window", t->env.gpu ? t->device : model,
            t->env.gpu ? ", " : "", t->env.gpu ? model : "");
}

static void put_section(FILE *f, const tune_rank *t) {
    const symm_plan_place at = {t->env.gpu, t->env.nranks, t->device};
    const symm_plan_row like = {.quarter = t->env.quarter,
                                .cores =
                                    t->env.oversubscribed ? SYMM_CORES_FEW : SYMM_CORES_ENOUGH};
    char line[160];
    symm_plan_table_section(&at, &like, line, sizeof line);
    fprintf(f, "%s\n", line);
}

static void put_rows(FILE *f, const tune_size *size, int n) {
    symm_plan_row rows[TUNE_SIZES];
    const int made = tune_rows(size, n, rows);
    char line[160];
    for (int i = 0; i < made; i++) {
        symm_plan_table_line(&rows[i], line, sizeof line);
        fprintf(f, "%s\n", line);
    }
}

/* ---- a rank ---------------------------------------------------------------------------------- */

/* What would run whatever the table says. */
static const char *in_the_way(void) {
    static const char *const names[] = {"SYMM_ALGO", "SYMM_CTAS", "SYMM_THREADS",
                                        "SYMM_PLAN_TABLE"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *v = getenv(names[i]);
        if (v && *v) return names[i];
    }
    return NULL;
}

static int open_rank(tune_rank *t) {
    static const perf_config none = {.row = &symm_colls[0], .pattern = -1, .agg = 1};
    char err[PERF_ERR] = "";
    const char *way = in_the_way();
    t->perf = none;
    t->perf.threads = t->cfg->threads, t->perf.gpus = t->cfg->gpus;
    t->rank.cfg = &t->perf;
    if (way) snprintf(err, sizeof err, "%s is set: it would run instead", way);
    if (!*err && t->cfg->threads && t->rank.world->mpi)
        snprintf(err, sizeof err, "-t and -g are for a single process; mpirun started %d",
                 t->rank.world->nranks);
    if (!*err && t->rank.world->nranks < 2)
        snprintf(err, sizeof err, "one rank has nothing to choose: mpirun -np N, or -t N");
    if (perf_world_refuses(t->rank.world, err) || perf_open(&t->rank)) return -1;
    if (symm_coll_env(t->rank.comm, &t->env))
        snprintf(err, sizeof err, "%s", symmGetLastError(NULL));
    if (perf_world_refuses(t->rank.world, err)) {
        perf_close(&t->rank);
        return -1;
    }
    return 0;
}

/* A table is for one kind of GPU. 0, or -1 and said why. */
static int name_device(tune_rank *t, symm_cuda_info *info) {
    perf_world *w = t->rank.world;
    char names[w->nranks][sizeof info->name], err[PERF_ERR] = "";
    if (t->env.gpu) PERF_MUST(&t->rank, symm_cuda_describe(w->device, info));
    t->device = info->name;
    w->allgather(w, info->name, names, sizeof info->name);
    for (int r = 1; r < w->nranks && !*err; r++)
        if (strcmp(names[r], names[0]) != 0)
            snprintf(err, sizeof err, "rank 0 has a %s, rank %d a %s: a table is for one kind",
                     names[0], r, names[r]);
    return perf_world_refuses(w, err) ? -1 : 0;
}

static void run_colls(tune_rank *t, FILE *f) {
    tune_size size[TUNE_SIZES];
    for (int c = 0; c < symmNumColls; c++) t->todo += t->cfg->colls[c] * tune_sizes(t->cfg);
    for (int c = 0; c < symmNumColls; c++) {
        if (!t->cfg->colls[c]) continue;
        const int n = tune_coll(t, (symmColl_t)c, size);
        if (f) put_rows(f, size, n);
    }
}

/* Rank 0 writes beside the file, and puts it in its place when all is done. */
static int open_table(tune_rank *t, char *beside, size_t cap, FILE **f) {
    char err[PERF_ERR] = "";
    *f = NULL;
    if (t->rank.world->rank == 0) {
        const int n = snprintf(beside, cap, "%s.new", t->cfg->out ? t->cfg->out : "");
        errno = ENAMETOOLONG;
        *f = !t->cfg->out ? tmpfile() : n < (int)cap ? fopen(beside, "we") : NULL;
        if (!*f)
            snprintf(err, sizeof err, "cannot write %.200s: %s",
                     t->cfg->out ? beside : "a temporary file", strerror(errno));
    }
    return perf_world_refuses(t->rank.world, err) ? -1 : 0;
}

/* 0, or -1 and said why. */
static int close_table(const tune_rank *t, FILE *f, const char *beside) {
    int failed = fflush(f) || ferror(f);
    if (!t->cfg->out && !failed) {
        rewind(f);
        for (int ch; (ch = getc(f)) != EOF;) putchar(ch);
    }
    failed |= fclose(f);
    if (!t->cfg->out) failed |= fflush(stdout) || ferror(stdout);
    if (!failed && t->cfg->out) failed = rename(beside, t->cfg->out);
    if (failed)
        fprintf(stderr, "symm-tune: cannot write %s: %m\n",
                t->cfg->out ? t->cfg->out : "the table");
    if (!failed && t->cfg->out)
        printf("# %s has the table: SYMM_PLAN_TABLE=%s\n", t->cfg->out, t->cfg->out);
    return failed ? -1 : 0;
}

static int run_rank(perf_world *w, void *arg) {
    const request *q = arg;
    symm_cuda_info info = {.name = ""};
    char beside[4096];
    int failed = 0;
    tune_rank t = {.cfg = &q->cfg, .rank = {.world = w, .data = {.nranks = w->nranks}}};
    t.began_us = perf_now_us();
    if (open_rank(&t)) return PERF_EXIT_USAGE;
    if (name_device(&t, &info)) {
        perf_close(&t.rank);
        return PERF_EXIT_USAGE;
    }
    t.one = calloc(1, sizeof *t.one + sizeof t.one->row[0]);
    if (!t.one) perf_must(&t.rank, symmOutOfMemory, "a row");
    t.one->n = 1;
    FILE *f;
    if (open_table(&t, beside, sizeof beside, &f)) {
        failed = -1;
    } else {
        if (f) t.log = stdout, put_head(f, &t), put_section(f, &t);
        if (f) printf("# %-13s %10s  %-40s %9s\n", "collective", "bytes", "row", "us");
        run_colls(&t, f);
        if (f && t.left)
            fprintf(stderr, "symm-tune: %d s were over: %d of the largest sizes have no rows\n",
                    q->cfg.seconds, t.left);
        if (f) failed = close_table(&t, f, beside);
    }
    free(t.one);
    perf_close(&t.rank);
    return failed ? PERF_EXIT_WRONG : 0;
}

/* Rank 0 speaks for all. */
static int speak(perf_world *w, const request *q) {
    if (w->rank == 0 && q->bad)
        fprintf(stderr, "symm-tune: %s\nsymm-tune: --help lists the flags\n", q->err);
    if (w->rank == 0 && !q->bad) fputs(usage, stdout);
    fflush(NULL);
    w->barrier(w);
    return q->bad ? PERF_EXIT_USAGE : 0;
}

static int run_one(perf_world *w, void *arg) {
    const request *q = arg;
    return q->bad || q->cfg.help ? speak(w, q) : run_rank(w, arg);
}

static int run_all(void *arg) {
    const request *q = arg;
    return perf_world_threads(q->cfg.threads, run_rank, arg);
}

int main(int argc, char **argv) {
    static request q;
    perf_tool = "symm-tune";
    q.bad = parse(argc, argv, &q) != 0;
    if (q.cfg.gpus > 1 || q.cfg.threads) /* as symm-perf: -t threads with -g GPUs each */
        q.cfg.threads = (q.cfg.threads ? q.cfg.threads : 1) * (q.cfg.gpus ? q.cfg.gpus : 1);
    if (q.cfg.threads > SYMM_MAX_RANKS && !q.bad) {
        snprintf(q.err, sizeof q.err, "-t and -g make %d ranks: at most %d", q.cfg.threads,
                 SYMM_MAX_RANKS);
        q.bad = 1;
    }
#ifndef SYMM_HAVE_MPI
    if (!q.bad && !q.cfg.help && !q.cfg.threads) {
        snprintf(q.err, sizeof q.err, "built without MPI: give -t N, or install Open MPI");
        q.bad = 1;
    }
#endif
    const perf_job job = {.threads = q.cfg.threads,
                          .gpus = q.cfg.gpus,
                          .speaks = q.bad || q.cfg.help,
                          .rank = run_one,
                          .all = run_all,
                          .arg = &q};
    return perf_launch(&job, &argc, &argv);
}
