/* redop.h - reductions that users made (premulsum). The communicator's user thread. */
#ifndef SYMM_REDOP_H_
#define SYMM_REDOP_H_

#include "host/comm/types.h"

typedef struct symm_redop {
    int live;
    uint32_t type;
    uint64_t scalar;
    const void *ptr; /* symmScalarDevice: read when the collective runs */
} symm_redop;

/* The record behind op, or NULL (built-in, or not of this communicator). */
const symm_redop *symm_redop_find(const symm_comm *c, symmRedOp_t op);
void symm_redop_drop_all(symm_comm *c);

#endif
