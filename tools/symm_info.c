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

/* ---- kernels ---- */

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

/* ---- main ---- */

static const char usage[] =
    "usage: symm-info [--ranks N] [--plot FILE] [--params-md] [--heap [--svg FILE]] [section...]\n"
    "       symm-info --map DUMP --svg FILE\n"
    "Sections: machine memory params kernels plan (default: these); errors: all error texts\n"
    "  --ranks N     plan for N ranks (default 2, 4 and 8)\n"
    "  --plot FILE   draws the plan as SVG\n"
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

typedef struct {
    int what, ranks;
    const char *svg, *map, *plot;
} request;

static int show(const request *q) {
    int failed = 0;
    printf("symm %d.%d.%d\n", SYMM_MAJOR, SYMM_MINOR, SYMM_PATCH);
    sections = 1;
    if (q->what & MACHINE) info_machine();
    if (q->what & MEMORY) info_memory();
    if (q->what & PARAMS) failed = show_params();
    if (q->what & KERNELS) show_kernels();
    if (q->what & PLAN) failed |= info_plans(q->ranks, q->plot);
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

static int run(int argc, char **argv) {
    request q = {.what = 0};
    for (int i = 1; i < argc; i++) {
        const char *arg = argv[i];
        int section = section_of(arg);
        if (!strcmp(arg, "-h") || !strcmp(arg, "--help")) return fputs(usage, stdout), 0;
        if (!strcmp(arg, "--params-md")) return params_markdown();
        if (!strcmp(arg, "--heap")) section = HEAP;
        if (!strcmp(arg, "--svg") && i + 1 < argc) {
            q.svg = argv[++i];
        } else if (!strcmp(arg, "--plot") && i + 1 < argc) {
            q.plot = argv[++i];
        } else if (!strcmp(arg, "--map") && i + 1 < argc) {
            q.map = argv[++i];
        } else if (!strcmp(arg, "--ranks") && i + 1 < argc) {
            if (parse_ranks(argv[++i], &q.ranks)) return 2;
        } else if (!strcmp(arg, "--svg") || !strcmp(arg, "--map") || !strcmp(arg, "--ranks") ||
                   !strcmp(arg, "--plot")) {
            return fprintf(stderr, "symm-info: %s needs a %s\n", arg,
                           arg[2] == 'r' ? "number of ranks" : "FILE"),
                   2;
        } else if (!section) {
            return fprintf(stderr, "symm-info: what is '%s'?\n%s", arg, usage), 2;
        }
        q.what |= section;
    }
    if (q.map && (!q.svg || q.plot || q.what))
        return fprintf(stderr, "symm-info: --map goes with --svg, and nothing else\n%s", usage), 2;
    if (q.map) return info_map_draw(q.map, q.svg);
    if (q.svg && !(q.what & HEAP))
        return fprintf(stderr, "symm-info: --svg goes with --heap or --map\n%s", usage), 2;
    if (q.plot && q.what && !(q.what & PLAN))
        return fprintf(stderr, "symm-info: --plot goes with the section plan\n%s", usage), 2;
    if (!q.what) q.what = ALL;
    return show(&q);
}

int main(int argc, char **argv) {
    const int code = run(argc, argv);
    if (!fflush(stdout) && !ferror(stdout)) return code;
    fprintf(stderr, "symm-info: cannot write what it found\n");
    return code ? code : 1;
}
