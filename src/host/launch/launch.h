/* launch.h - how a call that is ready reaches a kernel: one launcher for the host backend, one for
 * GPUs, and what both know of captures. The communicator's user thread. */
#ifndef SYMM_LAUNCH_H_
#define SYMM_LAUNCH_H_

#include "host/coll/coll.h"

extern const symm_launcher symm_launch_host, symm_launch_gpu;

/* What the communicator knows of a capture; NULL if nothing. */
symm_captured *symm_captured_find(symm_comm *c, uint64_t id);
/* A call was captured there: the last one. */
symm_captured *symm_captured_note(symm_comm *c, uint64_t id, symmStream_t stream);

static inline symmResult_t symm_launch_may_capture(symm_comm *c, symmStream_t stream) {
    return c->observer ? c->observer->may_capture(c, stream) : symmSuccess;
}
/* Behind every launch that succeeded. */
static inline void symm_launch_done(symm_comm *c, const symm_launch *l, symmStream_t stream,
                                    int captured) {
    if (c->observer) c->observer->called(c, stream, symm_call_hears(&l->call), captured);
}

#endif
