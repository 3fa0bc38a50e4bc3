/* failed.h - which ranks of a communicator are gone: they died, left or aborted. Any thread; no
 * lock. */
#ifndef SYMM_FAILED_H_
#define SYMM_FAILED_H_

#include "transport/mesh/survive.h"
#include "types.h"

/* As this rank sees it now: connections that have ended, ranks that were found dead, the one that
 * the abort word tells of. Nobody, as long as the communicator is being made. */
void symm_failed_see(const symm_comm *c, symm_ranks *gone);
/* The thread's last error is about one that is gone: where there are more, it goes on with all of
 * them. */
void symm_failed_name_all(const symm_comm *c);

/* Polled while this rank agrees with those that are left. The end of the communicator is why they
 * are here, so only an abort of this rank ends the wait. arg: a symm_remain. */
typedef struct {
    symm_comm *comm;
    const symm_ranks *out; /* whom nobody waits for; NULL: those that are gone */
} symm_remain;
symmResult_t symm_failed_check(void *arg);
/* The wait has come to its deadline: where this thread drives a late rank itself, the last error
 * says so. */
void symm_failed_explain(const symm_remain *l);

#endif
