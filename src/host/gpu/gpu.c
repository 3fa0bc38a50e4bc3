/* gpu.c - a communicator's GPU: kernels, context, and checks of streams and buffers. Threads as in
 * gpu.h. Lock: images_lock, while images are loaded. */
#include "gpu.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/stats.h"
#include "host/comm/call_log.h"
#include "host/comm/comm.h"

/* ---- kernels --------------------------------------------------------------------------------- */

static pthread_mutex_t images_lock = PTHREAD_MUTEX_INITIALIZER;
static cu_library libraries[SYMM_IMAGES]; /* context-independent; kept to the end of the process */

/* The driver returns this when it loads an image, or only when it loads a kernel of the image. */
static symmResult_t no_kernels(int device) {
    symm_cuda_info info;
    SYMM_TRY(symm_cuda_describe(device, &info));
    return SYMM_ERR(symmNotSupported,
                    "GPU %d (%s, compute capability %d.%d): this build has no kernels for it (make "
                    "CUDA_ARCHS=%d%d)",
                    device, info.name, info.cc_major, info.cc_minor, info.cc_major, info.cc_minor);
}

static symmResult_t load_images(int device) {
    cu_result cu = 0;
    int i = 0;
    pthread_mutex_lock(&images_lock);
    for (; i < SYMM_IMAGES && !cu; i++)
        if (!libraries[i])
            cu = symm_cu.cuLibraryLoadData(&libraries[i], symm_kernel_images[i].image, NULL, NULL,
                                           0, NULL, NULL, 0);
    pthread_mutex_unlock(&images_lock);
    if (cu == SYMM_CUDA_ERROR_NO_BINARY_FOR_GPU) return no_kernels(device);
    if (cu) return symm_cuda_error(cu, "loading the kernels of image %d", i - 1);
    return symmSuccess;
}

#ifdef SYMM_TESTING
void symm_gpu_forget(void) {
    for (int i = 0; i < SYMM_IMAGES; i++)
        if (libraries[i]) symm_cu.cuLibraryUnload(libraries[i]);
    memset(libraries, 0, sizeof libraries);
}
#endif

/* Ranks for which a kernel is compiled; 0 any number. */
static int variant(const symm_kernel_row *row, int nranks) {
    if (row->flags & SYMM_K_ONE_IMAGE) return 0;
    if (row->max_ranks == 1 || row->max_ranks == 2) return row->max_ranks;
    return nranks == 2 || nranks == 4 || nranks == 8 ? nranks : 0;
}

static symmResult_t find_named(const symm_comm *c, int image, const char *name, cu_kernel *out) {
    cu_function loaded;
    cu_result cu = symm_cu.cuLibraryGetKernel(out, libraries[image], name);
    /* Makes a driver that loads lazily load it now. */
    if (!cu) cu = symm_cu.cuKernelGetFunction(&loaded, *out);
    if (cu == SYMM_CUDA_ERROR_NO_BINARY_FOR_GPU) return no_kernels(c->gpu->device);
    if (cu) return symm_cuda_error(cu, "loading kernel %s", name);
    return symmSuccess;
}

static symmResult_t find_kernel(symm_comm *c, int k, int type) {
    char name[96];
    const symm_kernel_row *own = &symm_kernels[k],
                          *row = own->copies ? &symm_kernels[own->copies] : own;
    const int image = row->flags & SYMM_K_TYPED ? type : SYMM_IMAGES - 1;
    snprintf(name, sizeof name, "symm_%s%s%s_n%d", row->name, row->flags & SYMM_K_TYPED ? "_" : "",
             symm_kernel_images[image].type, variant(row, c->nranks));
    return find_named(c, image, name, &c->gpu->kernel[k][type]);
}

static int usable(const symm_kernel_row *row, int nranks) {
    return row->flags & SYMM_K_GPU && nranks >= row->min_ranks &&
           (!row->max_ranks || nranks <= row->max_ranks);
}

