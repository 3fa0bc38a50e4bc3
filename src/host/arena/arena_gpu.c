/* arena_gpu.c - order between CUDA's streams, for arenas: a point is a mark (point.h), counted,
 * because several streams may have to wait for it. Any thread; one lock, over the list of marks
 * that no entry has. The communicator's context is made current where a call needs one. The NULL
 * stream is CUDA's legacy one. */
#include <stdatomic.h>
#include <stdlib.h>

#include "base/fail.h"
#include "host/comm/comm.h"
#include "host/gpu/gpu.h"
#include "host/gpu/point.h"
#include "arena_int.h"

typedef struct point {
    _Atomic int refs;
    symm_mark mark;
    struct point *next; /* unused ones */
} point;

/* A mark is set again as soon as no entry has it: who was told to wait for it waits for what it
 * stood for then. */
static point *unused_point(symm_arena_events *e) {
    pthread_mutex_lock(&e->lock);
    point *p = e->unused;
    if (p) e->unused = p->next;
    SYMM_ASSERT(!p || (p->mark.event && atomic_load(&p->refs) == 0));
    pthread_mutex_unlock(&e->lock);
    return p;
}

static void put(symm_arena_events *e, point *p) {
    pthread_mutex_lock(&e->lock);
    p->next = e->unused;
    e->unused = p;
    pthread_mutex_unlock(&e->lock);
}

/* In the context. */
static point *new_point(void) {
    point *p = SYMM_FAIL_ALLOC(arena_point, calloc(1, sizeof *p));
    if (p && symm_mark_make(&p->mark) == 0) return p;
    free(p);
    return NULL;
}

/* As the library's own: a capture of the caller's must not forbid it, nor be spoilt. */
static void await_stream(const symm_comm *c, symmStream_t s) {
    symm_cuda_scope scope;
    if (symm_gpu_push(c, &scope)) return;
    cu_result cu = symm_cu.cuStreamSynchronize(symm_gpu_stream(s));
    /* A stream that is gone runs what it was given; where is not known any more. */
    if (symm_gpu_means_none(cu)) cu = symm_cu.cuCtxSynchronize();
    symm_gpu_pop(c, &scope);
    (void)symm_cuda_error(cu, "waiting for stream %p", (void *)s);
}

/* In the context. NULL: no mark; what was given to the stream has ended instead. */
static point *record(symm_arena_events *e, symmStream_t s) {
    point *p = unused_point(e);
    if (!p) p = new_point();
    if (p && symm_mark_record(&p->mark, s) == 0) {
        atomic_store_explicit(&p->refs, 1, memory_order_relaxed);
        return p;
    }
    if (p) put(e, p);
    await_stream(e->comm, s);
    return NULL;
}

static int gpu_take(void *ctx, symmStream_t s, symm_point *p) {
    symm_arena_events *e = ctx;
    symm_cuda_scope scope;
    *p = (symm_point){0};
    if (symm_gpu_enter(e->comm, &scope)) return -1;
    p->shared = record(e, s);
    symm_gpu_leave(&scope);
    return p->shared ? 1 : -1;
}

static symmResult_t gpu_wait(void *ctx, symmStream_t s, const symm_point *p) {
    const symm_arena_events *e = ctx;
    symm_cuda_scope scope;
    const point *at = p->shared;
    SYMM_TRY(symm_gpu_enter(e->comm, &scope));
    cu_result cu = symm_mark_await(&at->mark, s);
    symm_gpu_leave(&scope);
    return symm_cuda_error(cu, "putting stream %p behind what another one freed", (void *)s);
}

static symmResult_t gpu_reach(void *ctx, const symm_point *p) {
    const symm_arena_events *e = ctx;
    const point *at = p->shared;
    return symm_mark_reach(e->comm, &at->mark);
}

static void gpu_share(void *ctx, const symm_point *p) {
    point *at = p->shared;
    (void)ctx;
    SYMM_ASSERT(atomic_load_explicit(&at->refs, memory_order_relaxed) > 0);
    atomic_fetch_add_explicit(&at->refs, 1, memory_order_relaxed);
}

