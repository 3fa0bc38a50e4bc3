/* perf_gpu.c - one rank's GPU: see perf_gpu.h. Driver calls go through the library's table, which
 * symm-perf shares by being linked with the library's objects. */
#include <stdlib.h>
#include <string.h>

#include "host/gpu/backend.h"
#include "base/param.h"
#include "transport/cuda/cuda_device.h"
#include "perf_gpu.h"

struct perf_gpu {
    symm_cuda_info info;
    cu_stream copies;
    cu_event from, to;
    char *staging;
};

static void must(perf_rank *p, cu_result r, const char *what) {
    if (r == SYMM_CUDA_SUCCESS) return;
    const char *name = symm_cuda_code_name(r);
    fprintf(stderr, "%s: rank %d, device %d: %s: %s (%d)\n", perf_tool, p->world->rank,
            p->world->device, what, name ? name : "unknown", r);
    p->world->abort(p->world, PERF_EXIT_WRONG);
}
#define MUST(p, call, args) must((p), symm_cu.call args, #call)

static cu_stream stream_of(const perf_rank *p) {
    return (cu_stream)p->stream;
}

static cu_deviceptr address(const void *at) {
    return (cu_deviceptr)(uintptr_t)at;
}

/* ---- start ---- */

/* What was asked for and cannot be had without GPUs; NULL: nothing. */
static const char *wish(const perf_config *cfg, const symm_params *params) {
    if (cfg->gpus) return "--ngpus";
    if (cfg->vs == PERF_VS_NCCL) return "--vs nccl";
    return params->backend == 2 ? "SYMM_BACKEND=cuda" : NULL;
}

/* A thread rank drives the device of its number; a process the one that the library gives it. */
static symmResult_t choose(perf_world *w, int devices) {
    int device = w->rank % devices;
    symmResult_t r = strcmp(w->how, "threads") ? symm_cuda_current(&device) : symm_cuda_set(device);
    if (r == symmSuccess) w->device = device;
    return r;
}

int perf_gpu_start(perf_world *w, const perf_config *cfg, char *err, size_t cap) {
    symm_params params;
    w->device = -1;
    if (symm_param_load(&params) != symmSuccess)
        return snprintf(err, cap, "%s", symmGetLastError(NULL)), -1;
    const char *asked = wish(cfg, &params);
    if (params.backend == 1 && asked)
        return snprintf(err, cap, "%s needs GPUs, and SYMM_BACKEND=host excludes them", asked), -1;
    const char *why = params.backend == 1 ? "" : symm_backend_why();
    int devices = params.backend == 1 || *why ? 0 : symm_cuda_devices();
    if (!devices && asked) return snprintf(err, cap, "%s needs GPUs: %s", asked, why), -1;
    if (!devices) return 0;
    if (cfg->gpus && !strcmp(w->how, "threads") && w->nranks > devices)
        return snprintf(err, cap, "%d ranks with a GPU each (-g): there are %d GPUs", w->nranks,
                        devices),
               -1;
    if (choose(w, devices) != symmSuccess)
        return snprintf(err, cap, "no GPU for this rank: %s", symmGetLastError(NULL)), -1;
    return 0;
}

int perf_gpu_apart(perf_world *w, char *err, size_t cap) {
    symm_cuda_info mine, all[w->nranks];
    memset(&mine, 0, sizeof mine);
    const int known = symm_cuda_describe(w->device, &mine) == symmSuccess;
    w->allgather(w, &mine, all, sizeof mine);
    if (!known) return snprintf(err, cap, "%s", symmGetLastError(NULL)), -1;
    for (int r = 0; r < w->rank; r++)
        if (!memcmp(all[r].uuid, mine.uuid, sizeof mine.uuid))
            return snprintf(
                       err, cap,
                       "it and rank %d have the same GPU (%s), and -g asks for one each: start "
                       "fewer ranks, or leave -g out",
                       r, mine.pci),
                   -1;
    return 0;
}

