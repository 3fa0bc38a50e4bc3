/* cuda_fabric.h - which fabric of NVLink switches a GPU is in, where such a fabric reaches over
 * hosts (NVL72). CUDA does not tell: NVML does, the driver's library for managing GPUs. It is
 * opened at run time as libcuda is, and what is called of it is declared here only.
 *
 * Any thread. One lock, held while NVML is opened and over its calls. */
#ifndef SYMM_CUDA_FABRIC_H_
#define SYMM_CUDA_FABRIC_H_

#include <stddef.h>
#include <stdint.h>

/* Where a GPU is in a fabric of NVLink switches that reaches over hosts. GPUs reach each other by
 * it if cluster and clique are equal. Messages carry it as it is. */
typedef struct {
    uint8_t cluster[16];
    uint32_t clique; /* of the cluster's GPUs those that are switched together */
    int32_t known;   /* 0: all else is 0 */
} symm_cuda_fabric;
_Static_assert(sizeof(symm_cuda_fabric) == 24, "no padding: it goes into messages");

/* known 0: the GPU is in no such fabric, or it cannot be told; why (cap bytes) says so. Never an
 * error, and no line in the log. It is asked anew each time: GPUs are registered with their fabric
 * while hosts start. */
void symm_cuda_fabric_of(int device, symm_cuda_fabric *out, char *why, size_t cap);

/* ---- NVML ----------------------------------------------------------------------------------- */

typedef struct nvml_device_st *nvml_device;

typedef struct { /* nvmlGpuFabricInfo_t, of drivers that lack the next */
    unsigned char cluster[16];
    int status; /* how the registration went, once it is over */
    unsigned clique;
    unsigned char state; /* of the registration */
} nvml_fabric_first;

typedef struct { /* nvmlGpuFabricInfo_v2_t */
    unsigned version;
    unsigned char cluster[16];
    int status;
    unsigned clique;
    unsigned char state;
    unsigned health;
} nvml_fabric;
_Static_assert(sizeof(nvml_fabric_first) == 28 && sizeof(nvml_fabric) == 36, "as NVML has them");

enum {
    SYMM_NVML_SUCCESS = 0,
    SYMM_NVML_ERROR_UNINITIALIZED = 1,
    SYMM_NVML_ERROR_NOT_SUPPORTED = 3,
    SYMM_NVML_ERROR_NOT_FOUND = 6,
    SYMM_NVML_ERROR_FUNCTION_NOT_FOUND = 13,
    SYMM_NVML_ERROR_VERSION = 25, /* of a record, which this NVML does not know */
    SYMM_NVML_ERROR_DEPRECATED = 26,
    SYMM_NVML_FABRIC_VERSION = sizeof(nvml_fabric) | 2 << 24,
    SYMM_NVML_FABRIC_NOT_SUPPORTED = 0,
    SYMM_NVML_FABRIC_NOT_STARTED = 1,
    SYMM_NVML_FABRIC_IN_PROGRESS = 2,
    SYMM_NVML_FABRIC_COMPLETED = 3
};

typedef struct {
    int (*nvmlInit_v2)(void);
    int (*nvmlDeviceGetHandleByPciBusId_v2)(const char *pci, nvml_device *device);
    /* Either of these two may be NULL. */
    int (*nvmlDeviceGetGpuFabricInfoV)(nvml_device device, nvml_fabric *fabric);
    int (*nvmlDeviceGetGpuFabricInfo)(nvml_device device, nvml_fabric_first *fabric);
    const char *(*nvmlErrorString)(int code); /* may be NULL */
} symm_nvml_table;

/* Filled by the first question; used under the lock. */
extern symm_nvml_table symm_nvml;

#ifdef SYMM_TESTING
/* Forgets what was found. The next question takes the entry points from `find`; if that is NULL,
 * it opens `file`, and if that is NULL too, the driver's library. */
void symm_nvml_inject(void *(*find)(const char *symbol), const char *file);
#endif

#endif
