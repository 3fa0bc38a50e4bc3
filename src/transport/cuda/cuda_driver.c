/* cuda_driver.c - opens the CUDA driver and fills the table of its entry points.
 *
 * Any thread. Callers look at load.state. It is stored (release) after the table and the reason
 * were written, and read (acquire) before either is used. A thread that finds it UNKNOWN looks for
 * the driver; several threads may do so at once. The first one that is done stores its result,
 * under load.lock. dlopen and cuInit run without that lock, because cuInit may fork (it runs
 * nvidia-modprobe) and our fork handlers take the lock, and because what they load may call us. A
 * driver that was initialised is never closed, because other threads may be inside it. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "cuda_driver.h"

enum { UNKNOWN, THERE, MISSING };

symm_cuda_table symm_cu;

/* The result of looking for the driver. */
typedef struct {
    symm_cuda_table table;
    int version;
    /* MISSING, although there is a driver, and not because it has no devices */
    int broken;
    char why[256];
} outcome;

static struct {
    pthread_mutex_t lock;
    atomic_int state;
    int starting; /* threads inside cuInit; under the lock, as all below until the state is known */
    int injected; /* tests: the table is the test's, and is valid in forked children too */
    int version;
    int broken;
    char why[256];
} load = {.lock = PTHREAD_MUTEX_INITIALIZER};

static _Thread_local int looking; /* inside load(): the driver may call us meanwhile */

/* ---- a table out of symbols ----------------------------------------------------------------- */

struct row {
    const char *symbol;
    size_t at; /* in symm_cuda_table */
    int required;
};

static const struct row rows[] = {
#define SYMM_CU_CALL(name, symbol, required, params) \
    {symbol, offsetof(symm_cuda_table, name), required},
#include "cuda_calls.def"
#undef SYMM_CU_CALL
};

_Static_assert(sizeof(symm_cuda_table) == sizeof rows / sizeof *rows * sizeof(void *),
               "a table is its rows");

static int missing(outcome *o, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static int missing(outcome *o, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    vsnprintf(o->why, sizeof o->why, fmt, args);
    va_end(args);
    return MISSING;
}

/* Returns the first required symbol that was not found, or NULL. dlsym returns data pointers, which
 * POSIX allows for functions; memcpy avoids a cast that compilers warn about. */
static const char *fill_table(symm_cuda_table *t, void *(*find)(void *from, const char *symbol),
                              void *from) {
    const char *lacks = NULL;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        void *entry = find(from, rows[i].symbol);
        memcpy((char *)t + rows[i].at, &entry, sizeof entry);
        if (!entry && rows[i].required && !lacks) lacks = rows[i].symbol;
    }
    return lacks;
}

/* ---- initialising --------------------------------------------------------------------------- */

/* Codes of cuInit on a machine without GPUs, or with only the toolkit's stub of a driver. */
static int is_without_devices(cu_result cu) {
    return cu == SYMM_CUDA_ERROR_NO_DEVICE || cu == SYMM_CUDA_ERROR_STUB_LIBRARY;
}

/* The result for o->table. `lacks`: a required symbol that it does not have. */
static int initialise(outcome *o, const char *lacks) {
    const symm_cuda_table *t = &o->table;
    int version = 0, count = 0, cu;
    const char *name = NULL;
    o->broken = 1;
    if (!t->cuDriverGetVersion || !t->cuInit || !t->cuGetErrorName || !t->cuDeviceGetCount)
        return missing(o, "the driver lacks %s", lacks);
    cu = t->cuDriverGetVersion(&version);
    if (cu) return missing(o, "cuDriverGetVersion: error %d", cu);
    /* Before the missing symbols: an old driver lacks many, and its age is the reason. */
    if (version < SYMM_CUDA_OLDEST)
        return missing(o, "driver %d.%d is too old: %d.%d is needed", version / 1000,
                       version % 1000 / 10, SYMM_CUDA_OLDEST / 1000, SYMM_CUDA_OLDEST % 1000 / 10);
    if (lacks)
        return missing(o, "driver %d.%d lacks %s", version / 1000, version % 1000 / 10, lacks);
    cu = t->cuInit(0);
    o->broken = !is_without_devices(cu);
    if (cu && (t->cuGetErrorName(cu, &name) != 0 || !name)) name = "error";
    if (cu) return missing(o, "cuInit: %s (%d)", name, cu);
    cu = t->cuDeviceGetCount(&count);
    if (cu) return missing(o, "cuDeviceGetCount: error %d", cu);
    o->broken = 0;
    if (count <= 0) return missing(o, "0 devices");
    o->version = version;
    return THERE;
}

/* ---- forks ---------------------------------------------------------------------------------- */

/* A forked child of a process that initialised CUDA can never use CUDA. This reports the reason at
 * once. Otherwise some later call would fail with a strange error, or the child would wait for ever
 * if another thread was inside cuInit during the fork. */
