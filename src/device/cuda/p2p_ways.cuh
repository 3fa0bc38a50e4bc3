/* p2p_ways.cuh - point-to-point: what a channel does next, of a sender and of a receiver. GPU code:
 * the first lane of the warp that leads the channel runs it. The rest is in p2p.cuh.
 *
 * The calls of one direction of one pair of ranks are a channel, in call order. Each channel is led
 * by one warp, whose first lane keeps its state and goes on with it wherever that needs no wait: a
 * warp goes round its channels. So no channel waits for another, however few warps there are, and
 * a list ends whatever the order in which the ranks wrote theirs down (docs/kernels.md). Grids
 * need not be equal.
 *
 * A message takes one way. Both ranks know it from its size, its head and what the receive wants:
 *   tiny   in its head.
 *   small  in the ring of its pair; then the head. The warp that leads copies it.
 *   eager  its head; then through the ring, piece by piece. It fits, so it needs no receiver.
 *   meets  its head; then the sender waits for the receiver's `want`, which comes before the head
 *          if the receiver is early. The sender stores if the receiver is in a window, else the
 *          receiver loads if the sender is in one, else it goes through the ring.
 * Large copies are jobs: any warp with nothing else to do takes the next piece of one. A piece is
 * always ready to be copied, so no warp waits with one.
 *
 * Numbers of messages and positions in rings are in the control block, so a replay goes on where
 * the last kernel ended. No epoch, no parity, no signature. */
#ifndef SYMM_CUDA_P2P_WAYS_CUH_
#define SYMM_CUDA_P2P_WAYS_CUH_

#include "../common/p2p_ring.h"
#include "dev.cuh"

/* Looks for the receiver of a message that could go into the ring: a copy less if it comes. */
#ifndef P2P_PATIENCE
#define P2P_PATIENCE 8u
#endif
#define P2P_UNIT       4096u           /* bytes that a warp has under way at once */
#define P2P_PIECE_MOST (8u * P2P_UNIT) /* of a job */
#define P2P_ALL        0xffffffffu     /* the lanes of a warp */

enum { /* what a channel does */
       P2P_BEGIN,
       P2P_MEET,  /* sender: waits for `want` */
       P2P_STORE, /* sender: its job stores */
       P2P_LEFT,  /* sender: the receiver loads; receiver: the sender stores */
       P2P_RING,  /* through the ring */
       P2P_LOAD,  /* receiver: its job loads */
       P2P_OVER
};
enum { P2P_NOTHING, P2P_MOVED, P2P_COPY, P2P_ENDED, P2P_LEAVE }; /* what a step came to */

struct channel { /* shared by a warp; its first lane writes */
    symm_gpu_p2p_op call;
    uint64_t bytes, seq;   /* of the message */
    uint64_t begins;       /* position in the ring */
    uint64_t given, moved; /* bytes given to jobs; of these, those of jobs that have ended */
    uint64_t since;        /* of wait_slow */
    char *to[2];           /* a small copy, in up to two parts */
    const char *from[2];
    uint64_t part[2];
    uint32_t at; /* its call */
    uint32_t jobs, reaped, looks;
    int does, told, alone;
};
struct p2p_shared {
    channel ch[SYMM_GPU_CHANNELS];
};

struct work { /* a warp's */
    const symm_gpu_p2p_args *args;
    const symm_args *a;
    run r;
    channel *ch;
    unsigned lane, warp, warps; /* of the CTA */
    uint64_t progress;          /* first lane: of the whole kernel, when it last looked */
    int noted;                  /* first lane: it has said what it waits in */
};

/* ---- places ---------------------------------------------------------------------------------- */

