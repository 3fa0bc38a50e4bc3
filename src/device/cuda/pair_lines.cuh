/* pair_lines.cuh - lines (LL128) of two ranks, of every shape, up to four together: one trip to
 * memory, one vote and one wait for all of them. A warp is alone on its part of the multiprocessor,
 * so each instruction between a message's bytes is time that the link is not used: addresses go on
 * by additions, and nothing is asked line by line. What lies off a multiple of 16 bytes, and a last
 * line that is not whole, goes in the same runs over the same places, in a function of its own
 * (pair_off). So each rank goes by its own buffers. GPU code: whole data warps run it. */
#ifndef SYMM_CUDA_PAIR_LINES_CUH_
#define SYMM_CUDA_PAIR_LINES_CUH_

#include "lines.cuh"
#include "shape.cuh"

/* Where a rank finds its peer's lines: in all slots of the epoch's parity, as nobody sends itself
 * any. From one parity to the other: */
DEV uint64_t parity_step(const symm_args *a) {
    return 4 * a->scratch.gpu.line_slot;
}
DEV char *pair_slot(const run &r, int rank, const warp_work &w) {
    const uint64_t odd = r.epoch & 1u ? parity_step(r.a) : 0;
    return flat(r.a, rank, r.a->scratch.gpu.line_off + odd) + line_at(w, 0, 0);
}
/* What this rank sends, keeps and gets; each NULL where there is none. */
struct pair_way {
    const char *out; /* to the peer */
    const char *own; /* what is reduced, or kept at `keep` */
    char *keep;
    char *in; /* where the result or the peer's part goes */
    uint64_t bytes;
};
template <int S> DEV pair_way pair_way_of(const symm_args *a) {
    const int peer = 1 - a->rank;
    pair_way b = {};
    b.bytes = part_bytes(a);
    b.keep = own_target<S>(a);
    if (takers<S, 2>(a)) b.out = (const char *)a->src + part_for<S>(a, peer);
    if (givers<S, 2>(a)) b.in = (char *)a->dst + (S & REDUCES ? 0 : part_from<S>(a, peer));
    if (S & REDUCES ? b.in : b.keep) b.own = own_source<S>(a);
    return b;
}

#define ROOTED(S)   ((S) & (ROOT_GIVES | ROOT_TAKES))
#define PUSH_PLACES 4u
#define PLACES(S)   (ROOTED(S) ? 1u : PUSH_PLACES)

/* The 16 bytes of a line that hold this lane's piece begin there. */
DEV unsigned lane_at(const piece &m) {
    return (unsigned)m.at - upper_of(m);
}
/* A warp's way through the runs of a call. Run q is `lines` lines from q * lines on: an item, or of
 * a rooted call, which is one item, as many as go together. The planner has items of two ranks no
 * longer than that. */
struct pair_runs {
    unsigned lines, data, place; /* steps from a line to the next: of data, of places */
    uint64_t upto; /* lines that begin before it, counted from this warp's first, go in runs */
    int end;       /* minus where this lane's 16 bytes of a line begin */
};
/* All runs, to the byte. */
DEV pair_runs all_runs(const warp_work &w, uint64_t bytes, int rooted) {
    const uint64_t warp = (uint64_t)(unsigned)w.warp * LINE_DATA;
    pair_runs s;
    s.lines = rooted ? LINES_AT_ONCE : w.lines;
    s.data = (unsigned)w.warps * LINE_DATA, s.place = (unsigned)w.warps * LINE_BYTES;
    s.upto = bytes > warp ? bytes - warp : 0;
    s.end = -(int)lane_at(w.mine);
    return s;
}
/* Those of buffers at multiples of 16 bytes whose lines are whole, or end where the message does at
 * such a multiple. */
