/* nvml_stub.c - a libnvidia-ml.so.1 for unit_fabric_info to open by dlopen: one GPU, at the place
 * on the bus that the fake CUDA driver gives its first device, in clique 9 of a cluster. Any
 * thread, no lock: there is no state but whether it was initialised. */
#include <string.h>

#include "transport/cuda/cuda_fabric.h"

#define SHOWN __attribute__((visibility("default")))

static int ready;

SHOWN int nvmlInit_v2(void);
SHOWN int nvmlInit_v2(void) {
    ready = 1;
    return SYMM_NVML_SUCCESS;
}

SHOWN int nvmlDeviceGetHandleByPciBusId_v2(const char *pci, nvml_device *device);
SHOWN int nvmlDeviceGetHandleByPciBusId_v2(const char *pci, nvml_device *device) {
    if (!ready) return SYMM_NVML_ERROR_UNINITIALIZED;
    *device = (nvml_device)&ready;
    return strcmp(pci, "0000:10:00.0") ? SYMM_NVML_ERROR_NOT_FOUND : SYMM_NVML_SUCCESS;
}

SHOWN int nvmlDeviceGetGpuFabricInfoV(nvml_device device, nvml_fabric *fabric);
SHOWN int nvmlDeviceGetGpuFabricInfoV(nvml_device device, nvml_fabric *fabric) {
    if (device != (nvml_device)&ready || fabric->version != SYMM_NVML_FABRIC_VERSION)
        return SYMM_NVML_ERROR_VERSION;
    for (unsigned i = 0; i < sizeof fabric->cluster; i++) fabric->cluster[i] = (uint8_t)(i + 1);
    fabric->status = SYMM_NVML_SUCCESS;
    fabric->clique = 9;
    fabric->state = SYMM_NVML_FABRIC_COMPLETED;
    return SYMM_NVML_SUCCESS;
}
