/* direct.cuh - large messages: stores straight into the users' windows, no flag in the data.
 * all_gather, the shapes that reduce nothing, and what all_reduce (staged.cuh) shares with them.
 * GPU code: the data threads run it.
 *
 * Entry: every rank sends every peer the offsets of its buffers (ready). When all offsets are
 * there, each rank knows whether all buffers of all ranks are in windows and have the same
 * alignment (address mod 16). All ranks get the same answer, because they use the same words.
 *   - Yes: they load and store in the windows, 16 bytes at once. The bytes before the first
 *     multiple of 16 and after the last one go separately.
 *   - No: all ranks go through scratch; or, where only the results are in windows, by the rows of
 *     each result (all_gather, hop_direct).
 * A ready word also says that its sender's kernel has begun, so that its buffers may be read and
 * written.
 *
 * Exit: a CTA releases an arrival word on every peer, after its stores, and waits for the arrival
 * words of the same CTA of all peers. Then no peer reads its source any more, and all that peers
 * store here has arrived. */
#ifndef SYMM_CUDA_DIRECT_CUH_
#define SYMM_CUDA_DIRECT_CUH_

#include "shape.cuh"
#include "two_shots.cuh"

/* Measured on two and four H200; docs/performance.md. */
#define AG_WARPS 4u
#define ROW      512u /* bytes that a warp loads or stores at once */

struct places { /* of all ranks' buffers; shared by the CTA */
    uint64_t src[SYMM_MAX_RANKS], dst[SYMM_MAX_RANKS];
    uint32_t posts; /* turns of this CTA that end in a post: staged.cuh */
};

/* A barrier of the CTA's data warps: the last warp exchanges signatures. 1: one of them leaves. */
DEV int data_barrier(int left) {
    return meet(1, data_threads(), left);
}

DEV void put_offset(uint32_t *to, uint64_t off, uint32_t epoch) {
    put16(to, make_uint4((uint32_t)off, epoch, (uint32_t)(off >> 32),
                         epoch)); /* pairs with take_offsets */
}
DEV uint64_t offset_in(uint4 v) {
    return (uint64_t)v.z << 32 | v.x;
}
/* Waits for rank p's offsets and its signature, and reads them in one batch: one after the other
 * they take three times as long. If a peer is in another call, neither may use the other's buffers:
 * the signature is compared before the offsets are used. 1: leave. */
template <int SOURCES> DEV int take_offsets(run &r, places &at, int p) {
    const symm_gpu_inbox *in = &r.ctl->inbox[p];
    const unsigned parity = r.epoch & 1u;
    uint32_t polls = 0;
    uint64_t since = 0, word;
    uint4 src, dst;
    for (;;) {
        look_over(r);
        dst = get16(in->dst_off[parity]);
        src = SOURCES ? get16(in->src_off[parity]) : dst;
        word = get8(&in->sig[parity]);
        if (ll_is(dst, r.epoch) && ll_is(src, r.epoch) && is_signature(r, word)) break;
        if (poll_again(r, polls, p, SYMM_STAGE_READY, since)) return 1;
    }
    if (SOURCES) at.src[p] = offset_in(src);
    at.dst[p] = offset_in(dst);
    return is_mismatch(r, p, word);
}

/* Announces this rank's buffers: the destination, with SOURCES the source too. A rank that is
 * leaving does not, because its program may reuse them. Its peers find the reason in their words.
 * Pairs with take_offsets. All data threads call it, and then hear_offsets. */
