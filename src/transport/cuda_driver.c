/* cuda_driver.c - opens the CUDA driver and fills the table of its entry points.
 *
 * Any thread. load.lock makes the first caller do the work; load.state is what later callers look
 * at. It is stored (release) after the table and the reason were written and read (acquire) before
 * either is. dlopen, cuInit and cuDeviceGetCount run under the lock: they call nothing of the
 * library. A driver that was initialised is never closed: other threads may be inside it at any
 * time. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../host/log.h"
#include "cuda_driver.h"

enum { UNKNOWN, THERE, MISSING };

symm_cuda_table symm_cu;

static struct {
    pthread_mutex_t lock;
    atomic_int state;
    int version;
    int watches_forks;
    int injected; /* tests: the table is theirs, and stands in forked children as well */
    int broken; /* MISSING, though there is a driver, for another reason than that it has no devices */
    char why[256];
} load = {.lock = PTHREAD_MUTEX_INITIALIZER};

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

static int missing(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static int missing(const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    vsnprintf(load.why, sizeof load.why, fmt, args);
    va_end(args);
    return MISSING;
}

/* Returns the first required symbol that was not found, or NULL. dlsym gives data pointers, which
 * POSIX lets stand for functions; memcpy says so without a cast that the compiler must not like. */
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

/* Codes of cuInit on a machine that has no GPUs, or only the toolkit's stub of a driver. */
static int is_without_devices(cu_result cu) {
    return cu == SYMM_CUDA_ERROR_NO_DEVICE || cu == SYMM_CUDA_ERROR_STUB_LIBRARY;
}

/* Under load.lock. What a table gives; `lacks`: the symbol that it should have and has not. */
static int initialise(const symm_cuda_table *t, const char *lacks) {
    int version = 0, count = 0, cu;
    const char *name = NULL;
    load.broken = 1;
    if (!t->cuDriverGetVersion || !t->cuInit || !t->cuGetErrorName || !t->cuDeviceGetCount)
        return missing("the driver lacks %s", lacks);
    cu = t->cuDriverGetVersion(&version);
    if (cu) return missing("cuDriverGetVersion: error %d", cu);
    /* Before what is lacking: an old driver lacks much, and its age is the reason. */
    if (version < SYMM_CUDA_OLDEST)
        return missing("driver %d.%d is too old: %d.%d is needed", version / 1000,
                       version % 1000 / 10, SYMM_CUDA_OLDEST / 1000, SYMM_CUDA_OLDEST % 1000 / 10);
    if (lacks) return missing("driver %d.%d lacks %s", version / 1000, version % 1000 / 10, lacks);
    cu = t->cuInit(0);
    load.broken = !is_without_devices(cu);
    if (cu && (t->cuGetErrorName(cu, &name) != 0 || !name)) name = "error";
    if (cu) return missing("cuInit: %s (%d)", name, cu);
    cu = t->cuDeviceGetCount(&count);
    if (cu) return missing("cuDeviceGetCount: error %d", cu);
    load.broken = 0;
    if (count <= 0) return missing("0 devices");
    load.version = version;
    symm_cu = *t;
    return THERE;
}

/* ---- forks ---------------------------------------------------------------------------------- */

/* A forked child of a process that initialised CUDA can never use it; said here it is a reason,
 * found out later it would be a strange error of some call. */
static void before_fork(void) {
    pthread_mutex_lock(&load.lock);
}

static void parent_after_fork(void) {
    pthread_mutex_unlock(&load.lock);
}

static void child_after_fork(void) {
    if (atomic_load_explicit(&load.state, memory_order_relaxed) == THERE && !load.injected) {
        strcpy(load.why, "this process was forked from one that uses CUDA");
        load.broken = 1;
        atomic_store_explicit(&load.state, MISSING, memory_order_relaxed); /* one thread is left */
    }
    pthread_mutex_unlock(&load.lock);
}

/* ---- loading -------------------------------------------------------------------------------- */

/* Under load.lock. */
static int open_driver(void) {
    symm_cuda_table t;
    void *lib = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!lib) {
        const char *text = dlerror();
        return missing("no libcuda.so.1: %s", text ? text : "dlopen says nothing");
    }
    if (!load.watches_forks)
        load.watches_forks = pthread_atfork(before_fork, parent_after_fork, child_after_fork) == 0;
    const char *lacks = fill_table(&t, dlsym, lib);
    int state = initialise(&t, lacks);
    /* One that was never initialised has no threads or state; any other stays. */
    if (state == MISSING && lacks) dlclose(lib);
    return state;
}

static int decide(int state) {
    if (state == THERE) {
        load.why[0] = 0;
        SYMM_INFO("CUDA driver %d.%d", load.version / 1000, load.version % 1000 / 10);
    } else {
        load.version = 0;
        SYMM_INFO("no CUDA: %s", load.why);
    }
    atomic_store_explicit(&load.state, state, memory_order_release);
    return state;
}

int symm_cuda_there(void) {
    int state = atomic_load_explicit(&load.state, memory_order_acquire);
    if (__builtin_expect(state == UNKNOWN, 0)) {
        pthread_mutex_lock(&load.lock);
        state = atomic_load_explicit(&load.state, memory_order_relaxed);
        if (state == UNKNOWN) state = decide(open_driver());
        pthread_mutex_unlock(&load.lock);
    }
    return state == THERE;
}

symmResult_t symm_cuda_load(void) {
    char text[SYMM_ERR_TEXT];
    if (symm_cuda_there()) return symmSuccess;
    snprintf(text, sizeof text, "no CUDA: %s", load.why);
    symm_status_adopt(text); /* already in the log, once */
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

/* What the library has made on a device goes with the context, and is not made anew. */
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
    if (*why) /* there never was a driver to fail */
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

/* Edges are asked for only because the driver refuses to leave out what they say. */
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
    pthread_mutex_lock(&load.lock);
    forget();
    load.injected = t != NULL;
    if (t) decide(initialise(t, first_lack(t)));
    pthread_mutex_unlock(&load.lock);
}

static void *found_by(void *find, const char *symbol) {
    void *(*by)(const char *);
    memcpy(&by, &find, sizeof by);
    return by(symbol);
}

symmResult_t symm_cuda_load_by(void *(*find)(const char *symbol)) {
    symm_cuda_table t;
    void *from;
    memcpy(&from, &find, sizeof from);
    pthread_mutex_lock(&load.lock);
    forget();
    load.injected = 1;
    decide(initialise(&t, fill_table(&t, found_by, from)));
    pthread_mutex_unlock(&load.lock);
    return symm_cuda_load();
}
#endif
