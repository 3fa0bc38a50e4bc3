/* launch_messages_gpu.c - sends and receives on GPUs: one kernel for a list. Its calls lie in the
 * kernel's arguments, so a graph has them by value; those of a long list are put into the control
 * block by small kernels before it. The communicator's user thread, with its context current; no
 * lock. An eager list allocates nothing, but for an event if it has several streams. */
#include "base/check.h"
#include "device/host/reduce.h"
#include "host/comm/comm.h"
#include "host/gpu/gpu.h"
#include "host/gpu/point.h"
#include "host/window/window.h"
#include "keep.h"
#include "launch.h"

/* ---- arguments ------------------------------------------------------------------------------- */

static symm_gpu_p2p_op op_of(const symm_p2p_op *op) {
    return (symm_gpu_p2p_op){.buff = (uintptr_t)op->buff,
                             .off = op->off,
                             .count = op->count,
                             .type = (uint8_t)op->type,
                             .esize_log = (uint8_t)__builtin_ctzll(symm_type_size(op->type)),
                             .peer = (uint8_t)op->peer,
                             .sends = op->sends,
                             .last = op->next < 0};
}

typedef struct { /* a list on its way to the GPU */
    symm_comm *comm;
    symmStream_t stream;
    uint64_t capture;
    symm_gpu_p2p_args args; /* calls that were not put into the control block yet */
    int put;                /* how many were */
} sender;

/* The calls in the arguments go into the control block. */
static symmResult_t put_ops(sender *s) {
    const symm_gpu_grid grid = {s->comm->gpu->message_list, 1, 128, SYMM_GRID_ALONE};
    const uint16_t first = s->args.first[0];
    SYMM_ASSERT(s->args.ops && s->put + s->args.ops <= SYMM_GPU_P2P_LIST);
    s->args.first[0] = (uint16_t)s->put;
    void *args[] = {&s->args};
    SYMM_TRY(symm_launch_kernel(s->comm, &grid, args, s->stream, s->capture));
    s->args.first[0] = first;
    s->put += s->args.ops;
    s->args.ops = 0;
    return symmSuccess;
}

/* Channel after channel. If not all of them fit, all go into the control block. */
static symmResult_t put_list(sender *s, const symm_p2p_list *l) {
    int made = 0;
    SYMM_ASSERT(l->n <= SYMM_GPU_P2P_LIST && l->nchannels <= SYMM_GPU_CHANNELS);
    for (int k = 0; k < l->nchannels; k++) {
        s->args.first[k] = (uint16_t)made;
        for (int i = l->channels[k].first; i >= 0; i = l->ops[i].next, made++) {
            if (s->args.ops == SYMM_GPU_P2P_INLINE) SYMM_TRY(put_ops(s));
            s->args.op[s->args.ops++] = op_of(&l->ops[i]);
            if (l->ops[i].peer == s->comm->rank) s->args.self |= (uint8_t)(1 << l->ops[i].sends);
        }
    }
    SYMM_ASSERT(made == l->n);
    s->args.channels = (uint32_t)l->nchannels;
    if (s->put && s->args.ops) SYMM_TRY(put_ops(s));
    s->args.listed = (uint32_t)s->put;
    return symmSuccess;
}

static symmResult_t launch(symm_comm *c, void *call, symmStream_t stream, uint64_t capture,
                           uint32_t serial, int *ctas) {
    const symm_p2p_list *l = call;
    const symm_message_grid g = symm_launch_message_grid(c, l->args, l->ops, l->n, l->nchannels);
    const symm_gpu_grid grid = {c->gpu->messages, g.ctas, g.threads, SYMM_GRID_OVERLAPS};
    sender s = {.comm = c, .stream = stream, .capture = capture};
    s.args.a = *l->args;
    SYMM_TRY(put_list(&s, l));
    SYMM_ASSERT(s.args.channels > 0 && !s.args.listed == (s.args.ops > 0));
    s.args.a.nctas = grid.ctas;
    s.args.a.gpu.serial = serial;
    *ctas = grid.ctas;
    SYMM_ASSERT(grid.ctas <= c->gpus.budget || c->gpus.budget < 1);
    void *args[] = {&s.args};
    return symm_launch_kernel(c, &grid, args, stream, capture);
}

/* ---- launching ------------------------------------------------------------------------------- */

static symmResult_t hold(symm_comm *c, const symm_gpu_capture *in, void *call) {
    symm_p2p_list *l = call;
    if (symm_gpu_pins(c)) {
        for (int i = 0; i < l->n; i++) SYMM_TRY(symm_launch_pin(c, l->wins[i]));
        return symmSuccess;
    }
    return symm_launch_hold(c, in, symm_kept_list_new(c, l), &symm_kept_list_held,
                            "sends and receives");
}
static const symm_gpu_call messages = {launch, hold};

/* ---- several streams in a group -------------------------------------------------------------- */

static symmResult_t run(symm_comm *c, symm_p2p_list *l, const symmStream_t *streams, int n,
                        symm_gpu_capture *in, symm_mark *m) {
    const symmStream_t lead = symm_streams_lead(c, streams, n);
    SYMM_TRY(symm_launch_look(c, lead, in));
    SYMM_TRY(symm_streams_gather(c, lead, streams, n, in, m));
    SYMM_TRY(symm_launch_uncounted(c, &messages, l, lead, in));
    return symm_streams_scatter(c, lead, streams, n, m);
}

symmResult_t symm_launch_messages_gpu(symm_comm *c, symm_p2p_list *list,
                                      const symmStream_t *streams, int nstreams) {
    symm_cuda_scope scope;
    symm_gpu_capture in = {NULL, 0};
    symm_mark m = {.seq = 0};
    SYMM_ASSERT(nstreams > 0 && nstreams <= list->n);
    symmResult_t r = symm_gpu_enter(c, &scope);
    if (!r) {
        r = run(c, list, streams, nstreams, &in, &m);
        symm_gpu_leave(&scope);
    }
    if (m.event) symm_mark_end(c, &m);
    return symm_launch_result(c, r, &in);
}
