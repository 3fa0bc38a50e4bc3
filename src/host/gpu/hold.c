/* hold.c - what captured calls need stays as long as the graph that holds it, as long as the
 * communicator (SYMM_GRAPH_HOLD=comm), or with whom it is given to (symm_gpu_take: a memory plan
 * with SYMM_MEMPLAN_HOLD). On GPUs a graph holds by a user object. Threads as in hold.h; graph_gone
 * runs in a thread of the driver. Lock: kept_lock, for the list of what graphs hold and the list of
 * what they have let go. */
#include <pthread.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/fail.h"
#include "host/comm/comm.h"
#include "host/stream/stream.h"
#include "gpu.h"

enum { HOLD_GRAPH, HOLD_COMM }; /* params.def */

struct symm_kept {
    symm_kept *next;
    void *obj;
    void (*release)(void *obj);
    /* Of a graph's: */
    symm_kept *next_live, **prev_live; /* list of those that a graph has; kept_lock, as taken */
    symm_gpu_capture in;
    cu_user_object object;
    int at_once;
    int taken; /* symm_gpu_take has the obj now */
};

static pthread_mutex_t kept_lock = PTHREAD_MUTEX_INITIALIZER;
static symm_kept *let_go, *live;

static void link_live(symm_kept *k) {
    pthread_mutex_lock(&kept_lock);
    k->next_live = live;
    k->prev_live = &live;
    if (live) live->prev_live = &k->next_live;
    live = k;
    pthread_mutex_unlock(&kept_lock);
}

/* Runs in a thread of the driver when the last graph that holds the object is gone: it must not
 * call CUDA. */
static void graph_gone(void *arg) {
    symm_kept *k = arg;
    pthread_mutex_lock(&kept_lock);
    SYMM_ASSERT(*k->prev_live == k && (!k->next_live || k->next_live->prev_live == &k->next_live));
    *k->prev_live = k->next_live;
    if (k->next_live) k->next_live->prev_live = k->prev_live;
    const int now = k->taken || k->at_once;
    if (!now) {
        k->next = let_go;
        let_go = k;
    }
    pthread_mutex_unlock(&kept_lock);
    if (!now) return;
    if (!k->taken) k->release(k->obj);
    free(k);
}

void symm_gpu_let_go(symm_kept **list) {
    symm_kept *k = *list;
    *list = NULL;
    while (k) {
        symm_kept *next = k->next;
        k->release(k->obj);
        free(k);
        k = next;
    }
}

/* What else is freed after graphs are gone. Set once. */
static void (*_Atomic also)(void);

void symm_gpu_also_reap(void (*reap)(void)) {
    /* release: pairs with the acquire below */
    atomic_store_explicit(&also, reap, memory_order_release);
}

void symm_gpu_reap(void) {
    pthread_mutex_lock(&kept_lock);
    symm_kept *gone = let_go;
    let_go = NULL;
    pthread_mutex_unlock(&kept_lock);
    symm_gpu_let_go(&gone);
    void (*more)(void) = atomic_load_explicit(&also, memory_order_acquire);
    if (more) more();
}

static symmResult_t by_graph(symm_kept *k) {
    cu_result cu = symm_cu.cuUserObjectCreate(&k->object, k, graph_gone, 1,
                                              SYMM_CUDA_USER_OBJECT_NO_DESTRUCTOR_SYNC);
    if (cu) {
        k->release(k->obj);
        free(k);
        return symm_cuda_error(cu, "making a graph hold what a captured call needs");
    }
    link_live(k);
    const cu_user_object object = k->object;
    cu = symm_cu.cuGraphRetainUserObject(k->in.graph, object, 1, SYMM_CUDA_GRAPH_USER_OBJECT_MOVE);
    if (!cu) return symmSuccess;
    symm_cu.cuUserObjectRelease(object, 1); /* calls graph_gone */
    return symm_cuda_error(cu, "making a graph hold what a captured call needs");
}

/* ---- taken from graphs ----------------------------------------------------------------------- */