DEV pair_runs runs_of(const warp_work &w, const pair_way &b, int rooted) {
    const uint64_t at = (uint64_t)(uintptr_t)b.out | (uint64_t)(uintptr_t)b.own |
                        (uint64_t)(uintptr_t)b.keep | (uint64_t)(uintptr_t)b.in;
    pair_runs s = all_runs(w, b.bytes, rooted);
    if (!is_data() || at % 16) s.upto = 0;
    if (s.upto && b.bytes % 16) {
        const uint64_t last = (s.upto - 1) / s.data;
        if (last * s.data + LINE_DATA > s.upto) s.upto = last / s.lines * s.lines * s.data;
    }
    return s;
}
/* Where run q begins, from this warp's first line, and how many lines it has. */
DEV uint64_t run_at(const pair_runs &s, uint32_t q) {
    return (uint64_t)q * (s.lines * s.data);
}
DEV unsigned run_count(const pair_runs &s, uint32_t q) {
    const uint64_t at = run_at(s, q), left = at < s.upto ? s.upto - at : 0;
    const unsigned most = left >> 32 ? 0xffffffffu : (unsigned)left;
    unsigned count = 0;
#pragma unroll
    for (unsigned i = 0; i < LINES_AT_ONCE; i++) count += i < s.lines && i * s.data < most;
    return count;
}
/* And where it is in a slot. */
template <int S> DEV uint64_t run_place(const pair_runs &s, uint32_t q) {
    return (uint64_t)(ROOTED(S) ? q : q % PUSH_PLACES) * (s.lines * s.place);
}
template <int S> DEV uint64_t run_flag(const run &r, uint32_t q) {
    return line_flag(r, ROOTED(S) ? 0 : q);
}
/* Bytes from this lane's first 16 of a run to the end of the message, at most `count` steps: of
 * line i it has what is beyond i steps, 16 bytes at most. */
DEV unsigned run_room(const pair_runs &s, uint32_t q, unsigned count) {
    const int64_t left = (int64_t)(s.upto - run_at(s, q)) + s.end;
    const unsigned most = count * s.data;
    return left <= 0 ? 0 : left < most ? (unsigned)left : most;
}
/* from: this lane's first 16 bytes of run 0. */
DEV void run_load(const pair_runs &s, uint32_t q, unsigned count, const char *from,
                  uint32_t (&v)[LINES_AT_ONCE][4]) {
    const unsigned room = run_room(s, q, count);
    const char *p = from + run_at(s, q);
#pragma unroll
    for (unsigned i = 0; i < LINES_AT_ONCE; i++) load16_if(v[i], p + i * s.data, i * s.data < room);
}
/* to: this lane's first piece of the run. */
DEV void run_store(const pair_runs &s, unsigned room, char *to, const piece &m,
                   const uint32_t (&v)[LINES_AT_ONCE][4]) {
    const int size = m.flags ? 8 : 16;
#pragma unroll
    for (unsigned i = 0; i < LINES_AT_ONCE; i++)
        store_sized(to + i * s.data, v[i], i * s.data < room ? size : 0);
}
/* to: this lane's 16 bytes at the peer. v: as loaded; pieces afterwards. */
DEV void run_send(const pair_runs &s, unsigned count, char *to, const piece &m, uint64_t flag,
                  uint32_t (&v)[LINES_AT_ONCE][4]) {
    uint4 packed[LINES_AT_ONCE];
#pragma unroll
    for (unsigned i = 0; i < LINES_AT_ONCE; i++) {
        lower(v[i], upper_of(m));
        packed[i] = line_pack(v[i], m.flags, flag);
    }
    lines_put(to, s.place, packed, count, m.flags);
}
/* Own data `own`, which becomes the result, and the peer's, of two ranks. */
template <int T, int OP> DEV void pair_reduce(const run &r, uint32_t (&own)[4], const uint4 &got) {
    const symm_args *a = r.a;
    reduction<T, 4, OP> sum;
    uint32_t first[4], second[4];
    to_words(first, got);
#pragma unroll
    for (int b = 0; b < 4; b++) {
        const int swap = OP != SYMM_OP_SUM && !a->rank; /* a sum of two is the same either way */
        second[b] = swap ? first[b] : own[b];
        first[b] = swap ? own[b] : first[b];
    }
    sum.first((int)a->op, first, scale_of<T, OP>(r, 0));
    sum.step((int)a->op, second, scale_of<T, OP>(r, 1));
    sum.last((int)a->op, 2, own);
}
/* What has come and the own data become the result. Not inlined but for the sum: what is not
 * fetched cannot be late. */
template <int T>
static __device__ __noinline__ uint4 pair_any(const symm_args *a, uint32_t epoch, uint4 own,
                                              uint4 got) {
    run r = {};
    uint32_t x[4];
    r.a = a, r.epoch = epoch;
    to_words(x, own);
    pair_reduce<T, ANY_OP>(r, x, got);
    return make_uint4(x[0], x[1], x[2], x[3]);
}
template <int T, int OP>
DEV void run_reduce(const run &r, unsigned count, uint32_t (&own)[LINES_AT_ONCE][4],
                    const uint4 (&got)[LINES_AT_ONCE]) {
#pragma unroll
    for (unsigned i = 0; i < LINES_AT_ONCE; i++) {
        if (OP != ANY_OP)
            pair_reduce<T, OP>(r, own[i], got[i]); /* where there is none, too: nobody stores it */
        else if (i < count)
            to_words(own[i],
                     pair_any<T>(r.a, r.epoch,
                                 make_uint4(own[i][0], own[i][1], own[i][2], own[i][3]), got[i]));
    }
}

