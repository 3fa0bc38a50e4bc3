/* cuda_probe.h - which handles the memory of a CUDA device supports, found out by trying:
 * attributes report handles that are then refused (fabric handles without the right channel,
 * descriptors in some containers). Any thread; one lock, held while a device is probed, once per
 * device. */
#ifndef SYMM_CUDA_PROBE_H_
#define SYMM_CUDA_PROBE_H_

#include <stdint.h>

#include "transport/cuda/cuda_driver.h"

typedef struct {
    uint64_t granularity, bytes;
    int handle_types; /* SYMM_CUDA_HANDLE_*: what memory is created with, all of it tried */
    char fabric_reason[96];
} symm_cuda_memory;

/* Memory of `device` with these handle types. */
cu_mem_prop symm_cuda_prop(int device, int handle_types);
/* *memory lives as long as the process. A failure is not remembered: the next call tries again. */
cu_result symm_cuda_probe(int device, const symm_cuda_memory **memory);

#ifdef SYMM_TESTING
void symm_cuda_probe_forget(void);
#endif

#endif