template <int SOURCES> DEV void say_offsets(const run &r) {
    const symm_args *a = r.a;
    const unsigned parity = r.epoch & 1u;
    if (blockIdx.x || r.over) return;
    for (int p = (int)threadIdx.x; p < a->nranks; p += (int)data_threads()) {
        symm_gpu_inbox *out = &ctl_of(a, p)->inbox[a->rank];
        if (p == a->rank) continue;
        if (SOURCES) put_offset(out->src_off[parity], a->src_off, r.epoch);
        put_offset(out->dst_off[parity], a->dst_off, r.epoch);
    }
}
/* Waits for all ranks' buffers. 1: leave. */
template <int SOURCES> DEV int hear_offsets(run &r, places &at) {
    const symm_args *a = r.a;
    /* A rank that announced its buffers may have given up while it waited for us. */
    int left = r.over;
    for (int p = (int)threadIdx.x; p < a->nranks; p += (int)data_threads()) {
        at.src[p] = a->src_off, at.dst[p] = a->dst_off;
        if (p == a->rank) continue;
        left |= take_offsets<SOURCES>(r, at, p);
        left |= r.over; /* a rank that announced its buffers may have left since */
    }
    return data_barrier(left);
}
template <int SOURCES> DEV int trade_offsets(run &r, places &at) {
    say_offsets<SOURCES>(r);
    return hear_offsets<SOURCES>(r, at);
}

/* Behind say_offsets<1>: waits for all offsets. Whether all ranks may go between windows:
 *  1  all buffers are in windows, no element of `unit` bytes crosses a multiple of 16, and all have
 *     the same alignment; rank p's source is compared with what is p * part bytes into a result
 *  0  not so
 * -1  leave */
DEV int hear_places(run &r, places &at, uint64_t part, unsigned unit) {
    const symm_args *a = r.a;
    if (hear_offsets<1>(r, at)) return -1;
    const uint64_t at0 = at.dst[0];
    uint64_t bad = at0 & (unit - 1);
    for (int p = 0; p < a->nranks; p++)
        bad |= at.src[p] == SYMM_STAGED || at.dst[p] == SYMM_STAGED
                   ? 1u
                   : ((at.dst[p] - at0) | (at.src[p] - at0 - (unsigned)p * part)) & 15u;
    return !bad;
}

DEV int trade_places(run &r, places &at, uint64_t part, unsigned unit) {
    say_offsets<1>(r);
    return hear_places(r, at, part, unit);
}

/* A peer may be one call ahead, over the wrap 3 epochs, and have arrived in that one already: its
 * CTA that has nothing to move there waits for nobody first. 0: it has never arrived. */
DEV int has_arrived(uint32_t word, uint32_t epoch) {
    return word && word - epoch <= 3u;
}
/* After the CTA's last load and store. Of a kernel that stores nothing at a peer (`loads`) the
 * arrival says that it reads no more: what it has loaded it has stored here, so its loads have
 * returned, and no fence need wait for those stores.
 *
 * The wait is relaxed, as this kernel reads nothing behind it. What the peer has stored is in this
 * rank's memory, because the peer releases; whoever reads it comes behind the end of this kernel,
 * which orders as a fence does. But the next call on another stream comes behind the done words of
 * an eager one (close_kernel): so that acquires, before it writes them. */
DEV void arrive_and_wait(run &r) {
    const symm_args *a = r.a;
    /* Orders the stores of all data threads of the CTA before the release below, which is
     * cumulative. If one thread has not stored everything, no arrival word is sent. */
    if (data_barrier(r.left)) {
        r.left = 1;
        return;
    }
    for (int p = (int)threadIdx.x; p < a->nranks; p += (int)data_threads()) {
        uint64_t *word = &ctl_of(a, p)->arrive[blockIdx.x][a->rank];
        if (p == a->rank) continue;
        if (r.loads)
            put8(word, r.epoch);
        else
            give8(word, r.epoch); /* both pair with the wait below */
    }
    for (int p = (int)threadIdx.x; p < a->nranks; p += (int)data_threads()) {
        const uint64_t *word = &r.ctl->arrive[blockIdx.x][p];
        uint32_t polls = 0;
        uint64_t since = 0;
        while (p != a->rank && !has_arrived((uint32_t)get8(word), r.epoch))
            if (poll_again(r, polls, p, SYMM_STAGE_ARRIVE, since)) return;
        if (a->gpu.serial) __threadfence_system(); /* acquires what was looked at */
    }
}

