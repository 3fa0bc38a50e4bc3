/* hop_lines.cuh - middle messages of every shape in lines (LL128): one hop, from who gives to who
 * takes. Buffers may be anywhere. GPU code: whole data warps run it.
 *
 * Shapes in which all give and all take use their places again: item k+1 takes the place of
 * item k-3; by then this warp has read item k-1 of the same warp of every peer, and the
 * peer sent that after it had read our item k-3.
 *
 * With a root somebody gives and hears nothing, so that proof does not hold. There a call is one
 * item (SYMM_CAP_LINES: plan_gpu.c makes a warp's share as long as it must be), and no place is
 * used twice in a kernel. */
#ifndef SYMM_CUDA_HOP_LINES_CUH_
#define SYMM_CUDA_HOP_LINES_CUH_

#include "pair_lines.cuh"

template <int S>
DEV void load_part_line(const symm_args *a, uint32_t (&v)[4], int p, uint64_t at, const piece &m) {
    const char *base = (const char *)a->src + part_for<S>(a, p);
    load_line(v, base, at, part_bytes(a), m, alignment(base));
}

/* Takers whose lines are loaded together, if each has one of its own: as many as the registers hold
 * beside the rest. The loads are volatile, so nobody but the source can bring them together. */
template <int S, int N> constexpr DEV int load_group(void) {
    return !(S & SRC_EACH) || !N ? 1 : N < 6 ? N - 1 : 4;
}

/* What the first taker gets. */
template <int S, int N> DEV const char *first_part(const symm_args *a) {
    return (const char *)a->src + (S & SRC_EACH ? part_for<S>(a, taker<S, N>(a, 1)) : 0);
}

/* Item k where all takers have the same of it, or there is one taker. */
template <int S, int N>
DEV void hop_lines_send(run &r, const warp_work &w, uint32_t k, unsigned lines, int count) {
    const symm_args *a = r.a;
    const char *base = first_part<S, N>(a);
    const int align = alignment(base);
    const uint64_t flag = line_flag(r, k), bytes = part_bytes(a);
#pragma unroll 1
    for (unsigned j = 0; j < lines;) {
        const line_run l = whole_or_one(lines_from(w, k, j, lines, bytes, align));
        uint32_t v[LINES_AT_ONCE][4] = {};
        if (l.whole)
            load_lines(v, base, l, bytes, w.mine);
        else
            load_line(v[0], base, l.at, bytes, w.mine, align);
#pragma unroll 1
        for (int q = 1; q <= count; q++)
#pragma unroll
            for (unsigned i = 0; i < LINES_AT_ONCE; i++)
                if (i < l.count)
                    line_put(line_slot(r, taker<S, N>(a, q), 0, a->rank) + line_at(w, k, j + i),
                             line_pack(v[i], w.mine.flags, flag), w.mine.flags);
        j += l.count;
    }
}
/* Item k where each taker has a part of its own. */
template <int S, int N>
DEV void hop_parts_send(run &r, const warp_work &w, uint32_t k, unsigned lines, int count) {
    const symm_args *a = r.a;
    const uint64_t flag = line_flag(r, k);
    constexpr int group = load_group<S, N>();
#pragma unroll 1
    for (unsigned j = 0; j < lines; j++) {
        const uint64_t place = line_at(w, k, j), at = data_at(w, k, j);
        uint32_t v[group][4];
#pragma unroll 2
        for (int q = 1; q <= count; q += group) {
#pragma unroll
            for (int i = 0; i < group; i++)
                if (q + i <= count) load_part_line<S>(a, v[i], taker<S, N>(a, q + i), at, w.mine);
#pragma unroll
            for (int i = 0; i < group; i++)
                if (q + i <= count)
                    line_put(line_slot(r, taker<S, N>(a, q + i), 0, a->rank) + place,
                             line_pack(v[i], w.mine.flags, flag), w.mine.flags);
        }
    }
}
/* Item k of each part to its taker. */
template <int S, int N> DEV void hop_item_send(run &r, const warp_work &w, uint32_t k) {
    const unsigned lines = lines_of(w, k, part_bytes(r.a));
    const int count = takers<S, N>(r.a);
    if (!count) return;
    if (!(S & SRC_EACH) || most_takers<S, N>() == 1)
        hop_lines_send<S, N>(r, w, k, lines, count);
    else
        hop_parts_send<S, N>(r, w, k, lines, count);
}

/* Item k of every giver, copied out, giver after giver. 1: leave. */
template <int S, int N>
DEV int hop_givers_copy(run &r, const warp_work &w, uint32_t k, unsigned lines) {
    const symm_args *a = r.a;
    const int count = givers<S, N>(a);
#pragma unroll 1
    for (int q = 1; q <= count; q++) {
        const int p = giver<S, N>(a, q);
        char *to = (char *)a->dst + part_from<S>(a, p);
        if (lines_take(r, w, k, lines, 0, p, to, part_bytes(a))) return 1;
    }
    return 0;
}
/* The same, several givers' together. */
template <int S, int N>
DEV int hop_gather_copy(run &r, const warp_work &w, uint32_t k, unsigned lines) {
    const symm_args *a = r.a;
    const auto part = [a](int p) {
        return line_target{(char *)a->dst + part_from<S>(a, p), part_bytes(a)};
    };
    return item_copy<N>(r, w, k, lines, 0, part);
}
/* Item k of all givers. In place is safe: the lanes that store a line of the result are those that
 * have loaded what was there. 1: leave. */
