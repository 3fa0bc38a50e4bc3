/* perf_nccl.h - NCCL as the rival on GPUs: opened at run time, so that nothing of it is needed to
 * build. The library is opened once a process; each rank's thread has a communicator of its own. */
#ifndef PERF_NCCL_H_
#define PERF_NCCL_H_

#include "perf.h"

/* Opens the library. Any thread, any number of times. -1 with the reason in err. */
int perf_nccl_load(const char *path, char *err, size_t cap);
/* After the buffers exist: this rank's communicator and what -R asks for. Sets p->nccl and
 * p->rival. All ranks together. */
void perf_nccl_open(perf_rank *p);
void perf_nccl_close(perf_rank *p); /* NULL p->nccl is a no-op */

typedef struct {
    int version;            /* 22809: 2.28.9 */
    const char *path;       /* as the loader found it */
    const char *registered; /* "windows", "buffers" or "no" */
    int own_memory;         /* 1: windows over this memory were refused; it has memory of its own */
} perf_nccl_info;
perf_nccl_info perf_nccl_describe(const perf_rank *p);

#endif