/* What goes first: loaded while the epoch word is on the way. Where it is and where it goes is
 * known before the kernel begins (frame.cuh). Of more ranks, and of what pair_off moves, there is
 * nothing. */
template <int N> struct first_lines {};
template <> struct first_lines<2> {
    pair_way b;
    pair_runs s;
    const char *at;       /* this lane's first 16 bytes */
    unsigned count, room; /* of the first run: lines, bytes */
    uint32_t v[LINES_AT_ONCE][4];
    char *to; /* the peer's slot at even epochs: this lane's 16 bytes */
    uint64_t odd;
};
template <int S, int N> DEV first_lines<N> place_lines(const symm_args &a) {
    first_lines<N> f = {};
    if constexpr (N == 2) {
        const warp_work w = warp_of(&a, PLACES(S));
        f.b = pair_way_of<S>(&a);
        f.s = runs_of(w, f.b, ROOTED(S));
        f.count = run_count(f.s, 0);
        f.at = anew(f.b.out + (uint64_t)(unsigned)w.warp * LINE_DATA + lane_at(w.mine));
        f.room = (unsigned)anew(f.b.out ? (int)run_room(f.s, 0, f.count) : 0);
        f.to = anew(flat(&a, 1 - a.rank, a.scratch.gpu.line_off) + line_at(w, 0, 0));
        f.odd = anew(parity_step(&a));
        f.count = (unsigned)anew((int)f.count);
        f.s.data = (unsigned)anew((int)f.s.data), f.s.place = (unsigned)anew((int)f.s.place);
        f.s.upto = anew(f.s.upto), f.s.end = anew(f.s.end);
    }
    return f;
}
template <int N> DEV uint64_t known_of(const first_lines<N> &) {
    return 0;
}
DEV uint64_t known_of(const first_lines<2> &f) {
    return (uint64_t)(uintptr_t)f.at | (uint64_t)(uintptr_t)f.to | f.odd | f.count | f.room;
}
template <int N> DEV void load_first(const symm_args &, first_lines<N> &) {}
DEV void load_first(const symm_args &, first_lines<2> &f) {
#pragma unroll
    for (unsigned i = 0; i < LINES_AT_ONCE; i++)
        load16_if(f.v[i], f.at + i * f.s.data, i * f.s.data < f.room);
}
template <int N> DEV void send_first(run &, first_lines<N> &) {}
DEV void send_first(run &r, first_lines<2> &f) {
    if (r.epoch & 1u) f.to += f.odd;
    if (f.b.out)
        run_send(f.s, f.count, f.to, lane_piece((int)(threadIdx.x & 31u)), line_flag(r, 0), f.v);
}

/* ---- elsewhere than at multiples of 16 bytes, and last lines --------------------------------- */

/* A run of a buffer that may begin anywhere. p: this lane's first 16 bytes of it; room: run_room's.
 * Pieces that are whole are loaded together, as behind a branch each load is waited for before the
 * next; what is not whole goes byte by byte afterwards. */
DEV void off_load(const pair_runs &s, unsigned room, const char *p,
                  uint32_t (&v)[LINES_AT_ONCE][4]) {
    const int align = alignment(p);
    const unsigned whole = align == 1 ? ~0u : 16;
    if (align == 2) {
        uint32_t h[LINES_AT_ONCE][5] = {};
#pragma unroll
        for (unsigned i = 0; i < LINES_AT_ONCE; i++)
            load_halves_if(h[i], p + i * s.data, i * s.data + 16 <= room);
#pragma unroll
        for (unsigned i = 0; i < LINES_AT_ONCE; i++) join_halves(v[i], h[i]);
    } else if (align == 16) {
#pragma unroll
        for (unsigned i = 0; i < LINES_AT_ONCE; i++)
            load16_if(v[i], p + i * s.data, i * s.data + 16 <= room);
    } else if (align != 1) {
#pragma unroll
        for (unsigned i = 0; i < LINES_AT_ONCE; i++)
            load_words_if(v[i], p + i * s.data, i * s.data + 16 <= room);
    }
#pragma unroll
    for (unsigned i = 0; i < LINES_AT_ONCE; i++)
        if (i * s.data < room && room - i * s.data < whole)
            to_words(v[i], load_bytes<4>(p + i * s.data, room - i * s.data));
}
/* `most` bytes of a line's piece, 8 or 16, or as many as there are. Not inlined: what is not there
 * four times need not be fetched, nor jumped over where there is one line. */
