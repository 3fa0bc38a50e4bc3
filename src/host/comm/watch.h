/* watch.h - sees at once when a peer's process ends. One thread per process serves all
 * communicators; it polls the mesh's connections for their end of file and fails the communicator.
 * It takes the watch lock only; symm_watch_stop returns when the thread looks at this
 * communicator no more. Thread ranks die together, so they are not watched. */
#ifndef SYMM_WATCH_H_
#define SYMM_WATCH_H_

#include "types.h"

symmResult_t symm_watch_start(symm_comm *c);
void symm_watch_stop(symm_comm *c);
/* A communicator has become live: its peers are watched from here on, and those that have ended
 * already are found. */
void symm_watch_look(void);

#endif
