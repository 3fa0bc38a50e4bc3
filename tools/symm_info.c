/* symm_info.c - symm-info: what this machine and build offer, and what the library would do with
 * it. Reads, probes and prints; changes nothing. Main thread, no lock. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../src/host/param.h"
#include "../src/host/plan.h"
#include "info.h"

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

static void show_kernels(void) {
    info_head("Kernels");
    printf("  %-26s %-11s %-7s %-30s %s\n", "name", "collective", "types", "sizes", "how");
    symm_plan_kernels(kernel_row, NULL);
}

/* A limit is shown to the byte: rounded it would not be one. */
static const char *exact_bytes(uint64_t bytes, char *out, size_t cap) {
    if (bytes == UINT64_MAX) return "any";
    if (bytes % 1024 == 0) return info_bytes(bytes, out, cap);
    snprintf(out, cap, "%llu B", (unsigned long long)bytes);
    return out;
}

static void plan_row(void *arg, const char *coll, const char *type_class, uint64_t from,
                     uint64_t to, const char *kernel, int ctas) {
    char a[32], b[32];
    (void)arg;
    printf("  %-11s %-12s %12s .. %-12s %-28s %d\n", coll, type_class,
           exact_bytes(from, a, sizeof a), exact_bytes(to, b, sizeof b), kernel, ctas);
}

static void show_plan(int nranks, int oversubscribed) {
    char title[64];
    snprintf(title, sizeof title, "Plan for %d ranks%s", nranks,
             oversubscribed ? ", more than cores" : "");
    info_head(title);
    printf("  %-11s %-12s %-28s %-28s %s\n", "collective", "types", "        from .. to", "kernel",
           "CTAs");
    symm_plan_table(nranks, oversubscribed, plan_row, NULL);
}

/* ---- main ---- */

static const char usage[] = "usage: symm-info [--ranks N] [--params-md] [section...]\n"
                            "Sections: machine memory params kernels plan (default: all)\n"
                            "  --ranks N     plan for N ranks (default 2, 4 and 8)\n"
                            "  --params-md   the parameter table in Markdown, and nothing else\n";

enum { MACHINE = 1, MEMORY = 2, PARAMS = 4, KERNELS = 8, PLAN = 16, ALL = 31 };

static int section_of(const char *name) {
    static const char *const names[] = {"machine", "memory", "params", "kernels", "plan"};
    for (int i = 0; i < 5; i++)
        if (!strcmp(name, names[i])) return 1 << i;
    return 0;
}

static void show_plans(int ranks) {
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    static const int some[] = {2, 4, 8};
    for (int i = 0; i < (ranks ? 1 : 3); i++) {
        int n = ranks ? ranks : some[i];
        show_plan(n, n > cores);
    }
}

static int show(int what, int ranks) {
    int failed = 0;
    printf("symm %d.%d.%d\n", SYMM_MAJOR, SYMM_MINOR, SYMM_PATCH);
    sections = 1;
    if (what & MACHINE) info_machine();
    if (what & MEMORY) info_memory();
    if (what & PARAMS) failed = show_params();
    if (what & KERNELS) show_kernels();
    if (what & PLAN) show_plans(ranks);
    return failed;
}

int main(int argc, char **argv) {
    int what = 0, ranks = 0;
    for (int i = 1; i < argc; i++) {
        char *end = NULL;
        if (!strcmp(argv[i], "-h") || !strcmp(argv[i], "--help")) return fputs(usage, stdout), 0;
        if (!strcmp(argv[i], "--params-md")) return params_markdown();
        if (!strcmp(argv[i], "--ranks") && i + 1 < argc) {
            long n = strtol(argv[++i], &end, 10);
            if (*end || n < 1 || n > 1024)
                return fprintf(stderr, "symm-info: --ranks: '%s' is not a number from 1 to 1024\n",
                               argv[i]),
                       2;
            ranks = (int)n;
            continue;
        }
        int section = section_of(argv[i]);
        if (!section) return fprintf(stderr, "symm-info: what is '%s'?\n%s", argv[i], usage), 2;
        what |= section;
    }
    return show(what ? what : ALL, ranks);
}
