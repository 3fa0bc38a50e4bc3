/* perf_args.c - symm-perf's flags: nccl-tests' letters and long names, and our own. Pure; runs in
 * main before any rank does. */
#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "perf.h"

const char *const perf_type_names[symmNumTypes] = {"int8",   "uint8",    "int32",  "uint32",
                                                   "int64",  "uint64",   "half",   "float",
                                                   "double", "bfloat16", "f8e4m3", "f8e5m2"};
const char *const perf_op_names[PERF_OPS] = {"sum", "prod", "max", "min", "avg", "mulsum"};

size_t perf_type_size(int type) {
    static const unsigned char size[symmNumTypes] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
    return type >= 0 && type < symmNumTypes ? size[type] : 1;
}

enum { KIND_INT, KIND_SIZE, KIND_TEXT, KIND_TYPE, KIND_OP, KIND_ON, KIND_VS };

/* Of a buffer: twice as much for each of 72 ranks is still a number of bytes. */
#define MOST_BYTES (1ll << 50)

/* One row per flag: feeds getopt, the parser and the usage text. */
typedef struct {
    char letter;
    const char *name, *value;
    int kind;
    size_t field; /* offset in perf_config */
    int64_t min, max;
    const char *help;
} flag_row;

#define AT(field) offsetof(perf_config, field)
static const flag_row flags[] = {
    {'b', "minbytes", "SIZE", KIND_SIZE, AT(min_bytes), 0, MOST_BYTES,
     "smallest size (K, M, G suffixes; default 1K)"},
    {'e', "maxbytes", "SIZE", KIND_SIZE, AT(max_bytes), 0, MOST_BYTES,
     "largest size (default 64M)"},
    {'i', "stepbytes", "SIZE", KIND_SIZE, AT(step_bytes), 1, MOST_BYTES, "add this between sizes"},
    {'f', "stepfactor", "N", KIND_INT, AT(step_factor), 1, 1 << 20,
     "multiply by this between sizes (default 4)"},
    {'n', "iters", "N", KIND_INT, AT(iters), 1, 100000000,
     "calls per measurement (default: what fills 2 ms)"},
    {'m', "agg_iters", "N", KIND_INT, AT(agg), 1, 1000, "calls per group (default 1)"},
    {'w', "warmup_iters", "N", KIND_INT, AT(warmup), 0, 1000000,
     "calls before each measurement (default 1)"},
    {'N', "run_cycles", "N", KIND_INT, AT(cycles), 1, 1000000,
     "print the table N times (default 1)"},
    {'c', "check", "N", KIND_INT, AT(check), 0, 1000,
     "check rounds per measurement; 0: none (default 1)"},
    {'d', "datatype", "TYPE", KIND_TYPE, AT(type), 0, 0,
     "int8 uint8 int32 uint32 int64 uint64 half float double bfloat16 f8e4m3 f8e5m2 all"},
    {'o', "op", "OP", KIND_OP, AT(op), 0, 0, "sum prod max min avg mulsum all"},
    {'r', "root", "RANK", KIND_INT, AT(root), -1, INT_MAX,
     "of collectives that have one (default 0); -1: each rank in turn"},
    {'R', "local_register", "0|1|2", KIND_INT, AT(registered), 0, 2,
     "0: no windows; 1, 2: buffers are windows (default 2)"},
    {'G', "graph", "N", KIND_INT, AT(graph), 0, 1000000,
     "capture the calls in a graph and launch it N times"},
    {'u', "unalign", "N", KIND_INT, AT(unalign), 0, 4096, "shift both buffers by N elements"},
    {'z', "blocking", "0|1", KIND_INT, AT(blocking), 0, 1, "1: wait after each call"},
    {'y', "stream", "0|1", KIND_INT, AT(stream), 0, 1,
     "1: a stream of its own; 0: the NULL stream, inline (default); GPUs: always 1"},
    {'a', "average", "0..3", KIND_INT, AT(average), 0, 3,
     "over ranks: 0 rank 0, 1 average, 2 minimum, 3 maximum (default 1; --vs: 3)"},
    {'T', "timeout", "SECONDS", KIND_INT, AT(timeout_s), 0, 1000000,
     "give up when one measurement takes longer"},
    {'t', "threads", "N", KIND_INT, AT(threads), 1, 72, "N thread ranks in this process, no MPI"},
    {'g', "ngpus", "N", KIND_INT, AT(gpus), 1, 72,
     "N GPUs in this process, a thread rank for each (with -t: N for each thread)"},
    {'J', "json", "FILE", KIND_TEXT, AT(json), 0, 0, "write the results as JSON"},
    {0, "plot", "FILE.svg", KIND_TEXT, AT(plot), 0, 0, "draw time over size"},
    {0, "vs", "mpi|nccl", KIND_VS, AT(vs), 0, 0,
     "measure Open MPI's (or, on GPUs, NCCL's) collective in between, on the same buffers"},
    {0, "nccl", "FILE", KIND_TEXT, AT(nccl), 0, 0,
     "NCCL's library for --vs nccl (default: PERF_NCCL_LIB, else as symm_nccl.h says)"},
    {0, "rounds", "N", KIND_INT, AT(rounds), 1, 1001,
     "interleaved rounds; their median counts (default 9 with --vs or --limits)"},
    {0, "limits", NULL, KIND_ON, AT(limits), 0, 0,
     "measure bare loops over the same mapping in between (2 ranks, float, sum); on GPUs: the "
     "host's time to issue a call"},
    {0, "per-rank", NULL, KIND_ON, AT(per_rank), 0, 0,
     "all_gather: sizes are what each rank sends, not the total"},
    {0, "corrupt", NULL, KIND_ON, AT(corrupt), 0, 0,
     "spoil one element before each check: shows that the check works"},
    {'h', "help", NULL, KIND_ON, AT(help), 0, 0, "this text"},
};
enum { NFLAGS = sizeof flags / sizeof *flags };

