/* p2p_ways.cuh - point-to-point: where things lie, lines of messages in the ring of a pair, and
 * what a team counts. GPU code: whole warps run it, all lanes with the same state. What a channel
 * does next is in p2p.cuh.
 *
 * The calls of one direction of one pair of ranks are a channel, in call order. Each channel has a
 * team of warps: if there are more warps than channels each warp is of one team, else each team is
 * one warp, which goes round its channels. Every member walks through all calls and takes a share
 * that follows from its number. So no claim, and no word that two members read, stands before the
 * data. Teams of both sides need not be equal: no place says which warp it is of.
 *
 * The ring of a pair is cut into units of 512 bytes: four lines with flags (dev.cuh), 480 bytes of
 * data. Units have numbers from 0, for ever; that of a unit, and one, is its flag. A ring never
 * holds anything but units, so a flag lies where only flags have lain, and an old one is smaller.
 * A message begins with a unit that says its count and type. What it means follows from its size,
 * which both sides know:
 *   lines  up to the ring: the data behind the head, in as many units as it needs.
 *   meets  beyond: the head alone. The sender waits for the receiver's `want`. It stores if the
 *          receiver is in a window, else the receiver loads if the sender is in one, else the data
 *          goes in units behind the head.
 *
 * A ring has segments. Members count the units that they have taken of each; who completes one
 * tells the sender, who then may use it again. No order of segments: the sender asks for the one
 * that it wants to write.
 *
 * Where the ring of a pair stands is in the control block, so a replay goes on where the last
 * kernel ended. No epoch, no parity, no signature. */
#ifndef SYMM_CUDA_P2P_WAYS_CUH_
#define SYMM_CUDA_P2P_WAYS_CUH_

#include "../common/p2p_ring.h"
#include "copy.cuh"

#define P2P_HEAD 16u /* bytes of a head, in the first unit */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1000
#define P2P_RUN 2u /* what its compiler has registers for */
#else
#define P2P_RUN 4u /* units that a warp moves together */
#endif
#define P2P_ALL 0xffffffffu /* the lanes of a warp */

enum { /* what a channel does */
       P2P_BEGIN,
       P2P_LINES, /* its share of the units */
       P2P_MEET,  /* sender: waits for `want`; receiver: for the head */
       P2P_ROUND, /* receiver: all members have read the head */
       P2P_COPY,  /* its share of a direct copy */
       P2P_COUNT, /* all members have done their share */
       P2P_AWAIT  /* for the other side's word that it has ended */
};
enum { P2P_NOTHING, P2P_MOVED, P2P_ENDED, P2P_LEAVE }; /* what a step came to */

/* Of one member, the same in all lanes. While it works on a channel its warp has this in registers:
 * so what is rarely needed is not here, and what a call says is packed. */
struct channel {
    uint64_t buff, off, bytes; /* of the call */
    uint64_t unit;             /* at which the message begins */
    uint64_t at;               /* the next unit, or piece, of this member's share */
    uint32_t call;             /* see call_type and the next */
    uint32_t taken, taken_in; /* units taken of this segment (of all laps, its number's low half) */
    uint32_t lead;            /* bytes of units before the data; 0: no data in units */
    uint32_t team;            /* members */
    uint8_t does, stuck, mates; /* mates: waits for its own team */
};
/* The rest of it, in shared memory. Its first lane writes it. */
struct member {
    uint64_t other;         /* the peer's buffer, or what its head says of it */
    uint64_t since;         /* first lane's: of wait_slow */
    uint32_t no, at;        /* the channel; of its team */
    uint32_t index, rounds; /* the call; first lane's: rounds of the team */
    int slot, alone;        /* first lane's */
};
struct p2p_slot {
    channel c; /* if the warp has several, or the registers are needed */
    member m;
};
/* Teams of one warp have several channels each, and then a CTA has no more than this. */
#define P2P_SLOTS (SYMM_GPU_CHANNELS + SYMM_GPU_P2P_THREADS / 32)
struct p2p_shared {
    p2p_slot slot[P2P_SLOTS];
    uint64_t kernel; /* kernels of sends and receives before this one; all warps write it */
};

struct work { /* a warp's */
    const symm_gpu_p2p_args *args;
    const symm_args *a;
    run r;
    p2p_shared *shared;
    piece mine;
    unsigned lane, slots;
    unsigned now; /* the slot that it is at */
};

DEV member &member_of(const work &w) {
    return w.shared->slot[w.now].m;
}
/* 1: of its team this is the one that looks after heads and ends. */
DEV int is_first(const work &w) {
    return !member_of(w).at;
}
/* By all lanes, of which each has the value. */
DEV void set_other(const work &w, uint64_t other) {
    __syncwarp(); /* all have read what is written over */
    if (w.lane == 0) member_of(w).other = other;
    __syncwarp();
}