DEV symm_gpu_p2p_in *p2p_in(const symm_args *a, int source, int rank) {
    return &ctl_of(a, rank)->p2p_in[source];
}
DEV symm_gpu_p2p_out *p2p_out(const symm_args *a, int source, int rank) {
    return &ctl_of(a, source)->p2p_out[rank];
}
DEV uint64_t ring_of(const symm_args *a) {
    return a->scratch.gpu.p2p_ring;
}
DEV char *ring_at(const symm_args *a, int source, int rank, uint64_t at) {
    return flat(a, rank,
                a->scratch.gpu.p2p_off + (unsigned)source * ring_of(a) + (at & (ring_of(a) - 1)));
}
/* What a message takes of the ring. */
DEV uint64_t ring_need(uint64_t bytes) {
    return (bytes + 15) & ~15ull;
}
DEV int is_big(const symm_args *a, uint64_t bytes) {
    return bytes > SYMM_P2P_ONE_PIECE(ring_of(a));
}
/* The index, in the list, of the i-th channel of this CTA. */
DEV unsigned channel_no(unsigned i) {
    return i * gridDim.x + blockIdx.x;
}
/* What both sides do once they have met, from where their buffers are. */
DEV int way_of(uint64_t source, uint64_t target) {
    return target != SYMM_STAGED ? P2P_STORE : source != SYMM_STAGED ? P2P_LOAD : P2P_RING;
}

/* ---- calls of a channel ---------------------------------------------------------------------- */

DEV void load_call(work &w, channel &c) {
    if (w.args->listed) {
        const char *at = (const char *)&w.r.ctl->p2p.list[c.at];
        const uint4 lo = load16(at), hi = load16(at + 16);
        c.call.buff = (uint64_t)lo.y << 32 | lo.x, c.call.off = (uint64_t)lo.w << 32 | lo.z;
        c.call.count = (uint64_t)hi.y << 32 | hi.x;
        c.call.type = (uint8_t)hi.z, c.call.esize_log = (uint8_t)(hi.z >> 8);
        c.call.peer = (uint8_t)(hi.z >> 16), c.call.sends = (uint8_t)(hi.z >> 24);
        c.call.last = (uint8_t)hi.w;
    } else {
        c.call = w.args->op[c.at];
    }
    c.bytes = c.call.count << c.call.esize_log;
    c.does = P2P_BEGIN;
    c.looks = 0, c.told = 0;
    c.given = c.moved = 0;
}

/* The call has ended; if it was the channel's last one, so has the channel. */
DEV int end_call(work &w, channel &c) {
    if (!c.call.last) {
        c.at++;
        load_call(w, c);
        return P2P_MOVED;
    }
    symm_gpu_p2p *own = &w.r.ctl->p2p;
    c.does = P2P_OVER;
    if (c.call.peer == w.a->rank) give8_gpu(&own->self[c.call.sends], 1); /* pairs with is_alone */
    if (w.args->bulk) add8_gpu(&own->ended, 1); /* pairs with all_ended; else nobody asks */
    return P2P_MOVED;
}

/* ---- jobs ------------------------------------------------------------------------------------ */

DEV symm_gpu_p2p_job *job_of(const work &w, unsigned no, uint32_t i) {
    return &w.r.ctl->p2p.job[no][i % SYMM_GPU_P2P_JOBS];
}

/* The next job of channel `no`: whatever warp is free copies its pieces. All earlier jobs in this
 * place have ended, so nobody reads it any more. */
DEV int open_job(work &w, channel &c, unsigned no, char *to, const char *from, uint64_t bytes) {
    symm_gpu_p2p_job *j = job_of(w, no, c.jobs++);
    uint64_t piece = (bytes >> 9) / P2P_UNIT * P2P_UNIT;
    if (piece < P2P_UNIT) piece = P2P_UNIT;
    if (piece > P2P_PIECE_MOST) piece = P2P_PIECE_MOST;
    put8(&j->src, (uint64_t)(uintptr_t)from);
    put8(&j->dst, (uint64_t)(uintptr_t)to);
    put8(&j->bytes, bytes);
    put8(&j->piece, piece);
    put8(&j->done, 0);
    give8_gpu(&j->claim, (bytes + piece - 1) / piece << 32); /* pairs with claim_piece */
    c.given += bytes;
    return P2P_MOVED;
}

/* 1: the oldest job has ended; its bytes are in c.moved, and what it copied comes before what is
 * released from here on. */
DEV int reap_job(work &w, channel &c, unsigned no) {
    if (c.reaped == c.jobs) return 0;
    symm_gpu_p2p_job *j = job_of(w, no, c.reaped);
    const uint64_t bytes = get8(&j->bytes), piece = get8(&j->piece);
    if (take8_gpu(&j->done) != (bytes + piece - 1) / piece) return 0; /* pairs with copy_piece */
    c.reaped++;
    c.moved += bytes;
    return 1;
}

