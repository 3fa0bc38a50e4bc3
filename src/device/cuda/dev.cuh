/* dev.cuh - what the GPU kernels are written in: words with order and scope, packets, waits, the
 * way out.
 *
 * A kernel runs in CTAs of `data` warps and one last warp, which in CTA 0
 * exchanges the signatures (frame.cuh). CTA b waits only for the same CTA of its peers. Every
 * thread passes griddepcontrol.wait before it touches memory, and every CTA ends through
 * close_kernel. */
#ifndef SYMM_CUDA_DEV_CUH_
#define SYMM_CUDA_DEV_CUH_

#include <stddef.h>
#include <stdint.h>

#include "../../../include/symm.h"
#include "../common/records.h"
#include "ptx.cuh"

/* Polls of a word in this GPU's memory between two looks at the host's, about a millisecond:
 * thousands of threads may be waiting, and what they ask of the host goes over one PCIe link. */
#ifndef SPIN_POLLS
#define SPIN_POLLS 4000u
#endif
/* How long a peer that destroyed its communicator may still owe us nothing. */
#ifndef LEFT_GRACE_NS
#define LEFT_GRACE_NS 1000000000ull
#endif

struct run { /* one thread of a kernel at work */
    const symm_args *a;
    symm_gpu_ctl *ctl; /* own */
    uint32_t epoch;    /* of this collective */
    int left;          /* this thread is leaving: a reason is written */
    /* A kernel before this one has left, here or at a peer: a thread that does not find what it
     * waits for leaves. */
    int over;
    int loads; /* it stores nothing at a peer: arrive_and_wait */
    /* The last warp: where this lane's first peer finds its signature, at even epochs. 0: it has
     * nothing to say. */
    char *said;
};

/* First thing in every kernel that has no epoch. */
DEV void enter(const symm_args &a) {
    enter_grid(a.flags & SYMM_ARG_APART);
}

/* The same value, of which the compiler knows nothing: it is calculated here, and what comes of it
 * is not kept in registers from one turn of a loop to the next. */
DEV int anew(int v) {
    asm volatile("" : "+r"(v));
    return v;
}
DEV uint64_t anew(uint64_t v) {
    asm volatile("" : "+l"(v));
    return v;
}
template <class T> DEV T *anew(T *p) {
    return (T *)(uintptr_t)anew((uint64_t)(uintptr_t)p);
}

/* ---- addresses ------------------------------------------------------------------------------- */

DEV char *flat(const symm_args *a, int rank, uint64_t off) {
    return (char *)(a->base + (uint64_t)rank * a->stride + off); /* modulo 2^64 on purpose */
}
DEV symm_gpu_ctl *ctl_of(const symm_args *a, int rank) {
    return (symm_gpu_ctl *)flat(a, rank, 0);
}
/* The control block in host memory that rank's processor and all GPUs see: abort word, state. */
DEV symm_ctl *host_of(const symm_args *a, int rank) {
    return (symm_ctl *)(a->gpu.host_base + (uint64_t)rank * a->gpu.host_stride);
}
/* Where peers write the abort and death words of a rank; of its first line no other word counts. */
DEV symm_ctl *told_of(const symm_args *a, int rank) {
    return a->flags & SYMM_ARG_HOSTS ? (symm_ctl *)ctl_of(a, rank)->far : host_of(a, rank);
}
SYMM_STATIC_ASSERT(offsetof(symm_ctl, abort) + 8 <= sizeof(symm_gpu_ctl::far) &&
                       offsetof(symm_ctl, death) + 8 <= sizeof(symm_gpu_ctl::far),
                   "they lie in it");
/* q = 1..n-1 gives rank+1, rank+2, ...: no two ranks start on the same peer. */
DEV int peer_of(int rank, int n, int q) {
    int p = rank + q;
    return p >= n ? p - n : p;
}

/* ---- leaving early --------------------------------------------------------------------------- */

/* p has begun this call and its CTA has not ended it. Messages and one-sided calls, which have no
 * epoch, look at `over` before each piece instead. */
DEV int is_inside(const symm_args *a, int p, uint32_t epoch) {
    const uint64_t sig = get8(&ctl_of(a, a->rank)->inbox[p].sig[epoch & 1u]);
    return epoch && (uint32_t)(sig >> 32) == epoch &&
           (int32_t)(get4(&ctl_of(a, p)->epoch[blockIdx.x]) - epoch) < 0;
}

