/* symm_grow.h - a communicator with more ranks. symm.h includes it.
 *
 * The ranks of a communicator and new ones, which may be other processes, make a new communicator.
 * The old one stays as it is: its windows are not the new one's, and it is destroyed apart.
 *
 *     in a rank of comm                                      in a new rank
 *     if (rank == 0) symmGetUniqueId(&id);  ...  the caller hands it over  ...
 *     symmCommGrow(comm, n, rank ? NULL : &id, -1, &more,    symmCommGrow(NULL, n, &id, k, &more,
 *                  NULL);                                                 NULL); */
#ifndef SYMM_GROW_H_
#define SYMM_GROW_H_

#include "symm.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Makes a communicator of nranks ranks, of which those of comm come first, with their numbers.
 * config NULL: of ranks of comm, comm's; of new ranks, the default. blocking 0: the ranks of comm
 * first agree, in the call; then as symmCommInitRankConfig.
 * Requires: ranks of comm pass rank -1, and one of them, whichever, an id that was made for this
 * call, in the process of any rank, old or new; of several ids that of the lowest rank counts. New
 * ranks pass comm NULL, the same id and nranks, and a rank of their own, from the number of comm's
 * ranks to nranks-1.
 * Order: collective over the ranks of comm and the new ones.
 * Errors: as symmCommInitRank, and symmInvalidArgument or symmMismatch, the same on all ranks of
 * comm, which stays usable, where their arguments are wrong or nranks differs. New ranks then get
 * symmRemoteError or symmTimeout. */
SYMM_API symmResult_t symmCommGrow(symmComm_t comm, int nranks, const symmUniqueId_t *id, int rank,
                                   symmComm_t *newcomm, const symmConfig_t *config);

#ifdef __cplusplus
}
#endif

#endif
