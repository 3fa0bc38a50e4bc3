/* symm_info.c - symm-info: what this machine and build offer, and what the library would do with
 * it. Reads, probes and prints; changes nothing. Main thread, no lock. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "host/gpu/backend.h"
#include "base/param.h"
#include "host/coll/plan.h"
#include "info.h"
#include "info_map.h"

static int sections; /* printed so far: an empty line stands between two */

void info_head(const char *title) {
    printf("%s%s\n", sections++ ? "\n" : "", title);
}

void info_row(const char *name, const char *fmt, ...) {
    va_list ap;
    printf("  %-16s", name);
    va_start(ap, fmt);
    vprintf(fmt, ap);
    va_end(ap);
    printf("\n");
}

/* ---- parameters ---- */

/* A changed value is marked; an unchanged one needs no default beside it. */
static void param_row(void *arg, const char *var, const char *value, const char *def,
                      const char *allowed, const char *help) {
    int changed = strcmp(value, def) != 0;
    (void)arg;
    printf("%c %-20s %-10s %s (%s%s%s)\n", changed ? '*' : ' ', var, *value ? value : "-", help,
           changed ? "default " : "", changed ? (*def ? def : "-") : "", changed ? "" : allowed);
}

static int show_params(void) {
    symm_params p;
    info_head("Parameters");
    if (symm_param_load(&p) != symmSuccess) {
        printf("  refused: %s\n", symmGetLastError(NULL));
        return 1;
    }
    symm_param_each(&p, param_row, NULL);
    return 0;
}

/* A bar would end the cell. */
static void put_cell(const char *text) {
    for (; *text; text++) {
        if (*text == '|') putchar('\\');
        putchar(*text);
    }
}

static void markdown_row(void *arg, const char *var, const char *value, const char *def,
                         const char *allowed, const char *help) {
    (void)arg, (void)value;
    printf("| `%s` | ", var);
    put_cell(*def ? def : "empty");
    printf(" | ");
    put_cell(allowed);
    printf(" | ");
    put_cell(help);
    printf(" |\n");
}

/* The defaults of this build, whatever the environment says. */
static int params_markdown(void) {
    char *none[] = {NULL};
    symm_params p;
    if (symm_param_parse(none, &p) != symmSuccess) return 1;
    printf("| variable | default | allowed | meaning |\n|---|---|---|---|\n");
    symm_param_each(&p, markdown_row, NULL);
    return 0;
}

/* ---- kernels and plan ---- */

static void kernel_row(void *arg, const char *name, const char *coll, const char *types,
                       const char *range, const char *how) {
    (void)arg;
    printf("  %-26s %-11s %-7s %-30s %s\n", name, coll, types, range, how);
}

/* Of both backends: SYMM_ALGO takes all names everywhere. */
static void show_kernels(void) {
    static const char *const titles[] = {"Kernels of the host backend", "Kernels for GPUs"};
    for (int gpu = 0; gpu < 2; gpu++) {
        info_head(titles[gpu]);
        if (gpu && *symm_backend_why()) printf("  refused here: %s\n", symm_backend_why());
        printf("  %-26s %-11s %-7s %-30s %s\n", "name", "collective", "types", "sizes", "how");
        symm_plan_kernels(gpu, kernel_row, NULL);
    }
}

/* A limit is shown to the byte: rounded it would not be one. */
static const char *exact_bytes(uint64_t bytes, char *out, size_t cap) {
    if (bytes == UINT64_MAX) return "any";
    if (bytes % 1024 == 0) return info_bytes(bytes, out, cap);
    snprintf(out, cap, "%llu B", (unsigned long long)bytes);
    return out;
}

static void plan_row(void *arg, const char *coll, uint64_t from, uint64_t to,
                     const symm_plan *most) {
    const symm_plan_env *env = arg;
    char a[32], b[32], grid[32];
    snprintf(grid, sizeof grid, env->gpu ? "%d x %d" : "%d", most->ctas, most->threads);
    printf("  %-11s %12s .. %-12s %-28s %s\n", coll, exact_bytes(from, a, sizeof a),
           exact_bytes(to, b, sizeof b), symm_kernels[most->kernel].name, grid);
}

static void show_plan(const char *title, symm_plan_env *env) {
    info_head(title);
    printf("  %-11s %-28s %-28s %s\n", "collective", "        from .. to", "kernel",
           env->gpu ? "CTAs x threads, of the largest" : "CTAs");
    symm_plan_table(env, plan_row, env);
}

/* ---- main ---- */

static const char usage[] =
    "usage: symm-info [--ranks N] [--params-md] [--heap [--svg FILE]] [section...]\n"
    "       symm-info --map DUMP --svg FILE\n"
    "Sections: machine memory params kernels plan (default: these); errors: all error texts\n"
    "  --ranks N     plan for N ranks (default 2, 4 and 8)\n"
    "  --params-md   the parameter table in Markdown, and nothing else\n"
    "  --heap        makes a heap: limits, costs, layout; of N ranks (default: all GPUs, or 2)\n"
    "  --svg FILE    writes its map\n"
    "  --map DUMP    the map of a heap from what symmHeapDump wrote with SYMM_DUMP_JSON\n";

