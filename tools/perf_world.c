/* perf_world.c - the ranks' meeting place when they are threads of this process. The ranks call it;
 * they share one barrier and one table of blocks, which two barriers fence. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "perf.h"

typedef struct {
    pthread_barrier_t meet;
    const void **block; /* what each rank gave to the allgather under way */
    symmComm_t *comms;
    symmResult_t created;
} shared_world;

typedef struct {
    perf_world world;
    int (*body)(perf_world *w, void *arg);
    void *arg;
    int code;
} rank_thread;

static void meet(perf_world *w) {
    pthread_barrier_wait(&((shared_world *)w->ctx)->meet);
}

/* The first barrier: every block is there. The second: everybody has read, the blocks may go. */
static void gather(perf_world *w, const void *send, void *recv, size_t bytes) {
    shared_world *s = w->ctx;
    s->block[w->rank] = send;
    meet(w);
    for (int r = 0; r < w->nranks; r++)
        memcpy((char *)recv + (size_t)r * bytes, s->block[r], bytes);
    meet(w);
}

static symmResult_t create(perf_world *w, symmComm_t *comm) {
    shared_world *s = w->ctx;
    int devices[w->nranks];
    gather(w, &w->device, devices, sizeof w->device);
    if (w->rank == 0)
        s->created = symmCommInitAll(s->comms, w->nranks, w->device < 0 ? NULL : devices);
    meet(w);
    /* Rank 0's thread has the error's text: it says so, and ends the process. */
    while (s->created != symmSuccess && w->rank) pause();
    if (s->created == symmSuccess) *comm = s->comms[w->rank];
    return s->created;
}

/* The other ranks may be inside a collective that never ends: the process goes at once. */
static __attribute__((noreturn)) void end_process(perf_world *w, int code) {
    (void)w;
    fflush(NULL);
    _Exit(code);
}

static void *rank_main(void *arg) {
    rank_thread *t = arg;
    t->code = t->body(&t->world, t->arg);
    return NULL;
}

static int run_threads(shared_world *s, rank_thread *t, pthread_t *id, int n,
                       int (*body)(perf_world *, void *), void *arg) {
    int worst = 0;
    for (int r = 0; r < n; r++) {
        t[r] = (rank_thread){.world = {.rank = r,
                                       .nranks = n,
                                       .how = "threads",
                                       .ctx = s,
                                       .device = -1,
                                       .barrier = meet,
                                       .allgather = gather,
                                       .comm_create = create,
                                       .abort = end_process},
                             .body = body,
                             .arg = arg};
        if (r && pthread_create(&id[r], NULL, rank_main, &t[r])) {
            fprintf(stderr, "%s: cannot start the thread of rank %d\n", perf_tool, r);
            end_process(&t[r].world, 1);
        }
    }
    rank_main(&t[0]);
    for (int r = 1; r < n; r++) pthread_join(id[r], NULL);
    for (int r = 0; r < n; r++) worst = t[r].code > worst ? t[r].code : worst;
    return worst;
}

int perf_world_threads(int n, int (*body)(perf_world *w, void *arg), void *arg) {
    size_t count = (size_t)n;
    int code = 1;
    shared_world s = {.block = calloc(count, sizeof *s.block),
                      .comms = calloc(count, sizeof *s.comms)};
    rank_thread *t = calloc(count, sizeof *t);
    pthread_t *id = calloc(count, sizeof *id);
    if (s.block && s.comms && t && id && !pthread_barrier_init(&s.meet, NULL, (unsigned)n)) {
        code = run_threads(&s, t, id, n, body, arg);
        pthread_barrier_destroy(&s.meet);
    } else {
        fprintf(stderr, "%s: no memory for %d ranks\n", perf_tool, n);
    }
    free(id);
    free(t);
    free(s.comms);
    free(s.block);
    return code;
}

int perf_world_refuses(perf_world *w, const char *err) {
    char mine[PERF_ERR] = "", all[w->nranks][PERF_ERR];
    int r = 0;
    snprintf(mine, sizeof mine, "%s", err);
    w->allgather(w, mine, all, sizeof mine);
    while (r < w->nranks && !*all[r]) r++;
    if (r == w->nranks) return 0;
    if (w->rank == 0 && r == 0) fprintf(stderr, "%s: %s\n", perf_tool, all[0]);
    if (w->rank == 0 && r > 0) fprintf(stderr, "%s: rank %d: %s\n", perf_tool, r, all[r]);
    fflush(stderr);
    w->barrier(w); /* mpirun kills the others when the first one leaves */
    return 1;
}

double perf_world_max(perf_world *w, double v) {
    double all[w->nranks], most = v;
    w->allgather(w, &v, all, sizeof v);
    for (int r = 0; r < w->nranks; r++) most = all[r] > most ? all[r] : most;
    return most;
}

int64_t perf_world_sum(perf_world *w, int64_t v) {
    int64_t all[w->nranks], sum = 0;
    w->allgather(w, &v, all, sizeof v);
    for (int r = 0; r < w->nranks; r++) sum += all[r];
    return sum;
}
