/* p2p.cuh - point-to-point: all sends and receives of a group in one kernel. GPU code: whole warps
 * run it, beside each other; they meet at the end of a CTA alone. A step of a channel waits for
 * nothing: it does what can be done, or nothing (p2p_ways.cuh has the places and the counts). */
#ifndef SYMM_CUDA_P2P_CUH_
#define SYMM_CUDA_P2P_CUH_

#include "p2p_ways.cuh"

/* ---- the end of a call ----------------------------------------------------------------------- */

/* This member's part of the channel has ended. The last member says so of messages to this rank
 * itself: everything of theirs is there, or has been taken. */
DEV void end_channel(work &w, channel &c) {
    symm_gpu_p2p *own = &w.r.ctl->p2p;
    tell_taken(w, c, 1);
    /* All lanes' accesses come before the release. (No test shows it: where the line of a warp is
     * one store the first lane's release covers all of it.) */
    __syncwarp();
    if (w.lane == 0) {
        symm_gpu_p2p_at *at = call_sends(c) ? out_of(w, c)->at : in_of(w, c)->at;
        const member &m = member_of(w);
        const uint64_t now = w.shared->kernel + 1; /* pairs with load_place of the next kernel */
        if (!m.at) put16(&at[m.slot], two_words(c.unit, now));
        if (call_peer(c) == w.a->rank && add8_gpu(&own->team[m.no].ended, 1) == c.team - 1)
            give8_gpu(&own->self[call_sends(c)], 1); /* pairs with is_alone */
    }
    __syncwarp();
}

/* The call has ended for this member; if it was the channel's last one, so has the channel. */
DEV int end_call(work &w, channel &c) {
    c.unit += units_of(c);
    if (call_last(c)) {
        end_channel(w, c);
        return P2P_ENDED;
    }
    __syncwarp(); /* all have read what is written over */
    if (w.lane == 0) member_of(w).index++;
    __syncwarp();
    load_call(w, c);
    return P2P_MOVED;
}

/* This member's share of a direct copy. The channel is in shared memory meanwhile: the copy has the
 * registers. */
DEV int copy_share(work &w, channel &c) {
    channel &kept = w.shared->slot[w.now].c;
    char *buff = (char *)(uintptr_t)c.buff, *other = (char *)(uintptr_t)member_of(w).other;
    char *to = call_sends(c) ? other : buff;
    const char *from = call_sends(c) ? buff : other;
    const uint64_t bytes = c.bytes, begins = c.at;
    const unsigned team = c.team;
    __syncwarp(); /* all have read what is written over */
    if (w.lane == 0) kept = c;
    __syncwarp();
    const uint64_t at = copy_pieces(&w.r.ctl->over, to, from, bytes, begins, team, w.lane);
    c = kept;
    c.at = at;
    if (at * COPY_PIECE < bytes) return w.r.over = 1, P2P_NOTHING; /* a kernel has left */
    c.does = P2P_COUNT;
    return P2P_MOVED;
}

/* A word of the other side that counts messages up to this one. */
DEV int has_come(const work &w, const channel &c, const uint64_t *word) {
    int is = 0;
    if (w.lane == 0) is = take8(word) > c.unit;
    is = __shfl_sync(P2P_ALL, is, 0);
    __syncwarp(); /* the others read behind what the first lane has acquired */
    return is;
}

/* ---- sender ---------------------------------------------------------------------------------- */

/* All of this member's units are sent. A message that meets has its last word still to come. */
DEV int sent_lines(work &w, channel &c) {
    c.does = P2P_COUNT;
    return c.lead == P2P_HEAD ? end_call(w, c) : P2P_MOVED;
}
DEV int send_lines(work &w, channel &c) {
    int whole;
    if (c.at >= units_of(c)) return sent_lines(w, c); /* no share */
    const unsigned n = run_of(c, &whole);
    uint32_t v[P2P_RUN][4] = {};
    /* Beside the data, so neither waits for the other; not again and again without room. */
    if (!c.stuck) load_units(w, c, n, whole, v);
    const unsigned room = free_units(w, c, n), was = c.stuck;
    c.stuck = !room;
    if (!room || was) return room ? P2P_MOVED : P2P_NOTHING;
    if (c.at == 0) set_head(w, c, v[0]);
    char *ring = ring_of(w, c);
#pragma unroll
    for (unsigned u = 0; u < P2P_RUN; u++)
        if (u < room) put_unit(w, ring, c.unit + c.at + u * c.team, v[u]);
    c.at += (uint64_t)room * c.team;
    return c.at < units_of(c) ? P2P_MOVED : sent_lines(w, c);
}