static symmResult_t find_kernels(symm_comm *c) {
    for (int k = 0; k < SYMM_KERNEL_COUNT; k++) {
        if (!usable(&symm_kernels[k], c->nranks)) continue;
        const int types = symm_kernels[k].flags & SYMM_K_TYPED ? symmNumTypes : 1;
        for (int t = 0; t < types; t++) SYMM_TRY(find_kernel(c, k, t));
    }
    SYMM_TRY(find_named(c, SYMM_IMAGES - 1, "symm_p2p_n0", &c->gpu->messages));
    SYMM_TRY(find_named(c, SYMM_IMAGES - 1, "symm_p2p_list_n0", &c->gpu->message_list));
    if (c->nranks > 1) SYMM_TRY(find_named(c, SYMM_IMAGES - 1, "symm_copies_n0", &c->gpu->copies));
    return find_named(c, SYMM_IMAGES - 1, "symm_onesided_n0", &c->gpu->onesided);
}

symmResult_t symm_gpu_find_joins(symm_comm *c) {
    char name[64];
    for (int t = 0; t < symmNumTypes; t++) {
        snprintf(name, sizeof name, "symm_join_%s_n0", symm_kernel_images[t].type);
        SYMM_TRY(find_named(c, t, name, &c->gpu->join[t]));
    }
    return symmSuccess;
}

static symmResult_t fill(symm_comm *c) {
    struct symm_gpu *g = c->gpu;
    symm_cuda_info info;
    SYMM_TRY(symm_cuda_describe(g->device, &info));
    g->programmatic = info.cc_major >= 9;
    SYMM_TRY(load_images(g->device));
    return find_kernels(c);
}

static symmResult_t find_home(struct symm_gpu *g) {
    SYMM_TRY(symm_cuda_current(&g->device));
    return symm_cuda_error(symm_cu.cuCtxGetCurrent(&g->context), "current context of this thread");
}

symmResult_t symm_gpu_new(struct symm_gpu **out) {
    struct symm_gpu *g = calloc(1, sizeof *g);
    if (!g) return SYMM_ERR(symmOutOfMemory, "no memory for the kernels of a communicator");
    const symmResult_t status = find_home(g);
    if (status)
        free(g);
    else
        *out = g;
    return status;
}

symmResult_t symm_gpu_load(symm_comm *c) {
    symm_cuda_scope scope;
    SYMM_TRY(symm_gpu_push(c, &scope));
    const symmResult_t status = fill(c);
    symm_gpu_pop(c, &scope);
    return status;
}

symmResult_t symm_gpu_enter(const symm_comm *c, symm_cuda_scope *scope) {
    cu_context now = NULL;
    scope->pushed = 0;
    if (!c->gpu) return symmSuccess;
    cu_result cu = symm_cu.cuCtxGetCurrent(&now);
    if (cu) return symm_cuda_error(cu, "current context of this thread");
    return now == c->gpu->context ? symmSuccess : symm_cuda_push_context(c->gpu->context, scope);
}

void symm_gpu_leave(symm_cuda_scope *scope) {
    if (scope->pushed) symm_cuda_pop(scope);
}

symmResult_t symm_gpu_push(const symm_comm *c, symm_cuda_scope *scope) {
    return c->gpu ? symm_cuda_push_context(c->gpu->context, scope) : symmSuccess;
}

void symm_gpu_pop(const symm_comm *c, symm_cuda_scope *scope) {
    if (c->gpu) symm_cuda_pop(scope);
}

/* ---- streams and buffers --------------------------------------------------------------------- */

static symmResult_t bad_stream(cu_result cu, symmStream_t stream) {
    if (symm_gpu_means_none(cu))
        return SYMM_ERR(symmInvalidArgument, "stream=%p is no stream of this communicator's GPU",
                        (void *)stream);
    return symm_cuda_error(cu, "stream %p", (void *)stream);
}