/* Collectives, then patterns. */
enum { SUBJECTS = symmNumColls + PERF_PATTERNS };
static const symm_coll_row *subject(int i) {
    return i < symmNumColls ? &symm_colls[i] : &perf_patterns[i - symmNumColls].row;
}

void perf_args_usage(FILE *f) {
    fprintf(f, "usage: symm-perf ");
    for (int i = 0; i < SUBJECTS; i++) fprintf(f, "%s%s", i ? "|" : "", subject(i)->name);
    fprintf(
        f,
        " [flags]\n"
        "Measures a collective, or a pattern of sends and receives or of puts, over the ranks of "
        "mpirun (or --threads N) and checks its results.\n");
    for (int i = 0; i < NFLAGS; i++) {
        char names[64];
        snprintf(names, sizeof names, "%c%c%s--%s %s", flags[i].letter ? '-' : ' ',
                 flags[i].letter ? flags[i].letter : ' ', flags[i].letter ? ", " : "  ",
                 flags[i].name, flags[i].value ? flags[i].value : "");
        fprintf(f, "  %-28s %s\n", names, flags[i].help);
    }
    fprintf(f, "Exit status: 0, 1 wrong results or a failed call, 2 bad flags, 3 timeout.\n");
}

/* "64K" as bytes; 0 on success. */
static int parse_size(const char *s, int64_t *out) {
    static const char units[] = "KMG";
    char *end;
    errno = 0;
    long long v = strtoll(s, &end, 10);
    if (end == s || errno) return -1;
    const char *unit = *end && v >= 0 ? strchr(units, *end & ~0x20) : NULL;
    if (unit && *unit) { /* a blank finds the end of the list */
        int shift = 10 * (int)(unit - units + 1);
        if (v > INT64_MAX >> shift) return -1;
        v <<= shift;
        end++;
        if (*end == 'B' || *end == 'b') end++;
    }
    if (*end) return -1;
    *out = v;
    return 0;
}

static int parse_name(const char *s, const char *const *names, int n) {
    if (!strcmp(s, "all")) return -1;
    for (int i = 0; i < n; i++)
        if (!strcmp(s, names[i])) return i;
    return -2;
}

static int set_number(const flag_row *f, const char *text, void *field) {
    int64_t v;
    if (parse_size(text, &v) || v < f->min || v > f->max) return -1;
    if (f->kind == KIND_SIZE)
        *(uint64_t *)field = (uint64_t)v;
    else
        *(int *)field = (int)v;
    return 0;
}

