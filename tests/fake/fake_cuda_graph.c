/* fake_cuda_graph.c - what is put on the fake driver's streams: fills, copies, kernels, host
 * functions, graphs; and the libraries and user objects that belong to them. See fake_cuda.h,
 * fake_cuda_work.h. */
#include <stdlib.h>
#include <string.h>

#include "fake_cuda_work.h"
#include "t.h"

enum { KERNELS = 1024, SHARED_LIMIT = 227 << 10 };

struct cu_kernel_st {
    char name[64];
    fake_cuda_fn fn;
    int nargs;
    size_t sizes[FAKE_ARGS];
};

struct cu_library_st {
    cu_library next;
};

struct cu_graph_exec_st {
    cu_graph_exec next;
    struct op *first, *last;
    struct held *held;
    int refs;
};

struct cu_user_object_st {
    cu_user_object next;
    cu_host_fn destroy;
    void *ptr;
    unsigned refs;
};

static struct cu_kernel_st kernels[KERNELS];
static int kernel_count;
static cu_library libraries;
static cu_graph graphs;
static cu_graph_exec execs;
static cu_user_object objects;

int fake_libraries(void) {
    int n = 0;
    for (cu_library l = libraries; l; l = l->next) n++;
    return n;
}

int fake_graph_live(void) {
    int n = fake_libraries();
    for (cu_graph g = graphs; g; g = g->next) n++;
    for (cu_graph_exec e = execs; e; e = e->next) n++;
    for (cu_user_object o = objects; o; o = o->next) n++;
    return n;
}

void fake_graph_reset(void) {
    libraries = NULL;
    graphs = NULL;
    execs = NULL;
    objects = NULL;
    kernel_count = 0;
}

/* ---- fills and copies ----------------------------------------------------------------------- */

static void *pointer(cu_deviceptr va) {
    return (void *)(uintptr_t)va;
}

/* The device of the work; a stream of another context than the current one is no handle here. */
static int device_for(cu_stream stream, int *device) {
    if (!fake_current()) return SYMM_CUDA_ERROR_INVALID_CONTEXT;
    fake_lock();
    cu_stream s = fake_stream(stream);
    int ok = s && s->context == fake_current();
    fake_unlock();
    *device = fake_current()->device;
    return ok ? SYMM_CUDA_SUCCESS : SYMM_CUDA_ERROR_INVALID_HANDLE;
}

static int set(int kind, cu_deviceptr va, unsigned value, size_t count, cu_stream stream) {
    const size_t width = kind == OP_SET32 ? 4 : 1;
    int device, cu = device_for(stream, &device);
    if (cu) return cu;
    if (va % width || count == 0 || !fake_device_memory(device, va, count * width))
        return SYMM_CUDA_ERROR_INVALID_VALUE;
    struct op *op = fake_op(kind);
    op->to = pointer(va);
    op->value = value;
    op->count = count;
    return fake_enqueue(stream, op);
}

static int copy(cu_deviceptr to, cu_deviceptr from, size_t bytes, cu_stream stream) {
    int device, cu = device_for(stream, &device);
    if (cu) return cu;
    if (bytes == 0) return SYMM_CUDA_SUCCESS;
    if (!fake_copy_side(device, to, bytes) || !fake_copy_side(device, from, bytes))
        return SYMM_CUDA_ERROR_INVALID_VALUE;
    struct op *op = fake_op(OP_COPY);
    op->to = pointer(to);
    op->from = pointer(from);
    op->count = bytes;
    return fake_enqueue(stream, op);
}

/* Put on the NULL stream and waited for. */
static int finish(int cu) {
    if (cu) return cu;
    fake_lock();
    cu_stream s = fake_stream(NULL);
    fake_unlock();
    fake_drain(s);
    return SYMM_CUDA_SUCCESS;
}

#define SYNC(name, call)        \
    do {                        \
        ENTER(name);            \
        int cu = fake_unsafe(); \
        if (cu) return cu;      \
        return finish(call);    \
    } while (0)

