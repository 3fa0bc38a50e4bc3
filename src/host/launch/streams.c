/* streams.c - one call for several streams, as the sends and receives of a group may be on: it runs
 * on one of them, behind what the others have, and these go on behind it. Eager, or recorded into
 * one capture. The communicator's user thread, or the thread inside one over several domains; on
 * GPUs with the context current. No lock. */
#include "base/check.h"
#include "host/comm/comm.h"
#include "host/gpu/gpu.h"
#include "host/gpu/point.h"
#include "launch.h"

/* ---- host backend ---------------------------------------------------------------------------- */

static uint64_t capture_of(symmStream_t s) {
    uint64_t id = 0;
    return symm_stream_capture(s, &id) < 1 ? 0 : id;
}

/* What `to` is given next comes behind what `from` has. */
static symmResult_t follow_host(symmStream_t to, symmStream_t from) {
    symm_order point;
    if (symm_stream_capturing(from)) return symm_stream_follow_captured(to, from);
    symm_order_take(from, &point);
    return symm_order_wait(to, point);
}

/* ---- GPUs ------------------------------------------------------------------------------------ */

static symmResult_t follow_gpu(symm_mark *m, symmStream_t to, symmStream_t from) {
    cu_result cu = symm_mark_record(m, from);
    if (!cu) cu = symm_mark_await(m, to);
    return symm_gpu_order_error(cu, to);
}

/* ---- both ------------------------------------------------------------------------------------ */

static symmResult_t follow(const symm_comm *c, symm_mark *m, symmStream_t to, symmStream_t from) {
    return c->cuda ? follow_gpu(m, to, from) : follow_host(to, from);
}

/* in: the lead's, on GPUs. */
static symmResult_t check_together(symm_comm *c, symmStream_t lead, symmStream_t other,
                                   const symm_gpu_capture *in) {
    symm_gpu_capture at = {NULL, 0};
    if (c->cuda) SYMM_TRY(symm_launch_look(c, other, &at));
    if (c->cuda ? at.id == in->id : capture_of(lead) == capture_of(other)) return symmSuccess;
    return SYMM_ERR(symmInvalidUsage,
                    "sends and receives of one group are on streams %p and %p, which are not "
                    "recorded into the same capture",
                    (void *)lead, (void *)other);
}

symmStream_t symm_streams_lead(const symm_comm *c, const symmStream_t *streams, int n) {
    SYMM_ASSERT(n > 0);
    for (int i = 0; i < n && !c->cuda; i++)
        if (!streams[i]) return NULL;
    return streams[0];
}

symmResult_t symm_streams_gather(symm_comm *c, symmStream_t lead, const symmStream_t *streams,
                                 int n, const symm_gpu_capture *in, symm_mark *m) {
    SYMM_ASSERT(!c->cuda || (in && m));
    for (int i = 0; i < n; i++)
        if (streams[i] != lead) SYMM_TRY(check_together(c, lead, streams[i], in));
    for (int i = 0; i < n; i++)
        if (streams[i] != lead) SYMM_TRY(follow(c, m, lead, streams[i]));
    return symmSuccess;
}

symmResult_t symm_streams_scatter(const symm_comm *c, symmStream_t lead,
                                  const symmStream_t *streams, int n, symm_mark *m) {
    if (!lead && !c->cuda) return symmSuccess; /* its work has ended */
    for (int i = 0; i < n; i++)
        if (streams[i] != lead) SYMM_TRY(follow(c, m, streams[i], lead));
    return symmSuccess;
}
