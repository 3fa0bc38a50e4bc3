/* user_device.cu - kernels as a user of the device API might write them: those of
 * device_kernels.inl, which unit_device_api runs on fibers. Loaded by gpu_device_api.c from
 * build/cuda/user_device.fatbin. */
#include "symm_device.cuh"

#include "emu_dev.h"

#define KERNEL(name) static __device__ void name##_of(const emu_dev_args &t)
#include "device_kernels.inl"

#define ENTRY(name)                                                                 \
    extern "C" __global__ void dev_##name(const __grid_constant__ emu_dev_args t) { \
        symmDevWaitForGridBefore();                                                 \
        name##_of(t);                                                               \
    }
DEVICE_KERNELS(ENTRY)
