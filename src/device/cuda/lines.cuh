/* lines.cuh - middle and large messages in lines of 128 bytes that end in a flag (LL128), in one
 * shot; two_shots.cuh has two, pair_lines.cuh what two ranks do otherwise. Ranks share only
 * scratch, so buffers may be anywhere. A line's flag pairs line_put and lines_put with
 * line_wait, lines_wait and line_gather. GPU code: whole data warps run it. */
#ifndef SYMM_CUDA_LINES_CUH_
#define SYMM_CUDA_LINES_CUH_

#include "frame.cuh"

/* ---- middle and large: LL128 lines ----------------------------------------------------------- */

/* A warp's share. The message (or a slice of it) is cut into items of warps * lines * LINE_DATA
 * bytes; of item k warp w has `lines` lines from (k * warps + w) * lines on. Each item has a
 * place in scratch, which item k + places uses again. */
struct warp_work {
    int lane, warp, warps; /* of those that move lines */
    unsigned lines, places;
    piece mine;
};
/* A direct kernel may have more warps than there are lines in scratch for: those do not come
 * here. */
DEV int has_lines(const symm_args *a) {
    return threadIdx.x >> 5 < a->gpu.line_warps;
}
DEV warp_work warp_of(const symm_args *a, unsigned places) {
    warp_work w;
    w.lane = (int)(threadIdx.x & 31u);
    w.warp = (int)((threadIdx.x >> 5) * gridDim.x + blockIdx.x); /* neighbours on different SMs */
    w.warps = (int)(gridDim.x * a->gpu.line_warps);
    w.lines = (unsigned)a->gpu.lines;
    w.places = places;
    w.mine = lane_piece(w.lane);
    return w;
}
/* Where this lane's 16 bytes of the item's line j are in a slot. Neighbouring warps' lines are next
 * to each other. */
DEV uint64_t line_at(const warp_work &w, uint32_t use, unsigned j) {
    return (((uint64_t)(use % w.places) * w.lines + j) * (unsigned)w.warps + (unsigned)w.warp) *
               LINE_BYTES +
           (unsigned)w.lane * 16;
}
/* Byte of the message at which the item's line j of this warp begins. */
DEV uint64_t data_at(const warp_work &w, uint32_t use, unsigned j) {
    return (((uint64_t)use * w.lines + j) * (unsigned)w.warps + (unsigned)w.warp) * LINE_DATA;
}
/* Lines of the item that exist; the same for this warp on every rank. */
DEV unsigned lines_of(const warp_work &w, uint32_t use, uint64_t bytes) {
    const uint64_t first = data_at(w, use, 0), step = (uint64_t)(unsigned)w.warps * LINE_DATA;
    if (first >= bytes) return 0;
    const uint64_t n = (bytes - first + step - 1) / step;
    return n < w.lines ? (unsigned)n : w.lines;
}

/* This lane's part of a line of user memory: [at, end) of base, of which the lane's piece. */
DEV void load_line(uint32_t (&v)[4], const char *base, uint64_t at, uint64_t end, const piece &m,
                   int align) {
    const uint64_t from = at + (unsigned)m.at;
    const int64_t valid = (int64_t)(end - from);
    if (m.flags) {
        uint32_t half[2];
        load_user(half, base + from, valid, align);
        v[0] = half[0], v[1] = half[1], v[2] = 0, v[3] = 0;
    } else {
        load_user(v, base + from, valid, align);
    }
}
DEV void store_line(char *base, const uint32_t (&v)[4], uint64_t at, uint64_t end, const piece &m,
                    int align) {
    const uint64_t from = at + (unsigned)m.at;
    const int64_t valid = (int64_t)(end - from);
    if (m.flags) {
        const uint32_t half[2] = {v[0], v[1]};
        store_user(base + from, half, valid, align);
    } else {
        store_user(base + from, v, valid, align);
    }
}
DEV void to_words(uint32_t (&w)[4], uint4 v) {
    w[0] = v.x, w[1] = v.y, w[2] = v.z, w[3] = v.w;
}
DEV void copy_words(uint32_t (&to)[4], const uint32_t (&from)[4]) {
#pragma unroll
    for (int i = 0; i < 4; i++) to[i] = from[i];
}

