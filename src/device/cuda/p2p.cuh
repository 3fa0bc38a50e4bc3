/* p2p.cuh - point-to-point: all sends and receives of a group in one kernel. GPU code: whole warps
 * run it, beside each other; they meet at the end of a CTA alone. Each leads its channels
 * (p2p_ways.cuh), copies what is small itself, and takes pieces of what is large from whatever
 * channel has some. */
#ifndef SYMM_CUDA_P2P_CUH_
#define SYMM_CUDA_P2P_CUH_

#include "p2p_ways.cuh"

/* ---- copying, by whole warps ----------------------------------------------------------------- */

/* Bytes before the first multiple of 16 and behind the last, fewer than 16 each. */
DEV void copy_end(char *to, const char *from, unsigned bytes, unsigned lane) {
    if (lane < bytes) to[lane] = (char)byte_at(from + lane);
}

/* Buffers that are not the same number of bytes off a multiple of 16. */
static __device__ __noinline__ void copy_odd(char *to, const char *from, uint64_t bytes,
                                             unsigned lane) {
    const int at_to = alignment(to), at_from = alignment(from);
    for (uint64_t i = lane * 16u; i < bytes; i += 512) {
        uint32_t v[4];
        load_user(v, from + i, (int64_t)(bytes - i), at_from);
        store_user(to + i, v, (int64_t)(bytes - i), at_to);
    }
}

static __device__ __noinline__ void copy_warp(char *to, const char *from, uint64_t bytes,
                                              unsigned lane) {
    const unsigned U = P2P_UNIT / 512u;
    if (((uintptr_t)to ^ (uintptr_t)from) & 15u) {
        copy_odd(to, from, bytes, lane);
        return;
    }
    unsigned lead = (0u - (unsigned)(uintptr_t)from) & 15u;
    if (lead > bytes) lead = (unsigned)bytes;
    copy_end(to, from, lead, lane);
    to += lead, from += lead, bytes -= lead;
    for (uint64_t i = lane * 16u; i + 16 <= bytes; i += P2P_UNIT) {
        uint4 v[U];
#pragma unroll
        for (unsigned u = 0; u < U; u++)
            if (i + u * 512 + 16 <= bytes) v[u] = load16(from + i + u * 512);
#pragma unroll
        for (unsigned u = 0; u < U; u++)
            if (i + u * 512 + 16 <= bytes) *(uint4 *)(to + i + u * 512) = v[u];
    }
    const unsigned tail = (unsigned)bytes & 15u;
    copy_end(to + (bytes - tail), from + (bytes - tail), tail, lane);
}

/* ---- help ------------------------------------------------------------------------------------ */

/* A piece of the job, if one is left: *piece. The fields of a job stay until all its pieces are
 * done, so those that are read behind a claim are its own. Whole warp. */
DEV int claim_piece(const work &w, symm_gpu_p2p_job *j, uint32_t *piece) {
    uint64_t word = 0;
    if (w.lane == 0) word = add8_gpu(&j->claim, 1); /* pairs with open_job */
    word = __shfl_sync(P2P_ALL, word, 0);
    __syncwarp(); /* the others read behind what the first lane has acquired */
    *piece = (uint32_t)word;
    return (uint32_t)word < (uint32_t)(word >> 32);
}

DEV void copy_piece(const work &w, symm_gpu_p2p_job *j, uint32_t k) {
    const uint64_t bytes = get8(&j->bytes), piece = get8(&j->piece), at = k * piece,
                   part = bytes - at < piece ? bytes - at : piece;
    copy_warp((char *)(uintptr_t)get8(&j->dst) + at, (const char *)(uintptr_t)get8(&j->src) + at,
              part, w.lane);
    __syncwarp();                           /* all lanes' stores come before the release */
    if (w.lane == 0) add8_gpu(&j->done, 1); /* pairs with reap_job */
}

/* Pieces of one job that has some left. 0: none has. leads: this warp has channels of its own to go
 * back to. */