enum {
    MACHINE = 1,
    MEMORY = 2,
    PARAMS = 4,
    KERNELS = 8,
    PLAN = 16,
    ALL = 31,
    ERRORS = 32,
    HEAP = 64
};

static int section_of(const char *name) {
    static const char *const names[] = {"machine", "memory", "params", "kernels", "plan", "errors"};
    for (int i = 0; i < 6; i++)
        if (!strcmp(name, names[i])) return 1 << i;
    return 0;
}

static void show_host_plan(symm_plan_env env) {
    char title[80];
    env.oversubscribed = env.nranks > sysconf(_SC_NPROCESSORS_ONLN);
    snprintf(title, sizeof title, "Plan for %d ranks%s", env.nranks,
             env.oversubscribed ? ", more than cores" : "");
    show_plan(title, &env);
}

/* The table goes by a rank's multiprocessors: those of the first GPU, each rank with one of its
 * own. */
static void show_gpu_plan(symm_plan_env env, int budget, int first) {
    enum { H200_SMS = 132 };
    char title[80];
    int sms = info_sms();
    env.gpu = 1;
    if (!sms) sms = H200_SMS;
    symm_plan_budget(&env, sms, budget, first);
    snprintf(title, sizeof title, "Plan for %d GPUs of %d multiprocessors%s", env.nranks, sms,
             info_sms() ? "" : " (there are none here)");
    show_plan(title, &env);
}

/* As the variables have it: all ranks must have them alike. */
static int show_plans(int ranks) {
    static const int some[] = {2, 4, 8};
    int16_t forced[symmNumColls];
    symm_params p;
    if (symm_param_load(&p) || symm_plan_parse_algo(p.algo, forced)) {
        info_head("Plan");
        printf("  refused: %s\n", symmGetLastError(NULL));
        return 1;
    }
    for (int gpu = 0; gpu < 2; gpu++)
        for (int i = 0; i < (ranks ? 1 : 3); i++) {
            symm_plan_env env = {.nranks = ranks ? ranks : some[i],
                                 .ctas = (int)p.ctas,
                                 .threads = (int)p.threads,
                                 .relay = (int)p.relay,
                                 .deterministic = (int)p.deterministic,
                                 .forced = forced};
            env.scratch = (gpu ? symm_plan_gpu_scratch : symm_plan_scratch)(p.scratch, env.nranks);
            if (gpu)
                show_gpu_plan(env, (int)p.cta_budget, p.side_by_side == 3);
            else
                show_host_plan(env);
        }
    return 0;
}

typedef struct {
    int what, ranks;
    const char *svg, *map;
} request;

static int show(const request *q) {
    int failed = 0;
    printf("symm %d.%d.%d\n", SYMM_MAJOR, SYMM_MINOR, SYMM_PATCH);
    sections = 1;
    if (q->what & MACHINE) info_machine();
    if (q->what & MEMORY) info_memory();
    if (q->what & PARAMS) failed = show_params();
    if (q->what & KERNELS) show_kernels();
    if (q->what & PLAN) failed |= show_plans(q->ranks);
    if (q->what & ERRORS) info_errors();
    if (q->what & HEAP) failed |= info_heap(q->ranks, q->svg);
    return failed;
}

/* 0, or -1 and said why. */
static int parse_ranks(const char *text, int *ranks) {
    char *end = NULL;
    long n = strtol(text, &end, 10);
    if (*end || n < 1 || n > SYMM_MAX_RANKS) {
        fprintf(stderr, "symm-info: --ranks: '%s' is not a number from 1 to %d\n", text,
                SYMM_MAX_RANKS);
        return -1;
    }
    *ranks = (int)n;
    return 0;
}

int main(int argc, char **argv) {
    request q = {0, 0, NULL, NULL};
    for (int i = 1; i < argc; i++) {
        const char *arg = argv[i];
        int section = section_of(arg);
        if (!strcmp(arg, "-h") || !strcmp(arg, "--help")) return fputs(usage, stdout), 0;
        if (!strcmp(arg, "--params-md")) return params_markdown();
        if (!strcmp(arg, "--heap")) section = HEAP;
        if (!strcmp(arg, "--svg") && i + 1 < argc) {
            q.svg = argv[++i];
        } else if (!strcmp(arg, "--map") && i + 1 < argc) {
            q.map = argv[++i];
        } else if (!strcmp(arg, "--ranks") && i + 1 < argc) {
            if (parse_ranks(argv[++i], &q.ranks)) return 2;
        } else if (!strcmp(arg, "--svg") || !strcmp(arg, "--map") || !strcmp(arg, "--ranks")) {
            return fprintf(stderr, "symm-info: %s needs a %s\n", arg,
                           arg[2] == 'r' ? "number of ranks" : "FILE"),
                   2;
        } else if (!section) {
            return fprintf(stderr, "symm-info: what is '%s'?\n%s", arg, usage), 2;
        }
        q.what |= section;
    }
    if (q.map && (!q.svg || q.what))
        return fprintf(stderr, "symm-info: --map goes with --svg, and nothing else\n%s", usage), 2;
    if (q.map) return info_map_draw(q.map, q.svg);
    if (q.svg && !(q.what & HEAP))
        return fprintf(stderr, "symm-info: --svg goes with --heap or --map\n%s", usage), 2;
    if (!q.what) q.what = ALL;
    return show(&q);
}