static __device__ __noinline__ void off_put(char *p, uint4 x, int left, int most, int align) {
    uint32_t v[4];
    to_words(v, x);
    const int whole = left >= most && align != 1 ? most : 0;
    if (align == 2) {
        const uint32_t joined[3] = {straddle(v[0], v[1]), straddle(v[1], v[2]),
                                    straddle(v[2], v[3])};
        store_halves_sized(p, v[0], joined, v[3] >> 16, whole);
    } else if (align == 16) {
        store_sized(p, v, whole);
    } else {
        store_words_sized(p, v, whole);
    }
    if (!whole && left > 0) store_bytes<4>(p, x, left < most ? left : most);
}
/* room: run_room's. */
DEV void off_store(const pair_runs &s, unsigned room, char *to, const piece &m,
                   const uint32_t (&v)[LINES_AT_ONCE][4]) {
    const int left = (int)(room - upper_of(m)), align = alignment(to - (unsigned)m.at);
#pragma unroll
    for (unsigned i = 0; i < LINES_AT_ONCE; i++)
        if (i * s.data < room)
            off_put(to + i * s.data, make_uint4(v[i][0], v[i][1], v[i][2], v[i][3]),
                    left - (int)(i * s.data), m.flags ? 8 : 16, align);
}

/* ---- the runs of a warp ---------------------------------------------------------------------- */

/* Where this lane's bytes of run 0 are: the first 16 of what is sent and of what is kept or
 * reduced, its piece of what it writes, its 16 bytes of a line here and at the peer. */
struct pair_lanes {
    piece mine;
    const char *at, *own, *from;
    char *to, *keep, *in;
};
template <int OFF>
DEV void lanes_load(const pair_runs &s, uint32_t q, unsigned count, const char *from,
                    uint32_t (&v)[LINES_AT_ONCE][4]) {
    if constexpr (OFF)
        off_load(s, run_room(s, q, count), from + run_at(s, q), v);
    else
        run_load(s, q, count, from, v);
}
template <int OFF>
DEV void lanes_store(const pair_runs &s, unsigned room, char *to, const piece &m,
                     const uint32_t (&v)[LINES_AT_ONCE][4]) {
    if constexpr (OFF)
        off_store(s, room, to, m, v);
    else
        run_store(s, room, to, m, v);
}

/* Run q: its own data (x, as loaded) is kept, or reduced with the peer's; the peer's, or the
 * result, is stored. 1: leave. */
template <int S, int T, int OP, int OFF>
DEV int run_take(run &r, const pair_way &b, const pair_lanes &l, const pair_runs &s, uint32_t q,
                 unsigned count, uint32_t (&x)[LINES_AT_ONCE][4]) {
    const piece &m = l.mine;
    const int takes = !ROOTED(S) || b.in != 0, keeps = !(S & REDUCES) && b.keep != 0;
    /* Before the wait: what comes behind it is time that the call takes. */
    const unsigned room = (unsigned)anew((int)run_room(s, q, count));
    const char *at = anew(l.from + run_place<S>(s, q));
    char *to = anew(l.in + run_at(s, q));
    uint4 got[LINES_AT_ONCE] = {};
    if (keeps) lanes_store<OFF>(s, room, l.keep + run_at(s, q), m, x);
    if (!takes) return 0;
    if (lines_wait(r, at, s.place, count, m.flags, run_flag<S>(r, q), 1 - r.a->rank, got)) return 1;
    if constexpr (S & REDUCES)
        run_reduce<T, OP>(r, count, x, got);
    else
        for (unsigned i = 0; i < LINES_AT_ONCE; i++) to_words(x[i], got[i]);
    lanes_store<OFF>(s, room, to, m, x);
    return 0;
}
/* Run q+1 is sent when run q-1 has been taken, whichever way either rank goes: then the peer has
 * taken our run q-3, whose place run q+1 has. Rooted calls use no place twice. In place: the thread
 * that overwrites an element is the last that reads it. q, count, v: the run that has been sent,
 * its lines, what was loaded; or count 0, and only the next one is to be sent. Afterwards q is the
 * first run that there is not. */
