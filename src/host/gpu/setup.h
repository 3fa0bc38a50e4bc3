/* setup.h - how a call of set-up runs that all ranks make: registering, growing, tidying, making
 * heaps and vectors. What graphs that are gone have held is released first, and on GPUs the
 * communicator's context is current until the end. The communicator's user thread. */
#ifndef SYMM_SETUP_H_
#define SYMM_SETUP_H_

#include "gpu.h"

typedef struct {
    symm_comm *c;
    symm_cuda_scope scope;
    /* This rank's so far. After an error the call goes on, as that of a rank that has failed,
     * because the other ranks wait for it. */
    symmResult_t status;
} symm_setup;

/* Inside the communicator. end: the context is as it was before. */
void symm_setup_begin(symm_comm *c, symm_setup *s);
void symm_setup_end(symm_setup *s);
/* Begins and ends, and enters and leaves the communicator. leave returns r. */
symmResult_t symm_setup_enter(symmComm_t comm, symm_setup *s);
symmResult_t symm_setup_leave(symm_setup *s, symmResult_t r);

#endif