template <int N>
DEV void line_send(run &r, const warp_work &w, uint32_t use, unsigned j, int phase,
                   const uint32_t (&v)[4]) {
    const int n = N ? N : r.a->nranks, rank = N == 4 ? anew(r.a->rank) : r.a->rank;
    const uint4 packed = line_pack(v, w.mine.flags, line_flag(r, use));
    const uint64_t at = line_at(w, use, j);
#pragma unroll
    for (int q = 1; q < n; q++)
        line_put(line_slot(r, peer_of(rank, n, q), phase, rank) + at, packed, w.mine.flags);
}
DEV int line_recv(run &r, const warp_work &w, uint32_t use, unsigned j, int phase, int p,
                  uint32_t (&v)[4]) {
    const char *at = line_slot(r, r.a->rank, phase, p) + line_at(w, use, j);
    uint4 got;
    if (line_wait(r, at, w.mine.flags, line_flag(r, use), p, SYMM_STAGE_PACKET, got)) return 1;
    to_words(v, got);
    return 0;
}

/* ---- several lines of a rank together -------------------------------------------------------- */

/* Lines of one rank that a warp loads, waits for and reduces together: one trip to memory, and one
 * wait, for all of them. */
#define LINES_AT_ONCE SYMM_GPU_LINES_AT_ONCE
SYMM_STATIC_ASSERT(LINES_AT_ONCE == 4, "lines_put and lines_wait take four");
/* `count` lines of item `use` from line j on: as many as go together, or what is left. whole: each
 * lane has all of its piece of each, or nothing, at multiples of 16 bytes. Then nothing is asked
 * line by line, for behind a branch each load is waited for before the next. */
struct line_run {
    uint32_t use;
    unsigned j, count;
    int whole;
    uint64_t at, step; /* of the first line's data, and from one line to the next */
};
template <unsigned MOST = LINES_AT_ONCE>
DEV line_run lines_from(const warp_work &w, uint32_t use, unsigned j, unsigned lines,
                        uint64_t bytes, int align) {
    line_run l;
    l.use = use, l.j = j;
    l.count = lines - j < MOST ? lines - j : MOST;
    l.at = data_at(w, use, j), l.step = (uint64_t)(unsigned)w.warps * LINE_DATA;
    l.whole =
        align == 16 && (bytes % 16 == 0 || l.at + (l.count - 1) * l.step + LINE_DATA <= bytes);
    return l;
}
/* The first of them alone, if they are not whole. */
DEV line_run whole_or_one(line_run l) {
    if (!l.whole) l.count = 1;
    return l;
}
/* Bytes of whole line i of a run that this lane has, at `at`: its piece, or none. */
DEV int piece_size(const line_run &l, unsigned i, const char *at, const char *end, const piece &m) {
    return i >= l.count || at >= end ? 0 : m.flags ? 8 : 16;
}
/* Whole lines of a buffer of `bytes`. */
template <unsigned MOST>
DEV void load_lines(uint32_t (&v)[MOST][4], const char *base, const line_run &l, uint64_t bytes,
                    const piece &m) {
    const unsigned upper = upper_of(m);
    const char *p = base + l.at + (unsigned)m.at - upper;
#pragma unroll
    for (unsigned i = 0; i < MOST; i++, p += l.step)
        load16_if(v[i], p, piece_size(l, i, p, base + bytes, m));
#pragma unroll
    for (unsigned i = 0; i < MOST; i++) lower(v[i], upper);
}
template <unsigned MOST>
DEV void store_lines(char *base, const uint32_t (&v)[MOST][4], const line_run &l, uint64_t bytes,
                     const piece &m) {
    char *p = base + l.at + (unsigned)m.at;
#pragma unroll
    for (unsigned i = 0; i < MOST; i++, p += l.step)
        store_sized(p, v[i], piece_size(l, i, p, base + bytes, m));
}