/* ---- what copy engines have moved ------------------------------------------------------------ */

/* Before the copies of a call (copies.h): one warp exchanges with every peer what stands for the
 * places of its buffers. All ranks get the same answer, because they use the same words: if it is
 * the same everywhere and nowhere 0, each rank's copies load from where its peers' sources are, and
 * the kernel behind them moves nothing. The words are those of premulsum, which is no such call.
 *
 * The signatures are exchanged here, with release and acquire: what any rank's stream has done
 * before is seen by all copies. The kernel behind the copies has the same epoch. It exchanges the
 * same words again, and advances the epoch for both. The signature that it waits for may be that of
 * a peer's first kernel; the proof of frame.cuh holds all the same, as that one too begins when the
 * kernel of the epoch before has ended. */
DEV void copies_meet(run &r) {
    const symm_args *a = r.a;
    const unsigned at = r.epoch & 1u;
    const uint64_t own = a->scalar;
    int differs = !own;
    r.left |= r.over;
    for (int p = (int)threadIdx.x; p < a->nranks && !r.left; p += 32)
        if (p != a->rank) /* pairs with the wait below */
            put16(&ctl_of(a, p)->inbox[a->rank].scalar[at],
                  make_uint4((uint32_t)own, r.epoch, (uint32_t)(own >> 32), r.epoch));
    for (int p = (int)threadIdx.x; p < a->nranks && !r.left; p += 32) {
        uint32_t polls = 0;
        uint64_t since = 0;
        uint4 v = make_uint4(0, 0, 0, 0);
        while (p != a->rank && !ll_is(v = get16(&r.ctl->inbox[p].scalar[at]), r.epoch))
            if (poll_again(r, polls, p, SYMM_STAGE_READY, since)) break;
        differs |= r.left || (p != a->rank && offset_in(v) != own);
    }
    differs = __any_sync(0xffffffffu, differs | r.left);
    if (threadIdx.x) return;
    put4(&r.ctl->copied, differs ? 0 : r.epoch); /* read by is_copied */
    if (differs && own && !r.left)
        put8(&host_of(a, a->rank)->astray, 1); /* read by launch_copies.c */
}
/* Its end: the epoch is left to the kernel behind it. */
DEV void copies_begun(run &r) {
    if (!is_data()) hear_signatures<1>(r);
    if (__syncthreads_or(r.left) && threadIdx.x == 0) give_reason(r.a, r.epoch, SYMM_STAGE_ENTER);
}

/* By the kernel behind the copies: whether there is nothing left to move. All threads of all ranks
 * get the same answer. */
DEV int is_copied(const run &r) {
    return r.a->flags & SYMM_ARG_COPIES && get4(&r.ctl->copied) == r.epoch;
}

/* ---- addresses ------------------------------------------------------------------------------- */

/* One address only for each local byte: the user's own. */
DEV const char *source_of(const symm_args *a, const places &at, int p) {
    return p == a->rank ? (const char *)a->src : flat(a, p, at.src[p]);
}
DEV char *target_of(const symm_args *a, const places &at, int p) {
    return p == a->rank ? (char *)a->dst : flat(a, p, at.dst[p]);
}

/* The warp's first chunk. Warp 0 of all CTAs comes before warp 1 of any, so that few chunks spread
 * over all multiprocessors. `none` for a warp beyond the first `warps` of its CTA. */
DEV uint64_t first_chunk(unsigned warps, uint64_t none) {
    const unsigned warp = threadIdx.x / 32u;
    return warp < warps ? (uint64_t)warp * gridDim.x + blockIdx.x : none;
}

/* ---- all_gather: every rank stores its part to all ------------------------------------------- */