/* This rank's words: its host has written them, or a peer. If kernels of other hosts write
 * elsewhere, this host learns it from the kernel that leaves. */
DEV uint64_t own_abort(const symm_args *a) {
    /* pairs with set_word in revoke.c and with tell */
    const uint64_t word = take8(&host_of(a, a->rank)->abort);
    return word || !(a->flags & SYMM_ARG_HOSTS) ? word : take8(&told_of(a, a->rank)->abort);
}
DEV uint64_t own_death(const symm_args *a) {
    /* pairs with symm_comm_note_death, end_peers and tell */
    const uint64_t word = take8(&host_of(a, a->rank)->death);
    return word || !(a->flags & SYMM_ARG_HOSTS) ? word : take8(&told_of(a, a->rank)->death);
}

/* The end of a rank, which peers may mind only when they need it (peerDeath). */
DEV int is_late(const symm_args *a, uint64_t word) {
    return word >> 32 == symmAborted || word == own_death(a);
}

/* Tells one peer. A reason that is late goes into the death word: whose config says otherwise has
 * been told at once, by the host of that rank or by its own watcher. now: it must not go on. */
DEV void tell(const symm_args *a, int p, uint64_t word, int late, int now) {
    symm_ctl *theirs = told_of(a, p);
    if (get8(&theirs->abort)) return;
    if (late && !get8(&theirs->death)) give8(&theirs->death, word); /* first: it is late there */
    if (!late || now) give8(&theirs->abort, word);
}

/* Writes the reason into this rank's host block and into every peer's, whose kernels would
 * otherwise wait for ours for ever. The first reason stays, and is told, also one that was no error
 * until now: behind a kernel that has left others find what follows from that. If two ranks write
 * at once, either may stay. */
static __device__ __noinline__ void leave(const symm_args *a, uint32_t epoch, uint32_t code,
                                          int rank, int stage) {
    symm_ctl *own = host_of(a, a->rank);
    const uint64_t death = own_death(a), abort = own_abort(a);
    const uint64_t word = abort   ? abort
                          : death ? death
                                  : (uint64_t)code << 32 | (uint32_t)(rank + 1);
    if (!abort) put8(&own->left, (uint64_t)epoch << 32 | (uint32_t)stage);
    /* pairs with the acquire in symm_comm_adopt_abort: `left` is there */
    if (!get8(&own->abort)) give8(&own->abort, word);
    const int late = is_late(a, word);
    for (int q = 1; q < a->nranks; q++) tell(a, peer_of(a->rank, a->nranks, q), word, late, 0);
    /* Later kernels see this without asking the host, which takes a millisecond with many warps. A
     * kernel that finds our announcements must not write memory that is the user's again. Written
     * after the reason; pairs with look_over in epoch_word and elsewhere. The reason comes before,
     * so that a kernel that has left by `over`, and its host, find it. */
    __threadfence_system();
    for (int p = 0; p < a->nranks; p++) put4(&ctl_of(a, p)->over, 1);
    __threadfence_system(); /* pairs with that in give_reason: who sees `told` has it behind it */
    put4(&ctl_of(a, a->rank)->told, 1);
}

/* One thread of a CTA that has left, at its end. If it left by `over` alone there may be no reason
 * here yet: a peer has aborted, which was no error of this rank until it needed the peer. Now it
 * is. And before this rank's memory is its user's again, its own kernels have set `over` at all
 * peers. A peer that is inside the call with this CTA must not succeed: it may be loading from
 * windows of this rank. It may have been told no more than a death word. Hundreds of calls may be
 * queued behind the one that left: these find `told`, and do not ask the host. */
static __device__ __noinline__ void give_reason(const symm_args *a, uint32_t epoch, int stage) {
    symm_ctl *own = host_of(a, a->rank);
    const int told = (int)get4(&ctl_of(a, a->rank)->told);
    __threadfence_system(); /* pairs with those in leave: `over` and `told` were read */
    if (!told) {
        uint64_t word = own_abort(a);
        if (!word) word = own_death(a); /* pairs with end_peers in revoke.c */
        if (!word) return;
        leave(a, epoch, (uint32_t)(word >> 32), (int)(uint32_t)word - 1, stage);
    }
    for (int q = 1; q < a->nranks; q++) {
        const int p = peer_of(a->rank, a->nranks, q);
        if (!is_inside(a, p, epoch)) continue;
        const uint64_t word = take8(&own->abort);
        if (word) tell(a, p, word, is_late(a, word), 1);
    }
}

