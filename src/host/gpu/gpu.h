/* gpu.h - a communicator's side of its GPU: kernels found at creation, one launch per call, order
 * between streams, what captured calls keep alive. The communicator's user thread, except where
 * said. */
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
/* Of the current context's: these two cannot be captured. */
static inline int symm_gpu_is_legacy(symmStream_t stream) {
    return !stream || symm_gpu_stream(stream) == SYMM_CUDA_STREAM_LEGACY;
}
/* What the driver says of a stream that is gone. */
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
    symm_kept *pins; /* what captured calls need, under SYMM_GRAPH_HOLD=comm */
};

/* Finds and loads every kernel that this communicator can launch, on the calling thread's device;
 * nothing is loaded later, when kernels may be waiting for each other. [local] */
symmResult_t symm_gpu_open(symm_comm *c);
void symm_gpu_close(symm_comm *c);
/* Whether kernels can reach p at all: ordinary host memory only where the GPU reads the process's
 * page tables, memory of another GPU where there is peer access. */
symmResult_t symm_gpu_check_buffer(const symm_comm *c, const char *name, const void *p);
/* Steps of a launch, in the context. The stream is one of the communicator's GPU; it is not the
 * legacy stream that a mate waits in. */
symmResult_t symm_gpu_capture_of(symmStream_t stream, symm_gpu_capture *in);
symmResult_t symm_gpu_check_home(const symm_comm *c, symmStream_t stream);
symmResult_t symm_gpu_check_alone(const symm_comm *c, symmStream_t stream);
/* What a capture under way forbids is the caller's doing, and breaks nothing. */
int symm_gpu_is_of_capture(cu_result cu);
symmResult_t symm_gpu_order_error(cu_result cu, symmStream_t stream);

/* Whether what is given to a stream would be recorded, or spoil a capture: the legacy stream may
 * not be used at all while a blocking one is captured. Asking spoils nothing. The context is
 * current. */
cu_result symm_gpu_in_a_capture(symmStream_t stream, int *yes);
/* Waits for all that the communicator's context runs: of a stream that is gone nobody knows more.
 * As the library's own, so that no capture of the caller's forbids it or is spoilt by it. */
cu_result symm_gpu_reach_all(const symm_comm *c);
/* Whether the stream is one of the communicator's GPU, and what captures it. Entered or pushed. */
symmResult_t symm_gpu_look(const symm_comm *c, symmStream_t stream, symm_gpu_capture *in);
/* The communicator's device made current, where it is not, and back. For launches: a capture of the
 * caller's is one here too. */
symmResult_t symm_gpu_enter(const symm_comm *c, symm_cuda_scope *scope);
void symm_gpu_leave(symm_cuda_scope *scope);
/* The same for work of the library's own, which no capture forbids or takes. Nothing on the host
 * backend. */
symmResult_t symm_gpu_push(const symm_comm *c, symm_cuda_scope *scope);
void symm_gpu_pop(const symm_comm *c, symm_cuda_scope *scope);

#ifdef SYMM_TESTING
/* Before symm_cuda_inject: unloads the kernels that the driver has loaded. No communicator is
 * left. */
void symm_gpu_forget(void);
#endif

#endif
