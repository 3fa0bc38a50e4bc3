/* two_shots.cuh - lines (LL128) that cross twice: each slice of the message to its owner, and from
 * there on, so that less goes over each link. Ranks share only scratch, so buffers may be anywhere.
 * GPU code: whole data warps run it.
 *
 *   all_reduce  every rank owns a slice, reduces it and sends the result to everybody; 2(n-1)/n of
 *               the bytes cross a link
 *   broadcast   of three and more ranks, whose owners are all but the root (two_hops.cuh): the root
 *               sends each slice to its owner, who sends it on to all but the root
 *   reduce      likewise: every rank sends each slice to its owner, who sends what they make to the
 *               root
 *
 * Of broadcast and reduce lines of one kind alone go between two ranks: to an owner, or from it. So
 * all are of phase 0, and have the room of both. */
#ifndef SYMM_CUDA_TWO_SHOTS_CUH_
#define SYMM_CUDA_TWO_SHOTS_CUH_

#include "lines.cuh"
#include "shape.cuh"

/* Slice p of the message: [at, end). All but the last are equally long, in whole 16 bytes. */
struct slice {
    uint64_t at, end;
};
DEV uint64_t slice_bytes(uint64_t bytes, int n) {
    return ((bytes + (unsigned)n - 1) / (unsigned)n + 15) & ~15ull;
}
DEV slice slice_of(uint64_t bytes, uint64_t each, int p) {
    slice s = {each * (unsigned)p, each * (unsigned)(p + 1)};
    if (s.at > bytes) s.at = bytes;
    if (s.end > bytes) s.end = bytes;
    return s;
}
/* What every slice has; where all are multiples of 16 bytes, such a multiple. */
DEV uint64_t slice_least(uint64_t bytes, uint64_t each, int n) {
    const uint64_t others = each * (unsigned)(n - 1);
    return bytes > others ? bytes - others : bytes % 16;
}
/* How a message is cut: a slice for each rank; ROOTED: for each but the root, which owns none. */
template <int ROOTED> struct cuts {
    uint64_t bytes, each, least;
    int root;
};
template <int ROOTED> DEV int owns(const cuts<ROOTED> &c, int p) {
    return !ROOTED || p != c.root;
}
/* The slice of rank p. */
template <int ROOTED> DEV slice cut(const cuts<ROOTED> &c, int p) {
    const slice none = {c.bytes, c.bytes};
    return owns(c, p) ? slice_of(c.bytes, c.each, p - (ROOTED && p > c.root)) : none;
}
template <int ROOTED> DEV cuts<ROOTED> cuts_of(const symm_args *a) {
    const int owners = a->nranks - ROOTED;
    const uint64_t bytes = a->count * a->esize, each = slice_bytes(bytes, owners);
    return {bytes, each, slice_least(bytes, each, owners), ROOTED ? a->gpu.root : 0};
}

/* Peers whose slices are loaded together, and lines of each. The loads are volatile, so nobody but
 * the source can bring them together. */
template <int N> constexpr DEV int slices_at_once(void) {
    return !N ? 1 : N == 8 ? 4 : N - 1;
}
/* A run of whole lines of every peer's slice to that peer. keep: where a copy of the message goes;
 * NULL: there is none. Asked only if KEEPS. */
