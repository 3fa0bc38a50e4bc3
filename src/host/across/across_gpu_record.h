/* across_gpu_record.h - what a communicator over several domains has on GPUs, for the files that
 * carry it: across_gpu.c makes it and runs calls, across_gpu_end.c ends it. The thread inside the
 * communicator. */
#ifndef SYMM_ACROSS_GPU_RECORD_H_
#define SYMM_ACROSS_GPU_RECORD_H_

#include "host/gpu/gpu.h"
#include "host/gpu/point.h"
#include "across_gpu.h"

enum { SYMM_ACROSS_GPU_NAP_US = 50 }; /* between two looks of a wait */

typedef struct { /* a message that has begun */
    int rank, sends;
    const char *at;
    size_t bytes;
    size_t moved, now; /* through the bounce: all before this round, and in it */
} symm_across_pending;

struct symm_across_gpu {
    const symm_nccl *nccl;
    nccl_comm comm; /* NULL: not made yet, or given up */
    cu_context context;
    char *stage, *bounce;         /* one allocation */
    size_t room, slot;            /* bytes of the stage, of a slot of the bounce */
    int direct;                   /* captured messages go straight, too */
    uint64_t until;               /* while it is made: the deadline of all; else 0 */
    symm_across_pending *pending; /* [cap] of the call */
    int n, cap;
    /* Of the call that is running. */
    symm_comm *c;
    symmStream_t stream;
    symm_gpu_capture in;
    int given;            /* NCCL has been told of it */
    unsigned char busy[]; /* [2 * nranks] slots of the bounce, by sends and rank */
};

#endif