static void before_fork(void) {
    pthread_mutex_lock(&load.lock);
}

static void parent_after_fork(void) {
    pthread_mutex_unlock(&load.lock);
}

static void child_after_fork(void) {
    const int there = atomic_load_explicit(&load.state, memory_order_relaxed) == THERE;
    if (!load.injected && (there || load.starting)) {
        strcpy(load.why, there ? "this process was forked from one that uses CUDA"
                               : "this process was forked while another thread was starting CUDA");
        load.broken = 1;
        load.version = 0;
        load.starting = 0;
        atomic_store_explicit(&load.state, MISSING, memory_order_relaxed); /* the only thread */
    }
    pthread_mutex_unlock(&load.lock);
}

/* ---- loading -------------------------------------------------------------------------------- */

static void watch_forks(void) {
    pthread_atfork(before_fork, parent_after_fork, child_after_fork);
}

static void count_starting(int n) {
    pthread_mutex_lock(&load.lock);
    load.starting += n;
    pthread_mutex_unlock(&load.lock);
}

static int open_driver(outcome *o) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    void *lib = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!lib) {
        const char *text = dlerror();
        return missing(o, "no libcuda.so.1: %s", text ? text : "dlopen says nothing");
    }
    pthread_once(&once, watch_forks);
    const char *lacks = fill_table(&o->table, dlsym, lib);
    count_starting(1);
    int state = initialise(o, lacks);
    count_starting(-1);
    /* A driver that was never initialised has no threads and no state, so it can be closed. Others
     * stay. */
    if (state == MISSING && lacks) dlclose(lib);
    return state;
}

/* Under load.lock. */
static void decide(int state, const outcome *o) {
    if (state == THERE) symm_cu = o->table;
    load.version = state == THERE ? o->version : 0;
    load.broken = o->broken;
    memcpy(load.why, o->why, sizeof load.why);
    atomic_store_explicit(&load.state, state, memory_order_release);
}

/* Returns the state: what this thread found, or what another thread stored before. */
static int look(void) {
    outcome o = {.broken = 0};
    if (looking) return MISSING; /* nothing is known yet */
    looking = 1;
    const int found = open_driver(&o);
    looking = 0;
    pthread_mutex_lock(&load.lock);
    int state = atomic_load_explicit(&load.state, memory_order_relaxed);
    const int first = state == UNKNOWN;
    if (first) decide(state = found, &o);
    pthread_mutex_unlock(&load.lock);
    if (first && state == THERE)
        SYMM_INFO("CUDA driver %d.%d", o.version / 1000, o.version % 1000 / 10);
    else if (first)
        SYMM_INFO("no CUDA: %s", o.why);
    return state;
}

int symm_cuda_there(void) {
    int state = atomic_load_explicit(&load.state, memory_order_acquire);
    if (__builtin_expect(state == UNKNOWN, 0)) state = look();
    return state == THERE;
}

symmResult_t symm_cuda_load(void) {
    char text[SYMM_ERR_TEXT];
    if (symm_cuda_there()) return symmSuccess;
    const char *why = symm_cuda_why();
    snprintf(text, sizeof text, "no CUDA: %s", *why ? why : "this thread is starting it");
    symm_status_adopt(text); /* it is in the log already */
    return symmNotSupported;
}

const char *symm_cuda_why(void) {
    return atomic_load_explicit(&load.state, memory_order_acquire) == MISSING ? load.why : "";
}

int symm_cuda_broken(void) {
    return atomic_load_explicit(&load.state, memory_order_acquire) == MISSING && load.broken;
}

int symm_cuda_version(void) {
    return symm_cuda_there() ? load.version : 0;
}

/* ---- codes ---------------------------------------------------------------------------------- */

const char *symm_cuda_code_name(cu_result cu) {
    const char *name = NULL;
    if (atomic_load_explicit(&load.state, memory_order_acquire) != THERE) return NULL;
    return symm_cu.cuGetErrorName(cu, &name) == 0 ? name : NULL;
}

/* What the library has made on a device ends with the context, and is not made again. */
static const char *whose_doing(cu_result cu) {
    return cu == SYMM_CUDA_ERROR_CONTEXT_IS_DESTROYED
               ? ": the program has ended the context (cudaDeviceReset, cuCtxDestroy); a process "
                 "that has used this library on a GPU cannot do so and go on"
               : "";
}