symmResult_t symm_gpu_capture_of(symmStream_t stream, symm_gpu_capture *in) {
    int status = SYMM_CUDA_CAPTURE_NONE;
    *in = (symm_gpu_capture){NULL, 0};
    if (symm_gpu_is_legacy(stream)) return symmSuccess;
    cu_result cu = symm_cuda_capture_info(symm_gpu_stream(stream), &status, &in->id, &in->graph);
    if (cu) return bad_stream(cu, stream);
    if (status == SYMM_CUDA_CAPTURE_INVALIDATED)
        return SYMM_ERR(symmInvalidUsage, "stream=%p: its capture has been invalidated",
                        (void *)stream);
    if (status == SYMM_CUDA_CAPTURE_NONE) *in = (symm_gpu_capture){NULL, 0};
    return symmSuccess;
}

/* A kernel runs on the GPU of its stream, so a stream of another GPU is refused. */
symmResult_t symm_gpu_check_home(const symm_comm *c, symmStream_t stream) {
    cu_context home = NULL;
    if (symm_gpu_is_legacy(stream) || symm_gpu_is_per_thread(stream)) return symmSuccess;
    cu_result cu = symm_cu.cuStreamGetCtx(symm_gpu_stream(stream), &home);
    if (cu) return bad_stream(cu, stream);
    if (home == c->gpu->context) return symmSuccess;
    return SYMM_ERR(symmInvalidArgument,
                    "stream=%p is not of GPU %d, which communicator %s was made on (or of another "
                    "context there: a green one has not all multiprocessors, which the kernels "
                    "count on)",
                    (void *)stream, c->gpu->device, c->name);
}

/* A process has one legacy stream per GPU. If two ranks used it, the first one's kernel would wait
 * for the second one's, which is behind it. */
symmResult_t symm_gpu_check_alone(const symm_comm *c, symmStream_t stream) {
    if (!c->gpus.mate || !symm_gpu_is_legacy(stream)) return symmSuccess;
    return SYMM_ERR(
        symmInvalidUsage,
        "stream=%p is the legacy stream, and rank %d is a thread of this process on the "
        "same GPU %d: their kernels would wait for each other in it; give each rank a "
        "stream of its own",
        (void *)stream, c->gpus.mate - 1, c->gpu->device);
}

symmResult_t symm_gpu_look(const symm_comm *c, symmStream_t stream, symm_gpu_capture *in) {
    SYMM_TRY(symm_gpu_capture_of(stream, in));
    return symm_gpu_check_home(c, stream);
}

int symm_gpu_is_of_capture(cu_result cu) {
    return cu >= SYMM_CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED &&
           cu <= SYMM_CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
}

symmResult_t symm_gpu_order_error(cu_result cu, symmStream_t stream) {
    if (symm_gpu_is_of_capture(cu))
        return SYMM_ERR(symmInvalidUsage,
                        "stream=%p: a capture under way forbids to order this call after the last "
                        "one (%s)",
                        (void *)stream, symm_cuda_code_name(cu));
    return symm_cuda_error(cu, "ordering stream %p after the last call", (void *)stream);
}

cu_result symm_gpu_in_a_capture(symmStream_t stream, int *yes) {
    int capture = SYMM_CUDA_CAPTURE_NONE;
    cu_result cu = symm_gpu_is_legacy(stream)
                       ? symm_cu.cuStreamIsCapturing(symm_gpu_stream(stream), &capture)
                       : symm_cuda_capture_info(symm_gpu_stream(stream), &capture, NULL, NULL);
    *yes =
        cu == SYMM_CUDA_ERROR_STREAM_CAPTURE_IMPLICIT || (!cu && capture != SYMM_CUDA_CAPTURE_NONE);
    return *yes ? 0 : cu;
}

