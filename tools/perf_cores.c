/* perf_cores.c - puts the ranks that are threads on cores of their own. Each rank's thread, for
 * itself; no lock.
 *
 * Threads begin on the core of the one that started them, and two that spin for each other there
 * take turns of a time slice: the system needs some hundred milliseconds to see that they are
 * better apart, which is all of the first row. */
#define _GNU_SOURCE
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "perf.h"

enum { MOST_CORES = 1 << 20 };

/* The cores that this thread may use, in a set of *bytes that holds them all; NULL: not known. */
static cpu_set_t *allowed(size_t *bytes) {
    for (int most = 1024; most <= MOST_CORES; most *= 2) {
        cpu_set_t *set = CPU_ALLOC(most);
        *bytes = CPU_ALLOC_SIZE(most);
        if (set && !sched_getaffinity(0, *bytes, set)) return set;
        CPU_FREE(set);
        if (errno != EINVAL) break;
    }
    return NULL;
}

static int nth(const cpu_set_t *set, size_t bytes, int n) {
    int core = 0;
    while (!CPU_ISSET_S(core, bytes, set) || n-- > 0) core++;
    return core;
}

/* A stream's worker inherits the cores of the thread that starts it, so a rank with a stream is
 * moved and then let go. */
int perf_cores_take(const perf_rank *p) {
    const perf_world *w = p->world;
    size_t bytes;
    int core = -1;
    if (w->mpi || w->device >= 0 || w->nranks < 2 || strcmp(w->how, "threads")) return -1;
    cpu_set_t *all = allowed(&bytes), *one = all ? calloc(1, bytes) : NULL;
    if (one) {
        int at = nth(all, bytes, (int)((long)w->rank * CPU_COUNT_S(bytes, all) / w->nranks));
        CPU_SET_S(at, bytes, one);
        if (!sched_setaffinity(0, bytes, one)) core = at;
        if (p->cfg->stream || p->cfg->graph) {
            (void)sched_setaffinity(0, bytes, all);
            core = -1;
        }
    }
    free(one);
    CPU_FREE(all);
    return core;
}