symmResult_t symm_cuda_error(cu_result cu, const char *fmt, ...) {
    char what[256];
    va_list args;
    if (cu == SYMM_CUDA_SUCCESS) return symmSuccess;
    va_start(args, fmt);
    vsnprintf(what, sizeof what, fmt, args);
    va_end(args);
    const char *name = symm_cuda_code_name(cu), *why = symm_cuda_why();
    symmResult_t code = cu == SYMM_CUDA_ERROR_OUT_OF_MEMORY   ? symmOutOfMemory
                        : cu == SYMM_CUDA_ERROR_NOT_SUPPORTED ? symmNotSupported
                                                              : symmUnhandledCudaError;
    if (*why) /* there is no driver that could fail */
        return SYMM_ERR(symmNotSupported, "CUDA: %s: no CUDA: %s", what, why);
    return SYMM_ERR(code, "CUDA: %s: %s (%d)%s", what, name ? name : "error", cu, whose_doing(cu));
}

cu_result symm_cuda_capture_info(cu_stream stream, int *status, uint64_t *id, cu_graph *graph) {
    if (symm_cu.cuStreamGetCaptureInfo_v3)
        return symm_cu.cuStreamGetCaptureInfo_v3(stream, status, id, graph, NULL, NULL, NULL);
    return symm_cu.cuStreamGetCaptureInfo_v2(stream, status, id, graph, NULL, NULL);
}

int symm_cuda_sees_graphs(void) {
    return symm_cu.cuStreamGetCaptureInfo_v3 && symm_cu.cuGraphNodeGetDependencies_v2 &&
           symm_cu.cuStreamUpdateCaptureDependencies_v2;
}

cu_result symm_cuda_capture_deps(cu_stream stream, cu_graph *graph, const cu_graph_node **deps,
                                 size_t *count) {
    const void *edges = NULL;
    int status = SYMM_CUDA_CAPTURE_NONE;
    *count = 0;
    if (!symm_cuda_sees_graphs()) return SYMM_CUDA_ERROR_NOT_SUPPORTED;
    cu_result cu =
        symm_cu.cuStreamGetCaptureInfo_v3(stream, &status, NULL, graph, deps, &edges, count);
    if (cu) return cu;
    return status == SYMM_CUDA_CAPTURE_ACTIVE ? SYMM_CUDA_SUCCESS
                                              : SYMM_CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
}

cu_result symm_cuda_capture_set_deps(cu_stream stream, cu_graph_node *deps, size_t count) {
    return symm_cu.cuStreamUpdateCaptureDependencies_v2(stream, deps, NULL, count,
                                                        SYMM_CUDA_CAPTURE_SET_DEPENDENCIES);
}

/* Edges are requested only because the driver refuses a call that would leave them out. */
cu_result symm_cuda_node_dependencies(cu_graph_node node, cu_graph_node *deps, size_t *count) {
    cu_graph_edge few[16], *edges = few;
    if (!symm_cuda_sees_graphs()) return SYMM_CUDA_ERROR_NOT_SUPPORTED;
    if (!deps) return symm_cu.cuGraphNodeGetDependencies_v2(node, NULL, NULL, count);
    if (*count > sizeof few / sizeof *few) edges = malloc(*count * sizeof *edges);
    if (!edges) return SYMM_CUDA_ERROR_OUT_OF_MEMORY;
    cu_result cu = symm_cu.cuGraphNodeGetDependencies_v2(node, deps, edges, count);
    if (edges != few) free(edges);
    return cu;
}

#ifdef SYMM_TESTING
/* Under load.lock. */
static void forget(void) {
    atomic_store_explicit(&load.state, UNKNOWN, memory_order_relaxed);
    load.injected = 0;
    load.version = 0;
    load.broken = 0;
    load.why[0] = 0;
    memset(&symm_cu, 0, sizeof symm_cu);
}

static const char *first_lack(const symm_cuda_table *t) {
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        void *entry;
        memcpy(&entry, (const char *)t + rows[i].at, sizeof entry);
        if (!entry && rows[i].required) return rows[i].symbol;
    }
    return NULL;
}

void symm_cuda_inject(const symm_cuda_table *t) {
    outcome o = {.broken = 0};
    int state = UNKNOWN;
    if (t) {
        o.table = *t;
        state = initialise(&o, first_lack(t));
    }
    pthread_mutex_lock(&load.lock);
    forget();
    load.injected = t != NULL;
    if (t) decide(state, &o);
    pthread_mutex_unlock(&load.lock);
}

static void *found_by(void *find, const char *symbol) {
    void *(*by)(const char *);
    memcpy(&by, &find, sizeof by);
    return by(symbol);
}

symmResult_t symm_cuda_load_by(void *(*find)(const char *symbol)) {
    outcome o = {.broken = 0};
    void *from;
    memcpy(&from, &find, sizeof from);
    const char *lacks = fill_table(&o.table, found_by, from);
    const int state = initialise(&o, lacks);
    pthread_mutex_lock(&load.lock);
    forget();
    load.injected = 1;
    decide(state, &o);
    pthread_mutex_unlock(&load.lock);
    return symm_cuda_load();
}
#endif
