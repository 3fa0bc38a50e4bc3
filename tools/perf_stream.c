/* perf_stream.c - the stream that a rank's calls go to, and graphs of them, on either backend: the
 * library's own on the host, CUDA's on a GPU. Each rank's thread, for its own stream. */
#include <stdlib.h>
#include <time.h>

#include "perf_gpu.h"

struct perf_graph {
    symmGraphExec_t host;
    void *exec; /* of the GPU */
};

double perf_now_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

void perf_stream_open(perf_rank *p) {
    if (p->world->device >= 0)
        perf_gpu_open(p);
    else if (p->cfg->stream)
        PERF_MUST(p, symmStreamCreate(&p->stream));
}

void perf_stream_close(perf_rank *p) {
    if (p->gpu)
        perf_gpu_close(p);
    else if (p->stream)
        PERF_MUST(p, symmStreamDestroy(p->stream));
    p->stream = NULL;
}

void perf_stream_finish(perf_rank *p) {
    if (p->gpu)
        perf_gpu_finish(p);
    else if (p->stream)
        PERF_MUST(p, symmStreamSynchronize(p->stream));
}

static void begin(perf_rank *p) {
    if (p->gpu)
        perf_gpu_capture(p);
    else
        PERF_MUST(p, symmStreamBeginCapture(p->stream));
}

static void end_host(perf_rank *p, symmGraphExec_t *exec) {
    symmGraph_t graph;
    PERF_MUST(p, symmStreamEndCapture(p->stream, &graph));
    PERF_MUST(p, symmGraphInstantiate(graph, exec));
    PERF_MUST(p, symmGraphDestroy(graph));
}

static perf_graph *end(perf_rank *p) {
    perf_graph *g = calloc(1, sizeof *g);
    if (!g) perf_must(p, symmOutOfMemory, "a graph");
    if (p->gpu)
        g->exec = perf_gpu_captured(p);
    else
        end_host(p, &g->host);
    return g;
}

/* On a GPU one call goes ahead, for what must not be done inside a capture: loading of kernels,
 * say. No rank launches before all have their graph: while one is made ready, nothing may run that
 * waits for another rank. */
perf_graph *perf_graph_of(perf_rank *p, const perf_case *c, perf_call_fn call, int n) {
    if (p->gpu) {
        call(p, c);
        perf_stream_finish(p);
        p->world->barrier(p->world);
    }
    begin(p);
    for (int i = 0; i < n; i++) call(p, c);
    perf_graph *g = end(p);
    if (p->gpu) p->world->barrier(p->world);
    return g;
}

void perf_graph_free(perf_rank *p, perf_graph *g) {
    if (!g) return;
    if (g->exec) perf_gpu_graph_free(p, g->exec);
    if (g->host) PERF_MUST(p, symmGraphExecDestroy(g->host));
    free(g);
}

double perf_graph_play(perf_rank *p, perf_graph *g, int n) {
    if (p->gpu) return perf_gpu_graph_play(p, g->exec, n);
    double start = perf_now_us();
    for (int i = 0; i < n; i++) PERF_MUST(p, symmGraphLaunch(g->host, p->stream));
    perf_stream_finish(p);
    return perf_now_us() - start;
}