template <int S, int T, int OP, int OFF>
DEV void pair_loop(run &r, const pair_way &b, const pair_lanes &l, const pair_runs &s, uint32_t &q,
                   unsigned count, uint32_t (&v)[LINES_AT_ONCE][4]) {
    /* What is sent is what is kept, and not loaded again. OFF loads it again, behind the send: it
     * has no registers for it. */
    constexpr int same = !OFF && !(S & (SRC_EACH | ROOT_TAKES));
    const piece &m = l.mine;
    const int gives = !ROOTED(S) || b.out != 0,
              owns = S & REDUCES ? !ROOTED(S) || b.in != 0 : b.keep != 0;
#pragma unroll 1
    for (;;) {
        const unsigned next = run_count(s, q + 1);
        uint32_t ahead[LINES_AT_ONCE][4] = {}, x[LINES_AT_ONCE][4] = {};
        if (gives && next) lanes_load<OFF>(s, q + 1, next, l.at, ahead);
        if (!same && !OFF && owns) lanes_load<OFF>(s, q, count, l.own, x);
        if (gives && next)
            run_send(s, next, l.to + run_place<S>(s, q + 1), m, run_flag<S>(r, q + 1), ahead);
        if (OFF && owns && count) lanes_load<OFF>(s, q, count, l.own, x);
#pragma unroll
        for (unsigned i = 0; i < LINES_AT_ONCE; i++)
            same ? copy_words(x[i], v[i]) : lower(x[i], upper_of(m));
        if ((!OFF || count) && run_take<S, T, OP, OFF>(r, b, l, s, q, count, x)) return;
        q++, count = next;
        if (!next) return; /* before the copies, which would be time at the end of the call */
#pragma unroll
        for (unsigned i = 0; same && i < LINES_AT_ONCE; i++) copy_words(v[i], ahead[i]);
    }
}
/* `from`: the peer's lines. */
DEV pair_lanes lanes_of(const warp_work &w, const pair_way &b, char *to, const char *from) {
    const uint64_t warp = (uint64_t)(unsigned)w.warp * LINE_DATA, at = warp + lane_at(w.mine),
                   to_mine = warp + (unsigned)w.mine.at;
    const pair_lanes l = {w.mine, b.out + at,       b.own + at,    from,
                          to,     b.keep + to_mine, b.in + to_mine};
    return l;
}
/* Runs from `q` on, wherever buffers begin and end. Not inlined: the others need the registers, and
 * the instructions to be near each other. 1: leave. */
template <int S, int T>
static __device__ __noinline__ int pair_off(const symm_args *a, uint32_t epoch, uint32_t q) {
    run r = {};
    r.a = a, r.ctl = ctl_of(a, a->rank), r.epoch = epoch;
    look_over(r);
    const warp_work w = warp_of(a, PLACES(S));
    const pair_way b = pair_way_of<S>(a);
    const pair_runs s = all_runs(w, b.bytes, ROOTED(S));
    const pair_lanes l = lanes_of(w, b, pair_slot(r, 1 - a->rank, w), pair_slot(r, a->rank, w));
    uint32_t before = q - 1, none[LINES_AT_ONCE][4];
    pair_loop<S, T, ANY_OP, 1>(r, b, l, s, before, 0, none);
    return r.left;
}
/* All runs but the send of the first. What the loop needs is calculated before it. */
template <int S, int T, int OP> DEV void pair_lines(run &r, first_lines<2> &f) {
    const warp_work w = warp_of(r.a, PLACES(S));
    if (S & REDUCES && OP == ANY_OP && (!ROOTED(S) || f.b.in) && warp_scalars_wait(r)) return;
    pair_lanes l = lanes_of(w, f.b, f.to, anew(pair_slot(r, r.a->rank, w)));
    l.at = f.at, l.own = S & (SRC_EACH | ROOT_TAKES) ? anew(l.own) : f.at, l.keep = anew(l.keep),
    l.in = anew(l.in);
    uint32_t q = 0;
    if (f.count) pair_loop<S, T, OP, 0>(r, f.b, l, f.s, q, f.count, f.v);
    if (!r.left && (uint64_t)(unsigned)w.warp * LINE_DATA + run_at(f.s, q) < f.b.bytes)
        r.left |= pair_off<S, T>(r.a, r.epoch, q);
}

#endif
