/* across_end.h - what calls that ask for or end any communicator do with one over several domains
 * (comm_across.c). comm: a handle of that kind. */
#ifndef SYMM_ACROSS_END_H_
#define SYMM_ACROSS_END_H_

#include "symm.h"

/* Any thread. */
symmResult_t symm_across_info(symmComm_t comm, symmCommInfo_t *info);
symmResult_t symm_across_async(symmComm_t comm, symmResult_t *error);
symmResult_t symm_across_revoke(symmComm_t comm, int flags);
/* aborts: as symmCommAbort, else as symmCommDestroy. */
symmResult_t symm_across_destroy(symmComm_t comm, int aborts);
symmResult_t symm_across_finalize(symmComm_t comm);
/* As symmCommSplit and symmCommShrink (across_child.c). */
symmResult_t symm_across_split(symmComm_t comm, int color, int key, symmComm_t *newcomm,
                               const symmConfig_t *config);
symmResult_t symm_across_shrink(symmComm_t comm, const int *excludeRanks, int nExclude,
                                symmComm_t *newcomm, const symmConfig_t *config, int flags);

#endif
