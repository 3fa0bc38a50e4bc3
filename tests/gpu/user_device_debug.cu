/* user_device_debug.cu - the kernels of user_device.cu as a program's debug build has them, for
 * gpu_device_api.c: build/cuda/user_device_debug.fatbin. */
#define SYMM_DEVICE_DEBUG
#include "user_device.cu"