cu_result fk_cuMemsetD8(cu_deviceptr va, unsigned char value, size_t count) {
    SYNC(cuMemsetD8, set(OP_SET8, va, value, count, NULL));
}

cu_result fk_cuMemsetD32(cu_deviceptr va, unsigned value, size_t count) {
    SYNC(cuMemsetD32, set(OP_SET32, va, value, count, NULL));
}

cu_result fk_cuMemsetD8Async(cu_deviceptr va, unsigned char value, size_t count, cu_stream stream) {
    ENTER(cuMemsetD8Async);
    return set(OP_SET8, va, value, count, stream);
}

cu_result fk_cuMemsetD32Async(cu_deviceptr va, unsigned value, size_t count, cu_stream stream) {
    ENTER(cuMemsetD32Async);
    return set(OP_SET32, va, value, count, stream);
}

cu_result fk_cuMemcpyHtoD(cu_deviceptr to, const void *from, size_t bytes) {
    SYNC(cuMemcpyHtoD, copy(to, (uintptr_t)from, bytes, NULL));
}

cu_result fk_cuMemcpyDtoH(void *to, cu_deviceptr from, size_t bytes) {
    SYNC(cuMemcpyDtoH, copy((uintptr_t)to, from, bytes, NULL));
}

cu_result fk_cuMemcpyDtoD(cu_deviceptr to, cu_deviceptr from, size_t bytes) {
    SYNC(cuMemcpyDtoD, copy(to, from, bytes, NULL));
}

cu_result fk_cuMemcpyAsync(cu_deviceptr to, cu_deviceptr from, size_t bytes, cu_stream stream) {
    ENTER(cuMemcpyAsync);
    return copy(to, from, bytes, stream);
}

cu_result fk_cuMemcpyHtoDAsync(cu_deviceptr to, const void *from, size_t bytes, cu_stream stream) {
    ENTER(cuMemcpyHtoDAsync);
    return copy(to, (uintptr_t)from, bytes, stream);
}

cu_result fk_cuMemcpyDtoHAsync(void *to, cu_deviceptr from, size_t bytes, cu_stream stream) {
    ENTER(cuMemcpyDtoHAsync);
    return copy((uintptr_t)to, from, bytes, stream);
}

cu_result fk_cuMemcpyDtoDAsync(cu_deviceptr to, cu_deviceptr from, size_t bytes, cu_stream stream) {
    ENTER(cuMemcpyDtoDAsync);
    return copy(to, from, bytes, stream);
}

/* ---- kernels -------------------------------------------------------------------------------- */

void fake_cuda_kernel(const char *name, fake_cuda_fn fn, int nargs, const size_t *sizes) {
    T_CHECK(kernel_count < KERNELS && nargs <= FAKE_ARGS);
    fake_lock();
    struct cu_kernel_st *k = &kernels[kernel_count++];
    *k = (struct cu_kernel_st){.fn = fn, .nargs = nargs};
    T_CHECK(strlen(name) < sizeof k->name);
    strcpy(k->name, name);
    for (int i = 0; i < nargs; i++) k->sizes[i] = sizes[i];
    fake_unlock();
}

cu_result fk_cuLibraryLoadData(cu_library *library, const void *image, int *jit_options,
                               void **jit_values, unsigned jit_count, int *options, void **values,
                               unsigned count) {
    ENTER(cuLibraryLoadData);
    (void)jit_options, (void)jit_values, (void)options, (void)values;
    if (!library || !image || jit_count || count) return SYMM_CUDA_ERROR_INVALID_VALUE;
    cu_library l = calloc(1, sizeof *l);
    T_CHECK(l != NULL);
    fake_lock();
    l->next = libraries;
    *library = libraries = l;
    fake_unlock();
    return SYMM_CUDA_SUCCESS;
}

