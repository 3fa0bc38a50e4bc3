/* two_shots.cuh - all_reduce in lines (LL128) that cross twice: each slice's to its owner, who
 * reduces and sends the result to everybody; 2(n-1)/n of the bytes cross a link. Ranks share only
 * scratch, so buffers may be anywhere. GPU code: whole data warps run it. */
#ifndef SYMM_CUDA_TWO_SHOTS_CUH_
#define SYMM_CUDA_TWO_SHOTS_CUH_

#include "lines.cuh"

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
    const auto send = [&](uint32_t k, unsigned) { slices_send<N>(r, w, k, c, in); };
    const auto take = [&](uint32_t k, unsigned) {
        const unsigned lines = lines_of(w, k, c.each);
        return item_reduce<T, N, OP, SENDS_ALL>(r, w, k, lines, mine) ||
               item_copy<N>(r, w, k, lines, 1, target);
    };
    items_ahead<N>(w, c.each, send, take);
}
template <int T, int N> DEV void body_ar_twoshot(run &r) {
    by_op<sum_apart<T, N>()>(r.a->op, [&](auto op) { ar_twoshot<T, N, op.OP>(r); });
}

#endif
