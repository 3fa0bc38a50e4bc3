/* watch.h - notices at once when a peer's process ends. One thread per process serves all
 * communicators. It polls the connections of the mesh for end of file and revokes the communicator.
 * When symm_watch_stop returns, the thread no longer uses this communicator. Thread ranks die
 * together, so they are not watched. */
#ifndef SYMM_WATCH_H_
#define SYMM_WATCH_H_

#include "types.h"

symmResult_t symm_watch_start(symm_comm *c);
void symm_watch_stop(symm_comm *c);
/* A communicator has become live: from here on its peers are watched. Peers that have ended already
 * are found. */
void symm_watch_look(void);

#endif