cu_result fk_cuLibraryUnload(cu_library library) {
    cu_library *at = &libraries;
    ENTER(cuLibraryUnload);
    fake_lock();
    while (*at && *at != library) at = &(*at)->next;
    int found = *at != NULL;
    if (found) *at = library->next;
    fake_unlock();
    if (found) free(library);
    return found ? SYMM_CUDA_SUCCESS : SYMM_CUDA_ERROR_INVALID_HANDLE;
}

cu_result fk_cuLibraryGetKernel(cu_kernel *kernel, cu_library library, const char *name) {
    ENTER(cuLibraryGetKernel);
    if (!kernel || !name) return SYMM_CUDA_ERROR_INVALID_VALUE;
    fake_lock();
    cu_library l = libraries;
    while (l && l != library) l = l->next;
    fake_unlock();
    if (!l) return SYMM_CUDA_ERROR_INVALID_HANDLE;
    for (int i = 0; i < kernel_count; i++) {
        if (strcmp(kernels[i].name, name) != 0) continue;
        *kernel = &kernels[i];
        return SYMM_CUDA_SUCCESS;
    }
    return SYMM_CUDA_ERROR_NOT_FOUND;
}

static cu_kernel known(const void *handle) {
    for (int i = 0; i < kernel_count; i++)
        if (handle == &kernels[i]) return &kernels[i];
    return NULL;
}

cu_result fk_cuKernelGetFunction(cu_function *function, cu_kernel kernel) {
    ENTER(cuKernelGetFunction);
    if (!fake_current()) return SYMM_CUDA_ERROR_INVALID_CONTEXT;
    if (!known(kernel)) return SYMM_CUDA_ERROR_INVALID_HANDLE;
    *function = (cu_function)kernel;
    return SYMM_CUDA_SUCCESS;
}

static int attribute(const void *handle, int which, int *value) {
    if (!known(handle)) return SYMM_CUDA_ERROR_INVALID_HANDLE;
    switch (which) {
    case SYMM_CUDA_FUNC_MAX_THREADS_PER_BLOCK: *value = 1024; break;
    case SYMM_CUDA_FUNC_NUM_REGS: *value = 32; break;
    case SYMM_CUDA_FUNC_PTX_VERSION:
    case SYMM_CUDA_FUNC_BINARY_VERSION: *value = fake.cc_major * 10; break;
    case SYMM_CUDA_FUNC_SHARED_BYTES:
    case SYMM_CUDA_FUNC_LOCAL_BYTES:
    case SYMM_CUDA_FUNC_MAX_DYNAMIC_SHARED_BYTES: *value = 0; break;
    default: return SYMM_CUDA_ERROR_INVALID_VALUE;
    }
    return SYMM_CUDA_SUCCESS;
}

cu_result fk_cuKernelGetAttribute(int *value, int which, cu_kernel kernel, cu_device device) {
    ENTER(cuKernelGetAttribute);
    if (!fake_device_ok(device)) return SYMM_CUDA_ERROR_INVALID_DEVICE;
    return attribute(kernel, which, value);
}

cu_result fk_cuFuncGetAttribute(int *value, int which, cu_function function) {
    ENTER(cuFuncGetAttribute);
    return attribute(function, which, value);
}

cu_result fk_cuKernelSetAttribute(int which, int value, cu_kernel kernel, cu_device device) {
    ENTER(cuKernelSetAttribute);
    if (!fake_device_ok(device)) return SYMM_CUDA_ERROR_INVALID_DEVICE;
    if (!known(kernel)) return SYMM_CUDA_ERROR_INVALID_HANDLE;
    if (which != SYMM_CUDA_FUNC_MAX_DYNAMIC_SHARED_BYTES || value < 0 || value > SHARED_LIMIT)
        return SYMM_CUDA_ERROR_INVALID_VALUE;
    return SYMM_CUDA_SUCCESS;
}

cu_result fk_cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, cu_function function,
                                                         int threads, size_t shared_bytes) {
    ENTER(cuOccupancyMaxActiveBlocksPerMultiprocessor);
    if (!known(function)) return SYMM_CUDA_ERROR_INVALID_HANDLE;
    if (threads <= 0 || threads > 1024) return SYMM_CUDA_ERROR_INVALID_VALUE;
    *blocks = shared_bytes > SHARED_LIMIT ? 0 : 2048 / threads;
    return SYMM_CUDA_SUCCESS;
}