/* The lines from rank p, polled together. All lanes together. 1: leave. */
DEV int lines_recv(run &r, const warp_work &w, const line_run &l, int phase, int p,
                   uint4 (&v)[LINES_AT_ONCE]) {
    return lines_wait(r, line_slot(r, r.a->rank, phase, p) + line_at(w, l.use, l.j),
                      (unsigned)w.warps * LINE_BYTES, l.count, w.mine.flags, line_flag(r, l.use), p,
                      v);
}
/* A run of lines from rank p, copied to `to`. 1: leave. */
DEV int run_copy(run &r, const warp_work &w, const line_run &l, int phase, int p, char *to,
                 uint64_t bytes) {
    uint4 v[LINES_AT_ONCE] = {};
    uint32_t x[LINES_AT_ONCE][4];
    if (lines_recv(r, w, l, phase, p, v)) return 1;
#pragma unroll
    for (unsigned i = 0; i < LINES_AT_ONCE; i++) to_words(x[i], v[i]);
    store_lines(to, x, l, bytes, w.mine);
    return 0;
}
DEV int line_copy(run &r, const warp_work &w, const line_run &l, int phase, int p, char *to,
                  uint64_t bytes, int align) {
    uint32_t v[4];
    if (line_recv(r, w, l.use, l.j, phase, p, v)) return 1;
    store_line(to, v, l.at, bytes, w.mine, align);
    return 0;
}
/* The lines of an item from rank p, to the `bytes` at `to`. 1: leave. */
DEV int lines_take(run &r, const warp_work &w, uint32_t use, unsigned lines, int phase, int p,
                   char *to, uint64_t bytes) {
    const int align = alignment(to);
#pragma unroll 1
    for (unsigned j = 0; j < lines;) {
        const line_run l = whole_or_one(lines_from(w, use, j, lines, bytes, align));
        if (l.whole ? run_copy(r, w, l, phase, p, to, bytes)
                    : line_copy(r, w, l, phase, p, to, bytes, align))
            return 1;
        j += l.count;
    }
    return 0;
}

/* scalars_wait for a whole warp: all its lanes leave or none. Otherwise lanes that left would wait
 * at the CTA's barrier for the others, and the others for them in a vote. */
DEV int warp_scalars_wait(run &r) {
    return r.left = __any_sync(0xffffffffu, scalars_wait(r));
}

/* Line j of an item from ranks [from, from + G), all polled together; the own one is left alone. 1:
 * leave. */
template <int G>
DEV int line_gather(run &r, const warp_work &w, uint32_t use, unsigned j, int phase, int from,
                    uint4 (&v)[G]) {
    const char *at = line_slot(r, r.a->rank, phase, from) + line_at(w, use, j);
    const uint64_t flag = line_flag(r, use), slots = 2 * r.a->scratch.gpu.line_slot;
    const int own = r.a->rank - from;
    uint32_t polls = 0;
    uint64_t since = 0;
    int apart;
    for (;;) {
        int missing = -1;
        apart = lines_look(v, at, slots, G, own, w.mine.flags);
#pragma unroll
        for (int i = 0; i < G; i++)
            if (i != own && line_stale(v[i], w.mine.flags, flag)) missing = from + i;
        const unsigned who = __ballot_sync(0xffffffffu, missing >= 0);
        if (!who) break;
        missing = __shfl_sync(0xffffffffu, missing, __ffs((int)who) - 1);
        if (warp_poll_again(r, polls, missing, SYMM_STAGE_PACKET, since)) return 1;
    }
    if (apart) lines_read(v, at, slots, G, own);
    return 0;
}

/* Where lines from a rank go: the first of its `bytes`. */
struct line_target {
    char *at;
    uint64_t bytes;
};
/* Item k from all N ranks but the own, several ranks' together, to where `target` says of each. 0
 * ranks are any number of them. 1: leave. */
template <int N, class TARGET>
DEV int item_copy(run &r, const warp_work &w, uint32_t k, unsigned lines, int phase,
                  TARGET target) {
    constexpr int group = !N ? 1 : N < 4 ? N : 4;
    const int n = N ? N : r.a->nranks;
#pragma unroll 1
    for (unsigned j = 0; j < lines; j++) {
#pragma unroll 1
        for (int from = 0; from < n; from += group) {
            const int own = r.a->rank;
            uint4 v[group];
            if (group == 1 && from == own) continue;
            if (line_gather(r, w, k, j, phase, from, v)) return 1;
#pragma unroll
            for (int i = 0; i < group; i++) {
                if (from + i == own) continue;
                const line_target to = target(from + i);
                uint32_t x[4];
                to_words(x, v[i]);
                store_line(to.at, x, data_at(w, k, j), to.bytes, w.mine, alignment(to.at));
            }
        }
    }
    return 0;
}

