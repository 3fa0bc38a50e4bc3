/* kernels.h - the kernel table and how a kernel is run on the host. Any thread; the table is constant. */
#ifndef SYMM_KERNELS_H_
#define SYMM_KERNELS_H_

#include "symm.h"
#include "symm_types.h"

enum { SYMM_CAP_NONE, SYMM_CAP_PACKETS, SYMM_CAP_2PACKETS };
enum { SYMM_K_ORDERED = 1 };

typedef enum {
#define SYMM_KERNEL(id, name, coll, body, min_ranks, cap, flags, how) SYMM_KERNEL_##id,
#include "kernels.def"
#undef SYMM_KERNEL
    SYMM_KERNEL_COUNT
} symm_kernel_id;

typedef struct {
    const char *name, *how;
    symmColl_t coll;
    int min_ranks, cap;
    unsigned flags;
} symm_kernel_row;

extern const symm_kernel_row symm_kernels[SYMM_KERNEL_COUNT];

/* Runs kernel `id` with these arguments on the calling thread, CTA after CTA. out->code is 0 or the symmResult_t with which
 * the kernel left; it has then set its peers' abort words, and the communicator must not be used again. */
void symm_kernel_run(symm_kernel_id id, const symm_args *a, symm_outcome *out);

#endif
