/* gather.h - exchanges of set-up: what all ranks call together outside kernels (registering,
 * growing, splitting, ending). They wait with a deadline and look for deaths, revocation and ranks
 * that are in another call. The user's thread; no lock. */
#ifndef SYMM_GATHER_H_
#define SYMM_GATHER_H_

#include "types.h"

/* The bootstrap's allgather, and an agreement. Unless it is only this rank's own status that fails
 * it, a failure revokes the communicator. */
symmResult_t symm_comm_gather(symm_comm *c, const void *mine, void *all, size_t bytes,
                              const char *stage);
symmResult_t symm_comm_agree(symm_comm *c, symmResult_t mine, const char *stage);

/* How calls of this communicator wait for peers: the deadline of set-up, and a check that sees
 * deaths and revocation. */
symm_wait symm_comm_wait(symm_comm *c, const char *stage);
/* The same before the mesh is connected: the check sees revocation only, and that of what it is
 * made from, but for deaths. */
symm_wait symm_comm_wait_early(symm_comm *c, const char *stage);
/* Why c can no longer be made from its parent, with its text; symmSuccess: it can. */
symmResult_t symm_comm_origin(const symm_comm *c);
/* A check of waits in which another communicator is made from this one: symmAborted once this rank
 * has called symmCommAbort. Pre: the caller has a reference; it may have ended. */
symmResult_t symm_comm_check_parent(void *parent);
/* 1, once a wait: thread ranks, and the wait has lasted a second. */
int symm_comm_waits_long(symm_comm *c);

#endif