template <int N, unsigned MOST, int KEEPS, int ROOTED>
DEV void run_send(run &r, const warp_work &w, const line_run &l, const cuts<ROOTED> &c,
                  char *keep) {
    constexpr int group = slices_at_once<N>();
    const symm_args *a = r.a;
    const int n = N ? N : a->nranks;
    const uint64_t flag = line_flag(r, l.use);
#pragma unroll 1
    for (int q = 1; q < n; q += group) {
        const int rank = anew(a->rank);
        uint32_t v[group][MOST][4];
#pragma unroll
        for (int i = 0; i < group; i++) {
            const slice s = cut(c, peer_of(rank, n, q + i));
            if (q + i < n) load_lines(v[i], (const char *)a->src + s.at, l, s.end - s.at, w.mine);
        }
#pragma unroll
        for (int i = 0; i < group; i++)
#pragma unroll
            for (unsigned b = 0; b < MOST; b++)
                if (q + i < n && b < l.count && owns(c, peer_of(rank, n, q + i)))
                    line_put(line_slot(r, peer_of(rank, n, q + i), 0, rank) +
                                 line_at(w, l.use, l.j + b),
                             line_pack(v[i][b], w.mine.flags, flag), w.mine.flags);
#pragma unroll
        for (int i = 0; KEEPS && i < group; i++) {
            const slice s = cut(c, peer_of(rank, n, q + i));
            if (q + i < n && keep) store_lines(keep + s.at, v[i], l, s.end - s.at, w.mine);
        }
    }
}
/* One line of every peer's slice. */
template <int N, int KEEPS, int ROOTED>
DEV void line_each_send(run &r, const warp_work &w, const line_run &l, const cuts<ROOTED> &c,
                        int in, char *keep) {
    const symm_args *a = r.a;
    const int n = N ? N : a->nranks;
#pragma unroll 1
    for (int q = 1; q < n; q++) {
        const int p = peer_of(a->rank, n, q);
        const slice s = cut(c, p);
        uint32_t v[4];
        if (!owns(c, p)) continue;
        load_line(v, (const char *)a->src + s.at, l.at, s.end - s.at, w.mine, in);
        line_put(line_slot(r, p, 0, a->rank) + line_at(w, l.use, l.j),
                 line_pack(v, w.mine.flags, line_flag(r, l.use)), w.mine.flags);
        if (KEEPS && keep) store_line(keep + s.at, v, l.at, s.end - s.at, w.mine, alignment(keep));
    }
}
/* Item k of every peer's slice to that peer. */
template <int N, int KEEPS = 0, int ROOTED>
DEV void slices_send(run &r, const warp_work &w, uint32_t k, const cuts<ROOTED> &c, int in,
                     char *keep = 0) {
    constexpr unsigned most = N == 2 ? 2 : 1;
    const unsigned lines = lines_of(w, k, c.each);
    const int align = KEEPS && keep && alignment(keep) != 16 ? 0 : in;
#pragma unroll 1
    for (unsigned j = 0; j < lines;) {
        const line_run l = whole_or_one(lines_from<most>(w, k, j, lines, c.least, align));
        if (N && l.whole)
            run_send<N, most, KEEPS>(r, w, l, c, keep);
        else
            line_each_send<N, KEEPS>(r, w, l, c, in, keep);
        j += l.count;
    }
}

/* An item's first half is sent one item ahead, so that the link works while the warp waits.
 *   Phase 0: item k+2 takes the place of item k. It is sent after this warp has taken item k of
 *     every peer. The peer sent that after it had read what we sent it of item k.
 *   Phase 1: item k+2 takes the place of item k. It is sent after this warp has read phase 0 of
 *     item k+2 from every peer. The peer sent that after it had taken our item k.
 * In place is safe: a warp reads and writes the same places of all slices, and it reads all that it
 * sends of an item before it writes any of it. */
#define SHOT_PLACES 2u
template <int T, int N, int OP> DEV void ar_twoshot(run &r) {
    const symm_args *a = r.a;
    const cuts<0> c = cuts_of<0>(a);
    const warp_work w = warp_of(a, SHOT_PLACES);
    const int in = alignment(a->src), out = alignment(a->dst);
    const slice own = cut(c, a->rank);
    line_buffers mine =
        buffers_of((const char *)a->src + own.at, (char *)a->dst + own.at, own.end - own.at);
    mine.in = in, mine.out = out;
    const auto target = [a, bytes = c.bytes, each = c.each](int p) {
        const slice s = slice_of(bytes, anew(each), p);
        return line_target{(char *)a->dst + s.at, s.end - s.at};
    };
    if (OP == ANY_OP && warp_scalars_wait(r)) return;
    const auto send = [&](uint32_t k) { slices_send<N>(r, w, k, c, in); };
    const auto take = [&](uint32_t k) {
        const unsigned lines = lines_of(w, k, c.each);
        return item_reduce<T, N, OP, SENDS_ALL>(r, w, k, lines, mine) ||
               item_copy<N>(r, w, k, lines, 1, target);
    };
    items_ahead<N>(w, c.each, send, take);
}
template <int T, int N> DEV void body_ar_twoshot(run &r) {
    by_op<sum_apart<T, N>()>(r.a->op, [&](auto op) { ar_twoshot<T, N, op.OP>(r); });
}