DEV int help(work &w, int leads) {
    const unsigned jobs = w.args->channels * SYMM_GPU_P2P_JOBS, turn = w.warp + blockIdx.x;
    symm_gpu_p2p_job *first = &w.r.ctl->p2p.job[0][0];
    for (unsigned base = 0; base < jobs; base += 32) {
        const unsigned i = base + ((w.lane + turn) & 31u);
        const uint64_t word = i < jobs ? get8(&first[i].claim) : 0;
        const uint32_t some = __ballot_sync(P2P_ALL, (uint32_t)word < (uint32_t)(word >> 32));
        if (!some) continue;
        symm_gpu_p2p_job *j = &first[base + (((unsigned)__ffs((int)some) - 1 + turn) & 31u)];
        uint32_t piece;
        int moved = 0;
        while (!__any_sync(P2P_ALL, w.r.over) && claim_piece(w, j, &piece)) {
            copy_piece(w, j, piece);
            moved = 1;
            if (leads) break;
            look_over(w.r);
        }
        return moved;
    }
    return 0;
}

/* ---- waiting: by the first lane -------------------------------------------------------------- */

/* For symmCommDump and messages: what this rank waits in. */
DEV void note_wait(work &w, const channel &c) {
    symm_p2p_note *note = &host_of(w.a, w.a->rank)->p2p;
    put8(&note->waits_count, c.call.count);
    put8(&note->waits_type, c.call.type);
    put8(&note->waits, (uint64_t)(c.call.sends ? SYMM_P2P_SEND : SYMM_P2P_RECV) << 32 |
                           ((unsigned)c.call.peer + 1));
    w.noted = 1;
}

/* A number that grows while any warp of this rank moves something. */
DEV uint64_t progress_of(const work &w) {
    uint64_t sum = get8(&w.r.ctl->p2p.ended);
    for (unsigned i = 0; i < w.args->channels; i++) {
        const symm_gpu_p2p_job *j = &w.r.ctl->p2p.job[i][0];
        for (int k = 0; k < SYMM_GPU_P2P_JOBS; k++) sum += get8(&j[k].claim) * 3 + get8(&j[k].done);
    }
    return sum;
}

/* Nobody but this kernel could make the other call of a message of this rank to itself. It may have
 * made it since we last looked, so the first time only says so in c.alone. */
DEV int is_alone(work &w, channel &c) {
    const int other = !c.call.sends;
    if (c.call.peer != w.a->rank) return 0;
    if (w.args->self & (1u << other) && !take8_gpu(&w.r.ctl->p2p.self[other])) return 0;
    return c.alone++ > 0;
}

/* The slow path of waits: looks for all channels of the warp. 1: leave. */
static __device__ __noinline__ int wait_all(work &w) {
    const uint64_t progress = progress_of(w);
    const int moves = progress != w.progress;
    w.progress = progress;
    for (unsigned i = w.warp; channel_no(i) < w.args->channels; i += w.warps) {
        channel &c = w.ch[i];
        if (c.does == P2P_OVER) continue;
        if (moves) c.since = 0;
        note_wait(w, c);
        c.since = wait_slow(w.a, 0, c.call.peer, SYMM_STAGE_P2P, c.since);
        if (c.since == LEAVING) return 1;
        if (!is_alone(w, c)) continue;
        leave(w.a, 0, symmInvalidUsage, w.a->rank, SYMM_STAGE_P2P);
        return 1;
    }
    return 0;
}

/* ---- the kernel ------------------------------------------------------------------------------ */

/* By the first lane: the others learn from it what the channel does, as it may have gone on. */
DEV int step_first(work &w, channel &c, unsigned no) {
    if (c.does == P2P_OVER) return P2P_ENDED;
    return c.call.sends ? send_step(w, c, no) : receive_step(w, c, no);
}

/* A step of one channel. Whole warp. */
DEV int step_channel(work &w, channel &c, unsigned no) {
    int got = w.lane ? P2P_NOTHING : step_first(w, c, no);
    got = __shfl_sync(P2P_ALL, got, 0);
    if (got == P2P_ENDED) return got;
    __syncwarp(); /* the others read behind what the first lane has acquired */
    if (got == P2P_COPY) {
        for (int i = 0; i < 2; i++)
            if (c.part[i]) copy_warp(c.to[i], c.from[i], c.part[i], w.lane);
        __syncwarp(); /* all lanes' accesses come before the release */
        if (w.lane == 0) {
            if (c.call.sends)
                send_copied(w, c);
            else
                receive_copied(w, c);
        }
    }
    if (w.lane == 0 && got) c.since = 0, c.alone = 0;
    __syncwarp();
    return got;
}

