/* fake_cuda_int.h - what the parts of the fake driver share. All under fake_lock(), except where
 * said. */
#ifndef FAKE_CUDA_INT_H_
#define FAKE_CUDA_INT_H_

#include <pthread.h>

#include "transport/cuda/cuda_multicast.h"
#include "transport/vmm/mc_object.h"
#include "fake_cuda.h"

enum {
#define SYMM_CU_CALL(name, symbol, required, params) call_##name,
#include "transport/cuda/cuda_calls.def"
#include "transport/cuda/cuda_multicast.def"
#undef SYMM_CU_CALL
    call_count
};

#define SYMM_CU_CALL(name, symbol, required, params) cu_result fk_##name params;
#include "transport/cuda/cuda_calls.def"
#include "transport/cuda/cuda_multicast.def"
#undef SYMM_CU_CALL

struct cu_context_st {
    int device, refs, primary;
    cu_stream legacy; /* the NULL stream */
};

extern fake_cuda_config fake;

void fake_lock(void);
void fake_unlock(void);
void fake_wait(void); /* releases the lock until fake_wake is called */
void fake_wake(void);
/* The same until *own is signalled: a stream's thread would wake at everything that changes. */
void fake_wait_for(pthread_cond_t *own);
/* Counts the call. Returns the code with which it must fail at once, or 0. Without the lock. */
int fake_enter(int call);
#define ENTER(name)                        \
    do {                                   \
        int cu_ = fake_enter(call_##name); \
        if (cu_) return cu_;               \
    } while (0)
/* A call that CUDA forbids while a stream is captured in global mode. Without the lock. */
int fake_unsafe(void);

int fake_device_ok(int device);
int fake_reaches(int from, int to);
cu_context fake_current(void); /* of the calling thread, or NULL */
int fake_capture_mode(void);   /* of the calling thread */

/* fake_cuda_mem.c */
void fake_mem_reset(void);
int fake_mem_live(void);
/* Whether kernels of the device may touch all of [va, va+bytes). */
int fake_device_memory(int device, cu_deviceptr va, uint64_t bytes);
/* As a side of a copy: device memory with access, or memory that CUDA knows nothing of, which is
 * the host's. */
int fake_copy_side(int device, cu_deviceptr va, uint64_t bytes);

/* fake_cuda_fabric.c. What is behind fd as CUDA's fabric handle, and back: a new descriptor.
 * device -1: a multicast object. */
void fake_fabric_export(int fd, uint64_t bytes, int device, void *out);
cu_result fake_fabric_import(const void *shared, int *fd, uint64_t *bytes, int *device);

/* Multicast objects among the handles: an object and its descriptor become a handle; the object
 * behind one, NULL if it is none; what a bind needs to know of memory, 0 if the handle is none. */
cu_mem_handle fake_add_object(symm_mc_object *o, int fd, int types);
symm_mc_object *fake_object(cu_mem_handle handle, int **device); /* which has joined, -1: none */
symm_mc_object *fake_object_at(uint64_t va, uint64_t *lo);       /* lo: where it is mapped */
int fake_memory(cu_mem_handle handle, int *device, uint64_t *bytes, uint64_t id[2]);

/* fake_cuda_multicast.c */
void *fake_multicast_symbol(const char *symbol);
/* Without the lock. types: as what it came; fd stays the caller's. */
int fake_import_object(int fd, int types, cu_mem_handle *handle);

/* fake_cuda_stream.c */
void fake_stream_reset(void);
int fake_stream_live(void);
int fake_stream_kept(void);
int fake_any_global_capture(void); /* and invalidates it, as CUDA does */

#endif