static int is_of(const symm_kept *k, const symm_gpu_capture *in, const void *obj) {
    return !k->taken && (in->id ? k->in.id == in->id : k->obj == obj);
}

static void free_records(symm_kept *k) {
    while (k) {
        symm_kept *next = k->next;
        free(k);
        k = next;
    }
}

static int count_live(const symm_gpu_capture *in, const void *obj) {
    int n = 0;
    pthread_mutex_lock(&kept_lock);
    for (const symm_kept *k = live; k; k = k->next_live) n += is_of(k, in, obj);
    pthread_mutex_unlock(&kept_lock);
    return n;
}

/* Moves the obj of one of them into the record. Returns the user object, to be released; NULL:
 * there is no more. */
static cu_user_object take_one(const symm_gpu_capture *in, const void *obj, symm_kept *mine) {
    cu_user_object object = NULL;
    pthread_mutex_lock(&kept_lock);
    for (symm_kept *k = live; k && !object; k = k->next_live) {
        if (!is_of(k, in, obj)) continue;
        *mine = (symm_kept){.next = mine->next, .obj = k->obj, .release = k->release, .in = k->in};
        SYMM_ASSERT(k->obj && k->release && k->object);
        k->taken = 1;
        object = k->object;
    }
    pthread_mutex_unlock(&kept_lock);
    return object;
}

symmResult_t symm_gpu_take(const symm_gpu_capture *in, const void *obj, symm_kept **list) {
    symm_kept *spare = NULL, *k;
    cu_user_object object;
    for (int n = count_live(in, obj); n > 0; n--) {
        k = SYMM_FAIL_ALLOC(gpu_take, calloc(1, sizeof *k));
        if (!k) {
            free_records(spare);
            return SYMM_ERR(symmOutOfMemory, "no memory to keep what a graph has kept");
        }
        k->next = spare;
        spare = k;
    }
    while ((k = spare) && (object = take_one(in, obj, k))) {
        spare = k->next;
        k->next = *list;
        *list = k;
        /* Calls graph_gone, here or in the driver's thread, unless an executable that was made
         * before holds the object too. */
        cu_result cu = symm_cu.cuGraphReleaseUserObject(k->in.graph, object, 1);
        if (cu) symm_cuda_error(cu, "taking from a graph what it keeps: its launches stay slower");
    }
    free_records(spare);
    return symmSuccess;
}

/* ---- kept by the communicator ---------------------------------------------------------------- */

int symm_gpu_pins(const symm_comm *c) {
    return c->params.graph_hold == HOLD_COMM;
}

static int is_pinned(const struct symm_gpu *g, const void *obj) {
    for (const symm_kept *k = g->pins; k; k = k->next)
        if (k->obj == obj) return 1;
    return 0;
}

/* Takes over one reference. */
static symmResult_t hold_gpu(symm_comm *c, const symm_gpu_capture *in, void *obj,
                             const symm_graph_user *user) {
    const int comm = symm_gpu_pins(c);
    if (comm && is_pinned(c->gpu, obj)) {
        user->release(obj);
        return symmSuccess;
    }
    symm_kept *k = SYMM_FAIL_ALLOC(gpu_hold, calloc(1, sizeof *k));
    if (!k) {
        user->release(obj);
        return SYMM_ERR(symmOutOfMemory, "no memory to keep what a captured call needs");
    }
    k->obj = obj;
    k->release = user->release;
    if (!comm) {
        k->in = *in;
        k->at_once = user->at_once;
        return by_graph(k);
    }
    SYMM_ASSERT(!is_pinned(c->gpu, obj));
    k->next = c->gpu->pins;
    c->gpu->pins = k;
    return symmSuccess;
}

symmResult_t symm_graph_hold(symm_comm *c, const symm_gpu_capture *in, symmStream_t stream,
                             void *obj, const symm_graph_user *user) {
    if (!c->gpu) return symm_stream_capture_hold(stream, obj, user);
    user->retain(obj);
    return hold_gpu(c, in, obj, user);
}

void symm_gpu_unpin(symm_comm *c) {
    if (c->gpu) symm_gpu_let_go(&c->gpu->pins);
}
