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

#define ROOTED(S)   ((S) & (ROOT_GIVES | ROOT_TAKES))
#define PUSH_PLACES 4u
#define PLACES(S)   (ROOTED(S) ? 1u : PUSH_PLACES)

/* The 16 bytes of a line that hold this lane's piece begin there. */
DEV unsigned lane_at(const piece &m) {
    return (unsigned)m.at - upper_of(m);
}
/* A warp's way through the runs of a call. Run q is `lines` lines from q * lines on: an item, or of
 * a rooted call, which is one item, as many as go together. The planner has items of two ranks no
 * longer than that. A run's lines are whole, or end where the message does at a multiple of 16
 * bytes. */
struct pair_runs {
    unsigned lines, data, place; /* steps from a line to the next: of data, of places */
    uint64_t upto; /* bytes from this warp's first line in which lines begin that go in runs */
    int end;       /* behind that, this lane's first 16 bytes still lie in lines */
};
template <int S> DEV pair_runs runs_of(const warp_work &w, const pair_way &b) {
    const uint64_t at = (uint64_t)(uintptr_t)b.out | (uint64_t)(uintptr_t)b.own |
                        (uint64_t)(uintptr_t)b.keep | (uint64_t)(uintptr_t)b.in,
                   whole = b.bytes < LINE_DATA ? 0 : b.bytes - LINE_DATA + 1,
                   upto = b.bytes % 16 == 0 ? b.bytes : whole,
                   warp = (uint64_t)(unsigned)w.warp * LINE_DATA;
    const int runs = is_data() && at % 16 == 0 && (ROOTED(S) || w.lines <= LINES_AT_ONCE);
    pair_runs s;
    s.lines = ROOTED(S) ? LINES_AT_ONCE : w.lines;
    s.data = (unsigned)w.warps * LINE_DATA, s.place = (unsigned)w.warps * LINE_BYTES;
    s.upto = runs && upto > warp ? upto - warp : 0;
    s.end = (b.bytes % 16 == 0 ? 0 : LINE_DATA) - (int)lane_at(w.mine);
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
/* Bytes from this lane's first 16 of a run to the end of the run, or of the message: of line i it
 * has some if i steps are fewer. */
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
/* What has come and the own data become the result. Not inlined but for the sum: what is not fetched
 * cannot be late. */
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

/* What goes first: loaded while the epoch word is on the way. Where it is and where it goes is known
 * before the kernel begins (frame.cuh). Of more ranks, and of what does not go in runs, there is
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
        const uint64_t slot = a.scratch.gpu.line_slot;
        f.b = pair_way_of<S>(&a);
        f.s = runs_of<S>(w, f.b);
        f.count = run_count(f.s, 0);
        f.at = anew(f.b.out + (uint64_t)(unsigned)w.warp * LINE_DATA + lane_at(w.mine));
        f.room = (unsigned)anew(f.b.out ? (int)run_room(f.s, 0, f.count) : 0);
        f.to = anew(flat(&a, 1 - a.rank,
                         a.scratch.gpu.line_off + 2 * (unsigned)a.rank * slot +
                             (uint64_t)(unsigned)w.warp * LINE_BYTES + (unsigned)w.lane * 16));
        f.odd = anew(4 * slot);
        f.count = (unsigned)anew((int)f.count);
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

/* All runs, behind the first's send; each is sent one ahead of being taken, which is no more than
 * the item that places are for (hop_lines.cuh). What the loop needs is calculated before it. 1:
 * leave. */
template <int S, int T, int OP>
DEV int pair_lines(run &r, const warp_work &w, first_lines<2> &f, line_rest &rest) {
    const piece &m = w.mine;
    constexpr int same = !(S & (SRC_EACH | ROOT_TAKES)); /* what is sent is what is kept */
    const int gives = !ROOTED(S) || f.b.out != 0, takes = !ROOTED(S) || f.b.in != 0,
              keeps = !(S & REDUCES) && f.b.keep != 0, owns = S & REDUCES ? takes : keeps;
    const uint64_t warp = (uint64_t)(unsigned)w.warp * LINE_DATA;
    const char *own = same ? f.at : anew(f.b.own + warp + lane_at(m)),
               *from = anew(line_slot(r, r.a->rank, 0, 1 - r.a->rank) + line_at(w, 0, 0));
    char *keep = anew(f.b.keep + warp + (unsigned)m.at), *in = anew(f.b.in + warp + (unsigned)m.at);
    pair_runs s = f.s;
    uint32_t q = 0;
    unsigned count = f.count, last = 0;
    s.data = (unsigned)anew((int)s.data), s.place = (unsigned)anew((int)s.place);
    s.upto = anew(s.upto), s.end = anew(s.end);
#pragma unroll 1
    for (; count; q++) {
        const unsigned next = run_count(s, q + 1);
        uint32_t v[LINES_AT_ONCE][4] = {}, x[LINES_AT_ONCE][4] = {};
        if (gives && next) run_load(s, q + 1, next, f.at, v);
        if (!same && owns) run_load(s, q, count, own, x);
        if (gives && next)
            run_send(s, next, f.to + run_place<S>(s, q + 1), m, run_flag<S>(r, q + 1), v);
#pragma unroll
        for (unsigned i = 0; i < LINES_AT_ONCE; i++)
            same ? copy_words(x[i], f.v[i]) : lower(x[i], upper_of(m));
        /* Before the wait: what comes behind it is time that the call takes. */
        const unsigned room = (unsigned)anew((int)run_room(s, q, count));
        const char *at = anew(from + run_place<S>(s, q));
        char *to = anew(in + run_at(s, q));
        if (keeps) run_store(s, room, keep + run_at(s, q), m, x);
        if (takes) {
            uint4 got[LINES_AT_ONCE] = {};
            if (lines_wait(r, at, s.place, count, m.flags, run_flag<S>(r, q), 1 - r.a->rank, got))
                return 1;
            if constexpr (S & REDUCES)
                run_reduce<T, OP>(r, count, x, got);
            else
                for (unsigned i = 0; i < LINES_AT_ONCE; i++) to_words(x[i], got[i]);
            run_store(s, room, to, m, x);
        }
#pragma unroll
        for (unsigned i = 0; same && i < LINES_AT_ONCE; i++) copy_words(f.v[i], v[i]);
        last = count, count = next;
    }
    if (q && f.b.bytes % 16 == 0) return 0; /* `rest` is nothing */
    const unsigned full = last == s.lines, lines = q ? (q - 1) * s.lines + last : 0;
    rest.use = ROOTED(S) || !q ? 0 : full ? q : q - 1;
    rest.j = ROOTED(S) ? lines : full ? 0 : last;
    rest.some = warp + (uint64_t)lines * s.data < f.b.bytes;
    return 0;
}

#endif