/* Bytes of the message for its next job in the ring, of `there` that are free, or filled. */
DEV uint64_t ring_part(const symm_args *a, const channel &c, int64_t there) {
    const uint64_t ring = ring_of(a), at = (c.begins + c.given) & (ring - 1);
    uint64_t part = c.bytes - c.given;
    if (there <= 0 || c.jobs - c.reaped == SYMM_GPU_P2P_JOBS) return 0;
    if (part > (uint64_t)there) part = (uint64_t)there;
    if (part > ring / 4) part = ring / 4;
    return part > ring - at ? ring - at : part;
}
/* Position behind what has been moved; a message takes whole units of 16 bytes. */
DEV uint64_t ring_moved(const channel &c) {
    return c.begins + (c.moved == c.bytes ? ring_need(c.bytes) : c.moved);
}

/* ---- small copies ---------------------------------------------------------------------------- */

DEV void set_copy(channel &c, char *to, const char *from, uint64_t bytes) {
    c.to[0] = to, c.from[0] = from;
    c.part[0] = bytes, c.part[1] = 0;
}
/* Between the buffer and the ring, which may end inside the message. */
DEV void set_ring_copy(const symm_args *a, channel &c, int source, int rank) {
    const uint64_t ring = ring_of(a), left = ring - (c.begins & (ring - 1));
    char *buff = (char *)(uintptr_t)c.call.buff;
    uint64_t done = 0;
    for (int i = 0; i < 2; i++) {
        const uint64_t rest = c.bytes - done, part = !i && rest > left ? left : rest;
        char *place = ring_at(a, source, rank, c.begins + done);
        c.to[i] = c.call.sends ? place : buff + done;
        c.from[i] = c.call.sends ? buff + done : place;
        c.part[i] = part;
        done += part;
    }
}

/* ---- sender: all by the first lane ----------------------------------------------------------- */

DEV void put_head(work &w, channel &c, int meets) {
    const int peer = c.call.peer;
    symm_gpu_p2p_out *out = p2p_out(w.a, w.a->rank, peer);
    symm_p2p_head *head = &p2p_in(w.a, w.a->rank, peer)->head[c.seq % SYMM_P2P_SLOTS];
    put8(&head->count, c.call.count);
    put8(&head->type, c.call.type);
    if (c.bytes > SYMM_P2P_TINY) {
        put8(&head->from, c.call.off);
        put8(&head->begins, c.begins);
        put8(&head->meets, (unsigned)meets);
    }
    give8(&head->seq, c.seq); /* pairs with receive_begin */
    put8(&out->sent, c.seq);
}

/* Whether the receive has said what it wants, and wants what we send. One that differs finds that
 * out itself, by the head. */
DEV int has_met(const symm_gpu_p2p_want *want, const channel &c) {
    return take8(&want->no) == c.seq && /* pairs with announce */
           get8(&want->count) == c.call.count && get8(&want->type) == c.call.type;
}

static __device__ __noinline__ int send_begin(work &w, channel &c) {
    const symm_args *a = w.a;
    const int peer = c.call.peer;
    symm_gpu_p2p_out *out = p2p_out(a, a->rank, peer);
    const uint64_t need = ring_need(c.bytes);
    c.seq = get8(&out->sent) + 1;
    c.begins = get8(&out->at);
    if (c.seq > SYMM_P2P_SLOTS &&
        (int64_t)(c.seq - SYMM_P2P_SLOTS - take8(&out->taken)) > 0) /* pairs with received */
        return P2P_NOTHING;
    if (c.bytes <= SYMM_P2P_TINY) {
        set_copy(c, p2p_in(a, a->rank, peer)->head[c.seq % SYMM_P2P_SLOTS].tiny,
                 (const char *)(uintptr_t)c.call.buff, c.bytes);
        return P2P_COPY;
    }
    if (!is_big(a, c.bytes)) {
        /* pairs with give_back */
        if (c.begins + need - take8(&out->taken_at) > ring_of(a)) return P2P_NOTHING;
        set_ring_copy(a, c, a->rank, peer);
        return P2P_COPY;
    }
    const int fits = need <= ring_of(a), met = has_met(&out->want[c.seq & 1], c);
    if (fits && !met && c.looks++ < P2P_PATIENCE) return P2P_NOTHING;
    put_head(w, c, met || !fits);
    c.does = met || !fits ? P2P_MEET : P2P_RING;
    return P2P_MOVED;
}