/* What a call says: its type, its element's size, its peer, whether it sends, whether it is the
 * channel's last one. */
DEV unsigned call_type(const channel &c) {
    return c.call & 255u;
}
DEV unsigned call_log(const channel &c) {
    return c.call >> 8 & 15u;
}
DEV int call_last(const channel &c) {
    return (int)(c.call >> 12 & 1u);
}
DEV int call_sends(const channel &c) {
    return (int)(c.call >> 13 & 1u);
}
DEV int call_peer(const channel &c) {
    return (int)(c.call >> 16);
}

/* ---- places ---------------------------------------------------------------------------------- */

DEV symm_gpu_p2p_in *p2p_in(const symm_args *a, int source, int rank) {
    return &ctl_of(a, rank)->p2p_in[source];
}
DEV symm_gpu_p2p_out *p2p_out(const symm_args *a, int source, int rank) {
    return &ctl_of(a, source)->p2p_out[rank];
}
/* The records of this channel's pair. */
DEV symm_gpu_p2p_in *in_of(const work &w, const channel &c) {
    return call_sends(c) ? p2p_in(w.a, w.a->rank, call_peer(c))
                         : p2p_in(w.a, call_peer(c), w.a->rank);
}
DEV symm_gpu_p2p_out *out_of(const work &w, const channel &c) {
    return call_sends(c) ? p2p_out(w.a, w.a->rank, call_peer(c))
                         : p2p_out(w.a, call_peer(c), w.a->rank);
}
DEV uint64_t ring_units(const symm_args *a) {
    return SYMM_P2P_GPU_BYTES(a->scratch.gpu.p2p_ring) / LINE_BYTES;
}
/* Units of a segment: a power of two, as the ring. */
DEV unsigned segment_log(const symm_args *a) {
    return (unsigned)__ffs((int)(ring_units(a) / SYMM_GPU_P2P_SEGMENTS)) - 1;
}
/* The ring of the channel's pair: where this lane's 16 bytes of its units lie. */
DEV char *ring_of(const work &w, const channel &c) {
    const symm_args *a = w.a;
    const int source = call_sends(c) ? a->rank : call_peer(c);
    const int rank = call_sends(c) ? call_peer(c) : a->rank;
    return flat(a, rank,
                a->scratch.gpu.p2p_off +
                    (unsigned)source * SYMM_P2P_GPU_BYTES(a->scratch.gpu.p2p_ring)) +
           w.lane * 16;
}
/* From there to a unit. */
DEV uint32_t place_of(const work &w, uint64_t unit) {
    return ((uint32_t)unit & ((uint32_t)ring_units(w.a) - 1)) * LINE_BYTES;
}
/* What the head of a message says first, and what a receive wants. */
#define WORD_COUNT (~0ull >> 8)
DEV uint64_t word_of(const channel &c) {
    return c.bytes >> call_log(c) | (uint64_t)call_type(c) << 56;
}
DEV int is_big(const work &w, const channel &c) {
    return c.bytes > w.a->scratch.gpu.p2p_ring;
}
/* What both sides do once they have met, from where their buffers are. */
enum { P2P_STORES, P2P_LOADS, P2P_IN_UNITS };
DEV int way_of(uint64_t source, uint64_t target) {
    return target != SYMM_STAGED ? P2P_STORES : source != SYMM_STAGED ? P2P_LOADS : P2P_IN_UNITS;
}
DEV uint64_t units_of(const channel &c) {
    return c.lead ? (c.bytes + c.lead + (LINE_DATA - 1)) / LINE_DATA : 1;
}

/* ---- calls of a channel ---------------------------------------------------------------------- */

DEV uint64_t low_word(const uint4 &v) {
    return (uint64_t)v.y << 32 | v.x;
}
DEV uint64_t high_word(const uint4 &v) {
    return (uint64_t)v.w << 32 | v.z;
}
DEV uint4 two_words(uint64_t low, uint64_t high) {
    return make_uint4((uint32_t)low, (uint32_t)(low >> 32), (uint32_t)high, (uint32_t)(high >> 32));
}
DEV void load_call(const work &w, channel &c) {
    uint64_t count;
    uint32_t what, last;
    if (w.args->listed) {
        const char *at = (const char *)&w.r.ctl->p2p.list[member_of(w).index];
        const uint4 lo = load16(at), hi = load16(at + 16);
        c.buff = low_word(lo), c.off = high_word(lo);
        count = low_word(hi);
        what = hi.z, last = hi.w & 1u;
    } else {
        const symm_gpu_p2p_op *op = &w.args->op[member_of(w).index];
        c.buff = op->buff, c.off = op->off, count = op->count;
        what = op->type | (uint32_t)op->esize_log << 8 | (uint32_t)op->peer << 16 |
               (uint32_t)op->sends << 24;
        last = op->last;
    }
    c.call = (what & 0xff0fffu) | last << 12 | (what >> 24 & 1u) << 13;
    c.bytes = count << call_log(c);
    c.does = P2P_BEGIN;
    c.stuck = 0;
}