static void gpu_drop(void *ctx, symm_point *p) {
    point *at = p->shared;
    SYMM_ASSERT(atomic_load_explicit(&at->refs, memory_order_relaxed) > 0 && at->mark.seq);
    /* Acquire and release: who sets the mark again comes after everyone's last use. */
    if (atomic_fetch_sub_explicit(&at->refs, 1, memory_order_acq_rel) == 1) put(ctx, at);
}

/* Streams of CUDA's do not tell when they go (symmArenaEndStream does). */
static int gpu_idle(void *ctx, symmStream_t s, const symm_point *p) {
    const symm_arena_events *e = ctx;
    const point *at = p ? p->shared : NULL;
    (void)s;
    return at && symm_mark_reached(e->comm, &at->mark);
}

/* A stream knows its context. Whatever the driver says against it without one, it says again in the
 * communicator's. */
static cu_result capturing(const symm_comm *c, symmStream_t s, int *status) {
    symm_cuda_scope scope;
    cu_result cu = symm_gpu_is_legacy(s) ? SYMM_CUDA_ERROR_INVALID_CONTEXT
                                         : symm_cu.cuStreamIsCapturing(symm_gpu_stream(s), status);
    if (!cu || symm_gpu_enter(c, &scope)) return cu;
    cu = symm_cu.cuStreamIsCapturing(symm_gpu_stream(s), status);
    symm_gpu_leave(&scope);
    return cu;
}

/* Captured memory is a lane's: an arena hands out what a stream has now, not what a graph will
 * have. */
static symmResult_t gpu_check(void *ctx, symmStream_t s) {
    const symm_arena_events *e = ctx;
    int status = SYMM_CUDA_CAPTURE_NONE;
    if (symm_gpu_is_per_thread(s))
        return SYMM_ERR(symmInvalidArgument,
                        "stream=%p is another stream in each thread: use one of cudaStreamCreate",
                        (void *)s);
    if (capturing(e->comm, s, &status))
        return SYMM_ERR(symmInvalidArgument, "stream=%p is not a live stream", (void *)s);
    if (status != SYMM_CUDA_CAPTURE_NONE)
        return SYMM_ERR(symmInvalidUsage,
                        "stream=%p is being captured: an arena cannot be used there", (void *)s);
    return symmSuccess;
}

/* The legacy stream cannot be captured. Of a stream that is gone a point is taken, or it is waited
 * for, as of any other. */
static int gpu_able(void *ctx, symmStream_t s) {
    const symm_arena_events *e = ctx;
    int status = SYMM_CUDA_CAPTURE_NONE;
    return symm_gpu_is_legacy(s) || capturing(e->comm, s, &status) ||
           status == SYMM_CUDA_CAPTURE_NONE;
}

/* The legacy stream waits for the context's others, and answers with an error while one of those is
 * being captured, which it may not wait for. */
static int gpu_still(void *ctx, symmStream_t s) {
    const symm_arena_events *e = ctx;
    int status = SYMM_CUDA_CAPTURE_NONE;
    return !capturing(e->comm, s, &status) && status == SYMM_CUDA_CAPTURE_NONE;
}

static void gpu_end(void *ctx) {
    symm_arena_events *e = ctx;
    symm_cuda_scope scope;
    const int inside = e->unused && symm_gpu_push(e->comm, &scope) == symmSuccess;
    for (point *p; (p = e->unused); free(p)) {
        e->unused = p->next;
        symm_mark_end(e->comm, &p->mark);
    }
    if (inside) symm_gpu_pop(e->comm, &scope);
    pthread_mutex_destroy(&e->lock);
}

symm_arena_order symm_arena_order_of(symm_comm *c, symm_arena_events *e) {
    if (!c->gpu) return symm_arena_order_host;
    *e = (symm_arena_events){.comm = c};
    pthread_mutex_init(&e->lock, NULL);
    return (symm_arena_order){.take = gpu_take,
                              .wait = gpu_wait,
                              .reach = gpu_reach,
                              .share = gpu_share,
                              .drop = gpu_drop,
                              .idle = gpu_idle,
                              .check = gpu_check,
                              .able = gpu_able,
                              .still = gpu_still,
                              .end = gpu_end,
                              .ctx = e,
                              .recycles = 1,
                              .dear = 1};
}