static int set_name(const flag_row *f, const char *text, void *field) {
    int v = f->kind == KIND_TYPE ? parse_name(text, perf_type_names, symmNumTypes)
                                 : parse_name(text, perf_op_names, PERF_OPS);
    if (v == -2) return -1;
    *(int *)field = v;
    return 0;
}

static int set_rival(const char *text, int *field) {
    *field = !strcmp(text, "mpi") ? PERF_VS_MPI : !strcmp(text, "nccl") ? PERF_VS_NCCL : 0;
    return *field ? 0 : -1;
}

static int set_flag(const flag_row *f, const char *text, perf_config *cfg) {
    void *field = (char *)cfg + f->field;
    switch (f->kind) {
    case KIND_INT:
    case KIND_SIZE: return set_number(f, text, field);
    case KIND_TYPE:
    case KIND_OP: return set_name(f, text, field);
    case KIND_TEXT: *(const char **)field = text; return *text ? 0 : -1;
    case KIND_VS: return set_rival(text, field);
    default: *(int *)field = 1; return 0;
    }
}

static void describe_range(const flag_row *f, char *out, size_t cap) {
    if (f->kind == KIND_INT)
        snprintf(out, cap, "a whole number from %lld to %lld", (long long)f->min,
                 (long long)f->max);
    else if (f->kind == KIND_SIZE)
        snprintf(out, cap, "bytes from %lld to %lldG, with K, M or G", (long long)f->min,
                 (long long)(f->max >> 30));
    else if (f->kind == KIND_VS)
        snprintf(out, cap, "mpi or nccl");
    else if (f->kind == KIND_TEXT)
        snprintf(out, cap, "a file name");
    else
        snprintf(out, cap, "one of %s", f->help);
}

/* getopt's tables from ours; long options return the row number behind `LONG`. */
enum { LONG = 256 };
static void getopt_tables(struct option *longs, char *shorts) {
    *shorts++ = ':'; /* a missing value is told apart from an unknown flag */
    for (int i = 0; i < NFLAGS; i++) {
        longs[i] = (struct option){flags[i].name, flags[i].value ? required_argument : no_argument,
                                   NULL, LONG + i};
        if (!flags[i].letter) continue;
        *shorts++ = flags[i].letter;
        if (flags[i].value) *shorts++ = ':';
    }
    longs[NFLAGS] = (struct option){0};
    *shorts = 0;
}

static const flag_row *find_flag(int c) {
    if (c >= LONG) return &flags[c - LONG];
    for (int i = 0; i < NFLAGS; i++)
        if (flags[i].letter == c) return &flags[i];
    return NULL;
}

static int parse_flags(int argc, char **argv, perf_config *cfg, char *err, size_t cap) {
    struct option longs[NFLAGS + 1];
    char shorts[2 * NFLAGS + 2];
    getopt_tables(longs, shorts);
    opterr = 0;
    optind = 1;
    for (int c; (c = getopt_long(argc, argv, shorts, longs, NULL)) != -1;) {
        const char *shown = argv[optind - 1];
        const flag_row *f = c == '?' || c == ':' ? NULL : find_flag(c);
        if (c == ':') return snprintf(err, cap, "flag %s needs a value", shown), -1;
        if (!f && optopt >= LONG)
            return snprintf(err, cap, "flag --%s takes no value", flags[optopt - LONG].name), -1;
        if (!f && optopt) return snprintf(err, cap, "unknown flag -%c", optopt), -1;
        if (!f) return snprintf(err, cap, "unknown flag %s", shown), -1;
        if (!set_flag(f, optarg, cfg)) continue;
        char range[256];
        describe_range(f, range, sizeof range);
        return snprintf(err, cap, "--%s: '%s' is not %s", f->name, optarg, range), -1;
    }
    return 0;
}

/* "all_reduce, all_gather or barrier" */
static const char *list_subjects(char *text, size_t cap) {
    size_t at = 0;
    for (int i = 0; i < SUBJECTS && at < cap; i++)
        at += (size_t)snprintf(text + at, cap - at, "%s%s", subject(i)->name,
                               i + 2 < SUBJECTS   ? ", "
                               : i + 1 < SUBJECTS ? " or "
                                                  : "");
    return text;
}

