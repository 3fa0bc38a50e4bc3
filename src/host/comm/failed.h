/* failed.h - which ranks of a communicator are gone: they died, left or aborted. Any thread; no lock. */
#ifndef SYMM_FAILED_H_
#define SYMM_FAILED_H_

#include "transport/mesh/survive.h"
#include "types.h"

/* As this rank sees it now: connections that have ended, ranks that were found dead, the one that the abort word tells of. Nobody,
 * as long as the communicator is being made. */
void symm_failed_see(const symm_comm *c, symm_ranks *gone);
/* The thread's last error is about one that is gone: where there are more, it goes on with all of them. */
void symm_failed_name_all(const symm_comm *c);

#endif