static int launch_ok(const cu_launch_config *c) {
    if (!c || !c->grid_x || !c->grid_y || !c->grid_z || c->grid_y > 65535 || c->grid_z > 65535)
        return 0;
    uint64_t threads = (uint64_t)c->block_x * c->block_y * c->block_z;
    return threads > 0 && threads <= 1024 && c->shared_bytes <= SHARED_LIMIT &&
           c->num_attrs <= FAKE_ATTRS && (c->num_attrs == 0 || c->attrs);
}

/* A kernel that is no function needs no context, except to say which NULL stream. */
cu_result fk_cuLaunchKernelEx(const cu_launch_config *config, cu_function function, void **args,
                              void **extra) {
    ENTER(cuLaunchKernelEx);
    cu_kernel k = known(function);
    if (!k) return SYMM_CUDA_ERROR_INVALID_HANDLE;
    if (!launch_ok(config) || extra || (k->nargs && !args)) return SYMM_CUDA_ERROR_INVALID_VALUE;
    struct op *op = fake_op(OP_KERNEL);
    uint32_t at = 0;
    op->kernel = k->fn;
    op->name = k->name;
    op->config = *config;
    op->device = fake_current() ? fake_current()->device : 0;
    op->nargs = k->nargs;
    if (config->num_attrs)
        memcpy(op->attrs, config->attrs, config->num_attrs * sizeof *config->attrs);
    for (int i = 0; i < k->nargs; i++) {
        T_CHECK(at + k->sizes[i] <= FAKE_DATA);
        op->at[i] = at;
        memcpy((char *)op->data + at, args[i], k->sizes[i]);
        at += (uint32_t)(k->sizes[i] + 15) & ~15u;
    }
    return fake_enqueue(config->stream, op);
}

cu_result fk_cuLaunchHostFunc(cu_stream stream, cu_host_fn fn, void *arg) {
    ENTER(cuLaunchHostFunc);
    if (!fn) return SYMM_CUDA_ERROR_INVALID_VALUE;
    struct op *op = fake_op(OP_HOST);
    op->host = fn;
    op->arg = arg;
    return fake_enqueue(stream, op);
}

/* ---- user objects --------------------------------------------------------------------------- */

/* Under the lock. Returns the object if nobody holds it any more: its destructor is the caller's to
 * run. */
static cu_user_object object_unref(cu_user_object object, unsigned count) {
    cu_user_object *at = &objects;
    T_CHECK(object->refs >= count);
    if (object->refs -= count) return NULL;
    while (*at != object) at = &(*at)->next;
    *at = object->next;
    return object;
}

static void destroyed(cu_user_object object) {
    if (!object) return;
    object->destroy(object->ptr);
    free(object);
}

static void drop_held(struct held *held) {
    while (held) {
        struct held *next = held->next;
        fake_lock();
        cu_user_object last = object_unref(held->object, held->count);
        fake_unlock();
        destroyed(last);
        free(held);
        held = next;
    }
}

static void hold(struct held **list, cu_user_object object, unsigned count) {
    struct held *h = calloc(1, sizeof *h);
    T_CHECK(h != NULL);
    *h = (struct held){*list, object, count};
    *list = h;
}

cu_result fk_cuUserObjectCreate(cu_user_object *object, void *ptr, cu_host_fn destroy,
                                unsigned refs, unsigned flags) {
    ENTER(cuUserObjectCreate);
    if (!object || !destroy || refs == 0 || flags != SYMM_CUDA_USER_OBJECT_NO_DESTRUCTOR_SYNC)
        return SYMM_CUDA_ERROR_INVALID_VALUE;
    cu_user_object o = calloc(1, sizeof *o);
    T_CHECK(o != NULL);
    fake_lock();
    *o = (struct cu_user_object_st){objects, destroy, ptr, refs};
    *object = objects = o;
    fake_unlock();
    return SYMM_CUDA_SUCCESS;
}