void perf_gpu_open(perf_rank *p) {
    perf_gpu *g = calloc(1, sizeof *g);
    cu_stream stream;
    if (!g) perf_must(p, symmOutOfMemory, "the rank's GPU");
    p->gpu = g;
    PERF_MUST(p, symm_cuda_describe(p->world->device, &g->info));
    MUST(p, cuStreamCreate, (&stream, SYMM_CUDA_STREAM_NON_BLOCKING));
    MUST(p, cuStreamCreate, (&g->copies, SYMM_CUDA_STREAM_NON_BLOCKING));
    MUST(p, cuEventCreate, (&g->from, SYMM_CUDA_EVENT_DEFAULT));
    MUST(p, cuEventCreate, (&g->to, SYMM_CUDA_EVENT_DEFAULT));
    MUST(p, cuMemAllocHost, ((void **)&g->staging, PERF_STAGING));
    p->stream = (symmStream_t)stream;
}

void perf_gpu_close(perf_rank *p) {
    perf_gpu *g = p->gpu;
    if (!g) return;
    MUST(p, cuMemFreeHost, (g->staging));
    MUST(p, cuEventDestroy, (g->to));
    MUST(p, cuEventDestroy, (g->from));
    MUST(p, cuStreamDestroy, (g->copies));
    MUST(p, cuStreamDestroy, (stream_of(p)));
    p->gpu = NULL;
    free(g);
}

void perf_gpu_describe(const perf_rank *p, perf_place *place) {
    snprintf(place->pci, sizeof place->pci, "%s", p->gpu->info.pci);
    snprintf(place->gpu, sizeof place->gpu, "%s", p->gpu->info.name);
}

int perf_gpu_driver(const perf_rank *p) {
    (void)p;
    return symm_cuda_version();
}

/* ---- copies ---- */

char *perf_gpu_staging(perf_rank *p) {
    return p->gpu->staging;
}

void perf_gpu_put(perf_rank *p, void *dst, size_t bytes) {
    MUST(p, cuMemcpyHtoDAsync, (address(dst), p->gpu->staging, bytes, p->gpu->copies));
    MUST(p, cuStreamSynchronize, (p->gpu->copies));
}

void perf_gpu_get(perf_rank *p, const void *src, size_t bytes) {
    MUST(p, cuMemcpyDtoHAsync, (p->gpu->staging, address(src), bytes, p->gpu->copies));
    MUST(p, cuStreamSynchronize, (p->gpu->copies));
}

void perf_gpu_set(perf_rank *p, void *dst, unsigned char value, uint64_t bytes) {
    if (!bytes) return;
    MUST(p, cuMemsetD8Async, (address(dst), value, bytes, p->gpu->copies));
    MUST(p, cuStreamSynchronize, (p->gpu->copies));
}

/* ---- the stream, graphs ---- */

void perf_gpu_finish(perf_rank *p) {
    MUST(p, cuStreamSynchronize, (stream_of(p)));
}

void perf_gpu_copy(perf_rank *p, void *dst, const void *src, size_t bytes) {
    MUST(p, cuMemcpyDtoDAsync, (address(dst), address(src), bytes, stream_of(p)));
}

/* Thread-local: what other thread ranks do meanwhile is their own business. */
void perf_gpu_capture(perf_rank *p) {
    MUST(p, cuStreamBeginCapture, (stream_of(p), SYMM_CUDA_CAPTURE_MODE_THREAD_LOCAL));
}

/* What the calls hung on the graph (windows, say) the executable graph keeps alive by itself. */
void *perf_gpu_captured(perf_rank *p) {
    cu_graph graph;
    cu_graph_exec exec;
    MUST(p, cuStreamEndCapture, (stream_of(p), &graph));
    MUST(p, cuGraphInstantiate, (&exec, graph, 0));
    MUST(p, cuGraphDestroy, (graph));
    MUST(p, cuGraphUpload, (exec, stream_of(p)));
    MUST(p, cuStreamSynchronize, (stream_of(p)));
    return exec;
}

void perf_gpu_graph_free(perf_rank *p, void *exec) {
    MUST(p, cuGraphExecDestroy, ((cu_graph_exec)exec));
}

double perf_gpu_graph_play(perf_rank *p, void *exec, int n) {
    float ms = 0;
    MUST(p, cuEventRecord, (p->gpu->from, stream_of(p)));
    for (int i = 0; i < n; i++) MUST(p, cuGraphLaunch, ((cu_graph_exec)exec, stream_of(p)));
    MUST(p, cuEventRecord, (p->gpu->to, stream_of(p)));
    MUST(p, cuStreamSynchronize, (stream_of(p)));
    MUST(p, cuEventElapsedTime, (&ms, p->gpu->from, p->gpu->to));
    return 1e3 * ms;
}