/* The part's bytes before its first multiple of 16 and behind its last, by one warp: at most 30. */
DEV void ag_ends(const symm_args *a, const places &at, unsigned n, uint64_t mine, unsigned lead,
                 unsigned tail) {
    const uint64_t bytes = a->count * a->esize;
    const unsigned lane = threadIdx.x;
    const uint64_t i = lane < lead ? lane : bytes - tail + (lane - lead);
    if (blockIdx.x || lane >= lead + tail) return;
    const char v = (char)byte_at((const char *)a->src + i);
    for (unsigned q = 0; q < n; q++) {
        char *to = target_of(a, at, peer_of(a->rank, (int)n, (int)q)) + mine;
        if (q || to != a->src) to[i] = v;
    }
}

/* The rows of 16 bytes of the own part, in chunks, of which each warp has one at a time. Job w is
 * one chunk for one peer: each chunk goes to another peer first. */
#define AG_ROWS 8u
struct ag_part {
    const char *src; /* first row */
    uint64_t bytes;  /* of the part; before its first row are `lead` of them */
    uint64_t vectors, jobs;
    unsigned n, lead, warps;
};
template <int N> DEV ag_part ag_part_of(const symm_args *a) {
    ag_part g;
    /* More warps do not make the link faster, and the message ends later. */
    const unsigned has = data_threads() / 32u;
    g.n = (unsigned)(N ? N : a->nranks), g.warps = has < AG_WARPS ? has : AG_WARPS;
    g.bytes = a->count * a->esize, g.lead = lead_of(a->src, g.bytes);
    g.src = (const char *)a->src + g.lead, g.vectors = (g.bytes - g.lead) / 16;
    g.jobs = (g.vectors + 32u * AG_ROWS - 1) / (32u * AG_ROWS) * (g.n - 1);
    return g;
}
/* This lane's first row of job w. */
DEV uint64_t ag_row(const ag_part &g, uint64_t w) {
    return w / (g.n - 1) * (32u * AG_ROWS) + threadIdx.x % 32u;
}
DEV void ag_load(uint4 (&v)[AG_ROWS], const ag_part &g, uint64_t w) {
    const uint64_t first = ag_row(g, w);
#pragma unroll
    for (unsigned i = 0; i < AG_ROWS; i++)
        get16_if(v[i], g.src + (first + i * 32u) * 16, first + i * 32u < g.vectors);
}

/* Stores the part to all; v: what ag_load has loaded of this warp's first job. The own copy is made
 * beside the first store of a chunk, while the link works. */
template <int N>
DEV void ag_direct(run &r, const places &at, const ag_part &g, uint4 (&v)[AG_ROWS]) {
    const symm_args *a = r.a;
    const uint64_t part = (uint64_t)(unsigned)a->rank * g.bytes, mine = part + g.lead;
    char *own = (char *)a->dst + mine;
    ag_ends(a, at, g.n, part, g.lead, (unsigned)(g.bytes - g.lead) % 16u);
    for (uint64_t w = first_chunk(g.warps, g.jobs); w < g.jobs;) {
        const uint64_t first = ag_row(g, w);
        const int q = 1 + (int)((w + w / (g.n - 1)) % (g.n - 1));
        char *to = target_of(a, at, peer_of(a->rank, (int)g.n, q)) + mine;
#pragma unroll
        for (unsigned i = 0; i < AG_ROWS; i++)
            if (first + i * 32u < g.vectors) *((uint4 *)to + first + i * 32u) = v[i];
#pragma unroll
        for (unsigned i = 0; i < AG_ROWS; i++)
            if (q == 1 && own != g.src && first + i * 32u < g.vectors)
                *((uint4 *)own + first + i * 32u) = v[i];
        w += (uint64_t)g.warps * gridDim.x;
        look_over(r);
        ag_load(v, g, w);
        if (r.over) {
            r.left = w < g.jobs;
            break;
        }
    }
    arrive_and_wait(r);
}

/* ---- every shape that reduces nothing: each giver stores to the takers ----------------------- */

