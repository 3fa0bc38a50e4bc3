/* arena_gpu.c - order between CUDA's streams, for arenas: a point is an event, counted, for several streams may have to wait for it. Any thread;
 * no lock: the communicator's context is made current where a call needs one. The NULL stream is CUDA's legacy one. */
#include <stdatomic.h>
#include <stdlib.h>

#include "arena_int.h"
#include "comm.h"
#include "fail.h"
#include "gpu.h"

typedef struct {
    _Atomic int refs;
    cu_event event;
} point;

/* In the context. NULL: no event; what was given to the stream has ended instead. */
static point *record(symmStream_t s) {
    point *e = SYMM_FAIL_ALLOC(arena_point, malloc(sizeof *e));
    if (e && symm_cu.cuEventCreate(&e->event, SYMM_CUDA_EVENT_DISABLE_TIMING) == 0) {
        atomic_init(&e->refs, 1);
        if (symm_cu.cuEventRecord(e->event, symm_gpu_stream(s)) == 0) return e;
        symm_cu.cuEventDestroy(e->event);
    }
    free(e);
    (void)symm_cuda_error(symm_cu.cuStreamSynchronize(symm_gpu_stream(s)), "waiting for stream %p",
                          (void *)s);
    return NULL;
}

static int gpu_take(void *ctx, symmStream_t s, symm_point *p) {
    symm_cuda_scope scope;
    *p = (symm_point){0};
    if (symm_gpu_enter(ctx, &scope)) return -1;
    p->event = record(s);
    symm_gpu_leave(&scope);
    return p->event ? 1 : -1;
}

static symmResult_t gpu_wait(void *ctx, symmStream_t s, const symm_point *p) {
    symm_cuda_scope scope;
    const point *e = p->event;
    SYMM_TRY(symm_gpu_enter(ctx, &scope));
    cu_result cu = symm_cu.cuStreamWaitEvent(symm_gpu_stream(s), e->event, 0);
    symm_gpu_leave(&scope);
    return symm_cuda_error(cu, "putting stream %p behind what another one freed", (void *)s);
}

static symmResult_t gpu_reach(void *ctx, const symm_point *p) {
    symm_cuda_scope scope;
    const point *e = p->event;
    SYMM_TRY(symm_gpu_push(ctx, &scope));
    cu_result cu = symm_cu.cuEventSynchronize(e->event);
    symm_gpu_pop(ctx, &scope);
    return symm_cuda_error(cu, "waiting for what a stream freed");
}

static void gpu_share(void *ctx, const symm_point *p) {
    point *e = p->event;
    (void)ctx;
    atomic_fetch_add_explicit(&e->refs, 1, memory_order_relaxed);
}

static void gpu_drop(void *ctx, symm_point *p) {
    symm_cuda_scope scope;
    point *e = p->event;
    /* Acquire and release: who destroys the event comes after everyone's last use. */
    if (atomic_fetch_sub_explicit(&e->refs, 1, memory_order_acq_rel) != 1) return;
    if (!symm_gpu_push(ctx, &scope)) {
        symm_cu.cuEventDestroy(e->event);
        symm_gpu_pop(ctx, &scope);
    }
    free(e);
}

/* Streams of CUDA's do not tell when they go (symmArenaStreamEnd does). */
static int gpu_idle(void *ctx, symmStream_t s, const symm_point *p) {
    symm_cuda_scope scope;
    (void)s;
    if (!p || symm_gpu_push(ctx, &scope)) return 0;
    const point *e = p->event;
    int idle = symm_cu.cuEventQuery(e->event) == 0;
    symm_gpu_pop(ctx, &scope);
    return idle;
}

/* Captured memory is a lane's: an arena hands out what a stream has now, not what a graph will have. */
static symmResult_t gpu_check(void *ctx, symmStream_t s) {
    symm_cuda_scope scope;
    int status = SYMM_CUDA_CAPTURE_NONE;
    if (symm_gpu_is_per_thread(s))
        return SYMM_ERR(symmInvalidArgument,
                        "stream=%p is another stream in each thread: use one of cudaStreamCreate",
                        (void *)s);
    SYMM_TRY(symm_gpu_enter(ctx, &scope));
    cu_result cu = symm_cu.cuStreamIsCapturing(symm_gpu_stream(s), &status);
    symm_gpu_leave(&scope);
    if (cu) return SYMM_ERR(symmInvalidArgument, "stream=%p is not a live stream", (void *)s);
    if (status != SYMM_CUDA_CAPTURE_NONE)
        return SYMM_ERR(symmInvalidUsage,
                        "stream=%p is being captured: arenas have no part in that", (void *)s);
    return symmSuccess;
}

symm_arena_order symm_arena_order_of(symm_comm *c) {
    symm_arena_order order = {gpu_take, gpu_wait,  gpu_reach, gpu_share, gpu_drop,
                              gpu_idle, gpu_check, c,         1};
    return c->gpu ? order : symm_arena_order_host;
}
