/* pair_lines.cuh - lines of two ranks (lines.cuh) whose pieces lie at multiples of 16 bytes, up to
 * four together: one trip to memory, one vote and one wait for all of them. Here every instruction
 * is time that the link is not used: a warp is alone on its part of the multiprocessor. So addresses
 * go on by additions, and nothing is asked line by line. What is left of a message, and what lies
 * elsewhere, goes line by line (hop_lines.cuh), over the same places. GPU code: whole data warps run
 * it. */
#ifndef SYMM_CUDA_PAIR_LINES_CUH_
#define SYMM_CUDA_PAIR_LINES_CUH_

#include "lines.cuh"
#include "shape.cuh"

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

/* A warp's steps from a line to its next: of data, and of places. */
struct pair_steps {
    unsigned data, place;
    uint64_t upto; /* bytes in which lines begin that go in runs */
    int64_t end;   /* of the message, from this lane's first 16 bytes */
};
/* The 16 bytes of a line that hold this lane's piece begin there. */
DEV unsigned lane_at(const piece &m) {
    return (unsigned)m.at - upper_of(m);
}
DEV pair_steps steps_of(const warp_work &w, const pair_way &b) {
    const uint64_t at = (uint64_t)(uintptr_t)b.out | (uint64_t)(uintptr_t)b.own |
                        (uint64_t)(uintptr_t)b.keep | (uint64_t)(uintptr_t)b.in,
                   whole = b.bytes < LINE_DATA ? 0 : b.bytes - LINE_DATA + 1;
    pair_steps s;
    s.data = (unsigned)w.warps * LINE_DATA, s.place = (unsigned)w.warps * LINE_BYTES;
    s.upto = !is_data() || at % 16 ? 0 : b.bytes % 16 == 0 ? b.bytes : whole;
    s.end = (int64_t)b.bytes - (int)lane_at(w.mine);
    return s;
}

/* A run: lines of one item that go together, each of which is whole, or ends where the message
 * does at a multiple of 16 bytes. */
struct pair_run {
    uint32_t use;
    unsigned j, count; /* first line, lines: LINES_AT_ONCE at most */
    uint64_t at;       /* of the first line, in the message */
    uint32_t place;    /* and of this lane's 16 bytes of it, in a slot */
};
DEV unsigned first_place(const warp_work &w) {
    return (unsigned)w.warp * LINE_BYTES + (unsigned)w.lane * 16;
}
DEV void count_run(const warp_work &w, const pair_steps &s, pair_run &l) {
    const unsigned item = w.lines - l.j;
    const uint64_t left = l.at < s.upto ? s.upto - l.at : 0;
    const unsigned most = left >> 32 ? 0xffffffffu : (unsigned)left;
    l.count = 0;
#pragma unroll
    for (unsigned i = 0; i < LINES_AT_ONCE; i++) l.count += i < item && i * s.data < most;
}
DEV pair_run first_run(const warp_work &w, const pair_steps &s) {
    pair_run l = {};
    l.at = (uint64_t)(unsigned)w.warp * LINE_DATA, l.place = first_place(w);
    count_run(w, s, l);
    return l;
}
DEV pair_run run_after(const warp_work &w, const pair_steps &s, pair_run l) {
    l.at += l.count * s.data, l.place += l.count * s.place, l.j += l.count;
    if (l.j == w.lines) {
        l.j = 0, l.use++;
        if (l.use % w.places == 0) l.place = first_place(w);
    }
    count_run(w, s, l);
    return l;
}

/* Bytes from this lane's first 16 of a run to the end of the run, or of the message: of line i it
 * has some if i steps are fewer. */
DEV unsigned run_room(const pair_steps &s, const pair_run &l) {
    const int64_t left = s.end - (int64_t)l.at;
    const unsigned most = l.count * s.data;
    return left <= 0 ? 0 : left < most ? (unsigned)left : most;
}
/* base: this lane's first 16 bytes of the message. */
DEV void run_load(const pair_steps &s, const pair_run &l, const char *base,
                  uint32_t (&v)[LINES_AT_ONCE][4]) {
    const unsigned room = run_room(s, l);
#pragma unroll
    for (unsigned i = 0; i < LINES_AT_ONCE; i++)
        load16_if(v[i], base + l.at + i * s.data, i * s.data < room);
}
/* base: this lane's first piece. */
DEV void run_store(const pair_steps &s, const pair_run &l, char *base, const piece &m,
                   const uint32_t (&v)[LINES_AT_ONCE][4]) {
    const unsigned room = run_room(s, l);
    const int size = m.flags ? 8 : 16;
#pragma unroll
    for (unsigned i = 0; i < LINES_AT_ONCE; i++)
        store_sized(base + l.at + i * s.data, v[i], i * s.data < room ? size : 0);
}
/* to: this lane's 16 bytes at the peer. v: as loaded; pieces afterwards. */
DEV void run_send(const run &r, const pair_steps &s, const pair_run &l, char *to, const piece &m,
                  uint32_t (&v)[LINES_AT_ONCE][4]) {
    const uint64_t flag = line_flag(r, l.use);
    uint4 packed[LINES_AT_ONCE];
#pragma unroll
    for (unsigned i = 0; i < LINES_AT_ONCE; i++) {
        lower(v[i], upper_of(m));
        packed[i] = line_pack(v[i], m.flags, flag);
    }
    lines_put(to, s.place, packed, l.count, m.flags);
}
/* What has come and the own data become the result. */
template <int T, int OP>
DEV void run_reduce(const run &r, const pair_run &l, uint32_t (&own)[LINES_AT_ONCE][4],
                    const uint4 (&got)[LINES_AT_ONCE]) {
#pragma unroll
    for (unsigned i = 0; i < LINES_AT_ONCE; i++)
        if (i < l.count) pair_reduce<T, OP>(r, own[i], got[i]);
}