/* ---- broadcast and reduce -------------------------------------------------------------------- */

#define ROOTED_PLACES 4u

/* Broadcast. An owner says to the root what it has read, if the place is used again: when it has
 * read all of an item's lines, it sends the first one back, empty. It passes an item on before it
 * takes the one before from the other owners.
 *   Root to owner: item k takes the place of item k-4, after the root has heard so of that.
 *   Owner to owner: item k takes the place of item k-4. It is sent after item k-2 of every other
 *     owner has been taken, which was sent after its owner had taken item k-4.
 *   Owner to root: item k takes the place of item k-4. The owner has read item k from the root,
 *     which was sent after the root had heard of item k-4. */
DEV void say_read(run &r, const warp_work &w, uint32_t k) {
    const uint32_t nothing[4] = {0, 0, 0, 0};
    line_put(line_slot(r, r.a->gpu.root, 0, r.a->rank) + line_at(w, k, 0),
             line_pack(nothing, w.mine.flags, line_flag(r, k)), w.mine.flags);
}
/* The root waits until every owner has read item k. 1: leave. */
template <int N> DEV int wait_read(run &r, const warp_work &w, uint32_t k) {
    const symm_args *a = r.a;
    const int n = N ? N : a->nranks;
#pragma unroll 1
    for (int q = 1; q < n; q++) {
        uint32_t v[4];
        if (line_recv(r, w, k, 0, 0, peer_of(a->rank, n, q), v)) return 1;
    }
    return 0;
}

/* The own slice's lines of item k from the root: into the result, and to every other owner. 1:
 * leave. */
