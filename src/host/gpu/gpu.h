/* gpu.h - a communicator's GPU: its context, its kernels, and what is asked of streams and buffers
 * before a launch. The communicator's user thread, except where said. */
#ifndef SYMM_GPU_H_
#define SYMM_GPU_H_

#include "host/comm/types.h"
#include "transport/cuda/cuda_device.h"
#include "hold.h"

static inline cu_stream symm_gpu_stream(symmStream_t stream) {
    return (cu_stream)(void *)stream;
}
/* The same handle, another stream in each thread. */
static inline int symm_gpu_is_per_thread(symmStream_t stream) {
    return symm_gpu_stream(stream) == SYMM_CUDA_STREAM_PER_THREAD;
}
/* Legacy streams of the current context: they cannot be captured. */
static inline int symm_gpu_is_legacy(symmStream_t stream) {
    return !stream || symm_gpu_stream(stream) == SYMM_CUDA_STREAM_LEGACY;
}
/* Codes that the driver returns for a stream that is gone. */
static inline int symm_gpu_means_none(cu_result cu) {
    return cu == SYMM_CUDA_ERROR_INVALID_HANDLE || cu == SYMM_CUDA_ERROR_INVALID_VALUE ||
           cu == SYMM_CUDA_ERROR_INVALID_CONTEXT;
}

struct symm_gpu {
    int device;
    cu_context context;
    uint32_t serial;  /* of the last eager call, and its CTAs */
    int ctas;         /* 0: there was none */
    int programmatic; /* launches may overlap their predecessor's end (PDL) */
    cu_kernel kernel[SYMM_KERNEL_COUNT][12]; /* untyped ones in [0] */
    cu_kernel messages, message_list;        /* sends and receives; what lists them */
    cu_kernel onesided;
    cu_kernel copies;   /* what goes before copies (copies.h) */
    cu_kernel join[12]; /* by type; NULL before symm_gpu_find_joins */
    symm_kept *pins;    /* what captured calls need, under SYMM_GRAPH_HOLD=comm */
};

/* The device and the context of the calling thread, for a communicator, which frees it. */
symmResult_t symm_gpu_new(struct symm_gpu **out);
/* Finds and loads every kernel that the communicator can launch, into c->gpu. Nothing is loaded
 * later, because kernels may then be waiting for each other. [local] */
symmResult_t symm_gpu_load(symm_comm *c);
/* The same for what communicators over several domains launch besides. Before there are calls. */
symmResult_t symm_gpu_find_joins(symm_comm *c);
/* Whether kernels can reach p: ordinary host memory only if the GPU reads the process's page
 * tables, memory of another GPU only with peer access. */
symmResult_t symm_gpu_check_buffer(const symm_comm *c, const char *name, const void *p);
/* Whether p is memory of a GPU, as far as CUDA knows. Into memory of the host the driver may copy
 * while the caller waits. */
int symm_gpu_is_device(const void *p);
/* Steps of a launch, in the context. capture_of: what the stream is recorded into. check_home: the
 * stream is one of the communicator's GPU. check_alone: it is not the legacy stream if another rank
 * is a thread of this process on the same GPU. */
symmResult_t symm_gpu_capture_of(symmStream_t stream, symm_gpu_capture *in);
symmResult_t symm_gpu_check_home(const symm_comm *c, symmStream_t stream);
symmResult_t symm_gpu_check_alone(const symm_comm *c, symmStream_t stream);
/* 1 if a capture under way forbids the call: that is the caller's error and breaks nothing. */
int symm_gpu_is_of_capture(cu_result cu);
symmResult_t symm_gpu_order_error(cu_result cu, symmStream_t stream);

/* yes: work given to the stream would be recorded, or would invalidate a capture (the legacy
 * stream must not be used while a blocking stream is captured). Asking invalidates nothing. The
 * context is current. */
cu_result symm_gpu_in_a_capture(symmStream_t stream, int *yes);
/* What the stream is given from now on comes behind the last eager call, by the words that its CTAs
 * write at their ends: no stream but this one is touched. SYMM_CUDA_ERROR_NOT_SUPPORTED: the driver
 * has no such waits. The context is current; the stream is not captured. */
cu_result symm_gpu_await_last(const symm_comm *c, symmStream_t stream);
/* Waits for all that the communicator's context runs. For a stream that is gone: nobody knows where
 * its work is. A capture of the caller's neither forbids this nor is invalidated by it. */
cu_result symm_gpu_reach_all(const symm_comm *c);
/* Whether the stream is one of the communicator's GPU, and what captures it. Entered or pushed. */
symmResult_t symm_gpu_look(const symm_comm *c, symmStream_t stream, symm_gpu_capture *in);
/* Makes the communicator's context current if it is not, and restores the old one. For launches: a
 * capture of the caller's applies here as well. */
symmResult_t symm_gpu_enter(const symm_comm *c, symm_cuda_scope *scope);
void symm_gpu_leave(symm_cuda_scope *scope);
/* The same for work of the library's own, which no capture forbids or records. Does nothing on the
 * host backend. */
symmResult_t symm_gpu_push(const symm_comm *c, symm_cuda_scope *scope);
void symm_gpu_pop(const symm_comm *c, symm_cuda_scope *scope);

#ifdef SYMM_TESTING
/* Before symm_cuda_inject: unloads the kernels that the driver has loaded. No communicator is
 * left. */
void symm_gpu_forget(void);
#endif

#endif