/* The head of a message that meets: by the first member. */
DEV int send_head(work &w, channel &c) {
    uint32_t v[4] = {};
    c.at = 0;
    if (is_first(w)) {
        if (!free_units(w, c, 1)) return P2P_NOTHING;
        set_head(w, c, v);
        put_unit(w, ring_of(w, c), c.unit, v);
    }
    c.does = P2P_MEET;
    return P2P_MOVED;
}

/* Waits for what the receiver wants: both words with their flags. One that differs finds that out
 * itself, by the head. */
DEV int send_meet(work &w, channel &c) {
    const symm_gpu_p2p_out *out = out_of(w, c);
    uint64_t off = 0;
    int met = 0;
    if (w.lane == 0) {
        const uint4 what = get16(&out->want[0]), where = get16(&out->want[1]);
        const uint64_t no = c.unit + 1; /* pairs with announce */
        met = high_word(what) == no && high_word(where) == no && low_word(what) == word_of(c);
        off = low_word(where);
    }
    if (!__shfl_sync(P2P_ALL, met, 0)) return P2P_NOTHING;
    off = __shfl_sync(P2P_ALL, off, 0);
    const int way = way_of(c.off, off);
    c.at = member_of(w).at;
    c.does = way == P2P_LOADS ? P2P_COUNT : P2P_COPY;
    set_other(w, way == P2P_STORES ? (uint64_t)(uintptr_t)flat(w.a, call_peer(c), off) : off);
    if (way == P2P_IN_UNITS) c.lead = LINE_DATA, c.at++, c.does = P2P_LINES;
    return P2P_MOVED;
}

/* All members have read `want` and done their share: the last one tells the receiver. */
DEV int send_counted(work &w, channel &c) {
    const int round = count_round(w, c);
    if (!round) return P2P_NOTHING;
    if (round == 2 && w.lane == 0)
        give8(&in_of(w, c)->stored, c.unit + 1); /* pairs with receive_step */
    __syncwarp();
    c.does = P2P_AWAIT;
    const int loads = way_of(c.off, member_of(w).other) == P2P_LOADS;
    return loads && is_first(w) ? P2P_MOVED : end_call(w, c);
}

DEV int send_step(work &w, channel &c) {
    switch (c.does) {
    case P2P_BEGIN: return send_head(w, c);
    case P2P_LINES: return send_lines(w, c);
    case P2P_MEET: return send_meet(w, c);
    case P2P_COPY: return copy_share(w, c);
    case P2P_COUNT: return send_counted(w, c);
    default: /* the receiver loads; pairs with receive_counted */
        return has_come(w, c, &out_of(w, c)->taken) ? end_call(w, c) : P2P_NOTHING;
    }
}

/* ---- receiver -------------------------------------------------------------------------------- */

/* A sender that waits for us may do what we want from here on: two words, each with its flag. It
 * has read what we wanted before: that message has ended, for which all its members have counted.
 */
DEV int announce(work &w, channel &c) {
    if (is_first(w) && w.lane == 0) {
        symm_gpu_p2p_out *out = out_of(w, c);
        const uint64_t no = c.unit + 1; /* pairs with send_meet */
        put16(&out->want[0], two_words(word_of(c), no));
        put16(&out->want[1], two_words(c.off, no));
    }
    __syncwarp();
    c.does = P2P_MEET;
    /* The sender stores, and the first member looks after it. */
    return !is_first(w) && c.off != SYMM_STAGED ? end_call(w, c) : P2P_MOVED;
}