template <int N>
DEV int slice_relay(run &r, const warp_work &w, uint32_t k, unsigned lines, char *to,
                    uint64_t bytes) {
    const symm_args *a = r.a;
    const int n = N ? N : a->nranks, root = a->gpu.root, out = alignment(to);
    const uint64_t flag = line_flag(r, k);
#pragma unroll 1
    for (unsigned j = 0; j < lines;) {
        const line_run l = whole_or_one(lines_from(w, k, j, lines, bytes, out));
        uint4 v[LINES_AT_ONCE] = {};
        uint32_t x[LINES_AT_ONCE][4];
        if (lines_recv(r, w, l, 0, root, v)) return 1;
#pragma unroll
        for (unsigned i = 0; i < LINES_AT_ONCE; i++) to_words(x[i], v[i]);
#pragma unroll 1
        for (int q = 1; q < n; q++) {
            const int p = peer_of(a->rank, n, q);
#pragma unroll
            for (unsigned i = 0; i < LINES_AT_ONCE; i++)
                if (p != root && i < l.count)
                    line_put(line_slot(r, p, 0, a->rank) + line_at(w, k, j + i),
                             line_pack(x[i], w.mine.flags, flag), w.mine.flags);
        }
        if (l.whole)
            store_lines(to, x, l, bytes, w.mine);
        else
            store_line(to, x[0], l.at, bytes, w.mine, out);
        j += l.count;
    }
    return 0;
}
/* Item k of all other owners' slices, owner after owner. 1: leave. */
template <int N>
DEV int slices_take(run &r, const warp_work &w, uint32_t k, unsigned lines, const cuts<1> &c) {
    const symm_args *a = r.a;
    const int n = N ? N : a->nranks;
#pragma unroll 1
    for (int q = 1; q < n; q++) {
        const int p = peer_of(a->rank, n, q);
        const slice s = cut(c, p);
        if (!owns(c, p)) continue;
        if (lines_take(r, w, k, lines, 0, p, (char *)a->dst + s.at, s.end - s.at)) return 1;
    }
    return 0;
}
/* The root's own copy is made of what it has loaded to send. */
template <int N> DEV void broadcast_root(run &r, const warp_work &w, const cuts<1> &c) {
    const int in = alignment(r.a->src);
    char *keep = r.a->dst == r.a->src ? 0 : (char *)r.a->dst;
#pragma unroll 1
    for (uint32_t k = 0; data_at(w, k, 0) < c.each; k++) {
        if (k >= ROOTED_PLACES && wait_read<N>(r, w, k - ROOTED_PLACES)) return;
        slices_send<N, 1>(r, w, k, c, in, keep);
    }
}
template <int N> DEV void broadcast_owner(run &r, const warp_work &w, const cuts<1> &c) {
    const slice own = cut(c, r.a->rank);
    char *to = (char *)r.a->dst + own.at;
#pragma unroll 1
    for (uint32_t k = 0; !k || data_at(w, k - 1, 0) < c.each; k++) {
        if (slice_relay<N>(r, w, k, lines_of(w, k, c.each), to, own.end - own.at)) return;
        if (data_at(w, k + ROOTED_PLACES, 0) < c.each) say_read(r, w, k);
        if (k && slices_take<N>(r, w, k - 1, lines_of(w, k - 1, c.each), c)) return;
    }
}
template <int N> DEV void body_broadcast_twoshot(run &r) {
    const cuts<1> c = cuts_of<1>(r.a);
    const warp_work w = warp_of(r.a, ROOTED_PLACES);
    if (is_root(r.a, r.a->rank))
        broadcast_root<N>(r, w, c);
    else
        broadcast_owner<N>(r, w, c);
}

/* Reduce. Owners do not hear what another has read.
 *   To owners: item k+1 takes the place of item k-3. By then this warp has read item k-1 of every
 *     owner, who sent that after it had taken our item k-3. The root: it has taken item k-1 from
 *     every owner, who sent that after it had read our item k-1.
 *   To the root: item k takes the place of item k-4. The owner has read item k from the root, who
 *     sent that after it had taken item k-2.
 * In place is safe as in all_reduce: the root writes a place of the result after it has sent
 * what was there. */
template <int T, int N, int OP> DEV void reduce_twoshot(run &r) {
    const symm_args *a = r.a;
    const cuts<1> c = cuts_of<1>(a);
    const warp_work w = warp_of(a, ROOTED_PLACES);
    const int root = is_root(a, a->rank), in = alignment(a->src);
    const slice own = cut(c, a->rank);
    const line_buffers mine = {(const char *)a->src + own.at, 0, own.end - own.at, in, 0};
    const auto target = [a, c](int p) {
        const slice s = cut(c, p);
        return line_target{(char *)a->dst + s.at, s.end - s.at};
    };
    if (OP == ANY_OP && !root && warp_scalars_wait(r)) return;
    const auto send = [&](uint32_t k) { slices_send<N>(r, w, k, c, in); };
    const auto take = [&](uint32_t k) {
        const unsigned lines = lines_of(w, k, c.each);
        return root ? item_copy<N>(r, w, k, lines, 0, target)
                    : item_reduce<T, N, OP, SENDS_ROOT>(r, w, k, lines, mine);
    };
    items_ahead<N>(w, c.each, send, take);
}
template <int T, int N> DEV void body_reduce_twoshot(run &r) {
    by_op<sum_apart<T, N>()>(r.a->op, [&](auto op) { reduce_twoshot<T, N, op.OP>(r); });
}

#endif