/* The head's `meets` has told the receiver that we wait for its `want`. */
DEV int send_meet(work &w, channel &c, unsigned no) {
    const symm_args *a = w.a;
    const symm_gpu_p2p_want *want = &p2p_out(a, a->rank, c.call.peer)->want[c.seq & 1];
    if (!has_met(want, c)) return P2P_NOTHING;
    const uint64_t off = get8(&want->off);
    const int way = way_of(c.call.off, off);
    c.does = way == P2P_LOAD ? P2P_LEFT : way;
    return way == P2P_STORE ? open_job(w, c, no, flat(a, c.call.peer, off),
                                       (const char *)(uintptr_t)c.call.buff, c.bytes)
                            : P2P_MOVED;
}

DEV int send_ring(work &w, channel &c, unsigned no) {
    const symm_args *a = w.a;
    const int peer = c.call.peer;
    symm_gpu_p2p_out *out = p2p_out(a, a->rank, peer);
    if (reap_job(w, c, no)) {
        give8(&p2p_in(a, a->rank, peer)->filled, ring_moved(c)); /* pairs with receive_ring */
        if (c.moved < c.bytes) return P2P_MOVED;
        put8(&out->at, ring_moved(c));
        return end_call(w, c);
    }
    if (c.given == c.bytes) return P2P_NOTHING;
    const uint64_t at = c.begins + c.given,
                   part = ring_part(a, c, (int64_t)(take8(&out->taken_at) + ring_of(a) - at));
    return part ? open_job(w, c, no, ring_at(a, a->rank, peer, at),
                           (const char *)(uintptr_t)c.call.buff + c.given, part)
                : P2P_NOTHING;
}

static __device__ __noinline__ int send_step(work &w, channel &c, unsigned no) {
    const symm_args *a = w.a;
    const int peer = c.call.peer;
    switch (c.does) {
    case P2P_BEGIN: return send_begin(w, c);
    case P2P_MEET: return send_meet(w, c, no);
    case P2P_RING: return send_ring(w, c, no);
    case P2P_STORE:
        if (!reap_job(w, c, no)) return P2P_NOTHING;
        give8(&p2p_in(a, a->rank, peer)->stored, c.seq); /* pairs with receive_step */
        return end_call(w, c);
    default:                                                    /* the receiver loads */
        return take8(&p2p_out(a, a->rank, peer)->taken) < c.seq /* pairs with received */
                   ? P2P_NOTHING
                   : end_call(w, c);
    }
}

/* Behind the copy of a tiny or small message. */
DEV void send_copied(work &w, channel &c) {
    if (c.bytes > SYMM_P2P_TINY)
        put8(&p2p_out(w.a, w.a->rank, c.call.peer)->at, c.begins + ring_need(c.bytes));
    put_head(w, c, 0);
    end_call(w, c);
}

/* ---- receiver: all by the first lane --------------------------------------------------------- */

/* A sender that waits for us may do what we want from here on. */
DEV int announce(work &w, channel &c) {
    symm_gpu_p2p_want *want = &p2p_out(w.a, c.call.peer, w.a->rank)->want[c.seq & 1];
    put8(&want->count, c.call.count);
    put8(&want->type, c.call.type);
    put8(&want->off, c.call.off);
    give8(&want->no, c.seq); /* pairs with has_met */
    c.told = 1;
    return P2P_MOVED;
}

/* Up to position `at` the ring is the sender's again. */
DEV void give_back(work &w, const channel &c, uint64_t at) {
    /* pairs with send_begin and send_ring */
    give8(&p2p_out(w.a, c.call.peer, w.a->rank)->taken_at, at);
}

/* Its head, its place of `want` and the sender's buffer are read no more, nor the ring up to `at`:
 * one fence releases both words. */
DEV int received(work &w, channel &c, uint64_t at) {
    symm_gpu_p2p_out *out = p2p_out(w.a, c.call.peer, w.a->rank);
    put8(&p2p_in(w.a, c.call.peer, w.a->rank)->received, c.seq);
    __threadfence_system(); /* both pair with send_begin and send_step */
    if (at) put8(&out->taken_at, at);
    put8(&out->taken, c.seq);
    return end_call(w, c);
}