/* Says for all ranks what each of the two means, and leaves. First lane. Functions that are not
 * inlined get values: what has an address is not kept in registers. */
static __device__ __noinline__ void receive_differs(const symm_args *a, int source, uint64_t word,
                                                    uint64_t own) {
    symm_p2p_note *note = &host_of(a, a->rank)->p2p;
    put8(&note->sent_count, word & WORD_COUNT);
    put8(&note->sent_type, word >> 56);
    put8(&note->recv_count, own & WORD_COUNT);
    put8(&note->recv_type, own >> 56);
    /* Pairs with symm_message_differs (call_log.c). */
    give8(&note->differ, (uint64_t)source << 32 | ((unsigned)a->rank + 1));
    leave(a, 0, symmMismatch, source, SYMM_STAGE_P2P);
}
/* The head says another count or type: what to do. */
DEV int head_differs(work &w, const channel &c, uint64_t word) {
    if (!is_first(w)) return P2P_NOTHING; /* the first one leaves, and so all */
    if (w.lane == 0) receive_differs(w.a, call_peer(c), word, word_of(c));
    __syncwarp();
    return P2P_LEAVE;
}

/* All of this member's units are taken. */
DEV int took_lines(work &w, channel &c) {
    c.does = P2P_AWAIT;
    return c.lead == P2P_HEAD || !is_first(w) ? end_call(w, c) : P2P_MOVED;
}
/* lines_look and lines_read, of units of the share. */
DEV int units_look(const work &w, const channel &c, const char *ring, unsigned n,
                   uint4 (&got)[P2P_RUN]) {
    int apart = 0;
#pragma unroll
    for (unsigned u = 0; u < P2P_RUN; u++)
        apart |= get_whole_warp(got[u], ring + place_of(w, c.unit + c.at + u * c.team), u < n);
    if (!apart) return 0;
#pragma unroll
    for (unsigned u = 0; u < P2P_RUN; u++)
        get16_if(got[u], ring + place_of(w, c.unit + c.at + u * c.team), u < n && w.mine.flags);
    return 1;
}
DEV void units_read(const work &w, const channel &c, const char *ring, unsigned n,
                    uint4 (&got)[P2P_RUN]) {
    __syncwarp(); /* see lines_read */
#pragma unroll
    for (unsigned u = 0; u < P2P_RUN; u++)
        get16_if(got[u], ring + place_of(w, c.unit + c.at + u * c.team), u < n);
}
DEV int receive_lines(work &w, channel &c) {
    int whole;
    if (c.at >= units_of(c)) return took_lines(w, c); /* no share */
    const unsigned n = run_of(c, &whole);
    const char *ring = ring_of(w, c);
    uint4 got[P2P_RUN] = {};
    unsigned ready = 0, going = 1;
    const int apart = units_look(w, c, ring, n, got);
#pragma unroll
    for (unsigned u = 0; u < P2P_RUN; u++) { /* pairs with put_unit */
        const uint64_t flag = c.unit + c.at + u * c.team + 1;
        going &= !__any_sync(P2P_ALL, u >= n || line_stale(got[u], w.mine.flags, flag));
        ready += going;
    }
    if (!ready) return P2P_NOTHING;
    if (apart) units_read(w, c, ring, ready, got);
    if (c.at == 0) {
        const uint64_t word = __shfl_sync(P2P_ALL, low_word(got[0]), 0);
        if (word != word_of(c)) return head_differs(w, c, word);
    }
    uint32_t v[P2P_RUN][4];
#pragma unroll
    for (unsigned u = 0; u < P2P_RUN; u++)
        v[u][0] = got[u].x, v[u][1] = got[u].y, v[u][2] = got[u].z, v[u][3] = got[u].w;
    store_units(w, c, ready, whole, v);
    for (unsigned u = 0; u < ready; u++) take_unit(w, c, c.unit + c.at + u * c.team);
    c.at += (uint64_t)ready * c.team;
    return c.at < units_of(c) ? P2P_MOVED : took_lines(w, c);
}