/* Where the pair's ring stands: the newer of two places. What a member of this kernel has written
 * already, whose number is that of this kernel, does not count; the older place is written next. */
DEV void load_place(const work &w, channel &c, member &m, uint64_t kernel) {
    const symm_gpu_p2p_at *at = call_sends(c) ? out_of(w, c)->at : in_of(w, c)->at;
    uint64_t unit = 0;
    if (w.lane == 0) {
        const uint4 v = get16(&at[0]), u = get16(&at[1]);
        const uint64_t first = high_word(v), second = high_word(u);
        const int use = first > kernel || (second <= kernel && second > first);
        unit = low_word(use ? u : v);
        m.slot = !use;
    }
    c.unit = __shfl_sync(P2P_ALL, unit, 0);
}

/* ---- counting -------------------------------------------------------------------------------- */

/* Tells how many units this member has taken. What it has loaded from them it has stored, so its
 * loads have returned: neither the count nor the sender's word needs a fence. ended: the channel's
 * last message ends before c.unit. If that is in the same segment, nobody completes this one in
 * this kernel, so nobody waits for what the count has come to. */
DEV void tell_taken(const work &w, channel &c, int ended = 0) {
    if (!c.taken) return;
    const unsigned i = c.taken_in % SYMM_GPU_P2P_SEGMENTS, log = segment_log(w.a);
    const int only = ended && (uint32_t)(c.unit >> log) == c.taken_in;
    __syncwarp(); /* all lanes have loaded what is counted */
    if (w.lane == 0 && only) count8_gpu(&in_of(w, c)->taken[i], c.taken);
    if (w.lane == 0 && !only) {
        const uint64_t now = count8_gpu(&in_of(w, c)->taken[i], c.taken) + c.taken;
        const int all = !(now & ((1u << log) - 1));
        if (all) put8(&out_of(w, c)->credit[i], now); /* pairs with free_units */
    }
    __syncwarp();
    c.taken = 0;
}
DEV void take_unit(const work &w, channel &c, uint64_t unit) {
    const uint32_t in = (uint32_t)(unit >> segment_log(w.a));
    if (c.taken_in != in) tell_taken(w, c);
    c.taken_in = in;
    c.taken++;
}

/* A round of the team: 0, a member has not done the one before; 2, this is its last one, behind
 * all that the others have done; else 1. Whole warp. */
DEV int count_round(const work &w, channel &c) {
    int got = 0;
    __syncwarp(); /* all lanes' accesses come before the count */
    if (c.team == 1) return 2;
    if (w.lane == 0) {
        member &m = member_of(w);
        uint64_t *done = &w.r.ctl->p2p.team[m.no].done;
        const uint64_t before = (uint64_t)m.rounds * c.team;
        if (get8(done) >= before) /* pairs with the others' */
            got = 1 + (add8_gpu(done, 1) == before + c.team - 1);
        m.rounds += got > 0;
    }
    got = __shfl_sync(P2P_ALL, got, 0);
    __syncwarp();
    c.mates = !got;
    return got;
}

/* ---- units ----------------------------------------------------------------------------------- */

/* Units of the share to be moved together: several only if each lane has all of its piece of each,
 * or nothing, at multiples of 16 bytes. */
DEV unsigned run_of(const channel &c, int *whole) {
    const uint64_t units = units_of(c), t = c.team;
    unsigned n = 1;
#pragma unroll
    for (unsigned u = 1; u < P2P_RUN; u++) n += c.at + u * t < units;
    *whole = !(c.buff & 15u) &&
             (!(c.bytes & 15u) || (c.at + (n - 1) * t + 1) * LINE_DATA - c.lead <= c.bytes);
    return *whole ? n : 1;
}
/* Where this lane's data of a unit lies in the buffer, and how much of it there is. */
DEV int64_t data_from(const work &w, const channel &c, uint64_t at) {
    return (int64_t)(at * LINE_DATA + (unsigned)w.mine.at) - (int64_t)c.lead;
}
DEV int64_t data_valid(const channel &c, int64_t from) {
    return from < 0 ? 0 : (int64_t)c.bytes - from;
}
/* Of `n` whole units of the share those of which this lane has its piece: from the first one, or
 * the second, which has the head, up to the last, or the one before. A piece's bytes, or 0. */
