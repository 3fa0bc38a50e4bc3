/* info_plan.c - symm-info's section `plan`: which kernel runs when, and where that choice comes
 * from. One thread, no lock. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/param.h"
#include "host/coll/plan_table.h"
#include "transport/cuda/cuda_device.h"
#include "info.h"
#include "info_plan.h"

/* A limit is shown to the byte: rounded it would not be one. */
static const char *exact_bytes(uint64_t bytes, char *out, size_t cap) {
    if (bytes == UINT64_MAX) return "any";
    if (bytes % 1024 == 0) return info_bytes(bytes, out, cap);
    snprintf(out, cap, "%llu B", (unsigned long long)bytes);
    return out;
}

typedef struct {
    const symm_plan_env *env;
    info_plan *plan;
} shown;

static void show_row(void *arg, const char *coll, uint64_t from, uint64_t to,
                     const symm_plan *most) {
    const shown *s = arg;
    char a[32], b[32], grid[32];
    snprintf(grid, sizeof grid, s->env->gpu ? "%d x %d" : "%d", most->ctas, most->threads);
    printf("  %-15s %12s .. %-12s %-28s %-9s %s\n", coll, exact_bytes(from, a, sizeof a),
           exact_bytes(to, b, sizeof b), symm_kernels[most->kernel].name,
           symm_plan_source(most->source), grid);
    if (s->plan->n < INFO_PLAN_ROWS)
        s->plan->row[s->plan->n++] = (info_plan_row){coll, from, to, most->kernel, most->source};
}

/* 0, or -1: its table is refused. */
static int show_plan(info_plan *plan, symm_plan_env *env, const char *table, const char *device) {
    const symm_plan_place at = {env->gpu, env->nranks, device};
    symm_plan_rows *rows = NULL;
    shown s = {env, plan};
    info_head(plan->title);
    if (*table && symm_plan_table_read(table, &at, &rows)) {
        printf("  refused: %s\n", symmGetLastError(NULL));
        return -1;
    }
    env->rows = rows;
    printf("  %-15s %-28s %-28s %-9s %s\n", "collective", "        from .. to", "kernel", "source",
           env->gpu ? "CTAs x threads, of the largest" : "CTAs");
    symm_plan_table(env, show_row, &s);
    free(rows);
    return 0;
}

static int show_host(info_plan *plan, symm_plan_env env, const char *table) {
    env.oversubscribed = env.nranks > sysconf(_SC_NPROCESSORS_ONLN);
    snprintf(plan->title, sizeof plan->title, "Plan for %d ranks%s", env.nranks,
             env.oversubscribed ? ", more than cores" : "");
    return show_plan(plan, &env, table, NULL);
}

/* The table goes by a rank's multiprocessors: those of the first GPU, each rank with one of its
 * own. */
static int show_gpu(info_plan *plan, symm_plan_env env, const symm_params *p) {
    enum { H200_SMS = 132 };
    symm_cuda_info info = {.name = ""};
    int sms = info_sms();
    if (sms) (void)symm_cuda_describe(0, &info);
    env.gpu = 1;
    if (!sms) sms = H200_SMS;
    symm_plan_budget(&env, sms, (int)p->cta_budget, p->side_by_side == 3);
    snprintf(plan->title, sizeof plan->title, "Plan for %d GPUs of %d multiprocessors%s",
             env.nranks, sms, *info.name ? "" : " (there are none here)");
    return show_plan(plan, &env, p->plan_table, *info.name ? info.name : NULL);
}

/* 0, or -1 and said why. */
static int draw(const char *path, const info_plan *plan, int n) {
    const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    int failed = fd < 0 || info_plan_draw(fd, plan, n);
    if (fd >= 0) failed |= close(fd) != 0;
    if (failed) fprintf(stderr, "symm-info: cannot write %s: %s\n", path, strerror(errno));
    return failed ? -1 : 0;
}

int info_plans(int ranks, const char *plot) {
    static const int some[] = {2, 4, 8};
    static info_plan plan[6];
    int16_t forced[symmNumColls];
    int n = 0, failed = 0;
    symm_params p;
    if (symm_param_load(&p) || symm_plan_parse_algo(p.algo, forced)) {
        info_head("Plan");
        printf("  refused: %s\n", symmGetLastError(NULL));
        return 1;
    }
    for (int gpu = 0; gpu < 2; gpu++)
        for (int i = 0; i < (ranks ? 1 : 3); i++, n++) {
            symm_plan_env env = {.nranks = ranks ? ranks : some[i],
                                 .ctas = (int)p.ctas,
                                 .threads = (int)p.threads,
                                 .relay = (int)p.relay,
                                 .deterministic = (int)p.deterministic,
                                 .forced = forced};
            env.scratch = (gpu ? symm_plan_gpu_scratch : symm_plan_scratch)(p.scratch, env.nranks);
            failed |= gpu ? show_gpu(&plan[n], env, &p) : show_host(&plan[n], env, p.plan_table);
        }
    if (plot) failed |= draw(plot, plan, n);
    return failed != 0;
}
