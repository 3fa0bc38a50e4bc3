/* gpu_puts.h - one-sided calls on GPUs, for ranks that are threads (gpu_onesided.c) or processes
 * (mpg_ranks.c): the random programs of onesided_model.h over streams and graphs of CUDA's. Buffers
 * are pinned memory of the host, which kernels reach too; windows are the GPU's. A rank's own
 * thread; no lock. */
#ifndef GPU_PUTS_H_
#define GPU_PUTS_H_

#include "gpu_cases.h"
#include "onesided_model.h"

static inline cu_stream gu_cu(symmStream_t s) {
    return (cu_stream)(void *)s;
}
static inline void *gu_buffer(size_t bytes) {
    return gk_pinned(bytes);
}
static inline void gu_free(void *p) {
    gk_free_pinned(p);
}
static inline symmStream_t gu_stream(int i) {
    (void)i;
    return gk_stream(gk_new_stream());
}
static inline void gu_end_stream(symmStream_t s) {
    CU(cuStreamDestroy(gu_cu(s)));
}
static inline void gu_sync(symmComm_t comm, symmStream_t s) {
    gk_wait(comm, gu_cu(s));
}
static inline void gu_capture(symmStream_t s) {
    gk_capture(gu_cu(s), SYMM_CUDA_CAPTURE_MODE_THREAD_LOCAL);
}
static inline void gu_replay(symmComm_t comm, symmStream_t s) {
    gk_graph g = gk_captured(gu_cu(s));
    CU(cuGraphLaunch(g.exec, gu_cu(s)));
    gu_sync(comm, s);
    gk_drop(&g);
}
static inline void gu_look(symmComm_t comm, symmStream_t s, void *to, const void *from,
                           uint64_t bytes) {
    gk_get(comm, gu_cu(s), to, from, bytes);
}

/* A rank's window of so many bytes, all zero. [collective] */
static inline void gu_open(const gc_rank *g, ok_world *w, symmComm_t comm, uint64_t bytes) {
    *w = (ok_world){.p = {.rank = g->rank, .n = g->n, .comm = comm, .bytes = bytes}};
    T_OK(symmSetDevice(g->rank % g->devices));
    T_OK(symmMemAlloc((void **)&w->p.memory, bytes));
    T_OK(symmWindowRegister(comm, w->p.memory, bytes, &w->p.win, SYMM_WIN_DEFAULT));
    CU(cuMemsetD8Async((uintptr_t)w->p.memory, 0, bytes, NULL));
    CU(cuStreamSynchronize(NULL));
    gc_meet(g);
}
/* Ends the communicator too, and its windows with it. [collective] */
static inline void gu_close(const gc_rank *g, ok_world *w) {
    gc_meet(g);
    T_OK(symmCommDestroy(w->p.comm));
    gc_meet(g);
    T_OK(symmMemFree(w->p.memory));
}

/* Making a graph may wait for the GPU: a rank that shares its own must not, since another one's
 * kernel may be waiting there. [collective] */
static inline void gu_programs(const gc_rank *g, symmComm_t comm, int programs) {
    om_program *p = malloc(sizeof *p);
    const om_ways ways = {
        gu_buffer,     gu_free, gu_stream,
        gu_end_stream, gu_sync, gu_capture,
        gu_replay,     gu_look, gk_number("GPU_FAKE", 0) > 0 || g->n <= g->devices};
    om_rank r;
    T_CHECK(p != NULL && g->n <= OM_MOST);
    memset(&r, 0, sizeof r);
    gu_open(g, &r.w, comm, OM_MOST * OM_LANE);
    om_begin(&r, &ways);
    gc_meet(g); /* nobody allocates any more */
    for (int k = 0; k < programs; k++) {
        const uint64_t seed = ck_hash(g->seed, (uint64_t)k, 26);
        om_draw(p, seed, g->n);
        om_run(&r, p, seed);
    }
    gc_meet(g);
    om_end(&r);
    gu_close(g, &r.w);
    free(p);
}

#endif