struct piece_range {
    unsigned first, end;
    int size;
};
DEV piece_range pieces_in(const work &w, const channel &c, unsigned n, int64_t from) {
    const int64_t last = from + (int64_t)(n - 1) * c.team * LINE_DATA;
    return {from < 0, n - (last >= (int64_t)c.bytes), w.mine.flags ? 8 : 16};
}

/* What is not whole. Not inlined: registers belong to the rest. */
static __device__ __noinline__ uint4 load_odd(const char *p, int64_t valid, int flags) {
    uint32_t v[4] = {}, half[2];
    if (!flags) load_user(v, p, valid, alignment(p));
    if (flags) load_user(half, p, valid, alignment(p)), v[0] = half[0], v[1] = half[1];
    return make_uint4(v[0], v[1], v[2], v[3]);
}
static __device__ __noinline__ void store_odd(char *p, uint4 v, int64_t valid, int flags) {
    const uint32_t all[4] = {v.x, v.y, v.z, v.w}, half[2] = {v.x, v.y};
    if (flags)
        store_user(p, half, valid, alignment(p));
    else
        store_user(p, all, valid, alignment(p));
}

DEV void load_units(const work &w, const channel &c, unsigned n, int whole,
                    uint32_t (&v)[P2P_RUN][4]) {
    const char *buff = (const char *)(uintptr_t)c.buff;
    const int64_t from = data_from(w, c, c.at);
    if (whole) {
        const piece_range m = pieces_in(w, c, n, from);
        const unsigned upper = upper_of(w.mine);
#pragma unroll
        for (unsigned u = 0; u < P2P_RUN; u++)
            load16_if(v[u], buff + from - upper + (uint64_t)(u * c.team) * LINE_DATA,
                      u >= m.first && u < m.end);
#pragma unroll
        for (unsigned u = 0; u < P2P_RUN; u++) lower(v[u], upper);
    } else {
        const uint4 one = load_odd(buff + from, data_valid(c, from), w.mine.flags);
        v[0][0] = one.x, v[0][1] = one.y, v[0][2] = one.z, v[0][3] = one.w;
    }
}
DEV void store_units(const work &w, const channel &c, unsigned n, int whole,
                     const uint32_t (&v)[P2P_RUN][4]) {
    char *buff = (char *)(uintptr_t)c.buff;
    const int64_t from = data_from(w, c, c.at);
    if (whole) {
        const piece_range m = pieces_in(w, c, n, from);
#pragma unroll
        for (unsigned u = 0; u < P2P_RUN; u++)
            store_sized(buff + from + (uint64_t)(u * c.team) * LINE_DATA, v[u],
                        u >= m.first && u < m.end ? m.size : 0);
    } else {
        store_odd(buff + from, make_uint4(v[0][0], v[0][1], v[0][2], v[0][3]), data_valid(c, from),
                  w.mine.flags);
    }
}

/* What is free of the next `n` units of the share. Relaxed: nothing is read behind it, and no store
 * goes before the load that decides over it. */
DEV unsigned free_units(const work &w, const channel &c, unsigned n) {
    const unsigned log = segment_log(w.a);
    const uint64_t unit = c.unit + c.at + (uint64_t)(w.lane < n ? w.lane : 0) * c.team,
                   in = unit >> log, lap = in / SYMM_GPU_P2P_SEGMENTS;
    /* Pairs with tell_taken. By all lanes, so not behind a branch. */
    const uint64_t has = get8(&out_of(w, c)->credit[in % SYMM_GPU_P2P_SEGMENTS]);
    const int is = w.lane < n && has >= lap << log;
    return (unsigned)__ffs((int)~__ballot_sync(P2P_ALL, is)) - 1;
}
DEV void put_unit(const work &w, char *ring, uint64_t unit, const uint32_t (&v)[4]) {
    line_put(ring + place_of(w, unit), line_pack(v, w.mine.flags, unit + 1), w.mine.flags);
}
/* The head, into the first lane's words of the first unit. */
DEV void set_head(const work &w, const channel &c, uint32_t (&v)[4]) {
    const uint64_t word = word_of(c);
    const int is = w.lane == 0;
    v[0] = is ? (uint32_t)word : v[0], v[1] = is ? (uint32_t)(word >> 32) : v[1];
    v[2] = is ? (uint32_t)c.off : v[2], v[3] = is ? (uint32_t)(c.off >> 32) : v[3];
}

#endif