/* Buffers of `bytes` that an item's lines cut. */
struct line_buffers {
    const char *src;
    char *dst;
    uint64_t bytes;
    int in, out; /* alignment */
};
DEV line_buffers buffers_of(const char *src, char *dst, uint64_t bytes) {
    return {src, dst, bytes, alignment(src), alignment(dst)};
}
/* The reduction of a line: own data `own`, which becomes the result, and every peer's. */
template <int T, int N, int OP>
DEV void ranks_reduce(const run &r, uint32_t (&own)[4], const uint4 (&v)[N]) {
    const symm_args *a = r.a;
    reduction<T, 4, OP> sum;
#pragma unroll
    for (int p = 0; p < N; p++) {
        uint32_t x[4];
        to_words(x, v[p]);
#pragma unroll
        for (int i = 0; i < 4; i++) x[i] = p == a->rank ? own[i] : x[i];
        if (p == 0)
            sum.first((int)a->op, x, scale_of<T, OP>(r, p));
        else
            sum.step((int)a->op, x, scale_of<T, OP>(r, p));
    }
    sum.last((int)a->op, a->nranks, own);
}
/* Whether the sum has a way of its own through a kernel. Beside the other it takes some 20
 * registers; four ranks have more warps instead, and part where they reduce. */
template <int T, int N> constexpr DEV int sum_apart(void) {
    return HOT(T) && N != 4;
}
/* The same of four ranks. Not inlined but for the sum: what is not fetched cannot be late. */
template <int T>
static __device__ __noinline__ uint4 four_any(const symm_args *a, uint32_t epoch, uint4 own,
                                              uint4 v0, uint4 v1, uint4 v2, uint4 v3) {
    const uint4 v[4] = {v0, v1, v2, v3};
    run r = {};
    uint32_t x[4];
    r.a = a, r.epoch = epoch;
    to_words(x, own);
    ranks_reduce<T, 4, ANY_OP>(r, x, v);
    return make_uint4(x[0], x[1], x[2], x[3]);
}
template <int T> DEV void four_reduce(const run &r, uint32_t (&own)[4], const uint4 (&v)[4]) {
    if (HOT(T) && r.a->op == SYMM_OP_SUM)
        ranks_reduce<T, 4, SYMM_OP_SUM>(r, own, v);
    else
        to_words(own, four_any<T>(r.a, r.epoch, make_uint4(own[0], own[1], own[2], own[3]), v[0],
                                  v[1], v[2], v[3]));
}
/* The same of any number of ranks, whose lines are waited for one by one. 1: leave. */
template <int T, int OP>
DEV int each_reduce(run &r, const warp_work &w, const line_run &l, uint32_t (&own)[4]) {
    const symm_args *a = r.a;
    reduction<T, 4, OP> sum;
    for (int p = 0; p < a->nranks; p++) {
        uint32_t x[4] = {own[0], own[1], own[2], own[3]};
        if (p != a->rank && line_recv(r, w, l.use, l.j, 0, p, x)) return 1;
        if (p == 0)
            sum.first((int)a->op, x, scale_of<T, OP>(r, p));
        else
            sum.step((int)a->op, x, scale_of<T, OP>(r, p));
    }
    sum.last((int)a->op, a->nranks, own);
    return 0;
}
/* Where a reduced line goes: into the buffer of the result, and to every peer, phase 1; or to the
 * root alone. */
enum { SENDS_NOT, SENDS_ALL, SENDS_ROOT };
/* Reduces one line, of phase 0, of any number of ranks; own data from b.src. 1: leave. */
template <int T, int N, int OP, int SENDS>
DEV int one_reduce(run &r, const warp_work &w, const line_run &l, const line_buffers &b) {
    uint32_t own[4];
    uint4 v[N ? N : 1];
    load_line(own, b.src, l.at, b.bytes, w.mine, b.in);
    if (N ? line_gather(r, w, l.use, l.j, 0, 0, v) : each_reduce<T, OP>(r, w, l, own)) return 1;
    if constexpr (N == 4 && OP == ANY_OP)
        four_reduce<T>(r, own, v);
    else if constexpr (N != 0)
        ranks_reduce<T, N, OP>(r, own, v);
    if (SENDS == SENDS_ALL) line_send<N>(r, w, l.use, l.j, 1, own);
    if (SENDS == SENDS_ROOT)
        line_put(line_slot(r, r.a->gpu.root, 0, r.a->rank) + line_at(w, l.use, l.j),
                 line_pack(own, w.mine.flags, line_flag(r, l.use)), w.mine.flags);
    else
        store_line(b.dst, own, l.at, b.bytes, w.mine, b.out);
    return 0;
}
/* All lines of item k, one by one; those of more ranks than two are together themselves, one of
 * each. */
