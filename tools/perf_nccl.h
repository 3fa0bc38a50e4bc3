/* perf_nccl.h - NCCL as the rival on GPUs: opened at run time, so that nothing of it is needed to
 * build. The library is opened once a process; each rank's thread has a communicator of its own.
 *
 * A collective or pattern is compared with NCCL's call of the same meaning, if the library that is
 * loaded has one (ncclAlltoAll, ncclGather and ncclScatter exist since NCCL 2.28). Else it is
 * compared with a group of the calls that programs make instead: those of nccl-tests where it has
 * the collective; a broadcast for each rank for all_gatherv, a reduce for each for reduce_scatterv.
 * A barrier is not compared, nor are puts. */
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
    const char *calls;      /* what is measured, "ncclAllReduce"; NULL: nothing */
} perf_nccl_info;
perf_nccl_info perf_nccl_describe(const perf_rank *p);

#endif