template <int S, int T, int N, int OP>
DEV int hop_item_take(run &r, const warp_work &w, uint32_t k, const line_buffers &b) {
    const unsigned lines = lines_of(w, k, b.bytes);
    return S & REDUCES                ? item_reduce<T, N, OP>(r, w, k, lines, b)
           : N <= 2 || S & ROOT_GIVES ? hop_givers_copy<S, N>(r, w, k, lines)
                                      : hop_gather_copy<S, N>(r, w, k, lines);
}

template <int S, int T, int N, int OP> DEV void hop_lines(run &r) {
    const symm_args *a = r.a;
    const warp_work w = warp_of(a, PLACES(S));
    const int taking = takes<S>(a, a->rank);
    char *own = own_target<S>(a);
    const line_buffers b = buffers_of(own_source<S>(a), (char *)a->dst, part_bytes(a));
    if (S & REDUCES && OP == ANY_OP && taking && warp_scalars_wait(r)) return;
    const auto send = [&](uint32_t k) { hop_item_send<S, N>(r, w, k); };
    const auto take = [&](uint32_t k) {
        if (own) item_own(own_source<S>(a), own, w, k, part_bytes(a)); /* while the links work */
        return taking && hop_item_take<S, T, N, OP>(r, w, k, b);
    };
    if (!ROOTED(S)) return items_ahead<N>(w, part_bytes(a), send, take);
    send(0);
    take(0);
}
template <int S, int T, int N> DEV void body_hop_lines(run &r, first_lines<N> &first) {
    constexpr int apart = S & REDUCES && sum_apart<T, N>();
    send_first(r, first);
    by_op<apart>(r.a->op, [&](auto op) {
        if constexpr (N == 2)
            pair_lines<S, T, op.OP>(r, first);
        else
            hop_lines<S, T, N, op.OP>(r);
    });
}

/* ---- all give all, all take all -------------------------------------------------------------- */

/* In place: the thread that overwrites an element is the last that reads it. */
template <int T, int N, int OP> DEV void ar_push(run &r) {
    const symm_args *a = r.a;
    const uint64_t bytes = a->count * a->esize;
    const warp_work w = warp_of(a, PUSH_PLACES);
    const line_buffers b = buffers_of((const char *)a->src, (char *)a->dst, bytes);
    const int in = alignment(a->src);
    if (OP == ANY_OP && warp_scalars_wait(r)) return;
    items_ahead<N>(
        w, bytes, [&](uint32_t k) { item_send<N>(r, w, k, bytes, in); },
        [&](uint32_t k) { return item_reduce<T, N, OP>(r, w, k, lines_of(w, k, bytes), b); });
}
template <int T, int N> DEV void body_ar_push(run &r, first_lines<N> &first) {
    send_first(r, first);
    by_op<sum_apart<T, N>()>(r.a->op, [&](auto op) {
        if constexpr (N == 2)
            pair_lines<ALL_REDUCE, T, op.OP>(r, first);
        else
            ar_push<T, N, op.OP>(r);
    });
}

/* all_gather with lines. */
template <int N> DEV void ag_push(run &r) {
    const symm_args *a = r.a;
    const int n = N ? N : a->nranks;
    const uint64_t bytes = a->count * a->esize;
    const warp_work w = warp_of(a, PUSH_PLACES);
    char *own = (char *)a->dst + (uint64_t)a->rank * bytes;
    const int in = alignment(a->src);
    const auto part = [a, bytes](int p) {
        return line_target{(char *)a->dst + (uint64_t)(unsigned)p * bytes, bytes};
    };
    const auto take = [&](uint32_t k) {
        const unsigned lines = lines_of(w, k, bytes);
        if (own != a->src) item_own((const char *)a->src, own, w, k, bytes);
        if (N > 2) return item_copy<N>(r, w, k, lines, 0, part);
#pragma unroll 1
        for (int q = 1; q < n; q++) {
            const int p = peer_of(a->rank, n, q);
            if (lines_take(r, w, k, lines, 0, p, part(p).at, bytes)) return 1;
        }
        return 0;
    };
    items_ahead<N>(
        w, bytes, [&](uint32_t k) { item_send<N>(r, w, k, bytes, in); }, take);
}
template <int N> DEV void body_ag_push(run &r, first_lines<N> &first) {
    send_first(r, first);
    if constexpr (N == 2)
        pair_lines<ALL_GATHER, symmUint8, ANY_OP>(r, first);
    else
        ag_push<N>(r);
}
/* The same behind the beginning of a kernel. */
template <int N> DEV void ag_push_late(run &r) {
    first_lines<N> first = place_lines<ALL_GATHER, N>(*r.a);
    load_first(*r.a, first);
    body_ag_push<N>(r, first);
}

#endif
