/* across_gpu_end.c - how a communicator over several domains ends on GPUs: the wait for what was
 * given to streams, and NCCL's communicator, given up or freed. The thread inside; `leave_apart`
 * and `sync_apart` are threads of their own. No lock. */
#include "across_gpu_record.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/check.h"
#include "base/fail.h"
#include "base/stats.h"

/* Whether a graph may live that has messages: of calls that were captured, or of the last one,
 * which may have failed on its way. */
static int is_captured(const symm_across *s, const symm_across_gpu *g) {
    int some = g->in.graph != NULL;
    for (int i = 1; i < 1 + SYMM_CAPTURES; i++) some |= s->order.last[i].any;
    return some;
}

/* ---- NCCL's communicator --------------------------------------------------------------------- */

typedef struct {
    cu_context context;
    nccl_comm comm;
    nccl_result (*end)(nccl_comm comm);
} leaving;

static void leave(const leaving *l) {
    symm_cuda_scope scope;
    if (symm_cuda_push_context(l->context, &scope)) return;
    (void)l->end(l->comm);
    symm_cuda_pop(&scope);
}

static void *leave_apart(void *arg) {
    leave(arg);
    free(arg);
    symm_stat_threads(-1);
    return NULL;
}

/* NCCL returns when the last graph with a message of it is destroyed. The program may do that much
 * later, or only when it hears of the error that ends the communicator: so a thread of its own
 * waits. Without memory or a thread this one does. */
static void leave_nccl(const symm_across *s, symm_across_gpu *g,
                       nccl_result (*end)(nccl_comm comm)) {
    pthread_t thread;
    const leaving l = {g->context, g->comm, end};
    g->comm = NULL;
    if (!l.comm) return;
    SYMM_ASSERT(l.end && g->context);
    leaving *apart = is_captured(s, g) ? malloc(sizeof *apart) : NULL;
    if (apart) *apart = l;
    symm_stat_threads(apart != NULL);
    if (apart && !pthread_create(&thread, NULL, leave_apart, apart)) {
        pthread_detach(thread);
        return;
    }
    symm_stat_threads(-(apart != NULL));
    free(apart);
    leave(&l);
}

void symm_across_gpu_abort(symm_across *s) {
    s->gpu->n = 0;
    leave_nccl(s, s->gpu, s->gpu->nccl ? s->gpu->nccl->ncclCommAbort : NULL);
}

/* ---- what streams were given ----------------------------------------------------------------- */

typedef struct {
    symm_across_gpu *g;
    const symm_across_last *last; /* outside of captures */
    pthread_t thread;
    int apart; /* the thread waits for all of the context, as nobody knows where graphs run */
    _Atomic int done;
} drain;

static void *sync_apart(void *arg) {
    drain *d = arg;
    symm_cuda_scope scope;
    if (!symm_cuda_push_context(d->g->context, &scope)) {
        (void)symm_cu.cuCtxSynchronize();
        symm_cuda_pop(&scope);
    }
    atomic_store_explicit(&d->done, 1, memory_order_release); /* with is_done */
    return NULL;
}

static int is_done(drain *d) {
    if (d->apart) return atomic_load_explicit(&d->done, memory_order_acquire); /* with sync_apart */
    return symm_cu.cuEventQuery(d->last->end.event) != SYMM_CUDA_ERROR_NOT_READY;
}

static symmResult_t await_done(symm_across *s, drain *d, symmResult_t (*look)(symm_across *s)) {
    symmResult_t r = symmSuccess;
    while (!is_done(d)) {
        if (!r) r = look(s);
        usleep(SYMM_ACROSS_GPU_NAP_US);
    }
    return r;
}

symmResult_t symm_across_gpu_drain(symm_across *s, symmResult_t (*look)(symm_across *s)) {
    symm_cuda_scope scope;
    drain d = {.g = s->gpu, .last = &s->order.last[0]};
    symmResult_t r = symmSuccess;
    SYMM_ASSERT(d.g && !d.g->c && d.g->n == 0); /* nobody is in a call */
    SYMM_TRY(symm_cuda_push_context(d.g->context, &scope));
    if (is_captured(s, d.g)) {
        d.apart = !SYMM_FAIL_CODE(across_gpu_drain, EAGAIN,
                                  pthread_create(&d.thread, NULL, sync_apart, &d));
        if (!d.apart) (void)symm_cu.cuCtxSynchronize();
    }
    if (d.apart || (!is_captured(s, d.g) && d.last->any)) r = await_done(s, &d, look);
    if (d.apart) pthread_join(d.thread, NULL);
    symm_cuda_pop(&scope);
    return r;
}

/* ---- all of it ------------------------------------------------------------------------------- */

static void free_event(symm_mark *m) {
    if (m->event) symm_cu.cuEventDestroy(m->event);
    m->event = NULL;
}

void symm_across_gpu_close(symm_across *s) {
    symm_across_gpu *g = s->gpu;
    symm_cuda_scope scope;
    s->gpu = NULL;
    if (g->context && !symm_cuda_push_context(g->context, &scope)) {
        if (g->comm) leave_nccl(s, g, g->nccl->ncclCommDestroy);
        if (g->stage) symm_cu.cuMemFree((uintptr_t)g->stage);
        for (int i = 0; i < 1 + SYMM_CAPTURES; i++) free_event(&s->order.last[i].end);
        symm_cuda_pop(&scope);
    }
    free(g->pending);
    free(g);
}