/* The head of a message that meets. Members of a receive in no window all read it. */
DEV int receive_head(work &w, channel &c) {
    const char *at = ring_of(w, c) + place_of(w, c.unit);
    uint4 v = make_uint4(0, 0, 0, 0);
    get16_if(v, at, w.mine.flags);
    if (__any_sync(P2P_ALL, line_stale(v, w.mine.flags, c.unit + 1))) return P2P_NOTHING;
    __syncwarp(); /* see lines_read */
    v = get16(at);
    const uint64_t word = __shfl_sync(P2P_ALL, low_word(v), 0);
    set_other(w, __shfl_sync(P2P_ALL, high_word(v), 0));
    if (word != word_of(c)) return head_differs(w, c, word);
    c.does = P2P_ROUND;
    if (c.off == SYMM_STAGED) return P2P_MOVED;
    take_unit(w, c, c.unit);
    c.does = P2P_AWAIT;
    return P2P_MOVED;
}

/* All members have read the head: its place may be used again, before the data needs it. */
DEV int receive_round(work &w, channel &c) {
    const int round = count_round(w, c);
    if (!round) return P2P_NOTHING;
    if (round == 2) take_unit(w, c, c.unit);
    c.at = member_of(w).at;
    c.does = P2P_COPY;
    const uint64_t source = member_of(w).other;
    if (source == SYMM_STAGED)
        c.lead = LINE_DATA, c.at++, c.does = P2P_LINES;
    else
        set_other(w, (uint64_t)(uintptr_t)flat(w.a, call_peer(c), source));
    return P2P_MOVED;
}

/* All members have loaded their share: the sender's buffer is its own again. */
DEV int receive_counted(work &w, channel &c) {
    const int round = count_round(w, c);
    if (!round) return P2P_NOTHING;
    if (round == 2 && w.lane == 0) give8(&out_of(w, c)->taken, c.unit + 1); /* with send_step */
    __syncwarp();
    c.does = P2P_AWAIT;
    return !is_first(w) ? end_call(w, c) : P2P_MOVED;
}

DEV int receive_step(work &w, channel &c) {
    switch (c.does) {
    case P2P_BEGIN: return announce(w, c);
    case P2P_LINES: return receive_lines(w, c);
    case P2P_MEET: return receive_head(w, c);
    case P2P_ROUND: return receive_round(w, c);
    case P2P_COPY: return copy_share(w, c);
    case P2P_COUNT: return receive_counted(w, c);
    default: /* all members of the sender have ended it; pairs with send_counted */
        return has_come(w, c, &in_of(w, c)->stored) ? end_call(w, c) : P2P_NOTHING;
    }
}

/* ---- waiting --------------------------------------------------------------------------------- */

/* For symmCommDump and messages: what this rank waits in. First lane. */
DEV void note_wait(const work &w, const channel &c) {
    symm_p2p_note *note = &host_of(w.a, w.a->rank)->p2p;
    put8(&note->waits_count, c.bytes >> call_log(c));
    put8(&note->waits_type, call_type(c));
    put8(&note->waits, (uint64_t)(call_sends(c) ? SYMM_P2P_SEND : SYMM_P2P_RECV) << 32 |
                           ((unsigned)call_peer(c) + 1));
}

/* Nobody but this kernel could make the other call of a message of this rank to itself. It may have
 * made it since we last looked, so the first time only says so in c.alone. First lane. */
DEV int is_alone(work &w, const channel &c) {
    const int other = !call_sends(c);
    if (call_peer(c) != w.a->rank || c.mates) return 0;
    return !(w.args->self & (1u << other)) || take8_gpu(&w.r.ctl->p2p.self[other]);
}

/* The slow path of waits, of one channel. Who waits for its own team has no deadline: a member
 * that waits for the peer has one. First lane; 1: leave. */