/* The rank whose signature of this epoch has come and differs from ours: it will never send what we
 * wait for. -1: none. */
DEV int differing_rank(const symm_args *a, uint32_t epoch) {
    const symm_gpu_ctl *ctl = ctl_of(a, a->rank);
    for (int p = 0; p < a->nranks; p++) {
        uint64_t w = get8(&ctl->inbox[p].sig[epoch & 1u]);
        if (p != a->rank && (uint32_t)(w >> 32) == epoch && (uint32_t)w != a->sig) return p;
    }
    return -1;
}

#define LEAVING (~0ull)
/* Low bits of `since`, taken from the clock's: the peer, and 1, that was seen to have left. */
#define LEFT_SEEN 127ull
SYMM_STATIC_ASSERT(SYMM_MAX_RANKS < LEFT_SEEN, "any peer, and LEAVING is none");

/* A peer that has left. It may have written our word and left since we last polled: the word is
 * polled again, behind this, before it counts as missing. So the first look only says so in
 * *since. 1: the second one, the peer still owes us the word. */
DEV int left_for_good(const symm_args *a, int peer, uint64_t *since) {
    const uint64_t seen = (unsigned)peer + 1;
    /* pairs with say_left in comm_end.c: what the peer's kernels stored for us is there */
    if (take4(&host_of(a, peer)->state) != SYMM_STATE_LEFT) return 0;
    if ((*since & LEFT_SEEN) == seen) return 1;
    *since = (*since & ~LEFT_SEEN) | seen;
    return 0;
}

/* The slow path of a wait for `peer`, every SPIN_POLLS polls: abort word, signatures, deadline, a
 * peer that is gone. since: 0 at the first call of one wait, then what this returned; LEAVING:
 * the reason is written, leave. */
static __device__ __noinline__ uint64_t wait_slow(const symm_args *a, uint32_t epoch, int peer,
                                                  int stage, uint64_t since) {
    uint64_t abort = own_abort(a);
    const uint64_t now = clock_ns();
    uint32_t code = 0;
    int rank = peer;
    if (!abort) abort = own_death(a);
    if (!since) since = now & ~LEFT_SEEN; /* no clock is near 0 */
    const uint64_t waited = now - (since & ~LEFT_SEEN);
    if (abort)
        code = (uint32_t)(abort >> 32), rank = (int)(uint32_t)abort - 1;
    else if ((rank = differing_rank(a, epoch)) >= 0)
        code = symmMismatch;
    else if (rank = peer, a->timeout_ns && waited > a->timeout_ns)
        code = symmTimeout;
    else if (waited > LEFT_GRACE_NS && left_for_good(a, peer, &since))
        code = symmRemoteError;
    if (!code) return since;
    leave(a, epoch, code, rank, stage);
    return LEAVING;
}

/* Looks again whether a kernel has left: in each poll for a peer's offsets, and before each further
 * piece that is stored into a window without a wait for its owner. A rank that has aborted may
 * reuse its memory as soon as its own kernels have ended, which they do after they have set `over`.
 * The load is begun before other loads, whose time hides its own. */
DEV void look_over(run &r) {
    r.over = (int)get4(&r.ctl->over); /* pairs with leave */
}

/* One poll has failed. 1: leave. Of the threads of a warp that are here together one asks the host;
 * the others learn from `over`, which a leaving thread sets, that they must leave. They exchange
 * nothing: lanes that are here together need not be so at the next instruction, and a shuffle
 * among them stood still on a GPU whose processes took turns (docs/performance.md). */
DEV int poll_again(run &r, uint32_t &polls, int peer, int stage, uint64_t &since) {
    if (r.over) return r.left = 1;
    if (++polls < SPIN_POLLS) return 0;
    polls = 0;
    if ((int)(threadIdx.x & 31u) == __ffs((int)__activemask()) - 1) {
        since = wait_slow(r.a, r.epoch, peer, stage, since);
        r.left |= since == LEAVING;
        return since == LEAVING;
    }
    if (!since) since = clock_ns() & ~LEFT_SEEN; /* when its wait began, should it be the next */
    look_over(r);
    return 0;
}
/* The same for a whole warp that polls together. */
DEV int warp_poll_again(run &r, uint32_t &polls, int peer, int stage, uint64_t &since) {
    if (__any_sync(0xffffffffu, r.over)) return r.left = 1;
    if (++polls < SPIN_POLLS) return 0;
    polls = 0;
    if ((threadIdx.x & 31u) == 0) since = wait_slow(r.a, r.epoch, peer, stage, since);
    since = __shfl_sync(0xffffffffu, since, 0);
    __syncwarp(); /* the others poll again behind what that lane saw, too */
    r.left |= since == LEAVING;
    return since == LEAVING;
}