/* Later calls of the communicator come behind these waits, so no word is past its number. */
cu_result symm_gpu_await_last(const symm_comm *c, symmStream_t stream) {
    enum { BATCH = 64 };
    cu_stream_op ops[BATCH];
    const symm_gpu_ctl *ctl =
        (const symm_gpu_ctl *)(uintptr_t)(c->base + (uint64_t)c->rank * c->stride);
    if (!symm_cu.cuStreamBatchMemOp) return SYMM_CUDA_ERROR_NOT_SUPPORTED;
    for (int b = 0; b < c->gpu->ctas; b += BATCH) {
        const int n = c->gpu->ctas - b < BATCH ? c->gpu->ctas - b : BATCH;
        for (int i = 0; i < n; i++) /* pairs with the release of done in frame.cuh */
            ops[i] = (cu_stream_op){.operation = SYMM_CUDA_STREAM_WAIT_VALUE_32,
                                    .address = (uintptr_t)&ctl->done[b + i],
                                    .value = c->gpu->serial,
                                    .flags = SYMM_CUDA_STREAM_WAIT_EQ};
        const cu_result cu =
            symm_cu.cuStreamBatchMemOp(symm_gpu_stream(stream), (unsigned)n, ops, 0);
        if (cu) return cu;
    }
    return 0;
}

cu_result symm_gpu_reach_all(const symm_comm *c) {
    symm_cuda_scope scope;
    if (symm_gpu_push(c, &scope)) return SYMM_CUDA_ERROR_INVALID_CONTEXT;
    const cu_result cu = symm_cu.cuCtxSynchronize();
    symm_gpu_pop(c, &scope);
    return cu;
}

/* Memory of another GPU without peer access: a kernel would fault. Managed memory moves by
 * itself. */
static symmResult_t check_owner(const symm_comm *c, const char *name, const void *p) {
    int device = -1, managed = 0;
    if (symm_cu.cuPointerGetAttribute(&device, SYMM_CUDA_POINTER_DEVICE, (uintptr_t)p) ||
        symm_cu.cuPointerGetAttribute(&managed, SYMM_CUDA_POINTER_IS_MANAGED, (uintptr_t)p))
        return symmSuccess; /* no answer: the launch will tell */
    if (managed || device == c->gpu->device || symm_cuda_reaches(c->gpu->device, device))
        return symmSuccess;
    return SYMM_ERR(symmInvalidArgument,
                    "%s=%p is memory of GPU %d, which kernels of GPU %d cannot reach: no peer "
                    "access between them",
                    name, p, device, c->gpu->device);
}

int symm_gpu_is_device(const void *p) {
    int type = 0;
    const cu_result cu =
        symm_cu.cuPointerGetAttribute(&type, SYMM_CUDA_POINTER_MEMORY_TYPE, (uintptr_t)p);
    return !cu && type == SYMM_CUDA_MEMORY_DEVICE;
}

symmResult_t symm_gpu_check_buffer(const symm_comm *c, const char *name, const void *p) {
    int type = 0, pageable = 0;
    cu_result cu =
        symm_cu.cuPointerGetAttribute(&type, SYMM_CUDA_POINTER_MEMORY_TYPE, (uintptr_t)p);
    if (cu != SYMM_CUDA_ERROR_INVALID_VALUE) /* known, or no answer: the launch will tell */
        return !cu && type == SYMM_CUDA_MEMORY_DEVICE ? check_owner(c, name, p) : symmSuccess;
    cu = symm_cu.cuDeviceGetAttribute(&pageable, SYMM_CUDA_ATTR_PAGEABLE_MEMORY_ACCESS,
                                      c->gpu->device);
    if (!cu && pageable) return symmSuccess;
    return SYMM_ERR(symmInvalidArgument,
                    "%s=%p is memory that GPU %d cannot reach (host memory must come from "
                    "cudaMallocHost or cudaHostRegister)",
                    name, p, c->gpu->device);
}
