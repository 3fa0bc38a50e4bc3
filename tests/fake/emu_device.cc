/* emu_device.cc - the kernels of device_kernels.inl, compiled for a processor by emu_device.h, for
 * unit_device_api. DEVICE_FIND: what finds them by name; emu_device_debug.cc has another. */
#include "emu_device.h"

#include "symm_device.cuh"

#include "emu_dev.h"

#define KERNEL(name) static void name##_of(const emu_dev_args &t)
#include "device_kernels.inl"

#ifndef DEVICE_FIND
uint64_t emu_dev_places = UINT64_MAX;
#define DEVICE_FIND emu_device_find
#endif

/* Kernels of emu_run have other arguments: a.src says where ours are. */
#define ENTRY(name)                              \
    static void emu_##name(const symm_args a) {  \
        name##_of(*(const emu_dev_args *)a.src); \
    }
DEVICE_KERNELS(ENTRY)
#define ROW(name) {"emu_dev_" #name, emu_##name},
static const struct {
    const char *name;
    emu_kernel kernel;
} all[] = {DEVICE_KERNELS(ROW)};

extern "C" emu_kernel DEVICE_FIND(const char *name) {
    for (unsigned i = 0; i < sizeof all / sizeof all[0]; i++)
        if (!strcmp(all[i].name, name)) return all[i].kernel;
    return NULL;
}