/* ---- user memory: any alignment -------------------------------------------------------------- */

/* Largest power of two up to 16 of which p, and so every multiple of 16 bytes from it, is a
 * multiple. */
DEV int alignment(const void *p) {
    uint32_t low = (uint32_t)(uintptr_t)p & 15u;
    return low ? (int)(low & (0u - low)) : 16;
}

/* The first `valid` bytes of WORDS words at p, and 0 for the others. Not inlined: the ends of a
 * message and odd addresses come here, and registers belong to the rest. All loads are under way
 * at once. */
template <int WORDS> static __device__ __noinline__ uint4 load_bytes(const char *p, int64_t valid) {
    uint32_t w[4] = {0, 0, 0, 0}, b[WORDS * 4];
#pragma unroll
    for (int i = 0; i < WORDS * 4; i++) b[i] = i < valid ? byte_at(p + i) : 0;
#pragma unroll
    for (int i = 0; i < WORDS * 4; i++) w[i / 4] |= b[i] << (i % 4 * 8);
    return make_uint4(w[0], w[1], w[2], w[3]);
}

template <int WORDS>
static __device__ __noinline__ void store_bytes(char *p, uint4 v, int64_t valid) {
    const uint32_t w[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
    for (int i = 0; i < WORDS * 4; i++)
        if (i < valid) p[i] = (char)(w[i / 4] >> (i % 4 * 8));
}

/* The word between these two. */
DEV uint32_t straddle(uint32_t low, uint32_t high) {
    return low >> 16 | high << 16;
}
/* 8 bytes of an address that is a multiple of 2 and not of 4. */
DEV uint2 halves8(const char *p) {
    const uint32_t a = pair_at(p), b = load4(p + 2), c = pair_at(p + 6);
    return make_uint2(a | b << 16, straddle(b, c));
}
DEV void join_halves(uint32_t (&v)[4], const uint32_t (&h)[5]) {
    v[0] = h[0] | h[1] << 16, v[3] = straddle(h[3], h[4]);
    v[1] = straddle(h[1], h[2]), v[2] = straddle(h[2], h[3]);
}
DEV uint4 halves16(const char *p) {
    const uint32_t h[5] = {pair_at(p), load4(p + 2), load4(p + 6), load4(p + 10), pair_at(p + 14)};
    uint32_t v[4];
    join_halves(v, h);
    return make_uint4(v[0], v[1], v[2], v[3]);
}
DEV void put_pair(char *p, uint32_t w) {
    *(unsigned short *)p = (unsigned short)w;
}
DEV void put4_at(char *p, uint32_t w) {
    *(uint32_t *)p = w;
}

/* 8 or 16 bytes at p, of which `valid` exist. align: of p; 2 says that p is no multiple of 4. More
 * ways than these cost aligned buffers 5 % of their time. */
DEV void load_user(uint32_t (&w)[2], const char *p, int64_t valid, int align) {
    uint2 v = make_uint2(0, 0);
    if (valid >= 8 && align >= 8) {
        v = load8(p);
    } else if (valid >= 8 && align == 4) {
        v = make_uint2(load4(p), load4(p + 4));
    } else if (valid >= 8 && align == 2) {
        v = halves8(p);
    } else if (valid > 0) {
        const uint4 b = load_bytes<2>(p, valid);
        v = make_uint2(b.x, b.y);
    }
    w[0] = v.x, w[1] = v.y;
}
DEV void load_user(uint32_t (&w)[4], const char *p, int64_t valid, int align) {
    uint4 v = make_uint4(0, 0, 0, 0);
    if (valid >= 16 && align >= 16) {
        v = load16(p);
    } else if (valid >= 16 && align >= 4) {
        v = make_uint4(load4(p), load4(p + 4), load4(p + 8), load4(p + 12));
    } else if (valid >= 16 && align == 2) {
        v = halves16(p);
    } else if (valid > 0) {
        v = load_bytes<4>(p, valid);
    }
    w[0] = v.x, w[1] = v.y, w[2] = v.z, w[3] = v.w;
}
DEV void store_user(char *p, const uint32_t (&w)[2], int64_t valid, int align) {
    if (valid >= 8 && align >= 8)
        *(uint2 *)p = make_uint2(w[0], w[1]);
    else if (valid >= 8 && align == 4)
        put4_at(p, w[0]), put4_at(p + 4, w[1]);
    else if (valid >= 8 && align == 2)
        put_pair(p, w[0]), put4_at(p + 2, straddle(w[0], w[1])), put_pair(p + 6, w[1] >> 16);
    else if (valid > 0)
        store_bytes<2>(p, make_uint4(w[0], w[1], 0, 0), valid);
}
DEV void store_user(char *p, const uint32_t (&w)[4], int64_t valid, int align) {
    if (valid >= 16 && align >= 16) {
        *(uint4 *)p = make_uint4(w[0], w[1], w[2], w[3]);
    } else if (valid >= 16 && align >= 4) {
#pragma unroll
        for (int i = 0; i < 4; i++) put4_at(p + 4 * i, w[i]);
    } else if (valid >= 16 && align == 2) {
        put_pair(p, w[0]), put_pair(p + 14, w[3] >> 16);
#pragma unroll
        for (int i = 0; i < 3; i++) put4_at(p + 2 + 4 * i, straddle(w[i], w[i + 1]));
    } else if (valid > 0) {
        store_bytes<4>(p, make_uint4(w[0], w[1], w[2], w[3]), valid);
    }
}

/* ---- LL: 8 bytes of data in 16, each half with a flag of its own ----------------------------- */

/* What a packet of this epoch is marked with. Never 0, which unused scratch holds. */
DEV uint32_t ll_flag(const run &r) {
    return r.epoch;
}
DEV uint64_t ll_slot_at(const run &r, int source) {
    const symm_scratch *s = &r.a->scratch;
    uint64_t i = (uint64_t)(r.epoch & 1u) * (unsigned)r.a->nranks + (unsigned)source;
    return s->gpu.ll_off + i * s->gpu.ll_slot;
}
DEV char *ll_slot(const run &r, int rank, int source) {
    return flat(r.a, rank, ll_slot_at(r, source));
}
DEV void ll_put(char *slot, uint64_t item, const uint32_t (&w)[2], uint32_t flag) {
    put16(slot + item * 16, make_uint4(w[0], flag, w[1], flag));
}
DEV int ll_is(uint4 v, uint32_t flag) {
    return v.y == flag && v.w == flag;
}

/* ---- LL128: 120 bytes of data and 8 of flag in each line of 128, by 8 lanes at once ---------- */

/* A warp moves 4 lines, 480 bytes of data. Lanes 7, 15, 23 and 31 hold the flag in their upper
 * half. In every 16 lanes (240 bytes) lane 7 has the lower half of the 16 bytes at 112 and lane 15
 * the upper, so that all other lanes have whole, aligned pieces. */
#define LINE_DATA  480
#define LINE_BYTES 512

struct piece {
    int at;    /* this lane's data in the warp's 480 bytes */
    int flags; /* 1: this lane carries a flag, and only 8 bytes of data */
};
DEV piece lane_piece(int lane) {
    int l = lane & 15;
    piece p;
    p.flags = (l & 7) == 7;
    p.at = (lane >> 4) * 240 + (l == 7 ? 112 : l == 15 ? 120 : 16 * l);
    return p;
}
/* A lane with half data loads the 16 bytes in which it is, from `upper_of` bytes before its own,
 * and the upper half becomes the lower: so all lanes make one kind of load, and none waits for
 * another (ptx.cuh). The 16 bytes lie within the line. */
DEV unsigned upper_of(const piece &m) {
    return m.flags ? (unsigned)m.at & 8u : 0u;
}
DEV void lower(uint32_t (&v)[4], unsigned upper) {
    v[0] = upper ? v[2] : v[0];
    v[1] = upper ? v[3] : v[1];
}
/* Epoch and how often this place has been used in it. */
DEV uint64_t line_flag(const run &r, uint32_t use) {
    return (uint64_t)r.epoch << 32 | (use + 1);
}
DEV char *line_slot(const run &r, int rank, int phase, int source) {
    const symm_scratch *s = &r.a->scratch;
    uint64_t i = ((r.epoch & 1u) * (uint64_t)r.a->nranks + (unsigned)source) * 2u + (unsigned)phase;
    return flat(r.a, rank, s->gpu.line_off + i * s->gpu.line_slot);
}
/* This lane's 16 bytes of a line: data, or half data and half flag. */
DEV uint4 line_pack(const uint32_t (&w)[4], int flags, uint64_t flag) {
    return flags ? make_uint4(w[0], w[1], (uint32_t)flag, (uint32_t)(flag >> 32))
                 : make_uint4(w[0], w[1], w[2], w[3]);
}
DEV int line_stale(uint4 v, int flags, uint64_t flag) {
    return flags && (v.z != (uint32_t)flag || v.w != (uint32_t)(flag >> 32));
}
/* A warp's store of its lines to a peer. A flag must not become visible before its data, and over a
 * link only what one instruction stores arrives as one. So the store is made by all lanes together;
 * a warp whose lanes are apart (compilers do not promise to bring them together, and __syncwarp
 * does so for its own length only) stores the data first, and the flags behind a fence. */
DEV void line_put(void *p, uint4 v, int flags) {
    if (!put_whole_warp(p, v)) return;
    if (!flags) put16(p, v);
    __syncwarp();
    if (flags) {
        /* pairs with line_wait and lines_wait: whoever sees the flags reads the line after them */
        __threadfence_system();
        put16(p, v);
    }
    __syncwarp();
}
/* The same of `count` lines, up to four, `step` apart, by one vote. */
DEV void lines_put(char *p, unsigned step, const uint4 (&v)[4], unsigned count, int flags) {
    if (!count || !put_whole_warps(p, step, v, count)) return;
#pragma unroll 1
    for (unsigned i = 0; i < count; i++)
        line_put(p + i * step, i == 0 ? v[0] : i == 1 ? v[1] : i == 2 ? v[2] : v[3], flags);
}
/* One look at up to N of a warp's lines, `step` apart, but for line `skip`. 1: the warp was not
 * whole; then only the flags are read, and the lines are to be read again behind them (lines_read):
 * so what a torn read could do does not matter. */
template <int N>
DEV int lines_look(uint4 (&v)[N], const char *at, uint64_t step, int count, int skip, int flags) {
    int apart = 0;
#pragma unroll
    for (int i = 0; i < N; i++)
        apart |= get_whole_warp(v[i], at + (unsigned)i * step, i < count && i != skip);
    if (!apart) return 0;
#pragma unroll
    for (int i = 0; i < N; i++)
        get16_if(v[i], at + (unsigned)i * step, i < count && i != skip && flags);
    return 1;
}
template <int N>
DEV void lines_read(uint4 (&v)[N], const char *at, uint64_t step, int count, int skip) {
    __syncwarp(); /* a vote orders no memory: lanes without a flag read behind those with one */
#pragma unroll
    for (int i = 0; i < N; i++) get16_if(v[i], at + (unsigned)i * step, i < count && i != skip);
}
/* Waits for one warp's line from `peer` and reads it. All lanes together. 1: leave. */
DEV int line_wait(run &r, const char *at, int flags, uint64_t flag, int peer, int stage, uint4 &v) {
    uint32_t polls = 0;
    uint64_t since = 0;
    uint4 one[1] = {};
    int apart;
    while (apart = lines_look(one, at, 0, 1, -1, flags),
           __any_sync(0xffffffffu, line_stale(one[0], flags, flag)))
        if (warp_poll_again(r, polls, peer, stage, since)) return 1;
    if (apart) lines_read(one, at, 0, 1, -1);
    v = one[0];
    return 0;
}
/* The same of `count` lines, up to four, `step` apart, by one vote. */
DEV int lines_wait(run &r, const char *at, unsigned step, unsigned count, int flags, uint64_t flag,
                   int peer, uint4 (&v)[4]) {
    uint32_t polls = 0;
    uint64_t since = 0;
    for (;;) {
        const int apart = get_whole_warps(v, at, step, count);
        uint32_t off = 0;
        if (apart) lines_look(v, at, step, (int)count, -1, flags);
#pragma unroll
        for (unsigned i = 0; i < 4; i++)
            if (i < count) off |= (v[i].z ^ (uint32_t)flag) | (v[i].w ^ (uint32_t)(flag >> 32));
        if (!__any_sync(0xffffffffu, flags && off)) {
            if (apart) lines_read(v, at, step, (int)count, -1);
            return 0;
        }
        if (warp_poll_again(r, polls, peer, SYMM_STAGE_PACKET, since)) return 1;
    }
}

#endif
