/* cuda_device.h - the CUDA devices and contexts of this process.
 *
 * The library uses primary contexts, as the CUDA runtime does. Each is retained once, when its
 * device is first used, and kept until the process ends. Devices are ordinals of this process
 * (after CUDA_VISIBLE_DEVICES). Any thread. One lock inside, held during cuDevicePrimaryCtxRetain
 * and cuStreamCreate only, once for each device. */
#ifndef SYMM_CUDA_DEVICE_H_
#define SYMM_CUDA_DEVICE_H_

#include <stdint.h>

#include "cuda_driver.h"

enum { SYMM_CUDA_MAX_DEVICES = 64 };

typedef struct {
    int device, sms, cc_major, cc_minor;
    int attr_fabric; /* what the device says; whether it is true: cuda_probe.h */
    uint64_t bytes;
    char name[64];
    unsigned char uuid[16];
    char pci[16]; /* "0000:17:00.0" */
} symm_cuda_info;

/* How many devices there are; if 0, symm_cuda_why() says why. Loads the driver. */
int symm_cuda_devices(void);
symmResult_t symm_cuda_describe(int device, symm_cuda_info *info);

/* The device of the calling thread's current context; it is marked as in use. A thread without a
 * context gets one, as from the runtime: the primary context of SYMM_DEVICE, or else of the
 * process's rank on this host (from its launcher) modulo the number of devices. */
symmResult_t symm_cuda_current(int *device);
/* Makes the device's primary context current in this thread and marks the device as in use. */
symmResult_t symm_cuda_set(int device);
/* The same, for callers that return CUDA's codes. Does not log. */
cu_result symm_cuda_current_cu(int *device);

/* Marks a device as in use by this process. From then on set_access of the memory driver gives
 * access to it too. Older memory gets it when set_access is called again. */
symmResult_t symm_cuda_use(int device);
/* Bit d: device d is in use. */
uint64_t symm_cuda_in_use(void);
/* Whether kernels of `from` can reach memory of `to`. If not, the error names both. from == to is
 * allowed. */
symmResult_t symm_cuda_reach(int from, int to);
/* The same as 1 or 0, without an error. */
int symm_cuda_reaches(int from, int to);
/* Whether a store of one instruction of a warp of `from` into memory of `to` arrives as a whole.
 * Kernels that send lines of 128 bytes with a flag at the end rely on it. NVLink does so; PCIe
 * promises 8 bytes. Native atomics tell the two apart, because only NVLink has them. If there are
 * none, the error names both devices. from == to is allowed. */
symmResult_t symm_cuda_joined(int from, int to);
/* The same as 1 or 0; 0 also if the driver does not say. */
int symm_cuda_is_joined(int from, int to);
/* The current device, and all others in use that can reach the memory. With one that cannot, CUDA
 * would refuse all. */
cu_result symm_cuda_grant(uint64_t lo, uint64_t bytes, int owner, int device);

/* Makes a context current for a while; pop restores the old one. Inside, calls are allowed that
 * CUDA forbids while a stream of the process is captured (capture mode RELAXED), because the
 * library's own work is in no capture. Scopes of a thread nest. Pop in the thread that pushed.
 * After a failed push there is nothing to pop. */
typedef struct {
    int pushed, mode;
} symm_cuda_scope;
symmResult_t symm_cuda_push(int device, symm_cuda_scope *scope); /* the device's primary context */
symmResult_t symm_cuda_push_context(cu_context context, symm_cuda_scope *scope);
cu_result symm_cuda_push_cu(int device, symm_cuda_scope *scope); /* no error text */
void symm_cuda_pop(symm_cuda_scope *scope);

/* The device's primary context, retained. */
symmResult_t symm_cuda_primary(int device, cu_context *context);
/* The library's own stream of a device: non-blocking, in the primary context (push it first), for
 * short work that the caller waits for. Never wait in it for something that a user's kernel does.
 * */
cu_result symm_cuda_private_stream(int device, cu_stream *stream);
/* Work on that stream, which has ended when these return (cuda_copy.c). fill: va and bytes are
 * multiples of 4. copy: each side is memory that the device can access, or host memory. */
cu_result symm_cuda_fill(int device, cu_deviceptr va, uint64_t bytes, uint32_t word);
cu_result symm_cuda_copy(int device, void *dst, const void *src, uint64_t bytes);
/* Clears new memory. CUDA does not promise that it is clear, and the epochs in a control block must
 * begin at 0. */
cu_result symm_cuda_clear(int device, cu_mem_handle raw, uint64_t bytes);
/* The life (vmm.h) of memory that another allocator has mapped; 0: none is there. */
uint64_t symm_cuda_foreign_life(cu_deviceptr va);

#ifdef SYMM_TESTING
/* After symm_cuda_inject: forgets what was known of the devices before. */
void symm_cuda_device_forget(void);
#endif

#endif
