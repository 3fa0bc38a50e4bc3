/* gpu_hold.c - what captured calls need stays as long as the graphs that hold them, or as long as the communicator (SYMM_GRAPH_HOLD).
 * Threads as in gpu.h. Lock: kept_lock, for the list of what graphs have let go. */
#include <pthread.h>
#include <stdlib.h>

#include "comm.h"
#include "fail.h"
#include "gpu.h"
#include "memlane.h"
#include "window.h"

enum { HOLD_GRAPH, HOLD_COMM }; /* params.def */

struct symm_kept {
    symm_kept *next;
    void *obj;
    void (*release)(void *obj);
};

static pthread_mutex_t kept_lock = PTHREAD_MUTEX_INITIALIZER;
static symm_kept *let_go;

/* In a thread of the driver's, when the last graph that holds the call is gone: no CUDA call here. */
static void graph_gone(void *arg) {
    symm_kept *k = arg;
    pthread_mutex_lock(&kept_lock);
    k->next = let_go;
    let_go = k;
    pthread_mutex_unlock(&kept_lock);
}

static void release_all(symm_kept *k) {
    while (k) {
        symm_kept *next = k->next;
        k->release(k->obj);
        free(k);
        k = next;
    }
}

void symm_gpu_reap(void) {
    pthread_mutex_lock(&kept_lock);
    symm_kept *gone = let_go;
    let_go = NULL;
    pthread_mutex_unlock(&kept_lock);
    release_all(gone);
    symm_memplan_reap(NULL);
}

static symmResult_t by_graph(symm_kept *k, cu_graph graph) {
    cu_user_object object;
    cu_result cu = symm_cu.cuUserObjectCreate(&object, k, graph_gone, 1,
                                              SYMM_CUDA_USER_OBJECT_NO_DESTRUCTOR_SYNC);
    if (cu) {
        k->release(k->obj);
        free(k);
        return symm_cuda_error(cu, "making a graph hold what a captured call needs");
    }
    cu = symm_cu.cuGraphRetainUserObject(graph, object, 1, SYMM_CUDA_GRAPH_USER_OBJECT_MOVE);
    if (!cu) return symmSuccess;
    symm_cu.cuUserObjectRelease(object, 1); /* ends in graph_gone */
    return symm_cuda_error(cu, "making a graph hold what a captured call needs");
}

int symm_gpu_pins(const symm_comm *c) {
    return c->params.graph_hold == HOLD_COMM;
}

static int is_pinned(const struct symm_gpu *g, const void *obj) {
    for (const symm_kept *k = g->pins; k; k = k->next)
        if (k->obj == obj) return 1;
    return 0;
}

symmResult_t symm_gpu_hold(symm_comm *c, cu_graph graph, void *obj, void (*release)(void *)) {
    const int comm = symm_gpu_pins(c);
    if (comm && is_pinned(c->gpu, obj)) {
        release(obj);
        return symmSuccess;
    }
    symm_kept *k = SYMM_FAIL_ALLOC(gpu_hold, calloc(1, sizeof *k));
    if (!k) {
        release(obj);
        return SYMM_ERR(symmOutOfMemory, "no memory to keep what a captured call needs");
    }
    *k = (symm_kept){NULL, obj, release};
    if (!comm) return by_graph(k, graph);
    k->next = c->gpu->pins;
    c->gpu->pins = k;
    return symmSuccess;
}

static void let_window(void *w) {
    symm_window_unref(w);
}

static symmResult_t pin_window(symm_comm *c, symm_win *w) {
    if (!w) return symmSuccess;
    symm_window_ref(w);
    return symm_gpu_hold(c, NULL, w, let_window);
}

symmResult_t symm_gpu_hold_call(cu_graph graph, const symm_launch *l) {
    if (symm_gpu_pins(l->comm)) {
        SYMM_TRY(pin_window(l->comm, l->src_win));
        return pin_window(l->comm, l->dst_win);
    }
    void *keep = symm_keep_new(l);
    if (!keep) return SYMM_ERR(symmOutOfMemory, "no memory to capture a collective");
    return symm_gpu_hold(l->comm, graph, keep, symm_keep_release);
}

void symm_gpu_unpin(symm_comm *c) {
    if (!c->gpu) return;
    symm_kept *pins = c->gpu->pins;
    c->gpu->pins = NULL;
    release_all(pins);
}
