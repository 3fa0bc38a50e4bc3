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
    return c->order.observer ? c->order.observer->may_capture(c, stream) : symmSuccess;
}
static inline void symm_launch_observe(symm_comm *c, const symm_observer *o) {
    c->order.observer = o;
}
/* Host backend: what is given to the stream next comes behind the communicator's last call. */
static inline symmResult_t symm_launch_follow(symm_comm *c, symmStream_t stream) {
    if (stream == c->order.last_stream) return symmSuccess;
    SYMM_TRY(symm_order_wait(stream, c->order.last));
    c->order.last_stream = stream;
    return symmSuccess;
}
/* And was given: later calls come behind it. */
static inline void symm_launch_given(symm_comm *c, symmStream_t stream) {
    symm_order_take(stream, &c->order.last);
}
/* Behind every launch that succeeded. */
static inline void symm_launch_done(symm_comm *c, const symm_launch *l, symmStream_t stream,
                                    int captured) {
    if (c->order.observer)
        c->order.observer->called(c, stream, symm_call_hears(&l->call), captured);
}

#endif