/* All destinations are in windows; they may begin at any address. Rows of 16 bytes are those of the
 * destination, what lies before the first goes byte by byte: no byte of a neighbour's part is
 * written. Sources may be anywhere, in no window too, because only their own rank reads them. */

/* Behind an exchange of offsets: whether each destination that takes is in a window. */
template <int S> DEV int targets_in_windows(const symm_args *a, const places &at) {
    int all = 1;
    for (int p = 0; p < a->nranks; p++) all &= !takes<S>(a, p) || at.dst[p] != SYMM_STAGED;
    return all;
}
/* Exchanges the offsets of the destinations. All data threads call it.
 *  1  each destination that takes is in a window
 *  0  not so
 * -1  leave */
template <int S> DEV int trade_targets(run &r, places &at) {
    return trade_offsets<0>(r, at) ? -1 : targets_in_windows<S>(r.a, at);
}

/* U times 16 bytes of a part, a warp's rows; loads together. */
template <int U>
DEV void load_rows(uint32_t (&v)[U][4], const char *part, uint64_t from, uint64_t bytes,
                   uint64_t step) {
    const int align = alignment(part);
    if (align == 16 && from + (U - 1) * step + 16 <= bytes) {
#pragma unroll
        for (int i = 0; i < U; i++) to_words(v[i], load16(part + from + (unsigned)i * step));
        return;
    }
#pragma unroll
    for (int i = 0; i < U; i++) {
        const uint64_t at = from + (unsigned)i * step;
        load_user(v[i], part + at, (int64_t)(bytes - at), align);
    }
}
template <int U>
DEV void store_rows(char *part, const uint32_t (&v)[U][4], uint64_t from, uint64_t bytes,
                    uint64_t step) {
    const int align = alignment(part);
#pragma unroll
    for (int i = 0; i < U; i++) {
        const uint64_t at = from + (unsigned)i * step;
        store_user(part + at, v[i], (int64_t)(bytes - at), align);
    }
}

/* U rows of a part from byte `at` on, to an address that may be anywhere: what lies before its
 * first multiple of 16 goes byte by byte, with the first rows. 1: leave. */
template <int U>
DEV int rows_move(run &r, char *to, const char *from, uint64_t bytes, uint64_t at) {
    const uint32_t lead = lead_of(to, bytes), lane = threadIdx.x % 32u;
    const int byte = at == 0 && lane < lead;
    uint32_t v[U][4], first = 0;
    at += lane * 16;
    look_over(r);
    if (byte) first = byte_at(from + lane);
    load_rows<U>(v, from + lead, at, bytes - lead, ROW);
    if (r.over) return r.left = 1;
    if (byte) to[lane] = (char)first;
    store_rows<U>(to + lead, v, at, bytes - lead, ROW);
    return 0;
}

/* Chunk by chunk, each chunk to another rank first; the own part is one of them. */
template <int S, int N> DEV void hop_direct(run &r, const places &at) {
    const int U = 8;
    const symm_args *a = r.a;
    const uint64_t bytes = part_bytes(a), block = ROW * U, chunks = (bytes + block - 1) / block;
    char *own = own_target<S>(a);
    const unsigned others = (unsigned)takers<S, N>(a), n = others + (own ? 1u : 0u);
    const uint64_t all = chunks * n;
    const unsigned has = data_threads() / 32u, warps = has < AG_WARPS ? has : AG_WARPS;
    for (uint64_t w = first_chunk(warps, all); w < all; w += (uint64_t)warps * gridDim.x) {
        const uint64_t c = w / n;
        const unsigned q = 1 + (unsigned)((w + c) % n);
        const int p = q > others ? a->rank : taker<S, N>(a, (int)q);
        char *to = q > others ? own : target_of(a, at, p) + part_from<S>(a, a->rank);
        if (rows_move<U>(r, to, (const char *)a->src + part_for<S>(a, p), bytes, c * block)) break;
    }
    arrive_and_wait(r);
}

#endif