template <int T, int N, int OP, int SENDS = SENDS_NOT>
DEV int item_reduce(run &r, const warp_work &w, uint32_t k, unsigned lines, const line_buffers &b) {
#pragma unroll 1
    for (unsigned j = 0; j < lines; j++) {
        const line_run l = whole_or_one(lines_from(w, k, j, lines, b.bytes, 0));
        if (one_reduce<T, N, OP, SENDS>(r, w, l, b)) return 1;
    }
    return 0;
}

/* The lines of item k to every peer. */
template <int N>
DEV void item_send(run &r, const warp_work &w, uint32_t k, uint64_t bytes, int in) {
    const unsigned lines = lines_of(w, k, bytes);
#pragma unroll 1
    for (unsigned j = 0; j < lines;) {
        const line_run l = whole_or_one(lines_from(w, k, j, lines, bytes, in));
        uint32_t v[LINES_AT_ONCE][4] = {};
        if (l.whole)
            load_lines(v, (const char *)r.a->src, l, bytes, w.mine);
        else
            load_line(v[0], (const char *)r.a->src, l.at, bytes, w.mine, in);
#pragma unroll
        for (unsigned i = 0; i < LINES_AT_ONCE; i++)
            if (i < l.count) line_send<N>(r, w, l.use, l.j + i, 0, v[i]);
        j += l.count;
    }
}

/* Items of a message whose warps' shares end at `bytes`: each is sent one item ahead of being
 * taken. take: 1: leave. Four ranks send the first item where they send the others, which takes
 * fewer registers. */
template <int N, class SEND, class TAKE>
DEV void items_ahead(const warp_work &w, uint64_t bytes, SEND send, TAKE take) {
    if (N == 4) {
#pragma unroll 1
        for (uint32_t next = 0; !next || data_at(w, next - 1, 0) < bytes; next++) {
            send(next);
            if (next && take(next - 1)) return;
        }
        return;
    }
    send(0);
    for (uint32_t k = 0; data_at(w, k, 0) < bytes; k++) {
        send(k + 1);
        if (take(k)) return;
    }
}

/* Bytes from an address to the next multiple of 16, as far as there are so many. */
DEV unsigned lead_of(const void *at, uint64_t bytes) {
    const unsigned lead = (unsigned)(0 - (uintptr_t)at) & 15u;
    return lead < bytes ? lead : (unsigned)bytes;
}

/* A run of own lines into the result, in whole vectors. */
DEV void own_vectors(const char *src, char *own, const warp_work &w, const line_run &l,
                     uint64_t bytes) {
    const piece m = {w.lane * 16, 0};
    uint32_t v[LINES_AT_ONCE][4] = {};
    if (w.lane >= LINE_DATA / 16) return;
    load_lines(v, src, l, bytes, m);
    store_lines(own, v, l, bytes, m);
}
/* Copies the own lines of item k from `src` into the result, `own`. If both have the same alignment
 * (address mod 16), in whole vectors, which begin `lead` bytes further on; the bytes before the
 * first vector go with the first line. */
DEV void item_own(const char *src, char *own, const warp_work &w, uint32_t k, uint64_t bytes) {
    const int same = ((uintptr_t)src - (uintptr_t)own) % 16 == 0;
    const unsigned lead = same ? lead_of(src, bytes) : 0, lines = lines_of(w, k, bytes);
    const int in = same ? 16 : alignment(src), out = same ? 16 : alignment(own);
    if (!data_at(w, k, 0) && (unsigned)w.lane < lead) own[w.lane] = (char)byte_at(src + w.lane);
#pragma unroll 1
    for (unsigned j = 0; j < lines;) {
        const line_run l = whole_or_one(lines_from(w, k, j, lines, bytes - lead, same ? 16 : 0));
        uint32_t v[4];
        j += l.count;
        if (l.whole) {
            own_vectors(src + lead, own + lead, w, l, bytes - lead);
            continue;
        }
        load_line(v, src + lead, l.at, bytes - lead, w.mine, in);
        store_line(own + lead, v, l.at, bytes - lead, w.mine, out);
    }
}

#endif
