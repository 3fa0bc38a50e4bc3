/* cuda_device.h - the CUDA devices and contexts of this process.
 *
 * The library works in primary contexts, which is what the CUDA runtime uses; each is retained
 * once, when its device is first used, and kept to the end of the process. Devices are ordinals of
 * this process (CUDA_VISIBLE_DEVICES applied). Any thread. One lock inside, held over
 * cuDevicePrimaryCtxRetain and cuStreamCreate only, both once a device. */
#ifndef SYMM_CUDA_DEVICE_H_
#define SYMM_CUDA_DEVICE_H_

#include <stdint.h>

#include "cuda_driver.h"

enum { SYMM_CUDA_MAX_DEVICES = 64 };

typedef struct {
    int device, sms, cc_major, cc_minor;
    int attr_fabric; /* what the device says; whether they can be made: cuda_probe.h */
    uint64_t bytes;
    char name[64];
    unsigned char uuid[16];
    char pci[16]; /* "0000:17:00.0" */
} symm_cuda_info;

/* How many devices; 0 where symm_cuda_why() says why. Loads the driver. */
int symm_cuda_devices(void);
symmResult_t symm_cuda_describe(int device, symm_cuda_info *info);

/* The device of the calling thread's current context, marked as in use. A thread that has none gets
 * one, as the runtime would give it: the primary context of SYMM_DEVICE, else of the process's rank
 * on this host (as its launcher says) modulo the devices. */
symmResult_t symm_cuda_current(int *device);
/* Makes the device's primary context current in this thread and marks the device as in use. */
symmResult_t symm_cuda_set(int device);
/* symm_cuda_current for callers that hand on CUDA's codes: says nothing. */
cu_result symm_cuda_current_cu(int *device);

/* Marks a device as in use by this process: set_access of the memory driver then gives access to it
 * too. Memory that had its access set before gets it when set_access is called again. */
symmResult_t symm_cuda_use(int device);
/* Bit d: device d is in use. */
uint64_t symm_cuda_in_use(void);
/* Whether kernels of `from` can reach memory of `to`; an error that names both where not. from ==
 * to is fine. */
symmResult_t symm_cuda_reach(int from, int to);
/* The same, 1 or 0, and says nothing. */
int symm_cuda_reaches(int from, int to);
/* Whether what a warp of `from` stores into memory of `to` by one instruction arrives as one, on
 * which the kernels rely that move lines of 128 bytes with a flag at the end. NVLink does so, PCIe
 * promises 8 bytes. Told apart by native atomics, which only NVLink has; an error that names
 * both where there are none. from == to is fine. */
symmResult_t symm_cuda_joined(int from, int to);
/* The same, 1 or 0; 0 also where the driver does not say. */
int symm_cuda_is_joined(int from, int to);
/* The current device and every other in use that can reach the memory: one that cannot would make
 * CUDA refuse all. */
cu_result symm_cuda_grant(uint64_t lo, uint64_t bytes, int owner, int device);

/* A context made current for a while, whatever was current put back by pop. Inside, calls that CUDA
 * forbids while some stream of the process is being captured are allowed (capture mode RELAXED):
 * the library's own work is in no capture. Scopes of a thread nest; pop in the thread that pushed.
 * After a failed push nothing is to be popped. */
typedef struct {
    int pushed, mode;
} symm_cuda_scope;
symmResult_t symm_cuda_push(int device, symm_cuda_scope *scope); /* the device's primary context */
symmResult_t symm_cuda_push_context(cu_context context, symm_cuda_scope *scope);
cu_result symm_cuda_push_cu(int device, symm_cuda_scope *scope); /* says nothing */
void symm_cuda_pop(symm_cuda_scope *scope);

/* The device's primary context, retained. */
symmResult_t symm_cuda_primary(int device, cu_context *context);
/* The library's own stream of a device: non-blocking, in the primary context (push it), for short
 * work whose end is waited for. Never wait in it for anything a user's kernel does. */
cu_result symm_cuda_private_stream(int device, cu_stream *stream);
/* Work on that stream that has ended when they return (cuda_copy.c). fill: va and bytes are
 * multiples of 4. copy: each side is memory that the device has access to, or the host's. */
cu_result symm_cuda_fill(int device, cu_deviceptr va, uint64_t bytes, uint32_t word);
cu_result symm_cuda_copy(int device, void *dst, const void *src, uint64_t bytes);
/* New memory becomes zeros: CUDA does not promise that it is clear, and the epochs in a control
 * block count on it. */
cu_result symm_cuda_clear(int device, cu_mem_handle raw, uint64_t bytes);
/* A life (vmm.h) of memory that another allocator has mapped; 0: none is there. */
uint64_t symm_cuda_foreign_life(cu_deviceptr va);

#ifdef SYMM_TESTING
/* After symm_cuda_inject: what was known of the devices before it. */
void symm_cuda_device_forget(void);
#endif

#endif
