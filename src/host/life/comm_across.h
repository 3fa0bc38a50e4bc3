/* comm_across.h - how libsymm-mpi makes communicators over several domains. The thread inside the
 * creating call. */
#ifndef SYMM_COMM_ACROSS_H_
#define SYMM_COMM_ACROSS_H_

#include "symm.h"
#include "base/wait.h"

struct symm_boot;
struct symm_domains;
struct symm_net;

/* Which of the bootstrap's ranks share a domain. *out: NULL where all do, and else freed by
 * symm_across_open. All ranks fail with the same error. [collective over the bootstrap's ranks] */
SYMM_API symmResult_t symm_across_find(struct symm_boot *boot, const symm_wait *w,
                                       struct symm_domains **out);
/* This rank's domain. *beside: ranks of other domains that share its cores. */
SYMM_API int symm_across_domain(const struct symm_domains *map, int *beside);
/* A map of so many ranks, which is to be sorted (host/across/domains.h). */
symmResult_t symm_across_new_map(int nranks, struct symm_domains **out);
/* Makes the communicator of a map, the communicator of this rank's domain, and a mover. status:
 * what has failed of these on this rank, with its text as the thread's last error; what is there
 * then may be NULL, but for the map. Takes over all three, also on failure, and then all ranks fail
 * with one error. [collective over the bootstrap's ranks] */
SYMM_API symmResult_t symm_across_open(struct symm_boot *boot, const symm_wait *w,
                                       symmResult_t status, struct symm_domains *map,
                                       symmComm_t inner, struct symm_net *net, symmComm_t *out);

#endif
