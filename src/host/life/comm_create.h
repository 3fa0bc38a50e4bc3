/* comm_create.h - how libsymm-mpi makes communicators. Thread rules are those of
 * symmCommInitRank. */
#ifndef SYMM_COMM_CREATE_H_
#define SYMM_COMM_CREATE_H_

#include "symm.h"

struct symm_boot;

/* Creates the communicator of boot->rank over an open bootstrap and takes over the bootstrap, also
 * on failure. config may be NULL. *comm is written only on success. [collective over the
 * bootstrap's ranks] */
SYMM_API symmResult_t symm_comm_create(struct symm_boot *boot, const symmConfig_t *config,
                                       symmComm_t *comm);

#endif