/* nccl-tests' programs have our names, and _perf behind them. */
static int is_called(const char *given, const char *name) {
    const size_t n = strlen(name);
    return !strncmp(given, name, n) && (!given[n] || !strcmp(given + n, "_perf"));
}

static int parse_collective(int argc, char **argv, perf_config *cfg, char *err, size_t cap) {
    char list[256];
    if (optind >= argc)
        return snprintf(err, cap, "which collective? %s", list_subjects(list, sizeof list)), -1;
    int i = 0;
    while (i < SUBJECTS && !is_called(argv[optind], subject(i)->name)) i++;
    if (i == SUBJECTS)
        return snprintf(err, cap, "unknown collective '%s': %s", argv[optind],
                        list_subjects(list, sizeof list)),
               -1;
    if (optind + 1 < argc)
        return snprintf(err, cap, "'%s' is one argument too many", argv[optind + 1]), -1;
    cfg->row = subject(i);
    cfg->coll = i < symmNumColls ? (symmColl_t)i : symmNumColls;
    cfg->pattern = i < symmNumColls ? -1 : i - symmNumColls;
    return 0;
}

/* Flags that exclude or need each other, and the defaults that depend on others. */
static int settle(perf_config *cfg, char *err, size_t cap) {
    if (cfg->max_bytes < cfg->min_bytes)
        return snprintf(err, cap, "--minbytes %llu is more than --maxbytes %llu",
                        (unsigned long long)cfg->min_bytes, (unsigned long long)cfg->max_bytes),
               -1;
    if (cfg->step_bytes && cfg->step_factor > 1)
        return snprintf(err, cap, "--stepbytes adds, --stepfactor multiplies: give one of them"),
               -1;
    if (cfg->step_factor == 0) cfg->step_factor = cfg->step_bytes ? 1 : 4;
    if (cfg->step_factor == 1 && !cfg->step_bytes) cfg->step_bytes = 1 << 20;
    if (cfg->gpus > 1 || cfg->threads) /* as in nccl-tests: -t threads with -g GPUs each */
        cfg->threads = (cfg->threads ? cfg->threads : 1) * (cfg->gpus ? cfg->gpus : 1);
    if (cfg->threads > 72)
        return snprintf(err, cap, "-t and -g together make %d ranks: at most 72", cfg->threads), -1;
    if (cfg->vs == PERF_VS_MPI && cfg->threads)
        return snprintf(err, cap, "--vs mpi needs ranks under mpirun, not --threads"), -1;
    if (cfg->nccl && cfg->vs != PERF_VS_NCCL)
        return snprintf(err, cap, "--nccl %s is for --vs nccl", cfg->nccl), -1;
    if (cfg->limits && !perf_moves(cfg))
        return snprintf(err, cap, "--limits is for collectives that move data"), -1;
    const perf_pattern *pattern = perf_pattern_of(cfg);
    if (pattern && pattern->puts && !cfg->registered)
        return snprintf(err, cap, "%s is over windows: it needs -R 1 or 2", cfg->row->name), -1;
    if (pattern && pattern->steps && cfg->agg > 1)
        return snprintf(err, cap, "%s has steps, which a group (-m %d) would make at once",
                        cfg->row->name, cfg->agg),
               -1;
    if (cfg->limits &&
        (pattern || perf_has_root(cfg) || perf_sent(cfg, 2) > 1 || symm_coll_varies(cfg->row)))
        return snprintf(err, cap, "--limits has no bare loop for %s", cfg->row->name), -1;
    if (cfg->per_rank && !perf_parts(cfg))
        return snprintf(err, cap, "--per-rank is for collectives that have a part for each rank"),
               -1;
    if (cfg->corrupt && (!cfg->check || !perf_moves(cfg)))
        return snprintf(err, cap, "--corrupt needs a check (-c 1) of data"), -1;
    if (cfg->graph && cfg->blocking)
        return snprintf(err, cap, "-z 1 cannot wait inside a graph (-G)"), -1;
    if (cfg->graph) cfg->stream = 1;
    if (cfg->graph && !cfg->iters) cfg->iters = 20;
    int compares = cfg->vs || cfg->limits;
    if (cfg->average < 0) cfg->average = compares ? 3 : 1;
    if (!cfg->rounds) cfg->rounds = compares ? 9 : 1;
    return 0;
}