DEV int wait_one(work &w, const channel &c) {
    member &m = member_of(w);
    note_wait(w, c);
    if (c.mates) m.since = 0;
    m.since = wait_slow(w.a, 0, call_peer(c), SYMM_STAGE_P2P, m.since);
    if (m.since == LEAVING) return 1;
    if (!is_alone(w, c)) return 0;
    if (!m.alone++) return 0;
    leave(w.a, 0, symmInvalidUsage, w.a->rank, SYMM_STAGE_P2P);
    return 1;
}

/* ---- the kernel ------------------------------------------------------------------------------ */

/* The first step of a call knows its way from the size. */
DEV int step_channel(work &w, channel &c) {
    if (c.does == P2P_BEGIN) {
        c.lead = is_big(w, c) ? 0 : P2P_HEAD;
        c.at = member_of(w).at;
        if (c.lead) c.does = P2P_LINES;
    }
    const int got = call_sends(c) ? send_step(w, c) : receive_step(w, c);
    if (got && w.lane == 0) member_of(w).since = 0, member_of(w).alone = 0;
    if (!got && !call_sends(c)) tell_taken(w, c); /* the sender may wait for it */
    return got;
}

/* A channel of several is kept in shared memory, the only one in registers. The i-th slot of this
 * warp is the one that it is at. Whole warp. */
DEV void fetch(work &w, channel &c, unsigned i) {
    w.now = threadIdx.x / 32u + i * (blockDim.x / 32u);
    if (w.slots > 1) c = w.shared->slot[w.now].c;
}
DEV void keep(const work &w, const channel &c) {
    if (w.slots == 1) return;
    __syncwarp(); /* all lanes have read what is written over */
    if (w.lane == 0) w.shared->slot[w.now].c = c;
    __syncwarp();
}
/* The channel has ended: those that have not stay in the first slots. */
DEV void drop(work &w, channel &c) {
    const unsigned first = threadIdx.x / 32u, last = first + --w.slots * (blockDim.x / 32u);
    if (!w.slots) return;
    __syncwarp();
    if (w.lane == 0 && w.now != last) w.shared->slot[w.now] = w.shared->slot[last];
    __syncwarp();
    c = w.shared->slot[first].c;
}

/* All that can be done without waiting. */
DEV int go_round(work &w, channel &c) {
    int moved = 0;
    for (unsigned i = 0; i < w.slots;) {
        fetch(w, c, i);
        const int got = step_channel(w, c);
        moved |= got;
        if (got == P2P_LEAVE) w.r.left = 1;
        if (got == P2P_LEAVE) return 0;
        if (got == P2P_ENDED)
            drop(w, c);
        else
            keep(w, c), i++;
    }
    return moved;
}

/* The slow path of all channels of the warp. */
DEV void wait_all(work &w, channel &c) {
    for (unsigned i = 0; i < w.slots && !w.r.left; i++) {
        int leaves = 0;
        fetch(w, c, i);
        if (w.lane == 0) leaves = wait_one(w, c);
        w.r.left = __shfl_sync(P2P_ALL, leaves, 0);
        __syncwarp(); /* the others look again behind what the first lane saw */
    }
}

/* 1: it has said what it waits in. */
DEV int run_channels(work &w, channel &c) {
    int noted = 0;
    for (uint32_t polls = 0; w.slots && !w.r.left;) {
        look_over(w.r);
        if (go_round(w, c)) {
            polls = 0;
            continue;
        }
        if (__any_sync(P2P_ALL, w.r.over)) w.r.left = 1;
        if (++polls < SPIN_POLLS || w.r.left) continue;
        polls = 0;
        noted = 1;
        wait_all(w, c);
    }
    return noted;
}

/* The last CTA makes the counters ready for the next kernel. Without messages to this
 * rank itself it counts without order: what the others have read and added of these words has
 * returned. One that leaves early need not: the communicator cannot be used again. */