/* All that can be done without waiting; *left: channels of this warp that have not ended. */
DEV int go_round(work &w, int *left) {
    int moved = 0;
    *left = 0;
    for (unsigned i = w.warp; channel_no(i) < w.args->channels; i += w.warps) {
        const int got = step_channel(w, w.ch[i], channel_no(i));
        if (got == P2P_ENDED) continue;
        if (got == P2P_LEAVE) w.r.left = 1;
        if (got == P2P_LEAVE) return 0;
        moved |= got;
        *left = 1;
    }
    if (w.args->bulk && !w.r.left) moved |= help(w, *left);
    return moved;
}

/* Nothing is left for this warp: its own channels have ended, and nobody needs its help. */
DEV int all_ended(const work &w) {
    uint64_t ended = w.args->channels;
    if (w.args->bulk && w.lane == 0)
        ended = take8_gpu(&w.r.ctl->p2p.ended); /* pairs with end_call */
    return __shfl_sync(P2P_ALL, ended, 0) == w.args->channels;
}

DEV void run_channels(work &w) {
    uint32_t polls = 0;
    for (int left; !w.r.left;) {
        look_over(w.r);
        if (go_round(w, &left)) {
            polls = 0;
            continue;
        }
        if (w.r.left || (!left && all_ended(w))) return;
        if (__any_sync(P2P_ALL, w.r.over)) w.r.left = 1;
        if (++polls < SPIN_POLLS || w.r.left) continue;
        polls = 0;
        int leaves = 0;
        if (w.lane == 0) leaves = wait_all(w);
        if (__shfl_sync(P2P_ALL, leaves, 0)) w.r.left = 1;
    }
}

/* The last CTA makes the counters ready for the next kernel. One that leaves early need not: the
 * communicator cannot be used again. */
DEV void close_p2p(work &w) {
    symm_gpu_p2p *own = &w.r.ctl->p2p;
    const int left = __syncthreads_or(w.r.left);
    if (!left && threadIdx.x == 0 && (gridDim.x == 1 || add8_gpu(&own->ctas, 1) == gridDim.x - 1)) {
        put8(&own->ended, 0);
        put8(&own->ctas, 0);
        put8(&own->self[0], 0);
        put8(&own->self[1], 0);
    }
    if (!w.a->gpu.serial) return;
    __syncthreads();
    if (threadIdx.x == 0) give4(&w.r.ctl->done[blockIdx.x], w.a->gpu.serial); /* read by drain.c */
}

DEV void p2p_run(const symm_gpu_p2p_args &args) {
    CTA_SHARED(p2p_shared, shared);
    work w;
    w.args = &args, w.a = &args.a;
    w.lane = threadIdx.x & 31u, w.warp = threadIdx.x / 32u, w.warps = blockDim.x / 32u;
    w.ch = shared.ch;
    w.progress = 0, w.noted = 0;
    w.r.a = w.a, w.r.ctl = ctl_of(w.a, w.a->rank);
    w.r.epoch = 0, w.r.left = 0, w.r.over = 0; /* no epoch: signatures are not looked at */
    for (unsigned i = w.warp; w.lane == 0 && channel_no(i) < args.channels; i += w.warps) {
        channel &c = w.ch[i];
        c.at = args.first[channel_no(i)];
        c.jobs = c.reaped = 0;
        c.since = 0, c.alone = 0;
        load_call(w, c);
    }
    /* Behind a kernel that has left, numbers of messages do not say which call they belong to. */
    look_over(w.r);
    w.r.left = __any_sync(P2P_ALL, w.r.over);
    __syncwarp();
    run_channels(w);
    if (w.lane == 0 && w.noted && !w.r.left) put8(&host_of(w.a, w.a->rank)->p2p.waits, 0);
    close_p2p(w);
}

/* Calls that do not fit the arguments, into the list in the control block. */
DEV void p2p_list(const symm_gpu_p2p_args &args) {
    symm_gpu_p2p *own = &ctl_of(&args.a, args.a.rank)->p2p;
    for (unsigned i = threadIdx.x; i < 2 * args.ops; i += blockDim.x) {
        const uint4 *from = (const uint4 *)&args.op[0];
        ((uint4 *)&own->list[args.first[0]])[i] = from[i];
    }
}

#endif