cu_result fk_cuUserObjectRelease(cu_user_object object, unsigned count) {
    ENTER(cuUserObjectRelease);
    if (!object || count == 0) return SYMM_CUDA_ERROR_INVALID_VALUE;
    fake_lock();
    cu_user_object last = object_unref(object, count);
    fake_unlock();
    destroyed(last);
    return SYMM_CUDA_SUCCESS;
}

cu_result fk_cuGraphRetainUserObject(cu_graph graph, cu_user_object object, unsigned count,
                                     unsigned flags) {
    ENTER(cuGraphRetainUserObject);
    if (!graph || !object || count == 0 || flags > SYMM_CUDA_GRAPH_USER_OBJECT_MOVE)
        return SYMM_CUDA_ERROR_INVALID_VALUE;
    fake_lock();
    if (!(flags & SYMM_CUDA_GRAPH_USER_OBJECT_MOVE)) object->refs += count;
    hold(&graph->held, object, count);
    fake_unlock();
    return SYMM_CUDA_SUCCESS;
}

cu_result fk_cuGraphReleaseUserObject(cu_graph graph, cu_user_object object, unsigned count) {
    ENTER(cuGraphReleaseUserObject);
    if (!graph || !object || count == 0) return SYMM_CUDA_ERROR_INVALID_VALUE;
    fake_lock();
    struct held **at = &graph->held;
    while (*at && (*at)->object != object) at = &(*at)->next;
    struct held *h = *at;
    if (!h || h->count < count) {
        fake_unlock();
        return SYMM_CUDA_ERROR_INVALID_VALUE;
    }
    h->count -= count;
    if (!h->count) *at = h->next;
    cu_user_object last = object_unref(object, count);
    fake_unlock();
    if (!h->count) free(h);
    destroyed(last);
    return SYMM_CUDA_SUCCESS;
}

/* ---- graphs --------------------------------------------------------------------------------- */

cu_graph fake_graph_new(void) {
    cu_graph g = calloc(1, sizeof *g);
    T_CHECK(g != NULL);
    g->next = graphs;
    return graphs = g;
}

static void free_ops(struct op *op) {
    while (op) {
        struct op *next = op->next;
        free(op);
        op = next;
    }
}

void fake_graph_drop(cu_graph graph) {
    cu_graph *at = &graphs;
    fake_lock();
    while (*at != graph) at = &(*at)->next;
    *at = graph->next;
    fake_unlock();
    free_ops(graph->first);
    drop_held(graph->held);
    free(graph);
}

/* Nodes of the graph: ops of its list. Under the lock. */
static struct op *node_of(cu_graph graph, cu_graph_node node) {
    for (struct op *op = graph->first; op; op = op->next)
        if ((cu_graph_node)(void *)op == node) return op;
    return NULL;
}

cu_result fk_cuGraphAddEmptyNode(cu_graph_node *node, cu_graph graph, const cu_graph_node *deps,
                                 size_t count) {
    struct deps before = {{NULL}, 0};
    ENTER(cuGraphAddEmptyNode);
    if (!node || !graph || (count && !deps) || count > FAKE_DEPS)
        return SYMM_CUDA_ERROR_INVALID_VALUE;
    fake_lock();
    int ok = 1;
    for (size_t i = 0; i < count; i++) {
        ok = ok && node_of(graph, deps[i]) != NULL;
        before.at[before.n++] = deps[i];
    }
    if (ok) {
        struct op *op = fake_op(OP_EMPTY);
        op->deps = before;
        fake_op_append(&graph->first, &graph->last, op);
        *node = (cu_graph_node)(void *)op;
    }
    fake_unlock();
    return ok ? SYMM_CUDA_SUCCESS : SYMM_CUDA_ERROR_INVALID_VALUE;
}

