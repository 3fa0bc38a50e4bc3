/* cuda_multicast.h - the CUDA driver's multicast objects, apart from the rest of the driver
 * (cuda_driver.h): on some shared machines making one harms others, so that nothing looks their
 * entry points up before somebody has asked for multicast windows. Any thread; one lock, during the
 * look-up. */
#ifndef SYMM_CUDA_MULTICAST_H_
#define SYMM_CUDA_MULTICAST_H_

#include "cuda_driver.h"

typedef struct {
    unsigned devices;
    size_t bytes;
    unsigned long long handle_types;
    unsigned long long flags;
} cu_multicast_prop; /* CUmulticastObjectProp */

enum { /* SYMM_CUDA_GRANULARITY_* serve as CUmulticastGranularity_flags */
       SYMM_CUDA_ATTR_MULTICAST = 132,
       SYMM_CUDA_ERROR_SYSTEM_NOT_READY = 802
};

typedef struct {
#define SYMM_CU_CALL(name, symbol, required, params) cu_result(*name) params;
#include "cuda_multicast.def"
#undef SYMM_CU_CALL
} symm_cuda_multicast_table;

/* Valid after symm_cuda_multicast_load has returned NULL. */
extern symm_cuda_multicast_table symm_cu_multicast;

/* Looks the entry points up in the driver that symm_cuda_load has found; the first call decides.
 * Returns NULL, or the name of one that it lacks. */
const char *symm_cuda_multicast_load(void);

#ifdef SYMM_TESTING
/* Forgets what was found: the next load takes them from `find`; NULL: from the driver. */
void symm_cuda_multicast_inject(void *(*find)(const char *symbol));
#endif

#endif