/* Says for all ranks what each of the two means, and leaves. */
static __device__ __noinline__ int receive_differs(work &w, channel &c, uint64_t count,
                                                   uint64_t type) {
    symm_p2p_note *note = &host_of(w.a, w.a->rank)->p2p;
    put8(&note->sent_count, count);
    put8(&note->sent_type, type);
    put8(&note->recv_count, c.call.count);
    put8(&note->recv_type, c.call.type);
    /* Pairs with symm_message_differs (call_log.c). */
    give8(&note->differ, (uint64_t)c.call.peer << 32 | ((unsigned)w.a->rank + 1));
    leave(w.a, 0, symmMismatch, c.call.peer, SYMM_STAGE_P2P);
    return P2P_LEAVE;
}

DEV int receive_met(work &w, channel &c, unsigned no, uint64_t source) {
    const int way = way_of(source, c.call.off);
    if (!c.told) announce(w, c);
    c.does = way == P2P_STORE ? P2P_LEFT : way;
    return way == P2P_LOAD ? open_job(w, c, no, (char *)(uintptr_t)c.call.buff,
                                      flat(w.a, c.call.peer, source), c.bytes)
                           : P2P_MOVED;
}

static __device__ __noinline__ int receive_begin(work &w, channel &c, unsigned no) {
    const symm_args *a = w.a;
    symm_gpu_p2p_in *in = p2p_in(a, c.call.peer, a->rank);
    const int big = is_big(a, c.bytes);
    c.seq = get8(&in->received) + 1;
    const symm_p2p_head *head = &in->head[c.seq % SYMM_P2P_SLOTS];
    if (take8(&head->seq) != c.seq) /* pairs with put_head */
        return big && !c.told ? announce(w, c) : P2P_NOTHING;
    const uint64_t count = get8(&head->count), type = get8(&head->type);
    if (count != c.call.count || type != c.call.type) return receive_differs(w, c, count, type);
    if (c.bytes <= SYMM_P2P_TINY) {
        set_copy(c, (char *)(uintptr_t)c.call.buff, head->tiny, c.bytes);
        return P2P_COPY;
    }
    c.begins = get8(&head->begins);
    if (!big) {
        set_ring_copy(a, c, c.call.peer, a->rank);
        return P2P_COPY;
    }
    if (get8(&head->meets)) return receive_met(w, c, no, get8(&head->from));
    c.does = P2P_RING;
    return P2P_MOVED;
}

DEV int receive_ring(work &w, channel &c, unsigned no) {
    const symm_args *a = w.a;
    const int peer = c.call.peer;
    if (reap_job(w, c, no)) {
        if (c.moved == c.bytes) return received(w, c, ring_moved(c));
        give_back(w, c, ring_moved(c));
        return P2P_MOVED;
    }
    if (c.given == c.bytes) return P2P_NOTHING;
    /* pairs with send_ring */
    const uint64_t at = c.begins + c.given, filled = take8(&p2p_in(a, peer, a->rank)->filled),
                   part = ring_part(a, c, (int64_t)(filled - at));
    return part ? open_job(w, c, no, (char *)(uintptr_t)c.call.buff + c.given,
                           ring_at(a, peer, a->rank, at), part)
                : P2P_NOTHING;
}

static __device__ __noinline__ int receive_step(work &w, channel &c, unsigned no) {
    switch (c.does) {
    case P2P_BEGIN: return receive_begin(w, c, no);
    case P2P_RING: return receive_ring(w, c, no);
    case P2P_LOAD: return reap_job(w, c, no) ? received(w, c, 0) : P2P_NOTHING;
    default: /* the sender stores; pairs with send_step */
        return take8(&p2p_in(w.a, c.call.peer, w.a->rank)->stored) < c.seq ? P2P_NOTHING
                                                                           : received(w, c, 0);
    }
}

/* Behind the copy of a tiny or small message. */
DEV void receive_copied(work &w, channel &c) {
    received(w, c, c.bytes > SYMM_P2P_TINY ? c.begins + ring_need(c.bytes) : 0);
}

#endif