/* Programmatic launches leave edges that say so, which a caller must ask for. */
cu_result fk_cuGraphNodeGetDependencies_v2(cu_graph_node node, cu_graph_node *deps,
                                           cu_graph_edge *edges, size_t *count) {
    ENTER(cuGraphNodeGetDependencies_v2);
    if (!node || !count) return SYMM_CUDA_ERROR_INVALID_VALUE;
    fake_lock();
    struct op *op = NULL;
    for (cu_graph g = graphs; g && !op; g = g->next) op = node_of(g, node);
    int cu = op ? SYMM_CUDA_SUCCESS : SYMM_CUDA_ERROR_INVALID_VALUE;
    if (op && deps && op->config.num_attrs && op->deps.n && !edges)
        cu = SYMM_CUDA_ERROR_LOSSY_QUERY;
    for (int i = 0; !cu && deps && i < op->deps.n && (size_t)i < *count; i++) {
        deps[i] = op->deps.at[i];
        if (edges) edges[i] = (cu_graph_edge){0};
    }
    if (!cu) *count = (size_t)op->deps.n;
    fake_unlock();
    return cu;
}

cu_result fk_cuGraphDestroy(cu_graph graph) {
    ENTER(cuGraphDestroy);
    if (!graph || graph->status != SYMM_CUDA_CAPTURE_NONE) return SYMM_CUDA_ERROR_INVALID_VALUE;
    fake_graph_drop(graph);
    return SYMM_CUDA_SUCCESS;
}

cu_result fk_cuGraphInstantiate(cu_graph_exec *exec, cu_graph graph, unsigned long long flags) {
    ENTER(cuGraphInstantiate);
    if (!exec || !graph || flags || graph->status != SYMM_CUDA_CAPTURE_NONE)
        return SYMM_CUDA_ERROR_INVALID_VALUE;
    cu_graph_exec e = calloc(1, sizeof *e);
    T_CHECK(e != NULL);
    e->refs = 1;
    for (struct op *op = graph->first; op; op = op->next)
        fake_op_append(&e->first, &e->last, fake_op_copy(op));
    fake_lock();
    for (struct held *h = graph->held; h; h = h->next) {
        h->object->refs += h->count;
        hold(&e->held, h->object, h->count);
    }
    e->next = execs;
    *exec = execs = e;
    fake_unlock();
    return SYMM_CUDA_SUCCESS;
}

void fake_exec_unref(cu_graph_exec exec) {
    cu_graph_exec *at = &execs;
    fake_lock();
    int last = --exec->refs == 0;
    if (last) {
        while (*at != exec) at = &(*at)->next;
        *at = exec->next;
    }
    fake_unlock();
    if (!last) return;
    free_ops(exec->first);
    drop_held(exec->held);
    free(exec);
}

/* What of it still runs keeps it. */
cu_result fk_cuGraphExecDestroy(cu_graph_exec exec) {
    ENTER(cuGraphExecDestroy);
    if (!exec) return SYMM_CUDA_ERROR_INVALID_VALUE;
    fake_exec_unref(exec);
    return SYMM_CUDA_SUCCESS;
}

cu_result fk_cuGraphUpload(cu_graph_exec exec, cu_stream stream) {
    ENTER(cuGraphUpload);
    (void)stream;
    return exec ? SYMM_CUDA_SUCCESS : SYMM_CUDA_ERROR_INVALID_VALUE;
}

cu_result fk_cuGraphLaunch(cu_graph_exec exec, cu_stream stream) {
    int cu = SYMM_CUDA_SUCCESS;
    ENTER(cuGraphLaunch);
    if (!exec) return SYMM_CUDA_ERROR_INVALID_VALUE;
    for (struct op *op = exec->first; op && !cu; op = op->next) {
        struct op *copy = fake_op_copy(op);
        copy->config.stream = stream;
        copy->exec = exec;
        fake_lock();
        exec->refs++;
        fake_unlock();
        cu = fake_enqueue(stream, copy);
        if (cu) fake_exec_unref(exec);
    }
    return cu;
}