int perf_args_parse(int argc, char **argv, perf_config *cfg, char *err, size_t cap) {
    *cfg = (perf_config){.min_bytes = 1 << 10,
                         .max_bytes = 64 << 20,
                         .warmup = 1,
                         .check = 1,
                         .cycles = 1,
                         .agg = 1,
                         .type = symmFloat32,
                         .op = PERF_SUM,
                         .registered = 2,
                         .average = -1};
    if (parse_flags(argc, argv, cfg, err, cap)) return -1;
    if (cfg->help) return 0;
    return parse_collective(argc, argv, cfg, err, cap) || settle(cfg, err, cap) ? -1 : 0;
}

int perf_args_check(const perf_config *cfg, int nranks, int mpi, char *err, size_t cap) {
    if (cfg->root >= nranks)
        return snprintf(err, cap, "--root %d: there are %d ranks", cfg->root, nranks), -1;
    const perf_pattern *pattern = perf_pattern_of(cfg);
    if (pattern && pattern->doubles && (nranks & (nranks - 1)))
        return snprintf(err, cap, "%s needs a power of 2 ranks; there are %d", cfg->row->name,
                        nranks),
               -1;
    if (pattern && pattern->pair && nranks != 2)
        return snprintf(err, cap, "%s is between 2 ranks; there are %d", cfg->row->name, nranks),
               -1;
    if (mpi && cfg->gpus > 1 && nranks > 1)
        return snprintf(err, cap,
                        "--ngpus %d is for a single process; there are %d, and each drives one GPU",
                        cfg->gpus, nranks),
               -1;
    if (mpi && cfg->threads && nranks > 1)
        return snprintf(err, cap,
                        "--threads %d is for a single process; there are %d, and each is a rank",
                        cfg->threads, nranks),
               -1;
    return 0;
}

/* --limits has another meaning on GPUs, where none of this is needed. */
static int check_limits(const perf_config *cfg, int nranks, char *err, size_t cap) {
    if (nranks != 2)
        return snprintf(err, cap, "--limits measures between 2 ranks; there are %d", nranks), -1;
    if (!cfg->registered)
        return snprintf(err, cap, "--limits measures over windows: it needs -R 1 or 2"), -1;
    if (cfg->type != symmFloat32 || cfg->op != PERF_SUM)
        return snprintf(err, cap, "--limits needs -d float -o sum"), -1;
    return 0;
}

int perf_args_backend(const perf_config *cfg, int nranks, int cuda, char *err, size_t cap) {
    if (cuda && cfg->limits && cfg->blocking)
        return snprintf(err, cap,
                        "--limits measures the host's time to issue a call: not with -z 1, which "
                        "waits for it"),
               -1;
    if (cuda && cfg->vs == PERF_VS_MPI)
        return snprintf(err, cap,
                        "--vs mpi compares on the host backend: SYMM_BACKEND=host, or --vs nccl"),
               -1;
    if (!cuda && cfg->gpus)
        return snprintf(err, cap, "--ngpus %d needs GPUs; this is the host backend: --threads %d",
                        cfg->gpus, cfg->gpus),
               -1;
    if (!cuda && cfg->vs == PERF_VS_NCCL)
        return snprintf(err, cap, "--vs nccl needs GPUs; this is the host backend"), -1;
    return !cuda && cfg->limits ? check_limits(cfg, nranks, err, cap) : 0;
}

int perf_args_domains(const perf_config *cfg, int domains, int cuda, char *err, size_t cap) {
    const perf_pattern *pattern = perf_pattern_of(cfg);
    const char *what = pattern && pattern->puts ? cfg->row->name
                       : cuda                   ? NULL
                       : cfg->graph             ? "--graph"
                       : cfg->stream            ? "--stream 1"
                       : cfg->limits            ? "--limits"
                                                : NULL;
    if (domains == 1 || !what) return 0;
    return snprintf(err, cap, "%s is for ranks of one domain; these are of %d (docs/domains.md)",
                    what, domains),
           -1;
}