/* What goes first: loaded while the epoch word is on the way. Where it is and where it goes is known
 * before the kernel begins (frame.cuh). Of more ranks, and of what does not go in runs, there is
 * nothing. */
template <int N> struct first_lines {};
template <> struct first_lines<2> {
    pair_way b;
    pair_steps s;
    pair_run l;
    const char *at; /* this lane's first 16 bytes */
    unsigned room;
    uint32_t v[LINES_AT_ONCE][4];
    char *to; /* the peer's slot at even epochs: this lane's 16 bytes */
    uint64_t odd;
};
template <int S, int N> DEV first_lines<N> place_lines(const symm_args &a) {
    first_lines<N> f = {};
    if constexpr (N == 2) {
        const warp_work w = warp_of(&a, 1);
        const uint64_t slot = a.scratch.gpu.line_slot;
        f.b = pair_way_of<S>(&a);
        f.s = steps_of(w, f.b);
        f.l = first_run(w, f.s);
        f.at = anew(f.b.out + f.l.at + lane_at(w.mine));
        f.room = (unsigned)anew(f.b.out ? (int)run_room(f.s, f.l) : 0);
        f.to = anew(flat(&a, 1 - a.rank,
                         a.scratch.gpu.line_off + 2 * (unsigned)a.rank * slot + f.l.place));
        f.odd = anew(4 * slot);
        f.l.count = (unsigned)anew((int)f.l.count);
    }
    return f;
}
template <int N> DEV uint64_t known_of(const first_lines<N> &) {
    return 0;
}
DEV uint64_t known_of(const first_lines<2> &f) {
    return (uint64_t)(uintptr_t)f.at | (uint64_t)(uintptr_t)f.to | f.odd | f.l.count | f.room;
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
    if (f.b.out) run_send(r, f.s, f.l, f.to, lane_piece((int)(threadIdx.x & 31u)), f.v);
}

/* All runs, behind the first's send; each is sent one ahead of being taken, which is no more than
 * the item that places are for (hop_lines.cuh). What is kept or reduced is what was sent, where both
 * are the same. What the loop needs is calculated before it. 1: leave. */
template <int S, int T, int OP>
DEV int pair_lines(run &r, const warp_work &w, first_lines<2> &f, line_rest &rest) {
    constexpr int same = !(S & (SRC_EACH | ROOT_TAKES));
    const piece &m = w.mine;
    const int gives = f.b.out != 0, owns = f.b.own != 0, keeps = f.b.keep != 0, takes = f.b.in != 0;
    const char *out = anew(f.b.out + lane_at(m)), *own = anew(f.b.own + lane_at(m));
    char *keep = anew(f.b.keep + (unsigned)m.at), *in = anew(f.b.in + (unsigned)m.at);
    char *to = anew(f.to - f.l.place);
    const char *from = anew(line_slot(r, r.a->rank, 0, 1 - r.a->rank));
    pair_steps s = f.s;
    pair_run l = f.l;
    s.data = (unsigned)anew((int)s.data), s.place = (unsigned)anew((int)s.place);
    s.upto = anew(s.upto), s.end = (int64_t)anew((uint64_t)s.end);
#pragma unroll 1
    while (l.count) {
        const pair_run next = run_after(w, s, l);
        uint32_t v[LINES_AT_ONCE][4] = {}, x[LINES_AT_ONCE][4] = {};
        if (gives && next.count) run_load(s, next, out, v);
        if (!same && owns) run_load(s, l, own, x);
        if (gives && next.count) run_send(r, s, next, to + next.place, m, v);
#pragma unroll
        for (unsigned i = 0; i < LINES_AT_ONCE; i++)
            same ? copy_words(x[i], f.v[i]) : lower(x[i], upper_of(m));
        if (!(S & REDUCES) && keeps) run_store(s, l, keep, m, x);
        if (takes) {
            uint4 got[LINES_AT_ONCE] = {};
            if (lines_wait(r, from + l.place, s.place, l.count, m.flags, line_flag(r, l.use),
                           1 - r.a->rank, got))
                return 1;
            if constexpr (S & REDUCES)
                run_reduce<T, OP>(r, l, x, got);
            else
                for (unsigned i = 0; i < LINES_AT_ONCE; i++) to_words(x[i], got[i]);
            run_store(s, l, in, m, x);
        }
        if (same)
            for (unsigned i = 0; i < LINES_AT_ONCE; i++) copy_words(f.v[i], v[i]);
        l = next;
    }
    rest = {l.use, l.j, l.at < f.b.bytes};
    return 0;
}

#endif