DEV void close_p2p(work &w) {
    symm_gpu_p2p *own = &w.r.ctl->p2p;
    int last = !__syncthreads_or(w.r.left);
    if (!last && threadIdx.x == 0) give_reason(w.a, 0, SYMM_STAGE_P2P);
    if (gridDim.x > 1 && last) {
        int is = 0;
        if (threadIdx.x == 0)
            is = (w.args->self ? add8_gpu(&own->ctas, 1) : count8_gpu(&own->ctas, 1)) ==
                 gridDim.x - 1;
        last = __syncthreads_or(is);
    }
    for (unsigned i = threadIdx.x; last && i < w.args->channels; i += blockDim.x) {
        put8(&own->team[i].done, 0);
        put8(&own->team[i].ended, 0);
    }
    if (last && threadIdx.x == 0) {
        put8(&own->kernels, w.shared->kernel + 1); /* all CTAs have read it, and their places */
        put8(&own->ctas, 0);
        put8(&own->self[0], 0);
        put8(&own->self[1], 0);
    }
    if (!w.a->gpu.serial) return;
    __syncthreads();
    if (threadIdx.x == 0) give4(&w.r.ctl->done[blockIdx.x], w.a->gpu.serial); /* read by drain.c */
}

/* The channels of this warp. With more warps than channels it is a member of one team; neighbours
 * in a CTA are of different ones. Else it is the whole team of several. */
DEV void open_channels(work &w, channel &c) {
    const unsigned all = w.args->channels, mine = blockDim.x / 32u, warps = gridDim.x * mine,
                   id = blockIdx.x * mine + threadIdx.x / 32u;
    const uint64_t kernel = get8(&w.r.ctl->p2p.kernels);
    w.slots = 0;
    for (unsigned no = id; warps < all ? no < all : all && !w.slots; no += warps) {
        const unsigned i = warps < all ? no : no % all;
        c.team = warps < all ? 1 : (warps - i + all - 1) / all;
        c.taken_in = c.taken = 0, c.mates = 0;
        w.now = threadIdx.x / 32u + w.slots++ * mine;
        member &m = member_of(w);
        if (w.lane == 0) {
            m.no = i, m.at = warps < all ? 0 : id / all;
            m.index = w.args->first[i];
            m.since = 0, m.rounds = 0, m.alone = 0;
        }
        __syncwarp();
        load_call(w, c);
        load_place(w, c, m, kernel);
        if (warps < all && w.lane == 0) w.shared->slot[w.now].c = c;
    }
    if (w.lane == 0) w.shared->kernel = kernel;
    __syncwarp();
}

DEV void p2p_run(const symm_gpu_p2p_args &args) {
    CTA_SHARED(p2p_shared, shared);
    work w;
    channel c;
    w.args = &args, w.a = &args.a;
    w.shared = &shared;
    w.lane = threadIdx.x & 31u, w.now = threadIdx.x / 32u;
    w.mine = lane_piece((int)w.lane);
    w.r.a = w.a, w.r.ctl = ctl_of(w.a, w.a->rank);
    w.r.epoch = 0, w.r.left = 0, w.r.over = 0; /* no epoch: signatures are not looked at */
    look_over(w.r);
    open_channels(w, c);
    /* Behind a kernel that has left, places do not say which call they are of. */
    w.r.left = __any_sync(P2P_ALL, w.r.over);
    __syncwarp();
    const int noted = run_channels(w, c);
    if (w.lane == 0 && noted && !w.r.left) put8(&host_of(w.a, w.a->rank)->p2p.waits, 0);
    close_p2p(w);
}

/* Calls that do not fit the arguments, into the list in the control block. Arguments lie at
 * multiples of 8 bytes, so in words of that size. */
SYMM_STATIC_ASSERT(sizeof(symm_gpu_p2p_op) == 4 * sizeof(uint2), "a call is four words");
DEV void p2p_list(const symm_gpu_p2p_args &args) {
    symm_gpu_p2p *own = &ctl_of(&args.a, args.a.rank)->p2p;
    for (unsigned i = threadIdx.x; i < 4 * args.ops; i += blockDim.x) {
        const uint2 *from = (const uint2 *)&args.op[0];
        ((uint2 *)&own->list[args.first[0]])[i] = from[i];
    }
}

#endif
